// scale.c: how large values are expected to be, and how large their consumers want them.
// Takes a forward graph. Gives each value's range (the standard deviation to expect, upward) and
// demand (what is asked of it, downward), one row a primitive, each with the value it comes from.
// Keeps: the first demand stands; "any scale is fine" never overrides a number.
// Source: Amos (arXiv 2210.11693), section on eta; constants such as sqrt(1/2) for every activation
// are the paper's.
#include "scale.h"
#include <math.h>
#include <string.h>

static const Surd one = {1, true, 1, 1};

// ---- what values are made of ----------------------------------------------------------

static Nature slot_nature(const Slot *slot)
{
	if (slot->kind == S_input)
		return is_float(slot->type) ? SIGNAL : AUX;
	return slot->kind == S_state ? AUX : VARIABLE;
}

static Nature nature_of(Sweep *s, Ref r, const Val *v)
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
		return SIGNAL; // pixels given as integers; rows chosen by ones and zeros; a loop's
		               // first step
	return n;
}

static bool any_of(const bool *what, const Val *v)
{
	for (int k = 0; k < v->nin; k++)
		if (what[v->in[k]])
			return true;
	return false;
}

static bool of_buffers(const Sweep *s, const Val *v)
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

void find_natures(Sweep *s)
{
	const Graph *g = s->g;
	for (Ref r = 1; r < (Ref)g->nval; r++) {
		const Val *v = val(g, r);
		bool input = v->op == O_slot && g->slots.at[v->attr->i[0]].kind == S_input;
		bool product = v->op == O_mul || v->op == O_cast || prims[v->op].cls == C_move;
		s->data[r] = input || any_of(s->data, v);
		s->nature[r] = nature_of(s, r, v);
		s->fixed[r] = of_buffers(s, v);
		s->divided[r] = s->fixed[r] || (product && any_of(s->divided, v));
	}
	for (Ref r = 1; r < (Ref)g->nval; r++) {
		Ref table = s->live[r] ? table_of(s, r) : 0;
		int slot = table ? view_slot(s, table) : -1;
		if (slot >= 0)
			s->lookups[slot] = true;
	}
}

// ---- ranges, upward -------------------------------------------------------------------

Surd asked(const Sweep *s, Ref r)
{
	return s->asker[r] ? s->demand[r] : one;
}

static Surd inherit(Sweep *s, Ref r, Ref x)
{
	s->source[r] = s->source[x];
	return s->range[x];
}

Surd keep_range(Sweep *s, Ref r, const Val *v)
{
	Ref widest = 0;
	for (int k = 0; k < v->nin; k++)
		if (is(s, v->in[k], SIGNAL) &&
		    (!widest || s->range[v->in[k]].value > s->range[widest].value))
			widest = v->in[k];
	return widest ? inherit(s, r, widest) : one;
}

Surd unit_range(Sweep *s, Ref r, const Val *v)
{
	(void)s, (void)r, (void)v;
	return one;
}

// What a measured range shows, and the rule does not count.
static void admit(Sweep *s, Ref r, const char *what)
{
	s->coarse[r] = what;
}

// Independent summands. A learned offset, or a mask, does not count.
static Surd add_range(Sweep *s, Ref r, const Val *v)
{
	Ref x = v->in[0], y = v->in[1], gate;
	if (mixture(s, v, &x, &y, &gate)) {
		Surd larger = s->range[s->range[x].value > s->range[y].value ? x : y];
		return gate ? surd_mul(larger, s->range[gate]) : larger;
	}
	if (rest_of_gate(s, v))
		admit(s, r, "a sigmoid is taken for an activation as any, whatever its bias");
	if (!is(s, x, SIGNAL) || !is(s, y, SIGNAL))
		return keep_range(s, r, v);
	Ref memory = memory_of(s, v);
	if (memory) {
		admit(s, r,
		      "a memory is taken to be full; of normal data it forgets more than comes");
		return inherit(s, r, memory);
	}
	Ref whole = without_offset(s, v);
	return whole ? inherit(s, r, whole) : surd_hypot(s->range[x], s->range[y]);
}

// The paper takes the range before a limit that takes less than half of a signal's power (its LSTM:
// 1/4 where the limit is 512^(-1/4)); the authors' code the limit.
static Surd gate_range(Sweep *s, Ref r, const Val *v)
{
	double least = s->authors ? 1 : sqrt(2);
	for (int k = 0; k < 2; k++) {
		double limit = limit_of(s, v, v->in[k], v->in[1 - k]);
		if (limit > 0 && s->range[v->in[k]].value * sqrt(limit) < least)
			return inherit(s, r, v->in[k]);
		if (limit > 0)
			return surd_inverse(surd_near(sqrt(limit)));
	}
	return surd_mul(s->range[v->in[0]], s->range[v->in[1]]);
}

static Surd signal_product(Sweep *s, Ref r, const Val *v, Ref x, Ref other)
{
	if (v->op == O_mul)
		return gate_range(s, r, v);
	return logistic(s, other) ? surd_mul(s->range[x], constant(s, N_activated)) : one;
}

static Surd variable_product(Sweep *s, Ref r, Ref x, Ref other)
{
	if (s->divided[other])
		return constant(s, N_normalized); // batch normalization by running statistics
	return s->asker[r] && !normalized(s, x, false) ? s->demand[r] : inherit(s, r, x);
}

static Surd number_product(Sweep *s, Ref r, const Val *v, Ref x, Ref number)
{
	Surd rms = rms_of(s, number), range = inherit(s, r, uncapped(s, x, rms));
	const Val *act = val(s->g, x);
	bool sigmoid = act->op == O_act && act->attr->i[0] == A_sigmoid;
	if (sigmoid && surd_same(rms, surd_near(2)) && known(s, F_gate))
		return one;
	return v->op == O_div ? surd_div(range, rms) : surd_mul(range, rms);
}

static Surd mul_range(Sweep *s, Ref r, const Val *v)
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
		return one;
	if (is(s, other, SIGNAL))
		return signal_product(s, r, v, x, other);
	return is(s, other, VARIABLE) ? variable_product(s, r, x, other)
	                              : number_product(s, r, v, x, other);
}

// Every activation of range 1 has range sqrt(1/2); bounded ones whatever they get.
static Surd act_range(Sweep *s, Ref r, const Val *v)
{
	if (positive_sum(s, v->in[0]))
		admit(s, r,
		      "a sum with what an activation let through is mostly positive and passes the "
		      "next one whole; the rule halves it");
	Act act = v->op == O_act ? (Act)v->attr->i[0] : A_tanh;
	bool bounded = act == A_tanh || act == A_sigmoid || act == A_hardsigmoid;
	if (bounded && s->range[v->in[0]].value < 0.9)
		admit(s, r, "a bounded activation is taken to get its full range");
	return surd_mul(bounded ? one : s->range[v->in[0]], constant(s, N_activated));
}

static Surd exp_range(Sweep *s, Ref r, const Val *v)
{
	(void)v;
	admit(s, r, "taken to be around 1; of deviation 1 the exponential's root mean square is e");
	return one;
}

static Surd norm_range(Sweep *s, Ref r, const Val *v)
{
	(void)r, (void)v;
	return constant(s, N_normalized);
}

static Surd select_range(Sweep *s, Ref r, const Val *v)
{
	Ref x = decided_by(s, v);
	return x ? surd_mul(s->range[x], constant(s, N_activated)) : keep_range(s, r, v);
}

static Surd softmax_range(Sweep *s, Ref r, const Val *v)
{
	admit(s, r,
	      "sqrt(1/n) is of weights that choose one of n; those of scores of deviation 1 are "
	      "nearly even");
	int64_t n = 1;
	for (int k = 0; k < v->attr->n; k++)
		n *= v->shape.dim[v->attr->i[k]];
	return surd_root(1, n);
}

static Surd sum_range(Sweep *s, Ref r, const Val *v)
{
	if (summed_product(s, r))
		return asked(s, r);
	return surd_mul(s->range[v->in[0]], surd_root(contracted(s, r), 1));
}

static Surd cumsum_range(Sweep *s, Ref r, const Val *v)
{
	(void)r;
	return surd_mul(s->range[v->in[0]], surd_root(v->shape.dim[v->attr->i[0]], 1));
}

// Of n values: 1 / sqrt(2 ln n).
static Surd max_range(Sweep *s, Ref r, const Val *v)
{
	Ref x = pooled(s, r);
	if (!x)
		return keep_range(s, r, v);
	admit(s, r, "the deviation of a maximum, as in the paper; its mean comes on top");
	double n = (double)count_of(&val(s->g, v->in[0])->shape) / (double)count_of(&v->shape);
	return n < 2 ? inherit(s, r, x) : surd_number(s->range[x].value / sqrt(2 * log(n)));
}

// What part of a windowed axis's entries lies inside the axis. row: as prims.def says of windows.
static double inside(const int64_t *row, int64_t size)
{
	int64_t hits = 0;
	for (int64_t o = 0; o < row[1]; o++)
		for (int64_t k = 0; k < row[2]; k++) {
			int64_t at = o * row[3] + k * row[4] - row[5];
			hits += at % row[6] || (at >= 0 && at / row[6] < size);
		}
	return (double)hits / (double)MAX(row[1] * row[2], 1);
}

// A rim of zeros does not count.
static Surd window_range(Sweep *s, Ref r, const Val *v)
{
	double share = 1;
	for (int i = 0; i < v->attr->n; i += 7)
		share *= inside(v->attr->i + i, val(s->g, v->in[0])->shape.dim[v->attr->i[i]]);
	if (share < 0.5)
		admit(s, r, "windows that are mostly rim: zeros do not count");
	return keep_range(s, r, v);
}

// The root mean square of what is asked of a kernel's output by parts.
static Surd parted_range(const Sweep *s, const Cuts *cuts)
{
	double sum = 0, all = 0;
	for (int k = 0; k < cuts->cut.count; k++) {
		double x = asked(s, cuts->cut.at[k].part).value, n = (double)cuts->cut.at[k].count;
		sum += n * x * x, all += n;
	}
	return surd_near(sqrt(sum / all));
}

static Surd dot_range(Sweep *s, Ref r, const Val *v)
{
	bool left = is(s, v->in[0], SIGNAL), right = is(s, v->in[1], SIGNAL);
	Surd m = surd_root(contracted(s, r), 1);
	if (left && right) {
		admit(s, r,
		      "two signals are taken for independent, though they come from the same data");
		return surd_mul(surd_mul(s->range[v->in[0]], s->range[v->in[1]]), m);
	}
	Ref x = v->in[left ? 0 : 1], other = v->in[left ? 1 : 0];
	if (is_zero(s, v->in[0]) || is_zero(s, v->in[1]))
		admit(s, r,
		      "the first step of a loop, where zeros come in, is taken for any other");
	Ref whole = x == v->in[0] && is(s, other, VARIABLE) ? offset_of(s, r) : 0;
	if (whole)
		return surd_mul(surd_mul(s->range[x], m),
		                surd_mul(s->range[unscaled(s, whole)], constant(s, N_offset)));
	if (s->cuts[r])
		return parted_range(s, s->cuts[r]);
	if (!is(s, other, AUX) || !is(s, x, SIGNAL))
		return asked(s, r); // a kernel takes any input to what is asked of its output
	if (!is_number(s, other) || averages(s, other))
		return inherit(s, r, x); // a choice or a mean
	return surd_mul(surd_mul(inherit(s, r, x), rms_of(s, other)), m);
}

static Surd gather_range(Sweep *s, Ref r, const Val *v)
{
	return table_of(s, r) ? asked(s, v->in[0]) : keep_range(s, r, v);
}

static Surd slice_range(Sweep *s, Ref r, const Val *v)
{
	return s->cuts[r] ? asked(s, r) : keep_range(s, r, v);
}

// The root mean square over all parts, but for zeros, which count as little as a rim of them.
static Surd concat_range(Sweep *s, Ref r, const Val *v)
{
	double sum = 0, all = 0;
	Ref first = 0;
	bool equal = true;
	for (int k = 0; k < v->nin; k++) {
		Ref x = v->in[k];
		Surd range = is(s, x, AUX) ? rms_of(s, x) : s->range[x];
		double share = (double)val(s->g, x)->shape.dim[v->attr->i[0]];
		if (range.value == 0)
			continue;
		first = first ? first : x;
		equal &= surd_same(range, is(s, first, AUX) ? one : s->range[first]);
		sum += share * range.value * range.value;
		all += share;
	}
	if (!first)
		return one;
	return equal ? inherit(s, r, first) : surd_near(sqrt(sum / all));
}

// Averages of independent values with weights sqrt(1/n) in the root mean square: the values' range.
static Surd attend_range(Sweep *s, Ref r, const Val *v)
{
	admit(s, r, "weights that choose one of n; those of scores of deviation 1 are nearly even");
	return inherit(s, r, v->in[2]);
}

// ---- demands, downward ----------------------------------------------------------------

static void ask(Sweep *s, Ref r, Surd demand, Ref by)
{
	if (s->asker[r] || is(s, r, AUX))
		return;
	s->demand[r] = demand;
	s->asker[r] = by;
}

static void pass_to(Sweep *s, Ref r, Ref x)
{
	if (s->asker[r])
		ask(s, x, s->demand[r], s->asker[r]);
}

void pass_demand(Sweep *s, Ref r, const Val *v)
{
	for (int k = 0; k < v->nin; k++)
		pass_to(s, r, v->in[k]);
}

void unit_demand(Sweep *s, Ref r, const Val *v)
{
	for (int k = 0; k < v->nin; k++)
		ask(s, v->in[k], constant(s, N_wanted), r);
}

void no_demand(Sweep *s, Ref r, const Val *v)
{
	(void)s, (void)r, (void)v;
}

// The squares of which a length is made are no errors.
static void root_demand(Sweep *s, Ref r, const Val *v)
{
	(void)v;
	Surd length;
	Ref square = squared_under(s, r, &length);
	if (square && known(s, F_length))
		s->length[square] = true;
}

static void add_demand(Sweep *s, Ref r, const Val *v)
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

static void mul_demand(Sweep *s, Ref r, const Val *v)
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
static void clip_demand(Sweep *s, Ref r, const Val *v)
{
	if (is(s, v->in[0], AUX) || is(s, v->in[1], AUX))
		unit_demand(s, r, v);
	else
		pass_demand(s, r, v);
}

static void select_demand(Sweep *s, Ref r, const Val *v)
{
	Ref x = decided_by(s, v);
	if (x)
		ask(s, x, constant(s, N_wanted), r);
	else
		pass_demand(s, r, v);
}

// Two signals of which `sum` adds up the products: the left operand absorbs.
static void product_demand(Sweep *s, Ref sum, Ref left, Ref right)
{
	Surd m = surd_root(contracted(s, sum), 1);
	if (s->asker[sum])
		ask(s, left, surd_div(s->demand[sum], surd_mul(s->range[right], m)), s->asker[sum]);
}

static void sum_demand(Sweep *s, Ref r, const Val *v)
{
	const Val *x = val(s->g, v->in[0]);
	bool both = x->op == O_mul && is(s, x->in[0], SIGNAL) && is(s, x->in[1], SIGNAL);
	if (both && x->in[0] != x->in[1])
		product_demand(s, r, x->in[0], x->in[1]);
	else if (s->asker[r] && !summed_product(s, r))
		ask(s, v->in[0], surd_div(s->demand[r], surd_root(contracted(s, r), 1)),
		    s->asker[r]);
}

// x E^T where rows of E are looked up too: the output's demand is shared with x, or E bears it all.
static void tied_demand(Sweep *s, Ref r, Ref x, Ref table)
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

static void dot_demand(Sweep *s, Ref r, const Val *v)
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

static void gather_demand(Sweep *s, Ref r, const Val *v)
{
	pass_to(s, r, v->in[0]);
}

// Of scores beside q k^T / sqrt(d). Two roots of 1 / sqrt(d), each in bf16, make it but for 2^-8.
static Surd score_gain(const Val *attend, int64_t d)
{
	Surd gain = surd_mul(surd_near(attend->attr->x), surd_root(d, 1));
	return fabs(gain.value - 1) < 0x1p-8 ? one : gain;
}

// The query absorbs what makes scores of deviation 1; keys and values keep theirs.
static void attend_demand(Sweep *s, Ref r, const Val *v)
{
	const Shape *q = &val(s->g, v->in[0])->shape;
	Surd gain = score_gain(v, q->dim[q->rank - 1]), wanted = constant(s, N_wanted);
	ask(s, v->in[0], surd_div(wanted, surd_mul(gain, s->range[v->in[1]])), r);
	if (v->nin > 3 && is(s, v->in[3], SIGNAL))
		ask(s, v->in[3], wanted, r);
}

// ---- the table ------------------------------------------------------------------------

// One row a primitive. What is not listed keeps its operand's range and passes its demand on.
static const Row rows[OPS] = {
    [O_add] = {add_range, add_demand},          [O_sub] = {add_range, add_demand},
    [O_mul] = {mul_range, mul_demand},          [O_div] = {mul_range, mul_demand},
    [O_max] = {keep_range, clip_demand},        [O_min] = {keep_range, clip_demand},
    [O_select] = {select_range, select_demand}, [O_exp] = {exp_range, unit_demand},
    [O_log] = {unit_range, unit_demand},        [O_pow] = {unit_range, unit_demand},
    [O_sin] = {unit_range, unit_demand},        [O_cos] = {unit_range, unit_demand},
    [O_atan] = {unit_range, unit_demand},       [O_erf] = {act_range, unit_demand},
    [O_act] = {act_range, unit_demand},         [O_abs] = {keep_range, unit_demand},
    [O_sign] = {unit_range, no_demand},         [O_sqrt] = {unit_range, root_demand},
    [O_rsqrt] = {unit_range, root_demand},      [O_sum] = {sum_range, sum_demand},
    [O_prod] = {unit_range, no_demand},         [O_amax] = {max_range, unit_demand},
    [O_amin] = {keep_range, unit_demand},       [O_cumsum] = {cumsum_range, no_demand},
    [O_slice] = {slice_range, pass_demand},     [O_concat] = {concat_range, pass_demand},
    [O_window] = {window_range, pass_demand},   [O_dot] = {dot_range, dot_demand},
    [O_gather] = {gather_range, gather_demand}, [O_softmax] = {softmax_range, unit_demand},
    [O_lse] = {unit_range, unit_demand},        [O_norm] = {norm_range, no_demand},
    [O_attend] = {attend_range, attend_demand},
};

Rules eta_rules(void)
{
	static const Row usual = {keep_range, pass_demand};
	Rules rules = {.constant = {
#define CONSTANT(name, num, den, meaning) [N_##name] = surd_root(num, den),
#include "eta.def"
#undef CONSTANT
	               }};
	for (int op = 0; op < OPS; op++)
		rules.row[op] = rows[op].range ? rows[op] : usual;
	return rules;
}

void sweep_up(Sweep *s)
{
	for (Ref r = 1; r < (Ref)s->g->nval; r++) {
		const Val *v = val(s->g, r);
		s->range[r] = is(s, r, VARIABLE) ? asked(s, r) : constant(s, N_input);
		s->source[r] = r;
		if (v->op == O_slot && s->declared[v->attr->i[0]].value > 0)
			s->range[r] = s->declared[v->attr->i[0]];
		if (!is(s, r, SIGNAL) || v->nin == 0)
			continue;
		Ref same = same_as(s, v);
		if (averaged(s, v))
			admit(s, r, "a mean is taken to be as large as what it is the mean of");
		s->range[r] = same ? inherit(s, r, same) : s->rules->row[v->op].range(s, r, v);
	}
}

// Outputs of a graph without a loss are taken for logits.
static void ask_outputs(Sweep *s)
{
	for (int k = 0; k < s->g->outs.count; k++)
		if (!strcmp(s->g->outs.at[k].name, "loss"))
			return;
	for (int k = 0; k < s->g->outs.count; k++)
		ask(s, s->g->outs.at[k].val, constant(s, N_logits), s->g->outs.at[k].val);
}

void sweep_down(Sweep *s)
{
	ask_outputs(s);
	for (Ref r = (Ref)s->g->nval - 1; r > 0; r--) {
		const Val *v = val(s->g, r);
		if (!s->live[r] || is(s, r, AUX) || v->nin == 0)
			continue;
		Ref same = is(s, r, SIGNAL) ? same_as(s, v) : 0;
		if (same)
			pass_to(s, r, same);
		else
			s->rules->row[v->op].demand(s, r, v);
	}
}
