// random_loop.c: makes a random graph the body of a loop of a few iterations.
// Slots become carried, scanned or fixed values, outputs become stacked ones.
// Invariant: each iteration computes with about the values that the body was made for, so they stay
// finite.
#include "random.h"

typedef struct Wrap {
	Random *from;
	Graph *g, *body;
	LoopInfo cycle;
	Ref *inner;       // value in the body, indexed by slot of the random graph
	VEC(Ref) operand; // operands of the loop
	VEC(int) carried; // slots that are carried
	Array *slot;      // slots of the new graph
} Wrap;

enum { CARRIED, SCANNED, FIXED, ROLES };

static Ref body_slot(Wrap *w, Ref operand, Elem type, Shape shape)
{
	Slot slot = {.kind = S_input, .type = type, .shape = shape};
	slot.name = format(w->g->arena, "x%d", w->operand.count);
	PUSH(w->g->arena, w->operand, operand);
	return put_slot(w->body, add_slot(w->body, slot));
}

// Returns the same values for each iteration, floats growing slightly.
static Array entries(Arena *arena, const Array *of, int64_t trips)
{
	int64_t n = count_of(&of->shape);
	Array a = {.type = of->type, .shape = stacked_shape(trips, &of->shape)};
	a.f = NEWS(arena, double, n *trips + 1);
	for (int64_t i = 0; i < n * trips; i++)
		if (is_float(of->type))
			a.f[i] = (float)(of->f[i % n] * (1 + 0.001 * (double)(i / n)));
		else
			a.i[i] = of->i[i % n];
	return a;
}

static void put_slots_as(Wrap *w, const int *role, int which)
{
	for (int s = 0; s < w->from->g->slots.count; s++) {
		const Slot *slot = &w->from->g->slots.at[s];
		if (role[s] != which)
			continue;
		w->inner[s] = body_slot(w, put_slot(w->g, s), slot->type, slot->shape);
		if (which == CARRIED)
			PUSH(w->g->arena, w->carried, s);
	}
}

// Returns a value between -1 and 1 that depends on what the body computes.
static Ref sign_of_life(Wrap *w, const Ref *now)
{
	Graph *g = w->body;
	const Graph *from = w->from->g;
	for (int k = 0; k < from->outs.count; k++) {
		Ref x = now[from->outs.at[k].val];
		Shape shape = val(g, x)->shape;
		int64_t axes[RANK];
		for (int a = 0; a < shape.rank; a++)
			axes[a] = a;
		if (val(g, x)->type != E_f32 || !count_of(&shape))
			continue;
		Ref sum = shape.rank ? put_reduce(g, O_sum, x, shape.rank, axes) : x;
		return put1(g, O_tanh, put_reshape(g, sum, shape_of(0, NULL)));
	}
	return put_num(g, E_f32, 0.5);
}

static void put_outs(Wrap *w, const Ref *now, Ref iteration, int64_t last)
{
	Graph *g = w->body;
	const Graph *from = w->from->g;
	Ref small = put2(g, O_mul, sign_of_life(w, now), put_num(g, E_f32, 0.001));
	if (w->cycle.until)
		add_out(g, "on", put2(g, O_lt, iteration, put_num(g, E_i64, (double)last)));
	for (int k = 0; k < w->carried.count; k++) {
		Ref x = w->inner[w->carried.at[k]];
		add_out(g, "carried", put2(g, O_add, x, put_cast(g, small, val(g, x)->type)));
	}
	add_out(g, "turn", put2(g, O_add, iteration, put_num(g, E_i64, 1)));
	for (int k = 0; k < from->outs.count; k++)
		if (val(from, from->outs.at[k].val)->shape.rank < RANK)
			add_out(g, "stacked", now[from->outs.at[k].val]);
}

static void choose_roles(Wrap *w, int *role)
{
	const Graph *from = w->from->g;
	for (int s = 0; s < from->slots.count; s++) {
		const Slot *slot = &from->slots.at[s];
		role[s] = (int)draw_below(w->from, ROLES);
		bool real = is_float(slot->type) && elems[slot->type].bytes > 2;
		if ((role[s] == CARRIED && !real) ||
		    (role[s] == SCANNED && slot->shape.rank == RANK))
			role[s] = FIXED;
		w->slot[s] = w->from->slot[s];
		if (role[s] != SCANNED)
			continue;
		w->slot[s] = entries(w->g->arena, &w->from->slot[s], w->cycle.trips);
		w->g->slots.at[s].shape = w->slot[s].shape;
		w->g->slots.at[s].init = NULL;
		w->g->slots.at[s].kind = S_input;
	}
}

Random random_loop(Arena *arena, Random *from)
{
	Random made = *from;
	int n = from->g->slots.count, *role = NEWS(arena, int, n + 1);
	Wrap w = {.from = from, .g = graph_like(arena, from->g)};
	w.body = graph_new(arena, from->g->name, from->g->book);
	w.inner = NEWS(arena, Ref, n + 1);
	w.slot = NEWS(arena, Array, n + 1);
	w.cycle = (LoopInfo){.body = w.body, .trips = 2 + (int64_t)draw_below(from, 3)};
	w.cycle.reverse = draw_below(from, 2);
	w.cycle.until = !w.cycle.reverse && draw_below(from, 2);
	PUSH(arena, w.operand, put_num(w.g, E_i64, (double)w.cycle.trips));
	choose_roles(&w, role);
	put_slots_as(&w, role, CARRIED);
	Ref iteration = body_slot(&w, put_num(w.g, E_i64, 0), E_i64, shape_of(0, NULL));
	put_slots_as(&w, role, SCANNED);
	put_slots_as(&w, role, FIXED);
	const Ref *now = put_body(w.body, from->g, w.inner);
	put_outs(&w, now, iteration, (int64_t)draw_below(from, 4));
	w.cycle.carried = w.carried.count + 1;
	for (int s = 0; s < n; s++)
		w.cycle.scanned += role[s] == SCANNED;
	w.cycle.fixed = n - w.carried.count - w.cycle.scanned;
	w.cycle.stacked = w.body->outs.count - w.cycle.until - w.cycle.carried;
	Ref *part = NEWS(arena, Ref, w.body->outs.count + 1);
	put_trimmed_loop(w.g, &w.cycle, w.operand.at, NULL, part);
	for (int k = 0; k < loop_results(&w.cycle); k++) {
		bool real = is_float(val(w.g, part[k])->type); // losses are f32
		Ref out = real ? put_cast(w.g, part[k], E_f32) : part[k];
		add_out(w.g, format(arena, "y%d", k), out);
	}
	made.g = w.g;
	made.slot = w.slot;
	return made;
}
