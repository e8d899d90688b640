// amos.c: checks that the step graph of Amos computes Algorithm 1, in double and compiled in f32.
// With many batches, the graph by rule equals that with the same numbers given; with few, it
// differs as optim.am states. Input: amos/vectors.json. One case comes from an implementation with
// another lower bound and a wrong sign of the extra L2: its v and b must be equal, its parameters
// must not.
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
	double worst;
} Way;

static int failures;

static double number(const json_t *object, const char *key)
{
	return json_number_value(json_object_get(object, key));
}

static void numbers(const json_t *list, double *x, size_t count)
{
	for (size_t i = 0; i < count; i++)
		x[i] = json_number_value(json_array_get(list, i));
}

static Shape slot_shape(const json_t *c)
{
	const json_t *list = json_object_get(c, "slot");
	Shape s = {.rank = (int)json_array_size(list)};
	for (int a = 0; a < s.rank; a++)
		s.dim[a] = json_integer_value(json_array_get(list, (size_t)a));
	return s;
}

static Graph *step_of(Arena *arena, const Eta *eta, Elem type, Opt *opt)
{
	const Shape shape = shape_of(2, (int64_t[]){3, 4});
	Graph *g = graph_new(arena, "amos", book_builtin());
	add_slot(g, (Slot){.name = "theta", .kind = S_param, .type = type, .shape = shape});
	int grad = add_slot(g, (Slot){.name = "g", .kind = S_input, .type = type, .shape = shape});
	add_out(g, "grad:theta", put_slot(g, grad));
	opt_defaults(arena, opt);
	return step_pass(arena, g, eta, opt, STEP_train);
}

static Graph *step_graph(Arena *arena, const json_t *c, Elem type)
{
	Eta eta[2] = {{.eta.value = number(c, "eta"), .slot = slot_shape(c)}};
	Opt opt = opt_named("amos");
	opt.xi = number(c, "xi"), opt.beta = number(c, "beta"), opt.clip = number(c, "clip");
	opt.momentum = number(c, "momentum"), opt.extra_l2 = number(c, "extra_l2");
	opt.coef = number(c, "coefficient"), opt.warmup = number(c, "warmup");
	return step_of(arena, eta, type, &opt);
}

static Array *first_state(Arena *arena, const Graph *g, const json_t *c, const json_t *theta)
{
	Array *slot = NEWS(arena, Array, g->slots.count);
	for (int i = 0; i < g->slots.count; i++)
		slot[i] = slot_start(arena, &g->slots.at[i]);
	numbers(theta, slot[0].f, 12);
	Array *b = &slot[find_slot(g, "theta.b")];
	for (int64_t i = 0; i < count_of(&b->shape); i++)
		b->f[i] = number(c, "b");
	return slot;
}

static void expect(bool right, const Way *way, const char *name, const char *what, double off)
{
	if (!right) {
		printf("FAILED %s %s: %s is off by %g\n", way->name, name, what, off);
		failures++;
	}
}

static void evaluate(Arena *arena, const Graph *g, Array *slot)
{
	const Array *out = eval_graph(arena, g, slot);
	for (int i = 0; i < g->stores.count; i++)
		slot[g->stores.at[i].slot] = out[g->stores.at[i].val];
}

static void check_case(Way *way, const json_t *c, const json_t *theta)
{
	Arena *arena = arena_new();
	const char *name = json_string_value(json_object_get(c, "name"));
	bool other = json_is_true(json_object_get(c, "other_arithmetic"));
	const Graph *g = step_graph(arena, c, way->type);
	Array *slot = first_state(arena, g, c, theta);
	Compiled *compiled =
	    way->compiled ? compile_graph(arena, g, target_named(arena, "cpu", NULL), name) : NULL;
	for (size_t t = 0; t < json_array_size(json_object_get(c, "steps")); t++) {
		const json_t *step = json_array_get(json_object_get(c, "steps"), t);
		numbers(json_object_get(step, "grad"), slot[1].f, 12);
		if (compiled)
			run_compiled(arena, compiled, slot, plain_launch);
		else
			evaluate(arena, g, slot);
		double v = difference(&slot[find_slot(g, "theta.v")], json_object_get(step, "v"));
		double b = difference(&slot[find_slot(g, "theta.b")], json_object_get(step, "b"));
		double w = difference(&slot[0], json_object_get(step, "theta"));
		expect(v < way->tolerance, way, name, "v", v);
		expect(b < way->tolerance, way, name, "b", b);
		expect(other ? w > 1e-4 : w < way->tolerance, way, name, "theta", w);
		way->worst = fmax(way->worst, fmax(v, fmax(b, other ? 0 : w)));
	}
	if (compiled)
		free_compiled(compiled);
	arena_free(arena);
}

// ---- many and few batches ---------------------------------------------------------------

static void hold(bool right, const char *what)
{
	if (!right) {
		printf("FAILED %s\n", what);
		failures++;
	}
}

// With many batches, or xi given, the step is that of the numbers alone.
static void check_many(void)
{
	static const double batches[] = {99999, 100000, 1e7};
	Arena *arena = arena_new();
	Eta eta[2] = {{.eta.value = 0.5, .slot = shape_of(2, (int64_t[]){1, 4})}};
	for (int i = 0; i < COUNT(batches); i++) {
		Opt rule = opt_named("amos"), given = opt_named("amos");
		rule.batches = given.batches = batches[i];
		const char *text = graph_text(arena, step_of(arena, eta, E_f32, &rule));
		given.xi = rule.xi, given.beta = rule.beta, given.warmup = rule.warmup;
		const char *plain = graph_text(arena, step_of(arena, eta, E_f32, &given));
		bool many = batches[i] >= 100000;
		hold(!strcmp(text, plain) == many,
		     "Algorithm 1 where data are many, and only there");
		hold(!many || rule.xi == 1 / sqrt(batches[i]), "xi is 1 / sqrt(N)");
		given = opt_named("amos");
		given.batches = 100, given.xi = rule.xi, given.beta = rule.beta;
		given.warmup = rule.warmup;
		hold(!strcmp(graph_text(arena, step_of(arena, eta, E_f32, &given)), plain),
		     "Algorithm 1 where xi is given");
	}
	arena_free(arena);
}

// Checks the first step of a parameter of few batches, by the four parts that optim.am states.
// `scale` is the root mean square of w.
static void check_few(double scale)
{
	Arena *arena = arena_new();
	const double eta = 0.5;
	Eta etas[2] = {{.eta.value = eta, .slot = shape_of(2, (int64_t[]){1, 4})}};
	Opt o = opt_named("amos");
	o.batches = 40, o.momentum = 0, o.warmup = 0;
	const Graph *g = step_of(arena, etas, E_f64, &o);
	Array *slot = NEWS(arena, Array, g->slots.count);
	for (int i = 0; i < g->slots.count; i++)
		slot[i] = slot_start(arena, &g->slots.at[i]);
	double before[12], b = 2, surge = 9, v[4] = {0};
	for (int i = 0; i < 12; i++) {
		before[i] = slot[0].f[i] = i % 2 ? scale : -scale;
		slot[1].f[i] = surge * sin(i);
		v[i % 4] += surge * surge * sin(i) * sin(i) / 3;
	}
	for (int c = 0; c < 4; c++) { // running means far below the gradient
		slot[find_slot(g, "theta.v")].f[c] = 1;
		slot[find_slot(g, "theta.b")].f[c] = b;
	}
	evaluate(arena, g, slot);
	double size = 0, unbias = 1 - o.beta, mean = 0,
	       reach = fmin(fmax(o.reach * scale, o.least * eta), eta);
	for (int c = 0; c < 4; c++)
		mean += unbias / (o.beta + unbias * v[c]) * v[c] / 4;
	for (int i = 0; i < 12; i++) {
		double r = unbias / (o.beta + unbias * v[i % 4]),
		       gamma = r * v[i % 4] * o.xi * o.xi / sqrt(1 + o.coef * sqrt(o.xi) * b),
		       d = 1 / (1 + o.coef * sqrt(o.xi * eta) * b),
		       n = sqrt(r) * surge * sin(i) / sqrt(fmax(mean / o.most, 1)),
		       w = before[i] - d * (o.xi * reach * n + o.strength * gamma / 2 * before[i]),
		       b1 = slot[find_slot(g, "theta.b")].f[i % 4];
		size = fmax(size, fabs(slot[0].f[i] - w));
		size = fmax(size, fabs(b1 - (b + o.pace * gamma * (1 + b))));
	}
	hold(size < 1e-12, "a step where data are few");
	arena_free(arena);
}

// With gradients at the sequence that steps (mix 0), it is that without an average, and w is its
// mean, in which step t has the weight K / (K + t - 1) when it is taken.
static void check_average(double k)
{
	Arena *arena = arena_new();
	Eta eta[2] = {{.eta.value = 0.5, .slot = shape_of(2, (int64_t[]){1, 4})}};
	const Graph *g[2];
	Array *slot[2];
	double mean[12], off = 0, moved = 0;
	for (int averages = 0; averages < 2; averages++) {
		Opt o = opt_named("amos");
		o.xi = 0.125, o.beta = 0.75, o.warmup = 0, o.momentum = 0;
		o.average = averages ? k : 0, o.mix = 0;
		g[averages] = step_of(arena, eta, E_f64, &o);
		slot[averages] = NEWS(arena, Array, g[averages]->slots.count);
		for (int i = 0; i < g[averages]->slots.count; i++)
			slot[averages][i] = slot_start(arena, &g[averages]->slots.at[i]);
		for (int i = 0; i < 12; i++)
			slot[averages][0].f[i] = mean[i] = cos(i);
	}
	for (int t = 1; t <= 9; t++) {
		for (int averages = 0; averages < 2; averages++) {
			for (int i = 0; i < 12; i++)
				slot[averages][1].f[i] = sin(i * t);
			evaluate(arena, g[averages], slot[averages]);
		}
		const double *ahead = slot[1][find_slot(g[1], "theta.ahead")].f;
		for (int i = 0; i < 12; i++) {
			mean[i] += k / (k + t - 1) * (slot[0][0].f[i] - mean[i]);
			off = fmax(off, fabs(slot[1][0].f[i] - mean[i]));
			off = fmax(off, fabs(slot[1][0].f[i] + ahead[i] - slot[0][0].f[i]));
			moved = fmax(moved, fabs(ahead[i]));
		}
	}
	hold(off < 1e-12 && moved > 1e-3, "a running mean of what steps");
	arena_free(arena);
}

int main(int argc, char **argv)
{
	Way ways[] = {{"evaluated in f64", E_f64, 1e-12, false, 0},
	              {"compiled in f32", E_f32, 2e-6, true, 0}};
	json_error_t error;
	json_t *root = json_load_file(argc > 1 ? argv[1] : "", 0, &error);
	if (!root) {
		printf("FAILED %s: %s\n", error.source, error.text);
		return 1;
	}
	json_t *cases = json_object_get(root, "cases");
	for (int w = 0; w < COUNT(ways); w++) {
		for (size_t i = 0; i < json_array_size(cases); i++)
			check_case(&ways[w], json_array_get(cases, i),
			           json_object_get(root, "theta"));
		printf("Amos %s: %zu cases of 3 steps, largest difference %.3g\n", ways[w].name,
		       json_array_size(cases), ways[w].worst);
	}
	json_decref(root);
	check_many();
	for (double scale = 0; scale < 2;
	     scale += 0.1) // zeros, below, between and above the bounds
		check_few(scale);
	check_average(1);
	check_average(8);
	return failures != 0;
}
