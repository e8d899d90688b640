// pitch.c: checks that rows which begin at lines of the cache change no result: on matrix
// registers, no bit; by threads of emulated GPUs, against the evaluator, where any one barrier or
// wait for copies that is left out is a race. What lies between rows is no number. On CPUs, the
// next row is prefetched from where it lies.
#include "emitted.h"
#include "gen.h"
#include "threads.h"
#include <stdatomic.h>
#include <string.h>

enum { EIGHT = 8 }; // elements of a load

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
#define SLICED(rows, columns)                                                                      \
	HEAD "%%2 = tanh(%%1)\n%%3 = slice(%%2; [0,7], [" rows "," columns "], [1,1])\n"           \
	     "%%4 = permute(x; [1,0])\n%%5 = dot(%%4, %%3)\nout y = %%5\n"

static const PitchCase cases[] = {
    {"logits, even", BIAS, "cross_entropy(logits, labels)", 1020, 48, 1030, true},
    {"logits, odd", BIAS, "cross_entropy(logits, labels)", 1040, 48, 1025, true},
    {"logits in blocks", BIAS, "cross_entropy(logits, labels)", 1030, 32, 4097, true},
    {"one column beyond", BETWEEN, "average(y * y)", 1040, 40, 1089, true},
    {"one column less", BETWEEN, "average(y * y)", 1040, 40, 1087, true},
    {"slices of rows", SLICED("1040", "1000"), "average(y * y)", 1040, 40, 1035, true},
    {"rows of lines", BETWEEN, "average(y * y)", 1040, 40, 1088, false},
    {"few elements", BETWEEN, "average(y * y)", 1000, 40, 1025, false},
};

// For emulated GPUs, whose rows begin at 16 bytes.
static const PitchCase few[] = {
    {"logits, even", BIAS, "cross_entropy(logits, labels)", 70, 48, 138, true},
    {"logits, odd", BIAS, "cross_entropy(logits, labels)", 66, 40, 139, true},
    {"one column beyond", BETWEEN, "average(y * y)", 70, 40, 137, true},
    {"one column less", BETWEEN, "average(y * y)", 70, 40, 135, true},
    {"slices of rows", SLICED("70", "128"), "average(y * y)", 70, 40, 143, true},
};

static Graph *case_graph(Arena *arena, const PitchCase *c)
{
	const char *text = format(arena, c->model, c->rows, c->hidden, c->hidden, c->columns,
	                          c->columns, c->columns);
	Graph *all = gradient_graph(arena, c->name, text, c->loss, false);
	all->products = E_bf16;
	return all;
}

// Gives rows of a few elements a pitch, too, if they have so many columns.
static void set_pitches(Arena *arena, Unit *unit, int columns)
{
	Graph *g = graph_live(arena, unit->graph);
	for (Ref r = 1; r < (Ref)g->nval; r++) {
		const Val *v = val(g, r);
		if (v->op == O_cast && v->type == E_bf16 && last_dim(&v->shape) == columns)
			set_pitch(g, r, ceil_div(columns, EIGHT) * EIGHT);
	}
	unit->graph = g;
}

// columns: rows of this length get a pitch even where the pass gives them none; 0: none do.
static Plan *case_plan(Arena *arena, const Graph *g, const Target *target, bool pitch, int columns)
{
	Unit unit = {.name = "run", .machine = target_machine(target), .graph = g};
	for (Pass p = PASS_loops; p <= PASS_memory; p++) {
		if (pitch || p != PASS_pitch)
			run_pass(arena, p, &unit);
		if (columns && p == PASS_pitch)
			set_pitches(arena, &unit, columns);
	}
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

static atomic_int prefetched, crooked; // addresses of bf16; in the middle of what a load reads

// The prefetch of a CPU. Kernels of rows prefetch at the sum of an index and the distance to the
// next row.
static void watch_prefetch(Gen *g, Value address, Prefetch how)
{
	Value i = LLVMGetOperand(address, 1), far = NULL;
	if (g->kern->kind == L_row && LLVMGetGEPSourceElementType(address) == g->i16 &&
	    LLVMIsAInstruction(i) && LLVMGetInstructionOpcode(i) == LLVMAdd)
		far = LLVMIsAConstantInt(LLVMGetOperand(i, 1));
	prefetched += far != NULL;
	crooked += far && LLVMConstIntGetSExtValue(far) % EIGHT != 0;
	prefetch_line(g, address, how);
}

static const Target *watched(Arena *arena, const Target *t)
{
	Target *own = take_copy(arena, t, sizeof *t);
	TargetOps *ops = take_copy(arena, t->ops, sizeof *t->ops);
	ops->prefetch = watch_prefetch;
	own->ops = ops;
	return own;
}

// gpu: rows of a few elements have a pitch, too.
static void check_case(const PitchCase *c, const char *name, bool gpu)
{
	Launcher *first = gpu ? gpu_launch_without : plain_launch,
	         *other = gpu ? gpu_launch : plain_launch;
	if (!strcmp(name, "opencl"))
		first = other = device_launch;
	Arena *arena = arena_new();
	const Target *target = target_named(arena, name, NULL);
	const Graph *g = case_graph(arena, c);
	const Array *slot = random_slots(arena, g, 3, c->columns);
	Plan *plan = case_plan(arena, g, target, true, gpu ? c->columns : 0);
	bool pitch = has_pitch(plan);
	Compiled *one =
	    compile_plan(arena, g, plan, gpu ? target : watched(arena, target), c->name);
	Compiled *two =
	    compile_plan(arena, g, case_plan(arena, g, target, false, 0), target, "without");
	bool same = same_outs(g, outs_launched(arena, one, slot, first),
	                      outs_launched(arena, two, slot, other));
	printf("%s%s, %s: %s%s\n", same && pitch == c->pitch ? "" : "FAILED ", name, c->name,
	       pitch ? "with a pitch" : "without", same ? "" : ", other bits");
	failures += !same || pitch != c->pitch;
	free_compiled(one);
	free_compiled(two);
	gpu_forget();
	arena_free(arena);
}

// The pass gives rows a pitch on GPUs, too.
static void check_pass(const PitchCase *c, const char *name)
{
	Arena *arena = arena_new();
	const Target *target = target_named(arena, name, NULL);
	bool pitch = has_pitch(case_plan(arena, case_graph(arena, c), target, true, 0));
	printf("%s%s, %s: %s\n", pitch == c->pitch ? "" : "FAILED ", name, c->name,
	       pitch ? "with a pitch" : "without");
	failures += pitch != c->pitch;
	arena_free(arena);
}

int main(int argc, char **argv)
{
	Arena *arena = arena_new();
	bool applies = argc > 1 || mask_applies(arena, "-avx512f");
	scratch_byte = 0xFF; // NaN, in bf16, too
	for (int i = 0; i < COUNT(cases) && applies; i++) {
		if (argc == 1)
			check_case(&cases[i], "amx:host", false);
		for (int k = 1; k < argc; k++)
			check_pass(&cases[i], argv[k]);
	}
	for (int i = 0; i < COUNT(few); i++)
		for (int k = 1; k < argc; k++)
			check_case(&few[i], argv[k], true);
	printf("%d addresses of bf16 are prefetched, %d of them in the middle of a load\n",
	       prefetched, crooked);
	failures += crooked > 0 || (argc == 1 && applies && !prefetched);
	arena_free(arena);
	return failures > 0 || gpu_needed < gpu_barriers;
}
