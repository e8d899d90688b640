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

// ---- what a value is made of ------------------------------------------------------------------

// The root mean square of a constant's ordinary elements: those that hide (-1e3 and below, -inf) do
// not count.
static Surd measure(const Val *v)
{
	double sum = 0;
	int64_t n = count_of(&v->shape), used = 0;
	for (int64_t i = 0; i < n; i++) {
		double x = const_at(v, i);
		if (x > -1e3 && x < 1e30)
			sum += x * x, used++;
	}
	return used ? surd_near(sqrt(sum / (double)used)) : one;
}

static bool is_number(const Sweep *s, Ref r)
{
	return val(s->g, r)->op == O_const && elems[val(s->g, r)->type].cls == 'f';
}

Surd rms_of(Sweep *s, Ref r)
{
	if (!is_number(s, r))
		return one;
	if (!s->measured[r])
		s->rms[r] = measure(val(s->g, r));
	s->measured[r] = true;
	return s->rms[r];
}

bool is_zero(Sweep *s, Ref r)
{
	return rms_of(s, r).value == 0;
}

static Nature slot_nature(const Slot *slot)
{
	if (slot->kind == S_input)
		return elems[slot->type].cls == 'f' ? SIGNAL : AUX;
	return slot->kind == S_state ? AUX : VARIABLE;
}

static Nature nature_of(Sweep *s, Ref r, const Val *v)
{
	if (v->op == O_slot)
		return slot_nature(&s->g->slots.at[v->attr->i[0]]);
	if (elems[v->type].cls != 'f')
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

bool is_view(const Val *v)
{
	return v->op == O_cast || (prims[v->op].cls == C_move && v->op != O_concat);
}

Ref unviewed(const Sweep *s, Ref r)
{
	while (is_view(val(s->g, r)))
		r = val(s->g, r)->in[0];
	return r;
}

// What is behind views and products with numbers.
Ref unscaled(const Sweep *s, Ref r)
{
	for (;;) {
		const Val *v = val(s->g, r);
		bool scaled = v->op == O_mul && (is(s, v->in[0], AUX) || is(s, v->in[1], AUX));
		if (!scaled && !is_view(v))
			return r;
		r = scaled && is(s, v->in[0], AUX) ? v->in[1] : v->in[0];
	}
}

int view_slot(const Sweep *s, Ref r)
{
	for (;;) {
		const Val *v = val(s->g, r);
		if (v->op == O_slot)
			return (int)v->attr->i[0];
		bool view = prims[v->op].cls == C_move || v->op == O_cast || v->op == O_gather;
		if (!view || v->op == O_concat)
			return -1;
		r = v->in[0];
	}
}

// What lies behind moves of a single value.
static Ref unmoved(const Sweep *s, Ref r)
{
	while (prims[val(s->g, r)->op].cls == C_move && val(s->g, r)->op != O_concat &&
	       val(s->g, r)->op != O_window)
		r = val(s->g, r)->in[0];
	return r;
}

// Truth values as numbers: a row of them chooses a row of what it is multiplied with.
static bool chooses(const Sweep *s, Ref r)
{
	const Val *v = val(s->g, unmoved(s, r));
	return v->op == O_cast && elems[val(s->g, v->in[0])->type].cls == 'b';
}

Ref table_of(const Sweep *s, Ref r)
{
	const Val *v = val(s->g, r);
	if (!is(s, r, SIGNAL))
		return 0;
	if (v->op == O_gather && is(s, v->in[0], VARIABLE))
		return v->in[0];
	bool product = v->op == O_dot && is(s, v->in[0], AUX) && is(s, v->in[1], VARIABLE);
	return product && chooses(s, v->in[0]) ? v->in[1] : 0;
}

// A matrix of which every column sums to 1, as resizing uses them.
static bool averages(const Sweep *s, Ref r)
{
	const Val *v = val(s->g, r);
	if (!is_number(s, r) || v->shape.rank != 2)
		return false;
	int64_t rows = v->shape.dim[0], columns = v->shape.dim[1];
	for (int64_t j = 0; j < columns; j++) {
		double sum = 0;
		for (int64_t i = 0; i < rows; i++)
			sum += const_at(v, i * columns + j);
		if (fabs(sum - 1) > 1e-3)
			return false;
	}
	return true;
}

int64_t contracted(const Sweep *s, Ref r)
{
	const Val *v = val(s->g, r);
	if (v->op != O_dot) // a sum of products
		return count_of(&val(s->g, v->in[0])->shape) / MAX(count_of(&v->shape), 1);
	const Shape *left = &val(s->g, v->in[0])->shape;
	int64_t m = left->dim[left->rank - 1];
	for (int k = 0; k < 2; k++) { // a transposed convolution: most entries of its windows are 0
		const Val *window = val(s->g, unmoved(s, v->in[k]));
		for (int i = 6; window->op == O_window && i < window->attr->n; i += 7)
			m /= m % window->attr->i[i] ? 1 : window->attr->i[i];
	}
	return m;
}

// Does `kernel` have an entry of its own for each that the sum `v` is over?
static bool spans(const Sweep *s, Ref kernel, const Val *v)
{
	const Shape *shape = &val(s->g, kernel)->shape, *all = &val(s->g, v->in[0])->shape;
	for (int k = 0; k < v->attr->n; k++)
		if (shape->rank != all->rank ||
		    shape->dim[v->attr->i[k]] != all->dim[v->attr->i[k]])
			return false;
	return is(s, kernel, VARIABLE);
}

Ref summed_product(const Sweep *s, Ref r)
{
	const Val *v = val(s->g, r);
	const Val *product = v->op == O_sum ? val(s->g, v->in[0]) : v;
	bool kernel = v->op == O_sum && product->op == O_mul && is(s, v->in[0], SIGNAL) &&
	              (spans(s, product->in[0], v) || spans(s, product->in[1], v));
	return kernel ? v->in[0] : 0;
}

Ref pooled(const Sweep *s, Ref r)
{
	const Val *v = val(s->g, r);
	if (v->op != O_amax)
		return 0;
	const Val *window = val(s->g, unmoved(s, v->in[0]));
	return window->op == O_window ? window->in[0] : 0;
}

// The signal's place among the operands of a product; the other one is a constant number. -1: no.
static int scaled_operand(const Sweep *s, const Val *v)
{
	for (int k = 0; k < 2 && (v->op == O_mul || v->op == O_div); k++)
		if (is(s, v->in[k], SIGNAL) && is_number(s, v->in[1 - k]) &&
		    (k == 0 || v->op == O_mul))
			return k;
	return -1;
}

// sum(x) / n. A rim counts for less than its size, so a little more than 1/n is a mean too.
static Ref averaged(Sweep *s, const Val *v)
{
	int k = scaled_operand(s, v);
	const Val *sum = k < 0 ? NULL : val(s->g, unmoved(s, v->in[k]));
	if (!sum || sum->op != O_sum)
		return 0;
	double n = (double)count_of(&val(s->g, sum->in[0])->shape) / (double)count_of(&sum->shape);
	double factor = rms_of(s, v->in[1 - k]).value;
	double each = v->op == O_div ? n / factor : n * factor;
	return each > 0.99 && each < 2 ? sum->in[0] : 0;
}

// c tanh(x / c) keeps what is small as it is.
static Ref soft_capped(Sweep *s, const Val *v)
{
	int k = scaled_operand(s, v);
	const Val *act = k < 0 ? NULL : val(s->g, v->in[k]);
	if (!act || act->op != O_act || act->attr->i[0] != A_tanh)
		return 0;
	const Val *inner = val(s->g, act->in[0]);
	int j = scaled_operand(s, inner);
	if (j < 0 || inner->op != O_mul)
		return 0;
	double both = rms_of(s, v->in[1 - k]).value * rms_of(s, inner->in[1 - j]).value;
	return fabs(both - 1) < 1e-3 ? inner->in[j] : 0;
}

static bool is_random(const Sweep *s, Ref r)
{
	const Val *v = val(s->g, r);
	for (int k = 0; k < v->nin && (v->op == O_lt || v->op == O_le); k++)
		if (val(s->g, unmoved(s, v->in[k]))->op == O_rand)
			return true;
	return false;
}

// Dropout: x / (1 - p) where a draw says so, else 0.
static Ref dropped(const Sweep *s, const Val *v)
{
	if (v->op != O_select || !is_random(s, v->in[0]))
		return 0;
	Ref kept = is(s, v->in[1], SIGNAL) ? v->in[1] : v->in[2];
	int k = scaled_operand(s, val(s->g, kept));
	return k < 0 ? kept : val(s->g, kept)->in[k];
}

// The value behind moves, negation and joins of parts of one value: what a rotation turns.
static Ref turned(const Sweep *s, Ref r)
{
	const Val *v = val(s->g, r);
	if (v->op == O_neg || prims[v->op].cls == C_move || v->op == O_cast) {
		Ref root = turned(s, v->in[0]);
		for (int k = 1; k < v->nin; k++)
			if (turned(s, v->in[k]) != root)
				return r;
		return root;
	}
	return r;
}

// x cos + turn(x) sin: keeps the length of x. Answers x, or 0.
static Ref rotated(const Sweep *s, const Val *v)
{
	Ref root[2];
	if (v->op != O_add && v->op != O_sub)
		return 0;
	for (int k = 0; k < 2; k++) {
		const Val *m = val(s->g, v->in[k]);
		if (m->op != O_mul)
			return 0;
		int signal = is(s, m->in[0], SIGNAL) ? 0 : 1;
		if (!is(s, m->in[signal], SIGNAL) || is(s, m->in[1 - signal], SIGNAL))
			return 0;
		root[k] = turned(s, m->in[signal]);
	}
	return root[0] == root[1] && v->in[0] != v->in[1] ? root[0] : 0;
}

// The square x x under a root of a sum of squares, limited from below or not; 0: something else.
Ref squared_under(const Sweep *s, Ref r)
{
	bool root = false, sum = false;
	for (;;) {
		const Val *v = val(s->g, r);
		bool pair = v->op == O_max || v->op == O_add || v->op == O_mul;
		int k = pair && is(s, v->in[0], AUX) ? 1 : 0;
		if (v->op == O_mul && v->in[0] == v->in[1])
			return root && sum ? r : 0;
		root |= v->op == O_sqrt || v->op == O_rsqrt;
		sum |= v->op == O_sum;
		bool known =
		    pair ? is(s, v->in[1 - k], AUX)
		         : is_view(v) || v->op == O_sqrt || v->op == O_rsqrt || v->op == O_sum;
		if (!known)
			return 0;
		r = v->in[k];
	}
}

// Of a summand that is a product of two signals, one of them `x`: the other one; 0: there is none.
Ref partner_of(const Sweep *s, Ref sum, Ref x)
{
	const Val *v = val(s->g, unscaled(s, sum));
	Ref found = 0;
	if (v->op == O_add)
		found = partner_of(s, v->in[0], x);
	if (v->op == O_add)
		return found ? found : partner_of(s, v->in[1], x);
	if (v->op != O_dot || !is(s, v->in[0], SIGNAL) || !is(s, v->in[1], SIGNAL))
		return 0;
	return unscaled(s, v->in[0]) == x ? v->in[1] : unscaled(s, v->in[1]) == x ? v->in[0] : 0;
}

// q k + q t, t made of parameters: t is an offset of k, which does not count. Answers the sum
// without it, or 0.
static Ref without_offset(const Sweep *s, const Val *v)
{
	for (int k = 0; k < 2; k++) {
		const Val *product = val(s->g, unscaled(s, v->in[k]));
		bool learned = product->op == O_dot && is(s, product->in[0], SIGNAL) &&
		               is(s, product->in[1], VARIABLE);
		if (learned && partner_of(s, v->in[1 - k], unscaled(s, product->in[0])))
			return v->in[1 - k];
	}
	return 0;
}

// Leaky and exponential units: a choice by the sign of a signal. Answers the signal, or 0.
static Ref decided_by(const Sweep *s, const Val *v)
{
	const Val *c = val(s->g, v->in[0]);
	while (c->op == O_not)
		c = val(s->g, c->in[0]);
	for (int k = 0; k < c->nin && (c->op == O_lt || c->op == O_le); k++)
		if (is(s, c->in[k], SIGNAL) && val(s->g, c->in[1 - k])->op == O_const)
			return c->in[k];
	return 0;
}

// What `r` is as large as, by what a few operations do together: means, caps, dropout, rotations.
Ref same_as(Sweep *s, const Val *v)
{
	Ref x = averaged(s, v);
	x = x ? x : soft_capped(s, v);
	x = x ? x : dropped(s, v);
	return x ? x : rotated(s, v);
}

// ---- ranges, upward ---------------------------------------------------------------------------

Surd asked(const Sweep *s, Ref r)
{
	return s->asker[r] ? s->demand[r] : one;
}

static Surd inherit(Sweep *s, Ref r, Ref x)
{
	s->source[r] = s->source[x];
	return s->range[x];
}

static Surd keep_range(Sweep *s, Ref r, const Val *v)
{
	Ref widest = 0;
	for (int k = 0; k < v->nin; k++)
		if (is(s, v->in[k], SIGNAL) &&
		    (!widest || s->range[v->in[k]].value > s->range[widest].value))
			widest = v->in[k];
	return widest ? inherit(s, r, widest) : one;
}

static Surd unit_range(Sweep *s, Ref r, const Val *v)
{
	(void)s, (void)r, (void)v;
	return one;
}

// Is it x g + y (1 - g)? What one summand lets through the other holds back.
static bool exclusive(const Sweep *s, const Val *v)
{
	for (int k = 0; k < 4; k++) {
		const Val *a = val(s->g, v->in[k / 2]), *b = val(s->g, v->in[1 - k / 2]);
		if (a->op != O_mul || b->op != O_mul)
			return false;
		const Val *rest = val(s->g, a->in[k % 2]);
		bool gate = rest->op == O_sub && is_number(s, rest->in[0]);
		if (gate && (rest->in[1] == b->in[0] || rest->in[1] == b->in[1]))
			return true;
	}
	return false;
}

// Independent summands. A learned offset, or a mask, does not count.
static Surd add_range(Sweep *s, Ref r, const Val *v)
{
	if (!is(s, v->in[0], SIGNAL) || !is(s, v->in[1], SIGNAL) || exclusive(s, v))
		return keep_range(s, r, v);
	Ref whole = without_offset(s, v);
	return whole ? inherit(s, r, whole) : surd_hypot(s->range[v->in[0]], s->range[v->in[1]]);
}

// x rsqrt(max(K mean(x^2), 1)) is limited to K^(-1/2). Answers K; 0: something else.
static double limit_of(Sweep *s, const Val *v, Ref x, Ref factor)
{
	const Val *root = val(s->g, unmoved(s, factor));
	const Val *max = root->op == O_rsqrt ? val(s->g, root->in[0]) : v;
	int one_at = max->op == O_max && is_number(s, max->in[0]) ? 0 : 1;
	if (max->op != O_max || !surd_same(rms_of(s, max->in[one_at]), one))
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

static Surd gate_range(Sweep *s, Ref r, const Val *v)
{
	for (int k = 0; k < 2; k++) {
		double limit = limit_of(s, v, v->in[k], v->in[1 - k]);
		if (limit > 0 && s->range[v->in[k]].value * sqrt(limit) < 1)
			return inherit(s, r, v->in[k]);
		if (limit > 0)
			return surd_inverse(surd_near(sqrt(limit)));
	}
	return surd_mul(s->range[v->in[0]], s->range[v->in[1]]);
}

static Surd mul_range(Sweep *s, Ref r, const Val *v)
{
	int signal = is(s, v->in[0], SIGNAL) ? 0 : 1;
	Ref x = v->in[signal], other = v->in[1 - signal];
	bool quotient = v->op == O_div;
	if (quotient && (signal == 1 || is(s, other, SIGNAL)))
		return one;
	if (is(s, other, SIGNAL))
		return gate_range(s, r, v);
	if (is(s, other, VARIABLE) && s->divided[other])
		return one; // batch normalization by running statistics
	if (is(s, other, VARIABLE))
		return s->asker[r] ? s->demand[r] : inherit(s, r, x);
	Surd range = inherit(s, r, x), rms = rms_of(s, other);
	const Val *act = val(s->g, x);
	if (act->op == O_act && act->attr->i[0] == A_sigmoid && surd_same(rms, surd_near(2)))
		return one; // a gate around 1
	return quotient ? surd_div(range, rms) : surd_mul(range, rms);
}

// Every activation of range 1 has range sqrt(1/2); bounded ones whatever they get.
static Surd act_range(Sweep *s, Ref r, const Val *v)
{
	(void)r;
	Act act = v->op == O_act ? (Act)v->attr->i[0] : A_tanh;
	bool bounded = act == A_tanh || act == A_sigmoid || act == A_hardsigmoid;
	return surd_mul(bounded ? one : s->range[v->in[0]], surd_root(1, 2));
}

static Surd select_range(Sweep *s, Ref r, const Val *v)
{
	Ref x = decided_by(s, v);
	return x ? surd_mul(s->range[x], surd_root(1, 2)) : keep_range(s, r, v);
}

static Surd softmax_range(Sweep *s, Ref r, const Val *v)
{
	(void)s, (void)r;
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

// Of n values: 1 / sqrt(2 ln n). ReLU and the largest change places, so the range before a ReLU
// counts.
static Surd max_range(Sweep *s, Ref r, const Val *v)
{
	Ref x = pooled(s, r);
	if (!x)
		return keep_range(s, r, v);
	const Val *act = val(s->g, unmoved(s, x));
	if (act->op == O_act && act->attr->i[0] == A_relu)
		x = act->in[0];
	double n = (double)count_of(&val(s->g, v->in[0])->shape) / (double)count_of(&v->shape);
	return n < 2 ? inherit(s, r, x) : surd_number(s->range[x].value / sqrt(2 * log(n)));
}

static Surd dot_range(Sweep *s, Ref r, const Val *v)
{
	bool left = is(s, v->in[0], SIGNAL), right = is(s, v->in[1], SIGNAL);
	Surd m = surd_root(contracted(s, r), 1);
	if (left && right)
		return surd_mul(surd_mul(s->range[v->in[0]], s->range[v->in[1]]), m);
	Ref x = v->in[left ? 0 : 1], other = v->in[left ? 1 : 0];
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
	return inherit(s, r, v->in[2]);
}

// ---- demands, downward ------------------------------------------------------------------------

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

static void pass_demand(Sweep *s, Ref r, const Val *v)
{
	for (int k = 0; k < v->nin; k++)
		pass_to(s, r, v->in[k]);
}

static void unit_demand(Sweep *s, Ref r, const Val *v)
{
	for (int k = 0; k < v->nin; k++)
		ask(s, v->in[k], one, r);
}

static void no_demand(Sweep *s, Ref r, const Val *v)
{
	(void)s, (void)r, (void)v;
}

// The squares of which a length is made are no errors.
static void root_demand(Sweep *s, Ref r, const Val *v)
{
	(void)v;
	Ref square = squared_under(s, r);
	if (square)
		s->length[square] = true;
}

static void add_demand(Sweep *s, Ref r, const Val *v)
{
	for (int k = 0; k < 2; k++)
		if (is(s, v->in[k], SIGNAL))
			pass_to(s, r, v->in[k]);
}

static void mul_demand(Sweep *s, Ref r, const Val *v)
{
	int signal = is(s, v->in[0], SIGNAL) ? 0 : 1;
	Ref x = v->in[signal], other = v->in[1 - signal];
	bool quotient = v->op == O_div;
	if (v->in[0] == v->in[1] && !s->length[r])
		ask(s, x, one, r); // a squared error: against targets of deviation 1
	if (!s->asker[r] || is(s, other, SIGNAL) || s->divided[other] || is_zero(s, other) ||
	    (quotient && signal == 1))
		return;
	Surd rms = rms_of(s, other), q = s->demand[r];
	ask(s, x, quotient ? surd_mul(q, rms) : surd_div(q, rms), s->asker[r]);
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
		ask(s, x, one, r);
	else
		pass_demand(s, r, v);
}

static void sum_demand(Sweep *s, Ref r, const Val *v)
{
	if (s->asker[r] && !summed_product(s, r))
		ask(s, v->in[0], surd_div(s->demand[r], surd_root(contracted(s, r), 1)),
		    s->asker[r]);
}

// Is `x` a kernel's output that nothing normalizes?
static bool unfixed(const Sweep *s, Ref x)
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

// x E^T where rows of E are looked up too: the output's demand is shared with x, or E bears it all.
static void tied_demand(Sweep *s, Ref r, Ref x, Ref table)
{
	Surd wanted = asked(s, r), m = surd_near((double)contracted(s, r));
	Surd shared = surd_mul(surd_near(sqrt(wanted.value)), surd_near(pow(m.value, -0.25)));
	Surd borne = surd_div(wanted, surd_mul(s->range[x], surd_root(contracted(s, r), 1)));
	bool share = unfixed(s, x);
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
	if (is(s, left, SIGNAL) && is(s, right, SIGNAL)) { // the left operand absorbs
		if (s->asker[r])
			ask(s, left, surd_div(s->demand[r], surd_mul(s->range[right], m)),
			    s->asker[r]);
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

// The query absorbs what makes scores of deviation 1; keys and values keep theirs.
static void attend_demand(Sweep *s, Ref r, const Val *v)
{
	const Shape *q = &val(s->g, v->in[0])->shape;
	Surd scale = surd_mul(surd_near(v->attr->x), surd_root(q->dim[q->rank - 1], 1));
	ask(s, v->in[0], surd_inverse(surd_mul(scale, s->range[v->in[1]])), r);
	if (v->nin > 3)
		ask(s, v->in[3], one, r);
}

// ---- the table --------------------------------------------------------------------------------

// One row a primitive. What is not listed keeps its operand's range and passes its demand on.
typedef struct Row {
	Surd (*range)(Sweep *, Ref, const Val *);
	void (*demand)(Sweep *, Ref, const Val *);
} Row;

static const Row rows[OPS] = {
    [O_add] = {add_range, add_demand},          [O_sub] = {add_range, add_demand},
    [O_mul] = {mul_range, mul_demand},          [O_div] = {mul_range, mul_demand},
    [O_max] = {keep_range, clip_demand},        [O_min] = {keep_range, clip_demand},
    [O_select] = {select_range, select_demand}, [O_exp] = {unit_range, unit_demand},
    [O_log] = {unit_range, unit_demand},        [O_pow] = {unit_range, unit_demand},
    [O_sin] = {unit_range, unit_demand},        [O_cos] = {unit_range, unit_demand},
    [O_atan] = {unit_range, unit_demand},       [O_erf] = {act_range, unit_demand},
    [O_tanh] = {act_range, unit_demand},        [O_act] = {act_range, unit_demand},
    [O_abs] = {keep_range, unit_demand},        [O_sign] = {unit_range, no_demand},
    [O_sqrt] = {unit_range, root_demand},       [O_rsqrt] = {unit_range, root_demand},
    [O_sum] = {sum_range, sum_demand},          [O_prod] = {unit_range, no_demand},
    [O_amax] = {max_range, unit_demand},        [O_amin] = {keep_range, unit_demand},
    [O_cumsum] = {cumsum_range, no_demand},     [O_slice] = {slice_range, pass_demand},
    [O_concat] = {concat_range, pass_demand},   [O_dot] = {dot_range, dot_demand},
    [O_gather] = {gather_range, gather_demand}, [O_softmax] = {softmax_range, unit_demand},
    [O_lse] = {unit_range, unit_demand},        [O_norm] = {unit_range, no_demand},
    [O_attend] = {attend_range, attend_demand},
};

static Row row_of(Op op)
{
	static const Row usual = {keep_range, pass_demand};
	return rows[op].range ? rows[op] : usual;
}

void sweep_up(Sweep *s)
{
	for (Ref r = 1; r < (Ref)s->g->nval; r++) {
		const Val *v = val(s->g, r);
		s->range[r] = is(s, r, VARIABLE) ? asked(s, r) : one;
		s->source[r] = r;
		if (!is(s, r, SIGNAL) || v->nin == 0)
			continue;
		Ref same = same_as(s, v);
		s->range[r] = same ? inherit(s, r, same) : row_of(v->op).range(s, r, v);
	}
}

// Outputs of a graph without a loss are taken for logits.
static void ask_outputs(Sweep *s)
{
	for (int k = 0; k < s->g->outs.count; k++)
		if (!strcmp(s->g->outs.at[k].name, "loss"))
			return;
	for (int k = 0; k < s->g->outs.count; k++)
		ask(s, s->g->outs.at[k].val, one, s->g->outs.at[k].val);
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
			row_of(v->op).demand(s, r, v);
	}
}
