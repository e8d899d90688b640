// worker.c: emits a worker's part of the kernel's space, by the schedule.
#include "gen.h"

Index worker_row(Gen *g, int64_t rows, int64_t columns)
{
	int64_t pieces = ceil_div(columns, g->kern->sched->columns);
	Value row = LLVMBuildUDiv(g->b, g->worker, number(g, pieces), "");
	return uniform_index(g, rows > 1 ? row : number(g, 0), rows, 1);
}

void worker_columns(Gen *g, int64_t columns, LaneBody *body, void *context)
{
	int64_t piece = g->kern->sched->columns, pieces = ceil_div(columns, piece);
	Value part = LLVMBuildURem(g->b, g->worker, number(g, pieces), "");
	Value from = times(g, part, piece);
	Value to = end_after(g, from, piece, number(g, columns));
	if (pieces == 1)
		from = number(g, 0), to = number(g, columns);
	g->ops->lane_loop(g, from, to, columns, (int)g->kern->sched->units, body, context);
}
