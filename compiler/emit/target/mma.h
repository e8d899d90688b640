// mma.h: declares what the matrix instructions of warps (mma.c) and of warpgroups (wgmma.c) share.
#ifndef MMA_H
#define MMA_H
#include "../thread_tile.h"
#include "target.h"

typedef struct Warp {            // of a thread
	Value lane, row, column; // the first of its part of the tile
	int rows, columns;       // parts of 16 rows and 8 columns
} Warp;
// Stores the sums of a group of rows; four of each part are a thread's.
void mma_store_sums(ThreadTile *, Value group, const Warp *);
int mma_groups(ThreadTile *);
// Of TileKind, if a row's sums are those of `ways` lanes; a warp has 16 rows of its own.
enum { QUAD = 4 }; // lanes that have sums of a row
int mma_line_of(const ThreadTile *, int o, int i);
Value mma_line_place(ThreadTile *, int o, int line), mma_way(ThreadTile *);
Value mma_reduce_row(ThreadTile *, Op, Value);
void mma_hold(ThreadTile *, int n, const Value *);
bool mma_in_line(const Share *);
// Returns where byte `at` of a line of `length` bytes, or `at` of all lines, is: its pieces of 16
// bytes change places from line to line.
Value mma_turned(Gen *, Value line, Value at, int64_t length);
void mma_copy(ThreadTile *, const Copy *), mma_commit(ThreadTile *), mma_wait(ThreadTile *, int);
Value mma_pack(Gen *, Elem, const Value *); // TargetOps.pack
// Returns the value of the lane at this XOR distance in the warp, of whose bits the low ones count;
// exchange: of 32 bits (nvptx.c).
Value warp_shuffle(Gen *, Elem, Value, int distance);
Value warp_exchange(Gen *, Value bits, Value distance);
// Calls PTX, which may access memory.
Value assembly(Gen *, LLVMTypeRef result, const char *text, const char *constraints, int n,
               Value *in);

#endif
