// dynamic.h: what the door and the rules of dynamic lengths share.
#ifndef DYNAMIC_H
#define DYNAMIC_H
#include "ir.h"

Ref put_dynamic(Graph *, Op, int nin, const Ref *in, const Attr *); // an operand has lengths
Ref put_fixed(Graph *, Op, int nin, const Ref *in, const Attr *);   // graph.c: whatever they have
Ref put_alias(Graph *, Ref x); // graph.c: a value of its own, equal to x

#endif
