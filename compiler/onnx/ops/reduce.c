// reduce.c: lowers reductions, softmax, norms, TopK.
// Reductions, softmax, normalisations, running sums, sorting. Takes the node being lowered. Gives
// its results. Keeps: folded axes stay as size 1 until the operator drops them.
#include "ops.h"
#include <math.h>
#include <string.h>

// ---- reductions -----------------------------------------------------------------------

int reduced_mask(Call *c, int64_t *axes)
{
	int rank = in_val(c, 0)->shape.rank, n = 0;
	const int64_t *given = ints_of(c, 1, "axes", &n);
	if ((!given || !n) && attr_int(c, "noop_with_empty_axes", 0))
		return -1;
	bool folded[RANK] = {0};
	const int64_t *named = given ? axes_of(c, given, n, rank) : NULL;
	for (int i = 0; given && i < n; i++)
		folded[named[i]] = true;
	int count = 0;
	for (int a = 0; a < rank; a++)
		if (!given || !n || folded[a])
			axes[count++] = a;
	return count;
}

static Ref put_mean(Graph *g, Ref x, int naxes, const int64_t *axes)
{
	return book_call1(g, "mean", 1, &x, 1, &(AttrArg){"k", naxes, axes, 0});
}

static Ref put_variance(Graph *g, Ref x, int naxes, const int64_t *axes)
{
	return book_call1(g, "variance", 1, &x, 1, &(AttrArg){"k", naxes, axes, 0});
}

static Ref square(Graph *g, Ref x)
{
	return put2(g, O_mul, x, x);
}

// The extreme of nothing: what any number is beyond.
static Ref extreme_of_none(Graph *g, int reduction, Ref x, int n, const int64_t *axes)
{
	const Val *v = val(g, x);
	Shape folded = reduced_shape(&v->shape, n, axes);
	double most = v->type == E_i32 ? 0x7FFFFFFF : v->type == E_i64 ? 0x1p53 : INFINITY;
	Ref end = put_num(g, v->type, reduction == O_amax ? -most : most);
	return put_broadcast(g, end, folded);
}

static Ref reduce(Graph *g, int reduction, Ref x, int n, const int64_t *axes)
{
	if ((reduction == O_amax || reduction == O_amin) && !count_of(&val(g, x)->shape))
		return extreme_of_none(g, reduction, x, n, axes);
	switch (reduction) {
	case R_mean:
		return put_mean(g, x, n, axes);
	case R_l1:
		return put_reduce(g, O_sum, put1(g, O_abs, x), n, axes);
	case R_l2:
		return put1(g, O_sqrt, put_reduce(g, O_sum, square(g, x), n, axes));
	case R_sum_square:
		return put_reduce(g, O_sum, square(g, x), n, axes);
	case R_log_sum:
		return put1(g, O_log, put_reduce(g, O_sum, x, n, axes));
	case R_log_sum_exp: {
		Attr attr = {.n = n};
		memcpy(attr.i, axes, sizeof *axes * (size_t)n);
		return put(g, O_lse, 1, &x, &attr);
	}
	default:
		return put_reduce(g, (Op)reduction, x, n, axes);
	}
}

void lower_reduce(Call *c)
{
	int64_t axes[RANK];
	int n = reduced_mask(c, axes);
	Ref x = c->in[0];
	bool truth =
	    val(c->g, x)->type == E_b8; // largest and smallest are defined for truth values too
	bool extreme = c->variant == O_amax || c->variant == O_amin;
	if (truth)
		x = put_cast(c->g, x, E_i32);
	if (n > 0)
		x = reduce(c->g, c->variant, extreme ? signed_order(c, 0, x) : x, n, axes);
	if (n > 0 && extreme)
		x = signed_order(c, 0, x);
	if (n > 0 && !attr_int(c, "keepdims", 1))
		x = drop_axes(c->g, x, n, axes);
	c->out[0] = truth ? put_cast(c->g, x, E_b8) : x;
}

static Ref reverse_axis(Graph *g, Ref x, int axis)
{
	Shape s = val(g, x)->shape;
	int64_t start[RANK] = {0}, step[RANK];
	for (int a = 0; a < s.rank; a++)
		step[a] = 1;
	start[axis] = s.dim[axis] - 1;
	step[axis] = -1;
	return put_slice(g, x, start, s.dim, step);
}

void lower_arg(Call *c)
{
	Graph *g = c->g;
	Shape s = in_val(c, 0)->shape;
	int64_t axis = axis_of(c, attr_int(c, "axis", 0), s.rank);
	Ref x = signed_order(c, 0, c->in[0]);
	x = c->variant ? reverse_order(g, x) : x;
	bool last = attr_int(c, "select_last_index", 0);
	x = put_filled(g, x, (int)axis, -INFINITY);
	Ref at = put_reduce(g, O_argmax, last ? reverse_axis(g, x, (int)axis) : x, 1, &axis);
	if (last)
		at = put2(g, O_sub, put_num(g, E_i64, (double)(s.dim[axis] - 1)), at);
	c->out[0] = attr_int(c, "keepdims", 1) ? at : drop_axes(g, at, 1, &axis);
}

typedef Ref Along(const Call *, int axis);

// What `one` gives along the axis that operand 1 tells; where the data decide it, it is chosen from
// what all axes give.
static Ref along_operand(Call *c, Along *one)
{
	Graph *g = c->g;
	int rank = in_val(c, 0)->shape.rank;
	if (count_of(&in_val(c, 1)->shape) != 1 || !rank)
		invalid_node(c, "wants one axis");
	Ref axis = put_cast(g, put_reshape(g, fixed_operand(c, 1), (Shape){0}), E_i64);
	if (is_const(g, axis))
		return one(c, (int)axis_of(c, const_int_at(val(g, axis), 0), rank));
	axis = from_end(g, axis, put_i64(g, rank));
	Ref y = one(c, 0);
	for (int a = 1; a < rank; a++)
		y = put3(g, O_select, put2(g, O_eq, axis, put_i64(g, a)), one(c, a), y);
	return y;
}

static Ref sum_along(const Call *c, int axis)
{
	Attr attr = {.n = 3, .i = {axis, attr_int(c, "exclusive", 0), attr_int(c, "reverse", 0)}};
	return put(c->g, O_cumsum, 1, c->in, &attr);
}

void lower_cumsum(Call *c)
{
	c->out[0] = along_operand(c, sum_along);
}

// A product over the windows that end (or begin) at each entry.
static Ref product_along(const Call *c, int axis)
{
	Shape s = in_val(c, 0)->shape;
	int64_t last = s.rank, size = s.dim[axis];
	int64_t less = attr_int(c, "exclusive", 0) ? 1 : 0;
	int64_t before = attr_int(c, "reverse", 0) ? -less : size - 1 + less;
	Attr window = {.n = 7, .i = {axis, size, size, 1, 1, before, 1}, .x = 1};
	return reduce_away(c->g, O_prod, put(c->g, O_window, 1, c->in, &window), last);
}

void lower_cumprod(Call *c)
{
	check_rank(c, in_val(c, 0)->shape.rank + 1);
	c->out[0] = along_operand(c, product_along);
}

// ---- softmax --------------------------------------------------------------------------

static Ref along_axis(Graph *g, int reduction, Ref x, int64_t axis)
{
	Attr attr = {.n = 1, .i = {axis}};
	if (reduction == R_log_softmax)
		return put2(g, O_sub, x, put(g, O_lse, 1, &x, &attr));
	if (reduction != R_hardmax)
		return put(g, O_softmax, 1, &x, &attr);
	Ref at = put_reduce(g, O_argmax, x, 1, &axis);
	Ref hit = put2(g, O_eq, put_iota(g, val(g, x)->shape, (int)axis), at);
	return put_lengths(g, put_cast(g, hit, E_f32), lengths_of(g, x));
}

// Before set 13 these took all axes from `axis` on as one.
void lower_softmax(Call *c)
{
	Graph *g = c->g;
	Shape s = in_val(c, 0)->shape;
	int64_t axis = axis_of(c, attr_int(c, "axis", c->opset < 13 ? 1 : -1), s.rank);
	if (c->opset >= 13 || axis == s.rank - 1) {
		c->out[0] = along_axis(g, c->variant, c->in[0], axis);
		return;
	}
	Ref x = merge_axes(g, c->in[0], (int)axis, s.rank);
	c->out[0] = put_reshape(g, along_axis(g, c->variant, x, axis), s);
}

// ---- normalisation --------------------------------------------------------------------

static Ref put_norm(Graph *g, Ref x, bool centred, int n, const int64_t *axes, double eps)
{
	Attr attr = {.n = n + 1, .i = {centred}, .x = eps};
	memcpy(attr.i + 1, axes, sizeof *axes * (size_t)n);
	return put(g, O_norm, 1, &x, &attr);
}

static int axes_from(int from, int rank, int64_t *axes)
{
	for (int a = from; a < rank; a++)
		axes[a - from] = a;
	return MAX(rank - from, 0);
}

// Per-channel numbers, f[C], along axis 1 of a value of `rank` dimensions.
static Ref per_channel(Graph *g, Ref x, int rank)
{
	int64_t dims[RANK] = {1, count_of(&val(g, x)->shape)};
	for (int a = 2; a < rank; a++)
		dims[a] = 1;
	return put_reshape(g, x, shape_of(rank, dims));
}

static Ref scale_shift(Graph *g, Ref x, Ref scale, Ref shift)
{
	if (scale)
		x = put_map2(g, O_mul, x, scale);
	return shift ? put_map2(g, O_add, x, shift) : x;
}

void lower_layer_norm(Call *c)
{
	Graph *g = c->g;
	Shape s = in_val(c, 0)->shape;
	int64_t axes[RANK];
	int n = axes_from((int)axis_of(c, attr_int(c, "axis", -1), s.rank), s.rank, axes);
	double eps = attr_float(c, "epsilon", 1e-5);
	bool centred = c->variant == N_layer;
	Ref y = put_norm(g, c->in[0], centred, n, axes, eps);
	c->out[0] = scale_shift(g, y, c->nin > 1 ? c->in[1] : 0, c->nin > 2 ? c->in[2] : 0);
	if (c->nout < 2 || !centred)
		return;
	c->out[1] = put_mean(g, c->in[0], n, axes);
	Ref variance = put_variance(g, c->in[0], n, axes);
	if (c->nout > 2)
		c->out[2] = put1(g, O_rsqrt, put2(g, O_add, variance, num_like(g, variance, eps)));
}

void lower_instance_norm(Call *c)
{
	int rank = in_val(c, 0)->shape.rank;
	int64_t axes[RANK];
	if (rank < 2)
		invalid_node(c, "wants samples and channels, found %d dimensions", rank);
	int n = axes_from(2, rank, axes);
	in_val(c, 1), in_val(c, 2);
	Ref y = put_norm(c->g, c->in[0], true, n, axes, attr_float(c, "epsilon", 1e-5));
	c->out[0] = scale_shift(c->g, y, per_channel(c->g, c->in[1], rank),
	                        per_channel(c->g, c->in[2], rank));
}

void lower_mean_variance_norm(Call *c)
{
	int n = 3, rank = in_val(c, 0)->shape.rank;
	const int64_t *given = attr_ints(c, "axes", &n), usual[] = {0, 2, 3};
	c->out[0] =
	    put_norm(c->g, c->in[0], true, n, axes_of(c, given ? given : usual, n, rank), 1e-9);
}

void lower_group_norm(Call *c)
{
	Graph *g = c->g;
	Shape s = in_val(c, 0)->shape;
	int64_t groups = attr_int(c, "num_groups", 0);
	in_val(c, 1), in_val(c, 2);
	if (s.rank < 2 || groups < 1 || s.dim[1] % groups)
		invalid_node(c, "the channels do not divide into %lld groups", (long long)groups);
	int64_t dims[] = {s.dim[0], groups, count_of(&s) / MAX(s.dim[0] * groups, 1)};
	int64_t axis = 2;
	Ref y = put_norm(g, put_reshape(g, c->in[0], shape_of(3, dims)), true, 1, &axis,
	                 attr_float(c, "epsilon", 1e-5));
	y = put_reshape(g, y, s);
	Ref affine[2];
	for (int k = 0; k < 2; k++) {
		affine[k] = c->in[k + 1];
		int64_t each[] = {groups, 1}, all[] = {groups, s.dim[1] / groups};
		if (c->opset < 21) // one number a group
			affine[k] = put_expand(g, put_reshape(g, affine[k], shape_of(2, each)),
			                       shape_of(2, all));
		affine[k] = per_channel(g, affine[k], s.rank);
	}
	c->out[0] = scale_shift(g, y, affine[0], affine[1]);
}

// Running statistics k (0 mean, 1 variance) as a slot that training may store to; -1: they are
// computed, or frozen.
static int running_slot(const Call *c, int k)
{
	const Val *v = val(c->g, c->in[3 + k]);
	if (v->op == O_cast) // to double
		v = val(c->g, v->in[0]);
	int slot = v->op == O_slot ? (int)v->attr->i[0] : -1;
	return slot >= 0 && c->g->slots.at[slot].kind == S_buffer ? slot : -1;
}

// By the statistics of the batch? Files say so in two ways: by more than one result, since set 14
// by an attribute.
static bool batch_statistics(const Call *c)
{
	bool said = c->opset < 14 ? c->nout > 1 : attr_int(c, "training_mode", 0) != 0;
	bool gathered = running_slot(c, 0) >= 0 && running_slot(c, 1) >= 0;
	switch (c->r->options->statistics) {
	case BN_BATCH:
		return gathered || (said && !c->arg[3].weight);
	case BN_RUNNING:
		return !gathered && said && !c->arg[3].weight;
	default:
		return said;
	}
}

// What a slot holds when all stores so far are made: a module that is applied twice gathers twice.
static Ref contents(Graph *g, Ref r, int slot)
{
	for (int i = 0; i < g->stores.count; i++)
		if (g->stores.at[i].slot == slot)
			return g->stores.at[i].val;
	return r;
}

// running := momentum * running + (1 - momentum) * batch
static Ref blend(Graph *g, Ref running, Ref batch, double momentum)
{
	Ref old = put2(g, O_mul, running, num_like(g, running, momentum));
	Ref new = put2(g, O_mul, batch, num_like(g, batch, 1 - momentum));
	return put2(g, O_add, old, new);
}

static void train_batch_norm(Call *c, int rank, double eps)
{
	Graph *g = c->g;
	int64_t axes[RANK] = {0};
	int n = 1 + axes_from(2, rank, axes + 1);
	Ref y = put_norm(c->g, c->in[0], true, n, axes, eps);
	c->out[0] =
	    scale_shift(g, y, per_channel(g, c->in[1], rank), per_channel(g, c->in[2], rank));
	double momentum = attr_float(c, "momentum", 0.9);
	Shape channels = val(g, c->in[3])->shape;
	Ref batch[2] = {put_reshape(g, put_mean(g, c->in[0], n, axes), channels),
	                put_reshape(g, put_variance(g, c->in[0], n, axes), channels)};
	for (int k = 0; k < 2; k++) {
		int slot = running_slot(c, k);
		Ref running = blend(g, contents(g, c->in[3 + k], slot), batch[k], momentum);
		if (k + 1 < c->nout)
			c->out[k + 1] = running;
		if (c->r->options->training && slot >= 0)
			add_store(g, slot, running);
	}
}

static void norm_batch(Call *c, int rank)
{
	Graph *g = c->g;
	double eps = attr_float(c, "epsilon", 1e-5);
	if (batch_statistics(c)) {
		train_batch_norm(c, rank, eps);
		return;
	}
	Ref variance = put2(g, O_add, c->in[4], num_like(g, c->in[4], eps));
	Ref scale = put2(g, O_mul, c->in[1], put1(g, O_rsqrt, variance));
	Ref x = put2(g, O_sub, c->in[0], per_channel(g, c->in[3], rank));
	c->out[0] = scale_shift(g, x, per_channel(g, scale, rank), per_channel(g, c->in[2], rank));
}

void lower_batch_norm(Call *c)
{
	int rank = in_val(c, 0)->shape.rank;
	for (int k = 1; k < 5; k++)
		in_val(c, k);
	if (rank < 1)
		invalid_node(c, "a number has no samples");
	bool flat = rank == 1; // one channel
	if (flat)
		c->in[0] = insert_axis(c->g, c->in[0], 1);
	norm_batch(c, MAX(rank, 2));
	if (flat)
		c->out[0] = drop_axes(c->g, c->out[0], 1, (int64_t[]){1});
}

void lower_lp_norm(Call *c)
{
	Graph *g = c->g;
	int64_t axis = axis_of(c, attr_int(c, "axis", -1), in_val(c, 0)->shape.rank);
	int reduction = attr_int(c, "p", 2) == 1 ? R_l1 : R_l2;
	Ref norm = reduce(g, reduction, c->in[0], 1, &axis), none = num_like(g, norm, 0);
	norm = put3(g, O_select, put2(g, O_eq, norm, none), num_like(g, norm, 1), norm);
	c->out[0] = put2(g, O_div, c->in[0], norm);
}

// ---- sorting --------------------------------------------------------------------------

enum { MOST_PAIRED = 256 }; // entries: to compare all pairs of more is dearer than a loop

// Entry k along a new last axis is the one whose place is k: a sum with one term that counts.
static Ref pick(Graph *g, Ref x, Ref place, int64_t k)
{
	Shape s = val(g, x)->shape, wide = s;
	wide.dim[wide.rank++] = 1;
	Shape order = {.rank = wide.rank};
	for (int a = 0; a < order.rank; a++)
		order.dim[a] = 1;
	order.dim[order.rank - 1] = k;
	Ref hit = put2(g, O_eq, put_reshape(g, place, wide), put_iota(g, order, order.rank - 1));
	Ref terms = put3(g, O_select, hit, put_reshape(g, x, wide), num_like(g, x, 0));
	int64_t axis = s.rank - 1;
	return drop_axes(g, put_reduce(g, O_sum, terms, 1, &axis), 1, &axis);
}

// The first k along the last axis, and their places.
static void first_by_pairs(Graph *g, Ref x, bool largest, int64_t k, Ref *found)
{
	Ref place = book_call1(g, "place", 1, &x, 1, &(AttrArg){.name = "largest", .x = largest});
	found[0] = pick(g, x, place, k);
	found[1] = pick(g, put_iota(g, val(g, x)->shape, val(g, x)->shape.rank - 1), place, k);
}

// The same of an axis so long that the entries are put in order.
static void first_in_order(Reader *r, Ref x, bool largest, int64_t k, Ref *found)
{
	Graph *g = r->g;
	Shape s = val(g, x)->shape;
	int64_t n = s.dim[s.rank - 1], dims[] = {count_of(&s) / n, n, 1};
	Ref keys = put_reshape(g, x, shape_of(3, dims));
	Ref at = take_range(g, order_of(r, keys, largest, put_i64(g, n)), 1, 0, k);
	Ref row = put_iota(g, shape_of(2, (int64_t[]){dims[0], 1}), 0);
	Ref place = put2(g, O_add, at, put2(g, O_mul, row, put_i64(g, n)));
	s.dim[s.rank - 1] = k;
	found[0] = put_reshape(g, put_gather(g, flat(g, x), place, 0), s);
	found[1] = put_reshape(g, at, s);
}

// The first alone, and its place.
static void first_alone(Graph *g, Ref x, bool largest, Ref *found)
{
	int64_t last = val(g, x)->shape.rank - 1;
	found[1] = put_reduce(g, O_argmax, largest ? x : put1(g, O_neg, x), 1, &last);
	Ref hit = put2(g, O_eq, found[1], put_numbers(g, &val(g, x)->shape, (int)last));
	Ref terms = put3(g, O_select, hit, x, num_like(g, x, 0));
	found[0] = put_reduce(g, O_sum, terms, 1, &last);
}

void lower_topk(Call *c)
{
	Graph *g = c->g;
	Shape s = in_val(c, 0)->shape;
	int axis = (int)axis_of(c, attr_int(c, "axis", -1), s.rank), n = 0;
	bool largest = attr_int(c, "largest", 1);
	const Ref *given = c->opset < 10 ? NULL : entries_of(c, 1, "", &n);
	Ref k = given && n ? given[0] : put_num(g, E_i64, (double)attr_int(c, "k", 0));
	if (!is_const(g, k)) // no more than there are
		k = smaller_of(g, k, put_length(g, c->in[0], axis));
	int64_t count = extent_of(c, k, "how many it takes").most;
	if (count < 1 || count > s.dim[axis] || s.rank >= RANK)
		invalid_node(c, "k is %lld of %lld entries", (long long)count,
		             (long long)s.dim[axis]);
	int last = s.rank - 1;
	Ref x = put_filled(g, signed_order(c, 0, c->in[0]), axis, largest ? -INFINITY : INFINITY);
	Lengths l = *lengths_of(g, x);
	x = put_all_padded(g, x);
	x = move_axis(g, x, axis, last);
	Ref found[2];
	if (count == 1 && (largest || is_float(val(g, x)->type)))
		first_alone(g, x, largest, found);
	else if (s.dim[axis] <= MOST_PAIRED)
		first_by_pairs(g, x, largest, count, found);
	else
		first_in_order(c->r, x, largest, count, found);
	found[0] = signed_order(c, 0, found[0]);
	for (int i = 0; i < c->nout && i < 2; i++) {
		c->out[i] = move_axis(g, found[i], last, axis);
		c->out[i] = put_lengths(g, c->out[i], &l);
		c->out[i] = is_const(g, k) ? c->out[i] : put_valid(g, c->out[i], axis, k);
	}
}
