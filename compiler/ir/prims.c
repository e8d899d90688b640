// prims.c: reads prims.def, types.def and acts.def as tables, and finds names in them.
#include "ir.h"
#include <string.h>

const Prim prims[OPS] = {
#define P(name, cls, arity, type, attr, weight, rule, text)                                        \
	[O_##name] = {#name, C_##cls, arity, #type, K_##attr, weight, text},
#include "prims.def"
#undef P
};

const ElemInfo elems[ELEMS] = {
#define T(name, ctype, bytes, cls, onnx) [E_##name] = {#name, bytes, cls, onnx},
#include "types.def"
#undef T
};

const ActInfo acts[ACTS] = {
#define A(name, scale, formula, gradient) [A_##name] = {#name, ACT_##scale},
#include "acts.def"
#undef A
};

int op_named(const char *name)
{
	for (int op = 0; op < OPS; op++)
		if (strcmp(prims[op].name, name) == 0)
			return op;
	return -1;
}

bool is_condition(Op op, int k)
{
	return (op == O_select && k == 0) || (op == O_attend && k == 4);
}

int elem_named(const char *name)
{
	for (int elem = 0; elem < ELEMS; elem++)
		if (strcmp(elems[elem].name, name) == 0)
			return elem;
	return -1;
}

int act_named(const char *name)
{
	for (int act = 0; act < ACTS; act++)
		if (strcmp(acts[act].name, name) == 0)
			return act;
	return -1;
}
