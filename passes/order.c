// order.c: the order of a plan's kernels: operands first, short lifetimes.
// Takes a Plan whose kernels are in any order. A kernel that stores runs as soon as it may: it
// frees what it reads. It waits for those that still read what it will overwrite, where that makes
// no knot.
#include "passes.h"

typedef struct Step {
	int wants;   // kernels it needs that have not run
	int readers; // kernels that have not run and read a slot this one stores to
	bool stores, done;
	VEC(int) users;   // kernels that need it
	VEC(int) writers; // kernels that store to a slot it reads
} Step;

static int *slot_writers(Arena *arena, const Plan *p, const int *writer)
{
	int *slot = NEWS(arena, int, p->graph->slots.count);
	for (int i = 0; i < p->graph->slots.count; i++)
		slot[i] = -1;
	for (int i = 0; i < p->graph->stores.count; i++)
		slot[p->graph->stores.at[i].slot] = writer[p->graph->stores.at[i].val];
	return slot;
}

static Step *steps_of(Arena *arena, const Plan *p)
{
	const int *writer = plan_writers(arena, p), *slot = slot_writers(arena, p, writer);
	const Reads *reads = plan_reads(arena, p);
	Step *step = NEWS(arena, Step, p->kerns.count);
	for (int i = 0; i < p->graph->slots.count; i++)
		if (slot[i] >= 0)
			step[slot[i]].stores = true;
	for (int k = 0; k < p->kerns.count; k++)
		for (int i = 0; i < reads[k].count; i++) {
			Ref r = reads[k].at[i].val;
			const Val *v = val(p->graph, r);
			int other = v->op == O_slot ? slot[v->attr->i[0]] : writer[r];
			if (other < 0 || other == k)
				continue;
			if (v->op == O_slot) {
				PUSH(arena, step[k].writers, other);
				step[other].readers++;
			} else {
				PUSH(arena, step[other].users, k);
				step[k].wants++;
			}
		}
	return step;
}

// Storing kernels first, then the order of the graph; one that overwrites what others still read
// only at need.
static int next_kernel(const Plan *p, const Step *step)
{
	int best = -1;
	for (int k = 0; k < p->kerns.count; k++) {
		if (step[k].done || step[k].wants)
			continue;
		if (best < 0) {
			best = k;
			continue;
		}
		const Step *a = &step[k], *b = &step[best];
		int rank = 2 * (a->readers > 0) - (a->stores && !a->readers);
		int best_rank = 2 * (b->readers > 0) - (b->stores && !b->readers);
		Ref first = p->kerns.at[k].out[0], best_first = p->kerns.at[best].out[0];
		if (rank < best_rank || (rank == best_rank && first < best_first))
			best = k;
	}
	if (best < 0)
		bug("kernels need each other");
	return best;
}

void order_pass(Arena *arena, Plan *p)
{
	Step *step = steps_of(arena, p);
	Kern *kern = NEWS(arena, Kern, p->kerns.count);
	for (int n = 0; n < p->kerns.count; n++) {
		int k = next_kernel(p, step);
		kern[n] = p->kerns.at[k];
		step[k].done = true;
		for (int i = 0; i < step[k].users.count; i++)
			step[step[k].users.at[i]].wants--;
		for (int i = 0; i < step[k].writers.count; i++)
			step[step[k].writers.at[i]].readers--;
	}
	p->kerns.at = kern;
	p->kerns.room = p->kerns.count;
}
