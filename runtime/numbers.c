// numbers.c: defines element types and random numbers.
#include "rt.h"

const struct amos_type amos_types[AMOS_TYPES] = {
#define T(name, ctype, bytes, cls, onnx) {#name, bytes, cls},
#include "types.def"
#undef T
};

uint64_t amos_mix(uint64_t z)
{
	z += 0x9E3779B97F4A7C15;
	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
	z = (z ^ z >> 27) * 0x94D049BB133111EB;
	return z ^ z >> 31;
}
