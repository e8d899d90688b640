// signal.c: ONNX operators on signals: windows, Fourier transforms, mel weights.
// Takes the node being lowered. Gives its results. Keeps: a transform is two products with matrices
// of cosines and sines; what depends on attributes alone is a constant.
#include "ops.h"
#include <math.h>
#include <string.h>

// a - b cos(2 pi n / N) + d cos(4 pi n / N)
void lower_window(Call *c)
{
	static const double weights[][3] = {
	    {0.5, 0.5, 0}, {25.0 / 46, 21.0 / 46, 0}, {0.42, 0.5, 0.08}};
	int n = 0;
	const int64_t *size = operand_ints(c, 0, &n);
	if (!size || n != 1 || size[0] < 1 || size[0] > 1 << 24)
		invalid_node(c, "the size is no number of at least 1");
	double length = (double)size[0] - !attr_int(c, "periodic", 1);
	AttrArg given[] = {{.name = "a", .x = weights[c->variant][0]},
	                   {.name = "b", .x = weights[c->variant][1]},
	                   {.name = "d", .x = weights[c->variant][2]},
	                   {.name = "step", .x = 2 * M_PI / MAX(length, 1)}};
	Ref at = put_cast(c->g, put_iota(c->g, shape_of(1, size), 0), E_f32);
	c->out[0] = book_call1(c->g, "cosine_window", 1, &at, 4, given);
}

// ---- Fourier --------------------------------------------------------------------------

typedef struct Wave { // a transform from `in` entries to `out`, of period `period`
	int64_t in, out, period;
	bool back;   // the inverse
	bool halved; // of a spectrum whose other half is its mirror image
} Wave;

// cos (or sin) of 2 pi i o / period, [in, out]; of what lies beyond the period nothing.
static Ref wave_matrix(Call *c, const Wave *w, bool sine)
{
	enum { WORK = 4 }; // that a cosine takes, in elements
	spend(c->r->arena, COST_elements,
	      cost_product((uint64_t)w->in, cost_product((uint64_t)w->out, WORK)));
	float *m = NEWS(c->r->arena, float, w->in * w->out + 1);
	double scale = w->back ? 1 / (double)w->period : 1;
	for (int64_t i = 0; i < w->in; i++) {
		bool alone = i == 0 || 2 * i == w->period, used = !w->halved || 2 * i <= w->period;
		double each = i < w->period && used ? scale * (w->halved && !alone ? 2 : 1) : 0;
		for (int64_t o = 0; o < w->out; o++) {
			double angle = 2 * M_PI * (double)(i * o % w->period) / (double)w->period;
			m[i * w->out + o] = (float)(each * (sine ? sin(angle) : cos(angle)));
		}
	}
	return put_const(c->g, E_f32, shape_of(2, (int64_t[]){w->in, w->out}), m);
}

// Real and imaginary parts along the last axis; `imaginary` may be 0. Results likewise.
static void transform(Call *c, const Wave *w, Ref *real, Ref *imaginary)
{
	Graph *g = c->g;
	Ref cosine = wave_matrix(c, w, false), sine = wave_matrix(c, w, true);
	Op plus = w->back ? O_sub : O_add, minus = w->back ? O_add : O_sub;
	Ref a = matmul(g, *real, cosine), b = matmul(g, *real, sine);
	if (!*imaginary) {
		*real = a;
		*imaginary = w->back ? b : put1(g, O_neg, b);
		return;
	}
	Ref re = put2(g, plus, a, matmul(g, *imaginary, sine));
	*imaginary = put2(g, minus, matmul(g, *imaginary, cosine), b);
	*real = re;
}

// One part of a last axis of real and imaginary parts, with `axis` made the last.
static Ref part_of(Graph *g, Ref x, int k, int axis)
{
	int64_t last = val(g, x)->shape.rank - 1;
	Ref part = drop_axes(g, take_range(g, x, (int)last, k, 1), 1, &last);
	return move_axis(g, part, axis, (int)last - 1);
}

static Ref join_parts(Graph *g, int n, const Ref *part, int axis)
{
	Ref x[2];
	for (int k = 0; k < n; k++) {
		int rank = val(g, part[k])->shape.rank;
		x[k] = insert_axis(g, move_axis(g, part[k], rank - 1, axis), rank);
	}
	return n == 1 ? x[0] : put_concat(g, val(g, x[0])->shape.rank - 1, 2, x);
}

void lower_dft(Call *c)
{
	Graph *g = c->g;
	Shape s = in_val(c, 0)->shape;
	int n = 0, naxis = 0;
	const int64_t *length = operand_ints(c, 1, &n), *given = operand_ints(c, 2, &naxis);
	int64_t at = given && naxis ? given[0] : attr_int(c, "axis", c->opset < 20 ? 1 : -2);
	int axis = (int)axis_of(c, at, s.rank);
	int64_t parts = s.dim[s.rank - 1];
	if (axis == s.rank - 1 || parts < 1 || parts > 2)
		invalid_node(c, "wants a last axis of 1 or 2 parts that is not transformed");
	Wave w = {.in = s.dim[axis], .back = attr_int(c, "inverse", 0)};
	bool half = attr_int(c, "onesided", 0);
	w.halved = half && w.back;
	w.period = length && n ? length[0] : w.halved ? 2 * (w.in - 1) : w.in;
	w.out = half && !w.back ? w.period / 2 + 1 : w.period;
	if (w.period < 1)
		invalid_node(c, "a transform of length %lld", (long long)w.period);
	Ref part[2] = {part_of(g, c->in[0], 0, axis),
	               parts == 2 ? part_of(g, c->in[0], 1, axis) : 0};
	transform(c, &w, &part[0], &part[1]);
	c->out[0] = join_parts(g, w.halved ? 1 : 2, part, axis);
}

// Frames of a signal [batch, length, parts], `step` apart: part k as [batch, frames, size].
static Ref frames_of(Graph *g, Ref signal, int k, int64_t step, int64_t size)
{
	Shape s = val(g, signal)->shape;
	Ref x = take_range(g, signal, 2, k, 1);
	Attr window = {.n = 7, .i = {1, (s.dim[1] - size) / step + 1, size, step, 1, 0, 1}};
	return drop_axes(g, put(g, O_window, 1, &x, &window), 1, (int64_t[]){2});
}

void lower_stft(Call *c)
{
	Graph *g = c->g;
	Shape s = in_val(c, 0)->shape;
	int n = 0, nlength = 0;
	const int64_t *step = operand_ints(c, 1, &n), *length = operand_ints(c, 3, &nlength);
	Ref window = c->nin > 2 ? c->in[2] : 0;
	int64_t size = length && nlength ? length[0] : window ? val(g, window)->shape.dim[0] : 0;
	if (s.rank != 3 || !step || n != 1 || step[0] < 1 || size < 1 || size > s.dim[1])
		invalid_node(c,
		             "wants a signal of three axes, a step, and a frame that fits into it");
	Wave w = {.in = size, .period = size};
	w.out = attr_int(c, "onesided", 1) ? size / 2 + 1 : size;
	Ref part[2] = {0, 0};
	for (int k = 0; k < s.dim[2] && k < 2; k++) {
		part[k] = frames_of(g, c->in[0], k, step[0], size);
		if (window)
			part[k] = put_map2(g, O_mul, part[k], window);
	}
	transform(c, &w, &part[0], &part[1]);
	c->out[0] = join_parts(g, 2, part, 2);
}

// ---- mel ------------------------------------------------------------------------------

static double mel_of(double hertz)
{
	return 2595 * log10(1 + hertz / 700);
}

// The entry of the spectrum that edge `i` of the triangles lies at.
static int64_t mel_edge(int64_t i, int64_t bins, double low, double high, double length,
                        double rate)
{
	double step = (mel_of(high) - mel_of(low)) / (double)(bins + 2);
	double hertz = 700 * (pow(10, ((double)i * step + mel_of(low)) / 2595) - 1);
	return (int64_t)floor((length + 1) * hertz / rate);
}

void lower_mel(Call *c)
{
	double x[5];
	for (int k = 0; k < 5; k++) {
		int n = 0;
		const double *number = operand_numbers(c, k, &n);
		if (!number || n != 1)
			invalid_node(c, "operand %d is not a number", k);
		x[k] = number[0];
	}
	if (!(x[0] >= 1 && x[0] < 1e5 && x[1] >= 1 && x[1] < 1e6 && x[2] > 0))
		invalid_node(c, "%g bins of a transform of %g at %g a second", x[0], x[1], x[2]);
	int64_t bins = (int64_t)x[0], rows = (int64_t)x[1] / 2 + 1;
	float *m = NEWS(c->r->arena, float, rows *bins);
	for (int64_t i = 0; i < bins; i++) {
		int64_t edge[3];
		for (int k = 0; k < 3; k++)
			edge[k] = mel_edge(i + k, bins, x[3], x[4], x[1], x[2]);
		for (int64_t j = MAX(edge[0], 0); j < edge[2] && j < rows; j++) {
			bool up = j < edge[1];
			int64_t width = up ? edge[1] - edge[0] : edge[2] - edge[1];
			int64_t from = up ? j - edge[0] : edge[2] - j;
			m[j * bins + i] = (float)((double)from / (double)width);
		}
		if (edge[1] >= 0 && edge[1] < rows)
			m[edge[1] * bins + i] = 1;
	}
	c->out[0] = put_const(c->g, E_f32, shape_of(2, (int64_t[]){rows, bins}), m);
}
