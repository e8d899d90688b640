// convolution.c: writes convolutions as they are computed, once gradients are known.
// The reader writes a convolution as dot(reshape(permute(window(x))), kernel): windows [N, G, C,
// out.., size..] of x [N, G, C, in..] as a matrix of size.. C columns, times [size.. C, O] for each
// of G groups. Three forms cost less than this product:
//   depthwise (C = O = 1)  one column would fill one lane of a tile. As a sum over the taps of
//                          windows times their kernel, the channels are the lanes.
//   transposed             most elements of the windows are zeros. Without them it is the product
//                          of x and the kernel, whose elements are added where windows of the
//                          result have them.
//   few outputs            these would fill few lanes of a tile. The product of x and the kernel,
//                          as for transposed ones, has a column for each output and each tap of
//                          the last axes.
#include "passes.h"

// True if a product with this kernel [1, G, taps, 1] is computed as a sum, if it is depthwise.
static bool sums_taps(const Val *dot, const Shape *kernel)
{
	enum { CHANNELS = 8 };
	return dot->shape.rank == 4 && last_dim(kernel) == 1 && kernel->dim[0] == 1 &&
	       kernel->dim[1] >= CHANNELS && kernel->dim[2] <= TAPS;
}

const Val *windows_of_matrix(const Graph *g, Ref r)
{
	const Val *matrix = val(g, r);
	if (matrix->op != O_reshape)
		return NULL;
	const Val *permuted = val(g, matrix->in[0]);
	bool plain = permuted->op == O_window; // of one channel, whose permute the door dropped
	const Val *window = plain || permuted->op != O_permute ? permuted : val(g, permuted->in[0]);
	if (window->op != O_window)
		return NULL;
	const Shape *from = &val(g, window->in[0])->shape, *shape = &matrix->shape;
	WindowAxes w = window_axes(window->attr);
	int last = permuted->shape.rank - 1;
	int64_t fan = from->dim[2];
	bool fits = from->rank == 3 + w.n && (plain ? fan == 1 : permuted->attr->i[last] == 2);
	for (int a = 0; fits && !plain && a < last; a++)
		fits = permuted->attr->i[a] == a + (a > 1);
	for (int a = 0; fits && a < w.n; a++) {
		fits = w.at[a].axis == 3 + a;
		fan *= w.at[a].size;
	}
	bool single = shape->rank == 2 && from->dim[1] == 1;
	bool grouped =
	    shape->rank == 4 && shape->dim[0] == from->dim[0] && shape->dim[1] == from->dim[1];
	return fits && (single || grouped) && last_dim(shape) == fan ? window : NULL;
}

// True if so few outputs would leave most lanes of a tile empty, and x has enough channels: the
// product is written to memory before its elements are added. In 16 bits, where matrix registers
// load the channels, products take so little time that this pays off only for more channels.
static bool has_few_outputs(const Graph *g, const Convolution *c, int64_t taps, int64_t outputs)
{
	enum { MOST = 6, EACH = 4, LOADED = 16 }; // outputs; channels for each output
	int64_t channels = c->from.dim[2];
	int64_t each = is_half(g->products) && channels >= LOADED ? LOADED : EACH;
	return c->from.dim[1] == 1 && taps > 1 && outputs <= MOST && channels >= each * outputs;
}

// Returns the first of the last axes whose taps, times the outputs, are enough columns to fill most
// lanes of a vector.
static int first_added(const WindowAxes *w, int64_t outputs)
{
	enum { COLUMNS = 12 };
	int first = w->n;
	for (int64_t columns = outputs; first > 0 && columns < COLUMNS;)
		columns *= w->at[--first].size;
	return first;
}

bool is_convolution(const Graph *g, const Val *dot, Convolution *c)
{
	enum { NARROW = 16 };
	c->window = windows_of_matrix(g, dot->in[0]);
	if (!c->window)
		return false;
	const Shape *kernel = &val(g, dot->in[1])->shape;
	int64_t outputs = last_dim(kernel);
	c->from = val(g, c->window->in[0])->shape;
	WindowAxes windows = window_axes(c->window->attr);
	c->n = windows.n;
	bool grouped = kernel->rank == 4, plain = c->from.dim[2] == 1;
	bool fits = (!plain || outputs == 1) && (!grouped || kernel->dim[1] == c->from.dim[1]);
	c->depthwise = fits && plain && sums_taps(dot, kernel);
	c->narrow = fits && !c->depthwise && c->from.dim[1] > 1 && c->from.dim[2] <= NARROW &&
	            outputs <= NARROW;
	bool transposed = false;
	int64_t taps = kernel->dim[kernel->rank - 2] / c->from.dim[2];
	for (int a = 0; fits && a < c->n; a++) {
		const WindowAxis *w = &windows.at[a];
		bool strided = c->depthwise || (c->narrow && w->up == 1);
		fits = w->stride == 1 || strided;
		transposed |= w->up > 1 && !plain;
	}
	c->adds_taps = transposed || has_few_outputs(g, c, taps, outputs);
	c->first = transposed ? 0 : first_added(&windows, outputs);
	return fits;
}

// Channels come last, so that the kernel, which is read for each position, is stored so. Operands
// of products may be of 16 bits, as in the body of a loop; sums are not.
static Ref sum_taps(Graph *g, const Val *dot, const Convolution *c)
{
	const Shape *full = &c->window->shape;
	int64_t axes[RANK];
	Shape factors = *full;
	factors.dim[0] = 1;
	for (int a = 0; a < c->n; a++) {
		factors.dim[3 + a] = 1;
		axes[a] = 2 + c->n + a;
	}
	Ref windows = move_axis(g, ref_of(g, c->window), 1, full->rank - 1);
	Ref kernel = move_axis(g, put_reshape(g, dot->in[1], factors), 1, full->rank - 1);
	Ref product =
	    put2(g, O_mul, put_cast(g, windows, dot->type), put_cast(g, kernel, dot->type));
	Ref sum = put_reduce(g, O_sum, product, c->n, axes);
	return put_reshape(g, move_axis(g, sum, full->rank - 1, 1), dot->shape);
}

WindowAxis transposed_axis(const Convolution *c, int a)
{
	WindowAxis own = window_axes(c->window->attr).at[a];
	return (WindowAxis){.axis = own.axis,
	                    .out = c->from.dim[3 + a],
	                    .size = own.size,
	                    .stride = own.up,
	                    .dilation = -own.dilation,
	                    .before = -own.before,
	                    .up = own.stride};
}

int64_t zeros_after(const WindowAxis *w, int64_t span, int64_t extent)
{
	return MAX(0, (w->out - 1) * w->stride + span - w->before - extent);
}

// Axes before c->first stay windows: of x, these are [N, G, C, out.., in.., size..].
static Ref add_taps(Graph *g, const Val *dot, const Convolution *c)
{
	const Shape *kernel = &val(g, dot->in[1])->shape, *windows = &c->window->shape;
	int64_t groups = c->from.dim[1], channels = c->from.dim[2], outputs = last_dim(kernel);
	int64_t taps = kernel->dim[kernel->rank - 2] / channels, added = 1, positions = 1;
	WindowAxis window[RANK];
	int n = c->n, first = c->first;
	Shape to = c->from, each = {.rank = 3 + 2 * n - first};
	for (int a = 0; a < n; a++) {
		to.dim[3 + a] = windows->dim[3 + a];
		each.dim[2 + a] = a < first ? windows->dim[3 + a] : c->from.dim[3 + a];
		positions *= each.dim[2 + a];
		if (a < first)
			continue;
		added *= each.dim[2 + n + a - first] = windows->dim[3 + n + a];
		window[a - first] = transposed_axis(c, a);
	}
	to.dim[2] = outputs;
	each.dim[0] = c->from.dim[0];
	each.dim[1] = groups;
	each.dim[each.rank - 1] = outputs;

	// [N, G, positions.., taps C] times [G, taps C, added O]
	int64_t rows = taps / added * channels, columns = added * outputs;
	Ref x = c->window->in[0];
	if (first)
		x = put_window(g, x, first, window_axes(c->window->attr).at, 0);
	x = move_axis(g, x, 2, 2 + n + first);
	x = put_reshape(g, x, shape_of(4, (int64_t[]){each.dim[0], groups, positions, rows}));
	Shape open = shape_of(5, (int64_t[]){groups, taps / added, added, channels, outputs});
	Ref own = move_axis(g, put_reshape(g, dot->in[1], open), 3, 2);
	own = put_reshape(g, own, shape_of(4, (int64_t[]){1, groups, rows, columns}));
	if (groups == 1) {
		x = put_reshape(g, x, shape_of(2, (int64_t[]){each.dim[0] * positions, rows}));
		own = put_reshape(g, own, shape_of(2, (int64_t[]){rows, columns}));
	}
	Ref y = put_reshape(g, put2(g, O_dot, x, own), each);
	y = put_unwindow(g, move_axis(g, y, each.rank - 1, 2), &to, n - first, window);
	return put_reshape(g, move_axis(g, y, 2, 2 + n), dot->shape);
}

static bool has_form(const Graph *g, const Val *v, Convolution *c)
{
	return v->op == O_dot && is_convolution(g, v, c) && (c->depthwise || c->adds_taps);
}

static Ref put_form(void *context, Graph *g, const Val *v, const Ref *in)
{
	(void)context;
	Val dot = *v;
	Convolution c;
	dot.in = in;
	if (!has_form(g, &dot, &c))
		return put_as(g, v, in);
	return c.depthwise ? sum_taps(g, &dot, &c) : add_taps(g, &dot, &c);
}

const Graph *convolution_pass(Arena *arena, const Graph *from)
{
	Convolution c;
	bool any = false;
	for (Ref r = 1; r < (Ref)from->nval && !any; r++)
		any = has_form(from, val(from, r), &c);
	if (!any)
		return from;
	Graph *to = graph_like(arena, from);
	to->plain = DECOMPOSED_ALL;
	copy_graph(to, from, NULL, put_form, NULL);
	return graph_live(arena, to);
}
