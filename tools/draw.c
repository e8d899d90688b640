// draw.c: draws parameters and inputs for checks. Draws are a function of the seed.
#include "tool.h"
#include <math.h>
#include <string.h>

static double uniform(Draw *d)
{
	return random_uniform(d->seed, d->step, d->site, d->position++);
}

static double normal(Draw *d)
{
	double radius = sqrt(-2 * log(1 - uniform(d)));
	return radius * cos(2 * M_PI * uniform(d));
}

void draw_parameter(const Slot *s, const Eta *eta, Draw *d, float *to)
{
	bool factor = !strcmp(eta->role, "norm_scale") || !strcmp(eta->role, "scale");
	int64_t inner = 1; // elements per index of the axis along which eta varies
	for (int a = s->shape.rank - 1; eta->nparts && a > eta->axis; a--)
		inner *= s->shape.dim[a];
	for (int64_t i = 0; i < count_of(&s->shape); i++) {
		const Eta *own = eta->nparts ? eta->parts : eta;
		int64_t at = eta->nparts ? i / inner % s->shape.dim[eta->axis] : 0;
		for (int part = 0; eta->nparts && at >= eta->counts[part]; part++, own++)
			at -= eta->counts[part];
		to[i] = (float)(own->eta.value * (factor ? 1 : normal(d)));
	}
}

void draw_input(const Graph *g, const Scales *scales, int slot, Draw *d, void *to)
{
	Arena *arena = arena_new();
	const Slot *s = &g->slots.at[slot];
	Ref r = slot_ref(g, slot);
	double range = r && scales ? scales->range[r].value : 1;
	int64_t count = count_of(&s->shape);
	Array x = {.type = s->type, .shape = s->shape, .i = NEWS(arena, int64_t, count)};
	for (int64_t i = 0; i < count; i++)
		if (is_float(s->type))
			x.f[i] = range * normal(d);
		else
			x.i[i] = s->limit ? (int64_t)(uniform(d) * (double)s->limit) : 1;
	array_to(&x, to);
	arena_free(arena);
}
