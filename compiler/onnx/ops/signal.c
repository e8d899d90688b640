// signal.c: lowers MelWeightMatrix, makes the matrices of Fourier transforms.
// Both depend on attributes alone: they are constants.
#include "ops.h"
#include <math.h>

Ref wave_matrix(Call *c, const Wave *w, bool sine)
{
	enum { WORK = 4 }; // that a cosine takes, in elements
	spend(c->r->arena, COST_elements,
	      cost_product((uint64_t)w->in, cost_product((uint64_t)w->out, WORK)));
	float *m = NEWS(c->r->arena, float, w->in * w->out + 1);
	double scale = w->inverse ? 1 / (double)w->period : 1;
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
