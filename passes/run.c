// run.c: the whole order of stages.
#include "passes.h"

Plan *plan_graph(Arena *arena, const Graph *g, const char *name)
{
	const Graph *open = open_pass(arena, lean_pass(arena, g));
	Plan *p = fuse_pass(arena, graph_apart(arena, turn_pass(arena, open)), name);
	place_pass(arena, p);
	return p;
}
