// statistics.c: checks the passes statistics, parts and line_windows.
// What they put equals what was there, and has the form that they promise.
#include "emitted.h"
#include <math.h>

static int failures;

// Returns the largest error of an output against the graph before, relative to 1 or the element.
static double worst_error(Arena *arena, const Graph *before, const Graph *after)
{
	const Array *slot = random_slots(arena, before, 5, 7);
	const Array *expected = eval_graph(arena, before, slot),
	            *got = eval_graph(arena, after, slot);
	double worst = 0;
	for (int i = 0; i < before->outs.count; i++) {
		const Array *w = &expected[before->outs.at[i].val];
		const Array *x = &got[after->outs.at[i].val];
		if (!same_shape(&w->shape, &x->shape))
			return INFINITY;
		for (int64_t k = 0; k < count_of(&w->shape); k++)
			worst = fmax(worst, fabs(w->f[k] - x->f[k]) / fmax(1, fabs(w->f[k])));
	}
	return worst;
}

// Returns the number of sums; *again: a sum reads what another computed, so memory is read twice.
static int count_sums(Arena *arena, const Graph *g, bool *again)
{
	bool *after = NEWS(arena, bool, g->nval);
	int n = 0;
	*again = false;
	for (Ref r = 1; r < (Ref)g->nval; r++) {
		const Val *v = val(g, r);
		for (int k = 0; k < v->nin; k++)
			after[r] |= after[v->in[k]];
		if (v->op != O_sum)
			continue;
		n++;
		*again |= after[r];
		after[r] = true;
	}
	return n;
}

static Graph *graph_of(Arena *arena, const char *name, const char *text)
{
	Graph *g = parse_graph(arena, name, format(arena, "graph test\n%s", text), book_builtin());
	g->products = E_bf16;
	return g;
}

// sums: how many there are then; 0: the graph stays as it is.
static void check_sums(const char *name, int sums, bool twice, const char *text)
{
	Arena *arena = arena_new();
	Graph *g = graph_of(arena, name, text);
	const Graph *changed = statistics_pass(arena, g), *after = graph_live(arena, changed);
	bool again;
	int n = count_sums(arena, after, &again);
	double worst = worst_error(arena, g, after);
	bool right = worst < 1e-5 && again == twice && (sums ? n == sums : changed == g);
	printf("%s%s: off by %.2g, %d sums%s\n", right ? "" : "FAILED ", name, worst, n,
	       again ? ", one after another" : "");
	failures += !right;
	arena_free(arena);
}

// results: how many the first sum has then; 0: the graph stays as it is.
static void check_parts(const char *name, const char *machine, int64_t results, const char *text)
{
	Arena *arena = arena_new();
	Graph *g = graph_of(arena, name, text);
	const Graph *after = parts_pass(arena, g, machine_named(machine));
	double worst = worst_error(arena, g, after);
	int64_t first = 0;
	for (Ref r = after->nval - 1; r > 0; r--)
		if (val(after, r)->op == O_sum)
			first = count_of(&val(after, r)->shape);
	bool right = worst < 1e-5 && (results ? first == results && after != g : after == g);
	printf("%s%s, %s: off by %.2g, %lld results at first\n", right ? "" : "FAILED ", name,
	       machine, worst, (long long)first);
	failures += !right;
	arena_free(arena);
}

// width: columns of the windows that products read then.
static void check_lines(const char *name, int64_t width, const char *text)
{
	Arena *arena = arena_new();
	Graph *g = graph_of(arena, name, text);
	const Graph *after = graph_live(arena, line_windows_pass(arena, g));
	double worst = worst_error(arena, g, after);
	bool right = worst < 1e-5;
	for (Ref r = 1; r < (Ref)after->nval; r++)
		if (val(after, r)->op == O_dot) {
			const Val *a = val(after, val(after, r)->in[0]);
			const Val *b = val(after, val(after, r)->in[1]);
			right &= last_dim(&a->shape) == width || last_dim(&b->shape) == width;
		}
	printf("%s%s: off by %.2g\n", right ? "" : "FAILED ", name, worst);
	failures += !right;
	arena_free(arena);
}

#define ROUNDED "slot x : input f32[24,20]\n%1 = cast(x; bf16)\n%2 = cast(%1; f32)\n"
#define VARIANCE(of)                                                                               \
	"%3 = sum(" of "; [0])\n%4 = div(%3, 24)\n%5 = sub(" of ", %4)\n%6 = mul(%5, %5)\n"        \
	"%7 = sum(%6; [0])\nout m = %4\nout v = %7\n"
#define FACTORS                                                                                    \
	"slot g : input f32[24,20]\nslot c : input f32[1,20]\nslot d : input f32[1,20]\n"          \
	"%1 = mul(x, c)\n%2 = mul(d, g)\n%3 = mul(%1, g)\n%4 = mul(%1, %2)\n"

#define IMAGES(shape, axes) "slot x : input f32[" shape "]\nout y = sum(x; [" axes "])\n"

#define WINDOWS(rows, in, window, positions, k, outputs)                                           \
	"slot x : input f32[" in "]\nslot w : input f32[" k "," outputs                            \
	"]\nslot g : input f32[" outputs "," positions                                             \
	"]\n%1 = cast(x; bf16)\n%2 = reshape(%1; [" rows "])\n%3 = window(%2; [" window            \
	"], 0)\n%4 = permute(%3; [0,1,3,4,5,6,2])\n%5 = reshape(%4; [" positions "," k             \
	"])\n%6 = cast(w; bf16)\n%7 = cast(g; bf16)\n%8 = dot(%5, %6)\n%9 = dot(%7, %5)\n"         \
	"out y = %8\nout z = %9\n"

int main(void)
{
	check_sums("variance of what is rounded", 2, false, ROUNDED VARIANCE("%2"));
	check_sums("variance of f32", 0, true, "slot x : input f32[24,20]\n" VARIANCE("x"));
	check_sums("constant factors", 1, false,
	           "slot x : input f32[24,20]\n" FACTORS
	           "%5 = sum(%3; [0])\n%6 = sum(%4; [0])\nout y = %5\nout z = %6\n");
	check_sums("a sum alone", 0, false,
	           "slot x : input f32[24,20]\n" FACTORS "%5 = sum(%3; [0])\nout y = %5\n");
	check_sums("sums of rows", 0, false,
	           "slot x : input f32[24,20]\n" FACTORS
	           "%5 = sum(%3; [1])\n%6 = sum(%4; [1])\nout y = %5\nout z = %6\n");
	check_parts("few channels", "x86-64-v4", 2 * 3 * 16, IMAGES("2,3,96,128", "0,2,3"));
	check_parts("few channels", "cuda-sm_90a", 2 * 3 * 32, IMAGES("2,3,96,128", "0,2,3"));
	check_parts("many samples", "x86-64-v4", 80 * 3, IMAGES("80,3,17,19", "0,2,3"));
	check_parts("two long rows", "x86-64-v4", 2 * 32, IMAGES("2,96,768", "1,2"));
	check_parts("short rows", "x86-64-v4", 0, IMAGES("12,96,64", "1,2"));
	check_parts("rows enough", "x86-64-v4", 0, IMAGES("2,32,96,64", "0,2,3"));
	check_parts("rows enough", "cuda-sm_90a", 2 * 32 * 8, IMAGES("2,32,64,64", "0,2,3"));
	check_parts("few elements", "x86-64-v4", 0, IMAGES("2,3,96,64", "0,2,3"));
	check_parts("few columns", "x86-64-v4", 16 * 3, IMAGES("2,96,128,3", "0,1,2"));
	check_parts("few columns, no power of two", "x86-64-v4", 2 * 7,
	            IMAGES("2,113,91,7", "0,1,2"));
	check_parts("few columns, odd rows", "x86-64-v4", 0, IMAGES("1,113,203,3", "0,1,2"));
	check_parts("columns enough", "x86-64-v4", 0, IMAGES("2,96,64,8", "0,1,2"));
	check_parts("columns enough", "x86-64-v3", 0, IMAGES("2,96,64,6", "0,1,2"));
	check_parts("a sample, its columns not last", "x86-64-v4", 32, IMAGES("64,64,32,1", "0,1"));
	check_parts("a sample, its columns last", "x86-64-v4", 0, IMAGES("1,64,64,32", "1,2"));
	check_parts("few samples", "x86-64-v4", 2 * 8 * 32, IMAGES("2,64,64,32", "1,2"));
	check_parts("few samples, odd rows", "x86-64-v4", 0, IMAGES("4,61,67,32", "1,2"));
	check_parts("samples enough", "x86-64-v4", 0, IMAGES("4,64,64,32", "1,2"));
	check_parts("few samples", "cuda-sm_90a", 16 * 32 * 32, IMAGES("16,64,64,32", "1,2"));
	check_parts("short columns", "cuda-sm_90a", 0, IMAGES("16,16,16,32", "1,2"));
	check_lines(
	    "an image with steps", 224,
	    WINDOWS("2,1,3,15,13", "2,3,15,13", "3,8,7,2,1,3,1, 4,7,7,2,1,3,1", "112", "147", "5"));
	check_lines(
	    "padding after a line only", 96,
	    WINDOWS("2,1,4,9,11", "2,4,9,11", "3,7,3,1,1,0,1, 4,6,6,1,1,0,1", "84", "72", "5"));
	check_lines(
	    "lines too short", 27,
	    WINDOWS("2,1,3,9,9", "2,3,9,9", "3,9,3,1,1,1,1, 4,9,3,1,1,1,1", "162", "27", "5"));
	check_lines(
	    "gaps along lines", 147,
	    WINDOWS("2,1,3,19,19", "2,3,19,19", "3,7,7,1,2,0,1, 4,7,7,1,2,0,1", "98", "147", "5"));
	return failures != 0;
}
