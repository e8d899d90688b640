// untrained.c: what is not trained, and why: statistics, numbers of operators, tables that were
// computed, what the file or the user says of it. Takes a weight and the node that reads it. Gives
// the reason. Keeps: every weight that is not trained has one.
#include "lower.h"
#include <math.h>
#include <string.h>

static const char *const no_reason = NULL; // a parameter
const char running_statistics[] = "running statistics";
const char computed_table[] = "a table that the exporter computed";

// Columns in pairs (i, i + apart) whose squares sum to 1 in every row.
static bool circles(Reader *r, Weight *w, int64_t apart)
{
	int64_t columns = w->shape.dim[1];
	for (int64_t i = 0; i < count_of(&w->shape); i++) {
		if (apart == 1 ? i % 2 : i % columns >= apart)
			continue;
		double x = weight_number(r, w, i), y = weight_number(r, w, i + apart);
		if (fabs(x * x + y * y - 1) > 1e-3)
			return false;
	}
	return true;
}

static bool is_sinusoid(Reader *r, Weight *w)
{
	if (w->shape.rank != 2 || w->shape.dim[1] % 2 || w->shape.dim[0] < 2 || !w->shape.dim[1])
		return false;
	return circles(r, w, w->shape.dim[1] / 2) || circles(r, w, 1);
}

// Names that modules give to tensors of numbers that are no parameters.
static bool is_buffer_name(const char *name)
{
	static const char *const ends[] = {
	    "running_mean", "running_var",       "num_batches_tracked",
	    "inv_freq",     "masked_bias",       "position_ids",
	    "attn_mask",    "final_logits_bias", "relative_position_index"};
	for (int i = 0; i < COUNT(ends); i++)
		if (ends_with(name, ends[i]))
			return true;
	return strstr(name, ".anchor") != NULL;
}

// X.weight_u and X.weight_v, that spectral_norm keeps beside a weight; weight_norm has no u.
static bool is_spectral(const Reader *r, const char *name)
{
	size_t stem = strlen(name) - 1;
	bool found = false;
	if (!ends_with(name, "weight_u") && !ends_with(name, "weight_v"))
		return false;
	for (int i = 0; i < r->weights.count && !found; i++) {
		const char *other = r->weights.at[i]->name;
		found = !strncmp(other, name, stem) && !strcmp(other + stem, "u");
	}
	return found;
}

bool is_statistic(const NodeProto *node, int k)
{
	return !strcmp(node->op_type, "BatchNormalization") && k >= 3;
}

// Operands that are numbers of an operator rather than weights.
bool is_number_operand(const char *op, int k)
{
	static const struct {
		const char *op;
		int from, to;
	} operands[] = {{"Where", 0, 2},
	                {"Clip", 1, 2},
	                {"Pow", 1, 1},
	                {"Dropout", 1, 2},
	                {"Resize", 1, 3},
	                {"Upsample", 1, 1},
	                {"Pad", 1, 2},
	                {"Range", 0, 2},
	                {"OneHot", 1, 2},
	                {"LSTM", 5, 6},
	                {"GRU", 5, 5},
	                {"RNN", 5, 5},
	                {"Max", 0, 9},
	                {"Min", 0, 9},
	                {"SoftmaxCrossEntropyLoss", 2, 2},
	                {"NegativeLogLikelihoodLoss", 2, 2}};
	for (int i = 0; i < COUNT(operands); i++)
		if (!strcmp(operands[i].op, op))
			return k >= operands[i].from && k <= operands[i].to;
	return false;
}

static bool is_sum_or_product(const char *op)
{
	return !strcmp(op, "Add") || !strcmp(op, "Sub") || !strcmp(op, "Mul") || !strcmp(op, "Div");
}

// Is operand k added to products of one column: a bias, though a single number?
static bool is_lone_bias(const Call *c, int k)
{
	const char *op = c->node->op_type;
	if (!strcmp(op, "Gemm") || !strcmp(op, "Conv") || !strcmp(op, "ConvTranspose"))
		return k == 2;
	Ref product = !strcmp(op, "Add") && c->nin == 2 ? c->arg[1 - k].ref : 0;
	const Val *v = val(c->g, product);
	while (v->op == O_reshape)
		v = val(c->g, v->in[0]);
	return product && v->op == O_dot && v->shape.dim[v->shape.rank - 1] == 1;
}

// Without metadata a name and a shape must do.
static const char *guess_reason(Reader *r, Weight *w, const Call *c, int k, const char *name)
{
	const char *op = c ? c->node->op_type : "";
	bool torch = starts_with(r->proto->producer_name, "pytorch");
	bool named = !is_opaque(name);
	int64_t n = count_of(&w->shape);
	if (is_buffer_name(name))
		return "a buffer by its name";
	if (is_spectral(r, name))
		return "a buffer of spectral_norm";
	if (!w->shape.rank && !(torch && !is_opaque(w->name)))
		return "a single number";
	if (n == 1 && !torch && !strstr(name, "bias") && !strstr(name, "ReadVariableOp") &&
	    !(c && is_lone_bias(c, k)))
		return "a single number";
	if (!named && wide_axes(&w->shape) > 1 && is_sum_or_product(op))
		return computed_table;
	if (!strcmp(op, "InstanceNormalization") && !named && one_value(r, w))
		return "ones or zeros";
	return no_reason;
}

static bool is_contraction(const char *op)
{
	static const char *const ops[] = {"MatMul",        "Gemm",   "Conv",
	                                  "ConvTranspose", "Gather", "Einsum"};
	for (int i = 0; i < COUNT(ops); i++)
		if (!strcmp(op, ops[i]))
			return true;
	return false;
}

// Folded from a parameter: is it more than the parameter in another shape? Tables that are not
// contracted, products of several parameters, and single numbers are.
static bool is_computed(const Weight *w, const Leaves *leaves, const NodeProto *node,
                        const char *name)
{
	if (!leaves->name || strcmp(leaves->name, name))
		return false;
	bool table = wide_axes(&w->shape) > 1 && node && !is_contraction(node->op_type);
	return !w->shape.rank || leaves->parameters > 1 || (leaves->count > 1 && table);
}

static const char *signature_reason(Reader *r, Weight *w, const NodeProto *node, const char *name)
{
	const char *kind = kind_of(r, w->name);
	Leaves leaves = leaves_of(r, w);
	bool recurrent = node && (!strcmp(node->op_type, "LSTM") || !strcmp(node->op_type, "GRU") ||
	                          !strcmp(node->op_type, "RNN"));
	if (is_parameter_name(r, name) && !is_computed(w, &leaves, node, name))
		return no_reason;
	if (kind && strcmp(kind, "PARAMETER"))
		return !strcmp(kind, "BUFFER") ? "a buffer" : "a constant of the program";
	if (kind || (leaves.parameters && recurrent))
		return no_reason;
	if (leaves.parameters)
		return "the exporter made numbers of it; export with optimize=False to train it";
	int stem = (int)strlen(w->name) -
	           (int)strlen("_bias"); // X.weight_bias: BatchNorm fused into a convolution
	if (ends_with(w->name, "_bias") &&
	    is_parameter_name(r, format(r->arena, "%.*s", stem, w->name)))
		return no_reason;
	return "a constant of the program";
}

// NULL for a parameter.
const char *reason_not_trained(Reader *r, Weight *w, const Call *c, int k, const char *name)
{
	const NodeProto *node = c ? c->node : NULL;
	if (w->inner)
		return "it lies in the graph of a loop or branch, where it cannot be written back";
	if (node && is_statistic(node, k))
		return running_statistics;
	if (r->file->trained)
		return table_find_s(r->file->trained, w->name) ? no_reason
		                                               : "the file does not train it";
	if (node && is_number_operand(node->op_type, k))
		return "a number of an operator";
	const char *why =
	    has_signature(r) ? signature_reason(r, w, node, name) : guess_reason(r, w, c, k, name);
	if (!why && w->table && is_sinusoid(r, w))
		why = "a table of sines and cosines";
	return why;
}

// What the user said of it: 1 train, 0 freeze, -1 nothing. The later pattern wins.
int users_choice(const Reader *r, const char *name, const char *file)
{
	int choice = -1;
	for (int i = 0; i < r->options->nfreeze; i++) {
		const char *pattern = r->options->freeze[i];
		bool train = pattern[0] == '!';
		if (!matches(pattern + train, name) && !matches(pattern + train, file))
			continue;
		r->met[i] = true;
		choice = train;
	}
	return choice;
}

void check_choices(Reader *r)
{
	VEC(const char *) names = {0};
	for (int i = 0; i < r->weights.count; i++)
		PUSH(r->arena, names, r->weights.at[i]->name);
	for (int i = 0; i < r->options->nfreeze; i++) {
		const char *pattern = r->options->freeze[i];
		bool train = pattern[0] == '!';
		for (int k = 0; k < names.count && !r->met[i]; k++)
			r->met[i] = matches(pattern + train, names.at[k]);
		if (!r->met[i])
			PUSH(r->arena, r->troubles,
			     format(r->arena, "--%s '%s' matches no initializer; %s",
			            train ? "train" : "freeze", pattern + train,
			            suggest(r->arena, pattern + train, names.count, names.at)));
	}
}
