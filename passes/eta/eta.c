// eta.c: the expected scale of every parameter, inferred from what comes before and after it.
// Takes a forward graph. Gives an Eta for each parameter: exact scale, role, the shape of v and b,
// reasons.
// Keeps: no parameter is left out; what no rule decides is said (sure = false), with the default
// taken.
//
// Every value is a signal (carries data), a variable (made of parameters alone) or an aux (masks,
// indices, numbers).
//   1  ranges upward, every kernel's output taken as 1
//   2  demands downward: what consumers want a signal's standard deviation to be, if they mind
//   3  ranges again, every kernel's output as it is asked for
//   4  where a signal meets a variable: the variable's share, handed down to its parameters
// Source: Amos (arXiv 2210.11693), section on eta and its tables; rows differ from it only where
// said.
#include "analysis.h"
#include <math.h>
#include <string.h>

// ---- reasons --------------------------------------------------------------------------

static void explain(const ScaleAnalysis *s, const Inferred *share, Eta *eta)
{
	eta->why = NEWS(s->arena, const char *, 3);
	if (!share->role) {
		eta->why[eta->nwhy++] = "no output depends on it";
		return;
	}
	eta->why[eta->nwhy++] =
	    share->contracted ? format(s->arena, "%s: %s, sums over %lld", place_of(s, share->at),
	                               share->role, (long long)share->contracted)
	                      : format(s->arena, "%s: %s", place_of(s, share->at), share->role);
	eta->source = share->source ? place_of(s, share->source) : NULL;
	eta->asker = share->asker ? place_of(s, share->asker) : NULL;
	if (eta->source)
		eta->why[eta->nwhy++] = format(
		    s->arena, "%s: range %s%s%s", eta->source, surd_text(s->arena, share->range, 0),
		    share->note ? "; " : "", share->note ? share->note : "");
	if (eta->asker)
		eta->why[eta->nwhy++] = format(s->arena, "%s: demand %s", eta->asker,
		                               surd_text(s->arena, share->demand, 0));
	else if (!strstr(share->role, "norm"))
		eta->why[eta->nwhy++] = "any scale would do: demand 1";
}

// ---- from shares to etas --------------------------------------------------------------

typedef struct Parts {
	int n, axis;
	int64_t *counts;
	Inferred *own;
} Parts;

// A slice of a fused kernel for each of its uses: the same rule with the demand of its own.
static Parts parts_by_output(const ScaleAnalysis *s, const Inferred *share, int slot)
{
	Parts parts = {0};
	Ref *at;
	parts.n = parts_of(s, share, slot, &parts.axis, &parts.counts, &at);
	parts.own = NEWS(s->arena, Inferred, parts.n + 1);
	for (int k = 0; k < parts.n; k++) {
		Inferred *own = &parts.own[k];
		*own = *share;
		own->demand = asked(s, at[k]);
		own->asker = s->asker[at[k]];
		own->eta = surd_mul(surd_div(share->eta, share->demand), own->demand);
	}
	return parts;
}

// Slices of the parameter itself.
static Parts parts_by_use(const ScaleAnalysis *s, const ParamSlices *pieces)
{
	int n = pieces->list.count;
	Parts parts = {n, pieces->axis, NEWS(s->arena, int64_t, n), NEWS(s->arena, Inferred, n)};
	for (int k = 0; k < n; k++) {
		parts.counts[k] = pieces->list.at[k].count;
		parts.own[k] = pieces->list.at[k].share;
	}
	return parts;
}

static void part(const ScaleAnalysis *s, const Inferred *share, int slot, Eta *eta)
{
	Parts parts =
	    share->pieces ? parts_by_use(s, share->pieces) : parts_by_output(s, share, slot);
	Text formula = {.arena = s->arena};
	Eta *list = NEWS(s->arena, Eta, parts.n + 1);
	for (int k = 0; k < parts.n; k++) {
		const Inferred *own = &parts.own[k];
		list[k] = *eta;
		list[k].nwhy = 0;
		list[k].range = own->range;
		list[k].demand = own->demand;
		list[k].eta = own->eta;
		list[k].formula = surd_text(s->arena, own->eta, own->contracted);
		explain(s, own, &list[k]);
		say(&formula, "%s%s", k ? "|" : "", list[k].formula);
	}
	if (!parts.n)
		return;
	eta->nparts = parts.n;
	eta->axis = parts.axis;
	eta->formula = formula.at;
	eta->counts = parts.counts;
	eta->parts = list;
}

static const char *scale_question(const Inferred *share)
{
	if (!share->role)
		return "no output depends on it: 1?";
	if (!(share->eta.value > 0) || !isfinite(share->eta.value))
		return "its rule gives no positive number, for it meets only zeros: 1?";
	return share->question;
}

// Also of what is not sure to be a parameter.
static const char *question_of(const ScaleAnalysis *s, int slot, const Inferred *share)
{
	const char *scale = scale_question(share), *role = s->g->slots.at[slot].why;
	return scale && role ? format(s->arena, "%s %s", role, scale) : role ? role : scale;
}

static Eta eta_of(const ScaleAnalysis *s, int slot, const Inferred *share)
{
	bool known = share->role && share->eta.value > 0 && isfinite(share->eta.value);
	Eta eta = {.eta = known ? share->eta : surd_one,
	           .role = share->role ? share->role : "unknown",
	           .range = share->role ? share->range : surd_one,
	           .demand = share->role ? share->demand : surd_one,
	           .slot = slots_of(s, share, slot),
	           .readout = share->readout,
	           .question = question_of(s, slot, share)};
	fans_of(s, share, slot, eta.fan_in, eta.fan_out);
	eta.sure = !eta.question;
	eta.formula = surd_text(s->arena, eta.eta, share->contracted);
	explain(s, share, &eta);
	part(s, share, slot, &eta);
	return eta;
}

// ---- the pass -------------------------------------------------------------------------

static bool by_authors(const char *convention)
{
	if (!convention || !strcmp(convention, "paper"))
		return false;
	if (strcmp(convention, "jestimator"))
		fail("--convention", "'%s' is not known; there are paper and jestimator",
		     convention);
	return true;
}

// A few trips show what all do: what a trip hands on is of the scale that it is given, or settles.
Graph *eta_graph(Arena *arena, const Graph *g)
{
	enum { TRIPS = 8 };
	return unroll_pass(arena, g, TRIPS);
}

static Ref *first_readers(Arena *arena, const Graph *g, const bool *live)
{
	Ref *reader = NEWS(arena, Ref, g->nval);
	for (Ref u = (Ref)g->nval - 1; u > 0; u--)
		for (int k = 0; k < val(g, u)->nin && live[u]; k++)
			reader[val(g, u)->in[k]] = u;
	return reader;
}

static bool *mark_outs(Arena *arena, const Graph *g)
{
	bool *out = NEWS(arena, bool, g->nval);
	for (int k = 0; k < g->outs.count; k++)
		out[g->outs.at[k].val] = true;
	return out;
}

Eta *eta_pass(Arena *arena, const Graph *given, const EtaOptions *wishes, Scales *scales)
{
	const Graph *g = has_loop(given) ? eta_graph(arena, given) : given;
	Rules paper = eta_rules();
	ScaleAnalysis s = {.arena = arena,
	                   .g = g,
	                   .rules = wishes->rules ? wishes->rules : &paper,
	                   .authors = by_authors(wishes->convention),
	                   .live = graph_marks(arena, g)};
	s.reader = first_readers(arena, g, s.live);
	s.out = mark_outs(arena, g);
	s.data = NEWS(arena, bool, g->nval);
	s.fixed = NEWS(arena, bool, g->nval);
	s.divided = NEWS(arena, bool, g->nval);
	s.sum = NEWS(arena, bool, g->nval);
	s.length = NEWS(arena, bool, g->nval);
	s.nature = NEWS(arena, Nature, g->nval);
	s.behind = NEWS(arena, Behind, g->nval);
	s.rms = NEWS(arena, Surd, g->nval);
	s.measured = NEWS(arena, bool, g->nval);
	s.declared = declared_ranges(arena, g, &wishes->range);
	s.range = NEWS(arena, Surd, g->nval);
	s.demand = NEWS(arena, Surd, g->nval);
	s.coarse = NEWS(arena, const char *, g->nval);
	s.root = NEWS(arena, Ref, g->nval);
	s.operations = NEWS(arena, int, g->nval);
	s.guess = NEWS(arena, Ref, g->nval);
	s.source = NEWS(arena, Ref, g->nval);
	s.asker = NEWS(arena, Ref, g->nval);
	s.cuts = NEWS(arena, OutputSlices *, g->nval);
	s.met = NEWS(arena, Ref, g->slots.count + 1);
	s.lookups = NEWS(arena, bool, g->slots.count + 1);
	s.stream = NEWS(arena, bool, g->slots.count + 1);
	find_natures(&s);
	find_roots(&s);
	sweep_up(&s);
	sweep_down(&s);
	find_cuts(&s);
	join_embeddings(&s);
	sweep_up(&s);
	const Inferred *share = share_out(&s);
	Eta *eta = NEWS(arena, Eta, g->slots.count + 1);
	for (int i = 0; i < g->slots.count; i++)
		if (g->slots.at[i].kind == S_param)
			eta[i] = eta_of(&s, i, &share[i]);
	apply_etas(arena, g, eta, &wishes->eta);
	apply_slots(arena, g, eta, &wishes->slots);
	if (scales)
		*scales = (Scales){s.nature, s.range, s.demand, s.asker, s.coarse};
	return eta;
}
