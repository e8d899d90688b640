// tiling.h: what the files that choose schedules share.
#ifndef TILING_H
#define TILING_H
#include "index.h"
#include "passes.h"

// A kernel being scheduled. What is indexed by Ref is 0 for values that the kernel does not
// compute.
typedef struct Scheduler {
	Arena *arena, *scratch; // of the plan; freed with the kernel
	const Plan *plan;
	const Graph *graph;
	const Machine *machine;
	const int *writer; // by Ref: the kernel that computes it
	int together;      // kernels like this one in a launch
	int k;
	Kern *kern;
	Sched *sched;
	Inside inside;
	const Tuning *tuning; // of the kernel
	Refs members;         // the values that the kernel computes, ascending
	bool *seen;           // by Ref
	int *level;           // by Ref: 1 + reductions before it, of reductions themselves included
	uint32_t *needs; // by Ref: bit d: reductions on d others need it; bit `depth`: outputs do
	int depth;       // reductions one after the other
} Scheduler;

// Returns the vectors of the register tile of a product with so many rows, with matrix registers of
// `matrix` rows or, 0, without.
int64_t tile_vectors(const Machine *, int matrix, int64_t rows); // tiling.c
// Returns the bytes that an element of the kernel's space reads of values as large as that.
int64_t bytes_read(const Scheduler *); // blocking.c
// block_tiling.c: returns how many rows or tiles, of `units` in each of `across` columns, a block
// takes one after the other: as many as cost no time, at most `most`.
int64_t share_evenly(const Machine *, int64_t units, int64_t across, int64_t most);
void tile_product(Scheduler *);                        // tiling.c
void tile_block(Scheduler *);                          // block_tiling.c
void tile_attention(Scheduler *);                      // attend_tiling.c
void tune_kernel(Scheduler *, void tile(Scheduler *)); // tuning.c: as its tuning says

static inline void add_step(Scheduler *t, ValSteps *steps, Ref r, int depth)
{
	PUSH(t->arena, *steps, ((ValStep){.val = r, .depth = depth}));
}

#endif
