// roles.c: reads roles.def: what operators do with their inputs.
#include "lower.h"
#include <string.h>

static const struct {
	const char *op;
	int first, last;
	Role role;
} inputs[] = {
#define INPUT(op, first, last, role) {#op, first, last, R_##role},
#define SET(name, ops)
#include "roles.def"
#undef INPUT
#undef SET
};

static const char *const sets[] = {
#define INPUT(op, first, last, role)
#define SET(name, ops) [OPS_##name] = (ops),
#include "roles.def"
#undef INPUT
#undef SET
};

Role role_of(const NodeProto *node, int k)
{
	for (int i = 0; node && i < COUNT(inputs); i++)
		if (k >= inputs[i].first && k <= inputs[i].last &&
		    !strcmp(inputs[i].op, node->op_type))
			return inputs[i].role;
	return R_none;
}

bool is_one_of(OpSet set, const NodeProto *node)
{
	return node && is_word(sets[set], node->op_type);
}
