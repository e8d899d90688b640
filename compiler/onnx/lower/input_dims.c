// input_dims.c: infers open input dimensions.
// Exporters name a size by a sum or a product of named ones ("past_sequence_length + 1"), and a
// weight says how many channels or features come to it. Takes the inputs as declared and the
// caller's numbers.
#include "lower.h"
#include <stdlib.h>
#include <string.h>

// ---- names that are computed ----------------------------------------------------------

bool is_formula(const char *name)
{
	return strpbrk(name, "+*") != NULL;
}

// -1: not known.
static int64_t size_of(const Reader *r, const Expr *e)
{
	if (e->kind == X_name)
		return open_size(r, NULL, 0, e->name);
	if (e->kind == X_num && e->x >= 0 && e->x < (double)INT32_MAX)
		return (int64_t)e->x;
	if (e->nin != 2 || (e->op != O_add && e->op != O_mul))
		return -1;
	int64_t x = size_of(r, e->in[0]), y = size_of(r, e->in[1]), size;
	bool wrong = x < 0 || y < 0 ||
	             (e->op == O_add ? __builtin_add_overflow(x, y, &size)
	                             : __builtin_mul_overflow(x, y, &size));
	return wrong ? -1 : size;
}

static int64_t computed(const Reader *r, const char *name)
{
	Catch caught;
	if (!TRY(caught)) {
		int64_t size = size_of(r, parse_text(r->arena, name, name));
		catch_end(&caught);
		return size;
	}
	if (caught.status != STATUS_INPUT)
		fail_again(&caught);
	free(caught.message);
	return -1; // no formula
}

// ---- what weights tell ----------------------------------------------------------------

// Axis `axis` of operand 0 (-1: the last) is as long as axis `of` of the weight, operand 1.
static const struct Meeting {
	const char *op;
	int axis, of;
} meetings[] = {{"Conv", 1, 1},  {"ConvTranspose", 1, 0}, {"BatchNormalization", 1, 0},
                {"LSTM", -1, 2}, {"GRU", -1, 2},          {"RNN", -1, 2},
                {"Gemm", -1, 0}, {"MatMul", -1, 0}};

// As it stands there: whether it may is for the lowering to say.
static int64_t whole_attribute(const NodeProto *node, const char *name, int64_t otherwise)
{
	const AttributeProto *a = find_attribute(node->n_attribute, node->attribute, name);
	return a ? a->i : otherwise;
}

static int64_t told_by(const Reader *r, const NodeProto *node, int axis, int rank)
{
	for (int k = 0; k < COUNT(meetings); k++) {
		const struct Meeting *m = &meetings[k];
		int of = m->of;
		if (strcmp(node->op_type, m->op) || plain_domain(node->domain)[0] ||
		    axis != (m->axis < 0 ? rank - 1 : m->axis))
			continue;
		if (!strcmp(m->op, "Gemm") && whole_attribute(node, "transA", 0))
			return -1;
		if (!strcmp(m->op, "Gemm") && whole_attribute(node, "transB", 0))
			of = 1;
		const TensorProto *w =
		    node->n_input > 1 ? find_name(r->file, node->input[1])->tensor : NULL;
		bool vector = !strcmp(m->op, "MatMul") && w && w->n_dims != 2;
		int64_t size = w && !vector && of < (int)w->n_dims ? w->dims[of] : -1;
		int64_t group = strcmp(m->op, "Conv") ? 1 : whole_attribute(node, "group", 1);
		return __builtin_mul_overflow(size, group, &size) ? -1 : size;
	}
	return -1;
}

// By those whose first operand is the value `name`; *same is one that is it in another type, or
// NULL.
static int64_t told_of(const Reader *r, const char *name, int axis, int rank, const char **same)
{
	*same = NULL;
	for (const Reading *at = find_name(r->file, name)->first; at; at = at->next) {
		const NodeProto *node = at->node;
		if (strcmp(node->input[0], name))
			continue;
		int64_t size = told_by(r, node, axis, rank);
		if (size > 0)
			return size;
		if (!strcmp(node->op_type, "Cast") && node->n_output)
			*same = node->output[0];
	}
	return -1;
}

// The first size that is told for a name stands.
static void tell_sizes(const Reader *r, const Input *in)
{
	for (int a = 0; a < in->rank; a++) {
		const char *same, *last, *name = in->dim[a].name;
		int64_t size = told_of(r, in->name, a, in->rank, &same);
		if (size < 0 && same)
			size = told_of(r, same, a, in->rank, &last);
		uint64_t *cell = table_cell_s(
		    r->file->sizes, name[0] ? name : format(r->arena, "%s:%d", in->name, a));
		if (!*cell && size > 0)
			*cell = (uint64_t)size;
	}
}

// Once for all readings of a file.
void list_sizes(Reader *r)
{
	if (r->file->sizes)
		return;
	r->file->sizes = table_new(r->file->arena);
	for (int i = 0; i < r->model->inputs.count; i++)
		tell_sizes(r, &r->model->inputs.at[i]);
}

static int64_t told_by_weights(const Reader *r, const char *key)
{
	const uint64_t *cell = table_find_s(r->file->sizes, key);
	return cell && *cell ? (int64_t)*cell : -1;
}

// ---- all of them ----------------------------------------------------------------------

int64_t open_size(const Reader *r, const char *input, int axis, const char *name)
{
	const char *place = input ? format(r->arena, "%s:%d", input, axis) : "";
	for (int i = r->options->nbind - 1; i >= 0; i--) {
		const Bind *b = &r->options->bind[i];
		if ((name[0] && !strcmp(b->name, name)) || (input && !strcmp(b->name, place)))
			return b->size;
	}
	int64_t size = told_by_weights(r, name[0] ? name : place);
	return size < 0 && is_formula(name) ? computed(r, name) : size;
}
