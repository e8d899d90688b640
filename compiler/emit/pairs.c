// pairs.c: emits the operands of instructions that multiply pairs of bf16: 32 bits of two elements
// that follow each other along the sum, the lower half of the first.
#include "gen.h"

enum { HALF = 16 }; // bits of a bf16, the upper ones of an f32

// Returns a vector of 16-bit elements as the lower halves of 32 bits.
static Value lower_halves(Gen *g, Value x)
{
	unsigned n = (unsigned)g->width;
	x = LLVMBuildBitCast(g->b, splat(g, x), LLVMVectorType(g->i16, n), "");
	return LLVMBuildZExt(g->b, x, LLVMVectorType(g->i32, n), "");
}

Value pairs_by_turns(Gen *g, Value x, Value y)
{
	y = lower_halves(g, y);
	y = LLVMBuildShl(g->b, y, int_like(y, HALF), "");
	return LLVMBuildOr(g->b, lower_halves(g, x), y, "");
}

Value pairs_in_order(Gen *g, Value x, Value y)
{
	Value order[2 * 64];
	int n = g->width;
	for (int i = 0; i < 2 * n; i++)
		order[i] = LLVMConstInt(g->i32, (unsigned)i, 0);
	x = LLVMBuildShuffleVector(g->b, splat(g, x), splat(g, y),
	                           LLVMConstVector(order, (unsigned)(2 * n)), "");
	return LLVMBuildBitCast(g->b, x, LLVMVectorType(g->i32, (unsigned)n), "");
}

// Returns the elements, those beyond the largest bf16 as that, NaN too.
static Value within_halves(Gen *g, Value x)
{
	const double largest = 0x1.FEp127;
	for (int sign = -1; sign <= 1; sign += 2) {
		Value limit = splat(g, LLVMConstReal(g->f32, sign * largest));
		LLVMRealPredicate inside = sign < 0 ? LLVMRealOGT : LLVMRealOLT;
		x = LLVMBuildSelect(g->b, LLVMBuildFCmp(g->b, inside, x, limit, ""), x, limit, "");
	}
	return x;
}

// Returns elements of 16 bits: the upper halves of 32.
static Value upper_halves(Gen *g, Value bits)
{
	Value order[2 * 64];
	unsigned n = LLVMGetVectorSize(LLVMTypeOf(bits));
	for (unsigned i = 0; i < n; i++)
		order[i] = LLVMConstInt(g->i32, 2 * i + 1, 0);
	bits = LLVMBuildBitCast(g->b, bits, LLVMVectorType(g->i16, 2 * n), "");
	return LLVMBuildShuffleVector(g->b, bits, LLVMGetPoison(LLVMTypeOf(bits)),
	                              LLVMConstVector(order, n), "");
}

// Each slice is the nearest to what those before it leave. The last is all they leave: NaN of what
// is not finite.
void slice(Gen *g, Value x, bool small, Value *slices)
{
	Value rest = splat(g, x);
	LLVMTypeRef floats = LLVMTypeOf(rest);
	for (int i = 0; i < SLICES; i++) {
		Value own = i || small ? rest : within_halves(g, rest);
		Value bits = LLVMBuildBitCast(g->b, own, like(g->i32, own), "");
		if (i < SLICES - 1) {
			bits = LLVMBuildAdd(g->b, bits, int_like(bits, 1 << (HALF - 1)), "");
			bits = LLVMBuildAnd(g->b, bits, int_like(bits, -(1 << HALF)), "");
			rest =
			    LLVMBuildFSub(g->b, rest, LLVMBuildBitCast(g->b, bits, floats, ""), "");
		}
		slices[i] = upper_halves(g, bits);
	}
}
