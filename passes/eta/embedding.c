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

static void add_table(Tables *t, Ref table)
{
	if (t->n < LEAVES)
		t->at[t->n++] = table;
}

// Returns the tables of r, from those of its operands, if it is made of embeddings alone: rows
// looked up, dropped out, summed, tables added; else NULL.
static Tables *tables_of(ScaleAnalysis *s, Ref r, Tables *const *of)
{
	const Val *v = val(s->g, r);
	Tables all = {0};
	Ref table = table_of(s, r);
	if (table) {
		add_table(&all, table);
		return take_copy(s->arena, &all, sizeof all);
	}
	Ref same = is(s, r, SIGNAL) ? range_origin(s, v) : 0;
	if (same || (is(s, r, SIGNAL) && is_view(v)))
		return of[same ? same : v->in[0]];
	if (!is(s, r, SIGNAL) || (v->op != O_select && v->op != O_mul && v->op != O_add))
		return NULL;
	for (int k = 0; k < v->nin; k++) {
		Ref x = v->in[k];
		bool number = v->op == O_mul && !surd_same(rms_of(s, x), surd_one);
		if (number || (is(s, x, SIGNAL) && !of[x]) ||
		    (is(s, x, VARIABLE) && v->op != O_add))
			return NULL;
		if (is(s, x, VARIABLE))
			add_table(&all, x);
		for (int i = 0; of[x] && i < of[x]->n; i++)
			add_table(&all, of[x]->at[i]);
	}
	return take_copy(s->arena, &all, sizeof all);
}

// Copies the demand on one table to those without a demand.
static void join_tables(ScaleAnalysis *s, const Tables *tables)
{
	Ref known = 0;
	for (int k = 0; k < tables->n; k++)
		if (s->demand_by[tables->at[k]])
			known = tables->at[k];
	for (int k = 0; k < tables->n && known; k++)
		for (Ref t = tables->at[k]; !s->demand_by[t]; t = val(s->g, t)->in[0]) {
			s->demand[t] = s->demand[known];
			s->demand_by[t] = s->demand_by[known];
			if (!is_view(val(s->g, t)) && val(s->g, t)->op != O_gather)
				break;
		}
}

void join_embeddings(ScaleAnalysis *s)
{
	Tables **of = NEWS(s->arena, Tables *, s->g->nval); // of values made of embeddings alone
	for (Ref r = 1; r < (Ref)s->g->nval; r++) {
		const Val *v = val(s->g, r);
		of[r] = s->live[r] ? tables_of(s, r, of) : NULL;
		if (!s->live[r] || v->op != O_add)
			continue;
		s->sum[r] = of[r] != NULL;
		if (of[r] && known(s, F_copies)) {
			join_tables(s, of[r]);
			continue;
		}
		const Tables *left = of[v->in[0]], *right = of[v->in[1]];
		bool begins = known(s, F_stream) && !left != !right && is(s, v->in[0], SIGNAL) &&
		              is(s, v->in[1], SIGNAL);
		const Tables *stream = left ? left : right;
		for (int k = 0; begins && k < stream->n; k++) {
			int slot = s->origin[stream->at[k]].slot;
			if (slot >= 0)
				s->stream[slot] = true;
		}
	}
}
