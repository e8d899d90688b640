// rule.c: rules of the book: a value that equals the left side is put as the right side.
#include "ir.h"

void rule_read(Book *book, Lexer *l)
{
	(void)book;
	while (l->kind != T_line && l->kind != T_end)
		lexer_next(l);
}

Ref book_rewrite(Graph *g, Op op, int nin, const Ref *in, const Attr *attr)
{
	(void)g, (void)op, (void)nin, (void)in, (void)attr;
	return 0;
}
