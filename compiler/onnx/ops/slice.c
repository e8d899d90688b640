// slice.c: lowers Slice, Split and Concat.
// If an end depends on the data, the result has a dynamic length.
#include "ops.h"
#include <string.h>

static int64_t clamp(int64_t x, int64_t low, int64_t high)
{
	return MIN(MAX(x, low), high); // `high` if the axis is empty
}

// start:end:step along one axis, whose ends may lie far outside: as numpy's, but that a start
// before the first entry, going down, is the first.
static Ref take_range_by(Graph *g, Ref x, int axis, int64_t start, int64_t end, int64_t step)
{
	int64_t d = val(g, x)->shape.dim[axis];
	start = clamp(start < 0 ? start + d : start, 0, step < 0 ? d - 1 : d);
	end = clamp(end < 0 ? end + d : end, step < 0 ? -1 : 0, step < 0 ? d - 1 : d);
	int64_t span = step > 0 ? end - start : start - end, size = step > 0 ? step : -step;
	int64_t count = span > 0 ? (span - 1) / size + 1 : 0;
	return take_steps(g, x, axis, count ? start : 0, count, step);
}

// A place at which a slice begins or ends, from `least` to length, or to length - 1 going down.
static Ref slice_place(Graph *g, Ref at, Ref length, int64_t least, bool down)
{
	at = larger_of(g, from_end(g, at, length), put_i64(g, least));
	return smaller_of(g, at, put2(g, O_sub, length, put_i64(g, down)));
}

// `most` entries from `start`, `step` apart; those outside repeat the first or the last.
static Ref gather_steps(Graph *g, Ref x, int axis, Ref start, int64_t most, int64_t step)
{
	int64_t d = val(g, x)->shape.dim[axis];
	Ref at = put2(g, O_mul, put_iota(g, shape_of(1, &most), 0), put_i64(g, step));
	at = smaller_of(g, put2(g, O_add, at, start), put_i64(g, d - 1));
	return put_gather(g, x, larger_of(g, at, put_i64(g, 0)), axis);
}

// The same where places, or how long the axis is, depend on the data.
static Ref take_dynamic(Call *c, Ref x, int axis, Ref start, Ref end, int64_t step)
{
	Graph *g = c->g;
	bool down = step < 0;
	int64_t d = val(g, x)->shape.dim[axis], size = down ? -step : step;
	Ref length = put_length(g, x, axis);
	start = slice_place(g, start, length, 0, down);
	end = slice_place(g, end, length, down ? -1 : 0, down);
	Ref count = down ? put2(g, O_sub, start, end) : put2(g, O_sub, end, start);
	count = put2(g, O_add, count, put_i64(g, size - 1));
	count = larger_of(g, put2(g, O_div, count, put_i64(g, size)), put_i64(g, 0));
	BoundedSize extent = extent_of(c, count, "how long it is");
	extent.most = MIN(extent.most, (d + size - 1) / size);
	x = put_padded(g, x, axis);
	if (is_const(g, start) && !down) {
		int64_t from = const_int_at(val(g, start), 0);
		extent.most = MIN(extent.most, (d - from + step - 1) / step);
		x = take_steps(g, x, axis, extent.most ? from : 0, extent.most, step);
	} else {
		x = gather_steps(g, x, axis, start, extent.most, step);
	}
	return extent.count ? put_valid(g, x, axis, extent.count) : x;
}

void lower_slice(Call *c)
{
	Graph *g = c->g;
	int rank = in_val(c, 0)->shape.rank, n = 0, nend = 0, naxes = 0, nsteps = 0;
	const Ref *start = entries_of(c, 1, "starts", &n), *end = entries_of(c, 2, "ends", &nend);
	const int64_t *axes = ints_of(c, 3, "axes", &naxes), *steps = operand_ints(c, 4, &nsteps);
	if (!start || !end || n != nend || (axes && naxes != n) || (steps && nsteps != n) ||
	    n > rank)
		invalid_node(c, "starts, ends, axes and steps differ in number");
	axes = axes_of(c, axes, n, rank);
	Ref x = c->in[0];
	for (int i = 0; i < n; i++) {
		int axis = (int)axes[i];
		int64_t d = val(g, x)->shape.dim[axis], longest = MAX(d, 1); // reaches the end
		int64_t step = clamp(steps ? steps[i] : 1, -longest, longest);
		if (!step)
			invalid_node(c, "a step of 0");
		if (!size_along(g, x, axis).count && is_const(g, start[i]) && is_const(g, end[i]))
			x = take_range_by(g, x, axis, const_int_at(val(g, start[i]), 0),
			                  const_int_at(val(g, end[i]), 0), step);
		else
			x = take_dynamic(c, x, axis, start[i], end[i], step);
	}
	c->out[0] = x;
}

void split_axis(Call *c, int axis, int n, const int64_t *size, int64_t each, Ref *part)
{
	int64_t d = in_val(c, 0)->shape.dim[axis], at = 0;
	for (int i = 0; i < n; i++) {
		int64_t count = size ? size[i] : MIN(each, d - at);
		if (count < 0 || at + count > d)
			invalid_node(c, "the parts do not fit into %lld", (long long)d);
		part[i] = take_range(c->g, c->in[0], axis, at, count);
		at += count;
	}
}

void lower_split(Call *c)
{
	Graph *g = c->g;
	Shape s = in_val(c, 0)->shape;
	int axis = (int)axis_of(c, attr_int(c, "axis", 0), s.rank), n = 0;
	int64_t d = s.dim[axis];
	const Ref *size = c->nin > 1 && !c->arg[1].absent ? entries_of(c, 1, "", &n) : NULL;
	bool known = true;
	for (int i = 0; i < n; i++)
		known &= is_const(g, size[i]);
	if (!known && n == c->nout) { // the data decide how long the parts are
		Ref start = put_i64(g, 0), x = put_padded(g, c->in[0], axis);
		for (int i = 0; i < n; i++) {
			Ref count = larger_of(g, size[i], put_i64(g, 0));
			count = smaller_of(g, count, put_i64(g, d));
			BoundedSize extent = extent_of(c, count, "how long a part is");
			Ref part = gather_steps(g, x, axis, start, extent.most, 1);
			c->out[i] = extent.count ? put_valid(g, part, axis, extent.count) : part;
			start = put2(g, O_add, start, count);
		}
		return;
	}
	if (size_along(g, c->in[0], axis).count)
		expect_fixed(c, 0);
	if (attr_int(c, "num_outputs", c->nout) != c->nout)
		invalid_node(c, "num_outputs is %lld; the node has %d",
		             (long long)attr_int(c, "num_outputs", 0), c->nout);
	const int64_t *sizes = ints_of(c, 1, "split", &n);
	if (sizes && n != c->nout)
		invalid_node(c, "%d %s for %d %s", n, PLURAL(n, "size", "sizes"), c->nout,
		             PLURAL(c->nout, "result", "results"));
	split_axis(c, axis, c->nout, sizes, (d + c->nout - 1) / MAX(c->nout, 1), c->out);
}

void lower_concat(Call *c)
{
	int rank = in_val(c, 0)->shape.rank, n = 0;
	int axis = (int)axis_of(c, attr_int(c, "axis", 1), rank);
	Ref *x = NEWS(c->r->arena, Ref, c->nin);
	for (int k = 0; k < c->nin; k++) {
		const Val *v = in_val(c, k);
		if (v->shape.rank != rank)
			invalid_node(c, "inputs of rank %d and %d", rank, v->shape.rank);
		if (v->shape.dim[axis] || (k == c->nin - 1 && !n))
			x[n++] = c->in[k];
	}
	c->out[0] = n == 1 ? x[0] : put_concat(c->g, axis, n, x);
}

// Result 1: how many entries of the axis each operand has.
void lower_concat_sizes(Call *c)
{
	int axis = (int)axis_of(c, attr_int(c, "axis", 0), in_val(c, 0)->shape.rank);
	int64_t *sizes = NEWS(c->r->arena, int64_t, c->nin);
	lower_concat(c);
	for (int k = 0; k < c->nin; k++)
		sizes[k] = in_val(c, k)->shape.dim[axis];
	if (c->nout > 1)
		c->out[1] = put_ints(c->g, c->nin, sizes);
}

// Inputs: the result's scale and zero point, then values with theirs.
void lower_qlinear_concat(Call *c)
{
	Graph *g = c->g;
	int n = (c->nin - 2) / 3;
	Ref in[n + 1], out[c->nout + 1];
	if (n < 1 || c->nin != 2 + 3 * n)
		invalid_node(c, "%d %s; expected 2, and 3 for each value", c->nin,
		             PLURAL(c->nin, "input", "inputs"));
	for (int k = 0; k < n; k++)
		in[k] = book_call1(g, "real", 3, c->in + 2 + 3 * k, 0, NULL);
	Call concat = *c;
	concat.nin = n;
	concat.in = in;
	concat.out = out;
	lower_concat(&concat);
	Ref scale = book_call1(g, "column", 1, c->in, 0, NULL),
	    zero = put_cast(g, book_call1(g, "single", 1, c->in + 1, 0, NULL), E_f32);
	c->onnx = operand_type(c, 1);
	c->out[0] = quantized(c, out[0], scale, zero, c->onnx, true);
}
