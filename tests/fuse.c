// fuse.c: checks which kernels typical training graphs become, and that plans are valid.
#include "passes.h"
#include <stdlib.h>
#include <string.h>

static int failures;

static Ref input(Graph *g, const char *name, Elem type, int rank, const int64_t *dim)
{
	return put_slot(g, add_slot(g, (Slot){.name = name,
	                                      .kind = S_input,
	                                      .type = type,
	                                      .shape = shape_of(rank, dim)}));
}
#define INPUT(g, name, ...)                                                                        \
	input(g, name, E_f32, COUNT(((int64_t[]){__VA_ARGS__})), (int64_t[]){__VA_ARGS__})

static Ref param(Graph *g, const char *name, int rank, const int64_t *dim)
{
	return put_slot(g, add_slot(g, (Slot){.name = name,
	                                      .kind = S_param,
	                                      .type = E_f32,
	                                      .shape = shape_of(rank, dim)}));
}
#define PARAM(g, name, ...)                                                                        \
	param(g, name, COUNT(((int64_t[]){__VA_ARGS__})), (int64_t[]){__VA_ARGS__})
#define FOLD(g, op, x, ...)                                                                        \
	put_reduce(g, op, x, COUNT(((int64_t[]){__VA_ARGS__})), (int64_t[]){__VA_ARGS__})

static Ref softmax(Graph *g, Ref x, int64_t axis)
{
	Ref e = put1(g, O_exp, put2(g, O_sub, x, FOLD(g, O_amax, x, axis)));
	return put2(g, O_div, e, FOLD(g, O_sum, e, axis));
}

// kinds: the expected kernels, one letter each: m r c d p s.
static void expect(Arena *arena, const Graph *g, const char *name, const char *kinds)
{
	Plan *p = fuse_pass(arena, graph_live(arena, g), name, &machines[0]);
	schedule_pass(arena, p);
	tile_pass(arena, p, 0);
	memory_pass(arena, p);
	verify_plan(p);
	char *got = NEWS(arena, char, p->kerns.count + 1);
	for (int k = 0; k < p->kerns.count; k++)
		got[k] = "mrcdaps"[p->kerns.at[k].kind];
	if (strcmp(got, kinds)) {
		printf("FAILED %s: kernels %s, wanted %s\n", name, got, kinds);
		fputs(plan_text(arena, p), stdout);
		failures++;
	} else {
		printf("%s: %s, scratch %lld\n", name, got, (long long)p->scratch_bytes);
	}
}

static void test_softmax(Arena *arena)
{
	Graph *g = graph_new(arena, "softmax", NULL);
	add_out(g, "y", softmax(g, INPUT(g, "x", 4, 8, 32), 2));
	expect(arena, g, "softmax", "r");
	Graph *c = graph_new(arena, "softmax of columns", NULL);
	add_out(c, "y", softmax(c, INPUT(c, "x", 4, 8, 32), 1));
	expect(arena, c, "softmax of columns", "c");
}

static Ref norm(Graph *g, Ref x, Ref gain, Ref bias)
{
	double n = (double)val(g, x)->shape.dim[1];
	Ref mean = put2(g, O_mul, FOLD(g, O_sum, x, 1), put_num(g, E_f32, 1 / n));
	Ref centered = put2(g, O_sub, x, mean);
	Ref variance = put2(g, O_mul, FOLD(g, O_sum, put2(g, O_mul, centered, centered), 1),
	                    put_num(g, E_f32, 1 / n));
	Ref scale = put1(g, O_rsqrt, put2(g, O_add, variance, put_num(g, E_f32, 1e-5)));
	return put2(g, O_add, put2(g, O_mul, put2(g, O_mul, centered, scale), gain), bias);
}

// An input that is an output, and sums of its columns.
static void test_copy(Arena *arena)
{
	Graph *g = graph_new(arena, "copy", NULL);
	Ref x = INPUT(g, "x", 4000, 240);
	add_out(g, "y", x);
	add_out(g, "sum", FOLD(g, O_sum, x, 0));
	add_out(g, "squares", FOLD(g, O_sum, put2(g, O_mul, x, x), 0));
	expect(arena, g, "copy", "c");
}

// Statistics of channels, as the file has them before the spatial axes: a kernel of the mean, and
// one of all else.
static void test_channels(Arena *arena)
{
	Graph *g = graph_new(arena, "channels", NULL);
	const int64_t first[] = {0, 3, 1, 2}, last[] = {0, 2, 3, 1};
	Ref x = put_permute(g, INPUT(g, "x", 32, 16, 16, 64), first);
	Ref n = put_num(g, E_f32, 1.0 / (32 * 16 * 16));
	Ref centered = put2(g, O_sub, x, put2(g, O_mul, FOLD(g, O_sum, x, 0, 2, 3), n));
	Ref variance = FOLD(g, O_sum, put2(g, O_mul, centered, centered), 0, 2, 3);
	variance = put2(g, O_add, put2(g, O_mul, variance, n), put_num(g, E_f32, 1e-5));
	Ref y = put2(g, O_mul, centered, put1(g, O_rsqrt, variance));
	add_out(g, "y", put_permute(g, y, last));
	expect(arena, layout_pass(arena, g), "channels", "cc");
}

// x W + b + residual, normalized, used twice: the sum is part of the dot, the rest is one row
// kernel.
// Sums over the rows of a large space: one that follows from another through a map is on its own,
// since workers have parts of the rows.
static void test_sum_of_sum(Arena *arena)
{
	Graph *g = graph_new(arena, "sum of sum", NULL);
	Ref x = INPUT(g, "x", 4096, 64);
	Ref y = put1(g, O_tanh, put2(g, O_mul, x, FOLD(g, O_sum, x, 0)));
	add_out(g, "y", y);
	add_out(g, "sum", FOLD(g, O_sum, y, 0));
	expect(arena, g, "a sum that needs another", "cc");
}

static void test_block(Arena *arena)
{
	Graph *g = graph_new(arena, "block", NULL);
	Ref x = INPUT(g, "x", 24, 64), w = PARAM(g, "w", 64, 64), b = PARAM(g, "b", 1, 64);
	Ref sum = put2(g, O_add, put2(g, O_add, put2(g, O_dot, x, w), b), x);
	Ref y = norm(g, sum, PARAM(g, "gain", 1, 64), PARAM(g, "bias", 1, 64));
	add_out(g, "y", put2(g, O_add, put2(g, O_dot, y, PARAM(g, "w2", 64, 64)), sum));
	expect(arena, g, "block", "drd");
}

// An activation is fused with the dot before it, including what the backward pass needs.
static void test_mlp(Arena *arena)
{
	Graph *g = graph_new(arena, "mlp", NULL);
	Ref x = INPUT(g, "x", 32, 48), w = PARAM(g, "w", 48, 64), v = PARAM(g, "v", 64, 16);
	Ref h = put2(g, O_add, put2(g, O_dot, x, w), PARAM(g, "b", 1, 64));
	Ref a = put2(g, O_mul, h, put1(g, O_erf, h));
	Ref dy = INPUT(g, "dy", 32, 16);
	add_out(g, "y", put2(g, O_dot, a, v));
	Ref da = put2(g, O_dot, dy, put_permute(g, v, (int64_t[]){1, 0}));
	Ref dh = put2(g, O_mul, da, put1(g, O_exp, put1(g, O_neg, put2(g, O_mul, h, h))));
	add_out(g, "dv", put2(g, O_dot, put_permute(g, a, (int64_t[]){1, 0}), dy));
	add_out(g, "dw", put2(g, O_dot, put_permute(g, x, (int64_t[]){1, 0}), dh));
	add_out(g, "db", FOLD(g, O_sum, dh, 0));
	expect(arena, g, "mlp", "dddddc");
}

// Returns the gradient of a weight over `batch` samples; 0: an input.
static Ref gradient(Graph *g, int64_t batch, int64_t rows, int64_t cols)
{
	if (!batch)
		return INPUT(g, "g", rows, cols);
	Ref x = put_permute(g, INPUT(g, "x", batch, rows), (int64_t[]){1, 0});
	return put2(g, O_dot, x, INPUT(g, "dy", batch, cols));
}

// w -= rate g / sqrt(mean(g^2)), with its second moment stored: one kernel, in place.
static void update(Arena *arena, const char *name, int64_t batch, int64_t rows, int64_t cols,
                   int axis, const char *kinds)
{
	Graph *g = graph_new(arena, name, NULL);
	Ref w = PARAM(g, "w", rows, cols), grad = gradient(g, batch, rows, cols);
	int64_t slot[2] = {rows, cols};
	slot[axis] = 1;
	Ref v = put_slot(g, add_slot(g, (Slot){.name = "v",
	                                       .kind = S_state,
	                                       .type = E_f32,
	                                       .shape = shape_of(2, slot)}));
	Ref m = put_slot(
	    g,
	    add_slot(
	        g, (Slot){.name = "m", .kind = S_state, .type = E_f32, .shape = val(g, w)->shape}));
	Ref square = FOLD(g, O_sum, put2(g, O_mul, grad, grad), axis);
	Ref v1 = put2(g, O_add, put2(g, O_mul, v, put_num(g, E_f32, .9)), square);
	Ref step = put2(g, O_mul, grad, put1(g, O_rsqrt, v1));
	Ref m1 = put2(g, O_add, put2(g, O_mul, m, put_num(g, E_f32, .9)), step);
	add_store(g, 0, put2(g, O_sub, w, m1));
	add_store(g, (int)val(g, v)->attr->i[0], v1);
	add_store(g, (int)val(g, m)->attr->i[0], m1);
	expect(arena, g, name, kinds);
}

// y reads the old w at other indices in another kernel, which must come first; swapping halves
// needs a copy.
static void test_stores(Arena *arena)
{
	Graph *g = graph_new(arena, "stores", NULL);
	Ref w = PARAM(g, "w", 16, 16), x = INPUT(g, "x", 16, 16);
	add_store(g, 0, put2(g, O_add, w, x));
	add_out(g, "y", put2(g, O_dot, x, put_permute(g, w, (int64_t[]){1, 0})));
	expect(arena, g, "readers of the old value first", "dm");
	Graph *s = graph_new(arena, "turned store", NULL);
	Ref t = PARAM(s, "w", 16, 16);
	add_store(s, 0, put2(s, O_add, put_permute(s, t, (int64_t[]){1, 0}), t));
	expect(arena, s, "a store that needs a copy", "mm");
}

// A kernel [outputs, channels, taps] in f32 is rounded by the copy that turns it: to pack it where
// it lies would take an element at a time.
static void test_rounded_kernel(Arena *arena)
{
	Graph *g = graph_new(arena, "rounded kernel", NULL);
	Ref w = put_cast(g, PARAM(g, "w", 64, 64, 9), E_bf16);
	w = put_permute(g, w, (int64_t[]){2, 1, 0});
	w = put_reshape(g, w, shape_of(2, (int64_t[]){576, 64}));
	add_out(g, "y", put2(g, O_dot, put_cast(g, INPUT(g, "x", 128, 576), E_bf16), w));
	expect(arena, g, "rounded kernel", "md");
}

static Ref pick(const Graph *g, const Ref *made, int n, int rank)
{
	for (;;) {
		Ref r = made[rand() % n];
		if (val(g, r)->shape.rank == rank)
			return r;
	}
}

// Kernels are written recursively: a long chain must not become one deep expression.
static void test_chain(Arena *arena)
{
	Graph *g = graph_new(arena, "chain", NULL);
	Ref x = INPUT(g, "x", 2, 4);
	for (int i = 0; i < 3000; i++)
		x = put1(g, O_sin, x);
	add_out(g, "y", x);
	expect(arena, g, "a long chain", "mmmmmmmmmmmmmmmmmmmmmmmm");
}

// Random graphs: every plan must verify.
static void test_random(Arena *arena, int graphs)
{
	srand(7);
	int kernels = 0;
	for (int i = 0; i < graphs; i++) {
		Graph *g = graph_new(arena, "random", NULL);
		Ref made[80] = {INPUT(g, "x", 16, 16), PARAM(g, "w", 16, 16), PARAM(g, "b", 1, 16)};
		int n = 3;
		while (n < 80) {
			Ref x = pick(g, made, n, 2), y = pick(g, made, n, 2);
			const Shape *s = &val(g, x)->shape, *t = &val(g, y)->shape;
			bool square = s->dim[0] == 16 && t->dim[0] == 16 && s->dim[1] == 16 &&
			              t->dim[1] == 16;
			switch (rand() % 8) {
			case 0:
				made[n++] = FOLD(g, O_sum, x, rand() % 2);
				break;
			case 1:
				made[n++] = put1(g, O_exp, x);
				break;
			case 2:
				made[n++] = put_permute(g, x, (int64_t[]){1, 0});
				break;
			case 3:
				if (square)
					made[n++] = put2(g, O_dot, x, y);
				break;
			default:
				made[n++] = put2(g, rand() % 2 ? O_add : O_mul, x, y);
				break;
			}
		}
		for (int k = 0; k < 3; k++)
			add_out(g, format(arena, "y%d", k), made[n - 1 - k]);
		for (int k = n - 1, s = 1; k > 0 && s < 3; k--)
			if (same_shape(&val(g, made[k])->shape, &g->slots.at[s].shape) &&
			    val(g, made[k])->op != O_slot)
				add_store(g, s++, made[k]);
		Plan *p = fuse_pass(arena, graph_live(arena, g), "random", &machines[0]);
		schedule_pass(arena, p);
		tile_pass(arena, p, 0);
		memory_pass(arena, p);
		verify_plan(p);
		kernels += p->kerns.count;
	}
	printf("%d random graphs, %d kernels\n", graphs, kernels);
}

// Returns the plan of a graph whose products read this type, for a machine.
static const Plan *plan_on(Arena *arena, const char *machine, Elem products, const char *name,
                           const char *text)
{
	Graph *g = parse_graph(arena, name, text, book_builtin());
	g->products = products;
	Unit unit = {.name = name, .machine = machine_named(machine), .graph = g};
	for (Pass p = PASS_loops; p <= PASS_memory; p++)
		run_pass(arena, p, &unit);
	verify_plan(unit.plan);
	return unit.plan;
}

static void expect_text(Arena *arena, const Plan *p, const char *name, int n,
                        const char *const *lines)
{
	const char *text = plan_text(arena, p);
	for (int i = 0; i < n; i++)
		if (!strstr(text, lines[i])) {
			printf("FAILED %s: no '%s' in\n%s", name, lines[i], text);
			failures++;
		}
	printf("%s: %d kernels\n", name, p->kerns.count);
}

// Of weights and their momentum, a copy for products is stored where they are summed, and not the
// sum: the update reads both anyway.
static void test_point(Arena *arena)
{
	static const char text[] =
	    "graph point\nslot x : input f32[64,128]\nslot g : input f32[64,96]\n"
	    "slot w : param f32[128,96]\nslot w.ahead : state f32[128,96]\n"
	    "%1 = mul(w.ahead, 0.2)\n%2 = add(w, %1)\n%3 = dot(x, %2)\n"
	    "%4 = permute(%2; [1,0])\n%5 = dot(g, %4)\n%6 = mul(%2, %2)\n%7 = sum(%6; [0])\n"
	    "%8 = div(%2, %7)\n%9 = sub(w, %8)\nout y = %3\nout z = %5\nstore w = %9\n";
	static const struct {
		const char *machine;
		Elem products;
		const char *lines[3];
	} on[] = {
	    {"x86-64-v4-amx",
	     E_bf16,
	     {"out %3 at scratch+0  # bf16[128,96]\n\tout %12 at param+0  # f32[128,96]\n",
	      "# reads w w.ahead\n"}},
	    {"x86-64-v3",
	     0,
	     {"out %3 at scratch+0  # f32[128,96]\n\tout %10 at param+0  # f32[128,96]\n",
	      "# reads w w.ahead\n", "# reads x %3\n"}},
	    {"cuda-sm_90a", E_bf16, {"# bf16[128,96]\n", "# reads w w.ahead\n"}},
	    {"cuda-sm_80", 0, {"# f32[128,96]\n", "# reads w w.ahead\n"}},
	};
	for (int i = 0; i < COUNT(on); i++) {
		const Plan *p = plan_on(arena, on[i].machine, on[i].products, "point", text);
		expect_text(arena, p, "point", on[i].lines[2] ? 3 : 2, on[i].lines);
	}
}

// A product of a CPU sums its rows if an update needs the sums of all of them.
static void test_row_sums(Arena *arena)
{
	static const char text[] =
	    "graph row_sums\nslot x : input f32[32,512]\nslot g : input f32[32,256]\n"
	    "slot w : param f32[512,256]\n%1 = permute(x; [1,0])\n%2 = dot(%1, g)\n"
	    "%3 = mul(%2, %2)\n%4 = sum(%3; [1])\n%5 = sum(sqrt(%4); [0,1])\n%6 = add(%4, %5)\n"
	    "%7 = div(%2, %6)\n%8 = sub(w, %7)\nstore w = %8\n";
	static const char *const summed[] = {"kernel dot [512,/256]\n"};
	static const char *const apart[] = {"kernel dot [512,256]\n", "kernel row [512,/256]\n"};
	Elem f32 = 0;
	expect_text(arena, plan_on(arena, "x86-64-v3", f32, "row sums", text), "row sums",
	            COUNT(summed), summed);
	expect_text(arena, plan_on(arena, "cuda-sm_80", f32, "row sums", text), "row sums",
	            COUNT(apart), apart);
}

// Workers that multiply slices share a long sum, which then has no reduction in its kernel.
static void test_long_sum(Arena *arena)
{
	static const char text[] =
	    "graph long_sum\nslot x : input f32[512,32128]\nslot w : param f32[32128,256]\n"
	    "slot g : input f32[512,256]\n%1 = dot(x, w)\n%2 = mul(%1, g)\n%3 = sum(%2; [0])\n"
	    "out y = %1\nout z = %3\n";
	static const char *const apart[] = {"kernel dot [512,256]\n", "parts 16,",
	                                    "kernel col [/512,256]\n"};
	static const char *const summed[] = {"kernel dot [/512,256]\n"};
	Elem f32 = 0;
	expect_text(arena, plan_on(arena, "x86-64-v4-amx", f32, "long sum", text), "long sum",
	            COUNT(apart), apart);
	expect_text(arena, plan_on(arena, "x86-64-v4", f32, "long sum", text), "long sum",
	            COUNT(summed), summed);
}

// Rows of bf16 are prefetched if the cache holds two of them, though it would not hold those of
// f32.
static void test_next_row(Arena *arena)
{
	static const char *const lines[] = {"ahead x"};
	const Plan *p = plan_on(arena, "x86-64-v3", 0, "next row",
	                        "graph next_row\nslot x : input bf16[64,50000]\n"
	                        "%1 = cast(x; f32)\n%2 = amax(%1; [1])\n%3 = sub(%1, %2)\n"
	                        "%4 = exp(%3)\n%5 = sum(%4; [1])\n%6 = div(%4, %5)\n"
	                        "%7 = cast(%6; bf16)\nout y = %7\n");
	expect_text(arena, p, "next row", COUNT(lines), lines);
}

// The kernel that computes an activation stores its derivative, and not what both are computed
// from.
static void test_derivative(Arena *arena)
{
	static const char *const lines[] = {
	    "# bf16[512,256]\n\tout %17 at scratch+262144  # bf16[512,256]\n\t# reads x w\n",
	    "# reads %9 v %17\n"};
	const Plan *p = plan_on(
	    arena, "x86-64-v4-amx", E_bf16, "derivative",
	    "graph derivative\nslot x : input f32[512,64]\nslot w : param f32[64,256]\n"
	    "slot v : param f32[256,64]\n%1 = dot(x, w)\n%2 = tanh(%1)\n%3 = mul(%1, %2)\n"
	    "%4 = dot(%3, v)\n%5 = permute(v; [1,0])\n%6 = dot(%4, %5)\n%7 = mul(%2, %2)\n"
	    "%8 = sub(1, %7)\n%9 = mul(%1, %8)\n%10 = exp(%9)\n%11 = add(%2, %10)\n"
	    "%12 = mul(%6, %11)\n%13 = permute(w; [1,0])\n%14 = dot(%12, %13)\nout y = %14\n");
	expect_text(arena, p, "derivative", COUNT(lines), lines);
}

// In f16 nothing in a loop is rounded.
static void test_loop_of_f16(Arena *arena)
{
	static const char *const lines[] = {
	    "out %4 at output+0  # f32[1,40,32]\n\t# reads %1 x2\n"};
	const Plan *p = plan_on(
	    arena, "x86-64-v4", E_f16, "loop of f16",
	    "graph loop_of_f16 products f16\nslot n : input i64\nslot h : input f32[1,40,32]\n"
	    "slot w : param f32[32,32]\n"
	    "%1 = loop(n, h, w; [3,1,0,0,0]) : i64\n"
	    "slot x1 : input f32[1,40,32]\nslot x2 : input f32[32,32]\n"
	    "%1 = attend(x1, x1, x1; 0.3, 0, 0) : f32[1,40,32]\n%2 = reshape(%1; [40,32])\n"
	    "%3 = dot(%2, x2)\n%4 = reshape(%3; [1,40,32])\nout y0 = %4\nend\n"
	    "%2 = result(%1; 0) : f32[1,40,32]\nout y = %2\n");
	expect_text(arena, p, "loop of f16", COUNT(lines), lines);
}

// The sum of two slots is not stored for gathers of few of its elements, sums of its rows, and maps
// that read both anyway; for a product it is.
static void test_ahead(Arena *arena, bool product)
{
	Graph *g = graph_new(arena, product ? "tied" : "ahead", NULL);
	Ref w = PARAM(g, "w", 400, 16), ahead = PARAM(g, "ahead", 400, 16);
	Ref x = put2(g, O_add, w, ahead);
	Ref i = input(g, "i", E_i64, 1, (int64_t[]){20});
	Ref rows = put_gather(g, x, i, 0);
	add_out(g, "y", put2(g, O_dot, rows, product ? swap_last(g, x) : INPUT(g, "v", 16, 8)));
	Ref size = FOLD(g, O_sum, put2(g, O_mul, x, x), 1);
	add_out(g, "size", FOLD(g, O_sum, size, 0, 1));
	add_store(g, 0, put2(g, O_sub, w, put2(g, O_mul, x, put_num(g, E_f32, 0.1))));
	Plan *p = fuse_pass(arena, graph_live(arena, g), g->name, &machines[0]);
	bool stored = false;
	for (int k = 0; k < p->kerns.count; k++)
		for (int o = 0; o < p->kerns.at[k].nout; o++) {
			const Val *v = val(p->graph, p->kerns.at[k].out[o]);
			stored |= v->op == O_add && val(p->graph, v->in[0])->op == O_slot;
		}
	if (stored != product) {
		printf("FAILED %s: the sum of slots is stored: %d\n", g->name, stored);
		failures++;
	}
}

int main(void)
{
	Arena *arena = arena_new();
	test_softmax(arena);
	test_copy(arena);
	test_channels(arena);
	test_sum_of_sum(arena);
	test_block(arena);
	test_mlp(arena);
	test_ahead(arena, false);
	test_ahead(arena, true);
	update(arena, "update by columns", 0, 96, 64, 0, "c");
	update(arena, "update by rows", 0, 96, 64, 1, "r");
	update(arena, "a small product's update", 32, 96, 64, 0, "dc");
	update(arena, "a product folds its columns", 32, 512, 256, 0, "dc");
	update(arena, "a product's rows are folded after it", 32, 512, 256, 1, "dr");
	test_stores(arena);
	test_rounded_kernel(arena);
	test_chain(arena);
	test_point(arena);
	test_row_sums(arena);
	test_long_sum(arena);
	test_next_row(arena);
	test_derivative(arena);
	test_loop_of_f16(arena);
	test_random(arena, 300);
	arena_free(arena);
	return failures != 0;
}
