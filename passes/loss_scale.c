// loss_scale.c: scales the loss whose gradients are computed in f16, which holds no small ones.
// Invariant: outputs, sums and the optimizer see gradients of the loss itself. The rule by which
// the scale changes is in optim.am.
#include "passes.h"
#include <string.h>

Ref loss_scale(Graph *g)
{
	static const double usual = 65536;
	const double *first = g->loss_scale ? &g->loss_scale : &usual;
	return g->products == E_f16 ? put_state(g, LOSS_SCALE, E_f64, shape_of(0, NULL),
	                                        take_copy(g->arena, first, sizeof *first))
	                            : 0;
}

Ref put_unscaled(Graph *g, Ref gradient)
{
	Ref scale = loss_scale(g);
	if (!scale)
		return gradient;
	Ref factor = put2(g, O_div, put_num(g, E_f64, 1), scale);
	return put2(g, O_mul, gradient, put_cast(g, factor, val(g, gradient)->type));
}

bool is_unscaled(const Graph *g, const Val *v)
{
	const Val *by = v->op == O_div ? val(g, v->in[1]) : v;
	if (by->op != O_slot)
		return false;
	const Slot *slot = &g->slots.at[by->attr->i[0]];
	return v->op == O_div ? !strcmp(slot->name, LOSS_SCALE) : slot->kind == S_grad;
}

void put_scale_state(Graph *g, Ref *state)
{
	state[0] = loss_scale(g);
	state[1] = put_state(g, "amos.finite", E_i64, shape_of(0, NULL), NULL);
	state[2] = put_state(g, SKIPPED, E_i64, shape_of(0, NULL), NULL);
}

Ref update_loss_scale(Graph *g, int n, const Ref *gradient)
{
	enum { FINITE, STATE };
	Ref in[STATE + SCALE_STATES], out[SCALE_STATES], bad = put_num(g, E_f64, 0);
	for (int i = 0; i < n; i++) {
		Ref own = book_call1(g, "not_finite", 1, &gradient[i], 0, NULL);
		own = put_cast(g, put_reshape(g, own, shape_of(0, NULL)), E_f64);
		bad = put2(g, O_add, bad, own);
	}
	in[FINITE] = put2(g, O_eq, bad, put_num(g, E_f64, 0));
	put_scale_state(g, in + STATE);
	const AttrArg attr[] = {{.name = "fixed", .x = g->loss_scale != 0},
	                        {.name = "least", .x = LEAST_LOSS_SCALE},
	                        {.name = "most", .x = MOST_LOSS_SCALE}};
	book_run(g, NULL, "loss_scale", COUNT(in), in, COUNT(attr), attr, COUNT(out), out);
	for (int k = 0; k < SCALE_STATES; k++)
		if (out[k] != in[STATE + k]) // a fixed scale stays
			add_store(g, (int)val(g, in[STATE + k])->attr->i[0], out[k]);
	return in[FINITE];
}

Ref put_kept(Graph *g, Ref finite, int slot, Ref value)
{
	return put3(g, O_select, finite, value, put_slot(g, slot));
}

Graph *loss_scale_pass(Arena *arena, const Graph *from)
{
	Graph *g = graph_live(arena, from);
	VEC(Ref) gradients = {0};
	for (int i = 0; i < g->outs.count; i++)
		if (starts_with(g->outs.at[i].name, GRAD_OF))
			PUSH(arena, gradients, g->outs.at[i].val);
	int n = g->stores.count;
	Ref finite = update_loss_scale(g, gradients.count, gradients.at);
	for (int i = 0; i < n; i++)
		g->stores.at[i].val =
		    put_kept(g, finite, g->stores.at[i].slot, g->stores.at[i].val);
	return graph_live(arena, g);
}
