// unused_params.c: drops parameters without gradient.
// They get no decay and no optimizer state.
#include "passes.h"
#include <string.h>

bool is_zero_gradient(const Graph *g, Ref r)
{
	double x;
	return const_num(g, unmoved(g, r), &x) && x == 0;
}

// Returns by Ref the first value between a live value and the loss whose operands have a zero
// gradient or none; 0: no such value.
static Ref *gradient_ends(Arena *arena, const Graph *g, const int *live)
{
	Ref *end = NEWS(arena, Ref, g->nval);
	for (Ref r = (Ref)g->nval - 1; r > 0; r--) {
		const Val *v = val(g, r);
		if (!is_float(v->type) || !book_differentiates(g->book, v->op))
			end[r] = r;
		for (int k = 0; live[r] && end[r] && k < v->nin; k++) {
			Ref *before = &end[v->in[k]];
			*before = *before ? MIN(*before, end[r]) : end[r];
		}
	}
	return end;
}

Graph *unused_params_pass(Arena *arena, const Graph *loss, const Graph *gradients,
                          UnusedParams *list)
{
	Graph *g = graph_live(arena, gradients);
	const int *live = graph_uses(arena, loss);
	const Ref *ends = gradient_ends(arena, loss, live);
	int kept = 0;
	for (int i = 0; i < g->outs.count; i++) {
		Out out = g->outs.at[i];
		if (!starts_with(out.name, GRAD_OF) || !is_zero_gradient(g, out.val)) {
			g->outs.at[kept++] = out;
			continue;
		}
		UnusedParam unused = {
		    .slot = find_slot(loss, out.name + strlen(GRAD_OF)),
		    .why = "its contributions to the loss cancel, or are multiplied by 0"};
		Ref r = slot_ref(loss, unused.slot);
		const Node *node = &loss->nodes->list.at[val(loss, ends[r])->from];
		bool ended = r && live[r] && ends[r];
		unused.lost = ended && val(loss, ends[r])->op != O_detach;
		if (!r || !live[r])
			unused.why = "the loss does not depend on it";
		else if (ended)
			unused.why =
			    format(arena, "gradients end at node '%s' (%s)", node->name, node->op);
		PUSH(arena, *list, unused);
	}
	g->outs.count = kept;
	return graph_live(arena, g);
}
