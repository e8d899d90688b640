// attend.c: checks the kernels of attention, forward and backward, against its definition.
// They equal the evaluator on the widest vectors of this machine and on narrower ones, with workers
// in any order, and store nothing of the size of the scores, on GPUs neither. Products of bf16
// round operands, probabilities and their gradients to 8 digits.
#include "emitted.h"
#include <math.h>
#include <string.h>

// Operands by shape, and attention of q, k, v and, if they have shapes, b and p.
static const struct Case {
	const char *name, *type, *q, *k, *v, *rest, *attributes;
	bool whole, device; // it has kernels of its own; on GPUs
	bool sliced;        // matrix registers multiply slices of f32
} cases[] = {
    {"square", "f32", "2,3,64,32", "2,3,64,32", "2,3,64,32", "", "0.2, 0, 0", true, true, false},
    {"odd sizes", "f32", "4,37,19", "4,45,19", "4,45,23", "", "0.2, 0, 0", true, true, false},
    {"few columns", "f32", "5,40,8", "5,40,8", "5,40,8", "", "0.4, 0, 0", true, true, false},
    {"one column", "f32", "5,40,1", "5,40,1", "5,40,1", "", "1, 0, 0", false, false, false},
    {"many columns", "f32", "4,30,256", "4,50,256", "4,50,200", "", "0.06, 0, 0", true, false,
     false},
    {"many keys", "f32", "4,33,16", "4,700,16", "4,700,16", "", "1, 0, 0", true, true, false},
    {"many queries", "f32", "4,610,16", "4,70,16", "4,70,16", "", "1, 0, 0", true, true, false},
    {"causal", "f32", "2,2,150,16", "2,2,150,16", "2,2,150,16", "", "1, 1, 0", true, true, false},
    {"causal, more keys", "f32", "4,40,16", "4,610,16", "4,610,16", "", "1, 1, 0", true, true,
     false},
    {"causal, long", "f32", "4,1100,8", "4,1100,8", "4,1100,8", "", "1, 1, 1", true, true, false},
    {"slices", "f32", "4,70,40", "4,512,40", "4,512,36", "", "0.2, 0, 0", true, true, true},
    {"slices, causal", "f32", "4,300,32", "4,530,32", "4,530,32", "", "0.2, 1, 0", true, true,
     true},
    {"slices, bias", "f32", "2,2,64,32", "2,2,515,32", "2,2,515,32", "b : input f32[2,1,1,515]",
     "0.3, 0, 0", true, true, true},
    {"too few keys for slices", "f32", "4,70,40", "4,511,40", "4,511,40", "", "0.2, 0, 0", true,
     true, false},
    {"f64", "f64", "4,70,20", "4,150,20", "4,150,24", "", "0.5, 1, 0", true, true, false},
    {"a head of keys for several", "f32", "2,6,40,16", "2,1,50,16", "2,1,50,16", "", "0.3, 0, 0",
     true, true, false},
    {"bias", "f32", "2,2,40,16", "2,2,50,16", "2,2,50,16", "b : input f32[1,2,40,50]", "0.3, 0, 0",
     true, true, false},
    {"bias of keys, causal", "f32", "2,2,60,16", "2,2,150,16", "2,2,150,16",
     "b : input f32[2,1,1,150]", "0.3, 1, 0", true, true, false},
    {"hidden keys", "f32", "2,2,40,16", "2,2,50,16", "2,2,50,16",
     "b : input f32[2,1,1,50]\nslot p : input b8[2,1,40,50]", "0.3, 0, 0", true, true, false},
    {"queries without keys", "f32", "2,2,40,16", "2,2,50,16", "2,2,50,16", "none", "0.3, 0, 1",
     true, true, false},
    {"all keys hidden by -1e30", "f32", "2,2,40,16", "2,2,50,16", "2,2,50,16", "far", "0.3, 0, 0",
     true, true, false},
    {"learned bias", "f32", "8,4,40,16", "8,4,50,16", "8,4,50,16", "b : input f32[1,4,40,50]",
     "0.3, 0, 0", true, true, false},
    {"learned bias, masked", "f32", "8,4,40,16", "8,4,50,16", "8,4,50,16",
     "b : input f32[1,4,40,50]\nslot p : input b8[8,1,40,50]", "0.3, 0, 0", true, true, false},
    {"learned bias, causal", "f32", "2,12,2,60,16", "2,12,2,150,16", "2,12,2,150,16",
     "b : input f32[2,1,2,60,150]", "0.3, 1, 0", true, true, false},
    {"learned bias of all heads", "f32", "20,2,40,16", "20,1,50,16", "20,1,50,16",
     "b : input f32[1,1,40,50]", "0.3, 0, 0", true, true, false},
    {"learned bias and another", "f32", "8,4,40,16", "8,4,50,16", "8,4,50,16",
     "b : input f32[1,4,40,50]\nslot c : input f32[8,1,1,50]", "0.3, 0, 0", true, true, false},
    {"learned bias, many keys", "f32", "8,4,150,16", "8,4,300,16", "8,4,300,16",
     "b : input f32[1,4,150,300]", "0.3, 0, 0", true, true, false},
    {"learned bias, slices", "f32", "8,4,64,32", "8,4,515,32", "8,4,515,32",
     "b : input f32[1,4,64,515]", "0.3, 0, 0", true, true, true},
    {"learned bias, f64", "f64", "8,4,40,16", "8,4,50,16", "8,4,50,16", "b : input f64[1,4,40,50]",
     "0.3, 1, 0", true, true, false},
    {"factor", "f32", "2,2,40,16", "2,2,50,16", "2,2,50,16",
     "b : input f32[2,1,1,50]\nslot p : input b8[2,1,40,50]\nslot f : input f32[2,2,40,50]",
     "0.3, 0, 0", true, true, false},
    {"learned bias and factor, causal", "f32", "8,4,40,16", "8,4,50,16", "8,4,50,16",
     "b : input f32[1,4,40,50]\nslot p : input b8[8,1,1,50]\nslot f : input f32[8,1,40,1]",
     "0.3, 1, 0", true, true, false},
    {"dropout", "f32", "2,3,64,32", "2,3,64,32", "2,3,64,32", "dropout", "0.2, 0, 0", true, true,
     false},
    {"dropout, many keys", "f32", "2,3,70,32", "2,3,600,32", "2,3,600,32", "dropout", "0.2, 0, 0",
     true, true, true},
    {"dropout, f64", "f64", "4,30,20", "4,50,20", "4,50,24", "dropout", "0.2, 0, 0", true, true,
     false},
    {"one query", "f32", "4,1,16", "4,50,16", "4,50,16", "", "0.3, 0, 0", false, false, false},
    {"one key", "f32", "4,50,16", "4,1,16", "4,1,16", "", "0.3, 0, 0", false, false, false},
};

// True if the bias has a gradient.
static bool is_learned(const struct Case *c)
{
	return !strncmp(c->name, "learned", strlen("learned"));
}

static char *text_of(Arena *arena, const struct Case *c)
{
	Text t = {.arena = arena};
	bool none = !strcmp(c->rest, "none"), far = !strcmp(c->rest, "far");
	bool dropout = !strcmp(c->rest, "dropout"), slots = *c->rest && !none && !far && !dropout;
	say(&t, "graph attention\nslot q : input %s[%s]\nslot k : input %s[%s]\n", c->type, c->q,
	    c->type, c->k);
	say(&t, "slot v : input %s[%s]\n%s%s%s", c->type, c->v, slots ? "slot " : "",
	    slots ? c->rest : "", slots ? "\n" : "");
	const char *more = strstr(c->rest, "slot f")   ? ", b, p, f"
	                   : strstr(c->rest, "slot p") ? ", b, p"
	                   : strstr(c->rest, "slot c") ? ", b + c"
	                   : slots                     ? ", b"
	                                               : "";
	if (none || far) { // of every third query
		say(&t, "%%1 = iota(; 2, [1,1,40,50]) : i64[1,1,40,50]\n");
		say(&t, "%%2 = eq(mod(%%1, 3), 0) : b8[1,1,40,50]\n");
		say(&t, "%%3 = select(%%2, %s, 0) : f32[1,1,40,50]\n", none ? "-inf" : "-1e30");
		more = ", %3";
	}
	if (dropout)
		say(&t, "slot amos.seed : state i64\nslot amos.step : state i64\n"
		        "%%1 = softmax(dot(q, swap(k)) * 0.2; -1)\n"
		        "%%2 = rand(amos.seed, amos.step; 7, shape(%%1)) >= 0.25\n"
		        "out y = dot(select(%%2, %%1 * 1.25, 0), v)\n");
	else
		say(&t, "out y = attend(q, k, v%s; %s)\n", more, c->attributes);
	return t.at;
}

// The gradients of q, k and v, and perhaps of b, of sum(y * cotangent).
static Graph *with_gradients(Arena *arena, const Graph *g, bool learned, const Machine *machine)
{
	const Graph *loss = cotangent_pass(arena, g, NULL);
	bool *want = NEWS(arena, bool, loss->slots.count);
	for (int s = 0; s < 3 + learned; s++)
		want[s] = true;
	return graph_live(arena, grad_pass(arena, loss, want, machine));
}

static Array *slots_of(Arena *arena, const Graph *g)
{
	Array *slot = random_slots(arena, g, 1, 2);
	for (int s = 0; s < g->slots.count; s++)
		for (int64_t i = 0; is_float(slot[s].type) && i < count_of(&slot[s].shape); i++)
			slot[s].f[i] = g->slots.at[s].type == E_f64 ? slot[s].f[i] / 2
			                                            : (float)(slot[s].f[i] / 2);
	return slot;
}

static int64_t slot_rows(const Graph *g, const char *name)
{
	const Shape *s = &g->slots.at[find_slot(g, name)].shape;
	return s->dim[s->rank - 2];
}

static int64_t slot_count(const Graph *g, const char *name)
{
	return count_of(&g->slots.at[find_slot(g, name)].shape);
}

// Returns how many kernels of attention there are; -1: a kernel stores values of pairs of a query
// and a key, of each head or, if a bias has a gradient, of more than a fourth of them.
static int kernels_of(Arena *arena, const Graph *g, bool learned, const Machine *machine)
{
	const Plan *p = plan_graph(arena, g, "grad", machine);
	int64_t queries = slot_rows(g, "q"), keys = slot_rows(g, "k"), most = queries * keys;
	bool pairs = false;
	if (learned)
		most *= slot_count(g, "q") / last_dim(&g->slots.at[0].shape) / queries / 4;
	int n = 0;
	verify_plan(p);
	for (int k = 0; k < p->kerns.count; k++) {
		const Kern *kern = &p->kerns.at[k];
		n += kern->kind == L_attend;
		for (int o = 0; o < kern->nout; o++) {
			const Shape *s = &val(p->graph, kern->out[o])->shape;
			pairs |= s->rank > 2 && count_of(s) > most &&
			         s->dim[s->rank - 2] * s->dim[s->rank - 1] == queries * keys;
		}
	}
	return pairs ? -1 : n;
}

// Returns how many kernels of attention multiply slices.
static int sliced_of(Arena *arena, const Graph *g, const Machine *machine)
{
	const Plan *p = plan_graph(arena, g, "grad", machine);
	int n = 0;
	for (int k = 0; k < p->kerns.count; k++)
		if (p->kerns.at[k].kind == L_attend)
			n += attend_sizes(p->graph, &p->kerns.at[k], machine).slices > 1;
	return n;
}

static bool is_wrong(const char *what, const char *machine, int kernels, bool whole)
{
	if (whole ? kernels == 2 : kernels <= 0)
		return false;
	printf("FAILED %s: %d kernels of attention for %s\n", what, kernels, machine);
	return true;
}

// Returns the graph with products of bf16, whose operands are rounded where it reads them.
static const Graph *narrowed(Arena *arena, const Graph *from, const Machine *machine)
{
	Graph *g = graph_live(arena, decompose_pass(arena, from, machine));
	g->products = E_bf16;
	return graph_live(arena, precision_pass(arena, g, machine));
}

// Probabilities and slopes of bf16 change results, even of rounded operands, by more than that.
#define ROUNDS 2e-5

// Returns the graph with gradients for the machine.
static const Graph *graph_for(Arena *arena, const struct Case *c, bool narrow,
                              const Machine *machine)
{
	const Graph *g = parse_graph(arena, c->name, text_of(arena, c), book_builtin());
	g = with_gradients(arena, g, is_learned(c), machine);
	return narrow ? narrowed(arena, g, machine) : g;
}

// Returns how many kernels of attention the case has on a GPU: see kernels_of().
static int device_kernels(Arena *arena, const struct Case *c, bool narrow, const char *gpu)
{
	const Machine *machine = machine_named(gpu);
	return kernels_of(arena, graph_for(arena, c, narrow, machine), is_learned(c), machine);
}

static int check(const struct Case *c, const char *name, const char *mask, bool narrow)
{
	Arena *arena = arena_new();
	const Target *target = target_named(arena, name, mask);
	const char *what =
	    format(arena, "%s%s [%s%s]", c->name, narrow ? " in bf16" : "", name, mask ? mask : "");
	const Graph *g = graph_for(arena, c, narrow, target_machine(target));
	bool is_f32 = !strcmp(c->type, "f32");
	int failed = 0, kernels = kernels_of(arena, g, is_learned(c), target_machine(target));
	int sliced = sliced_of(arena, g, target_machine(target));
	bool registers = has_thread_matrix(target_machine(target)) && !narrow;
	if (sliced != (c->sliced && registers ? kernels : 0)) {
		printf("FAILED %s: %d kernels of attention multiply slices\n", what, sliced);
		failed = 1;
	}
	const double *error =
	    graph_errors(arena, g, slots_of(arena, g), target, target_machine(target), what);
	double least = INFINITY, limit = !is_f32 ? 1e-13 : narrow ? 1e-2 : 2e-5;
	for (int o = 0; o < g->outs.count; o++) {
		double most = strcmp(g->outs.at[o].name, "loss") ? limit : 300 * limit;
		if (error[o] <= most)
			continue;
		printf("FAILED %s, %s: error %g\n", what, g->outs.at[o].name, error[o]);
		failed = 1;
	}
	for (int o = 0; o < g->outs.count; o++)
		if (strcmp(g->outs.at[o].name, "loss") && strcmp(g->outs.at[o].name, GRAD_OF "b"))
			least = fmin(least, error[o]);
	if (narrow && is_f32 && least < ROUNDS) {
		printf("FAILED %s: error %g, as if nothing were rounded\n", what, least);
		failed = 1;
	}
	failed |= is_wrong(what, "cpu", kernels, c->whole);
	static const char *const gpus[] = {"cuda",   "cuda-sm_80", "cuda-sm_90a",
	                                   "opencl", "hip",        "hip-gfx90a"};
	for (int k = 0; k < COUNT(gpus) && !mask; k++)
		failed |=
		    is_wrong(what, gpus[k], device_kernels(arena, c, narrow, gpus[k]), c->device);
	arena_free(arena);
	return failed;
}

int main(int argc, char **argv)
{
	static const char *const masks[] = {NULL, "-avx512f", "-avx512f,-avx2,-fma,-avx"};
	static const struct {
		const char *target, *mask, *needs;
	} narrow[] = {
	    {"amx:host", NULL, "-avx512f"},
	    {"cpu", NULL, "-avx512f"},
	    {"cpu", "-amx-tile,-amx-int8,-amx-bf16", "-amx-bf16"},
	};
	int failed = 0, tried = 0;
	Arena *arena = arena_new();
	for (int m = 0; m < COUNT(masks); m++)
		for (int i = 0; i < COUNT(cases) && mask_applies(arena, masks[m]); i++) {
			if (argc > 1 && strcmp(argv[1], cases[i].name))
				continue;
			failed += check(&cases[i], "cpu", masks[m], false);
			tried++;
		}
	for (int m = 0; m < COUNT(narrow); m++)
		for (int i = 0; i < COUNT(cases) && mask_applies(arena, narrow[m].needs); i++) {
			if ((argc > 1 && strcmp(argv[1], cases[i].name)) || !cases[i].whole)
				continue;
			failed += check(&cases[i], narrow[m].target, narrow[m].mask, true);
			tried++;
			if (m || !cases[i].sliced)
				continue;
			failed += check(&cases[i], "amx:host", NULL, false);
			tried++;
		}
	arena_free(arena);
	printf("%d attentions, %d wrong\n", tried, failed);
	return failed || !tried;
}
