// compose.c: a variable's share handed down to the parameters that it is computed from.
// Takes the share of a variable (share.c). Gives shares to its operands: factors, summands, tables
// through kernels, functions of a parameter. Keeps: where several parameters could bear a scale,
// one does, and a question says so.
#include "scale.h"
#include <string.h>

static const Surd one = {1, true, 1, 1};

enum { LEAVES = 16 }; // factors that are looked at

typedef struct Factor {
	Ref x;
	bool below; // divides
} Factor;
typedef struct Product {
	int n;
	Factor at[LEAVES];
	Surd gain; // of the numbers and of the factors whose range is known
} Product;

// The factors of a variable, through products, quotients and views.
static void collect(Sweep *s, Ref r, bool below, Product *p)
{
	const Val *v = val(s->g, r);
	if (is_view(v) || v->op == O_neg) {
		collect(s, v->in[0], below, p);
	} else if (v->op == O_mul || v->op == O_div) {
		collect(s, v->in[0], below, p);
		collect(s, v->in[1], v->op == O_div ? !below : below, p);
	} else if (is(s, r, AUX)) {
		Surd rms = rms_of(s, r);
		p->gain = below ? surd_div(p->gain, rms) : surd_mul(p->gain, rms);
	} else if (p->n < LEAVES) {
		p->at[p->n++] = (Factor){r, below};
	}
}

// x / |x|: only the direction of x counts. Takes both factors out.
static void take_directions(Shares *p, Product *product, const Share *share)
{
	Sweep *s = p->s;
	for (int i = 0; i < product->n; i++) {
		Ref length = product->at[i].x, square = squared_under(s, length);
		Ref x = square ? unviewed(s, val(s->g, square)->in[0]) : 0;
		for (int k = 0; k < product->n && x; k++) {
			if (product->at[k].x != x || product->at[k].below)
				continue;
			Share free = *share;
			free.eta = one;
			free.question = "only its direction counts, its scale does not: 1?";
			give(p, x, free);
			product->gain = surd_div(product->gain,
			                         surd_root(count_of(&val(s->g, square)->shape) /
			                                       count_of(&val(s->g, length)->shape),
			                                   1));
			product->at[MAX(i, k)] = product->at[--product->n];
			product->at[MIN(i, k)] = product->at[--product->n];
			i = -1;
			break;
		}
	}
}

static void hand_product(Shares *p, Ref r, const Share *share)
{
	Sweep *s = p->s;
	Product product = {.gain = one};
	int learned = 0;
	collect(s, r, false, &product);
	for (int k = product.n - 1; k >= 0; k--)
		if (s->fixed[product.at[k].x])
			product.at[k] = product.at[--product.n];
	int before = product.n;
	take_directions(p, &product, share);
	for (int k = 0; k < product.n; k++) {
		Share part = *share;
		part.eta = learned++ ? one : surd_div(share->eta, product.gain);
		if (before != product.n) {
			part.role = "scale";
			part.question =
			    "the length of a normalized kernel: its rows' at their scale?";
		} else if (product.n > 1) {
			part.question =
			    "one of several factors of a parameter: which bears the scale?";
		}
		give(p, product.at[k].x, part);
	}
}

// A table through a kernel: the table gets the result's scale and the kernel a gain of 1. Or two
// kernels in place of one: the first keeps the scale of a kernel in that place, and the second
// makes up for it. What signals meet too keeps what they say.
static void hand_chain(Shares *p, Ref r, const Val *v)
{
	Sweep *s = p->s;
	const Share *share = &p->of[r];
	int slot = view_slot(s, v->in[1]);
	bool low_rank = !strcmp(share->role, "kernel");
	Share table = *share, kernel = *share;
	table.cuts = kernel.cuts = NULL;
	kernel.role = "kernel";
	kernel.rows = false;
	kernel.at = r;
	kernel.operand = v->in[1];
	kernel.contracted = contracted(s, r);
	kernel.eta = surd_root(1, kernel.contracted);
	kernel.question = NULL;
	if (low_rank) {
		kernel.eta = surd_mul(kernel.eta, surd_div(share->eta, table.eta));
		table.question = kernel.question =
		    "a product of two parameters: which bears the scale?";
	}
	give(p, v->in[0], table);
	if (slot < 0 || !p->met[slot])
		give(p, v->in[1], kernel);
}

// 1 + g: g is an offset of the number. t W + b: b is an offset of the product.
static bool is_offset(Sweep *s, Ref x, Ref other)
{
	const Val *v = val(s->g, unviewed(s, other));
	bool number = v->op == O_const && !is_zero(s, unviewed(s, other));
	bool bias = v->op == O_dot && val(s->g, unviewed(s, x))->op == O_slot;
	return number || bias;
}

static void hand_sum(Shares *p, Ref r, const Val *v)
{
	Sweep *s = p->s;
	for (int k = 0; k < 2; k++) {
		Share part = p->of[r];
		int slot = is(s, v->in[k], VARIABLE) ? view_slot(s, v->in[k]) : -1;
		bool offset = is_offset(s, v->in[k], v->in[1 - k]);
		bool bias = offset && is(s, v->in[1 - k], VARIABLE);
		if (offset)
			part.eta = surd_mul(part.eta, surd_near(0.5));
		if (bias) {
			part.role = "bias";
			part.rows = false;
			part.contracted = 0;
		}
		if (!bias || slot < 0 || !p->met[slot])
			give(p, v->in[k], part);
	}
}

// A variable's share handed to what it is made of.
void hand_down(Shares *p, Ref r, const Val *v)
{
	Sweep *s = p->s;
	bool view = prims[v->op].cls == C_move || v->op == O_cast || v->op == O_gather ||
	            v->op == O_neg || v->op == O_select;
	if (v->op == O_mul || v->op == O_div) {
		hand_product(p, r, &p->of[r]);
	} else if (v->op == O_add || v->op == O_sub) {
		hand_sum(p, r, v);
	} else if (v->op == O_dot && is(s, v->in[0], VARIABLE) && is(s, v->in[1], VARIABLE)) {
		hand_chain(p, r, v);
	} else {
		Share part = p->of[r];
		part.eta = view ? part.eta : one;
		if (!view)
			part.question =
			    format(s->arena, "its '%s' is what is used: 1?", prims[v->op].name);
		for (int k = 0; k < v->nin; k++)
			give(p, v->in[k], part);
	}
}
