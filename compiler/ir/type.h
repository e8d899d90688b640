// type.h: declares what type.c, type_shape.c and simplify.c share.
#ifndef TYPE_H
#define TYPE_H
#include "ir.h"

typedef struct Case { // op(in; attr), to be put into g
	Graph *g;
	Op op;
	int nin;
	const Ref *in;
	const Attr *attr;
	const Shape *shape; // of the result; NULL until it is known
} Case;

static inline const Val *operand(const Case *c, int k)
{
	return val(c->g, c->in[k]);
}

// Fails at the graph's current node with the primitive, its operands' types, and the problem.
_Noreturn void wrong(const Case *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
Shape shape_rule(const Case *);     // type_shape.c
LoopInfo result_loop(const Case *); // Returns the loop of a `result`.

#endif
