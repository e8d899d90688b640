// unused_params.c: drops parameters without gradient.
// Input: the graph with its loss, and the graph of gradients. Output: the latter without theirs,
// so that they get no decay and no optimizer state, and a reason for each.
#include "passes.h"

static bool is_zero(const Graph *g, Ref r)
{
	double x;
	while (prims[val(g, r)->op].cls == C_move && val(g, r)->nin == 1)
		r = val(g, r)->in[0];
	return const_num(g, r, &x) && x == 0;
}

// True if this value gives its operands a zero gradient, or none.
static bool ends_gradients(const Val *v)
{
	return !is_float(v->type) || v->op == O_floor || v->op == O_ceil || v->op == O_round ||
	       v->op == O_sign;
}

// Returns the first value where gradients end on the paths from a slot to the loss; 0 if there is
// none. *reached: there is such a path.
static Ref end_of(Arena *arena, const Graph *g, int slot, bool *reached)
{
	bool *live = graph_marks(arena, g), *comes = NEWS(arena, bool, g->nval);
	Ref end = 0;
	*reached = false;
	for (Ref r = 1; r < (Ref)g->nval; r++) {
		const Val *v = val(g, r);
		comes[r] = live[r] && v->op == O_slot && v->attr->i[0] == slot;
		for (int k = 0; k < v->nin; k++)
			comes[r] |= live[r] && comes[v->in[k]];
		*reached |= comes[r];
		if (comes[r] && !end && ends_gradients(v))
			end = r;
	}
	return end;
}

static const char *reason(Arena *arena, const Graph *loss, int slot)
{
	bool reached;
	Ref end = end_of(arena, loss, slot, &reached);
	if (!reached)
		return "the loss does not depend on it";
	if (!end)
		return "what the loss takes from it is multiplied by 0";
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
		bool idle = starts_with(out.name, "grad:") && is_zero(g, out.val);
		int slot = idle ? find_slot(loss, out.name + 5) : -1;
		if (idle)
			PUSH(arena, *list, ((UnusedParam){slot, reason(arena, loss, slot)}));
		else
			g->outs.at[kept++] = out;
	}
	g->outs.count = kept;
	return graph_live(arena, g);
}
