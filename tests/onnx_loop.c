// onnx_loop.c: checks Loop and Scan, and their gradients, against loops in C.
// Data-dependent ends, outer values, long and nested loops; loops that must be unrolled or
// rejected.
#include "build.h"
#include "passes.h"
#include "trial.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int failures;

static void hold(bool truth, const char *name, const char *what)
{
	if (!truth)
		printf("%s: %s\n", name, what);
	failures += !truth;
}

// ---- models ---------------------------------------------------------------------------

enum { FLOAT = 1, INT64 = 7, BOOL = 9 };

typedef VEC(NodeProto *) Nodes;
typedef VEC(ValueInfoProto *) Infos;

// One node per line: operator inputs outputs.
static Nodes nodes_of(const char *text)
{
	Nodes list = {0};
	for (char *line = strtok(copy_string(arena, text), "\n"); line; line = strtok(NULL, "\n")) {
		char op[64], in[64], out[64];
		if (sscanf(line, " %63s %63s %63s", op, in, out) != 3)
			fail("onnx_loop", "'%s' is not a node", line);
		PUSH(arena, list,
		     node(copy_string(arena, op), copy_string(arena, in), copy_string(arena, out)));
	}
	return list;
}

static Infos values_of(const char *list)
{
	size_t n;
	char **all = names(list, &n);
	Infos v = {0};
	for (size_t i = 0; i < n; i++)
		PUSH(arena, v, value(all[i], FLOAT, "?"));
	return v;
}

static GraphProto *body_of(const char *nodes, const char *inputs, const char *outputs)
{
	GraphProto *g = NEW(arena, GraphProto);
	Nodes list = nodes_of(nodes);
	Infos in = values_of(inputs), out = values_of(outputs);
	graph_proto__init(g);
	g->node = list.at, g->n_node = (size_t)list.count;
	g->input = in.at, g->n_input = (size_t)in.count;
	g->output = out.at, g->n_output = (size_t)out.count;
	return g;
}

static Build *model_of(const char *nodes, const char *outputs)
{
	static const int64_t none, axes[2] = {0, 1};
	Build *b = build(17);
	Nodes list = nodes_of(nodes);
	Infos out = values_of(outputs);
	for (int i = 0; i < list.count; i++)
		add_to(b, list.at[i]);
	for (int i = 0; i < out.count; i++)
		PUSH(arena, b->outputs, out.at[i]);
	PUSH(arena, b->tensors, raw(tensor("yes", BOOL, 0, &none), "\1", 1));
	PUSH(arena, b->tensors, raw(tensor("axes", INT64, 1, (int64_t[]){2}), axes, sizeof axes));
	return b;
}

static void add_input(Build *b, const char *name, const char *dims)
{
	PUSH(arena, b->inputs, value(name, FLOAT, dims));
}

static void add_count(Build *b, const char *name, int64_t n)
{
	static const int64_t none;
	PUSH(arena, b->tensors, raw(tensor(name, INT64, 0, &none), &n, sizeof n));
}

static void set_body(Build *b, int k, GraphProto *body)
{
	attribute(b->nodes.at[k], "body")->g = body;
}

static void set_ints(NodeProto *n, const char *name, int count, const int64_t *x)
{
	AttributeProto *a = attribute(n, name);
	a->ints = take_copy(arena, x, sizeof *x * (size_t)count);
	a->n_ints = (size_t)count;
}

// ---- values ---------------------------------------------------------------------------

// Returns small positive values, different for each element; "limit" is 100.
static double number_at(const char *name, int64_t i)
{
	return strcmp(name, "limit") ? 0.1 + 0.37 * fabs(sin(3.7 * (double)i + name[0])) : 100;
}

static Array contents(void *context, const Slot *s)
{
	(void)context;
	Array a = {.type = s->type, .shape = s->shape};
	int64_t n = count_of(&s->shape);
	a.f = NEWS(arena, double, n + 1);
	for (int64_t i = 0; i < n && is_float(s->type); i++)
		a.f[i] = (float)number_at(s->name, i);
	return a;
}

static Array *slots_of(const Graph *g)
{
	Array *slot = NEWS(arena, Array, g->slots.count + 1);
	for (int s = 0; s < g->slots.count; s++)
		slot[s] = contents(NULL, &g->slots.at[s]);
	return slot;
}

static const Array *out_named(const Graph *g, const Array *value, const char *name)
{
	Ref r = find_output(g, name);
	if (!r)
		fail(name, "is no output");
	return &value[r];
}

static double number_in(const char *name, int64_t i)
{
	return (double)(float)number_at(name, i);
}

static void compare(const char *what, const Array *found, int64_t n, const double *expected)
{
	bool same = count_of(&found->shape) == n;
	for (int64_t i = 0; i < n && same; i++)
		same = fabs(found->f[i] - expected[i]) <= 1e-9 * fmax(1, fabs(expected[i]));
	hold(same, what, "differs from the plain loop");
}

static void check_gradients(const char *name, const Graph *g)
{
	Trial *t = trial_new(arena, name, g, contents, NULL);
	hold(trial_differences(t), name, "its gradients differ");
	hold(trial_compiled(t), name, "its gradients differ when compiled");
}

// ---- cases ----------------------------------------------------------------------------

static Build *until_large(const char *loop)
{
	Build *b = model_of(loop, "last,rows");
	add_input(b, "v", "2,3");
	add_input(b, "w", "3,3");
	add_input(b, "limit", "1");
	set_body(b, 0,
	         body_of("MatMul x,w m\nAdd m,x y\nMul y,y q\nReduceSum q,axes r\n"
	                 "Reshape r,one s\nLess s,limit go\nIdentity y row",
	                 "t,c,x", "go,y,row"));
	int64_t one = 1;
	PUSH(arena, b->tensors, raw(tensor("one", INT64, 1, &one), &one, sizeof one));
	add_count(b, "most", 9);
	return b;
}

// The data end the loop: the sum of squares reaches a limit.
static void ended_by_data(void)
{
	enum { ROWS = 2, N = 3, MOST = 9 };
	const Graph *g =
	    read_packed(until_large("Loop most,yes,v last,rows"), &(ReadOptions){0})->graph;
	double x[ROWS * N], y[ROWS * N], rows[MOST * ROWS * N] = {0}, sum = 0;
	int iterations = 0;
	for (int i = 0; i < ROWS * N; i++)
		x[i] = number_in("v", i);
	for (; iterations < MOST && (!iterations || sum < 100); iterations++) {
		sum = 0;
		for (int i = 0; i < ROWS * N; i++) {
			y[i] = x[i];
			for (int k = 0; k < N; k++)
				y[i] += x[i / N * N + k] * number_in("w", k * N + i % N);
			sum += y[i] * y[i];
		}
		memcpy(x, y, sizeof x);
		memcpy(rows + iterations * ROWS * N, y, sizeof y);
	}
	const Array *value = eval_graph(arena, g, slots_of(g));
	hold(has_loop(g) && iterations > 1 && iterations < MOST, "ended by data",
	     "is no loop, or no test");
	compare("ended by data", out_named(g, value, "last"), ROWS * N, x);
	compare("rows of it", out_named(g, value, "rows"), MOST * ROWS * N, rows);
	check_gradients("ended by data", g);
}

static void rejected(Build *b, const char *name, const char *words)
{
	Catch c;
	if (!TRY(c)) {
		Graph *g = read_packed(b, &(ReadOptions){0})->graph;
		trial_new(arena, name, g, contents, NULL);
		catch_end(&c);
		hold(false, name, "is not rejected");
		return;
	}
	hold(strstr(c.message, words) != NULL, name, c.message);
	free(c.message);
}

// An unbounded loop runs, but has no room for one row per iteration, nor for a gradient.
static void without_bound(void)
{
	rejected(until_large("Loop ,yes,v last,rows"), "rows without a bound", "trip count");
	Build *b = model_of("Loop ,yes,v last", "last");
	add_input(b, "v", "");
	add_input(b, "limit", "");
	set_body(b, 0, body_of("Add x,x y\nLess y,limit go", "t,c,x", "go,y"));
	const Graph *g = read_packed(b, &(ReadOptions){0})->graph;
	double x = number_in("v", 0);
	while (x < 100)
		x += x;
	compare("without a bound", out_named(g, eval_graph(arena, g, slots_of(g)), "last"), 1, &x);
	rejected(b, "gradient without a bound", "trip count");
}

// Iterations that change shapes are unrolled.
static void growing(void)
{
	Build *b = model_of("Loop most,yes,v last", "last");
	add_input(b, "v", "2");
	set_body(b, 0, body_of("Concat x,v y\nIdentity c go", "t,c,x", "go,y"));
	attribute(b->nodes.at[0]->attribute[0]->g->node[0], "axis")->i = 0;
	add_count(b, "most", 5000);
	add_count(b, "few", 3);
	rejected(b, "growing for long", "cannot compile this loop");
	b->nodes.at[0]->input[0] = "few";
	const Graph *g = read_packed(b, &(ReadOptions){.loops = true})->graph;
	hold(!has_loop(g) && count_of(&val(g, g->outs.at[0].val)->shape) == 8, "growing",
	     "is not unrolled");
}

// An error in a body that is lowered twice, as a loop and unrolled, is reported though nothing
// reads its result.
static void bad_body(void)
{
	Build *b = model_of("Loop few,yes,v last", "last");
	add_input(b, "v", "2");
	set_body(b, 0, body_of("Concat x,v y\nFoo x z\nIdentity c go", "t,c,x", "go,y"));
	attribute(b->nodes.at[0]->attribute[0]->g->node[0], "axis")->i = 0;
	add_count(b, "few", 300);
	rejected(b, "an error in a body", "Foo is not known");
}

enum { LONG = 300, WIDE = 2 };

// Two scanned values, one of them backward along another axis, one result along the last.
static void long_scan(void)
{
	Build *b = model_of("Scan v,a,b last,all", "last,all");
	add_input(b, "v", "2");
	add_input(b, "a", "300,2");
	add_input(b, "b", "2,300");
	set_body(b, 0, body_of("Mul x,p y\nAdd y,q z\nSub z,x d", "x,p,q", "z,d"));
	NodeProto *scan = b->nodes.at[0];
	attribute(scan, "num_scan_inputs")->i = 2;
	set_ints(scan, "scan_input_axes", 2, (int64_t[]){0, 1});
	set_ints(scan, "scan_input_directions", 2, (int64_t[]){0, 1});
	set_ints(scan, "scan_output_axes", 1, (int64_t[]){-1});
	const Graph *g = read_packed(b, &(ReadOptions){0})->graph;
	double x[WIDE] = {number_in("v", 0), number_in("v", 1)}, all[WIDE * LONG];
	for (int t = 0; t < LONG; t++)
		for (int i = 0; i < WIDE; i++) {
			double z = x[i] * number_in("a", t * WIDE + i) +
			           number_in("b", i * LONG + LONG - 1 - t);
			all[i * LONG + t] = z - x[i];
			x[i] = z;
		}
	const Array *value = eval_graph(arena, g, slots_of(g));
	hold(has_loop(g), "long scan", "is unrolled");
	compare("long scan", out_named(g, value, "last"), WIDE, x);
	compare("rows of a long scan", out_named(g, value, "all"), WIDE * LONG, all);
	check_gradients("long scan", g);
}

// A Loop in a Scan's body, with values of both outer graphs.
static void nested(bool loops)
{
	enum { TURNS = 4 };
	const char *name = loops ? "nested loops" : "nested";
	Build *b = model_of("Scan v,a last,all", "last,all");
	add_input(b, "v", "2");
	add_input(b, "a", "6,2");
	add_input(b, "w", "2");
	add_count(b, "most", TURNS);
	GraphProto *outer =
	    body_of("Loop most,yes,x y,rows\nAdd y,p z\nIdentity z d", "x,p", "z,d");
	attribute(outer->node[0], "body")->g =
	    body_of("Mul u,w k\nAdd k,p n\nIdentity c go\nIdentity n row", "t,c,u", "go,n,row");
	set_body(b, 0, outer);
	attribute(b->nodes.at[0], "num_scan_inputs")->i = 1;
	const Graph *g = read_packed(b, &(ReadOptions){.loops = loops})->graph;
	double x[WIDE] = {number_in("v", 0), number_in("v", 1)}, all[6 * WIDE];
	for (int t = 0; t < 6; t++)
		for (int i = 0; i < WIDE; i++) {
			double p = number_in("a", t * WIDE + i);
			for (int k = 0; k < TURNS; k++)
				x[i] = x[i] * number_in("w", i) + p;
			all[t * WIDE + i] = x[i] += p;
		}
	const Array *value = eval_graph(arena, g, slots_of(g));
	hold(has_loop(g) == loops, name, "is not as it should be");
	compare(name, out_named(g, value, "last"), WIDE, x);
	compare(name, out_named(g, value, "all"), 6 * WIDE, all);
	check_gradients(name, g);
}

// Each iteration draws different random numbers.
static void random_iterations(void)
{
	Build *b = model_of("Loop most,yes,v last,rows", "rows");
	add_input(b, "v", "8");
	add_count(b, "most", 3);
	set_body(b, 0,
	         body_of("RandomUniformLike x r\nIdentity c go\nIdentity x y", "t,c,x", "go,y,r"));
	const Graph *g = read_packed(b, &(ReadOptions){.loops = true, .training = true})->graph;
	const Array *rows = out_named(g, eval_graph(arena, g, slots_of(g)), "rows");
	bool differ = has_loop(g);
	for (int i = 0; i < 8; i++)
		differ &= rows->f[i] != rows->f[8 + i] && rows->f[8 + i] != rows->f[16 + i];
	hold(differ, "random trips", "draw the same numbers");
}

int main(void)
{
	arena = arena_new();
	ended_by_data();
	without_bound();
	growing();
	bad_body();
	long_scan();
	nested(false);
	nested(true);
	random_iterations();
	arena_free(arena);
	printf("turns: %d failures\n", failures);
	return failures > 0;
}
