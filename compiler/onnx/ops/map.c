// map.c: lowers element-wise operators: integers wrap as the file's types do; variadic ones; Cast.
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

static bool is_unsigned(const Call *c, int operand)
{
	return declared_type(operand_type(c, operand)) == E_u64;
}

// Gives integers next to one of uint64 that type, for operators that are not the same in i64,
// modulo 2^64.
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

// Wraps integers of few bits as the file's type does; floats stay as they are computed.
static Ref wrapped(Call *c, Ref y)
{
	Graph *g = c->g;
	y = val(g, y)->type == E_u64 ? put_cast(g, y, E_i64) : y;
	Elem type = val(g, y)->type;
	if (is_float(type))
		return y;
	// The operands are all of one type in the file; one without a type of its own leaves it to
	// the next.
	int onnx = operand_type(c, 0);
	for (int k = 1; k < c->nin; k++)
		if (onnx == elems[val(g, c->in[k])->type].onnx)
			onnx = operand_type(c, k);
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
	Graph *g = c->g;
	Ref x = c->in[0];
	for (int k = 1; k < c->nin; k++) { // NumPy's rule aligns the last axes
		int own = val(g, x)->shape.rank, other = val(g, c->in[k])->shape.rank;
		int rank = MAX(own, other);
		Ref y = other ? put_rank(g, c->in[k], rank) : c->in[k];
		x = put2(g, (Op)c->variant, own ? put_rank(g, x, rank) : x, y);
	}
	c->out[0] = wrapped(c, x);
}

void lower_mean_of(Call *c)
{
	c->variant = O_add;
	lower_variadic(c);
	c->out[0] = put2(c->g, O_div, c->out[0], num_like(c->g, c->out[0], c->nin));
}

// Returns a constant as float32 holds it if that is its type in the file. Computed in doubles, it
// shows how others were rounded: log(8 / 4) / 1.38629436 * 4 is just below 2, which truncates to 1.
static Ref rounded_const(Call *c, Ref x)
{
	const Val *v = val(c->g, x);
	if (v->op != O_const || v->type != E_f64 || declared_type(operand_type(c, 0)) != E_f32)
		return x;
	int64_t count = count_of(&v->shape);
	double *to = NEWS(c->r->arena, double, count + 1);
	for (int64_t i = 0; i < count; i++)
		to[i] = (double)(float)const_at(v, i);
	return put_const(c->g, E_f64, v->shape, to);
}

static void cast_to(Call *c, int to)
{
	if (working_type(to) < 0)
		unsupported_node(c, "cast to float32", "a cast to %s",
		                 type_trouble(c->r->arena, to));
	if (to == DOUBLE && !is_const(c->g, c->in[0]))
		meet_double(c->r, node_where(c->r->arena, c->node));
	bool to_float = is_float(declared_type(to));
	Ref x = to_float ? c->in[0] : rounded_const(c, c->in[0]);
	if (to_float && declared_type(operand_type(c, 0)) == E_u64)
		x = put_cast(c->g, x, E_u64);
	c->out[0] =
	    put_typed(c, x, to, attr_int(c, "saturate", 1), attr_string(c, "round_mode", "up"));
	c->onnx = to;
}

enum { COMPLEX128 = 15, BFLOAT16 = 16 }; // ONNX's numbers of types

// True if the file says that the value is bfloat16.
static bool is_bfloat16(const Named *v)
{
	const NodeProto *maker = v->maker;
	if (!maker)
		return v->tensor && v->tensor->data_type == BFLOAT16;
	const AttributeProto *value = find_attribute(maker->n_attribute, maker->attribute, "value"),
	                     *to = find_attribute(maker->n_attribute, maker->attribute, "to");
	return !strcmp(maker->op_type, "Cast")
	           ? to && to->i == BFLOAT16
	           : value && value->t && value->t->data_type == BFLOAT16;
}

// Returns the type that a Cast to complex128 means. Where PyTorch's older exporter promotes an
// operand to bfloat16, it takes that number for it; the other operand is bfloat16.
static int meant_type(const Call *c)
{
	const Reader *r = c->r;
	int to = (int)attr_int(c, "to", 0);
	if (to != COMPLEX128 || c->space->depth || !starts_with(r->proto->producer_name, "pytorch"))
		return to;
	const Reading *at = find_name(r->file, c->node->output[0])->first;
	for (; at; at = at->next)
		for (size_t k = 0; k < at->node->n_input; k++)
			if (is_bfloat16(find_name(r->file, at->node->input[k])))
				return BFLOAT16;
	return to;
}

void lower_cast(Call *c)
{
	in_val(c, 0);
	cast_to(c, meant_type(c));
}

void lower_cast_like(Call *c)
{
	in_val(c, 0);
	cast_to(c, operand_type(c, 1));
}
