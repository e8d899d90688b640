// dot.c: emits a matrix product: its division among workers, and the loops around a register tile.
// Workers are independent blocks (batch, rows, columns) of the result. Invariant: the order of each
// sum over k follows from the shapes and the tile, not from the division.
//
// A worker packs its columns of b into panels as wide as the tile, which stay in its L2. Then it
// goes down its rows, a strip of tile height at a time: a strip of a (in place, or packed) is
// multiplied by every panel, and the maps after the dot are computed for the strip while its sums
// are in L1 (strip.c). If k is too long for one block, sums stay in local memory until the next;
// workers of a gang multiply a block one after the other, so that it comes to L2 once. What several
// workers would pack is packed once, by the launch before (pack.c).
#include "dot.h"

// ---- the worker -----------------------------------------------------------------------

// Packs those of the strips that the gang has not packed yet in this block of k. Its first columns
// may begin after its first strips, which the next ones then pack.
static void pack_kept(Dot *d)
{
	Gen *g = d->g;
	Dot own = *d;
	Value first = d->first_strip, packed = read_variable(g, d->packed);
	own.strip = element(d, d->strip, times(g, first, d->p.strip_size));
	pack_strips(&own, first, least(g, d->end_strip, packed), number(g, 0), d->steps);
	set_variable(g, d->packed, least(g, packed, first));
}

static void one_block(Dot *d, Value again, Value done)
{
	Gen *g = d->g;
	if (d->p.squares.summed) {
		sum_squares(d, again, done);
		return;
	}
	if (d->s->a_shared)
		d->strip = shared_block(d, 0);
	if (d->s->b_shared) {
		Value panel = LLVMBuildUDiv(g->b, d->first_column, number(g, d->p.width), "");
		d->panel = element(d, shared_block(d, 1), times(g, panel, d->p.panel_size));
	} else {
		pack_panels(d, number(g, 0), d->steps);
	}
	if (d->p.ahead) {
		Dot own = *d;
		own.strip = ahead_memory(d, d->first_strip);
		Value next = sum_of(g, d->first_strip, number(g, 1));
		pack_strips(&own, d->first_strip, next, number(g, 0), d->steps);
	}
	if (d->s->kept)
		pack_kept(d);
	Loop groups = loop_begin(g, d->first_strip, d->end_strip, d->s->group);
	Value end = end_after(g, groups.i, d->s->group, d->end_strip);
	if (!d->s->a_shared && !d->p.ahead && !d->s->kept)
		pack_strips(d, groups.i, end, number(g, 0), d->steps);
	one_group(d, groups.i, end, again, done);
	loop_end(g, &groups);
}

void go_to_block(Dot *d, Value block)
{
	Gen *g = d->g;
	d->block = block;
	d->from = number(g, 0);
	d->steps = number(g, d->p.steps);
	if (d->p.blocks == 1)
		return;
	Value blocks = number(g, d->p.chunk_blocks);
	Value chunk = times(g, LLVMBuildUDiv(g->b, block, blocks, ""), d->p.chunk);
	Value from = times(g, LLVMBuildURem(g->b, block, blocks, ""), d->s->depth);
	Value left = LLVMBuildSub(g->b, number(g, d->p.chunk), from, "");
	d->from = sum_of(g, chunk, from);
	d->steps = least(g, number(g, d->s->depth), left);
}

// ---- the kernel -----------------------------------------------------------------------

// Sets what workers first..end of a block of columns compute; rest: the number of that block, among
// those of all batches or parts of k.
static void choose_part(Dot *d, Value first, Value end, Value rest)
{
	Gen *g = d->g;
	Value column = LLVMBuildURem(g->b, rest, number(g, d->p.across), ""), none = number(g, 0);
	rest = LLVMBuildUDiv(g->b, rest, number(g, d->p.across), "");
	d->part = d->s->parts > 1 ? rest : none; // of one batch
	d->first_batch = d->s->parts > 1 ? none : times(g, rest, d->s->batches);
	d->end_batch = end_after(g, d->first_batch, d->s->batches, number(g, d->p.batch));
	d->parts.block = first;
	d->first_strip = times(g, first, d->s->strips);
	d->end_strip = least(g, times(g, end, d->s->strips), number(g, d->p.strips));
	Value panel = times(g, column, d->s->panels);
	d->first_column = times(g, panel, d->p.width);
	d->count = least(g, number(g, d->s->panels),
	                 LLVMBuildSub(g->b, number(g, d->p.panels), panel, ""));
}

// Sets what the first worker of the call computes: rows vary fastest, then columns, then the rest.
static void choose_own_part(Dot *d)
{
	Gen *g = d->g;
	Value row = LLVMBuildURem(g->b, g->worker, number(g, d->p.down), "");
	Value rest = LLVMBuildUDiv(g->b, g->worker, number(g, d->p.down), "");
	choose_part(d, row, sum_of(g, row, number(g, 1)), rest);
}

// Calls body once for all workers of the gang that share columns, as if their strips belonged to
// one worker. The sums of the gang's workers are adjacent.
static void each_column_of_gang(Dot *d, void (*body)(Dot *, Value, Value), Value again, Value done)
{
	Gen *g = d->g;
	if (d->s->gang <= 1) {
		body(d, again, done);
		return;
	}
	Dot own = *d;
	Value down = number(g, d->p.down), zero = number(g, 0);
	Value last = LLVMBuildSub(g->b, g->end_worker, number(g, 1), "");
	last = LLVMBuildUDiv(g->b, last, down, "");
	Loop rests = loop_begin(g, LLVMBuildUDiv(g->b, g->worker, down, ""),
	                        sum_of(g, last, number(g, 1)), 1);
	Value before = times(g, rests.i, d->p.down);
	Value begin = LLVMBuildSub(g->b, g->worker, before, "");
	Value within = LLVMBuildICmp(g->b, LLVMIntSGT, begin, zero, "");
	Value first = LLVMBuildSelect(g->b, within, begin, zero, "");
	choose_part(&own, first, least(g, LLVMBuildSub(g->b, g->end_worker, before, ""), down),
	            rests.i);
	Value passed = LLVMBuildSub(g->b, first, begin, "");
	own.sums = element(d, d->sums, times(g, passed, d->p.sums / d->p.bytes));
	body(&own, again, done);
	loop_end(g, &rests);
}

// Starts the reductions of each worker that each_column_of_gang() gives.
static void start_partials(Dot *d, Value again, Value done)
{
	Gen *g = d->g;
	(void)again, (void)done;
	if (d->s->gang <= 1) {
		each_column(d, partials_start, &d->parts);
		return;
	}
	Value end = sum_of(g, d->end_strip, number(g, d->s->strips - 1));
	end = LLVMBuildUDiv(g->b, end, number(g, d->s->strips), "");
	Loop workers = loop_begin(g, d->parts.block, end, 1);
	d->parts.block = workers.i;
	each_column(d, partials_start, &d->parts);
	loop_end(g, &workers);
}

// Takes memory for the sums and for packed operands.
static void take_memory(Dot *d)
{
	Gen *g = d->g;
	if (d->s->parts > 1) {
		d->sums = element(d, work_memory(g, d->p.part_offset),
		                  sum_of(g, times(g, d->part, d->p.part_size), d->first_column));
	} else {
		if (d->s->a != W_winograd && d->s->b != W_along)
			choose_streams(d);
		d->sums = local_memory(g, MAX(1, d->s->gang) * d->p.sums);
	}
	if (d->p.strip)
		d->strip = local_memory(g, d->p.strip);
	if (d->p.panel)
		d->panel = local_memory(g, d->p.panel);
	if (d->p.products)
		d->products = local_memory(g, d->p.products);
}

// Multiplies the blocks of k of a batch that belong to the worker's part.
static void all_blocks(Dot *d)
{
	Gen *g = d->g;
	if (d->p.blocks == 1) {
		go_to_block(d, number(g, 0));
		one_block(d, LLVMConstInt(g->i1, 0, 0), LLVMConstInt(g->i1, 1, 0));
		return;
	}
	Value first = times(g, d->part, d->p.part_blocks), all = number(g, d->p.blocks);
	Value end = end_after(g, first, d->p.part_blocks, all);
	Loop blocks = loop_begin(g, first, end, 1);
	go_to_block(d, blocks.i);
	if (d->s->kept)
		d->packed = variable(g, number(g, d->p.strips));
	Value again = LLVMBuildICmp(g->b, LLVMIntNE, blocks.i, first, "");
	Value last = LLVMBuildSub(g->b, end, number(g, 1), "");
	Value done = LLVMBuildICmp(g->b, LLVMIntEQ, blocks.i, last, "");
	each_column_of_gang(d, one_block, again,
	                    d->s->parts > 1 && !d->p.squares.summed ? NULL : done);
	loop_end(g, &blocks);
}

static void product(Dot *d)
{
	Gen *g = d->g;
	choose_own_part(d);
	take_memory(d);
	if (d->p.squares.summed)
		choose_next_sums(d);
	else
		choose_next(d);
	d->sum_tile = tile_function(g, &d->tile);
	if (d->tall) {
		Tile low = d->tile;
		low.rows--;
		d->low_tile = tile_function(g, &low);
	}
	g->ops->tile_begin(g, &d->tile);
	if (d->s->reduce.count && !d->parts.along)
		each_column_of_gang(d, start_partials, NULL, NULL);
	Loop batches = loop_begin(g, d->first_batch, d->end_batch, 1);
	d->in_batch = uniform_index(g, batches.i, d->p.batch, 1);
	all_blocks(d);
	loop_end(g, &batches);
	g->ops->tile_end(g, &d->tile);
}

typedef struct PartsRow {
	const Dot *d;
	Value from, to; // addresses of the row in the first part, and of its sums
} PartsRow;

static void add_parts(Gen *g, int n, const Index *unit, void *context)
{
	const PartsRow *r = context;
	const Dot *d = r->d;
	Elem e = d->v->type;
	for (int u = 0; u < n; u++) {
		Lanes lanes = index_value(g, &unit[u]);
		Value sum = variable(g, load_lanes(g, e, r->from, &lanes));
		Loop parts = loop_begin(g, number(g, 1), number(g, d->s->parts), 1);
		Value at = LLVMBuildMul(g->b, parts.i, number(g, d->p.part_size), "");
		at = LLVMBuildGEP2(g->b, elem_type(g, e), r->from, &at, 1, "");
		Value part = load_lanes(g, e, at, &lanes);
		set_variable(g, sum, LLVMBuildFAdd(g->b, read_variable(g, sum), part, ""));
		loop_end(g, &parts);
		store_lanes(g, e, r->to, &lanes, read_variable(g, sum));
	}
}

// A worker of the launch after the products adds the parts of one strip, and finishes it.
static void finish_parts(Dot *d)
{
	Gen *g = d->g;
	Value from, to;
	d->first_column = number(g, 0);
	d->count = number(g, d->p.panels);
	d->in_batch = uniform_index(g, number(g, 0), 1, 1);
	d->sums = local_memory(g, d->p.sums);
	own_rows(d, g->worker, &from, &to);
	Value parts = work_memory(g, d->p.part_offset);
	Value first = d->p.squares.summed ? from : first_row(d, g->worker);
	Value strip = times(g, g->worker, d->p.sum_rows);
	Loop rows = loop_begin(g, number(g, 0), number(g, d->p.sum_rows), 1);
	PartsRow row = {.d = d};
	row.from = element(d, parts, times(g, sum_of(g, strip, rows.i), d->p.sum_row));
	row.to = element(d, d->sums, times(g, rows.i, d->p.sum_row));
	each_column(d, add_parts, &row);
	loop_end(g, &rows);
	finish_rows(d, first, from, to, d->sums);
}

// The tile reads rows and steps at the offsets of their digits.
static void read_patch(Tile *t, const Patch *patch)
{
	const Digits *row = &patch->row, *step = &patch->step;
	t->a_row = row->at[0].offset;
	t->a_line = row->n > 1 ? row->at[1].offset : 0;
	t->loops = 0;
	for (int i = 0; i < step->n; i++)
		if (step->at[i].taken > 1 || !t->loops) {
			t->loop[t->loops].count = step->at[i].taken;
			t->loop[t->loops++].a_step = step->at[i].offset;
		}
}

int64_t last_steps(const Dot *d)
{
	return d->p.chunk - (d->p.chunk_blocks - 1) * MIN(d->p.chunk, d->s->depth);
}

// True if a block of k, the last one of a chunk or another, is not a multiple of the unrolled
// steps.
static bool has_rest(const Dot *d)
{
	bool odd = d->s->a == W_patch && d->p.line % d->p.fold;
	int64_t depth = MIN(d->p.chunk, d->s->depth);
	return (depth - odd) % d->s->unroll || (last_steps(d) - odd) % d->s->unroll;
}

// Returns how many strips have the tile's full height: the strips after them have one row less, so
// that no row is computed twice. 0: all do, because that costs little, or because sums over a
// worker's rows must keep their order.
static int64_t tall_strips(const Dot *d)
{
	enum { FEWEST = 8, FEW = 32 }; // strips; rows of which one computed twice does not matter
	int64_t twice = d->p.strips * d->s->height - d->p.m;
	bool few = d->p.strips < FEWEST || twice * FEW < d->p.m;
	bool columns = d->s->reduce.count && !reduces_along(d->g->kern);
	return has_windows(d->s) || few || d->p.matrix || columns ? 0 : d->p.strips - twice;
}

// Returns the bytes from line to line of operand o, if squares of it can be read from memory: its
// elements are of the type that is packed, and steps are of two lines each.
static int64_t line_bytes(const Dot *d, int o, int64_t elements)
{
	Elem type = val(d->g->graph, d->v->in[o])->type;
	Elem packed = d->p.fold > 1 && d->p.slices == 1 ? E_bf16 : d->v->type;
	return type == packed && d->p.line % d->p.fold == 0 ? elements * elems[type].bytes : 0;
}

// Returns the tile of the schedule, for operands with these strides.
static Tile tile_of(const Dot *d, const Stride *a, const Stride *b)
{
	const Sched *s = d->s;
	const DotSizes *p = &d->p;
	Tile t = {.type = d->v->type,
	          .bytes = (int)p->bytes,
	          .lanes = p->lanes,
	          .rows = (int)s->height,
	          .vectors = (int)s->vectors,
	          .unroll = (int)s->unroll,
	          .rest = !p->matrix && has_rest(d),
	          .pairs = p->fold > 1,
	          .dense = p->dense,
	          .odd = (s->a == W_patch || (p->matrix && s->a == W_place)) && p->line % p->fold,
	          .matrix = p->matrix,
	          .tail = p->matrix ? (int)(last_steps(d) % p->matrix) : 0,
	          .a_row = p->a_row,
	          .run = s->run,
	          .c_line = s->run ? p->sum_line : 0,
	          .loops = 1,
	          .loop = {{.a_step = p->a_step}},
	          .b_step = s->b == W_place ? b->down
	                    : p->matrix     ? p->lanes
	                                    : p->width,
	          .b_vector = p->matrix * p->lanes,
	          .slices = p->slices,
	          .a_slice = p->a_slice,
	          .b_slice = p->b_slice,
	          .c_row = p->squares.summed ? p->width : p->sum_row,
	          .a_ahead = s->a == W_copy && !p->matrix ? (int)s->b_ahead : 0,
	          .b_ahead = (int)s->b_ahead,
	          .soon = s->a_shared && s->a == W_copy ? 0 : (int)s->a_ahead,
	          .soon_row = a->down};
	if (s->b == W_along) {
		t.b_column = b->along;
		t.unroll = (int)(s->unroll / p->lanes);
	}
	if (s->a == W_place) {
		t.a_row = a->down;
		t.loop[0].a_step = a->along * p->fold;
	} else if (s->a == W_patch) {
		read_patch(&t, &p->patch);
		if (t.a_row == 1 && !p->matrix) // rows are adjacent
			t.a_ahead = (int)s->b_ahead;
	} else if (s->a_shared) {
		t.soon_row = p->a_row;
	}
	return t;
}

// Sets how packing reads the operands.
static void set_lines(Dot *d, const Stride *a, const Stride *b)
{
	d->a_rows = a->fixed && a->down == 1;
	d->b_rows = is_contiguous(d, 1) || (!d->p.matrix && b->fixed && b->along == 1);
	d->b_columns = d->s->b == W_transpose && b->fixed && b->down == 1;
	d->b_line = steps_of_line(d);
	d->line[0] = d->s->a == W_copy && d->a_rows ? line_bytes(d, 0, a->along) : 0;
	d->line[1] = d->b_columns ? line_bytes(d, 1, b->along) : 0;
	d->far[0] = a->fixed ? a->along * a->bytes : 0;
	d->far[1] = b->fixed ? (d->b_columns ? b->along : b->down) * b->bytes : 0;
}

// A worker of the launch after the products joins the parts of some rows.
static void join_rows(Dot *d)
{
	Gen *g = d->g;
	Value from = times(g, g->worker, ROWS_JOINED);
	Value to = end_after(g, from, ROWS_JOINED, number(g, d->p.m));
	g->ops->lane_loop(g, from, to, d->p.m, 1, partials_finish, &d->parts);
}

void emit_dot(Gen *g)
{
	const Kern *kern = g->kern;
	const Sched *s = kern->sched;
	Dot d = {.g = g, .s = s, .v = val(g->graph, kern->root)};
	d.p = dot_sizes(g->arena, g->graph, &g->computed, kern, g->target->machine);
	d.in_batch = uniform_index(g, number(g, 0), d.p.batch, 1);
	Stride a = operand_stride(g->vars, g->graph, &g->computed, d.v, &d.p, 0, &d.in_batch);
	Stride b = operand_stride(g->vars, g->graph, &g->computed, d.v, &d.p, 1, &d.in_batch);
	if (s->b == W_place && d.p.fold > 1)
		lies_in_pairs(g->vars, g->graph, &g->computed, d.v, &d.p, &d.in_batch, &b);
	d.tile = tile_of(&d, &a, &b);
	d.tall = tall_strips(&d);
	set_lines(&d, &a, &b);
	bool along = reduces_along(kern);
	d.parts = (Partials){.reduce = &s->reduce,
	                     .keep = &s->keep,
	                     .blocks = along ? d.p.panels : d.p.down,
	                     .line = partial_line(along ? d.p.m : d.p.n),
	                     .offset = d.p.partials,
	                     .along = along};
	if (s->reduce.count)
		d.parts.shape = val(g->graph, s->reduce.at[0].val)->shape;
	if (g->stage == BEFORE) {
		pack_shared(&d);
	} else if (g->stage == MAIN) {
		product(&d);
	} else if (s->parts > 1) {
		finish_parts(&d);
	} else if (along) {
		join_rows(&d);
	} else { // a worker has a panel
		d.first_column = times(g, g->worker, d.p.width);
		d.count = number(g, 1);
		each_column(&d, partials_finish, &d.parts);
	}
}
