// jit.c: compiles complete graphs in the notation and compares them with the evaluator.
// jit GRAPH...: files in the notation, run as they are and in double; the test's own graphs are in
// tests/jit.
#include "emitted.h"
#include <stdlib.h>
#include <string.h>

static bool same_code(const Object *a, const Object *b)
{
	bool same = a->parts == b->parts;
	for (int k = 0; same && k < a->parts; k++)
		same = a->part[k].count == b->part[k].count &&
		       !memcmp(a->part[k].bytes, b->part[k].bytes, a->part[k].count);
	return same;
}

// A plan as text is the same plan: it prints the same again, and gives the same object.
static bool reads_back(Arena *arena, const Graph *g, const Target *target, const char *what)
{
	EmitOptions options = {.threads = 2, .name = what};
	Plan *plan = plan_graph(arena, g, "run", target_machine(target));
	const char *text = plan_text(arena, plan);
	Plan *again = lexer_plan(lexer_open(arena, what, text), book_builtin());
	verify_plan(again);
	if (strcmp(text, plan_text(arena, again))) {
		printf("%s: the plan that is read back prints otherwise\n", what);
		return false;
	}
	if (same_code(emit(arena, 1, 1, &(Variant){target, NULL, &plan}, &options),
	              emit(arena, 1, 1, &(Variant){target, NULL, &again}, &options)))
		return true;
	printf("%s: the plan that is read back gives another object\n", what);
	return false;
}

int main(int argc, char **argv)
{
	static const char *const masks[] = {NULL, "-avx512f", "-avx2,-avx512f"};
	int failures = 0, graphs = 0;
	Arena *always = arena_new();
	for (int m = 0; m < COUNT(masks); m++)
		for (int i = 1; i < argc && mask_applies(always, masks[m]); i++) {
			Arena *arena = arena_new();
			Graph *g = read_graph(arena, argv[i]);
			const Target *target = target_named(arena, "cpu", masks[m]);
			Array *slot = random_slots(arena, g, (uint64_t)i, 5);
			const char *what =
			    format(arena, "%s %s", argv[i], masks[m] ? masks[m] : "");
			double worst =
			    check_graph(arena, g, slot, target, plain_launch, 1e-5, NULL, what);
			double wide = check_wide(arena, g, slot, target, plain_launch, 1e-12, NULL,
			                         format(arena, "%s in double", what));
			if (worst > 1 || wide > 1)
				failures++;
			else
				printf("%-50s %.3f %.3f\n", what, worst, wide);
			failures += !reads_back(arena, g, target, what);
			graphs++;
			arena_free(arena);
		}
	arena_free(always);
	printf("%d graphs compiled and run, %d differ\n", graphs, failures);
	return failures || !graphs;
}
