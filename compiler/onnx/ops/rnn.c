// rnn.c: finds the activations of LSTM, GRU and RNN.
// A node names them for each direction, with their numbers in two lists.
#include "ops.h"
#include <string.h>
#include <strings.h>

typedef struct Function { // an activation: a line of the book with its numbers
	const char *name;
	int count;
	AttrArg number[MOST_NUMBERS];
} Function;

// Returns the line of the book for a name in any case; NULL if there is no such activation.
static const char *find_activation(const char *name)
{
	static const char *const known[] = {
	    "Sigmoid",         "Tanh",       "Relu",        "Softplus", "Affine",  "LeakyRelu",
	    "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu",      "Softsign"};
	for (int i = 0; i < COUNT(known); i++)
		if (!strcasecmp(known[i], name))
			return known[i];
	return NULL;
}

// The numbers of activations stand in two lists, in the order of those activations that take them.
static void read_numbers(const Graph *g, Function *f, const AttributeProto *const list[2],
                         size_t at[2])
{
	f->count = numbers_of(g, f->name, f->number);
	for (int i = 0; i < f->count; i++) {
		int which = !strcmp(f->number[i].name, "beta");
		if (list[which] && at[which] < list[which]->n_floats)
			f->number[i].x = (double)list[which]->floats[at[which]++];
	}
}

// Reads all up to activation i: the lists of numbers have no other order.
static Function read_activation(const Call *c, int i, int each)
{
	static const char *const usual[3] = {"Sigmoid", "Tanh", "Tanh"};
	const AttributeProto *a = find_attr(c, "activations");
	const AttributeProto *const list[2] = {find_attr(c, "activation_alpha"),
	                                       find_attr(c, "activation_beta")};
	size_t at[2] = {0};
	Function f = {0};
	for (int k = 0; k <= i; k++) {
		const char *name = usual[each == 1 ? 1 : k % each];
		if (a && k < (int)a->n_strings)
			name = format(c->r->arena, "%.*s", (int)a->strings[k].len,
			              (const char *)a->strings[k].data);
		f.name = find_activation(name);
		if (!f.name)
			invalid_node(c, "activation %s", name);
		read_numbers(c->g, &f, list, at);
	}
	return f;
}

Ref recurrent_activation(Call *c, Ref x, int i, int each)
{
	Function f = read_activation(c, i, each);
	return book_call1(c->g, f.name, 1, &x, f.count, f.number);
}
