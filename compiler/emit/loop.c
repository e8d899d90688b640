// loop.c: emits levels, loops and variables of a kernel.
// Invariant: an outer level's block has no terminator while an inner level is open.
#include "gen.h"
#include <llvm-c/DebugInfo.h>
#include <string.h>

// ---- levels ---------------------------------------------------------------------------

static LLVMBasicBlockRef new_block(Gen *g)
{
	return LLVMAppendBasicBlockInContext(g->context, g->function, "");
}

Level *level_go(Gen *g, Level *to)
{
	Level *was = g->level;
	if (was == to)
		return was;
	was->open = LLVMGetInsertBlock(g->b);
	g->level = to;
	LLVMPositionBuilderAtEnd(g->b, to->open);
	return was;
}

// Enters a level without a loop. Returns the outer level.
static Level *level_enter(Gen *g)
{
	Level *outer = g->level, *inner = NEW(g->arena, Level);
	LLVMBasicBlockRef block = new_block(g);
	*inner = (Level){.outer = outer,
	                 .depth = outer->depth + 1,
	                 .lanes = outer->lanes,
	                 .first = block,
	                 .open = block};
	level_go(g, inner);
	return outer;
}

// ---- variables ------------------------------------------------------------------------

Value variable(Gen *g, Value initial)
{
	LLVMBasicBlockRef here = LLVMGetInsertBlock(g->b);
	LLVMPositionBuilderAtEnd(g->b, g->entry);
	Value v = LLVMBuildAlloca(g->b, LLVMTypeOf(initial), "");
	LLVMPositionBuilderAtEnd(g->b, here);
	set_variable(g, v, initial);
	return v;
}

Value read_variable(Gen *g, Value v)
{
	return LLVMBuildLoad2(g->b, LLVMGetAllocatedType(v), v, "");
}

void set_variable(Gen *g, Value v, Value x)
{
	LLVMBuildStore(g->b, x, v);
}

Value stack_memory(Gen *g, int64_t bytes)
{
	LLVMBasicBlockRef here = LLVMGetInsertBlock(g->b);
	LLVMPositionBuilderAtEnd(g->b, g->entry);
	Value memory = LLVMBuildAlloca(g->b, LLVMArrayType2(g->i8, (uint64_t)bytes), "");
	LLVMSetAlignment(memory, 64);
	LLVMPositionBuilderAtEnd(g->b, here);
	return memory;
}

Value local_memory(Gen *g, int64_t bytes)
{
	Value offset = number(g, g->local_used);
	g->local_used += full_lines(bytes);
	return LLVMBuildGEP2(g->b, g->i8, g->local, &offset, 1, "");
}

// ---- loops ----------------------------------------------------------------------------

Loop loop_begin(Gen *g, Value from, Value to, int64_t step)
{
	Loop loop = {.to = to, .step = step, .counter = variable(g, from)};
	loop.outer = level_enter(g);
	loop.i = read_variable(g, loop.counter);
	return loop;
}

void loop_end_rolled(Gen *g, Loop *loop)
{
	static const char name[] = "llvm.loop.unroll.disable";
	LLVMBasicBlockRef body = LLVMGetInsertBlock(g->b);
	loop_end(g, loop);
	LLVMMetadataRef own = LLVMTemporaryMDNode(g->context, NULL, 0);
	LLVMMetadataRef off = LLVMMDStringInContext2(g->context, name, strlen(name));
	LLVMMetadataRef list[] = {own, LLVMMDNodeInContext2(g->context, &off, 1)};
	LLVMMetadataRef all = LLVMMDNodeInContext2(g->context, list, COUNT(list));
	LLVMMetadataReplaceAllUsesWith(own, all); // the first operand of a loop's node is itself
	LLVMSetMetadata(LLVMGetBasicBlockTerminator(body),
	                LLVMGetMDKindIDInContext(g->context, "llvm.loop", 9),
	                LLVMMetadataAsValue(g->context, all));
}

// head: counter < to ? body : exit, entered from the outer level's end.
void loop_end(Gen *g, Loop *loop)
{
	LLVMBasicBlockRef head = new_block(g), exit = new_block(g);
	Value step = LLVMConstInt(LLVMTypeOf(loop->i), (uint64_t)loop->step, 1);
	Value next = LLVMBuildAdd(g->b, loop->i, step, "");
	set_variable(g, loop->counter, next);
	LLVMBuildBr(g->b, head);
	Level *inner = level_go(g, loop->outer);
	LLVMBuildBr(g->b, head);
	LLVMPositionBuilderAtEnd(g->b, head);
	Value i = read_variable(g, loop->counter);
	Value more = LLVMBuildICmp(g->b, LLVMIntSLT, i, loop->to, "");
	LLVMBuildCondBr(g->b, more, inner->first, exit);
	LLVMPositionBuilderAtEnd(g->b, exit);
}

Loop when_begin(Gen *g, Value condition)
{
	Loop once = {.to = condition};
	once.outer = level_enter(g);
	return once;
}

void when_end(Gen *g, Loop *once)
{
	LLVMBasicBlockRef exit = new_block(g);
	LLVMBuildBr(g->b, exit);
	Level *inner = level_go(g, once->outer);
	LLVMBuildCondBr(g->b, once->to, inner->first, exit);
	LLVMPositionBuilderAtEnd(g->b, exit);
}

// ---- several steps at once ------------------------------------------------------------

static Index step_index(Gen *g, const Range *s, Value i, int64_t beyond)
{
	g->level->lanes |= s->lanes;
	return s->lanes ? lane_index(g, i, s->count - beyond, 1, NULL)
	                : uniform_index(g, i, s->count - beyond, 1);
}

void range_loop(Gen *g, const Range *s, LaneBody *body, void *context)
{
	int64_t together = MAX(1, MIN(s->together, s->count / s->step)),
	        beyond = (together - 1) * s->step;
	// Equal constants are one value.
	bool exact = s->from == number(g, 0) && s->to == number(g, s->count);
	int64_t multiple = exact ? s->count : s->multiple;
	Value from = s->own ? sum_of(g, s->from, s->own) : s->from;
	if (together > 1) {
		Value end = LLVMBuildSub(g->b, s->to, number(g, beyond), "");
		Loop loop = loop_begin(g, from, end, together * s->step);
		Index first = step_index(g, s, loop.i, beyond);
		Late late = {.level = g->level}, *outer = g->late;
		g->late = &late;
		for (int64_t k = 0; k < together; k++) {
			Index unit = shift_index(first, k * s->step);
			body(g, 1, &unit, context);
		}
		loads_ahead(g);
		store_late(g);
		g->late = outer;
		(s->rolled ? loop_end_rolled : loop_end)(g, &loop);
		if (multiple && multiple % (together * s->step) == 0)
			return;
		from = read_variable(g, loop.counter);
	}
	Loop rest = loop_begin(g, from, s->to, s->step);
	Index unit = step_index(g, s, rest.i, 0);
	body(g, 1, &unit, context);
	(s->rolled ? loop_end_rolled : loop_end)(g, &rest);
}

// ---- lanes ----------------------------------------------------------------------------

Value first_lanes(Gen *g, int64_t count)
{
	Value lane[64];
	for (int l = 0; l < g->width; l++)
		lane[l] = LLVMConstInt(g->i1, l < count, 0);
	return LLVMConstVector(lane, (unsigned)g->width);
}

// Writes the body for elements [from, count), fewer than two iterations, all vectors side by side.
static void lane_rest(Gen *g, int64_t from, int64_t count, LaneBody *body, void *context)
{
	Index unit[UNITS];
	int n = 0, width = g->width;
	for (int64_t at = from; at < count; at += width) {
		int64_t here = MIN(width, count - at);
		Value mask = here < width ? first_lanes(g, here) : NULL;
		unit[n++] = shift_index(lane_index(g, number(g, 0), here, 0, mask), at);
	}
	body(g, n, unit, context);
}

void vector_loop(Gen *g, Value from, Value to, int64_t count, int unroll, LaneBody *body,
                 void *context)
{
	int64_t step = (int64_t)g->width * unroll, full = count / step * step;
	bool whole =
	    from == number(g, 0) && to == number(g, count); // equal constants are one value
	if (whole && count < 2 * step) {
		Level *outer = level_enter(g);
		lane_rest(g, 0, count, body, context);
		Level *inner = level_go(g, outer);
		LLVMBuildBr(g->b, inner->first);
		LLVMPositionBuilderAtEnd(g->b, inner->open);
		return;
	}
	if (full) {
		Value end = full == count ? to : least(g, to, number(g, full));
		Loop loop = loop_begin(g, from, end, step);
		Index unit[UNITS];
		unit[0] = lane_index(g, loop.i, count - step + g->width, g->width, NULL);
		for (int u = 1; u < unroll; u++)
			unit[u] = shift_index(unit[0], (int64_t)u * g->width);
		body(g, unroll, unit, context);
		loop_end(g, &loop);
	}
	if (full == count)
		return;
	Loop once = loop_begin(g, number(g, full), to, step);
	lane_rest(g, full, count, body, context);
	loop_end(g, &once);
}

void single_end(Gen *g, Loop *single)
{
	if (single->outer)
		loop_end(g, single);
}
