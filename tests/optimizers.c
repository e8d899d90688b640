// optimizers.c: checks that the steps of optimizers and their schedules equal those of their
// publications, evaluated in double and compiled in f32.
// Input: optimizers/vectors.json, by optimizers/make.py. The gradient of a parameter w is g + w /
// 4, taken at the optimizer's point.
#include "emitted.h"
#include "vectors.h"
#include <jansson.h>
#include <math.h>
#include <string.h>

// How a step graph is run, in which type, and its tolerance.
typedef struct Way {
	const char *name;
	Elem type;
	double tolerance;
	bool compiled;
	int64_t runs; // per step, whose gradients are averaged
	double worst;
} Way;

static int failures;

static const char *text(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

static void numbers(const json_t *list, double *x)
{
	for (size_t i = 0; i < json_array_size(list); i++)
		x[i] = json_number_value(json_array_get(list, i));
}

static int64_t integer(const json_t *list, size_t i)
{
	return json_integer_value(json_array_get(list, i));
}

static void axes(const json_t *p, const char *key, bool *axis)
{
	const json_t *list = json_object_get(p, key);
	for (size_t i = 0; i < json_array_size(list); i++)
		axis[integer(list, i)] = true;
}

static Eta eta_of(Arena *arena, const json_t *p, const Shape *shape)
{
	Structure *of = NEW(arena, Structure);
	Eta eta = {.role = text(p, "role"), .structure = of};
	const json_t *pieces = json_object_get(p, "pieces"), *etas = json_object_get(p, "etas");
	int64_t *counts = NEWS(arena, int64_t, json_array_size(pieces) + 1);
	Eta *parts = NEWS(arena, Eta, json_array_size(pieces) + 1);
	eta.eta.value = json_number_value(json_object_get(p, "eta"));
	axes(p, "fan_in", eta.fan_in);
	axes(p, "fan_out", eta.fan_out);
	axes(p, "group_axes", of->group_axes);
	of->groups = MAX(json_integer_value(json_object_get(p, "groups")), 1);
	of->axis = eta.axis = (int)json_integer_value(json_object_get(p, "axis"));
	for (size_t i = 0; i < json_array_size(pieces); i++) {
		const json_t *piece = json_array_get(pieces, i);
		PUSH(
		    arena, of->pieces,
		    ((ParamPiece){integer(piece, 0), integer(piece, 1),
		                  json_string_value(json_array_get(piece, 2)), integer(piece, 3)}));
		counts[i] = integer(piece, 1) - integer(piece, 0);
		parts[i].eta.value = json_number_value(json_array_get(etas, i));
	}
	eta.nparts = of->pieces.count;
	eta.counts = counts;
	eta.parts = parts;
	eta.matrices = matrices_of(arena, shape, &eta);
	return eta;
}

// Sets the graphs of a step and, of several runs per step, of those before the last. Slot 2 i is
// parameter i, slot 2 i + 1 the given part of its gradient.
static void step_graphs(Arena *arena, const json_t *c, const Way *way, int64_t steps,
                        const Graph **last, const Graph **before)
{
	const json_t *params = json_object_get(c, "params"), *value;
	size_t n = json_array_size(params);
	const char *key;
	Elem type = way->type;
	Graph *g = graph_new(arena, text(c, "optimizer"), book_builtin());
	Eta *eta = NEWS(arena, Eta, 2 * n + 1);
	for (size_t i = 0; i < n; i++) {
		const json_t *p = json_array_get(params, i), *dims = json_object_get(p, "shape");
		Shape shape = {.rank = (int)json_array_size(dims)};
		const char *name = text(p, "name");
		for (int a = 0; a < shape.rank; a++)
			shape.dim[a] = integer(dims, (size_t)a);
		int w = add_slot(
		    g, (Slot){.name = name, .kind = S_param, .type = type, .shape = shape});
		int given = add_slot(g, (Slot){.name = format(arena, "given:%s", name),
		                               .kind = S_input,
		                               .type = type,
		                               .shape = shape});
		Ref part = put2(g, O_mul, put_slot(g, w), put_num(g, type, 0.25));
		add_out(g, format(arena, GRAD_OF "%s", name),
		        put2(g, O_add, part, put_slot(g, given)));
		eta[w] = eta_of(arena, p, &shape);
	}
	Opt opt = opt_named(text(c, "optimizer"));
#define HYPER(name, ...) opt.name = 0;
#include "optimizers.def"
#undef HYPER
	opt.schedule = text(c, "schedule");
	opt.cooldown = NAN;
	opt.accumulate = way->runs;
	json_object_foreach (json_object_get(c, "options"), key, value)
		*opt_attribute(&opt, key) = json_number_value(value);
	opt_defaults(arena, &opt);
	Graph *step = step_pass(arena, g, eta, &opt, STEP_train);
	int length = find_slot(step, "amos.steps");
	if (length >= 0)
		step->slots.at[length].init = take_copy(arena, &steps, sizeof steps);
	*last = step;
	*before = way->runs > 1 ? step_pass(arena, g, eta, &opt, STEP_gather) : NULL;
}

static void evaluate(Arena *arena, const Graph *g, Array *slot)
{
	const Array *out = eval_graph(arena, g, slot);
	for (int i = 0; i < g->stores.count; i++)
		slot[g->stores.at[i].slot] = out[g->stores.at[i].val];
}

// Adds a number to every given gradient.
static void shift(const Array *slot, size_t n, double by)
{
	for (size_t i = 0; i < n; i++)
		for (int64_t k = 0; k < count_of(&slot[2 * i + 1].shape); k++)
			slot[2 * i + 1].f[k] += by;
}

static void check_case(Way *way, const json_t *c, int64_t steps)
{
	Arena *arena = arena_new();
	const json_t *params = json_object_get(c, "params"), *list = json_object_get(c, "steps");
	const char *name = text(c, "optimizer");
	const Graph *g, *before;
	step_graphs(arena, c, way, steps, &g, &before);
	Array *slot = NEWS(arena, Array, g->slots.count);
	for (int i = 0; i < g->slots.count; i++)
		slot[i] = slot_start(arena, &g->slots.at[i]);
	for (size_t i = 0; i < json_array_size(params); i++)
		numbers(json_object_get(json_array_get(params, i), "w"), slot[2 * i].f);
	Compiled *compiled =
	    way->compiled ? compile_graph(arena, g, target_named(arena, "cpu", NULL), name) : NULL;
	for (size_t t = 0; t < json_array_size(list); t++) {
		const json_t *step = json_array_get(list, t);
		for (size_t i = 0; i < json_array_size(params); i++)
			numbers(json_array_get(json_object_get(step, "given"), i),
			        slot[2 * i + 1].f);
		if (before) {
			shift(slot, json_array_size(params), 1);
			evaluate(arena, before, slot);
			shift(slot, json_array_size(params), -2);
		}
		if (compiled)
			run_compiled(arena, compiled, slot, plain_launch);
		else
			evaluate(arena, g, slot);
		for (size_t i = 0; i < json_array_size(params); i++) {
			double off = difference(&slot[2 * i],
			                        json_array_get(json_object_get(step, "after"), i));
			way->worst = fmax(way->worst, off);
			if (off <= way->tolerance)
				continue;
			printf("FAILED %s %s %s: %s after step %zu is off by %g\n", way->name, name,
			       text(c, "schedule"), g->slots.at[2 * i].name, t + 1, off);
			failures++;
		}
	}
	if (compiled)
		free_compiled(compiled);
	arena_free(arena);
}

int main(int argc, char **argv)
{
	Way ways[] = {{"evaluated in f64", E_f64, 1e-12, false, 1, 0},
	              {"evaluated in two runs", E_f64, 1e-12, false, 2, 0},
	              {"compiled in f32", E_f32, 2e-5, true, 1, 0}};
	json_error_t error;
	json_t *root = json_load_file(argc > 1 ? argv[1] : "", 0, &error);
	if (!root) {
		printf("FAILED %s: %s\n", error.source, error.text);
		return 1;
	}
	const json_t *cases = json_object_get(root, "cases");
	int64_t steps = json_integer_value(json_object_get(root, "steps"));
	for (int w = 0; w < COUNT(ways); w++) {
		for (size_t i = 0; i < json_array_size(cases); i++)
			check_case(&ways[w], json_array_get(cases, i), steps);
		printf("optimizers %s: %zu cases of %d steps, largest difference %.3g\n",
		       ways[w].name, json_array_size(cases), (int)steps, ways[w].worst);
	}
	json_decref(root);
	return failures != 0;
}
