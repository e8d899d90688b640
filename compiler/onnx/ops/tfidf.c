// tfidf.c: lowers TfIdfVectorizer.
// Counts sequences of words in lines; words are integers.
#include "ops.h"
#include <string.h>

static Ref reduce_away(Graph *g, Op op, Ref x, int64_t axis)
{
	return drop_axes(g, put_reduce(g, op, x, 1, &axis), 1, &axis);
}

// Returns how often each of `count` sequences of n words stands in the lines x [lines, length],
// with up to `skips` words left out between two: f32[lines, count]; 0: the lines are too short.
static Ref times_of(Graph *g, Ref x, Ref grams, int64_t count, int64_t n, int64_t skips)
{
	Ref times = 0;
	int64_t lines = val(g, x)->shape.dim[0], length = val(g, x)->shape.dim[1],
	        most = n > 1 ? skips : 0;
	for (int64_t step = 1; step - 1 <= most && (n - 1) * step < length; step++) {
		int64_t places = length - (n - 1) * step, wide[] = {lines, places, 1, n};
		WindowAxis window = {1, places, n, 1, step, 0, 1};
		Ref words = put_reshape(g, put_window(g, x, 1, &window, 0), shape_of(4, wide));
		Ref each = put_reshape(g, grams, shape_of(4, (int64_t[]){1, 1, count, n}));
		Ref same = put_cast(g, put2(g, O_eq, words, each), E_i64);
		same = reduce_away(g, O_sum, reduce_away(g, O_amin, same, 3), 1);
		times = book_call1(g, "plus", 2, (Ref[]){same, times}, 0, NULL);
	}
	return times ? put_cast(g, times, E_f32) : 0;
}

// By the attribute `mode`, with the weights of `count` sequences from number `first` on.
static Ref weighted(Call *c, Ref times, int first, int64_t count)
{
	Graph *g = c->g;
	const char *mode = attr_string(c, "mode", "TF");
	const AttributeProto *given = find_attr(c, "weights");
	float *weight = NEWS(c->r->arena, float, count + 1);
	if (!strcmp(mode, "TF"))
		return times;
	for (int64_t i = 0; i < count; i++)
		weight[i] =
		    given && first + i < (int64_t)given->n_floats ? given->floats[first + i] : 1;
	if (!strcmp(mode, "IDF"))
		times = put2(g, O_min, times, put_num(g, E_f32, 1));
	return put2(g, O_mul, times,
	            put_const(g, E_f32, shape_of(2, (int64_t[]){1, count}), weight));
}

void lower_tfidf(Call *c)
{
	expect_fixed(c, 0);
	Graph *g = c->g;
	Shape s = in_val(c, 0)->shape;
	int npool = 0, nstarts = 0, nplaces = 0;
	const int64_t *pool = attr_ints(c, "pool_int64s", &npool),
	              *starts = attr_ints(c, "ngram_counts", &nstarts),
	              *places = attr_ints(c, "ngram_indexes", &nplaces);
	if (!pool || !starts || !places)
		invalid_node(
		    c, "expected pool_int64s, ngram_counts and ngram_indexes: text is counted "
		       "before the model");
	int64_t length = s.rank ? s.dim[s.rank - 1] : 1, width = 0;
	int64_t lines = length ? count_of(&s) / length : 0, both[] = {lines, length};
	int64_t shortest = attr_int(c, "min_gram_length", 1),
	        longest = attr_int(c, "max_gram_length", 1),
	        skips = attr_int(c, "max_skip_count", 0);
	for (int i = 0; i < nplaces; i++) {
		if (places[i] < 0 || places[i] > INT32_MAX)
			invalid_node(c, "ngram_indexes has %lld", (long long)places[i]);
		width = MAX(width, places[i] + 1);
	}
	Ref x = put_cast(g, put_reshape(g, fixed_operand(c, 0), shape_of(2, both)), E_i64);
	Ref out = put_broadcast(g, put_num(g, E_f32, 0), shape_of(2, (int64_t[]){lines, width}));
	int first = 0;
	for (int n = 1; n <= nstarts; n++) {
		int64_t at = starts[n - 1], end = n < nstarts ? starts[n] : npool;
		if (at < 0 || end > npool)
			invalid_node(c, "ngram_counts that lie outside the pool");
		int count = (int)MIN(MAX(end - at, 0) / n, nplaces - first);
		Ref times = 0;
		if (count > 0 && n >= shortest && n <= longest)
			times = times_of(g, x, put_ints(g, count * n, pool + at), count, n, skips);
		if (times)
			out = put_scatter(g, out, put_ints(g, count, places + first),
			                  weighted(c, times, first, count), 1, 1);
		first += count;
	}
	c->out[0] = s.rank < 2 ? put_reshape(g, out, shape_of(1, &width)) : out;
}
