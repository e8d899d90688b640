// eval_move.c: evaluates moves, gather and scatter.
#include "eval.h"
#include <string.h>

// ---- moves ----------------------------------------------------------------------------

// Returns the operand's offset of element `at` of the result, or -1 for the fill.
static int64_t source(Op op, const Attr *attr, const Shape *from, const int64_t *at)
{
	int64_t stride[RANK], sum = 0;
	row_strides(from, stride);
	for (int a = 0; a < from->rank; a++) {
		int64_t i = at[a], axis = op == O_permute ? attr->i[a] : a;
		if (op == O_slice)
			i = attr->i[3 * a] + i * attr->i[3 * a + 2];
		else if (op == O_expand)
			i = from->dim[a] == 1 ? 0 : i;
		else if (op == O_pad)
			i -= attr->i[2 * a];
		if (i < 0 || i >= from->dim[axis])
			return -1;
		sum += i * stride[axis];
	}
	return sum;
}

// The same for window: element (o, k) of a windowed axis is operand index (o stride + k dilation -
// before) / up.
static int64_t window_source(const Attr *attr, const Shape *from, const int64_t *at)
{
	int64_t stride[RANK], index[RANK];
	row_strides(from, stride);
	memcpy(index, at, sizeof *at * (size_t)from->rank);
	for (int k = 0; k < attr->n / 7; k++) {
		const int64_t *w = attr->i + 7 * k;
		int64_t i = at[w[0]] * w[3] + at[from->rank + k] * w[4] - w[5];
		if (i < 0 || i % w[6] || i / w[6] >= from->dim[w[0]])
			return -1;
		index[w[0]] = i / w[6];
	}
	return element_offset(from->rank, index, stride);
}

void eval_move(Op op, const Attr *attr, Array *out, const Array *in)
{
	int64_t at[RANK] = {0}, i = 0;
	if (count_of(&out->shape) == 0)
		return;
	do {
		int64_t k = op == O_reshape  ? i
		            : op == O_window ? window_source(attr, &in->shape, at)
		                             : source(op, attr, &in->shape, at);
		if (k >= 0)
			copy_element(out, i, in, k);
		else
			set_float(out, i, attr->x);
		i++;
	} while (next_index(&out->shape, at));
}

void eval_concat(int axis, Array *out, int nin, const Array *in)
{
	int64_t stride[RANK], start = 0;
	row_strides(&out->shape, stride);
	for (int k = 0; k < nin; k++) {
		int64_t at[RANK] = {0}, i = 0;
		if (count_of(&in[k].shape) > 0)
			do {
				int64_t to = element_offset(out->shape.rank, at, stride) +
				             start * stride[axis];
				copy_element(out, to, &in[k], i++);
			} while (next_index(&in[k].shape, at));
		start += in[k].shape.dim[axis];
	}
}

// ---- gather and scatter ---------------------------------------------------------------

// An iteration over the elements of gather's result.
typedef struct GatherWalk {
	const Array *index;
	Shape x, picked;
	int axis;
	int64_t at[RANK], stride[RANK], index_stride[RANK];
} GatherWalk;

static GatherWalk gather_walk(const Array *x, const Array *index, int axis, const Shape *picked)
{
	GatherWalk p = {.index = index, .x = x->shape, .picked = *picked, .axis = axis};
	row_strides(&p.x, p.stride);
	row_strides(&index->shape, p.index_stride);
	return p;
}

// Returns the offset in x of the element at p->at; fails if the index is out of range.
static int64_t gather_offset(const GatherWalk *p, Op op)
{
	int wide = p->index->shape.rank;
	int64_t index = p->index->i[element_offset(wide, p->at + p->axis, p->index_stride)];
	if (index < 0 || index >= p->x.dim[p->axis])
		fail(prims[op].name, "index out of range of an axis of size %lld",
		     (long long)p->x.dim[p->axis]);
	int64_t offset = index * p->stride[p->axis];
	for (int a = 0; a < p->x.rank; a++)
		if (a != p->axis)
			offset += p->at[a < p->axis ? a : a - 1 + wide] * p->stride[a];
	return offset;
}

void eval_gather(const Attr *attr, Array *out, const Array *in)
{
	GatherWalk p = gather_walk(&in[0], &in[1], (int)attr->i[0], &out->shape);
	int64_t i = 0;
	do {
		copy_element(out, i++, &in[0], gather_offset(&p, O_gather));
	} while (next_index(&p.picked, p.at));
}

static void combine(int64_t mode, Array *out, int64_t to, const Array *update, int64_t i)
{
	static const Op how[] = {O_const, O_add, O_mul, O_min, O_max};
	if (mode == 0)
		copy_element(out, to, update, i);
	else if (is_float(out->type))
		out->f[to] = float_map(how[mode], out->f[to], update->f[i]);
	else
		out->i[to] =
		    wrap_int(out->type, int_map(how[mode], out->type, out->i[to], update->i[i]));
}

void eval_scatter(const Attr *attr, Array *out, const Array *in)
{
	for (int64_t i = 0; i < count_of(&out->shape); i++)
		copy_element(out, i, &in[0], i);
	if (count_of(&in[2].shape) == 0)
		return;
	GatherWalk p = gather_walk(&in[0], &in[1], (int)attr->i[0], &in[2].shape);
	int64_t i = 0;
	do {
		combine(attr->i[1], out, gather_offset(&p, O_scatter), &in[2], i++);
	} while (next_index(&p.picked, p.at));
}
