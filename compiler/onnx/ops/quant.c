// quant.c: ONNX operators on quantised numbers. Takes the node being lowered. Gives its results.
// Keeps: a quantised value is a float that holds a whole number (or one of 8 bits), so products are
// those of floats, wide enough to be exact, and rounding has the gradient 1.
#include "quant.h"
#include <math.h>

Ref fit_scale(Call *c, Ref scale, const Shape *x, int64_t axis, int64_t block)
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
		invalid_node(c, "scales %s for %s", shape_text(c->r->arena, E_f32, &s),
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
	bool sign = f ? f->special == F_signed : is_signed(declared_type(onnx));
	*low = sign ? -ldexp(1, bits - 1) : 0;
	*high = ldexp(1, sign ? bits - 1 : bits) - 1;
}

// round(x / scale) + zero, kept inside the type.
static Ref quantise(const Call *c, Ref x, Ref scale, Ref zero, int onnx, bool saturate)
{
	const Format *f = find_format(onnx);
	if (f && !is_composite(f))
		return put_typed(c, put2(c->g, O_div, x, scale), onnx, saturate, "nearest");
	double low, high;
	whole_limits(onnx, &low, &high);
	AttrArg given[] = {{.name = "low", .x = low}, {.name = "high", .x = high}};
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

Elem exact_floats(int64_t n)
{
	enum { LARGEST = 255 * 255 };
	return n * LARGEST <= 1 << 24 ? E_f32 : E_f64;
}

Ref centred(Call *c, int k, int z, bool columns, Elem floats)
{
	Graph *g = c->g;
	in_val(c, k);
	Ref x = put_cast(g, c->in[k], floats);
	if (z >= c->nin || !c->in[z])
		return x;
	Ref zero = put_cast(g, c->in[z], floats);
	Shape s = val(g, zero)->shape;
	if (s.rank == 1 && s.dim[0] > 1 && !columns)
		zero = put_reshape(g, zero, shape_of(2, (int64_t[]){s.dim[0], 1}));
	return put_map2(g, O_sub, x, zero);
}

Ref multiply_centred(Call *c, int zero_a, int b, int zero_b)
{
	Shape a = in_val(c, 0)->shape;
	if (!a.rank || !in_val(c, b)->shape.rank)
		invalid_node(c, "an operand is a single number");
	Elem floats = exact_floats(a.dim[a.rank - 1]);
	return matmul(c->g, centred(c, 0, zero_a, false, floats),
	              centred(c, b, zero_b, true, floats));
}

void lower_matmul_integer(Call *c)
{
	c->out[0] = put_cast(c->g, multiply_centred(c, 2, 1, 3), E_i32);
}

Ref scale_of(Call *c, int k, bool columns)
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

// Operand k as a float: of one number, without axes; 0 where it is absent.
static Ref zero_of(Call *c, int k)
{
	if (!operand(c, k))
		return put_num(c->g, E_f32, 0);
	Ref zero = put_cast(c->g, c->in[k], E_f32);
	return count_of(&val(c->g, zero)->shape) == 1 ? put_reshape(c->g, zero, (Shape){0}) : zero;
}

Ref real_of(Call *c, int k, int scale, int zero)
{
	in_val(c, k);
	Ref in[] = {put_cast(c->g, c->in[k], E_f32), scale_of(c, scale, true), zero_of(c, zero)};
	return book_call1(c->g, "dequantised", 3, in, 0, NULL);
}

void requantise(Call *c, Ref y, int at)
{
	c->onnx = operand_type(c, operand(c, at + 1) ? at + 1 : 0);
	c->out[0] = quantise(c, y, scale_of(c, at, false), zero_of(c, at + 1), c->onnx, true);
}

void lower_qlinear_matmul(Call *c)
{
	Graph *g = c->g;
	Ref y = put_cast(g, multiply_centred(c, 2, 3, 5), E_f32);
	Ref scale = put_map2(g, O_mul, scale_of(c, 1, false), scale_of(c, 4, true));
	requantise(c, put_map2(g, O_mul, y, scale), 6);
}

// ---- convolutions ---------------------------------------------------------------------

// Numbers of one output channel each, along axis `axis` of `rank`.
static Ref by_channel(Graph *g, Ref x, int rank, int axis, Elem floats)
{
	int64_t n = count_of(&val(g, x)->shape);
	Shape at = {.rank = n == 1 ? 0 : rank};
	for (int a = 0; a < at.rank; a++)
		at.dim[a] = a == axis ? n : 1;
	return put_reshape(g, put_cast(g, x, floats), at);
}

// The convolution of operands x and w less their zero points.
static Ref convolve_centred(Call *c, int w, int zero_x, int zero_w)
{
	Graph *g = c->g;
	Shape kernel = in_val(c, w)->shape;
	Elem floats = exact_floats(count_of(&kernel) / MAX(kernel.rank ? kernel.dim[0] : 1, 1));
	Call conv = *c;
	conv.in = take_copy(c->r->arena, c->in, sizeof *c->in * (size_t)(c->nin + 1));
	conv.in[0] = centred(c, 0, zero_x, true, floats);
	conv.in[1] = put_cast(g, c->in[w], floats);
	conv.nin = 2;
	if (zero_w < c->nin && c->in[zero_w])
		conv.in[1] = put2(g, O_sub, conv.in[1],
		                  by_channel(g, c->in[zero_w], kernel.rank, 0, floats));
	lower_conv(&conv);
	return c->out[0];
}

void lower_conv_integer(Call *c)
{
	c->out[0] = put_cast(c->g, convolve_centred(c, 1, 2, 3), E_i32);
}

// That of com.microsoft may have its channels last.
void lower_qlinear_conv(Call *c)
{
	Graph *g = c->g;
	bool last = attr_int(c, "channels_last", 0);
	in_val(c, 4);
	c->in[0] = last ? channels_first(c, c->in[0]) : c->in[0];
	Ref y = convolve_centred(c, 3, 2, 5);
	int rank = val(g, y)->shape.rank;
	if (c->nin > 8 && c->in[8])
		y = put2(g, O_add, y, by_channel(g, c->in[8], rank, 1, val(g, y)->type));
	Ref step = by_channel(g, c->in[4], rank, 1, E_f32);
	Ref scale = put_map2(g, O_mul, scale_of(c, 1, true), step);
	requantise(c, put_map2(g, O_mul, put_cast(g, y, E_f32), scale), 6);
	c->out[0] = last ? channels_last(g, c->out[0]) : c->out[0];
}
