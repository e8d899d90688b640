// block_tiling.c: chooses the tile of a dot by blocks of threads, and how its sums are split.
// They are a function of shapes and the class of the machine alone: a model of the time decides
// between large tiles, which load less, and many workers.
#include "tiling.h"
#include <stdlib.h>

enum {
	MOST_PARTS = 64,
	LEAST_PART = 128, // steps of k
	ELEMENTS = 1024,  // of a worker that adds up parts, at most
	LEAST = 32,       // at least, if there are few
	BUFFERS = 4,      // stages, at most
	MOST = 48 << 10,  // of two stages
	BETWEEN = 16,     // elements of f32 between lines, of both operands
	SUMS = 64,        // of a thread, at most
	REDUCTIONS = 4,   // whose results, too, fit in its registers
	TOGETHER = 8,     // rows of a thread, or parts, whose loads wait at once
	FEW_BYTES = 4,    // of an element of the operands of what follows the product
};

typedef struct Kind {            // of products
	int64_t height, columns; // the least of a tile
	int64_t most;            // bytes of a side, in sums
	int64_t depth, buffers, unroll;
	int64_t shared;       // bytes of shared memory that stages may take
	double product, load; // cost of one, and of an element
} Kind;

// Of exact machines, whose operands pass through registers, a stage is multiplied while one is
// loaded.
#define MATRIX MATRIX_ROWS, MATRIX_COLUMNS, 512
static const Kind fused = {16, 16, 512, 16, 2, 2, 44 << 10, 1, 16},
                  half = {MATRIX, MATRIX_LINE / 2, BUFFERS, 1, 44 << 10, 0.0625, 8},
                  tf32 = {MATRIX, MATRIX_LINE / 4, BUFFERS, 1, 44 << 10, 0.125, 16},
                  groups = {64, 64, 512, MATRIX_LINE / 2, BUFFERS, 1, MOST, 0.04, 8},
                  exact_half = {MATRIX, MATRIX_LINE / 2, 2, 1, 44 << 10, 0.0625, 8},
                  exact_f32 = {MATRIX, MATRIX_LINE / 4, 2, 1, 44 << 10, 0.5, 16};

typedef struct Choice {
	int64_t height, columns, parts;
	double cost;
} Choice;

// The time of the busiest multiprocessor, in fused products of a thread block, if `together`
// products are a launch.
static double cost_of(const Kind *kind, const DotSizes *p, const Machine *machine, int together,
                      const Choice *c)
{
	const double START = 24, ADD = 72,
	             LAUNCH = 5e5; // in steps of k; of a sum of a part; of all
	double products = (double)(together * p->batch);
	double tiles = products * (double)(ceil_div(p->m, c->height) * ceil_div(p->n, c->columns));
	double waves = (double)ceil_div((int64_t)tiles * c->parts, wave_of(machine)) * RESIDENT;
	double steps = (double)ceil_div(p->k, c->parts) + START;
	double cost = waves * steps *
	              ((double)(c->height * c->columns) * kind->product +
	               (double)(c->height + c->columns) * kind->load);
	if (c->parts > 1)
		cost +=
		    LAUNCH + products * (double)(c->parts * p->m * p->n) * ADD / machine->workers;
	return cost;
}

// Tiles are no larger than the result, but for what threads need.
static int64_t largest(int64_t extent, int64_t least, int64_t most)
{
	int64_t side = least;
	while (side < extent && 2 * side <= most)
		side *= 2;
	return side;
}

static const Kind *kind_of(const Machine *machine, Elem matrix, int64_t height)
{
	if (machine->exact && matrix)
		return is_half(matrix) ? &exact_half : &exact_f32;
	return has_group_matrix(machine, matrix, height) ? &groups
	       : is_half(matrix)                         ? &half
	       : matrix                                  ? &tf32
	                                                 : &fused;
}

// sums: of a thread, at most.
static Choice choose_tile(const Machine *machine, const BlockSizes *z, int together, int64_t parts,
                          int64_t sums)
{
	Choice best = {.cost = -1}, c;
	const Kind *kind = kind_of(machine, z->matrix, 0); // of the lowest tiles
	const DotSizes *p = &z->dot;
	int64_t most = kind->most / p->bytes;
	for (c.height = largest(p->m, kind->height, most); c.height >= kind->height; c.height /= 2)
		for (c.columns = largest(p->n, kind->columns, most); c.columns >= kind->columns;
		     c.columns /= 2)
			for (c.parts = 1;
			     c.height * c.columns <= sums * machine->threads &&
			     (c.parts == 1 || (c.parts <= parts && p->k / c.parts >= LEAST_PART));
			     c.parts++) {
				c.cost = cost_of(kind_of(machine, z->matrix, c.height), p, machine,
				                 together, &c);
				if (best.cost < 0 || c.cost < best.cost)
					best = c;
			}
	return best;
}

bool splits_sums(const Graph *g, Ref dot, const Machine *machine)
{
	Sched one = {.height = 1, .columns = 1, .depth = 1};
	if (machine->threads == 1)
		return false;
	BlockSizes z = block_sizes(g, &(Kern){.root = dot, .sched = &one}, machine);
	return choose_tile(machine, &z, 1, MOST_PARTS, SUMS).parts > 1;
}

// Returns how many tiles of a column a worker has, one after the other, so that partial results of
// its rows are few: as many as cost no time.
static int64_t choose_strips(const Scheduler *t, const BlockSizes *z)
{
	int64_t best = 1, least = INT64_MAX, wave = wave_of(t->machine);
	for (int64_t strips = 1; strips <= z->down; strips++) {
		int64_t workers = z->across * ceil_div(z->down, strips);
		int64_t time = ceil_div(workers, wave) * strips;
		if (time > least)
			continue;
		least = time;
		best = strips;
	}
	return best;
}

// Returns how far neighbors along k, or along the rows or columns of an operand, are apart in
// memory, or in the value under its windows; IRREGULAR if it depends; 0 if the operand is computed.
static int64_t step_of(Scheduler *t, const DotSizes *p, int o, bool along, bool *windows)
{
	const Val *v = val(t->graph, t->kern->root);
	Vars *w = vars_new(t->scratch);
	int64_t own = o ? p->n : p->m, extent = along ? p->k : own;
	Index batch = some_index(w, p->batch), other = some_index(w, along ? own : p->k);
	Index none = constant_index(0), pair = some_index(w, extent / 2), place[2];
	for (int e = 0; e < 2; e++) {
		Index side = shift_index(add_index(w, &none, &pair, 2), e), idx[RANK];
		bool first = (o == 1) == along; // of the operand's two axes
		const Index *one = first ? &side : &other, *two = first ? &other : &side;
		Ref r = v->in[o];
		double fill;
		dot_index(w, t->graph, v, p, o, &batch, one, two, idx);
		*windows = !locate(w, t->graph, &t->inside, &r, idx, &place[e]);
		if (!*windows)
			continue;
		r = v->in[o];
		dot_index(w, t->graph, v, p, o, &batch, one, two, idx);
		if (!windows_of(w, t->graph, &t->inside, &r, idx, &fill))
			return 0;
		place[e] = ravel(w, &val(t->graph, r)->shape, idx);
	}
	Index apart = add_index(w, &place[1], &place[0], -1);
	return apart.n ? IRREGULAR : llabs(apart.constant);
}

// Threads side by side read what is side by side in memory, or nearly so.
static Packing choose_packing(Scheduler *t, const DotSizes *p, int o)
{
	bool windows;
	int64_t beside = step_of(t, p, o, false, &windows), step = step_of(t, p, o, true, &windows);
	if (beside > 0)
		return beside < step || step == IRREGULAR ? W_copy : W_transpose;
	const Val *v = val(t->graph, t->kern->root);
	Vars *w = vars_new(t->scratch);
	Index batch = some_index(w, p->batch), k = some_index(w, p->k);
	Index other = some_index(w, o ? p->n : p->m), idx[RANK];
	dot_index(w, t->graph, v, p, o, &batch, o ? &k : &other, o ? &other : &k, idx);
	int own = far_reads(w, t->graph, &t->inside, v->in[o], idx, &other);
	int along = far_reads(w, t->graph, &t->inside, v->in[o], idx, &k);
	return own < along ? W_copy : W_transpose;
}

// Returns how many sums of a product by matrix instructions a thread may have beside the elements
// of an operand that it loads one by one: lines of an odd length begin at any address, where
// fragments take registers, too; those under windows have indices of their own.
static int64_t sums_beside(Scheduler *t, const BlockSizes *z, int o)
{
	const DotSizes *p = &z->dot;
	bool along = (o ? t->sched->b : t->sched->a) == W_transpose;
	bool fragments = !has_group_matrix(t->machine, z->matrix, INT64_MAX), windows;
	int64_t step = step_of(t, p, o, along, &windows), line = along ? p->k : o ? p->n : p->m;
	if (z->matrix && windows && step && step != 1)
		return SUMS / 4;
	return is_half(z->matrix) && fragments && line % 2 ? SUMS / 2 : SUMS;
}

void tile_block(Scheduler *t)
{
	Sched *s = t->sched;
	s->partition = P_blocks;
	for (int o = 0; o < t->kern->nout; o++)
		if (is_reduced_out(t->graph, t->kern, o))
			add_step(t, &s->reduce, t->kern->out[o], 0);
	s->height = s->columns = s->depth = 1;
	BlockSizes z = block_sizes(t->graph, t->kern, t->machine);
	s->a = choose_packing(t, &z.dot, 0);
	s->b = choose_packing(t, &z.dot, 1);
	int64_t parts = s->reduce.count ? 1 : MOST_PARTS;
	int64_t beside = MIN(sums_beside(t, &z, 0), sums_beside(t, &z, 1));
	// What reductions have of the tiles before takes registers, too.
	int64_t sums = s->reduce.count > REDUCTIONS ? MIN(beside, SUMS / 2) : beside;
	Choice best = choose_tile(t->machine, &z, t->together, parts, sums);
	const Kind *kind = kind_of(t->machine, z.matrix, best.height);
	s->height = best.height;
	s->columns = best.columns;
	s->parts = best.parts > 1 ? best.parts : 0;
	s->depth = kind->depth;
	if (!z.matrix && s->height * z.dot.bytes == kind->most && s->columns == s->height)
		s->depth /= 2; // so many sums leave few registers for loads
	bool between = z.matrix == E_f32 && !t->machine->exact;
	int64_t lines = s->height + s->columns + (between ? BETWEEN : 0);
	if (z.matrix && beside == SUMS && 2 * lines * 2 * MATRIX_LINE <= MOST)
		s->depth *= 2; // few products in a step do not hide what a step costs
	s->unroll = kind->unroll;
	s->together = bytes_read(t) > FEW_BYTES ? TOGETHER / 2 : TOGETHER;
	int64_t bytes = z.matrix ? elems[z.matrix].bytes : z.dot.bytes;
	int64_t stage = (s->height + s->columns) * s->depth * bytes;
	s->stages = MAX(2, MIN(kind->buffers, kind->shared / stage));
	z = block_sizes(t->graph, t->kern, t->machine);
	if (s->reduce.count)
		s->strips = choose_strips(t, &z);
	z = block_sizes(t->graph, t->kern, t->machine);
	int64_t each = ceil_div(t->together * z.part_size, wave_of(t->machine));
	int64_t some = MAX(LEAST, MIN(ELEMENTS, each));
	s->workers = z.dot.batch * z.bands * z.across * best.parts;
	s->after = s->parts          ? ceil_div(z.part_size, some)
	           : s->reduce.count ? ceil_div(z.dot.n, partial_columns(t->machine, z.dot.n))
	                             : 0;
	s->work = z.work;
}
