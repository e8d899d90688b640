// pad.c: lowers Pad.
// The padding lies around the valid elements, also if the data decide how many there are.
#include "ops.h"
#include <string.h>

static Ref expand_axis(Graph *g, Ref x, int axis, int64_t size)
{
	Shape s = val(g, x)->shape;
	s.dim[axis] = size;
	return put_expand(g, x, s);
}

// The rim on one side of an axis: `n` entries before (or after) x.
static Ref rim(Call *c, Ref x, int axis, int64_t n, bool after, const char *mode)
{
	Graph *g = c->g;
	int64_t d = val(g, x)->shape.dim[axis];
	if (!strcmp(mode, "edge"))
		return expand_axis(g, take_range(g, x, axis, after ? d - 1 : 0, 1), axis, n);
	bool reflect = !strcmp(mode, "reflect");
	if (n > d - reflect)
		invalid_node(c, "a rim of %lld is wider than its axis of %lld", (long long)n,
		             (long long)d);
	if (reflect)
		return take_steps(g, x, axis, after ? d - 2 : n, n, -1);
	if (strcmp(mode, "wrap"))
		invalid_node(c, "mode '%s'", mode);
	return take_range(g, x, axis, after ? 0 : d - n, n);
}

static Ref pad_axis(Call *c, Ref x, int axis, int64_t before, int64_t after, const char *mode)
{
	Ref part[3];
	int n = 0;
	if (before > 0)
		part[n++] = rim(c, x, axis, before, false, mode);
	part[n++] = x;
	if (after > 0)
		part[n++] = rim(c, x, axis, after, true, mode);
	return n > 1 ? put_concat(c->g, axis, n, part) : x;
}

// Negative pads cut entries off.
static Ref crop(Graph *g, Ref x, int64_t *before, int64_t *after)
{
	int rank = val(g, x)->shape.rank;
	for (int a = 0; a < rank; a++) {
		int64_t low = before[a] < 0 ? -before[a] : 0, high = after[a] < 0 ? -after[a] : 0;
		int64_t d = val(g, x)->shape.dim[a];
		if (low || high)
			x = take_range(g, x, a, MIN(low, d), MAX(d - low - high, 0));
		before[a] = MAX(before[a], 0);
		after[a] = MAX(after[a], 0);
	}
	return x;
}

// A rim of one computed number: what is not of x.
static Ref fill_rim(Graph *g, Ref y, const Shape *x, const int64_t *before, Ref value)
{
	Shape s = val(g, y)->shape;
	for (int a = 0; a < s.rank; a++) {
		Shape line = {.rank = s.rank};
		if (s.dim[a] == x->dim[a])
			continue;
		for (int b = 0; b < s.rank; b++)
			line.dim[b] = b == a ? s.dim[a] : 1;
		Ref at = put2(g, O_sub, put_iota(g, line, a), put_i64(g, before[a]));
		Ref inside = put2(g, O_and, put2(g, O_le, put_i64(g, 0), at),
		                  put2(g, O_lt, at, put_i64(g, x->dim[a])));
		y = put3(g, O_select, inside, y, value);
	}
	return y;
}

static Ref pad_with(Graph *g, Ref x, const int64_t *before, const int64_t *after, Ref value)
{
	Shape s = val(g, x)->shape;
	if (is_const(g, value))
		return put_pad(g, x, before, after, const_at(val(g, value), 0));
	return fill_rim(g, put_pad(g, x, before, after, 0), &s, before, value);
}

// ---- axes of which not all entries are there ------------------------------------------

// Which entry of an axis of n stands at place p, which may lie outside.
static Ref place_inside(const Call *c, Ref p, Ref n, const char *mode)
{
	Graph *g = c->g;
	Ref zero = put_i64(g, 0), one = put_i64(g, 1), last = put2(g, O_sub, n, one);
	if (!strcmp(mode, "wrap"))
		return put2(g, O_mod, p, put2(g, O_max, n, one));
	if (strcmp(mode, "reflect"))
		return put2(g, O_max, put2(g, O_min, p, last), zero);
	Ref period = scaled(g, last, 2);
	Ref q = put2(g, O_mod, p, put2(g, O_max, period, one));
	return put2(g, O_min, q, put2(g, O_sub, period, q));
}

// How many entries come before and behind an axis; cuts are negative.
typedef struct Pads {
	Ref before, behind;
} Pads;

// value: of the rim; 0: it is made of entries, as `mode` says.
static Ref pad_dynamic(Call *c, Ref x, int axis, const Pads *rim, const char *mode, Ref value)
{
	Graph *g = c->g;
	Shape s = val(g, x)->shape, line = {.rank = s.rank};
	Ref count = put_length(g, x, axis), zero = put_i64(g, 0);
	int64_t most = s.dim[axis] + extent_of(c, rim->before, "a rim").most +
	               extent_of(c, rim->behind, "a rim").most;
	most = MAX(most, 0);
	Ref p = put2(g, O_sub, put_iota(g, shape_of(1, &most), 0), rim->before);
	Ref at = smaller_of(g, place_inside(c, p, count, mode), put_i64(g, s.dim[axis] - 1));
	Ref y = put_gather(g, put_padded(g, x, axis), larger_of(g, at, zero), axis);
	for (int a = 0; a < s.rank; a++)
		line.dim[a] = a == axis ? most : 1;
	Ref inside = put2(g, O_and, put2(g, O_le, zero, p), put2(g, O_lt, p, count));
	if (value)
		y = put3(g, O_select, put_reshape(g, inside, line), y, value);
	count = put2(g, O_add, put2(g, O_add, count, rim->before), rim->behind);
	count = larger_of(g, count, zero);
	return put_valid(g, y, axis, count);
}

// ---- the operators --------------------------------------------------------------------

// What the rim is filled with; 0: with entries of the operand.
static Ref rim_value(Call *c, const char *mode)
{
	Ref value = c->opset < 11 || c->nin < 3 || c->arg[2].absent ? 0 : fixed_operand(c, 2);
	if (strcmp(mode, "constant"))
		return 0;
	if (!value)
		return num_like(c->g, c->in[0], c->opset < 11 ? attr_float(c, "value", 0) : 0);
	if (count_of(&val(c->g, value)->shape) != 1)
		invalid_node(c, "a rim of more than one number");
	return put_cast(c->g, put_reshape(c->g, value, (Shape){0}), val(c->g, c->in[0])->type);
}

// By axis.
static void read_pads(Call *c, int rank, Pads *rim)
{
	int n = 0, naxes = 0;
	const Ref *pads = entries_of(c, c->opset < 11 ? c->nin : 1, "pads", &n);
	const int64_t *axes = operand_ints(c, 3, &naxes);
	int count = axes ? naxes : rank;
	if (!pads || n != 2 * count)
		invalid_node(c, "%d pads for %d axes", n, count);
	axes = axes_of(c, axes, count, rank);
	for (int a = 0; a < rank; a++)
		rim[a].before = rim[a].behind = put_i64(c->g, 0);
	for (int i = 0; i < count; i++)
		rim[axes[i]] = (Pads){pads[i], pads[count + i]};
}

// A number that is known.
static int64_t known_pad(const Call *c, Ref pad)
{
	int64_t n = const_int_at(val(c->g, pad), 0);
	if (n < -INT32_MAX || n > INT32_MAX)
		invalid_node(c, "a rim of %lld", (long long)n);
	return n;
}

void lower_pad(Call *c)
{
	Graph *g = c->g;
	int rank = in_val(c, 0)->shape.rank;
	int64_t before[RANK] = {0}, after[RANK] = {0};
	Pads rim[RANK];
	const char *mode = attr_string(c, "mode", "constant");
	Ref x = c->in[0], value = rim_value(c, mode);
	read_pads(c, rank, rim);
	for (int a = 0; a < rank; a++) {
		bool known = is_const(g, rim[a].before) && is_const(g, rim[a].behind);
		if (known) {
			before[a] = known_pad(c, rim[a].before);
			after[a] = known_pad(c, rim[a].behind);
		}
		if (known && !size_along(g, x, a).count)
			continue;
		x = pad_dynamic(c, x, a, &rim[a], mode, value);
		before[a] = after[a] = 0;
	}
	x = crop(g, x, before, after);
	for (int a = 0; !value && a < rank; a++)
		x = pad_axis(c, x, a, before[a], after[a], mode);
	c->out[0] = value ? pad_with(g, x, before, after, value) : x;
}
