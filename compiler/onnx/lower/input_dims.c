// input_dims.c: infers open input dimensions.
// Exporters name a size by a sum or a product of named sizes ("past_sequence_length + 1"), and the
// shape of a weight gives the number of channels or features of its input.
#include "lower.h"
#include <stdlib.h>
#include <string.h>

// ---- names that are computed ----------------------------------------------------------

bool is_formula(const char *name)
{
	return strpbrk(name, "+*") != NULL;
}

// Returns the size that a name or an integer stands for, or -1 if it is not known.
static int64_t named_size(const Reader *r, const char *text, int length)
{
	while (length && text[length - 1] == ' ')
		length--;
	const char *name = format(r->arena, "%.*s", length, text);
	char *end;
	long long number = strtoll(name, &end, 10);
	if (*name >= '0' && *name <= '9' && !*end)
		return number < INT32_MAX ? number : -1;
	return *name ? open_size(r, NULL, 0, name) : -1;
}

// Returns a sum of products of names, integers and, in parentheses, such sums; -1 if it is not
// known. Moves `at` after it. All characters but +*() belong to names: "past-length + 1".
static int64_t sum_of(const Reader *r, const char **at, int depth)
{
	enum { DEEPEST = 16 };
	int64_t sum = 0, product = 1, x;
	for (;;) {
		*at += strspn(*at, " ");
		if (**at == '(' && depth < DEEPEST) {
			++*at;
			x = sum_of(r, at, depth + 1);
			x = **at == ')' ? x : -1;
			*at += **at == ')';
			*at += strspn(*at, " ");
		} else {
			int length = (int)strcspn(*at, "+*()");
			x = named_size(r, *at, length);
			*at += length;
		}
		if (x < 0 || __builtin_mul_overflow(product, x, &product))
			return -1;
		char sign = **at;
		if (sign != '*' && __builtin_add_overflow(sum, product, &sum))
			return -1;
		if (sign != '*' && sign != '+')
			return sum;
		if (sign == '+')
			product = 1;
		++*at;
	}
}

// ---- sizes that follow from weights ---------------------------------------------------

// Axis `axis` of input 0 (-1: the last) is as long as axis `of` of the weight, input 1.
static const struct Meeting {
	const char *op;
	int axis, of;
} meetings[] = {{"Conv", 1, 1},  {"ConvTranspose", 1, 0}, {"BatchNormalization", 1, 0},
                {"LSTM", -1, 2}, {"GRU", -1, 2},          {"RNN", -1, 2},
                {"Gemm", -1, 0}, {"MatMul", -1, 0}};

// Returns the attribute as it is: the lowering checks it.
static int64_t int_attribute(const NodeProto *node, const char *name, int64_t otherwise)
{
	const AttributeProto *a = find_attribute(node->n_attribute, node->attribute, name);
	return a ? a->i : otherwise;
}

static int64_t size_by_node(const Reader *r, const NodeProto *node, int axis, int rank)
{
	for (int k = 0; k < COUNT(meetings); k++) {
		const struct Meeting *m = &meetings[k];
		int of = m->of;
		if (strcmp(node->op_type, m->op) || plain_domain(node->domain)[0] ||
		    axis != (m->axis < 0 ? rank - 1 : m->axis))
			continue;
		if (!strcmp(m->op, "Gemm") && int_attribute(node, "transA", 0))
			return -1;
		if (!strcmp(m->op, "Gemm") && int_attribute(node, "transB", 0))
			of = 1;
		const TensorProto *w =
		    node->n_input > 1 ? find_name(r->file, node->input[1])->tensor : NULL;
		bool vector = !strcmp(m->op, "MatMul") && w && w->n_dims != 2;
		int64_t size = w && !vector && of < (int)w->n_dims ? w->dims[of] : -1;
		int64_t group = strcmp(m->op, "Conv") ? 1 : int_attribute(node, "group", 1);
		return __builtin_mul_overflow(size, group, &size) ? -1 : size;
	}
	return -1;
}

// Returns the size that follows from the nodes whose first input is `name`, or -1. *same: a cast of
// that value, or NULL.
static int64_t size_by_readers(const Reader *r, const char *name, int axis, int rank,
                               const char **same)
{
	*same = NULL;
	for (const Reading *at = find_name(r->file, name)->first; at; at = at->next) {
		const NodeProto *node = at->node;
		if (strcmp(node->input[0], name))
			continue;
		int64_t size = size_by_node(r, node, axis, rank);
		if (size > 0)
			return size;
		if (!strcmp(node->op_type, "Cast") && node->n_output)
			*same = node->output[0];
	}
	return -1;
}

// Runs once per file. The first size that is found for a name counts.
void list_sizes(Reader *r)
{
	if (r->file->sizes)
		return;
	r->file->sizes = table_new(r->file->arena);
	for (int i = 0; i < r->model->inputs.count; i++) {
		const Input *in = &r->model->inputs.at[i];
		for (int a = 0; a < in->rank; a++) {
			const char *same, *last, *name = in->dim[a].name;
			int64_t size = size_by_readers(r, in->name, a, in->rank, &same);
			if (size < 0 && same)
				size = size_by_readers(r, same, a, in->rank, &last);
			const char *key = name[0] ? name : format(r->arena, "%s:%d", in->name, a);
			uint64_t *cell = table_cell_s(r->file->sizes, key);
			if (!*cell && size > 0)
				*cell = (uint64_t)size;
		}
	}
}

// ---- all open sizes -------------------------------------------------------------------

const Bind *find_bind(const Reader *r, const char *place, const char *name)
{
	for (int i = r->options->nbind - 1; i >= 0; i--) {
		const Bind *b = &r->options->bind[i];
		if ((name[0] && !strcmp(b->name, name)) || (place[0] && !strcmp(b->name, place)))
			return b;
	}
	return NULL;
}

int64_t open_size(const Reader *r, const char *input, int axis, const char *name)
{
	const char *place = input ? format(r->arena, "%s:%d", input, axis) : "";
	const Bind *bind = find_bind(r, place, name);
	if (bind)
		return bind->size;
	const uint64_t *found = table_find_s(r->file->sizes, name[0] ? name : place);
	if (found && *found)
		return (int64_t)*found;
	if (!is_formula(name))
		return -1;
	int64_t size = sum_of(r, &name, 0);
	return *name ? -1 : size;
}
