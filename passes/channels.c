// channels.c: gives windows the channels that matrix registers load.
// The registers take steps of k as they lie in memory: of windows, channels of one element. So
// these must be contiguous, and as many as the registers hold, or a multiple. Zeros complete them,
// and meet zeros of a kernel; in the gradient of a kernel they are dropped. Where an image comes
// from outside, or a loss reads it as the file has it, its channels are moved.
#include "passes.h"

// Windows of x as a matrix: reshape(permute(window(x))), whose columns are size.. C.
typedef struct Columns {
	const Val *window, *permuted;
	Ref matrix;
	bool turned; // the product reads the transpose: it is the gradient of a kernel
	int axis;    // of x: its channels
	int64_t channels, taps;
	int64_t complete; // channels that registers load
} Columns;

typedef struct Channels {
	const Graph *from;
	const Machine *machine;
	Ref *now; // by Ref of `from`: its copy
} Channels;

// Finds the windows that a product reads, or its transpose.
static bool find_columns(const Graph *g, const Val *dot, Columns *c)
{
	const Val *a = val(g, dot->in[0]);
	bool turned = a->op == O_permute && a->shape.rank == 2;
	Ref r = turned ? a->in[0] : dot->in[0];
	const Val *matrix = val(g, r), *permuted = matrix->nin ? val(g, matrix->in[0]) : NULL;
	if (matrix->op != O_reshape || permuted->op != O_permute)
		return false;
	const Val *window = val(g, permuted->in[0]);
	if (window->op != O_window)
		return false;
	int rank = val(g, window->in[0])->shape.rank, last = window->shape.rank - 1;
	WindowAxes w = window_axes(window->attr);
	int axis = (int)permuted->attr->i[last];
	*c = (Columns){window, permuted, r, turned, axis, .taps = 1};
	bool fits = c->axis < rank;
	for (int a = 0; a < w.n; a++) {
		fits &= w.at[a].axis != c->axis && permuted->attr->i[last - 1 - a] >= rank;
		c->taps *= w.at[a].size;
	}
	c->channels = fits ? window->shape.dim[c->axis] : 0;
	return fits && last_dim(&matrix->shape) == c->taps * c->channels;
}

// True if matrix registers multiply complete windows in less time than vectors multiply the
// channels that there are.
static bool is_faster(const Channels *c, const Val *dot, const Columns *columns)
{
	enum { OF_HALVES = 16, OF_SLICES = 7, QUARTERS = 4 }; // quarters of the speed, as measured
	Shape s = dot->shape;
	int64_t n = s.dim[s.rank - 1], m = s.dim[s.rank - 2], k = columns->taps * columns->complete;
	bool halves = c->from->products == E_bf16;
	int faster = halves ? OF_HALVES : OF_SLICES;
	bool takes = halves || (multiplies_slices(c->from, c->machine, m, n, k, true) &&
	                        !may_be_squares(columns->window, m));
	return takes && QUARTERS * columns->complete <= faster * columns->channels;
}

// Finds the windows that a product reads. False: registers load them as they are, or need not. A
// register takes twice as many channels along k as it does as columns. As columns, of a gradient,
// fewer than these are packed as fast.
static bool find_incomplete(const Channels *c, const Val *dot, Columns *columns)
{
	const Graph *g = c->from;
	if (dot->op != O_dot || dot->type != E_f32 || !find_columns(g, dot, columns))
		return false;
	int64_t own = columns->channels, step = c->machine->pairs * (columns->turned ? 1 : 2);
	columns->complete = ceil_div(own, step) * step;
	bool last = columns->axis == val(g, columns->window->in[0])->shape.rank - 1;
	if (last && columns->complete == own)
		return false;
	return columns->turned ? g->products == E_bf16 && own >= step : is_faster(c, dot, columns);
}

// Returns the matrix of complete windows, whose channels are the last axis of x.
static Ref put_columns(const Channels *c, Graph *g, const Columns *columns)
{
	const Val *window = columns->window;
	Ref x = c->now[window->in[0]];
	Shape matrix = val(c->from, columns->matrix)->shape;
	int axis = columns->axis, last = val(g, x)->shape.rank - 1;
	WindowAxes w = window_axes(window->attr);
	WindowAxis along[RANK];
	for (int a = 0; a < w.n; a++) {
		along[a] = w.at[a];
		along[a].axis -= along[a].axis > axis;
	}
	int64_t perm[RANK];
	for (int a = 0; a < window->shape.rank; a++) {
		int64_t was = columns->permuted->attr->i[a];
		perm[a] = was == axis ? last : was - (was > axis && was <= last);
	}
	x = put_extended(g, move_axis(g, x, axis, last), last, columns->complete);
	x = put_permute(g, put_window(g, x, w.n, along, window->attr->x), perm);
	matrix.dim[matrix.rank - 1] = columns->taps * columns->complete;
	return put_reshape(g, x, matrix);
}

// Windows times a kernel [.., taps C, O].
static Ref put_product(const Channels *c, Graph *g, const Columns *columns, Ref kernel)
{
	Shape flat = val(g, kernel)->shape, open = flat;
	int last = open.rank++;
	open.dim[last] = flat.dim[last - 1];
	open.dim[last - 1] = columns->channels;
	open.dim[last - 2] = columns->taps;
	flat.dim[last - 2] = columns->taps * columns->complete;
	kernel = put_extended(g, put_reshape(g, kernel, open), last - 1, columns->complete);
	return put2(g, O_dot, put_columns(c, g, columns), put_reshape(g, kernel, flat));
}

// The gradient [taps C, O] of a kernel: the transpose of windows times what comes back, [positions,
// O]. The registers load windows from the right.
static Ref put_gradient(const Channels *c, Graph *g, const Columns *columns, Ref back)
{
	int64_t own = columns->channels, taps = columns->taps;
	int64_t outputs = last_dim(&val(g, back)->shape), start[RANK] = {0};
	Ref x = put2(g, O_dot, swap_last(g, back), put_columns(c, g, columns));
	x = put_reshape(g, x, shape_of(3, (int64_t[]){outputs, taps, columns->complete}));
	x = put_slice(g, x, start, (int64_t[]){outputs, taps, own}, NULL);
	return swap_last(g, put_reshape(g, x, shape_of(2, (int64_t[]){outputs, taps * own})));
}

static Ref put_loaded(void *context, Graph *to, const Val *v, const Ref *in)
{
	const Channels *c = context;
	Columns columns;
	if (!find_incomplete(c, v, &columns))
		return put_as(to, v, in);
	return columns.turned ? put_gradient(c, to, &columns, in[1])
	                      : put_product(c, to, &columns, in[1]);
}

const Graph *channels_pass(Arena *arena, const Graph *from, const Machine *machine)
{
	Columns columns;
	Channels c = {from, machine, NULL};
	bool any = false;
	for (Ref r = 1; r < (Ref)from->nval && !any; r++)
		any = find_incomplete(&c, val(from, r), &columns);
	if (!any)
		return from;
	Graph *to = graph_like(arena, from);
	c.now = NEWS(arena, Ref, from->nval);
	to->plain = DECOMPOSED_ALL;
	copy_graph(to, from, c.now, put_loaded, &c);
	return graph_live(arena, to);
}
