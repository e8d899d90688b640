// prims.c: checks the door and the evaluator: every primitive against independent values.
// Both by constant folding and by evaluation; wrong types and shapes and their messages; interning;
// identities; window against simple loops.
#include "ir.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int checks, failures;
static bool seen[OPS];
static Arena *arena;

#define EXPECT(truth, ...)                                                                         \
	do {                                                                                       \
		checks++;                                                                          \
		if (!(truth)) {                                                                    \
			failures++;                                                                \
			printf("prims.c:%d: ", __LINE__);                                          \
			printf(__VA_ARGS__);                                                       \
			puts("");                                                                  \
		}                                                                                  \
	} while (0)

typedef struct Lit { // a literal array
	Elem type;
	Shape shape;
	const double *x;
} Lit;

#define LENGTH(...)        (sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))
#define D(...)             ((Shape){LENGTH(__VA_ARGS__), {__VA_ARGS__}})
#define SCALAR             ((Shape){0})
#define L(type, dims, ...) ((Lit){E_##type, dims, (double[]){__VA_ARGS__}})
#define F(dims, ...)       L(f32, dims, __VA_ARGS__)
#define NONE               ((Attr){0})
#define I(...)             ((Attr){.n = LENGTH(__VA_ARGS__), .i = {__VA_ARGS__}})
#define IX(fill, ...)      ((Attr){.n = LENGTH(__VA_ARGS__), .i = {__VA_ARGS__}, .x = fill})

static Array array_of(const Lit *lit)
{
	Array array = {.type = lit->type, .shape = lit->shape};
	int64_t count = count_of(&lit->shape);
	if (is_float(lit->type)) {
		array.f = take_copy(arena, lit->x, sizeof(double) * (size_t)count);
		return array;
	}
	array.i = NEWS(arena, int64_t, count);
	for (int64_t i = 0; i < count; i++)
		array.i[i] = (int64_t)lit->x[i];
	return array;
}

static bool near(double found, double reference, double tolerance)
{
	if (isnan(reference) || isinf(reference))
		return isnan(reference) ? isnan(found) : found == reference;
	return fabs(found - reference) <= tolerance * fmax(1, fabs(reference));
}

static void compare(int line, const char *what, const Array *found, const Lit *expected,
                    double tolerance)
{
	checks++;
	bool same = found->type == expected->type && same_shape(&found->shape, &expected->shape);
	for (int64_t i = 0; same && i < count_of(&expected->shape); i++) {
		double x = element_at(found, i);
		if (near(x, expected->x[i], tolerance))
			continue;
		printf("prims.c:%d: %s: element %lld is %.12g, wanted %.12g\n", line, what,
		       (long long)i, x, expected->x[i]);
		failures++;
		return;
	}
	if (same)
		return;
	failures++;
	printf("prims.c:%d: %s: %s, wanted %s\n", line, what,
	       shape_text(arena, found->type, &found->shape),
	       shape_text(arena, expected->type, &expected->shape));
}

// Checks op(in; attr), evaluated on slots and, if the door folds it, on constants.
static void check_at(int line, Op op, Attr attr, Lit expected, int nin, const Lit *in)
{
	seen[op] = true;
	Graph *g = graph_new(arena, "test", NULL), *folding = graph_new(arena, "test", NULL);
	Ref slots[8], consts[8];
	Array values[8];
	for (int k = 0; k < nin; k++) {
		Slot slot = {
		    .name = format(arena, "x%d", k), .type = in[k].type, .shape = in[k].shape};
		values[k] = array_of(&in[k]);
		slots[k] = put_slot(g, add_slot(g, slot));
		char *bytes = take(arena, (size_t)count_of(&in[k].shape) * 8);
		array_to(&values[k], bytes);
		consts[k] = put_const(folding, in[k].type, in[k].shape, bytes);
	}
	Ref r = put(g, op, nin, slots, &attr);
	add_out(g, "y", r);
	compare(line, prims[op].name, &eval_graph(arena, g, values)[r], &expected, 1e-9);
	if (nin == 0 || op == O_rand)
		return;
	const Val *v = val(folding, put(folding, op, nin, consts, &attr));
	EXPECT(v->op == O_const, "%s of constants (line %d) does not fold", prims[op].name, line);
	if (v->op == O_const) {
		Array folded = array_from(arena, v->type, &v->shape, v->data);
		compare(line, prims[op].name, &folded, &expected, 1e-6);
	}
}

#define CHECK(op, attr, expected, ...)                                                             \
	check_at(__LINE__, O_##op, attr, expected, sizeof((Lit[]){__VA_ARGS__}) / sizeof(Lit),     \
	         (Lit[]){__VA_ARGS__})

static void leaves(void)
{
	seen[O_const] = seen[O_slot] = true; // every check below uses both
	check_at(__LINE__, O_iota, I(1, 2, 3), L(i64, D(2, 3), 0, 1, 2, 0, 1, 2), 0, NULL);
	CHECK(rand, I(11, 4),
	      F(D(4), 0.5582272410392761, 0.16358059644699097, 0.8690328598022461,
	        0.02342146635055542),
	      L(i64, SCALAR, 7), L(i64, SCALAR, 3));
	EXPECT(random_uniform(7, 3, 11, (5ull << 32) + 9) == 0.8664509057998657, "rand far out");
}

static void float_maps(void)
{
	CHECK(neg, NONE, F(D(3), -1, 2, 0), F(D(3), 1, -2, 0));
	CHECK(abs, NONE, F(D(2), 1, 2), F(D(2), 1, -2));
	CHECK(sign, NONE, F(D(3), 1, -1, 0), F(D(3), 0.25, -2, 0));
	CHECK(floor, NONE, F(D(2), 1, -2), F(D(2), 1.75, -1.25));
	CHECK(ceil, NONE, F(D(2), 2, -1), F(D(2), 1.75, -1.25));
	CHECK(round, NONE, F(D(4), 2, 2, -2, 1), F(D(4), 1.5, 2.5, -1.75, 0.75));
	CHECK(narrow, I(3, -6), F(D(6), 18, 20, 0.001953125, 0, -448, INFINITY),
	      F(D(6), 17.1, 19, 0.0018, 0.0009, -440, INFINITY));
	CHECK(exp, NONE, F(D(2), 1.6487212707001282, 1), F(D(2), 0.5, 0));
	CHECK(log, NONE, F(D(2), 1.0986122886681098, -INFINITY), F(D(2), 3, 0));
	CHECK(expm1, NONE, F(D(2), 1.0000000000500000e-10, -1), F(D(2), 1e-10, -INFINITY));
	CHECK(log1p, NONE, F(D(2), 9.9999999995e-11, -INFINITY), F(D(2), 1e-10, -1));
	CHECK(sqrt, NONE, F(D(2), 1.4142135623730951, NAN), F(D(2), 2, -1));
	CHECK(rsqrt, NONE, F(D(2), 0.7071067811865475, INFINITY), F(D(2), 2, 0));
	CHECK(sin, NONE, F(D(1), 0.9092974268256817), F(D(1), 2));
	CHECK(cos, NONE, F(D(1), -0.4161468365471424), F(D(1), 2));
	CHECK(atan, NONE, F(D(1), 1.1071487177940904), F(D(1), 2));
	CHECK(erf, NONE, F(D(2), 0.5204998778130465, -1), F(D(2), 0.5, -9));
	CHECK(tanh, NONE, F(D(1), 0.24491866240370913), F(D(1), 0.25));
	CHECK(isnan, NONE, L(b8, D(3), 0, 1, 0), F(D(3), 1, NAN, INFINITY));
	CHECK(add, NONE, F(D(2, 2), 11, 21, 12, 22), F(D(2, 1), 1, 2), F(D(1, 2), 10, 20));
	CHECK(sub, NONE, F(D(2), 4, 3), F(SCALAR, 5), F(D(2), 1, 2));
	CHECK(mul, NONE, F(D(2), 4, 10), F(D(2), 1, 2), F(D(2), 4, 5));
	CHECK(div, NONE, F(D(3), 0.5, -INFINITY, NAN), F(D(3), 1, -1, 0), F(D(3), 2, 0, 0));
	CHECK(pow, NONE, F(D(3), 3.952847075210474, 0.25, 1), F(D(3), 2.5, 2, 0),
	      F(D(3), 1.5, -2, 0));
	CHECK(max, NONE, F(D(4), 2, 3, NAN, NAN), F(D(4), 1, 3, NAN, 1), F(D(4), 2, -1, 1, NAN));
	CHECK(min, NONE, F(D(4), 1, -1, NAN, NAN), F(D(4), 1, 3, NAN, 1), F(D(4), 2, -1, 1, NAN));
	CHECK(mod, NONE, F(D(4), 1.5, 0.5, -0.5, 0), F(D(4), 5.5, -1.5, 1.5, 4),
	      F(D(4), 2, 2, -2, 2));
	CHECK(mod, NONE, F(D(6), 5, INFINITY, -1, 6, NAN, NAN),
	      F(D(6), 5, -1, -1, 1e9, INFINITY, 3),
	      F(D(6), INFINITY, INFINITY, -INFINITY, 7, 2, 0));
	CHECK(div, NONE, F(D(4), INFINITY, -INFINITY, INFINITY, -INFINITY), F(SCALAR, 1),
	      F(D(4), 0, -0.0, 0, -0.0));
}

// The remainder 0 has the sign of the divisor, as in NumPy.
static void zero_remainders(void)
{
	double x[] = {6, 6, -6, -6}, y[] = {3, -3, 3, -3};
	for (int k = 0; k < COUNT(x); k++) {
		Graph *g = graph_new(arena, "mod", NULL);
		Ref r = put2(g, O_mod, put_num(g, E_f64, x[k]), put_num(g, E_f64, y[k]));
		double rest = const_at(val(g, r), 0);
		EXPECT(rest == 0 && signbit(rest) == signbit(y[k]), "%g mod %g is %g", x[k], y[k],
		       rest);
	}
}

static void other_maps(void)
{
	CHECK(not, NONE, L(b8, D(2), 0, 1), L(b8, D(2), 1, 0));
	CHECK(cast, I(E_i32), L(i32, D(4), 1, -1, 0, 3), F(D(4), 1.75, -1.75, NAN, 3));
	CHECK(cast, I(E_i8), L(i8, D(2), -1, 1), L(i64, D(2), 255, 257));
	CHECK(cast, I(E_b8), L(b8, D(3), 1, 0, 1), F(D(3), 0.5, 0, -1));
	CHECK(cast, I(E_f32), F(D(2), 3, -4), L(i64, D(2), 3, -4));
	CHECK(eq, NONE, L(b8, D(3), 1, 0, 0), F(D(3), 1, 2, NAN), F(D(3), 1, 1, NAN));
	CHECK(lt, NONE, L(b8, D(3), 0, 0, 1), F(D(3), 1, 2, -3), F(D(3), 1, 1, 3));
	CHECK(le, NONE, L(b8, D(3), 1, 0, 1), L(i64, D(3), 1, 2, -3), L(i64, D(3), 1, 1, 3));
	CHECK(and, NONE, L(b8, D(4), 0, 0, 0, 1), L(b8, D(4), 0, 0, 1, 1), L(b8, D(4), 0, 1, 0, 1));
	CHECK(and, NONE, L(i64, D(1), 8), L(i64, D(1), 12), L(i64, D(1), 10));
	CHECK(or, NONE, L(b8, D(4), 0, 1, 1, 1), L(b8, D(4), 0, 0, 1, 1), L(b8, D(4), 0, 1, 0, 1));
	CHECK(xor, NONE, L(b8, D(4), 0, 1, 1, 0), L(b8, D(4), 0, 0, 1, 1), L(b8, D(4), 0, 1, 0, 1));
	CHECK(select, NONE, F(D(2), 1, 4), L(b8, D(2), 1, 0), F(D(2), 1, NAN), F(D(2), NAN, 4));
	CHECK(add, NONE, L(i32, D(1), INT32_MIN), L(i32, D(1), INT32_MAX), L(i32, D(1), 1));
	CHECK(div, NONE, L(i64, D(3), -3, 3, 0), L(i64, D(3), -7, 7, 1), L(i64, D(3), 2, 2, 0));
	CHECK(mod, NONE, L(i64, D(3), 1, -1, 0), L(i64, D(3), -7, 7, 1), L(i64, D(3), 2, -2, 0));
	CHECK(neg, NONE, L(i64, D(1), -5), L(i64, D(1), 5));
}

static void folding(void)
{
	Lit x = F(D(2, 3), 1, 2, 3, 4, 5, 6);
	CHECK(sum, I(1), F(D(2, 1), 6, 15), x);
	CHECK(sum, I(0, 1), F(D(1, 1), 21), x);
	CHECK(sum, I(0), L(i64, D(1), 6), L(i64, D(3), 1, 2, 3));
	CHECK(prod, I(0), F(D(1, 3), 4, 10, 18), x);
	CHECK(amax, I(1), F(D(2, 1), 3, NAN), F(D(2, 3), 1, 3, 2, 4, NAN, 6));
	CHECK(amin, I(1), F(D(2, 1), 1, NAN), F(D(2, 3), 1, 3, 2, NAN, 5, 6));
	CHECK(amin, I(0), L(i64, D(1), -2), L(i64, D(3), 5, -2, 7));
	CHECK(argmax, I(1), L(i64, D(2, 1), 1, 0), F(D(2, 3), 1, 3, 3, 6, 5, 6));
	CHECK(cumsum, I(1, 0, 0), F(D(2, 3), 1, 3, 6, 4, 9, 15), x);
	CHECK(cumsum, I(1, 1, 0), F(D(2, 3), 0, 1, 3, 0, 4, 9), x);
	CHECK(cumsum, I(0, 0, 1), F(D(2, 3), 5, 7, 9, 4, 5, 6), x);
	CHECK(cumsum, I(0, 1, 1), L(i64, D(3), 5, 3, 0), L(i64, D(3), 1, 2, 3));
}

static void moves(void)
{
	Lit x = F(D(2, 3), 1, 2, 3, 4, 5, 6);
	CHECK(reshape, I(3, 2), F(D(3, 2), 1, 2, 3, 4, 5, 6), x);
	CHECK(permute, I(1, 0), F(D(3, 2), 1, 4, 2, 5, 3, 6), x);
	CHECK(permute, I(2, 0, 1), F(D(2, 2, 1), 1, 3, 2, 4), F(D(2, 1, 2), 1, 2, 3, 4));
	CHECK(slice, I(1, 1, 1, 2, 2, -2), F(D(1, 2), 6, 4), x);
	CHECK(expand, I(2, 2), F(D(2, 2), 1, 1, 2, 2), F(D(2, 1), 1, 2));
	CHECK(pad, IX(9, 0, 1, 2, 0), F(D(2, 3), 9, 9, 1, 9, 9, 9), F(D(1, 1), 1));
	CHECK(window, IX(7, 0, 3, 2, 1, 1, 1, 1), F(D(3, 2), 7, 1, 1, 2, 2, 7), F(D(2), 1, 2));
	CHECK(concat, I(1), F(D(2, 3), 1, 2, 7, 3, 4, 8), F(D(2, 2), 1, 2, 3, 4), F(D(2, 1), 7, 8));
	CHECK(dot, NONE, F(D(2, 2), 22, 28, 49, 64), x, F(D(3, 2), 1, 2, 3, 4, 5, 6));
	CHECK(dot, NONE, F(D(2, 1, 1), 11, 17), F(D(1, 1, 2), 1, 2), F(D(2, 2, 1), 3, 4, 5, 6));
}

static void indices(void)
{
	Lit x = F(D(3, 2), 1, 2, 3, 4, 5, 6), at = L(i64, D(3), 2, 0, 2);
	CHECK(gather, I(0), F(D(3, 2), 5, 6, 1, 2, 5, 6), x, at);
	CHECK(gather, I(1), F(D(3, 1, 2), 2, 1, 4, 3, 6, 5), x, L(i64, D(1, 2), 1, 0));
	CHECK(gather, I(0), F(D(2), 3, 4), x, L(i64, SCALAR, 1));
	CHECK(gather, I(0), F(D(4, 2), 3, 4, 3, 4, 1, 2, 1, 2), x, L(i64, D(4), 1, 1, 0, 0));
	CHECK(gather, I(1), F(D(3, 2, 2), 2, 2, 2, 2, 4, 4, 4, 4, 6, 6, 6, 6), x,
	      L(i64, D(2, 2), 1, 1, 1, 1));
	Lit update = F(D(3, 2), 10, 20, 30, 40, 2, 3);
	CHECK(scatter, I(0, 0), F(D(3, 2), 30, 40, 3, 4, 2, 3), x, at, update);
	CHECK(scatter, I(0, 1), F(D(3, 2), 31, 42, 3, 4, 17, 29), x, at, update);
	CHECK(scatter, I(0, 2), F(D(3, 2), 30, 80, 3, 4, 100, 360), x, at, update);
	CHECK(scatter, I(0, 3), F(D(3, 2), 1, 2, 3, 4, 2, 3), x, at, update);
	CHECK(scatter, I(0, 4), F(D(3, 2), 30, 40, 3, 4, 10, 20), x, at, update);
	CHECK(scatter, I(1, 1), F(D(1, 2), 1, 9), F(D(1, 2), 1, 2), L(i64, D(2), 1, 1),
	      F(D(1, 2), 3, 4));
}

static void composites(void)
{
	static const double act[ACTS][4] = {
	    [A_relu] = {0, 0, 0, 2},
	    [A_relu6] = {0, 0, 0, 2},
	    [A_gelu] = {-0.000126684967332, -0.154268769363, 0, 1.9544997361},
	    [A_gelu_tanh] = {-7.02459481923e-05, -0.154285990175, 0, 1.95459769409},
	    [A_gelu_quick] = {-0.00441472413958, -0.149611563394, 0, 1.93565862314},
	    [A_silu] = {-0.0719448398484, -0.188770334399, 0, 1.76159415596},
	    [A_tanh] = {-0.999329299739, -0.46211715726, 0, 0.964027580076},
	    [A_sigmoid] = {0.0179862099621, 0.377540668798, 0.5, 0.880797077978},
	    [A_hardtanh] = {-1, -0.5, 0, 1},
	    [A_hardswish] = {0, -0.208333333333, 0, 1.66666666667},
	    [A_hardsigmoid] = {0, 0.416666666667, 0.5, 0.833333333333},
	    [A_softplus] = {0.0181499279178, 0.47407698418, 0.69314718056, 2.12692801104},
	    [A_mish] = {-0.072591740792, -0.220743774652, 0, 1.94395895953},
	};
	for (int a = 0; a < ACTS; a++)
		CHECK(act, I(a), ((Lit){E_f32, D(4), act[a]}), F(D(4), -4, -0.5, 0, 2));
	Lit x = F(D(2, 3), 1, 2, 4, 0, 0, -1);
	CHECK(softmax, I(1),
	      F(D(2, 3), 0.04201006613406605, 0.11419519938459449, 0.8437947344813395,
	        0.4223187982515182, 0.4223187982515182, 0.15536240349696362),
	      x);
	CHECK(lse, I(1), F(D(2, 1), 4.169846019556285, 0.8619948040582511), x);
	CHECK(maxpool, I(1), F(D(2, 1), 3, NAN), F(D(2, 3), 1, 3, 2, 4, NAN, 6));
	CHECK(detach, NONE, F(D(2), 3, NAN), F(D(2), 3, NAN));
	Lit row = F(D(1, 3), 1, 2, 4);
	CHECK(norm, IX(0.5, 1, 1),
	      F(D(1, 3), -0.9299811099505544, -0.23249527748763868, 1.1624763874381927), row);
	CHECK(norm, IX(0.5, 0, 1),
	      F(D(1, 3), 0.3651483716701107, 0.7302967433402214, 1.4605934866804429), row);
	Lit q = F(D(2, 2), 1, 0, 0, 2), k = F(D(3, 2), 1, 1, 2, -1, 0, 0.5),
	    v = F(D(3, 1), 1, 2, 4);
	CHECK(attend, IX(0.5, 0, 0), F(D(2, 1), 2.0654515607331967, 2.122317862799775), q, k, v);
	CHECK(attend, IX(0.5, 1, 0), F(D(2, 1), 1.6224593312018547, 2.122317862799775), q, k, v);
	CHECK(attend, IX(0.5, 0, 0), F(D(2, 1), 1.5050205778764456, 1.2615508173343013), q, k, v,
	      F(D(1, 3), 1, 0, -1));
	CHECK(attend, IX(0.5, 0, 1), F(D(2, 1), 3, 0), q, k, v,
	      F(D(2, 3), -INFINITY, 0, 0, -INFINITY, -INFINITY, -INFINITY),
	      L(b8, D(1, 3), 0, 0, 0));
	CHECK(attend, IX(0.5, 0, 0), F(D(2, 1), 3, NAN), q, k, v,
	      F(D(2, 3), -INFINITY, 0, 0, -INFINITY, -INFINITY, -INFINITY),
	      L(b8, D(1, 3), 0, 0, 0));
	CHECK(attend, IX(0.5, 0, 0), F(D(2, 1), 1.359686664340387, 1.4259030070323053), q, k, v,
	      F(D(1, 1), 0), L(b8, D(1, 1), 1), F(D(2, 3), 2, 0, 1, 1, 1, 0.5));
	Lit g = F(D(2, 1), 1, -2), delta = F(D(2, 1), 1.6224593312018547, -4.24463572559955);
	Lit stats = F(D(2, 2), 1.0, 0.6224593312018546, 1.0, 0.5740969929676946);
	CHECK(attend_stats, IX(0.5, 1, 0), stats, q, k);
	CHECK(attend_dq, IX(0.5, 1, 0),
	      F(D(2, 2), 0.11750185610079714, -0.2350037122015945, 0.6633264245681683,
	        0.30790431930797424),
	      q, k, v, g, stats, delta);
	CHECK(attend_dk, IX(0.5, 1, 0),
	      F(D(3, 2), -0.11750185610079728, 1.2886386203745608, 0.1175018561007972,
	        0.019007114380887827, 0.0, -1.3076457347554489),
	      q, k, v, g, stats, delta);
	CHECK(attend_dv, IX(0.5, 1, 0),
	      F(D(3, 1), -0.7706533171372436, 0.4670681729047134, -0.6964148557674696), q, k, v, g,
	      stats, delta);
	// two heads, which differ in the gradient of the result, and share the bias
	double most = 1.0, share[] = {0.6224593312018546, 0.5740969929676946};
	CHECK(attend_db, IX(0.5, 1, 0, 1),
	      F(D(1, 2, 3), -0.7050111366047837, 0.7050111366047832, 0, 0.6443193101872804,
	        0.0095035571904439, -0.6538228673777245),
	      F(D(2, 2, 2), 1, 0, 0, 2, 1, 0, 0, 2),
	      F(D(2, 3, 2), 1, 1, 2, -1, 0, 0.5, 1, 1, 2, -1, 0, 0.5),
	      F(D(2, 3, 1), 1, 2, 4, 1, 2, 4), F(D(2, 2, 1), 1, -2, 2, 1),
	      F(D(2, 2, 2), most, share[0], most, share[1], most, share[0], most, share[1]),
	      F(D(2, 2, 1), 1.6224593312018547, -4.24463572559955, 3.2449186624037094,
	        2.122317862799775),
	      F(D(1, 1, 1), 0));
	Lit ends = F(D(3, 2), -INFINITY, -INFINITY, INFINITY, 1, -INFINITY, 2);
	CHECK(softmax, I(1), F(D(3, 2), NAN, NAN, NAN, NAN, 0, 1), ends);
	CHECK(lse, I(1), F(D(3, 1), -INFINITY, INFINITY, 2), ends);
}

static void every_primitive(void)
{
	for (int op = 0; op < OPS; op++) // loops: loop.c
		EXPECT(seen[op] || prims[op].cls == C_loop, "no check of %s", prims[op].name);
}

// ---- window as convolution ------------------------------------------------------------

enum { CHANNELS = 2, HIGH = 5, WIDE = 6, TAPS = 3, STRIDE = 2, PAD = 1, DILATION = 2 };

static double naive_tap(const double *x, int c, int row, int column)
{
	return row < 0 || row >= HIGH || column < 0 || column >= WIDE
	           ? 0
	           : x[(c * HIGH + row) * WIDE + column];
}

static void window_is_convolution(void)
{
	double x[CHANNELS * HIGH * WIDE], kernel[CHANNELS * TAPS * TAPS];
	for (int i = 0; i < COUNT(x); i++)
		x[i] = sin(i);
	for (int i = 0; i < COUNT(kernel); i++)
		kernel[i] = cos(3 * i);
	int high = (HIGH + 2 * PAD - DILATION * (TAPS - 1) - 1) / STRIDE + 1;
	int wide = (WIDE + 2 * PAD - DILATION * (TAPS - 1) - 1) / STRIDE + 1;
	Graph *g = graph_new(arena, "convolution", NULL);
	Shape shape = D(CHANNELS, HIGH, WIDE), taps = D(CHANNELS, 1, 1, TAPS, TAPS);
	Ref image = put_slot(g, add_slot(g, (Slot){.name = "x", .type = E_f64, .shape = shape}));
	Ref weight = put_slot(g, add_slot(g, (Slot){.name = "w", .type = E_f64, .shape = taps}));
	Attr attr =
	    I(1, high, TAPS, STRIDE, DILATION, PAD, 1, 2, wide, TAPS, STRIDE, DILATION, PAD, 1);
	Ref windows = put(g, O_window, 1, &image, &attr);
	Ref y = put_reduce(g, O_sum, put2(g, O_mul, windows, weight), 3, (int64_t[]){0, 3, 4});
	add_out(g, "y", y);
	Array slots[] = {{.type = E_f64, .shape = shape, .f = x},
	                 {.type = E_f64, .shape = taps, .f = kernel}};
	const double *found = eval_graph(arena, g, slots)[y].f;
	for (int o = 0; o < high * wide; o++) {
		double sum = 0;
		for (int k = 0; k < COUNT(kernel); k++)
			sum += kernel[k] *
			       naive_tap(x, k / TAPS / TAPS,
			                 o / wide * STRIDE + k / TAPS % TAPS * DILATION - PAD,
			                 o % wide * STRIDE + k % TAPS * DILATION - PAD);
		EXPECT(near(found[o], sum, 1e-12), "convolution at %d: %g, wanted %g", o, found[o],
		       sum);
	}
}

// A transposed convolution gathers with up = stride and dilation -1; the simple loop scatters each
// input.
static void window_is_transposed_convolution(void)
{
	enum { IN = 4, OUT = (IN - 1) * STRIDE + TAPS - 2 * PAD };
	double x[IN] = {1, -2, 3, 5}, kernel[TAPS] = {0.5, 2, -1}, expected[OUT] = {0};
	for (int i = 0; i < IN; i++)
		for (int k = 0; k < TAPS; k++)
			if (i * STRIDE + k - PAD >= 0 && i * STRIDE + k - PAD < OUT)
				expected[i * STRIDE + k - PAD] += x[i] * kernel[k];
	Graph *g = graph_new(arena, "transposed", NULL);
	Ref in = put_slot(g, add_slot(g, (Slot){.name = "x", .type = E_f64, .shape = D(IN)}));
	Attr attr = I(0, OUT, TAPS, 1, -1, -PAD, STRIDE);
	Ref w = put_const(g, E_f64, D(1, TAPS), kernel);
	Ref y = put_reduce(g, O_sum, put2(g, O_mul, put(g, O_window, 1, &in, &attr), w), 1,
	                   (int64_t[]){1});
	add_out(g, "y", y);
	Array slots[] = {{.type = E_f64, .shape = D(IN), .f = x}};
	compare(__LINE__, "transposed convolution", &eval_graph(arena, g, slots)[y],
	        &(Lit){E_f64, D(OUT, 1), expected}, 1e-12);
}

// ---- the door -------------------------------------------------------------------------

typedef struct Wrong {
	Op op;
	Attr attr;
	int nin;
	Lit in[3];
	const char *message; // a substring of it
} Wrong;

static void check_wrong(const Wrong *w)
{
	Graph *g = graph_new(arena, "model.onnx", NULL);
	g->from = add_node(g, "layer1", "Thing");
	Ref in[3];
	for (int k = 0; k < w->nin; k++)
		in[k] = put_slot(
		    g, add_slot(
		           g, (Slot){.name = "x", .type = w->in[k].type, .shape = w->in[k].shape}));
	Catch c;
	if (!TRY(c)) {
		put(g, w->op, w->nin, in, &w->attr);
		catch_end(&c);
		EXPECT(false, "%s passes: wanted '%s'", prims[w->op].name, w->message);
		return;
	}
	EXPECT(strstr(c.message, w->message) && strstr(c.message, "layer1") &&
	           strstr(c.message, "model.onnx"),
	       "'%s', wanted '%s'", c.message, w->message);
	free(c.message);
}

#define X(...)                                                                                     \
	{                                                                                          \
		E_f32, D(__VA_ARGS__), NULL                                                        \
	}
#define N(...)                                                                                     \
	{                                                                                          \
		E_i64, D(__VA_ARGS__), NULL                                                        \
	}

static void wrong_types(void)
{
	const Wrong all[] = {
	    {O_add, NONE, 2, {X(2), X(3)}, "axis 0 is 2 in one operand and 3 in another"},
	    {O_add, NONE, 2, {X(2), X(1, 2)}, "expected equal numbers"},
	    {O_add, NONE, 2, {X(2), N(2)}, "expected one type"},
	    {O_add, NONE, 1, {X(2)}, "expected 2 operands, found 1"},
	    {O_exp, NONE, 1, {N(2)}, "expected a float, found i64"},
	    {O_not, NONE, 1, {X(2)}, "expected a Boolean"},
	    {O_and, NONE, 2, {X(2), X(2)}, "expected an integer or Boolean"},
	    {O_select, NONE, 3, {X(2), X(2), X(2)}, "expected a Boolean"},
	    {O_cast, I(ELEMS), 1, {X(2)}, "no such type"},
	    {O_sum, I(2), 1, {X(2, 3)}, "axis 2 is not one of the operand's 2"},
	    {O_sum, I(1, 0), 1, {X(2, 3)}, "ascend"},
	    {O_amax, I(0), 1, {X(0, 3)}, "empty"},
	    {O_argmax, I(0, 1), 1, {X(2, 3)}, "expected one axis"},
	    {O_reshape, I(5), 1, {X(2, 3)}, "f32[5] holds 5 elements, the operand 6"},
	    {O_reshape, I(-1, 6), 1, {X(2, 3)}, "axis 0 has size -1"},
	    {O_permute, I(0, 0), 1, {X(2, 3)}, "is twice in the permutation"},
	    {O_permute, I(0), 1, {X(2, 3)}, "expected 2 numbers"},
	    {O_slice,
	     I(1, 2, 1),
	     1,
	     {X(2)},
	     "axis 0 has size 2, exceeded by 2 elements from 1 by steps of 1"},
	    {O_expand, I(3), 1, {X(2)}, "axis 0 is 2 and cannot become 3"},
	    {O_pad, I(-1, 0), 1, {X(2)}, "negative padding"},
	    {O_window, I(0, 1, 1, 0, 1, 0, 1), 1, {X(2)}, "stride 0"},
	    {O_concat, I(0), 2, {X(2, 3), X(2, 4)}, "axis 1 of operand 1 is 4, of the first 3"},
	    {O_dot, NONE, 2, {X(2, 3), X(4, 5)}, "contracted axes do not agree: 3 and 4"},
	    {O_dot,
	     NONE,
	     2,
	     {X(2, 1, 3), X(3, 3, 5)},
	     "axis 0 is 2 in one operand and 3 in another"},
	    {O_gather, I(0), 2, {X(2), X(2)}, "expected an integer"},
	    {O_scatter, I(0, 0), 3, {X(4, 2), N(3), X(3, 3)}, "expected f32[3,2]"},
	    {O_scatter, I(0, 5), 3, {X(4, 2), N(3), X(3, 2)}, "no such mode: 5"},
	    {O_norm, I(1, 2), 1, {X(4, 2)}, "axis 2 is not one of the operand's 2"},
	    {O_act, I(99), 1, {X(4, 2)}, "no such activation: 99"},
	    {O_attend,
	     IX(1, 0, 0),
	     3,
	     {X(4, 2), X(3, 2), X(5, 2)},
	     "lengths of key and value do not agree"},
	    {O_iota, I(2, 3, 4), 0, {{0}}, "no axis to count along"},
	    {O_reshape, I(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1), 1, {X(1)}, "at most 10"},
	    {O_expand, I(1ll << 40, 1ll << 40), 1, {X(1, 1)}, "more than 2^57 elements"},
	};
	for (int k = 0; k < COUNT(all); k++)
		check_wrong(&all[k]);
}

static void wrong_index(void)
{
	Graph *g = graph_new(arena, "model.onnx", NULL);
	Ref x = put_slot(g, add_slot(g, (Slot){.name = "x", .type = E_f32, .shape = D(4, 2)}));
	for (int64_t i = -1; i <= 4; i += 5) {
		Catch c;
		if (!TRY(c)) {
			put_gather(g, x, put_const(g, E_i64, D(1), &i), 0);
			catch_end(&c);
			EXPECT(false, "index %lld passes", (long long)i);
			continue;
		}
		EXPECT(strstr(c.message, "lies outside of an axis of 4"), "'%s'", c.message);
		free(c.message);
	}
}

// Empty axes are legal: nothing is computed, and reductions over them give their initial value.
static void empty_axes(void)
{
	static const double none[1];
	Lit x = {E_f32, D(2, 0), none};
	CHECK(exp, NONE, x, x);
	CHECK(sum, I(1), F(D(2, 1), 0, 0), x);
	CHECK(softmax, I(1), x, x);
	CHECK(lse, I(1), F(D(2, 1), -INFINITY, -INFINITY), x);
	CHECK(pad, IX(3, 0, 0, 1, 0), F(D(2, 1), 3, 3), x);
	CHECK(dot, NONE, F(D(2, 2), 0, 0, 0, 0), x, ((Lit){E_f32, D(0, 2), none}));
	CHECK(concat, I(1), F(D(2, 1), 4, 5), x, F(D(2, 1), 4, 5));
	CHECK(gather, I(0), ((Lit){E_f32, D(0, 2), none}), F(D(1, 2), 1, 2),
	      ((Lit){E_i64, D(0), none}));
}

// A result that is too large to be folded is decomposed for kernels.
static void empty_lse(void)
{
	Graph *g = graph_new(arena, "empty", book_builtin());
	Shape shape = D(2 * FOLD_LIMIT, 0);
	Ref x = put_slot(g, add_slot(g, (Slot){.name = "x", .type = E_f32, .shape = shape}));
	Ref lse = put_reduce(g, O_lse, x, 1, (int64_t[]){1});
	EXPECT(val(g, lse)->op == O_lse, "lse of nothing is folded");
	add_out(g, "y", book_decompose(g, val(g, lse), &x));
	Array y = eval_graph(arena, g, NULL)[g->outs.at[0].val];
	EXPECT(y.f[0] == -INFINITY && y.f[2 * FOLD_LIMIT - 1] == -INFINITY, "it is %g", y.f[0]);
}

static void sharing(void)
{
	Graph *g = graph_new(arena, "sharing", NULL);
	Ref x = put_slot(g, add_slot(g, (Slot){.name = "x", .type = E_f32, .shape = D(2, 3)}));
	Ref y = put_slot(g, add_slot(g, (Slot){.name = "y", .type = E_f32, .shape = D(2, 3)}));
	g->from = add_node(g, "first", "Add");
	Ref sum = put2(g, O_add, x, y);
	g->from = add_node(g, "second", "Add");
	EXPECT(put2(g, O_add, y, x) == sum, "x + y and y + x are two values");
	EXPECT(put2(g, O_sub, x, y) != put2(g, O_sub, y, x), "x - y and y - x are one value");
	EXPECT(put_num(g, E_f32, 2) == put_num(g, E_f32, 2), "2 is two values");
	EXPECT(put_num(g, E_f32, 2) != put_num(g, E_i64, 2), "2 and 2.0 are one value");
	EXPECT(val(g, sum)->from == 1 && val(g, put1(g, O_neg, sum))->from == 2,
	       "origins are not kept");
	Ref scaled = put2(g, O_mul, put_num(g, E_f32, 2), x);
	EXPECT(is_const(g, val(g, scaled)->in[1]), "a constant stands left");
	int count = g->nval;
	add_out(g, "sum", sum);
	Graph *live = graph_live(arena, g);
	EXPECT(live->nval == 4 && g->nval == count, "%d values live, 3 are needed", live->nval - 1);
	EXPECT(put2(live, O_add, 1, 2) == live->outs.at[0].val,
	       "a live graph forgets what it shares");
}

static void identities(void)
{
	Graph *g = graph_new(arena, "identities", NULL);
	Ref x = put_slot(g, add_slot(g, (Slot){.name = "x", .type = E_f32, .shape = D(2, 3, 4)}));
	Ref one =
	    put_slot(g, add_slot(g, (Slot){.name = "one", .type = E_f32, .shape = D(1, 3, 1)}));
	Ref turned = put_permute(g, x, (int64_t[]){2, 0, 1});
	EXPECT(put_permute(g, turned, (int64_t[]){1, 2, 0}) == x, "permute back");
	EXPECT(put_reshape(g, put_reshape(g, x, D(24)), D(2, 3, 4)) == x, "reshape back");
	EXPECT(val(g, put_permute(g, one, (int64_t[]){1, 0, 2}))->op == O_reshape,
	       "permute of axes of 1");
	Ref part = put_slice(g, x, (int64_t[]){0, 1, 1}, (int64_t[]){2, 2, 3}, NULL);
	part =
	    put_slice(g, part, (int64_t[]){1, 1, 2}, (int64_t[]){1, 1, 2}, (int64_t[]){1, 1, -2});
	EXPECT(val(g, part)->in[0] == x && val(g, part)->attr->i[3] == 2 &&
	           val(g, part)->attr->i[6] == 3 && val(g, part)->attr->i[8] == -2,
	       "slice of slice");
	EXPECT(put_slice(g, x, (int64_t[]){0, 0, 0}, (int64_t[]){2, 3, 4}, NULL) == x,
	       "slice of all");
	Ref wide = put_expand(g, put_expand(g, one, D(2, 3, 1)), D(2, 3, 4));
	EXPECT(val(g, wide)->in[0] == one, "expand of expand");
	EXPECT(val(g, put2(g, O_add, x, wide))->in[1] == one, "a map stretches by itself");
	EXPECT(put_pad(g, x, (int64_t[]){0, 0, 0}, (int64_t[]){0, 0, 0}, 1) == x, "pad by nothing");
	EXPECT(put_concat(g, 0, 1, &x) == x, "concat of one");
	EXPECT(put_reduce(g, O_sum, one, 2, (int64_t[]){0, 2}) == one, "sum over axes of 1");
	Ref sums =
	    put_reduce(g, O_sum, put_reduce(g, O_sum, x, 1, (int64_t[]){2}), 1, (int64_t[]){0});
	EXPECT(sums == put_reduce(g, O_sum, x, 2, (int64_t[]){0, 2}), "sum of sum");
	EXPECT(is_const(g, put_reduce(g, O_argmax, one, 1, (int64_t[]){2})), "argmax over one");
	int64_t size = FOLD_LIMIT;
	Ref none = put_const(g, E_f32, D(2, size, 0), ""),
	    many = put_const(g, E_f32, D(2, 0, 3), "");
	EXPECT(val(g, put_reduce(g, O_prod, none, 1, (int64_t[]){2}))->op == O_expand,
	       "product of nothing");
	EXPECT(val(g, put2(g, O_dot, none, many))->op == O_expand, "dot over nothing");
	EXPECT(put_cast(g, x, E_f32) == x, "cast to the same");
	EXPECT(put_cast(g, put_cast(g, x, E_f64), E_f32) == x, "cast there and back");
	EXPECT(put_cast(g, put_cast(g, x, E_i64), E_f32) != x, "truncation is lost");
	Ref picked = put_gather(g, x, put_num(g, E_i64, 1), 1);
	EXPECT(val(g, picked)->op == O_reshape && val(g, val(g, picked)->in[0])->op == O_slice,
	       "gather of one");
	Ref twice = put_const(g, E_i64, D(4), (int64_t[]){2, 2, 0, 0});
	Ref enlarged = put_gather(g, x, twice, 2);
	EXPECT(val(g, enlarged)->op == O_reshape && val(g, val(g, enlarged)->in[0])->op == O_expand,
	       "gather of each twice");
	Ref uneven = put_const(g, E_i64, D(4), (int64_t[]){0, 0, 1, 2});
	EXPECT(val(g, put_gather(g, x, uneven, 2))->op == O_gather, "gather of some twice");
	Ref at = put_const(g, E_i64, D(0), ""), rows = put_const(g, E_f32, D(0, 3, 4), "");
	EXPECT(put_scatter(g, x, at, rows, 0, 0) == x, "scatter of nothing");
	Ref count = put_iota(g, D(4), 0);
	EXPECT(put_reshape(g, count, D(1, 4, 1)) == put_iota(g, D(1, 4, 1), 1), "reshape of iota");
	EXPECT(put_expand(g, put_iota(g, D(1, 4), 1), D(3, 4)) == put_iota(g, D(3, 4), 1),
	       "expand of iota");
	int64_t known[8];
	int n = 8;
	Ref odd = put2(g, O_add, put2(g, O_mul, count, put_num(g, E_i64, 2)), put_num(g, E_i64, 1));
	EXPECT(const_ints(g, odd, known, &n) && n == 4 && known[3] == 7, "2 iota + 1 is known");
}

static void narrow_floats(void)
{
	for (int bits = 0; bits < 1 << 16; bits++) {
		float half = amos_from_f16((uint16_t)bits), brain = amos_from_bf16((uint16_t)bits);
		if (!isnan(half))
			EXPECT(amos_to_f16(half) == bits, "half %04x", (unsigned)bits);
		if (!isnan(brain))
			EXPECT(amos_to_bf16(brain) == bits, "bf16 %04x", (unsigned)bits);
	}
	EXPECT(amos_from_f16(0x3C01) == 1 + 0x1p-10f && amos_from_f16(1) == 0x1p-24f,
	       "half's values");
	EXPECT(amos_to_f16(1 + 0x1p-11f) == 0x3C00 && amos_to_f16(1 + 0x3p-11f) == 0x3C02,
	       "half to even");
	EXPECT(amos_to_f16(65519) == 0x7BFF && amos_to_f16(65520) == 0x7C00, "half's end");
	EXPECT(amos_to_bf16(1 + 0x1p-8f) == 0x3F80 && amos_to_bf16(1 + 0x3p-8f) == 0x3F82,
	       "bf16 to even");
	EXPECT(isnan(amos_from_f16(amos_to_f16(NAN))) && isnan(amos_from_bf16(amos_to_bf16(NAN))),
	       "NaN");
}

int main(void)
{
	arena = arena_new();
	leaves();
	float_maps();
	zero_remainders();
	other_maps();
	folding();
	moves();
	indices();
	composites();
	every_primitive();
	window_is_convolution();
	window_is_transposed_convolution();
	wrong_types();
	wrong_index();
	empty_axes();
	empty_lse();
	sharing();
	identities();
	narrow_floats();
	arena_free(arena);
	printf("%d checks of %d primitives, %d failed\n", checks, OPS, failures);
	return failures > 0;
}
