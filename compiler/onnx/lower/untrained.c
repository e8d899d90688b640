// untrained.c: what is not trained, and why: statistics, numbers of operators, tables that were
// computed, what the file or the user says of it. Takes a weight and the node that reads it. Gives
// the reason, and for what is trained a question where that is in doubt. Keeps: every weight that
// is not trained has a reason. Facts: where all of a computation is constant, exporters put its
// result in the file under a name of their own. The newer PyTorch says what it was computed from;
// of others the operator that reads it and the numbers must tell: a kernel of a product and what is
// added to scores of attention are trained, masks, waves, grids and Fourier transforms are not.
#include "lower.h"
#include <math.h>
#include <string.h>

static const char *const no_reason = NULL; // a parameter
const char running_statistics[] = "running statistics";
const char computed_table[] = "a table that the exporter computed";
static const char sines[] = "a table of sines and cosines", masked[] = "a mask lies in it";

// ---- tables whose numbers tell what they are ------------------------------------------

// Columns of rows as long as the last axis, in pairs (i, i + apart) whose squares sum to 1.
static bool circles(Reader *r, Weight *w, int64_t apart)
{
	int64_t columns = w->shape.dim[w->shape.rank - 1];
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
	int64_t columns = w->shape.rank > 1 ? w->shape.dim[w->shape.rank - 1] : 1;
	if (columns % 2 || !columns || count_of(&w->shape) < 2 * columns)
		return false;
	return circles(r, w, columns / 2) || circles(r, w, 1);
}

typedef struct Lines {   // of a table along one axis
	int64_t n, step; // entries of a line; from one to the next
	int64_t count;   // of lines
} Lines;

static Lines lines_along(const Weight *w, int axis)
{
	Lines l = {.n = w->shape.dim[axis], .step = 1};
	for (int a = axis + 1; a < w->shape.rank; a++)
		l.step *= w->shape.dim[a];
	l.count = l.n ? count_of(&w->shape) / l.n : 0;
	return l;
}

// Where line i begins.
static int64_t line_start(const Lines *l, int64_t i)
{
	return i / l->step * l->step * l->n + i % l->step;
}

// Is it a Fourier transform: along an axis cosines, then sines of the same frequencies, whose
// squares are together those of a window?
static bool is_transform(Reader *r, Weight *w, int axis)
{
	const Lines l = lines_along(w, axis);
	int64_t half = l.n / 2 * l.step;
	bool varies = false;
	if (l.n % 2 || l.n < 4 || l.count < 4)
		return false;
	for (int64_t i = 0; i < l.count; i++) {
		int64_t line = line_start(&l, (i + l.count / 2) % l.count); // windows end in zeros
		double first = weight_number(r, w, line);
		double window = hypot(first, weight_number(r, w, line + half));
		if (!i && !(window > 0))
			return false;
		for (int64_t at = line + l.step; at < line + half; at += l.step) {
			double x = weight_number(r, w, at), y = weight_number(r, w, at + half);
			if (fabs(hypot(x, y) - window) > 1e-3 * window + 1e-6)
				return false;
			varies |= fabs(fabs(x) - fabs(first)) > 1e-2 * window;
		}
	}
	return varies;
}

// Does it look like filters or an interpolation: nothing negative, and mostly zeros?
static bool is_filter_bank(Reader *r, Weight *w)
{
	enum { LEAST = 16, LOOK = 4096 };
	int64_t n = count_of(&w->shape), zeros = 0;
	for (int64_t i = 0; i < n; i++) {
		double x = weight_number(r, w, i);
		zeros += x == 0;
		if (x < 0 || !isfinite(x) || (i == LOOK && zeros == i + 1))
			return false;
	}
	return n >= LEAST && zeros < n && zeros >= n / 2;
}

// Does it hide scores: holds it what a softmax turns into zeros?
static bool hides(Reader *r, Weight *w)
{
	enum { HIDDEN = -50 };
	for (int64_t i = 0; i < count_of(&w->shape); i++)
		if (!(weight_number(r, w, i) > HIDDEN))
			return true;
	return false;
}

static bool two_numbers(Reader *r, Weight *w)
{
	int64_t n = count_of(&w->shape);
	double first = n ? weight_number(r, w, 0) : 0, other = first;
	for (int64_t i = 0; i < n; i++) {
		double x = weight_number(r, w, i);
		if (x != first && x != other && other != first)
			return false;
		other = x != first ? x : other;
	}
	return true;
}

// Is it a grid or distances: straight lines along an axis, with a bend each at most?
static bool is_regular_along(Reader *r, Weight *w, int axis)
{
	enum { SHORTEST = 5 };
	const Lines l = lines_along(w, axis);
	for (int64_t i = 0; i < l.count; i++) {
		int bends = 0;
		for (int64_t k = 1; k < l.n - 1; k++) {
			int64_t at = line_start(&l, i) + k * l.step;
			double before = weight_number(r, w, at - l.step),
			       x = weight_number(r, w, at),
			       after = weight_number(r, w, at + l.step);
			bends += fabs(before - 2 * x + after) >
			         1e-4 * (fabs(before) + fabs(x) + fabs(after));
		}
		if (bends > 1)
			return false;
	}
	return l.n >= SHORTEST;
}

static bool is_regular(Reader *r, Weight *w)
{
	for (int a = 0; a < w->shape.rank; a++)
		if (is_regular_along(r, w, a))
			return true;
	return false;
}

static bool is_fourier(Reader *r, Weight *w)
{
	int last = w->shape.rank - 1;
	return last > 0 && (is_transform(r, w, 0) || is_transform(r, w, last));
}

// Looked for once in a weight.
static bool has(Reader *r, Weight *w, Trait trait)
{
	static bool (*const tests[TRAITS])(Reader *, Weight *) = {
	    [T_hides] = hides,        [T_two] = two_numbers,    [T_sines] = is_sinusoid,
	    [T_regular] = is_regular, [T_fourier] = is_fourier, [T_bank] = is_filter_bank};
	signed char *found = &w->origin->found[trait];
	if (!*found)
		*found = tests[trait](r, w) ? 1 : -1;
	return *found > 0;
}

// ---- names and places -----------------------------------------------------------------

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
	if (!ends_with(name, "weight_u") && !ends_with(name, "weight_v"))
		return false;
	int stem = (int)strlen(name) - 1;
	return find_name(r->file, format(r->arena, "%.*su", stem, name))->tensor;
}

// Is operand k added to products of one column: a bias, though a single number?
static bool is_lone_bias(const Call *c, int k)
{
	if (is_one_of(OPS_affine, c->node))
		return k == 2;
	Ref product = !strcmp(c->node->op_type, "Add") && c->nin == 2 ? c->arg[1 - k].ref : 0;
	const Val *v = val(c->g, product);
	while (v->op == O_reshape)
		v = val(c->g, v->in[0]);
	return product && v->op == O_dot && v->shape.dim[v->shape.rank - 1] == 1;
}

// Is operand k subtracted from an input of the model, or does it divide one?
static bool is_of_input(const Call *c, int k)
{
	const char *op = c->node->op_type;
	bool normalizes = k == 1 && (!strcmp(op, "Sub") || !strcmp(op, "Div"));
	const Val *v = val(c->g, normalizes ? c->arg[0].ref : 0);
	while (v->op == O_cast || v->op == O_permute || v->op == O_reshape || v->op == O_sub)
		v = val(c->g, v->in[0]);
	return normalizes && v->op == O_slot && c->g->slots.at[v->attr->i[0]].kind == S_input;
}

// Is it added to the scores of attention?
static bool is_score_bias(const Reader *r, Use use)
{
	if (!strcmp(use.node->op_type, "Attention") && !*plain_domain(use.node->domain))
		return use.operand == 3;
	return !strcmp(use.node->op_type, "Add") && is_scored(r, use.node);
}

// A table that an exporter without metadata computed, to judge by its name.
static bool is_folded_table(const Weight *w, const NodeProto *node)
{
	return is_opaque(w->alias ? w->alias : w->name) && wide_axes(&w->shape) > 1 &&
	       is_one_of(OPS_arithmetic, node);
}

// The same of a kernel: a view of one keeps its name here. BatchNorm, folded into it, renames the
// bias too.
static bool is_folded_kernel(const Weight *w, const NodeProto *node, int k)
{
	return is_one_of(OPS_affine, node) && k == 1 && !w->alias &&
	       starts_with(w->name, "onnx::") &&
	       !(node->n_input > 2 && starts_with(node->input[2], "onnx::"));
}

// Of such a table; of one that is added to data the name tells, if it has one of its own.
static const char *table_reason(Reader *r, Weight *w, Use use, bool named)
{
	static const char *const kinds[TRAITS] = {[T_hides] = masked,
	                                          [T_two] = "a mask of two numbers",
	                                          [T_sines] = sines,
	                                          [T_regular] = "a grid, or distances"};
	for (int t = 0; t < TRAITS; t++)
		if (kinds[t] && has(r, w, (Trait)t))
			return kinds[t];
	bool added = named && !strcmp(use.node->op_type, "Add");
	return added || is_score_bias(r, use) ? no_reason : computed_table;
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
	Use use = use_behind(r, c ? c->node : NULL, k);
	if (is_folded_table(w, use.node))
		return table_reason(r, w, use, named || use.node != c->node);
	if (!w->table && is_one_of(OPS_contractions, use.node) && has(r, w, T_fourier))
		return "a Fourier transform";
	if (!strcmp(op, "InstanceNormalization") && !named && one_value(r, w))
		return "ones or zeros";
	return no_reason;
}

// Folded from a parameter: is it more than the parameter in another shape? Tables that are not
// contracted, products of several parameters or with buffers, and single numbers are.
static bool is_computed(const Weight *w, const Leaves *leaves, const NodeProto *node,
                        const char *name)
{
	if (!leaves->name || strcmp(leaves->name, name))
		return false;
	bool table = wide_axes(&w->shape) > 1 && node && !is_one_of(OPS_contractions, node);
	return !w->shape.rank || leaves->parameters > 1 || leaves->buffers ||
	       (leaves->count > 1 && table);
}

static const char *signature_reason(Reader *r, Weight *w, Use use, const char *name)
{
	const char *kind = kind_of(r, w->name);
	Leaves leaves = leaves_of(r, w);
	if (is_parameter_name(r, name) && !is_computed(w, &leaves, use.node, name))
		return no_reason;
	if (kind && strcmp(kind, "PARAMETER"))
		return !strcmp(kind, "BUFFER") ? "a buffer" : "a constant of the program";
	if (kind || (leaves.parameters && is_one_of(OPS_recurrent, use.node)))
		return no_reason;
	bool added = use.node && is_score_bias(r, use), vector = wide_axes(&w->shape) == 1;
	if (added && leaves.parameters && has(r, w, T_hides))
		return masked;
	if (leaves.parameters && use.node &&
	    (added || vector || is_one_of(OPS_contractions, use.node)))
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

const char *reason_not_trained(Reader *r, Weight *w, const Call *c, int k, const char *name)
{
	const NodeProto *node = c ? c->node : NULL;
	if (w->inner)
		return "it lies in the graph of a loop or branch, where it cannot be written back";
	if (role_of(node, k) == R_statistic)
		return running_statistics;
	if (r->file->trained)
		return table_find_s(r->file->trained, w->name) ? no_reason
		                                               : "the file does not train it";
	if (role_of(node, k) == R_scalar)
		return "a number of an operator";
	const char *why = has_signature(r) ? signature_reason(r, w, use_behind(r, node, k), name)
	                                   : guess_reason(r, w, c, k, name);
	if (!why && w->table && has(r, w, T_sines))
		why = sines;
	return why;
}

const char *reason_to_ask(Reader *r, Weight *w, const Call *c, int k, const char *name)
{
	static const char computed[] =
	    "the exporter computed it: a weight to train, or a constant to --freeze?";
	static const char input[] =
	    "it normalizes an input: a weight to train, or a constant to --freeze?";
	static const char bank[] =
	    "mostly zeros and nothing negative: a weight to train, or a constant to --freeze?";
	Use use = use_behind(r, c ? c->node : NULL, k);
	Leaves leaves = leaves_of(r, w);
	if (!c || r->file->trained)
		return NULL;
	if (has_signature(r))
		return is_computed(w, &leaves, use.node, name) &&
		               !is_one_of(OPS_recurrent, use.node)
		           ? computed
		           : NULL;
	if (is_folded_table(w, use.node) || is_folded_kernel(w, c->node, k))
		return computed;
	if (is_of_input(c, k))
		return input;
	return !w->table && is_one_of(OPS_contractions, use.node) && has(r, w, T_bank) ? bank
	                                                                               : NULL;
}

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
			add_error(
			    r, format(r->arena, "--%s '%s' matches no initializer; %s",
			              train ? "train" : "freeze", pattern + train,
			              suggest(r->arena, pattern + train, names.count, names.at)));
	}
}
