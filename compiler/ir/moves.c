// moves.c: finds the operand element that a move reads, and the memory layout of a kernel's
// operands.
#include "index.h"
#include <string.h>

// ---- operands of moves ----------------------------------------------------------------

// Returns the index at which operand k begins.
static int64_t concat_start(const Graph *g, const Val *v, int k)
{
	int64_t start = 0;
	for (int before = 0; before < k; before++)
		start += val(g, v->in[before])->shape.dim[v->attr->i[0]];
	return start;
}

bool concat_reaches(const Vars *w, const Graph *g, const Val *v, int k, const Index *idx)
{
	int axis = (int)v->attr->i[0];
	int64_t start = concat_start(g, v, k), size = val(g, v->in[k])->shape.dim[axis];
	int64_t low, high;
	index_range(w, &idx[axis], &low, &high);
	return high >= start && low < start + size;
}

bool has_fill(Op op)
{
	return op == O_pad || op == O_window || op == O_concat;
}

Index window_position(Vars *w, const WindowAxis *axis, const Index *window, const Index *step)
{
	Index at = constant_index(-axis->before);
	at = add_index(w, &at, window, axis->stride);
	return add_index(w, &at, step, axis->dilation);
}

int operand_index(Vars *w, const Graph *g, const Val *v, int k, const Index *idx, Index *in,
                  Index *zero)
{
	const Shape *from = &val(g, v->in[k])->shape;
	const int64_t *i = v->attr->i;
	WindowAxes windows = window_axes(v->attr);
	Index linear;
	int n = 0;
	switch (v->op) {
	case O_pad:
		for (int a = 0; a < from->rank; a++)
			in[a] = shift_index(idx[a], -i[2 * a]);
		break;
	case O_window:
		memcpy(in, idx, sizeof *in * (size_t)from->rank);
		for (int k = 0; k < windows.n; k++) {
			const WindowAxis *axis = &windows.at[k];
			Index *at = &in[axis->axis];
			*at = window_position(w, axis, &idx[axis->axis], &idx[from->rank + k]);
			if (axis->up > 1)
				split_index(w, at, axis->up, at, &zero[n++]);
		}
		break;
	case O_concat:
		memcpy(in, idx, sizeof *in * (size_t)v->shape.rank);
		in[i[0]] = shift_index(idx[i[0]], -concat_start(g, v, k));
		break;
	case O_reshape:
		linear = ravel(w, &v->shape, idx);
		unravel(w, &linear, from, in);
		break;
	case O_permute:
		for (int a = 0; a < v->shape.rank; a++)
			in[i[a]] = idx[a];
		break;
	case O_slice:
		for (int a = 0; a < v->shape.rank; a++) {
			SliceAxis s = slice_axes(v->attr)[a];
			Index start = constant_index(s.start);
			in[a] = add_index(w, &start, &idx[a], s.step);
		}
		break;
	case O_expand:
		memcpy(in, idx, sizeof *in * (size_t)v->shape.rank);
		break;
	default:
		never("a move");
	}
	return n;
}

// ---- operands in memory ---------------------------------------------------------------

void index_within(const Shape *shape, const Index *idx, Index *own)
{
	for (int a = 0; a < shape->rank; a++)
		own[a] = shape->dim[a] == 1 ? constant_index(0) : idx[a];
}

bool locate(Vars *w, const Graph *g, const Inside *inside, Ref *r, Index *idx, Index *place)
{
	while (inside->holds(inside->context, *r)) {
		const Val *v = val(g, *r);
		Index own[RANK], zero[RANK];
		if (prims[v->op].cls != C_move || v->op == O_concat)
			return false;
		index_within(&v->shape, idx, own);
		if (operand_index(w, g, v, 0, own, idx, zero))
			return false;
		*r = v->in[0];
		const Shape *from = &val(g, *r)->shape;
		for (int a = 0; has_fill(v->op) && a < from->rank; a++)
			if (!index_fits(w, &idx[a], from->dim[a])) // but reads the fill
				return false;
	}
	Shape rows = memory_shape(val(g, *r));
	*place = ravel(w, &rows, idx);
	return true;
}

static bool depends(const Vars *w, int var, int on)
{
	const Var *v = w->list.at[var];
	for (int t = 0; v->kind != V_given && t < v->of.n; t++)
		if (v->of.term[t].var == on || depends(w, v->of.term[t].var, on))
			return true;
	return var == on;
}

int64_t stride_along(const Vars *w, const Index *place, const Index *x)
{
	int64_t stride = 0;
	for (int t = 0; t < place->n; t++)
		if (x->n && place->term[t].var == x->term[0].var)
			stride = place->term[t].coef;
		else if (x->n && depends(w, place->term[t].var, x->term[0].var))
			return IRREGULAR;
	return stride;
}

Stride strides_of(Vars *w, const Graph *g, const Inside *inside, Ref r, const Index *idx,
                  const Index *row, const Index *column)
{
	Index at[RANK], place;
	memcpy(at, idx, sizeof at);
	if (!locate(w, g, inside, &r, at, &place))
		return (Stride){.fixed = false};
	Stride s = {.down = stride_along(w, &place, row),
	            .along = stride_along(w, &place, column),
	            .bytes = elems[val(g, r)->type].bytes};
	Shape rows = memory_shape(val(g, r));
	s.fixed =
	    s.down != IRREGULAR && s.along != IRREGULAR && index_fits(w, &place, count_of(&rows));
	return s;
}

int far_reads(Vars *w, const Graph *g, const Inside *inside, Ref r, const Index *idx,
              const Index *x)
{
	Index at[RANK], place;
	memcpy(at, idx, sizeof at);
	if (locate(w, g, inside, &r, at, &place)) {
		int64_t stride = stride_along(w, &place, x);
		return stride != 0 && stride != 1;
	}
	const Val *v = val(g, r);
	if (prims[v->op].cls != C_map)
		return prims[v->op].cls != C_leaf;
	int far = 0;
	for (int i = 0; i < v->nin; i++) {
		Index operand[RANK];
		index_within(&val(g, v->in[i])->shape, at, operand);
		far += far_reads(w, g, inside, v->in[i], operand, x);
	}
	return far;
}
