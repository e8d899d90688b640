// optimizers.c: lowers Adam, Adagrad, Momentum.
// Takes the node being lowered: rate, count of steps, then all tensors, all their gradients, all
// their slots. Gives the new tensors and slots. Keeps: a step is a line of the book.
#include "ops.h"
#include <string.h>

// Calls line `def` for each tensor, which has `kinds` operands (itself, its gradient, its slots).
static void step_each(Call *c, const char *def, int kinds, int ngiven, const AttrArg *given)
{
	int n = (c->nin - 2) / kinds, nout = kinds - 1;
	if (n < 1 || c->nin != 2 + kinds * n || c->nout > nout * n)
		invalid_node(c, "%d operands and %d results", c->nin, c->nout);
	Ref rate = put_reshape(c->g, (in_val(c, 0), c->in[0]), shape_of(0, NULL));
	Ref count =
	    put_cast(c->g, put_reshape(c->g, (in_val(c, 1), c->in[1]), shape_of(0, NULL)), E_f32);
	for (int i = 0; i < n; i++) {
		Ref in[6] = {rate, count}, out[3];
		for (int k = 0; k < kinds; k++)
			in[2 + k] = (in_val(c, 2 + k * n + i), c->in[2 + k * n + i]);
		book_call(c->g, def, 2 + kinds, in, ngiven, given, nout, out);
		for (int k = 0; k < nout && k * n + i < c->nout; k++)
			c->out[k * n + i] = out[k];
	}
}

static AttrArg number(const Call *c, const char *name, double otherwise)
{
	return (AttrArg){.name = name, .x = attr_float(c, name, otherwise)};
}

void lower_adam(Call *c)
{
	AttrArg given[] = {number(c, "alpha", 0.9), number(c, "beta", 0.999),
	                   number(c, "epsilon", 1e-6), number(c, "norm_coefficient", 0),
	                   number(c, "norm_coefficient_post", 0)};
	step_each(c, "Adam", 4, COUNT(given), given);
}

void lower_adagrad(Call *c)
{
	AttrArg given[] = {number(c, "decay_factor", 0), number(c, "epsilon", 1e-6),
	                   number(c, "norm_coefficient", 0)};
	step_each(c, "Adagrad", 3, COUNT(given), given);
}

void lower_momentum(Call *c)
{
	bool nesterov = !strcmp(attr_string(c, "mode", "standard"), "nesterov");
	AttrArg given[] = {number(c, "alpha", 0),
	                   number(c, "beta", 0),
	                   number(c, "norm_coefficient", 0),
	                   {.name = "nesterov", .x = nesterov}};
	step_each(c, "Momentum", 3, COUNT(given), given);
}
