// dot_prefetch.c: emits prefetches of what a product needs next.
// Input: the strip and panel that the tile multiplies. Output: what the tile prefetches in its
// loop, each call a share: outputs and operands of the maps after the product, and what is packed
// next.
#include "dot.h"

enum { LINE = 64 }; // bytes of cache

// Adds a stream to those of a vector tile, at a pace to end with a call: lines that come from
// memory all at once would keep the loads of the sum waiting. A power of two is cheap to count.
static void add_paced(Dot *d, struct Stream s)
{
	int64_t iterations = d->s->depth / d->tile.unroll;
	int64_t parts = s.rows * ceil_div(s.bytes, s.once), pace = 1;
	while (2 * pace * parts <= iterations)
		pace *= 2;
	s.wait = pace - 1;
	d->tile.stream[d->tile.streams++] = s;
}

// A vector tile prefetches its rows, of vectors as wide as its own, in its loop. One of matrices
// has too few iterations: prefetch_operands() does it before.
static void add_stream(Dot *d, Value memory, Elem e, Prefetch how)
{
	Tile *t = &d->tile;
	int64_t wide = t->vectors * t->lanes;
	int bytes = (int)(wide * elems[e].bytes);
	struct Stream rows = {.row = d->p.n * elems[e].bytes,
	                      .rows = t->rows,
	                      .bytes = bytes,
	                      .once = bytes,
	                      .how = how};
	d->stream[d->streams] = memory;
	d->rows[d->streams++] = rows;
	if (!d->p.matrix)
		add_paced(d, rows);
}

// True if b lies in panels, whose next one comes to L2 while all strips meet one.
static bool has_next_panel(const Dot *d)
{
	const Sched *s = d->s;
	return s->b == W_place && s->order == N_panels && s->next && !d->p.matrix &&
	       d->far[1] == d->p.width * d->p.bytes;
}

// Finds the memory that the maps after the product touch row by row: outputs, and values read at
// the same index. While the next panel is fetched, there is no bandwidth left for these. Outputs of
// a matrix tile are not prefetched: its products are over before these lines are here.
void choose_streams(Dot *d)
{
	enum { MOST = 4 };
	Gen *g = d->g;
	if (has_next_panel(d))
		return;
	for (int o = 0; o < g->kern->nout && d->streams < MOST - 1 && !d->p.matrix; o++)
		if (!is_reduced_out(g->graph, g->kern, o) &&
		    !is_past(g->kern->sched, g->kern->out[o]))
			add_stream(d, out_address(g, o), val(g->graph, g->kern->out[o])->type,
			           F_write);
	bool *memory = NEWS(g->arena, bool, g->graph->nval);
	for (int r = 0; r < g->graph->nval; r++)
		memory[r] = !g->inside[r];
	Reads reads = {0};
	Walk walk = walk_new(g->arena, g->graph, memory);
	walk_start(&walk, &reads);
	for (int o = 0; o < g->kern->nout; o++)
		walk_root(&walk, g->kern->out[o], &reads);
	for (int r = 0; r < reads.count && d->streams < MOST; r++) {
		const Val *v = val(g->graph, reads.at[r].val);
		if (reads.at[r].reach != R_moved && count_of(&v->shape) == count_of(&d->v->shape))
			add_stream(d, location_address(g, reads.at[r].val), v->type, F_read);
	}
}

// Returns how many bytes of the next strip, or of the next panel in place, a call prefetches: their
// steps are adjacent.
static int64_t share_of_next(const Dot *d, int o)
{
	int64_t size = o ? d->s->depth * d->p.width : d->p.strip_size;
	return full_lines(ceil_div(size * d->p.bytes, o ? d->s->strips : d->s->panels));
}

// True if each worker transposes columns of b alone, after those of the worker before.
static bool has_next_columns(const Dot *d)
{
	const Sched *s = d->s;
	return s->b == W_transpose && !s->b_shared && d->b_columns && d->p.blocks == 1 &&
	       d->p.down == 1 && d->p.across > 1;
}

// Returns how many of the next worker's columns a call prefetches.
static int64_t columns_of_next(const Dot *d)
{
	return ceil_div(d->p.width, d->s->strips);
}

// The tile prefetches the sums of squares that it will add to, a share with each iteration.
void choose_next_sums(Dot *d)
{
	Tile *t = &d->tile;
	int64_t bytes = t->rows * d->p.width * d->p.bytes;
	int64_t each = full_lines(ceil_div(bytes * t->unroll, d->s->depth));
	int share = (int)each;
	add_paced(d, (struct Stream){.row = each,
	                             .rows = (int)ceil_div(bytes, each),
	                             .bytes = share,
	                             .once = share,
	                             .how = F_write});
}

static void add_next(Dot *d, int o, int64_t row, int64_t rows, int64_t bytes, int64_t once)
{
	d->next[o] = true;
	add_paced(d, (struct Stream){.row = row,
	                             .rows = (int)rows,
	                             .bytes = (int)bytes,
	                             .once = (int)once,
	                             .how = F_later});
}

static void add_next_share(Dot *d, int o)
{
	int64_t share = share_of_next(d, o);
	int64_t each = full_lines(ceil_div(share * d->tile.unroll, d->s->depth));
	add_next(d, o, each, ceil_div(share, each), each, each);
}

// What a worker copies from far rows of memory would wait for each of them. So the tile prefetches
// what the next block of k packs of b, and the next group of strips of a, or what others packed of
// the next strip, and the next panel of b in place: each call a share.
void choose_next(Dot *d)
{
	const Sched *s = d->s;
	int64_t width = d->p.width * d->p.bytes;
	if (!s->next || s->a == W_winograd)
		return;
	if (s->a == W_copy && s->a_shared && s->a_ahead) {
		add_next_share(d, 0);
	} else if (s->a == W_copy && d->a_rows && s->strips > s->group) {
		add_next(d, 0, d->far[0], ceil_div(s->depth, s->panels), d->p.bytes, d->p.bytes);
	}
	if (s->b == W_copy && !s->b_shared && d->b_rows && d->far[1] && d->p.part_blocks > 1)
		add_next(d, 1, d->far[1], ceil_div(s->depth, s->strips), width, width);
	else if (has_next_columns(d))
		add_next(d, 1, d->far[1], columns_of_next(d), s->depth * d->p.bytes, LINE);
	else if (has_next_panel(d))
		add_next_share(d, 1);
}

// Returns the address of what is prefetched meanwhile of operand o: the panel's columns in the next
// block of k, or the strip's rows in the next group. After the last, of the last: no page may be
// missing there. After the last panel in place, of the first: the next worker, or the next
// iteration of a loop, may need it.
Value next_of(Dot *d, int o, const Strip *s, const Panel *p)
{
	Gen *g = d->g;
	const Sched *sched = d->s;
	int64_t rows = ceil_div(sched->depth, o ? sched->strips : sched->panels);
	if (o) {
		Value own = LLVMBuildSub(g->b, s->number, d->first_strip, "");
		if (sched->b == W_place) {
			Value column = sum_of(g, p->at_column, number(g, d->p.width));
			column = LLVMBuildURem(g->b, column, number(g, d->p.n), "");
			Value share = times(g, own, share_of_next(d, 1) / d->p.bytes);
			return element(d, in_place(d, 1, d->from, column), share);
		}
		if (sched->b == W_transpose) {
			int64_t columns = columns_of_next(d), passed = sched->panels * d->p.width;
			Value column = sum_of(g, p->at_column, times(g, own, columns));
			column = sum_of(g, column, number(g, passed));
			return in_place(d, 1, d->from,
			                least(g, column, number(g, d->p.n - columns)));
		}
		Value step = sum_of(g, sum_of(g, d->from, d->steps), times(g, own, rows));
		return in_place(d, 1, least(g, step, number(g, d->p.k - rows)), p->at_column);
	}
	if (sched->a_shared) {
		Value share = times(g, p->number, share_of_next(d, 0) / d->p.bytes);
		return element(d, s->a, sum_of(g, share, number(g, d->p.strip_size)));
	}
	Value step = sum_of(g, d->from, times(g, p->number, rows));
	Value row = sum_of(g, s->first, number(g, sched->group * d->tile.rows));
	return in_place(d, 0, least(g, step, number(g, d->p.k - rows)),
	                least(g, row, number(g, d->p.m - d->tile.rows)));
}

// Returns where a row of the strip meets the panel in the memory of a stream.
Value stream_at(Dot *d, int stream, const Strip *s, const Panel *p, Value row)
{
	Gen *g = d->g;
	row = sum_of(g, sum_of(g, times(g, index_i64(g, &d->in_batch), d->p.m), s->first), row);
	Value place = sum_of(g, times(g, row, d->p.n), p->at_column);
	place = times(g, place, d->rows[stream].row / d->p.n);
	return bytes_after(g, d->stream[stream], place);
}

// Prefetches what the panel meets of the strip's rows.
static void prefetch_own(Dot *d, int stream, const Strip *s, const Panel *p)
{
	Gen *g = d->g;
	const struct Stream *own = &d->rows[stream];
	Loop rows = loop_begin(g, number(g, 0), number(g, d->s->height), 1);
	Value row = stream_at(d, stream, s, p, rows.i);
	for (int64_t byte = 0; byte < own->bytes; byte += 64)
		g->ops->prefetch(g, bytes_after(g, row, number(g, byte)), own->how);
	loop_end(g, &rows);
}

// Prefetches the panel's share of the strip: a few rows, of all columns of the worker. Lines that
// are adjacent come from memory twice as fast as those of a panel, one of each row.
static void prefetch_share(Dot *d, int stream, const Strip *s, const Panel *p)
{
	Gen *g = d->g;
	const struct Stream *own = &d->rows[stream];
	int64_t panels = d->s->panels, share = d->s->height / panels;
	Value number_of = LLVMBuildUDiv(g->b, p->at_column, number(g, d->p.width), "");
	number_of = LLVMBuildURem(g->b, number_of, number(g, panels), "");
	Panel first = {.at_column =
	                   LLVMBuildSub(g->b, p->at_column, times(g, number_of, d->p.width), "")};
	Loop rows = loop_begin(g, number(g, 0), number(g, share), 1);
	Value row = stream_at(d, stream, s, &first, sum_of(g, times(g, number_of, share), rows.i));
	Loop lines = loop_begin(g, number(g, 0), number(g, panels * own->bytes), 64);
	g->ops->prefetch(g, bytes_after(g, row, lines.i), own->how == F_read ? F_later : own->how);
	loop_end(g, &lines);
	loop_end(g, &rows);
}

static void prefetch_strip(Dot *d, const Strip *s, const Panel *p, Value condition, bool ahead)
{
	Loop when = when_begin(d->g, condition);
	bool shares = ahead && d->s->height % d->s->panels == 0;
	for (int i = 0; i < d->streams; i++)
		(shares ? prefetch_share : prefetch_own)(d, i, s, p);
	when_end(d->g, &when);
}

// Before the last products of a matrix tile, prefetches what the maps after them will read for the
// next strip, and, in the worker's first strip, for that strip too.
void prefetch_operands(Dot *d, const Strip *s, const Panel *p, Value done)
{
	Gen *g = d->g;
	Strip next = {.number = sum_of(g, s->number, number(g, 1))};
	next.first = first_row(d, next.number);
	Value begins = LLVMBuildICmp(g->b, LLVMIntEQ, s->number, d->first_strip, "");
	Value follows = LLVMBuildICmp(g->b, LLVMIntSLT, next.number, d->end_strip, "");
	prefetch_strip(d, s, p, LLVMBuildAnd(g->b, done, begins, ""), false);
	prefetch_strip(d, &next, p, LLVMBuildAnd(g->b, done, follows, ""), true);
}
