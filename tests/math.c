// math.c: measures the errors of functions of one operand, in units in the last place (ulp).
// Operands are floats of all magnitudes, evenly spread over their bits, and corners; the
// reference is the C library's long double. A subnormal result may be 0.
#include "emitted.h"
#include "gen.h"
#include <float.h>
#include <math.h>
#include <string.h>

typedef struct Function {
	const char *name;
	long double (*truth)(long double);
	double ulps[2]; // limits in f32 and f64
} Function;

static const Function functions[] = {
    {"exp", expl, {1, 1}},       {"expm1", expm1l, {4, 2.5}}, {"log", logl, {2, 1}},
    {"log1p", log1pl, {2, 2}},   {"sin", sinl, {2, 3}},       {"cos", cosl, {2, 3}},
    {"atan", atanl, {2.5, 2}},   {"erf", erfl, {4, 2}},       {"tanh", tanhl, {4, 2}},
    {"sqrt", sqrtl, {0.5, 0.5}}, {"floor", floorl, {0, 0}},   {"ceil", ceill, {0, 0}},
    {"round", rintl, {0, 0}},
};

static const double corners[] = {
    0,         -0.0,       INFINITY, -INFINITY, NAN,        1,         -1,      88.72283,
    88.722834, 88.72284,   89,       -87.33654, -87.336544, -87.33655, -88,     -104,
    709.78271, 709.782713, 710,      -708.4,    -745.2,     FLT_MIN,   DBL_MIN, 1e-45,
    5e-324,    FLT_MAX,    DBL_MAX,  -FLT_MAX,  0.4,        M_PI,      1e6,     1e22,
    0.5,       -0.5,       1.5,      2.5,       8388607.5,  -8388608,  0x1p52,  4503599627370495.5,
};

enum { MANY = 1 << 17 };

// Returns floats of the type whose bits are evenly spread, and the corners.
static Array operands(Arena *arena, Elem type)
{
	int64_t n = MANY + COUNT(corners);
	Array x = {.type = type, .shape = shape_of(1, &n), .f = NEWS(arena, double, n)};
	for (int64_t i = 0; i < MANY; i++) {
		uint64_t bits = (uint64_t)i * (UINT64_MAX / MANY) + (uint64_t)i % 509;
		uint32_t high = (uint32_t)(bits >> 32);
		float narrow;
		memcpy(&narrow, &high, sizeof narrow);
		memcpy(&x.f[i], &bits, sizeof bits);
		if (type == E_f32)
			x.f[i] = narrow;
	}
	for (int i = 0; i < COUNT(corners); i++)
		x.f[MANY + i] = type == E_f32 ? (float)corners[i] : corners[i];
	return x;
}

static double error_in_ulps(Elem type, double got, long double truth)
{
	double least = type == E_f32 ? FLT_MIN : DBL_MIN;
	int digits = type == E_f32 ? FLT_MANT_DIG : DBL_MANT_DIG;
	double nearest = type == E_f32 ? (float)truth : (double)truth;
	if (isnan(truth) || isnan(got))
		return isnan(truth) && isnan(got) ? 0 : INFINITY;
	if (isinf(got) || isinf(nearest))
		return got == nearest ? 0 : INFINITY;
	if (fabsl(truth) < least)
		return fabs(got) <= least ? 0 : INFINITY;
	return (double)(fabsl(got - truth) / ldexpl(1, ilogbl(truth) + 1 - digits));
}

// Returns the target without the instructions that not all CPUs have (machines.def).
static const Target *without_instructions(Arena *arena, const Target *t)
{
	Target *own = take_copy(arena, t, sizeof *t);
	Machine *m = take_copy(arena, t->machine, sizeof *t->machine);
	m->fused = m->round = m->root = 0;
	own->machine = m;
	return own;
}

static bool check(const Function *f, Elem type, const Target *target, const char *name)
{
	Arena *arena = arena_new();
	Array x = operands(arena, type);
	const char *text = format(arena, "graph math\nslot x : input %s[%lld]\nout y = %s(x)\n",
	                          elems[type].name, (long long)x.shape.dim[0], f->name);
	Graph *g = parse_graph(arena, f->name, text, book_builtin());
	Compiled *c = compile_graph(arena, g, target, f->name);
	Array y = outs_compiled(arena, c, &x)[g->outs.at[0].val];
	double worst = 0, limit = f->ulps[type == E_f64];
	int64_t at = 0;
	for (int64_t i = 0; i < x.shape.dim[0]; i++) {
		double error = error_in_ulps(type, y.f[i], f->truth(x.f[i]));
		if (error > worst)
			worst = error, at = i;
	}
	printf("%s %s %s: %.2f ulp at %.9g, which gives %.9g\n", f->name, elems[type].name, name,
	       worst, x.f[at], y.f[at]);
	free_compiled(c);
	arena_free(arena);
	return worst <= limit;
}

static bool check_all(const Target *target, const char *name)
{
	bool good = true;
	for (int i = 0; i < COUNT(functions); i++)
		for (int t = 0; t < 2; t++)
			good &= check(&functions[i], t ? E_f64 : E_f32, target, name);
	return good;
}

int main(void)
{
	static const char *const masks[] = {"-avx512f", "-avx512f,-avx2,-fma,-avx"};
	Arena *arena = arena_new();
	const Target *own = target_named(arena, "cpu", NULL);
	bool good = check_all(own, "of this CPU");
	for (int m = 0; m < COUNT(masks); m++)
		if (mask_applies(arena, masks[m]))
			good &= check_all(target_named(arena, "cpu", masks[m]), masks[m]);
	good &= check_all(without_instructions(arena, own), "by arithmetic");
	arena_free(arena);
	return !good;
}
