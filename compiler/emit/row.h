// row.h: declares what the emitters of kernels with reductions share.
#ifndef ROW_H
#define ROW_H
#include "gen.h"

typedef struct RowKernel {
	const Kern *kern;
	Groups groups;
	Index idx[UNITS * RANK]; // by unit: the current index
	int units;
	Keep *kept;  // as sched.keep
	int64_t row; // elements of a row
} RowKernel;

bool full_out(Gen *, const RowKernel *, int k);     // True if output k has the space's shape.
void store_full(Gen *, RowKernel *, const Index *); // Stores these outputs.

void emit_blocked_rows(Gen *, RowKernel *);

#endif
