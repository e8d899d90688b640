// eval_map.c: evaluates element-wise primitives of floats and of integers.
#include "eval.h"
#include <math.h>

// NaN if either is.
static double float_max(double x, double y)
{
	return isnan(x) ? x : isnan(y) ? y : MAX(x, y);
}

static double float_min(double x, double y)
{
	return isnan(x) ? x : isnan(y) ? y : MIN(x, y);
}

static double float_mod(double x, double y)
{
	double rest = fmod(x, y);
	if (rest == 0)
		return copysign(0, y);
	return (rest < 0) != (y < 0) ? rest + y : rest;
}

double float_map(Op op, double x, double y)
{
	switch (op) {
#define MAP(name, value, ...)                                                                      \
	case O_##name:                                                                             \
		return value;
#define FLOAT MAP
#define INTEGER(...)
#include "maps.def"
#undef MAP
#undef FLOAT
#undef INTEGER
	case O_cast:
		return x;
	default:
		never("a map of floats");
	}
}

bool int_less(Elem elem, int64_t x, int64_t y)
{
	return is_signed(elem) ? x < y : (uint64_t)x < (uint64_t)y;
}

static int64_t int_div(Elem elem, int64_t x, int64_t y)
{
	if (y == 0)
		return 0;
	if (!is_signed(elem))
		return (int64_t)((uint64_t)x / (uint64_t)y);
	return y == -1 ? (int64_t) - (uint64_t)x : x / y;
}

static int64_t int_mod(Elem elem, int64_t x, int64_t y)
{
	if (y == 0 || (is_signed(elem) && y == -1))
		return 0;
	if (!is_signed(elem))
		return (int64_t)((uint64_t)x % (uint64_t)y);
	int64_t rest = x % y;
	return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

static int64_t int_sign(Elem elem, int64_t x)
{
	return is_signed(elem) ? (x > 0) - (x < 0) : x != 0;
}

// The result may be out of the type's range.
static int64_t int_map(Op op, Elem e, int64_t x, int64_t y)
{
	uint64_t ux = (uint64_t)x, uy = (uint64_t)y;
	switch (op) {
#define MAP(name, float_value, value, ...)                                                         \
	case O_##name:                                                                             \
		return (int64_t)(value);
#define INTEGER(name, value, ...) MAP(name, , value)
#define FLOAT(...)
#include "maps.def"
#undef MAP
#undef FLOAT
#undef INTEGER
	case O_cast:
		return x;
	default:
		never("a map of integers");
	}
}

void combine_element(Op op, Array *out, int64_t to, const Array *in, int64_t i)
{
	if (is_float(out->type))
		out->f[to] = float_map(op, out->f[to], in->f[i]);
	else
		out->i[to] = wrap_int(out->type, int_map(op, out->type, out->i[to], in->i[i]));
}

// Rounds to multiples of 2^(exponent - bits), for the exponent of x or the least exponent.
static double narrowed(const Attr *attr, double x)
{
	int exponent = isfinite(x) && x != 0 ? ilogb(x) : 0;
	int step = (int)(MAX(exponent, attr->i[1]) - attr->i[0]);
	return isfinite(x) ? ldexp(rint(ldexp(x, -step)), step) : x;
}

static void map_element(Op op, const Attr *attr, Array *out, int64_t i, const Array *in,
                        const Array *last, const int64_t *place)
{
	int64_t x = place[0];
	if (op == O_select)
		copy_element(out, i, &in[in[0].i[x] ? 1 : 2], place[in[0].i[x] ? 1 : 2]);
	else if (op == O_narrow)
		out->f[i] = narrowed(attr, in->f[x]);
	else if (is_float(in->type))
		set_float(out, i, float_map(op, in->f[x], last->f[place[last - in]]));
	else if (is_float(out->type))
		out->f[i] = element_at(in, x);
	else
		out->i[i] =
		    wrap_int(out->type, int_map(op, in->type, in->i[x], last->i[place[last - in]]));
}

void eval_map(Op op, const Attr *attr, Array *out, int nin, const Array *in)
{
	int64_t stride[3][RANK] = {0}, at[RANK] = {0}, place[3], i = 0, length;
	Shape lines = lines_of(&out->shape, &length);
	for (int k = 0; k < nin; k++)
		broadcast_strides(&in[k].shape, out->shape.rank, stride[k]);
	do {
		for (int k = 0; k < nin; k++)
			place[k] = element_offset(lines.rank, at, stride[k]);
		for (int64_t j = 0; j < length; j++) {
			map_element(op, attr, out, i++, in, &in[nin - 1], place);
			for (int k = 0; k < nin; k++)
				place[k] += stride[k][lines.rank];
		}
	} while (next_index(&lines, at));
}
