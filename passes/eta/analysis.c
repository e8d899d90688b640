// analysis.c: propagates ranges and demands.
// Input: a forward graph. Output: per value its range (its expected standard deviation) and its
// demand (the one that its consumers need), each with the value that determines it.
#include "analysis.h"

// ---- natures of values ------------------------------------------------------------------

static bool any_of(const bool *what, const Val *v)
{
	for (int k = 0; k < v->nin; k++)
		if (what[v->in[k]])
			return true;
	return false;
}

static Nature nature_of(ScaleAnalysis *s, Ref r, const Val *v)
{
	if (v->op == O_slot) {
		SlotKind kind = s->g->slots.at[v->attr->i[0]].kind;
		return kind == S_state                                ? AUX
		       : kind != S_input                              ? VARIABLE
		       : is_float(s->g->slots.at[v->attr->i[0]].type) ? SIGNAL
		                                                      : AUX;
	}
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

static Origin origin_of(const ScaleAnalysis *s, Ref r, const Val *v)
{
	bool view = is_view(v), moved = view && v->op != O_cast && v->op != O_window,
	     scaled = is_multiple(s, v) && is(s, v->in[0], AUX) != is(s, v->in[1], AUX);
	Origin origin = {r, r, r, -1};
	if (view)
		origin.views = s->origin[v->in[0]].views;
	if (moved)
		origin.moves = s->origin[v->in[0]].moves;
	if (view || scaled)
		origin.scales = s->origin[v->in[scaled && is(s, v->in[0], AUX)]].scales;
	if (v->op == O_slot)
		origin.slot = (int)v->attr->i[0];
	else if (view || v->op == O_gather)
		origin.slot = s->origin[v->in[0]].slot;
	return origin;
}

static bool is_of_buffers(const ScaleAnalysis *s, const Val *v)
{
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
		bool product = is_multiple(s, v) || v->op == O_cast || prims[v->op].cls == C_move;
		s->data[r] = input || any_of(s->data, v);
		s->nature[r] = nature_of(s, r, v);
		s->origin[r] = origin_of(s, r, v);
		s->fixed[r] = known(s, F_running) && is_of_buffers(s, v);
		s->divided[r] = s->fixed[r] || (product && any_of(s->divided, v));
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
		bool passes = is_view(v) || is_multiple(s, v) || v->op == O_gather;
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

void propagate_demands(ScaleAnalysis *s)
{
	// The outputs of a graph without a loss count as logits.
	for (int k = 0; k < s->g->outs.count && !find_output(s->g, "loss"); k++)
		set_demand(s, s->g->outs.at[k].val, constant(s, N_logits), s->g->outs.at[k].val);
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
