// at.c: emits an element of any value, at any index: what a kernel computes.
// A value in memory is read, a move changes the index, a map is applied to its operands, a
// reduction that is not computed yet becomes a loop. An element is computed once per level.
#include "gen.h"
#include <string.h>

// ---- known elements -------------------------------------------------------------------

uint64_t *element_cell(Gen *g, Table *elements, Ref r, const Index *idx)
{
	int64_t key[1 + RANK * INDEX_WORDS];
	int n = 0;
	key[n++] = r;
	for (int a = 0; a < val(g->graph, r)->shape.rank; a++)
		n += index_words(&idx[a], key + n);
	return table_cell(elements, key, sizeof *key * (size_t)n);
}

// Returns the cell of element idx of r among the values known at this level.
static uint64_t *memo_cell(Gen *g, Ref r, const Index *idx)
{
	if (!g->level->memo)
		g->level->memo = table_new(g->arena);
	return element_cell(g, g->level->memo, r, idx);
}

void remember(Gen *g, Ref r, const Index *idx, Value v)
{
	*memo_cell(g, r, idx) = (uint64_t)(uintptr_t)v;
}

void bind_memory(Gen *g, Bound *bound)
{
	bound->next = g->bound;
	bound->floor = g->floor;
	g->bound = bound;
	g->floor = g->level;
}

void unbind_memory(Gen *g, Bound *bound)
{
	g->bound = bound->next;
	g->floor = bound->floor;
}

static Lanes bound_lanes(Gen *g, const Bound *bound, int rank, const Index *idx)
{
	Index linear = constant_index(0);
	for (int a = 0; a < rank; a++) {
		Index from = add_index(g->vars, &idx[a], &bound->origin[a], -1);
		linear = add_index(g->vars, &linear, &from, bound->stride[a]);
	}
	Lanes lanes = index_value(g, &linear);
	lanes.most = INT32_MAX / 4;
	return lanes;
}

void store_kept(Gen *g, const Bound *keep, const Index *idx)
{
	for (const Bound *k = keep; k; k = k->next) {
		const Val *v = val(g->graph, k->r);
		Lanes lanes = bound_lanes(g, k, v->shape.rank, idx);
		store_lanes(g, v->type, k->memory, &lanes, at(g, k->r, idx));
	}
}

// ---- reading and writing --------------------------------------------------------------

// Registers of GPUs have 32 bits: the number of an element is computed in as many if they suffice.
Lanes element_lanes(Gen *g, const Val *v, const Index *idx)
{
	Shape rows = memory_shape(v);
	Index linear = ravel(g->vars, &rows, idx);
	Lanes lanes = index_value(g, &linear);
	lanes.most = count_of(&rows);
	if (g->target->machine->threads > 1 && lanes.most < INT32_MAX && !g->shares) {
		lanes.base = LLVMBuildTrunc(g->b, lanes.base, g->i32, "");
		lanes.base = LLVMBuildZExt(g->b, lanes.base, g->i64, "");
	}
	return lanes;
}

static Value read_memory(Gen *g, const Val *v, Ref r, const Index *idx)
{
	Lanes lanes = element_lanes(g, v, idx);
	return load_lanes(g, v->type, location_address(g, r), &lanes);
}

// Returns the alignment of the stores of an output past the caches, if these fill its lines; else
// 0.
static unsigned past_caches(Gen *g, Ref r, const Index *idx, const Lanes *lanes)
{
	enum { LINE = 64, LEAST = 16 };
	if (!is_past(g->kern->sched, r))
		return 0;
	const Val *v = val(g->graph, r);
	Shape rows = memory_shape(v);
	Index linear = ravel(g->vars, &rows, idx);
	int64_t bytes = elems[v->type].bytes, vector = MIN(LINE, g->width * bytes);
	bool full = lanes->step == 1 && !lanes->vector && !lanes->mask && vector >= LEAST &&
	            index_align(g->vars, &linear) * bytes % vector == 0;
	return full ? (unsigned)vector : 0;
}

void store_out(Gen *g, int k, const Index *idx, Value x)
{
	const Val *v = val(g->graph, g->kern->out[k]);
	Lanes lanes = element_lanes(g, v, idx);
	lanes.past = past_caches(g, g->kern->out[k], idx, &lanes);
	store_lanes(g, v->type, out_address(g, k), &lanes, x);
}

Value load_out(Gen *g, int k, const Index *idx)
{
	const Val *v = val(g->graph, g->kern->out[k]);
	Lanes lanes = element_lanes(g, v, idx);
	return load_lanes(g, v->type, out_address(g, k), &lanes);
}

void space_index(Gen *g, const Shape *shape, const Index *idx, Index *to)
{
	if (same_shape(shape, &g->kern->space)) {
		memcpy(to, idx, sizeof *to * (size_t)shape->rank);
		return;
	}
	Index linear = ravel(g->vars, &g->kern->space, idx);
	unravel(g->vars, &linear, shape, to);
}

void store_outs(Gen *g, const Index *idx)
{
	const Kern *k = g->kern;
	Value *v = NEWS(g->arena, Value, k->nout);
	Index(*to)[RANK] = take(g->arena, sizeof *to * (size_t)k->nout);
	for (int o = 0; o < k->nout; o++) {
		if (is_reduced_out(g->graph, k, o))
			continue;
		space_index(g, &val(g->graph, k->out[o])->shape, idx, to[o]);
		v[o] = at(g, k->out[o], to[o]);
	}
	for (int o = 0; o < k->nout; o++)
		if (v[o])
			store_out(g, o, to[o], v[o]);
}

void store_reduced_outs(Gen *g, const Index *idx)
{
	const Kern *k = g->kern;
	// All are computed before the first is stored, perhaps over their operands.
	Value *v = NEWS(g->arena, Value, k->nout);
	for (int o = 0; o < k->nout; o++)
		if (is_reduced_out(g->graph, k, o))
			v[o] = at(g, k->out[o], idx);
	for (int o = 0; o < k->nout; o++)
		if (v[o])
			store_out(g, o, idx, v[o]);
}

void prefetch_row(Gen *g, const Index *idx)
{
	enum { SOON = 512 }; // elements; of a pass that waits for memory
	const Kern *kern = g->kern;
	const ValSteps *ahead = &kern->sched->ahead;
	int64_t row = 1;
	for (int a = 0; a < kern->space.rank; a++)
		row *= kern->reduce >> a & 1 ? kern->space.dim[a] : 1;
	const Machine *machine = g->target->machine;
	bool near =
	    kern->sched->along || holds_rows(g->graph, kern->sched, machine, row, machine->l1);
	row = kern->sched->along ? MIN(row, SOON) : row;
	for (int k = 0; k < ahead->count; k++) {
		Ref r = ahead->at[k].val;
		const Val *v = val(g->graph, r);
		Shape rows = memory_shape(v);
		Index in[RANK];
		space_index(g, &v->shape, idx, in);
		Index at = ravel(g->vars, &rows, in);
		int64_t last = last_dim(&v->shape);
		at = shift_index(at, row % last ? row : row / last * last_dim(&rows));
		Lanes lanes = index_value(g, &at);
		Value next =
		    place_in(g, memory_type(g, v->type), location_address(g, r), lanes.base);
		g->ops->prefetch(g, next, near ? F_read : F_later);
	}
}

// ---- bounds ---------------------------------------------------------------------------

// Returns an index that is safe to read, for one that may lie outside [0, extent): masked if lanes
// are consecutive, else clamped. Adds to `inside` (NULL: everywhere) the lanes that lie inside.
static Index guard(Gen *g, const Index *idx, int64_t extent, Value *inside)
{
	if (index_fits(g->vars, idx, extent))
		return *idx;
	Level *was = level_go(g, index_level(g, 1, idx));
	Lanes x = index_value(g, idx);
	int64_t align = index_align(g->vars, idx);
	// An aligned vector lies wholly inside or wholly outside: its first lane decides.
	bool together = x.step == 1 && !x.vector && align % g->width == 0 && extent % g->width == 0;
	Value v = together ? x.base : index_i64(g, idx);
	Value ok = LLVMBuildICmp(g->b, LLVMIntULT, v, int_like(v, extent), "");
	Index safe;
	if (together) {
		Value base = LLVMBuildSelect(g->b, ok, v, number(g, 0), "");
		safe = lane_index(g, base, extent, g->width, x.mask);
	} else if (is_vector(v) && !x.vector && x.step == 1) {
		int width = g->width;
		Value last = LLVMBuildAdd(g->b, x.base, number(g, width - 1), "");
		Value any =
		    LLVMBuildICmp(g->b, LLVMIntULT, last, number(g, extent + width - 1), "");
		Value base = LLVMBuildSelect(g->b, any, x.base, number(g, 0), "");
		Value mask = x.mask ? LLVMBuildAnd(g->b, x.mask, ok, "") : ok;
		safe = lane_index(g, base, extent, align, mask);
	} else {
		Value clamped = LLVMBuildSelect(g->b, ok, v, int_like(v, 0), "");
		safe = is_vector(v) ? vector_index(g, clamped, extent, x.mask)
		                    : uniform_index(g, clamped, extent, align);
	}
	level_go(g, was);
	*inside = *inside ? both(g, *inside, ok) : ok;
	return safe;
}

// ---- moves ----------------------------------------------------------------------------

// Sets `in` to the index of operand k that element idx of a move reads, and adds to `inside` the
// lanes that read it.
static void guarded_index(Gen *g, const Val *v, int k, const Index *idx, Index *in, Value *inside)
{
	const Shape *from = &val(g->graph, v->in[k])->shape;
	Index zero[RANK];
	int n = operand_index(g->vars, g->graph, v, k, idx, in, zero);
	for (int i = 0; i < n; i++)
		guard(g, &zero[i], 1, inside);
	for (int a = 0; has_fill(v->op) && a < from->rank; a++)
		in[a] = guard(g, &in[a], from->dim[a], inside);
}

static Value at_concat(Gen *g, const Val *v, const Index *idx)
{
	Value found = NULL;
	for (int k = v->nin - 1; k >= 0; k--) {
		if (!concat_reaches(g->vars, g->graph, v, k, idx))
			continue;
		Index in[RANK];
		Value inside = NULL;
		guarded_index(g, v, k, idx, in, &inside);
		Value x = at(g, v->in[k], in);
		found = found && inside ? choose(g, inside, x, found) : x;
	}
	return found;
}

static Value at_move(Gen *g, const Val *v, const Index *idx)
{
	if (v->op == O_concat)
		return at_concat(g, v, idx);
	Index in[RANK];
	Value inside = NULL;
	guarded_index(g, v, 0, idx, in, &inside);
	Value x = at(g, v->in[0], in);
	if (!inside)
		return x;
	return choose(g, inside, x, constant_value(g, v->type, v->attr->x, (int64_t)v->attr->x));
}

Index data_index(Gen *g, Ref r, const Index *idx, int64_t extent)
{
	const Val *v = val(g->graph, r);
	Level *was = level_go(g, index_level(g, v->shape.rank, idx));
	Value i = cast_value(g, at(g, r, idx), v->type, E_i64);
	Value last = int_like(i, extent - 1);
	Value inside = LLVMBuildICmp(g->b, LLVMIntULT, i, last, "");
	i = LLVMBuildSelect(g->b, inside, i, last, "");
	Value mask = NULL;
	for (int a = 0; a < v->shape.rank && is_vector(i) && !mask; a++)
		mask = index_value(g, &idx[a]).mask;
	Index x = is_vector(i) ? vector_index(g, i, extent, mask) : uniform_index(g, i, extent, 1);
	level_go(g, was);
	return x;
}

static Value at_gather(Gen *g, const Val *v, const Index *idx)
{
	int axis = (int)v->attr->i[0], rank = val(g->graph, v->in[1])->shape.rank;
	const Shape *from = &val(g->graph, v->in[0])->shape;
	Index in[RANK];
	for (int a = 0; a < from->rank; a++)
		if (a == axis)
			in[a] = data_index(g, v->in[1], idx + axis, from->dim[axis]);
		else
			in[a] = idx[a < axis ? a : a - 1 + rank];
	return at(g, v->in[0], in);
}

// Compares with a position along an axis, in 32 bits. Returns NULL for another comparison.
static Value at_position(Gen *g, const Val *v, const Index *idx)
{
	for (int k = 0; v->op == O_eq && k < 2; k++) {
		const Val *u = val(g->graph, v->in[k]), *other = val(g->graph, v->in[1 - k]);
		int axis = u->op == O_iota ? (int)u->attr->i[0] : -1;
		if (axis < 0 || other->op == O_iota || u->shape.dim[axis] > INT32_MAX)
			continue;
		Index own[RANK];
		index_within(&other->shape, idx, own);
		Level *was = level_go(g, index_level(g, other->shape.rank, own));
		Value x = at(g, v->in[1 - k], own);
		Value inside =
		    LLVMBuildICmp(g->b, LLVMIntULT, x, int_like(x, u->shape.dim[axis]), "");
		x = cast_value(g, choose(g, inside, x, number(g, -1)), E_i64, E_i32);
		level_go(g, was);
		Value pair[] = {x, index_number(g, &idx[axis], E_i32)};
		level_out(g, 2, pair);
		return LLVMBuildICmp(g->b, LLVMIntEQ, pair[0], pair[1], "");
	}
	return NULL;
}

// ---- all of them ----------------------------------------------------------------------

static Value compute(Gen *g, Ref r, const Val *v, const Index *idx)
{
	for (const Bound *b = g->bound; b; b = b->next)
		if (b->r == r) {
			Lanes lanes = bound_lanes(g, b, v->shape.rank, idx);
			return load_lanes(g, v->type, b->memory, &lanes);
		}
	if (!g->inside[r])
		return read_memory(g, v, r, idx);
	double uniform;
	Value x[3], equal;
	Elem type[3];
	switch (prims[v->op].cls) {
	case C_leaf:
		if (v->op == O_iota)
			return index_i64(g, &idx[v->attr->i[0]]);
		if (v->op == O_rand)
			return at_rand(g, v, idx);
		return v->op == O_const && const_num(g->graph, r, &uniform)
		           ? constant_value(g, v->type, uniform, const_int_at(v, 0))
		           : read_memory(g, v, r, idx);
	case C_map:
		equal = at_position(g, v, idx);
		if (equal)
			return equal;
		for (int k = 0; k < v->nin; k++) { // at() indexes axes of size 1 by 0
			x[k] = at(g, v->in[k], idx);
			type[k] = val(g->graph, v->in[k])->type;
		}
		return apply(g, v, v->nin, x, type);
	case C_move:
		return at_move(g, v, idx);
	case C_reduce:
	case C_dot:
		reduce_values(g, 1, &r, idx);
		return at(g, r, idx);
	default:
		if (v->op == O_gather)
			return at_gather(g, v, idx);
		never("a value inside an expression");
	}
}

Value at_or_fill(Gen *g, Ref r, const Index *idx, double fill)
{
	const Val *v = val(g->graph, r);
	Index safe[RANK] = {0};
	Value inside = NULL;
	for (int a = 0; a < v->shape.rank; a++)
		safe[a] = guard(g, &idx[a], v->shape.dim[a], &inside);
	Value x = at(g, r, safe);
	if (!inside)
		return x;
	return choose(g, inside, x, constant_value(g, v->type, fill, (int64_t)fill));
}

Value at(Gen *g, Ref r, const Index *wanted)
{
	const Val *v = val(g->graph, r);
	Index idx[RANK];
	for (int a = 0; a < v->shape.rank; a++)
		idx[a] = v->shape.dim[a] <= 1 ? constant_index(0) : wanted[a];
	Level *was = level_go(g, index_level(g, v->shape.rank, idx));
	Value x = (Value)(uintptr_t)*memo_cell(g, r, idx);
	if (!x) {
		x = compute(g, r, v, idx);
		remember(g, r, idx, x);
	}
	level_go(g, was);
	return x;
}
