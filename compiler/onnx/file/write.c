// write.c: writes trained weights into a copy of the file, and sums gradients per initializer.
// Output: a template of a file that differs from the input in the bytes of tensors that have slots;
// in training nodes, which become those of inference; and, if parameters that shared an initializer
// now differ, in a new initializer and the node that reads it. Invariant: the order of fields,
// unknown fields and elements whose value did not change stay. External data: external.c.
#include "write.h"
#include <string.h>

// ---- the new file ---------------------------------------------------------------------

typedef struct Part { // a graph, or a function's body
	const struct Part *outer;
	const Table *opsets; // domain -> version
	Table *makers;       // an output -> the address of its node
} Part;

// ---- nodes for training ---------------------------------------------------------------

// How a node is in training mode: Dropout by an input, BatchNormalization by an attribute or by
// more than one output (which nothing reads: amosc trains no such model), both by is_test 0 in the
// first opsets.
typedef struct Mode {
	int input;                 // that sets the mode; -1: none
	bool batch;                // the statistics of the batch, and outputs for running ones
	bool is_test;              // is_test 1 is wanted
	const AttributeProto *old; // that sets the mode
} Mode;

// The AttributeProto is_test = 1: name, i and type.
static const Bytes is_test = {(const uint8_t *)"\x0a\x07is_test\x18\x01\xa0\x01\x02", 14};

static void set_old_mode(Mode *m, const NodeProto *node)
{
	m->old = find_attribute(node->n_attribute, node->attribute, "is_test");
	m->is_test = !m->old || !m->old->i;
}

static Mode norm_mode(const Part *part, const NodeProto *node, int64_t opset)
{
	Mode m = {.input = -1};
	if (node->n_input < 5)
		return m;
	// Statistics that nodes compute are not running ones: inference uses them too.
	const NodeProto *maker = NULL;
	for (; part && part->makers && !maker; part = part->outer)
		maker = table_pointer_s(part->makers, node->input[3]);
	if (maker && strcmp(maker->op_type, "Identity"))
		return m;
	if (opset < 7)
		set_old_mode(&m, node);
	m.batch = opset < 7 ? m.is_test : node->n_output > 1;
	if (opset >= 14) {
		m.old = find_attribute(node->n_attribute, node->attribute, "training_mode");
		m.batch = m.old && (m.old->i || m.old->ref_attr_name[0]);
	}
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
	int64_t opset = version_of(part->opsets, domain);
	Mode m = {.input = -1};
	if (w->keep_training)
		return m;
	if (!*domain && !strcmp(node->op_type, "BatchNormalization"))
		return norm_mode(part, node, opset);
	for (int i = 0; i < COUNT(drops); i++) {
		int input = drops[i].input;
		if (strcmp(domain, drops[i].domain) || strcmp(node->op_type, drops[i].op))
			continue;
		if (opset < 7 && !*domain)
			set_old_mode(&m, node);
		else if ((int)node->n_input > input && node->input[input][0])
			m.input = input;
	}
	return m;
}

// ---- messages -------------------------------------------------------------------------
// Each is written field by field, with the unpacked message next to it: a message without a change
// keeps its bytes.

static Table *list_makers(Arena *arena, size_t n, NodeProto *const *node)
{
	Table *makers = table_new(arena);
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < node[i]->n_output; k++)
			if (node[i]->output[k][0])
				*table_cell_s(makers, node[i]->output[k]) = (uintptr_t)node[i];
	return makers;
}

// Returns the node of a field by its first output, because nodes were sorted; NULL: unknown.
static const NodeProto *node_at(const ModelWriter *w, const Part *part, Bytes at)
{
	for (Field f; part->makers && next_field(w->m->path, &at, &f);)
		if (f.number == F_node_output && f.body.count)
			return table_pointer_s(
			    part->makers,
			    format(w->arena, "%.*s", (int)f.body.count, (const char *)f.body.at));
	return NULL;
}

// Returns the k-th unpacked message of a field of `m`; NULL: unknown.
static const ProtobufCMessage *message_at(const ProtobufCMessage *m,
                                          const ProtobufCFieldDescriptor *field, size_t k)
{
	const char *at = (const char *)m;
	if (m && field->label != PROTOBUF_C_LABEL_REPEATED)
		return *(ProtobufCMessage *const *)(at + field->offset);
	if (!m || k >= *(const size_t *)(at + field->quantifier_offset))
		return NULL;
	return (*(ProtobufCMessage *const *const *)(at + field->offset))[k];
}

static void add_message(ModelWriter *, PieceTable *, const Field *,
                        const ProtobufCMessageDescriptor *, const ProtobufCMessage *, const Part *);

// Adds the fields of a message of type `kind`; `m`: the unpacked message, or NULL.
static void add_fields(ModelWriter *w, PieceTable *p, Bytes at,
                       const ProtobufCMessageDescriptor *kind, const ProtobufCMessage *m,
                       const Part *part)
{
	enum { FIELDS = 16 };
	size_t met[FIELDS] = {0};
	if (kind->n_fields > FIELDS)
		bug("%s has %u fields", kind->name, kind->n_fields);
	for (Field f; next_field(w->m->path, &at, &f);) {
		const ProtobufCFieldDescriptor *field = message_field(&f, kind);
		if (field)
			add_message(w, p, &f, field->descriptor,
			            message_at(m, field, met[field - kind->fields]++), part);
		else
			add_piece(p, f.all);
	}
}

// Adds what a node reads as input k; `old`: the field of it, or NULL if it has no such input.
static void add_input(const ModelWriter *w, PieceTable *p, const NodeProto *node, int k,
                      const Mode *mode, const Field *old)
{
	Operand operand = {node, k};
	const uint64_t *cell = table_find(w->inputs, &operand, sizeof operand);
	const Renamed *renamed = cell ? (const Renamed *)(uintptr_t)*cell : NULL;
	if (k == mode->input) {
		add_bytes(p, F_node_input, text_bytes(""));
		return;
	}
	p->when = renamed ? -renamed->when : 0;
	if (old)
		add_piece(p, old->all);
	p->when = -p->when;
	if (renamed)
		add_bytes(p, F_node_input, text_bytes(renamed->name));
	p->when = 0;
}

static void add_node_fields(ModelWriter *w, PieceTable *p, Bytes at, const NodeProto *node,
                            const Part *part)
{
	Mode mode = training_mode(w, part, node);
	int input = 0, output = 0, attribute = 0;
	for (Field f; next_field(w->m->path, &at, &f);) {
		const AttributeProto *a =
		    f.number == F_node_attribute ? node->attribute[attribute++] : NULL;
		bool left_out = f.number == F_node_output && output++ > 0 && mode.batch;
		left_out |= a && a == mode.old && (mode.batch || mode.is_test);
		if (f.number == F_node_input)
			add_input(w, p, node, input++, &mode, &f);
		else if (a && !left_out)
			add_message(w, p, &f, a->base.descriptor, &a->base, part);
		else if (!left_out)
			add_piece(p, f.all);
	}
	add_input(w, p, node, input, &mode, NULL); // a bias that was left out
	if (mode.is_test)
		add_bytes(p, F_node_attribute, is_test);
}

// Returns what is written to a tensor or an attribute; NULL: it stays.
static const Patch *patch_of(const ModelWriter *w, const void *home)
{
	const uint64_t *cell = table_find(w->patches, &home, sizeof home);
	return cell ? (const Patch *)(uintptr_t)*cell : NULL;
}

static void add_old_tensor(ModelWriter *w, PieceTable *p, const Field *old, const TensorProto *t)
{
	if (!t)
		t = unpack(w->arena, w->m->path, &tensor_proto__descriptor, old->body);
	const Patch *patch = patch_of(w, t);
	int tensor = begin_field(p);
	if (t->data_location == 1)
		add_outside(w, p, old->body, t, patch);
	else if (patch)
		add_tensor_fields(w, p, old->body, t, patch);
	else
		add_piece(p, old->body);
	end_field(p, tensor, old->number, old);
}

static void add_message(ModelWriter *w, PieceTable *p, const Field *old,
                        const ProtobufCMessageDescriptor *kind, const ProtobufCMessage *m,
                        const Part *outer)
{
	if (kind == &tensor_proto__descriptor) {
		add_old_tensor(w, p, old, (const TensorProto *)m);
		return;
	}
	bool main_graph = m == &w->m->file->proto->graph->base;
	const NodeProto *node = NULL;
	Part part = *outer;
	if (m && kind == &function_proto__descriptor) {
		const FunctionProto *f = (const FunctionProto *)m;
		part = (Part){NULL, list_opsets(w->arena, f->n_opset_import, f->opset_import),
		              list_makers(w->arena, f->n_node, f->node)};
	} else if (m && kind == &graph_proto__descriptor && (outer->makers || main_graph)) {
		const GraphProto *g = (const GraphProto *)m;
		part = (Part){outer, outer->opsets, list_makers(w->arena, g->n_node, g->node)};
	} else if (kind == &node_proto__descriptor) {
		node = node_at(w, &part, old->body); // NULL in training information: not read
		m = NULL;
	}
	if (main_graph && w->graphs++)
		fail(w->m->path, "the file stores its graph in several parts: it cannot be written "
		                 "back" HELP EXPORT_AGAIN);
	const Patch *floats = kind == &attribute_proto__descriptor ? patch_of(w, m) : NULL;
	int message = begin_field(p);
	if (floats)
		add_attribute_fields(w, p, old->body, (const AttributeProto *)m, floats);
	else if (node)
		add_node_fields(w, p, old->body, node, &part);
	else
		add_fields(w, p, old->body, kind, m, &part);
	for (int i = 0; main_graph && i < w->extras.count; i++)
		add_new_tensor(w, p, &w->extras.at[i]);
	end_field(p, message, old->number, old);
}

// ---- files ----------------------------------------------------------------------------

const struct amos_template *model_template(const Model *m, Arena *arena, bool keep_training)
{
	ModelWriter w = {.arena = arena,
	                 .m = m,
	                 .keep_training = keep_training,
	                 .names = table_new(arena),
	                 .inputs = table_new(arena),
	                 .patches = table_new(arena),
	                 .placed = table_new(arena),
	                 .data = {.arena = arena}};
	plan_writing(&w);
	const ModelProto *proto = m->file->proto;
	const Part none = {.opsets =
	                       list_opsets(arena, proto->n_opset_import, proto->opset_import)};
	PieceTable model = {.arena = arena};
	add_fields(&w, &model, m->file->bytes, proto->base.descriptor, &proto->base, &none);
	struct amos_template *t = NEW(arena, struct amos_template);
	*t = (struct amos_template){.model = model.list.at,
	                            .nmodel = model.list.count,
	                            .data = w.data.list.at,
	                            .ndata = w.data.list.count,
	                            .views = w.views.at,
	                            .nviews = w.views.count,
	                            .tests = w.tests.at,
	                            .ntests = w.tests.count};
	return t;
}

typedef struct Weights { // of write_model
	const Graph *g;
	Arena *arena;
	const void *(*bytes)(void *, int slot);
	void *context;
} Weights;

static const float *values_of(void *context, int64_t slot)
{
	const Weights *w = context;
	const Slot *s = &w->g->slots.at[slot];
	const void *x = w->bytes(w->context, (int)slot);
	x = x ? x : s->init;
	return x ? x : NEWS(w->arena, float, count_of(&s->shape) + 1); // a bias that was left out
}

void write_model(const Model *m, const char *path, bool keep_training,
                 const void *(*bytes)(void *, int slot), void *context)
{
	Arena *arena = arena_new();
	Weights weights = {m->graph, arena, bytes, context};
	int status = amos_template_file(
	    &(struct amos_weights){model_template(m, arena, keep_training), values_of, &weights},
	    path);
	arena_free(arena);
	need_done(status);
}

// ---- slots in terms of initializers ---------------------------------------------------

int slot_homes(const Graph *g, Arena *arena, int slot, SlotHome **homes)
{
	static const char *const views[] = {[COPY_SAME] = NULL,
	                                    [COPY_TRANSPOSED] = "transpose",
	                                    [COPY_COMPLEMENT] = "1 - x",
	                                    [COPY_REPEATED] = "repeat"};
	VEC(const View *) all = {0}; // the view that was found first comes last
	for (const View *v = g->slots.at[slot].view; v; v = v->next)
		PUSH(arena, all, v);
	Table *met = table_new(arena);
	int n = 0;
	*homes = NEWS(arena, SlotHome, all.count + 1);
	for (int k = all.count - 1; k >= 0; k--) {
		const View *v = all.at[k];
		if (!v->weight) // a bias that was left out
			continue;
		if (!(*table_cell_s(met, format(arena, "%d %s", (int)v->copy, v->weight->name)))++)
			(*homes)[n++] = (SlotHome){v->weight->name, views[v->copy]};
	}
	return n;
}

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
