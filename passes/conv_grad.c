// conv_grad.c: writes a convolution's gradient as one.
// The reader writes a convolution as dot(reshape(permute(window(x))), kernel): windows [N, G, C,
// out.., size..] of x [N, G, C, in..] as a matrix of size.. C columns, times [size.. C, O] for each
// of G groups. The book's gradient is dot(g, kernel'), as large as the windows, and its sum over
// windows. Here it is a convolution without an intermediate value: windows of g, [N, G, O, in..,
// size..], as a matrix of size.. O columns, times [size.. O, C]. With a stride most elements of
// these windows are zeros, and the book's gradient is cheaper, unless C = O = 1 (depthwise.c).
#include "grad.h"

typedef struct Convolution {
	const Val *window;
	Shape from; // of x
	int n;      // spatial axes
	bool depthwise;
} Convolution;

static bool is_convolution(const Graph *g, const Val *dot, Convolution *c)
{
	const Val *matrix = val(g, dot->in[0]);
	if (matrix->op != O_reshape)
		return false;
	const Val *permuted = val(g, matrix->in[0]);
	bool plain = permuted->op == O_window; // a permute of one channel is no permute
	c->window = plain || permuted->op != O_permute ? permuted : val(g, permuted->in[0]);
	if (c->window->op != O_window)
		return false;
	const Shape *kernel = &val(g, dot->in[1])->shape;
	c->from = val(g, c->window->in[0])->shape;
	c->n = c->window->attr->n / 7;
	int last = permuted->shape.rank - 1;
	int64_t fan = c->from.dim[2];
	bool one = fan == 1 && last_dim(kernel) == 1;
	bool fits = c->from.rank == 3 + c->n && (plain ? one : permuted->attr->i[last] == 2);
	for (int a = 0; fits && !plain && a < last; a++)
		fits = permuted->attr->i[a] == a + (a > 1);
	c->depthwise = fits && plain;
	for (int a = 0; fits && a < c->n; a++) {
		const int64_t *row = c->window->attr->i + 7 * a;
		fits = row[0] == 3 + a && (row[3] == 1 || c->depthwise);
		fan *= row[2];
	}
	bool single = matrix->shape.rank == 2 && c->from.dim[1] == 1;
	bool grouped = matrix->shape.rank == 4 && matrix->shape.dim[0] == c->from.dim[0] &&
	               matrix->shape.dim[1] == c->from.dim[1] && kernel->dim[1] == c->from.dim[1];
	return fits && (single || grouped) && matrix->shape.dim[matrix->shape.rank - 1] == fan;
}

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

Ref convolution_gradient(Graph *g, const Val *dot, Ref gradient, Ref *x)
{
	Convolution c;
	if (!is_convolution(g, dot, &c))
		return 0;
	*x = c.window->in[0];
	Shape flat = val(g, dot->in[1])->shape; // of the kernel
	int64_t channels = c.from.dim[2], outputs = flat.dim[flat.rank - 1], positions = 1;

	// Windows of the gradient, channels after the spatial axes. Element (i, k) is output (i up
	// + before - k dilation) / stride; element (o, k) of the forward windows is input (o stride
	// + k dilation - before) / up.
	Attr attr = attr_copy(c.window);
	Ref windows = put_positions(g, gradient, &c, &c.window->shape, outputs);
	attr.x = 0;
	for (int a = 0; a < c.n; a++) {
		int64_t *row = attr.i + 7 * a, stride = row[3];
		row[1] = c.from.dim[3 + a];
		row[3] = row[6];
		row[4] = -row[4];
		row[5] = -row[5];
		row[6] = stride;
		positions *= row[1];
	}
	windows = move_axis(g, put(g, O_window, 1, &windows, &attr), 2, 2 + 2 * c.n);

	// The kernel [.., size.. C, O] as [.., size.. O, C].
	int64_t taps = flat.dim[flat.rank - 2] / channels;
	Shape open = shape_of(4, (int64_t[]){c.from.dim[1], taps, channels, outputs});
	flat.dim[flat.rank - 2] = taps * outputs;
	flat.dim[flat.rank - 1] = channels;
	Ref kernel = put_reshape(g, swap_last(g, put_reshape(g, dot->in[1], open)), flat);

	Shape matrix = {.rank = flat.rank, .dim = {c.from.dim[0], c.from.dim[1], positions}};
	if (flat.rank == 2)
		matrix.dim[0] *= positions;
	matrix.dim[flat.rank - 1] = flat.dim[flat.rank - 2];
	Ref y = put2(g, O_dot, put_reshape(g, windows, matrix), kernel);
	return put_positions(g, y, &c, &c.from, channels);
}

Ref depthwise_kernel_gradient(Graph *g, const Val *dot, Ref gradient)
{
	Convolution c;
	const Shape *flat = &val(g, dot->in[1])->shape;
	if (!is_convolution(g, dot, &c) || !c.depthwise || !sums_taps(dot, flat))
		return 0;
	const Shape *windows = &c.window->shape;
	Shape each = *windows;
	int64_t taps = flat->dim[flat->rank - 2], start[RANK] = {0}, axes[RANK] = {0};
	for (int a = 3 + c.n; a < each.rank; a++)
		each.dim[a] = 1;
	for (int a = 0; a < c.n; a++)
		axes[1 + a] = 3 + a;
	Ref sum[TAPS], outer = put_reshape(g, gradient, each), window = ref_of(g, c.window);
	for (int t = 0; t < taps; t++) {
		int64_t left = t;
		for (int a = each.rank - 1; a >= 3 + c.n; left /= windows->dim[a--])
			start[a] = left % windows->dim[a];
		Ref at_tap = put_slice(g, window, start, each.dim, NULL);
		sum[t] = put_reduce(g, O_sum, put2(g, O_mul, at_tap, outer), 1 + c.n, axes);
	}
	return put_reshape(g, put_concat(g, each.rank - 1, (int)taps, sum), *flat);
}
