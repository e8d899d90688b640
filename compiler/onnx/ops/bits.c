// bits.c: operators of com.microsoft whose weights have few bits each, in blocks with a scale of
// their own, as weight-only quantizers write them. Takes the node being lowered. Gives its results.
// Keeps: the bits are known when the file is read; scales pass gradients on.
// Source: docs/ContribOperators.md of ONNX Runtime.
#include "quant.h"

// Operand k, known now, as bytes; fails unless there are `count`.
static const uint8_t *constant_bytes(Call *c, int k, int64_t count)
{
	const Val *v = val(c->g, constant_operand(c, k));
	int64_t n = count_of(&v->shape);
	uint8_t *bytes = NEWS(c->r->arena, uint8_t, n + 1);
	if (n != count)
		invalid_node(c, "operand %d ('%s') holds %lld bytes, wanted %lld", k,
		             c->node->input[k], (long long)n, (long long)count);
	for (int64_t i = 0; i < n; i++)
		bytes[i] = (uint8_t)const_int_at(v, i);
	return bytes;
}

// Operand k: numbers of `bits` bits, the low ones first, `each` to a row of whole bytes: [rows,
// each] as floats.
static Ref unpack_bits(Call *c, int k, int64_t rows, int64_t each, int bits)
{
	int64_t row = (each * bits + 7) / 8, mask = (1 << bits) - 1;
	const uint8_t *bytes = constant_bytes(c, k, rows * row);
	float *x = NEWS(c->r->arena, float, rows *each + 1);
	for (int64_t i = 0; i < rows * each; i++) {
		int64_t bit = i % each * bits;
		x[i] = (float)(bytes[i / each * row + bit / 8] >> bit % 8 & mask);
	}
	return put_const(c->g, E_f32, shape_of(2, (int64_t[]){rows, each}), x);
}

int bits_of(const Call *c, const char *name, int64_t otherwise)
{
	int64_t bits = attr_int(c, name, otherwise);
	if (bits != 2 && bits != 4 && bits != 8)
		invalid_node(c, "wants bits of 2, 4 or 8, found %lld", (long long)bits);
	return (int)bits;
}

Ref read_blocks(Call *c, const Blocks *b)
{
	Graph *g = c->g;
	enum { MOST = 1 << 28 };
	if (MIN(MIN(b->rows, b->columns), b->block) < 1 ||
	    MAX(MAX(b->rows, b->columns), b->block) > MOST)
		invalid_node(c, "weights [%lld, %lld] in blocks of %lld", (long long)b->rows,
		             (long long)b->columns, (long long)b->block);
	int64_t blocks = (b->columns + b->block - 1) / b->block,
	        dims[] = {b->rows, blocks, b->block}, each[] = {b->rows, blocks, 1},
	        flat[] = {b->rows, blocks * b->block};
	Ref w = unpack_bits(c, b->data, b->rows, flat[1], b->bits), in[3];
	in[0] = put_reshape(g, w, shape_of(3, dims));
	in[1] = put_reshape(g, (in_val(c, b->scale), c->in[b->scale]), shape_of(3, each));
	in[2] = put_num(g, E_f32, 1 << (b->bits - 1));
	int64_t rows = b->zero_rows ? b->zero_rows : b->rows;
	if (operand(c, b->zero))
		in[2] = put_reshape(
		    g,
		    is_float(in_val(c, b->zero)->type)
		        ? c->in[b->zero]
		        : unpack_bits(c, b->zero, rows, b->rows * blocks / rows, b->bits),
		    shape_of(3, each));
	w = book_call1(g, "dequantised", 3, in, 0, NULL);
	return take_range(g, put_reshape(g, w, shape_of(2, flat)), 1, 0, b->columns);
}

// Operands: a, b in blocks of few bits [N, blocks, bytes], scales and zero points of the blocks,
// the order of inner indices, bias.
void lower_matmul_bits(Call *c)
{
	Graph *g = c->g;
	Blocks b = {.data = 1,
	            .scale = 2,
	            .zero = 3,
	            .rows = attr_int(c, "N", 0),
	            .columns = attr_int(c, "K", 0),
	            .block = attr_int(c, "block_size", 0),
	            .bits = bits_of(c, "bits", 4)};
	if (operand(c, 4))
		unsupported_node(c, "quantise without it", "an order of inner indices");
	Ref w = swap_last(g, read_blocks(c, &b));
	c->out[0] = add_given(g, matmul(g, (in_val(c, 0), c->in[0]), w), operand(c, 5));
}

// Operands: a, the numbers of levels, two to a byte, the high bits first, [N, K] in one line; the
// largest of each block.
void lower_matmul_levels(Call *c)
{
	enum { LEVELS = 16, MOST = 1 << 28 };
	static const float floats[LEVELS] = {0,        1 / 192.F,  2 / 3.F,  1,
	                                     1 / 3.F,  0.5F,       1 / 6.F,  0.25F,
	                                     0,        -1 / 192.F, -2 / 3.F, -1,
	                                     -1 / 3.F, -0.5F,      -1 / 6.F, -0.25F},
	                   normal[LEVELS] = {-1,           -0.6961928F,  -0.52507305F, -0.3949175F,
	                                     -0.28444138F, -0.18477343F, -0.09105004F, 0,
	                                     0.0795803F,   0.1609302F,   0.2461123F,   0.33791524F,
	                                     0.44070983F,  0.562617F,    0.72295684F,  1};
	Graph *g = c->g;
	int64_t inner = attr_int(c, "K", 0), columns = attr_int(c, "N", 0),
	        block = attr_int(c, "block_size", 0);
	if (MIN(MIN(inner, columns), block) < 1 || MAX(MAX(inner, columns), block) > MOST)
		invalid_node(c, "wants K, N and block_size");
	int64_t n = inner * columns, blocks = (n - 1) / block + 1;
	block = MIN(block, n);
	const uint8_t *bytes = constant_bytes(c, 1, (n + 1) / 2);
	const float *level = attr_int(c, "quant_type", 1) ? normal : floats;
	float *x = NEWS(c->r->arena, float, blocks *block + 1);
	for (int64_t i = 0; i < n; i++)
		x[i] = level[i % 2 ? bytes[i / 2] & 15 : bytes[i / 2] >> 4];
	Ref w = put_const(g, E_f32, shape_of(2, (int64_t[]){blocks, block}), x);
	Ref most = put_reshape(g, (in_val(c, 2), c->in[2]), shape_of(2, (int64_t[]){blocks, 1}));
	w = take_range(g, flat(g, put2(g, O_mul, w, most)), 0, 0, n);
	w = put_reshape(g, w, shape_of(2, (int64_t[]){columns, inner}));
	c->out[0] =
	    matmul(g, (in_val(c, 0), c->in[0]), attr_int(c, "transB", 1) ? swap_last(g, w) : w);
}

// Operand k of bytes, each of numbers of `bits` bits along the last axis, shaped as `s`.
static Ref unpack_like(Call *c, int k, Shape s, int bits)
{
	int64_t each = s.rank ? s.dim[s.rank - 1] : 1, rows = each ? count_of(&s) / each : 0;
	return put_reshape(c->g, unpack_bits(c, k, rows, each, bits), s);
}

// Operands: data of few bits, indices, scales, zero points. What is gathered is the numbers that
// they stand for. Bytes hold several numbers each, and stand for those around the middle.
void lower_gather_blocks(Call *c)
{
	enum { UINT8 = 2 };
	Graph *g = c->g;
	Shape s = in_val(c, 0)->shape, scales = in_val(c, 2)->shape;
	in_val(c, 1);
	bool bytes = operand_type(c, 0) == UINT8 && s.rank > 0;
	int axis = (int)axis_of(c, attr_int(c, "gather_axis", 0), s.rank),
	    bits = bytes ? bits_of(c, "bits", 4) : 8;
	int64_t along = axis_of(c, attr_int(c, "quantize_axis", 1), s.rank),
	        block = attr_int(c, "block_size", 128);
	if (bytes)
		s.dim[s.rank - 1] *= 8 / bits;
	Ref data = bytes ? unpack_like(c, 0, s, bits) : put_cast(g, c->in[0], E_f32),
	    zero = put_num(g, E_f32, bytes ? 1 << (bits - 1) : 0);
	if (operand(c, 3))
		zero = fit_scale(
		    c, bytes ? unpack_like(c, 3, scales, bits) : put_cast(g, c->in[3], E_f32), &s,
		    along, block);
	Ref in[] = {data, fit_scale(c, c->in[2], &s, along, block), zero};
	Ref table = book_call1(g, "dequantised", 3, in, 0, NULL);
	c->out[0] = put_gather(g, table, wrap_index(c, c->in[1], axis), axis);
}
