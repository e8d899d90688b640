// run.c: the whole order of stages.
#include "passes.h"

Plan *plan_graph(Arena *arena, const Graph *g, const char *name)
{
	Plan *p = fuse_pass(arena, graph_live(arena, open_pass(arena, g)), name);
	place_pass(arena, p);
	return p;
}
