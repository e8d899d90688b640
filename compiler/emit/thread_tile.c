// thread_tile.c: emits a matrix product by blocks of threads that share memory.
// A worker has a tile of the result, or a part of its sum over k. Its threads bring a few steps of
// k of both operands to shared memory, element by element as their expressions say or 16 bytes at
// once, while they multiply those before; each thread has a part of the tile in registers. At last
// the sums go through shared memory to threads that compute the maps after the product, side by
// side along its rows. Invariant: each sum is in the order of k, part by part.
#include "thread_tile.h"
#include <string.h>

enum {
	PAD = 4,   // elements between rows in shared memory, so that fewer share a bank
	LONG = 16, // steps of k from which a loop stays one: its loads would take all registers
};

static Value element(ThreadTile *d, Value memory, Value i) // a sum
{
	return place_in(d->g, d->elem, memory, i);
}

static Loop when_less(Gen *g, Value a, Value b)
{
	return when_begin(g, LLVMBuildICmp(g->b, LLVMIntSLT, a, b, ""));
}

// ---- sums of a thread -----------------------------------------------------------------

void clear_sums(ThreadTile *d, int n)
{
	int each = MAX(1, d->kind->results);
	LLVMTypeRef type = each > 1 ? LLVMVectorType(d->elem, (unsigned)each) : d->elem;
	for (int i = 0; i < n / each; i++)
		if (d->sum[i])
			set_variable(d->g, d->sum[i], LLVMConstNull(type));
		else
			d->sum[i] = variable(d->g, LLVMConstNull(type));
}

Value read_sum(ThreadTile *d, int i)
{
	Gen *g = d->g;
	int each = d->kind->results;
	if (!each)
		return read_variable(g, d->sum[i]);
	Value all = read_variable(g, d->sum[i / each]);
	return LLVMBuildExtractElement(g->b, all, lane_number(g, i % each), "");
}

void set_sum(ThreadTile *d, int i, Value x)
{
	Gen *g = d->g;
	int each = d->kind->results;
	if (each) {
		Value all = read_variable(g, d->sum[i / each]);
		x = LLVMBuildInsertElement(g->b, all, x, lane_number(g, i % each), "");
	}
	set_variable(g, d->sum[each ? i / each : i], x);
}

// ---- fused products -------------------------------------------------------------------

static int together(const ThreadTile *d, int o) // rows or columns of a thread, side by side
{
	return (int)MIN(WIDE / d->bytes, d->size[o] / SIDE);
}

static int side_of(const ThreadTile *d, int o) // rows or columns of a thread
{
	return (int)d->size[o] / SIDE;
}

// Returns where row or column i of a thread is, less that of its first.
static int apart(const ThreadTile *d, int o, int i)
{
	return i / together(d, o) * SIDE * together(d, o) + i % together(d, o);
}

static Value first_of(ThreadTile *d, int o)
{
	Gen *g = d->g;
	Value along = o ? LLVMBuildURem(g->b, d->thread, number(g, SIDE), "")
	                : LLVMBuildUDiv(g->b, d->thread, number(g, SIDE), "");
	return times(g, along, together(d, o));
}

static Value fused_place(ThreadTile *d, int o, Value k, Value other)
{
	return times(d->g, sum_of(d->g, times(d->g, k, d->size[o] + PAD), other), d->packed_bytes);
}

static bool fused_in_line(const Share *s)
{
	return !s->along;
}

static int64_t fused_line(const ThreadTile *d, int o)
{
	return d->share[o].along ? 1 : d->size[o] + PAD;
}

static int64_t fused_size(ThreadTile *d, int o)
{
	return d->s->depth * (d->size[o] + PAD);
}

static void fused_start(ThreadTile *d)
{
	Gen *g = d->g;
	for (int o = 0; o < 2; o++) {
		Value at = sum_of(g, first_of(d, o), number(g, d->share[o].start));
		d->base[o][0] = element(d, d->shared, at);
	}
}

static void load_operand(ThreadTile *d, int o, Value from, int k, Value *to)
{
	Gen *g = d->g;
	for (int i = 0; i < side_of(d, o); i += together(d, o)) {
		Value at = number(g, k * (d->size[o] + PAD) + apart(d, o, i));
		load_side(g, d->elem, d->bytes, element(d, from, at), together(d, o), to + i);
	}
}

static void fused_multiply(ThreadTile *d, Value stage)
{
	Gen *g = d->g;
	int columns = side_of(d, 1), unroll = (int)d->s->unroll;
	bool loops = unroll < d->s->depth;
	Loop steps;
	if (loops)
		steps = loop_begin(g, number(g, 0), number(g, d->s->depth), unroll);
	Value from[2], x[2][SUMS];
	for (int o = 0; o < 2; o++) {
		Value first = loops ? times(g, steps.i, d->size[o] + PAD) : number(g, 0);
		from[o] = element(d, bytes_after(g, d->base[o][0], stage), first);
	}
	for (int k = 0; k < unroll; k++) {
		for (int o = 0; o < 2; o++)
			load_operand(d, o, from[o], k, x[o]);
		for (int i = 0; i < side_of(d, 0) * columns; i++) {
			Value sum = read_variable(g, d->sum[i]);
			sum = mul_add(g, x[0][i / columns], x[1][i % columns], sum);
			set_variable(g, d->sum[i], sum);
		}
	}
	if (loops && d->s->depth > LONG)
		loop_end_rolled(g, &steps);
	else if (loops)
		loop_end(g, &steps);
}

static int fused_line_of(const ThreadTile *d, int o, int i)
{
	return o ? i % side_of(d, 1) : i / side_of(d, 1);
}

static Value fused_line_place(ThreadTile *d, int o, int line)
{
	return sum_of(d->g, first_of(d, o), number(d->g, apart(d, o, line)));
}

static Value fused_way(ThreadTile *d)
{
	return LLVMBuildURem(d->g->b, d->thread, number(d->g, SIDE), "");
}

static int fused_groups(ThreadTile *d)
{
	return side_of(d, 0) / together(d, 0);
}

static void fused_store(ThreadTile *d, Value group)
{
	Gen *g = d->g;
	int columns = side_of(d, 1), down = together(d, 0), across = together(d, 1);
	for (int i = 0; i < down; i++)
		for (int j = 0; j < columns; j += across) {
			Value x[WIDE];
			for (int e = 0; e < across; e++)
				for (int k = 0; k < fused_groups(d); k++) {
					int at = (k * down + i) * columns + j + e;
					Value sum = read_variable(g, d->sum[at]);
					Value is =
					    LLVMBuildICmp(g->b, LLVMIntEQ, group, number(g, k), "");
					x[e] = k ? LLVMBuildSelect(g->b, is, sum, x[e], "") : sum;
				}
			Value row = sum_of(g, first_of(d, 0), number(g, i));
			Value column = sum_of(g, first_of(d, 1), number(g, apart(d, 1, j)));
			Value at = sum_of(g, times(g, row, d->line), column);
			store_side(g, d->elem, d->bytes, element(d, d->shared, at), across, x);
		}
}

const TileKind fused_tile = {.place = fused_place,
                             .in_line = fused_in_line,
                             .line = fused_line,
                             .period = 1,
                             .share_size = fused_size,
                             .start = fused_start,
                             .multiply = fused_multiply,
                             .line_of = fused_line_of,
                             .line_place = fused_line_place,
                             .ways = SIDE,
                             .way = fused_way,
                             .groups = fused_groups,
                             .store_sums = fused_store};

// ---- the sum --------------------------------------------------------------------------

// Returns the stage after another: of two, the other.
static Value stage_after(ThreadTile *d, Value stage, int64_t last, int64_t bytes)
{
	Gen *g = d->g;
	Value each = LLVMConstInt(g->i32, (uint64_t)bytes, 0), none = LLVMConstInt(g->i32, 0, 0);
	if (last == 1)
		return LLVMBuildXor(g->b, stage, each, "");
	uint64_t mask = (uint64_t)((last + 1) * bytes) - 1;
	if (!(mask & (mask + 1)))
		return LLVMBuildAnd(g->b, LLVMBuildAdd(g->b, stage, each, ""),
		                    LLVMConstInt(g->i32, mask, 0), "");
	Value end = LLVMConstInt(g->i32, (uint64_t)(last * bytes), 0);
	Value wraps = LLVMBuildICmp(g->b, LLVMIntEQ, stage, end, "");
	return LLVMBuildSelect(g->b, wraps, none, LLVMBuildAdd(g->b, stage, each, ""), "");
}

static bool has_copies(const ThreadTile *d)
{
	return is_copied(d, &d->share[0]) || is_copied(d, &d->share[1]);
}

// True if the loop that multiplies is another than that before it, so that it has nothing else to
// decide: of copies, which are short; or if an instruction has sums in many registers, which a
// decision would copy.
static bool is_twice(const ThreadTile *d)
{
	bool copies = is_copied(d, &d->share[0]) && is_copied(d, &d->share[1]);
	return copies || d->kind->results || d->kind->finish;
}

// True if copies go on in a loop that has nothing to decide about them, and the last steps have
// another. Products that go on while threads do have one loop.
static bool is_thrice(const ThreadTile *d)
{
	bool copies = is_copied(d, &d->share[0]) && is_copied(d, &d->share[1]);
	return copies && !d->kind->finish;
}

// Returns how many steps are loaded before the first product.
static int64_t steps_ahead(const ThreadTile *d)
{
	return d->s->stages - 1 - d->s->alone;
}

// Waits until the next step's copies are in shared memory, and shows it to the instructions that
// multiply.
static void await_step(ThreadTile *d)
{
	if (has_copies(d))
		d->kind->wait(d, (int)steps_ahead(d) - 1);
	if (d->kind->publish)
		d->kind->publish(d);
}

typedef struct Turns {         // a loop of them
	Value from, to, stage; // steps to load, and where
	Value end;             // loads are before it; NULL: there are none
	bool loads;            // all are before `end`
	bool multiplies;
	Value first; // products from this turn on; NULL: in all
} Turns;

static Loop when_loads(ThreadTile *d, const Turns *t, Value step)
{
	Gen *g = d->g;
	return t->loads ? when_begin(g, LLVMConstInt(g->i1, 1, 0)) : when_less(g, step, t->end);
}

// Loads the steps from `step` on, and meanwhile multiplies those that were loaded steps_ahead()
// turns before. Products that go on while threads do begin first. What is loaded replaces the step
// whose products are done: one before those that still go on.
static void turn(ThreadTile *d, const Turns *t, Value step)
{
	Gen *g = d->g;
	int64_t last = d->s->stages - 1, bytes = d->stage * d->packed_bytes;
	Value to = read_variable(g, t->stage), next = stage_after(d, to, last, bytes), here = next;
	if (d->s->alone)
		here = stage_after(d, next, last, bytes);
	bool goes_on = d->kind->finish != NULL;
	if (t->multiplies && goes_on)
		d->kind->multiply(d, here);
	if (t->end) {
		Loop loads = when_loads(d, t, step);
		for (int o = 0; o < 2; o++)
			load_share(d, o, step, to);
		when_end(g, &loads);
	}
	if (has_copies(d))
		d->kind->commit(d);
	if (t->multiplies && !goes_on) {
		Value some = LLVMConstInt(g->i1, 1, 0);
		if (t->first)
			some = LLVMBuildICmp(g->b, LLVMIntSGE, step, t->first, "");
		Loop products = when_begin(g, some);
		d->kind->multiply(d, here);
		when_end(g, &products);
	}
	if (t->end) {
		Loop puts = when_loads(d, t, step);
		for (int o = 0; o < 2; o++)
			put_share(d, o, to);
		when_end(g, &puts);
		for (int o = 0; o < 2; o++)
			advance_share(d, o);
	}
	set_variable(g, t->stage, next);
	// The first step, or all without copies, may be waited for before the loop that multiplies.
	int64_t before = is_twice(d) ? has_copies(d) ? 1 : steps_ahead(d) : 0;
	if (t->multiplies && d->p.part > before * d->s->depth)
		await_step(d);
	if (t->multiplies && goes_on)
		d->kind->finish(d, (int)d->s->alone);
	if (t->multiplies)
		g->ops->all_threads(g);
}

// Loops of copies stay loops: unrolled, addresses of several stages would take registers.
static void end_steps(ThreadTile *d, Loop *loop)
{
	if (has_copies(d))
		loop_end_rolled(d->g, loop);
	else
		loop_end(d->g, loop);
}

static void turns_between(ThreadTile *d, const Turns *t, Value from, Value to)
{
	Gen *g = d->g;
	Loop steps = loop_begin(g, from, to, d->s->depth);
	turn(d, t, steps.i);
	end_steps(d, &steps);
}

// Takes turns. What loads have in common in a section is found before its turns.
static void take_turns(ThreadTile *d, const Turns *t)
{
	Gen *g = d->g;
	if (!d->section || !t->end) {
		turns_between(d, t, t->from, t->to);
		return;
	}
	Value each = step_count(d, d->section);
	Value last = LLVMBuildAdd(g->b, t->to, step_count(d, d->section - 1), "");
	Loop sections = loop_begin(g, LLVMBuildUDiv(g->b, t->from, each, ""),
	                           LLVMBuildUDiv(g->b, last, each, ""), 1);
	Value begin = LLVMBuildMul(g->b, sections.i, each, "");
	Value end = LLVMBuildAdd(g->b, begin, each, "");
	Value ends = LLVMBuildICmp(g->b, LLVMIntSLE, end, t->to, "");
	Value later = LLVMBuildICmp(g->b, LLVMIntSLT, begin, t->from, "");
	Value section = LLVMBuildIntCast2(g->b, sections.i, g->i64, 1, "");
	enter_section(d, section);
	turns_between(d, t, LLVMBuildSelect(g->b, later, t->from, begin, ""),
	              LLVMBuildSelect(g->b, ends, end, t->to, ""));
	for (int o = 0; o < 2; o++)
		leave_section(d, o, section, ends);
	loop_end_rolled(g, &sections);
}

// Sums all steps of the part.
static void sum_steps(ThreadTile *d)
{
	Gen *g = d->g;
	int64_t depth = d->s->depth, ahead = steps_ahead(d) * depth;
	bool twice = is_twice(d), thrice = is_thrice(d);
	Value end = end_after(g, d->start, d->p.part, number(g, d->p.dot.k));
	Value from = step_number(d, d->start);
	end = step_number(d, end);
	Value first = sum_of(g, from, step_count(d, ahead)),
	      last = sum_of(g, end, step_count(d, ahead));
	Turns t = {.from = from, .to = first, .end = end};
	t.stage = variable(g, LLVMConstInt(g->i32, 0, 0));
	if (twice) {
		take_turns(d, &t);
		await_step(d);
		g->ops->all_threads(g);
		t.from = first;
	}
	t.to = thrice ? end : last;
	t.loads = thrice;
	t.multiplies = true;
	t.first = twice ? NULL : first;
	take_turns(d, &t);
	if (thrice) { // the steps that are loaded by then
		Value left = least(g, LLVMBuildSub(g->b, end, from, ""), step_count(d, ahead));
		t = (Turns){
		    .from = end, .to = sum_of(g, end, left), .stage = t.stage, .multiplies = true};
		take_turns(d, &t);
	}
	if (d->s->alone) {
		d->kind->finish(d, 0);
		g->ops->all_threads(g);
	}
	if (d->kind->take_sums)
		d->kind->take_sums(d);
}

// ---- what follows the product ---------------------------------------------------------

// Returns the memory of operands and then sums, whose sizes are known.
static Value tile_memory(ThreadTile *d)
{
	Gen *g = d->g;
	int64_t sums = d->size[0] / d->kind->groups(d) * d->line * d->bytes;
	int64_t bytes = MAX(sums, d->s->stages * d->stage * d->packed_bytes);
	if (d->s->shared && bytes > d->s->shared)
		bug("a tile takes more than %lld bytes", (long long)d->s->shared);
	if (d->s->shared)
		return g->ops->launch_memory(g);
	return g->ops->shared(g, format(g->arena, "amos_tile_%lld", (long long)bytes),
	                      ceil_div(bytes, 8), number(g, 0));
}

static void bind_sums(ThreadTile *d, Bound *bound, Value sums, int64_t line)
{
	const Shape *shape = &d->v->shape;
	int last = shape->rank - 1;
	*bound = (Bound){.r = d->g->kern->root, .memory = sums};
	bound->stride[last] = 1;
	for (int64_t a = last - 1, stride = line; a >= 0; stride *= shape->dim[a--])
		bound->stride[a] = stride;
	bind_memory(d->g, bound);
}

// Sets the index of an element of the kernel's space.
static void result_index(ThreadTile *d, const Index *row, const Index *column, Index *idx)
{
	const Shape *space = &d->g->kern->space;
	Shape rows = shape_of(space->rank - 1, space->dim);
	unravel(d->g->vars, row, &rows, idx);
	idx[space->rank - 1] = *column;
}

static Value part_of_sums(ThreadTile *d, Value part)
{
	return element(d, work_memory(d->g, 0), times(d->g, part, d->p.part_size));
}

typedef struct FinishedRows { // of a thread's column
	ThreadTile *tile;
	const Index *column;
	Value before, sums; // rows before those of the tile; where the sums of row 0 would be
} FinishedRows;

static void finish_row(Gen *g, int n, const Index *own, void *context)
{
	const FinishedRows *f = context;
	ThreadTile *d = f->tile;
	const DotSizes *p = &d->p.dot;
	Value i = sum_of(g, f->before, index_i64(g, own)), x;
	Index row = uniform_index(g, i, p->batch * p->m, 1), idx[RANK];
	(void)n;
	if (d->s->parts > 1) {
		Value place = sum_of(g, times(g, i, d->line), d->column);
		load_side(g, d->elem, d->bytes, element(d, f->sums, place), 1, &x);
		place = sum_of(g, times(g, i, p->n), d->column);
		Value to = part_of_sums(d, index_i64(g, &d->number));
		store_side(g, d->elem, d->bytes, element(d, to, place), 1, &x);
		return;
	}
	result_index(d, &row, f->column, idx);
	partials_step(g, &d->parts, f->column, 1, idx);
	store_outs(g, idx);
}

// Returns how many columns threads finish at once: a power of two, so that all have as many rows.
static int64_t finished_columns(const ThreadTile *d)
{
	return d->size[1] & -d->size[1];
}

// One thread has every `ways`-th row of a column, in shared memory from row `from` of the tile on.
static void finish_rows(ThreadTile *d, Value from, int64_t rows)
{
	Gen *g = d->g;
	const DotSizes *p = &d->p.dot;
	Index column = uniform_index(g, d->column, p->n, 1);
	Value before = sum_of(g, times(g, index_i64(g, &d->batch), p->m), d->first[0]);
	Value skip = times(g, sum_of(g, before, from), d->line);
	Value sums = element(d, d->shared, LLVMBuildNeg(g->b, sum_of(g, skip, d->first[1]), ""));
	Bound bound;
	bind_sums(d, &bound, sums, d->line);
	FinishedRows f = {d, &column, before, sums};
	Value end = LLVMBuildSub(g->b, number(g, p->m), d->first[0], "");
	Range steps = {.from = from,
	               .to = end_after(g, from, rows, end),
	               .own = d->parts.way,
	               .count = d->size[0],
	               .step = d->parts.ways,
	               .together = MIN(d->s->together, rows / d->parts.ways),
	               .multiple = p->m % d->size[0] ? 0 : rows};
	range_loop(g, &steps, finish_row, &f);
	unbind_memory(g, &bound);
}

// True if partial results are as wide as sums.
static bool are_in_place(const ThreadTile *d)
{
	return elems[sum_type(d->g, d->parts.reduce->at[0].val)].bytes == d->bytes;
}

// Threads join their partial results where each of them alone has read a sum, if they are in place,
// from column `from` of the tile on.
static void store_partials(ThreadTile *d, Value from)
{
	Gen *g = d->g;
	Partials parts = d->parts;
	parts.shared = element(d, tile_memory(d), from);
	if (!are_in_place(d))
		g->ops->all_threads(g);
	partials_store(g, &parts, d->column, d->p.dot.n);
}

// Of a single row, what is loaded for a column is loaded before threads take their rows: only those
// that have it may, since what they store may replace it.
static void finish_columns(ThreadTile *d, Value group, int64_t rows)
{
	Gen *g = d->g;
	bool single = d->p.dot.batch * d->p.dot.m == 1;
	Value some = LLVMBuildICmp(g->b, LLVMIntSLT, d->column, number(g, d->p.dot.n), "");
	Value first = LLVMBuildICmp(g->b, LLVMIntEQ, d->parts.way, number(g, 0), "");
	if (single)
		some = both(g, some, first);
	Loop exists = when_begin(g, some);
	finish_rows(d, times(g, group, rows), rows);
	when_end(g, &exists);
}

static void finish_group(ThreadTile *d, Value group, int64_t rows)
{
	Gen *g = d->g;
	d->kind->store_sums(d, group);
	if (d->size[0] * d->size[1] > g->target->machine->threads) // else a thread reads its own
		g->ops->all_threads(g);
	int64_t wide = finished_columns(d);
	if (wide == d->size[1]) {
		finish_columns(d, group, rows);
		return;
	}
	Value first = d->column;
	Loop parts = loop_begin(g, number(g, 0), number(g, d->size[1]), wide);
	d->column = sum_of(g, first, parts.i);
	bool reduces = d->s->reduce.count > 0;
	if (reduces && (d->kind->groups(d) > 1 || !are_in_place(d)))
		bug("columns of a tile are reduced before it has all of its rows, or elsewhere");
	if (reduces)
		partials_clear(g, &d->parts);
	finish_columns(d, group, rows);
	if (reduces)
		store_partials(d, parts.i);
	loop_end_rolled(g, &parts);
	d->column = first;
}

static void finish_tile(ThreadTile *d)
{
	Gen *g = d->g;
	int groups_of_rows = d->kind->groups(d);
	int64_t rows = d->size[0] / groups_of_rows;
	if (groups_of_rows == 1) {
		finish_group(d, number(g, 0), rows);
		return;
	}
	Loop groups = loop_begin(g, number(g, 0), number(g, groups_of_rows), 1);
	finish_group(d, groups.i, rows);
	g->ops->all_threads(g);
	loop_end(g, &groups);
}

// ---- launches -------------------------------------------------------------------------

// Returns how many of `tiles` neighbors vary fastest: all if they are few, else a part of them.
static int64_t tiles_together(int64_t tiles)
{
	enum { SOME = 8, LEAST = 4 };
	int64_t n = SOME;
	while (tiles % n)
		n--;
	return n < LEAST ? tiles : n;
}

// The worker's part: some tiles along the shorter side of the result vary fastest, then all along
// the longer side, so that workers at the same time read few lines of both operands; then the other
// tiles, parts and the batch.
static void choose_part(ThreadTile *d)
{
	Gen *g = d->g;
	int64_t tiles[] = {d->p.bands, d->p.across};
	int side = tiles[1] < tiles[0]; // the shorter
	int64_t some = tiles_together(tiles[side]);
	int64_t size[] = {some, tiles[!side], tiles[side] / some, MAX(1, d->s->parts)};
	Index near, far, tile[2], *to[] = {&near, &tile[!side], &far, &d->number};
	Index rest = uniform_index(g, g->worker, d->s->workers, 1);
	for (int i = 0; i < COUNT(to); i++) {
		Index own = rest;
		split_index(g->vars, &own, size[i], &rest, to[i]);
	}
	tile[side] = add_index(g->vars, &near, &far, some);
	memcpy(d->tile, tile, sizeof tile);
	d->batch = rest;
	d->parts.block = index_i64(g, &tile[0]);
	d->parts.group = index_i64(g, &tile[1]);
	d->parts.groups = d->p.across;
	d->first[1] = times(g, index_i64(g, &d->tile[1]), d->size[1]);
	partials_share(g, &d->parts, finished_columns(d));
	d->line = d->size[1] + d->kind->sum_pad / (d->s->swapped ? 2 : 1);
	d->parts.pitch = d->line;
	d->column = sum_of(g, d->first[1], d->parts.own);
}

static void one_tile(ThreadTile *d)
{
	Gen *g = d->g;
	d->first[0] = times(g, index_i64(g, &d->tile[0]), d->size[0]);
	for (int o = 0; o < 2; o++)
		share_start(d, o);
	d->start = times(g, index_i64(g, &d->number), d->p.part);
	int64_t beyond = d->p.dot.k + d->s->stages * d->s->depth;
	d->count = beyond < INT32_MAX ? g->i32 : g->i64;
	d->shared = tile_memory(d);
	for (int o = 0; o < 2; o++)
		share_addresses(d, o);
	clear_sums(d, (int)(d->size[0] * d->size[1] / g->target->machine->threads));
	d->kind->start(d);
	sum_steps(d);
	finish_tile(d);
}

// All tiles of the worker, one below the other.
static void product(ThreadTile *d)
{
	Gen *g = d->g;
	Loop once = when_begin(g, LLVMConstInt(g->i1, 1, 0));
	g->level->lanes = true; // each thread has elements of its own from here on
	choose_part(d);
	if (d->s->strips > 1) {
		Value from = times(g, d->parts.block, d->s->strips);
		Value to = end_after(g, from, d->s->strips, number(g, d->p.down));
		Loop tiles = loop_begin(g, from, to, 1);
		d->tile[0] = uniform_index(g, tiles.i, d->p.down, 1);
		one_tile(d);
		g->ops->all_threads(g); // before the next takes their memory
		loop_end(g, &tiles);
	} else {
		one_tile(d);
	}
	if (d->s->reduce.count) {
		d->parts.shared = tile_memory(d);
		if (finished_columns(d) == d->size[1])
			store_partials(d, number(g, 0));
		partials_join(g, &d->parts, d->column, d->p.dot.n, d->size[1]);
	}
	when_end(g, &once);
}

typedef struct Addition { // of the parts of an element
	ThreadTile *tile;
	Value i, sum; // its place in a part; a variable
} Addition;

static void add_part(Gen *g, int n, const Index *part, void *context)
{
	const Addition *a = context;
	ThreadTile *d = a->tile;
	Value x;
	(void)n;
	load_side(g, d->elem, d->bytes, element(d, part_of_sums(d, index_i64(g, part)), a->i), 1,
	          &x);
	set_variable(g, a->sum, LLVMBuildFAdd(g->b, read_variable(g, a->sum), x, ""));
}

// Adds up the parts of an element, in order, where the first is.
static void add_parts(Gen *g, int n, const Index *unit, void *context)
{
	(void)n;
	ThreadTile *d = context;
	const DotSizes *p = &d->p.dot;
	Index row, column, idx[RANK];
	split_index(g->vars, unit, p->n, &row, &column);
	Addition a = {d, index_i64(g, unit), variable(g, LLVMConstNull(d->elem))};
	Range parts = {.from = number(g, 0),
	               .to = number(g, d->s->parts),
	               .count = d->s->parts,
	               .step = 1,
	               .together = d->s->together};
	range_loop(g, &parts, add_part, &a);
	result_index(d, &row, &column, idx);
	remember(g, g->kern->root, idx, read_variable(g, a.sum));
	store_outs(g, idx);
}

// A worker has some elements of all.
static void after(ThreadTile *d)
{
	Gen *g = d->g;
	int64_t all = d->p.part_size, some = ceil_div(all, d->s->after);
	Value from = times(g, g->worker, some), to = end_after(g, from, some, number(g, all));
	g->ops->lane_loop(g, from, to, all, 1, add_parts, d);
}

void emit_thread_tile(Gen *g)
{
	const Kern *kern = g->kern;
	const Sched *s = kern->sched;
	ThreadTile *d = NEW(g->arena, ThreadTile);
	*d = (ThreadTile){.g = g,
	                  .s = s,
	                  .v = val(g->graph, kern->root),
	                  .p = block_sizes(g->graph, kern, g->target->machine),
	                  .size = {s->height, s->columns},
	                  .thread = g->ops->thread(g)};
	d->elem = elem_type(g, d->v->type);
	d->bytes = elems[d->v->type].bytes;
	d->packed = is_half(d->p.matrix) ? g->i16 : d->elem;
	d->packed_bytes = is_half(d->p.matrix) ? 2 : d->bytes;
	d->kind = d->p.groups   ? g->ops->group_kind
	          : d->p.matrix ? g->ops->matrix_kind
	                        : &fused_tile;
	d->parts = (Partials){.reduce = &s->reduce,
	                      .keep = &s->keep,
	                      .blocks = d->p.bands,
	                      .line = partial_line(d->p.dot.n),
	                      .offset = d->p.partials};
	if (s->reduce.count)
		d->parts.shape = val(g->graph, s->reduce.at[0].val)->shape;
	if (g->stage == MAIN)
		product(d);
	else
		after(d);
}
