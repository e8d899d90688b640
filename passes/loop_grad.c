// loop_grad.c: differentiates loops, last iteration first.
// Input: a forward loop that is to be differentiated, and the gradients so far. Output: the
// gradients of its operands. An iteration stores only carried values and the results of products;
// the rest is recomputed. A fixed value in a product (a weight) gets its gradient after the loop,
// by one product over all iterations.
#include "grad.h"

// Fails if the number of iterations has no upper bound, because each stores values.
static void check_bound(const Graph *g, const LoopInfo *c)
{
	static const char problem[] =
	    "cannot differentiate a loop without an upper bound of iterations: give "
	    "it a constant trip count, or freeze the parameters before it";
	const Node *node = &g->nodes->list.at[g->from];
	if (c->trips > INT32_MAX)
		fail(g->name, "node '%s' (%s): %s", node->name, node->op, problem);
}

Ref put_recorded(Backprop *s, const LoopInfo *own, const Ref *in)
{
	LoopInfo c = *own;
	check_bound(s->g, own);
	Graph *body = graph_live(s->arena, own->body);
	VEC(Ref) product = {0};
	c.body = body;
	for (int k = 0; k < c.carried; k++)
		add_out(body, "carried", put_slot(body, k));
	for (Ref r = 1; r < (Ref)body->nval; r++)
		if (val(body, r)->op == O_dot) {
			PUSH(s->arena, product, r);
			add_out(body, "product", r);
		}
	c.stacked += c.carried + product.count;
	Ref loop = put_loop(s->g, &c, in);
	PUSH(s->arena, s->records, ((Record){loop, own->stacked, product.count, product.at}));
	return loop;
}

// ---- the body of the backward loop -----------------------------------------------------

typedef struct LoopGrad {
	Backprop *s; // of the graph that contains the loop
	Arena *arena;
	const Record *record;
	Ref loop;
	LoopInfo c;     // as recorded
	bool makes_all; // it makes all its iterations
	const Ref *in;
	Ref *gradient;          // by result: its gradient, or 0
	bool *needed;           // by slot of the body: it needs a gradient
	Backprop back;          // of the new body
	LoopInfo backward_loop; // the backward loop
	VEC(Ref) operand;
	int *carry, *sum, *enter,
	    *again; // slots of the new body: by carried value and by fixed value, the gradient so
	            // far; by slot and by product, the forward value
	int *stacked_gradient; // by stacked result: the slot of its gradient; -1: none
	VEC(Ref) stack;        // values of the new body that the backward loop stacks
} LoopGrad;

static int slot_number(const LoopGrad *u, Ref r)
{
	const Val *v = val(u->back.g, r);
	return v->op == O_slot ? (int)v->attr->i[0] : -1;
}

// Adds a slot of the new body for `operand`, or for its elements along the first axis.
static int new_slot(LoopGrad *u, Ref operand, bool entries)
{
	const Val *v = val(u->s->g, operand);
	Slot slot = {.kind = S_input, .type = v->type, .shape = v->shape};
	slot.name = format(u->arena, "x%d", u->operand.count);
	if (entries)
		slot.shape = shape_of(v->shape.rank - 1, v->shape.dim + 1);
	PUSH(u->arena, u->operand, operand);
	return add_slot(u->back.g, slot);
}

static Ref zero_gradient(LoopGrad *u, const Val *of)
{
	return zeros(u->s->g, of->type, of->shape);
}

// A carried value needs a gradient if its initial value does, or a value that it is computed from.
static void find_needed(LoopGrad *u)
{
	const LoopInfo *c = &u->c;
	u->needed = NEWS(u->arena, bool, c->body->slots.count + 1);
	for (int k = 0; k < c->body->slots.count; k++)
		u->needed[k] = u->s->needs[u->in[1 + k]] && is_float(c->body->slots.at[k].type);
	for (bool more = true; more;) {
		const bool *needs = mark_needs(u->arena, c->body, u->needed);
		more = false;
		for (int k = 0; k < c->carried; k++)
			if (needs[result_ref(c, k)] && !u->needed[k])
				more = u->needed[k] = true;
	}
}

// Adds slots in the order of a loop: carried, scanned, fixed.
static void add_slots(LoopGrad *u)
{
	const LoopInfo *c = &u->c;
	Graph *g = u->s->g;
	int fixed = c->carried + c->scanned, n = c->body->slots.count;
	int entry = c->carried + u->record->stacked, product = entry + c->carried;
	for (int k = 0; k < c->carried; k++)
		if (u->needed[k])
			u->carry[k] =
			    new_slot(u,
			             u->gradient[k] ? u->gradient[k]
			                            : zero_gradient(u, val(g, u->in[1 + k])),
			             false);
	for (int k = fixed; k < n; k++)
		if (u->needed[k])
			u->sum[k] = new_slot(u, zero_gradient(u, val(g, u->in[1 + k])), false);
	u->backward_loop.carried = u->operand.count - 1;
	for (int k = 0; k < fixed; k++)
		u->enter[k] = new_slot(
		    u, k < c->carried ? loop_result(g, u->loop, entry + k) : u->in[1 + k], true);
	for (int k = 0; k < u->record->nproduct; k++)
		u->again[k] = new_slot(u, loop_result(g, u->loop, product + k), true);
	for (int k = 0; k < u->record->stacked; k++)
		u->stacked_gradient[k] = u->gradient[c->carried + k]
		                             ? new_slot(u, u->gradient[c->carried + k], true)
		                             : -1;
	u->backward_loop.scanned = u->operand.count - 1 - u->backward_loop.carried;
	u->back.first_fixed = u->back.g->slots.count;
	for (int k = fixed; k < n; k++)
		u->enter[k] = new_slot(u, u->in[1 + k], false);
}

static int product_number(const LoopGrad *u, Ref r)
{
	for (int k = 0; k < u->record->nproduct; k++)
		if (u->record->product[k] == r)
			return k;
	return -1;
}

typedef struct Recompute {
	LoopGrad *loop;
	const bool *needs; // by Ref of the body
	bool *want;        // by slot of the new body
} Recompute;

// Uses the slot of the new body that holds a value, else computes the value again.
static Ref put_value(void *context, Graph *to, const Val *v, const Ref *in)
{
	const Recompute *a = context;
	LoopGrad *u = a->loop;
	Ref r = ref_of(u->c.body, v);
	int product = product_number(u, r);
	int slot = v->op == O_slot ? u->enter[v->attr->i[0]]
	           : product >= 0  ? u->again[product]
	                           : -1;
	if (slot < 0)
		return put_differentiable(&u->back, v, in, a->needs[r]);
	Ref held = put_slot(to, slot);
	a->want[slot] = a->needs[r];
	if (product >= 0) {
		Val *with = take_copy(u->arena, v, sizeof *v);
		with->in = in;
		*table_cell(u->back.products, &held, sizeof held) = (uintptr_t)with;
	}
	return held;
}

static void differentiate(LoopGrad *u)
{
	const LoopInfo *c = &u->c;
	Graph *body = u->back.g;
	bool *want = NEWS(u->arena, bool, body->slots.count);
	Ref *now = NEWS(u->arena, Ref, c->body->nval);
	const bool *needs = mark_needs(u->arena, c->body, u->needed);
	copy_values(body, c->body, now, put_value, &(Recompute){u, needs, want});
	u->back.needs = mark_needs(u->arena, body, want);
	u->back.gradient = NEWS(u->arena, Ref, body->nval);
	u->back.last = (Ref)body->nval - 1;
	for (int k = 0; k < c->carried; k++)
		if (u->needed[k])
			add_gradient(&u->back, now[result_ref(c, k)], put_slot(body, u->carry[k]));
	for (int k = 0; k < u->record->stacked; k++)
		if (u->stacked_gradient[k] >= 0)
			add_gradient(&u->back, now[result_ref(c, c->carried + k)],
			             put_slot(body, u->stacked_gradient[k]));
	backprop(&u->back);
}

// ---- results of the backward loop ------------------------------------------------------

// Returns the gradient of the value in slot k, or 0.
static Ref gradient_of(LoopGrad *u, int k)
{
	Ref slot = put_slot(u->back.g, u->enter[k]);
	return slot <= u->back.last && u->back.needs[slot] ? u->back.gradient[slot] : 0;
}

// Returns the index of `r` among the stacked values, -1 if absent, or adds it.
static int stacked(LoopGrad *u, Ref r, bool add)
{
	for (int k = 0; k < u->stack.count; k++)
		if (u->stack.at[k] == r)
			return k;
	if (!add)
		return -1;
	PUSH(u->arena, u->stack, r);
	return u->stack.count - 1;
}

// True for a scanned operand of a loop that makes all its iterations. Other values are stacked,
// which leaves zeros after the last iteration.
static bool is_scanned(const LoopGrad *u, Ref r)
{
	int slot = slot_number(u, r);
	return u->makes_all && slot >= u->backward_loop.carried &&
	       slot < u->backward_loop.carried + u->backward_loop.scanned;
}

// True if this term is computed after the loop: a product, or a value of the same rank whose
// gradient is stacked anyway.
static bool is_after_loop(LoopGrad *u, const Contribution *term)
{
	int rank = u->back.g->slots.at[term->slot].shape.rank;
	bool known = is_scanned(u, term->gradient) || stacked(u, term->gradient, false) >= 0;
	return term->other ||
	       (known && val(u->back.g, term->gradient)->shape.rank == rank && rank > 0);
}

static void stack_terms(LoopGrad *u)
{
	for (int i = 0; i < u->back.terms.count; i++) {
		const Contribution *term = &u->back.terms.at[i];
		if (!term->other)
			continue;
		stacked(u, term->gradient, true);
		if (!is_scanned(u, term->other))
			stacked(u, term->other, true);
	}
}

// Returns the gradient of fixed value k so far, plus that of this iteration.
static Ref summed(LoopGrad *u, int k)
{
	Graph *body = u->back.g;
	Ref sum = put_slot(body, u->sum[k]), own = gradient_of(u, k);
	Val like = *val(body, sum);
	if (own)
		sum = put2(body, O_add, sum, own);
	for (int i = 0; i < u->back.terms.count; i++) {
		const Contribution *term = &u->back.terms.at[i];
		if (term->slot == u->enter[k] && !is_after_loop(u, term))
			sum = put2(body, O_add, sum, match_operand(body, term->gradient, &like));
	}
	return sum;
}

static void add_outs(LoopGrad *u)
{
	const LoopInfo *c = &u->c;
	Graph *body = u->back.g;
	for (int k = 0; k < c->carried; k++) {
		const Slot *slot = &c->body->slots.at[k];
		Ref gradient = u->needed[k] ? gradient_of(u, k) : 0;
		if (u->needed[k])
			add_out(body, "carried",
			        gradient ? gradient : zeros(body, slot->type, slot->shape));
	}
	for (int k = c->carried + c->scanned; k < c->body->slots.count; k++)
		if (u->needed[k])
			add_out(body, "sum", summed(u, k));
	for (int k = 0; k < u->stack.count; k++)
		add_out(body, "stacked", u->stack.at[k]);
	u->backward_loop.body = body;
	u->backward_loop.stacked = u->stack.count;
	u->backward_loop.fixed =
	    body->slots.count - u->backward_loop.carried - u->backward_loop.scanned;
}

// Returns a value of the new body in each iteration. part: by result of the backward loop.
static Ref all_iterations(LoopGrad *u, const Ref *result, Ref r)
{
	if (is_scanned(u, r))
		return u->operand.at[1 + slot_number(u, r)];
	return result[u->backward_loop.carried + stacked(u, r, false)];
}

// Adds a first axis of size 1.
static Ref with_axis(Graph *g, Ref r)
{
	return put_reshape(g, r, stacked_shape(1, &val(g, r)->shape));
}

// Returns the term of all iterations at once, as a product with one more axis.
static Ref term_after_loop(LoopGrad *u, const Ref *result, const Contribution *term, Ref fixed)
{
	Graph *g = u->s->g;
	Ref gradient = all_iterations(u, result, term->gradient), one = with_axis(g, fixed),
	    dx[2] = {0};
	if (term->other) {
		Ref in[2] = {one, one};
		in[1 - term->which] = all_iterations(u, result, term->other);
		Ref product = put(g, O_dot, 2, in, NULL);
		Val v = *val(g, product);
		book_grad(g, &v, product, gradient, in, dx);
		gradient = dx[term->which];
	}
	return put_reshape(g, match_operand(g, gradient, val(g, one)), val(g, fixed)->shape);
}

static void add_operand_gradients(LoopGrad *u, const Ref *result)
{
	const LoopInfo *c = &u->c;
	int n = 0;
	for (int k = 0; k < c->carried; k++) {
		if (u->needed[k] && u->s->needs[u->in[1 + k]])
			add_gradient(u->s, u->in[1 + k], result[n]);
		n += u->needed[k];
	}
	for (int k = c->carried + c->scanned; k < c->body->slots.count; k++)
		if (u->needed[k])
			add_gradient(u->s, u->in[1 + k], result[n++]);
	for (int k = c->carried; k < c->carried + c->scanned; k++)
		if (u->needed[k] && gradient_of(u, k))
			add_gradient(u->s, u->in[1 + k],
			             all_iterations(u, result, gradient_of(u, k)));
	for (int i = 0; i < u->back.terms.count; i++) {
		const Contribution *term = &u->back.terms.at[i];
		int k = term->slot - u->back.first_fixed + c->carried + c->scanned;
		if (is_after_loop(u, term))
			add_gradient(u->s, u->in[1 + k],
			             term_after_loop(u, result, term, u->in[1 + k]));
	}
}

static LoopGrad loop_grad_start(Backprop *s, Ref loop)
{
	const Val *v = val(s->g, loop);
	LoopGrad u = {.s = s, .arena = s->arena, .loop = loop, .c = loop_of(v)};
	int n = loop_operands(&u.c), m = loop_results(&u.c);
	u.in = take_copy(s->arena, v->in, sizeof *v->in * (size_t)n);
	u.makes_all = makes_all_trips(s->g, &u.c, u.in);
	for (int i = 0; i < s->records.count; i++)
		if (s->records.at[i].loop == loop)
			u.record = &s->records.at[i];
	if (!u.record)
		bug("a loop that was not put to be differentiated");
	u.gradient = NEWS(s->arena, Ref, m + 1);
	u.carry = NEWS(s->arena, int, n);
	u.sum = NEWS(s->arena, int, n);
	u.enter = NEWS(s->arena, int, n);
	u.again = NEWS(s->arena, int, u.record->nproduct + 1);
	u.stacked_gradient = NEWS(s->arena, int, m + 1);
	return u;
}

// Collects the gradients of the loop's results. True if there is one.
static bool find_gradients(LoopGrad *u)
{
	bool any = false;
	for (Ref r = u->loop + 1; r <= u->s->last; r++) {
		const Val *v = val(u->s->g, r);
		if (v->op != O_result || v->in[0] != u->loop || !u->s->gradient[r])
			continue;
		u->gradient[v->attr->i[0]] = u->s->gradient[r];
		any = true;
	}
	return any;
}

void differentiate_loop(Backprop *s, Ref loop)
{
	LoopGrad u = loop_grad_start(s, loop);
	if (!find_gradients(&u))
		return;
	Graph *body = graph_inside(s->arena, u.c.body), *g = s->g;
	body->plain = g->plain; // as decomposed as the surrounding graph
	u.back = (Backprop){.arena = s->arena, .g = body, .products = table_new(s->arena)};
	u.backward_loop = (LoopInfo){.trips = u.c.trips, .reverse = !u.c.reverse};
	g->from = val(g, loop)->from;
	PUSH(u.arena, u.operand, u.c.until ? loop : u.in[0]);
	find_needed(&u);
	add_slots(&u);
	differentiate(&u);
	for (int k = u.c.carried; k < u.c.carried + u.c.scanned; k++)
		if (u.needed[k] && gradient_of(&u, k))
			stacked(&u, gradient_of(&u, k), true);
	stack_terms(&u);
	add_outs(&u);
	Ref *result = NEWS(s->arena, Ref, loop_results(&u.backward_loop) + 1);
	put_trimmed_loop(g, &u.backward_loop, u.operand.at, NULL, result);
	add_operand_gradients(&u, result);
}
