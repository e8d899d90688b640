// row_blocks.c: checks that logits computed in blocks of rows give the loss, the accuracy and the
// gradients that whole logits in double give.
#include "emitted.h"
#include <math.h>
#include <string.h>

static int failures;

typedef struct RowCase {
	const char *name, *model, *loss;
	bool blocks; // the logits are not whole
} RowCase;

#define HIDDEN                                                                                     \
	"graph test\nslot ids : input i64[20,30] limit 16512\nslot table : param f32[16512,16]\n"  \
	"slot gain : param f32[16]\n%1 = gather(table, ids; 0)\n%2 = reshape(gain; [1,1,16])\n"    \
	"%3 = mul(%1, %2)\n%4 = reshape(%3; [600,16])\n"
#define TIED HIDDEN "%5 = permute(table; [1,0])\n%6 = dot(%4, %5)\n"
#define OWN  "%6 = dot(%4, head)\n"

static const RowCase cases[] = {
    {"tied", TIED "%7 = reshape(%6; [20,30,16512])\nout logits = %7\n",
     "cross_entropy(logits, labels)", true},
    {"with a bias",
     "graph test\nslot ids : input i64[20,30] limit 16512\nslot table : param f32[16512,16]\n"
     "slot head : param f32[16,16512]\nslot bias : param f32[16512]\n"
     "%1 = gather(table, ids; 0)\n%2 = reshape(%1; [600,16])\n%3 = dot(%2, head)\n"
     "%4 = reshape(%3; [20,30,16512])\n%5 = reshape(bias; [1,1,16512])\n%6 = add(%4, %5)\n"
     "out logits = %6\n",
     "cross_entropy(logits, labels)", true},
    {"scaled, smoothed labels", TIED "%7 = mul(%6, 0.25)\nout logits = %7\n",
     "0.9 * cross_entropy(logits, labels) + "
     "0.1 * average(lse(logits; -1) - mean(logits; -1))",
     true},
    {"log-probabilities", TIED "%7 = lse(%6; [1])\n%8 = sub(%6, %7)\nout logits = %8\n",
     "nll(logits, labels)", true},
    {"probabilities",
     "graph test\nslot y : input f32[600,16512]\nslot x : param f32[600,16]\n"
     "slot head : param f32[16,16512]\n%1 = dot(x, head)\nout logits = %1\n",
     "cross_entropy(logits, y)", false},
    {"few rows and wide states",
     "graph test\nslot ids : input i64[600] limit 14336\nslot table : param f32[14336,320]\n"
     "slot gain : param f32[320]\n%1 = gather(table, ids; 0)\n%2 = reshape(gain; [1,320])\n"
     "%3 = mul(table, %2)\n%4 = tanh(%3)\n%5 = permute(%4; [1,0])\n%6 = dot(%1, %5)\n"
     "%7 = mul(%6, 0.1)\nout logits = %7\n",
     "cross_entropy(logits, labels)", true},
    {"no softmax", TIED "out logits = %6\n", "average(abs(logits))", false},
    {"a softmax of columns", TIED "out logits = %6\n", "average(lse(logits; 0))", false},
    {"few rows",
     "graph test\nslot x : param f32[500,16]\nslot head : param f32[16,17000]\n"
     "%1 = dot(x, head)\nout logits = %1\n",
     "cross_entropy(logits, labels)", false},
};

// Returns the loss of a case and its gradients; `all`: the logits, too, which then are whole.
static Graph *case_graph(Arena *arena, const RowCase *c, bool all)
{
	return gradient_graph(arena, c->name, c->model, c->loss, all);
}

// Every seventh label does not count.
static Array *case_slots(Arena *arena, const Graph *g)
{
	Array *slot = random_slots(arena, g, 3, 14336);
	int labels = find_slot(g, "labels");
	for (int64_t i = 0; labels >= 0 && i < count_of(&slot[labels].shape); i += 7)
		slot[labels].i[i] = -100;
	return slot;
}

// True if a kernel stores a value of as many columns as the logits have, and so many rows.
static bool stores_logits(const Graph *g, const Plan *p, int64_t rows)
{
	for (int k = 0; k < p->kerns.count; k++)
		for (int i = 0; i < p->kerns.at[k].nout; i++) {
			const Shape *s = &val(g, p->kerns.at[k].out[i])->shape;
			if (last_dim(s) >= 14336 && count_of(s) >= rows * last_dim(s))
				return true;
		}
	return false;
}

// Returns the largest difference of an output, as a fraction of its largest element.
static double worst_output(const Graph *g, const Array *got, const Graph *all, const Array *wanted)
{
	double worst = 0;
	for (int i = 0; i < g->outs.count; i++) {
		const Array *x = &got[g->outs.at[i].val];
		const Array *y = &wanted[find_output(all, g->outs.at[i].name)];
		double largest = 0, off = 0;
		for (int64_t k = 0; k < count_of(&x->shape); k++) {
			double difference = fabs(x->f[k] - y->f[k]);
			largest = fmax(largest, fabs(y->f[k]));
			off = difference <= off ? off : difference; // NaN stays
		}
		worst = off <= worst * largest ? worst : off / fmax(largest, 1e-30);
	}
	return worst;
}

static int forward_launch(const struct amos_run *run, const struct amos_kernel *kernel,
                          char *const *buf)
{
	char *const *pad = run->own;
	for (int64_t i = 0; i < kernel->workers; i++)
		kernel->code(buf, i, i + 1, pad[0]);
	return 0;
}

// True if the outputs have the same bits in another order of workers. Each is also stored.
static bool same_bits(Arena *arena, const RowCase *c, const Target *target)
{
	Graph *g = case_graph(arena, c, false);
	Launcher *order[] = {plain_launch, forward_launch};
	int first = g->slots.count;
	for (int i = 0; i < g->outs.count; i++) {
		const Val *v = val(g, g->outs.at[i].val);
		Slot kept = {.name = g->outs.at[i].name,
		             .kind = S_state,
		             .type = v->type,
		             .shape = v->shape};
		add_store(g, add_slot(g, kept), g->outs.at[i].val);
	}
	g->outs.count = 0;
	Compiled *compiled = compile_graph(arena, g, target, "stored");
	Array *slot[2];
	for (int i = 0; i < 2; i++) {
		slot[i] = case_slots(arena, g);
		run_compiled(arena, compiled, slot[i], order[i]);
	}
	bool same = true;
	for (int i = first; i < g->slots.count; i++)
		for (int64_t k = 0; k < count_of(&g->slots.at[i].shape); k++)
			same &= slot[0][i].f[k] == slot[1][i].f[k];
	free_compiled(compiled);
	return same;
}

static void check_case(const RowCase *c)
{
	Arena *arena = arena_new();
	const Target *target = target_named(arena, "cpu", NULL);
	const Graph *g = case_graph(arena, c, false);
	const Graph *all = widen_graph(arena, case_graph(arena, c, true));
	const Array *slot = case_slots(arena, g);
	Plan *plan = plan_graph(arena, g, "run", target_machine(target));
	bool blocks = !stores_logits(plan->graph, plan, 500);
	Compiled *one = compile_plan(arena, g, plan, target, c->name);
	Compiled *two = compile_graph(arena, all, target, "whole");
	const Array *got = outs_compiled(arena, one, slot);
	double worst =
	    worst_output(g, got, all, outs_compiled(arena, two, widen_slots(arena, all, slot)));
	bool same = !blocks || same_bits(arena, c, target);
	bool right = blocks == c->blocks && worst < 2e-5 && same;
	printf("%s%s: off by %.2g%s%s\n", right ? "" : "FAILED ", c->name, worst,
	       blocks ? ", in blocks" : "", same ? "" : ", other bits in another order");
	failures += !right;
	free_compiled(one);
	free_compiled(two);
	arena_free(arena);
}

// Where an instruction multiplies pairs of bf16, blocks of logits have up to 1024 rows.
static void check_blocks(const char *cpu, int rows, Elem products, int wanted)
{
	Arena *arena = arena_new();
	const char *text = format(arena,
	                          "graph test\nslot x : input f32[%d,16]\n"
	                          "slot head : param f32[16,32768]\n%%1 = dot(x, head)\n"
	                          "out logits = %%1\n",
	                          rows);
	RowCase c = {.name = cpu, .model = text, .loss = "cross_entropy(logits, labels)"};
	Graph *g = case_graph(arena, &c, false);
	g->products = products;
	const Plan *p = plan_graph(arena, g, "run", target_machine(target_named(arena, cpu, NULL)));
	bool right = stores_logits(p->graph, p, wanted) && !stores_logits(p->graph, p, wanted + 1);
	printf("%s%s: %s, %d rows in blocks of %d\n", right ? "" : "FAILED ", cpu,
	       elems[products ? products : E_f32].name, rows, wanted);
	failures += !right;
	arena_free(arena);
}

int main(void)
{
	for (int i = 0; i < COUNT(cases); i++)
		check_case(&cases[i]);
	check_blocks("sapphirerapids", 1024, E_bf16, 1024);
	check_blocks("sapphirerapids", 1026, E_bf16, 513);
	check_blocks("sapphirerapids", 1024, 0, 512);
	check_blocks("znver5", 1024, E_bf16, 1024);
	check_blocks("icelake-server", 1024, E_bf16, 512);
	return failures > 0;
}
