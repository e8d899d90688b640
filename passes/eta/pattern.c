// pattern.c: recognizes patterns of a few operations: look-ups, means, pools, lengths, offsets.
// Input: a forward graph with the natures of its values. Output: the main value of a pattern, or 0.
#include "analysis.h"
#include <math.h>

// ---- constants --------------------------------------------------------------------------

bool is_float_const(const ScaleAnalysis *s, Ref r)
{
	return val(s->g, r)->op == O_const && is_float(val(s->g, r)->type);
}

Surd rms_of(ScaleAnalysis *s, Ref r)
{
	const Val *v = val(s->g, r);
	if (!is_float_const(s, r))
		return surd_one;
	if (!s->measured[r]) {
		double sum = 0;
		int64_t used = 0;
		for (int64_t i = 0; i < count_of(&v->shape); i++) {
			double x = const_at(v, i);
			if (x > -1e3 && x < 1e30) // not masked
				sum += x * x, used++;
		}
		s->rms[r] = used ? surd_near(sqrt(sum / (double)used)) : surd_one;
		s->measured[r] = true;
	}
	return s->rms[r];
}

bool is_zero(ScaleAnalysis *s, Ref r)
{
	return rms_of(s, r).value == 0;
}

bool averages(const ScaleAnalysis *s, const Val *dot, int k)
{
	const Val *v = val(s->g, dot->in[k]);
	if (!is_float_const(s, dot->in[k]) || v->shape.rank != 2 || !known(s, F_averages))
		return false;
	int64_t n = v->shape.dim[1 - k], m = v->shape.dim[k]; // contracted, and of the result
	for (int64_t j = 0; j < m; j++) {
		double sum = 0;
		for (int64_t i = 0; i < n; i++)
			sum += const_at(v, k ? i * m + j : j * n + i);
		if (fabs(sum - 1) > 1e-3)
			return false;
	}
	return true;
}

// Returns the index of the signal in its product with a constant; -1 for anything else.
static int scaled_operand(const ScaleAnalysis *s, const Val *v)
{
	for (int k = 0; k < 2 && (v->op == O_mul || v->op == O_div); k++)
		if (is(s, v->in[k], SIGNAL) && is_float_const(s, v->in[1 - k]) &&
		    (k == 0 || v->op == O_mul))
			return k;
	return -1;
}

bool is_multiple(const ScaleAnalysis *s, const Val *v)
{
	return v->op == O_mul || (v->op == O_div && is(s, v->in[1], AUX));
}

// ---- views ----------------------------------------------------------------------------

bool is_view(const Val *v)
{
	return v->op == O_cast || v->op == O_detach ||
	       (prims[v->op].cls == C_move && v->op != O_concat);
}

// Returns the value under moves, casts and changes of sign.
static Ref unsigned_view(const ScaleAnalysis *s, Ref r)
{
	while (is_view(val(s->g, r)) || val(s->g, r)->op == O_neg)
		r = val(s->g, r)->in[0];
	return r;
}

Surd gain_of(ScaleAnalysis *s, Ref r)
{
	Surd gain = surd_one;
	for (Ref x = s->origin[r].views, end = s->origin[r].scales; x != end;) {
		const Val *v = val(s->g, x);
		int number = v->op == O_mul && is(s, v->in[0], AUX) ? 0 : 1;
		Surd rms = rms_of(s, v->in[number]);
		gain = v->op == O_div ? surd_div(gain, rms) : surd_mul(gain, rms);
		x = s->origin[v->in[1 - number]].views;
	}
	return gain;
}

int sliced_axis(const Val *slice, const Shape *full)
{
	int axis = -1;
	for (int a = 0; a < full->rank; a++) {
		if (slice->shape.dim[a] == full->dim[a])
			continue;
		if (axis >= 0 || slice_axes(slice->attr)[a].step != 1)
			return -1;
		axis = a;
	}
	return axis;
}

const char *value_label(Arena *arena, const Graph *g, Ref r)
{
	const Val *v = val(g, r);
	if (v->op == O_slot)
		return g->slots.at[v->attr->i[0]].name;
	const Node *node = &g->nodes->list.at[v->from];
	if (!node->name || !*node->name)
		return format(arena, "%%%u %s", r, prims[v->op].name);
	return node->module ? format(arena, "%s/%s", node->module, node->name) : node->name;
}

// ---- products and sums ----------------------------------------------------------------

Ref table_of(const ScaleAnalysis *s, Ref r)
{
	const Val *v = val(s->g, r);
	if (!is(s, r, SIGNAL))
		return 0;
	if (v->op == O_gather && is(s, v->in[0], VARIABLE))
		return v->in[0];
	if (v->op != O_dot || !is(s, v->in[0], AUX) || !is(s, v->in[1], VARIABLE))
		return 0;
	// Booleans cast to numbers: a row of them selects a row of the other factor.
	const Val *rows = val(s->g, s->origin[v->in[0]].moves);
	bool one_hot = rows->op == O_cast && elems[val(s->g, rows->in[0])->type].cls == 'b';
	return one_hot && known(s, F_one_hot) ? v->in[1] : 0;
}

// Returns how many elements of a window along an axis come from the data, averaged over all
// windows; *live: how many do in some window.
static double data_taps(const ScaleAnalysis *s, const Val *window, const WindowAxis *w,
                        double *live)
{
	int64_t size = val(s->g, window->in[0])->shape.dim[w->axis],
	        period = w->up / common_divisor(w->stride, w->up);
	double taps = 0;
	*live = 0;
	spend(s->g->arena, COST_elements, (uint64_t)w->size);
	for (int64_t k = 0; k < w->size; k++) {
		int64_t first = k * w->dilation - w->before, hits = 0,
		        from = first < 0 ? ceil_div(-first, w->stride) : 0,
		        to = MIN(w->out, ceil_div(size * w->up - first, w->stride));
		for (int64_t o = from; o < MIN(to, from + period) && !hits; o++)
			if ((o * w->stride + first) % w->up == 0)
				hits = (to - o + period - 1) / period;
		taps += (double)hits / (double)MAX(w->out, 1);
		*live += hits > 0;
	}
	return taps;
}

bool mostly_padding(const ScaleAnalysis *s, const Val *window)
{
	double inside = 1, live;
	WindowAxes w = window_axes(window->attr);
	for (int k = 0; k < w.n; k++)
		inside *= data_taps(s, window, &w.at[k], &live) * (double)w.at[k].up /
		          (double)w.at[k].size;
	return inside < 0.5;
}

// Returns how many of the m terms of a transposed convolution are not 0: one per stride, and fewer
// for a small image. Kernel elements that never meet data count as 0.
static int64_t terms_met(const ScaleAnalysis *s, int64_t m, const Val *window)
{
	double all = 1, data = 1, live;
	int64_t strides = 1;
	bool transposed = false;
	WindowAxes axes = window_axes(window->attr);
	for (int k = 0; k < axes.n; k++) {
		const WindowAxis *w = &axes.at[k];
		double taps = data_taps(s, window, w, &live);
		all *= (double)w->size;
		data *= taps * (double)w->size / fmax(live, 1);
		strides *= known(s, F_strides) ? w->up : 1;
		transposed |= w->dilation < 0;
	}
	bool few = transposed && known(s, F_taps) && data < all / (double)strides / 2;
	return few || m % strides ? MAX(llround((double)m * data / all), 1) : m / strides;
}

int64_t contracted(const ScaleAnalysis *s, Ref r)
{
	const Val *v = val(s->g, r);
	if (v->op != O_dot) // a sum of products
		return count_of(&val(s->g, v->in[0])->shape) / MAX(count_of(&v->shape), 1);
	int64_t m = last_dim(&val(s->g, v->in[0])->shape);
	for (int k = 0; k < 2; k++) {
		const Val *window = val(s->g, s->origin[v->in[k]].moves);
		m = window->op == O_window ? terms_met(s, m, window) : m;
	}
	return m;
}

Ref summed_product(const ScaleAnalysis *s, Ref r)
{
	const Val *v = val(s->g, r);
	const Val *product = v->op == O_sum ? val(s->g, v->in[0]) : v;
	if (!known(s, F_products) || product->op != O_mul || v->op != O_sum ||
	    !is(s, v->in[0], SIGNAL))
		return 0;
	for (int k = 0; k < 2; k++) {
		// A kernel has one element per element of the axes that the sum reduces.
		const Shape *shape = &val(s->g, product->in[k])->shape;
		bool kernel = is(s, product->in[k], VARIABLE);
		for (int i = 0; i < v->attr->n && kernel; i++)
			kernel = shape->dim[v->attr->i[i]] == product->shape.dim[v->attr->i[i]];
		if (kernel)
			return v->in[0];
	}
	return 0;
}

Ref picked(const ScaleAnalysis *s, const Val *v, bool *largest)
{
	const Val *terms = v->op == O_sum ? val(s->g, v->in[0]) : v;
	const Val *hit = terms->op == O_select ? val(s->g, terms->in[0]) : v;
	*largest = false;
	bool by_place = false;
	for (int k = 0; k < hit->nin && hit->op == O_eq; k++) {
		const Val *place = val(s->g, s->origin[hit->in[k]].moves);
		by_place |= place->op == O_iota;
		*largest |= place->op == O_argmax &&
		            unsigned_view(s, place->in[0]) == unsigned_view(s, terms->in[1]);
	}
	return by_place && is(s, terms->in[1], SIGNAL) && known(s, F_picked) ? terms->in[1] : 0;
}

Ref pooled(const ScaleAnalysis *s, Ref r)
{
	const Val *v = val(s->g, r);
	bool largest;
	Ref x = picked(s, v, &largest);
	if (v->op == O_amax || v->op == O_amin || v->op == O_maxpool)
		x = v->in[0];
	else if (!largest)
		return 0;
	const Val *window = val(s->g, s->origin[x].moves);
	x = window->op == O_window ? window->in[0] : x;
	const Val *act = val(s->g, s->origin[x].views);
	bool relu = act->op == O_act && act->attr->i[0] == A_relu && known(s, F_before_relu);
	return !known(s, F_windows) ? 0 : relu ? act->in[0] : x;
}

Ref uncapped(const ScaleAnalysis *s, Ref x, Surd factor)
{
	const Val *v = val(s->g, x);
	bool cap = v->op == O_act && v->attr->i[0] == A_tanh && factor.value >= 4;
	return cap && known(s, F_cap) ? v->in[0] : x;
}

// ---- values with the range of another --------------------------------------------------

// sum(x) / n. Padding makes the divisor smaller than the size, so slightly more than 1/n also
// counts.
Ref averaged(ScaleAnalysis *s, const Val *v)
{
	int k = scaled_operand(s, v);
	const Val *sum = k < 0 ? NULL : val(s->g, s->origin[v->in[k]].moves);
	if (!sum || sum->op != O_sum || !known(s, F_mean))
		return 0;
	double n = (double)count_of(&val(s->g, sum->in[0])->shape) / (double)count_of(&sum->shape);
	double factor = rms_of(s, v->in[1 - k]).value;
	double each = v->op == O_div ? n / factor : n * factor;
	return each > 0.99 && each < 2 ? sum->in[0] : 0;
}

// Matches dropout: x / (1 - p) if a random number keeps it, else 0.
static Ref dropped(const ScaleAnalysis *s, const Val *v)
{
	const Val *c = v->op == O_select ? val(s->g, v->in[0]) : NULL;
	bool random = false;
	for (int k = 0; k < 2 && c && (c->op == O_lt || c->op == O_le); k++)
		random |= val(s->g, s->origin[c->in[k]].moves)->op == O_rand;
	if (!random || !known(s, F_dropout))
		return 0;
	Ref kept = is(s, v->in[1], SIGNAL) ? v->in[1] : v->in[2];
	int k = scaled_operand(s, val(s->g, kept));
	return k < 0 ? kept : val(s->g, kept)->in[k];
}

// Returns the value whose slices are moved, negated and joined.
static Ref rotation_root(const ScaleAnalysis *s, Ref r)
{
	Ref joined = unsigned_view(s, r);
	const Val *v = val(s->g, joined);
	if (v->op != O_concat)
		return joined;
	Ref root = unsigned_view(s, v->in[0]);
	for (int k = 1; k < v->nin; k++)
		if (unsigned_view(s, v->in[k]) != root)
			return joined;
	return root;
}

Ref range_origin(ScaleAnalysis *s, const Val *v)
{
	Ref mean = averaged(s, v), same = mean ? mean : dropped(s, v), root[2];
	if (same || (v->op != O_add && v->op != O_sub))
		return same;
	if (v->op == O_sub && is(s, v->in[1], SIGNAL) && known(s, F_centered) &&
	    averaged(s, val(s->g, v->in[1])) == v->in[0])
		return v->in[0]; // x - mean(x)
	if (v->in[0] == v->in[1] || !known(s, F_rotation))
		return 0;
	for (int k = 0; k < 2; k++) { // x cos + rotate_half(x) sin keeps the length of x
		const Val *product = val(s->g, v->in[k]);
		int signal = product->op == O_mul && is(s, product->in[0], SIGNAL) ? 0 : 1;
		if (product->op != O_mul || !is(s, product->in[signal], SIGNAL) ||
		    is(s, product->in[1 - signal], SIGNAL))
			return 0;
		root[k] = rotation_root(s, product->in[signal]);
	}
	return root[0] == root[1] ? root[0] : 0;
}

// ---- lengths --------------------------------------------------------------------------

Length length_of(ScaleAnalysis *s, Ref r)
{
	enum { STEPS = 32 };
	bool root = false, sum = false, inverse = false;
	double least = 0;
	Surd outer = surd_one, inner = surd_one; // the factors outside of the root and under it
	for (int steps = 0; steps < STEPS; steps++) {
		const Val *v = val(s->g, r);
		if (v->op == O_mul && v->in[0] == v->in[1]) {
			Surd size = surd_near(sqrt(inner.value));
			size = surd_mul(outer, inverse ? surd_inverse(size) : size);
			return root && sum ? (Length){r, size, least} : (Length){0};
		}
		bool factor = is_multiple(s, v), pair = v->op == O_max || v->op == O_add || factor;
		int k = pair && v->op != O_div && is(s, v->in[0], AUX) ? 1 : 0;
		if (v->op == O_sum)
			inner = surd_mul(inner, surd_near((double)contracted(s, r)));
		root |= v->op == O_sqrt || v->op == O_rsqrt;
		inverse |= v->op == O_rsqrt;
		sum |= v->op == O_sum;
		if (pair ? !is(s, v->in[1 - k], AUX)
		         : !is_view(v) && v->op != O_sqrt && v->op != O_rsqrt && v->op != O_sum)
			return (Length){0};
		Surd rms = pair ? rms_of(s, v->in[1 - k]) : surd_one;
		if (v->op == O_div)
			rms = surd_inverse(rms);
		if (factor)
			*(root ? &inner : &outer) = surd_mul(root ? inner : outer, rms);
		else if (pair && rms.value > 1e-2) // more than a guard against 0
			least = v->op == O_max && inverse ? rms.value : NAN;
		r = v->in[k];
	}
	return (Length){0};
}
bool by_length(ScaleAnalysis *s, const Val *v, Surd *range)
{
	for (int k = 0; k < (v->op == O_mul ? 2 : v->op == O_div) && known(s, F_by_length); k++) {
		Length length = length_of(s, v->in[1 - k]);
		if (!length.square || length.least || !(length.size.value > 0))
			continue;
		Ref x = v->in[k], squared = val(s->g, length.square)->in[0];
		if (s->origin[x].scales != s->origin[squared].scales)
			continue;
		Surd gain = surd_div(gain_of(s, x), gain_of(s, squared));
		*range = v->op == O_mul ? surd_mul(gain, length.size) : surd_div(gain, length.size);
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

// The same below at most so many scales and biases.
static Ref normed_below(const ScaleAnalysis *s, Ref r, int most)
{
	const Val *v = val(s->g, s->origin[r].views);
	if (!is(s, r, VARIABLE))
		return 0;
	if (v->op == O_norm)
		return v->in[0];
	for (int k = 0; k < 2 && most && (v->op == O_mul || v->op == O_add); k++) {
		bool affine = s->origin[v->in[1 - k]].slot >= 0;
		Ref table = affine ? normed_below(s, v->in[k], most - 1) : 0;
		if (table)
			return table;
	}
	return 0;
}

Ref normed_table(const ScaleAnalysis *s, Ref r)
{
	enum { AFFINE = 4 }; // a scale and a bias, perhaps again
	return known(s, F_normed) ? normed_below(s, r, AFFINE) : 0;
}

int64_t weights_of(const ScaleAnalysis *s, const Val *v)
{
	const Val *sum = v->op == O_div ? val(s->g, s->origin[v->in[1]].moves) : v;
	bool shares = sum->op == O_sum && sum->in[0] == v->in[0] && known(s, F_weights);
	return shares ? count_of(&val(s->g, sum->in[0])->shape) / MAX(count_of(&sum->shape), 1) : 0;
}

// ---- functions of one value -----------------------------------------------------------

bool logistic(const ScaleAnalysis *s, Ref r)
{
	const Val *v = val(s->g, s->origin[r].views);
	for (int k = 0; k < 2 && known(s, F_logistic) && v->op == O_add; k++)
		if (is_float_const(s, v->in[k]) &&
		    val(s->g, s->origin[v->in[1 - k]].views)->op == O_exp)
			return true;
	return false;
}

Ref sign_choice(const ScaleAnalysis *s, const Val *v)
{
	const Val *c = val(s->g, v->in[0]);
	while (c->op == O_not)
		c = val(s->g, c->in[0]);
	for (int k = 0; k < c->nin && known(s, F_sign_choice) && (c->op == O_lt || c->op == O_le);
	     k++)
		if (is(s, c->in[k], SIGNAL) && val(s->g, c->in[1 - k])->op == O_const &&
		    same_shape(&val(s->g, c->in[k])->shape, &v->shape))
			return c->in[k];
	return 0;
}

Ref hard_sigmoid(const ScaleAnalysis *s, const Val *v, double *slope)
{
	static const struct {
		Op op;
		double number;
	} chain[] = {{O_min, 1}, {O_max, 0}, {O_add, 0.5}};
	for (int k = 0; k < COUNT(chain); k++) {
		if (!known(s, F_hard_sigmoid) || v->op != chain[k].op ||
		    !const_num(s->g, v->in[1], slope) || *slope != chain[k].number)
			return 0;
		v = val(s->g, v->in[0]);
	}
	if ((v->op != O_mul && v->op != O_div) || !const_num(s->g, v->in[1], slope))
		return 0;
	*slope = v->op == O_div ? 1 / *slope : *slope;
	return *slope > 0 ? v->in[0] : 0;
}

// ---- sums of products -----------------------------------------------------------------

Ref kernel_product(const ScaleAnalysis *s, Ref r)
{
	Ref x = s->origin[r].scales;
	const Val *v = val(s->g, x);
	for (int k = 0; k < 2 && v->op == O_add; k++)
		if (is(s, v->in[1 - k], VARIABLE) &&
		    val(s->g, s->origin[v->in[k]].scales)->op == O_dot)
			return s->origin[v->in[k]].scales;
	return v->op == O_dot ? x : 0;
}

Ref product_of_data(const ScaleAnalysis *s, Ref r)
{
	Ref product = kernel_product(s, r);
	if (!product || !normed_table(s, val(s->g, product)->in[0]))
		return 0;
	int slot = s->origin[val(s->g, product)->in[1]].slot;
	return slot < 0 ? 0 : s->data_product[slot];
}

enum { SUMS = 4 }; // limit of nested sums

// Returns the other factor of a summand that is a product of two signals, one of them `x`.
static Ref partner_of(const ScaleAnalysis *s, Ref sum, Ref x, int depth)
{
	const Val *v = val(s->g, s->origin[sum].scales);
	for (int k = 0; k < 2 && v->op == O_add && depth > 0; k++) {
		Ref found = partner_of(s, v->in[k], x, depth - 1);
		if (found)
			return found;
	}
	if (v->op != O_dot || !is(s, v->in[0], SIGNAL) || !is(s, v->in[1], SIGNAL))
		return 0;
	return s->origin[v->in[0]].scales == x   ? v->in[1]
	       : s->origin[v->in[1]].scales == x ? v->in[0]
	                                         : 0;
}

Ref without_offset(const ScaleAnalysis *s, const Val *v)
{
	Ref low = low_rank(s, v);
	if (low)
		return v->in[low == v->in[0]];
	for (int k = 0; k < 2 && known(s, F_distributed); k++) {
		const Val *product = val(s->g, s->origin[v->in[k]].scales);
		bool learned =
		    product->op == O_dot && is(s, product->in[0], SIGNAL) &&
		    !product_of_data(s, product->in[1]) &&
		    (is(s, product->in[1], VARIABLE) || is_float_const(s, product->in[1]));
		if (learned && partner_of(s, v->in[1 - k], s->origin[product->in[0]].scales, SUMS))
			return v->in[1 - k];
	}
	return 0;
}

Ref offset_of(const ScaleAnalysis *s, Ref at)
{
	Ref shared = s->origin[val(s->g, at)->in[0]].scales, key = 0, sum = at;
	for (int k = 0; k < SUMS && !key && known(s, F_distributed); k++) {
		sum = s->sum_of[sum];
		if (!sum)
			return 0;
		key = partner_of(s, sum, shared, SUMS);
	}
	return key;
}

// Returns the product of a signal and a variable, with or without a bias; NULL for anything else.
static const Val *kernel_output(const ScaleAnalysis *s, Ref r)
{
	Ref dot = kernel_product(s, r);
	const Val *v = val(s->g, dot);
	return dot && is(s, v->in[0], SIGNAL) && is(s, v->in[1], VARIABLE) ? v : NULL;
}

// Returns the value under views and dropout.
static Ref undropped(const ScaleAnalysis *s, Ref r)
{
	for (Ref kept = r; kept; kept = dropped(s, val(s->g, r)))
		r = s->origin[kept].views;
	return r;
}

Ref low_rank(const ScaleAnalysis *s, const Val *v)
{
	for (int k = 0; k < 2 && known(s, F_low_rank) && v->op == O_add; k++) {
		const Val *base = kernel_output(s, v->in[k]), *up = kernel_output(s, v->in[1 - k]);
		const Val *down = base && up ? kernel_output(s, up->in[0]) : NULL;
		if (!down || undropped(s, down->in[0]) != undropped(s, base->in[0]))
			continue;
		const Shape *a = &val(s->g, down->in[1])->shape, *b = &val(s->g, up->in[1])->shape;
		int64_t rank = a->dim[a->rank - 1];
		if (rank < a->dim[a->rank - 2] && rank < b->dim[b->rank - 1])
			return v->in[1 - k];
	}
	return 0;
}
