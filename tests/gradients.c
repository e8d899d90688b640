// gradients.c: the gradients of operators, on the ONNX project's own operator tests.
// gradients [--report FILE] FOLDER...: the tests' folders; those of operators that are not
// differentiable are left out. Each float input is active, each float output gets a random
// cotangent. The gradient by the evaluator, in double, equals five-point differences; the compiled
// gradient, in f32, equals the evaluator's. Where a test's own inputs lie on a kink (ties of max, 0
// of relu), the gradient must lie between the one-sided differences there, and equal the
// differences nearby. --report: a line an operator: name, tests that pass, tests, largest error by
// differences. Status 1 when a gradient is off or missing.
#include "case.h"
#include "lower.h"
#include "trial.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Tally { // of an operator
	const OpInfo *op;
	int tests, good, moved;
	double worst;
} Tally;

// ---- a test
// ------------------------------------------------------------------------------------------------

// Numbers of an operator though they are floats: the schema does not tag them.
static bool is_number(const NodeProto *node, const char *input)
{
	static const struct {
		const char *op;
		size_t from, to;
	} numbers[] = {{"Resize", 1, 2}, {"Upsample", 1, 1}, {"Dropout", 1, 1}, {"Pad", 2, 2}};
	for (int i = 0; i < COUNT(numbers); i++)
		for (size_t k = numbers[i].from; k <= numbers[i].to && k < node->n_input; k++)
			if (!strcmp(node->op_type, numbers[i].op) && !strcmp(node->input[k], input))
				return true;
	return false;
}

static bool is_float(const TensorProto *t)
{
	return t && declared_type(t->data_type) >= 0 &&
	       elems[declared_type(t->data_type)].cls == 'f';
}

// All inputs active; or, where an operator needs numbers, all floats.
static Model *read_active(Arena *arena, const Case *c, bool floats)
{
	const GraphProto *g = c->proto->graph;
	bool *settle = NEWS(arena, bool, g->n_input + 1);
	for (size_t i = 0; i < g->n_input; i++) {
		settle[i] = floats && !is_float(c->input[i]);
		for (size_t n = 0; n < g->n_node; n++)
			settle[i] |= is_number(g->node[n], g->input[i]->name);
	}
	return read_case(arena, c, settle);
}

typedef struct Source {
	Arena *arena;
	const Case *c;
} Source;

static Array values(void *context, const Slot *s)
{
	Source *from = context;
	return case_slot(from->arena, from->c, s);
}

static bool agrees(Trial *t)
{
	return trial_differences(t) && trial_compiled(t);
}

typedef enum Outcome { OFF, AGREES, AGREES_MOVED, NOTHING } Outcome;

static Outcome check_case(Arena *arena, const Case *c, bool floats, double *worst)
{
	Model *m = read_active(arena, c, floats);
	m->graph->stores.count = 0;
	const char *slash = strrchr(c->folder, '/');
	Trial *t =
	    trial_new(arena, slash ? slash + 1 : c->folder, m->graph, values, &(Source){arena, c});
	if (!t->with)
		return NOTHING;
	bool good = agrees(t);
	if (good && t->kinks) {
		trial_move(t);
		good = agrees(t);
	}
	*worst = fmax(*worst, t->worst);
	return !good ? OFF : t->moved ? AGREES_MOVED : AGREES;
}

// ---- all of them
// -----------------------------------------------------------------------------------------------

static Tally *tally_of(Tally *all, int count, const char *op)
{
	for (int i = 0; i < count; i++)
		if (!strcmp(all[i].op->name, op) && !all[i].op->domain[0] &&
		    (!strcmp(all[i].op->differentiable, "tagged") ||
		     !strcmp(all[i].op->differentiable, "also")))
			return &all[i];
	return NULL;
}

static void run(const char *folder, Tally *all, int count)
{
	Arena *arena = arena_new();
	const Case *c = open_case(arena, folder);
	Tally *tally = tally_of(all, count, case_operator(arena, c));
	volatile Outcome outcome = tally ? OFF : NOTHING;
	for (volatile int floats = 0; tally && floats < 2; floats++) {
		Catch caught;
		if (!TRY(caught)) {
			outcome = check_case(arena, c, floats, &tally->worst);
			catch_end(&caught);
			break;
		}
		if (floats)
			printf("refused: %s: %s\n", folder, caught.message);
		free(caught.message);
	}
	if (outcome != NOTHING) {
		tally->tests++;
		tally->good += outcome != OFF;
		tally->moved += outcome == AGREES_MOVED;
	}
	fflush(stdout);
	arena_free(arena);
}

static void report(const char *path, const Tally *all, int count)
{
	FILE *f = fopen(path, "w");
	if (!f)
		fail(path, "cannot be written");
	for (int i = 0; i < count; i++)
		if (all[i].tests)
			fprintf(f, "%s %d %d %.1e\n", all[i].op->name, all[i].good, all[i].tests,
			        all[i].worst);
	fclose(f);
}

int main(int argc, char **argv)
{
	int count, tests = 0, good = 0, moved = 0, first = 1;
	const OpInfo *op = op_table(&count);
	Tally *all = calloc((size_t)count, sizeof *all);
	for (int i = 0; i < count; i++)
		all[i].op = &op[i];
	warn_quiet(true);
	if (argc > 2 && !strcmp(argv[1], "--report"))
		first = 3;
	for (int i = first; i < argc; i++)
		run(argv[i], all, count);
	for (int i = 0; i < count; i++) {
		tests += all[i].tests;
		good += all[i].good;
		moved += all[i].moved;
	}
	if (first == 3)
		report(argv[2], all, count);
	printf("gradients: %d of %d tests agree, %d of them at a kink and beside it\n", good, tests,
	       moved);
	free(all);
	return good < tests || !tests;
}
