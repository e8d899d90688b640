// attend_operand.c: finds the operands of attention and their elements.
#include "attend.h"

// Returns operand k, or 0 if there is none or it is the number that has no effect.
static Ref given_but(const Gen *g, const Val *v, int k, double none)
{
	double x;
	return k < v->nin && !(const_num(g->graph, v->in[k], &x) && x == none) ? v->in[k] : 0;
}

Attend attend_new(Gen *g)
{
	const Val *v = val(g->graph, g->kern->root);
	int bias = attention_bias(v->op), factor = attention_factor(v->op);
	return (Attend){.g = g,
	                .s = g->kern->sched,
	                .v = v,
	                .p = attend_sizes(g->graph, g->kern, g->target->machine),
	                .type = v->type,
	                .elem = elem_type(g, v->type),
	                .bias = given_but(g, v, bias, 0),
	                .shown = given_but(g, v, bias + 1, 1),
	                .factor = given_but(g, v, factor, 1),
	                .causal = v->attr->i[0],
	                .zeros = v->attr->i[1]};
}

void attend_index(const Attend *a, const Index *row, const Index *column, Index *idx)
{
	unravel(a->g->vars, &a->batch, &a->p.lead, idx);
	idx[a->p.lead.rank] = *row;
	idx[a->p.lead.rank + 1] = *column;
}

Value at_element(const Attend *a, Ref r, const Index *row, const Index *column)
{
	Index idx[RANK];
	attend_index(a, row, column, idx);
	return at(a->g, r, idx);
}
