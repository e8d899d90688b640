// lean.c: loops as kernels want them.
// Takes a graph. Gives it with loops that compute only what is read of them, and with zeros behind
// the trips that were made, which kernels leave as they found them.
#include "passes.h"

typedef struct Results { // of a loop that was put
	Ref *part;
	Ref trips; // 0: all were made
} Results;

static bool *read_parts(Arena *arena, const Graph *g, Ref loop, const bool *live)
{
	Cycle c = loop_of(val(g, loop));
	bool *want = NEWS(arena, bool, loop_results(&c) + 1);
	for (Ref r = loop + 1; r < (Ref)g->nval; r++)
		if (live[r] && val(g, r)->op == O_part && val(g, r)->in[0] == loop)
			want[val(g, r)->attr->i[0]] = true;
	return want;
}

// Entries of `x` are numbered along its first axis.
static Ref put_behind(Graph *g, Ref x, Ref trips)
{
	Shape line = {.rank = val(g, x)->shape.rank, .dim = {val(g, x)->shape.dim[0]}};
	for (int a = 1; a < line.rank; a++)
		line.dim[a] = 1;
	Ref made = put2(g, O_lt, put_iota(g, line, 0), trips);
	return put3(g, O_select, made, x, put_num(g, val(g, x)->type, 0));
}

static bool has_loop(const Graph *g)
{
	for (Ref r = 1; r < (Ref)g->nval; r++)
		if (val(g, r)->op == O_loop)
			return true;
	return false;
}

const Graph *lean_pass(Arena *arena, const Graph *from)
{
	if (!has_loop(from))
		return from;
	Graph *g = graph_like(arena, from);
	bool *live = graph_marks(arena, from);
	Ref *now = NEWS(arena, Ref, from->nval);
	Results *results = NEWS(arena, Results, from->nval);
	for (Ref r = 1; r < (Ref)from->nval; r++) {
		const Val *v = val(from, r);
		Ref *in = NEWS(arena, Ref, v->nin + 1);
		if (!live[r])
			continue;
		for (int k = 0; k < v->nin; k++)
			in[k] = now[v->in[k]];
		g->from = v->from;
		if (v->op == O_loop) {
			Cycle c = loop_of(v);
			Results *own = &results[r];
			own->part = NEWS(arena, Ref, loop_results(&c) + 1);
			now[r] = put_lean_loop(g, &c, in, read_parts(arena, from, r, live), own->part);
			own->trips = makes_all_trips(g, &c, in) ? 0 : now[r];
		} else if (v->op == O_part) {
			const Results *of = &results[v->in[0]];
			Cycle c = loop_of(val(from, v->in[0]));
			now[r] = of->part[v->attr->i[0]];
			if (v->attr->i[0] >= c.carried && of->trips)
				now[r] = put_behind(g, now[r], of->trips);
		} else {
			now[r] = put_as(g, v, in);
		}
	}
	copy_ends(g, from, now);
	return g;
}
