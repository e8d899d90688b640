// order.c: orders a plan's kernels: operands first, short lifetimes.
// A kernel that stores runs as soon as possible, for it frees what it reads. It waits for kernels
// that still read what it will overwrite, unless that makes a cycle.
#include "passes.h"

typedef struct Step {
	int wants;   // kernels it needs that have not run
	int readers; // kernels that have not run and read a slot this one stores to
	bool stores, done;
	VEC(int) users;   // kernels that need it
	VEC(int) writers; // kernels that store to a slot it reads
} Step;

typedef struct Order {
	const Plan *plan;
	const Reads *reads; // by kernel
	Step *step;         // by kernel
	int *readers;       // by Ref: kernels that have not run and read it; no slots
} Order;

static int *slot_writers(Arena *arena, const Plan *p, const int *writer)
{
	int *slot = NEWS(arena, int, p->graph->slots.count);
	for (int i = 0; i < p->graph->slots.count; i++)
		slot[i] = -1;
	for (int i = 0; i < p->graph->stores.count; i++)
		slot[p->graph->stores.at[i].slot] = writer[p->graph->stores.at[i].val];
	return slot;
}

static Order order_start(Arena *arena, const Plan *p)
{
	const int *writer = plan_writers(arena, p), *slot = slot_writers(arena, p, writer);
	Order o = {p, plan_reads(arena, p), NEWS(arena, Step, p->kerns.count),
	           NEWS(arena, int, p->graph->nval)};
	for (int i = 0; i < p->graph->slots.count; i++)
		if (slot[i] >= 0)
			o.step[slot[i]].stores = true;
	for (int k = 0; k < p->kerns.count; k++)
		for (int i = 0; i < o.reads[k].count; i++) {
			Ref r = o.reads[k].at[i].val;
			const Val *v = val(p->graph, r);
			bool is_slot = v->op == O_slot;
			int other = is_slot ? slot[v->attr->i[0]] : writer[r];
			o.readers[r] += !is_slot;
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
	for (int i = 0; i < o->reads[k].count; i++) {
		const Val *v = val(o->plan->graph, o->reads[k].at[i].val);
		if (o->readers[o->reads[k].at[i].val] == 1)
			bytes += bytes_of(v);
	}
	for (int i = 0; i < kern->nout; i++) {
		const Val *v = val(o->plan->graph, kern->out[i]);
		if (o->readers[kern->out[i]])
			bytes -= bytes_of(v);
	}
	return bytes;
}

// 0: stores, 1: neither, 2: overwrites what others still read.
static int rank_of(const Step *s)
{
	return s->readers ? 2 : !s->stores;
}

static int next_kernel(const Order *o)
{
	int best = -1, best_rank = 0;
	int64_t best_freed = 0;
	for (int k = 0; k < o->plan->kerns.count; k++) {
		const Step *s = &o->step[k];
		if (s->done || s->wants)
			continue;
		int rank = rank_of(s);
		int64_t bytes = MAX(0, freed(o, k));
		bool first =
		    best < 0 || o->plan->kerns.at[k].out[0] < o->plan->kerns.at[best].out[0];
		if (best < 0 || rank < best_rank ||
		    (rank == best_rank && (bytes > best_freed || (bytes == best_freed && first)))) {
			best = k;
			best_rank = rank;
			best_freed = bytes;
		}
	}
	if (best < 0)
		bug("kernels need each other");
	return best;
}

static void run_kernel(const Order *o, int k)
{
	Step *s = &o->step[k];
	s->done = true;
	for (int i = 0; i < s->users.count; i++)
		o->step[s->users.at[i]].wants--;
	for (int i = 0; i < s->writers.count; i++)
		o->step[s->writers.at[i]].readers--;
	for (int i = 0; i < o->reads[k].count; i++)
		o->readers[o->reads[k].at[i].val]--;
}

void order_pass(Arena *arena, Plan *p)
{
	Order o = order_start(arena, p);
	Kern *kern = NEWS(arena, Kern, p->kerns.count);
	for (int n = 0; n < p->kerns.count; n++) {
		int k = next_kernel(&o);
		kern[n] = p->kerns.at[k];
		run_kernel(&o, k);
	}
	p->kerns.at = kern;
	p->kerns.room = p->kerns.count;
}
