// adjoint.c: puts the adjoints of moves, whose shapes need a loop over attributes.
#include "ir.h"
#include <string.h>

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
		WindowAxis window = {a, to->dim[a], 1, 1, 1, low[a], up[a]};
		Shape shape = val(g, r)->shape;
		shape.dim[a] = to->dim[a];
		if (up[a] > 1)
			r = put_reshape(g, put_window(g, r, 1, &window, 0), shape);
	}
	return r;
}

// ---- window ---------------------------------------------------------------------------

// Returns the sum over the first axis after those of an operand with `rank` axes, of the elements
// of the windows `w` along an axis, at the `count` indices that they come from. Element (o, k)
// of the window is operand index i = (o s + k d - b) / u, so the sum at i is over k, at o = (i u +
// b - k d) / s. If o and k are merged into one axis with K elements per o, this index is o K + k =
// (i u K + k (s - d K) + b K) / s: a window of the windows. The division is exact only for
// integer o if K and s are coprime; K is padded with zeros until they are. Without dilation, an
// index meets only every s-th element of a window: with i + b = p s + f and k = q s + f the sum is
// over q, at o = p - q. So for each of these phases f, s is 1.
static Ref sum_windows(Graph *g, Ref r, int rank, int64_t count, const WindowAxis *w)
{
	Shape shape = val(g, r)->shape;
	int axis = (int)w->axis;
	int64_t size = w->size, stride = w->stride, before = w->before;
	int64_t phases = w->dilation == 1 && w->up == 1 ? stride : 1, places = count;
	int64_t none[RANK] = {0}, more[RANK] = {0}, start[RANK] = {0}, perm[RANK];
	if (phases > 1) {
		start[axis] = before;
		places = (before + count + stride - 1) / stride;
		size = (size + stride - 1) / stride;
		stride = 1;
		before = 0;
	}
	int64_t room = size;
	while (common_divisor(room, stride) != 1)
		room++;
	more[rank] = room * phases - w->size;
	for (int a = 0; a < shape.rank; a++)
		perm[a] = a <= axis || a > rank ? a : a == axis + 1 ? rank : a - 1;
	r = put_permute(g, put_pad(g, r, none, more, 0), perm);
	Shape merged = val(g, r)->shape;
	merged.dim[axis] = w->out * room;
	merged.dim[axis + 1] = phases;
	WindowAxis window = {
	    axis, places, size, w->up * room, stride - w->dilation * room, -before * room, stride};
	r = put_window(g, put_reshape(g, r, merged), 1, &window, 0);
	r = put_reduce(g, O_sum, r, 1, (int64_t[]){merged.rank});
	merged.dim[axis] = places * phases;
	merged.rank--;
	memmove(merged.dim + axis + 1, merged.dim + axis + 2,
	        sizeof *merged.dim * (size_t)(merged.rank - axis - 1));
	r = put_reshape(g, r, merged);
	merged.dim[axis] = count;
	return put_slice(g, r, start, merged.dim, NULL);
}

// Returns the gradient of window.
Ref put_unwindow(Graph *g, Ref r, const Shape *to, int n, const WindowAxis *w)
{
	for (int j = 0; j < n; j++)
		r = sum_windows(g, r, to->rank, to->dim[w[j].axis], &w[j]);
	return r;
}
