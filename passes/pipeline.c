// pipeline.c: runs the passes of passes.def on one entry, from its graph to its plan.
// Invariant: each pass leaves the graph as if it had been printed and read back (graph_live).
#include "passes.h"

const PassInfo pass_table[PASSES] = {
#define PASS(name, takes, gives, summary) {#name, #takes, #gives, summary},
#include "passes.def"
#undef PASS
};

Pass pass_named(const char *name)
{
	int p = FIND(name, pass_table);
	return p < 0 ? PASSES : (Pass)p;
}

const char *pass_names(Arena *arena)
{
	return NAMES(arena, pass_table, " or ");
}

// True if matrix registers of a CPU multiply what is rounded to bf16.
static bool rounds_for_registers(const Unit *unit)
{
	return unit->graph->products == E_bf16 && has_thread_matrix(unit->machine);
}

static Plan *plan_unit(Arena *, Unit);

void run_pass(Arena *arena, Pass pass, Unit *unit)
{
	const Graph *g = unit->graph;
	Plan *p = unit->plan;
	switch (pass) {
	case PASS_loops:
		if (has_loop(g))
			unit->graph = graph_live(arena, loops_pass(arena, g, 0));
		return;
	case PASS_decompose:
		unit->graph = graph_live(arena, decompose_pass(arena, g, unit->machine));
		return;
	case PASS_convolution:
		unit->graph = convolution_pass(arena, g);
		return;
	case PASS_groups:
		if (unit->machine->rows)
			unit->graph = groups_pass(arena, g, unit->machine);
		return;
	case PASS_layout:
		unit->graph = layout_pass(arena, g);
		return;
	case PASS_channels:
		if (has_thread_matrix(unit->machine))
			unit->graph = channels_pass(arena, g, unit->machine);
		return;
	case PASS_transpose_dot:
		unit->graph = graph_live(arena, transpose_dot_pass(arena, g, unit->machine));
		return;
	case PASS_precision:
		if (g->products && !(unit->inside && g->products == E_f16)) // it is f32 in loops
			unit->graph = graph_live(arena, precision_pass(arena, g, unit->machine));
		return;
	case PASS_statistics:
		unit->graph = statistics_pass(arena, g);
		if (unit->graph != g)
			unit->graph = graph_live(arena, unit->graph);
		return;
	case PASS_parts:
		unit->graph = parts_pass(arena, g, unit->machine);
		return;
	case PASS_line_windows:
		if (rounds_for_registers(unit))
			unit->graph = graph_live(arena, line_windows_pass(arena, g));
		return;
	case PASS_panels:
		if (unit->machine->rows && has_loop(g))
			unit->graph = graph_live(arena, panels_pass(arena, g, unit->machine));
		return;
	case PASS_row_blocks:
		unit->graph = row_blocks_pass(arena, g, unit->machine);
		return;
	case PASS_unalias: // returns a live graph
		unit->graph = graph_unalias(arena, g);
		return;
	case PASS_points:
		unit->graph = points_pass(arena, g, unit->machine);
		return;
	case PASS_pitch:
		unit->graph = pitch_pass(arena, g, unit->machine);
		return;
	case PASS_fuse:
		unit->plan = fuse_pass(arena, g, unit->name, unit->machine);
		return;
	case PASS_schedule:
		schedule_pass(arena, p);
		return;
	case PASS_tile:
		// The body of a loop is a plan of its own; the loop's schedule includes its memory.
		for (Kern *k = p->kerns.at; k < p->kerns.at + p->kerns.count; k++)
			if (k->kind == L_loop)
				k->body =
				    plan_unit(arena, (Unit){.name = "body",
				                            .machine = p->machine,
				                            .graph = val(p->graph, k->root)->data,
				                            .inside = true});
		tile_pass(arena, p, 0);
		return;
	case PASS_bundle:
		bundle_pass(arena, p, unit->limited);
		return;
	case PASS_recompute: // the driver knows what else is in memory
		return;
	case PASS_memory:
		memory_pass(arena, p);
		return;
	default:
		never(pass);
	}
}

static Plan *plan_unit(Arena *arena, Unit unit)
{
	for (Pass p = PASS_loops; p <= PASS_memory; p++)
		run_pass(arena, p, &unit);
	return unit.plan;
}

Plan *plan_graph(Arena *arena, const Graph *g, const char *name, const Machine *machine)
{
	return plan_unit(arena, (Unit){.name = name, .machine = machine, .graph = g});
}
