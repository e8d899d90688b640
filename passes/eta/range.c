// range.c: computes the range of a result from the ranges of its operands, per primitive.
// Source: Amos (arXiv 2210.11693), section on eta; constants such as sqrt(1/2) for every activation
// are the paper's.
#include "analysis.h"
#include <math.h>

Surd inherit(ScaleAnalysis *s, Ref r, Ref x)
{
	s->source[r] = s->source[x];
	return s->range[x];
}

Surd keep_range(ScaleAnalysis *s, Ref r, const Val *v)
{
	Ref widest = 0;
	for (int k = 0; k < v->nin; k++)
		if (is(s, v->in[k], SIGNAL) &&
		    (!widest || s->range[v->in[k]].value > s->range[widest].value))
			widest = v->in[k];
	return widest ? inherit(s, r, widest) : surd_one;
}

Surd unit_range(ScaleAnalysis *s, Ref r, const Val *v)
{
	(void)s, (void)r, (void)v;
	return surd_one;
}

// ---- sums -------------------------------------------------------------------------------

// Returns g of 1 - g.
static Ref gate_complement(const ScaleAnalysis *s, Ref r)
{
	const Val *v = val(s->g, s->origin[r].views);
	return v->op == O_sub && is_float_const(s, v->in[0]) ? v->in[1] : 0;
}

// True for x g + y (1 - g) and y + g (x - y), whose range is the larger one of x and y.
static bool mixture(const ScaleAnalysis *s, const Val *v, Surd *range)
{
	for (int k = 0; k < 4 && known(s, F_mixture) && v->op == O_add; k++) {
		Ref x = v->in[k / 2], y = v->in[1 - k / 2], gate = 0;
		const Val *left = val(s->g, x), *right = val(s->g, y);
		if (left->op != O_mul)
			continue;
		Ref rest = right->op == O_mul ? gate_complement(s, left->in[k % 2]) : 0;
		const Val *difference = val(s->g, left->in[k % 2]);
		if (difference->op == O_sub && difference->in[1] == y) {
			x = is(s, difference->in[0], SIGNAL) ? difference->in[0] : y;
			gate = left->in[1 - k % 2];
		} else if (!rest || (rest != right->in[0] && rest != right->in[1])) {
			continue;
		}
		Surd larger = s->range[s->range[x].value > s->range[y].value ? x : y];
		*range = gate ? surd_mul(larger, s->range[gate]) : larger;
		return is(s, x, SIGNAL) && is(s, y, SIGNAL);
	}
	return false;
}

static bool is_sigmoid(const ScaleAnalysis *s, Ref r)
{
	const Val *v = val(s->g, s->origin[r].views);
	return v->op == O_act && v->attr->i[0] == A_sigmoid;
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

// Returns x of x sigmoid(a) + y, y bounded.
static Ref memory_of(const ScaleAnalysis *s, const Val *v)
{
	for (int k = 0; k < 4 && known(s, F_memory) && v->op == O_add; k++) {
		const Val *kept = val(s->g, v->in[k / 2]);
		if (kept->op != O_mul || !bounded(s, v->in[1 - k / 2], 2))
			continue;
		Ref gate = kept->in[k % 2], rest = gate_complement(s, gate),
		    x = kept->in[1 - k % 2];
		if (is(s, x, SIGNAL) && is_sigmoid(s, rest ? rest : gate))
			return x;
	}
	return 0;
}

// For independent summands. A learned offset or a mask does not count.
Surd add_range(ScaleAnalysis *s, Ref r, const Val *v)
{
	Ref x = v->in[0], y = v->in[1];
	Surd larger;
	if (mixture(s, v, &larger))
		return larger;
	if (v->op == O_sub && is_float_const(s, x) && is_sigmoid(s, y))
		s->coarse[r] = "a sigmoid is treated like any activation, whatever its bias";
	if (!is(s, x, SIGNAL) || !is(s, y, SIGNAL))
		return keep_range(s, r, v);
	Ref memory = memory_of(s, v), rest = memory ? 0 : without_offset(s, v);
	if (memory)
		s->coarse[r] =
		    "a memory cell is assumed to be full; on normal data it forgets more than it "
		    "receives";
	return memory || rest ? inherit(s, r, memory ? memory : rest)
	                      : surd_hypot(s->range[x], s->range[y]);
}

// ---- products ---------------------------------------------------------------------------

// For x times a signal, or a limit: x rsqrt(max(K mean(x^2), 1)). If the limit removes less than
// half of the power of x, the paper uses the range before it (its LSTM: 1/4 for a limit of
// 512^(-1/4)), the authors' code the limit.
static Surd gate_range(ScaleAnalysis *s, Ref r, const Val *v)
{
	Surd half = surd_root(s->authors ? 1 : 2, 1);
	for (int k = 0; k < 2 && known(s, F_limit); k++) {
		Length length = length_of(s, v->in[1 - k]);
		if (length.least != 1 || val(s->g, length.square)->in[0] != v->in[k])
			continue;
		Surd excess = surd_div(s->range[v->in[k]], length.size);
		return excess.value < half.value ? inherit(s, r, v->in[k]) : length.size;
	}
	return surd_mul(s->range[v->in[0]], s->range[v->in[1]]);
}

Surd mul_range(ScaleAnalysis *s, Ref r, const Val *v)
{
	int signal = is(s, v->in[0], SIGNAL) ? 0 : 1;
	Ref x = v->in[signal], other = v->in[1 - signal];
	Surd unit;
	if (by_length(s, v, &unit))
		return unit;
	int64_t weights = weights_of(s, v);
	if (weights)
		return surd_root(1, weights);
	if (v->op == O_div && signal == 1)
		return surd_one;
	if (is(s, other, SIGNAL) && v->op == O_mul)
		return gate_range(s, r, v);
	if (is(s, other, SIGNAL))
		return logistic(s, other) ? surd_mul(s->range[x], constant(s, N_activated))
		                          : surd_one;
	if (s->divided[other] && is(s, other, VARIABLE))
		return constant(s, N_normalized); // batch normalization by running statistics
	if (is(s, other, VARIABLE))
		return s->demand_by[r] && !normalized(s, x, false) ? s->demand[r]
		                                                   : inherit(s, r, x);
	const Val *act = val(s->g, x);
	Surd rms = rms_of(s, other), range = inherit(s, r, uncapped(s, x, rms));
	if (act->op == O_act && act->attr->i[0] == A_sigmoid && surd_same(rms, surd_near(2)) &&
	    known(s, F_gate))
		return surd_one;
	return v->op == O_div ? surd_div(range, rms) : surd_mul(range, rms);
}

// ---- functions --------------------------------------------------------------------------

// Every activation of an input of range 1 has range sqrt(1/2); bounded ones for any input.
Surd act_range(ScaleAnalysis *s, Ref r, const Val *v)
{
	const Val *sum = val(s->g, s->origin[v->in[0]].views);
	for (int k = 0; k < 2 && sum->op == O_add; k++)
		if (val(s->g, s->origin[sum->in[k]].views)->op == O_act)
			s->coarse[r] =
			    "a sum with the output of an activation is mostly positive and passes "
			    "the next one unchanged; the rule halves it";
	bool bounded = v->op != O_act || acts[v->attr->i[0]].scale == ACT_bounded;
	if (bounded && s->range[v->in[0]].value < 0.9)
		s->coarse[r] = "a bounded activation is assumed to reach its full range";
	return surd_mul(bounded ? surd_one : s->range[v->in[0]], constant(s, N_activated));
}

Surd clip_range(ScaleAnalysis *s, Ref r, const Val *v)
{
	double slope;
	return hard_sigmoid(s, v, &slope) ? constant(s, N_activated) : keep_range(s, r, v);
}

Surd exp_range(ScaleAnalysis *s, Ref r, const Val *v)
{
	(void)v;
	s->coarse[r] =
	    "assumed to be about 1; the exponential of deviation 1 has root mean square e";
	return surd_one;
}

Surd norm_range(ScaleAnalysis *s, Ref r, const Val *v)
{
	(void)r, (void)v;
	return constant(s, N_normalized);
}

Surd select_range(ScaleAnalysis *s, Ref r, const Val *v)
{
	Ref x = sign_choice(s, v);
	return x ? surd_mul(s->range[x], constant(s, N_activated)) : keep_range(s, r, v);
}

Surd softmax_range(ScaleAnalysis *s, Ref r, const Val *v)
{
	s->coarse[r] =
	    "sqrt(1/n) holds for weights that select one of n; scores of deviation 1 give "
	    "nearly even ones";
	int64_t n = 1;
	for (int k = 0; k < v->attr->n; k++)
		n *= v->shape.dim[v->attr->i[k]];
	return surd_root(1, n);
}

Surd sum_range(ScaleAnalysis *s, Ref r, const Val *v)
{
	bool largest;
	Ref one = picked(s, v, &largest);
	if (one)
		return largest ? max_range(s, r, v) : inherit(s, r, one);
	if (summed_product(s, r))
		return demand_or_one(s, r);
	return surd_mul(s->range[v->in[0]], surd_root(contracted(s, r), 1));
}

Surd cumsum_range(ScaleAnalysis *s, Ref r, const Val *v)
{
	(void)r;
	return surd_mul(s->range[v->in[0]], surd_root(v->shape.dim[v->attr->i[0]], 1));
}

// Of n values of range 1: 1 / sqrt(2 ln n).
Surd max_range(ScaleAnalysis *s, Ref r, const Val *v)
{
	Ref x = pooled(s, r);
	if (!x)
		return keep_range(s, r, v);
	s->coarse[r] = "the deviation of a maximum, as in the paper, without its mean";
	double n = (double)count_of(&val(s->g, v->in[0])->shape) / (double)count_of(&v->shape);
	return n < 2 ? inherit(s, r, x) : surd_number(s->range[x].value / sqrt(2 * log(n)));
}

// Zero padding does not count.
Surd window_range(ScaleAnalysis *s, Ref r, const Val *v)
{
	if (mostly_padding(s, v))
		s->coarse[r] = "windows that are mostly padding: the zeros are ignored";
	return keep_range(s, r, v);
}

Surd dot_range(ScaleAnalysis *s, Ref r, const Val *v)
{
	bool left = is(s, v->in[0], SIGNAL), right = is(s, v->in[1], SIGNAL);
	Surd m = surd_root(contracted(s, r), 1);
	if (left && right) {
		s->coarse[r] =
		    "two signals are treated as independent, but come from the same data";
		return surd_mul(surd_mul(s->range[v->in[0]], s->range[v->in[1]]), m);
	}
	Ref x = v->in[left ? 0 : 1], other = v->in[left ? 1 : 0];
	if (is_zero(s, v->in[0]) || is_zero(s, v->in[1]))
		s->coarse[r] = "the first iteration of a loop, with zeros as inputs, is treated "
		               "like any other";
	Ref key = x == v->in[0] && is(s, other, VARIABLE) ? offset_of(s, r) : 0;
	Ref twin = key ? product_of_data(s, other) : 0;
	if (key)
		return surd_mul(
		    surd_mul(s->range[x], m),
		    twin ? s->range[twin]
		         : surd_mul(s->range[s->origin[key].scales], constant(s, N_offset)));
	const OutputSlices *slices = s->output_slices[r];
	double squares = 0, all = 0; // of the demands on its slices
	for (int64_t e = 0; slices && e < last_dim(&v->shape); e++) {
		squares += slices->owner[e] ? pow(demand_or_one(s, slices->owner[e]).value, 2) : 0;
		all += slices->owner[e] != 0;
	}
	if (slices)
		return surd_near(sqrt(squares / all));
	if (!is(s, other, AUX) || !is(s, x, SIGNAL))
		return demand_or_one(s, r); // a kernel scales any input to the demand on its output
	if (!is_float_const(s, other) || averages(s, v, left ? 1 : 0))
		return inherit(s, r, x); // a selection or a mean
	return surd_mul(surd_mul(inherit(s, r, x), rms_of(s, other)), m);
}

Surd gather_range(ScaleAnalysis *s, Ref r, const Val *v)
{
	if (!table_of(s, r))
		return keep_range(s, r, v);
	return normed_table(s, v->in[0]) ? constant(s, N_normalized) : demand_or_one(s, v->in[0]);
}

Surd slice_range(ScaleAnalysis *s, Ref r, const Val *v)
{
	return s->output_slices[r] ? demand_or_one(s, r) : keep_range(s, r, v);
}

// Returns the root mean square over all operands without zeros, which count as padding.
Surd concat_range(ScaleAnalysis *s, Ref r, const Val *v)
{
	double sum = 0, all = 0;
	Ref first = 0;
	bool equal = true;
	for (int k = 0; k < v->nin; k++) {
		Ref x = v->in[k];
		Surd range = is(s, x, AUX) ? rms_of(s, x) : s->range[x];
		double size = (double)val(s->g, x)->shape.dim[v->attr->i[0]];
		if (range.value == 0)
			continue;
		first = first ? first : x;
		equal &= surd_same(range, is(s, first, AUX) ? surd_one : s->range[first]);
		sum += size * range.value * range.value;
		all += size;
	}
	if (!first)
		return surd_one;
	return equal ? inherit(s, r, first) : surd_near(sqrt(sum / all));
}

// Averages of independent values with weights of root mean square sqrt(1/n) keep the values' range.
Surd attend_range(ScaleAnalysis *s, Ref r, const Val *v)
{
	s->coarse[r] = "weights that select one of n; scores of deviation 1 give nearly even ones";
	return inherit(s, r, v->in[2]);
}
