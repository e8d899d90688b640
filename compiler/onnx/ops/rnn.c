// rnn.c: finds the activations of LSTM, GRU and RNN.
// A node names them for each direction, with their numbers in two lists.
#include "ops.h"
#include <string.h>
#include <strings.h>

typedef struct Activation { // a line of the book with its numbers
	const char *name;
	int count;
	AttrArg number[MOST_NUMBERS];
} Activation;

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

// activation(x; i, each): x through activation i of a recurrent node, which has `each` for each
// direction. Reads all up to it: the lists of numbers have no other order.
Item fn_activation(Call *c, Scope *s, const Expr *e)
{
	static const char *const usual[3] = {"Sigmoid", "Tanh", "Tanh"};
	const AttributeProto *a = find_attr(c, "activations");
	const AttributeProto *const list[2] = {find_attr(c, "activation_alpha"),
	                                       find_attr(c, "activation_beta")};
	int64_t i = call_integer(s, e, 0), each = call_integer(s, e, 1);
	size_t at[2] = {0};
	Activation f = {0};
	for (int k = 0; k <= i; k++) {
		const char *name = usual[each == 1 ? 1 : k % each];
		if (a && k < (int)a->n_strings)
			name = format(c->r->arena, "%.*s", (int)a->strings[k].len,
			              (const char *)a->strings[k].data);
		f.name = find_activation(name);
		if (!f.name)
			invalid_node(c, "activation %s", name);
		f.count = numbers_of(c->g, f.name, f.number);
		for (int n = 0; n < f.count; n++) {
			int which = !strcmp(f.number[n].name, "beta");
			if (list[which] && at[which] < list[which]->n_floats)
				f.number[n].x = (double)list[which]->floats[at[which]++];
		}
	}
	Ref x = call_value(s, e, 0);
	return ref_item(book_call1(c->g, f.name, 1, &x, f.count, f.number));
}
