// loop.c: checks loops in the notation: trimmed, unrolled, read back, differentiated, planned.
// All forms give the same values; gradients agree with differences, also compiled; plans verify.
// usage: loop GRAPH...
#include "emitted.h"
#include "trial.h"
#include <math.h>
#include <string.h>

static int failures;

static void hold(bool truth, const char *name, const char *what)
{
	if (!truth)
		printf("%s: %s\n", name, what);
	failures += !truth;
}

// Returns the largest difference between the outputs of two graphs on the same slots.
static double distance(Arena *arena, const Graph *a, const Graph *b, const Array *slot)
{
	const Array *x = eval_graph(arena, a, slot), *y = eval_graph(arena, b, slot);
	double worst = a->outs.count == b->outs.count ? 0 : INFINITY;
	for (int i = 0; i < a->outs.count && isfinite(worst); i++) {
		const Array *p = &x[a->outs.at[i].val], *q = &y[b->outs.at[i].val];
		if (!same_shape(&p->shape, &q->shape) || p->type != q->type)
			return INFINITY;
		for (int64_t k = 0; k < count_of(&p->shape); k++)
			worst = fmax(worst, is_float(p->type) ? fabs(p->f[k] - q->f[k])
			                                      : fabs((double)(p->i[k] - q->i[k])));
	}
	return worst;
}

static int count_loops(const Graph *g)
{
	int n = 0;
	for (Ref r = 1; r < (Ref)g->nval; r++)
		n += val(g, r)->op == O_loop;
	return n;
}

typedef struct Contents {
	const Graph *g;
	const Array *slot;
} Contents;

static Array contents(void *context, const Slot *slot)
{
	const Contents *c = context;
	return c->slot[find_slot(c->g, slot->name)];
}

static void check_text(Arena *arena, const char *name, const Graph *g)
{
	const char *text = graph_text(arena, g);
	const Graph *again = parse_graph(arena, name, text, book_builtin());
	hold(!strcmp(text, graph_text(arena, again)), name, "reads back as another graph");
}

static bool all_certain(const Graph *g)
{
	bool certain = true;
	for (Ref r = 1; r < (Ref)g->nval; r++)
		if (val(g, r)->op == O_loop) {
			LoopInfo c = loop_of(val(g, r));
			certain &= makes_all_trips(g, &c, val(g, r)->in) && all_certain(c.body);
		}
	return certain;
}

// True if a body has an output that is a product, and a term of one sum alone: its gradient needs
// the sum at most.
static bool stores_terms(const Graph *body)
{
	const int *uses = graph_uses(body->arena, body);
	bool found = false;
	for (Ref r = 1; r < (Ref)body->nval; r++)
		for (int k = 0; k < val(body, r)->nin && uses[r]; k++) {
			Ref x = val(body, r)->in[k];
			bool out = false;
			for (int i = 0; i < body->outs.count; i++)
				out |= body->outs.at[i].val == x;
			found |= (val(body, r)->op == O_add || val(body, r)->op == O_sub) && out &&
			         val(body, x)->op == O_dot && uses[x] == 2;
		}
	return found;
}

static void check_file(const char *path)
{
	Arena *arena = arena_new();
	const Graph *g = graph_live(arena, read_graph(arena, path));
	const Array *slot = random_slots(arena, g, 3, 5);
	hold(count_loops(g) > 0, path, "holds no loop");
	check_text(arena, path, g);
	hold(distance(arena, g, loops_pass(arena, g, 0), slot) < 1e-9, path, "differs when leaner");
	Trial *t = trial_new(arena, path, g, contents, &(Contents){g, slot});
	hold(trial_differences(t), path, "gradients differ from differences");
	hold(trial_compiled(t), path, "gradients differ when compiled");
	check_text(arena, path, t->with);
	for (Ref r = 1; r < (Ref)t->with->nval; r++)
		if (val(t->with, r)->op == O_loop)
			hold(!stores_terms(loop_of(val(t->with, r)).body), path,
			     "stores a product that is the term of a sum");
	verify_plan(plan_graph(arena, t->with, "grad", &machines[0]));
	if (all_certain(g)) {
		const Graph *flat = loops_pass(arena, g, INT32_MAX);
		hold(!count_loops(flat), path, "still holds a loop when laid out");
		hold(distance(arena, g, flat, slot) < 1e-9, path, "differs when laid out");
	}
	arena_free(arena);
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		check_file(argv[i]);
	printf("%d files of loops, %d failures\n", argc - 1, failures);
	return failures || argc < 2;
}
