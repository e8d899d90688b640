// number.c: defines the element types and the values of elements.
#include "number.h"

const struct amos_element amos_types[AMOS_TYPES] = {
#define T(name, ctype, bytes, cls, onnx) {#name, bytes, cls},
#include "types.def"
#undef T
};

// Returns the value of an element whose bits were read as an integer, or of a float.
static double value_of(int type, double bits)
{
	return type == AMOS_f16    ? amos_from_f16((uint16_t)bits)
	       : type == AMOS_bf16 ? amos_from_bf16((uint16_t)bits)
	       : type == AMOS_b8   ? bits != 0
	                           : bits;
}

void amos_numbers(double *to, const void *from, int type, int64_t n)
{
	switch (type) {
#define T(name, ctype, bytes, cls, onnx)                                                           \
	case AMOS_##name:                                                                          \
		for (int64_t i = 0; i < n; i++)                                                    \
			to[i] = value_of(AMOS_##name, (double)((const ctype *)from)[i]);           \
		break;
#include "types.def"
#undef T
	}
}

double amos_number(const void *at, int type, int64_t i)
{
	double x = 0;
	amos_numbers(&x, (const char *)at + i * amos_types[type].bytes, type, 1);
	return x;
}

bool amos_in_range(const struct amos_slot *slot, double x)
{
	bool ignored = slot->ignore && x == (double)slot->ignore;
	return !slot->limit || ignored || (x >= 0 && x < (double)slot->limit);
}

int64_t amos_elements(int rank, const int64_t *dim)
{
	const int64_t most = INT64_MAX / 16;
	int64_t count = 1;
	for (int a = 0; a < rank; count *= dim[a++])
		if (dim[a] < 0 || (dim[a] && count > most / dim[a]))
			return -1;
	return count;
}

static size_t add_text(char *to, size_t room, size_t at, const char *text)
{
	while (*text && at + 1 < room)
		to[at++] = *text++;
	to[at] = 0;
	return at;
}

static size_t add_integer(char *to, size_t room, size_t at, int64_t n)
{
	char digits[21], *first = digits + sizeof digits - 1;
	*first = 0;
	do
		*--first = (char)('0' + n % 10);
	while (n /= 10);
	return add_text(to, room, at, first);
}

const char *amos_shape_text(char *to, size_t room, int type, int rank, const int64_t *dim)
{
	size_t at = add_text(to, room, 0, amos_types[type].name);
	for (int a = 0; a < rank; a++) {
		at = add_text(to, room, at, a ? "," : "[");
		at = dim[a] < 0 ? add_text(to, room, at, "?") : add_integer(to, room, at, dim[a]);
	}
	add_text(to, room, at, rank ? "]" : "[]");
	return to;
}
