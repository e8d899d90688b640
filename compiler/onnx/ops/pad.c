// pad.c: lowers Pad.
// The padding lies around the valid elements, also if the data decide how many there are.
#include "ops.h"
#include <string.h>

// The rim on one side of an axis: `n` entries before (or after) x.
static Ref rim(Call *c, Ref x, int axis, int64_t n, bool after, const char *mode)
{
	Graph *g = c->g;
	Shape s = val(g, x)->shape;
	int64_t d = s.dim[axis];
	if (!strcmp(mode, "edge")) {
		s.dim[axis] = n;
		return put_expand(g, take_range(g, x, axis, after ? d - 1 : 0, 1), s);
	}
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

// x between rims of `value`; 0: of its entries, as `mode` says.
static Ref pad_fixed(Call *c, Ref x, const int64_t *before, const int64_t *after, const char *mode,
                     Ref value)
{
	Graph *g = c->g;
	int rank = val(g, x)->shape.rank;
	for (int a = 0; a < rank && !value; a++) {
		Ref part[3];
		int n = 0;
		if (before[a] > 0)
			part[n++] = rim(c, x, a, before[a], false, mode);
		part[n++] = x;
		if (after[a] > 0)
			part[n++] = rim(c, x, a, after[a], true, mode);
		x = n > 1 ? put_concat(g, a, n, part) : x;
	}
	if (!value)
		return x;
	if (is_const(g, value))
		return put_pad(g, x, before, after, const_at(val(g, value), 0));
	// A computed number is chosen where no entry of x lies.
	Shape own = val(g, x)->shape;
	Ref y = put_pad(g, x, before, after, 0);
	Shape s = val(g, y)->shape;
	for (int a = 0; a < rank; a++) {
		Shape line = {.rank = rank};
		if (s.dim[a] == own.dim[a])
			continue;
		for (int b = 0; b < rank; b++)
			line.dim[b] = b == a ? s.dim[a] : 1;
		Ref at = put2(g, O_sub, put_iota(g, line, a), put_i64(g, before[a]));
		Ref inside = put2(g, O_and, put2(g, O_le, put_i64(g, 0), at),
		                  put2(g, O_lt, at, put_i64(g, own.dim[a])));
		y = put3(g, O_select, inside, y, value);
	}
	return y;
}

// ---- axes of which not all entries are there ------------------------------------------

// The index of the entry, of n along an axis, that stands at position p, which may lie outside.
static Ref place_inside(Graph *g, Ref p, Ref n, const char *mode)
{
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
	Ref at = smaller_of(g, place_inside(g, p, count, mode), put_i64(g, s.dim[axis] - 1));
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
	int rank = in_val(c, 0)->shape.rank, n = 0, naxes = 0;
	int64_t before[RANK] = {0}, after[RANK] = {0};
	Pads rim[RANK];
	const char *mode = attr_string(c, "mode", "constant");
	Ref x = c->in[0], value = rim_value(c, mode);
	const Ref *pads = entries_of(c, c->opset < 11 ? c->nin : 1, "pads", &n);
	const int64_t *axes = operand_ints(c, 3, &naxes);
	int count = axes ? naxes : rank;
	if (!pads || n != 2 * count)
		invalid_node(c, "%d pads for %d axes", n, count);
	axes = axes_of(c, axes, count, rank);
	for (int a = 0; a < rank; a++)
		rim[a].before = rim[a].behind = put_i64(g, 0);
	for (int i = 0; i < count; i++)
		rim[axes[i]] = (Pads){pads[i], pads[count + i]};
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
	for (int a = 0; a < rank; a++) { // negative pads cut entries off
		int64_t low = MAX(-before[a], 0), high = MAX(-after[a], 0);
		int64_t d = val(g, x)->shape.dim[a];
		if (low || high)
			x = take_range(g, x, a, MIN(low, d), MAX(d - low - high, 0));
		before[a] = MAX(before[a], 0);
		after[a] = MAX(after[a], 0);
	}
	c->out[0] = pad_fixed(c, x, before, after, mode, value);
}
