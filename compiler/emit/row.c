// row.c: kernels with folds: rows (lanes along the folded axis) and columns (lanes along the axis
// that is kept). Takes gen.h. A worker computes the folds of its rows or columns, those that need
// other folds after them, and then sweeps over them once more for the outs that have the whole
// space's shape.
#include "row.h"
#include <string.h>

enum { WORK = 8192, FEW = 4, MANY = 16, LARGE = 1 << 20 };

// ---- which folds ----------------------------------------------------------------------

bool is_own_reduction(Gen *g, const RowKernel *s, const Val *v)
{
	if (prims[v->op].cls != C_reduce || v->op == O_cumsum ||
	    !same_shape(&val(g->graph, v->in[0])->shape, &s->kern->space))
		return false;
	return same_axes(&s->kern->space, axes_mask(v), s->kern->reduce);
}

// How many folds lie on top of each other under r.
static int count_reductions(Gen *g, RowKernel *s, Ref r)
{
	const Val *v = val(g->graph, r);
	if (!g->inside[r])
		return 0;
	if (s->level[r])
		return s->level[r] - 1;
	int most = 0;
	for (int k = 0; k < v->nin; k++)
		most = MAX(most, count_reductions(g, s, v->in[k]));
	if (is_own_reduction(g, s, v))
		most++;
	s->depth = MAX(s->depth, most);
	s->level[r] = most + 1;
	return most;
}

// All folds with `deep` folds below them are one loop nest.
static void reduce_stage(Gen *g, RowKernel *s, int deep)
{
	VEC(Ref) reductions = {0};
	for (Ref r = 1; r < (Ref)g->graph->nval; r++)
		if (s->level[r] == deep + 1 && is_own_reduction(g, s, val(g->graph, r)))
			for (int u = 0; u < s->units; u++)
				PUSH(g->arena, reductions, r);
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

// ---- what a row keeps -----------------------------------------------------------------

enum { DEAR = 8 };                          // weight of a map that is not computed twice
static const uint32_t elsewhere = 1u << 31; // of stages: read at another place than the row's own

static void mark_stage(Gen *g, RowKernel *s, Ref r, uint32_t bits)
{
	const Val *v = val(g->graph, r);
	if (!g->inside[r] || (s->stages[r] & bits) == bits || is_own_reduction(g, s, v))
		return;
	s->stages[r] |= bits;
	if (prims[v->op].cls != C_map)
		bits |= elsewhere;
	for (int k = 0; k < v->nin; k++)
		mark_stage(g, s, v->in[k], bits);
}

static void mark_stages(Gen *g, RowKernel *s)
{
	s->stages = NEWS(g->arena, uint32_t, g->graph->nval);
	for (Ref r = 1; r < (Ref)g->graph->nval; r++)
		if (s->level[r] && is_own_reduction(g, s, val(g->graph, r)))
			mark_stage(g, s, val(g->graph, r)->in[0], 1u << MIN(s->level[r] - 2, 30));
	for (int o = 0; o < s->kern->nout; o++)
		mark_stage(g, s, s->kern->out[o], 1u << MIN(s->depth, 30));
}

static bool worth_keeping(Gen *g, const RowKernel *s, Ref r)
{
	const Val *v = val(g->graph, r);
	uint32_t stages = s->stages[r];
	return !(stages & elsewhere) && (stages & (stages - 1)) && prims[v->op].cls == C_map &&
	       prims[v->op].weight >= DEAR && (v->type == E_f32 || v->type == E_f64) &&
	       same_shape(&v->shape, &s->kern->space);
}

static int first_stage(const RowKernel *s, Ref r)
{
	int stage = 0;
	while (!(s->stages[r] >> stage & 1))
		stage++;
	return stage;
}

// Private memory for each, as long as rows stay in the first cache.
static void choose_kept(Gen *g, RowKernel *s)
{
	int64_t size = 1, stride[RANK] = {0};
	const Shape *space = &s->kern->space;
	for (int a = space->rank - 1; a >= 0; a--)
		if (s->kern->reduce >> a & 1) {
			stride[a] = size;
			size *= space->dim[a];
		}
	mark_stages(g, s);
	for (Ref r = 1; r < (Ref)g->graph->nval; r++) {
		int64_t bytes = size * elems[val(g->graph, r)->type].bytes;
		if (!s->stages[r] || !worth_keeping(g, s, r) || g->target->gpu ||
		    g->local_bytes + bytes > g->target->machine->l1 / 2)
			continue;
		Keep *keep = NEW(g->arena, Keep);
		*keep = (Keep){.at.r = r, .at.memory = local_memory(g, bytes), .next = s->kept};
		memcpy(keep->at.stride, stride, sizeof stride);
		s->kept = keep;
	}
}

// The folds of one stage; what it computed first is read from then on.
static void keeping_stage(Gen *g, RowKernel *s, int deep)
{
	Keep *here = NULL;
	for (Keep *k = s->kept; k; k = k->next)
		if (first_stage(s, k->at.r) == deep - 1) {
			Keep *copy = take_copy(g->arena, k, sizeof *k);
			copy->next = here;
			here = copy;
		}
	g->keep = here;
	reduce_stage(g, s, deep);
	g->keep = NULL;
	for (Keep *k = here; k; k = k->next)
		bind(g, &k->at);
}

// ---- reading ahead --------------------------------------------------------------------

// The folds of a row read it from memory and the sweep over it from cache: memory would rest
// meanwhile, so the sweep asks for what the folds of the next row will read.

static void find_ahead(Gen *g, RowKernel *s, Ref r, bool *seen)
{
	const Val *v = val(g->graph, r);
	if (seen[r] || !same_shape(&v->shape, &s->kern->space))
		return;
	seen[r] = true;
	if (!g->inside[r] || v->op == O_slot)
		PUSH(g->arena, s->ahead, r);
	else if (prims[v->op].cls == C_map)
		for (int k = 0; k < v->nin; k++)
			find_ahead(g, s, v->in[k], seen);
}

// Of rows that lie one after the other, come from memory, and stay in the first cache.
static void choose_ahead(Gen *g, RowKernel *s, int64_t row)
{
	int64_t space = count_of(&s->kern->space);
	for (int k = 1; k < s->groups.n; k++)
		if (s->groups.reduced[k - 1] && !s->groups.reduced[k])
			return;
	if (g->target->gpu || space < LARGE)
		return;
	bool *seen = NEWS(g->arena, bool, g->graph->nval);
	for (Ref r = 1; r < (Ref)g->graph->nval; r++)
		if (s->level[r] && is_own_reduction(g, s, val(g->graph, r)))
			find_ahead(g, s, val(g->graph, r)->in[0], seen);
	s->row = row;
	if (s->ahead.count * row * 8 > g->target->machine->l1)
		s->ahead.count = 0;
}

static void read_ahead(Gen *g, const RowKernel *s, const Index *idx)
{
	for (int k = 0; k < s->ahead.count; k++) {
		Ref r = s->ahead.at[k];
		const Val *v = val(g->graph, r);
		Index here = ravel(g->vars, &v->shape, idx), next = shift_index(here, s->row);
		Lanes lanes = index_value(g, &next);
		prefetch_lanes(g, v->type, location_address(g, r), &lanes);
	}
}

// ---- outs -----------------------------------------------------------------------------

bool full_out(Gen *g, const RowKernel *s, int k)
{
	return same_shape(&val(g->graph, s->kern->out[k])->shape, &s->kern->space);
}

void store_full(Gen *g, RowKernel *s, const Index *idx)
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

static void sweep_units(Gen *g, int n, const Index *unit, void *context)
{
	RowKernel *s = context;
	for (int u = 0; u < n; u++) {
		group_index(g->vars, &s->groups, s->groups.n - 1, &s->kern->space, &unit[u],
		            s->idx);
		read_ahead(g, s, s->idx);
		store_full(g, s, s->idx);
	}
}

// Loops over the folded groups from `group` on, and all units inside.
static void sweep_loops(Gen *g, RowKernel *s, int group)
{
	while (group < s->groups.n && !s->groups.reduced[group])
		group++;
	if (group == s->groups.n) {
		for (int u = 0; u < s->units; u++)
			store_full(g, s, s->idx + u * RANK);
		return;
	}
	int64_t size = s->groups.size[group];
	if (s->lanes && group == s->groups.n - 1) {
		lane_loop(g, number(g, 0), number(g, size), size, 1, sweep_units, s);
		return;
	}
	Loop loop = loop_begin(g, number(g, 0), number(g, size), 1);
	Index i = uniform_index(g, loop.i, size, 1);
	for (int u = 0; u < s->units; u++)
		group_index(g->vars, &s->groups, group, &s->kern->space, &i, s->idx + u * RANK);
	sweep_loops(g, s, group + 1);
	loop_end(g, &loop);
}

// What has the shape of the folds is evaluated before the sweep and stored after it.
static void worker_body(Gen *g, RowKernel *s)
{
	const Kern *k = s->kern;
	Bound *outer = g->bound;
	for (int deep = 1; deep <= s->depth; deep++)
		keeping_stage(g, s, deep);
	Value *v = NEWS(g->arena, Value, k->nout * s->units);
	Index *idx = take_copy(g->arena, s->idx, sizeof s->idx);
	bool whole = false;
	for (int o = 0; o < k->nout; o++) {
		whole |= full_out(g, s, o);
		for (int u = 0; u < s->units && !full_out(g, s, o); u++)
			v[o * s->units + u] = at(g, k->out[o], idx + u * RANK);
	}
	if (whole) {
		worker_barrier(g); // outs may lie where the folds' operands lie
		sweep_loops(g, s, 0);
	}
	Branch single = single_begin(g);
	for (int o = 0; o < k->nout; o++)
		for (int u = 0; u < s->units && !full_out(g, s, o); u++)
			store_out(g, o, idx + u * RANK, v[o * s->units + u]);
	single_end(g, &single);
	while (g->bound != outer)
		unbind(g, g->bound);
}

// ---- workers --------------------------------------------------------------------------

static void kept_groups(const Groups *groups, uint32_t *which, int64_t *count)
{
	*which = 0;
	*count = 1;
	for (int k = 0; k < groups->n; k++)
		if (!groups->reduced[k]) {
			*which |= 1u << k;
			*count *= groups->size[k];
		}
}

static void emit_rows(Gen *g, RowKernel *s)
{
	uint32_t which;
	int64_t rows, space = count_of(&s->kern->space);
	kept_groups(&s->groups, &which, &rows);
	int64_t size = MAX(1, space / rows), block = MAX(1, MIN(WORK / size, (rows + 7) / 8));
	s->lanes = true;
	s->units = 1;
	choose_kept(g, s);
	choose_ahead(g, s, size);
	g->workers = ceil_div(rows, block);
	Value first = times(g, g->worker, block);
	Value end = smaller(g, LLVMBuildAdd(g->b, first, number(g, block), ""), rows);
	if (rows == 1) {
		worker_body(g, s);
		return;
	}
	Loop loop = loop_begin(g, first, end, 1);
	Index row = uniform_index(g, loop.i, rows, 1);
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

// Vectors of columns a worker has. Large spaces come from memory: long pieces of each row, but
// enough workers.
static int column_units(Gen *g, const RowKernel *s, int64_t columns)
{
	if (count_of(&s->kern->space) < LARGE)
		return FEW;
	int64_t units = columns / (8 * g->width);
	return (int)MAX(FEW, MIN(MANY, units));
}

static void emit_columns(Gen *g, RowKernel *s, int group)
{
	uint32_t which;
	int64_t all, columns = s->groups.size[group];
	kept_groups(&s->groups, &which, &all);
	int64_t rows = all / columns;
	int units = column_units(g, s, columns);
	int64_t piece = g->target->gpu ? g->target->machine->threads : units * g->width;
	int64_t pieces = ceil_div(columns, piece);
	g->workers = rows * pieces;
	Value part = LLVMBuildURem(g->b, g->worker, number(g, pieces), "");
	Value number_of_row = LLVMBuildUDiv(g->b, g->worker, number(g, pieces), "");
	Index row = uniform_index(g, number_of_row, rows, 1);
	row_index(g->vars, &s->groups, which & ~(1u << group), &s->kern->space, &row, s->idx);
	Value from = times(g, part, piece);
	Value to = smaller(g, LLVMBuildAdd(g->b, from, number(g, piece), ""), columns);
	if (pieces == 1)
		from = number(g, 0), to = number(g, columns);
	Columns c = {s, group};
	lane_loop(g, from, to, columns, units, column_body, &c);
}

void emit_row(Gen *g, const Kern *kern)
{
	RowKernel *s = NEW(g->arena, RowKernel);
	s->kern = kern;
	s->groups = coalesce(g->vars, g->graph, &g->computed, kern->nout, kern->out, &kern->space,
	                     (1u << kern->space.rank) - 1, kern->reduce, NULL);
	s->level = NEWS(g->arena, int, g->graph->nval);
	for (int a = 0; a < UNITS * RANK; a++)
		s->idx[a] = constant_index(0);
	for (int o = 0; o < kern->nout; o++)
		count_reductions(g, s, kern->out[o]);
	int n = s->groups.n, kept = -1;
	for (int k = 0; k < n; k++)
		if (!s->groups.reduced[k])
			kept = k;
	bool last = n > 0 && s->groups.reduced[n - 1];
	if (emit_blocked_rows(g, s))
		return;
	if (kept < 0 || (last && s->groups.size[n - 1] >= MAX(2, g->width / 2)))
		emit_rows(g, s);
	else
		emit_columns(g, s, kept);
}
