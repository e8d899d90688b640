// operands.c: makes the operands and attributes with which definitions in optim.am are called.
#include "step.h"
#include <string.h>

int slot_of(const Graph *g, Ref r)
{
	return (int)val(g, r)->attr->i[0];
}

void set_slot(const Step *s, int slot, Ref value)
{
	Graph *g = s->graph;
	if (s->part == STEP_train || s->part == STEP_apply)
		add_store(g, slot, s->finite ? put_kept(g, s->finite, slot, value) : value);
}

// Returns 1 - beta^t, t from 1; the power is state `name`.
static Ref unbias(const Step *s, const char *name, double beta)
{
	Graph *g = s->graph;
	static const double one = 1;
	Ref before = put_state(g, name, E_f64, shape_of(0, NULL), &one);
	Ref power = put2(g, O_mul, before, put_num(g, E_f64, beta));
	set_slot(s, slot_of(g, before), power);
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
	Ref in[2] = {s->place, schedule_uses(s->opt->schedule, "steps") ? steps_of_run(s) : 0};
	AttrArg args[3];
	Opt opt = *s->opt;
	for (int k = 0; k < d->nattr; k++)
		args[k] = (AttrArg){.name = d->names[d->nin + k],
		                    .x = *opt_attribute(&opt, d->names[d->nin + k])};
	Ref factor = book_call1(g, schedule, d->nin, in, d->nattr, args);
	Ref size = put2(g, O_mul, put_num(g, E_f64, rate), factor);
	return put2(g, O_mul, size, put_state(g, "amos.rate", E_f64, shape_of(0, NULL), &one));
}

const Slot *slot_at(const Step *s, const Param *p)
{
	return &s->graph->slots.at[p->slot];
}

const char *state_name(const Step *s, const Param *p, const char *role)
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

Ref join_matrices(Graph *g, const Shape *full, const Matrices *all, const Ref *matrix)
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

// ---- by name --------------------------------------------------------------------------

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

// Returns an operand that the definitions of all parameters share, f64; 0 for any other.
static Ref shared_operand(const Step *s, const char *role)
{
	Graph *g = s->graph;
	Opt opt = *s->opt;
	bool after = starts_with(role, "new_");
	const char *name = after ? role + strlen("new_") : role;
	int state = state_index(s->optimizer, name);
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

Ref step_operand(const Step *s, const Param *p, const char *role)
{
	Graph *g = s->graph;
	Ref shared = shared_operand(s, role), own = 0;
	if (shared)
		return p ? put_cast(g, shared, slot_at(s, p)->type) : shared;
	if (!p)
		bug("optim.am: unknown operand '%s' of all parameters in %s", role, s->opt->name);
	int k = state_index(s->optimizer, role);
	const struct State *state = k < 0 ? NULL : &s->optimizer->state[k];
	if (!strcmp(role, "eta"))
		return eta_operand(s, p);
	if (state && is_state_kept(s->opt, state))
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

AttrArg step_attribute(const Step *s, const Param *p, const char *name)
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
