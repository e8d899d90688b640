// transpose_dot.c: swaps dot operands to drop transposes.
// permute(reshape(dot(a, b))) that moves an axis of a to the end becomes permute(reshape(dot(b',
// a'))), where ' swaps the last two axes: often nothing remains to permute. Gradients of transposed
// weights have this form. A product that is read only through permutes of its slices, as the gates
// of an LSTM are, is permuted first, and then sliced. Overlapping windows stay on the left, where
// they are packed once for all taps. In the gradient of a kernel their transpose is on the left,
// and is swapped if matrix registers load windows, as those of AMX do: they need contiguous steps
// of k in rows of the left operand. Gradients of weights are not swapped where slices of the
// product take less time.
#include "index.h"
#include "passes.h"
#include <stdlib.h>
#include <string.h>

// ---- permutes of slices ---------------------------------------------------------------

typedef struct Lift {
	const Graph *from;
	const Ref *now; // by Ref of `from`
	int *permuted;  // by Ref: slices that one permute alone reads, the same for all
	const int *uses;
} Lift;

// Returns the value of which v permutes a slice that nothing else reads; 0: none.
static Ref sliced(const Lift *l, const Val *v)
{
	Ref slice = v->op == O_permute ? v->in[0] : 0;
	const Val *u = val(l->from, slice);
	return slice && u->op == O_slice && l->uses[slice] == 1 ? u->in[0] : 0;
}

static Ref put_lifted(void *context, Graph *to, const Val *v, const Ref *in)
{
	const Lift *l = context;
	Ref x = sliced(l, v);
	if (!x || l->permuted[x] != l->uses[x] || val(l->from, unreshaped(l->from, x))->op != O_dot)
		return put_as(to, v, in);
	const SliceAxis *slice = slice_axes(val(l->from, v->in[0])->attr);
	int64_t start[RANK], count[RANK], step[RANK];
	for (int a = 0; a < v->shape.rank; a++) {
		start[a] = slice[v->attr->i[a]].start;
		count[a] = slice[v->attr->i[a]].count;
		step[a] = slice[v->attr->i[a]].step;
	}
	return put_slice(to, put_permute(to, l->now[x], v->attr->i), start, count, step);
}

static Graph *lift_permutes(Arena *arena, const Graph *from)
{
	Graph *to = graph_like(arena, from);
	Ref *now = NEWS(arena, Ref, from->nval), *first = NEWS(arena, Ref, from->nval);
	Lift l = {from, now, NEWS(arena, int, from->nval), graph_uses(arena, from)};
	for (Ref r = 1; r < (Ref)from->nval; r++) {
		const Val *v = val(from, r);
		Ref x = l.uses[r] ? sliced(&l, v) : 0;
		if (!x)
			continue;
		first[x] = first[x] ? first[x] : r;
		const int64_t *perm = val(from, first[x])->attr->i;
		l.permuted[x] += !memcmp(perm, v->attr->i, sizeof *perm * (size_t)v->shape.rank);
	}
	to->plain = DECOMPOSED_ALL;
	copy_graph(to, from, now, put_lifted, &l);
	return to;
}

// ---- products -------------------------------------------------------------------------

typedef struct Swap {
	const Graph *from;
	const int *uses;
	const Ref *now; // by Ref of `from`
	const Machine *machine;
	bool pairs; // matrix registers load the right operand as pairs of bf16 along k, as it lies
} Swap;

// Returns the axis from which the axes of `s` up to `end` have `count` elements; -1: none.
static int split_axis(const Shape *s, int end, int64_t count)
{
	int64_t product = 1;
	while (end > 0 && product < count)
		product *= s->dim[--end];
	return product == count ? end : -1;
}

static int last_wide(const Shape *s, int begin, int end)
{
	while (--end >= begin)
		if (s->dim[end] > 1)
			return end;
	return -1;
}

// The values between a permute and the dot: maps with scalars, and at most one reshape.
typedef struct Path {
	Ref dot;
	Shape shape;     // of the operand of the permute
	int nmap, at[4]; // maps, last first, and which operand comes from the dot
	Ref map[4];
} Path;

static bool find_path(const Swap *t, Ref r, Path *path)
{
	const Val *v = val(t->from, r);
	*path = (Path){.shape = v->shape};
	for (bool reshaped = false; t->uses[r] == 1; v = val(t->from, r)) {
		int operand = 0, wide = 0; // the last operand but scalars; how many there are
		if (v->op == O_dot) {
			path->dot = r;
			return true;
		}
		for (int k = 0; k < v->nin; k++)
			if (val(t->from, v->in[k])->shape.rank > 0) {
				operand = k;
				wide++;
			}
		if (v->op == O_reshape && !reshaped) {
			reshaped = true;
		} else if (prims[v->op].cls == C_map && wide == 1 &&
		           path->nmap < COUNT(path->map)) {
			path->at[path->nmap] = operand;
			path->map[path->nmap++] = r;
		} else {
			return false;
		}
		r = v->in[operand];
	}
	return false;
}

// Returns the windows, which overlap, that the left operand is, or its transpose; NULL: it is not.
static const Val *find_windows(const Swap *t, const Val *dot)
{
	const Val *window = windows_under(t->from, dot->in[0]);
	return window && windows_overlap(window) ? window : NULL;
}

// True if matrix registers load steps of k from the transpose of the windows: channels, or lines of
// an image (line_windows.c).
static bool loads_windows(const Swap *t, const Val *window)
{
	const Shape *x = &val(t->from, window->in[0])->shape;
	WindowAxes w = window_axes(window->attr);
	bool image = w.at[w.n - 1].axis == x->rank - 1;
	return t->pairs && (image || last_dim(x) % t->machine->pairs == 0);
}

static bool is_transpose(const Swap *t, Ref r)
{
	const Val *v = val(t->from, r);
	return v->op == O_permute && v->attr->i[v->shape.rank - 1] == v->shape.rank - 2;
}

bool may_be_squares(const Val *window, int64_t positions)
{
	enum { LEAST = 256 };
	WindowAxes w = window_axes(window->attr);
	bool are = w.n == 2 && positions >= LEAST;
	for (int k = 0; are && k < w.n; k++)
		are =
		    w.at[k].size == TAP_EDGE && w.at[k].stride == 1 && llabs(w.at[k].dilation) == 1;
	return are;
}

// True if v is the product of a gradient of a weight, in f32: its left operand is transposed.
static bool is_gradient(const Swap *t, const Val *v)
{
	return v->op == O_dot && is_transpose(t, v->in[0]) &&
	       val(t->from, v->in[0])->type == E_f32 && val(t->from, v->in[1])->type == E_f32;
}

typedef struct Size { // of a product: m x k times k x n elements
	int64_t m, n, k;
} Size;

static Size size_of(const Swap *t, const Val *dot, bool transposed)
{
	int last = dot->shape.rank - 1;
	int64_t rows = dot->shape.dim[last - 1], columns = dot->shape.dim[last];
	int64_t k = last_dim(&val(t->from, dot->in[0])->shape);
	return transposed ? (Size){columns, rows, k} : (Size){rows, columns, k};
}

static bool is_sliced(const Swap *t, Size z)
{
	return multiplies_slices(t->from, t->machine, z.m, z.n, z.k, false);
}

// True if a gradient of a weight takes less time, by slices, than its transpose: with few columns,
// packing rows takes long. Of a short sum, transposing the result would take as long.
static bool is_better(const Swap *t, Size z)
{
	enum { FEW = 256, LONG = 1024 };
	return is_sliced(t, z) &&
	       (!is_sliced(t, (Size){z.n, z.m, z.k}) || (z.m < z.n && z.m <= FEW && z.k >= LONG));
}

// Returns how many elements at the end of a permute are contiguous in what it permutes.
static int64_t contiguous_elements(const Shape *from, const int64_t *perm)
{
	int64_t stride[RANK], count = 1, run = 1;
	for (int a = from->rank - 1; a >= 0; count *= from->dim[a--])
		stride[a] = count;
	for (int k = from->rank - 1; k >= 0 && (from->dim[perm[k]] == 1 || stride[perm[k]] == run);
	     k--)
		run *= from->dim[perm[k]];
	return run;
}

// Returns the permute v of a dot as a permute of the swapped dot; 0 if that is no better.
static Ref swap_dot(const Swap *t, Graph *g, const Val *v)
{
	Path path;
	if (!find_path(t, v->in[0], &path))
		return 0;
	const Val *dot = val(t->from, path.dot);
	const Shape *full = &path.shape;
	int rank = full->rank, rows = dot->shape.rank - 2;
	int right = split_axis(full, rank, dot->shape.dim[rows + 1]);
	int left = right < 0 ? -1 : split_axis(full, right, dot->shape.dim[rows]);
	int last = last_wide(&v->shape, 0, rank);
	if (left < 0 || last < 0)
		return 0;
	int64_t axis = v->attr->i[last];
	const Val *windows = find_windows(t, dot);
	bool weight = windows && is_transpose(t, dot->in[0]); // its windows are better right
	bool slices = is_gradient(t, dot), loads = weight && loads_windows(t, windows);
	if (windows && slices && is_sliced(t, size_of(t, dot, true)))
		loads |= !may_be_squares(windows, size_of(t, dot, true).k);
	if (windows ? !loads || axis < left || axis >= right
	            : axis != last_wide(full, left, right) ||
	                  (slices && is_better(t, size_of(t, dot, false))))
		return 0;
	Shape shape = *full;
	int64_t perm[RANK];
	for (int a = left; a < rank; a++)
		shape.dim[a < right ? a + rank - right : a - (right - left)] = full->dim[a];
	for (int k = 0; k < rank; k++) {
		int a = (int)v->attr->i[k];
		perm[k] = a < left ? a : a < right ? a + rank - right : a - (right - left);
	}
	if (!weight && contiguous_elements(&shape, perm) < MIN(SQUARE / 2, dot->shape.dim[rows]))
		return 0;
	Ref x = put2(g, O_dot, swap_last(g, t->now[dot->in[1]]), swap_last(g, t->now[dot->in[0]]));
	x = put_reshape(g, x, shape);
	for (int i = path.nmap - 1; i >= 0; i--) {
		const Val *map = val(t->from, path.map[i]);
		Ref in[3];
		for (int k = 0; k < map->nin; k++)
			in[k] = k == path.at[i] ? x : t->now[map->in[k]];
		x = put_as(g, map, in);
	}
	return put_permute(g, x, perm);
}

static Ref put_swapped(void *context, Graph *to, const Val *v, const Ref *in)
{
	Ref other = v->op == O_permute ? swap_dot(context, to, v) : 0;
	return other ? other : put_as(to, v, in);
}

Graph *transpose_dot_pass(Arena *arena, const Graph *before, const Machine *machine)
{
	const Graph *from = lift_permutes(arena, before);
	Graph *to = graph_like(arena, from);
	Ref *now = NEWS(arena, Ref, from->nval);
	to->plain = DECOMPOSED_ALL;
	bool pairs = before->products == E_bf16 && has_thread_matrix(machine);
	Swap t = {from, graph_uses(arena, from), now, machine, pairs};
	copy_graph(to, from, now, put_swapped, &t);
	return to;
}
