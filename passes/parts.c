// parts.c: reduces in parts what has few results.
// Each result belongs to one worker, so a sum with few results has few workers, however many
// elements it adds up. The sum over samples and positions of a gradient, for each of three
// channels, becomes sums over parts of each sample, and sums of these. Where channels come last,
// workers own rows, and join their sums themselves (blocking.c); but three columns would fill three
// lanes of a vector. There, several rows become one, and their sums are added. So would the few
// channels of a group, which lie side by side at each position: first positions are summed.
#include "index.h"
#include "passes.h"

// Reduces an axis of x as `split`, then axes of the results as `rest`. The reshape between both
// keeps the door from merging them.
static Ref put_twice(Graph *g, const Val *v, Ref x, Shape split, int64_t axis, Shape rest, int n,
                     const int64_t *axes)
{
	x = put_reduce(g, v->op, put_reshape(g, x, split), 1, &axis);
	x = put_reduce(g, v->op, put_reshape(g, x, rest), n, axes);
	return put_reshape(g, x, v->shape);
}

// ---- rows -----------------------------------------------------------------------------

// Returns the first of the axes at the end of x that v reduces all of. *rows: the elements of the
// axes before them.
static int first_reduced(const Val *v, const Shape *x, int64_t *rows)
{
	int first = x->rank;
	uint32_t axes = axes_mask(v);
	while (first > 0 && (x->dim[first - 1] == 1 || axes >> (first - 1) & 1))
		first--;
	*rows = 1;
	for (int a = 0; a < first; a++)
		*rows *= x->dim[a];
	return first;
}

Ref put_in_parts(Graph *g, const Val *v, Ref x, int64_t wanted)
{
	enum { SHORT = 256 }; // elements of a part, at least
	const Shape *from = &val(g, x)->shape;
	int64_t rows, parts = 1, axes[RANK], count = count_of(from);
	int first = first_reduced(v, from, &rows), n = 0;
	int64_t row = count / MAX(1, rows);
	while (rows * parts < wanted && row % (2 * parts) == 0 && row / (2 * parts) >= SHORT)
		parts *= 2;
	bool few = v->op != O_argmax && v->op != O_cumsum && count >= LARGE_SPACE && row > 1;
	if (!few || rows * parts == count_of(&v->shape) || first + 2 > RANK)
		return put_as(g, v, &x);
	Shape split = *from, rest;
	split.dim[first] = parts;
	split.dim[first + 1] = row / parts;
	split.rank = first + 2;
	rest = split;
	rest.rank = first + 1;
	for (int a = 0; a <= first; a++)
		if (a == first || axes_mask(v) >> a & 1)
			axes[n++] = a;
	return put_twice(g, v, x, split, first + 1, rest, n, axes);
}

enum { NEAR = 1 << 14 }; // elements that a block of threads of a GPU keeps near

typedef struct Parts {
	const Graph *from;
	int64_t workers, wanted; // of a launch; parts of rows
	int64_t owners;          // workers that are enough if each can keep what it reduces near
	int64_t down, narrow;    // workers, and how many columns are few, of columns
	int64_t lanes;           // of a vector; 0: a GPU
} Parts;

// True for a sum of several results, fewer than workers, over samples too, or of so many elements
// that no cache holds them for the maps that follow. What blocks of threads of a GPU keep near, and
// memory has in pieces, such as the channels of a group, they also sum again, and map.
static bool has_few_results(const Parts *p, const Val *v, const Shape *from)
{
	enum { PIECE = 4 }; // elements side by side, at least
	int64_t results = count_of(&v->shape), count = count_of(from), rows;
	if (results <= 1 || count < LARGE_SPACE)
		return false;
	first_reduced(v, from, &rows);
	bool near = count / rows >= PIECE && count / results <= NEAR;
	return results < (near ? p->owners : p->workers) && rows < count &&
	       (rows > results || count / rows >= LARGE_SPACE);
}

// ---- columns --------------------------------------------------------------------------

// True for a sum over all axes but the last, which is short, of a value with enough rows.
static bool has_few_columns(const Val *v, const Shape *from, int64_t columns)
{
	int64_t last = last_dim(&v->shape), count = count_of(from);
	return last > 1 && last <= columns && count_of(&v->shape) == last &&
	       last_dim(from) == last && count >= LARGE_SPACE && count / last % 2 == 0;
}

static Ref put_columns(Graph *g, const Val *v, Ref x)
{
	enum { MOST = 16 }; // rows that become one
	int64_t columns = last_dim(&v->shape), rows = count_of(&val(g, x)->shape) / columns;
	int64_t each = common_divisor(rows, MOST);
	Shape split = shape_of(2, (int64_t[]){rows / each, each * columns});
	Shape rest = shape_of(2, (int64_t[]){each, columns});
	return put_twice(g, v, x, split, 0, rest, 1, (int64_t[]){0});
}

// A sum down the rows of [samples, rows, columns], but for axes of one element.
typedef struct Down {
	int64_t samples, rows, columns;
	bool last; // the columns are the last axis
} Down;

// Finds what a reduction of these axes goes down. False: it does not go down rows of several
// columns.
static bool find_down(uint32_t axes, const Shape *from, Down *d)
{
	*d = (Down){1, 1, 1, from->rank && last_dim(from) > 1};
	for (int a = from->rank - 1; a >= 0; a--) {
		bool reduced = axes >> a & 1;
		if (from->dim[a] == 1)
			continue;
		if (reduced && (d->columns == 1 || d->samples > 1))
			return false;
		*(reduced ? &d->rows : d->rows == 1 ? &d->columns : &d->samples) *= from->dim[a];
	}
	return d->rows > 1;
}

// True if each block of threads of a GPU takes a few columns of a sample, and its caches still hold
// them for the maps that follow.
static bool has_near_columns(const Down *d, int64_t owners)
{
	int64_t pieces = d->columns / SHARED_COLUMNS;
	return d->columns % SHARED_COLUMNS == 0 && d->rows * SHARED_COLUMNS <= NEAR &&
	       100 * d->samples * pieces >= FULL_PERCENT * owners;
}

// True if so few workers have all columns that each would have many elements. Workers own rows if
// there is one sample, and its columns are the last axis.
static bool has_long_columns(const Parts *p, const Val *v, const Shape *from)
{
	enum { WIDE = 64, LONG = 1 << 15 }; // columns and elements of a worker
	Down d;
	if (!find_down(axes_mask(v), from, &d) || (d.samples == 1 && d.last))
		return false;
	if (!p->lanes && d.samples > 1 && has_near_columns(&d, p->owners))
		return false;
	return d.samples * ceil_div(d.columns, WIDE) < p->down &&
	       d.rows * MIN(d.columns, WIDE) >= LONG;
}

static Ref put_down(Graph *g, const Val *v, Ref x, int64_t wanted)
{
	Down d;
	find_down(axes_mask(v), &val(g, x)->shape, &d);
	if (d.samples == 1) {
		x = put_reshape(g, x, shape_of(2, (int64_t[]){d.rows, d.columns}));
		return put_reshape(g, put_reduce(g, v->op, x, 1, (int64_t[]){0}), v->shape);
	}
	int64_t parts = 1;
	while (d.samples * parts < wanted && d.rows % (2 * parts) == 0)
		parts *= 2;
	Shape split = shape_of(4, (int64_t[]){d.samples, parts, d.rows / parts, d.columns});
	Shape rest = shape_of(3, (int64_t[]){d.samples, parts, d.columns});
	return put_twice(g, v, x, split, 2, rest, 1, (int64_t[]){1});
}

// ---- pieces ---------------------------------------------------------------------------

// Finds what goes down rows [groups, piece] of a sample, if results are sums of such pieces.
static bool find_pieces(const Val *v, const Shape *from, Down *d, int64_t *piece)
{
	int64_t rows;
	int first = first_reduced(v, from, &rows);
	*piece = count_of(from) / MAX(1, rows);
	return *piece > 1 && find_down(axes_mask(v) & ((1u << first) - 1), from, d);
}

// True for sums over pieces too short to fill a vector, such as the few channels of a group. A row
// loads half a vector of bf16 as fast as a whole one, but fewer elements one by one.
static bool has_short_pieces(const Parts *p, const Val *v, const Shape *from)
{
	enum { ROWS = 16 }; // at least
	Down d;
	int64_t piece, most = p->from->products == E_bf16 ? p->lanes / 2 - 1 : p->lanes / 2;
	return find_pieces(v, from, &d, &piece) && piece <= most && d.rows >= ROWS &&
	       d.columns >= p->lanes;
}

static Ref put_pieces(Graph *g, const Val *v, Ref x)
{
	Down d;
	int64_t piece;
	find_pieces(v, &val(g, x)->shape, &d, &piece);
	Shape split = shape_of(3, (int64_t[]){d.samples, d.rows, d.columns});
	Shape rest = shape_of(3, (int64_t[]){d.samples, d.columns / piece, piece});
	return put_twice(g, v, x, split, 1, rest, 1, (int64_t[]){2});
}

// ---- the pass -------------------------------------------------------------------------

typedef enum Form { F_whole, F_columns, F_down, F_pieces, F_rows } Form;

static Form form_of(const Parts *p, const Val *v)
{
	if (v->op != O_sum)
		return F_whole;
	const Shape *from = &val(p->from, v->in[0])->shape;
	return has_few_columns(v, from, p->narrow) ? F_columns
	       : has_long_columns(p, v, from)      ? F_down
	       : has_short_pieces(p, v, from)      ? F_pieces
	       : has_few_results(p, v, from)       ? F_rows
	                                           : F_whole;
}

static Ref put_part(void *context, Graph *to, const Val *v, const Ref *in)
{
	const Parts *p = context;
	switch (form_of(p, v)) {
	case F_columns:
		return put_columns(to, v, in[0]);
	case F_down:
		return put_down(to, v, in[0], p->workers);
	case F_pieces:
		return put_pieces(to, v, in[0]);
	case F_rows:
		return put_in_parts(to, v, in[0], p->wanted);
	default:
		return put_as(to, v, in);
	}
}

const Graph *parts_pass(Arena *arena, const Graph *from, const Machine *machine)
{
	int64_t wave = wave_of(machine);
	int64_t all = machine->workers;
	Parts p = {from, all, PARTS, all, all / 4, machine->lanes / 2 - 1, machine->lanes};
	if (machine->threads > 1)
		p = (Parts){from, wave, wave, all, wave, 0, 0};
	bool some = false;
	for (Ref r = 1; r < (Ref)from->nval && !some; r++)
		some = form_of(&p, val(from, r)) != F_whole;
	if (!some)
		return from;
	Graph *to = graph_like(arena, from);
	to->plain = DECOMPOSED_ALL;
	copy_graph(to, from, NULL, put_part, &p);
	return graph_live(arena, to);
}
