// gate.c: recognizes patterns of a few operations: lengths and limits, gates and memory cells.
// Input: a forward graph with the natures of its values. Output: the main value of a pattern, or 0.
#include "analysis.h"
#include <math.h>

// ---- lengths --------------------------------------------------------------------------

// Returns the length from the factor outside of the root and the one under it.
static Surd length_of(bool inverse, Surd outer, Surd inner)
{
	Surd root = surd_near(sqrt(inner.value));
	return surd_mul(outer, inverse ? surd_inverse(root) : root);
}

Ref squared_under(ScaleAnalysis *s, Ref r, Surd *length)
{
	enum { STEPS = 32 };
	bool root = false, sum = false, inverse = false, limited = false;
	Surd outer = surd_one, inner = surd_one;
	for (int steps = 0; steps < STEPS; steps++) {
		const Val *v = val(s->g, r);
		bool pair = v->op == O_max || v->op == O_add || v->op == O_mul;
		int k = pair && is(s, v->in[0], AUX) ? 1 : 0;
		if (v->op == O_mul && v->in[0] == v->in[1]) {
			*length = limited ? surd_number(0) : length_of(inverse, outer, inner);
			return root && sum ? r : 0;
		}
		if (v->op == O_sum)
			inner = surd_mul(inner, surd_near((double)contracted(s, r)));
		root |= v->op == O_sqrt || v->op == O_rsqrt;
		inverse |= v->op == O_rsqrt;
		sum |= v->op == O_sum;
		bool passes =
		    pair ? is(s, v->in[1 - k], AUX)
		         : is_view(v) || v->op == O_sqrt || v->op == O_rsqrt || v->op == O_sum;
		if (!passes)
			return 0;
		if (v->op == O_mul)
			*(root ? &inner : &outer) =
			    surd_mul(root ? inner : outer, rms_of(s, v->in[1 - k]));
		else if (pair)
			limited |=
			    rms_of(s, v->in[1 - k]).value > 1e-2; // more than a guard against 0
		r = v->in[k];
	}
	return 0;
}

bool by_length(ScaleAnalysis *s, const Val *v, Surd *range)
{
	for (int k = 0; k < (v->op == O_mul ? 2 : v->op == O_div) && known(s, F_by_length); k++) {
		Surd length;
		Ref x = v->in[k], square = squared_under(s, v->in[1 - k], &length);
		if (!square || !(length.value > 0) ||
		    s->origin[x].scales != s->origin[val(s->g, square)->in[0]].scales)
			continue;
		Surd gain = surd_div(gain_of(s, x), gain_of(s, val(s->g, square)->in[0]));
		*range = v->op == O_mul ? surd_mul(gain, length) : surd_div(gain, length);
		return true;
	}
	return false;
}

bool normalized(ScaleAnalysis *s, Ref x, bool scaled)
{
	enum { STEPS = 32 };
	for (int steps = 0; steps < STEPS; steps++) {
		x = s->origin[x].views;
		const Val *v = val(s->g, x);
		Surd range;
		if (v->op == O_norm || by_length(s, v, &range))
			return true;
		if (v->op != O_mul && v->op != O_div)
			return false;
		int k = is(s, v->in[0], SIGNAL) ? 1 : 0;
		bool factor = is(s, v->in[k], VARIABLE);
		if (factor && s->divided[v->in[k]])
			return true;
		if (is(s, v->in[k], SIGNAL) || (factor && !scaled))
			return false;
		scaled &= !factor; // a constant may be the square root of its size
		x = v->in[1 - k];
	}
	return false;
}

Ref normed_table(const ScaleAnalysis *s, Ref r)
{
	const Val *v = val(s->g, s->origin[r].views);
	if (!is(s, r, VARIABLE) || !known(s, F_normed))
		return 0;
	if (v->op == O_norm)
		return v->in[0];
	for (int k = 0; k < 2 && (v->op == O_mul || v->op == O_add); k++) {
		Ref table = s->origin[v->in[1 - k]].slot >= 0 ? normed_table(s, v->in[k]) : 0;
		if (table)
			return table;
	}
	return 0;
}

double limit_of(ScaleAnalysis *s, const Val *v, Ref x, Ref factor)
{
	const Val *root = val(s->g, s->origin[factor].moves);
	const Val *max = root->op == O_rsqrt ? val(s->g, root->in[0]) : v;
	int one_at = max->op == O_max && is_float_const(s, max->in[0]) ? 0 : 1;
	if (!known(s, F_limit) || max->op != O_max ||
	    !surd_same(rms_of(s, max->in[one_at]), surd_one))
		return 0;
	const Val *sum = val(s->g, max->in[1 - one_at]);
	int k = scaled_operand(s, sum);
	double gain = k < 0 ? 1 : rms_of(s, sum->in[1 - k]).value;
	sum = k < 0 ? sum : val(s->g, sum->in[k]);
	const Val *square = sum->op == O_sum ? val(s->g, sum->in[0]) : v;
	if (square->op != O_mul || square->in[0] != x || square->in[1] != x)
		return 0;
	return gain * (double)count_of(&square->shape) / (double)count_of(&sum->shape);
}

int64_t weights_of(const ScaleAnalysis *s, const Val *v)
{
	const Val *sum = v->op == O_div ? val(s->g, s->origin[v->in[1]].moves) : v;
	bool shares = sum->op == O_sum && sum->in[0] == v->in[0] && known(s, F_weights);
	return shares ? count_of(&val(s->g, sum->in[0])->shape) / MAX(count_of(&sum->shape), 1) : 0;
}

// ---- gates ----------------------------------------------------------------------------

// Returns g of 1 - g.
static Ref gate_complement(const ScaleAnalysis *s, Ref r)
{
	const Val *v = val(s->g, s->origin[r].views);
	return v->op == O_sub && is_float_const(s, v->in[0]) ? v->in[1] : 0;
}

// Returns the gate g of the product g (x - y), or 0.
static Ref difference_gate(const ScaleAnalysis *s, Ref r, Ref y, Ref *x)
{
	const Val *v = val(s->g, r);
	for (int k = 0; k < 2 && v->op == O_mul; k++) {
		const Val *difference = val(s->g, v->in[k]);
		if (difference->op == O_sub && difference->in[1] == y) {
			*x = is(s, difference->in[0], SIGNAL) ? difference->in[0] : y;
			return v->in[1 - k];
		}
	}
	return 0;
}

bool mixture(const ScaleAnalysis *s, const Val *v, Ref *x, Ref *y, Ref *gate)
{
	bool found = false;
	for (int k = 0; k < 4 && known(s, F_mixture) && v->op == O_add && !found; k++) {
		Ref a = v->in[k / 2], b = v->in[1 - k / 2];
		const Val *left = val(s->g, a), *right = val(s->g, b);
		*x = a, *y = b;
		*gate = difference_gate(s, a, b, x);
		found = *gate != 0;
		if (found || left->op != O_mul || right->op != O_mul)
			continue;
		Ref rest = gate_complement(s, left->in[k % 2]);
		found = rest && (rest == right->in[0] || rest == right->in[1]);
	}
	if (!found)
		*x = v->in[0], *y = v->in[1], *gate = 0;
	return found && is(s, *x, SIGNAL) && is(s, *y, SIGNAL);
}

static bool is_sigmoid(const ScaleAnalysis *s, Ref r)
{
	const Val *v = val(s->g, s->origin[r].views);
	return v->op == O_act && v->attr->i[0] == A_sigmoid;
}

bool is_gate_complement(const ScaleAnalysis *s, const Val *v)
{
	return v->op == O_sub && is_float_const(s, v->in[0]) && is_sigmoid(s, v->in[1]);
}

// True for products of tanh and sigmoid, and clipped values.
static bool bounded(const ScaleAnalysis *s, Ref r, int depth)
{
	const Val *v = val(s->g, s->origin[r].views);
	if (v->op == O_act)
		return acts[v->attr->i[0]].scale == ACT_bounded;
	if (v->op == O_max || v->op == O_min)
		return is_float_const(s, v->in[0]) || is_float_const(s, v->in[1]);
	return v->op == O_mul && depth > 0 && bounded(s, v->in[0], depth - 1) &&
	       bounded(s, v->in[1], depth - 1);
}

Ref memory_of(const ScaleAnalysis *s, const Val *v)
{
	for (int k = 0; k < 2 && known(s, F_memory) && v->op == O_add; k++) {
		const Val *kept = val(s->g, v->in[k]);
		if (kept->op != O_mul || !bounded(s, v->in[1 - k], 2))
			continue;
		for (int i = 0; i < 2; i++) {
			Ref rest = gate_complement(s, kept->in[i]), x = kept->in[1 - i];
			if (is(s, x, SIGNAL) && is_sigmoid(s, rest ? rest : kept->in[i]))
				return x;
		}
	}
	return 0;
}

bool logistic(const ScaleAnalysis *s, Ref r)
{
	const Val *v = val(s->g, s->origin[r].views);
	for (int k = 0; k < 2 && known(s, F_logistic) && v->op == O_add; k++)
		if (is_float_const(s, v->in[k]) &&
		    val(s->g, s->origin[v->in[1 - k]].views)->op == O_exp)
			return true;
	return false;
}
