// analysis.c: propagates ranges and demands.
// Input: a forward graph. Output: per value its range (its expected standard deviation) and its
// demand (the one that its consumers need), each with the value that determines it.
#include "analysis.h"
#include <string.h>

// ---- natures of values ------------------------------------------------------------------

static Nature slot_nature(const Slot *slot)
{
	if (slot->kind == S_input)
		return is_float(slot->type) ? SIGNAL : AUX;
	return slot->kind == S_state ? AUX : VARIABLE;
}

static Nature nature_of(ScaleAnalysis *s, Ref r, const Val *v)
{
	if (v->op == O_slot)
		return slot_nature(&s->g->slots.at[v->attr->i[0]]);
	if (!is_float(v->type))
		return AUX;
	Nature n = AUX;
	for (int k = 0; k < v->nin; k++)
		n = MAX(n, s->nature[v->in[k]]);
	if (v->op == O_gather && n == VARIABLE && s->data[v->in[1]])
		return SIGNAL; // looked up
	if (v->op == O_dot && n == VARIABLE &&
	    (s->data[r] || is_zero(s, v->in[0]) || is_zero(s, v->in[1])))
		return SIGNAL; // integer pixels; one-hot rows; a loop's first iteration
	return n;
}

static bool any_of(const bool *what, const Val *v)
{
	for (int k = 0; k < v->nin; k++)
		if (what[v->in[k]])
			return true;
	return false;
}

static bool is_of_buffers(const ScaleAnalysis *s, const Val *v)
{
	if (!known(s, F_running))
		return false;
	if (v->op == O_slot)
		return s->g->slots.at[v->attr->i[0]].kind == S_buffer;
	for (int k = 0; k < v->nin; k++)
		if (!s->fixed[v->in[k]] && val(s->g, v->in[k])->op != O_const)
			return false;
	return any_of(s->fixed, v);
}

void find_natures(ScaleAnalysis *s)
{
	const Graph *g = s->g;
	for (Ref r = 1; r < (Ref)g->nval; r++) {
		const Val *v = val(g, r);
		bool input = v->op == O_slot && g->slots.at[v->attr->i[0]].kind == S_input;
		bool product = v->op == O_mul || v->op == O_cast || prims[v->op].cls == C_move;
		s->data[r] = input || any_of(s->data, v);
		s->nature[r] = nature_of(s, r, v);
		find_origin(s, r);
		s->fixed[r] = is_of_buffers(s, v);
		s->divided[r] = s->fixed[r] || (product && any_of(s->divided, v));
	}
	for (Ref r = 1; r < (Ref)g->nval; r++) {
		const Val *v = val(g, r);
		for (int k = 0; k < v->nin && s->live[r] && v->op == O_dot; k++) {
			int slot = is(s, v->in[k], VARIABLE) ? s->origin[v->in[k]].slot : -1;
			if (slot >= 0 && is(s, v->in[1 - k], SIGNAL))
				s->data_product[slot] = r;
		}
		Ref table = s->live[r] ? table_of(s, r) : 0;
		int slot = table ? s->origin[table].slot : -1;
		if (slot >= 0)
			s->lookups[slot] = true;
	}
}

// Finds what reads a value, through all of its readers: the sum that it is part of, and whether it
// passes an activation before it is added to another signal.
void find_readers(ScaleAnalysis *s)
{
	for (Ref r = (Ref)s->g->nval - 1; r > 0; r--) {
		const Val *v = val(s->g, r);
		bool passes = is_view(v) || v->op == O_mul || v->op == O_gather;
		bool both = v->nin > 1 && is(s, v->in[0], SIGNAL) && is(s, v->in[1], SIGNAL);
		Ref sum = v->op == O_add ? r : passes ? s->sum_of[r] : 0;
		bool activated = v->op == O_act || (s->activated[r] && is(s, r, SIGNAL) && !both);
		for (int k = 0; k < v->nin && s->live[r]; k++) {
			s->sum_of[v->in[k]] = sum ? sum : s->sum_of[v->in[k]];
			s->activated[v->in[k]] |= activated;
		}
	}
}

// ---- one rule per primitive -------------------------------------------------------------

static const ScaleRule rows[OPS] = {
#define RULE(op, range, demand, measured) [O_##op] = {range##_range, demand##_demand, M_##measured},
#include "eta.def"
#undef RULE
};

Rules eta_rules(void)
{
	static const ScaleRule usual = {keep_range, pass_demand, M_never};
	Rules rules = {.constant = {
#define CONSTANT(name, num, den, meaning) [N_##name] = surd_root(num, den),
#include "eta.def"
#undef CONSTANT
	               }};
	for (int op = 0; op < OPS; op++)
		rules.row[op] = rows[op].range ? rows[op] : usual;
	return rules;
}

// ---- propagation ------------------------------------------------------------------------

Surd demand_or_one(const ScaleAnalysis *s, Ref r)
{
	return s->demand_by[r] ? s->demand[r] : surd_one;
}

void propagate_ranges(ScaleAnalysis *s)
{
	for (Ref r = 1; r < (Ref)s->g->nval; r++) {
		const Val *v = val(s->g, r);
		s->range[r] = is(s, r, VARIABLE) ? demand_or_one(s, r) : constant(s, N_input);
		s->source[r] = r;
		if (v->op == O_slot && s->declared[v->attr->i[0]].value > 0)
			s->range[r] = s->declared[v->attr->i[0]];
		if (!is(s, r, SIGNAL) || v->nin == 0)
			continue;
		Ref same = range_origin(s, v);
		if (averaged(s, v))
			s->coarse[r] =
			    "the mean is inferred as large as the values that it averages";
		s->range[r] = same ? inherit(s, r, same) : s->rules->row[v->op].range(s, r, v);
		if (same)
			s->guess[r] = s->guess[same];
		else
			measure_activation(s, r, v);
	}
}

// The outputs of a graph without a loss count as logits.
static void set_output_demands(ScaleAnalysis *s)
{
	for (int k = 0; k < s->g->outs.count; k++)
		if (!strcmp(s->g->outs.at[k].name, "loss"))
			return;
	for (int k = 0; k < s->g->outs.count; k++)
		set_demand(s, s->g->outs.at[k].val, constant(s, N_logits), s->g->outs.at[k].val);
}

void propagate_demands(ScaleAnalysis *s)
{
	set_output_demands(s);
	for (Ref r = (Ref)s->g->nval - 1; r > 0; r--) {
		const Val *v = val(s->g, r);
		if (!s->live[r] || is(s, r, AUX) || v->nin == 0)
			continue;
		Ref same = is(s, r, SIGNAL) ? range_origin(s, v) : 0;
		if (same)
			pass_demand_to(s, r, same);
		else
			s->rules->row[v->op].demand(s, r, v);
	}
}
