// index.c: computes indices as sums of variables.
// (i * 768 + j) / 768 is simplified to i, and the quotient and remainder of one variable to that
// variable. An index that cannot be simplified becomes a new variable.
#include "index.h"
#include <string.h>

Vars *vars_new(Arena *arena)
{
	Vars *w = NEW(arena, Vars);
	w->arena = arena;
	w->split = table_new(arena);
	return w;
}

Index constant_index(int64_t constant)
{
	return (Index){.constant = constant};
}

Index new_variable(Vars *w, Var var)
{
	if (var.extent <= 1 && var.kind != V_given)
		return constant_index(0);
	PUSH(w->arena, w->list, take_copy(w->arena, &var, sizeof var));
	return (Index){.n = 1, .term = {{w->list.count - 1, 1}}};
}

Index some_index(Vars *w, int64_t extent)
{
	return new_variable(w, (Var){.extent = extent, .align = 1});
}

static void drop_term(Index *x, int t)
{
	memmove(&x->term[t], &x->term[t + 1], sizeof *x->term * (size_t)(--x->n - t));
}

// Replaces too many terms by one variable.
static void collapse_terms(Vars *w, Index *x)
{
	Index of = *x;
	of.constant = 0;
	int64_t low, high, least = 0;
	index_range(w, &of, &low, &high);
	if (low < 0) {
		least = -low;
		of.constant = least;
	}
	Index sum =
	    new_variable(w, (Var){.kind = V_sum, .of = of, .extent = high + least + 1, .align = 1});
	sum.constant = x->constant - least;
	*x = sum;
}

static void add_term(Vars *w, Index *x, int var, int64_t coef)
{
	int t = 0;
	while (t < x->n && x->term[t].var != var)
		t++;
	if (t < x->n) {
		x->term[t].coef += coef;
		if (!x->term[t].coef)
			drop_term(x, t);
		return;
	}
	if (!coef)
		return;
	if (x->n == TERMS)
		collapse_terms(w, x);
	for (t = x->n++; t > 0 && x->term[t - 1].var > var; t--)
		x->term[t] = x->term[t - 1];
	x->term[t] = (struct Term){var, coef};
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

// Simplifies (y / s) c s + (y % s) c to y c.
static bool join_terms(Vars *w, Index *x)
{
	for (int q = 0; q < x->n; q++)
		for (int r = 0; r < x->n; r++) {
			const Var *div = w->list.at[x->term[q].var],
			          *mod = w->list.at[x->term[r].var];
			int64_t coef = x->term[r].coef, y[INDEX_WORDS], z[INDEX_WORDS];
			if (div->kind != V_div || mod->kind != V_mod || div->by != mod->by ||
			    x->term[q].coef != coef * div->by)
				continue;
			int n = index_words(&div->of, y);
			if (n != index_words(&mod->of, z) || memcmp(y, z, sizeof *y * (size_t)n))
				continue;
			Index of = div->of;
			drop_term(x, MAX(q, r));
			drop_term(x, MIN(q, r));
			*x = add_index(w, x, &of, coef);
			return true;
		}
	return false;
}

Index add_index(Vars *w, const Index *a, const Index *b, int64_t times)
{
	Index x = *a;
	x.constant += b->constant * times;
	for (int t = 0; t < b->n; t++)
		add_term(w, &x, b->term[t].var, b->term[t].coef * times);
	while (join_terms(w, &x))
		;
	return x;
}

Index shift_index(Index x, int64_t by)
{
	x.constant += by;
	return x;
}

void index_range(const Vars *w, const Index *x, int64_t *low, int64_t *high)
{
	*low = *high = x->constant;
	for (int t = 0; t < x->n; t++) {
		int64_t most = x->term[t].coef * (w->list.at[x->term[t].var]->extent - 1);
		*(most < 0 ? low : high) += most;
	}
}

bool index_fits(const Vars *w, const Index *x, int64_t extent)
{
	int64_t low, high;
	index_range(w, x, &low, &high);
	return low >= 0 && high < extent;
}

int64_t index_align(const Vars *w, const Index *x)
{
	int64_t align = x->constant;
	for (int t = 0; t < x->n; t++)
		align = common_divisor(align, x->term[t].coef * w->list.at[x->term[t].var]->align);
	return align < 0 ? -align : align;
}

typedef struct Split { // x / by and x % by
	Index quotient, rest;
} Split;

// Returns variables for the quotient and the remainder of a sum that cannot be divided, created
// once.
static const Split *split_sum(Vars *w, const Index *x, int64_t by)
{
	int64_t low, high, key[1 + INDEX_WORDS] = {by};
	int n = 1 + index_words(x, key + 1);
	uint64_t *cell = table_cell(w->split, key, sizeof *key * (size_t)n);
	Split *s = (Split *)(uintptr_t)*cell;
	if (s)
		return s;
	int64_t align = index_align(w, x);
	Var div = {.kind = V_div, .of = *x, .by = by}, mod = {.kind = V_mod, .of = *x, .by = by};
	index_range(w, x, &low, &high);
	div.extent = high / by + 1;
	div.align = align % by == 0 && align ? align / by : 1;
	mod.extent = MIN(by, high + 1);
	mod.align = common_divisor(align, by);
	s = NEW(w->arena, Split);
	s->quotient = new_variable(w, div);
	s->rest = new_variable(w, mod);
	*cell = (uint64_t)(uintptr_t)s;
	return s;
}

// Terms divisible by `by` go to the quotient; the remainder is in [0, by), or code divides it.
void split_index(Vars *w, const Index *x, int64_t by, Index *quotient, Index *rest)
{
	int64_t floor = x->constant / by - (x->constant % by < 0);
	Index q = constant_index(floor), r = constant_index(x->constant - floor * by);
	for (int t = 0; t < x->n; t++)
		if (x->term[t].coef % by == 0)
			add_term(w, &q, x->term[t].var, x->term[t].coef / by);
		else
			add_term(w, &r, x->term[t].var, x->term[t].coef);
	int64_t low, high;
	index_range(w, &r, &low, &high);
	if (low < 0) {
		int64_t shift = (-low + by - 1) / by;
		q.constant -= shift;
		r.constant += shift * by;
		index_range(w, &r, &low, &high);
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
		add_term(w, &small, r.term[t].var, r.term[t].coef / common);
	const Split *s = split_sum(w, &small, by / common);
	Index left = constant_index(r.constant % common);
	*quotient = add_index(w, &q, &s->quotient, 1);
	*rest = add_index(w, &left, &s->rest, common);
}

void unravel(Vars *w, const Index *linear, const Shape *shape, Index *idx)
{
	Index left = *linear;
	for (int a = shape->rank - 1; a > 0; a--) {
		Index quotient;
		split_index(w, &left, shape->dim[a], &quotient, &idx[a]);
		left = quotient;
	}
	if (shape->rank)
		idx[0] = left;
}

Index ravel(Vars *w, const Shape *shape, const Index *idx)
{
	int64_t stride[RANK];
	row_strides(shape, stride);
	Index x = constant_index(0);
	for (int a = 0; a < shape->rank; a++)
		if (shape->dim[a] > 1)
			x = add_index(w, &x, &idx[a], stride[a]);
	return x;
}
