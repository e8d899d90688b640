// slices.c: checks products of f32 whose factors matrix registers multiply as slices of bf16.
// Errors keep their bound where every slice counts, copies by the identity are exact up to the
// largest f32, and what is not finite stays so: on this CPU, if it has AMX, and on emulated
// registers.
#include "emitted.h"
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { ROWS = 70, TERMS = 197, COLUMNS = 197 };

static int failures;

static const struct Layout {
	const char *name, *text;
	bool turned[2]; // a, b
} layouts[] = {
    {"nn",
     "graph nn\nslot a : input f32[70,197]\nslot b : input f32[197,197]\n"
     "out y = dot(a, b)\n",
     {false, false}},
    {"nt",
     "graph nt\nslot a : input f32[70,197]\nslot b : input f32[197,197]\n"
     "out y = dot(a, permute(b; [1,0]))\n",
     {false, true}},
    {"tn",
     "graph tn\nslot a : input f32[197,70]\nslot b : input f32[197,197]\n"
     "out y = dot(permute(a; [1,0]), b)\n",
     {true, false}},
};

typedef struct Product {
	Arena *arena;
	const Graph *graph;
	const char *what;
	Compiled *compiled;
	const bool *turned;
	Array *slot;
	const double *y; // of the last run
} Product;

static double *element(const Product *p, int o, int along, int k)
{
	int rows = o ? TERMS : ROWS, columns = o ? COLUMNS : TERMS;
	int row = o ? k : along, column = o ? along : k;
	return &p->slot[o].f[p->turned[o] ? column * rows + row : row * columns + column];
}

static void fill(const Product *p, int o, double (*value)(int along, int k))
{
	for (int i = 0; i < (o ? COLUMNS : ROWS); i++)
		for (int k = 0; k < TERMS; k++)
			*element(p, o, i, k) = (float)value(i, k);
}

static void multiply(Product *p)
{
	p->y = outs_compiled(p->arena, p->compiled, p->slot)[p->graph->outs.at[0].val].f;
}

static void found_wrong(const Product *p, const char *name, int row, int column)
{
	printf("FAILED %s, %s: %.9g in row %d and column %d\n", p->what, name,
	       p->y[row * COLUMNS + column], row, column);
	failures++;
}

// ---- operands -------------------------------------------------------------------------

// A number whose slices have one sign and are as large as they can be: without a product of two of
// them, sums are wrong by 2^-17 or more.
static double full_slices(int i, int k)
{
	return ldexp(1 + 0x7F3F * 0x1p-23, (i + k) % 5);
}

static double random_sign(int i, int k)
{
	uint64_t x = ((uint64_t)i << 20 | (uint64_t)k) * 0x9E3779B97F4A7C15u;
	x = (x ^ x >> 29) * 0xBF58476D1CE4E5B9u;
	double fraction = 1 + (double)(x >> 41) * 0x1p-23;
	return ldexp(x & 1 ? fraction : -fraction, (int)(x >> 1 & 31) - 16);
}

static double canceling(int i, int k)
{
	return k < TERMS - 1 ? random_sign(i, k / 2) * (k % 2 ? -1 : 1) : 0x1p-20;
}

static double pairs_alike(int i, int k)
{
	return random_sign(i, k / 2);
}

static double ones_along(int i, int k)
{
	return i == k;
}

// Masks, and numbers of all sizes of which each slice is a normal bf16, beside zeros.
static double of_any_size(int i, int k)
{
	static const double largest[] = {FLT_MAX,    -FLT_MAX,    0x1.FEp127, 0x1.FEFFFEp127,
	                                 0x1.FFp127, -0x1.FFp127, -1e9,       -65504,
	                                 FLT_MIN,    -0x1p-109,   0};
	if (k < COUNT(largest))
		return largest[(i + k) % COUNT(largest)];
	return ldexp(random_sign(i, k), k % 217 - 92);
}

static double tiny(int i, int k)
{
	return ldexp(random_sign(i, k), -118);
}

// ---- checks ---------------------------------------------------------------------------

// Checks that errors are below `bound` units of 2^-24 times the sum of the products' sizes.
static void check_bound(Product *p, const char *name, double bound)
{
	multiply(p);
	for (int i = 0; i < ROWS; i++)
		for (int j = 0; j < COLUMNS; j++) {
			double exact = 0, size = 0;
			for (int k = 0; k < TERMS; k++) {
				double product = *element(p, 0, i, k) * *element(p, 1, j, k);
				exact += product;
				size += fabs(product);
			}
			if (fabs(p->y[i * COLUMNS + j] - exact) <= bound * 0x1p-24 * size)
				continue;
			found_wrong(p, name, i, j);
			return;
		}
}

// Checks that products with the identity differ from a by at most `bound`.
static void check_copy(Product *p, const char *name, double bound)
{
	fill(p, 1, ones_along);
	multiply(p);
	for (int i = 0; i < ROWS; i++)
		for (int k = 0; k < TERMS; k++)
			if (!(fabs(p->y[i * COLUMNS + k] - *element(p, 0, i, k)) <= bound)) {
				found_wrong(p, name, i, k);
				return;
			}
}

// An element of operand o that is not finite makes all of its sums so, and no others.
static void check_not_finite(Product *p, int o, double x)
{
	enum { AT = 37, K = 100 };
	fill(p, 0, random_sign);
	fill(p, 1, ones_along); // whose slices are 0
	*element(p, o, AT, K) = x;
	multiply(p);
	for (int i = 0; i < ROWS; i++)
		for (int j = 0; j < COLUMNS; j++)
			if (!isfinite(p->y[i * COLUMNS + j]) != ((o ? j : i) == AT)) {
				found_wrong(p, o ? "b not finite" : "a not finite", i, j);
				return;
			}
}

static bool has_slices(const Product *p, const Target *target)
{
	const Plan *plan = plan_graph(p->arena, p->graph, "run", target_machine(target));
	for (const Kern *k = plan->kerns.at; k < plan->kerns.at + plan->kerns.count; k++)
		if (k->kind == L_dot && k->sched->unroll == target_machine(target)->pairs)
			return true;
	return false;
}

static void check(const struct Layout *layout, const char *target)
{
	// A product is left out by 1, and goes through 17 additions with those of an instruction
	// and 6 for each instruction after it.
	const double bound = 1.01 + 17 + 6 * ((TERMS + 31) / 32);
	Arena *arena = arena_new();
	Product p = {.arena = arena,
	             .what = format(arena, "%s on %s", layout->name, target),
	             .turned = layout->turned};
	const Target *t = target_named(arena, target, NULL);
	p.graph = parse_graph(arena, layout->name, layout->text, book_builtin());
	if (!has_slices(&p, t)) {
		printf("FAILED %s: no slices\n", p.what);
		failures++;
	}
	p.compiled = compile_graph(arena, p.graph, t, p.what);
	p.slot = random_slots(arena, p.graph, 1, 2);
	fill(&p, 0, full_slices);
	fill(&p, 1, full_slices);
	check_bound(&p, "full slices", bound);
	fill(&p, 0, random_sign);
	fill(&p, 1, random_sign);
	check_bound(&p, "random numbers", bound);
	fill(&p, 0, canceling);
	fill(&p, 1, pairs_alike);
	check_bound(&p, "sums that cancel", bound);
	fill(&p, 0, of_any_size);
	check_copy(&p, "any size", 0);
	fill(&p, 0, tiny);
	check_copy(&p, "tiny", 1.01 * FLT_MIN); // slices below are 0
	const double others[] = {INFINITY, -INFINITY, NAN, -NAN};
	for (int i = 0; i < 2 * COUNT(others); i++)
		check_not_finite(&p, i % 2, others[i / 2]);
	free_compiled(p.compiled);
	arena_free(arena);
}

int main(void)
{
	Arena *arena = arena_new();
	const char *here = target_machine(target_named(arena, "cpu", NULL))->name;
	for (int i = 0; i < COUNT(layouts); i++) {
		if (!strcmp(here, "x86-64-v4-amx"))
			check(&layouts[i], "cpu");
		if (mask_applies(arena, "-avx512f")) // emulated on vectors of this CPU
			check(&layouts[i], "amx:host");
	}
	arena_free(arena);
	printf("%d products, %d failures\n", COUNT(layouts), failures);
	return failures;
}
