// pipeline.c: runs the passes in order, Graph -> Plan.
#include "passes.h"

// The body of a loop is a plan of its own.
Plan *plan_graph(Arena *arena, const Graph *g, const char *name, const Machine *machine)
{
	const Graph *open = decompose_pass(arena, loops_pass(arena, g));
	const Graph *last = graph_unalias(arena, transpose_dot_pass(arena, open));
	Plan *p = fuse_pass(arena, last, name, machine);
	schedule_pass(arena, p);
	for (int k = 0; k < p->kerns.count; k++) {
		Kern *kern = &p->kerns.at[k];
		if (kern->kind == L_loop)
			kern->body =
			    plan_graph(arena, val(p->graph, kern->root)->data, "body", machine);
	}
	tile_pass(arena, p, 0);
	memory_pass(arena, p);
	return p;
}
