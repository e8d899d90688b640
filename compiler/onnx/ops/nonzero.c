// nonzero.c: lowers NonZero and Compress.
// ONNX NonZero and Compress. Takes the node being lowered. Gives its results: as many entries as
// there can be, and their number.
#include "ops.h"

Ref counting(Graph *g, int64_t n, bool known)
{
	if (!known || n > FOLD_LIMIT)
		return put_iota(g, shape_of(1, &n), 0);
	int64_t *at = NEWS(g->arena, int64_t, n + 1);
	for (int64_t i = 0; i < n; i++)
		at[i] = i;
	return put_ints(g, (int)n, at);
}

Ref reduce_away(Graph *g, Op op, Ref x, int64_t axis)
{
	return drop_axes(g, put_reduce(g, op, x, 1, &axis), 1, &axis);
}

Ref so_far(Graph *g, Ref truth)
{
	Ref ones = put_cast(g, truth, E_i64);
	return put(g, O_cumsum, 1, &ones, &(Attr){.n = 3, .i = {0, 1, 0}});
}

Ref put_in_order(Graph *g, Ref truth, Ref to, Ref x)
{
	int64_t n = val(g, truth)->shape.dim[0], more = n + 1;
	Ref base = put_broadcast(g, put_i64(g, 0), shape_of(1, &more));
	Ref place = put3(g, O_select, truth, to, put_i64(g, n));
	return take_range(g, put_scatter(g, base, place, x, 0, 0), 0, 0, n);
}

// In order the places where truth, b8[n], holds: i64.
static Ref places_where(Graph *g, Ref truth)
{
	const Val *v = val(g, truth);
	int64_t n = v->shape.dim[0];
	if (is_const(g, truth)) {
		int64_t found = 0, *place = NEWS(g->arena, int64_t, n + 1);
		for (int64_t i = 0; i < n; i++)
			if (const_int_at(v, i))
				place[found++] = i;
		return put_const(g, E_i64, shape_of(1, &found), place);
	}
	Ref at = put_in_order(g, truth, so_far(g, truth), counting(g, n, false));
	return put_valid(g, at, 0, reduce_away(g, O_sum, put_cast(g, truth, E_i64), 0));
}

// places(x): the positions where x holds, in order.
Item fn_places(Call *c, Scope *s, const Expr *e)
{
	return ref_item(places_where(c->g, call_value(s, e, 0)));
}

// counting(; n, known): 0, 1, .. n - 1; known: as a constant.
Item fn_counting(Call *c, Scope *s, const Expr *e)
{
	return ref_item(counting(c->g, call_integer(s, e, 0), call_integer(s, e, 1)));
}

// Where x is valid and not 0.
static Ref truth_of(Graph *g, Ref x)
{
	bool truth = val(g, x)->type == E_b8;
	x = truth ? x : put1(g, O_not, put2(g, O_eq, x, num_like(g, x, 0)));
	return put_all_filled(g, x, 0);
}

void lower_nonzero(Call *c)
{
	Graph *g = c->g;
	Shape s = in_val(c, 0)->shape;
	int64_t stride[RANK];
	Ref row[RANK], at = places_where(g, flat(g, truth_of(g, fixed_operand(c, 0))));
	row_strides(&s, stride);
	for (int a = 0; a < s.rank; a++) {
		Ref x = put2(g, O_div, at, put_i64(g, stride[a]));
		if (a)
			x = put2(g, O_mod, x, put_i64(g, MAX(s.dim[a], 1)));
		row[a] = put_rank(g, x, 2);
	}
	c->out[0] = s.rank ? put_concat(g, 0, s.rank, row)
	                   : put_const(g, E_i64, shape_of(2, (int64_t[]){0, 1}), "");
}

void lower_compress(Call *c)
{
	Graph *g = c->g;
	const AttributeProto *given = find_attr(c, "axis");
	int rank = in_val(c, 0)->shape.rank, axis = given ? (int)axis_of(c, given->i, rank) : 0;
	Ref x = given ? c->in[0] : in_line(c, c->in[0]), length = put_length(g, x, axis);
	Ref truth = flat(g, truth_of(g, fixed_operand(c, 1)));
	Shape s = val(g, x)->shape;
	if (val(g, truth)->shape.dim[0] > s.dim[axis])
		truth = take_range(g, truth, 0, 0, s.dim[axis]);
	if (!is_const(g, length)) {
		int64_t n = val(g, truth)->shape.dim[0];
		Ref there = put2(g, O_lt, put_iota(g, shape_of(1, &n), 0), length);
		truth = put2(g, O_and, truth, there);
	}
	c->out[0] = put_gather(g, put_padded(g, x, axis), places_where(g, truth), axis);
}
