// plan.h: a Plan: which values of a Graph live in memory, which kernel writes them, in what order,
// and where. Everything between two values that live in memory is an expression, evaluated where it
// is used. Takes ir.h. Made by passes (fuse.c, place.c), read by emit.
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
} Kern;

typedef struct Plan {
	const Graph *graph; // wholes opened; live values only
	const char *name;   // of the entry: train, eval, run, grad, ... (abi.def)
	VEC(Kern) kerns;    // in order of execution
	Location *place;    // by Ref: where it is read
	Location *slot;     // by slot number: fixed by the slot table alone, so every entry agrees
	int64_t param_bytes, state_bytes, scratch_bytes;
} Plan;

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
int *plan_writers(Arena *, const Plan *); // by Ref: the kernel that computes it; -1: none
void print_plan(FILE *, const Plan *);

#endif
