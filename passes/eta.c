// eta.c: the expected scale of every parameter, inferred from what comes before and after it.
// Takes a forward graph. Gives an Eta for each parameter: exact scale, role, slots' shape, reasons.
// Keeps: no parameter is left out; what no rule decides is said (sure = false) with the default
// taken.
//
// Every value is a signal (carries data), a variable (made of parameters alone) or an aux (masks,
// indices, constants).
//   1  ranges upward, every kernel's output taken as 1
//   2  demands downward: what consumers want the standard deviation of a signal to be; none: any
//   3  ranges again with the demands
//   4  where a signal meets a variable: the variable's share, carried down its own operations to
//   the parameter
// Source: Amos (arXiv 2210.11693), sections on eta and its tables; rows differ from it only where
// said.
#include "passes.h"
#include <math.h>
#include <string.h>

typedef enum Nature { AUX, VARIABLE, SIGNAL } Nature;

typedef struct Share {    // what is wanted of a variable
	const char *role; // NULL: nothing is known
	Surd eta;
	Surd range, demand;   // that led to it
	Ref source, asker;    // the values they come from; 0: none
	int64_t contracted;   // kernel: m
	int axis;             // embedding: the axis of rows; -1
	Ref operand;          // the variable as the meeting point sees it
	Ref at;               // the meeting point
	const char *question; // NULL: sure
} Share;

typedef struct Sweep {
	Arena *arena;
	const Graph *g;
	bool *live;
	Nature *nature;
	Surd *range, *demand;
	Ref *source;   // the value that set a range
	Ref *asker;    // the value whose consumer set a demand; 0: nobody asks
	bool *lookups; // by slot: rows of it are looked up by data
	bool *sum;     // an add of embeddings only
	Share *share;
} Sweep;

static const Surd one = {1, true, 1, 1};

static bool is(const Sweep *s, Ref r, Nature n)
{
	return s->nature[r] == n;
}

static const char *place_of(const Sweep *s, Ref r)
{
	const Val *v = val(s->g, r);
	if (v->op == O_slot)
		return s->g->slots.at[v->attr->i[0]].name;
	const Node *node = &s->g->nodes.at[v->from];
	return node->name && *node->name ? node->name
	                                 : format(s->arena, "%%%u %s", r, prims[v->op].name);
}

// ---- what a value is made of -------------------------------------------------------------------

static Nature slot_nature(const Slot *slot)
{
	if (slot->kind == S_input)
		return elems[slot->type].cls == 'f' ? SIGNAL : AUX;
	return slot->kind == S_state ? AUX : VARIABLE;
}

static bool from_data(const Graph *g, Ref r, bool *data)
{
	const Val *v = val(g, r);
	if (v->op == O_slot)
		return g->slots.at[v->attr->i[0]].kind == S_input;
	for (int k = 0; k < v->nin; k++)
		if (data[v->in[k]])
			return true;
	return false;
}

static void find_natures(Sweep *s)
{
	const Graph *g = s->g;
	bool *data = NEWS(s->arena, bool, g->nval);
	for (Ref r = 1; r < (Ref)g->nval; r++) {
		const Val *v = val(g, r);
		data[r] = from_data(g, r, data);
		Nature n = v->op == O_slot ? slot_nature(&g->slots.at[v->attr->i[0]]) : AUX;
		for (int k = 0; k < v->nin; k++)
			n = MAX(n, s->nature[v->in[k]]);
		bool looked_up = v->op == O_gather && is(s, v->in[0], VARIABLE) && data[v->in[1]];
		if (elems[v->type].cls != 'f')
			n = AUX;
		s->nature[r] = looked_up ? SIGNAL : n;
	}
}

// The slot a variable is a view of, through moves, casts and constant look-ups; -1: a composition.
static int view_slot(const Sweep *s, Ref r)
{
	for (;;) {
		const Val *v = val(s->g, r);
		if (v->op == O_slot)
			return (int)v->attr->i[0];
		bool view = prims[v->op].cls == C_move || v->op == O_cast || v->op == O_gather;
		if (!view || v->op == O_concat)
			return -1;
		r = v->in[0];
	}
}

static bool is_lookup(const Sweep *s, Ref r)
{
	const Val *v = val(s->g, r);
	return v->op == O_gather && is(s, r, SIGNAL) && is(s, v->in[0], VARIABLE);
}

static void find_lookups(Sweep *s)
{
	for (Ref r = 1; r < (Ref)s->g->nval; r++) {
		int slot = s->live[r] && is_lookup(s, r) ? view_slot(s, val(s->g, r)->in[0]) : -1;
		if (slot >= 0)
			s->lookups[slot] = true;
	}
}

// The root mean square of a constant's ordinary elements: masks of -inf or -1e4 and below do not
// count.
static Surd rms_of(const Sweep *s, Ref r)
{
	const Val *v = val(s->g, r);
	if (v->op != O_const || elems[v->type].cls != 'f')
		return one;
	double sum = 0;
	int64_t n = count_of(&v->shape), used = 0;
	for (int64_t i = 0; i < n; i++) {
		double x = const_at(v, i);
		if (x > -1e3 && x < 1e30)
			sum += x * x, used++;
	}
	return used && sum > 0 ? surd_near(sqrt(sum / (double)used)) : one;
}

// The value behind moves, negation and joins of parts of one value: what a rotation turns.
static Ref turned(const Sweep *s, Ref r)
{
	const Val *v = val(s->g, r);
	if (v->op == O_concat) {
		Ref root = turned(s, v->in[0]);
		for (int k = 1; k < v->nin; k++)
			if (turned(s, v->in[k]) != root)
				return r;
		return root;
	}
	if (v->op == O_neg || prims[v->op].cls == C_move || v->op == O_cast)
		return turned(s, v->in[0]);
	return r;
}

// x cos + turn(x) sin: keeps the length of x. Answers x, or 0.
static Ref rotation_of(const Sweep *s, Ref r)
{
	const Val *v = val(s->g, r);
	if (v->op != O_add && v->op != O_sub)
		return 0;
	Ref root[2];
	for (int k = 0; k < 2; k++) {
		const Val *m = val(s->g, v->in[k]);
		if (m->op != O_mul)
			return 0;
		int signal = is(s, m->in[0], SIGNAL) ? 0 : 1;
		if (!is(s, m->in[signal], SIGNAL) || is(s, m->in[1 - signal], SIGNAL))
			return 0;
		root[k] = turned(s, m->in[signal]);
	}
	return root[0] == root[1] && v->in[0] != v->in[1] ? root[0] : 0;
}

// Entries of a sliding window under amax; 0: not a pooling.
static int64_t pool_size(const Sweep *s, Ref r)
{
	const Val *v = val(s->g, r);
	Ref x = v->in[0];
	while (val(s->g, x)->op == O_permute || val(s->g, x)->op == O_reshape)
		x = val(s->g, x)->in[0];
	if (val(s->g, x)->op != O_window)
		return 0;
	return count_of(&val(s->g, v->in[0])->shape) / count_of(&v->shape);
}

// Max-pooling and ReLU commute: the range before the ReLU counts.
static Ref before_relu(const Sweep *s, Ref x)
{
	const Val *v = val(s->g, x);
	while (prims[v->op].cls == C_move)
		v = val(s->g, x = v->in[0]);
	return v->op == O_act && v->attr->i[0] == A_relu ? v->in[0] : x;
}

static int64_t contracted(const Sweep *s, Ref dot)
{
	const Shape *left = &val(s->g, val(s->g, dot)->in[0])->shape;
	return left->dim[left->rank - 1];
}

static bool buffers_only(const Sweep *s, Ref r)
{
	const Val *v = val(s->g, r);
	if (v->op == O_slot)
		return s->g->slots.at[v->attr->i[0]].kind == S_buffer;
	bool any = v->op != O_const && v->nin > 0;
	for (int k = 0; k < v->nin; k++)
		if (val(s->g, v->in[k])->op != O_const && !buffers_only(s, v->in[k]))
			return false;
	return any;
}

// A product with a function of running statistics: the inference form of batch normalization.
static bool by_statistics(const Sweep *s, Ref r)
{
	const Val *v = val(s->g, r);
	if (buffers_only(s, r))
		return true;
	return (v->op == O_mul || prims[v->op].cls == C_move) &&
	       (by_statistics(s, v->in[0]) || (v->nin > 1 && by_statistics(s, v->in[1])));
}

// ---- 1, 3: ranges upward ----------------------------------------------------------------------

static Surd asked(const Sweep *s, Ref r)
{
	return s->asker[r] ? s->demand[r] : one;
}

static Surd keep_range(Sweep *s, Ref r, const Val *v)
{
	Ref widest = 0;
	for (int k = 0; k < v->nin; k++)
		if (is(s, v->in[k], SIGNAL) &&
		    (!widest || s->range[v->in[k]].value > s->range[widest].value))
			widest = v->in[k];
	if (!widest)
		return one;
	s->source[r] = s->source[widest];
	return s->range[widest];
}

static Surd unit_range(Sweep *s, Ref r, const Val *v)
{
	(void)v;
	s->source[r] = r;
	return one;
}

static Surd add_range(Sweep *s, Ref r, const Val *v)
{
	Ref whole = rotation_of(s, r);
	if (whole) {
		s->source[r] = s->source[whole];
		return s->range[whole];
	}
	if (!is(s, v->in[0], SIGNAL) || !is(s, v->in[1], SIGNAL))
		return keep_range(s, r, v); // a learned offset or a mask does not count
	s->source[r] = r;
	return surd_hypot(s->range[v->in[0]], s->range[v->in[1]]);
}

static Surd mul_range(Sweep *s, Ref r, const Val *v)
{
	int signal = is(s, v->in[0], SIGNAL) ? 0 : 1;
	Ref x = v->in[signal], other = v->in[1 - signal];
	if (is(s, other, AUX)) {
		s->source[r] = s->source[x];
		Surd rms = rms_of(s, other);
		return v->op == O_div ? surd_div(s->range[x], rms) : surd_mul(s->range[x], rms);
	}
	s->source[r] = r;
	if (is(s, other, VARIABLE) && by_statistics(s, other))
		return one;
	if (is(s, other, VARIABLE))
		return keep_range(s, r, v);
	return v->op == O_div ? one : surd_mul(s->range[v->in[0]], s->range[v->in[1]]);
}

static Surd act_range(Sweep *s, Ref r, const Val *v)
{
	s->source[r] = r;
	return surd_mul(s->range[v->in[0]], surd_root(1, 2));
}

static Surd softmax_range(Sweep *s, Ref r, const Val *v)
{
	s->source[r] = r;
	int64_t n = 1;
	for (int k = 0; k < v->attr->n; k++)
		n *= v->shape.dim[v->attr->i[k]];
	return surd_root(1, n);
}

static Surd sum_range(Sweep *s, Ref r, const Val *v)
{
	Ref x = v->in[0];
	int64_t n = count_of(&val(s->g, x)->shape) / count_of(&v->shape);
	s->source[r] = s->source[x];
	return surd_mul(s->range[x], surd_near((double)n));
}

static Surd max_range(Sweep *s, Ref r, const Val *v)
{
	int64_t n = pool_size(s, r);
	if (n < 2)
		return keep_range(s, r, v);
	s->source[r] = r;
	Surd before = s->range[before_relu(s, v->in[0])];
	return surd_number(before.value / sqrt(2 * log((double)n)));
}

static Surd dot_range(Sweep *s, Ref r, const Val *v)
{
	s->source[r] = r;
	if (!is(s, v->in[0], SIGNAL) || !is(s, v->in[1], SIGNAL))
		return asked(s, r); // a kernel takes any input to what is asked of its output
	Surd both = surd_mul(s->range[v->in[0]], s->range[v->in[1]]);
	return surd_mul(both, surd_root(contracted(s, r), 1));
}

static Surd gather_range(Sweep *s, Ref r, const Val *v)
{
	if (!is_lookup(s, r))
		return keep_range(s, r, v);
	s->source[r] = r;
	return asked(s, v->in[0]);
}

static Surd concat_range(Sweep *s, Ref r, const Val *v)
{
	double sum = 0;
	bool equal = true;
	Ref first = 0;
	for (int k = 0; k < v->nin; k++) {
		const Shape *shape = &val(s->g, v->in[k])->shape;
		Surd range = is(s, v->in[k], SIGNAL) ? s->range[v->in[k]] : one;
		sum += (double)shape->dim[v->attr->i[0]] * range.value * range.value;
		if (is(s, v->in[k], SIGNAL)) {
			equal &= !first || surd_same(range, s->range[first]);
			first = first ? first : v->in[k];
		}
	}
	s->source[r] = equal ? s->source[first] : r;
	return equal ? s->range[first] : surd_near(sqrt(sum / (double)v->shape.dim[v->attr->i[0]]));
}

// ---- 2: demands downward ------------------------------------------------------------------------

static void ask(Sweep *s, Ref r, Surd demand, Ref by)
{
	if (s->asker[r] || is(s, r, AUX))
		return;
	s->demand[r] = demand;
	s->asker[r] = by;
}

static void pass_demand(Sweep *s, Ref r, const Val *v)
{
	for (int k = 0; k < v->nin; k++)
		if (s->asker[r])
			ask(s, v->in[k], s->demand[r], s->asker[r]);
}

static void unit_demand(Sweep *s, Ref r, const Val *v)
{
	for (int k = 0; k < v->nin; k++)
		ask(s, v->in[k], one, r);
}

static void no_demand(Sweep *s, Ref r, const Val *v)
{
	(void)s, (void)r, (void)v;
}

static void add_demand(Sweep *s, Ref r, const Val *v)
{
	Ref whole = rotation_of(s, r);
	if (!s->asker[r])
		return;
	if (whole) {
		ask(s, whole, s->demand[r], s->asker[r]);
		return;
	}
	for (int k = 0; k < 2; k++)
		if (is(s, v->in[k], SIGNAL))
			ask(s, v->in[k], s->demand[r], s->asker[r]);
}

static void mul_demand(Sweep *s, Ref r, const Val *v)
{
	int signal = is(s, v->in[0], SIGNAL) ? 0 : 1;
	Ref x = v->in[signal], other = v->in[1 - signal];
	if (v->in[0] == v->in[1])
		ask(s, x, one, r); // a squared error: against targets of deviation 1
	if (!s->asker[r] || is(s, other, SIGNAL) || by_statistics(s, other))
		return;
	Surd rms = rms_of(s, other);
	ask(s, x, v->op == O_div ? surd_mul(s->demand[r], rms) : surd_div(s->demand[r], rms),
	    s->asker[r]);
}

static void sum_demand(Sweep *s, Ref r, const Val *v)
{
	Ref x = v->in[0];
	int64_t n = count_of(&val(s->g, x)->shape) / count_of(&v->shape);
	if (s->asker[r])
		ask(s, x, surd_div(s->demand[r], surd_near((double)n)), s->asker[r]);
}

// Is `x` a kernel's output that nothing normalizes?
static bool unfixed(const Sweep *s, Ref x)
{
	for (;;) {
		const Val *v = val(s->g, x);
		if (v->op == O_dot)
			return is(s, v->in[0], VARIABLE) || is(s, v->in[1], VARIABLE);
		bool bias = v->op == O_add && is(s, v->in[0], SIGNAL) != is(s, v->in[1], SIGNAL);
		if (prims[v->op].cls != C_move && v->op != O_cast && !bias)
			return false;
		x = bias && !is(s, v->in[0], SIGNAL) ? v->in[1] : v->in[0];
	}
}

// x E^T where rows of E are looked up too: the output's demand is shared with x, or E bears it all.
static void tied_demand(Sweep *s, Ref r, Ref x, Ref table)
{
	Surd wanted = asked(s, r), m = surd_near((double)contracted(s, r));
	Surd shared = surd_mul(surd_near(sqrt(wanted.value)), surd_near(pow(m.value, -0.25)));
	Surd borne = surd_div(wanted, surd_mul(s->range[x], surd_root(contracted(s, r), 1)));
	bool share = unfixed(s, x);
	if (share)
		ask(s, x, shared, r);
	for (Ref t = table;; t = val(s->g, t)->in[0]) {
		s->demand[t] = share ? shared : borne;
		s->asker[t] = r;
		if (val(s->g, t)->op == O_slot)
			return;
	}
}

static void dot_demand(Sweep *s, Ref r, const Val *v)
{
	Ref left = v->in[0], right = v->in[1];
	if (is(s, left, SIGNAL) && is(s, right, SIGNAL)) { // the left operand absorbs
		if (s->asker[r])
			ask(s, left,
			    surd_div(s->demand[r],
			             surd_mul(s->range[right], surd_root(contracted(s, r), 1))),
			    s->asker[r]);
		return;
	}
	Ref kernel = is(s, left, VARIABLE) ? left : right, x = kernel == left ? right : left;
	int slot = view_slot(s, kernel);
	if (slot >= 0 && s->lookups[slot] && is(s, x, SIGNAL))
		tied_demand(s, r, x, kernel);
}

static void gather_demand(Sweep *s, Ref r, const Val *v)
{
	if (s->asker[r])
		ask(s, v->in[0], s->demand[r], s->asker[r]);
}

static void max_demand(Sweep *s, Ref r, const Val *v)
{
	unit_demand(s, r, v);
}

// One row a primitive. What is not listed keeps its operand's range and passes its demand on.
typedef struct Scale {
	Surd (*range)(Sweep *, Ref, const Val *);
	void (*demand)(Sweep *, Ref, const Val *);
} Scale;

static const Scale scales[OPS] = {
    [O_add] = {add_range, add_demand},    [O_sub] = {add_range, add_demand},
    [O_mul] = {mul_range, mul_demand},    [O_div] = {mul_range, mul_demand},
    [O_exp] = {unit_range, unit_demand},  [O_log] = {unit_range, unit_demand},
    [O_sin] = {unit_range, unit_demand},  [O_cos] = {unit_range, unit_demand},
    [O_atan] = {unit_range, unit_demand}, [O_erf] = {act_range, unit_demand},
    [O_tanh] = {act_range, unit_demand},  [O_abs] = {keep_range, unit_demand},
    [O_sqrt] = {unit_range, no_demand},   [O_rsqrt] = {unit_range, no_demand},
    [O_pow] = {unit_range, unit_demand},  [O_sum] = {sum_range, sum_demand},
    [O_prod] = {unit_range, no_demand},   [O_amax] = {max_range, max_demand},
    [O_amin] = {keep_range, unit_demand}, [O_concat] = {concat_range, pass_demand},
    [O_dot] = {dot_range, dot_demand},    [O_gather] = {gather_range, gather_demand},
    [O_act] = {act_range, unit_demand},   [O_softmax] = {softmax_range, unit_demand},
    [O_lse] = {unit_range, unit_demand},  [O_norm] = {unit_range, no_demand},
};

static void sweep_up(Sweep *s)
{
	for (Ref r = 1; r < (Ref)s->g->nval; r++) {
		const Val *v = val(s->g, r);
		s->range[r] = one;
		s->source[r] = r;
		if (is(s, r, SIGNAL) && v->nin > 0)
			s->range[r] =
			    (scales[v->op].range ? scales[v->op].range : keep_range)(s, r, v);
		else if (is(s, r, VARIABLE))
			s->range[r] = asked(s, r);
	}
}

static void sweep_down(Sweep *s)
{
	for (int k = 0; k < s->g->outs.count; k++) // outputs without a loss: taken as logits
		if (!strcmp(s->g->outs.at[k].name, "loss"))
			goto down;
	for (int k = 0; k < s->g->outs.count; k++)
		ask(s, s->g->outs.at[k].val, one, s->g->outs.at[k].val);
down:
	for (Ref r = (Ref)s->g->nval - 1; r > 0; r--) {
		const Val *v = val(s->g, r);
		if (s->live[r] && !is(s, r, AUX) && v->nin > 0)
			(scales[v->op].demand ? scales[v->op].demand : pass_demand)(s, r, v);
	}
}

// ---- sums of embeddings
// --------------------------------------------------------------------------

// Whether `r` is a sum of nothing but embeddings; collects them.
static bool embeddings_of(Sweep *s, Ref r, int *n, Ref *leaf)
{
	const Val *v = val(s->g, r);
	if (is_lookup(s, r) || is(s, r, VARIABLE)) {
		if (*n == 8)
			return false;
		leaf[(*n)++] = is(s, r, VARIABLE) ? r : v->in[0];
		return true;
	}
	if (v->op == O_add && is(s, r, SIGNAL))
		return embeddings_of(s, v->in[0], n, leaf) && embeddings_of(s, v->in[1], n, leaf);
	bool view = prims[v->op].cls == C_move && v->nin == 1;
	return view && is(s, r, SIGNAL) && embeddings_of(s, v->in[0], n, leaf);
}

// Unconstrained embeddings copy the constrained one they are summed with.
static void join_embeddings(Sweep *s)
{
	for (Ref r = 1; r < (Ref)s->g->nval; r++) {
		Ref leaf[8], known = 0;
		int n = 0;
		if (!s->live[r] || val(s->g, r)->op != O_add || !embeddings_of(s, r, &n, leaf) ||
		    n < 2)
			continue;
		s->sum[r] = true;
		for (int k = 0; k < n; k++)
			if (s->asker[leaf[k]])
				known = leaf[k];
		for (int k = 0; k < n && known; k++)
			for (Ref t = leaf[k];; t = val(s->g, t)->in[0]) {
				ask(s, t, s->demand[known], s->asker[known]);
				if (val(s->g, t)->nin == 0 || val(s->g, t)->op == O_concat)
					break;
			}
	}
}

// ---- 4: shares of variables
// -----------------------------------------------------------------------

static void give(Sweep *s, Ref r, Share share)
{
	Share *had = &s->share[r];
	if (!had->role)
		*had = share;
	else if (!surd_same(had->eta, share.eta) && strcmp(had->role, "embedding"))
		had->question = format(
		    s->arena, "used again at %s, where its scale would be %s: which use decides?",
		    place_of(s, share.at), surd_text(s->arena, share.eta, share.contracted));
}

static Share meeting(const Sweep *s, Ref at, Ref signal, Ref variable, const char *role, Surd eta)
{
	Share share = {.role = role, .eta = eta, .at = at, .operand = variable, .axis = -1};
	share.range = signal ? s->range[signal] : one;
	share.source = signal ? s->source[signal] : 0;
	share.demand = asked(s, at);
	share.asker = s->asker[at];
	return share;
}

static Share kernel_share(const Sweep *s, Ref at, Ref signal, Ref variable)
{
	int64_t m = contracted(s, at);
	Surd eta = surd_div(asked(s, at), surd_mul(s->range[signal], surd_root(m, 1)));
	int slot = view_slot(s, variable);
	bool tied = slot >= 0 && s->lookups[slot];
	Share share = meeting(s, at, signal, variable, tied ? "embedding" : "kernel",
	                      tied ? asked(s, variable) : eta);
	share.contracted = m;
	return share;
}

// Is `x` a normalization's output, before (or after) its own factor?
static bool normalized(const Sweep *s, Ref x, bool scaled)
{
	const Val *v = val(s->g, x);
	if (v->op == O_norm)
		return true;
	if (v->op == O_cast || prims[v->op].cls == C_move)
		return normalized(s, v->in[0], scaled);
	if (v->op != O_mul && v->op != O_div)
		return false;
	for (int k = 0; k < 2; k++) {
		if (is(s, v->in[k], VARIABLE) && by_statistics(s, v->in[k]))
			return true;
		if (scaled && is(s, v->in[k], VARIABLE) && normalized(s, v->in[1 - k], false))
			return true;
	}
	return false;
}

static Share bias_share(const Sweep *s, Ref at, Ref signal, Ref variable)
{
	if (s->sum[at]) {
		Share table = meeting(s, at, signal, variable, "embedding", asked(s, variable));
		table.question = s->asker[variable]
		                     ? NULL
		                     : "a table summed with embeddings that nothing asks of: 1?";
		return table;
	}
	Surd whole = s->asker[at] ? s->demand[at] : s->range[signal];
	return meeting(s, at, signal, variable, normalized(s, signal, true) ? "norm_bias" : "bias",
	               surd_mul(whole, surd_near(0.5)));
}

static Share scale_share(const Sweep *s, Ref at, Ref signal, Ref variable)
{
	if (by_statistics(s, variable) || normalized(s, signal, false))
		return meeting(s, at, signal, variable, "norm_scale", one);
	Share share =
	    meeting(s, at, signal, variable, "scale", surd_div(asked(s, at), s->range[signal]));
	share.question = "a factor on a signal that is not normalized: its output is taken to be 1";
	return share;
}

static Share other_share(const Sweep *s, Ref at, Ref signal, Ref variable)
{
	Share share = meeting(s, at, signal, variable, "token", asked(s, variable));
	share.question =
	    format(s->arena, "no rule for a parameter at %s: the scale asked of it, or 1",
	           prims[val(s->g, at)->op].name);
	return share;
}

static void meet(Sweep *s, Ref r, const Val *v)
{
	for (int k = 0; k < v->nin; k++) {
		Ref x = v->in[k], other = v->in[v->nin == 2 ? 1 - k : 0];
		if (!is(s, x, VARIABLE))
			continue;
		if (v->op == O_dot)
			give(s, x, kernel_share(s, r, other, x));
		else if (v->op == O_add || v->op == O_sub)
			give(s, x, bias_share(s, r, other, x));
		else if (v->op == O_mul || v->op == O_div)
			give(s, x, scale_share(s, r, other, x));
		else if (v->op == O_gather) {
			Share share = meeting(s, r, 0, x, "embedding", asked(s, x));
			share.axis = (int)v->attr->i[0];
			share.asker = s->asker[x];
			give(s, x, share);
		} else
			give(s, x, other_share(s, r, 0, x));
	}
}

// A variable's share handed to what it is made of.
static void hand_down(Sweep *s, Ref r, const Val *v)
{
	Share share = s->share[r];
	for (int k = 0; k < v->nin; k++) {
		Ref x = v->in[k], other = v->in[v->nin == 2 ? 1 - k : 0];
		Share part = share;
		if (!is(s, x, VARIABLE))
			continue;
		if ((v->op == O_add || v->op == O_sub) && is(s, other, AUX) &&
		    val(s->g, other)->op == O_const) {
			part.eta =
			    surd_mul(share.eta, surd_near(0.5)); // 1 + g: an offset of the constant
		} else if (v->op == O_mul && is(s, other, AUX)) {
			part.eta = surd_div(share.eta, rms_of(s, other));
		} else if (v->op == O_mul && by_statistics(s, other)) {
			part.role = !strcmp(share.role, "norm_bias") ? "norm_bias" : "norm_scale";
		} else if (prims[v->op].cls != C_move && v->op != O_cast && v->op != O_gather &&
		           v->op != O_add && v->op != O_sub && v->op != O_neg) {
			part.question = format(
			    s->arena, "reparametrized by %s: its own scale is taken to be %s",
			    prims[v->op].name, k ? "1" : "that of the result");
			part.eta = k ? one : share.eta;
		}
		give(s, x, part);
	}
}

static void share_out(Sweep *s)
{
	for (Ref r = (Ref)s->g->nval - 1; r > 0; r--) {
		const Val *v = val(s->g, r);
		if (!s->live[r])
			continue;
		if (is(s, r, SIGNAL))
			meet(s, r, v);
		else if (is(s, r, VARIABLE) && s->share[r].role)
			hand_down(s, r, v);
	}
}

// ---- slots: which axes of a parameter are contracted
// ------------------------------------------------

typedef struct Part { // of an axis: `extent` steps along axis `axis` of the parameter
	int axis;
	int64_t extent;
} Part;
typedef struct Layout { // each axis of a view as parts, slowest first
	int n[RANK];
	Part part[RANK][RANK];
} Layout;

static bool regroup(const Layout *in, int rank, const Shape *to, Layout *out)
{
	Part all[RANK * RANK];
	int count = 0, next = 0;
	for (int a = 0; a < rank; a++)
		for (int k = 0; k < in->n[a]; k++)
			if (in->part[a][k].extent != 1)
				all[count++] = in->part[a][k];
	for (int a = 0; a < to->rank; a++) {
		int64_t left = to->dim[a];
		while (left > 1) {
			if (next == count || out->n[a] == RANK)
				return false;
			Part *p = &all[next];
			int64_t inner =
			    p->extent > left && p->extent % left == 0 ? p->extent / left : 1;
			if (left % (p->extent / inner) || (inner > 1 && left != p->extent / inner))
				return false;
			out->part[a][out->n[a]++] = (Part){p->axis, p->extent / inner};
			left /= p->extent / inner;
			p->extent = inner;
			next += inner == 1;
		}
	}
	return true;
}

static bool layout_of(const Sweep *s, Ref r, Layout *out)
{
	const Val *v = val(s->g, r);
	Layout in = {0};
	if (v->op == O_slot) {
		for (int a = 0; a < v->shape.rank; a++)
			out->n[a] = 1, out->part[a][0] = (Part){a, v->shape.dim[a]};
		return true;
	}
	if (v->nin == 0 || !layout_of(s, v->in[0], &in))
		return false;
	int rank = val(s->g, v->in[0])->shape.rank;
	switch (v->op) {
	case O_reshape:
		return regroup(&in, rank, &v->shape, out);
	case O_permute:
		for (int a = 0; a < rank; a++) {
			out->n[a] = in.n[v->attr->i[a]];
			memcpy(out->part[a], in.part[v->attr->i[a]], sizeof out->part[a]);
		}
		return true;
	case O_slice:
		*out = in;
		for (int a = 0; a < rank; a++)
			if (v->shape.dim[a] != val(s->g, v->in[0])->shape.dim[a]) {
				if (in.n[a] != 1)
					return false;
				out->part[a][0].extent = v->shape.dim[a];
			}
		return true;
	default:
		*out = in;
		return prims[v->op].cls == C_map && v->shape.rank == rank;
	}
}

static void mark_axes(const Layout *layout, int axis, bool *mark)
{
	for (int k = 0; k < layout->n[axis]; k++)
		mark[layout->part[axis][k].axis] = true;
}

// v and b reduce a kernel's contracted axes, keep an embedding's rows, and are one scalar for all
// else.
static Shape slots_of(const Sweep *s, const Share *share, const Shape *shape)
{
	Shape slots = *shape;
	bool gone[RANK] = {false}, kept[RANK] = {false};
	Layout layout = {0};
	const Val *at = val(s->g, share->at);
	bool known = share->role && layout_of(s, share->operand, &layout);
	if (known && share->contracted) {
		int rank = at->shape.rank, k = at->in[0] == share->operand ? rank - 1 : rank - 2;
		for (int a = 0; a < rank; a++)
			mark_axes(&layout, a, a == k ? gone : kept);
		for (int a = 0; a < shape->rank; a++)
			slots.dim[a] = gone[a] && !kept[a] ? 1 : shape->dim[a];
		return slots;
	}
	if (known && share->axis >= 0)
		mark_axes(&layout, share->axis, kept);
	else if (share->role && !strcmp(share->role, "embedding") && shape->rank > 1)
		kept[0] = true;
	for (int a = 0; a < shape->rank; a++)
		slots.dim[a] = kept[a] ? shape->dim[a] : 1;
	return slots;
}

// ---- the report
// ------------------------------------------------------------------------------------

static void explain(const Sweep *s, const Share *share, Eta *eta)
{
	eta->why = NEWS(s->arena, const char *, 3);
	if (!share->role) {
		eta->why[eta->nwhy++] = "no use of it that a rule knows";
		return;
	}
	eta->why[eta->nwhy++] = format(s->arena, "%s: %s", place_of(s, share->at), share->role);
	if (share->source)
		eta->why[eta->nwhy++] = format(s->arena, "%s: range %s", place_of(s, share->source),
		                               surd_text(s->arena, share->range, 0));
	if (share->asker)
		eta->why[eta->nwhy++] = format(s->arena, "%s: demand %s", place_of(s, share->asker),
		                               surd_text(s->arena, share->demand, 0));
}

static Eta eta_of(const Sweep *s, const Slot *slot, const Share *share)
{
	Eta eta = {.eta = share->role ? share->eta : one,
	           .role = share->role ? share->role : "unknown"};
	eta.formula = surd_text(s->arena, eta.eta, share->contracted);
	eta.slot = slots_of(s, share, &slot->shape);
	eta.range = share->role ? share->range : one;
	eta.demand = share->role ? share->demand : one;
	eta.sure = share->role && !share->question;
	eta.question = share->role ? share->question : "it reaches no loss or output: 1?";
	explain(s, share, &eta);
	return eta;
}

// The number an override says; its text stays the formula.
static Surd override_value(Arena *arena, const Graph *g, const Override *o)
{
	Graph *scratch = graph_new(arena, o->pattern, g->book);
	double x;
	Ref r = book_eval(scratch, o->pattern, o->expr, NULL, NULL);
	if (!const_num(scratch, r, &x) || !(x > 0))
		fail(o->pattern,
		     "eta '%s' is not a positive number; write one such as 'sqrt(1/768)'", o->expr);
	return surd_near(x);
}

static void apply_overrides(Arena *arena, const Graph *g, Eta *eta, int n, const Override *list)
{
	for (int k = 0; k < n; k++) {
		Surd value = override_value(arena, g, &list[k]);
		int hits = 0;
		for (int i = 0; i < g->slots.count; i++) {
			const Slot *slot = &g->slots.at[i];
			bool hit = slot->kind == S_param && matches(list[k].pattern, slot->name);
			if (!hit)
				continue;
			hits++;
			eta[i].eta = value;
			eta[i].formula = list[k].expr;
			eta[i].sure = true;
			eta[i].question = NULL;
			eta[i].nparts = 0;
			eta[i].why =
			    take_copy(arena, (const char *[]){"given by --eta"}, sizeof(char *));
			eta[i].nwhy = 1;
		}
		if (!hits)
			fail(list[k].pattern,
			     "--eta matches no parameter; amosc inspect lists their names");
	}
}

// jestimator's own tables differ from the paper in embeddings: sqrt(2/d) where the paper has
// sqrt(1/d).
static void follow_jestimator(const Sweep *s, Eta *eta)
{
	for (int i = 0; i < s->g->slots.count; i++)
		if (eta[i].role && !strcmp(eta[i].role, "embedding") && eta[i].eta.value < 1) {
			eta[i].eta = surd_mul(eta[i].eta, surd_root(2, 1));
			eta[i].formula = surd_text(s->arena, eta[i].eta, 0);
		}
}

Eta *eta_pass(Arena *arena, const Graph *g, const char *convention, int noverride,
              const Override *over)
{
	Sweep s = {.arena = arena, .g = g, .live = graph_marks(arena, g)};
	s.nature = NEWS(arena, Nature, g->nval);
	s.range = NEWS(arena, Surd, g->nval);
	s.demand = NEWS(arena, Surd, g->nval);
	s.source = NEWS(arena, Ref, g->nval);
	s.asker = NEWS(arena, Ref, g->nval);
	s.sum = NEWS(arena, bool, g->nval);
	s.share = NEWS(arena, Share, g->nval);
	s.lookups = NEWS(arena, bool, g->slots.count + 1);
	find_natures(&s);
	find_lookups(&s);
	sweep_up(&s);
	sweep_down(&s);
	join_embeddings(&s);
	sweep_up(&s);
	share_out(&s);
	Eta *eta = NEWS(arena, Eta, g->slots.count + 1);
	Share *of = NEWS(arena, Share, g->slots.count + 1);
	for (Ref r = 1; r < (Ref)g->nval; r++)
		if (val(g, r)->op == O_slot)
			of[val(g, r)->attr->i[0]] = s.share[r];
	for (int i = 0; i < g->slots.count; i++)
		if (g->slots.at[i].kind == S_param)
			eta[i] = eta_of(&s, &g->slots.at[i], &of[i]);
	if (convention && !strcmp(convention, "jestimator"))
		follow_jestimator(&s, eta);
	apply_overrides(arena, g, eta, noverride, over);
	return eta;
}
