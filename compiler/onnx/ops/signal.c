// signal.c: makes the matrices of Fourier transforms, which are constants.
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
