// memory.c: assigns static memory to values.
// A stored value that cannot be computed in its slot is copied there by an additional kernel.
// Invariant: the locations of slots depend on the slot table alone, so all entries of a model
// agree.
#include "memory.h"
#include <stdlib.h>
#include <string.h>

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
		} else if (s->kind == S_grad) { // after its parameter
			int of = find_slot(g, s->name + strlen(GRAD_OF));
			p->slot[i] = (Location){B_grad, p->slot[of].offset};
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

// Returns the runs that are one launch with this one.
static Span launch_span(const Plan *p, int run)
{
	return (Span){launch_begin(p, run), launch_end(p, run) - 1};
}

// Finds the runs of each value: from one that writes it to the last that reads it, before it is
// written again; those of one launch are one run, at any time of which it may be used. Those of a
// slot begin before all runs; bundled kernels read no slots that others of their launch write.
static void find_spans(MemoryPlan *l)
{
	const Graph *g = l->plan->graph;
	for (Ref r = 1; r < (Ref)g->nval; r++)
		if (val(g, r)->op == O_slot)
			PUSH(l->arena, l->spans[r], ((Span){-1, -1}));
	for (int t = 0; t < run_count(l->plan); t++) {
		int k = run_kernel(l->plan, t);
		const Kern *kern = &l->plan->kerns.at[k];
		Span launch = launch_span(l->plan, t);
		for (int i = 0; i < l->reads[k].count; i++) {
			Ref r = l->reads[k].at[i].val;
			Spans *spans = &l->spans[r];
			if (spans->count)
				spans->at[spans->count - 1].last =
				    val(g, r)->op == O_slot ? t : launch.last;
		}
		for (int i = 0; i < kern->nout; i++)
			if (l->writer[kern->out[i]] == k)
				PUSH(l->arena, l->spans[kern->out[i]], launch);
		PUSH(l->arena, l->runs[k], t);
	}
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
	       from->pitch == to->pitch && count_of(&from->shape) == count &&
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
	if (last_span(l, held)->last > l->runs[writer].at[0])
		return false;
	for (int i = 0; i < l->reads[writer].count; i++) {
		Read read = l->reads[writer].at[i];
		if (read.val == held && !may_overwrite(l->plan, writer, v, held, read.reach))
			return false;
	}
	return true;
}

// True if kernel k, whenever it runs, is the last to read u, and v may take the memory of u then:
// no other value of the buffer is in use while v is. Extends the spans of the buffer by those of v.
static bool take_over(MemoryPlan *l, int k, Ref v, Ref u)
{
	Buffer *b = &l->buffers.at[l->buffer[u]];
	const Spans *from = &l->spans[u], *to = &l->spans[v];
	int died = 0;
	for (int i = 0; i < from->count; i++)
		died += from->at[i].last < run_count(l->plan) &&
		        run_kernel(l->plan, from->at[i].last) == k;
	if (died != l->runs[k].count)
		return false;
	for (int i = 0; i < to->count; i++)
		for (int j = 0; j < b->spans.count; j++)
			if (to->at[i].last >= b->spans.at[j].first &&
			    to->at[i].first < b->spans.at[j].last)
				return false;
	for (int i = 0; i < to->count; i++)
		for (int j = 0; j < b->spans.count; j++)
			if (b->spans.at[j].last == to->at[i].first) {
				b->spans.at[j].last = to->at[i].last;
				break;
			}
	return true;
}

static int add_buffer(MemoryPlan *l, int k, int64_t bytes, Spans spans)
{
	PUSH(l->arena, l->buffers, ((Buffer){full_lines(bytes), 0, spans, k + 1}));
	return l->buffers.count - 1;
}

// Finds a buffer for output v of kernel k: that of a value that k is the last to read and may
// overwrite, if it is launched alone, or a new one.
static void scratch_for(MemoryPlan *l, int k, Ref v)
{
	const Reads *reads = &l->reads[k];
	int run = l->runs[k].at[0];
	bool alone = launch_end(l->plan, run) - launch_begin(l->plan, run) == 1;
	for (int i = 0; i < reads->count && alone; i++) {
		Ref u = reads->at[i].val;
		int b = l->buffer[u];
		if (b >= 0 && l->buffers.at[b].taken <= k &&
		    may_overwrite(l->plan, k, v, u, reads->at[i].reach) && take_over(l, k, v, u)) {
			l->buffer[v] = b;
			l->buffers.at[b].taken = k + 1;
			return;
		}
	}
	Spans own = {0};
	for (int i = 0; i < l->spans[v].count; i++)
		PUSH(l->arena, own, l->spans[v].at[i]);
	l->buffer[v] = add_buffer(l, k, bytes_of(val(l->plan->graph, v)), own);
}

// Finds the memory of the outputs of kernel k: outputs of the entry and slots, else scratch; and
// its workspace. A value that cannot be computed in its slot is copied; so are values with many
// locations and the results of a loop, which writes to one location only.
static void plan_kernel(MemoryPlan *l, int k)
{
	enum { PLACES = 16 }; // limit of locations that a kernel writes one value to
	Plan *p = l->plan;
	const Kern *kern = &p->kerns.at[k];
	for (int i = 0; i < kern->nout; i++) {
		Ref v = kern->out[i];
		const Ints *waiting = &l->waiting[v];
		int written = 0;
		for (int w = 0; w < waiting->count; w++) {
			Goal *goal = &l->goals.at[waiting->at[w]];
			goal->written = prims[val(p->graph, v)->op].cls != C_loop &&
			                written < PLACES &&
			                (goal->slot < 0 || stores_in_place(l, goal->slot, v));
			written += goal->written;
		}
		if (written < waiting->count)
			last_span(l, v)->last = run_count(p);
		if (!written)
			scratch_for(l, k, v);
	}
	Spans working = {0};
	for (int i = 0; i < l->runs[k].count && kern->sched->work; i++)
		PUSH(l->arena, working, launch_span(p, l->runs[k].at[i]));
	l->work[k] = working.count ? add_buffer(l, k, kern->sched->work, working) : -1;
}

MemoryPlan memory_plan(Arena *arena, Plan *p, const Reads *reads, const int *writer)
{
	const Graph *g = p->graph;
	MemoryPlan l = {.arena = arena, .plan = p, .reads = reads, .writer = writer};
	l.spans = NEWS(arena, Spans, g->nval);
	l.runs = NEWS(arena, Ints, p->kerns.count);
	l.work = NEWS(arena, int, p->kerns.count);
	l.buffer = NEWS(arena, int, g->nval);
	l.waiting = NEWS(arena, Ints, g->nval);
	for (int r = 0; r < g->nval; r++)
		l.buffer[r] = -1;
	find_spans(&l);
	for (int i = 0; i < g->outs.count; i++)
		add_goal(&l, (Goal){g->outs.at[i].val, i, -1, false});
	for (int i = 0; i < g->stores.count; i++)
		add_goal(&l, (Goal){g->stores.at[i].val, -1, g->stores.at[i].slot, false});
	for (int k = 0; k < p->kerns.count; k++)
		plan_kernel(&l, k);
	return l;
}

static int by_size(const void *a, const void *b)
{
	const Buffer *x = *(Buffer *const *)a, *y = *(Buffer *const *)b;
	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? 1 : -1;
	int first = x->spans.at[0].first, other = y->spans.at[0].first;
	return (first > other) - (first < other);
}

static bool used_together(const Buffer *a, const Buffer *b)
{
	for (int i = 0; i < a->spans.count; i++)
		for (int j = 0; j < b->spans.count; j++)
			if (a->spans.at[i].first <= b->spans.at[j].last &&
			    b->spans.at[j].first <= a->spans.at[i].last)
				return true;
	return false;
}

int64_t place_buffers(MemoryPlan *l)
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
			if (!used_together(placed[j], b))
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

static Location goal_location(const MemoryPlan *l, const Goal *goal)
{
	return goal->slot < 0 ? (Location){B_output, goal->output} : l->plan->slot[goal->slot];
}

static Location scratch_at(const MemoryPlan *l, int buffer)
{
	return (Location){B_scratch, l->buffers.at[buffer].offset};
}

// Writes the locations that were found for kernel k to the plan.
static void place_kernel(MemoryPlan *l, int k)
{
	Plan *p = l->plan;
	Kern *kern = &p->kerns.at[k];
	VEC(Ref) out = {0};
	VEC(Location) to = {0};
	for (int i = 0; i < kern->nout; i++) {
		Ref v = kern->out[i];
		const Ints *waiting = &l->waiting[v];
		int first = to.count;
		for (int w = 0; w < waiting->count; w++)
			if (l->goals.at[waiting->at[w]].written)
				PUSH(l->arena, to, goal_location(l, &l->goals.at[waiting->at[w]]));
		if (to.count == first)
			PUSH(l->arena, to, scratch_at(l, l->buffer[v]));
		if (val(p->graph, v)->op != O_slot)
			p->place[v] = to.at[first];
		while (out.count < to.count)
			PUSH(l->arena, out, v);
	}
	kern->nout = out.count;
	kern->out = out.at;
	kern->to = to.at;
	if (l->work[k] >= 0)
		kern->work = scratch_at(l, l->work[k]);
}

void memory_pass(Arena *arena, Plan *p)
{
	p->place = NEWS(arena, Location, p->graph->nval);
	place_slots(arena, p);
	place_leaves(p);
	MemoryPlan l = memory_plan(arena, p, plan_reads(arena, p), plan_writers(arena, p));
	p->scratch_bytes = place_buffers(&l);
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
		copy.to = NEW(arena, Location);
		*copy.to = goal_location(&l, goal);
		copy.bundled = p->machine->threads > 1 && p->kerns.count > computing;
		if (p->order.count)
			PUSH(arena, p->order, p->kerns.count);
		PUSH(arena, p->kerns, copy);
	}
	tile_pass(arena, p, computing);
}
