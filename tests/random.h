// random.h: declares random valid graphs and the contents of their slots.
#ifndef RANDOM_H
#define RANDOM_H
#include "ir.h"

typedef struct Random {
	Arena *arena;
	Graph *g;
	Array *slot;    // contents of the slots, indexed by number
	bool large;     // few operators, on values large enough for every kind of tiling
	bool wrong;     // the door returned a value that differs from its operator; it is printed
	uint64_t state; // state of the generator, continued by draw_below()
} Random;

// Returns random graph `number`: 5 to 40 operators of every kind, type, rank and size through the
// door, outputs, and stores to buffers and states. One in `large` is large; half of these are
// networks.
Random random_graph(Arena *, const char *name, uint64_t number, uint64_t large);
// Returns the same graph as the body of a loop.
Random random_loop(Arena *, Random *);
uint64_t draw_below(Random *, uint64_t below);

#endif
