// surd.c: computes exact scales.
// Every scale that the rules of eta yield is a fourth root of a rational (h^(-1/4), sqrt(2/3072),
// 1/2), so products, and sums of squares of square roots, stay exact; others are plain numbers.
// Output: arithmetic on Surds, and their text. Invariant: `value` is correct even if not exact.
#include "passes.h"
#include <math.h>
#include <string.h>

enum { LARGEST = 1 << 30 }; // of num and den: the product of two is below 2^63

const Surd surd_one = {1, true, 1, 1};

Surd surd_number(double value)
{
	return (Surd){.value = value};
}

// (num / den)^(1/4)
static Surd fourth_root(int64_t num, int64_t den)
{
	int64_t common = common_divisor(num, den);
	num /= common, den /= common;
	double value = pow((double)num / (double)den, 0.25);
	if (num > LARGEST || den > LARGEST)
		return surd_number(value);
	return (Surd){value, true, num, den};
}

Surd surd_root(int64_t num, int64_t den)
{
	if (num > INT32_MAX || den > INT32_MAX || num <= 0 || den <= 0)
		return surd_number(sqrt((double)num / (double)den));
	int64_t common = common_divisor(num, den);
	return fourth_root(num / common * (num / common), den / common * (den / common));
}

Surd surd_mul(Surd a, Surd b)
{
	if (!a.exact || !b.exact)
		return surd_number(a.value * b.value);
	int64_t cross = common_divisor(a.num, b.den), other = common_divisor(b.num, a.den);
	return fourth_root(a.num / cross * (b.num / other), a.den / other * (b.den / cross));
}

Surd surd_inverse(Surd a)
{
	return a.exact ? (Surd){1 / a.value, true, a.den, a.num} : surd_number(1 / a.value);
}

Surd surd_div(Surd a, Surd b)
{
	return surd_mul(a, surd_inverse(b));
}

// Returns the integer whose square is n, or -1.
static int64_t integer_root(int64_t n)
{
	int64_t root = llround(sqrt((double)n));
	return root * root == n ? root : -1;
}

// Returns sqrt(a^2 + b^2), the range of a sum of independent values.
Surd surd_hypot(Surd a, Surd b)
{
	int64_t an = a.exact ? integer_root(a.num) : -1, ad = a.exact ? integer_root(a.den) : -1;
	int64_t bn = b.exact ? integer_root(b.num) : -1, bd = b.exact ? integer_root(b.den) : -1;
	if (an < 0 || ad < 0 || bn < 0 || bd < 0)
		return surd_number(hypot(a.value, b.value));
	return surd_root(an * bd + bn * ad, ad * bd);
}

bool surd_same(Surd a, Surd b)
{
	return fabs(a.value - b.value) <= 1e-6 * fabs(a.value);
}

// Finds the rational p/q closest to x with small terms (continued fractions). True if the relative
// difference is below `error`.
static bool rational(double x, double error, int64_t *p, int64_t *q)
{
	int64_t p0 = 0, q0 = 1, p1 = 1, q1 = 0;
	double rest = x;
	for (int i = 0; i < 12 && rest < 1e9; i++) {
		int64_t whole = (int64_t)floor(rest + 1e-9);
		int64_t p2 = whole * p1 + p0, q2 = whole * q1 + q0;
		if (p2 > (1 << 20) || q2 > (1 << 20) || (double)p2 * (double)q2 > 1e8)
			return false;
		p0 = p1, q0 = q1, p1 = p2, q1 = q2;
		if (p1 > 0 && fabs((double)p1 / (double)q1 - x) < error * x) {
			*p = p1, *q = q1;
			return true;
		}
		rest = 1 / (rest - (double)whole);
	}
	return false;
}

// Returns the surd that a number in a file (0.35355338, 0.125, or 0.3535 in f16) was rounded from,
// if there is a simple one.
Surd surd_near(double value)
{
	static const double error = 2.5e-7;
	float single = (float)value;
	uint32_t bits;
	int64_t p, q, p4, q4;
	if (!(value > 0) || !isfinite(value))
		return surd_number(value);
	memcpy(&bits, &single, sizeof bits);
	if ((double)single == value && bits & 0xFFFFF && !(bits & 0x1FFF)) {
		// Trailing zeros: rounded to f16 or bf16, and not so short that it is exact.
		double coarse = bits & 0xFFFF ? 0x1p-12 : 0x1p-9;
		if (rational(pow(value, 4), 4 * coarse, &p, &q) && (p == 1 || q == 1))
			return fourth_root(p, q);
	}
	double square = value * value;
	bool root = rational(square, 2 * error, &p, &q);
	if (rational(square * square, 4 * error, &p4, &q4) && !(root && p * q <= p4 * q4))
		return fourth_root(p4, q4);
	return root ? surd_root(p, q) : surd_number(value);
}

static const char *ratio(Arena *arena, const char *before, int64_t num, int64_t den,
                         const char *after)
{
	if (den == 1)
		return format(arena, "%s%lld%s", before, (long long)num, after);
	return format(arena, "%s%lld/%lld%s", before, (long long)num, (long long)den, after);
}

// Returns "1/2", "sqrt(2/3072)", "(1/256)^(1/4)" or a decimal. `over`: a denominator to show under
// the root instead of the reduced one (the contracted size); 0: none.
const char *surd_text(Arena *arena, Surd s, int64_t over)
{
	if (!s.exact)
		return format(arena, "%.6g", s.value);
	int64_t num = integer_root(s.num), den = integer_root(s.den);
	if (num < 0 || den < 0)
		return ratio(arena, "(", s.num, s.den, ")^(1/4)");
	if (over > 0 && over % den == 0 && num != den)
		return ratio(arena, "sqrt(", num * (over / den), over, ")");
	if (integer_root(num) >= 0 && integer_root(den) >= 0)
		return ratio(arena, "", integer_root(num), integer_root(den), "");
	return ratio(arena, "sqrt(", num, den, ")");
}
