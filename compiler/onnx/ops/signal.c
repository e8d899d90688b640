// signal.c: makes the matrices of Fourier transforms, which are constants.
#include "ops.h"
#include <math.h>

// wave(in, out, period, inverse, halved, sine): cos (or sin) of 2 pi i o / period, [in, out]; 0 for
// what lies beyond the period. halved: of a spectrum whose other half is its mirror image.
Item fn_wave(Call *c, Scope *s, const Expr *e)
{
	enum { WORK = 4 }; // that a cosine takes, in elements
	int64_t n[6];
	for (int k = 0; k < COUNT(n); k++)
		n[k] = (int64_t)number_of_item(s, e, call_arg(s, e, k));
	int64_t in = n[0], out = n[1], period = n[2], halved = n[4];
	spend(c->r->arena, COST_elements,
	      cost_product((uint64_t)in, cost_product((uint64_t)out, WORK)));
	float *m = NEWS(c->r->arena, float, in *out + 1);
	double scale = n[3] ? 1 / (double)period : 1;
	for (int64_t i = 0; i < in; i++) {
		bool alone = i == 0 || 2 * i == period, used = !halved || 2 * i <= period;
		double each = i < period && used ? scale * (halved && !alone ? 2 : 1) : 0;
		for (int64_t o = 0; o < out; o++) {
			double angle = 2 * M_PI * (double)(i * o % period) / (double)period;
			m[i * out + o] = (float)(each * (n[5] ? sin(angle) : cos(angle)));
		}
	}
	return ref_item(put_const(c->g, E_f32, shape_of(2, n), m));
}
