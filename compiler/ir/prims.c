// prims.c: reads prims.def, types.def and acts.def as tables.
#include "ir.h"

const Prim prims[OPS] = {
#define P(name, cls, arity, type, attr, weight, rule, text)                                        \
	[O_##name] = {#name, C_##cls, arity, #type, attr, weight, text},
#include "prims.def"
#undef P
};

const Op reduction_maps[OPS] = {[O_sum] = O_add,  [O_dot] = O_add,  [O_prod] = O_mul,
                                [O_amax] = O_max, [O_amin] = O_min, [O_argmax] = O_max};

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

bool is_condition(Op op, int k)
{
	return (op == O_select && k == 0) || (op == O_attend && k == 4);
}
