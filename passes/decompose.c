// decompose.c: replaces composites by primitives.
// In the new graph, the door builds no composites.
#include "passes.h"

enum { ROWS = 4 }; // to which a scatter adds, at most, if sums are to do it

// True if v adds many updates to few rows.
static bool adds_to_few(const Graph *g, const Val *v)
{
	enum { ADD = 1 };
	return v->op == O_scatter && v->attr->i[0] == 0 && v->attr->i[1] == ADD &&
	       count_of(&v->shape) && v->shape.dim[0] <= ROWS && v->type == E_f32 &&
	       count_of(&val(g, v->in[2])->shape) >= LARGE_SPACE;
}

// Workers of a GPU that each had a row would look at all updates, one after another. Instead, sums
// over all updates have those of one row each, and one pass finds them, by as many workers as there
// is room for.
static Ref decompose_scatter(Graph *g, const Val *v, const Ref *in)
{
	int64_t rows = v->shape.dim[0], columns = count_of(&v->shape) / rows;
	int64_t updates = count_of(&val(g, in[2])->shape) / columns;
	Ref index = put_reshape(g, in[1], shape_of(2, (int64_t[]){updates, 1}));
	Ref update = put_reshape(g, in[2], shape_of(2, (int64_t[]){updates, columns}));
	Ref sum[ROWS];
	for (int64_t r = 0; r < rows; r++) {
		Ref own = put2(g, O_eq, index, put_num(g, val(g, index)->type, (double)r));
		Ref x = put3(g, O_select, own, update, put_num(g, v->type, 0));
		sum[r] = put_reduce(g, O_sum, x, 1, (int64_t[]){0});
	}
	Ref all = put_reshape(g, put_concat(g, 0, (int)rows, sum), v->shape);
	return put2(g, O_add, in[0], all);
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
	if (d->machine && d->machine->threads > 1 && adds_to_few(d->from, v))
		return decompose_scatter(g, v, in);
	bool whole = prims[v->op].cls == C_reduce && count_of(&v->shape) <= 1;
	return whole ? put_in_parts(g, v, in[0], PARTS) : put_as(g, v, in);
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
