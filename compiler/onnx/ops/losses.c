// losses.c: the ONNX operators that are losses.
// Takes the node being lowered. Gives the loss and the log probabilities. Keeps: the label's entry
// is picked by comparison, so that gradients stay element-wise.
#include "ops.h"
#include <string.h>

// Labels, [N, ..], as an axis of 1 in class position: [N, 1, ..]
static Ref class_axis(Graph *g, Ref labels)
{
	Shape s = val(g, labels)->shape, out = {.rank = s.rank + 1};
	for (int a = 0; a < out.rank; a++)
		out.dim[a] = a == 1 ? 1 : s.dim[a - (a > 1)];
	return put_reshape(g, labels, out);
}

static Ref drop_class(Graph *g, Ref x)
{
	return drop_axes(g, x, 1, (int64_t[]){1});
}

static Ref sum_all(Graph *g, Ref x)
{
	return put_reshape(g, book_call1(g, "total", 1, &x, 0, NULL), (Shape){0});
}

// Labels are below the number of classes, or the one value that does not count.
static void limit_labels(Call *c, Ref labels, int64_t classes, bool ignores, int64_t ignore)
{
	Graph *g = c->g;
	const Val *v = val(g, labels);
	while (v->op == O_cast || v->op == O_reshape || v->op == O_permute)
		v = val(g, v->in[0]);
	if (v->op != O_slot || c->r->nest || g->slots.at[v->attr->i[0]].kind != S_input) {
		check_indices(c, put_cast(g, labels, E_i64), 0, classes - 1,
		              ignores ? &ignore : NULL);
		return;
	}
	Slot *slot = &g->slots.at[v->attr->i[0]];
	if (!slot->limit)
		slot->ignore = ignores ? ignore : 0;
	slot->limit = slot->limit ? MIN(slot->limit, classes) : classes;
}

// What each sample counts: its label's weight, 1 without weights, 0 where its label does not count.
static Ref sample_weights(Call *c, Ref labels, Ref hit, bool ignores, int64_t ignore)
{
	Graph *g = c->g;
	Ref weight = c->nin > 2 ? c->in[2] : 0, one = put_num(g, E_f32, 1),
	    zero = put_num(g, E_f32, 0);
	Ref each = 0;
	if (weight) {
		int64_t axis = 1, dims[RANK] = {1, val(g, weight)->shape.dim[0]};
		Shape at = val(g, hit)->shape;
		for (int a = 2; a < at.rank; a++)
			dims[a] = 1;
		Ref row = put_reshape(g, weight, shape_of(at.rank, dims));
		each = put_reduce(g, O_sum, put3(g, O_select, hit, row, zero), 1, &axis);
	}
	if (ignores) {
		Ref out = put2(g, O_eq, labels, put_num(g, E_i64, (double)ignore));
		each = put3(g, O_select, out, zero, each ? each : one);
	}
	return each;
}

static void reduce_loss(Call *c, Ref loss, Ref weight)
{
	Graph *g = c->g;
	const char *reduction = attr_string(c, "reduction", "mean");
	if (weight)
		loss = put2(g, O_mul, loss, weight);
	if (!strcmp(reduction, "none")) {
		c->out[0] = drop_class(g, loss);
		return;
	}
	Ref sum = sum_all(g, loss), one = put_i64(g, 1);
	c->out[0] = sum;
	if (strcmp(reduction, "mean"))
		return;
	Ref count = put2(g, O_max, put_size(g, loss, val(g, loss)->shape.rank, NULL), one);
	c->out[0] = put2(g, O_div, sum, weight ? sum_all(g, weight) : put_cast(g, count, E_f32));
}

// Labels that are probabilities: -sum(p log q) (what exporters write for targets of that kind).
static void soft_labels(Call *c, Ref logp)
{
	Graph *g = c->g;
	int64_t axis = 1;
	note(c->r, "%s has labels that are probabilities", node_where(c->r->arena, c->node));
	Ref loss = put_reduce(g, O_sum, put2(g, O_mul, c->in[1], logp), 1, &axis);
	reduce_loss(c, put1(g, O_neg, loss), 0);
}

// Is there a label that does not count? By an attribute, or by operand 3 in training graphs.
static bool ignored_label(Call *c, int64_t *label)
{
	int n = 0;
	const AttributeProto *a = find_attr(c, "ignore_index");
	const int64_t *given = operand_ints(c, 3, &n);
	*label = a ? a->i : given && n ? *given : 0;
	return a || (given && n);
}

static void label_loss(Call *c, Ref x, Ref logsum)
{
	Graph *g = c->g;
	int64_t ignore;
	bool ignores = ignored_label(c, &ignore);
	Ref labels = class_axis(g, put_cast(g, c->in[1], E_i64));
	Shape s = val(g, x)->shape;
	limit_labels(c, c->in[1], s.dim[1], ignores, ignore);
	Ref hit = put2(g, O_eq, put_iota(g, s, 1), labels);
	int64_t axis = 1;
	Ref picked =
	    put_reduce(g, O_sum, put3(g, O_select, hit, x, put_num(g, E_f32, 0)), 1, &axis);
	Ref loss = logsum ? put2(g, O_sub, logsum, picked) : put1(g, O_neg, picked);
	Ref weight = sample_weights(c, labels, hit, ignores, ignore);
	reduce_loss(c, loss, weight);
}

void lower_cross_entropy(Call *c)
{
	Graph *g = c->g;
	Shape s = in_val(c, 0)->shape;
	bool soft = is_float(in_val(c, 1)->type);
	if (s.rank < 2)
		invalid_node(c, "wants [samples, classes, ..]");
	double smoothing = traced_smoothing(c->node);
	if (smoothing > 0)
		note(c->r, "%s: label smoothing of %g did not reach the file; give it with --loss",
		     node_where(c->r->arena, c->node), smoothing);
	Ref logsum = put(g, O_lse, 1, c->in, &(Attr){.n = 1, .i = {1}});
	Ref logp = put2(g, O_sub, c->in[0], logsum);
	if (soft)
		soft_labels(c, logp);
	else
		label_loss(c, c->in[0], logsum);
	if (c->nout > 1)
		c->out[1] = logp;
}

void lower_nll(Call *c)
{
	if (in_val(c, 0)->shape.rank < 2)
		invalid_node(c, "wants [samples, classes, ..]");
	in_val(c, 1);
	label_loss(c, c->in[0], 0);
}
