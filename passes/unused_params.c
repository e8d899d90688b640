// unused_params.c: drops parameters without gradient.
// Input: the graph with its loss, and the graph of gradients. Output: the latter without theirs, so
// that they get no decay and no optimizer state, and a reason for each.
#include "passes.h"

static bool is_zero(const Graph *g, Ref r)
{
	double x;
	while (prims[val(g, r)->op].cls == C_move && val(g, r)->nin == 1)
		r = val(g, r)->in[0];
	return const_num(g, r, &x) && x == 0;
}

// True if the operands of this value have a zero gradient, or none.
static bool ends_gradients(const Val *v)
{
	return !is_float(v->type) || v->op == O_floor || v->op == O_ceil || v->op == O_round ||
	       v->op == O_sign;
}

// Returns the first value at which gradients end between a slot and the loss; 0 if there is none.
// *reached: the loss depends on the slot.
static Ref gradient_end(Arena *arena, const Graph *g, int slot, bool *reached)
{
	bool *live = graph_marks(arena, g), *depends = NEWS(arena, bool, g->nval);
	Ref end = 0;
	*reached = false;
	for (Ref r = 1; r < (Ref)g->nval; r++) {
		const Val *v = val(g, r);
		depends[r] = live[r] && v->op == O_slot && v->attr->i[0] == slot;
		for (int k = 0; k < v->nin; k++)
			depends[r] |= live[r] && depends[v->in[k]];
		*reached |= depends[r];
		if (depends[r] && !end && ends_gradients(v))
			end = r;
	}
	return end;
}

static const char *reason(Arena *arena, const Graph *loss, int slot)
{
	bool reached;
	Ref end = gradient_end(arena, loss, slot, &reached);
	if (!reached)
		return "the loss does not depend on it";
	if (!end)
		return "its contribution to the loss is multiplied by 0";
	const Node *node = &loss->nodes->list.at[val(loss, end)->from];
	return format(arena, "gradients end at node '%s' (%s)", node->name, node->op);
}

Graph *unused_params_pass(Arena *arena, const Graph *loss, const Graph *gradients,
                          UnusedParams *list)
{
	Graph *g = graph_live(arena, gradients);
	int kept = 0;
	for (int i = 0; i < g->outs.count; i++) {
		Out out = g->outs.at[i];
		bool unused = starts_with(out.name, "grad:") && is_zero(g, out.val);
		int slot = unused ? find_slot(loss, out.name + 5) : -1;
		if (unused)
			PUSH(arena, *list, ((UnusedParam){slot, reason(arena, loss, slot)}));
		else
			g->outs.at[kept++] = out;
	}
	g->outs.count = kept;
	return graph_live(arena, g);
}
