// gemm.c: measures emitted matrix products on one thread, as a fraction of peak multiply-add rate.
// The peak, of f32, is measured next to every round, so other work on the machine affects both.
//   bench_gemm [cpu[:NAME]] [[bf16:|cast:]nn|nt|tn:MxKxN[xBATCH] ...]
// cpu: the target, and the peak is that of its registers.
// bf16: operands are bf16, and so is the result, but not that of tn, a weight's gradient. cast: the
// same, but b is f32 and rounded on the way, as weights are.
#include "passes.h"
#include "emit.h"
#include "runtime.h"
#include "peak.h"
#include <stdlib.h>
#include <string.h>

static double peak_rate(int lanes)
{
	enum { ROUNDS = 5, CALLS = 20 };
	double best = 0;
	for (int i = 0; i < ROUNDS; i++) {
		double start = amos_now(), flops = 0;
		for (int k = 0; k < CALLS; k++)
			flops += peak_work(lanes);
		best = MAX(best, flops / (amos_now() - start));
	}
	return best;
}

// ---- products -------------------------------------------------------------------------

typedef struct Product {
	const char *type, *name; // type: "f32", "bf16" or "cast"
	int64_t m, k, n, batch;
	Jit *jit;
	struct amos_run run;
	double *ratio, *peak; // per round
} Product;

static int launch(const struct amos_run *run, const struct amos_kernel *kernel, char *const *buf)
{
	amos_run_workers(kernel, buf, 0, kernel->workers, run->own);
	return 0;
}

// Small integers, which bf16 holds too.
static char *memory(Arena *a, int64_t floats, bool narrow)
{
	float *at = take(a, (size_t)floats * sizeof *at);
	uint16_t *half = (uint16_t *)at;
	for (int64_t i = 0; i < floats; i++) {
		float x = (float)(i % 7 - 3);
		if (narrow)
			memcpy(&half[i], (char *)&x + 2, sizeof *half);
		else
			at[i] = x;
	}
	return (char *)at;
}

// Returns the graph's text: of operand `name`, its slot and how the product reads it.
static char *operand(Arena *a, const Product *p, const char *name, const char *type, bool turned,
                     int64_t rows, int64_t columns, char **read)
{
	bool rounded = !strcmp(type, "cast");
	*read = rounded ? format(a, "cast(%s; bf16)", name) : (char *)name;
	if (turned)
		*read = format(a, "permute(%s; [0,2,1])", *read);
	return format(a, "slot %s : input %s[%ld,%ld,%ld]\n", name, rounded ? "f32" : type,
	              (long)p->batch, (long)(turned ? columns : rows),
	              (long)(turned ? rows : columns));
}

static void prepare(Arena *a, Product *p, const Target *target)
{
	bool narrow = strcmp(p->type, "f32"), turned[] = {p->name[0] == 't', p->name[1] == 't'};
	char *x, *y;
	char *slot_a = operand(a, p, "a", narrow ? "bf16" : "f32", turned[0], p->m, p->k, &x);
	char *slot_b = operand(a, p, "b", p->type, turned[1], p->k, p->n, &y);
	char *text = format(a, "graph gemm\n%s%sout y = %sdot(%s, %s)%s\n", slot_a, slot_b,
	                    narrow && !turned[0] ? "cast(" : "", x, y,
	                    narrow && !turned[0] ? "; bf16)" : "");
	Graph *g = parse_graph(a, p->name, text, book_builtin());
	Plan *plan = plan_graph(a, g, "run", target_machine(target));
	EmitOptions options = {.threads = 1, .name = "gemm"};
	Object *object = emit(a, 1, 1, &(Variant){target, NULL, &plan}, &options);
	p->jit = jit_load(object);
	const struct amos_model *model = jit_model(p->jit);
	char **inputs = NEWS(a, char *, 2), **outputs = NEWS(a, char *, 1);
	inputs[0] = memory(a, p->batch * p->m * p->k, narrow);
	inputs[1] = memory(a, p->batch * p->k * p->n, !strcmp(p->type, "bf16"));
	outputs[0] = memory(a, p->batch * p->m * p->n, false);
	p->run = (struct amos_run){.inputs = inputs,
	                           .outputs = outputs,
	                           .params = take(a, (size_t)model->params + 64),
	                           .state = take(a, (size_t)model->state + 64),
	                           .scratch = take(a, (size_t)model->entries[0].scratch + 64),
	                           .launch = launch,
	                           .own = take(a, (size_t)model->local + 64)};
	printf("%s %s %ldx%ldx%ld", p->type, p->name, (long)p->m, (long)p->k, (long)p->n);
	if (p->batch > 1)
		printf(" x %ld", (long)p->batch);
	printf(": compiled in %.1f ms, %ld workers\n", 1e3 * object->seconds,
	       (long)model->entries[0].kernels[0].workers);
}

static double rate(Product *p)
{
	double start = amos_now();
	amos_run_entry(&p->run, jit_model(p->jit)->entries);
	return 2.0 * (double)p->batch * (double)p->m * (double)p->k * (double)p->n /
	       (amos_now() - start);
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static const char *const usual[] = {
    "nn:1024x512x2048", "nt:1024x512x2048",  "tn:512x1024x2048",  "nn:1024x2048x512",
    "nn:1024x512x512",  "tn:512x1024x512",   "nt:128x64x128x64",  "nn:128x128x64x64",
    "tn:128x128x64x64", "nn:1024x512x30522", "tn:512x1024x30522", "nt:1024x30522x512",
};

int main(int argc, char **argv)
{
	enum { ROUNDS = 9 };
	Arena *a = arena_new();
	bool named = argc > 1 && starts_with(argv[1], "cpu");
	const Target *target = target_named(a, named ? argv[1] : "cpu", NULL);
	int lanes = target_machine(target)->lanes;
	char **shapes = argv + 1 + named;
	int given = argc - 1 - named, n = given ? given : COUNT(usual);
	Product *products = NEWS(a, Product, n);
	for (int i = 0; i < n; i++) {
		Product *p = &products[i];
		const char *text = given ? shapes[i] : usual[i];
		long m, k, columns, batch = 1;
		const char *type = !strncmp(text, "bf16:", 5)   ? "bf16"
		                   : !strncmp(text, "cast:", 5) ? "cast"
		                                                : "f32";
		const char *name = text + (strcmp(type, "f32") ? 5 : 0);
		if (sscanf(name, "%*c%*c:%ldx%ldx%ldx%ld", &m, &k, &columns, &batch) < 3)
			fail("bench_gemm",
			     "expected a product such as nn:1024x512x2048, found '%s'", text);
		*p = (Product){type,
		               name[0] == 't'   ? "tn"
		               : name[1] == 't' ? "nt"
		                                : "nn",
		               m,
		               k,
		               columns,
		               batch,
		               .ratio = NEWS(a, double, ROUNDS),
		               .peak = NEWS(a, double, ROUNDS)};
		prepare(a, p, target);
		rate(p);
	}
	for (int round = 0; round < ROUNDS; round++)
		for (int i = 0; i < n; i++) {
			double peak = peak_rate(lanes), reached = rate(&products[i]);
			reached = MAX(reached, rate(&products[i]));
			peak = MAX(peak, peak_rate(lanes));
			products[i].peak[round] = peak;
			products[i].ratio[round] = reached / peak;
		}
	for (int i = 0; i < n; i++) {
		Product *p = &products[i];
		qsort(p->ratio, ROUNDS, sizeof *p->ratio, by_size);
		qsort(p->peak, ROUNDS, sizeof *p->peak, by_size);
		printf(
		    "%4s %s %5ld x %5ld x %5ld x %2ld: least %3.0f %%, median %3.0f %%, most %3.0f "
		    "%% of peak, %.1f GFLOP/s\n",
		    p->type, p->name, (long)p->m, (long)p->k, (long)p->n, (long)p->batch,
		    100 * p->ratio[0], 100 * p->ratio[ROUNDS / 2], 100 * p->ratio[ROUNDS - 1],
		    1e-9 * p->peak[ROUNDS / 2]);
		jit_free(p->jit);
	}
	arena_free(a);
	return 0;
}
