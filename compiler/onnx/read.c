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
	for (int i = 0; i < r->model->notes.count; i++)
		if (!strcmp(r->model->notes.at[i], text))
			return;
	PUSH(r->arena, r->model->notes, text);
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

static const char usual_cure[] = "export the model again, or bind other sizes (--bind)";

bool attempt(Reader *r, const char *place, Attempt *part, void *what)
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
	if (v.bad && !r->troubles.count)
		fail(r->model->path, "output '%s' is made of text; %s", declared->name, other_type);
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

// ---- the graph ------------------------------------------------------------------------

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
	r->g->wide = options->wide;
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
