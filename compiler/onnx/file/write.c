// write.c: trained numbers back into the very bytes of the file, and gradients in the file's own
// terms. Takes the model and its slots' values. Gives a file that differs from the one read in the
// bytes of trained tensors alone; where parameters that shared an initializer have parted, in an
// initializer more and a node that reads it; and in the nodes that are for training, which become
// those of inference. Keeps: the order of fields, unknown fields, and
// every element whose value did not change. External data: external.c.
#include "write.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- the new file ---------------------------------------------------------------------

typedef struct Part { // a graph, or a function's body
	const struct Part *outer;
	size_t nopsets;
	const OperatorSetIdProto *const *opsets;
	Table *makers; // an output -> the address of its node
} Part;

// ---- nodes for training ---------------------------------------------------------------

// How a node says that it trains: Dropout by an operand, BatchNormalization by an attribute or by
// more than one output (which nothing reads: amosc trains no such model), both by is_test 0 in the
// first opsets.
typedef struct Mode {
	int input;                 // that says it; -1: none
	bool batch;                // the statistics of the batch, and outputs for running ones
	bool is_test;              // is_test 1 is wanted
	const AttributeProto *old; // that says it
} Mode;

// The AttributeProto is_test = 1: name, i and type.
static const Bytes is_test = {(const uint8_t *)"\x0a\x07is_test\x18\x01\xa0\x01\x02", 14};

static const AttributeProto *attribute_of(const NodeProto *node, const char *name)
{
	for (size_t i = 0; i < node->n_attribute; i++)
		if (!strcmp(node->attribute[i]->name, name))
			return node->attribute[i];
	return NULL;
}

// Statistics that nodes compute are no running ones: such a node goes by them in inference too.
static bool computes(const Part *part, const char *name)
{
	const uint64_t *maker = NULL;
	for (; part && !maker; part = part->outer)
		maker = table_find_s(part->makers, name);
	return maker && strcmp(((const NodeProto *)(uintptr_t)*maker)->op_type, "Identity");
}

static void set_old_mode(Mode *m, const NodeProto *node)
{
	m->old = attribute_of(node, "is_test");
	m->is_test = !m->old || !m->old->i;
}

static Mode norm_mode(const Part *part, const NodeProto *node, int64_t opset)
{
	Mode m = {.input = -1};
	if (node->n_input < 5 || computes(part, node->input[3]))
		return m;
	if (opset < 7)
		set_old_mode(&m, node);
	m.batch = opset < 7 ? m.is_test : node->n_output > 1;
	if (opset >= 14) {
		m.old = attribute_of(node, "training_mode");
		m.batch = m.old && (m.old->i || m.old->ref_attr_name[0]);
	}
	return m;
}

static Mode dropout_mode(const NodeProto *node, int64_t opset, int input)
{
	Mode m = {.input = -1};
	if (opset < 7 && input == 2 && !*plain_domain(node->domain))
		set_old_mode(&m, node);
	else if ((int)node->n_input > input && node->input[input][0])
		m.input = input;
	return m;
}

static Mode training_mode(const ModelWriter *w, const Part *part, const NodeProto *node)
{
	static const struct {
		const char *domain, *op;
		int input;
	} drops[] = {{"", "Dropout", 2},
	             {"com.microsoft", "BitmaskDropout", 2},
	             {"com.microsoft", "BiasDropout", 4},
	             {"com.microsoft", "BitmaskBiasDropout", 4}};
	const char *domain = plain_domain(node->domain);
	int64_t opset = version_of(part->nopsets, part->opsets, domain);
	if (w->keep_training)
		return (Mode){.input = -1};
	if (!*domain && !strcmp(node->op_type, "BatchNormalization"))
		return norm_mode(part, node, opset);
	for (int i = 0; i < COUNT(drops); i++)
		if (!strcmp(domain, drops[i].domain) && !strcmp(node->op_type, drops[i].op))
			return dropout_mode(node, opset, drops[i].input);
	return (Mode){.input = -1};
}

// ---- graphs ---------------------------------------------------------------------------

static void list_nodes(ModelWriter *w, Part *part, size_t n, NodeProto *const *node)
{
	part->makers = table_new(w->arena);
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < node[i]->n_output; k++)
			if (node[i]->output[k][0])
				*table_cell_s(part->makers, node[i]->output[k]) =
				    (uint64_t)(uintptr_t)node[i];
}

static const char *first_output(ModelWriter *w, const Field *node)
{
	Bytes at = node->body;
	for (Field f; next_field(w->path, &at, &f);)
		if (f.number == F_node_output && f.body.count)
			return format(w->arena, "%.*s", (int)f.body.count, (const char *)f.body.at);
	return NULL;
}

static void add_graph(ModelWriter *, PieceTable *, const Field *old, const Part *outer,
                      const GraphProto *);

static void add_attribute(ModelWriter *w, PieceTable *p, const Field *old, const Part *part,
                          const AttributeProto *a)
{
	PieceTable inside = {.arena = w->arena};
	Bytes at = old->body;
	for (Field f; next_field(w->path, &at, &f);)
		if (f.number == F_attribute_graph && a->g)
			add_graph(w, &inside, &f, part, a->g);
		else
			add_field(w, &inside, &f, &attribute_proto__descriptor);
	add_message(p, old, &inside);
}

static const char *new_input(const ModelWriter *w, const NodeProto *node, int operand)
{
	for (const Rewire *r = w->rewires; r; r = r->next)
		if (r->node == node && r->operand == operand)
			return r->name;
	return NULL;
}

static bool stays(const ModelWriter *w, const NodeProto *node, const Mode *mode)
{
	bool same = mode->input < 0 && !mode->batch && !mode->is_test;
	for (size_t i = 0; i < node->n_attribute; i++)
		same &= !node->attribute[i]->g;
	for (const Rewire *r = w->rewires; r; r = r->next)
		same &= r->node != node;
	return same;
}

static void add_node_fields(ModelWriter *w, PieceTable *p, const Field *old, const Part *part,
                            const NodeProto *node)
{
	PieceTable inside = {.arena = w->arena};
	Bytes at = old->body;
	Mode mode = training_mode(w, part, node);
	if (stays(w, node, &mode)) {
		add_field(w, p, old, &graph_proto__descriptor);
		return;
	}
	int input = 0, output = 0, attribute = 0;
	for (Field f; next_field(w->path, &at, &f);) {
		bool is_input = f.number == F_node_input, is_output = f.number == F_node_output;
		const AttributeProto *a =
		    f.number == F_node_attribute ? node->attribute[attribute++] : NULL;
		const char *name = is_input ? new_input(w, node, input) : NULL;
		if (is_input && input == mode.input)
			name = "";
		if (name)
			add_bytes(&inside, F_node_input, text_bytes(name));
		else if (a && a->g)
			add_attribute(w, &inside, &f, part, a);
		else if (!(is_output && output > 0 && mode.batch) &&
		         !(a && a == mode.old && (mode.batch || mode.is_test)))
			add_field(w, &inside, &f, &node_proto__descriptor);
		input += is_input;
		output += is_output;
	}
	const char *name = new_input(w, node, input);
	if (name)
		add_bytes(&inside, F_node_input, text_bytes(name));
	if (mode.is_test)
		add_bytes(&inside, F_node_attribute, is_test);
	add_message(p, old, &inside);
}

static void add_graph_node(ModelWriter *w, PieceTable *p, const Field *old, const Part *part)
{
	const char *name = first_output(w, old);
	const uint64_t *node = name ? table_find_s(part->makers, name) : NULL;
	if (node)
		add_node_fields(w, p, old, part, (const NodeProto *)(uintptr_t)*node);
	else
		add_field(w, p, old, &graph_proto__descriptor);
}

static void add_graph(ModelWriter *w, PieceTable *p, const Field *old, const Part *outer,
                      const GraphProto *g)
{
	Part part = *outer;
	part.outer = outer;
	list_nodes(w, &part, g->n_node, g->node);
	PieceTable inside = {.arena = w->arena};
	Bytes at = old->body;
	size_t tensor = 0;
	for (Field f; next_field(w->path, &at, &f);) {
		const TensorProto *t =
		    f.number == F_graph_initializer ? g->initializer[tensor++] : NULL;
		const Patch *patch = t ? find_patch(w, t) : NULL;
		if (t && t->data_location == 1)
			add_outside(w, &inside, &f, t, patch);
		else if (patch && patch->changed)
			add_tensor(&inside, w->path, &f, t, patch->x,
			           count_of(&w->m->graph->slots.at[patch->slot].shape));
		else if (f.number == F_graph_node)
			add_graph_node(w, &inside, &f, &part);
		else
			add_field(w, &inside, &f, &graph_proto__descriptor);
	}
	for (int i = 0; i < w->extras.count && g == w->m->file->proto->graph; i++) {
		const Extra *e = &w->extras.at[i];
		add_new_tensor(&inside, e->name, e->type, &e->shape, e->x);
	}
	add_message(p, old, &inside);
}

static void add_function(ModelWriter *w, PieceTable *p, const Field *old, const FunctionProto *f)
{
	Part part = {.nopsets = f->n_opset_import,
	             .opsets = (const OperatorSetIdProto *const *)f->opset_import};
	list_nodes(w, &part, f->n_node, f->node);
	PieceTable inside = {.arena = w->arena};
	Bytes at = old->body;
	for (Field field; next_field(w->path, &at, &field);)
		if (field.number == F_function_node)
			add_graph_node(w, &inside, &field, &part);
		else
			add_field(w, &inside, &field, &function_proto__descriptor);
	add_message(p, old, &inside);
}

static PieceTable new_model(ModelWriter *w)
{
	PieceTable p = {.arena = w->arena};
	Bytes at = w->m->file->bytes;
	int graphs = 0;
	size_t function = 0;
	const ModelProto *proto = w->m->file->proto;
	Part none = {.nopsets = proto->n_opset_import,
	             .opsets = (const OperatorSetIdProto *const *)proto->opset_import,
	             .makers = table_new(w->arena)};
	for (Field f; next_field(w->path, &at, &f);) {
		if (f.number == F_model_function)
			add_function(w, &p, &f, proto->functions[function++]);
		else if (f.number != F_model_graph)
			add_field(w, &p, &f, &model_proto__descriptor);
		if (f.number != F_model_graph)
			continue;
		if (graphs++)
			fail(w->path,
			     "the file says its graph in several parts; it cannot be written back");
		add_graph(w, &p, &f, &none, proto->graph);
	}
	return p;
}

// ---- files ----------------------------------------------------------------------------

static int begin_pieces(struct amos_temp_file *file, const char *path, enum amos_name name,
                        const PieceTable *p)
{
	int status = amos_file_begin(file, path, name);
	for (int i = 0; !status && i < p->list.count; i++)
		fwrite(p->list.at[i].at, 1, p->list.at[i].count, file->to);
	return status; // keeping the file finds what could not be written
}

// The data first, under a name that no file has: whatever model stands at `path` meanwhile, old or
// new, stands beside its own data.
static int write_both(const char *path, const PieceTable *model, const char *data_path,
                      const PieceTable *data)
{
	struct amos_temp_file first, second;
	int status = begin_pieces(&first, data_path, AMOS_FRESH, data);
	if (status)
		return status;
	status = begin_pieces(&second, path, AMOS_NAMED, model);
	if (status) {
		amos_file_drop(&first);
		return status;
	}
	status = amos_file_keep(&first);
	if (status) {
		amos_file_drop(&second);
		return status;
	}
	status = amos_file_keep(&second);
	if (status)
		unlink(data_path);
	return status;
}

static void write_files(ModelWriter *w, const PieceTable *model, const char *data_path)
{
	struct stat about;
	bool replaces = !stat(w->path, &about) && S_ISREG(about.st_mode);
	Bytes old = replaces ? open_file(w->arena, w->path)->bytes : (Bytes){0};
	need_done(write_both(w->path, model, data_path, &w->data));
	remove_old_data(w->arena, w->path, old, data_path);
}

static void write_alone(ModelWriter *w, const PieceTable *model)
{
	struct amos_temp_file file;
	need_done(begin_pieces(&file, w->path, AMOS_NAMED, model));
	need_done(amos_file_keep(&file));
}

void write_model(const Model *m, const char *path, bool keep_training,
                 const void *(*bytes)(void *, int slot), void *context)
{
	ModelWriter w = {
	    .arena = arena_new(), .m = m, .path = path, .keep_training = keep_training};
	w.names = table_new(w.arena);
	w.placed = table_new(w.arena);
	w.data.arena = w.arena;
	const char *data_path = free_data_path(w.arena, path), *slash = strrchr(data_path, '/');
	w.data_name = slash ? slash + 1 : data_path;
	plan_writing(&w, bytes, context);
	PieceTable model = new_model(&w);
	if (w.external)
		write_files(&w, &model, data_path);
	else
		write_alone(&w, &model);
	arena_free(w.arena);
}

// ---- gradients ------------------------------------------------------------------------

void each_initializer(const Model *m, Arena *arena, const double *(*grad)(void *, int slot),
                      void (*each)(void *, const char *name, Shape, const double *), void *context)
{
	Table *first = table_new(arena); // initializer -> its first slot + 1
	int nslot = m->graph->slots.count;
	double **sum = NEWS(arena, double *, nslot + 1);
	for (int s = 0; s < nslot; s++) {
		const Slot *slot = &m->graph->slots.at[s];
		const double *g = slot->file ? grad(context, s) : NULL;
		if (!g)
			continue;
		int64_t n = count_of(&slot->shape);
		uint64_t *cell = table_cell_s(first, slot->file);
		if (!*cell) {
			*cell = (uint64_t)s + 1;
			sum[s] = take_copy(arena, g, sizeof *g * (size_t)n);
			continue;
		}
		for (int64_t i = 0; i < n; i++)
			sum[*cell - 1][i] += g[i];
	}
	for (int s = 0; s < nslot; s++)
		if (sum[s])
			each(context, m->graph->slots.at[s].file, m->graph->slots.at[s].shape,
			     sum[s]);
}
