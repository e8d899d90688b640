// value.c: makes LLVM values: types, constants, scalars as vectors, intrinsics.
#include "gen.h"
#include <string.h>

LLVMTypeRef memory_type(Gen *g, Elem e)
{
	if (e == E_f32)
		return g->f32;
	if (e == E_f64)
		return g->f64;
	return LLVMIntTypeInContext(g->context, 8 * (unsigned)elems[e].bytes);
}

LLVMTypeRef elem_type(Gen *g, Elem e)
{
	return e == E_b8 ? g->i1 : memory_type(g, e);
}

bool is_vector(Value v)
{
	return LLVMGetTypeKind(LLVMTypeOf(v)) == LLVMVectorTypeKind;
}

LLVMTypeRef like(LLVMTypeRef type, Value shape)
{
	if (!is_vector(shape))
		return type;
	return LLVMVectorType(type, LLVMGetVectorSize(LLVMTypeOf(shape)));
}

static Value same_lanes(Value v, unsigned width)
{
	Value lane[64];
	for (unsigned l = 0; l < width; l++)
		lane[l] = v;
	return LLVMConstVector(lane, width);
}

Value lane_numbers(LLVMTypeRef type, int width, int64_t first, int64_t step)
{
	Value lane[64];
	for (int l = 0; l < width; l++)
		lane[l] = LLVMConstInt(type, (unsigned long long)(first + l * step), 1);
	return LLVMConstVector(lane, (unsigned)width);
}

Value part_of(Gen *g, Value wide, int64_t first, int64_t count)
{
	Value none = LLVMGetPoison(LLVMTypeOf(wide));
	return LLVMBuildShuffleVector(g->b, wide, none, lane_numbers(g->i32, (int)count, first, 1),
	                              "");
}

Value splat(Gen *g, Value v)
{
	unsigned width = (unsigned)g->width;
	if (is_vector(v) || width == 1)
		return v;
	if (LLVMIsConstant(v))
		return same_lanes(v, width);
	LLVMTypeRef type = LLVMVectorType(LLVMTypeOf(v), width);
	Value zeros = LLVMConstNull(LLVMVectorType(g->i32, width));
	// Once, right after v: outside of the loops that v is outside of.
	LLVMBasicBlockRef here = LLVMGetInsertBlock(g->b);
	bool computed = LLVMIsAInstruction(v);
	Value next = computed ? LLVMGetNextInstruction(v) : NULL;
	while (next && LLVMIsAPHINode(next))
		next = LLVMGetNextInstruction(next);
	Value wide = next && LLVMIsAInsertElementInst(next) ? LLVMGetNextInstruction(next) : NULL;
	if (wide && LLVMIsAShuffleVectorInst(wide) && LLVMGetOperand(wide, 0) == next &&
	    LLVMGetOperand(next, 1) == v && LLVMTypeOf(wide) == type)
		return wide;
	if (next)
		LLVMPositionBuilderBefore(g->b, next);
	else if (computed)
		LLVMPositionBuilderAtEnd(g->b, LLVMGetInstructionParent(v));
	Value none = LLVMGetPoison(type);
	Value first = LLVMBuildInsertElement(g->b, none, v, LLVMConstInt(g->i32, 0, 0), "");
	wide = LLVMBuildShuffleVector(g->b, first, none, zeros, "");
	LLVMPositionBuilderAtEnd(g->b, here);
	return wide;
}

Value match(Gen *g, Value v, Value shape)
{
	return is_vector(shape) ? splat(g, v) : v;
}

void level_out(Gen *g, int n, Value *x)
{
	bool wide = false;
	for (int k = 0; k < n; k++)
		wide |= is_vector(x[k]);
	for (int k = 0; wide && k < n; k++)
		x[k] = splat(g, x[k]);
}

Value choose(Gen *g, Value condition, Value a, Value b)
{
	Value x[3] = {condition, a, b};
	level_out(g, 3, x);
	return LLVMBuildSelect(g->b, x[0], x[1], x[2], "");
}

Value both(Gen *g, Value a, Value b)
{
	Value x[2] = {a, b};
	level_out(g, 2, x);
	return LLVMBuildAnd(g->b, x[0], x[1], "");
}

Value constant_value(Gen *g, Elem e, double x, int64_t i)
{
	switch (e) {
	case E_f32:
	case E_f64:
		return LLVMConstReal(elem_type(g, e), x);
	case E_f16:
		return LLVMConstInt(g->i16, amos_to_f16((float)x), 0);
	case E_bf16:
		return LLVMConstInt(g->i16, amos_to_bf16((float)x), 0);
	case E_b8:
		return LLVMConstInt(g->i1, i != 0, 0);
	default:
		return LLVMConstInt(elem_type(g, e), (unsigned long long)i, 1);
	}
}

LLVMTypeRef scalar_type(Value shape)
{
	LLVMTypeRef type = LLVMTypeOf(shape);
	return is_vector(shape) ? LLVMGetElementType(type) : type;
}

static Value constant_like(Value shape, Value x)
{
	return is_vector(shape) ? same_lanes(x, LLVMGetVectorSize(LLVMTypeOf(shape))) : x;
}

Value real_like(Value shape, double x)
{
	return constant_like(shape, LLVMConstReal(scalar_type(shape), x));
}

Value int_like(Value shape, int64_t n)
{
	return constant_like(shape, LLVMConstInt(scalar_type(shape), (uint64_t)n, 1));
}

Value intrinsic(Gen *g, const char *name, int ntypes, LLVMTypeRef *types, int n, Value *args)
{
	unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
	if (!id)
		bug("LLVM has no intrinsic %s", name);
	Value f = LLVMGetIntrinsicDeclaration(g->module, id, types, (size_t)ntypes);
	LLVMTypeRef type = LLVMIntrinsicGetType(g->context, id, types, (size_t)ntypes);
	return LLVMBuildCall2(g->b, type, f, args, (unsigned)n, "");
}

Value unary(Gen *g, const char *name, Value x)
{
	LLVMTypeRef type = LLVMTypeOf(x);
	return intrinsic(g, name, 1, &type, 1, &x);
}
