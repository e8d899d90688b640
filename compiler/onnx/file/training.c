// training.c: makes a plain graph up to the loss of files that bring their own training.
// It also finds which weights are trained and what is minimized. The file's optimizer is ignored.
// - ONNX Runtime's training graphs contain gradients, and parameters are inputs whose values lie in
//   a checkpoint next to the file. Nodes that the loss needs are kept, and parameters become
//   initializers. From then on this graph is the file.
// - Training information of the standard is a second graph that continues to a loss, gradients and
//   an optimizer. Its nodes that the loss needs go after the graph, and are never written back.
#include "file.h"
#include <string.h>

// ---- what a value needs ---------------------------------------------------------------

typedef VEC(NodeProto *) Nodes;

static void mark(Table *needed, const char *name)
{
	if (name[0])
		*table_cell_s(needed, name) = 1;
}

static bool is_marked(const Table *needed, const char *name)
{
	return table_find_s(needed, name) != NULL;
}

static void mark_operand(const char *name, void *needed)
{
	mark(needed, name);
}

// Returns the nodes that compute marked values, in order, and marks their inputs.
static Nodes needed_nodes(Arena *arena, Table *needed, const GraphProto *g)
{
	Nodes nodes = {0};
	bool *keep = NEWS(arena, bool, g->n_node + 1);
	for (size_t i = g->n_node; i-- > 0;) {
		for (size_t k = 0; k < g->node[i]->n_output; k++)
			keep[i] |= is_marked(needed, g->node[i]->output[k]);
		if (keep[i])
			visit_operands(g->node[i], mark_operand, needed);
	}
	for (size_t i = 0; i < g->n_node; i++)
		if (keep[i])
			PUSH(arena, nodes, g->node[i]);
	return nodes;
}

// Returns a copy of a list of n pointers with room for `more` after them.
static void *with_room(Arena *arena, const void *list, size_t n, size_t more)
{
	void *longer = NEWS(arena, void *, n + more + 1);
	return n ? memcpy(longer, list, sizeof(void *) * n) : longer;
}

// ---- ONNX Runtime's training graphs ---------------------------------------------------

// Returns the parameter that an output is the gradient of, or NULL.
static const char *parameter_of(const File *file, const char *output)
{
	static const char *const ends[] = {"_grad.accumulation.out", "_grad"};
	for (int i = 0; i < COUNT(ends); i++) {
		if (!ends_with(output, ends[i]))
			continue;
		const char *name =
		    format(file->arena, "%.*s", (int)(strlen(output) - strlen(ends[i])), output);
		const Named *found = find_name(file, name);
		if (found->input || found->tensor)
			return name;
	}
	return NULL;
}

// Makes ONNX Runtime's form of BatchNormalization the standard's.
static void plain_operator(Arena *arena, NodeProto *node, int64_t opset)
{
	if (strcmp(node->op_type, "BatchNormInternal") || strcmp(node->domain, "com.microsoft"))
		return;
	node->op_type = copy_string(arena, "BatchNormalization");
	node->domain = copy_string(arena, "");
	node->n_output = MIN(node->n_output, opset < 14 ? 5 : 3);
	for (size_t a = 0; a < node->n_attribute && opset < 14; a++)
		if (!strcmp(node->attribute[a]->name, "training_mode"))
			node->attribute[a] = node->attribute[--node->n_attribute];
}

// Declares a value as an output: as value_info does, else as floats of any shape.
static ValueInfoProto *new_output(const File *file, char *name)
{
	Arena *arena = file->arena;
	ValueInfoProto *out = find_name(file, name)->info;
	if (out)
		return out;
	out = NEW(arena, ValueInfoProto);
	value_info_proto__init(out);
	out->name = name;
	out->type = NEW(arena, TypeProto);
	type_proto__init(out->type);
	out->type->tensor_type = NEW(arena, TensorType);
	tensor_type__init(out->type->tensor_type);
	out->type->tensor_type->elem_type = elems[E_f32].onnx;
	return out;
}

// Adds the outputs that the model had without its loss: the results of its own nodes that nodes of
// the loss read, which have names of ONNX Runtime.
static void add_model_outputs(const File *file)
{
	Arena *arena = file->arena;
	GraphProto *g = file->proto->graph;
	static const char maker[] = "onnx::";
	Table *made = table_new(arena);
	VEC(ValueInfoProto *) outputs = {0};
	for (size_t i = 0; i < g->n_node; i++) {
		bool own = !starts_with(g->node[i]->name, maker);
		for (size_t k = 0; k < g->node[i]->n_output && own; k++)
			mark(made, g->node[i]->output[k]);
		for (size_t k = 0; k < g->node[i]->n_input && !own; k++) {
			char *name = g->node[i]->input[k];
			if (is_marked(made, name))
				PUSH(arena, outputs, new_output(file, name));
		}
	}
	g->output = with_room(arena, g->output, g->n_output, (size_t)outputs.count);
	for (int i = 0; i < outputs.count; i++)
		g->output[g->n_output++] = outputs.at[i];
}

// Turns inputs that the checkpoint holds into initializers, and drops what is not needed.
static void settle_inputs(Arena *arena, GraphProto *g, const Table *needed, const Checkpoint *c)
{
	VEC(TensorProto *) weights = {0};
	size_t kept = 0;
	for (size_t i = 0; i < g->n_initializer; i++)
		if (is_marked(needed, g->initializer[i]->name))
			PUSH(arena, weights, g->initializer[i]);
	for (size_t i = 0; i < g->n_input; i++) {
		TensorProto *held = table_pointer_s(c->tensors, g->input[i]->name);
		if (!is_marked(needed, g->input[i]->name))
			continue;
		if (held)
			PUSH(arena, weights, held);
		else
			g->input[kept++] = g->input[i];
	}
	g->n_input = kept;
	g->initializer = weights.at;
	g->n_initializer = (size_t)weights.count;
}

static void read_runtime_graph(File *file)
{
	Arena *arena = file->arena;
	ModelProto *m = file->proto;
	GraphProto *g = m->graph;
	Table *trained = table_new(arena), *needed = table_new(arena);
	const Checkpoint c = find_checkpoint(file);
	bool gradients = false, held = false;
	size_t kept = 0;
	// Outputs other than gradients stay; the first of them is the loss.
	ValueInfoProto **outputs = NEWS(arena, ValueInfoProto *, g->n_output + 1);
	for (size_t i = 0; i < g->n_output; i++) {
		const char *name = parameter_of(file, g->output[i]->name);
		gradients |= name != NULL;
		mark(name ? trained : needed, name ? name : g->output[i]->name);
		if (!name)
			outputs[kept++] = g->output[i];
	}
	Text missing = {.arena = arena}; // parameters that are inputs without values
	for (size_t i = 0; i < g->n_input; i++) {
		const char *name = g->input[i]->name;
		held |= is_marked(c.tensors, name);
		if (is_marked(trained, name) && !find_name(file, name)->tensor &&
		    !is_marked(c.tensors, name))
			say(&missing, "%s%s", missing.count ? ", " : "", name);
	}
	if (!gradients && !held)
		return;
	if (missing.count)
		fail(file->path,
		     "a training graph of ONNX Runtime, which does not hold its weights: %s" HELP
		     "copy the file 'checkpoint' that was made with it into its directory",
		     missing.at);
	if (!kept)
		fail(file->path, "all its outputs are gradients; expected the loss among them");
	g->output = outputs;
	g->n_output = kept;
	file->loss = outputs[0]->name;
	Nodes nodes = needed_nodes(arena, needed, g);
	g->node = nodes.at;
	g->n_node = (size_t)nodes.count;
	Table *domains = table_new(arena);
	int64_t opset = version_of(list_opsets(arena, m->n_opset_import, m->opset_import), "");
	for (int i = 0; i < nodes.count; i++) {
		plain_operator(arena, nodes.at[i], opset);
		mark(domains, nodes.at[i]->domain);
	}
	add_model_outputs(file);
	settle_inputs(arena, g, needed, &c);
	kept = 0;
	for (size_t i = 0; i < m->n_opset_import; i++) {
		const char *domain = m->opset_import[i]->domain;
		if (!domain[0] || is_marked(domains, domain))
			m->opset_import[kept++] = m->opset_import[i];
	}
	m->n_opset_import = kept;
	// From here on, this graph is the file.
	size_t size = model_proto__get_packed_size(m);
	uint8_t *bytes = take(arena, size + 1);
	model_proto__pack(m, bytes);
	file->bytes = (Bytes){bytes, size};
	file->trained = gradients ? trained : c.trained;
	file->training = "a training graph of ONNX Runtime: read up to its loss, without gradients";
}

// ---- training information -------------------------------------------------------------

// Returns an attribute of the graph's Gradient, or NULL.
static const AttributeProto *gradient_attribute(const GraphProto *g, const char *name)
{
	for (size_t i = 0; i < g->n_node; i++)
		if (!strcmp(g->node[i]->op_type, "Gradient"))
			return find_attribute(g->node[i]->n_attribute, g->node[i]->attribute, name);
	return NULL;
}

static const char *text_of(Arena *arena, ProtobufCBinaryData s)
{
	return format(arena, "%.*s", (int)s.len, (const char *)s.data);
}

static bool is_single_float(const ValueInfoProto *v)
{
	const TensorType *t = v->type ? v->type->tensor_type : NULL;
	int type = t ? working_type(t->elem_type) : -1;
	for (size_t a = 0; t && t->shape && a < t->shape->n_dim; a++)
		if (t->shape->dim[a]->dim_value != 1)
			return false;
	return type >= 0 && is_float(type) && t->shape;
}

// Returns what is differentiated, else the algorithm's only scalar output that updates nothing.
static const char *loss_of(const File *file, const TrainingInfoProto *info)
{
	const GraphProto *g = info->algorithm;
	const AttributeProto *y = gradient_attribute(g, "y");
	const char *loss = NULL;
	Table *updates = table_new(file->arena);
	int count = 0;
	if (y)
		return text_of(file->arena, y->s);
	for (size_t i = 0; i < info->n_update_binding; i++)
		mark(updates, info->update_binding[i]->value);
	for (size_t i = 0; i < g->n_output; i++)
		if (!is_marked(updates, g->output[i]->name) && is_single_float(g->output[i])) {
			loss = g->output[i]->name;
			count++;
		}
	if (count != 1)
		fail(file->path,
		     "its training information has %d outputs that could be the loss, and no "
		     "Gradient that names one" HELP "give the loss with --loss",
		     count);
	return loss;
}

// Returns the initializers that are updated and, if there is a Gradient, differentiated.
static Table *trained_by(const File *file, const TrainingInfoProto *info)
{
	const AttributeProto *xs = gradient_attribute(info->algorithm, "xs");
	Table *trained = table_new(file->arena), *differentiated = table_new(file->arena);
	int count = 0;
	for (size_t k = 0; xs && k < xs->n_strings; k++)
		mark(differentiated, text_of(file->arena, xs->strings[k]));
	for (size_t i = 0; i < info->n_update_binding; i++) {
		const char *name = info->update_binding[i]->key;
		if ((xs && !is_marked(differentiated, name)) || !find_name(file, name)->tensor)
			continue;
		mark(trained, name);
		count++;
	}
	return count ? trained : NULL;
}

static void read_information(File *file, bool loss)
{
	Arena *arena = file->arena;
	const ModelProto *m = file->proto;
	if (!m->n_training_info || !m->training_info[0]->algorithm)
		return;
	const TrainingInfoProto *info = m->training_info[0];
	if (m->n_training_info > 1 && loss)
		fail(file->path,
		     "its training information has %zu algorithms that alternate; expected one" HELP
		     "give the loss with --loss",
		     m->n_training_info);
	if (m->n_training_info > 1)
		return;
	file->trained = trained_by(file, info);
	if (!loss)
		return;
	file->loss = loss_of(file, info);
	file->training = format(arena,
	                        "the loss '%s' and the trained parameters are those of the file's "
	                        "training information; its optimizer is not used",
	                        file->loss);
	const GraphProto *algorithm = info->algorithm;
	GraphProto *g = m->graph;
	Table *needed = table_new(arena);
	mark(needed, file->loss);
	Nodes nodes = needed_nodes(arena, needed, algorithm);
	g->node = with_room(arena, g->node, g->n_node, (size_t)nodes.count);
	g->input = with_room(arena, g->input, g->n_input, algorithm->n_input);
	g->initializer =
	    with_room(arena, g->initializer, g->n_initializer, algorithm->n_initializer);
	g->output = with_room(arena, g->output, g->n_output, algorithm->n_output);
	for (int i = 0; i < nodes.count; i++)
		g->node[g->n_node++] = nodes.at[i];
	for (size_t i = 0; i < algorithm->n_input; i++)
		if (is_marked(needed, algorithm->input[i]->name))
			g->input[g->n_input++] = algorithm->input[i];
	for (size_t i = 0; i < algorithm->n_initializer; i++)
		if (is_marked(needed, algorithm->initializer[i]->name))
			g->initializer[g->n_initializer++] = algorithm->initializer[i];
	for (size_t i = 0; i < algorithm->n_output; i++)
		if (!strcmp(algorithm->output[i]->name, file->loss))
			g->output[g->n_output++] = algorithm->output[i];
}

void read_training(File *file, bool loss)
{
	read_runtime_graph(file);
	read_information(file, loss);
	if (file->training)
		list_names(file);
}
