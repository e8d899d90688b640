// window_tiling.c: chooses the sizes of a dot whose left operand is windows.
// Strips of a few lines of windows read a patch, which is packed once for them; 3 x 3 elements may
// be squares of Winograd's method. All follows from shapes, the machine and the kernel's tuning.
#include "tiling.h"
#include <math.h>

// ---- patches ------------------------------------------------------------------------------

// Returns how many rows of matrix registers n lines of windows, or parts of them, take up: short
// lines share a register if all steps of k are one block.
static int64_t register_rows(Tiling *d, int64_t run, int64_t n)
{
	int64_t matrix = d->p.matrix, joined = 1;
	Sched *s = d->t->sched, was = *s;
	if (n > 1 && 2 * run < matrix) {
		s->run = run;
		s->height = n * run;
		s->depth = d->p.steps;
		s->group = 1;
		update_sizes(d);
		joined = joined_lines(matrix, run, d->p.sum_line);
		*s = was;
	}
	return ceil_div(n, joined) * ceil_div(run, matrix) * matrix;
}

// Strips of a few lines of windows, or of a part of one line: as few steps of k as possible, each
// of which loads a row of b.
static void choose_lines(Tiling *d)
{
	enum { LOAD = 2, MATRIX = 8 }; // costs of a step, in rows
	Sched *s = d->t->sched;
	const Digit *digit = d->patch.row.at;
	int64_t width = digit[0].extent, lines = d->patch.row.n > 1 ? digit[1].extent : 1;
	int64_t least_cost = INT64_MAX;
	for (int64_t run = 1; run <= MIN(d->high, width); run++)
		for (int64_t n = 1; n == 1 || (run == width && n <= lines && n * run <= d->high);
		     n++) {
			int64_t strips = ceil_div(width, run) * ceil_div(lines, n), rows = n * run;
			if (d->p.matrix)
				rows = register_rows(d, run, n);
			int64_t cost = strips * (rows + (d->p.matrix ? MATRIX : LOAD));
			if (cost >= least_cost || rows > d->high)
				continue;
			least_cost = cost;
			s->run = run;
			s->height = n * run;
		}
}

// A block of k has at most so many steps: few digits of the outermost kind.
static void choose_steps(Tiling *d, int64_t most)
{
	Sched *s = d->t->sched;
	const Digits *step = &d->p.patch.step;
	s->depth = 1;
	for (int i = 0; i < step->n && s->depth == step->at[i].each; i++) {
		int64_t digits = MAX(1, MIN(step->at[i].extent, most / step->at[i].each));
		digits = ceil_div(step->at[i].extent, ceil_div(step->at[i].extent, digits));
		if (d->p.matrix && i == 0)
			digits = ceil_div(digits, d->p.matrix) * d->p.matrix;
		s->depth *= digits;
	}
	if (d->p.matrix)
		return;
	int64_t inner = MAX(1, step->at[0].extent - d->p.line % d->p.fold);
	int64_t unroll = d->t->machine->unroll * d->t->tuning->unroll;
	s->unroll = MIN(inner, unroll);
	for (int64_t n = 2 * unroll; inner % s->unroll && n > 1; n--)
		s->unroll = inner % n ? s->unroll : n;
}

double patch_cost(const Tiling *d)
{
	enum { LINE = 4 }; // in vectors
	const Patch *box = &d->p.patch;
	const Sched *s = d->t->sched;
	int64_t lines = 1;
	int last = val(d->t->graph, box->from)->shape.rank - 1;
	while (last > 0 && box->size[last] == 1)
		last--;
	for (int a = 0; a < last; a++)
		lines *= box->size[a];
	return (double)(lines * (ceil_div(box->size[last], d->p.lanes) + LINE) * d->p.lanes) /
	       (double)(s->group * s->height * s->depth);
}

// Strips that share a patch, in a block of k: parts of a line, all lines of an image, or more, as
// far as their box fits in a quarter of L2.
static void choose_patch(Tiling *d)
{
	const double MISFIT = 1e30;
	const Machine *machine = d->t->machine;
	Sched *s = d->t->sched, best = *s;
	const Digits *row = &d->patch.row;
	int64_t group = 1, longest = machine->l2 * 5 / 8 / (d->p.width * d->p.bytes);
	s->group = group;
	update_sizes(d);
	if (d->p.steps > longest)
		longest = machine->depth;
	double least_cost = 0;
	for (int i = 0; i <= row->n; i++) {
		for (int64_t most = longest, depth = 0; most > 0; most = most * 2 / 3) {
			s->group = group;
			choose_steps(d, most);
			if (s->depth == depth)
				continue;
			depth = s->depth;
			update_sizes(d);
			bool fits = d->p.strip_size * d->p.bytes <= d->cache / 4;
			if (!fits && least_cost)
				continue;
			double cost = choose_split(d) + (fits ? 0 : MISFIT);
			if (least_cost && cost >= least_cost)
				continue;
			least_cost = cost;
			best = *s;
		}
		if (i < row->n)
			group *= ceil_div(row->at[i].extent, strip_digits(s, i));
	}
	*s = best;
	update_sizes(d);
}

// ---- Winograd's method --------------------------------------------------------------------

// The sums of all points of a block of channels and columns stay in L2, and so do a few squares, as
// they are and transformed.
typedef struct SumBlock {
	int64_t channels;
	int64_t panels, strips, height, depth, parts; // as in a schedule
} SumBlock;

// Returns the block of `most` channels, or of all; its depth is not positive if it does not fit.
static SumBlock sum_block(const Tiling *d, const Squares *q, int64_t most, int64_t panels)
{
	SumBlock b = {.channels = MIN(most, q->channels), .panels = panels, .parts = 1};
	int64_t width = panels * d->p.width;
	int64_t unroll = d->t->sched->unroll, held = d->t->machine->l2 / (POINTS * d->p.bytes);
	b.strips = ceil_div(b.channels, d->high);
	b.height = ceil_div(b.channels, b.strips);
	int64_t left = held - b.strips * b.height * width;
	int64_t square = (b.channels + width) * (POINTS + SQUARE_ROWS) / POINTS;
	b.depth = MIN(q->all, left / square / unroll * unroll);
	return b;
}

// Returns the cost of all blocks, in multiply-adds: of the products, of transforming squares for
// each block and sums for each part. `wanted` processors share it as far as there are workers.
static double sum_cost(const Tiling *d, const Squares *q, const SumBlock *b, double wanted)
{
	enum { ELEMENT = 1000, GRADIENT = 900, KERNEL = 1000 }; // of all points of each
	enum { UPDATE = 4 };                                    // adding to a sum, in steps
	int64_t width = b->panels * d->p.width;
	double sums = (double)(b->strips * b->height * width), all = (double)q->all;
	double blocks = (double)(ceil_div(q->channels, b->channels) * ceil_div(d->p.n, width));
	double square = POINTS * sums * (1 + UPDATE / (double)b->depth) +
	                ELEMENT * (double)b->channels + GRADIENT * (double)width;
	double workers = blocks * (double)(b->parts * d->p.batch);
	return blocks * (all * square + KERNEL * sums * (double)b->parts) *
	       fmax(1, wanted / workers);
}

// Chooses how large a block is, how many squares the tile adds up, and into how many parts the sum
// is divided. Returns the cost, for as many processors as the product is worth.
static double choose_sums(Tiling *d, const Squares *q, double product)
{
	enum { WORTH = 1 << 23, FEWEST = 8 }; // multiply-adds of a worker; squares at once
	const Machine *machine = d->t->machine;
	Sched *s = d->t->sched;
	bool divided = d->p.batch == 1 && !s->reduce.count;
	double wanted = (double)d->p.batch * product / WORTH, least_cost = INFINITY;
	wanted = fmax(1, fmin(wanted, machine->workers));
	for (int64_t most = d->p.lanes; most < q->channels + d->p.lanes; most += d->p.lanes)
		for (int64_t panels = 1; panels <= ceil_div(d->p.n, d->p.width); panels++) {
			SumBlock b = sum_block(d, q, most, panels);
			if (b.depth < MIN(FEWEST, q->all))
				continue;
			int64_t groups = ceil_div(q->all, b.depth);
			int64_t parts = divided ? MIN(groups, machine->workers) : 1;
			for (; b.parts <= parts; b.parts++) {
				double cost = sum_cost(d, q, &b, wanted);
				if (cost >= least_cost)
					continue;
				least_cost = cost;
				s->panels = b.panels;
				s->strips = b.strips;
				s->height = b.height;
				s->depth = b.depth;
				s->parts =
				    b.parts == 1 ? 0 : ceil_div(groups, ceil_div(groups, b.parts));
			}
		}
	s->b = W_copy;
	s->batches = s->group = 1;
	return least_cost;
}

// Returns how many channels at a time each worker transforms for a panel, of kernels that the
// launch before does not transform: as few as L2 holds with those of all squares, and with the
// sums. 0: it does not, or need not.
static int64_t channels_at_once(const Tiling *d, const Squares *q)
{
	enum { FEWEST = 64 };
	int64_t point = POINTS * d->p.bytes, width = d->p.width, n = q->channels;
	int64_t strips = ceil_div(q->all, d->high), rows = strips * ceil_div(q->all, strips);
	int64_t held = d->t->machine->l2 / point - rows * width;
	if (q->channels * d->p.n * point <= MOST_SHARED)
		return 0;
	while (n % (2 * FEWEST) == 0 && n * (rows + width) > held)
		n /= 2;
	return n * (rows + width) <= held ? n : 0;
}

// True if the tile multiplies operand o as f32, whatever its type is in memory.
static bool is_f32(const Tiling *d, int o)
{
	Elem type = val(d->t->graph, d->v->in[o])->type;
	return type == E_f32 || (is_half(type) && d->p.fold == 1);
}

// True if it takes less time than the product: by multiply-adds, and what elements of transformed
// squares, sums and kernels cost in them; kernels that stay in L2 cost less. A small machine lacks
// the memory.
static bool is_winograd(Tiling *d, Squares *s)
{
	enum { SQUARE = 600, KERNEL = 3000, HELD = 1000, LEAST = 16 }; // of all points; channels
	const double SLICED = 0.7; // of the time of multiply-adds
	const DotSizes *p = &d->p;
	bool f32 = is_f32(d, 0) && is_f32(d, 1) && d->v->type == E_f32;
	if (!f32 || d->t->machine->workers == 1 || !find_squares(d->t->graph, &d->patch, s) ||
	    s->channels < LEAST || p->n < LEAST)
		return false;
	double each = (double)(s->channels * p->n), direct = (double)(p->m * p->k * p->n);
	direct *= p->slices > 1 ? SLICED : 1;
	double square = POINTS * each + SQUARE * (double)(s->channels + p->n);
	double kernel = channels_at_once(d, s) ? HELD : KERNEL;
	if (!s->summed)
		return direct > (double)s->all * square + kernel * each;
	Sched was = *d->t->sched;
	if (direct > choose_sums(d, s, direct))
		return true;
	*d->t->sched = was;
	return false;
}

// Squares are transformed in groups: of a strip if kernels and squares stay in L2, else of so many
// that the kernels, which come from memory for each group, cost less than its products. A worker
// that has a few channels at a time has all squares and one panel.
static void choose_squares(Tiling *d)
{
	enum { MANY = 28, EACH = 8 }; // squares of a group; workers
	Sched *s = d->t->sched;
	int64_t at_once = channels_at_once(d, &d->p.squares);
	s->height = ceil_div(d->p.squares.all, ceil_div(d->p.squares.all, d->high));
	s->depth = at_once ? at_once : d->p.squares.channels;
	s->b = W_copy;
	s->batches = s->group = s->panels = s->strips = 1;
	update_sizes(d);
	int64_t strips = d->p.strips, panels = d->p.panels;
	if (at_once) {
		s->strips = s->group = strips;
		update_sizes(d);
		return;
	}
	bool held = panels * d->p.panel_size * d->p.bytes < d->cache * 5 / 8;
	s->group = MIN(strips, held ? 1 : ceil_div(MANY, s->height));
	// Kernels that are too large to be shared are transformed by one worker for each panel.
	int64_t down = can_share(d, 1) ? MIN(2 * EACH, ceil_div(strips, s->group)) : 1;
	s->strips = ceil_div(ceil_div(strips, down), s->group) * s->group;
	s->panels = ceil_div(panels, MIN(panels, ceil_div(EACH, down)));
	update_sizes(d);
}

// ---- the choice ---------------------------------------------------------------------------

// Chooses Winograd's method if it takes less time; its products are multiply-adds.
static bool takes_squares(Tiling *d)
{
	if (!is_winograd(d, &d->p.squares))
		return false;
	d->t->sched->a = W_winograd;
	if (d->p.slices > 1) {
		update_sizes(d);
		choose_register_tile(d);
	}
	return true;
}

bool choose_windows(Tiling *d)
{
	enum { FEW = 128 }; // columns by which packing every window is not worth it
	Sched *s = d->t->sched, was = *s;
	if (!find_patch(d->t->scratch, d->t->graph, &d->t->inside, d->v, &d->p, &d->patch))
		return false;
	if (takes_squares(d))
		return true;
	int rank = val(d->t->graph, d->patch.from)->shape.rank;
	bool loads = !d->p.matrix || fits_matrix(&d->patch, rank, d->p.matrix);
	if (!loads) { // multiply-adds, as those of Winograd's method are
		if (d->p.n >= FEW)
			return false;
		d->p.matrix = 0;
		d->p.fold = 1;
		d->p.steps = d->p.k;
		choose_register_tile(d);
		if (takes_squares(d))
			return true;
	}
	s->a = W_patch;
	choose_lines(d);
	if (d->p.slices == 1 || 4 * s->height >= 3 * register_rows(d, s->run, s->height / s->run))
		return true;
	*s = was;
	update_sizes(d);
	return false;
}

void size_windows(Tiling *d)
{
	if (d->t->sched->a == W_patch)
		choose_patch(d);
	else if (d->p.squares.summed)
		update_sizes(d);
	else
		choose_squares(d);
}
