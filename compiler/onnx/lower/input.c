// input.c: the inputs of a model: as the file declares them, their sizes bound, and as values of
// the graph. Takes the file's graph, the numbers and values that the caller has. Gives a slot for
// each input, a constant where its value stands in for it. Keeps: a size that nothing tells is
// asked for by name.
#include "lower.h"
#include <string.h>

// ---- declared -------------------------------------------------------------------------

const Known *find_known(const Reader *r, const char *name)
{
	const uint64_t *cell = table_find_s(r->known, name);
	return cell ? &r->options->known[*cell - 1] : NULL;
}

// What a sequence or an optional value holds, in the end a tensor.
static const TensorType *held_type(const TypeProto *t, Input *in)
{
	while (t && !t->tensor_type && (t->sequence_type || t->optional_type)) {
		in->sequence |= t->sequence_type != NULL;
		in->optional |= t->optional_type != NULL;
		t = t->sequence_type ? t->sequence_type->elem_type : t->optional_type->elem_type;
	}
	return t ? t->tensor_type : NULL;
}

// A value of the caller's tells the shape that the file leaves open.
static void shape_by_value(const Reader *r, Input *in)
{
	const Known *known = in->sequence ? NULL : find_known(r, in->name);
	if (!known)
		return;
	if (in->rank < 0)
		for (int a = 0; a < known->shape.rank; a++)
			in->dim[a] = (Dim){-1, ""};
	in->rank = in->rank < 0 ? known->shape.rank : in->rank;
	for (int a = 0; a < in->rank && in->rank == known->shape.rank; a++)
		if (in->dim[a].size < 0)
			in->dim[a].size = known->shape.dim[a];
}

static Input declared(Reader *r, const ValueInfoProto *info)
{
	const char *path = r->model->path;
	Input in = {.name = info->name, .rank = -1};
	const TensorType *t = held_type(info->type, &in);
	if (!t)
		fail(path,
		     "'%s' is a map or sparse; only dense tensors go in and out: convert it "
		     "outside of the model",
		     info->name);
	int e = declared_type(t->elem_type);
	if (e < 0)
		fail(path, "'%s' has %s; %s", info->name, type_trouble(r->arena, t->elem_type),
		     other_type);
	in.type = (Elem)e;
	in.onnx = t->elem_type;
	if (!t->shape)
		return in;
	if (t->shape->n_dim > RANK)
		fail(path, "'%s' has %zu dimensions; at most %d are supported: %s", info->name,
		     t->shape->n_dim, RANK, fewer_axes);
	in.rank = (int)t->shape->n_dim;
	for (int a = 0; a < in.rank; a++) {
		const Dimension *d = t->shape->dim[a];
		bool known = d->value_case == DIMENSION__VALUE_DIM_VALUE && d->dim_value > 0;
		in.dim[a].size = known ? d->dim_value : -1;
		in.dim[a].name = d->value_case == DIMENSION__VALUE_DIM_PARAM ? d->dim_param : "";
	}
	return in;
}

static void declare_input(Reader *r, void *info)
{
	Input in = declared(r, info);
	shape_by_value(r, &in);
	PUSH(r->arena, r->model->inputs, in);
}

// What the maps in a sequence hold for each label.
static const TensorType *mapped_type(const TypeProto *t)
{
	const TypeProto *map = t && t->sequence_type ? t->sequence_type->elem_type : NULL;
	bool holds = map && map->map_type && map->map_type->value_type;
	return holds ? map->map_type->value_type->tensor_type : NULL;
}

// Text is left out; a sequence of maps from labels to numbers is an array, a row each.
static void declare_output(Reader *r, void *declaration)
{
	const ValueInfoProto *info = declaration;
	const TensorType *t = info->type ? info->type->tensor_type : NULL,
	                 *mapped = mapped_type(info->type);
	if (t && t->elem_type == TEXT) {
		note(r, "output '%s' is text: left out", info->name);
		r->text = true;
		return;
	}
	Input output = mapped ? (Input){.name = info->name,
	                                .type = E_f32,
	                                .onnx = mapped->elem_type,
	                                .rank = 2,
	                                .dim = {{-1, ""}, {-1, ""}}}
	                      : declared(r, info);
	uint64_t *cell = table_cell_s(r->outputs, output.name);
	if (*cell)
		fail(r->model->path, "output '%s' is declared twice; export the model again",
		     output.name);
	*cell = true;
	PUSH(r->arena, r->model->outputs, output);
}

void list_inputs(Reader *r)
{
	const GraphProto *graph = r->proto->graph;
	r->outputs = table_new(r->arena);
	r->known = table_new(r->arena);
	for (int i = r->options->nknown; i > 0; i--)
		*table_cell_s(r->known, r->options->known[i - 1].name) = (uint64_t)i;
	for (size_t i = 0; i < graph->n_input; i++)
		if (!find_name(r->file, graph->input[i]->name)->tensor &&
		    !attempt(r, NULL, declare_input, graph->input[i]))
			PUSH(r->arena, r->unread, graph->input[i]->name);
	for (size_t i = 0; i < graph->n_output; i++)
		attempt(r, NULL, declare_output, graph->output[i]);
}

// ---- bound ----------------------------------------------------------------------------

const char *bind_dimensions(Reader *r)
{
	Text text = {.arena = r->arena}, hint = {.arena = r->arena};
	Table *hinted = table_new(r->arena);
	list_sizes(r);
	for (int i = 0; i < r->model->inputs.count; i++) {
		Input *in = &r->model->inputs.at[i];
		if (in->sequence || (in->optional && !find_known(r, in->name)))
			continue;
		if (in->rank < 0)
			add_error(r, NULL,
			          format(r->arena,
			                 "input '%s' is declared without a shape; export it with "
			                 "one",
			                 in->name));
		for (int a = 0; a < in->rank; a++) {
			Dim *d = &in->dim[a];
			if (d->size >= 0 || (d->size = open_size(r, in->name, a, d->name)) >= 0)
				continue;
			bool named = d->name[0] && !is_formula(d->name);
			const char *key = named ? d->name : format(r->arena, "%s:%d", in->name, a);
			say(&text, "\n  %s  (dimension %d of input '%s')",
			    d->name[0] ? d->name : key, a, in->name);
			uint64_t *known = table_cell_s(hinted, key);
			if (!*known)
				say(&hint, "%s%s=N", hint.count ? "," : "", key);
			*known = true;
		}
	}
	if (!text.count)
		return NULL;
	return format(r->arena, "no size is known for%s\ngive them: --bind %s", text.at, hint.at);
}

// ---- as values ------------------------------------------------------------------------

// An input's value as a constant, in the type that its declared one is computed in.
static Ref stand_in(Reader *r, const Known *known, Elem declared, const Shape *shape)
{
	if (!same_shape(&known->shape, shape))
		fail(r->model->path, "input '%s' is declared as %s, its data are %s", known->name,
		     shape_text(r->arena, declared, shape),
		     shape_text(r->arena, known->type, &known->shape));
	Ref x = put_const(r->g, known->type, known->shape, known->bytes);
	return put_cast(r->g, x, (Elem)working_type(elems[declared].onnx));
}

static Ref input_tensor(Reader *r, const char *name, Elem type, const Shape *shape)
{
	const Known *known = find_known(r, name);
	if (known && r->stands[known - r->options->known])
		return stand_in(r, known, type, shape);
	Elem held = is_float(type) ? E_f32 : type;
	Slot slot = {.name = name, .kind = S_input, .type = held, .shape = *shape};
	Ref x = put_slot(r->g, add_slot(r->g, slot));
	return put_cast(r->g, x, (Elem)working_type(elems[type].onnx));
}

// The elements of a sequence are inputs called NAME#k; values tell how many there are.
static List *input_list(Reader *r, const Input *in)
{
	List *list = NEW(r->arena, List);
	VEC(Ref) at = {0};
	for (;;) {
		const char *name = format(r->arena, "%s#%d", in->name, at.count);
		const Known *known = find_known(r, name);
		if (!known)
			break;
		PUSH(r->arena, at, input_tensor(r, name, in->type, &known->shape));
	}
	*list = (List){at.count, at.at};
	return list;
}

void add_input(Reader *r, NameScope *top, const Input *in)
{
	Value v = {.onnx = in->onnx};
	if (in->onnx == DOUBLE)
		meet_double(r, format(r->arena, "input '%s'", in->name));
	if (in->sequence && !(in->optional && !find_known(r, format(r->arena, "%s#0", in->name)))) {
		v.list = input_list(r, in);
	} else if (in->optional && !find_known(r, in->name)) {
		v.absent = true;
	} else if (in->rank < 0) {
		v.bad = true; // bind_dimensions told of it
	} else {
		int64_t dims[RANK];
		for (int a = 0; a < in->rank; a++)
			dims[a] = in->dim[a].size;
		Shape shape = shape_of(in->rank, dims);
		if (!is_countable(&shape))
			fail(r->model->path, "input '%s' has more than 2^%d elements", in->name,
			     SIZE_BITS);
		v.ref = input_tensor(r, in->name, in->type, &shape);
	}
	bind_name(r, top, in->name, v);
}

typedef struct Declared { // a value of the main graph
	NameScope *top;
	const ValueInfoProto *info;
} Declared;

static const char *type_name(Arena *arena, int onnx)
{
	const Format *f = find_format(onnx);
	int e = declared_type(onnx);
	return f ? f->name : e < 0 ? type_trouble(arena, onnx) : elems[e].name;
}

// Operators go by declarations where the types that are computed in tell less. An initializer has
// the very type, any other value one of the same kind.
static void check_info(Reader *r, void *declared)
{
	const ValueInfoProto *info = ((Declared *)declared)->info;
	const TensorType *t = info->type ? info->type->tensor_type : NULL;
	const Value *found = table_pointer_s(((Declared *)declared)->top->names, info->name);
	if (!t || !t->elem_type || !found)
		return;
	int type = declared_type(t->elem_type), own = 0;
	if (found->weight && found->weight->proto->data_type != t->elem_type)
		own = found->weight->proto->data_type;
	else if (found->ref && type >= 0 && is_other_type((Elem)type, val(r->g, found->ref)->type))
		own = elems[val(r->g, found->ref)->type].onnx;
	if (own)
		fail(r->model->path, "'%s' is declared %s; it is %s", info->name,
		     type_name(r->arena, t->elem_type), type_name(r->arena, own));
}

void check_infos(Reader *r, NameScope *top)
{
	const GraphProto *graph = r->proto->graph;
	for (size_t i = 0; i < graph->n_value_info; i++)
		attempt(r, NULL, check_info, &(Declared){top, graph->value_info[i]});
	for (size_t i = 0; i < graph->n_input; i++)
		attempt(r, NULL, check_info, &(Declared){top, graph->input[i]});
}

void mark_used(Reader *r)
{
	Graph *g = r->g;
	bool *live = graph_marks(r->arena, g);
	bool *used = NEWS(r->arena, bool, g->slots.count + 1);
	for (int i = 1; i < g->nval; i++)
		if (live[i] && val(g, i)->op == O_slot)
			used[val(g, i)->attr->i[0]] = true;
	for (int i = 0; i < r->model->inputs.count; i++) {
		Input *in = &r->model->inputs.at[i];
		int slot = find_slot(g, in->name);
		in->used = slot >= 0 && used[slot];
		if (!in->used)
			note(r,
			     "input '%s' is not used: were two inputs given the same example "
			     "tensor at export?",
			     in->name);
	}
}

// ---- standing in ----------------------------------------------------------------------

// The inputs that `x` is computed from stand in when the model is read again.
static void stand_in_nest(Reader *r, const Graph *g, const LoopScope *f, Ref x)
{
	bool *needed = NEWS(r->arena, bool, g->nval);
	needed[x] = true;
	for (Ref i = x; i > 0; i--) {
		const Val *v = val(g, i);
		for (int k = 0; needed[i] && k < v->nin; k++)
			needed[v->in[k]] = true;
		int slot = needed[i] && v->op == O_slot ? (int)v->attr->i[0] : -1;
		if (slot >= 0 && f)
			stand_in_nest(r, f->around, f->outer, f->operand.at[slot]);
		const Known *known = slot >= 0 && !f ? find_known(r, g->slots.at[slot].name) : NULL;
		if (known)
			r->again = r->stands[known - r->options->known] = true;
	}
}

void stand_for(Reader *r, Ref x)
{
	stand_in_nest(r, r->g, r->nest, x);
}
