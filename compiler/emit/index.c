// index.c: emits indices, each variable at the level where it is known.
// The code of a variable is written when it is first used.
#include "gen.h"

// Returns the level of the innermost variable, or `level` if that is deeper.
static Level *deepest_level(Gen *g, int n, const Index *idx, Level *level)
{
	for (int a = 0; a < n; a++)
		for (int t = 0; t < idx[a].n; t++) {
			Level *its = code_of(g, idx[a].term[t].var)->level;
			if (its->depth > level->depth)
				level = its;
		}
	return level;
}

struct Code *code_of(Gen *g, int var)
{
	Var *v = g->vars->list.at[var];
	if (!v->code) {
		v->code = NEW(g->arena, struct Code);
		v->code->level = deepest_level(g, 1, &v->of, g->ground);
	}
	return v->code;
}

static Index given_index(Gen *g, int64_t extent, int64_t align, struct Code code)
{
	code.level = g->level;
	code.ready = true;
	return new_variable(g->vars, (Var){.extent = extent,
	                                   .align = align,
	                                   .code = take_copy(g->arena, &code, sizeof code)});
}

Index uniform_index(Gen *g, Value base, int64_t extent, int64_t align)
{
	return given_index(g, extent, align, (struct Code){.base = base});
}

// On a GPU every thread has its own base, and no lanes.
Index lane_index(Gen *g, Value base, int64_t extent, int64_t align, Value mask)
{
	g->level->lanes = true;
	bool lanes = g->width > 1;
	return given_index(g, extent, lanes ? align : 1,
	                   (struct Code){.base = base, .lane = lanes, .mask = mask});
}

Index lanes_within(Gen *g, Value base, int64_t count, int64_t each)
{
	Value mask = NULL;
	if (count % each) {
		Value left = LLVMBuildSub(g->b, number(g, count), base, "");
		mask = LLVMBuildICmp(g->b, LLVMIntSLT, lane_numbers(g->i64, g->width, 0, 1),
		                     splat(g, left), "");
	}
	return lane_index(g, base, count, g->width, mask);
}

Index vector_index(Gen *g, Value vector, int64_t extent, Value mask)
{
	return given_index(g, extent, 1, (struct Code){.vector = vector, .mask = mask});
}

Level *index_level(Gen *g, int n, const Index *idx)
{
	return deepest_level(g, n, idx, g->floor);
}

// ---- numbers --------------------------------------------------------------------------

Value number(Gen *g, int64_t n)
{
	return LLVMConstInt(g->i64, (unsigned long long)n, 1);
}

static bool is_number(Value v, int64_t n)
{
	return LLVMIsAConstantInt(v) && LLVMConstIntGetSExtValue(v) == n;
}

static Value plus(Gen *g, Value a, Value b)
{
	if (!a || is_number(a, 0))
		return b;
	return is_number(b, 0) ? a : LLVMBuildAdd(g->b, a, b, "");
}

static Value scaled(Gen *g, Value a, int64_t n)
{
	if (n == 1)
		return a;
	return LLVMBuildMul(g->b, a, int_like(a, n), "");
}

static Value as_vector(Gen *g, const Lanes *x, Elem type)
{
	Value v = splat(g, cast_value(g, x->base, E_i64, type));
	if (x->step)
		v = plus(g, v, lane_numbers(elem_type(g, type), g->width, 0, x->step));
	return x->vector ? plus(g, v, cast_value(g, x->vector, E_i64, type)) : v;
}

// Divides positions, in 32 bits if they suffice: vectors of 64 bits, and GPUs, lack the
// multiplication that replaces a division.
static Value divide(Gen *g, Value x, int64_t by, bool rest, int64_t most)
{
	bool lacks = is_vector(x) || g->target->machine->threads > 1;
	bool narrow = lacks && most < INT32_MAX && by < INT32_MAX;
	if (narrow)
		x = LLVMBuildTrunc(g->b, x, like(g->i32, x), "");
	Value d = int_like(x, by);
	Value q = rest ? LLVMBuildURem(g->b, x, d, "") : LLVMBuildUDiv(g->b, x, d, "");
	return narrow ? LLVMBuildZExt(g->b, q, like(g->i64, q), "") : q;
}

// Writes the code of a variable at its own level, unless that is done.
static const struct Code *ready(Gen *g, int var)
{
	struct Code *c = code_of(g, var);
	if (c->ready)
		return c;
	c->ready = true;
	const Var *v = g->vars->list.at[var];
	Lanes x = index_value(g, &v->of);
	int64_t low, high, width = g->width;
	index_range(g->vars, &v->of, &low, &high);
	Level *was = level_go(g, c->level);
	bool rest = v->kind == V_mod;
	c->mask = x.mask;
	if (v->kind == V_sum) {
		c->base = x.step || x.vector ? NULL : x.base;
		c->vector = c->base ? NULL : as_vector(g, &x, E_i64);
	} else if (!x.vector && !x.step) {
		c->base = divide(g, x.base, v->by, rest, high);
	} else if (!x.vector && x.step == 1 && index_align(g->vars, &v->of) % width == 0 &&
	           v->by % width == 0) {
		c->base = divide(g, x.base, v->by, rest, high);
		c->lane = rest;
	} else {
		c->vector = divide(g, as_vector(g, &x, E_i64), v->by, rest, high + width);
	}
	level_go(g, was);
	return c;
}

// Terms are added from the outermost level to the innermost, each at the level of its variable.
Lanes index_value(Gen *g, const Index *idx)
{
	Lanes x = {.base = NULL};
	bool done[TERMS] = {false};
	Level *was = g->level;
	for (int k = 0; k < idx->n; k++) {
		int next = -1;
		for (int t = 0; t < idx->n; t++)
			if (!done[t] &&
			    (next < 0 || code_of(g, idx->term[t].var)->level->depth <
			                     code_of(g, idx->term[next].var)->level->depth))
				next = t;
		done[next] = true;
		const struct Code *c = ready(g, idx->term[next].var);
		int64_t coef = idx->term[next].coef;
		level_go(g, c->level);
		if (c->base)
			x.base = plus(g, x.base, scaled(g, c->base, coef));
		x.step += c->lane * coef;
		if (c->vector)
			x.vector = plus(g, x.vector, scaled(g, c->vector, coef));
		if (c->mask && c->mask != x.mask)
			x.mask = x.mask ? LLVMBuildAnd(g->b, x.mask, c->mask, "") : c->mask;
	}
	if (!x.base || idx->constant)
		x.base = plus(g, x.base, number(g, idx->constant));
	level_go(g, was);
	return x;
}

Value index_number(Gen *g, const Index *idx, Elem type)
{
	Level *was = level_go(g, index_level(g, 1, idx));
	Lanes x = index_value(g, idx);
	bool differs = x.step || x.vector;
	Value v = differs ? as_vector(g, &x, type) : cast_value(g, x.base, E_i64, type);
	level_go(g, was);
	return v;
}

Value index_i64(Gen *g, const Index *idx)
{
	return index_number(g, idx, E_i64);
}
