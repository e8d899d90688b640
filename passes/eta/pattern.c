// pattern.c: recognizes patterns of a few operations: look-ups, means, pools, rotations, offsets.
// Gates and lengths are in gate.c, views in view.c.
// Input: a forward graph with the natures of its values. Output: the main value of a pattern, or 0.
#include "analysis.h"
#include <math.h>

// ---- products and sums ----------------------------------------------------------------

// True for Booleans cast to numbers: a row of them selects a row of the other factor.
static bool is_one_hot(const ScaleAnalysis *s, Ref r)
{
	const Val *v = val(s->g, s->origin[r].moves);
	return v->op == O_cast && elems[val(s->g, v->in[0])->type].cls == 'b' &&
	       known(s, F_one_hot);
}

Ref table_of(const ScaleAnalysis *s, Ref r)
{
	const Val *v = val(s->g, r);
	if (!is(s, r, SIGNAL))
		return 0;
	if (v->op == O_gather && is(s, v->in[0], VARIABLE))
		return v->in[0];
	bool product = v->op == O_dot && is(s, v->in[0], AUX) && is(s, v->in[1], VARIABLE);
	return product && is_one_hot(s, v->in[0]) ? v->in[1] : 0;
}

bool averages(const ScaleAnalysis *s, Ref r)
{
	const Val *v = val(s->g, r);
	if (!is_float_const(s, r) || v->shape.rank != 2 || !known(s, F_averages))
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

typedef struct Taps {        // of a window along an axis, averaged over all windows
	double data_product; // elements that come from the data
	double live;         // elements that come from the data in some window
} Taps;

// Counts the windows that contain element `k` of an axis of length `size`. row: see window in
// prims.def.
static int64_t hits_of(const int64_t *row, int64_t k, int64_t size)
{
	int64_t stride = row[3], up = row[6], first = k * row[4] - row[5];
	int64_t from = first < 0 ? (-first + stride - 1) / stride : 0,
	        to = MIN(row[1], (size * up - first + stride - 1) / stride),
	        period = up / common_divisor(stride, up);
	for (int64_t o = from; o < MIN(to, from + period); o++)
		if ((o * stride + first) % up == 0)
			return (to - o + period - 1) / period;
	return 0;
}

static Taps taps_of(const int64_t *row, int64_t size)
{
	Taps taps = {0};
	for (int64_t k = 0; k < row[2]; k++) {
		int64_t hits = hits_of(row, k, size);
		taps.data_product += (double)hits / (double)MAX(row[1], 1);
		taps.live += hits > 0;
	}
	return taps;
}

static Taps taps_along(const ScaleAnalysis *s, const Val *window, int i)
{
	const int64_t *row = window->attr->i + i;
	spend(s->g->arena, COST_elements, (uint64_t)row[2]);
	return taps_of(row, val(s->g, window->in[0])->shape.dim[row[0]]);
}

bool mostly_padding(const ScaleAnalysis *s, const Val *window)
{
	double inside = 1;
	for (int i = 0; i < window->attr->n; i += 7) {
		const int64_t *row = window->attr->i + i;
		inside *= taps_along(s, window, i).data_product * (double)row[6] / (double)row[2];
	}
	return inside < 0.5;
}

// Returns how many of the m terms of a transposed convolution are not 0: one per stride, and fewer
// for a small image. Kernel elements that never meet data count as 0.
static int64_t terms_met(const ScaleAnalysis *s, int64_t m, const Val *window)
{
	double all = 1, data_product = 1;
	int64_t strides = 1;
	bool transposed = false;
	for (int i = 0; i < window->attr->n; i += 7) {
		const int64_t *row = window->attr->i + i;
		Taps taps = taps_along(s, window, i);
		all *= (double)row[2];
		data_product *= taps.data_product * (double)row[2] / fmax(taps.live, 1);
		strides *= known(s, F_strides) ? row[6] : 1;
		transposed |= row[4] < 0;
	}
	bool few = transposed && known(s, F_taps) && data_product < all / (double)strides / 2;
	return few || m % strides ? MAX(llround((double)m * data_product / all), 1) : m / strides;
}

int64_t contracted(const ScaleAnalysis *s, Ref r)
{
	const Val *v = val(s->g, r);
	if (v->op != O_dot) // a sum of products
		return count_of(&val(s->g, v->in[0])->shape) / MAX(count_of(&v->shape), 1);
	const Shape *left = &val(s->g, v->in[0])->shape;
	int64_t m = left->dim[left->rank - 1];
	for (int k = 0; k < 2; k++) {
		const Val *window = val(s->g, s->origin[v->in[k]].moves);
		m = window->op == O_window ? terms_met(s, m, window) : m;
	}
	return m;
}

// True if `kernel` has one element per element of the axes that the sum `v` reduces.
static bool spans(const ScaleAnalysis *s, Ref kernel, const Val *v)
{
	const Shape *shape = &val(s->g, kernel)->shape, *all = &val(s->g, v->in[0])->shape;
	for (int k = 0; k < v->attr->n; k++)
		if (shape->rank != all->rank ||
		    shape->dim[v->attr->i[k]] != all->dim[v->attr->i[k]])
			return false;
	return is(s, kernel, VARIABLE);
}

Ref summed_product(const ScaleAnalysis *s, Ref r)
{
	const Val *v = val(s->g, r);
	const Val *product = v->op == O_sum ? val(s->g, v->in[0]) : v;
	bool kernel = known(s, F_products) && v->op == O_sum && product->op == O_mul &&
	              is(s, v->in[0], SIGNAL) &&
	              (spans(s, product->in[0], v) || spans(s, product->in[1], v));
	return kernel ? v->in[0] : 0;
}

// Returns the value under moves, casts and changes of sign.
static Ref unsigned_view(const ScaleAnalysis *s, Ref r)
{
	while (is_view(val(s->g, r)) || val(s->g, r)->op == O_neg)
		r = val(s->g, r)->in[0];
	return r;
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
	if (v->op == O_amax || v->op == O_amin)
		x = v->in[0];
	else if (!largest)
		return 0;
	const Val *window = val(s->g, s->origin[x].moves);
	x = window->op == O_window ? window->in[0] : x;
	const Val *act = val(s->g, s->origin[x].views);
	bool relu = act->op == O_act && act->attr->i[0] == A_relu && known(s, F_before_relu);
	return !known(s, F_windows) ? 0 : relu ? act->in[0] : x;
}

int scaled_operand(const ScaleAnalysis *s, const Val *v)
{
	for (int k = 0; k < 2 && (v->op == O_mul || v->op == O_div); k++)
		if (is(s, v->in[k], SIGNAL) && is_float_const(s, v->in[1 - k]) &&
		    (k == 0 || v->op == O_mul))
			return k;
	return -1;
}

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

Ref uncapped(const ScaleAnalysis *s, Ref x, Surd factor)
{
	const Val *v = val(s->g, x);
	bool cap = v->op == O_act && v->attr->i[0] == A_tanh && factor.value >= 4;
	return cap && known(s, F_cap) ? v->in[0] : x;
}

// ---- values with the range of another --------------------------------------------------

// x - mean(x)
static Ref centered(ScaleAnalysis *s, const Val *v)
{
	bool difference = v->op == O_sub && is(s, v->in[1], SIGNAL) && known(s, F_centered);
	return difference && averaged(s, val(s->g, v->in[1])) == v->in[0] ? v->in[0] : 0;
}

static bool is_random(const ScaleAnalysis *s, Ref r)
{
	const Val *v = val(s->g, r);
	for (int k = 0; k < v->nin && (v->op == O_lt || v->op == O_le); k++)
		if (val(s->g, s->origin[v->in[k]].moves)->op == O_rand)
			return true;
	return false;
}

// Matches dropout: x / (1 - p) if a random number keeps it, else 0.
static Ref dropped(const ScaleAnalysis *s, const Val *v)
{
	if (v->op != O_select || !is_random(s, v->in[0]) || !known(s, F_dropout))
		return 0;
	Ref kept = is(s, v->in[1], SIGNAL) ? v->in[1] : v->in[2];
	int k = scaled_operand(s, val(s->g, kept));
	return k < 0 ? kept : val(s->g, kept)->in[k];
}

// Returns the value whose slices are moved, negated and joined.
static Ref rotation_root(const ScaleAnalysis *s, Ref r)
{
	Ref root = unsigned_view(s, r);
	const Val *v = val(s->g, root);
	if (v->op != O_concat)
		return root;
	for (int k = 1; k < v->nin; k++)
		if (unsigned_view(s, v->in[k]) != unsigned_view(s, v->in[0]))
			return root;
	return unsigned_view(s, v->in[0]);
}

// Returns the signal of a product with another value; 0 if there is no such product.
static Ref rotation_factor(const ScaleAnalysis *s, Ref r)
{
	const Val *v = val(s->g, r);
	int signal = v->op == O_mul && is(s, v->in[0], SIGNAL) ? 0 : 1;
	bool rotates =
	    v->op == O_mul && is(s, v->in[signal], SIGNAL) && !is(s, v->in[1 - signal], SIGNAL);
	return rotates ? v->in[signal] : 0;
}

// x cos + rotate_half(x) sin keeps the length of x. Returns x, or 0.
static Ref rotated(const ScaleAnalysis *s, const Val *v)
{
	if ((v->op != O_add && v->op != O_sub) || v->in[0] == v->in[1] || !known(s, F_rotation))
		return 0;
	Ref a = rotation_factor(s, v->in[0]), b = rotation_factor(s, v->in[1]);
	Ref root = a && b ? rotation_root(s, a) : 0;
	return root && root == rotation_root(s, b) ? root : 0;
}

// ---- sums of products -----------------------------------------------------------------

Ref kernel_product(const ScaleAnalysis *s, Ref r)
{
	Ref x = s->origin[r].scales;
	const Val *v = val(s->g, x);
	for (int k = 0; k < 2 && v->op == O_add; k++)
		if (val(s->g, s->origin[v->in[k]].views)->op == O_dot)
			return s->origin[v->in[k]].views;
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

static Ref partner_within(const ScaleAnalysis *s, Ref sum, Ref x, int depth)
{
	const Val *v = val(s->g, s->origin[sum].scales);
	for (int k = 0; k < 2 && v->op == O_add && depth > 0; k++) {
		Ref found = partner_within(s, v->in[k], x, depth - 1);
		if (found)
			return found;
	}
	if (v->op != O_dot || !is(s, v->in[0], SIGNAL) || !is(s, v->in[1], SIGNAL))
		return 0;
	return s->origin[v->in[0]].scales == x   ? v->in[1]
	       : s->origin[v->in[1]].scales == x ? v->in[0]
	                                         : 0;
}

enum { SUMS = 4 }; // limit of nested sums

// Returns the other factor of a summand that is a product of two signals, one of them `x`.
static Ref partner_of(const ScaleAnalysis *s, Ref sum, Ref x)
{
	return partner_within(s, sum, x, SUMS);
}

// In q k + q t, t made of parameters, or a constant computed from them by an exporter, t is an
// offset of k and does not count. Returns the sum without it, or 0.
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
		if (learned && partner_of(s, v->in[1 - k], s->origin[product->in[0]].scales))
			return v->in[1 - k];
	}
	return 0;
}

// q k + q t is q (k + t). Returns k if `at` is such a product q t, else 0.
Ref offset_of(const ScaleAnalysis *s, Ref at)
{
	if (!known(s, F_distributed))
		return 0;
	Ref shared = s->origin[val(s->g, at)->in[0]].scales, key = 0, sum = at;
	for (int k = 0; k < SUMS && !key && (sum = s->sum_of[sum]) != 0; k++)
		key = partner_of(s, sum, shared);
	return key;
}

// Leaky and exponential units choose by the sign of a signal, element by element. Returns the
// signal, or 0.
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

// Matches min(max(c x + 1/2, 0), 1). Returns x, and its slope c in *slope; 0 for anything else.
Ref hard_sigmoid(const ScaleAnalysis *s, const Val *v, double *slope)
{
	static const struct {
		Op op;
		double number;
	} chain[] = {{O_min, 1}, {O_max, 0}, {O_add, 0.5}, {O_mul, NAN}};
	Ref x = 0;
	for (int k = 0; k < COUNT(chain) && known(s, F_hard_sigmoid); k++) {
		v = k ? val(s->g, x) : v;
		if (v->op != chain[k].op || !const_num(s->g, v->in[1], slope) ||
		    (k < 3 && *slope != chain[k].number))
			return 0;
		x = v->in[0];
	}
	return *slope > 0 ? x : 0;
}

// Returns the product x W of a signal and a parameter, with or without a bias; 0 for anything else.
static const Val *kernel_output(const ScaleAnalysis *s, Ref r)
{
	const Val *v = val(s->g, s->origin[r].scales);
	for (int k = 0; k < 2 && v->op == O_add; k++)
		if (is(s, v->in[k], SIGNAL) && is(s, v->in[1 - k], VARIABLE)) {
			v = val(s->g, s->origin[v->in[k]].scales);
			break;
		}
	bool kernel = v->op == O_dot && is(s, v->in[0], SIGNAL) && s->origin[v->in[1]].slot >= 0;
	return kernel ? v : NULL;
}

// Returns the value under views and dropout.
static Ref undropped(const ScaleAnalysis *s, Ref r)
{
	for (;;) {
		r = s->origin[r].views;
		Ref kept = dropped(s, val(s->g, r));
		if (!kept)
			return r;
		r = kept;
	}
}

// Returns (x A) B of x W + (x A) B if the inner size is less than both outer sizes, else 0.
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

bool is_unnormalized(const ScaleAnalysis *s, Ref x)
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

bool positive_sum(const ScaleAnalysis *s, Ref r)
{
	const Val *v = val(s->g, s->origin[r].views);
	for (int k = 0; k < 2 && v->op == O_add; k++)
		if (val(s->g, s->origin[v->in[k]].views)->op == O_act)
			return true;
	return false;
}

Ref range_origin(ScaleAnalysis *s, const Val *v)
{
	Ref x = averaged(s, v);
	x = x ? x : centered(s, v);
	x = x ? x : dropped(s, v);
	return x ? x : rotated(s, v);
}
