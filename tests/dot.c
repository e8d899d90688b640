// dot.c: matrix products of every shape and view, with maps before and after, equal the evaluator;
// on the widest vectors this machine has and on narrower ones; and workers may come in any order.
#include "passes.h"
#include "emit.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// A graph in the notation: `slot` lines and one out. `depth` is how many products are summed.
static const struct Case {
	const char *name;
	int depth;
	const char *text;
} cases[] = {
#define NN(m, k, n)                                                                                \
	{                                                                                          \
		"nn " #m "x" #k "x" #n, k,                                                         \
		    "graph nn\nslot a : input f32[" #m "," #k "]\nslot b : input f32[" #k "," #n   \
		    "]\n"                                                                          \
		    "out y = dot(a, b)\n"                                                          \
	}
    NN(1, 1, 1),
    NN(1, 7, 1),
    NN(1, 64, 33),
    NN(33, 64, 1),
    NN(2, 3, 5),
    NN(5, 1, 40),
    NN(13, 16, 16),
    NN(14, 4, 32),
    NN(15, 5, 33),
    NN(28, 9, 17),
    NN(29, 17, 10),
    NN(64, 64, 48),
    NN(100, 37, 100),
    NN(128, 256, 96),
    NN(130, 512, 70),
    NN(3, 2500, 5),
    NN(31, 3000, 65),
    NN(257, 1030, 129),
    NN(60, 64, 3000),
    NN(2000, 8, 12),
    NN(3, 0, 5),
    NN(1500, 40, 1),
    NN(1, 700, 1),
#define NT(m, k, n)                                                                                \
	{                                                                                          \
		"nt " #m "x" #k "x" #n, k,                                                         \
		    "graph nt\nslot a : input f32[" #m "," #k "]\nslot b : input f32[" #n "," #k   \
		    "]\n"                                                                          \
		    "out y = dot(a, permute(b; [1,0]))\n"                                          \
	}
    NT(5, 7, 9),
    NT(64, 64, 64),
    NT(100, 100, 100),
    NT(61, 1100, 77),
    NT(1, 512, 300),
    NT(700, 100, 90),
#define TN(m, k, n)                                                                                \
	{                                                                                          \
		"tn " #m "x" #k "x" #n, k,                                                         \
		    "graph tn\nslot a : input f32[" #k "," #m "]\nslot b : input f32[" #k "," #n   \
		    "]\n"                                                                          \
		    "out y = dot(permute(a; [1,0]), b)\n"                                          \
	}
    TN(5, 7, 9),
    TN(64, 64, 64),
    TN(100, 100, 100),
    TN(50, 1030, 65),
    TN(170, 1100, 300),
    {"tt 45x67x89", 67,
     "graph tt\nslot a : input f32[67,45]\nslot b : input f32[89,67]\n"
     "out y = dot(permute(a; [1,0]), permute(b; [1,0]))\n"},
    {"tt 300x60x450", 60,
     "graph tt\nslot a : input f32[60,300]\nslot b : input f32[450,60]\n"
     "out y = dot(permute(a; [1,0]), permute(b; [1,0]))\n"},
    {"maps before, packed for many", 120,
     "graph maps\nslot a : input f32[150,120]\nslot b : input f32[120,400]\n"
     "out y = dot(act(a; tanh), act(b; tanh))\n"},
    {"one matrix after a map by matrices", 40,
     "graph stretch\nslot a : input f32[1,96,40]\nslot b : input f32[9,40,200]\n"
     "out y = dot(act(a; tanh), b)\n"},
    {"two turned matrices", 300,
     "graph turned\nslot a : input f32[2,300,100]\nslot b : input f32[2,300,280]\n"
     "out y = dot(permute(a; [0,2,1]), b)\n"},
    {"batch of matrices", 24,
     "graph batch\nslot a : input f32[3,4,20,24]\nslot b : input f32[3,4,24,18]\n"
     "out y = dot(a, b)\n"},
    {"many small matrices", 6,
     "graph many\nslot a : input f32[5000,5,6]\nslot b : input f32[5000,6,7]\n"
     "out y = dot(a, b)\n"},
    {"matrices by one matrix", 24,
     "graph rows\nslot a : input f32[3,4,20,24]\nslot b : input f32[1,1,24,18]\n"
     "out y = dot(a, b)\n"},
    {"one matrix by matrices", 24,
     "graph stretch\nslot a : input f32[1,1,20,24]\nslot b : input f32[3,4,24,18]\n"
     "out y = dot(a, b)\n"},
    {"stretched either way", 24,
     "graph both\nslot a : input f32[3,1,20,24]\nslot b : input f32[1,4,24,18]\n"
     "out y = dot(a, b)\n"},
    {"heads: queries by keys", 16,
     "graph qk\nslot qkv : input f32[2,24,96]\n"
     "%1 = permute(reshape(slice(qkv; [0,0,0], [2,24,32], [1,1,1]); [2,24,2,16]); [0,2,1,3]) : "
     "f32[2,2,24,16]\n"
     "%2 = permute(reshape(slice(qkv; [0,0,32], [2,24,32], [1,1,1]); [2,24,2,16]); [0,2,3,1]) : "
     "f32[2,2,16,24]\n"
     "out y = dot(%1, %2) * 0.25\n"},
    {"heads: weights by values", 24,
     "graph pv\nslot p : input f32[2,2,24,24]\nslot v : input f32[2,24,32]\n"
     "%1 = permute(reshape(v; [2,24,2,16]); [0,2,1,3]) : f32[2,2,24,16]\n"
     "out y = dot(p, %1)\n"},
    {"heads joined", 32,
     "graph join\nslot h : input f32[2,2,24,16]\nslot w : input f32[32,40]\n"
     "%1 = reshape(permute(h; [0,2,1,3]); [48,32]) : f32[48,32]\n"
     "out y = dot(%1, w)\n"},
    {"heads of 10, joined", 30,
     "graph join\nslot h : input f32[2,3,7,10]\nslot w : input f32[30,40]\n"
     "%1 = reshape(permute(h; [0,2,1,3]); [14,30]) : f32[14,30]\n"
     "out y = dot(%1, w)\n"},
    {"a convolution", 27,
     "graph conv\nslot x : input f32[2,3,9,11]\nslot w : input f32[8,27]\n"
     "%1 = window(x; [2,9,3,1,1,1,1, 3,11,3,1,1,1,1], 0) : f32[2,3,9,11,3,3]\n"
     "%2 = reshape(permute(%1; [0,1,4,5,2,3]); [2,27,99]) : f32[2,27,99]\n"
     "out y = dot(reshape(w; [1,8,27]), %2)\n"},
    {"a convolution with steps", 75,
     "graph conv\nslot x : input f32[2,3,16,32]\nslot w : input f32[20,75]\n"
     "%1 = window(x; [2,8,5,2,1,2,1, 3,16,5,2,1,2,1], 0) : f32[2,3,8,16,5,5]\n"
     "%2 = reshape(permute(%1; [0,1,4,5,2,3]); [2,75,128]) : f32[2,75,128]\n"
     "out y = dot(reshape(w; [1,20,75]), %2)\n"},
    {"the gradient of its kernel", 198,
     "graph conv_kernel\nslot x : input f32[2,3,9,11]\nslot g : input f32[2,8,99]\n"
     "%1 = window(x; [2,9,3,1,1,1,1, 3,11,3,1,1,1,1], 0) : f32[2,3,9,11,3,3]\n"
     "%2 = reshape(permute(%1; [0,2,3,1,4,5]); [198,27]) : f32[198,27]\n"
     "out y = dot(reshape(permute(g; [1,0,2]); [8,198]), %2)\n"},
    {"bias and gelu", 40,
     "graph gelu\nslot a : input f32[37,40]\nslot b : input f32[40,50]\nslot c : input f32[1,50]\n"
     "out y = act(dot(a, b) + c; gelu)\n"},
    {"residual", 40,
     "graph residual\nslot a : input f32[37,40]\nslot b : input f32[40,50]\nslot c : input "
     "f32[37,50]\n"
     "out y = dot(a, b) * 0.5 + c\n"},
    {"two outs", 40,
     "graph outs\nslot a : input f32[37,40]\nslot b : input f32[40,50]\nslot c : input f32[1,50]\n"
     "%1 = dot(a, b) + c : f32[37,50]\n"
     "out x = %1\nout y = max(%1, 0)\n"},
    {"long sums, then maps", 2100,
     "graph long\nslot a : input f32[37,2100]\nslot b : input f32[2100,50]\nslot c : input "
     "f32[1,50]\n"
     "out y = max(dot(a, b) + c, 0)\n"},
    {"maps before", 40,
     "graph before\nslot a : input f32[37,40]\nslot b : input f32[40,50]\nslot c : input "
     "f32[37,1]\n"
     "out y = dot(max(a, 0) * c, b + 1)\n"},
    {"a mask before, turned", 37,
     "graph mask\nslot a : input f32[37,40]\nslot h : input f32[37,40]\nslot b : input f32[37,50]\n"
     "%1 = select(0 < h, a, 0 * a) : f32[37,40]\n"
     "out y = dot(permute(%1; [1,0]), b)\n"},
    {"doubles", 40,
     "graph doubles\nslot a : input f64[37,40]\nslot b : input f64[40,50]\n"
     "out y = dot(a, b)\n"},
};

typedef struct Run { // one entry's blocks
	char *params, *state, *scratch, *inputs[16], *outputs[16], *pad[2];
	const struct amos_model *model;
	bool backwards;
} Run;

static int launch(const struct amos_run *run, amos_worker *worker, char *const *buf, int64_t n,
                  int64_t kernel)
{
	const Run *r = run->own;
	(void)kernel;
	for (int64_t i = 0; i < n; i++) {
		int64_t w = r->backwards ? n - 1 - i : i;
		worker(buf, w, r->pad[i % 2]);
	}
	return 0;
}

static double random_number(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (double)(*state >> 33) * 0x1p-30 - 1;
}

static void *room(Arena *a, int64_t bytes)
{
	return take(a, (size_t)bytes + 64);
}

static void fill_slots(Arena *a, const Graph *g, Run *r, Array *slot)
{
	uint64_t state = 1;
	for (int s = 0; s < g->slots.count; s++) {
		const Slot *of = &g->slots.at[s];
		int64_t n = count_of(&of->shape);
		r->inputs[s] = room(a, n * 8);
		slot[s] = (Array){.type = of->type, .shape = of->shape};
		slot[s].f = NEWS(a, double, n);
		for (int64_t i = 0; i < n; i++) {
			double x = random_number(&state);
			slot[s].f[i] = of->type == E_f64 ? x : (float)x;
		}
		array_to(&slot[s], r->inputs[s]);
	}
}

static void run_entry(Run *r)
{
	const struct amos_entry *entry = &r->model->entries[0];
	struct amos_run run = {r->params, r->state, r->scratch, r->inputs, r->outputs, launch, r};
	((amos_program *)entry->run)(&run);
}

// The largest error, in units of what rounding does to a sum of `depth` products below 1 in f32
// (f64): its partial sums wander to sqrt(depth) / 3, and so do the errors.
static double error_of(const Array *want, const void *got, int depth)
{
	int64_t n = count_of(&want->shape);
	double unit = want->type == E_f64 ? 0x1p-52 : 0x1p-23, worst = 0;
	for (int64_t i = 0; i < n; i++) {
		double x = want->type == E_f64 ? ((const double *)got)[i]
		                               : (double)((const float *)got)[i];
		double error = fabs(x - want->f[i]) / (unit * (4 + depth / 4.0));
		worst = error <= worst ? worst : isnan(error) ? INFINITY : error;
	}
	return worst;
}

static int check(const struct Case *c, const char *mask)
{
	Arena *a = arena_new();
	Graph *g = parse_graph(a, c->name, c->text, book_builtin());
	Plan *plan = plan_graph(a, g, "run");
	EmitOptions options = {
	    .target = target_named(a, "cpu", mask), .threads = 1, .name = "test"};
	Object *object = emit(a, 1, &plan, &options);
	Jit *jit = jit_load(object);
	Run r = {.model = jit_model(jit)};
	Array *slot = NEWS(a, Array, g->slots.count);
	fill_slots(a, g, &r, slot);
	const struct amos_entry *entry = &r.model->entries[0];
	r.params = room(a, r.model->params);
	r.state = room(a, r.model->state);
	r.scratch = room(a, entry->scratch);
	r.pad[0] = room(a, r.model->pad);
	r.pad[1] = room(a, r.model->pad);
	Array *want = eval_graph(a, g, slot);
	int failed = 0;
	for (int way = 0; way < 2; way++) {
		r.backwards = way;
		for (int o = 0; o < entry->nouts; o++) {
			char *before = r.outputs[o];
			r.outputs[o] = room(a, entry->outs[o].bytes);
			memset(r.outputs[o], 0x7f, (size_t)entry->outs[o].bytes + 64);
			if (!before)
				continue;
			r.outputs[o + 8] = before;
		}
		run_entry(&r);
		for (int o = 0; o < entry->nouts; o++) {
			int64_t bytes = entry->outs[o].bytes;
			double error = error_of(&want[g->outs.at[o].val], r.outputs[o], c->depth);
			bool outside =
			    r.outputs[o][bytes] != 0x7f || r.outputs[o][bytes + 63] != 0x7f;
			bool moved = way && memcmp(r.outputs[o], r.outputs[o + 8], (size_t)bytes);
			if (!(error < 4) || outside || moved) {
				printf("FAILED %s [%s] out %d: error %g units%s%s\n", c->name,
				       mask ? mask : "", o, error,
				       outside ? ", writes outside" : "",
				       moved ? ", order of workers matters" : "");
				failed = 1;
			}
		}
	}
	jit_free(jit);
	arena_free(a);
	return failed;
}

int main(int argc, char **argv)
{
	static const char *const masks[] = {NULL, "-avx512f", "-avx512f,-avx2,-fma,-avx"};
	int failed = 0;
	for (int m = 0; m < COUNT(masks); m++)
		for (int i = 0; i < COUNT(cases); i++)
			if (argc < 2 || !strcmp(argv[1], cases[i].name))
				failed += check(&cases[i], masks[m]);
	printf("%d products on %d machines, %d wrong\n", COUNT(cases), COUNT(masks), failed);
	return failed != 0;
}
