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
    "Generated from `compiler/onnx/ops.def` and the tests of onnx 1.22.0 by\n"
    "`cmake --build build/release --target operators`. amosc reads opsets 1 to 27.\n"
    "\n"
    "* *since*: the first opset with the operator.\n"
    "* *types*: element types that its inputs may have; `-`: unsupported.\n"
    "* *gradient*: full, partial, none (none, or not implemented), n/a (nothing to "
    "differentiate).\n"
    "* *forward*: ONNX conformance tests passed when compiled in f32 (passed/total).\n"
    "* *differences*: tests, including those of `tests/variants.txt`, whose gradients agree with\n"
    "  finite differences (agreed/total). Checked are the gradients of every float input for "
    "random\n"
    "  cotangents of every float output: in double within 1e-6 of the largest element of "
    "five-point\n"
    "  differences, and compiled in f32 within 2e-3 of it. Tests without floats have no gradient.\n"
    "* *error*: the largest of these errors in double.\n"
    "\n"
    "At a kink (ties of a maximum, 0 of an absolute value) the gradient must lie between the "
    "slopes on\n"
    "both sides, and is checked again next to it. Quantization passes gradients through "
    "unchanged.\n"
    "\n"
    "Slopes at kinks, where PyTorch's are the same unless noted:\n"
    "\n"
    "* Relu at 0, relu6 and hardtanh at their bounds (Clip to 0 and 6, to -1 and 1), Abs at 0: 0.\n"
    "* Clip at two constant bounds: 1. Max and Min: equal elements share the gradient equally,\n"
    "  also with a constant and for Clip with one bound, where `torch.clamp` has 1.\n"
    "* ReduceMax and ReduceMin: equal elements share equally. MaxPool: the first one has all.\n"
    "* Sqrt, Pow with an exponent between 0 and 1, and norms at 0: 0 (PyTorch: Sqrt infinite).\n"
    "* Elements that Where, Max, Min, Clip or a slice hides: 0, also where they are infinite or "
    "NaN\n"
    "  (PyTorch: NaN).\n"
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
