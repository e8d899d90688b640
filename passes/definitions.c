// definitions.c: finds the definitions of optimizers and schedules in optim.am, and the state of a
// parameter that they have.
#include "step.h"
#include <stdio.h>
#include <string.h>

// ---- state ----------------------------------------------------------------------------

int state_index(const Optimizer *optimizer, const char *operand)
{
	for (int k = 0; k < STATES && optimizer->state[k].name; k++)
		if (!strcmp(optimizer->state[k].name, operand))
			return k;
	return -1;
}

bool is_state_kept(const Opt *opt, const struct State *state)
{
	Opt copy = *opt;
	return !state->kept_for || *opt_attribute(&copy, state->kept_for) != 0;
}

Shape slot_shape(const Shape *full, const Eta *eta)
{
	Shape shape = *full;
	for (int a = 0; a < shape.rank; a++)
		shape.dim[a] = eta->slot.rank == full->rank ? eta->slot.dim[a] : 1;
	return shape;
}

Shape state_shape(const Shape *full, const Eta *eta, const struct State *state)
{
	Shape shape = state->shape == STATE_slot ? slot_shape(full, eta) : *full;
	if (state->shape == STATE_rows)
		shape.dim[shape.rank - 1] = 1;
	if (state->shape == STATE_columns)
		shape.dim[shape.rank - 2] = 1;
	return shape;
}

// ---- definitions ----------------------------------------------------------------------

const Def *opt_definitions(const char *optimizer, const char *part)
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
		uses |= has_name(opt_definitions(optimizer, parts[i]), decay ? "decay" : operand);
	return uses;
}

bool schedule_uses(const char *schedule, const char *operand)
{
	char name[64];
	snprintf(name, sizeof name, "%s_schedule", schedule);
	return has_name(book_defs(book_builtin(), BOOK_def, name), operand);
}

bool opt_moves_point(const Opt *opt)
{
	const Optimizer *optimizer = optimizer_named(opt->name);
	const Def *d = opt_definitions(opt->name, "_point");
	for (int k = 0; d && k < d->nin; k++) {
		int state = state_index(optimizer, d->names[k]);
		if (state >= 0 && is_state_kept(opt, &optimizer->state[state]))
			return true;
	}
	return false;
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

const Def *opt_definition(const char *name, const Shape *full, const Eta *eta)
{
	const Optimizer *optimizer = optimizer_named(name);
	const Def *found = NULL;
	for (const Def *d = opt_definitions(name, ""); d; d = d->next) {
		bool exists = !found || d->nin > found->nin;
		for (int k = 0; exists && k < d->nin; k++) {
			int state = state_index(optimizer, d->names[k]);
			exists = state < 0 || has_state(&optimizer->state[state], full, eta);
		}
		found = exists ? d : found;
	}
	if (!found)
		bug("optim.am: no %s", name);
	return found;
}

bool takes_matrices(const Optimizer *optimizer, const Def *d)
{
	bool matrices = false;
	for (int k = 0; k < d->nin; k++) {
		int state = state_index(optimizer, d->names[k]);
		matrices |= state >= 0 && optimizer->state[state].shape == STATE_matrix;
	}
	return matrices;
}

int64_t state_bytes(const Graph *g, const Eta *eta, const Opt *opt)
{
	int64_t bytes = 0;
	const Optimizer *optimizer = optimizer_named(opt->name);
	for (int i = 0; i < g->slots.count; i++) {
		const Slot *slot = &g->slots.at[i];
		if (slot->kind != S_param)
			continue;
		const Def *d = opt_definition(opt->name, &slot->shape, &eta[i]);
		for (int k = 0; k < d->nin; k++) {
			int n = state_index(optimizer, d->names[k]);
			const struct State *state = n < 0 ? NULL : &optimizer->state[n];
			if (!state || state->shape == STATE_shared || !is_state_kept(opt, state))
				continue;
			Shape shape = state_shape(&slot->shape, &eta[i], state);
			bytes += byte_count(slot->type, &shape);
		}
	}
	return bytes;
}
