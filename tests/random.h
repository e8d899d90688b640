// random.h: random graphs that are valid, with what their slots hold.
#ifndef RANDOM_H
#define RANDOM_H
#include "ir.h"

typedef struct Random {
	Arena *arena;
	Graph *g;
	Array *slot; // what slots hold, by number: numbers of their types
	bool large;  // few operators on values large enough for every way to cut a kernel
	bool wrong; // the door gave a value that differs from its operator's meaning; it is printed
	uint64_t state; // of the generator: draw_below goes on from it
} Random;

// The same number, the same graph: 5 to 40 operators of every kind, type, rank and size through the
// door, outs, and stores to buffers and states.
Random random_graph(Arena *, const char *name, uint64_t number);
// The same graph as the body of a loop.
Random random_loop(Arena *, Random *);
uint64_t draw_below(Random *, uint64_t below);

#endif
