// partials.c: emits reductions per worker, then over workers.
// Every worker reduces its rows to its own row of the kernel's work, and the next launch reduces
// these rows. Invariant: a sum is in the order of rows in a part, then of parts, for any thread
// count.
//
// On a GPU, threads of a worker have some of the rows of a column each, in registers, and the first
// of them reduces what they have, in order. Of the workers that have parts of the same columns, the
// last to arrive reduces all of these, whichever it is: each counts itself, after a fence that lets
// others see its parts. Or all workers reduce them, in the next launch.
#include "gen.h"

enum {
	AT_ONCE = 16, // parts that a thread of a GPU loads, a power of FEWER
	FEWER = 4,    // of which it loads so many times less for the rest
	MANY = 64,    // threads of a column
	SOME = 16,    // threads that reduce the sums of all of them first
};

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

// Returns what a part of reduction k starts with, in all lanes.
static Value first_sum(Gen *g, const Partials *p, int k)
{
	Ref r = p->reduce->at[k].val;
	return splat(g, reduce_start(g, val(g->graph, r)->op, sum_type(g, r)));
}

void partials_start(Gen *g, int n, const Index *unit, void *partials)
{
	const Partials *p = partials;
	for (int u = 0; u < n; u++) {
		Lanes lanes = index_value(g, &unit[u]);
		for (int k = 0; k < p->reduce->count; k++)
			store_lanes(g, sum_type(g, p->reduce->at[k].val),
			            part_address(g, p, k, p->block), &lanes, first_sum(g, p, k));
	}
}

void partials_step(Gen *g, const Partials *p, const Index *unit, int rows, const Index *idx)
{
	Lanes lanes = index_value(g, unit);
	for (int k = 0; k < p->reduce->count; k++) {
		const Val *v = val(g->graph, p->reduce->at[k].val), *in = val(g->graph, v->in[0]);
		Elem e = sum_type(g, p->reduce->at[k].val);
		Value to = p->sum ? p->sum[k] : part_address(g, p, k, p->block);
		Value sum = p->sum ? read_variable(g, to) : load_lanes(g, e, to, &lanes);
		for (int r = 0; r < rows; r++) {
			Index own[RANK];
			space_index(g, &in->shape, idx + r * RANK, own);
			Value x = cast_value(g, splat(g, at(g, v->in[0], own)), in->type, e);
			if (p->along && lanes.mask)
				x = choose(g, lanes.mask, x, reduce_start(g, v->op, e));
			sum = reduce_step(g, v->op, e, sum, x);
		}
		if (p->sum)
			set_variable(g, to, sum);
		else
			store_lanes(g, e, to, &lanes, sum);
	}
}

static Value load_part(Gen *g, const Partials *p, int k, const Lanes *lanes, Value block)
{
	return load_lanes(g, sum_type(g, p->reduce->at[k].val), part_address(g, p, k, block),
	                  lanes);
}

void partials_hold(Gen *g, Partials *p, const Index *unit)
{
	Lanes lanes = index_value(g, unit);
	p->sum = NEWS(g->arena, Value, p->reduce->count);
	for (int k = 0; k < p->reduce->count; k++)
		p->sum[k] = variable(g, load_part(g, p, k, &lanes, p->block));
}

// Stores what variables hold of the worker's part.
static void store_part(Gen *g, const Partials *p, const Lanes *lanes)
{
	for (int k = 0; k < p->reduce->count; k++)
		store_lanes(g, sum_type(g, p->reduce->at[k].val), part_address(g, p, k, p->block),
		            lanes, read_variable(g, p->sum[k]));
}

void partials_release(Gen *g, const Partials *p, const Index *unit)
{
	Lanes lanes = index_value(g, unit);
	store_part(g, p, &lanes);
}

void partials_open(Gen *g, Partials *p)
{
	p->sum = NEWS(g->arena, Value, p->reduce->count);
	for (int k = 0; k < p->reduce->count; k++)
		p->sum[k] = variable(g, first_sum(g, p, k));
}

void partials_close(Gen *g, const Partials *p, Value row)
{
	Lanes at_row = {.base = row};
	for (int k = 0; k < p->reduce->count; k++) {
		Ref r = p->reduce->at[k].val;
		Elem e = sum_type(g, r);
		Value sum = read_variable(g, p->sum[k]);
		sum = g->ops->reduce_lanes(g, val(g->graph, r)->op, e, sum);
		store_lanes(g, e, part_address(g, p, k, p->block), &at_row, sum);
	}
}

static Value full_reduction(Gen *g, const Partials *p, int k, const Lanes *lanes)
{
	Op op = val(g->graph, p->reduce->at[k].val)->op;
	Elem e = sum_type(g, p->reduce->at[k].val);
	Value sum = variable(g, splat(g, reduce_start(g, op, e)));
	Loop loop = loop_begin(g, number(g, 0), number(g, p->blocks), 1);
	Value part = load_part(g, p, k, lanes, loop.i);
	set_variable(g, sum, reduce_step(g, op, e, read_variable(g, sum), part));
	loop_end(g, &loop);
	return read_variable(g, sum);
}

// Computes what has the shape of the reductions, whose values are `sum`, at columns `unit`.
static void finish_columns(Gen *g, const Partials *p, const Index *unit, const Value *sum)
{
	Index idx[RANK];
	unravel(g->vars, unit, &p->shape, idx);
	if (count_of(&p->shape) == 1) // as at() asks for it
		idx[0] = constant_index(0);
	Lanes lanes = index_value(g, unit);
	for (int k = 0; k < p->reduce->count; k++) {
		Ref r = p->reduce->at[k].val;
		remember(g, r, idx, cast_value(g, sum[k], sum_type(g, r), val(g->graph, r)->type));
	}
	for (int i = 0; i < p->keep->count; i++)
		store_lanes(g, val(g->graph, p->keep->at[i].val)->type, partials_kept(g, p, i),
		            &lanes, splat(g, at(g, p->keep->at[i].val, idx)));
	store_reduced_outs(g, idx);
}

void partials_finish(Gen *g, int n, const Index *unit, void *partials)
{
	const Partials *p = partials;
	Value *sum = NEWS(g->arena, Value, p->reduce->count);
	for (int u = 0; u < n; u++) {
		Lanes lanes = index_value(g, &unit[u]);
		for (int k = 0; k < p->reduce->count; k++)
			sum[k] = full_reduction(g, p, k, &lanes);
		finish_columns(g, p, &unit[u], sum);
	}
}

// ---- threads that share a column ------------------------------------------------------

Value partials_memory(Gen *g)
{
	return g->ops->shared(g, "amos_ways", g->target->machine->threads, number(g, 0));
}

void partials_share(Gen *g, Partials *p, int64_t columns)
{
	Value thread = g->ops->thread(g);
	p->wide = p->pitch = columns;
	p->ways = g->target->machine->threads / columns;
	p->own = LLVMBuildURem(g->b, thread, number(g, columns), "");
	p->way = LLVMBuildUDiv(g->b, thread, number(g, columns), "");
	p->sum = NEWS(g->arena, Value, p->reduce->count);
	for (int k = 0; k < p->reduce->count; k++) {
		Ref r = p->reduce->at[k].val;
		p->sum[k] = variable(g, reduce_start(g, val(g->graph, r)->op, sum_type(g, r)));
	}
}

void partials_clear(Gen *g, const Partials *p)
{
	for (int k = 0; k < p->reduce->count; k++) {
		Ref r = p->reduce->at[k].val;
		set_variable(g, p->sum[k], reduce_start(g, val(g->graph, r)->op, sum_type(g, r)));
	}
}

static void share_way(Gen *g, const Partials *p, int k)
{
	Lanes own = {.base = sum_of(g, times(g, p->way, p->pitch), p->own)};
	store_lanes(g, sum_type(g, p->reduce->at[k].val), p->shared, &own,
	            read_variable(g, p->sum[k]));
}

// Reduces what ways of a column share: every `apart`-th from `from` on.
static void add_ways(Gen *g, const Partials *p, int k, Value from, int64_t to, int64_t apart)
{
	Op op = val(g->graph, p->reduce->at[k].val)->op;
	Elem e = sum_type(g, p->reduce->at[k].val);
	set_variable(g, p->sum[k], reduce_start(g, op, e));
	int some = (int)MIN(AT_ONCE, to / apart);
	Loop ways = loop_begin(g, from, number(g, to), some * apart);
	Value part[AT_ONCE], sum = read_variable(g, p->sum[k]);
	for (int i = 0; i < some; i++) {
		Value way = sum_of(g, ways.i, number(g, i * apart));
		Lanes other = {.base = sum_of(g, times(g, way, p->pitch), p->own)};
		part[i] = load_lanes(g, e, p->shared, &other);
	}
	for (int i = 0; i < some; i++)
		sum = reduce_step(g, op, e, sum, part[i]);
	set_variable(g, p->sum[k], sum);
	loop_end(g, &ways);
}

// Reduces what threads have of a column, for all of them; of many, the first few reduce some each
// before.
static void join_ways(Gen *g, const Partials *p, int k)
{
	int64_t ways = p->ways;
	if (k)
		g->ops->all_threads(g);
	share_way(g, p, k);
	g->ops->all_threads(g);
	if (ways > MANY) {
		Loop few =
		    when_begin(g, LLVMBuildICmp(g->b, LLVMIntSLT, p->way, number(g, SOME), ""));
		add_ways(g, p, k, p->way, ways, SOME);
		share_way(g, p, k);
		when_end(g, &few);
		g->ops->all_threads(g);
		ways = SOME;
	}
	add_ways(g, p, k, number(g, 0), ways, 1);
}

void partials_join_ways(Gen *g, const Partials *p)
{
	for (int k = 0; k < p->reduce->count && p->ways > 1; k++)
		join_ways(g, p, k);
}

// Begins what the first thread of each column does.
static Loop first_begin(Gen *g, const Partials *p, Value column, int64_t columns)
{
	Value first = LLVMBuildICmp(g->b, LLVMIntEQ, p->way, number(g, 0), "");
	Value exists = LLVMBuildICmp(g->b, LLVMIntSLT, column, number(g, columns), "");
	return when_begin(g, LLVMBuildAnd(g->b, first, exists, ""));
}

void partials_store(Gen *g, const Partials *p, Value column, int64_t columns)
{
	partials_join_ways(g, p);
	Loop first = first_begin(g, p, column, columns);
	Lanes lanes = {.base = column};
	store_part(g, p, &lanes);
	when_end(g, &first);
}

// Reduces a thread's parts of [from, to), `some` at once, which wait for memory together.
static void add_parts(Gen *g, const Partials *p, Value column, Value from, Value to, int some)
{
	Lanes lanes = {.base = column};
	Loop loop = loop_begin(g, from, to, some * p->ways);
	for (int k = 0; k < p->reduce->count; k++) {
		Value part[AT_ONCE], sum = read_variable(g, p->sum[k]);
		Elem e = sum_type(g, p->reduce->at[k].val);
		for (int i = 0; i < some; i++)
			part[i] =
			    load_part(g, p, k, &lanes, sum_of(g, loop.i, number(g, i * p->ways)));
		for (int i = 0; i < some; i++)
			sum = reduce_step(g, val(g->graph, p->reduce->at[k].val)->op, e, sum,
			                  part[i]);
		set_variable(g, p->sum[k], sum);
	}
	loop_end(g, &loop);
}

void partials_total(Gen *g, const Partials *p, Value column, int64_t columns)
{
	int64_t from = 0, step = AT_ONCE * p->ways;
	Loop exists =
	    when_begin(g, LLVMBuildICmp(g->b, LLVMIntSLT, column, number(g, columns), ""));
	for (; step >= p->ways; step /= FEWER) {
		int64_t to = step > p->ways ? p->blocks / step * step : p->blocks;
		if (from < to)
			add_parts(g, p, column, sum_of(g, p->way, number(g, from)), number(g, to),
			          (int)(step / p->ways));
		from = to;
	}
	when_end(g, &exists);
	partials_join_ways(g, p);
}

// ---- the last of the workers ----------------------------------------------------------

// Returns the address of the count of the worker's group, which is 0 between launches.
static Value arrivals(Gen *g, const Partials *p)
{
	size_t length;
	const char *name = format(g->arena, "%s_arrivals", LLVMGetValueName2(g->function, &length));
	LLVMTypeRef type = LLVMArrayType2(g->i32, (uint64_t)(g->kernels * p->groups));
	Value counts = LLVMGetNamedGlobal(g->module, name);
	if (!counts) {
		unsigned space = LLVMGetPointerAddressSpace(g->ops->pointer(g));
		counts = LLVMAddGlobalInAddressSpace(g->module, type, name, space);
		LLVMSetLinkage(counts, LLVMInternalLinkage);
		LLVMSetInitializer(counts, LLVMConstNull(type));
	}
	return place_in(g, g->i32, counts, sum_of(g, times(g, g->kernel, p->groups), p->group));
}

// True, for all threads, if all other workers of the group have stored their parts.
static Value comes_last(Gen *g, const Partials *p)
{
	Value count = arrivals(g, p), last = g->ops->shared(g, "amos_last", 1, number(g, 0));
	g->ops->all_threads(g);
	Value thread = g->ops->thread(g);
	Loop one = when_begin(g, LLVMBuildICmp(g->b, LLVMIntEQ, thread, number(g, 0), ""));
	g->ops->fence(g);
	Value others = LLVMConstInt(g->i32, (uint64_t)p->blocks - 1, 0);
	Value is = LLVMBuildICmp(g->b, LLVMIntEQ, g->ops->ticket(g, count), others, "");
	g->ops->fence(g);
	LLVMBuildStore(g->b, LLVMBuildZExt(g->b, is, g->i64, ""), last);
	Loop all = when_begin(g, is);
	LLVMBuildStore(g->b, LLVMConstInt(g->i32, 0, 0), count);
	when_end(g, &all);
	when_end(g, &one);
	g->ops->all_threads(g);
	return LLVMBuildICmp(g->b, LLVMIntNE, LLVMBuildLoad2(g->b, g->i64, last, ""), number(g, 0),
	                     "");
}

static void join_columns(Gen *g, const Partials *p, Value column, int64_t columns)
{
	Value *sum = NEWS(g->arena, Value, p->reduce->count);
	partials_clear(g, p);
	partials_total(g, p, column, columns);
	Loop first = first_begin(g, p, column, columns);
	Index unit = lane_index(g, column, columns, 1, NULL);
	for (int k = 0; k < p->reduce->count; k++)
		sum[k] = read_variable(g, p->sum[k]);
	Level *floor = g->floor;
	g->floor = g->level; // where the sums are known, those of a single column as well
	finish_columns(g, p, &unit, sum);
	g->floor = floor;
	when_end(g, &first);
}

void partials_join(Gen *g, const Partials *p, Value column, int64_t columns, int64_t own)
{
	Loop last = when_begin(g, comes_last(g, p));
	if (own <= p->wide) {
		join_columns(g, p, column, columns);
	} else {
		Loop some = loop_begin(g, number(g, 0), number(g, own), p->wide);
		join_columns(g, p, sum_of(g, column, some.i), columns);
		g->ops->all_threads(g);
		loop_end_rolled(g, &some);
	}
	when_end(g, &last);
}
