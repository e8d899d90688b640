// lanes.c: emits loads and stores of an element, or of elements along lanes.
// Invariant: lanes that do not exist touch no memory.
#include "gen.h"

static Value element(Gen *g, LLVMTypeRef type, Value memory, Value i)
{
	return LLVMBuildGEP2(g->b, type, memory, &i, 1, "");
}

// Returns the address of consecutive lanes, or the addresses of others. *mask: lanes that exist;
// NULL: all, and they are consecutive.
static Value lanes_address(Gen *g, LLVMTypeRef type, Value memory, const Lanes *x, Value *mask)
{
	*mask = x->mask;
	if (x->step == 1 && !x->vector)
		return element(g, type, memory, x->base);
	if (!x->mask)
		*mask = LLVMConstAllOnes(LLVMVectorType(g->i1, (unsigned)g->width));
	LLVMTypeRef narrow = LLVMVectorType(g->i32, (unsigned)g->width);
	bool fits = x->most > 0 && x->most < INT32_MAX / 2;
	Value start = element(g, type, memory, x->base), by = x->vector;
	if (by && fits)
		by = LLVMBuildTrunc(g->b, by, narrow, "");
	if (x->step) {
		Value steps = lane_numbers(fits ? g->i32 : g->i64, g->width, 0, x->step);
		by = by ? LLVMBuildAdd(g->b, by, steps, "") : steps;
	}
	return element(g, type, start, by);
}

// What masked lanes hold, which nothing may use. LLVM 19 takes a quotient of lanes known to be 0
// for 0 (0 / 0 in SimplifyDemandedVectorElts) and drops the select that hides it: where it knows
// the mask, floats are 1.
static Value unread_lanes(LLVMTypeRef wide, Value mask)
{
	Value none = LLVMConstNull(wide);
	bool integer = LLVMGetTypeKind(LLVMGetElementType(wide)) == LLVMIntegerTypeKind;
	return integer || !mask || !LLVMIsConstant(mask) ? none : real_like(none, 1);
}

static Value load_vector(Gen *g, LLVMTypeRef type, unsigned align, Value memory, const Lanes *x)
{
	LLVMTypeRef wide = LLVMVectorType(type, (unsigned)g->width);
	Value mask, from = lanes_address(g, type, memory, x, &mask);
	if (!mask) {
		Value v = LLVMBuildLoad2(g->b, wide, from, "");
		LLVMSetAlignment(v, align);
		return v;
	}
	Value args[4] = {from, LLVMConstInt(g->i32, align, 0), mask, unread_lanes(wide, x->mask)};
	LLVMTypeRef types[2] = {wide, LLVMTypeOf(from)};
	return intrinsic(g, is_vector(from) ? "llvm.masked.gather" : "llvm.masked.load", 2, types,
	                 4, args);
}

static bool differs(const Lanes *x)
{
	return x->step || x->vector;
}

void prefetch_line(Gen *g, Value from)
{
	Value in[] = {from, LLVMConstInt(g->i32, 0, 0), LLVMConstInt(g->i32, 3, 0),
	              LLVMConstInt(g->i32, 1, 0)};
	intrinsic(g, "llvm.prefetch", 1, &g->ptr, COUNT(in), in);
}

void prefetch_lanes(Gen *g, Elem e, Value memory, const Lanes *x)
{
	g->ops->prefetch(g, element(g, memory_type(g, e), memory, x->base));
}

Value load_lanes(Gen *g, Elem e, Value memory, const Lanes *x)
{
	LLVMTypeRef type = memory_type(g, e);
	Value v;
	if (differs(x)) {
		v = load_vector(g, type, (unsigned)elems[e].bytes, memory, x);
	} else {
		v = LLVMBuildLoad2(g->b, type, element(g, type, memory, x->base), "");
		LLVMSetAlignment(v, (unsigned)elems[e].bytes);
	}
	return e == E_b8 ? LLVMBuildICmp(g->b, LLVMIntNE, v, int_like(v, 0), "") : v;
}

static void store_vector(Gen *g, LLVMTypeRef type, unsigned align, Value memory, const Lanes *x,
                         Value v)
{
	Value mask, to = lanes_address(g, type, memory, x, &mask);
	if (!mask) {
		LLVMSetAlignment(LLVMBuildStore(g->b, v, to), align);
		return;
	}
	Value args[4] = {v, to, LLVMConstInt(g->i32, align, 0), mask};
	LLVMTypeRef types[2] = {LLVMTypeOf(v), LLVMTypeOf(to)};
	intrinsic(g, is_vector(to) ? "llvm.masked.scatter" : "llvm.masked.store", 2, types, 4,
	          args);
}

void store_lanes(Gen *g, Elem e, Value memory, const Lanes *x, Value v)
{
	LLVMTypeRef type = memory_type(g, e);
	if (differs(x))
		v = splat(g, v);
	if (e == E_b8)
		v = LLVMBuildZExt(g->b, v, like(g->i8, v), "");
	if (differs(x))
		store_vector(g, type, (unsigned)elems[e].bytes, memory, x, v);
	else
		LLVMSetAlignment(LLVMBuildStore(g->b, v, element(g, type, memory, x->base)),
		                 (unsigned)elems[e].bytes);
}
