// strip.c: emits the products of strips of a with panels of b, and the maps after them.
// Matrix registers multiply while the maps of the panel before are computed, and the next strip is
// packed.
#include "dot.h"

// ---- rows -----------------------------------------------------------------------------

// Sets which digits of the rows strip `strip` begins with, so far that all of its rows exist.
static void first_digits(Dot *d, Value strip, Value *first)
{
	Gen *g = d->g;
	const Digits *row = &d->p.patch.row;
	for (int i = 0; i < row->n; i++) {
		int64_t unit = strip_digits(d->s, i), count = ceil_div(row->at[i].extent, unit);
		Value number_of = LLVMBuildURem(g->b, strip, number(g, count), "");
		first[i] = least(g, times(g, number_of, unit), number(g, row->at[i].extent - unit));
		strip = LLVMBuildUDiv(g->b, strip, number(g, count), "");
	}
}

Value first_row(Dot *d, Value strip)
{
	Gen *g = d->g;
	if (d->tall) { // strips after those of full height begin a row earlier each
		Value low = LLVMBuildSub(g->b, strip, number(g, d->tall - 1), "");
		Value none = number(g, 0), some = LLVMBuildICmp(g->b, LLVMIntSGT, low, none, "");
		low = LLVMBuildSelect(g->b, some, low, none, "");
		return LLVMBuildSub(g->b, times(g, strip, d->tile.rows), low, "");
	}
	if (d->s->a != W_patch)
		return least(g, times(g, strip, d->tile.rows), number(g, d->p.m - d->tile.rows));
	Value first[DIGITS], row = number(g, 0);
	first_digits(d, strip, first);
	for (int i = 0; i < d->p.patch.row.n; i++)
		row = sum_of(g, row, times(g, first[i], d->p.patch.row.at[i].each));
	return row;
}

// True if the first row of the strip belongs to the one before: a lower tile skips it.
static Value is_low(Dot *d, Value strip)
{
	return LLVMBuildICmp(d->g->b, LLVMIntSGE, strip, number(d->g, d->tall), "");
}

void own_rows(Dot *d, Value strip, Value *from, Value *to)
{
	Gen *g = d->g;
	int64_t rows = d->tile.rows, line = d->p.m;
	if (d->tall) {
		Value first = first_row(d, strip);
		*from = sum_of(g, first, LLVMBuildZExt(g->b, is_low(d, strip), g->i64, ""));
		*to = sum_of(g, first, number(g, rows));
		return;
	}
	if (d->s->a == W_patch) {
		// A strip has a part of a line, or a part of the lines of an image.
		const Digit *digit = d->p.patch.row.at;
		line = digit[rows > d->s->run].each * digit[rows > d->s->run].extent;
	}
	int64_t strips = ceil_div(line, rows);
	Value lines = LLVMBuildUDiv(g->b, strip, number(g, strips), "");
	Value in_line = LLVMBuildURem(g->b, strip, number(g, strips), "");
	Value first = times(g, lines, line), row = times(g, in_line, rows);
	*from = sum_of(g, first, row);
	*to = sum_of(g, first, end_after(g, row, rows, number(g, line)));
}

static void finish_lanes(Gen *g, int n, const Index *unit, void *context)
{
	const Dot *d = context;
	const Shape *space = &g->kern->space;
	Shape rows = shape_of(space->rank - 1, space->dim);
	Index idx[RANK];
	unravel(g->vars, &d->row, &rows, idx);
	for (int u = 0; u < n; u++) {
		idx[space->rank - 1] = unit[u];
		partials_step(g, &d->parts, &unit[u], 1, idx);
		store_outs(g, idx); // perhaps over what the partial results are computed from
	}
}

typedef struct Rows {
	const Dot *d;
	Value before, from, to; // rows of the batches before; of the strip
} Rows;

// Finishes all rows at columns `unit`, whose partial results wait in registers.
static void finish_rows_at(Gen *g, int n, const Index *unit, void *context)
{
	const Rows *r = context;
	for (int u = 0; u < n; u++) {
		Dot own = *r->d;
		partials_hold(g, &own.parts, &unit[u]);
		Loop rows = loop_begin(g, r->from, r->to, 1);
		own.row = uniform_index(g, sum_of(g, r->before, rows.i), own.p.batch * own.p.m, 1);
		finish_lanes(g, 1, &unit[u], &own);
		loop_end(g, &rows);
		partials_release(g, &own.parts, &unit[u]);
	}
}

// Returns how many vectors each_column() takes as one.
static int joined_vectors(const Dot *d)
{
	return d->p.width / d->g->width == 2 ? 2 : 1;
}

void each_column(Dot *d, LaneBody *body, void *context)
{
	Gen *g = d->g;
	int width = g->width, units = (int)(d->p.width / width), wide = joined_vectors(d);
	Value end = sum_of(g, d->first_column, times(g, d->count, d->p.width));
	g->width *= wide;
	g->ops->lane_loop(g, d->first_column, least(g, end, number(g, d->p.n)), d->p.n,
	                  units / wide, body, context);
	g->width = width;
}

// Finishes a row panel by panel: each has a part of its reductions.
static void finish_panels(Dot *d)
{
	Gen *g = d->g;
	int width = g->width, wide = width * joined_vectors(d);
	Value row = index_i64(g, &d->row);
	Loop panels = loop_begin(g, number(g, 0), d->count, 1);
	Dot own = *d;
	own.first_column = sum_of(g, d->first_column, times(g, panels.i, d->p.width));
	own.count = number(g, 1);
	own.parts.block = LLVMBuildUDiv(g->b, own.first_column, number(g, d->p.width), "");
	g->width = wide;
	partials_open(g, &own.parts);
	g->width = width;
	each_column(&own, finish_lanes, &own);
	g->width = wide;
	partials_close(g, &own.parts, row);
	g->width = width;
	loop_end(g, &panels);
}

// As finish_rows, of rows whose sums follow each other.
static void finish_line(Dot *d, Value first, Value from, Value to, Value sums)
{
	Gen *g = d->g;
	const Shape *shape = &d->v->shape;
	int last = shape->rank - 1;
	Bound bound = {.r = g->kern->root, .stride = {0}};
	bound.stride[last] = 1;
	for (int64_t a = last - 1, stride = d->p.sum_row; a >= 0; stride *= shape->dim[a--])
		bound.stride[a] = stride;
	Value before = times(g, index_i64(g, &d->in_batch), d->p.m);
	Value skip = times(g, sum_of(g, before, first), d->p.sum_row);
	bound.memory = element(d, sums, LLVMBuildNeg(g->b, sum_of(g, skip, d->first_column), ""));
	bind_memory(g, &bound);
	bool columns = d->s->reduce.count && !d->parts.along;
	if (columns && !d->p.matrix) { // matrix registers finish a few rows at a time
		each_column(d, finish_rows_at, &(Rows){d, before, from, to});
	} else {
		Loop rows = loop_begin(g, from, to, 1);
		d->row = uniform_index(g, sum_of(g, before, rows.i), d->p.batch * d->p.m, 1);
		if (d->parts.along)
			finish_panels(d);
		else
			each_column(d, finish_lanes, d);
		loop_end(g, &rows);
	}
	unbind_memory(g, &bound);
}

void finish_rows(Dot *d, Value first, Value from, Value to, Value sums)
{
	Gen *g = d->g;
	int64_t run = d->s->run;
	if (d->s->a != W_patch || d->p.sum_line == run) {
		finish_line(d, first, from, to, sums);
		return;
	}
	Loop lines = loop_begin(g, number(g, 0), number(g, d->tile.rows / run), 1);
	Value begin = sum_of(g, first, times(g, lines.i, run));
	Value before = LLVMBuildICmp(g->b, LLVMIntSLT, begin, from, "");
	finish_line(d, begin, LLVMBuildSelect(g->b, before, from, begin, ""),
	            end_after(g, begin, run, to),
	            element(d, sums, times(g, lines.i, d->p.sum_line * d->p.sum_row)));
	loop_end(g, &lines);
}

// ---- strips and panels ----------------------------------------------------------------

// Returns where in the patch of the group that begins with strip `group` the rows of `strip` begin.
static Value patch_offset(Dot *d, Value strip, Value group)
{
	Gen *g = d->g;
	const Patch *patch = &d->p.patch;
	Value own[DIGITS], first[DIGITS];
	int64_t below = 0;
	for (int a = 0; a < RANK; a++)
		below -= patch->below[a] * patch->stride[a];
	first_digits(d, strip, own);
	first_digits(d, group, first);
	Value offset = number(g, below);
	for (int i = 0; i < patch->row.n; i++) {
		Value digits = LLVMBuildSub(g->b, own[i], first[i], "");
		offset = sum_of(g, offset, times(g, digits, patch->row.at[i].offset));
	}
	return offset;
}

Value ahead_memory(Dot *d, Value strip)
{
	Value place = LLVMBuildAnd(d->g->b, strip, number(d->g, 1), "");
	return element(d, d->strip, times(d->g, place, d->p.strip_size));
}

static Strip strip_at(Dot *d, Value strip, Value group)
{
	Gen *g = d->g;
	Strip s = {.number = strip, .first = first_row(d, strip), .sums = d->sums};
	if (d->s->gang > 1 && !d->parts.along) // its worker's
		d->parts.block = LLVMBuildUDiv(g->b, strip, number(g, d->s->strips), "");
	if (d->s->a == W_place) {
		s.a = in_place(d, 0, d->from, s.first);
	} else if (d->s->a == W_patch) {
		s.a = a_element(d, d->strip, patch_offset(d, strip, group));
	} else if (d->p.ahead) {
		s.a = ahead_memory(d, strip);
	} else {
		bool by_number = d->s->a_shared || d->s->kept;
		Value own = by_number ? strip : LLVMBuildSub(g->b, strip, group, "");
		s.a = element(d, d->strip, times(g, own, d->p.strip_size));
	}
	if (d->s->parts > 1) {
		s.sums = element(d, s.sums, times(g, strip, d->p.sum_rows * d->p.sum_row));
	} else if (d->p.blocks > 1 || d->s->order == N_panels) {
		Value own = LLVMBuildSub(g->b, strip, d->first_strip, "");
		s.sums = element(d, s.sums, times(g, own, d->p.sum_rows * d->p.sum_row));
	}
	s.skipped = number(g, 0);
	s.tile = d->sum_tile;
	if (d->tall) {
		Value low = is_low(d, strip);
		s.skipped = LLVMBuildZExt(g->b, low, g->i64, "");
		s.tile = LLVMBuildSelect(g->b, low, d->low_tile, d->sum_tile, "");
	}
	return s;
}

static Panel panel_at(Dot *d, Value panel)
{
	Gen *g = d->g;
	Panel p = {.number = panel, .column = times(g, panel, d->p.width)};
	p.at_column = sum_of(g, d->first_column, p.column);
	p.b = is_read_in_place(d->s->b) ? in_place(d, 1, d->from, p.at_column)
	                                : element(d, d->panel, times(g, panel, d->p.panel_size));
	return p;
}

static void multiply(Dot *d, const Strip *s, const Panel *p, Value again, Value done)
{
	Gen *g = d->g;
	if (d->p.matrix && d->streams && done)
		prefetch_operands(d, s, p, done);
	Value soon = s->a;
	if (d->tile.soon) { // a row of the next strip
		Value row = times(g, p->number, d->tile.soon);
		if (d->s->a_shared)
			soon = element(
			    d, s->a,
			    sum_of(g, times(g, row, d->tile.soon_row), number(g, d->p.strip_size)));
		else
			soon =
			    in_place(d, 0, d->from,
			             sum_of(g, sum_of(g, s->first, number(g, d->tile.rows)), row));
	}
	Value a = a_element(d, s->a, times(g, s->skipped, d->tile.a_row));
	Value place = sum_of(g, times(g, s->skipped, d->tile.c_row), p->column);
	Value in[6 + STREAMS] = {d->steps, a, p->b, element(d, s->sums, place), again, soon};
	int n = 6;
	for (int i = 0; i < d->streams && !d->p.matrix; i++)
		in[n++] = stream_at(d, i, s, p, s->skipped);
	for (int o = 0; o < COUNT(d->next); o++)
		if (d->next[o])
			in[n++] = next_of(d, o, s, p);
	LLVMBuildCall2(g->b, LLVMGlobalGetValueType(d->sum_tile), s->tile, in, (unsigned)n, "");
}

// Multiplies a strip by the worker's panels and finishes it, so many panels at a time that their
// sums stay in L1.
static void one_strip(Dot *d, const Strip *strip, Value again)
{
	Gen *g = d->g;
	Value all = d->count, first_column = d->first_column, memory = d->panel, row, end;
	Loop parts = loop_begin(g, number(g, 0), all, d->p.held);
	d->first_column = sum_of(g, first_column, times(g, parts.i, d->p.width));
	d->count = least(g, number(g, d->p.held), LLVMBuildSub(g->b, all, parts.i, ""));
	if (memory) // b is packed
		d->panel = element(d, memory, times(g, parts.i, d->p.panel_size));
	Loop panels = loop_begin(g, number(g, 0), d->count, 1);
	Panel panel = panel_at(d, panels.i);
	multiply(d, strip, &panel, again, LLVMConstInt(g->i1, 1, 0));
	loop_end(g, &panels);
	own_rows(d, strip->number, &row, &end);
	finish_rows(d, strip->first, row, end, strip->sums);
	loop_end(g, &parts);
	d->count = all;
	d->first_column = first_column;
	d->panel = memory;
}

// ---- matrix registers -----------------------------------------------------------------

typedef struct Overlap { // of the products of a panel with the maps of the panel before
	Dot *d;
	const Strip *strip;
	Value multiplies;   // false after the last panel
	Value finishes;     // false for the first panel, and until its sums are complete
	Value row, end;     // that the strip has alone
	Value column, sums; // of the panel before
	Value b, passed;    // variables: of the next step; how many groups of products have passed
	Value panel;        // that is multiplied
	Value next, packs;  // the strip after, if there is one
	Value packed;       // variable: vectors of it
	int64_t groups;     // of a step
	Value all;          // of a panel
} Overlap;

// Returns the first row that is finished after so many groups.
static Value row_after(const Overlap *o, Value groups)
{
	Gen *g = o->d->g;
	Value share = LLVMBuildUDiv(g->b, times(g, groups, o->d->s->height), o->all, "");
	Value row = sum_of(g, o->row, share);
	Value inside = LLVMBuildICmp(g->b, LLVMIntSLT, row, o->end, "");
	return LLVMBuildSelect(g->b, inside, row, o->end, "");
}

// Finishes the rows whose turn it is after the next group.
static void finish_share(const Overlap *o)
{
	Dot own = *o->d;
	Gen *g = own.g;
	Value passed = read_variable(g, o->passed);
	own.first_column = o->column;
	own.count = number(g, 1);
	finish_rows(&own, o->strip->first, row_after(o, passed),
	            row_after(o, sum_of(g, passed, number(g, 1))), o->sums);
}

// Packs the vectors of the strip after whose turn it is: all that are left if no product follows.
static void pack_share(const Overlap *o)
{
	Dot own = *o->d;
	Gen *g = own.g;
	int64_t steps = MIN(own.p.steps, own.s->depth), all = vectors_of_strip(&own);
	int64_t panel = steps / own.tile.unroll * o->groups, groups = own.s->panels * panel;
	Value passed = sum_of(g, times(g, o->panel, panel), read_variable(g, o->passed));
	passed = sum_of(g, passed, number(g, 1));
	Value to = groups < all ? times(g, passed, ceil_div(all, groups))
	                        : LLVMBuildUDiv(g->b, passed, number(g, groups / all), "");
	Value left = number(g, all);
	to = LLVMBuildSelect(g->b, o->multiplies, least(g, to, left), left, "");
	own.strip = ahead_memory(&own, o->next);
	pack_vectors(&own, o->next, read_variable(g, o->packed), to);
	set_variable(g, o->packed, to);
}

// Between groups there are few enough instructions to wait in the core's window while the matrix
// registers are busy.
static void one_step(const Overlap *o, Value a)
{
	Dot *d = o->d;
	Gen *g = d->g;
	Value b = read_variable(g, o->b);
	Loop groups = loop_begin(g, number(g, 0), number(g, o->groups), 1);
	Loop when = when_begin(g, o->multiplies);
	g->ops->add_products(g, &d->tile, a, b, groups.i);
	when_end(g, &when);
	when = when_begin(g, o->finishes);
	finish_share(o);
	when_end(g, &when);
	if (d->p.ahead) {
		when = when_begin(g, o->packs);
		pack_share(o);
		when_end(g, &when);
	}
	set_variable(g, o->passed, sum_of(g, read_variable(g, o->passed), number(g, 1)));
	loop_end_rolled(g, &groups);
	set_variable(g, o->b, element(d, b, number(g, d->tile.vectors * d->tile.b_vector)));
}

// Multiplies a strip by the worker's panels, and finishes it if this is the last block of k.
static void overlapped_strip(Dot *d, const Strip *strip, Value again, Value done)
{
	Gen *g = d->g;
	const Tile *t = &d->tile;
	int64_t step = t->unroll * t->loop[0].a_step; // elements of a
	Overlap o = {.d = d, .strip = strip, .groups = g->ops->groups(t)};
	o.all = number(g, last_steps(d) / t->unroll * o.groups);
	own_rows(d, strip->number, &o.row, &o.end);
	o.next = sum_of(g, strip->number, number(g, 1));
	o.packs = LLVMBuildICmp(g->b, LLVMIntSLT, o.next, d->end_strip, "");
	o.packed = variable(g, number(g, 0));
	Value more = d->p.ahead ? LLVMBuildOr(g->b, done, o.packs, "") : done;
	Value end = sum_of(g, d->count, LLVMBuildZExt(g->b, more, g->i64, ""));
	Loop panels = loop_begin(g, number(g, 0), end, 1);
	o.panel = panels.i;
	Value held = number(g, d->p.held), before = LLVMBuildSub(g->b, panels.i, number(g, 1), "");
	Value sums = LLVMBuildURem(g->b, panels.i, held, "");
	sums = element(d, strip->sums, times(g, sums, d->p.width));
	o.sums = LLVMBuildURem(g->b, before, held, "");
	o.sums = element(d, strip->sums, times(g, o.sums, d->p.width));
	o.column = sum_of(g, d->first_column, times(g, before, d->p.width));
	o.multiplies = LLVMBuildICmp(g->b, LLVMIntSLT, panels.i, d->count, "");
	o.finishes = LLVMBuildICmp(g->b, LLVMIntSGE, before, number(g, 0), "");
	o.finishes = LLVMBuildAnd(g->b, o.finishes, done, "");
	o.passed = variable(g, number(g, 0));
	Panel panel = panel_at(d, panels.i);
	o.b = variable(g, panel.b);
	Loop when = when_begin(g, o.multiplies);
	if (d->streams)
		prefetch_operands(d, strip, &panel, done);
	g->ops->begin_sums(g, t, sums, again);
	when_end(g, &when);
	Value whole = LLVMBuildUDiv(g->b, d->steps, number(g, t->unroll), "");
	Loop steps = loop_begin(g, number(g, 0), whole, 1);
	one_step(&o, a_element(d, strip->a, times(g, steps.i, step)));
	loop_end(g, &steps);
	when = when_begin(g, o.multiplies);
	g->ops->end_sums(g, t, d->steps, a_element(d, strip->a, times(g, whole, step)),
	                 read_variable(g, o.b), sums);
	when_end(g, &when);
	loop_end(g, &panels);
}

// ---- groups ---------------------------------------------------------------------------

// The strips from..to, which are packed together, by every panel of the worker. done: this is the
// last block of k; NULL: the launch after finishes the sums.
void one_group(Dot *d, Value from, Value to, Value again, Value done)
{
	Gen *g = d->g;
	if (d->s->a == W_winograd) {
		multiply_squares(d, from, to, again, done);
		return;
	}
	if (d->s->order == N_panels) {
		Loop panels = loop_begin(g, number(g, 0), d->count, 1);
		Panel panel = panel_at(d, panels.i);
		Loop strips = loop_begin(g, from, to, 1);
		Strip strip = strip_at(d, strips.i, from);
		multiply(d, &strip, &panel, again, done);
		loop_end(g, &strips);
		loop_end(g, &panels);
	}
	Loop strips = loop_begin(g, from, to, 1);
	Strip strip = strip_at(d, strips.i, from);
	if (d->p.overlap || d->p.held < d->s->panels) {
		if (d->p.overlap)
			overlapped_strip(d, &strip, again, done);
		else
			one_strip(d, &strip, again);
		loop_end(g, &strips);
		return;
	}
	if (d->s->order == N_strips) {
		Loop panels = loop_begin(g, number(g, 0), d->count, 1);
		Panel panel = panel_at(d, panels.i);
		multiply(d, &strip, &panel, again, done);
		loop_end(g, &panels);
	}
	if (done) {
		Value row, end;
		own_rows(d, strips.i, &row, &end);
		end = LLVMBuildSelect(g->b, done, end, row, "");
		finish_rows(d, strip.first, row, end, strip.sums);
	}
	loop_end(g, &strips);
}
