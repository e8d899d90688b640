// tiling.c: chooses tile and block sizes of a dot.
// They are a function of shapes, the machine and the kernel's tuning alone: machines.def gives the
// register tile, all else follows from the sizes of caches. Operands that several groups of workers
// would pack are packed once, before.
#include "tiling.h"
#include <math.h>

enum {
	WORTH = 1 << 20, // operations of a worker
	AHEAD = 8,       // steps of k that b in place is prefetched ahead
	SLICED = 64,     // steps of k of a block of slices: a strip and a panel fit in L1, 48 KiB
	                 // where there are matrix registers
	AT_ONCE = 384,   // the same, if that is all of k: all products hide the maps of others
};

void update_sizes(Tiling *d)
{
	d->p = dot_sizes(d->t->scratch, d->t->graph, &d->t->inside, d->t->kern, d->t->machine);
}

int64_t tile_vectors(const Machine *machine, int matrix, int64_t rows, int64_t columns)
{
	enum { SUMS = 4 }; // of eight matrix registers
	int64_t vectors = ceil_div(columns, machine->lanes), wide = machine->vectors;
	if (matrix)
		return MIN(vectors, rows <= matrix ? SUMS : SUMS / 2);
	return vectors == 1 || (vectors % wide == 1 && vectors < 4 * wide) ? 1 : wide;
}

// A tile as high as divides the rows evenly, and as wide as the columns are; narrow ones are
// higher.
void choose_register_tile(Tiling *d)
{
	const Machine *machine = d->t->machine;
	Sched *s = d->t->sched;
	int64_t high = machine->rows, longest = machine->depth, width = machine->lanes;
	int64_t wide = tile_vectors(machine, d->p.matrix, d->p.m, d->p.n);
	s->unroll = machine->unroll * d->t->tuning->unroll;
	if (d->p.matrix) {
		high = MIN(2, ceil_div(d->p.m, d->p.matrix)) * d->p.matrix;
		// A strip and a panel fit in L1, or are twice as long if no sum waits then. Those
		// of slices fit, since most of the time goes to loads: twice as long ones take 5/4
		// of the time.
		longest = d->p.slices > 1 ? SLICED : machine->l1 / (2 * high * d->p.bytes);
		if (d->p.steps <= (d->p.slices > 1 ? AT_ONCE : 2 * longest))
			longest = d->p.steps;
		s->unroll = d->p.matrix;
	} else if (wide < machine->vectors) {
		high = machine->narrow;
	} else if (d->t->tuning->wider) { // as many sums, fewer rows
		wide += d->t->tuning->wider;
		high = (machine->registers - 1 - wide) / wide;
	}
	s->vectors = wide * width / d->p.lanes;
	// Wider elements take more registers.
	d->high = MAX(1, (high * wide + wide) / s->vectors - 1);
	s->height = ceil_div(d->p.m, ceil_div(d->p.m, d->high));
	int64_t blocks = ceil_div(d->p.steps, longest), unit = MAX(machine->unroll, d->p.matrix);
	int64_t grain = blocks > 1 ? MAX(width, unit) : unit;
	s->depth = ceil_div(ceil_div(d->p.steps, blocks), grain) * grain;
}

// True if matrix registers can load pairs of a as they lie: the last step of a row of an odd number
// of elements is then one of a tail, which is copied.
static bool has_pairs(const DotSizes *p)
{
	return p->k % p->fold == 0 || (p->matrix && p->steps % p->matrix);
}

static void look_at_operand(Tiling *d, int o)
{
	Scheduler *t = d->t;
	Vars *w = vars_new(t->scratch);
	Index batch = some_index(w, d->p.batch), idx[RANK];
	Index row = some_index(w, o ? d->p.k : d->p.m), column = some_index(w, o ? d->p.n : d->p.k);
	Ref r = d->v->in[o];
	dot_index(w, t->graph, d->v, &d->p, o, &batch, &row, &column, idx);
	d->stride[o] = operand_stride(w, t->graph, &t->inside, d->v, &d->p, o, &batch);
	bool pairs = o == 0 && d->p.fold > 1 && d->stride[o].along == 1 && has_pairs(&d->p);
	d->stride[o].fixed &= pairs || val(t->graph, r)->type == d->v->type;
	d->stride[o].fixed &= d->p.slices == 1;
	if (o && d->p.slices == 1)
		lies_in_pairs(w, t->graph, &t->inside, d->v, &d->p, &batch, &d->stride[o]);
	int down = far_reads(w, t->graph, &t->inside, r, idx, &row);
	int along = far_reads(w, t->graph, &t->inside, r, idx, &column);
	d->copied[o] = o ? down >= along : down < along;
}

// True if steps of k this far apart stay in L2 from one strip to the next.
static bool near(const Tiling *d, int64_t stride)
{
	return d->p.k * stride * d->p.bytes <= d->cache / 4;
}

// Returns how many strips, packed together, fill a third of L2.
static int64_t most_strips(const Tiling *d)
{
	return d->cache / 3 / (d->p.strip_size * d->p.bytes);
}

static void choose_group(Tiling *d)
{
	int64_t most = most_strips(d);
	d->t->sched->group = d->t->sched->a == W_copy ? MAX(1, MIN(64, most)) : 1;
}

bool can_share(const Tiling *d, int o)
{
	enum { MATRIX = 64 << 20 };
	const struct Shared *c = &d->p.shared[o];
	int64_t bytes = c->batches * d->p.blocks * c->size * d->p.bytes;
	return !d->t->tuning->alone && bytes <= (d->p.matrix ? MATRIX : MOST_SHARED) &&
	       (c->batches == 1 || c->batches == d->p.batch);
}

// ---- how operands come to the tile --------------------------------------------------------

// a is read in place where k is contiguous and rows do not meet in one set of L1, or all have a way
// of it and b has others, or where its rows are and few panels meet it.
static void choose_a(Tiling *d)
{
	enum { WAYS = 8, LINE = 64, SETS = 4096 / LINE }; // of the first cache
	enum { FEWEST = 4 };                              // panels
	Sched *s = d->t->sched;
	if (choose_windows(d))
		return;
	Stride a = d->stride[0];
	int64_t bytes = elems[val(d->t->graph, d->v->in[0])->type].bytes;
	int64_t down = a.down * bytes, along = a.along * bytes;
	// How many lines of memory a step of k apart the first cache holds.
	int64_t step = SETS, held = WAYS * SETS / 2;
	while (along / LINE % step)
		step /= 2;
	if (along % LINE == 0)
		held = WAYS * SETS / step;
	// Matrix registers read a line of memory whole, so one strip does not need it again.
	bool few = !d->p.matrix && s->height <= WAYS - 2;
	bool apart = ((few || down % 4096) && along % 4096) || d->p.m <= d->p.matrix;
	if (d->p.matrix && d->p.panels > FEWEST) // registers load full lines
		apart &= down % LINE == 0;
	bool lies = a.fixed && (s->height == 1 || apart) && !d->t->tuning->packed;
	bool in_order = a.along == 1 || (a.down == 1 && near(d, a.along) && held >= d->p.k);
	s->a = lies && in_order ? W_place : d->copied[0] ? W_copy : W_transpose;
	update_sizes(d);
	choose_group(d);
}

// What it costs that operand o comes to `times` groups of workers: read in place, packed by each,
// or packed by the launch before, written to memory and read from there.
static double passes(const Tiling *d, int o, int64_t times, Packing way)
{
	if (way == W_place)
		return 0.3 * (double)times;
	if (way == W_patch)
		return (double)times * patch_cost(d);
	return times > 1 && can_share(d, o) ? 1.5 + 0.25 * (double)times : (double)times;
}

// What it costs that operands come to so many blocks, in elements packed for each step of k.
static double packing(const Tiling *d, int64_t rows, int64_t columns)
{
	enum { SHORT = 256 }; // k of products that take less time than to write what they compute
	const DotSizes *p = &d->p;
	double cost = (double)p->n * passes(d, 1, rows, W_copy) +
	              (double)p->m * passes(d, 0, columns, (Packing)d->t->sched->a);
	if (p->matrix && p->k <= SHORT) // rows in pieces are written at half the speed
		cost += (double)(p->m * (columns - 1));
	return cost;
}

static int64_t operations(const DotSizes *p)
{
	return 2 * p->batch * p->m * p->n * p->k;
}

// Returns how many workers are each worth a launch.
static int64_t wanted_workers(const DotSizes *p, const Machine *machine)
{
	return MAX(1, MIN(machine->workers, operations(p) / WORTH));
}

// Returns how many workers at most share the sums of a product, each of them for a part of k, so
// that each operand is packed once. 0: none do, since sums are short or do not stay in L2, or in
// half of it where matrix registers multiply, whose operands arrive faster. steps, blocks: of k;
// with slices, steps are terms.
static int64_t parts_of_sums(const DotSizes *p, int64_t steps, int64_t blocks,
                             const Machine *machine)
{
	enum { LEAST = 4, LONG = 400 }; // parts; steps of a part, so that adding parts costs little
	int64_t parts = MIN(MIN(steps / LONG, blocks), wanted_workers(p, machine));
	int64_t room = machine->l2 / (has_thread_matrix(machine) ? 2 : 1);
	bool few = parts < LEAST || p->batch > 1 || p->m * p->n * p->bytes > room;
	return few ? 0 : parts;
}

bool splits_sums(const Graph *g, Ref dot, const Machine *machine)
{
	if (machine->threads > 1)
		return blocks_split_sums(g, dot, machine);
	const Val *v = val(g, dot);
	DotSizes p = matrix_sizes(g, v);
	// Blocks, which are not known yet, are no fewer than the parts of such long sums.
	return multiplies_slices(g, machine, p.m, p.n, p.k, false) &&
	       !windows_of_matrix(g, v->in[0]) &&
	       parts_of_sums(&p, p.k, p.k, machine) == machine->workers;
}

static void choose_parts(Tiling *d)
{
	Sched *s = d->t->sched;
	int64_t steps = d->p.slices > 1 ? d->p.k : d->p.steps, blocks = d->p.blocks;
	int64_t parts = s->reduce.count ? 0 : parts_of_sums(&d->p, steps, blocks, d->t->machine);
	s->parts = parts ? ceil_div(blocks, ceil_div(blocks, parts)) : 0;
}

// Blocks for workers: each worth a launch, with the least packing. Panels of a block fit in half of
// L2, and so do waiting sums. If the launch before packs panels but not strips, which each block
// then copies, panels fit in L3: a group of strips meets each panel while it is in L1. Returns the
// cost.
double choose_split(Tiling *d)
{
	enum { UPDATE = 2, ADD = 6 };    // costs: of a sum and block, sum and part
	enum { L3 = 4 << 20, MANY = 4 }; // bytes; strips of a group
	const DotSizes *p = &d->p;
	Sched *s = d->t->sched;
	int64_t half = d->cache / 2;
	bool grouped =
	    s->a == W_copy && s->group >= MANY && !p->matrix && can_share(d, 1) && !can_share(d, 0);
	int64_t held = grouped ? MAX(half, L3) : half;
	int64_t cap = MAX(1, held / (s->depth * p->width * p->bytes * p->slices));
	int64_t wanted = wanted_workers(p, d->t->machine);
	int64_t unit = s->a == W_patch ? s->group : 1, units = ceil_div(p->strips, unit);
	choose_parts(d);
	double least_cost = 0, adding = 0;
	if (p->blocks > 1)
		adding = UPDATE / (double)s->depth + (double)s->parts * ADD / (double)p->k;
	wanted = MAX(1, (wanted + s->parts / 2) / MAX(1, s->parts));
	s->batches = MAX(1, MIN(p->batch / wanted, p->batch * WORTH / operations(p)));
	s->panels = 0;
	for (int64_t columns = ceil_div(p->panels, cap); columns <= p->panels; columns++) {
		int64_t each = ceil_div(p->panels, columns);
		if (ceil_div(p->panels, each) != columns)
			continue;
		int64_t rows = MIN(units, ceil_div(wanted, columns * p->batch));
		int64_t waiting = ceil_div(p->m * each * p->width * p->bytes, half);
		if (p->blocks > 1)
			rows = MAX(rows, MIN(units, waiting));
		int64_t own = ceil_div(units, rows);
		if (ceil_div(units, own) * columns * p->batch < wanted)
			own = MAX(1, units / rows);
		rows = ceil_div(units, own);
		double cost = packing(d, rows, columns) + (double)(p->m * p->n) * adding;
		int64_t workers = rows * columns * p->batch;
		if (workers <
		    wanted) // matrix registers have few panels: as many workers as there are
			cost += 1e3 * (double)(p->n + p->m) *
			        (double)(p->matrix ? wanted - workers : 1);
		if (s->panels && cost >= least_cost)
			continue;
		least_cost = cost;
		s->panels = each;
		s->strips = own * unit;
	}
	update_sizes(d);
	return least_cost;
}

// Each step copies a piece of a row of memory to the strips of a group. Blocks of fewer steps have
// longer pieces, where one worker alone copies a strip.
static void choose_pieces(Tiling *d)
{
	enum { FEWEST = 128, LONG = 16 }; // steps, strips
	Sched *s = d->t->sched;
	while (s->a == W_copy && d->p.across == 1 && s->depth >= 2 * FEWEST &&
	       s->group < MIN(LONG, s->strips)) {
		s->depth = ceil_div(s->depth / 2, d->p.lanes) * d->p.lanes;
		update_sizes(d);
		choose_group(d);
		choose_split(d);
	}
}

// True if the launch before packs operand o, because several groups of workers need it.
static bool is_shared(const Tiling *d, int o, Packing way, int64_t groups)
{
	if (d->p.shared[o].batches == 1)
		groups *= ceil_div(d->p.batch, d->t->sched->batches);
	bool packed = way == W_copy || way == W_transpose;
	return packed && groups > 1 && can_share(d, o);
}

// Workers of one call multiply a block of k in turn, so that it comes to L2 once for all of them.
// Their sums, which wait for the next block, take half of L2. A small machine lacks the memory.
static int64_t choose_gang(const Tiling *d)
{
	const Sched *s = d->t->sched;
	bool waits = d->t->machine->workers > 1 && d->p.blocks > 1 && d->p.batch == 1 &&
	             s->parts <= 1 && s->a != W_winograd;
	return waits ? MIN(d->p.down * d->p.across, d->cache / 2 / d->p.sums) : 0;
}

// True if a gang packs its strips, once for all of its columns, and the launch before packs
// nothing: slices that it writes come from memory again, which takes longer than to pack them
// twice. L2 holds all strips of a block.
static bool keeps_strips(const Tiling *d)
{
	const Sched *s = d->t->sched;
	bool again = s->a == W_copy || (s->a == W_transpose && d->p.across > 1);
	return d->p.slices > 1 && s->gang > 1 && again && d->p.strips <= most_strips(d);
}

// True if lanes of pairs along k cross the end of a line of windows.
static bool is_crossed(const Tiling *d)
{
	return d->p.line < d->p.k && d->p.line % d->p.fold;
}

// True if panels of b lie in memory as the tile reads them.
static bool lies_in_panels(const Tiling *d)
{
	return d->stride[1].fixed && d->stride[1].along == 1 && d->stride[1].panels &&
	       !d->t->tuning->packed && !is_crossed(d) && d->t->sched->a != W_winograd;
}

// True if few rows meet a large b whose rows are apart, and it has panels for all workers: it comes
// from memory, once.
static bool streams_rows(const Tiling *d)
{
	enum { STRIPS = 4 };
	const Machine *machine = d->t->machine;
	return !d->p.matrix && d->p.batch == 1 && d->p.strips <= STRIPS &&
	       d->p.panels >= machine->workers && lies_in_panels(d) &&
	       d->stride[1].down > d->p.width && d->p.k * d->p.n * d->p.bytes > 2 * machine->l2;
}

// Then a worker has all rows, and blocks of k are so few steps that it reads on in each row of b
// where it stopped, while its sums wait in L1 or L2.
static void choose_stream(Tiling *d)
{
	enum { STEPS = 16 };
	Sched *s = d->t->sched;
	if (!streams_rows(d))
		return;
	s->depth = STEPS;
	s->strips = d->p.strips;
	s->panels = ceil_div(d->p.panels, d->t->machine->workers);
	s->parts = 0;
	update_sizes(d);
}

// Returns how many workers columns of b are worth, which come from memory or L2.
static int64_t column_workers(const Tiling *d)
{
	enum { WORTH = 256 << 10 }; // bytes of a worker
	return MAX(1, MIN(d->t->machine->workers, d->p.k * d->p.n * d->p.bytes / WORTH));
}

enum { ALONG = 16 }; // steps of k that a line of memory has, if lanes are steps of k

// True if few rows meet columns of b, and both lie in memory along k: packing panels of b would
// take longer than multiplying them. There are columns for all workers.
static bool meets_columns(const Tiling *d)
{
	enum { ROWS = 8 };
	const Stride *a = &d->stride[0], *b = &d->stride[1];
	int64_t lanes = d->t->machine->lanes;
	bool lies = a->fixed && a->along == 1 && b->fixed && b->down == 1 && b->along > 1;
	return lies && !has_windows(d->t->sched) && !d->t->tuning->packed && d->p.m <= ROWS &&
	       d->p.batch == 1 && d->v->type == E_f32 && d->p.fold == 1 && d->p.k % ALONG == 0 &&
	       d->p.n % lanes == 0 && d->p.n / lanes >= column_workers(d);
}

// Then a worker reads each of its columns once, from the first step of k to the last.
static void choose_columns(Tiling *d)
{
	enum { SOON = 512, VECTORS = 4 }; // steps of k; vectors of them
	Sched *s = d->t->sched;
	if (!meets_columns(d))
		return;
	s->a = W_place;
	s->b = W_along;
	s->b_ahead = SOON;
	s->vectors = s->strips = s->group = 1;
	s->height = d->p.m;
	s->depth = d->p.k;
	s->unroll = MIN(ALONG, VECTORS * d->t->machine->lanes);
	s->order = N_strips;
	s->parts = 0;
	update_sizes(d);
	s->panels = ceil_div(d->p.panels, column_workers(d));
	update_sizes(d);
}

// b is read in place if few strips meet it, and every panel is complete.
static void choose_b(Tiling *d)
{
	enum { FEW = 10 };
	if (d->t->sched->b == W_along)
		return;
	const Scheduler *t = d->t;
	const Tuning *tuning = t->tuning;
	Sched *s = t->sched;
	Stride b = d->stride[1];
	bool few = s->strips == 1 || (s->strips <= FEW && near(d, b.down)) || streams_rows(d);
	bool crossed = is_crossed(d);
	bool lies = few && lies_in_panels(d);
	bool copied = d->copied[1] || crossed || s->a == W_winograd;
	bool far = d->p.panels > 1 && d->p.k * d->p.n * d->p.bytes > d->cache / 2;
	bool streams = lies && far && b.down == d->p.width && !d->p.matrix && s->a != W_patch;
	if (streams && s->strips > 1 && !tuning->still) { // meanwhile the next panel comes to L2
		s->order = N_panels;
		s->group = s->strips;
	}
	s->b = lies ? W_place : copied ? W_copy : W_transpose;
	s->next = !tuning->still && !d->p.matrix && (lies || t->machine->apart);
	s->b_ahead = !s->next ? 0 : lies ? AHEAD : t->machine->ahead;
}

// Chooses what the launch before packs for all workers, and what gangs pack for theirs.
static void choose_sharing(Tiling *d)
{
	Sched *s = d->t->sched;
	Stride a = d->stride[0];
	s->gang = choose_gang(d);
	s->kept = keeps_strips(d);
	if (s->kept)
		s->group = d->p.strips;
	bool rows = a.fixed && a.along == 1; // packing a strip is a mere copy
	s->a_shared = !rows && !s->kept && is_shared(d, 0, (Packing)s->a, d->p.across);
	// A gang packs b once for all of its rows.
	int64_t groups = s->gang > 1 ? d->p.down / 2 : d->p.down;
	s->b_shared = !d->p.squares.summed && !s->kept && is_shared(d, 1, (Packing)s->b, groups);
	update_sizes(d);
	bool next = (rows && a.down && s->b != W_along) ||
	            s->a_shared; // the tile may prefetch the next strip
	if (next && !d->p.matrix && s->panels > 1 && s->order == N_strips && !d->t->tuning->still)
		s->a_ahead =
		    ceil_div(s->a_shared && s->a == W_copy ? d->p.a_step : s->height, s->panels);
}

// ---- workers ------------------------------------------------------------------------------

// Returns the time of the busiest processor if workers have such blocks, in multiply-adds for each
// step of k.
static double busiest(const Tiling *d, const Sched *s)
{
	enum { PACK = 50, SLICE = 150 }; // an element; in slices
	const DotSizes *p = &d->p;
	int64_t rows = ceil_div(p->strips, s->strips), columns = ceil_div(p->panels, s->panels);
	int64_t parts = MAX(1, s->parts);
	int64_t workers = ceil_div(p->batch, s->batches) * rows * columns * parts;
	int64_t rounds = ceil_div(workers, d->t->machine->processors);
	double pack = packing(d, rows, columns) * (p->slices > 1 ? SLICE : PACK);
	return (double)(rounds * s->strips * s->panels * s->batches) /
	       (double)(p->strips * p->panels * p->batch * parts) * ((double)(p->m * p->n) + pack);
}

// Gives workers smaller blocks, or fewer batches, if that divides the product more evenly among
// the processors. No sum depends on it: those of columns have a part for each worker's rows, whose
// number stays.
static void choose_evenly(Tiling *d)
{
	enum { EACH = 4 };        // workers of a processor
	const double GAIN = 0.95; // of the time
	const DotSizes p = d->p;
	Sched *s = d->t->sched, best = *s;
	int64_t processors = d->t->machine->processors;
	int64_t most = MIN(EACH * processors, operations(&p) / WORTH);
	int64_t unit = has_windows(s) ? s->group : 1;
	bool fixed = s->reduce.count && !reduces_along(d->t->kern);
	int64_t units = ceil_div(p.strips, unit), down = fixed ? p.down : units;
	if (processors <= 2 || p.squares.summed)
		return;
	double least = GAIN * busiest(d, s);
	for (int64_t batches = s->batches; batches; batches--) {
		int64_t room = most / ceil_div(p.batch, batches) / MAX(1, s->parts);
		for (int64_t rows = p.down; rows <= MIN(down, room); rows++)
			for (int64_t columns = p.across; columns <= MIN(p.panels, room / rows);
			     columns++) {
				Sched now = *s;
				now.batches = batches;
				now.panels = ceil_div(p.panels, columns);
				if (rows > p.down)
					now.strips = ceil_div(units, rows) * unit;
				double time = busiest(d, &now);
				best = time < least ? now : best;
				least = fmin(least, time);
			}
	}
	*s = best;
	update_sizes(d);
}

// Sets the workers of the launches, and their memory.
static void count_workers(const Tiling *d)
{
	Sched *s = d->t->sched;
	const Kern *kern = d->t->kern;
	int64_t joined = reduces_along(kern) ? ceil_div(d->p.m, ROWS_JOINED) : d->p.panels;
	bool used[] = {s->a_shared, s->b_shared};
	for (int o = 0; o < COUNT(used); o++)
		if (used[o])
			s->before += d->p.shared[o].batches * d->p.blocks * d->p.shared[o].pieces;
	s->workers = ceil_div(d->p.batch, s->batches) * d->p.down * d->p.across * MAX(1, s->parts);
	s->after = s->parts > 1 ? d->p.strips : s->reduce.count ? joined : 0;
	s->work = d->p.partials + s->reduce.count * partial_elements(kern, &d->p) * PARTIAL;
	s->local = d->p.local;
}

void tile_product(Scheduler *t)
{
	Tiling d = {.t = t,
	            .v = val(t->graph, t->kern->root),
	            .cache = t->machine->l2 * t->tuning->cache / 100};
	Sched *s = t->sched;
	s->order = t->tuning->order;
	s->partition = P_tiles;
	for (int o = 0; o < t->kern->nout; o++)
		if (is_reduced_out(t->graph, t->kern, o))
			add_step(t, &s->reduce, t->kern->out[o], 0);
	update_sizes(&d);
	if (d.p.matrix) // there is room for the sums of one strip, whatever the tuning
		s->order = N_strips;
	choose_register_tile(&d);
	update_sizes(&d);
	look_at_operand(&d, 0);
	look_at_operand(&d, 1);
	choose_a(&d);
	if (has_windows(s))
		size_windows(&d);
	else
		choose_split(&d);
	choose_pieces(&d);
	choose_stream(&d);
	choose_columns(&d);
	choose_evenly(&d);
	choose_b(&d);
	update_sizes(&d);
	choose_sharing(&d);
	update_sizes(&d);
	count_workers(&d);
}
