// coalesce.c: merges adjacent axes into one loop.
// Visits every index of an expression once, symbolically. Axes a and a + 1 are merged if in each
// index the coefficient of a is that of a + 1 times its size. Values to visit wait in a list,
// because an expression may be deeper than the stack.
#include "index.h"
#include <string.h>

typedef struct Survey {
	Vars *vars;
	const Graph *graph;
	const Inside *inside;
	const Shape *shape;
	uint32_t reduce;
	int var[RANK];       // by axis; -1: not in the mask
	bool separate[RANK]; // by axis: it cannot be merged with the next
	int next[RANK];      // next axis in the mask; -1: none
	Index space[RANK];   // the index of the roots
	Table *visited;
	VEC(struct Pending {
		const Val *v;
		const Index *idx;
	})
	pending;
} Survey;

static int64_t coefficient(const Index *x, int var)
{
	for (int t = 0; t < x->n; t++)
		if (x->term[t].var == var)
			return x->term[t].coef;
	return 0;
}

static void note_index(Survey *w, const Index *x)
{
	for (int a = 0; a < w->shape->rank; a++) {
		int b = w->next[a];
		if (b >= 0 &&
		    coefficient(x, w->var[a]) != coefficient(x, w->var[b]) * w->shape->dim[b])
			w->separate[a] = true;
	}
	for (int t = 0; t < x->n; t++) {
		const Var *v = w->vars->list.at[x->term[t].var];
		if (v->kind != V_given)
			note_index(w, &v->of);
	}
}

static void note_memory(Survey *w, const Val *v, const Index *idx)
{
	Shape rows = memory_shape(v);
	Index linear = ravel(w->vars, &rows, idx);
	note_index(w, &linear);
}

// Notes the index of an element that is read from memory; one that is computed is pending.
static void visit(Survey *w, Ref r, const Index *at)
{
	const Val *v = val(w->graph, r);
	Index idx[RANK];
	index_within(&v->shape, at, idx);
	int64_t key[1 + RANK * INDEX_WORDS] = {r};
	int n = 1;
	for (int a = 0; a < v->shape.rank; a++)
		n += index_words(&idx[a], key + n);
	uint64_t *visits = table_cell(w->visited, key, sizeof *key * (size_t)n);
	if ((*visits)++)
		return;
	if (w->inside->holds(w->inside->context, r)) {
		size_t size = sizeof *idx * (size_t)v->shape.rank;
		PUSH(w->vars->arena, w->pending,
		     ((struct Pending){v, take_copy(w->vars->arena, idx, size)}));
		return;
	}
	note_memory(w, v, idx);
}

static void visit_move(Survey *w, const Val *v, const Index *idx)
{
	for (int k = 0; k < v->nin; k++) {
		const Shape *from = &val(w->graph, v->in[k])->shape;
		Index in[RANK], zero[RANK];
		if (v->op == O_concat && !concat_reaches(w->vars, w->graph, v, k, idx))
			continue;
		int n = operand_index(w->vars, w->graph, v, k, idx, in, zero);
		// An operand with a fill may be read at any element.
		for (int a = 0; has_fill(v->op) && a < from->rank; a++)
			if (!index_fits(w->vars, &in[a], from->dim[a])) {
				note_index(w, &in[a]);
				in[a] = some_index(w->vars, from->dim[a]);
			}
		for (int i = 0; i < n; i++)
			note_index(w, &zero[i]);
		visit(w, v->in[k], in);
	}
}

static void visit_dot(Survey *w, const Val *v, const Index *idx)
{
	int last = v->shape.rank - 1;
	Index k = some_index(w->vars, last_dim(&val(w->graph, v->in[0])->shape)), in[RANK];
	memcpy(in, idx, sizeof *in * (size_t)(last + 1));
	in[last] = k;
	visit(w, v->in[0], in);
	in[last] = idx[last];
	in[last - 1] = k;
	visit(w, v->in[1], in);
}

static void visit_gather(Survey *w, const Val *v, const Index *idx)
{
	const Shape *from = &val(w->graph, v->in[0])->shape;
	int axis = (int)v->attr->i[0], more = val(w->graph, v->in[1])->shape.rank - 1;
	Index in[RANK];
	visit(w, v->in[1], idx + axis);
	for (int a = 0; a < from->rank; a++)
		in[a] =
		    a == axis ? some_index(w->vars, from->dim[a]) : idx[a < axis ? a : a + more];
	visit(w, v->in[0], in);
}

// A reduction of the full space is along the axes of the space.
static void visit_reduce(Survey *w, const Val *v, const Index *idx)
{
	const Shape *from = &val(w->graph, v->in[0])->shape;
	uint32_t mask = axes_mask(v);
	bool own = same_shape(from, w->shape) && same_axes(from, mask, w->reduce);
	Index in[RANK];
	for (int a = 0; a < from->rank; a++)
		in[a] = !(mask >> a & 1) ? idx[a]
		        : own            ? w->space[a]
		                         : some_index(w->vars, from->dim[a]);
	visit(w, v->in[0], in);
}

// Visits the operands of a value that is computed. Indices along which it reads more than one
// element, or an element that the data decide, are variables.
static void visit_inside(Survey *w, const Val *v, const Index *idx)
{
	Index linear;
	switch (prims[v->op].cls) {
	case C_leaf:
		if (v->op == O_iota)
			note_index(w, &idx[v->attr->i[0]]);
		if (v->op != O_rand)
			break;
		linear = ravel(w->vars, &v->shape, idx);
		note_index(w, &linear);
		visit(w, v->in[0], NULL);
		visit(w, v->in[1], NULL);
		break;
	case C_map:
		for (int i = 0; i < v->nin; i++)
			visit(w, v->in[i], idx);
		break;
	case C_reduce:
		visit_reduce(w, v, idx);
		break;
	case C_move:
		visit_move(w, v, idx);
		break;
	case C_dot:
		visit_dot(w, v, idx);
		break;
	default:
		if (v->op != O_gather)
			never("a value inside an expression");
		visit_gather(w, v, idx);
	}
}

// An axis outside of the mask, of a size other than 1, separates its neighbors.
static bool adjacent(const Shape *shape, int a, int b)
{
	for (int c = a + 1; c < b; c++)
		if (shape->dim[c] != 1)
			return false;
	return true;
}

uint32_t coalesce(Vars *vars, const Graph *g, const Inside *inside, int nroot, const Ref *roots,
                  const Shape *shape, uint32_t mask, uint32_t reduce, const Index *idx)
{
	Survey w = {.vars = vars,
	            .graph = g,
	            .inside = inside,
	            .shape = shape,
	            .reduce = reduce,
	            .visited = table_new(vars->arena)};
	for (int a = 0, before = -1; a < shape->rank; a++) {
		w.var[a] = w.next[a] = -1;
		w.space[a] = idx ? idx[a] : constant_index(0);
		if (!(mask >> a & 1) || shape->dim[a] == 1)
			continue;
		w.space[a] = some_index(vars, shape->dim[a]);
		w.var[a] = w.space[a].term[0].var;
		if (before >= 0)
			w.next[before] = a;
		before = a;
	}
	for (int k = 0; k < nroot; k++) {
		const Shape *own = &val(g, roots[k])->shape;
		Index in[RANK];
		memcpy(in, w.space, sizeof in);
		if (own->rank != shape->rank || count_of(own) == count_of(shape)) {
			Index linear = ravel(vars, shape, w.space);
			unravel(vars, &linear, own, in);
		}
		visit(&w, roots[k], in);
		if (val(g, roots[k])->pitch)
			note_memory(&w, val(g, roots[k]), in);
		while (w.pending.count) {
			struct Pending next = w.pending.at[--w.pending.count];
			visit_inside(&w, next.v, next.idx);
		}
	}
	uint32_t merged = 0;
	for (int a = 0; a < shape->rank; a++) {
		int b = w.next[a];
		if (b >= 0 && !w.separate[a] && adjacent(shape, a, b) &&
		    (reduce >> a & 1) == (reduce >> b & 1))
			merged |= 1u << b;
	}
	return merged;
}

Groups groups_of(const Shape *shape, uint32_t mask, uint32_t reduce, uint32_t merged)
{
	Groups groups = {.n = 0};
	for (int a = 0; a < shape->rank; a++) {
		if (!(mask >> a & 1) || shape->dim[a] == 1)
			continue;
		if (groups.n && merged >> a & 1) {
			groups.last[groups.n - 1] = a;
			groups.size[groups.n - 1] *= shape->dim[a];
			continue;
		}
		int k = groups.n++;
		groups.first[k] = groups.last[k] = a;
		groups.size[k] = shape->dim[a];
		groups.reduced[k] = reduce >> a & 1;
	}
	return groups;
}

Groups kern_groups(const Kern *kern)
{
	return groups_of(&kern->space, (1u << kern->space.rank) - 1, kern->reduce,
	                 (uint32_t)kern->sched->merged);
}

void group_index(Vars *w, const Groups *groups, int k, const Shape *shape, const Index *position,
                 Index *idx)
{
	int first = groups->first[k];
	Shape own = shape_of(groups->last[k] - first + 1, shape->dim + first);
	unravel(w, position, &own, idx + first);
}

void row_index(Vars *w, const Groups *groups, uint32_t which, const Shape *shape, const Index *row,
               Index *idx)
{
	Index left = *row;
	for (int k = groups->n - 1; k >= 0; k--) {
		if (!(which >> k & 1))
			continue;
		Index quotient, rest;
		split_index(w, &left, groups->size[k], &quotient, &rest);
		group_index(w, groups, k, shape, &rest, idx);
		left = quotient;
	}
}
