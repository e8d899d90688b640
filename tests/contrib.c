// contrib.c: checks operators of com.microsoft and others that no suite tests.
// contrib FILE: models and results, as in contrib.txt. Compares results with reference values, and
// gradients as gradients.c does. Status 1 if something differs.
#include "trial.h"
#include "variants.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int numbers, gradients;

// True if result `name` equals the line, in f32. Prints the first difference.
static bool gives(const Trial *t, const char *name, const char *line, const char *expected)
{
	const Graph *g = t->loss;
	const Array *y = &eval_graph(t->arena, g, t->slot)[find_output(g, name)];
	bool integer = !is_float(y->type);
	int64_t n = count_of(&y->shape);
	double largest = 1;
	for (int64_t i = 0; i < n && !integer; i++)
		largest = fmax(largest, fabs(y->f[i]));
	for (int64_t i = 0; i < n; i++, numbers++) {
		char *end;
		double x = integer ? (double)y->i[i] : y->f[i], reference = strtod(expected, &end);
		if (end != expected && fabs(x - reference) <= 2e-5 * largest) {
			expected = end;
			continue;
		}
		printf("%s: number %lld is %g, wanted %.12s\n", line, (long long)i, x, expected);
		return false;
	}
	if (expected[strspn(expected, " \n")])
		printf("%s: %lld numbers, wanted more\n", line, (long long)n);
	return !expected[strspn(expected, " \n")];
}

// Checks one model: its line and the line of its result.
static bool check(char *const *line)
{
	const char *op;
	if (!strchr("=~", *line[1]))
		fail(line[0], "without a result below");
	Model *m = read_packed(variant(line[0], &op), &(ReadOptions){0});
	Trial *t = trial_new(arena, line[0], m->graph, variant_values, NULL);
	if (!gives(t, m->graph->outs.at[m->graph->outs.count - 1].name, line[0], line[1] + 1))
		return false;
	if (!t->with || *line[1] == '~')
		return true;
	gradients++;
	return trial_differences(t) && trial_compiled(t);
}

int main(int argc, char **argv)
{
	if (argc < 2)
		fail("contrib", "wants a file of models");
	int off = try_variants(argv[1], 2, check);
	printf("contrib: %d numbers, gradients of %d models\n", numbers, gradients);
	return off > 0;
}
