// partials.c: emits reductions per worker, then over workers.
// Every worker reduces its rows to its own row of the kernel's work, and the next launch reduces
// these rows. Invariant: a sum is in the order of rows in a part, then of parts, for any thread
// count.
#include "gen.h"

// Returns the address of row `block` of reduction k.
static Value part_row(Gen *g, const Partials *p, int k, Value block)
{
	Value i = LLVMBuildAdd(g->b, block, number(g, k * p->blocks), "");
	i = LLVMBuildMul(g->b, i, number(g, p->line * PARTIAL), "");
	return LLVMBuildGEP2(g->b, g->i8, work_memory(g, p->offset), &i, 1, "");
}

void partials_start(Gen *g, const Partials *p, Value block, const Index *unit)
{
	Lanes lanes = index_value(g, unit);
	for (int k = 0; k < p->reduce->count; k++) {
		const Val *v = val(g->graph, p->reduce->at[k].val);
		store_lanes(g, v->type, part_row(g, p, k, block), &lanes,
		            splat(g, reduce_start(g, v->op, v->type)));
	}
}

void partials_step(Gen *g, const Partials *p, Value block, const Index *unit, const Index *idx)
{
	Lanes lanes = index_value(g, unit);
	for (int k = 0; k < p->reduce->count; k++) {
		const Val *v = val(g->graph, p->reduce->at[k].val);
		Index own[RANK];
		space_index(g, &val(g->graph, v->in[0])->shape, idx, own);
		Value to = part_row(g, p, k, block), x = splat(g, at(g, v->in[0], own));
		Value sum = load_lanes(g, v->type, to, &lanes);
		store_lanes(g, v->type, to, &lanes, reduce_step(g, v->op, v->type, sum, x));
	}
}

void partials_finish(Gen *g, const Partials *p, const Index *unit, const Index *idx)
{
	for (int k = 0; k < p->reduce->count; k++) {
		const Val *v = val(g->graph, p->reduce->at[k].val);
		Lanes lanes = index_value(g, unit);
		Value start = splat(g, reduce_start(g, v->op, v->type));
		LLVMTypeRef type = LLVMTypeOf(start);
		Value sum = variable(g, type, start);
		Loop loop = loop_begin(g, number(g, 0), number(g, p->blocks), 1);
		Value part = load_lanes(g, v->type, part_row(g, p, k, loop.i), &lanes);
		part = reduce_step(g, v->op, v->type, read_variable(g, type, sum), part);
		set_variable(g, sum, part);
		loop_end(g, &loop);
		remember(g, p->reduce->at[k].val, idx, read_variable(g, type, sum));
	}
}
