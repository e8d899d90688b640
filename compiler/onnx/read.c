// read.c: a model file as one Graph: header, inputs, every node lowered in order, outputs.
// Takes a path and the options. Gives a Model. Keeps: shapes are numbers from the start, so that
// the shape arithmetic of exporters folds in the door; whatever cannot be lowered is listed in one
// failure.
#include "lower.h"
#include <stdlib.h>
#include <string.h>

enum { OLDEST = 1, NEWEST = 27 };

void note(Reader *r, const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	const char *text = vformat(r->arena, fmt, args);
	va_end(args);
	uint64_t *known = table_cell_s(r->noted, text);
	if (!*known)
		PUSH(r->arena, r->model->notes, text);
	*known = true;
}

void meet_double(Reader *r, const char *what)
{
	if (!r->model->doubles)
		r->model->doubles = what;
	if (r->options->precision == PRECISION_FILE && !*r->wide)
		r->again = *r->wide = true;
}

// ---- the file -------------------------------------------------------------------------

static char *shown(Arena *arena, char *name)
{
	return name ? (char *)visible(arena, name, true) : NULL;
}

// Names become visible here, where they enter, so they are wherever they leave. Metadata, which are
// parsed, stay as they are.
static void show_names(Arena *arena, ProtobufCMessage *m)
{
	if (m->descriptor == &string_string_entry_proto__descriptor)
		return;
	for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
		void *at = (char *)m + f->offset, **list = at;
		bool chosen = !(f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) ||
		              *(uint32_t *)((char *)m + f->quantifier_offset) == f->id;
		size_t count = chosen;
		if (f->label == PROTOBUF_C_LABEL_REPEATED) {
			count = *(size_t *)((char *)m + f->quantifier_offset);
			list = *(void ***)at;
		}
		for (size_t k = 0; k < count; k++) {
			if (f->type == PROTOBUF_C_TYPE_STRING)
				list[k] = shown(arena, list[k]);
			else if (f->type == PROTOBUF_C_TYPE_MESSAGE && list[k])
				show_names(arena, list[k]);
			else
				break;
		}
	}
}

static ModelProto *unpack(Arena *arena, const File *file)
{
	ProtobufCAllocator allocator = {unpack_take, unpack_free, arena};
	if (!file->bytes.count)
		fail(file->path, "the file is empty");
	size_t nodes = check_nesting(file->path, file->bytes);
	allow(arena, file->path, nodes, file->bytes.count);
	ModelProto *m = model_proto__unpack(&allocator, file->bytes.count, file->bytes.at);
	if (!m)
		fail(file->path, "not an ONNX file, or truncated: its bytes do not parse");
	if (!m->graph)
		fail(file->path, "an ONNX file without a graph");
	show_names(arena, &m->base);
	return m;
}

static const char usual_help[] = "export the model again, or bind other sizes (--bind)";

bool attempt(Reader *r, const NodeProto *node, Attempt *part, void *what)
{
	Catch caught;
	Graph *g = r->g;
	LoopScope *nest = r->nest;
	Ref active = r->active;
	r->help = NULL;
	if (!TRY(caught)) {
		part(r, what);
		catch_end(&caught);
		return true;
	}
	if (r->g && r->g->refused) {
		stand_for(r, r->g->refused);
		r->help = fixed_sizes;
		r->g->refused = 0;
	}
	r->g = g;
	r->nest = nest;
	r->active = active;
	if (caught.status != STATUS_INPUT)
		fail_again(&caught);
	const char *place = node ? node_where(r->arena, node) : NULL;
	const char *path = format(r->arena, "%s: ", r->model->path), *text = caught.message;
	text += starts_with(text, path) ? strlen(path) : 0;
	bool named = !place || strstr(text, "node '");
	const char *help = strstr(text, HELP) ? NULL
	                   : r->help          ? r->help
	                   : place            ? usual_help
	                                      : NULL;
	const char *trouble = format(r->arena, "%s%s%s%s%s", named ? "" : place, named ? "" : ": ",
	                             text, help ? HELP : "", help ? help : "");
	free(caught.message);
	add_error(r, trouble);
	return false;
}

void add_error(Reader *r, const char *text)
{
	const char *help = strstr(text, HELP);
	int count = (int)(help ? (size_t)(help - text) : strlen(text));
	const char *line =
	    format(r->arena, "  %.*s%s%s", count, text, help ? "\n    " : "", help ? help + 1 : "");
	uint64_t *known = table_cell_s(r->noted, line);
	if (!*known)
		PUSH(r->arena, r->errors, line);
	*known = true;
}

static void fail_if_errors(Reader *r)
{
	Text all = {.arena = r->arena};
	for (int i = 0; i < r->errors.count; i++)
		say(&all, "\n%s", r->errors.at[i]);
	if (all.count)
		fail(r->model->path, "%d error%s%s", r->errors.count,
		     r->errors.count == 1 ? "" : "s", all.at);
}

static bool uses_plain_domain(const GraphProto *g)
{
	for (size_t i = 0; i < g->n_node; i++)
		if (!*plain_domain(g->node[i]->domain))
			return true;
	return false;
}

static void check_versions(const Reader *r)
{
	Table *sets = table_new(r->arena);
	for (size_t i = 0; i < r->proto->n_opset_import; i++) {
		const OperatorSetIdProto *set = r->proto->opset_import[i];
		uint64_t *version = table_cell_s(sets, plain_domain(set->domain));
		if (*version && *version != (uint64_t)set->version)
			fail(r->model->path,
			     "opsets %lld and %lld of '%s' are imported; export it again",
			     (long long)*version, (long long)set->version, set->domain);
		*version = (uint64_t)set->version;
	}
}

static void read_header(Reader *r)
{
	Model *m = r->model;
	m->ir_version = r->proto->ir_version;
	m->producer = format(r->arena, "%s%s%s", r->proto->producer_name,
	                     r->proto->producer_version[0] ? " " : "", r->proto->producer_version);
	m->opset = version_of(r->proto->n_opset_import, r->proto->opset_import, "");
	check_versions(r);
	if (m->opset <= 0 && uses_plain_domain(r->proto->graph))
		fail(m->path, "it imports no opset of ai.onnx; export the model again");
	if (m->ir_version < 3)
		fail(m->path, "IR version %lld; amosc reads 3 and later. Export the model again",
		     (long long)m->ir_version);
	if (m->opset && (m->opset < OLDEST || m->opset > NEWEST))
		fail(m->path,
		     "operator set %lld; amosc reads %d to %d. Export with another opset_version",
		     (long long)m->opset, OLDEST, NEWEST);
}

// ---- what the file holds --------------------------------------------------------------

static void count_op(Reader *r, Table *known, const NodeProto *node)
{
	const char *domain = plain_domain(node->domain);
	uint64_t *cell = table_cell_s(known, format(r->arena, "%s:%s", node->op_type, domain));
	if (*cell) {
		r->file->ops.at[*cell - 1].count++;
		return;
	}
	const OpRow *row = find_row(domain, node->op_type);
	OpCount o = {domain, node->op_type, 1,
	             !row                        ? "unknown operator"
	             : row->lower == unsupported ? row->info.note
	                                         : NULL};
	PUSH(r->file->arena, r->file->ops, o);
	*cell = (uint64_t)r->file->ops.count;
}

static void count_ops(Reader *r, Table *known, size_t n, NodeProto *const *node)
{
	for (size_t i = 0; i < n; i++) {
		if (!find_function(r, node[i]))
			count_op(r, known, node[i]);
		for (size_t a = 0; a < node[i]->n_attribute; a++) {
			const GraphProto *body = node[i]->attribute[a]->g;
			if (body)
				count_ops(r, known, body->n_node, body->node);
		}
	}
}

static void list_ops(Reader *r)
{
	Table *known = table_lent(r->arena);
	if (!r->file->ops.count) {
		count_ops(r, known, r->proto->graph->n_node, r->proto->graph->node);
		for (size_t i = 0; i < r->proto->n_functions; i++)
			count_ops(r, known, r->proto->functions[i]->n_node,
			          r->proto->functions[i]->node);
	}
	r->model->ops = r->file->ops;
}

// ---- outputs --------------------------------------------------------------------------

// An output whose size depends on the data: another one tells it. What is behind is 0, so that no
// gradient comes from there.
static void add_sized(Reader *r, const char *name, Ref x)
{
	Graph *g = r->g;
	int rank = val(g, x)->shape.rank;
	Ref size[RANK];
	add_out(g, name, put_all_filled(g, x, 0));
	if (!is_dynamic(g, x))
		return;
	for (int a = 0; a < rank; a++)
		size[a] = put_rank(g, put_length(g, x, a), 1);
	add_out(g, format(r->arena, SHAPE_OF "%s", name), put_concat(g, 0, rank, size));
}

typedef struct Ends { // of the whole graph
	const NameScope *top;
	const Input *output;
} Ends;

// Is a dimension that the file fixes another one? Names and sizes that the data decide fit any.
static bool is_other_shape(const Input *declared, const Shape *s, const Lengths *lengths)
{
	bool other = declared->rank >= 0 && declared->rank != s->rank;
	for (int a = 0; a < declared->rank && !other; a++)
		other = declared->dim[a].size >= 0 && declared->dim[a].size != s->dim[a] &&
		        !lengths->of[a];
	return other;
}

bool is_other_type(Elem declared, Elem type)
{
	bool quantized = is_float(type) && elems[declared].bytes < 4 && declared != E_b8;
	return !quantized &&
	       (is_float(declared) != is_float(type) || (declared == E_b8) != (type == E_b8));
}

static void check_declared(const Reader *r, const Input *declared, Ref x)
{
	const Val *v = val(r->g, x);
	if (is_other_type(declared->type, v->type))
		fail(r->model->path, "output '%s' is declared %s; it is %s", declared->name,
		     elems[declared->type].name, elems[v->type].name);
	if (is_other_shape(declared, &v->shape, lengths_of(r->g, x)))
		fail(r->model->path, "output '%s' is declared with other dimensions; it is %s",
		     declared->name, shape_text(r->arena, v->type, &v->shape));
}

static void add_output(Reader *r, void *ends)
{
	const Input *declared = ((Ends *)ends)->output;
	Value v = look_up(r, ((Ends *)ends)->top, declared->name);
	Elem type = (Elem)working_type(elems[declared->type].onnx);
	if (declared->onnx == DOUBLE)
		meet_double(r, format(r->arena, "output '%s'", declared->name));
	for (int k = 0; v.list && k < v.list->count; k++)
		add_sized(r, format(r->arena, "%s#%d", declared->name, k),
		          put_cast(r->g, v.list->at[k], type));
	if (v.bad && !r->errors.count)
		fail(r->model->path, "output '%s' is made of text; %s", declared->name, other_type);
	if (v.bad || v.list || v.absent)
		return;
	Ref x = v.weight ? use_weight(r, v.weight, NULL, 0) : v.ref;
	if (!x)
		fail(r->model->path,
		     "output '%s' is a result that amosc does not compute; export without it",
		     declared->name);
	check_declared(r, declared, x);
	x = put_cast(r->g, x, type);
	add_sized(r, declared->name, x);
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

// ---- the graph ------------------------------------------------------------------------

// False when it is to be read again, in double or with more of the inputs' values standing in.
static bool lower_model(Reader *r)
{
	const GraphProto *graph = r->proto->graph;
	NameScope *top = new_space(r, NULL);
	top->opsets = r->proto->opset_import;
	top->nopsets = r->proto->n_opset_import;
	bind_weights(r, top, graph);
	for (int i = 0; i < r->unread.count; i++)
		bind_name(r, top, r->unread.at[i], (Value){.bad = true});
	for (int i = 0; i < r->model->inputs.count; i++)
		add_input(r, top, &r->model->inputs.at[i]);
	read_roles(r, top);
	lower_nodes(r, top, graph->n_node, graph->node);
	for (int i = 0; i < r->model->outputs.count; i++)
		attempt(r, NULL, add_output, &(Ends){top, &r->model->outputs.at[i]});
	add_loss(r);
	check_infos(r, top);
	if (r->file->beyond)
		meet_double(r, "a constant");
	for (int i = 0; i < r->checks.count; i++)
		add_out(r->g, r->checks.at[i].text, r->checks.at[i].index);
	if (r->again)
		return false;
	check_choices(r);
	fail_if_errors(r);
	mark_used(r);
	note_roles(r);
	list_untrained(r);
	graph_shrink(r->g);
	r->model->graph = r->g;
	return true;
}

static _Noreturn void fail_unbound(Reader *r, const char *unbound)
{
	const GraphProto *g = r->proto->graph;
	for (size_t i = 0; i < g->n_node; i++)
		attempt(r, NULL, tell_unsupported, g->node[i]);
	if (!r->errors.count)
		fail(r->model->path, "%s", unbound);
	add_error(r, unbound);
	fail_if_errors(r);
	never("troubles settled");
}

// NULL when it is to be read again.
static Model *read_as(Arena *arena, File *file, const ReadOptions *options, bool *stands,
                      bool *wide)
{
	Reader *r = NEW(arena, Reader);
	Model *m = NEW(arena, Model);
	m->arena = arena;
	m->path = strcmp(file->path, "-") ? visible(arena, file->path, false) : "standard input";
	*r = (Reader){.arena = arena, .model = m, .options = options, .stands = stands};
	r->wide = wide;
	m->file = r->file = file;
	r->met = NEWS(arena, bool, options->nfreeze + 1);
	r->proto = file->proto;
	r->noted = table_new(arena);
	read_header(r);
	list_functions(r);
	list_inputs(r);
	list_ops(r);
	const char *unbound = bind_dimensions(r);
	if (options->list)
		return m;
	if (unbound)
		fail_unbound(r, unbound);
	r->g = graph_new(arena, m->path, book_builtin());
	r->g->wide = *wide;
	if (!lower_model(r))
		return NULL;
	return m;
}

File *parse_model(Arena *arena, const char *path, bool loss)
{
	File *file = open_file(arena, path);
	file->proto = unpack(arena, file);
	order_nodes(arena, file->proto);
	list_names(file);
	read_training(file, loss);
	return file;
}

Model *read_model(Arena *arena, const char *path, const ReadOptions *options)
{
	return read_parsed(arena, parse_model(arena, path, options->loss), options);
}

Model *read_parsed(Arena *arena, File *file, const ReadOptions *options)
{
	bool *stands = NEWS(arena, bool, options->nknown + 1);
	bool wide = options->precision == PRECISION_F64;
	Model *m = NULL;
	while (!m)
		m = read_as(arena, file, options, stands, &wide);
	return m;
}

uint64_t model_hash(const Model *m)
{
	uint64_t hash = hash_bytes(m->file->bytes.at, m->file->bytes.count, 0);
	for (int i = 0; i < m->graph->slots.count; i++) {
		const Slot *s = &m->graph->slots.at[i];
		size_t bytes = (size_t)(count_of(&s->shape) * elems[s->type].bytes);
		hash = s->init ? hash_bytes(s->init, bytes, hash) : hash;
	}
	return hash;
}
