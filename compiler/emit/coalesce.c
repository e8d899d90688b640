// coalesce.c: merges adjacent axes into one loop.
// Takes gen.h. Every index that an expression forms is looked at once, symbolically: axes a and a
// + 1 are one where each has a's coefficient equal to size times that of a + 1.
#include "gen.h"
#include <string.h>

typedef struct Survey {
	const Shape *shape;
	uint32_t reduce;
	int var[RANK];     // by axis; -1: not asked about
	bool apart[RANK];  // axis a and the next asked about
	int next[RANK];    // the next asked about, -1: none
	Index space[RANK]; // the index that the walk began with
	Table *seen;
} Survey;

static int64_t coefficient(const Index *x, int var)
{
	for (int t = 0; t < x->n; t++)
		if (x->term[t].var == var)
			return x->term[t].coef;
	return 0;
}

void note_index(Gen *g, const Index *x)
{
	Survey *w = g->walk;
	for (int a = 0; a < w->shape->rank; a++) {
		int b = w->next[a];
		if (b >= 0 &&
		    coefficient(x, w->var[a]) != coefficient(x, w->var[b]) * w->shape->dim[b])
			w->apart[a] = true;
	}
	for (int t = 0; t < x->n; t++) {
		const Var *v = g->vars.at[x->term[t].var];
		if (v->kind != V_given)
			note_index(g, &v->of);
	}
}

static bool first_visit(Survey *w, Ref r, int rank, const Index *idx)
{
	int64_t key[1 + RANK * INDEX_WORDS] = {r};
	int n = 1;
	for (int a = 0; a < rank; a++)
		n += index_words(&idx[a], key + n);
	uint64_t *cell = table_cell(w->seen, key, sizeof *key * (size_t)n);
	return !(*cell)++;
}

static void look(Gen *g, Ref r, const Index *idx);

static Index some_index(Gen *g, int64_t extent)
{
	return uniform_index(g, NULL, extent, 1);
}

static void look_move(Gen *g, const Val *v, const Index *idx)
{
	for (int k = 0; k < v->nin; k++) {
		Index in[RANK];
		Value inside = NULL;
		if (v->op == O_concat && !concat_reaches(g, v, k, idx))
			continue;
		operand_index(g, v, k, idx, in, &inside);
		look(g, v->in[k], in);
	}
}

static void look_gather(Gen *g, const Val *v, const Index *idx)
{
	int axis = (int)v->attr->i[0], rank = val(g->graph, v->in[1])->shape.rank;
	const Shape *from = &val(g->graph, v->in[0])->shape;
	Index in[RANK];
	look(g, v->in[1], idx + axis);
	for (int a = 0; a < from->rank; a++)
		in[a] = a == axis ? some_index(g, from->dim[a]) : idx[a < axis ? a : a - 1 + rank];
	look(g, v->in[0], in);
}

// The folded axes of a fold of the whole space are those of the space.
static void look_reduction(Gen *g, const Val *v, const Index *idx)
{
	const Shape *from = &val(g->graph, v->in[0])->shape;
	Survey *w = g->walk;
	uint32_t mask = reduced_mask(v);
	bool own = same_shape(from, w->shape) && same_axes(from, mask, w->reduce);
	Index in[RANK];
	for (int a = 0; a < from->rank; a++)
		in[a] = !(mask >> a & 1) ? idx[a] : own ? w->space[a] : some_index(g, from->dim[a]);
	look(g, v->in[0], in);
}

static void look_dot(Gen *g, const Val *v, const Index *idx)
{
	int r = v->shape.rank;
	Index in[RANK], k = some_index(g, val(g->graph, v->in[0])->shape.dim[r - 1]);
	memcpy(in, idx, sizeof *in * (size_t)r);
	in[r - 1] = k;
	look(g, v->in[0], in);
	in[r - 1] = idx[r - 1];
	in[r - 2] = k;
	look(g, v->in[1], in);
}

static void look_leaf(Gen *g, const Val *v, const Index *idx)
{
	if (v->op == O_iota) {
		note_index(g, &idx[v->attr->i[0]]);
	} else if (v->op == O_rand) {
		Index linear = ravel(g, &v->shape, idx);
		note_index(g, &linear);
		look(g, v->in[0], NULL);
		look(g, v->in[1], NULL);
	}
}

static bool is_bound(Gen *g, Ref r)
{
	for (const Bound *b = g->bound; b; b = b->outer)
		if (b->r == r)
			return true;
	return false;
}

static void look_inside(Gen *g, const Val *v, const Index *idx)
{
	switch (prims[v->op].cls) {
	case C_leaf:
		look_leaf(g, v, idx);
		break;
	case C_map:
		for (int k = 0; k < v->nin; k++)
			look(g, v->in[k], idx);
		break;
	case C_reduce:
		look_reduction(g, v, idx);
		break;
	case C_move:
		look_move(g, v, idx);
		break;
	case C_dot:
		look_dot(g, v, idx);
		break;
	default:
		if (v->op != O_gather)
			never("a value inside an expression");
		look_gather(g, v, idx);
	}
}

static void look(Gen *g, Ref r, const Index *wanted)
{
	const Val *v = val(g->graph, r);
	Index idx[RANK];
	for (int a = 0; a < v->shape.rank; a++)
		idx[a] = v->shape.dim[a] <= 1 ? constant_index(0) : wanted[a];
	if (!first_visit(g->walk, r, v->shape.rank, idx))
		return;
	if (g->inside[r] && !is_bound(g, r)) {
		look_inside(g, v, idx);
		return;
	}
	Index linear = ravel(g, &v->shape, idx);
	note_index(g, &linear);
}

static void look_start(Gen *g, Survey *w, uint32_t mask, const Index *idx)
{
	int before = -1;
	for (int a = 0; a < w->shape->rank; a++) {
		w->var[a] = w->next[a] = -1;
		w->space[a] = idx ? idx[a] : constant_index(0);
		if (!(mask >> a & 1) || w->shape->dim[a] == 1)
			continue;
		w->space[a] = some_index(g, w->shape->dim[a]);
		w->var[a] = w->space[a].term[0].var;
		if (before >= 0)
			w->next[before] = a;
		before = a;
	}
}

// An axis that is not asked about, and not of 1, stands between its neighbours.
static bool adjacent(const Shape *shape, int a, int b)
{
	for (int c = a + 1; c < b; c++)
		if (shape->dim[c] != 1)
			return false;
	return true;
}

Groups join_axes(Gen *g, int nroot, const Ref *roots, const Shape *shape, uint32_t mask,
                 uint32_t reduce, const Index *idx)
{
	Survey w = {.shape = shape, .reduce = reduce, .seen = table_new(g->arena)},
	       *outer = g->walk;
	look_start(g, &w, mask, idx);
	g->walk = &w;
	for (int k = 0; k < nroot; k++) {
		const Shape *own = &val(g->graph, roots[k])->shape;
		Index in[RANK];
		memcpy(in, w.space, sizeof in);
		if (own->rank != shape->rank || count_of(own) == count_of(shape)) {
			Index linear = ravel(g, shape, w.space);
			unravel(g, &linear, own, in);
		}
		look(g, roots[k], in);
	}
	g->walk = outer;
	Groups groups = {.n = 0};
	for (int a = 0, before = -1; a < shape->rank; a++) {
		if (w.var[a] < 0)
			continue;
		bool reduced = reduce >> a & 1;
		if (before >= 0 && !w.apart[before] && adjacent(shape, before, a) &&
		    reduced == groups.reduced[groups.n - 1]) {
			groups.last[groups.n - 1] = a;
			groups.size[groups.n - 1] *= shape->dim[a];
		} else {
			int k = groups.n++;
			groups.first[k] = groups.last[k] = a;
			groups.size[k] = shape->dim[a];
			groups.reduced[k] = reduced;
		}
		before = a;
	}
	return groups;
}

void group_index(Gen *g, const Groups *groups, int k, const Shape *shape, const Index *position,
                 Index *idx)
{
	Index left = *position;
	for (int a = groups->last[k]; a >= groups->first[k]; a--) {
		if (a == groups->first[k]) {
			idx[a] = left;
			break;
		}
		Index quotient;
		split_index(g, &left, shape->dim[a], &quotient, &idx[a]);
		left = quotient;
	}
}
