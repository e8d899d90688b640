// eval_move.c: evaluates moves, gather and scatter.
#include "eval.h"

// ---- moves ----------------------------------------------------------------------------

// Returns the operand's offset of element `at` of the result, or -1 for the fill.
static int64_t source(Op op, const Attr *attr, const Shape *from, const int64_t *at)
{
	int64_t stride[RANK], index[RANK], sum = 0;
	row_strides(from, stride);
	for (int a = 0; a < from->rank; a++)
		if (op == O_slice)
			index[a] = attr->i[3 * a] + at[a] * attr->i[3 * a + 2];
		else if (op == O_permute)
			index[attr->i[a]] = at[a];
		else if (op == O_expand)
			index[a] = from->dim[a] == 1 ? 0 : at[a];
		else
			index[a] = op == O_pad ? at[a] - attr->i[2 * a] : at[a];
	// Element (o, k) of a windowed axis is operand index (o stride + k dilation - before) / up.
	for (int k = 0; op == O_window && k < attr->n / 7; k++) {
		const int64_t *w = attr->i + 7 * k;
		int64_t i = at[w[0]] * w[3] + at[from->rank + k] * w[4] - w[5];
		index[w[0]] = i % w[6] ? -1 : i / w[6];
	}
	for (int a = 0; a < from->rank; a++) {
		if (index[a] < 0 || index[a] >= from->dim[a])
			return -1;
		sum += index[a] * stride[a];
	}
	return sum;
}

static void eval_concat(int axis, Array *out, int nin, const Array *in)
{
	int64_t stride[RANK], start = 0;
	row_strides(&out->shape, stride);
	for (int k = 0; k < nin; k++) {
		int64_t at[RANK] = {0}, first = start * stride[axis];
		for (int64_t i = 0; i < count_of(&in[k].shape); next_index(&in[k].shape, at))
			copy_element(out, first + element_offset(out->shape.rank, at, stride),
			             &in[k], i++);
		start += in[k].shape.dim[axis];
	}
}

void eval_move(Op op, const Attr *attr, Array *out, int nin, const Array *in)
{
	if (op == O_concat) {
		eval_concat((int)attr->i[0], out, nin, in);
		return;
	}
	int64_t at[RANK] = {0}, i = 0;
	do {
		int64_t k = op == O_reshape ? i : source(op, attr, &in->shape, at);
		if (k >= 0)
			copy_element(out, i, in, k);
		else
			set_float(out, i, attr->x);
		i++;
	} while (next_index(&out->shape, at));
}

// ---- gather and scatter ---------------------------------------------------------------

void eval_index(Op op, const Attr *attr, Array *out, const Array *in)
{
	static const Op modes[] = {O_const, O_add, O_mul, O_min, O_max};
	const Shape *x = &in[0].shape, *picked = op == O_gather ? &out->shape : &in[2].shape;
	int axis = (int)attr->i[0], wide = in[1].shape.rank;
	int64_t at[RANK] = {0}, stride[RANK], index_stride[RANK];
	row_strides(x, stride);
	row_strides(&in[1].shape, index_stride);
	for (int64_t i = 0; op == O_scatter && i < count_of(x); i++)
		copy_element(out, i, &in[0], i);
	for (int64_t i = 0; i < count_of(picked); i++, next_index(picked, at)) {
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
