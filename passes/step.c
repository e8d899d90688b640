// step.c: adds the optimizer's step to a graph of gradients.
// The definitions in optim.am are called with operands and attributes by name; their results are
// stored as new parameters and new state.
#include "passes.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- operands of the definitions -------------------------------------------------------

enum { SUMS = 8 };

typedef struct Step {
	Graph *graph;
	const Opt *opt;
	const Optimizer *optimizer;
	const Eta *eta; // indexed by slot
	Ref t;          // number of this step, f64, from 1
	StepPart part;
	Ref sum[SUMS];    // over all parameters, f64
	Ref next[STATES]; // new state of all parameters, f64, indexed as the optimizer's
} Step;

typedef struct Param {
	int slot;
	Ref grad;
	const Eta *eta;
	int matrix; // one of eta->matrices that a definition is called for; -1: the parameter
} Param;

static int slot_of(const Graph *g, Ref r)
{
	return (int)val(g, r)->attr->i[0];
}

// Stores a value in runs that update.
static void set(const Step *s, int slot, Ref value)
{
	if (s->part == STEP_train || s->part == STEP_apply)
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

// Returns the part of the run in which its number of steps does not matter.
static double stable_part(const Opt *opt)
{
	bool ramps = opt_uses(opt->name, "ramp") && !opt->ramp;
	const Schedule *schedule = schedule_named(opt->schedule);
	return ramps ? 0 : schedule_uses(schedule->name, "steps") ? schedule->stable(opt) : 1;
}

// Returns the number of steps of the run, which the program sets.
static Ref steps_of_run(const Step *s)
{
	Graph *g = s->graph;
	double stable = stable_part(s->opt);
	put_state(g, "amos.stable", E_f64, shape_of(0, NULL),
	          take_copy(g->arena, &stable, sizeof stable));
	return put_cast(g, put_state(g, "amos.steps", E_i64, shape_of(0, NULL), NULL), E_f64);
}

// Returns the step size: `rate`, times the schedule's factor, times that of amos_set_rate().
static Ref step_size(const Step *s, double rate)
{
	Graph *g = s->graph;
	static const double one = 1;
	const char *schedule = format(g->arena, "%s_schedule", s->opt->schedule);
	const Def *d = book_defs(g->book, BOOK_def, schedule);
	Ref in[2] = {s->t, schedule_uses(s->opt->schedule, "steps") ? steps_of_run(s) : 0};
	AttrArg args[3];
	Opt opt = *s->opt;
	for (int k = 0; k < d->nattr; k++)
		args[k] = (AttrArg){.name = d->names[d->nin + k],
		                    .x = *opt_attribute(&opt, d->names[d->nin + k])};
	Ref factor = book_call1(g, schedule, d->nin, in, d->nattr, args);
	Ref size = put2(g, O_mul, put_num(g, E_f64, rate), factor);
	return put2(g, O_mul, size, put_state(g, "amos.rate", E_f64, shape_of(0, NULL), &one));
}

// Returns the number of the optimizer's state that is this operand; -1: none.
static int state_named(const Optimizer *optimizer, const char *operand)
{
	for (int k = 0; k < STATES && optimizer->state[k].name; k++)
		if (!strcmp(optimizer->state[k].name, operand))
			return k;
	return -1;
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

static const Slot *slot_at(const Step *s, const Param *p)
{
	return &s->graph->slots.at[p->slot];
}

static const char *state_name(const Step *s, const Param *p, const char *role)
{
	return format(s->graph->arena, "%s.%s", slot_at(s, p)->name, role);
}

// ---- matrices -------------------------------------------------------------------------

static Ref put_range(Graph *g, Ref x, int axis, int64_t from, int64_t to)
{
	int64_t start[RANK] = {0};
	Shape shape = val(g, x)->shape;
	start[axis] = from;
	shape.dim[axis] = to - from;
	return put_slice(g, x, start, shape.dim, NULL);
}

// Returns matrix i of a value of the parameter's shape as [count, rows, columns].
static Ref put_matrix(Graph *g, Ref x, const Matrices *all, int i)
{
	const Matrix *m = &all->at[i];
	int64_t order[RANK] = {0};
	Ref *part = NEWS(g->arena, Ref, m->nrange);
	for (int k = 0; k < m->nrange; k++)
		part[k] = put_range(g, x, all->axis, m->range[k].from, m->range[k].to);
	Ref joined = m->nrange > 1 ? put_concat(g, all->axis, m->nrange, part) : part[0];
	for (int a = 0; a < val(g, x)->shape.rank; a++)
		order[a] = all->order[a];
	return put_reshape(g, put_permute(g, joined, order),
	                   shape_of(3, (int64_t[]){m->count, m->rows, m->columns}));
}

// Returns the ranges of the parameter, by their number in it, that matrix i holds.
static void split_matrix(Graph *g, const Shape *full, const Matrices *all, int i, Ref x, Ref *at)
{
	const Matrix *m = &all->at[i];
	Shape shape = *full;
	int64_t back[RANK] = {0}, size = 0, from = 0;
	for (int k = 0; k < m->nrange; k++)
		size += m->range[k].to - m->range[k].from;
	for (int a = 0; a < full->rank; a++) {
		back[all->order[a]] = a;
		shape.dim[a] = all->order[a] == all->axis ? size : full->dim[all->order[a]];
	}
	x = put_permute(g, put_reshape(g, x, shape), back);
	for (int k = 0; k < m->nrange; k++) {
		int64_t count = m->range[k].to - m->range[k].from;
		at[m->range[k].from] = put_range(g, x, all->axis, from, from + count);
		from += count;
	}
}

// Returns the value of the parameter's shape whose matrices these are.
static Ref join_matrices(Graph *g, const Shape *full, const Matrices *all, const Ref *matrix)
{
	int64_t size = full->dim[all->axis];
	Ref *at = NEWS(g->arena, Ref, size); // by the first element
	int n = 0;
	for (int i = 0; i < all->n; i++)
		split_matrix(g, full, all, i, matrix[i], at);
	for (int64_t e = 0; e < size; e++)
		if (at[e])
			at[n++] = at[e];
	return n > 1 ? put_concat(g, all->axis, n, at) : at[0];
}

// ---- operands, continued --------------------------------------------------------------

// Returns the eta of each matrix, or one value for each element of the axis along which it differs.
static Array eta_array(const Step *s, const Param *p)
{
	const Eta *eta = p->eta;
	const Slot *slot = slot_at(s, p);
	Array array = {.type = slot->type, .shape = slot->shape};
	if (p->matrix >= 0)
		array.shape = shape_of(1, (int64_t[]){eta->matrices->n});
	for (int a = 0; a < slot->shape.rank && p->matrix < 0; a++)
		array.shape.dim[a] = eta->nparts && a == eta->axis ? slot->shape.dim[a] : 1;
	array.f = NEWS(s->graph->arena, double, count_of(&array.shape));
	array.f[0] = eta->eta.value;
	for (int part = 0, at = 0; p->matrix < 0 && part < eta->nparts; part++)
		for (int64_t i = 0; i < eta->counts[part]; i++)
			array.f[at++] = eta->parts[part].eta.value;
	for (int i = 0; p->matrix >= 0 && i < eta->matrices->n; i++)
		array.f[i] = eta->matrices->at[i].eta;
	return array;
}

static Ref eta_operand(const Step *s, const Param *p)
{
	Graph *g = s->graph;
	Array array = eta_array(s, p);
	void *bytes = take(g->arena, (size_t)byte_count(array.type, &array.shape));
	array_to(&array, bytes);
	Ref eta = put_state(g, state_name(s, p, "eta"), array.type, array.shape, bytes);
	return p->matrix < 0 ? eta
	                     : put_reshape(g, put_range(g, eta, 0, p->matrix, p->matrix + 1),
	                                   shape_of(0, NULL));
}

// Returns an operand that the definitions of all parameters share, f64; 0: it is none.
static Ref shared_operand(const Step *s, const char *role)
{
	Graph *g = s->graph;
	Opt opt = *s->opt;
	bool after = starts_with(role, "new_");
	const char *name = after ? role + strlen("new_") : role;
	int state = state_named(s->optimizer, name);
	if (state >= 0 && s->optimizer->state[state].shape == STATE_shared)
		return after ? s->next[state]
		             : put_state(g, format(g->arena, "amos.%s.%s", opt.name, name), E_f64,
		                         shape_of(0, NULL), NULL);
	if (starts_with(role, "sum") && role[3] > '0' && role[3] <= '0' + SUMS)
		return s->sum[role[3] - '1'];
	if (!strcmp(role, "xi") || !strcmp(role, "rate") || !strcmp(role, "adam_rate"))
		return step_size(s, *opt_attribute(&opt, role));
	if (!strcmp(role, "t"))
		return s->t;
	if (!strcmp(role, "ramp"))
		return opt.ramp ? put_num(g, E_f64, opt.ramp) : steps_of_run(s);
	if (!strcmp(role, "unbias"))
		return unbias(s, "amos.beta_t", opt.beta);
	if (!strcmp(role, "unbias2"))
		return unbias(s, "amos.beta2_t", opt.beta2);
	return 0;
}

// `p`: NULL in a definition for all parameters.
static Ref operand(const Step *s, const Param *p, const char *role)
{
	Graph *g = s->graph;
	Ref shared = shared_operand(s, role), own = 0;
	if (shared)
		return p ? put_cast(g, shared, slot_at(s, p)->type) : shared;
	if (!p)
		bug("optim.am: unknown operand '%s' of all parameters in %s", role, s->opt->name);
	int k = state_named(s->optimizer, role);
	const struct State *state = k < 0 ? NULL : &s->optimizer->state[k];
	if (!strcmp(role, "eta"))
		return eta_operand(s, p);
	if (state && is_kept(s->opt, state))
		own = put_state(g, state_name(s, p, role), slot_at(s, p)->type,
		                state_shape(&slot_at(s, p)->shape, p->eta, state), NULL);
	else if (state || !strcmp(role, "w")) // state that is not kept is not read
		own = put_slot(g, p->slot);
	else if (!strcmp(role, "g"))
		own = p->grad;
	else
		bug("optim.am: unknown operand '%s' of %s", role, s->opt->name);
	return p->matrix < 0 ? own : put_matrix(g, own, p->eta->matrices, p->matrix);
}

// Returns the decay of a parameter, by its role.
static double decay_of(const Opt *opt, const Eta *eta)
{
	const char *group = decay_group(eta->role);
	return !strcmp(group, "decay")   ? opt->decay
	       : !strcmp(group, "table") ? opt->table_decay
	                                 : opt->other_decay;
}

static AttrArg attribute(const Step *s, const Param *p, const char *name)
{
	Opt opt = *s->opt;
	const double *x = opt_attribute(&opt, name);
	if (p && !strcmp(name, "decay"))
		return (AttrArg){.name = name, .x = decay_of(&opt, p->eta)};
	if (x)
		return (AttrArg){.name = name, .x = *x};
	if (!p || strcmp(name, "over") != 0)
		bug("optim.am: unknown attribute '%s' of %s", name, opt.name);
	const Shape *full = &slot_at(s, p)->shape;
	Shape reduced = slot_shape(full, p->eta);
	int64_t *axes = NEWS(s->graph->arena, int64_t, RANK);
	AttrArg over = {.name = name, .ints = axes};
	for (int a = 0; a < full->rank; a++)
		if (reduced.dim[a] == 1 && full->dim[a] != 1)
			axes[over.n++] = a;
	return over;
}

// ---- definitions ----------------------------------------------------------------------

// Returns the first definition of an optimizer's part: "", "_point", "_sums" or "_shared"; NULL:
// none.
static const Def *definitions(const char *optimizer, const char *part)
{
	char name[64];
	snprintf(name, sizeof name, "%s%s", optimizer, part);
	return book_defs(book_builtin(), BOOK_def, name);
}

static bool has_name(const Def *d, const char *name)
{
	for (; d; d = d->next)
		for (int k = 0; k < d->nin + d->nattr; k++)
			if (!strcmp(d->names[k], name))
				return true;
	return false;
}

bool opt_uses(const char *optimizer, const char *operand)
{
	static const char *const parts[] = {"", "_point", "_sums", "_shared"};
	bool decay = !strcmp(operand, "table_decay") || !strcmp(operand, "other_decay"),
	     uses = false;
	for (int i = 0; i < COUNT(parts); i++)
		uses |= has_name(definitions(optimizer, parts[i]), decay ? "decay" : operand);
	return uses;
}

bool schedule_uses(const char *schedule, const char *operand)
{
	char name[64];
	snprintf(name, sizeof name, "%s_schedule", schedule);
	return has_name(book_defs(book_builtin(), BOOK_def, name), operand);
}

bool opt_moves_point(const char *optimizer)
{
	return definitions(optimizer, "_point") != NULL;
}

bool opt_takes_matrices(const char *optimizer)
{
	bool matrices = false;
	for (int k = 0; k < STATES; k++)
		matrices |= optimizer_named(optimizer)->state[k].shape == STATE_matrix;
	return matrices;
}

static bool has_state(const struct State *state, const Shape *full, const Eta *eta)
{
	switch (state->shape) {
	case STATE_rows:
	case STATE_columns:
		return full->rank >= 2;
	case STATE_matrix:
		return eta->matrices->n > 0;
	case STATE_rest:
		return eta->matrices->n == 0;
	default:
		return true;
	}
}

// Returns the definition with the most operands whose state exists for this parameter.
static const Def *definition(const char *name, const Shape *full, const Eta *eta)
{
	const Optimizer *optimizer = optimizer_named(name);
	const Def *found = NULL;
	for (const Def *d = definitions(name, ""); d; d = d->next) {
		bool exists = !found || d->nin > found->nin;
		for (int k = 0; exists && k < d->nin; k++) {
			int state = state_named(optimizer, d->names[k]);
			exists = state < 0 || has_state(&optimizer->state[state], full, eta);
		}
		found = exists ? d : found;
	}
	if (!found)
		bug("optim.am: no %s", name);
	return found;
}

static bool is_of_matrices(const Optimizer *optimizer, const Def *d)
{
	bool matrices = false;
	for (int k = 0; k < d->nin; k++) {
		int state = state_named(optimizer, d->names[k]);
		matrices |= state >= 0 && optimizer->state[state].shape == STATE_matrix;
	}
	return matrices;
}

// Puts the results of a definition, for one parameter or all (NULL).
static void run(const Step *s, const Param *p, const Def *d, Ref *out)
{
	Graph *g = s->graph;
	Ref *in = NEWS(g->arena, Ref, d->nin + 1);
	AttrArg *args = NEWS(g->arena, AttrArg, d->nattr + 1);
	for (int k = 0; k < d->nin; k++)
		in[k] = operand(s, p, d->names[k]);
	for (int k = 0; k < d->nattr; k++)
		args[k] = attribute(s, p, d->names[d->nin + k]);
	book_run(g, NULL, d->name, d->nin, in, d->nattr, args, d->nresult, out);
}

// Returns where gradients are taken instead of at the parameter.
static Ref point(const Step *s, int slot)
{
	Ref at;
	run(s, &(Param){slot, 0, &s->eta[slot], -1}, definitions(s->opt->name, "_point"), &at);
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
		int state = state_named(s->optimizer, d->names[k]);
		if (state < 0)
			continue;
		s->next[state] = out[next++];
		set(s, slot_of(s->graph, operand(s, NULL, d->names[k])), s->next[state]);
	}
}

static void update(const Step *s, Param *p)
{
	Graph *g = s->graph;
	const Shape full = slot_at(s, p)->shape;
	const Def *d = definition(s->opt->name, &full, p->eta);
	bool matrices = is_of_matrices(s->optimizer, d);
	int n = matrices ? p->eta->matrices->n : 1, next = 0;
	Ref *out = NEWS(g->arena, Ref, n * d->nresult), *part = NEWS(g->arena, Ref, n);
	g->from = add_node(g, slot_at(s, p)->name, s->opt->name);
	for (int i = 0; i < n; i++) {
		p->matrix = matrices ? i : -1;
		run(s, p, d, out + i * d->nresult);
	}
	for (int k = -1; k < d->nin; k++) { // first the parameter, then its state
		int state = k < 0 ? -1 : state_named(s->optimizer, d->names[k]);
		if (k >= 0 && (state < 0 || s->optimizer->state[state].shape == STATE_shared))
			continue;
		for (int i = 0; i < n; i++)
			part[i] = out[i * d->nresult + next];
		next++;
		if (k >= 0 && !is_kept(s->opt, &s->optimizer->state[state]))
			continue;
		set(s, k < 0 ? p->slot : find_slot(g, state_name(s, p, d->names[k])),
		    matrices ? join_matrices(g, &full, p->eta->matrices, part) : part[0]);
	}
}

int64_t state_bytes(const Graph *g, const Eta *eta, const Opt *opt)
{
	int64_t bytes = 0;
	const Optimizer *optimizer = optimizer_named(opt->name);
	for (int i = 0; i < g->slots.count; i++) {
		const Slot *slot = &g->slots.at[i];
		if (slot->kind != S_param)
			continue;
		const Def *d = definition(opt->name, &slot->shape, &eta[i]);
		for (int k = 0; k < d->nin; k++) {
			int n = state_named(optimizer, d->names[k]);
			const struct State *state = n < 0 ? NULL : &optimizer->state[n];
			if (!state || state->shape == STATE_shared || !is_kept(opt, state))
				continue;
			Shape shape = state_shape(&slot->shape, &eta[i], state);
			bytes += byte_count(slot->type, &shape);
		}
	}
	return bytes;
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
	if (!opt_moves_point(s->opt->name) || s->part == STEP_apply)
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

// Takes the gradients from the outputs of `from`, adds the step or the part of it, and leaves the
// other outputs.
static void add_step(Step *s, const Graph *from, bool several)
{
	Graph *g = s->graph;
	const Def *sums = definitions(s->opt->name, "_sums"),
	          *shared = definitions(s->opt->name, "_shared");
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
		s.t = put_cast(g, put2(g, O_add, steps_done(g), integer(g, 1)), E_f64);
	if (copies)
		copy_graph(g, from, NULL, put_copy, &copy);
	g->outs.count = 0;
	g->from = node;
	if (several) {
		Ref left = runs_left(g, runs);
		add_store(g, slot_of(g, left),
		          part == STEP_gather ? put2(g, O_sub, left, integer(g, 1))
		                              : integer(g, runs - 1));
	}
	if (part != STEP_gradient)
		set(&s, find_slot(g, "amos.step"), put2(g, O_add, steps_done(g), integer(g, 1)));
	add_step(&s, from, several);
	return part == STEP_train ? g : graph_live(arena, g);
}
