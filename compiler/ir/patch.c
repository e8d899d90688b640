// patch.c: finds how the rows of a product's left operand overlap, if they are windows.
// A row of a convolution's left operand is a window, and neighboring windows share most of their
// elements. Rows and steps of k are numbers whose digits move along axes of the value under the
// windows: [sample, line, column] and [kernel line, kernel column, channel]. What a few strips read
// is a box of that value, a patch, which is packed once; each element of the product is at an
// offset in it.
#include "index.h"
#include <stdlib.h>

typedef struct Place { // of a variable: digit (x / each) % extent of `root`
	int root;      // the number of a given variable
	int64_t each, extent;
} Place;

static bool digit_place(const Vars *w, int var, Place *p)
{
	const Var *v = w->list.at[var];
	if (v->kind == V_given) {
		*p = (Place){var, 1, v->extent};
		return true;
	}
	if (v->kind == V_sum || v->of.n != 1 || v->of.constant || v->of.term[0].coef != 1 ||
	    !digit_place(w, v->of.term[0].var, p))
		return false;
	if (v->kind == V_mod) {
		p->extent = MIN(p->extent, v->by);
	} else {
		p->each *= v->by;
		p->extent = ceil_div(p->extent, v->by);
	}
	return true;
}

static int by_place(const void *a, const void *b)
{
	const Digit *x = a, *y = b;
	return (x->each > y->each) - (x->each < y->each);
}

// Sorts the digits and adds those along which nothing moves. False if they are not the digits of
// the numbers below `count`.
static bool complete_digits(Digits *d, int64_t count)
{
	Digits all = {0};
	if (count == 1)
		d->at[d->n++] = (Digit){.each = 1, .extent = 1};
	qsort(d->at, (size_t)d->n, sizeof *d->at, by_place);
	int64_t below = 1;
	for (int i = 0; i <= d->n; i++) {
		int64_t each = i < d->n ? d->at[i].each : count;
		if (each % below || all.n + 2 > DIGITS)
			return false;
		if (each != below)
			all.at[all.n++] = (Digit){.each = below, .extent = each / below};
		if (i < d->n)
			all.at[all.n++] = d->at[i];
		below = i < d->n ? each * d->at[i].extent : count;
	}
	*d = all;
	return true;
}

static bool add_move(Digits *d, const Place *p, int axis, int64_t coef)
{
	int i = 0;
	while (i < d->n && (d->at[i].each != p->each || d->at[i].extent != p->extent))
		i++;
	if (i == d->n && d->n == DIGITS)
		return false;
	if (i == d->n)
		d->at[d->n++] = (Digit){.each = p->each, .extent = p->extent};
	d->at[i].move[axis] += coef;
	return true;
}

const Val *windows_under(const Graph *g, Ref r)
{
	const Val *v = val(g, r);
	while (prims[v->op].cls == C_move && v->op != O_window && v->op != O_concat)
		v = val(g, v->in[0]);
	return v->op == O_window ? v : NULL;
}

bool windows_overlap(const Val *window)
{
	WindowAxes w = window_axes(window->attr);
	bool any = false;
	for (int k = 0; k < w.n; k++)
		any |= w.at[k].size > 1;
	return any;
}

const Val *windows_of(Vars *w, const Graph *g, const Inside *inside, Ref *r, Index *idx,
                      double *fill)
{
	while (inside->holds(inside->context, *r)) {
		const Val *v = val(g, *r);
		Index own[RANK], zero[RANK];
		if (prims[v->op].cls != C_move || v->op == O_pad || v->op == O_concat)
			return NULL;
		index_within(&v->shape, idx, own);
		int n = operand_index(w, g, v, 0, own, idx, zero);
		*r = v->in[0];
		*fill = v->attr->x;
		if (v->op == O_window)
			return n ? NULL : v;
	}
	return NULL;
}

bool find_patch(Arena *arena, const Graph *g, const Inside *inside, const Val *dot,
                const DotSizes *p, Patch *patch)
{
	Vars *w = vars_new(arena);
	Index batch = some_index(w, p->batch), row = some_index(w, p->m), k = some_index(w, p->k);
	Index idx[RANK];
	*patch = (Patch){.from = dot->in[0]};
	dot_index(w, g, dot, p, 0, &batch, &row, &k, idx);
	const Val *window = windows_of(w, g, inside, &patch->from, idx, &patch->fill);
	if (!window || !windows_overlap(window))
		return false;
	const Shape *shape = &val(g, patch->from)->shape;
	for (int a = 0; a < shape->rank; a++)
		for (int t = 0; t < idx[a].n; t++) {
			Place place;
			if (!digit_place(w, idx[a].term[t].var, &place))
				return false;
			bool is_row = place.root == row.term[0].var;
			if (!is_row && place.root != k.term[0].var)
				continue; // the batch
			Digits *d = is_row ? &patch->row : &patch->step;
			if (!add_move(d, &place, a, idx[a].term[t].coef))
				return false;
		}
	return complete_digits(&patch->row, p->m) && complete_digits(&patch->step, p->k);
}

// Returns the axis along which a digit moves alone, by 1 or -1; -1: there is none.
static int axis_of(const Digit *d, int rank)
{
	int axis = -1;
	for (int a = 0; a < rank; a++) {
		if (d->move[a] && (axis >= 0 || llabs(d->move[a]) != 1))
			return -1;
		axis = d->move[a] ? a : axis;
	}
	return axis;
}

// Positions: columns, lines and images; in a window: channels, columns and lines.
static bool make_squares(const Shape *shape, const Digits *position, const Digits *window,
                         Squares *s)
{
	int last = shape->rank - 1;
	*s = (Squares){.all = 1, .channels = window->at[0].extent};
	if (position->n < 2 || window->n != 3)
		return false;
	for (int i = 0; i < 2; i++) {
		const Digit *place = &position->at[i], *tap = &window->at[1 + i];
		int axis = axis_of(tap, shape->rank);
		if (tap->extent != TAP_EDGE || axis < 0 || axis_of(place, shape->rank) != axis ||
		    place->move[axis] != 1)
			return false;
		s->axis[1 - i] = axis;
		s->turned[1 - i] = tap->move[axis] < 0;
	}
	while (last > 0 && shape->dim[last] == 1)
		last--;
	s->channel = axis_of(&window->at[0], shape->rank);
	s->columns = ceil_div(position->at[0].extent, EDGE);
	s->lines = ceil_div(position->at[1].extent, EDGE);
	for (int i = 2; i < position->n; i++)
		s->all *= position->at[i].extent;
	s->all *= s->lines * s->columns;
	return s->channel == last && window->at[0].move[last] == 1 && s->axis[0] != s->axis[1];
}

bool find_squares(const Graph *g, const Patch *patch, Squares *s)
{
	const Shape *shape = &val(g, patch->from)->shape;
	if (make_squares(shape, &patch->row, &patch->step, s))
		return true;
	if (!make_squares(shape, &patch->step, &patch->row, s)) {
		*s = (Squares){0};
		return false;
	}
	s->summed = true;
	return true;
}
