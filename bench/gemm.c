// gemm.c: measures emitted matrix products on one thread, as a fraction of peak multiply-add rate.
// Prints ratios only. The peak is measured next to every round, so other work on the machine
// affects both.
//   bench_gemm [nn|nt|tn:MxKxN[xBATCH] ...]
#include "passes.h"
#include "emit.h"
#include "runtime.h"
#include "peak.h"
#include <stdlib.h>
#include <string.h>

static double peak_rate(void)
{
	enum { ROUNDS = 5, CALLS = 20 };
	double best = 0;
	for (int i = 0; i < ROUNDS; i++) {
		double start = amos_now(), flops = 0;
		for (int k = 0; k < CALLS; k++)
			flops += peak_work();
		best = MAX(best, flops / (amos_now() - start));
	}
	return best;
}

// ---- products -------------------------------------------------------------------------

typedef struct Product {
	const char *name;
	int64_t m, k, n, batch;
	Jit *jit;
	struct amos_run run;
	double *ratio; // per round
} Product;

static int launch(const struct amos_run *run, const struct amos_kernel *kernel, char *const *buf)
{
	for (int64_t i = 0; i < kernel->workers; i++)
		kernel->code(buf, i, run->own);
	return 0;
}

static char *memory(Arena *a, int64_t floats)
{
	float *at = take(a, (size_t)floats * sizeof *at);
	for (int64_t i = 0; i < floats; i++)
		at[i] = (float)(i % 7 - 3);
	return (char *)at;
}

static void prepare(Arena *a, Product *p)
{
	bool transpose_a = p->name[0] == 't', transpose_b = p->name[1] == 't';
	const char *transposed = "permute(%s; [0,2,1])";
	char *x = transpose_a ? format(a, transposed, "a") : "a",
	     *y = transpose_b ? format(a, transposed, "b") : "b";
	char *text =
	    format(a,
	           "graph gemm\nslot a : input f32[%ld,%ld,%ld]\n"
	           "slot b : input f32[%ld,%ld,%ld]\nout y = dot(%s, %s)\n",
	           (long)p->batch, (long)(transpose_a ? p->k : p->m),
	           (long)(transpose_a ? p->m : p->k), (long)p->batch,
	           (long)(transpose_b ? p->n : p->k), (long)(transpose_b ? p->k : p->n), x, y);
	Graph *g = parse_graph(a, p->name, text, book_builtin());
	const Target *target = target_named(a, "cpu", NULL);
	Plan *plan = plan_graph(a, g, "run", target_machine(target));
	EmitOptions options = {.threads = 1, .name = "gemm"};
	Object *object = emit(a, 1, 1, &(Variant){target, NULL, &plan}, &options);
	p->jit = jit_load(object);
	const struct amos_model *model = jit_model(p->jit);
	char **inputs = NEWS(a, char *, 2), **outputs = NEWS(a, char *, 1);
	inputs[0] = memory(a, p->batch * p->m * p->k);
	inputs[1] = memory(a, p->batch * p->k * p->n);
	outputs[0] = memory(a, p->batch * p->m * p->n);
	p->run = (struct amos_run){.inputs = inputs,
	                           .outputs = outputs,
	                           .params = take(a, (size_t)model->params + 64),
	                           .state = take(a, (size_t)model->state + 64),
	                           .scratch = take(a, (size_t)model->entries[0].scratch + 64),
	                           .launch = launch,
	                           .own = take(a, (size_t)model->local + 64)};
	printf("%s %ldx%ldx%ld", p->name, (long)p->m, (long)p->k, (long)p->n);
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
	int n = argc > 1 ? argc - 1 : COUNT(usual);
	Product *products = NEWS(a, Product, n);
	for (int i = 0; i < n; i++) {
		Product *p = &products[i];
		const char *text = argc > 1 ? argv[i + 1] : usual[i];
		long m, k, columns, batch = 1;
		if (sscanf(text, "%*c%*c:%ldx%ldx%ldx%ld", &m, &k, &columns, &batch) < 3)
			fail("bench_gemm",
			     "expected a product such as nn:1024x512x2048, found '%s'", text);
		*p = (Product){text[0] == 't'   ? "tn"
		               : text[1] == 't' ? "nt"
		                                : "nn",
		               m,
		               k,
		               columns,
		               batch,
		               .ratio = NEWS(a, double, ROUNDS)};
		prepare(a, p);
		rate(p);
	}
	for (int round = 0; round < ROUNDS; round++)
		for (int i = 0; i < n; i++) {
			double peak = peak_rate(), reached = rate(&products[i]);
			reached = MAX(reached, rate(&products[i]));
			products[i].ratio[round] = reached / MAX(peak, peak_rate());
		}
	for (int i = 0; i < n; i++) {
		Product *p = &products[i];
		qsort(p->ratio, ROUNDS, sizeof *p->ratio, by_size);
		printf("%s %5ld x %5ld x %5ld x %2ld: least %3.0f %%, median %3.0f %%, most %3.0f "
		       "%% of peak\n",
		       p->name, (long)p->m, (long)p->k, (long)p->n, (long)p->batch,
		       100 * p->ratio[0], 100 * p->ratio[ROUNDS / 2], 100 * p->ratio[ROUNDS - 1]);
		jit_free(p->jit);
	}
	arena_free(a);
	return 0;
}
