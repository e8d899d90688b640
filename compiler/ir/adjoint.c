// adjoint.c: moves backwards: what a gradient becomes where the shape of the answer needs a loop
// over attributes. Takes ir.h. Gives functions of the notation, and moves only (and one sum):
// nothing here is stored.
#include "ir.h"

// ---- slice ----------------------------------------------------------------------------

// One axis of a slice: entry o came from start + o * step.
typedef struct Cut {
	int64_t start, step, count;
} Cut;

// Backward steps become forward ones by reading `g` from its end.
static Ref forward(Graph *g, Ref r, Cut *cut)
{
	Shape shape = val(g, r)->shape;
	int64_t start[RANK] = {0}, step[RANK];
	for (int a = 0; a < shape.rank; a++) {
		bool back = cut[a].step < 0;
		step[a] = back ? -1 : 1;
		if (back) {
			start[a] = shape.dim[a] - 1;
			cut[a].start += (shape.dim[a] - 1) * cut[a].step;
			cut[a].step = -cut[a].step;
		}
	}
	return put_slice(g, r, start, shape.dim, step);
}

// The gradient of slice: `r`'s entries at their places among zeros. Steps above 1 are a window of
// size 1 that goes up by the step.
Ref put_unslice(Graph *g, Ref r, const Shape *to, const int64_t *start, const int64_t *step)
{
	Cut cut[RANK];
	int64_t before[RANK], after[RANK];
	Attr window = {0};
	for (int a = 0; a < to->rank; a++) {
		int64_t count = val(g, r)->shape.dim[a];
		cut[a] = (Cut){start[a], count > 1 ? step[a] : 1, count};
	}
	r = forward(g, r, cut);
	for (int a = 0; a < to->rank; a++) {
		bool spread = cut[a].step > 1;
		before[a] = spread || cut[a].count == 0 ? 0 : cut[a].start;
		after[a] = spread ? 0 : to->dim[a] - before[a] - cut[a].count;
		const int64_t row[7] = {a, to->dim[a], 1, 1, 1, cut[a].start, cut[a].step};
		for (int i = 0; spread && i < 7; i++)
			window.i[window.n++] = row[i];
	}
	r = put_pad(g, r, before, after, 0);
	return window.n ? put_reshape(g, put(g, O_window, 1, &r, &window), *to) : r;
}

// ---- window ---------------------------------------------------------------------------

// The gradient of window. Entry (o, k) of the window was operand index i = (o s + k d - b) / u, so
// operand index i gathers, over k, the gradient at o = (i u + b - k d) / s. With o and k merged
// into one axis of K entries an o, that is place o K + k = (i u K + k (s - d K) + b K) / s: again a
// window, over a view of the gradient, and a sum over k. It divides exactly where o is whole if K
// and s have no common divisor; K is padded with zeros until so.
Ref put_unwindow(Graph *g, Ref r, const Shape *to, int nrow, const int64_t (*row)[7])
{
	Shape merged = *to, wide = val(g, r)->shape;
	int64_t none[RANK] = {0}, more[RANK] = {0}, perm[RANK], axes[RANK];
	Attr window = {0};
	for (int j = 0; j < nrow; j++) {
		int axis = (int)row[j][0];
		int64_t out = row[j][1], size = row[j][2], stride = row[j][3], dilation = row[j][4];
		int64_t before = row[j][5], up = row[j][6], room = size;
		while (common_divisor(room, stride) != 1)
			room++;
		more[to->rank + j] = room - size;
		merged.dim[axis] = out * room;
		axes[j] = to->rank + j;
		const int64_t back[7] = {
		    axis,           to->dim[axis], size, up * room, stride - dilation * room,
		    -before * room, stride};
		for (int i = 0; i < 7; i++)
			window.i[window.n++] = back[i];
	}
	int n = 0;
	for (int a = 0; a < to->rank; a++) {
		perm[n++] = a;
		for (int j = 0; j < nrow; j++)
			if (row[j][0] == a)
				perm[n++] = to->rank + j;
	}
	if (n != wide.rank)
		bug("window over one axis twice");
	r = put_permute(g, put_pad(g, r, none, more, 0), perm);
	r = put_reshape(g, r, merged);
	r = put(g, O_window, 1, &r, &window);
	return put_reshape(g, put_reduce(g, O_sum, r, nrow, axes), *to);
}

// ---- dot ------------------------------------------------------------------------------

// [L.., M, K] with those leading axes that `other` stretches (1 there) merged into the rows: [.., S
// M, K]. So the gradient of a stretched operand is one dot, not many and a sum.
Ref put_rows(Graph *g, Ref r, const Shape *other)
{
	Shape from = val(g, r)->shape, to = from;
	int64_t perm[RANK];
	int n = 0, lead = from.rank - 2;
	for (int a = 0; a < lead; a++)
		if (other->dim[a] != 1)
			perm[n++] = a;
	for (int a = 0; a < lead; a++)
		if (other->dim[a] == 1) {
			perm[n++] = a;
			to.dim[a] = 1;
			to.dim[lead] *= from.dim[a];
		}
	perm[n++] = lead;
	perm[n++] = lead + 1;
	return put_reshape(g, put_permute(g, r, perm), to);
}
