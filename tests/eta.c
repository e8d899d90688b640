// eta.c: checks the scales of graphs in the notation (tests/eta/*).
// Expected scales are comments below each graph:
//   # want NAME ROLE FORMULA SLOTS [unsure]
// with the user's options (eta_graph.h). Arguments: the files. Every parameter must be listed and
// equal its line exactly.
#include "eta_graph.h"
#include <string.h>

static int failures, checked;

static void check_file(const char *path)
{
	Arena *arena = arena_new();
	EtaGraph graph = read_eta_graph(arena, path);
	const Graph *g = graph.g;
	Eta *eta = eta_pass(arena, g, &graph.options, NULL);
	Table *expected = table_new(arena);
	int left = 0;
	for (char *line = strtok(graph.text, "\n"); line; line = strtok(NULL, "\n"))
		if (starts_with(line, "# want ")) {
			*table_cell_s(expected, line + strlen("# want ")) = 1;
			left++;
		}
	for (int i = 0; i < g->slots.count; i++) {
		if (g->slots.at[i].kind != S_param)
			continue;
		const char *got = eta_line(arena, g->slots.at[i].name, &eta[i]);
		checked++;
		left--;
		if (!table_find_s(expected, got)) {
			failures++;
			printf("FAILED %s: got %s\n", path, got);
			for (int k = 0; k < eta[i].nwhy; k++)
				printf("    %s\n", eta[i].why[k]);
		}
	}
	if (left) {
		failures++;
		printf("FAILED %s: %d wants more than parameters\n", path, left);
	}
	arena_free(arena);
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		check_file(argv[i]);
	printf("eta: %d parameters, %d wrong\n", checked, failures);
	return failures || !checked;
}
