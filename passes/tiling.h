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

// A product being scheduled.
typedef struct Tiling {
	Scheduler *t;
	const Val *v;
	DotSizes p;
	Stride stride[2]; // of a: rows, k; of b: k, columns
	bool copied[2];   // lanes along the tile's own axis read memory in order
	int64_t high;     // most rows of the tile
	int64_t cache;    // bytes of L2 that are counted on
	Patch patch;      // of a, if its rows are windows
} Tiling;

enum { MOST_SHARED = 16 << 20 }; // bytes that the launch before packs for all workers

// ---- tiling.c -----------------------------------------------------------------------------

void update_sizes(Tiling *); // after a change of the schedule
// Chooses the register tile, and how many steps of k are a block.
void choose_register_tile(Tiling *);
// Chooses what each worker computes. Returns the cost.
double choose_split(Tiling *);
// True if the launch before may pack operand o for all workers: what it packs is not large, and has
// a block for each batch or one for all. Matrix registers multiply faster than each group packs.
bool can_share(const Tiling *, int o);
// Returns the vectors of the register tile of a product with so many rows and columns, with matrix
// registers of `matrix` rows or, 0, without.
int64_t tile_vectors(const Machine *, int matrix, int64_t rows, int64_t columns);
void tile_product(Scheduler *);

// ---- window_tiling.c ----------------------------------------------------------------------

// Chooses how rows that are windows come to the tile: as squares, or from a patch. False: they come
// as other rows do, because matrix registers cannot load them, or lines of windows would fill less
// than three quarters of their rows.
bool choose_windows(Tiling *);
// Then chooses what each worker computes, and in which blocks.
void size_windows(Tiling *);
// Returns what it costs to pack a patch, in elements for each row and step: lines of its box come
// from different places of memory.
double patch_cost(const Tiling *);

// ---- others -------------------------------------------------------------------------------

// Returns the bytes that an element of the kernel's space reads of values as large as that.
int64_t bytes_read(const Scheduler *); // blocking.c
// block_tiling.c: returns how many rows or tiles, of `units` in each of `across` columns, a block
// takes one after the other: as many as cost no time, at most `most`.
int64_t share_evenly(const Machine *, int64_t units, int64_t across, int64_t most);
void tile_block(Scheduler *);                          // block_tiling.c
void tile_attention(Scheduler *);                      // attend_tiling.c
void tune_kernel(Scheduler *, void tile(Scheduler *)); // tuning.c: as its tuning says

static inline void add_step(Scheduler *t, ValSteps *steps, Ref r, int depth)
{
	PUSH(t->arena, *steps, ((ValStep){.val = r, .depth = depth}));
}

#endif
