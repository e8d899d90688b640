// eta_exports.c: checks the paper's tables, row by row, on exported models.
// eta_exports DIRECTORY WANT...: NAME.want lists the expected scales of DIRECTORY/NAME_*.onnx in
// both conventions:
//   rows N GLOB                      number of parameters in the files
//   asked N GLOB                     number that the reader asks about (default: 0)
//   range INPUT X                    the range of an input
//   GLOB ETA [ETA by the authors']   parameters; the first match counts
// Every parameter must be listed, be certain unless the reader asks about it, and have that scale.
#include "files.h"
#include "onnx.h"
#include "passes.h"
#include <glob.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WORD = 120 };

typedef struct Line {
	char pattern[WORD], eta[2][WORD]; // eta per convention
} Line;

typedef struct Want {
	VEC(Line) lines, rows, asked; // rows, asked: the number is eta[0]
	EtaOptions options;
} Want;

static int failures, checked;

static Want read_want(Arena *arena, const char *path)
{
	Want want = {0};
	char word[3][WORD];
	Lines all = read_lines(arena, path);
	for (int i = 0; i < all.count; i++) {
		int n = sscanf(all.at[i], "%119s %119s %119s", word[0], word[1], word[2]);
		Line line = {0};
		if (n < 2)
			fail(path, "'%s' is not two words at least", all.at[i]);
		if (!strcmp(word[0], "range")) {
			Override said = {.pattern = copy_string(arena, word[1]),
			                 .expr = copy_string(arena, word[2])};
			PUSH(arena, want.options.range, said);
			continue;
		}
		bool rows = !strcmp(word[0], "rows"), asked = !strcmp(word[0], "asked");
		strcpy(line.pattern, word[rows || asked ? 2 : 0]);
		strcpy(line.eta[0], word[1]);
		strcpy(line.eta[1], word[n > 2 ? 2 : 1]);
		if (rows)
			PUSH(arena, want.rows, line);
		else if (asked)
			PUSH(arena, want.asked, line);
		else
			PUSH(arena, want.lines, line);
	}
	return want;
}

static const Line *line_for(const Line *lines, int n, const char *name)
{
	for (int i = 0; i < n; i++)
		if (matches(lines[i].pattern, name))
			return &lines[i];
	fail(name, "nothing is wanted of it");
}

static int asked_of(const Want *want, const char *file)
{
	for (int i = 0; i < want->asked.count; i++)
		if (matches(want->asked.at[i].pattern, file))
			return atoi(want->asked.at[i].eta[0]);
	return 0;
}

static void check_row(Arena *arena, const char *file, const Slot *slot, const Eta *eta,
                      const char *wanted)
{
	const char *name = slot->name;
	double x = book_number(arena, name, wanted);
	checked++;
	if (eta->sure == !slot->why && !eta->nparts && fabs(eta->eta.value - x) <= 1e-6 * x)
		return;
	failures++;
	printf("FAILED %s: %s is %s%s, wanted %s\n", file, name, eta->formula,
	       eta->sure ? "" : " (not sure)", wanted);
	for (int i = 0; i < eta->nwhy; i++)
		printf("    %s\n", eta->why[i]);
}

static void check_model(const char *path, const Want *want, int convention)
{
	Arena *arena = arena_new();
	const char *file = strrchr(path, '/') + 1;
	const Graph *g = read_model(arena, path, &(ReadOptions){0})->graph;
	EtaOptions options = want->options;
	options.convention = convention ? "jestimator" : "paper";
	const Eta *eta = eta_pass(arena, g, &options, NULL);
	int rows = 0, asked = 0;
	for (int i = 0; i < g->slots.count; i++) {
		const Slot *s = &g->slots.at[i];
		if (s->kind != S_param)
			continue;
		rows++;
		asked += s->why != NULL;
		check_row(arena, file, s, &eta[i],
		          line_for(want->lines.at, want->lines.count, s->name)->eta[convention]);
	}
	if (rows != atoi(line_for(want->rows.at, want->rows.count, file)->eta[0]) ||
	    asked != asked_of(want, file)) {
		failures++;
		printf("FAILED %s: %d parameters, %d asked about\n", file, rows, asked);
	}
	arena_free(arena);
}

int main(int argc, char **argv)
{
	Arena *arena = arena_new();
	int models = 0;
	for (int i = 2; i < argc; i++) {
		const char *name = strrchr(argv[i], '/') + 1;
		Want want = read_want(arena, argv[i]);
		glob_t found;
		if (glob(format(arena, "%s/%.*s_*.onnx", argv[1], (int)strcspn(name, "."), name), 0,
		         NULL, &found))
			fail(argv[i], "no models of this name in %s", argv[1]);
		for (size_t k = 0; k < found.gl_pathc; k++, models++)
			for (int convention = 0; convention < 2; convention++)
				check_model(found.gl_pathv[k], &want, convention);
		globfree(&found);
	}
	printf("eta_exports: %d models, %d rows, %d wrong\n", models, checked, failures);
	arena_free(arena);
	return failures || !checked;
}
