// param_names.c: recovers parameter names.
// Takes the file's metadata, the names of Identity results, and the names of nodes. Gives a name
// for each use of an initializer. Facts: PyTorch's newer exporter writes on each node the call it
// stems from, with the parameters' names among its arguments (pkg.torch.onnx.fx_node), and in the
// graph what each of these is; its older one leaves `Identity(kept) -> name` where it merged equal
// tensors, and module paths as names of nodes.
#include "lower.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef struct Target {   // what a placeholder of the traced program is
	const char *name; // in the module's state
	bool parameter;   // else a buffer or a lifted constant
} Target;

struct Metadata {
	VEC(Target) targets;
	Table *placeholders; // "p_fc_weight" to a position in targets + 1
	Table *by_name;      // "fc.weight" likewise
};

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

// The last but one of "['', 'encoder', 'encoder.layer', 'linear_3']": the module; NULL: not told.
const char *node_module(Arena *arena, const NodeProto *node)
{
	const char *scopes = node_property(node, "pkg.torch.onnx.name_scopes");
	const char *end = scopes ? strrchr(scopes, ',') : NULL;
	while (end && end > scopes && *end != '\'')
		end--;
	const char *begin = end && end > scopes ? end - 1 : NULL;
	while (begin && begin > scopes && *begin != '\'')
		begin--;
	int length = begin ? (int)(end - begin) - 1 : 0;
	return length > 0 ? visible(arena, format(arena, "%.*s", length, begin + 1), true) : NULL;
}

// The innermost place of a stack trace that is not the framework's own: model.py:32; NULL: not
// told.
const char *node_line(Arena *arena, const NodeProto *node)
{
	static const char word[] = "File \"";
	const char *at = node_property(node, "pkg.torch.onnx.stack_trace"), *found = NULL;
	for (at = at ? strstr(at, word) : NULL; at; at = strstr(at, word)) {
		at += strlen(word);
		size_t length = strcspn(at, "\"");
		const char *path = format(arena, "%.*s", (int)length, at);
		const char *name = strrchr(path, '/'), *number = strstr(at + length, "line ");
		if (number && !strstr(path, "/torch/"))
			found = format(arena, "%s:%d", visible(arena, name ? name + 1 : path, true),
			               atoi(number + 5));
	}
	return found;
}

// Lines such as `p_fc_weight: PARAMETER target='fc.weight'`.
static void read_signature(Reader *r, struct Metadata *m, const char *text)
{
	while (*text) {
		size_t length = strcspn(text, "\n");
		const char *line = format(r->arena, "%.*s", (int)length, text);
		text += length + (text[length] == '\n');
		const char *colon = strchr(line, ':'), *target = strstr(line, "target='");
		const char *end = target ? strchr(target + 8, '\'') : NULL;
		if (!colon || !end)
			continue;
		const char *name = format(r->arena, "%.*s", (int)(end - target - 8), target + 8);
		Target t = {visible(r->arena, name, true), starts_with(colon, ": PARAMETER")};
		PUSH(r->arena, m->targets, t);
		const char *placeholder = format(r->arena, "%.*s", (int)(colon - line), line);
		*table_cell_s(m->placeholders, placeholder) = (uint64_t)m->targets.count;
		*table_cell_s(m->by_name, t.name) = (uint64_t)m->targets.count;
	}
}

static const char *info_property(const Reader *r, const char *name, const char *key)
{
	const ValueInfoProto *info = find_name(r->file, name)->info;
	return info ? property(info->n_metadata_props, info->metadata_props, key) : NULL;
}

void read_metadata(Reader *r)
{
	struct Metadata *m = r->metadata = NEW(r->arena, struct Metadata);
	const GraphProto *g = r->proto->graph;
	m->placeholders = table_lent(r->arena);
	m->by_name = table_lent(r->arena);
	const char *signature = property(g->n_metadata_props, g->metadata_props,
	                                 "pkg.torch.export.ExportedProgram.graph_signature");
	if (signature)
		read_signature(r, m, signature);
}

bool has_signature(const Reader *r)
{
	return r->metadata->targets.count > 0;
}

static const Target *target_named(const struct Metadata *m, const char *name)
{
	const uint64_t *cell = table_find_s(m->by_name, name);
	return cell ? &m->targets.at[*cell - 1] : NULL;
}

// ---- leaves of folded tensors: "['fc.weight', 'val_3']" -------------------------------

// The next quoted word, or NULL; `at` moves behind it.
static const char *next_leaf(Arena *arena, const char **at)
{
	const char *begin = strchr(*at, '\'');
	const char *end = begin ? strchr(begin + 1, '\'') : NULL;
	if (!end)
		return NULL;
	*at = end + 1;
	return visible(arena, format(arena, "%.*s", (int)(end - begin - 1), begin + 1), true);
}

Leaves leaves_of(const Reader *r, const Weight *w)
{
	Leaves found = {0};
	const char *at = info_property(r, w->name, "pkg.onnxscript.optimizer.folded_from"), *leaf;
	while (at && (leaf = next_leaf(r->arena, &at))) {
		const Target *t = target_named(r->metadata, leaf);
		found.count++;
		found.buffers += t && !t->parameter;
		if (t && t->parameter) {
			found.parameters++;
			found.name =
			    found.name ? format(r->arena, "%s+%s", found.name, leaf) : leaf;
		}
	}
	return found;
}

// ---- the call a node stems from -------------------------------------------------------

enum { MANY = 4 };

// Parameters among the arguments of the call, in order; how many. More than MANY: too many to tell
// apart.
static int called_with(const Reader *r, const NodeProto *node, const char **name)
{
	const char *call = node_property(node, "pkg.torch.onnx.fx_node");
	int n = 0;
	for (const char *at = call ? strstr(call, "args = (") : NULL; at && (at = strchr(at, '%'));
	     at++) {
		size_t length = strspn(
		    at + 1, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
		const uint64_t *cell = table_find(r->metadata->placeholders, at + 1, length);
		const Target *t = cell ? &r->metadata->targets.at[*cell - 1] : NULL;
		if (!t || !t->parameter)
			continue;
		if (n < MANY)
			name[n] = t->name;
		n++;
	}
	return n;
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

Use use_behind(const Reader *r, const NodeProto *node, int operand)
{
	Use use = {node, operand};
	const NodeProto *next;
	while (use.node && !use.operand && is_one_of(OPS_views, use.node) &&
	       (next = reader_of(r, use.node))) {
		use.operand = (int)next->n_input - 1;
		while (use.operand && strcmp(next->input[use.operand], use.node->output[0]))
			use.operand--;
		use.node = next;
	}
	return use;
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

static const char *name_by_call(const Reader *r, const Weight *w, const NodeProto *node,
                                int operand)
{
	const char *name[MANY], *own = w->name,
	                        *call = node_property(node, "pkg.torch.onnx.fx_node");
	int n = called_with(r, node, name);
	Leaves leaves = leaves_of(r, w);
	if (leaves.parameters == 1)
		own = leaves.name;
	if (!n || n > MANY || is_fused(node))
		return NULL;
	if (strstr(call, "group_norm") && !strcmp(node->op_type, "InstanceNormalization"))
		return NULL; // ones and zeros of the exporter's own
	Role role = role_of(node, operand);
	bool clear = role == R_weight || role == R_bias;
	if (n == 1 && leaves.count && !leaves.parameters && find_name(r->file, name[0])->tensor)
		return NULL; // a table that goes with the parameter, which has its own
	if (n == 1)
		return role == R_weight && ends_with(name[0], "bias") ? NULL : name[0];
	for (int i = 0; i < n && !clear; i++)
		if (!strcmp(name[i], own))
			return own;
	if (!clear)
		return NULL;
	bool bias_first = strstr(call, "addmm") || strstr(call, "baddbmm");
	return (role == R_weight) != bias_first ? name[0] : name[n - 1];
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

// "/encoder/layer.0/layer.0.mlp/MatMul" is the module encoder.layer.0.mlp: a part that repeats the
// one before it with more behind takes its place.
static const char *module_path(Reader *r, const NodeProto *node)
{
	const char *at = node->name, *last = strrchr(at, '/');
	if (at[0] != '/' || last == at)
		return NULL;
	Text path = {.arena = r->arena};
	const char *before = NULL;
	for (at++; at < last;) {
		size_t length = strcspn(at, "/");
		const char *part = format(r->arena, "%.*s", (int)length, at);
		if (before && starts_with(part, format(r->arena, "%s.", before)))
			say(&path, "%s", part + strlen(before));
		else
			say(&path, "%s%s", path.count ? "." : "", part);
		before = part;
		at += length + 1;
	}
	return path.at;
}

// A product whose result gets a bias called X.bias has a weight called X.weight.
static const char *name_by_sibling(Reader *r, const NodeProto *node)
{
	const NodeProto *next = reader_of(r, node);
	if (!next || strcmp(next->op_type, "Add"))
		return NULL;
	for (size_t k = 0; k < next->n_input; k++) {
		const char *name = next->input[k];
		size_t length = strlen(name);
		if (ends_with(name, ".bias"))
			return format(r->arena, "%.*s.weight", (int)(length - 5), name);
		if (ends_with(name, "in_proj_bias"))
			return format(r->arena, "%.*sweight", (int)(length - 4), name);
	}
	return NULL;
}

static const char *name_by_path(Reader *r, const NodeProto *node, int operand)
{
	Role role = role_of(node, operand);
	bool clear = role == R_weight || role == R_bias;
	const char *sibling = strcmp(node->op_type, "MatMul") ? NULL : name_by_sibling(r, node);
	const char *path = module_path(r, node);
	if (sibling || !path || !clear)
		return sibling;
	return format(r->arena, "%s.%s", path, role == R_weight ? "weight" : "bias");
}

const char *name_of_use(Reader *r, const Weight *w, const NodeProto *node, int operand)
{
	const char *name = w->alias && !is_opaque(w->alias) ? w->alias : NULL;
	if (!name && node)
		name = name_by_call(r, w, node, operand);
	Leaves leaves = leaves_of(r, w);
	if (!name && leaves.parameters)
		name = leaves.name;
	if (!name && !w->alias && !is_opaque(w->name))
		name = w->name;
	if (!name && node)
		name = name_by_path(r, node, operand);
	return name ? name : w->alias ? w->alias : w->name;
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

const char *kind_of(const Reader *r, const char *initializer)
{
	return info_property(r, initializer, "pkg.torch.export.graph_signature.InputSpec.kind");
}

bool is_parameter_name(const Reader *r, const char *name)
{
	const Target *t = target_named(r->metadata, name);
	return t && t->parameter;
}

// cross_entropy_loss(x, labels, weight, reduction, ignore_index, smoothing)
double traced_smoothing(const NodeProto *node)
{
	const char *call = node_property(node, "pkg.torch.onnx.fx_node");
	const char *at = call ? strstr(call, "cross_entropy_loss") : NULL;
	at = at ? strstr(at, "args = (") : NULL;
	for (int comma = 0; at && comma < 5; comma++) {
		at = strpbrk(at, ",)");
		at = at && *at == ',' ? at + 1 : NULL;
	}
	return at ? strtod(at, NULL) : 0;
}
