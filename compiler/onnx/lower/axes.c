// axes.c: merges, drops and slices axes of values, by moves alone.
#include "lower.h"

Ref merge_axes(Graph *g, Ref x, int from, int to)
{
	const Shape *s = &val(g, x)->shape;
	Shape out = {.rank = s->rank - (to - from) + 1};
	int64_t product = 1;
	for (int a = from; a < to; a++)
		product *= s->dim[a];
	for (int a = 0; a < out.rank; a++)
		out.dim[a] = a < from ? s->dim[a] : a == from ? product : s->dim[a + to - from - 1];
	return put_reshape(g, x, out);
}

Ref flat(Graph *g, Ref x)
{
	return merge_axes(g, x, 0, val(g, x)->shape.rank);
}

Ref drop_axes(Graph *g, Ref x, int naxes, const int64_t *axes)
{
	const Shape *s = &val(g, x)->shape;
	Shape out = {0};
	for (int a = 0; a < s->rank; a++) {
		bool dropped = false;
		for (int i = 0; i < naxes; i++)
			dropped |= axes[i] == a;
		if (!dropped)
			out.dim[out.rank++] = s->dim[a];
	}
	return put_reshape(g, x, out);
}

Ref take_steps(Graph *g, Ref x, int axis, int64_t start, int64_t count, int64_t step)
{
	Shape s = val(g, x)->shape;
	int64_t starts[RANK] = {0}, counts[RANK], steps[RANK];
	for (int a = 0; a < s.rank; a++) {
		counts[a] = s.dim[a];
		steps[a] = 1;
	}
	starts[axis] = start;
	counts[axis] = count;
	steps[axis] = step;
	return put_slice(g, x, starts, counts, steps);
}

Ref take_range(Graph *g, Ref x, int axis, int64_t start, int64_t count)
{
	return take_steps(g, x, axis, start, count, 1);
}
