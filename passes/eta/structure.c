// structure.c: finds how the graph uses each parameter: its part in attention and gates, its
// pieces, heads and groups, the products that it takes part in, and its depth.
// Input: what is inferred for the parameters (infer.c). Output: a Structure per slot. Invariant:
// everything follows from what reads a value, nothing from names; what cannot be followed is left
// out.
#include "analysis.h"
#include <limits.h>
#include <string.h>

// What reads a value. The first have a name in reports; the others lead to these.
typedef enum Use {
	U_none,
	U_query,
	U_key,
	U_value,
	U_gate,      // the factor that passes an activation
	U_up,        // the factor that it multiplies, before another kernel
	U_candidate, // the activated factor of a sigmoid
	NAMED,
	U_weights, // the product of attention weights with values
	U_scores,  // the softmax of attention
	U_kernel,  // kernels alone
	U_other    // anything else, or readers of different kinds
} Use;

static const char *const names[NAMED] = {NULL, "query", "key", "value", "gate", "up", "candidate"};

enum { MERGED = 128 }; // parameters that a variable is made of, if its uses are theirs

typedef struct Slots { // in ascending order; none if there would be more than MERGED
	VEC(int) list;
	bool many;
} Slots;

typedef struct Trace { // arrays by Ref, unless noted
	ScaleAnalysis *s;
	Arena *arena; // of all that is not kept
	Use *use;
	int64_t *head;  // elements of a head; 0: no heads. Of scores, the axis of the keys
	bool *leads;    // leads to a kernel
	int *depth;     // kernels on the longest path from an input to it
	bool *embedded; // depends on looked up rows
	bool *zero;     // the product of a kernel with zeros, before the first iteration of a loop
	bool *product;  // summed by a contraction
	Slots *below;   // of a variable: the parameters that it is made of
	bool *later;    // by slot: a kernel or a table precedes one of its contractions
	Table *known;   // the products that are listed
	Table *texts;   // of products; their numbers
	uint64_t count; // of texts
	Structure *of;  // by slot
} Trace;

static bool is_zeros(ScaleAnalysis *s, const Val *v)
{
	return v->op == O_dot && (is_zero(s, v->in[0]) || is_zero(s, v->in[1]));
}

// True for the output of a kernel.
static bool contracts(ScaleAnalysis *s, Ref r)
{
	const Val *v = val(s->g, r);
	if (v->op != O_dot)
		return summed_product(s, r) != 0;
	return is(s, v->in[0], VARIABLE) != is(s, v->in[1], VARIABLE) && !table_of(s, r) &&
	       !is_zeros(s, v);
}

static bool are_signals(const ScaleAnalysis *s, const Val *v)
{
	return v->nin == 2 && is(s, v->in[0], SIGNAL) && is(s, v->in[1], SIGNAL);
}

// ---- what reads a value: backward -------------------------------------------------------

// True for the weights of attention: a softmax, masked or with dropout.
static bool is_attention_weight(const ScaleAnalysis *s, Ref r)
{
	for (;;) {
		const Val *v = val(s->g, r);
		if (v->op == O_softmax)
			return true;
		bool passes = is_view(v) || v->op == O_select || is_multiple(s, v);
		Ref signal = 0;
		for (int k = 0; k < v->nin && passes; k++)
			signal = is(s, v->in[k], SIGNAL) ? v->in[k] : signal;
		if (!signal)
			return false;
		r = signal;
	}
}

// Returns the kind of the activation that r is a view of, with or without a constant added; -1 for
// any other value.
static int activation_under(const ScaleAnalysis *s, Ref r)
{
	for (;;) {
		const Val *v = val(s->g, r);
		bool sum = (v->op == O_add || v->op == O_sub) && !are_signals(s, v);
		if (v->op == O_act)
			return (int)v->attr->i[0];
		if (!is_view(v) && !sum)
			return -1;
		r = v->in[sum && !is(s, v->in[0], SIGNAL)];
	}
}

// Returns the use of operand k of a product of two signals: gated units, and the gates of recurrent
// cells.
static Use factor_use(const Trace *t, Ref r, const Val *v, int k)
{
	const ScaleAnalysis *s = t->s;
	int own = activation_under(s, v->in[k]), other = activation_under(s, v->in[1 - k]);
	bool same_size =
	    count_of(&val(s->g, v->in[0])->shape) == count_of(&val(s->g, v->in[1])->shape);
	if (!same_size || (own < 0 && other < 0))
		return U_other;
	if (own == A_sigmoid || own == A_hardsigmoid)
		return U_gate;
	if (own >= 0 && other >= 0)
		return U_candidate;
	if (t->use[r] == U_kernel)
		return own >= 0 ? U_gate : U_up;
	return own < 0 && t->use[r] == U_candidate ? U_candidate : U_other;
}

static Use dot_use(const Trace *t, Ref r, const Val *v, int k, int64_t *head)
{
	ScaleAnalysis *s = t->s;
	int rank = v->shape.rank;
	if (t->use[r] == U_scores) {
		bool left = t->head[r] == rank - 2; // the left operand has the keys
		*head = last_dim(&val(s->g, v->in[0])->shape);
		return (k == 0) == left ? U_key : U_query;
	}
	if (contracts(s, r))
		return U_kernel;
	if (is_attention_weight(s, v->in[k]))
		return U_weights;
	*head = v->shape.dim[k ? rank - 1 : rank - 2];
	return is_attention_weight(s, v->in[1 - k]) ? U_value : U_other;
}

// True if what reads r reads its signals, too: their elements, moved, masked, scaled or rotated.
static bool passes_use(const Trace *t, Ref r, const Val *v)
{
	ScaleAnalysis *s = t->s;
	bool scores = t->use[r] == U_scores, gate = t->use[r] == U_gate || t->use[r] == U_candidate;
	switch (v->op) {
	case O_add:
	case O_sub:
		return scores || gate || !are_signals(s, v) || range_origin(s, v) || low_rank(s, v);
	case O_div:
	case O_mul:
		return !are_signals(s, v);
	case O_act: // capped scores
		return scores || gate;
	case O_max:
	case O_min:
	case O_gather:
		return scores;
	default:
		return prims[v->op].cls == C_move || v->op == O_cast || v->op == O_neg ||
		       v->op == O_select || v->op == O_norm;
	}
}

static Use operand_use(const Trace *t, Ref r, const Val *v, int k, int64_t *head)
{
	const ScaleAnalysis *s = t->s;
	if (v->op == O_attend && k < 3) {
		*head = last_dim(&val(s->g, v->in[k])->shape);
		return U_query + (Use)k;
	}
	if (v->op == O_softmax && t->use[r] == U_weights) {
		*head = v->attr->i[0];
		return U_scores;
	}
	if (v->op == O_dot)
		return dot_use(t, r, v, k, head);
	if (v->op == O_mul && are_signals(s, v))
		return factor_use(t, r, v, k);
	if (!passes_use(t, r, v))
		return U_other;
	*head = t->head[r];
	if (t->use[r] == U_scores && v->op == O_permute)
		*head = v->attr->i[*head];
	else if (t->use[r] == U_scores) // leading axes come and go
		*head += val(s->g, v->in[k])->shape.rank - v->shape.rank;
	return t->use[r];
}

static void find_uses(Trace *t)
{
	ScaleAnalysis *s = t->s;
	for (Ref r = (Ref)s->g->nval - 1; r > 0; r--) {
		const Val *v = val(s->g, r);
		for (int k = 0; k < v->nin && s->live[r] && is(s, r, SIGNAL); k++) {
			Ref x = v->in[k];
			int64_t head = 0;
			Use use = operand_use(t, r, v, k, &head);
			t->leads[x] |= contracts(s, r) || t->leads[r];
			t->head[x] = t->use[x] ? t->head[x] : head;
			t->use[x] = !t->use[x] || t->use[x] == use ? use
			            : use                          ? U_other
			                                           : t->use[x];
		}
	}
}

// ---- depth and products: forward --------------------------------------------------------

static void add_slots(Trace *t, Ref r, const Slots *more)
{
	Slots all = {0}, *own = &t->below[r];
	all.many = own->many || more->many || own->list.count + more->list.count > MERGED;
	for (int i = 0, k = 0; !all.many && (i < own->list.count || k < more->list.count);) {
		int a = i < own->list.count ? own->list.at[i] : INT_MAX,
		    b = k < more->list.count ? more->list.at[k] : INT_MAX;
		PUSH(t->arena, all.list, MIN(a, b));
		i += a <= b;
		k += b <= a;
	}
	*own = all;
}

// Returns a number for a text, from 1.
static uint32_t number_of(Trace *t, const char *text)
{
	uint64_t *cell = table_cell_s(t->texts, text);
	*cell = *cell ? *cell : ++t->count;
	return (uint32_t)*cell;
}

static void add_product(Trace *t, int slot, Ref at, const char *kind, Ref other)
{
	const ScaleAnalysis *s = t->s;
	ParamProduct product = {label_of(s, at), kind,
	                        other ? label_of(s, s->origin[other].moves) : NULL};
	const uint32_t key[] = {(uint32_t)slot, number_of(t, kind), number_of(t, product.node),
	                        product.with ? number_of(t, product.with) : 0};
	if (!(*table_cell(t->known, key, sizeof key))++)
		PUSH(s->arena, t->of[slot].products, product);
}

static const char *product_kind(const Trace *t, Ref r, const Val *v, int k)
{
	switch (v->op) {
	case O_dot:
		return table_of(t->s, r) ? "look-up" : "contraction";
	case O_gather:
		return k == 0 && is(t->s, r, SIGNAL) ? "look-up" : NULL;
	case O_attend:
		return k < 3 ? "contraction" : NULL;
	case O_mul:
	case O_div:
		return t->product[r] ? "contraction" : "element-wise";
	default:
		return NULL;
	}
}

// Adds the use of operand k, a variable, at r.
static void add_use(Trace *t, Ref r, const Val *v, int k)
{
	const ScaleAnalysis *s = t->s;
	const Slots *slots = &t->below[v->in[k]];
	Ref other = v->nin == 2 ? v->in[1 - k] : v->op == O_attend ? v->in[k == 0] : 0;
	const char *kind = product_kind(t, r, v, k);
	bool constant = other && val(s->g, other)->op == O_const;
	bool table = kind && !strcmp(kind, "look-up"),
	     contraction = kind && !strcmp(kind, "contraction");
	int depth = 0;
	bool embedded = false;
	if (t->zero[r] || (other && t->zero[other]))
		return;
	for (int i = 0; i < v->nin; i++) {
		depth = MAX(depth, t->depth[v->in[i]]);
		embedded |= t->embedded[v->in[i]];
	}
	for (int i = 0; i < slots->list.count; i++) {
		Structure *of = &t->of[slots->list.at[i]];
		if (is(s, r, SIGNAL)) {
			of->depth = of->used ? MIN(of->depth, depth) : depth;
			of->used = true;
			of->input |= (table || contraction) && !depth && (table || !embedded);
			t->later[slots->list.at[i]] |= contraction && (depth || embedded);
		}
		if (kind && !constant)
			add_product(t, slots->list.at[i], r, kind, other);
	}
}

static void find_products(Trace *t)
{
	const ScaleAnalysis *s = t->s;
	for (Ref r = 1; r < (Ref)s->g->nval; r++)
		if (s->live[r] && is(s, r, SIGNAL))
			t->product[summed_product(s, r)] = true;
	for (Ref r = 1; r < (Ref)s->g->nval; r++) {
		const Val *v = val(s->g, r);
		if (v->op == O_slot && is(s, r, VARIABLE))
			PUSH(t->arena, t->below[r].list, (int)v->attr->i[0]);
		for (int k = 0; k < v->nin && s->live[r]; k++) {
			t->depth[r] = MAX(t->depth[r], t->depth[v->in[k]]);
			t->embedded[r] |= t->embedded[v->in[k]];
			bool variable = is(s, v->in[k], VARIABLE);
			t->zero[r] |= is_zeros(t->s, v) || (is_view(v) && t->zero[v->in[k]]);
			if (variable && !is(s, r, AUX))
				add_use(t, r, v, k);
			if (variable && is(s, r, VARIABLE))
				add_slots(t, r, &t->below[v->in[k]]);
		}
		t->depth[r] += s->live[r] && is(s, r, SIGNAL) && contracts(t->s, r);
		t->embedded[r] |= s->live[r] && table_of(s, r);
	}
}

// ---- pieces ------------------------------------------------------------------------------

static const char *name_at(const Trace *t, Ref at)
{
	return t->use[at] < NAMED ? names[t->use[at]] : NULL;
}

static bool is_attended(Use use)
{
	return use == U_query || use == U_key || use == U_value;
}

static int64_t heads_at(const Trace *t, Ref at, int64_t size)
{
	int64_t head = is_attended(t->use[at]) ? t->head[at] : 0;
	return head && size % head == 0 ? size / head : 0;
}

// Adds element e of the axis, which slice `at` reads, to the piece before if that one does, too.
static void add_piece(const Trace *t, Structure *of, int64_t e, Ref at, Ref *last)
{
	if (!of->pieces.count || at != *last)
		PUSH(t->s->arena, of->pieces, ((ParamPiece){e, e, name_at(t, at), 0}));
	ParamPiece *piece = &of->pieces.at[of->pieces.count - 1];
	piece->to = e + 1;
	piece->heads = heads_at(t, at, piece->to - piece->from);
	*last = at;
}

static void find_pieces(const Trace *t, const Inferred *inferred, int slot, Structure *of)
{
	const ScaleAnalysis *s = t->s;
	const OutputSlices *output = s->slices_of[inferred->at];
	const ParamSlices *slices = inferred->param_slices;
	Use use = t->use[inferred->at];
	Ref last = 0;
	if (slices) {
		of->axis = slices->axis;
		for (int i = 0; i < slices->list.count; i++) {
			const Inferred *own = &slices->list.at[i].inferred;
			int64_t start = slices->list.at[i].start, n = slices->list.at[i].count;
			output = is_attended(t->use[own->at]) ? NULL : s->slices_of[own->at];
			for (int64_t e = 0; e < n; e++) {
				int64_t k = output ? feature_of(s, own, of->axis, e) : -1;
				add_piece(t, of, start + e, k < 0 ? own->at : output->owner[k],
				          &last);
			}
		}
	} else if (output && !is_attended(use)) {
		of->axis = feature_axis(s, inferred, output, slot);
		int64_t size = last_dim(&val(s->g, output->dot)->shape);
		for (int64_t e = 0; e < size && of->axis >= 0; e++)
			add_piece(t, of, e, output->owner[e], &last);
	}
	bool one = of->pieces.count == 1;
	int axis = feature_axis(s, inferred, NULL, slot);
	if (one || !of->pieces.count) {
		of->use = one ? of->pieces.at[0].use : name_at(t, inferred->at);
		if (axis >= 0)
			of->heads = heads_at(t, inferred->at, s->g->slots.at[slot].shape.dim[axis]);
		of->pieces.count = 0;
	}
	for (int i = 0; i < of->pieces.count; i++)
		for (int k = 0; k < i && of->pieces.at[i].heads; k++)
			of->interleaved |= of->pieces.at[k].use == of->pieces.at[i].use;
}

// ---- groups ------------------------------------------------------------------------------

// Finds the matrices that a kernel is a stack of, along the leading axes of a product (experts,
// groups of a convolution), or where it advances together with its signal (channels of a depthwise
// convolution).
static void find_groups(const ScaleAnalysis *s, const Inferred *inferred, Structure *of)
{
	const Val *at = val(s->g, inferred->at);
	of->groups = 1;
	if (!inferred->role || !inferred->contracted)
		return;
	const Val *product = at->op == O_sum ? val(s->g, at->in[0]) : at;
	if (product->nin != 2)
		return;
	const Shape *own = &val(s->g, inferred->operand)->shape;
	const Shape *other = &val(s->g, product->in[product->in[0] == inferred->operand])->shape;
	for (int a = 0; a < own->rank - (at->op == O_dot ? 2 : 0); a++) {
		bool apart = at->op == O_dot ||
		             (!has_axis(at->attr, a) && a < other->rank && other->dim[a] > 1);
		if (!apart || own->dim[a] < 2)
			continue;
		of->groups *= own->dim[a];
		add_group_axes(inferred, a, of->group_axes);
	}
}

// ---- the structure of every parameter ----------------------------------------------------

Structure *structures(ScaleAnalysis *s, const Inferred *inferred)
{
	Arena *arena = arena_new();
	int n = s->g->nval;
	Trace t = {s,
	           arena,
	           NEWS(arena, Use, n),
	           NEWS(arena, int64_t, n),
	           NEWS(arena, bool, n),
	           NEWS(arena, int, n),
	           NEWS(arena, bool, n),
	           NEWS(arena, bool, n),
	           NEWS(arena, bool, n),
	           NEWS(arena, Slots, n),
	           NEWS(arena, bool, s->g->slots.count + 1),
	           table_new(arena),
	           table_lent(arena),
	           0,
	           NEWS(s->arena, Structure, s->g->slots.count + 1)};
	find_uses(&t);
	find_products(&t);
	for (int i = 0; i < s->g->slots.count; i++) {
		Structure *of = &t.of[i];
		of->at = inferred[i].at;
		of->contracted = inferred[i].contracted;
		of->readout = inferred[i].readout && !t.leads[inferred[i].at];
		bool table = inferred[i].role && !strcmp(inferred[i].role, "embedding");
		of->input = table ? !of->depth : of->input && !t.later[i];
		if (inferred[i].role)
			find_pieces(&t, &inferred[i], i, of);
		find_groups(s, &inferred[i], of);
	}
	arena_free(arena);
	return t.of;
}
