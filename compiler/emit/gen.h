// gen.h: declares what the emitters share: a kernel being written, its loops, indices, and at().
//
// A kernel is a function of (buf, worker, local). A *Value* is an LLVM value of an element type: a
// scalar if all lanes agree, else a vector of target->width. b8 is i1 in values, a byte in memory;
// types that are only stored (f16 bf16 i16 i8 u..) keep their bits until `cast`.
//
// An *Index* is a position along an axis, as a sum of multiples of variables; a variable is
// uniform, or varies by lane. at(g, r, idx) is element idx of graph value r, evaluated as deep in
// the loops as idx needs and no deeper: code is placed at the level of the deepest variable, and
// shared there.
#ifndef GEN_H
#define GEN_H
#include "emit.h"
#include "index.h"
#include <llvm-c/Core.h>
#include <llvm-c/TargetMachine.h>

typedef LLVMValueRef Value;
typedef struct TargetOps TargetOps;
typedef struct ThreadTile ThreadTile;
typedef struct TileKind TileKind;

// ---- a kernel being written: emit.c ---------------------------------------------------

// A place for code: the function, or the body of a loop. Outer levels stay open while inner ones
// are written, so what does not depend on an inner loop is written outside of it.
typedef struct Level {
	struct Level *outer;
	int depth;
	bool lanes;                    // in a loop over lanes, where the threads of a GPU diverge
	LLVMBasicBlockRef first, open; // code of this level is added at the end of `open`
	Table *memo;                   // values already computed here
} Level;
typedef struct Tile Tile;
typedef struct TileCalls TileCalls;
typedef struct Bound Bound;

typedef struct Gen {
	Arena *arena; // lives as long as the kernel is written
	const Target *target;
	const TargetOps *ops;
	int width; // lanes
	const Plan *plan;
	const Graph *graph;
	const Kern *kern;
	const bool *inside; // indexed by Ref: the kernel computes it, though it may be in memory
	const struct Signature *signature; // entries of buf by location
	LLVMContextRef context;
	LLVMModuleRef module;
	LLVMBuilderRef b;
	Value function, buf, worker, local;
	Value end_worker;        // of the gang, which begins with `worker`
	LLVMBasicBlockRef entry; // variables
	LLVMTypeRef i1, i8, i16, i32, i64, f32, f64, ptr;
	Level *level;      // where code is written now
	Level *ground;     // the function
	Level *floor;      // nothing is placed outside of this level
	Bound *bound;      // the last that is bound
	Bound *keep;       // the first that is kept
	bool outs;         // reduce_values also stores outputs of the full shape
	bool prefetches;   // it also prefetches what the kernel reads next
	bool shares;       // addresses of elements that are a constant apart share the first
	struct Late *late; // NULL: stores do not wait
	Vars *vars;
	Table *address;     // entry of buf -> its value
	TileCalls *tiles;   // what the module's kernels call
	Inside computed;    // what the kernel computes and no Bound holds
	Stage stage;        // the launch being written
	bool part;          // it is one of several kernels in a launch
	Value kernel;       // which of those of its code in the launch, i64
	int kernels;        // of them
	int64_t local_used; // bytes of local memory
} Gen;

// The emitters by kind of kernel. Each writes the body of a launch by the schedule.
void emit_map(Gen *), emit_row(Gen *); // row.c: maps; reductions of rows and columns
void emit_turn(Gen *);                 // turn.c: maps by squares
void emit_dot(Gen *);                  // dot.c: products on CPUs
void emit_thread_tile(Gen *);          // thread_tile.c: products by blocks of threads
void emit_attend(Gen *);               // attend.c
void emit_scatter(Gen *);              // scatter.c: and running sums

// ---- indices: index.c -----------------------------------------------------------------

Value number(Gen *, int64_t); // i64

struct Code { // of a variable
	Level *level;
	bool ready;   // else it is written when it is first needed
	Value base;   // i64, the same in all lanes
	int lane;     // 1: lane l adds l
	Value vector; // <width x i64> that differs by lane, or NULL
	Value mask;   // <width x i1>: lanes that exist; NULL: all
};
struct Code *code_of(Gen *, int var);
// A new variable of the current level.
Index uniform_index(Gen *, Value base, int64_t extent, int64_t align);
// base, base + 1, .. along the lanes.
Index lane_index(Gen *, Value base, int64_t extent, int64_t align, Value mask);
// The same within an axis of `count` elements, which is read `each` at a time: so many lanes, or a
// multiple of them. base is a multiple of the number of lanes.
Index lanes_within(Gen *, Value base, int64_t count, int64_t each);
Index vector_index(Gen *, Value vector, int64_t extent, Value mask);
Level *index_level(Gen *, int n, const Index *); // the deepest of their variables, or g->floor

typedef struct Lanes { // an Index as code: base + lane * step, or base + vector
	Value base;    // i64
	int64_t step;  // 0: uniform
	Value vector;  // or NULL
	Value mask;    // lanes that exist, NULL: all
	int64_t most;  // the largest position, 0: not known
	unsigned past; // vectors are stored past the caches, to addresses that are multiples of
	               // this; 0: they are not
} Lanes;
Lanes index_value(Gen *, const Index *);        // written where its variables live
Value index_i64(Gen *, const Index *);          // as a scalar or a vector of i64
Value index_number(Gen *, const Index *, Elem); // a scalar or a vector, of i64 or its low 32 bits

// ---- loops: loop.c --------------------------------------------------------------------

typedef struct Loop {
	Value i; // of the type of its limits
	Value to, counter;
	int64_t step;
	Level *outer;
} Loop;
// for (i = from; i < to; i += step), where `from` and `to` are known at the level of the loop's
// begin.
Loop loop_begin(Gen *, Value from, Value to, int64_t step);
void loop_end(Gen *, Loop *);
// The same, of a loop that the device's compiler does not unroll, for want of registers.
void loop_end_rolled(Gen *, Loop *);
// if (condition), which is known at the level of the begin.
Loop when_begin(Gen *, Value condition);
void when_end(Gen *, Loop *);
Level *level_go(Gen *, Level *to); // an outer level, or back; returns the current one

Value variable(Gen *, Value initial); // an alloca; a register after mem2reg
Value read_variable(Gen *, Value variable);
void set_variable(Gen *, Value variable, Value);
Value stack_memory(Gen *, int64_t bytes); // of the launch's function; 64-byte aligned
Value local_memory(Gen *, int64_t bytes); // 64-byte aligned part of the thread's private memory

// The body of a loop over lanes: `n` vectors side by side.
typedef void LaneBody(Gen *, int n, const Index *unit, void *context);
// for (i = from + own; i < to; i += step), where `to` is at most `count`: the body of `together`
// steps at a time, with n = 1 each, and of the rest one by one. Steps do not depend on each other:
// their loads, which come before their stores, wait for memory together.
typedef struct Range {
	Value from, to, own; // own: of this thread, less than step; NULL: 0
	int64_t count, step, together;
	int64_t multiple; // to - from is a multiple of it
	bool lanes;       // i differs by thread
	bool rolled;      // see loop_end_rolled()
} Range;
void range_loop(Gen *, const Range *, LaneBody *, void *context);
// TargetOps.lane_loop of CPUs.
void vector_loop(Gen *, Value from, Value to, int64_t count, int unroll, LaneBody *, void *context);
Value first_lanes(Gen *, int64_t count); // a mask of them
enum { UNITS = 32 };                     // most vectors side by side

// ---- worker.c: a worker's part of the space -------------------------------------------

Index worker_row(Gen *, int64_t rows, int64_t columns); // P_columns: the row of its piece
// Lanes along its columns.
void worker_columns(Gen *, int64_t columns, LaneBody *, void *context);

// ---- targets: target/*.c --------------------------------------------------------------

// Ends code that one thread of the worker runs, after all have reached it; if threads have diverged
// already, all run it.
void single_end(Gen *, Loop *);

typedef enum Prefetch { // into the first cache (F_)
	F_read,
	F_write,
	F_later, // into the second: it is read so late that it would only displace what is in use
} Prefetch;

struct TargetOps {                              // the hooks of a target
	void (*begin)(Gen *, const char *name); // a launch's function, with buf, worker and local
	LLVMTypeRef (*pointer)(Gen *);          // of the addresses in buf
	// The device's compiler moves loads out of branches: those of addresses are volatile where
	// one of several kernels of a launch has them.
	bool hoists;
	// Lanes along from..to of an axis of `count` elements: all of it, or `from` and `to` are
	// multiples of width * unroll, or to = count. The body gets `unroll` vectors, and the rest
	// in a second call, the last perhaps with a mask; on a GPU, threads alternate, n = 1.
	void (*lane_loop)(Gen *, Value from, Value to, int64_t count, int unroll, LaneBody *,
	                  void *context);
	// Reduces across lanes or threads, which all get the result.
	Value (*reduce_lanes)(Gen *, Op, Elem, Value);
	// All threads of the worker reach this before any continues; nothing if they have diverged.
	void (*barrier)(Gen *);
	Loop (*single_begin)(Gen *); // outer is NULL: all threads run it
	// Prefetches the cache line of an address, which may be past the end.
	void (*prefetch)(Gen *, Value address, Prefetch);
	// sum + the products of pairs of bf16; only of machines with `pairs`.
	Value (*add_pairs)(Gen *, Value sum, Value a, Value b);
	// Writes the function of a register tile: its loads, products and stores; NULL: no tiles.
	// It is called between tile_begin and tile_end.
	void (*tile)(const Gen *, const Tile *);
	void (*tile_begin)(Gen *, const Tile *);
	void (*tile_end)(Gen *, const Tile *);
	// The same in parts, of matrix registers that are packed for, for code between them: begins
	// the sums c (again: adds to them), adds one group of the products of t->unroll steps, and
	// ends the sums, after the steps at a and b that do not fill the registers.
	int (*groups)(const Tile *);
	void (*begin_sums)(Gen *, const Tile *, Value c, Value again);
	void (*add_products)(Gen *, const Tile *, Value a, Value b, Value group);
	void (*end_sums)(Gen *, const Tile *, Value steps, Value a, Value b, Value c);
	// On a GPU: the thread's number in its worker, the worker's; a barrier that all threads
	// reach.
	Value (*thread)(Gen *), (*block)(Gen *);
	void (*all_threads)(Gen *);
	void (*team_threads)(Gen *); // of a team, which has a row (Sched.team)
	// Orders what the thread, and others before a barrier, did to memory before what it does
	// after it, for all workers. Adds 1 to a count in memory, an i32: returns what it was.
	void (*fence)(Gen *);
	Value (*ticket)(Gen *, Value count);
	// 2^x of f32, of the precision that factors of products of halves need; NULL: none is fast.
	Value (*exp2)(Gen *, Value);
	// Two f32 as halves, the first in the low bits of i32; NULL: no instruction does it.
	Value (*pack)(Gen *, Elem, const Value *);
	const TileKind *matrix_kind; // thread_tile.h: of machines with `pairs`
	const TileKind *rows_kind; // the same, of halves in attention: warps have rows of their own
	const TileKind *group_kind;      // the same, of pairs of 64 rows
	const TileKind *group_rows_kind; // both
	// The address of i64 number i of `count` that the worker's threads share, by name.
	Value (*shared)(Gen *, const char *name, int64_t count, Value i);
	// The address of what the launch gives the worker's threads to share: `shared` bytes of the
	// schedule. NULL: launches give nothing.
	Value (*launch_memory)(Gen *);
	// The bytes of a module: an object, or code of a device.
	Part (*write)(Arena *, const Target *, LLVMModuleRef, LLVMTargetMachineRef);
	// Links the code of a device, the bytes of all kernels; NULL: they are complete.
	Part (*link)(Arena *, const Part *, const char *lld);
};

struct Target {
	const char *name, *triple, *cpu, *features;
	const Machine *machine;
	const TargetOps *ops;
	const char *device; // amos_model.device of a GPU; NULL: kernels are code of a CPU
	const Target *host; // of a GPU: that of the model's tables
	bool emulated;      // its own instructions are calls of an emulator on the host
	int align;          // of a GPU: bytes, of arrays in shared memory that are as large
	bool bare;          // no system loads the code: it is linked to fixed addresses
	bool generic;       // for all CPUs of its architecture
	bool exact;         // only for CPUs without the features that its class excludes
};

// ---- values: at.c, reduce.c -----------------------------------------------------------

Value at(Gen *, Ref, const Index *idx);
// The same of an index that may lie outside of r, where it is `fill`.
Value at_or_fill(Gen *, Ref, const Index *idx, double fill);
void store_out(Gen *, int k, const Index *idx, Value);  // idx: of the out's shape
Lanes element_lanes(Gen *, const Val *, const Index *); // where an element lies in memory
Value load_out(Gen *, int k, const Index *idx);
// Returns a variable for an index that is data, clamped to its axis.
Index data_index(Gen *, Ref, const Index *idx, int64_t extent);
// Converts an index of the kernel's space to that of a value with the same elements.
void space_index(Gen *, const Shape *, const Index *idx, Index *to);
// Evaluates every output, except reduced ones, at `idx` of the kernel's space, then stores them.
void store_outs(Gen *, const Index *idx);
void store_reduced_outs(Gen *, const Index *idx); // the others, at `idx` of their shape
// Prefetches the values that the schedule says: what the next row has of them where this one has
// element `idx` of the space, or what soon follows that.
void prefetch_row(Gen *, const Index *idx);
// While bound, r is not computed but read from `memory`, at these strides (elements). While kept,
// reduce_values also stores each element of r there that it passes, for later loops.
struct Bound {
	Ref r;
	Value memory;
	Index origin[RANK];
	int64_t stride[RANK];
	Level *floor; // set by bind_memory
	Bound *next;  // bound before it, or kept as well
};
void bind_memory(Gen *, Bound *);
void unbind_memory(Gen *, Bound *);
void store_kept(Gen *, const Bound *, const Index *idx); // of all that are kept, element idx
// Returns the cell of element idx of r in a table of elements.
uint64_t *element_cell(Gen *, Table *elements, Ref, const Index *idx);
// Records that element idx of r is v, from here on, at this level.
void remember(Gen *, Ref, const Index *idx, Value v);
// reduce.c: computes reductions (or dots) in one loop nest, and remembers them: reduce[k] at
// idx + k * RANK, equal except for lanes. Their operands have one shape, and their axes are the
// same.
void reduce_values(Gen *, int n, const Ref *reduce, const Index *idx);

// ---- random.c -------------------------------------------------------------------------

Value at_rand(Gen *, const Val *, const Index *idx);

// ---- partials.c --------------------------------------------------------------------------

// Reductions of the rows of a space whose columns are adjacent; or along the rows of a product, of
// which each panel has a part. What is said of columns is true of these rows.
typedef struct Partials {
	const ValSteps *reduce, *keep;
	Shape shape;    // of the reductions
	Value block;    // of rows: the worker's; or the panel
	int64_t blocks; // parts of each reduction
	int64_t line;   // elements from part to part
	int64_t offset; // of the kernel's work
	Value *sum;     // variables: its part of each reduction; NULL: it is in memory
	bool along;     // rows are reduced
	// Of a GPU's thread, if `ways` share each of `wide` columns: which of them, and of the
	// columns; memory that they share, `pitch` elements from way to way, and that no other
	// thread has used. ways is 0 on a CPU.
	int64_t wide, ways, pitch;
	Value own, way, shared;
	// Of workers of a GPU that have parts of the same columns: which of such groups, of how
	// many.
	Value group;
	int64_t groups;
} Partials;
// At columns `unit`, for every reduction: starts the worker's part; reduces to it the row at `idx`
// of the space; computes the full reduction from all parts, then stores the values of `keep` and
// the outputs of this shape. The first and the last are bodies of loops over lanes.
void partials_start(Gen *, int n, const Index *unit, void *partials);
// idx: of `rows` elements, one after the other
void partials_step(Gen *, const Partials *, const Index *unit, int rows, const Index *idx);
void partials_finish(Gen *, int n, const Index *unit, void *partials);
// Holds the worker's part of columns `unit` in variables, for the rows that partials_step() adds
// until partials_release() stores it.
void partials_hold(Gen *, Partials *, const Index *unit);
void partials_release(Gen *, const Partials *, const Index *unit);
// Along a row: starts a panel's part in lanes of variables, to which partials_step() adds; reduces
// these lanes and stores the part of that row.
void partials_open(Gen *, Partials *);
void partials_close(Gen *, const Partials *, Value row);
Value partials_kept(Gen *, const Partials *, int i); // address of value i of `keep`
// On a GPU: divides the threads among that many columns, and starts their parts.
void partials_share(Gen *, Partials *, int64_t columns);
void partials_clear(Gen *, const Partials *); // starts the thread's parts again
Value partials_memory(Gen *);                 // for `shared`, if the kernel has no other
// Reduces what threads have of a column, for all of them.
void partials_join_ways(Gen *, const Partials *);
// Stores what the threads have of the worker's part, at `column` of all `columns`.
void partials_store(Gen *, const Partials *, Value column, int64_t columns);
// Gives each thread the full reductions of its column.
void partials_total(Gen *, const Partials *, Value column, int64_t columns);
// If the worker is the last of its group to have stored its parts, does what partials_finish() does
// for its columns: `own` of them, or up to `wide` if that is less.
void partials_join(Gen *, const Partials *, Value column, int64_t columns, int64_t own);

// ---- values and their types: value.c --------------------------------------------------

LLVMTypeRef elem_type(Gen *, Elem);   // in values
LLVMTypeRef memory_type(Gen *, Elem); // in memory
// Returns the address so many bytes, an integer of any type, after another.
static inline Value bytes_after(Gen *g, Value memory, Value bytes)
{
	return LLVMBuildGEP2(g->b, g->i8, memory, &bytes, 1, "");
}
// Returns the address of element i of memory.
static inline Value place_in(Gen *g, LLVMTypeRef type, Value memory, Value i)
{
	return LLVMBuildGEP2(g->b, type, memory, &i, 1, "");
}
LLVMTypeRef like(LLVMTypeRef, Value shape); // a scalar or vector type as wide as `shape`
LLVMTypeRef scalar_type(Value);             // of it, or of its lanes
bool is_vector(Value);
Value splat(Gen *, Value);                          // to target->width lanes, if it is not yet
Value match(Gen *, Value, Value shape);             // a scalar splat if `shape` is a vector
void level_out(Gen *, int n, Value *);              // all scalars, or all vectors
Value choose(Gen *, Value condition, Value, Value); // splat where they must be
Value both(Gen *, Value, Value);                    // and
Value constant_value(Gen *, Elem, double, int64_t); // the double for floats, the integer for others
Value real_like(Value shape, double), int_like(Value shape, int64_t);    // of the type of `shape`
Value lane_numbers(LLVMTypeRef, int width, int64_t first, int64_t step); // first, first + step, ..
Value part_of(Gen *, Value wide, int64_t first, int64_t count);          // lanes of it
Value intrinsic(Gen *, const char *name, int ntypes, LLVMTypeRef *types, int n, Value *args);
Value unary(Gen *, const char *name, Value); // an intrinsic of the operand's type

// ---- primitives: scalar.c, cast.c, math.c, rounding.c, payne_hanek.c -------------------

Value apply(Gen *, const Val *, int n, Value *operands, const Elem *types); // a map
Value reduce_start(Gen *, Op, Elem);                                        // the neutral element
Value reduce_step(Gen *, Op, Elem, Value, Value);
Elem sum_type(const Gen *, Ref reduction); // that the kernel's schedule adds it up in
Value cast_value(Gen *, Value, Elem from, Elem to);
// True if the code is for GPUs that have instructions for halves, and not emulated.
bool has_half_instructions(const Gen *);
// Converts a float of any type to the f32 or f64 that it is computed in, and back.
Value widen_float(Gen *, Value, Elem from), narrow_float(Gen *, Value, Elem to);
Value narrow_value(Gen *, const Attr *, Elem, Value); // the primitive, of f32 or f64

// Of f32 or f64 up to 0, or NaN: the first in fewer instructions than math_exp(), the second in
// still fewer, with a larger error.
Value math_exp_falling(Gen *, Value), math_exp_below(Gen *, Value);
Value math_exp(Gen *, Value), math_log(Gen *, Value), math_expm1(Gen *, Value),
    math_log1p(Gen *, Value), math_tanh(Gen *, Value), math_erf(Gen *, Value);
Value math_sin(Gen *, Value), math_cos(Gen *, Value), math_atan(Gen *, Value);
Value math_pow(Gen *, Value, Value);
// rounding.c
Value mul_add(Gen *, Value a, Value b, Value c); // a b + c, rounded once if machines.def says so
Value math_rint(Gen *, Value), math_floor(Gen *, Value), math_ceil(Gen *, Value),
    math_trunc(Gen *, Value), math_sqrt(Gen *, Value);
// payne_hanek.c: returns x - *turns pi/2: `rest`, or for large x the exact value, *turns modulo 4.
Value reduce_angle(Gen *, Value x, Value rest, Value *turns);

// ---- pairs of bf16: pairs.c -----------------------------------------------------------

// Return pairs of 16-bit elements: of each lane of two vectors; of all of x and then all of y.
Value pairs_by_turns(Gen *, Value x, Value y), pairs_in_order(Gen *, Value x, Value y);
// Sets the slices of f32: SLICES vectors of bf16, as 16-bit integers, whose sum is exact. small: no
// element is larger than the largest bf16.
void slice(Gen *, Value, bool small, Value *slices);

// ---- memory: lanes.c ------------------------------------------------------------------

// Stores at a level that wait for the loads of all steps which are written side by side.
typedef struct LateStore {
	Elem e;
	Value memory, v;
	Lanes to;
} LateStore;
typedef struct Late {
	Level *level;
	VEC(LateStore) stores;
} Late;

// As place_in; elements side by side, of equal i but for a constant, share the rest of the address.
Value place_beside(Gen *, LLVMTypeRef, Value memory, Value i);
// An element, or elements along lanes. Alignment is that of the element.
Value load_lanes(Gen *, Elem, Value memory, const Lanes *);
void store_lanes(Gen *, Elem, Value memory, const Lanes *, Value);
void store_late(Gen *);  // what waits in g->late
void loads_ahead(Gen *); // ahead.c: moves the loads of the block before what they do not need
void prefetch_line(Gen *, Value from, Prefetch); // TargetOps.prefetch of CPUs
// A value as i64, as threads of a GPU share it, and back: target/gpu.c.
Value gpu_bits(Gen *, Elem, Value), gpu_value(Gen *, Elem, Value bits);

// ---- the register tile of a matrix product: tile.c, square.c --------------------------

typedef enum SquareOf { // what a function does with lines in memory
	S_none,
	S_columns, // of b, contiguous along k: gives steps of k, with lanes along columns
	S_rows,    // steps of a, contiguous along its rows: gives rows, with lanes along steps
} SquareOf;

// c[rows][vectors * lanes] = (c +) a[rows][k] b[k][vectors * lanes], sums in registers.
enum { STREAMS = 6 };
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded" // tiles are equal if their bytes are
struct Tile {
	Elem type;        // of c
	int bytes, lanes; // of an element; elements of a vector
	int rows, vectors;
	int unroll; // steps of k in the innermost loop
	bool rest;  // one loop: k may be no multiple of unroll
	bool pairs; // an element of a or b is a pair of bf16, a step of k
	bool dense; // a is counted in bf16
	bool odd;   // the last step of the first loop has one element of a
	int matrix; // rows of the matrix registers that it uses, as many steps of k; 0: vectors
	int tail;   // steps of k that the last of them takes in the last block; 0: all
	int a_ahead, b_ahead; // prefetch a and b this many steps ahead; 0: not
	int soon;             // rows to prefetch meanwhile, from the pointer `soon` on
	int streams;
	int loops;      // over k, the innermost first; the last takes all that remains
	int64_t square; // the function packs: a SquareOf
	int64_t a_row, b_step, c_row;     // elements from row to row, from step to step
	int64_t b_column;                 // from column to column; 0: lanes are not steps of k
	int64_t b_vector;                 // of b in matrix registers: from one to the next
	int64_t slices, a_slice, b_slice; // how many there are of a and b; from one to the next
	int64_t run, a_line; // rows of a line of windows, elements of a from line to line; or 0
	int64_t c_line;      // rows of c from line to line; more than a line's: of matrices alone
	struct {
		int64_t count, a_step; // iterations; elements of a from one to the next
	} loop[DIGITS];
	int64_t soon_row;        // elements
	struct Stream {          // memory that is used later, which the tile prefetches row by row
		int64_t row;     // bytes from one to the next
		int rows, bytes; // how many; of one
		int once;        // bytes of a row that an iteration prefetches
		Prefetch how;
		int64_t wait; // iterations from one such part to the next, but the one itself
	} stream[STREAMS];
};
#pragma GCC diagnostic pop
// A function (i64 k, ptr a, ptr b, ptr c, i1 add, ptr soon, ptr stream...), which another module
// may have.
// Of a square: (ptr from, i64 stride, i64 lines, i64 ahead, ptr to, i64 step, i64 apart), in bytes:
// from line to line, from one to what is prefetched, from step to step, from slice to slice.
Value tile_function(const Gen *, const Tile *);
void write_vector_tile(const Gen *, const Tile *); // TargetOps.tile of vectors
void write_square(const Gen *, const Tile *);

struct TileCalls { // of a variant, that a module's kernels call
	Arena *arena;
	int variant;
	VEC(Tile) list;
};

// ---- squares of as many vectors as one has lanes: turn.c --------------------------------

void transpose_vectors(Gen *, Value *v);
// Returns in lane l what TargetOps.reduce_lanes returns for v[l], and overwrites v.
Value reduce_vectors(Gen *, Op, Elem, Value *v);

// ---- signatures: signature.c ---------------------------------------------------------------

typedef struct Signature Signature;
typedef struct BundlePart { // kernels of equal signature
	const Signature *each;
	int count;
} BundlePart;
struct Signature { // what a kernel computes, without its locations
	Arena *arena;
	const Plan *plan;
	const Kern *kern;
	VEC(Ref) inside; // what it computes
	VEC(unsigned char) bytes;
	VEC(Location) place; // entry k of buf
	Table *entry;        // place -> 1 + entry
	Table *number;       // Ref -> 1 + its number in the walk
	int count;
	int work; // entry of buf: what all workers share
	// Of kernels in one launch: each kind of them, in the order of their workers, with as many
	// entries of `place` for each. Empty: it is one kernel.
	VEC(BundlePart) part;
};

// Of kernel number `kern`; writer: plan_writers.
Signature *signature_new(Arena *, const Plan *, const int *writer, int kern);
// Of `count` kernels in one launch.
Signature *signature_bundle(Arena *, const Plan *, const int *writer, int kern, int count);
Location value_location(const Plan *, Ref); // of constants too
Value location_address(Gen *, Ref);         // of a value in memory
Value out_address(Gen *, int k);            // of output k
Value work_memory(Gen *, int64_t offset);   // what all workers share
LLVMTypeRef worker_type(Gen *);             // amos_worker of a CPU; target/cpu.c

// ---- the object: emit.c, abi.c --------------------------------------------------------

typedef struct Launch {
	const Kern *kern; // the first of `kerns`
	int kerns;
	int kernel; // amos_kernel_N
	int number; // of the kernel's launches: amos_kernel_N_S from the second on
	int launches;
	bool again; // its kernel has run before
	int64_t workers;
	int64_t gang;
	bool whole;     // a thread runs as many of its workers in a call
	int64_t shared; // bytes that it gives each worker's threads to share
	const Signature *signature;
	struct Entry *body; // of a loop, which has no kernel of its own
} Launch;

typedef struct Entry {
	const Plan *plan;
	int n;
	Launch *launch;
} Entry;

typedef struct VariantCode {
	const Variant *variant;
	Entry *entry;
	int first, end, count; // numbers of its kernels; kernels in its plans
	int64_t local;         // bytes of local memory, the largest of all kernels
	int module;            // of its kernels for a device; -1: the object has them
	const Part *device;    // their code; NULL: not yet, or the object has it
} VariantCode;

// abi.c: everything in the object but the kernels: amos_model and what it points to.
void write_tables(Gen *, int entries, int variants, const VariantCode *, const EmitOptions *);

// Returns a Gen with the target's facts and LLVM's types, for a module of its context.
Gen gen_new(Arena *, const Target *, LLVMModuleRef);
// Adds a function that throws nothing, so that its object needs no tables to unwind it.
Value function_new(const Gen *, const char *name, LLVMTypeRef);
// Begins a function with an open ground level.
void function_begin(Gen *, const char *name, LLVMTypeRef);
const char *kernel_name(Arena *, int kernel, int launch);

// ---- LLVM: target/target.c ------------------------------------------------------------

void target_start(void); // initializes LLVM's targets, once per process
LLVMTargetMachineRef target_generator(const Target *); // freed by the caller
// `value`: of a text attribute; NULL: one of LLVM's own, without a value.
LLVMAttributeRef attribute_new(LLVMContextRef, const char *name, const char *value);
void add_attribute(Value function, const char *name, const char *value);
void run_llvm(LLVMModuleRef, LLVMTargetMachineRef, const char *passes); // as opt(1) names them

// ---- arithmetic of indices and addresses ----------------------------------------------

static inline Value sum_of(Gen *g, Value a, Value b)
{
	return LLVMBuildAdd(g->b, a, b, "");
}

static inline Value least(Gen *g, Value a, Value b) // of two signed i64
{
	return LLVMBuildSelect(g->b, LLVMBuildICmp(g->b, LLVMIntSLT, a, b, ""), a, b, "");
}

static inline Value greatest(Gen *g, Value a, Value b)
{
	return LLVMBuildSelect(g->b, LLVMBuildICmp(g->b, LLVMIntSGT, a, b, ""), a, b, "");
}

static inline Value end_after(Gen *g, Value from, int64_t count, Value end) // at most `end`
{
	return least(g, sum_of(g, from, number(g, count)), end);
}

static inline Value times(Gen *g, Value a, int64_t n)
{
	return LLVMBuildMul(g->b, a, number(g, n), "");
}

#endif
