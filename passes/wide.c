// wide.c: a graph computed in double.
// Takes a graph that computes in f32. Gives the same values in f64: inputs too, so that a batch in
// double is read as it is; other slots and constants keep their type and are widened where they
// are read, and what is stored to a slot is narrowed to it. Outs stay in f64. Keeps: random numbers
// are those of f32, bit for bit, and values of other types.
#include "passes.h"

static Elem widened(Elem e)
{
	return e == E_f32 ? E_f64 : e;
}

static Ref wide_loop(Graph *g, const Val *v, const Ref *in)
{
	Cycle c = loop_of(v);
	c.body = wide_pass(g->arena, c.body);
	return put_loop(g, &c, in);
}

static Ref wide_value(void *none, Graph *g, const Val *v, const Ref *in)
{
	(void)none;
	if (v->op == O_loop)
		return wide_loop(g, v, in);
	Ref r =
	    v->op == O_cast ? put_cast(g, in[0], widened((Elem)v->attr->i[0])) : put_as(g, v, in);
	return put_cast(g, r, widened(v->type));
}

Graph *wide_pass(Arena *arena, const Graph *from)
{
	Graph *to = graph_like(arena, from);
	Ref *now = NEWS(arena, Ref, from->nval);
	for (int s = 0; s < to->slots.count; s++)
		if (to->slots.at[s].kind == S_input)
			to->slots.at[s].type = widened(to->slots.at[s].type);
	copy_values(to, from, now, wide_value, NULL);
	for (int k = 0; k < from->outs.count; k++)
		add_out(to, from->outs.at[k].name, now[from->outs.at[k].val]);
	for (int k = 0; k < from->stores.count; k++) {
		Store s = from->stores.at[k];
		add_store(to, s.slot, put_cast(to, now[s.val], to->slots.at[s.slot].type));
	}
	return graph_live(arena, to);
}
