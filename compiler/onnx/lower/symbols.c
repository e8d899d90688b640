// symbols.c: finds sizes that the program computes from data, but that its shapes determine.
// Input: the dimensions that the file declares of values. Facts: PyTorch's newer exporter names
// such a size, "u0", in the shapes of all values that have it, such as range(max(lengths)). Where
// such a value meets one of 6 elements, or becomes one, u0 is 6, or the program fails; where u0
// elements of 6 are taken, it is at most 6. The exporter takes it for 2 or more. Where the program
// itself checks that it is 6, the shapes have 6.
#include "lower.h"
#include <string.h>

typedef struct Extents { // of a value
	int rank;        // -1: unknown
	int64_t size[RANK];
	const char *name[RANK]; // of a size that is not known; NULL: it is known
} Extents;

typedef struct Symbol {
	int64_t size; // that it is, or at most is; -1: it would have to be several
	bool exact;
} Symbol;

static void name_sizes(const Reader *r, Table *sizes)
{
	for (int i = 0; i < r->model->inputs.count; i++) {
		const Input *in = &r->model->inputs.at[i];
		for (int a = 0; a < in->rank; a++)
			if (in->dim[a].name[0] && in->dim[a].size > 0)
				*table_cell_s(sizes, in->dim[a].name) = (uint64_t)in->dim[a].size;
	}
}

static Extents extents(const Reader *r, const Table *sizes, const char *value)
{
	const Named *named = find_name(r->file, value);
	const ValueInfoProto *info = named->info ? named->info : named->input;
	const TensorType *t = info && info->type ? info->type->tensor_type : NULL;
	Extents e = {.rank = -1};
	if (named->tensor && named->tensor->n_dims <= RANK) {
		e.rank = (int)named->tensor->n_dims;
		for (int a = 0; a < e.rank; a++)
			e.size[a] = named->tensor->dims[a];
	} else if (t && t->shape && t->shape->n_dim <= RANK) {
		e.rank = (int)t->shape->n_dim;
		for (int a = 0; a < e.rank; a++) {
			const Dimension *d = t->shape->dim[a];
			bool symbol = d->value_case == DIMENSION__VALUE_DIM_PARAM;
			const uint64_t *known = symbol ? table_find_s(sizes, d->dim_param) : NULL;
			e.size[a] = symbol ? known ? (int64_t)*known : 0 : d->dim_value;
			e.name[a] = symbol && !known ? d->dim_param : NULL;
		}
	}
	return e;
}

static void relate(Reader *r, Table *symbols, const char *name, int64_t size, bool exact)
{
	if (size < 1)
		return;
	uint64_t *cell = table_cell_s(symbols, name);
	Symbol *s = (Symbol *)(uintptr_t)*cell;
	if (!s) {
		s = NEW(r->arena, Symbol);
		*s = (Symbol){size, exact};
		*cell = (uintptr_t)s;
	} else if (s->exact && exact) {
		s->size = s->size == size ? size : -1;
	} else if (exact || (!s->exact && size < s->size)) {
		*s = (Symbol){size, exact};
	}
}

// Sizes that are aligned at the end are equal unless they are 1.
static void relate_aligned(Reader *r, Table *symbols, int n, const Extents *e)
{
	for (int back = 1; back <= RANK; back++) {
		int64_t size = 0;
		for (int k = 0; k < n; k++)
			if (back <= e[k].rank && !e[k].name[e[k].rank - back])
				size = MAX(size, e[k].size[e[k].rank - back]);
		for (int k = 0; k < n && size > 1; k++)
			if (back <= e[k].rank && e[k].name[e[k].rank - back])
				relate(r, symbols, e[k].name[e[k].rank - back], size, true);
	}
}

// The only size of x that is not known follows from those of y, which has as many elements.
static void relate_reshaped(Reader *r, Table *symbols, const Extents *x, const Extents *y)
{
	int64_t all = 1, rest = 1;
	const char *name = NULL;
	int open = 0;
	for (int a = 0; a < y->rank; a++)
		if (y->name[a] || __builtin_mul_overflow(all, y->size[a], &all))
			return;
	for (int a = 0; a < x->rank; a++) {
		open += x->name[a] != NULL;
		name = x->name[a] ? x->name[a] : name;
		if (!x->name[a] && __builtin_mul_overflow(rest, x->size[a], &rest))
			return;
	}
	if (open == 1 && y->rank >= 0 && rest > 0 && all % rest == 0)
		relate(r, symbols, name, all / rest, true);
}

static void relate_node(Reader *r, const Table *sizes, Table *symbols, const NodeProto *node)
{
	enum { MOST = 4 }; // values of a node
	static const char elementwise[] = "Add Sub Mul Div Where And Or Xor Less LessOrEqual "
	                                  "Greater GreaterOrEqual Equal Max Min Pow";
	bool aligned = is_word(elementwise, node->op_type),
	     sliced = is_word("Slice", node->op_type), expanded = is_word("Expand", node->op_type);
	bool reshaped = is_word("Reshape Squeeze Unsqueeze Flatten", node->op_type);
	int n = aligned ? (int)node->n_input : 1;
	if (!(aligned || sliced || expanded || reshaped) || n < 1 || n >= MOST || !node->n_output ||
	    !node->n_input)
		return;
	Extents e[MOST];
	for (int k = 0; k < n; k++)
		e[k] = extents(r, sizes, node->input[k]);
	e[n] = extents(r, sizes, node->output[0]);
	if (aligned || expanded)
		relate_aligned(r, symbols, n + 1, e);
	if (reshaped)
		relate_reshaped(r, symbols, &e[0], &e[1]);
	for (int a = 0; sliced && a < e[0].rank && e[0].rank == e[1].rank; a++)
		if (e[1].name[a] && !e[0].name[a])
			relate(r, symbols, e[1].name[a], e[0].size[a], false);
}

// True if the value is an integer of this size, stored in the file.
static bool is_integer(const Reader *r, const char *value, int64_t x)
{
	const Named *named = find_name(r->file, value);
	const TensorProto *t = named->tensor;
	if (!t && named->maker && !strcmp(named->maker->op_type, "Constant") &&
	    named->maker->n_attribute)
		t = named->maker->attribute[0]->t;
	Shape shape = t ? tensor_shape(r->model->path, t) : (Shape){0};
	if (!t || declared_type(t->data_type) != E_i64 || count_of(&shape) != 1)
		return false;
	const int64_t *data = tensor_data(r->file, r->arena, r->model->path, t, E_i64);
	int64_t own;
	memcpy(&own, data, sizeof own);
	return own == x;
}

static bool counts_up(const Reader *r, const NodeProto *node)
{
	return !strcmp(node->op_type, "Range") && node->n_input == 3 && node->n_output &&
	       is_integer(r, node->input[0], 0) && is_integer(r, node->input[2], 1);
}

void find_symbols(Reader *r)
{
	const GraphProto *graph = r->proto->graph;
	Table *sizes = table_lent(r->arena), *symbols = table_lent(r->arena);
	bool any = false;
	r->symbols = table_new(r->arena);
	for (size_t i = 0; i < graph->n_node && !any; i++)
		any = counts_up(r, graph->node[i]);
	if (!any)
		return;
	name_sizes(r, sizes);
	for (size_t i = 0; i < graph->n_node; i++)
		relate_node(r, sizes, symbols, graph->node[i]);
	for (size_t i = 0; i < graph->n_node; i++) {
		const NodeProto *node = graph->node[i];
		Extents e =
		    counts_up(r, node) ? extents(r, sizes, node->output[0]) : (Extents){.rank = -1};
		const Symbol declared = {e.rank == 1 ? e.size[0] : -1, true}, *s = &declared;
		if (e.rank == 1 && e.name[0])
			s = table_pointer_s(symbols, e.name[0]);
		if (s && s->size > 0)
			*table_cell_s(r->symbols, node->input[1]) =
			    (uintptr_t)take_copy(r->arena, s, sizeof *s);
	}
}

Ref known_size(Reader *r, const NodeProto *node, int k, Ref x)
{
	Graph *g = r->g;
	const Symbol *s = table_pointer_s(r->symbols, node->output[k]);
	if (!s || !x || is_const(g, x) || val(g, x)->type != E_i64 ||
	    interval_of(g, x).high <= (double)s->size)
		return x;
	Ref size = put_expand(g, put_i64(g, s->size), val(g, x)->shape);
	if (s->exact)
		note(r, "%s: its result is %lld, as what is computed with it has that size",
		     node_where(r->arena, node), (long long)s->size);
	return s->exact ? size : smaller_of(g, x, size);
}
