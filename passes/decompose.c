// decompose.c: replaces composites by primitives.
// In the new graph, the door builds no composites.
#include "passes.h"

enum { LARGE = 1 << 16, PARTS = 64 }; // elements for several workers to reduce; parts

static Ref decompose_reduction(Graph *g, const Val *v, Ref x)
{
	int64_t count = count_of(&val(g, x)->shape), parts = PARTS;
	bool argmax = v->op == O_argmax, scan = v->op == O_cumsum;
	while (count % parts)
		parts /= 2;
	if (argmax || scan || count_of(&v->shape) > 1 || count < LARGE || parts < 2)
		return put_as(g, v, &x);
	Ref rows = put_reshape(g, x, shape_of(2, (int64_t[]){parts, count / parts}));
	Ref each = put_reduce(g, v->op, rows, 1, (int64_t[]){1});
	each = put_reshape(g, each,
	                   shape_of(1, &parts)); // the door would merge two adjacent reductions
	return put_reshape(g, put_reduce(g, v->op, each, 1, (int64_t[]){0}), v->shape);
}

static bool is_decomposed(const Graph *g, const Val *v, const Machine *machine)
{
	bool kernel = machine && is_attention(v->op) && attend_fits(g, v, machine, false);
	return prims[v->op].cls == C_composite && !kernel;
}

typedef struct Decomposition {
	const Graph *from;
	const Machine *machine;
} Decomposition;

static Ref decompose_value(void *context, Graph *g, const Val *v, const Ref *in)
{
	const Decomposition *d = context;
	if (is_decomposed(d->from, v, d->machine))
		return book_decompose(g, v, in);
	return prims[v->op].cls == C_reduce ? decompose_reduction(g, v, in[0]) : put_as(g, v, in);
}

// A definition may use other composites: attend uses softmax.
Graph *decompose_pass(Arena *arena, const Graph *from, const Machine *machine)
{
	Graph *to = graph_like(arena, from);
	to->plain = DECOMPOSED_ALL;
	copy_graph(to, from, NULL, decompose_value, &(Decomposition){from, machine});
	for (Ref r = 1; r < (Ref)to->nval; r++)
		if (is_decomposed(to, val(to, r), machine))
			return decompose_pass(arena, to, machine);
	return to;
}
