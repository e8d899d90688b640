// lower.c: lowers the nodes of the main graph, of functions and of bodies in order.
// Input: the nodes and the values that their inputs' names stand for. Output: those of their
// outputs' names. Invariant: a name is given once; a node that cannot be lowered is reported, and
// the nodes after it are lowered all the same.
#include "lower.h"
#include <string.h>

enum {
	DEEPEST = 64,   // graphs and functions inside one another
	OLDER_NORM = 9, // the last opset whose BatchNormalization has five results
};

static const char *node_name(const NodeProto *node)
{
	if (node->name[0])
		return node->name;
	for (size_t i = 0; i < node->n_output; i++)
		if (node->output[i][0])
			return node->output[i];
	return "without a name";
}

const char *node_where(Arena *arena, const NodeProto *node)
{
	return format(arena, "node '%s' (%s)", node_name(node), node->op_type);
}

// ---- names ----------------------------------------------------------------------------

NameScope *new_space(Reader *r, NameScope *outer)
{
	NameScope *s = NEW(r->arena, NameScope);
	*s = (NameScope){.outer = outer,
	                 .names = table_lent(r->arena),
	                 .opsets = outer ? outer->opsets : r->opsets,
	                 .depth = outer ? outer->depth + 1 : 0,
	                 .nest = r->nest};
	if (s->depth > DEEPEST)
		fail(r->model->path, "graphs or functions nested more than %d deep", DEEPEST);
	return s;
}

static void bind_value(Reader *r, NameScope *s, const char *name, const Value *v)
{
	uint64_t *cell = table_cell_s(s->names, name);
	if (*cell)
		fail(r->model->path, "two values have the name '%s'" HELP EXPORT_AGAIN, name);
	*cell = (uintptr_t)v;
}

void bind_name(Reader *r, NameScope *s, const char *name, Value v)
{
	bind_value(r, s, name, take_copy(r->arena, &v, sizeof v));
}

void bind_bad(Reader *r, NameScope *s, const char *name)
{
	if (!table_find_s(s->names, name))
		bind_name(r, s, name, (Value){.bad = true});
}

// The names in a function's body are its own; those in a subgraph may be the surrounding graph's.
Value look_up(Reader *r, const NameScope *s, const char *name)
{
	for (const NameScope *at = s; at; at = at->function ? NULL : at->outer) {
		const Value *found = table_pointer_s(at->names, name);
		if (!found)
			continue;
		Value v = *found;
		if (r->nest == at->nest)
			return v;
		// A value around the loop whose body is being lowered is brought in.
		v.ref = bring_in(r, v.ref, at->nest);
		if (v.list) {
			List list = {.count = v.list->count};
			list.at = NEWS(r->arena, Ref, list.count + 1);
			for (int k = 0; k < list.count; k++)
				list.at[k] = bring_in(r, v.list->at[k], at->nest);
			v.list = take_copy(r->arena, &list, sizeof list);
		}
		return v;
	}
	fail(r->model->path, "'%s' is undefined or part of a cycle" HELP EXPORT_AGAIN, name);
}

// ---- initializers ---------------------------------------------------------------------

static void bind_weight(Reader *r, NameScope *s, const void *tensor)
{
	const TensorProto *t = tensor;
	if (t->data_type == TEXT && r->text) {
		bind_bad(r, s, t->name);
		return;
	}
	if (working_type(t->data_type) < 0)
		fail(r->model->path, "initializer '%s' has %s" HELP "%s", t->name,
		     type_trouble(r->arena, t->data_type), other_type);
	Weight *w = NEW(r->arena, Weight);
	*w = (Weight){.proto = t, .name = t->name, .slot = -1};
	w->type = number_type(r->g, t->data_type);
	w->shape = tensor_shape(r->model->path, t);
	w->origin = w;
	w->inner = s->depth > 0;
	const Reading *first = w->inner ? NULL : find_name(r->file, t->name)->first;
	for (const Reading *at = first; at; at = at->next) {
		w->uses++;
		w->table |=
		    !strcmp(at->node->op_type, "Gather") && !strcmp(at->node->input[0], t->name);
	}
	PUSH(r->arena, r->weights, w);
	uint64_t *cell = table_cell_s(r->named, w->name);
	*cell = *cell ? *cell : (uintptr_t)w;
	bind_name(r, s, w->name, (Value){.weight = w});
}

void bind_weights(Reader *r, NameScope *s, const GraphProto *graph)
{
	if (graph->n_sparse_initializer)
		fail(r->model->path,
		     "initializer '%s' is sparse; expected a dense tensor" HELP "export it dense",
		     graph->sparse_initializer[0]->values
		         ? graph->sparse_initializer[0]->values->name
		         : "?");
	for (size_t i = 0; i < graph->n_initializer; i++) {
		const TensorProto *t = graph->initializer[i];
		if (!attempt(r, NULL, bind_weight, s, t))
			bind_bad(r, s, t->name);
	}
}

// ---- functions ------------------------------------------------------------------------

static const char *function_key(Arena *arena, const char *domain, const char *name,
                                const char *overload)
{
	return format(arena, "%s:%s:%s", plain_domain(domain), name, overload);
}

// True for an operator of ONNX in the sets that the file imports. It wins over a function of its
// name: the specification leaves that to the runtime, and ONNX's checker, its reference evaluator
// and ONNX Runtime look for operators first. In other domains the file says what it means.
static bool is_standard(const Reader *r, const char *domain, const char *op)
{
	domain = plain_domain(domain);
	if (*domain && !starts_with(domain, "ai.onnx."))
		return false;
	const OpRow *row = find_row(domain, op);
	return row && row->lower != unsupported && version_of(r->opsets, domain) >= row->info.since;
}

void list_functions(Reader *r)
{
	r->functions = table_new(r->arena);
	for (size_t i = 0; i < r->proto->n_functions; i++) {
		const FunctionProto *f = r->proto->functions[i];
		uint64_t *cell = table_cell_s(
		    r->functions, function_key(r->arena, f->domain, f->name, f->overload));
		if (*cell)
			fail(r->model->path, "function '%s' is defined twice" HELP EXPORT_AGAIN,
			     f->name);
		LocalFunction *function = NEW(r->arena, LocalFunction);
		*function =
		    (LocalFunction){f, list_opsets(r->arena, f->n_opset_import, f->opset_import)};
		*cell = (uintptr_t)function;
		if (is_standard(r, f->domain, f->name))
			note(r, "function '%s' has the name of an ONNX operator, which is used",
			     f->name);
	}
}

const LocalFunction *find_function(const Reader *r, const NodeProto *node)
{
	if (!r->proto->n_functions || is_standard(r, node->domain, node->op_type))
		return NULL;
	return table_pointer_s(r->functions,
	                       function_key(r->arena, node->domain, node->op_type, node->overload));
}

static void call_function(Call *c, const LocalFunction *function, Value *result)
{
	NameScope *s = new_space(c->r, c->space);
	const FunctionProto *f = function->proto;
	s->caller = c;
	s->function = f;
	s->opsets = function->opsets;
	int nin = c->nin;
	while (nin && c->arg[nin - 1].absent)
		nin--;
	if (nin > (int)f->n_input || c->nout > (int)f->n_output)
		invalid_node(c, "the function has %zu %s and %zu %s, the node %d and %d",
		             f->n_input, PLURAL(f->n_input, "input", "inputs"), f->n_output,
		             PLURAL(f->n_output, "output", "outputs"), nin, c->nout);
	for (size_t i = 0; i < f->n_input; i++)
		bind_name(c->r, s, f->input[i],
		          (int)i < c->nin ? c->arg[i] : (Value){.absent = true});
	lower_nodes(c->r, s, f->n_node, f->node);
	for (int i = 0; i < c->nout; i++)
		result[i] = look_up(c->r, s, f->output[i]);
}

void lower_body(Call *c, const GraphProto *graph, int nin, const Value *in, int nout, Value *out)
{
	NameScope *s = new_space(c->r, c->space);
	if ((int)graph->n_input > nin || (int)graph->n_output < nout)
		invalid_node(c, "its graph has %zu %s and %zu %s, the node %d and %d",
		             graph->n_input, PLURAL(graph->n_input, "input", "inputs"),
		             graph->n_output, PLURAL(graph->n_output, "output", "outputs"), nin,
		             nout);
	for (size_t i = 0; i < graph->n_input; i++)
		bind_name(c->r, s, graph->input[i]->name, in[i]);
	bind_weights(c->r, s, graph);
	lower_nodes(c->r, s, graph->n_node, graph->node);
	for (int i = 0; i < nout; i++)
		out[i] = look_up(c->r, s, graph->output[i]->name);
}

// ---- nodes ----------------------------------------------------------------------------

// Fails where the operator is unknown, or known and not supported.
static const OpRow *known_row(Call *c)
{
	const OpRow *row = find_row(plain_domain(c->node->domain), c->node->op_type);
	if (!row)
		unsupported_node(c, "export it decomposed, or as a function that the file holds",
		                 "operator %s%s%s is not known", c->node->domain,
		                 c->node->domain[0] ? "." : "", c->node->op_type);
	if (row->lower == unsupported)
		unsupported(c);
	return row;
}

// True for InstanceNorm with running statistics as PyTorch's older exporter writes it: in files of
// any opset as BatchNormalization with the five results of opset 9.
static bool is_older_norm(const Call *c)
{
	enum { NEWER = 14, RESULTS = 3 };
	return c->opset >= NEWER && c->nout > RESULTS &&
	       !strcmp(c->node->op_type, "BatchNormalization");
}

static void run_row(Call *c, Value *result)
{
	const OpRow *row = known_row(c);
	// An operator that is newer than the file's header says is looked up at its first version.
	c->opset = version_of(c->space->opsets, plain_domain(c->node->domain));
	if (!c->opset && !row->info.domain[0]) // a function that imports no set has its model's
		c->opset = c->r->model->opset;
	if (c->opset && c->opset < row->info.since)
		note(c->r,
		     "%s: the operator is of opset %d, the header says %lld; read as of opset %d",
		     node_where(c->r->arena, c->node), row->info.since, (long long)c->opset,
		     row->info.since);
	c->opset = is_older_norm(c) ? OLDER_NORM : MAX(c->opset, row->info.since);
	check_schema(c);
	c->variant = row->variant;
	for (int k = 0; k < c->nin && row->lower != lower_identity; k++)
		c->in[k] =
		    c->arg[k].weight ? use_weight(c->r, c->arg[k].weight, c, k) : c->arg[k].ref;
	row->lower(c);
	// All results of a Split are of the first one's type.
	bool split = c->nout > 1 && !strcmp(c->node->op_type, "Split");
	int type = c->nout ? result_type(c) : 0;
	for (int i = 0; i < c->nout; i++)
		result[i] = c->out[i] ? (Value){.ref = c->out[i], .onnx = i && !split ? 0 : type}
		                      : c->value[i];
	trace_constant(c, result);
}

static Call begin_call(Reader *r, NameScope *s, const NodeProto *node)
{
	Call c = {.r = r, .g = r->g, .node = node, .space = s};
	c.nin = (int)node->n_input;
	c.nout = (int)node->n_output;
	c.arg = NEWS(r->arena, Value, c.nin + 1);
	c.in = NEWS(r->arena, Ref, c.nin + 1);
	c.value = NEWS(r->arena, Value, c.nout + 1);
	c.out = NEWS(r->arena, Ref, c.nout + 1);
	return c;
}

typedef struct Lowered {
	const NodeProto *node;
	Value *result; // of the node
} Lowered;

static void run_node(Reader *r, NameScope *s, const void *lowered)
{
	const Lowered *l = lowered;
	Call c = begin_call(r, s, l->node);
	const LocalFunction *f = find_function(r, l->node);
	bool bad = false; // an operand could not be lowered
	for (int k = 0; k < c.nin && !bad; k++) {
		const char *name = l->node->input[k];
		Value v = name[0] ? look_up(r, s, name) : (Value){.absent = true};
		if (!v.ref && !v.weight && !v.list && !v.absent && !v.bad)
			unsupported_node(&c, "export without what reads it",
			                 "input '%s' is a result that amosc does not compute",
			                 name);
		c.arg[k] = v;
		bad = v.bad;
	}
	if (bad) {
		if (!f)
			known_row(&c); // reported even after another error
		return;
	}
	detach_operands(&c);
	if (f)
		call_function(&c, f, l->result);
	else
		run_row(&c, l->result);
	detach_results(&c, l->result);
	for (int k = 0; k < c.nout && !s->depth && !s->function; k++)
		l->result[k].ref = known_size(r, l->node, k, l->result[k].ref);
}

// A node without results has no use.
void lower_nodes(Reader *r, NameScope *s, size_t n, NodeProto *const *node)
{
	for (size_t i = 0; i < n; i++) {
		size_t count = node[i]->n_output;
		if (!count)
			continue;
		Lowered l = {node[i], NEWS(r->arena, Value, count)};
		for (size_t k = 0; k < count; k++)
			l.result[k].bad = true;
		int from = r->g->from;
		spend(r->arena, COST_nodes, 1);
		r->g->from = add_node(r->g, node_name(node[i]), node[i]->op_type);
		name_source(r->arena, node[i], &r->g->nodes->list.at[r->g->from]);
		attempt(r, node[i], run_node, s, &l);
		r->g->from = from;
		for (size_t k = 0; k < count; k++)
			if (node[i]->output[k][0])
				bind_value(r, s, node[i]->output[k], &l.result[k]);
	}
}

void check_supported(Reader *r, NameScope *s, const void *node)
{
	Call c = begin_call(r, s, node);
	if (!find_function(r, node))
		known_row(&c);
}
