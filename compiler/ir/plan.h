// plan.h: a Plan: which values of a Graph live in memory, which kernel writes them, in what order, and where.
// Everything between two values that live in memory is an expression, evaluated where it is used.
// Takes ir.h. Made by passes (fuse.c, place.c), read by emit.
#ifndef PLAN_H
#define PLAN_H
#include "ir.h"

// Loop shapes (L_). The iteration space of a kernel is a Shape, split by a mask of folded axes into
// workers (axes not folded) and the inner loops of one worker (folded axes).
typedef enum KernKind {
	L_map,  // every out has `space`'s elements (row-major order is common to all); no fold inside
	L_row,  // folds whose axes include the last: a worker is one row (or a few), lanes run along the last axis
	L_col,  // folds that leave the last axis: lanes are columns, the loop runs over the folded axes
	L_dot,  // one dot and the maps after it; operands are expressions, evaluated as panels are packed
	L_put,  // one scatter
	L_scan, // one cumsum
} KernKind;

typedef struct Kern {
	KernKind kind;
	Shape space;
	uint32_t fold; // bit a: axis a of space is folded (row, col, scan)
	int nout;
	Ref *out;      // the values it leaves in memory: shaped as space, or (row, col) as space folded
	Ref heart;     // dot, scatter or cumsum; 0 for the others
} Kern;

// Where a value lives. Offsets are in bytes, multiples of 64.
typedef enum Block {
	B_none,   // nowhere: an expression
	B_param,  // offset of its slot (params, frozen and buffers lie here)
	B_state,
	B_scratch,
	B_input,  // offset is the number of the input slot
	B_output, // offset is the number of the out: the caller gives the address
	B_const,  // a literal too large to be immediate: read-only data of the object, numbered by Ref
} Block;

typedef struct Place {
	Block block;
	int64_t offset;
} Place;

typedef struct Plan {
	const Graph *graph; // wholes opened; live values only
	const char *name;   // of the entry: train, eval, run, grad
	VEC(Kern) kerns;    // in order of execution
	Place *place;       // by Ref
	Place *slot;        // by slot number: fixed by the slot table alone, so every entry agrees
	int64_t param_bytes, state_bytes, scratch_bytes;
} Plan;

void print_plan(FILE *, const Plan *); // text.c

#endif
