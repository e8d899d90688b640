// attend.c: emits attention, and the gradients of its operands, as register tiles of several
// products around the softmax.
// Nothing of the size of the scores is in memory: a worker goes through blocks of keys, and
// computes a strip of rows of scores at a time. Forward, the sums over earlier blocks are rescaled
// when a larger score comes (online softmax). Backward, probabilities are computed again from the
// statistics of their row. Lanes run along keys. Future keys of a causal mask are skipped: panels
// of them, and in a product along keys, each. Where an instruction adds up pairs of bf16, or matrix
// registers do, products read bf16, and add up in f32.
// Invariant: sums have one order, by blocks and strips.
#include "attend_tile.h"

// ---- operands of products -------------------------------------------------------------

// Products of bf16 take rows for a, pairs of them for b, and as many steps of pairs: matrix
// registers complete panels of them.

// Returns the elements of a from row to row of so many columns; line: of f32.
static int64_t a_line(const Attend *a, int64_t line, int64_t columns)
{
	return a->p.halves ? attend_half_line(&a->p, columns) : line;
}

static Value a_row(const Attend *a, int part, Value row, int64_t line, int64_t columns)
{
	Value at = times(a->g, row, a_line(a, line, columns));
	return a->p.halves ? half_element(a, a->local[part], at)
	                   : local_element(a, a->local[part], at);
}

static int64_t full_steps(const Attend *a, int64_t n) // of a product along n elements
{
	return a->p.halves ? ceil_div(n, a->p.panel) * a->p.panel / 2 : n;
}

static Value steps_of(const Attend *a, Value n)
{
	Gen *g = a->g;
	int64_t each = a->p.matrix ? a->p.panel : 2;
	return a->p.halves ? LLVMBuildUDiv(g->b, round_up(g, n, each), number(g, 2), "") : n;
}

// Returns the elements of b from panel to panel, along n elements.
static int64_t panel_line(const Attend *a, int64_t n)
{
	return a->p.panel * (full_steps(a, n) + 1);
}

static void pack_b_columns(const Attend *a, int o, int part, double factor)
{
	int64_t line = panel_line(a, last_dim(&val(a->g->graph, a->v->in[o])->shape));
	if (a->p.halves)
		pack_half_columns(a, o, part, line);
	else
		pack_columns(a, o, a->local[part], line, factor);
}

static void pack_b_rows(const Attend *a, int o, int part)
{
	int64_t line = panel_line(a, a->s->depth);
	if (a->p.halves)
		pack_halves(a, &(HalfRows){o, a->first_key, a->keys, AT_PARTS, part, line});
	else
		copy_operand(a, o, a->first_key, a->keys, a->local[part], line, a->p.panel);
}

// Packs `count` rows for a; pairs: and, of bf16, for b; AT_PARTS: not.
static void pack_a_rows(const Attend *a, int o, Value first, Value count, int part, int64_t line,
                        int pairs)
{
	int64_t rows = panel_line(a, a->s->strips * a->s->height);
	if (a->p.halves)
		pack_halves(a, &(HalfRows){o, first, count, part, pairs, rows});
	else
		copy_operand(a, o, first, count, a->local[part], line, 0);
}

// ---- forward --------------------------------------------------------------------------

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
		x = f->some ? choose(g, f->some, x, real_like(x, 0)) : x;
		store_out(g, f->out, idx,
		          cast_value(g, x, a->type, val(g->graph, g->kern->out[f->out])->type));
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
		if (val(g->graph, attention_of(g->graph, g->kern->out[o]))->op == O_attend) {
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
static void forward_strip(const Attend *a, const Ahead ahead[2], const Product *score,
                          const Product *sum, Value stat, Value sums, Value again)
{
	Gen *g = a->g;
	const AttendSizes *p = &a->p;
	const Value *local = a->local;
	Value no = LLVMConstInt(g->i1, 0, 0);
	Value weights = local[p->halves ? AT_WEIGHT_ROWS : AT_SCORES];
	pack_a_rows(a, 0, a->first, a->rows, AT_QUERIES, p->width_line, AT_PARTS);
	multiply_panels(a, score,
	                &(Operands){number(g, full_steps(a, p->width)), local[AT_QUERIES],
	                            local[AT_KEYS], local[AT_SCORES], no},
	                a->visible);
	soften_strip(a, ahead, stat, sums, again);
	Value to = local_element(a, local[AT_SUMS], times(g, sums, p->depth_line));
	if (p->depth)
		multiply_panels(
		    a, sum,
		    &(Operands){steps_of(a, a->visible), weights, local[AT_VALUES], to, again},
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
	if (a->p.halves)
		return least(g, times(g, strip, a->s->height), number(g, a->p.queries));
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

Value attend_head(const Attend *a, Value i)
{
	Gen *g = a->g;
	const Shape *lead = &a->p.lead, *added = &a->p.added;
	int64_t all = count_of(added), stride = 1;
	if (all == 1)
		return i;
	Value own = LLVMBuildURem(g->b, i, number(g, all), "");
	Value worker = LLVMBuildUDiv(g->b, i, number(g, all), ""), head = number(g, 0);
	for (int k = lead->rank - 1; k >= 0; k--) {
		Value some = number(g, added->dim[k]);
		Value parts = number(g, lead->dim[k] / added->dim[k]);
		Value at = times(g, LLVMBuildURem(g->b, worker, parts, ""), added->dim[k]);
		at = sum_of(g, at, LLVMBuildURem(g->b, own, some, ""));
		head = sum_of(g, head, times(g, at, stride));
		own = LLVMBuildUDiv(g->b, own, some, "");
		worker = LLVMBuildUDiv(g->b, worker, parts, "");
		stride *= lead->dim[k];
	}
	return head;
}

// Begins a loop over the heads of a group.
static Loop heads_begin(Attend *a, Value group)
{
	Gen *g = a->g;
	Value first = times(g, group, a->s->batches), last = number(g, a->p.batch - 1);
	Loop heads =
	    loop_begin(g, first, end_after(g, first, a->s->batches, number(g, a->p.batch)), 1);
	Value next = least(g, sum_of(g, heads.i, number(g, 1)), last);
	a->batch = uniform_index(g, attend_head(a, heads.i), a->p.batch, 1);
	a->next = uniform_index(g, attend_head(a, next), a->p.batch, 1);
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
	Ahead ahead[2] = {ahead_new(a, -1, p->width), ahead_new(a, p->depth, a->s->depth)};
	add_operand(a, &ahead[0], 0);
	add_operand(a, &ahead[0], 1);
	if (p->depth)
		add_operand(a, &ahead[1], 2);
	add_output(a, &ahead[1], O_attend);
	int64_t query = a_line(a, p->width_line, p->width);
	int64_t weights = a_line(a, p->score_line, a->s->depth);
	Product score =
	    strip_product(a, (Layout){0, query, 1, p->panel, p->score_line, AT_QUERIES, AT_KEYS},
	                  panel_line(a, p->width), a->causal ? -1 : p->keys, &ahead[0]);
	Product sum = strip_product(
	    a, (Layout){0, weights, 1, p->panel, p->depth_line, AT_WEIGHT_ROWS, AT_VALUES},
	    panel_line(a, a->s->depth), p->depth, &ahead[1]);
	Loop block = loop_begin(g, number(g, 0), blocks, 1);
	go_to_keys(a, block.i);
	pack_b_columns(a, 1, AT_KEYS, a->v->attr->x);
	if (p->depth)
		pack_b_rows(a, 2, AT_VALUES);
	Value again = LLVMBuildICmp(g->b, LLVMIntNE, block.i, number(g, 0), "");
	Value done = LLVMBuildICmp(g->b, LLVMIntEQ, block.i, minus(g, blocks, number(g, 1)), "");
	Loop strip = loop_begin(g, begin, end, 1);
	go_to_strip(a, strip.i);
	Value own = minus(g, strip.i, begin), stat = times(g, own, p->stat_line);
	Value sums = times(g, own, a->s->height);
	forward_strip(a, ahead, &score, &sum, stat, sums, again);
	Value rows = LLVMBuildSelect(g->b, done, a->rows, number(g, 0), "");
	Loop row = loop_begin(g, number(g, 0), rows, 1);
	Index own_query = uniform_index(g, sum_of(g, a->first, row.i), p->queries, 1);
	finish_row(a, &own_query, sum_of(g, stat, row.i), sum_of(g, sums, row.i));
	loop_end(g, &row);
	loop_end(g, &strip);
	loop_end(g, &block);
	loop_end(g, &heads);
}

// ---- gradients ------------------------------------------------------------------------

typedef struct Products {
	Product score, weight, dq, dk, dv;
	Ahead ahead[3];
} Products;

// Returns how many keys of the block, from the first on, have slopes in the strip: a tile of keys
// may take columns that no row of the strip sees.
static Value slope_end(const Attend *a)
{
	Gen *g = a->g;
	int64_t unit = a->p.halves ? a->p.panel : g->width;
	int64_t most = a->p.halves ? a->s->depth : a->p.score_line / unit * unit;
	if (!a->causal || a->p.matrix) // whose tiles of keys are as wide as panels
		return round_up(g, a->visible, unit);
	Value end = round_up(g, sum_of(g, a->visible, number(g, a->s->key_height)), unit);
	return least(g, end, number(g, most));
}

typedef struct Sums { // that are complete, of an output
	Op op;
	int part; // of local memory
	int64_t line;
	double factor;
	Value own, first, rows; // their first row there and in the output, and how many
	Value from, to;         // columns
} Sums;

// Stores sums while they are in the first cache, and the next product begins.
static void store_sums(const Attend *a, const Sums *s)
{
	Gen *g = a->g;
	for (int o = 0; o < g->kern->nout; o++) {
		const Shape *shape = &val(g->graph, g->kern->out[o])->shape;
		if (val(g->graph, attention_of(g->graph, g->kern->out[o]))->op != s->op)
			continue;
		Loop rows = loop_begin(g, number(g, 0), s->rows, 1);
		Value first = sum_of(g, s->first, rows.i);
		Index row = uniform_index(g, first, shape->dim[a->p.lead.rank], 1);
		Finish f = {.a = a, .out = o, .row = &row, .memory = a->local[s->part]};
		f.place = times(g, sum_of(g, s->own, rows.i), s->line);
		f.factor = real(a, s->factor);
		g->ops->lane_loop(g, s->from, s->to, last_dim(shape), (int)(a->p.panel / g->width),
		                  finish_columns, &f);
		loop_end(g, &rows);
	}
}

// Stores the strip's part of dq if no later block of keys adds to it.
static void store_queries(const Attend *a)
{
	Gen *g = a->g;
	const AttendSizes *p = &a->p;
	Value seen = number(g, p->keys), here = sum_of(g, a->first_key, a->keys);
	if (a->causal)
		seen = least(g, seen, sum_of(g, sum_of(g, a->first, a->rows), shift_of(a)));
	Value done = LLVMBuildICmp(g->b, LLVMIntSLE, seen, here, "");
	Value rows = LLVMBuildSelect(g->b, done, a->rows, number(g, 0), "");
	store_sums(a, &(Sums){O_attend_dq, AT_DQ, p->width_line, a->v->attr->x, a->first, a->first,
	                      rows, number(g, 0), number(g, p->width)});
}

// Computes the probabilities of the strip at `a->first`, line `line` of its block, and adds to its
// part of dq.
static void backward_strip(const Attend *a, const Products *t, Value line, Value again)
{
	Gen *g = a->g;
	const AttendSizes *p = &a->p;
	const Value *local = a->local;
	Value no = LLVMConstInt(g->i1, 0, 0);
	Value own = p->halves ? number(g, 0) : line, end = slope_end(a);
	Value place = times(g, own, p->score_line);
	Value scores = local_element(a, local[AT_SCORES], place);
	Value slopes = local_element(a, local[AT_SLOPES], place);
	Value queries = a_row(a, AT_QUERIES, line, p->width_line, p->width);
	Value gradients = a_row(a, AT_GRADIENTS, line, p->depth_line, p->depth);
	Value width = number(g, full_steps(a, p->width)),
	      depth = number(g, full_steps(a, p->depth));
	multiply_panels(a, &t->score, &(Operands){width, queries, local[AT_KEYS], scores, no},
	                a->visible);
	multiply_panels(a, &t->weight, &(Operands){depth, gradients, local[AT_VALUES], slopes, no},
	                a->visible);
	slope_strip(a, t->ahead, own, end);
	if (p->halves) {
		turn_strip(a, AT_WEIGHT_ROWS, AT_KEY_WEIGHTS, line, end);
		turn_strip(a, AT_SLOPE_ROWS, AT_KEY_SLOPES, line, end);
		slopes = local[AT_SLOPE_ROWS];
	}
	Value to = local_element(a, local[AT_DQ], times(g, a->first, p->width_line));
	multiply_panels(a, &t->dq,
	                &(Operands){steps_of(a, a->visible), slopes, local[AT_KEY_ROWS], to, again},
	                number(g, p->width));
	store_queries(a);
}

typedef struct KeySums {
	Value queries, again, done; // done: no later block of queries adds to them
	Op op;
	int a, b, c;  // local memory
	int64_t line; // of c, and unless b has pairs of b
	double factor;
} KeySums;

// Stores columns [from, to) of the sums of a tile of keys, if they are complete.
static void store_keys(const Attend *a, const KeySums *k, Value keys, Value from, Value to)
{
	Gen *g = a->g;
	Value rows = least(g, number(g, a->s->key_height), minus(g, a->keys, keys));
	rows = LLVMBuildSelect(g->b, k->done, rows, number(g, 0), "");
	store_sums(a, &(Sums){k->op, k->c, k->line, k->factor, keys, sum_of(g, a->first_key, keys),
	                      rows, from, to});
}

// Returns the operands of a product whose rows are keys, `keys` and those after it.
static Operands key_operands(const Attend *a, const KeySums *k, Value keys, Value from)
{
	Gen *g = a->g;
	const Value *local = a->local;
	Value to = local_element(a, local[k->c], times(g, keys, k->line));
	Value steps = steps_of(a, minus(g, k->queries, from));
	if (a->p.halves) {
		int64_t line = attend_half_line(&a->p, a->s->strips * a->s->height);
		Value at = sum_of(g, times(g, keys, line), from);
		Value pairs = times(g, from, a->p.panel / 2);
		return (Operands){steps, half_element(a, local[k->a], at),
		                  local_element(a, local[k->b], pairs), to, k->again};
	}
	Value at = sum_of(g, times(g, from, a->p.score_line), keys);
	return (Operands){steps, local_element(a, local[k->a], at),
	                  local_element(a, local[k->b], times(g, from, k->line)), to, k->again};
}

// Returns the first query of the block that sees one of the keys from `keys` on or, with operands
// of bf16, the first of its strip.
static Value first_seeing(const Attend *a, const KeySums *k, Value keys)
{
	Gen *g = a->g;
	if (!a->causal)
		return number(g, 0);
	Value key = sum_of(g, a->first_key, keys);
	Value from = minus(g, minus(g, key, shift_of(a)), a->first);
	if (!a->p.halves)
		return clamp_to(g, from, k->queries);
	Value some = LLVMBuildICmp(g->b, LLVMIntSLT, from, k->queries, "");
	from = clamp_to(g, from, k->queries);
	from = minus(g, from, LLVMBuildURem(g->b, from, number(g, a->s->height), ""));
	Value none = a->p.matrix ? round_up(g, k->queries, a->s->height) : k->queries;
	return LLVMBuildSelect(g->b, some, from, none, "");
}

// Computes a panel of columns for all keys of the block, so that it stays in the first cache.
static void add_panel(const Attend *a, const Product *p, bool narrow, Value panel,
                      const void *context)
{
	Gen *g = a->g;
	const KeySums *k = context;
	int64_t columns = k->op == O_attend_dk ? a->p.width : a->p.depth;
	Value from = times(g, panel, a->p.panel);
	Value to = least(g, sum_of(g, from, number(g, a->p.panel)), number(g, columns));
	Loop keys = loop_begin(g, number(g, 0), a->keys, a->s->key_height);
	Operands o = key_operands(a, k, keys.i, first_seeing(a, k, keys.i));
	multiply_panel(a, p, narrow, panel, &o);
	store_keys(a, k, keys.i, from, to);
	loop_end(g, &keys);
}

static void add_panels(const Attend *a, const Product *p, const KeySums *k, int64_t columns)
{
	each_panel(a, p, number(a->g, columns), add_panel, k);
}

// Computes all columns for a tile of keys, whose rows of bf16 stay in the first cache.
static void add_keys_in_turn(const Attend *a, const Product *p, const KeySums *k, int64_t columns)
{
	Gen *g = a->g;
	Loop keys = loop_begin(g, number(g, 0), a->keys, a->s->key_height);
	Operands o = key_operands(a, k, keys.i, first_seeing(a, k, keys.i));
	multiply_panels(a, p, &o, number(g, columns));
	store_keys(a, k, keys.i, number(g, 0), number(g, columns));
	loop_end(g, &keys);
}

// Adds to dk and dv what the block of `queries` rows from a->first on gives.
static void add_keys(const Attend *a, const Products *t, Value queries, Value again, Value done)
{
	const AttendSizes *p = &a->p;
	KeySums dv = {.queries = queries, .again = again, .done = done}, dk = dv;
	dv.op = O_attend_dv, dk.op = O_attend_dk;
	dv.a = AT_SCORES, dv.b = AT_GRADIENTS, dv.c = AT_DV, dv.line = p->depth_line;
	dk.a = AT_SLOPES, dk.b = AT_QUERIES, dk.c = AT_DK, dk.line = p->width_line;
	dv.factor = 1, dk.factor = a->v->attr->x;
	if (p->halves) {
		dv.a = AT_KEY_WEIGHTS, dv.b = AT_GRADIENT_PAIRS;
		dk.a = AT_KEY_SLOPES, dk.b = AT_QUERY_PAIRS;
	}
	void (*add)(const Attend *, const Product *, const KeySums *, int64_t columns) =
	    p->halves ? add_keys_in_turn : add_panels;
	add(a, &t->dv, &dv, p->depth);
	add(a, &t->dk, &dk, p->width);
}

// Returns the product whose rows are keys, and that adds up along queries.
static Product key_product(const Attend *a, int64_t columns, int64_t line, int rows, int pairs)
{
	int64_t panel = a->p.panel, queries = a->s->strips * a->s->height;
	bool narrow = has_narrow_rest(a, columns);
	Layout z = {a->s->key_height, 1, a->p.score_line, line, line, rows, pairs};
	if (!a->p.halves)
		return product_new(a, z, panel, false, narrow, NULL);
	z = (Layout){
	    a->s->key_height, attend_half_line(&a->p, queries), 1, panel, line, rows, pairs};
	return product_new(a, z, panel_line(a, queries), false, narrow, NULL);
}

static Products backward_products(const Attend *a)
{
	const AttendSizes *p = &a->p;
	Ahead score = ahead_new(a, -1, p->width), weight = ahead_new(a, -1, p->depth);
	Ahead dq = ahead_new(a, p->width, a->s->depth);
	add_operand(a, &score, 0);
	add_operand(a, &score, 1);
	add_operand(a, &weight, 2);
	add_operand(a, &weight, GRADIENT);
	for (int op = O_attend_dq; op <= O_attend_dv; op++)
		add_output(a, &dq, op);
	int64_t panel = p->panel, keys = a->causal ? -1 : p->keys;
	int64_t scores = p->score_line, width = p->width_line, depth = p->depth_line;
	int64_t query = a_line(a, width, p->width), gradient = a_line(a, depth, p->depth);
	int64_t slopes = a_line(a, scores, a->s->depth);
	Products t = {
	    .score = strip_product(a, (Layout){0, query, 1, panel, scores, AT_QUERIES, AT_KEYS},
	                           panel_line(a, p->width), keys, &score),
	    .weight =
	        strip_product(a, (Layout){0, gradient, 1, panel, scores, AT_GRADIENTS, AT_VALUES},
	                      panel_line(a, p->depth), keys, &weight),
	    .dq = strip_product(a, (Layout){0, slopes, 1, panel, width, AT_SLOPE_ROWS, AT_KEY_ROWS},
	                        panel_line(a, a->s->depth), p->width, &dq)};
	t.ahead[0] = score, t.ahead[1] = weight, t.ahead[2] = dq;
	t.dk = key_product(a, p->width, width, AT_KEY_SLOPES, AT_QUERY_PAIRS);
	t.dv = key_product(a, p->depth, depth, AT_KEY_WEIGHTS, AT_GRADIENT_PAIRS);
	return t;
}

// A worker has some heads: the sums over queries and those over keys are its own.
static void backward(Attend *a)
{
	Gen *g = a->g;
	const AttendSizes *p = &a->p;
	const Sched *s = a->s;
	int64_t rows = s->strips * s->height;
	Loop heads = heads_begin(a, g->worker);
	clear_bias_slopes(a);
	Products t = backward_products(a);
	Loop block = loop_begin(g, number(g, 0), number(g, p->blocks), 1);
	go_to_keys(a, block.i);
	Value again = LLVMBuildICmp(g->b, LLVMIntNE, block.i, number(g, 0), "");
	pack_b_columns(a, 1, AT_KEYS, a->v->attr->x);
	pack_b_columns(a, 2, AT_VALUES, 1);
	pack_b_rows(a, 1, AT_KEY_ROWS);
	Value begin = number(g, 0); // the first block of queries that sees a key
	if (a->causal) {
		begin = clamp_to(g, minus(g, a->first_key, shift_of(a)), number(g, p->queries));
		begin = LLVMBuildUDiv(g->b, begin, number(g, rows), "");
	}
	Loop part = loop_begin(g, begin, number(g, p->parts), 1);
	Value from = times(g, part.i, s->strips);
	Value to = end_after(g, from, s->strips, number(g, p->strips));
	Value first = first_query(a, from), count = minus(g, first_query(a, to), first);
	pack_a_rows(a, 0, first, count, AT_QUERIES, p->width_line, AT_QUERY_PAIRS);
	pack_a_rows(a, GRADIENT, first, count, AT_GRADIENTS, p->depth_line, AT_GRADIENT_PAIRS);
	Loop strip = loop_begin(g, from, to, 1);
	go_to_strip(a, strip.i);
	backward_strip(a, &t, minus(g, a->first, first), again);
	loop_end(g, &strip);
	a->first = first;
	add_keys(a, &t, count, LLVMBuildICmp(g->b, LLVMIntNE, part.i, begin, ""),
	         LLVMBuildICmp(g->b, LLVMIntEQ, part.i, number(g, p->parts - 1), ""));
	loop_end(g, &part);
	loop_end(g, &block);
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
	attend_begin(&a);
	if (a.p.back)
		backward(&a);
	else
		forward(&a);
	attend_end(&a);
}
