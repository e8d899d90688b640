// dot.c: the matrix product: blocks of it for workers, and the loops around a register tile.
// Takes a dot kernel. Gives its body: workers are independent blocks (batch, rows, columns) of the
// result. Keeps: each element is summed over k in an order that the shapes and the tile fix, not
// the split.
//
// A worker packs its columns of b into panels as wide as the tile (they stay in its L2), then goes
// down its rows, a strip of tile height at a time: a strip of a (in place, or packed) meets every
// panel, and what the maps after the dot make of the strip is written while the sums are in L1.
// Where k is too long for one block, sums wait in private memory for the next. What many workers
// would pack is packed once, by a launch before (pack.c).
#include "dot.h"

// ---- the worker -----------------------------------------------------------------------

Value first_row(Dot *d, Value strip)
{
	return least(d->g, times(d->g, strip, d->tile.rows), number(d->g, d->m - d->tile.rows));
}

typedef struct Row {
	Dot *d;
	Index row; // of all batches
} Row;

static void finish_lanes(Gen *g, int n, const Index *unit, void *context)
{
	const Row *r = context;
	const Shape *space = &r->d->kern->space;
	Shape rows = shape_of(space->rank - 1, space->dim);
	Index idx[RANK];
	unravel(g->vars, &r->row, &rows, idx);
	for (int u = 0; u < n; u++) {
		idx[space->rank - 1] = unit[u];
		store_outs(g, idx);
		parts_step(g, &r->d->parts, r->d->rows_block, &unit[u], idx);
	}
}

// All columns of the worker.
static void each_column(Dot *d, LaneBody *body, void *context)
{
	Gen *g = d->g;
	Value end = sum_of(g, d->first_column, times(g, d->count, d->width));
	lane_loop(g, d->first_column, least(g, end, number(g, d->n)), d->n,
	          (int)(d->width / g->width), body, context);
}

// Writes what the kernel makes of rows from..to of the strip at `first`, whose sums are finished.
static void finish_strip(Dot *d, Value first, Value from, Value to, Value sums)
{
	Gen *g = d->g;
	const Shape *shape = &d->v->shape;
	int last = shape->rank - 1;
	Bound bound = {.r = d->kern->root, .stride = {0}};
	bound.stride[last] = 1;
	for (int64_t a = last - 1, stride = d->tile.c_row; a >= 0; stride *= shape->dim[a--])
		bound.stride[a] = stride;
	Value before = times(g, index_i64(g, &d->in_batch), d->m);
	Value skip = times(g, sum_of(g, before, first), d->tile.c_row);
	bound.memory = element(d, sums, LLVMBuildNeg(g->b, sum_of(g, skip, d->first_column), ""));
	bind(g, &bound);
	Loop rows = loop_begin(g, from, to, 1);
	Row row = {d, uniform_index(g, sum_of(g, before, rows.i), d->batch * d->m, 1)};
	each_column(d, finish_lanes, &row);
	loop_end(g, &rows);
	unbind(g, &bound);
}

// What the maps after the product touch row by row: outs, and values read at the same place.
static void choose_streams(Dot *d)
{
	Gen *g = d->g;
	Tile *t = &d->tile;
	for (int o = 0; o < d->kern->nout && t->streams < STREAMS - 1; o++) {
		if (reduced_out(g, d->kern, o))
			continue;
		int bytes = elems[val(g->graph, d->kern->out[o])->type].bytes;
		d->stream[t->streams] = out_address(g, o);
		t->stream[t->streams++] = (Stream){d->n * bytes, true};
	}
	bool *memory = NEWS(g->arena, bool, g->graph->nval);
	for (int r = 0; r < g->graph->nval; r++)
		memory[r] = !g->inside[r];
	Reads reads = {0};
	Walk walk = walk_new(g->arena, g->graph, memory);
	walk_start(&walk, &reads);
	for (int o = 0; o < d->kern->nout; o++)
		walk_root(&walk, d->kern->out[o], &reads);
	for (int r = 0; r < reads.count && t->streams < STREAMS; r++) {
		const Val *v = val(g->graph, reads.at[r].val);
		if (reads.at[r].reach == R_moved || count_of(&v->shape) != count_of(&d->v->shape))
			continue;
		d->stream[t->streams] = location_address(g, reads.at[r].val);
		t->stream[t->streams++] = (Stream){d->n * elems[v->type].bytes, false};
	}
}

// Where the strip's columns lie in a stream.
static Value stream_strip(Dot *d, int i, Value first, Value column)
{
	Gen *g = d->g;
	Value row = sum_of(g, times(g, index_i64(g, &d->in_batch), d->m), first);
	Value place = sum_of(g, times(g, row, d->n), column);
	place = times(g, place, d->tile.stream[i].row / d->n);
	return LLVMBuildGEP2(g->b, g->i8, d->stream[i], &place, 1, "");
}

static Value strip_of(Dot *d, Value strip, Value group, Value first)
{
	Gen *g = d->g;
	if (d->a_way == W_place)
		return in_place(d, 0, first, d->from);
	if (!d->common[0].used)
		strip = LLVMBuildSub(g->b, strip, group, "");
	return element(d, d->strip, times(g, strip, d->strip_size));
}

// Row `row` of the strip after the one at `a`.
static Value soon_of(Dot *d, Value a, Value first, Value row)
{
	Gen *g = d->g;
	if (!d->common[0].used)
		return in_place(d, 0, sum_of(g, sum_of(g, first, number(g, d->tile.rows)), row),
		                d->from);
	row = times(g, row, d->tile.soon_row);
	return element(d, a, sum_of(g, row, number(g, d->strip_size)));
}

static void one_strip(Dot *d, Value strip, Value group, Value again, Value done)
{
	Gen *g = d->g;
	Value first = first_row(d, strip), a = strip_of(d, strip, group, first), sums = d->sums;
	if (d->blocks > 1) {
		Value own = LLVMBuildSub(g->b, strip, d->first_strip, "");
		sums = element(d, sums, times(g, own, d->tile.rows * d->tile.c_row));
	}
	Loop panels = loop_begin(g, number(g, 0), d->count, 1);
	Value column = times(g, panels.i, d->width), at_column = sum_of(g, d->first_column, column);
	Value b = d->b_way == W_place ? in_place(d, 1, d->from, at_column)
	                              : element(d, d->panel, times(g, panels.i, d->panel_size));
	Value soon = d->tile.soon ? soon_of(d, a, first, times(g, panels.i, d->tile.soon)) : a;
	Value in[6 + STREAMS] = {d->steps, a, b, element(d, sums, column), again, soon};
	for (int i = 0; i < d->tile.streams; i++)
		in[6 + i] = stream_strip(d, i, first, at_column);
	LLVMBuildCall2(g->b, LLVMGlobalGetValueType(d->sum_tile), d->sum_tile, in,
	               (unsigned)(6 + d->tile.streams), "");
	loop_end(g, &panels);
	Value from = times(g, strip, d->tile.rows);
	Value to = least(g, sum_of(g, from, number(g, d->tile.rows)), number(g, d->m));
	finish_strip(d, first, from, LLVMBuildSelect(g->b, done, to, from, ""), sums);
}

static void one_block(Dot *d, Value again, Value done)
{
	Gen *g = d->g;
	if (d->common[0].used)
		d->strip = common_block(d, 0);
	if (d->common[1].used) {
		Value panel = LLVMBuildUDiv(g->b, d->first_column, number(g, d->width), "");
		d->panel = element(d, common_block(d, 1), times(g, panel, d->panel_size));
	} else {
		pack_panels(d);
	}
	Loop groups = loop_begin(g, d->first_strip, d->end_strip, d->group);
	Value end = least(g, sum_of(g, groups.i, number(g, d->group)), d->end_strip);
	if (!d->common[0].used)
		pack_strips(d, groups.i, end);
	Loop strips = loop_begin(g, groups.i, end, 1);
	one_strip(d, strips.i, groups.i, again, done);
	loop_end(g, &strips);
	loop_end(g, &groups);
}

// Which part of the result the worker computes: rows vary fastest, then columns, then the batch.
static void choose_part(Dot *d)
{
	Gen *g = d->g;
	int64_t down = ceil_div(d->strips, d->strips_each),
	        across = ceil_div(d->panels, d->panels_each);
	g->workers = ceil_div(d->batch, d->batches_each) * down * across;
	Value row = LLVMBuildURem(g->b, g->worker, number(g, down), "");
	Value rest = LLVMBuildUDiv(g->b, g->worker, number(g, down), "");
	Value column = LLVMBuildURem(g->b, rest, number(g, across), "");
	rest = LLVMBuildUDiv(g->b, rest, number(g, across), "");
	d->first_batch = times(g, rest, d->batches_each);
	d->end_batch =
	    least(g, sum_of(g, d->first_batch, number(g, d->batches_each)), number(g, d->batch));
	d->rows_block = row;
	d->first_strip = times(g, row, d->strips_each);
	d->end_strip =
	    least(g, sum_of(g, d->first_strip, number(g, d->strips_each)), number(g, d->strips));
	Value panel = times(g, column, d->panels_each);
	d->first_column = times(g, panel, d->width);
	d->count = least(g, number(g, d->panels_each),
	                 LLVMBuildSub(g->b, number(g, d->panels), panel, ""));
}

static void take_pad(Dot *d)
{
	Gen *g = d->g;
	const Tile *t = &d->tile;
	int64_t strips = d->blocks > 1 ? d->strips_each : 1;
	d->sums = local_memory(g, strips * t->rows * t->c_row * t->bytes);
	if (d->a_way != W_place && !d->common[0].used)
		d->strip = local_memory(g, d->group * d->strip_size * t->bytes);
	if (d->b_way != W_place && !d->common[1].used)
		d->panel = local_memory(g, d->panels_each * d->panel_size * t->bytes);
}

void go_to_block(Dot *d, Value block)
{
	Gen *g = d->g;
	d->block = block;
	d->from = d->blocks == 1 ? number(g, 0) : times(g, block, d->depth);
	d->steps = number(g, d->k);
	if (d->blocks > 1)
		d->steps = least(g, number(g, d->depth), LLVMBuildSub(g->b, d->steps, d->from, ""));
}

static void all_blocks(Dot *d)
{
	Gen *g = d->g;
	if (d->blocks == 1) {
		go_to_block(d, number(g, 0));
		one_block(d, LLVMConstInt(g->i1, 0, 0), LLVMConstInt(g->i1, 1, 0));
		return;
	}
	Loop blocks = loop_begin(g, number(g, 0), number(g, d->blocks), 1);
	go_to_block(d, blocks.i);
	Value again = LLVMBuildICmp(g->b, LLVMIntNE, blocks.i, number(g, 0), "");
	Value last = LLVMBuildICmp(g->b, LLVMIntEQ, blocks.i, number(g, d->blocks - 1), "");
	one_block(d, again, last);
	loop_end(g, &blocks);
}

// ---- folds of the rows ----------------------------------------------------------------

static void plan_parts(Dot *d)
{
	Gen *g = d->g;
	for (int o = 0; o < d->kern->nout; o++)
		if (reduced_out(g, d->kern, o))
			PUSH(g->arena, d->parts.reduce, d->kern->out[o]);
	parts_plan(&d->parts, ceil_div(d->strips, d->strips_each), d->n, d->common_bytes);
}

static void start_parts(Gen *g, int n, const Index *unit, void *context)
{
	const Dot *d = context;
	for (int u = 0; u < n; u++)
		parts_start(g, &d->parts, d->rows_block, &unit[u]);
}

static void finish_parts(Gen *g, int n, const Index *unit, void *context)
{
	const Dot *d = context;
	int last = val(g->graph, d->parts.reduce.at[0])->shape.rank - 1;
	Index idx[RANK];
	for (int a = 0; a < last; a++)
		idx[a] = constant_index(0);
	for (int u = 0; u < n; u++) {
		idx[last] = unit[u];
		parts_finish(g, &d->parts, &unit[u], idx);
		for (int o = 0; o < d->kern->nout; o++)
			if (reduced_out(g, d->kern, o))
				store_out(g, o, idx, at(g, d->kern->out[o], idx));
	}
}

// The launch after the product: a worker has some columns.
static void reduce_parts(Dot *d)
{
	Gen *g = d->g;
	Value from = times(g, g->worker, d->width);
	lane_loop(g, from, smaller(g, sum_of(g, from, number(g, d->width)), d->n), d->n,
	          (int)(d->width / g->width), finish_parts, d);
	g->workers = d->panels;
}

// ---- the kernel -----------------------------------------------------------------------

static void product(Dot *d)
{
	Gen *g = d->g;
	choose_part(d);
	choose_streams(d);
	take_pad(d);
	d->sum_tile = tile_function(g->module, &d->tile);
	if (d->parts.reduce.count)
		each_column(d, start_parts, d);
	Loop batches = loop_begin(g, d->first_batch, d->end_batch, 1);
	d->in_batch = uniform_index(g, batches.i, d->batch, 1);
	all_blocks(d);
	loop_end(g, &batches);
}

// The kernel's outs that are folded, or those that are not.
static Kern some_outs(Gen *g, const Kern *kern, bool reduced)
{
	Kern some = {.kind = L_map, .space = kern->space};
	some.out = NEWS(g->arena, Ref, kern->nout);
	some.to = NEWS(g->arena, Location, kern->nout);
	for (int o = 0; o < kern->nout; o++)
		if (reduced_out(g, kern, o) == reduced) {
			some.out[some.nout] = kern->out[o];
			some.to[some.nout++] = kern->to[o];
		}
	if (!reduced || !some.nout)
		return some;
	const Val *v = val(g->graph, some.out[0]);
	some.kind = L_col;
	some.space = val(g->graph, v->in[0])->shape;
	some.reduce = axes_mask(v);
	return some;
}

// Threads are lanes: each element is a fold of its own, and rows are folded by a launch after,
// which reads what the first has written.
static void emit_elements(Gen *g, const Kern *kern)
{
	Kern whole = some_outs(g, kern, false), reduced = some_outs(g, kern, true);
	const bool *inside = g->inside;
	g->stages = whole.nout && reduced.nout ? 2 : 1;
	if (whole.nout && g->stage == 0) {
		g->kern = &whole;
		emit_map(g, &whole);
	} else {
		bool *left = take_copy(g->arena, inside, sizeof *inside * (size_t)g->graph->nval);
		for (int o = 0; o < whole.nout; o++)
			left[whole.out[o]] = false;
		g->kern = &reduced;
		g->inside = left;
		emit_row(g, &reduced);
	}
	g->kern = kern;
	g->inside = inside;
}

void emit_dot(Gen *g, const Kern *kern)
{
	const Val *v = val(g->graph, kern->root);
	if (g->target->gpu || !count_of(&v->shape) || !count_of(&val(g->graph, v->in[0])->shape)) {
		emit_elements(g, kern);
		return;
	}
	Dot d;
	plan_dot(&d, g, kern);
	plan_parts(&d);
	bool packs = d.common_bytes, reductions = d.parts.reduce.count;
	g->common_bytes = d.common_bytes + d.parts.bytes;
	g->stages = 1 + packs + reductions;
	if (packs && g->stage == 0)
		pack_common(&d);
	else if (reductions && g->stage == g->stages - 1)
		reduce_parts(&d);
	else
		product(&d);
}
