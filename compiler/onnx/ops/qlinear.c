// qlinear.c: operators of com.microsoft on quantised numbers, as ONNX Runtime's quantizer writes
// them. Takes the node being lowered. Gives its results. Keeps: sums of products are exact; all
// else is computed of the real numbers, as ONNX's operators of floats are, and quantised again.
// Source: docs/ContribOperators.md of ONNX Runtime.
#include "quant.h"
#include <string.h>

// ---- one of ONNX's operators, of real numbers -----------------------------------------

// The operator that the name says behind "QLinear". How: so many operands are quantised, each with
// its scale and zero point behind it; behind them come the result's.
void lower_qlinear(Call *c)
{
	const char *name = c->node->op_type + strlen("QLinear");
	bool last = attr_int(c, "channels_last", 0);
	Ref in[3] = {0};
	for (int k = 0; k < c->variant; k++)
		in[k] = real_of(c, 3 * k, 3 * k + 1, 3 * k + 2);
	in[0] = last ? channels_first(c, in[0]) : in[0];
	Ref y = lower_named(c, name, c->variant, in);
	requantise(c, last ? channels_last(c->g, y) : y, 3 * c->variant);
}

// Operands: a condition, x and y with their scales and zero points, the result's.
void lower_qlinear_where(Call *c)
{
	Ref in[] = {(in_val(c, 0), c->in[0]), real_of(c, 1, 2, 3), real_of(c, 4, 5, 6), 0};
	requantise(c, lower_named(c, "Where", 3, in), 7);
}

// Operands: the result's scale and zero point, then values with theirs.
void lower_qlinear_concat(Call *c)
{
	Ref *in = NEWS(c->r->arena, Ref, c->nin);
	int n = (c->nin - 2) / 3;
	if (n < 1 || c->nin != 2 + 3 * n)
		invalid_node(c, "%d operands", c->nin);
	for (int k = 0; k < n; k++)
		in[k] = real_of(c, 2 + 3 * k, 3 + 3 * k, 4 + 3 * k);
	requantise(c, lower_named(c, "Concat", n, in), 0);
}

// Operands: ids, segments, tables and affine numbers as EmbedLayerNormalization has them, mask; the
// scales of operands 2 to 6, their zero points.
void lower_quantised_embed(Call *c)
{
	enum { FIRST = 2, MASK = 7, SCALES = 8, ZEROS = 13 };
	Call plain = *c;
	plain.nin = MASK + 1;
	plain.in = NEWS(c->r->arena, Ref, plain.nin + 1);
	for (int k = 0; k < plain.nin; k++)
		plain.in[k] = operand(c, k);
	for (int k = FIRST; k < MASK; k++)
		if (operand(c, k))
			plain.in[k] = real_of(c, k, SCALES + k - FIRST, ZEROS + k - FIRST);
	lower_embed_norm(&plain);
}

// ---- products -------------------------------------------------------------------------

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

Ref rounded_to_bytes(Graph *g, Ref x)
{
	Ref part[3];
	book_call(g, "DynamicQuantizeLinear", 1, &x, 0, NULL, 3, part);
	return book_call1(g, "dequantised", 3, part, 0, NULL);
}

// Operands: a, b and their scales and zero points, what is added in whole numbers, the result's
// scale and zero point; without these it is real.
void lower_qgemm(Call *c)
{
	Graph *g = c->g;
	Shape a = in_val(c, 0)->shape;
	bool rows = attr_int(c, "transB", 0);
	if (a.rank != 2 || in_val(c, 3)->shape.rank != 2)
		invalid_node(c, "wants two matrices");
	Elem floats = exact_floats(a.dim[attr_int(c, "transA", 0) ? 0 : 1]);
	Ref in[] = {centred(c, 0, 2, true, floats), centred(c, 3, 5, !rows, floats), 0};
	Ref scale = put_map2(g, O_mul, scale_of(c, 1, true), scale_of(c, 4, true));
	Ref y = put_cast(g, lower_as(c, lower_gemm, 0, 2, in), E_f32);
	if (operand(c, 6))
		y = put_map2(g, O_add, y,
		             scaled(g, put_cast(g, c->in[6], E_f32), attr_float(c, "alpha", 1)));
	y = put_map2(g, O_mul, y, scale);
	if (operand(c, 7))
		requantise(c, y, 7);
	else
		c->out[0] = y;
}

// Operands: x, weights, bias, scale of x, of weights, mask, zero point of x, of weights, past.
void lower_quantised_attention(Call *c)
{
	Ref in[] = {real_of(c, 0, 3, 6), real_of(c, 1, 4, 7), operand(c, 2),
	            operand(c, 5),       operand(c, 8),       0};
	c->out[0] = lower_as(c, lower_packed_attention, 0, 5, in);
}
