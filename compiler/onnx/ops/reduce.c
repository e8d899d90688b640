// reduce.c: lowers CumSum, CumProd and TopK, updates running statistics.
// Used by the lines of compiler/book/reduce.am too.
#include "ops.h"
#include <math.h>
#include <string.h>

// ---- running sums ---------------------------------------------------------------------

typedef Ref Along(const Call *, int axis);

// What `one` gives along the axis that operand 1 tells; where the data decide it, it is chosen from
// what all axes give.
static Ref along_operand(Call *c, Along *one)
{
	Graph *g = c->g;
	int rank = in_val(c, 0)->shape.rank;
	if (count_of(&in_val(c, 1)->shape) != 1 || !rank)
		invalid_node(c, "wants one axis");
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

// Files say so in two ways: by more than one result, since opset 14 by an attribute.
bool batch_statistics(const Call *c)
{
	bool said = c->opset < 14 ? c->nout > 1 : attr_int(c, "training_mode", 0) != 0;
	bool gathered = running_slot(c, 0) >= 0 && running_slot(c, 1) >= 0;
	switch (c->r->options->statistics) {
	case BN_BATCH:
		return gathered || (said && !c->arg[3].weight);
	case BN_RUNNING:
		return !gathered && said && !c->arg[3].weight;
	default:
		return said;
	}
}

Ref running_statistic(const Call *c, int k)
{
	const Graph *g = c->g;
	int slot = running_slot(c, k);
	for (int i = 0; i < g->stores.count; i++)
		if (g->stores.at[i].slot == slot)
			return g->stores.at[i].val;
	return c->in[3 + k];
}

void store_statistic(Call *c, int k, Ref x)
{
	int slot = running_slot(c, k);
	if (c->r->options->training && slot >= 0)
		add_store(c->g, slot, x);
}

// ---- sorting --------------------------------------------------------------------------

enum { MOST_PAIRED = 256 }; // entries: to compare all pairs of more is dearer than a loop

// Entry k along a new last axis is the one whose place is k: a sum with one term that counts.
static Ref pick(Graph *g, Ref x, Ref place, int64_t k)
{
	Shape s = val(g, x)->shape, wide = s;
	wide.dim[wide.rank++] = 1;
	Shape order = {.rank = wide.rank};
	for (int a = 0; a < order.rank; a++)
		order.dim[a] = 1;
	order.dim[order.rank - 1] = k;
	Ref hit = put2(g, O_eq, put_reshape(g, place, wide), put_iota(g, order, order.rank - 1));
	Ref terms = put3(g, O_select, hit, put_reshape(g, x, wide), num_like(g, x, 0));
	int64_t axis = s.rank - 1;
	return drop_axes(g, put_reduce(g, O_sum, terms, 1, &axis), 1, &axis);
}

// The first k along the last axis, and their places.
static void first_by_pairs(Graph *g, Ref x, bool largest, int64_t k, Ref *found)
{
	Ref place = book_call1(g, "place", 1, &x, 1, &(AttrArg){.name = "largest", .x = largest});
	found[0] = pick(g, x, place, k);
	found[1] = pick(g, put_iota(g, val(g, x)->shape, val(g, x)->shape.rank - 1), place, k);
}

// The same of an axis so long that the entries are put in order.
static void first_in_order(Reader *r, Ref x, bool largest, int64_t k, Ref *found)
{
	Graph *g = r->g;
	Shape s = val(g, x)->shape;
	int64_t n = s.dim[s.rank - 1], dims[] = {count_of(&s) / n, n, 1};
	Ref keys = put_reshape(g, x, shape_of(3, dims));
	Ref at = take_range(g, order_of(r, keys, largest, put_i64(g, n)), 1, 0, k);
	Ref row = put_iota(g, shape_of(2, (int64_t[]){dims[0], 1}), 0);
	Ref place = put2(g, O_add, at, put2(g, O_mul, row, put_i64(g, n)));
	s.dim[s.rank - 1] = k;
	found[0] = put_reshape(g, put_gather(g, flat(g, x), place, 0), s);
	found[1] = put_reshape(g, at, s);
}

// The first alone, and its place.
static void first_alone(Graph *g, Ref x, bool largest, Ref *found)
{
	int64_t last = val(g, x)->shape.rank - 1;
	found[1] = put_reduce(g, O_argmax, largest ? x : put1(g, O_neg, x), 1, &last);
	Ref hit = put2(g, O_eq, found[1], put_numbers(g, &val(g, x)->shape, (int)last));
	Ref terms = put3(g, O_select, hit, x, num_like(g, x, 0));
	found[0] = put_reduce(g, O_sum, terms, 1, &last);
}

void lower_topk(Call *c)
{
	Graph *g = c->g;
	Shape s = in_val(c, 0)->shape;
	int axis = (int)axis_of(c, attr_int(c, "axis", -1), s.rank), n = 0;
	bool largest = attr_int(c, "largest", 1);
	const Ref *given = c->opset < 10 ? NULL : entries_of(c, 1, "", &n);
	Ref k = given && n ? given[0] : put_num(g, E_i64, (double)attr_int(c, "k", 0));
	if (!is_const(g, k)) // no more than there are
		k = smaller_of(g, k, put_length(g, c->in[0], axis));
	int64_t count = extent_of(c, k, "how many it takes").most;
	if (count < 1 || count > s.dim[axis] || s.rank >= RANK)
		invalid_node(c, "k is %lld of %lld entries", (long long)count,
		             (long long)s.dim[axis]);
	int last = s.rank - 1;
	Ref x = put_filled(g, signed_order(c, 0, c->in[0]), axis, largest ? -INFINITY : INFINITY);
	Lengths l = *lengths_of(g, x);
	x = put_all_padded(g, x);
	x = move_axis(g, x, axis, last);
	Ref found[2];
	if (count == 1 && (largest || is_float(val(g, x)->type)))
		first_alone(g, x, largest, found);
	else if (s.dim[axis] <= MOST_PAIRED)
		first_by_pairs(g, x, largest, count, found);
	else
		first_in_order(c->r, x, largest, count, found);
	found[0] = signed_order(c, 0, found[0]);
	for (int i = 0; i < c->nout && i < 2; i++) {
		c->out[i] = move_axis(g, found[i], last, axis);
		c->out[i] = put_lengths(g, c->out[i], &l);
		c->out[i] = is_const(g, k) ? c->out[i] : put_valid(g, c->out[i], axis, k);
	}
}
