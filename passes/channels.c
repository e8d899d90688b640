// channels.c: gives windows the channels that matrix registers load.
// The registers take steps of k as they lie in memory: of windows, channels of one element. So
// these must be contiguous, and as many as the registers hold, or a multiple. Zeros complete them,
// and meet zeros of a kernel; in the gradient of a kernel they are dropped. Where an image comes
// from outside, or a loss reads it as the file has it, its channels are moved.
#include "passes.h"

// Windows of x as a matrix: reshape(permute(window(x))), whose columns are size.. C.
typedef struct Columns {
	const Val *window, *permuted;
	int axis; // of x: its channels
	int64_t channels, taps;
} Columns;

typedef struct Channels {
	const Graph *from;
	const Machine *machine;
	Ref *now;  // by Ref of `from`: its copy
	int loads; // channels that a matrix register takes as its columns; along k, twice as many
} Channels;

static bool find_columns(const Graph *g, Ref r, Columns *c)
{
	const Val *matrix = val(g, r), *permuted = matrix->nin ? val(g, matrix->in[0]) : NULL;
	if (matrix->op != O_reshape || permuted->op != O_permute)
		return false;
	const Val *window = val(g, permuted->in[0]);
	if (window->op != O_window)
		return false;
	int rank = val(g, window->in[0])->shape.rank, last = window->shape.rank - 1;
	WindowAxes w = window_axes(window->attr);
	*c = (Columns){window, permuted, (int)permuted->attr->i[last], .taps = 1};
	bool fits = c->axis < rank;
	for (int a = 0; a < w.n; a++) {
		fits &= w.at[a].axis != c->axis && permuted->attr->i[last - 1 - a] >= rank;
		c->taps *= w.at[a].size;
	}
	c->channels = fits ? window->shape.dim[c->axis] : 0;
	return fits && last_dim(&matrix->shape) == c->taps * c->channels;
}

// True if the registers load the windows of so many channels as they are.
static bool is_ready(const Channels *c, const Columns *columns, int64_t channels)
{
	const Val *x = val(c->from, columns->window->in[0]);
	return channels == columns->channels && columns->axis == x->shape.rank - 1;
}

// Returns the windows with so many channels, the last axis of x, as the matrix r is.
static Ref put_columns(const Channels *c, Graph *g, const Columns *columns, Ref r, int64_t channels)
{
	const Val *window = columns->window;
	Ref x = c->now[window->in[0]];
	Shape matrix = val(c->from, r)->shape;
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
	x = put_extended(g, move_axis(g, x, axis, last), last, channels);
	x = put_permute(g, put_window(g, x, w.n, along, window->attr->x), perm);
	matrix.dim[matrix.rank - 1] = columns->taps * channels;
	return put_reshape(g, x, matrix);
}

// True if matrix registers multiply windows of so many channels, of which some are zeros, in less
// time than vectors multiply those that there are.
static bool is_faster(const Channels *c, const Val *dot, const Columns *columns, int64_t channels)
{
	enum { OF_HALVES = 16, OF_SLICES = 7, QUARTERS = 4 }; // quarters of the speed, as measured
	Shape s = dot->shape;
	int64_t n = s.dim[s.rank - 1], m = s.dim[s.rank - 2], k = columns->taps * channels;
	bool halves = c->from->products == E_bf16;
	int faster = halves ? OF_HALVES : OF_SLICES;
	bool takes = halves || (multiplies_slices(c->from, c->machine, m, n, k, true) &&
	                        !may_be_squares(columns->window, m));
	return takes && QUARTERS * channels <= faster * columns->channels;
}

// Windows times a kernel [.., taps C, O].
static Ref put_product(const Channels *c, Graph *g, const Val *dot, const Columns *columns,
                       Ref kernel)
{
	int64_t own = columns->channels, taps = columns->taps;
	int64_t channels = ceil_div(own, 2 * c->loads) * 2 * c->loads;
	if (is_ready(c, columns, channels) || !is_faster(c, dot, columns, channels))
		return 0;
	Shape flat = val(g, kernel)->shape, open = flat;
	int last = open.rank++;
	open.dim[last] = flat.dim[last - 1];
	open.dim[last - 1] = own;
	open.dim[last - 2] = taps;
	flat.dim[last - 2] = taps * channels;
	kernel = put_extended(g, put_reshape(g, kernel, open), last - 1, channels);
	Ref x = put_columns(c, g, columns, dot->in[0], channels);
	return put2(g, O_dot, x, put_reshape(g, kernel, flat));
}

// The gradient [taps C, O] of a kernel: the transpose of windows times what comes back, [positions,
// O]. The registers load windows as columns, unless these are so few that packing takes no longer.
static Ref put_gradient(const Channels *c, Graph *g, const Val *dot, const Columns *columns,
                        Ref back)
{
	int64_t own = columns->channels, taps = columns->taps, outputs = last_dim(&dot->shape);
	int64_t channels = ceil_div(own, c->loads) * c->loads, start[RANK] = {0};
	if (c->from->products != E_bf16 || own < c->loads || is_ready(c, columns, channels))
		return 0;
	Ref x = put_columns(c, g, columns, val(c->from, dot->in[0])->in[0], channels);
	x = put2(g, O_dot, swap_last(g, back), x);
	x = put_reshape(g, x, shape_of(3, (int64_t[]){outputs, taps, channels}));
	x = put_slice(g, x, start, (int64_t[]){outputs, taps, own}, NULL);
	return swap_last(g, put_reshape(g, x, shape_of(2, (int64_t[]){outputs, taps * own})));
}

static Ref put_loaded(void *context, Graph *to, const Val *v, const Ref *in)
{
	const Channels *c = context;
	const Graph *g = c->from;
	Columns columns;
	Ref x = 0;
	if (v->op == O_dot && v->type == E_f32) {
		const Val *a = val(g, v->in[0]);
		bool turned = a->op == O_permute && a->shape.rank == 2;
		if (find_columns(g, v->in[0], &columns))
			x = put_product(c, to, v, &columns, in[1]);
		else if (turned && find_columns(g, a->in[0], &columns))
			x = put_gradient(c, to, v, &columns, in[1]);
	}
	return x ? x : put_as(to, v, in);
}

const Graph *channels_pass(Arena *arena, const Graph *from, const Machine *machine)
{
	Columns columns;
	bool any = false;
	for (Ref r = 1; r < (Ref)from->nval && !any; r++)
		any = find_columns(from, r, &columns);
	if (!any)
		return from;
	Graph *to = graph_like(arena, from);
	Channels c = {from, machine, NEWS(arena, Ref, from->nval), machine->pairs};
	to->plain = DECOMPOSED_ALL;
	copy_graph(to, from, c.now, put_loaded, &c);
	return graph_live(arena, to);
}
