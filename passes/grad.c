// grad.c: reverse-mode differentiation: Graph -> Graph that also has an out "grad:NAME" for each
// wanted slot. Takes an out "loss" and the gradients of the book. Gives the same outs and stores,
// and the gradients. Keeps: what is not between a wanted slot and the loss is never differentiated.
#include "passes.h"
#include <string.h>

typedef struct Sweep {
	Graph *g;
	bool *needs;   // by Ref: a float that depends on a wanted slot
	Ref *gradient; // by Ref: so far
} Sweep;

static bool is_float(const Val *v)
{
	return elems[v->type].cls == 'f';
}

// The forward values in the new graph; attend, which is differentiated as what it means, is opened.
static Ref *put_forward(Arena *arena, Graph *g, const Graph *from)
{
	bool *live = graph_marks(arena, from);
	Ref *now = NEWS(arena, Ref, from->nval);
	for (int r = 1; r < from->nval; r++) {
		const Val *v = &from->val[r];
		if (!live[r])
			continue;
		Ref *in = NEWS(arena, Ref, v->nin);
		for (int k = 0; k < v->nin; k++)
			in[k] = now[v->in[k]];
		g->from = v->from;
		now[r] = v->op == O_attend ? book_open(g, v, in) : put_as(g, v, in);
	}
	for (int i = 0; i < from->outs.count; i++)
		add_out(g, from->outs.at[i].name, now[from->outs.at[i].val]);
	for (int i = 0; i < from->stores.count; i++)
		add_store(g, from->stores.at[i].slot, now[from->stores.at[i].val]);
	return now;
}

static Ref find_loss(const Graph *g)
{
	for (int i = 0; i < g->outs.count; i++)
		if (!strcmp(g->outs.at[i].name, "loss"))
			return g->outs.at[i].val;
	fail(g->name, "there is no loss to differentiate; give one with --loss");
}

static void mark_needs(Sweep *s, const bool *want)
{
	for (int r = 1; r < s->g->nval; r++) {
		const Val *v = &s->g->val[r];
		bool needs = v->op == O_slot && want[v->attr->i[0]];
		for (int k = 0; k < v->nin; k++)
			needs |= s->needs[v->in[k]];
		s->needs[r] = needs && is_float(v);
	}
}

// `r` with the type and shape of an operand: summed over what was stretched, stretched to what was
// folded.
static Ref fit(Graph *g, Ref r, const Val *to)
{
	Shape shape = to->shape;
	int64_t axes[RANK];
	int n = 0;
	r = put_cast(g, r, to->type);
	if (val(g, r)->shape.rank < shape.rank)
		r = put_rank(g, r, shape.rank);
	const Shape *own = &val(g, r)->shape;
	for (int a = 0; a < own->rank; a++)
		if (own->dim[a] > 1 && (shape.rank == 0 || shape.dim[a] == 1))
			axes[n++] = a;
	r = n ? put_fold(g, O_sum, r, n, axes) : r;
	return shape.rank == 0 ? put_reshape(g, r, shape) : put_expand(g, r, shape);
}

static void add_gradient(Sweep *s, Ref r, Ref dx)
{
	dx = fit(s->g, dx, &s->g->val[r]);
	s->gradient[r] = s->gradient[r] ? put2(s->g, O_add, s->gradient[r], dx) : dx;
}

static void sweep_concat(Sweep *s, const Val *v, Ref gradient)
{
	int axis = (int)v->attr->i[0];
	int64_t start[RANK] = {0};
	for (int k = 0; k < v->nin; k++) {
		Shape shape = s->g->val[v->in[k]].shape;
		if (s->needs[v->in[k]])
			add_gradient(s, v->in[k],
			             put_slice(s->g, gradient, start, shape.dim, NULL));
		start[axis] += shape.dim[axis];
	}
}

static void sweep_value(Sweep *s, Ref r)
{
	Val v = s->g->val[r];
	Ref dx[4] = {0};
	s->g->from = v.from;
	if (v.op == O_concat) {
		sweep_concat(s, &v, s->gradient[r]);
		return;
	}
	book_grad(s->g, &v, r, s->gradient[r], v.in, dx);
	for (int k = 0; k < v.nin; k++)
		if (dx[k] && s->needs[v.in[k]])
			add_gradient(s, v.in[k], dx[k]);
}

static Ref zeros(Graph *g, Elem type, Shape shape)
{
	return put_expand(g, put_rank(g, put_num(g, type, 0), shape.rank), shape);
}

Graph *grad_pass(Arena *arena, const Graph *from, const bool *want)
{
	Graph *g = graph_like(arena, from);
	put_forward(arena, g, from);
	Ref loss = find_loss(g);
	if (!is_float(val(g, loss)) || count_of(&val(g, loss)->shape) != 1)
		fail(g->name, "the loss is %s, wanted one float",
		     shape_text(arena, val(g, loss)->type, &val(g, loss)->shape));
	Ref *slot = NEWS(arena, Ref, g->slots.count);
	for (int i = 0; i < g->slots.count; i++)
		slot[i] = want[i] ? put_slot(g, i) : 0;
	Sweep s = {g, NEWS(arena, bool, g->nval), NEWS(arena, Ref, g->nval)};
	mark_needs(&s, want);
	s.gradient[loss] = fit(g, put_num(g, val(g, loss)->type, 1), val(g, loss));
	for (Ref r = loss; r > 0; r--)
		if (s.needs[r] && s.gradient[r] && prims[val(g, r)->op].cls != C_leaf)
			sweep_value(&s, r);
	g->from = 0;
	for (int i = 0; i < g->slots.count; i++) {
		if (!want[i])
			continue;
		const Slot *k = &g->slots.at[i];
		Ref gradient =
		    s.gradient[slot[i]] ? s.gradient[slot[i]] : zeros(g, k->type, k->shape);
		add_out(g, format(arena, "grad:%s", k->name), gradient);
	}
	return graph_live(arena, g);
}
