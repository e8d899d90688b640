// blocking.c: chooses the schedules of kernels without a tile.
// A schedule gives the elements of a worker, the order of reductions, and the values of a row that
// are kept between them. A worker has enough elements to be worth its start, and few enough to stay
// in cache.
#include "tiling.h"

enum {
	WORK = 8192,     // elements of a worker
	FEW = 4,         // vectors side by side
	MANY = 16,       // the same, if the space comes from memory
	LARGE = 1 << 20, // number of elements from which a space comes from memory
};

// ---- axes -----------------------------------------------------------------------------

static Groups space_groups(Scheduler *t)
{
	const Kern *k = t->kern;
	t->sched->merged = coalesce(vars_new(t->scratch), t->graph, &t->inside, k->nout, k->out,
	                            &k->space, (1u << k->space.rank) - 1, k->reduce, NULL);
	return kern_groups(k);
}

// The threads of a worker share its columns.
static int64_t piece_of(const Scheduler *t, int64_t units)
{
	t->sched->units = t->machine->threads > 1 ? 1 : units;
	return t->sched->units * t->machine->lanes * t->machine->threads;
}

// A worker of a GPU has a few elements for each thread.
static int64_t work_of(const Scheduler *t)
{
	enum { EACH = 4 };
	return t->machine->threads > 1 ? EACH * t->machine->threads : WORK;
}

static bool is_own_reduction(const Scheduler *t, Ref r)
{
	const Val *v = val(t->graph, r);
	return prims[v->op].cls == C_reduce && v->op != O_cumsum &&
	       same_shape(&val(t->graph, v->in[0])->shape, &t->kern->space) &&
	       same_axes(&t->kern->space, axes_mask(v), t->kern->reduce);
}

int64_t bytes_read(const Scheduler *t)
{
	int64_t bytes = 0, count = count_of(&t->kern->space);
	VEC(Ref) seen = {0};
	for (int i = 0; i < t->members.count; i++) {
		const Val *v = val(t->graph, t->members.at[i]);
		for (int k = 0; k < v->nin; k++) {
			const Val *in = val(t->graph, v->in[k]);
			int again = 0;
			while (again < seen.count && seen.at[again] != v->in[k])
				again++;
			if (again < seen.count || count_of(&in->shape) != count ||
			    t->inside.holds(t->inside.context, v->in[k]))
				continue;
			PUSH(t->scratch, seen, v->in[k]);
			bytes += elems[in->type].bytes;
		}
	}
	return bytes;
}

// True for a depthwise convolution.
static bool sums_products(const Scheduler *t, const Val *v)
{
	return v->op == O_sum && val(t->graph, v->in[0])->op == O_mul &&
	       reduces_windows(t->graph, v);
}

// Returns how many of a row's vectors are summed in one loop. A sum waits for its last addition, so
// fewer than FEW take as long as FEW: the number leaves few over, and fits the registers. Less than
// twice as many are one loop.
static int64_t vectors_of_sums(const Scheduler *t, int64_t columns)
{
	int64_t vectors = ceil_div(columns, t->machine->lanes), most = t->machine->registers / 2;
	int64_t best = FEW, least = INT64_MAX;
	for (int64_t units = FEW; units <= most; units++) {
		bool one = vectors < 2 * units;
		int64_t rest = one ? vectors : vectors % units;
		int64_t waits = vectors - rest + (rest ? MAX(rest, FEW) : 0);
		if (waits >= least || (one && vectors > most))
			continue;
		least = waits;
		best = units;
	}
	return best;
}

// Returns how many vectors of a map there are side by side: several, if they share the loop that
// computes them. On a GPU, how many elements of a thread wait for memory at once, which has 24 KB
// or more on the way to a multiprocessor: one, if a loop computes it.
static int64_t map_units(const Scheduler *t, int64_t columns)
{
	enum { HEAVY = 24, BYTES = 4 };
	int weight = 0, single = t->machine->threads == 1;
	for (int i = 0; i < t->members.count; i++) {
		const Val *v = val(t->graph, t->members.at[i]);
		bool loops = prims[v->op].cls == C_reduce || v->op == O_dot;
		if (loops && !is_own_reduction(t, t->members.at[i]))
			return single && sums_products(t, v) ? vectors_of_sums(t, columns) : 1;
		weight += prims[v->op].weight;
	}
	if (single)
		return 1;
	int64_t bytes = bytes_read(t);
	return weight > HEAVY && bytes > 2 * BYTES ? FEW / 2
	       : weight > HEAVY || bytes > BYTES   ? FEW
	                                           : 2 * FEW;
}

static void cut_columns(Scheduler *t, int64_t rows, int64_t columns, int64_t piece)
{
	t->sched->partition = P_columns;
	t->sched->columns = piece;
	t->sched->workers = rows * ceil_div(columns, piece);
}

static void cut_rows(Scheduler *t, int64_t rows, int64_t size)
{
	int64_t few = t->machine->threads > 1 ? wave_of(t->machine) : 8; // workers, at least
	t->sched->partition = P_rows;
	t->sched->rows = MAX(1, MIN(work_of(t) / MAX(1, size), ceil_div(rows, few)));
	t->sched->workers = ceil_div(rows, t->sched->rows);
}

// Returns the elements of a worker of a map; on a GPU, as many workers as there is room for.
static int64_t map_piece(const Scheduler *t, int64_t columns)
{
	int64_t most = work_of(t), least = most / 4, unit = t->machine->threads * t->sched->units;
	if (t->machine->threads == 1)
		return columns < 4 * most ? least : most;
	int64_t each = ceil_div(columns, wave_of(t->machine) * least) * least;
	return MIN(MAX(most, unit), each);
}

static void block_map(Scheduler *t)
{
	Turn turn;
	if (t->machine->threads == 1 && t->kern->kind == L_map && t->kern->nout == 1 &&
	    same_shape(&val(t->graph, t->kern->out[0])->shape, &t->kern->space) &&
	    t->machine->lanes <= SQUARE &&
	    find_turn(t->scratch, t->graph, &t->inside, t->kern->out[0], &turn)) {
		int64_t squares = ceil_div(turn.count, t->machine->lanes);
		int64_t units = MAX(1, MIN(FEW, turn.rows * squares / FEW));
		t->sched->turned = 1;
		t->sched->units = units;
		cut_rows(t, turn.rows * ceil_div(squares, units),
		         turn.columns * units * t->machine->lanes);
		return;
	}
	Groups groups = space_groups(t);
	int64_t count = count_of(&t->kern->space), work = work_of(t);
	int64_t columns = groups.n ? groups.size[groups.n - 1] : 1;
	int64_t narrow = t->machine->threads > 1 ? work : t->machine->lanes / 2;
	t->sched->flat = columns < narrow && count > 1;
	if (t->sched->flat)
		columns = count;
	int64_t rows = count / columns;
	t->sched->units = map_units(t, columns);
	if (rows == 1)
		cut_columns(t, 1, columns, map_piece(t, columns));
	else if (columns >= 2 * work)
		cut_columns(t, rows, columns, work);
	else
		cut_rows(t, rows, columns);
}

// ---- reductions -----------------------------------------------------------------------

// Returns the length of the longest chain of reductions that ends at or before r.
static int count_reductions(Scheduler *t, Ref r)
{
	const Val *v = val(t->graph, r);
	int most = 0;
	if (!t->inside.holds(t->inside.context, r))
		return 0;
	if (t->level[r])
		return t->level[r] - 1;
	for (int k = 0; k < v->nin; k++)
		most = MAX(most, count_reductions(t, v->in[k]));
	if (is_own_reduction(t, r))
		most++;
	t->depth = MAX(t->depth, most);
	t->level[r] = most + 1;
	PUSH(t->scratch, t->members, r);
	return most;
}

static void forget_seen(Scheduler *t)
{
	for (int i = 0; i < t->members.count; i++)
		t->seen[t->members.at[i]] = false;
}

// ---- values kept for a row ------------------------------------------------------------

static const uint32_t elsewhere = 1u << 31; // of needs: read at another index than its own

static void add_needs(Scheduler *t, Ref r, uint32_t bits)
{
	if (t->level[r] && !is_own_reduction(t, r))
		t->needs[r] |= bits;
}

// Expensive values that several steps of a row need are kept in local memory, as long as rows stay
// in the second-level cache: to read and write an f32 there takes half as long as an exponential.
// A row that fills less than two vectors stays in registers anyway.
static void choose_kept(Scheduler *t, int64_t row)
{
	enum { EXPENSIVE = 8 }; // weight of a map
	Sched *s = t->sched;
	if (row < 2 * t->machine->lanes)
		return;
	for (int i = 0; i < s->reduce.count; i++)
		add_needs(t, val(t->graph, s->reduce.at[i].val)->in[0],
		          1u << MIN(s->reduce.at[i].depth, 30));
	for (int o = 0; o < t->kern->nout; o++)
		add_needs(t, t->kern->out[o], 1u << MIN(t->depth, 30));
	for (int i = t->members.count; i-- > 0;) {
		Ref r = t->members.at[i];
		const Val *v = val(t->graph, r);
		uint32_t bits = t->needs[r];
		for (int k = 0; bits && k < v->nin; k++)
			add_needs(t, v->in[k], bits | (prims[v->op].cls == C_map ? 0 : elsewhere));
	}
	for (int i = 0; i < t->members.count; i++) {
		Ref r = t->members.at[i];
		const Val *v = val(t->graph, r);
		uint32_t needs = t->needs[r];
		int64_t bytes = row * elems[v->type].bytes;
		bool several = !(needs & elsewhere) && (needs & (needs - 1));
		if (!several || prims[v->op].cls != C_map || prims[v->op].weight < EXPENSIVE ||
		    (v->type != E_f32 && v->type != E_f64) ||
		    !same_shape(&v->shape, &t->kern->space) ||
		    s->local + bytes > t->machine->l2 / 4)
			continue;
		add_step(t, &s->keep, r, __builtin_ctz(needs));
		s->local += full_lines(bytes);
	}
}

// ---- rows that one pass computes ------------------------------------------------------

// True if a row is passed over once: no reduction needs another, and outputs of the full shape,
// which are stored in the same pass, need none.
static bool passes_once(const Scheduler *t)
{
	const Kern *k = t->kern;
	for (int i = 0; i < t->sched->reduce.count; i++) {
		const Val *v = val(t->graph, t->sched->reduce.at[i].val);
		if (t->sched->reduce.at[i].depth || v->op == O_argmax ||
		    !same_shape(&val(t->graph, v->in[0])->shape, &k->space))
			return false;
	}
	for (int o = 0; o < k->nout; o++) {
		if (is_reduced_out(t->graph, k, o))
			continue;
		if (t->level[k->out[o]] != 1 ||
		    !same_shape(&val(t->graph, k->out[o])->shape, &k->space))
			return false;
	}
	return t->sched->reduce.count && !t->sched->keep.count;
}

// ---- prefetching ----------------------------------------------------------------------

static void find_ahead(Scheduler *t, Ref r)
{
	const Val *v = val(t->graph, r);
	if (t->seen[r] || count_of(&v->shape) != count_of(&t->kern->space))
		return;
	t->seen[r] = true;
	if (!t->level[r])
		add_step(t, &t->sched->ahead, r, 0);
	else if (prims[v->op].cls == C_map || v->op == O_reshape)
		for (int k = 0; k < v->nin; k++)
			find_ahead(t, v->in[k]);
}

// The reductions of a row read memory; the second pass over the row reads cache and leaves memory
// idle, so it prefetches the next row, if rows are contiguous, come from memory and stay in cache:
// on a GPU, in the first.
static void choose_ahead(Scheduler *t, const Groups *groups, int64_t row)
{
	ValSteps *ahead = &t->sched->ahead;
	for (int k = 1; k < groups->n; k++)
		if (groups->reduced[k - 1] && !groups->reduced[k])
			return;
	if (count_of(&t->kern->space) < LARGE)
		return;
	for (int i = 0; i < t->sched->reduce.count; i++)
		find_ahead(t, val(t->graph, t->sched->reduce.at[i].val)->in[0]);
	for (int i = 0; i < ahead->count; i++)
		t->seen[ahead->at[i].val] = false;
	forget_seen(t);
	int64_t cache = t->machine->threads > 1 ? t->machine->l1 : t->machine->l2 / 2;
	if (!t->sched->along && !holds_rows(t->graph, t->sched, t->machine, row, cache))
		ahead->count = 0;
}

// ---- sums -----------------------------------------------------------------------------

static int weight_of(Scheduler *t, Ref r, int deep)
{
	const Val *v = val(t->graph, r);
	int weight = prims[v->op].weight;
	if (!t->inside.holds(t->inside.context, r) || deep > 12)
		return 0;
	for (int k = 0; k < v->nin; k++)
		weight += weight_of(t, v->in[k], deep + 1);
	return weight;
}

// Side by side, sums do not wait for each other; each takes registers, and so do their operands.
static int chains_of(const Scheduler *t, int sums, int weight)
{
	enum { CROWD = 3, HEAVY = 24 };
	return t->machine->threads > 1 ? 1 : sums > CROWD || weight > HEAVY ? 2 : 4;
}

// ---- partial results ------------------------------------------------------------------

// A worker that owned a few columns would touch a little of every row and reach half the memory
// bandwidth. So reductions over the rows of a large space, and maps of one row and then of all
// rows, have workers that own rows: see P_partials.

enum {
	LONG = 1 << 17, // columns, at most
	ROWS = 256,
	BLOCKS = 32,
	HELD = 6,         // sums
	HELD_ROWS = 16,   // at least
	ALONE = 64 << 10, // bytes of a single row from which one worker of a GPU would take longer
	                  // than several that count themselves
};

// Adds the values of the shape of a row that r, of the full shape, is computed from. False: r
// cannot be computed by rows.
static bool find_small(Scheduler *t, ValSteps *small, Ref r)
{
	const Val *v = val(t->graph, r);
	if (!t->level[r] || t->seen[r])
		return true;
	t->seen[r] = true;
	if (prims[v->op].cls != C_map)
		return prims[v->op].cls == C_leaf || t->level[r] == 1;
	for (int k = 0; k < v->nin; k++) {
		Ref u = v->in[k];
		const Shape *own = &val(t->graph, u)->shape;
		if (same_shape(own, &t->kern->space)) {
			if (!find_small(t, small, u))
				return false;
		} else if (is_reduced(own, &t->kern->space, t->kern->reduce)) {
			bool known = false;
			for (int i = 0; i < small->count; i++)
				known |= small->at[i].val == u;
			if (!known)
				add_step(t, small, u, 0);
		} else if (t->level[u] > 1) {
			return false;
		}
	}
	return true;
}

static bool splits_in_rows(Scheduler *t, ValSteps *small)
{
	bool splits = true;
	for (int i = 0; i < t->members.count; i++) {
		Ref r = t->members.at[i];
		const Val *v = val(t->graph, r);
		if (t->level[r] > 1 && prims[v->op].cls == C_reduce)
			splits = splits && is_own_reduction(t, r) && v->op != O_argmax &&
			         (v->type == E_f32 || v->type == E_f64);
	}
	for (int o = 0; o < t->kern->nout && splits; o++)
		if (same_shape(&val(t->graph, t->kern->out[o])->shape, &t->kern->space))
			splits = find_small(t, small, t->kern->out[o]);
	forget_seen(t);
	return splits;
}

// Of how many workers the elements of a single row fill a GPU: one on each multiprocessor, unless
// its threads would have many.
static int64_t row_workers(const Machine *m, int64_t row)
{
	return row < m->threads * wave_of(m) ? m->workers : wave_of(m);
}

// Returns of how many blocks of rows the workers, which have `pieces` of columns each, fill waves.
static int64_t blocks_of_rows(int64_t pieces, int64_t wave)
{
	enum { WAVES = 4, PERCENT = 90 }; // at most; of the last wave and all before
	int64_t all = wave;
	while (all < WAVES * wave && all / pieces * pieces * 100 < all * PERCENT)
		all += wave;
	return MAX(1, all / pieces);
}

// Chooses how many rows a thread of a GPU adds to its sums of columns at once: sums and loads take
// registers, those of many sums so many that a multiprocessor has one block.
static void choose_together(Scheduler *t)
{
	enum { SUMS = 32, MANY = 16 }; // and rows of each
	int64_t sums = MAX(1, t->sched->reduce.count);
	t->sched->together = MAX(1, MIN(FEW, SUMS / sums));
	t->sched->alone = sums > MANY;
}

// On a GPU, workers have few columns, whose partial results are few. If all need the sums, each
// adds them up in a second launch; else the last to arrive does, and there is one launch.
static void join_partials(Scheduler *t, int64_t rows, int64_t columns, bool again)
{
	enum { NARROW = 32 };
	Sched *s = t->sched;
	int64_t wide = 1, all = columns == 1 ? row_workers(t->machine, rows) : wave_of(t->machine);
	while (wide < MIN(columns, NARROW))
		wide *= 2;
	int64_t pieces = ceil_div(columns, wide);
	s->rows = ceil_div(rows, MIN(rows, blocks_of_rows(pieces, all)));
	int64_t blocks = ceil_div(rows, s->rows);
	s->joined = again ? J_all : J_last;
	s->columns = wide;
	choose_together(t);
	s->workers = blocks * pieces;
	s->before = again && s->reduce.count ? s->workers : 0;
	s->after = s->keep.count = 0;
	s->work = s->reduce.count * blocks * partial_line(columns) * PARTIAL;
}

// True if a space of `groups`, or one row of a GPU's, is reduced over blocks of rows. A single row
// is one column, whose rows are its elements.
static bool has_partials(const Scheduler *t, const Groups *groups, int64_t rows, int64_t columns)
{
	if (t->depth > 1)
		return false;
	if (columns == 1)
		return t->machine->threads > 1 && rows * bytes_read(t) >= ALONE && groups->n < RANK;
	return rows * columns >= rows_space(t->machine) && rows >= BLOCKS && columns <= LONG;
}

static bool cut_partials(Scheduler *t, const Groups *groups)
{
	Sched *s = t->sched;
	int64_t rows = 1, last = groups->n - 1;
	bool single = last >= 0 && groups->reduced[last];
	for (int k = 0; k < last + single; k++) {
		if (!groups->reduced[k])
			return false;
		rows *= groups->size[k];
	}
	if (last + single < 1)
		return false;
	int64_t columns = single ? 1 : groups->size[last];
	bool gpu = t->machine->threads > 1;
	if (!has_partials(t, groups, rows, columns) || !splits_in_rows(t, &s->keep))
		return false;
	bool stores = false;          // outputs of the full shape
	bool late = !s->reduce.count; // which are computed after the reductions
	for (int o = 0; o < t->kern->nout; o++) {
		Ref r = t->kern->out[o];
		if (!same_shape(&val(t->graph, r)->shape, &t->kern->space))
			continue;
		stores = true;
		late |= t->level[r] > 1; // r depends on what is reduced
	}
	// Partial results are in memory, those of many sums in registers, for one column at a time.
	bool held = !gpu && !stores && s->reduce.count >= HELD;
	cut_columns(t, 1, columns, piece_of(t, FEW));
	s->units = held ? 1 : s->units;
	s->together = stores || gpu ? 1 : held ? FEW / 2 : FEW;
	s->partition = P_partials;
	s->rows = MIN(ROWS, ceil_div(rows, MAX(BLOCKS, t->machine->workers)));
	s->rows = held ? MAX(HELD_ROWS, s->rows) : s->rows;
	int64_t blocks = ceil_div(rows, s->rows), lines = s->reduce.count * blocks + s->keep.count;
	s->before = s->reduce.count ? blocks : 0;
	s->after = stores && late ? blocks : 0;
	s->work = lines * partial_line(columns) * PARTIAL;
	if (gpu)
		join_partials(t, rows, columns, s->after > 0);
	return true;
}

// ---- columns of a GPU that threads share ----------------------------------------------

// True if threads may share the rows of a column: all reductions are its own, of floats.
static bool has_shared_sums(const Scheduler *t)
{
	bool shared = t->kern->kind == L_col && t->sched->reduce.count;
	for (int i = 0; i < t->members.count; i++) {
		const Val *v = val(t->graph, t->members.at[i]);
		bool loops = prims[v->op].cls == C_reduce || v->op == O_dot;
		if (loops && (!is_own_reduction(t, t->members.at[i]) || v->op == O_argmax ||
		              (v->type != E_f32 && v->type != E_f64)))
			return false;
	}
	return shared;
}

// With a column for each thread, few channels leave threads idle, few samples leave multiprocessors
// idle, and each thread reads all rows of its column by itself. So workers take fewer columns,
// whose rows their threads share, until every multiprocessor has a worker.
static void share_columns(Scheduler *t, int64_t rows, int64_t columns, int64_t length)
{
	enum { EACH = 4 }; // rows of a thread, at least
	int64_t threads = t->machine->threads, piece = threads, all = t->machine->workers;
	while (piece > SHARED_COLUMNS && length >= EACH * 2 * (threads / piece) &&
	       (columns % piece || 100 * rows * (columns / piece) < FULL_PERCENT * all))
		piece /= 2;
	if (piece < threads && columns % piece == 0 && has_shared_sums(t))
		cut_columns(t, rows, columns, piece);
}

// ---- row kernels ----------------------------------------------------------------------

// A warp has a short row to itself, if there are enough: no thread waits for those of other warps.
static void share_rows(Scheduler *t, int64_t rows, int64_t row)
{
	enum { ELEMENTS = 32, WAVES = 4, MOST = 8 }; // of a thread; of workers; rows of a warp
	int64_t warp = t->machine->warp, teams = warp ? t->machine->threads / warp : 0;
	if (!warp || row > ELEMENTS * warp || rows < teams * t->machine->workers)
		return;
	int64_t units = ceil_div(rows, teams), most = rows / (teams * WAVES * wave_of(t->machine));
	t->sched->team = warp;
	t->sched->rows = teams * share_evenly(t->machine, units, 1, MAX(1, MIN(MOST, most)));
	t->sched->workers = ceil_div(rows, t->sched->rows);
}

static void block_rows(Scheduler *t)
{
	Groups groups = space_groups(t);
	int kept = -1, n = groups.n;
	int64_t rows = 1, space = count_of(&t->kern->space);
	for (int k = 0; k < n; k++)
		if (!groups.reduced[k]) {
			kept = k;
			rows *= groups.size[k];
		}
	for (int i = 0; i < t->members.count; i++) {
		Ref r = t->members.at[i];
		if (is_own_reduction(t, r))
			add_step(t, &t->sched->reduce, r, t->level[r] - 2);
	}
	if (cut_partials(t, &groups))
		return;
	t->sched->keep.count = 0;
	bool along =
	    n > 0 && groups.reduced[n - 1] && groups.size[n - 1] >= MAX(2, t->machine->lanes / 2);
	if (kept >= 0 && !along) {
		// Large spaces come from memory: long pieces of each row, but enough workers.
		int64_t columns = groups.size[kept], units = columns / (8 * t->machine->lanes);
		units = space < LARGE ? FEW : MAX(FEW, MIN(MANY, units));
		cut_columns(t, rows / columns, columns, piece_of(t, units));
		if (t->machine->threads > 1) {
			choose_together(t);
			share_columns(t, rows / columns, columns, space / rows);
		}
		return;
	}
	int64_t row = MAX(1, space / rows);
	cut_rows(t, rows, row);
	if (t->machine->threads > 1) {
		t->sched->units = map_units(t, row);
		share_rows(t, rows, row);
		return;
	}
	choose_kept(t, row);
	t->sched->along = passes_once(t);
	choose_ahead(t, &groups, row);
}

// ---- the pass -------------------------------------------------------------------------

// Sums over windows are loops in any kernel, all others in those of rows and columns.
static void choose_sums(Scheduler *t)
{
	enum { BLOCK = 256, LANE_BLOCK = 8192 }; // so that an f32 keeps its digits
	Sched *s = t->sched;
	bool loops = s->partition == P_rows || s->partition == P_columns; // of a worker
	for (int i = 0; i < t->members.count; i++) {
		const Val *v = val(t->graph, t->members.at[i]);
		if ((prims[v->op].cls != C_reduce && v->op != O_dot) || v->op == O_cumsum)
			continue;
		Elem e = val(t->graph, v->in[0])->type;
		if (is_float(e) && (e != E_f64 || s->accumulation == A_own))
			s->accumulation = e == E_f64 ? A_f64 : A_f32;
		if (!loops && !reduces_windows(t->graph, v))
			continue;
		s->block = BLOCK;
		s->lane_block = LANE_BLOCK;
		if (is_own_reduction(t, t->members.at[i]))
			continue;
		int chains = chains_of(t, 1, weight_of(t, v->in[0], 0));
		s->chains = s->chains ? MIN(s->chains, chains) : chains;
	}
	if (!loops)
		return;
	// Those of one depth are one loop.
	int *sums = NEWS(t->scratch, int, t->depth + 1),
	    *weight = NEWS(t->scratch, int, t->depth + 1);
	for (int i = 0; i < s->reduce.count; i++) {
		const ValStep *step = &s->reduce.at[i];
		sums[step->depth]++;
		weight[step->depth] += weight_of(t, val(t->graph, step->val)->in[0], 0);
	}
	for (int i = 0; i < s->reduce.count; i++) {
		ValStep *step = &s->reduce.at[i];
		step->chains = chains_of(t, sums[step->depth], weight[step->depth]);
	}
}

// On a GPU, a worker of a scatter has some rows of the axis and some columns after it: as many
// workers as there is room for. `lines`: positions in the axes before.
static void cut_axis(Scheduler *t, int64_t lines, int64_t rows, int64_t columns)
{
	enum { LEAST = 32, ADDS = 1 }; // columns; the mode of a scatter
	Sched *s = t->sched;
	int64_t wave = wave_of(t->machine), piece = t->machine->threads;
	while (piece / 2 >= columns ||
	       (piece > LEAST && lines * rows * ceil_div(columns, piece) < wave))
		piece /= 2;
	cut_columns(t, lines, columns, piece);
	s->units = 1;
	s->rows = ceil_div(rows, MAX(1, MIN(rows, wave / s->workers)));
	s->workers *= ceil_div(rows, s->rows);
	bool sums = val(t->graph, t->kern->root)->attr->i[1] == ADDS;
	s->together = s->rows == 1 && sums ? FEW : 0;
}

// Steps along one axis come one after the other: workers share the axes before and after it.
static void cut_lines(Scheduler *t)
{
	const Val *root = val(t->graph, t->kern->root);
	int64_t lines = 1, columns = 1, axis = root->attr->i[0], size = last_dim(&root->shape);
	for (int a = 0; a < root->shape.rank; a++)
		if (a != axis)
			*(a < axis ? &lines : &columns) *= root->shape.dim[a];
	if (t->kern->kind == L_scatter && t->machine->threads > 1) {
		cut_axis(t, lines, root->shape.dim[axis], columns);
		return;
	}
	cut_columns(t, lines, columns, piece_of(t, FEW));
	if (t->kern->kind == L_scan)
		return;
	// The launch before a scatter copies what it is added to.
	t->sched->rows = MAX(1, WORK / size);
	t->sched->before = ceil_div(count_of(&root->shape) / size, t->sched->rows);
}

static bool holds(const void *scheduler, Ref r)
{
	const Scheduler *t = scheduler;
	return is_inside(t->plan, t->writer, t->k, r);
}

// True if r is an output of the graph, or stored in a slot, which the kernel reads then.
static bool leaves(const Graph *g, Ref r)
{
	bool out = false;
	for (int i = 0; i < g->outs.count; i++)
		out |= g->outs.at[i].val == r;
	for (int i = 0; i < g->stores.count; i++)
		out |= g->stores.at[i].val == r;
	return out;
}

// What is too large to stay in the caches until another kernel reads it need not pass through them:
// lines that are stored whole are not read from memory first.
static void choose_past(Scheduler *t)
{
	enum { LARGEST = 32 << 20 }; // bytes that may stay
	const Kern *k = t->kern;
	for (int o = 0; o < k->nout; o++)
		if (bytes_of(val(t->graph, k->out[o])) >= LARGEST && !leaves(t->graph, k->out[o]))
			add_step(t, &t->sched->past, k->out[o], 0);
}

static void schedule_kernel(Scheduler *t)
{
	const Kern *k = t->kern;
	const Val *root = val(t->graph, k->root);
	for (int o = 0; o < k->nout && k->kind != L_loop; o++)
		count_reductions(t, k->out[o]);
	sort_refs(t->members.count, t->members.at);
	switch (k->kind) {
	case L_row:
	case L_col:
		block_rows(t);
		break;
	case L_scatter:
	case L_scan:
		cut_lines(t);
		break;
	case L_loop:
		t->sched->work = loop_work(t->scratch, t->plan, k).bytes + k->body->scratch_bytes;
		break;
	case L_dot:
		// Without a tile, or without a sum, each element is a reduction of its own.
		if (!count_of(&val(t->graph, root->in[0])->shape))
			block_map(t);
		else if (t->machine->rows)
			tune_kernel(t, tile_product);
		else if (t->machine->threads > 1)
			tile_block(t);
		else
			block_map(t);
		break;
	case L_attend:
		tune_kernel(t, tile_attention);
		break;
	case L_map:
		block_map(t);
	}
	choose_sums(t);
	if (t->machine->threads == 1 && (k->kind <= L_col || k->kind == L_dot))
		choose_past(t);
}

static void tile_kernels(Arena *arena, Plan *p, int n, const int *kernel, int together)
{
	Arena *scratch = arena_within(arena);
	int values = p->graph->nval;
	Scheduler t = {.arena = arena,
	               .plan = p,
	               .graph = p->graph,
	               .machine = p->machine,
	               .together = together};
	t.writer = plan_writers(scratch, p);
	t.inside = (Inside){holds, &t};
	t.seen = NEWS(scratch, bool, values);
	t.level = NEWS(scratch, int, values);
	t.needs = NEWS(scratch, uint32_t, values);
	for (int i = 0; i < n; i++) {
		t.k = kernel[i];
		t.kern = &p->kerns.at[t.k];
		t.sched = t.kern->sched = NEW(arena, Sched);
		t.scratch = arena_within(scratch);
		t.members = (Refs){0};
		t.depth = 0;
		schedule_kernel(&t);
		for (int m = 0; m < t.members.count; m++)
			t.level[t.members.at[m]] = 0, t.needs[t.members.at[m]] = 0;
		arena_free(t.scratch);
	}
	arena_free(scratch);
}

void tile_pass(Arena *arena, Plan *p, int first)
{
	Ints kernels = {0};
	for (int k = first; k < p->kerns.count; k++)
		PUSH(arena, kernels, k);
	tile_kernels(arena, p, kernels.count, kernels.at, 1);
}

void tile_together(Arena *arena, Plan *p, const Ints *kernels)
{
	tile_kernels(arena, p, kernels->count, kernels->at, kernels->count);
}
