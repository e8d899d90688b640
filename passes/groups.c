// groups.c: multiplies several groups of a convolution as one, if each has few channels.
// Lanes of a vector are outputs, and a matrix register takes 32 adjacent channels: a product of a
// group of 8 channels leaves most of them empty. As one, several groups fill them, and so do loads
// of what is computed from the result. The kernel of merged groups has zeros where an output meets
// channels of another group; the gradient of these is dropped. Channels of zeros complete the last
// of them if groups are left over.
#include "passes.h"

enum { STEP = 32 }; // bf16 elements of k that a matrix register takes

typedef struct Groups {
	const Val *window;                    // of x [N, G, C, in..]
	int64_t all, taps, channels, outputs; // G; of a kernel [G, taps, C, O]
	int64_t each, merged;                 // groups that are one; how many there are then
} Groups;

typedef enum Role {
	R_none,
	R_forward, // windows [N, G, positions, taps C] times the kernel [1, G, taps C, O]
	R_kernel,  // its gradient: windows [1, G, taps C, N positions] times [1, G, N positions, O]
	R_windows, // that of windows: [N, G, positions, O] times [1, G, O, taps C]
} Role;

typedef struct Merge {
	const Graph *from;
	const Machine *machine;
	bool registers; // matrix registers multiply bf16
	Ref *now;       // by Ref of `from`: its copy
	Groups *of;     // by Ref of `from`: of a product, or of a kernel
	Role *role;     // by Ref of `from`
} Merge;

// ---- which groups ---------------------------------------------------------------------

// Returns r before its last two axes were swapped; 0: they were not.
static Ref unswapped(const Graph *g, Ref r)
{
	const Val *v = val(g, r);
	int last = v->shape.rank - 1;
	bool swapped = v->op == O_permute && v->attr->i[last] == last - 1;
	for (int a = 0; swapped && a < last - 1; a++)
		swapped = v->attr->i[a] == a;
	return swapped ? v->in[0] : 0;
}

// Returns the matrix [N, G, rows, columns] that r is as [1, G, N rows, columns]; 0: it is none.
static Ref unjoined(const Graph *g, Ref r)
{
	const Val *v = val(g, r), *turned = v->nin ? val(g, v->in[0]) : NULL;
	if (v->op != O_reshape || v->shape.rank != 4 || v->shape.dim[0] != 1)
		return 0;
	if (turned->op != O_permute || turned->shape.rank != 4)
		return r;
	const int64_t *perm = turned->attr->i;
	bool joined = perm[0] == 1 && perm[1] == 0 && perm[2] == 2 &&
	              turned->shape.dim[0] == v->shape.dim[1] &&
	              turned->shape.dim[3] == v->shape.dim[3];
	return joined ? turned->in[0] : 0;
}

// Returns the time for a multiply-add of the convolution if so many groups are one, in those of
// full vectors.
static double cost_of(const Groups *s, int64_t each, int64_t lanes)
{
	int64_t columns = ceil_div(each * s->outputs, lanes) * lanes;
	double padded = (double)(ceil_div(s->all, each) * each) / (double)s->all;
	return padded * (double)columns / (double)s->outputs;
}

// Chooses how many groups are one: as many as fill a vector with outputs, or a step of matrix
// registers with channels.
static void choose_each(const Merge *m, Groups *s)
{
	enum { FASTER = 4 }; // times that matrix registers multiply as fast, as measured
	int64_t lanes = m->machine->lanes, step = STEP / common_divisor(STEP, s->channels);
	s->each = MAX(1, MIN(lanes / s->outputs, s->all));
	if (m->registers && cost_of(s, step, lanes) < FASTER * cost_of(s, s->each, lanes))
		s->each = step;
	s->merged = ceil_div(s->all, s->each);
}

static Groups groups_of(const Merge *m, const Val *window, int64_t columns, int64_t outputs)
{
	Groups s = {.window = window,
	            .all = window->shape.dim[1],
	            .channels = window->shape.dim[2],
	            .outputs = outputs};
	s.taps = columns / s.channels;
	choose_each(m, &s);
	return s;
}

// Finds what the product v does for a convolution with groups.
static void find_role(Merge *m, Ref r)
{
	const Graph *g = m->from;
	const Val *v = val(g, r), *window;
	if (v->op != O_dot || v->shape.rank != 4 || v->type != E_f32)
		return;
	const Shape *a = &val(g, v->in[0])->shape, *b = &val(g, v->in[1])->shape;
	Ref turned = unswapped(g, v->in[0]), kernel = unswapped(g, v->in[1]);
	Ref joined = turned ? unjoined(g, turned) : 0;
	if (b->rank == 4 && b->dim[0] == 1 && (window = windows_of_matrix(g, v->in[0]))) {
		m->role[r] = R_forward;
		m->of[r] = m->of[v->in[1]] = groups_of(m, window, a->dim[3], b->dim[3]);
	} else if (joined && b->rank == 4 && b->dim[0] == 1 &&
	           (window = windows_of_matrix(g, joined))) {
		m->role[r] = R_kernel;
		m->of[r] = groups_of(m, window, a->dim[2], b->dim[3]);
	} else if (kernel && m->of[kernel].window && a->rank == 4) {
		m->role[r] = R_windows;
		m->of[r] = m->of[kernel];
	}
	if (m->of[r].each <= 1)
		m->role[r] = R_none;
}

// ---- the products ---------------------------------------------------------------------

// Returns the first elements of x along an axis.
static Ref first_of(Graph *g, Ref x, int axis, int64_t count)
{
	int64_t start[RANK] = {0};
	Shape s = val(g, x)->shape;
	s.dim[axis] = count;
	return put_slice(g, x, start, s.dim, NULL);
}

// Returns x [N, G, C, in..] with merged groups.
static Ref merge_channels(Graph *g, Ref x, const Groups *s)
{
	Shape flat = val(g, x)->shape, to = flat;
	flat.rank--;
	flat.dim[1] = s->all * s->channels;
	for (int a = 2; a < flat.rank; a++)
		flat.dim[a] = to.dim[a + 1];
	to.dim[1] = s->merged;
	to.dim[2] = s->each * s->channels;
	x = put_extended(g, put_reshape(g, x, flat), 1, to.dim[1] * to.dim[2]);
	return put_reshape(g, x, to);
}

// Returns windows of merged groups as matrices [N, merged, positions, taps channels].
static Ref merged_windows(Merge *m, Graph *to, const Groups *s)
{
	Ref x = merge_channels(to, m->now[s->window->in[0]], s);
	x = put(to, O_window, 1, &x, s->window->attr);
	Shape shape = val(to, x)->shape;
	int64_t columns = s->taps * s->each * s->channels;
	int64_t positions = count_of(&shape) / (shape.dim[0] * s->merged * columns);
	x = move_axis(to, x, 2, shape.rank - 1);
	return put_reshape(to, x,
	                   shape_of(4, (int64_t[]){shape.dim[0], s->merged, positions, columns}));
}

// Returns columns [N, G, rows, outer inner] as those of merged groups.
static Ref merge_columns(Graph *g, Ref x, const Groups *s, int64_t inner)
{
	Shape shape = val(g, x)->shape;
	int64_t outer = shape.dim[3] / inner, rows = shape.dim[2];
	x = put_extended(g, x, 1, s->merged * s->each);
	x = put_reshape(
	    g, x, shape_of(6, (int64_t[]){shape.dim[0], s->merged, s->each, rows, outer, inner}));
	x = move_axis(g, x, 2, 4);
	return put_reshape(
	    g, x, shape_of(4, (int64_t[]){shape.dim[0], s->merged, rows, outer * s->each * inner}));
}

// The reverse.
static Ref part_columns(Graph *g, Ref x, const Groups *s, int64_t inner)
{
	Shape shape = val(g, x)->shape;
	int64_t outer = shape.dim[3] / inner / s->each, rows = shape.dim[2];
	x = put_reshape(
	    g, x, shape_of(6, (int64_t[]){shape.dim[0], s->merged, rows, outer, s->each, inner}));
	x = move_axis(g, x, 4, 2);
	x = put_reshape(
	    g, x, shape_of(4, (int64_t[]){shape.dim[0], s->merged * s->each, rows, outer * inner}));
	return first_of(g, x, 1, s->all);
}

// Returns the kernel [1, G, taps C, O] of merged groups: their blocks are on the diagonal.
static Ref merge_kernel(Graph *g, Ref x, const Groups *s)
{
	int64_t n = s->each, taps = s->taps, channels = s->channels, outputs = s->outputs;
	x = put_reshape(g, x, shape_of(4, (int64_t[]){s->all, taps, channels, outputs}));
	x = put_extended(g, x, 0, s->merged * n);
	x = put_reshape(g, x, shape_of(6, (int64_t[]){s->merged, n, 1, taps, channels, outputs}));
	x = put_extended(g, x, 2, n + 1);
	x = put_reshape(g, x,
	                shape_of(5, (int64_t[]){s->merged, n * (n + 1), taps, channels, outputs}));
	x = put_reshape(g, first_of(g, x, 1, n * n),
	                shape_of(6, (int64_t[]){s->merged, n, n, taps, channels, outputs}));
	x = put_permute(g, x, (int64_t[RANK]){0, 3, 1, 4, 2, 5});
	return put_reshape(
	    g, x, shape_of(4, (int64_t[]){1, s->merged, taps * n * channels, n * outputs}));
}

// Returns the blocks on the diagonal of [merged, each, each, O, taps, C] as a kernel.
static Ref part_kernel(Graph *g, Ref x, const Groups *s)
{
	int64_t n = s->each, taps = s->taps, channels = s->channels, outputs = s->outputs;
	int64_t start[RANK] = {0}, step[RANK] = {1, n + 1, 1, 1, 1};
	x = put_reshape(g, x, shape_of(5, (int64_t[]){s->merged, n * n, outputs, taps, channels}));
	x = put_slice(g, x, start, (int64_t[RANK]){s->merged, n, outputs, taps, channels}, step);
	x = put_reshape(g, x, shape_of(3, (int64_t[]){s->merged * n, outputs, taps * channels}));
	x = swap_last(g, first_of(g, x, 0, s->all));
	return put_reshape(g, x, shape_of(4, (int64_t[]){1, s->all, taps * channels, outputs}));
}

// Returns the gradient of a kernel. Windows are on the side where they are packed once, or matrix
// registers load them (see transpose_dot.c).
static Ref kernel_gradient(Merge *m, Graph *g, const Groups *s, Ref gradient)
{
	int64_t n = s->each, taps = s->taps, channels = s->channels, outputs = s->outputs;
	Ref x = merged_windows(m, g, s), y = merge_columns(g, gradient, s, outputs);
	Shape shape = val(g, x)->shape;
	shape.dim[2] *= shape.dim[0];
	shape.dim[0] = 1;
	x = put_reshape(g, move_axis(g, x, 0, 1), shape);
	if (m->registers) {
		x = put2(g, O_dot, swap_last(g, y), x);
		x = put_reshape(g, x,
		                shape_of(6, (int64_t[]){s->merged, n, outputs, taps, n, channels}));
		return part_kernel(g, move_axis(g, x, 4, 2), s);
	}
	x = put2(g, O_dot, swap_last(g, x), y);
	x = put_reshape(g, x, shape_of(6, (int64_t[]){s->merged, taps, n, channels, n, outputs}));
	return part_kernel(g, put_permute(g, x, (int64_t[RANK]){0, 2, 4, 5, 1, 3}), s);
}

static Ref put_merged(void *context, Graph *to, const Val *v, const Ref *in)
{
	Merge *m = context;
	Ref r = ref_of(m->from, v), x;
	const Groups *s = &m->of[r];
	switch (m->role[r]) {
	case R_forward:
		x = put2(to, O_dot, merged_windows(m, to, s), merge_kernel(to, in[1], s));
		return part_columns(to, x, s, s->outputs);
	case R_kernel:
		return kernel_gradient(m, to, s, in[1]);
	case R_windows:
		x = merge_kernel(to, m->now[unswapped(m->from, v->in[1])], s);
		x = put2(to, O_dot, merge_columns(to, in[0], s, s->outputs), swap_last(to, x));
		return part_columns(to, x, s, s->channels);
	default:
		return put_as(to, v, in);
	}
}

const Graph *groups_pass(Arena *arena, const Graph *from, const Machine *machine)
{
	bool registers = from->products == E_bf16 && has_thread_matrix(machine);
	Arena *scratch = arena_within(arena);
	Merge m = {from,
	           machine,
	           registers,
	           NEWS(scratch, Ref, from->nval),
	           NEWS(scratch, Groups, from->nval),
	           NEWS(scratch, Role, from->nval)};
	bool any = false;
	for (Ref r = 1; r < (Ref)from->nval; r++) {
		find_role(&m, r);
		any |= m.role[r] != R_none;
	}
	const Graph *merged = from;
	if (any) {
		Graph *to = graph_like(arena, from);
		to->plain = DECOMPOSED_ALL;
		copy_graph(to, from, m.now, put_merged, &m);
		merged = graph_live(arena, to);
	}
	arena_free(scratch);
	return merged;
}
