// line_windows.c: writes convolutions of few channels, in bf16, as matrix registers multiply.
// A register takes 32 adjacent elements of k: channels, if there are so many. The three of an image
// are too few, but a line of the window, 7 x 3 elements, is adjacent in a copy of the image that
// has channels last and its padding. Windows of this copy have lines of 32 elements, the last of
// which meet zeros of the kernel; their gradients are dropped.
#include "passes.h"

enum { STEP = 32, CHANNELS = 16 }; // elements of a register; so many channels are not few

typedef struct Windows {
	const Val *window;            // of x [N, 1, C, in..]
	Ref image;                    // x before it was rounded and reshaped; 0: not such windows
	int n;                        // spatial axes
	int64_t channels, line, step; // elements of a line of a window, and with padding
	Ref put;                      // by lines [positions, lines step]; 0: not yet
} Windows;

typedef struct LineWindows {
	const Graph *from;
	Ref *now;    // by Ref of `from`: its copy
	Windows *of; // by Ref of `from`: the windows that it is as a matrix [positions, k]
} LineWindows;

static const int64_t *row_of(const Windows *w, int axis)
{
	return w->window->attr->i + 7 * axis;
}

// Returns the f32 that r rounds to bf16, perhaps reshaped; 0: it rounds nothing.
static Ref rounded_by(const Graph *g, Ref r)
{
	const Val *v = val(g, unreshaped(g, r));
	bool rounds = v->op == O_cast && v->type == E_bf16 && val(g, v->in[0])->type == E_f32;
	return rounds ? v->in[0] : 0;
}

// True if a window has no gaps along a line, and every axis after the channels is windowed.
static bool has_lines(const Graph *g, const Val *window, int n)
{
	const Shape *from = &val(g, window->in[0])->shape;
	bool has = n > 0 && from->rank == 3 + n && from->dim[1] == 1 && window->attr->x == 0;
	for (int a = 0; has && a < n; a++) {
		const int64_t *row = window->attr->i + 7 * a;
		has = row[0] == 3 + a && row[6] == 1 && row[4] > 0 && (a + 1 < n || row[4] == 1);
	}
	return has;
}

// Finds the windows that matrix r is.
static Windows find_windows(const Graph *g, Ref r)
{
	Windows none = {0}, w = {0};
	const Val *matrix = val(g, r), *turned, *window;
	if (matrix->op != O_reshape || matrix->shape.rank != 2 || matrix->type != E_bf16)
		return none;
	turned = val(g, matrix->in[0]);
	if (turned->op != O_permute || val(g, turned->in[0])->op != O_window)
		return none;
	window = val(g, turned->in[0]);
	w.window = window;
	w.n = window->attr->n / 7;
	int last = turned->shape.rank - 1;
	bool fits = has_lines(g, window, w.n) && turned->attr->i[last] == 2;
	for (int a = 0; fits && a < last; a++)
		fits = turned->attr->i[a] == a + (a > 1);
	if (!fits)
		return none;
	w.channels = val(g, window->in[0])->shape.dim[2];
	w.line = row_of(&w, w.n - 1)[2] * w.channels;
	w.step = (w.line + STEP - 1) / STEP * STEP;
	w.image = w.channels < CHANNELS && 2 * w.line > w.step && matrix->shape.dim[1] % w.line == 0
	              ? rounded_by(g, window->in[0])
	              : 0;
	return w;
}

// Puts the copy of the image: [N, lines.., C elements of a line].
static Ref put_image(Graph *g, Ref x, const Windows *w, const Shape *from)
{
	int64_t before[RANK] = {0}, after[RANK] = {0};
	int n = w->n;
	Shape flat = shape_of(2 + n, from->dim + 1);
	flat.dim[0] = from->dim[0];
	for (int a = 0; a < n; a++) {
		const int64_t *row = row_of(w, a);
		int64_t reach = (row[1] - 1) * row[3] + (row[2] - 1) * row[4] + 1;
		if (a == n - 1)
			reach = (row[1] - 1) * row[3] + (w->step + w->channels - 1) / w->channels;
		before[1 + a] = row[5];
		after[1 + a] = MAX(0, reach - row[5] - from->dim[3 + a]);
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
	Attr attr = {.n = 7 * w->n};
	int64_t positions = val(l->from, r)->shape.dim[0];
	Ref x = put_image(to, l->now[w->image], w, &val(l->from, w->window->in[0])->shape);
	for (int a = 0; a < w->n; a++) {
		int64_t *own = attr.i + 7 * a;
		const int64_t *row = row_of(w, a);
		for (int i = 0; i < 7; i++)
			own[i] = row[i];
		own[0] = 1 + a;
		own[5] = 0;
		if (a == w->n - 1) {
			own[2] = w->step;
			own[3] *= w->channels;
		}
	}
	x = put(to, O_window, 1, &x, &attr);
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
	int64_t before[RANK] = {0}, after[] = {0, w->step - w->line, 0};
	Ref b = put_reshape(to, in[1], shape_of(3, (int64_t[]){lines, w->line, outputs}));
	b = put_pad(to, b, before, after, 0);
	b = put_reshape(to, b, shape_of(2, (int64_t[]){lines * w->step, outputs}));
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
