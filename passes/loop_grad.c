// loop_grad.c: differentiates loops, last iteration first.
// Input: a sweep, and a forward loop that is to be differentiated. Output: the gradients of its
// operands. Of an iteration only carried values and the results of products are stored, the rest
// is computed again. A fixed value that iterations multiply by (a weight) gets its gradient after
// the loop, by one product over all iterations.
#include "grad.h"

// Fails if nothing bounds the number of iterations, whose values are stored.
static void check_bound(const Graph *g, const LoopInfo *c)
{
	static const char trouble[] =
	    "its gradient keeps values of each turn, and nothing bounds how often it turns: give "
	    "it a trip count that is a constant, or freeze what comes before it";
	const Node *node = &g->nodes->list.at[g->from];
	if (c->trips > INT32_MAX)
		fail(g->name, "node '%s' (%s): %s", node->name, node->op, trouble);
}

Ref put_recorded(Backprop *s, const LoopInfo *own, const Ref *in)
{
	LoopInfo c = *own;
	check_bound(s->g, own);
	Graph *body = graph_live(s->arena, own->body);
	VEC(Ref) product = {0};
	c.body = body;
	for (int k = 0; k < c.carried; k++)
		add_out(body, "carried", result_ref(&c, k));
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

// ---- the body of the way back ---------------------------------------------------------

typedef struct Unwind {
	Backprop *s; // of the graph that the loop is in
	Arena *arena;
	const Record *record;
	Ref loop;
	LoopInfo c; // as it was recorded
	bool all;   // it is known to make all its iterations
	const Ref *in;
	Ref *part;     // by result: the gradient it has, or 0
	bool *wants;   // by slot of the body: a gradient
	Backprop back; // of the new body
	LoopInfo turn; // the loop back
	VEC(Ref) operand;
	int *carry, *sum, *enter, *again; // slots of the new body. By carried and fixed value: its
	                                  // gradient so far; by slot and by product: what it was
	int *given;                       // by stacked result: its gradient; -1: it has none
	VEC(Ref) stack;                   // values of the new body that the loop back stacks
} Unwind;

static int slot_number(const Unwind *u, Ref r)
{
	const Val *v = val(u->back.g, r);
	return v->op == O_slot ? (int)v->attr->i[0] : -1;
}

// A slot of the new body that stands for `operand`, or for its entries.
static int new_slot(Unwind *u, Ref operand, bool entries)
{
	const Val *v = val(u->s->g, operand);
	Slot slot = {.kind = S_input, .type = v->type, .shape = v->shape};
	slot.name = format(u->arena, "x%d", u->operand.count);
	if (entries)
		slot.shape = shape_of(v->shape.rank - 1, v->shape.dim + 1);
	PUSH(u->arena, u->operand, operand);
	return add_slot(u->back.g, slot);
}

static Ref no_gradient(Unwind *u, const Val *of)
{
	return zeros(u->s->g, of->type, of->shape);
}

// Returns what carried value k was at the beginning of each iteration.
static Ref entering(Unwind *u, int k)
{
	Graph *g = u->s->g;
	Ref next = loop_result(g, u->loop, u->c.carried + u->record->stacked + k);
	Shape shape = val(g, next)->shape, first = shape;
	int64_t start[RANK] = {u->c.reverse};
	first.dim[0] = 1;
	shape.dim[0]--;
	Ref rest = put_slice(g, next, start, shape.dim, NULL);
	Ref begin = put_reshape(g, u->in[1 + k], first);
	if (!u->c.reverse)
		return put_concat(g, 0, 2, (Ref[]){begin, rest});
	Ref all = put_concat(g, 0, 2, (Ref[]){rest, begin});
	if (u->all)
		return all;
	Ref last = put2(g, O_sub, u->in[0], put_num(g, E_i64, 1));
	Ref at = put_numbers(g, &val(g, all)->shape, 0);
	return put3(g, O_select, put2(g, O_eq, at, last), begin, all);
}

// A carried value needs a gradient if its start does, or a value that an iteration computes it
// from.
static void find_wants(Unwind *u)
{
	const LoopInfo *c = &u->c;
	u->wants = NEWS(u->arena, bool, c->body->slots.count + 1);
	for (int k = 0; k < c->body->slots.count; k++)
		u->wants[k] = u->s->needs[u->in[1 + k]] && is_float(c->body->slots.at[k].type);
	for (bool more = true; more;) {
		const bool *needs = mark_needs(u->arena, c->body, u->wants);
		more = false;
		for (int k = 0; k < c->carried; k++)
			if (needs[result_ref(c, k)] && !u->wants[k])
				more = u->wants[k] = true;
	}
}

// Slots in the order of a loop: carried, scanned, fixed.
static void add_slots(Unwind *u)
{
	const LoopInfo *c = &u->c;
	Graph *g = u->s->g;
	int fixed = c->carried + c->scanned, n = c->body->slots.count;
	int first = c->carried + u->record->stacked + c->carried;
	for (int k = 0; k < c->carried; k++)
		if (u->wants[k])
			u->carry[k] = new_slot(
			    u, u->part[k] ? u->part[k] : no_gradient(u, val(g, u->in[1 + k])),
			    false);
	for (int k = fixed; k < n; k++)
		if (u->wants[k])
			u->sum[k] = new_slot(u, no_gradient(u, val(g, u->in[1 + k])), false);
	u->turn.carried = u->operand.count - 1;
	for (int k = 0; k < fixed; k++)
		u->enter[k] = new_slot(u, k < c->carried ? entering(u, k) : u->in[1 + k], true);
	for (int k = 0; k < u->record->nproduct; k++)
		u->again[k] = new_slot(u, loop_result(g, u->loop, first + k), true);
	for (int k = 0; k < u->record->stacked; k++)
		u->given[k] =
		    u->part[c->carried + k] ? new_slot(u, u->part[c->carried + k], true) : -1;
	u->turn.scanned = u->operand.count - 1 - u->turn.carried;
	u->back.first_fixed = u->back.g->slots.count;
	for (int k = fixed; k < n; k++)
		u->enter[k] = new_slot(u, u->in[1 + k], false);
}

static int product_number(const Unwind *u, Ref r)
{
	for (int k = 0; k < u->record->nproduct; k++)
		if (u->record->product[k] == r)
			return k;
	return -1;
}

typedef struct Again {
	Unwind *unwind;
	const bool *needs; // by Ref of the body
	bool *want;        // by slot of the new one
} Again;

// A value that a slot of the new body holds is not computed again.
static Ref put_value(void *context, Graph *to, const Val *v, const Ref *in)
{
	const Again *a = context;
	Unwind *u = a->unwind;
	Ref r = ref_of(u->c.body, v);
	int product = product_number(u, r);
	int slot = v->op == O_slot ? u->enter[v->attr->i[0]]
	           : product >= 0  ? u->again[product]
	                           : -1;
	if (slot < 0)
		return put_ready(&u->back, v, in, a->needs[r]);
	Ref held = put_slot(to, slot);
	a->want[slot] = a->needs[r];
	if (product >= 0) {
		Val *with = take_copy(u->arena, v, sizeof *v);
		with->in = in;
		*table_cell(u->back.products, &held, sizeof held) = (uintptr_t)with;
	}
	return held;
}

static void differentiate(Unwind *u)
{
	const LoopInfo *c = &u->c;
	Graph *body = u->back.g;
	bool *want = NEWS(u->arena, bool, body->slots.count);
	Ref *now = NEWS(u->arena, Ref, c->body->nval);
	const bool *needs = mark_needs(u->arena, c->body, u->wants);
	copy_values(body, c->body, now, put_value, &(Again){u, needs, want});
	u->back.needs = mark_needs(u->arena, body, want);
	u->back.gradient = NEWS(u->arena, Ref, body->nval);
	u->back.last = (Ref)body->nval - 1;
	for (int k = 0; k < c->carried; k++)
		if (u->wants[k])
			add_gradient(&u->back, now[result_ref(c, k)], put_slot(body, u->carry[k]));
	for (int k = 0; k < u->record->stacked; k++)
		if (u->given[k] >= 0)
			add_gradient(&u->back, now[result_ref(c, c->carried + k)],
			             put_slot(body, u->given[k]));
	sweep_back(&u->back);
}

// ---- what the loop back gives ---------------------------------------------------------

// Returns the gradient of the value in slot k, or 0.
static Ref gradient_of(Unwind *u, int k)
{
	Ref slot = put_slot(u->back.g, u->enter[k]);
	return slot <= u->back.last && u->back.needs[slot] ? u->back.gradient[slot] : 0;
}

// Returns the index of `r` among the stacked values.
static int stacked(Unwind *u, Ref r, bool add)
{
	for (int k = 0; k < u->stack.count; k++)
		if (u->stack.at[k] == r)
			return k;
	if (!add)
		return -1;
	PUSH(u->arena, u->stack, r);
	return u->stack.count - 1;
}

// True if it is a scanned operand, known for all iterations. If fewer may be made, it is stacked
// instead, which leaves zeros after the last.
static bool is_scanned(const Unwind *u, Ref r)
{
	int slot = slot_number(u, r);
	return u->all && slot >= u->turn.carried && slot < u->turn.carried + u->turn.scanned;
}

// True if this share is computed after the loop: a product, or one of the same rank whose gradient
// is stacked anyway.
static bool is_after_loop(Unwind *u, const Contribution *share)
{
	int rank = u->back.g->slots.at[share->slot].shape.rank;
	bool known = is_scanned(u, share->gradient) || stacked(u, share->gradient, false) >= 0;
	return share->other ||
	       (known && val(u->back.g, share->gradient)->shape.rank == rank && rank > 0);
}

static void stack_shares(Unwind *u)
{
	for (int i = 0; i < u->back.shares.count; i++) {
		const Contribution *share = &u->back.shares.at[i];
		if (!share->other)
			continue;
		stacked(u, share->gradient, true);
		if (!is_scanned(u, share->other))
			stacked(u, share->other, true);
	}
}

// Returns fixed value k's gradient so far, plus that of this iteration.
static Ref summed(Unwind *u, int k)
{
	Graph *body = u->back.g;
	Ref sum = put_slot(body, u->sum[k]), own = gradient_of(u, k);
	Val like = *val(body, sum);
	if (own)
		sum = put2(body, O_add, sum, own);
	for (int i = 0; i < u->back.shares.count; i++) {
		const Contribution *share = &u->back.shares.at[i];
		if (share->slot == u->enter[k] && !is_after_loop(u, share))
			sum = put2(body, O_add, sum, fit(body, share->gradient, &like));
	}
	return sum;
}

static void add_outs(Unwind *u)
{
	const LoopInfo *c = &u->c;
	Graph *body = u->back.g;
	for (int k = 0; k < c->carried; k++) {
		const Slot *slot = &c->body->slots.at[k];
		Ref gradient = u->wants[k] ? gradient_of(u, k) : 0;
		if (u->wants[k])
			add_out(body, "carried",
			        gradient ? gradient : zeros(body, slot->type, slot->shape));
	}
	for (int k = c->carried + c->scanned; k < c->body->slots.count; k++)
		if (u->wants[k])
			add_out(body, "sum", summed(u, k));
	for (int k = 0; k < u->stack.count; k++)
		add_out(body, "stacked", u->stack.at[k]);
	u->turn.body = body;
	u->turn.stacked = u->stack.count;
	u->turn.fixed = body->slots.count - u->turn.carried - u->turn.scanned;
}

// Returns what a value of the new body was in each iteration. part: by result of the loop back.
static Ref all_trips(Unwind *u, const Ref *part, Ref r)
{
	if (is_scanned(u, r))
		return u->operand.at[1 + slot_number(u, r)];
	return part[u->turn.carried + stacked(u, r, false)];
}

// With a first axis of 1.
static Ref one_entry(Graph *g, Ref r)
{
	return put_reshape(g, r, stacked_shape(1, &val(g, r)->shape));
}

// Returns the share of all iterations at once: that of a product over one more axis.
static Ref share_behind(Unwind *u, const Ref *part, const Contribution *share, Ref fixed)
{
	Graph *g = u->s->g;
	Ref gradient = all_trips(u, part, share->gradient), one = one_entry(g, fixed), dx[2] = {0};
	if (share->other) {
		Ref in[2] = {one, one};
		in[1 - share->which] = all_trips(u, part, share->other);
		Ref product = put(g, O_dot, 2, in, NULL);
		Val v = *val(g, product);
		book_grad(g, &v, product, gradient, in, dx);
		gradient = dx[share->which];
	}
	return put_reshape(g, fit(g, gradient, val(g, one)), val(g, fixed)->shape);
}

static void give_back(Unwind *u, const Ref *part)
{
	const LoopInfo *c = &u->c;
	int n = 0;
	for (int k = 0; k < c->carried; k++) {
		if (u->wants[k] && u->s->needs[u->in[1 + k]])
			add_gradient(u->s, u->in[1 + k], part[n]);
		n += u->wants[k];
	}
	for (int k = c->carried + c->scanned; k < c->body->slots.count; k++)
		if (u->wants[k])
			add_gradient(u->s, u->in[1 + k], part[n++]);
	for (int k = c->carried; k < c->carried + c->scanned; k++)
		if (u->wants[k] && gradient_of(u, k))
			add_gradient(u->s, u->in[1 + k], all_trips(u, part, gradient_of(u, k)));
	for (int i = 0; i < u->back.shares.count; i++) {
		const Contribution *share = &u->back.shares.at[i];
		int k = share->slot - u->back.first_fixed + c->carried + c->scanned;
		if (is_after_loop(u, share))
			add_gradient(u->s, u->in[1 + k],
			             share_behind(u, part, share, u->in[1 + k]));
	}
}

static Unwind unwind_start(Backprop *s, Ref loop)
{
	const Val *v = val(s->g, loop);
	Unwind u = {.s = s, .arena = s->arena, .loop = loop, .c = loop_of(v)};
	int n = loop_operands(&u.c), m = loop_results(&u.c);
	u.in = take_copy(s->arena, v->in, sizeof *v->in * (size_t)n);
	u.all = makes_all_trips(s->g, &u.c, u.in);
	for (int i = 0; i < s->records.count; i++)
		if (s->records.at[i].loop == loop)
			u.record = &s->records.at[i];
	if (!u.record)
		bug("a loop that was not put to be differentiated");
	u.part = NEWS(s->arena, Ref, m + 1);
	u.carry = NEWS(s->arena, int, n);
	u.sum = NEWS(s->arena, int, n);
	u.enter = NEWS(s->arena, int, n);
	u.again = NEWS(s->arena, int, u.record->nproduct + 1);
	u.given = NEWS(s->arena, int, m + 1);
	return u;
}

// Collects the gradients of the loop's results. True if there is one.
static bool find_parts(Unwind *u)
{
	bool any = false;
	for (Ref r = u->loop + 1; r <= u->s->last; r++) {
		const Val *v = val(u->s->g, r);
		if (v->op != O_result || v->in[0] != u->loop || !u->s->gradient[r])
			continue;
		u->part[v->attr->i[0]] = u->s->gradient[r];
		any = true;
	}
	return any;
}

void unwind_loop(Backprop *s, Ref loop)
{
	Unwind u = unwind_start(s, loop);
	if (!find_parts(&u))
		return;
	Graph *body = graph_inside(s->arena, u.c.body), *g = s->g;
	body->plain = g->plain; // as plain as what is differentiated around it
	u.back = (Backprop){.arena = s->arena, .g = body, .products = table_new(s->arena)};
	u.turn = (LoopInfo){.trips = u.c.trips, .reverse = !u.c.reverse};
	g->from = val(g, loop)->from;
	PUSH(u.arena, u.operand, u.c.until ? loop : u.in[0]);
	find_wants(&u);
	add_slots(&u);
	differentiate(&u);
	for (int k = u.c.carried; k < u.c.carried + u.c.scanned; k++)
		if (u.wants[k] && gradient_of(&u, k))
			stacked(&u, gradient_of(&u, k), true);
	stack_shares(&u);
	add_outs(&u);
	Ref *part = NEWS(s->arena, Ref, loop_results(&u.turn) + 1);
	put_trimmed_loop(g, &u.turn, u.operand.at, NULL, part);
	give_back(&u, part);
}
