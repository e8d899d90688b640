// contrib.c: operators of com.microsoft, which no suite tests: what they give, by numbers of
// others, and their gradients, as gradients.c checks them. usage: contrib FILE: models and results,
// as contrib.txt has them. Status 1 when something is off.
#include "trial.h"
#include "variants.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int models, numbers, gradients;

// Is result `name` what the line says, in f32? Prints the first number that is off.
static bool gives(const Trial *t, const char *name, const char *line, const char *wanted)
{
	const Graph *g = t->loss;
	const Array *y = &eval_graph(t->arena, g, t->slot)[find_out(g, name)];
	bool whole = !is_float(y->type);
	int64_t n = count_of(&y->shape);
	double largest = 1;
	for (int64_t i = 0; i < n && !whole; i++)
		largest = fmax(largest, fabs(y->f[i]));
	for (int64_t i = 0; i < n; i++, numbers++) {
		char *end;
		double x = whole ? (double)y->i[i] : y->f[i], want = strtod(wanted, &end);
		if (end != wanted && fabs(x - want) <= 2e-5 * largest) {
			wanted = end;
			continue;
		}
		printf("%s: number %lld is %g, wanted %.12s\n", line, (long long)i, x, wanted);
		return false;
	}
	if (wanted[strspn(wanted, " \n")])
		printf("%s: %lld numbers, wanted more\n", line, (long long)n);
	return !wanted[strspn(wanted, " \n")];
}

static bool check(const char *line, const char *wanted)
{
	Catch caught;
	const char *op;
	bool good = false;
	models++;
	if (TRY(caught)) {
		printf("refused: %s: %s\n", line, caught.message);
		free(caught.message);
		return false;
	}
	Model *m = read_packed(variant(line, &op), &(ReadOptions){0});
	Trial *t = trial_new(arena, line, m->graph, variant_values, NULL);
	good = gives(t, m->graph->outs.at[m->graph->outs.count - 1].name, line, wanted + 1);
	if (good && t->with && *wanted == '=') {
		gradients++;
		good = trial_differences(t) && trial_compiled(t);
	}
	catch_end(&caught);
	return good;
}

int main(int argc, char **argv)
{
	char line[1024], wanted[4096];
	int wrong = 0;
	FILE *f = argc > 1 ? fopen(argv[1], "r") : NULL;
	if (!f)
		fail(argv[0], "wants a file of models");
	warn_quiet(true);
	while (fgets(line, sizeof line, f)) {
		line[strcspn(line, "\n")] = 0;
		if (!isalpha((unsigned char)*line))
			continue;
		if (!fgets(wanted, sizeof wanted, f) || !strchr("=~", *wanted))
			fail(line, "without a result below");
		arena = arena_new();
		wrong += !check(line, wanted);
		arena_free(arena);
	}
	fclose(f);
	printf("contrib: %d models, %d numbers, %d with gradients; %d are off\n", models, numbers,
	       gradients, wrong);
	return wrong || !models;
}
