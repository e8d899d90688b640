// schedule.c: checks that kernels do what their schedules say, when a schedule is not the chosen
// one.
#include "emitted.h"
#include "index.h"
#include <math.h>
#include <string.h>

static const Target *target;

static Plan *plan_after(Arena *arena, const Graph *g, void (*change)(const Plan *, Kern *))
{
	Unit unit = {"run", target_machine(target), g, NULL};
	for (Pass pass = PASS_loops; pass <= PASS_memory; pass++) {
		for (int k = 0; pass == PASS_memory && change && k < unit.plan->kerns.count; k++)
			change(unit.plan, &unit.plan->kerns.at[k]);
		run_pass(arena, pass, &unit);
	}
	return unit.plan;
}

static const Array *run_after(Arena *arena, const Graph *g, const Array *slot,
                              void (*change)(const Plan *, Kern *))
{
	Compiled *c = compile_plan(arena, g, plan_after(arena, g, change), target, g->name);
	const Array *value = outs_compiled(arena, c, slot);
	free_compiled(c);
	return &value[g->outs.at[0].val];
}

static bool computes(const void *plan, Ref r)
{
	const Plan *p = plan;
	int *writer = plan_writers(p->graph->arena, p);
	return is_inside(p, writer, writer[p->graph->outs.at[0].val], r);
}

static void by_panels(const Plan *p, Kern *k)
{
	Sched *s = k->sched;
	if (s->partition != P_tiles)
		return;
	s->order = N_panels;
	Inside inside = {computes, p};
	DotSizes z = dot_sizes(p->graph->arena, p->graph, &inside, k, p->machine);
	s->local = z.sums + z.strip + z.panel;
}

static void in_double(const Plan *p, Kern *k)
{
	(void)p;
	k->sched->accumulation = A_f64;
}

static void one_chain(const Plan *p, Kern *k)
{
	(void)p;
	k->sched->chains = 1;
	k->sched->block = 7;
	k->sched->lane_block = 48;
	for (int i = 0; i < k->sched->reduce.count; i++)
		k->sched->reduce.at[i].chains = 1;
}

// The order of the loops around a tile is not the order of a sum.
static int test_order(Arena *arena, const char *text)
{
	const Graph *g = parse_graph(arena, "order", text, book_builtin());
	const Array *slot = random_slots(arena, g, 1, 2);
	const Array *strips = run_after(arena, g, slot, NULL);
	const Array *panels = run_after(arena, g, slot, by_panels);
	size_t bytes = sizeof *strips->f * (size_t)count_of(&strips->shape);
	if (!memcmp(strips->f, panels->f, bytes))
		return 0;
	printf("FAILED %s: another order of loops gives other bits\n", g->name);
	return 1;
}

// Returns the largest error in units of the last place of the largest element.
static double error_of(const Array *found, const Array *exact)
{
	double worst = 0, size = 0;
	for (int64_t i = 0; i < count_of(&exact->shape); i++) {
		worst = fmax(worst, fabs(found->f[i] - exact->f[i]));
		size = fmax(size, fabs(exact->f[i]));
	}
	return worst / (size * 0x1p-23);
}

static int test_sums(Arena *arena, const char *text)
{
	const Graph *g = parse_graph(arena, "sums", text, book_builtin());
	const Array *slot = random_slots(arena, g, 1, 2);
	const Array *exact = &eval_graph(arena, g, slot)[g->outs.at[0].val];
	double chosen = error_of(run_after(arena, g, slot, NULL), exact);
	double exactly = error_of(run_after(arena, g, slot, in_double), exact);
	double chain = error_of(run_after(arena, g, slot, one_chain), exact);
	if (exactly <= 0.51 && exactly < chosen && chosen < 20 && chain < 20)
		return 0;
	printf("FAILED %s: errors of %g, in double %g, in one chain %g\n", g->name, chosen, exactly,
	       chain);
	return 1;
}

int main(void)
{
	static const char *const masks[] = {NULL, "-avx512f", "-avx512f,-avx2,-fma,-avx"};
	int failed = 0;
	for (int m = 0; m < COUNT(masks); m++) {
		Arena *arena = arena_new();
		target = target_named(arena, "cpu", masks[m]);
		failed +=
		    test_order(arena, "graph product\nslot a : input f32[61,1100]\n"
		                      "slot b : input f32[77,1100]\nslot c : input f32[61,77]\n"
		                      "out y = max(dot(a, permute(b; [1,0])) + c, 0)\n");
		failed +=
		    test_order(arena, "graph batch\nslot a : input f32[3,150,60]\n"
		                      "slot b : input f32[3,60,450]\nout y = dot(exp(a), b)\n");
		failed += test_sums(arena, "graph rows\nslot a : input f32[3,100000]\n"
		                           "out y = sum(exp(a); [1])\n");
		failed += test_sums(arena, "graph columns\nslot a : input f32[5000,20]\n"
		                           "out y = sum(exp(a); [0])\n");
		failed += test_sums(arena, "graph partials\nslot a : input f32[3000,300]\n"
		                           "out y = sum(exp(a); [0])\n");
		arena_free(arena);
	}
	return failed != 0;
}
