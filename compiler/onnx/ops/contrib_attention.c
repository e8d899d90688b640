// contrib_attention.c: lowers com.microsoft attention.
// With the product before it, packed, with caches of keys and values. Takes the node being
// lowered. Gives its results. Keeps: it is put as what it stands for, so the book finds the same
// whole. Source: docs/ContribOperators.md of ONNX Runtime.
#include "ops.h"
#include <math.h>

// ---- caches ---------------------------------------------------------------------------

typedef struct Cache {       // keys and values of runs before
	int64_t past, total; // places before this run, and with those of this run
	Ref start; // i64[batch, 1]: where this run's stand; 0: behind the past in all samples
} Cache;

// What is cached grows by this run's keys.
static Cache growing_cache(const Call *c, Ref past, int64_t length)
{
	int64_t before = past ? val(c->g, past)->shape.dim[2] : 0;
	return (Cache){.past = before, .total = before + length};
}

// It has room for `total` keys, and this run's stand from `start` on, which is kept inside.
static Cache fixed_cache(Graph *g, int64_t past, int64_t total, Ref start, int64_t length)
{
	start = larger_of(g, start, put_i64(g, 0));
	start = smaller_of(g, start, put_i64(g, total - length));
	return (Cache){past, total, start};
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
	return put2(g, O_add, at, cache->start ? cache->start : put_i64(g, cache->past));
}

// Which keys do not lie behind the place `back` before a query? [batch or 1, 1, queries, keys]
static Ref keys_before(Graph *g, const Cache *cache, const Shape *s, int64_t back)
{
	if (!cache->start)
		return causal_mask(g, s->dim[2], s->dim[3], cache->past - back);
	int64_t dims[] = {s->dim[0], 1, s->dim[2], 1}, line[] = {1, 1, 1, s->dim[3]};
	Ref place = query_places(g, cache, s->dim[0], s->dim[2]);
	place = put2(g, O_sub, put_reshape(g, place, shape_of(4, dims)), put_i64(g, back));
	return put2(g, O_le, put_iota(g, shape_of(4, line), 3), place);
}

// ---- attention ------------------------------------------------------------------------

// For each sample the end of the keys that count, and behind all of these, perhaps, the starts.
static Ref keys_between(Graph *g, Ref mask, int64_t batch, int64_t keys)
{
	Shape each = shape_of(4, (int64_t[]){batch, 1, 1, 1});
	Ref at = put_iota(g, shape_of(4, (int64_t[]){1, 1, 1, keys}), 3);
	Ref end = put_reshape(g, take_range(g, mask, 0, 0, batch), each);
	Ref before = put2(g, O_lt, at, end);
	if (val(g, mask)->shape.dim[0] == batch)
		return before;
	Ref start = put_reshape(g, take_range(g, mask, 0, batch, batch), each);
	return put2(g, O_and, before, put2(g, O_le, start, at));
}

// A mask as truth: [batch] and [2 batch] are ends and starts, [batch, keys] and [batch, queries,
// keys] say which keys count.
static Ref keys_seen(Call *c, Ref mask, int64_t keys)
{
	Graph *g = c->g;
	Shape s = val(g, mask)->shape;
	int64_t batch = in_val(c, 0)->shape.dim[0];
	int64_t dims[4] = {s.dim[0], 1, s.rank == 3 ? s.dim[1] : 1, keys};
	bool ends = s.rank == 1 && (s.dim[0] == batch || s.dim[0] == 2 * batch);
	if (!ends && (s.rank < 2 || s.rank > 3 || count_of(&s) != dims[0] * dims[2] * keys))
		invalid_node(c, "a mask %s for %lld keys", shape_text(c->r->arena, E_i32, &s),
		             (long long)keys);
	mask = put_cast(g, mask, E_i64);
	if (ends)
		return keys_between(g, mask, batch, keys);
	return put2(g, O_lt, put_num(g, E_i64, 0), put_reshape(g, mask, shape_of(4, dims)));
}

// Which keys of a cache that is not full stand in it? [batch, 1, 1, keys]
static Ref keys_there(Graph *g, const Cache *cache, int64_t length, int64_t keys)
{
	Ref end = put2(g, O_add, cache->start, put_i64(g, length));
	end = put_reshape(g, end, shape_of(4, (int64_t[]){val(g, end)->shape.dim[0], 1, 1, 1}));
	return put2(g, O_lt, put_iota(g, shape_of(4, (int64_t[]){1, 1, 1, keys}), 3), end);
}

// Zeros for the keys that `x` does not speak of.
static Ref for_keys(Graph *g, Ref x, int64_t keys)
{
	Shape s = val(g, x)->shape;
	int64_t none[RANK] = {0}, more[RANK] = {0};
	if (s.rank < 2 || s.dim[s.rank - 1] == 1 || s.dim[s.rank - 1] >= keys)
		return x;
	more[s.rank - 1] = keys - s.dim[s.rank - 1];
	return put_pad(g, x, none, more, 0);
}

// What the softmax is taken of: q and k by heads, scaled, with the bias and what the mask hides.
static Ref scores_of(Call *c, Ref q, Ref k, Ref mask, Ref bias, const Cache *cache)
{
	Graph *g = c->g;
	Shape s = val(g, q)->shape;
	int64_t keys = val(g, k)->shape.dim[2];
	double scale = attr_float(c, "scale", 0);
	Ref scores = scaled(g, put2(g, O_dot, q, swap_last(g, k)),
	                    scale ? scale : 1 / sqrt((double)s.dim[3]));
	scores = add_given(g, scores, bias && cache->start ? for_keys(g, bias, keys) : bias);
	if (mask) {
		Ref none = put_num(g, E_f32, attr_float(c, "mask_filter_value", -10000)),
		    seen = keys_seen(c, cache->start ? for_keys(g, mask, keys) : mask, keys);
		scores =
		    put2(g, O_add, scores, put3(g, O_select, seen, put_num(g, E_f32, 0), none));
	}
	Shape all = val(g, scores)->shape;
	if (attr_int(c, "unidirectional", 0))
		return hide(g, scores, keys_before(g, cache, &all, 0));
	return cache->start ? hide(g, scores, keys_there(g, cache, s.dim[2], keys)) : scores;
}

// [batch, length, heads * d]
static Ref attend_heads(Graph *g, Ref scores, Ref v)
{
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
		invalid_node(c, "wants num_heads");
	if (attr_int(c, "do_rotary", 0))
		unsupported_node(c, "export with RotaryEmbedding before it",
		                 "rotary positions of its own");
	if (attr_int(c, "past_present_share_buffer", 0))
		unsupported_node(c, "export with a cache that grows", "a cache of a fixed length");
	note_weight(c, 1);
	Ref all = add_given(g, matmul(g, (in_val(c, 0), c->in[0]), c->in[1]), operand(c, 2)),
	    part[3];
	for (int k = 0; k < 3; k++) {
		sizes[k] = given ? given[k] : width / 3;
		part[k] = split_heads(c, take_range(g, all, 2, at, sizes[k]), heads);
		at += sizes[k];
	}
	Ref past = operand(c, 4), old = 0;
	Cache cache = {0};
	for (int k = 1; k < 3; k++) {
		if (past)
			old = drop_axes(g, take_range(g, past, 0, k - 1, 1), 1, &(int64_t){0});
		cache = growing_cache(c, old, in_val(c, 0)->shape.dim[1]);
		part[k] = with_past(c, &cache, old, part[k]);
	}
	Ref scores = scores_of(c, part[0], part[1], operand(c, 3), operand(c, 5), &cache);
	c->out[0] = attend_heads(g, scores, part[2]);
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
			invalid_node(c,
			             "wants num_heads, and query, key and value apart or packed");
		part[k] = rank == 5 ? packed_part(c, from, k - from) : c->in[k];
	}
}

// What is cached grows by this run's keys, or it has a length of its own, and operand 8 tells how
// many keys of it are there.
static Cache told_cache(Call *c, int64_t length)
{
	Graph *g = c->g;
	Cache cache = growing_cache(c, operand(c, 6), length);
	if (!operand(c, 8))
		return cache;
	if (cache.past < length || count_of(&in_val(c, 8)->shape) != 1)
		invalid_node(c, "one past length, and a cache that has room for %lld keys",
		             (long long)length);
	Shape each = shape_of(2, (int64_t[]){val(g, c->in[6])->shape.dim[0], 1});
	Ref start = put_rank(g, put_reshape(g, put_cast(g, c->in[8], E_i64), (Shape){0}), 2);
	return fixed_cache(g, cache.past, cache.past, put_expand(g, start, each), length);
}

// Operands: query, key, value (those of another sequence may come by heads), bias of all three,
// mask of keys, bias of scores, past key, past value, how many keys of the past are there. Results:
// what is read, keys and values with those of the past, scores.
void lower_multi_head(Call *c)
{
	Graph *g = c->g;
	int64_t heads = attr_int(c, "num_heads", 0), at = 0;
	Ref part[3], bias = operand(c, 3);
	unpack_heads(c, heads, part);
	if (operand(c, 9))
		unsupported_node(c, "export without beam search", "a cache that beams share");
	Shape key = val(g, part[1])->shape;
	Cache cache = told_cache(c, key.dim[key.rank - 2]);
	for (int k = 0; k < 3; k++) {
		int64_t size = val(g, part[k])->shape.dim[val(g, part[k])->shape.rank - 1];
		if (bias && val(g, part[k])->shape.rank == 3)
			part[k] = add_given(g, part[k], take_range(g, bias, 0, at, size));
		at += size;
		part[k] = split_heads(c, part[k], heads);
		if (k)
			part[k] = with_past(c, &cache, operand(c, 5 + k), part[k]);
		if (k && k < c->nout)
			c->out[k] = part[k];
	}
	Ref scores = scores_of(c, part[0], part[1], operand(c, 4), operand(c, 5), &cache);
	c->out[0] = attend_heads(g, scores, part[2]);
	if (c->nout > 3)
		c->out[3] = scores;
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
		invalid_node(c, "%lld sinks of %lld heads", (long long)heads, (long long)s.dim[1]);
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

static bool all_are(const Graph *g, Ref r, int64_t x)
{
	bool same = is_const(g, r);
	for (int64_t i = 0; same && i < count_of(&val(g, r)->shape); i++)
		same = const_int_at(val(g, r), i) == x;
	return same;
}

// What is cached grows by this run's keys; or it has the length that operand 6 gives, or more, from
// the first run on, and operand 5 tells where the last key of each sample stands.
static Cache group_cache(Call *c, int64_t batch, int64_t length)
{
	Graph *g = c->g;
	Cache cache = growing_cache(c, operand(c, 3), length);
	int n = 0;
	const int64_t *total = cache.past ? operand_ints(c, 6, &n) : NULL;
	cache.total = n ? MAX(total[0], cache.past) : cache.total;
	if (!cache.past || !operand(c, 5))
		return cache;
	if (cache.total < length)
		invalid_node(c, "%lld keys of %lld", (long long)length, (long long)cache.total);
	Ref last = put_reshape(g, put_cast(g, c->in[5], E_i64), shape_of(2, (int64_t[]){batch, 1}));
	Ref start = put2(g, O_sub, last, put_i64(g, length - 1));
	if (n && total[0] == length) // the first run: samples begin together
		start = put2(g, O_mul, start, put_i64(g, 0));
	Cache fixed = fixed_cache(g, cache.past, cache.total, start, length);
	bool grows = cache.total == cache.past + length && all_are(g, fixed.start, cache.past);
	return grows ? cache : fixed;
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
		invalid_node(c, "wants num_heads, kv_num_heads, and [batch, length, width]");
	if (operand(c, 12) || operand(c, 13))
		unsupported_node(c, "export with a cache of floats", "a cache in few bits");
	Ref part[3];
	Cache cache = group_cache(c, s.dim[0], s.dim[1]);
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
