// loop.c: reads, trims and unrolls loops.
// Output: loops that carry, scan and stack only what is needed, and whose bodies compute only what
// varies between iterations. Invariant: the meaning of a loop.
#include "ir.h"
#include <string.h>

LoopInfo loop_of(const Val *v)
{
	const int64_t *i = v->attr->i;
	LoopInfo l = {.body = v->data,
	              .trips = i[0],
	              .carried = (int)i[1],
	              .scanned = (int)i[2],
	              .reverse = i[3] != 0,
	              .until = i[4] != 0};
	l.fixed = l.body->slots.count - l.carried - l.scanned;
	l.stacked = l.body->outs.count - l.until - l.carried;
	return l;
}

int loop_operands(const LoopInfo *l)
{
	return 1 + l->carried + l->scanned + l->fixed;
}

int loop_results(const LoopInfo *l)
{
	return l->carried + l->stacked;
}

Ref result_ref(const LoopInfo *l, int k)
{
	return l->body->outs.at[l->until + k].val;
}

const Val *result_val(const LoopInfo *l, int k)
{
	return val(l->body, result_ref(l, k));
}

Shape result_shape(const LoopInfo *l, int k)
{
	const Shape *entry = &result_val(l, k)->shape;
	return k < l->carried ? *entry : stacked_shape(l->trips, entry);
}

bool makes_all_trips(const Graph *g, const LoopInfo *l, const Ref *in)
{
	return !l->until && is_const(g, in[0]) && const_int_at(val(g, in[0]), 0) >= l->trips;
}

Ref loop_result(Graph *g, Ref loop, int k)
{
	return put(g, O_result, 1, &loop, &(Attr){.n = 1, .i = {k}});
}

// ---- a body's values in another graph -------------------------------------------------

typedef struct Copy { // of the values of one graph to another
	Graph *to;
	const Graph *from;
	const Ref *slot; // by slot of `from`
	Ref *now;        // by Ref of `from`
} Copy;

static Copy copy_start(Graph *to, const Graph *from, const Ref *slot)
{
	return (Copy){to, from, slot, NEWS(to->arena, Ref, from->nval)};
}

static void copy_value(Copy *c, Ref r)
{
	Val v = *val(c->from, r);
	Ref *in = NEWS(c->to->arena, Ref, v.nin + 1);
	if (v.op == O_slot) {
		c->now[r] = c->slot[v.attr->i[0]];
		return;
	}
	for (int k = 0; k < v.nin; k++)
		in[k] = c->now[v.in[k]];
	if (!v.from || c->to->nodes != c->from->nodes)
		v.from = c->to->from;
	c->now[r] = put_as(c->to, &v, in);
}

Ref *put_body(Graph *g, const Graph *body, const Ref *slot)
{
	Copy c = copy_start(g, body, slot);
	const int *live = graph_uses(g->arena, body);
	for (Ref r = 1; r < (Ref)body->nval; r++)
		if (live[r])
			copy_value(&c, r);
	return c.now;
}

// ---- unrolling ------------------------------------------------------------------------

void unroll_loop(Graph *g, const LoopInfo *l, const Ref *in, int64_t most, Ref *part)
{
	int64_t limit = makes_all_trips(g, l, in) || !is_const(g, in[0])
	                    ? l->trips
	                    : MIN(l->trips, const_int_at(val(g, in[0]), 0));
	int64_t count = MIN(limit, most);
	Ref *slot = take_copy(g->arena, in + 1, sizeof *in * (size_t)(loop_operands(l) - 1));
	Ref **entry = NEWS(g->arena, Ref *, l->stacked + 1);
	for (int k = 0; k < l->stacked; k++)
		entry[k] = NEWS(g->arena, Ref, count + 1);
	for (int64_t i = 0; i < count; i++) {
		for (int k = l->carried; k < l->carried + l->scanned; k++) {
			Shape one = val(g, in[1 + k])->shape, element = l->body->slots.at[k].shape;
			int64_t start[RANK] = {l->reverse ? limit - 1 - i : i};
			one.dim[0] = 1;
			slot[k] =
			    put_reshape(g, put_slice(g, in[1 + k], start, one.dim, NULL), element);
		}
		const Ref *now = put_body(g, l->body, slot);
		for (int k = 0; k < l->carried; k++)
			slot[k] = now[result_ref(l, k)];
		for (int k = 0; k < l->stacked; k++)
			entry[k][i] = now[result_ref(l, l->carried + k)];
	}
	for (int k = 0; k < l->carried; k++)
		part[k] = slot[k];
	// The elements, and the last again for iterations that are left out.
	Ref *piece = NEWS(g->arena, Ref, count + 1);
	for (int k = 0; k < l->stacked; k++) {
		int result = l->carried + k;
		const Val *element = result_val(l, result);
		if (!count) {
			Ref zero = put_num(g, element->type, 0);
			part[result] = put_broadcast(g, zero, result_shape(l, result));
			continue;
		}
		Shape one = stacked_shape(1, &element->shape);
		for (int64_t i = 0; i < count; i++)
			piece[l->reverse ? count - i : i] = put_reshape(g, entry[k][i], one);
		Ref last = piece[l->reverse ? 1 : count - 1];
		one.dim[0] = l->trips - count;
		piece[l->reverse ? 0 : count] = put_expand(g, last, one);
		part[result] = put_concat(g, 0, (int)count + 1, piece);
	}
}

// ---- constant operands ----------------------------------------------------------------

// Evaluates a loop with constant operands; false if one is not constant.
static bool eval_known(Arena *arena, const Graph *g, Ref loop, Array *result)
{
	const Val *v = val(g, loop);
	Array *operand = NEWS(arena, Array, v->nin);
	for (int k = 0; k < v->nin; k++) {
		const Val *x = val(g, v->in[k]);
		if (x->op != O_const)
			return false;
		operand[k] = array_from(arena, x->type, &x->shape, x->data);
	}
	*result = eval_value(arena, g, loop, NULL, operand, NULL, NULL);
	return true;
}

// Puts a loop and its results, as constants if all operands are constant and it is cheap. Returns
// the number of iterations.
static Ref put_results(Graph *g, const LoopInfo *l, const Ref *in, Ref *result)
{
	enum { WORK = 1 << 22 }; // most elements in all iterations
	int64_t work = 1;
	bool known = true;
	for (Ref r = 1; r < (Ref)l->body->nval; r++) {
		const Val *v = val(l->body, r);
		work += count_of(&v->shape);
		known &= v->op != O_rand && v->op != O_loop;
	}
	for (int k = 0; k < loop_results(l); k++) {
		Shape s = result_shape(l, k);
		known &= count_of(&s) <= FOLD_LIMIT;
	}
	Array all;
	Ref loop = put_loop(g, l, in);
	Arena *arena = arena_within(g->arena);
	known = known && l->trips <= WORK / work && eval_known(arena, g, loop, &all);
	for (int k = 0; k < loop_results(l); k++) {
		if (!known) {
			result[k] = loop_result(g, loop, k);
			continue;
		}
		const Array *x = &all.part[k];
		void *bytes = take(arena, (size_t)count_of(&x->shape) * 8);
		array_to(x, bytes);
		result[k] = put_const(g, x->type, x->shape, bytes);
	}
	if (known)
		loop = put_num(g, E_i64, (double)all.i[0]);
	arena_free(arena);
	return loop;
}

// ---- trimming -------------------------------------------------------------------------

typedef struct Trim {
	Graph *g, *body; // the graph, and the new body
	const LoopInfo *loop;
	const Ref *in;
	const bool *want; // by result; NULL: all
	bool *unchanged;  // by carried value: no iteration changes it
	bool *live;       // by Ref of the old body: it is needed
	bool *varies;     // between iterations
	bool *invariant;  // it does not vary, and is not made of constants alone
	bool *read;       // by a varying value, or by an output
	Copy before;      // the old body's invariant values, in g
	Copy iteration;   // its others, in the new body
	VEC(Ref) operand; // of the new loop
	Table *known;     // operand -> its slot in the new body
} Trim;

static bool is_wanted(const Trim *w, int k)
{
	return (!w->want || w->want[k]) && !(k < w->loop->carried && w->unchanged[k]);
}

static int slot_of(const Val *v)
{
	return v->op == O_slot ? (int)v->attr->i[0] : -1;
}

static bool is_fixed(const Trim *w, int slot)
{
	const LoopInfo *l = w->loop;
	return slot < l->carried ? w->unchanged[slot] : slot >= l->carried + l->scanned;
}

static void mark_live(Trim *w, Ref r)
{
	const Val *v = val(w->loop->body, r);
	int slot = slot_of(v);
	if (w->live[r])
		return;
	w->live[r] = true;
	for (int k = 0; k < v->nin; k++)
		mark_live(w, v->in[k]);
	if (slot >= 0 && slot < w->loop->carried && !is_fixed(w, slot))
		mark_live(w, result_ref(w->loop, slot));
}

// Adds a slot of the new body for `operand`.
static Ref new_slot(Trim *w, Ref operand, const Slot *like)
{
	Slot slot = *like;
	slot.name = format(w->g->arena, "x%d", w->operand.count);
	slot.kind = S_input;
	PUSH(w->g->arena, w->operand, operand);
	return put_slot(w->body, add_slot(w->body, slot));
}

// True if the new loop carries or scans slot s.
static bool keeps_slot(const Trim *w, int s)
{
	Ref r = slot_ref(w->loop->body, s);
	bool wanted = s < w->loop->carried && is_wanted(w, s);
	return (wanted || (r && w->live[r])) && !is_fixed(w, s);
}

// Puts the iteration into the new body, and what is the same in all before the loop.
static void put_iteration(Trim *w, LoopInfo *trimmed)
{
	enum { SMALL = 16 }; // elements of a constant that is copied into the body
	const LoopInfo *l = w->loop;
	Ref *slot = NEWS(w->g->arena, Ref, l->body->slots.count + 1);
	w->iteration = copy_start(w->body, l->body, slot);
	for (int s = 0; s < l->carried + l->scanned; s++) {
		if (!keeps_slot(w, s))
			continue;
		slot[s] = new_slot(w, w->in[1 + s], &l->body->slots.at[s]);
		*(s < l->carried ? &trimmed->carried : &trimmed->scanned) += 1;
	}
	for (Ref r = 1; r < (Ref)l->body->nval; r++) {
		if (!w->live[r])
			continue;
		if (!w->varies[r])
			copy_value(&w->before, r);
		if (!w->invariant[r])
			copy_value(&w->iteration, r);
		if (!w->invariant[r] || !w->read[r])
			continue;
		Ref operand = w->before.now[r], *now = &w->iteration.now[r];
		const Val *v = val(w->g, operand);
		double number;
		if (const_num(w->g, operand, &number) ||
		    (is_const(w->g, operand) && count_of(&v->shape) <= SMALL)) {
			*now = put_const(w->body, v->type, v->shape, v->data);
			continue;
		}
		uint64_t *cell = table_cell(w->known, &operand, sizeof operand);
		if (!*cell)
			*cell = new_slot(w, operand, &(Slot){.type = v->type, .shape = v->shape});
		*now = (Ref)*cell;
	}
	trimmed->fixed = w->body->slots.count - trimmed->carried - trimmed->scanned;
}

// Adds the outputs of the new body; at[k]: the index of result k in the new loop, or -1.
static void add_results(Trim *w, LoopInfo *trimmed, int *at)
{
	const LoopInfo *l = w->loop;
	Graph *body = w->body;
	if (l->until)
		add_out(body, "on", w->iteration.now[l->body->outs.at[0].val]);
	for (int k = 0; k < loop_results(l); k++) {
		Ref r = w->iteration.now[result_ref(l, k)];
		at[k] = -1;
		if (k < l->carried ? !keeps_slot(w, k) : !is_wanted(w, k))
			continue;
		for (int j = l->until + trimmed->carried; k >= l->carried && j < body->outs.count;
		     j++)
			if (body->outs.at[j].val == r)
				at[k] = j - l->until;
		if (at[k] >= 0)
			continue;
		at[k] = body->outs.count - l->until;
		add_out(body, format(w->g->arena, "y%d", at[k]), r);
	}
	trimmed->stacked = body->outs.count - l->until - trimmed->carried;
}

// Finds what each value of the body needs, and where it is computed.
static void find_invariant(Trim *w)
{
	const Graph *body = w->loop->body;
	for (Ref r = 1; r < (Ref)body->nval; r++) {
		const Val *v = val(body, r);
		if (v->op == O_slot) {
			w->invariant[r] = is_fixed(w, slot_of(v));
			w->varies[r] = !w->invariant[r];
		}
		for (int k = 0; k < v->nin; k++) {
			w->invariant[r] |= w->invariant[v->in[k]];
			w->varies[r] |= w->varies[v->in[k]];
		}
		w->invariant[r] &= !w->varies[r];
		for (int k = 0; w->live[r] && !w->invariant[r] && k < v->nin; k++)
			w->read[v->in[k]] = true;
	}
	for (int k = 0; k < body->outs.count; k++)
		w->read[body->outs.at[k].val] = true;
}

Ref put_trimmed_loop(Graph *g, const LoopInfo *l, const Ref *in, const bool *want, Ref *part)
{
	Arena *arena = g->arena;
	int nval = l->body->nval, n = loop_results(l), *at = NEWS(arena, int, n + 1);
	if (l->trips == 0 || (l->trips == 1 && makes_all_trips(g, l, in))) {
		unroll_loop(g, l, in, 1, part);
		return put_num(g, E_i64, (double)l->trips);
	}
	Trim w = {.g = g, .body = graph_inside(arena, l->body), .loop = l, .in = in, .want = want};
	w.unchanged = NEWS(arena, bool, l->carried + 1);
	w.live = NEWS(arena, bool, nval);
	w.varies = NEWS(arena, bool, nval);
	w.invariant = NEWS(arena, bool, nval);
	w.read = NEWS(arena, bool, nval);
	w.before = copy_start(g, l->body, in + 1);
	w.known = table_new(arena);
	for (int k = 0; k < l->carried; k++)
		w.unchanged[k] = slot_of(result_val(l, k)) == k;
	if (l->until)
		mark_live(&w, l->body->outs.at[0].val);
	for (int k = 0; k < n; k++)
		if (is_wanted(&w, k))
			mark_live(&w, result_ref(l, k));
	find_invariant(&w);
	PUSH(arena, w.operand, in[0]);
	LoopInfo trimmed = {
	    .body = w.body, .trips = l->trips, .reverse = l->reverse, .until = l->until};
	put_iteration(&w, &trimmed);
	add_results(&w, &trimmed, at);
	bool none = !l->until && !loop_results(&trimmed);
	Ref *result = NEWS(arena, Ref, loop_results(&trimmed) + 1);
	Ref trips = none ? 0 : put_results(g, &trimmed, w.operand.at, result);
	for (int k = 0; k < n; k++)
		part[k] = at[k] >= 0                         ? result[at[k]]
		          : k < l->carried && w.unchanged[k] ? in[1 + k]
		                                             : 0;
	if (l->until)
		return trips;
	Ref most = put2(g, O_min, in[0], put_num(g, E_i64, (double)l->trips));
	return put2(g, O_max, most, put_num(g, E_i64, 0));
}

// ---- trip count -----------------------------------------------------------------------

int64_t known_trips(Graph *g, const LoopInfo *l, const Ref *in, int64_t most)
{
	LoopInfo few = *l;
	int n = loop_results(l);
	Ref *part = NEWS(g->arena, Ref, n + 1);
	few.trips = l->scanned ? l->trips : MIN(l->trips, most);
	Ref trips = put_trimmed_loop(g, &few, in, NEWS(g->arena, bool, n + 1), part);
	const Val *v = val(g, trips);
	if (v->op == O_const)
		return const_int_at(v, 0) < most ? const_int_at(v, 0) : -1;
	if (v->op != O_loop)
		return -1;
	Arena *arena = arena_within(g->arena);
	Array result;
	int64_t made = eval_known(arena, g, trips, &result) ? result.i[0] : -1;
	arena_free(arena);
	return made < few.trips || few.trips == l->trips ? made : -1;
}
