// step.c: adds the optimizer's step to a graph of gradients.
// The definitions in optim.am are called with operands and attributes by name; their results are
// stored as new parameters and new state.
#include "step.h"
#include <string.h>

static Ref integer(Graph *g, int64_t x)
{
	return put_num(g, E_i64, (double)x);
}

static Ref steps_done(Graph *g)
{
	return put_state(g, "amos.step", E_i64, shape_of(0, NULL), NULL);
}

// Returns the slot of a gradient that entries hand to each other.
static int gradient_slot(Graph *g, const char *out)
{
	int slot = find_slot(g, out);
	const Slot *of = &g->slots.at[find_slot(g, out + strlen(GRAD_OF))];
	return slot >= 0 ? slot
	                 : add_slot(g, (Slot){.name = copy_string(g->arena, out),
	                                      .kind = S_grad,
	                                      .type = of->type,
	                                      .shape = of->shape});
}

// Returns the number of runs before the next update.
static Ref runs_left(Graph *g, int64_t accumulate)
{
	int64_t first = accumulate - 1;
	return put_state(g, "amos.left", E_i64, shape_of(0, NULL),
	                 take_copy(g->arena, &first, sizeof first));
}

// Puts the results of a definition, for one parameter or all (NULL).
static void run(const Step *s, const Param *p, const Def *d, Ref *out)
{
	Graph *g = s->graph;
	Ref *in = NEWS(g->arena, Ref, d->nin + 1);
	AttrArg *args = NEWS(g->arena, AttrArg, d->nattr + 1);
	for (int k = 0; k < d->nin; k++)
		in[k] = step_operand(s, p, d->names[k]);
	for (int k = 0; k < d->nattr; k++)
		args[k] = step_attribute(s, p, d->names[d->nin + k]);
	book_run(g, NULL, d->name, d->nin, in, d->nattr, args, d->nresult, out);
}

// Returns where gradients are taken instead of at the parameter.
static Ref point(const Step *s, int slot)
{
	Ref at;
	run(s, &(Param){slot, 0, &s->eta[slot], -1}, opt_definitions(s->opt->name, "_point"), &at);
	return at;
}

static void add_sums(Step *s, const Param *p, const Def *d)
{
	Graph *g = s->graph;
	Ref own[SUMS];
	run(s, p, d, own);
	for (int k = 0; k < d->nresult; k++) {
		Ref more = put_cast(g, put_reshape(g, own[k], shape_of(0, NULL)), E_f64);
		s->sum[k] = s->sum[k] ? put2(g, O_add, s->sum[k], more) : more;
	}
}

// Stores the new state of all parameters.
static void share(Step *s, const Def *d)
{
	Ref out[STATES];
	int next = 0;
	run(s, NULL, d, out);
	for (int k = 0; k < d->nin; k++) {
		int state = state_index(s->optimizer, d->names[k]);
		if (state < 0)
			continue;
		s->next[state] = out[next++];
		set_slot(s, slot_of(s->graph, step_operand(s, NULL, d->names[k])), s->next[state]);
	}
}

static void update(const Step *s, Param *p)
{
	Graph *g = s->graph;
	const Shape full = slot_at(s, p)->shape;
	const Def *d = opt_definition(s->opt->name, &full, p->eta);
	bool matrices = takes_matrices(s->optimizer, d);
	int n = matrices ? p->eta->matrices->n : 1, next = 0;
	Ref *out = NEWS(g->arena, Ref, n * d->nresult), *part = NEWS(g->arena, Ref, n);
	g->from = add_node(g, slot_at(s, p)->name, s->opt->name);
	for (int i = 0; i < n; i++) {
		p->matrix = matrices ? i : -1;
		run(s, p, d, out + i * d->nresult);
	}
	for (int k = -1; k < d->nin; k++) { // first the parameter, then its state
		int state = k < 0 ? -1 : state_index(s->optimizer, d->names[k]);
		if (k >= 0 && (state < 0 || s->optimizer->state[state].shape == STATE_shared))
			continue;
		for (int i = 0; i < n; i++)
			part[i] = out[i * d->nresult + next];
		next++;
		if (k >= 0 && !is_state_kept(s->opt, &s->optimizer->state[state]))
			continue;
		set_slot(s, k < 0 ? p->slot : find_slot(g, state_name(s, p, d->names[k])),
		         matrices ? join_matrices(g, &full, p->eta->matrices, part) : part[0]);
	}
}

typedef struct Copy { // of the graph of gradients
	const Step *step;
	const bool *moved; // by slot: read at another point; NULL: none is
	int64_t runs;      // per update
} Copy;

// Random numbers differ from run to run: the step is an operand of rand, and of a loop that draws.
// Parameters are read where gradients are taken.
static Ref put_copy(void *context, Graph *g, const Val *v, const Ref *in)
{
	const Copy *c = context;
	if (v->op == O_slot && c->moved && c->moved[v->attr->i[0]])
		return point(c->step, (int)v->attr->i[0]);
	if (c->runs == 1)
		return put_as(g, v, in);
	Ref *other = take_copy(g->arena, in, sizeof *in * (size_t)(v->nin + 1));
	for (int k = 0; k < v->nin && (v->op == O_rand || v->op == O_loop); k++) {
		if (in[k] != steps_done(g))
			continue;
		Ref run = put2(g, O_mul, in[k], integer(g, c->runs));
		run = put2(g, O_add, run, integer(g, c->runs - 1));
		other[k] = put2(g, O_sub, run, runs_left(g, c->runs));
	}
	return put_as(g, v, other);
}

// Returns which slots are read at another point: those with a gradient.
static const bool *moved_slots(const Step *s, const Graph *from)
{
	bool *moved = NEWS(from->arena, bool, from->slots.count + 1);
	if (!opt_moves_point(s->opt) || s->part == STEP_apply)
		return NULL;
	for (int i = 0; i < from->outs.count; i++)
		if (starts_with(from->outs.at[i].name, GRAD_OF))
			moved[find_slot(from, from->outs.at[i].name + strlen(GRAD_OF))] = true;
	return moved;
}

Graph *gradient_slots(Arena *arena, const Graph *from)
{
	Graph *g = graph_live(arena, from);
	for (int i = 0; i < g->outs.count; i++)
		if (starts_with(g->outs.at[i].name, GRAD_OF))
			gradient_slot(g, g->outs.at[i].name);
	return g;
}

// Returns the mean gradient over all runs of this update, the last of which has `gradient`. Other
// runs store the sum.
static Ref mean_gradient(const Step *s, int slot, Ref gradient)
{
	Graph *g = s->graph;
	const Slot *of = &g->slots.at[slot];
	Elem type = of->type;
	Shape shape = of->shape;
	const char *name = format(g->arena, "%s.sum", of->name);
	Ref before = put_state(g, name, type, shape, NULL);
	Ref sum = put2(g, O_add, before, gradient);
	Ref none = put_broadcast(g, put_num(g, type, 0), shape);
	add_store(g, slot_of(g, before), s->part == STEP_gather ? sum : none);
	return put2(g, O_mul, sum, put_num(g, type, 1 / (double)s->opt->accumulate));
}

static bool is_kept_out(const char *name)
{
	return !strcmp(name, "loss") || !strcmp(name, "accuracy") || starts_with(name, CHECK_OF);
}

// Finds the number of this step, with and without the steps that changed nothing.
static void count_steps(Step *s)
{
	Graph *g = s->graph;
	Ref state[SCALE_STATES];
	s->t = s->place = put_cast(g, put2(g, O_add, steps_done(g), integer(g, 1)), E_f64);
	if (!loss_scale(g))
		return;
	put_scale_state(g, state);
	s->t = put2(g, O_sub, s->place, put_cast(g, state[SCALE_STATES - 1], E_f64));
}

// Makes the step change nothing but its number and the loss scale if a gradient is not finite.
static void check_gradients(Step *s, int n, const Param *params)
{
	Graph *g = s->graph;
	Ref *gradient = NEWS(g->arena, Ref, n + 1), scale = loss_scale(g);
	for (int i = 0; i < n; i++)
		gradient[i] = params[i].grad;
	s->finite = update_loss_scale(g, n, gradient);
	for (int i = 0; i < s->own; i++)
		g->stores.at[i].val =
		    put_kept(g, s->finite, g->stores.at[i].slot, g->stores.at[i].val);
	if (s->part == STEP_train) {
		add_out(g, "loss_scale", scale);
		add_out(g, "skipped", put_cast(g, put1(g, O_not, s->finite), E_f32));
	}
}

// Takes the gradients from the outputs of `from`, adds the step or the part of it, and leaves the
// other outputs.
static void add_step(Step *s, const Graph *from, bool several)
{
	Graph *g = s->graph;
	const Def *sums = opt_definitions(s->opt->name, "_sums"),
	          *shared = opt_definitions(s->opt->name, "_shared");
	VEC(Param) params = {0};
	for (int i = 0; i < from->outs.count; i++) {
		const char *name = from->outs.at[i].name;
		Out out = s->part == STEP_apply ? (Out){name, 0} : g->outs.at[i];
		if (!starts_with(name, GRAD_OF)) {
			if (s->part != STEP_apply && is_kept_out(name))
				g->outs.at[g->outs.count++] = out;
			continue;
		}
		int slot = find_slot(from, name + strlen(GRAD_OF)), own = slot;
		if (s->part == STEP_gradient) {
			add_store(g, gradient_slot(g, name), out.val);
			continue;
		}
		if (s->part == STEP_apply) {
			own = add_slot(g, from->slots.at[slot]);
			out.val = put_slot(g, gradient_slot(g, name));
		}
		if (several)
			out.val = mean_gradient(s, slot, out.val);
		PUSH(g->arena, params, ((Param){own, out.val, &s->eta[slot], -1}));
	}
	if (loss_scale(g) && (s->part == STEP_train || s->part == STEP_apply))
		check_gradients(s, params.count, params.at);
	for (int i = 0; i < params.count && sums; i++)
		add_sums(s, &params.at[i], sums);
	if (params.count && shared)
		share(s, shared);
	for (int i = 0; i < params.count; i++)
		update(s, &params.at[i]);
}

Graph *step_pass(Arena *arena, const Graph *from, const Eta *eta, const Opt *opt, StepPart part)
{
	int64_t runs = opt->accumulate;
	bool several = runs > 1 && (part == STEP_train || part == STEP_gather);
	Step s = {.opt = opt, .optimizer = optimizer_named(opt->name), .eta = eta, .part = part};
	Copy copy = {&s, moved_slots(&s, from), several ? runs : 1};
	bool copies = several || copy.moved;
	Graph *g = s.graph = copies               ? graph_like(arena, from)
	                     : part == STEP_apply ? graph_inside(arena, from)
	                                          : graph_live(arena, from);
	int node = g->from = add_node(g, "step", opt->name);
	if (part != STEP_gradient || copy.moved)
		count_steps(&s);
	if (copies)
		copy_graph(g, from, NULL, put_copy, &copy);
	g->outs.count = 0;
	g->from = node;
	s.own = part == STEP_train ? g->stores.count : 0;
	if (several) {
		Ref left = runs_left(g, runs);
		add_store(g, slot_of(g, left),
		          part == STEP_gather ? put2(g, O_sub, left, integer(g, 1))
		                              : integer(g, runs - 1));
	}
	if (part != STEP_gradient)
		set_slot(&s, find_slot(g, "amos.step"),
		         put2(g, O_add, steps_done(g), integer(g, 1)));
	add_step(&s, from, several);
	return part == STEP_train ? g : graph_live(arena, g);
}
