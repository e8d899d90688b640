// scalar.c: emits maps and the steps of reductions, for scalars and vectors of any element type.
// maps.def lists the maps.
#include "gen.h"
#include <math.h>

// ---- maps -----------------------------------------------------------------------------

static Value less(Gen *g, Elem e, Value a, Value b)
{
	if (is_float(e))
		return LLVMBuildFCmp(g->b, LLVMRealOLT, a, b, "");
	return LLVMBuildICmp(g->b, is_signed(e) ? LLVMIntSLT : LLVMIntULT, a, b, "");
}

static Value int_abs(Gen *g, Elem e, Value x)
{
	if (!is_signed(e))
		return x;
	Value negative = LLVMBuildICmp(g->b, LLVMIntSLT, x, int_like(x, 0), "");
	return LLVMBuildSelect(g->b, negative, LLVMBuildNeg(g->b, x, ""), x, "");
}

static Value sign_of(Gen *g, Elem e, Value x)
{
	if (e == E_b8)
		return x;
	Value zero = LLVMConstNull(LLVMTypeOf(x));
	Value above = less(g, e, zero, x), below = less(g, e, x, zero);
	Value one = is_float(e) ? real_like(x, 1) : int_like(x, 1);
	Value minus = is_float(e) ? real_like(x, -1) : int_like(x, -1);
	Value s = LLVMBuildSelect(g->b, above, one, zero, "");
	return LLVMBuildSelect(g->b, below, minus, s, "");
}

static Value int_add(Gen *g, Elem e, Value x, Value y)
{
	return e == E_b8 ? LLVMBuildOr(g->b, x, y, "") : LLVMBuildAdd(g->b, x, y, "");
}

// x / y truncated, and 0 by convention where y is 0; nothing traps.
static Value int_div(Gen *g, Elem e, Value x, Value y)
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

// The remainder of the truncated quotient, corrected to the sign of y, by two steps of division in
// double. Exact if |x / y| < 2^56, for f64 on a CPU with fma: a step of f32 takes the first 29 bits
// of the quotient, whose product with y is exact.
static Value float_mod(Gen *g, Value x, Value y)
{
	LLVMTypeRef own = LLVMTypeOf(x), wide = like(g->f64, x), bits = like(g->i64, x);
	Value rest = LLVMBuildFPCast(g->b, x, wide, ""), by = LLVMBuildFPCast(g->b, y, wide, "");
	for (int step = 0; step < 2; step++) {
		Value q = math_trunc(g, LLVMBuildFDiv(g->b, rest, by, ""));
		if (own != wide) {
			q = LLVMBuildBitCast(g->b, q, bits, "");
			q = LLVMBuildAnd(g->b, q, int_like(q, -(INT64_C(1) << 24)), "");
			q = LLVMBuildBitCast(g->b, q, wide, "");
		}
		Value none = LLVMBuildFCmp(g->b, LLVMRealOEQ, q, real_like(q, 0), "");
		Value next = mul_add(g, LLVMBuildFNeg(g->b, q, ""), by, rest);
		rest = LLVMBuildSelect(g->b, none, rest, next, ""); // 0 by infinity is NaN
	}
	Value zero = real_like(rest, 0);
	Value differ = LLVMBuildXor(g->b, LLVMBuildFCmp(g->b, LLVMRealOLT, rest, zero, ""),
	                            LLVMBuildFCmp(g->b, LLVMRealOLT, by, zero, ""), "");
	Value some = LLVMBuildFCmp(g->b, LLVMRealUNE, rest, zero, "");
	Value mod = LLVMBuildSelect(g->b, differ, LLVMBuildFAdd(g->b, rest, by, ""), rest, "");
	Value none = intrinsic(g, "llvm.copysign", 1, &wide, 2, (Value[]){zero, by});
	return LLVMBuildFPCast(g->b, LLVMBuildSelect(g->b, some, mod, none, ""), own, "");
}

// The remainder of the truncated quotient, corrected to the sign of y.
static Value int_mod(Gen *g, Elem e, Value x, Value y)
{
	Value zero = int_like(y, 0);
	Value product = LLVMBuildMul(g->b, int_div(g, e, x, y), y, "");
	Value rest = LLVMBuildSub(g->b, x, product, "");
	Value none = LLVMBuildICmp(g->b, LLVMIntEQ, y, zero, "");
	rest = LLVMBuildSelect(g->b, none, zero, rest, "");
	if (!is_signed(e))
		return rest;
	Value differ = LLVMBuildICmp(g->b, LLVMIntSLT, LLVMBuildXor(g->b, rest, y, ""), zero, "");
	Value some = LLVMBuildICmp(g->b, LLVMIntNE, rest, zero, "");
	Value wrong = LLVMBuildAnd(g->b, differ, some, "");
	return LLVMBuildSelect(g->b, wrong, LLVMBuildAdd(g->b, rest, y, ""), rest, "");
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

// Returns x if it is larger (smaller) or NaN, else y.
static Value float_extreme(Gen *g, Value x, Value y, bool larger)
{
	LLVMTypeRef type = LLVMTypeOf(x);
	if (has_half_instructions(g) && type == g->f32)
		return intrinsic(g, larger ? "llvm.maximum" : "llvm.minimum", 1, &type, 2,
		                 (Value[]){x, y});
	if (never_nan(x)) {
		Value z = x;
		x = y;
		y = z;
	}
	LLVMRealPredicate loose = larger ? LLVMRealUGT : LLVMRealULT;
	if (never_nan(y))
		return LLVMBuildSelect(g->b, LLVMBuildFCmp(g->b, loose, x, y, ""), x, y, "");
	// The inner choice is one instruction of x86, and what follows y from step to step.
	Value beyond = LLVMBuildFCmp(g->b, larger ? LLVMRealOGT : LLVMRealOLT, x, y, "");
	Value nan = LLVMBuildFCmp(g->b, LLVMRealUNO, x, x, "");
	return LLVMBuildSelect(g->b, nan, x, LLVMBuildSelect(g->b, beyond, x, y, ""), "");
}

static Value apply_map(Gen *g, Op op, Elem e, int n, Value *in)
{
	level_out(g, n, in);
	LLVMBuilderRef b = g->b;
	Value x = in[0], y = n > 1 ? in[1] : NULL;
	switch (op) {
#define MAP(name, float_value, value, float_code, code)                                            \
	case O_##name:                                                                             \
		return is_float(e) ? float_code : code;
#define FLOAT(name, value, code)                                                                   \
	case O_##name:                                                                             \
		return code;
#define INTEGER FLOAT
#include "maps.def"
#undef MAP
#undef FLOAT
#undef INTEGER
	case O_select:
		return LLVMBuildSelect(b, x, y, in[2], "");
	default:
		never("a map");
	}
}

// Applies a map to operands of type e; `result`: the type of its result.
static Value apply_to(Gen *g, Op op, Elem e, Elem result, int n, Value *x)
{
	Elem work = arithmetic_type(e);
	if (work == e || op == O_select)
		return apply_map(g, op, e, n, x);
	for (int k = 0; k < n; k++)
		x[k] = widen_float(g, x[k], e);
	Value y = apply_map(g, op, work, n, x);
	return result == e ? narrow_float(g, y, e) : y;
}

// True if r is what elements are beyond the largest of them: at most 0, or NaN. If the largest is
// -inf, another number may stand for it.
static bool is_below_top(const Graph *g, Ref r)
{
	const Val *v = val(g, r);
	if (v->op != O_sub)
		return false;
	const Val *top = val(g, v->in[1]);
	if (top->op == O_select) {
		const Val *none = val(g, top->in[0]);
		double low;
		if (none->op != O_eq || none->in[0] != top->in[2] ||
		    !const_num(g, none->in[1], &low) || low != -INFINITY)
			return false;
		top = val(g, top->in[2]);
	}
	return top->op == O_amax && top->in[0] == v->in[0];
}

Value apply(Gen *g, const Val *v, int n, Value *x, const Elem *types)
{
	if (v->op == O_cast)
		return cast_value(g, x[0], types[0], v->type);
	if (v->op == O_exp && is_below_top(g->graph, v->in[0])) {
		Elem work = arithmetic_type(v->type);
		Value y = math_exp_falling(g, cast_value(g, x[0], types[0], work));
		return cast_value(g, y, work, v->type);
	}
	if (v->op == O_narrow) {
		Elem work = arithmetic_type(v->type);
		Value y = narrow_value(g, v->attr, work, cast_value(g, x[0], types[0], work));
		return cast_value(g, y, work, v->type);
	}
	return apply_to(g, v->op, types[n - 1], v->type, n, x);
}

// ---- reductions ----------------------------------------------------------------------------

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
	double start = reducers[op].start;
	return constant_value(g, e, start,
	                      isfinite(start) ? (int64_t)start : int_end(e, start > 0));
}

Elem sum_type(const Gen *g, Ref reduction)
{
	const Val *v = val(g->graph, reduction);
	Elem own = v->op == O_dot ? v->type : val(g->graph, v->in[0])->type;
	int64_t in = g->kern->sched->accumulation;
	bool adds = v->op == O_sum || v->op == O_prod || v->op == O_dot;
	if (!adds || !is_float(own) || in == A_own)
		return own;
	return MIN(own, in == A_f64 ? E_f64 : E_f32);
}

Value reduce_step(Gen *g, Op op, Elem e, Value a, Value b)
{
	return apply_to(g, reducers[op].step, e, e, 2, (Value[]){b, a});
}
