// row.h: a kernel with folds being written: what row.c and blocked_rows.c share. Takes gen.h.
#ifndef ROW_H
#define ROW_H
#include "gen.h"

typedef struct RowKernel {
	const Kern *kern;
	Groups groups;
	Index idx[UNITS * RANK]; // of each unit: where the worker is
	int units;
	bool lanes; // lanes run along the last group, which is folded
	int depth;  // of the deepest fold
	int *level; // by Ref: 1 + folds below, of folds; of others the most of their operands; 0:
	            // not seen
	uint32_t *stages; // by Ref: bit d: folds on d others need it; bit `depth`: the outs do
	Keep *kept;       // values of a row that are dear and needed in several sweeps
	VEC(Ref) ahead;   // values in memory of which the sweep over a row asks for the next one
	int64_t row;      // elements of a row
} RowKernel;

bool is_own_reduction(Gen *, const RowKernel *,
                      const Val *);                 // of the whole space, over the kernel's axes
bool full_out(Gen *, const RowKernel *, int k);     // has out k the space's shape?
void store_full(Gen *, RowKernel *, const Index *); // the outs that have

bool emit_blocked_rows(Gen *, RowKernel *); // blocked_rows.c; false: the kernel is of another kind

#endif
