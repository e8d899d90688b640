// backend.c: the ONNX project's own backend tests: folders with model.onnx, and in test_data_set_N
// input_K.pb and output_K.pb. Takes a list of the tests that are known not to agree, each with the
// reason, and folders: of tests, or of such folders. Prints what is off, what is not run and why,
// and how many agree. Status 1 when a test differs from what the list says, one that agrees too.
#include "onnx.h"
#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct Excuse { // a line of the list: NAME (a pattern) and the reason
	const char *name, *reason;
	int used;
} Excuse;

typedef struct Suite {
	Arena *arena;
	VEC(Excuse) excuses;
	VEC(const char *) folders; // of tests
	int good, stood, excused, wrong;
} Suite;

// ---- values ------------------------------------------------------------------------------------

// The suite's own: numpy's allclose at rtol 1e-3 and atol 1e-7.
static bool close_enough(double a, double b)
{
	return a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= 1e-3 * fabs(b) + 1e-7;
}

static double element(const Array *a, int64_t i)
{
	return elems[a->type].cls == 'f' ? a->f[i] : (double)a->i[i];
}

static void compare(Arena *arena, const char *name, const Array *found, const Known *known)
{
	Array want = array_from(arena, known->type, &known->shape, known->bytes);
	if (!same_shape(&found->shape, &want.shape))
		fail(name, "is %s, wanted %s", shape_text(arena, found->type, &found->shape),
		     shape_text(arena, want.type, &want.shape));
	for (int64_t i = 0; i < count_of(&want.shape); i++)
		if (!close_enough(element(found, i), element(&want, i)))
			fail(name, "[%lld] is %.9g, wanted %.9g", (long long)i, element(found, i),
			     element(&want, i));
}

static const Array *out_named(const Model *m, const Array *value, const char *name)
{
	for (int o = 0; o < m->graph->outs.count; o++)
		if (!strcmp(m->graph->outs.at[o].name, name))
			return &value[m->graph->outs.at[o].val];
	return NULL;
}

// ---- one set of data
// -----------------------------------------------------------------------------

static const char *value_path(Arena *arena, const char *set, const char *kind, int k)
{
	struct stat st;
	const char *path = format(arena, "%s/%s_%d.pb", set, kind, k);
	return stat(path, &st) || !st.st_size ? NULL : path;
}

static KnownList read_inputs(Arena *arena, const Model *listed, const char *set)
{
	KnownList all = {0};
	for (int k = 0; k < listed->inputs.count; k++) {
		const char *path = value_path(arena, set, "input", k);
		if (!path)
			continue;
		KnownList one = read_value(arena, path, &listed->inputs.at[k]);
		for (int i = 0; i < one.count; i++)
			PUSH(arena, all, one.at[i]);
	}
	return all;
}

static Array slot_value(Arena *arena, const Slot *s, const KnownList *known)
{
	if (s->kind != S_input) {
		Array zeros = {.type = s->type, .shape = s->shape};
		zeros.f = NEWS(arena, double, count_of(&s->shape) + 1);
		return s->init ? array_from(arena, s->type, &s->shape, s->init) : zeros;
	}
	for (int i = 0; i < known->count; i++) {
		const Known *k = &known->at[i];
		if (strcmp(k->name, s->name))
			continue;
		if (!same_shape(&k->shape, &s->shape))
			fail(s->name, "the data are %s, the model wants %s",
			     shape_text(arena, k->type, &k->shape),
			     shape_text(arena, s->type, &s->shape));
		Array a = array_from(arena, k->type, &k->shape, k->bytes);
		a.type = s->type;
		return a;
	}
	fail(s->name, "no data");
}

static void check_outputs(Arena *arena, const Model *m, const Array *value, const char *set)
{
	for (int o = 0; o < m->outputs.count; o++) {
		const char *path = value_path(arena, set, "output", o);
		const Input *out = &m->outputs.at[o];
		if (!path)
			continue;
		KnownList want = read_value(arena, path, out);
		for (int i = 0; i < want.count; i++) {
			const Array *found = out_named(m, value, want.at[i].name);
			if (!found)
				fail(want.at[i].name, "is missing");
			compare(arena, want.at[i].name, found, &want.at[i]);
		}
		const char *more =
		    out->sequence ? format(arena, "%s#%d", out->name, want.count) : out->name;
		if (out_named(m, value, more) && (out->sequence || !want.count))
			fail(more, "should not be there");
	}
}

// Answers whether inputs had to stand in as constants.
static bool run_set(Arena *arena, const char *model, const char *set)
{
	ReadOptions options = {.list = true};
	KnownList known = read_inputs(arena, read_model(arena, model, &options), set);
	options = (ReadOptions){.nknown = known.count, .known = known.at};
	Model *m = read_model(arena, model, &options);
	Array *slot = NEWS(arena, Array, m->graph->slots.count + 1);
	int inputs = 0;
	for (int s = 0; s < m->graph->slots.count; s++) {
		slot[s] = slot_value(arena, &m->graph->slots.at[s], &known);
		inputs += m->graph->slots.at[s].kind == S_input;
	}
	check_outputs(arena, m, eval_graph(arena, m->graph, slot), set);
	return inputs < known.count;
}

// ---- one test
// --------------------------------------------------------------------------------------

static Excuse *excuse_for(Suite *suite, const char *name)
{
	for (int i = 0; i < suite->excuses.count; i++)
		if (matches(suite->excuses.at[i].name, name))
			return &suite->excuses.at[i];
	return NULL;
}

static bool run_sets(Arena *arena, const char *folder)
{
	bool stood = false;
	for (int n = 0;; n++) {
		struct stat st;
		const char *set = format(arena, "%s/test_data_set_%d", folder, n);
		if (stat(set, &st) && n)
			return stood;
		if (stat(set, &st))
			fail(folder, "no test_data_set_0");
		stood |= run_set(arena, format(arena, "%s/model.onnx", folder), set);
	}
}

static void judge(Suite *suite, const char *name, char *trouble)
{
	for (char *p = trouble; p && *p; p++)
		*p = *p == '\n' ? ' ' : *p;
	Excuse *excuse = excuse_for(suite, name);
	if (excuse)
		excuse->used++;
	if (excuse && trouble) {
		suite->excused++;
		printf("not run: %s: %s\n", name, excuse->reason);
	} else if (excuse) {
		suite->wrong++;
		printf("FAILED: %s: agrees, though the list says: %s\n", name, excuse->reason);
	} else if (trouble) {
		suite->wrong++;
		printf("FAILED: %s: %s\n", name, trouble);
	} else {
		suite->good++;
	}
}

static void run_test(Suite *suite, const char *folder)
{
	Arena *arena = arena_new();
	const char *slash = strrchr(folder, '/'), *name = slash ? slash + 1 : folder;
	Catch caught;
	if (!TRY(caught)) {
		bool stood = run_sets(arena, folder);
		catch_end(&caught);
		suite->stood += stood;
		judge(suite, name, NULL);
	} else {
		judge(suite, name, caught.message);
		free(caught.message);
	}
	arena_free(arena);
}

// ---- the suite
// -----------------------------------------------------------------------------------

static void read_list(Suite *suite, const char *path)
{
	char line[1024];
	FILE *f = fopen(path, "r");
	if (!f)
		fail(path, "cannot be opened");
	while (fgets(line, sizeof line, f)) {
		size_t name = strcspn(line, " \t\n"), reason = name + strspn(line + name, " \t");
		if (!name || *line == '#')
			continue;
		line[strcspn(line, "\n")] = 0;
		Excuse e = {format(suite->arena, "%.*s", (int)name, line),
		            copy_string(suite->arena, line + reason), 0};
		PUSH(suite->arena, suite->excuses, e);
	}
	fclose(f);
}

static int keep_test(const struct dirent *entry)
{
	return starts_with(entry->d_name, "test_");
}

static void add_folder(Suite *suite, const char *folder)
{
	struct stat st;
	struct dirent **entry;
	if (!stat(format(suite->arena, "%s/model.onnx", folder), &st)) {
		PUSH(suite->arena, suite->folders, folder);
		return;
	}
	int n = scandir(folder, &entry, keep_test, alphasort);
	if (n < 1)
		fail(folder, "no tests in it");
	for (int i = 0; i < n; i++) {
		PUSH(suite->arena, suite->folders,
		     format(suite->arena, "%s/%s", folder, entry[i]->d_name));
		free(entry[i]);
	}
	free(entry);
}

int main(int argc, char **argv)
{
	Suite suite = {.arena = arena_new()};
	warn_quiet(true);
	if (argc > 1)
		read_list(&suite, argv[1]);
	for (int i = 2; i < argc; i++)
		add_folder(&suite, argv[i]);
	for (int i = 0; i < suite.folders.count; i++)
		run_test(&suite, suite.folders.at[i]);
	printf("backend: %d of %d agree (%d of them with inputs as constants), %d are not run, "
	       "%d failed\n",
	       suite.good, suite.folders.count, suite.stood, suite.excused, suite.wrong);
	int wrong = suite.wrong, good = suite.good;
	arena_free(suite.arena);
	return wrong || !good;
}
