// read.c: a model file as one Graph: header, inputs, names, functions, and every node lowered in
// order. Takes a path and the options. Gives a Model. Keeps: shapes are numbers from the start, so
// that the shape arithmetic of exporters folds in the door; whatever cannot be lowered is listed in
// one failure.
#include "lower.h"
#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 64, OLDEST = 1, NEWEST = 27 };

void note(Reader *r, const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	const char *text = vformat(r->arena, fmt, args);
	va_end(args);
	for (int i = 0; i < r->model->notes.count; i++)
		if (!strcmp(r->model->notes.at[i], text))
			return;
	PUSH(r->arena, r->model->notes, text);
}

static const char *node_name(const NodeProto *node)
{
	if (node->name[0])
		return node->name;
	for (size_t i = 0; i < node->n_output; i++)
		if (node->output[i][0])
			return node->output[i];
	return "without a name";
}

const char *node_place(Arena *arena, const NodeProto *node)
{
	return format(arena, "node '%s' (%s)", node_name(node), node->op_type);
}

// ---- the file -------------------------------------------------------------------------

static ModelProto *unpack(Arena *arena, const File *file)
{
	ProtobufCAllocator allocator = {unpack_take, unpack_free, arena};
	if (!file->bytes.count)
		fail(file->path, "the file is empty");
	check_nesting(file->path, file->bytes);
	ModelProto *m = model_proto__unpack(&allocator, file->bytes.count, file->bytes.at);
	if (!m)
		fail(file->path, "not an ONNX file, or truncated: its bytes do not parse");
	if (!m->graph)
		fail(file->path, "an ONNX file without a graph");
	return m;
}

// Runs a part of the reading. What fails in it is told with all else that is in the way, and with
// a cure: of nodes, which are told under `place` where they do not say so themselves, the failure's
// own, or the usual one; of other parts as the text has it.
typedef void Part(Reader *, void *what);
static const char usual_cure[] = "export the model again, or bind other sizes (--bind)";
static bool attempt(Reader *r, const char *place, Part *part, void *what)
{
	Catch caught;
	Graph *g = r->g;
	Nest *nest = r->nest;
	r->cure = NULL;
	if (!TRY(caught)) {
		part(r, what);
		catch_end(&caught);
		return true;
	}
	r->g = g;
	r->nest = nest;
	if (caught.status != STATUS_INPUT)
		fail_status(caught.status, NULL, "%s", caught.message);
	const char *path = format(r->arena, "%s: ", r->model->path), *text = caught.message;
	text += starts_with(text, path) ? strlen(path) : 0;
	bool named = !place || strstr(text, "node '");
	const char *cure = r->cure ? r->cure : place ? usual_cure : NULL;
	const char *trouble = format(r->arena, "%s%s%s%s%s", named ? "" : place, named ? "" : ": ",
	                             text, cure ? "; " : "", cure ? cure : "");
	free(caught.message);
	PUSH(r->arena, r->troubles, trouble);
	return false;
}

static void settle_troubles(Reader *r)
{
	for (int i = 0; i < r->troubles.count; i++)
		complain(NULL, "%s", r->troubles.at[i]);
	settle(r->model->path);
}

const char *plain_domain(const char *domain)
{
	return strcmp(domain, "ai.onnx") ? domain : "";
}

static int64_t version_of(size_t n, const OperatorSetIdProto *const *set, const char *domain)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(plain_domain(set[i]->domain), domain))
			return set[i]->version;
	return 0;
}

static void read_header(Reader *r)
{
	Model *m = r->model;
	m->ir_version = r->proto->ir_version;
	m->producer = format(r->arena, "%s%s%s", r->proto->producer_name,
	                     r->proto->producer_version[0] ? " " : "", r->proto->producer_version);
	m->opset = version_of(r->proto->n_opset_import,
	                      (const OperatorSetIdProto *const *)r->proto->opset_import, "");
	if (m->ir_version < 3)
		fail(m->path, "IR version %lld; amosc reads 3 and later. Export the model again",
		     (long long)m->ir_version);
	if (m->opset && (m->opset < OLDEST || m->opset > NEWEST))
		fail(m->path,
		     "operator set %lld; amosc reads %d to %d. Export with another opset_version",
		     (long long)m->opset, OLDEST, NEWEST);
}

// ---- names ----------------------------------------------------------------------------

Space *new_space(Reader *r, Space *outer)
{
	Space *s = NEW(r->arena, Space);
	if (outer)
		*s = *outer;
	s->outer = outer;
	s->nest = r->nest;
	s->caller = NULL;
	s->function = NULL;
	s->names = table_new(r->arena);
	s->depth = outer ? outer->depth + 1 : 0;
	if (s->depth > DEEPEST)
		fail(r->model->path, "graphs or functions nested more than %d deep", DEEPEST);
	return s;
}

void bind_name(Reader *r, Space *s, const char *name, Value v)
{
	uint64_t *cell = table_cell_s(s->names, name);
	if (*cell)
		fail(r->model->path, "the name '%s' is given to two values; export the model again",
		     name);
	PUSH(r->arena, r->values, v);
	*cell = (uint64_t)r->values.count;
}

// A value of nest `home` as it is seen where values are put now.
static Value bring_value(Reader *r, Value v, Nest *home)
{
	if (r->nest == home)
		return v;
	v.ref = bring_in(r, v.ref, home);
	if (v.counts) {
		Counts *counts = take_copy(r->arena, v.counts, sizeof *counts);
		for (int a = 0; a < RANK; a++)
			counts->of[a] = bring_in(r, counts->of[a], home);
		v.counts = counts;
	}
	if (v.list) {
		List *list = NEW(r->arena, List);
		*list = (List){v.list->count, NEWS(r->arena, Ref, v.list->count + 1)};
		for (int k = 0; k < list->count; k++)
			list->at[k] = bring_in(r, v.list->at[k], home);
		v.list = list;
	}
	return v;
}

// Space inside a function's body are its own; those of a subgraph may be the surrounding graph's.
Value look_up(Reader *r, const Space *s, const char *name)
{
	for (const Space *at = s; at; at = at->function ? NULL : at->outer) {
		const uint64_t *cell = table_find_s(at->names, name);
		if (cell)
			return bring_value(r, r->values.at[*cell - 1], at->nest);
	}
	r->cure = "export the model again";
	fail(r->model->path,
	     "'%s' is used but nothing computes it: undefined, or its nodes are in a cycle", name);
}

// ---- inputs ---------------------------------------------------------------------------

static int64_t bound_size(const Reader *r, const char *input, int axis, const char *symbol)
{
	const char *place = format(r->arena, "%s:%d", input, axis);
	for (int i = r->options->nbind - 1; i >= 0; i--) {
		const Bind *b = &r->options->bind[i];
		if ((symbol[0] && !strcmp(b->name, symbol)) || !strcmp(b->name, place))
			return b->size;
	}
	return -1;
}

const Known *find_known(const Reader *r, const char *name)
{
	for (int i = 0; i < r->options->nknown; i++)
		if (!strcmp(r->options->known[i].name, name))
			return &r->options->known[i];
	return NULL;
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

static void list_input(Reader *r, Input in)
{
	shape_by_value(r, &in);
	PUSH(r->arena, r->model->inputs, in);
}

static void declare_input(Reader *r, void *info)
{
	list_input(r, declared(r, info));
}

static void declare_output(Reader *r, void *info)
{
	Input output = declared(r, info);
	PUSH(r->arena, r->model->outputs, output);
}

static void list_inputs(Reader *r)
{
	const GraphProto *graph = r->proto->graph;
	Table *weights = table_new(r->arena);
	for (size_t i = 0; i < graph->n_initializer; i++)
		*table_cell_s(weights, graph->initializer[i]->name) = 1;
	for (size_t i = 0; i < graph->n_input; i++)
		if (!table_find_s(weights, graph->input[i]->name) &&
		    !attempt(r, NULL, declare_input, graph->input[i]))
			PUSH(r->arena, r->unread, graph->input[i]->name);
	for (size_t i = 0; i < graph->n_output; i++)
		attempt(r, NULL, declare_output, graph->output[i]);
}

// The dimensions that no number is known for, in one text; NULL when there is none. Binds the
// others.
static const char *bind_dimensions(Reader *r)
{
	Text text = {.arena = r->arena}, hint = {.arena = r->arena};
	for (int i = 0; i < r->model->inputs.count; i++) {
		Input *in = &r->model->inputs.at[i];
		if (in->sequence || (in->optional && !find_known(r, in->name)))
			continue;
		if (in->rank < 0)
			PUSH(r->arena, r->troubles,
			     format(r->arena,
			            "input '%s' is declared without a shape; export it with one",
			            in->name));
		for (int a = 0; a < in->rank; a++) {
			Dim *d = &in->dim[a];
			if (d->size >= 0 || (d->size = bound_size(r, in->name, a, d->name)) >= 0)
				continue;
			const char *key =
			    d->name[0] ? d->name : format(r->arena, "%s:%d", in->name, a);
			say(&text, "\n  %s  (dimension %d of input '%s')", key, a, in->name);
			if (!hint.count || !strstr(hint.at, format(r->arena, "%s=N", key)))
				say(&hint, "%s%s=N", hint.count ? "," : "", key);
		}
	}
	if (!text.count)
		return NULL;
	return format(r->arena, "no size is known for%s\ngive them: --bind %s", text.at, hint.at);
}

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
	*table_cell_s(r->slot_names, slot.name) = (uint64_t)r->g->slots.count + 1;
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

static void add_input(Reader *r, Space *top, const Input *in)
{
	Value v = {.onnx = in->onnx};
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
		v.ref = input_tensor(r, in->name, in->type, &shape);
	}
	bind_name(r, top, in->name, v);
}

// ---- initializers ---------------------------------------------------------------------

typedef struct Home { // of a weight
	const TensorProto *proto;
	Space *space;
} Home;

static void bind_weight(Reader *r, void *home)
{
	const TensorProto *t = ((Home *)home)->proto;
	Space *s = ((Home *)home)->space;
	int type = working_type(t->data_type);
	if (type < 0)
		fail(r->model->path, "initializer '%s' has %s; %s", t->name,
		     type_trouble(r->arena, t->data_type), other_type);
	Weight *w = NEW(r->arena, Weight);
	*w = (Weight){.proto = t, .name = t->name, .type = (Elem)type, .slot = -1};
	w->shape = tensor_shape(r->model->path, t);
	w->origin = w;
	w->inner = s->depth > 0;
	PUSH(r->arena, r->weights, w);
	bind_name(r, s, w->name, (Value){.weight = w});
}

static void bind_weights(Reader *r, Space *s, const GraphProto *graph)
{
	if (graph->n_sparse_initializer)
		fail(r->model->path,
		     "initializer '%s' is sparse; amosc reads dense tensors only: export it dense",
		     graph->sparse_initializer[0]->values
		         ? graph->sparse_initializer[0]->values->name
		         : "?");
	for (size_t i = 0; i < graph->n_initializer; i++) {
		Home home = {graph->initializer[i], s};
		if (!attempt(r, NULL, bind_weight, &home) &&
		    !table_find_s(s->names, home.proto->name))
			bind_name(r, s, home.proto->name, (Value){.bad = true});
	}
}

// ---- functions ------------------------------------------------------------------------

static const char *function_key(Arena *arena, const char *domain, const char *name,
                                const char *overload)
{
	return format(arena, "%s:%s:%s", plain_domain(domain), name, overload);
}

static void list_functions(Reader *r)
{
	r->functions = table_new(r->arena);
	for (size_t i = 0; i < r->proto->n_functions; i++) {
		const FunctionProto *f = r->proto->functions[i];
		*table_cell_s(r->functions,
		              function_key(r->arena, f->domain, f->name, f->overload)) = i + 1;
	}
}

static const FunctionProto *find_function(const Reader *r, const NodeProto *node)
{
	const uint64_t *cell = table_find_s(
	    r->functions, function_key(r->arena, node->domain, node->op_type, node->overload));
	return cell ? r->proto->functions[*cell - 1] : NULL;
}

static void call_function(Call *c, const FunctionProto *f, Value *result)
{
	Space *s = new_space(c->r, c->space);
	s->caller = c;
	s->function = f;
	s->opsets = (const OperatorSetIdProto *const *)f->opset_import;
	s->nopsets = f->n_opset_import;
	for (size_t i = 0; i < f->n_input; i++)
		bind_name(c->r, s, f->input[i],
		          (int)i < c->nin ? c->arg[i] : (Value){.absent = true});
	lower_nodes(c->r, s, f->n_node, f->node);
	for (int i = 0; i < c->nout && i < (int)f->n_output; i++)
		result[i] = look_up(c->r, s, f->output[i]);
}

void lower_body(Call *c, const GraphProto *graph, int nin, const Value *in, int nout, Value *out)
{
	Space *s = new_space(c->r, c->space);
	if ((int)graph->n_input > nin || (int)graph->n_output < nout)
		refuse(c,
		       "its graph takes %zu and gives %zu values, the node brings %d and wants %d",
		       graph->n_input, graph->n_output, nin, nout);
	for (size_t i = 0; i < graph->n_input; i++)
		bind_name(c->r, s, graph->input[i]->name, in[i]);
	bind_weights(c->r, s, graph);
	lower_nodes(c->r, s, graph->n_node, graph->node);
	for (int i = 0; i < nout; i++)
		out[i] = look_up(c->r, s, graph->output[i]->name);
}

// ---- nodes ----------------------------------------------------------------------------

// Looks an operator up at its own first version when that is newer than the file's header says.
static void set_version(Call *c, const Row *row)
{
	c->opset = version_of(c->space->nopsets, c->space->opsets, plain_domain(c->node->domain));
	if (!c->opset && !row->info.domain[0]) // a function that imports no set has its model's
		c->opset = c->r->model->opset;
	if (c->opset >= row->info.since)
		return;
	if (c->opset)
		note(c->r, "%s: the operator is of set %d, the header says %lld; read as of set %d",
		     node_place(c->r->arena, c->node), row->info.since, (long long)c->opset,
		     row->info.since);
	c->opset = row->info.since;
}

// Fails where the operator is unknown, or known and not supported.
static const Row *known_row(Call *c)
{
	const Row *row = find_row(plain_domain(c->node->domain), c->node->op_type);
	if (!row)
		decline(c, "export it decomposed, or as a function that the file holds",
		        "operator %s%s%s is not known", c->node->domain,
		        c->node->domain[0] ? "." : "", c->node->op_type);
	if (row->lower == unsupported)
		unsupported(c);
	return row;
}

static const Counts *counts_or_none(const Counts *counts)
{
	for (int a = 0; a < RANK; a++)
		if (counts->of[a])
			return counts;
	return NULL;
}

static void run_row(Call *c, Value *result)
{
	const Row *row = known_row(c);
	set_version(c, row);
	c->how = row->how;
	for (int k = 0; k < c->nin && row->lower != lower_identity; k++)
		c->in[k] =
		    c->arg[k].weight ? use_weight(c->r, c->arg[k].weight, c, k) : c->arg[k].ref;
	if (any_counted(c))
		lower_counted(c, row);
	else
		row->lower(c);
	for (int i = 0; i < c->nout; i++)
		result[i] = c->out[i] ? (Value){.ref = c->out[i],
		                                .onnx = i ? 0 : c->onnx,
		                                .counts = counts_or_none(&c->counts[i])}
		                      : c->value[i];
}

static void run_call(Call *c, Value *result)
{
	const FunctionProto *f = find_function(c->r, c->node);
	if (f)
		call_function(c, f, result);
	else
		run_row(c, result);
}

static Call new_call(Reader *r, Space *s, const NodeProto *node)
{
	Call c = {.r = r, .g = r->g, .node = node, .space = s};
	c.nin = (int)node->n_input;
	c.nout = (int)node->n_output;
	c.arg = NEWS(r->arena, Value, c.nin + 1);
	c.in = NEWS(r->arena, Ref, c.nin + 1);
	c.out = NEWS(r->arena, Ref, c.nout + 1);
	c.counts = NEWS(r->arena, Counts, c.nout + 1);
	c.value = NEWS(r->arena, Value, c.nout + 1);
	return c;
}

// Operands by name; false when one of them could not be lowered.
static bool bind_operands(Call *c)
{
	for (int k = 0; k < c->nin; k++) {
		const char *name = c->node->input[k];
		c->arg[k] = name[0] ? look_up(c->r, c->space, name) : (Value){.absent = true};
		if (c->arg[k].bad)
			return false;
		if (!c->arg[k].ref && !c->arg[k].weight && !c->arg[k].list && !c->arg[k].absent)
			decline(c, "export without what reads it",
			        "operand '%s' is a result that amosc does not compute", name);
	}
	return true;
}

typedef struct Lowered { // a node and what it gives
	const NodeProto *node;
	Space *space;
	Value *result;
} Lowered;

static void run_node(Reader *r, void *lowered)
{
	Lowered *l = lowered;
	Call c = new_call(r, l->space, l->node);
	if (bind_operands(&c))
		run_call(&c, l->result);
	else if (!find_function(r, l->node))
		known_row(&c); // told of, even behind another
}

static void lower_node(Reader *r, Space *s, const NodeProto *node)
{
	Lowered l = {node, s, NEWS(r->arena, Value, node->n_output + 1)};
	for (size_t i = 0; i < node->n_output; i++)
		l.result[i].bad = true;
	int from = r->g->from;
	r->g->from = add_node(r->g, node_name(node), node->op_type);
	r->g->nodes.at[r->g->from].module = node_module(r->arena, node);
	r->g->nodes.at[r->g->from].line = node_line(r->arena, node);
	attempt(r, node_place(r->arena, node), run_node, &l);
	r->g->from = from;
	for (size_t i = 0; i < node->n_output; i++)
		if (node->output[i][0])
			bind_name(r, s, node->output[i], l.result[i]);
}

// A node without results is for nobody.
void lower_nodes(Reader *r, Space *s, size_t n, NodeProto *const *node)
{
	for (size_t i = 0; i < n; i++)
		if (node[i]->n_output)
			lower_node(r, s, node[i]);
}

// ---- what the file holds --------------------------------------------------------------

static void count_op(Reader *r, const NodeProto *node)
{
	const char *domain = plain_domain(node->domain);
	for (int i = 0; i < r->model->ops.count; i++) {
		OpCount *o = &r->model->ops.at[i];
		if (!strcmp(o->op, node->op_type) && !strcmp(o->domain, domain)) {
			o->count++;
			return;
		}
	}
	OpCount o = {.domain = domain, .op = node->op_type, .count = 1};
	const Row *row = find_row(domain, node->op_type);
	if (!row)
		o.trouble = "unknown operator";
	else if (row->lower == unsupported)
		o.trouble = row->info.note;
	PUSH(r->arena, r->model->ops, o);
}

static void count_ops(Reader *r, size_t n, NodeProto *const *node)
{
	for (size_t i = 0; i < n; i++) {
		if (!find_function(r, node[i]))
			count_op(r, node[i]);
		for (size_t a = 0; a < node[i]->n_attribute; a++) {
			const GraphProto *body = node[i]->attribute[a]->g;
			if (body)
				count_ops(r, body->n_node, body->node);
		}
	}
}

// ---- outputs --------------------------------------------------------------------------

// An output whose size depends on the data: another one tells it. What is behind is 0, so that no
// gradient comes from there.
static void add_counted_out(Reader *r, const char *name, Ref x, const Counts *counts)
{
	Graph *g = r->g;
	Shape s = val(g, x)->shape;
	Ref size[RANK];
	for (int a = 0; a < s.rank; a++) {
		Ref count = counts->of[a];
		if (count)
			x = fill_behind(g, x, a, count, 0);
		size[a] = put_rank(g, count ? count : put_num(g, E_i64, (double)s.dim[a]), 1);
	}
	add_out(g, name, x);
	add_out(g, format(r->arena, SHAPE_OF "%s", name), put_concat(g, 0, s.rank, size));
}

typedef struct Ends { // of the whole graph
	const Space *top;
	const Input *output;
} Ends;

static void add_output(Reader *r, void *ends)
{
	const Input *declared = ((Ends *)ends)->output;
	Value v = look_up(r, ((Ends *)ends)->top, declared->name);
	Elem type = (Elem)working_type(elems[declared->type].onnx);
	for (int k = 0; v.list && k < v.list->count; k++)
		add_out(r->g, format(r->arena, "%s#%d", declared->name, k),
		        put_cast(r->g, v.list->at[k], type));
	if (v.bad || v.list || v.absent)
		return;
	Ref x = v.weight ? use_weight(r, v.weight, NULL, 0) : v.ref;
	if (!x)
		fail(r->model->path,
		     "output '%s' is a result that amosc does not compute; export without it",
		     declared->name);
	x = put_cast(r->g, x, type);
	if (v.counts)
		add_counted_out(r, declared->name, x, v.counts);
	else
		add_out(r->g, declared->name, x);
}

// The loss that the file tells of goes by that name, whatever it is called there.
static void add_loss(Reader *r)
{
	const char *loss = r->options->loss ? r->file->loss : NULL;
	for (int i = 0; loss && strcmp(loss, "loss") && i < r->g->outs.count; i++)
		if (!strcmp(r->g->outs.at[i].name, loss)) {
			add_out(r->g, "loss", r->g->outs.at[i].val);
			return;
		}
}

static void mark_used(Reader *r)
{
	Graph *g = r->g;
	bool *live = graph_marks(r->arena, g);
	bool *used = NEWS(r->arena, bool, g->slots.count + 1);
	for (int i = 1; i < g->nval; i++)
		if (live[i] && g->val[i].op == O_slot)
			used[g->val[i].attr->i[0]] = true;
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

// The inputs that `x` is computed from stand in when the model is read again.
static void stand_in_nest(Reader *r, const Graph *g, const Nest *f, Ref x)
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

// False when it is to be read again, with more of the inputs' values standing in.
static bool lower_model(Reader *r)
{
	const GraphProto *graph = r->proto->graph;
	Space *top = new_space(r, NULL);
	top->opsets = (const OperatorSetIdProto *const *)r->proto->opset_import;
	top->nopsets = r->proto->n_opset_import;
	bind_weights(r, top, graph);
	for (int i = 0; i < r->unread.count; i++)
		bind_name(r, top, r->unread.at[i], (Value){.bad = true});
	for (int i = 0; i < r->model->inputs.count; i++)
		add_input(r, top, &r->model->inputs.at[i]);
	read_roles(r);
	lower_nodes(r, top, graph->n_node, graph->node);
	for (int i = 0; i < r->model->outputs.count; i++)
		attempt(r, NULL, add_output, &(Ends){top, &r->model->outputs.at[i]});
	add_loss(r);
	if (r->again)
		return false;
	check_choices(r);
	settle_troubles(r);
	mark_used(r);
	note_roles(r);
	r->model->graph = graph_live(r->arena, r->g);
	return true;
}

// Without sizes no node can be lowered, but operators that none would help are told of.
static void tell_unsupported(Reader *r, void *node)
{
	Call c = new_call(r, new_space(r, NULL), node);
	if (!find_function(r, node))
		known_row(&c);
}

static _Noreturn void fail_unbound(Reader *r, const char *unbound)
{
	const GraphProto *g = r->proto->graph;
	for (size_t i = 0; i < g->n_node; i++)
		attempt(r, NULL, tell_unsupported, g->node[i]);
	if (!r->troubles.count)
		fail(r->model->path, "%s", unbound);
	PUSH(r->arena, r->troubles, unbound);
	settle_troubles(r);
	never("troubles settled");
}

// NULL when it is to be read again.
static Model *read_as(Arena *arena, File *file, const ReadOptions *options, bool *stands)
{
	Reader *r = NEW(arena, Reader);
	Model *m = NEW(arena, Model);
	m->arena = arena;
	m->path = strcmp(file->path, "-") ? file->path : "standard input";
	*r = (Reader){.arena = arena, .model = m, .options = options, .stands = stands};
	m->file = r->file = file;
	r->met = NEWS(arena, bool, options->nfreeze + 1);
	r->proto = file->proto;
	r->slot_names = table_new(arena);
	read_header(r);
	list_functions(r);
	list_inputs(r);
	count_ops(r, r->proto->graph->n_node, r->proto->graph->node);
	for (size_t i = 0; i < r->proto->n_functions; i++)
		count_ops(r, r->proto->functions[i]->n_node, r->proto->functions[i]->node);
	const char *unbound = bind_dimensions(r);
	if (options->list)
		return m;
	if (unbound)
		fail_unbound(r, unbound);
	r->g = graph_new(arena, m->path, book_builtin());
	if (!lower_model(r))
		return NULL;
	m->external = m->file->outside.count > 0;
	return m;
}

Model *read_model(Arena *arena, const char *path, const ReadOptions *options)
{
	File *file = open_file(arena, path);
	file->proto = unpack(arena, file);
	order_nodes(arena, file->proto);
	read_training(file, options->loss);
	bool *stands = NEWS(arena, bool, options->nknown + 1);
	Model *m = NULL;
	while (!m)
		m = read_as(arena, file, options, stands);
	return m;
}
