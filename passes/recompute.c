// recompute.c: runs kernels again, so that what they wrote need not be kept until then.
// While scratch is too large, it takes the first run with the most bytes in use. Of the values that
// are kept over it, it drops the one whose kernels cost the least per byte: these run again before
// the next kernel that reads it, the same code on the same bits. At last, kernels whose values fit
// after all do not run again. Invariant: a step computes what it would with all memory.
#include "memory.h"
#include <stdlib.h>
#include <string.h>

typedef struct Use {  // of scratch, in an order
	Arena *arena; // of all of it, and of the order
	MemoryPlan memory;
	int64_t peak;
	int at, many; // runs with the peak: the first, how many
} Use;

typedef struct Kept { // over the run `at`
	Ref val;
	double gain; // bytes per cost
} Kept;

typedef struct Recompute {
	Arena *arena;
	Plan *plan;
	const Reads *reads;  // by kernel
	const int *writer;   // by Ref
	const int *storing;  // by slot: 1 + the kernel that writes it
	const int64_t *cost; // by kernel: of a run, in bytes read or written; 0: it runs once
	Use use;
	int *next; // by Ref: the next run that reads it after `at`; 0: it is not kept over it
	VEC(Kept) kept;
	Ints chain;           // kernels that would run again, in order
	int *seen, epoch;     // by kernel: number of the last chain that has it
	int64_t freed, spent; // by the chain: bytes at `at`, cost
} Recompute;

enum { SMALL_SLOT = 1 << 16 }; // bytes that may be copied

static int64_t ref_bytes(const Recompute *r, Ref v)
{
	return full_lines(bytes_of(val(r->plan->graph, v)));
}

// Measures the plan's order, which is in that arena.
static Use measure(const Recompute *r, Arena *arena)
{
	Use use = {.arena = arena};
	int runs = run_count(r->plan);
	use.memory = memory_plan(use.arena, r->plan, r->reads, r->writer);
	int64_t *change = NEWS(use.arena, int64_t, runs + 2), bytes = 0;
	for (int i = 0; i < use.memory.buffers.count; i++) {
		const Buffer *b = &use.memory.buffers.at[i];
		for (int k = 0; k < b->spans.count; k++) {
			change[b->spans.at[k].first] += b->bytes;
			change[b->spans.at[k].last + 1] -= b->bytes;
		}
	}
	for (int t = 0; t <= runs; t++) {
		bytes += change[t];
		if (bytes > use.peak) {
			use.peak = bytes;
			use.at = t;
			use.many = 0;
		}
		use.many += bytes == use.peak;
	}
	return use;
}

// ---- candidates -----------------------------------------------------------------------

// Finds the values that are kept over the run `at`, which does not use them.
static void find_kept(Recompute *r)
{
	const Plan *p = r->plan;
	enum { USED = -1 };
	memset(r->next, 0, sizeof *r->next * (size_t)p->graph->nval);
	r->kept.count = 0;
	for (int t = MIN(r->use.at, run_count(p) - 1); t < run_count(p); t++) {
		int k = run_kernel(p, t), launch = launch_begin(p, t);
		for (int i = 0; i < r->reads[k].count; i++) {
			Ref v = r->reads[k].at[i].val;
			if (r->next[v] || r->use.memory.buffer[v] < 0)
				continue;
			r->next[v] = launch <= r->use.at ? USED : launch;
			if (launch > r->use.at)
				PUSH(r->arena, r->kept, ((Kept){v, 0}));
		}
		for (int i = 0; i < p->kerns.at[k].nout; i++)
			if (!r->next[p->kerns.at[k].out[i]])
				r->next[p->kerns.at[k].out[i]] = USED;
	}
}

// Returns the last run that uses v before run `before`, or `before` if v is in memory then.
static int last_use(const Recompute *r, Ref v, int before)
{
	const Spans *spans = &r->use.memory.spans[v];
	int i = spans->count - 1;
	while (i > 0 && spans->at[i].first >= before)
		i--;
	return MIN(spans->at[i].last, before);
}

// True if what kernel k reads from a slot is still there before run `before`, or is small: then
// the new contents of the slot are copied there at the end.
static bool slot_stays(const Recompute *r, int slot, int before)
{
	int k = r->storing[slot] - 1;
	const Slot *s = &r->plan->graph->slots.at[slot];
	return k < 0 || r->use.memory.runs[k].at[0] >= before ||
	       byte_count(s->type, &s->shape) <= SMALL_SLOT;
}

// Adds kernel k to the chain that runs before run `before`, after the kernels that write what it
// reads and what is not in memory then. Values that are small next to v are kept instead. False if
// that cannot be.
static bool add_to_chain(Recompute *r, int k, int before, Ref v)
{
	enum { LONGEST = 24, SMALLER = 8 };
	const Plan *p = r->plan;
	if (r->seen[k] == r->epoch)
		return true;
	r->seen[k] = r->epoch;
	if (!r->cost[k] || r->chain.count >= LONGEST)
		return false;
	for (int i = 0; i < r->reads[k].count; i++) {
		Ref u = r->reads[k].at[i].val;
		const Val *read = val(p->graph, u);
		if (read->op == O_slot && !slot_stays(r, (int)read->attr->i[0], before))
			return false;
		if (r->writer[u] < 0 || r->use.memory.buffer[u] < 0)
			continue;
		int last = last_use(r, u, before);
		if (last >= r->use.at)
			continue;
		if (ref_bytes(r, u) * SMALLER <= ref_bytes(r, v))
			r->freed -= ref_bytes(r, u);
		else if (!add_to_chain(r, r->writer[u], before, v))
			return false;
	}
	PUSH(r->arena, r->chain, k);
	r->spent += r->cost[k];
	for (int i = 0; i < p->kerns.at[k].nout; i++)
		if (r->next[p->kerns.at[k].out[i]] >= before)
			r->freed += ref_bytes(r, p->kerns.at[k].out[i]);
	return true;
}

// Finds the chain of kernels that write v again before its next reader.
static bool find_chain(Recompute *r, Ref v)
{
	r->epoch++;
	r->chain.count = 0;
	r->freed = r->spent = 0;
	return add_to_chain(r, r->writer[v], r->next[v], v) && r->freed > 0;
}

static int by_gain(const void *a, const void *b)
{
	const Kept *x = a, *y = b;
	if (x->gain != y->gain)
		return x->gain < y->gain ? 1 : -1;
	return (x->val > y->val) - (x->val < y->val);
}

// ---- orders ---------------------------------------------------------------------------

static Ints order_with_chain(const Recompute *r, Arena *arena, int before)
{
	const Ints *old = &r->plan->order;
	int room = old->count + r->chain.count;
	Ints order = {NEWS(arena, int, room), 0, room};
	for (int t = 0; t < old->count; t++) {
		for (int i = 0; t == before && i < r->chain.count; i++)
			PUSH(arena, order, r->chain.at[i]);
		PUSH(arena, order, old->at[t]);
	}
	return order;
}

// Runs the chain before run `before` if less is in use then, or at fewer runs.
static bool try_chain(Recompute *r, int before)
{
	const Ints old = r->plan->order;
	Arena *arena = arena_within(r->arena);
	r->plan->order = order_with_chain(r, arena, before);
	Use use = measure(r, arena);
	if (use.peak < r->use.peak || (use.peak == r->use.peak && use.many < r->use.many)) {
		arena_free(r->use.arena);
		r->use = use;
		return true;
	}
	arena_free(use.arena);
	r->plan->order = old;
	return false;
}

// Drops one value at the peak. False if none helps.
static bool drop_one(Recompute *r)
{
	enum { TRIES = 32 };
	find_kept(r);
	int n = 0;
	for (int i = 0; i < r->kept.count; i++)
		if (find_chain(r, r->kept.at[i].val)) {
			r->kept.at[n] = r->kept.at[i];
			r->kept.at[n++].gain = (double)r->freed / (double)r->spent;
		}
	if (n)
		qsort(r->kept.at, (size_t)n, sizeof *r->kept.at, by_gain);
	for (int i = 0; i < MIN(n, TRIES); i++) {
		Ref v = r->kept.at[i].val;
		find_chain(r, v);
		if (try_chain(r, r->next[v]))
			return true;
	}
	return false;
}

// ---- the pass -------------------------------------------------------------------------

static const int64_t *find_costs(Recompute *r)
{
	enum {
		FLOPS = 8,        // in the time of a byte
		LAUNCH = 1 << 14, // bytes in the time of a launch
	};
	const Plan *p = r->plan;
	const Graph *g = p->graph;
	const Work *work = plan_work(r->arena, p, r->reads);
	int64_t *cost = NEWS(r->arena, int64_t, p->kerns.count);
	for (int k = 0; k < p->kerns.count; k++)
		if (p->kerns.at[k].kind != L_loop && !is_bundled(p, k))
			cost[k] = work[k].bytes + work[k].flops / FLOPS + LAUNCH;
	for (int i = 0; i < g->stores.count; i++) {
		int k = r->writer[g->stores.at[i].val];
		if (k >= 0 && ref_bytes(r, g->stores.at[i].val) > SMALL_SLOT)
			cost[k] = 0;
	}
	return cost;
}

static Recompute recompute_new(Arena *arena, Plan *p)
{
	const Graph *g = p->graph;
	int *storing = NEWS(arena, int, g->slots.count);
	Recompute r = {.arena = arena,
	               .plan = p,
	               .reads = plan_reads(arena, p),
	               .writer = plan_writers(arena, p),
	               .storing = storing,
	               .next = NEWS(arena, int, g->nval),
	               .seen = NEWS(arena, int, p->kerns.count)};
	for (int i = 0; i < g->stores.count; i++)
		storing[g->stores.at[i].slot] = 1 + r.writer[g->stores.at[i].val];
	r.cost = find_costs(&r);
	return r;
}

typedef struct Again { // a run of a kernel that ran before
	int64_t cost;
	int run;
} Again;

static int by_cost(const void *a, const void *b)
{
	const Again *x = a, *y = b;
	if (x->cost != y->cost)
		return x->cost < y->cost ? 1 : -1;
	return (x->run > y->run) - (x->run < y->run);
}

static bool remove_run(Recompute *r, int run, int64_t limit)
{
	Ints *order = &r->plan->order;
	int k = order->at[run];
	order->count--;
	memmove(&order->at[run], &order->at[run + 1], sizeof(int) * (size_t)(order->count - run));
	Use use = measure(r, arena_within(r->arena));
	bool fits = use.peak <= limit && place_buffers(&use.memory) <= limit;
	arena_free(use.arena);
	if (fits)
		return true;
	memmove(&order->at[run + 1], &order->at[run], sizeof(int) * (size_t)(order->count - run));
	order->at[run] = k;
	order->count++;
	return false;
}

// Removes the runs without which scratch still has at most `limit` bytes, the most expensive first.
static void remove_runs(Recompute *r, int64_t limit)
{
	const Plan *p = r->plan;
	VEC(Again) again = {0};
	for (int t = 0, first = 0; t < run_count(p); t++) {
		int k = run_kernel(p, t);
		if (k == first)
			first++;
		else
			PUSH(r->arena, again, ((Again){r->cost[k], t}));
	}
	if (again.count)
		qsort(again.at, (size_t)again.count, sizeof *again.at, by_cost);
	for (int i = 0; i < again.count; i++)
		if (remove_run(r, again.at[i].run, limit))
			for (int j = i + 1; j < again.count; j++)
				again.at[j].run -= again.at[j].run > again.at[i].run;
}

static Ints copy_of(Arena *arena, Ints order)
{
	order.at = take_copy(arena, order.at, sizeof(int) * (size_t)order.count);
	order.room = order.count;
	return order;
}

// Drops values until scratch has at most `limit` bytes, or none helps. Leaves the order in which
// scratch was least, and returns its bytes: as buffers are placed with gaps, the last drop may have
// raised them.
static int64_t drop_values(Recompute *r, int64_t limit)
{
	int64_t least = place_buffers(&r->use.memory), total;
	Ints best = copy_of(r->arena, r->plan->order);
	while (least > limit && drop_one(r)) {
		total = place_buffers(&r->use.memory);
		if (total < least)
			best = copy_of(r->arena, r->plan->order);
		least = MIN(least, total);
	}
	r->plan->order = best;
	return least;
}

int64_t recompute_pass(Arena *arena, Plan *p, int64_t limit)
{
	Arena *own = arena_within(arena);
	Recompute r = recompute_new(own, p);
	if (!p->order.count)
		for (int k = 0; k < p->kerns.count; k++)
			PUSH(own, p->order, k);
	r.use = measure(&r, arena_within(own));
	int64_t total = drop_values(&r, limit);
	if (total <= limit)
		remove_runs(&r, limit);
	int runs = p->order.count > p->kerns.count ? p->order.count : 0;
	p->order.at = take_copy(arena, p->order.at, sizeof(int) * (size_t)runs);
	p->order.count = p->order.room = runs;
	arena_free(own);
	return total;
}
