// bundle.c: checks that the small updates of a step, and products with equal code, are few
// launches, and compute the same bits.
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

// True if two steps compute the same bits by the launches of a plan and by one for each kernel.
static bool computes_same(Arena *arena, const Graph *g, const Target *gpu)
{
	Plan *together = plan_graph(arena, g, "run", target_machine(gpu)),
	     *alone = plan_graph(arena, g, "run", target_machine(gpu));
	launch_alone(alone);
	printf("%d kernels, %d launches\n", together->kerns.count, launches(together));
	hold(launches(alone) == together->kerns.count, "each kernel is a launch");
	hold(reads_back(arena, together), "the plan reads back");
	const Array *slot = random_slots(arena, g, 7, 5);
	gpu_seed = 5;
	bool same = same_slots(g, run_twice(arena, together, slot, gpu),
	                       run_twice(arena, alone, slot, gpu));
	gpu_forget();
	return same;
}

static int split_sums(const Plan *p)
{
	int split = 0;
	for (int k = 0; k < p->kerns.count; k++)
		split += p->kerns.at[k].kind == L_dot && p->kerns.at[k].sched->after;
	return split;
}

static void check_products(Arena *arena, const char *path, const Target *gpu)
{
	const Graph *g = graph_live(arena, read_graph(arena, path));
	Machine few = *target_machine(gpu); // which a few products fill
	few.workers = 5;
	Unit unit = {.name = "run", .machine = &few, .graph = g};
	for (Pass pass = PASS_loops; pass < PASS_bundle; pass++)
		run_pass(arena, pass, &unit);
	hold(split_sums(unit.plan) == 6, "a product that does not fill a GPU splits its sums");
	run_pass(arena, PASS_bundle, &unit);
	int bundled = 0;
	for (int k = 0; k < unit.plan->kerns.count; k++)
		bundled += unit.plan->kerns.at[k].kind == L_dot && unit.plan->kerns.at[k].bundled;
	hold(bundled == 5, "products with equal code are launched together");
	hold(split_sums(unit.plan) == 0, "and fill it with sums that are not split");
	hold(computes_same(arena, g, gpu), "one launch computes the bits of several");
}

// The gradients of three weights hold more than there is room for: small updates of the first two
// wait for that of the third. With two multiprocessors, none of them is small enough to run last.
static void check_waiting(Arena *arena, const char *path, const Target *gpu)
{
	const Graph *g = graph_live(arena, read_graph(arena, path));
	Machine few = *target_machine(gpu);
	few.workers = 2;
	const Plan *p = plan_graph(arena, g, "run", &few);
	int products = 0, updates = 0, begun = 0;
	for (int k = 0; k < p->kerns.count; k++) {
		const Kern *kern = &p->kerns.at[k];
		products += kern->kind == L_dot && kern->bundled;
		updates += kern->kind == L_row;
		begun += kern->kind == L_row && !kern->bundled;
	}
	hold(products == 2, "gradients of weights are launched as memory is full");
	hold(updates == 3 && begun == 1, "small updates after them wait for others");
}

// Two sums over several batches begin again as one value, which waits for the updates of both.
static void check_sums(Arena *arena, const char *path, const Target *gpu)
{
	const Graph *g = graph_live(arena, read_graph(arena, path));
	const Plan *p = plan_graph(arena, g, "run", target_machine(gpu));
	hold(launches(p) == 4, "a value stored twice waits for those that read either slot");
	verify_plan(p);
	hold(computes_same(arena, g, gpu), "one launch computes the bits of several");
}

int main(int argc, char **argv)
{
	Arena *arena = arena_new();
	const Graph *g = graph_live(arena, read_graph(arena, argv[argc - 1]));
	const Target *gpu = target_named(arena, "cuda:host", NULL),
	             *cpu = target_named(arena, "x86-64-v3", NULL);
	Plan *together = plan_graph(arena, g, "run", target_machine(gpu)),
	     *on_cpu = plan_graph(arena, g, "run", target_machine(cpu));
	check_products(arena, argv[argc - 2], gpu);
	check_waiting(arena, argv[argc - 3], gpu);
	check_sums(arena, argv[argc - 4], gpu);
	hold(together->kerns.count - launches(together) >= 4, "updates are launched together");
	hold(launches(on_cpu) == on_cpu->kerns.count, "on a CPU each kernel is a launch");
	hold(computes_same(arena, g, gpu), "one launch computes the bits of several");
	Plan *wrong = plan_graph(arena, g, "run", target_machine(gpu));
	for (int k = 1; k < wrong->kerns.count; k++)
		wrong->kerns.at[k].bundled =
		    wrong->kerns.at[k].kind != L_dot && has_same_launches(wrong, k);
	hold(found_wrong(wrong, "of its launch reads or writes"),
	     "kernels of one launch that need each other are found");
	wrong = plan_graph(arena, g, "run", target_machine(gpu));
	int several = 0;
	for (int k = 1; k < wrong->kerns.count; k++) {
		several += wrong->kerns.at[k].bundled && wrong->kerns.at[k].sched->before;
		wrong->kerns.at[k].bundled |= !has_same_launches(wrong, k);
	}
	hold(several == 1, "the launches of larger updates are together, kind by kind");
	hold(found_wrong(wrong, "its launches are not those"),
	     "kernels of other launches are found");
	arena_free(arena);
	return failures != 0;
}
