// eval_reduce.c: evaluates reductions, running sums and dots.
// Invariant: elements are taken in row-major order.
#include "eval.h"
#include <math.h>

// By reduction: the map of two elements.
static const Op steps[OPS] = {
    [O_sum] = O_add, [O_prod] = O_mul, [O_amax] = O_max, [O_amin] = O_min};

void eval_reduce(Op op, Array *out, const Array *in)
{
	int64_t stride[RANK], at[RANK] = {0}, i = 0;
	bool sign = is_signed(out->type);
	double start = op == O_prod ? 1 : op == O_amax ? -INFINITY : op == O_amin ? INFINITY : 0;
	int64_t int_start = op == O_amax   ? (sign ? INT64_MIN : 0)
	                    : op == O_amin ? (sign ? INT64_MAX : -1)
	                                   : op == O_prod;
	broadcast_strides(&out->shape, in->shape.rank, stride);
	for (int64_t k = 0; k < count_of(&out->shape); k++) {
		if (is_float(out->type))
			out->f[k] = start;
		else
			out->i[k] = int_start;
	}
	if (count_of(&in->shape) == 0)
		return;
	do {
		int64_t to = element_offset(in->shape.rank, at, stride);
		if (is_float(out->type))
			out->f[to] = float_map(steps[op], out->f[to], in->f[i]);
		else
			out->i[to] = wrap_int(out->type,
			                      int_map(steps[op], out->type, out->i[to], in->i[i]));
		i++;
	} while (next_index(&in->shape, at));
}

void eval_argmax(int axis, Array *out, const Array *in)
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

void eval_cumsum(const Attr *attr, Array *out, const Array *in)
{
	int axis = (int)attr->i[0];
	bool exclusive = attr->i[1], reverse = attr->i[2];
	Shape lines = reduced_shape(&in->shape, 1, attr->i);
	int64_t stride[RANK], at[RANK] = {0}, size = in->shape.dim[axis];
	row_strides(&in->shape, stride);
	do {
		int64_t first = element_offset(in->shape.rank, at, stride), whole = 0;
		double sum = 0;
		for (int64_t k = 0; k < size; k++) {
			int64_t i = first + (reverse ? size - 1 - k : k) * stride[axis];
			if (is_float(in->type)) {
				double before = sum;
				sum += in->f[i];
				out->f[i] = exclusive ? before : sum;
			} else {
				int64_t before = whole;
				whole =
				    wrap_int(in->type, int_map(O_add, in->type, whole, in->i[i]));
				out->i[i] = exclusive ? before : whole;
			}
		}
	} while (next_index(&lines, at));
}

void eval_dot(Array *out, const Array *a, const Array *b)
{
	int r = out->shape.rank;
	int64_t sa[RANK], sb[RANK], at[RANK] = {0}, i = 0, own[RANK];
	int64_t depth = a->shape.dim[r - 1];
	if (count_of(&out->shape) == 0)
		return;
	broadcast_strides(&a->shape, r, sa);
	broadcast_strides(&b->shape, r, sb);
	row_strides(&b->shape, own);
	int64_t down = own[r - 2];
	sa[r - 1] = sb[r - 2] = 0;
	do {
		const double *x = a->f + element_offset(r, at, sa),
		             *y = b->f + element_offset(r, at, sb);
		double sum = 0;
		for (int64_t k = 0; k < depth; k++)
			sum += x[k] * y[k * down];
		out->f[i++] = sum;
	} while (next_index(&out->shape, at));
}
