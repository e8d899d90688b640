// partials.c: emits reductions per worker, then over workers.
// Every worker reduces its rows to its own row of the kernel's work, and the next launch reduces
// these rows. Invariant: a sum is in the order of rows in a part, then of parts, for any thread
// count.
#include "gen.h"

enum { AT_ONCE = 16 }; // parts that a thread of a GPU loads

// Returns the address of a line of the kernel's work.
static Value line_address(Gen *g, const Partials *p, Value line)
{
	Value i = LLVMBuildMul(g->b, line, number(g, p->line * PARTIAL), "");
	return LLVMBuildGEP2(g->b, g->i8, work_memory(g, p->offset), &i, 1, "");
}

// Returns the address of the part of reduction k that `block` has.
static Value part_address(Gen *g, const Partials *p, int k, Value block)
{
	return line_address(g, p, LLVMBuildAdd(g->b, block, number(g, k * p->blocks), ""));
}

Value partials_kept(Gen *g, const Partials *p, int i)
{
	return line_address(g, p, number(g, p->reduce->count * p->blocks + i));
}

void partials_start(Gen *g, int n, const Index *unit, void *partials)
{
	const Partials *p = partials;
	for (int u = 0; u < n; u++) {
		Lanes lanes = index_value(g, &unit[u]);
		for (int k = 0; k < p->reduce->count; k++) {
			Ref r = p->reduce->at[k].val;
			Elem e = sum_type(g, r);
			store_lanes(g, e, part_address(g, p, k, p->block), &lanes,
			            splat(g, reduce_start(g, val(g->graph, r)->op, e)));
		}
	}
}

void partials_step(Gen *g, const Partials *p, const Index *unit, int rows, const Index *idx)
{
	Lanes lanes = index_value(g, unit);
	for (int k = 0; k < p->reduce->count; k++) {
		const Val *v = val(g->graph, p->reduce->at[k].val), *in = val(g->graph, v->in[0]);
		Elem e = sum_type(g, p->reduce->at[k].val);
		Value to = part_address(g, p, k, p->block), sum = load_lanes(g, e, to, &lanes);
		for (int r = 0; r < rows; r++) {
			Index own[RANK];
			space_index(g, &in->shape, idx + r * RANK, own);
			Value x = cast_value(g, splat(g, at(g, v->in[0], own)), in->type, e);
			sum = reduce_step(g, v->op, e, sum, x);
		}
		store_lanes(g, e, to, &lanes, sum);
	}
}

// Reduces some parts, in order. Those that are loaded at once wait for memory together.
static void add_parts(Gen *g, const Partials *p, int k, const Lanes *lanes, Value sum, int64_t from,
                      int64_t to, int some)
{
	const Val *v = val(g->graph, p->reduce->at[k].val);
	Elem e = sum_type(g, p->reduce->at[k].val);
	if (from == to)
		return;
	Loop loop = loop_begin(g, number(g, from), number(g, to), some);
	Value part[AT_ONCE], all = read_variable(g, sum);
	for (int i = 0; i < some; i++) {
		Value block = sum_of(g, loop.i, number(g, i));
		part[i] = load_lanes(g, e, part_address(g, p, k, block), lanes);
	}
	for (int i = 0; i < some; i++)
		all = reduce_step(g, v->op, e, all, part[i]);
	set_variable(g, sum, all);
	loop_end(g, &loop);
}

static Value full_reduction(Gen *g, const Partials *p, int k, const Lanes *lanes)
{
	const Val *v = val(g->graph, p->reduce->at[k].val);
	Elem e = sum_type(g, p->reduce->at[k].val);
	Value start = splat(g, reduce_start(g, v->op, e));
	Value sum = variable(g, start);
	int some = g->target->machine->threads > 1 ? AT_ONCE : 1;
	int64_t most = p->blocks / some * some;
	add_parts(g, p, k, lanes, sum, 0, most, some);
	add_parts(g, p, k, lanes, sum, most, p->blocks, 1);
	return cast_value(g, read_variable(g, sum), e, v->type);
}

void partials_finish(Gen *g, int n, const Index *unit, void *partials)
{
	const Partials *p = partials;
	const Kern *kern = g->kern;
	for (int u = 0; u < n; u++) {
		Index idx[RANK];
		unravel(g->vars, &unit[u], &p->shape, idx);
		Lanes lanes = index_value(g, &unit[u]);
		for (int k = 0; k < p->reduce->count; k++)
			remember(g, p->reduce->at[k].val, idx, full_reduction(g, p, k, &lanes));
		for (int i = 0; i < p->keep->count; i++)
			store_lanes(g, val(g->graph, p->keep->at[i].val)->type,
			            partials_kept(g, p, i), &lanes,
			            splat(g, at(g, p->keep->at[i].val, idx)));
		// All are computed before the first is stored, perhaps over their operands.
		Value *v = NEWS(g->arena, Value, kern->nout);
		for (int o = 0; o < kern->nout; o++)
			if (is_reduced_out(g->graph, kern, o))
				v[o] = at(g, kern->out[o], idx);
		for (int o = 0; o < kern->nout; o++)
			if (v[o])
				store_out(g, o, idx, v[o]);
	}
}
