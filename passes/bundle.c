// bundle.c: launches the small updates of a step together, on GPUs.
// To start a kernel takes a GPU longer than the update of a bias, which also leaves most of its
// multiprocessors idle. So small kernels that store, and small ones that only these need, run last:
// those that depend on no other first, as one launch, then those that depend on these. Each worker
// computes what it would alone.
#include "passes.h"

typedef struct Bundle {
	Arena *arena;
	const Plan *plan;
	const Reads *reads; // by kernel
	const int *writer;  // by Ref
	int *level;         // by kernel: its launch, from 1 on; 0: it keeps its place
	int *after;         // by slot: the last launch that reads it
} Bundle;

// True if the main launch is all of kernel k, some multiprocessors would have none of it, and what
// it reads may stay in memory for so long.
static bool is_small(const Bundle *b, int k)
{
	const Graph *g = b->plan->graph;
	const Kern *kern = &b->plan->kerns.at[k];
	const Sched *s = kern->sched;
	bool small = !s->before && !s->after && s->workers < b->plan->machine->workers;
	for (int i = 0; i < b->reads[k].count; i++) {
		const Val *v = val(g, b->reads[k].at[i].val);
		small &= v->op == O_slot || count_of(&v->shape) <= LARGE_SPACE;
	}
	return small && (kern->kind == L_map || kern->kind == L_row || kern->kind == L_col) &&
	       count_of(&kern->space) <= LARGE_SPACE;
}

// Marks the kernels of the launches, from the last on: no other kernel needs them.
static void find_small(const Bundle *b)
{
	const Plan *p = b->plan;
	int n = p->kerns.count;
	bool *stores = NEWS(b->arena, bool, n), *needed = NEWS(b->arena, bool, n);
	for (int i = 0; i < p->graph->stores.count; i++) {
		int k = b->writer[p->graph->stores.at[i].val];
		if (k >= 0)
			stores[k] = true;
	}
	for (int k = n - 1; k >= 0; k--) {
		b->level[k] = stores[k] && !needed[k] && is_small(b, k);
		for (int i = 0; i < b->reads[k].count; i++) {
			int from = b->writer[b->reads[k].at[i].val];
			if (from < 0 || from == k)
				continue;
			stores[from] |= b->level[k] > 0;
			needed[from] |= !b->level[k];
		}
	}
}

// Numbers the launches: a kernel runs after those whose results it reads, or whose operands it
// overwrites.
static int find_levels(const Bundle *b)
{
	const Plan *p = b->plan;
	const Graph *g = p->graph;
	int last = 0;
	int *slot = NEWS(b->arena, int, g->nval); // by Ref: 1 + where it is stored
	for (int i = 0; i < g->stores.count; i++)
		slot[g->stores.at[i].val] = 1 + g->stores.at[i].slot;
	for (int k = 0; k < p->kerns.count; k++) {
		const Kern *kern = &p->kerns.at[k];
		int *level = &b->level[k];
		if (!*level)
			continue;
		for (int i = 0; i < b->reads[k].count; i++) {
			int from = b->writer[b->reads[k].at[i].val];
			if (from >= 0 && from != k)
				*level = MAX(*level, b->level[from] + 1);
		}
		for (int o = 0; o < kern->nout; o++)
			if (slot[kern->out[o]])
				*level = MAX(*level, b->after[slot[kern->out[o]] - 1] + 1);
		for (int i = 0; i < b->reads[k].count; i++) {
			const Val *v = val(g, b->reads[k].at[i].val);
			if (v->op == O_slot)
				b->after[v->attr->i[0]] = MAX(b->after[v->attr->i[0]], *level);
		}
		last = MAX(last, *level);
	}
	return last;
}

void bundle_pass(Arena *arena, Plan *p)
{
	if (p->machine->threads == 1)
		return;
	int n = p->kerns.count, count = 0;
	Bundle b = {.arena = arena,
	            .plan = p,
	            .reads = plan_reads(arena, p),
	            .writer = plan_writers(arena, p),
	            .level = NEWS(arena, int, n),
	            .after = NEWS(arena, int, p->graph->slots.count)};
	find_small(&b);
	int last = find_levels(&b);
	Kern *kern = NEWS(arena, Kern, n);
	for (int level = 0; level <= last; level++)
		for (int k = 0, first = count; k < n; k++) {
			if (b.level[k] != level)
				continue;
			kern[count] = p->kerns.at[k];
			kern[count].bundled = level && count > first;
			count++;
		}
	p->kerns.at = kern;
	p->kerns.room = n;
}
