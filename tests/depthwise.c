// depthwise.c: checks convolutions with one input and one output for each channel.
// Their gradients equal differences and are compiled right, and none of their products is left.
#include "emitted.h"
#include "trial.h"

// x [2, 1, 16, in..] and w [1, 16, taps, 1], as the reader writes them.
static const struct Case {
	const char *name, *in, *window, *windows;
	int positions, taps;
} cases[] = {
    {"3x3", "9,8", "3,9,3,1,1,1,1, 4,8,3,1,1,1,1", "9,8,3,3", 72, 9},
    {"steps", "9,8", "3,5,3,2,1,1,1, 4,4,3,2,1,1,1", "5,4,3,3", 20, 9},
    {"gaps", "9,10", "3,5,3,1,2,0,1, 4,8,2,1,2,0,1", "5,8,3,2", 40, 6},
    {"padding on one side", "6,7", "3,4,5,1,1,3,1, 4,6,2,1,1,0,1", "4,6,5,2", 24, 10},
    {"a line", "20", "3,7,4,3,1,1,1", "7,4", 7, 4},
    {"steps larger than the kernel", "11", "3,4,2,3,1,0,1", "4,2", 4, 2},
    {"spread, as transposed", "5,4", "3,9,3,1,1,1,2, 4,8,3,1,1,1,2", "9,8,3,3", 72, 9},
    {"a block", "4,5,3", "3,4,3,1,1,1,1, 4,3,3,2,1,1,1, 5,2,2,1,1,0,1", "4,3,2,3,3,2", 24, 18},
};

static Array contents(void *slots, const Slot *s)
{
	return ((const Array *)slots)[s->name[0] == 'w'];
}

static bool has_product(const Graph *g)
{
	for (Ref r = 1; r < (Ref)g->nval; r++)
		if (val(g, r)->op == O_dot)
			return true;
	return false;
}

static bool check_case(Arena *arena, const struct Case *c)
{
	const char *text =
	    format(arena,
	           "graph test\nslot x : input f32[2,16,1,%s]\nslot w : input f32[1,16,%d,1]\n"
	           "%%1 = window(x; [%s], 0) : f32[2,16,1,%s]\n"
	           "out y = dot(reshape(%%1; [2,16,%d,%d]), w)\n",
	           c->in, c->taps, c->window, c->windows, c->positions, c->taps);
	Graph *g = parse_graph(arena, c->name, text, book_builtin());
	Trial *t = trial_new(arena, c->name, g, contents, random_slots(arena, g, 5, 7));
	bool right = trial_differences(t) && trial_compiled(t);
	bool left = has_product(graph_live(arena, depthwise_pass(arena, t->with)));
	printf("%s%s%s\n", right && !left ? "" : "FAILED ", c->name,
	       left ? ": a product is left" : "");
	return right && !left;
}

int main(void)
{
	int failures = 0;
	for (int i = 0; i < COUNT(cases); i++) {
		Arena *arena = arena_new();
		failures += !check_case(arena, &cases[i]);
		arena_free(arena);
	}
	return failures != 0;
}
