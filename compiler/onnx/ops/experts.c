// experts.c: mixtures of experts as com.microsoft has them: MoE, and QMoE with weights of few bits.
// Takes the node being lowered. Gives its result. Keeps: every expert computes every token, and
// those that the router did not choose count 0, so that gradients reach the chosen alone.
// Source: docs/ContribOperators.md of ONNX Runtime.
#include "quant.h"
#include <math.h>
#include <string.h>

typedef struct Layer { // of all experts; 0: not there
	Ref weight;    // [experts, out, in]
	Ref bias;      // [experts, out]
} Layer;

typedef struct Experts {
	Layer gate, last, other; // the gate may hold the other's columns too
	Ref share;               // [tokens, experts]: of the chosen ones; 0: as the router scores
} Experts;

// x: [tokens, in] or [experts, tokens, in]; [experts, tokens, out]
static Ref through(Call *c, Ref x, const Layer *l)
{
	Graph *g = c->g;
	if (!l->weight || val(g, l->weight)->shape.rank != 3)
		invalid_node(c, "wants weights [experts, out, in]");
	Ref y = matmul(g, x, swap_last(g, l->weight));
	return l->bias ? put2(g, O_add, y, insert_axis(g, l->bias, 1)) : y;
}

// The halves of columns that stand in turn, or one half behind the other.
static void halve(Call *c, Ref y, bool in_turn, Ref *half)
{
	Graph *g = c->g;
	Shape s = val(g, y)->shape;
	int64_t n = s.dim[2] / 2, dims[] = {s.dim[0], s.dim[1], in_turn ? n : 2, in_turn ? 2 : n};
	int axis = in_turn ? 3 : 2;
	if (s.dim[2] % 2)
		invalid_node(c, "%lld columns for two halves", (long long)s.dim[2]);
	Ref pairs = put_reshape(g, y, shape_of(4, dims));
	for (int i = 0; i < 2; i++)
		half[i] = drop_axes(g, take_range(g, pairs, axis, i, 1), 1, (int64_t[]){axis});
}

// What the last layer takes, [experts, tokens, inner].
static Ref hidden_of(Call *c, Ref x, const Experts *e)
{
	static const struct {
		const char *name;
		Act act; // ACTS: none
	} known[] = {{"relu", A_relu}, {"gelu", A_gelu_tanh}, {"silu", A_silu}, {"identity", ACTS}};
	Graph *g = c->g;
	const char *name = attr_string(c, "activation_type", "relu");
	Ref y[2] = {through(c, x, &e->gate), e->other.weight ? through(c, x, &e->other) : 0};
	if (!strcmp(name, "swiglu")) {
		AttrArg given[] = {{.name = "alpha", .x = attr_float(c, "activation_alpha", 1)},
		                   {.name = "beta", .x = attr_float(c, "activation_beta", 0)},
		                   {.name = "limit", .x = attr_float(c, "swiglu_limit", INFINITY)}};
		if (!y[1])
			halve(c, y[0], attr_int(c, "swiglu_fusion", 0) == 1, y);
		return book_call1(g, "gated", 2, y, COUNT(given), given);
	}
	int i = 0;
	while (i < COUNT(known) && strcmp(known[i].name, name))
		i++;
	if (i == COUNT(known))
		invalid_node(c, "activation '%s'", name);
	if (known[i].act < ACTS)
		y[0] = put(g, O_act, 1, y, &(Attr){.n = 1, .i = {known[i].act}});
	return y[1] ? put2(g, O_mul, y[0], y[1]) : y[0];
}

// How much each expert counts for each token: the `k` that score highest, others 0.
static Ref shares_of(Call *c, Ref scores, Ref share)
{
	Graph *g = c->g;
	int64_t last = 1;
	Ref place = place_in_order(g, scores, true), k = put_i64(g, attr_int(c, "k", 1));
	if (!share)
		share = put(g, O_softmax, 1, &scores, &(Attr){.n = 1, .i = {last}});
	share = put3(g, O_select, put2(g, O_lt, place, k), share, num_like(g, share, 0));
	return attr_int(c, "normalize_routing_weights", 0)
	           ? put2(g, O_div, share, put_reduce(g, O_sum, share, 1, &last))
	           : share;
}

// Operands: tokens [.., width], the router's scores [tokens, experts].
static void mix(Call *c, const Experts *e)
{
	Graph *g = c->g;
	Shape s = in_val(c, 0)->shape, scores = in_val(c, 1)->shape;
	int64_t width = s.rank ? s.dim[s.rank - 1] : 0, tokens = width ? count_of(&s) / width : 0;
	if (!tokens || scores.rank != 2 || scores.dim[0] != tokens)
		invalid_node(c, "wants tokens, and a row of scores for each");
	if (attr_int(c, "use_sparse_mixer", 0))
		unsupported_node(c, "export the mixture as it is written", "a sparse mixer");
	Ref x = put_reshape(g, c->in[0], shape_of(2, (int64_t[]){tokens, width}));
	Ref y = through(c, hidden_of(c, x, e), &e->last);
	Ref share = put_permute(g, shares_of(c, c->in[1], e->share), (int64_t[]){1, 0});
	y = reduce_away(g, O_sum, put2(g, O_mul, y, insert_axis(g, share, 2)), 0);
	c->out[0] = put_reshape(g, y, s);
}

// Operands behind the scores: weights and bias of each layer.
void lower_moe(Call *c)
{
	Experts e = {{operand(c, 2), operand(c, 3)},
	             {operand(c, 4), operand(c, 5)},
	             {operand(c, 6), operand(c, 7)},
	             0};
	mix(c, &e);
}

// Layer i, whose weights [experts, out, in] lie as few bits each.
static Layer packed_layer(Call *c, int i)
{
	static const char *const names[] = {"fc1_expert_weight_bits", "fc2_expert_weight_bits",
	                                    "fc3_expert_weight_bits"};
	int data = 2 + 3 * i;
	if (!operand(c, data))
		return (Layer){0};
	Shape s = in_val(c, data)->shape;
	int bits = bits_of(c, names[i], bits_of(c, "expert_weight_bits", 4));
	if (s.rank != 3)
		invalid_node(c, "wants weights [experts, out, bytes]");
	int64_t columns = s.dim[2] * (8 / bits), block = attr_int(c, "block_size", 0);
	Blocks b = {data, data + 1, 11 + i, s.dim[0] * s.dim[1], columns, block, 0, bits};
	if (block < 1) {
		b.block = columns;
		b.zero_rows = s.dim[0];
	}
	int64_t dims[] = {s.dim[0], s.dim[1], columns};
	return (Layer){put_reshape(c->g, read_blocks(c, &b), shape_of(3, dims)),
	               operand(c, data + 2)};
}

// Operands behind the scores: weights, scales and bias of each layer; zero points of each; how much
// an expert counts that is chosen.
void lower_qmoe(Call *c)
{
	if (strcmp(attr_string(c, "quant_type", "int"), "int"))
		unsupported_node(c, "quantise to integers", "weights that are floats of few bits");
	Experts e = {packed_layer(c, 0), packed_layer(c, 1), packed_layer(c, 2), operand(c, 14)};
	mix(c, &e);
}
