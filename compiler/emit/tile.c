// tile.c: emits the register tile of a matrix product, the loop where a trainer spends most time.
// Output: a function that computes one tile. Invariant: rows * vectors accumulators, `vectors` of b
// and one broadcast of a are all in registers; additions are in the order of k, for any tile.
#include "tile.h"
#include <stddef.h>
#include <stdio.h>

Value along(Gen *g, const Tile *t, Value base, int64_t elements)
{
	Value i = number(g, elements);
	LLVMTypeRef type = elem_type(g, t->type);
	return elements ? LLVMBuildInBoundsGEP2(g->b, type, base, &i, 1, "") : base;
}

Value along_a(Gen *g, const Tile *t, Value base, int64_t elements)
{
	Value i = number(g, elements);
	LLVMTypeRef type = t->dense ? g->i16 : elem_type(g, t->type);
	return elements ? LLVMBuildInBoundsGEP2(g->b, type, base, &i, 1, "") : base;
}

static LLVMTypeRef vector_type(Gen *g, const Tile *t)
{
	return LLVMVectorType(elem_type(g, t->type), (unsigned)t->lanes);
}

static Value load_vector(Gen *g, const Tile *t, Value base, int64_t elements)
{
	Value v = LLVMBuildLoad2(g->b, vector_type(g, t), along(g, t, base, elements), "");
	LLVMSetAlignment(v, (unsigned)t->bytes);
	return v;
}

static int64_t parts_of(const struct Stream *s) // of a row
{
	return ceil_div(s->bytes, s->once);
}

static int64_t iterations_of(const struct Stream *s)
{
	return s->rows * parts_of(s) * (s->wait + 1);
}

// Returns the first stream of as many rows and parts, at the same pace: they share a counter.
static int first_like(const Tile *t, int stream)
{
	const struct Stream *s = &t->stream[stream], *u = t->stream;
	while (u->rows != s->rows || parts_of(u) != parts_of(s) || u->wait != s->wait)
		u++;
	return (int)(u - t->stream);
}

// Returns the bytes from what an iteration prefetches of a stream to what the next does, when so
// many are left.
static Value stream_step(Gen *g, const struct Stream *s, Value left)
{
	int64_t parts = parts_of(s), back = (parts - 1) * s->once;
	Value pace = number(g, s->wait + 1), zero = number(g, 0), step = number(g, s->row);
	if (parts > 1) {
		Value part = LLVMBuildUDiv(g->b, left, pace, "");
		part = LLVMBuildURem(g->b, part, number(g, parts), "");
		Value last = LLVMBuildICmp(g->b, LLVMIntEQ, part, zero, "");
		Value next = number(g, s->once), down = number(g, s->row - back);
		step = LLVMBuildSelect(g->b, last, down, next, "");
	}
	if (!s->wait)
		return step;
	Value waits = LLVMBuildURem(g->b, left, pace, "");
	Value due = LLVMBuildICmp(g->b, LLVMIntEQ, waits, zero, "");
	return LLVMBuildSelect(g->b, due, step, zero, "");
}

// Prefetches, a part per iteration, rows of a that a later strip reads, and rows of each stream:
// all at once would delay the loads of the sum.
static void prefetch_part(Gen *g, const Tile *t, Steps *s, int count)
{
	for (int r = 0; r < t->soon; r++)
		prefetch_line(g, along_a(g, t, s->soon, r * t->soon_row), F_later);
	s->soon = along(g, t, s->soon, count);
	Value more[STREAMS];
	for (int i = 0; i < t->streams; i++) {
		const struct Stream *stream = &t->stream[i];
		for (int at = 0; at < stream->once; at += 64)
			prefetch_line(g, along(g, t, s->stream[i], at / t->bytes), stream->how);
		int like = first_like(t, i);
		if (like == i) {
			s->rows[i] = LLVMBuildSub(g->b, s->rows[i], number(g, 1), "");
			more[i] = LLVMBuildICmp(g->b, LLVMIntSGT, s->rows[i], number(g, 0), "");
		}
		Value step = stream_step(g, stream, s->rows[like]);
		step = LLVMBuildSelect(g->b, more[like], step, number(g, 0), "");
		s->stream[i] = LLVMBuildGEP2(g->b, g->i8, s->stream[i], &step, 1, "");
	}
}

// Returns an element of a in all lanes; half: the first of a pair alone.
static Value load_a(Gen *g, const Tile *t, Value from, bool half)
{
	Value a = LLVMBuildLoad2(g->b, half ? g->i32 : elem_type(g, t->type), from, "");
	LLVMSetAlignment(a, (unsigned)(t->dense ? t->bytes / 2 : t->bytes));
	if (half) {
		a = LLVMBuildAnd(g->b, a, LLVMConstInt(g->i32, UINT16_MAX, 0), "");
		a = LLVMBuildBitCast(g->b, a, elem_type(g, t->type), "");
	}
	return splat(g, a);
}

// Each step is rows * vectors products.
static void take_steps(Gen *g, const Tile *t, Steps *s, int count)
{
	bool half = count == 0;
	if (count > 1)
		prefetch_part(g, t, s, count);
	count += half;
	for (int k = 0; k < count; k++) {
		Value b[ACCUMULATORS];
		if (k) // the scheduler must not load ahead: there is no register left
			LLVMBuildFence(g->b, LLVMAtomicOrderingAcquireRelease, 1, "");
		for (int v = 0; v < t->vectors; v++)
			b[v] = load_vector(g, t, s->b, k * t->b_step + v * t->lanes);
		for (int at = 0; t->b_ahead && at < t->vectors * t->lanes; at += 64 / t->bytes)
			prefetch_line(g, along(g, t, s->b, (k + t->b_ahead) * t->b_step + at),
			              F_read);
		int64_t later = (k + t->a_ahead) * t->loop[0].a_step;
		if (t->a_ahead)
			prefetch_line(g, along_a(g, t, s->a, later), F_read);
		if (t->a_ahead && t->run) // of a patch, where rows are in two lines of cache
			prefetch_line(g, along_a(g, t, s->a, later + t->rows - 1), F_read);
		for (int r = 0; r < t->rows; r++) {
			int64_t line = t->run ? r / t->run : 0;
			int64_t row = line * t->a_line + (r - line * t->run) * t->a_row;
			Value p = along_a(g, t, s->a, row + k * t->loop[0].a_step);
			Value a = load_a(g, t, p, half);
			for (int v = 0; v < t->vectors; v++) {
				Value *sum = &s->sum[r * t->vectors + v];
				*sum = t->pairs ? g->ops->add_pairs(g, *sum, a, b[v])
				                : mul_add(g, a, b[v], *sum);
			}
		}
	}
	s->a = along_a(g, t, s->a, count * t->loop[0].a_step);
	s->b = along(g, t, s->b, count * t->b_step);
}

static Value phi(Gen *g, Value first, LLVMBasicBlockRef from)
{
	Value p = LLVMBuildPhi(g->b, LLVMTypeOf(first), "");
	LLVMAddIncoming(p, &first, &from, 1);
	return p;
}

static Value *step_values(Steps *s)
{
	return &s->a;
}

// Runs the body `trips` times, perhaps never. Values of the loop and after it are phis: the test is
// at the end of the loop, and no variable has to become a register first.
static void step_loop(Gen *g, const Tile *t, Steps *s, Value trips, StepBody *body, int argument)
{
	int64_t known = LLVMIsAConstantInt(trips) ? LLVMConstIntGetSExtValue(trips) : -1;
	if (known == 1)
		body(g, t, s, argument);
	if (known == 0 || known == 1)
		return;
	LLVMBasicBlockRef before = LLVMGetInsertBlock(g->b);
	LLVMBasicBlockRef loop = LLVMAppendBasicBlockInContext(g->context, g->function, "k");
	LLVMBasicBlockRef after = LLVMAppendBasicBlockInContext(g->context, g->function, "");
	Value zero = number(g, 0);
	LLVMBuildCondBr(g->b, LLVMBuildICmp(g->b, LLVMIntSGT, trips, zero, ""), loop, after);

	LLVMPositionBuilderAtEnd(g->b, loop);
	Value left = phi(g, trips, before);
	Steps top = {.take = s->take}, end, out = {.take = s->take};
	int values = (sizeof(Steps) - offsetof(Steps, a)) / sizeof(Value);
	for (int i = 0; i < values; i++)
		if (step_values(s)[i])
			step_values(&top)[i] = phi(g, step_values(s)[i], before);
	end = top;
	body(g, t, &end, argument);
	LLVMBasicBlockRef last = LLVMGetInsertBlock(g->b);
	Value next = LLVMBuildSub(g->b, left, number(g, 1), "");
	LLVMAddIncoming(left, &next, &last, 1);
	LLVMBuildCondBr(g->b, LLVMBuildICmp(g->b, LLVMIntNE, next, zero, ""), loop, after);

	LLVMPositionBuilderAtEnd(g->b, after);
	for (int i = 0; i < values; i++)
		if (step_values(s)[i]) {
			LLVMAddIncoming(step_values(&top)[i], &step_values(&end)[i], &last, 1);
			step_values(&out)[i] = phi(g, step_values(s)[i], before);
			LLVMAddIncoming(step_values(&out)[i], &step_values(&end)[i], &last, 1);
		}
	*s = out;
}

static void run_level(Gen *g, const Tile *t, Steps *s, int level, Value count);

static void one_iteration(Gen *g, const Tile *t, Steps *s, int level)
{
	Value a = s->a;
	run_level(g, t, s, level - 1, number(g, t->loop[level - 1].count));
	s->a = along_a(g, t, a, t->loop[level].a_step);
}

static void run_level(Gen *g, const Tile *t, Steps *s, int level, Value count)
{
	Value unroll = number(g, t->unroll);
	if (level) {
		step_loop(g, t, s, count, one_iteration, level);
		return;
	}
	if (t->odd && !t->matrix)
		count = LLVMBuildSub(g->b, count, number(g, 1), "");
	step_loop(g, t, s, LLVMBuildUDiv(g->b, count, unroll, ""), s->take, t->unroll);
	if (t->rest || t->loops > 1)
		step_loop(g, t, s, LLVMBuildURem(g->b, count, unroll, ""), s->take, 1);
	if (t->odd && !t->matrix)
		s->take(g, t, s, 0);
}

void take_all(Gen *g, const Tile *t, Steps *s, Value k)
{
	int64_t inner = 1;
	for (int i = 0; i + 1 < t->loops; i++)
		inner *= t->loop[i].count;
	run_level(g, t, s, t->loops - 1, LLVMBuildUDiv(g->b, k, number(g, inner), ""));
}

static void write_tile(Gen *g, const Tile *t, const Steps *s, Value c, bool add)
{
	for (int i = 0; i < t->rows * t->vectors; i++) {
		int64_t place = i / t->vectors * t->c_row + i % t->vectors * t->lanes;
		Value sum = s->sum[i];
		if (add)
			sum = LLVMBuildFAdd(g->b, load_vector(g, t, c, place), sum, "");
		Value store = LLVMBuildStore(g->b, sum, along(g, t, c, place));
		LLVMSetAlignment(store, (unsigned)t->bytes);
	}
	LLVMBuildRetVoid(g->b);
}

static LLVMTypeRef sums_type(const Gen *g, const Tile *t)
{
	LLVMTypeRef p = g->ptr, in[6 + STREAMS] = {g->i64, p, p, p, g->i1, p, p, p, p, p, p, p};
	LLVMTypeRef none = LLVMVoidTypeInContext(g->context);
	return LLVMFunctionType(none, in, (unsigned)(6 + t->streams), 0);
}

static LLVMTypeRef square_type(const Gen *g)
{
	LLVMTypeRef p = g->ptr, i = g->i64, in[] = {p, i, i, i, p, i, i};
	return LLVMFunctionType(LLVMVoidTypeInContext(g->context), in, COUNT(in), 0);
}

// The name says what the function does, so all modules may call it.
Value tile_function(const Gen *g, const Tile *t)
{
	char name[64];
	snprintf(name, sizeof name, "amos_tile_%d_%016llx%016llx", g->tiles->variant,
	         (unsigned long long)hash_bytes(t, sizeof *t, 0),
	         (unsigned long long)hash_bytes(t, sizeof *t, 1));
	Value f = LLVMGetNamedFunction(g->module, name);
	if (f)
		return f;
	PUSH(g->tiles->arena, g->tiles->list, *t);
	f = function_new(g, name, t->square ? square_type(g) : sums_type(g, t));
	LLVMSetVisibility(f, LLVMHiddenVisibility);
	return f;
}

void tile_start(Gen *g, const Gen *around, const Tile *t)
{
	*g = *around;
	g->function = tile_function(g, t);
	g->b = LLVMCreateBuilderInContext(g->context);
	g->width = t->lanes;
	LLVMPositionBuilderAtEnd(g->b, LLVMAppendBasicBlockInContext(g->context, g->function, ""));
}

// ---- lanes along k --------------------------------------------------------------------

// Returns how many columns are multiplied at once, whose sums and a vector of each are in
// registers, with one of a.
static int columns_at_once(const Gen *g, const Tile *t)
{
	int columns = 1;
	while (2 * columns * (t->rows + 1) < g->target->machine->registers &&
	       2 * columns <= t->vectors * t->lanes)
		columns *= 2;
	return columns;
}

// Takes `count` vectors of steps of k, of all rows and of the columns at once.
static void take_along(Gen *g, const Tile *t, Steps *s, int count)
{
	int columns = columns_at_once(g, t);
	for (int c = 0; c < columns; c++)
		prefetch_line(g, along(g, t, s->b, c * t->b_column + t->b_ahead), F_read);
	for (int64_t k = 0; k < count * t->lanes; k += t->lanes) {
		Value b[ACCUMULATORS];
		for (int c = 0; c < columns; c++)
			b[c] = load_vector(g, t, s->b, c * t->b_column + k);
		for (int r = 0; r < t->rows; r++) {
			Value a = load_vector(g, t, s->a, r * t->a_row + k);
			for (int c = 0; c < columns; c++) {
				Value *sum = &s->sum[r * columns + c];
				*sum = mul_add(g, a, b[c], *sum);
			}
		}
	}
	s->a = along(g, t, s->a, count * t->lanes);
	s->b = along(g, t, s->b, count * t->lanes);
}

// Multiplies the rows by the columns from s->b on. s->soon: where their sums go.
static void take_columns(Gen *g, const Tile *t, Steps *s, int columns)
{
	Steps own = {.take = take_along, .a = s->a, .b = s->b};
	for (int i = 0; i < t->rows * columns; i++)
		own.sum[i] = LLVMConstNull(vector_type(g, t));
	Value lanes = number(g, t->lanes), add = LLVMGetParam(g->function, 4);
	take_all(g, t, &own, LLVMBuildUDiv(g->b, LLVMGetParam(g->function, 0), lanes, ""));
	for (int i = 0; i < t->rows * columns; i++) {
		Value to = along(g, t, s->soon, i / columns * t->c_row + i % columns);
		Value sum = g->ops->reduce_lanes(g, O_sum, t->type, own.sum[i]);
		Value before = LLVMBuildLoad2(g->b, elem_type(g, t->type), to, "");
		before = LLVMBuildSelect(g->b, add, before, LLVMConstNull(LLVMTypeOf(sum)), "");
		LLVMBuildStore(g->b, LLVMBuildFAdd(g->b, before, sum, ""), to);
	}
	s->b = along(g, t, s->b, columns * t->b_column);
	s->soon = along(g, t, s->soon, columns);
}

static void write_along(Gen *g, const Tile *t)
{
	int columns = columns_at_once(g, t);
	Value f = g->function;
	Steps s = {.a = LLVMGetParam(f, 1), .b = LLVMGetParam(f, 2), .soon = LLVMGetParam(f, 3)};
	Value groups = number(g, t->vectors * t->lanes / columns);
	step_loop(g, t, &s, groups, take_columns, columns);
	LLVMBuildRetVoid(g->b);
}

// ---- the function ---------------------------------------------------------------------

static void write_sums(Gen *g, const Tile *t)
{
	if (t->rows * t->vectors > ACCUMULATORS)
		bug("a tile of %d x %d vectors", t->rows, t->vectors);
	Value f = g->function;
	Steps s = {.take = take_steps,
	           .a = LLVMGetParam(f, 1),
	           .b = LLVMGetParam(f, 2),
	           .soon = LLVMGetParam(f, 5)};
	for (int i = 0; i < t->streams; i++) {
		s.stream[i] = LLVMGetParam(f, (unsigned)(6 + i));
		if (first_like(t, i) == i)
			s.rows[i] = number(g, iterations_of(&t->stream[i]));
	}
	for (int i = 0; i < t->rows * t->vectors; i++)
		s.sum[i] = LLVMConstNull(vector_type(g, t));
	take_all(g, t, &s, LLVMGetParam(f, 0));
	LLVMBasicBlockRef sum = LLVMAppendBasicBlockInContext(g->context, f, "add");
	LLVMBasicBlockRef set = LLVMAppendBasicBlockInContext(g->context, f, "set");
	LLVMBuildCondBr(g->b, LLVMGetParam(f, 4), sum, set);
	LLVMPositionBuilderAtEnd(g->b, sum);
	write_tile(g, t, &s, LLVMGetParam(f, 3), true);
	LLVMPositionBuilderAtEnd(g->b, set);
	write_tile(g, t, &s, LLVMGetParam(f, 3), false);
}

void write_vector_tile(const Gen *around, const Tile *t)
{
	Gen own;
	tile_start(&own, around, t);
	(t->b_column ? write_along : write_sums)(&own, t);
	LLVMDisposeBuilder(own.b);
}
