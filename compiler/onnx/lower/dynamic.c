// dynamic.c: lowers nodes with dynamic dimensions.
// Shapes are numbers, so such a value has the most that it can be as dimension, and its name
// carries, axis by axis, how many entries are there (Value.counts). Takes the node being lowered
// and dynamic.def. Gives the counts of its results. Keeps: what lies behind the counted entries is
// a copy of one that counts, so that it makes no numbers that these do not make; no result depends
// on it, so that it passes no gradient on.
#include "ops/ops.h"
#include <math.h>
#include <string.h>
#include <string.h>

// ---- operands -------------------------------------------------------------------------

static const DynamicDims none;

static const DynamicDims *counts_of(const Call *c, int k)
{
	return k < c->nin && c->arg[k].counts ? c->arg[k].counts : &none;
}

bool any_counted(const Call *c)
{
	for (int k = 0; k < c->nin; k++)
		if (c->arg[k].counts)
			return true;
	return false;
}

Ref count_along(const Call *c, int k, int axis)
{
	return counts_of(c, k)->of[axis];
}

Ref length_along(const Call *c, int k, int axis)
{
	Ref count = count_along(c, k, axis);
	return count ? count : put_i64(c->g, in_val(c, k)->shape.dim[axis]);
}

void unsupported_dynamic(const Call *c, int k)
{
	const DynamicDims *counts = counts_of(c, k);
	int axis = 0;
	while (!counts->of[axis])
		axis++;
	stand_for(c->r, counts->of[axis]);
	unsupported_node(
	    c, "multiply by the mask instead of selecting entries, or export with fixed sizes",
	    "how long operand %d ('%s') is along axis %d depends on the data (at most %lld); "
	    "amosc needs it fixed here",
	    k, c->node->input[k], axis, (long long)in_val(c, k)->shape.dim[axis]);
}

// ---- padding --------------------------------------------------------------------------

static Ref is_there(Graph *g, const Shape *s, int axis, Ref count)
{
	return put2(g, O_lt, put_numbers(g, s, axis), count);
}

Ref copy_behind(Graph *g, Ref x, int axis, Ref count)
{
	Shape s = val(g, x)->shape;
	if (!s.dim[axis])
		return x;
	return put3(g, O_select, is_there(g, &s, axis, count), x, take_range(g, x, axis, 0, 1));
}

// The number of x's type: its least and largest for what is not finite.
static Ref number_like(Graph *g, Ref x, double number)
{
	Elem type = val(g, x)->type;
	if (type == E_b8)
		return put_num(g, type, number > 0);
	if (is_float(type) || isfinite(number))
		return put_num(g, type, number);
	return put_num(g, type, copysign(type == E_i32 ? 0x7FFFFFFF : 0x1p53, number));
}

Ref fill_behind(Graph *g, Ref x, int axis, Ref count, double with)
{
	Shape s = val(g, x)->shape;
	return put3(g, O_select, is_there(g, &s, axis, count), x, number_like(g, x, with));
}

Ref fill_counted(Call *c, int k, int axis, double with)
{
	Ref count = count_along(c, k, axis);
	return count ? fill_behind(c->g, c->in[k], axis, count, with) : c->in[k];
}

// ---- before: operands -----------------------------------------------------------------

static void as_they_are(Call *c)
{
	(void)c;
}

// Operands that have to agree may be at most as long as the shortest.
static void cut_to_fit(Call *c)
{
	int rank = 0;
	for (int k = 0; k < c->nin; k++)
		rank = MAX(rank, c->in[k] ? val(c->g, c->in[k])->shape.rank : 0);
	for (int axis = 1; axis <= rank; axis++) {
		int64_t most = INT64_MAX;
		for (int k = 0; k < c->nin; k++) {
			int a = (c->in[k] ? val(c->g, c->in[k])->shape.rank : 0) - axis;
			int64_t d = a >= 0 ? val(c->g, c->in[k])->shape.dim[a] : 1;
			most = d != 1 || (a >= 0 && count_along(c, k, a)) ? MIN(most, d) : most;
		}
		for (int k = 0; k < c->nin; k++) {
			int a = (c->in[k] ? val(c->g, c->in[k])->shape.rank : 0) - axis;
			if (a >= 0 && count_along(c, k, a) &&
			    val(c->g, c->in[k])->shape.dim[a] > most)
				c->in[k] = take_range(c->g, c->in[k], a, 0, most);
		}
	}
}

static int first_rank(const Call *c)
{
	return in_val(c, 0)->shape.rank;
}

static void want_whole(const Call *c, int k, int axis)
{
	if (count_along(c, k, axis))
		unsupported_dynamic(c, k);
}

static void whole_channels(Call *c)
{
	want_whole(c, 0, 1);
}

static void only_padded(Call *c)
{
	for (int k = 1; k < c->nin; k++)
		for (int a = 0; a < RANK; a++)
			want_whole(c, k, a);
}

// Queries, keys and values may be fewer, and so may samples; what is cached may not.
static void only_sequences(Call *c)
{
	for (int k = 0; k < c->nin; k++) {
		int rank = c->in[k] ? val(c->g, c->in[k])->shape.rank : 0;
		for (int a = 1; a < rank; a++)
			if (k < 3 ? a != rank - 2 : k != 3)
				want_whole(c, k, a);
	}
}

// Steps and samples may be fewer. Operands 4 to 6: lengths, and states before the first step.
static void only_steps(Call *c)
{
	bool layout = attr_int(c, "layout", 0);
	for (int k = 0; k < c->nin; k++)
		for (int a = 0; a < RANK; a++) {
			bool samples = k == 4 ? !a : a == !layout && (k == 5 || k == 6);
			if (k ? !samples : a > 1)
				want_whole(c, k, a);
		}
}

static void whole_behind_axis(Call *c)
{
	int rank = first_rank(c);
	for (int a = (int)axis_of(c, attr_int(c, "axis", -1), rank); a < rank; a++)
		want_whole(c, 0, a);
}

static void only_rows(Call *c)
{
	for (int k = 0; k < c->nin; k++)
		for (int a = k ? 0 : 1; a < RANK; a++)
			want_whole(c, k, a);
}

// What a fold is not changed by.
static double neutral(int variant)
{
	switch (variant) {
	case O_prod:
		return 1;
	case O_amax:
	case R_log_sum_exp:
		return -INFINITY;
	case O_amin:
		return INFINITY;
	default:
		return 0;
	}
}

static void fill_reduced(Call *c)
{
	int64_t axes[RANK];
	int n = reduced_mask(c, axes);
	for (int i = 0; i < n; i++)
		c->in[0] = fill_counted(c, 0, (int)axes[i], neutral(c->variant));
}

static void fill_arg(Call *c)
{
	int axis = (int)axis_of(c, attr_int(c, "axis", 0), first_rank(c));
	c->in[0] = fill_counted(c, 0, axis, c->variant ? INFINITY : -INFINITY);
}

static void fill_axis(Call *c)
{
	int axis = (int)axis_of(c, attr_int(c, "axis", -1), first_rank(c));
	c->in[0] = fill_counted(c, 0, axis, 0);
}

static int running_axis(Call *c)
{
	int n = 0;
	const int64_t *axis = operand_ints(c, 1, &n);
	return (int)axis_of(c, axis && n ? axis[0] : 0, first_rank(c));
}

static void fill_running(Call *c)
{
	c->in[0] = fill_counted(c, 0, running_axis(c), 0);
}

// The first and the last axis that a softmax takes as one.
static void soft_axes(const Call *c, int *from, int *to)
{
	int rank = first_rank(c);
	*from = (int)axis_of(c, attr_int(c, "axis", c->opset < 13 ? 1 : -1), rank);
	*to = c->opset < 13 ? rank : *from + 1;
}

// A finite number, so that a softmax of nothing is one too.
static void fill_softmax(Call *c)
{
	int from, to;
	soft_axes(c, &from, &to);
	for (int a = from; a < to; a++)
		c->in[0] = fill_counted(c, 0, a, -0x1p120);
}

// Along the axis that contracts, one factor of 0 is enough.
static void fill_factors(Call *c, int a, int b)
{
	int k = count_along(c, 0, a) ? 0 : 1;
	int axis = k ? b : a;
	c->in[k] = fill_counted(c, k, axis, 0);
	int64_t left = val(c->g, c->in[0])->shape.dim[a], right = val(c->g, c->in[1])->shape.dim[b];
	if (count_along(c, 0, a) && left > right)
		c->in[0] = take_range(c->g, c->in[0], a, 0, right);
	if (count_along(c, 1, b) && right > left)
		c->in[1] = take_range(c->g, c->in[1], b, 0, left);
}

static void fill_product(Call *c)
{
	int left = first_rank(c), right = in_val(c, 1)->shape.rank;
	if (left && right)
		fill_factors(c, left - 1, MAX(right - 2, 0));
}

static void fill_gemm(Call *c)
{
	fill_factors(c, attr_int(c, "transA", 0) ? 0 : 1, attr_int(c, "transB", 0) ? 1 : 0);
}

// ---- after: results -------------------------------------------------------------------

static void as_lowered(Call *c)
{
	(void)c;
}

// Axis `from` of operand k is axis `to` of result i.
static void pass_count(Call *c, int i, int to, int k, int from)
{
	Ref count = count_along(c, k, from);
	const Shape *s = &val(c->g, c->out[i])->shape;
	if (count && to >= 0 && to < s->rank)
		c->counts[i].of[to] = count;
}

// Axes aligned at the end; the first operand that has a count tells.
static void broadcast(Call *c)
{
	for (int i = 0; i < c->nout; i++)
		for (int k = c->nin - 1; k >= 0 && c->out[i]; k--) {
			int rank = c->in[k] ? val(c->g, c->in[k])->shape.rank : 0;
			int more = val(c->g, c->out[i])->shape.rank - rank;
			for (int a = 0; a < rank; a++)
				pass_count(c, i, a + more, k, a);
		}
}

static void like_operand(Call *c, int k)
{
	int rank = in_val(c, k)->shape.rank;
	for (int i = 0; i < c->nout; i++)
		for (int a = 0; c->out[i] && a < rank; a++)
			pass_count(c, i, a, k, a);
}

static void as_first(Call *c)
{
	like_operand(c, 0);
}

static void first_as_first(Call *c)
{
	for (int a = 0; a < first_rank(c); a++)
		pass_count(c, 0, a, 0, a);
}

// Results behind the first: one number for all axes from `axis` on.
static void normed(Call *c)
{
	first_as_first(c);
	for (int a = 0; a < axis_of(c, attr_int(c, "axis", -1), first_rank(c)); a++)
		for (int i = 1; i < c->nout; i++)
			pass_count(c, i, a, 0, a);
}

// Results: what is read, keys and values with those before them, scores.
static void attended(Call *c)
{
	int rank = first_rank(c), keys = in_val(c, 1)->shape.rank;
	Ref past = c->nin > 4 ? c->in[4] : 0, more = count_along(c, 1, keys - 2);
	for (int i = 0; i < c->nout; i++)
		pass_count(c, i, 0, 0, 0);
	pass_count(c, 0, rank - 2, 0, rank - 2);
	if (c->nout > 3)
		pass_count(c, 3, 2, 0, rank - 2);
	if (past && more)
		more = put2(c->g, O_add, more, put_i64(c->g, val(c->g, past)->shape.dim[2]));
	for (int i = 1; i < c->nout && i < 4; i++)
		c->counts[i].of[i == 3 ? 3 : 2] = more;
}

// Results: states of all steps [steps, directions, samples, ..], with layout 1 [samples, steps,
// ..]; the last ones [directions, samples, ..] or [samples, ..].
static void stepped(Call *c)
{
	bool layout = attr_int(c, "layout", 0);
	pass_count(c, 0, layout, 0, layout);
	pass_count(c, 0, layout ? 0 : 2, 0, !layout);
	for (int i = 1; i < c->nout; i++)
		pass_count(c, i, !layout, 0, !layout);
}

static void as_second(Call *c)
{
	like_operand(c, 1);
}

static void rows(Call *c)
{
	pass_count(c, 0, 0, 0, 0);
}

static void rows_of_second(Call *c)
{
	want_whole(c, 0, 0);
	pass_count(c, 0, 0, 1, 0);
}

static void permuted(Call *c)
{
	int rank = first_rank(c), n = 0;
	const int64_t *perm = attr_ints(c, "perm", &n);
	for (int a = 0; a < rank; a++)
		pass_count(c, 0, a, 0, perm ? (int)perm[a] : rank - 1 - a);
}

static void gathered(Call *c)
{
	int rank = first_rank(c), places = in_val(c, 1)->shape.rank;
	int axis = (int)axis_of(c, attr_int(c, "axis", 0), rank);
	for (int a = 0; a < rank; a++)
		if (a != axis)
			pass_count(c, 0, a < axis ? a : a + places - 1, 0, a);
	for (int a = 0; a < places; a++)
		pass_count(c, 0, axis + a, 1, a);
}

static void gathered_tuples(Call *c)
{
	int rank = first_rank(c), last = in_val(c, 1)->shape.rank - 1;
	int done = (int)attr_int(c, "batch_dims", 0) + (int)in_val(c, 1)->shape.dim[last];
	for (int a = done; a < rank; a++)
		pass_count(c, 0, last + a - done, 0, a);
	for (int a = 0; a < last; a++)
		pass_count(c, 0, a, 1, a);
}

static void one_hot(Call *c)
{
	int rank = first_rank(c);
	int axis = (int)axis_of(c, attr_int(c, "axis", -1), rank + 1);
	for (int a = 0; a < rank; a++)
		pass_count(c, 0, a + (a >= axis), 0, a);
}

// The folded axes are of size 1, or gone.
static void drop_folded(Call *c, int n, const int64_t *axes)
{
	bool kept = attr_int(c, "keepdims", 1);
	for (int a = 0, to = 0, i = 0; a < first_rank(c); a++) {
		bool folded = i < n && axes[i] == a;
		if (!folded)
			pass_count(c, 0, to, 0, a);
		i += folded;
		to += kept || !folded;
	}
}

// A mean has been taken over all that could be there.
static void unreduced(Call *c)
{
	Graph *g = c->g;
	int64_t axes[RANK];
	int n = reduced_mask(c, axes);
	for (int i = 0; c->variant == R_mean && i < n; i++) {
		Ref count = count_along(c, 0, (int)axes[i]), y = c->out[0];
		double most = (double)in_val(c, 0)->shape.dim[axes[i]];
		if (count)
			c->out[0] = put2(g, O_mul, y,
			                 put2(g, O_div, num_like(g, y, most),
			                      put_cast(g, count, val(g, y)->type)));
	}
	drop_folded(c, n, axes);
}

static void reduced_axis(Call *c)
{
	int64_t axis = axis_of(c, attr_int(c, "axis", 0), first_rank(c));
	drop_folded(c, 1, &axis);
}

// What was filled before is no copy any more.
static void copy_again(Call *c, int axis)
{
	Ref count = count_along(c, 0, axis);
	if (count)
		c->out[0] = copy_behind(c->g, c->out[0], axis, count);
}

static void running(Call *c)
{
	copy_again(c, running_axis(c));
	as_first(c);
}

static void softened(Call *c)
{
	int from, to;
	soft_axes(c, &from, &to);
	for (int a = from; a < to; a++)
		copy_again(c, a);
	as_first(c);
}

static void multiplied(Call *c)
{
	int left = first_rank(c), right = in_val(c, 1)->shape.rank;
	int rank = val(c->g, c->out[0])->shape.rank, matrix = (left > 1) + (right > 1);
	for (int a = 0; a < left - 2; a++)
		pass_count(c, 0, a + rank - matrix - (left - 2), 0, a);
	for (int b = 0; b < right - 2; b++)
		pass_count(c, 0, b + rank - matrix - (right - 2), 1, b);
	if (left > 1)
		pass_count(c, 0, rank - matrix, 0, left - 2);
	if (right > 1)
		pass_count(c, 0, rank - 1, 1, right - 1);
}

static void gemm(Call *c)
{
	pass_count(c, 0, 0, 0, attr_int(c, "transA", 0) ? 1 : 0);
	pass_count(c, 0, 1, 1, attr_int(c, "transB", 0) ? 0 : 1);
}

// ---- the table ------------------------------------------------------------------------

#define LINE(op, before, after)
#define COUNTED(lower, before, after) Lower lower;
#include "dynamic.def"
#undef COUNTED
#undef LINE

typedef struct Counting {
	Lower *lower, *before, *after;
	const char *line; // operator that is a line of the book
} Counting;

static const Counting countings[] = {
#define LINE(op, before, after)       {lower_book, before, after, #op},
#define COUNTED(lower, before, after) {lower, before, after, NULL},
#include "dynamic.def"
#undef COUNTED
#undef LINE
};

// Not those of com.microsoft that have a name of ONNX's.
static bool is_line(const OpInfo *op, const char *name)
{
	return !strcmp(op->name, name) && (!*op->domain || !find_row("", name));
}

void lower_counted(Call *c, const OpRow *row)
{
	const Counting *found = NULL;
	for (int i = 0; i < COUNT(countings) && !found; i++)
		if (countings[i].lower == row->lower &&
		    (!countings[i].line || is_line(&row->info, countings[i].line)))
			found = &countings[i];
	for (int k = 0; !found && k < c->nin; k++)
		if (c->arg[k].counts)
			unsupported_dynamic(c, k);
	found->before(c);
	row->lower(c);
	found->after(c);
}
