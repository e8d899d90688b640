// quant.c: ONNX operators on quantised numbers. Takes the node being lowered. Gives its results.
// Keeps: a quantised value is a float that holds a whole number (or one of 8 bits), so products are
// those of floats, exact below 2^24, and rounding has the gradient 1.
#include "lower.h"
#include <math.h>
#include <string.h>

// Scales and zero points of one axis, or of blocks along it, fitted to x.
static Ref fit_scale(Call *c, Ref scale, const Shape *x, int64_t axis, int64_t block)
{
	Graph *g = c->g;
	Shape s = val(g, scale)->shape;
	if (count_of(&s) == 1)
		return put_reshape(g, scale, shape_of(0, NULL));
	if (s.rank == 1 && axis < x->rank && s.dim[0] == x->dim[axis]) {
		Shape at = {.rank = x->rank};
		for (int a = 0; a < x->rank; a++)
			at.dim[a] = a == axis ? s.dim[0] : 1;
		return put_reshape(g, scale, at);
	}
	if (s.rank != x->rank || block < 1 || s.dim[axis] * block < x->dim[axis])
		refuse(c, "scales %s for %s", shape_text(c->r->arena, E_f32, &s),
		       shape_text(c->r->arena, E_f32, x));
	Ref each = repeat_axis(g, scale, (int)axis + 1, block);
	each = merge_axes(g, each, (int)axis, (int)axis + 2);
	return take_range(g, each, (int)axis, 0, x->dim[axis]);
}

// Operand k as floats fitted to x; 0 where it is absent.
static Ref fitted(Call *c, int k, const Shape *x)
{
	int64_t axis =
	    x->rank
	        ? axis_of(c, attr_int(c, "axis", 1) < x->rank ? attr_int(c, "axis", 1) : 0, x->rank)
	        : 0;
	if (k >= c->nin || !c->in[k])
		return put_num(c->g, E_f32, 0);
	return fit_scale(c, put_cast(c->g, c->in[k], E_f32), x, axis, attr_int(c, "block_size", 0));
}

static void whole_limits(int onnx, double *low, double *high)
{
	const Format *f = find_format(onnx);
	int bits = f ? f->bits : 8 * elems[declared_type(onnx)].bytes;
	bool sign = f ? f->special == F_signed : elems[declared_type(onnx)].cls == 'i';
	*low = sign ? -ldexp(1, bits - 1) : 0;
	*high = ldexp(1, sign ? bits - 1 : bits) - 1;
}

// round(x / scale) + zero, kept inside the type.
static Ref quantise(const Call *c, Ref x, Ref scale, Ref zero, int onnx, bool saturate)
{
	const Format *f = find_format(onnx);
	if (f && !is_whole(f))
		return put_typed(c, put2(c->g, O_div, x, scale), onnx, saturate, "nearest");
	double low, high;
	whole_limits(onnx, &low, &high);
	Given given[] = {{.name = "low", .x = low}, {.name = "high", .x = high}};
	return book_call1(c->g, "quantised", 3, (Ref[]){x, scale, zero}, 2, given);
}

void lower_quantize(Call *c)
{
	enum { UINT8 = 2 };
	Shape s = in_val(c, 0)->shape;
	in_val(c, 1);
	bool typed = c->nin > 2 && c->in[2];
	c->onnx = typed ? operand_type(c, 2) : (int)attr_int(c, "output_dtype", 0);
	if (!c->onnx)
		c->onnx = UINT8;
	c->out[0] = quantise(c, put_cast(c->g, c->in[0], E_f32), fitted(c, 1, &s), fitted(c, 2, &s),
	                     c->onnx, attr_int(c, "saturate", 1));
}

void lower_dequantize(Call *c)
{
	Shape s = in_val(c, 0)->shape;
	in_val(c, 1);
	Ref in[] = {put_cast(c->g, c->in[0], E_f32), fitted(c, 1, &s), fitted(c, 2, &s)};
	c->out[0] = book_call1(c->g, "dequantised", 3, in, 0, NULL);
}

// ---- products -------------------------------------------------------------------------

// Operand k less its zero point, operand z: numbers along the last axis (columns) or the one
// before.
static Ref centred(Call *c, int k, int z, bool columns)
{
	Graph *g = c->g;
	in_val(c, k);
	Ref x = put_cast(g, c->in[k], E_f32);
	if (z >= c->nin || !c->in[z])
		return x;
	Ref zero = put_cast(g, c->in[z], E_f32);
	Shape s = val(g, zero)->shape;
	if (s.rank == 1 && s.dim[0] > 1 && !columns)
		zero = put_reshape(g, zero, shape_of(2, (int64_t[]){s.dim[0], 1}));
	return put_map2(g, O_sub, x, zero);
}

void lower_matmul_integer(Call *c)
{
	Ref y = matmul(c->g, centred(c, 0, 2, false), centred(c, 1, 3, true));
	c->out[0] = put_cast(c->g, y, E_i32);
}

// A scale as a float: of one row or column each where there are several.
static Ref scale_of(Call *c, int k, bool columns)
{
	in_val(c, k);
	Ref s = put_cast(c->g, c->in[k], E_f32);
	Shape at = val(c->g, s)->shape;
	if (count_of(&at) == 1)
		return put_reshape(c->g, s, shape_of(0, NULL));
	return columns || at.rank != 1
	           ? s
	           : put_reshape(c->g, s, shape_of(2, (int64_t[]){at.dim[0], 1}));
}

// y of whole numbers, times its operands' scales, quantised as operands 6 and 7 say.
static void requantise(Call *c, Ref y, Ref scale)
{
	in_val(c, 6), in_val(c, 7);
	Graph *g = c->g;
	Ref step = scale_of(c, 6, false), zero = put_cast(g, c->in[7], E_f32);
	if (count_of(&val(g, zero)->shape) == 1)
		zero = put_reshape(g, zero, shape_of(0, NULL));
	c->onnx = operand_type(c, 7);
	c->out[0] = quantise(c, put_map2(g, O_mul, y, scale), step, zero, c->onnx, true);
}

void lower_qlinear_matmul(Call *c)
{
	Graph *g = c->g;
	Ref y = matmul(g, centred(c, 0, 2, false), centred(c, 3, 5, true));
	requantise(c, y, put_map2(g, O_mul, scale_of(c, 1, false), scale_of(c, 4, true)));
}

// Numbers of one output channel each, along axis `axis` of `rank`.
static Ref by_channel(Graph *g, Ref x, int rank, int axis)
{
	int64_t n = count_of(&val(g, x)->shape);
	Shape at = {.rank = n == 1 ? 0 : rank};
	for (int a = 0; a < at.rank; a++)
		at.dim[a] = a == axis ? n : 1;
	return put_reshape(g, put_cast(g, x, E_f32), at);
}

// The convolution of operands x and w less their zero points.
static Ref convolve_centred(Call *c, int w, int zero_x, int zero_w)
{
	Graph *g = c->g;
	int rank = in_val(c, w)->shape.rank;
	Call conv = *c;
	conv.in = take_copy(c->r->arena, c->in, sizeof *c->in * (size_t)(c->nin + 1));
	conv.in[0] = centred(c, 0, zero_x, true);
	conv.in[1] = put_cast(g, c->in[w], E_f32);
	conv.nin = 2;
	if (zero_w < c->nin && c->in[zero_w])
		conv.in[1] = put2(g, O_sub, conv.in[1], by_channel(g, c->in[zero_w], rank, 0));
	lower_conv(&conv);
	return c->out[0];
}

void lower_conv_integer(Call *c)
{
	c->out[0] = put_cast(c->g, convolve_centred(c, 1, 2, 3), E_i32);
}

void lower_qlinear_conv(Call *c)
{
	Graph *g = c->g;
	in_val(c, 4);
	Ref y = convolve_centred(c, 3, 2, 5);
	int rank = val(g, y)->shape.rank;
	if (c->nin > 8 && c->in[8])
		y = put2(g, O_add, y, by_channel(g, c->in[8], rank, 1));
	requantise(c, y,
	           put_map2(g, O_mul, scale_of(c, 1, true), by_channel(g, c->in[4], rank, 1)));
}
