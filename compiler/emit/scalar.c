// scalar.c: the instructions of each primitive map and fold, for any element type, scalar or along
// lanes. Takes gen.h; the rows are those of prims.def: a map without one does not compile.
#include "gen.h"
#include <math.h>

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
	Value negative = LLVMBuildICmp(g->b, LLVMIntSLT, x[0], int_like(x[0], 0), "");
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
	if (e == E_b8)
		return x[0];
	Value zero = LLVMConstNull(LLVMTypeOf(x[0]));
	Value above = less(g, e, zero, x[0]), below = less(g, e, x[0], zero);
	Value one = is_float(e) ? real_like(x[0], 1) : int_like(x[0], 1);
	Value minus = is_float(e) ? real_like(x[0], -1) : int_like(x[0], -1);
	Value s = LLVMBuildSelect(g->b, above, one, zero, "");
	return LLVMBuildSelect(g->b, below, minus, s, "");
}

#define UNARY(name, intrinsic)                                                                     \
	static Value map_##name(Gen *g, Elem e, Value *x)                                          \
	{                                                                                          \
		(void)e;                                                                           \
		return unary(g, intrinsic, x[0]);                                                  \
	}
UNARY(floor, "llvm.floor")
UNARY(ceil, "llvm.ceil")
UNARY(round, "llvm.rint")
UNARY(sqrt, "llvm.sqrt")

static Value map_rsqrt(Gen *g, Elem e, Value *x)
{
	return LLVMBuildFDiv(g->b, real_like(x[0], 1), map_sqrt(g, e, x), "");
}

#define MATH(name)                                                                                 \
	static Value map_##name(Gen *g, Elem e, Value *x)                                          \
	{                                                                                          \
		(void)e;                                                                           \
		return math_##name(g, x[0]);                                                       \
	}
MATH(exp)
MATH(log)
MATH(expm1)
MATH(log1p)
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
		return LLVMConstNull(like(g->i1, x[0]));
	return LLVMBuildFCmp(g->b, LLVMRealUNO, x[0], x[0], "");
}

static Value map_not(Gen *g, Elem e, Value *x)
{
	if (e == E_b8)
		return LLVMBuildNot(g->b, x[0], "");
	return LLVMBuildICmp(g->b, LLVMIntEQ, x[0], LLVMConstNull(LLVMTypeOf(x[0])), "");
}

static Value map_add(Gen *g, Elem e, Value *x)
{
	if (e == E_b8)
		return LLVMBuildOr(g->b, x[0], x[1], "");
	return is_float(e) ? LLVMBuildFAdd(g->b, x[0], x[1], "")
	                   : LLVMBuildAdd(g->b, x[0], x[1], "");
}

#define ARITHMETIC(name, of_floats, of_integers)                                                   \
	static Value map_##name(Gen *g, Elem e, Value *x)                                          \
	{                                                                                          \
		return is_float(e) ? of_floats(g->b, x[0], x[1], "")                               \
		                   : of_integers(g->b, x[0], x[1], "");                            \
	}
ARITHMETIC(sub, LLVMBuildFSub, LLVMBuildSub)
ARITHMETIC(mul, LLVMBuildFMul, LLVMBuildMul)

// x / y truncated, and 0 by convention where y is 0; nothing traps.
static Value divide(Gen *g, Elem e, Value x, Value y)
{
	Value zero = int_like(y, 0), one = int_like(y, 1);
	Value none = LLVMBuildICmp(g->b, LLVMIntEQ, y, zero, ""), safe, q;
	if (is_signed(e)) {
		Value minus = LLVMBuildICmp(g->b, LLVMIntEQ, y, int_like(y, -1), "");
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
	Value zero = int_like(x[1], 0);
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

#define BITWISE(name, build)                                                                       \
	static Value map_##name(Gen *g, Elem e, Value *x)                                          \
	{                                                                                          \
		(void)e;                                                                           \
		return build(g->b, x[0], x[1], "");                                                \
	}
BITWISE(and, LLVMBuildAnd)
BITWISE(or, LLVMBuildOr)
BITWISE(xor, LLVMBuildXor)

static Value map_select(Gen *g, Elem e, Value *x)
{
	(void)e;
	return LLVMBuildSelect(g->b, x[0], x[1], x[2], "");
}

// ---- the table ------------------------------------------------------------------------

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

// Floats narrower than f32 are widened for the work, and narrowed after.
static Elem working_type(Elem e)
{
	return e == E_f16 || e == E_bf16 ? E_f32 : e;
}

typedef Value Map(Gen *, Elem, Value *);
#define ROW_leaf(name)
#define ROW_reduce(name)
#define ROW_move(name)
#define ROW_dot(name)
#define ROW_index(name)
#define ROW_composite(name)
#define ROW_loop(name)
#define ROW_map(name) [O_##name] = map_##name,
static Map *const maps[OPS] = {
#define P(name, cls, arity, type, attr, weight, length, text) ROW_##cls(name)
#include "prims.def"
#undef P
};

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
	if (e == E_b8)
		return top;
	if (elems[e].cls == 'u')
		return top ? -1 : 0;
	int64_t most = (int64_t)(UINT64_MAX >> (65 - bits));
	return top ? most : -most - 1;
}

Value reduce_start(Gen *g, Op op, Elem e)
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

Value reduce_step(Gen *g, Op op, Elem e, Value a, Value b)
{
	Value x[2] = {b, a};
	Elem work = working_type(e);
	if (work == e)
		return apply_map(g, step_of(op), e, 2, x);
	for (int k = 0; k < 2; k++)
		x[k] = widen_float(g, x[k], e);
	return narrow_float(g, apply_map(g, step_of(op), work, 2, x), e);
}
