// interval.c: analyzes intervals of integers.
// They bound computed sizes, and replace a minimum or maximum that they decide.
#include "eval.h"
#include "lower.h"
#include <math.h>

enum { DEEPEST = 4096 }; // values between one and the last that is looked at for its limits

static const Interval unlimited = {-INFINITY, INFINITY};

static Interval hull(Interval a, Interval b)
{
	return (Interval){fmin(a.low, b.low), fmax(a.high, b.high)};
}

// Maps that are monotonic in each operand, so that their extremes are at the ends of its interval.
// So is the division of integers.
static const bool monotonic[OPS] = {
    [O_add] = true, [O_sub] = true,  [O_mul] = true,   [O_max] = true,  [O_min] = true,
    [O_neg] = true, [O_sign] = true, [O_floor] = true, [O_ceil] = true, [O_cast] = true};

static Interval of_corners(Op op, Interval a, Interval b)
{
	Interval l = {INFINITY, -INFINITY};
	if (op == O_div && b.low <= 0)
		return unlimited;
	for (int k = 0; k < 4; k++) {
		double z = float_map(op, k / 2 ? a.high : a.low, k % 2 ? b.high : b.low);
		if (isnan(z))
			return unlimited;
		z = op == O_div ? trunc(z) : z;
		l = hull(l, (Interval){z, z});
	}
	return l;
}

static Interval look(Graph *g, Ref r, int depth);

static Interval of_reduction(Graph *g, const Val *v, int depth)
{
	Interval l = {1, 1};
	Ref x = v->in[0];
	Shape s = val(g, x)->shape;
	double times = (double)count_of(&s) / (double)MAX(count_of(&v->shape), 1);
	switch (v->op) {
	case O_sum:
		return of_corners(O_mul, look(g, x, depth), (Interval){times, times});
	case O_prod:
		if (s.rank != 1 || s.dim[0] > RANK)
			return unlimited;
		// A few concatenated dimensions, whose product is a size.
		for (int64_t i = 0; i < s.dim[0]; i++)
			l = of_corners(O_mul, l, look(g, take_range(g, x, 0, i, 1), depth));
		return l;
	case O_argmax:
		return (Interval){0, times - 1};
	case O_cumsum:
		times = (double)s.dim[v->attr->i[0]];
		return hull((Interval){0, 0},
		            of_corners(O_mul, look(g, x, depth), (Interval){times, times}));
	case O_amax:
	case O_amin:
		return look(g, x, depth);
	default:
		return unlimited;
	}
}

static Interval of_operands(Graph *g, const Val *v, int from, int depth)
{
	Interval l = look(g, v->in[from], depth);
	for (int k = from + 1; k < v->nin; k++)
		l = hull(l, look(g, v->in[k], depth));
	return l;
}

static Interval of_value(Graph *g, Ref r, int depth)
{
	Val v = *val(g, r); // values may move
	int64_t n = count_of(&v.shape);
	if (!n || depth > DEEPEST || (v.op == O_const && n > FOLD_LIMIT))
		return unlimited;
	Interval a = unlimited, b = unlimited;
	if (v.op == O_const) {
		a = (Interval){const_at(&v, 0), const_at(&v, 0)};
		for (int64_t i = 1; i < n; i++)
			a = hull(a, (Interval){const_at(&v, i), const_at(&v, i)});
		return a;
	}
	if (v.type == E_b8)
		return (Interval){0, 1};
	switch (prims[v.op].cls) {
	case C_reduce:
		return of_reduction(g, &v, depth);
	case C_move:
		return v.op == O_pad || v.op == O_window ? unlimited : of_operands(g, &v, 0, depth);
	case C_map:
		if (v.op == O_select)
			return of_operands(g, &v, 1, depth);
		a = look(g, v.in[0], depth);
		if (v.nin > 1)
			b = look(g, v.in[1], depth);
		if (monotonic[v.op] || (v.op == O_div && !is_float(v.type)))
			return of_corners(v.op, a, b);
		if (v.op == O_abs)
			return (Interval){fmax(0, fmax(a.low, -a.high)), fmax(-a.low, a.high)};
		return v.op == O_mod && b.low > 0 ? (Interval){0, b.high} : unlimited;
	case C_index:
		return v.op == O_gather    ? look(g, v.in[0], depth)
		       : v.attr->i[1] == 0 ? hull(look(g, v.in[0], depth), look(g, v.in[2], depth))
		                           : unlimited;
	default:
		return v.op == O_iota ? (Interval){0, (double)v.shape.dim[v.attr->i[0]] - 1}
		                      : unlimited;
	}
}

// Values never change, so each is looked at once.
static Interval look(Graph *g, Ref r, int depth)
{
	if (!g->limits)
		g->limits = table_new(g->arena);
	const uint64_t *cell = table_find(g->limits, &r, sizeof r);
	if (cell)
		return *(const Interval *)(uintptr_t)*cell;
	Interval l = of_value(g, r, depth + 1);
	*table_cell(g->limits, &r, sizeof r) =
	    (uint64_t)(uintptr_t)take_copy(g->arena, &l, sizeof l);
	return l;
}

Interval interval_of(Graph *g, Ref r)
{
	return look(g, r, 0);
}

// Returns a, or b if it is shaped as a, or else op of both.
static Ref either(Graph *g, Op op, Ref a, Ref b, bool first, bool second)
{
	second &= same_shape(&val(g, a)->shape, &val(g, b)->shape);
	return first ? a : second ? b : put2(g, op, a, b);
}

Ref smaller_of(Graph *g, Ref a, Ref b)
{
	Interval x = interval_of(g, a), y = interval_of(g, b);
	return either(g, O_min, a, b, x.high <= y.low, y.high <= x.low);
}

Ref larger_of(Graph *g, Ref a, Ref b)
{
	Interval x = interval_of(g, a), y = interval_of(g, b);
	return either(g, O_max, a, b, x.low >= y.high, y.low >= x.high);
}

Ref from_end(Graph *g, Ref at, Ref length)
{
	if (interval_of(g, at).low >= 0)
		return at;
	Ref negative = put2(g, O_lt, at, put_num(g, E_i64, 0));
	return put3(g, O_select, negative, put2(g, O_add, at, length), at);
}
