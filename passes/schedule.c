// schedule.c: orders kernels for short lifetimes.
// Operands first, short lifetimes. A kernel that stores runs as soon as possible, for it frees
// what it reads, and so does a kernel whose results are for one such kernel alone, such as the
// gradient of a parameter. It waits for kernels that still read what it will overwrite, unless that
// makes a cycle.
#include "passes.h"

typedef struct Step {
	int wants;   // kernels it needs that have not run
	int readers; // kernels that have not run and read a slot this one stores to
	bool stores, done;
	int end; // the kernel that stores and alone needs its results, or it stores; else NO_END
	VEC(int) users;   // kernels that need it
	VEC(int) writers; // kernels that store to a slot it reads
	VEC(int) before;  // kernels whose end it is
} Step;

enum { NO_END = -1, ANY_END = -2 };

typedef struct Turn {     // of a kernel that may run
	int kernel, rank; // rank 0: leads to a store that may be, 1: neither, 2: overwrites what
	                  // others still read
	int64_t freed;
	Ref first; // value that it writes
} Turn;

typedef struct Order {
	Arena *arena;
	const Plan *plan;
	const Reads *reads; // by kernel
	Step *step;         // by kernel
	int *readers;       // by Ref: kernels that have not run and read it; no slots
	int *rest;      // by Ref: the exclusive or of their numbers: one's own where one is left
	VEC(Turn) heap; // the best first. A kernel whose turn gets better is in it again
} Order;

// True if kernel k reads what kernel `other` writes: that one cannot wait for k.
static bool needs(const Order *o, const int *writer, int k, int other)
{
	for (int i = 0; i < o->reads[k].count; i++)
		if (writer[o->reads[k].at[i].val] == other)
			return true;
	return false;
}

// Goes from the kernels that no kernel needs to those that they read from.
static void find_ends(Order *o, const int *writer)
{
	int n = o->plan->kerns.count, known = 0;
	int *order = NEWS(o->arena, int, n), *users = NEWS(o->arena, int, n);
	for (int k = 0; k < n; k++) {
		o->step[k].end = ANY_END;
		users[k] = o->step[k].users.count;
		if (!users[k])
			order[known++] = k;
	}
	for (int i = 0; i < known; i++) {
		int k = order[i];
		Step *s = &o->step[k];
		if (s->end < 0)
			s->end = s->stores ? k : NO_END;
		if (s->end >= 0 && s->end != k)
			PUSH(o->arena, o->step[s->end].before, k);
		for (int j = 0; j < o->reads[k].count; j++) {
			int from = writer[o->reads[k].at[j].val];
			if (from < 0 || from == k)
				continue;
			int *end = &o->step[from].end;
			*end = *end == ANY_END || *end == s->end ? s->end : NO_END;
			if (!--users[from])
				order[known++] = from;
		}
	}
}

// Finds the kernels that overwrite what others read, except those that need these others anyway, or
// these need.
static void find_writers(Order *o, const int *writer)
{
	const Graph *g = o->plan->graph;
	// By slot: 1 + the kernel that stores to it.
	int *stores = NEWS(o->arena, int, g->slots.count);
	for (int i = 0; i < g->stores.count; i++)
		stores[g->stores.at[i].slot] = writer[g->stores.at[i].val] + 1;
	for (int k = 0; k < o->plan->kerns.count; k++)
		for (int i = 0; i < o->reads[k].count; i++) {
			const Val *v = val(g, o->reads[k].at[i].val);
			int other = v->op == O_slot ? stores[v->attr->i[0]] - 1 : -1;
			if (other < 0 || other == k || o->step[k].end == other ||
			    needs(o, writer, k, other))
				continue;
			PUSH(o->arena, o->step[k].writers, other);
			o->step[other].readers++;
		}
}

static Order order_start(Arena *arena, const Plan *p)
{
	const Graph *g = p->graph;
	const int *writer = plan_writers(arena, p);
	Order o = {.arena = arena, .plan = p, .reads = plan_reads(arena, p)};
	o.step = NEWS(arena, Step, p->kerns.count);
	o.readers = NEWS(arena, int, g->nval);
	o.rest = NEWS(arena, int, g->nval);
	for (int i = 0; i < g->stores.count; i++)
		if (writer[g->stores.at[i].val] >= 0)
			o.step[writer[g->stores.at[i].val]].stores = true;
	for (int k = 0; k < p->kerns.count; k++)
		for (int i = 0; i < o.reads[k].count; i++) {
			Ref r = o.reads[k].at[i].val;
			int other = writer[r];
			bool is_slot = val(g, r)->op == O_slot;
			o.readers[r] += !is_slot;
			o.rest[r] ^= k;
			if (is_slot || other < 0 || other == k)
				continue;
			PUSH(arena, o.step[other].users, k);
			o.step[k].wants++;
		}
	find_ends(&o, writer);
	find_writers(&o, writer);
	return o;
}

// Bytes in use before the kernel less those after it.
static int64_t freed(const Order *o, int k)
{
	const Kern *kern = &o->plan->kerns.at[k];
	int64_t bytes = 0;
	for (int i = 0; i < o->reads[k].count; i++)
		if (o->readers[o->reads[k].at[i].val] == 1)
			bytes += bytes_of(val(o->plan->graph, o->reads[k].at[i].val));
	for (int i = 0; i < kern->nout; i++)
		if (o->readers[kern->out[i]])
			bytes -= bytes_of(val(o->plan->graph, kern->out[i]));
	return bytes;
}

// ---- whose turn it is -----------------------------------------------------------------

static bool is_before(const Turn *a, const Turn *b)
{
	if (a->rank != b->rank)
		return a->rank < b->rank;
	return a->freed == b->freed ? a->first < b->first : a->freed > b->freed;
}

static void swap_turns(Turn *a, Turn *b)
{
	Turn t = *a;
	*a = *b;
	*b = t;
}

static void offer(Order *o, int k)
{
	const Step *s = &o->step[k];
	if (s->done || s->wants)
		return;
	bool waits = s->end < 0 || o->step[s->end].readers;
	Turn turn = {k, s->readers ? 2 : waits, MAX(0, freed(o, k)), o->plan->kerns.at[k].out[0]};
	PUSH(o->arena, o->heap, turn);
	Turn *heap = o->heap.at;
	for (int i = o->heap.count - 1; i > 0 && is_before(&heap[i], &heap[(i - 1) / 2]);
	     i = (i - 1) / 2)
		swap_turns(&heap[i], &heap[(i - 1) / 2]);
}

// One kernel less reads what kernel k overwrites.
static void offer_writer(Order *o, int k)
{
	Step *s = &o->step[k];
	if (--s->readers)
		return;
	offer(o, k);
	for (int i = 0; i < s->before.count; i++)
		offer(o, s->before.at[i]);
}

static int take_first(Order *o)
{
	if (!o->heap.count)
		bug("kernels need each other");
	Turn *heap = o->heap.at;
	int first = heap[0].kernel, n = --o->heap.count;
	heap[0] = heap[n];
	for (int i = 0, best = 0;; i = best) {
		for (int k = 2 * i + 1; k <= 2 * i + 2 && k < n; k++)
			best = is_before(&heap[k], &heap[best]) ? k : best;
		if (best == i)
			return first;
		swap_turns(&heap[i], &heap[best]);
	}
}

void schedule_pass(Arena *arena, Plan *p)
{
	Order o = order_start(arena, p);
	Kern *kern = NEWS(arena, Kern, p->kerns.count);
	for (int k = 0; k < p->kerns.count; k++)
		offer(&o, k);
	for (int n = 0; n < p->kerns.count; n++) {
		int k = take_first(&o);
		while (o.step[k].done)
			k = take_first(&o);
		Step *s = &o.step[k];
		kern[n] = p->kerns.at[k];
		s->done = true;
		// Offers the kernels whose turn comes, or gets better.
		for (int i = 0; i < o.reads[k].count; i++) {
			Ref r = o.reads[k].at[i].val;
			o.rest[r] ^= k;
			if (--o.readers[r] == 1)
				offer(&o, o.rest[r]);
		}
		for (int i = 0; i < s->users.count; i++)
			if (!--o.step[s->users.at[i]].wants)
				offer(&o, s->users.at[i]);
		for (int i = 0; i < s->writers.count; i++)
			offer_writer(&o, s->writers.at[i]);
	}
	p->kerns.at = kern;
	p->kerns.room = p->kerns.count;
}
