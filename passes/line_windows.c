// line_windows.c: writes convolutions of few channels, in bf16, as matrix registers multiply.
// A register takes 32 adjacent elements of k: channels, if there are so many. The three of an image
// are too few, but a line of the window, 7 x 3 elements, is adjacent in a copy of the image that
// has channels last and its padding. Windows of this copy have lines of 32 elements, the last of
// which meet zeros of the kernel; their gradients are dropped.
#include "passes.h"

enum { STEP = 32, CHANNELS = 16 }; // elements of a register; so many channels are not few

typedef struct Windows {
	Ref x;                        // [N, 1, C, in..], under the windows
	Ref image;                    // x before it was rounded and reshaped; 0: not such windows
	WindowAxes axes;              // spatial
	int64_t channels, line, step; // elements of a line of a window, and with padding
	Ref put;                      // by lines [positions, lines step]; 0: not yet
} Windows;

typedef struct LineWindows {
	const Graph *from;
	Ref *now;    // by Ref of `from`: its copy
	Windows *of; // by Ref of `from`: the windows that it is as a matrix [positions, k]
} LineWindows;

// Returns the f32 that r rounds to bf16, perhaps reshaped; 0: it rounds nothing.
static Ref rounded_by(const Graph *g, Ref r)
{
	const Val *v = val(g, unreshaped(g, r));
	bool rounds = v->op == O_cast && v->type == E_bf16 && val(g, v->in[0])->type == E_f32;
	return rounds ? v->in[0] : 0;
}

// True if windows have no gaps along a line.
static bool have_lines(const Val *window)
{
	WindowAxes w = window_axes(window->attr);
	bool have = w.n > 0 && w.at[w.n - 1].dilation == 1 && window->attr->x == 0;
	for (int a = 0; have && a < w.n; a++)
		have = w.at[a].up == 1 && w.at[a].dilation > 0;
	return have;
}

// Finds the windows that matrix r is.
static Windows find_windows(const Graph *g, Ref r)
{
	const Val *matrix = val(g, r), *window = windows_of_matrix(g, r);
	Windows none = {0}, w = {0};
	if (!window || matrix->type != E_bf16 || matrix->shape.rank != 2 ||
	    val(g, matrix->in[0])->op != O_permute || !have_lines(window))
		return none;
	w.x = window->in[0];
	w.axes = window_axes(window->attr);
	w.channels = val(g, w.x)->shape.dim[2];
	w.line = w.axes.at[w.axes.n - 1].size * w.channels;
	w.step = ceil_div(w.line, STEP) * STEP;
	w.image = w.channels < CHANNELS && 2 * w.line > w.step ? rounded_by(g, w.x) : 0;
	return w;
}

// Puts the copy of the image: [N, lines.., C elements of a line].
static Ref put_image(Graph *g, Ref x, const Windows *w, const Shape *from)
{
	int64_t before[RANK] = {0}, after[RANK] = {0};
	int n = w->axes.n;
	Shape flat = shape_of(2 + n, from->dim + 1);
	flat.dim[0] = from->dim[0];
	for (int a = 0; a < n; a++) {
		const WindowAxis *axis = &w->axes.at[a];
		int64_t span = (axis->size - 1) * axis->dilation + 1; // of a window
		if (a == n - 1)
			span = ceil_div(w->step, w->channels);
		before[1 + a] = axis->before;
		after[1 + a] = zeros_after(axis, span, from->dim[3 + a]);
	}
	x = put_pad(g, move_axis(g, put_reshape(g, x, flat), 1, 1 + n), before, after, 0);
	flat = val(g, x)->shape;
	flat.dim[n] *= w->channels;
	flat.rank = 1 + n;
	return put_cast(g, put_reshape(g, x, flat), E_bf16);
}

// Puts the windows as a matrix whose rows are lines of `step` elements.
static Ref put_lines(LineWindows *l, Graph *to, Ref r)
{
	Windows *w = &l->of[r];
	if (w->put)
		return w->put;
	WindowAxis axis[RANK];
	int64_t positions = val(l->from, r)->shape.dim[0];
	Ref x = put_image(to, l->now[w->image], w, &val(l->from, w->x)->shape);
	int n = w->axes.n;
	for (int a = 0; a < n; a++) {
		axis[a] = w->axes.at[a];
		axis[a].axis = 1 + a;
		axis[a].before = 0;
	}
	axis[n - 1].size = w->step;
	axis[n - 1].stride *= w->channels;
	x = put_window(to, x, n, axis, 0);
	int64_t columns = count_of(&val(to, x)->shape) / positions;
	w->put = put_reshape(to, x, shape_of(2, (int64_t[]){positions, columns}));
	return w->put;
}

// Puts the product of windows and a kernel [k, O], whose lines are padded by zeros.
static Ref put_forward(LineWindows *l, Graph *to, const Val *v, const Ref *in)
{
	const Windows *w = &l->of[v->in[0]];
	Shape kernel = val(to, in[1])->shape;
	int64_t lines = kernel.dim[0] / w->line, outputs = kernel.dim[1];
	Ref b = put_reshape(to, in[1], shape_of(3, (int64_t[]){lines, w->line, outputs}));
	b = put_reshape(to, put_extended(to, b, 1, w->step),
	                shape_of(2, (int64_t[]){lines * w->step, outputs}));
	return put2(to, O_dot, put_lines(l, to, v->in[0]), b);
}

// Puts the gradient of a kernel, [O, positions] times windows, without that of the padding.
static Ref put_gradient(LineWindows *l, Graph *to, const Val *v, const Ref *in)
{
	const Windows *w = &l->of[v->in[1]];
	int64_t outputs = v->shape.dim[0], lines = v->shape.dim[1] / w->line;
	int64_t start[RANK] = {0}, count[] = {outputs, lines, w->line};
	Ref y = put2(to, O_dot, in[0], put_lines(l, to, v->in[1]));
	y = put_reshape(to, y, shape_of(3, (int64_t[]){outputs, lines, w->step}));
	return put_reshape(to, put_slice(to, y, start, count, NULL), v->shape);
}

static Ref put_product(void *context, Graph *to, const Val *v, const Ref *in)
{
	LineWindows *l = context;
	if (v->op == O_dot && l->of[v->in[0]].image)
		return put_forward(l, to, v, in);
	if (v->op == O_dot && l->of[v->in[1]].image)
		return put_gradient(l, to, v, in);
	return put_as(to, v, in);
}

Graph *line_windows_pass(Arena *arena, const Graph *from)
{
	Graph *to = graph_like(arena, from);
	LineWindows l = {.from = from,
	                 .now = NEWS(arena, Ref, from->nval),
	                 .of = NEWS(arena, Windows, from->nval)};
	for (Ref r = 1; r < (Ref)from->nval; r++)
		l.of[r] = find_windows(from, r);
	copy_graph(to, from, l.now, put_product, &l);
	return to;
}
