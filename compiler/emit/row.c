// row.c: emits maps of a space, and reductions over its axes with the maps around them.
// Rows have lanes along the last axis, columns along the last axis that is kept. A worker computes
// the reductions of its rows or columns, those that need others after them, and then passes over
// them once more for the outputs of the full shape. Under P_partials, columns are reduced over
// blocks of rows, in three launches, or fewer that are joined (plan.h).
#include "gen.h"
#include <string.h>

typedef struct RowKernel {
	Groups groups;
	Index idx[UNITS * RANK]; // by unit: the current index
	int units;
	int lanes;      // group whose positions are the lanes of columns
	Bound *kept;    // as sched.keep
	int64_t row;    // elements of a row
	bool late;      // the next row is prefetched as outputs of the full shape are stored
	Partials parts; // of blocks of rows
} RowKernel;

// ---- reductions -----------------------------------------------------------------------

// All reductions with `depth` others before them are one loop nest.
static void reduce_depth(Gen *g, RowKernel *s, int depth)
{
	VEC(Ref) reductions = {0};
	const ValSteps *all = &g->kern->sched->reduce;
	for (int i = 0; i < all->count; i++)
		for (int u = 0; u < s->units && all->at[i].depth == depth; u++)
			PUSH(g->arena, reductions, all->at[i].val);
	Index *idx = NEWS(g->arena, Index, reductions.count * RANK);
	for (int k = 0; k < reductions.count; k++) {
		memcpy(idx + k * RANK, s->idx + k % s->units * RANK, sizeof *idx * RANK);
		for (int a = 0; a < g->kern->space.rank; a++)
			if (g->kern->reduce >> a & 1)
				idx[k * RANK + a] = constant_index(0);
	}
	if (reductions.count)
		reduce_values(g, reductions.count, reductions.at, idx);
}

// ---- outputs of the full shape --------------------------------------------------------

typedef struct Sums { // that outputs are computed from
	VEC(Ref) sums;
	VEC(Index) idx; // RANK for each
	Table *seen;    // elements
} Sums;

// Adds the reductions that element idx of r is computed from.
static void find_sums(Gen *g, Ref r, const Index *idx, Sums *found)
{
	const Val *v = val(g->graph, r);
	Index own[RANK], in[RANK], zero[RANK];
	index_within(&v->shape, idx, own);
	if (!g->inside[r] || (*element_cell(g, found->seen, r, own))++)
		return;
	if (prims[v->op].cls == C_map) {
		for (int k = 0; k < v->nin; k++)
			find_sums(g, v->in[k], own, found);
	} else if (prims[v->op].cls == C_move && !has_fill(v->op)) {
		operand_index(g->vars, g->graph, v, 0, own, in, zero);
		find_sums(g, v->in[0], in, found);
	} else if (v->op == O_sum && index_level(g, v->shape.rank, own) == g->level) {
		PUSH(g->arena, found->sums, r);
		for (int a = 0; a < RANK; a++)
			PUSH(g->arena, found->idx, own[a]);
	}
}

// Sums of vectors side by side are one loop, which reads once what does not differ by lane.
static void sum_units(Gen *g, int n, const Index *unit, RowKernel *s)
{
	Sums found[UNITS] = {0};
	const Kern *k = g->kern;
	for (int u = 0; u < n; u++) {
		found[u].seen = table_new(g->arena);
		group_index(g->vars, &s->groups, s->groups.n - 1, &k->space, &unit[u], s->idx);
		for (int o = 0; o < k->nout; o++) {
			Index to[RANK];
			space_index(g, &val(g->graph, k->out[o])->shape, s->idx, to);
			find_sums(g, k->out[o], to, &found[u]);
		}
	}
	for (int i = 0; i < found[0].sums.count; i++) {
		Ref *sums = NEWS(g->arena, Ref, n);
		Index *idx = NEWS(g->arena, Index, n * RANK);
		for (int u = 0; u < n; u++) {
			sums[u] = found[u].sums.at[i];
			memcpy(idx + u * RANK, found[u].idx.at + i * RANK, sizeof *idx * RANK);
		}
		reduce_values(g, n, sums, idx);
	}
}

static void store_units(Gen *g, int n, const Index *unit, void *context)
{
	RowKernel *s = context;
	if (g->kern->kind == L_map && g->kern->sched->units > 1)
		sum_units(g, n, unit, s);
	for (int u = 0; u < n; u++) {
		group_index(g->vars, &s->groups, s->groups.n - 1, &g->kern->space, &unit[u],
		            s->idx);
		if (s->late)
			prefetch_row(g, s->idx);
		store_outs(g, s->idx);
	}
}

typedef struct Depth { // where loops are
	RowKernel *kernel;
	int group;
} Depth;

static void store_step(Gen *g, int n, const Index *i, void *depth);

// Loops over the reduced groups from `group` on, and all units inside.
static void store_loops(Gen *g, RowKernel *s, int group)
{
	while (group < s->groups.n && !s->groups.reduced[group])
		group++;
	if (group == s->groups.n) {
		for (int u = 0; u < s->units; u++)
			store_outs(g, s->idx + u * RANK);
		return;
	}
	int64_t size = s->groups.size[group];
	if (g->kern->sched->partition == P_rows && group == s->groups.n - 1) {
		g->ops->lane_loop(g, number(g, 0), number(g, size), size, 1, store_units, s);
		return;
	}
	Depth depth = {s, group};
	Range steps = {.from = number(g, 0),
	               .to = number(g, size),
	               .count = size,
	               .step = 1,
	               .together = group == s->groups.n - 1 ? g->kern->sched->together : 1};
	range_loop(g, &steps, store_step, &depth);
}

static void store_step(Gen *g, int n, const Index *i, void *context)
{
	const Depth *d = context;
	RowKernel *s = d->kernel;
	(void)n;
	for (int u = 0; u < s->units; u++)
		group_index(g->vars, &s->groups, d->group, &g->kern->space, i, s->idx + u * RANK);
	store_loops(g, s, d->group + 1);
}

// Passes over the row once, for the reductions of a depth; keeps the values of that depth, which
// later passes read. full: there are outputs of the full shape.
static void pass_over(Gen *g, RowKernel *s, int depth, bool full)
{
	const ValSteps *kept = &g->kern->sched->keep;
	bool along = g->kern->sched->along;
	for (int i = 0; i < kept->count; i++)
		if (kept->at[i].depth == depth) {
			s->kept[i].next = g->keep;
			g->keep = &s->kept[i];
		}
	Bound *here = g->keep;
	g->outs = along && full;
	g->prefetches = depth == 1 || along; // once the row is in cache
	reduce_depth(g, s, depth);
	g->keep = NULL;
	g->outs = g->prefetches = false;
	for (Bound *next; here; here = next) {
		next = here->next;
		bind_memory(g, here);
	}
}

// Evaluates the outputs of the shape of the reductions, by output and unit; NULL: another output.
static Value *reduced_outs(Gen *g, const RowKernel *s, const Index *idx)
{
	const Kern *k = g->kern;
	Value *v = NEWS(g->arena, Value, k->nout * s->units);
	for (int o = 0; o < k->nout; o++) {
		bool reduced = is_reduced_out(g->graph, k, o);
		for (int u = 0; u < s->units && reduced; u++)
			v[o * s->units + u] = at(g, k->out[o], idx + u * RANK);
	}
	return v;
}

// What has the shape of the reductions is evaluated before the outputs of the full shape, and
// stored after them.
static void worker_body(Gen *g, RowKernel *s)
{
	const Kern *k = g->kern;
	const ValSteps *reduce = &k->sched->reduce;
	Bound *outer = g->bound;
	int deepest = -1;
	bool full = false;
	for (int o = 0; o < k->nout; o++)
		full |= !is_reduced_out(g->graph, k, o);
	for (int i = 0; i < reduce->count; i++)
		deepest = MAX(deepest, reduce->at[i].depth);
	s->late = deepest < 1;
	for (int depth = 0; depth <= deepest; depth++)
		pass_over(g, s, depth, full);
	const Index *idx = take_copy(g->arena, s->idx, sizeof s->idx);
	Value *v = reduced_outs(g, s, idx);
	if (full && !k->sched->along) {
		g->ops->barrier(g); // outputs may lie where the reductions' operands lie
		store_loops(g, s, 0);
	}
	Loop single = g->ops->single_begin(g);
	for (int i = 0; i < k->nout * s->units; i++)
		if (v[i])
			store_out(g, i / s->units, idx + i % s->units * RANK, v[i]);
	single_end(g, &single);
	while (g->bound != outer)
		unbind_memory(g, g->bound);
}

// ---- workers --------------------------------------------------------------------------

// Begins a loop over the worker's rows; outer is NULL if it has one.
static Loop worker_rows(Gen *g, int64_t rows, Index *row)
{
	int64_t block = g->kern->sched->rows, team = g->kern->sched->team, teams = 1;
	if (block == 1) {
		*row = uniform_index(g, g->worker, rows, 1);
		return (Loop){.outer = NULL};
	}
	Value first = times(g, g->worker, block);
	Value end = end_after(g, first, block, number(g, rows));
	if (team) {
		teams = g->target->machine->threads / team;
		first =
		    sum_of(g, first, LLVMBuildUDiv(g->b, g->ops->thread(g), number(g, team), ""));
	}
	Loop loop = loop_begin(g, first, end, teams);
	*row = uniform_index(g, loop.i, rows, 1);
	return loop;
}

// Sets the strides of a value that has the axes in `mask` of the space.
static void set_strides(const Kern *kern, Bound *bound, uint32_t mask)
{
	int64_t stride = 1;
	for (int a = kern->space.rank - 1; a >= 0; a--)
		if (mask >> a & 1) {
			bound->stride[a] = stride;
			stride *= kern->space.dim[a];
		}
}

// Returns the positions of the groups that are kept, and sets the last of these.
static int64_t kept_groups(RowKernel *s, uint32_t *which)
{
	int64_t count = 1;
	*which = 0;
	for (int k = 0; k < s->groups.n; k++)
		if (!s->groups.reduced[k]) {
			*which |= 1u << k;
			s->lanes = k;
			count *= s->groups.size[k];
		}
	return count;
}

static void emit_rows(Gen *g, RowKernel *s)
{
	uint32_t which;
	int64_t rows = kept_groups(s, &which);
	s->units = 1;
	s->row = MAX(1, count_of(&g->kern->space) / rows);
	const ValSteps *kept = &g->kern->sched->keep;
	s->kept = NEWS(g->arena, Bound, kept->count);
	for (int i = 0; i < kept->count; i++) {
		Bound *at = &s->kept[i];
		set_strides(g->kern, at, g->kern->reduce);
		at->r = kept->at[i].val;
		at->memory = local_memory(g, s->row * elems[val(g->graph, at->r)->type].bytes);
	}
	if (rows == 1) {
		worker_body(g, s);
		return;
	}
	Index row;
	Loop loop = worker_rows(g, rows, &row);
	row_index(g->vars, &s->groups, which, &g->kern->space, &row, s->idx);
	worker_body(g, s);
	single_end(g, &loop);
}

static void column_body(Gen *g, int n, const Index *unit, void *context)
{
	RowKernel *s = context;
	s->units = n;
	for (int u = 0; u < n; u++) {
		if (u)
			memcpy(s->idx + u * RANK, s->idx, sizeof *s->idx * RANK);
		group_index(g->vars, &s->groups, s->lanes, &g->kern->space, &unit[u],
		            s->idx + u * RANK);
	}
	worker_body(g, s);
}

// Rows are the positions of the kept groups before the lanes.
static void emit_columns(Gen *g, RowKernel *s, LaneBody *body)
{
	uint32_t which;
	int64_t all = kept_groups(s, &which), columns = s->groups.size[s->lanes];
	Index row = worker_row(g, all / columns, columns);
	which &= ~(1u << s->lanes);
	row_index(g->vars, &s->groups, which, &g->kern->space, &row, s->idx);
	worker_columns(g, columns, body, s);
}

// ---- columns over blocks of rows ------------------------------------------------------

// Prefetches what is stored some lines later: a store to memory that was not read waits for its
// line.
static void prefetch_outs(Gen *g, const Index *idx)
{
	enum { AHEAD = 512 }; // elements; twice as many are as good
	Index here = ravel(g->vars, &g->kern->space, idx), next = shift_index(here, AHEAD);
	Lanes lanes = index_value(g, &next);
	for (int o = 0; o < g->kern->nout; o++) {
		if (is_reduced_out(g->graph, g->kern, o))
			continue;
		LLVMTypeRef type = memory_type(g, val(g->graph, g->kern->out[o])->type);
		g->ops->prefetch(g, place_in(g, type, out_address(g, o), lanes.base), F_write);
	}
}

static void reduce_columns(Gen *g, int n, const Index *unit, void *context)
{
	RowKernel *s = context;
	for (int u = 0; u < n; u++) {
		for (int r = 0; r < s->units; r++)
			group_index(g->vars, &s->groups, s->lanes, &g->kern->space, &unit[u],
			            s->idx + r * RANK);
		partials_step(g, &s->parts, &unit[u], s->units, s->idx);
		for (int r = 0; r < s->units && !g->kern->sched->after; r++) {
			prefetch_outs(g, s->idx + r * RANK);
			store_outs(g, s->idx + r * RANK);
		}
	}
}

static void all_columns(Gen *g, const RowKernel *s, LaneBody *body, void *context)
{
	int64_t columns = s->groups.size[s->lanes];
	g->ops->lane_loop(g, number(g, 0), number(g, columns), columns, (int)g->kern->sched->units,
	                  body, context);
}

typedef struct RowBlock { // rows of a worker
	RowKernel *kernel;
	uint32_t groups; // of rows
	Value from, to;
} RowBlock;

// Passes over some rows of a block, `together` at once: over all columns of each; or over one.
static void some_rows(Gen *g, const RowBlock *b, Value from, Value to, int64_t together,
                      const Index *column)
{
	RowKernel *s = b->kernel;
	int64_t rows = 1;
	for (int k = 0; k < s->groups.n; k++)
		rows *= b->groups >> k & 1 ? s->groups.size[k] : 1;
	Loop loop = loop_begin(g, from, to, together);
	Index row = uniform_index(g, loop.i, rows - together + 1, 1);
	s->units = (int)together;
	for (int r = 0; r < together; r++) {
		Index at = shift_index(row, r);
		row_index(g->vars, &s->groups, b->groups, &g->kern->space, &at, s->idx + r * RANK);
	}
	if (column)
		reduce_columns(g, 1, column, s);
	else
		all_columns(g, s, g->stage == BEFORE ? reduce_columns : store_units, s);
	loop_end(g, &loop);
}

static void all_rows(Gen *g, const RowBlock *b, const Index *column)
{
	int64_t together = g->stage == BEFORE ? g->kern->sched->together : 1;
	Value from = b->from;
	if (together > 1) {
		Value left = LLVMBuildSub(g->b, b->to, from, "");
		left = LLVMBuildURem(g->b, left, number(g, together), "");
		Value last = LLVMBuildSub(g->b, b->to, left, "");
		some_rows(g, b, from, last, together, column);
		from = last;
	}
	some_rows(g, b, from, b->to, 1, column);
}

// The many sums of a column stay in registers.
static void hold_columns(Gen *g, int n, const Index *unit, void *context)
{
	const RowBlock *b = context;
	Partials *parts = &b->kernel->parts;
	for (int u = 0; u < n; u++) {
		partials_hold(g, parts, &unit[u]);
		all_rows(g, b, &unit[u]);
		partials_release(g, parts, &unit[u]);
	}
}

static void block_of_rows(Gen *g, RowKernel *s, uint32_t groups, Value from, Value to)
{
	RowBlock b = {s, groups, from, to};
	bool held = g->kern->sched->units == 1 && g->target->machine->threads == 1;
	if (g->stage == BEFORE)
		all_columns(g, s, partials_start, &s->parts);
	if (g->stage == BEFORE && held)
		all_columns(g, s, hold_columns, &b);
	else
		all_rows(g, &b, NULL);
}

// ---- the same by threads of a GPU ------------------------------------------------------

typedef struct ThreadRows { // of a column
	RowKernel *kernel;
	uint32_t groups;
	const Index *unit;
	bool adds, stores; // to the thread's sums; the outputs of the full shape
} ThreadRows;

// True if the launch adds rows to partial results.
static bool adds_rows(const Gen *g)
{
	return g->stage == BEFORE || g->kern->sched->joined == J_last;
}

static void thread_row(Gen *g, int n, const Index *row, void *context)
{
	const ThreadRows *t = context;
	RowKernel *s = t->kernel;
	(void)n;
	row_index(g->vars, &s->groups, t->groups, &g->kern->space, row, s->idx);
	group_index(g->vars, &s->groups, s->lanes, &g->kern->space, t->unit, s->idx);
	if (t->adds)
		partials_step(g, &s->parts, t->unit, 1, s->idx);
	if (t->stores)
		store_outs(g, s->idx);
}

// Every `ways`-th row of those from..to, which are `rows`, from the thread's own on.
static void thread_rows(Gen *g, const ThreadRows *t, Value from, Value to, int64_t rows)
{
	RowKernel *s = t->kernel;
	Range steps = {.from = from,
	               .to = to,
	               .own = s->parts.way,
	               .count = 1,
	               .step = s->parts.ways,
	               .together = MAX(1, MIN(g->kern->sched->together, rows / s->parts.ways))};
	for (int k = 0; k < s->groups.n; k++)
		steps.count *= t->groups >> k & 1 ? s->groups.size[k] : 1;
	range_loop(g, &steps, thread_row, (void *)(uintptr_t)t);
}

// Records the reductions of a column, which the thread has.
static void remember_sums(Gen *g, const Partials *p, const Index *idx)
{
	for (int k = 0; k < p->reduce->count; k++) {
		Ref r = p->reduce->at[k].val;
		Value sum = read_variable(g, p->sum[k]);
		remember(g, r, idx, cast_value(g, sum, sum_type(g, r), val(g->graph, r)->type));
	}
}

// One thread of all computes the outputs of the shape of a row at a column, all of them there:
// other threads would read what it overwrites.
static void finish_column(Gen *g, RowKernel *s, const Index *unit)
{
	const Partials *p = &s->parts;
	Index idx[RANK];
	for (int a = 0; a < RANK; a++)
		idx[a] = constant_index(0);
	group_index(g->vars, &s->groups, s->lanes, &g->kern->space, unit, idx);
	remember_sums(g, p, idx);
	Value any = LLVMBuildOr(g->b, p->way, p->block, "");
	Loop first = when_begin(g, LLVMBuildICmp(g->b, LLVMIntEQ, any, number(g, 0), ""));
	Level *floor = g->floor;
	g->floor = g->level;
	remember_sums(g, p, idx);
	store_reduced_outs(g, idx);
	g->floor = floor;
	when_end(g, &first);
}

// Threads side by side have columns side by side, as many as the worker has; others share their
// rows.
static void thread_columns(Gen *g, RowKernel *s, uint32_t groups, Value from, Value to)
{
	const Sched *sched = g->kern->sched;
	Partials *parts = &s->parts;
	int64_t columns = s->groups.size[s->lanes];
	bool adds = adds_rows(g);
	Loop once = when_begin(g, LLVMConstInt(g->i1, 1, 0));
	g->level->lanes = true;
	partials_share(g, parts, sched->columns);
	parts->shared = partials_memory(g);
	Value column = sum_of(g, times(g, parts->group, sched->columns), parts->own);
	if (!adds)
		partials_total(g, parts, column, columns);
	Loop exists =
	    when_begin(g, LLVMBuildICmp(g->b, LLVMIntSLT, column, number(g, columns), ""));
	Index unit = lane_index(g, column, columns, 1, NULL);
	Level *floor = g->floor;
	g->floor = g->level; // where the sums are known, those of a single column as well
	if (!adds)
		finish_column(g, s, &unit);
	ThreadRows rows = {s, groups, &unit, adds, g->stage == MAIN};
	thread_rows(g, &rows, from, to, sched->rows);
	g->floor = floor;
	when_end(g, &exists);
	if (adds)
		partials_store(g, parts, column, columns);
	if (sched->joined == J_last)
		partials_join(g, parts, column, columns, 1);
	when_end(g, &once);
}

typedef struct SharedColumn { // whose rows threads have
	RowKernel *kernel;
	uint32_t groups; // of rows
	int64_t rows;
	const Index *unit, *idx; // the column; of its reductions
} SharedColumn;

static void shared_rows(Gen *g, const SharedColumn *c, bool stores)
{
	ThreadRows rows = {c->kernel, c->groups, c->unit, !stores, stores};
	thread_rows(g, &rows, number(g, 0), number(g, c->rows), c->rows);
}

// All reductions with `depth` others before them: threads reduce the rows that they have, and then
// what all have.
static void share_depth(Gen *g, const SharedColumn *c, int depth)
{
	Partials *parts = &c->kernel->parts;
	const ValSteps *all = &g->kern->sched->reduce;
	ValSteps *own = NEW(g->arena, ValSteps);
	for (int i = 0; i < all->count; i++)
		if (all->at[i].depth == depth)
			PUSH(g->arena, *own, all->at[i]);
	parts->reduce = own;
	partials_share(g, parts, g->kern->sched->columns);
	shared_rows(g, c, false);
	if (depth) // what the threads had before has been read
		g->ops->all_threads(g);
	partials_join_ways(g, parts);
	remember_sums(g, parts, c->idx);
}

// The reductions of a column, then all outputs. Those of the full shape may lie where the
// reductions' operands lie: by then all threads have read these.
static void shared_column(Gen *g, const SharedColumn *c)
{
	const Kern *kern = g->kern;
	const ValSteps *reduce = &kern->sched->reduce;
	int deepest = 0;
	bool full = false;
	for (int i = 0; i < reduce->count; i++)
		deepest = MAX(deepest, reduce->at[i].depth);
	for (int o = 0; o < kern->nout; o++)
		full |= !is_reduced_out(g->graph, kern, o);
	for (int depth = 0; depth <= deepest; depth++)
		share_depth(g, c, depth);
	Value *v = reduced_outs(g, c->kernel, c->idx);
	if (full)
		shared_rows(g, c, true);
	g->ops->all_threads(g); // the others may lie where threads read
	Value way = c->kernel->parts.way;
	Loop first = when_begin(g, LLVMBuildICmp(g->b, LLVMIntEQ, way, number(g, 0), ""));
	for (int o = 0; o < kern->nout; o++)
		if (v[o])
			store_out(g, o, c->idx, v[o]);
	when_end(g, &first);
}

// Columns of which a worker has few, so that all multiprocessors have some: its threads share their
// rows.
static void emit_shared_columns(Gen *g, RowKernel *s)
{
	uint32_t which;
	int64_t all = kept_groups(s, &which), columns = s->groups.size[s->lanes];
	int64_t piece = g->kern->sched->columns, pieces = columns / piece;
	Index row = worker_row(g, all / columns, columns);
	row_index(g->vars, &s->groups, which & ~(1u << s->lanes), &g->kern->space, &row, s->idx);
	Loop once = when_begin(g, LLVMConstInt(g->i1, 1, 0));
	Level *floor = g->floor;
	g->floor = g->level; // where the sums are known
	g->level->lanes = true;
	s->units = 1;
	s->parts.shared = partials_memory(g);
	Value part = LLVMBuildURem(g->b, g->worker, number(g, pieces), "");
	Value own = LLVMBuildURem(g->b, g->ops->thread(g), number(g, piece), "");
	Index unit = lane_index(g, sum_of(g, times(g, part, piece), own), columns, 1, NULL);
	group_index(g->vars, &s->groups, s->lanes, &g->kern->space, &unit, s->idx);
	SharedColumn c = {.kernel = s,
	                  .groups = ((1u << s->groups.n) - 1) ^ which,
	                  .rows = count_of(&g->kern->space) / all,
	                  .unit = &unit,
	                  .idx = take_copy(g->arena, s->idx, sizeof s->idx)};
	shared_column(g, &c);
	g->floor = floor;
	when_end(g, &once);
}

// Adds a group without axes, a column, if all axes are reduced.
static void add_column(RowKernel *s, const Kern *kern)
{
	uint32_t kept;
	kept_groups(s, &kept);
	if (kept)
		return;
	int k = s->groups.n++;
	s->groups.first[k] = kern->space.rank;
	s->groups.last[k] = kern->space.rank - 1;
	s->groups.size[k] = 1;
	s->groups.reduced[k] = false;
}

// The first launch reduces each block to a row, and stores the outputs of the full shape if none
// depends on a reduction. The second reduces these rows and computes values of the shape of a row.
// If outputs of the full shape depend on them, the third passes over blocks of rows again; the
// values of the second that it needs are in the kernel's work, so outputs may overwrite the others.
// A worker has a block of complete rows: parts of them would be slower by a quarter. On a GPU,
// where they are not, a worker has few columns, and the second launch is also the third, or the
// first: then the last worker to finish these columns also does the work of the second.
static void emit_blocked_rows(Gen *g, RowKernel *s)
{
	const Kern *kern = g->kern;
	const ValSteps *keep = &kern->sched->keep;
	uint32_t which;
	add_column(s, kern);
	int64_t columns = kept_groups(s, &which), rows = count_of(&kern->space) / columns;
	s->parts = (Partials){.reduce = &kern->sched->reduce,
	                      .keep = keep,
	                      .shape = kern->space,
	                      .block = g->worker,
	                      .blocks = ceil_div(rows, kern->sched->rows),
	                      .line = partial_line(columns)};
	if (kern->sched->joined) {
		Value pieces = number(g, ceil_div(columns, kern->sched->columns));
		s->parts.groups = ceil_div(columns, kern->sched->columns);
		s->parts.group = LLVMBuildURem(g->b, g->worker, pieces, "");
		s->parts.block = LLVMBuildUDiv(g->b, g->worker, pieces, "");
	}
	for (int a = 0; a < kern->space.rank; a++)
		if (kern->reduce >> a & 1)
			s->parts.shape.dim[a] = 1;
	bool threads = kern->sched->joined;
	if (g->stage == MAIN && !threads) {
		worker_columns(g, columns, partials_finish, &s->parts);
		return;
	}
	Bound *outer = g->bound, *bound = NEWS(g->arena, Bound, keep->count);
	for (int i = 0; i < keep->count && g->stage == AFTER; i++) {
		bound[i].r = keep->at[i].val;
		bound[i].memory = partials_kept(g, &s->parts, i);
		set_strides(kern, &bound[i], ~kern->reduce);
		bind_memory(g, &bound[i]);
	}
	which ^= (1u << s->groups.n) - 1; // the groups of rows
	Value first = times(g, s->parts.block, kern->sched->rows);
	Value end = end_after(g, first, kern->sched->rows, number(g, rows));
	(threads ? thread_columns : block_of_rows)(g, s, which, first, end);
	while (g->bound != outer)
		unbind_memory(g, g->bound);
}

// ---- the kernel -----------------------------------------------------------------------

static RowKernel *row_kernel(Gen *g)
{
	RowKernel *s = NEW(g->arena, RowKernel);
	s->groups = kern_groups(g->kern);
	for (int a = 0; a < UNITS * RANK; a++)
		s->idx[a] = constant_index(0);
	return s;
}

void emit_row(Gen *g)
{
	RowKernel *s = row_kernel(g);
	if (g->kern->sched->partition == P_partials)
		emit_blocked_rows(g, s);
	else if (g->kern->sched->partition == P_rows)
		emit_rows(g, s);
	else if (shares_columns(g->kern, g->target->machine))
		emit_shared_columns(g, s);
	else
		emit_columns(g, s, column_body);
}

void emit_map(Gen *g)
{
	const Kern *kern = g->kern;
	RowKernel *s = row_kernel(g);
	if (!s->groups.n) {
		for (int o = 0; o < kern->nout; o++) { // by all threads, before one of them stores
			Index to[RANK];
			space_index(g, &val(g->graph, kern->out[o])->shape, s->idx, to);
			at(g, kern->out[o], to);
		}
		Loop single = g->ops->single_begin(g);
		store_outs(g, s->idx);
		single_end(g, &single);
		return;
	}
	if (kern->sched->turned) {
		emit_turn(g);
		return;
	}
	int64_t count = count_of(&kern->space);
	if (kern->sched->flat)
		s->groups = (Groups){.n = 1, .last = {kern->space.rank - 1}, .size = {count}};
	if (kern->sched->partition == P_columns) {
		emit_columns(g, s, store_units);
		return;
	}
	int last = s->groups.n - 1;
	int64_t columns = s->groups.size[last];
	Index row;
	Loop loop = worker_rows(g, count / columns, &row);
	row_index(g->vars, &s->groups, (1u << last) - 1, &kern->space, &row, s->idx);
	g->ops->lane_loop(g, number(g, 0), number(g, columns), columns, (int)kern->sched->units,
	                  store_units, s);
	single_end(g, &loop);
}
