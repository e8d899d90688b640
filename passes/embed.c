// embed.c: sums of embeddings: rows of several tables, looked up and added.
// Input: ranges and demands (scale.c). Output: tables without a demand get that of the tables that
// they are summed with; tables whose rows begin a residual stream are marked.
// Source: Amos (arXiv 2210.11693), its tables of eta.
#include "scale.h"

enum { LEAVES = 16 }; // limit of summands

// True if it is computed from embeddings alone: rows looked up, dropped out, summed, tables added.
static bool of_embeddings(Sweep *s, Ref r, const bool *raw)
{
	const Val *v = val(s->g, r);
	bool any = false;
	if (!is(s, r, SIGNAL) || table_of(s, r))
		return table_of(s, r) != 0;
	Ref same = same_as(s, v);
	if (same)
		return raw[same];
	if (!is_view(v) && v->op != O_select && v->op != O_mul && v->op != O_add)
		return false;
	for (int k = 0; k < v->nin; k++) {
		bool variable = is(s, v->in[k], VARIABLE) && v->op != O_add;
		bool number = v->op == O_mul && !surd_same(rms_of(s, v->in[k]), surd_one);
		if ((is(s, v->in[k], SIGNAL) && !raw[v->in[k]]) || variable || number)
			return false;
		any |= raw[v->in[k]];
	}
	return any;
}

// Collects the tables of a sum of embeddings.
static void tables_of(const Sweep *s, Ref r, int *n, Ref *table)
{
	const Val *v = val(s->g, r);
	Ref looked_up = table_of(s, r);
	if (looked_up || is(s, r, VARIABLE)) {
		table[(*n)++] = looked_up ? looked_up : r;
		return;
	}
	for (int k = 0; k < v->nin && *n < LEAVES; k++)
		if (!is(s, v->in[k], AUX))
			tables_of(s, v->in[k], n, table);
}

static void copy_demand(Sweep *s, Ref table, Ref known)
{
	for (Ref t = table; !s->asker[t]; t = val(s->g, t)->in[0]) {
		s->demand[t] = s->demand[known];
		s->asker[t] = s->asker[known];
		if (!is_view(val(s->g, t)) && val(s->g, t)->op != O_gather)
			return;
	}
}

// Gives tables without a demand that of the one they are summed with.
static void join_tables(Sweep *s, Ref sum)
{
	Ref table[LEAVES], found = 0;
	int n = 0;
	tables_of(s, sum, &n, table);
	for (int k = 0; k < n; k++)
		if (s->asker[table[k]])
			found = table[k];
	for (int k = 0; k < n && found; k++)
		copy_demand(s, table[k], found);
}

static void begin_stream(Sweep *s, Ref sum)
{
	Ref table[LEAVES];
	int n = 0;
	tables_of(s, sum, &n, table);
	for (int k = 0; k < n; k++) {
		int slot = view_slot(s, table[k]);
		if (slot >= 0)
			s->stream[slot] = true;
	}
}

void join_embeddings(Sweep *s)
{
	bool *raw = NEWS(s->arena, bool, s->g->nval);
	for (Ref r = 1; r < (Ref)s->g->nval; r++) {
		const Val *v = val(s->g, r);
		raw[r] = s->live[r] && of_embeddings(s, r, raw);
		if (!s->live[r] || v->op != O_add)
			continue;
		s->sum[r] = raw[r];
		if (raw[r] && known(s, F_copies))
			join_tables(s, r);
		else if (known(s, F_stream) && raw[v->in[0]] != raw[v->in[1]] &&
		         is(s, v->in[0], SIGNAL) && is(s, v->in[1], SIGNAL))
			begin_stream(s, v->in[raw[v->in[0]] ? 0 : 1]);
	}
}
