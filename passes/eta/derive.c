// derive.c: passes eta on to parameters of a variable.
// Input: the share of a variable (infer.c). Output: shares of its operands: factors, summands,
// products of tables and kernels, functions of a parameter. Invariant: if several parameters could
// have a scale, one gets it, and a question reports it.
#include "analysis.h"
#include <stdlib.h>
#include <string.h>

void give(Inference *p, Ref r, Inferred share)
{
	const ScaleAnalysis *s = p->s;
	Inferred *had = &p->of[r];
	if (!is(s, r, VARIABLE))
		return;
	if (!had->role || (had->indirect && !share.indirect))
		*had = share;
	else if (share.indirect && !had->indirect)
		return;
	else if (!surd_same(had->eta, share.eta) && !had->question)
		had->question = format(
		    s->arena, "used again at %s, where its scale would be %s: which use decides?",
		    place_of(s, share.at), surd_text(s->arena, share.eta, share.contracted));
}

// ---- products -------------------------------------------------------------------------

enum { LEAVES = 16 }; // limit of factors

typedef struct Factor {
	Ref x;
	bool below; // divides
} Factor;

typedef struct Product {
	int n;
	Factor at[LEAVES];
	Surd gain; // product of the numbers and of the factors of known range
} Product;

// Collects the factors of a variable, through products, quotients and views.
static void collect(ScaleAnalysis *s, Ref r, bool below, Product *p)
{
	const Val *v = val(s->g, r);
	if (is(s, r, AUX)) {
		Surd rms = rms_of(s, r);
		p->gain = below ? surd_div(p->gain, rms) : surd_mul(p->gain, rms);
	} else if (is_view(v) || v->op == O_neg) {
		collect(s, v->in[0], below, p);
	} else if (p->n < LEAVES && (v->op == O_mul || v->op == O_div)) {
		collect(s, v->in[0], below, p);
		collect(s, v->in[1], v->op == O_div ? !below : below, p);
	} else if (p->n < LEAVES) {
		p->at[p->n++] = (Factor){r, below};
	}
}

static void drop(Product *p, int k)
{
	p->at[k] = p->at[--p->n];
}

// Returns the factor x for which `square` is x x; -1 if there is none.
static int directed_by(const ScaleAnalysis *s, const Product *p, Ref square)
{
	for (int k = 0; k < p->n && square; k++)
		if (p->at[k].x == unviewed(s, val(s->g, square)->in[0]) && !p->at[k].below)
			return k;
	return -1;
}

// Finds x / |x|, or x normalized, of which only the direction matters. Removes x and its length
// from the product and returns x; 0 if there is none.
static Ref take_direction(ScaleAnalysis *s, Product *product)
{
	for (int i = 0; i < product->n && known(s, F_direction); i++) {
		Ref length = product->at[i].x;
		const Val *v = val(s->g, length);
		if (v->op == O_norm) {
			drop(product, i);
			return v->in[0];
		}
		Surd size;
		Ref square = squared_under(s, length, &size);
		int k = directed_by(s, product, square);
		if (k < 0)
			continue;
		Ref x = product->at[k].x;
		int64_t n = count_of(&val(s->g, square)->shape) / MAX(count_of(&v->shape), 1);
		product->gain = surd_div(product->gain, surd_root(n, 1));
		drop(product, MAX(i, k));
		drop(product, MIN(i, k));
		return x;
	}
	return 0;
}

// LayerNorm over a table is LayerNorm: its factor is that of a normalization, and the table may
// have any scale.
static void hand_norm(Inference *p, Ref table, const Product *product, const Inferred *share)
{
	ScaleAnalysis *s = p->s;
	Inferred part = *share;
	part.asker = part.source = 0;
	part.cuts = NULL;
	part.contracted = 0;
	part.question = NULL;
	part.eta = part.range = part.demand = constant(s, N_normalized);
	give(p, table, part);
	part.role = "norm_scale";
	part.rows = false;
	part.eta = constant(s, N_norm_scale);
	for (int k = 0; k < product->n; k++)
		if (val(s->g, product->at[k].x)->op != O_norm)
			give(p, product->at[k].x, part);
}

static void hand_product(Inference *p, Ref r, const Inferred *share)
{
	Product product = {.gain = surd_one};
	bool directed = false;
	collect(p->s, r, false, &product);
	Ref table = share->rows ? normed_table(p->s, r) : 0;
	if (table) {
		hand_norm(p, table, &product, share);
		return;
	}
	for (int k = product.n - 1; k >= 0; k--)
		if (p->s->fixed[product.at[k].x])
			drop(&product, k);
	for (Ref x; (x = take_direction(p->s, &product)) != 0; directed = true) {
		Inferred free = *share;
		free.eta = surd_one;
		free.question = "only its direction counts, its scale does not: 1?";
		give(p, x, free);
	}
	for (int k = 0; k < product.n; k++) {
		Inferred part = *share;
		Surd own = surd_div(share->eta, product.gain);
		part.eta = k ? surd_one : product.at[k].below ? surd_inverse(own) : own;
		part.role = directed ? "scale" : share->role;
		part.contracted = directed ? 0 : share->contracted;
		if (directed)
			part.question =
			    "the length of a normalized kernel: its rows' at their scale?";
		else if (product.n > 1)
			part.question =
			    "one of several factors of a parameter: which bears the scale?";
		give(p, product.at[k].x, part);
	}
}

// ---- kernels and sums -----------------------------------------------------------------

// A table times a kernel, or two kernels in place of one: the first gets the result's scale, the
// second a gain of 1. If the table is normalized, the kernel gets the scale.
static void hand_chain(Inference *p, Ref r, const Val *v)
{
	const ScaleAnalysis *s = p->s;
	Inferred first = p->of[r], kernel = first;
	first.cuts = kernel.cuts = NULL;
	first.indirect = kernel.indirect = true;
	kernel.role = "kernel";
	kernel.rows = false;
	kernel.at = r;
	kernel.operand = v->in[1];
	kernel.contracted = contracted(s, r);
	kernel.eta = surd_root(1, kernel.contracted);
	if (first.rows && normed_table(s, v->in[0])) {
		kernel.demand = first.eta;
		kernel.asker = first.asker ? first.asker : first.source;
		kernel.range = constant(s, N_normalized);
		kernel.source = v->in[0];
		kernel.eta = surd_mul(kernel.eta, first.eta);
	}
	kernel.question = NULL;
	if (!strcmp(first.role, "kernel"))
		first.question = kernel.question =
		    "a product of two parameters: which bears the scale?";
	give(p, v->in[0], first);
	give(p, v->in[1], kernel);
}

// True if x is the g of 1 + g.
static bool offsets_number(ScaleAnalysis *s, Ref other)
{
	Ref number = unviewed(s, other);
	return val(s->g, number)->op == O_const && !is_zero(s, number);
}

// True if x is the b of t W + b, t a table.
static bool offsets_product(const ScaleAnalysis *s, const Inferred *share, Ref x, Ref other)
{
	return share->rows && val(s->g, unviewed(s, other))->op == O_dot &&
	       val(s->g, unviewed(s, x))->op == O_slot;
}

static void hand_sum(Inference *p, Ref r, const Val *v)
{
	ScaleAnalysis *s = p->s;
	for (int k = 0; k < 2; k++) {
		Ref x = v->in[k], other = v->in[1 - k];
		Inferred part = p->of[r];
		bool norm = part.rows && normed_table(s, other);
		bool bias = norm || offsets_product(s, &part, x, other);
		bool summand = !strcmp(part.role, "bias"); // added to a number, but not 1 + g
		if (bias || (offsets_number(s, other) && !summand))
			part.eta = surd_mul(part.eta, constant(s, N_offset));
		if (norm)
			part.eta = constant(s, N_norm_bias);
		if (bias) {
			part.role = norm ? "norm_bias" : "bias";
			part.rows = false;
			part.indirect = true;
			part.contracted = 0;
			part.question = NULL;
		}
		give(p, x, part);
	}
}

// ---- slices of a parameter ------------------------------------------------------------

// Gives a slice of a parameter a share of its own.
static void keep_piece(Inference *p, Ref r, const Val *v)
{
	ScaleAnalysis *s = p->s;
	const Val *whole = val(s->g, v->in[0]);
	int axis = whole->op == O_slot ? cut_axis(v, &whole->shape) : -1;
	if (axis < 0 || !known(s, F_pieces))
		return;
	ParamSlices **pieces = &p->pieces[whole->attr->i[0]];
	if (!*pieces) {
		*pieces = NEW(s->arena, ParamSlices);
		(*pieces)->axis = axis;
	}
	ParamSlice piece = {v->attr->i[3 * axis], v->shape.dim[axis], p->of[r]};
	PUSH(s->arena, (*pieces)->list, piece);
	if ((*pieces)->axis != axis)
		(*pieces)->axis = -1;
}

static int earlier_first(const void *a, const void *b)
{
	const ParamSlice *one = a, *other = b;
	return (one->start > other->start) - (one->start < other->start);
}

ParamSlices *pieces_of(const Inference *p, int slot)
{
	ParamSlices *pieces = p->pieces[slot];
	bool differ = false;
	int64_t end = 0;
	if (pieces)
		qsort(pieces->list.at, (size_t)pieces->list.count, sizeof *pieces->list.at,
		      earlier_first);
	for (int k = 0; pieces && k < pieces->list.count; k++) {
		const ParamSlice *piece = &pieces->list.at[k];
		if (piece->start != end)
			return NULL;
		end += piece->count;
		differ |= !surd_same(piece->share.eta, pieces->list.at[0].share.eta);
	}
	bool whole =
	    pieces && pieces->axis >= 0 && end == p->s->g->slots.at[slot].shape.dim[pieces->axis];
	return whole && differ ? pieces : NULL;
}

// Passes a variable's share on to the values that it is computed from.
void propagate(Inference *p, Ref r, const Val *v)
{
	ScaleAnalysis *s = p->s;
	bool view = prims[v->op].cls == C_move || v->op == O_cast || v->op == O_gather ||
	            v->op == O_neg || v->op == O_select;
	if (v->op == O_mul || v->op == O_div) {
		hand_product(p, r, &p->of[r]);
	} else if (v->op == O_add || v->op == O_sub) {
		hand_sum(p, r, v);
	} else if (v->op == O_dot && is(s, v->in[0], VARIABLE) && is(s, v->in[1], VARIABLE) &&
	           known(s, F_chain)) {
		hand_chain(p, r, v);
	} else {
		Inferred part = p->of[r];
		if (v->op == O_slice)
			keep_piece(p, r, v);
		part.eta = view ? part.eta : surd_one;
		if (!view)
			part.question =
			    format(s->arena, "its '%s' is what is used: 1?", prims[v->op].name);
		for (int k = 0; k < v->nin; k++)
			give(p, v->in[k], part);
	}
}
