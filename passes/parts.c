// parts.c: reduces in parts what has few results.
// A worker has results of its own, so few results have few workers, however many elements each of
// them is reduced from. The sum over samples and positions of a gradient, for each of three
// channels, becomes sums of parts of each sample, and sums of these. Where channels come last,
// workers have rows, and join their sums themselves (blocking.c); but three columns would fill
// three lanes of a vector. Several rows are one then, whose sums are added.
#include "index.h"
#include "passes.h"

enum {
	LARGE = 1 << 16, // elements for several workers to reduce
	SHORT = 256,     // elements of a part, at least
};

// ---- rows -----------------------------------------------------------------------------

// Returns the first of the axes at the end of x that v reduces all of.
static int first_reduced(const Val *v, const Shape *x)
{
	int first = x->rank;
	unsigned axes = axes_mask(v);
	while (first > 0 && (x->dim[first - 1] == 1 || axes >> (first - 1) & 1))
		first--;
	return first;
}

Ref put_in_parts(Graph *g, const Val *v, Ref x, int64_t wanted)
{
	const Shape *from = &val(g, x)->shape;
	int first = first_reduced(v, from), n = 0;
	int64_t results = count_of(&v->shape), rows = 1, parts = 1, axes[RANK] = {first};
	for (int a = 0; a < first; a++)
		rows *= from->dim[a];
	int64_t row = count_of(from) / MAX(1, rows);
	while (rows * parts < wanted && row % (2 * parts) == 0 && row / (2 * parts) >= SHORT)
		parts *= 2;
	bool few = v->op != O_argmax && v->op != O_cumsum && rows * row >= LARGE && row > 1;
	if (!few || rows * parts == results || first + 2 > RANK)
		return put_as(g, v, &x);
	Shape split = *from;
	split.rank = first + 2;
	split.dim[first] = parts;
	split.dim[first + 1] = row / parts;
	Ref each = put_reduce(g, v->op, put_reshape(g, x, split), 1, (int64_t[]){first + 1});
	// The reshape keeps the door from merging both reductions.
	split.rank--;
	each = put_reshape(g, each, split);
	for (int a = 0; a <= first; a++)
		if (a == first || axes_mask(v) >> a & 1)
			axes[n++] = a;
	return put_reshape(g, put_reduce(g, v->op, each, n, axes), v->shape);
}

// True for a sum of several results, fewer than workers, over samples too, or of so many elements
// that no cache holds them for the maps that follow.
static bool has_few_results(const Graph *g, const Val *v, int64_t workers)
{
	if (v->op != O_sum)
		return false;
	const Shape *from = &val(g, v->in[0])->shape;
	int64_t results = count_of(&v->shape), rows = 1, count = count_of(from);
	for (int a = 0; a < first_reduced(v, from); a++)
		rows *= from->dim[a];
	bool few = results > 1 && results < workers && count >= LARGE;
	return few && rows < count && (rows > results || count / rows >= LARGE);
}

// ---- columns --------------------------------------------------------------------------

// True for a sum over all axes but the last, which is short, of a value with rows enough.
static bool has_few_columns(const Graph *g, const Val *v, int64_t columns)
{
	int64_t last = last_dim(&v->shape);
	if (v->op != O_sum || last < 2 || last > columns || count_of(&v->shape) != last)
		return false;
	const Shape *from = &val(g, v->in[0])->shape;
	int64_t count = count_of(from);
	return last_dim(from) == last && count >= LARGE && count / last % 2 == 0;
}

static Ref put_columns(Graph *g, const Val *v, Ref x)
{
	enum { MOST = 16 }; // rows that are one
	int64_t columns = last_dim(&v->shape), rows = count_of(&val(g, x)->shape) / columns;
	int64_t each = common_divisor(rows, MOST);
	x = put_reshape(g, x, shape_of(2, (int64_t[]){rows / each, each * columns}));
	x = put_reduce(g, v->op, x, 1, (int64_t[]){0});
	x = put_reshape(g, x, shape_of(2, (int64_t[]){each, columns}));
	return put_reshape(g, put_reduce(g, v->op, x, 1, (int64_t[]){0}), v->shape);
}

// A sum down the rows of [samples, rows, columns], but for axes of one element.
typedef struct Down {
	int64_t samples, rows, columns;
	bool last; // the columns are the last axis
} Down;

// Finds what a reduction goes down; false: it is none of rows of several columns.
static bool find_down(const Val *v, const Shape *from, Down *d)
{
	*d = (Down){1, 1, 1, from->rank && last_dim(from) > 1};
	for (int a = from->rank - 1; a >= 0; a--) {
		bool reduced = axes_mask(v) >> a & 1;
		if (from->dim[a] == 1)
			continue;
		if (reduced && (d->columns == 1 || d->samples > 1))
			return false;
		*(reduced ? &d->rows : d->rows == 1 ? &d->columns : &d->samples) *= from->dim[a];
	}
	return d->rows > 1;
}

// True if so few workers have all columns that each would have many elements. Workers have rows if
// there is one sample, and its columns are the last axis.
static bool has_long_columns(const Graph *g, const Val *v, int64_t workers)
{
	enum { WIDE = 64, LONG = 1 << 15 }; // columns and elements of a worker
	Down d;
	if (v->op != O_sum || !find_down(v, &val(g, v->in[0])->shape, &d))
		return false;
	bool few = d.samples * ceil_div(d.columns, WIDE) < workers;
	return few && d.rows * MIN(d.columns, WIDE) >= LONG && (d.samples > 1 || !d.last);
}

static Ref put_down(Graph *g, const Val *v, Ref x, int64_t wanted)
{
	Down d;
	find_down(v, &val(g, x)->shape, &d);
	if (d.samples == 1) {
		x = put_reshape(g, x, shape_of(2, (int64_t[]){d.rows, d.columns}));
		return put_reshape(g, put_reduce(g, v->op, x, 1, (int64_t[]){0}), v->shape);
	}
	int64_t parts = 1;
	while (d.samples * parts < wanted && d.rows % (2 * parts) == 0)
		parts *= 2;
	int64_t each[] = {d.samples, parts, d.rows / parts, d.columns};
	x = put_reduce(g, v->op, put_reshape(g, x, shape_of(4, each)), 1, (int64_t[]){2});
	x = put_reshape(g, x, shape_of(3, (int64_t[]){d.samples, parts, d.columns}));
	return put_reshape(g, put_reduce(g, v->op, x, 1, (int64_t[]){1}), v->shape);
}

// ---- the pass -------------------------------------------------------------------------

typedef struct Parts {
	const Graph *from;
	int64_t workers, wanted; // of a launch; parts of rows
	int64_t down, narrow;    // workers, and how many columns are few, of columns
} Parts;

static Ref put_part(void *context, Graph *to, const Val *v, const Ref *in)
{
	const Parts *p = context;
	if (has_few_columns(p->from, v, p->narrow))
		return put_columns(to, v, in[0]);
	if (has_long_columns(p->from, v, p->down))
		return put_down(to, v, in[0], p->workers);
	bool few = has_few_results(p->from, v, p->workers);
	return few ? put_in_parts(to, v, in[0], p->wanted) : put_as(to, v, in);
}

static bool has_parts(const Parts *p, const Val *v)
{
	return has_few_columns(p->from, v, p->narrow) || has_long_columns(p->from, v, p->down) ||
	       has_few_results(p->from, v, p->workers);
}

const Graph *parts_pass(Arena *arena, const Graph *from, const Machine *machine)
{
	int64_t wave = wave_of(machine);
	Parts p = {from, machine->workers, PARTS, machine->workers / 4, machine->lanes / 2 - 1};
	if (machine->threads > 1)
		p = (Parts){from, wave, wave, wave, 0};
	bool some = false;
	for (Ref r = 1; r < (Ref)from->nval && !some; r++)
		some = has_parts(&p, val(from, r));
	if (!some)
		return from;
	Graph *to = graph_like(arena, from);
	to->plain = DECOMPOSED_ALL;
	copy_graph(to, from, NULL, put_part, &p);
	return graph_live(arena, to);
}
