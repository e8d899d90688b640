// dot.c: the matrix product: blocks of it for workers, and the loops around a register tile.
// Takes a dot kernel. Gives its body: workers are independent blocks (batch, rows, columns) of the
// result. Keeps: each element is summed over k in an order that the shapes and the tile fix, not
// the split.
//
// A worker packs its columns of b into panels as wide as the tile (they stay in its L2), then goes
// down its rows, a strip of tile height at a time: a strip of a (in place, or packed) meets every
// panel, and what the maps after the dot make of the strip is written while the sums are in L1.
// Where k is too long for one block, sums wait in private memory for the next.
#include "gen.h"
#include <string.h>

static const struct Machine { // a row of tiles.def
	int lanes, registers, rows, vectors, narrow, unroll, depth;
} machines[] = {
#define T(lanes, registers, rows, vectors, narrow, unroll, depth)                                  \
	{lanes, registers, rows, vectors, narrow, unroll, depth},
#include "tiles.def"
#undef T
};

enum { AHEAD = 8 }; // steps of k that memory is asked for beforehand

// How an operand comes to the tile.
typedef enum Way {
	W_place, // read where it lies
	W_copy,  // packed with lanes along the tile's own axis: rows of a, columns of b
	W_turn,  // packed with lanes along k, turned in registers (b) or left so (a)
} Way;

typedef struct Dot {
	Gen *g;
	const Kern *kern;
	const Val *v;
	Tile tile;
	int lead; // axes before it are the batch; those from it to the last but one are rows
	int64_t batch, m, n, k;
	int64_t width;                                  // columns of a panel
	int64_t strips, panels;                         // of the whole product
	int64_t batches_each, strips_each, panels_each; // of a worker
	int64_t depth, blocks;                          // of k
	int64_t panel_size; // elements from panel to panel: not a multiple of 4096 bytes
	Way a_way, b_way;
	int64_t group, strip_size; // strips packed at once; elements of one
	bool b_rows;               // b lies along its rows: whole rows are copied, not panels
	Value panel, strip, sums;  // private memory
	Value sum_tile;            // the function
	Value stream[STREAMS];
	Index in_batch;
	Value first_batch, end_batch, first_strip, end_strip; // what the worker computes
	Value first_column, count;                            // of panels
	Value from, steps;                                    // the block of k
} Dot;

static int64_t ceil_div(int64_t a, int64_t b)
{
	return (a + b - 1) / b;
}

static Value sum_of(Gen *g, Value a, Value b)
{
	return LLVMBuildAdd(g->b, a, b, "");
}

static Value times(Gen *g, Value a, int64_t n)
{
	return LLVMBuildMul(g->b, a, number(g, n), "");
}

static Value least(Gen *g, Value a, Value b)
{
	return LLVMBuildSelect(g->b, LLVMBuildICmp(g->b, LLVMIntSLT, a, b, ""), a, b, "");
}

static Value element(Dot *d, Value memory, Value i)
{
	return LLVMBuildGEP2(d->g->b, d->tile.elem, memory, &i, 1, "");
}

// ---- where operands lie ---------------------------------------------------------------

// Index of an element of operand `o` (0: a, 1: b) from its coordinates.
static void element_index(Dot *d, int o, const Index *row, const Index *column, Index *idx)
{
	Gen *g = d->g;
	const Shape *full = &d->v->shape, *own = &val(g->graph, d->v->in[o])->shape;
	int last = full->rank - 1;
	Shape batch = shape_of(d->lead, full->dim);
	unravel(g, &d->in_batch, &batch, idx);
	if (o) {
		for (int a = d->lead; a < last - 1; a++)
			idx[a] = constant_index(0);
		idx[last - 1] = *row;
	} else {
		Shape rows = shape_of(last - d->lead, full->dim + d->lead);
		unravel(g, row, &rows, idx + d->lead);
	}
	idx[last] = *column;
	for (int a = 0; a <= last; a++)
		if (own->dim[a] == 1)
			idx[a] = constant_index(0);
}

static bool depends(Gen *g, int var, int on)
{
	const Var *v = g->vars.at[var];
	for (int t = 0; v->kind != V_given && t < v->of.n; t++)
		if (v->of.term[t].var == on || depends(g, v->of.term[t].var, on))
			return true;
	return var == on;
}

// By how many elements the place moves when variable `x` grows by one; IRREGULAR when that is not
// fixed.
enum { IRREGULAR = INT32_MIN };
static int64_t stride_along(Gen *g, const Index *place, const Index *x)
{
	int64_t stride = 0;
	for (int t = 0; t < place->n; t++)
		if (x->n && place->term[t].var == x->term[0].var)
			stride = place->term[t].coef;
		else if (x->n && depends(g, place->term[t].var, x->term[0].var))
			return IRREGULAR;
	return stride;
}

// Follows moves down from element idx of r. True when that ends in memory: then *place is where, in
// elements.
static bool locate(Gen *g, Ref *r, Index *idx, Index *place)
{
	while (g->inside[*r]) {
		const Val *v = val(g->graph, *r);
		Index old[RANK];
		memcpy(old, idx, sizeof old);
		if (v->op != O_reshape && v->op != O_permute && v->op != O_slice &&
		    v->op != O_expand)
			return false;
		operand_index(g, v, 0, old, idx, NULL);
		*r = v->in[0];
	}
	*place = ravel(g, &val(g->graph, *r)->shape, idx);
	return true;
}

typedef struct Stride { // of an operand: from row to row, from column to column
	bool lies;      // in memory, at fixed strides
	int64_t down, along;
} Stride;

static Stride strides_of(Gen *g, Ref r, const Index *idx, const Index *row, const Index *column)
{
	Index at[RANK], place;
	memcpy(at, idx, sizeof at);
	Stride s = {.lies = locate(g, &r, at, &place)};
	if (!s.lies)
		return s;
	s.down = stride_along(g, &place, row);
	s.along = stride_along(g, &place, column);
	s.lies = s.down != IRREGULAR && s.along != IRREGULAR;
	return s;
}

// How many of the values in memory behind element idx of r are far apart for neighbours in x.
static int far_reads(Gen *g, Ref r, const Index *idx, const Index *x)
{
	Index at[RANK], place;
	memcpy(at, idx, sizeof at);
	if (locate(g, &r, at, &place)) {
		int64_t stride = stride_along(g, &place, x);
		return stride != 0 && stride != 1;
	}
	const Val *v = val(g->graph, r);
	if (prims[v->op].cls != C_map)
		return prims[v->op].cls != C_leaf;
	int far = 0;
	for (int i = 0; i < v->nin; i++) {
		const Shape *own = &val(g->graph, v->in[i])->shape;
		Index operand[RANK];
		for (int a = 0; a < own->rank; a++)
			operand[a] = own->dim[a] == 1 ? constant_index(0) : at[a];
		far += far_reads(g, v->in[i], operand, x);
	}
	return far;
}

// ---- the shape of the work ------------------------------------------------------------

static const struct Machine *machine_of(const Target *t)
{
	for (int i = 0; i < COUNT(machines) - 1; i++)
		if (t->width >= machines[i].lanes && t->registers >= machines[i].registers)
			return &machines[i];
	return &machines[COUNT(machines) - 1];
}

// Leading axes along which b repeats, up to the rows, are rows of a.
static int batch_axes(const Gen *g, const Val *v)
{
	const Shape *b = &val(g->graph, v->in[1])->shape;
	int lead = v->shape.rank - 2;
	while (lead > 0 && b->dim[lead - 1] == 1)
		lead--;
	return lead;
}

// A tile as high as divides the rows evenly, and as wide as the columns are; narrow ones are
// higher.
static void choose_tile(Dot *d, const struct Machine *machine)
{
	Tile *t = &d->tile;
	int high = machine->rows, wide = machine->vectors, width = d->g->target->width;
	int64_t vectors = ceil_div(d->n, width);
	if (vectors == 1 || (vectors % wide == 1 && vectors < 4 * wide)) {
		high = machine->narrow;
		wide = 1;
	}
	t->lanes = MAX(1, width * 4 / t->bytes);
	t->vectors = wide * width / t->lanes;
	high = MAX(1, (high * wide + wide) / t->vectors - 1); // wider elements take more registers
	t->rows = (int)ceil_div(d->m, ceil_div(d->m, high));
	t->unroll = machine->unroll;
	d->width = wide * width;
	d->blocks = ceil_div(d->k, machine->depth);
	int64_t grain = d->blocks > 1 ? MAX(width, t->unroll) : t->unroll;
	d->depth = ceil_div(ceil_div(d->k, d->blocks), grain) * grain;
	t->rest = d->k % t->unroll != 0;
	d->strips = ceil_div(d->m, t->rows);
	d->panels = ceil_div(d->n, d->width);
	d->panel_size = (d->depth + 1) * d->width;
}

// Blocks for workers: a few a core, each worth a launch, with the least packing. Panels of a
// block fit in half of L2, and so do waiting sums.
static void choose_split(Dot *d)
{
	enum { LEAST = 8, EACH = 4, WORTH = 1 << 20 };
	int64_t flops = 2 * d->batch * d->m * d->n * d->k;
	double a_cost = d->a_way == W_place && d->tile.a_step == 1 ? 0.3 : 1;
	int64_t half = d->g->target->l2 / 2, bytes = d->tile.bytes;
	int64_t cap = MAX(1, half / (d->depth * d->width * bytes));
	int64_t wanted = MAX(LEAST, EACH * (int64_t)d->g->target->cores);
	wanted = MAX(1, MIN(wanted, flops / WORTH));
	d->batches_each = MAX(1, MIN(d->batch / wanted, d->batch * WORTH / flops));
	double least_cost = 0;
	for (int64_t columns = ceil_div(d->panels, cap); columns <= d->panels; columns++) {
		int64_t each = ceil_div(d->panels, columns);
		if (ceil_div(d->panels, each) != columns)
			continue;
		int64_t rows = MIN(d->strips, ceil_div(wanted, columns * d->batch));
		if (d->blocks > 1)
			rows = MAX(rows,
			           MIN(d->strips, ceil_div(d->m * each * d->width * bytes, half)));
		int64_t strips = ceil_div(d->strips, rows);
		rows = ceil_div(d->strips, strips);
		bool enough = rows * columns * d->batch >= wanted;
		double cost = (double)rows * (double)d->n + a_cost * (double)columns * (double)d->m;
		if (!enough)
			cost += 1e3 * (double)(d->n + d->m);
		if (d->panels_each && cost >= least_cost)
			continue;
		least_cost = cost;
		d->panels_each = each;
		d->strips_each = strips;
	}
}

// Do steps of k this far apart stay in L2 from one strip to the next?
static bool near(const Dot *d, int64_t stride)
{
	return d->k * stride * d->tile.bytes <= d->g->target->l2 / 4;
}

// How a comes to the tile: in place where k is contiguous and rows do not meet in one set of L1, or
// where its rows are and few panels meet it.
static void choose_a(Dot *d, const Index *row, const Index *column)
{
	Gen *g = d->g;
	Tile *t = &d->tile;
	Index idx[RANK];
	element_index(d, 0, row, column, idx);
	Stride s = strides_of(g, d->v->in[0], idx, row, column);
	bool apart = s.down * t->bytes % 4096 && s.along * t->bytes % 4096;
	bool placed = s.lies && (t->rows == 1 || apart);
	bool copied = far_reads(g, d->v->in[0], idx, row) < far_reads(g, d->v->in[0], idx, column);
	d->a_way = W_turn;
	t->a_row = d->depth + 16;
	t->a_step = 1;
	d->strip_size = t->rows * t->a_row;
	if (placed && (s.along == 1 || (s.down == 1 && near(d, s.along)))) {
		d->a_way = W_place;
		t->a_row = s.down;
		t->a_step = s.along;
	} else if (copied) {
		d->a_way = W_copy;
		t->a_row = 1;
		t->a_step = t->rows;
		d->strip_size = t->rows * d->depth + 2 * g->target->width;
	}
	d->group =
	    d->a_way == W_copy ? MAX(1, MIN(8, g->target->l2 / 4 / (d->strip_size * t->bytes))) : 1;
	t->soon_row = s.lies && s.along == 1 ? s.down : 0;
}

// b is read in place when few strips meet it, and every panel is whole.
static void choose_b(Dot *d, const Index *row, const Index *column)
{
	enum { FEW = 10 };
	Gen *g = d->g;
	Index idx[RANK];
	element_index(d, 1, row, column, idx);
	Stride s = strides_of(g, d->v->in[1], idx, row, column);
	d->b_rows = s.lies && s.along == 1;
	d->tile.b_step = d->width;
	bool few = d->strips_each == 1 || (d->strips_each <= FEW && near(d, s.down));
	if (d->b_rows && few && d->n % d->width == 0) {
		d->b_way = W_place;
		d->tile.b_step = s.down;
		d->tile.b_ahead = AHEAD;
	} else if (far_reads(g, d->v->in[1], idx, row) < far_reads(g, d->v->in[1], idx, column)) {
		d->b_way = W_turn;
	} else {
		d->b_way = W_copy;
	}
}

static void plan_dot(Dot *d, Gen *g, const Kern *kern)
{
	*d = (Dot){.g = g, .kern = kern, .v = val(g->graph, kern->heart)};
	const Val *v = d->v, *a = val(g->graph, v->in[0]);
	int last = v->shape.rank - 1;
	d->lead = batch_axes(g, v);
	d->batch = d->m = 1;
	for (int i = 0; i < last; i++)
		*(i < d->lead ? &d->batch : &d->m) *= v->shape.dim[i];
	d->n = v->shape.dim[last];
	d->k = a->shape.dim[last];
	d->tile.elem = elem_type(g, v->type);
	d->tile.bytes = elems[v->type].bytes;
	choose_tile(d, machine_of(g->target));
	Value zero = number(g, 0);
	d->in_batch = uniform_index(g, zero, d->batch, 1);
	Index row = uniform_index(g, zero, d->m, 1), k = uniform_index(g, zero, d->k, 1);
	Index column = uniform_index(g, zero, d->n, 1);
	choose_a(d, &row, &k);
	choose_split(d);
	choose_b(d, &k, &column);
	d->tile.c_row = d->panels_each * d->width;
	if (d->tile.soon_row && d->panels_each > 1)
		d->tile.soon = (int)ceil_div(d->tile.rows, d->panels_each);
}

// ---- packing --------------------------------------------------------------------------

// Lanes base, base + 1, .. of an axis of `count`; `align` divides base. Beyond the end: masked off.
static Index lanes_of(Gen *g, Value base, int64_t count, int64_t align)
{
	if (count % align == 0)
		return lane_index(g, base, count, align, NULL);
	Value lane[64], left = LLVMBuildSub(g->b, number(g, count), base, "");
	for (int l = 0; l < g->target->width; l++)
		lane[l] = number(g, l);
	Value numbers = LLVMConstVector(lane, (unsigned)g->target->width);
	if (g->target->width == 1)
		return lane_index(g, base, count, 1, NULL);
	Value mask = LLVMBuildICmp(g->b, LLVMIntSLT, numbers, splat(g, left), "");
	return lane_index(g, base, count, align, mask);
}

static void keep(Dot *d, Value v, Value memory, Value i)
{
	Value store = LLVMBuildStore(d->g->b, splat(d->g, v), element(d, memory, i));
	LLVMSetAlignment(store, (unsigned)d->tile.bytes);
}

static Value operand_at(Dot *d, int o, const Index *row, const Index *column)
{
	Index idx[RANK];
	element_index(d, o, row, column, idx);
	return at(d->g, d->v->in[o], idx);
}

// Where element (row, column) of operand o lies; it is read in place.
static Value in_place(Dot *d, int o, Value row, Value column)
{
	Gen *g = d->g;
	Index idx[RANK], place;
	Index i = uniform_index(g, row, o ? d->k : d->m, 1);
	Index j = uniform_index(g, column, o ? d->n : d->k, 1);
	Ref r = d->v->in[o];
	element_index(d, o, &i, &j, idx);
	if (!locate(g, &r, idx, &place))
		never("an operand read in place");
	return element(d, place_address(g, r), index_i64(g, &place));
}

// Asks for the line of memory at `from`.
static void prefetch(Gen *g, Value from)
{
	Value in[] = {from, LLVMConstInt(g->i32, 0, 0), LLVMConstInt(g->i32, 3, 0),
	              LLVMConstInt(g->i32, 1, 0)};
	intrinsic(g, "llvm.prefetch", 1, &g->ptr, COUNT(in), in);
}

// Steps first..end of the block of k, lanes along columns.
static void copy_panels(Dot *d, Value first, Value end)
{
	Gen *g = d->g;
	int64_t width = g->target->width, vectors = d->width / width;
	Loop steps, panels;
	if (d->b_rows)
		steps = loop_begin(g, first, end, 1);
	panels = loop_begin(g, number(g, 0), d->count, 1);
	Value column = sum_of(g, d->first_column, times(g, panels.i, d->width));
	Value panel = times(g, panels.i, d->panel_size);
	Index lanes[UNITS];
	for (int64_t u = 0; u < vectors; u++)
		lanes[u] = lanes_of(g, sum_of(g, column, number(g, u * width)), d->n, width);
	if (!d->b_rows)
		steps = loop_begin(g, first, end, 1);
	Value at_step = sum_of(g, d->from, steps.i), later = sum_of(g, at_step, number(g, AHEAD));
	Index row = uniform_index(g, at_step, d->k, 1);
	for (int64_t u = 0; u < vectors; u++) {
		Value to = sum_of(g, panel, times(g, steps.i, d->width));
		Value v = operand_at(d, 1, &row, &lanes[u]);
		keep(d, v, d->panel, sum_of(g, to, number(g, u * width)));
		if (d->b_rows)
			prefetch(g, in_place(d, 1, later, sum_of(g, column, number(g, u * width))));
	}
	loop_end(g, d->b_rows ? &panels : &steps);
	loop_end(g, d->b_rows ? &steps : &panels);
}

// A square of vectors turned about its diagonal, by exchanging ever smaller blocks.
static void turn(Gen *g, Value *v)
{
	int n = g->target->width;
	for (int half = n / 2; half > 0; half /= 2)
		for (int i = 0; i < n; i++) {
			if (i & half)
				continue;
			Value low[64], high[64], a = v[i], b = v[i + half];
			for (int l = 0; l < n; l++) {
				low[l] = LLVMConstInt(g->i32,
				                      (unsigned)(l & half ? n + l - half : l), 0);
				high[l] = LLVMConstInt(g->i32,
				                       (unsigned)(l & half ? n + l : l + half), 0);
			}
			v[i] = LLVMBuildShuffleVector(g->b, a, b, LLVMConstVector(low, (unsigned)n),
			                              "");
			v[i + half] = LLVMBuildShuffleVector(
			    g->b, a, b, LLVMConstVector(high, (unsigned)n), "");
		}
}

// Whole vectors of k, turned; what remains of the block is copied.
static void turn_panels(Dot *d)
{
	Gen *g = d->g;
	int width = g->target->width;
	Value mask = number(g, -(int64_t)width), whole = LLVMBuildAnd(g->b, d->steps, mask, "");
	Loop panels = loop_begin(g, number(g, 0), times(g, d->count, d->width / width), 1);
	Value column = sum_of(g, d->first_column, times(g, panels.i, width));
	Value panel = LLVMBuildUDiv(g->b, panels.i, number(g, d->width / width), "");
	Value part = LLVMBuildURem(g->b, panels.i, number(g, d->width / width), "");
	Value to = sum_of(g, times(g, panel, d->panel_size), times(g, part, width));
	Index columns[64];
	for (int j = 0; j < width; j++) {
		Value own = least(g, sum_of(g, column, number(g, j)), number(g, d->n - 1));
		columns[j] = j && d->n % d->width == 0 ? shift_index(columns[0], j)
		                                       : uniform_index(g, own, d->n, 1);
	}
	Loop steps = loop_begin(g, number(g, 0), whole, width);
	Index row = lane_index(g, sum_of(g, d->from, steps.i), d->k, width, NULL);
	Value v[64];
	for (int j = 0; j < width; j++)
		v[j] = splat(g, operand_at(d, 1, &row, &columns[j]));
	turn(g, v);
	for (int l = 0; l < width; l++)
		keep(d, v[l], d->panel,
		     sum_of(g, to, times(g, sum_of(g, steps.i, number(g, l)), d->width)));
	loop_end(g, &steps);
	loop_end(g, &panels);
	if (d->k % width || d->depth % width)
		copy_panels(d, whole, d->steps);
}

static Value first_row(Dot *d, Value strip)
{
	return least(d->g, times(d->g, strip, d->tile.rows), number(d->g, d->m - d->tile.rows));
}

// Strips of a: lanes down their rows, one step after the other. A vector may reach into the next
// step, which is written after it.
static void copy_strips(Dot *d, Value first, Value end)
{
	Gen *g = d->g;
	int64_t width = g->target->width, rows = d->tile.rows;
	Loop steps = loop_begin(g, number(g, 0), d->steps, 1);
	Index column = uniform_index(g, sum_of(g, d->from, steps.i), d->k, 1);
	Value to = times(g, steps.i, rows);
	Loop strips = loop_begin(g, first, end, 1);
	Value row = first_row(d, strips.i);
	Value own = times(g, LLVMBuildSub(g->b, strips.i, first, ""), d->strip_size);
	for (int64_t r = 0; r < rows; r += width) {
		Value mask = rows - r < width ? first_lanes(g, rows - r) : NULL;
		Index lanes = lane_index(g, sum_of(g, row, number(g, r)), d->m, 1, mask);
		Value v = operand_at(d, 0, &lanes, &column);
		keep(d, v, d->strip, sum_of(g, sum_of(g, own, to), number(g, r)));
	}
	loop_end(g, &strips);
	loop_end(g, &steps);
}

// A strip of a: lanes along k, row after row, far enough apart not to meet in one set of L1.
static void turn_strip(Dot *d, Value first)
{
	Gen *g = d->g;
	int64_t width = g->target->width;
	Loop rows = loop_begin(g, number(g, 0), number(g, d->tile.rows), 1);
	Index row = uniform_index(g, sum_of(g, first, rows.i), d->m, 1);
	Value to = times(g, rows.i, d->tile.a_row);
	Loop steps = loop_begin(g, number(g, 0), d->steps, width);
	Index column = lanes_of(g, sum_of(g, d->from, steps.i), d->k, width);
	keep(d, operand_at(d, 0, &row, &column), d->strip, sum_of(g, to, steps.i));
	loop_end(g, &steps);
	loop_end(g, &rows);
}

// ---- the worker -----------------------------------------------------------------------

typedef struct Row {
	Dot *d;
	Index row; // of all batches
} Row;

static void finish_lanes(Gen *g, int n, const Index *unit, void *ctx)
{
	const Row *r = ctx;
	const Shape *space = &r->d->kern->space;
	Shape rows = shape_of(space->rank - 1, space->dim);
	Index idx[RANK];
	unravel(g, &r->row, &rows, idx);
	for (int u = 0; u < n; u++) {
		idx[space->rank - 1] = unit[u];
		store_outs(g, idx);
	}
}

// Writes what the kernel makes of rows from..to of the strip at `first`, whose sums are finished.
static void finish_strip(Dot *d, Value first, Value from, Value to, Value sums)
{
	Gen *g = d->g;
	const Shape *shape = &d->v->shape;
	int last = shape->rank - 1;
	Bound bound = {.r = d->kern->heart, .stride = {0}};
	bound.stride[last] = 1;
	for (int64_t a = last - 1, stride = d->tile.c_row; a >= 0; stride *= shape->dim[a--])
		bound.stride[a] = stride;
	Value before = times(g, index_i64(g, &d->in_batch), d->m);
	Value skip = times(g, sum_of(g, before, first), d->tile.c_row);
	bound.memory = element(d, sums, LLVMBuildNeg(g->b, sum_of(g, skip, d->first_column), ""));
	bind(g, &bound);
	Loop rows = loop_begin(g, from, to, 1);
	Row row = {d, uniform_index(g, sum_of(g, before, rows.i), d->batch * d->m, 1)};
	Value end = sum_of(g, d->first_column, times(g, d->count, d->width));
	lane_loop(g, d->first_column, least(g, end, number(g, d->n)), d->n,
	          (int)(d->width / g->target->width), finish_lanes, &row);
	loop_end(g, &rows);
	unbind(g, &bound);
}

// What the maps after the product touch row by row: outs, and values read at the same place.
static void choose_streams(Dot *d)
{
	Gen *g = d->g;
	Tile *t = &d->tile;
	for (int o = 0; o < d->kern->nout && t->streams < STREAMS - 1; o++) {
		int bytes = elems[val(g->graph, d->kern->out[o])->type].bytes;
		d->stream[t->streams] = out_address(g, o);
		t->stream[t->streams++] = (Stream){d->n * bytes, true};
	}
	bool *memory = NEWS(g->arena, bool, g->graph->nval);
	for (int r = 0; r < g->graph->nval; r++)
		memory[r] = !g->inside[r];
	Reads reads = {0};
	Walk walk = walk_new(g->arena, g->graph, memory);
	walk_start(&walk, &reads);
	for (int o = 0; o < d->kern->nout; o++)
		walk_root(&walk, d->kern->out[o], &reads);
	for (int r = 0; r < reads.count && t->streams < STREAMS; r++) {
		const Val *v = val(g->graph, reads.at[r].val);
		if (reads.at[r].how == R_moved || count_of(&v->shape) != count_of(&d->v->shape))
			continue;
		d->stream[t->streams] = place_address(g, reads.at[r].val);
		t->stream[t->streams++] = (Stream){d->n * elems[v->type].bytes, false};
	}
}

// Where the strip's columns lie in a stream.
static Value stream_strip(Dot *d, int i, Value first, Value column)
{
	Gen *g = d->g;
	Value row = sum_of(g, times(g, index_i64(g, &d->in_batch), d->m), first);
	Value place = sum_of(g, times(g, row, d->n), column);
	place = times(g, place, d->tile.stream[i].row / d->n);
	return LLVMBuildGEP2(g->b, g->i8, d->stream[i], &place, 1, "");
}

// The strip of a, and where a later one begins.
static Value bring_strip(Dot *d, Value strip, Value group, Value first)
{
	Gen *g = d->g;
	if (d->a_way == W_place)
		return in_place(d, 0, first, d->from);
	if (d->a_way == W_turn)
		turn_strip(d, first);
	return element(d, d->strip, times(g, LLVMBuildSub(g->b, strip, group, ""), d->strip_size));
}

static void one_strip(Dot *d, Value strip, Value group, Value again, Value done)
{
	Gen *g = d->g;
	Value first = first_row(d, strip), a = bring_strip(d, strip, group, first), sums = d->sums;
	if (d->blocks > 1) {
		Value own = LLVMBuildSub(g->b, strip, d->first_strip, "");
		sums = element(d, sums, times(g, own, d->tile.rows * d->tile.c_row));
	}
	Loop panels = loop_begin(g, number(g, 0), d->count, 1);
	Value column = times(g, panels.i, d->width), at_column = sum_of(g, d->first_column, column);
	Value b = d->b_way == W_place ? in_place(d, 1, d->from, at_column)
	                              : element(d, d->panel, times(g, panels.i, d->panel_size));
	Value soon = a;
	if (d->tile.soon) {
		Value ahead = sum_of(g, first, number(g, d->tile.rows));
		soon = in_place(d, 0, sum_of(g, ahead, times(g, panels.i, d->tile.soon)), d->from);
	}
	Value in[6 + STREAMS] = {d->steps, a, b, element(d, sums, column), again, soon};
	for (int i = 0; i < d->tile.streams; i++)
		in[6 + i] = stream_strip(d, i, first, at_column);
	LLVMBuildCall2(g->b, LLVMGlobalGetValueType(d->sum_tile), d->sum_tile, in,
	               (unsigned)(6 + d->tile.streams), "");
	loop_end(g, &panels);
	Value from = times(g, strip, d->tile.rows);
	Value to = least(g, sum_of(g, from, number(g, d->tile.rows)), number(g, d->m));
	finish_strip(d, first, from, LLVMBuildSelect(g->b, done, to, from, ""), sums);
}

static void one_block(Dot *d, Value again, Value done)
{
	Gen *g = d->g;
	if (d->b_way == W_copy)
		copy_panels(d, number(g, 0), d->steps);
	else if (d->b_way == W_turn)
		turn_panels(d);
	Loop groups = loop_begin(g, d->first_strip, d->end_strip, d->group);
	Value end = least(g, sum_of(g, groups.i, number(g, d->group)), d->end_strip);
	if (d->a_way == W_copy)
		copy_strips(d, groups.i, end);
	Loop strips = loop_begin(g, groups.i, end, 1);
	one_strip(d, strips.i, groups.i, again, done);
	loop_end(g, &strips);
	loop_end(g, &groups);
}

// Which part of the result the worker computes: rows vary fastest, then columns, then the batch.
static void choose_part(Dot *d)
{
	Gen *g = d->g;
	int64_t down = ceil_div(d->strips, d->strips_each),
	        across = ceil_div(d->panels, d->panels_each);
	g->workers = ceil_div(d->batch, d->batches_each) * down * across;
	Value row = LLVMBuildURem(g->b, g->worker, number(g, down), "");
	Value rest = LLVMBuildUDiv(g->b, g->worker, number(g, down), "");
	Value column = LLVMBuildURem(g->b, rest, number(g, across), "");
	rest = LLVMBuildUDiv(g->b, rest, number(g, across), "");
	d->first_batch = times(g, rest, d->batches_each);
	d->end_batch =
	    least(g, sum_of(g, d->first_batch, number(g, d->batches_each)), number(g, d->batch));
	d->first_strip = times(g, row, d->strips_each);
	d->end_strip =
	    least(g, sum_of(g, d->first_strip, number(g, d->strips_each)), number(g, d->strips));
	Value panel = times(g, column, d->panels_each);
	d->first_column = times(g, panel, d->width);
	d->count = least(g, number(g, d->panels_each),
	                 LLVMBuildSub(g->b, number(g, d->panels), panel, ""));
}

static void take_pad(Dot *d)
{
	Gen *g = d->g;
	const Tile *t = &d->tile;
	int64_t strips = d->blocks > 1 ? d->strips_each : 1;
	d->sums = pad_memory(g, strips * t->rows * t->c_row * t->bytes);
	if (d->a_way != W_place)
		d->strip = pad_memory(g, d->group * d->strip_size * t->bytes);
	if (d->b_way != W_place)
		d->panel = pad_memory(g, d->panels_each * d->panel_size * t->bytes);
}

static void all_blocks(Dot *d)
{
	Gen *g = d->g;
	if (d->blocks == 1) {
		d->from = number(g, 0);
		d->steps = number(g, d->k);
		one_block(d, LLVMConstInt(g->i1, 0, 0), LLVMConstInt(g->i1, 1, 0));
		return;
	}
	Loop blocks = loop_begin(g, number(g, 0), number(g, d->blocks), 1);
	d->from = times(g, blocks.i, d->depth);
	Value left = LLVMBuildSub(g->b, number(g, d->k), d->from, "");
	d->steps = least(g, number(g, d->depth), left);
	Value again = LLVMBuildICmp(g->b, LLVMIntNE, blocks.i, number(g, 0), "");
	Value last = LLVMBuildICmp(g->b, LLVMIntEQ, blocks.i, number(g, d->blocks - 1), "");
	one_block(d, again, last);
	loop_end(g, &blocks);
}

void emit_dot(Gen *g, const Kern *kern)
{
	const Val *v = val(g->graph, kern->heart);
	if (g->target->gpu || !count_of(&v->shape) || !count_of(&val(g->graph, v->in[0])->shape)) {
		emit_map(g, kern); // threads are lanes there: a fold of each element
		return;
	}
	Dot d;
	plan_dot(&d, g, kern);
	choose_part(&d);
	choose_streams(&d);
	take_pad(&d);
	d.sum_tile = tile_function(g->module, &d.tile);
	Loop batches = loop_begin(g, d.first_batch, d.end_batch, 1);
	d.in_batch = uniform_index(g, batches.i, d.batch, 1);
	all_blocks(&d);
	loop_end(g, &batches);
}
