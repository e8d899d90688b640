// batch_norm.c: finds, reads and stores the running statistics of BatchNormalization.
// Functions of its line in compiler/book/reduce.am.
#include "ops.h"

// Running statistics k (0 mean, 1 variance) as a slot that training may store to; -1: they are
// computed, or frozen.
static int running_slot(const Call *c, int k)
{
	const Val *v = val(c->g, c->in[3 + k]);
	if (v->op == O_cast) // to double
		v = val(c->g, v->in[0]);
	int slot = v->op == O_slot ? (int)v->attr->i[0] : -1;
	return slot >= 0 && c->g->slots.at[slot].kind == S_buffer ? slot : -1;
}

// batch_statistics(): 1 if a BatchNormalization uses the batch's statistics. Files say so in two
// ways: by more than one result, since opset 14 by an attribute.
Item fn_batch_statistics(Call *c, Scope *s, const Expr *e)
{
	(void)s, (void)e;
	bool said = c->opset < 14 ? c->nout > 1 : attr_int(c, "training_mode", 0) != 0;
	bool gathered = running_slot(c, 0) >= 0 && running_slot(c, 1) >= 0;
	switch (c->r->options->statistics) {
	case BN_BATCH:
		return num_item(gathered || (said && !c->arg[3].weight));
	case BN_RUNNING:
		return num_item(!gathered && said && !c->arg[3].weight);
	default:
		return num_item(said);
	}
}

// running(; k): the mean (k = 0) or variance (1) after all stores so far.
Item fn_running(Call *c, Scope *s, const Expr *e)
{
	const Graph *g = c->g;
	int k = (int)call_integer(s, e, 0), slot = running_slot(c, k);
	Ref stored = slot < 0 ? 0 : stored_ref(g, slot);
	return ref_item(stored ? stored : c->in[3 + k]);
}

// stored(x; k): x, which the mean (k = 0) or variance (1) becomes.
Item fn_stored(Call *c, Scope *s, const Expr *e)
{
	Item x = call_arg(s, e, 0);
	int slot = running_slot(c, (int)call_integer(s, e, 0));
	if (c->r->options->training && slot >= 0)
		add_store(c->g, slot, x.ref);
	return x;
}
