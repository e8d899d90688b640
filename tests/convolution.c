// convolution.c: checks depthwise and transposed convolutions, and those of groups of few channels
// or of few outputs. Their gradients equal differences and are compiled right. None is left as a
// product of windows, or of more groups than fill a vector. Operands may be of 16 bits.
#include "emitted.h"
#include "trial.h"
#include <string.h>

// As the reader writes them.
#define DEPTHWISE(in, window, out, size, positions, taps)                                          \
	"graph depthwise\nslot x : input f32[2,16,1," in "]\nslot w : input f32[1,16," #taps       \
	",1]\n%1 = window(x; [" window "], 0) : f32[2,16,1," out "," size                          \
	"]\nout y = dot(reshape(%1; [2,16," #positions "," #taps "]), w)\n"
static const char *const cases[][2] = {
    {"depthwise", DEPTHWISE("9,8", "3,9,3,1,1,1,1, 4,8,3,1,1,1,1", "9,8", "3,3", 72, 9)},
    {"with steps", DEPTHWISE("9,8", "3,5,3,2,1,1,1, 4,4,3,2,1,1,1", "5,4", "3,3", 20, 9)},
    {"with gaps", DEPTHWISE("9,10", "3,5,3,1,2,0,1, 4,8,2,1,2,0,1", "5,8", "3,2", 40, 6)},
    {"padding on one side", DEPTHWISE("6,7", "3,4,5,1,1,3,1, 4,6,2,1,1,0,1", "4,6", "5,2", 24, 10)},
    {"a line", DEPTHWISE("20", "3,7,4,3,1,1,1", "7", "4", 7, 4)},
    {"steps larger than the kernel", DEPTHWISE("11", "3,4,2,3,1,0,1", "4", "2", 4, 2)},
    {"many taps", DEPTHWISE("9,8", "3,9,5,1,1,2,1, 4,8,3,1,1,1,1", "9,8", "5,3", 72, 15)},
    {"many taps with steps and gaps",
     DEPTHWISE("9,12", "3,4,5,2,1,1,1, 4,5,3,2,2,1,1", "4,5", "5,3", 20, 15)},
    {"many taps, without padding",
     DEPTHWISE("9,8", "3,5,5,1,1,0,1, 4,6,3,1,1,0,1", "5,6", "5,3", 30, 15)},
    {"many taps, with more zeros than elements",
     DEPTHWISE("3,4", "3,11,5,1,1,6,1, 4,6,3,1,1,2,1", "11,6", "5,3", 66, 15)},
    {"many taps, of fewer elements than there are",
     DEPTHWISE("9,12", "3,3,5,1,1,-1,1, 4,8,3,1,1,-1,1", "3,8", "5,3", 24, 15)},
    {"depthwise and transposed",
     DEPTHWISE("5,4", "3,9,3,1,1,1,2, 4,8,3,1,1,1,2", "9,8", "3,3", 72, 9)},
    {"a block",
     DEPTHWISE("4,5,3", "3,4,3,1,1,1,1, 4,3,3,2,1,1,1, 5,2,2,1,1,0,1", "4,3,2", "3,3,2", 24, 18)},
    {"transposed", "graph transposed\nslot x : input f32[2,1,5,4,6]\nslot w : input f32[80,7]\n"
                   "%1 = window(x; [3,8,4,1,-1,-2,2, 4,12,4,1,-1,-2,2], 0) : "
                   "f32[2,1,5,8,12,4,4]\n"
                   "%2 = permute(%1; [0,1,3,4,5,6,2]) : f32[2,1,8,12,4,4,5]\n"
                   "out y = dot(reshape(%2; [192,80]), w)\n"},
    {"transposed, by groups",
     "graph groups\nslot x : input f32[2,3,4,5,4]\nslot w : input f32[1,3,24,6]\n"
     "%1 = window(x; [3,14,2,1,-1,-1,3, 4,9,3,1,-2,-3,2], 0) : f32[2,3,4,14,9,2,3]\n"
     "%2 = permute(%1; [0,1,3,4,5,6,2]) : f32[2,3,14,9,2,3,4]\n"
     "out y = dot(reshape(%2; [2,3,126,24]), w)\n"},
    {"transposed, a line", "graph line\nslot x : input f32[3,1,4,9]\nslot w : input f32[20,10]\n"
                           "%1 = window(x; [3,31,5,1,1,2,4], 0) : f32[3,1,4,31,5]\n"
                           "%2 = permute(%1; [0,1,3,4,2]) : f32[3,1,31,5,4]\n"
                           "out y = dot(reshape(%2; [93,20]), w)\n"},
    {"few outputs", "graph few\nslot x : input f32[2,1,13,6,5]\nslot w : input f32[78,3]\n"
                    "%1 = window(x; [3,6,3,1,1,1,1, 4,4,2,1,1,0,1], 0) : f32[2,1,13,6,4,3,2]\n"
                    "%2 = permute(%1; [0,1,3,4,5,6,2]) : f32[2,1,6,4,3,2,13]\n"
                    "out y = dot(reshape(%2; [48,78]), w)\n"},
    {"few outputs, windows along the first axis",
     "graph few\nslot x : input f32[2,1,8,7,9]\nslot w : input f32[168,2]\n"
     "%1 = window(x; [3,5,3,1,2,1,1, 4,6,7,1,1,2,1], 0) : f32[2,1,8,5,6,3,7]\n"
     "%2 = permute(%1; [0,1,3,4,5,6,2]) : f32[2,1,5,6,3,7,8]\n"
     "out y = dot(reshape(%2; [60,168]), w)\n"},
    {"one output of a block",
     "graph few\nslot x : input f32[2,1,5,4,5,3]\nslot w : input f32[90,1]\n"
     "%1 = window(x; [3,4,3,1,1,1,1, 4,4,2,1,1,0,1, 5,3,3,1,1,1,1], 0) : "
     "f32[2,1,5,4,4,3,3,2,3]\n"
     "%2 = permute(%1; [0,1,3,4,5,6,7,8,2]) : f32[2,1,4,4,3,3,2,3,5]\n"
     "out y = dot(reshape(%2; [96,90]), w)\n"},
    {"groups of few channels",
     "graph narrow\nslot x : input f32[2,4,4,6,5]\nslot w : input f32[1,4,36,4]\n"
     "%1 = window(x; [3,6,3,1,1,1,1, 4,5,3,1,1,1,1], 0) : f32[2,4,4,6,5,3,3]\n"
     "%2 = permute(%1; [0,1,3,4,5,6,2]) : f32[2,4,6,5,3,3,4]\n"
     "out y = dot(reshape(%2; [2,4,30,36]), w)\n"},
    {"groups of few channels, with steps",
     "graph narrow\nslot x : input f32[2,5,3,7,8]\nslot w : input f32[1,5,18,7]\n"
     "%1 = window(x; [3,4,3,2,1,1,1, 4,2,2,3,2,0,1], 0) : f32[2,5,3,4,2,3,2]\n"
     "%2 = permute(%1; [0,1,3,4,5,6,2]) : f32[2,5,4,2,3,2,3]\n"
     "out y = dot(reshape(%2; [2,5,8,18]), w)\n"},
    {"groups of one channel and several outputs, of one sample",
     "graph narrow\nslot x : input f32[1,7,1,9]\nslot w : input f32[1,7,4,3]\n"
     "%1 = window(x; [3,6,4,1,1,0,1], 0) : f32[1,7,1,6,4]\n"
     "out y = dot(reshape(%1; [1,7,6,4]), w)\n"},
};

static Array contents(void *slots, const Slot *s)
{
	return ((const Array *)slots)[s->name[0] == 'w'];
}

static bool has_convolution(const Graph *g)
{
	Convolution c;
	for (Ref r = 1; r < (Ref)g->nval; r++)
		if (val(g, r)->op == O_dot && is_convolution(g, val(g, r), &c) &&
		    (c.depthwise || c.adds_taps))
			return true;
	return false;
}

// Returns the graph with operands of 16 bits, as the body of a loop in bf16 has them.
static Graph *of_halves(Arena *arena, const char *const *of)
{
	Text text = {.arena = arena};
	for (const char *at = of[1]; *at; at++)
		if (strncmp(at, "f32[", 4))
			say(&text, "%c", *at);
		else
			say(&text, "b%c16", *at), at += 2;
	return parse_graph(arena, of[0], text.at, book_builtin());
}

// True if operands of 16 bits give the sums of f32 that the evaluator finds.
static bool sums_halves(Arena *arena, const char *const *of)
{
	const Graph *g = of_halves(arena, of);
	const Target *target = target_named(arena, "cpu", NULL);
	return check_graph(arena, g, random_slots(arena, g, 5, 7), target, plain_launch, 1e-5, NULL,
	                   of[0]) <= 1;
}

int main(void)
{
	int failures = 0;
	for (int i = 0; i < COUNT(cases); i++) {
		Arena *arena = arena_new();
		Graph *g = parse_graph(arena, cases[i][0], cases[i][1], book_builtin());
		Array *slots = random_slots(arena, g, 5, 7);
		Trial *t = trial_new(arena, cases[i][0], g, contents, slots);
		const Machine *machine = machine_named("x86-64-v4");
		const Graph *formed = convolution_pass(arena, t->with);
		const Graph *merged = groups_pass(arena, formed, machine);
		bool right = trial_differences(t) && trial_compiled(t) &&
		             sums_halves(arena, cases[i]) &&
		             (has_convolution(g) || merged != formed);
		bool left =
		    has_convolution(formed) || groups_pass(arena, merged, machine) != merged;
		printf("%s%s%s\n", right && !left ? "" : "FAILED ", cases[i][0],
		       left ? ": a product is left" : "");
		failures += !right || left;
		arena_free(arena);
	}
	return failures != 0;
}
