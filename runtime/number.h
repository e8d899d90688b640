// number.h: declares the element types and the values of elements.
#ifndef NUMBER_H
#define NUMBER_H
#include "core.h"

enum { // types.def
#define T(name, ctype, bytes, cls, onnx) AMOS_##name,
#include "types.def"
#undef T
	AMOS_TYPES
};
struct amos_element {
	const char *name;
	int bytes;
	char class; // f i u b
};
extern const struct amos_element amos_types[AMOS_TYPES];

void amos_numbers(double *to, const void *from, int type, int64_t n); // loads n elements
// True if an input may have the integer x: a label to ignore, or one in [0, limit).
bool amos_in_range(const struct amos_slot *, double x);

// Writes the type and shape, such as f32[2,?], to `to` and returns `to`; negative dimensions print
// as "?".
const char *amos_shape_text(char *to, size_t room, int type, int rank, const int64_t *dim);
// Returns the number of elements; -1: a dimension is negative, or there are too many.
int64_t amos_elements(int rank, const int64_t *dim);

#endif
