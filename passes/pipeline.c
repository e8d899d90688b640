// pipeline.c: runs the passes of passes.def on one entry, from its graph to its plan.
// Invariant: after each pass a graph stands as if it had been printed and read back (graph_live).
#include "passes.h"
#include <string.h>

const PassInfo pass_table[PASSES] = {
#define PASS(name, takes, gives, summary) {#name, #takes, #gives, summary},
#include "passes.def"
#undef PASS
};

static Graph *(*const graph_passes[PASSES])(Arena *, const Graph *) = {
    [PASS_loops] = loops_pass,
    [PASS_decompose] = decompose_pass,
    [PASS_transpose_dot] = transpose_dot_pass,
};

Pass pass_named(const char *name)
{
	Pass p = 0;
	while (p < PASSES && strcmp(pass_table[p].name, name))
		p++;
	return p;
}

void run_pass(Arena *arena, Pass pass, Unit *unit)
{
	Plan *p = unit->plan;
	switch (pass) {
	case PASS_unalias: // leaves the graph live
		unit->graph = graph_unalias(arena, unit->graph);
		return;
	case PASS_fuse:
		unit->plan = fuse_pass(arena, unit->graph, unit->name, unit->machine);
		return;
	case PASS_schedule:
		schedule_pass(arena, p);
		return;
	case PASS_tile:
		// The bodies of loops are plans of their own, whose memory a schedule holds.
		for (Kern *k = p->kerns.at; k < p->kerns.at + p->kerns.count; k++)
			if (k->kind == L_loop)
				k->body = plan_graph(arena, val(p->graph, k->root)->data, "body",
				                     p->machine);
		tile_pass(arena, p, 0);
		return;
	case PASS_memory:
		memory_pass(arena, p);
		return;
	default:
		if (pass != PASS_loops || has_loop(unit->graph))
			unit->graph = graph_live(arena, graph_passes[pass](arena, unit->graph));
	}
}

Plan *plan_graph(Arena *arena, const Graph *g, const char *name, const Machine *machine)
{
	Unit unit = {name, machine, g, NULL};
	for (Pass p = PASS_loops; p <= PASS_memory; p++)
		run_pass(arena, p, &unit);
	return unit.plan;
}
