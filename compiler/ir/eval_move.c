// eval_move.c: evaluates moves, gather and scatter.
#include "eval.h"

// ---- moves ----------------------------------------------------------------------------

typedef struct Source {                // of an element of the result: by axis of the operand
	int64_t index[RANK], up[RANK]; // index times up; the fill where up does not divide it
} Source;

// Indices are linear in `at`.
static Source find_source(Op op, const Attr *attr, const Shape *from, const int64_t *at)
{
	Source s;
	for (int a = 0; a < from->rank; a++) {
		s.up[a] = 1;
		if (op == O_slice)
			s.index[a] = slice_axes(attr)[a].start + at[a] * slice_axes(attr)[a].step;
		else if (op == O_permute)
			s.index[attr->i[a]] = at[a];
		else if (op == O_expand)
			s.index[a] = from->dim[a] == 1 ? 0 : at[a];
		else
			s.index[a] = op == O_pad ? at[a] - attr->i[2 * a] : at[a];
	}
	WindowAxes windows = window_axes(attr);
	for (int k = 0; op == O_window && k < windows.n; k++) {
		const WindowAxis *w = &windows.at[k];
		s.index[w->axis] =
		    at[w->axis] * w->stride + at[from->rank + k] * w->dilation - w->before;
		s.up[w->axis] = w->up;
	}
	return s;
}

static bool is_inside(const Source *s, int a, const Shape *from)
{
	int64_t index = s->index[a];
	return index >= 0 && index % s->up[a] == 0 && index / s->up[a] < from->dim[a];
}

// Copies a line of the result, along its last axis, along which one axis of the operand moves by
// `step`, or none (-1), by 0.
static void move_line(Array *out, int64_t to, int64_t length, double fill, const Array *in,
                      const Source *s, int axis, int64_t step)
{
	int64_t stride[RANK], first = 0;
	bool inside = true;
	row_strides(&in->shape, stride);
	for (int a = 0; a < in->shape.rank; a++)
		if (a != axis) {
			inside &= is_inside(s, a, &in->shape);
			first += s->index[a] / s->up[a] * stride[a];
		}
	int64_t index = axis < 0 ? 0 : s->index[axis], up = axis < 0 ? 1 : s->up[axis],
	        dim = axis < 0 ? 1 : in->shape.dim[axis], apart = axis < 0 ? 0 : stride[axis];
	for (int64_t j = 0; j < length; j++, index += step) {
		int64_t i = up == 1 ? index : index / up;
		if (inside && index >= 0 && i < dim && i * up == index)
			copy_element(out, to + j, in, first + i * apart);
		else
			set_float(out, to + j, fill);
	}
}

static void copy_lines(Op op, const Attr *attr, Array *out, const Array *in)
{
	int64_t at[RANK] = {0}, to = 0, step = 0, length;
	Shape lines = lines_of(&out->shape, &length);
	int axis = -1;
	Source s = find_source(op, attr, &in->shape, at);
	at[lines.rank] = 1;
	Source next = find_source(op, attr, &in->shape, at);
	at[lines.rank] = 0;
	for (int a = 0; a < in->shape.rank; a++)
		if (next.index[a] != s.index[a]) {
			axis = a;
			step = next.index[a] - s.index[a];
		}
	do {
		s = find_source(op, attr, &in->shape, at);
		move_line(out, to, length, attr->x, in, &s, axis, step);
		to += length;
	} while (next_index(&lines, at));
}

static void eval_concat(int axis, Array *out, int nin, const Array *in)
{
	int64_t stride[RANK], start = 0, length;
	row_strides(&out->shape, stride);
	for (int k = 0; k < nin; k++) {
		int64_t at[RANK] = {0}, count = count_of(&in[k].shape);
		Shape lines = lines_of(&in[k].shape, &length);
		for (int64_t i = 0; i < count; next_index(&lines, at)) {
			int64_t to = start * stride[axis] + element_offset(lines.rank, at, stride);
			for (int64_t j = 0; j < length; j++)
				copy_element(out, to + j, &in[k], i++);
		}
		start += in[k].shape.dim[axis];
	}
}

void eval_move(Op op, const Attr *attr, Array *out, int nin, const Array *in)
{
	if (op == O_concat)
		eval_concat((int)attr->i[0], out, nin, in);
	else if (op != O_reshape)
		copy_lines(op, attr, out, in);
	else
		for (int64_t i = 0, n = count_of(&out->shape); i < n; i++)
			copy_element(out, i, in, i);
}

// ---- gather and scatter ---------------------------------------------------------------

void eval_index(Op op, const Attr *attr, Array *out, const Array *in)
{
	static const Op modes[] = {O_const, O_add, O_mul, O_min, O_max};
	const Shape *x = &in[0].shape, *picked = op == O_gather ? &out->shape : &in[2].shape;
	int axis = (int)attr->i[0], wide = in[1].shape.rank;
	int64_t at[RANK] = {0}, stride[RANK], index_stride[RANK], count = count_of(picked);
	row_strides(x, stride);
	row_strides(&in[1].shape, index_stride);
	for (int64_t i = 0, n = count_of(x); op == O_scatter && i < n; i++)
		copy_element(out, i, &in[0], i);
	for (int64_t i = 0; i < count; i++, next_index(picked, at)) {
		int64_t index = in[1].i[element_offset(wide, at + axis, index_stride)];
		if (index < 0 || index >= x->dim[axis])
			fail(prims[op].name, "index out of range of an axis of size %lld",
			     (long long)x->dim[axis]);
		int64_t offset = index * stride[axis];
		for (int a = 0; a < x->rank; a++)
			if (a != axis)
				offset += at[a < axis ? a : a - 1 + wide] * stride[a];
		if (op == O_gather)
			copy_element(out, i, &in[0], offset);
		else if (attr->i[1] == 0)
			copy_element(out, offset, &in[2], i);
		else
			combine_element(modes[attr->i[1]], out, offset, &in[2], i);
	}
}
