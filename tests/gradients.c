// gradients.c: checks operator gradients on the ONNX project's own operator tests.
// gradients [--report FILE] LIST VARIANTS DIRECTORY...: LIST names tests that disagree forward (see
// backend.c); the directories contain tests; operators that are not differentiable are skipped.
// Each float input is active, each float output gets a random cotangent. The evaluator's gradient,
// in double, equals five-point differences; the compiled gradient, in f32, equals the evaluator's.
// If a test's inputs lie on a kink (ties of max, 0 of relu), the gradient must lie between the
// one-sided differences there and equal the differences nearby. Status 1 if a gradient differs, is
// missing, or contradicts ops.def. --report: one line per operator: name, tests that agree, tests,
// largest error.
// Many tests of an operator give the same graph and the same inputs, as the operator and its
// function do: what agreed once is not computed again. With AMOSC_LOOPS in the environment, short
// loops stay loops.
#include "case.h"
#include "files.h"
#include "trial.h"
#include "variants.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool loops; // keep short loops

static const char set[] = "test_data_set_0";

static Table *agreed; // the text of a trial -> its outcome

typedef struct Tally { // results per operator
	const OpInfo *op;
	int tests, good, moved, excused;
	double worst;
} Tally;

typedef enum Outcome { OFF, AGREES, AGREES_MOVED, EXCUSED, NOTHING } Outcome;

typedef struct Data {
	Arena *arena;
	const char *op;
	KnownList known;
} Data;

// ---- one test -------------------------------------------------------------------------

// True for float inputs that are sizes, rates or fill values of an operator, which the schema does
// not mark.
static bool is_number(const char *op, const char *input)
{
	static const char *const numbers[][2] = {{"Resize", "scales"}, {"Upsample", "scales"},
	                                         {"Dropout", "r"},     {"Dropout", "ratio"},
	                                         {"Pad", "value"},     {"OneHot", "depth"}};
	for (int i = 0; i < COUNT(numbers); i++)
		if (!strcmp(numbers[i][0], op) && !strcmp(numbers[i][1], input))
			return true;
	return false;
}

static Array values(void *context, const Slot *s)
{
	const Data *data = context;
	return case_slot(data->arena, s, &data->known);
}

// Fails if an input to differentiate was replaced by a constant.
static void check_active(const Model *m, const Data *data)
{
	for (int i = 0; i < data->known.count; i++) {
		const Known *k = &data->known.at[i];
		if (is_float(k->type) && find_slot(m->graph, k->name) < 0 &&
		    !is_number(data->op, k->name))
			fail(k->name, "is taken for a constant");
	}
}

// Returns what decides the outcome of a trial: its graph, without the names of the file and of
// nodes, and the inputs.
static const char *trial_text(const Trial *t, const Tally *tally)
{
	Text text = {.arena = t->arena};
	const char *line = strchr(graph_text(t->arena, t->with), '\n'), *end;
	say(&text, "%s %d %d", tally->op->name, t->with->wide, t->with->plain);
	for (; *line; line = end) {
		end = strchrnul(line + 1, '\n');
		const char *node = strstr(line, "  # ");
		say(&text, "%.*s", (int)((node && node < end ? node : end) - line), line);
	}
	for (int s = 0; s < t->loss->slots.count; s++)
		for (int64_t i = 0; i < count_of(&t->slot[s].shape); i++)
			say(&text, " %llx", (unsigned long long)t->slot[s].i[i]);
	return text.at;
}

static bool agrees(Trial *t)
{
	return trial_differences(t) && trial_compiled(t);
}

// Checks at the given inputs and, if they lie on a kink, at moved ones.
static Outcome check_trial(Trial *t, Tally *tally)
{
	if (!t->with)
		return NOTHING;
	uint64_t *outcome = table_cell_s(agreed, trial_text(t, tally));
	if (*outcome)
		return (Outcome)*outcome;
	bool good = agrees(t);
	if (good && t->kinks) {
		trial_move(t);
		good = agrees(t);
	}
	tally->worst = fmax(tally->worst, t->worst);
	if (good)
		*outcome = t->moved ? AGREES_MOVED : AGREES;
	return good ? (Outcome)*outcome : OFF;
}

static Outcome check_case(Arena *arena, const char *folder, const char *name, const char *op,
                          Tally *tally)
{
	const char *model = format(arena, "%s/model.onnx", folder);
	const Model *listed = case_list(arena, model);
	Data data = {arena, op, case_inputs(arena, listed, format(arena, "%s/%s", folder, set))};
	ReadOptions options = {
	    .training = true, .loops = loops, .nknown = data.known.count, .known = data.known.at};
	Model *m = read_model(arena, model, &options);
	check_active(m, &data);
	m->graph->stores.count = 0;
	return check_trial(trial_new(arena, name, m->graph, values, &data), tally);
}

// ---- all tests ------------------------------------------------------------------------

static Tally *tally_of(Tally *all, int count, const char *op)
{
	for (int i = 0; i < count; i++)
		if (!strcmp(all[i].op->name, op) && !all[i].op->domain[0] &&
		    strcmp(all[i].op->differentiable, "no"))
			return &all[i];
	return NULL;
}

static void count_outcome(Tally *t, Outcome outcome)
{
	if (outcome == NOTHING)
		return;
	t->tests++;
	t->good += outcome == AGREES || outcome == AGREES_MOVED;
	t->moved += outcome == AGREES_MOVED;
	t->excused += outcome == EXCUSED;
}

static void run(const char *folder, const Excuses *excuses, Tally *all, int count)
{
	Arena *arena = arena_new();
	Tally *volatile tally = NULL;
	const char *slash = strrchr(folder, '/'), *name = slash ? slash + 1 : folder;
	volatile Outcome outcome = OFF;
	Catch caught;
	if (!TRY(caught)) {
		const char *op = case_operator(arena, folder);
		tally = tally_of(all, count, op);
		outcome = tally ? check_case(arena, folder, name, op, tally) : NOTHING;
		catch_end(&caught);
	} else {
		if (tally && !case_excuse(excuses, folder, true))
			printf("refused: %s: %s\n", folder, caught.message);
		free(caught.message);
	}
	if (outcome == OFF && case_excuse(excuses, folder, true))
		outcome = EXCUSED;
	if (tally)
		count_outcome(tally, outcome);
	fflush(stdout);
	arena_free(arena);
}

// False if the variant is of no operator that has a gradient.
static bool run_variant(const char *line, Tally *all, int count)
{
	arena = arena_new();
	const char *op = "If";
	Tally *volatile tally = NULL;
	volatile Outcome outcome = OFF;
	Catch caught;
	if (!TRY(caught)) {
		Build *b = line ? variant(line, &op) : branch_variant();
		tally = tally_of(all, count, op);
		if (!tally)
			fail(op, "is not differentiable");
		Model *m = read_packed(b, &(ReadOptions){.loops = loops});
		m->graph->stores.count = 0;
		const char *name = line ? line : "If";
		Trial *t = trial_new(arena, name, m->graph, variant_values, NULL);
		outcome = check_trial(t, tally);
		catch_end(&caught);
	} else {
		printf("refused: %s: %s\n", line ? line : "If", caught.message);
		free(caught.message);
	}
	if (tally)
		count_outcome(tally, outcome == NOTHING ? OFF : outcome);
	arena_free(arena);
	return tally;
}

static bool run_variants(const char *path, Tally *all, int count)
{
	Arena *own = arena_new();
	Lines lines = read_lines(own, path);
	bool good = run_variant(NULL, all, count);
	for (int i = 0; i < lines.count; i++)
		good &= run_variant(lines.at[i], all, count);
	arena_free(own);
	return good;
}

// True if the tests show what ops.def states about the operator.
static bool agrees_with_table(const Tally *t)
{
	int run = t->tests - t->excused;
	const char *shown = !t->good ? "none" : t->good < run ? "partial" : "full";
	bool partial = !strcmp(t->op->gradient, "partial"); // no test may cover the missing part
	if (!run || !t->op->forward || partial || !strcmp(t->op->gradient, shown))
		return true;
	printf("%s: ops.def says its gradient is %s; %d of %d tests agree\n", t->op->name,
	       t->op->gradient, t->good, run);
	return false;
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
	Arena *always = arena_new();
	int count, tests = 0, good = 0, moved = 0, excused = 0;
	const OpInfo *op = op_table(&count);
	Tally *all = NEWS(always, Tally, count);
	for (int i = 0; i < count; i++)
		all[i].op = &op[i];
	agreed = table_new(always);
	loops = getenv("AMOSC_LOOPS") != NULL;
	int first = argc > 2 && !strcmp(argv[1], "--report") ? 3 : 1;
	if (argc < first + 2)
		fail(argv[0], "wants a list, variants, and folders of tests");
	Excuses excuses = case_excuses(always, argv[first]);
	bool consistent = run_variants(argv[first + 1], all, count);
	Folders folders = case_folders(always, argc - first - 2, argv + first + 2);
	for (int i = 0; i < folders.count; i++)
		run(folders.at[i], &excuses, all, count);
	for (int i = 0; i < count; i++) {
		tests += all[i].tests;
		good += all[i].good;
		moved += all[i].moved;
		excused += all[i].excused;
		consistent &= agrees_with_table(&all[i]);
	}
	if (first == 3)
		report(argv[2], all, count);
	printf("gradients: %d of %d tests agree (%d of them at moved inputs too), %d are not run\n",
	       good, tests, moved, excused);
	arena_free(always);
	return good + excused < tests || !good || !consistent;
}
