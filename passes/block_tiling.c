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
	LOAD = 32,        // rows or columns that threads load at once
};

typedef struct Kind {            // of products
	int64_t height, columns; // the least of a tile
	int64_t most;            // bytes of a side, in sums
	int64_t depth, buffers, unroll;
	double product, load; // cost of one, and of an element
} Kind;

// Of exact machines, whose operands pass through registers, a stage is multiplied while one is
// loaded.
#define MATRIX MATRIX_ROWS, MATRIX_COLUMNS, 512
static const Kind fused = {16, 16, 512, 16, 2, 2, 1, 16},
                  half = {MATRIX, MATRIX_LINE / 2, BUFFERS, 1, 0.0625, 8},
                  tf32 = {MATRIX, MATRIX_LINE / 4, BUFFERS, 1, 0.125, 16},
                  groups = {64, 64, 512, MATRIX_LINE / 2, BUFFERS, 1, 0.04, 8},
                  exact_half = {MATRIX, MATRIX_LINE / 2, 2, 1, 0.0625, 8},
                  exact_f32 = {MATRIX, MATRIX_LINE / 4, 2, 1, 0.5, 16};

typedef struct Choice {
	int64_t height, columns, parts;
	bool alone, swapped;
	double cost;
} Choice;

typedef struct Bounds {    // what tiles there may be
	int64_t parts;     // of a sum, at most
	int64_t sums;      // of a thread, at most
	int64_t uneven[2]; // the same if rows, or columns, are not a power of two; 0: they must be
} Bounds;

// The time of the busiest multiprocessor, in fused products of a thread block, if `together`
// products are a launch.
static double cost_of(const Kind *kind, const DotSizes *p, const Machine *machine, int together,
                      const Choice *c)
{
	// In steps of k, of two blocks that overlap and of one alone; of a sum of a part; of all.
	const double START = 24, ALONE = 300, ADD = 72, LAUNCH = 5e5;
	const double RAGGED = 1.03; // a factor: rows end anywhere in lines of memory
	double products = (double)(together * p->batch);
	double tiles = products * (double)(ceil_div(p->m, c->height) * ceil_div(p->n, c->columns));
	double blocks = (double)busiest_blocks((int64_t)tiles * c->parts, machine->workers);
	double steps = (double)ceil_div(p->k, c->parts) + (c->alone ? ALONE : START);
	int64_t side = c->swapped ? c->height : c->columns;
	bool even = is_power_of_two(side) || side % GROUP_LINE == 0;
	double loaded = (double)(c->height + c->columns + ceil_div(side, LOAD) * LOAD - side);
	double cost = blocks * steps * (even ? 1 : RAGGED) *
	              ((double)(c->height * c->columns) * kind->product + loaded * kind->load);
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

// Tries to split the sums of a tile, into no more parts than `parts`.
static void try_tile(const Machine *machine, const BlockSizes *z, int together, int64_t parts,
                     Choice c, Choice *best)
{
	const Kind *kind = kind_of(machine, z->matrix, c.height);
	int64_t least = c.alone ? 2 * LEAST_PART : LEAST_PART;
	for (c.parts = 1; c.parts == 1 || (c.parts <= parts && z->dot.k / c.parts >= least);
	     c.parts++) {
		c.cost = cost_of(kind, &z->dot, machine, together, &c);
		if (best->cost < 0 || c.cost < best->cost)
			*best = c;
	}
}

// Tries tiles of warpgroups of which one side is not a power of two; the other has the rows of
// their instructions.
static void try_uneven(const Machine *machine, const BlockSizes *z, int together,
                       const Bounds *bounds, Choice *best)
{
	int64_t most = groups.most / z->dot.bytes;
	for (int o = 0; o < 2; o++) {
		int64_t widest = bounds->uneven[o] * machine->threads / most;
		for (int64_t side = GROUP_LINE + GROUP_UNIT; side < widest; side += GROUP_UNIT) {
			Choice c = {.height = o ? most : side,
			            .columns = o ? side : most,
			            .alone = side > most,
			            .swapped = !o};
			if (!c.alone || z->dot.k >= 2 * LEAST_PART)
				try_tile(machine, z, together, bounds->parts, c, best);
		}
	}
}

static Choice choose_tile(const Machine *machine, const BlockSizes *z, int together,
                          const Bounds *bounds)
{
	int64_t parts = bounds->parts, sums = bounds->sums;
	Choice best = {.cost = -1}, c = {.alone = false};
	const Kind *kind = kind_of(machine, z->matrix, 0); // of the lowest tiles
	const DotSizes *p = &z->dot;
	int64_t most = kind->most / p->bytes;
	for (c.height = largest(p->m, kind->height, most); c.height >= kind->height; c.height /= 2)
		for (c.columns = largest(p->n, kind->columns, most); c.columns >= kind->columns;
		     c.columns /= 2)
			if (c.height * c.columns <= sums * machine->threads)
				try_tile(machine, z, together, parts, c, &best);
	Choice alone = {.height = most, .columns = 2 * most, .alone = true};
	bool fits = alone.height * alone.columns <= sums * machine->threads;
	for (; fits && p->k >= 2 * LEAST_PART && alone.columns > most; alone.columns -= most / 2)
		try_tile(machine, z, together, parts, alone, &best);
	if (has_group_matrix(machine, z->matrix, INT64_MAX))
		try_uneven(machine, z, together, bounds, &best);
	return best;
}

bool blocks_split_sums(const Graph *g, Ref dot, const Machine *machine)
{
	Sched one = {.height = 1, .columns = 1, .depth = 1};
	BlockSizes z = block_sizes(g, &(Kern){.root = dot, .sched = &one}, machine);
	int64_t sums = has_group_matrix(machine, z.matrix, INT64_MAX) ? 2 * SUMS : SUMS;
	Bounds bounds = {.parts = MOST_PARTS, .sums = sums, .uneven = {sums, sums}};
	return choose_tile(machine, &z, 1, &bounds).parts > 1;
}

int64_t share_evenly(const Machine *machine, int64_t units, int64_t across, int64_t most)
{
	int64_t best = 1, least = INT64_MAX;
	for (int64_t each = 1; each <= most; each++) {
		int64_t workers = across * ceil_div(units, each);
		int64_t time = busiest_blocks(workers, machine->workers) * each;
		if (time > least)
			continue;
		least = time;
		best = each;
	}
	return best;
}

typedef struct Pair { // two elements of an operand side by side, from an even place on
	Vars *vars;
	bool found, windows; // in memory; or in the value under windows, with zeros around it
	bool input;          // of the model: anywhere in memory
	bool spaced;         // in rows of any length, each of which begins at a line of memory
	Index place[2];      // there
	int64_t apart;       // elements; IRREGULAR: it depends; 0: not found
} Pair;

static bool is_input(const Graph *g, Ref r)
{
	const Val *v = val(g, r);
	return v->op == O_slot && g->slots.at[v->attr->i[0]].kind == S_input;
}

// Finds neighbors along k, or along the rows or columns of an operand.
static Pair find_pair(Scheduler *t, const DotSizes *p, int o, bool along)
{
	const Val *v = val(t->graph, t->kern->root);
	Vars *w = vars_new(t->scratch);
	int64_t own = o ? p->n : p->m, extent = along ? p->k : own;
	Index batch = some_index(w, p->batch), other = some_index(w, along ? own : p->k);
	Index none = constant_index(0), even = some_index(w, extent / 2);
	Pair pair = {.vars = w, .found = true};
	for (int e = 0; e < 2; e++) {
		Index side = shift_index(add_index(w, &none, &even, 2), e), idx[RANK];
		bool first = (o == 1) == along; // of the operand's two axes
		const Index *row = first ? &side : &other, *column = first ? &other : &side;
		Ref r = v->in[o];
		double fill = 0;
		dot_index(w, t->graph, v, p, o, &batch, row, column, idx);
		pair.windows = !locate(w, t->graph, &t->inside, &r, idx, &pair.place[e]);
		pair.input = is_input(t->graph, r);
		pair.spaced = !pair.windows && val(t->graph, r)->pitch;
		if (!pair.windows)
			continue;
		r = v->in[o];
		dot_index(w, t->graph, v, p, o, &batch, row, column, idx);
		if (!windows_of(w, t->graph, &t->inside, &r, idx, &fill))
			return (Pair){.vars = w};
		pair.input = is_input(t->graph, r);
		pair.place[e] = ravel(w, &val(t->graph, r)->shape, idx);
		pair.found &= fill == 0;
	}
	Index apart = add_index(w, &pair.place[1], &pair.place[0], -1);
	pair.apart = apart.n ? IRREGULAR : llabs(apart.constant);
	return pair;
}

// Threads side by side read what is side by side in memory, or nearly so.
static Packing choose_packing(Scheduler *t, const DotSizes *p, int o)
{
	Pair beside = find_pair(t, p, o, false), step = find_pair(t, p, o, true);
	bool nearer = beside.apart > 0 && (beside.apart < step.apart || step.apart == IRREGULAR);
	if (beside.apart > 0)
		return nearer ? W_copy : W_transpose;
	const Val *v = val(t->graph, t->kern->root);
	Vars *w = vars_new(t->scratch);
	Index batch = some_index(w, p->batch), k = some_index(w, p->k);
	Index other = some_index(w, o ? p->n : p->m), idx[RANK];
	dot_index(w, t->graph, v, p, o, &batch, o ? &k : &other, o ? &other : &k, idx);
	int own = far_reads(w, t->graph, &t->inside, v->in[o], idx, &other);
	int along = far_reads(w, t->graph, &t->inside, v->in[o], idx, &k);
	return own < along ? W_copy : W_transpose;
}

// True if elements of an operand are chosen from several values, as gates are that were put in
// another order.
static bool is_chosen(const Scheduler *t, Ref r)
{
	const Val *v = val(t->graph, r);
	while (t->inside.holds(t->inside.context, r) && v->nin == 1) {
		r = v->in[0];
		v = val(t->graph, r);
	}
	return t->inside.holds(t->inside.context, r) && v->op == O_concat;
}

// True if an operand comes to shared memory by copies, which take no registers: memory has pairs of
// neighbors of its lines.
static bool is_copied(Scheduler *t, const DotSizes *p, int o)
{
	bool along = (o ? t->sched->b : t->sched->a) == W_transpose;
	int64_t line = along ? p->k : o ? p->n : p->m;
	Pair pair = find_pair(t, p, o, along);
	return pair.found && !pair.input && pair.apart == 1 && (line % 2 == 0 || pair.spaced) &&
	       index_align(pair.vars, &pair.place[0]) % 2 == 0;
}

// Returns how many sums of a product by matrix instructions a thread may have beside the elements
// of an operand that it loads one by one: lines of an odd length begin at any address, where
// fragments take registers, too; those under windows have indices of their own, and so have those
// of each value that they are chosen from.
static int64_t sums_beside(Scheduler *t, const BlockSizes *z, int o)
{
	const DotSizes *p = &z->dot;
	bool along = (o ? t->sched->b : t->sched->a) == W_transpose;
	bool half = is_half(z->matrix);
	bool fragments = half && !has_group_matrix(t->machine, z->matrix, INT64_MAX);
	int64_t line = along ? p->k : o ? p->n : p->m;
	Pair pair = find_pair(t, p, o, along);
	bool near = half ? is_copied(t, p, o) : pair.apart == 1;
	if (z->matrix && pair.windows && !near)
		return SUMS / 4;
	bool anywhere = fragments && line % 2 && !pair.spaced;
	bool chosen = is_chosen(t, val(t->graph, t->kern->root)->in[o]);
	return anywhere || chosen ? SUMS / 2 : SUMS;
}

// True if the rows of a tile (o: 0), or its columns, may be uneven: if eight threads each copy a
// step of k under windows, which is somewhere else, they have a power of two of them.
static bool may_be_uneven(Scheduler *t, const DotSizes *p, int o)
{
	bool along = (o ? t->sched->b : t->sched->a) == W_transpose;
	return along || !find_pair(t, p, o, along).windows;
}

// Chooses how many steps of k a stage has, and how many stages, so that multiprocessors have room
// for as many blocks as registers: all that the loop takes before the end, and fewer for few steps.
static void choose_stages(Scheduler *t, const BlockSizes *z, int64_t parts, bool deep)
{
	Sched *s = t->sched;
	const Kind *kind = kind_of(t->machine, z->matrix, s->height);
	bool between = z->matrix == E_f32 && !t->machine->exact;
	int64_t bytes = z->matrix ? elems[z->matrix].bytes : z->dot.bytes;
	int64_t line = (z->lines + (between ? BETWEEN : 0)) * bytes;
	bool even = z->lines == s->height + s->columns;
	int64_t sums = even ? 0 : s->height * (s->columns + BETWEEN) * z->dot.bytes;
	int64_t room = shared_room(t->machine, residents(s, MAIN));
	s->depth = kind->depth;
	s->unroll = kind->unroll;
	if (!z->matrix && s->height * z->dot.bytes == kind->most && s->columns == s->height)
		s->depth /= 2; // so many sums leave few registers for loads
	if (deep && 2 * line * 2 * s->depth <= (kind == &groups ? room : MOST))
		s->depth *= 2; // few products in a step do not hide what a step costs
	int64_t part = ceil_div(z->dot.k, parts), stage = line * s->depth;
	s->stages = MIN(kind->buffers, room / stage);
	s->stages = MAX(2, MIN(s->stages, ceil_div(part, s->depth) + 1));
	int64_t all = MAX(s->stages * stage, sums);
	s->shared = t->machine->shared && all > STATIC_SHARED ? all : 0;
}

// Returns how many rows of a tile, or parts of a sum, a thread finishes side by side: few, if each
// has many bytes to wait for, or elements whose places are data or in one of many values, which
// take registers, too.
static int64_t rows_together(const Scheduler *t)
{
	enum { MANY = 8 };
	bool gathers = false;
	for (int i = 0; i < t->members.count; i++) {
		const Val *v = val(t->graph, t->members.at[i]);
		gathers |= v->op == O_gather || (v->op == O_concat && v->nin > MANY);
	}
	return gathers || bytes_read(t) > FEW_BYTES ? TOGETHER / 2 : TOGETHER;
}

// True if threads finish all columns of a tile at once, and workers may have several tiles.
static bool is_plain(const Choice *c)
{
	return is_power_of_two(c->columns) && (c->swapped || !c->alone);
}

// True if workers can reduce the columns of other tiles: some at a time, each of one tile, of which
// there are few, and in the type of the sums, in whose place threads join what they have.
static bool joins_columns(const Scheduler *t, const BlockSizes *z, const Choice *c)
{
	const ValSteps *reduce = &t->sched->reduce;
	bool fit = true;
	for (int i = 0; i < reduce->count; i++)
		fit &= elems[val(t->graph, reduce->at[i].val)->type].bytes == z->dot.bytes;
	int64_t tiles = ceil_div(z->dot.m, c->height) * ceil_div(z->dot.n, c->columns);
	return !reduce->count || (fit && t->together * z->dot.batch * tiles <= t->machine->workers);
}

void tile_block(Scheduler *t)
{
	Sched *s = t->sched;
	s->partition = P_blocks;
	for (int i = 0; t->kern->reduce && i < t->members.count; i++) {
		const Val *v = val(t->graph, t->members.at[i]);
		if (prims[v->op].cls == C_reduce && !reduces_windows(t->graph, v))
			add_step(t, &s->reduce, t->members.at[i], 0);
	}
	s->height = s->columns = s->depth = 1;
	BlockSizes z = block_sizes(t->graph, t->kern, t->machine);
	s->a = choose_packing(t, &z.dot, 0);
	s->b = choose_packing(t, &z.dot, 1);
	int64_t parts = s->reduce.count ? 1 : MOST_PARTS;
	int64_t beside = MIN(sums_beside(t, &z, 0), sums_beside(t, &z, 1));
	// What reductions have of the tiles before takes registers, too.
	int64_t sums = s->reduce.count > REDUCTIONS ? MIN(beside, SUMS / 2) : beside;
	bool warpgroups = has_group_matrix(t->machine, z.matrix, INT64_MAX);
	bool copied = is_copied(t, &z.dot, 0) && is_copied(t, &z.dot, 1);
	bool wide = warpgroups && copied && beside == SUMS && s->reduce.count <= REDUCTIONS;
	Bounds bounds = {.parts = parts, .sums = wide ? 2 * SUMS : sums};
	for (int o = 0; o < 2; o++)
		if (wide && may_be_uneven(t, &z.dot, o))
			bounds.uneven[o] = 2 * SUMS;
	Choice best = choose_tile(t->machine, &z, t->together, &bounds);
	while (!is_plain(&best) && !joins_columns(t, &z, &best)) {
		bounds.sums = bounds.uneven[1] ? bounds.sums : sums;
		bounds.uneven[1] = 0;
		best = choose_tile(t->machine, &z, t->together, &bounds);
	}
	s->swapped = best.swapped;
	s->height = best.height;
	s->columns = best.columns;
	s->parts = best.parts > 1 ? best.parts : 0;
	s->alone = best.alone;
	z = block_sizes(t->graph, t->kern, t->machine);
	choose_stages(t, &z, best.parts, z.matrix && beside == SUMS && (copied || !warpgroups));
	s->together = rows_together(t);
	z = block_sizes(t->graph, t->kern, t->machine);
	if (s->reduce.count && is_plain(&best)) // tiles of a column have one partial result
		s->strips = share_evenly(t->machine, z.down, z.across, z.down);
	z = block_sizes(t->graph, t->kern, t->machine);
	int64_t each = ceil_div(t->together * z.part_size, wave_of(t->machine));
	int64_t some = MAX(LEAST, MIN(ELEMENTS, each));
	s->workers = z.dot.batch * z.bands * z.across * best.parts;
	s->after = s->parts ? ceil_div(z.part_size, some) : 0;
	s->work = z.work;
}
