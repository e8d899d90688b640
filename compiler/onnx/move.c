// move.c: ONNX operators that say where elements come from: reshape, transpose, slice, pad, concat,
// gather, scatter. Takes the node being lowered. Gives its results. Keeps: everything but gather
// and scatter by data becomes moves, which cost nothing.
#include "lower.h"
#include <stdlib.h>
#include <string.h>

// ---- shared ---------------------------------------------------------------------------

Ref merge_axes(Graph *g, Ref x, int from, int to)
{
	const Shape *s = &val(g, x)->shape;
	Shape out = {.rank = s->rank - (to - from) + 1};
	int64_t product = 1;
	for (int a = from; a < to; a++)
		product *= s->dim[a];
	for (int a = 0; a < out.rank; a++)
		out.dim[a] = a < from ? s->dim[a] : a == from ? product : s->dim[a + to - from - 1];
	return put_reshape(g, x, out);
}

Ref drop_axes(Graph *g, Ref x, int naxes, const int64_t *axes)
{
	const Shape *s = &val(g, x)->shape;
	Shape out = {0};
	for (int a = 0; a < s->rank; a++) {
		bool dropped = false;
		for (int i = 0; i < naxes; i++)
			dropped |= axes[i] == a;
		if (!dropped)
			out.dim[out.rank++] = s->dim[a];
	}
	return put_reshape(g, x, out);
}

Ref insert_axis(Graph *g, Ref x, int at)
{
	const Shape *s = &val(g, x)->shape;
	Shape out = {.rank = s->rank + 1};
	for (int a = 0; a < out.rank; a++)
		out.dim[a] = a == at ? 1 : s->dim[a - (a > at)];
	return put_reshape(g, x, out);
}

// Along one axis: `count` entries from `start`, `step` apart.
static Ref take_steps(Graph *g, Ref x, int axis, int64_t start, int64_t count, int64_t step)
{
	Shape s = val(g, x)->shape;
	int64_t starts[RANK] = {0}, counts[RANK], steps[RANK];
	for (int a = 0; a < s.rank; a++) {
		counts[a] = s.dim[a];
		steps[a] = 1;
	}
	starts[axis] = start;
	counts[axis] = count;
	steps[axis] = step;
	return put_slice(g, x, starts, counts, steps);
}

Ref take_range(Graph *g, Ref x, int axis, int64_t start, int64_t count)
{
	return take_steps(g, x, axis, start, count, 1);
}

Ref swap_last(Graph *g, Ref x)
{
	int rank = val(g, x)->shape.rank;
	int64_t perm[RANK];
	for (int a = 0; a < rank; a++)
		perm[a] = a;
	perm[rank - 1] = rank - 2;
	perm[rank - 2] = rank - 1;
	return put_permute(g, x, perm);
}

// ---- reshaping ------------------------------------------------------------------------

void lower_identity(Call *c)
{
	if (c->nin < 1 || c->arg[0].absent)
		refuse(c, "operand 0 is missing");
	c->value[0] = c->arg[0];
	if (c->arg[0].weight)
		c->value[0] = alias_weight(c->r, c->arg[0].weight, c->node->output[0]);
}

void lower_reshape(Call *c)
{
	const Val *x = in_val(c, 0);
	int n = 0;
	Extent *want = extents_of(c, 1, "shape", &n);
	if (!want)
		refuse(c, "the new shape is missing");
	want_rank(c, n);
	for (int a = 0; a < n; a++) {
		bool copy = !want[a].most && !want[a].count && !attr_int(c, "allowzero", 0);
		if (copy && a >= x->shape.rank)
			refuse(c, "dimension %d is to be copied from an operand of %d dimensions",
			       a, x->shape.rank);
		if (copy)
			want[a] = (Extent){x->shape.dim[a], count_along(c, 0, a)};
	}
	reshape_counted(c, c->in[0], c->arg[0].counts, n, want);
}

void lower_flatten(Call *c)
{
	const Val *x = in_val(c, 0);
	int64_t axis = attr_int(c, "axis", 1);
	Extent to[2] = {{1, 0}, {1, 0}};
	if (axis != x->shape.rank)
		axis = axis_of(c, axis, x->shape.rank);
	for (int a = 0; a < x->shape.rank; a++)
		to[a >= axis] = extent_product(c->g, to[a >= axis], extent_along(c, 0, a));
	reshape_counted(c, c->in[0], c->arg[0].counts, 2, to);
}

void lower_squeeze(Call *c)
{
	Shape s = in_val(c, 0)->shape;
	int n = 0;
	const int64_t *given = ints_of(c, 1, "axes", &n);
	int64_t axes[RANK];
	if (given && n > RANK)
		refuse(c, "%d axes", n);
	for (int i = 0; given && i < n; i++) {
		axes[i] = axis_of(c, given[i], s.rank);
		if (s.dim[axes[i]] != 1)
			refuse(c, "axis %lld has size %lld, only axes of size 1 can go",
			       (long long)axes[i], (long long)s.dim[axes[i]]);
	}
	for (int a = 0; !given && a < s.rank; a++)
		if (s.dim[a] == 1 && !count_along(c, 0, a))
			axes[n++] = a;
	c->out[0] = drop_axes(c->g, c->in[0], n, axes);
	for (int a = 0, to = 0; a < s.rank; a++) {
		bool gone = false;
		for (int i = 0; i < n; i++)
			gone |= axes[i] == a;
		if (!gone)
			c->counts[0].of[to++] = count_along(c, 0, a);
	}
}

void lower_unsqueeze(Call *c)
{
	Shape s = in_val(c, 0)->shape, out = {0};
	int n = 0;
	const int64_t *axes = ints_of(c, 1, "axes", &n);
	if (!axes)
		refuse(c, "the axes are missing");
	want_rank(c, s.rank + n);
	out.rank = s.rank + n;
	bool fresh[RANK] = {0};
	for (int i = 0; i < n; i++)
		fresh[axis_of(c, axes[i], out.rank)] = true;
	for (int a = 0, from = 0; a < out.rank; a++) {
		if (!fresh[a] && from >= s.rank)
			refuse(c, "an axis is given twice");
		c->counts[0].of[a] = fresh[a] ? 0 : count_along(c, 0, from);
		out.dim[a] = fresh[a] ? 1 : s.dim[from++];
	}
	c->out[0] = put_reshape(c->g, c->in[0], out);
}

void lower_transpose(Call *c)
{
	Shape s = in_val(c, 0)->shape;
	int n = 0;
	const int64_t *perm = attr_ints(c, "perm", &n);
	int64_t reversed[RANK];
	for (int a = 0; a < s.rank; a++)
		reversed[a] = s.rank - 1 - a;
	if (perm && n != s.rank)
		refuse(c, "perm has %d entries, the operand %d dimensions", n, s.rank);
	uint32_t seen = 0;
	for (int a = 0; perm && a < n; a++) {
		if (perm[a] < 0 || perm[a] >= n || seen >> perm[a] & 1)
			refuse(c, "perm is not a permutation");
		seen |= 1u << perm[a];
	}
	c->out[0] = put_permute(c->g, c->in[0], perm ? perm : reversed);
}

void lower_expand(Call *c)
{
	in_val(c, 0);
	int n = 0;
	const Extent *want = extents_of(c, 1, "", &n);
	int own = val(c->g, c->in[0])->shape.rank, rank = MAX(n, own);
	if (!want)
		refuse(c, "the shape is missing");
	want_rank(c, rank);
	Ref x = put_rank(c->g, c->in[0], rank);
	Shape out = val(c->g, x)->shape;
	for (int a = 0; a < own; a++)
		c->counts[0].of[a + rank - own] = count_along(c, 0, a);
	for (int a = 0; a < n; a++) {
		int64_t most = want[a].most, at = rank - n + a, *d = &out.dim[at];
		bool exact = !want[a].count && !c->counts[0].of[at];
		if (exact && most != 1 && *d != 1 && most != *d)
			refuse(c, "%s cannot stretch to %lld along axis %lld",
			       shape_text(c->r->arena, val(c->g, x)->type, &val(c->g, x)->shape),
			       (long long)most, (long long)at);
		if (*d != 1 || c->counts[0].of[at] || (most == 1 && !want[a].count))
			continue;
		*d = most;
		c->counts[0].of[at] = want[a].count;
	}
	c->out[0] = put_expand(c->g, x, out);
}

Ref repeat_axis(Graph *g, Ref x, int axis, int64_t times)
{
	Ref y = insert_axis(g, x, axis);
	Shape s = val(g, y)->shape;
	s.dim[axis] = times;
	return put_expand(g, y, s);
}

void lower_tile(Call *c)
{
	int rank = in_val(c, 0)->shape.rank, n = 0;
	const int64_t *times = operand_ints(c, 1, &n);
	if (!times || n != rank || rank >= RANK)
		refuse(c, "%d repetitions for %d dimensions", n, rank);
	c->out[0] = c->in[0];
	for (int a = 0; a < rank; a++) {
		if (times[a] < 0)
			refuse(c, "%lld repetitions", (long long)times[a]);
		if (times[a] != 1)
			c->out[0] =
			    merge_axes(c->g, repeat_axis(c->g, c->out[0], a, times[a]), a, a + 2);
	}
}

void lower_depth_to_space(Call *c)
{
	Shape s = in_val(c, 0)->shape;
	int64_t b = attr_int(c, "blocksize", 0);
	if (s.rank != 4 || b < 1 || s.dim[1] % (b * b))
		refuse(c, "wants an image whose channels divide by the square of its block");
	bool crd = !strcmp(attr_string(c, "mode", "DCR"), "CRD");
	int64_t depth = s.dim[1] / (b * b);
	int64_t dcr_dims[] = {s.dim[0], b, b, depth, s.dim[2], s.dim[3]};
	int64_t crd_dims[] = {s.dim[0], depth, b, b, s.dim[2], s.dim[3]};
	Ref x = put_reshape(c->g, c->in[0], shape_of(6, crd ? crd_dims : dcr_dims));
	x = put_permute(c->g, x,
	                crd ? (int64_t[]){0, 1, 4, 2, 5, 3} : (int64_t[]){0, 3, 4, 1, 5, 2});
	int64_t out[] = {s.dim[0], depth, s.dim[2] * b, s.dim[3] * b};
	c->out[0] = put_reshape(c->g, x, shape_of(4, out));
}

void lower_space_to_depth(Call *c)
{
	Shape s = in_val(c, 0)->shape;
	int64_t b = attr_int(c, "blocksize", 0);
	if (s.rank != 4 || b < 1 || s.dim[2] % b || s.dim[3] % b)
		refuse(c, "wants an image whose sides divide by its block");
	int64_t dims[] = {s.dim[0], s.dim[1], s.dim[2] / b, b, s.dim[3] / b, b};
	Ref x = put_reshape(c->g, c->in[0], shape_of(6, dims));
	x = put_permute(c->g, x, (int64_t[]){0, 3, 5, 1, 2, 4});
	int64_t out[] = {s.dim[0], s.dim[1] * b * b, s.dim[2] / b, s.dim[3] / b};
	c->out[0] = put_reshape(c->g, x, shape_of(4, out));
}

// ---- parts ----------------------------------------------------------------------------

static int64_t clamp(int64_t x, int64_t low, int64_t high)
{
	return x < low ? low : x > high ? high : x;
}

// numpy's start:end:step along one axis, whose ends may lie far outside.
static Ref take_numpy(Graph *g, Ref x, int axis, int64_t start, int64_t end, int64_t step)
{
	int64_t d = val(g, x)->shape.dim[axis];
	start = clamp(start < 0 ? start + d : start, step < 0 ? -1 : 0, step < 0 ? d - 1 : d);
	end = clamp(end < -d ? -1 : end < 0 ? end + d : end, step < 0 ? -1 : 0, step < 0 ? d : d);
	if (step < 0 && end == d)
		end = d - 1;
	int64_t span = step > 0 ? end - start : start - end, size = step > 0 ? step : -step;
	int64_t count = span > 0 ? (span - 1) / size + 1 : 0;
	return take_steps(g, x, axis, count ? start : 0, count, step);
}

// A place from which a slice goes up, or before which it ends, in 0..length.
static Ref slice_place(Graph *g, Ref at, Ref length)
{
	at = larger_of(g, from_end(g, at, length), put_num(g, E_i64, 0));
	return smaller_of(g, at, length);
}

// The same where places, or how long the axis is, depend on the data.
static Ref take_counted(Call *c, Ref x, int axis, Ref start, Ref end, int64_t step)
{
	Graph *g = c->g;
	int64_t d = val(g, x)->shape.dim[axis];
	Ref length = length_along(c, 0, axis);
	if (step < 0 && count_along(c, 0, axis))
		refuse_counts(c, 0);
	if (step < 0)
		refuse_computed(c, is_const(g, start) ? end : start, "where it begins or ends");
	start = slice_place(g, start, length);
	Ref count = put2(g, O_sub, slice_place(g, end, length), start);
	count = put2(g, O_add, count, put_num(g, E_i64, (double)(step - 1)));
	count = put2(g, O_div, count, put_num(g, E_i64, (double)step));
	count = larger_of(g, count, put_num(g, E_i64, 0));
	Extent size = extent_of(c, count, "how long it is");
	size.most = MIN(size.most, (d + step - 1) / step);
	if (is_const(g, start)) {
		int64_t from = const_int_at(val(g, start), 0);
		size.most = MIN(size.most, (d - from + step - 1) / step);
		x = take_steps(g, x, axis, size.most ? from : 0, size.most, step);
	} else {
		Ref at = put_iota(g, shape_of(1, &size.most), 0);
		at = put2(g, O_mul, at, put_num(g, E_i64, (double)step));
		at = smaller_of(g, put2(g, O_add, at, start), put_num(g, E_i64, (double)(d - 1)));
		x = put_gather(g, x, at, axis);
	}
	c->counts[0].of[axis] = size.count;
	return size.count ? copy_behind(g, x, axis, size.count) : x;
}

static bool known_slice(const Call *c, int axis, Ref start, Ref end)
{
	return !count_along(c, 0, axis) && is_const(c->g, start) && is_const(c->g, end);
}

void lower_slice(Call *c)
{
	int rank = in_val(c, 0)->shape.rank, n = 0, nend = 0, naxes = 0, nsteps = 0;
	const Ref *start = entries_of(c, 1, "starts", &n), *end = entries_of(c, 2, "ends", &nend);
	const int64_t *axes = ints_of(c, 3, "axes", &naxes), *steps = operand_ints(c, 4, &nsteps);
	if (!start || !end || n != nend || (axes && naxes != n) || (steps && nsteps != n) ||
	    n > rank)
		refuse(c, "starts, ends, axes and steps differ in number");
	c->out[0] = c->in[0];
	for (int a = 0; a < rank; a++)
		c->counts[0].of[a] = count_along(c, 0, a);
	for (int i = 0; i < n; i++) {
		int axis = (int)axis_of(c, axes ? axes[i] : i, rank);
		int64_t step = steps ? steps[i] : 1;
		if (!step || step == INT64_MIN)
			refuse(c, "a step of %lld", (long long)step);
		c->out[0] =
		    known_slice(c, axis, start[i], end[i])
		        ? take_numpy(c->g, c->out[0], axis, const_int_at(val(c->g, start[i]), 0),
		                     const_int_at(val(c->g, end[i]), 0), step)
		        : take_counted(c, c->out[0], axis, start[i], end[i], step);
	}
}

void lower_split(Call *c)
{
	Shape s = in_val(c, 0)->shape;
	int axis = (int)axis_of(c, attr_int(c, "axis", 0), s.rank), n = 0;
	const int64_t *sizes = ints_of(c, 1, "split", &n);
	if (sizes && n != c->nout)
		refuse(c, "%d sizes for %d results", n, c->nout);
	int64_t each = (s.dim[axis] + c->nout - 1) / MAX(c->nout, 1), at = 0;
	for (int i = 0; i < c->nout; i++) {
		int64_t size = sizes ? sizes[i] : MIN(each, s.dim[axis] - at);
		if (size < 0 || at + size > s.dim[axis])
			refuse(c, "the parts do not fit into %lld", (long long)s.dim[axis]);
		c->out[i] = take_range(c->g, c->in[0], axis, at, size);
		at += size;
	}
}

// Values joined along an axis of which not all entries are there: those of each behind those
// before.
static void join_counted(Call *c, int axis)
{
	Graph *g = c->g;
	Ref x = c->in[0], count = length_along(c, 0, axis);
	for (int k = 1; k < c->nin; k++) {
		int64_t most = val(g, x)->shape.dim[axis];
		Ref gap = put2(g, O_sub, put_num(g, E_i64, (double)most), count);
		x = put_concat(g, axis, 2, (Ref[]){x, c->in[k]});
		int64_t both = val(g, x)->shape.dim[axis];
		Ref at = put_iota(g, shape_of(1, &both), 0), there = put2(g, O_lt, at, count);
		at = put3(g, O_select, there, at, put2(g, O_add, at, gap));
		at = smaller_of(g, at, put_num(g, E_i64, (double)(both - 1)));
		if (!is_const(g, count))
			x = put_gather(g, x, at, axis);
		count = put2(g, O_add, count, length_along(c, k, axis));
	}
	c->out[0] = copy_behind(g, x, axis, count);
	c->counts[0].of[axis] = count;
}

void lower_concat(Call *c)
{
	int rank = in_val(c, 0)->shape.rank, n = 0;
	int axis = (int)axis_of(c, attr_int(c, "axis", 1), rank);
	Ref *x = NEWS(c->r->arena, Ref, c->nin);
	bool counted = false;
	for (int k = 0; k < c->nin; k++) {
		const Val *v = in_val(c, k);
		if (v->shape.rank != rank)
			refuse(c, "operands of %d and %d dimensions", rank, v->shape.rank);
		counted |= count_along(c, k, axis) != 0;
		for (int a = 0; a < rank; a++)
			c->counts[0].of[a] =
			    count_along(c, k, a) ? count_along(c, k, a) : c->counts[0].of[a];
		if (v->shape.dim[axis] || (k == c->nin - 1 && !n))
			x[n++] = c->in[k];
	}
	if (counted)
		join_counted(c, axis);
	else
		c->out[0] = n == 1 ? x[0] : put_concat(c->g, axis, n, x);
}

// ---- padding --------------------------------------------------------------------------

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
		refuse(c, "a rim of %lld is wider than its axis of %lld", (long long)n,
		       (long long)d);
	if (reflect)
		return take_steps(g, x, axis, after ? d - 2 : n, n, -1);
	if (strcmp(mode, "wrap"))
		refuse(c, "mode '%s'", mode);
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

void lower_pad(Call *c)
{
	int rank = in_val(c, 0)->shape.rank, n = 0, naxes = 0;
	const int64_t *pads = c->opset < 11 ? attr_ints(c, "pads", &n) : operand_ints(c, 1, &n);
	const int64_t *axes = operand_ints(c, 3, &naxes);
	int64_t before[RANK] = {0}, after[RANK] = {0};
	int count = axes ? naxes : rank;
	if (!pads || n != 2 * count)
		refuse(c, "%d pads for %d axes", n, count);
	for (int i = 0; i < count; i++) {
		int axis = (int)axis_of(c, axes ? axes[i] : i, rank);
		before[axis] = pads[i];
		after[axis] = pads[count + i];
	}
	const char *mode = attr_string(c, "mode", "constant");
	Ref x = crop(c->g, c->in[0], before, after);
	if (!strcmp(mode, "constant")) {
		c->out[0] =
		    put_pad(c->g, x, before, after,
		            c->opset < 11 ? attr_float(c, "value", 0) : number_of(c, 2, "", 0));
		return;
	}
	for (int a = 0; a < rank; a++)
		x = pad_axis(c, x, a, before[a], after[a], mode);
	c->out[0] = x;
}

// The middle of an axis that is to be shorter, the axis amid zeros where it is to be longer.
void lower_center_crop_pad(Call *c)
{
	int rank = in_val(c, 0)->shape.rank, n = 0, naxes = 0;
	const int64_t *want = operand_ints(c, 1, &n), *axes = attr_ints(c, "axes", &naxes);
	int64_t before[RANK] = {0}, after[RANK] = {0};
	if (!want || n != (axes ? naxes : rank))
		refuse(c, "%d sizes for %d axes", n, axes ? naxes : rank);
	for (int i = 0; i < n; i++) {
		int axis = (int)axis_of(c, axes ? axes[i] : i, rank);
		int64_t more = want[i] - val(c->g, c->in[0])->shape.dim[axis];
		before[axis] = more < 0 ? -(-more / 2) : more / 2;
		after[axis] = more - before[axis];
	}
	Ref x = crop(c->g, c->in[0], before, after);
	c->out[0] = put_pad(c->g, x, before, after, 0);
}

// ---- gather and scatter ---------------------------------------------------------------

// Do the values that are known of an input count from the end?
static bool known_negative(const Reader *r, const char *input)
{
	const Known *known = find_known(r, input);
	if (!known || is_float(known->type))
		return false;
	Val v = {.type = known->type, .data = known->bytes};
	for (int64_t i = 0; i < count_of(&known->shape); i++)
		if (const_at(&v, i) < 0)
			return true;
	return false;
}

// Marks the input that `index` is taken from, if it is one, as indices below n: data is checked
// against that.
static bool limit_input(const Reader *r, Ref index, int64_t n)
{
	Graph *g = r->g;
	const Val *v = val(g, index);
	while (v->op == O_cast || v->op == O_reshape || v->op == O_permute || v->op == O_slice)
		v = val(g, v->in[0]);
	if (v->op != O_slot || r->nest)
		return false;
	Slot *slot = &g->slots.at[v->attr->i[0]];
	if (slot->kind != S_input || is_float(slot->type) || known_negative(r, slot->name))
		return false;
	slot->limit = slot->limit ? MIN(slot->limit, n) : n;
	return true;
}

// Indices along axis `axis` of operand 0, in [0, n): negative ones count from the end. Constants
// are checked here, inputs before they are used, and what is computed from data is kept inside.
static Ref wrap_index(Call *c, Ref index, int axis)
{
	Graph *g = c->g;
	int64_t n = val(g, c->in[0])->shape.dim[axis];
	index = put_cast(g, index, E_i64);
	const Val *v = val(g, index);
	if (v->op == O_iota || limit_input(c->r, index, n))
		return index;
	bool counted = count_along(c, 0, axis) && limits_of(g, index).low < 0;
	if (v->op != O_const || counted) {
		Ref zero = put_num(g, E_i64, 0), end = put_num(g, E_i64, (double)(n - 1));
		index = from_end(g, index, length_along(c, 0, axis));
		return smaller_of(g, larger_of(g, index, zero), end);
	}
	int64_t count = count_of(&v->shape);
	int64_t *wrapped = NEWS(c->r->arena, int64_t, count + 1);
	for (int64_t i = 0; i < count; i++) {
		int64_t at = const_int_at(v, i);
		if (at < -n || at >= n)
			refuse(c, "index %lld, but the axis has %lld entries", (long long)at,
			       (long long)n);
		wrapped[i] = at < 0 ? at + n : at;
	}
	return put_const(g, E_i64, v->shape, wrapped);
}

void lower_gather(Call *c)
{
	Shape s = in_val(c, 0)->shape;
	in_val(c, 1);
	int axis = (int)axis_of(c, attr_int(c, "axis", 0), s.rank);
	Ref index = wrap_index(c, c->in[1], axis);
	const Val *v = val(c->g, index);
	if (v->op == O_const && !v->shape.rank) {
		Ref one = take_range(c->g, c->in[0], axis, const_int_at(v, 0), 1);
		c->out[0] = drop_axes(c->g, one, 1, (int64_t[]){axis});
		return;
	}
	c->out[0] = put_gather(c->g, c->in[0], index, axis);
}

static Ref flatten(Graph *g, Ref x)
{
	int64_t n = count_of(&val(g, x)->shape);
	return put_reshape(g, x, shape_of(1, &n));
}

// The same of constant indices, as a constant.
static Ref constant_positions(Graph *g, const int64_t *stride, Ref index, int axis)
{
	const Val *v = val(g, index);
	Shape at = v->shape;
	int64_t count = count_of(&at), step[RANK];
	int64_t *position = NEWS(g->arena, int64_t, count + 1);
	row_strides(&at, step);
	for (int64_t i = 0; i < count; i++) {
		position[i] = const_int_at(v, i) * stride[axis];
		for (int a = 0; a < at.rank; a++)
			position[i] += a == axis ? 0 : i / step[a] % at.dim[a] * stride[a];
	}
	return put_const(g, E_i64, at, position);
}

// Positions in the flattened operand of shape s, where `index` replaces the coordinate along one
// axis.
static Ref element_positions(Graph *g, const Shape *s, Ref index, int axis)
{
	int64_t stride[RANK];
	row_strides(s, stride);
	if (is_const(g, index))
		return constant_positions(g, stride, index, axis);
	Shape at = val(g, index)->shape;
	Ref sum = put2(g, O_mul, index, put_num(g, E_i64, (double)stride[axis]));
	for (int a = 0; a < s->rank; a++) {
		if (a == axis || at.dim[a] == 1)
			continue;
		Ref step = put2(g, O_mul, put_iota(g, at, a), put_num(g, E_i64, (double)stride[a]));
		sum = put2(g, O_add, sum, step);
	}
	return sum;
}

void lower_gather_elements(Call *c)
{
	Shape s = in_val(c, 0)->shape;
	int axis = (int)axis_of(c, attr_int(c, "axis", 0), s.rank);
	if (in_val(c, 1)->shape.rank != s.rank)
		refuse(c, "indices of %d dimensions into %d", val(c->g, c->in[1])->shape.rank,
		       s.rank);
	Ref index = wrap_index(c, c->in[1], axis);
	c->out[0] =
	    put_gather(c->g, flatten(c->g, c->in[0]), element_positions(c->g, &s, index, axis), 0);
}

static int scatter_mode(const Call *c)
{
	static const char *const modes[] = {"none", "add", "mul", "min", "max"};
	const char *mode = attr_string(c, "reduction", "none");
	for (int i = 0; i < COUNT(modes); i++)
		if (!strcmp(mode, modes[i]))
			return i;
	refuse(c, "reduction '%s'", mode);
}

// Older exporters write scatter_add and index_add without their sum.
static void note_repeats(Call *c, Ref index, int64_t n)
{
	const Val *v = val(c->g, index);
	if (v->op != O_const || scatter_mode(c))
		return;
	bool *seen = NEWS(c->r->arena, bool, n + 1);
	int64_t count = count_of(&v->shape);
	for (int64_t i = 0; i < count; i++) {
		bool *at = &seen[const_int_at(v, i)];
		if (*at)
			note(c->r,
			     "%s writes some places twice without adding (exporters lose the sum "
			     "of scatter_add "
			     "and index_add below opset 16): the last one stays",
			     node_place(c->r->arena, c->node));
		*at = true;
	}
}

// A constant that counts 0, 1, 2, ... n-1: the whole operand in order.
static bool counts_all(const Graph *g, Ref index, int64_t n)
{
	const Val *v = val(g, index);
	if (v->op == O_iota)
		return v->shape.rank == 1 && v->shape.dim[0] == n;
	if (v->op != O_const || count_of(&v->shape) != n)
		return false;
	for (int64_t i = 0; i < n; i++)
		if (const_int_at(v, i) != i)
			return false;
	return true;
}

// Places in `rows`, `at`, get `new`. Places of operand 1 that are not there are one row more.
static Ref scatter_rows(Call *c, Ref rows, Ref at, Ref new)
{
	Graph *g = c->g;
	Shape s = val(g, rows)->shape;
	int mode = scatter_mode(c), rank = val(g, at)->shape.rank;
	bool counted = false;
	for (int a = 0; a < rank; a++) {
		Ref count = count_along(c, 1, a);
		counted |= count != 0;
		at = count ? fill_behind(g, at, a, count, (double)s.dim[0]) : at;
	}
	at = flatten(g, at);
	if (!counted && mode == 0 && counts_all(g, at, s.dim[0]))
		return new;
	if (!counted)
		return put_scatter(g, rows, at, new, 0, mode);
	int64_t before[RANK] = {0}, after[RANK] = {1};
	rows = put_scatter(g, put_pad(g, rows, before, after, 0), at, new, 0, mode);
	return take_range(g, rows, 0, 0, s.dim[0]);
}

void lower_scatter_elements(Call *c)
{
	Shape s = in_val(c, 0)->shape;
	in_val(c, 2);
	int axis = (int)axis_of(c, attr_int(c, "axis", 0), s.rank);
	if (in_val(c, 1)->shape.rank != s.rank)
		refuse(c, "indices of %d dimensions into %d", val(c->g, c->in[1])->shape.rank,
		       s.rank);
	Graph *g = c->g;
	Ref index = element_positions(g, &s, wrap_index(c, c->in[1], axis), axis);
	note_repeats(c, index, count_of(&s));
	Ref x = scatter_rows(c, flatten(g, c->in[0]), index, flatten(g, c->in[2]));
	c->out[0] = put_reshape(g, x, s);
}

// Index tuples (the last axis of `index`) as positions along the first `k` axes of s, taken as one.
static Ref tuple_positions(Call *c, const Shape *s, int first, Ref index)
{
	Graph *g = c->g;
	int last = val(g, index)->shape.rank - 1;
	int k = (int)val(g, index)->shape.dim[last];
	if (first + k > s->rank)
		refuse(c, "index tuples of %d into %d dimensions", k, s->rank);
	Shape at = val(g, index)->shape;
	at.rank--;
	Ref sum = put_expand(g, put_rank(g, put_num(g, E_i64, 0), at.rank), at);
	for (int j = 0; j < k; j++) {
		Ref part = put_reshape(g, take_range(g, index, last, j, 1), at);
		part = wrap_index(c, part, first + j);
		sum = put2(g, O_mul, sum, put_num(g, E_i64, (double)s->dim[first + j]));
		sum = put2(g, O_add, sum, part);
	}
	return sum;
}

// Operand 2 with as many entries as there are places, where it may have more.
static Ref cut_updates(Call *c, Shape places)
{
	Ref x = c->in[2];
	for (int a = 0; a < places.rank; a++)
		if (val(c->g, x)->shape.rank > a && val(c->g, x)->shape.dim[a] > places.dim[a] &&
		    count_along(c, 2, a))
			x = take_range(c->g, x, a, 0, places.dim[a]);
	return x;
}

void lower_scatter_nd(Call *c)
{
	Graph *g = c->g;
	Shape s = in_val(c, 0)->shape;
	in_val(c, 2);
	Ref index = put_cast(g, (in_val(c, 1), c->in[1]), E_i64);
	int k = (int)val(g, index)->shape.dim[val(g, index)->shape.rank - 1];
	Ref at = tuple_positions(c, &s, 0, index);
	Ref rows = merge_axes(g, c->in[0], 0, k);
	Shape update = val(g, rows)->shape;
	update.dim[0] = count_of(&val(g, at)->shape);
	Ref new = cut_updates(c, val(g, at)->shape);
	c->out[0] = put_reshape(g, scatter_rows(c, rows, at, put_reshape(g, new, update)), s);
}

void lower_gather_nd(Call *c)
{
	Graph *g = c->g;
	Shape s = in_val(c, 0)->shape;
	in_val(c, 1);
	int batch = (int)attr_int(c, "batch_dims", 0);
	Ref index = put_cast(g, c->in[1], E_i64);
	Shape is = val(g, index)->shape;
	if (batch < 0 || batch >= is.rank || batch > s.rank)
		refuse(c, "batch_dims %d", batch);
	int k = (int)is.dim[is.rank - 1];
	Ref at = tuple_positions(c, &s, batch, index);
	int64_t inner = 1;
	for (int a = batch; a < batch + k; a++)
		inner *= s.dim[a];
	for (int a = batch - 1; a >= 0; inner *= s.dim[a--]) {
		Ref row = put_iota(g, val(g, at)->shape, a);
		at = put2(g, O_add, at, put2(g, O_mul, row, put_num(g, E_i64, (double)inner)));
	}
	c->out[0] = put_gather(g, merge_axes(g, c->in[0], 0, batch + k), at, 0);
}

// ---- made from shapes alone -----------------------------------------------------------

void lower_shape(Call *c)
{
	Shape s = in_val(c, 0)->shape;
	int64_t start = attr_int(c, "start", 0), end = attr_int(c, "end", s.rank);
	start = clamp(start < 0 ? start + s.rank : start, 0, s.rank);
	end = clamp(end < 0 ? end + s.rank : end, 0, s.rank);
	if (!c->arg[0].counts || end <= start) {
		c->out[0] = put_ints(c->g, (int)MAX(end - start, 0), s.dim + start);
		return;
	}
	Ref size[RANK];
	for (int64_t a = start; a < end; a++)
		size[a] = put_rank(c->g, length_along(c, 0, (int)a), 1);
	c->out[0] = put_concat(c->g, 0, (int)(end - start), size + start);
}

void lower_size(Call *c)
{
	Ref n = put_num(c->g, E_i64, 1);
	for (int a = 0; a < in_val(c, 0)->shape.rank; a++)
		n = put2(c->g, O_mul, n, length_along(c, 0, a));
	c->out[0] = n;
}

void lower_constant_of_shape(Call *c)
{
	int n = 0;
	const Extent *size = extents_of(c, 0, "", &n);
	const AttributeProto *a = find_attr(c, "value");
	Ref x = a && a->t ? tensor_constant(c->r, a->t) : put_num(c->g, E_f32, 0);
	want_rank(c, n);
	if (!size || count_of(&val(c->g, x)->shape) != 1)
		refuse(c, "wants a shape and one value");
	Shape s = {.rank = n};
	for (int i = 0; i < n; i++) {
		s.dim[i] = size[i].most;
		c->counts[0].of[i] = size[i].count;
		if (s.dim[i] < 0)
			refuse(c, "dimension %lld", (long long)s.dim[i]);
	}
	x = put_rank(c->g, put_reshape(c->g, x, shape_of(0, NULL)), n);
	c->out[0] = put_expand(c->g, x, s);
}

// Truth of (row + shift <=> column) over the last two axes.
static Ref triangle(Graph *g, const Shape *s, Ref shift, bool upper)
{
	Shape flat = *s;
	for (int a = 0; a < s->rank - 2; a++)
		flat.dim[a] = 1;
	Ref row = put2(g, O_add, put_iota(g, flat, s->rank - 2), shift);
	Ref column = put_iota(g, flat, s->rank - 1);
	return upper ? put2(g, O_le, row, column) : put2(g, O_le, column, row);
}

void lower_trilu(Call *c)
{
	Shape s = in_val(c, 0)->shape;
	if (s.rank < 2)
		refuse(c, "wants a matrix");
	int n = 0;
	const Ref *k = entries_of(c, 1, "", &n);
	Ref shift = k && n ? k[0] : put_num(c->g, E_i64, 0), far = put_num(c->g, E_i64, 1 << 30);
	shift = smaller_of(c->g, larger_of(c->g, shift, put1(c->g, O_neg, far)), far);
	Ref keep = triangle(c->g, &s, shift, attr_int(c, "upper", 1));
	c->out[0] = put3(c->g, O_select, keep, c->in[0], num_like(c->g, c->in[0], 0));
}

void lower_eye_like(Call *c)
{
	const Val *x = in_val(c, 0);
	Shape s = x->shape;
	if (s.rank != 2)
		refuse(c, "wants a matrix");
	const AttributeProto *a = find_attr(c, "dtype");
	int type = a ? working_type((int)a->i) : (int)x->type;
	Ref row = put_iota(c->g, s, 0), column = put_iota(c->g, s, 1);
	row = put2(c->g, O_add, row, put_num(c->g, E_i64, (double)attr_int(c, "k", 0)));
	c->out[0] = put_cast(c->g, put2(c->g, O_eq, row, column), type < 0 ? E_f32 : (Elem)type);
}

void lower_one_hot(Call *c)
{
	Graph *g = c->g;
	Shape s = in_val(c, 0)->shape;
	int n = 0;
	const double *depth = operand_numbers(c, 1, &n);
	if (!depth || n != 1 || !(depth[0] >= 1 && depth[0] < 1e9) || s.rank >= RANK)
		refuse(c, "the depth is not a positive number");
	int axis = (int)axis_of(c, attr_int(c, "axis", -1), s.rank + 1);
	Ref index = insert_axis(g, put_cast(g, c->in[0], E_i64), axis);
	Ref size = put_num(g, E_i64, depth[0]), zero = put_num(g, E_i64, 0);
	index = put3(g, O_select, put2(g, O_lt, index, zero), put2(g, O_add, index, size), index);
	Shape at = val(g, index)->shape;
	at.dim[axis] = (int64_t)depth[0];
	Ref hit = put2(g, O_eq, put_iota(g, at, axis), index);
	if (count_of(&in_val(c, 2)->shape) != 2)
		refuse(c, "wants two values: off and on");
	Ref off = put_reshape(g, take_range(g, c->in[2], 0, 0, 1), shape_of(0, NULL));
	Ref on = put_reshape(g, take_range(g, c->in[2], 0, 1, 1), shape_of(0, NULL));
	c->out[0] = put3(g, O_select, hit, on, off);
}

// Entry t of sample b is entry length[b] - 1 - t, as far as the sample goes: rows (t, b) gathered.
void lower_reverse_sequence(Call *c)
{
	Graph *g = c->g;
	Shape s = in_val(c, 0)->shape;
	in_val(c, 1);
	int time = (int)axis_of(c, attr_int(c, "time_axis", 0), s.rank),
	    batch = (int)axis_of(c, attr_int(c, "batch_axis", 1), s.rank);
	if (time + batch != 1 || s.rank < 2)
		refuse(c, "wants time and batch as its first two axes");
	Ref x = time ? move_axis(g, c->in[0], 1, 0) : c->in[0];
	int64_t at[] = {s.dim[time], s.dim[batch]}, each[] = {1, s.dim[batch]};
	Shape grid = shape_of(2, at);
	Ref t = put_iota(g, grid, 0), length = put_cast(g, c->in[1], E_i64);
	length = put_reshape(g, length, shape_of(2, each));
	Ref place = book_call1(g, "reversed_place", 2, (Ref[]){t, length}, 0, NULL);
	place = put2(g, O_mul, place, put_num(g, E_i64, (double)at[1]));
	place = merge_axes(g, put2(g, O_add, place, put_iota(g, grid, 1)), 0, 2);
	Shape full = val(g, x)->shape;
	Ref rows = put_reshape(g, put_gather(g, merge_axes(g, x, 0, 2), place, 0), full);
	c->out[0] = time ? move_axis(g, rows, 0, 1) : rows;
}
