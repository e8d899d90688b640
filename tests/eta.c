// eta.c: checks the scales of graphs in the notation (tests/eta/*).
// Expected scales are comments below each graph:
//   # want NAME ROLE FORMULA SLOTS [unsure]
//   # structure NAME ...
// with the user's options (eta_graph.h). Arguments: the files. Every parameter must be listed with
// `want` and, if the file has any, with `structure`; it must equal its line exactly.
#include "eta_graph.h"
#include <string.h>

static int failures, checked;

// Returns the number of lines that begin with `begin`, and adds what follows to `lines`.
static int lines_after(Arena *arena, const char *text, const char *begin, Table *lines)
{
	int count = 0;
	for (const char *at = text; (at = strstr(at, begin)); count++) {
		at += strlen(begin);
		*table_cell_s(lines, format(arena, "%.*s", (int)strcspn(at, "\n"), at)) = 1;
	}
	return count;
}

// Returns 1 if one of the lines is `got`.
static int check_line(const char *path, const Table *lines, const char *got, const Eta *eta)
{
	checked++;
	if (table_find_s(lines, got))
		return 1;
	failures++;
	printf("FAILED %s: got %s\n", path, got);
	for (int k = 0; k < eta->nwhy; k++)
		printf("    %s\n", eta->why[k]);
	return 1;
}

static void check_file(const char *path)
{
	Arena *arena = arena_new();
	EtaGraph graph = read_eta_graph(arena, path);
	const Graph *g = graph.g;
	Eta *eta = eta_pass(arena, g, &graph.options, NULL);
	Table *wants = table_new(arena), *structures = table_new(arena);
	int wanted = lines_after(arena, graph.text, "\n# want ", wants),
	    structured = lines_after(arena, graph.text, "\n# structure ", structures);
	bool structure = structured > 0;
	for (int i = 0; i < g->slots.count; i++) {
		const char *name = g->slots.at[i].name;
		if (g->slots.at[i].kind != S_param)
			continue;
		wanted -= check_line(path, wants, eta_line(arena, name, &eta[i]), &eta[i]);
		if (structure)
			structured -=
			    check_line(path, structures,
			               structure_line(arena, name, eta[i].structure), &eta[i]);
	}
	if (wanted || structured) {
		failures++;
		printf("FAILED %s: %d lines more than parameters\n", path, wanted + structured);
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
