// bundle.c: checks that the small updates of a step are few launches, and compute the same bits.
#include "emitted.h"
#include "threads.h"
#include <stdlib.h>
#include <string.h>

static int failures;

static void hold(bool right, const char *what)
{
	printf("%s%s\n", right ? "" : "FAILED ", what);
	failures += !right;
}

static int launches(const Plan *p)
{
	int count = 0;
	for (int t = 0; t < run_count(p); t++)
		count += launch_begin(p, t) == t;
	return count;
}

static void launch_alone(Plan *p)
{
	for (int k = 0; k < p->kerns.count; k++)
		p->kerns.at[k].bundled = false;
}

// Returns the slots after two runs of the plan.
static const Array *run_twice(Arena *arena, Plan *p, const Array *first, const Target *target)
{
	const Graph *g = p->graph;
	Array *slot = take_copy(arena, first, sizeof *slot * (size_t)g->slots.count);
	Compiled *c = compile_plan(arena, g, p, target, "updates");
	for (int run = 0; run < 2; run++)
		run_compiled(arena, c, slot, gpu_launch);
	free_compiled(c);
	return slot;
}

static bool same_slots(const Graph *g, const Array *a, const Array *b)
{
	bool same = true;
	for (int k = 0; k < g->slots.count; k++)
		same &= !memcmp(a[k].f, b[k].f,
		                sizeof(double) * (size_t)count_of(&g->slots.at[k].shape));
	return same;
}

static bool reads_back(Arena *arena, const Plan *p)
{
	const char *text = plan_text(arena, p);
	Plan *again = lexer_plan(lexer_open(arena, "text", text), book_builtin());
	return launches(again) == launches(p) && !strcmp(text, plan_text(arena, again));
}

static bool has_same_launches(const Plan *p, int k)
{
	const Sched *s = p->kerns.at[k].sched, *before = p->kerns.at[k - 1].sched;
	return !s->before == !before->before && !s->after == !before->after;
}

static bool found_wrong(const Plan *p, const char *expected)
{
	Catch catch;
	if (TRY(catch)) {
		bool says = strstr(catch.message, expected);
		printf("%s\n", catch.message);
		free(catch.message);
		return says;
	}
	verify_plan(p);
	catch_end(&catch);
	return false;
}

int main(int argc, char **argv)
{
	Arena *arena = arena_new();
	const Graph *g = graph_live(arena, read_graph(arena, argv[argc - 1]));
	const Target *gpu = target_named(arena, "cuda:host", NULL),
	             *cpu = target_named(arena, "x86-64-v3", NULL);
	Plan *together = plan_graph(arena, g, "run", target_machine(gpu)),
	     *alone = plan_graph(arena, g, "run", target_machine(gpu)),
	     *on_cpu = plan_graph(arena, g, "run", target_machine(cpu));
	launch_alone(alone);
	printf("%d kernels, %d launches\n", together->kerns.count, launches(together));
	hold(launches(alone) == together->kerns.count, "each kernel is a launch");
	hold(together->kerns.count - launches(together) >= 4, "updates are launched together");
	hold(launches(on_cpu) == on_cpu->kerns.count, "on a CPU each kernel is a launch");
	hold(reads_back(arena, together), "the plan reads back");
	const Array *slot = random_slots(arena, g, 7, 5);
	gpu_seed = 5;
	hold(same_slots(g, run_twice(arena, together, slot, gpu),
	                run_twice(arena, alone, slot, gpu)),
	     "one launch computes the bits of several");
	gpu_forget();
	Plan *wrong = plan_graph(arena, g, "run", target_machine(gpu));
	for (int k = 1; k < wrong->kerns.count; k++)
		wrong->kerns.at[k].bundled =
		    wrong->kerns.at[k].kind != L_dot && has_same_launches(wrong, k);
	hold(found_wrong(wrong, "of its launch reads or writes"),
	     "kernels of one launch that need each other are found");
	wrong = plan_graph(arena, g, "run", target_machine(gpu));
	int several = 0;
	for (int k = 1; k < wrong->kerns.count; k++) {
		several += wrong->kerns.at[k].bundled && wrong->kerns.at[k].sched->after;
		wrong->kerns.at[k].bundled |= !has_same_launches(wrong, k);
	}
	hold(several == 1, "the launches of larger updates are together, kind by kind");
	hold(found_wrong(wrong, "its launches are not those"),
	     "kernels of other launches are found");
	arena_free(arena);
	return failures != 0;
}
