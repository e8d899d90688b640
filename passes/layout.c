// layout.c: computes values with their axes in the order in which products leave them.
// A product makes the channels of a convolution contiguous, and the file wants them before the
// spatial axes. So permutes move from where values are made to where they are read: op(permute(x))
// becomes permute(op(x)), over whole chains. What remains stands before a product, which reads its
// operands in any order, or meets the permute of the next convolution and vanishes. Values that no
// product reads, such as the gradient of a kernel, keep the order of the parameters that they meet.
#include "passes.h"
#include <string.h>

typedef struct Layout {
	const Graph *from;
	bool *plain; // by Ref of `from`: it reads a slot or constant of its own size
	bool *made;  // it is computed from a product
	bool *feeds; // a product is computed from it
	bool *meets; // maps combine it with plain values
} Layout;

// An operand that is a permute of another value; axis a of the operand is axis perm[a] of `from`.
typedef struct Permuted {
	Ref from;
	int64_t perm[RANK], back[RANK]; // back: the inverse
} Permuted;

// A reshape that moves axes of size 1 is one.
static bool moves_ones(const Graph *g, const Val *v, Permuted *p)
{
	const Shape *x = v->nin ? &val(g, v->in[0])->shape : NULL, *y = &v->shape;
	int from[2] = {0}; // the next axis of size 1, and the next other one
	if (v->op != O_reshape || x->rank != y->rank)
		return false;
	p->from = v->in[0];
	for (int a = 0; a < y->rank; a++) {
		int *at = &from[y->dim[a] != 1];
		while (*at < x->rank && (x->dim[*at] != 1) != (y->dim[a] != 1))
			++*at;
		if (*at == x->rank || x->dim[*at] != y->dim[a])
			return false;
		p->perm[a] = *at;
		p->back[(*at)++] = a;
	}
	return true;
}

static bool is_permuted(const Graph *g, Ref r, Permuted *p)
{
	const Val *v = val(g, r);
	if (moves_ones(g, v, p))
		return true;
	if (v->op != O_permute)
		return false;
	p->from = v->in[0];
	for (int a = 0; a < v->shape.rank; a++) {
		p->perm[a] = v->attr->i[a];
		p->back[p->perm[a]] = a;
	}
	return true;
}

static bool is_full(const Graph *g, const Val *v, int k)
{
	return count_of(&val(g, v->in[k])->shape) == count_of(&v->shape);
}

static Layout layout_start(Arena *arena, const Graph *g)
{
	Layout l = {g, NEWS(arena, bool, g->nval), NEWS(arena, bool, g->nval),
	            NEWS(arena, bool, g->nval), NEWS(arena, bool, g->nval)};
	for (Ref r = 1; r < (Ref)g->nval; r++) {
		const Val *v = val(g, r);
		l.plain[r] = v->op == O_slot || v->op == O_const;
		l.made[r] = v->op == O_dot;
		for (int k = 0; k < v->nin; k++)
			l.made[r] |= l.made[v->in[k]];
		if (prims[v->op].cls == C_map || v->op == O_reshape)
			for (int k = 0; k < v->nin; k++)
				l.plain[r] |= l.plain[v->in[k]] && is_full(g, v, k);
	}
	for (Ref r = (Ref)g->nval - 1; r > 0; r--) {
		const Val *v = val(g, r);
		bool map = prims[v->op].cls == C_map || v->op == O_reshape;
		for (int k = 0; k < v->nin; k++) {
			l.feeds[v->in[k]] |= l.feeds[r] || v->op == O_dot || v->op == O_loop;
			l.meets[v->in[k]] |= map && is_full(g, v, k) && (l.meets[r] || l.plain[r]);
		}
	}
	return l;
}

// ---- by class of primitive --------------------------------------------------------------

// True if the elements of windows, their last axes, come before others: as the lanes need them.
static bool has_taps_before(const Graph *g, const Permuted *p)
{
	const Val *v = val(g, p->from);
	return v->op == O_window && p->perm[v->shape.rank - 1] < val(g, v->in[0])->shape.rank;
}

// The largest operands that are permuted are so alike, and none is plain but what products make: a
// state that starts as a constant keeps no order of that.
static Ref sink_map(const Layout *l, Graph *g, const Val *v, const Ref *in)
{
	Permuted p = {0}, other;
	Ref moved[3];
	int64_t largest = 0;
	for (int k = 0; k < v->nin; k++)
		largest = MAX(largest, count_of(&val(g, in[k])->shape));
	for (int k = 0; k < v->nin; k++) {
		if (count_of(&val(g, in[k])->shape) < largest)
			continue;
		if (l->plain[v->in[k]] && !l->made[v->in[k]])
			return 0;
		if (!is_permuted(g, in[k], &other))
			continue;
		if (has_taps_before(g, &other))
			return 0;
		if (p.from && memcmp(p.perm, other.perm, sizeof *p.perm * (size_t)v->shape.rank))
			return 0;
		p = other;
	}
	if (!p.from)
		return 0;
	for (int k = 0; k < v->nin; k++)
		moved[k] = val(g, in[k])->shape.rank ? put_permute(g, in[k], p.back) : in[k];
	return put_permute(g, put_as(g, v, moved), p.perm);
}

static void sort_axes(int n, int64_t *axes)
{
	for (int i = 1; i < n; i++)
		for (int j = i; j > 0 && axes[j] < axes[j - 1]; j--) {
			int64_t a = axes[j];
			axes[j] = axes[j - 1];
			axes[j - 1] = a;
		}
}

static Ref sink_reduce(Graph *g, const Val *v, const Permuted *p)
{
	Attr attr = attr_copy(v);
	int axes = v->op == O_cumsum ? 1 : attr.n;
	for (int i = 0; i < axes; i++)
		attr.i[i] = p->perm[attr.i[i]];
	sort_axes(axes, attr.i);
	return put_permute(g, put(g, v->op, 1, &p->from, &attr), p->perm);
}

// Entries of the attribute that are by axis, `each` per axis, in the order of the other axes.
static Ref sink_by_axis(Graph *g, const Val *v, const Permuted *p, int each)
{
	Attr attr = attr_copy(v);
	for (int a = 0; a < v->shape.rank; a++)
		memcpy(attr.i + p->perm[a] * each, v->attr->i + a * each,
		       sizeof *attr.i * (size_t)each);
	return put_permute(g, put(g, v->op, 1, &p->from, &attr), p->perm);
}

// New axes for the elements of windows follow all others, in the order of the axes that they slide
// along.
static Ref sink_window(Graph *g, const Val *v, const Permuted *p)
{
	WindowAxes windows = window_axes(v->attr);
	WindowAxis axis[RANK];
	int rank = val(g, p->from)->shape.rank, n = 0;
	int64_t perm[RANK];
	memcpy(perm, p->perm, sizeof *perm * (size_t)rank);
	for (int a = 0; a < rank; a++)
		for (int k = 0; k < windows.n; k++)
			if (windows.at[k].axis == p->back[a]) {
				perm[rank + k] = rank + n;
				axis[n] = windows.at[k];
				axis[n++].axis = a;
			}
	return put_permute(g, put_window(g, p->from, n, axis, v->attr->x), perm);
}

// Operands that are permuted are so alike, and have most of the elements.
static Ref sink_concat(Graph *g, const Val *v, const Ref *in)
{
	Permuted p = {0}, other;
	Ref *from = NEWS(g->arena, Ref, v->nin);
	int64_t permuted = 0;
	for (int k = 0; k < v->nin; k++) {
		if (!is_permuted(g, in[k], &other))
			continue;
		if (p.from && memcmp(p.perm, other.perm, sizeof *p.perm * (size_t)v->shape.rank))
			return 0;
		p = other;
		permuted += count_of(&val(g, in[k])->shape);
	}
	if (2 * permuted <= count_of(&v->shape))
		return 0;
	for (int k = 0; k < v->nin; k++)
		from[k] = put_permute(g, in[k], p.back);
	return put_permute(g, put_concat(g, (int)p.perm[v->attr->i[0]], v->nin, from), p.perm);
}

// ---- reshapes ---------------------------------------------------------------------------

// True if the group's axes that are not 1 lie side by side in memory, in their order, or those that
// do not are a few elements: taps of windows, or the pixels that a channel holds, which are moved.
// Those of a parameter stay, unless they lie in their order: a product packs it in any. Sets *at to
// where the group begins, RANK: all are 1; and marks what is moved, which no longer lies between
// the axes of other groups.
static bool can_merge(const Shape *x, const Permuted *p, const AxisGroup *group, bool parameter,
                      bool *moved, int64_t *at)
{
	enum { FEW = 8 };
	int64_t last = -1, before = -1, count = 1;
	bool ordered = true, apart[RANK] = {false};
	*at = RANK;
	for (int a = group->x0; a < group->x1; a++) {
		if (x->dim[a] == 1)
			continue;
		apart[a] = last >= 0 && p->perm[a] < last;
		for (int64_t between = last + 1; last >= 0 && between < p->perm[a]; between++)
			apart[a] |= x->dim[p->back[between]] > 1 && !moved[p->back[between]];
		ordered &= p->perm[a] > before;
		before = p->perm[a];
		count *= apart[a] ? x->dim[a] : 1;
		*at = last < 0 ? p->perm[a] : *at;
		last = apart[a] ? last : p->perm[a];
	}
	bool fits = count <= FEW && (ordered || !parameter);
	for (int a = group->x0; a < group->x1; a++)
		moved[a] = fits && apart[a];
	return fits;
}

// Axes that the reshape merges are moved side by side.
static Ref sink_reshape(const Layout *l, Graph *g, const Val *v, Ref in, const Permuted *p)
{
	const Shape *x = &val(g, in)->shape, *y = &v->shape;
	AxisGroup group[AXIS_GROUPS];
	int64_t begin[AXIS_GROUPS], order[RANK], perm[RANK];
	const Val *before = val(l->from, v->in[0]);
	bool moved[RANK] = {false}, parameter = before->op == O_permute && l->plain[before->in[0]];
	int n = axis_groups(x, y, group), count = 0;
	bool fits = n >= 0;
	for (int i = 0; i < n; i++) // marks what no longer lies between axes of the others
		can_merge(x, p, &group[i], parameter, moved, &begin[i]);
	for (int i = 0; i < n; i++)
		fits &= can_merge(x, p, &group[i], parameter, moved, &begin[i]);
	if (!fits)
		return 0;
	Shape shape = {0};
	for (int64_t at = 0; at <= RANK; at++) // groups of axes of 1 come last
		for (int i = 0; i < n; i++) {
			if (begin[i] != at)
				continue;
			for (int a = group[i].x0; a < group[i].x1; a++)
				order[count++] = p->perm[a];
			for (int b = group[i].y0; b < group[i].y1; b++) {
				perm[b] = shape.rank;
				shape.dim[shape.rank++] = y->dim[b];
			}
		}
	Ref from = put_permute(g, p->from, order);
	return put_permute(g, put_reshape(g, from, shape), perm);
}

// ---- the pass ---------------------------------------------------------------------------

static Ref sink(void *layout, Graph *g, const Val *v, const Ref *in)
{
	const Layout *l = layout;
	Ref sunk = 0, r = prims[v->op].cls == C_reduce ? v->in[0] : ref_of(l->from, v);
	Permuted p;
	bool one = v->nin > 0 && is_permuted(g, in[0], &p);
	if (l->meets[r] && !l->feeds[r])
		return put_as(g, v, in);
	if (prims[v->op].cls == C_map)
		sunk = sink_map(l, g, v, in);
	else if (v->op == O_concat)
		sunk = sink_concat(g, v, in);
	else if (one && prims[v->op].cls == C_reduce)
		sunk = sink_reduce(g, v, &p);
	else if (one && v->op == O_reshape)
		sunk = sink_reshape(l, g, v, in[0], &p);
	else if (one && v->op == O_window)
		sunk = sink_window(g, v, &p);
	else if (one && (v->op == O_pad || v->op == O_slice || v->op == O_expand))
		sunk = sink_by_axis(g, v, &p, v->op == O_pad ? 2 : v->op == O_slice ? 3 : 1);
	return sunk ? sunk : put_as(g, v, in);
}

// True if a value other than a product reads a permute.
static bool has_chain(const Graph *g)
{
	for (Ref r = 1; r < (Ref)g->nval; r++) {
		const Val *v = val(g, r);
		for (int k = 0; k < v->nin; k++)
			if (val(g, v->in[k])->op == O_permute && v->op != O_dot)
				return true;
	}
	return false;
}

const Graph *layout_pass(Arena *arena, const Graph *from)
{
	if (!has_chain(from))
		return from;
	Graph *to = graph_like(arena, from);
	to->plain = DECOMPOSED_ALL;
	Layout layout = layout_start(arena, from);
	copy_graph(to, from, NULL, sink, &layout);
	return graph_live(arena, to);
}
