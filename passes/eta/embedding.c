// embedding.c: handles sums of embeddings.
// The rows of several tables, looked up and added: a table without a demand gets the demand on the
// tables that it is added to, and a table whose rows begin a residual stream is marked.
// Source: Amos (arXiv 2210.11693), its tables of eta.
#include "analysis.h"

typedef struct Embedding {
	bool only;    // a table, or made of tables alone: rows looked up, dropped out, summed
	bool stream;  // begins a residual stream
	Ref demanded; // a table in it that has a demand; 0: none
	Ref joined;   // the table whose demand the others in it get; 0: none
	int nin;      // the values that it is made of
	const Ref *in;
} Embedding;

static Embedding embedding_of(ScaleAnalysis *s, Ref r, const Embedding *of)
{
	const Val *v = val(s->g, r);
	if (is(s, r, VARIABLE))
		return (Embedding){.only = true,
		                   .demanded = s->demand_by[r] ? r : 0,
		                   .nin = is_view(v) || v->op == O_gather,
		                   .in = v->in};
	Ref table = table_of(s, r), same = table;
	if (!same && is(s, r, SIGNAL))
		same = is_view(v) ? v->in[0] : range_origin(s, v);
	Embedding e = {.nin = v->nin, .in = v->in};
	if (same) {
		e.nin = 1;
		e.in = take_copy(s->arena, &same, sizeof same);
	}
	e.only = s->live[r] && is(s, r, SIGNAL) &&
	         (same || v->op == O_select || v->op == O_mul || v->op == O_add);
	for (int k = 0; k < e.nin && e.only; k++) {
		Ref x = e.in[k];
		bool number = !same && v->op == O_mul && !surd_same(rms_of(s, x), surd_one),
		     factor = is(s, x, VARIABLE) && !table && v->op != O_add;
		e.only = !number && !factor && (is(s, x, AUX) || of[x].only);
		e.demanded = of[x].demanded ? of[x].demanded : e.demanded;
	}
	return e;
}

void join_embeddings(ScaleAnalysis *s)
{
	Embedding *of = NEWS(s->arena, Embedding, s->g->nval);
	for (Ref r = 1; r < (Ref)s->g->nval; r++) {
		of[r] = embedding_of(s, r, of);
		s->sum[r] = of[r].only && is(s, r, SIGNAL) && val(s->g, r)->op == O_add;
	}
	for (Ref r = (Ref)s->g->nval - 1; r > 0; r--) {
		const Val *v = val(s->g, r);
		Embedding *e = &of[r];
		int slot = s->origin[r].slot;
		if (s->live[r] && v->op == O_add && is(s, v->in[0], SIGNAL) &&
		    is(s, v->in[1], SIGNAL) && known(s, F_stream))
			e->stream |= of[v->in[0]].only != of[v->in[1]].only;
		if (s->sum[r] && known(s, F_copies) && !e->joined)
			e->joined = e->demanded;
		if (is(s, r, VARIABLE)) {
			if (s->demand_by[r])
				e->joined = 0;
			else if (e->joined)
				set_demand(s, r, s->demand[e->joined], s->demand_by[e->joined]);
			if (e->stream && slot >= 0)
				s->stream[slot] = true;
		}
		for (int k = 0; k < e->nin; k++) {
			Embedding *part = &of[e->in[k]];
			part->stream |= e->stream && part->only;
			part->joined = part->joined ? part->joined : e->joined;
		}
	}
}
