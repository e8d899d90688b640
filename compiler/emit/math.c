// math.c: exp, log, tanh, erf, sin, cos, atan and pow as plain arithmetic, in f32 and f64, for any
// number of lanes. Takes gen.h. One set of numbers on every target: no target lowers the generic
// ones well, a GPU's not at all. Coefficients are Chebyshev or least-maximum fits of our own;
// errors are within 3 ulp; in f64 those of pow grow with |y log x|.
#include "gen.h"
#include <math.h>

enum { MOST = 20 };

// A polynomial, highest power first.
typedef struct Poly {
	int n;
	double c[MOST];
} Poly;

static bool is_double(Value x)
{
	LLVMTypeRef type = LLVMTypeOf(x);
	if (LLVMGetTypeKind(type) == LLVMVectorTypeKind)
		type = LLVMGetElementType(type);
	return LLVMGetTypeKind(type) == LLVMDoubleTypeKind;
}

static Value poly(Gen *g, Value x, const Poly *narrow, const Poly *wide)
{
	const Poly *p = is_double(x) ? wide : narrow;
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

// At most `high`, at least `low`; what is not a number stays so.
static Value clamp(Gen *g, Value x, double low, double high)
{
	x = choose(g, above(g, x, high), real_like(x, high), x);
	return choose(g, below(g, x, low), real_like(x, low), x);
}

static LLVMTypeRef bits_type(Gen *g, Value x)
{
	return like(is_double(x) ? g->i64 : g->i32, x);
}

static Value bits(Gen *g, Value x, int64_t n)
{
	return match(g, LLVMConstInt(is_double(x) ? g->i64 : g->i32, (unsigned long long)n, 1), x);
}

// ---- exp ------------------------------------------------------------------------------

static Value power_of_two(Gen *g, Value x, Value n)
{
	bool wide = is_double(x);
	n = LLVMBuildAdd(g->b, n, bits(g, x, wide ? 1023 : 127), "");
	n = LLVMBuildShl(g->b, n, bits(g, x, wide ? 52 : 23), "");
	return LLVMBuildBitCast(g->b, n, LLVMTypeOf(x), "");
}

// x 2^n for a whole number n in floating point: in two steps, for 2^n alone may be out of range.
static Value scale(Gen *g, Value x, Value n)
{
	if (g->target->scalef && is_vector(x) && !is_double(x)) {
		Value mask = LLVMConstAllOnes(g->i16), current = LLVMConstInt(g->i32, 4, 0);
		Value args[] = {x, n, x, mask, current};
		return intrinsic(g, "llvm.x86.avx512.mask.scalef.ps.512", 0, NULL, 5, args);
	}
	Value i = LLVMBuildFPToSI(g->b, n, bits_type(g, x), "");
	Value half = LLVMBuildAShr(g->b, i, bits(g, x, 1), "");
	x = mul(g, x, power_of_two(g, x, half));
	return mul(g, x, power_of_two(g, x, LLVMBuildSub(g->b, i, half, "")));
}

// e^x = 2^n e^r, r = x - n ln 2, |r| <= ln 2 / 2; e^r = 1 + r + r^2 q(r). In f32 what would be
// subnormal is 0: processors take a hundred times as long over those, and a masked softmax is full
// of them.
Value math_exp(Gen *g, Value x)
{
	static const Poly narrow = {5,
	                            {0.00139261761199355789, 0.0083631730745137109,
	                             0.041666554662050534, 0.166665770255979882, 0.5}};
	static const Poly wide = {11,
	                          {2.09146793765839351e-9, 2.51052063739570111e-8,
	                           2.75572736613486362e-7, 2.75572554257464343e-6,
	                           0.0000248015873255333638, 0.00019841269874800492,
	                           0.00138888888888837524, 0.00833333333332614088,
	                           0.0416666666666666698, 0.16666666666666671, 0.5}};
	bool d = is_double(x);
	Value tiny = below(g, x, -87.336544);
	x = d ? clamp(g, x, -746, 710) : clamp(g, x, -87.336544, 89);
	Value n = unary(g, "llvm.rint", mul(g, x, real_like(x, M_LOG2E)));
	Value r =
	    mul_add(g, n, real_like(x, d ? -6.93147180369123816490e-01 : -0.693145751953125), x);
	r = mul_add(g, n, real_like(x, d ? -1.90821492927058770002e-10 : -1.42860677e-6), r);
	Value y = mul_add(g, mul(g, r, r), poly(g, r, &narrow, &wide), r);
	y = scale(g, add(g, y, real_like(x, 1)), n);
	return d ? y : choose(g, tiny, real_like(x, 0), y);
}

// ---- log ------------------------------------------------------------------------------

// log x = n ln 2 + log m, m in [sqrt(1/2), sqrt(2)); log m = 2 s + s^3 R(s^2), s = (m - 1) / (m +
// 1).
static Value log_normal(Gen *g, Value x, Value shift)
{
	static const Poly narrow = {4,
	                            {0.233304672163038363, 0.285508208159606633,
	                             0.400001218398061267, 0.666666665544970916}};
	static const Poly wide = {8,
	                          {0.130866261478401021, 0.132687731386568852, 0.153862397028146582,
	                           0.181817956401329063, 0.222222223917139174, 0.285714285708036118,
	                           0.40000000000000877, 0.666666666666666665}};
	bool d = is_double(x);
	int place = d ? 52 : 23;
	int64_t root = d ? 0x3FE6A09E667F3BCD : 0x3F3504F3; // of 1/2, as bits
	Value i = LLVMBuildBitCast(g->b, x, bits_type(g, x), "");
	Value above_root = LLVMBuildSub(g->b, i, bits(g, x, root), "");
	Value n = LLVMBuildAShr(g->b, above_root, bits(g, x, place), "");
	i = LLVMBuildSub(g->b, i, LLVMBuildShl(g->b, n, bits(g, x, place), ""), "");
	Value f = sub(g, LLVMBuildBitCast(g->b, i, LLVMTypeOf(x), ""), real_like(x, 1));
	Value s = LLVMBuildFDiv(g->b, f, add(g, f, real_like(x, 2)), "");
	Value z = mul(g, s, s);
	Value y = mul(g, mul(g, s, z), poly(g, z, &narrow, &wide));
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

// log(w) of w = 1 + x, and what rounding took from w.
Value math_log1p(Gen *g, Value x)
{
	Value one = real_like(x, 1), w = add(g, x, one), y = math_log(g, w);
	Value lost = LLVMBuildFDiv(g->b, sub(g, x, sub(g, w, one)), w, "");
	return choose(g, below(g, magnitude(g, y), INFINITY), add(g, y, lost), y);
}

// ---- tanh, erf ------------------------------------------------------------------------

// x P(x^2) / Q(x^2), clamped to |x| <= limit, where it is 1 in f32.
static Value odd_ratio(Gen *g, Value x, double limit, const Poly *p, const Poly *q)
{
	x = clamp(g, x, -limit, limit);
	Value z = mul(g, x, x);
	return LLVMBuildFDiv(g->b, mul(g, x, poly(g, z, p, NULL)), poly(g, z, q, NULL), "");
}

// Near 0 a polynomial, elsewhere 1 - 2 / (e^2x + 1).
static Value tanh_double(Gen *g, Value x)
{
	static const Poly near = {10,
	                          {0.0000706135621686865843, -0.000230722830782928206,
	                           0.000588492656794796736, -0.0014556628733318808,
	                           0.00359211609681848416, -0.00886323502197842601,
	                           0.0218694885237137487, -0.0539682539680989314,
	                           0.133333333333332583, -0.333333333333333333}};
	Value a = magnitude(g, x), z = mul(g, x, x), one = real_like(x, 1);
	Value small = mul_add(g, mul(g, x, z), poly(g, z, &near, &near), x);
	Value e = add(g, math_exp(g, add(g, a, a)), one);
	Value large = sub(g, one, LLVMBuildFDiv(g->b, real_like(x, 2), e, ""));
	return choose(g, below(g, a, 0.4), small, with_sign(g, large, x));
}

Value math_tanh(Gen *g, Value x)
{
	static const Poly p = {6,
	                       {3.683615912297711e-11, 1.1132205202102341e-07,
	                        4.229903424857184e-05, 0.004426927771419287, 0.140999436378479,
	                        1.0}};
	static const Poly q = {6,
	                       {2.956606959259034e-09, 2.606210045996704e-06, 0.0005010226741433144,
	                        0.029204517602920532, 0.4743327796459198, 1.0}};
	return is_double(x) ? tanh_double(g, x) : odd_ratio(g, x, 9, &p, &q);
}

// tanh(x / 2) (e^x + 1)
Value math_expm1(Gen *g, Value x)
{
	Value half = math_tanh(g, mul(g, x, real_like(x, 0.5)));
	return mul(g, half, add(g, math_exp(g, x), real_like(x, 1)));
}

// x P(x^2) below 1; beyond 1 - t exp(P(t) - x^2), t = 2 / (2 + x), up to 6, where it is 1.
static Value erf_double(Gen *g, Value x)
{
	static const Poly near = {
	    13,
	    {5.9571761477489114e-11, -1.13728488567916737e-9, 1.46597752740474358e-8,
	     -1.6350312701054695e-7, 1.6461000484121368e-6, -0.0000149255952668311816,
	     0.000120553311116427109, -0.000854832698083378991, 0.00522397762481801447,
	     -0.0268661706450767932, 0.112837916709548787, -0.376126389031837481,
	     1.12837916709551257}};
	static const Poly far = {
	    17,
	    {0.553588861163092105, -0.412665305057408594, -0.354725913613736241,
	     0.522561304560809814, 0.0762114379216098512, -0.455197979063150497,
	     0.094299415057934499, 0.346858591622216397, -0.169637126588869568,
	     -0.265774769828594496, 0.196194159237122422, 0.243592755865839788,
	     -0.213117616372614394, -0.344129089619470418, 0.234424981561102762,
	     1.32760122893429805, -0.727492285352204183}};
	Value a = clamp(g, magnitude(g, x), 0, 6), z = mul(g, a, a), one = real_like(x, 1);
	Value small = mul(g, x, poly(g, z, &near, &near));
	Value t = LLVMBuildFDiv(g->b, real_like(x, 2), add(g, a, real_like(x, 2)), "");
	Value power = sub(g, poly(g, sub(g, t, real_like(x, 11 / 24.0)), &far, &far), z);
	Value large = sub(g, one, mul(g, t, math_exp(g, power)));
	return choose(g, below(g, a, 1), small, with_sign(g, large, x));
}

Value math_erf(Gen *g, Value x)
{
	static const Poly p = {7,
	                       {1.9815347584994925e-08, -1.955378365892102e-06,
	                        0.00014249350351747125, 0.003736763959750533, 0.05068913474678993,
	                        0.2008056789636612, 1.1283791065216064}};
	static const Poly q = {5,
	                       {0.0009639025083743036, 0.014426869340240955, 0.11536156386137009,
	                        0.5112910270690918, 1.0}};
	return is_double(x) ? erf_double(g, x) : odd_ratio(g, x, 3.93, &p, &q);
}

// ---- sin, cos, atan -------------------------------------------------------------------

// The sine of x + quarter pi/2: x = n pi/2 + r, |r| <= pi/4, and the sine or cosine of r by n
// modulo 4.
static Value circular(Gen *g, Value x, double quarter)
{
	static const Poly sine = {4,
	                          {2.72498952306116781e-6, -0.000198400864995935981,
	                           0.00833333187427371367, -0.16666666663854167}};
	static const Poly sine_wide = {8,
	                               {2.79124222909030882e-15, -7.64696131171007839e-13,
	                                1.60590427807698511e-10, -2.50521083823888165e-8,
	                                2.75573192239810975e-6, -0.000198412698412698376,
	                                0.00833333333333333333, -0.166666666666666667}};
	static const Poly cosine = {4,
	                            {-2.73009336872129431e-7, 0.0000248006001803638087,
	                             -0.00138888876716525039, 0.0416666666643202666}};
	static const Poly cosine_wide = {8,
	                                 {-1.5518099807987151e-16, 4.77937607970866768e-14,
	                                  -1.14707450694547918e-11, 2.08767569863408841e-9,
	                                  -2.75573192239834928e-7, 0.0000248015873015872997,
	                                  -0.00138888888888888889, 0.0416666666666666667}};
	bool d = is_double(x);
	static const double part[2][3] = {
	    {1.5703125, 4.83751296997070312e-4, 7.54978995489188e-8},
	    {1.57079632673412561417, 6.07710050630396597660e-11,
	     2.02226624879595063154e-21}}; // pi/2, each with zeros to spare
	Value n = unary(g, "llvm.rint", mul(g, x, real_like(x, M_2_PI))), r = x;
	for (int k = 0; k < 3; k++)
		r = mul_add(g, n, real_like(x, -part[d][k]), r);
	if (d)
		r = reduce_angle(g, x, r, &n);
	Value z = mul(g, r, r), one = real_like(x, 1);
	Value s = mul_add(g, mul(g, r, z), poly(g, z, &sine, &sine_wide), r);
	Value c = mul_add(g, z, real_like(x, -0.5), one);
	c = mul_add(g, mul(g, z, z), poly(g, z, &cosine, &cosine_wide), c);
	n = add(g, n, real_like(x, quarter));
	Value turn = unary(g, "llvm.floor", mul(g, n, real_like(x, 0.25)));
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

// 1 / x above 1, then (x - 1) / (x + 1) above tan(pi/8).
Value math_atan(Gen *g, Value x)
{
	static const Poly narrow = {5,
	                            {-0.0645171886935895807, 0.107436683248300981,
	                             -0.14263949753605724, 0.199995403149579694,
	                             -0.333333317604345559}};
	static const Poly wide = {
	    13,
	    {-0.013916943217800841, 0.0306344332390145204, -0.0410438141780764323,
	     0.0471938145789513692, -0.0525803942897948145, 0.058819250338777325,
	     -0.0666664200499654479, 0.0769230673532147535, -0.0909090906699066003,
	     0.111111111107544058, -0.142857142857115158, 0.199999999999999915,
	     -0.333333333333333333}};
	Value a = magnitude(g, x), one = real_like(x, 1), zero = real_like(x, 0);
	Value over = above(g, a, 1);
	Value t = choose(g, over, LLVMBuildFDiv(g->b, one, a, ""), a);
	Value upper = above(g, t, 0.4142135623730950488);
	Value turned = LLVMBuildFDiv(g->b, sub(g, t, one), add(g, t, one), "");
	t = choose(g, upper, turned, t);
	Value z = mul(g, t, t);
	Value y = mul_add(g, mul(g, t, z), poly(g, z, &narrow, &wide), t);
	y = add(g, y, choose(g, upper, real_like(x, M_PI_4), zero));
	y = choose(g, over, sub(g, real_like(x, M_PI_2), y), y);
	return with_sign(g, y, x);
}

// ---- pow ------------------------------------------------------------------------------

static Value equal(Gen *g, Value a, Value b)
{
	return LLVMBuildFCmp(g->b, LLVMRealOEQ, a, b, "");
}

// e^(y log |x|), negative for x < 0 and y odd, and not a number for finite x < 0 and y no whole
// number. In double, for the error of the logarithm is multiplied by y.
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
	Value floor = unary(g, "llvm.floor", y), half = mul(g, floor, real_like(x, 0.5));
	Value odd = LLVMBuildFCmp(g->b, LLVMRealUNE, half, unary(g, "llvm.floor", half), "");
	Value signed_power = choose(g, odd, LLVMBuildFNeg(g->b, p, ""), p);
	Value some =
	    LLVMBuildOr(g->b, equal(g, floor, y), equal(g, x, real_like(x, -INFINITY)), "");
	signed_power = choose(g, some, signed_power, real_like(x, NAN));
	p = choose(g, LLVMBuildFCmp(g->b, LLVMRealOLT, x, zero, ""), signed_power, p);
	Value always = LLVMBuildOr(g->b, equal(g, y, zero), equal(g, x, one), "");
	return choose(g, always, one, p);
}
