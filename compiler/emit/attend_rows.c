// attend_rows.c: emits the softmax of attention, forward and backward: rows of a strip of scores.
// Lanes run along keys. Forward, the sums over earlier blocks of keys are rescaled when a larger
// score comes (online softmax). Backward, probabilities are computed again from the statistics of
// their row. Products of bf16 leave scores in f32 without their factor, and read
// probabilities, and slopes, as rows of bf16.
#include "attend_tile.h"
#include <math.h>

enum { SIDE_BY_SIDE = 4 }; // vectors of keys

// Returns x if it is larger than y, else y: of a row with a NaN, the exponentials are NaN as well.
static Value larger(Gen *g, Value x, Value y)
{
	return LLVMBuildSelect(g->b, LLVMBuildFCmp(g->b, LLVMRealOGT, x, y, ""), x, y, "");
}

// ---- rows of scores -------------------------------------------------------------------

typedef struct Row {
	Index query;
	Value line;    // its first element, in blocks of scores
	Value half;    // the same, in rows of bf16 of a strip
	Value visible; // keys of the block that it sees
} Row;

Value shift_of(const Attend *a)
{
	return number(a->g, a->p.keys - a->p.queries);
}

Value visible_to(const Attend *a, Value query)
{
	Gen *g = a->g;
	if (!a->causal)
		return a->keys;
	Value end = sum_of(g, sum_of(g, query, shift_of(a)), number(g, 1));
	return clamp_to(g, minus(g, end, a->first_key), a->keys);
}

static Row row_at(const Attend *a, Value in_strip, Value first_line)
{
	Gen *g = a->g;
	Value query = sum_of(g, a->first, in_strip);
	Row r = {.query = row_index_of(a, query, a->p.queries), .visible = visible_to(a, query)};
	r.line = times(g, sum_of(g, first_line, in_strip), a->p.score_line);
	r.half = times(g, in_strip, attend_half_line(&a->p, a->s->depth));
	return r;
}

// Returns what is reduced.
typedef Value KeyBody(const Attend *, const Row *, Value at, Value mask, void *context);

typedef struct Keys { // what is done to the keys of a row
	KeyBody *body;
	void *context;
	Op fold; // of what the body returns: O_amax, O_sum; 0: of nothing
} Keys;

static Value fold_step(Gen *g, Op fold, Value x, Value so_far)
{
	return fold == O_amax ? larger(g, x, so_far) : LLVMBuildFAdd(g->b, x, so_far, "");
}

// Runs the body for vectors of keys [from, to). Returns the reduction of this and `so_far`.
static Value fold_keys(const Attend *a, const Row *r, const Keys *k, Value from, Value to,
                       bool masked, Value so_far)
{
	Gen *g = a->g;
	Value sum = k->fold ? variable(g, so_far) : NULL;
	Loop loop = loop_begin(g, from, to, g->width);
	Value mask = NULL;
	if (masked) {
		Value left = minus(g, r->visible, loop.i);
		Value lanes = g->width > 1 ? lane_numbers(g->i64, g->width, 0, 1) : number(g, 0);
		mask = LLVMBuildICmp(g->b, LLVMIntSLT, lanes, splat(g, left), "");
	}
	Value x = k->body(a, r, loop.i, mask, k->context);
	if (sum)
		set_variable(g, sum, fold_step(g, k->fold, x, read_variable(g, sum)));
	loop_end(g, &loop);
	return sum ? read_variable(g, sum) : NULL;
}

// Runs the body for vectors of keys [0, end), where a mask is NULL if the row sees all of them:
// first for several side by side, whose instructions take turns, since each waits for the one
// before it. Returns what is reduced, in each lane.
static Value each_key(const Attend *a, const Row *r, Value end, const Keys *k)
{
	Gen *g = a->g;
	int width = g->width, wide = width > 1 ? width * SIDE_BY_SIDE : width;
	double start = k->fold == O_amax ? -INFINITY : 0;
	Value most = LLVMBuildAnd(g->b, r->visible, number(g, -wide), "");
	Value full = LLVMBuildAnd(g->b, r->visible, number(g, -width), "");
	g->width = wide;
	Value none = real_like(LLVMConstNull(attend_vector(a)), start);
	Value parts = fold_keys(a, r, k, number(g, 0), most, false, none);
	g->width = width;
	Value x = parts ? part_of(g, parts, 0, width) : NULL;
	for (int l = width; parts && l < wide; l += width)
		x = fold_step(g, k->fold, part_of(g, parts, l, width), x);
	x = fold_keys(a, r, k, most, full, false, x);
	if (!a->causal && a->p.keys % (a->p.halves ? a->p.panel : width) == 0)
		return x;
	return fold_keys(a, r, k, full, end, true, x);
}

// True if scores are multiplied by their factor only when the largest of a row is known, which it
// does not change.
static bool scales_late(const Attend *a)
{
	return a->p.halves && a->v->attr->x > 0 && !a->bias && !a->shown;
}

static Value scaled(const Attend *a, Value x)
{
	bool done = !a->p.halves || a->v->attr->x == 1;
	return done ? x : LLVMBuildFMul(a->g->b, x, real_like(x, a->v->attr->x), "");
}

// Returns e^(x - base), where x is what scores_at returned.
static Value weight_of(const Attend *a, Value x, Value base)
{
	Gen *g = a->g;
	base = splat(g, base);
	if (scales_late(a))
		x = mul_add(g, x, real_like(x, a->v->attr->x), LLVMBuildFNeg(g->b, base, ""));
	else
		x = LLVMBuildFSub(g->b, x, base, "");
	return math_exp_below(g, x);
}

static Index keys_at(const Attend *a, Value at, Value mask)
{
	return lane_index(a->g, sum_of(a->g, a->first_key, at), a->p.keys, a->g->width, mask);
}

// Returns the scores of the row at key `at` of the block: -inf where masked.
static Value scores_at(const Attend *a, const Row *r, Value at, Value mask, Value *shown)
{
	Gen *g = a->g;
	Value x = local_load(a, a->local[AT_SCORES], sum_of(g, r->line, at));
	if (!scales_late(a))
		x = scaled(a, x);
	Index keys = keys_at(a, at, mask);
	*shown = NULL;
	if (a->shown) {
		*shown = at_element(a, a->shown, &r->query, &keys);
		x = choose(g, *shown, x, real_like(x, 0));
	}
	if (a->bias)
		x = LLVMBuildFAdd(g->b, x, splat(g, at_element(a, a->bias, &r->query, &keys)), "");
	return mask ? choose(g, mask, x, real_like(x, -INFINITY)) : x;
}

// ---- forward --------------------------------------------------------------------------

static Value masked_score(const Attend *a, const Row *r, Value at, Value mask, void *context)
{
	(void)context;
	Gen *g = a->g;
	Value shown, x = scores_at(a, r, at, mask, &shown);
	if (mask || a->bias || a->shown || (a->p.halves && !scales_late(a)))
		local_store(a, x, a->local[AT_SCORES], sum_of(g, r->line, at));
	return x;
}

// Stores what products read: in place of scores, or in rows of bf16.
static void store_weights(const Attend *a, const Row *r, Value at, int part, int rows, Value x)
{
	Gen *g = a->g;
	if (a->p.halves)
		store_halves(a, x, rows == AT_WEIGHT_ROWS, rows, sum_of(g, r->half, at));
	else
		local_store(a, x, a->local[part], sum_of(g, r->line, at));
}

// Returns x times the factor of the weights.
static Value weighed(const Attend *a, const Row *r, Value at, Value mask, Value x)
{
	Gen *g = a->g;
	if (!a->factor)
		return x;
	Index keys = keys_at(a, at, mask);
	return LLVMBuildFMul(g->b, x, splat(g, at_element(a, a->factor, &r->query, &keys)), "");
}

static Value weight(const Attend *a, const Row *r, Value at, Value mask, void *context)
{
	Gen *g = a->g;
	Value *base = context, place = sum_of(g, r->line, at);
	Value x = local_load(a, a->local[AT_SCORES], place);
	x = weight_of(a, x, *base);
	store_weights(a, r, at, AT_SCORES, AT_WEIGHT_ROWS, weighed(a, r, at, mask, x));
	return x;
}

// Reduces the vectors of rows first, first + 1, .. of the strip to one vector, with a row in each
// lane.
static Value reduce_rows(const Attend *a, Op op, int64_t first)
{
	Gen *g = a->g;
	Value v[64];
	for (int64_t r = 0; r < g->width; r++)
		v[r] = first + r < a->s->height
		           ? local_load(a, a->local[AT_LANES], number(g, (first + r) * g->width))
		           : v[r - 1];
	return reduce_vectors(g, op, a->type, v);
}

// Updates the largest scores of rows first, first + 1, .. of the strip, whose statistics begin at
// `stat`.
static void update_most(const Attend *a, int64_t first, Value stat, Value again)
{
	Gen *g = a->g;
	Value none = real_like(LLVMConstNull(attend_vector(a)), -INFINITY);
	Value place = sum_of(g, stat, number(g, first)), strip = number(g, first);
	Value before = choose(g, again, local_load(a, a->local[AT_MOST], place), none);
	Value largest = reduce_rows(a, O_amax, first);
	Value most = larger(g, scales_late(a) ? scaled(a, largest) : largest, before);
	Value empty = LLVMBuildFCmp(g->b, LLVMRealOEQ, most, none, "");
	Value base = choose(g, empty, real_like(most, 0), most);
	local_store(a, most, a->local[AT_MOST], place);
	local_store(a, base, a->local[AT_BASE], strip);
	if (a->p.blocks > 1)
		local_store(a, math_exp_below(g, LLVMBuildFSub(g->b, before, base, "")),
		            a->local[AT_FADE], strip);
}

static void update_totals(const Attend *a, int64_t first, Value stat, Value again)
{
	Gen *g = a->g;
	Value place = sum_of(g, stat, number(g, first)), total = reduce_rows(a, O_sum, first);
	if (a->p.blocks > 1) {
		Value before = local_load(a, a->local[AT_TOTAL], place);
		Value fade = local_load(a, a->local[AT_FADE], number(g, first));
		before = LLVMBuildFMul(g->b, before, fade, "");
		before = choose(g, again, before, real_like(before, 0));
		total = LLVMBuildFAdd(g->b, before, total, "");
	}
	local_store(a, total, a->local[AT_TOTAL], place);
}

// Scales the sums of row `in_strip` by its factor.
static void fade_sums(const Attend *a, Value in_strip, Value sums, Value again)
{
	Gen *g = a->g;
	Loop once = when_begin(g, again);
	Value fade = local_load_one(a, a->local[AT_FADE], in_strip);
	Value row = times(g, sum_of(g, sums, in_strip), a->p.depth_line);
	Loop columns = loop_begin(g, number(g, 0), number(g, a->p.depth), g->width);
	Value at = sum_of(g, row, columns.i);
	Value x = local_load(a, a->local[AT_SUMS], at);
	local_store(a, LLVMBuildFMul(g->b, x, splat(g, fade), ""), a->local[AT_SUMS], at);
	loop_end(g, &columns);
	when_end(g, &once);
}

// Each row is reduced to a vector, and then the vectors of all rows at once: so no row waits for
// another.
void soften_strip(const Attend *a, const Ahead ahead[2], Value stat, Value sums, Value again)
{
	Gen *g = a->g;
	int64_t height = a->s->height, width = g->width;
	Value end = round_up(g, a->visible, a->p.halves ? a->p.panel : width);
	Loop rows = loop_begin(g, number(g, 0), a->rows, 1);
	Row r = row_at(a, rows.i, number(g, 0));
	Value most = each_key(a, &r, end, &(Keys){masked_score, NULL, O_amax});
	local_store(a, most, a->local[AT_LANES], times(g, rows.i, width));
	loop_end(g, &rows);
	for (int64_t first = 0; first < height; first += width)
		update_most(a, first, stat, again);
	rows = loop_begin(g, number(g, 0), a->rows, 1);
	r = row_at(a, rows.i, number(g, 0));
	Value base = local_load_one(a, a->local[AT_BASE], rows.i);
	for (int k = 0; k < 2; k++)
		prefetch_rows(a, &ahead[k], sum_of(g, a->first, rows.i));
	Value total = each_key(a, &r, end, &(Keys){weight, &base, O_sum});
	local_store(a, total, a->local[AT_LANES], times(g, rows.i, width));
	if (a->p.blocks > 1 && a->p.depth)
		fade_sums(a, rows.i, sums, again);
	loop_end(g, &rows);
	for (int64_t first = 0; first < height; first += width)
		update_totals(a, first, stat, again);
}

// ---- gradients ------------------------------------------------------------------------

// The gradient of a bias is that of the scores, also of those that are not shown, to which it is
// added. The heads of a worker add it up in memory.

// True if output o is one. *heads: how many add to an element, along each leading axis.
static bool is_bias_slope(const Attend *a, int o, Shape *heads)
{
	const Val *v = val(a->g->graph, a->g->kern->out[o]);
	if (v->op != O_attend_db)
		return false;
	*heads = a->p.lead;
	for (int k = 0; k < heads->rank; k++)
		heads->dim[k] /= v->shape.dim[k];
	return true;
}

// Returns if the head is the first of those that add to an element.
static Value is_first_head(const Attend *a, const Shape *heads)
{
	Gen *g = a->g;
	Index idx[RANK];
	Value first = LLVMConstInt(g->i1, 1, 0);
	unravel(g->vars, &a->batch, &a->p.lead, idx);
	for (int k = 0; k < heads->rank; k++) {
		Value at = index_value(g, &idx[k]).base;
		Value own = LLVMBuildURem(g->b, at, number(g, heads->dim[k]), "");
		Value none = LLVMBuildICmp(g->b, LLVMIntEQ, own, number(g, 0), "");
		first = LLVMBuildAnd(g->b, first, none, "");
	}
	return first;
}

static void bias_index(const Attend *a, const Shape *heads, const Index *row, const Index *column,
                       Index *idx)
{
	Gen *g = a->g;
	attend_index(a, row, column, idx);
	for (int k = 0; k < heads->rank; k++) {
		Value at = index_value(g, &idx[k]).base;
		Value part = LLVMBuildUDiv(g->b, at, number(g, heads->dim[k]), "");
		idx[k] = uniform_index(g, part, a->p.lead.dim[k] / heads->dim[k], 1);
	}
}

typedef struct Clear { // of a row of an output
	const Attend *a;
	int out;
	const Shape *heads;
	const Index *row;
} Clear;

static void clear_columns(Gen *g, int n, const Index *unit, void *context)
{
	const Clear *c = context;
	Index idx[RANK];
	Value zero = splat(g, real(c->a, 0));
	for (int u = 0; u < n; u++) {
		bias_index(c->a, c->heads, c->row, &unit[u], idx);
		store_out(g, c->out, idx, zero);
	}
}

void clear_bias_slopes(const Attend *a)
{
	Gen *g = a->g;
	Shape heads;
	for (int o = 0; o < g->kern->nout; o++) {
		if (!is_bias_slope(a, o, &heads))
			continue;
		Loop once = when_begin(g, is_first_head(a, &heads));
		Loop rows = loop_begin(g, number(g, 0), number(g, a->p.queries), 1);
		Index row = uniform_index(g, rows.i, a->p.queries, 1);
		g->ops->lane_loop(g, number(g, 0), number(g, a->p.keys), a->p.keys, 1,
		                  clear_columns, &(Clear){a, o, &heads, &row});
		loop_end(g, &rows);
		when_end(g, &once);
	}
}

static void add_bias_slopes(const Attend *a, const Row *r, Value at, Value mask, Value slope)
{
	Gen *g = a->g;
	Shape heads;
	Index idx[RANK];
	Index keys = keys_at(a, at, mask);
	for (int o = 0; o < g->kern->nout; o++) {
		if (!is_bias_slope(a, o, &heads))
			continue;
		bias_index(a, &heads, &r->query, &keys, idx);
		store_out(g, o, idx, LLVMBuildFAdd(g->b, load_out(g, o, idx), slope, ""));
	}
}

typedef struct Slope {
	Value most, share, delta; // share: of exp(score - most)
} Slope;

// Turns scores into probabilities, and gradients of the probabilities into those of the scores.
static Value slope_at(const Attend *a, const Row *r, Value at, Value mask, void *context)
{
	Gen *g = a->g;
	const Slope *s = context;
	Value place = sum_of(g, r->line, at), shown;
	Value x = weight_of(a, scores_at(a, r, at, mask, &shown), s->most);
	x = LLVMBuildFMul(g->b, x, splat(g, s->share), "");
	if (a->zeros) {
		Value none = LLVMBuildFCmp(g->b, LLVMRealOEQ, s->share, real(a, 0), "");
		x = choose(g, none, real_like(x, 0), x);
	}
	Value slope = weighed(a, r, at, mask, local_load(a, a->local[AT_SLOPES], place));
	slope = LLVMBuildFMul(g->b, x, LLVMBuildFSub(g->b, slope, splat(g, s->delta), ""), "");
	Value used = mask && shown ? both(g, mask, shown) : mask ? mask : shown;
	store_weights(a, r, at, AT_SCORES, AT_WEIGHT_ROWS, weighed(a, r, at, mask, x));
	add_bias_slopes(a, r, at, mask, slope);
	slope = used ? choose(g, used, slope, real_like(x, 0)) : slope;
	store_weights(a, r, at, AT_SLOPES, AT_SLOPE_ROWS, slope);
	return NULL;
}

void slope_strip(const Attend *a, const Ahead ahead[3], Value line, Value end)
{
	Gen *g = a->g;
	Loop rows = loop_begin(g, number(g, 0), a->rows, 1);
	Row r = row_at(a, rows.i, line);
	for (int k = 0; k < 3; k++)
		prefetch_rows(a, &ahead[k], sum_of(g, a->first, rows.i));
	Index zero = constant_index(0), one = constant_index(1);
	Slope s = {.most = at_element(a, a->v->in[STATS], &r.query, &zero),
	           .share = at_element(a, a->v->in[STATS], &r.query, &one),
	           .delta = at_element(a, a->v->in[DELTA], &r.query, &zero)};
	each_key(a, &r, end, &(Keys){slope_at, &s, 0});
	loop_end(g, &rows);
}
