// eta.c: infers the expected scale of every parameter.
// Input: a forward graph. Output: an Eta per parameter: exact scale, role, the shape of v and b,
// reasons. Invariant: every parameter has an eta; if no rule decides it, a question says so and
// `sure` is false.
//
// Every value is a signal (carries data), a variable (made of parameters alone) or auxiliary
// (masks, indices, constants).
//   1  ranges forward, with 1 for every kernel's output
//   2  demands backward: the standard deviation that consumers need of a signal, if they need one
//   3  ranges again, with its demand for every kernel's output
//   4  where a signal meets a variable: the variable's eta, passed on to its parameters
// Source: Amos (arXiv 2210.11693), section on eta and its tables; differences are noted.
#include "analysis.h"
#include <math.h>
#include <string.h>

// ---- reasons --------------------------------------------------------------------------

static void explain(const ScaleAnalysis *s, const Inferred *inferred, Eta *eta)
{
	eta->why = NEWS(s->arena, const char *, 3);
	if (!inferred->role) {
		eta->why[eta->nwhy++] = "no output depends on it";
		return;
	}
	eta->why[eta->nwhy++] =
	    inferred->contracted
	        ? format(s->arena, "%s: %s, sums over %lld", label_of(s, inferred->at),
	                 inferred->role, (long long)inferred->contracted)
	        : format(s->arena, "%s: %s", label_of(s, inferred->at), inferred->role);
	eta->source = inferred->source ? label_of(s, inferred->source) : NULL;
	eta->demand_by = inferred->demand_by ? label_of(s, inferred->demand_by) : NULL;
	if (eta->source)
		eta->why[eta->nwhy++] =
		    format(s->arena, "%s: range %s%s%s", eta->source,
		           surd_text(s->arena, inferred->range, 0), inferred->note ? "; " : "",
		           inferred->note ? inferred->note : "");
	if (eta->demand_by)
		eta->why[eta->nwhy++] = format(s->arena, "%s: demand %s", eta->demand_by,
		                               surd_text(s->arena, inferred->demand, 0));
	else if (!strstr(inferred->role, "norm"))
		eta->why[eta->nwhy++] = "unconstrained: demand 1";
}

// ---- etas from what is inferred ---------------------------------------------------------

static void split_eta(const ScaleAnalysis *s, const Inferred *inferred, int slot, Eta *eta)
{
	const ParamSlices *slices = inferred->param_slices && inferred->param_slices->differ
	                                ? inferred->param_slices
	                                : output_slices_of(s, inferred, slot);
	if (!slices)
		return;
	int n = slices->list.count;
	Text formula = {.arena = s->arena};
	int64_t *counts = NEWS(s->arena, int64_t, n);
	Eta *list = NEWS(s->arena, Eta, n);
	for (int k = 0; k < n; k++) {
		const Inferred *own = &slices->list.at[k].inferred;
		counts[k] = slices->list.at[k].count;
		list[k] = *eta;
		list[k].nwhy = 0;
		list[k].range = own->range;
		list[k].demand = own->demand;
		list[k].eta = own->eta;
		list[k].formula = surd_text(s->arena, own->eta, own->contracted);
		explain(s, own, &list[k]);
		say(&formula, "%s%s", k ? "|" : "", list[k].formula);
	}
	eta->nparts = n;
	eta->axis = slices->axis;
	eta->formula = formula.at;
	eta->counts = counts;
	eta->parts = list;
}

static Eta eta_of(const ScaleAnalysis *s, int slot, const Inferred *inferred)
{
	bool used = inferred->role != NULL,
	     known = used && inferred->eta.value > 0 && isfinite(inferred->eta.value);
	const char *doubt = s->g->slots.at[slot].why; // whether it is a parameter at all
	const char *scale = known  ? inferred->question
	                    : used ? "its rule gives no positive scale, because it meets only "
	                             "zeros: scale 1?"
	                           : "no output depends on it: scale 1?";
	Eta eta = {.eta = known ? inferred->eta : surd_one,
	           .role = used ? inferred->role : "unknown",
	           .range = used ? inferred->range : surd_one,
	           .demand = used ? inferred->demand : surd_one,
	           .sure = !doubt && !scale,
	           .question = doubt && scale ? format(s->arena, "%s %s", doubt, scale)
	                       : doubt        ? doubt
	                                      : scale};
	// A kernel reduces its contracted axes, a table keeps its rows, anything else has one
	// element.
	const Shape *shape = &s->g->slots.at[slot].shape;
	bool kernel = fans_of(s, inferred, eta.fan_in, eta.fan_out);
	eta.slot = kernel ? *shape : default_slot(shape, inferred->rows);
	for (int a = 0; a < shape->rank; a++)
		eta.slot.dim[a] = eta.fan_in[a] && !eta.fan_out[a] ? 1 : eta.slot.dim[a];
	eta.formula = surd_text(s->arena, eta.eta, inferred->contracted);
	explain(s, inferred, &eta);
	split_eta(s, inferred, slot, &eta);
	return eta;
}

// ---- the pass -------------------------------------------------------------------------

// A few iterations suffice: a carried value keeps the scale of its first value, or converges.
Graph *eta_graph(Arena *arena, const Graph *g)
{
	enum { TRIPS = 8 };
	return loops_pass(arena, g, TRIPS);
}

void settle_etas(Arena *arena, const Graph *g, Eta *eta, const EtaOptions *options)
{
	apply_etas(arena, g, eta, &options->eta);
	apply_slots(arena, g, eta, &options->slots);
	for (int i = 0; i < g->slots.count; i++)
		if (g->slots.at[i].kind == S_param)
			eta[i].matrices = matrices_of(arena, &g->slots.at[i].shape, &eta[i]);
}

static ScaleAnalysis analysis_new(Arena *arena, const Graph *g, const EtaOptions *options,
                                  const Rules *rules)
{
	const char *convention = options->convention ? options->convention : "paper";
	bool authors = !strcmp(convention, "jestimator");
	if (!authors && strcmp(convention, "paper") != 0)
		fail_status(STATUS_USAGE, "--convention",
		            "expected paper or jestimator, found '%s'", convention);
	ScaleAnalysis s = {.arena = arena,
	                   .g = g,
	                   .rules = rules,
	                   .authors = authors,
	                   .live = graph_uses(arena, g)};
	s.out = NEWS(arena, bool, g->nval);
	for (int k = 0; k < g->outs.count; k++)
		s.out[g->outs.at[k].val] = true;
	s.data = NEWS(arena, bool, g->nval);
	s.fixed = NEWS(arena, bool, g->nval);
	s.divided = NEWS(arena, bool, g->nval);
	s.sum = NEWS(arena, bool, g->nval);
	s.length = NEWS(arena, bool, g->nval);
	s.nature = NEWS(arena, Nature, g->nval);
	s.origin = NEWS(arena, Origin, g->nval);
	s.sum_of = NEWS(arena, Ref, g->nval);
	s.activated = NEWS(arena, bool, g->nval);
	s.rms = NEWS(arena, Surd, g->nval);
	s.measured = NEWS(arena, bool, g->nval);
	s.declared = declared_ranges(arena, g, &options->range);
	s.range = NEWS(arena, Surd, g->nval);
	s.demand = NEWS(arena, Surd, g->nval);
	s.coarse = NEWS(arena, const char *, g->nval);
	s.root = NEWS(arena, Ref, g->nval);
	s.operations = NEWS(arena, int, g->nval);
	s.guess = NEWS(arena, Ref, g->nval);
	s.source = NEWS(arena, Ref, g->nval);
	s.demand_by = NEWS(arena, Ref, g->nval);
	s.slices_of = NEWS(arena, OutputSlices *, g->nval);
	s.output_slices = NEWS(arena, OutputSlices *, g->nval);
	s.data_product = NEWS(arena, Ref, g->slots.count + 1);
	s.lookups = NEWS(arena, bool, g->slots.count + 1);
	s.stream = NEWS(arena, bool, g->slots.count + 1);
	return s;
}

Eta *eta_pass(Arena *arena, const Graph *forward, const EtaOptions *options, Scales *scales)
{
	const Graph *g = has_loop(forward) ? eta_graph(arena, forward) : forward;
	Rules paper = eta_rules();
	ScaleAnalysis s = analysis_new(arena, g, options, options->rules ? options->rules : &paper);
	find_natures(&s);
	find_readers(&s);
	find_roots(&s);
	propagate_ranges(&s);
	propagate_demands(&s);
	find_output_slices(&s);
	join_embeddings(&s);
	propagate_ranges(&s);
	const Inferred *inferred = infer_slots(&s);
	const Structure *structure = structures(&s, inferred);
	Eta *eta = NEWS(arena, Eta, g->slots.count + 1);
	for (int i = 0; i < g->slots.count; i++) {
		if (g->slots.at[i].kind != S_param)
			continue;
		eta[i] = eta_of(&s, i, &inferred[i]);
		eta[i].structure = &structure[i];
	}
	settle_etas(arena, g, eta, options);
	if (scales)
		*scales = (Scales){s.nature, s.range, s.demand, s.demand_by, s.coarse};
	return eta;
}
