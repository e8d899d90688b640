// blocked_rows.c: emits reductions of columns over blocks of rows (P_partials).
// The first launch reduces each block to a row. The second reduces these rows and computes values
// of the shape of a row. The third passes over blocks of rows for the outputs of the full shape;
// values of the second that it needs are in the kernel's work, so outputs may overwrite the others.
#include "row.h"

typedef struct BlockedRows {
	RowKernel *s;
	const Sched *sched;
	int64_t rows, columns;
	Partials parts;
} BlockedRows;

static int64_t kept_offset(const BlockedRows *t, int i)
{
	int64_t lines = t->parts.reduce->count * t->parts.blocks + i;
	return lines * t->parts.line * PARTIAL;
}

static void at_columns(Gen *g, BlockedRows *t, const Index *unit)
{
	group_index(g->vars, &t->s->groups, 1, &t->s->kern->space, unit, t->s->idx);
}

static void start_columns(Gen *g, int n, const Index *unit, void *context)
{
	const BlockedRows *t = context;
	for (int u = 0; u < n; u++)
		partials_start(g, &t->parts, g->worker, &unit[u]);
}

static void reduce_columns(Gen *g, int n, const Index *unit, void *context)
{
	BlockedRows *t = context;
	for (int u = 0; u < n; u++) {
		at_columns(g, t, &unit[u]);
		partials_step(g, &t->parts, g->worker, &unit[u], t->s->idx);
	}
}

static void store_columns(Gen *g, int n, const Index *unit, void *context)
{
	BlockedRows *t = context;
	for (int u = 0; u < n; u++) {
		at_columns(g, t, &unit[u]);
		store_full(g, t->s, t->s->idx);
	}
}

static void all_columns(Gen *g, BlockedRows *t, LaneBody *body)
{
	g->ops->lane_loop(g, number(g, 0), number(g, t->columns), t->columns, (int)t->sched->units,
	                  body, t);
}

// A worker has a block of complete rows: parts of them would be slower by a quarter.
static void each_row(Gen *g, BlockedRows *t, LaneBody *body)
{
	Index row;
	Loop rows = worker_rows(g, t->rows, &row);
	group_index(g->vars, &t->s->groups, 0, &t->s->kern->space, &row, t->s->idx);
	all_columns(g, t, body);
	loop_end(g, &rows);
}

// Values of the shape of a row are all computed before outputs are stored.
static void finish_columns(Gen *g, int n, const Index *unit, void *context)
{
	BlockedRows *t = context;
	const Kern *kern = t->s->kern;
	const ValSteps *keep = &t->sched->keep;
	for (int a = 0; a < kern->space.rank; a++)
		t->s->idx[a] = constant_index(0);
	for (int u = 0; u < n; u++) {
		at_columns(g, t, &unit[u]);
		Lanes lanes = index_value(g, &unit[u]);
		partials_finish(g, &t->parts, &unit[u], t->s->idx);
		for (int i = 0; i < keep->count; i++)
			store_lanes(g, val(g->graph, keep->at[i].val)->type,
			            work_memory(g, kept_offset(t, i)), &lanes,
			            splat(g, at(g, keep->at[i].val, t->s->idx)));
		Value *v = NEWS(g->arena, Value, kern->nout);
		for (int o = 0; o < kern->nout; o++)
			if (!full_out(g, t->s, o))
				v[o] = at(g, kern->out[o], t->s->idx);
		for (int o = 0; o < kern->nout; o++)
			if (!full_out(g, t->s, o))
				store_out(g, o, t->s->idx, v[o]);
	}
}

static void store_rows(Gen *g, BlockedRows *t)
{
	const Kern *kern = t->s->kern;
	int n = t->sched->keep.count;
	Bound *bound = NEWS(g->arena, Bound, n);
	for (int i = 0; i < n; i++) {
		bound[i].r = t->sched->keep.at[i].val;
		bound[i].memory = work_memory(g, kept_offset(t, i));
		int64_t stride = 1;
		for (int a = kern->space.rank - 1; a >= 0; stride *= kern->space.dim[a--])
			bound[i].stride[a] = kern->reduce >> a & 1 ? 0 : stride;
		bind(g, &bound[i]);
	}
	each_row(g, t, store_columns);
	for (int i = n; i > 0; i--)
		unbind(g, &bound[i - 1]);
}

void emit_blocked_rows(Gen *g, RowKernel *s)
{
	const Sched *sched = s->kern->sched;
	BlockedRows *t = NEW(g->arena, BlockedRows);
	*t = (BlockedRows){s, sched, s->groups.size[0], s->groups.size[1], {0}};
	t->parts = (Partials){.reduce = &sched->reduce,
	                      .blocks = ceil_div(t->rows, sched->rows),
	                      .line = partial_line(t->columns)};
	if (g->stage == MAIN) {
		worker_columns(g, t->columns, finish_columns, t);
	} else if (g->stage == AFTER) {
		store_rows(g, t);
	} else {
		all_columns(g, t, start_columns);
		each_row(g, t, reduce_columns);
	}
}
