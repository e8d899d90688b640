// adjoint.c: puts the adjoints of moves, whose shapes need a loop over attributes.
#include "ir.h"

// ---- slice ----------------------------------------------------------------------------

// Returns the gradient of slice: the elements of `r` at their indices, zeros elsewhere. Negative
// steps become positive ones by reversing r; each step above 1 a window of size 1 with `up` = step.
Ref put_unslice(Graph *g, Ref r, const Shape *to, const int64_t *start, const int64_t *step)
{
	const Shape own = val(g, r)->shape;
	int64_t first[RANK] = {0}, turn[RANK], low[RANK], up[RANK], before[RANK], after[RANK];
	for (int a = 0; a < to->rank; a++) {
		int64_t count = own.dim[a];
		low[a] = start[a];
		up[a] = count > 1 ? step[a] : 1;
		turn[a] = up[a] < 0 ? -1 : 1;
		if (up[a] < 0) {
			first[a] = count - 1;
			low[a] += (count - 1) * up[a];
			up[a] = -up[a];
		}
		before[a] = up[a] > 1 || count == 0 ? 0 : low[a];
		after[a] = up[a] > 1 ? 0 : to->dim[a] - before[a] - count;
	}
	r = put_pad(g, put_slice(g, r, first, own.dim, turn), before, after, 0);
	for (int a = 0; a < to->rank; a++) {
		Attr window = {.n = 7, .i = {a, to->dim[a], 1, 1, 1, low[a], up[a]}};
		Shape shape = val(g, r)->shape;
		shape.dim[a] = to->dim[a];
		if (up[a] > 1)
			r = put_reshape(g, put(g, O_window, 1, &r, &window), shape);
	}
	return r;
}

// ---- window ---------------------------------------------------------------------------

// Returns the gradient of window. Element (o, k) of the window is operand index i = (o s + k d - b)
// / u, so the gradient at i is the sum over k of that at o = (i u + b - k d) / s. If o and k are
// merged into one axis with K elements per o, this index is o K + k = (i u K + k (s - d K) + b K) /
// s: a window of the gradient, and a sum over k. The division is exact exactly for integer o if K
// and s are coprime; K is padded with zeros until they are.
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
