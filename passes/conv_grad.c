// conv_grad.c: writes a convolution's gradient as one.
// The book's gradient of dot(windows, kernel) (see convolution.c) is dot(g, kernel'), as large as
// the windows, and its sum over windows. Here it is a convolution without an intermediate value:
// windows of g, [N, G, O, in.., size..], as a matrix of size.. O columns, times [size.. O, C]. With
// a stride most elements of these windows are zeros, and the book's gradient is cheaper, unless C =
// O = 1, or groups have few channels: the windows cost less than to write and read that gradient's
// intermediate value, whose lines are short. Then the zeros are elements of g.
#include "grad.h"

// Reshapes a matrix, or a batch of them, to [N, G, spatial.., C] and moves the channels before the
// spatial axes.
static Ref put_positions(Graph *g, Ref r, const Convolution *c, const Shape *like, int64_t channels)
{
	Shape shape = {.rank = 3 + c->n, .dim = {c->from.dim[0], c->from.dim[1]}};
	for (int a = 2; a < 2 + c->n; a++)
		shape.dim[a] = like->dim[1 + a];
	shape.dim[2 + c->n] = channels;
	return move_axis(g, put_reshape(g, r, shape), 2 + c->n, 2);
}

// Puts zeros between the elements of x along an axis, so that these are `each` apart.
static Ref put_apart(Graph *g, Ref x, int axis, int64_t each)
{
	Shape shape = val(g, x)->shape, open = shape;
	int64_t before[RANK] = {0}, after[RANK] = {0};
	for (int a = open.rank++; a > axis + 1; a--)
		open.dim[a] = shape.dim[a - 1];
	open.dim[axis + 1] = 1;
	after[axis + 1] = each - 1;
	shape.dim[axis] *= each;
	return put_reshape(g, put_pad(g, put_reshape(g, x, open), before, after, 0), shape);
}

// Returns the windows of the gradient as a matrix: [.., positions, size.. O]. Element (i, k) is
// output (i up + before - k dilation) / stride; element (o, k) of the forward windows is input (o
// stride + k dilation - before) / up.
static Ref put_windows(Graph *g, const Val *dot, Ref gradient, const Convolution *c)
{
	const Shape *kernel = &val(g, dot->in[1])->shape;
	int64_t outputs = last_dim(kernel), positions = 1;
	Shape matrix = {.rank = kernel->rank, .dim = {c->from.dim[0], c->from.dim[1]}};
	WindowAxis window[RANK];
	Ref windows = put_positions(g, gradient, c, &c->window->shape, outputs);
	for (int a = 0; a < c->n; a++) {
		positions *= c->from.dim[3 + a];
		window[a] = transposed_axis(c, a);
		if (c->narrow) {
			windows = put_apart(g, windows, 3 + a, window[a].up);
			window[a].up = 1;
		}
	}
	windows = move_axis(g, put_window(g, windows, c->n, window, 0), 2, 2 + 2 * c->n);
	if (matrix.rank == 2)
		positions *= matrix.dim[0];
	matrix.dim[matrix.rank - 2] = positions;
	matrix.dim[matrix.rank - 1] = kernel->dim[kernel->rank - 2] / c->from.dim[2] * outputs;
	if (matrix.rank == 2)
		matrix.dim[0] = positions;
	return put_reshape(g, windows, matrix);
}

Ref convolution_gradient(Graph *g, const Val *dot, Ref gradient, Ref *x)
{
	Convolution c;
	if (!is_convolution(g, dot, &c))
		return 0;
	*x = c.window->in[0];
	// The kernel [.., size.. C, O] as [.., size.. O, C].
	Shape flat = val(g, dot->in[1])->shape;
	int64_t channels = c.from.dim[2], outputs = last_dim(&flat);
	int64_t taps = flat.dim[flat.rank - 2] / channels;
	Shape open = shape_of(4, (int64_t[]){c.from.dim[1], taps, channels, outputs});
	flat.dim[flat.rank - 2] = taps * outputs;
	flat.dim[flat.rank - 1] = channels;
	Ref kernel = put_reshape(g, swap_last(g, put_reshape(g, dot->in[1], open)), flat);
	Ref y = put2(g, O_dot, put_windows(g, dot, gradient, &c), kernel);
	return put_positions(g, y, &c, &c.from, channels);
}

// Returns the windows of a copy of x with enough zeros around it to hold them all: without it, the
// sums of many taps compare every position with the ends of x, which takes longer than the copy.
// Where there would be more zeros than elements, or zeros between these, the windows stay as they
// are.
static Ref put_inside(Graph *g, const Convolution *c)
{
	int64_t before[RANK] = {0}, after[RANK] = {0};
	WindowAxis own[RANK];
	Shape padded = c->from;
	bool apart = false;
	for (int a = 0; a < c->n; a++) {
		WindowAxis *w = &own[a];
		*w = window_axes(c->window->attr).at[a];
		int64_t last = (w->size - 1) * w->dilation; // step, from the first one
		int axis = 3 + a;
		before[axis] = MAX(0, w->before - MIN(0, last));
		after[axis] = zeros_after(w, MAX(0, last) + 1, c->from.dim[axis]);
		padded.dim[axis] += before[axis] + after[axis];
		w->before -= before[axis];
		apart |= w->up > 1;
	}
	if (apart || count_of(&padded) > 2 * count_of(&c->from))
		return ref_of(g, c->window);
	return put_window(g, put_pad(g, c->window->in[0], before, after, 0), c->n, own, 0);
}

// A sum for each tap.
static Ref depthwise_kernel_gradient(Graph *g, const Val *dot, Ref gradient, const Convolution *c)
{
	const Shape *windows = &c->window->shape, *flat = &val(g, dot->in[1])->shape;
	Shape each = *windows;
	int64_t taps = flat->dim[flat->rank - 2], start[RANK] = {0}, axes[RANK] = {0};
	for (int a = 3 + c->n; a < each.rank; a++)
		each.dim[a] = 1;
	for (int a = 0; a < c->n; a++)
		axes[1 + a] = 3 + a;
	Ref window = taps >= MANY_TAPS ? put_inside(g, c) : ref_of(g, c->window);
	Ref sum[TAPS], outer = put_reshape(g, gradient, each);
	for (int t = 0; t < taps; t++) {
		int64_t left = t;
		for (int a = each.rank - 1; a >= 3 + c->n; left /= windows->dim[a--])
			start[a] = left % windows->dim[a];
		Ref at_tap = put_slice(g, window, start, each.dim, NULL);
		sum[t] = put_reduce(g, O_sum, put2(g, O_mul, at_tap, outer), 1 + c->n, axes);
	}
	return put_reshape(g, put_concat(g, each.rank - 1, (int)taps, sum), *flat);
}

// Returns a matrix [N, G, positions, columns] as one for each group: [1, G, N positions, columns].
static Ref join_samples(Graph *g, Ref r, const Convolution *c, int64_t columns)
{
	int64_t samples = c->from.dim[0], groups = c->from.dim[1];
	int64_t positions = count_of(&val(g, r)->shape) / (samples * groups * columns);
	r = put_reshape(g, r, shape_of(4, (int64_t[]){samples, groups, positions, columns}));
	r = move_axis(g, r, 0, 1);
	Shape each = shape_of(4, (int64_t[]){1, groups, samples * positions, columns});
	Shape one = shape_of(2, each.dim + 2);
	return put_reshape(g, r, groups == 1 ? one : each);
}

// [size.. O, positions] times [positions, C]. Windows of the gradient have no zeros between their
// elements, as those of x may have, and a row for each output and tap, where outputs are few.
static Ref turned_kernel_gradient(Graph *g, const Val *dot, Ref gradient, const Convolution *c)
{
	const Shape *flat = &val(g, dot->in[1])->shape;
	int64_t channels = c->from.dim[2], outputs = last_dim(flat);
	int64_t taps = flat->dim[flat->rank - 2] / channels;
	Ref windows = put_windows(g, dot, gradient, c);
	windows = swap_last(g, join_samples(g, windows, c, taps * outputs));
	Ref x = join_samples(g, move_axis(g, c->window->in[0], 2, 2 + c->n), c, channels);
	Shape open = shape_of(4, (int64_t[]){c->from.dim[1], taps, outputs, channels});
	return put_reshape(g, swap_last(g, put_reshape(g, put2(g, O_dot, windows, x), open)),
	                   *flat);
}

Ref convolution_kernel_gradient(Graph *g, const Val *dot, Ref gradient)
{
	Convolution c;
	if (!is_convolution(g, dot, &c) || !(c.depthwise || c.adds_taps))
		return 0;
	return c.depthwise ? depthwise_kernel_gradient(g, dot, gradient, &c)
	                   : turned_kernel_gradient(g, dot, gradient, &c);
}
