// open.c: wholes opened by their definitions.
// Takes a graph; gives one of primitives that kernels compute. The door puts no whole together
// there.
#include "passes.h"

static Graph *open_once(Arena *arena, const Graph *from)
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
	copy_ends(to, from, now);
	return to;
}

static bool has_whole(const Graph *g)
{
	for (Ref r = 1; r < (Ref)g->nval; r++)
		if (prims[val(g, r)->op].cls == C_whole)
			return true;
	return false;
}

// A definition may speak of other wholes: attend of softmax.
Graph *open_pass(Arena *arena, const Graph *from)
{
	Graph *g = open_once(arena, from);
	while (has_whole(g))
		g = open_once(arena, g);
	return g;
}
