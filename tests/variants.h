// variants.h: declares models of one node, one line of text each; variants.txt gives the notation.
#ifndef VARIANTS_H
#define VARIANTS_H
#include "build.h"

Build *variant(const char *line, const char **op);
// A data-dependent branch: x * x, else exp(x).
Build *branch_variant(void);
// Returns the contents of a slot of a variant, derived from its name.
Array variant_values(void *, const Slot *);

// Checks a model's line and those below that belong to it. True if correct.
typedef bool TryVariant(char *const *line);
// Tries the models of a file, `lines` lines each, each in its own arena. A model that fails to
// compile counts as wrong. Returns the number of wrong ones; 1 if there are no models.
int try_variants(const char *path, int lines, TryVariant *);

#endif
