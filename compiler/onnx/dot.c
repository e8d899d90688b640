// dot.c: ONNX operators that contract: MatMul, Gemm, Einsum, Attention and rotary positions.
// Takes the node being lowered. Gives its results. Keeps: a product with a matrix of parameters is
// one dot of two matrices, whatever the rank of the data.
#include "lower.h"
#include <math.h>
#include <string.h>

static Ref dot_batched(Graph *g, Ref a, Ref b)
{
	align2(g, &a, &b);
	return put2(g, O_dot, a, b);
}

// numpy's product: the last two axes contract, the others broadcast; vectors get an axis that goes
// again.
Ref matmul(Graph *g, Ref a, Ref b)
{
	Shape sa = val(g, a)->shape, sb = val(g, b)->shape;
	if (sa.rank == 1)
		a = put_rank(g, a, 2);
	if (sb.rank == 1)
		b = put_reshape(g, b, shape_of(2, (int64_t[]){sb.dim[0], 1}));
	Shape left = val(g, a)->shape, right = val(g, b)->shape;
	Ref y;
	if (left.rank > 2 && right.rank == 2) {
		y = put2(g, O_dot, merge_axes(g, a, 0, left.rank - 1), b);
		left.dim[left.rank - 1] = right.dim[1];
		y = put_reshape(g, y, left);
	} else {
		y = dot_batched(g, a, b);
	}
	int rank = val(g, y)->shape.rank;
	int64_t axis = rank - 2;
	if (sb.rank == 1)
		y = drop_axes(g, y, 1, (int64_t[]){rank - 1});
	return sa.rank == 1 ? drop_axes(g, y, 1, &axis) : y;
}

void lower_matmul(Call *c)
{
	if (!in_val(c, 0)->shape.rank || !in_val(c, 1)->shape.rank)
		refuse(c, "an operand is a single number");
	note_weight(c, 1);
	c->out[0] = matmul(c->g, c->in[0], c->in[1]);
}

static Ref scaled(Graph *g, Ref x, double by)
{
	return by == 1 ? x : put2(g, O_mul, x, num_like(g, x, by));
}

void lower_gemm(Call *c)
{
	Graph *g = c->g;
	if (in_val(c, 0)->shape.rank != 2 || in_val(c, 1)->shape.rank != 2)
		refuse(c, "wants two matrices");
	note_weight(c, 1);
	Ref a = attr_int(c, "transA", 0) ? swap_last(g, c->in[0]) : c->in[0];
	Ref b = attr_int(c, "transB", 0) ? swap_last(g, c->in[1]) : c->in[1];
	Ref y = scaled(g, put2(g, O_dot, a, b), attr_float(c, "alpha", 1));
	Ref bias = c->nin > 2 && c->in[2] ? c->in[2] : missing_bias(c, val(g, y)->shape.dim[1]);
	c->out[0] = bias ? put_map2(g, O_add, y, scaled(g, bias, attr_float(c, "beta", 1))) : y;
}

// ---- Einsum
// -----------------------------------------------------------------------------------------------

// An operand with a letter for each axis, lower and upper case apart; '.' stands for the axes of an
// ellipsis.
typedef struct Term {
	Ref x;
	char label[RANK + 1];
} Term;

enum { ELLIPSIS = 1 }; // labels 1, 2, .. are the axes of an ellipsis, counted from the last

static void spell(Call *c, const char *from, const char *to, int rank, char *label)
{
	int n = 0, letters = 0;
	for (const char *p = from; p < to; p++)
		letters += *p != '.' && *p != ' ';
	for (const char *p = from; p < to && n < RANK; p++) {
		if (*p == ' ')
			continue;
		if (*p != '.') {
			label[n++] = *p;
			continue;
		}
		for (int k = rank - letters; k > 0 && n < RANK; k--)
			label[n++] = (char)(ELLIPSIS + k - 1);
		while (p + 1 < to && p[1] == '.')
			p++;
	}
	label[n] = 0;
	if (n != rank)
		refuse(c, "the equation names %d axes of an operand that has %d", n, rank);
	for (int i = 0; i < n; i++)
		if (strchr(label + i + 1, label[i]))
			refuse(
			    c,
			    "an index repeated within one operand (a diagonal) is not supported");
}

// Sums away the axes that appear in neither `a` nor `b`.
static void sum_unneeded(Graph *g, Term *t, const char *a, const char *b)
{
	int64_t axes[RANK];
	int n = 0, kept = 0;
	for (int i = 0; t->label[i]; i++)
		if (!strchr(a, t->label[i]) && !strchr(b, t->label[i]))
			axes[n++] = i;
	if (!n)
		return;
	t->x = drop_axes(g, put_fold(g, O_sum, t->x, n, axes), n, axes);
	for (int i = 0; t->label[i]; i++)
		if (strchr(a, t->label[i]) || strchr(b, t->label[i]))
			t->label[kept++] = t->label[i];
	t->label[kept] = 0;
}

static Ref order_axes(Graph *g, const Term *t, const char *order)
{
	int64_t perm[RANK];
	for (int i = 0; order[i]; i++)
		perm[i] = strchr(t->label, order[i]) - t->label;
	return put_permute(g, t->x, perm);
}

static int64_t product(const Shape *s, int from, int count)
{
	int64_t n = 1;
	for (int a = from; a < from + count; a++)
		n *= s->dim[a];
	return n;
}

// The labels of `of` that are (or are not) in `a` and in `b`.
static void choose(char *out, const char *of, const char *a, bool in_a, const char *b, bool in_b)
{
	for (; *of; of++)
		if (!strchr(a, *of) == !in_a && !strchr(b, *of) == !in_b)
			*out++ = *of;
	*out = 0;
}

// Two terms into one: shared labels that are still wanted are batch axes, those that are not
// contract.
static Term contract(Call *c, Term a, Term b, const char *wanted)
{
	Graph *g = c->g;
	char batch[RANK + 1], inner[RANK + 1], left[RANK + 1], right[RANK + 1];
	choose(batch, a.label, b.label, true, wanted, true);
	choose(inner, a.label, b.label, true, wanted, false);
	sum_unneeded(g, &a, wanted, b.label);
	sum_unneeded(g, &b, wanted, a.label);
	choose(left, a.label, b.label, false, wanted, true);
	choose(right, b.label, a.label, false, wanted, true);
	int nb = (int)strlen(batch), ni = (int)strlen(inner), nl = (int)strlen(left),
	    nr = (int)strlen(right);
	if (nb + nl + nr > RANK)
		refuse(c, "more than %d dimensions", RANK);
	Ref x = order_axes(g, &a, format(c->r->arena, "%s%s%s", batch, left, inner));
	Ref y = order_axes(g, &b, format(c->r->arena, "%s%s%s", batch, inner, right));
	Shape sx = val(g, x)->shape, sy = val(g, y)->shape, out = {.rank = nb + nl + nr};
	for (int i = 0; i < nb; i++)
		out.dim[i] = MAX(sx.dim[i], sy.dim[i]);
	memcpy(out.dim + nb, sx.dim + nb, sizeof(int64_t) * (size_t)nl);
	memcpy(out.dim + nb + nl, sy.dim + nb + ni, sizeof(int64_t) * (size_t)nr);
	int64_t dx[RANK], dy[RANK];
	if (nb + 2 > RANK)
		refuse(c, "more than %d dimensions", RANK);
	memcpy(dx, sx.dim, sizeof(int64_t) * (size_t)nb);
	memcpy(dy, sy.dim, sizeof(int64_t) * (size_t)nb);
	dx[nb] = product(&sx, nb, nl);
	dx[nb + 1] = product(&sx, nb + nl, ni);
	dy[nb] = product(&sy, nb, ni);
	dy[nb + 1] = product(&sy, nb + ni, nr);
	x = put_reshape(g, x, shape_of(nb + 2, dx));
	y = put_reshape(g, y, shape_of(nb + 2, dy));
	Term t = {.x = put_reshape(g, put2(g, O_dot, x, y), out)};
	strcpy(stpcpy(stpcpy(t.label, batch), left), right); // at most RANK letters, see above
	return t;
}

// Letters that appear once, in order: what an equation without "->" asks for.
static void implicit_result(const char *terms, char *out)
{
	int n = 0;
	for (int ch = 'A'; ch <= 'z'; ch++) {
		const char *first = strchr(terms, ch);
		if (first && !strchr(first + 1, ch) && n < RANK)
			out[n++] = (char)ch;
	}
	out[n] = 0;
}

void lower_einsum(Call *c)
{
	Graph *g = c->g;
	const char *equation = attr_string(c, "equation", ""), *arrow = strstr(equation, "->");
	const char *end = arrow ? arrow : equation + strlen(equation), *p = equation;
	Term *term = NEWS(c->r->arena, Term, c->nin);
	int widest = 0;
	Text rest = {.arena = c->r->arena};
	for (int k = 0; k < c->nin; k++) {
		const char *stop = p;
		while (stop < end && *stop != ',')
			stop++;
		term[k].x = (in_val(c, k), c->in[k]);
		spell(c, p, stop, val(g, c->in[k])->shape.rank, term[k].label);
		for (const char *l = term[k].label; *l; l++)
			widest = MAX(widest, *l < 'A' ? *l : 0);
		say(&rest, "%s,", term[k].label);
		p = stop + (stop < end);
	}
	char out[RANK + 1];
	int letters = 0;
	for (const char *q = arrow ? arrow + 2 : ""; *q; q++)
		letters += *q != '.' && *q != ' ';
	if (arrow)
		spell(c, arrow + 2, arrow + strlen(arrow),
		      letters + (strchr(arrow, '.') ? widest : 0), out);
	else
		implicit_result(rest.at, out);
	Term sum = term[0];
	const char *after = strchr(rest.at, ',') + 1;
	for (int k = 1; k < c->nin; k++) {
		after = strchr(after, ',') + 1;
		sum = contract(c, sum, term[k], format(c->r->arena, "%s%s", out, after));
	}
	sum_unneeded(g, &sum, out, out);
	for (int i = 0; out[i]; i++)
		if (!strchr(sum.label, out[i]))
			refuse(c, "the result has an index that no operand has");
	c->out[0] = order_axes(g, &sum, out);
}

// ---- attention
// ----------------------------------------------------------------------------------------------

// [batch, length, heads * d] as [batch, heads, length, d]
static Ref split_heads(Call *c, Ref x, int64_t heads)
{
	Shape s = val(c->g, x)->shape;
	if (s.rank == 4)
		return x;
	if (s.rank != 3 || heads < 1 || s.dim[2] % heads)
		refuse(c, "an operand of %d dimensions, or heads that do not divide it", s.rank);
	int64_t dims[] = {s.dim[0], s.dim[1], heads, s.dim[2] / heads};
	return put_permute(c->g, put_reshape(c->g, x, shape_of(4, dims)), (int64_t[]){0, 2, 1, 3});
}

static Ref join_heads(Graph *g, Ref x)
{
	return merge_axes(g, put_permute(g, x, (int64_t[]){0, 2, 1, 3}), 2, 4);
}

// Each head of keys or values serves several heads of queries.
static Ref share_heads(Call *c, Ref x, int64_t heads)
{
	Shape s = val(c->g, x)->shape;
	if (s.dim[1] == heads)
		return x;
	if (heads % s.dim[1])
		refuse(c, "%lld heads of queries for %lld of keys", (long long)heads,
		       (long long)s.dim[1]);
	int64_t dims[] = {s.dim[0], s.dim[1], 1, s.dim[2], s.dim[3]};
	Ref y = put_reshape(c->g, x, shape_of(5, dims));
	dims[2] = heads / s.dim[1];
	return merge_axes(c->g, put_expand(c->g, y, shape_of(5, dims)), 1, 3);
}

// Query i sees key j where j <= i + keys - queries (from set 24 on with a past; else j <= i).
static Ref causal_mask(Graph *g, int64_t queries, int64_t keys, int64_t shift)
{
	int64_t dims[] = {1, 1, queries, keys};
	Shape s = shape_of(4, dims);
	Ref row = put2(g, O_add, put_iota(g, s, 2), put_num(g, E_i64, (double)shift));
	return put2(g, O_le, put_iota(g, s, 3), row);
}

static Ref hide(Graph *g, Ref scores, Ref seen)
{
	align2(g, &scores, &seen);
	return put3(g, O_select, seen, scores, put_num(g, E_f32, -INFINITY));
}

void lower_attention(Call *c)
{
	Graph *g = c->g;
	in_val(c, 0), in_val(c, 1), in_val(c, 2);
	Ref q = split_heads(c, c->in[0], attr_int(c, "q_num_heads", 0));
	Ref k = split_heads(c, c->in[1], attr_int(c, "kv_num_heads", 0));
	Ref v = split_heads(c, c->in[2], attr_int(c, "kv_num_heads", 0));
	int64_t past = 0;
	if (c->nin > 5 && c->in[4] && c->in[5]) {
		past = val(g, c->in[4])->shape.dim[2];
		k = put_concat(g, 2, 2, (Ref[]){c->in[4], k});
		v = put_concat(g, 2, 2, (Ref[]){c->in[5], v});
	}
	if (c->nin > 6 && c->in[6])
		refuse(c, "nonpad_kv_seqlen is not supported");
	if (c->nout > 1)
		c->out[1] = k;
	if (c->nout > 2)
		c->out[2] = v;
	Shape s = val(g, q)->shape;
	k = share_heads(c, k, s.dim[1]);
	v = share_heads(c, v, s.dim[1]);
	double scale = attr_float(c, "scale", 1 / sqrt((double)s.dim[3])),
	       cap = attr_float(c, "softcap", 0);
	Ref scores = scaled(g, put2(g, O_dot, q, swap_last(g, k)), scale);
	if (cap > 0)
		scores = scaled(g, put1(g, O_tanh, scaled(g, scores, 1 / cap)), cap);
	Ref mask = c->nin > 3 ? c->in[3] : 0;
	if (mask)
		scores = val(g, mask)->type == E_b8 ? hide(g, scores, mask)
		                                    : put_map2(g, O_add, scores, mask);
	if (attr_int(c, "is_causal", 0))
		scores = hide(g, scores, causal_mask(g, s.dim[2], val(g, k)->shape.dim[2], past));
	Ref p = put(g, O_softmax, 1, &scores, &(Attr){.n = 1, .i = {3}});
	Ref y = put2(g, O_dot, p, v);
	c->out[0] = val(g, c->in[0])->shape.rank == 3 ? join_heads(g, y) : y;
	if (c->nout > 3) {
		int64_t mode = attr_int(c, "qk_matmul_output_mode", 0);
		if (mode == 3)
			c->out[3] = p;
	}
}

// cos or sin for each position: [batch or 1, 1, length, d / 2]
static Ref angles(Call *c, Ref table, int64_t half)
{
	Graph *g = c->g;
	if (c->nin > 3 && c->in[3])
		table = put_gather(g, table, put_cast(g, c->in[3], E_i64), 0);
	Shape s = val(g, table)->shape;
	if (s.rank != 3 || s.dim[2] != half)
		refuse(c, "cos and sin of %lld angles for %lld", (long long)s.dim[s.rank - 1],
		       (long long)half);
	return put_reshape(g, table, shape_of(4, (int64_t[]){s.dim[0], 1, s.dim[1], half}));
}

static Ref rotate_pairs(Graph *g, Ref x, Ref cosine, Ref sine, bool interleaved)
{
	Shape s = val(g, x)->shape;
	int64_t half = s.dim[3] / 2, split[] = {s.dim[0], s.dim[1], s.dim[2], 2, half};
	int64_t paired[] = {s.dim[0], s.dim[1], s.dim[2], half, 2};
	int axis = interleaved ? 4 : 3;
	Ref parts = put_reshape(g, x, shape_of(5, interleaved ? paired : split));
	Ref a = drop_axes(g, take_range(g, parts, axis, 0, 1), 1, (int64_t[]){axis});
	Ref b = drop_axes(g, take_range(g, parts, axis, 1, 1), 1, (int64_t[]){axis});
	Ref turned[2] = {put2(g, O_sub, put2(g, O_mul, a, cosine), put2(g, O_mul, b, sine)),
	                 put2(g, O_add, put2(g, O_mul, a, sine), put2(g, O_mul, b, cosine))};
	if (!interleaved)
		return put_concat(g, 3, 2, turned);
	for (int i = 0; i < 2; i++) {
		Shape wide = val(g, turned[i])->shape;
		wide.dim[wide.rank++] = 1;
		turned[i] = put_reshape(g, turned[i], wide);
	}
	return put_reshape(g, put_concat(g, 4, 2, turned), s);
}

void lower_rotary(Call *c)
{
	Graph *g = c->g;
	in_val(c, 0), in_val(c, 1), in_val(c, 2);
	bool flat = val(g, c->in[0])->shape.rank == 3;
	Ref x = split_heads(c, c->in[0], attr_int(c, "num_heads", 0));
	int64_t d = val(g, x)->shape.dim[3], turned = attr_int(c, "rotary_embedding_dim", 0);
	if (!turned)
		turned = d;
	if (turned > d || turned % 2)
		refuse(c, "rotary_embedding_dim %lld of %lld", (long long)turned, (long long)d);
	Ref cosine = angles(c, c->in[1], turned / 2), sine = angles(c, c->in[2], turned / 2);
	Ref y = rotate_pairs(g, take_range(g, x, 3, 0, turned), cosine, sine,
	                     attr_int(c, "interleaved", 0));
	if (turned < d)
		y = put_concat(g, 3, 2, (Ref[]){y, take_range(g, x, 3, turned, d - turned)});
	c->out[0] = flat ? join_heads(g, y) : y;
}
