// attend_halves.c: emits the operands of attention for products of bf16, or of slices of f32, one
// after the other in local memory. Output: rows, with zeros after the last column; pairs, that is
// rows 2i and 2i + 1 by turns, and columns, that is pairs of elements of a row in each line, both
// in panels of what each matrix register loads, or of the tile of vectors; and the probabilities
// and slopes of a strip of queries by key. Invariant: rows that a sum goes through are 0 beyond the
// last.
#include "attend_tile.h"

static LLVMTypeRef half_vector(const Attend *a)
{
	return LLVMVectorType(a->g->i16, (unsigned)a->g->width);
}

Value half_element(const Attend *a, Value memory, Value i)
{
	return place_in(a->g, a->g->i16, memory, i);
}

static Value half_load(const Attend *a, Value memory, Value i)
{
	Value v = LLVMBuildLoad2(a->g->b, half_vector(a), half_element(a, memory, i), "");
	LLVMSetAlignment(v, 2);
	return v;
}

static void half_store(const Attend *a, Value v, Value memory, Value i)
{
	Value to = LLVMBuildStore(a->g->b, splat(a->g, v), half_element(a, memory, i));
	LLVMSetAlignment(to, 2);
}

int64_t half_slice(const Attend *a, int part)
{
	return 2 * a->p.local[part] / a->p.slices;
}

static Value slice_from(const Attend *a, int n, int part, Value i) // element i of slice n
{
	return sum_of(a->g, i, number(a->g, n * half_slice(a, part)));
}

// Sets what products read of an element: bf16, or its slices (small: as in slice()).
static void halves_of(const Attend *a, Value x, bool small, Value *halves)
{
	if (a->p.slices > 1)
		slice(a->g, x, small, halves);
	else
		halves[0] = scalar_type(x) == a->g->f32 ? narrow_float(a->g, x, E_bf16) : x;
}

void store_halves(const Attend *a, Value x, bool small, int part, Value i)
{
	Value halves[SLICES];
	halves_of(a, x, small, halves);
	for (int n = 0; n < a->p.slices; n++)
		half_store(a, halves[n], a->local[part], slice_from(a, n, part, i));
}

// ---- packing --------------------------------------------------------------------------

static int64_t columns_of(const Attend *a, int o)
{
	return last_dim(&val(a->g->graph, a->v->in[o])->shape);
}

Ref read_operand(const Attend *a, int o)
{
	const Gen *g = a->g;
	Ref r = a->v->in[o];
	const Val *v = val(g->graph, r);
	bool wide = a->p.halves && v->op == O_cast && val(g->graph, v->in[0])->type == E_bf16;
	return wide && g->computed.holds(g->computed.context, r) ? v->in[0] : r;
}

// Sets the vectors of an operand's row from column c on: 0 beyond the last, or unless `some`; NULL:
// true.
static void halves_at(const Attend *a, int o, const Index *row, int64_t c, Value some,
                      Value *halves)
{
	Gen *g = a->g;
	int64_t columns = columns_of(a, o);
	Value none = LLVMConstNull(half_vector(a));
	for (int n = 0; n < a->p.slices; n++)
		halves[n] = none;
	if (c >= columns)
		return;
	Index column = lanes_within(g, number(g, c), columns, g->width);
	Value x = at_element(a, read_operand(a, o), row, &column);
	Value exist = index_value(g, &column).mask;
	halves_of(a, splat(g, x), false, halves);
	for (int n = 0; n < a->p.slices; n++) {
		halves[n] = exist ? choose(g, exist, halves[n], none) : halves[n];
		halves[n] = some ? choose(g, some, halves[n], none) : halves[n];
	}
}

// Returns elements first, first + 1, .. of x and y by turns, as many as a vector has.
static Value by_turns(const Attend *a, Value x, Value y, int first)
{
	Gen *g = a->g;
	Value lane[64];
	for (int l = 0; l < g->width; l++)
		lane[l] = LLVMConstInt(g->i32, (unsigned)(first + l / 2 + l % 2 * g->width), 0);
	return LLVMBuildShuffleVector(g->b, x, y, LLVMConstVector(lane, (unsigned)g->width), "");
}

// Packs rows i and i + 1 of `p`; those from `end` on as 0; NULL: none are.
static void pack_two(const Attend *a, const HalfRows *p, Value i, Value end)
{
	Gen *g = a->g;
	int width = g->width;
	int64_t columns = columns_of(a, p->operand), line = attend_half_line(&a->p, columns);
	int64_t rows = val(g->graph, a->v->in[p->operand])->shape.dim[a->p.lead.rank];
	Index row[2];
	Value own[2] = {i, sum_of(g, i, number(g, 1))}, some[2] = {0}, x[2][SLICES];
	for (int k = 0; k < 2; k++) {
		row[k] = row_index_of(a, sum_of(g, p->first, own[k]), rows);
		if (end)
			some[k] = LLVMBuildICmp(g->b, LLVMIntSLT, own[k], end, "");
	}
	// Pairs of 16 columns: those that a matrix register loads, or one pair of a tile of
	// vectors.
	int64_t high = 2 * MAX(1, a->p.matrix), square = high * a->p.lanes;
	Value own_row = LLVMBuildURem(g->b, i, number(g, high), "");
	Value place = times(g, minus(g, i, own_row), 2 * a->p.lanes);
	place = sum_of(g, place, times(g, own_row, a->p.lanes));
	g->width = (int)a->p.panel;
	for (int64_t c = 0; c < columns; c += g->width) {
		Value to = sum_of(g, place, number(g, 2 * c / g->width * p->line));
		for (int k = 0; k < 2; k++)
			halves_at(a, p->operand, &row[k], c, some[k], x[k]);
		for (int n = 0; n < a->p.slices; n++) {
			for (int k = 0; k < 2 && p->rows < AT_PARTS; k++) {
				Value from = sum_of(g, times(g, own[k], line), number(g, c));
				half_store(a, x[k][n], a->local[p->rows],
				           slice_from(a, n, p->rows, from));
			}
			for (int part = 0; part < 2 && p->pairs < AT_PARTS; part++) {
				Value half = by_turns(a, x[0][n], x[1][n], part * g->width / 2);
				Value from = sum_of(g, to, number(g, part * square));
				half_store(a, half, a->local[p->pairs],
				           slice_from(a, n, p->pairs, from));
			}
		}
	}
	g->width = width;
}

void pack_halves(const Attend *a, const HalfRows *p)
{
	Gen *g = a->g;
	Value full = LLVMBuildAnd(g->b, p->count, number(g, -2), "");
	Loop loop = loop_begin(g, number(g, 0), full, 2);
	pack_two(a, p, loop.i, NULL);
	loop_end(g, &loop);
	bool rows = p->rows < AT_PARTS && !a->p.matrix; // which the strip has no more of
	loop = loop_begin(g, full, round_up(g, p->count, rows ? 2 : a->p.panel), 2);
	pack_two(a, p, loop.i, p->count);
	loop_end(g, &loop);
}

void pack_half_columns(const Attend *a, int o, int part, int64_t line)
{
	Gen *g = a->g;
	int width = g->width;
	int64_t panel = a->p.panel;
	Loop loop = loop_begin(g, number(g, 0), a->keys, width);
	Value to = times(g, LLVMBuildUDiv(g->b, loop.i, number(g, panel), ""), line);
	Value vector = LLVMBuildURem(g->b, loop.i, number(g, panel), "");
	to = sum_of(g, to, times(g, vector, MAX(1, a->p.matrix)));
	int64_t step = a->p.matrix ? width : panel;
	Index key[64];
	for (int k = 0; k < width; k++) {
		Value own = sum_of(g, loop.i, number(g, k));
		key[k] = row_index_of(a, sum_of(g, a->first_key, own), a->p.keys);
	}
	for (int64_t c = 0; c < columns_of(a, o); c += 2 * width) {
		Value v[SLICES][64], halves[SLICES];
		for (int k = 0; k < width; k++) {
			g->width = 2 * width;
			halves_at(a, o, &key[k], c, NULL, halves);
			g->width = width;
			for (int n = 0; n < a->p.slices; n++)
				v[n][k] = LLVMBuildBitCast(g->b, halves[n], attend_vector(a), "");
		}
		for (int n = 0; n < a->p.slices; n++) {
			Value memory =
			    half_element(a, a->local[part], slice_from(a, n, part, number(g, 0)));
			transpose_vectors(g, v[n]);
			for (int k = 0; k < width; k++)
				local_store(a, v[n][k], memory,
				            sum_of(g, to, number(g, c / 2 * panel + k * step)));
		}
	}
	loop_end(g, &loop);
}

// ---- probabilities --------------------------------------------------------------------

// Elements of x and y by turns, within each 128 bits: the first half of them, or the other.
static Value within_quarters(const Attend *a, Value x, Value y, int other)
{
	enum { QUARTER = 8 }; // elements
	Gen *g = a->g;
	Value lane[64];
	for (int l = 0; l < g->width; l++) {
		int from = l / QUARTER * QUARTER + other * QUARTER / 2 + l % QUARTER / 2;
		lane[l] = LLVMConstInt(g->i32, (unsigned)(from + l % 2 * g->width), 0);
	}
	return LLVMBuildShuffleVector(g->b, x, y, LLVMConstVector(lane, (unsigned)g->width), "");
}

// Turns half of the keys from `key` on: of each eight, the first four or the others.
static void turn_keys(const Attend *a, Value from, Value to, Value key, int other)
{
	Gen *g = a->g;
	int width = g->width;
	int64_t line = attend_half_line(&a->p, a->s->depth);
	int64_t key_line = attend_half_line(&a->p, a->s->strips * a->s->height);
	Value v[64];
	g->width = 2 * width;
	for (int r = 0; r < width; r++) {
		v[r] = LLVMConstNull(half_vector(a));
		if (2 * r >= a->s->height)
			continue;
		Value x = half_load(a, from, sum_of(g, key, number(g, 2 * r * line)));
		Value y = half_load(a, from, sum_of(g, key, number(g, (2 * r + 1) * line)));
		v[r] = within_quarters(a, x, y, other);
	}
	g->width = width;
	for (int r = 0; r < width; r++)
		v[r] = LLVMBuildBitCast(g->b, v[r], attend_vector(a), "");
	transpose_vectors(g, v);
	for (int j = 0; j < width; j++) {
		int64_t own = j / 4 * 8 + other * 4 + j % 4;
		Value at = times(g, sum_of(g, key, number(g, own)), key_line);
		local_store(a, v[j], half_element(a, to, at), number(g, 0));
	}
}

void turn_strip(const Attend *a, int rows, int by_key, Value line, Value end)
{
	Gen *g = a->g;
	int64_t row = attend_half_line(&a->p, a->s->depth);
	for (int n = 0; n < a->p.slices; n++) {
		Value from = half_element(a, a->local[rows], slice_from(a, n, rows, number(g, 0)));
		Value to = half_element(a, a->local[by_key], slice_from(a, n, by_key, line));
		Loop none = loop_begin(g, a->rows, number(g, a->s->height), 1);
		Loop keys = loop_begin(g, number(g, 0), end, g->width);
		half_store(a, LLVMConstNull(half_vector(a)), from,
		           sum_of(g, times(g, none.i, row), keys.i));
		loop_end(g, &keys);
		loop_end(g, &none);
		Loop blocks = loop_begin(g, number(g, 0), end, a->p.panel);
		for (int other = 0; other < 2; other++)
			turn_keys(a, from, to, blocks.i, other);
		loop_end(g, &blocks);
	}
}
