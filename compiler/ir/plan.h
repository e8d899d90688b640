// plan.h: a Plan: which values of a Graph live in memory, which kernel writes them, in what order,
// and where. Everything between two values that live in memory is an expression, evaluated where it
// is used. Takes ir.h. Made by passes (fuse.c to memory.c), read by emit.
#ifndef PLAN_H
#define PLAN_H
#include "ir.h"

// Loop shapes (L_). The iteration space of a kernel is a Shape, split by a mask of folded axes into
// workers (axes not folded) and the inner loops of one worker (folded axes).
typedef enum KernKind {
	L_map, // every out has `space`'s elements (row-major order is common to all); no fold
	       // inside
	L_row, // folds whose axes include the last: a worker is one row (or a few), lanes run along
	       // the last axis
	L_col, // folds that leave the last axis, or maps of one row and then of all: lanes are
	       // columns, the loop runs over the folded axes
	L_dot, // one dot, the maps after it and folds of all its rows; operands are expressions,
	       // evaluated as panels are packed
	L_scatter, // one scatter
	L_scan,    // one cumsum
	L_loop,    // one loop: the kernels of its body, trip after trip
} KernKind;

// Elements from which on a launch more is cheaper than reading a space once more, or by pieces of
// rows.
enum { LARGE_SPACE = 1 << 16 };

// A class of machines: a row of machines.def.
typedef struct Machine {
	const char *name, *arch, *features;
	int lanes, registers, threads;
	int64_t l1, l2; // bytes
	int workers;
	int rows, vectors, narrow, unroll, depth;
} Machine;

// Where a value lives. Offsets are in bytes, multiples of 64.
typedef enum Block {
	B_none,  // nowhere: an expression
	B_param, // offset of its slot (params, frozen and buffers lie here)
	B_state,
	B_scratch,
	B_input,  // offset is the number of the input slot
	B_output, // offset is the number of the out: the caller gives the address
	B_const,  // a literal too large to be immediate: read-only data of the object, numbered by
	          // Ref
} Block;

typedef struct Location {
	Block block;
	int64_t offset;
} Location;

// A schedule: how a kernel is computed. A pass chooses it from shapes and the machine, memory is
// planned for it, and emitters write what it says, so kernels of equal signature and schedule are
// equal code.
typedef enum Partition { // of a kernel's space among workers (P_)
	P_rows,          // a worker has rows of the space; lanes run along the last axis
	P_columns,  // a worker has columns: a piece of one row, or lanes along an axis that is kept
	P_partials, // a worker has rows, which it reduces to a row of partial results, in the
	            // launch before. The main launch reduces these and computes what has the shape
	            // of a row; the launch after computes the outs of the full shape
	P_tiles,    // a product in register tiles. The launch before packs what is shared; the one
	            // after reduces the workers' partial results
	PARTITIONS
} Partition;

typedef enum Packing { // how an operand of a product comes to the tile
	W_place,       // read where it lies
	W_copy,        // packed with lanes along the tile's own axis: rows of a, columns of b
	W_transpose,   // packed with lanes along k, transposed in registers (b) or left so (a)
	PACKINGS
} Packing;

// The launches of a kernel, in order.
typedef enum Stage { BEFORE, MAIN, AFTER, STAGES } Stage;

typedef struct ValStep {
	Ref val;
	int depth;
} ValStep;
typedef VEC(ValStep) ValSteps;

typedef struct Sched {
#define S(kind, field, meaning) int64_t field;
#include "sched.def"
#undef S
	ValSteps reduce; // reductions over the kernel's axes, and how many each needs before it
	ValSteps keep;  // values of a row (partials: of the shape of a row) that are computed once,
	                // and the reductions before that
	ValSteps ahead; // values in memory of which the next row is prefetched
} Sched;

// A kernel computes its outs from values in memory: slots, constants, outs of earlier kernels. All
// between is inside it. The first kernel that lists a value as out computes it; one that lists it
// again copies it. Inside row and col kernels every fold has an operand shaped as space and the
// axes `fold` (dot: with the same elements and last axis, all others folded); what is not behind a
// move is shaped as space, as space folded, or smaller and stretched. Outs may lie where an operand
// lies that is read at the same place only and dies here
// (`to` tells). So a worker computes each element once (no overlapping tails), reads what a block
// needs, whole or row, before it writes any out of that block, and writes outs after its last fold.
// A loop reads its operands from memory, but for constants; its body is a plan of its own, whose
// inputs and outputs are, for each trip, where the loop's values lie.
typedef struct Kern {
	KernKind kind;
	Shape space;
	uint32_t reduce; // bit a: axis a of space is folded (row, col, dot) or run along (scan)
	int nout;
	Ref *out; // ascending. Map, dot: shaped as space, or with the same elements in row-major
	          // order (dot: and the same last axis). Row, col: as space. These and dot: or what
	          // is left of it when folded
	Location *to; // where out k is written: place[out[k]], or a second place of the same value
	Ref root;     // dot, scatter, cumsum or loop; 0 for the others
	struct Plan *body; // of a loop, whose outs are parts of it, and how many trips it made
	Sched *sched;      // NULL until the kernel is scheduled
	Location work;     // of sched->work bytes
} Kern;

typedef struct Plan {
	const Graph *graph; // wholes opened; live values only
	const char *name;   // of the entry: train, eval, run, grad, ... (abi.def)
	VEC(Kern) kerns;    // in order of execution
	Location *place;    // by Ref: where it is read
	Location *slot;     // by slot number: fixed by the slot table alone, so every entry agrees
	int64_t param_bytes, state_bytes, scratch_bytes;
	const Machine *machine; // that it is scheduled for
} Plan;

static inline int64_t ceil_div(int64_t a, int64_t b)
{
	return (a + b - 1) / b;
}

// Values, local memory and scratch begin at lines of the cache.
static inline int64_t full_lines(int64_t bytes)
{
	return ceil_div(bytes, 64) * 64;
}

// ---- machine.c ------------------------------------------------------------------------

extern const Machine machines[];
extern const int machine_count;
const Machine *machine_named(const char *); // NULL: no class has this name

// ---- plan.c ---------------------------------------------------------------------------

// How a kernel reads a value in memory.
typedef enum Reach {
	R_same,    // at the index of the element computed (or stretched to it)
	R_relabel, // through reshapes: at the same place in row-major order
	R_moved,   // elsewhere
} Reach;

typedef struct Read {
	Ref val;
	Reach reach; // the farthest of its uses
} Read;

typedef VEC(Read) Reads;

// Finds what expressions read. memory[ref]: the value is in memory; slots are too.
typedef struct Walk {
	Arena *arena;
	const Graph *graph;
	const bool *memory;
	struct Seen *seen; // by Ref
	int epoch;
} Walk;
Walk walk_new(Arena *, const Graph *, const bool *memory);
void walk_start(Walk *, Reads *); // forgets what was found
// Adds what the expression of v reads; v itself is looked through.
void walk_root(Walk *, Ref v, Reads *);
// By kernel: what it reads from memory, outs of its own left out. Place not needed.
Reads *plan_reads(Arena *, const Plan *);
int *plan_writers(Arena *, const Plan *);    // by Ref: the kernel that computes it; -1: none
void place_leaves(Plan *);                   // Fills `place` of slots and constants.
int64_t stage_workers(const Sched *, Stage); // 0: no such launch
// True if kernel k computes r, rather than reads it from memory. Scalars stand in its code.
bool is_inside(const Plan *, const int *writer, int k, Ref r);
bool is_reduced_out(const Graph *, const Kern *,
                    int o); // has out o the shape of the space reduced?
int result_out(const Plan *, const Kern *loop,
               int result); // the out that is it; -1: nobody reads it
// Bytes that a loop keeps for itself: second places of carried values, results that nobody reads,
// whether an iteration follows.
int64_t loop_work(const Plan *, const Kern *loop);

// ---- plan_text.c ----------------------------------------------------------------------

char *plan_text(Arena *, const Plan *);
// Reads a plan and the graph before it, in the lexer's arena.
Plan *lexer_plan(Lexer *, const struct Book *);
Plan *parse_plan(Arena *, const char *where, const char *text, const struct Book *);

// ---- dot_sizes.c ------------------------------------------------------------------------

// Sizes that follow from the schedule of a product.
typedef struct DotSizes {
	int lead; // axes before it are the batch; those from it to the last but one are rows
	int64_t batch, m, n, k;
	int64_t bytes;                  // of an element
	int lanes;                      // elements of a vector
	int64_t width;                  // columns of a panel
	int64_t strips, panels;         // of the full product
	int64_t blocks;                 // of k
	int64_t down, across;           // workers
	int64_t strip_size, panel_size; // elements from strip to strip, from panel to panel
	int64_t a_row, a_step;          // of a packed strip: from row to row, from step to step
	struct Shared {
		int64_t batches, pieces; // of its own; workers per block of k
		int64_t size, offset;    // elements of a block of k; bytes before it
	} shared[2];
	int64_t partials;           // bytes of work before the partial results
	int64_t sums, strip, panel; // bytes of local memory
} DotSizes;
enum { COPIED = 64 }; // steps of k that a worker of the packing launch copies
DotSizes dot_sizes(const Graph *, const Kern *, const Machine *);

// ---- partials -------------------------------------------------------------------------

enum { PARTIAL = 8 };                  // bytes of an element of any type
int64_t partial_line(int64_t columns); // elements from row to row of partial results

#endif
