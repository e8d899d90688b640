// input.c: reads the declared inputs and outputs, binds their sizes and puts the inputs as values.
// Input: the file's graph; sizes and values of the caller. Output: a slot for each input, or a
// constant if its value is needed. An unknown size is asked for by name.
#include "lower.h"
#include <string.h>

// ---- declared -------------------------------------------------------------------------

const Known *find_known(const Reader *r, const char *name)
{
	return table_pointer_s(r->known, name);
}

static Input declared(Reader *r, const ValueInfoProto *info)
{
	const char *path = r->model->path;
	Input in = {.name = info->name, .rank = -1};
	const TypeProto *held = info->type;
	// Elements of a sequence, or an optional value, are tensors in the end.
	while (held && !held->tensor_type && (held->sequence_type || held->optional_type)) {
		in.sequence |= held->sequence_type != NULL;
		in.optional |= held->optional_type != NULL;
		held = held->sequence_type ? held->sequence_type->elem_type
		                           : held->optional_type->elem_type;
	}
	const TensorType *t = held ? held->tensor_type : NULL;
	if (!held)
		fail(path, "'%s' has no type" HELP EXPORT_AGAIN, info->name);
	if (!t)
		fail(path,
		     "'%s' is a map or sparse; expected a dense tensor" HELP
		     "convert it outside of the model",
		     info->name);
	int e = declared_type(t->elem_type);
	if (e < 0)
		fail(path, "'%s' has %s" HELP "%s", info->name,
		     type_trouble(r->arena, t->elem_type), other_type);
	in.type = (Elem)e;
	in.onnx = t->elem_type;
	if (!t->shape)
		return in;
	if (t->shape->n_dim > RANK)
		fail(path, "'%s' has %zu dimensions; at most %d are supported" HELP "%s",
		     info->name, t->shape->n_dim, RANK, fewer_axes);
	in.rank = (int)t->shape->n_dim;
	for (int a = 0; a < in.rank; a++) {
		const Dimension *d = t->shape->dim[a];
		bool known = d->value_case == DIMENSION__VALUE_DIM_VALUE && d->dim_value > 0;
		in.dim[a].size = known ? d->dim_value : -1;
		in.dim[a].name = d->value_case == DIMENSION__VALUE_DIM_PARAM ? d->dim_param : "";
		in.open |= !a && !known;
	}
	return in;
}

static void declare_input(Reader *r, NameScope *s, const void *info)
{
	(void)s;
	Input in = declared(r, info);
	// A value of the caller gives the shape that the file and --bind leave open.
	const Known *known = in.sequence ? NULL : find_known(r, in.name);
	bool unshaped = in.rank < 0;
	if (known && unshaped)
		in.rank = known->shape.rank;
	for (int a = 0; known && a < in.rank && in.rank == known->shape.rank; a++)
		if (unshaped ||
		    (in.dim[a].size < 0 &&
		     !find_bind(r, format(r->arena, "%s:%d", in.name, a), in.dim[a].name)))
			in.dim[a] = (Dim){known->shape.dim[a], unshaped ? "" : in.dim[a].name};
	PUSH(r->arena, r->model->inputs, in);
}

// Text is left out; a sequence of maps from labels to numbers is an array, one row per map.
static void declare_output(Reader *r, NameScope *s, const void *declaration)
{
	const ValueInfoProto *info = declaration;
	const TypeProto *type = info->type,
	                *map = type && type->sequence_type ? type->sequence_type->elem_type : NULL;
	const TensorType *t = type ? type->tensor_type : NULL, *mapped = NULL;
	if (map && map->map_type && map->map_type->value_type)
		mapped = map->map_type->value_type->tensor_type;
	(void)s;
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
		fail(r->model->path, "output '%s' is declared twice" HELP EXPORT_AGAIN,
		     output.name);
	*cell = true;
	PUSH(r->arena, r->model->outputs, output);
}

void list_inputs(Reader *r, NameScope *top)
{
	const GraphProto *graph = r->proto->graph;
	r->outputs = table_new(r->arena);
	r->known = table_new(r->arena);
	for (int i = r->options->nknown; i-- > 0;) {
		const Known *known = &r->options->known[i];
		*table_cell_s(r->known, known->name) = (uintptr_t)known;
	}
	for (size_t i = 0; i < graph->n_input; i++)
		if (!find_name(r->file, graph->input[i]->name)->tensor &&
		    !attempt(r, NULL, declare_input, NULL, graph->input[i]))
			bind_bad(r, top, graph->input[i]->name);
	for (size_t i = 0; i < graph->n_output; i++)
		attempt(r, NULL, declare_output, NULL, graph->output[i]);
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
			                 "input '%s' is declared without a shape" HELP
			                 "export it with one",
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
	return format(r->arena, "no size is known for%s" HELP "add --bind %s", text.at, hint.at);
}

// ---- as values ------------------------------------------------------------------------

// Returns a slot, or a constant if the input's value is needed, in the working type.
static Ref input_tensor(Reader *r, const char *name, Elem type, const Shape *shape, bool open)
{
	const Known *known = find_known(r, name);
	Elem working = (Elem)working_type(elems[type].onnx);
	if (!known || !r->stands[known - r->options->known]) {
		Elem held = is_float(type) ? E_f32 : type;
		Slot slot = {
		    .name = name, .kind = S_input, .type = held, .shape = *shape, .counts = open};
		slot.limit = type == E_f16 ? F16_LIMIT : 0;
		return put_cast(r->g, put_slot(r->g, add_slot(r->g, slot)), working);
	}
	if (!same_shape(&known->shape, shape))
		fail(r->model->path, "input '%s' is declared as %s, its data are %s", name,
		     shape_text(r->arena, type, shape),
		     shape_text(r->arena, known->type, &known->shape));
	Ref x = put_const(r->g, known->type, known->shape, known->bytes);
	return put_cast(r->g, x, working);
}

// Returns the number that the options give to an input; NULL: none, or it is a dimension's.
static const Bind *bound_value(const Reader *r, const char *name)
{
	const Bind *bound = NULL;
	for (int i = 0; i < r->options->nvalue && !bound; i++)
		if (!strcmp(r->options->value[i].name, name))
			bound = &r->options->value[i];
	for (int i = 0; i < r->model->inputs.count && bound; i++)
		for (int a = 0; a < r->model->inputs.at[i].rank; a++) {
			const char *dimension = r->model->inputs.at[i].dim[a].name;
			if (dimension && !strcmp(dimension, name))
				return NULL;
		}
	return bound;
}

static Ref bound_input(Reader *r, const Input *in, const Shape *shape, int64_t value)
{
	Elem working = (Elem)working_type(elems[in->type].onnx);
	if (is_float(in->type) || count_of(shape) != 1)
		fail(r->model->path, "input '%s' is %s; a number is bound to an integer alone",
		     in->name, shape_text(r->arena, in->type, shape));
	Ref x = put_cast(r->g, put_i64(r->g, value), in->type);
	if (const_int_at(val(r->g, x), 0) != value)
		fail(r->model->path, "input '%s' is %s; %lld is outside of its range", in->name,
		     shape_text(r->arena, in->type, shape), (long long)value);
	return put_cast(r->g, put_reshape(r->g, x, *shape), working);
}

void add_input(Reader *r, NameScope *top, const Input *in)
{
	Value v = {.onnx = in->onnx};
	const char *element = format(r->arena, "%s#0", in->name);
	const Known *known = find_known(r, element);
	if (in->onnx == DOUBLE)
		meet_double(r, format(r->arena, "input '%s'", in->name));
	if (in->sequence && (known || !in->optional)) {
		// The elements of a sequence are inputs called NAME#k, as many as have values.
		VEC(Ref) at = {0};
		for (; known; known = find_known(r, element)) {
			PUSH(r->arena, at,
			     input_tensor(r, element, in->type, &known->shape, false));
			element = format(r->arena, "%s#%d", in->name, at.count);
		}
		List list = {.count = at.count, .at = at.at};
		v.list = take_copy(r->arena, &list, sizeof list);
	} else if (in->optional && !find_known(r, in->name)) {
		v.absent = true;
	} else if (in->rank < 0) {
		v.bad = true; // reported by bind_dimensions
	} else {
		int64_t dims[RANK];
		for (int a = 0; a < in->rank; a++)
			dims[a] = in->dim[a].size;
		Shape shape = shape_of(in->rank, dims);
		if (!is_countable(&shape))
			fail(r->model->path, "input '%s' has a shape %s", in->name,
			     beyond_text(&shape));
		const Bind *bound = bound_value(r, in->name);
		v.ref = bound ? bound_input(r, in, &shape, bound->size)
		              : input_tensor(r, in->name, in->type, &shape, in->open);
	}
	bind_name(r, top, in->name, v);
}

static const char *type_name(Arena *arena, int onnx)
{
	const Format *f = find_format(onnx);
	int e = declared_type(onnx);
	return f ? f->name : e < 0 ? type_trouble(arena, onnx) : elems[e].name;
}

void check_type(const Reader *r, const char *what, const char *name, const Value *v, int declared)
{
	int own = own_type(v), stored = declared_type(own), travels = declared_type(declared);
	bool floats = stored >= 0 && travels >= 0 && is_float(stored) && is_float(travels);
	if (!v->weight && !floats) { // only the type that it is computed in is certain
		Elem type = val(r->g, v->ref)->type;
		bool integral = travels >= 0 && !is_float(travels) && travels != E_b8;
		bool quantized = integral && elems[travels].bytes < 4; // computed in floats
		if (travels < 0 || (is_float(type) ? is_float(travels) || quantized
		                                   : working_type(declared) == (int)type))
			return;
		own = elems[type].onnx;
	}
	if (own != declared)
		fail(r->model->path, "%s'%s' is declared %s; it is %s" HELP EXPORT_AGAIN, what,
		     name, type_name(r->arena, declared), type_name(r->arena, own));
}

// Operators use declarations where the types of values are unknown.
static void check_info(Reader *r, NameScope *top, const void *declaration)
{
	const ValueInfoProto *info = declaration;
	const TensorType *t = info->type ? info->type->tensor_type : NULL;
	const Value *found = table_pointer_s(top->names, info->name);
	if (t && t->elem_type && found && (found->ref || found->weight))
		check_type(r, "", info->name, found, t->elem_type);
}

void check_infos(Reader *r, NameScope *top)
{
	const GraphProto *graph = r->proto->graph;
	for (size_t i = 0; i < graph->n_value_info; i++)
		attempt(r, NULL, check_info, top, graph->value_info[i]);
	for (size_t i = 0; i < graph->n_input; i++)
		attempt(r, NULL, check_info, top, graph->input[i]);
}

void mark_used(Reader *r)
{
	Graph *g = r->g;
	const int *live = graph_uses(r->arena, g);
	for (int i = 0; i < r->model->inputs.count; i++) {
		Input *in = &r->model->inputs.at[i];
		int slot = find_slot(g, in->name);
		in->used = slot >= 0 && live[slot_ref(g, slot)];
		if (!in->used)
			note(r,
			     "input '%s' is not used: were two inputs given the same example "
			     "tensor at export?",
			     in->name);
	}
}

// ---- inputs that become constants -----------------------------------------------------

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
