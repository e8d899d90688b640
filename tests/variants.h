// variants.h: models of one node, a line of text each; variants.txt tells the notation.
#ifndef VARIANTS_H
#define VARIANTS_H
#include "build.h"

Build *variant(const char *line, const char **op);
// A branch that depends on the data: then x * x, else exp(x).
Build *branch_variant(void);
// What a slot of a variant holds: numbers by its name.
Array variant_values(void *, const Slot *);

// Takes a model's line and those below that belong to it. Is all as it should be?
typedef bool TryVariant(char *const *line);
// Tries the models of a file, `lines` lines each, in an arena each. A model that is refused is off.
// Answers how many are off; of no models: 1.
int try_variants(const char *path, int lines, TryVariant *);

#endif
