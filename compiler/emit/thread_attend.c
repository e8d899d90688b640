// thread_attend.c: emits attention, and the gradients of its operands, by blocks of threads.
// A worker has a block of rows of a head: queries or, for the gradients of keys and values, keys.
// Their operands stay in shared memory while blocks of the others, the columns, come one after the
// other. Each thread has scores in registers, and turns them into probabilities where they are:
// forward by the largest score of the row so far, by which earlier sums are rescaled (online
// softmax), backward by the statistics of the query. Probabilities go through shared memory into
// the next product, whose sums stay in registers to the end. If halves are multiplied by warps that
// have rows of their own, probabilities stay in registers, too, and columns are copied while those
// before them are multiplied. Blocks that a causal mask hides are skipped. Invariant: a sum is that
// of one worker, block by block, and nothing of the size of the scores is in memory.
#include "thread_attend.h"
#include <math.h>
#include <string.h>

// ---- scores ---------------------------------------------------------------------------

static int lines_of(const Product *p, int o) // rows or columns of a thread
{
	int64_t ways = p->d.kind->ways;
	return (int)(p->d.size[o] / (o ? ways : p->d.g->target->machine->threads / ways));
}

static int line_of(const Product *p, int o, int i)
{
	return p->d.kind->line_of(&p->d, o, i);
}

// Numbers of queries and keys fit in 32 bits, of which a thread has twice as many.
static Value narrow(Gen *g, Value i)
{
	return LLVMBuildTrunc(g->b, i, g->i32, "");
}

static Value narrow_number(const ThreadAttend *t, int64_t n)
{
	return LLVMConstInt(t->a.g->i32, (uint64_t)n, 1);
}

static Value is_less(const ThreadAttend *t, Value i, int64_t n)
{
	return LLVMBuildICmp(t->a.g->b, LLVMIntSLT, i, narrow_number(t, n), "");
}

// True if a thread's lines are a constant apart, also in memory.
static bool are_apart(const ThreadAttend *t, const Lines *lines)
{
	return lines != &t->row && lines->all % t->z.columns == 0;
}

// Sets the thread's rows (o: 0) or columns of a product, from `first` on.
static void find_lines(ThreadAttend *t, Product *p, int o, Value first, Lines *lines)
{
	Gen *g = t->a.g;
	int64_t block = lines == &t->row ? t->z.height : t->z.columns;
	for (int i = 0; i < lines_of(p, o); i++) {
		Value place = p->d.kind->line_place(&p->d, o, i);
		if (lines == &t->row && t->z.beside)
			place = LLVMBuildURem(g->b, place, number(g, t->z.height), "");
		Value at = LLVMBuildAdd(g->b, narrow(g, first), narrow(g, place), ""), in = at;
		Value last = narrow_number(t, lines->all - 1);
		if (lines->all % block)
			in = LLVMBuildSelect(g->b, is_less(t, at, lines->all), at, last, "");
		in = LLVMBuildZExt(g->b, in, g->i64, "");
		if (are_apart(t, lines))
			in = sum_of(g, first, place);
		lines->at[i] = at;
		lines->index[i] = uniform_index(g, in, lines->all, 1);
	}
}

static void find_columns(ThreadAttend *t, Product *score, Value first)
{
	Gen *g = t->a.g;
	find_lines(t, score, 1, first, &t->column);
	for (int i = 0; i < lines_of(score, 1); i++)
		t->apart[i] = LLVMBuildSub(g->b, t->column.at[i], t->column.at[0], "");
}

typedef struct Pair { // of a query and a key
	const Index *query, *key;
	Value used; // false: masked; NULL: it is not
} Pair;

static Value also(Gen *g, Value before, Value condition)
{
	return before ? both(g, before, condition) : condition;
}

static Pair pair_at(const ThreadAttend *t, const Product *score, int i)
{
	Gen *g = t->a.g;
	const AttendSizes *p = &t->a.p;
	int row = line_of(score, 0, i), column = line_of(score, 1, i);
	Pair x = {.query = t->keys ? &t->column.index[column] : &t->row.index[row],
	          .key = t->keys ? &t->row.index[row] : &t->column.index[column]};
	if (t->a.causal) { // by the distance of the row's diagonal from the thread's first column
		int64_t past = p->keys - p->queries;
		Value diagonal = narrow_number(t, t->keys ? -past : past);
		diagonal = LLVMBuildAdd(g->b, t->row.at[row], diagonal, "");
		diagonal = LLVMBuildSub(g->b, diagonal, t->column.at[0], "");
		LLVMIntPredicate seen = t->keys ? LLVMIntSGE : LLVMIntSLE;
		x.used = LLVMBuildICmp(g->b, seen, t->apart[column], diagonal, "");
	}
	if (t->column.all % t->z.columns)
		x.used = also(g, x.used, is_less(t, t->column.at[column], t->column.all));
	return x;
}

// Returns score i, in units: -inf where masked. *shown: the mask that is an operand; NULL: there is
// none.
static Value score_at(const ThreadAttend *t, Product *score, int i, const Pair *pair, Value *shown)
{
	Gen *g = t->a.g;
	Value x = read_sum(&score->d, i);
	if (t->unit == 1)
		x = LLVMBuildFMul(g->b, x, real(&t->a, t->a.v->attr->x), "");
	*shown = t->a.shown ? at_element(&t->a, t->a.shown, pair->query, pair->key) : NULL;
	if (*shown)
		x = LLVMBuildSelect(g->b, *shown, x, real(&t->a, 0), "");
	if (t->a.bias)
		x = LLVMBuildFAdd(g->b, x, at_element(&t->a, t->a.bias, pair->query, pair->key),
		                  "");
	return pair->used ? LLVMBuildSelect(g->b, pair->used, x, real(&t->a, -INFINITY), "") : x;
}

// Returns x times the factor of weight i.
static Value weighed(const ThreadAttend *t, const Product *score, int i, Value x)
{
	if (!t->a.factor)
		return x;
	Pair pair = pair_at(t, score, i);
	Value factor = at_element(&t->a, t->a.factor, pair.query, pair.key);
	return LLVMBuildFMul(t->a.g->b, x, factor, "");
}

// Returns what power() subtracts for a score of this unit.
static Value exponent_base(const ThreadAttend *t, Value score, double unit)
{
	Value per_2 = real(&t->a, unit * M_LOG2E);
	return t->fast ? LLVMBuildFMul(t->a.g->b, score, per_2, "") : score;
}

// Returns e to the difference of a score and the one of that base.
static Value power(const ThreadAttend *t, Value x, Value base)
{
	Gen *g = t->a.g;
	if (!t->fast)
		return math_exp(g, LLVMBuildFSub(g->b, x, base, ""));
	base = LLVMBuildFNeg(g->b, base, "");
	return g->ops->exp2(g, mul_add(g, x, real(&t->a, t->unit * M_LOG2E), base));
}

// Stores `n` values side by side as `type`, of which the address is that of the first.
static void store_values(ThreadAttend *t, Elem type, Value to, int n, const Value *x)
{
	Gen *g = t->a.g;
	int bytes = elems[type].bytes;
	Value v[2];
	if (n == 2 && is_half(type) && g->ops->pack) {
		v[0] = g->ops->pack(g, type, x);
		store_side(g, g->i32, n * bytes, to, 1, v);
		return;
	}
	for (int e = 0; e < n; e++)
		v[e] = cast_value(g, x[e], t->a.type, type);
	store_side(g, memory_type(g, type), bytes, to, n, v);
}

// Brings values of the thread's scores to operand a of a product of their columns, from `first` on,
// or of their rows.
static void put_scores(ThreadAttend *t, Product *score, Product *to, Value first, const Value *x)
{
	Gen *g = t->a.g;
	const ThreadTile *d = &score->d;
	if (to->d.kind->hold) {
		to->d.kind->hold(&to->d, score->sums, x);
		return;
	}
	bool low = is_half(t->z.matrix), along = to->d.share[0].along;
	int n = low ? 2 : 1; // columns side by side
	for (int i = 0; i < score->sums; i += n) {
		Value row = d->kind->line_place(&score->d, 0, line_of(score, 0, i));
		Value column = d->kind->line_place(&score->d, 1, line_of(score, 1, i));
		column = sum_of(g, first, column);
		Value at = attend_place(to, 0, along ? column : row, along ? row : column);
		store_values(t, low ? t->z.matrix : t->a.type, at, n, x + i);
	}
}

// ---- results --------------------------------------------------------------------------

static Op op_of_output(const ThreadAttend *t, int o)
{
	const Graph *g = t->a.g->graph;
	return val(g, attention_of(g, t->a.g->kern->out[o]))->op;
}

// Stores `n` elements side by side of output o. Forward, their numbers keep 64 bits: what is known
// before the loop takes a register less there, by ptxas 13.0.
static void store_elements(ThreadAttend *t, int o, const Index *idx, int n, Value *x)
{
	Gen *g = t->a.g;
	const Val *v = val(g->graph, g->kern->out[o]);
	g->shares = !t->a.p.back;
	Value place = element_lanes(g, v, idx).base;
	g->shares = false;
	Value to = place_in(g, memory_type(g, v->type), out_address(g, o), place);
	store_values(t, v->type, to, n, x);
}

// Returns how many sums of a thread are side by side in rows of output o, and aligned there.
static int sums_side(const ThreadAttend *t, int o, int64_t columns)
{
	Block block = t->a.g->kern->to[o].block;
	bool aligned = block != B_input && block != B_output && columns % 2 == 0;
	return is_half(t->z.matrix) && aligned ? 2 : 1;
}

// Returns where a thread of the second warpgroup puts value i for that of the first with the same
// rows and columns of sums.
static Value handed_at(const ThreadAttend *t, int i)
{
	Gen *g = t->a.g;
	int64_t threads = g->target->machine->threads / 2;
	Value own = LLVMBuildURem(g->b, t->thread, number(g, threads), "");
	return place_in(g, t->a.elem, t->shared, sum_of(g, own, number(g, i * threads)));
}

static void hand_over(const ThreadAttend *t, int i, Value x)
{
	store_side(t->a.g, t->a.elem, (int)t->a.p.bytes, handed_at(t, i), 1, &x);
}

static Value load_handed(const ThreadAttend *t, int i)
{
	Value x;
	load_side(t->a.g, t->a.elem, (int)t->a.p.bytes, handed_at(t, i), 1, &x);
	return x;
}

// Returns sum i; of warpgroups with the same rows, their sum, which only the first computes.
static Value joined_sum(const ThreadAttend *t, Product *p, int i)
{
	Gen *g = t->a.g;
	Value x = read_sum(&p->d, i), *fade = p->fade[line_of(p, 0, i)];
	if (!t->z.beside)
		return x;
	Value other = load_handed(t, p->handed + i);
	if (!*fade)
		return LLVMBuildFAdd(g->b, x, other, "");
	return mul_add(g, other, fade[1], LLVMBuildFMul(g->b, x, fade[0], ""));
}

// Stores the sums of a product times `factor[row]` (some: else zeros) as these rows of output o.
static void store_sums(ThreadAttend *t, Product *p, int o, const Lines *rows, const Value *factor,
                       const Value *some)
{
	Gen *g = t->a.g;
	int64_t columns = last_dim(&val(g->graph, g->kern->out[o])->shape);
	int n = sums_side(t, o, columns);
	for (int i = 0; i < p->sums; i += n) {
		int row = line_of(p, 0, i);
		Value at = p->d.kind->line_place(&p->d, 1, line_of(p, 1, i)), inside = NULL, x[2];
		if (rows->all % p->d.size[0])
			inside = is_less(t, rows->at[row], rows->all);
		if (columns % p->d.size[1])
			inside = also(g, inside, is_less(t, narrow(g, at), columns));
		Loop when = when_begin(g, inside ? inside : LLVMConstInt(g->i1, 1, 0));
		for (int e = 0; e < n; e++) {
			x[e] = LLVMBuildFMul(g->b, joined_sum(t, p, i + e), factor[row], "");
			if (some)
				x[e] = LLVMBuildSelect(g->b, some[row], x[e], real(&t->a, 0), "");
		}
		Index column = uniform_index(g, at, columns, n), idx[RANK];
		attend_index(&t->a, &rows->index[row], &column, idx);
		store_elements(t, o, idx, n, x);
		when_end(g, &when);
	}
}

// Stores the sums, times `factor`, as each output that is `op`.
static void store_gradient(ThreadAttend *t, Product *p, Op op, const Lines *rows, double factor)
{
	Gen *g = t->a.g;
	Value each[SUMS];
	for (int i = 0; i < lines_of(p, 0); i++)
		each[i] = real(&t->a, factor);
	for (int o = 0; o < g->kern->nout; o++)
		if (op_of_output(t, o) == op)
			store_sums(t, p, o, rows, each, NULL);
}

// ---- forward --------------------------------------------------------------------------

// Shares one value per row with the threads that have scores of it.
static void share_rows(ThreadAttend *t, Product *score, Value ways, const Value *x)
{
	Gen *g = t->a.g;
	for (int i = 0; i < lines_of(score, 0) && !t->z.own_rows; i++) {
		Value row = score->d.kind->line_place(&score->d, 0, i);
		Value at = sum_of(g, times(g, row, ATTEND_WAYS), score->d.kind->way(&score->d));
		store_side(g, t->a.elem, (int)t->a.p.bytes, place_in(g, t->a.elem, ways, at), 1,
		           &x[i]);
	}
}

// Reduces the values of all threads of each row, in one order.
static void reduce_rows(ThreadAttend *t, Product *score, Value ways, Op op, Value *x)
{
	Gen *g = t->a.g;
	int n = WIDE / (int)t->a.p.bytes, rows = lines_of(score, 0);
	for (int r = 0; r < rows && t->z.own_rows; r++)
		x[r] = score->d.kind->reduce_row(&score->d, op, x[r]);
	if (t->z.own_rows)
		return;
	Value all[SUMS];
	for (int r = 0; r < rows; r++)
		all[r] = variable(g, reduce_start(g, op, t->a.type));
	Loop loop = loop_begin(g, number(g, 0), number(g, ATTEND_WAYS), n);
	for (int r = 0; r < rows; r++) {
		Value at = times(g, score->d.kind->line_place(&score->d, 0, r), ATTEND_WAYS);
		Value own[WIDE], from = place_in(g, t->a.elem, ways, sum_of(g, at, loop.i));
		load_side(g, t->a.elem, (int)t->a.p.bytes, from, n, own);
		for (int e = 0; e < n; e++) {
			Value before = read_variable(g, all[r]);
			set_variable(g, all[r], reduce_step(g, op, t->a.type, before, own[e]));
		}
	}
	loop_end(g, &loop);
	for (int r = 0; r < rows; r++)
		x[r] = read_variable(g, all[r]);
}

typedef struct Softmax {               // by row of the thread: variables
	Value most[SUMS], total[SUMS]; // total: of its own columns
	Value ways;                    // in shared memory
} Softmax;

// A score that is NaN makes the sum of its row NaN: the largest need not be.
static Value larger(const ThreadAttend *t, Value a, Value b)
{
	Gen *g = t->a.g;
	Value in[] = {a, b};
	return is_half(t->z.matrix)
	           ? intrinsic(g, "llvm.maxnum", 1, (LLVMTypeRef[]){t->a.elem}, 2, in)
	           : reduce_step(g, O_amax, t->a.type, a, b);
}

// Finds the thread's scores and the largest of each row.
static void share_most(ThreadAttend *t, Product *score, const Softmax *s, Value *x, Value *most)
{
	for (int i = 0; i < score->sums; i++) {
		Pair pair = pair_at(t, score, i);
		Value shown, *m = &most[line_of(score, 0, i)];
		x[i] = score_at(t, score, i, &pair, &shown);
		*m = *m ? larger(t, *m, x[i]) : x[i];
	}
	share_rows(t, score, s->ways, most);
}

// Turns scores into probabilities, relative to the largest of their row so far, and rescales what
// was added up before.
static void soften(ThreadAttend *t, Product *score, Product *sum, const Softmax *s, Value *x,
                   Value *most_of)
{
	Gen *g = t->a.g;
	Value base[SUMS], fade[SUMS];
	reduce_rows(t, score, s->ways, O_amax, most_of);
	for (int r = 0; r < lines_of(score, 0); r++) {
		Value before = read_variable(g, s->most[r]);
		Value most = larger(t, before, most_of[r]);
		Value empty = LLVMBuildFCmp(g->b, LLVMRealOEQ, most, real(&t->a, -INFINITY), "");
		Value used = LLVMBuildSelect(g->b, empty, real(&t->a, 0), most, "");
		base[r] = exponent_base(t, used, t->unit);
		fade[r] = power(t, before, base[r]);
		set_variable(g, s->most[r], most);
		Value total = read_variable(g, s->total[r]);
		set_variable(g, s->total[r], LLVMBuildFMul(g->b, total, fade[r], ""));
	}
	for (int i = 0; i < score->sums; i++) {
		int r = line_of(score, 0, i);
		x[i] = power(t, x[i], base[r]);
		Value total = read_variable(g, s->total[r]);
		set_variable(g, s->total[r], LLVMBuildFAdd(g->b, total, x[i], ""));
		x[i] = weighed(t, score, i, x[i]);
	}
	for (int i = 0; sum && i < sum->sums; i++) {
		Value before = read_sum(&sum->d, i);
		set_sum(&sum->d, i, LLVMBuildFMul(g->b, before, fade[line_of(sum, 0, i)], ""));
	}
}

// Stores the largest score of each row and the reciprocal of the sum of its exponentials.
static void store_stats(ThreadAttend *t, Product *score, int o, const Value *const *stats)
{
	Gen *g = t->a.g;
	Value way = score->d.kind->way(&score->d);
	Value first = LLVMBuildICmp(g->b, LLVMIntEQ, way, number(g, 0), "");
	for (int r = 0; r < lines_of(score, 0); r++) {
		Loop when = when_begin(g, both(g, first, is_less(t, t->row.at[r], t->row.all)));
		for (int k = 0; k < 2; k++) {
			Index column = constant_index(k), idx[RANK];
			attend_index(&t->a, &t->row.index[r], &column, idx);
			store_out(g, o, idx, stats[k][r]);
		}
		when_end(g, &when);
	}
}

static void finish(ThreadAttend *t, Product *score, Product *sum, const Softmax *s)
{
	Gen *g = t->a.g;
	Value most[SUMS], share[SUMS], some[SUMS], total[SUMS];
	for (int r = 0; r < lines_of(score, 0); r++)
		total[r] = read_variable(g, s->total[r]);
	if (!sum && !t->z.own_rows) // no product came after the largest scores were read
		g->ops->all_threads(g);
	share_rows(t, score, s->ways, total);
	if (!t->z.own_rows)
		g->ops->all_threads(g);
	reduce_rows(t, score, s->ways, O_sum, total);
	for (int r = 0; r < lines_of(score, 0); r++) {
		most[r] = read_variable(g, s->most[r]);
		if (t->unit != 1)
			most[r] = LLVMBuildFMul(g->b, most[r], real(&t->a, t->unit), "");
		share[r] = LLVMBuildFDiv(g->b, real(&t->a, 1), total[r], "");
		some[r] = LLVMBuildFCmp(g->b, LLVMRealOGT, total[r], real(&t->a, 0), "");
	}
	for (int o = 0; o < g->kern->nout; o++)
		if (op_of_output(t, o) == O_attend)
			store_sums(t, sum, o, &t->row, share, t->a.zeros ? some : NULL);
	for (int r = 0; t->a.zeros && r < lines_of(score, 0); r++) {
		most[r] = LLVMBuildSelect(g->b, some[r], most[r], real(&t->a, 0), "");
		share[r] = LLVMBuildSelect(g->b, some[r], share[r], real(&t->a, 0), "");
	}
	for (int o = 0; o < g->kern->nout; o++)
		if (op_of_output(t, o) == O_attend_stats)
			store_stats(t, score, o, (const Value *const[]){most, share});
}

// Returns the end of the keys that the block's queries see.
static Value visible_end(const ThreadAttend *t)
{
	Gen *g = t->a.g;
	const AttendSizes *p = &t->a.p;
	Value all = number(g, p->keys);
	if (!t->a.causal)
		return all;
	return end_after(g, t->first, t->z.height + p->keys - p->queries, all);
}

static void soften_blocks(ThreadAttend *t, Product *score, Product *sum, const Softmax *s)
{
	Gen *g = t->a.g;
	const AttendBlocks *z = &t->z;
	Value x[SUMS], most[SUMS] = {NULL}, none = number(g, 0);
	bool turns = z->turns && sum;
	attend_bring(t, score, 0, 0, t->first);
	Loop block = loop_begin(g, none, visible_end(t), z->columns);
	if (turns && t->column.all > z->columns)
		g->ops->all_threads(g);
	attend_bring(t, score, 1, 1, block.i);
	g->ops->all_threads(g);
	attend_multiply_anew(score, none);
	find_columns(t, score, block.i);
	share_most(t, score, s, x, most);
	if (sum && !turns)
		attend_bring(t, sum, 1, 2, block.i);
	g->ops->all_threads(g);
	if (turns)
		attend_bring(t, sum, 1, 2, block.i);
	soften(t, score, sum, s, x, most);
	if (sum) {
		put_scores(t, score, sum, none, x);
		g->ops->all_threads(g);
		attend_multiply(sum, none);
	}
	loop_end(g, &block);
}

// Returns the columns of scores of a block that a thread has a part of.
static int64_t own_columns(const ThreadAttend *t)
{
	return t->z.columns * t->z.height / attend_tile_rows(&t->z);
}

// Begins the loop over parts of the columns in a stage that a warp has. Returns the first column.
static Value parts_begin(const ThreadAttend *t, Loop *part)
{
	Gen *g = t->a.g;
	int64_t own = own_columns(t);
	*part = loop_begin(g, number(g, 0), number(g, own), t->part);
	Value first = t->part < own ? part->i : number(g, 0);
	return t->z.beside ? sum_of(g, first, times(g, t->half, own)) : first;
}

// The same by warps that have rows of their own.
static void soften_stages(ThreadAttend *t, Product *score, Product *sum, const Softmax *s)
{
	Gen *g = t->a.g;
	Value x[SUMS], most[SUMS] = {NULL}, none = number(g, 0);
	Stages stages = {.rows = {attend_source(t, score, 0, 0)},
	                 .rows_count = 1,
	                 .columns = {attend_source(t, score, 1, 1)},
	                 .columns_count = sum ? 2 : 1};
	if (sum)
		stages.columns[1] = attend_source(t, sum, 1, 2);
	Value stage = attend_stages_begin(t, &stages, number(g, 0), visible_end(t));
	Loop part;
	Value first = parts_begin(t, &part);
	attend_multiply_anew(score, attend_stage_part(score, stage, first));
	find_columns(t, score, sum_of(g, stages.loop.i, first));
	share_most(t, score, s, x, most);
	soften(t, score, sum, s, x, most);
	if (sum) {
		put_scores(t, score, sum, none, x);
		attend_multiply(sum, attend_stage_part(sum, stage, first));
	}
	loop_end_rolled(g, &part);
	loop_end(g, &stages.loop);
}

// ---- warpgroups with the same rows ----------------------------------------------------

// Adds the other warpgroup's sum of a row, relative to the largest score of both. Sets the factors
// of the own sums of products and of the other's.
static void join_row(const ThreadAttend *t, const Softmax *s, int r, Value *fade)
{
	Gen *g = t->a.g;
	Value own = read_variable(g, s->most[r]), other = load_handed(t, 2 * r);
	Value most = larger(t, own, other);
	Value empty = LLVMBuildFCmp(g->b, LLVMRealOEQ, most, real(&t->a, -INFINITY), "");
	Value used = LLVMBuildSelect(g->b, empty, real(&t->a, 0), most, "");
	Value base = exponent_base(t, used, t->unit);
	fade[0] = power(t, own, base);
	fade[1] = power(t, other, base);
	Value total = LLVMBuildFMul(g->b, read_variable(g, s->total[r]), fade[0], "");
	total = mul_add(g, load_handed(t, 2 * r + 1), fade[1], total);
	set_variable(g, s->most[r], most);
	set_variable(g, s->total[r], total);
}

// Begins the code that stores the results of up to two products, and of a softmax of so many rows a
// thread. All threads run it, or the warpgroup to which the other hands over its own results.
static Loop results_begin(ThreadAttend *t, Product *const *of, const Softmax *s, int rows)
{
	Gen *g = t->a.g;
	if (!t->z.beside)
		return (Loop){0};
	Value first = LLVMBuildICmp(g->b, LLVMIntEQ, t->half, number(g, 0), "");
	g->ops->all_threads(g); // the operands have been read
	Loop second = when_begin(g, LLVMBuildNot(g->b, first, ""));
	for (int r = 0; r < rows; r++) {
		hand_over(t, 2 * r, read_variable(g, s->most[r]));
		hand_over(t, 2 * r + 1, read_variable(g, s->total[r]));
	}
	for (int k = 0, at = 2 * rows; k < 2 && of[k]; at += of[k++]->sums) {
		of[k]->handed = at;
		for (int i = 0; i < of[k]->sums; i++)
			hand_over(t, at + i, read_sum(&of[k]->d, i));
	}
	when_end(g, &second);
	g->ops->all_threads(g);
	Loop own = when_begin(g, first);
	for (int r = 0; r < rows; r++) {
		Value fade[2];
		join_row(t, s, r, fade);
		for (int k = 0; k < 2 && of[k]; k++)
			memcpy(of[k]->fade[r], fade, sizeof fade);
	}
	return own;
}

static void results_end(const ThreadAttend *t, Loop *own)
{
	if (t->z.beside)
		when_end(t->a.g, own);
}

static void forward(ThreadAttend *t)
{
	Gen *g = t->a.g;
	const AttendBlocks *z = &t->z;
	t->part = attend_part(t, z->depth, 1);
	int64_t m = attend_tile_rows(z);
	Product *score = attend_product(t, m, t->part, z->width, true, AB_ROWS, AB_COLUMNS),
	        *sum = NULL;
	if (z->depth)
		sum = attend_product(t, m, z->depth, t->part, false, AB_WEIGHTS, AB_SUMMED);
	int64_t ways = z->shared - z->height * ATTEND_WAYS * t->a.p.bytes;
	Softmax s = {.ways = bytes_after(g, t->shared, number(g, ways))};
	for (int r = 0; r < lines_of(score, 0); r++) {
		s.most[r] = variable(g, real(&t->a, -INFINITY));
		s.total[r] = variable(g, real(&t->a, 0));
	}
	find_lines(t, score, 0, t->first, &t->row);
	if (z->own_rows)
		soften_stages(t, score, sum, &s);
	else
		soften_blocks(t, score, sum, &s);
	Loop own = results_begin(t, (Product *[]){sum, NULL}, &s, lines_of(score, 0));
	finish(t, score, sum, &s);
	results_end(t, &own);
}

// ---- gradients ------------------------------------------------------------------------

typedef struct Gradients {
	Product *score, *weight; // of scores; gradients of probabilities
	Product *width, *depth;  // sums with as many columns as queries have, as values have
	Product *other;          // of a block of columns, if a worker has all rows; else NULL
} Gradients;

typedef struct Stats { // of the scores of a query
	Value most, share, delta;
} Stats;

static Stats load_stats(const ThreadAttend *t, const Index *query)
{
	Index zero = constant_index(0), one = constant_index(1);
	Ref stats = t->a.v->in[STATS], delta = t->a.v->in[DELTA];
	t->a.g->shares = t->keys && are_apart(t, &t->column);
	Stats s = {.most = at_element(&t->a, stats, query, &zero),
	           .share = at_element(&t->a, stats, query, &one),
	           .delta = at_element(&t->a, delta, query, &zero)};
	t->a.g->shares = false;
	return s;
}

// Turns scores into probabilities, and gradients of the probabilities into those of the scores.
static void find_slopes(ThreadAttend *t, const Gradients *p, Value *weight, Value *slope)
{
	Gen *g = t->a.g;
	for (int i = 0; i < p->score->sums; i++) {
		Pair pair = pair_at(t, p->score, i);
		Value shown, none = real(&t->a, 0);
		Value x = score_at(t, p->score, i, &pair, &shown);
		Stats of = load_stats(t, pair.query);
		Value base = exponent_base(t, of.most, 1);
		x = LLVMBuildFMul(g->b, power(t, x, base), of.share, "");
		if (t->a.zeros) {
			Value empty = LLVMBuildFCmp(g->b, LLVMRealOEQ, of.share, none, "");
			x = LLVMBuildSelect(g->b, empty, none, x, "");
		}
		Value d = weighed(t, p->score, i, read_sum(&p->weight->d, i));
		d = LLVMBuildFSub(g->b, d, of.delta, "");
		d = LLVMBuildFMul(g->b, x, d, "");
		weight[i] = weighed(t, p->score, i, x);
		// The bias is added to scores that are not shown, too.
		slope[i] = shown && !t->tile ? LLVMBuildSelect(g->b, shown, d, none, "") : d;
	}
}

// Returns the products of slopes, `sums` of whose columns, at least, each row of threads keeps.
static Gradients slopes_new(ThreadAttend *t, int64_t sums)
{
	const AttendBlocks *z = &t->z;
	t->part = attend_part(t, sums, 2);
	int64_t m = attend_tile_rows(z), n = t->part;
	return (Gradients){.score = attend_product(t, m, n, z->width, true, AB_ROWS, AB_COLUMNS),
	                   .weight =
	                       attend_product(t, m, n, z->depth, true, AB_GRADIENTS, AB_VALUES)};
}

static Gradients gradients_new(ThreadAttend *t)
{
	const AttendBlocks *z = &t->z;
	Gradients p = slopes_new(t, z->width + (t->keys ? z->depth : 0));
	int64_t m = attend_tile_rows(z), n = t->part;
	bool both = z->both_ways;
	p.width =
	    attend_product(t, m, z->width, n, false, AB_WEIGHTS, both ? AB_COLUMNS : AB_SUMMED);
	if (t->keys)
		p.depth = attend_product(t, m, z->depth, n, false, AB_WEIGHTS,
		                         both ? AB_VALUES : AB_SUMMED);
	if (t->keys && z->once && attend_computes(t->a.g->graph, t->a.g->kern, false))
		p.other = attend_turned_product(t, z->columns, z->width, m, AB_WEIGHTS, AB_ROWS);
	return p;
}

// Adds the products of a block of columns: of scores with operand `score` and of gradients of
// probabilities with operand `weight`, which are then the factors of the sums. Parts of memory that
// take turns, or are read to the end, are written after a barrier.
static void add_block(ThreadAttend *t, const Gradients *p, Value first, int score, int weight)
{
	Gen *g = t->a.g;
	bool turns = t->z.turns, both = t->z.both_ways;
	Value x[SUMS], slope[SUMS], none = number(g, 0);
	if ((turns || both) && t->column.all > t->z.columns)
		g->ops->all_threads(g);
	attend_bring(t, p->score, 1, score, first);
	if (!turns)
		attend_bring(t, p->weight, 1, weight, first);
	g->ops->all_threads(g);
	attend_multiply_anew(p->score, none);
	if (turns) {
		g->ops->all_threads(g);
		attend_bring(t, p->weight, 1, weight, first);
		g->ops->all_threads(g);
	}
	attend_multiply_anew(p->weight, none);
	find_columns(t, p->score, first);
	find_slopes(t, p, x, slope);
	if (turns && !(both && p->depth))
		g->ops->all_threads(g);
	if (p->depth) {
		put_scores(t, p->score, p->depth, none, x);
		if (!both)
			attend_bring(t, p->depth, 1, weight, first);
		g->ops->all_threads(g);
		attend_multiply(p->depth, none);
		g->ops->all_threads(g);
	}
	put_scores(t, p->score, p->width, none, slope);
	if (turns || !both)
		attend_bring(t, p->width, 1, score, first);
	g->ops->all_threads(g);
	attend_multiply(p->width, none);
}

// The same of the block in a stage, by warps that have rows of their own.
static void add_stage(ThreadAttend *t, const Gradients *p, Value first, Value stage)
{
	Gen *g = t->a.g;
	Value x[SUMS], slope[SUMS], none = number(g, 0);
	Loop part;
	Value own = parts_begin(t, &part);
	find_columns(t, p->score, sum_of(g, first, own));
	for (int i = 0; i < lines_of(p->score, 1) && t->keys; i++)
		load_stats(t, &t->column.index[i]); // while the products run
	attend_multiply_anew(p->score, attend_stage_part(p->score, stage, own));
	attend_multiply_anew(p->weight, attend_stage_part(p->weight, stage, own));
	find_slopes(t, p, x, slope);
	if (p->depth) {
		put_scores(t, p->score, p->depth, none, x);
		attend_multiply(p->depth, attend_stage_part(p->depth, stage, own));
	}
	if (p->other)
		put_scores(t, p->score, p->other, own, slope);
	put_scores(t, p->score, p->width, none, slope);
	attend_multiply(p->width, attend_stage_part(p->width, stage, own));
	loop_end_rolled(g, &part);
}

// Computes the gradients of a block of queries, whose slopes are in shared memory.
static void add_queries(ThreadAttend *t, const Gradients *p, Value first)
{
	Gen *g = t->a.g;
	Lines *queries = NEW(g->arena, Lines);
	queries->all = t->column.all;
	g->ops->all_threads(g);
	attend_multiply_anew(p->other, LLVMConstInt(g->i32, 0, 0));
	find_lines(t, p->other, 0, first, queries);
	store_gradient(t, p->other, O_attend_dq, queries, t->a.v->attr->x);
}

static void backward(ThreadAttend *t)
{
	Gen *g = t->a.g;
	const AttendSizes *p = &t->a.p;
	enum { QUERIES, KEYS, VALUES };
	Gradients all = gradients_new(t);
	find_lines(t, all.score, 0, t->first, &t->row);
	int rows[] = {t->keys ? KEYS : QUERIES, t->keys ? VALUES : GRADIENT};
	int columns[] = {t->keys ? QUERIES : KEYS, t->keys ? GRADIENT : VALUES};
	Value begin = number(g, 0), end = t->keys ? number(g, p->queries) : visible_end(t);
	if (t->keys && t->a.causal) { // the block of the first query that sees a key
		Value query = LLVMBuildSub(g->b, t->first, number(g, p->keys - p->queries), "");
		Value before = LLVMBuildICmp(g->b, LLVMIntSLT, query, begin, "");
		query = LLVMBuildSelect(g->b, before, begin, query, "");
		begin = LLVMBuildAnd(g->b, query, number(g, -t->z.columns), "");
	}
	if (t->z.own_rows) {
		Stages stages = {.rows_count = 2, .columns_count = 2};
		for (int i = 0; i < 2; i++) {
			Product *p = i ? all.weight : all.score;
			stages.rows[i] = attend_source(t, p, 0, rows[i]);
			stages.columns[i] = attend_source(t, p, 1, columns[i]);
		}
		Value stage = attend_stages_begin(t, &stages, begin, end);
		add_stage(t, &all, stages.loop.i, stage);
		if (all.other)
			add_queries(t, &all, stages.loop.i);
		loop_end(g, &stages.loop);
	} else {
		attend_bring(t, all.score, 0, rows[0], t->first);
		attend_bring(t, all.weight, 0, rows[1], t->first);
		Loop block = loop_begin(g, begin, end, t->z.columns);
		add_block(t, &all, block.i, columns[0], columns[1]);
		loop_end(g, &block);
	}
	Op op = t->keys ? O_attend_dk : O_attend_dq;
	Loop own = results_begin(t, (Product *[]){all.width, all.depth}, NULL, 0);
	store_gradient(t, all.width, op, &t->row, t->a.v->attr->x);
	if (t->keys)
		store_gradient(t, all.depth, O_attend_dv, &t->row, 1);
	results_end(t, &own);
}

// ---- gradients of biases --------------------------------------------------------------

typedef struct BiasTile { // of output `out`
	int out;
	Index part;        // of its leading axes
	Value first;       // column
	Gradients p;       // products of slopes
	int sums;          // of a thread, over the heads
	Value slope[SUMS]; // variables: those of the next part of the columns first
} BiasTile;

// Exchanges the sums of the part for `next`, after which those of the next part come first: a loop
// over parts has the same code for each.
static void turn_sums(const ThreadAttend *t, const BiasTile *b, const Value *next)
{
	Gen *g = t->a.g;
	Value x[SUMS];
	int n = b->p.score->sums;
	for (int i = 0; i < b->sums; i++)
		x[i] = i + n < b->sums ? read_variable(g, b->slope[i + n]) : next[i + n - b->sums];
	for (int i = 0; i < b->sums; i++)
		set_variable(g, b->slope[i], x[i]);
}

static void add_part(ThreadAttend *t, const BiasTile *b)
{
	Gen *g = t->a.g;
	Value weight[SUMS], x[SUMS];
	find_slopes(t, &b->p, weight, x);
	for (int i = 0; i < b->p.score->sums; i++)
		x[i] = LLVMBuildFAdd(g->b, read_variable(g, b->slope[i]), x[i], "");
	turn_sums(t, b, x);
}

static void add_head(ThreadAttend *t, const BiasTile *b)
{
	enum { QUERIES, KEYS, VALUES };
	Gen *g = t->a.g;
	Product *score = b->p.score, *weight = b->p.weight;
	Value none = number(g, 0);
	attend_bring(t, score, 0, QUERIES, t->first);
	attend_bring(t, weight, 0, GRADIENT, t->first);
	attend_bring(t, score, 1, KEYS, b->first);
	if (!t->z.turns)
		attend_bring(t, weight, 1, VALUES, b->first);
	g->ops->all_threads(g);
	attend_multiply_anew(score, none);
	if (t->z.turns) {
		g->ops->all_threads(g);
		attend_bring(t, weight, 1, VALUES, b->first);
		g->ops->all_threads(g);
	}
	attend_multiply_anew(weight, none);
	find_columns(t, score, b->first);
	add_part(t, b);
}

// The same by warps that have rows of their own.
static void add_head_by_rows(ThreadAttend *t, const BiasTile *b)
{
	enum { QUERIES, KEYS, VALUES };
	Product *score = b->p.score, *weight = b->p.weight;
	Value stage = LLVMConstInt(t->a.g->i32, 0, 0);
	Stages s = {
	    .rows = {attend_source(t, score, 0, QUERIES), attend_source(t, weight, 0, GRADIENT)},
	    .columns = {attend_source(t, score, 1, KEYS), attend_source(t, weight, 1, VALUES)},
	    .rows_count = 2,
	    .columns_count = 2};
	attend_bring_tile(t, &s, b->first);
	Loop part;
	Value own = parts_begin(t, &part);
	find_columns(t, score, sum_of(t->a.g, b->first, own));
	attend_multiply_anew(score, attend_stage_part(score, stage, own));
	attend_multiply_anew(weight, attend_stage_part(weight, stage, own));
	add_part(t, b);
	loop_end_rolled(t->a.g, &part);
}

// Adds up the tile of all heads of the part, one after the other: none if a causal mask hides it.
static void add_heads(ThreadAttend *t, const BiasTile *b)
{
	Gen *g = t->a.g;
	int64_t all = count_of(&t->a.p.added);
	Value none = number(g, 0), heads = number(g, all), part = index_i64(g, &b->part);
	if (t->a.causal) {
		Value seen = LLVMBuildICmp(g->b, LLVMIntSLT, b->first, visible_end(t), "");
		heads = LLVMBuildSelect(g->b, seen, heads, none, "");
	}
	Loop head = loop_begin(g, none, heads, 1);
	Value at = attend_head(&t->a, sum_of(g, times(g, part, all), head.i));
	t->a.batch = uniform_index(g, at, t->a.p.batch, 1);
	if (all > 1) // the operands of the head before have been read
		g->ops->all_threads(g);
	if (t->z.own_rows)
		add_head_by_rows(t, b);
	else
		add_head(t, b);
	loop_end_rolled(g, &head);
}

// Stores the sums of the part whose columns were found.
static void store_part(ThreadAttend *t, const BiasTile *b)
{
	Gen *g = t->a.g;
	Product *p = b->p.score;
	Shape lead = shape_of(t->a.p.lead.rank, val(g->graph, g->kern->out[b->out])->shape.dim);
	int n = sums_side(t, b->out, t->column.all);
	Value x[SUMS];
	for (int i = 0; i < p->sums; i++)
		x[i] = read_variable(g, b->slope[i]);
	for (int i = 0; i < p->sums; i += n) {
		int row = line_of(p, 0, i), column = line_of(p, 1, i);
		Value inside = NULL;
		if (t->row.all % t->z.height)
			inside = is_less(t, t->row.at[row], t->row.all);
		if (t->column.all % t->z.columns)
			inside = also(g, inside, is_less(t, t->column.at[column], t->column.all));
		Loop when = when_begin(g, inside ? inside : LLVMConstInt(g->i1, 1, 0));
		Index idx[RANK];
		unravel(g->vars, &b->part, &lead, idx);
		idx[lead.rank] = t->row.index[row];
		idx[lead.rank + 1] = t->column.index[column];
		store_elements(t, b->out, idx, n, x + i);
		when_end(g, &when);
	}
	turn_sums(t, b, x);
}

// Computes a tile of the gradient of a bias.
static void add_bias(ThreadAttend *t, BiasTile *b)
{
	Gen *g = t->a.g;
	int64_t own = own_columns(t);
	b->p = slopes_new(t, own);
	b->sums = (int)(own / t->part) * b->p.score->sums;
	find_lines(t, b->p.score, 0, t->first, &t->row);
	for (int i = 0; i < b->sums; i++)
		b->slope[i] = variable(g, real(&t->a, 0));
	add_heads(t, b);
	Loop part;
	Value first = parts_begin(t, &part);
	find_columns(t, b->p.score, sum_of(g, b->first, first));
	store_part(t, b);
	loop_end_rolled(g, &part);
}

// ---- workers --------------------------------------------------------------------------

// Returns what blocks of keys or, else, of queries compute.
static ThreadAttend *blocks_new(Gen *g, bool keys)
{
	ThreadAttend *t = NEW(g->arena, ThreadAttend);
	t->a = attend_new(g);
	const AttendSizes *p = &t->a.p;
	t->z = attend_blocks(g->graph, t->a.v, g->plan->machine, p->back);
	t->keys = keys;
	double scale = t->a.v->attr->x;
	t->fast = g->ops->exp2 && is_half(t->z.matrix);
	t->unit = t->fast && !t->a.bias && !t->a.shown && scale > 0 ? scale : 1;
	t->row.all = t->keys ? p->keys : p->queries;
	t->column.all = t->keys ? p->queries : p->keys;
	return t;
}

// Begins the code of the workers from `start` on. Sets the number of each among them.
static Loop workers_begin(ThreadAttend *t, int64_t start, int64_t workers, Index *worker)
{
	Gen *g = t->a.g;
	Value own_worker = LLVMBuildSub(g->b, g->worker, number(g, start), "");
	Value is_own = LLVMBuildICmp(g->b, LLVMIntULT, own_worker, number(g, workers), "");
	if (workers == stage_workers(g->kern->sched, g->stage)) // all are
		is_own = LLVMConstInt(g->i1, 1, 0);
	Loop own = when_begin(g, is_own);
	g->level->lanes = true; // each thread has elements of its own from here on
	t->thread = g->ops->thread(g);
	t->half = LLVMBuildUDiv(g->b, t->thread, number(g, g->target->machine->threads / 2), "");
	const char *name = format(g->arena, "amos_attend_%lld", (long long)t->z.shared);
	t->shared = t->z.launched ? g->ops->launch_memory(g)
	                          : g->ops->shared(g, name, ceil_div(t->z.shared, 8), number(g, 0));
	*worker = uniform_index(g, own_worker, workers, 1);
	return own;
}

static void emit_blocks(Gen *g, bool keys, int64_t start, int64_t workers)
{
	ThreadAttend *t = blocks_new(g, keys);
	int64_t blocks = ceil_div(t->row.all, t->z.height);
	Index worker, block;
	Loop own = workers_begin(t, start, workers, &worker);
	split_index(g->vars, &worker, blocks, &t->a.batch, &block);
	Value at = index_i64(g, &block);
	if (t->a.causal && !t->keys) // those that see the most keys begin first
		at = LLVMBuildSub(g->b, number(g, blocks - 1), at, "");
	t->first = times(g, at, t->z.height);
	if (t->a.p.back)
		backward(t);
	else
		forward(t);
	when_end(g, &own);
}

// The heads that a worker adds up are those that share a tile of output o.
static void emit_bias_tiles(Gen *g, int o, int64_t start, int64_t workers)
{
	ThreadAttend *t = blocks_new(g, false);
	t->tile = true;
	const int64_t *parts = val(g->graph, g->kern->out[o])->shape.dim;
	for (int a = 0; a < t->a.p.lead.rank; a++)
		t->a.p.added.dim[a] = t->a.p.lead.dim[a] / parts[a];
	int64_t across = ceil_div(t->column.all, t->z.columns);
	int64_t down = ceil_div(t->row.all, t->z.height);
	BiasTile b = {.out = o};
	Index worker, tile, row, column;
	Loop own = workers_begin(t, start, workers, &worker);
	split_index(g->vars, &worker, down * across, &b.part, &tile);
	split_index(g->vars, &tile, across, &row, &column);
	t->first = times(g, index_i64(g, &row), t->z.height);
	b.first = times(g, index_i64(g, &column), t->z.columns);
	add_bias(t, &b);
	when_end(g, &own);
}

void emit_thread_attend(Gen *g)
{
	const Machine *machine = g->plan->machine;
	AttendWorkers w = attend_workers(g->graph, g->kern, machine);
	bool keys = w.keys && g->stage == MAIN;
	if (keys)
		emit_blocks(g, true, 0, w.keys);
	if (keys && !w.together)
		return;
	int64_t start = keys ? w.keys : 0;
	if (w.queries)
		emit_blocks(g, false, start, w.queries);
	start += w.queries;
	AttendSizes p = attend_sizes(g->graph, g->kern, machine);
	AttendBlocks z = attend_blocks(g->graph, val(g->graph, g->kern->root), machine, p.back);
	for (int o = 0; o < g->kern->nout; o++) {
		int64_t tiles = attend_bias_tiles(g->graph, g->kern, &z, o);
		if (tiles)
			emit_bias_tiles(g, o, start, tiles);
		start += tiles;
	}
}
