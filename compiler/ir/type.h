// type.h: what the files of the type rules share: a question to them, and its one way to fail.
// Takes ir.h. Seen by type.c and type_shape.c alone.
#ifndef TYPE_H
#define TYPE_H
#include "ir.h"

typedef struct Case { // op(in; attr), to be put into g
	const Graph *g;
	Op op;
	int nin;
	const Ref *in;
	const Attr *attr;
} Case;

static inline const Val *operand(const Case *c, int k)
{
	return val(c->g, c->in[k]);
}

// Fails at the graph's current node: the primitive, its operands' types, and what is wrong.
_Noreturn void wrong(const Case *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
Shape shape_rule(const Case *);   // type_shape.c
LoopInfo part_loop(const Case *); // the loop whose result `part` asks for

#endif
