// cast.c: emits casts between element types, and narrow.
// Invariant: bit-identical to the evaluator.
#include "gen.h"
#include <math.h>

Value widen_float(Gen *g, Value x, Elem from)
{
	if (from == E_f16) {
		LLVMTypeRef half = like(LLVMHalfTypeInContext(g->context), x);
		x = LLVMBuildBitCast(g->b, x, half, "");
		return LLVMBuildFPExt(g->b, x, like(g->f32, x), "");
	}
	if (from != E_bf16)
		return x;
	// The bits of a bf16 are the upper half of an f32.
	x = LLVMBuildZExt(g->b, x, like(g->i32, x), "");
	x = LLVMBuildShl(g->b, x, int_like(x, 16), "");
	return LLVMBuildBitCast(g->b, x, like(g->f32, x), "");
}

// Rounds `bits` to a multiple of 2^lost, to nearest, ties to even; the low bits remain to be
// cleared.
static Value round_bits(Gen *g, Value bits, int lost)
{
	Value odd = LLVMBuildLShr(g->b, bits, int_like(bits, lost), "");
	odd = LLVMBuildAnd(g->b, odd, int_like(bits, 1), "");
	Value up = LLVMBuildAdd(g->b, odd, int_like(bits, (INT64_C(1) << (lost - 1)) - 1), "");
	return LLVMBuildAdd(g->b, bits, up, "");
}

bool has_half_instructions(const Gen *g)
{
	return g->ops->pack && g->target->machine->pairs && !g->target->emulated;
}

// True if an instruction of the CPU rounds vectors of f32 to bf16: every CPU has one that adds
// products of pairs. It takes subnormal numbers for 0, as kernels do. Other products than of bf16
// have the bits of CPUs without it.
static bool has_rounding(const Gen *g)
{
	const Machine *machine = g->target->machine;
	return g->ops->add_pairs && machine->pairs && !g->target->emulated &&
	       g->graph->products == E_bf16;
}

// By way of f32, as the evaluator does.
Value narrow_float(Gen *g, Value x, Elem to)
{
	if (to == E_f64)
		return LLVMBuildFPCast(g->b, x, like(g->f64, x), "");
	x = LLVMBuildFPCast(g->b, x, like(g->f32, x), "");
	if (to == E_f16) {
		LLVMTypeRef half = like(LLVMHalfTypeInContext(g->context), x);
		x = LLVMBuildFPTrunc(g->b, x, half, "");
		return LLVMBuildBitCast(g->b, x, like(g->i16, x), "");
	}
	if (to != E_bf16)
		return x;
	if (has_half_instructions(g)) {
		Value both = g->ops->pack(g, to, (Value[]){x, x});
		return LLVMBuildTrunc(g->b, both, g->i16, "");
	}
	if (has_rounding(g)) {
		LLVMTypeRef half = like(LLVMBFloatTypeInContext(g->context), x);
		x = LLVMBuildFPTrunc(g->b, x, half, "");
		return LLVMBuildBitCast(g->b, x, like(g->i16, x), "");
	}
	Value bits = LLVMBuildBitCast(g->b, x, like(g->i32, x), "");
	Value rounded = round_bits(g, bits, 16);
	Value nan = LLVMBuildFCmp(g->b, LLVMRealUNO, x, x, "");
	rounded = LLVMBuildSelect(g->b, nan, int_like(bits, 0x7FC00000), rounded, "");
	rounded = LLVMBuildLShr(g->b, rounded, int_like(bits, 16), "");
	return LLVMBuildTrunc(g->b, rounded, like(g->i16, rounded), "");
}

Value cast_value(Gen *g, Value x, Elem from, Elem to)
{
	if (from == to)
		return x;
	if (is_float(from)) {
		x = widen_float(g, x, from);
		if (is_float(to))
			return narrow_float(g, x, to);
		if (to == E_b8)
			return LLVMBuildFCmp(g->b, LLVMRealUNE, x, real_like(x, 0), "");
		// Saturates at 64 bits, NaN becomes 0; narrower types take the low bits.
		Elem wide = to == E_u64 ? E_u64 : E_i64;
		const char *name = to == E_u64 ? "llvm.fptoui.sat" : "llvm.fptosi.sat";
		LLVMTypeRef types[2] = {like(g->i64, x), LLVMTypeOf(x)};
		return cast_value(g, intrinsic(g, name, 2, types, 1, &x), wide, to);
	}
	if (is_float(to)) {
		LLVMTypeRef type = like(to == E_f64 ? g->f64 : g->f32, x);
		Value zero = LLVMConstNull(type);
		if (from == E_b8) // a conversion would widen the lanes to integers first
			x = LLVMBuildSelect(g->b, x, real_like(zero, 1), zero, "");
		else if (is_signed(from))
			x = LLVMBuildSIToFP(g->b, x, type, "");
		else
			x = LLVMBuildUIToFP(g->b, x, type, "");
		return to == E_f32 || to == E_f64 ? x : narrow_float(g, x, to);
	}
	if (to == E_b8)
		return LLVMBuildICmp(g->b, LLVMIntNE, x, int_like(x, 0), "");
	return LLVMBuildIntCast2(g->b, x, like(elem_type(g, to), x), is_signed(from), "");
}

Value narrow_value(Gen *g, const Attr *attr, Elem e, Value x)
{
	int fraction = e == E_f64 ? 52 : 23, lost = fraction - (int)MIN(attr->i[0], fraction);
	int least = (int)MAX(attr->i[1], e == E_f64 ? -1022 : -126);
	Value size = unary(g, "llvm.fabs", x), y = x;
	if (lost > 0) { // a carry raises the exponent
		Value bits = LLVMBuildBitCast(g->b, x, like(e == E_f64 ? g->i64 : g->i32, x), "");
		bits = round_bits(g, bits, lost);
		bits = LLVMBuildAnd(g->b, bits, int_like(bits, -(INT64_C(1) << lost)), "");
		y = LLVMBuildBitCast(g->b, bits, LLVMTypeOf(x), "");
	}
	// Floats below 2^least are evenly spaced: adding a float whose last bit is the spacing
	// rounds them.
	Value small = LLVMBuildFCmp(g->b, LLVMRealOLT, size, real_like(x, ldexp(1, least)), "");
	Value large = real_like(x, ldexp(1.5, lost + least));
	Value even = LLVMBuildFSub(g->b, LLVMBuildFAdd(g->b, x, large, ""), large, "");
	y = LLVMBuildSelect(g->b, small, even, y, "");
	Value nan = LLVMBuildFCmp(g->b, LLVMRealUNO, x, x, "");
	return LLVMBuildSelect(g->b, nan, x, y, "");
}
