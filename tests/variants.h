// variants.h: models of one node, a line of text each; variants.txt tells the notation.
#ifndef VARIANTS_H
#define VARIANTS_H
#include "build.h"

Build *variant(const char *line, const char **op);
// A branch that depends on the data: then x * x, else exp(x).
Build *branch_variant(void);
// What a slot of a variant holds: numbers by its name.
Array variant_values(void *, const Slot *);

#endif
