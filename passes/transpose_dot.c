// transpose_dot.c: swaps dot operands to drop transposes.
// In a graph without composites, permute(reshape(dot(a, b))) that puts an axis of a last becomes
// permute(reshape(dot(b', a'))), where ' exchanges the last two axes: often nothing is left to
// permute. Gradients of weights that the file holds transposed have this form.
#include "passes.h"

typedef struct Turn {
	const Graph *from;
	Graph *to;
	const int *uses;
	const Ref *now; // by Ref of `from`
} Turn;

// Splits the axes of `s` after `end` so that those from the result on have `count` elements; -1 if
// there is no such split.
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

// What lies between a permute and the dot below it: maps with numbers, and at most one reshape.
typedef struct Path {
	Ref dot;
	Shape shape;     // of the dot's result as it is permuted
	int nmap, at[4]; // maps, the last first, and which operand comes from the dot
	Ref map[4];
} Path;

static int only_operand(const Graph *g, const Val *v)
{
	int found = -1;
	for (int k = 0; k < v->nin; k++)
		if (val(g, v->in[k])->shape.rank > 0)
			found = found < 0 ? k : -2;
	return prims[v->op].cls == C_map ? found : -2;
}

static bool find_path(const Turn *t, Ref r, Path *path)
{
	const Val *v = val(t->from, r);
	*path = (Path){.shape = v->shape};
	for (bool reshaped = false; t->uses[r] == 1; v = val(t->from, r)) {
		int operand = only_operand(t->from, v);
		if (v->op == O_dot) {
			path->dot = r;
			return true;
		}
		if (v->op == O_reshape && !reshaped) {
			reshaped = true;
			operand = 0;
		} else if (operand >= 0 && path->nmap < COUNT(path->map)) {
			path->at[path->nmap] = operand;
			path->map[path->nmap++] = r;
		} else {
			return false;
		}
		r = v->in[operand];
	}
	return false;
}

static Ref put_maps(const Turn *t, const Path *path, Ref x)
{
	for (int i = path->nmap - 1; i >= 0; i--) {
		const Val *v = val(t->from, path->map[i]);
		Ref in[3];
		for (int k = 0; k < v->nin; k++)
			in[k] = k == path->at[i] ? x : t->now[v->in[k]];
		x = put_as(t->to, v, in);
	}
	return x;
}

// Returns the permute v of a dot's result by the swapped dot; 0 if that is no better.
static Ref turn(const Turn *t, const Val *v)
{
	Path path;
	if (!find_path(t, v->in[0], &path))
		return 0;
	const Val *dot = val(t->from, path.dot);
	const Shape *whole = &path.shape;
	int rank = whole->rank, rows = dot->shape.rank - 2;
	int right = split_axis(whole, rank, dot->shape.dim[rows + 1]);
	int left = right < 0 ? -1 : split_axis(whole, right, dot->shape.dim[rows]);
	int last = last_wide(&v->shape, 0, rank);
	if (left < 0 || last < 0 || v->attr->i[last] != last_wide(whole, left, right))
		return 0;
	Shape shape = *whole;
	int64_t perm[RANK];
	for (int a = left; a < rank; a++)
		shape.dim[a < right ? a + rank - right : a - (right - left)] = whole->dim[a];
	for (int k = 0; k < rank; k++) {
		int a = (int)v->attr->i[k];
		perm[k] = a < left ? a : a < right ? a + rank - right : a - (right - left);
	}
	Graph *g = t->to;
	Ref other =
	    put2(g, O_dot, swap_last(g, t->now[dot->in[1]]), swap_last(g, t->now[dot->in[0]]));
	return put_permute(g, put_maps(t, &path, put_reshape(g, other, shape)), perm);
}

static Ref put_turned(void *context, Graph *to, const Val *v, const Ref *in)
{
	Ref other = v->op == O_permute ? turn(context, v) : 0;
	return other ? other : put_as(to, v, in);
}

Graph *transpose_dot_pass(Arena *arena, const Graph *from)
{
	Graph *to = graph_like(arena, from);
	Ref *now = NEWS(arena, Ref, from->nval);
	Turn t = {from, to, graph_uses(arena, from), now};
	to->plain = DECOMPOSED_ALL;
	copy_values(to, from, now, put_turned, &t);
	copy_ends(to, from, now);
	return to;
}
