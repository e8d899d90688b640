// demand.c: computes the demands on operands from the demand on the result, per primitive.
// Invariant: the first demand stands; an unconstrained consumer never overrides a number. Source:
// Amos (arXiv 2210.11693), section on eta.
#include "analysis.h"
#include <math.h>

void set_demand(ScaleAnalysis *s, Ref r, Surd demand, Ref by)
{
	if (s->demand_by[r] || is(s, r, AUX))
		return;
	s->demand[r] = demand;
	s->demand_by[r] = by;
}

// Passes the demand on r to x, of which r has `gain` times the range.
static void pass_demand_over(ScaleAnalysis *s, Ref r, Ref x, Surd gain)
{
	if (s->demand_by[r])
		set_demand(s, x, surd_div(s->demand[r], gain), s->demand_by[r]);
}

void pass_demand_to(ScaleAnalysis *s, Ref r, Ref x)
{
	pass_demand_over(s, r, x, surd_one);
}

void pass_demand(ScaleAnalysis *s, Ref r, const Val *v)
{
	for (int k = 0; k < v->nin; k++)
		pass_demand_to(s, r, v->in[k]);
}

void unit_demand(ScaleAnalysis *s, Ref r, const Val *v)
{
	for (int k = 0; k < v->nin; k++)
		set_demand(s, v->in[k], constant(s, N_nonlinear), r);
}

void no_demand(ScaleAnalysis *s, Ref r, const Val *v)
{
	(void)s, (void)r, (void)v;
}

// The squares under a length are not squared errors.
void root_demand(ScaleAnalysis *s, Ref r, const Val *v)
{
	(void)v;
	if (known(s, F_length))
		s->length[length_of(s, r).square] = true;
}

void add_demand(ScaleAnalysis *s, Ref r, const Val *v)
{
	Ref low = low_rank(s, v);
	if (low)
		set_demand(s, low, surd_mul(demand_or_one(s, r), constant(s, N_offset)),
		           s->demand_by[r] ? s->demand_by[r] : r);
	Ref rest = without_offset(s, v);
	for (int k = 0; k < 2; k++)
		if (is(s, v->in[k], SIGNAL) && (!rest || v->in[k] == rest))
			pass_demand_to(s, r, v->in[k]);
}

void mul_demand(ScaleAnalysis *s, Ref r, const Val *v)
{
	int signal = is(s, v->in[0], SIGNAL) ? 0 : 1;
	Ref x = v->in[signal], other = v->in[1 - signal];
	bool quotient = v->op == O_div;
	// A squared error: targets have standard deviation 1.
	if (v->in[0] == v->in[1] && !s->length[r])
		set_demand(s, x, constant(s, N_nonlinear), r);
	if (is(s, other, SIGNAL) || s->divided[other] || is_zero(s, other) ||
	    (quotient && signal == 1))
		return;
	Surd rms = rms_of(s, other);
	pass_demand_over(s, r, uncapped(s, x, rms), quotient ? surd_inverse(rms) : rms);
}

// Clipping by a constant is an activation; the larger of two signals passes.
void clip_demand(ScaleAnalysis *s, Ref r, const Val *v)
{
	double slope;
	Ref x = hard_sigmoid(s, v, &slope);
	if (x)
		set_demand(s, x, surd_div(constant(s, N_nonlinear), surd_near(6 * slope)), r);
	else if (is(s, v->in[0], AUX) || is(s, v->in[1], AUX))
		unit_demand(s, r, v);
	else
		pass_demand(s, r, v);
}

void select_demand(ScaleAnalysis *s, Ref r, const Val *v)
{
	Ref x = sign_choice(s, v);
	if (x)
		set_demand(s, x, constant(s, N_nonlinear), r);
	else
		pass_demand(s, r, v);
}

// Returns the demand on each factor if both share that on r, a sum of products.
static Surd shared_demand(const ScaleAnalysis *s, Ref r, Surd demand)
{
	return surd_mul(surd_near(sqrt(demand.value)),
	                surd_near(pow((double)contracted(s, r), -0.25)));
}

// For sums r of products of two signals. Rows of two tables share the demand, since neither has a
// range of its own; else the left operand gets it.
static void pair_demand(ScaleAnalysis *s, Ref r, Ref x, Ref y)
{
	bool rows = table_of(s, s->origin[x].moves) && table_of(s, s->origin[y].moves);
	if (!rows || !known(s, F_rows_share)) {
		pass_demand_over(s, r, x, surd_mul(s->range[y], surd_root(contracted(s, r), 1)));
	} else if (s->demand_by[r]) {
		set_demand(s, x, shared_demand(s, r, s->demand[r]), s->demand_by[r]);
		set_demand(s, y, shared_demand(s, r, s->demand[r]), s->demand_by[r]);
	}
}

void sum_demand(ScaleAnalysis *s, Ref r, const Val *v)
{
	const Val *x = val(s->g, v->in[0]);
	bool largest;
	Ref one = picked(s, v, &largest);
	if (one && largest)
		set_demand(s, one, constant(s, N_nonlinear), r);
	if (one) {
		pass_demand_to(s, r, one);
		return;
	}
	bool both = x->op == O_mul && is(s, x->in[0], SIGNAL) && is(s, x->in[1], SIGNAL);
	if (both && x->in[0] != x->in[1])
		pair_demand(s, r, x->in[0], x->in[1]);
	else if (!summed_product(s, r))
		pass_demand_over(s, r, v->in[0], surd_root(contracted(s, r), 1));
}

// True for a kernel's output, with or without a bias, that is not normalized.
static bool is_unnormalized(const ScaleAnalysis *s, Ref x)
{
	for (;;) {
		const Val *v = val(s->g, x);
		if (v->op == O_dot)
			return is(s, v->in[0], VARIABLE) || is(s, v->in[1], VARIABLE);
		bool bias = v->op == O_add && is(s, v->in[0], SIGNAL) != is(s, v->in[1], SIGNAL);
		if (prims[v->op].cls != C_move && v->op != O_cast && !bias)
			return false;
		x = bias && !is(s, v->in[0], SIGNAL) ? v->in[1] : v->in[0];
	}
}

// For x E^T where rows of E are also looked up: an unnormalized x and E share the demand on the
// output, or E has all of it.
static void tied_demand(ScaleAnalysis *s, Ref r, Ref x, Ref table)
{
	Surd demand = demand_or_one(s, r), own;
	bool split = is_unnormalized(s, x) && known(s, F_tied_share);
	if (split) {
		own = shared_demand(s, r, demand);
		set_demand(s, x, own, r);
	} else {
		own = surd_div(demand, surd_mul(s->range[x], surd_root(contracted(s, r), 1)));
		own = s->authors ? surd_mul(own, constant(s, N_tied)) : own;
	}
	if (!split && !known(s, F_tied_bear))
		return;
	for (Ref t = table;; t = val(s->g, t)->in[0]) {
		s->demand[t] = own;
		s->demand_by[t] = r;
		if (val(s->g, t)->op == O_slot)
			return;
	}
}

void dot_demand(ScaleAnalysis *s, Ref r, const Val *v)
{
	int k = is(s, v->in[0], SIGNAL);
	Ref other = v->in[k], x = v->in[1 - k];
	Surd m = surd_root(contracted(s, r), 1);
	int slot = is(s, other, VARIABLE) ? s->origin[other].slot : -1;
	if (is(s, other, SIGNAL))
		pair_demand(s, r, x, other);
	else if (slot >= 0 && s->lookups[slot] && is(s, x, SIGNAL))
		tied_demand(s, r, x, other);
	else if (is(s, other, AUX) && (!is_float_const(s, other) || averages(s, v, k)))
		pass_demand_to(s, r, x);
	else if (is(s, other, AUX) && !is_zero(s, other))
		pass_demand_over(s, r, x, surd_mul(rms_of(s, other), m));
}

// The query gets the scale that gives scores of standard deviation 1; keys and values keep theirs.
void attend_demand(ScaleAnalysis *s, Ref r, const Val *v)
{
	// The gain over q k^T / sqrt(d). Two roots of 1 / sqrt(d) in bf16 give it within 2^-8.
	Surd gain =
	    surd_mul(surd_near(v->attr->x), surd_root(last_dim(&val(s->g, v->in[0])->shape), 1));
	gain = fabs(gain.value - 1) < 0x1p-8 ? surd_one : gain;
	Surd demand = constant(s, N_nonlinear);
	set_demand(s, v->in[0], surd_div(demand, surd_mul(gain, s->range[v->in[1]])), r);
	if (v->nin > 3 && is(s, v->in[3], SIGNAL))
		set_demand(s, v->in[3], demand, r);
}
