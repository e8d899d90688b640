// math.c: emits exp, log, tanh, erf, sin, cos, atan and pow as arithmetic, in f32 and f64.
// LLVM lowers its own intrinsics for these poorly for CPUs and not at all for GPUs. Errors are
// within 4 ulp, the same on every target (tests/math.c); in f64 those of pow grow with |y log x|.
#include "gen.h"
#include <math.h>

enum { MOST = 20 }; // maximum number of coefficients

typedef struct Poly {
	int n;
	double c[MOST];
} Poly;

#define POLY(name, ...) static const Poly name = {COUNT(((double[]){__VA_ARGS__})), {__VA_ARGS__}};
#include "polynomials.def"
#undef POLY

static bool is_double(Value x)
{
	return LLVMGetTypeKind(scalar_type(x)) == LLVMDoubleTypeKind;
}

static Value poly(Gen *g, Value x, const Poly *p)
{
	Value y = real_like(x, p->c[0]);
	for (int k = 1; k < p->n; k++)
		y = mul_add(g, y, x, real_like(x, p->c[k]));
	return y;
}

static Value magnitude(Gen *g, Value x)
{
	return unary(g, "llvm.fabs", x);
}

static Value with_sign(Gen *g, Value x, Value sign)
{
	LLVMTypeRef type = LLVMTypeOf(x);
	return intrinsic(g, "llvm.copysign", 1, &type, 2, (Value[]){x, sign});
}

static Value mul(Gen *g, Value a, Value b)
{
	return LLVMBuildFMul(g->b, a, b, "");
}

static Value add(Gen *g, Value a, Value b)
{
	return LLVMBuildFAdd(g->b, a, b, "");
}

static Value sub(Gen *g, Value a, Value b)
{
	return LLVMBuildFSub(g->b, a, b, "");
}

static Value above(Gen *g, Value a, double b)
{
	return LLVMBuildFCmp(g->b, LLVMRealOGT, a, real_like(a, b), "");
}

static Value below(Gen *g, Value a, double b)
{
	return LLVMBuildFCmp(g->b, LLVMRealOLT, a, real_like(a, b), "");
}

// Limits x to [low, high]. NaN stays NaN.
static Value clamp(Gen *g, Value x, double low, double high)
{
	x = choose(g, above(g, x, high), real_like(x, high), x);
	return choose(g, below(g, x, low), real_like(x, low), x);
}

static LLVMTypeRef bits_type(Gen *g, Value x)
{
	return like(is_double(x) ? g->i64 : g->i32, x);
}

// ---- exp ------------------------------------------------------------------------------

// e^x = 2^n e^r, r = x - n ln 2, |r| <= ln 2 / 2; e^r - 1 = r + r^2 q(r).
static Value expm1_of_rest(Gen *g, Value x, Value n)
{
	bool d = is_double(x);
	Value r =
	    mul_add(g, n, real_like(x, d ? -6.93147180369123816490e-01 : -0.693145751953125), x);
	r = mul_add(g, n, real_like(x, d ? -1.90821492927058770002e-10 : -1.42860677e-6), r);
	return mul_add(g, mul(g, r, r), poly(g, r, d ? &exp_f64 : &exp_f32), r);
}

static Value exp_of_rest(Gen *g, Value x, Value n)
{
	return add(g, expm1_of_rest(g, x, n), real_like(x, 1));
}

// Returns e^x without its limits: n is added to the exponent of e^r, which takes few instructions,
// but n has to be in range.
static Value exp_in_range(Gen *g, Value x)
{
	Value shift = real_like(x, 0x1.8p23); // a sum with it ends in an integer, to its last bit
	Value sum = mul_add(g, x, real_like(x, M_LOG2E), shift);
	Value y = exp_of_rest(g, x, sub(g, sum, shift));
	LLVMTypeRef bits = bits_type(g, x);
	Value n = LLVMBuildBitCast(g->b, sum, bits, "");
	n = LLVMBuildShl(g->b, n, int_like(n, 23), "");
	return LLVMBuildAdd(g->b, LLVMBuildBitCast(g->b, y, bits, ""), n, "");
}

// Subnormal results are 0: a CPU takes a hundred times as long for them, and a masked softmax is
// full of them.
static const double least_exponent = -87.336544;

static Value exp_in_f32(Gen *g, Value x)
{
	Value y = LLVMBuildBitCast(g->b, exp_in_range(g, x), LLVMTypeOf(x), "");
	Value finite = LLVMBuildFCmp(g->b, LLVMRealOLE, x, real_like(x, 88.72283), "");
	y = choose(g, finite, y, mul(g, x, real_like(x, INFINITY))); // infinity or NaN
	return choose(g, below(g, x, least_exponent), real_like(x, 0), y);
}

// The same with the GPU's own power of 2, whose error is 2 ulp: e^x = 2^t (1 + r ln 2), where t is
// x log2 e rounded, and r what was lost. Where 2^t is 0 or infinite, there is no rest.
static Value exp_by_power(Gen *g, Value x)
{
	Value per_2 = real_like(x, M_LOG2E), t = mul(g, x, per_2);
	Value rest = mul_add(g, x, per_2, LLVMBuildFNeg(g->b, t, ""));
	rest = mul_add(g, x, real_like(x, M_LOG2E - (float)M_LOG2E), rest);
	Value power = g->ops->exp2(g, t);
	Value y = mul_add(g, power, mul(g, rest, real_like(x, M_LN2)), power);
	Value size = intrinsic(g, "llvm.fabs", 1, (LLVMTypeRef[]){g->f32}, 1, &t);
	return choose(g, LLVMBuildFCmp(g->b, LLVMRealOLT, size, real_like(x, 128), ""), y, power);
}

static Value power_of_two(Gen *g, Value n)
{
	n = LLVMBuildAdd(g->b, n, int_like(n, 1023), "");
	n = LLVMBuildShl(g->b, n, int_like(n, 52), "");
	return LLVMBuildBitCast(g->b, n, like(g->f64, n), "");
}

// Multiplies by 2^n in two steps, because 2^n may be out of range.
static Value exp_in_f64(Gen *g, Value x)
{
	x = clamp(g, x, -746, 710);
	Value n = math_rint(g, mul(g, x, real_like(x, M_LOG2E)));
	Value i = LLVMBuildFPToSI(g->b, n, bits_type(g, x), "");
	Value half = LLVMBuildAShr(g->b, i, int_like(i, 1), "");
	Value y = mul(g, exp_of_rest(g, x, n), power_of_two(g, half));
	return mul(g, y, power_of_two(g, LLVMBuildSub(g->b, i, half, "")));
}

Value math_exp(Gen *g, Value x)
{
	return is_double(x)   ? exp_in_f64(g, x)
	       : g->ops->exp2 ? exp_by_power(g, x)
	                      : exp_in_f32(g, x);
}

// Returns 2^n, n = x log2(e) to the nearest integer. x is raised to where n = -127 and 2^n is 0:
// the last bits of the sum with `shift` are the exponent.
static Value falling_power(Gen *g, Value *x, Value *n)
{
	double least = -127 / M_LOG2E;
	*x = choose(g, below(g, *x, least), real_like(*x, least), *x);
	Value shift = real_like(*x, 0x1.8p23 + 127);
	Value sum = mul_add(g, *x, real_like(*x, M_LOG2E), shift);
	*n = sub(g, sum, shift);
	Value power = LLVMBuildBitCast(g->b, sum, bits_type(g, sum), "");
	power = LLVMBuildShl(g->b, power, int_like(power, 23), "");
	return LLVMBuildBitCast(g->b, power, LLVMTypeOf(sum), "");
}

// 2^n (e^r - 1) + 2^n: the bits of math_exp(), but where that returns 0 for what is subnormal.
Value math_exp_falling(Gen *g, Value x)
{
	if (is_double(x) || g->ops->exp2)
		return math_exp(g, x);
	Value n, power = falling_power(g, &x, &n);
	return mul_add(g, expm1_of_rest(g, x, n), power, power);
}

// e^x = 2^n 2^r, r = x log2(e) - n, |r| <= 1/2; 2^r = 1 + r q(r). Its error is 1.5 ulp, and that of
// log2 e in f32, which is as if x were off by a fourth of an ulp: instructions count in a softmax.
Value math_exp_below(Gen *g, Value x)
{
	if (is_double(x))
		return exp_in_f64(g, x);
	Value n, power = falling_power(g, &x, &n);
	Value r = mul_add(g, x, real_like(x, M_LOG2E), LLVMBuildFNeg(g->b, n, ""));
	return mul_add(g, mul(g, r, power), poly(g, r, &exp2_f32), power);
}

// ---- log ------------------------------------------------------------------------------

// log x = n ln 2 + log m, m in [sqrt(1/2), sqrt(2)); log m = 2 s + s^3 R(s^2), s = (m - 1) / (m +
// 1).
static Value log_normal(Gen *g, Value x, Value shift)
{
	bool d = is_double(x);
	int place = d ? 52 : 23;
	int64_t root = d ? 0x3FE6A09E667F3BCD : 0x3F3504F3; // of 1/2, as bits
	Value i = LLVMBuildBitCast(g->b, x, bits_type(g, x), "");
	Value above_root = LLVMBuildSub(g->b, i, int_like(i, root), "");
	Value n = LLVMBuildAShr(g->b, above_root, int_like(i, place), "");
	i = LLVMBuildSub(g->b, i, LLVMBuildShl(g->b, n, int_like(i, place), ""), "");
	Value f = sub(g, LLVMBuildBitCast(g->b, i, LLVMTypeOf(x), ""), real_like(x, 1));
	Value s = LLVMBuildFDiv(g->b, f, add(g, f, real_like(x, 2)), "");
	Value z = mul(g, s, s);
	Value y = mul(g, mul(g, s, z), poly(g, z, d ? &log_f64 : &log_f32));
	Value exponent = sub(g, LLVMBuildSIToFP(g->b, n, LLVMTypeOf(x), ""), shift);
	y = mul_add(g, exponent, real_like(x, d ? 1.90821492927058770002e-10 : 1.42860677e-6), y);
	y = add(g, y, add(g, s, s));
	return mul_add(g, exponent,
	               real_like(x, d ? 6.93147180369123816490e-01 : 0.693145751953125), y);
}

Value math_log(Gen *g, Value x)
{
	bool d = is_double(x);
	Value least = real_like(x, d ? 0x1p-1022 : 0x1p-126), zero = real_like(x, 0);
	Value tiny = LLVMBuildFCmp(g->b, LLVMRealOLT, x, least, "");
	Value up = mul(g, x, real_like(x, d ? 0x1p54 : 0x1p25));
	Value y =
	    log_normal(g, choose(g, tiny, up, x), choose(g, tiny, real_like(x, d ? 54 : 25), zero));
	Value infinite = LLVMBuildFCmp(g->b, LLVMRealOEQ, x, real_like(x, INFINITY), "");
	y = choose(g, infinite, x, y);
	y = choose(g, LLVMBuildFCmp(g->b, LLVMRealOEQ, x, zero, ""), real_like(x, -INFINITY), y);
	return choose(g, LLVMBuildFCmp(g->b, LLVMRealULT, x, zero, ""), real_like(x, NAN), y);
}

// log(w), w = 1 + x, plus the error of rounding w.
Value math_log1p(Gen *g, Value x)
{
	Value one = real_like(x, 1), w = add(g, x, one), y = math_log(g, w);
	Value lost = LLVMBuildFDiv(g->b, sub(g, x, sub(g, w, one)), w, "");
	return choose(g, below(g, magnitude(g, y), INFINITY), add(g, y, lost), y);
}

// ---- tanh, erf ------------------------------------------------------------------------

// x P(x^2) / Q(x^2), clamped to |x| <= limit, where it is 1 in f32 but for rounding.
static Value odd_ratio(Gen *g, Value x, double limit, const Poly *p, const Poly *q)
{
	x = clamp(g, x, -limit, limit);
	Value z = mul(g, x, x);
	return clamp(g, LLVMBuildFDiv(g->b, mul(g, x, poly(g, z, p)), poly(g, z, q), ""), -1, 1);
}

// In f64, a polynomial near 0, and 1 - 2 / (e^2x + 1) elsewhere.
Value math_tanh(Gen *g, Value x)
{
	if (!is_double(x))
		return odd_ratio(g, x, 9, &tanh_above_f32, &tanh_below_f32);
	Value a = magnitude(g, x), z = mul(g, x, x), one = real_like(x, 1);
	Value small = mul_add(g, mul(g, x, z), poly(g, z, &tanh_near_f64), x);
	Value e = add(g, math_exp(g, add(g, a, a)), one);
	Value large = sub(g, one, LLVMBuildFDiv(g->b, real_like(x, 2), e, ""));
	return choose(g, below(g, a, 0.4), small, with_sign(g, large, x));
}

// tanh(x / 2) (e^x + 1)
Value math_expm1(Gen *g, Value x)
{
	Value half = math_tanh(g, mul(g, x, real_like(x, 0.5)));
	return mul(g, half, add(g, math_exp(g, x), real_like(x, 1)));
}

// In f64, x P(x^2) below 1, and 1 - t exp(P(t) - x^2), t = 2 / (2 + x), up to 6, where it is 1.
Value math_erf(Gen *g, Value x)
{
	if (!is_double(x))
		return odd_ratio(g, x, 3.93, &erf_above_f32, &erf_below_f32);
	Value a = clamp(g, magnitude(g, x), 0, 6), z = mul(g, a, a), one = real_like(x, 1);
	Value small = mul(g, x, poly(g, z, &erf_near_f64));
	Value t = LLVMBuildFDiv(g->b, real_like(x, 2), add(g, a, real_like(x, 2)), "");
	Value power = sub(g, poly(g, sub(g, t, real_like(x, 11 / 24.0)), &erf_far_f64), z);
	Value large = sub(g, one, mul(g, t, math_exp(g, power)));
	return choose(g, below(g, a, 1), small, with_sign(g, large, x));
}

// ---- sin, cos, atan -------------------------------------------------------------------

// Returns the sine of x + quarter pi/2: with x = n pi/2 + r, |r| <= pi/4, n modulo 4 selects the
// sine or cosine of r and its sign.
static Value circular(Gen *g, Value x, double quarter)
{
	bool d = is_double(x);
	// Parts of pi/2. Those before the last have trailing zero bits, so that n times one is
	// exact.
	static const double part[2][4] = {
	    {1.5703125, 4.83751296997070312e-4, 7.549533620476723e-8, 2.563344151594519e-12},
	    {1.57079632673412561417, 6.07710050630396597660e-11, 2.02226624879595063154e-21}};
	Value n = math_rint(g, mul(g, x, real_like(x, M_2_PI))), r = x;
	for (int k = 0; k < 4 && part[d][k] != 0; k++)
		r = mul_add(g, n, real_like(x, -part[d][k]), r);
	r = reduce_angle(g, x, r, &n);
	Value z = mul(g, r, r), one = real_like(x, 1);
	Value s = mul_add(g, mul(g, r, z), poly(g, z, d ? &sin_f64 : &sin_f32), r);
	Value c = mul_add(g, z, real_like(x, -0.5), one);
	c = mul_add(g, mul(g, z, z), poly(g, z, d ? &cos_f64 : &cos_f32), c);
	n = add(g, n, real_like(x, quarter));
	Value turn = math_floor(g, mul(g, n, real_like(x, 0.25)));
	n = mul_add(g, turn, real_like(x, -4), n);
	Value odd =
	    LLVMBuildOr(g->b, LLVMBuildFCmp(g->b, LLVMRealOEQ, n, one, ""), above(g, n, 2.5), "");
	Value y = choose(g, odd, c, s);
	return choose(g, above(g, n, 1.5), LLVMBuildFNeg(g->b, y, ""), y);
}

Value math_sin(Gen *g, Value x)
{
	return circular(g, x, 0);
}

Value math_cos(Gen *g, Value x)
{
	return circular(g, x, 1);
}

// Reduces x above 1 to 1 / x, then t above tan(pi/8) to (t - 1) / (t + 1).
Value math_atan(Gen *g, Value x)
{
	Value a = magnitude(g, x), one = real_like(x, 1), zero = real_like(x, 0);
	Value over = above(g, a, 1);
	bool d = is_double(x);
	Value t = choose(g, over, LLVMBuildFDiv(g->b, one, a, ""), a);
	Value upper = above(g, t, 0.4142135623730950488);
	Value turned = LLVMBuildFDiv(g->b, sub(g, t, one), add(g, t, one), "");
	t = choose(g, upper, turned, t);
	Value z = mul(g, t, t);
	Value y = mul_add(g, mul(g, t, z), poly(g, z, d ? &atan_f64 : &atan_f32), t);
	y = add(g, y, choose(g, upper, real_like(x, M_PI_4), zero));
	y = choose(g, over, sub(g, real_like(x, M_PI_2), y), y);
	return with_sign(g, y, x);
}

// ---- pow ------------------------------------------------------------------------------

static Value equal(Gen *g, Value a, Value b)
{
	return LLVMBuildFCmp(g->b, LLVMRealOEQ, a, b, "");
}

// e^(y log |x|), negated if x < 0 and y is odd; NaN if x is finite and below 0 and y no integer.
// Computed in double, because y multiplies the error of the logarithm.
Value math_pow(Gen *g, Value x, Value y)
{
	if (!is_double(x)) {
		LLVMTypeRef narrow = LLVMTypeOf(x), wide = like(g->f64, x);
		Value p = math_pow(g, LLVMBuildFPExt(g->b, x, wide, ""),
		                   LLVMBuildFPExt(g->b, y, wide, ""));
		return LLVMBuildFPTrunc(g->b, p, narrow, "");
	}
	Value one = real_like(x, 1), zero = real_like(x, 0);
	Value p = math_exp(g, mul(g, y, math_log(g, magnitude(g, x))));
	Value floor = math_floor(g, y), half = mul(g, floor, real_like(x, 0.5));
	Value odd = LLVMBuildFCmp(g->b, LLVMRealUNE, half, math_floor(g, half), "");
	Value signed_power = choose(g, odd, LLVMBuildFNeg(g->b, p, ""), p);
	Value some =
	    LLVMBuildOr(g->b, equal(g, floor, y), equal(g, x, real_like(x, -INFINITY)), "");
	signed_power = choose(g, some, signed_power, real_like(x, NAN));
	p = choose(g, LLVMBuildFCmp(g->b, LLVMRealOLT, x, zero, ""), signed_power, p);
	Value always = LLVMBuildOr(g->b, equal(g, y, zero), equal(g, x, one), "");
	return choose(g, always, one, p);
}
