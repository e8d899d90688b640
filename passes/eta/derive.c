// derive.c: passes eta on to parameters of a variable.
// Input: what is inferred for a variable (infer.c). Output: the same for its operands: factors,
// summands, products of tables and kernels, functions of a parameter. Invariant: if several
// parameters could have the scale, one gets it, and a question reports it.
#include "analysis.h"
#include <stdlib.h>
#include <string.h>

void assign(Inference *p, Ref r, Inferred inferred)
{
	const ScaleAnalysis *s = p->s;
	Inferred *earlier = &p->of[r];
	if (!is(s, r, VARIABLE))
		return;
	if (!earlier->role || (earlier->indirect && !inferred.indirect))
		*earlier = inferred;
	else if (inferred.indirect && !earlier->indirect)
		return;
	else if (!surd_same(earlier->eta, inferred.eta) && !earlier->question)
		earlier->question =
		    format(s->arena, "another use at %s implies the scale %s: which use decides?",
		           label_of(s, inferred.at),
		           surd_text(s->arena, inferred.eta, inferred.contracted));
}

// ---- products -------------------------------------------------------------------------

enum { STEPS = 64 }; // limit of the values that make up a product

typedef struct Factor {
	Ref x;
	bool below; // divides
	AxisMap *map;
} Factor;

typedef struct Product {
	int n, steps;
	Factor at[STEPS];
	Surd gain; // product of the constants and of the factors of known range
} Product;

// Collects the factors of a variable, through products, quotients and views. False if there are too
// many.
static bool collect(ScaleAnalysis *s, Ref r, bool below, AxisMap *map, Product *p)
{
	const Val *v = val(s->g, r);
	if (p->steps++ == STEPS)
		return false;
	bool number = is(s, r, AUX);
	if (!number && (is_view(v) || v->op == O_neg))
		return collect(s, v->in[0], below, axis_map_under(s, map, v, 0), p);
	if (!number && (v->op == O_mul || v->op == O_div))
		return collect(s, v->in[0], below, axis_map_under(s, map, v, 0), p) &&
		       collect(s, v->in[1], below != (v->op == O_div), axis_map_under(s, map, v, 1),
		               p);
	if (number)
		p->gain = surd_mul(p->gain, below ? surd_inverse(rms_of(s, r)) : rms_of(s, r));
	else
		p->at[p->n++] = (Factor){r, below, map};
	return true;
}

static void drop(Product *p, int k)
{
	p->at[k] = p->at[--p->n];
}

// Finds x / |x|, or a normalized x, of which only the direction matters. Removes x and its length
// from the product and returns x; {0} if there is none.
static Factor take_direction(ScaleAnalysis *s, Product *product)
{
	for (int i = 0; i < product->n && known(s, F_direction); i++) {
		Ref length = product->at[i].x;
		const Val *v = val(s->g, length);
		if (v->op == O_norm) {
			drop(product, i);
			return (Factor){.x = v->in[0]};
		}
		Ref square = length_of(s, length).square;
		Ref x = square ? s->origin[val(s->g, square)->in[0]].views : 0;
		for (int k = 0; k < product->n && x; k++) {
			Factor factor = product->at[k];
			if (factor.x != x || factor.below)
				continue;
			int64_t n =
			    count_of(&val(s->g, square)->shape) / MAX(count_of(&v->shape), 1);
			product->gain = surd_div(product->gain, surd_root(n, 1));
			drop(product, MAX(i, k));
			drop(product, MIN(i, k));
			return factor;
		}
	}
	return (Factor){0};
}

// For LayerNorm over a table: its factor is a normalization's, and the table may have any scale.
static void propagate_norm(Inference *p, Ref table, const Product *product, Inferred passed)
{
	ScaleAnalysis *s = p->s;
	passed.demand_by = passed.source = 0;
	passed.output_slices = NULL;
	passed.contracted = 0;
	passed.question = NULL;
	passed.eta = passed.range = passed.demand = constant(s, N_normalized);
	assign(p, table, passed);
	passed.role = "norm_scale";
	passed.rows = false;
	passed.eta = constant(s, N_norm_scale);
	for (int k = 0; k < product->n; k++)
		if (val(s->g, product->at[k].x)->op != O_norm)
			assign(p, product->at[k].x, passed);
}

// False if it has too many factors.
static bool propagate_product(Inference *p, Ref r, const Inferred *inferred)
{
	Product product = {.gain = surd_one};
	bool directed = false;
	if (!collect(p->s, r, false, inferred->map, &product))
		return false;
	Ref table = inferred->rows ? normed_table(p->s, r) : 0;
	if (table) {
		propagate_norm(p, table, &product, *inferred);
		return true;
	}
	for (int k = product.n - 1; k >= 0; k--)
		if (p->s->fixed[product.at[k].x])
			drop(&product, k);
	for (Factor x; (x = take_direction(p->s, &product)).x != 0; directed = true) {
		Inferred free = *inferred;
		free.map = x.map;
		free.eta = surd_one;
		free.question = "only its direction matters: scale 1?";
		assign(p, x.x, free);
	}
	for (int k = 0; k < product.n; k++) {
		Inferred passed = *inferred;
		Surd own = surd_div(inferred->eta, product.gain);
		passed.map = product.at[k].map;
		passed.eta = k ? surd_one : product.at[k].below ? surd_inverse(own) : own;
		passed.role = directed ? "scale" : inferred->role;
		passed.contracted = directed ? 0 : inferred->contracted;
		if (directed)
			passed.question = "the length of a normalized kernel: is it that of a row "
			                  "with the kernel's scale?";
		else if (product.n > 1)
			passed.question =
			    "one of several factors of a parameter: which has the scale?";
		assign(p, product.at[k].x, passed);
	}
	return true;
}

// ---- kernels and sums -----------------------------------------------------------------

// Returns what is known of kernel k of a product, used as a parameter, from the result.
static Inferred kernel_of(Inference *p, Ref r, const Val *dot, int k)
{
	Inferred kernel = p->of[r];
	kernel.output_slices = NULL;
	kernel.indirect = true;
	kernel.role = "kernel";
	kernel.rows = false;
	kernel.at = r;
	kernel.operand = dot->in[k];
	kernel.map = axis_map_new(p->s, dot->in[k]);
	kernel.contracted = contracted(p->s, r);
	return kernel;
}

// For a table times a kernel, or two kernels in place of one: the first gets the eta of the result,
// the second a gain of 1. If the table is normalized, the kernel gets it.
static void propagate_chain(Inference *p, Ref r, const Val *v)
{
	const ScaleAnalysis *s = p->s;
	Inferred first = p->of[r], kernel = kernel_of(p, r, v, 1);
	first.output_slices = NULL;
	first.indirect = true;
	first.map = NULL;
	kernel.eta = surd_root(1, kernel.contracted);
	if (first.rows && normed_table(s, v->in[0])) {
		kernel.demand = first.eta;
		kernel.demand_by = first.demand_by ? first.demand_by : first.source;
		kernel.range = constant(s, N_normalized);
		kernel.source = v->in[0];
		kernel.eta = surd_mul(kernel.eta, first.eta);
	}
	kernel.question = NULL;
	if (!strcmp(first.role, "kernel"))
		first.question = kernel.question =
		    "a product of two parameters: which has the scale?";
	assign(p, v->in[0], first);
	assign(p, v->in[1], kernel);
}

// A constant, such as positions, times a kernel is used as a parameter. The kernel gets the eta of
// the result per unit of the constant, as if that were data.
static void propagate_positions(Inference *p, Ref r, const Val *v)
{
	ScaleAnalysis *s = p->s;
	int k = is(s, v->in[1], VARIABLE);
	Inferred kernel = kernel_of(p, r, v, k);
	kernel.range = rms_of(s, v->in[1 - k]);
	kernel.source = v->in[1 - k];
	kernel.demand = kernel.eta;
	kernel.eta = surd_div(kernel.eta, surd_mul(kernel.range, surd_root(kernel.contracted, 1)));
	assign(p, v->in[k], kernel);
}

// True for a kernel times a constant that neither selects nor averages.
static bool weighs_positions(ScaleAnalysis *s, const Val *v)
{
	if (v->op != O_dot || !known(s, F_positions))
		return false;
	int k = is(s, v->in[0], VARIABLE); // the constant
	return is_float_const(s, v->in[k]) && !averages(s, v, k) && !is_zero(s, v->in[k]);
}

static void propagate_sum(Inference *p, Ref r, const Val *v)
{
	ScaleAnalysis *s = p->s;
	for (int k = 0; k < 2; k++) {
		Ref x = s->origin[v->in[k]].views, other = s->origin[v->in[1 - k]].views;
		Inferred passed = p->of[r];
		passed.map = axis_map_under(s, passed.map, v, k);
		bool norm = passed.rows && normed_table(s, v->in[1 - k]);
		// b of t W + b, t a table
		bool bias = norm || (passed.rows && val(s->g, other)->op == O_dot &&
		                     val(s->g, x)->op == O_slot);
		// g of 1 + g, but not a bias that is added to a constant
		bool gain = val(s->g, other)->op == O_const && !is_zero(s, other) &&
		            strcmp(passed.role, "bias") != 0;
		if (norm)
			passed.eta = constant(s, N_norm_bias);
		else if (bias || gain)
			passed.eta = surd_mul(passed.eta, constant(s, N_offset));
		if (bias) {
			passed.role = norm ? "norm_bias" : "bias";
			passed.rows = false;
			passed.indirect = true;
			passed.contracted = 0;
			passed.question = NULL;
		}
		assign(p, v->in[k], passed);
	}
}

// ---- slices of a parameter ------------------------------------------------------------

static int earlier_first(const void *a, const void *b)
{
	const ParamSlice *one = a, *other = b;
	return (one->start > other->start) - (one->start < other->start);
}

ParamSlices *param_slices_of(const Inference *p, int slot)
{
	ParamSlices *slices = p->param_slices[slot];
	if (!slices || slices->axis < 0)
		return NULL;
	int64_t end = 0;
	qsort(slices->list.at, (size_t)slices->list.count, sizeof *slices->list.at, earlier_first);
	for (int k = 0; k < slices->list.count; k++) {
		const ParamSlice *slice = &slices->list.at[k];
		if (slice->start != end)
			return NULL;
		end += slice->count;
		slices->differ |= !surd_same(slice->inferred.eta, slices->list.at[0].inferred.eta);
	}
	return end == p->s->g->slots.at[slot].shape.dim[slices->axis] ? slices : NULL;
}

// True if the result has the scale of the operands.
static bool keeps_scale(const ScaleAnalysis *s, const Val *v)
{
	if (v->op == O_dot)
		return averages(s, v, is(s, v->in[0], VARIABLE));
	return prims[v->op].cls == C_move || v->op == O_cast || v->op == O_gather ||
	       v->op == O_neg || v->op == O_select;
}

void propagate(Inference *p, Ref r, const Val *v)
{
	ScaleAnalysis *s = p->s;
	if ((v->op == O_mul || v->op == O_div) && propagate_product(p, r, &p->of[r]))
		return;
	if (v->op == O_add || v->op == O_sub) {
		propagate_sum(p, r, v);
		return;
	}
	if (v->op == O_dot && is(s, v->in[0], VARIABLE) && is(s, v->in[1], VARIABLE) &&
	    known(s, F_chain)) {
		propagate_chain(p, r, v);
		return;
	}
	if (weighs_positions(s, v)) {
		propagate_positions(p, r, v);
		return;
	}
	const Val *full = val(s->g, v->in[0]);
	int axis = v->op == O_slice && full->op == O_slot && known(s, F_param_slices)
	               ? sliced_axis(v, &full->shape)
	               : -1;
	if (axis >= 0) { // a slice of a parameter
		ParamSlices **slices = &p->param_slices[full->attr->i[0]];
		if (!*slices) {
			*slices = NEW(s->arena, ParamSlices);
			(*slices)->axis = axis;
		}
		ParamSlice slice = {slice_axes(v->attr)[axis].start, v->shape.dim[axis], p->of[r]};
		PUSH(s->arena, (*slices)->list, slice);
		if ((*slices)->axis != axis)
			(*slices)->axis = -1;
	}
	Inferred passed = p->of[r];
	if (!keeps_scale(s, v)) {
		passed.eta = surd_one;
		passed.question =
		    format(s->arena, "used only through '%s': scale 1?", prims[v->op].name);
	}
	for (int k = 0; k < v->nin; k++) {
		passed.map = axis_map_under(s, p->of[r].map, v, k);
		assign(p, v->in[k], passed);
	}
}
