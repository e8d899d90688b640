// fused.c: operators of com.microsoft that are one of ONNX's with something before or behind it, as
// optimizers and ONNX Runtime's training graphs have them. Takes the node being lowered. Gives its
// results. Keeps: they are put as what they stand for. Source: docs/ContribOperators.md and
// orttraining/orttraining/core/graph/training_op_defs.cc of ONNX Runtime.
#include "ops.h"
#include <math.h>
#include <string.h>

Ref lower_as(const Call *c, Lower *lower, int variant, int nin, const Ref *in)
{
	Call other = *c;
	other.in = take_copy(c->r->arena, in, sizeof *in * (size_t)(nin + 1));
	other.out = NEWS(c->r->arena, Ref, c->nout + 1);
	other.nin = nin;
	other.variant = variant;
	lower(&other);
	return other.out[0];
}

Ref lower_named(const Call *c, const char *name, int nin, const Ref *in)
{
	enum { SET = 13 }; // whose attributes those of com.microsoft have
	const OpRow *row = find_row("", name);
	NodeProto node = *c->node;
	Call other = *c;
	if (!row)
		bug("%s is no operator of ONNX", name);
	node.op_type = (char *)name;
	node.domain = "";
	other.node = &node;
	other.opset = attr_int(c, "opset", SET);
	return lower_as(&other, row->lower, row->variant, nin, in);
}

Ref channels_first(const Call *c, Ref x)
{
	int last = val(c->g, x)->shape.rank - 1;
	if (last < 2)
		invalid_node(c, "wants an image");
	return move_axis(c->g, x, last, 1);
}

Ref channels_last(Graph *g, Ref x)
{
	return move_axis(g, x, 1, val(g, x)->shape.rank - 1);
}

Ref add_given(Graph *g, Ref a, Ref b)
{
	return a && b ? put_map2(g, O_add, a, b) : a ? a : b;
}

// ---- an activation behind -------------------------------------------------------------

// By the name and numbers that the node gives.
static Ref activated(const Call *c, Ref x, int n, const double *number)
{
	const char *name = attr_string(c, "activation", "");
	const OpRow *row = find_row("", name);
	AttrArg given[MOST_NUMBERS];
	int count = numbers_of(name, given);
	if (!*name)
		return x;
	if (!strcmp(name, "Clip") && n == 2) {
		Ref in[] = {x, num_like(c->g, x, number[0]), num_like(c->g, x, number[1])};
		return book_call1(c->g, "clip", 3, in, 0, NULL);
	}
	if (row && row->lower == lower_act)
		return lower_as(c, lower_act, row->variant, 1, (Ref[]){x, 0});
	if (!row || !count || n > count)
		unsupported_node(c, "export before it is fused", "activation %s", name);
	for (int i = 0; i < n; i++)
		given[i].x = number[i];
	return book_call1(c->g, name, 1, &x, count, given);
}

// Operands: x, kernel, bias, and what is added before the activation. How: are channels last?
void lower_fused_conv(Call *c)
{
	enum { MOST = 4 };
	Graph *g = c->g;
	double number[MOST];
	const AttributeProto *a = find_attr(c, "activation_params");
	int n = a ? (int)MIN(a->n_floats, (size_t)MOST) : 0;
	for (int i = 0; i < n; i++)
		number[i] = (double)a->floats[i];
	in_val(c, 0), in_val(c, 1);
	Ref in[] = {c->variant ? channels_first(c, c->in[0]) : c->in[0], c->in[1], operand(c, 2),
	            0};
	Ref y = lower_as(c, lower_conv, 0, in[2] ? 3 : 2, in);
	y = c->variant ? channels_last(g, y) : y;
	c->out[0] = activated(c, add_given(g, y, operand(c, 3)), n, number);
}

// A largest of each window, of an image whose channels are last.
void lower_max_pool_last(Call *c)
{
	in_val(c, 0);
	Ref x = channels_first(c, c->in[0]);
	c->out[0] = channels_last(c->g, lower_named(c, "MaxPool", 1, (Ref[]){x, 0}));
}

static void then_activated(Call *c, Lower *product)
{
	static const char *const names[] = {"activation_alpha", "activation_beta",
	                                    "activation_gamma"};
	double number[COUNT(names)];
	int n = 0;
	while (n < COUNT(names) && find_attr(c, names[n])) {
		number[n] = attr_float(c, names[n], 0);
		n++;
	}
	product(c);
	c->out[0] = activated(c, c->out[0], n, number);
}

void lower_fused_gemm(Call *c)
{
	then_activated(c, lower_gemm);
}

void lower_fused_matmul_activation(Call *c)
{
	then_activated(c, lower_fused_matmul);
}

// Operands: x, weights, bias.
void lower_gemm_gelu(Call *c)
{
	in_val(c, 0), in_val(c, 1);
	Ref in[] = {matmul(c->g, c->in[0], c->in[1]), operand(c, 2), 0};
	c->out[0] = lower_as(c, lower_fast_gelu, A_gelu_tanh, 2, in);
}

// ---- a sum before ---------------------------------------------------------------------

// Operands: data, bias. All axes from `axis` on are one.
void lower_bias_softmax(Call *c)
{
	Graph *g = c->g;
	Shape s = in_val(c, 0)->shape;
	in_val(c, 1);
	int64_t axis = axis_of(c, attr_int(c, "axis", 1), s.rank);
	Ref x = put_map2(g, O_add, c->in[0], c->in[1]);
	if (!same_shape(&val(g, x)->shape, &s))
		invalid_node(c, "a bias %s for %s",
		             shape_text(c->r->arena, E_f32, &val(g, c->in[1])->shape),
		             shape_text(c->r->arena, E_f32, &s));
	x = merge_axes(g, x, (int)axis, s.rank);
	x = put(g, O_softmax, 1, &x, &(Attr){.n = 1, .i = {axis}});
	c->out[0] = put_reshape(g, x, s);
}

// How: the operand that is the rate. Behind data, with the rate at 3: bias, and what is added
// behind. The bits of a mask are for a gradient alone.
void lower_bias_dropout(Call *c)
{
	bool sums = c->variant == 3;
	Call drop = *c;
	Ref sum = add_given(c->g, (in_val(c, 0), c->in[0]), sums ? operand(c, 1) : 0);
	drop.in = (Ref[]){sum, operand(c, c->variant)};
	drop.arg = (Value[]){{.ref = sum},
	                     c->variant < c->nin ? c->arg[c->variant] : (Value){.absent = 1}};
	drop.nin = 2;
	drop.nout = starts_with(c->node->op_type, "Bitmask") ? 1 : c->nout;
	drop.opset = 13;
	lower_dropout(&drop);
	c->out[0] = add_given(c->g, c->out[0], sums ? operand(c, 2) : 0);
}

// Norms of groups of channels, which stand last unless the node says no. Operands: x, gamma, beta,
// and before it: skip ([n, c] or x's shape), bias. Result 1: the sum.
void lower_group_norm_last(Call *c)
{
	Graph *g = c->g;
	bool last = attr_int(c, "channels_last", 1);
	int end = in_val(c, 0)->shape.rank - 1;
	int64_t groups = attr_int(c, "groups", 0);
	Ref skip = operand(c, 3), x = last ? c->in[0] : move_axis(g, c->in[0], 1, end);
	Shape s = val(g, x)->shape;
	in_val(c, 1), in_val(c, 2);
	if (end < 2 || groups < 1 || s.dim[end] % groups)
		invalid_node(c, "the channels do not divide into %lld groups", (long long)groups);
	if (skip && val(g, skip)->shape.rank == 2)
		skip = put_reshape(g, skip, shape_of(4, (int64_t[]){s.dim[0], 1, 1, s.dim[end]}));
	x = add_given(g, add_given(g, x, skip), operand(c, 4));
	if (c->nout > 1)
		c->out[1] = last ? x : move_axis(g, x, end, 1);
	int64_t size = s.dim[end] / groups,
	        dims[] = {s.dim[0], count_of(&s) / MAX(s.dim[0] * s.dim[end], 1), groups, size};
	Attr attr = {.n = 3, .i = {1, 1, 3}, .x = attr_float(c, "epsilon", 1e-5)};
	Ref y = put_reshape(g, x, shape_of(4, dims));
	y = put_reshape(g, put(g, O_norm, 1, &y, &attr), s);
	y = put_map2(g, O_add, put_map2(g, O_mul, y, c->in[1]), c->in[2]);
	if (attr_int(c, "activation", 0))
		y = put(g, O_act, 1, &y, &(Attr){.n = 1, .i = {A_silu}});
	c->out[0] = last ? y : move_axis(g, y, end, 1);
}

// ---- training graphs ------------------------------------------------------------------

void lower_scaled_sum(Call *c)
{
	static const char *const names[] = {"scale_0", "scale_1", "scale_2"};
	for (int k = 0; k < c->nin && k < COUNT(names); k++)
		c->out[0] =
		    add_given(c->g, c->out[0],
		              scaled(c->g, (in_val(c, k), c->in[k]), attr_float(c, names[k], 1)));
}

// Result 1: how many entries of the axis each operand has.
void lower_concat_sizes(Call *c)
{
	int axis = (int)axis_of(c, attr_int(c, "axis", 0), in_val(c, 0)->shape.rank);
	int64_t *sizes = NEWS(c->r->arena, int64_t, c->nin);
	lower_concat(c);
	for (int k = 0; k < c->nin; k++)
		sizes[k] = in_val(c, k)->shape.dim[axis];
	if (c->nout > 1)
		c->out[1] = put_ints(c->g, c->nin, sizes);
}

// ---- biases of relative positions -----------------------------------------------------

// T5's: near distances have a bucket each, far ones share buckets that grow by a constant factor.
static int64_t bucket_of(int64_t distance, int64_t buckets, int64_t farthest, bool both)
{
	int64_t base = 0, d = -distance;
	if (both) {
		buckets /= 2;
		base = d < 0 ? buckets : 0;
		d = d < 0 ? -d : d;
	}
	d = MAX(d, 0);
	int64_t near = buckets / 2;
	if (d < near || near < 1 || farthest <= near)
		return base + MIN(d, buckets - 1);
	double far = log((double)d / (double)near) / log((double)farthest / (double)near);
	return base + MIN(near + (int64_t)(far * (double)(buckets - near)), buckets - 1);
}

// Operands: the table [buckets, heads], the number of queries, that of keys. [1, heads, queries,
// keys]
void lower_relative_bias(Call *c)
{
	enum { LONGEST = 1 << 14 };
	Graph *g = c->g;
	Shape s = in_val(c, 0)->shape;
	int n[2] = {0};
	const int64_t *queries = operand_ints(c, 1, &n[0]), *keys = operand_ints(c, 2, &n[1]);
	if (s.rank != 2 || n[0] != 1 || n[1] != 1 || s.dim[0] < 2)
		invalid_node(c, "wants a table [buckets, heads], and two lengths");
	if (*queries < 1 || *keys < 1 || *queries > LONGEST || *keys > LONGEST)
		invalid_node(c, "%lld queries and %lld keys; 1 to %d are supported",
		             (long long)*queries, (long long)*keys, LONGEST);
	int64_t farthest = attr_int(c, "max_distance", 128), dims[] = {*queries, *keys};
	int64_t *bucket = NEWS(c->r->arena, int64_t, *queries * *keys);
	for (int64_t q = 0; q < *queries; q++)
		for (int64_t k = 0; k < *keys; k++)
			bucket[q * *keys + k] = bucket_of(k - q, s.dim[0], farthest,
			                                  attr_int(c, "is_bidirectional", 0));
	Ref rows = put_gather(g, c->in[0], put_const(g, E_i64, shape_of(2, dims), bucket), 0);
	c->out[0] = insert_axis(g, move_axis(g, rows, 2, 0), 0);
}
