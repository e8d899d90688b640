// step.c: adds the optimizer's step to a graph of gradients.
// The definition in optim.am is called with operands and attributes by name; its results are stored
// as new parameters and new state.
#include "passes.h"
#include <string.h>

// ---- operands of the definition --------------------------------------------------------

typedef struct Step {
	Graph *graph;
	const Opt *opt;
	const Eta *eta; // indexed by slot
	Ref t;          // number of this step, f64, from 1
	StepPart part;
} Step;

typedef struct Param {
	int slot;
	Ref grad;
	const Eta *eta;
} Param;

static int slot_of(const Graph *g, Ref r)
{
	return (int)val(g, r)->attr->i[0];
}

// Stores a value in runs that update.
static void set(const Step *s, int slot, Ref value)
{
	if (s->part != STEP_gather)
		add_store(s->graph, slot, value);
}

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

// Returns 1 - beta^t, t from 1; the power is state `name`.
static Ref unbias(const Step *s, const char *name, double beta)
{
	Graph *g = s->graph;
	static const double one = 1;
	Ref before = put_state(g, name, E_f64, shape_of(0, NULL), &one);
	Ref power = put2(g, O_mul, before, put_num(g, E_f64, beta));
	set(s, slot_of(g, before), power);
	return put2(g, O_sub, put_num(g, E_f64, 1), power);
}

// Returns the step size: `rate` with warm-up, times the factor that amos_set_rate() sets.
static Ref step_size(const Step *s, double rate)
{
	Graph *g = s->graph;
	static const double one = 1;
	double steps = s->opt->warmup;
	AttrArg args[] = {{.name = "rate", .x = rate}, {.name = "steps", .x = steps}};
	Ref size = steps > 0 ? book_call1(g, "warmed", 1, &s->t, COUNT(args), args)
	                     : put_num(g, E_f64, rate);
	return put2(g, O_mul, size, put_state(g, "amos.rate", E_f64, shape_of(0, NULL), &one));
}

// Returns the optimizer's state that is this operand; NULL: none.
static const struct State *state_named(const Opt *opt, const char *operand)
{
	const Optimizer *optimizer = optimizer_named(opt->name);
	for (int k = 0; k < COUNT(optimizer->state) && optimizer->state[k].name; k++)
		if (!strcmp(optimizer->state[k].name, operand))
			return &optimizer->state[k];
	return NULL;
}

static bool is_kept(const Opt *opt, const struct State *state)
{
	Opt copy = *opt;
	return !state->kept_for || *opt_attribute(&copy, state->kept_for) != 0;
}

// Returns the shape of v and b: the parameter's rank, 1 for reduced axes.
static Shape slot_shape(const Shape *full, const Eta *eta)
{
	Shape shape = *full;
	for (int a = 0; a < shape.rank; a++)
		shape.dim[a] = eta->slot.rank == full->rank ? eta->slot.dim[a] : 1;
	return shape;
}

static Shape state_shape(const Shape *full, const Eta *eta, const struct State *state)
{
	Shape shape = state->shape == STATE_slot ? slot_shape(full, eta) : *full;
	if (state->shape == STATE_rows)
		shape.dim[shape.rank - 1] = 1;
	if (state->shape == STATE_columns)
		shape.dim[shape.rank - 2] = 1;
	return shape;
}

static Ref operand(const Step *s, const Param *p, const char *role)
{
	Graph *g = s->graph;
	const Slot *slot = &g->slots.at[p->slot];
	const char *name = format(g->arena, "%s.%s", slot->name, role);
	Elem type = slot->type;
	const struct State *state = state_named(s->opt, role);
	Opt opt = *s->opt;
	if (state && is_kept(s->opt, state))
		return put_state(g, name, type, state_shape(&slot->shape, p->eta, state), NULL);
	if (state || !strcmp(role, "w")) // state that is not kept is not read
		return put_slot(g, p->slot);
	if (!strcmp(role, "g"))
		return p->grad;
	if (!strcmp(role, "eta")) {
		// A scalar, or one value per element of the axis along which eta differs.
		const Eta *eta = p->eta;
		Shape shape = slot->shape;
		for (int a = 0; a < shape.rank; a++)
			shape.dim[a] = eta->nparts && a == eta->axis ? shape.dim[a] : 1;
		double *values = NEWS(g->arena, double, count_of(&shape));
		void *bytes = take(g->arena, (size_t)count_of(&shape) * sizeof *values);
		values[0] = eta->eta.value;
		for (int part = 0, at = 0; part < eta->nparts; part++)
			for (int64_t i = 0; i < eta->counts[part]; i++)
				values[at++] = eta->parts[part].eta.value;
		array_to(&(Array){.type = type, .shape = shape, .f = values}, bytes);
		return put_state(g, name, type, shape, bytes);
	}
	if (!strcmp(role, "xi") || !strcmp(role, "rate"))
		return put_cast(g, step_size(s, *opt_attribute(&opt, role)), type);
	if (!strcmp(role, "t"))
		return put_cast(g, s->t, type);
	if (!strcmp(role, "unbias"))
		return put_cast(g, unbias(s, "amos.beta_t", opt.beta), type);
	if (!strcmp(role, "unbias2"))
		return put_cast(g, unbias(s, "amos.beta2_t", opt.beta2), type);
	bug("optim.am: unknown operand '%s' of %s", role, opt.name);
}

static AttrArg attribute(const Step *s, const Param *p, const char *name)
{
	Opt opt = *s->opt;
	const double *x = opt_attribute(&opt, name);
	if (x)
		return (AttrArg){.name = name, .x = *x};
	if (strcmp(name, "over"))
		bug("optim.am: unknown attribute '%s' of %s", name, opt.name);
	const Shape *full = &s->graph->slots.at[p->slot].shape;
	Shape reduced = slot_shape(full, p->eta);
	int64_t *axes = NEWS(s->graph->arena, int64_t, RANK);
	AttrArg over = {.name = name, .ints = axes};
	for (int a = 0; a < full->rank; a++)
		if (reduced.dim[a] == 1 && full->dim[a] != 1)
			axes[over.n++] = a;
	return over;
}

// Returns the definition with the most operands whose state exists for a parameter of this rank.
static const Def *definition(const Book *book, const Opt *opt, int rank)
{
	for (int nin = 16; nin > 0; nin--) {
		const Def *d = find_def(book, opt->name, nin);
		bool exists = d != NULL;
		for (int k = 0; exists && k < d->nin; k++) {
			const struct State *state = state_named(opt, d->names[k]);
			bool matrix =
			    state && (state->shape == STATE_rows || state->shape == STATE_columns);
			exists = !matrix || rank >= 2;
		}
		if (exists)
			return d;
	}
	bug("optim.am: no %s", opt->name);
}

bool opt_uses(const char *optimizer, const char *operand)
{
	const Def *d = definition(book_builtin(), &(Opt){.name = optimizer}, RANK);
	for (int k = 0; k < d->nin + d->nattr; k++)
		if (!strcmp(d->names[k], operand))
			return true;
	return false;
}

static void update(const Step *s, Param *p)
{
	Graph *g = s->graph;
	const Def *d = definition(g->book, s->opt, g->slots.at[p->slot].shape.rank);
	Ref *in = NEWS(g->arena, Ref, d->nin), *out = NEWS(g->arena, Ref, d->nresult);
	AttrArg *args = NEWS(g->arena, AttrArg, d->nattr + 1);
	g->from = add_node(g, g->slots.at[p->slot].name, s->opt->name);
	for (int k = 0; k < d->nin; k++)
		in[k] = operand(s, p, d->names[k]);
	for (int k = 0; k < d->nattr; k++)
		args[k] = attribute(s, p, d->names[d->nin + k]);
	book_run(g, NULL, d->name, d->nin, in, d->nattr, args, d->nresult, out);
	set(s, p->slot, out[0]);
	for (int k = 0, next = 1; k < d->nin; k++)
		if (state_named(s->opt, d->names[k])) {
			if (slot_of(g, in[k]) != p->slot)
				set(s, slot_of(g, in[k]), out[next]);
			next++;
		}
}

int64_t state_bytes(const Graph *g, const Eta *eta, const Opt *opt)
{
	int64_t bytes = 0;
	for (int i = 0; i < g->slots.count; i++) {
		if (g->slots.at[i].kind != S_param)
			continue;
		const Def *d = definition(g->book, opt, g->slots.at[i].shape.rank);
		for (int k = 0; k < d->nin; k++) {
			const struct State *state = state_named(opt, d->names[k]);
			if (!state || !is_kept(opt, state))
				continue;
			Shape shape = state_shape(&g->slots.at[i].shape, &eta[i], state);
			bytes += count_of(&shape) * elems[g->slots.at[i].type].bytes;
		}
	}
	return bytes;
}

// Random numbers differ from run to run: the step is an operand of rand, and of a loop that draws.
static Ref put_run(void *context, Graph *g, const Val *v, const Ref *in)
{
	int64_t runs = *(const int64_t *)context;
	Ref *other = take_copy(g->arena, in, sizeof *in * (size_t)(v->nin + 1));
	for (int k = 0; k < v->nin && (v->op == O_rand || v->op == O_loop); k++) {
		if (in[k] != steps_done(g))
			continue;
		Ref run = put2(g, O_mul, in[k], integer(g, runs));
		run = put2(g, O_add, run, integer(g, runs - 1));
		other[k] = put2(g, O_sub, run, runs_left(g, runs));
	}
	return put_as(g, v, other);
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

// Takes the gradients from the outputs of `from`, adds the step or the part of it, and leaves the
// other outputs.
static void add_step(Step *s, const Graph *from, bool several)
{
	Graph *g = s->graph;
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
		update(s, &(Param){own, out.val, &s->eta[slot]});
	}
}

Graph *step_pass(Arena *arena, const Graph *from, const Eta *eta, const Opt *opt, StepPart part)
{
	int64_t runs = opt->accumulate;
	bool several = runs > 1 && (part == STEP_train || part == STEP_gather);
	Graph *g = several              ? graph_like(arena, from)
	           : part == STEP_apply ? graph_inside(arena, from)
	                                : graph_live(arena, from);
	if (several)
		copy_graph(g, from, NULL, put_run, &runs);
	Step s = {.graph = g, .opt = opt, .eta = eta, .part = part};
	g->outs.count = 0;
	g->from = add_node(g, "step", opt->name);
	if (several) {
		Ref left = runs_left(g, runs);
		add_store(g, slot_of(g, left),
		          part == STEP_gather ? put2(g, O_sub, left, integer(g, 1))
		                              : integer(g, runs - 1));
	}
	if (part != STEP_gradient) {
		Ref t = put2(g, O_add, steps_done(g), integer(g, 1));
		set(&s, find_slot(g, "amos.step"), t);
		s.t = put_cast(g, t, E_f64);
	}
	add_step(&s, from, several);
	return part == STEP_train ? g : graph_live(arena, g);
}
