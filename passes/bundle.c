// bundle.c: launches small kernels together, on GPUs.
// To start a kernel takes a GPU longer than the update of a bias, which also leaves most of its
// multiprocessors idle. So kernels of one launch that need no other of it are:
//   last     small ones that store, and small ones that only these need
//   waiting  larger ones of the kind, which wait for further ones, in little memory
//   first    those that read only slots, such as the copies of weights in bf16
// A kernel that needs others of its group is in a later launch. Kernels of several launches have
// their first in one launch, their second, and so on. Each worker computes what it would alone.
#include "passes.h"
#include <string.h>

enum {
	MOST = 128 << 20, // bytes of what kernels of a group read or write
	SHARE = 4,        // of the parameters' bytes, and of a group's for one kernel, at most
};

typedef enum Turn { T_own, T_first, T_waiting, T_last } Turn; // T_own: it keeps its place

typedef struct Bundle {
	Arena *arena;
	const Plan *plan;
	const Reads *reads; // by kernel
	const int *writer;  // by Ref
	int *slot;          // by Ref: 1 + where it is stored
	Turn *turn;         // by kernel; done: it is in the new order
	bool *done;
	int *level;           // by kernel: its launch in the group, from 1 on; 0: it is in none
	int *reader, *storer; // by slot: the last launch of the group that reads it, overwrites it
	Ints group;           // kernels
	int64_t held, room;   // bytes of the group, at most
	Kern *kern;           // the new order
	int count;
} Bundle;

static bool is_plain(const Kern *kern)
{
	return kern->kind == L_map || kern->kind == L_row || kern->kind == L_col;
}

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
	return small && is_plain(kern) && count_of(&kern->space) <= LARGE_SPACE;
}

// Bytes that kernel k keeps in memory if it runs later, or earlier: of what others compute, or of
// its results.
static int64_t bytes_held(const Bundle *b, int k, Turn turn)
{
	const Graph *g = b->plan->graph;
	const Kern *kern = &b->plan->kerns.at[k];
	int64_t bytes = 0;
	for (int i = 0; i < b->reads[k].count && turn != T_first; i++)
		if (b->writer[b->reads[k].at[i].val] >= 0)
			bytes += bytes_of(val(g, b->reads[k].at[i].val));
	for (int o = 0; o < kern->nout && turn == T_first; o++)
		bytes += bytes_of(val(g, kern->out[o]));
	return bytes;
}

static bool may_be(const Bundle *b, int k, Turn turn)
{
	if (turn == T_last)
		return is_small(b, k);
	return is_plain(&b->plan->kerns.at[k]) && bytes_held(b, k, turn) <= b->room / SHARE;
}

// Marks the kernels that store, and those that only marked ones need, from the last on.
static void find_late(const Bundle *b, Turn turn)
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
		if (!b->turn[k] && stores[k] && !needed[k] && may_be(b, k, turn))
			b->turn[k] = turn;
		for (int i = 0; i < b->reads[k].count; i++) {
			int from = b->writer[b->reads[k].at[i].val];
			if (from < 0 || from == k)
				continue;
			stores[from] |= b->turn[k] != T_own;
			needed[from] |= b->turn[k] == T_own;
		}
	}
}

// Those that overwrite a slot run no earlier than they do: others read it.
static void find_first(const Bundle *b)
{
	for (int k = 0; k < b->plan->kerns.count; k++) {
		const Kern *kern = &b->plan->kerns.at[k];
		bool first = !b->turn[k] && may_be(b, k, T_first);
		for (int i = 0; i < b->reads[k].count && first; i++)
			first = b->writer[b->reads[k].at[i].val] < 0;
		for (int o = 0; o < kern->nout && first; o++)
			first = !b->slot[kern->out[o]];
		b->turn[k] = first ? T_first : b->turn[k];
	}
}

// ---- groups ---------------------------------------------------------------------------

static void put_kernel(Bundle *b, int k, bool bundled)
{
	b->kern[b->count] = b->plan->kerns.at[k];
	b->kern[b->count++].bundled = bundled;
	b->done[k] = true;
	b->level[k] = 0;
}

// Launches the kernels of a list with this level, those with the same kinds of launches together.
static void put_level(Bundle *b, const Ints *list, int level)
{
	for (int kind = 0; kind < 4; kind++)
		for (int i = 0, first = b->count; i < list->count; i++) {
			int k = list->at[i];
			const Sched *s = b->plan->kerns.at[k].sched;
			if (b->level[k] == level && 2 * !s->before + !s->after == kind)
				put_kernel(b, k, b->count > first);
		}
}

static void put_group(Bundle *b)
{
	int last = 0, slots = b->plan->graph->slots.count;
	for (int i = 0; i < b->group.count; i++)
		last = MAX(last, b->level[b->group.at[i]]);
	for (int level = 1; level <= last; level++)
		put_level(b, &b->group, level);
	memset(b->reader, 0, sizeof *b->reader * (size_t)slots);
	memset(b->storer, 0, sizeof *b->storer * (size_t)slots);
	b->group.count = 0;
	b->held = 0;
}

// Adds a kernel to the group: after those whose results it reads, and those before it that read a
// slot that it overwrites, or overwrite one that it reads.
static void join_group(Bundle *b, int k)
{
	const Graph *g = b->plan->graph;
	const Kern *kern = &b->plan->kerns.at[k];
	int before = 0;
	for (int i = 0; i < b->reads[k].count; i++) {
		Ref r = b->reads[k].at[i].val;
		const Val *v = val(g, r);
		int from = b->writer[r];
		if (v->op == O_slot)
			before = MAX(before, b->storer[v->attr->i[0]]);
		else if (from >= 0 && from != k)
			before = MAX(before, b->level[from]);
	}
	for (int o = 0; o < kern->nout; o++)
		if (b->slot[kern->out[o]])
			before = MAX(before, b->reader[b->slot[kern->out[o]] - 1]);
	int level = b->level[k] = before + 1;
	for (int i = 0; i < b->reads[k].count; i++) {
		const Val *v = val(g, b->reads[k].at[i].val);
		if (v->op == O_slot)
			b->reader[v->attr->i[0]] = MAX(b->reader[v->attr->i[0]], level);
	}
	for (int o = 0; o < kern->nout; o++)
		if (b->slot[kern->out[o]])
			b->storer[b->slot[kern->out[o]] - 1] = level;
	b->held += bytes_held(b, k, T_waiting);
	PUSH(b->arena, b->group, k);
}

// Launches those that read only slots, from kernel k on, as many as there is room for.
static void put_first(Bundle *b, int k)
{
	Ints list = {0};
	int64_t held = 0;
	for (; k < b->plan->kerns.count && held <= b->room; k++)
		if (b->turn[k] == T_first && !b->done[k]) {
			PUSH(b->arena, list, k);
			held += bytes_held(b, k, T_first);
		}
	put_level(b, &list, 0);
}

void bundle_pass(Arena *arena, Plan *p)
{
	if (p->machine->threads == 1)
		return;
	int n = p->kerns.count, slots = p->graph->slots.count;
	Bundle b = {.arena = arena,
	            .plan = p,
	            .reads = plan_reads(arena, p),
	            .writer = plan_writers(arena, p),
	            .slot = NEWS(arena, int, p->graph->nval),
	            .turn = NEWS(arena, Turn, n),
	            .done = NEWS(arena, bool, n),
	            .level = NEWS(arena, int, n),
	            .reader = NEWS(arena, int, slots + 1),
	            .storer = NEWS(arena, int, slots + 1),
	            .kern = NEWS(arena, Kern, n)};
	for (int i = 0; i < p->graph->stores.count; i++)
		b.slot[p->graph->stores.at[i].val] = 1 + p->graph->stores.at[i].slot;
	for (int i = 0; i < slots; i++) {
		const Slot *s = &p->graph->slots.at[i];
		b.room += s->kind == S_param ? byte_count(s->type, &s->shape) / SHARE : 0;
	}
	b.room = MIN(b.room, MOST);
	find_late(&b, T_last);
	find_late(&b, T_waiting);
	find_first(&b);
	for (int k = 0; k < n; k++) {
		if (b.turn[k] == T_own)
			put_kernel(&b, k, false);
		else if (b.turn[k] == T_first && !b.done[k])
			put_first(&b, k);
		else if (b.turn[k] == T_waiting)
			join_group(&b, k);
		if (b.held > b.room)
			put_group(&b);
	}
	put_group(&b);
	for (int k = 0; k < n; k++)
		if (b.turn[k] == T_last)
			join_group(&b, k);
	put_group(&b);
	p->kerns.at = b.kern;
	p->kerns.room = n;
}
