// embedding.c: handles sums of embeddings.
// The rows of several tables, looked up and added. Input: ranges and demands (analysis.c). Output:
// a table without a demand gets the demand on the tables that it is added to; a table whose rows
// begin a residual stream is marked. Source: Amos (arXiv 2210.11693), its tables of eta.
#include "analysis.h"

enum { LEAVES = 16 }; // limit of summands

typedef struct Tables { // the first tables of a sum of embeddings
	int n;
	Ref at[LEAVES];
} Tables;

// True if r is made of embeddings alone: rows looked up, dropped out, summed, tables added.
static bool of_embeddings(ScaleAnalysis *s, Ref r, Tables *const *raw)
{
	const Val *v = val(s->g, r);
	bool any = false;
	if (!is(s, r, SIGNAL) || table_of(s, r))
		return table_of(s, r) != 0;
	Ref same = range_origin(s, v);
	if (same)
		return raw[same] != NULL;
	if (!is_view(v) && v->op != O_select && v->op != O_mul && v->op != O_add)
		return false;
	for (int k = 0; k < v->nin; k++) {
		bool variable = is(s, v->in[k], VARIABLE) && v->op != O_add;
		bool number = v->op == O_mul && !surd_same(rms_of(s, v->in[k]), surd_one);
		if ((is(s, v->in[k], SIGNAL) && !raw[v->in[k]]) || variable || number)
			return false;
		any |= raw[v->in[k]] != NULL;
	}
	return any;
}

static void add_table(Tables *t, Ref table)
{
	if (t->n < LEAVES)
		t->at[t->n++] = table;
}

// Returns the tables of r, which is made of embeddings alone, from those of its operands.
static Tables *tables_of(ScaleAnalysis *s, Ref r, Tables *const *of)
{
	const Val *v = val(s->g, r);
	Ref same = range_origin(s, v), table = table_of(s, r);
	if (!table && (same || is_view(v)))
		return of[same ? same : v->in[0]];
	Tables *all = NEW(s->arena, Tables);
	if (table)
		add_table(all, table);
	for (int k = 0; k < v->nin && !table; k++) {
		const Tables *own = of[v->in[k]];
		if (is(s, v->in[k], VARIABLE))
			add_table(all, v->in[k]);
		for (int i = 0; own && i < own->n; i++)
			add_table(all, own->at[i]);
	}
	return all;
}

static void copy_demand(ScaleAnalysis *s, Ref table, Ref known)
{
	for (Ref t = table; !s->demand_by[t]; t = val(s->g, t)->in[0]) {
		s->demand[t] = s->demand[known];
		s->demand_by[t] = s->demand_by[known];
		if (!is_view(val(s->g, t)) && val(s->g, t)->op != O_gather)
			return;
	}
}

// Copies the demand on one table to those without a demand.
static void join_tables(ScaleAnalysis *s, const Tables *tables)
{
	Ref found = 0;
	for (int k = 0; k < tables->n; k++)
		if (s->demand_by[tables->at[k]])
			found = tables->at[k];
	for (int k = 0; k < tables->n && found; k++)
		copy_demand(s, tables->at[k], found);
}

static void begin_stream(ScaleAnalysis *s, const Tables *tables)
{
	for (int k = 0; k < tables->n; k++) {
		int slot = s->origin[tables->at[k]].slot;
		if (slot >= 0)
			s->stream[slot] = true;
	}
}

void join_embeddings(ScaleAnalysis *s)
{
	Tables **raw = NEWS(s->arena, Tables *, s->g->nval); // of values made of embeddings alone
	for (Ref r = 1; r < (Ref)s->g->nval; r++) {
		const Val *v = val(s->g, r);
		bool alone = s->live[r] && of_embeddings(s, r, raw);
		raw[r] = alone ? tables_of(s, r, raw) : NULL;
		if (!s->live[r] || v->op != O_add)
			continue;
		s->sum[r] = alone;
		const Tables *left = raw[v->in[0]], *right = raw[v->in[1]];
		if (alone && known(s, F_copies))
			join_tables(s, raw[r]);
		else if (known(s, F_stream) && !left != !right && is(s, v->in[0], SIGNAL) &&
		         is(s, v->in[1], SIGNAL))
			begin_stream(s, left ? left : right);
	}
}
