// quant.c: clamps to integer types of the file, unpacks weights of few bits.
// Functions of the lines of compiler/book/quantize.am. The bits are constants; scales pass
// gradients on.
#include "ops.h"
#include <math.h>

Ref quantized(const Call *c, Ref x, Ref scale, Ref zero, int onnx, bool saturate)
{
	const Format *f = find_format(onnx);
	if (f && !is_integral(f))
		return put_typed(c, put2(c->g, O_div, x, scale), onnx, saturate, "nearest");
	int bits = f ? f->bits : 8 * elems[declared_type(onnx)].bytes;
	bool sign = f ? f->special == F_signed : is_signed(declared_type(onnx));
	AttrArg given[] = {{.name = "low", .x = sign ? -ldexp(1, bits - 1) : 0},
	                   {.name = "high", .x = ldexp(1, sign ? bits - 1 : bits) - 1}};
	return book_call1(c->g, "quantized", 3, (Ref[]){x, scale, zero}, 2, given);
}

// quantize(x, scale, zero; type, saturate): the first result, of that type in the file.
Item fn_quantize(Call *c, Scope *s, const Expr *e)
{
	c->onnx = (int)call_integer(s, e, 0);
	return ref_item(quantized(c, call_value(s, e, 0), call_value(s, e, 1), call_value(s, e, 2),
	                          c->onnx, call_integer(s, e, 1) != 0));
}

// ---- constants of few bits --------------------------------------------------------------

// Operand k, known now, as bytes; fails unless there are `count`.
static const uint8_t *constant_bytes(Call *c, int k, int64_t count)
{
	const Val *v = val(c->g, constant_operand(c, k));
	int64_t n = count_of(&v->shape);
	uint8_t *bytes = NEWS(c->r->arena, uint8_t, n + 1);
	if (n != count)
		invalid_node(c, "input %d ('%s') has %lld %s; expected %lld", k, c->node->input[k],
		             (long long)n, PLURAL(n, "byte", "bytes"), (long long)count);
	for (int64_t i = 0; i < n; i++)
		bytes[i] = (uint8_t)const_int_at(v, i);
	return bytes;
}

// unpacked(x; rows, each, bits): constant bytes as floats [rows, each]: integers of `bits` bits,
// the low ones first, in rows of whole bytes.
Item fn_unpacked(Call *c, Scope *s, const Expr *e)
{
	int64_t rows = call_integer(s, e, 0), each = call_integer(s, e, 1),
	        bits = call_integer(s, e, 2);
	int64_t row = (each * bits + 7) / 8, mask = (1 << bits) - 1;
	const uint8_t *bytes = constant_bytes(c, call_input(s, e, 0), rows * row);
	float *x = NEWS(c->r->arena, float, rows *each + 1);
	for (int64_t i = 0; i < rows * each; i++) {
		int64_t bit = i % each * bits;
		x[i] = (float)(bytes[i / each * row + bit / 8] >> bit % 8 & mask);
	}
	return ref_item(put_const(c->g, E_f32, shape_of(2, (int64_t[]){rows, each}), x));
}

// levels(x; n, block, normal): constant bytes, two levels each, the high bits first, as n floats
// padded to whole blocks.
Item fn_levels(Call *c, Scope *s, const Expr *e)
{
	enum { LEVELS = 16 };
	static const float levels[2][LEVELS] = {
	    {0, 1 / 192.F, 2 / 3.F, 1, 1 / 3.F, 0.5F, 1 / 6.F, 0.25F, 0, -1 / 192.F, -2 / 3.F, -1,
	     -1 / 3.F, -0.5F, -1 / 6.F, -0.25F},
	    {-1, -0.6961928F, -0.52507305F, -0.3949175F, -0.28444138F, -0.18477343F, -0.09105004F,
	     0, 0.0795803F, 0.1609302F, 0.2461123F, 0.33791524F, 0.44070983F, 0.562617F,
	     0.72295684F, 1}};
	int64_t n = call_integer(s, e, 0), block = call_integer(s, e, 1);
	int64_t padded = (n + block - 1) / block * block;
	bool normal = call_integer(s, e, 2) != 0;
	const uint8_t *bytes = constant_bytes(c, call_input(s, e, 0), (n + 1) / 2);
	float *x = NEWS(c->r->arena, float, padded + 1);
	for (int64_t i = 0; i < n; i++)
		x[i] = levels[normal][i % 2 ? bytes[i / 2] & 15 : bytes[i / 2] >> 4];
	return ref_item(put_const(c->g, E_f32, shape_of(1, &padded), x));
}
