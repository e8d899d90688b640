// detach.c: finds the values that no gradient passes, since ONNX has no detach().
// Input: the user's patterns (--detach), and what exporters leave of detach(). Facts: PyTorch's
// newer exporter records on each node the call that it stems from, and writes detach() as an
// Identity. Its optimizer removes such nodes, but calls that read their results still name them:
// "%detach_1". Its older exporter leaves nothing. The call of an embedding names the row that it
// pads with: embedding(w, index, 0). It traces a block of torch.no_grad() or torch.autocast() by
// itself, so that stack traces of its nodes begin in that trace, not in the program. It exports the
// forward of a torch.autograd.Function alone. A detached operand that cannot be found, what looks
// like one, what leaves such a block, and what such a function computes are reported as doubts.
#include "lower.h"
#include <stdlib.h>
#include <string.h>

enum {
	MANY = 16,     // arguments of a call
	MOST = 64,     // nodes of a call
	OPERANDS = 64, // of a node
};

typedef VEC(const NodeProto *) Nodes;

typedef struct TracedCall { // that names a detached value, with the nodes that it became
	const char *text;
	Nodes nodes;
} TracedCall;

typedef struct Arguments { // the tensors among them, in order
	int count;
	const char *name[MANY]; // in the file or, if detached, in the program
	bool detached[MANY];
	bool any; // is detached
} Arguments;

// ---- the user's choice ----------------------------------------------------------------

// Returns true if a pattern matches the name; `met`: notes that it has a match.
static bool find_pattern(const Reader *r, const char *name, bool met)
{
	bool found = false;
	for (int i = 0; i < r->options->ndetach; i++) {
		bool own = matches(r->options->detach[i], name);
		r->met_detach[i] |= own && met;
		found |= own;
	}
	return found;
}

void check_detached(Reader *r)
{
	const GraphProto *graph = r->proto->graph;
	VEC(const char *) names = {0};
	for (size_t i = 0; i < graph->n_node && r->options->ndetach; i++)
		for (size_t k = 0; k < graph->node[i]->n_output; k++)
			PUSH(r->arena, names, graph->node[i]->output[k]);
	for (int i = 0; i < r->options->ndetach; i++) {
		if (!r->met_detach[i])
			add_unmatched(r, "detach", r->options->detach[i],
			              "float that a node computes", names.count, names.at);
	}
}

// ---- calls of the program ---------------------------------------------------------------

// True for detach, detach_1, ..; constants are detached in place: detach_, detach__1.
static bool is_detached_name(const char *name)
{
	static const char detach[] = "detach";
	const char *rest = name + strlen(detach);
	return starts_with(name, detach) &&
	       (!*rest || (*rest == '_' && rest[1] && !rest[1 + strspn(rest + 1, "0123456789")]));
}

// Returns false if there are too many.
static bool read_arguments(const Reader *r, const NodeProto *node, Arguments *args)
{
	const char *at = arguments_of(node), *name;
	*args = (Arguments){0};
	while ((name = next_argument(r, &at))) {
		if (args->count == MANY)
			return false;
		args->any |= args->detached[args->count] = is_detached_name(name);
		args->name[args->count++] = name;
	}
	return true;
}

// Returns how many of the names are this one.
static int count_name(size_t n, const char *const *names, const char *name)
{
	int found = 0;
	for (size_t k = 0; k < n; k++)
		found += !strcmp(names[k], name);
	return found;
}

static int reads(const NodeProto *node, const char *name)
{
	return count_name(node->n_input, (const char *const *)node->input, name);
}

static int arguments_like(const Arguments *args, const char *name)
{
	return count_name((size_t)args->count, args->name, name);
}

static bool is_read(const Nodes *nodes, const char *name)
{
	for (int i = 0; i < nodes->count; i++)
		if (reads(nodes->at[i], name))
			return true;
	return false;
}

static bool is_made(const Nodes *nodes, const char *name)
{
	for (int i = 0; i < nodes->count; i++)
		if (count_name(nodes->at[i]->n_output, (const char *const *)nodes->at[i]->output,
		               name))
			return true;
	return false;
}

static bool is_constant(const Reader *r, const char *name)
{
	const Named *named = find_name(r->file, name);
	return (named->tensor && !is_parameter_name(r, name)) ||
	       (named->maker && !strcmp(named->maker->op_type, "Constant"));
}

// ---- where the detached argument of a call is read ------------------------------------

// True if the node's inputs are the call's arguments, in order, as far as their names are known. An
// argument whose node the optimizer removed goes by another name in the file.
static bool is_in_order(const NodeProto *node, const Arguments *args)
{
	const char *call = call_of(node);
	bool same = (int)node->n_input == args->count && !strstr(call, "rsub") &&
	            !strstr(call, ".addm") && !strstr(call, ".baddbmm");
	for (int k = 0; k < args->count && same; k++)
		same = args->detached[k] || !strcmp(node->input[k], args->name[k]) ||
		       !reads(node, args->name[k]);
	return same;
}

// Returns the one value that the call's nodes read from elsewhere and that none of its arguments
// explains; "" if it is a constant, NULL if there is none, several, or an argument that is missing.
static const char *find_unexplained(const Reader *r, const TracedCall *call, const Arguments *args)
{
	const char *found = NULL;
	bool constant = false;
	for (int k = 0; k < args->count; k++)
		if (!args->detached[k] && !is_read(&call->nodes, args->name[k]))
			return NULL;
	for (int i = 0; i < call->nodes.count; i++) {
		const NodeProto *node = call->nodes.at[i];
		for (size_t k = 0; k < node->n_input; k++) {
			const char *name = node->input[k];
			if (!*name || is_made(&call->nodes, name) || arguments_like(args, name))
				continue;
			if (is_constant(r, name))
				constant = true;
			else if (found && strcmp(found, name))
				return NULL;
			else
				found = name;
		}
	}
	return found || !constant ? found : "";
}

static void mark_operand(Reader *r, const NodeProto *node, size_t k)
{
	if (k < OPERANDS)
		*table_cell(r->detached, &node, sizeof(void *)) |= (uint64_t)1 << k;
}

// True if the user detaches what the call's nodes read.
static bool is_chosen(const Reader *r, const Nodes *nodes)
{
	for (int i = 0; i < nodes->count; i++)
		for (size_t k = 0; k < nodes->at[i]->n_input; k++)
			if (find_pattern(r, nodes->at[i]->input[k], false))
				return true;
	return false;
}

// Returns the one node of the call that reads what others computed; NULL if several do.
static const NodeProto *first_node(const Reader *r, const Nodes *nodes)
{
	const NodeProto *first = NULL;
	for (int i = 0; i < nodes->count; i++)
		for (size_t k = 0; k < nodes->at[i]->n_input; k++) {
			const char *name = nodes->at[i]->input[k];
			if (!*name || is_made(nodes, name) || is_constant(r, name))
				continue;
			if (first && first != nodes->at[i])
				return NULL;
			first = nodes->at[i];
		}
	return first;
}

// Returns the argument that is not in the file and was a call of the same function, or NULL.
static const char *find_like(const Reader *r, const Arguments *args, const char *name)
{
	size_t stem = stem_of(name);
	for (int k = 0; k < args->count; k++)
		if (stem_of(args->name[k]) == stem && !strncmp(args->name[k], name, stem) &&
		    !find_name(r->file, args->name[k])->maker)
			return args->name[k];
	return NULL;
}

// Returns under what other name the node's call reads a value, if the optimizer found its call
// equal to that one, or NULL. Names of values within a call have no meaning to others: these return
// it.
static const char *merged_name(const Reader *r, const NodeProto *node, const char *name,
                               const char *call)
{
	Arguments args;
	const char *own = call_of(node);
	bool result = starts_with(call + 1, format(r->arena, "%s ", name));
	bool other = own && strcmp(own, call) != 0 && read_arguments(r, node, &args) &&
	             arguments_like(&args, name) < reads(node, name) && !args.any;
	return !other ? NULL : result ? find_like(r, &args, name) : name;
}

// True if the optimizer took the call, without its detach(), for another one.
static bool is_merged(const Reader *r, const TracedCall *call)
{
	for (int i = 0; i < call->nodes.count; i++)
		for (size_t k = 0; k < call->nodes.at[i]->n_output; k++) {
			const char *name = call->nodes.at[i]->output[k];
			const Reading *at = find_name(r->file, name)->first;
			for (; at; at = at->next)
				if (merged_name(r, at->node, name, call->text))
					return true;
		}
	return false;
}

// Returns true if argument `at` of the call, a detached value, was found.
static bool find_argument(Reader *r, const TracedCall *call, const Arguments *args, int at)
{
	bool identity = is_read(&call->nodes, args->name[at]); // is still there
	if (identity || is_chosen(r, &call->nodes))
		return true;
	if (is_merged(r, call))
		return false;
	const NodeProto *first = first_node(r, &call->nodes);
	if (first && is_in_order(first, args)) {
		mark_operand(r, first, (size_t)at);
		return true;
	}
	const char *name = find_unexplained(r, call, args);
	for (int i = 0; i < call->nodes.count && name; i++)
		for (size_t k = 0; k < call->nodes.at[i]->n_input; k++)
			if (*name && !strcmp(call->nodes.at[i]->input[k], name))
				mark_operand(r, call->nodes.at[i], k);
	return name != NULL;
}

static void find_arguments(Reader *r, const TracedCall *call)
{
	Arguments args;
	bool all = read_arguments(r, call->nodes.at[0], &args) && call->nodes.count < MOST;
	for (int k = 0; k < args.count; k++)
		if (args.detached[k] && !(all && find_argument(r, call, &args, k)))
			doubt(r, format(r->arena,
			                "gradients pass through '%s', which the exported program "
			                "detached: export it with optimize=False, or give the name "
			                "that it has in the file: --detach",
			                args.name[k]));
}

// ---- what looks as if it were detached --------------------------------------------------

static bool is_marked(const Reader *r, const NodeProto *node, int k)
{
	const uint64_t *marked = table_find(r->detached, &node, sizeof(void *));
	return marked && *marked >> k & 1;
}

// Doubts x + (y - x), which is pointless unless y - x or x in it was detached.
static void find_estimator(Reader *r, const NodeProto *node)
{
	for (int k = 0; node->n_input == 2 && k < 2 && !strcmp(node->op_type, "Add"); k++) {
		const char *x = node->input[1 - k], *change = node->input[k];
		const NodeProto *sub = find_name(r->file, change)->maker;
		if (!sub || strcmp(sub->op_type, "Sub") || sub->n_input != 2 ||
		    strcmp(sub->input[1], x) || is_marked(r, node, k) || is_marked(r, sub, 1) ||
		    find_pattern(r, change, false))
			continue;
		doubt(r, format(r->arena,
		                "%s adds the difference of a value and '%s' to '%s': if the "
		                "exported program detached the difference, give --detach '%s'",
		                node_where(r->arena, node), x, x, change));
	}
}

// Doubts calls with the same parameters and data, of which the optimizer kept one: a program has no
// use for both, unless one reads them detached.
static void find_merged(Reader *r, const NodeProto *node)
{
	for (size_t k = 0; k < node->n_input; k++) {
		const char *name = node->input[k], *like;
		const NodeProto *maker = find_name(r->file, name)->maker;
		const char *call = maker ? call_of(maker) : NULL;
		bool trained = false;
		for (size_t i = 0; call && i < maker->n_input; i++)
			trained |= is_parameter_name(r, maker->input[i]);
		if (trained && (like = merged_name(r, node, name, call)) && strcmp(like, name) != 0)
			doubt(r,
			      format(r->arena,
			             "'%s' and '%s' of the exported program became one value: if "
			             "one of them read detached values, export it with "
			             "optimize=False",
			             name, like));
	}
}

// ---- blocks without gradients -----------------------------------------------------------

static bool is_of_block(const NodeProto *node)
{
	const char *trace = trace_of(node);
	return trace && starts_with(trace, "File \"<eval_with_key>");
}

// True if a node outside of the block, or the caller, reads what a node of it computes.
static bool leaves_block(const Reader *r, const char *name)
{
	const Reading *at = find_name(r->file, name)->first;
	while (at && is_of_block(at->node))
		at = at->next;
	return at || table_find_s(r->outputs, name);
}

// True if the node stems from the forward of a torch.autograd.Function, by the lines of its stack
// trace: a line of the program calls .apply(), and the next place is no layer of PyTorch's.
static bool is_of_function(const Reader *r, const NodeProto *node)
{
	static const char call[] = ".apply(";
	const char *line = trace_of(node);
	bool own = false,
	     called = false; // the place is the program's; the place before made the call
	if (!line || !strstr(line, call))
		return false;
	for (; *line; line = line_after(line)) {
		const char *text = format(r->arena, "%.*s", (int)strcspn(line, "\n"), line);
		if (!starts_with(text + strspn(text, " \t"), "File \"")) {
			called = own && strstr(text, call);
			continue;
		}
		own = !is_torch_path(text);
		if (own && called)
			return true;
		called = false;
	}
	return false;
}

// If the program itself was traced so, all stack traces begin alike, and tell nothing of blocks.
static void find_blocks(Reader *r, const NodeProto *node)
{
	r->blocks |= trace_of(node) && !is_of_block(node);
}

// Returns by Ref whether a gradient reaches a parameter from the value.
static bool *mark_trained(Arena *arena, const Graph *g)
{
	bool *trained = NEWS(arena, bool, g->nval);
	for (int x = 1; x < g->nval; x++) {
		const Val *v = val(g, (Ref)x);
		bool passes = v->op != O_detach && book_differentiates(g->book, v->op) &&
		              (is_float(v->type) || v->op == O_loop);
		if (v->op == O_slot)
			trained[x] = g->slots.at[v->attr->i[0]].kind == S_param;
		for (int k = 0; k < v->nin && passes; k++)
			trained[x] |= trained[v->in[k]];
	}
	return trained;
}

// Reports as a doubt the values of a kind through which gradients reach a parameter. text: what to
// say of them; each: what to write before the name of each.
static void doubt_left(Reader *r, const bool *trained, LeftKind kind, const char *text,
                       const char *each)
{
	enum { FEW = 3 };
	Text names = {.arena = r->arena};
	int found = 0;
	for (int i = 0; i < r->left.count; i++) {
		const Left *left = &r->left.at[i];
		if (left->kind == kind && trained[left->ref] && found++ < FEW)
			say(&names, " %s'%s'", each, left->name);
	}
	if (found > FEW)
		say(&names, " and so on, for %d values", found);
	if (found)
		doubt(r, format(r->arena, "%s%s", text, names.at));
}

void doubt_blocks(Reader *r)
{
	const bool *trained = r->left.count ? mark_trained(r->arena, r->g) : NULL;
	doubt_left(
	    r, trained, LEFT_block,
	    "gradients pass through a block of torch.no_grad() or torch.autocast(): if it is "
	    "no_grad(), give",
	    "--detach ");
	doubt_left(r, trained, LEFT_function,
	           "the backward of a torch.autograd.Function is not in the file: unless it is the "
	           "derivative of the forward, write it with detach(); it computes",
	           "");
}

// ---- the file -------------------------------------------------------------------------

static void list_calls(Reader *r, size_t n, NodeProto *const *node)
{
	VEC(TracedCall) calls = {0};
	Table *by_text = table_lent(r->arena);
	for (size_t i = 0; i < n; i++) {
		const char *text = call_of(node[i]);
		for (size_t a = 0; a < node[i]->n_attribute; a++) {
			const GraphProto *body = node[i]->attribute[a]->g;
			if (body)
				list_calls(r, body->n_node, body->node);
		}
		if (!text || !strstr(text, "%detach"))
			continue;
		uint64_t *cell = table_cell_s(by_text, text);
		if (!*cell) {
			PUSH(r->arena, calls, (TracedCall){.text = text});
			*cell = (uint64_t)calls.count;
		}
		TracedCall *call = &calls.at[*cell - 1];
		if (call->nodes.count < MOST)
			PUSH(r->arena, call->nodes, node[i]);
	}
	for (int i = 0; i < calls.count; i++)
		find_arguments(r, &calls.at[i]);
}

void read_detached(Reader *r)
{
	const GraphProto *graph = r->proto->graph;
	r->detached = table_new(r->arena);
	list_calls(r, graph->n_node, graph->node);
	for (size_t i = 0; i < graph->n_node; i++) {
		find_estimator(r, graph->node[i]);
		find_merged(r, graph->node[i]);
		find_blocks(r, graph->node[i]);
	}
}

// ---- values ---------------------------------------------------------------------------

static Ref put_detached(Graph *g, Ref x)
{
	return x && is_float(val(g, x)->type) ? put1(g, O_detach, x) : x;
}

// Returns v, operand k of the node or its result, as one that no gradient passes.
static Value detached(const Call *c, int k, Value v)
{
	Reader *r = c->r;
	if (v.weight)
		v = (Value){.ref = use_weight(r, v.weight, c, k), .onnx = v.onnx};
	if (v.list) {
		List list = {.count = v.list->count, .at = NEWS(r->arena, Ref, v.list->count + 1)};
		for (int i = 0; i < list.count; i++)
			list.at[i] = put_detached(r->g, v.list->at[i]);
		v.list = take_copy(r->arena, &list, sizeof list);
	}
	v.ref = put_detached(r->g, v.ref);
	return v;
}

// True if the biases of a recurrent node's input and state are only ever added.
static bool adds_biases(const Call *c)
{
	return is_one_of(OPS_recurrent, c->node) &&
	       (strcmp(c->node->op_type, "GRU") != 0 || !attr_int(c, "linear_before_reset", 0));
}

// Detaches a state's bias of zeros that only ONNX has: Keras gives such layers one bias, and two
// would move as one of twice the rate. PyTorch has both.
static void detach_state_bias(Call *c)
{
	enum { BIAS = 3 };
	Reader *r = c->r;
	Weight *w = c->nin > BIAS ? c->arg[BIAS].weight : NULL;
	if (!w || r->options->separate || r->file->trained || !adds_biases(c) ||
	    !is_float(w->type) || w->shape.rank != 2 ||
	    starts_with(r->proto->producer_name, "pytorch"))
		return;
	int64_t half = w->shape.dim[1] / 2;
	for (int64_t i = 0; i < count_of(&w->shape); i++)
		if (i % w->shape.dim[1] >= half && weight_number(r, w, i) != 0)
			return;
	Value b = c->arg[BIAS];
	Ref all = use_weight(r, w, c, BIAS), part[2];
	for (int k = 0; k < 2; k++)
		part[k] = take_range(r->g, all, 1, k * half, half);
	part[1] = put_detached(r->g, part[1]);
	c->arg[BIAS] = (Value){.ref = put_concat(r->g, 1, 2, part), .onnx = b.onnx};
	note(r, "%s: the bias of its state is not trained: it is zero, and added to the input's",
	     node_where(r->arena, c->node));
}

void detach_operands(Call *c)
{
	detach_state_bias(c);
	for (int k = 0; k < MIN(c->nin, OPERANDS); k++)
		if (is_marked(c->r, c->node, k))
			c->arg[k] = detached(c, k, c->arg[k]);
}

static bool holds_floats(const Graph *g, const Value *v)
{
	Ref x = v->list && v->list->count ? v->list->at[0] : v->ref;
	return v->weight ? is_float(v->weight->type) : x && is_float(val(g, x)->type);
}

// Returns the row of the table that the program pads with, which its gradient leaves out; -1: none.
static int64_t padding_row(const NodeProto *node)
{
	const char *padding = argument_of(node, "aten.embedding.default]", 2);
	return padding ? strtoll(padding, NULL, 10) : -1;
}

// Detaches the padding row in rows of a table.
static Ref put_unpadded(Call *c, Ref rows, int64_t padding)
{
	Graph *g = c->g;
	Ref index = c->in[1];
	Shape shape = val(g, index)->shape;
	shape.dim[shape.rank++] = 1;
	Ref pads = put2(g, O_eq, put_reshape(g, index, shape),
	                put_num(g, val(g, index)->type, (double)padding));
	return put3(g, O_select, pads, put_detached(g, rows), rows);
}

// Records result k if it leaves such a block or comes from such a function: the file may not say
// how its gradient is computed.
static void note_left(Call *c, int k, Ref x)
{
	Reader *r = c->r;
	const char *name = c->node->output[k];
	if (c->space->depth)
		return;
	if (r->blocks && is_of_block(c->node) && leaves_block(r, name))
		PUSH(r->arena, r->left, ((Left){name, x, LEFT_block}));
	else if (is_of_function(r, c->node))
		PUSH(r->arena, r->left, ((Left){name, x, LEFT_function}));
}

void detach_results(Call *c, Value *result)
{
	Reader *r = c->r;
	const char *call = call_of(c->node);
	bool traced = call && strstr(call, "aten.detach.");
	int64_t padding = !strcmp(c->node->op_type, "Gather") ? padding_row(c->node) : -1;
	if (padding >= 0 && c->in[0] && c->in[1])
		result->ref = put_unpadded(c, result->ref, padding);
	for (int k = 0; k < c->nout; k++) {
		bool floats = holds_floats(r->g, &result[k]);
		bool chosen = !c->space->function && find_pattern(r, c->node->output[k], floats);
		if (floats && (traced || chosen))
			result[k] = detached(c, 0, result[k]);
		else if (floats && result[k].ref)
			note_left(c, k, result[k].ref);
	}
}
