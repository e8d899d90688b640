// reduce.c: lowers CumSum and CumProd, updates running statistics.
// Used by the lines of compiler/book/reduce.am too.
#include "ops.h"

// ---- running sums ---------------------------------------------------------------------

typedef Ref Along(const Call *, int axis);

// What `one` gives along the axis that operand 1 tells; where the data decide it, it is chosen from
// what all axes give.
static Ref along_operand(Call *c, Along *one)
{
	Graph *g = c->g;
	int rank = in_val(c, 0)->shape.rank;
	if (count_of(&in_val(c, 1)->shape) != 1 || !rank)
		invalid_node(c, "expected one axis");
	Ref axis = put_cast(g, put_reshape(g, fixed_operand(c, 1), (Shape){0}), E_i64);
	if (is_const(g, axis))
		return one(c, (int)axis_of(c, const_int_at(val(g, axis), 0), rank));
	axis = from_end(g, axis, put_i64(g, rank));
	Ref y = one(c, 0);
	for (int a = 1; a < rank; a++)
		y = put3(g, O_select, put2(g, O_eq, axis, put_i64(g, a)), one(c, a), y);
	return y;
}

static Ref sum_along(const Call *c, int axis)
{
	Attr attr = {.n = 3, .i = {axis, attr_int(c, "exclusive", 0), attr_int(c, "reverse", 0)}};
	return put(c->g, O_cumsum, 1, c->in, &attr);
}

void lower_cumsum(Call *c)
{
	c->out[0] = along_operand(c, sum_along);
}

// A product over the windows that end (or begin) at each entry.
static Ref product_along(const Call *c, int axis)
{
	Shape s = in_val(c, 0)->shape;
	int64_t last = s.rank, size = s.dim[axis];
	int64_t less = attr_int(c, "exclusive", 0) ? 1 : 0;
	int64_t before = attr_int(c, "reverse", 0) ? -less : size - 1 + less;
	Attr window = {.n = 7, .i = {axis, size, size, 1, 1, before, 1}, .x = 1};
	return reduce_away(c->g, O_prod, put(c->g, O_window, 1, c->in, &window), last);
}

void lower_cumprod(Call *c)
{
	check_rank(c, in_val(c, 0)->shape.rank + 1);
	c->out[0] = along_operand(c, product_along);
}

// ---- running statistics ---------------------------------------------------------------

// Running statistics k (0 mean, 1 variance) as a slot that training may store to; -1: they are
// computed, or frozen.
static int running_slot(const Call *c, int k)
{
	const Val *v = val(c->g, c->in[3 + k]);
	if (v->op == O_cast) // to double
		v = val(c->g, v->in[0]);
	int slot = v->op == O_slot ? (int)v->attr->i[0] : -1;
	return slot >= 0 && c->g->slots.at[slot].kind == S_buffer ? slot : -1;
}

// batch_statistics(): 1 if a BatchNormalization uses the batch's statistics. Files say so in two
// ways: by more than one result, since opset 14 by an attribute.
Item fn_batch_statistics(Call *c, Scope *s, const Expr *e)
{
	(void)s, (void)e;
	bool said = c->opset < 14 ? c->nout > 1 : attr_int(c, "training_mode", 0) != 0;
	bool gathered = running_slot(c, 0) >= 0 && running_slot(c, 1) >= 0;
	switch (c->r->options->statistics) {
	case BN_BATCH:
		return num_item(gathered || (said && !c->arg[3].weight));
	case BN_RUNNING:
		return num_item(!gathered && said && !c->arg[3].weight);
	default:
		return num_item(said);
	}
}

// running(; k): the mean (k = 0) or variance (1) after all stores so far.
Item fn_running(Call *c, Scope *s, const Expr *e)
{
	const Graph *g = c->g;
	int k = (int)call_integer(s, e, 0), slot = running_slot(c, k);
	Ref stored = slot < 0 ? 0 : stored_ref(g, slot);
	return ref_item(stored ? stored : c->in[3 + k]);
}

// stored(x; k): x, which the mean (k = 0) or variance (1) becomes.
Item fn_stored(Call *c, Scope *s, const Expr *e)
{
	Item x = call_arg(s, e, 0);
	int slot = running_slot(c, (int)call_integer(s, e, 0));
	if (c->r->options->training && slot >= 0)
		add_store(c->g, slot, x.ref);
	return x;
}
