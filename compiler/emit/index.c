// index.c: where an element lies, as sums of variables: the algebra of reshapes, and its code.
// Takes gen.h. Gives indices that stay sums where they can: i * 768 + j divided by 768 is i again,
// and a quotient and rest of one variable join to that variable. What cannot be simplified becomes
// a new variable, whose code is written only when it is needed.
#include "gen.h"
#include <string.h>

Index constant_index(int64_t constant)
{
	return (Index){.constant = constant};
}

static Index new_variable(Gen *g, Var var)
{
	Var *v = NEW(g->arena, Var);
	*v = var;
	if (!v->level)
		v->level = g->level;
	PUSH(g->arena, g->vars, v);
	if (v->extent <= 1 && v->kind != V_given)
		return constant_index(0);
	return (Index){.n = 1, .term = {{g->vars.count - 1, 1}}};
}

Index uniform_index(Gen *g, Value base, int64_t extent, int64_t align)
{
	return new_variable(g,
	                    (Var){.extent = extent, .align = align, .ready = true, .base = base});
}

// On a GPU every thread has its own base, and no lanes.
Index lane_index(Gen *g, Value base, int64_t extent, int64_t align, Value mask)
{
	g->level->lanes = true;
	bool lanes = g->target->width > 1;
	return new_variable(g, (Var){.extent = extent,
	                             .align = lanes ? align : 1,
	                             .ready = true,
	                             .base = base,
	                             .lane = lanes,
	                             .mask = mask});
}

Index vector_index(Gen *g, Value vector, int64_t extent, Value mask)
{
	return new_variable(
	    g, (Var){.extent = extent, .align = 1, .ready = true, .vector = vector, .mask = mask});
}

// The level of the innermost variable, or `level`.
static Level *deepest(Gen *g, int n, const Index *idx, Level *level)
{
	for (int a = 0; a < n; a++)
		for (int t = 0; t < idx[a].n; t++) {
			Level *its = g->vars.at[idx[a].term[t].var]->level;
			if (its->depth > level->depth)
				level = its;
		}
	return level;
}

// ---- algebra --------------------------------------------------------------------------

static int find_term(const Index *x, int var)
{
	for (int t = 0; t < x->n; t++)
		if (x->term[t].var == var)
			return t;
	return -1;
}

static void drop_term(Index *x, int t)
{
	memmove(&x->term[t], &x->term[t + 1], sizeof *x->term * (size_t)(--x->n - t));
}

// Too many terms become one variable.
static void gather_terms(Gen *g, Index *x)
{
	Index of = *x;
	of.constant = 0;
	int64_t low, high, least = 0;
	index_range(g, &of, &low, &high);
	if (low < 0) {
		least = -low;
		of.constant = least;
	}
	Index sum = new_variable(g, (Var){.kind = V_sum,
	                                  .of = of,
	                                  .extent = high + least + 1,
	                                  .align = 1,
	                                  .level = deepest(g, 1, &of, g->ground)});
	sum.constant = x->constant - least;
	*x = sum;
}

static void add_term(Gen *g, Index *x, int var, int64_t coef)
{
	int t = find_term(x, var);
	if (t >= 0) {
		x->term[t].coef += coef;
		if (!x->term[t].coef)
			drop_term(x, t);
		return;
	}
	if (!coef)
		return;
	if (x->n == TERMS)
		gather_terms(g, x);
	for (t = x->n++; t > 0 && x->term[t - 1].var > var; t--)
		x->term[t] = x->term[t - 1];
	x->term[t] = (struct Term){var, coef};
}

static bool same_index(const Index *a, const Index *b)
{
	if (a->constant != b->constant || a->n != b->n)
		return false;
	for (int t = 0; t < a->n; t++)
		if (a->term[t].var != b->term[t].var || a->term[t].coef != b->term[t].coef)
			return false;
	return true;
}

int index_words(const Index *x, int64_t *key)
{
	int n = 0;
	key[n++] = x->constant;
	key[n++] = x->n;
	for (int t = 0; t < x->n; t++) {
		key[n++] = x->term[t].var;
		key[n++] = x->term[t].coef;
	}
	return n;
}

// (y / s) c s + (y % s) c is y c.
static bool join_terms(Gen *g, Index *x)
{
	for (int q = 0; q < x->n; q++)
		for (int r = 0; r < x->n; r++) {
			const Var *div = g->vars.at[x->term[q].var],
			          *mod = g->vars.at[x->term[r].var];
			int64_t coef = x->term[r].coef;
			if (div->kind != V_div || mod->kind != V_mod || div->by != mod->by ||
			    x->term[q].coef != coef * div->by || !same_index(&div->of, &mod->of))
				continue;
			Index of = div->of;
			drop_term(x, MAX(q, r));
			drop_term(x, MIN(q, r));
			*x = add_index(g, x, &of, coef);
			return true;
		}
	return false;
}

Index add_index(Gen *g, const Index *a, const Index *b, int64_t times)
{
	Index x = *a;
	x.constant += b->constant * times;
	for (int t = 0; t < b->n; t++)
		add_term(g, &x, b->term[t].var, b->term[t].coef * times);
	while (join_terms(g, &x))
		;
	return x;
}

Index shift_index(Index x, int64_t by)
{
	x.constant += by;
	return x;
}

void index_range(Gen *g, const Index *x, int64_t *low, int64_t *high)
{
	*low = *high = x->constant;
	for (int t = 0; t < x->n; t++) {
		int64_t most = x->term[t].coef * (g->vars.at[x->term[t].var]->extent - 1);
		*(most < 0 ? low : high) += most;
	}
}

int64_t index_align(Gen *g, const Index *x)
{
	int64_t align = x->constant;
	for (int t = 0; t < x->n; t++)
		align = common_divisor(align, x->term[t].coef * g->vars.at[x->term[t].var]->align);
	return align < 0 ? -align : align;
}

typedef struct Split {
	Index quotient, rest;
} Split;

static Split new_split(Gen *g, const Index *x, int64_t by)
{
	int64_t low, high, align = index_align(g, x);
	index_range(g, x, &low, &high);
	Level *level = deepest(g, 1, x, g->ground);
	Var quotient = {.kind = V_div, .of = *x, .by = by, .extent = high / by + 1, .level = level};
	Var rest = {.kind = V_mod, .of = *x, .by = by, .extent = MIN(by, high + 1), .level = level};
	quotient.align = align % by == 0 && align ? align / by : 1;
	rest.align = common_divisor(align, by);
	Split s = {.quotient = new_variable(g, quotient)};
	s.rest = new_variable(g, rest);
	return s;
}

// x / by and x % by where neither is a sum: variables, made once.
static Split split_variables(Gen *g, const Index *x, int64_t by)
{
	int64_t key[1 + INDEX_WORDS] = {by};
	int n = 1 + index_words(x, key + 1);
	uint64_t *cell = table_cell(g->split, key, sizeof *key * (size_t)n);
	if (!*cell) {
		Split *s = NEW(g->arena, Split);
		*cell = (uint64_t)(uintptr_t)s;
		*s = new_split(g, x, by);
		return *s;
	}
	return *(Split *)(uintptr_t)*cell;
}

static int64_t floor_div(int64_t a, int64_t b)
{
	return a / b - (a % b < 0);
}

// The part of x that `by` divides goes to the quotient; what remains lies in [0, by), or is divided
// by code.
void split_index(Gen *g, const Index *x, int64_t by, Index *quotient, Index *rest)
{
	Index q = constant_index(floor_div(x->constant, by)), r = constant_index(0);
	r.constant = x->constant - q.constant * by;
	for (int t = 0; t < x->n; t++)
		if (x->term[t].coef % by == 0)
			add_term(g, &q, x->term[t].var, x->term[t].coef / by);
		else
			add_term(g, &r, x->term[t].var, x->term[t].coef);
	int64_t low, high;
	index_range(g, &r, &low, &high);
	if (low < 0) {
		int64_t shift = ceil_div(-low, by);
		q.constant -= shift;
		r.constant += shift * by;
		index_range(g, &r, &low, &high);
	}
	*quotient = q;
	*rest = r;
	if (high < by)
		return;
	int64_t common = by;
	for (int t = 0; t < r.n; t++)
		common = common_divisor(r.term[t].coef, common);
	Index small = constant_index(r.constant / common);
	for (int t = 0; t < r.n; t++)
		add_term(g, &small, r.term[t].var, r.term[t].coef / common);
	Split s = split_variables(g, &small, by / common);
	Index left = constant_index(r.constant % common);
	*quotient = add_index(g, &q, &s.quotient, 1);
	*rest = add_index(g, &left, &s.rest, common);
}

void unravel(Gen *g, const Index *linear, const Shape *shape, Index *idx)
{
	Index left = *linear;
	for (int a = shape->rank - 1; a > 0; a--) {
		Index quotient;
		split_index(g, &left, shape->dim[a], &quotient, &idx[a]);
		left = quotient;
	}
	if (shape->rank)
		idx[0] = left;
}

Index ravel(Gen *g, const Shape *shape, const Index *idx)
{
	int64_t stride[RANK];
	row_strides(shape, stride);
	Index x = constant_index(0);
	for (int a = 0; a < shape->rank; a++)
		if (shape->dim[a] > 1)
			x = add_index(g, &x, &idx[a], stride[a]);
	return x;
}

Level *index_level(Gen *g, int n, const Index *idx)
{
	return deepest(g, n, idx, g->floor);
}

// ---- code -----------------------------------------------------------------------------

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
	Value by = is_vector(a) ? splat(g, number(g, n)) : number(g, n);
	return LLVMBuildMul(g->b, a, by, "");
}

static Value as_vector(Gen *g, const Lanes *x)
{
	Value v = splat(g, x->base);
	if (x->step)
		v = plus(g, v, lane_numbers(g->i64, g->target->width, 0, x->step));
	return x->vector ? plus(g, v, x->vector) : v;
}

// Division of positions: 32 bits where they suffice, for vectors of 64 have no multiplication to
// spare.
static Value divide(Gen *g, Value x, int64_t by, bool rest, int64_t most)
{
	bool narrow = is_vector(x) && most < INT32_MAX && by < INT32_MAX;
	Value d = is_vector(x) ? splat(g, number(g, by)) : number(g, by);
	if (narrow) {
		x = LLVMBuildTrunc(g->b, x, like(g->i32, x), "");
		d = LLVMConstTrunc(d, like(g->i32, x));
	}
	Value q = rest ? LLVMBuildURem(g->b, x, d, "") : LLVMBuildUDiv(g->b, x, d, "");
	return narrow ? LLVMBuildZExt(g->b, q, like(g->i64, q), "") : q;
}

// Writes the code of a variable, at its own level.
static Var *ready(Gen *g, int n)
{
	Var *v = g->vars.at[n];
	if (v->ready)
		return v;
	v->ready = true;
	Lanes x = index_value(g, &v->of);
	int64_t low, high, width = g->target->width;
	index_range(g, &v->of, &low, &high);
	Level *was = level_go(g, v->level);
	bool rest = v->kind == V_mod;
	v->mask = x.mask;
	if (v->kind == V_sum) {
		v->base = x.step || x.vector ? NULL : x.base;
		v->vector = v->base ? NULL : as_vector(g, &x);
	} else if (!x.vector && !x.step) {
		v->base = divide(g, x.base, v->by, rest, high);
	} else if (!x.vector && x.step == 1 && index_align(g, &v->of) % width == 0 &&
	           v->by % width == 0) {
		v->base = divide(g, x.base, v->by, rest, high);
		v->lane = rest;
	} else {
		v->vector = divide(g, as_vector(g, &x), v->by, rest, high + width);
	}
	level_go(g, was);
	return v;
}

static void add_lanes(Gen *g, Lanes *x, const Var *v, int64_t coef)
{
	if (v->base)
		x->base = plus(g, x->base, scaled(g, v->base, coef));
	x->step += v->lane * coef;
	if (v->vector)
		x->vector = plus(g, x->vector, scaled(g, v->vector, coef));
	if (v->mask && v->mask != x->mask)
		x->mask = x->mask ? LLVMBuildAnd(g->b, x->mask, v->mask, "") : v->mask;
}

// Terms are added from the outside in, each where its variable lives.
Lanes index_value(Gen *g, const Index *idx)
{
	Lanes x = {.base = NULL};
	bool done[TERMS] = {false};
	Level *was = g->level;
	for (int k = 0; k < idx->n; k++) {
		int next = -1;
		for (int t = 0; t < idx->n; t++)
			if (!done[t] &&
			    (next < 0 || g->vars.at[idx->term[t].var]->level->depth <
			                     g->vars.at[idx->term[next].var]->level->depth))
				next = t;
		done[next] = true;
		Var *v = ready(g, idx->term[next].var);
		level_go(g, v->level);
		add_lanes(g, &x, v, idx->term[next].coef);
	}
	if (!x.base || idx->constant)
		x.base = plus(g, x.base, number(g, idx->constant));
	level_go(g, was);
	return x;
}

Value index_i64(Gen *g, const Index *idx)
{
	Level *was = level_go(g, index_level(g, 1, idx));
	Lanes x = index_value(g, idx);
	Value v = x.step || x.vector ? as_vector(g, &x) : x.base;
	level_go(g, was);
	return v;
}
