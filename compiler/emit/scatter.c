// scatter.c: emits scatter and running sums.
// Kernels whose steps come one after the other, always in the same order. Takes gen.h. Workers
// share nothing: each has its own columns (the axes behind the one that is written along).
#include "gen.h"
#include <string.h>

// The axes before and behind `axis`, each as one position.
typedef struct Lines {
	int axis;
	Shape before, behind;
	Index outer[RANK]; // of the axes before
	Index inner[UNITS][RANK];
	int units;
} Lines;

static Shape part_of(const Shape *s, int from, int to)
{
	Shape part = {.rank = to - from};
	memcpy(part.dim, s->dim + from, sizeof *s->dim * (size_t)part.rank);
	return part;
}

static void lines_set(Gen *g, Lines *l, int n, const Index *unit)
{
	l->units = n;
	for (int u = 0; u < n; u++)
		unravel(g->vars, &unit[u], &l->behind, l->inner[u]);
}

// idx of unit u with `n` indices in place of the axis.
static void line_index(const Lines *l, int u, int n, const Index *middle, Index *idx)
{
	memcpy(idx, l->outer, sizeof *idx * (size_t)l->before.rank);
	memcpy(idx + l->before.rank, middle, sizeof *idx * (size_t)n);
	memcpy(idx + l->before.rank + n, l->inner[u], sizeof *idx * (size_t)l->behind.rank);
}

// Workers over (before) x (pieces of behind): calls the body with the units of one piece.
static void lines_loop(Gen *g, Lines *l, const Shape *space, int axis, LaneBody *body,
                       void *context)
{
	l->axis = axis;
	l->before = part_of(space, 0, axis);
	l->behind = part_of(space, axis + 1, space->rank);
	int64_t rows = count_of(&l->before), columns = count_of(&l->behind);
	Index row = worker_row(g, rows, columns);
	unravel(g->vars, &row, &l->before, l->outer);
	if (columns == 1) {
		Index zero = constant_index(0);
		Branch single = g->ops->single_begin(g);
		body(g, 1, &zero, context);
		single_end(g, &single);
		return;
	}
	worker_columns(g, columns, body, context);
}

static void store_root(Gen *g, const Index *idx, Value v)
{
	for (int o = 0; o < g->kern->nout; o++)
		store_out(g, o, idx, v);
}

// ---- scatter --------------------------------------------------------------------------

typedef struct Scatter {
	const Val *v;
	Lines lines;
} Scatter;

static Value combine(Gen *g, int64_t mode, Elem e, Value old, Value x)
{
	static const Op how[] = {O_sum, O_sum, O_prod, O_amin, O_amax};
	if (mode == 0)
		return x;
	if (is_vector(old) || is_vector(x))
		old = splat(g, old), x = splat(g, x);
	return reduce_step(g, how[mode], e, old, x);
}

// The base goes to its place first.
static void scatter_base(Gen *g, Scatter *s)
{
	Lines *l = &s->lines;
	int64_t size = s->v->shape.dim[l->axis];
	Loop loop = loop_begin(g, number(g, 0), number(g, size), 1);
	Index i = uniform_index(g, loop.i, size, 1), idx[RANK];
	for (int u = 0; u < l->units; u++) {
		line_index(l, u, 1, &i, idx);
		store_root(g, idx, at(g, s->v->in[0], idx));
	}
	loop_end(g, &loop);
}

static void scatter_updates(Gen *g, Scatter *s)
{
	const Val *v = s->v, *update = val(g->graph, v->in[2]), *index = val(g->graph, v->in[1]);
	Lines *l = &s->lines;
	int64_t steps = count_of(&index->shape), size = v->shape.dim[l->axis];
	Loop loop = loop_begin(g, number(g, 0), number(g, steps), 1);
	Index step = uniform_index(g, loop.i, steps, 1), middle[RANK], from[RANK], to[RANK];
	unravel(g->vars, &step, &index->shape, middle);
	Index place = data_index(g, v->in[1], middle, size);
	for (int u = 0; u < l->units; u++) {
		line_index(l, u, index->shape.rank, middle, from);
		line_index(l, u, 1, &place, to);
		Value x = at(g, v->in[2], from);
		store_root(g, to, combine(g, v->attr->i[1], update->type, load_out(g, 0, to), x));
	}
	loop_end(g, &loop);
}

static void scatter_units(Gen *g, int n, const Index *unit, void *context)
{
	Scatter *s = context;
	lines_set(g, &s->lines, n, unit);
	scatter_base(g, s);
	scatter_updates(g, s);
}

void emit_scatter(Gen *g, const Kern *kern)
{
	Scatter *s = NEW(g->arena, Scatter);
	s->v = val(g->graph, kern->root);
	lines_loop(g, &s->lines, &s->v->shape, (int)s->v->attr->i[0], scatter_units, s);
}

// ---- running sums ---------------------------------------------------------------------

typedef struct Scan {
	const Val *v;
	Lines lines;
} Scan;

static void scan_units(Gen *g, int n, const Index *unit, void *context)
{
	Scan *s = context;
	Lines *l = &s->lines;
	const Val *v = s->v;
	bool exclusive = v->attr->i[1], reverse = v->attr->i[2];
	lines_set(g, l, n, unit);
	int64_t size = v->shape.dim[l->axis];
	Value zero = constant_value(g, v->type, 0, 0), acc[UNITS];
	if (l->behind.rank && count_of(&l->behind) > 1)
		zero = splat(g, zero);
	for (int u = 0; u < n; u++)
		acc[u] = variable(g, LLVMTypeOf(zero), zero);
	Loop loop = loop_begin(g, number(g, 0), number(g, size), 1);
	Index i = uniform_index(g, loop.i, size, 1), last = constant_index(size - 1), idx[RANK];
	if (reverse)
		i = add_index(g->vars, &last, &i, -1);
	for (int u = 0; u < n; u++) {
		line_index(l, u, 1, &i, idx);
		Value before = read_variable(g, LLVMTypeOf(zero), acc[u]);
		Value after = combine(g, 1, v->type, before, at(g, v->in[0], idx));
		set_variable(g, acc[u], after);
		store_root(g, idx, exclusive ? before : after);
	}
	loop_end(g, &loop);
}

void emit_scan(Gen *g, const Kern *kern)
{
	Scan *s = NEW(g->arena, Scan);
	s->v = val(g->graph, kern->root);
	lines_loop(g, &s->lines, &s->v->shape, (int)s->v->attr->i[0], scan_units, s);
}
