// row_blocks.c: computes logits and what depends on them in blocks of rows.
// The product of hidden states and a vocabulary is the largest value of a language model, and only
// the loss and its gradient read it: row by row, or as sums over rows. Each block of rows has a
// product of its own, and all that is as large as it, so that the logits never exist as a whole.
// What others read is joined from the blocks, or is the sum of theirs, in their order.
// Logits that are an output, or that anything reads otherwise, stay whole.
#include "passes.h"
#include <string.h>

enum {
	LARGE = 1 << 22, // elements from which logits are computed in blocks
	WIDE = 4,        // columns for each step of the sums
	ROWS = 512,      // of a block; twice as many where logits are not large, since each block
	                 // packs the weights of the vocabulary again
	MANY = 1024, // the same where instructions multiply pairs of bf16, which for 256 rows takes
	             // little longer than packing does
	BLOCKS = 16, // at most
};

typedef enum Part { // of a value that depends on the logits: what a block of rows is of it
	WHOLE,      // nothing
	BY_ROW,     // its rows: the first axes, together
	BY_COLUMN,  // its columns: the last of two axes
	SUM,        // a summand of all of it
} Part;

typedef struct RowBlocks {
	Arena *scratch;
	const Graph *from;
	Graph *to;
	const int *live;
	const Machine *machine;
	int64_t rows, elements; // of the logits
	int64_t most;           // rows of a block
	Part *part;             // by Ref: of what is computed in blocks
	Ref *now;               // by Ref: its copy
	Ref *block;             // by Ref: its part of the block at `first`, of `count` rows
	int64_t first, count;
} RowBlocks;

// ---- what is computed in blocks -------------------------------------------------------

// Returns how many first axes have all the rows together; 0: none.
static int row_axes(const RowBlocks *b, const Shape *s)
{
	int64_t rows = 1;
	for (int a = 0; a < s->rank; a++)
		if ((rows *= s->dim[a]) == b->rows)
			return a + 1;
	return 0;
}

// True if the first n axes of u are those of s, of as many axes.
static bool same_lead(const Shape *s, const Shape *u, int n)
{
	return u->rank == s->rank && !memcmp(u->dim, s->dim, sizeof *u->dim * (size_t)n);
}

static Part part_of_map(const RowBlocks *b, const Val *v)
{
	int lead = row_axes(b, &v->shape);
	Part part = WHOLE;
	if (v->nin == 1 && b->part[v->in[0]] == BY_COLUMN)
		return BY_COLUMN;
	for (int k = 0; k < v->nin; k++) {
		if (b->part[v->in[k]] == WHOLE)
			continue;
		const Shape *own = &val(b->from, v->in[k])->shape;
		if (b->part[v->in[k]] != BY_ROW || !lead || !same_lead(&v->shape, own, lead))
			return WHOLE;
		part = BY_ROW;
	}
	return part;
}

static Part part_of_reduction(const RowBlocks *b, const Val *v)
{
	const Shape *s = &val(b->from, v->in[0])->shape;
	int lead = row_axes(b, s);
	bool all = v->op == O_sum, none = v->op != O_cumsum;
	for (int a = 0; a < lead; a++) {
		all &= s->dim[a] == 1 || has_axis(v->attr, a);
		none &= s->dim[a] == 1 || !has_axis(v->attr, a);
	}
	if (b->part[v->in[0]] != BY_ROW)
		return WHOLE;
	return none ? BY_ROW : all ? SUM : WHOLE;
}

static Part part_of_move(const RowBlocks *b, const Val *v)
{
	const Shape *s = &val(b->from, v->in[0])->shape;
	int lead = row_axes(b, s);
	if (b->part[v->in[0]] != BY_ROW)
		return WHOLE;
	if (v->op == O_permute)
		return s->rank == 2 && v->attr->i[0] == 1 ? BY_COLUMN : WHOLE;
	bool kept = v->op == O_reshape ? row_axes(b, &v->shape) > 0
	                               : v->op == O_expand && same_lead(s, &v->shape, lead);
	return kept ? BY_ROW : WHOLE;
}

static Part part_of_product(const RowBlocks *b, const Val *v)
{
	Part left = b->part[v->in[0]], right = b->part[v->in[1]];
	if (v->shape.rank != 2)
		return WHOLE;
	if (left == BY_ROW && right == WHOLE)
		return BY_ROW;
	bool columns = left == BY_COLUMN && (right == WHOLE || right == BY_ROW);
	return columns || (left == WHOLE && right == BY_ROW) ? SUM : WHOLE;
}

static Part part_of(const RowBlocks *b, const Val *v)
{
	switch (prims[v->op].cls) {
	case C_map:
		return part_of_map(b, v);
	case C_reduce:
		return part_of_reduction(b, v);
	case C_move:
		return v->nin == 1 ? part_of_move(b, v) : WHOLE;
	case C_dot:
		return part_of_product(b, v);
	default:
		return WHOLE;
	}
}

// True if r is as large as the logits.
static bool is_wide(const RowBlocks *b, Ref r)
{
	bool apart = b->part[r] == BY_ROW || b->part[r] == BY_COLUMN;
	return apart && count_of(&val(b->from, r)->shape) >= b->elements;
}

// Marks the values between the logits and the last that reads a value as large as they are.
static bool *find_inside(const RowBlocks *b, Ref logits, const bool *after)
{
	const Graph *g = b->from;
	bool *inside = NEWS(b->scratch, bool, g->nval);
	inside[logits] = true;
	for (Ref r = (Ref)g->nval - 1; r > logits; r--)
		for (int k = 0; k < val(g, r)->nin && b->live[r]; k++)
			inside[r] |= is_wide(b, val(g, r)->in[k]);
	for (Ref r = (Ref)g->nval - 1; r > logits; r--)
		for (int k = 0; k < val(g, r)->nin && inside[r]; k++)
			inside[val(g, r)->in[k]] |= after[val(g, r)->in[k]];
	return inside;
}

// Marks what is read as a whole: by outputs, stores, and values that are not computed in blocks.
static bool *find_read(const RowBlocks *b)
{
	const Graph *g = b->from;
	bool *read = NEWS(b->scratch, bool, g->nval);
	for (Ref r = 1; r < (Ref)g->nval; r++)
		for (int k = 0; k < val(g, r)->nin && b->live[r] && !b->part[r]; k++)
			read[val(g, r)->in[k]] = true;
	for (int i = 0; i < g->outs.count; i++)
		read[g->outs.at[i].val] = true;
	for (int i = 0; i < g->stores.count; i++)
		read[g->stores.at[i].val] = true;
	return read;
}

// Finds the parts of all values that are computed in blocks. False if one has none, if one that is
// as large as the logits is read as a whole, or if no rows of such have a largest element.
static bool find_parts(RowBlocks *b, Ref logits)
{
	const Graph *g = b->from;
	bool *after = NEWS(b->scratch, bool, g->nval), largest = false;
	memset(b->part, 0, sizeof *b->part * (size_t)g->nval);
	after[logits] = true;
	b->part[logits] = BY_ROW;
	for (Ref r = logits + 1; r < (Ref)g->nval; r++) {
		for (int k = 0; k < val(g, r)->nin && b->live[r]; k++)
			after[r] |= after[val(g, r)->in[k]];
		if (after[r])
			b->part[r] = part_of(b, val(g, r));
	}
	const bool *inside = find_inside(b, logits, after);
	for (Ref r = logits; r < (Ref)g->nval; r++) {
		if (inside[r] && !b->part[r])
			return false;
		b->part[r] = inside[r] ? b->part[r] : WHOLE;
		largest |= inside[r] && val(g, r)->op == O_amax && is_wide(b, val(g, r)->in[0]);
	}
	const bool *read = find_read(b);
	for (Ref r = logits; r < (Ref)g->nval; r++)
		if (read[r] && (is_wide(b, r) || b->part[r] == BY_COLUMN))
			return false;
	return largest;
}

// Returns the most rows that the logits v may have without being divided into blocks.
static int64_t whole_rows(const RowBlocks *b, const Val *v)
{
	bool pairs = b->machine->pairs && val(b->from, v->in[0])->type == E_bf16;
	return pairs ? MANY : ROWS;
}

static bool find_logits(RowBlocks *b)
{
	for (Ref r = 1; r < (Ref)b->from->nval; r++) {
		const Val *v = val(b->from, r);
		if (v->op != O_dot || !b->live[r] || v->shape.rank != 2)
			continue;
		b->rows = v->shape.dim[0];
		b->elements = count_of(&v->shape);
		int64_t whole = whole_rows(b, v);
		b->most = MAX(whole, MIN(2 * ROWS, 2 * LARGE / MAX(1, v->shape.dim[1])));
		if (b->elements >= LARGE && b->rows > whole &&
		    v->shape.dim[1] >= WIDE * last_dim(&val(b->from, v->in[0])->shape) &&
		    find_parts(b, r))
			return true;
	}
	return false;
}

// ---- a block --------------------------------------------------------------------------

static void copy(RowBlocks *b, Ref r)
{
	const Val *v = val(b->from, r);
	Ref *in = NEWS(b->scratch, Ref, v->nin + 1);
	if (b->now[r])
		return;
	for (int k = 0; k < v->nin; k++) {
		copy(b, v->in[k]);
		in[k] = b->now[v->in[k]];
	}
	b->to->from = v->from;
	b->now[r] = put_as(b->to, v, in);
}

// Returns a shape with the axes of rows as one axis of n.
static Shape with_rows(const RowBlocks *b, Shape s, int64_t n)
{
	int lead = row_axes(b, &s);
	for (int a = 0; a < lead; a++)
		s.dim[a] = a + 1 < lead ? 1 : n;
	return s;
}

// Returns `count` elements along an axis of a value that exists as a whole, from `first` on.
static Ref put_part(RowBlocks *b, Ref x, int axis)
{
	Shape s = val(b->to, x)->shape;
	int64_t start[RANK] = {0};
	start[axis] = b->first;
	s.dim[axis] = b->count;
	return put_slice(b->to, x, start, s.dim, NULL);
}

static Ref put_rows(RowBlocks *b, Ref r)
{
	const Shape *s = &val(b->from, r)->shape;
	copy(b, r);
	Ref x = put_reshape(b->to, b->now[r], with_rows(b, *s, b->rows));
	return put_part(b, x, row_axes(b, s) - 1);
}

static Ref put_block(RowBlocks *b, Ref r);

// Returns the block's part of an operand of a map, or of a broadcast, to a value of shape s.
static Ref put_operand(RowBlocks *b, Ref r, const Shape *s)
{
	const Val *v = val(b->from, r);
	int lead = row_axes(b, s);
	bool made = (prims[v->op].cls == C_map || v->op == O_iota || v->op == O_expand) &&
	            count_of(&v->shape) >= b->elements;
	int64_t rows = 1;
	for (int a = 0; a < lead && a < v->shape.rank; a++)
		rows *= v->shape.dim[a];
	if (b->part[r] || (made && same_lead(s, &v->shape, lead)))
		return put_block(b, r);
	copy(b, r);
	if (rows == 1)
		return b->now[r];
	if (same_lead(s, &v->shape, lead))
		return put_rows(b, r);
	Shape full = v->shape;
	memcpy(full.dim, s->dim, sizeof *s->dim * (size_t)lead);
	Ref x = put_expand(b->to, b->now[r], full);
	return put_part(b, put_reshape(b->to, x, with_rows(b, full, b->rows)), lead - 1);
}

static Ref put_product(RowBlocks *b, Ref r)
{
	const Val *v = val(b->from, r);
	Ref left = v->in[0], right = v->in[1], in[2];
	for (int k = 0; k < 2; k++)
		if (!b->part[v->in[k]])
			copy(b, v->in[k]);
	if (b->part[r] == BY_ROW) {
		in[0] = b->part[left] ? b->block[left] : put_rows(b, left);
		in[1] = b->now[right];
	} else {
		in[0] = b->part[left] ? b->block[left] : put_part(b, b->now[left], 1);
		in[1] = b->part[right] ? b->block[right] : put_part(b, b->now[right], 0);
	}
	return put_as(b->to, v, in);
}

static Ref put_block(RowBlocks *b, Ref r)
{
	const Val *v = val(b->from, r);
	Shape s = with_rows(b, v->shape, b->count);
	Ref in[3];
	if (b->block[r])
		return b->block[r];
	b->to->from = v->from;
	for (int k = 0; k < v->nin && prims[v->op].cls == C_map; k++)
		in[k] = b->part[r] == BY_COLUMN ? b->block[v->in[k]]
		                                : put_operand(b, v->in[k], &v->shape);
	if (v->op == O_dot)
		return b->block[r] = put_product(b, r);
	if (v->op == O_iota && v->attr->i[0] < row_axes(b, &v->shape))
		return b->block[r] = put_rows(b, r);
	if (v->op == O_iota)
		return b->block[r] = put_iota(b->to, s, (int)v->attr->i[0]);
	if (v->op == O_expand)
		return b->block[r] = put_expand(b->to, put_operand(b, v->in[0], &v->shape), s);
	if (v->op == O_reshape)
		return b->block[r] = put_reshape(b->to, b->block[v->in[0]], s);
	if (prims[v->op].cls != C_map)
		in[0] = b->block[v->in[0]];
	return b->block[r] = put_as(b->to, v, in);
}

// ---- all blocks -----------------------------------------------------------------------

typedef struct Result { // that others read
	Ref val, sum;   // sum: of the blocks so far
	Refs parts;
} Result;

typedef VEC(Result) Results;

static Results find_results(const RowBlocks *b)
{
	const bool *read = find_read(b);
	Results results = {0};
	for (Ref r = 1; r < (Ref)b->from->nval; r++)
		if (read[r] && b->part[r])
			PUSH(b->scratch, results, (Result){.val = r});
	return results;
}

static void add_part(RowBlocks *b, Result *result)
{
	Ref x = b->block[result->val];
	b->to->from = val(b->from, result->val)->from;
	if (b->part[result->val] == BY_ROW)
		PUSH(b->scratch, result->parts, x);
	else
		result->sum = result->sum ? put2(b->to, O_add, result->sum, x) : x;
}

static Ref join_parts(RowBlocks *b, const Result *result)
{
	const Shape *s = &val(b->from, result->val)->shape;
	const Refs *parts = &result->parts;
	b->to->from = val(b->from, result->val)->from;
	if (!parts->count)
		return result->sum;
	Ref x = put_concat(b->to, row_axes(b, s) - 1, parts->count, parts->at);
	return put_reshape(b->to, x, *s);
}

static void put_blocks(RowBlocks *b)
{
	const Graph *g = b->from;
	Results results = find_results(b);
	int64_t blocks = MIN(BLOCKS, MAX(2, ceil_div(b->rows, b->most))),
	        size = ceil_div(b->rows, blocks);
	for (b->first = 0; b->first < b->rows; b->first += size) {
		b->count = MIN(size, b->rows - b->first);
		b->block = NEWS(b->scratch, Ref, g->nval);
		for (Ref r = 1; r < (Ref)g->nval; r++)
			if (b->part[r])
				put_block(b, r);
		for (int i = 0; i < results.count; i++)
			add_part(b, &results.at[i]);
	}
	for (int i = 0; i < results.count; i++)
		b->now[results.at[i].val] = join_parts(b, &results.at[i]);
}

const Graph *row_blocks_pass(Arena *arena, const Graph *from, const Machine *machine)
{
	Arena *scratch = arena_within(arena);
	RowBlocks b = {.scratch = scratch,
	               .from = from,
	               .live = graph_uses(scratch, from),
	               .machine = machine};
	b.part = NEWS(scratch, Part, from->nval);
	if (machine->threads > 1 || !find_logits(&b)) {
		arena_free(scratch);
		return from;
	}
	Graph *to = b.to = graph_like(arena, from);
	b.now = NEWS(scratch, Ref, from->nval);
	bool put = false;
	for (Ref r = 1; r < (Ref)from->nval; r++) {
		if (b.live[r] && b.part[r] && !put)
			put_blocks(&b);
		put |= b.part[r] != WHOLE;
		if (b.live[r] && !b.part[r])
			copy(&b, r);
	}
	copy_ends(to, from, b.now);
	arena_free(scratch);
	return graph_live(arena, to);
}
