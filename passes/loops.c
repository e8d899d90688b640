// loops.c: trims or unrolls loops.
// Input: a graph. Output: the graph with trimmed loops, whose stacked results are zero after the
// last iteration, where kernels write nothing; or without loops.
#include "passes.h"

typedef struct Loops { // copied to another graph
	Arena *arena;
	const Graph *from;
	Graph *to;
	const bool *live;
	Ref **result; // by Ref of a loop: its results
	int64_t most; // iterations to unroll; 0: loops remain
} Loops;

bool has_loop(const Graph *g)
{
	for (Ref r = 1; r < (Ref)g->nval; r++)
		if (val(g, r)->op == O_loop)
			return true;
	return false;
}

static bool *read_results(const Loops *l, Ref loop)
{
	LoopInfo c = loop_of(val(l->from, loop));
	bool *want = NEWS(l->arena, bool, loop_results(&c) + 1);
	for (Ref r = loop + 1; r < (Ref)l->from->nval; r++) {
		const Val *v = val(l->from, r);
		if (l->live[r] && v->op == O_result && v->in[0] == loop)
			want[v->attr->i[0]] = true;
	}
	return want;
}

// Returns `x` with zeros from index `trips` of its first axis on.
static Ref zero_after(Graph *g, Ref x, Ref trips)
{
	Ref made = put2(g, O_lt, put_numbers(g, &val(g, x)->shape, 0), trips);
	return put3(g, O_select, made, x, put_num(g, val(g, x)->type, 0));
}

// Returns the number of iterations.
static Ref put_loop_info(Loops *l, Ref r, const Ref *in)
{
	LoopInfo c = loop_of(val(l->from, r));
	Ref *result = l->result[r] = NEWS(l->arena, Ref, loop_results(&c) + 1);
	if (l->most) {
		c.body = unroll_pass(l->arena, c.body, l->most);
		unroll_loop(l->to, &c, in, l->most, result);
		return in[0];
	}
	Ref trips = put_trimmed_loop(l->to, &c, in, read_results(l, r), result);
	bool all = makes_all_trips(l->to, &c, in);
	for (int k = c.carried; k < loop_results(&c) && !all; k++)
		result[k] = result[k] ? zero_after(l->to, result[k], trips) : 0;
	return trips;
}

static Ref put_value(void *context, Graph *to, const Val *v, const Ref *in)
{
	Loops *l = context;
	if (v->op == O_loop)
		return put_loop_info(l, ref_of(l->from, v), in);
	return v->op == O_result ? l->result[v->in[0]][v->attr->i[0]] : put_as(to, v, in);
}

static Graph *put_loops(Arena *arena, const Graph *from, int64_t most)
{
	if (!has_loop(from))
		return graph_live(arena, from);
	Graph *to = graph_like(arena, from);
	Ref *now = NEWS(arena, Ref, from->nval);
	Loops l = {.arena = arena,
	           .from = from,
	           .to = to,
	           .live = graph_marks(arena, from),
	           .result = NEWS(arena, Ref *, from->nval),
	           .most = most};
	copy_values(to, from, now, put_value, &l);
	copy_ends(to, from, now);
	return to;
}

Graph *loops_pass(Arena *arena, const Graph *from)
{
	return put_loops(arena, from, 0);
}

Graph *unroll_pass(Arena *arena, const Graph *from, int64_t most)
{
	return put_loops(arena, from, most);
}
