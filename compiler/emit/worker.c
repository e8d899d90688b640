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
	Value to = least(g, sum_of(g, from, number(g, piece)), number(g, columns));
	if (pieces == 1)
		from = number(g, 0), to = number(g, columns);
	g->ops->lane_loop(g, from, to, columns, (int)g->kern->sched->units, body, context);
}

Loop worker_rows(Gen *g, int64_t rows, Index *row)
{
	int64_t block = g->kern->sched->rows;
	Value first = times(g, g->worker, block);
	Value end = least(g, sum_of(g, first, number(g, block)), number(g, rows));
	Loop loop = loop_begin(g, first, end, 1);
	*row = uniform_index(g, loop.i, rows, 1);
	return loop;
}
