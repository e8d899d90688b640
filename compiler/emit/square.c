// square.c: emits functions that transpose a square of a product's operand while it is packed.
// Kernels call them instead of having their thousand instructions, each for itself: most of a
// program would be these. Input: lines in memory. Output: as many vectors as one has lanes.
#include "dot.h"
#include "tile.h"

// ---- the function ----------------------------------------------------------------------

// Slices are made after their elements are transposed, which are fewer.
static int elements_of(const Tile *t) // of a step, in a vector each
{
	return t->slices > 1 ? 2 : 1;
}

static Value load_line(Gen *g, const Tile *t, Value from)
{
	LLVMTypeRef type = t->dense ? g->i16 : elem_type(g, t->type);
	Value v = LLVMBuildLoad2(g->b, LLVMVectorType(type, (unsigned)g->width), from, "");
	LLVMSetAlignment(v, (unsigned)(t->dense ? t->bytes / 2 : t->bytes));
	return v;
}

// Loads the vectors of a column, one after the other, and prefetches as many.
static void load_column(Gen *g, const Tile *t, Value from, Value ahead, Value *v)
{
	for (int e = 0; e < elements_of(t); e++) {
		Value byte = number(g, e * g->width * t->bytes);
		v[e] = load_line(g, t, bytes_after(g, from, byte));
		prefetch_line(g, bytes_after(g, bytes_after(g, from, ahead), byte), F_read);
	}
}

static int lines_of(const Tile *t) // of a step of rows
{
	return elements_of(t) == 2 || t->dense ? 2 : 1;
}

// Loads the vectors of a step of rows, one from each line.
static void load_step(Gen *g, const Tile *t, Value from, Value stride, Value *v)
{
	v[0] = load_line(g, t, from);
	if (lines_of(t) == 2)
		v[1] = load_line(g, t, bytes_after(g, from, stride));
	if (t->dense)
		v[0] = pairs_by_turns(g, v[0], v[1]);
}

// Loads `count` columns or steps of rows, and the last of them again.
static void load_square(Gen *g, const Tile *t, Value (*v)[64])
{
	Value f = g->function, from = LLVMGetParam(f, 0), stride = LLVMGetParam(f, 1);
	Value count = LLVMGetParam(f, 2), ahead = LLVMGetParam(f, 3), own[2];
	int64_t lines = t->square == S_columns ? 1 : lines_of(t);
	for (int i = 0; i < g->width; i++) {
		if (t->square == S_columns)
			load_column(g, t, from, ahead, own);
		else
			load_step(g, t, from, stride, own);
		for (int e = 0; e < elements_of(t); e++)
			v[e][i] = own[e];
		Value more = LLVMBuildICmp(g->b, LLVMIntSLT, number(g, i + 1), count, "");
		Value step = LLVMBuildSelect(g->b, more, times(g, stride, lines), number(g, 0), "");
		from = bytes_after(g, from, step);
	}
}

// Stores the slices of two elements that are a step, or what is a step already.
static void store_step(Gen *g, const Tile *t, const Value *elements, Value to, Value apart)
{
	Value own[2][SLICES] = {{elements[0]}, {elements[1]}};
	for (int e = 0; e < 2 && t->slices > 1; e++)
		slice(g, elements[e], false, own[e]);
	for (int n = 0; n < t->slices; n++) {
		Value x = own[0][n];
		if (t->slices > 1)
			x = pairs_by_turns(g, x, own[1][n]);
		LLVMSetAlignment(LLVMBuildStore(g->b, x, to), (unsigned)t->bytes);
		to = bytes_after(g, to, apart);
	}
}

void write_square(const Gen *around, const Tile *t)
{
	Gen own, *g = &own;
	tile_start(g, around, t);
	Value to = LLVMGetParam(g->function, 4), step = LLVMGetParam(g->function, 5);
	Value apart = LLVMGetParam(g->function, 6), v[2][64];
	int elements = elements_of(t), width = g->width;
	load_square(g, t, v);
	for (int e = 0; e < elements; e++)
		transpose_vectors(g, v[e]);
	for (int i = 0; i < width; i++) {
		// Elements of a column follow each other; those of rows are in lines of their own.
		int at = elements * i;
		Value column[] = {v[at / width][at % width], v[at / width][(at + 1) % width]};
		Value row[] = {v[0][i], v[elements - 1][i]};
		store_step(g, t, t->square == S_columns ? column : row, to, apart);
		to = bytes_after(g, to, step);
	}
	LLVMBuildRetVoid(g->b);
	LLVMDisposeBuilder(g->b);
}

// ---- its calls --------------------------------------------------------------------------

// Returns how many vectors of a step are transposed: both elements of its slices, or one.
static int turned_parts(const Dot *d)
{
	return d->p.slices > 1 ? d->p.fold : 1;
}

void turn_square(Dot *d, SquareOf square, const Lines *lines, Value to, int64_t step)
{
	Gen *g = d->g;
	bool rows = square == S_rows;
	Tile t = {.type = d->tile.type,
	          .bytes = d->tile.bytes,
	          .lanes = g->width,
	          .square = square,
	          .slices = d->p.slices,
	          .dense = rows && d->p.slices == 1 && lines->in_place};
	int64_t apart = rows ? d->p.a_slice : d->p.b_slice;
	Value f = tile_function(g, &t);
	Value in[] = {lines->from,
	              lines->stride,
	              lines->count,
	              lines->ahead,
	              to,
	              number(g, step * t.bytes),
	              number(g, apart * t.bytes)};
	LLVMBuildCall2(g->b, LLVMGlobalGetValueType(f), f, in, COUNT(in), "");
}

Lines lines_in_place(Dot *d, int o, Value step, Value other, Value count)
{
	Gen *g = d->g;
	return (Lines){.from = in_place(d, o, step, other),
	               .stride = number(g, d->line[o]),
	               .count = count,
	               .ahead = number(g, g->width * d->line[o]),
	               .in_place = true};
}

Lines computed_lines(Dot *d, SquareOf square)
{
	Gen *g = d->g;
	int64_t bytes = g->width * d->tile.bytes, parts = turned_parts(d);
	if (!d->square)
		d->square = stack_memory(g, g->width * parts * bytes);
	return (Lines){.from = d->square,
	               .stride = number(g, square == S_columns ? parts * bytes : bytes),
	               .count = number(g, g->width),
	               .ahead = number(g, 0)};
}

void keep_parts(Dot *d, const Value *parts, Value i)
{
	Gen *g = d->g;
	int n = turned_parts(d);
	for (int p = 0; p < n; p++)
		keep(d, parts[p], d->square,
		     times(g, sum_of(g, times(g, i, n), number(g, p)), g->width));
}
