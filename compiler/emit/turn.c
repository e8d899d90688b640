// turn.c: emits copies that turn a value, square by square, in registers.
#include "gen.h"
#include <string.h>

// Hides from LLVM how vectors were shuffled: it follows each shuffle through those before it, in
// vain, which took a sixth to a quarter of the time to compile a model.
static void hide(Gen *g, int n, Value *v)
{
	LLVMTypeRef element = LLVMGetElementType(LLVMTypeOf(v[0]));
	if (element != g->f32 && element != g->f64)
		return;
	for (int i = 0; i < n; i++)
		v[i] = unary(g, "llvm.arithmetic.fence", v[i]);
}

// Exchanges blocks of `half` lanes: *low gets the even ones of a and then those of b, by turns,
// *high the odd ones.
static void exchange(Gen *g, Value a, Value b, int half, Value *low, Value *high)
{
	int n = g->width;
	Value even[64], odd[64];
	for (int l = 0; l < n; l++) {
		even[l] = LLVMConstInt(g->i32, (unsigned)(l & half ? n + l - half : l), 0);
		odd[l] = LLVMConstInt(g->i32, (unsigned)(l & half ? n + l : l + half), 0);
	}
	*low = LLVMBuildShuffleVector(g->b, a, b, LLVMConstVector(even, (unsigned)n), "");
	*high = LLVMBuildShuffleVector(g->b, a, b, LLVMConstVector(odd, (unsigned)n), "");
}

// Returns the type of as many floats of the same size, which hide() can hide; of integers of other
// sizes, their own.
static LLVMTypeRef as_floats(const Gen *g, LLVMTypeRef type)
{
	LLVMTypeRef element = LLVMGetElementType(type);
	LLVMTypeRef as = element == g->i32 ? g->f32 : element == g->i64 ? g->f64 : element;
	return LLVMVectorType(as, LLVMGetVectorSize(type));
}

static int bits_of(const Gen *g, LLVMTypeRef element)
{
	bool integer = LLVMGetTypeKind(element) == LLVMIntegerTypeKind;
	return integer ? (int)LLVMGetIntTypeWidth(element) : element == g->f64 ? 64 : 32;
}

static void cast_bits(Gen *g, int n, Value *v, LLVMTypeRef type)
{
	for (int i = 0; i < n; i++)
		v[i] = LLVMBuildBitCast(g->b, v[i], type, "");
}

// Divides lanes into parts, and these into pieces: *low gets the even pieces of a's part and then
// those of b's, *high the odd ones.
static void unzip(Gen *g, Value a, Value b, int part, int piece, Value *low, Value *high)
{
	int n = g->width;
	Value even[64], odd[64];
	for (int l = 0; l < n; l++) {
		int half = l % part / (part / 2), own = l % (part / 2);
		int from = l / part * part + own / piece * 2 * piece + own % piece + half * n;
		even[l] = LLVMConstInt(g->i32, (unsigned)from, 0);
		odd[l] = LLVMConstInt(g->i32, (unsigned)(from + piece), 0);
	}
	*low = LLVMBuildShuffleVector(g->b, a, b, LLVMConstVector(even, (unsigned)n), "");
	*high = LLVMBuildShuffleVector(g->b, a, b, LLVMConstVector(odd, (unsigned)n), "");
}

// First squares within 128 bits, then squares of those: an instruction moves elements within 128
// bits, or 128 bits at once, but needs a table in a register for other shuffles.
void transpose_vectors(Gen *g, Value *v)
{
	int n = g->width;
	LLVMTypeRef type = LLVMTypeOf(v[0]);
	cast_bits(g, n, v, as_floats(g, type));
	int unit = MIN(n, 128 / bits_of(g, LLVMGetElementType(type)));
	for (int apart = 1; apart < n; apart *= 2) {
		bool within = apart < unit;
		for (int i = 0; i < n; i++)
			if (!(i & apart))
				unzip(g, v[i], v[i + apart], within ? unit : n, within ? 1 : unit,
				      &v[i], &v[i + apart]);
		if (2 * apart < n)
			hide(g, n, v);
	}
	cast_bits(g, n, v, type);
}

Value reduce_vectors(Gen *g, Op op, Elem e, Value *v)
{
	for (int half = g->width / 2; half > 0; half /= 2)
		for (int i = 0; i < half; i++) {
			Value low, high;
			exchange(g, v[i], v[i + half], half, &low, &high);
			v[i] = reduce_step(g, op, e, low, high);
		}
	return v[0];
}

typedef struct Copy {
	const Turn *t;
	Index idx[RANK];  // of the row
	Value first, end; // squares across the lanes
	Value across;     // the first position of a square
} Copy;

// Sets the entries of idx at a position across the lanes.
static void set_across(Gen *g, const Copy *c, const Index *position, Index *idx)
{
	const Shape *space = &g->kern->space;
	Index left = *position;
	for (int i = 0; i < c->t->nacross; i++) {
		Index quotient;
		split_index(g->vars, &left, space->dim[c->t->across[i]], &quotient,
		            &idx[c->t->across[i]]);
		left = quotient;
	}
}

static void set_lanes(Gen *g, const Copy *c, const Index *position, Index *idx)
{
	const Shape *space = &g->kern->space;
	int rank = space->rank - (c->t->pairs == T_neighbors);
	Shape lanes = shape_of(rank - c->t->lanes, space->dim + c->t->lanes);
	unravel(g->vars, position, &lanes, idx + c->t->lanes);
}

// Returns where element idx of the copy comes from, in *from, and its place there.
static Lanes copied_lanes(Gen *g, const Index *idx, Ref *from)
{
	Index in[RANK], place;
	*from = g->kern->out[0];
	memcpy(in, idx, sizeof in);
	if (!locate_copied(g->vars, g->graph, &g->computed, from, in, &place))
		never("a copy");
	return index_value(g, &place);
}

// Returns the address of an element of 2 bytes, whatever its lanes.
static Value first_address(Gen *g, Value memory, const Lanes *at)
{
	return LLVMBuildGEP2(g->b, LLVMInt16TypeInContext(g->context), memory, (Value[]){at->base},
	                     1, "");
}

// Stores a vector of pairs, or of both elements of pairs, at idx of the copy.
static void store_pairs(Gen *g, const Index *idx, Value pairs)
{
	Index linear = ravel(g->vars, &g->kern->space, idx);
	Lanes at = index_value(g, &linear);
	for (int o = 0; o < g->kern->nout; o++)
		LLVMSetAlignment(
		    LLVMBuildStore(g->b, pairs, first_address(g, out_address(g, o), &at)), 4);
}

static Value load_pairs(Gen *g, const Index *idx)
{
	Ref from;
	Lanes at = copied_lanes(g, idx, &from);
	LLVMTypeRef pairs = LLVMVectorType(g->f32, (unsigned)g->width);
	Value v = LLVMBuildLoad2(g->b, pairs, first_address(g, location_address(g, from), &at), "");
	LLVMSetAlignment(v, 4);
	return v;
}

static Value load_copied(Gen *g, const Index *idx)
{
	Ref from;
	Lanes at = copied_lanes(g, idx, &from);
	at.most = bytes_of(val(g->graph, from));
	return load_lanes(g, val(g->graph, from)->type, location_address(g, from), &at);
}

// Loads a vector across the lanes of `unit` for each of them, and stores one along them for each
// position across.
static void copy_square(Gen *g, const Copy *c, const Index *unit)
{
	const Val *out = val(g->graph, g->kern->out[0]);
	Elem type = val(g->graph, c->t->from)->type;
	Index idx[RANK];
	memcpy(idx, c->idx, sizeof idx);
	bool pairs = c->t->pairs;
	Value v[64], first = index_value(g, unit).base;
	int64_t across = MIN(g->width, c->t->count);
	Value mask = across < g->width ? first_lanes(g, across) : NULL;
	Index lanes = lane_index(g, c->across, c->t->count, 1, mask);
	set_across(g, c, &lanes, idx);
	for (int j = 0; j < g->width; j++) {
		Value own = least(g, sum_of(g, first, number(g, j)), number(g, c->t->columns - 1));
		Index column = uniform_index(g, own, c->t->columns, 1);
		set_lanes(g, c, &column, idx);
		v[j] = pairs ? load_pairs(g, idx) : load_copied(g, idx);
	}
	transpose_vectors(g, v);
	set_lanes(g, c, unit, idx);
	for (int i = 0; i < across; i++) {
		Value own = sum_of(g, c->across, number(g, i));
		Index position = uniform_index(g, own, c->t->count, 1);
		set_across(g, c, &position, idx);
		if (pairs) {
			store_pairs(g, idx, v[i]);
			continue;
		}
		if (type != out->type)
			v[i] = cast_value(g, v[i], type, out->type);
		for (int o = 0; o < g->kern->nout; o++) // one value, perhaps in several places
			store_out(g, o, idx, v[i]);
	}
}

// The squares side by side across the lanes: what they load continues.
static void copy_squares(Gen *g, int n, const Index *unit, void *context)
{
	Copy *c = context;
	Loop squares = loop_begin(g, c->first, c->end, 1);
	c->across =
	    least(g, times(g, squares.i, g->width), number(g, MAX(0, c->t->count - g->width)));
	for (int u = 0; u < n; u++)
		copy_square(g, c, &unit[u]);
	loop_end(g, &squares);
}

// Stores vectors of two lines as pairs, for each step of the axis before them.
static void copy_lines(Gen *g, const Copy *c)
{
	const Shape *space = &g->kern->space;
	int last = space->rank - 1, width = g->width;
	Index idx[RANK];
	memcpy(idx, c->idx, sizeof idx);
	Loop steps = loop_begin(g, number(g, 0), number(g, space->dim[last - 2]), 1);
	idx[last - 2] = uniform_index(g, steps.i, space->dim[last - 2], 1);
	Loop lines = loop_begin(g, number(g, 0), number(g, c->t->count), width);
	idx[last - 1] = lane_index(g, lines.i, c->t->count, width, NULL);
	Value v[2], order[2 * SQUARE];
	for (int j = 0; j < 2; j++) {
		idx[last] = constant_index(j);
		v[j] = load_copied(g, idx);
	}
	for (int l = 0; l < 2 * width; l++)
		order[l] = LLVMConstInt(g->i32, (unsigned)(l % 2 * width + l / 2), 0);
	idx[last] = constant_index(0);
	store_pairs(g, idx,
	            LLVMBuildShuffleVector(g->b, v[0], v[1],
	                                   LLVMConstVector(order, 2 * (unsigned)width), ""));
	loop_end(g, &lines);
	loop_end(g, &steps);
}

// A worker has rows of squares, a few of them side by side. The last across begins so early that it
// is complete, if there are as many elements.
void emit_turn(Gen *g)
{
	Turn t;
	if (!find_turn(g->arena, g->graph, &g->computed, g->kern->out[0], &t))
		never("a copy that turns");
	Copy c = {.t = &t};
	const Shape *space = &g->kern->space;
	int64_t squares = ceil_div(t.count, g->width), units = g->kern->sched->units;
	int64_t groups = ceil_div(squares, units), rows = t.rows * groups;
	int64_t block = g->kern->sched->rows;
	Value first = times(g, g->worker, block);
	Loop loop = loop_begin(g, first, end_after(g, first, block, number(g, rows)), 1);
	Index row = uniform_index(g, LLVMBuildUDiv(g->b, loop.i, number(g, groups), ""), t.rows, 1);
	c.first = times(g, LLVMBuildURem(g->b, loop.i, number(g, groups), ""), units);
	c.end = end_after(g, c.first, units, number(g, squares));
	for (int a = space->rank - 1; a >= 0; a--) {
		c.idx[a] = constant_index(0);
		bool other = a < (t.pairs == T_lines ? space->rank - 3 : t.lanes);
		for (int i = 0; i < t.nacross; i++)
			other &= t.across[i] != a;
		if (!other)
			continue;
		Index quotient;
		split_index(g->vars, &row, space->dim[a], &quotient, &c.idx[a]);
		row = quotient;
	}
	if (t.pairs == T_lines)
		copy_lines(g, &c);
	else
		g->ops->lane_loop(g, number(g, 0), number(g, t.columns), t.columns, 1, copy_squares,
		                  &c);
	loop_end(g, &loop);
}
