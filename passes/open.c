// open.c: wholes opened by their definitions.
// Takes a graph; gives one of primitives that kernels compute. The door puts no whole together there.
#include "passes.h"

Graph *open_pass(Arena *arena, const Graph *from)
{
	Graph *to = graph_like(arena, from);
	to->plain = true;
	Ref *now = NEWS(arena, Ref, from->nval);
	bool *live = graph_marks(arena, from);
	for (Ref r = 1; r < (Ref)from->nval; r++) {
		const Val *v = val(from, r);
		if (!live[r])
			continue;
		Ref *in = NEWS(arena, Ref, v->nin + 1);
		for (int k = 0; k < v->nin; k++)
			in[k] = now[v->in[k]];
		to->from = v->from;
		now[r] = prims[v->op].cls == C_whole ? book_open(to, v, in) : put_as(to, v, in);
	}
	for (int i = 0; i < from->outs.count; i++)
		add_out(to, from->outs.at[i].name, now[from->outs.at[i].val]);
	for (int i = 0; i < from->stores.count; i++)
		add_store(to, from->stores.at[i].slot, now[from->stores.at[i].val]);
	return to;
}
