// map.c: ONNX operators that are element-wise: one primitive, one activation, one line of the book,
// or little more. Takes the node being lowered. Gives its results. Keeps: numpy's broadcasting is
// alignment of ranks; primitives stretch.
#include "ops.h"
#include <math.h>
#include <string.h>

// ---- shared ---------------------------------------------------------------------------

Ref num_like(Graph *g, Ref x, double number)
{
	return put_num(g, val(g, x)->type, number);
}

Ref put_ints(Graph *g, int n, const int64_t *ints)
{
	int64_t dim = n;
	return put_const(g, E_i64, shape_of(1, &dim), ints);
}

// NumPy's rule.
static Ref put_aligned(Graph *g, Op op, Ref a, Ref b)
{
	int ra = val(g, a)->shape.rank, rb = val(g, b)->shape.rank, rank = MAX(ra, rb);
	return put2(g, op, ra ? put_rank(g, a, rank) : a, rb ? put_rank(g, b, rank) : b);
}

// The element type of the operands in the file, which are all of one: what the first that has none
// of its own leaves open the next may tell.
static int common_type(const Call *c)
{
	int type = operand_type(c, 0);
	for (int k = 1; k < c->nin; k++)
		if (type == elems[val(c->g, c->in[k])->type].onnx)
			type = operand_type(c, k);
	return type;
}

static bool is_unsigned(const Call *c, int operand)
{
	return declared_type(operand_type(c, operand)) == E_u64;
}

// Gives integers beside one of uint64 that type, for operators that are not the same in i64, modulo
// 2^64.
static void use_unsigned(Call *c)
{
	bool any = false;
	for (int k = 0; k < c->nin; k++)
		any |= c->in[k] && is_unsigned(c, k);
	for (int k = 0; any && k < c->nin; k++)
		if (c->in[k] && is_signed(val(c->g, c->in[k])->type))
			c->in[k] = put_cast(c->g, c->in[k], E_u64);
}

Ref signed_order(const Call *c, int operand, Ref x)
{
	int64_t half = INT64_MIN;
	if (!is_unsigned(c, operand))
		return x;
	return put2(c->g, O_add, x, put_const(c->g, E_i64, (Shape){0}, &half));
}

static Ref take_signed(Graph *g, Ref x)
{
	return val(g, x)->type == E_u64 ? put_cast(g, x, E_i64) : x;
}

// Whole numbers of few bits wrap as those of the file do; floats stay as they are computed.
static Ref wrapped(Call *c, Ref y)
{
	y = take_signed(c->g, y);
	Elem type = val(c->g, y)->type;
	int onnx = is_float(type) ? 0 : common_type(c);
	if (!onnx || working_type(onnx) != (int)type)
		return y;
	c->onnx = onnx;
	return put_typed(c, y, onnx, false, "");
}

// ---- operators ------------------------------------------------------------------------

void lower_map(Call *c)
{
	use_unsigned(c);
	lower_book(c);
	c->out[0] = wrapped(c, c->out[0]);
}

void lower_variadic(Call *c)
{
	for (int k = 0; k < c->nin; k++)
		in_val(c, k);
	use_unsigned(c);
	Ref x = c->in[0];
	for (int k = 1; k < c->nin; k++)
		x = put_aligned(c->g, (Op)c->variant, x, c->in[k]);
	c->out[0] = wrapped(c, x);
}

void lower_mean_of(Call *c)
{
	c->variant = O_add;
	lower_variadic(c);
	c->out[0] = put2(c->g, O_div, c->out[0], num_like(c->g, c->out[0], c->nin));
}

static void cast_to(Call *c, int to)
{
	if (working_type(to) < 0)
		unsupported_node(c, "cast to float32", "a cast to %s",
		                 type_trouble(c->r->arena, to));
	if (to == DOUBLE && !is_const(c->g, c->in[0]))
		meet_double(c->r, node_where(c->r->arena, c->node));
	Ref x = c->in[0];
	if (is_float(declared_type(to)) && declared_type(operand_type(c, 0)) == E_u64)
		x = put_cast(c->g, x, E_u64);
	c->out[0] =
	    put_typed(c, x, to, attr_int(c, "saturate", 1), attr_string(c, "round_mode", "up"));
	c->onnx = to;
}

void lower_cast(Call *c)
{
	in_val(c, 0);
	cast_to(c, (int)attr_int(c, "to", 0));
}

void lower_cast_like(Call *c)
{
	in_val(c, 0);
	cast_to(c, operand_type(c, 1));
}
