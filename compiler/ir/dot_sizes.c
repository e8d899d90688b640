// dot_sizes.c: sizes that follow from the schedule of a product: what its tiles, packed operands
// and workers need.
#include "index.h"

// Returns how many digits a part takes that has `count` numbers in all, or strips of `unit` digits;
// *count: those of the next digit.
static int64_t taken_digits(const Digit *d, int64_t unit, int64_t *count)
{
	int64_t units = ceil_div(d->extent, unit), taken = MIN(d->extent, *count * unit);
	*count = MAX(1, *count / units);
	return taken;
}

// True if digits follow each other in memory.
static bool in_order(const Digit *d, int rank)
{
	bool is = true;
	for (int a = 0; a < rank; a++)
		is &= d->move[a] == (a == rank - 1);
	return is;
}

bool fits_matrix(const Patch *patch, int rank, int matrix)
{
	const Digit *inner = patch->step.at;
	return in_order(inner, rank) && inner->extent % (2 * matrix) == 0;
}

// Makes steps of the innermost digits of k. Pairs that follow each other in memory are read as they
// are; for others, the patch has a pair for each element.
static void fold_digits(DotSizes *p, int rank)
{
	Digit *inner = p->patch.step.at;
	int64_t steps = ceil_div(inner->extent, p->fold);
	p->line = inner->extent;
	p->steps = p->k / p->line * steps;
	p->dense = p->fold > 1 && in_order(inner, rank);
	for (int i = 1; i < p->patch.step.n; i++)
		inner[i].each = inner[i].each / p->line * steps;
	p->patch.fold = *inner;
	inner->extent = steps;
	for (int a = 0; a < rank; a++)
		inner->move[a] *= p->fold;
}

// Returns how many elements apart those are that digits reach along an axis.
static int64_t elements_apart(Digits *const *all, int n, int axis)
{
	int64_t apart = 0;
	for (int o = 0; o < n; o++)
		for (int i = 0; i < all[o]->n; i++)
			if (all[o]->at[i].taken > 1)
				apart = common_divisor(apart, all[o]->at[i].move[axis]);
	return MAX(1, apart);
}

// The strips of a group, with a block of k, read a box of the value under the windows: with a
// stride, perhaps not all elements. Its lines lie far enough apart not to share a set of L1.
static void box_sizes(DotSizes *p, const Sched *s, int rank, int64_t lanes)
{
	Patch *box = &p->patch;
	Digits fold = {1, {box->fold}}, *all[] = {&box->row, &box->step, &fold};
	fold.at[0].taken = p->fold;
	int64_t strips = s->group, steps = s->depth;
	for (int i = 0; i < box->row.n; i++)
		box->row.at[i].taken = taken_digits(&box->row.at[i], strip_digits(s, i), &strips);
	for (int i = 0; i < box->step.n; i++)
		box->step.at[i].taken = taken_digits(&box->step.at[i], 1, &steps);
	int64_t each = 1, line = MAX(lanes, 64 / (p->dense ? p->bytes / p->fold : p->bytes));
	for (int a = rank - 1; a >= 0; a--) {
		bool lanes_there = each == 1; // along an axis, or none yet
		box->apart[a] = lanes_there ? 1 : elements_apart(all, COUNT(all), a);
		box->size[a] = 1;
		box->below[a] = 0;
		box->stride[a] = each;
		for (int o = 0; o < COUNT(all); o++)
			for (int i = 0; i < all[o]->n; i++) {
				const Digit *d = &all[o]->at[i];
				int64_t reach = d->move[a] * (d->taken - 1);
				reach /= box->apart[a];
				box->size[a] += reach < 0 ? -reach : reach;
				box->below[a] += MIN(reach, 0);
			}
		if (box->size[a] > 1)
			each = each == 1 ? ceil_div(box->size[a], line) / 2 * 2 * line + line
			                 : each * box->size[a];
	}
	box->elements = each;
	for (int o = 0; o < COUNT(all); o++)
		for (int i = 0; i < all[o]->n; i++) {
			Digit *d = &all[o]->at[i];
			d->offset = 0;
			for (int a = 0; a < rank; a++)
				d->offset += d->move[a] / box->apart[a] * box->stride[a];
		}
}

// A matrix register has several short lines of windows, with the elements of the patch between
// them, whose sums are not used.
static void join_lines(DotSizes *p, const Sched *s)
{
	const Digit *column = p->patch.row.at, *line = column + 1;
	int64_t lines = s->height / s->run, apart = 0;
	if (p->matrix && lines > 1 && line->offset % MAX(1, column->offset) == 0)
		apart = line->offset / MAX(1, column->offset);
	p->sum_line = apart > s->run && apart + s->run <= p->matrix ? apart : s->run;
	p->sum_rows = (lines - 1) * p->sum_line + s->run;
}

// Strips do not go past the end of a line, nor blocks of k past that of a digit.
static void patch_sizes(DotSizes *p, const Sched *s, int rank, int64_t lanes)
{
	box_sizes(p, s, rank, lanes);
	const Digits *row = &p->patch.row, *step = &p->patch.step;
	p->strips = 1;
	for (int i = 0; i < row->n; i++)
		p->strips *= ceil_div(row->at[i].extent, strip_digits(s, i));
	p->chunk = p->steps;
	for (int i = step->n - 1; i >= 0; i--)
		if (step->at[i].taken < step->at[i].extent)
			p->chunk = step->at[i].each * step->at[i].extent;
	p->chunk_blocks = ceil_div(p->chunk, s->depth);
	p->blocks = p->steps / p->chunk * p->chunk_blocks;
	p->a_slice = p->patch.elements;
	p->strip_size = ceil_div(p->patch.elements, p->dense ? p->fold : 1) * p->slices;
	if (s->run)
		join_lines(p, s);
}

// The steps of each product are squares; its rows are channels, those of a worker in strips that
// may overlap.
static void summed_sizes(DotSizes *p, const Sched *s)
{
	int64_t height = s->strips * s->height, channels = p->squares.channels;
	p->squares.block = height >= channels ? channels : MAX(1, height / p->lanes * p->lanes);
	p->steps = p->chunk = p->squares.all;
	p->blocks = p->chunk_blocks = ceil_div(p->steps, s->depth);
	p->a_row = 1;
	p->a_step = ceil_div(p->squares.block, p->lanes) * p->lanes;
	p->strip_point = s->depth * p->a_step + 16; // no multiple of 4096 bytes
	p->sum_point = s->strips * s->panels * s->height * p->width + 16;
	p->panel_size *= POINTS;
}

// The steps of each product are the channels, all of them or some at a time; its rows are squares.
static void square_sizes(DotSizes *p, const Sched *s)
{
	p->steps = p->chunk = p->squares.channels;
	p->blocks = p->chunk_blocks = ceil_div(p->steps, s->depth);
	p->strips = ceil_div(p->squares.all, s->height);
	p->strip_point = s->group * p->strip_size;
	p->sum_point = s->group * s->height * p->width + 16; // no multiple of 4096 bytes
	p->panel_size *= POINTS;
}

DotSizes matrix_sizes(const Graph *g, const Val *v)
{
	const Shape *b = &val(g, v->in[1])->shape;
	int last = v->shape.rank - 1;
	DotSizes p = {.lead = last - 1, .batch = 1, .m = 1};
	while (p.lead > 0 && b->dim[p.lead - 1] == 1)
		p.lead--;
	for (int i = 0; i < last; i++)
		*(i < p.lead ? &p.batch : &p.m) *= v->shape.dim[i];
	p.n = v->shape.dim[last];
	p.k = last_dim(&val(g, v->in[0])->shape);
	p.bytes = elems[v->type].bytes;
	return p;
}

bool multiplies_slices(const Graph *g, const Machine *machine, int64_t m, int64_t n, int64_t k,
                       bool patch)
{
	enum { ROWS = 64, EACH = 96, OF_PATCH = 16 };
	// Products for each element of the left operand and of the result. Elements of a patch are
	// packed once for all taps.
	int64_t products = n * k / (n + k);
	return has_thread_matrix(machine) && !g->products && m >= ROWS &&
	       products >= (patch ? OF_PATCH : EACH);
}

// True if matrix registers multiply slices of the operands, which are f32: of windows, if they load
// those as they lie in a patch. windows: the patch of `p` is known.
static bool is_sliced(Arena *scratch, const Graph *g, const Inside *inside, const Val *v,
                      const DotSizes *p, bool windows, const Machine *machine)
{
	Patch patch = p->patch;
	bool f32 = val(g, v->in[0])->type == E_f32 && val(g, v->in[1])->type == E_f32;
	if (!f32 || v->type != E_f32 || !multiplies_slices(g, machine, p->m, p->n, p->k, true))
		return false;
	if (!windows && !find_patch(scratch, g, inside, v, p, &patch))
		return multiplies_slices(g, machine, p->m, p->n, p->k, false);
	return fits_matrix(&patch, val(g, patch.from)->shape.rank, machine->pairs);
}

// True if matrix registers multiply a panel while the maps of the one before are computed. Products
// of bf16 are over too soon to hide anything.
static bool overlaps(const DotSizes *p, const Sched *s)
{
	int64_t last = p->steps - (p->blocks - 1) * s->depth;
	return p->matrix && p->slices > 1 && s->a != W_patch && s->order == N_strips &&
	       s->parts <= 1 && last >= p->matrix;
}

// What the rows of a are.
typedef struct Rows {
	bool windows, squares; // patches; squares of Winograd's method
	bool summed;           // squares are steps of k
	int rank;              // of the value under the windows
} Rows;

// Finds the rows of a and the steps of k: of one element, or of as many as an instruction
// multiplies.
static Rows step_sizes(Arena *scratch, const Graph *g, const Inside *inside, const Val *v,
                       const Sched *s, const Machine *machine, DotSizes *p)
{
	Rows rows = {.squares = s->a == W_winograd};
	rows.windows =
	    (s->a == W_patch || rows.squares) && find_patch(scratch, g, inside, v, p, &p->patch);
	rows.rank = rows.windows ? val(g, p->patch.from)->shape.rank : 0;
	bool narrow = val(g, v->in[0])->type == E_bf16 && val(g, v->in[1])->type == E_bf16;
	// A patch has whole lines of pairs that are not all complete.
	const Digit *inner = p->patch.step.at;
	int64_t whole = rows.windows && inner->extent % 2 ? inner->extent : 0;
	int matrix = machine->pairs > 1 ? machine->pairs : 0;
	bool fits = !matrix ||
	            (rows.windows ? fits_matrix(&p->patch, rows.rank, matrix) : p->k >= 2 * matrix);
	bool pairs = machine->pairs && narrow && whole <= machine->depth && fits;
	bool sliced = !rows.squares && is_sliced(scratch, g, inside, v, p, rows.windows, machine);
	p->slices = sliced ? SLICES : 1;
	p->fold = pairs || p->slices > 1 ? 2 : 1;
	p->matrix = p->fold > 1 ? matrix : 0;
	p->line = p->k;
	p->steps = ceil_div(p->k, p->fold);
	p->dense = p->fold > 1 && s->a == W_place;
	if (rows.windows)
		fold_digits(p, rows.rank);
	rows.squares = rows.squares && rows.windows && find_squares(g, &p->patch, &p->squares);
	rows.summed = rows.squares && p->squares.summed;
	return rows;
}

// Rows of a strip lie far enough apart not to share a set of L1, or what a matrix register loads is
// adjacent. A panel is not a multiple of 4096 bytes.
static void packed_sizes(DotSizes *p, const Sched *s, const Rows *kind, const Machine *machine)
{
	bool by_steps = s->a == W_copy && !p->matrix;
	int64_t padded = ceil_div(s->height, machine->lanes) * machine->lanes;
	p->strips = ceil_div(p->m, s->height);
	p->panels = ceil_div(p->n, p->width);
	p->blocks = p->chunk_blocks = ceil_div(p->steps, s->depth);
	p->chunk = p->steps;
	p->sum_line = p->sum_rows = s->height;
	p->a_row = by_steps ? 1 : p->matrix ? p->matrix : s->depth + 16;
	p->a_step = by_steps || p->matrix ? padded : 1;
	p->a_slice =
	    p->a_step > 1 ? p->a_step * s->depth + 2 * machine->lanes : s->height * p->a_row;
	p->b_slice = (s->depth + 1) * p->width;
	p->strip_size = p->a_slice * p->slices;
	p->panel_size = p->b_slice * p->slices;
	if (kind->summed)
		summed_sizes(p, s);
	else if (kind->squares)
		square_sizes(p, s);
	else if (kind->windows)
		patch_sizes(p, s, kind->rank, machine->lanes);
}

// What a launch before packs for all workers, and the sums of the parts of k, which the launch
// after adds up.
static void work_sizes(DotSizes *p, const Graph *g, const Val *v, const Sched *s)
{
	bool used[] = {s->a_shared, s->b_shared};
	Packing way[] = {s->a, s->b};
	int64_t parts[] = {p->strips, p->panels}, size[] = {p->strip_size, p->panel_size};
	for (int o = 0; o < COUNT(p->shared); o++) {
		struct Shared *shared = &p->shared[o];
		shared->batches = 1;
		for (int a = 0; a < p->lead; a++)
			shared->batches *= val(g, v->in[o])->shape.dim[a];
		shared->size = parts[o] * size[o];
		shared->pieces = way[o] == W_copy ? ceil_div(s->depth, COPIED) : parts[o];
		shared->offset = p->partials;
		if (used[o])
			p->partials +=
			    full_lines(shared->batches * p->blocks * shared->size * p->bytes);
	}
	p->part_blocks = p->blocks;
	if (s->parts > 1) {
		p->part_blocks = ceil_div(p->blocks, s->parts);
		p->part_size = p->strips * p->sum_rows * p->panels * p->width;
		p->part_offset = p->partials;
		p->partials += full_lines(s->parts * p->part_size * p->bytes);
	}
}

// The workers, and the local memory of each.
static void worker_sizes(DotSizes *p, const Sched *s, const Rows *kind, const Machine *machine)
{
	// Panels whose sums take a third of L1, since matrices are stored in it; those of full
	// rows, which are written from first to last, come from L2. Two if they overlap.
	enum { HELD = 4, ROWS = 16, OVERLAPPED = 2 };
	p->down = kind->summed ? ceil_div(p->squares.channels, p->squares.block)
	                       : ceil_div(p->strips, s->strips);
	p->across = ceil_div(p->panels, s->panels);
	// Sums of strips that wait for the next block, or for the other panels.
	int64_t waiting = p->blocks > 1 || s->order == N_panels ? s->strips : 1;
	int64_t rows = kind->summed    ? WINDOW * s->height
	               : kind->squares ? SQUARE_ROWS
	                               : waiting * p->sum_rows;
	bool early = p->matrix && s->order == N_strips && p->blocks == 1 && s->parts <= 1;
	p->overlap = overlaps(p, s);
	p->ahead = p->overlap && s->a == W_transpose && !s->a_shared && s->group == 1;
	int64_t held = p->overlap ? OVERLAPPED : p->across > 1 ? HELD : ROWS;
	p->held = early ? MIN(s->panels, held) : s->panels;
	p->sum_row = (s->parts > 1 ? p->panels : kind->squares ? 1 : p->held) * p->width;
	if (p->matrix && s->parts <= 1 && !kind->squares) // a tile's rows in different sets of L1
		p->sum_row += 2 * machine->lanes;
	if (s->parts > 1) // the launch after adds a strip up
		rows = p->sum_rows;
	p->sums = full_lines(rows * p->sum_row * p->bytes);
	if (kind->squares) {
		p->strip = full_lines(POINTS * p->strip_point * p->bytes);
		p->products = full_lines(POINTS * p->sum_point * p->bytes);
	} else if (s->a != W_place && !s->a_shared) {
		int64_t strips = s->a == W_patch ? 1 : p->ahead ? 2 : s->group;
		p->strip = full_lines(strips * p->strip_size * p->bytes);
	}
	if (!is_read_in_place(s->b) && !s->b_shared)
		p->panel = full_lines(s->panels * p->panel_size * p->bytes);
	p->local = MAX(1, s->gang) * p->sums + p->strip + p->panel + p->products;
}

DotSizes dot_sizes(Arena *scratch, const Graph *g, const Inside *inside, const Kern *kern,
                   const Machine *machine)
{
	const Val *v = val(g, kern->root);
	const Sched *s = kern->sched;
	DotSizes p = matrix_sizes(g, v);
	p.lanes = (int)MAX(1, machine->lanes * 4 / p.bytes);
	p.width = s->vectors * p.lanes;
	Rows rows = step_sizes(scratch, g, inside, v, s, machine, &p);
	if (!s->height)
		return p;
	packed_sizes(&p, s, &rows, machine);
	work_sizes(&p, g, v, s);
	if (s->panels)
		worker_sizes(&p, s, &rows, machine);
	return p;
}

static Elem matrix_type(const Graph *g, const Val *v, const DotSizes *p, const Machine *machine)
{
	const Val *a = val(g, v->in[0]), *b = val(g, v->in[1]);
	bool half = is_half(a->type) && a->type == b->type, tf32 = is_tf32(a) && is_tf32(b);
	// Smaller ones would waste a part of a tile, at twice the rate.
	bool exact = machine->exact && v->type == E_f32 && a->type == E_f32 && b->type == E_f32 &&
	             p->m >= MATRIX_ROWS && p->n >= MATRIX_COLUMNS;
	return !has_block_matrix(machine) ? 0 : half ? a->type : tf32 || exact ? E_f32 : 0;
}

BlockSizes block_sizes(const Graph *g, const Kern *kern, const Machine *machine)
{
	const Sched *s = kern->sched;
	const Val *v = val(g, kern->root);
	BlockSizes p = {.dot = matrix_sizes(g, v)};
	const DotSizes *dot = &p.dot;
	p.matrix = matrix_type(g, v, dot, machine);
	p.groups = has_group_matrix(machine, p.matrix, s->swapped ? s->columns : s->height);
	int64_t line = p.groups ? GROUP_LINE : 1;
	p.lines = (ceil_div(s->height, line) + ceil_div(s->columns, line)) * line;
	p.down = ceil_div(dot->m, s->height);
	p.across = ceil_div(dot->n, s->columns);
	p.bands = ceil_div(p.down, MAX(1, s->strips));
	p.part = ceil_div(ceil_div(dot->k, MAX(1, s->parts)), s->depth) * s->depth;
	p.part_size = dot->batch * dot->m * dot->n;
	p.partials = s->parts > 1 ? full_lines(s->parts * p.part_size * dot->bytes) : 0;
	p.work = p.partials + s->reduce.count * p.bands * partial_line(dot->n) * PARTIAL;
	return p;
}

int64_t partial_line(int64_t columns)
{
	return (columns + 15) / 16 * 16 + 16;
}

void dot_index(Vars *w, const Graph *g, const Val *v, const DotSizes *p, int o, const Index *batch,
               const Index *row, const Index *column, Index *idx)
{
	const Shape *full = &v->shape, *own = &val(g, v->in[o])->shape;
	int last = full->rank - 1;
	Shape lead = shape_of(p->lead, full->dim);
	unravel(w, batch, &lead, idx);
	if (o) {
		for (int a = p->lead; a < last - 1; a++)
			idx[a] = constant_index(0);
		idx[last - 1] = *row;
	} else {
		Shape rows = shape_of(last - p->lead, full->dim + p->lead);
		unravel(w, row, &rows, idx + p->lead);
	}
	idx[last] = *column;
	index_within(own, idx, idx);
}

// Returns the strides along the columns of a panel of b, all of which memory has.
static Stride panel_stride(Vars *w, const Graph *g, const Inside *inside, const Val *v,
                           const DotSizes *p, const Index *batch)
{
	Index row = some_index(w, p->k), column = some_index(w, p->width), idx[RANK];
	Index panel = some_index(w, ceil_div(p->n, p->width));
	Index at = add_index(w, &column, &panel, p->width);
	dot_index(w, g, v, p, 1, batch, &row, &at, idx);
	Stride s = strides_of(w, g, inside, v->in[1], idx, &row, &column);
	s.panels = s.fixed;
	return s;
}

Stride operand_stride(Vars *w, const Graph *g, const Inside *inside, const Val *v,
                      const DotSizes *p, int o, const Index *batch)
{
	Stride panels = {0};
	if (o && p->width)
		panels = panel_stride(w, g, inside, v, p, batch);
	if (panels.fixed)
		return panels;
	Index row = some_index(w, o ? p->k : p->m), column = some_index(w, o ? p->n : p->k);
	Index idx[RANK];
	dot_index(w, g, v, p, o, batch, &row, &column, idx);
	return strides_of(w, g, inside, v->in[o], idx, &row, &column);
}

bool lies_in_pairs(Vars *w, const Graph *g, const Inside *inside, const Val *v, const DotSizes *p,
                   const Index *batch, Stride *b)
{
	int64_t rows = p->matrix ? p->matrix : p->steps, columns = p->matrix ? p->lanes : p->width;
	if (p->fold == 1 || p->line % p->fold)
		return false;
	Index half = some_index(w, p->fold), step = some_index(w, rows), idx[RANK];
	Index block = some_index(w, ceil_div(p->steps, rows)), column = some_index(w, columns);
	Index vector = some_index(w, p->width / columns),
	      panel = some_index(w, ceil_div(p->n, p->width));
	Index row = add_index(w, &half, &step, p->fold);
	Index at = add_index(w, &column, &vector, columns);
	row = add_index(w, &row, &block, rows * p->fold);
	at = add_index(w, &at, &panel, p->width);
	dot_index(w, g, v, p, 1, batch, &row, &at, idx);
	Stride pair = strides_of(w, g, inside, v->in[1], idx, &half, &column);
	Stride near = strides_of(w, g, inside, v->in[1], idx, &step, &vector);
	Stride far = strides_of(w, g, inside, v->in[1], idx, &block, &panel);
	bool adjacent = pair.fixed && pair.down == 1 && pair.along == p->fold && near.fixed &&
	                near.down == columns * p->fold;
	if (!adjacent || (p->matrix && (near.along != rows * near.down || !far.fixed ||
	                                far.down != rows * p->width * p->fold)))
		return false;
	*b = (Stride){.fixed = true, .panels = true, .down = columns, .along = 1};
	return true;
}
