// infer.c: infers eta where signal meets variable.
// A use of a variable by a signal decides its eta; a variable that is computed from parameters
// passes it on to them (derive.c). Input: ranges and demands (analysis.c). Output: an Inferred per
// slot. Invariant: the last use decides; a question reports another use that implies another eta.
// Source: Amos (arXiv 2210.11693), its tables of eta.
#include "analysis.h"

// ---- where a signal meets a variable --------------------------------------------------

// True if these are the logits, whose demand the loss or an output sets.
static bool is_logits(const ScaleAnalysis *s, Ref at)
{
	Ref demand_by = s->demand_by[at];
	return demand_by && (s->out[demand_by] || val(s->g, demand_by)->op == O_lse);
}

// True if these are the logits, or a squared error sets the demand.
static bool is_readout(const ScaleAnalysis *s, Ref at)
{
	const Val *demand_by = val(s->g, s->demand_by[at]);
	bool error =
	    s->demand_by[at] && demand_by->op == O_mul && demand_by->in[0] == demand_by->in[1];
	return error || is_logits(s, at);
}

// Returns what is inferred for `variable` where it meets `signal` (0: none) at value `at`.
static Inferred infer_use(const ScaleAnalysis *s, Ref at, Ref signal, Ref variable,
                          const char *role, Surd eta)
{
	Inferred inferred = {
	    .role = role, .eta = eta, .at = at, .operand = variable, .range = surd_one};
	if (signal && is(s, signal, SIGNAL)) {
		inferred.range = s->range[signal];
		inferred.source = s->source[signal];
	}
	inferred.demand = demand_or_one(s, at);
	inferred.demand_by = s->demand_by[at];
	inferred.output_slices = s->output_slices[at];
	inferred.readout = is_readout(s, at);
	return inferred;
}

static Inferred infer_table(const ScaleAnalysis *s, Ref at, Ref table)
{
	Inferred inferred = infer_use(s, at, 0, table, "embedding", demand_or_one(s, table));
	int slot = s->origin[table].slot;
	inferred.rows = true;
	inferred.output_slices = NULL;
	inferred.demand = inferred.eta;
	inferred.demand_by = s->demand_by[table];
	if (slot >= 0 && s->stream[slot] && s->demand_by[table] && inferred.eta.value < 1)
		inferred.question =
		    "the scale that the logits need of a table tied to them, but its rows begin an "
		    "unnormalized residual stream: is it too small there?";
	return inferred;
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

// Returns the range of the image before pooling, else that of the signal: the paper scales the
// projection of a pooled image, but not the parallel kernel whose output is activated.
static Surd input_range(const ScaleAnalysis *s, Ref at, Ref signal, bool *unpooled)
{
	Ref source = is(s, signal, SIGNAL) ? s->source[signal] : 0;
	Ref before = source && known(s, F_branch) ? pooled(s, source) : 0;
	*unpooled = before && s->activated[at] && s->branches[source] > 1;
	if (*unpooled)
		return s->range[before];
	return is(s, signal, SIGNAL) ? s->range[signal] : surd_one;
}

static const char *low_rank_question(const ScaleAnalysis *s, Ref at)
{
	Ref sum =
	    val(s->g, s->origin[val(s->g, at)->in[0]].scales)->op == O_dot ? s->sum_of[at] : 0;
	Ref low = sum ? low_rank(s, val(s->g, sum)) : 0;
	return low && s->origin[low].scales == at
	           ? "the second of two kernels added to a larger one "
	             "(LoRA): an offset of half its output?"
	           : NULL;
}

static Inferred infer_kernel(const ScaleAnalysis *s, Ref at, Ref signal, Ref variable)
{
	int64_t m = contracted(s, at);
	int slot = s->origin[variable].slot;
	bool unpooled;
	Surd range = input_range(s, at, signal, &unpooled);
	if (slot >= 0 && s->lookups[slot]) {
		Inferred table = infer_table(s, at, variable);
		table.contracted = m;
		table.range = range;
		table.source = is(s, signal, SIGNAL) ? s->source[signal] : 0;
		table.demand = demand_or_one(s, at);
		table.demand_by = s->demand_by[at];
		return table;
	}
	bool whatever =
	    s->authors && is_logits(s, at); // which takes 1 for the input range of logits
	Surd eta =
	    surd_div(demand_or_one(s, at), surd_mul(whatever ? surd_one : range, surd_root(m, 1)));
	Inferred inferred = infer_use(s, at, signal, variable, "kernel", eta);
	inferred.contracted = m;
	inferred.range = range;
	inferred.question = low_rank_question(s, at);
	Ref guess = is(s, signal, SIGNAL) && !inferred.question ? s->guess[signal] : 0;
	if (guess)
		inferred.question =
		    format(s->arena,
		           "its input, the activation at %s, has no rule: is the range %s correct?",
		           label_of(s, guess), surd_text(s->arena, s->range[guess], 0));
	inferred.note = whatever   ? "the authors' code takes 1 for the input of logits"
	                : unpooled ? "max-pooled, which counts only past this kernel"
	                           : NULL;
	return inferred;
}

static int long_axes(const Shape *shape)
{
	int n = 0;
	for (int a = 0; a < shape->rank; a++)
		n += shape->dim[a] > 1;
	return n;
}

// If the table is normalized, the kernel has the scale.
static const char *query_question(const ScaleAnalysis *s, Ref query)
{
	Ref product = kernel_product(s, query);
	if (normed_table(s, product ? val(s->g, product)->in[0] : query))
		return NULL;
	return "a learned query: does the table have its scale, or the kernel after it?";
}

// A learned query: a table times a kernel, as the left operand of the product with the keys.
static Inferred infer_query(const ScaleAnalysis *s, Ref at, Ref signal, Ref variable)
{
	Inferred inferred = infer_kernel(s, at, signal, variable);
	inferred.role = "embedding";
	inferred.rows = true;
	inferred.contracted = 0;
	inferred.question = query_question(s, variable);
	return inferred;
}

static Inferred infer_product(ScaleAnalysis *s, Ref at, Ref signal, Ref variable)
{
	bool left = val(s->g, at)->in[0] == variable;
	Ref key = left ? 0 : offset_of(s, at);
	if (left && known(s, F_query) && kernel_product(s, variable))
		return infer_query(s, at, signal, variable);
	if (!key)
		return infer_kernel(s, at, signal, variable);
	Surd range = s->range[s->origin[key].scales], half = surd_mul(range, constant(s, N_offset));
	Inferred inferred =
	    infer_use(s, at, 0, variable, "embedding", surd_mul(half, gain_of(s, variable)));
	inferred.rows = true;
	inferred.range = range;
	inferred.source = s->source[key];
	inferred.output_slices = NULL;
	return inferred;
}

// True for one element per output feature of a product. Heads split the axis of features.
static bool spans_features(const ScaleAnalysis *s, Ref signal, Ref variable)
{
	const Val *v = val(s->g, s->origin[signal].moves);
	return v->op == O_dot &&
	       count_of(&val(s->g, variable)->shape) == v->shape.dim[v->shape.rank - 1];
}

static Inferred infer_bias(ScaleAnalysis *s, Ref at, Ref signal, Ref variable)
{
	if (s->sum[at])
		return infer_table(s, at, variable);
	bool norm = normalized(s, signal, true);
	Surd base = s->demand_by[at] && !norm ? s->demand[at] : s->range[signal];
	Inferred inferred = infer_use(s, at, signal, variable, norm ? "norm_bias" : "bias",
	                              surd_mul(base, constant(s, norm ? N_norm_bias : N_offset)));
	if (norm || s->demand_by[at] || long_axes(&val(s->g, variable)->shape) < 2 ||
	    spans_features(s, signal, variable))
		return inferred;
	inferred.role = "embedding";
	inferred.rows = true;
	inferred.question = "a table added to an unconstrained stream: half of the stream's range?";
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
	Surd range = neighbor ? s->range[neighbor] : surd_one;
	Inferred inferred = infer_use(s, at, neighbor, variable, "token",
	                              s->demand_by[variable] ? s->demand[variable] : range);
	inferred.rows = true;
	inferred.question = "a learned token among data: is it as large as the data?";
	return inferred;
}

static Inferred infer_other(const ScaleAnalysis *s, Ref at, Ref variable)
{
	Inferred inferred = infer_use(s, at, 0, variable, "token", demand_or_one(s, variable));
	inferred.rows = true;
	inferred.question =
	    format(s->arena, "no rule for a parameter at '%s': scale %s?",
	           prims[val(s->g, at)->op].name, s->demand_by[variable] ? "as demanded" : "1");
	return inferred;
}

// The learned query of an attention.
static Inferred infer_attend_query(const ScaleAnalysis *s, Ref at, Ref variable)
{
	Inferred inferred = infer_table(s, at, variable);
	inferred.question = query_question(s, variable);
	return inferred;
}

// A bias of attention scores, whose demand is 1.
static Inferred infer_score_bias(const ScaleAnalysis *s, Ref at, Ref variable)
{
	Surd demand = constant(s, N_nonlinear);
	Inferred inferred =
	    infer_use(s, at, 0, variable, "bias", surd_mul(demand, constant(s, N_offset)));
	inferred.demand = demand;
	inferred.demand_by = at;
	return inferred;
}

static Inferred infer_at(ScaleAnalysis *s, Ref r, const Val *v, int k)
{
	Ref x = v->in[k], other = v->nin == 2 ? v->in[1 - k] : 0;
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
	case O_attend:
		return k == 3   ? infer_score_bias(s, r, x)
		       : k == 0 ? infer_attend_query(s, r, x)
		                : infer_other(s, r, x);
	default:
		return infer_other(s, r, x);
	}
}

static void meet(Inference *p, Ref r, const Val *v)
{
	Ref product = summed_product(p->s, r);
	const Val *at = product ? val(p->s->g, product) : v;
	if (product)
		p->product[product] = true;
	for (int k = 0; k < at->nin; k++) {
		Ref x = at->in[k];
		bool nothing =
		    v->op == O_dot && is_zero(p->s, at->in[1 - k]); // before the first iteration
		if (!is(p->s, x, VARIABLE) || p->product[r] || nothing)
			continue;
		assign(p, x,
		       product ? infer_kernel(p->s, r, at->in[1 - k], x) : infer_at(p->s, r, v, k));
	}
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
			meet(&p, r, v);
		else if (s->live[r] && is(s, r, VARIABLE) && p.of[r].role)
			propagate(&p, r, v);
	}
	for (int i = 0; i < g->slots.count; i++) {
		by_slot[i].param_slices = param_slices_of(&p, i);
		if (by_slot[i].param_slices) // different uses of different slices agree
			by_slot[i].question = by_slot[i].param_slices->list.at[0].inferred.question;
	}
	return by_slot;
}
