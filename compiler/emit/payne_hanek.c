// payne_hanek.c: reduces large angles exactly, so that the sine of 10^300 is as exact as that of 1.
// x 2/pi modulo 4 depends on 192 bits of 2/pi alone, selected by the exponent of x and multiplied
// by its mantissa as an integer (Payne and Hanek, Radian reduction for trigonometric functions,
// 1983).
#include "gen.h"
#include <math.h>

enum {
	LEAST = 20,             // exponent of the least large angle
	LEAST_F32 = 8,          // the same in f32
	FRACTION = 52,          // bits of a double
	BIAS = 1023 + FRACTION, // of its exponent, its mantissa taken as an integer
};

// The bits of 2/pi, after 64 zeros.
static const uint64_t two_by_pi[] = {
    0x0000000000000000, 0xA2F9836E4E441529, 0xFC2757D1F534DDC0, 0xDB6295993C439041,
    0xFE5163ABDEBBC561, 0xB7246E3A424DD2E0, 0x06492EEA09D1921C, 0xFE1DEB1CB129A73E,
    0xE88235F52EBB4484, 0xE99C7026B45F7E41, 0x3991D639835339F4, 0x9C845F8BBDF9283B,
    0x1FF897FFDE05980F, 0xEF2F118B5A0A6D1F, 0x6D367ECF27CB09B7, 0x4F463F669E5FEA2D,
    0x7527BAC7EBE5F17B, 0x3D0739F78A5292EA, 0x6BFB5FB11F8D5D08, 0x56033046FC7B6BAB};

static Value right(Gen *g, Value x, unsigned bits)
{
	return LLVMBuildLShr(g->b, x, int_like(x, bits), "");
}

static Value low(Gen *g, Value x)
{
	return LLVMBuildAnd(g->b, x, int_like(x, UINT32_MAX), "");
}

static Value add(Gen *g, Value a, Value b)
{
	return LLVMBuildAdd(g->b, a, b, "");
}

static Value mul(Gen *g, Value a, Value b)
{
	return LLVMBuildMul(g->b, a, b, "");
}

// Returns the upper 64 bits of a b, a below 2^53.
static Value mul_high(Gen *g, Value a, Value b)
{
	Value a0 = low(g, a), a1 = right(g, a, 32), b0 = low(g, b), b1 = right(g, b, 32);
	Value across = add(g, mul(g, a1, b0), right(g, mul(g, a0, b0), 32));
	Value other = add(g, mul(g, a0, b1), low(g, across));
	return add(g, mul(g, a1, b1), add(g, right(g, across, 32), right(g, other, 32)));
}

static Value table_word(Gen *g, Value i)
{
	static const char name[] = "two_by_pi";
	Lanes at = {.base = is_vector(i) ? number(g, 0) : i, .vector = is_vector(i) ? i : NULL};
	Value table = LLVMGetNamedGlobal(g->module, name), word[COUNT(two_by_pi)];
	if (!table) {
		for (int k = 0; k < COUNT(two_by_pi); k++)
			word[k] = LLVMConstInt(g->i64, two_by_pi[k], 0);
		Value words = LLVMConstArray2(g->i64, word, COUNT(two_by_pi));
		table = LLVMAddGlobal(g->module, LLVMTypeOf(words), name);
		LLVMSetInitializer(table, words);
		LLVMSetLinkage(table, LLVMInternalLinkage);
		LLVMSetGlobalConstant(table, 1);
	}
	return load_lanes(g, E_i64, table, &at);
}

// Returns the 64 bits of 2/pi from bit `position` + 64 `word` on.
static Value window(Gen *g, Value position, unsigned word)
{
	Value i = add(g, right(g, position, 6), int_like(position, word));
	Value in[] = {table_word(g, i), table_word(g, add(g, i, int_like(i, 1))), position};
	LLVMTypeRef type = LLVMTypeOf(position);
	return intrinsic(g, "llvm.fshl", 1, &type, 3, in);
}

// Splits x 2/pi modulo 4 into an integer, *turns, and a rest in [-1/2, 1/2), which it returns in
// radians. `size`: |x|, large. The window begins at the bit that is 2 when multiplied by the last
// bit of m: the product modulo 2^192, of which the upper 128 bits are kept, has two bits before the
// point.
static Value reduce(Gen *g, Value size, Value *turns)
{
	LLVMTypeRef itype = like(g->i64, size), type = LLVMTypeOf(size);
	Value bits = LLVMBuildBitCast(g->b, size, itype, "");
	Value exponent = right(g, bits, FRACTION);
	Value m = LLVMBuildAnd(g->b, bits, int_like(bits, (1ll << FRACTION) - 1), "");
	m = LLVMBuildOr(g->b, m, int_like(m, 1ll << FRACTION), "");
	Value position = add(g, exponent, int_like(exponent, 64 - 2 - BIAS));
	Value w0 = window(g, position, 0), w1 = window(g, position, 1), w2 = window(g, position, 2);
	Value rest = mul(g, m, w1), sum = add(g, rest, mul_high(g, m, w2));
	Value carry =
	    LLVMBuildZExt(g->b, LLVMBuildICmp(g->b, LLVMIntULT, sum, rest, ""), itype, "");
	Value high = add(g, add(g, mul(g, m, w0), mul_high(g, m, w1)), carry);
	Value n = right(g, add(g, high, int_like(high, 1ll << 61)), 62);
	high = LLVMBuildSub(g->b, high, LLVMBuildShl(g->b, n, int_like(n, 62), ""), "");
	*turns = LLVMBuildUIToFP(g->b, n, type, "");
	Value part = LLVMBuildFMul(g->b, LLVMBuildUIToFP(g->b, sum, type, ""),
	                           real_like(size, 0x1p-126), "");
	part = mul_add(g, LLVMBuildSIToFP(g->b, high, type, ""), real_like(size, 0x1p-62), part);
	Value r = LLVMBuildFMul(g->b, part, real_like(size, 0x1.1a62633145c07p-54), "");
	return mul_add(g, part, real_like(size, M_PI_2), r);
}

static Value any(Gen *g, Value mask)
{
	if (!is_vector(mask))
		return mask;
	unsigned lanes = LLVMGetVectorSize(LLVMTypeOf(mask));
	mask = LLVMBuildBitCast(g->b, mask, LLVMIntTypeInContext(g->context, lanes), "");
	return LLVMBuildICmp(g->b, LLVMIntNE, mask, LLVMConstNull(LLVMTypeOf(mask)), "");
}

// In double, and only if a lane needs it.
Value reduce_angle(Gen *g, Value x, Value rest, Value *turns)
{
	LLVMTypeRef own = LLVMTypeOf(x), wide = like(g->f64, x);
	int bits = LLVMGetTypeKind(scalar_type(x)) == LLVMDoubleTypeKind ? LEAST : LEAST_F32;
	Value size = unary(g, "llvm.fabs", x), least = real_like(x, ldexp(1, bits));
	Value large = LLVMBuildFCmp(g->b, LLVMRealOGT, size, least, "");
	Value finite = LLVMBuildFCmp(g->b, LLVMRealOLT, size, real_like(x, INFINITY), "");
	Value minus = LLVMBuildFCmp(g->b, LLVMRealOLT, x, real_like(x, 0), "");
	large = both(g, large, finite);
	Value all_turns = variable(g, *turns), all_rest = variable(g, rest);
	Loop once = loop_begin(g, number(g, 0), LLVMBuildZExt(g->b, any(g, large), g->i64, ""), 1);
	Value n, r = reduce(g, LLVMBuildFPCast(g->b, choose(g, large, size, least), wide, ""), &n);
	n = LLVMBuildFPCast(g->b, n, own, "");
	r = LLVMBuildFPCast(g->b, r, own, "");
	n = choose(g, minus, LLVMBuildFNeg(g->b, n, ""), n);
	r = choose(g, minus, LLVMBuildFNeg(g->b, r, ""), r);
	set_variable(g, all_turns, choose(g, large, n, *turns));
	set_variable(g, all_rest, choose(g, large, r, rest));
	loop_end(g, &once);
	*turns = read_variable(g, all_turns);
	return read_variable(g, all_rest);
}
