// rule.c: the door's question to the book. An empty book: the equations and their matcher replace
// this file.
#include "ir.h"

Ref book_rewrite(Graph *g, Op op, int nin, const Ref *in, const Attr *attr)
{
	(void)g, (void)op, (void)nin, (void)in, (void)attr;
	return 0;
}
