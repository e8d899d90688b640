// eval_reduce.c: evaluates reductions, running sums and dots.
// Invariant: elements are taken in row-major order.
#include "eval.h"

static void eval_argmax(int axis, Array *out, const Array *in)
{
	int64_t stride[RANK], at[RANK] = {0}, i = 0;
	row_strides(&in->shape, stride);
	do {
		int64_t first = element_offset(in->shape.rank, at, stride), best = 0;
		for (int64_t k = 1; k < in->shape.dim[axis]; k++) {
			int64_t a = first + k * stride[axis], b = first + best * stride[axis];
			bool larger = is_float(in->type) ? in->f[a] > in->f[b]
			                                 : int_less(in->type, in->i[b], in->i[a]);
			best = larger ? k : best;
		}
		out->i[i++] = best;
	} while (next_index(&out->shape, at));
}

static void eval_cumsum(const Attr *attr, Array *out, const Array *in)
{
	bool exclusive = attr->i[1], reverse = attr->i[2];
	Shape lines = reduced_shape(&in->shape, 1, attr->i);
	int64_t stride[RANK], at[RANK] = {0}, size = in->shape.dim[attr->i[0]];
	row_strides(&in->shape, stride);
	int64_t step = stride[attr->i[0]] * (reverse ? -1 : 1);
	do {
		int64_t i = element_offset(in->shape.rank, at, stride);
		i += reverse ? (1 - size) * step : 0;
		for (int64_t k = 0; k < size; k++, i += step) {
			if (k)
				copy_element(out, i, out, i - step);
			if (k || !exclusive)
				combine_element(O_add, out, i, in, exclusive ? i - step : i);
		}
	} while (next_index(&lines, at));
}

void eval_reduce(Op op, const Attr *attr, Array *out, const Array *in)
{
	if (op == O_cumsum) {
		eval_cumsum(attr, out, in);
		return;
	}
	if (op == O_argmax) {
		eval_argmax((int)attr->i[0], out, in);
		return;
	}
	int64_t stride[RANK] = {0}, at[RANK] = {0}, count = count_of(&in->shape), i = 0, length;
	Shape lines = lines_of(&in->shape, &length);
	bool extreme = op == O_amax || op == O_amin; // starts with any of its elements
	broadcast_strides(&out->shape, in->shape.rank, stride);
	for (int64_t k = 0, n = count_of(&out->shape); k < n; k++)
		set_float(out, k, op == O_prod);
	for (; extreme && i < count; i++, next_index(&in->shape, at))
		copy_element(out, element_offset(in->shape.rank, at, stride), in, i);
	for (i = 0; i < count; next_index(&lines, at)) {
		int64_t to = element_offset(lines.rank, at, stride);
		for (int64_t j = 0; j < length; j++, to += stride[lines.rank])
			combine_element(reducers[op].step, out, to, in, i++);
	}
}

void eval_dot(Array *out, const Array *a, const Array *b)
{
	int r = out->shape.rank;
	int64_t sa[RANK], sb[RANK], at[RANK] = {0}, own[RANK], columns;
	int64_t depth = a->shape.dim[r - 1];
	Shape lines = lines_of(&out->shape, &columns);
	double *line = out->f; // zeros
	broadcast_strides(&a->shape, r, sa);
	broadcast_strides(&b->shape, r, sb);
	row_strides(&b->shape, own);
	int64_t down = own[r - 2];
	sb[r - 2] = 0;
	do {
		const double *x = a->f + element_offset(lines.rank, at, sa),
		             *y = b->f + element_offset(lines.rank, at, sb);
		for (int64_t k = 0; k < depth; k++)
			for (int64_t j = 0; j < columns; j++)
				line[j] += x[k] * y[k * down + j];
		line += columns;
	} while (next_index(&lines, at));
}
