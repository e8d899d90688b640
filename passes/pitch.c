// pitch.c: lets rows of large values of 16 bits begin at lines of the cache.
// Vocabularies have odd sizes, such as 50257: rows would begin anywhere, so that vectors, and the
// rows that matrix registers load and store, would span two lines; threads of a GPU, which load 16
// bytes from aligned addresses only, would load elements one by one. What lies between rows is not
// part of the value: nothing has to write it, and no result may depend on it.
#include "passes.h"

enum {
	LINE = 64,       // elements of two lines
	LONG = 1 << 10,  // elements of a row from which a line is few
	LARGE = 1 << 20, // elements from which it matters
};

// True if kernels read operands of v by the address of each element or row.
static bool reads_rows(const Val *v)
{
	Class cls = prims[v->op].cls;
	return cls == C_map || cls == C_move || cls == C_dot ||
	       (cls == C_reduce && v->op != O_cumsum);
}

// Marks what others read as it is: outputs, what is stored in slots, and operands of loops and the
// like.
static bool *find_dense(Arena *scratch, const Graph *g)
{
	bool *dense = NEWS(scratch, bool, g->nval);
	for (Ref r = 1; r < (Ref)g->nval; r++)
		for (int k = 0; k < val(g, r)->nin; k++)
			dense[val(g, r)->in[k]] |= !reads_rows(val(g, r));
	for (int i = 0; i < g->outs.count; i++)
		dense[g->outs.at[i].val] = true;
	for (int i = 0; i < g->stores.count; i++)
		dense[g->stores.at[i].val] = true;
	return dense;
}

const Graph *pitch_pass(Arena *arena, const Graph *from, const Machine *machine)
{
	bool applies = has_thread_matrix(machine) || machine->threads > 1;
	if (!applies || !is_half(from->products))
		return from;
	Graph *g = graph_live(arena, from);
	Arena *scratch = arena_within(arena);
	const bool *dense = find_dense(scratch, g);
	for (Ref r = 1; r < (Ref)g->nval; r++) {
		const Val *v = val(g, r);
		int64_t row = last_dim(&v->shape);
		if (v->op == O_cast && is_half(v->type) && !dense[r] && row >= LONG && row % LINE &&
		    count_of(&v->shape) >= LARGE)
			set_pitch(g, r, ceil_div(row, LINE) * LINE);
	}
	arena_free(scratch);
	return g;
}
