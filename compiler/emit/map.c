// map.c: kernels without a fold of their own: every element of a space, lanes along its last axis.
// Takes gen.h. A worker is a block of rows, or a piece of a long row.
#include "gen.h"
#include <string.h>

enum { WORK = 8192 }; // elements of a worker

typedef struct Map {
	Groups groups;
	Index idx[RANK];
} Map;

static void store_units(Gen *g, int n, const Index *unit, void *context)
{
	Map *m = context;
	for (int u = 0; u < n; u++) {
		group_index(g->vars, &m->groups, m->groups.n - 1, &g->kern->space, &unit[u],
		            m->idx);
		store_outs(g, m->idx);
	}
}

// All groups as one, where the last is too short for lanes of its own.
static Groups flatten(const Groups *groups, const Shape *shape)
{
	Groups flat = {.n = 1, .first = {0}, .last = {shape->rank - 1}, .size = {count_of(shape)}};
	return groups->n ? flat : *groups;
}

static void row_pieces(Gen *g, Map *m, int64_t rows, int64_t columns)
{
	int64_t piece = rows == 1 && columns < 4 * WORK ? WORK / 4 : WORK;
	int64_t pieces = ceil_div(columns, piece);
	g->workers = rows * pieces;
	Value row = LLVMBuildUDiv(g->b, g->worker, number(g, pieces), "");
	Value part = LLVMBuildURem(g->b, g->worker, number(g, pieces), "");
	Index r = uniform_index(g, rows > 1 ? row : number(g, 0), rows, 1);
	row_index(g->vars, &m->groups, (1u << (m->groups.n - 1)) - 1, &g->kern->space, &r, m->idx);
	Value from = times(g, part, piece);
	Value to = smaller(g, LLVMBuildAdd(g->b, from, number(g, piece), ""), columns);
	if (pieces == 1)
		from = number(g, 0), to = number(g, columns);
	lane_loop(g, from, to, columns, 1, store_units, m);
}

static void row_blocks(Gen *g, Map *m, int64_t rows, int64_t columns)
{
	int64_t block = MAX(1, MIN(WORK / columns, (rows + 7) / 8));
	g->workers = ceil_div(rows, block);
	Value first = times(g, g->worker, block);
	Value end = smaller(g, LLVMBuildAdd(g->b, first, number(g, block), ""), rows);
	Loop loop = loop_begin(g, first, end, 1);
	Index r = uniform_index(g, loop.i, rows, 1);
	row_index(g->vars, &m->groups, (1u << (m->groups.n - 1)) - 1, &g->kern->space, &r, m->idx);
	lane_loop(g, number(g, 0), number(g, columns), columns, 1, store_units, m);
	loop_end(g, &loop);
}

void emit_map(Gen *g, const Kern *kern)
{
	Map m = {.groups = coalesce(g->vars, g->graph, &g->computed, kern->nout, kern->out,
	                            &kern->space, (1u << kern->space.rank) - 1, 0, NULL)};
	for (int a = 0; a < RANK; a++)
		m.idx[a] = constant_index(0);
	int64_t count = count_of(&kern->space);
	if (!m.groups.n) {
		Branch single = single_begin(g);
		store_outs(g, m.idx);
		single_end(g, &single);
		return;
	}
	if (m.groups.size[m.groups.n - 1] < g->width / 2)
		m.groups = flatten(&m.groups, &kern->space);
	int64_t columns = m.groups.size[m.groups.n - 1], rows = count / columns;
	if (rows == 1 || columns >= 2 * WORK)
		row_pieces(g, &m, rows, columns);
	else
		row_blocks(g, &m, rows, columns);
}
