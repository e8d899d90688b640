// schedule.c: orders kernels for short lifetimes.
// Operands first, short lifetimes. A kernel that stores runs as soon as possible, for it frees
// what it reads. It waits for kernels that still read what it will overwrite, unless that makes a
// cycle.
#include "passes.h"

typedef struct Step {
	int wants;   // kernels it needs that have not run
	int readers; // kernels that have not run and read a slot this one stores to
	bool stores, done;
	VEC(int) users;   // kernels that need it
	VEC(int) writers; // kernels that store to a slot it reads
} Step;

typedef struct Turn {     // of a kernel that may run
	int kernel, rank; // rank 0: stores, 1: neither, 2: overwrites what others still read
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

static Order order_start(Arena *arena, const Plan *p)
{
	const Graph *g = p->graph;
	const int *writer = plan_writers(arena, p);
	int *stores = NEWS(arena, int, g->slots.count); // by slot: 1 + the kernel that stores to it
	Order o = {.arena = arena, .plan = p, .reads = plan_reads(arena, p)};
	o.step = NEWS(arena, Step, p->kerns.count);
	o.readers = NEWS(arena, int, g->nval);
	o.rest = NEWS(arena, int, g->nval);
	for (int i = 0; i < g->stores.count; i++) {
		int k = writer[g->stores.at[i].val];
		stores[g->stores.at[i].slot] = k + 1;
		if (k >= 0)
			o.step[k].stores = true;
	}
	for (int k = 0; k < p->kerns.count; k++)
		for (int i = 0; i < o.reads[k].count; i++) {
			Ref r = o.reads[k].at[i].val;
			const Val *v = val(g, r);
			bool is_slot = v->op == O_slot;
			int other = is_slot ? stores[v->attr->i[0]] - 1 : writer[r];
			o.readers[r] += !is_slot;
			o.rest[r] ^= k;
			if (other < 0 || other == k)
				continue;
			if (is_slot) {
				PUSH(arena, o.step[k].writers, other);
				o.step[other].readers++;
			} else {
				PUSH(arena, o.step[other].users, k);
				o.step[k].wants++;
			}
		}
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
	Turn epoch = {k, s->readers ? 2 : !s->stores, MAX(0, freed(o, k)),
	              o->plan->kerns.at[k].out[0]};
	PUSH(o->arena, o->heap, epoch);
	Turn *heap = o->heap.at;
	for (int i = o->heap.count - 1; i > 0 && is_before(&heap[i], &heap[(i - 1) / 2]);
	     i = (i - 1) / 2)
		swap_turns(&heap[i], &heap[(i - 1) / 2]);
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
			if (!--o.step[s->writers.at[i]].readers)
				offer(&o, s->writers.at[i]);
	}
	p->kerns.at = kern;
	p->kerns.room = p->kerns.count;
}
