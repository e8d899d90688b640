// memory.h: declares the plan of scratch memory, which recompute.c improves and memory.c writes.
#ifndef MEMORY_H
#define MEMORY_H
#include "passes.h"

typedef struct Span { // runs, from the first to the last
	int first, last;
} Span;
typedef VEC(Span) Spans;

typedef struct Buffer { // bytes in scratch, in use during its spans
	int64_t bytes, offset;
	Spans spans;
	int taken; // 1 + the last kernel that writes it
} Buffer;

typedef struct Goal { // an output or a store
	Ref val;
	int output, slot; // the other one is -1
	bool written;     // by the kernel that computes the value
} Goal;

typedef struct MemoryPlan {
	Arena *arena;
	Plan *plan;
	const Reads *reads; // by kernel
	const int *writer;  // by Ref
	Spans *spans;       // by Ref: of values that kernels write, and of slots
	Ints *runs;         // by kernel
	int *work;          // by kernel: the buffer that it works in; -1: none
	int *buffer;        // by Ref: its buffer; -1: none
	VEC(Goal) goals;    // outputs, then stores
	Ints *waiting;      // by Ref: numbers of its goals
	VEC(Buffer) buffers;
} MemoryPlan;

static inline Span *last_span(const MemoryPlan *l, Ref r)
{
	return &l->spans[r].at[l->spans[r].count - 1];
}

// Finds which values share a buffer, and when each is in use. The plan stays as it is.
MemoryPlan memory_plan(Arena *, Plan *, const Reads *, const int *writer);
// Places the largest buffer first, each in the smallest gap between buffers in use at the same
// time. Returns the total size.
int64_t place_buffers(MemoryPlan *);

#endif
