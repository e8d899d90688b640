// attend.c: emits attention, and the gradients of its operands, as register tiles of several
// products around the softmax.
// Nothing of the size of the scores is in memory: a worker goes through blocks of keys, and
// computes a strip of rows of scores at a time. Forward, the sums over earlier blocks are rescaled
// when a larger score comes (online softmax). Backward, probabilities are computed again from the
// statistics of their row. Lanes run along keys. Future keys of a causal mask are skipped: panels
// of them, and in a product along keys, each. Invariant: sums have one order, by blocks and strips.
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
	Value visible; // keys of the block that it sees
} Row;

static Value shift_of(const Attend *a) // query i sees keys up to i + shift
{
	return number(a->g, a->p.keys - a->p.queries);
}

// How many keys of the block query i sees.
static Value visible_to(const Attend *a, Value query)
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

static Value part_of(Gen *g, Value wide, int first) // g->width lanes of it
{
	Value lane[64];
	for (int l = 0; l < g->width; l++)
		lane[l] = LLVMConstInt(g->i32, (unsigned)(first + l), 0);
	Value none = LLVMGetPoison(LLVMTypeOf(wide)),
	      mask = LLVMConstVector(lane, (unsigned)g->width);
	return LLVMBuildShuffleVector(g->b, wide, none, mask, "");
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
	Value x = parts ? part_of(g, parts, 0) : NULL;
	for (int l = width; parts && l < wide; l += width)
		x = fold_step(g, k->fold, part_of(g, parts, l), x);
	x = fold_keys(a, r, k, most, full, false, x);
	if (!a->causal && a->p.keys % width == 0)
		return x;
	return fold_keys(a, r, k, full, end, true, x);
}

// Returns the scores of the row at key `at` of the block: -inf where masked.
static Value scores_at(const Attend *a, const Row *r, Value x, Value at, Value mask, Value *shown)
{
	Gen *g = a->g;
	Value key = sum_of(g, a->first_key, at);
	Index keys = mask ? lane_index(g, key, a->p.keys, g->width, mask)
	                  : lane_index(g, key, a->p.keys, g->width, NULL);
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
	Value place = sum_of(g, r->line, at), shown;
	Value x = scores_at(a, r, local_load(a, a->local[AT_SCORES], place), at, mask, &shown);
	if (mask || a->bias || a->shown)
		local_store(a, x, a->local[AT_SCORES], place);
	return x;
}

static Value weight(const Attend *a, const Row *r, Value at, Value mask, void *context)
{
	Gen *g = a->g;
	Value *base = context, place = sum_of(g, r->line, at);
	(void)mask;
	Value x = local_load(a, a->local[AT_SCORES], place);
	x = math_exp_below(g, LLVMBuildFSub(g->b, x, splat(g, *base), ""));
	local_store(a, x, a->local[AT_SCORES], place);
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
	Value most = larger(g, reduce_rows(a, O_amax, first), before);
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

// Turns the scores of the strip into probabilities, relative to the largest of their row so far.
// Each row is reduced to a vector, and then the vectors of all rows at once: so no row waits for
// another.
static void soften_strip(const Attend *a, Value stat, Value sums, Value again)
{
	Gen *g = a->g;
	int64_t height = a->s->height, width = g->width;
	Value end = round_up(g, a->visible, width);
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
	Value total = each_key(a, &r, end, &(Keys){weight, &base, O_sum});
	local_store(a, total, a->local[AT_LANES], times(g, rows.i, width));
	if (a->p.blocks > 1 && a->p.depth)
		fade_sums(a, rows.i, sums, again);
	loop_end(g, &rows);
	for (int64_t first = 0; first < height; first += width)
		update_totals(a, first, stat, again);
}

typedef struct Finish {
	const Attend *a;
	int out;
	const Index *row;
	Value memory, place; // of the row's first element
	Value factor, some;  // some: else zeros are stored; NULL: always
} Finish;

static void finish_columns(Gen *g, int n, const Index *unit, void *context)
{
	const Finish *f = context;
	const Attend *a = f->a;
	for (int u = 0; u < n; u++) {
		Index idx[RANK];
		attend_index(a, f->row, &unit[u], idx);
		Value x =
		    local_load(a, f->memory, sum_of(g, f->place, index_value(g, &unit[u]).base));
		x = LLVMBuildFMul(g->b, x, splat(g, f->factor), "");
		store_out(g, f->out, idx, f->some ? choose(g, f->some, x, real_like(x, 0)) : x);
	}
}

// Stores row `f->row` of an output.
static void store_row(Finish *f, int64_t columns)
{
	Gen *g = f->a->g;
	g->ops->lane_loop(g, number(g, 0), number(g, columns), columns, 1, finish_columns, f);
}

// Stores the outputs of a query, whose statistics and sums are at these rows of the worker's.
static void finish_row(const Attend *a, const Index *query, Value stat, Value row)
{
	Gen *g = a->g;
	Value total = local_load_one(a, a->local[AT_TOTAL], stat), some = NULL;
	if (a->zeros)
		some = LLVMBuildFCmp(g->b, LLVMRealOGT, total, real(a, 0), "");
	for (int o = 0; o < g->kern->nout; o++) {
		if (val(g->graph, g->kern->out[o])->op == O_attend) {
			Finish f = {.a = a, .out = o, .row = query, .memory = a->local[AT_SUMS]};
			f.place = times(g, row, a->p.depth_line);
			f.factor = LLVMBuildFDiv(g->b, real(a, 1), total, "");
			f.some = some;
			store_row(&f, a->p.depth);
			continue;
		}
		Value stats[] = {local_load_one(a, a->local[AT_MOST], stat),
		                 LLVMBuildFDiv(g->b, real(a, 1), total, "")};
		Index idx[RANK];
		unravel(g->vars, &a->batch, &a->p.lead, idx);
		idx[a->p.lead.rank] = *query;
		for (int k = 0; k < COUNT(stats); k++) {
			idx[a->p.lead.rank + 1] = constant_index(k);
			store_out(g, o, idx,
			          some ? choose(g, some, stats[k], real(a, 0)) : stats[k]);
		}
	}
}

// The strip at queries `a->first`, whose statistics and sums begin at these rows of the worker's.
static void forward_strip(const Attend *a, const Product *score, const Product *sum, Value stat,
                          Value sums, Value again)
{
	Gen *g = a->g;
	const AttendSizes *p = &a->p;
	const Value *local = a->local;
	Value no = LLVMConstInt(g->i1, 0, 0);
	copy_operand(a, 0, a->first, a->rows, local[AT_QUERIES], p->width_line, 0);
	multiply_panels(a, score,
	                &(Operands){number(g, p->width), local[AT_QUERIES], local[AT_KEYS],
	                            local[AT_SCORES], no},
	                a->visible);
	soften_strip(a, stat, sums, again);
	Value to = local_element(a, local[AT_SUMS], times(g, sums, p->depth_line));
	if (p->depth)
		multiply_panels(
		    a, sum, &(Operands){a->visible, local[AT_SCORES], local[AT_VALUES], to, again},
		    number(g, p->depth));
}

static void go_to_keys(Attend *a, Value block)
{
	Gen *g = a->g;
	a->first_key = a->p.blocks == 1 ? number(g, 0) : times(g, block, a->s->depth);
	a->keys = least(g, number(g, a->s->depth), minus(g, number(g, a->p.keys), a->first_key));
}

static Value first_query(const Attend *a, Value strip)
{
	Gen *g = a->g;
	Value less = minus(g, strip, number(g, a->p.strips - a->p.lower));
	return minus(g, times(g, strip, a->s->height), clamp_to(g, less, number(g, a->p.lower)));
}

static void go_to_strip(Attend *a, Value strip)
{
	Gen *g = a->g;
	Value end = first_query(a, sum_of(g, strip, number(g, 1)));
	a->first = first_query(a, strip);
	a->rows = minus(g, end, a->first);
	a->lower = LLVMBuildICmp(g->b, LLVMIntSLT, a->rows, number(g, a->s->height), "");
	a->visible = visible_to(a, minus(g, end, number(g, 1)));
}

// Begins a loop over the heads of a group.
static Loop heads_begin(Attend *a, Value group)
{
	Gen *g = a->g;
	Value first = times(g, group, a->s->batches);
	Loop heads =
	    loop_begin(g, first, end_after(g, first, a->s->batches, number(g, a->p.batch)), 1);
	a->batch = uniform_index(g, heads.i, a->p.batch, 1);
	a->next = row_index_of(a, sum_of(g, heads.i, number(g, 1)), a->p.batch);
	return heads;
}

// A worker has some strips of queries of some heads.
static void forward(Attend *a)
{
	Gen *g = a->g;
	const AttendSizes *p = &a->p;
	Value part = LLVMBuildURem(g->b, g->worker, number(g, p->parts), "");
	Value group = LLVMBuildUDiv(g->b, g->worker, number(g, p->parts), "");
	Value begin = times(g, part, a->s->strips);
	Value end = end_after(g, begin, a->s->strips, number(g, p->strips));
	Value blocks = number(g, p->blocks);
	if (a->causal && p->blocks > 1) { // those that the last query sees
		Value seen = sum_of(g, first_query(a, end), shift_of(a));
		blocks =
		    LLVMBuildUDiv(g->b, round_up(g, seen, a->s->depth), number(g, a->s->depth), "");
	}
	Loop heads = heads_begin(a, group);
	Ahead ahead = ahead_new(a, p->width);
	for (int o = 0; o < (p->depth ? 3 : 2); o++)
		add_operand(a, &ahead, o);
	add_output(a, &ahead, O_attend);
	Product score = strip_product(a, (Layout){0, p->width_line, 1, p->panel, p->score_line},
	                              p->panel * (p->width + 1), a->causal ? -1 : p->keys, &ahead);
	Product sum = strip_product(a, (Layout){0, p->score_line, 1, p->panel, p->depth_line},
	                            p->panel * (a->s->depth + 1), p->depth, NULL);
	Loop block = loop_begin(g, number(g, 0), blocks, 1);
	go_to_keys(a, block.i);
	pack_columns(a, 1, a->local[AT_KEYS], p->panel * (p->width + 1), a->v->attr->x);
	if (p->depth)
		copy_operand(a, 2, a->first_key, a->keys, a->local[AT_VALUES],
		             p->panel * (a->s->depth + 1), p->panel);
	Value again = LLVMBuildICmp(g->b, LLVMIntNE, block.i, number(g, 0), "");
	Value done = LLVMBuildICmp(g->b, LLVMIntEQ, block.i, minus(g, blocks, number(g, 1)), "");
	Loop strip = loop_begin(g, begin, end, 1);
	go_to_strip(a, strip.i);
	Value own = minus(g, strip.i, begin), stat = times(g, own, p->stat_line);
	Value sums = times(g, own, a->s->height);
	forward_strip(a, &score, &sum, stat, sums, again);
	Value rows = LLVMBuildSelect(g->b, done, a->rows, number(g, 0), "");
	Loop row = loop_begin(g, number(g, 0), rows, 1);
	Index query = uniform_index(g, sum_of(g, a->first, row.i), p->queries, 1);
	finish_row(a, &query, sum_of(g, stat, row.i), sum_of(g, sums, row.i));
	loop_end(g, &row);
	loop_end(g, &strip);
	loop_end(g, &block);
	loop_end(g, &heads);
}

// ---- gradients ------------------------------------------------------------------------

typedef struct Slope {
	Value most, share, delta; // share: of exp(score - most)
} Slope;

// Turns scores into probabilities, and gradients of the probabilities into those of the scores.
static Value slope_at(const Attend *a, const Row *r, Value at, Value mask, void *context)
{
	Gen *g = a->g;
	const Slope *s = context;
	Value place = sum_of(g, r->line, at), shown;
	Value x = scores_at(a, r, local_load(a, a->local[AT_SCORES], place), at, mask, &shown);
	x = math_exp_below(g, LLVMBuildFSub(g->b, x, splat(g, s->most), ""));
	x = LLVMBuildFMul(g->b, x, splat(g, s->share), "");
	if (a->zeros) {
		Value none = LLVMBuildFCmp(g->b, LLVMRealOEQ, s->share, real(a, 0), "");
		x = choose(g, none, real_like(x, 0), x);
	}
	Value slope = local_load(a, a->local[AT_SLOPES], place);
	slope = LLVMBuildFMul(g->b, x, LLVMBuildFSub(g->b, slope, splat(g, s->delta), ""), "");
	Value used = mask && shown ? both(g, mask, shown) : mask ? mask : shown;
	local_store(a, x, a->local[AT_SCORES], place);
	local_store(a, used ? choose(g, used, slope, real_like(x, 0)) : slope, a->local[AT_SLOPES],
	            place);
	return NULL;
}

typedef struct Products {
	Product score, weight, dq, dk, dv;
} Products;

// Computes the probabilities of the strip at `a->first`, line `line` of its block, and adds to its
// part of dq.
static void backward_strip(const Attend *a, const Products *t, Value line, Value again)
{
	Gen *g = a->g;
	const AttendSizes *p = &a->p;
	const Value *local = a->local;
	Value no = LLVMConstInt(g->i1, 0, 0);
	Value place = times(g, line, p->score_line);
	Value scores = local_element(a, local[AT_SCORES], place);
	Value slopes = local_element(a, local[AT_SLOPES], place);
	Value queries = local_element(a, local[AT_QUERIES], times(g, line, p->width_line));
	Value gradients = local_element(a, local[AT_GRADIENTS], times(g, line, p->depth_line));
	multiply_panels(a, &t->score,
	                &(Operands){number(g, p->width), queries, local[AT_KEYS], scores, no},
	                a->visible);
	multiply_panels(a, &t->weight,
	                &(Operands){number(g, p->depth), gradients, local[AT_VALUES], slopes, no},
	                a->visible);
	// A tile of keys may take columns that no row of the strip sees.
	Value end = sum_of(g, a->visible, number(g, a->s->key_height));
	end = least(g, round_up(g, end, g->width), number(g, p->score_line / g->width * g->width));
	if (!a->causal)
		end = round_up(g, a->visible, g->width);
	Loop rows = loop_begin(g, number(g, 0), a->rows, 1);
	Row r = row_at(a, rows.i, line);
	Index zero = constant_index(0), one = constant_index(1);
	Slope s = {.most = at_element(a, a->v->in[STATS], &r.query, &zero),
	           .share = at_element(a, a->v->in[STATS], &r.query, &one),
	           .delta = at_element(a, a->v->in[DELTA], &r.query, &zero)};
	each_key(a, &r, end, &(Keys){slope_at, &s, 0});
	loop_end(g, &rows);
	Value to = local_element(a, local[AT_DQ], times(g, a->first, p->width_line));
	multiply_panels(a, &t->dq, &(Operands){a->visible, slopes, local[AT_KEY_ROWS], to, again},
	                number(g, p->width));
}

typedef struct KeySums {
	Value queries, again;
	int a, b, c;  // local memory
	int64_t line; // of b and c
} KeySums;

// Computes a panel of columns for all keys of the block, so that it stays in the first cache.
static void add_panel(const Attend *a, const Product *p, bool narrow, Value panel,
                      const void *context)
{
	Gen *g = a->g;
	const KeySums *k = context;
	Loop keys = loop_begin(g, number(g, 0), a->keys, a->s->key_height);
	Value from = number(g, 0); // the first query that sees one of them
	if (a->causal) {
		Value key = sum_of(g, a->first_key, keys.i);
		from = clamp_to(g, minus(g, minus(g, key, shift_of(a)), a->first), k->queries);
	}
	Value at = sum_of(g, times(g, from, a->p.score_line), keys.i);
	Operands o = {minus(g, k->queries, from), local_element(a, a->local[k->a], at),
	              local_element(a, a->local[k->b], times(g, from, k->line)),
	              local_element(a, a->local[k->c], times(g, keys.i, k->line)), k->again};
	multiply_panel(a, p, narrow, panel, &o);
	loop_end(g, &keys);
}

// Adds to dk and dv what the block of `queries` rows from a->first on gives.
static void add_keys(const Attend *a, const Products *t, Value queries, Value again)
{
	const AttendSizes *p = &a->p;
	KeySums dv = {queries, again, AT_SCORES, AT_GRADIENTS, AT_DV, p->depth_line};
	KeySums dk = {queries, again, AT_SLOPES, AT_QUERIES, AT_DK, p->width_line};
	each_panel(a, &t->dv, number(a->g, p->depth), add_panel, &dv);
	each_panel(a, &t->dk, number(a->g, p->width), add_panel, &dk);
}

// Stores `count` rows of local memory as rows from `first` on of the outputs that are `op`.
static void store_rows(const Attend *a, Op op, int part, int64_t line, Value first, Value count,
                       double factor)
{
	Gen *g = a->g;
	for (int o = 0; o < g->kern->nout; o++) {
		const Val *v = val(g->graph, g->kern->out[o]);
		if (v->op != op)
			continue;
		Loop rows = loop_begin(g, number(g, 0), count, 1);
		Index row =
		    uniform_index(g, sum_of(g, first, rows.i), v->shape.dim[a->p.lead.rank], 1);
		Finish f = {.a = a, .out = o, .row = &row, .memory = a->local[part]};
		f.place = times(g, rows.i, line);
		f.factor = real(a, factor);
		store_row(&f, last_dim(&v->shape));
		loop_end(g, &rows);
	}
}

static Products backward_products(const Attend *a)
{
	const AttendSizes *p = &a->p;
	Ahead score = ahead_new(a, p->width), weight = ahead_new(a, p->depth);
	add_operand(a, &score, 0);
	add_operand(a, &score, 1);
	add_output(a, &score, O_attend_dq);
	add_output(a, &score, O_attend_dk);
	add_operand(a, &weight, 2);
	add_operand(a, &weight, GRADIENT);
	add_output(a, &weight, O_attend_dv);
	int64_t panel = p->panel, keys = a->causal ? -1 : p->keys;
	int64_t scores = p->score_line, width = p->width_line, depth = p->depth_line;
	int64_t height = a->s->key_height;
	return (Products){.score = strip_product(a, (Layout){0, width, 1, panel, scores},
	                                         panel * (p->width + 1), keys, &score),
	                  .weight = strip_product(a, (Layout){0, depth, 1, panel, scores},
	                                          panel * (p->depth + 1), keys, &weight),
	                  .dq = strip_product(a, (Layout){0, scores, 1, panel, width},
	                                      panel * (a->s->depth + 1), p->width, NULL),
	                  .dk = product_new(a, (Layout){height, 1, scores, width, width}, panel,
	                                    false, has_narrow_rest(a, p->width), NULL),
	                  .dv = product_new(a, (Layout){height, 1, scores, depth, depth}, panel,
	                                    false, has_narrow_rest(a, p->depth), NULL)};
}

// A worker has some heads: the sums over queries and those over keys are its own.
static void backward(Attend *a)
{
	Gen *g = a->g;
	const AttendSizes *p = &a->p;
	const Sched *s = a->s;
	int64_t rows = s->strips * s->height;
	Loop heads = heads_begin(a, g->worker);
	Products t = backward_products(a);
	Loop block = loop_begin(g, number(g, 0), number(g, p->blocks), 1);
	go_to_keys(a, block.i);
	Value again = LLVMBuildICmp(g->b, LLVMIntNE, block.i, number(g, 0), "");
	pack_columns(a, 1, a->local[AT_KEYS], p->panel * (p->width + 1), a->v->attr->x);
	pack_columns(a, 2, a->local[AT_VALUES], p->panel * (p->depth + 1), 1);
	copy_operand(a, 1, a->first_key, a->keys, a->local[AT_KEY_ROWS], p->panel * (s->depth + 1),
	             p->panel);
	Value begin = number(g, 0); // the first block of queries that sees a key
	if (a->causal) {
		begin = clamp_to(g, minus(g, a->first_key, shift_of(a)), number(g, p->queries));
		begin = LLVMBuildUDiv(g->b, begin, number(g, rows), "");
	}
	Loop part = loop_begin(g, begin, number(g, p->parts), 1);
	Value from = times(g, part.i, s->strips);
	Value to = end_after(g, from, s->strips, number(g, p->strips));
	Value first = first_query(a, from), count = minus(g, first_query(a, to), first);
	copy_operand(a, 0, first, count, a->local[AT_QUERIES], p->width_line, 0);
	copy_operand(a, GRADIENT, first, count, a->local[AT_GRADIENTS], p->depth_line, 0);
	Loop strip = loop_begin(g, from, to, 1);
	go_to_strip(a, strip.i);
	backward_strip(a, &t, minus(g, a->first, first), again);
	loop_end(g, &strip);
	a->first = first;
	add_keys(a, &t, count, LLVMBuildICmp(g->b, LLVMIntNE, part.i, begin, ""));
	loop_end(g, &part);
	store_rows(a, O_attend_dk, AT_DK, p->width_line, a->first_key, a->keys, a->v->attr->x);
	store_rows(a, O_attend_dv, AT_DV, p->depth_line, a->first_key, a->keys, 1);
	loop_end(g, &block);
	store_rows(a, O_attend_dq, AT_DQ, p->width_line, number(g, 0), number(g, p->queries),
	           a->v->attr->x);
	loop_end(g, &heads);
}

void emit_attend(Gen *g)
{
	if (g->target->machine->threads > 1) {
		emit_thread_attend(g);
		return;
	}
	Attend a = attend_new(g);
	for (int k = 0; k < AT_PARTS; k++)
		if (a.p.local[k])
			a.local[k] = local_memory(g, a.p.local[k] * a.p.bytes);
	if (a.p.back)
		backward(&a);
	else
		forward(&a);
}
