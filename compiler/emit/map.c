// map.c: emits kernels without reductions: every element of a space, lanes along its last axis.
// A worker has a block of rows, or a piece of a long row.
#include "gen.h"
#include <string.h>

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

static void set_row(Gen *g, Map *m, const Index *row)
{
	uint32_t outer = (1u << (m->groups.n - 1)) - 1;
	row_index(g->vars, &m->groups, outer, &g->kern->space, row, m->idx);
}

void emit_map(Gen *g, const Kern *kern)
{
	Map m = {.groups = kern_groups(kern)};
	int64_t count = count_of(&kern->space);
	for (int a = 0; a < RANK; a++)
		m.idx[a] = constant_index(0);
	if (!m.groups.n) {
		Branch single = g->ops->single_begin(g);
		store_outs(g, m.idx);
		single_end(g, &single);
		return;
	}
	if (kern->sched->flat)
		m.groups = (Groups){.n = 1, .last = {kern->space.rank - 1}, .size = {count}};
	int64_t columns = m.groups.size[m.groups.n - 1], rows = count / columns;
	Index row;
	if (kern->sched->partition == P_columns) {
		row = worker_row(g, rows, columns);
		set_row(g, &m, &row);
		worker_columns(g, columns, store_units, &m);
		return;
	}
	Loop loop = worker_rows(g, rows, &row);
	set_row(g, &m, &row);
	g->ops->lane_loop(g, number(g, 0), number(g, columns), columns, 1, store_units, &m);
	loop_end(g, &loop);
}
