// pitch.c: checks that rows which begin at lines of the cache change no bit of a result.
#include "emitted.h"
#include <string.h>

static int failures;

typedef struct PitchCase {
	const char *name, *model, *loss;
	int rows, hidden, columns;
	bool pitch; // some value has one
} PitchCase;

#define HEAD                                                                                       \
	"graph test\nslot x : param f32[%d,%d]\nslot head : param f32[%d,%d]\n"                    \
	"%%1 = dot(x, head)\n"
#define BIAS                                                                                       \
	HEAD "slot bias : param f32[%d]\n%%2 = reshape(bias; [1,%d])\n%%3 = add(%%1, %%2)\n"       \
	     "out logits = %%3\n"
#define BETWEEN                                                                                    \
	HEAD "%%2 = tanh(%%1)\n%%3 = permute(head; [1,0])\n%%4 = dot(%%2, %%3)\nout y = %%4\n"
#define SLICED                                                                                     \
	HEAD "%%2 = tanh(%%1)\n%%3 = slice(%%2; [0,7], [1040,1000], [1,1])\n%%4 = permute(x; "     \
	     "[1,0])\n"                                                                            \
	     "%%5 = dot(%%4, %%3)\nout y = %%5\n"

static const PitchCase cases[] = {
    {"logits, even", BIAS, "cross_entropy(logits, labels)", 1020, 48, 1030, true},
    {"logits, odd", BIAS, "cross_entropy(logits, labels)", 1040, 48, 1025, true},
    {"logits in blocks", BIAS, "cross_entropy(logits, labels)", 1030, 32, 4097, true},
    {"one column beyond", BETWEEN, "average(y * y)", 1040, 40, 1089, true},
    {"one column less", BETWEEN, "average(y * y)", 1040, 40, 1087, true},
    {"slices of rows", SLICED, "average(y * y)", 1040, 40, 1035, true},
    {"rows of lines", BETWEEN, "average(y * y)", 1040, 40, 1088, false},
    {"few elements", BETWEEN, "average(y * y)", 1000, 40, 1025, false},
};

static Graph *case_graph(Arena *arena, const PitchCase *c)
{
	const char *text = format(arena, c->model, c->rows, c->hidden, c->hidden, c->columns,
	                          c->columns, c->columns);
	Graph *all = gradient_graph(arena, c->name, text, c->loss, false);
	all->products = E_bf16;
	return all;
}

static Plan *case_plan(Arena *arena, const Graph *g, const Target *target, bool pitch)
{
	Unit unit = {.name = "run", .machine = target_machine(target), .graph = g};
	for (Pass p = PASS_loops; p <= PASS_memory; p++)
		if (pitch || p != PASS_pitch)
			run_pass(arena, p, &unit);
	return unit.plan;
}

static bool has_pitch(const Plan *p)
{
	bool some = false;
	for (int k = 0; k < p->kerns.count; k++)
		for (int i = 0; i < p->kerns.at[k].nout; i++)
			some |= val(p->graph, p->kerns.at[k].out[i])->pitch > 0;
	return some;
}

static bool same_outs(const Graph *g, const Array *x, const Array *y)
{
	bool same = true;
	for (int i = 0; i < g->outs.count; i++) {
		Ref r = g->outs.at[i].val;
		for (int64_t k = 0; k < count_of(&x[r].shape); k++)
			same &= x[r].f[k] == y[r].f[k]; // false for NaN
	}
	return same;
}

static void check_case(const PitchCase *c)
{
	Arena *arena = arena_new();
	const Target *target = target_named(arena, "amx:host", NULL);
	const Graph *g = case_graph(arena, c);
	const Array *slot = random_slots(arena, g, 3, c->columns);
	Plan *plan = case_plan(arena, g, target, true);
	bool pitch = has_pitch(plan);
	Compiled *one = compile_plan(arena, g, plan, target, c->name);
	Compiled *two =
	    compile_plan(arena, g, case_plan(arena, g, target, false), target, "without");
	bool same = same_outs(g, outs_compiled(arena, one, slot), outs_compiled(arena, two, slot));
	printf("%s%s: %s%s\n", same && pitch == c->pitch ? "" : "FAILED ", c->name,
	       pitch ? "with a pitch" : "without", same ? "" : ", other bits");
	failures += !same || pitch != c->pitch;
	free_compiled(one);
	free_compiled(two);
	arena_free(arena);
}

int main(void)
{
	Arena *arena = arena_new();
	bool applies = mask_applies(arena, "-avx512f");
	scratch_byte = 0xFF; // NaN, in bf16, too
	for (int i = 0; i < COUNT(cases) && applies; i++)
		check_case(&cases[i]);
	arena_free(arena);
	return failures > 0;
}
