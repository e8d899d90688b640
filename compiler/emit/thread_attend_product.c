// thread_attend_product.c: emits the products of attention by blocks of threads.
// Their operands are in shared memory, where threads bring them as their expressions say, or copies
// bring the next block of columns while the one before it is multiplied.
#include "thread_attend.h"
#include <stdlib.h>

enum { LEAST = 16 }; // columns of a part

// ---- products -------------------------------------------------------------------------

static Product *product_new(ThreadAttend *t, const TileKind *kind, int64_t m, int64_t n,
                            int64_t steps)
{
	Gen *g = t->a.g;
	Product *p = NEW(g->arena, Product);
	Elem matrix = t->z.matrix;
	p->sched = (Sched){.depth = steps, .unroll = matrix ? 1 : 4};
	p->sums = (int)(m * n / g->target->machine->threads);
	p->d = (ThreadTile){.g = g,
	                    .kind = kind,
	                    .s = &p->sched,
	                    .p.matrix = matrix,
	                    .elem = t->a.elem,
	                    .packed = is_half(matrix) ? g->i16 : t->a.elem,
	                    .bytes = (int)t->a.p.bytes,
	                    .packed_bytes = (int)t->z.bytes,
	                    .size = {m, n},
	                    .thread = t->thread,
	                    .shared = t->shared};
	return p;
}

// Operand o is a part of shared memory, of so many lines.
static void take_share(const ThreadAttend *t, Product *p, int o, int part, Share share)
{
	ThreadTile *d = &p->d;
	d->share[o] = share;
	Share *s = &d->share[o];
	s->side = o ? d->size[o] : MIN(d->size[o], t->z.height);
	s->start = t->z.at[part];
	s->size = d->kind->share_size(d, o);
	bool held = d->kind->hold && part == AB_WEIGHTS;
	if (!held && (s->start + s->size) * t->z.bytes > t->z.shared)
		bug("attention takes more than %lld bytes", (long long)t->z.shared);
}

static Product *begun(Product *p)
{
	clear_sums(&p->d, p->sums);
	p->d.kind->start(&p->d);
	return p;
}

Product *attend_product(ThreadAttend *t, int64_t m, int64_t n, int64_t steps, bool along, int a,
                        int b)
{
	const TargetOps *ops = t->a.g->ops;
	Product *p = product_new(t,
	                         t->z.groups     ? ops->group_rows_kind
	                         : t->z.own_rows ? ops->rows_kind
	                         : t->z.matrix   ? ops->matrix_kind
	                                         : &fused_tile,
	                         m, n, steps);
	take_share(t, p, 0, a, (Share){.along = true, .stays = true, .lines = t->z.height});
	take_share(t, p, 1, b, (Share){.along = along, .lines = t->z.columns});
	return begun(p);
}

Product *attend_turned_product(ThreadAttend *t, int64_t m, int64_t n, int64_t steps, int a, int b)
{
	Product *p = product_new(t, t->a.g->ops->matrix_kind, m, n, steps);
	take_share(t, p, 0, a, (Share){.stays = true, .lines = steps});
	take_share(t, p, 1, b, (Share){.stays = true, .lines = steps});
	return begun(p);
}

void attend_multiply(Product *p, Value stage)
{
	p->d.kind->multiply(&p->d, stage);
}

void attend_multiply_anew(Product *p, Value stage)
{
	clear_sums(&p->d, p->sums);
	attend_multiply(p, stage);
}

Value attend_place(Product *p, int o, Value k, Value other)
{
	return share_memory(&p->d, o, p->d.kind->place(&p->d, o, k, other));
}

Value attend_packed(const Product *p, Value x, Elem type)
{
	Elem matrix = p->d.p.matrix;
	if (is_half(matrix))
		return type == matrix ? x : narrow_float(p->d.g, x, matrix);
	return widen_float(p->d.g, x, type);
}

int64_t attend_part(const ThreadAttend *t, int64_t sums, int tiles)
{
	enum { FRAGMENTS = 8 }; // registers of operands that pass through them
	const AttendBlocks *z = &t->z;
	const Gen *g = t->a.g;
	int64_t threads = g->target->machine->threads, tile = attend_tile_rows(z);
	int64_t n = z->columns * z->height / tile;
	int64_t blocks = residents(g->kern->sched, g->stage);
	int64_t own = RESIDENT / blocks * (ATTEND_SUMS - (z->groups ? 0 : FRAGMENTS));
	int masks = !!t->a.bias + !!t->a.shown + !!t->a.factor + (t->column.all % z->columns > 0);
	while (z->own_rows && n > LEAST && (sums + (tiles + masks) * n) * tile > own * threads)
		n /= 2;
	return n;
}

// ---- operands -------------------------------------------------------------------------

// Returns operand o before the rounding that products do themselves.
static Ref operand_of(const ThreadAttend *t, int o)
{
	const Graph *g = t->a.g->graph;
	const Val *v = val(g, t->a.v->in[o]);
	bool low = is_half(t->z.matrix) && v->op == O_cast && val(g, v->in[0])->type == t->z.matrix;
	return low || (t->z.matrix == E_f32 && is_tf32(v)) ? v->in[0] : t->a.v->in[o];
}

// Finds where `n` elements of a row lie in memory, side by side. False if they do not, or may not
// be aligned: the caller's own memory may lie anywhere.
static bool find_wide(ThreadAttend *t, Ref *r, const Index *row, const Index *column, int n,
                      Index *place)
{
	Gen *g = t->a.g;
	Ref from = *r;
	for (int e = 0; e < n; e++) {
		Index idx[RANK], next, at = shift_index(*column, e);
		Ref found = from;
		attend_index(&t->a, row, &at, idx);
		index_within(&val(g->graph, from)->shape, idx, idx);
		if (!locate(g->vars, g->graph, &g->computed, &found, idx, &next))
			return false;
		if (!e)
			*r = found, *place = next;
		Index apart = add_index(g->vars, &next, place, -1);
		if (apart.n || apart.constant != e || found != *r)
			return false;
	}
	Block block = value_location(g->plan, *r).block;
	return index_align(g->vars, place) % n == 0 && block != B_input && block != B_output &&
	       block != B_none;
}

// Loads `n` elements of a row of a value with `columns`, the first of them column n * group;
// elements outside are any others. Returns their type.
static Elem load_row(ThreadAttend *t, Ref r, const Index *row, const Index *group, int64_t columns,
                     int n, Value *x)
{
	Gen *g = t->a.g;
	Index none = constant_index(0), own = *group, column, place;
	if (columns % n == 0 && !index_fits(g->vars, group, columns / n))
		own = uniform_index(g, least(g, index_i64(g, group), number(g, columns / n - 1)),
		                    columns / n, 1);
	column = add_index(g->vars, &none, &own, n);
	Elem type = val(g->graph, r)->type;
	bool full = index_fits(g->vars, &column, columns - n + 1);
	Ref from = r;
	if (full && n * elems[type].bytes <= WIDE && find_wide(t, &from, row, &column, n, &place)) {
		Value memory = place_in(g, memory_type(g, type), location_address(g, from),
		                        index_i64(g, &place));
		load_side(g, memory_type(g, type), elems[type].bytes, memory, n, x);
		return type;
	}
	for (int e = 0; e < n; e++) {
		Index at = shift_index(column, e);
		if (!full) {
			Value inside = least(g, index_i64(g, &at), number(g, columns - 1));
			at = uniform_index(g, inside, columns, 1);
		}
		x[e] = at_element(&t->a, r, row, &at);
	}
	return type;
}

// Brings rows of an operand of attention, from `first` on, to shared memory as operand o of a
// product, after `stage` bytes; outside of it, there are zeros.
static void bring_to(ThreadAttend *t, Product *p, int o, int operand, Value first, Value stage)
{
	Gen *g = t->a.g;
	ThreadTile *d = &p->d;
	Ref r = operand_of(t, operand);
	const Shape *shape = &val(g->graph, r)->shape;
	int64_t rows = shape->dim[t->a.p.lead.rank], columns = last_dim(shape);
	int64_t steps = p->sched.depth, n = WIDE / d->packed_bytes;
	bool along = d->share[o].along;
	int64_t down = o ? t->z.columns : t->z.height, across = along ? steps : d->size[o];
	int64_t threads = g->target->machine->threads;
	Loop loop = loop_begin(g, d->thread, number(g, down * across / n), threads);
	Index own = uniform_index(g, loop.i, down * across / n, 1), row, group;
	split_index(g->vars, &own, across / n, &row, &group);
	Value at_row = index_i64(g, &row), line = sum_of(g, first, at_row);
	Value inside = LLVMBuildICmp(g->b, LLVMIntSLT, line, number(g, rows), "");
	Index in = uniform_index(g, least(g, line, number(g, rows - 1)), rows, 1);
	Value x[LOADS], column = times(g, index_i64(g, &group), n);
	Elem type = load_row(t, r, &in, &group, columns, (int)n, x);
	for (int e = 0; e < n; e++) {
		Value is = inside;
		if (across > columns) {
			Value at = sum_of(g, column, number(g, e));
			is = both(g, is,
			          LLVMBuildICmp(g->b, LLVMIntSLT, at, number(g, columns), ""));
		}
		x[e] = attend_packed(p, x[e], type);
		x[e] = LLVMBuildSelect(g->b, is, x[e], LLVMConstNull(d->packed), "");
	}
	bool in_line = d->kind->in_line(&d->share[o]);
	int alike = alike_lines(d);
	int64_t apart = d->share[o].size / (along ? steps : d->size[o]);
	Value to = NULL;
	for (int e = 0; e < n; e += in_line ? (int)n : 1) {
		Value at = sum_of(g, column, number(g, e));
		if (e % alike == 0)
			to = bytes_after(
			    g, attend_place(p, o, along ? at : at_row, along ? at_row : at), stage);
		store_side(g, d->packed, d->packed_bytes,
		           place_in(g, d->packed, to, number(g, e % alike * apart)),
		           in_line ? (int)n : 1, x + e);
	}
	loop_end(g, &loop);
}

void attend_bring(ThreadAttend *t, Product *p, int o, int operand, Value first)
{
	bring_to(t, p, o, operand, first, number(t->a.g, 0));
}

// ---- operands in stages -----------------------------------------------------------------

// Returns the bytes from row to row of an operand, from element `place` on; or IRREGULAR.
static int64_t row_bytes(ThreadAttend *t, Ref r, const Index *row, const Index *column, int n,
                         const Index *place)
{
	Index next, below = shift_index(*row, 1);
	Ref found = r;
	if (!find_wide(t, &found, &below, column, n, &next))
		return IRREGULAR;
	Index apart = add_index(t->a.g->vars, &next, place, -1);
	return apart.n ? IRREGULAR : apart.constant * elems[val(t->a.g->graph, found)->type].bytes;
}

Source attend_source(ThreadAttend *t, Product *p, int o, int operand)
{
	Gen *g = t->a.g;
	ThreadTile *d = &p->d;
	Source s = {.p = p, .o = o, .operand = operand};
	Ref r = operand_of(t, operand);
	const Shape *shape = &val(g->graph, r)->shape;
	int64_t threads = g->target->machine->threads, n = WIDE / d->packed_bytes;
	int64_t rows = shape->dim[t->a.p.lead.rank], columns = last_dim(shape);
	bool along = d->share[o].along;
	int64_t down = o ? t->z.columns : t->z.height;
	int64_t groups = (along ? d->s->depth : d->size[o]) / n, pieces = down * groups;
	if (val(g->graph, r)->type != t->z.matrix || columns % n)
		return s;
	Index thread = uniform_index(g, d->thread, threads, 1), row, group, place, none;
	split_index(g->vars, &thread, groups, &row, &group);
	Value own_row = index_i64(g, &row), own = times(g, index_i64(g, &group), n);
	Value inside = LLVMBuildICmp(g->b, LLVMIntSLT, own, number(g, columns), "");
	Value safe = least(g, index_i64(g, &group), number(g, columns / n - 1));
	Index safe_group = uniform_index(g, safe, columns / n, 1), column;
	none = constant_index(0);
	column = add_index(g->vars, &none, &safe_group, n);
	// A row that exists with the one after it, whose place is that of row 0 plus its own.
	Index some = some_index(g->vars, MAX(1, rows - 1)), start;
	Ref from = r, first = r;
	if (!find_wide(t, &from, &some, &column, (int)n, &place))
		return s;
	s.line = row_bytes(t, r, &some, &column, (int)n, &place);
	bool regular = s.line != IRREGULAR && llabs(s.line) < INT32_MAX / down;
	if (!regular || !find_wide(t, &first, &none, &column, (int)n, &start))
		return s;
	Index base = memory_start(g, first), at;
	at = add_index(g->vars, &base, &start, elems[val(g->graph, first)->type].bytes);
	s.from = sum_of(g, index_i64(g, &at), times(g, own_row, s.line));
	s.to = attend_place(p, o, along ? own : own_row, along ? own_row : own);
	s.row = own_row;
	s.apart = threads / groups;
	s.far = s.apart * s.line;
	s.count = (int)MAX(1, pieces / threads);
	if (pieces < threads)
		s.some = LLVMBuildICmp(g->b, LLVMIntSLT, d->thread, number(g, pieces), "");
	if (groups * n > columns)
		s.inside = inside;
	return s;
}

// Brings rows from `first` on, after `stage` bytes; outside of the operand, there are zeros.
static void bring_source(ThreadAttend *t, const Source *s, Value first, Value stage)
{
	Gen *g = t->a.g;
	ThreadTile *d = &s->p->d;
	if (!s->count) {
		bring_to(t, s->p, s->o, s->operand, first, stage);
		return;
	}
	const Shape *shape = &val(g->graph, operand_of(t, s->operand))->shape;
	int64_t rows = shape->dim[t->a.p.lead.rank], down = s->o ? t->z.columns : t->z.height;
	int64_t line = d->kind->line(d, s->o) * d->packed_bytes;
	Loop when = when_begin(g, s->some ? s->some : LLVMConstInt(g->i1, 1, 0));
	Value from = sum_of(g, s->from, times(g, first, s->line));
	Value to = bytes_after(g, s->to, stage);
	for (int i = 0; i < s->count; i++) {
		Value inside = s->inside;
		if (rows % down) {
			Value row = sum_of(g, sum_of(g, first, s->row), number(g, i * s->apart));
			Value is = LLVMBuildICmp(g->b, LLVMIntSLT, row, number(g, rows), "");
			inside = inside ? both(g, inside, is) : is;
		}
		Copy copy = {.n = WIDE / d->packed_bytes,
		             .to = to,
		             .from = from,
		             .to_bytes = i * s->apart * line,
		             .from_bytes = i * s->far,
		             .inside = inside};
		d->kind->copy(d, &copy);
	}
	when_end(g, &when);
}

static void bring_columns(ThreadAttend *t, const Stages *s, Value first, Value stage)
{
	for (int i = 0; i < s->columns_count; i++)
		bring_source(t, &s->columns[i], first, stage);
}

static void commit(const Stages *s)
{
	if (s->copies)
		s->columns[0].p->d.kind->commit(&s->columns[0].p->d);
}

// Begins to bring the rows and the first block of columns.
static void bring_first(ThreadAttend *t, Stages *s, Value begin)
{
	Value none = LLVMConstInt(t->a.g->i32, 0, 0);
	for (int i = 0; i < s->rows_count; i++)
		s->copies |= s->rows[i].count > 0;
	for (int i = 0; i < s->columns_count; i++)
		s->copies |= s->columns[i].count > 0;
	for (int i = 0; i < s->rows_count; i++)
		bring_source(t, &s->rows[i], t->first, none);
	bring_columns(t, s, begin, none);
	commit(s);
}

// Waits until all threads can read what was brought.
static void wait_for_stage(ThreadAttend *t, const Stages *s)
{
	ThreadTile *d = &s->columns[0].p->d;
	if (s->copies)
		d->kind->wait(d, 0);
	if (d->kind->publish)
		d->kind->publish(d);
	t->a.g->ops->all_threads(t->a.g);
}

void attend_bring_tile(ThreadAttend *t, Stages *s, Value first)
{
	bring_first(t, s, first);
	wait_for_stage(t, s);
}

Value attend_stages_begin(ThreadAttend *t, Stages *s, Value begin, Value end)
{
	Gen *g = t->a.g;
	Value none = LLVMConstInt(g->i32, 0, 0), here = none;
	bring_first(t, s, begin);
	s->next = variable(g, none);
	s->loop = loop_begin(g, begin, end, t->z.columns);
	wait_for_stage(t, s);
	if (t->column.all <= t->z.columns)
		return none;
	here = read_variable(g, s->next);
	Value each = LLVMConstInt(g->i32, (uint64_t)t->z.stage, 0);
	Value next = LLVMBuildXor(g->b, here, each, "");
	set_variable(g, s->next, next);
	Value after = sum_of(g, s->loop.i, number(g, t->z.columns));
	Loop more = when_begin(g, LLVMBuildICmp(g->b, LLVMIntSLT, after, end, ""));
	bring_columns(t, s, after, next);
	when_end(g, &more);
	commit(s);
	return here;
}

Value attend_stage_part(const Product *p, Value stage, Value first)
{
	Gen *g = p->d.g;
	int64_t bytes = p->d.kind->line(&p->d, 1) * p->d.packed_bytes;
	return LLVMBuildAdd(g->b, stage, LLVMBuildTrunc(g->b, times(g, first, bytes), g->i32, ""),
	                    "");
}
