// demand.c: computes the demand on each primitive's operands from the demand on its result.
// Output: the demands of the rows of analysis.h. Invariant: the first demand stands; "any scale is
// fine" never overrides a number. Source: Amos (arXiv 2210.11693), section on eta.
#include "analysis.h"
#include <math.h>

void ask(ScaleAnalysis *s, Ref r, Surd demand, Ref by)
{
	if (s->asker[r] || is(s, r, AUX))
		return;
	s->demand[r] = demand;
	s->asker[r] = by;
}

void pass_to(ScaleAnalysis *s, Ref r, Ref x)
{
	if (s->asker[r])
		ask(s, x, s->demand[r], s->asker[r]);
}

void pass_demand(ScaleAnalysis *s, Ref r, const Val *v)
{
	for (int k = 0; k < v->nin; k++)
		pass_to(s, r, v->in[k]);
}

void unit_demand(ScaleAnalysis *s, Ref r, const Val *v)
{
	for (int k = 0; k < v->nin; k++)
		ask(s, v->in[k], constant(s, N_wanted), r);
}

void no_demand(ScaleAnalysis *s, Ref r, const Val *v)
{
	(void)s, (void)r, (void)v;
}

// The squares under a length are no squared errors.
void root_demand(ScaleAnalysis *s, Ref r, const Val *v)
{
	(void)v;
	Surd length;
	Ref square = squared_under(s, r, &length);
	if (square && known(s, F_length))
		s->length[square] = true;
}

void add_demand(ScaleAnalysis *s, Ref r, const Val *v)
{
	Ref low = low_rank(s, v);
	if (low)
		ask(s, low, surd_mul(asked(s, r), constant(s, N_offset)),
		    s->asker[r] ? s->asker[r] : r);
	Ref whole = without_offset(s, v);
	for (int k = 0; k < 2; k++)
		if (is(s, v->in[k], SIGNAL) && (!whole || v->in[k] == whole))
			pass_to(s, r, v->in[k]);
}

void mul_demand(ScaleAnalysis *s, Ref r, const Val *v)
{
	int signal = is(s, v->in[0], SIGNAL) ? 0 : 1;
	Ref x = v->in[signal], other = v->in[1 - signal];
	bool quotient = v->op == O_div;
	if (v->in[0] == v->in[1] && !s->length[r])
		ask(s, x, constant(s, N_wanted),
		    r); // a squared error: against targets of deviation 1
	if (!s->asker[r] || is(s, other, SIGNAL) || s->divided[other] || is_zero(s, other) ||
	    (quotient && signal == 1))
		return;
	Surd rms = rms_of(s, other), q = s->demand[r];
	ask(s, uncapped(s, x, rms), quotient ? surd_mul(q, rms) : surd_div(q, rms), s->asker[r]);
}

// Clipping is an activation; of two signals the larger passes.
void clip_demand(ScaleAnalysis *s, Ref r, const Val *v)
{
	double slope;
	Ref x = hard_sigmoid(s, v, &slope);
	if (x)
		ask(s, x, surd_div(constant(s, N_wanted), surd_near(6 * slope)), r);
	else if (is(s, v->in[0], AUX) || is(s, v->in[1], AUX))
		unit_demand(s, r, v);
	else
		pass_demand(s, r, v);
}

void select_demand(ScaleAnalysis *s, Ref r, const Val *v)
{
	Ref x = decided_by(s, v);
	if (x)
		ask(s, x, constant(s, N_wanted), r);
	else
		pass_demand(s, r, v);
}

// Two signals whose products `sum` adds up: the left operand takes the scale.
static void product_demand(ScaleAnalysis *s, Ref sum, Ref left, Ref right)
{
	Surd m = surd_root(contracted(s, sum), 1);
	if (s->asker[sum])
		ask(s, left, surd_div(s->demand[sum], surd_mul(s->range[right], m)), s->asker[sum]);
}

void sum_demand(ScaleAnalysis *s, Ref r, const Val *v)
{
	const Val *x = val(s->g, v->in[0]);
	bool largest;
	Ref one = picked(s, v, &largest);
	if (one && largest)
		ask(s, one, constant(s, N_wanted), r);
	if (one) {
		pass_to(s, r, one);
		return;
	}
	bool both = x->op == O_mul && is(s, x->in[0], SIGNAL) && is(s, x->in[1], SIGNAL);
	if (both && x->in[0] != x->in[1])
		product_demand(s, r, x->in[0], x->in[1]);
	else if (s->asker[r] && !summed_product(s, r))
		ask(s, v->in[0], surd_div(s->demand[r], surd_root(contracted(s, r), 1)),
		    s->asker[r]);
}

// x E^T where rows of E are looked up too: the output's demand is shared with x, or E bears it all.
static void tied_demand(ScaleAnalysis *s, Ref r, Ref x, Ref table)
{
	Surd wanted = asked(s, r), m = surd_near((double)contracted(s, r));
	Surd shared = surd_mul(surd_near(sqrt(wanted.value)), surd_near(pow(m.value, -0.25)));
	Surd borne = surd_div(wanted, surd_mul(s->range[x], surd_root(contracted(s, r), 1)));
	bool share = unfixed(s, x) && known(s, F_tied_share);
	if (s->authors)
		borne = surd_mul(borne, constant(s, N_tied));
	if (!share && !known(s, F_tied_bear))
		return;
	if (share)
		ask(s, x, shared, r);
	for (Ref t = table;; t = val(s->g, t)->in[0]) {
		s->demand[t] = share ? shared : borne;
		s->asker[t] = r;
		if (val(s->g, t)->op == O_slot)
			return;
	}
}

void dot_demand(ScaleAnalysis *s, Ref r, const Val *v)
{
	Ref left = v->in[0], right = v->in[1];
	Surd m = surd_root(contracted(s, r), 1);
	if (is(s, left, SIGNAL) && is(s, right, SIGNAL)) {
		product_demand(s, r, left, right);
		return;
	}
	Ref other = is(s, left, SIGNAL) ? right : left, x = other == left ? right : left;
	int slot = is(s, other, VARIABLE) ? view_slot(s, other) : -1;
	if (slot >= 0 && s->lookups[slot] && is(s, x, SIGNAL))
		tied_demand(s, r, x, other);
	else if (is(s, other, AUX) && (!is_number(s, other) || averages(s, other)))
		pass_to(s, r, x);
	else if (is(s, other, AUX) && s->asker[r] && !is_zero(s, other))
		ask(s, x, surd_div(s->demand[r], surd_mul(rms_of(s, other), m)), s->asker[r]);
}

void gather_demand(ScaleAnalysis *s, Ref r, const Val *v)
{
	pass_to(s, r, v->in[0]);
}

// Of scores beside q k^T / sqrt(d). Two roots of 1 / sqrt(d), each in bf16, make it but for 2^-8.
static Surd score_gain(const Val *attend, int64_t d)
{
	Surd gain = surd_mul(surd_near(attend->attr->x), surd_root(d, 1));
	return fabs(gain.value - 1) < 0x1p-8 ? surd_one : gain;
}

// The query takes the scale that makes scores of deviation 1; keys and values keep theirs.
void attend_demand(ScaleAnalysis *s, Ref r, const Val *v)
{
	const Shape *q = &val(s->g, v->in[0])->shape;
	Surd gain = score_gain(v, q->dim[q->rank - 1]), wanted = constant(s, N_wanted);
	ask(s, v->in[0], surd_div(wanted, surd_mul(gain, s->range[v->in[1]])), r);
	if (v->nin > 3 && is(s, v->in[3], SIGNAL))
		ask(s, v->in[3], wanted, r);
}
