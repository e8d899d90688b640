// blocked_rows.c: reduces columns over blocks of rows.
// Columns lie a row apart: a worker that had some of them would touch a little of every row, at
// half the speed of memory. Takes a column kernel. Gives launches that all go along memory: blocks
// of rows are folded, each to a row of its own; these are folded, and what has the shape of a row
// is computed of them; then blocks of rows are swept for the outs of the whole shape. Keeps: what
// the sweep needs of such rows it reads from common memory, so outs may take their place before.
#include "row.h"
#include <string.h>

enum { LONG = 1 << 17, ROWS = 256, BLOCKS = 32, UNROLL = 4 };

typedef struct BlockedRows {
	RowKernel *s;
	int64_t rows, columns, block; // block: rows of a worker
	Partials parts;
	VEC(Ref) small; // of the shape of a row, and needed for the whole
} BlockedRows;

// ---- what is computed -----------------------------------------------------------------

static void add_small(Gen *g, BlockedRows *t, Ref r)
{
	for (int i = 0; i < t->small.count; i++)
		if (t->small.at[i] == r)
			return;
	PUSH(g->arena, t->small, r);
}

// Finds what of a row's shape the value r of the whole shape is made of. False: a form that is not
// known here.
static bool find_small(Gen *g, BlockedRows *t, Ref r, bool *seen)
{
	const Val *v = val(g->graph, r);
	if (!g->inside[r] || seen[r])
		return true;
	seen[r] = true;
	if (prims[v->op].cls != C_map)
		return prims[v->op].cls == C_leaf;
	for (int k = 0; k < v->nin; k++) {
		Ref u = v->in[k];
		const Shape *own = &val(g->graph, u)->shape;
		if (same_shape(own, &t->s->kern->space)) {
			if (!find_small(g, t, u, seen))
				return false;
		} else if (is_reduced(own, &t->s->kern->space, t->s->kern->reduce)) {
			add_small(g, t, u);
		} else if (t->s->level[u] > 1) {
			return false;
		}
	}
	return true;
}

static bool find_reductions(Gen *g, BlockedRows *t)
{
	for (Ref r = 1; r < (Ref)g->graph->nval; r++) {
		const Val *v = val(g->graph, r);
		if (t->s->level[r] < 2 || prims[v->op].cls != C_reduce)
			continue;
		bool real = v->type == E_f32 || v->type == E_f64;
		if (!is_own_reduction(g, t->s, v) || v->op == O_argmax || !real)
			return false;
		PUSH(g->arena, t->parts.reduce, r);
	}
	bool *seen = NEWS(g->arena, bool, g->graph->nval);
	for (int o = 0; o < t->s->kern->nout; o++)
		if (full_out(g, t->s, o) && !find_small(g, t, t->s->kern->out[o], seen))
			return false;
	return true;
}

static bool is_tall(Gen *g, BlockedRows *t)
{
	const Groups *groups = &t->s->groups;
	bool two = groups->n == 2 && groups->reduced[0] && !groups->reduced[1];
	if (g->target->gpu || !two || t->s->depth > 1)
		return false;
	t->rows = groups->size[0];
	t->columns = groups->size[1];
	if (t->rows * t->columns < LARGE_SPACE || t->rows < BLOCKS || t->columns > LONG ||
	    t->columns < UNROLL * g->width)
		return false;
	t->block = MIN(ROWS, ceil_div(t->rows, BLOCKS));
	if (!find_reductions(g, t))
		return false;
	parts_plan(&t->parts, ceil_div(t->rows, t->block), t->columns, 0);
	return true;
}

// ---- common memory --------------------------------------------------------------------

static int64_t small_offset(const BlockedRows *t, int i)
{
	return t->parts.bytes + i * t->parts.line * 8;
}

// ---- launches -------------------------------------------------------------------------

static void at_columns(Gen *g, BlockedRows *t, const Index *unit)
{
	group_index(g->vars, &t->s->groups, 1, &t->s->kern->space, unit, t->s->idx);
}

static void start_columns(Gen *g, int n, const Index *unit, void *context)
{
	const BlockedRows *t = context;
	for (int u = 0; u < n; u++)
		parts_start(g, &t->parts, g->worker, &unit[u]);
}

static void reduce_columns(Gen *g, int n, const Index *unit, void *context)
{
	BlockedRows *t = context;
	for (int u = 0; u < n; u++) {
		at_columns(g, t, &unit[u]);
		parts_step(g, &t->parts, g->worker, &unit[u], t->s->idx);
	}
}

static void sweep_columns(Gen *g, int n, const Index *unit, void *context)
{
	BlockedRows *t = context;
	for (int u = 0; u < n; u++) {
		at_columns(g, t, &unit[u]);
		store_full(g, t->s, t->s->idx);
	}
}

// A worker has a block of whole rows: parts of them would be slower by a quarter.
static void each_row(Gen *g, BlockedRows *t, LaneBody *start, LaneBody *body)
{
	Value none = number(g, 0), all = number(g, t->columns);
	Value first = times(g, g->worker, t->block);
	Value end = smaller(g, LLVMBuildAdd(g->b, first, number(g, t->block), ""), t->rows);
	if (start)
		lane_loop(g, none, all, t->columns, UNROLL, start, t);
	Loop rows = loop_begin(g, first, end, 1);
	Index row = uniform_index(g, rows.i, t->rows, 1);
	group_index(g->vars, &t->s->groups, 0, &t->s->kern->space, &row, t->s->idx);
	lane_loop(g, none, all, t->columns, UNROLL, body, t);
	loop_end(g, &rows);
	g->workers = t->parts.blocks;
}

// What has the shape of a row: all of it is computed before outs are stored.
static void finish_columns(Gen *g, int n, const Index *unit, void *context)
{
	BlockedRows *t = context;
	const Kern *kern = t->s->kern;
	for (int a = 0; a < kern->space.rank; a++)
		t->s->idx[a] = constant_index(0);
	for (int u = 0; u < n; u++) {
		at_columns(g, t, &unit[u]);
		Lanes lanes = index_value(g, &unit[u]);
		parts_finish(g, &t->parts, &unit[u], t->s->idx);
		for (int i = 0; i < t->small.count; i++) {
			Value to = common_memory(g, small_offset(t, i));
			store_lanes(g, val(g->graph, t->small.at[i])->type, to, &lanes,
			            splat(g, at(g, t->small.at[i], t->s->idx)));
		}
		Value *v = NEWS(g->arena, Value, kern->nout);
		for (int o = 0; o < kern->nout; o++)
			if (!full_out(g, t->s, o))
				v[o] = at(g, kern->out[o], t->s->idx);
		for (int o = 0; o < kern->nout; o++)
			if (!full_out(g, t->s, o))
				store_out(g, o, t->s->idx, v[o]);
	}
}

static void each_column(Gen *g, BlockedRows *t)
{
	int64_t piece = UNROLL * g->width;
	Value from = times(g, g->worker, piece);
	Value to = smaller(g, LLVMBuildAdd(g->b, from, number(g, piece), ""), t->columns);
	lane_loop(g, from, to, t->columns, UNROLL, finish_columns, t);
	g->workers = ceil_div(t->columns, piece);
}

static void sweep_rows(Gen *g, BlockedRows *t)
{
	const Shape *space = &t->s->kern->space;
	Bound *bound = NEWS(g->arena, Bound, t->small.count);
	for (int i = 0; i < t->small.count; i++) {
		bound[i].r = t->small.at[i];
		bound[i].memory = common_memory(g, small_offset(t, i));
		int64_t stride = 1;
		for (int a = space->rank - 1; a >= 0; stride *= space->dim[a--])
			bound[i].stride[a] = t->s->kern->reduce >> a & 1 ? 0 : stride;
		bind(g, &bound[i]);
	}
	each_row(g, t, NULL, sweep_columns);
	for (int i = t->small.count; i > 0; i--)
		unbind(g, &bound[i - 1]);
}

bool emit_blocked_rows(Gen *g, RowKernel *s)
{
	BlockedRows *t = NEW(g->arena, BlockedRows);
	t->s = s;
	if (!is_tall(g, t))
		return false;
	bool whole = false;
	for (int o = 0; o < s->kern->nout; o++)
		whole |= full_out(g, s, o);
	int reductions = t->parts.reduce.count > 0;
	g->stages = reductions + 1 + whole;
	g->common_bytes = small_offset(t, t->small.count);
	if (g->stage < reductions)
		each_row(g, t, start_columns, reduce_columns);
	else if (g->stage == reductions)
		each_column(g, t);
	else
		sweep_rows(g, t);
	return true;
}
