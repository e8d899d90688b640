// conv_grad.c: writes a convolution's gradient as one.
// Takes a product whose rows are windows. Gives the gradient of what the windows were taken of.
// The reader writes a convolution as dot(reshape(permute(window(x))), kernel): windows [N, G, C,
// out.., size..] of x [N, G, C, in..] as a matrix of C size.. columns, times [C size.., O] in each
// of G groups. By the book its gradient is dot(g, kernel') as large as the windows, and a sum over
// windows of that. Here it is a convolution with nothing between: windows of g, [N, G, O, in..,
// size..], as a matrix of O size.. columns, times [O size.., C]. With a stride most entries of
// those windows are zeros, and the windows of x are few: then the book's way is better.
#include "grad.h"

typedef struct Convolution {
	const Val *window;
	Shape from, wide; // of x and of the windows
	int n;            // spatial axes
} Convolution;

static bool is_convolution(const Graph *g, const Val *dot, Convolution *c)
{
	const Val *matrix = val(g, dot->in[0]);
	if (matrix->op != O_reshape || val(g, matrix->in[0])->op != O_permute)
		return false;
	const Val *turned = val(g, matrix->in[0]);
	c->window = val(g, turned->in[0]);
	if (c->window->op != O_window)
		return false;
	c->from = val(g, c->window->in[0])->shape;
	c->wide = c->window->shape;
	c->n = c->window->attr->n / 7;
	bool fits = c->from.rank == 3 + c->n && turned->attr->i[0] == 0 &&
	            turned->attr->i[1] == 1 && turned->attr->i[2 + c->n] == 2;
	int64_t fan = c->from.dim[2];
	for (int a = 0; fits && a < c->n; a++) {
		const int64_t *row = c->window->attr->i + 7 * a;
		fits = row[0] == 3 + a && row[3] == 1 && turned->attr->i[2 + a] == 3 + a &&
		       turned->attr->i[3 + c->n + a] == 3 + c->n + a;
		fan *= row[2];
	}
	const Shape *kernel = &val(g, dot->in[1])->shape;
	bool single = matrix->shape.rank == 2 && c->from.dim[1] == 1;
	bool grouped = matrix->shape.rank == 4 && matrix->shape.dim[0] == c->from.dim[0] &&
	               matrix->shape.dim[1] == c->from.dim[1] && kernel->dim[1] == c->from.dim[1];
	return fits && (single || grouped) && matrix->shape.dim[matrix->shape.rank - 1] == fan;
}

// [N, G, spatial.., C] of that many channels, from a matrix or a batch of them, with the channels
// before the places.
static Ref put_places(Graph *g, Ref r, const Convolution *c, const Shape *like, int64_t channels)
{
	Shape shape = {.rank = 3 + c->n, .dim = {c->from.dim[0], c->from.dim[1]}};
	for (int a = 2; a < 2 + c->n; a++)
		shape.dim[a] = like->dim[1 + a];
	shape.dim[2 + c->n] = channels;
	return move_axis(g, put_reshape(g, r, shape), 2 + c->n, 2);
}

// Windows of the gradient, channels behind the places: entry (i, k) is output i + before - k
// dilation, where window entry (o, k) was input (o + k dilation - before) / up.
static Ref gradient_windows(Graph *g, const Convolution *c, Ref gradient, int64_t channels)
{
	Attr attr = attr_copy(c->window);
	Ref r = put_places(g, gradient, c, &c->wide, channels);
	attr.x = 0;
	for (int a = 0; a < c->n; a++) {
		int64_t *row = attr.i + 7 * a;
		row[1] = c->from.dim[3 + a];
		row[3] = row[6];
		row[4] = -row[4];
		row[5] = -row[5];
		row[6] = 1;
	}
	return move_axis(g, put(g, O_window, 1, &r, &attr), 2, 2 + c->n);
}

// [.., C size.., O] as [.., O size.., C].
static Ref turned_kernel(Graph *g, const Convolution *c, Ref kernel)
{
	Shape flat = val(g, kernel)->shape, open = {.rank = 2};
	int64_t channels = c->from.dim[2], outputs = flat.dim[flat.rank - 1];
	open.dim[0] = c->from.dim[1];
	open.dim[1] = channels;
	for (int a = 0; a < c->n; a++)
		open.dim[open.rank++] = c->window->attr->i[7 * a + 2];
	open.dim[open.rank++] = outputs;
	Ref r = move_axis(g, put_reshape(g, kernel, open), open.rank - 1, 1);
	flat.dim[flat.rank - 2] = flat.dim[flat.rank - 2] / channels * outputs;
	flat.dim[flat.rank - 1] = channels;
	return put_reshape(g, move_axis(g, r, 2, open.rank - 1), flat);
}

// The gradient of x [N, G, C, in..].
static Ref convolve_back(Graph *g, const Convolution *c, Ref gradient, Ref kernel)
{
	int rank = val(g, kernel)->shape.rank;
	int64_t outputs = val(g, kernel)->shape.dim[rank - 1], places = 1;
	Ref x = gradient_windows(g, c, gradient, outputs);
	kernel = turned_kernel(g, c, kernel);
	for (int a = 0; a < c->n; a++)
		places *= c->from.dim[3 + a];
	Shape matrix = {.rank = rank, .dim = {c->from.dim[0], c->from.dim[1], places}};
	if (rank == 2)
		matrix.dim[0] *= places;
	matrix.dim[rank - 1] = val(g, kernel)->shape.dim[rank - 2];
	Ref y = put2(g, O_dot, put_reshape(g, x, matrix), kernel);
	return put_places(g, y, c, &c->from, c->from.dim[2]);
}

Ref convolution_gradient(Graph *g, const Val *dot, Ref gradient, Ref *x)
{
	Convolution c;
	if (!is_convolution(g, dot, &c))
		return 0;
	*x = c.window->in[0];
	return convolve_back(g, &c, gradient, dot->in[1]);
}
