// convert.c: converts between element types and checks their range.
// Invariant: a value that does not fit is reported, never changed silently.
#include "rt.h"
#include <math.h>
#include <string.h>

static bool is_float(int type)
{
	return amos_types[type].class == 'f';
}

static void load_ints(int64_t *to, const void *from, int type, int64_t n)
{
	switch (type) {
#define T(name, ctype, bytes, cls, onnx)                                                           \
	case AMOS_##name:                                                                          \
		for (int64_t i = 0; i < n; i++)                                                    \
			to[i] = (int64_t)(AMOS_##name == AMOS_b8 ? ((const ctype *)from)[i] != 0   \
			                                         : ((const ctype *)from)[i]);      \
		break;
#include "types.def"
#undef T
	}
}

// Returns the range of an integer type. u64 values above INT64_MAX are rejected.
static void int_range(int type, int64_t *least, int64_t *most)
{
	int bits = 8 * amos_types[type].bytes;
	switch (amos_types[type].class) {
	case 'b':
		*least = 0, *most = 1;
		break;
	case 'u':
		*least = 0, *most = bits == 64 ? INT64_MAX : (INT64_C(1) << bits) - 1;
		break;
	default:
		*most = bits == 64 ? INT64_MAX : (INT64_C(1) << (bits - 1)) - 1;
		*least = -*most - 1;
	}
}

bool amos_attachable(int to_type, int from_type, int64_t limit)
{
	if (is_float(from_type))
		return false;
	int64_t least, most, to_least = INT64_MIN, to_most = INT64_MAX;
	int_range(from_type, &least, &most);
	if (!is_float(to_type))
		int_range(to_type, &to_least, &to_most);
	else if (amos_types[from_type].bytes > 1)
		return false;
	if (limit && to_least < 0)
		to_least = 0;
	if (limit && to_most >= limit)
		to_most = limit - 1;
	return from_type != AMOS_u64 && least >= to_least && most <= to_most;
}

enum { CHUNK = 512 };

static int64_t chunk_to_floats(void *to, int to_type, const void *from, int from_type, int64_t n,
                               double divide)
{
	static const double most[] = {[AMOS_f64] = INFINITY,
	                              [AMOS_f32] = 0x1.ffffffp127,
	                              [AMOS_f16] = 65519.99,
	                              [AMOS_bf16] = 0x1.fefffep127};
	double x[CHUNK];
	int64_t bad = -1;
	amos_numbers(x, from, from_type, n);
	for (int64_t i = 0; i < n && bad < 0; i++)
		if (fabs(x[i]) > most[to_type] && !isinf(x[i]))
			bad = i;
	if (divide != 1)
		for (int64_t i = 0; i < n; i++)
			x[i] /= divide;
	switch (to_type) {
	case AMOS_f64:
		memcpy(to, x, (size_t)n * sizeof *x);
		break;
	case AMOS_f32:
		for (int64_t i = 0; i < n; i++)
			((float *)to)[i] = (float)x[i];
		break;
	case AMOS_f16:
		for (int64_t i = 0; i < n; i++)
			((uint16_t *)to)[i] = amos_to_f16(x[i]);
		break;
	case AMOS_bf16:
		for (int64_t i = 0; i < n; i++)
			((uint16_t *)to)[i] = amos_to_bf16(x[i]);
		break;
	}
	return bad;
}

static int64_t chunk_to_ints(void *to, int to_type, const void *from, int from_type, int64_t n)
{
	int64_t x[CHUNK], least, most;
	int_range(to_type, &least, &most);
	if (is_float(from_type)) {
		double f[CHUNK];
		amos_numbers(f, from, from_type, n);
		for (int64_t i = 0; i < n; i++) {
			if (!(fabs(f[i]) < 0x1p62) || f[i] != floor(f[i]))
				return i;
			x[i] = (int64_t)f[i];
		}
	} else {
		load_ints(x, from, from_type, n);
	}
	for (int64_t i = 0; i < n; i++)
		if (x[i] < least || x[i] > most || (from_type == AMOS_u64 && x[i] < 0))
			return i;
	switch (to_type) {
#define T(name, ctype, bytes, cls, onnx)                                                           \
	case AMOS_##name:                                                                          \
		for (int64_t i = 0; i < n; i++)                                                    \
			((ctype *)to)[i] = (ctype)x[i];                                            \
		break;
#include "types.def"
#undef T
	}
	return -1;
}

int64_t amos_convert(void *to, int to_type, const void *from, int from_type, int64_t n,
                     double divide)
{
	int to_bytes = amos_types[to_type].bytes, from_bytes = amos_types[from_type].bytes;
	int64_t first = -1;
	for (int64_t at = 0; at < n; at += CHUNK) {
		int64_t count = n - at < CHUNK ? n - at : CHUNK;
		char *out = (char *)to + at * to_bytes;
		const char *in = (const char *)from + at * from_bytes;
		int64_t bad = is_float(to_type)
		                  ? chunk_to_floats(out, to_type, in, from_type, count, divide)
		                  : chunk_to_ints(out, to_type, in, from_type, count);
		if (bad >= 0 && first < 0)
			first = at + bad;
		if (bad >= 0 && !is_float(to_type))
			break;
	}
	return first;
}
