// tile.h: declares what register tiles of vectors (tile.c) and of matrices (target/amx.c) share.
#ifndef TILE_H
#define TILE_H
#include "gen.h"

enum { ACCUMULATORS = 64 };

typedef struct Steps Steps;
typedef void StepBody(Gen *, const Tile *, Steps *, int argument);
struct Steps {
	StepBody *take; // takes so many steps of k; 0: one, of half a pair
	// The values that go round the loop over k.
	Value a, b, soon, stream[STREAMS], rows[STREAMS], sum[ACCUMULATORS];
};

// Sets `g` up to write the function of a tile, g->function.
void tile_start(Gen *g, const Gen *around, const Tile *);
// Takes k steps: t->unroll at once, then single ones.
void take_all(Gen *, const Tile *, Steps *, Value k);
// Returns the address so many elements after another, of b or c; of a, as the tile counts them.
Value along(Gen *, const Tile *, Value base, int64_t elements);
Value along_a(Gen *, const Tile *, Value base, int64_t elements);

#endif
