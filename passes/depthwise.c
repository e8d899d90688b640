// depthwise.c: writes depthwise convolutions as sums.
// Such a convolution is a product of windows [positions, taps] with one column for each channel,
// which would fill one lane of a tile. As a sum over taps of windows times their kernel, the
// channels are the lanes.
#include "passes.h"

bool sums_taps(const Val *dot, const Shape *kernel)
{
	enum { CHANNELS = 8 };
	return dot->shape.rank == 4 && last_dim(kernel) == 1 && kernel->dim[0] == 1 &&
	       kernel->dim[1] >= CHANNELS && kernel->dim[2] <= TAPS;
}

// The windows are [N, G, 1, positions.., taps..]. Channels come last, so that the kernel, which is
// read for each position, is stored so.
static Ref sum_taps(const Graph *from, Graph *g, const Val *dot, const Ref *in)
{
	const Val *matrix = val(from, dot->in[0]), *window = val(g, in[0]);
	const Shape *kernel = &val(from, dot->in[1])->shape;
	if (window->op != O_reshape || !sums_taps(dot, kernel))
		return 0;
	window = val(g, window->in[0]);
	int n = window->attr ? window->attr->n / 7 : 0, rank = 3 + 2 * n;
	const Shape *full = &window->shape;
	if (window->op != O_window || full->rank != rank || full->dim[2] != 1 ||
	    full->dim[0] != matrix->shape.dim[0] || full->dim[1] != matrix->shape.dim[1])
		return 0;
	int64_t taps = 1, axes[RANK];
	Shape factors = {.rank = rank, .dim = {1, full->dim[1], 1}};
	for (int a = 3; a < rank; a++)
		factors.dim[a] = a < 3 + n ? 1 : full->dim[a];
	for (int a = 0; a < n; a++) {
		axes[a] = 2 + n + a;
		taps *= full->dim[3 + n + a];
	}
	if (taps != kernel->dim[2])
		return 0;
	Ref last = move_axis(g, ref_of(g, window), 1, rank - 1);
	Ref own = move_axis(g, put_reshape(g, in[1], factors), 1, rank - 1);
	Ref sum = put_reduce(g, O_sum, put2(g, O_mul, last, own), n, axes);
	return put_reshape(g, move_axis(g, sum, rank - 1, 1), dot->shape);
}

static Ref put_sums(void *from, Graph *g, const Val *v, const Ref *in)
{
	Ref sum = v->op == O_dot ? sum_taps(from, g, v, in) : 0;
	return sum ? sum : put_as(g, v, in);
}

Graph *depthwise_pass(Arena *arena, const Graph *from)
{
	Graph *to = graph_like(arena, from);
	to->plain = DECOMPOSED_ALL;
	copy_graph(to, from, NULL, put_sums, (void *)(uintptr_t)from);
	return to;
}
