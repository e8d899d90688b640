// table.c: ops.def as a table: for lowering by name, and for `amosc ops`.
#include "lower.h"
#include <string.h>

#define OP(name, domain, since, types, differentiable, gradient, lower, how, note) Lower lower;
#include "ops.def"
#undef OP

static const Row rows[] = {
#define OP(name, domain, since, types, differentiable, gradient, lower, how, note)                 \
	{{#name, domain, since, types, differentiable, gradient, note, false}, lower, how},
#include "ops.def"
#undef OP
};

void unsupported(Call *c)
{
	refuse(c, "not supported: %s", find_row(c->node->domain, c->node->op_type)->info.note);
}

const Row *find_row(const char *domain, const char *op)
{
	for (int i = 0; i < COUNT(rows); i++)
		if (!strcmp(rows[i].info.name, op) && !strcmp(rows[i].info.domain, domain))
			return &rows[i];
	return NULL;
}

const OpInfo *op_table(int *count)
{
	static OpInfo infos[COUNT(rows)];
	for (int i = 0; i < COUNT(rows); i++) {
		infos[i] = rows[i].info;
		infos[i].forward = rows[i].lower != unsupported;
	}
	*count = COUNT(rows);
	return infos;
}
