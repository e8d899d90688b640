// scatter.c: emits scatter and running sums.
// Their steps along the axis are sequential, in order. Workers share nothing: each has its own
// columns, positions in the axes after it. A scatter writes over its operand 0 where that lies in
// its output; else the launch before copies it there, by rows.
#include "gen.h"
#include <string.h>

// A scatter or running sum: the axes before and after `axis`, each as one position.
typedef struct Lines {
	const Val *v;
	int axis;
	Shape before, after;
	Index outer[RANK]; // of the axes before
	Index inner[UNITS][RANK];
	int units;
} Lines;

static void lines_set(Gen *g, Lines *l, int n, const Index *unit)
{
	l->units = n;
	for (int u = 0; u < n; u++)
		unravel(g->vars, &unit[u], &l->after, l->inner[u]);
}

// Sets idx to the index of unit u, with `n` indices instead of the axis.
static void line_index(const Lines *l, int u, int n, const Index *middle, Index *idx)
{
	memcpy(idx, l->outer, sizeof *idx * (size_t)l->before.rank);
	memcpy(idx + l->before.rank, middle, sizeof *idx * (size_t)n);
	memcpy(idx + l->before.rank + n, l->inner[u], sizeof *idx * (size_t)l->after.rank);
}

static void store_root(Gen *g, const Index *idx, Value v)
{
	for (int o = 0; o < g->kern->nout; o++)
		store_out(g, o, idx, v);
}

// ---- scatter --------------------------------------------------------------------------

static bool is_in_place(const Gen *g, const Val *v)
{
	Location from = value_location(g->plan, v->in[0]), to = g->kern->to[0];
	return !g->inside[v->in[0]] && g->kern->nout == 1 && from.block == to.block &&
	       from.offset == to.offset;
}

typedef struct Copied { // a row of operand 0
	Ref from;
	Index idx[RANK];
} Copied;

static void copy_units(Gen *g, int n, const Index *unit, void *context)
{
	Copied *c = context;
	for (int u = 0; u < n; u++) {
		c->idx[g->kern->space.rank - 1] = unit[u];
		store_root(g, c->idx, at(g, c->from, c->idx));
	}
}

// A worker copies rows of operand 0 along its last axis.
static void copy_rows(Gen *g, const Val *v)
{
	const Shape *space = &g->kern->space;
	Shape lead = shape_of(space->rank - 1, space->dim);
	int64_t rows = count_of(&lead), columns = last_dim(space), each = g->kern->sched->rows;
	Copied c = {.from = v->in[0]};
	Value first = times(g, g->worker, each);
	Loop loop = loop_begin(g, first, end_after(g, first, each, number(g, rows)), 1);
	Index row = uniform_index(g, loop.i, rows, 1);
	unravel(g->vars, &row, &lead, c.idx);
	g->ops->lane_loop(g, number(g, 0), number(g, columns), columns, (int)g->kern->sched->units,
	                  copy_units, &c);
	loop_end(g, &loop);
}

// Combines what was copied with the updates in order.
static void scatter_units(Gen *g, int n, const Index *unit, void *context)
{
	static const Op modes[] = {O_const, O_sum, O_prod, O_amin, O_amax};
	Lines *l = context;
	const Val *v = l->v, *update = val(g->graph, v->in[2]), *index = val(g->graph, v->in[1]);
	int64_t size = v->shape.dim[l->axis], steps = count_of(&index->shape);
	Index middle[RANK], from[RANK], to[RANK];
	lines_set(g, l, n, unit);
	Loop loop = loop_begin(g, number(g, 0), number(g, steps), 1);
	Index step = uniform_index(g, loop.i, steps, 1);
	unravel(g->vars, &step, &index->shape, middle);
	Index position = data_index(g, v->in[1], middle, size);
	for (int u = 0; u < n; u++) {
		line_index(l, u, index->shape.rank, middle, from);
		line_index(l, u, 1, &position, to);
		Value x = at(g, v->in[2], from);
		Op mode = modes[v->attr->i[1]];
		if (mode != O_const)
			x = reduce_step(g, mode, update->type, load_out(g, 0, to), x);
		store_root(g, to, x);
	}
	loop_end(g, &loop);
}

// ---- running sums ---------------------------------------------------------------------

static void scan_units(Gen *g, int n, const Index *unit, void *context)
{
	Lines *l = context;
	const Val *v = l->v;
	bool exclusive = v->attr->i[1], reverse = v->attr->i[2];
	lines_set(g, l, n, unit);
	int64_t size = v->shape.dim[l->axis];
	Value zero = constant_value(g, v->type, 0, 0), acc[UNITS];
	if (l->after.rank && count_of(&l->after) > 1)
		zero = splat(g, zero);
	for (int u = 0; u < n; u++)
		acc[u] = variable(g, zero);
	Loop loop = loop_begin(g, number(g, 0), number(g, size), 1);
	Index i = uniform_index(g, loop.i, size, 1), last = constant_index(size - 1), idx[RANK];
	if (reverse)
		i = add_index(g->vars, &last, &i, -1);
	for (int u = 0; u < n; u++) {
		line_index(l, u, 1, &i, idx);
		Value before = read_variable(g, acc[u]);
		Value after = reduce_step(g, O_sum, v->type, before, at(g, v->in[0], idx));
		set_variable(g, acc[u], after);
		store_root(g, idx, exclusive ? before : after);
	}
	loop_end(g, &loop);
}

// ---- kernels --------------------------------------------------------------------------

// A worker has a piece of the columns at one position of the axes before.
void emit_scatter(Gen *g)
{
	LaneBody *body = g->kern->kind == L_scan ? scan_units : scatter_units;
	Lines *l = NEW(g->arena, Lines);
	l->v = val(g->graph, g->kern->root);
	if (g->stage == BEFORE) {
		if (!is_in_place(g, l->v))
			copy_rows(g, l->v);
		return;
	}
	const Shape *space = &l->v->shape;
	l->axis = (int)l->v->attr->i[0];
	l->before = shape_of(l->axis, space->dim);
	l->after = shape_of(space->rank - l->axis - 1, space->dim + l->axis + 1);
	int64_t rows = count_of(&l->before), columns = count_of(&l->after);
	Index row = worker_row(g, rows, columns);
	unravel(g->vars, &row, &l->before, l->outer);
	if (columns > 1) {
		worker_columns(g, columns, body, l);
		return;
	}
	Index zero = constant_index(0);
	Loop single = g->ops->single_begin(g);
	body(g, 1, &zero, l);
	single_end(g, &single);
}
