// gen.h: what the kernel emitters share: a kernel being written, its loops, indices, and at().
// Takes emit.h and the LLVM C API. Floor-internal.
//
// A kernel is a function over (buf, worker, pad). Inside it a *Value* is an LLVM value of an element type: a scalar
// when all lanes agree, else a vector of target->width. b8 is i1 in values, a byte in memory; types that are only
// stored (f16 bf16 i16 i8 u..) keep their bits until `cast`.
//
// An *Index* says which element of an axis is meant, as a sum of constant multiples of variables; a variable is
// uniform, or runs along the lanes. at(g, r, idx) is element idx of graph value r, evaluated as deep in the loops as
// idx needs and no deeper: code is placed at the level of the deepest variable, and shared there.
#ifndef GEN_H
#define GEN_H
#include "emit.h"
#include <llvm-c/Core.h>

typedef LLVMValueRef Value;

// ---- targets: cpu.c, nvptx.c ----------------------------------------------------------------------

struct Target {
	const char *name, *triple, *cpu, *features;
	int width;     // lanes of a vector; 1: every thread is a lane
	int block;     // threads a worker; 1: a worker is one thread
	int registers; // vector registers
	int64_t l1, l2; // bytes of cache of a core
	bool gpu, emulated; // emulated: GPU code on the host
	bool intel, amx, bf16;
};

// ---- a kernel being written: emit.c -------------------------------------------------------------------

typedef struct Level Level;
typedef struct Bound Bound;

typedef struct Gen {
	Arena *arena; // lives as long as the kernel is written
	const Target *target;
	const Plan *plan;
	const Graph *graph;
	const Kern *kern;
	const bool *inside;     // by Ref: the kernel computes it, though it may be in memory
	struct Signature *signature; // which place is which entry of buf
	LLVMContextRef context;
	LLVMModuleRef module;
	LLVMBuilderRef b;
	Value function, buf, worker, pad;
	LLVMTypeRef i1, i8, i16, i32, i64, f32, f64, ptr;
	Level *level; // where code is written now
	Level *floor; // nothing is placed outside of this level
	Bound *bound;
	VEC(struct Var *) vars;
	Table *split;      // div and mod variables by what they divide
	int64_t workers;   // set by the emitter of the kernel: calls a launch makes
	int64_t pad_bytes; // private memory a worker needs
} Gen;

// The emitters by kind of kernel. Each writes the body and sets workers (and pad_bytes).
void emit_map(Gen *, const Kern *);
void emit_row(Gen *, const Kern *); // row and col
void emit_dot(Gen *, const Kern *);
void emit_put(Gen *, const Kern *);
void emit_scan(Gen *, const Kern *);

// ---- indices: index.c --------------------------------------------------------------------------------

enum { TERMS = 8 };
typedef struct Index {
	int64_t constant;
	int n;
	struct Term {
		int var;
		int64_t coef;
	} term[TERMS]; // by var, ascending; coef is never 0
} Index;

// 0 <= variable < extent in lanes that exist.
typedef struct Var {
	enum { V_given, V_div, V_mod, V_sum } kind;
	Index of; // div, mod, sum: computed where it is first needed
	int64_t by;
	int64_t extent;
	int64_t align;   // base is a multiple of it
	Level *level;
	bool ready;
	Value base;      // i64, the same in all lanes
	int lane;        // 1: lane l adds l
	Value vector;    // <width x i64> that differs by lane, or NULL
	Value mask;      // <width x i1>: lanes that exist; NULL: all
} Var;

Index constant_index(int64_t);
Index uniform_index(Gen *, Value base, int64_t extent, int64_t align); // a new variable of the current level
Index lane_index(Gen *, Value base, int64_t extent, int64_t align, Value mask); // base, base + 1, .. along the lanes
Index vector_index(Gen *, Value vector, int64_t extent, Value mask);
Index add_index(Gen *, const Index *, const Index *, int64_t times); // a + times * b
Index shift_index(Index, int64_t);
void split_index(Gen *, const Index *, int64_t by, Index *quotient, Index *rest);
void index_range(Gen *, const Index *, int64_t *low, int64_t *high); // inclusive
void unravel(Gen *, const Index *linear, const Shape *, Index *idx);
Index ravel(Gen *, const Shape *, const Index *idx); // row-major position
Level *index_level(Gen *, int n, const Index *);

typedef struct Lanes { // an Index as code: base + lane * step, or base + vector
	Value base;    // i64
	int64_t step;  // 0: uniform
	Value vector;  // or NULL
	Value mask;    // lanes that exist, NULL: all
} Lanes;
Lanes index_value(Gen *, const Index *); // written where its variables live
Value index_i64(Gen *, const Index *);   // as a scalar or a vector of i64

// ---- loops: loop.c -----------------------------------------------------------------------------------

typedef struct Loop {
	Value i; // i64
	Level *outer;
	Value counter, end, step;
	LLVMBasicBlockRef head, body;
} Loop;
// for (i = from; i < to; i += step). Written once even if it never runs.
Loop loop_begin(Gen *, Value from, Value to, int64_t step);
void loop_end(Gen *, Loop *);
// Code outside of the current level is written to its end; a level with no loop: begin and end.
Level *level_enter(Gen *);
void level_leave(Gen *, Level *outer);
bool level_inside(const Level *inner, const Level *outer); // or the same

Value number(Gen *, int64_t);                       // i64
Value variable(Gen *, LLVMTypeRef, Value initial);   // an alloca; a register after mem2reg
Value read_variable(Gen *, LLVMTypeRef, Value variable);
void set_variable(Gen *, Value variable, Value);
Value pad_memory(Gen *, int64_t bytes); // 64-byte aligned part of the thread's private memory

// Lanes along an axis of `count`, from..to (multiples of width, or to == count): body(g, idx, unit, ctx) is called
// for `unroll` vectors side by side (unit 0..unroll-1), then for the rest. The GPU's threads take turns.
typedef void LaneBody(Gen *, const Index *, int unit, void *ctx);
void lane_loop(Gen *, Value from, Value to, int64_t count, int64_t multiple, int unroll, LaneBody *, void *ctx);

// ---- values: at.c ---------------------------------------------------------------------------------------

Value at(Gen *, Ref, const Index *idx);
Value place_address(Gen *, Ref);              // where a value in memory is
Value out_address(Gen *, int k);              // where out k is written
void store_out(Gen *, int k, const Index *idx, Value); // idx: of the out's shape
// Evaluates every out at `idx` of the kernel's space, then stores them.
void store_outs(Gen *, const Index *idx);
// While bound, r is not computed: it is read from `memory`, row major with these strides (elements), at idx - origin.
struct Bound {
	Ref r;
	Value memory;
	Index origin[RANK];
	int64_t stride[RANK];
	Level *floor; // set by bind
	Bound *outer;
};
void bind(Gen *, Bound *);
void unbind(Gen *, Bound *);
// The value of r at idx is known to be v from here on, at this level.
void remember(Gen *, Ref, const Index *idx, Value v);

// ---- scalars: scalar.c, math.c -----------------------------------------------------------------------

LLVMTypeRef elem_type(Gen *, Elem);     // in values
LLVMTypeRef memory_type(Gen *, Elem);   // in memory
LLVMTypeRef like(Gen *, LLVMTypeRef, Value shape); // a scalar or vector type as wide as `shape`
bool is_vector(Value);
Value splat(Gen *, Value);              // to target->width lanes, if it is not yet
Value constant_value(Gen *, Elem, double, int64_t); // the double for floats, the integer for others
Value apply(Gen *, const Val *, int n, Value *operands, const Elem *types); // a map
Value cast_value(Gen *, Value, Elem from, Elem to);
Value fold_start(Gen *, Op, Elem);      // what leaves the other operand as it is
Value fold_step(Gen *, Op, Elem, Value, Value);
Value fold_lanes(Gen *, Op, Elem, Value); // across lanes (on a GPU: across the worker's threads)
Value intrinsic(Gen *, const char *name, int ntypes, LLVMTypeRef *types, int n, Value *args);
Value mul_add(Gen *, Value a, Value b, Value c); // a b + c, rounded once

Value math_exp(Gen *, Value), math_log(Gen *, Value), math_tanh(Gen *, Value), math_erf(Gen *, Value);
Value math_sin(Gen *, Value), math_cos(Gen *, Value), math_atan(Gen *, Value);
Value math_pow(Gen *, Value, Value);

// Memory: `n` elements as a scalar, or along lanes. Alignment is that of the element.
Value load_lanes(Gen *, Elem, Value memory, const Lanes *);
void store_lanes(Gen *, Elem, Value memory, const Lanes *, Value);

#endif
