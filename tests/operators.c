// operators.c: writes docs/operators.md from the operator table and test reports.
// operators FORWARD GRADIENTS: reports of test_backend and test_gradients; prints the page.
// operators --check PAGE: status 1 if the parts that do not come from reports are out of date.
#include "files.h"
#include "onnx.h"
#include <stdlib.h>
#include <string.h>

typedef struct Shown { // test results of an operator
	int good, tests;
	char worst[16];
} Shown;

// Returns an operator's line of a report; no tests if it has none.
static Shown results_of(const char *path, const char *op)
{
	char name[64];
	Shown s;
	FILE *f = path ? fopen(path, "r") : NULL;
	if (path && !f)
		fail(path, "cannot be opened");
	while (f && fscanf(f, "%63s %d %d %15s", name, &s.good, &s.tests, s.worst) == 4)
		if (!strcmp(name, op)) {
			fclose(f);
			return s;
		}
	if (f)
		fclose(f);
	return (Shown){0, 0, ""};
}

static void say_share(Text *t, const Shown *s)
{
	if (s->tests)
		say(t, " %d/%d |", s->good, s->tests);
	else
		say(t, " |");
}

static void say_row(Text *t, const OpInfo *op, const char *forward, const char *gradients)
{
	Shown f = {0}, g = {0};
	if (!op->domain[0]) {
		f = results_of(forward, op->name);
		g = results_of(gradients, op->name);
	}
	say(t, "| %s%s%s | %d | %s | %s | %s |", op->domain, op->domain[0] ? "." : "", op->name,
	    op->since, op->forward ? op->types : "-", op->gradient, op->note);
	say_share(t, &f);
	say_share(t, &g);
	say(t, " %s |\n", g.worst);
}

static const char head[] =
    "# Operators\n"
    "\n"
    "Made by `cmake --build build/release --target operators` from `compiler/onnx/ops.def` and\n"
    "from the tests that come with onnx 1.22.0. Models of operator sets 1 to 27 are read; `since`\n"
    "is the first set that has the operator, `types` what its operands may be (`-`: not read).\n"
    "\n"
    "*gradient*: full, partial, none (it has none, or none yet), n/a (nothing to differentiate).\n"
    "*forward* counts the tests that give, compiled in f32, what the ONNX project says of them.\n"
    "*differences* counts those whose gradient agrees, and models of our own\n"
    "(`tests/variants.txt`): of every float input, at random cotangents of every float output, by\n"
    "five-point differences in double within 1e-6 of the largest entry, and compiled in f32 "
    "within\n"
    "2e-3 of that; *error* is the largest difference seen in double. Tests without floats have no\n"
    "gradient to check. Where inputs lie on a kink (ties of a maximum, 0 of an absolute value) "
    "the\n"
    "gradient lies between the slopes to both sides there, and is checked again beside it. "
    "Rounding\n"
    "to fewer bits lets gradients straight through.\n"
    "\n";

static char *page(Arena *arena, const char *forward, const char *gradients)
{
	Text t = {.arena = arena};
	int count;
	const OpInfo *op = op_table(&count);
	say(&t, "%s%s\n", head, gradient_totals(arena));
	say(&t, "| operator | since | types | gradient | note | forward | differences | error |\n"
	        "|---|---|---|---|---|---|---|---|\n");
	for (int i = 0; i < count; i++)
		say_row(&t, &op[i], forward, gradients);
	return t.at;
}

// Removes the columns filled from reports.
static void cut_shown(char *text)
{
	enum { FIXED = 6 }; // number of bars before the report columns
	char *to = text;
	int bars = 0;
	for (const char *from = text; *from; from++) {
		bars = *from == '\n' ? 0 : bars + (*from == '|');
		if (bars < FIXED || (bars == FIXED && *from == '|') || *from == '\n')
			*to++ = *from;
	}
	*to = 0;
}

static bool is_current(Arena *arena, const char *path)
{
	char *text = read_file(arena, path, NULL), *now = page(arena, NULL, NULL);
	cut_shown(text);
	cut_shown(now);
	return !strcmp(text, now);
}

int main(int argc, char **argv)
{
	Arena *arena = arena_new();
	int status = 0;
	if (argc != 3)
		fail(argv[0], "wants two reports, or --check and a page");
	if (strcmp(argv[1], "--check")) {
		fputs(page(arena, argv[1], argv[2]), stdout);
	} else if (!is_current(arena, argv[2])) {
		printf("%s is not what ops.def says: make it again\n", argv[2]);
		status = 1;
	}
	arena_free(arena);
	return status;
}
