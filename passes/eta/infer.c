// infer.c: infers eta where signal meets variable.
// The meeting of a signal and a variable decides the variable's Share; a variable that is computed
// from parameters passes its Share on to them (derive.c). Input: ranges and demands (analysis.c).
// Output: a Share per slot. Invariant: the last use decides; if another use implies a different
// share, a question reports it. Source: Amos (arXiv 2210.11693), its tables of eta.
#include "analysis.h"

// ---- where a signal meets a variable --------------------------------------------------

// True if these are the logits, whose demand a loss or an output sets.
static bool is_logits(const ScaleAnalysis *s, Ref at)
{
	Ref asker = s->asker[at];
	return asker && (s->out[asker] || val(s->g, asker)->op == O_lse);
}

// True if these are logits, or the demand comes from a squared error.
static bool is_read_out(const ScaleAnalysis *s, Ref at)
{
	const Val *asker = val(s->g, s->asker[at]);
	bool error = s->asker[at] && asker->op == O_mul && asker->in[0] == asker->in[1];
	return error || is_logits(s, at);
}

// Returns the share of `variable`, which meets `signal` (0: none) at value `at`.
static Inferred meeting(const ScaleAnalysis *s, Ref at, Ref signal, Ref variable, const char *role,
                        Surd eta)
{
	Inferred share = {
	    .role = role, .eta = eta, .at = at, .operand = variable, .range = surd_one};
	if (signal && is(s, signal, SIGNAL)) {
		share.range = s->range[signal];
		share.source = s->source[signal];
	}
	share.demand = asked(s, at);
	share.asker = s->asker[at];
	share.cuts = s->cuts[at];
	share.readout = is_read_out(s, at);
	return share;
}

static Inferred table_share(const ScaleAnalysis *s, Ref at, Ref table)
{
	Inferred share = meeting(s, at, 0, table, "embedding", asked(s, table));
	int slot = view_slot(s, table);
	share.rows = true;
	share.cuts = NULL;
	share.demand = share.eta;
	share.asker = s->asker[table];
	if (slot >= 0 && s->stream[slot] && s->asker[table] && share.eta.value < 1)
		share.question =
		    "what the logits ask of a table that is tied to them; but its rows begin a "
		    "residual stream that is not normalized: so small there?";
	return share;
}

// True if the result of `r` passes an activation before it is added to another signal.
static bool activated(const ScaleAnalysis *s, Ref r)
{
	for (Ref u = s->reader[r]; u; u = s->reader[u]) {
		const Val *v = val(s->g, u);
		if (v->op == O_act)
			return true;
		bool both = v->nin > 1 && is(s, v->in[0], SIGNAL) && is(s, v->in[1], SIGNAL);
		if (!is(s, u, SIGNAL) || both)
			return false;
	}
	return false;
}

// Counts, by source, the signals that read its values and have a source of their own.
static int *count_branches(const ScaleAnalysis *s)
{
	int *branches = NEWS(s->arena, int, s->g->nval);
	Ref *last = NEWS(s->arena, Ref, s->g->nval); // by source: the one counted last
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
// projection of a pooled image, and not the parallel kernel whose output is activated.
static Surd input_range(const ScaleAnalysis *s, Ref at, Ref signal, bool *unpooled)
{
	Ref source = is(s, signal, SIGNAL) ? s->source[signal] : 0;
	Ref before = source && known(s, F_branch) ? pooled(s, source) : 0;
	*unpooled = before && activated(s, at) && s->branches[source] > 1;
	if (*unpooled)
		return s->range[before];
	return is(s, signal, SIGNAL) ? s->range[signal] : surd_one;
}

static const char *low_rank_question(const ScaleAnalysis *s, Ref at)
{
	Ref sum = val(s->g, unscaled(s, val(s->g, at)->in[0]))->op == O_dot ? sum_of(s, at) : 0;
	Ref low = sum ? low_rank(s, val(s->g, sum)) : 0;
	return low && unscaled(s, low) == at ? "the second of two kernels beside a larger one "
	                                       "(LoRA): an offset of it, half its "
	                                       "output?"
	                                     : NULL;
}

static Inferred kernel_share(const ScaleAnalysis *s, Ref at, Ref signal, Ref variable)
{
	int64_t m = contracted(s, at);
	int slot = view_slot(s, variable);
	bool unpooled;
	Surd range = input_range(s, at, signal, &unpooled);
	if (slot >= 0 && s->lookups[slot]) {
		Inferred table = table_share(s, at, variable);
		table.contracted = m;
		table.range = range;
		table.source = is(s, signal, SIGNAL) ? s->source[signal] : 0;
		table.demand = asked(s, at);
		table.asker = s->asker[at];
		return table;
	}
	bool whatever = s->authors && is_logits(s, at); // their output kernels have no demand
	Surd eta = surd_div(asked(s, at), surd_mul(whatever ? surd_one : range, surd_root(m, 1)));
	Inferred share = meeting(s, at, signal, variable, "kernel", eta);
	share.contracted = m;
	share.range = range;
	share.question = low_rank_question(s, at);
	Ref guess = is(s, signal, SIGNAL) && !share.question ? s->guess[signal] : 0;
	if (guess)
		share.question =
		    format(s->arena,
		           "no rule knows the activation at %s, which comes in: is it as large "
		           "as %s?",
		           place_of(s, guess), surd_text(s->arena, s->range[guess], 0));
	share.note = whatever   ? "the authors' code takes 1 for what comes into logits"
	             : unpooled ? "max-pooled, which counts in what goes past this kernel alone"
	                        : NULL;
	return share;
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
	return "a learned query: does the table bear its scale, or the kernel behind it?";
}

// A learned query is a table times a kernel, the left operand of the product with the keys.
static Inferred query_share(const ScaleAnalysis *s, Ref at, Ref signal, Ref variable)
{
	Inferred share = kernel_share(s, at, signal, variable);
	share.role = "embedding";
	share.rows = true;
	share.contracted = 0;
	share.question = query_question(s, variable);
	return share;
}

static Inferred product_share(ScaleAnalysis *s, Ref at, Ref signal, Ref variable)
{
	bool left = val(s->g, at)->in[0] == variable;
	Ref whole = left ? 0 : offset_of(s, at);
	if (left && known(s, F_query) && kernel_product(s, variable))
		return query_share(s, at, signal, variable);
	if (!whole)
		return kernel_share(s, at, signal, variable);
	Surd range = s->range[unscaled(s, whole)], half = surd_mul(range, constant(s, N_offset));
	Inferred share =
	    meeting(s, at, 0, variable, "embedding", surd_mul(half, gain_of(s, variable)));
	share.rows = true;
	share.range = range;
	share.source = s->source[whole];
	share.cuts = NULL;
	return share;
}

// True if there is one value per output feature of a product; heads split the axis of features.
static bool spans_features(const ScaleAnalysis *s, Ref signal, Ref variable)
{
	const Val *v = val(s->g, unmoved(s, signal));
	return v->op == O_dot &&
	       count_of(&val(s->g, variable)->shape) == v->shape.dim[v->shape.rank - 1];
}

static Inferred bias_share(ScaleAnalysis *s, Ref at, Ref signal, Ref variable)
{
	if (s->sum[at])
		return table_share(s, at, variable);
	bool norm = normalized(s, signal, true);
	Surd whole = s->asker[at] && !norm ? s->demand[at] : s->range[signal];
	Inferred share = meeting(s, at, signal, variable, norm ? "norm_bias" : "bias",
	                         surd_mul(whole, constant(s, norm ? N_norm_bias : N_offset)));
	if (norm || s->asker[at] || long_axes(&val(s->g, variable)->shape) < 2 ||
	    spans_features(s, signal, variable))
		return share;
	share.role = "embedding";
	share.rows = true;
	share.question =
	    "a table added to a stream of which nothing is asked: half of the stream's range?";
	return share;
}

static Inferred scale_share(ScaleAnalysis *s, Ref at, Ref signal, Ref variable)
{
	if (s->divided[variable] || normalized(s, signal, false))
		return meeting(s, at, signal, variable, "norm_scale", constant(s, N_norm_scale));
	Surd out = s->asker[at] ? s->demand[at] : s->range[signal];
	Inferred share = meeting(s, at, signal, variable, "scale", surd_div(out, s->range[signal]));
	share.question =
	    "a factor of a signal that is not normalized: what becomes of the signal's range?";
	return share;
}

// A token that is concatenated with data has their scale.
static Inferred token_share(const ScaleAnalysis *s, Ref at, Ref variable)
{
	const Val *v = val(s->g, at);
	Ref beside = 0;
	for (int k = 0; k < v->nin; k++)
		beside = is(s, v->in[k], SIGNAL) ? v->in[k] : beside;
	Surd range = beside ? s->range[beside] : surd_one;
	Inferred share = meeting(s, at, beside, variable, "token",
	                         s->asker[variable] ? s->demand[variable] : range);
	share.rows = true;
	share.question = "a learned token among data: as large as they are?";
	return share;
}

static Inferred other_share(const ScaleAnalysis *s, Ref at, Ref variable)
{
	Inferred share = meeting(s, at, 0, variable, "token", asked(s, variable));
	share.rows = true;
	share.question =
	    format(s->arena, "no rule for a parameter at '%s': %s?", prims[val(s->g, at)->op].name,
	           s->asker[variable] ? "the scale asked of it" : "1");
	return share;
}

// The learned query of an attention.
static Inferred attending_share(const ScaleAnalysis *s, Ref at, Ref variable)
{
	Inferred share = meeting(s, at, 0, variable, "embedding", asked(s, variable));
	share.rows = true;
	share.demand = share.eta;
	share.asker = s->asker[variable];
	share.question = query_question(s, variable);
	return share;
}

// A bias of attention scores, whose demand is 1.
static Inferred score_share(const ScaleAnalysis *s, Ref at, Ref variable)
{
	Surd wanted = constant(s, N_wanted);
	Inferred share =
	    meeting(s, at, 0, variable, "bias", surd_mul(wanted, constant(s, N_offset)));
	share.demand = wanted;
	share.asker = at;
	return share;
}

static Inferred share_at(ScaleAnalysis *s, Ref r, const Val *v, int k)
{
	Ref x = v->in[k], other = v->nin == 2 ? v->in[1 - k] : 0;
	switch (v->op) {
	case O_dot:
		return table_of(s, r) ? table_share(s, r, x) : product_share(s, r, other, x);
	case O_gather:
		return table_share(s, r, x);
	case O_add:
	case O_sub:
		return bias_share(s, r, other, x);
	case O_mul:
	case O_div:
		return scale_share(s, r, other, x);
	case O_concat:
		return token_share(s, r, x);
	case O_attend:
		return k == 3   ? score_share(s, r, x)
		       : k == 0 ? attending_share(s, r, x)
		                : other_share(s, r, x);
	default:
		return other_share(s, r, x);
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
		    v->op == O_dot && is_zero(p->s, at->in[1 - k]); // before the first step
		if (!is(p->s, x, VARIABLE) || p->product[r] || nothing)
			continue;
		give(p, x,
		     product ? kernel_share(p->s, r, at->in[1 - k], x) : share_at(p->s, r, v, k));
	}
}

Inferred *share_out(ScaleAnalysis *s)
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
		by_slot[i].pieces = pieces_of(&p, i);
		if (by_slot[i].pieces) // different uses of different pieces are no contradiction
			by_slot[i].question = by_slot[i].pieces->list.at[0].share.question;
	}
	return by_slot;
}
