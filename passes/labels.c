// labels.c: counts the labels of a loss, and finds their weights.
// Follows sums and factors backward from the loss to the values that are added up; if a softmax
// computes these, each of its rows is a label.
#include "passes.h"
#include <math.h>

typedef struct Fact { // about the operands of a value
	bool trained; // it depends on parameters
	double rows;  // of the softmaxes since the model's last product; INFINITY: none
	double part;  // fraction of elements of the integer inputs that are labels
} Fact;

typedef struct Share { // contribution of a value to the loss
	bool added;
	double weight; // per element
	bool spread;   // the divisor is data-dependent: elements share `total` evenly
	double total;
} Share;

static Fact fact_of(const Graph *g, const Val *v, const Fact *facts, LabelPart *part, void *data)
{
	Fact f = {.rows = INFINITY, .part = 1};
	Class cls = prims[v->op].cls;
	for (int k = 0; k < v->nin; k++) {
		const Fact *in = &facts[v->in[k]];
		f.trained |= in->trained;
		if (v->op == O_detach || (cls != C_dot && cls != C_composite && cls != C_loop)) {
			f.rows = MIN(f.rows, in->rows);
			f.part = MIN(f.part, in->part);
		}
	}
	if (v->op == O_softmax || v->op == O_lse) {
		Shape rows = reduced_shape(&val(g, v->in[0])->shape, v->attr->n, v->attr->i);
		f.rows = (double)count_of(&rows);
	}
	const Slot *s = v->op == O_slot ? &g->slots.at[v->attr->i[0]] : NULL;
	f.trained |= s && s->kind == S_param;
	if (s && s->kind == S_input && !is_float(s->type))
		f.part = part(data, s);
	return f;
}

// True if the value is a sum; its operands get their shares.
static bool is_sum(const Graph *g, const Fact *facts, Share *shares, Ref r)
{
	const Val *v = val(g, r);
	int trained = 0;
	Ref trained_operand = 0, other = 0;
	for (int k = 0; k < v->nin; k++)
		if (facts[v->in[k]].trained)
			trained_operand = v->in[k], trained++;
		else
			other = v->in[k];
	bool order = v->op == O_reshape || v->op == O_permute || v->op == O_cast ||
	             v->op == O_neg || v->op == O_sum;
	bool factor =
	    trained == 1 && (v->op == O_mul || (v->op == O_div && trained_operand == v->in[0]));
	double x, size = (double)count_of(&v->shape);
	bool map = prims[v->op].cls == C_map;
	if (!trained || !(order || factor || (map && size == 1)))
		return false;
	Share share = shares[r];
	if (factor && const_num(g, other, &x)) {
		x = v->op == O_div ? 1 / x : x;
		share.weight *= fabs(x);
		share.total *= fabs(x);
	} else if (factor && !share.spread && (v->op == O_div || size == 1)) {
		share.spread = true;
		share.total = share.weight * size;
	}
	for (int k = 0; k < v->nin; k++) {
		Share *to = &shares[v->in[k]];
		// Each element of a broadcast operand is added several times.
		double times = map ? size / (double)count_of(&val(g, v->in[k])->shape) : 1;
		if (facts[v->in[k]].trained)
			*to = (Share){true, to->weight + share.weight * times, share.spread,
			              to->total + share.total};
	}
	return true;
}

Labels count_labels(const Graph *g, LabelPart *part, void *data)
{
	Fact *facts = NEWS(g->arena, Fact, g->nval);
	for (Ref r = 1; r < (Ref)g->nval; r++)
		facts[r] = fact_of(g, val(g, r), facts, part, data);
	Share *shares = NEWS(g->arena, Share, g->nval);
	Ref loss = find_output(g, "loss");
	shares[loss] = (Share){.added = true, .weight = 1};
	double count = 0, square = 0;
	for (Ref r = loss; r; r--) {
		if (!shares[r].added || is_sum(g, facts, shares, r))
			continue;
		double size = (double)count_of(&val(g, r)->shape);
		double labels = MIN(size, facts[r].rows) * facts[r].part;
		double total = shares[r].spread ? shares[r].total : shares[r].weight * labels;
		count = MAX(count, labels);
		square += labels > 0 ? total * total / labels : 0;
	}
	return (Labels){.count = count, .weight = sqrt(square)};
}
