// prims.c: reads prims.def, types.def and acts.def as tables.
#include "ir.h"
#include <math.h>

const Prim prims[OPS] = {
#define P(name, cls, arity, type, attr, weight, rule, text)                                        \
	[O_##name] = {#name, C_##cls, arity, #type, attr, weight},
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

const Reducer reducers[OPS] = {
    [O_sum] = {O_add, 0},
    [O_prod] = {O_mul, 1},
    [O_dot] = {O_add, 0},
    [O_amax] = {O_max, -INFINITY},
    [O_amin] = {O_min, INFINITY},
    [O_argmax] = {.start = -INFINITY},
    [O_lse] = {.start = -INFINITY},
    [O_softmax] = {.start = -0x1p120},
    [O_maxpool] = {.start = -INFINITY},
};

bool is_condition(Op op, int k)
{
	return op == O_select ? k == 0 : is_attention(op) && k == attention_bias(op) + 1;
}
