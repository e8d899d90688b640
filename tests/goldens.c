// goldens.c: compares models with their reference results, by the evaluator alone.
// goldens PATTERN...: reads $AMOSC_MODELS/goldens.json and $AMOSC_MODELS/dynamo/goldens.json; a
// PATTERN is a glob over file names relative to that directory; none: all. Each model is read,
// given the reference inputs, evaluated with its gradients, and compared. Tests the reader, the
// book and the gradients without an emitter. Prints one line per model. Exit status 1 if one
// differs.
#include "golden.h"
#include "onnx.h"
#include "passes.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Found {
	Arena *arena;
	const Graph *g;
	const Array *value;
	Table *grads; // maps "grad:NAME" to its index + 1
	VEC(Result) results;
} Found;

static Result as_numbers(Arena *arena, const Array *a)
{
	Result r = {.count = count_of(&a->shape)};
	double *at = NEWS(arena, double, r.count + 1);
	for (int64_t i = 0; i < r.count; i++)
		at[i] = element_at(a, i);
	r.at = at;
	return r;
}

static bool fetch(void *ctx, const char *name, Result *r)
{
	Found *f = ctx;
	uint64_t *cell = table_find_s(f->grads, name);
	if (cell) {
		*r = f->results.at[*cell - 1];
		return true;
	}
	if (starts_with(name, "grad:"))
		return false;
	Ref out = find_output(f->g, format(f->arena, "output:%s", name));
	if (!out)
		out = find_output(f->g, name);
	if (out)
		*r = as_numbers(f->arena, &f->value[out]);
	return out;
}

// Returns the index, among the float outputs, of a cotangent's output.
static int float_output(const Graph *g, const char *name)
{
	int k = 0;
	for (int o = 0; o < g->outs.count && strcmp(g->outs.at[o].name, name); o++)
		k += is_float(val(g, g->outs.at[o].val)->type);
	return k;
}

static Array slot_array(Arena *arena, const Graph *g, const Slot *s)
{
	if (s->kind != S_input && s->init)
		return array_from(arena, s->type, &s->shape, s->init);
	int64_t n = count_of(&s->shape);
	Array a = {.type = s->type, .shape = s->shape};
	a.f = take(arena, 8 * (size_t)n + 8);
	bool cotangent = starts_with(s->name, "cotangent:");
	int k = cotangent ? float_output(g, s->name + strlen("cotangent:")) : 0;
	for (int64_t i = 0; i < n && s->kind == S_input; i++) {
		double x = cotangent ? golden_cotangent(k, i, n)
		                     : golden_input(s->name, s->type, &s->shape, i);
		if (is_float(s->type))
			a.f[i] = x;
		else
			a.i[i] = (int64_t)x;
	}
	return a;
}

static const double *slot_gradient(void *ctx, int slot)
{
	Found *f = ctx;
	Ref r = find_output(f->g, format(f->arena, "grad:%s", f->g->slots.at[slot].name));
	return r ? f->value[r].f : NULL;
}

static void keep_gradient(void *ctx, const char *name, Shape shape, const double *at)
{
	Found *f = ctx;
	Result r = {count_of(&shape), at};
	PUSH(f->arena, f->results, r);
	*table_cell_s(f->grads, format(f->arena, "grad:%s", name)) = (uint64_t)f->results.count;
}

static bool has_floats(const Graph *g)
{
	for (int i = 0; i < g->outs.count; i++)
		if (is_float(val(g, g->outs.at[i].val)->type))
			return true;
	return false;
}

static void evaluate(Found *f, const Model *m, bool gradients)
{
	Graph *g = m->graph;
	if (gradients && has_floats(g)) {
		g = cotangent_pass(f->arena, g, NULL);
		bool *active = NEWS(f->arena, bool, g->slots.count + 1);
		for (int s = 0; s < g->slots.count; s++)
			active[s] =
			    g->slots.at[s].kind == S_param || g->slots.at[s].kind == S_buffer;
		g = grad_pass(f->arena, g, active, &machines[0]);
	}
	g->stores.count = 0;
	f->g = g = graph_live(f->arena, g);
	Array *slot = NEWS(f->arena, Array, g->slots.count + 1);
	for (int s = 0; s < g->slots.count; s++)
		slot[s] = slot_array(f->arena, m->graph, &g->slots.at[s]);
	f->value = eval_graph(f->arena, g, slot);
	if (gradients && has_floats(g))
		each_initializer(m, f->arena, slot_gradient, keep_gradient, f);
}

// Binds the model's dimensions to the shapes of the golden's inputs.
static void bind_inputs(Arena *arena, const json_t *inputs, ReadOptions *options)
{
	VEC(Bind) bind = {0};
	const char *name;
	json_t *shape;
	json_object_foreach ((json_t *)inputs, name, shape) {
		for (size_t a = 0; a < json_array_size(shape); a++) {
			Bind b = {format(arena, "%s:%zu", name, a),
			          json_integer_value(json_array_get(shape, a))};
			PUSH(arena, bind, b);
		}
	}
	options->nbind = bind.count;
	options->bind = bind.at;
}

static bool check(const char *folder, const char *key, const json_t *golden, bool gradients)
{
	Arena *arena = arena_new();
	Found f = {.arena = arena, .grads = table_new(arena)};
	ReadOptions options = {.statistics = strstr(key, "@bn_train") ? BN_BATCH : BN_FILE,
	                       .separate = true,
	                       .precision = PRECISION_F64};
	Limit limit = golden_limit(key, true);
	bind_inputs(arena, json_object_get(golden, "inputs"), &options);
	const char *at = strchr(key, '@');
	const char *path =
	    format(arena, "%s/%.*s", folder, at ? (int)(at - key) : (int)strlen(key), key);
	Catch caught;
	bool good = false;
	if (!TRY(caught)) {
		Model *m = read_model(arena, path, &options);
		evaluate(&f, m, gradients);
		Verdict v = golden_judge(key, golden, limit.tolerance, fetch, &f);
		catch_end(&caught);
		good = !v.wrong && v.outputs &&
		       (!gradients || v.gradients || !json_object_get(golden, "grads"));
		printf("%s %s: %d outputs, %d gradients, %d constants, worst %.2g\n",
		       good ? "ok  " : "BAD ", key, v.outputs, v.gradients, v.constants,
		       v.worst * limit.tolerance);
	} else {
		printf("FAIL %s: %s\n", key, caught.message);
		free(caught.message);
	}
	fflush(stdout);
	arena_free(arena);
	return good;
}

static int check_folder(const char *folder, const char *prefix, bool gradients, int n,
                        char **pattern, int *total)
{
	char path[4096];
	snprintf(path, sizeof path, "%s/goldens.json", folder);
	json_t *all = golden_load(path);
	int bad = 0;
	const char *key;
	json_t *golden;
	json_object_foreach (all, key, golden) {
		char name[4096];
		snprintf(name, sizeof name, "%s%s", prefix, key);
		if (key[0] == '_' || !golden_selected(name, n, pattern))
			continue;
		++*total;
		bad += !check(folder, key, golden, gradients);
	}
	json_decref(all);
	return bad;
}

int main(int argc, char **argv)
{
	const char *folder = getenv("AMOSC_MODELS");
	if (!folder)
		fail("goldens", "AMOSC_MODELS names no folder of models");
	bool gradients = argc < 2 || strcmp(argv[1], "--forward");
	int skip = gradients ? 1 : 2, total = 0;
	char inner[4096];
	snprintf(inner, sizeof inner, "%s/dynamo", folder);
	int bad = check_folder(folder, "", gradients, argc - skip, argv + skip, &total);
	bad += check_folder(inner, "dynamo/", gradients, argc - skip, argv + skip, &total);
	printf("%d of %d models agree\n", total - bad, total);
	return bad != 0 || !total;
}
