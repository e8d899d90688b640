// infer.c: infers eta where signal meets variable.
// A use of a variable by a signal decides its eta; a variable that is computed from parameters
// passes it on to them (derive.c). Input: ranges and demands (analysis.c). Output: an Inferred per
// slot. Invariant: the last use decides; a question reports another use that implies another eta.
// Source: Amos (arXiv 2210.11693), its tables of eta.
#include "analysis.h"

// True for the logits, whose demand the loss or an output sets.
static bool is_logits(const ScaleAnalysis *s, Ref at)
{
	Ref demand_by = s->demand_by[at];
	return demand_by && (s->out[demand_by] || val(s->g, demand_by)->op == O_lse);
}

// Returns what is inferred for `variable` where it meets `signal` (0: none) at value `at`.
static Inferred infer_use(const ScaleAnalysis *s, Ref at, Ref signal, Ref variable,
                          const char *role, Surd eta)
{
	bool data = signal && is(s, signal, SIGNAL);
	const Val *demand_by = val(s->g, s->demand_by[at]);
	bool error =
	    s->demand_by[at] && demand_by->op == O_mul && demand_by->in[0] == demand_by->in[1];
	return (Inferred){.role = role,
	                  .eta = eta,
	                  .at = at,
	                  .operand = variable,
	                  .map = axis_map_new(s, variable),
	                  .range = data ? s->range[signal] : surd_one,
	                  .source = data ? s->source[signal] : 0,
	                  .demand = demand_or_one(s, at),
	                  .demand_by = s->demand_by[at],
	                  .output_slices = s->output_slices[at],
	                  .readout = error || is_logits(s, at)};
}

static const char *stream_question(const ScaleAnalysis *s, Ref table)
{
	int slot = s->origin[table].slot;
	bool begins = slot >= 0 && s->stream[slot] && s->demand_by[table];
	return begins && s->demand[table].value < 1
	           ? "the scale that the logits need of a table tied to them, but its rows begin "
	             "an unnormalized residual stream: is it too small there?"
	           : NULL;
}

static Inferred infer_table(const ScaleAnalysis *s, Ref at, Ref table)
{
	Inferred inferred = infer_use(s, at, 0, table, "embedding", demand_or_one(s, table));
	inferred.rows = true;
	inferred.output_slices = NULL;
	inferred.demand = inferred.eta;
	inferred.demand_by = s->demand_by[table];
	inferred.question = stream_question(s, table);
	return inferred;
}

static Inferred infer_kernel(const ScaleAnalysis *s, Ref at, Ref signal, Ref variable)
{
	int64_t m = contracted(s, at);
	int slot = s->origin[variable].slot;
	Inferred inferred = infer_use(s, at, signal, variable, "kernel", surd_one);
	inferred.contracted = m;
	// The paper scales the projection of a pooled image, but not the parallel kernel whose
	// output is activated.
	Ref source = inferred.source;
	Ref unpooled = source && known(s, F_branch) && s->activated[at] && s->branches[source] > 1
	                   ? pooled(s, source)
	                   : 0;
	if (unpooled)
		inferred.range = s->range[unpooled];
	if (slot >= 0 && s->lookups[slot]) {
		inferred.role = "embedding";
		inferred.eta = demand_or_one(s, variable);
		inferred.rows = true;
		inferred.output_slices = NULL;
		inferred.question = stream_question(s, variable);
		return inferred;
	}
	bool unit = s->authors && is_logits(s, at);
	inferred.eta =
	    surd_div(inferred.demand, surd_mul(unit ? surd_one : inferred.range, surd_root(m, 1)));
	inferred.note =
	    unit       ? "the authors' code takes 1 for the input of logits"
	    : unpooled ? "without max-pooling, which only the kernel parallel to this one counts"
	               : NULL;
	bool chain = val(s->g, s->origin[val(s->g, at)->in[0]].scales)->op == O_dot;
	Ref sum = chain ? s->sum_of[at] : 0, low = sum ? low_rank(s, val(s->g, sum)) : 0;
	Ref guess = source ? s->guess[signal] : 0;
	if (low && s->origin[low].scales == at)
		inferred.question = "the second of two kernels added to a larger one (LoRA): an "
		                    "offset of half its output?";
	else if (guess)
		inferred.question =
		    format(s->arena,
		           "its input, the activation at %s, has no rule: is the range %s correct?",
		           label_of(s, guess), surd_text(s->arena, s->range[guess], 0));
	return inferred;
}

// A learned query. If its table is normalized, the kernel has the scale.
static const char *query_question(const ScaleAnalysis *s, Ref query)
{
	Ref product = kernel_product(s, query);
	if (normed_table(s, product ? val(s->g, product)->in[0] : query))
		return NULL;
	return "a learned query: does the table have its scale, or the kernel after it?";
}

static Inferred infer_product(ScaleAnalysis *s, Ref at, Ref signal, Ref variable)
{
	bool left = val(s->g, at)->in[0] == variable;
	Ref key = left ? 0 : offset_of(s, at);
	if (!key) {
		Inferred inferred = infer_kernel(s, at, signal, variable);
		if (left && known(s, F_query) && kernel_product(s, variable)) {
			// A table times a kernel, as the left operand of the product with the keys.
			inferred.role = "embedding";
			inferred.rows = true;
			inferred.contracted = 0;
			inferred.question = query_question(s, variable);
		}
		return inferred;
	}
	Surd range = s->range[s->origin[key].scales], half = surd_mul(range, constant(s, N_offset));
	Inferred inferred =
	    infer_use(s, at, 0, variable, "embedding", surd_mul(half, gain_of(s, variable)));
	inferred.rows = true;
	inferred.range = range;
	inferred.source = s->source[key];
	inferred.output_slices = NULL;
	return inferred;
}

static Inferred infer_bias(ScaleAnalysis *s, Ref at, Ref signal, Ref variable)
{
	if (s->sum[at])
		return infer_table(s, at, variable);
	bool norm = normalized(s, signal, true);
	Surd base = s->demand_by[at] && !norm ? s->demand[at] : s->range[signal];
	Inferred inferred = infer_use(s, at, signal, variable, norm ? "norm_bias" : "bias",
	                              surd_mul(base, constant(s, norm ? N_norm_bias : N_offset)));
	const Shape *shape = &val(s->g, variable)->shape;
	const Val *product = val(s->g, s->origin[signal].moves);
	// One element per output feature of a product is a bias. Heads split the axis of features.
	bool features = product->op == O_dot && count_of(shape) == last_dim(&product->shape);
	int axes = 0;
	for (int a = 0; a < shape->rank; a++)
		axes += shape->dim[a] > 1;
	if (!norm && !s->demand_by[at] && axes > 1 && !features) {
		inferred.role = "embedding";
		inferred.rows = true;
		inferred.question =
		    "a table added to an unconstrained stream: half of the stream's range?";
	}
	return inferred;
}

static Inferred infer_scale(ScaleAnalysis *s, Ref at, Ref signal, Ref variable)
{
	if (s->divided[variable] || normalized(s, signal, false))
		return infer_use(s, at, signal, variable, "norm_scale", constant(s, N_norm_scale));
	Surd out = s->demand_by[at] ? s->demand[at] : s->range[signal];
	Inferred inferred =
	    infer_use(s, at, signal, variable, "scale", surd_div(out, s->range[signal]));
	inferred.question =
	    "a factor of an unnormalized signal: how does it change the signal's range?";
	return inferred;
}

// A token that is concatenated with data has their range.
static Inferred infer_token(const ScaleAnalysis *s, Ref at, Ref variable)
{
	const Val *v = val(s->g, at);
	Ref neighbor = 0;
	for (int k = 0; k < v->nin; k++)
		neighbor = is(s, v->in[k], SIGNAL) ? v->in[k] : neighbor;
	Inferred inferred = infer_use(s, at, neighbor, variable, "token", surd_one);
	inferred.eta = s->demand_by[variable] ? s->demand[variable] : inferred.range;
	inferred.rows = true;
	inferred.question = "a learned token among data: is it as large as the data?";
	return inferred;
}

static Inferred infer_at(ScaleAnalysis *s, Ref r, const Val *v, int k)
{
	Ref x = v->in[k], other = v->nin == 2 ? v->in[1 - k] : 0;
	Inferred inferred;
	switch (v->op) {
	case O_dot:
		return table_of(s, r) ? infer_table(s, r, x) : infer_product(s, r, other, x);
	case O_gather:
		return infer_table(s, r, x);
	case O_add:
	case O_sub:
		return infer_bias(s, r, other, x);
	case O_mul:
	case O_div:
		return infer_scale(s, r, other, x);
	case O_concat:
		return infer_token(s, r, x);
	default:
		break;
	}
	if (v->op == O_attend && k == 0) {
		inferred = infer_table(s, r, x);
		inferred.question = query_question(s, x);
	} else if (v->op == O_attend && k == 3) { // a bias of the scores, whose demand is 1
		Surd demand = constant(s, N_nonlinear);
		inferred = infer_use(s, r, 0, x, "bias", surd_mul(demand, constant(s, N_offset)));
		inferred.demand = demand;
		inferred.demand_by = r;
	} else {
		inferred = infer_use(s, r, 0, x, "token", demand_or_one(s, x));
		inferred.rows = true;
		inferred.question =
		    format(s->arena, "no rule for a parameter at '%s': scale %s?",
		           prims[v->op].name, s->demand_by[x] ? "as demanded" : "1");
	}
	return inferred;
}

static void infer_operands(Inference *p, Ref r, const Val *v)
{
	ScaleAnalysis *s = p->s;
	Ref product = summed_product(s, r);
	const Val *at = product ? val(s->g, product) : v;
	p->product[product] = true;
	for (int k = 0; k < at->nin && !p->product[r]; k++) {
		Ref x = at->in[k];
		// Before the first iteration, a loop's state is zero.
		bool zeros = v->op == O_dot && is_zero(s, at->in[1 - k]);
		if (is(s, x, VARIABLE) && !zeros)
			assign(p, x,
			       product ? infer_kernel(s, r, at->in[1 - k], x)
			               : infer_at(s, r, v, k));
	}
}

// Counts, per source, the signals that read its values and have another source.
static int *count_branches(const ScaleAnalysis *s)
{
	int *branches = NEWS(s->arena, int, s->g->nval);
	Ref *last = NEWS(s->arena, Ref, s->g->nval); // per source: the reader counted last
	for (Ref u = 1; u < (Ref)s->g->nval; u++) {
		const Val *v = val(s->g, u);
		for (int k = 0; k < v->nin && s->live[u] && is(s, u, SIGNAL); k++) {
			Ref source = s->source[v->in[k]];
			bool own = source == s->source[u] || last[source] == u;
			if (own || !is(s, v->in[k], SIGNAL))
				continue;
			last[source] = u;
			branches[source]++;
		}
	}
	return branches;
}

Inferred *infer_slots(ScaleAnalysis *s)
{
	const Graph *g = s->g;
	Inference p = {s, NEWS(s->arena, Inferred, g->nval), NEWS(s->arena, bool, g->nval),
	               NEWS(s->arena, ParamSlices *, g->slots.count + 1)};
	Inferred *by_slot = NEWS(s->arena, Inferred, g->slots.count + 1);
	s->branches = count_branches(s);
	for (Ref r = (Ref)g->nval - 1; r > 0; r--) {
		const Val *v = val(g, r);
		if (v->op == O_slot)
			by_slot[v->attr->i[0]] = p.of[r];
		else if (s->live[r] && is(s, r, SIGNAL))
			infer_operands(&p, r, v);
		else if (s->live[r] && is(s, r, VARIABLE) && p.of[r].role)
			propagate(&p, r, v);
	}
	for (int i = 0; i < g->slots.count; i++) {
		by_slot[i].param_slices = param_slices_of(&p, i);
		if (by_slot[i].param_slices &&
		    by_slot[i].param_slices->differ) // different uses of different slices agree
			by_slot[i].question = by_slot[i].param_slices->list.at[0].inferred.question;
	}
	return by_slot;
}
