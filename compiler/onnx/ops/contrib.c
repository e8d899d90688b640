// contrib.c: operators of com.microsoft that exporters and optimizers write: normalisations with
// what they add, rotary positions, products of matrices as they lie. Takes the node being lowered.
// Gives its results. Keeps: they are put as what they stand for, so the book finds the same wholes.
// Source: docs/ContribOperators.md of ONNX Runtime.
#include "ops.h"

// norm(x) gamma + beta over the last axis
static Ref normalised(Call *c, Ref x, bool centred, Ref gamma, Ref beta)
{
	Graph *g = c->g;
	int64_t last = val(g, x)->shape.rank - 1;
	Attr attr = {.n = 2, .i = {centred, last}, .x = attr_float(c, "epsilon", 1e-12)};
	Ref y = put(g, O_norm, 1, &x, &attr);
	y = gamma ? put_map2(g, O_mul, y, gamma) : y;
	return add_given(g, y, beta);
}

// Operands: x, skip, gamma, (beta where centred,) bias. Result 3: what was normalised.
void lower_skip_norm(Call *c)
{
	bool centred = c->variant == N_layer;
	in_val(c, 0), in_val(c, 1), in_val(c, 2);
	Ref sum = add_given(c->g, add_given(c->g, c->in[0], c->in[1]), operand(c, centred ? 4 : 3));
	c->out[0] = normalised(c, sum, centred, c->in[2], centred ? operand(c, 3) : 0);
	if (c->nout > 3)
		c->out[3] = sum;
}

// Rows of table k at the indices of operand `index`.
static Ref rows_of(Call *c, int k, Ref index)
{
	in_val(c, k);
	return lower_as(c, lower_gather, 0, 2, (Ref[]){c->in[k], index, 0});
}

// Operands: ids, segments, words, positions, segments' table, gamma, beta, mask, position ids.
// Results: the embedding, how many tokens count, the sum before it was normalised.
void lower_embed_norm(Call *c)
{
	Graph *g = c->g;
	Shape s = in_val(c, 0)->shape;
	Ref position = operand(c, 8), mask = operand(c, 7);
	in_val(c, 3);
	if (s.rank != 2)
		invalid_node(c, "wants ids [batch, length]");
	Ref sum = rows_of(c, 2, c->in[0]);
	sum = add_given(
	    g, sum, position ? rows_of(c, 3, position) : take_range(g, c->in[3], 0, 0, s.dim[1]));
	if (operand(c, 1) && operand(c, 4))
		sum = add_given(g, sum, rows_of(c, 4, c->in[1]));
	c->out[0] = normalised(c, sum, true, operand(c, 5), operand(c, 6));
	if (c->nout > 1) {
		int64_t last = 1, samples[] = {s.dim[0]};
		Ref none = put_broadcast(g, put_num(g, E_i32, 0), shape_of(1, samples));
		c->out[1] =
		    mask ? drop_axes(g, put_reduce(g, O_sum, mask, 1, &last), 1, &last) : none;
	}
	if (c->nout > 2)
		c->out[2] = sum;
}

// ---- attention's operands, and products -----------------------------------------------

// Operands: x, positions (one number: of the first), cosines, sines.
void lower_positioned_rotary(Call *c)
{
	Graph *g = c->g;
	Shape s = in_val(c, 0)->shape, at = in_val(c, 1)->shape;
	int64_t half = in_val(c, 2)->shape.dim[1], length = s.dim[s.rank - 2];
	in_val(c, 3);
	Ref position = put_cast(g, c->in[1], E_i64);
	if (count_of(&at) == 1) {
		int64_t dims[] = {s.dim[0], length};
		position = put2(g, O_add, put_iota(g, shape_of(2, dims), 1),
		                put_reshape(g, position, shape_of(0, NULL)));
	}
	int64_t heads = attr_int(c, "num_heads", 0);
	if (!heads && s.rank == 3 && half > 0)
		heads = s.dim[2] / (2 * half);
	c->out[0] = lower_as(c, lower_rotary, (int)heads, 4,
	                     (Ref[]){c->in[0], c->in[2], c->in[3], position, 0});
}

// Operand k with its rows and columns last: "transBatch" says that rows are its first axis, "trans"
// that columns come before rows. Of a vector neither does.
static Ref laid_out(Call *c, int k, const char *batch, const char *trans)
{
	Ref x = c->in[k];
	int rank = in_val(c, k)->shape.rank;
	int64_t perm[RANK];
	for (int a = 0; a < rank - 2; a++)
		perm[a] = a + 1;
	if (rank > 2 && attr_int(c, batch, 0)) {
		perm[rank - 2] = 0;
		perm[rank - 1] = rank - 1;
		x = put_permute(c->g, x, perm);
	}
	return rank > 1 && attr_int(c, trans, 0) ? swap_last(c->g, x) : x;
}

void lower_fused_matmul(Call *c)
{
	if (!in_val(c, 0)->shape.rank || !in_val(c, 1)->shape.rank)
		invalid_node(c, "an operand is a single number");
	Ref a = laid_out(c, 0, "transBatchA", "transA"),
	    b = laid_out(c, 1, "transBatchB", "transB");
	note_weight(c, 1);
	c->out[0] = scaled(c->g, matmul(c->g, a, b), attr_float(c, "alpha", 1));
}
