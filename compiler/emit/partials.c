// partials.c: reduces per worker, then over workers.
// Every worker folds its rows to a row of its own in common memory, and a launch after theirs
// folds these rows. Takes gen.h. Keeps: the order of a sum is that of rows in a part, then of
// parts, whatever the thread count.
#include "gen.h"

enum { BYTES = 8 }; // room for an element of any type

void parts_plan(Partials *p, int64_t blocks, int64_t columns, int64_t offset)
{
	p->blocks = blocks;
	p->line = (columns + 15) / 16 * 16 + 16;
	p->offset = offset;
	p->bytes = p->reduce.count * blocks * p->line * BYTES;
}

// Row `block` of fold k.
static Value part_row(Gen *g, const Partials *p, int k, Value block)
{
	Value i = LLVMBuildAdd(g->b, block, number(g, k * p->blocks), "");
	i = LLVMBuildMul(g->b, i, number(g, p->line * BYTES), "");
	return LLVMBuildGEP2(g->b, g->i8, common_memory(g, p->offset), &i, 1, "");
}

void parts_start(Gen *g, const Partials *p, Value block, const Index *unit)
{
	Lanes lanes = index_value(g, unit);
	for (int k = 0; k < p->reduce.count; k++) {
		const Val *v = val(g->graph, p->reduce.at[k]);
		store_lanes(g, v->type, part_row(g, p, k, block), &lanes,
		            splat(g, reduce_start(g, v->op, v->type)));
	}
}

void parts_step(Gen *g, const Partials *p, Value block, const Index *unit, const Index *idx)
{
	Lanes lanes = index_value(g, unit);
	for (int k = 0; k < p->reduce.count; k++) {
		const Val *v = val(g->graph, p->reduce.at[k]);
		Index own[RANK];
		space_index(g, &val(g->graph, v->in[0])->shape, idx, own);
		Value to = part_row(g, p, k, block), x = splat(g, at(g, v->in[0], own));
		Value sum = load_lanes(g, v->type, to, &lanes);
		store_lanes(g, v->type, to, &lanes, reduce_step(g, v->op, v->type, sum, x));
	}
}

static Value reduce_parts(Gen *g, const Partials *p, int k, const Index *unit)
{
	const Val *v = val(g->graph, p->reduce.at[k]);
	Lanes lanes = index_value(g, unit);
	Value start = splat(g, reduce_start(g, v->op, v->type));
	LLVMTypeRef type = LLVMTypeOf(start);
	Value sum = variable(g, type, start);
	Loop loop = loop_begin(g, number(g, 0), number(g, p->blocks), 1);
	Value part = load_lanes(g, v->type, part_row(g, p, k, loop.i), &lanes);
	set_variable(g, sum, reduce_step(g, v->op, v->type, read_variable(g, type, sum), part));
	loop_end(g, &loop);
	return read_variable(g, type, sum);
}

void parts_finish(Gen *g, const Partials *p, const Index *unit, const Index *idx)
{
	for (int k = 0; k < p->reduce.count; k++)
		remember(g, p->reduce.at[k], idx, reduce_parts(g, p, k, unit));
}
