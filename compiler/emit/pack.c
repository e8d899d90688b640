// pack.c: emits the packing of a product's operands for its register tile.
// Output: strips of a and panels of b in a worker's local memory, and the launch that packs for all
// workers. Operands are expressions, which are evaluated here whenever an element is packed.
#include "dot.h"
#include <string.h>

// ---- packing --------------------------------------------------------------------------

void keep(Dot *d, Value v, Value memory, Value i)
{
	Value store = LLVMBuildStore(d->g->b, splat(d->g, v), element(d, memory, i));
	LLVMSetAlignment(store, (unsigned)d->tile.bytes);
}

// Sets the index of operand o at a position along k, and a row of a or column of b.
static void element_index(Dot *d, int o, const Index *k, const Index *other, Index *idx)
{
	Gen *g = d->g;
	dot_index(g->vars, g->graph, d->v, &d->p, o, &d->in_batch, o ? k : other, o ? other : k,
	          idx);
}

static Value operand_at(Dot *d, int o, const Index *k, const Index *other)
{
	Gen *g = d->g;
	Index idx[RANK];
	element_index(d, o, k, other, idx);
	Value x = at(g, d->v->in[o], idx);
	return d->p.fold > 1 ? x : widen_float(g, x, val(g->graph, d->v->in[o])->type);
}

// Returns the position along k of element i of a step.
static Value term(Dot *d, Value step, int i)
{
	Gen *g = d->g;
	int64_t fold = d->p.fold, line = d->p.line;
	if (fold == 1)
		return step;
	Value k = sum_of(g, times(g, step, fold), number(g, i));
	if (line % fold == 0 || line == d->p.k)
		return k;
	// The last step of each line before is not complete.
	Value lines = LLVMBuildUDiv(g->b, step, number(g, ceil_div(line, fold)), "");
	return LLVMBuildSub(g->b, k, lines, "");
}

// Finds the element of memory that element idx of r is, perhaps after casts. Changes r to the value
// in memory.
static bool find_source(Gen *g, Ref *r, Index *idx, Index *place)
{
	while (!locate(g->vars, g->graph, &g->computed, r, idx, place)) {
		if (val(g->graph, *r)->op != O_cast)
			return false;
		*r = val(g->graph, *r)->in[0];
	}
	return true;
}

// Returns the address of operand o's element i of a step; through: perhaps of what it is cast from.
static Value address_of(Dot *d, int o, Value step, int i, Value other, bool through)
{
	Gen *g = d->g;
	Index idx[RANK], place;
	Index k = uniform_index(g, term(d, step, i), d->p.k, 1);
	Index own = uniform_index(g, other, o ? d->p.n : d->p.m, 1);
	Ref r = d->v->in[o];
	element_index(d, o, &k, &own, idx);
	if (through ? !find_source(g, &r, idx, &place)
	            : !locate(g->vars, g->graph, &g->computed, &r, idx, &place))
		never("an operand read in place");
	LLVMTypeRef type = memory_type(g, val(g->graph, r)->type);
	return place_in(g, type, location_address(g, r), index_i64(g, &place));
}

Value in_place(Dot *d, int o, Value step, Value other)
{
	return address_of(d, o, step, 0, other, false);
}

// Returns the address of what operand o's element i of a step is read from, perhaps to be cast.
static Value source_of(Dot *d, int o, Value step, int i, Value other)
{
	return address_of(d, o, step, i, other, true);
}

// Returns the bytes of an element of what operand o reads, whose elements along k, or along its
// other axis, are adjacent; 0: they are not.
static int64_t adjacent_bytes(Dot *d, int o, bool along_k)
{
	Gen *g = d->g;
	Index k = some_index(g->vars, d->p.k), other = some_index(g->vars, o ? d->p.n : d->p.m);
	Index idx[RANK], place;
	Ref r = d->v->in[o];
	element_index(d, o, &k, &other, idx);
	if (!find_source(g, &r, idx, &place))
		return 0;
	int64_t by_k = stride_along(g->vars, &place, &k);
	int64_t by_other = stride_along(g->vars, &place, &other);
	bool adjacent = (along_k ? by_k : by_other) == 1;
	bool regular = by_k != IRREGULAR && by_other != IRREGULAR;
	return adjacent && regular ? elems[val(g->graph, r)->type].bytes : 0;
}

bool is_contiguous(Dot *d, int o)
{
	return adjacent_bytes(d, o, false) > 0;
}

// Prefetches what a vector of steps reads of a later row of a or column of b: packing waits for
// memory most of the time.
static void prefetch_steps(Dot *d, int o, Value step, Value other)
{
	enum { LINE = 64 };
	int64_t bytes = adjacent_bytes(d, o, true);
	for (int64_t k = 0; bytes && k < d->g->width * d->p.fold; k += LINE / bytes) {
		Value later = sum_of(d->g, step, number(d->g, k / d->p.fold));
		d->g->ops->prefetch(d->g, source_of(d, o, later, 0, other), F_read);
	}
}

// Returns the first element of a step, all of which are complete, as a multiple of the step: what
// others of the step divide it by need not be divided again.
static Index first_term(Dot *d, Value step)
{
	Gen *g = d->g;
	Index none = constant_index(0), i = uniform_index(g, step, d->p.steps, 1);
	return add_index(g->vars, &none, &i, d->p.fold);
}

typedef Value Pairs(Gen *, Value, Value); // of two vectors of elements of k that are steps together

// Sets what is packed of the parts of a step: pairs of each slice, or what they are.
static void finish_parts(Dot *d, Pairs *pairs_of, const Value *parts, Value *slices)
{
	Value own[2][SLICES];
	if (d->p.slices == 1) {
		slices[0] = parts[0];
		return;
	}
	for (int i = 0; i < 2; i++)
		slice(d->g, parts[i], false, own[i]);
	for (int n = 0; n < d->p.slices; n++)
		slices[n] = pairs_of(d->g, own[0][n], own[1][n]);
}

// Sets the parts of a step of two elements: a pair of bf16, or both elements of f32, which are
// fewer vectors to transpose than their slices.
static void join(Dot *d, Value x, Value y, Value *parts)
{
	if (d->p.slices > 1)
		parts[0] = x, parts[1] = y;
	else
		parts[0] = pairs_by_turns(d->g, x, y);
}

// Evaluates the parts of operand o at a step of two elements, the first at `k`, with lanes along
// its other axis.
static void parts_of_pair(Dot *d, int o, const Index *k, const Index *lanes, Value *parts)
{
	Index next = shift_index(*k, 1);
	Value x = operand_at(d, o, k, lanes);
	join(d, x, operand_at(d, o, &next, lanes), parts);
}

// Evaluates the parts of operand o at a step, with lanes along its other axis.
static void parts_at_step(Dot *d, int o, Value step, const Index *lanes, Value *parts)
{
	Gen *g = d->g;
	if (d->p.fold > 1 && d->p.line % d->p.fold == 0) { // two elements that exist
		Index first = first_term(d, step);
		parts_of_pair(d, o, &first, lanes, parts);
		return;
	}
	Index k = uniform_index(g, term(d, step, 0), d->p.k, 1);
	Value x = parts[0] = operand_at(d, o, &k, lanes);
	if (d->p.fold == 1)
		return;
	k = uniform_index(g, least(g, term(d, step, 1), number(g, d->p.k - 1)), d->p.k, 1);
	Value y = operand_at(d, o, &k, lanes);
	Value steps = number(g, ceil_div(d->p.line, d->p.fold));
	Value of_line = LLVMBuildURem(g->b, sum_of(g, step, number(g, 1)), steps, "");
	Value some = LLVMBuildICmp(g->b, LLVMIntNE, of_line, number(g, 0), "");
	join(d, x, choose(g, some, y, LLVMConstNull(LLVMTypeOf(y))), parts);
}

static void at_step(Dot *d, int o, Value step, const Index *lanes, Value *slices)
{
	Value parts[2] = {0};
	parts_at_step(d, o, step, lanes, parts);
	finish_parts(d, pairs_by_turns, parts, slices);
}

// A panel may begin vectors beyond the last column: these read the last ones again.
Index column_lanes(Dot *d, Value base)
{
	Gen *g = d->g;
	if (d->p.n % g->width == 0 && d->p.n % d->p.width)
		base = least(g, base, number(g, d->p.n - g->width));
	return lanes_within(g, base, d->p.n, g->width);
}

Value b_at_step(Dot *d, Value step, const Index *lanes)
{
	Value slices[SLICES];
	at_step(d, 1, step, lanes, slices);
	return *slices;
}

// As parts_at_step, with lanes along steps, from `step` on; elements of f32, of which there are
// more than lanes, follow each other in both. whole: all of the steps exist.
static void parts_along(Dot *d, int o, Value step, const Index *other, bool whole, Value *parts)
{
	Gen *g = d->g;
	for (int i = 0; i < d->p.fold; i++) {
		Value from = sum_of(g, times(g, step, d->p.fold), number(g, i * g->width));
		Index k = whole && d->p.k % d->p.fold == 0
		              ? lane_index(g, from, d->p.k, g->width, NULL)
		              : lanes_within(g, from, d->p.k, g->width * d->p.fold);
		parts[i] = operand_at(d, o, &k, other);
		Value exist = index_value(g, &k).mask;
		if (d->p.k % d->p.fold && exist)
			parts[i] = choose(g, exist, parts[i], LLVMConstNull(LLVMTypeOf(parts[i])));
	}
	if (d->p.fold > 1 && d->p.slices == 1)
		parts[0] = pairs_in_order(g, parts[0], parts[1]);
}

static void along_steps(Dot *d, int o, Value step, const Index *other, bool whole, Value *slices)
{
	Value parts[2] = {0};
	parts_along(d, o, step, other, whole, parts);
	finish_parts(d, pairs_in_order, parts, slices);
}

// Stores a vector of each slice of operand o.
static void keep_slices(Dot *d, int o, const Value *slices, Value i)
{
	int64_t apart = o ? d->p.b_slice : d->p.a_slice;
	for (int n = 0; n < d->p.slices; n++)
		keep(d, slices[n], o ? d->panel : d->strip,
		     sum_of(d->g, i, number(d->g, n * apart)));
}

// Steps of k that are copied to a strip or panel before those of the next. Of each, these lines of
// memory are adjacent: the hardware prefetches them better than a line here and there.
enum { RUN = 8 };

// Returns where a step of a panel begins. For matrix registers, a panel is a sequence of what they
// load.
static Value panel_step(Dot *d, Value step)
{
	Gen *g = d->g;
	if (!d->p.matrix)
		return times(g, step, d->p.width);
	Value first = LLVMBuildAnd(g->b, step, number(g, -(int64_t)d->p.matrix), "");
	Value own = LLVMBuildSub(g->b, step, first, "");
	return sum_of(g, times(g, first, d->p.width), times(g, own, d->tile.b_step));
}

// A panel that steps are copied to.
typedef struct Copied {
	Value panel, column; // where it begins; its first column
	Index lanes[UNITS];  // its columns
} Copied;

// Copies step `own` of the block of k. pair: the position of the first of its two elements; NULL:
// it follows from the step.
static void copy_step(Dot *d, const Copied *c, Value own, const Index *pair)
{
	Gen *g = d->g;
	Value step = sum_of(g, d->from, own), later = sum_of(g, step, number(g, RUN));
	int64_t apart = d->p.matrix ? d->tile.b_vector : g->width;
	for (int64_t u = 0; u < d->p.width / g->width; u++) {
		Value to = sum_of(g, c->panel, number(g, u * apart));
		Value next = panel_step(d, sum_of(g, own, number(g, RUN)));
		if (d->s->b_shared)
			g->ops->prefetch(g, element(d, d->panel, sum_of(g, to, next)), F_write);
		Value slices[SLICES], parts[2] = {0};
		if (pair)
			parts_of_pair(d, 1, pair, &c->lanes[u], parts);
		else
			parts_at_step(d, 1, step, &c->lanes[u], parts);
		finish_parts(d, pairs_by_turns, parts, slices);
		keep_slices(d, 1, slices, sum_of(g, to, panel_step(d, own)));
		for (int i = 0; d->b_rows && i < d->p.fold; i++)
			g->ops->prefetch(g,
			                 source_of(d, 1, later, i,
			                           sum_of(g, c->column, number(g, u * g->width))),
			                 F_read);
	}
}

int64_t steps_of_line(const Dot *d)
{
	const Val *window = windows_under(d->g->graph, d->v->in[1]);
	if (!window || d->p.fold != 2 || d->p.line != d->p.k)
		return 0;
	WindowAxes w = window_axes(window->attr);
	int64_t out = w.at[w.n - 1].out;
	return out % d->p.fold || d->p.k % out ? 0 : out / d->p.fold;
}

// Copies steps [first, end) of each panel. line: they are on this line of windows, whose steps
// begin with `top`; NULL: they are not on one.
static void copy_run(Dot *d, Value first, Value end, const Index *line, Value top)
{
	Gen *g = d->g;
	Loop panels = loop_begin(g, number(g, 0), d->count, 1);
	Copied c = {.panel = times(g, panels.i, d->p.panel_size),
	            .column = sum_of(g, d->first_column, times(g, panels.i, d->p.width))};
	for (int64_t u = 0; u < d->p.width / g->width; u++)
		c.lanes[u] = column_lanes(d, sum_of(g, c.column, number(g, u * g->width)));
	Loop steps = loop_begin(g, first, end, 1);
	if (line) {
		Index own = uniform_index(g, steps.i, d->b_line, 1);
		Index k = add_index(g->vars, line, &own, d->p.fold);
		copy_step(d, &c, sum_of(g, top, steps.i), &k);
	} else {
		copy_step(d, &c, steps.i, NULL);
	}
	loop_end(g, &steps);
	loop_end(g, &panels);
}

// Copies steps [first, end) line by line: only a line's index is divided, and what it reads stays
// in L1 for all taps.
static void copy_lines(Dot *d, Value first, Value end)
{
	Gen *g = d->g;
	int64_t line = d->b_line;
	Value each = number(g, line), from = sum_of(g, d->from, first);
	Value to = sum_of(g, d->from, end);
	Value after = LLVMBuildUDiv(g->b, sum_of(g, to, number(g, line - 1)), each, "");
	Loop lines = loop_begin(g, LLVMBuildUDiv(g->b, from, each, ""), after, 1);
	Value top = times(g, lines.i, line);
	Value begin = greatest(g, LLVMBuildSub(g->b, from, top, ""), number(g, 0));
	Index none = constant_index(0), own = uniform_index(g, lines.i, d->p.steps / line, 1);
	Index k = add_index(g->vars, &none, &own, line * d->p.fold);
	copy_run(d, begin, least(g, each, LLVMBuildSub(g->b, to, top, "")), &k,
	         LLVMBuildSub(g->b, top, d->from, ""));
	loop_end(g, &lines);
}

// Packs steps [first, end) of the block of k, with lanes along columns.
static void copy_panels(Dot *d, Value first, Value end)
{
	Gen *g = d->g;
	int64_t run = d->b_rows ? RUN : d->s->depth;
	if (d->b_line) {
		copy_lines(d, first, end);
		return;
	}
	Loop runs = loop_begin(g, first, end, run);
	copy_run(d, runs.i, end_after(g, runs.i, run, end), NULL, NULL);
	loop_end(g, &runs);
}

// ---- squares --------------------------------------------------------------------------

static Lines compute_columns(Dot *d, Value step, Value column)
{
	Gen *g = d->g;
	Lines lines = computed_lines(d, S_columns);
	Loop columns = loop_begin(g, number(g, 0), lines.count, 1);
	Value own = sum_of(g, column, columns.i), parts[2] = {0};
	Index at = uniform_index(g, least(g, own, number(g, d->p.n - 1)), d->p.n, 1);
	parts_along(d, 1, step, &at, true, parts);
	keep_parts(d, parts, columns.i);
	prefetch_steps(d, 1, step, sum_of(g, own, number(g, g->width)));
	loop_end(g, &columns);
	return lines;
}

static Lines compute_rows(Dot *d, Value step, const Index *lanes)
{
	Gen *g = d->g;
	Lines lines = computed_lines(d, S_rows);
	Loop steps = loop_begin(g, number(g, 0), lines.count, 1);
	Value own = least(g, sum_of(g, step, steps.i), number(g, d->p.steps - 1)), parts[2] = {0};
	parts_at_step(d, 0, own, lanes, parts);
	keep_parts(d, parts, steps.i);
	loop_end(g, &steps);
	return lines;
}

// Transposes full vectors of k, and copies the rest of the block.
static void transpose_panels(Dot *d)
{
	Gen *g = d->g;
	int64_t width = g->width, vectors = d->p.width / width;
	Value whole = LLVMBuildAnd(g->b, d->steps, number(g, -width), "");
	Loop panels = loop_begin(g, number(g, 0), times(g, d->count, vectors), 1);
	Value column = sum_of(g, d->first_column, times(g, panels.i, width));
	Value panel = LLVMBuildUDiv(g->b, panels.i, number(g, vectors), "");
	Value part = LLVMBuildURem(g->b, panels.i, number(g, vectors), "");
	Value to = sum_of(g, times(g, panel, d->p.panel_size),
	                  times(g, part, d->p.matrix ? d->tile.b_vector : width));
	Value first = column, count = number(g, width);
	if (d->p.n % d->p.width) { // columns beyond the last are it again
		first = least(g, column, number(g, d->p.n - 1));
		count = LLVMBuildSub(g->b, number(g, d->p.n), first, "");
	}
	Loop steps = loop_begin(g, number(g, 0), whole, width);
	Value step = sum_of(g, d->from, steps.i);
	Lines lines = d->line[1] ? lines_in_place(d, 1, step, first, count)
	                         : compute_columns(d, step, column);
	turn_square(d, S_columns, &lines,
	            element(d, d->panel, sum_of(g, to, panel_step(d, steps.i))), d->tile.b_step);
	loop_end(g, &steps);
	loop_end(g, &panels);
	if (d->p.steps % width || d->s->depth % width)
		copy_panels(d, whole, d->steps);
}

// Packs steps [from, to) of strips of a for matrix registers, row after row: lanes along the rows
// of a strip are transposed in registers. `from` is a multiple of their length; steps from `to` on
// that are packed as well, copies of the last, are not used. The last square of a strip may begin
// among the rows of the one before.
static void turn_strips(Dot *d, Value first, Value end, Value from, Value to)
{
	Gen *g = d->g;
	int64_t width = g->width, rows = d->tile.rows, last = MAX(0, rows - width);
	Value mask = rows < width ? first_lanes(g, rows) : NULL;
	Loop blocks = loop_begin(g, from, to, width);
	Value step = sum_of(g, d->from, blocks.i);
	Value left = LLVMBuildSub(g->b, number(g, d->p.steps), step, "");
	Loop strips = loop_begin(g, first, end, 1);
	Value strip = times(g, LLVMBuildSub(g->b, strips.i, first, ""), d->p.strip_size);
	strip = sum_of(g, strip, times(g, blocks.i, d->p.a_step));
	Loop squares = loop_begin(g, number(g, 0), number(g, rows), width);
	Value own = least(g, squares.i, number(g, last));
	Value row = sum_of(g, first_row(d, strips.i), own);
	Index lanes = lane_index(g, row, d->p.m, 1, mask);
	Lines lines = d->line[0] && !mask ? lines_in_place(d, 0, step, row, left)
	                                  : compute_rows(d, step, &lanes);
	Value at = sum_of(g, strip, times(g, own, d->tile.a_row));
	turn_square(d, S_rows, &lines, element(d, d->strip, at), d->tile.a_row);
	loop_end(g, &squares);
	loop_end(g, &strips);
	loop_end(g, &blocks);
}

// ---- strips ---------------------------------------------------------------------------

// Packs steps [from, to) of strips of a, one after the other, with lanes along the rows of a strip.
static void copy_strips(Dot *d, Value first, Value end, Value from, Value to)
{
	Gen *g = d->g;
	int64_t width = g->width, rows = d->tile.rows, a_step = d->tile.loop[0].a_step;
	Loop runs = loop_begin(g, from, to, RUN);
	Value last = end_after(g, runs.i, RUN, to);
	Loop strips = loop_begin(g, first, end, 1);
	Value row = first_row(d, strips.i);
	Value own = times(g, LLVMBuildSub(g->b, strips.i, first, ""), d->p.strip_size);
	Loop steps = loop_begin(g, runs.i, last, 1);
	Value step = sum_of(g, d->from, steps.i), later = sum_of(g, step, number(g, RUN));
	Value place = sum_of(g, own, times(g, steps.i, a_step));
	for (int64_t r = 0; r < rows; r += width) {
		Value mask = rows - r < width ? first_lanes(g, rows - r) : NULL;
		Index lanes = lane_index(g, sum_of(g, row, number(g, r)), d->p.m, 1, mask);
		if (d->s->a_shared)
			g->ops->prefetch(
			    g, element(d, d->strip, sum_of(g, place, number(g, r + RUN * a_step))),
			    F_write);
		Value slices[SLICES];
		at_step(d, 0, step, &lanes, slices);
		keep_slices(d, 0, slices, sum_of(g, place, number(g, r)));
		if (d->a_rows)
			g->ops->prefetch(g, in_place(d, 0, later, sum_of(g, row, number(g, r))),
			                 F_read);
	}
	loop_end(g, &steps);
	loop_end(g, &strips);
	loop_end(g, &runs);
}

// Packs a vector of steps of the block, from `steps` on, of a row of the strip that begins with row
// `top`. The stride maps rows to different sets of L1. whole: all of the steps exist.
static void pack_row(Dot *d, Value top, Value own, Value steps, Value strip, bool whole)
{
	Gen *g = d->g;
	Index row = uniform_index(g, sum_of(g, top, own), d->p.m, 1);
	Value to = sum_of(g, strip, times(g, own, d->tile.a_row));
	Value step = sum_of(g, d->from, steps), slices[SLICES];
	along_steps(d, 0, step, &row, whole, slices);
	prefetch_steps(d, 0, step, sum_of(g, top, sum_of(g, own, number(g, RUN))));
	keep_slices(d, 0, slices, sum_of(g, to, times(g, steps, d->p.a_step)));
}

// Packs strips of a with lanes along k, row after row. Only the last vector of a row has a mask, if
// any: on CPUs without masked loads it takes a branch for each lane.
static void transpose_strips(Dot *d, Value first, Value end)
{
	Gen *g = d->g;
	Value zero = number(g, 0), whole = d->steps;
	bool rest = d->p.k % (g->width * d->p.fold);
	if (rest)
		whole = LLVMBuildAnd(g->b, whole, number(g, -g->width), "");
	Loop strips = loop_begin(g, first, end, 1);
	Value top = first_row(d, strips.i);
	Value own = times(g, LLVMBuildSub(g->b, strips.i, first, ""), d->p.strip_size);
	Loop rows = loop_begin(g, zero, number(g, d->tile.rows), 1);
	for (int part = 0; part <= rest; part++) {
		Loop steps = loop_begin(g, part ? whole : zero, part ? d->steps : whole, g->width);
		pack_row(d, top, rows.i, steps.i, own, rest && !part);
		loop_end(g, &steps);
	}
	loop_end(g, &rows);
	loop_end(g, &strips);
}

static int64_t vectors_of_row(const Dot *d)
{
	return ceil_div(d->s->depth, d->g->width);
}

int64_t vectors_of_strip(const Dot *d)
{
	return d->tile.rows * vectors_of_row(d);
}

void pack_vectors(Dot *d, Value strip, Value from, Value to)
{
	Gen *g = d->g;
	int64_t each = vectors_of_row(d);
	Value top = first_row(d, strip), zero = number(g, 0);
	Loop vectors = loop_begin(g, from, to, 1);
	Value row = LLVMBuildUDiv(g->b, vectors.i, number(g, each), "");
	Value steps = LLVMBuildURem(g->b, vectors.i, number(g, each), "");
	pack_row(d, top, row, times(g, steps, g->width), zero, false);
	loop_end_rolled(g, &vectors);
}

// Returns the position along k of the block's first step, as a multiple of what divides all of
// them: lanes that do not cross the end of an axis under the windows need no mask.
static Index block_start(Dot *d)
{
	Gen *g = d->g;
	int64_t fold = d->p.fold, chunk = d->p.chunk, depth = d->s->depth;
	if (d->p.blocks == 1)
		return constant_index(0);
	if (d->p.line % fold && d->p.line != d->p.k)
		return uniform_index(g, term(d, d->from, 0), d->p.k, 1);
	int64_t each = d->p.chunk_blocks == 1 ? chunk : common_divisor(chunk, depth);
	Value i = LLVMBuildUDiv(g->b, d->from, number(g, each), "");
	Index none = constant_index(0), block = uniform_index(g, i, ceil_div(d->p.steps, each), 1);
	return add_index(g->vars, &none, &block, each * fold);
}

static void pack_line(Gen *g, int n, const Index *unit, void *context)
{
	const PatchLine *r = context;
	Dot *d = r->d;
	Index idx[RANK], next[RANK];
	memcpy(idx, r->idx, sizeof idx);
	for (int u = 0; u < n; u++) {
		idx[r->last] = add_index(g->vars, &r->idx[r->last], &unit[u], 1);
		Value x = at_or_fill(g, r->from, idx, r->fill);
		Value place = sum_of(g, r->to, index_value(g, &unit[u]).base);
		if (d->p.fold == 1) {
			x = widen_float(g, x, val(g->graph, r->from)->type);
		} else if (!d->p.dense) {
			for (int a = 0; a < val(g->graph, r->from)->shape.rank; a++)
				next[a] = shift_index(idx[a], d->p.patch.fold.move[a]);
			x = pairs_by_turns(g, x, at_or_fill(g, r->from, next, r->fill));
		}
		Value parts[SLICES] = {splat(g, x)};
		if (d->p.slices > 1)
			slice(g, x, false, parts);
		unsigned align = (unsigned)(d->tile.bytes / (d->p.dense ? d->p.fold : 1));
		for (int i = 0; i < d->p.slices; i++) {
			Value to = sum_of(g, place, number(g, i * d->p.a_slice));
			to = a_element(d, d->strip, to);
			LLVMSetAlignment(LLVMBuildStore(g->b, parts[i], to), align);
		}
	}
}

// Packs the box of the value under the windows that the group of strips from `first` on reads, with
// lanes along its last axis.
static void pack_box(Dot *d, Value first)
{
	enum { UNROLL = 8 };
	Gen *g = d->g;
	const Patch *box = &d->p.patch;
	const Shape *shape = &val(g->graph, box->from)->shape;
	Index row = uniform_index(g, first_row(d, first), d->p.m, 1);
	Index k = block_start(d), idx[RANK] = {0};
	Ref from = d->v->in[0];
	double fill;
	dot_index(g->vars, g->graph, d->v, &d->p, 0, &d->in_batch, &row, &k, idx);
	if (!windows_of(g->vars, g->graph, &g->computed, &from, idx, &fill))
		never("windows");
	int last = shape->rank - 1;
	while (last > 0 && box->size[last] == 1)
		last--;
	Loop loops[RANK];
	Value to = number(g, 0);
	for (int a = 0; a < last; a++) {
		idx[a] = shift_index(idx[a], box->below[a] * box->apart[a]);
		if (box->size[a] == 1)
			continue;
		loops[a] = loop_begin(g, number(g, 0), number(g, box->size[a]), 1);
		Index i = uniform_index(g, loops[a].i, box->size[a], 1);
		idx[a] = add_index(g->vars, &idx[a], &i, box->apart[a]);
		to = sum_of(g, to, times(g, loops[a].i, box->stride[a]));
	}
	idx[last] = shift_index(idx[last], box->below[last]);
	PatchLine line = {d, from, last, idx, fill, to};
	int64_t size = box->size[last];
	g->ops->lane_loop(g, number(g, 0), number(g, size), size,
	                  (int)MIN(ceil_div(size, g->width), UNROLL), pack_line, &line);
	for (int a = last - 1; a >= 0; a--)
		if (box->size[a] > 1)
			loop_end(g, &loops[a]);
}

// ---- for one worker -------------------------------------------------------------------

void pack_panels(Dot *d, Value from, Value to)
{
	if (d->s->a == W_winograd)
		transform_panels(d, from, to);
	else if (d->s->b == W_copy)
		copy_panels(d, from, to);
	else if (d->s->b == W_transpose)
		transpose_panels(d);
}

void pack_strips(Dot *d, Value first, Value end, Value from, Value to)
{
	if (d->s->a == W_winograd)
		transform_strips(d, first, end);
	else if (d->s->a == W_patch)
		pack_box(d, first);
	else if (d->s->a == W_copy && d->p.matrix)
		turn_strips(d, first, end, from, to);
	else if (d->s->a == W_copy)
		copy_strips(d, first, end, from, to);
	else if (d->s->a == W_transpose)
		transpose_strips(d, first, end);
}

// ---- for all workers ------------------------------------------------------------------

Value shared_block(Dot *d, int o)
{
	Gen *g = d->g;
	const struct Shared *c = &d->p.shared[o];
	Value block = d->block;
	if (c->batches > 1)
		block = sum_of(g, block, times(g, index_i64(g, &d->in_batch), d->p.blocks));
	return element(d, work_memory(g, c->offset), times(g, block, c->size));
}

// A worker of the launch packs, in a block of k of one operand, some steps (copied), or a strip or
// panel (transposed).
void pack_shared(Dot *d)
{
	Gen *g = d->g;
	bool used[] = {d->s->a_shared, d->s->b_shared};
	int64_t passed = 0;
	for (int o = 0; o < COUNT(used); o++) {
		if (!used[o])
			continue;
		const struct Shared *c = &d->p.shared[o];
		int64_t count = c->batches * d->p.blocks * c->pieces;
		Value i = LLVMBuildSub(g->b, g->worker, number(g, passed), ""), zero = number(g, 0);
		Value own = LLVMBuildICmp(g->b, LLVMIntULT, i, number(g, count), "");
		Loop once = loop_begin(g, zero, LLVMBuildZExt(g->b, own, g->i64, ""), 1);
		Value piece = LLVMBuildURem(g->b, i, number(g, c->pieces), "");
		Value rest = LLVMBuildUDiv(g->b, i, number(g, c->pieces), "");
		Value batch = LLVMBuildUDiv(g->b, rest, number(g, d->p.blocks), "");
		d->in_batch = uniform_index(g, batch, d->p.batch, 1);
		go_to_block(d, LLVMBuildURem(g->b, rest, number(g, d->p.blocks), ""));
		Value from = times(g, piece, COPIED);
		Value to = end_after(g, from, COPIED, d->steps);
		Value next = sum_of(g, piece, number(g, 1)), memory = shared_block(d, o);
		bool copied = (o ? d->s->b : d->s->a) == W_copy;
		if (!copied) // into the strip or panel of this number
			memory = element(d, memory,
			                 times(g, piece, o ? d->p.panel_size : d->p.strip_size));
		if (o == 0) {
			d->strip = memory;
			pack_strips(d, copied ? zero : piece,
			            copied ? number(g, d->p.strips) : next, from, to);
		} else {
			d->panel = memory;
			d->first_column = copied ? zero : times(g, piece, d->p.width);
			d->count = number(g, copied ? d->p.panels : 1);
			pack_panels(d, from, to);
		}
		loop_end(g, &once);
		passed += count;
	}
}
