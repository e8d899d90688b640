// loop_grad.c: differentiates loops, last iteration first.
// An iteration of the forward loop stores only carried values and the results of products, or the
// sums that they are only terms of; the rest is recomputed. A fixed value in a product (a weight)
// gets its gradient after the loop, by one product over all iterations.
#include "grad.h"

// Returns by Ref which values of the body an iteration stores besides carried ones. A sum needs
// none of its terms for their gradients.
static bool *mark_stored(Arena *arena, const Graph *body)
{
	const int *uses = graph_uses(arena, body);
	bool *stored = NEWS(arena, bool, body->nval);
	for (Ref r = 1; r < (Ref)body->nval; r++) {
		const Val *v = val(body, r);
		stored[r] = v->op == O_dot;
		for (int k = 0; k < v->nin && (v->op == O_add || v->op == O_sub); k++) {
			Ref x = v->in[k];
			if (!stored[x] || uses[x] > 1 ||
			    !same_shape(&val(body, x)->shape, &v->shape))
				continue;
			stored[x] = false;
			stored[r] = true;
		}
	}
	return stored;
}

Ref put_recorded(Backprop *s, const LoopInfo *own, const Ref *in)
{
	const Node *node = &s->g->nodes->list.at[s->g->from];
	if (own->trips > INT32_MAX) // each iteration stores values
		fail(
		    s->g->name,
		    "node '%s' (%s): cannot differentiate a loop without an upper bound of "
		    "iterations: give it a constant trip count, or freeze the parameters before it",
		    node->name, node->op);
	LoopInfo c = *own;
	Graph *body = graph_live(s->arena, own->body);
	int nval = body->nval;
	const bool *stored = mark_stored(s->arena, body);
	for (int k = 0; k < c.carried; k++)
		add_out(body, "carried", put_slot(body, k));
	for (Ref r = 1; r < (Ref)nval; r++)
		if (stored[r])
			add_out(body, "stored", r);
	c.body = body;
	c.stacked = body->outs.count - c.until - c.carried;
	Ref loop = put_loop(s->g, &c, in);
	Recorded *recorded = NEW(s->arena, Recorded);
	*recorded = (Recorded){own->stacked, NEWS(s->arena, Ref, loop_results(&c) + 1)};
	*table_cell(s->recorded, &loop, sizeof loop) = (uintptr_t)recorded;
	return loop;
}

Recorded *recorded_loop(const Backprop *s, Ref loop)
{
	const uint64_t *recorded = table_find(s->recorded, &loop, sizeof loop);
	if (!recorded)
		bug("a loop that cannot be differentiated");
	return (Recorded *)(uintptr_t)*recorded;
}

// ---- the body of the backward loop -----------------------------------------------------

typedef struct LoopGrad {
	Backprop *s; // of the graph that contains the loop
	Arena *arena;
	Ref loop;
	LoopInfo c;      // as recorded
	int stacked;     // number of its own stacked results
	int first_fixed; // among the slots of its body
	bool makes_all;  // it makes all its iterations
	const Ref *in;
	const Ref *gradient; // by result; 0: none
	bool *needed;        // by slot of its body: it needs a gradient
	LoopInfo backward;   // the backward loop. The slots of its body are, in this order: the
	                     // gradients so far of carried and of fixed values that need one; the
	                     // forward values of carried and scanned values, and those that are
	                     // stored; the gradients of its own stacked results, if any; fixed
	                     // values
	int *sum;            // by slot of the body: the slot of its gradient so far; -1: none
	VEC(Ref) operand;    // of the backward loop
	Backprop back;       // of its body
	bool *want;          // by slot of its body: it holds a value that needs a gradient
	const bool *stored;  // by Ref of its body
	int next;            // slot of the next of them; after the last, of the first own gradient
	VEC(Ref) stack;      // values of its body that it stacks
	Table *stacked_at;   // value of its body -> its index in `stack` + 1
} LoopGrad;

// Adds a slot of the new body for `operand`, or for its elements along the first axis.
static void new_slot(LoopGrad *u, Ref operand, bool entries)
{
	const Val *v = val(u->s->g, operand);
	Slot slot = {.kind = S_input, .type = v->type, .shape = v->shape};
	slot.name = format(u->arena, "x%d", u->operand.count);
	if (entries)
		slot.shape = shape_of(v->shape.rank - 1, v->shape.dim + 1);
	PUSH(u->arena, u->operand, operand);
	add_slot(u->back.g, slot);
}

// Returns the slot of the new body that holds the forward value of slot k of the body.
static int forward_slot(const LoopGrad *u, int k)
{
	return k < u->first_fixed ? u->backward.carried + k
	                          : u->back.first_fixed + k - u->first_fixed;
}

static void add_slots(LoopGrad *u)
{
	const LoopInfo *c = &u->c;
	Graph *g = u->s->g;
	int n = c->body->slots.count, recorded = c->carried + u->stacked;
	for (int k = 0; k < n; k++) {
		const Val *x = val(g, u->in[1 + k]);
		bool carried = k < c->carried;
		u->sum[k] = -1;
		if (!u->needed[k] || (!carried && k < u->first_fixed))
			continue;
		u->sum[k] = u->back.g->slots.count;
		new_slot(u,
		         carried && u->gradient[k] ? u->gradient[k] : zeros(g, x->type, x->shape),
		         false);
	}
	u->backward.carried = u->operand.count - 1;
	for (int k = 0; k < u->first_fixed; k++)
		new_slot(u, k < c->carried ? loop_result(g, u->loop, recorded + k) : u->in[1 + k],
		         true);
	for (int k = recorded + c->carried; k < loop_results(c); k++)
		new_slot(u, loop_result(g, u->loop, k), true);
	for (int k = c->carried; k < recorded; k++)
		if (u->gradient[k])
			new_slot(u, u->gradient[k], true);
	u->backward.scanned = u->operand.count - 1 - u->backward.carried;
	u->back.first_fixed = u->back.g->slots.count;
	for (int k = u->first_fixed; k < n; k++)
		new_slot(u, u->in[1 + k], false);
}

// Uses the slot of the new body that holds a value, else computes the value again.
static Ref put_value(void *context, Graph *to, const Val *v, const Ref *in)
{
	LoopGrad *u = context;
	bool stored = u->stored[ref_of(u->c.body, v)];
	if (v->op != O_slot && !stored)
		return put_differentiable(&u->back, to, v, in);
	int slot = stored ? u->next++ : forward_slot(u, (int)v->attr->i[0]);
	Ref held = put_slot(to, slot);
	u->want[slot] = u->back.from_needs[ref_of(u->c.body, v)];
	if (stored) {
		Val *with = take_copy(u->arena, v, sizeof *v);
		with->in = in;
		*table_cell(u->back.stored, &held, sizeof held) = (uintptr_t)with;
	}
	return held;
}

static void differentiate(LoopGrad *u)
{
	const LoopInfo *c = &u->c;
	Graph *body = u->back.g;
	Ref *now = NEWS(u->arena, Ref, c->body->nval);
	u->want = NEWS(u->arena, bool, body->slots.count);
	bool *stored = NEWS(u->arena, bool, c->body->nval);
	for (int k = 2 * c->carried + u->stacked; k < loop_results(c); k++)
		stored[result_ref(c, k)] = true;
	u->stored = stored;
	u->next = u->backward.carried + u->first_fixed;
	u->back.from_needs = mark_needs(u->arena, c->body, u->needed);
	copy_values(body, c->body, now, put_value, u);
	u->back.needs = mark_needs(u->arena, body, u->want);
	u->back.gradient = NEWS(u->arena, Ref, body->nval);
	u->back.last = (Ref)body->nval - 1;
	for (int k = 0; k < c->carried; k++)
		if (u->needed[k])
			add_gradient(&u->back, now[result_ref(c, k)], put_slot(body, u->sum[k]));
	for (int k = c->carried; k < c->carried + u->stacked; k++)
		if (u->gradient[k])
			add_gradient(&u->back, now[result_ref(c, k)], put_slot(body, u->next++));
	backprop(&u->back);
}

// ---- results of the backward loop ------------------------------------------------------

// Returns the gradient of the value in slot k of the body, or 0.
static Ref gradient_of(LoopGrad *u, int k)
{
	Ref slot = put_slot(u->back.g, forward_slot(u, k));
	return slot <= u->back.last && u->back.needs[slot] ? u->back.gradient[slot] : 0;
}

// Adds a value of the new body to those that it stacks.
static void stack(LoopGrad *u, Ref r)
{
	uint64_t *at = table_cell(u->stacked_at, &r, sizeof r);
	if (*at)
		return;
	PUSH(u->arena, u->stack, r);
	*at = (uint64_t)u->stack.count;
}

// Returns the operand whose elements value r of the new body is, if the loop makes all its
// iterations. 0: the value has to be stacked, which leaves zeros after the last iteration.
static Ref scanned_operand(const LoopGrad *u, Ref r)
{
	const Val *v = val(u->back.g, r);
	int64_t slot = v->op == O_slot ? v->attr->i[0] : -1;
	bool scanned = slot >= u->backward.carried && slot < u->back.first_fixed;
	return u->makes_all && scanned ? u->operand.at[1 + slot] : 0;
}

// True if this term is computed after the loop: a product, or a value of the same rank whose
// gradient is stacked anyway.
static bool is_after_loop(const LoopGrad *u, const Contribution *term)
{
	int rank = u->back.g->slots.at[term->slot].shape.rank;
	Ref gradient = term->gradient;
	bool known =
	    scanned_operand(u, gradient) || table_find(u->stacked_at, &gradient, sizeof gradient);
	return term->other || (known && val(u->back.g, gradient)->shape.rank == rank && rank > 0);
}

static void add_outs(LoopGrad *u)
{
	const LoopInfo *c = &u->c;
	Graph *body = u->back.g;
	for (int k = c->carried; k < u->first_fixed; k++)
		if (u->needed[k] && gradient_of(u, k))
			stack(u, gradient_of(u, k));
	for (int i = 0; i < u->back.terms.count; i++) {
		const Contribution *term = &u->back.terms.at[i];
		if (!term->other)
			continue;
		stack(u, term->gradient);
		if (!scanned_operand(u, term->other))
			stack(u, term->other);
	}
	for (int k = 0; k < c->body->slots.count; k++) {
		if (u->sum[k] < 0)
			continue;
		Ref before = put_slot(body, u->sum[k]), own = gradient_of(u, k), sum = before;
		const Slot *s = &c->body->slots.at[k];
		if (k < c->carried)
			sum = own ? own : zeros(body, s->type, s->shape);
		else if (own)
			sum = put2(body, O_add, sum, own);
		for (int i = 0; i < u->back.terms.count; i++) {
			const Contribution *term = &u->back.terms.at[i];
			if (term->slot == forward_slot(u, k) && !is_after_loop(u, term))
				sum = put2(body, O_add, sum,
				           match_operand(body, term->gradient, val(body, before)));
		}
		add_out(body, "sum", sum);
	}
	for (int k = 0; k < u->stack.count; k++)
		add_out(body, "stacked", u->stack.at[k]);
	u->backward.body = body;
	u->backward.stacked = u->stack.count;
	u->backward.fixed = body->slots.count - u->back.first_fixed;
}

// Returns a value of the new body in each iteration. result: of the backward loop.
static Ref all_iterations(LoopGrad *u, const Ref *result, Ref r)
{
	Ref scanned = scanned_operand(u, r);
	const uint64_t *at = table_find(u->stacked_at, &r, sizeof r);
	return scanned ? scanned : result[u->backward.carried + (int)*at - 1];
}

static void add_operand_gradients(LoopGrad *u, const Ref *result)
{
	Graph *g = u->s->g;
	for (int k = 0; k < u->c.body->slots.count; k++)
		if (u->sum[k] >= 0 && u->s->needs[u->in[1 + k]])
			add_gradient(u->s, u->in[1 + k], result[u->sum[k]]);
	for (int k = u->c.carried; k < u->first_fixed; k++)
		if (u->needed[k] && gradient_of(u, k))
			add_gradient(u->s, u->in[1 + k],
			             all_iterations(u, result, gradient_of(u, k)));
	for (int i = 0; i < u->back.terms.count; i++) {
		const Contribution *term = &u->back.terms.at[i];
		if (!is_after_loop(u, term))
			continue;
		// The term of all iterations at once: a product with one more axis.
		Ref fixed = u->operand.at[1 + term->slot], dx[2] = {0};
		Ref gradient = all_iterations(u, result, term->gradient);
		Ref one = put_reshape(g, fixed, stacked_shape(1, &val(g, fixed)->shape));
		if (term->other) {
			Ref in[2] = {one, one};
			in[1 - term->which] = all_iterations(u, result, term->other);
			Ref product = put(g, O_dot, 2, in, NULL);
			book_grad(g, val(g, product), product, gradient, in, dx);
			gradient = dx[term->which];
		}
		gradient = match_operand(g, gradient, val(g, one));
		add_gradient(u->s, fixed, put_reshape(g, gradient, val(g, fixed)->shape));
	}
}

// A carried value needs a gradient if its initial value does, or a value that it is computed from.
static bool *find_needed(const LoopGrad *u)
{
	const Graph *body = u->c.body;
	bool *needed = NEWS(u->arena, bool, body->slots.count + 1);
	for (int k = 0; k < body->slots.count; k++)
		needed[k] = u->s->needs[u->in[1 + k]] && is_float(body->slots.at[k].type);
	for (bool more = true; more;) {
		const bool *needs = mark_needs(u->arena, body, needed);
		more = false;
		for (int k = 0; k < u->c.carried; k++)
			if (needs[result_ref(&u->c, k)] && !needed[k])
				more = needed[k] = true;
	}
	return needed;
}

void differentiate_loop(Backprop *s, Ref loop)
{
	Graph *g = s->g;
	const Val *v = val(g, loop);
	const Recorded *recorded = recorded_loop(s, loop);
	LoopGrad u = {.s = s,
	              .arena = s->arena,
	              .loop = loop,
	              .c = loop_of(v),
	              .stacked = recorded->stacked,
	              .in = v->in,
	              .gradient = recorded->gradient,
	              .sum = NEWS(s->arena, int, v->nin),
	              .stacked_at = table_new(s->arena)};
	u.first_fixed = u.c.carried + u.c.scanned;
	u.makes_all = makes_all_trips(g, &u.c, u.in);
	Graph *body = graph_inside(s->arena, u.c.body);
	body->plain = g->plain; // as decomposed as the surrounding graph
	u.back = (Backprop){.arena = s->arena,
	                    .g = body,
	                    .from = u.c.body,
	                    .recorded = table_new(s->arena),
	                    .stored = table_new(s->arena)};
	u.backward = (LoopInfo){.trips = u.c.trips, .reverse = !u.c.reverse};
	g->from = v->from;
	PUSH(u.arena, u.operand, u.c.until ? loop : u.in[0]);
	u.needed = find_needed(&u);
	add_slots(&u);
	differentiate(&u);
	add_outs(&u);
	Ref *result = NEWS(s->arena, Ref, loop_results(&u.backward) + 1);
	put_trimmed_loop(g, &u.backward, u.operand.at, NULL, result);
	add_operand_gradients(&u, result);
}
