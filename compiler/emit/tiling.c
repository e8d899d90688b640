// tiling.c: chooses tile and block sizes of a dot.
// The register tile, blocks of k, what a worker has, and how the operands come to it. Takes a dot
// kernel. Gives a Dot. Keeps: it is a function of shapes and target alone; tiles by machine are in
// tiles.def, all else follows from the sizes of caches.
#include "dot.h"

// ---- the shape of the work ------------------------------------------------------------

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
static void choose_tile(Dot *d, const Machine *machine)
{
	Tile *t = &d->tile;
	int high = machine->rows, wide = machine->vectors, width = d->g->width;
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

// What it costs that an operand comes to `times` groups of workers: read in place, packed by the
// one that needs it, or packed by a launch before, written to memory and read from there.
static double passes(int64_t times, Way way)
{
	return way == W_place ? 0.3 * (double)times : times > 1 ? 1.5 + 0.25 * (double)times : 1;
}

// Blocks for workers: a few a core, each worth a launch, with the least packing. Panels of a
// block fit in half of L2, and so do waiting sums.
static void choose_split(Dot *d)
{
	enum { WORTH = 1 << 20 };
	int64_t flops = 2 * d->batch * d->m * d->n * d->k;
	int64_t half = d->g->target->machine->l2 / 2, bytes = d->tile.bytes;
	int64_t cap = MAX(1, half / (d->depth * d->width * bytes));
	int64_t wanted = MAX(1, MIN(d->g->target->machine->workers, flops / WORTH));
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
		double cost =
		    (double)d->n * passes(rows, W_copy) + (double)d->m * passes(columns, d->a_way);
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
	return d->k * stride * d->tile.bytes <= d->g->target->machine->l2 / 4;
}

// How many lines of memory this far apart the first cache holds: of 8 ways and 4096 bytes each.
static int64_t held(const Dot *d, int64_t stride)
{
	enum { WAYS = 8, LINE = 64, SETS = 4096 / LINE };
	int64_t lines = stride * d->tile.bytes / LINE, step = SETS;
	while (lines % step)
		step /= 2;
	return stride * d->tile.bytes % LINE ? WAYS * SETS / 2 : WAYS * SETS / step;
}

// How a comes to the tile: in place where k is contiguous and rows do not meet in one set of L1, or
// where its rows are and few panels meet it.
static void choose_a(Dot *d, const Index *row, const Index *column)
{
	Gen *g = d->g;
	Tile *t = &d->tile;
	Index idx[RANK];
	element_index(d, 0, row, column, idx);
	Stride s = strides_of(g->vars, g->graph, &g->computed, d->v->in[0], idx, row, column);
	bool apart = s.down * t->bytes % 4096 && s.along * t->bytes % 4096;
	bool placed = s.fixed && (t->rows == 1 || apart);
	bool copied = far_reads(g->vars, g->graph, &g->computed, d->v->in[0], idx, row) <
	              far_reads(g->vars, g->graph, &g->computed, d->v->in[0], idx, column);
	d->a_way = W_transpose;
	t->a_row = d->depth + 16;
	t->a_step = 1;
	d->strip_size = t->rows * t->a_row;
	if (placed &&
	    (s.along == 1 || (s.down == 1 && near(d, s.along) && held(d, s.along) >= d->k))) {
		d->a_way = W_place;
		t->a_row = s.down;
		t->a_step = s.along;
	} else if (copied) {
		d->a_way = W_copy;
		t->a_row = 1;
		t->a_step = ceil_div(t->rows, g->width) * g->width;
		d->strip_size = t->a_step * d->depth + 2 * g->width;
	}
	d->group = d->a_way == W_copy
	               ? MAX(1, MIN(32, g->target->machine->l2 / 4 / (d->strip_size * t->bytes)))
	               : 1;
	d->a_rows = s.fixed && s.along == 1;
	t->soon_row = d->a_rows ? s.down : 0;
}

// b is read in place when few strips meet it, and every panel is whole.
static void choose_b(Dot *d, const Index *row, const Index *column)
{
	enum { FEW = 10 };
	Gen *g = d->g;
	Index idx[RANK];
	element_index(d, 1, row, column, idx);
	Stride s = strides_of(g->vars, g->graph, &g->computed, d->v->in[1], idx, row, column);
	d->b_rows = s.fixed && s.along == 1;
	d->tile.b_step = d->width;
	bool few = d->strips_each == 1 || (d->strips_each <= FEW && near(d, s.down));
	if (d->b_rows && few && d->n % d->width == 0) {
		d->b_way = W_place;
		d->tile.b_step = s.down;
		d->tile.b_ahead = AHEAD;
	} else if (far_reads(g->vars, g->graph, &g->computed, d->v->in[1], idx, row) <
	           far_reads(g->vars, g->graph, &g->computed, d->v->in[1], idx, column)) {
		d->b_way = W_transpose;
	} else {
		d->b_way = W_copy;
	}
}

// What several groups of workers would pack each for themselves is packed before, unless it is
// large. `size`: elements of a block of k.
static void choose_common(Dot *d, int o, Way way, int64_t groups, int64_t size)
{
	enum { LARGE = 64 << 20 };
	const Shape *own = &val(d->g->graph, d->v->in[o])->shape;
	Common *c = &d->common[o];
	c->batches = 1;
	for (int a = 0; a < d->lead; a++)
		c->batches *= own->dim[a];
	if (c->batches == 1)
		groups *= ceil_div(d->batch, d->batches_each);
	int64_t bytes = c->batches * d->blocks * size * d->tile.bytes;
	c->used = way != W_place && groups > 1 && bytes <= LARGE &&
	          (c->batches == 1 || c->batches == d->batch);
	if (!c->used)
		return;
	c->size = size;
	c->pieces = way == W_copy ? ceil_div(d->depth, COPIED) : o ? d->panels : d->strips;
	c->offset = d->common_bytes;
	d->common_bytes += full_lines(bytes);
}

// The next strip of a is asked for while this one is summed, some rows with each panel. A packed
// strip that lies step by step is taken for rows as long as a block of k.
static void choose_soon(Dot *d)
{
	Tile *t = &d->tile;
	int64_t rows = t->rows;
	if (d->common[0].used) {
		t->soon_row = d->a_way == W_copy ? d->depth : t->a_row;
		rows = d->a_way == W_copy ? t->a_step : t->rows;
	}
	if (t->soon_row && d->panels_each > 1)
		t->soon = (int)ceil_div(rows, d->panels_each);
}

void plan_dot(Dot *d, Gen *g, const Kern *kern)
{
	*d = (Dot){.g = g, .kern = kern, .v = val(g->graph, kern->root)};
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
	choose_tile(d, g->target->machine);
	Value zero = number(g, 0);
	d->in_batch = uniform_index(g, zero, d->batch, 1);
	Index row = uniform_index(g, zero, d->m, 1), k = uniform_index(g, zero, d->k, 1);
	Index column = uniform_index(g, zero, d->n, 1);
	choose_a(d, &row, &k);
	choose_split(d);
	choose_b(d, &k, &column);
	if (!d->a_rows)
		choose_common(d, 0, d->a_way, ceil_div(d->panels, d->panels_each),
		              d->strips * d->strip_size);
	choose_common(d, 1, d->b_way, ceil_div(d->strips, d->strips_each),
	              d->panels * d->panel_size);
	d->tile.c_row = d->panels_each * d->width;
	choose_soon(d);
}
