// attend.c: emits attention, and the gradients of its operands, as register tiles of several
// products around the softmax.
// Nothing of the size of the scores is in memory: a worker goes through blocks of keys, and
// computes a strip of rows of scores at a time. Forward, the sums over earlier blocks are rescaled
// when a larger score comes (online softmax). Backward, probabilities are computed again from the
// statistics of their row. Lanes run along keys. Future keys of a causal mask are skipped: panels
// of them, and in a product along keys, each. Invariant: sums have one order, by blocks and strips.
#include "attend.h"
#include <math.h>

enum { SIDE_BY_SIDE = 4 }; // vectors of keys

// ---- memory ---------------------------------------------------------------------------

static Value element(const Attend *a, Value memory, Value i)
{
	return LLVMBuildGEP2(a->g->b, a->elem, memory, &i, 1, "");
}

static LLVMTypeRef vector(const Attend *a)
{
	return a->g->width > 1 ? LLVMVectorType(a->elem, (unsigned)a->g->width) : a->elem;
}

static Value load(const Attend *a, Value memory, Value i)
{
	Value v = LLVMBuildLoad2(a->g->b, vector(a), element(a, memory, i), "");
	LLVMSetAlignment(v, (unsigned)a->p.bytes);
	return v;
}

static void store(const Attend *a, Value v, Value memory, Value i)
{
	Value to = LLVMBuildStore(a->g->b, splat(a->g, v), element(a, memory, i));
	LLVMSetAlignment(to, (unsigned)a->p.bytes);
}

static Value load_one(const Attend *a, Value memory, Value i)
{
	return LLVMBuildLoad2(a->g->b, a->elem, element(a, memory, i), "");
}

static Value minus(Gen *g, Value x, Value y)
{
	return LLVMBuildSub(g->b, x, y, "");
}

static Value clamp(Gen *g, Value x, Value most) // to [0, most]
{
	Value zero = number(g, 0);
	x = least(g, x, most);
	return LLVMBuildSelect(g->b, LLVMBuildICmp(g->b, LLVMIntSLT, x, zero, ""), zero, x, "");
}

static Value round_up(Gen *g, Value x, int64_t by)
{
	Value up = sum_of(g, x, number(g, by - 1));
	return times(g, LLVMBuildUDiv(g->b, up, number(g, by), ""), by);
}

// Returns x if it is larger than y, else y: of a row with a NaN, the exponentials are NaN as well.
static Value larger(Gen *g, Value x, Value y)
{
	return LLVMBuildSelect(g->b, LLVMBuildFCmp(g->b, LLVMRealOGT, x, y, ""), x, y, "");
}

// ---- operands -------------------------------------------------------------------------

void attend_index(const Attend *a, const Index *row, const Index *column, Index *idx)
{
	unravel(a->g->vars, &a->batch, &a->p.lead, idx);
	idx[a->p.lead.rank] = *row;
	idx[a->p.lead.rank + 1] = *column;
}

Value at_element(const Attend *a, Ref r, const Index *row, const Index *column)
{
	Index idx[RANK];
	attend_index(a, row, column, idx);
	return at(a->g, r, idx);
}

// Row i, or the last one.
static Index row_index_of(const Attend *a, Value i, int64_t count)
{
	return uniform_index(a->g, least(a->g, i, number(a->g, count - 1)), count, 1);
}

// Lanes base, base + 1, .. of an axis of `count`; `align` divides base.
static Index lanes_of(Gen *g, Value base, int64_t count, int64_t align)
{
	if (count % align == 0 || g->width == 1)
		return lane_index(g, base, count, g->width == 1 ? 1 : align, NULL);
	Value left = minus(g, number(g, count), base);
	Value mask = LLVMBuildICmp(g->b, LLVMIntSLT, lane_numbers(g->i64, g->width, 0, 1),
	                           splat(g, left), "");
	return lane_index(g, base, count, align, mask);
}

// ---- packing --------------------------------------------------------------------------

// Copies `count` rows of an operand from row `first` on: with panel > 0 into panels of so many
// columns, rows of a panel adjacent and panels `line` apart; else as rows `line` apart.
static void copy_rows(const Attend *a, int o, Value first, Value count, Value memory, int64_t line,
                      int64_t panel)
{
	Gen *g = a->g;
	const Val *v = val(g->graph, a->v->in[o]);
	int64_t rows = v->shape.dim[a->p.lead.rank], columns = last_dim(&v->shape);
	Loop loop = loop_begin(g, number(g, 0), count, 1);
	Index row = row_index_of(a, sum_of(g, first, loop.i), rows);
	Value to = times(g, loop.i, panel ? panel : line);
	for (int64_t c = 0; c < columns; c += g->width) {
		Index column = lanes_of(g, number(g, c), columns, g->width);
		int64_t offset = panel ? c / panel * line + c % panel : c;
		store(a, at_element(a, a->v->in[o], &row, &column), memory,
		      sum_of(g, to, number(g, offset)));
	}
	loop_end(g, &loop);
}

// Packs the block's rows of an operand as columns, times `factor`: panels of keys, `line` apart.
static void pack_columns(const Attend *a, int o, Value memory, int64_t line, double factor)
{
	Gen *g = a->g;
	int width = g->width;
	int64_t columns = last_dim(&val(g->graph, a->v->in[o])->shape);
	int64_t full = columns / width * width, panel = a->p.panel;
	Value scale = real_like(LLVMConstNull(vector(a)), factor);
	Loop loop = loop_begin(g, number(g, 0), a->keys, width);
	Value first = sum_of(g, a->first_key, loop.i);
	Value to = times(g, LLVMBuildUDiv(g->b, loop.i, number(g, panel), ""), line);
	to = sum_of(g, to, LLVMBuildURem(g->b, loop.i, number(g, panel), ""));
	Index key[64];
	for (int k = 0; k < width; k++)
		key[k] = row_index_of(a, sum_of(g, first, number(g, k)), a->p.keys);
	if (full) {
		Loop squares = loop_begin(g, number(g, 0), number(g, full), width);
		Index column = lane_index(g, squares.i, columns, width, NULL);
		Value v[64], row = sum_of(g, to, times(g, squares.i, panel));
		for (int k = 0; k < width; k++)
			v[k] = splat(g, at_element(a, a->v->in[o], &key[k], &column));
		transpose_vectors(g, v);
		for (int k = 0; k < width; k++)
			store(a, factor == 1 ? v[k] : LLVMBuildFMul(g->b, v[k], scale, ""), memory,
			      sum_of(g, row, number(g, k * panel)));
		loop_end(g, &squares);
	}
	Index keys = lanes_of(g, first, a->p.keys, width);
	for (int64_t c = full; c < columns; c++) {
		Index column = constant_index(c);
		Value v = splat(g, at_element(a, a->v->in[o], &keys, &column));
		store(a, factor == 1 ? v : LLVMBuildFMul(g->b, v, scale, ""), memory,
		      sum_of(g, to, number(g, c * panel)));
	}
	loop_end(g, &loop);
}

// ---- prefetching ----------------------------------------------------------------------

// Rows that a head touches after this one's products, of which each call of a tile prefetches its
// share: all at once, the next loads would wait for them.
typedef struct Ahead {
	int64_t calls, iterations; // of the tile: for a head; of a call, unrolled
	int count;
	struct Stream stream[STREAMS];
	Value from[STREAMS]; // row 0
	int64_t rows[STREAMS];
	Value call; // variable
} Ahead;

// How many full panels of keys the strips of a head compute together, about.
static int64_t panels_of_head(const Attend *a)
{
	const AttendSizes *p = &a->p;
	int64_t panels = 0, height = a->s->height, depth = a->s->depth;
	for (int64_t key = 0; key < p->keys; key += depth)
		for (int64_t strip = 1; strip <= p->strips; strip++) {
			int64_t end = MIN(strip * height, p->queries);
			int64_t seen = MIN(depth, p->keys - key);
			if (a->causal)
				seen = MAX(0, MIN(seen, end + p->keys - p->queries - key));
			panels += (seen + p->panel / 2 - 1) / p->panel;
		}
	return MAX(1, panels);
}

// Of a tile whose steps are `steps`, in the head that has begun.
static Ahead ahead_new(const Attend *a, int64_t steps)
{
	return (Ahead){.calls = panels_of_head(a),
	               .iterations = MAX(1, steps / a->s->unroll),
	               .call = variable(a->g, number(a->g, 0))};
}

static void add_ahead(Ahead *t, Value from, int64_t rows, int64_t bytes, int64_t row, Prefetch how)
{
	if (bytes < 64 || t->count == STREAMS)
		return;
	int64_t share = ceil_div(rows, t->calls), lines = ceil_div(bytes, 64);
	int64_t once = ceil_div(share * lines, t->iterations);
	t->from[t->count] = from;
	t->rows[t->count] = rows;
	t->stream[t->count++] =
	    (struct Stream){row, (int)share, (int)bytes, (int)MIN(bytes, once * 64), how};
}

// Adds the rows of an operand that the next head reads.
static void add_operand(const Attend *a, Ahead *t, int o)
{
	Gen *g = a->g;
	Ref r = a->v->in[o];
	const Shape *shape = &val(g->graph, r)->shape;
	if (!a->s->ahead_rows)
		return;
	int lead = a->p.lead.rank;
	Index idx[RANK], place;
	Index row = some_index(g->vars, shape->dim[lead]);
	Index column = some_index(g->vars, last_dim(shape));
	unravel(g->vars, &a->next, &a->p.lead, idx);
	index_within(shape, idx, idx);
	idx[lead] = row, idx[lead + 1] = column;
	Stride s = strides_of(g->vars, g->graph, &g->computed, r, idx, &row, &column);
	idx[lead] = idx[lead + 1] = constant_index(0);
	if (s.fixed && s.along == 1 && locate(g->vars, g->graph, &g->computed, &r, idx, &place))
		add_ahead(t, element(a, location_address(g, r), index_i64(g, &place)),
		          shape->dim[lead], last_dim(shape) * a->p.bytes, s.down * a->p.bytes,
		          F_read);
}

// Adds the rows that this head stores in an output that is `op`.
static void add_output(const Attend *a, Ahead *t, Op op)
{
	Gen *g = a->g;
	for (int o = 0; o < g->kern->nout; o++) {
		const Val *v = val(g->graph, g->kern->out[o]);
		int64_t rows = v->shape.dim[a->p.lead.rank], columns = last_dim(&v->shape);
		if (v->op != op)
			continue;
		Value first = times(g, index_i64(g, &a->batch), rows * columns);
		add_ahead(t, element(a, out_address(g, o), first), rows, columns * a->p.bytes,
		          columns * a->p.bytes, F_write);
	}
}

// ---- products -------------------------------------------------------------------------

// Tiles by height: that of a strip, and one row less, or NULL; narrow: of one vector, for the last
// columns, which prefetches nothing, or NULL.
typedef struct Product {
	Value tile[2], narrow[2];
	int64_t line; // elements of b from panel to panel
	Ahead ahead;
} Product;

typedef struct Layout { // elements from row to row, from step to step
	int64_t rows, a_row, a_step, b_step, c_row;
} Layout;

static Product product_new(const Attend *a, Layout z, int64_t line, bool lower, bool narrow,
                           const Ahead *ahead)
{
	int vectors = (int)a->s->vectors;
	Product p = {.line = line};
	if (ahead)
		p.ahead = *ahead;
	for (int less = 0; less <= lower; less++) {
		Tile tile = {.type = a->type,
		             .bytes = (int)a->p.bytes,
		             .lanes = a->p.lanes,
		             .rows = (int)z.rows - less,
		             .vectors = 1,
		             .unroll = (int)a->s->unroll,
		             .rest = true,
		             .a_row = z.a_row,
		             .loops = 1,
		             .loop = {{.a_step = z.a_step}},
		             .b_step = z.b_step,
		             .c_row = z.c_row};
		if (z.a_step > 1) // each step in other lines of cache
			tile.a_ahead = a->g->target->machine->ahead;
		if (narrow && vectors > 1)
			p.narrow[less] = tile_function(a->g, &tile);
		tile.vectors = vectors;
		for (int i = 0; i < p.ahead.count; i++)
			tile.stream[tile.streams++] = p.ahead.stream[i];
		p.tile[less] = tile_function(a->g, &tile);
	}
	return p;
}

// True if a product of so many columns, -1: that vary, has a narrow tile for the last.
static bool is_narrow(const Attend *a, int64_t columns)
{
	int64_t rest = columns % a->p.panel;
	return columns < 0 || (rest > 0 && rest <= a->p.lanes);
}

// Of rows that are those of a strip, and so many columns; -1: they vary.
static Product strip_product(const Attend *a, Layout z, int64_t line, int64_t columns,
                             const Ahead *ahead)
{
	z.rows = a->s->height;
	return product_new(a, z, line, a->p.lower > 0, is_narrow(a, columns), ahead);
}

// Sets the pointers to what this call of a tile prefetches.
static void go_ahead(const Attend *a, const Ahead *ahead, Value *pointer)
{
	Gen *g = a->g;
	if (!ahead->count)
		return;
	Value call = read_variable(g, ahead->call);
	set_variable(g, ahead->call, sum_of(g, call, number(g, 1)));
	for (int i = 0; i < ahead->count; i++) {
		Value row = LLVMBuildUDiv(g->b, times(g, call, ahead->rows[i]),
		                          number(g, ahead->calls), "");
		row = times(g, row, ahead->stream[i].row);
		pointer[i] = LLVMBuildGEP2(g->b, g->i8, ahead->from[i], &row, 1, "");
	}
}

typedef struct Operands {
	Value steps, a, b, c;
	Value again; // true: adds to c
} Operands;

// narrow: by the tile for the last columns.
static void multiply_panel(const Attend *a, const Product *p, bool narrow, Value panel,
                           const Operands *o)
{
	Gen *g = a->g;
	const Value *tiles = narrow ? p->narrow : p->tile;
	Value in[6 + STREAMS] = {o->steps,
	                         o->a,
	                         element(a, o->b, times(g, panel, p->line)),
	                         element(a, o->c, times(g, panel, a->p.panel)),
	                         o->again,
	                         o->a};
	if (!narrow)
		go_ahead(a, &p->ahead, in + 6);
	Value tile = tiles[1] ? LLVMBuildSelect(g->b, a->lower, tiles[1], tiles[0], "") : tiles[0];
	LLVMBuildCall2(g->b, LLVMGlobalGetValueType(tiles[0]), tile, in,
	               6 + (narrow ? 0 : (unsigned)p->ahead.count), "");
}

typedef void PanelBody(const Attend *, const Product *, bool narrow, Value panel,
                       const void *context);

// Runs the body for the panels of the first `columns` columns, and perhaps some more.
static void each_panel(const Attend *a, const Product *p, Value columns, PanelBody *body,
                       const void *context)
{
	Gen *g = a->g;
	int64_t panel = a->p.panel, most = p->narrow[0] ? panel - 1 - a->p.lanes : panel - 1;
	Value full = sum_of(g, columns, number(g, most));
	full = LLVMBuildUDiv(g->b, full, number(g, panel), "");
	Loop loop = loop_begin(g, number(g, 0), full, 1);
	body(a, p, false, loop.i, context);
	loop_end(g, &loop);
	if (!p->narrow[0])
		return;
	Value rest = LLVMBuildICmp(g->b, LLVMIntSLT, times(g, full, panel), columns, "");
	Loop once = when_begin(g, rest);
	body(a, p, true, full, context);
	when_end(g, &once);
}

static void multiply_operands(const Attend *a, const Product *p, bool narrow, Value panel,
                              const void *operands)
{
	multiply_panel(a, p, narrow, panel, operands);
}

static void multiply(const Attend *a, const Product *p, const Operands *o, Value columns)
{
	each_panel(a, p, columns, multiply_operands, o);
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
	return clamp(g, minus(g, end, a->first_key), a->keys);
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
	Value none = real_like(LLVMConstNull(vector(a)), start);
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
	Value x = scores_at(a, r, load(a, a->local[AT_SCORES], place), at, mask, &shown);
	if (mask || a->bias || a->shown)
		store(a, x, a->local[AT_SCORES], place);
	return x;
}

static Value weight(const Attend *a, const Row *r, Value at, Value mask, void *context)
{
	Gen *g = a->g;
	Value *base = context, place = sum_of(g, r->line, at);
	(void)mask;
	Value x = load(a, a->local[AT_SCORES], place);
	x = math_exp_below(g, LLVMBuildFSub(g->b, x, splat(g, *base), ""));
	store(a, x, a->local[AT_SCORES], place);
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
		           ? load(a, a->local[AT_LANES], number(g, (first + r) * g->width))
		           : v[r - 1];
	return reduce_vectors(g, op, a->type, v);
}

// Updates the largest scores of rows first, first + 1, .. of the strip, whose statistics begin at
// `stat`.
static void update_most(const Attend *a, int64_t first, Value stat, Value again)
{
	Gen *g = a->g;
	Value none = real_like(LLVMConstNull(vector(a)), -INFINITY);
	Value place = sum_of(g, stat, number(g, first)), strip = number(g, first);
	Value before = choose(g, again, load(a, a->local[AT_MOST], place), none);
	Value most = larger(g, reduce_rows(a, O_amax, first), before);
	Value empty = LLVMBuildFCmp(g->b, LLVMRealOEQ, most, none, "");
	Value base = choose(g, empty, real_like(most, 0), most);
	store(a, most, a->local[AT_MOST], place);
	store(a, base, a->local[AT_BASE], strip);
	if (a->p.blocks > 1)
		store(a, math_exp_below(g, LLVMBuildFSub(g->b, before, base, "")),
		      a->local[AT_FADE], strip);
}

static void update_totals(const Attend *a, int64_t first, Value stat, Value again)
{
	Gen *g = a->g;
	Value place = sum_of(g, stat, number(g, first)), total = reduce_rows(a, O_sum, first);
	if (a->p.blocks > 1) {
		Value before = load(a, a->local[AT_TOTAL], place);
		Value fade = load(a, a->local[AT_FADE], number(g, first));
		before = LLVMBuildFMul(g->b, before, fade, "");
		before = choose(g, again, before, real_like(before, 0));
		total = LLVMBuildFAdd(g->b, before, total, "");
	}
	store(a, total, a->local[AT_TOTAL], place);
}

// Scales the sums of row `in_strip` by its factor.
static void fade_sums(const Attend *a, Value in_strip, Value sums, Value again)
{
	Gen *g = a->g;
	Loop once = when_begin(g, again);
	Value fade = load_one(a, a->local[AT_FADE], in_strip);
	Value row = times(g, sum_of(g, sums, in_strip), a->p.depth_line);
	Loop columns = loop_begin(g, number(g, 0), number(g, a->p.depth), g->width);
	Value at = sum_of(g, row, columns.i);
	Value x = load(a, a->local[AT_SUMS], at);
	store(a, LLVMBuildFMul(g->b, x, splat(g, fade), ""), a->local[AT_SUMS], at);
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
	store(a, most, a->local[AT_LANES], times(g, rows.i, width));
	loop_end(g, &rows);
	for (int64_t first = 0; first < height; first += width)
		update_most(a, first, stat, again);
	rows = loop_begin(g, number(g, 0), a->rows, 1);
	r = row_at(a, rows.i, number(g, 0));
	Value base = load_one(a, a->local[AT_BASE], rows.i);
	Value total = each_key(a, &r, end, &(Keys){weight, &base, O_sum});
	store(a, total, a->local[AT_LANES], times(g, rows.i, width));
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
		Value x = load(a, f->memory, sum_of(g, f->place, index_value(g, &unit[u]).base));
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
	Value total = load_one(a, a->local[AT_TOTAL], stat), some = NULL;
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
		Value stats[] = {load_one(a, a->local[AT_MOST], stat),
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
	copy_rows(a, 0, a->first, a->rows, local[AT_QUERIES], p->width_line, 0);
	multiply(a, score,
	         &(Operands){number(g, p->width), local[AT_QUERIES], local[AT_KEYS],
	                     local[AT_SCORES], no},
	         a->visible);
	soften_strip(a, stat, sums, again);
	Value to = element(a, local[AT_SUMS], times(g, sums, p->depth_line));
	if (p->depth)
		multiply(a, sum,
		         &(Operands){a->visible, local[AT_SCORES], local[AT_VALUES], to, again},
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
	return minus(g, times(g, strip, a->s->height), clamp(g, less, number(g, a->p.lower)));
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
		copy_rows(a, 2, a->first_key, a->keys, a->local[AT_VALUES],
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
	Value x = scores_at(a, r, load(a, a->local[AT_SCORES], place), at, mask, &shown);
	x = math_exp_below(g, LLVMBuildFSub(g->b, x, splat(g, s->most), ""));
	x = LLVMBuildFMul(g->b, x, splat(g, s->share), "");
	if (a->zeros) {
		Value none = LLVMBuildFCmp(g->b, LLVMRealOEQ, s->share, real(a, 0), "");
		x = choose(g, none, real_like(x, 0), x);
	}
	Value slope = load(a, a->local[AT_SLOPES], place);
	slope = LLVMBuildFMul(g->b, x, LLVMBuildFSub(g->b, slope, splat(g, s->delta), ""), "");
	Value used = mask && shown ? both(g, mask, shown) : mask ? mask : shown;
	store(a, x, a->local[AT_SCORES], place);
	store(a, used ? choose(g, used, slope, real_like(x, 0)) : slope, a->local[AT_SLOPES],
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
	Value scores = element(a, local[AT_SCORES], place);
	Value slopes = element(a, local[AT_SLOPES], place);
	Value queries = element(a, local[AT_QUERIES], times(g, line, p->width_line));
	Value gradients = element(a, local[AT_GRADIENTS], times(g, line, p->depth_line));
	multiply(a, &t->score,
	         &(Operands){number(g, p->width), queries, local[AT_KEYS], scores, no}, a->visible);
	multiply(a, &t->weight,
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
	Value to = element(a, local[AT_DQ], times(g, a->first, p->width_line));
	multiply(a, &t->dq, &(Operands){a->visible, slopes, local[AT_KEY_ROWS], to, again},
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
		from = clamp(g, minus(g, minus(g, key, shift_of(a)), a->first), k->queries);
	}
	Value at = sum_of(g, times(g, from, a->p.score_line), keys.i);
	Operands o = {minus(g, k->queries, from), element(a, a->local[k->a], at),
	              element(a, a->local[k->b], times(g, from, k->line)),
	              element(a, a->local[k->c], times(g, keys.i, k->line)), k->again};
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
	                                    false, is_narrow(a, p->width), NULL),
	                  .dv = product_new(a, (Layout){height, 1, scores, depth, depth}, panel,
	                                    false, is_narrow(a, p->depth), NULL)};
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
	copy_rows(a, 1, a->first_key, a->keys, a->local[AT_KEY_ROWS], p->panel * (s->depth + 1),
	          p->panel);
	Value begin = number(g, 0); // the first block of queries that sees a key
	if (a->causal) {
		begin = clamp(g, minus(g, a->first_key, shift_of(a)), number(g, p->queries));
		begin = LLVMBuildUDiv(g->b, begin, number(g, rows), "");
	}
	Loop part = loop_begin(g, begin, number(g, p->parts), 1);
	Value from = times(g, part.i, s->strips);
	Value to = end_after(g, from, s->strips, number(g, p->strips));
	Value first = first_query(a, from), count = minus(g, first_query(a, to), first);
	copy_rows(a, 0, first, count, a->local[AT_QUERIES], p->width_line, 0);
	copy_rows(a, GRADIENT, first, count, a->local[AT_GRADIENTS], p->depth_line, 0);
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

Attend attend_new(Gen *g)
{
	const Val *v = val(g->graph, g->kern->root);
	int bias = attention_bias(v->op);
	return (Attend){.g = g,
	                .s = g->kern->sched,
	                .v = v,
	                .p = attend_sizes(g->graph, g->kern, g->target->machine),
	                .type = v->type,
	                .elem = elem_type(g, v->type),
	                .bias = v->nin > bias ? v->in[bias] : 0,
	                .shown = v->nin > bias + 1 ? v->in[bias + 1] : 0,
	                .causal = v->attr->i[0],
	                .zeros = v->attr->i[1]};
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
