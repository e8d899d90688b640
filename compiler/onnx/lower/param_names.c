// param_names.c: recovers parameter names.
// Input: the file's metadata, the names of Identity results and of nodes. Output: a name for each
// use of an initializer. Facts: PyTorch's newer exporter writes on each node the call that it stems
// from, with the parameters' names among its arguments (pkg.torch.onnx.fx_node), and in the graph
// what each of them is. Its older one leaves `Identity(kept) -> name` if it merged equal tensors,
// and module paths as names of nodes.
#include "lower.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef struct Target {   // what a placeholder of the traced program is
	const char *name; // in the module's state
	bool parameter;   // else a buffer or a lifted constant
} Target;

static const char folded_from[] = "pkg.onnxscript.optimizer.folded_from";

static const char *property(size_t n, StringStringEntryProto *const *p, const char *key)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(p[i]->key, key))
			return p[i]->value;
	return NULL;
}

static const char *node_property(const NodeProto *node, const char *key)
{
	return property(node->n_metadata_props, node->metadata_props, key);
}

const char *info_property(const Reader *r, const char *name, const char *key)
{
	const ValueInfoProto *info = find_name(r->file, name)->info;
	return info ? property(info->n_metadata_props, info->metadata_props, key) : NULL;
}

// Returns the next text in single quotes, after which `at` moves; NULL at the end.
static const char *next_quoted(Arena *arena, const char **at)
{
	const char *begin = *at ? strchr(*at, '\'') : NULL,
	           *end = begin ? strchr(begin + 1, '\'') : NULL;
	if (!end)
		return NULL;
	*at = end + 1;
	return visible(arena, format(arena, "%.*s", (int)(end - begin) - 1, begin + 1), true);
}

// Returns the module that called: the last but one of "['', 'encoder', 'encoder.layer',
// 'linear_3']". NULL: unknown; "": the whole model.
static const char *module_of(Arena *arena, const NodeProto *node)
{
	const char *scopes = node_property(node, "pkg.torch.onnx.name_scopes"), *scope;
	const char *module = NULL;
	for (const char *last = NULL; (scope = next_quoted(arena, &scopes)); last = scope)
		module = last;
	return module;
}

const char *line_after(const char *line)
{
	line += strcspn(line, "\n");
	return line + (*line == '\n');
}

bool is_torch_path(const char *path)
{
	return strstr(path, "-packages/torch/") || strstr(path, "/torch/nn/modules/");
}

void name_source(Arena *arena, const NodeProto *node, Node *to)
{
	static const char word[] = "File \"", after[] = "\", line ";
	const char *module = module_of(arena, node);
	to->module = module && *module ? module : NULL;
	// The innermost place of a stack trace that is not the framework's own: model.py:32.
	const char *line = trace_of(node);
	for (; line && *line; line = line_after(line)) {
		const char *at = line + strspn(line, " \t");
		if (!starts_with(at, word))
			continue;
		at += strlen(word);
		size_t length = strcspn(at, "\"");
		const char *path = format(arena, "%.*s", (int)length, at);
		const char *name = strrchr(path, '/');
		if (starts_with(at + length, after) && !is_torch_path(path))
			to->line =
			    format(arena, "%s:%d", visible(arena, name ? name + 1 : path, true),
			           atoi(at + length + strlen(after)));
	}
}

// Reads the graph signature: lines such as `p_fc_weight: PARAMETER target='fc.weight'`.
void read_metadata(Reader *r)
{
	static const char key[] = "pkg.torch.export.ExportedProgram.graph_signature";
	const GraphProto *g = r->proto->graph;
	const char *text = property(g->n_metadata_props, g->metadata_props, key);
	r->placeholders = table_lent(r->arena);
	r->targets = table_lent(r->arena);
	while (text && *text) {
		size_t length = strcspn(text, "\n");
		const char *line = format(r->arena, "%.*s", (int)length, text);
		text += length + (text[length] == '\n');
		const char *colon = strchr(line, ':'), *target = strstr(line, "target='");
		const char *name = next_quoted(r->arena, &target);
		if (!colon || !name)
			continue;
		Target *t = NEW(r->arena, Target);
		*t = (Target){name, starts_with(colon, ": PARAMETER")};
		const char *placeholder = format(r->arena, "%.*s", (int)(colon - line), line);
		*table_cell_s(r->placeholders, placeholder) = (uintptr_t)t;
		*table_cell_s(r->targets, t->name) = (uintptr_t)t;
		if (t->parameter)
			PUSH(r->arena, r->parameters, t->name);
		r->signature = true;
	}
}

bool is_parameter_name(const Reader *r, const char *name)
{
	const Target *t = table_pointer_s(r->targets, name);
	return t && t->parameter;
}

// True if w, ones or a scale, was computed from the shape of a parameter: the file has the
// parameter itself, of another size.
static bool is_of_shape(Reader *r, Weight *w, const char *parameter)
{
	const TensorProto *own = find_name(r->file, parameter)->tensor;
	if (!own || !has_few_values(r, w, 1))
		return false;
	Shape shape = tensor_shape(r->model->path, own);
	return count_of(&shape) != count_of(&w->shape);
}

bool has_stem(Arena *arena, const char *words, const char *name)
{
	return is_word(words, format(arena, "%.*s", (int)stem_of(name), name));
}

// True if a value of the traced program is, by its name, a view of another one or unknown.
static bool is_view_name(Arena *arena, const char *name)
{
	static const char views[] =
	    "val t view reshape unsafe_view _unsafe_view permute transpose "
	    "unsqueeze squeeze expand repeat tile flatten unflatten slice "
	    "select split getitem clone contiguous detach alias to _to_copy";
	return has_stem(arena, views, name);
}

static const char repeating[] = "expand repeat tile expand_as broadcast_to";

// True if a value of the traced program, by its name, has all elements of another one, in any order
// or repeated.
static bool is_whole_name(Arena *arena, const char *name)
{
	static const char moves[] = "t view reshape unsafe_view _unsafe_view permute transpose "
	                            "unsqueeze squeeze flatten unflatten clone contiguous alias to "
	                            "_to_copy";
	return has_stem(arena, moves, name) || has_stem(arena, repeating, name);
}

const char *result_op(const Reader *r, const char *name)
{
	bool tf = starts_with(r->proto->producer_name, "tf2onnx");
	const char *slash = strrchr(name, '/'), *last = slash ? slash + 1 : name;
	const char *end = tf ? strchr(last, ':') : strstr(last, "_output_");
	if (!end || (!tf && name[0] != '/'))
		return NULL;
	const char *op = format(r->arena, "%.*s", (int)(end - last), last);
	return format(r->arena, "%.*s", (int)stem_of(op), op);
}

// True if an exporter that records no names computed it by an Expand or a Tile. That of JAX calls
// all const_3; rows of other weights are not equal.
static bool is_repeat_name(const Reader *r, const Weight *w)
{
	const char *op = result_op(r, w->name);
	return op ? is_word("Expand Tile BroadcastTo", op)
	          : starts_with(r->proto->producer_name, "jax2onnx") && w->shape.rank > 2 &&
	                has_stem(r->arena, "const", w->name);
}

// True if a leaf is, by its name, a function that is taken of parameters but not of sizes.
static bool is_from_elements(Arena *arena, const char *at)
{
	static const char functions[] =
	    "abs exp log log1p softplus sigmoid tanh sum mean var std prod "
	    "amax amin logsumexp norm linalg_vector_norm";
	const char *leaf;
	while ((leaf = next_quoted(arena, &at)))
		if (has_stem(arena, functions, leaf))
			return true;
	return false;
}

// Returns the tensors that an exporter computed weight `w` from: "['fc.weight', 'val_3']".
static Leaves leaves_of(Reader *r, Weight *w)
{
	Leaves found = {.function = !is_view_name(r->arena, w->name),
	                .whole = is_whole_name(r->arena, w->name),
	                .repeated = has_stem(r->arena, repeating, w->name)};
	Text names = {.arena = r->arena};
	const char *at = info_property(r, w->name, folded_from), *leaf;
	bool elements = is_from_elements(r->arena, at);
	while ((leaf = next_quoted(r->arena, &at))) {
		const Target *t = table_pointer_s(r->targets, leaf);
		found.count++;
		found.buffers += t && !t->parameter;
		found.function |= !t && !is_view_name(r->arena, leaf);
		found.whole &=
		    t || has_stem(r->arena, "val", leaf) || is_whole_name(r->arena, leaf);
		found.repeated |= !t && has_stem(r->arena, repeating, leaf);
		if (t && t->parameter && (elements || !is_of_shape(r, w, leaf)))
			say(&names, "%s%s", found.parameters++ ? "+" : "", leaf);
	}
	found.name = names.at;
	return found;
}

// ---- the call a node stems from -------------------------------------------------------

enum { MANY = 4 };

const char *call_of(const NodeProto *node)
{
	return node_property(node, "pkg.torch.onnx.fx_node");
}

const char *trace_of(const NodeProto *node)
{
	return node_property(node, "pkg.torch.onnx.stack_trace");
}

// Returns the name of the next value among the arguments of a call, or NULL, and moves on.
static const char *next_name(Arena *arena, const char **at)
{
	static const char word[] =
	    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
	const char *name = *at ? strchr(*at, '%') : NULL;
	if (!name)
		return NULL;
	size_t length = strspn(name + 1, word);
	*at = name + 1 + length;
	return format(arena, "%.*s", (int)length, name + 1);
}

// The same of a parameter, buffer or constant of the program.
static const Target *next_target(const Reader *r, const char **at)
{
	const char *name;
	const Target *t = NULL;
	while (!t && (name = next_name(r->arena, at)))
		t = table_pointer_s(r->placeholders, name);
	return t;
}

const char *next_argument(const Reader *r, const char **at)
{
	const char *name = next_name(r->arena, at);
	const Target *t = name ? table_pointer_s(r->placeholders, name) : NULL;
	return t ? t->name : name;
}

const char *arguments_of(const NodeProto *node)
{
	const char *call = call_of(node);
	return call ? strstr(call, "args = (") : NULL;
}

// Stores the first MANY parameters among the arguments of the call, in order; returns their number.
// More than MANY cannot be distinguished.
static int called_with(const Reader *r, const NodeProto *node, const char **name)
{
	const char *at = arguments_of(node);
	const Target *t;
	int n = 0;
	while ((t = next_target(r, &at))) {
		if (!t->parameter)
			continue;
		if (n < MANY)
			name[n] = t->name;
		n++;
	}
	return n;
}

// True if the call has this buffer or constant of the program as its argument. BatchNorm has
// statistics, whose values a merged parameter may share.
static bool is_called_buffer(const Use *u)
{
	const char *at = arguments_of(u->node);
	const Target *t;
	while ((t = next_target(u->r, &at)))
		if (!t->parameter && !strcmp(t->name, u->w->name))
			return strcmp(u->node->op_type, "BatchNormalization") != 0;
	return false;
}

bool is_fused(const NodeProto *node)
{
	const char *rule = node_property(node, "pkg.onnxscript.rewriter.rule_name");
	return rule && strstr(rule, "FuseBatchNorm");
}

// NULL: nothing reads its first result.
static const NodeProto *reader_of(const Reader *r, const NodeProto *node)
{
	return node->n_output ? find_name(r->file, node->output[0])->last : NULL;
}

// Through sums with masks, moves and casts.
bool is_scored(const Reader *r, const NodeProto *node)
{
	enum { FAR = 8 };
	for (int steps = 0; node && steps < FAR; steps++) {
		if (!strcmp(node->op_type, "Softmax"))
			return true;
		node = is_one_of(OPS_of_scores, node) ? reader_of(r, node) : NULL;
	}
	return false;
}

// True if the only parameter of a call is not this operand: another one, which the node reads by
// its name or whose name has another role.
static bool is_of_other(const Use *u, const char *name)
{
	for (size_t k = 0; k < u->node->n_input; k++)
		if ((int)k != u->operand && !strcmp(u->node->input[k], name))
			return true;
	if (u->role == R_weight)
		return ends_with(name, "bias");
	int parameters = u->role == R_bias ? u->leaves.parameters : 0;
	return parameters > 1 || (parameters && ends_with(name, "weight"));
}

// Returns the first argument of the node's call that is not in the file and may have been computed
// from a parameter, or NULL.
static const char *find_lost_argument(const Reader *r, const NodeProto *node)
{
	static const char numbers[] =
	    "scalar_tensor_default convert_element_type_default clone full _to_copy";
	const char *at = arguments_of(node), *name;
	while ((name = next_name(r->arena, &at))) {
		const Named *own = find_name(r->file, name);
		if (!table_find_s(r->placeholders, name) && !own->maker && !own->tensor &&
		    !has_stem(r->arena, numbers, name))
			return name;
	}
	return NULL;
}

static void list_leaves(const Reader *r, Table *named)
{
	const GraphProto *g = r->proto->graph;
	for (size_t i = 0; i < g->n_value_info; i++) {
		const char *at = info_property(r, g->value_info[i]->name, folded_from), *leaf;
		while ((leaf = next_quoted(r->arena, &at)))
			*table_cell_s(named, leaf) = true;
	}
}

// Returns the parameters among the arguments of nodes' calls, to one of these nodes.
static Table *list_called(const Reader *r)
{
	Table *called = table_new(r->arena);
	for (size_t i = 0; i < r->proto->graph->n_node; i++) {
		const NodeProto *node = r->proto->graph->node[i];
		const char *at = arguments_of(node);
		const Target *t;
		while ((t = next_target(r, &at)))
			if (t->parameter)
				*table_cell_s(called, t->name) = (uintptr_t)node;
	}
	return called;
}

// ---- equal constants that the exporter merged ------------------------------------------
// A view of a parameter, such as weight[:, None, None], becomes a constant, and equal constants,
// such as the first scales of all norms, become one. Only the calls still have the names of all.

// Returns the name of the merged constant that a node reads as another one, which was a view of a
// parameter, or NULL.
static const char *find_merged(const Reader *r, const NodeProto *node)
{
	const char *lost = find_lost_argument(r, node);
	if (!lost || !is_view_name(r->arena, lost))
		return NULL;
	for (size_t k = 0; k < node->n_input; k++) {
		const char *name = node->input[k], *at = info_property(r, name, folded_from), *leaf;
		while (find_name(r->file, name)->tensor && (leaf = next_quoted(r->arena, &at)))
			if (is_parameter_name(r, leaf))
				return lost;
	}
	return NULL;
}

typedef struct Merged { // of a module
	Names lost;     // its own parameters that no tensor, constant or call names
	Table *numbers; // constants that its calls name and that were merged -> 1 + their order
	int count;      // of these
} Merged;

// Returns the module of a parameter: of "encoder.fc.weight", encoder.fc.
static const char *module_part(Arena *arena, const char *parameter)
{
	const char *dot = strrchr(parameter, '.');
	return format(arena, "%.*s", dot ? (int)(dot - parameter) : 0, parameter);
}

static void add_merged(Reader *r, const NodeProto *node)
{
	const char *module = module_of(r->arena, node);
	const char *name = module ? find_merged(r, node) : NULL;
	if (!name)
		return;
	uint64_t *cell = table_cell_s(r->merged, module);
	if (!*cell) {
		Merged *fresh = NEW(r->arena, Merged);
		fresh->numbers = table_new(r->arena);
		*cell = (uint64_t)(uintptr_t)fresh;
	}
	Merged *m = (Merged *)(uintptr_t)*cell;
	uint64_t *number = table_cell_s(m->numbers, name);
	if (!*number)
		*number = (uint64_t)++m->count;
}

// Finds the modules that had constants that were merged.
static void find_modules(Reader *r)
{
	r->merged = table_new(r->arena);
	for (size_t i = 0; i < r->proto->graph->n_node; i++)
		add_merged(r, r->proto->graph->node[i]);
	Table *known = list_called(r);
	list_leaves(r, known);
	for (int i = 0; i < r->parameters.count; i++) {
		const char *name = r->parameters.at[i];
		Merged *m = table_pointer_s(r->merged, module_part(r->arena, name));
		if (m && !find_name(r->file, name)->tensor && !table_find_s(known, name))
			PUSH(r->arena, m->lost, name);
	}
}

static const Merged *merged_of(Reader *r, const char *module)
{
	if (!r->merged)
		find_modules(r);
	return module ? table_pointer_s(r->merged, module) : NULL;
}

// Returns the parameter whose view was merged with the constant that this use reads, or NULL. The
// module's lost parameters and its merged constants are in the same order.
static const char *name_merged(const Use *u)
{
	Reader *r = u->r;
	const char *name = u->leaves.parameters == 1 ? find_merged(r, u->node) : NULL;
	const Merged *m = name ? merged_of(r, module_of(r->arena, u->node)) : NULL;
	const uint64_t *number = m ? table_find_s(m->numbers, name) : NULL;
	return number && m->count == m->lost.count ? m->lost.at[*number - 1] : NULL;
}

static const char *name_by_call(const Use *u)
{
	const Reader *r = u->r;
	const char *name[MANY], *own = u->leaves.parameters == 1 ? u->leaves.name : u->w->name;
	const char *call = call_of(u->node);
	int n = called_with(r, u->node, name);
	if (!n || n > MANY || is_fused(u->node) || is_called_buffer(u))
		return NULL;
	if (strstr(call, "group_norm") && !strcmp(u->node->op_type, "InstanceNormalization"))
		return NULL; // ones and zeros of the exporter's own
	bool clear = u->role == R_weight || u->role == R_bias;
	bool derived = u->leaves.count && !u->leaves.parameters;
	for (int i = 0; i < n; i++)
		derived &= find_name(r->file, name[i])->tensor != NULL;
	if (derived)
		return NULL; // computed for the parameters, which have initializers
	if (n == 1)
		return is_of_other(u, name[0]) ? NULL : name[0];
	for (int i = 0; i < n && (!clear || u->leaves.buffers); i++)
		if (!strcmp(name[i], own))
			return own;
	if (!clear)
		return NULL;
	bool bias_first = strstr(call, "addmm") || strstr(call, "baddbmm");
	return (u->role == R_weight) != bias_first ? name[0] : name[n - 1];
}

// ---- paths in the names of nodes ------------------------------------------------------

static bool all_digits(const char *s)
{
	return *s && strspn(s, "0123456789") == strlen(s);
}

bool is_opaque(const char *name)
{
	if (all_digits(name) || starts_with(name, "const_fold_opt__"))
		return true;
	if (starts_with(name, "val_") && all_digits(name + 4))
		return true;
	const char *number = strrchr(name, '_');
	return starts_with(name, "onnx::") && number && all_digits(number + 1);
}

size_t stem_of(const char *name)
{
	size_t length = strlen(name), stem = length;
	while (stem && isdigit((unsigned char)name[stem - 1]))
		stem--;
	return stem > 1 && stem < length && name[stem - 1] == '_' ? stem - 1 : length;
}

static const char *name_by_path(const Use *u)
{
	Arena *arena = u->r->arena;
	const NodeProto *next =
	    strcmp(u->node->op_type, "MatMul") ? NULL : reader_of(u->r, u->node);
	// A product whose result gets a bias called X.bias has a weight called X.weight.
	for (size_t k = 0; next && !strcmp(next->op_type, "Add") && k < next->n_input; k++) {
		const char *name = next->input[k];
		int length = (int)strlen(name);
		if (ends_with(name, ".bias"))
			return format(arena, "%.*s.weight", length - 5, name);
		if (ends_with(name, "in_proj_bias"))
			return format(arena, "%.*sweight", length - 4, name);
	}
	// "/encoder/layer.0/layer.0.mlp/MatMul" is of the module encoder.layer.0.mlp: a part that
	// extends the one before replaces it.
	const char *at = u->node->name, *last = strrchr(at, '/'), *before = NULL;
	if (at[0] != '/' || last == at || (u->role != R_weight && u->role != R_bias))
		return NULL;
	Text path = {.arena = arena};
	for (at++; at < last;) {
		size_t length = strcspn(at, "/");
		const char *part = format(arena, "%.*s", (int)length, at);
		bool repeats = before && starts_with(part, format(arena, "%s.", before));
		say(&path, "%s%s", path.count && !repeats ? "." : "",
		    part + (repeats ? strlen(before) : 0));
		before = part;
		at += length + 1;
	}
	return format(arena, "%s.%s", path.at, u->role == R_weight ? "weight" : "bias");
}

// Returns the name without the number that PyTorch's older exporter gives to later calls of a
// module: decoder.weight of decoder_1.weight. NULL: it has none.
static const char *first_call_name(Arena *arena, const char *name)
{
	const char *dot = strrchr(name, '.');
	size_t length = dot ? (size_t)(dot - name) : 0, stem = length;
	while (stem && isdigit((unsigned char)name[stem - 1]))
		stem--;
	if (stem < 2 || stem == length || name[stem - 1] != '_')
		return NULL;
	return format(arena, "%.*s%s", (int)stem - 1, name, dot);
}

// Returns the name of the parameter of which PyTorch's older exporter made this operand of MatMul,
// without a name, by transposing it, or `name`, from the path of the node: that of a parameter of
// the module that calls MatMul, or of a part of it. Other modules may begin with equal values.
static const char *transposed_name(const Use *u, const char *name)
{
	Arena *arena = u->r->arena;
	const Weight *own = strcmp(u->node->op_type, "MatMul") ? NULL : find_transposed(u->r, u->w);
	if (!own)
		return name;
	const char *first = name ? first_call_name(arena, name) : NULL, *names[] = {name, first};
	bool same = !name;
	for (int i = 0; i < COUNT(names); i++) {
		const char *dot = names[i] ? strrchr(names[i], '.') : NULL;
		same |= dot && starts_with(own->name, format(arena, "%.*s",
		                                             (int)(dot - names[i]) + 1, names[i]));
	}
	return same ? own->name : name;
}

// Returns the name of a weight by the path of its node. A later call of the module that read the
// same initializer, whose numbers are not all equal, has the first call's.
static const char *name_by_call_path(const Use *u)
{
	Reader *r = u->r;
	const char *name = name_by_path(u);
	const char *first = name ? first_call_name(r->arena, name) : NULL;
	int slot = first ? find_slot(r->g, first) : -1;
	const View *view = slot >= 0 ? r->g->slots.at[slot].view : NULL;
	if (view && view->first->weight && view->first->weight->origin == u->w->origin &&
	    !has_few_values(r, u->w, 2))
		return first;
	return starts_with(r->proto->producer_name, "pytorch") ? transposed_name(u, name) : name;
}

// True if the exporter repeated a parameter along some axes, such as a class token over the batch,
// and the elements still show which.
static bool repeats_parameter(Reader *r, Weight *w, const Leaves *leaves)
{
	bool named = r->signature
	                 ? leaves->parameters && leaves->repeated && !is_parameter_name(r, w->name)
	                 : is_repeat_name(r, w);
	return named && is_float(w->type) && is_repeated(r, w);
}

Use use_of(Reader *r, Weight *w, const Call *c, int k)
{
	const NodeProto *node = c ? c->node : NULL, *next;
	Leaves leaves = leaves_of(r, w);
	bool repeated = repeats_parameter(r, w, &leaves);
	Use u = {r, w, c, node, k, role_of(node, k), leaves, repeated, NULL, node, k};
	while (u.reader && !u.input && is_one_of(OPS_views, u.reader) &&
	       (next = reader_of(r, u.reader))) {
		u.input = (int)next->n_input - 1;
		while (u.input && strcmp(next->input[u.input], u.reader->output[0]))
			u.input--;
		u.reader = next;
	}
	if (w->alias && !is_opaque(w->alias))
		u.name = w->alias;
	if (!u.name && node)
		u.name = name_merged(&u);
	if (!u.name && node)
		u.name = name_by_call(&u);
	if (!u.name && u.leaves.parameters)
		u.name = u.leaves.name;
	if (!u.name && !w->alias && !is_opaque(w->name))
		u.name = w->name;
	bool torch = starts_with(r->proto->producer_name, "pytorch");
	const Weight *own = !u.name && torch ? find_reshaped(r, w) : NULL;
	u.name = own ? own->name : u.name;
	if (!u.name && node)
		u.name = name_by_call_path(&u);
	if (!u.name)
		u.name = w->alias ? w->alias : w->name;
	// Outside of PyTorch equal tensors are merged without a trace: one value everywhere means
	// that nothing was shared.
	if (!node || w->uses < 2 || w->alias || r->signature || torch || !has_few_values(r, w, 1))
		return u;
	const char *slash = strrchr(node->name, '/'), *leaf = strrchr(w->name, '/');
	u.name =
	    slash && leaf
	        ? format(r->arena, "%.*s%s", (int)(slash - node->name), node->name, leaf)
	        : format(r->arena, "%s@%s", w->name, node->name[0] ? node->name : node->output[0]);
	return u;
}

const char *bias_left_out(Reader *r, const NodeProto *node)
{
	const char *name[MANY];
	int n = called_with(r, node, name);
	for (int i = 0; i < n && i < MANY; i++)
		if (ends_with(name[i], "bias"))
			return name[i];
	return NULL;
}

const char *argument_of(const NodeProto *node, const char *function, int number)
{
	const char *call = call_of(node),
	           *at = call && strstr(call, function) ? arguments_of(node) : NULL;
	at = at ? strchr(at, '(') : NULL;
	for (int comma = 0; at && comma < number; comma++) {
		at = strpbrk(at + 1, ",)");
		at = at && *at == ',' ? at : NULL;
	}
	return at ? at + 1 : NULL;
}

// cross_entropy_loss(x, labels, weight, reduction, ignore_index, smoothing)
double traced_smoothing(const NodeProto *node)
{
	const char *smoothing = argument_of(node, "cross_entropy_loss", 5);
	return smoothing ? strtod(smoothing, NULL) : 0;
}

// ---- parameters that are not in the file ------------------------------------------------

// Warns of each bound of a Clip that the exporter computed without recording what from.
static void doubt_bounds(Reader *r, const NodeProto *node)
{
	for (size_t k = 1; k < node->n_input; k++) {
		const char *bound = node->input[k];
		bool old = starts_with(bound, "onnx::Clip_");
		if (!find_name(r->file, bound)->tensor ||
		    (!old && !ends_with(bound, "_min") && !ends_with(bound, "_max")) ||
		    (r->signature && !find_lost_argument(r, node)))
			continue;
		doubt(r, format(r->arena,
		                "%s: the exporter computed its bound '%s': if from a weight, "
		                "export with %s to train it",
		                node_where(r->arena, node), bound,
		                r->signature ? "optimize=False" : "do_constant_folding=False"));
	}
}

// Lists, by module, the first of its constants that are not trained: what a module computes from a
// parameter when it leaves training mode, such as LeViT's attention biases.
static Table *list_module_constants(Reader *r)
{
	Table *constants = table_new(r->arena);
	for (int i = 0; i < r->weights.count; i++) {
		Weight *w = r->weights.at[i];
		uint64_t *first = table_cell_s(constants, module_part(r->arena, w->name));
		if (!*first && !is_parameter_name(r, w->name) && !leaves_of(r, w).count &&
		    is_float(w->type) && w->shape.rank && !is_opaque(w->name))
			*first = (uintptr_t)w->name;
	}
	return constants;
}

// True if the file has what ONNX Runtime's quantizer made of the parameter, which is told of by
// itself.
static bool is_quantized(const Reader *r, const char *parameter)
{
	return find_name(r->file, format(r->arena, "%s_quantized", parameter))->tensor;
}

// Returns how many parameters of the program neither the file nor a call of its nodes mentions.
static int note_unmentioned(Reader *r)
{
	enum { FEW = 3 };
	Table *said = table_new(r->arena), *called = list_called(r);
	const Table *constants = list_module_constants(r);
	Text names = {.arena = r->arena};
	const char *first = NULL, *like = NULL; // a lost parameter, a constant of its module
	int lost = 0, hidden = 0;
	list_leaves(r, said);
	for (int i = 0; i < r->parameters.count; i++) {
		const char *name = r->parameters.at[i];
		const char *module = module_part(r->arena, name),
		           *constant = table_pointer_s(constants, module);
		const NodeProto *node = table_pointer_s(called, name);
		if (find_slot(r->g, name) >= 0 || find_name(r->file, name)->tensor ||
		    table_find_s(said, name) || (node && is_fused(node)) || is_quantized(r, name))
			continue;
		if (node)
			doubt(r, format(r->arena,
			                "%s: the exporter made a constant of parameter '%s': "
			                "export with optimize=False to train it",
			                node_where(r->arena, node), name));
		else if (merged_of(r, module))
			doubt(r, format(r->arena,
			                "parameter '%s' may lie in a constant that the exporter "
			                "merged with an equal one: export with optimize=False to "
			                "train each by itself",
			                name));
		else if (constant) {
			first = hidden ? first : name;
			like = hidden++ ? like : constant;
		} else if (lost++ < FEW)
			say(&names, "%s%s", lost > 1 ? ", " : "", name);
	}
	if (hidden)
		doubt(r, format(r->arena,
		                "%d %s of the exported program %s not in the file, but constants "
		                "of the same modules are, such as '%s' for '%s': if they were "
		                "computed from parameters, export in training mode to train those",
		                hidden, PLURAL(hidden, "parameter", "parameters"),
		                PLURAL(hidden, "is", "are"), like, first));
	if (lost > FEW)
		say(&names, " and %d more", lost - FEW);
	if (lost)
		note(r,
		     "%d %s of the exported program %s not in the file, unused or tied to "
		     "others: %s",
		     lost, PLURAL(lost, "parameter", "parameters"), PLURAL(lost, "is", "are"),
		     names.at);
	return lost + hidden;
}

// Warns of the first node that no longer gets a sum: the exporter's optimizer leaves out added
// numbers of 1e-8 and less, such as those that keep a divisor from 0.
static void doubt_epsilon(Reader *r)
{
	static const char sensitive[] = "Div Sqrt Log Reciprocal";
	for (size_t i = 0; i < r->proto->graph->n_node; i++) {
		const NodeProto *node = r->proto->graph->node[i];
		const char *sum =
		    is_word(sensitive, node->op_type) ? find_lost_argument(r, node) : NULL;
		if (!sum || !has_stem(r->arena, "add", sum))
			continue;
		doubt(r, format(r->arena,
		                "%s: the exporter left out the sum '%s', as it does with added "
		                "numbers of 1e-8 and less: if a result becomes infinite or nan, "
		                "export with optimize=False",
		                node_where(r->arena, node), sum));
		return;
	}
}

void note_lost_parameters(Reader *r)
{
	if (r->signature)
		doubt_epsilon(r);
	const GraphProto *g = r->proto->graph;
	int lost = r->signature ? note_unmentioned(r) : 0;
	for (size_t i = 0; i < g->n_node && (lost || !r->signature); i++)
		if (!strcmp(g->node[i]->op_type, "Clip"))
			doubt_bounds(r, g->node[i]);
}
