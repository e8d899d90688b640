// scatter.c: emits scatter and running sums.
// Their steps along the axis are sequential, in order. Workers share nothing: each has its own
// columns, positions in the axes after it. A scatter writes over its operand 0 where that lies in
// its output; else the launch before copies it there, by rows.
//
// On a GPU workers also have rows of their own, positions in the axis: they look through all
// indices for the steps that are theirs. A few thousand at a time, each thread finds such among
// consecutive indices, and all of them are listed in order in shared memory. Then groups of threads
// that have rows of their own take their steps from the list, and need not wait for others.
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

static const Op scatter_modes[] = {O_const, O_sum, O_prod, O_amin, O_amax};

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
		Op mode = scatter_modes[v->attr->i[1]];
		if (mode != O_const)
			x = reduce_step(g, mode, update->type, load_out(g, 0, to), x);
		store_root(g, to, x);
	}
	loop_end(g, &loop);
}

// ---- scatter by threads of a GPU ------------------------------------------------------

enum {
	SIDE = 32,  // threads of a group, at most
	EACH = 8,   // indices of a thread
	PARTS = 16, // of the threads, whose steps are counted together
	ROW = 32    // bits before the row in an entry of the list: those of its step
};

typedef struct Rows { // of a worker: every `apart`-th of the axis, from `first` on
	Lines l;
	const Val *index, *update;
	int64_t size, steps, columns;
	int64_t apart, wide, groups; // wide: threads of a group
	Index first;
	Value thread, part; // part: the first of the worker's columns
} Rows;

static Value shared_number(Gen *g, const char *name, int64_t count, Value i)
{
	return LLVMBuildLoad2(g->b, g->i64, g->ops->shared(g, name, count, i), "");
}

static void share_number(Gen *g, const char *name, int64_t count, Value i, Value x)
{
	LLVMBuildStore(g->b, x, g->ops->shared(g, name, count, i));
}

// Returns the sum of numbers [from, to) of an array.
static Value sum_shared(Gen *g, const char *name, int64_t count, Value from, Value to)
{
	Value sum = variable(g, number(g, 0));
	Loop loop = loop_begin(g, from, to, 1);
	Value x = shared_number(g, name, count, loop.i);
	set_variable(g, sum, sum_of(g, read_variable(g, sum), x));
	loop_end(g, &loop);
	return read_variable(g, sum);
}

// Sets entry[e], for each of the thread's indices from step `from` on: the step, and which of the
// worker's rows it is for; is[e] is false if it is for none.
static void find_steps(Gen *g, Rows *r, Value from, Value *entry, Value *is)
{
	for (int e = 0; e < EACH; e++) {
		Value step = sum_of(g, from, number(g, e)), all = number(g, r->steps);
		Value exists = LLVMBuildICmp(g->b, LLVMIntSLT, step, all, "");
		Index i = lane_index(g, least(g, step, number(g, r->steps - 1)), r->steps, 1, NULL);
		Index middle[RANK], row, own;
		unravel(g->vars, &i, &r->index->shape, middle);
		Index at = data_index(g, r->l.v->in[1], middle, r->size);
		split_index(g->vars, &at, r->apart, &row, &own);
		own = add_index(g->vars, &own, &r->first, -1);
		is[e] = LLVMBuildICmp(g->b, LLVMIntEQ, index_i64(g, &own), number(g, 0), "");
		is[e] = LLVMBuildAnd(g->b, is[e], exists, "");
		entry[e] = LLVMBuildShl(g->b, index_i64(g, &row), number(g, ROW), "");
		entry[e] = LLVMBuildOr(g->b, entry[e], step, "");
	}
}

// Lists the worker's steps from step `from` on. Returns how many there are.
static Value list_steps(Gen *g, Rows *r, Value from)
{
	static const char counts[] = "amos_counts", parts[] = "amos_parts", list[] = "amos_list";
	int64_t threads = g->target->machine->threads, some = threads / PARTS;
	Value entry[EACH], is[EACH], count = number(g, 0);
	find_steps(g, r, sum_of(g, from, times(g, r->thread, EACH)), entry, is);
	for (int e = 0; e < EACH; e++)
		count = sum_of(g, count, LLVMBuildZExt(g->b, is[e], g->i64, ""));
	share_number(g, counts, threads, r->thread, count);
	g->ops->all_threads(g);
	Value part = LLVMBuildUDiv(g->b, r->thread, number(g, some), "");
	Value begin = times(g, part, some);
	Value is_last =
	    LLVMBuildICmp(g->b, LLVMIntEQ, r->thread, sum_of(g, begin, number(g, some - 1)), "");
	Value at = sum_shared(g, counts, threads, begin, r->thread);
	Loop last = when_begin(g, is_last);
	share_number(g, parts, PARTS, part, sum_of(g, at, count));
	when_end(g, &last);
	g->ops->all_threads(g);
	at = sum_of(g, at, sum_shared(g, parts, PARTS, number(g, 0), part));
	Value all = sum_shared(g, parts, PARTS, number(g, 0), number(g, PARTS));
	for (int e = 0; e < EACH; e++) {
		Loop own = when_begin(g, is[e]);
		share_number(g, list, threads * EACH, at, entry[e]);
		when_end(g, &own);
		at = sum_of(g, at, LLVMBuildZExt(g->b, is[e], g->i64, ""));
	}
	g->ops->all_threads(g);
	return all;
}

// The thread's columns, as indices, and whether they exist; NULL: all do. Returns how many.
static int own_columns(Gen *g, const Rows *r, Index *column, Value *exists)
{
	int n = (int)(g->kern->sched->columns / r->wide);
	Value own = LLVMBuildURem(g->b, r->thread, number(g, r->wide), "");
	for (int i = 0; i < n; i++) {
		Value at = sum_of(g, sum_of(g, r->part, own), number(g, i * r->wide));
		exists[i] = NULL;
		if (r->columns % g->kern->sched->columns) {
			Value all = number(g, r->columns);
			exists[i] = LLVMBuildICmp(g->b, LLVMIntSLT, at, all, "");
			at = least(g, at, number(g, r->columns - 1));
		}
		column[i] = lane_index(g, at, r->columns, 1, NULL);
	}
	return n;
}

// Reads or writes an element of the output, if it exists: else it may be another thread's.
static Value load_own(Gen *g, const Index *idx, Value exists)
{
	if (!exists)
		return load_out(g, 0, idx);
	Elem type = val(g->graph, g->kern->out[0])->type;
	Value x = variable(g, LLVMConstNull(elem_type(g, type)));
	Loop own = when_begin(g, exists);
	set_variable(g, x, load_out(g, 0, idx));
	when_end(g, &own);
	return read_variable(g, x);
}

static void store_own(Gen *g, const Index *idx, Value x, Value exists)
{
	if (!exists) {
		store_root(g, idx, x);
		return;
	}
	Loop own = when_begin(g, exists);
	store_root(g, idx, x);
	when_end(g, &own);
}

// Reads an update at the thread's columns, for which the lines are set.
static void read_update(Gen *g, const Rows *r, const Index *step, int n, Value *x)
{
	Index middle[RANK], from[RANK];
	unravel(g->vars, step, &r->index->shape, middle);
	for (int i = 0; i < n; i++) {
		line_index(&r->l, i, r->index->shape.rank, middle, from);
		x[i] = at(g, r->l.v->in[2], from);
	}
}

// Combines a row with an update at the thread's columns, all of which are loaded at once.
static void take_step(Gen *g, Rows *r, const Index *step, const Index *position)
{
	Index to[UNITS][RANK], column[UNITS];
	Value exists[UNITS], x[UNITS];
	Op mode = scatter_modes[r->l.v->attr->i[1]];
	int n = own_columns(g, r, column, exists);
	lines_set(g, &r->l, n, column);
	read_update(g, r, step, n, x);
	for (int i = 0; i < n; i++)
		line_index(&r->l, i, 1, position, to[i]);
	for (int i = 0; i < n && mode != O_const; i++) {
		Value before = load_own(g, to[i], exists[i]);
		x[i] = reduce_step(g, mode, r->update->type, before, x[i]);
	}
	for (int i = 0; i < n; i++)
		store_own(g, to[i], x[i], exists[i]);
}

// Row i of the worker: where that is in the axis.
static Index row_position(Gen *g, const Rows *r, const Index *i)
{
	return add_index(g->vars, &r->first, i, r->apart);
}

// Each group of threads has every `groups`-th of the worker's rows.
static void take_steps(Gen *g, Rows *r, Value count)
{
	Value group = LLVMBuildUDiv(g->b, r->thread, number(g, r->wide), "");
	Loop steps = loop_begin(g, number(g, 0), count, 1);
	int64_t threads = g->target->machine->threads;
	Value entry = shared_number(g, "amos_list", threads * EACH, steps.i);
	Value row = LLVMBuildLShr(g->b, entry, number(g, ROW), "");
	Value of = LLVMBuildURem(g->b, row, number(g, r->groups), "");
	Loop own = when_begin(g, LLVMBuildICmp(g->b, LLVMIntEQ, of, group, ""));
	Value low = LLVMBuildAnd(g->b, entry, number(g, UINT32_MAX), "");
	Index step = lane_index(g, low, r->steps, 1, NULL);
	Index i = lane_index(g, row, ceil_div(r->size, r->apart), 1, NULL);
	Index position = row_position(g, r, &i);
	take_step(g, r, &step, &position);
	when_end(g, &own);
	loop_end(g, &steps);
}

// Copies an element of operand 0 that exists, which may be where it goes to: see load_own().
static void copy_own(Gen *g, const Rows *r, const Index *idx, Value exists)
{
	Loop own = when_begin(g, exists ? exists : LLVMConstInt(g->i1, 1, 0));
	Level *floor = g->floor;
	g->floor = g->level;
	store_root(g, idx, at(g, r->l.v->in[0], idx));
	g->floor = floor;
	when_end(g, &own);
}

// Copies the worker's rows of operand 0.
static void copy_own_rows(Gen *g, Rows *r)
{
	Value group = LLVMBuildUDiv(g->b, r->thread, number(g, r->wide), "");
	Value left = LLVMBuildSub(g->b, number(g, r->size), index_i64(g, &r->first), "");
	left = LLVMBuildAdd(g->b, left, number(g, r->apart - 1), "");
	Value rows = LLVMBuildSDiv(g->b, left, number(g, r->apart), "");
	Loop loop = loop_begin(g, group, rows, r->groups);
	Index i = lane_index(g, loop.i, ceil_div(r->size, r->apart), 1, NULL), column[UNITS];
	Index position = row_position(g, r, &i);
	Value exists[UNITS];
	int n = own_columns(g, r, column, exists);
	lines_set(g, &r->l, n, column);
	for (int k = 0; k < n; k++) {
		Index to[RANK];
		line_index(&r->l, k, 1, &position, to);
		copy_own(g, r, to, exists[k]);
	}
	loop_end(g, &loop);
}

// ---- sums of a single row -------------------------------------------------------------

typedef struct RowSum {
	Rows *rows;
	int columns;
	Value sum[UNITS]; // variables, by column of the thread
} RowSum;

static void add_step(Gen *g, int n, const Index *number_in_list, void *context)
{
	RowSum *s = context;
	Rows *r = s->rows;
	Value x[UNITS];
	(void)n;
	Value entry = shared_number(g, "amos_list", g->target->machine->threads * EACH,
	                            index_i64(g, number_in_list));
	entry = LLVMBuildAnd(g->b, entry, number(g, UINT32_MAX), "");
	Index step = lane_index(g, entry, r->steps, 1, NULL);
	read_update(g, r, &step, s->columns, x);
	for (int i = 0; i < s->columns; i++) {
		Value sum = read_variable(g, s->sum[i]);
		set_variable(g, s->sum[i], reduce_step(g, O_sum, r->update->type, sum, x[i]));
	}
}

// The groups of threads have shared their sums, which the first adds to the row, in order.
static void add_to_row(Gen *g, RowSum *s, Value group, Value own, const Index *column,
                       const Value *exists)
{
	Rows *r = s->rows;
	static const char sums[] = "amos_sums";
	int64_t line = r->wide * s->columns;
	Index none = constant_index(0), position = row_position(g, r, &none);
	for (int i = 0; i < s->columns; i++) {
		Value at = sum_of(g, times(g, group, line), number(g, i * r->wide));
		Value bits = gpu_bits(g, r->update->type, read_variable(g, s->sum[i]));
		share_number(g, sums, r->groups * line, sum_of(g, at, own), bits);
	}
	g->ops->all_threads(g);
	Loop first = when_begin(g, LLVMBuildICmp(g->b, LLVMIntEQ, group, number(g, 0), ""));
	lines_set(g, &r->l, s->columns, column);
	for (int i = 0; i < s->columns; i++) {
		Index to[RANK];
		line_index(&r->l, i, 1, &position, to);
		Value x = load_own(g, to, exists[i]);
		for (int64_t k = 0; k < r->groups; k++) {
			Value at = sum_of(g, own, number(g, k * line + i * r->wide));
			Value bits = shared_number(g, sums, r->groups * line, at);
			Value sum = gpu_value(g, r->update->type, bits);
			x = reduce_step(g, O_sum, r->update->type, x, sum);
		}
		store_own(g, to, x, exists[i]);
	}
	when_end(g, &first);
}

// The worker has one row: its steps are added by all groups of threads, in registers.
static void sum_row(Gen *g, Rows *r)
{
	int64_t chunk = g->target->machine->threads * EACH;
	RowSum s = {.rows = r};
	Index column[UNITS];
	Value exists[UNITS], zero = reduce_start(g, O_sum, r->update->type);
	Value group = LLVMBuildUDiv(g->b, r->thread, number(g, r->wide), "");
	Value own = LLVMBuildURem(g->b, r->thread, number(g, r->wide), "");
	s.columns = own_columns(g, r, column, exists);
	for (int i = 0; i < s.columns; i++)
		s.sum[i] = variable(g, zero);
	Loop loop = loop_begin(g, number(g, 0), number(g, r->steps), chunk);
	lines_set(g, &r->l, s.columns, column);
	Range steps = {.from = number(g, 0),
	               .to = list_steps(g, r, loop.i),
	               .own = group,
	               .count = chunk,
	               .step = r->groups,
	               .together = g->kern->sched->together,
	               .lanes = true};
	range_loop(g, &steps, add_step, &s);
	loop_end(g, &loop);
	add_to_row(g, &s, group, own, column, exists);
}

static void scatter_rows(Gen *g, Rows *r)
{
	const Sched *s = g->kern->sched;
	const Val *v = r->l.v;
	int64_t threads = g->target->machine->threads;
	Index all = uniform_index(g, g->worker, s->workers, 1), piece, rest;
	r->index = val(g->graph, v->in[1]);
	r->update = val(g->graph, v->in[2]);
	r->size = v->shape.dim[r->l.axis];
	r->steps = count_of(&r->index->shape);
	r->columns = count_of(&r->l.after);
	r->apart = ceil_div(r->size, s->rows);
	r->wide = MIN(SIDE, s->columns);
	r->groups = threads / r->wide;
	split_index(g->vars, &all, r->apart, &rest, &r->first);
	split_index(g->vars, &rest, ceil_div(r->columns, s->columns), &all, &piece);
	unravel(g->vars, &all, &r->l.before, r->l.outer);
	Loop once = when_begin(g, LLVMConstInt(g->i1, 1, 0));
	g->level->lanes = true;
	r->thread = g->ops->thread(g);
	r->part = times(g, index_i64(g, &piece), s->columns);
	if (!is_in_place(g, v))
		copy_own_rows(g, r);
	if (s->together > 1) {
		sum_row(g, r);
	} else {
		Loop loop = loop_begin(g, number(g, 0), number(g, r->steps), threads * EACH);
		take_steps(g, r, list_steps(g, r, loop.i));
		loop_end(g, &loop);
	}
	when_end(g, &once);
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
	if (g->kern->kind == L_scatter && g->target->machine->threads > 1) {
		Rows r = {.l = *l};
		scatter_rows(g, &r);
		return;
	}
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
