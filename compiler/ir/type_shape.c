// type_shape.c: applies the shape rule of every primitive.
// Returns the shape of op(in; attr), or fails with one message. Invariant: no shape has more than
// 2^SIZE_BITS elements.
#include "type.h"
#include <math.h>
#include <string.h>

// ---- attributes -----------------------------------------------------------------------

static void check_count(const Case *c, int expected)
{
	if (c->attr->n != expected)
		wrong(c, "attribute: expected %d %s, found %d", expected,
		      PLURAL(expected, "number", "numbers"), c->attr->n);
}

static void check_size(const Case *c, const Shape *shape)
{
	if (!is_countable(shape))
		wrong(c, "a result %s", beyond_text(shape));
}

static Shape dims_shape(const Case *c, int first)
{
	if (c->attr->n - first > RANK)
		wrong(c, "%d axes; at most %d are supported", c->attr->n - first, RANK);
	for (int k = first; k < c->attr->n; k++)
		if (c->attr->i[k] < 0)
			wrong(c, "axis %d has size %lld", k - first, (long long)c->attr->i[k]);
	Shape shape = shape_of(c->attr->n - first, c->attr->i + first);
	check_size(c, &shape);
	return shape;
}

static void check_axes(const Case *c, int n, const int64_t *axes)
{
	int rank = operand(c, 0)->shape.rank;
	for (int k = 0; k < n; k++) {
		if (axes[k] < 0 || axes[k] >= rank)
			wrong(c, "axis %lld is not one of the operand's %d", (long long)axes[k],
			      rank);
		if (k && axes[k] <= axes[k - 1])
			wrong(c, "axes must ascend");
	}
}

static int checked_axis(const Case *c, int64_t axis)
{
	check_axes(c, 1, &axis);
	return (int)axis;
}

// ---- maps and reductions --------------------------------------------------------------

// For maps: one rank, axes of equal size or 1; rank 0 is broadcast to any shape.
static Shape broadcast(const Case *c, const Shape *a, const Shape *b)
{
	if (a->rank == 0)
		return *b;
	if (b->rank == 0)
		return *a;
	if (a->rank != b->rank)
		wrong(c, "operands have %d and %d axes; expected equal numbers", a->rank, b->rank);
	Shape shape = *a;
	for (int axis = 0; axis < a->rank; axis++) {
		if (a->dim[axis] == 1)
			shape.dim[axis] = b->dim[axis];
		else if (b->dim[axis] != 1 && b->dim[axis] != a->dim[axis])
			wrong(c,
			      "axis %d is %lld in one operand and %lld in another; expected equal "
			      "sizes, or 1",
			      axis, (long long)a->dim[axis], (long long)b->dim[axis]);
	}
	return shape;
}

static Shape shape_each(const Case *c)
{
	if (c->op == O_narrow) {
		check_count(c, 2);
		if (c->attr->i[0] < 0 || c->attr->i[0] > 52 || c->attr->i[1] < -1022 ||
		    c->attr->i[1] > 100)
			wrong(c, "%lld bits from exponent %lld on are not a float",
			      (long long)c->attr->i[0], (long long)c->attr->i[1]);
	}
	if (c->op == O_act) {
		check_count(c, 1);
		if (c->attr->i[0] < 0 || c->attr->i[0] >= ACTS)
			wrong(c, "no such activation: %lld", (long long)c->attr->i[0]);
	}
	Shape shape = operand(c, 0)->shape;
	for (int k = 1; k < c->nin; k++)
		shape = broadcast(c, &shape, &operand(c, k)->shape);
	return shape;
}

static Shape shape_reduced(const Case *c)
{
	check_axes(c, c->attr->n, c->attr->i);
	if (c->op == O_argmax && c->attr->n != 1)
		wrong(c, "expected one axis, found %d", c->attr->n);
	if (c->op == O_amax || c->op == O_amin || c->op == O_maxpool || c->op == O_argmax)
		for (int k = 0; k < c->attr->n; k++)
			if (operand(c, 0)->shape.dim[c->attr->i[k]] == 0)
				wrong(c, "axis %lld is empty", (long long)c->attr->i[k]);
	return reduced_shape(&operand(c, 0)->shape, c->attr->n, c->attr->i);
}

// ---- moves ----------------------------------------------------------------------------

static Shape shape_reshaped(const Case *c)
{
	Shape shape = dims_shape(c, 0);
	int64_t found = count_of(&operand(c, 0)->shape), expected = count_of(&shape);
	if (found != expected)
		wrong(c, "%s holds %lld %s, the operand %lld",
		      shape_text(c->g->arena, operand(c, 0)->type, &shape), (long long)expected,
		      PLURAL(expected, "element", "elements"), (long long)found);
	return shape;
}

static Shape shape_expanded(const Case *c)
{
	Shape shape = dims_shape(c, 0), from = operand(c, 0)->shape;
	if (shape.rank != from.rank)
		wrong(c, "found rank %d, expected %d as in the operand", shape.rank, from.rank);
	for (int a = 0; a < shape.rank; a++)
		if (from.dim[a] != 1 && from.dim[a] != shape.dim[a])
			wrong(c, "axis %d is %lld and cannot become %lld", a,
			      (long long)from.dim[a], (long long)shape.dim[a]);
	return shape;
}

static Shape shape_permuted(const Case *c)
{
	const Shape *from = &operand(c, 0)->shape;
	check_count(c, from->rank);
	Shape shape = {.rank = from->rank};
	unsigned seen = 0;
	for (int a = 0; a < from->rank; a++) {
		int axis = checked_axis(c, c->attr->i[a]);
		if (seen >> axis & 1)
			wrong(c, "axis %d is twice in the permutation", axis);
		seen |= 1u << axis;
		shape.dim[a] = from->dim[axis];
	}
	return shape;
}

static Shape shape_sliced(const Case *c)
{
	const Shape *from = &operand(c, 0)->shape;
	check_count(c, 3 * from->rank);
	Shape shape = {.rank = from->rank};
	for (int a = 0; a < from->rank; a++) {
		SliceAxis s = slice_axes(c->attr)[a];
		int64_t size = from->dim[a];
		__int128 last = s.start + (__int128)(s.count - 1) * s.step;
		bool inside = s.start >= 0 && s.start < size && last >= 0 && last < size;
		if (s.count < 0 || s.step == 0 || (s.count > 0 && !inside))
			wrong(
			    c,
			    "axis %d has size %lld, exceeded by %lld %s from %lld by steps of %lld",
			    a, (long long)size, (long long)s.count,
			    PLURAL(s.count, "element", "elements"), (long long)s.start,
			    (long long)s.step);
		shape.dim[a] = s.count;
	}
	return shape;
}

static Shape shape_padded(const Case *c)
{
	Shape shape = operand(c, 0)->shape;
	check_count(c, 2 * shape.rank);
	for (int a = 0; a < shape.rank; a++) {
		if (c->attr->i[2 * a] < 0 || c->attr->i[2 * a + 1] < 0)
			wrong(c, "axis %d has negative padding", a);
		shape.dim[a] += c->attr->i[2 * a] + c->attr->i[2 * a + 1];
	}
	return shape;
}

static Shape shape_windowed(const Case *c)
{
	Shape shape = operand(c, 0)->shape;
	const WindowAxes windows = window_axes(c->attr);
	check_count(c, windows.n * WINDOW_NUMS);
	if (shape.rank + windows.n > RANK)
		wrong(c, "%d axes; at most %d are supported", shape.rank + windows.n, RANK);
	for (int k = 0; k < windows.n; k++) {
		const WindowAxis *w = &windows.at[k];
		int axis = checked_axis(c, w->axis);
		for (int j = 0; j < k; j++)
			if (windows.at[j].axis == axis)
				wrong(c, "axis %d is windowed twice", axis);
		if (w->out < 0 || w->size < 0 || w->stride < 1 || w->up < 1)
			wrong(c, "window %d: out %lld, size %lld, stride %lld, up %lld", k,
			      (long long)w->out, (long long)w->size, (long long)w->stride,
			      (long long)w->up);
		// The extent of a window, before the stride, is limited to far beyond the axis.
		double reach = (double)w->out * (double)w->stride +
		               (double)w->size * fabs((double)w->dilation) +
		               fabs((double)w->before) + (double)shape.dim[axis] * (double)w->up;
		if (reach > (double)(INT64_C(1) << SIZE_BITS))
			wrong(c, "a window that reaches further than 2^%d", SIZE_BITS);
		shape.dim[axis] = w->out;
		shape.dim[shape.rank++] = w->size;
	}
	return shape;
}

static Shape shape_joined(const Case *c)
{
	if (c->nin < 1)
		wrong(c, "no operands");
	Shape shape = operand(c, 0)->shape;
	int axis = checked_axis(c, c->attr->i[0]);
	for (int k = 1; k < c->nin; k++) {
		const Shape *more = &operand(c, k)->shape;
		if (more->rank != shape.rank)
			wrong(c, "operand %d has rank %d, the first %d", k, more->rank, shape.rank);
		for (int a = 0; a < shape.rank; a++)
			if (a != axis && more->dim[a] != shape.dim[a])
				wrong(c, "axis %d of operand %d is %lld, of the first %lld", a, k,
				      (long long)more->dim[a], (long long)shape.dim[a]);
		shape.dim[axis] += more->dim[axis];
		check_size(c, &shape);
	}
	return shape;
}

// ---- products -------------------------------------------------------------------------

// Leading axes (all but the last two) of a contraction are equal or 1.
static Shape batch_shape(const Case *c, Shape shape, const Shape *b)
{
	if (shape.rank < 2 || b->rank != shape.rank)
		wrong(c, "operands have %d and %d axes; expected equal numbers, 2 or more",
		      shape.rank, b->rank);
	Shape lead = shape_of(shape.rank - 2, shape.dim), other = shape_of(lead.rank, b->dim);
	lead = broadcast(c, &lead, &other);
	memcpy(shape.dim, lead.dim, sizeof *lead.dim * (size_t)lead.rank);
	return shape;
}

static void check_equal(const Case *c, const char *what, int64_t a, int64_t b)
{
	if (a != b)
		wrong(c, "%s do not agree: %lld and %lld", what, (long long)a, (long long)b);
}

static Shape shape_contracted(const Case *c)
{
	const Shape *b = &operand(c, 1)->shape;
	Shape shape = batch_shape(c, operand(c, 0)->shape, b);
	int r = shape.rank;
	check_equal(c, "contracted axes", shape.dim[r - 1], b->dim[r - 2]);
	shape.dim[r - 1] = b->dim[r - 1];
	return shape;
}

// Returns the shape of the scores of attention, and the leading axes of all operands.
static Shape scores_shape(const Case *c)
{
	int bias = attention_bias(c->op), operands = bias - (c->op >= O_attend_dq ? 2 : 0);
	int most = attention_factor(c->op) + (c->op != O_attend_stats);
	if (c->nin < bias || c->nin > most)
		wrong(c, "expected %d to %d operands", bias, most);
	const Shape *k = &operand(c, 1)->shape;
	Shape scores = operand(c, 0)->shape;
	check_count(c, c->op == O_attend_db ? scores.rank : 2);
	for (int i = 1; i < operands; i++)
		scores = batch_shape(c, scores, &operand(c, i)->shape);
	int r = scores.rank;
	check_equal(c, "widths of query and key", scores.dim[r - 1], k->dim[r - 1]);
	if (operands > 2)
		check_equal(c, "lengths of key and value", k->dim[r - 2],
		            operand(c, 2)->shape.dim[r - 2]);
	scores.dim[r - 1] = k->dim[r - 2];
	for (int i = bias; i < c->nin; i++) {
		Shape with = broadcast(c, &scores, &operand(c, i)->shape);
		if (!same_shape(&with, &scores))
			wrong(c, "the %s is larger than the scores %s",
			      i == bias       ? "bias"
			      : i == bias + 1 ? "mask"
			                      : "factor",
			      shape_text(c->g->arena, operand(c, 0)->type, &scores));
	}
	return scores;
}

static Shape shape_attended(const Case *c)
{
	Shape shape = scores_shape(c);
	shape.dim[shape.rank - 1] = last_dim(&operand(c, 2)->shape);
	return shape;
}

static Shape shape_scored(const Case *c)
{
	Shape shape = scores_shape(c);
	shape.dim[shape.rank - 1] = 2;
	return shape;
}

// Returns the shape of scores whose leading axes have the lengths of a list.
static Shape folded(const Case *c, Shape scores)
{
	const int64_t *length = c->attr->i + 2;
	for (int a = 0; a < scores.rank - 2; a++) {
		if (length[a] < 1 || scores.dim[a] % length[a])
			wrong(c, "%lld equal parts of an axis of %lld", (long long)length[a],
			      (long long)scores.dim[a]);
		scores.dim[a] = length[a];
	}
	return scores;
}

static Shape shape_unattended(const Case *c)
{
	Shape shape = scores_shape(c), given = shape;
	int r = shape.rank;
	for (int i = 3; i < 6; i++) {
		given.dim[r - 1] = i == 3 ? last_dim(&operand(c, 2)->shape) : 6 - i;
		if (!same_shape(&given, &operand(c, i)->shape))
			wrong(c, "operand %d: expected %s", i,
			      shape_text(c->g->arena, operand(c, i)->type, &given));
	}
	if (c->op == O_attend_db)
		return folded(c, shape);
	const Shape *own = &operand(c, c->op - O_attend_dq)->shape;
	memcpy(shape.dim + r - 2, own->dim + r - 2, 2 * sizeof *own->dim);
	return shape;
}

// ---- gather and scatter ---------------------------------------------------------------

static Shape shape_gathered(const Case *c)
{
	const Shape *x = &operand(c, 0)->shape, *index = &operand(c, 1)->shape;
	const Val *v = operand(c, 1);
	int axis = checked_axis(c, c->attr->i[0]), rank = x->rank - 1 + index->rank;
	int64_t count = count_of(index), size = x->dim[axis];
	int64_t extent = v->op == O_iota ? index->dim[v->attr->i[0]] : 0;
	if (count && !size)
		wrong(c, "indices into an empty axis");
	if (count && extent > size)
		wrong(c, "indices up to %lld into an axis of %lld", (long long)extent - 1,
		      (long long)size);
	// The trainer checks indices that are not constant.
	for (int64_t k = 0; v->op == O_const && k < count; k++) {
		int64_t i = const_int_at(v, k);
		if (i < 0 || i >= size)
			wrong(c, "index %lld lies outside of an axis of %lld", (long long)i,
			      (long long)size);
	}
	if (rank > RANK)
		wrong(c, "%d axes; at most %d are supported", rank, RANK);
	Shape shape = {.rank = rank};
	for (int a = 0; a < rank; a++)
		shape.dim[a] = a < axis                 ? x->dim[a]
		               : a < axis + index->rank ? index->dim[a - axis]
		                                        : x->dim[a + 1 - index->rank];
	return shape;
}

static Shape shape_scattered(const Case *c)
{
	Shape expected = shape_gathered(c);
	const Shape *found = &operand(c, 2)->shape;
	check_count(c, 2);
	if (c->attr->i[1] < 0 || c->attr->i[1] > 4)
		wrong(c, "no such mode: %lld", (long long)c->attr->i[1]);
	if (!same_shape(&expected, found))
		wrong(c, "operand 2: expected %s",
		      shape_text(c->g->arena, operand(c, 0)->type, &expected));
	return operand(c, 0)->shape;
}

// ---- composites -----------------------------------------------------------------------

static Shape shape_along(const Case *c)
{
	check_axes(c, c->op == O_cumsum ? 1 : c->attr->n, c->attr->i);
	return operand(c, 0)->shape;
}

static Shape shape_normed(const Case *c)
{
	if (c->attr->n < 1)
		wrong(c, "missing attribute: centered");
	check_axes(c, c->attr->n - 1, c->attr->i + 1);
	return operand(c, 0)->shape;
}

// ---- loops ----------------------------------------------------------------------------

// Returns the shape of one element per iteration.
static Shape stacked_elements(const Case *c, const LoopInfo *l, const Shape *entry)
{
	if (entry->rank == RANK)
		wrong(c, "%d axes; at most %d are supported", RANK + 1, RANK);
	Shape shape = stacked_shape(l->trips, entry);
	check_size(c, &shape);
	return shape;
}

static void check_is(const Case *c, const char *what, int k, const Val *v, Elem type,
                     const Shape *shape)
{
	if (v->type != type || !same_shape(&v->shape, shape))
		wrong(c, "%s %d is %s, expected %s", what, k,
		      shape_text(c->g->arena, v->type, &v->shape),
		      shape_text(c->g->arena, type, shape));
}

void check_loop(Graph *g, const LoopInfo *l, const Ref *in)
{
	Case c = {g, O_loop, loop_operands(l), in, NULL, NULL};
	if (l->trips < 0 || l->trips >> SIZE_BITS || l->carried < 0 || l->scanned < 0 ||
	    l->fixed < 0 || l->stacked < 0)
		wrong(&c,
		      "a body of %d slots and %d outputs does not fit %d carried and %d scanned",
		      l->body->slots.count, l->body->outs.count, l->carried, l->scanned);
	if (l->reverse && l->until)
		wrong(&c, "a reverse loop cannot end by a condition");
	check_is(&c, "operand", 0, operand(&c, 0), E_i64, &(Shape){0});
	for (int k = 1; k < c.nin; k++) {
		const Slot *slot = &l->body->slots.at[k - 1];
		Shape shape = slot->shape;
		if (k > l->carried && k <= l->carried + l->scanned)
			shape = stacked_elements(&c, l, &shape);
		check_is(&c, "operand", k, operand(&c, k), slot->type, &shape);
	}
	for (int k = 0; k < l->body->outs.count; k++) {
		const Val *v = val(l->body, l->body->outs.at[k].val);
		const Slot *slot = l->body->slots.at;
		if (k < l->until) {
			check_is(&c, "result", k, v, E_b8, &(Shape){0});
		} else if (k - l->until < l->carried) {
			slot += k - l->until;
			check_is(&c, "result", k, v, slot->type, &slot->shape);
		} else {
			stacked_elements(&c, l, &v->shape);
		}
	}
}

LoopInfo result_loop(const Case *c)
{
	check_count(c, 1);
	if (operand(c, 0)->op != O_loop)
		wrong(c, "expected a loop");
	LoopInfo l = loop_of(operand(c, 0));
	if (c->attr->i[0] < 0 || c->attr->i[0] >= loop_results(&l))
		wrong(c, "result %lld of %d", (long long)c->attr->i[0], loop_results(&l));
	return l;
}

// ---- any primitive --------------------------------------------------------------------

// Leaves and loops.
static Shape shape_none(const Case *c)
{
	LoopInfo loop;
	Shape shape;
	switch (c->op) {
	case O_slot:
		return c->g->slots.at[c->attr->i[0]].shape;
	case O_result:
		loop = result_loop(c);
		return result_shape(&loop, (int)c->attr->i[0]);
	case O_loop:
		wrong(c, "a loop needs a body");
	default: // iota, rand
		shape = dims_shape(c, 1);
		if (c->op == O_iota &&
		    (c->attr->n < 1 || c->attr->i[0] < 0 || c->attr->i[0] >= shape.rank))
			wrong(c, "no axis to count along");
		return shape;
	}
}

static Shape (*const rules[OPS])(const Case *) = {
#define P(name, cls, arity, type, attr, weight, rule, text) [O_##name] = shape_##rule,
#include "prims.def"
#undef P
};

Shape shape_rule(const Case *c)
{
	Shape shape = rules[c->op](c);
	check_size(c, &shape);
	return shape;
}
