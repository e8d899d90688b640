// untrained.c: decides which weights are not trained, and why; in doubt, what to ask the user.
// Statistics, scalars of operators, computed tables and weights that the file or the user excludes
// are not trained. Facts: exporters store the result of a constant computation under a name of
// their own. Newer PyTorch records what it was computed from; else the operator that reads it and
// its values must decide: factors of products and terms of attention scores are trained, masks,
// waves, grids and Fourier transforms are not.
#include "lower.h"
#include <string.h>

static const char *const no_reason = NULL; // a parameter
const char running_statistics[] = "running statistics";
const char computed_table[] = "a table that the exporter computed";
const char computed_from[] =
    "computed by the exporter from the weight: export with optimize=False to train the weight";
const char made_numbers[] =
    "the exporter made numbers of it; export with optimize=False to train it";
static const char series[] =
    "a grid or a series by its numbers: a weight to train, or a constant to --freeze?";
static const char asked_sines[] =
    "sines and cosines: a weight to train, or a constant to --freeze?";
static const char sines[] = "a table of sines and cosines", masked[] = "a mask lies in it";

// ---- names and places -----------------------------------------------------------------

// True if operand k is added to products of one column: a bias, though a single number.
static bool is_lone_bias(const Call *c, int k)
{
	if (is_one_of(OPS_affine, c->node))
		return k == 2;
	Ref product = !strcmp(c->node->op_type, "Add") && c->nin == 2 ? c->arg[1 - k].ref : 0;
	const Val *v = val(c->g, unreshaped(c->g, product));
	return product && v->op == O_dot && v->shape.dim[v->shape.rank - 1] == 1;
}

// True if it is added to the scores of attention.
static bool is_score_bias(const Use *u)
{
	if (!strcmp(u->reader->op_type, "Attention") && !*plain_domain(u->reader->domain))
		return u->input == 3;
	return !strcmp(u->reader->op_type, "Add") && is_scored(u->r, u->reader);
}

// True if an exporter without metadata computed it, by its name.
static bool is_folded_table(const Use *u)
{
	return is_opaque(u->w->alias ? u->w->alias : u->w->name) && wide_axes(&u->w->shape) > 1 &&
	       is_one_of(OPS_arithmetic, u->reader);
}

// Returns why a named weight is no parameter, judged by values that none is initialized with; else
// NULL.
// Biases that open the gates of an LSTM are zeros and ones.
static const char *buffer_by_values(const Use *u)
{
	Reader *r = u->r;
	Weight *w = u->w;
	int wide = wide_axes(&w->shape);
	if (!is_one_of(OPS_arithmetic, u->reader))
		return no_reason;
	if (is_score_bias(u) && has_trait(r, w, T_hides))
		return masked;
	if (wide > 1 &&
	    (has_trait(r, w, T_sines) || (!has_few_values(r, w, 2) && has_trait(r, w, T_waves))))
		return sines;
	bool factor = is_word("Mul Sub", u->reader->op_type);
	return wide && (wide > 1 || factor) && has_trait(r, w, T_mask) ? "a mask of two numbers"
	                                                               : no_reason;
}

static bool matches_any(int n, const char *const *pattern, const char *name)
{
	bool found = false;
	for (int i = 0; i < n; i++)
		found |= matches(pattern[i], name);
	return found;
}

// True for names that modules give to buffers.
static bool is_buffer_name(const char *name)
{
	static const char *const buffers[] = {
	    "*running_mean", "*running_var",          "*num_batches_tracked",
	    "*inv_freq",     "*masked_bias",          "*position_ids",
	    "*attn_mask",    "*final_logits_bias",    "*relative_position_index",
	    "*.anchor*",     "*relative_coords_table"};
	return matches_any(COUNT(buffers), buffers, name);
}

// True for names that are those of buffers in most programs, whose numbers may be any: statistics
// of data, random features (Performer, SAM), averages and queues of codes and keys (VQ-VAE, MoCo).
static bool is_usual_buffer_name(const char *name)
{
	static const char *const buffers[] = {"*_mean",        "*.mean",  "*.std",   "*_avg",
	                                      "*cluster_size", "*.queue", "*_matrix"};
	return matches_any(COUNT(buffers), buffers, name);
}

// True for a tensor that is certainly no parameter, by its name or because it holds integers: of a
// module, since tools that rewrite a file add others.
static bool is_certain_buffer(const TensorProto *t)
{
	enum { INT32 = 6, INT64 = 7, BOOL = 9 };
	bool integers = t->data_type == INT32 || t->data_type == INT64 || t->data_type == BOOL;
	return (integers && strchr(t->name, '.')) || is_buffer_name(t->name);
}

// Decides by name, shape and values, for a file without metadata.
static const char *guess_reason(const Use *u)
{
	static const char *const kinds[TRAITS] = {[T_hides] = masked,
	                                          [T_two] = "a mask of two numbers",
	                                          [T_sines] = sines,
	                                          [T_regular] = "a grid, or distances"};
	Reader *r = u->r;
	Weight *w = u->w;
	const char *name = u->name;
	bool torch = starts_with(r->proto->producer_name, "pytorch"), named = !is_opaque(name);
	if (is_buffer_name(name))
		return "a buffer by its name";
	const char *op = result_op(r, w->name);
	if (op && is_word("Const Constant ConstantOfShape Shape Range", op))
		return "a constant of the program";
	// X.weight_u and X.weight_v belong to a weight; weight_norm has no u.
	if ((ends_with(name, "weight_u") || ends_with(name, "weight_v")) &&
	    find_name(r->file, format(r->arena, "%.*su", (int)strlen(name) - 1, name))->tensor)
		return "a buffer of spectral_norm";
	bool variable = strstr(name, "ReadVariableOp") != NULL; // of TensorFlow
	if (!w->shape.rank && !variable && !(torch && !is_opaque(w->name)))
		return "a single number";
	bool folded = torch && is_opaque(w->alias ? w->alias : w->name);
	if (count_of(&w->shape) == 1 && folded && u->role == R_none &&
	    role_of(u->reader, u->input) == R_none)
		return "a single number";
	if (count_of(&w->shape) == 1 && !torch && !strstr(name, "bias") && !variable &&
	    !(u->call && is_lone_bias(u->call, u->operand)))
		return "a single number";
	if (is_folded_table(u)) {
		for (int t = 0; t < TRAITS; t++)
			if (kinds[t] && has_trait(r, w, (Trait)t))
				return kinds[t];
		bool added = (named || u->reader != u->node) && !strcmp(u->reader->op_type, "Add");
		return added || is_score_bias(u) ? no_reason : computed_table;
	}
	if (!w->table && is_one_of(OPS_contractions, u->reader) && has_trait(r, w, T_fourier))
		return "a Fourier transform";
	if (folded && wide_axes(&w->shape) == 1 && is_one_of(OPS_arithmetic, u->reader) &&
	    !has_few_values(r, w, 1) && has_trait(r, w, T_regular))
		return kinds[T_regular];
	if (u->node && !strcmp(u->node->op_type, "InstanceNormalization") && !named &&
	    has_few_values(r, w, 1))
		return "ones or zeros";
	return buffer_by_values(u);
}

// True if it is a vector or a number that was computed from a parameter and cannot stand for it:
// the file has the parameter too, with other values, or it repeats one number. 1 minus a parameter
// is tied to it.
static bool is_recomputed(const Use *u)
{
	Reader *r = u->r;
	Weight *w = u->w;
	int64_t n = count_of(&w->shape);
	if (u->leaves.parameters != 1 || wide_axes(&w->shape) > 1)
		return false;
	if (n > 1 && starts_with(w->name, "expand") && has_few_values(r, w, 1))
		return true;
	Weight *own = table_pointer_s(r->named, u->leaves.name);
	bool differs = false, complement = true;
	for (int64_t i = 0; own && i < n && count_of(&own->shape) == n; i++) {
		double x = weight_number(r, w, i);
		differs |= x != weight_number(r, own, i);
		complement &= x == copied_number(r, own, COPY_COMPLEMENT, i);
	}
	return differs && !complement;
}

// True if it was folded from a parameter and is more than a view of it: a scalar, a table that is
// not contracted, or a product with other parameters or buffers.
static bool is_computed(const Use *u)
{
	const Leaves *leaves = &u->leaves;
	if (!leaves->name || strcmp(leaves->name, u->name))
		return false;
	if (leaves->parameters == 1 && !leaves->buffers && leaves->whole &&
	    (u->repeated || !leaves->repeated))
		return false;
	bool table =
	    wide_axes(&u->w->shape) > 1 && u->reader && !is_one_of(OPS_contractions, u->reader);
	return !u->w->shape.rank || leaves->parameters > 1 || leaves->buffers ||
	       (leaves->count > 1 && table) || is_recomputed(u);
}

// True if the newer exporter computed it from one parameter, not only as a view.
static bool is_function_of_one(const Use *u)
{
	const Leaves *leaves = &u->leaves;
	return leaves->parameters == 1 && !leaves->buffers && leaves->function &&
	       strcmp(u->w->name, leaves->name) != 0;
}

static const char *signature_reason(const Use *u)
{
	Reader *r = u->r;
	Weight *w = u->w;
	const char *kind =
	    info_property(r, w->name, "pkg.torch.export.graph_signature.InputSpec.kind");
	int parameters = u->leaves.parameters;
	if (is_parameter_name(r, u->name) && !is_computed(u))
		return no_reason;
	if (kind && strcmp(kind, "PARAMETER"))
		return !strcmp(kind, "BUFFER") ? "a buffer" : "a constant of the program";
	if (kind || (parameters && is_one_of(OPS_recurrent, u->reader)))
		return no_reason;
	bool added = u->reader && is_score_bias(u), vector = wide_axes(&w->shape) == 1;
	if (added && parameters && has_trait(r, w, T_hides))
		return masked;
	bool contracted = u->reader && is_one_of(OPS_contractions, u->reader);
	if (parameters && u->reader && (added || vector || contracted) && !is_recomputed(u))
		return no_reason;
	if (parameters)
		return made_numbers;
	// X.weight_bias: BatchNorm, fused into the convolution of X.weight.
	int stem = (int)strlen(w->name) - (int)strlen("_bias");
	if (ends_with(w->name, "_bias") &&
	    is_parameter_name(r, format(r->arena, "%.*s", stem, w->name)))
		return no_reason;
	return "a constant of the program";
}

// True if a value of an operator is a parameter: PyTorch's newer exporter says so; its older one
// names what the module names, such as the token of masked patches.
static bool is_learned_value(const Use *u)
{
	Reader *r = u->r;
	Weight *w = u->w;
	if (r->signature)
		return is_parameter_name(r, w->name) || u->leaves.parameters;
	if (!starts_with(r->proto->producer_name, "pytorch") || is_opaque(u->name))
		return false;
	return !has_trait(r, w, T_hides) && (has_few_values(r, w, 1) || !has_trait(r, w, T_two));
}

const char *reason_not_trained(const Use *u)
{
	if (u->w->inner)
		return "it lies in the graph of a loop or branch, where it cannot be written back";
	if (u->role == R_statistic)
		return running_statistics;
	if (u->r->file->trained)
		return table_find_s(u->r->file->trained, u->w->name) ? no_reason
		                                                     : "the file does not train it";
	if (u->w->attribute)
		return no_reason;
	if (u->role == R_scalar || (u->role == R_value && !is_learned_value(u)))
		return "a number of an operator";
	const char *why = u->r->signature ? signature_reason(u) : guess_reason(u);
	return !why && u->w->table && has_trait(u->r, u->w, T_sines) ? sines : why;
}

// Returns what computes one operand of the node, if the name of the other begins so; else NULL.
static const NodeProto *maker_of_other(const Reader *r, const NodeProto *node, const char *begin)
{
	for (int k = 0; node && node->n_input == 2 && k < 2; k++)
		if (starts_with(node->input[k], begin))
			return find_name(r->file, node->input[1 - k])->maker;
	return NULL;
}

// Returns the node that reads the value, or the one behind nodes that repeat it: InstanceNorm
// repeats its statistics over the batch.
static const Reading *read_through(const Reader *r, const Reading *read)
{
	enum { MOST = 4 };
	for (int i = 0; i < MOST && read && read->node->n_output &&
	                is_word("Expand Tile Reshape", read->node->op_type);
	     i++)
		read = find_name(r->file, read->node->output[0])->first;
	return read;
}

// True if it is the scale or shift of a frozen BatchNorm, whose numbers are all buffers. Either its
// module has running statistics that no BatchNormalization reads, or it belongs to a Mul and an Add
// right after a convolution, whose constants the exporter computed.
static bool is_frozen_norm(const Use *u)
{
	const Reader *r = u->r;
	const char *dot = strrchr(u->name, '.');
	if (dot && (!strcmp(dot, ".weight") || !strcmp(dot, ".bias"))) {
		const char *var =
		    format(r->arena, "%.*s.running_var", (int)(dot - u->name), u->name);
		const char *mean =
		    format(r->arena, "%.*s.running_mean", (int)(dot - u->name), u->name);
		const Reading *read = read_through(r, find_name(r->file, var)->first);
		if (read && find_name(r->file, mean)->tensor)
			return strcmp(read->node->op_type, "BatchNormalization") != 0;
	}
	bool scales = !strcmp(u->node->op_type, "Mul");
	const NodeProto *add =
	    scales && u->node->n_output ? find_name(r->file, u->node->output[0])->last : u->node;
	const NodeProto *mul = maker_of_other(r, add, "onnx::Add_");
	const NodeProto *conv = mul && !strcmp(mul->op_type, "Mul") && !strcmp(add->op_type, "Add")
	                            ? maker_of_other(r, mul, "onnx::Mul_")
	                            : NULL;
	return conv && is_one_of(OPS_affine, conv) && (mul == u->node || add == u->node);
}

// True if an exporter or optimizer computed it, by its name, by more than moves: of weights or of
// constants. A BatchNorm is told of by itself.
static bool is_computed_name(const Use *u)
{
	static const char moves[] = "ReadVariableOp Squeeze transpose Transpose Reshape ExpandDims "
	                            "Cast Identity",
	                  functions[] =
	                      "mul Mul add Add AddV2 sub Sub truediv RealDiv DivNoNan Neg neg "
	                      "Exp Log Log1p Softplus Sigmoid Tanh Relu Abs Square Sqrt Rsqrt "
	                      "Pow pow Sum Mean Max Min Maximum Minimum Softmax MatMul Gemm Conv "
	                      "Einsum Div Erf Sin Cos Where Concat ReduceMean ReduceSum "
	                      "concat stack Pack l2_normalize clip_by_value";
	const char *op = result_op(u->r, u->w->name);
	if (!op || strstr(u->w->name, "batchnorm/"))
		return false;
	return is_word(functions, op) ||
	       (starts_with(u->w->name, "ConstantFolding/") && !is_word(moves, op));
}

static bool names_traced_nodes(Reader *r)
{
	const GraphProto *g = r->proto->graph;
	for (size_t i = 0; i < g->n_node && !r->traced; i++)
		r->traced = starts_with(g->node[i]->name, "node_");
	r->traced = r->traced ? r->traced : -1;
	return r->traced > 0;
}

// True if PyTorch's newer exporter computed it, by its name, and a tool removed what that records,
// as ONNX Runtime's optimizer and onnxsim do. Kernels that it transposes are weights.
static bool is_unrecorded(const Use *u)
{
	static const char moves[] = "val t transpose permute",
	                  results[] =
	                      "embedding view reshape unsqueeze squeeze expand repeat tile slice "
	                      "select cat stack clone contiguous mul add sub div neg pow exp log "
	                      "log1p softplus sigmoid tanh relu abs sqrt rsqrt sum mean amax amin "
	                      "softmax matmul mm bmm einsum linalg_vector_norm sin cos where full "
	                      "zeros ones arange linspace index gather flip roll";
	const char *name = u->w->name;
	if (strchr(name, '.') || !starts_with(u->r->proto->producer_name, "pytorch") ||
	    is_one_of(OPS_recurrent, u->reader))
		return false;
	Arena *arena = u->r->arena;
	bool moved = has_stem(arena, moves, name) && !is_one_of(OPS_contractions, u->reader);
	return (moved || has_stem(arena, results, name)) && names_traced_nodes(u->r);
}

static bool is_param(const Graph *g, Ref x)
{
	const Val *v = val(g, x);
	return v->op == O_slot && g->slots.at[v->attr->i[0]].kind == S_param;
}

// True if v is a signal that a constant scales or shifts, or `any` other value.
static bool is_scaled(const Graph *g, const Val *v, bool any)
{
	return (v->op == O_mul || v->op == O_add || v->op == O_div) &&
	       (any || val(g, v->in[1])->op == O_const);
}

// True if it shifts or scales an input of the model, as mean and standard deviation of images do.
// TensorFlow multiplies with constants that it computed, and so do scalers of scikit-learn; a
// learned factor is a variable, or has another name.
static bool normalizes_input(const Use *u)
{
	enum { MOST = 16 }; // values between
	static const char *const words[] = {"Sub Div", "Sub Div Mul Add"};
	const char *producer = u->r->proto->producer_name;
	bool computed =
	    (starts_with(producer, "tf2onnx") && !strstr(u->w->name, "ReadVariableOp")) ||
	    (starts_with(producer, "skl2onnx") && matches("*cst*", u->w->name));
	if (!is_word(words[computed], u->node->op_type) || (!computed && u->operand != 1))
		return false;
	const Graph *g = u->call->g;
	const Val *v = val(g, u->call->arg[1 - u->operand].ref);
	for (int i = 0; i < MOST && (v->op == O_cast || v->op == O_permute || v->op == O_reshape ||
	                             v->op == O_sub || is_scaled(g, v, computed));
	     i++)
		v = val(g, v->in[is_scaled(g, v, computed) && is_param(g, v->in[0])]);
	return v->op == O_slot && g->slots.at[v->attr->i[0]].kind == S_input;
}

// True if PyTorch's older exporter stored it without a name, which it gives to moves of a weight as
// to what it computes from weights, and the operator reads no weights: such as a norm under a Clip.
static bool is_nameless_value(const Use *u)
{
	const Weight *w = u->w;
	return starts_with(u->r->proto->producer_name, "pytorch") &&
	       is_opaque(w->alias ? w->alias : w->name) && u->role == R_none &&
	       role_of(u->reader, u->input) == R_none && !is_one_of(OPS_recurrent, u->reader) &&
	       !is_one_of(OPS_contractions, u->reader);
}

// True if the node only moves or scales its first operand.
static bool keeps_angle(const Reader *r, const NodeProto *node)
{
	bool scales = is_word("Mul Div", node->op_type), constant = false;
	for (size_t k = 0; k < node->n_input && scales; k++) {
		const Named *named = find_name(r->file, node->input[k]);
		Shape shape =
		    named->tensor ? tensor_shape(r->model->path, named->tensor) : (Shape){0};
		constant |= named->tensor
		                ? count_of(&shape) == 1
		                : named->maker && !strcmp(named->maker->op_type, "Constant");
	}
	return constant || is_one_of(OPS_views, node);
}

// True if the program takes sines and cosines of products with the weight, as random Fourier
// features do: most programs do not train such a weight.
static bool is_frequency(const Use *u)
{
	enum { MOST = 16 }; // values
	const char *name[MOST];
	int n = 0;
	bool sine = false, cosine = false;
	if (is_word("Mul MatMul Einsum", u->reader->op_type) && u->reader->n_output)
		name[n++] = u->reader->output[0];
	for (int i = 0; i < n; i++)
		for (const Reading *at = find_name(u->r->file, name[i])->first; at; at = at->next) {
			sine |= !strcmp(at->node->op_type, "Sin");
			cosine |= !strcmp(at->node->op_type, "Cos");
			if (n < MOST && at->node->n_output && keeps_angle(u->r, at->node))
				name[n++] = at->node->output[0];
		}
	return sine && cosine;
}

// Marks what follows a buffer of its module: PyTorch's older exporter stores the tensors of a
// module in order, its parameters before its buffers.
static void list_after_buffers(Reader *r)
{
	const GraphProto *g = r->proto->graph;
	Table *modules = table_lent(r->arena); // those with a buffer so far
	r->after = table_new(r->arena);
	for (size_t i = 0; i < g->n_initializer; i++) {
		const TensorProto *t = g->initializer[i];
		const char *dot = strrchr(t->name, '.');
		uint64_t *seen = table_cell_s(
		    modules, format(r->arena, "%.*s", dot ? (int)(dot - t->name) : 0, t->name));
		if (*seen && !is_opaque(t->name))
			*table_cell_s(r->after, t->name) = true;
		*seen |= !is_opaque(t->name) && is_certain_buffer(t);
	}
}

static bool follows_buffer(const Use *u)
{
	Reader *r = u->r;
	if (r->signature || !starts_with(r->proto->producer_name, "pytorch"))
		return false;
	if (!r->after)
		list_after_buffers(r);
	return table_find_s(r->after, u->w->name) != NULL;
}

// Returns why its numbers, or what is computed with them, make it look like a constant of the
// program, whatever the exporter; NULL: they do not.
static const char *question_of_numbers(const Use *u)
{
	Reader *r = u->r;
	Weight *w = u->w;
	if (w->table)
		return NULL;
	if (is_one_of(OPS_arithmetic, u->reader) && has_trait(r, w, T_powers))
		return series;
	if (has_trait(r, w, T_mirror))
		return "symmetric numbers: a weight to train, or a constant to --freeze?";
	// Data for a product with weights: coordinates that a network of positions reads.
	if (!u->input && is_word("MatMul Gemm", u->reader->op_type) && has_trait(r, w, T_waves))
		return asked_sines;
	if (is_frequency(u))
		return "frequencies of sines and cosines: a weight to train, or a constant to "
		       "--freeze?";
	return NULL;
}

const char *reason_to_ask(const Use *u)
{
	static const char computed[] =
	    "computed by the exporter: a weight to train, or a constant to --freeze?";
	const NodeProto *node = u->node;
	Weight *w = u->w;
	if (!node || u->r->file->trained)
		return NULL;
	if (!w->table && has_trait(u->r, w, T_grid))
		return series;
	bool recurs = is_one_of(OPS_recurrent, u->reader);
	if (u->r->signature && is_one_of(OPS_arithmetic, u->reader) && has_trait(u->r, w, T_sines))
		return asked_sines;
	if (u->r->signature && !recurs && (is_computed(u) || is_function_of_one(u)))
		return computed_from;
	if (u->r->signature)
		return question_of_numbers(u);
	if (follows_buffer(u) && !reason_not_trained(u))
		return "it follows a buffer of its module: a weight to train, or a constant to "
		       "--freeze?";
	bool pytorch = starts_with(u->r->proto->producer_name, "pytorch");
	if (pytorch && is_usual_buffer_name(u->name) && !reason_not_trained(u))
		return "named as buffers are: a weight to train, or a constant to --freeze?";
	if (normalizes_input(u))
		return "it normalizes an input: a weight to train, or a constant to --freeze?";
	if (u->repeated || is_computed_name(u) || is_unrecorded(u))
		return computed;
	if (is_frozen_norm(u))
		return "part of a frozen BatchNorm: a weight to train, or a constant to --freeze?";
	if (u->role == R_value && count_of(&w->shape) == 1)
		return "a bound or an exponent: a weight to train, or a constant to --freeze?";
	// A kernel: a view of one keeps its name here. BatchNorm, folded into it, renames the bias
	// too.
	bool kernel = is_one_of(OPS_affine, node) && u->operand == 1 && !w->alias &&
	              starts_with(w->name, "onnx::") &&
	              !(node->n_input > 2 && starts_with(node->input[2], "onnx::"));
	if (kernel || is_folded_table(u) || is_nameless_value(u))
		return computed;
	bool contracted = !w->table && is_one_of(OPS_contractions, u->reader);
	bool scales = wide_axes(&w->shape) > 1 && is_word("Mul Div", u->reader->op_type);
	if ((contracted || scales) && has_trait(u->r, u->w, T_bank))
		return "nothing negative in it: a weight to train, or a constant to --freeze?";
	if (contracted && has_trait(u->r, u->w, T_few))
		return "few different numbers in it: a weight to train, or a constant to --freeze?";
	if (w->table && has_trait(u->r, u->w, T_schedule))
		return "a schedule by its numbers: a weight to train, or a constant to --freeze?";
	if (contracted && has_trait(u->r, u->w, T_basis))
		return "a basis of functions by its numbers: a weight to train, or a constant to "
		       "--freeze?";
	return question_of_numbers(u);
}

int users_choice(const Reader *r, const char *name, const char *file)
{
	int choice = -1;
	for (int i = 0; i < r->options->nselect; i++) {
		const Selection *s = &r->options->select[i];
		if (!matches(s->pattern, name) && !matches(s->pattern, file))
			continue;
		r->met[i] = true;
		choice = s->train;
	}
	return choice;
}

void check_choices(Reader *r)
{
	VEC(const char *) names = {0};
	for (int i = 0; i < r->weights.count; i++)
		PUSH(r->arena, names, r->weights.at[i]->name);
	for (int i = 0; i < r->options->nselect; i++) {
		const Selection *s = &r->options->select[i];
		for (int k = 0; k < names.count && !r->met[i]; k++)
			r->met[i] = matches(s->pattern, names.at[k]);
		if (!r->met[i])
			add_unmatched(r, s->train ? "train" : "freeze", s->pattern, "initializer",
			              names.count, names.at);
	}
}
