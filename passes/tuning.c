// tuning.c: schedules a product or attention as it was measured to run best.
// A key names all that a choice depends on: sizes, types and the usual schedule, which shows how
// the operands lie. Invariant: a choice never changes a result. A schedule with sums in another
// order than the usual one is not taken.
#include "tiling.h"
#include <string.h>

const Tuning tunings[] = {
#define T(...) {__VA_ARGS__},
#include "tunings.def"
#undef T
};
const int tuning_count = COUNT(tunings);

const char *tuning_key(Arena *arena, const Graph *g, const Kern *k)
{
	const Val *v = val(g, k->out[0]);
	const Val *root = k->root ? val(g, k->root) : v;
	Text key = {.arena = arena};
	say(&key, "%d %s", k->kind, elems[root->type].name);
	for (int i = -1; i < root->nin; i++) {
		const Shape *shape = i < 0 ? &root->shape : &val(g, root->in[i])->shape;
		for (int a = 0; a < shape->rank; a++)
			say(&key, "%c%lld", a ? 'x' : ' ', (long long)shape->dim[a]);
	}
#define S(kind, field, meaning) say(&key, " %lld", (long long)k->sched->field);
#include "sched.def"
#undef S
	return key.at;
}

// True if all sums are of the same elements in the same order: over k, whose steps may be lanes,
// and over the rows of a worker, the columns of a panel or the blocks of a head.
static bool same_sums(const Sched *s, const Sched *usual, const Kern *k)
{
	bool back = k->kind == L_attend, along = reduces_along(k);
	bool rows = along ? s->vectors == usual->vectors
	                  : s->strips * s->height == usual->strips * usual->height;
	bool squares = (s->a == W_winograd) == (usual->a == W_winograd);
	bool lanes = (s->b == W_along) == (usual->b == W_along);
	return s->depth == usual->depth && s->parts == usual->parts && squares && lanes &&
	       (rows || !(usual->reduce.count || back));
}

void tune_kernel(Scheduler *t, void tile(Scheduler *))
{
	const Table *choices = t->machine->choices;
	t->tuning = &tunings[0];
	tile(t);
	if (!choices)
		return;
	t->kern->key = tuning_key(t->arena, t->graph, t->kern);
	const uint64_t *choice = table_find_s(choices, t->kern->key);
	if (!choice || !*choice)
		return;
	Sched usual = *t->sched;
	*t->sched = (Sched){0};
	t->tuning = &tunings[*choice];
	tile(t);
	if (!same_sums(t->sched, &usual, t->kern))
		*t->sched = usual;
}
