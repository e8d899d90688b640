// contrib.c: operators of com.microsoft that exporters and optimizers write: normalisations with
// what they add, attention with its products, rotary positions. Takes the node being lowered. Gives
// its results. Keeps: they are put as what they stand for, so the book finds the same wholes.
// Source: docs/ContribOperators.md of ONNX Runtime.
#include "lower.h"
#include <math.h>
#include <string.h>

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
	bool centred = c->how == N_layer;
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
		refuse(c, "wants ids [batch, length]");
	Ref sum = rows_of(c, 2, c->in[0]);
	sum = add_given(
	    g, sum, position ? rows_of(c, 3, position) : take_range(g, c->in[3], 0, 0, s.dim[1]));
	if (operand(c, 1) && operand(c, 4))
		sum = add_given(g, sum, rows_of(c, 4, c->in[1]));
	c->out[0] = normalised(c, sum, true, operand(c, 5), operand(c, 6));
	if (c->nout > 1) {
		int64_t last = 1, samples[] = {s.dim[0]};
		Ref none =
		    put_expand(g, put_rank(g, put_num(g, E_i32, 0), 1), shape_of(1, samples));
		c->out[1] =
		    mask ? drop_axes(g, put_fold(g, O_sum, mask, 1, &last), 1, &last) : none;
	}
	if (c->nout > 2)
		c->out[2] = sum;
}

// ---- attention ------------------------------------------------------------------------

// A mask as truth: [batch] is how many keys count, [batch, keys] and [batch, queries, keys] say
// which.
static Ref keys_seen(Call *c, Ref mask, int64_t keys)
{
	Graph *g = c->g;
	Shape s = val(g, mask)->shape;
	int64_t dims[4] = {s.dim[0], 1, s.rank == 3 ? s.dim[1] : 1, s.rank > 1 ? keys : 1};
	if (s.rank < 1 || s.rank > 3 || count_of(&s) != dims[0] * dims[2] * dims[3])
		refuse(c, "a mask %s for %lld keys", shape_text(c->r->arena, E_i32, &s),
		       (long long)keys);
	mask = put_reshape(g, put_cast(g, mask, E_i64), shape_of(4, dims));
	Ref at = put_iota(g, shape_of(4, (int64_t[]){1, 1, 1, keys}), 3);
	return s.rank == 1 ? put2(g, O_lt, at, mask) : put2(g, O_lt, put_num(g, E_i64, 0), mask);
}

// q, k, v by heads; [batch, length, heads * d]
static Ref attend_heads(Call *c, Ref q, Ref k, Ref v, Ref mask, Ref bias)
{
	Graph *g = c->g;
	Shape s = val(g, q)->shape;
	int64_t keys = val(g, k)->shape.dim[2];
	double scale = attr_float(c, "scale", 0);
	Ref scores = scaled(g, put2(g, O_dot, q, swap_last(g, k)),
	                    scale ? scale : 1 / sqrt((double)s.dim[3]));
	scores = add_given(g, scores, bias);
	if (mask) {
		Ref none = put_num(g, E_f32, attr_float(c, "mask_filter_value", -10000));
		scores = add_given(
		    g, scores,
		    put3(g, O_select, keys_seen(c, mask, keys), put_num(g, E_f32, 0), none));
	}
	if (attr_int(c, "unidirectional", 0))
		scores = hide(g, scores, causal_mask(g, s.dim[2], keys, keys - s.dim[2]));
	Ref p = put(g, O_softmax, 1, &scores, &(Attr){.n = 1, .i = {3}});
	return join_heads(g, put2(g, O_dot, p, v));
}

// Attention of a sequence to itself, with the product that makes queries, keys and values.
// Operands: x, weights, bias, mask, past, bias of scores.
void lower_packed_attention(Call *c)
{
	Graph *g = c->g;
	int64_t heads = attr_int(c, "num_heads", 0), sizes[3], at = 0;
	int64_t width = in_val(c, 1)->shape.dim[in_val(c, 1)->shape.rank - 1];
	int n = 0;
	const int64_t *given = attr_ints(c, "qkv_hidden_sizes", &n);
	if (heads < 1 || (given && n != 3))
		refuse(c, "wants num_heads");
	if (attr_int(c, "do_rotary", 0))
		decline(c, "export with RotaryEmbedding before it", "rotary positions of its own");
	if (attr_int(c, "past_present_share_buffer", 0))
		decline(c, "export with a cache that grows", "a cache of a fixed length");
	note_weight(c, 1);
	Ref all = add_given(g, matmul(g, (in_val(c, 0), c->in[0]), c->in[1]), operand(c, 2)),
	    part[3];
	for (int k = 0; k < 3; k++) {
		sizes[k] = given ? given[k] : width / 3;
		part[k] = split_heads(c, take_range(g, all, 2, at, sizes[k]), heads);
		at += sizes[k];
	}
	Ref past = operand(c, 4);
	for (int k = 1; past && k < 3; k++) {
		int64_t first = 0;
		Ref old = drop_axes(g, take_range(g, past, 0, k - 1, 1), 1, &first);
		part[k] = put_concat(g, 2, 2, (Ref[]){old, part[k]});
	}
	c->out[0] = attend_heads(c, part[0], part[1], part[2], operand(c, 3), operand(c, 5));
	if (c->nout > 1)
		c->out[1] = put_concat(
		    g, 0, 2, (Ref[]){insert_axis(g, part[1], 0), insert_axis(g, part[2], 0)});
}

// Part of what operand `from` packs as [batch, length, heads, parts, d]: [batch, length, heads * d]
static Ref packed_part(Call *c, int from, int64_t part)
{
	int64_t axis = 3;
	Ref x = take_range(c->g, c->in[from], (int)axis, part, 1);
	return merge_axes(c->g, drop_axes(c->g, x, 1, &axis), 2, 4);
}

// Query, key and value as operands 0 to 2 give them: apart, or packed in the first, or the latter
// two in the second.
static void unpack_heads(Call *c, int64_t heads, Ref *part)
{
	for (int k = 0; k < 3; k++) {
		int from = operand(c, k) ? k : k && operand(c, 1) ? 1 : 0;
		int rank = in_val(c, from)->shape.rank;
		if (heads < 1 || rank < 3 || (from != k && rank != 5))
			refuse(c, "wants num_heads, and query, key and value apart or packed");
		part[k] = rank == 5 ? packed_part(c, from, k - from) : c->in[k];
	}
}

// Operands: query, key, value, bias of all three, mask of keys, bias of scores, past key, past
// value.
void lower_multi_head(Call *c)
{
	Graph *g = c->g;
	int64_t heads = attr_int(c, "num_heads", 0), at = 0;
	Ref part[3], bias = operand(c, 3);
	unpack_heads(c, heads, part);
	if (operand(c, 8) || operand(c, 9))
		decline(c, "export with a cache that grows", "a cache of a fixed length");
	for (int k = 0; k < 3; k++) {
		int64_t size = val(g, part[k])->shape.dim[val(g, part[k])->shape.rank - 1];
		if (bias && val(g, part[k])->shape.rank == 3)
			part[k] = add_given(g, part[k], take_range(g, bias, 0, at, size));
		at += size;
		part[k] = split_heads(c, part[k], heads);
		Ref past = k ? operand(c, 5 + k) : 0;
		if (past)
			part[k] = put_concat(g, 2, 2, (Ref[]){past, part[k]});
		if (k && k < c->nout)
			c->out[k] = part[k];
	}
	c->out[0] = attend_heads(c, part[0], part[1], part[2], operand(c, 4), operand(c, 5));
}

typedef struct Cache {       // of a GroupQueryAttention: keys and values of runs before
	int64_t past, total; // places before this run, and with those of this run
	Ref start; // i64[batch, 1]: where this run's stand; 0: behind the past in all samples
} Cache;

static bool all_are(const Graph *g, Ref r, int64_t x)
{
	bool same = is_const(g, r);
	for (int64_t i = 0; same && i < count_of(&val(g, r)->shape); i++)
		same = const_int_at(val(g, r), i) == x;
	return same;
}

// What is cached grows by this run's keys; or it has the length that operand 6 gives, or more, from
// the first run on, and operand 5 tells where the last key of each sample stands.
static Cache read_cache(Call *c, int64_t batch, int64_t length)
{
	Graph *g = c->g;
	Cache cache = {.past = operand(c, 3) ? in_val(c, 3)->shape.dim[2] : 0};
	int n = 0;
	const int64_t *total = cache.past ? operand_ints(c, 6, &n) : NULL;
	cache.total = n ? MAX(total[0], cache.past) : cache.past + length;
	if (!cache.past || !operand(c, 5))
		return cache;
	if (cache.total < length)
		refuse(c, "%lld keys of %lld", (long long)length, (long long)cache.total);
	Ref last = put_reshape(g, put_cast(g, c->in[5], E_i64), shape_of(2, (int64_t[]){batch, 1}));
	Ref start = put2(g, O_sub, last, whole_number(g, length - 1));
	if (n && total[0] == length) // the first run: samples begin together
		start = put2(g, O_mul, start, whole_number(g, 0));
	start = put2(g, O_max, start, whole_number(g, 0));
	start = put2(g, O_min, start, whole_number(g, cache.total - length));
	bool grows = cache.total == cache.past + length && all_are(g, start, cache.past);
	cache.start = grows ? 0 : start;
	return cache;
}

// What was there with what is new, [batch, heads, total, d].
static Ref with_past(Call *c, const Cache *cache, Ref old, Ref x)
{
	Graph *g = c->g;
	int64_t none[4] = {0}, more[4] = {0, 0, cache->total - cache->past, 0};
	if (!old)
		return x;
	if (!cache->start)
		return put_concat(g, 2, 2, (Ref[]){old, x});
	return write_rows(g, put_pad(g, old, none, more, 0), x, 2, cache->start, false);
}

// The places of this run's queries: [batch or 1, length].
static Ref query_places(Graph *g, const Cache *cache, int64_t batch, int64_t length)
{
	Ref at = put_iota(g, shape_of(2, (int64_t[]){batch, length}), 1);
	return put2(g, O_add, at, cache->start ? cache->start : whole_number(g, cache->past));
}

// Which keys do not lie behind the place `back` before a query? [batch or 1, 1, queries, keys]
static Ref keys_before(Graph *g, const Cache *cache, const Shape *s, int64_t back)
{
	if (!cache->start)
		return causal_mask(g, s->dim[2], s->dim[3], cache->past - back);
	int64_t dims[] = {s->dim[0], 1, s->dim[2], 1}, line[] = {1, 1, 1, s->dim[3]};
	Ref place = query_places(g, cache, s->dim[0], s->dim[2]);
	place = put2(g, O_sub, put_reshape(g, place, shape_of(4, dims)), whole_number(g, back));
	return put2(g, O_le, put_iota(g, shape_of(4, line), 3), place);
}

// Scaled, capped, with their bias; later keys are hidden, and those that lie a window behind.
static Ref hide_scores(Call *c, Ref scores, int64_t d, const Cache *cache)
{
	Graph *g = c->g;
	Shape s = val(g, scores)->shape;
	int64_t window = attr_int(c, "local_window_size", -1);
	double scale = attr_float(c, "scale", 0), cap = attr_float(c, "softcap", 0);
	scores = scaled(g, scores, scale ? scale : 1 / sqrt((double)d));
	if (cap > 0)
		scores = scaled(g, put1(g, O_tanh, scaled(g, scores, 1 / cap)), cap);
	scores = add_given(g, scores, operand(c, 10));
	scores = hide(g, scores, keys_before(g, cache, &s, 0));
	return window < 0 ? scores
	                  : hide(g, scores, put1(g, O_not, keys_before(g, cache, &s, window)));
}

// The softmax over the keys of each query and, where there is one, a sink of each head (operand 11,
// or 0 for all), which takes its share.
static Ref shares_of(Call *c, Ref scores)
{
	Graph *g = c->g;
	Shape s = val(g, scores)->shape;
	Attr last = {.n = 1, .i = {3}};
	Ref sink = operand(c, 11);
	if (!sink && attr_int(c, "smooth_softmax", 0))
		sink = num_like(g, scores, 0);
	if (!sink)
		return put(g, O_softmax, 1, &scores, &last);
	int64_t heads = count_of(&val(g, sink)->shape), dims[] = {1, heads, 1, 1};
	int64_t keys = s.dim[3];
	if (heads != 1 && heads != s.dim[1])
		refuse(c, "%lld sinks of %lld heads", (long long)heads, (long long)s.dim[1]);
	s.dim[3] = 1;
	sink = put_expand(g, put_reshape(g, sink, shape_of(4, dims)), s);
	Ref all = put_concat(g, 3, 2, (Ref[]){scores, sink});
	return take_range(g, put(g, O_softmax, 1, &all, &last), 3, 0, keys);
}

// Turned by operands 7 and 8 at the positions that operand 9 gives, else at those of the queries.
static Ref turned(Call *c, Ref x, int64_t heads, const Cache *cache)
{
	Shape s = val(c->g, x)->shape;
	in_val(c, 7), in_val(c, 8);
	Ref place = operand(c, 9) ? operand(c, 9) : query_places(c->g, cache, s.dim[0], s.dim[1]);
	return lower_as(c, lower_rotary, (int)heads, 4, (Ref[]){x, c->in[7], c->in[8], place, 0});
}

// Operands: query, key, value ([batch, length, heads * d], or all in the first), past key, past
// value, the last place that counts of each sample, the total length, cosines, sines, positions,
// bias of scores, sinks.
void lower_group_query(Call *c)
{
	Graph *g = c->g;
	int64_t heads[3] = {attr_int(c, "num_heads", 0)}, at = 0;
	heads[1] = heads[2] = attr_int(c, "kv_num_heads", 0);
	Shape s = in_val(c, 0)->shape;
	if (s.rank != 3 || MIN(heads[0], heads[1]) < 1 || MAX(heads[0], heads[1]) > s.dim[2])
		refuse(c, "wants num_heads, kv_num_heads, and [batch, length, width]");
	if (operand(c, 12) || operand(c, 13))
		decline(c, "export with a cache of floats", "a cache in few bits");
	Ref part[3];
	Cache cache = read_cache(c, s.dim[0], s.dim[1]);
	int64_t d = s.dim[2] / (operand(c, 1) ? heads[0] : heads[0] + 2 * heads[1]);
	for (int k = 0; k < 3; at += heads[k] * d, k++) {
		part[k] = operand(c, 1) ? (in_val(c, k), c->in[k])
		                        : take_range(g, c->in[0], 2, at, heads[k] * d);
		if (k < 2 && attr_int(c, "do_rotary", 0))
			part[k] = turned(c, part[k], heads[k], &cache);
		part[k] = split_heads(c, part[k], heads[k]);
		if (k)
			part[k] = with_past(c, &cache, operand(c, 2 + k), part[k]);
		if (k && k < c->nout)
			c->out[k] = part[k];
		part[k] = share_heads(c, part[k], heads[0]);
	}
	Ref scores = put2(g, O_dot, part[0], swap_last(g, part[1]));
	Ref p = shares_of(c, hide_scores(c, scores, d, &cache));
	c->out[0] = join_heads(g, put2(g, O_dot, p, part[2]));
}

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
		refuse(c, "an operand is a single number");
	Ref a = laid_out(c, 0, "transBatchA", "transA"),
	    b = laid_out(c, 1, "transBatchB", "transB");
	note_weight(c, 1);
	c->out[0] = scaled(c->g, matmul(c->g, a, b), attr_float(c, "alpha", 1));
}
