// dot.h: a matrix product being written: what tiling.c (the shape of the work), dot.c (its loops)
// and pack.c (how operands come to the register tile) share. Takes gen.h.
#ifndef DOT_H
#define DOT_H
#include "gen.h"

// How an operand comes to the tile.
typedef enum Way {
	W_place,     // read where it lies
	W_copy,      // packed with lanes along the tile's own axis: rows of a, columns of b
	W_transpose, // packed with lanes along k, turned in registers (b) or left so (a)
} Way;

enum {
	AHEAD = 8, // steps of k that memory is asked for beforehand
	COPIED =
	    64, // steps of k that a worker of the packing launch copies, the memory read in order
};

// An operand that many workers read packed is packed for all of them by a launch before theirs.
typedef struct Common {
	bool used;
	int64_t batches;      // of its own: 1 where it is stretched over the batch
	int64_t pieces;       // workers a block of k
	int64_t size, offset; // elements of a block of k; bytes before it in the common memory
} Common;

typedef struct Dot {
	Gen *g;
	const Kern *kern;
	const Val *v;
	Tile tile;
	int lead; // axes before it are the batch; those from it to the last but one are rows
	int64_t batch, m, n, k;
	int64_t width;                                  // columns of a panel
	int64_t strips, panels;                         // of the whole product
	int64_t batches_each, strips_each, panels_each; // of a worker
	int64_t depth, blocks;                          // of k
	int64_t panel_size; // elements from panel to panel: not a multiple of 4096 bytes
	Way a_way, b_way;
	Common common[2]; // of a, of b
	int64_t common_bytes;
	int64_t group, strip_size; // strips packed at once; elements of one
	bool a_rows;               // a lies along its rows: packing a strip is a mere copy
	bool b_rows;               // b lies along its rows: whole rows are copied, not panels
	Value panel, strip, sums;  // memory
	Value sum_tile;            // the function
	Value stream[STREAMS];
	Index in_batch;
	Value first_batch, end_batch, first_strip, end_strip; // what the worker computes
	Value first_column, count;                            // of panels
	Value block, from, steps;                             // of k
	Partials parts;                                       // of what the kernel folds
	Value rows_block;                                     // of the worker: its part
} Dot;

// ---- tiling.c --------------------------------------------------------------------------

void plan_dot(Dot *, Gen *, const Kern *);

// ---- dot.c ----------------------------------------------------------------------------

Value first_row(Dot *, Value strip);
void go_to_block(Dot *, Value block); // of k

// ---- pack.c ---------------------------------------------------------------------------

// Index of an element of operand `o` (0: a, 1: b) from its coordinates.
void element_index(Dot *, int o, const Index *row, const Index *column, Index *idx);
// Where element (row, column) of operand o lies; it is read in place.
Value in_place(Dot *, int o, Value row, Value column);

// The worker's own panels of b for the block of k, and strips first..end of a.
void pack_panels(Dot *);
void pack_strips(Dot *, Value first, Value end);
// The body of the launch that packs what the operands have in common.
void pack_common(Dot *);
// Of the common memory: the operand's block of k.
Value common_block(Dot *, int o);

// ---- small values ---------------------------------------------------------------------

static inline Value sum_of(Gen *g, Value a, Value b)
{
	return LLVMBuildAdd(g->b, a, b, "");
}

static inline Value least(Gen *g, Value a, Value b)
{
	return LLVMBuildSelect(g->b, LLVMBuildICmp(g->b, LLVMIntSLT, a, b, ""), a, b, "");
}

static inline Value element(Dot *d, Value memory, Value i)
{
	return LLVMBuildGEP2(d->g->b, d->tile.elem, memory, &i, 1, "");
}

#endif
