// lanes.c: emits loads and stores of an element, or of elements along lanes.
// Invariant: lanes that do not exist touch no memory.
#include "gen.h"

// A constant that is added to i is added to the address: instructions have room for it.
Value place_beside(Gen *g, LLVMTypeRef type, Value memory, Value i)
{
	bool sum = LLVMIsAInstruction(i) && LLVMGetInstructionOpcode(i) == LLVMAdd;
	Value by = sum ? LLVMGetOperand(i, 1) : NULL;
	if (!by || !LLVMIsAConstantInt(by))
		return LLVMBuildGEP2(g->b, type, memory, &i, 1, "");
	i = LLVMGetOperand(i, 0);
	return LLVMBuildGEP2(g->b, type, LLVMBuildGEP2(g->b, type, memory, &i, 1, ""), &by, 1, "");
}

static bool differs(const Lanes *x)
{
	return x->step || x->vector;
}

// Returns the address of an element or of consecutive lanes, or the addresses of other lanes.
// *mask: lanes that exist; NULL: all, and they are consecutive.
static Value lanes_address(Gen *g, LLVMTypeRef type, Value memory, const Lanes *x, Value *mask)
{
	*mask = differs(x) ? x->mask : NULL;
	if (!differs(x) || (x->step == 1 && !x->vector))
		return place_beside(g, type, memory, x->base);
	if (!x->mask)
		*mask = LLVMConstAllOnes(LLVMVectorType(g->i1, (unsigned)g->width));
	LLVMTypeRef narrow = LLVMVectorType(g->i32, (unsigned)g->width);
	bool fits = x->most > 0 && x->most < INT32_MAX / 2;
	Value start = place_beside(g, type, memory, x->base), by = x->vector;
	if (by && fits)
		by = LLVMBuildTrunc(g->b, by, narrow, "");
	if (x->step) {
		Value steps = lane_numbers(fits ? g->i32 : g->i64, g->width, 0, x->step);
		by = by ? LLVMBuildAdd(g->b, by, steps, "") : steps;
	}
	return place_beside(g, type, start, by);
}

void prefetch_line(Gen *g, Value from, Prefetch how)
{
	Value in[] = {from, LLVMConstInt(g->i32, how == F_write, 0),
	              LLVMConstInt(g->i32, how == F_later ? 2 : 3, 0), LLVMConstInt(g->i32, 1, 0)};
	intrinsic(g, "llvm.prefetch", 1, &g->ptr, COUNT(in), in);
}

Value load_lanes(Gen *g, Elem e, Value memory, const Lanes *x)
{
	LLVMTypeRef type = memory_type(g, e);
	LLVMTypeRef result = differs(x) ? LLVMVectorType(type, (unsigned)g->width) : type;
	unsigned align = (unsigned)elems[e].bytes;
	Value v, mask, from = lanes_address(g, type, memory, x, &mask);
	if (mask) {
		// Nothing uses the contents of masked lanes. But if LLVM 19 knows that lanes are 0,
		// it folds their quotient to 0 (0 / 0 in SimplifyDemandedVectorElts) and drops the
		// select that hides it: if the mask is constant, floats are 1.
		Value unread = LLVMConstNull(result);
		bool integer = LLVMGetTypeKind(type) == LLVMIntegerTypeKind;
		if (!integer && x->mask && LLVMIsConstant(x->mask))
			unread = real_like(unread, 1);
		Value args[4] = {from, LLVMConstInt(g->i32, align, 0), mask, unread};
		LLVMTypeRef types[2] = {result, LLVMTypeOf(from)};
		const char *name = is_vector(from) ? "llvm.masked.gather" : "llvm.masked.load";
		v = intrinsic(g, name, 2, types, 4, args);
	} else {
		v = LLVMBuildLoad2(g->b, result, from, "");
		LLVMSetAlignment(v, align);
	}
	return e == E_b8 ? LLVMBuildICmp(g->b, LLVMIntNE, v, int_like(v, 0), "") : v;
}

// Lets a store of whole vectors pass the caches.
static void store_past(Gen *g, Value store)
{
	LLVMMetadataRef is = LLVMValueAsMetadata(LLVMConstInt(g->i32, 1, 0));
	is = LLVMMDNodeInContext2(g->context, &is, 1);
	LLVMSetMetadata(store, LLVMGetMDKindIDInContext(g->context, "nontemporal", 11),
	                LLVMMetadataAsValue(g->context, is));
}

// Returns how many lanes a constant mask has, if these are the first ones; else 0.
static int64_t count_first(const Gen *g, Value mask)
{
	int64_t count = 0;
	for (unsigned l = 0; LLVMIsConstant(mask) && l < (unsigned)g->width; l++) {
		bool is = LLVMConstIntGetZExtValue(LLVMGetAggregateElement(mask, l));
		if (is && count < l)
			return 0;
		count += is;
	}
	return count;
}

// Stores the first lanes in pieces, powers of two. What lies behind them may be read next, as the
// next row of values that are stored where they were read: a processor does not compare masks, so
// that load would wait until a masked store is through.
static void store_pieces(Gen *g, LLVMTypeRef type, Value to, Value v, int64_t count, unsigned align)
{
	for (int64_t at = 0, piece = 1; at < count; at += piece) {
		for (piece = 1; 2 * piece <= count - at;)
			piece *= 2;
		Value place = number(g, at);
		place = LLVMBuildGEP2(g->b, type, to, &place, 1, "");
		Value store = LLVMBuildStore(g->b, part_of(g, v, at, piece), place);
		LLVMSetAlignment(store, align);
	}
}

void store_lanes(Gen *g, Elem e, Value memory, const Lanes *x, Value v)
{
	if (g->late && g->late->level == g->level) {
		LateStore late = {e, memory, v, *x};
		PUSH(g->arena, g->late->stores, late);
		return;
	}
	LLVMTypeRef type = memory_type(g, e);
	if (differs(x))
		v = splat(g, v);
	if (e == E_b8)
		v = LLVMBuildZExt(g->b, v, like(g->i8, v), "");
	unsigned align = (unsigned)elems[e].bytes;
	Value mask, to = lanes_address(g, type, memory, x, &mask);
	if (!mask) {
		Value store = LLVMBuildStore(g->b, v, to);
		LLVMSetAlignment(store, x->past ? x->past : align);
		if (x->past)
			store_past(g, store);
		return;
	}
	int64_t first = is_vector(to) ? 0 : count_first(g, mask);
	if (first) {
		store_pieces(g, type, to, v, first, align);
		return;
	}
	Value args[4] = {v, to, LLVMConstInt(g->i32, align, 0), mask};
	LLVMTypeRef types[2] = {LLVMTypeOf(v), LLVMTypeOf(to)};
	const char *name = is_vector(to) ? "llvm.masked.scatter" : "llvm.masked.store";
	intrinsic(g, name, 2, types, 4, args);
}

void store_late(Gen *g)
{
	Late late = *g->late;
	g->late->level = NULL;
	for (int i = 0; i < late.stores.count; i++) {
		const LateStore *s = &late.stores.at[i];
		store_lanes(g, s->e, s->memory, &s->to, s->v);
	}
}
