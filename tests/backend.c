// backend.c: runs the ONNX project's backend tests, compiled in f32.
// backend [--in-double] [--report FILE] LIST DIRECTORY...: LIST names tests that are known to
// disagree, each with the reason; a DIRECTORY is a test or contains tests. Prints tests that
// differ, tests that are not run and why, and how many agree. Status 1 if a test, also one that
// agrees, contradicts LIST.
//   --in-double  use the evaluator; reasons that begin with "in double: " apply only here
//   --report     write one line per operator: name, tests that agree, tests, 0
//   --dynamic    use the evaluator, once per axis of each input: the input gets one more element,
//                which a Compress before the node removes; the model is refused, or gives the same
// With AMOSC_LOOPS in the environment, short loops stay loops.
#include "build.h"
#include "case.h"
#include "emitted.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct Share { // results per operator
	const char *op;
	int good, tests;
} Share;

typedef struct Suite {
	Arena *arena;
	bool in_double, dynamic;
	int axes, refused; // --dynamic: tried, refused
	Excuses excuses;
	Folders folders;
	VEC(Share) shares;
	int good, stood, excused, wrong;
} Suite;

// ---- values ---------------------------------------------------------------------------

// The suite's criterion: NumPy's allclose at rtol 1e-3 and atol 1e-7.
static bool close_enough(double a, double b)
{
	return a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= 1e-3 * fabs(b) + 1e-7;
}

// Rounds a float to its declared 16-bit type.
static double rounded(Elem type, double x)
{
	return type == E_bf16  ? amos_from_bf16(amos_to_bf16((float)x))
	       : type == E_f16 ? amos_from_f16(amos_to_f16((float)x))
	                       : x;
}

static void compare(Arena *arena, const char *name, Elem type, const Array *found,
                    const Known *known)
{
	Array expected = array_from(arena, known->type, &known->shape, known->bytes);
	if (!same_shape(&found->shape, &expected.shape))
		fail(name, "is %s, wanted %s", shape_text(arena, found->type, &found->shape),
		     shape_text(arena, expected.type, &expected.shape));
	for (int64_t i = 0; i < count_of(&expected.shape); i++) {
		double x = rounded(type, element_at(found, i)), y = element_at(&expected, i);
		if (!close_enough(x, y))
			fail(name, "[%lld] is %.9g, wanted %.9g", (long long)i, x, y);
	}
}

static const Array *out_named(const Model *m, const Array *value, const char *name)
{
	Ref r = find_output(m->graph, name);
	return r ? &value[r] : NULL;
}

// Returns the valid elements of an output whose shape another output reports.
static Array cut_output(Arena *arena, const Model *m, const Array *value, const char *name)
{
	const Array *all = out_named(m, value, name),
	            *sizes = out_named(m, value, format(arena, SHAPE_OF "%s", name));
	if (!all)
		fail(name, "is missing");
	Array part = *all;
	int64_t stride[RANK], n = 0;
	row_strides(&all->shape, stride);
	for (int a = 0; sizes && a < all->shape.rank; a++)
		part.shape.dim[a] = sizes->i[a];
	part.f = NEWS(arena, double, count_of(&part.shape) + 1);
	for (int64_t i = 0; i < count_of(&all->shape); i++) {
		bool valid = true;
		for (int a = 0; a < all->shape.rank; a++)
			valid &= i / stride[a] % all->shape.dim[a] < part.shape.dim[a];
		if (valid && is_float(all->type))
			part.f[n++] = all->f[i];
		else if (valid)
			part.i[n++] = all->i[i];
	}
	return part;
}

// ---- one set of data ------------------------------------------------------------------

static void check_outputs(Arena *arena, const Model *m, const Array *value, const char *set)
{
	for (int o = 0; o < m->outputs.count; o++) {
		const char *path = case_value(arena, set, "output", o);
		const Input *out = &m->outputs.at[o];
		if (!path)
			continue;
		KnownList expected = read_value(arena, path, out);
		for (int i = 0; i < expected.count; i++) {
			Array found = cut_output(arena, m, value, expected.at[i].name);
			compare(arena, expected.at[i].name, out->type, &found, &expected.at[i]);
		}
		const char *more =
		    out->sequence ? format(arena, "%s#%d", out->name, expected.count) : out->name;
		if (out_named(m, value, more) && (out->sequence || !expected.count))
			fail(more, "should not be there");
	}
}

static const Array *run_compiled_once(Arena *arena, const Graph *g, const Array *slot)
{
	Compiled *c = compile_graph(arena, g, target_named(arena, "cpu", NULL), "test");
	const Array *value = outs_compiled(arena, c, slot);
	free_compiled(c);
	return value;
}

// Returns true if inputs had to replace constants.
static bool run_set(Arena *arena, const char *model, const char *set, bool in_double)
{
	KnownList known = case_inputs(arena, case_list(arena, model), set);
	ReadOptions options = {.precision = PRECISION_FILE,
	                       .nknown = known.count,
	                       .known = known.at,
	                       .loops = getenv("AMOSC_LOOPS") != NULL};
	Model *m = read_model(arena, model, &options);
	Array *slot = NEWS(arena, Array, m->graph->slots.count + 1);
	int inputs = 0;
	for (int s = 0; s < m->graph->slots.count; s++) {
		slot[s] = case_slot(arena, &m->graph->slots.at[s], &known);
		inputs += m->graph->slots.at[s].kind == S_input;
	}
	check_outputs(arena, m,
	              in_double ? eval_graph(arena, m->graph, slot)
	                        : run_compiled_once(arena, m->graph, slot),
	              set);
	return inputs < known.count;
}

// ---- axes of which the data decide the size ---------------------------------------------

// `from` with one more element along an axis, amid the others, and which elements are of `from`.
static Known with_one_more(const Known *from, int axis, bool *keep)
{
	Known to = *from;
	int64_t stride[RANK], size = elems[from->type].bytes, d = to.shape.dim[axis]++,
	                      more = d / 2;
	row_strides(&from->shape, stride);
	char *bytes = take(arena, (size_t)byte_count(to.type, &to.shape) + 8), *at = bytes;
	int64_t row = stride[axis] * size, rows = row ? count_of(&from->shape) * size / row : 0;
	const char *old = from->bytes;
	for (int64_t r = 0; r < rows; r++) {
		if (r % d == more)
			for (int64_t i = 0; i < row / size; i++, at += size)
				to.type == E_f32 ? *(float *)at = 77 : (*(char *)at = 1);
		memcpy(at, old, (size_t)row);
		at += row, old += row;
	}
	for (int64_t i = 0; i <= d; i++)
		keep[i] = i != more;
	to.bytes = bytes;
	return to;
}

// The model, its input k declared with one more element and compressed before it is used.
static Model *compressed_model(const ModelProto *model, const KnownList *known, int k, int axis,
                               const Known *more)
{
	Build *b = build(17);
	GraphProto *g = model->graph;
	b->model = *model;
	b->graph = *g;
	b->model.graph = &b->graph;
	const char *name = g->input[k]->name;
	NodeProto *n =
	    add_to(b, node("Compress", format(arena, "%s.all,%s.keep", name, name), name));
	attribute(n, "axis")->i = axis;
	for (size_t i = 0; i < g->n_node; i++)
		PUSH(arena, b->nodes, g->node[i]);
	for (size_t i = 0; i < g->n_initializer; i++)
		PUSH(arena, b->tensors, g->initializer[i]);
	for (size_t i = 0; i < g->n_output; i++)
		PUSH(arena, b->outputs, g->output[i]);
	Text dims = {.arena = arena};
	for (int a = 0; a < more->shape.rank; a++)
		say(&dims, "%s%lld", a ? "," : "", (long long)more->shape.dim[a]);
	for (size_t i = 0; i < g->n_input; i++)
		PUSH(arena, b->inputs,
		     (int)i != k ? g->input[i]
		                 : value(format(arena, "%s.all", name),
		                         g->input[k]->type->tensor_type->elem_type, dims.at));
	const char *size = format(arena, "%lld", (long long)more->shape.dim[axis]);
	PUSH(arena, b->inputs, value(format(arena, "%s.keep", name), 9, size));
	return read_packed(b, &(ReadOptions){.precision = PRECISION_FILE,
	                                     .nknown = known->count,
	                                     .known = known->at});
}

static void run_compressed(const char *set, const ModelProto *model, const KnownList *known, int k,
                           int axis, const Known *of, bool *built)
{
	bool *keep = NEWS(arena, bool, of->shape.dim[axis] + 1);
	KnownList all = {0};
	for (int i = 0; i < known->count; i++)
		if (strcmp(known->at[i].name, of->name))
			PUSH(arena, all, known->at[i]);
	KnownList others = all;
	Known more = with_one_more(of, axis, keep);
	more.name = format(arena, "%s.all", of->name);
	PUSH(arena, all, more);
	PUSH(arena, all,
	     ((Known){.name = format(arena, "%s.keep", of->name),
	              .type = E_b8,
	              .shape = shape_of(1, &more.shape.dim[axis]),
	              .bytes = keep}));
	Model *m = compressed_model(model, &others, k, axis, &more);
	*built = true;
	Array *slot = NEWS(arena, Array, m->graph->slots.count + 1);
	for (int s = 0; s < m->graph->slots.count; s++)
		slot[s] = case_slot(arena, &m->graph->slots.at[s], &all);
	check_outputs(arena, m, eval_graph(arena, m->graph, slot), set);
}

static void try_axis(Suite *suite, const char *set, const ModelProto *model, const KnownList *known,
                     int k, int axis, const Known *of)
{
	Catch caught;
	volatile bool built = false;
	suite->axes++;
	if (TRY(caught)) {
		bool refused = !built;
		suite->refused += refused;
		if (!refused || getenv("REFUSED"))
			printf("%s: %s, %s axis %d: %s\n", refused ? "refused" : "FAILED", set,
			       of->name, axis, caught.message ? caught.message : "?");
		suite->wrong += !refused;
		free(caught.message);
		return;
	}
	run_compressed(set, model, known, k, axis, of, (bool *)&built);
	catch_end(&caught);
	suite->good++;
}

static void try_axes(Suite *suite, const char *folder)
{
	const char *path = format(arena, "%s/model.onnx", folder),
	           *set = format(arena, "%s/test_data_set_0", folder);
	KnownList known = case_inputs(arena, case_list(arena, path), set);
	FILE *f = fopen(path, "rb");
	uint8_t *bytes = take(arena, 1 << 24);
	size_t n = fread(bytes, 1, 1 << 24, f);
	fclose(f);
	ModelProto *model = model_proto__unpack(NULL, n, bytes);
	for (size_t k = 0; k < model->graph->n_input; k++)
		for (int i = 0; i < known.count; i++)
			for (int a = 0; !strcmp(known.at[i].name, model->graph->input[k]->name) &&
			                a < known.at[i].shape.rank;
			     a++)
				if (known.at[i].shape.dim[a] > 1 &&
				    model->graph->input[k]->type->tensor_type)
					try_axis(suite, set, model, &known, (int)k, a,
					         &known.at[i]);
	model_proto__free_unpacked(model, NULL);
}

// ---- one test -------------------------------------------------------------------------

static bool run_sets(Arena *arena, const char *folder, bool in_double)
{
	bool stood = false;
	for (int n = 0;; n++) {
		struct stat st;
		const char *set = format(arena, "%s/test_data_set_%d", folder, n);
		if (stat(set, &st) && n)
			return stood;
		if (stat(set, &st))
			fail(folder, "no test_data_set_0");
		stood |= run_set(arena, format(arena, "%s/model.onnx", folder), set, in_double);
	}
}

static Share *share_of(Suite *suite, const char *op)
{
	for (int i = 0; i < suite->shares.count; i++)
		if (!strcmp(suite->shares.at[i].op, op))
			return &suite->shares.at[i];
	Share s = {copy_string(suite->arena, op), 0, 0};
	PUSH(suite->arena, suite->shares, s);
	return &suite->shares.at[suite->shares.count - 1];
}

static void count_share(Suite *suite, Arena *arena, const char *folder, bool good)
{
	Catch caught;
	if (!TRY(caught)) {
		Share *share = share_of(suite, case_operator(arena, folder));
		share->tests++;
		share->good += good;
		catch_end(&caught);
	} else {
		free(caught.message);
	}
}

static void report(const Suite *suite, const char *path)
{
	FILE *f = fopen(path, "w");
	if (!f)
		fail(path, "cannot be written");
	for (int i = 0; i < suite->shares.count; i++)
		fprintf(f, "%s %d %d 0\n", suite->shares.at[i].op, suite->shares.at[i].good,
		        suite->shares.at[i].tests);
	fclose(f);
}

static void judge(Suite *suite, const char *folder, char *trouble)
{
	const char *slash = strrchr(folder, '/'), *name = slash ? slash + 1 : folder;
	for (char *p = trouble; p && *p; p++)
		*p = *p == '\n' ? ' ' : *p;
	const Excuse *excuse = case_excuse(&suite->excuses, folder, suite->in_double);
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
	int before = suite->good;
	Catch caught;
	if (!TRY(caught)) {
		bool stood = run_sets(arena, folder, suite->in_double);
		catch_end(&caught);
		suite->stood += stood;
		judge(suite, folder, NULL);
	} else {
		judge(suite, folder, caught.message);
		free(caught.message);
	}
	count_share(suite, arena, folder, suite->good > before);
	arena_free(arena);
}

static void run_dynamic(Suite *suite, const char *folder)
{
	arena = arena_new();
	Catch caught;
	if (!TRY(caught)) {
		if (!case_excuse(&suite->excuses, folder, true))
			try_axes(suite, folder);
		catch_end(&caught);
	} else {
		free(caught.message);
	}
	arena_free(arena);
}

int main(int argc, char **argv)
{
	Suite suite = {.arena = arena_new()};
	suite.in_double = argc > 1 && !strcmp(argv[1], "--in-double");
	argc -= suite.in_double, argv += suite.in_double;
	suite.dynamic = argc > 1 && !strcmp(argv[1], "--dynamic");
	argc -= suite.dynamic, argv += suite.dynamic;
	int first = argc > 2 && !strcmp(argv[1], "--report") ? 3 : 1;
	if (argc < first + 2)
		fail("backend", "wants a list and folders of tests");
	suite.excuses = case_excuses(suite.arena, argv[first]);
	suite.folders = case_folders(suite.arena, argc - first - 1, argv + first + 1);
	for (int i = 0; i < suite.folders.count; i++)
		(suite.dynamic ? run_dynamic : run_test)(&suite, suite.folders.at[i]);
	if (suite.dynamic) {
		printf("backend: %d axes, %d agree, %d are refused, %d failed\n", suite.axes,
		       suite.good, suite.refused, suite.wrong);
		bool bad = suite.wrong || !suite.good;
		arena_free(suite.arena);
		return bad;
	}
	printf("backend: %d of %d agree (%d of them with inputs as constants), %d are not run, "
	       "%d failed\n",
	       suite.good, suite.folders.count, suite.stood, suite.excused, suite.wrong);
	if (first == 3)
		report(&suite, argv[2]);
	int wrong = suite.wrong, good = suite.good;
	arena_free(suite.arena);
	return wrong || !good;
}
