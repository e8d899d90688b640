// loops.c: trims or unrolls loops.
// The stacked results of a trimmed loop are zero after the last iteration, where kernels write
// nothing.
#include "passes.h"

typedef struct Loops { // copied to another graph
	Arena *arena;
	const Graph *from;
	bool **want;  // by Ref of a loop: which results are read
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

// Puts a loop, trimmed or unrolled, and its results. Returns the number of iterations.
static Ref put_new_loop(Loops *l, Graph *to, Ref r, const Ref *in)
{
	LoopInfo c = loop_of(val(l->from, r));
	Ref *result = l->result[r] = NEWS(l->arena, Ref, loop_results(&c) + 1);
	if (l->most) {
		c.body = loops_pass(l->arena, c.body, l->most);
		unroll_loop(to, &c, in, l->most, result);
		return in[0];
	}
	Ref trips = put_trimmed_loop(to, &c, in, l->want[r], result);
	bool all = makes_all_trips(to, &c, in);
	for (int k = c.carried; k < loop_results(&c) && !all; k++) {
		Ref x = result[k]; // becomes 0 after the last iteration
		if (!x)
			continue;
		Ref made = put2(to, O_lt, put_numbers(to, &val(to, x)->shape, 0), trips);
		result[k] = put3(to, O_select, made, x, put_num(to, val(to, x)->type, 0));
	}
	return trips;
}

static Ref put_value(void *context, Graph *to, const Val *v, const Ref *in)
{
	Loops *l = context;
	if (v->op == O_loop)
		return put_new_loop(l, to, ref_of(l->from, v), in);
	return v->op == O_result ? l->result[v->in[0]][v->attr->i[0]] : put_as(to, v, in);
}

Graph *loops_pass(Arena *arena, const Graph *from, int64_t most)
{
	if (!has_loop(from))
		return graph_live(arena, from);
	Graph *to = graph_like(arena, from);
	const int *live = graph_uses(arena, from);
	Loops l = {.arena = arena,
	           .from = from,
	           .want = NEWS(arena, bool *, from->nval),
	           .result = NEWS(arena, Ref *, from->nval),
	           .most = most};
	for (Ref r = 1; r < (Ref)from->nval; r++) {
		const Val *v = val(from, r);
		if (v->op == O_loop) {
			LoopInfo c = loop_of(v);
			l.want[r] = NEWS(arena, bool, loop_results(&c) + 1);
		} else if (live[r] && v->op == O_result) {
			l.want[v->in[0]][v->attr->i[0]] = true;
		}
	}
	copy_graph(to, from, NULL, put_value, &l);
	return to;
}
