// jit.c: whole graphs, given in the notation, compiled and run: what they leave equals the
// evaluator's numbers. Usage: jit GRAPH...: files in the notation; the test's own graphs are in
// tests/jit.
#include "emitted.h"
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
	static const char *const masks[] = {NULL, "-avx512f", "-avx2,-avx512f"};
	int failures = 0, graphs = 0;
	for (int i = 1; i < argc; i++)
		for (int m = 0; m < COUNT(masks); m++) {
			Arena *arena = arena_new();
			Graph *g =
			    parse_graph(arena, argv[i], read_text(arena, argv[i]), book_builtin());
			const Target *target = target_named(arena, "cpu", masks[m]);
			Array *slot = random_slots(arena, g, (uint64_t)i, 5);
			const char *what =
			    format(arena, "%s %s", argv[i], masks[m] ? masks[m] : "");
			double worst =
			    check_graph(arena, g, slot, target, plain_launch, 1e-5, what);
			if (worst > 1)
				failures++;
			else
				printf("%-50s %.3f\n", what, worst);
			graphs++;
			arena_free(arena);
		}
	printf("%d graphs compiled and run, %d differ\n", graphs, failures);
	return failures || !graphs;
}
