// transpose_dot.c: checks the passes transpose_dot and decompose.
#include "emitted.h"
#include <math.h>
#include <string.h>

static int failures;

// True if a permute after a product moves its last axis.
static bool moves_last(const Graph *g, Ref r)
{
	const Val *v = val(g, r), *u = v;
	int last = v->shape.rank - 1;
	if (v->op != O_permute || v->attr->i[last] == last)
		return false;
	while (prims[u->op].cls == C_move || prims[u->op].cls == C_map)
		u = val(g, u->in[0]);
	return u->op == O_dot;
}

static bool has_left_windows(const Graph *g)
{
	for (Ref r = 1; r < (Ref)g->nval; r++) {
		const Val *v = val(g, r);
		if (v->op != O_dot)
			continue;
		do
			v = val(g, v->in[0]);
		while (prims[v->op].cls == C_move && v->op != O_window);
		if (v->op == O_window)
			return true;
	}
	return false;
}

// stay: windows stay on the left.
static void check_on(const char *machine, Elem products, bool stay, const char *name,
                     const char *text)
{
	Arena *arena = arena_new();
	const char *whole_text = format(arena, "graph test\n%s", text);
	Graph *g = parse_graph(arena, name, whole_text, book_builtin());
	g->products = products;
	const Graph *opened = decompose_pass(arena, g, NULL);
	const Graph *after =
	    graph_live(arena, transpose_dot_pass(arena, opened, machine_named(machine)));
	const Array *slot = random_slots(arena, g, 5, 7);
	const Array *expected = eval_graph(arena, g, slot), *got = eval_graph(arena, after, slot);
	double worst = 0;
	for (int i = 0; i < g->outs.count; i++) {
		const Array *w = &expected[g->outs.at[i].val], *x = &got[after->outs.at[i].val];
		if (!same_shape(&w->shape, &x->shape))
			worst = INFINITY;
		for (int64_t k = 0; k < count_of(&w->shape) && isfinite(worst); k++)
			worst = fmax(worst, fabs(w->f[k] - x->f[k]) / fmax(1, fabs(w->f[k])));
	}
	bool composite = false, moved = false;
	for (Ref r = 1; r < (Ref)after->nval; r++) {
		composite |= prims[val(after, r)->op].cls == C_composite;
		moved |= moves_last(after, r);
	}
	bool windows = strstr(text, "window");
	bool right = worst < 1e-6 && !composite && (windows || !moved) &&
	             has_left_windows(after) == (windows && stay);
	printf("%s%s, %s: off by %.2g%s%s\n", right ? "" : "FAILED ", name, machine, worst,
	       composite ? ", a composite is left" : "",
	       moved ? ", a product is read across its last axis" : "");
	failures += !right;
	arena_free(arena);
}

static void check_case(const char *name, const char *text)
{
	check_on("x86-64-v4", E_bf16, true, name, text);
	check_on("x86-64-v4-amx", E_bf16, false, name, text);
}

// A convolution whose result is read with channels first.
static void check_convolution(const char *name, const char *text)
{
	check_on("x86-64-v4", E_bf16, true, name, text);
	check_on("x86-64-v4-amx", E_bf16, true, name, text);
}

// The gradient of a kernel of so many outputs, in f32.
static void check_sliced(const char *name, const char *window, const char *in, const char *out,
                         int positions, int outputs, bool stay)
{
	Arena *arena = arena_new();
	const char *text = format(
	    arena,
	    "slot x : input f32[2,%s,32]\nslot g : input f32[%d,%d]\n"
	    "%%1 = window(x; [%s], 0) : f32[2,%s,32,3,3]\n%%2 = permute(%%1; [0,1,2,4,5,3])\n"
	    "%%3 = reshape(%%2; [%d,288])\n%%4 = permute(%%3; [1,0])\n%%5 = dot(%%4, g)\n"
	    "%%6 = reshape(%%5; [9,32,%d])\n%%7 = permute(%%6; [2,1,0])\nout y = %%7\n",
	    in, positions, outputs, window, out, positions, outputs);
	check_on("x86-64-v4", 0, true, name, text);
	check_on("x86-64-v4-amx", 0, stay, name, text);
	arena_free(arena);
}

// The gradient of a weight of so many inputs and outputs, in f32 and read transposed, by a product
// of so many rows.
static void check_rows(int inputs, int outputs, int steps, int rows)
{
	Arena *arena = arena_new();
	const char *text = format(arena,
	                          "slot x : input f32[%d,%d]\nslot g : input f32[%d,%d]\n"
	                          "%%1 = dot(permute(x; [1,0]), g)\n"
	                          "out y = permute(reshape(%%1; [1,%d,%d]); [2,1,0])\n",
	                          steps, inputs, steps, outputs, inputs, outputs);
	const Machine *machine = machine_named("x86-64-v4-amx");
	Graph *g =
	    parse_graph(arena, "rows", format(arena, "graph test\n%s", text), book_builtin());
	const Graph *after = graph_live(arena, transpose_dot_pass(arena, g, machine));
	int64_t got = 0;
	for (Ref r = 1; r < (Ref)after->nval; r++)
		if (val(after, r)->op == O_dot)
			got = val(after, r)->shape.dim[0];
	printf("%sa weight of %d x %d by %d rows\n", got == rows ? "" : "FAILED ", inputs, outputs,
	       (int)got);
	failures += got != rows;
	arena_free(arena);
}

int main(void)
{
	check_case("transposed product", "slot a : input f32[3,5]\nslot b : input f32[5,4]\n"
	                                 "%1 = dot(a, b)\n%2 = permute(%1; [1,0])\nout y = %2\n");
	check_case("gradient of a weight",
	           "slot x : input f32[6,5]\nslot g : input f32[6,4]\n"
	           "%1 = permute(x; [1,0])\n%2 = dot(%1, g)\n%3 = mul(%2, 0.5)\n"
	           "%4 = permute(%3; [1,0])\nout y = %4\n");
	check_case("gradient of gates",
	           "slot x : input f32[6,5]\nslot g : input f32[6,8]\n%1 = permute(x; [1,0])\n"
	           "%2 = dot(%1, g)\n%3 = slice(%2; [0,4], [5,4], [1,1])\n"
	           "%4 = permute(%3; [1,0])\n%5 = slice(%2; [0,0], [5,4], [1,1])\n"
	           "%6 = permute(%5; [1,0])\n%7 = concat(%4, %6; 0)\nout y = %7\n");
	check_case(
	    "gradient of keys",
	    "slot q : input f32[2,3,5,4]\nslot s : input f32[2,3,5,6]\n%1 = permute(q; [0,1,3,2])\n"
	    "%2 = dot(%1, s)\n%3 = mul(%2, 0.25)\n%4 = permute(%3; [0,3,1,2])\n%5 = reshape(%4; "
	    "[2,6,12])\n"
	    "out y = %5\n");
	check_convolution("convolution",
	                  "slot x : input f32[2,3,5,5]\nslot w : input f32[4,27]\n"
	                  "%1 = window(x; [2,5,3,1,1,1,1,3,5,3,1,1,1,1], 0)\n"
	                  "%2 = permute(%1; [0,2,3,1,4,5])\n%3 = reshape(%2; [50,27])\n"
	                  "%4 = permute(w; [1,0])\n%5 = dot(%3, %4)\n%6 = reshape(%5; [2,25,4])\n"
	                  "%7 = permute(%6; [0,2,1])\n%8 = reshape(%7; [2,4,5,5])\nout y = %8\n");
	check_convolution("convolution of channels that matrix registers load",
	                  "slot x : input f32[2,5,5,32]\nslot w : input f32[288,16]\n"
	                  "%1 = window(x; [1,5,3,1,1,1,1,2,5,3,1,1,1,1], 0)\n"
	                  "%2 = permute(%1; [0,1,2,4,5,3])\n%3 = reshape(%2; [50,288])\n"
	                  "%4 = dot(%3, w)\n%5 = reshape(%4; [2,25,16])\n"
	                  "%6 = permute(%5; [0,2,1])\nout y = %6\n");
	check_case("gradient of a kernel",
	           "slot x : input f32[2,5,5,16]\nslot g : input f32[50,4]\n"
	           "%1 = window(x; [1,5,3,1,1,1,1,2,5,3,1,1,1,1], 0)\n"
	           "%2 = permute(%1; [0,1,2,4,5,3])\n%3 = reshape(%2; [50,144])\n"
	           "%4 = permute(%3; [1,0])\n%5 = dot(%4, g)\n%6 = reshape(%5; [9,16,4])\n"
	           "%7 = permute(%6; [2,1,0])\nout y = %7\n");
	check_case("large sum", "slot x : input f32[256,257]\n%1 = mul(x, x)\n%2 = sum(%1; [0,1])\n"
	                        "%3 = amax(x; [0,1])\nout y = %2\nout z = %3\n");
	check_case(
	    "wholes",
	    "slot q : input f32[2,3,5,4]\nslot k : input f32[2,3,6,4]\nslot v : input "
	    "f32[2,3,6,4]\n"
	    "%1 = attend(q, k, v; 0.5, 0, 0)\n%2 = norm(%1; [3], 1, 1e-5)\n%3 = act(%2; gelu)\n"
	    "%4 = softmax(%3; [3])\n%5 = lse(%3; [3])\nout y = %4\nout z = %5\n");
	const char *by_two = "1,9,3,2,1,1,1, 2,9,3,2,1,1,1",
	           *by_one = "1,12,3,1,1,1,1, 2,12,3,1,1,1,1";
	check_sliced("slices of windows, with steps", by_two, "18,17", "9,9", 162, 64, false);
	check_sliced("too few outputs for slices", by_two, "18,17", "9,9", 162, 63, true);
	check_sliced("windows for Winograd's method", by_one, "12,12", "12,12", 288, 64, true);
	check_rows(64, 128, 400, 64);
	check_rows(64, 63, 400, 63);     // no slices are multiplied
	check_rows(128, 160, 1024, 128); // in the other product, packing rows takes longer
	check_rows(128, 160, 1023, 160); // transposing the result takes as long
	check_rows(160, 128, 1024, 128);
	return failures != 0;
}
