// row.c: emits kernels with reductions over the axes of a space.
// Rows have lanes along the reduced axis, columns along the axis that is kept. A worker computes
// the reductions of its rows or columns, those that need others after them, and then passes over
// them once more for the outs that have the shape of the full space. Under P_partials, columns are
// reduced over blocks of rows, in three launches.
#include "gen.h"
#include <string.h>

typedef struct RowKernel {
	const Kern *kern;
	Groups groups;
	Index idx[UNITS * RANK]; // by unit: the current index
	int units;
	Keep *kept;     // as sched.keep
	int64_t row;    // elements of a row
	Partials parts; // of blocks of rows
} RowKernel;

// ---- reductions -----------------------------------------------------------------------

// All reductions with `depth` others before them are one loop nest.
static void reduce_depth(Gen *g, RowKernel *s, int depth)
{
	VEC(Ref) reductions = {0};
	const ValSteps *all = &s->kern->sched->reduce;
	for (int i = 0; i < all->count; i++)
		for (int u = 0; u < s->units && all->at[i].depth == depth; u++)
			PUSH(g->arena, reductions, all->at[i].val);
	Index *idx = NEWS(g->arena, Index, reductions.count * RANK);
	for (int k = 0; k < reductions.count; k++) {
		memcpy(idx + k * RANK, s->idx + k % s->units * RANK, sizeof *idx * RANK);
		for (int a = 0; a < s->kern->space.rank; a++)
			if (s->kern->reduce >> a & 1)
				idx[k * RANK + a] = constant_index(0);
	}
	if (reductions.count)
		reduce_values(g, reductions.count, reductions.at, idx);
}

// ---- outs -----------------------------------------------------------------------------

// True if output k has the space's shape.
static bool full_out(Gen *g, const RowKernel *s, int k)
{
	return same_shape(&val(g->graph, s->kern->out[k])->shape, &s->kern->space);
}

// Stores these outputs.
static void store_full(Gen *g, RowKernel *s, const Index *idx)
{
	const Kern *k = s->kern;
	Value *v = NEWS(g->arena, Value, k->nout);
	for (int o = 0; o < k->nout; o++)
		if (full_out(g, s, o))
			v[o] = at(g, k->out[o], idx);
	for (int o = 0; o < k->nout; o++)
		if (full_out(g, s, o))
			store_out(g, o, idx, v[o]);
}

static void store_units(Gen *g, int n, const Index *unit, void *context)
{
	RowKernel *s = context;
	const ValSteps *ahead = &s->kern->sched->ahead;
	for (int u = 0; u < n; u++) {
		group_index(g->vars, &s->groups, s->groups.n - 1, &s->kern->space, &unit[u],
		            s->idx);
		for (int k = 0; k < ahead->count; k++) {
			const Val *v = val(g->graph, ahead->at[k].val);
			Index here = ravel(g->vars, &v->shape, s->idx);
			Index next = shift_index(here, s->row);
			Lanes lanes = index_value(g, &next);
			prefetch_lanes(g, v->type, location_address(g, ahead->at[k].val), &lanes);
		}
		store_full(g, s, s->idx);
	}
}

// Loops over the reduced groups from `group` on, and all units inside.
static void store_loops(Gen *g, RowKernel *s, int group)
{
	while (group < s->groups.n && !s->groups.reduced[group])
		group++;
	if (group == s->groups.n) {
		for (int u = 0; u < s->units; u++)
			store_full(g, s, s->idx + u * RANK);
		return;
	}
	int64_t size = s->groups.size[group];
	if (s->kern->sched->partition == P_rows && group == s->groups.n - 1) {
		g->ops->lane_loop(g, number(g, 0), number(g, size), size, 1, store_units, s);
		return;
	}
	Loop loop = loop_begin(g, number(g, 0), number(g, size), 1);
	Index i = uniform_index(g, loop.i, size, 1);
	for (int u = 0; u < s->units; u++)
		group_index(g->vars, &s->groups, group, &s->kern->space, &i, s->idx + u * RANK);
	store_loops(g, s, group + 1);
	loop_end(g, &loop);
}

// What has the shape of the reductions is evaluated before the outs of the full shape, and stored
// after them.
static void worker_body(Gen *g, RowKernel *s)
{
	const Kern *k = s->kern;
	const ValSteps *reduce = &k->sched->reduce, *kept = &k->sched->keep;
	Bound *outer = g->bound;
	int deepest = -1;
	for (int i = 0; i < reduce->count; i++)
		deepest = MAX(deepest, reduce->at[i].depth);
	for (int depth = 0; depth <= deepest; depth++) {
		g->keep = NULL;
		for (int i = 0; i < kept->count; i++)
			if (kept->at[i].depth == depth) {
				s->kept[i].next = g->keep;
				g->keep = &s->kept[i];
			}
		Keep *here = g->keep;
		reduce_depth(g, s, depth);
		g->keep = NULL;
		for (Keep *keep = here; keep; keep = keep->next) // from here on, these are read
			bind(g, &keep->at);
	}
	Value *v = NEWS(g->arena, Value, k->nout * s->units);
	Index *idx = take_copy(g->arena, s->idx, sizeof s->idx);
	bool full = false;
	for (int o = 0; o < k->nout; o++) {
		full |= full_out(g, s, o);
		for (int u = 0; u < s->units && !full_out(g, s, o); u++)
			v[o * s->units + u] = at(g, k->out[o], idx + u * RANK);
	}
	if (full) {
		g->ops->barrier(g); // outs may lie where the reductions' operands lie
		store_loops(g, s, 0);
	}
	Branch single = g->ops->single_begin(g);
	for (int o = 0; o < k->nout; o++)
		for (int u = 0; u < s->units && !full_out(g, s, o); u++)
			store_out(g, o, idx + u * RANK, v[o * s->units + u]);
	single_end(g, &single);
	while (g->bound != outer)
		unbind(g, g->bound);
}

// ---- workers --------------------------------------------------------------------------

// Returns the positions of the groups that are kept; *last: the last of these, -1: there is none.
static int64_t kept_groups(const Groups *groups, uint32_t *which, int *last)
{
	int64_t count = 1;
	*which = 0;
	*last = -1;
	for (int k = 0; k < groups->n; k++)
		if (!groups->reduced[k]) {
			*which |= 1u << k;
			*last = k;
			count *= groups->size[k];
		}
	return count;
}

static void emit_rows(Gen *g, RowKernel *s)
{
	uint32_t which;
	int last;
	int64_t rows = kept_groups(&s->groups, &which, &last);
	s->units = 1;
	s->row = MAX(1, count_of(&s->kern->space) / rows);
	const ValSteps *kept = &s->kern->sched->keep;
	s->kept = NEWS(g->arena, Keep, kept->count);
	for (int i = 0; i < kept->count; i++) {
		Bound *at = &s->kept[i].at;
		int64_t size = 1;
		for (int a = s->kern->space.rank - 1; a >= 0; a--)
			if (s->kern->reduce >> a & 1) {
				at->stride[a] = size;
				size *= s->kern->space.dim[a];
			}
		at->r = kept->at[i].val;
		at->memory = local_memory(g, size * elems[val(g->graph, at->r)->type].bytes);
	}
	if (rows == 1) {
		worker_body(g, s);
		return;
	}
	Index row;
	Loop loop = worker_rows(g, rows, &row);
	row_index(g->vars, &s->groups, which, &s->kern->space, &row, s->idx);
	worker_body(g, s);
	loop_end(g, &loop);
}

typedef struct Columns {
	RowKernel *s;
	int group; // whose positions are the lanes
} Columns;

static void column_body(Gen *g, int n, const Index *unit, void *context)
{
	Columns *c = context;
	RowKernel *s = c->s;
	s->units = n;
	for (int u = 0; u < n; u++) {
		if (u)
			memcpy(s->idx + u * RANK, s->idx, sizeof *s->idx * RANK);
		group_index(g->vars, &s->groups, c->group, &s->kern->space, &unit[u],
		            s->idx + u * RANK);
	}
	worker_body(g, s);
}

// ---- columns over blocks of rows ------------------------------------------------------

// The first launch reduces each block to a row. The second reduces these rows and computes values
// of the shape of a row. The third passes over blocks of rows for the outputs of the full shape;
// values of the second that it needs are in the kernel's work, so outputs may overwrite the others.
static int64_t kept_offset(const RowKernel *s, int i)
{
	int64_t lines = s->parts.reduce->count * s->parts.blocks + i;
	return lines * s->parts.line * PARTIAL;
}

static void at_columns(Gen *g, RowKernel *s, const Index *unit)
{
	group_index(g->vars, &s->groups, 1, &s->kern->space, unit, s->idx);
}

static void start_columns(Gen *g, int n, const Index *unit, void *context)
{
	const RowKernel *s = context;
	for (int u = 0; u < n; u++)
		partials_start(g, &s->parts, g->worker, &unit[u]);
}

static void reduce_columns(Gen *g, int n, const Index *unit, void *context)
{
	RowKernel *s = context;
	for (int u = 0; u < n; u++) {
		at_columns(g, s, &unit[u]);
		partials_step(g, &s->parts, g->worker, &unit[u], s->idx);
	}
}

static void all_columns(Gen *g, RowKernel *s, LaneBody *body)
{
	g->ops->lane_loop(g, number(g, 0), number(g, s->groups.size[1]), s->groups.size[1],
	                  (int)s->kern->sched->units, body, s);
}

// A worker has a block of complete rows: parts of them would be slower by a quarter.
static void each_row(Gen *g, RowKernel *s, LaneBody *body)
{
	Index row;
	Loop rows = worker_rows(g, s->groups.size[0], &row);
	group_index(g->vars, &s->groups, 0, &s->kern->space, &row, s->idx);
	all_columns(g, s, body);
	loop_end(g, &rows);
}

// Values of the shape of a row are all computed before outputs are stored.
static void finish_columns(Gen *g, int n, const Index *unit, void *context)
{
	RowKernel *s = context;
	const Kern *kern = s->kern;
	const ValSteps *keep = &s->kern->sched->keep;
	for (int a = 0; a < kern->space.rank; a++)
		s->idx[a] = constant_index(0);
	for (int u = 0; u < n; u++) {
		at_columns(g, s, &unit[u]);
		Lanes lanes = index_value(g, &unit[u]);
		partials_finish(g, &s->parts, &unit[u], s->idx);
		for (int i = 0; i < keep->count; i++)
			store_lanes(g, val(g->graph, keep->at[i].val)->type,
			            work_memory(g, kept_offset(s, i)), &lanes,
			            splat(g, at(g, keep->at[i].val, s->idx)));
		Value *v = NEWS(g->arena, Value, kern->nout);
		for (int o = 0; o < kern->nout; o++)
			if (!full_out(g, s, o))
				v[o] = at(g, kern->out[o], s->idx);
		for (int o = 0; o < kern->nout; o++)
			if (!full_out(g, s, o))
				store_out(g, o, s->idx, v[o]);
	}
}

static void emit_blocked_rows(Gen *g, RowKernel *s)
{
	const Kern *kern = s->kern;
	const ValSteps *keep = &kern->sched->keep;
	s->parts = (Partials){.reduce = &kern->sched->reduce,
	                      .blocks = ceil_div(s->groups.size[0], kern->sched->rows),
	                      .line = partial_line(s->groups.size[1])};
	if (g->stage == BEFORE) {
		all_columns(g, s, start_columns);
		each_row(g, s, reduce_columns);
		return;
	}
	if (g->stage == MAIN) {
		worker_columns(g, s->groups.size[1], finish_columns, s);
		return;
	}
	Bound *bound = NEWS(g->arena, Bound, keep->count);
	for (int i = 0; i < keep->count; i++) {
		bound[i].r = keep->at[i].val;
		bound[i].memory = work_memory(g, kept_offset(s, i));
		int64_t stride = 1;
		for (int a = kern->space.rank - 1; a >= 0; stride *= kern->space.dim[a--])
			bound[i].stride[a] = kern->reduce >> a & 1 ? 0 : stride;
		bind(g, &bound[i]);
	}
	each_row(g, s, store_units);
	for (int i = keep->count; i > 0; i--)
		unbind(g, &bound[i - 1]);
}

// ---- the kernel -----------------------------------------------------------------------

void emit_row(Gen *g, const Kern *kern)
{
	RowKernel *s = NEW(g->arena, RowKernel);
	s->kern = kern;
	s->groups = kern_groups(kern);
	for (int a = 0; a < UNITS * RANK; a++)
		s->idx[a] = constant_index(0);
	if (kern->sched->partition == P_partials) {
		emit_blocked_rows(g, s);
	} else if (kern->sched->partition == P_rows) {
		emit_rows(g, s);
	} else {
		uint32_t which;
		Columns c = {.s = s};
		int64_t all = kept_groups(&s->groups, &which, &c.group);
		int64_t columns = s->groups.size[c.group];
		Index row = worker_row(g, all / columns, columns);
		which &= ~(1u << c.group);
		row_index(g->vars, &s->groups, which, &kern->space, &row, s->idx);
		worker_columns(g, columns, column_body, &c);
	}
}
