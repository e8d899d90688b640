// rounding.c: emits floor, ceil, rint, trunc, sqrt, and sums of products, by what the CPU has.
// Without an instruction, LLVM would call the math library. The arithmetic here is exact, so the
// results are those of the instruction.
#include "gen.h"
#include <math.h>

static bool is_double(Value x)
{
	return LLVMGetTypeKind(scalar_type(x)) == LLVMDoubleTypeKind;
}

// True if an instruction takes floats of `bytes` bytes and those of the type of x.
static bool is_within(int bytes, Value x)
{
	return (is_double(x) ? 8 : 4) <= bytes;
}

static Value with_sign(Gen *g, Value x, Value sign)
{
	LLVMTypeRef type = LLVMTypeOf(x);
	return intrinsic(g, "llvm.copysign", 1, &type, 2, (Value[]){x, sign});
}

Value mul_add(Gen *g, Value a, Value b, Value c)
{
	Value x[3] = {a, b, c};
	level_out(g, 3, x);
	LLVMTypeRef type = LLVMTypeOf(x[0]);
	if (is_within(g->target->machine->fused, x[0]))
		return intrinsic(g, "llvm.fma", 1, &type, 3, x);
	return LLVMBuildFAdd(g->b, LLVMBuildFMul(g->b, x[0], x[1], ""), x[2], "");
}

// ---- integers nearby ------------------------------------------------------------------

// Floats from `large` on are integers; a smaller one plus `large` is rounded to an integer.
static Value nearest(Gen *g, Value x)
{
	Value large = real_like(x, is_double(x) ? 0x1p52 : 0x1p23), size = unary(g, "llvm.fabs", x);
	Value y = LLVMBuildFSub(g->b, LLVMBuildFAdd(g->b, size, large, ""), large, "");
	Value small = LLVMBuildFCmp(g->b, LLVMRealOLT, size, large, "");
	return LLVMBuildSelect(g->b, small, with_sign(g, y, x), x, "");
}

static Value below(Gen *g, Value x)
{
	Value y = nearest(g, x), above = LLVMBuildFCmp(g->b, LLVMRealOGT, y, x, "");
	return LLVMBuildSelect(g->b, above, LLVMBuildFSub(g->b, y, real_like(x, 1), ""), y, "");
}

Value math_rint(Gen *g, Value x)
{
	bool has = is_within(g->target->machine->round, x);
	return has ? unary(g, "llvm.rint", x) : nearest(g, x);
}

Value math_floor(Gen *g, Value x)
{
	bool has = is_within(g->target->machine->round, x);
	return has ? unary(g, "llvm.floor", x) : below(g, x);
}

Value math_ceil(Gen *g, Value x)
{
	if (is_within(g->target->machine->round, x))
		return unary(g, "llvm.ceil", x);
	return LLVMBuildFNeg(g->b, below(g, LLVMBuildFNeg(g->b, x, "")), "");
}

Value math_trunc(Gen *g, Value x)
{
	if (is_within(g->target->machine->round, x))
		return unary(g, "llvm.trunc", x);
	return with_sign(g, below(g, unary(g, "llvm.fabs", x)), x);
}

// ---- square root ----------------------------------------------------------------------

typedef struct Root { // of a number by its digits
	Value rest, twice, digits;
} Root;

// Takes one more binary digit, `digit`: it is 1 if the square of all does not exceed the number.
static void add_digit(Gen *g, const Root *root, Value digit)
{
	Value rest = read_variable(g, root->rest), twice = read_variable(g, root->twice);
	Value digits = read_variable(g, root->digits);
	Value part = sum_of(g, twice, digit);
	Value fits = LLVMBuildICmp(g->b, LLVMIntULE, part, rest, "");
	Value one = LLVMConstInt(scalar_type(rest), 1, 0);
	Value less = LLVMBuildSub(g->b, rest, part, "");
	rest = choose(g, fits, less, rest);
	set_variable(g, root->rest, LLVMBuildShl(g->b, rest, match(g, one, rest), ""));
	set_variable(g, root->twice, choose(g, fits, sum_of(g, part, digit), twice));
	set_variable(g, root->digits, choose(g, fits, sum_of(g, digits, digit), digits));
}

// Returns the root of x, normal and above 0: its exponent halved, and the root of its mantissa with
// one digit more than a float has, which rounds it: the root is never half way between two floats.
static Value root_of_normal(Gen *g, Value x)
{
	bool d = is_double(x);
	int fraction = d ? 52 : 23, bias = d ? 1023 : 127;
	LLVMTypeRef scalar = d ? g->i64 : g->i32, type = like(scalar, x);
	Value bits = LLVMBuildBitCast(g->b, x, type, ""), one = int_like(bits, 1);
	Value exponent = LLVMBuildLShr(g->b, bits, int_like(bits, fraction), "");
	exponent = LLVMBuildSub(g->b, exponent, int_like(bits, bias), "");
	Value m = LLVMBuildAnd(g->b, bits, int_like(bits, (INT64_C(1) << fraction) - 1), "");
	m = LLVMBuildOr(g->b, m, int_like(bits, INT64_C(1) << fraction), "");
	m = LLVMBuildShl(g->b, m, LLVMBuildAnd(g->b, exponent, one, ""), "");
	Value none = int_like(bits, 0);
	Root root = {variable(g, LLVMBuildShl(g->b, m, one, "")), variable(g, none),
	             variable(g, none)};
	Loop loop = loop_begin(g, number(g, 0), number(g, fraction + 2), 1);
	Value place = LLVMBuildIntCast2(g->b, loop.i, scalar, 0, "");
	Value first = LLVMConstInt(scalar, UINT64_C(2) << fraction, 0);
	add_digit(g, &root, match(g, LLVMBuildLShr(g->b, first, place, ""), bits));
	loop_end(g, &loop);
	Value digits = read_variable(g, root.digits);
	digits = sum_of(g, digits, LLVMBuildAnd(g->b, digits, one, ""));
	digits = LLVMBuildLShr(g->b, digits, one, "");
	Value half = LLVMBuildAShr(g->b, exponent, one, "");
	half = sum_of(g, half, int_like(bits, bias - 1));
	half = LLVMBuildShl(g->b, half, int_like(bits, fraction), "");
	return LLVMBuildBitCast(g->b, sum_of(g, digits, half), LLVMTypeOf(x), "");
}

Value math_sqrt(Gen *g, Value x)
{
	if (is_within(g->target->machine->root, x))
		return unary(g, "llvm.sqrt", x);
	bool d = is_double(x);
	Value zero = real_like(x, 0), least = real_like(x, d ? 0x1p-1022 : 0x1p-126);
	Value tiny = LLVMBuildFCmp(g->b, LLVMRealOLT, x, least, "");
	Value up = LLVMBuildFMul(g->b, x, real_like(x, d ? 0x1p54 : 0x1p24), "");
	Value y = root_of_normal(g, choose(g, tiny, up, x));
	y = choose(g, tiny, LLVMBuildFMul(g->b, y, real_like(x, d ? 0x1p-27 : 0x1p-12), ""), y);
	// Zero of either sign, infinity and NaN are their own roots.
	Value finite = LLVMBuildFCmp(g->b, LLVMRealOLT, x, real_like(x, INFINITY), "");
	Value same = LLVMBuildFCmp(g->b, LLVMRealOEQ, x, zero, "");
	same = LLVMBuildOr(g->b, same, LLVMBuildNot(g->b, finite, ""), "");
	y = choose(g, LLVMBuildFCmp(g->b, LLVMRealOLT, x, zero, ""), real_like(x, NAN), y);
	return choose(g, same, x, y);
}
