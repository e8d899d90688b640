// read.c: reads a model file as one Graph: header, inputs, nodes, outputs.
// Invariant: shapes are integers from the start, so that the shape arithmetic of exporters folds in
// the door. All that cannot be lowered is listed in one failure.
#include "lower.h"
#include <stdlib.h>
#include <string.h>

enum { OLDEST = 1, NEWEST = 27 };

// True for the first call with a text.
static bool is_new(Reader *r, const char *text)
{
	return !(*table_cell_s(r->noted, text))++;
}

void note(Reader *r, const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	const char *text = vformat(r->arena, fmt, args);
	va_end(args);
	if (is_new(r, text))
		PUSH(r->arena, r->model->notes, text);
}

void doubt(Reader *r, const char *text)
{
	int before = r->model->notes.count;
	note(r, "%s", text);
	if (r->model->notes.count > before)
		PUSH(r->arena, r->model->doubts, text);
}

void meet_double(Reader *r, const char *what)
{
	if (!r->model->doubles)
		r->model->doubles = what;
	if (r->options->precision == PRECISION_FILE && !*r->wide)
		r->again = *r->wide = true;
}

// ---- errors ---------------------------------------------------------------------------

bool attempt(Reader *r, const NodeProto *node, Attempt *part, NameScope *s, const void *what)
{
	static const char usual_help[] = "export the model again, or bind other sizes (--bind)";
	Catch caught;
	Graph *g = r->g;
	LoopScope *nest = r->nest;
	Ref active = r->active;
	if (!TRY(caught)) {
		part(r, s, what);
		catch_end(&caught);
		return true;
	}
	const char *help = node ? usual_help : NULL;
	if (r->g && r->g->refused) {
		stand_for(r, r->g->refused);
		help = fixed_sizes;
		r->g->refused = 0;
	}
	r->g = g;
	r->nest = nest;
	r->active = active;
	if (caught.status != STATUS_INPUT)
		fail_again(&caught);
	// WHERE is the file, a node, or the file and a node.
	const char *text = copy_string(r->arena, caught.message), *path = r->model->path;
	size_t where = caught.where, own = strlen(path) + strlen(": ");
	free(caught.message);
	if (where >= own && starts_with(text, path)) {
		text += own;
		where -= own;
	}
	const char *place = node ? node_where(r->arena, node) : NULL;
	if (where && starts_with(text, "node '")) {
		place = format(r->arena, "%.*s", (int)(where - strlen(": ")), text);
		text += where;
	}
	add_error(r, place,
	          !help || strstr(text, HELP) ? text
	                                      : format(r->arena, "%s" HELP "%s", text, help));
	return false;
}

void add_error(Reader *r, const char *where, const char *text)
{
	const char *help = strstr(text, HELP);
	int count = (int)(help ? (size_t)(help - text) : strlen(text));
	Problem problem = {where, format(r->arena, "%.*s", count, text),
	                   help ? help + strlen(HELP) : NULL};
	if (is_new(r, problem_text(r->arena, &problem)))
		PUSH(r->arena, r->problems, problem);
}

void add_unmatched(Reader *r, const char *option, const char *pattern, const char *what, int n,
                   const char *const *names)
{
	add_error(r, NULL,
	          format(r->arena, "--%s '%s' matches no %s; %s", option, pattern, what,
	                 suggest(r->arena, pattern, n, names)));
}

void drop_problems(Reader *r, int count)
{
	while (r->problems.count > count) {
		const Problem *last = &r->problems.at[--r->problems.count];
		*table_cell_s(r->noted, problem_text(r->arena, last)) = false;
	}
}

const char *problem_text(Arena *arena, const Problem *p)
{
	return format(arena, "  %s%s%s%s%s", p->where ? p->where : "", p->where ? ": " : "", p->why,
	              p->help ? "\n    help: " : "", p->help ? p->help : "");
}

static void fail_if_problems(Reader *r)
{
	Text all = {.arena = r->arena};
	r->file->problems = r->problems;
	for (int i = 0; i < r->problems.count; i++)
		say(&all, "\n%s", problem_text(r->arena, &r->problems.at[i]));
	if (all.count)
		fail(r->model->path, "%d %s%s", r->problems.count,
		     PLURAL(r->problems.count, "error", "errors"), all.at);
}

const Problems *problems_of(const File *file)
{
	return &file->problems;
}

// ---- the file -------------------------------------------------------------------------

static void read_header(Reader *r)
{
	Model *m = r->model;
	const ModelProto *proto = r->proto;
	m->ir_version = proto->ir_version;
	m->producer = format(r->arena, "%s%s%s", proto->producer_name,
	                     proto->producer_version[0] ? " " : "", proto->producer_version);
	r->opsets = list_opsets(r->arena, proto->n_opset_import, proto->opset_import);
	m->opset = version_of(r->opsets, "");
	for (size_t i = 0; i < proto->n_opset_import; i++) {
		const OperatorSetIdProto *set = proto->opset_import[i];
		int64_t version = version_of(r->opsets, plain_domain(set->domain));
		if (version != set->version)
			fail(m->path, "imports opsets %lld and %lld of '%s'" HELP EXPORT_AGAIN,
			     (long long)version, (long long)set->version, set->domain);
	}
	bool plain = false;
	for (size_t i = 0; i < proto->graph->n_node && !plain; i++)
		plain = !*plain_domain(proto->graph->node[i]->domain);
	if (m->opset <= 0 && plain)
		fail(m->path, "imports no opset of ai.onnx" HELP EXPORT_AGAIN);
	if (m->ir_version < 3)
		fail(m->path, "IR version %lld; expected 3 or later" HELP EXPORT_AGAIN,
		     (long long)m->ir_version);
	if (m->opset && (m->opset < OLDEST || m->opset > NEWEST))
		fail(m->path,
		     "opset %lld; expected %d to %d" HELP "export with another opset_version",
		     (long long)m->opset, OLDEST, NEWEST);
}

// `known`: positions in the list of operators + 1.
static void count_ops(Reader *r, Table *known, size_t n, NodeProto *const *node)
{
	OpCounts *ops = &r->file->ops;
	for (size_t i = 0; i < n; i++) {
		const char *domain = plain_domain(node[i]->domain), *op = node[i]->op_type;
		uint64_t *cell = find_function(r, node[i])
		                     ? NULL
		                     : table_cell_s(known, format(r->arena, "%s:%s", op, domain));
		if (cell && !*cell) {
			const OpRow *row = find_row(domain, op);
			OpCount o = {domain, op, 0,
			             !row                        ? "unknown operator"
			             : row->lower == unsupported ? row->info.note
			                                         : NULL};
			PUSH(r->file->arena, *ops, o);
			*cell = (uint64_t)ops->count;
		}
		if (cell)
			ops->at[*cell - 1].count++;
		for (size_t a = 0; a < node[i]->n_attribute; a++) {
			const GraphProto *body = node[i]->attribute[a]->g;
			if (body)
				count_ops(r, known, body->n_node, body->node);
		}
	}
}

// ---- outputs --------------------------------------------------------------------------

// Adds an output and, if its size depends on the data, another with its shape. The padding is 0,
// so that it gets no gradient.
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

static void add_output(Reader *r, NameScope *top, const void *output)
{
	const Input *declared = output;
	const char *name = declared->name, *path = r->model->path;
	Value value = look_up(r, top, name);
	Elem type = (Elem)working_type(elems[declared->type].onnx);
	if (declared->onnx == DOUBLE)
		meet_double(r, format(r->arena, "output '%s'", name));
	for (int k = 0; value.list && k < value.list->count; k++)
		add_sized(r, format(r->arena, "%s#%d", name, k),
		          put_cast(r->g, value.list->at[k], type));
	if (value.bad && !r->problems.count)
		fail(path, "output '%s' is computed from text" HELP "%s", name, other_type);
	if (value.bad || value.list || value.absent)
		return;
	Ref x = value.weight ? use_weight(r, value.weight, NULL, 0) : value.ref;
	if (!x)
		fail(path,
		     "output '%s' is a result that amosc does not compute" HELP "export without it",
		     name);
	check_type(r, "output ", name, &value, declared->onnx);
	const Val *v = val(r->g, x);
	// Symbolic and data-dependent sizes match any.
	bool other = declared->rank >= 0 && declared->rank != v->shape.rank;
	for (int a = 0; a < declared->rank && !other; a++)
		other = declared->dim[a].size >= 0 && declared->dim[a].size != v->shape.dim[a] &&
		        !lengths_of(r->g, x)->of[a];
	if (other)
		fail(path, "output '%s' is declared with other dimensions; it is %s", name,
		     shape_text(r->arena, v->type, &v->shape));
	add_sized(r, name, put_cast(r->g, x, type));
}

// ---- the graph ------------------------------------------------------------------------

// Returns false if it has to be read again, in double or with more inputs as constants.
static bool lower_model(Reader *r, NameScope *top)
{
	const GraphProto *graph = r->proto->graph;
	bind_weights(r, top, graph);
	for (int i = 0; i < r->model->inputs.count; i++)
		add_input(r, top, &r->model->inputs.at[i]);
	read_roles(r);
	read_detached(r);
	find_symbols(r);
	lower_nodes(r, top, graph->n_node, graph->node);
	for (int i = 0; i < r->model->outputs.count; i++)
		attempt(r, NULL, add_output, top, &r->model->outputs.at[i]);
	// The loss of the file's training information is also an output named loss.
	const char *named = r->options->loss ? r->file->loss : NULL;
	Ref loss = named && strcmp(named, "loss") ? find_output(r->g, named) : 0;
	if (loss)
		add_out(r->g, "loss", loss);
	check_infos(r, top);
	if (r->file->beyond)
		meet_double(r, "a constant");
	for (int i = 0; i < r->checks.count; i++)
		add_out(r->g, r->checks.at[i].text, r->checks.at[i].index);
	if (r->again)
		return false;
	check_choices(r);
	check_detached(r);
	fail_if_problems(r);
	mark_used(r);
	note_roles(r);
	doubt_blocks(r);
	list_untrained(r);
	r->model->graph = graph_live(r->arena, r->g);
	return true;
}

// Returns NULL if it has to be read again.
static Model *read_as(Arena *arena, File *file, const ReadOptions *options, bool *stands,
                      bool *wide)
{
	Reader *r = NEW(arena, Reader);
	Model *m = NEW(arena, Model);
	const ModelProto *proto = file->proto;
	m->arena = arena;
	m->path = strcmp(file->path, "-") ? visible(arena, file->path, false) : "standard input";
	m->file = file;
	*r = (Reader){.arena = arena,
	              .file = file,
	              .model = m,
	              .options = options,
	              .proto = proto,
	              .stands = stands,
	              .wide = wide,
	              .met = NEWS(arena, bool, options->nselect + 1),
	              .met_detach = NEWS(arena, bool, options->ndetach + 1),
	              .noted = table_new(arena),
	              .attributes = table_new(arena),
	              .named = table_lent(arena),
	              .same_names = table_new(arena)};
	if (!options->list)
		file->problems = (Problems){0};
	read_header(r);
	list_functions(r);
	NameScope *top = new_space(r, NULL);
	list_inputs(r, top);
	if (!file->ops.count) {
		Table *known = table_lent(arena);
		count_ops(r, known, proto->graph->n_node, proto->graph->node);
		for (size_t i = 0; i < proto->n_functions; i++)
			count_ops(r, known, proto->functions[i]->n_node, proto->functions[i]->node);
	}
	m->ops = file->ops;
	const char *unbound = bind_dimensions(r);
	if (options->list)
		return m;
	if (unbound) {
		for (size_t i = 0; i < proto->graph->n_node; i++)
			attempt(r, NULL, check_supported, top, proto->graph->node[i]);
		if (!r->problems.count)
			fail(m->path, "%s", unbound);
		add_error(r, NULL, unbound);
		fail_if_problems(r);
	}
	r->g = graph_new(arena, m->path, book_builtin());
	r->g->wide = *wide;
	static const Elem products[] = {
	    [PRECISION_BF16] = E_bf16, [PRECISION_F16] = E_f16, [PRECISION_TF32] = E_f32};
	r->g->products = options->precision <= PRECISION_TF32 ? products[options->precision] : 0;
	r->g->loss_scale = options->loss_scale;
	return lower_model(r, top) ? m : NULL;
}

// Names become visible here, where they enter, so they are wherever they leave. Metadata, which are
// parsed, stay as they are.
static void show_names(Arena *arena, ProtobufCMessage *m)
{
	if (m->descriptor == &string_string_entry_proto__descriptor)
		return;
	for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
		bool text = f->type == PROTOBUF_C_TYPE_STRING;
		if (!text && f->type != PROTOBUF_C_TYPE_MESSAGE)
			continue;
		void *at = (char *)m + f->offset, **list = at;
		size_t count = !(f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) ||
		               *(uint32_t *)((char *)m + f->quantifier_offset) == f->id;
		if (f->label == PROTOBUF_C_LABEL_REPEATED) {
			count = *(size_t *)((char *)m + f->quantifier_offset);
			list = *(void ***)at;
		}
		for (size_t k = 0; k < count; k++)
			if (text && list[k])
				list[k] = (char *)visible(arena, list[k], true);
			else if (list[k])
				show_names(arena, list[k]);
	}
}

File *parse_model(Arena *arena, const char *path, bool loss)
{
	File *file = open_file(arena, path);
	if (!file->bytes.count)
		fail(path, "the file is empty");
	allow(arena, path, check_nesting(path, file->bytes), file->bytes.count);
	file->proto = unpack(arena, path, &model_proto__descriptor, file->bytes);
	if (!file->proto->graph)
		fail(path, "an ONNX file without a graph");
	show_names(arena, &file->proto->base);
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

static bool lies_in(const void *at, Bytes bytes)
{
	return (uintptr_t)at - (uintptr_t)bytes.at < bytes.count;
}

uint64_t model_hash(const Model *m)
{
	Bytes file = m->file->bytes;
	uint64_t hash = hash_bytes(file.at, file.count, 0);
	for (int i = 0; i < m->graph->slots.count; i++) {
		const Slot *s = &m->graph->slots.at[i];
		size_t bytes = (size_t)(count_of(&s->shape) * elems[s->type].bytes);
		if (s->init && !lies_in(s->init, file))
			hash = hash_bytes(s->init, bytes, hash);
	}
	return hash;
}
