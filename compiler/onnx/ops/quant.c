// quant.c: ONNX operators on quantised numbers. Takes the node being lowered. Gives its results.
// Keeps: a quantised value is a float that holds a whole number (or one of 8 bits), so products are
// those of floats, wide enough to be exact, and rounding has the gradient 1.
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
	bool sign = f ? f->special == F_signed : is_signed(declared_type(onnx));
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

// The floats in which a sum of `n` products of numbers of 8 bits, less their zero points, is exact.
static Elem exact(int64_t n)
{
	enum { LARGEST = 255 * 255 };
	return n * LARGEST <= 1 << 24 ? E_f32 : E_f64;
}

// Operand k as `floats`, less its zero point, operand z: numbers along the last axis (columns) or
// the one before.
static Ref centred(Call *c, int k, int z, bool columns, Elem floats)
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

// The product of operands 0 and b, less their zero points.
static Ref multiply_centred(Call *c, int zero_a, int b, int zero_b)
{
	Shape a = in_val(c, 0)->shape;
	if (!a.rank || !in_val(c, b)->shape.rank)
		refuse(c, "an operand is a single number");
	Elem floats = exact(a.dim[a.rank - 1]);
	return matmul(c->g, centred(c, 0, zero_a, false, floats),
	              centred(c, b, zero_b, true, floats));
}

void lower_matmul_integer(Call *c)
{
	c->out[0] = put_cast(c->g, multiply_centred(c, 2, 1, 3), E_i32);
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
	Ref y = put_cast(g, multiply_centred(c, 2, 3, 5), E_f32);
	requantise(c, y, put_map2(g, O_mul, scale_of(c, 1, false), scale_of(c, 4, true)));
}

// ---- of com.microsoft -----------------------------------------------------------------

// Operands: a, b, their scales, their zero points, bias.
void lower_matmul_to_float(Call *c)
{
	Graph *g = c->g;
	Ref y = put_cast(g, multiply_centred(c, 4, 1, 5), E_f32);
	y = put_map2(g, O_mul, y, put_map2(g, O_mul, scale_of(c, 2, false), scale_of(c, 3, true)));
	c->out[0] = add_given(g, y, operand(c, 6));
}

// Operands: a, which is quantised here, b, its scale, its zero point, bias.
void lower_dynamic_matmul(Call *c)
{
	Ref a[3], in[8] = {0};
	in_val(c, 0), in_val(c, 1), in_val(c, 2);
	book_call(c->g, "DynamicQuantizeLinear", 1, c->in, 0, NULL, 3, a);
	in[0] = a[0], in[1] = c->in[1], in[2] = a[1], in[3] = c->in[2];
	in[4] = a[2], in[5] = operand(c, 3), in[6] = operand(c, 4);
	c->out[0] = lower_as(c, lower_matmul_to_float, 0, 7, in);
}

// Operands: x, weights, bias, scale of x, of weights, mask, zero point of x, of weights, past.
void lower_quantised_attention(Call *c)
{
	Graph *g = c->g;
	Ref plain[2];
	for (int k = 0; k < 2; k++)
		plain[k] =
		    put_map2(g, O_mul, centred(c, k, 6 + k, true, E_f32), scale_of(c, 3 + k, true));
	Ref in[] = {plain[0], plain[1], operand(c, 2), operand(c, 5), operand(c, 8), 0};
	c->out[0] = lower_as(c, lower_packed_attention, 0, 5, in);
}

Ref rounded_to_bytes(Graph *g, Ref x)
{
	Ref part[3];
	book_call(g, "DynamicQuantizeLinear", 1, &x, 0, NULL, 3, part);
	return book_call1(g, "dequantised", 3, part, 0, NULL);
}

// Numbers of `bits` bits, the low ones first, `each` to a row of whole bytes, which `bytes` holds
// as integers: [rows, each] as floats.
static Ref unpack_bits(Call *c, const int64_t *bytes, int64_t rows, int64_t each, int bits)
{
	int64_t row = (each * bits + 7) / 8, mask = (1 << bits) - 1;
	float *x = NEWS(c->r->arena, float, rows *each + 1);
	for (int64_t i = 0; i < rows * each; i++) {
		int64_t bit = i % each * bits;
		x[i] = (float)(bytes[i / each * row + bit / 8] >> bit % 8 & mask);
	}
	return put_const(c->g, E_f32, shape_of(2, (int64_t[]){rows, each}), x);
}

// Operands: a, b in blocks of few bits [N, blocks, bytes], scales and zero points of the blocks,
// the order of inner indices, bias.
void lower_matmul_bits(Call *c)
{
	Graph *g = c->g;
	int64_t inner = attr_int(c, "K", 0), columns = attr_int(c, "N", 0);
	int64_t block = attr_int(c, "block_size", 0);
	int bits = (int)attr_int(c, "bits", 4), nb = 0, nz = 0;
	enum { MOST = 1 << 28 };
	if (MIN(MIN(inner, columns), block) < 1 || MAX(MAX(inner, columns), block) > MOST ||
	    (bits != 2 && bits != 4 && bits != 8))
		refuse(c, "wants K, N, block_size, and bits of 2, 4 or 8");
	if (operand(c, 4))
		decline(c, "quantise without it", "an order of inner indices");
	int64_t blocks = (inner + block - 1) / block, dims[] = {columns, blocks, block};
	int64_t each[] = {columns, blocks, 1}, flat[] = {columns, blocks * block};
	const int64_t *b = operand_ints(c, 1, &nb);
	if (!b || nb != columns * ((blocks * block * bits + 7) / 8))
		refuse(c, "its blocks hold %d bytes, wanted %lld by %lld", nb, (long long)columns,
		       (long long)((blocks * block * bits + 7) / 8));
	Ref w = put_reshape(g, unpack_bits(c, b, columns, blocks * block, bits), shape_of(3, dims));
	Ref zero = put_num(g, E_f32, 1 << (bits - 1));
	if (operand(c, 3) && is_float(in_val(c, 3)->type)) {
		zero = put_reshape(g, c->in[3], shape_of(3, each));
	} else if (operand(c, 3)) {
		const int64_t *z = operand_ints(c, 3, &nz);
		if (nz != columns * ((blocks * bits + 7) / 8))
			refuse(c, "%d bytes of zero points", nz);
		zero = put_reshape(g, unpack_bits(c, z, columns, blocks, bits), shape_of(3, each));
	}
	Ref scale = put_reshape(g, (in_val(c, 2), c->in[2]), shape_of(3, each));
	w = book_call1(g, "dequantised", 3, (Ref[]){w, scale, zero}, 0, NULL);
	w = take_range(g, put_reshape(g, w, shape_of(2, flat)), 1, 0, inner);
	c->out[0] =
	    add_given(g, matmul(g, (in_val(c, 0), c->in[0]), swap_last(g, w)), operand(c, 5));
}

// Operands: data of few bits, indices, scales, zero points. What is gathered is the numbers that
// they stand for.
void lower_gather_blocks(Call *c)
{
	Graph *g = c->g;
	Shape s = in_val(c, 0)->shape;
	in_val(c, 1), in_val(c, 2);
	int axis = (int)axis_of(c, attr_int(c, "gather_axis", 0), s.rank);
	int64_t along = axis_of(c, attr_int(c, "quantize_axis", 1), s.rank),
	        block = attr_int(c, "block_size", 128);
	Ref scale = fit_scale(c, c->in[2], &s, along, block), zero = put_num(g, E_f32, 0);
	if (operand(c, 3))
		zero = fit_scale(c, put_cast(g, c->in[3], E_f32), &s, along, block);
	Ref in[] = {put_cast(g, c->in[0], E_f32), scale, zero};
	Ref table = book_call1(g, "dequantised", 3, in, 0, NULL);
	c->out[0] = put_gather(g, table, wrap_index(c, c->in[1], axis), axis);
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
	Elem floats = exact(count_of(&kernel) / MAX(kernel.rank ? kernel.dim[0] : 1, 1));
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

void lower_qlinear_conv(Call *c)
{
	Graph *g = c->g;
	in_val(c, 4);
	Ref y = convolve_centred(c, 3, 2, 5);
	int rank = val(g, y)->shape.rank;
	if (c->nin > 8 && c->in[8])
		y = put2(g, O_add, y, by_channel(g, c->in[8], rank, 1, val(g, y)->type));
	Ref step = by_channel(g, c->in[4], rank, 1, E_f32);
	requantise(c, put_cast(g, y, E_f32), put_map2(g, O_mul, scale_of(c, 1, true), step));
}
