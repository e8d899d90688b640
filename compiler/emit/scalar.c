// scalar.c: the instructions of each primitive map and fold, for any element type, scalar or along
// lanes. Takes gen.h; the rows are those of prims.def: a map without one does not compile.
#include "gen.h"
#include <math.h>
#include <string.h>

// ---- types ----------------------------------------------------------------------------

static char class_of(Elem e)
{
	return elems[e].cls;
}

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

LLVMTypeRef like(Gen *g, LLVMTypeRef type, Value shape)
{
	(void)g;
	if (!is_vector(shape))
		return type;
	return LLVMVectorType(type, LLVMGetVectorSize(LLVMTypeOf(shape)));
}

Value splat(Gen *g, Value v)
{
	unsigned width = (unsigned)g->target->width;
	if (is_vector(v) || width == 1)
		return v;
	if (LLVMIsConstant(v)) {
		Value lane[64];
		for (unsigned l = 0; l < width; l++)
			lane[l] = v;
		return LLVMConstVector(lane, width);
	}
	Value none = LLVMGetPoison(LLVMVectorType(LLVMTypeOf(v), width));
	Value first = LLVMBuildInsertElement(g->b, none, v, LLVMConstInt(g->i32, 0, 0), "");
	Value zeros = LLVMConstNull(LLVMVectorType(g->i32, width));
	return LLVMBuildShuffleVector(g->b, first, none, zeros, "");
}

Value match(Gen *g, Value v, Value shape)
{
	return is_vector(shape) ? splat(g, v) : v;
}

// All scalars, or all vectors.
static void level_out(Gen *g, int n, Value *x)
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
	if (is_vector(a) || is_vector(b) || is_vector(condition))
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
		return LLVMConstInt(g->i16, float_to_half((float)x), 0);
	case E_bf16:
		return LLVMConstInt(g->i16, float_to_bf16((float)x), 0);
	case E_b8:
		return LLVMConstInt(g->i1, i != 0, 0);
	default:
		return LLVMConstInt(elem_type(g, e), (unsigned long long)i, 1);
	}
}

// A constant of the type of `shape`.
static Value real(Value shape, double x)
{
	LLVMTypeRef type = LLVMTypeOf(shape);
	if (LLVMGetTypeKind(type) != LLVMVectorTypeKind)
		return LLVMConstReal(type, x);
	Value lane[64];
	unsigned width = LLVMGetVectorSize(type);
	for (unsigned l = 0; l < width; l++)
		lane[l] = LLVMConstReal(LLVMGetElementType(type), x);
	return LLVMConstVector(lane, width);
}

static Value whole(Value shape, int64_t n)
{
	LLVMTypeRef type = LLVMTypeOf(shape);
	if (LLVMGetTypeKind(type) != LLVMVectorTypeKind)
		return LLVMConstInt(type, (unsigned long long)n, 1);
	Value lane[64];
	unsigned width = LLVMGetVectorSize(type);
	for (unsigned l = 0; l < width; l++)
		lane[l] = LLVMConstInt(LLVMGetElementType(type), (unsigned long long)n, 1);
	return LLVMConstVector(lane, width);
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

static Value unary(Gen *g, const char *name, Value x)
{
	LLVMTypeRef type = LLVMTypeOf(x);
	return intrinsic(g, name, 1, &type, 1, &x);
}

Value mul_add(Gen *g, Value a, Value b, Value c)
{
	Value x[3] = {a, b, c};
	level_out(g, 3, x);
	LLVMTypeRef type = LLVMTypeOf(x[0]);
	return intrinsic(g, "llvm.fmuladd", 1, &type, 3, x);
}

// ---- maps: each of the operands' element type, vectors and scalars alike --------------

static Value map_neg(Gen *g, Elem e, Value *x)
{
	return is_float(e) ? LLVMBuildFNeg(g->b, x[0], "") : LLVMBuildNeg(g->b, x[0], "");
}

static Value map_abs(Gen *g, Elem e, Value *x)
{
	if (is_float(e))
		return unary(g, "llvm.fabs", x[0]);
	if (!is_signed(e))
		return x[0];
	Value negative = LLVMBuildICmp(g->b, LLVMIntSLT, x[0], whole(x[0], 0), "");
	return LLVMBuildSelect(g->b, negative, LLVMBuildNeg(g->b, x[0], ""), x[0], "");
}

static Value less(Gen *g, Elem e, Value a, Value b)
{
	if (is_float(e))
		return LLVMBuildFCmp(g->b, LLVMRealOLT, a, b, "");
	return LLVMBuildICmp(g->b, is_signed(e) ? LLVMIntSLT : LLVMIntULT, a, b, "");
}

static Value map_sign(Gen *g, Elem e, Value *x)
{
	if (class_of(e) == 'b')
		return x[0];
	Value zero = LLVMConstNull(LLVMTypeOf(x[0]));
	Value above = less(g, e, zero, x[0]), below = less(g, e, x[0], zero);
	Value one = is_float(e) ? real(x[0], 1) : whole(x[0], 1);
	Value minus = is_float(e) ? real(x[0], -1) : whole(x[0], -1);
	Value s = LLVMBuildSelect(g->b, above, one, zero, "");
	return LLVMBuildSelect(g->b, below, minus, s, "");
}

static Value map_floor(Gen *g, Elem e, Value *x)
{
	(void)e;
	return unary(g, "llvm.floor", x[0]);
}

static Value map_ceil(Gen *g, Elem e, Value *x)
{
	(void)e;
	return unary(g, "llvm.ceil", x[0]);
}

static Value map_round(Gen *g, Elem e, Value *x)
{
	(void)e;
	return unary(g, "llvm.rint", x[0]);
}

static Value map_sqrt(Gen *g, Elem e, Value *x)
{
	(void)e;
	return unary(g, "llvm.sqrt", x[0]);
}

static Value map_rsqrt(Gen *g, Elem e, Value *x)
{
	return LLVMBuildFDiv(g->b, real(x[0], 1), map_sqrt(g, e, x), "");
}

#define MATH(name)                                                                                 \
	static Value map_##name(Gen *g, Elem e, Value *x)                                          \
	{                                                                                          \
		(void)e;                                                                           \
		return math_##name(g, x[0]);                                                       \
	}
MATH(exp)
MATH(log)
MATH(sin)
MATH(cos)
MATH(atan)
MATH(erf)
MATH(tanh)

static Value map_pow(Gen *g, Elem e, Value *x)
{
	(void)e;
	return math_pow(g, x[0], x[1]);
}

static Value map_isnan(Gen *g, Elem e, Value *x)
{
	if (!is_float(e))
		return LLVMConstNull(like(g, g->i1, x[0]));
	return LLVMBuildFCmp(g->b, LLVMRealUNO, x[0], x[0], "");
}

static Value map_not(Gen *g, Elem e, Value *x)
{
	if (class_of(e) == 'b')
		return LLVMBuildNot(g->b, x[0], "");
	return LLVMBuildICmp(g->b, LLVMIntEQ, x[0], LLVMConstNull(LLVMTypeOf(x[0])), "");
}

static Value map_add(Gen *g, Elem e, Value *x)
{
	if (class_of(e) == 'b')
		return LLVMBuildOr(g->b, x[0], x[1], "");
	return is_float(e) ? LLVMBuildFAdd(g->b, x[0], x[1], "")
	                   : LLVMBuildAdd(g->b, x[0], x[1], "");
}

static Value map_sub(Gen *g, Elem e, Value *x)
{
	return is_float(e) ? LLVMBuildFSub(g->b, x[0], x[1], "")
	                   : LLVMBuildSub(g->b, x[0], x[1], "");
}

static Value map_mul(Gen *g, Elem e, Value *x)
{
	return is_float(e) ? LLVMBuildFMul(g->b, x[0], x[1], "")
	                   : LLVMBuildMul(g->b, x[0], x[1], "");
}

// x / y truncated, and 0 by convention where y is 0; nothing traps.
static Value divide(Gen *g, Elem e, Value x, Value y)
{
	Value zero = whole(y, 0), one = whole(y, 1);
	Value none = LLVMBuildICmp(g->b, LLVMIntEQ, y, zero, ""), safe, q;
	if (is_signed(e)) {
		Value minus = LLVMBuildICmp(g->b, LLVMIntEQ, y, whole(y, -1), "");
		safe = LLVMBuildSelect(g->b, LLVMBuildOr(g->b, none, minus, ""), one, y, "");
		q = LLVMBuildSDiv(g->b, x, safe, "");
		q = LLVMBuildSelect(g->b, minus, LLVMBuildNeg(g->b, x, ""), q, "");
	} else {
		safe = LLVMBuildSelect(g->b, none, one, y, "");
		q = LLVMBuildUDiv(g->b, x, safe, "");
	}
	return LLVMBuildSelect(g->b, none, zero, q, "");
}

static Value map_div(Gen *g, Elem e, Value *x)
{
	return is_float(e) ? LLVMBuildFDiv(g->b, x[0], x[1], "") : divide(g, e, x[0], x[1]);
}

// The rest with y's sign: of floats x - y floor(x / y), of integers the rest of the truncated
// quotient put right.
static Value map_mod(Gen *g, Elem e, Value *x)
{
	if (is_float(e)) {
		Value q = LLVMBuildFDiv(g->b, x[0], x[1], "");
		Value minus = LLVMBuildFNeg(g->b, unary(g, "llvm.floor", q), "");
		return mul_add(g, minus, x[1], x[0]);
	}
	Value zero = whole(x[1], 0);
	Value product = LLVMBuildMul(g->b, divide(g, e, x[0], x[1]), x[1], "");
	Value rest = LLVMBuildSub(g->b, x[0], product, "");
	Value none = LLVMBuildICmp(g->b, LLVMIntEQ, x[1], zero, "");
	rest = LLVMBuildSelect(g->b, none, zero, rest, "");
	if (!is_signed(e))
		return rest;
	Value differ =
	    LLVMBuildICmp(g->b, LLVMIntSLT, LLVMBuildXor(g->b, rest, x[1], ""), zero, "");
	Value some = LLVMBuildICmp(g->b, LLVMIntNE, rest, zero, "");
	Value wrong = LLVMBuildAnd(g->b, differ, some, "");
	return LLVMBuildSelect(g->b, wrong, LLVMBuildAdd(g->b, rest, x[1], ""), rest, "");
}

static bool never_nan(Value v)
{
	LLVMBool lost;
	if (!LLVMIsConstant(v))
		return false;
	if (is_vector(v))
		v = LLVMGetAggregateElement(v, 0);
	return v && LLVMIsAConstantFP(v) && !isnan(LLVMConstRealGetDouble(v, &lost));
}

// x where it is the larger (smaller) or not a number, else y, which is not a number where it is
// not.
static Value extreme(Gen *g, Elem e, Value x, Value y, bool larger)
{
	if (!is_float(e))
		return LLVMBuildSelect(g->b, larger ? less(g, e, y, x) : less(g, e, x, y), x, y,
		                       "");
	if (never_nan(x)) {
		Value z = x;
		x = y;
		y = z;
	}
	LLVMRealPredicate loose = larger ? LLVMRealUGT : LLVMRealULT;
	if (never_nan(y))
		return LLVMBuildSelect(g->b, LLVMBuildFCmp(g->b, loose, x, y, ""), x, y, "");
	Value beyond = LLVMBuildFCmp(g->b, larger ? LLVMRealOGT : LLVMRealOLT, x, y, "");
	Value nan = LLVMBuildFCmp(g->b, LLVMRealUNO, x, x, "");
	return LLVMBuildSelect(g->b, LLVMBuildOr(g->b, beyond, nan, ""), x, y, "");
}

static Value map_max(Gen *g, Elem e, Value *x)
{
	return extreme(g, e, x[0], x[1], true);
}

static Value map_min(Gen *g, Elem e, Value *x)
{
	return extreme(g, e, x[0], x[1], false);
}

static Value map_eq(Gen *g, Elem e, Value *x)
{
	return is_float(e) ? LLVMBuildFCmp(g->b, LLVMRealOEQ, x[0], x[1], "")
	                   : LLVMBuildICmp(g->b, LLVMIntEQ, x[0], x[1], "");
}

static Value map_lt(Gen *g, Elem e, Value *x)
{
	return less(g, e, x[0], x[1]);
}

static Value map_le(Gen *g, Elem e, Value *x)
{
	if (is_float(e))
		return LLVMBuildFCmp(g->b, LLVMRealOLE, x[0], x[1], "");
	return LLVMBuildICmp(g->b, is_signed(e) ? LLVMIntSLE : LLVMIntULE, x[0], x[1], "");
}

static Value map_and(Gen *g, Elem e, Value *x)
{
	(void)e;
	return LLVMBuildAnd(g->b, x[0], x[1], "");
}

static Value map_or(Gen *g, Elem e, Value *x)
{
	(void)e;
	return LLVMBuildOr(g->b, x[0], x[1], "");
}

static Value map_xor(Gen *g, Elem e, Value *x)
{
	(void)e;
	return LLVMBuildXor(g->b, x[0], x[1], "");
}

static Value map_select(Gen *g, Elem e, Value *x)
{
	(void)e;
	return LLVMBuildSelect(g->b, x[0], x[1], x[2], "");
}

// ---- cast -----------------------------------------------------------------------------

static Value half_type(Gen *g, Value bits, bool to_bits)
{
	LLVMTypeRef half = LLVMHalfTypeInContext(g->context);
	return LLVMBuildBitCast(g->b, bits, like(g, to_bits ? g->i16 : half, bits), "");
}

// The upper half of an f32.
static Value widen_bf16(Gen *g, Value bits)
{
	Value wide = LLVMBuildZExt(g->b, bits, like(g, g->i32, bits), "");
	wide = LLVMBuildShl(g->b, wide, whole(wide, 16), "");
	return LLVMBuildBitCast(g->b, wide, like(g, g->f32, wide), "");
}

// To the nearest, ties to even; what is not a number stays so.
static Value narrow_bf16(Gen *g, Value x)
{
	Value bits = LLVMBuildBitCast(g->b, x, like(g, g->i32, x), "");
	Value odd = LLVMBuildLShr(g->b, bits, whole(bits, 16), "");
	odd = LLVMBuildAnd(g->b, odd, whole(bits, 1), "");
	Value up = LLVMBuildAdd(g->b, odd, whole(bits, 0x7FFF), "");
	Value rounded = LLVMBuildAdd(g->b, bits, up, "");
	Value nan = LLVMBuildFCmp(g->b, LLVMRealUNO, x, x, "");
	rounded = LLVMBuildSelect(g->b, nan, whole(bits, 0x7FC00000), rounded, "");
	rounded = LLVMBuildLShr(g->b, rounded, whole(bits, 16), "");
	return LLVMBuildTrunc(g->b, rounded, like(g, g->i16, rounded), "");
}

static Value widen_float(Gen *g, Value x, Elem from)
{
	if (from == E_bf16)
		return widen_bf16(g, x);
	if (from == E_f16)
		return LLVMBuildFPExt(g->b, half_type(g, x, false), like(g, g->f32, x), "");
	return x;
}

// By way of f32, as the evaluator does.
static Value narrow_float(Gen *g, Value x, Elem to)
{
	if (to == E_f64)
		return LLVMBuildFPCast(g->b, x, like(g, g->f64, x), "");
	x = LLVMBuildFPCast(g->b, x, like(g, g->f32, x), "");
	if (to == E_f16) {
		LLVMTypeRef half = LLVMHalfTypeInContext(g->context);
		return half_type(g, LLVMBuildFPTrunc(g->b, x, like(g, half, x), ""), true);
	}
	return to == E_bf16 ? narrow_bf16(g, x) : x;
}

// Truncates to 64 bits, stopping at their ends, and 0 for what is not a number; narrower types take
// the low bits.
static Value float_to_int(Gen *g, Value x, Elem to)
{
	bool sign = to != E_u64;
	Elem wide = sign ? E_i64 : E_u64;
	LLVMTypeRef types[2] = {like(g, g->i64, x), LLVMTypeOf(x)};
	Value v = intrinsic(g, sign ? "llvm.fptosi.sat" : "llvm.fptoui.sat", 2, types, 1, &x);
	return cast_value(g, v, wide, to);
}

Value cast_value(Gen *g, Value x, Elem from, Elem to)
{
	if (from == to)
		return x;
	if (is_float(from)) {
		x = widen_float(g, x, from);
		if (is_float(to))
			return narrow_float(g, x, to);
		if (class_of(to) == 'b')
			return LLVMBuildFCmp(g->b, LLVMRealUNE, x, real(x, 0), "");
		return float_to_int(g, x, to);
	}
	if (is_float(to)) {
		LLVMTypeRef type = like(g, to == E_f64 ? g->f64 : g->f32, x);
		x = is_signed(from) ? LLVMBuildSIToFP(g->b, x, type, "")
		                    : LLVMBuildUIToFP(g->b, x, type, "");
		return to == E_f32 || to == E_f64 ? x : narrow_float(g, x, to);
	}
	if (class_of(to) == 'b')
		return LLVMBuildICmp(g->b, LLVMIntNE, x, whole(x, 0), "");
	return LLVMBuildIntCast2(g->b, x, like(g, elem_type(g, to), x), is_signed(from), "");
}

// Its row is never called: apply() knows the types.
static Value map_cast(Gen *g, Elem e, Value *x)
{
	(void)g, (void)e;
	return x[0];
}

// Its row is never called either.
static Value map_narrow(Gen *g, Elem e, Value *x)
{
	(void)g, (void)e;
	return x[0];
}

// How a float lies in memory.
typedef struct Layout {
	LLVMTypeRef bits;
	int fraction, least; // bits behind the leading one; the least exponent
} Layout;

static Layout layout_of(Gen *g, Elem e)
{
	return e == E_f64 ? (Layout){g->i64, 52, -1022} : (Layout){g->i32, 23, -126};
}

// Numbers below 2^least lie evenly: a sum with one so large that its last bit is their step rounds.
static Value round_even(Gen *g, Value x, int step)
{
	Value large = real(x, ldexp(1.5, step));
	return LLVMBuildFSub(g->b, LLVMBuildFAdd(g->b, x, large, ""), large, "");
}

// Others lose their low bits; what carries over raises the exponent.
static Value round_bits(Gen *g, Value x, const Layout *layout, int lost)
{
	if (lost <= 0)
		return x;
	int64_t one = 1;
	Value all = LLVMBuildBitCast(g->b, x, like(g, layout->bits, x), "");
	Value odd = LLVMBuildLShr(g->b, all, whole(all, lost), "");
	odd = LLVMBuildAnd(g->b, odd, whole(all, 1), "");
	Value up = LLVMBuildAdd(g->b, odd, whole(all, (one << (lost - 1)) - 1), "");
	all = LLVMBuildAnd(g->b, LLVMBuildAdd(g->b, all, up, ""), whole(all, -(one << lost)), "");
	return LLVMBuildBitCast(g->b, all, LLVMTypeOf(x), "");
}

static Value narrow_value(Gen *g, const Attr *attr, Elem e, Value x)
{
	Layout layout = layout_of(g, e);
	int lost = layout.fraction - (int)MIN(attr->i[0], layout.fraction);
	int least = (int)MAX(attr->i[1], layout.least);
	Value size = unary(g, "llvm.fabs", x), y = round_bits(g, x, &layout, lost);
	Value small = LLVMBuildFCmp(g->b, LLVMRealOLT, size, real(x, ldexp(1, least)), "");
	y = LLVMBuildSelect(g->b, small, round_even(g, x, lost + least), y, "");
	Value nan = LLVMBuildFCmp(g->b, LLVMRealUNO, x, x, "");
	return LLVMBuildSelect(g->b, nan, x, y, "");
}

// ---- the table ------------------------------------------------------------------------

typedef Value Map(Gen *, Elem, Value *);
#define ROW_leaf(name)
#define ROW_fold(name)
#define ROW_move(name)
#define ROW_dot(name)
#define ROW_index(name)
#define ROW_whole(name)
#define ROW_loop(name)
#define ROW_map(name) [O_##name] = map_##name,
static Map *const maps[OPS] = {
#define P(name, cls, arity, type, attr, weight, text) ROW_##cls(name)
#include "prims.def"
#undef P
};

// Floats narrower than f32 are widened for the work, and narrowed after.
static Elem working_type(Elem e)
{
	return e == E_f16 || e == E_bf16 ? E_f32 : e;
}

static Value apply_map(Gen *g, Op op, Elem type, int n, Value *x)
{
	level_out(g, n, x);
	return maps[op](g, type, x);
}

Value apply(Gen *g, const Val *v, int n, Value *x, const Elem *types)
{
	if (v->op == O_cast)
		return cast_value(g, x[0], types[0], v->type);
	if (v->op == O_narrow) {
		Elem work = working_type(v->type);
		Value y = narrow_value(g, v->attr, work, cast_value(g, x[0], types[0], work));
		return cast_value(g, y, work, v->type);
	}
	Elem type = types[n - 1], work = working_type(type);
	if (work == type || v->op == O_select)
		return apply_map(g, v->op, type, n, x);
	for (int k = 0; k < n; k++)
		x[k] = widen_float(g, x[k], type);
	Value y = apply_map(g, v->op, work, n, x);
	return v->type == type ? narrow_float(g, y, type) : y;
}

// ---- folds ----------------------------------------------------------------------------

static Op step_of(Op op)
{
	switch (op) {
	case O_sum:
	case O_dot:
		return O_add;
	case O_prod:
		return O_mul;
	case O_amax:
	case O_argmax:
		return O_max;
	case O_amin:
		return O_min;
	default:
		never("a fold");
	}
}

static int64_t int_end(Elem e, bool top)
{
	int bits = 8 * elems[e].bytes;
	if (class_of(e) == 'b')
		return top;
	if (class_of(e) == 'u')
		return top ? -1 : 0;
	int64_t most = (int64_t)(UINT64_MAX >> (65 - bits));
	return top ? most : -most - 1;
}

Value fold_start(Gen *g, Op op, Elem e)
{
	switch (step_of(op)) {
	case O_add:
		return constant_value(g, e, 0, 0);
	case O_mul:
		return constant_value(g, e, 1, 1);
	case O_max:
		return constant_value(g, e, -INFINITY, int_end(e, false));
	default:
		return constant_value(g, e, INFINITY, int_end(e, true));
	}
}

Value fold_step(Gen *g, Op op, Elem e, Value a, Value b)
{
	Value x[2] = {b, a};
	Elem work = working_type(e);
	if (work == e)
		return apply_map(g, step_of(op), e, 2, x);
	for (int k = 0; k < 2; k++)
		x[k] = widen_float(g, x[k], e);
	return narrow_float(g, apply_map(g, step_of(op), work, 2, x), e);
}

// ---- memory ---------------------------------------------------------------------------

static Value element(Gen *g, LLVMTypeRef type, Value memory, Value i)
{
	return LLVMBuildGEP2(g->b, type, memory, &i, 1, "");
}

// Addresses that differ by lane.
static Value addresses(Gen *g, LLVMTypeRef type, Value memory, const Lanes *x)
{
	LLVMTypeRef narrow = LLVMVectorType(g->i32, (unsigned)g->target->width);
	bool fits = x->most > 0 && x->most < INT32_MAX / 2;
	Value start = element(g, type, memory, x->base), by = x->vector;
	if (by && fits)
		by = LLVMBuildTrunc(g->b, by, narrow, "");
	if (x->step) {
		Value lane[64];
		for (int l = 0; l < g->target->width; l++)
			lane[l] = LLVMConstInt(fits ? g->i32 : g->i64,
			                       (unsigned long long)(l * x->step), 1);
		Value steps = LLVMConstVector(lane, (unsigned)g->target->width);
		by = by ? LLVMBuildAdd(g->b, by, steps, "") : steps;
	}
	return element(g, type, start, by);
}

static Value all_lanes(Gen *g)
{
	return LLVMConstAllOnes(LLVMVectorType(g->i1, (unsigned)g->target->width));
}

// What masked lanes hold, which nothing may use. LLVM 19 takes a quotient of lanes known to be 0
// for 0 (0 / 0 in SimplifyDemandedVectorElts) and drops the select that hides it: where it knows
// the mask, floats are 1.
static Value unread_lanes(LLVMTypeRef wide, Value mask)
{
	Value none = LLVMConstNull(wide);
	bool whole = LLVMGetTypeKind(LLVMGetElementType(wide)) == LLVMIntegerTypeKind;
	return whole || !mask || !LLVMIsConstant(mask) ? none : real(none, 1);
}

static Value load_vector(Gen *g, LLVMTypeRef type, unsigned align, Value memory, const Lanes *x)
{
	LLVMTypeRef wide = LLVMVectorType(type, (unsigned)g->target->width);
	Value alignment = LLVMConstInt(g->i32, align, 0), none = unread_lanes(wide, x->mask);
	if (x->step != 1 || x->vector) {
		Value from = addresses(g, type, memory, x);
		Value mask = x->mask ? x->mask : all_lanes(g);
		Value args[4] = {from, alignment, mask, none};
		LLVMTypeRef types[2] = {wide, LLVMTypeOf(from)};
		return intrinsic(g, "llvm.masked.gather", 2, types, 4, args);
	}
	Value from = element(g, type, memory, x->base);
	if (x->mask) {
		Value args[4] = {from, alignment, x->mask, none};
		LLVMTypeRef types[2] = {wide, g->ptr};
		return intrinsic(g, "llvm.masked.load", 2, types, 4, args);
	}
	Value v = LLVMBuildLoad2(g->b, wide, from, "");
	LLVMSetAlignment(v, align);
	return v;
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
	prefetch_line(g, element(g, memory_type(g, e), memory, x->base));
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
	return e == E_b8 ? LLVMBuildICmp(g->b, LLVMIntNE, v, whole(v, 0), "") : v;
}

static void store_vector(Gen *g, LLVMTypeRef type, unsigned align, Value memory, const Lanes *x,
                         Value v)
{
	Value alignment = LLVMConstInt(g->i32, align, 0);
	if (x->step != 1 || x->vector) {
		Value to = addresses(g, type, memory, x);
		Value args[4] = {v, to, alignment, x->mask ? x->mask : all_lanes(g)};
		LLVMTypeRef types[2] = {LLVMTypeOf(v), LLVMTypeOf(to)};
		intrinsic(g, "llvm.masked.scatter", 2, types, 4, args);
		return;
	}
	Value to = element(g, type, memory, x->base);
	if (x->mask) {
		Value args[4] = {v, to, alignment, x->mask};
		LLVMTypeRef types[2] = {LLVMTypeOf(v), g->ptr};
		intrinsic(g, "llvm.masked.store", 2, types, 4, args);
		return;
	}
	LLVMSetAlignment(LLVMBuildStore(g->b, v, to), align);
}

void store_lanes(Gen *g, Elem e, Value memory, const Lanes *x, Value v)
{
	LLVMTypeRef type = memory_type(g, e);
	if (differs(x))
		v = splat(g, v);
	if (e == E_b8)
		v = LLVMBuildZExt(g->b, v, like(g, g->i8, v), "");
	if (differs(x))
		store_vector(g, type, (unsigned)elems[e].bytes, memory, x, v);
	else
		LLVMSetAlignment(LLVMBuildStore(g->b, v, element(g, type, memory, x->base)),
		                 (unsigned)elems[e].bytes);
}
