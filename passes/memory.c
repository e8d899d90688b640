// memory.c: assigns static memory to values.
// A stored value that cannot be computed in its slot is copied there by an additional kernel.
// Invariant: the locations of slots depend on the slot table alone, so all entries of a model
// agree.
#include "passes.h"
#include <stdlib.h>

typedef struct Buffer { // bytes in scratch, in use from kernel `first` to kernel `last`
	int64_t bytes, offset;
	int first, last, taken; // taken: 1 + the last kernel that writes it
} Buffer;

typedef struct Goal { // an output or a store
	Ref val;
	Location to;
	int slot;     // -1: an output
	bool written; // by the kernel that computes the value
} Goal;

typedef VEC(int) Ints;

typedef struct MemoryPlan {
	Arena *arena;
	Plan *plan;
	const Reads *reads; // by kernel
	const int *writer;  // by Ref
	int *last;          // by Ref: last kernel that reads it; -1: none
	int *buffer;        // by Ref: its buffer; -1: none
	VEC(Goal) goals;    // outputs, then stores
	Ints *waiting;      // by Ref: numbers of its goals
	VEC(Buffer) buffers;
} MemoryPlan;

static void place_slots(Arena *arena, Plan *p)
{
	const Graph *g = p->graph;
	int64_t inputs = 0;
	p->slot = NEWS(arena, Location, g->slots.count);
	for (int i = 0; i < g->slots.count; i++) {
		const Slot *s = &g->slots.at[i];
		int64_t bytes = full_lines(byte_count(s->type, &s->shape));
		if (s->kind == S_input) {
			p->slot[i] = (Location){B_input, inputs++};
		} else if (s->kind == S_state) {
			p->slot[i] = (Location){B_state, p->state_bytes};
			p->state_bytes += bytes;
		} else {
			p->slot[i] = (Location){B_param, p->param_bytes};
			p->param_bytes += bytes;
		}
	}
}

static void add_goal(MemoryPlan *l, Goal goal)
{
	PUSH(l->arena, l->waiting[goal.val], l->goals.count);
	PUSH(l->arena, l->goals, goal);
}

static MemoryPlan layout_of(Arena *arena, Plan *p)
{
	const Graph *g = p->graph;
	MemoryPlan l = {.arena = arena, .plan = p};
	l.reads = plan_reads(arena, p);
	l.writer = plan_writers(arena, p);
	l.last = NEWS(arena, int, g->nval);
	l.buffer = NEWS(arena, int, g->nval);
	l.waiting = NEWS(arena, Ints, g->nval);
	for (int r = 0; r < g->nval; r++)
		l.last[r] = l.buffer[r] = -1;
	for (int k = 0; k < p->kerns.count; k++)
		for (int i = 0; i < l.reads[k].count; i++)
			l.last[l.reads[k].at[i].val] = k;
	for (int i = 0; i < g->outs.count; i++)
		add_goal(&l, (Goal){g->outs.at[i].val, {B_output, i}, -1, false});
	for (int i = 0; i < g->stores.count; i++) {
		const Store *s = &g->stores.at[i];
		add_goal(&l, (Goal){s->val, p->slot[s->slot], s->slot, false});
	}
	return l;
}

// True if kernel k may write output v over u, which it reads as `reach` says: its workers read only
// the elements of u that they write. A value of the size of the space is read once; a smaller one
// is broadcast over the space, along the same axes only if the shapes are equal.
static bool may_overwrite(const Plan *p, int k, Ref v, Ref u, Reach reach)
{
	const Kern *kern = &p->kerns.at[k];
	const Val *to = val(p->graph, v), *from = val(p->graph, u);
	int64_t count = count_of(&to->shape);
	bool each = kern->kind == L_map || kern->kind == L_row || kern->kind == L_col ||
	            kern->kind == L_dot || (kern->kind == L_scatter && v == kern->root);
	bool alone = count == 1; // one worker
	return each && reach != R_moved && bytes_of(from) == bytes_of(to) &&
	       count_of(&from->shape) == count &&
	       (alone || count == count_of(&kern->space) ||
	        (reach == R_same && same_shape(&to->shape, &from->shape)));
}

// True if v may be computed in the slot: no later kernel reads the old contents, and the kernel
// that computes v reads only the elements that it writes.
static bool stores_in_place(const MemoryPlan *l, int slot, Ref v)
{
	Ref held = slot_ref(l->plan->graph, slot);
	int writer = l->writer[v];
	if (!held || writer < 0)
		return true;
	if (l->last[held] > writer)
		return false;
	for (int i = 0; i < l->reads[writer].count; i++) {
		Read read = l->reads[writer].at[i];
		if (read.val == held && !may_overwrite(l->plan, writer, v, held, read.reach))
			return false;
	}
	return true;
}

// Finds a buffer for output v of kernel k: that of a value that k is the last to read and may
// overwrite, or a new one.
static void scratch_for(MemoryPlan *l, int k, Ref v)
{
	const Reads *reads = &l->reads[k];
	for (int i = 0; i < reads->count; i++) {
		Ref u = reads->at[i].val;
		int b = l->buffer[u];
		if (b >= 0 && l->buffers.at[b].taken <= k && l->last[u] == k &&
		    may_overwrite(l->plan, k, v, u, reads->at[i].reach)) {
			l->buffer[v] = b;
			l->buffers.at[b].last = MAX(k, l->last[v]);
			l->buffers.at[b].taken = k + 1;
			return;
		}
	}
	l->buffer[v] = l->buffers.count;
	PUSH(l->arena, l->buffers,
	     ((Buffer){full_lines(bytes_of(val(l->plan->graph, v))), 0, k, MAX(k, l->last[v]),
	               k + 1}));
}

// Places the outputs of kernel k in outputs of the entry and slots, else in scratch, and its
// workspace. A value that cannot be computed in its slot is copied; so are values with many
// locations and the results of a loop, which writes to one location only.
static void place_kernel(MemoryPlan *l, int k)
{
	enum { PLACES = 16 }; // limit of locations that a kernel writes one value to
	Plan *p = l->plan;
	Kern *kern = &p->kerns.at[k];
	VEC(Ref) out = {0};
	VEC(Location) to = {0};
	for (int i = 0; i < kern->nout; i++) {
		Ref v = kern->out[i];
		const Val *value = val(p->graph, v);
		const Ints *waiting = &l->waiting[v];
		int first = to.count, copied = 0;
		for (int w = 0; w < waiting->count; w++) {
			Goal *goal = &l->goals.at[waiting->at[w]];
			goal->written = prims[value->op].cls != C_loop &&
			                to.count - first < PLACES &&
			                (goal->slot < 0 || stores_in_place(l, goal->slot, v));
			copied += !goal->written;
			if (goal->written)
				PUSH(l->arena, to, goal->to);
		}
		if (copied)
			l->last[v] = p->kerns.count;
		if (to.count == first) {
			scratch_for(l, k, v);
			PUSH(l->arena, to, ((Location){B_scratch, 0}));
		}
		if (value->op != O_slot)
			p->place[v] = to.at[first];
		while (out.count < to.count)
			PUSH(l->arena, out, v);
	}
	kern->nout = out.count;
	kern->out = out.at;
	kern->to = to.at;
	if (!kern->sched->work)
		return;
	// Until all buffers are placed, the offset is the number of the buffer.
	kern->work = (Location){B_scratch, l->buffers.count};
	PUSH(l->arena, l->buffers, ((Buffer){full_lines(kern->sched->work), 0, k, k, k + 1}));
}

static int by_size(const void *a, const void *b)
{
	const Buffer *x = *(Buffer *const *)a, *y = *(Buffer *const *)b;
	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? 1 : -1;
	return (x->first > y->first) - (x->first < y->first);
}

// Places the largest buffer first, each in the smallest gap between buffers in use at the same
// time. Returns the total size.
static int64_t place_buffers(MemoryPlan *l)
{
	int n = l->buffers.count;
	Buffer **order = NEWS(l->arena, Buffer *, n + 1),
	       **placed = NEWS(l->arena, Buffer *, n + 1); // by offset
	for (int i = 0; i < n; i++)
		order[i] = &l->buffers.at[i];
	qsort(order, (size_t)n, sizeof *order, by_size);
	int64_t total = 0;
	for (int i = 0; i < n; i++) {
		Buffer *b = order[i];
		int64_t end = 0, best = -1, room = INT64_MAX;
		for (int j = 0; j < i; j++) {
			if (placed[j]->first > b->last || b->first > placed[j]->last)
				continue;
			int64_t gap = placed[j]->offset - end;
			if (gap >= b->bytes && gap < room) {
				room = gap;
				best = end;
			}
			end = MAX(end, placed[j]->offset + placed[j]->bytes);
		}
		b->offset = best < 0 ? end : best;
		int at = i;
		for (; at > 0 && placed[at - 1]->offset > b->offset; at--)
			placed[at] = placed[at - 1];
		placed[at] = b;
		total = MAX(total, b->offset + b->bytes);
	}
	return total;
}

void memory_pass(Arena *arena, Plan *p)
{
	p->place = NEWS(arena, Location, p->graph->nval);
	place_slots(arena, p);
	place_leaves(p);
	MemoryPlan l = layout_of(arena, p);
	int computing = p->kerns.count;
	for (int k = 0; k < computing; k++)
		place_kernel(&l, k);
	for (int i = 0; i < l.goals.count; i++) {
		Goal *goal = &l.goals.at[i];
		const Val *v = val(p->graph, goal->val);
		if (goal->written || !count_of(&v->shape))
			continue;
		Kern copy = {.kind = L_map, .space = v->shape, .nout = 1};
		copy.out = &goal->val;
		copy.to = &goal->to;
		PUSH(arena, p->kerns, copy);
	}
	tile_pass(arena, p, computing);
	p->scratch_bytes = place_buffers(&l);
	for (int k = 0; k < p->kerns.count; k++) {
		Kern *kern = &p->kerns.at[k];
		if (kern->work.block == B_scratch)
			kern->work.offset = l.buffers.at[kern->work.offset].offset;
		for (int i = 0; i < kern->nout; i++) {
			Ref v = kern->out[i];
			if (kern->to[i].block == B_scratch)
				kern->to[i].offset = p->place[v].offset =
				    l.buffers.at[l.buffer[v]].offset;
		}
	}
}
