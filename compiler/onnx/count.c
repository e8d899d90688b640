// count.c: ONNX operators whose results are as many as the data say: NonZero, Compress, Unique,
// NonMaxSuppression; and TfIdfVectorizer's counts, and bits read as another type, which must be
// known when the file is read. Takes the node being lowered. Gives its results: as many entries as
// there can be, and their count (lower.h: Counts).
#include "lower.h"
#include <math.h>
#include <string.h>

// ---- places where something is true ---------------------------------------------------

// 0, 1, .. n - 1; as numbers where these make what is known.
static Ref counting(Graph *g, int64_t n, bool known)
{
	if (!known || n > FOLD_LIMIT)
		return put_iota(g, shape_of(1, &n), 0);
	int64_t *at = NEWS(g->arena, int64_t, n + 1);
	for (int64_t i = 0; i < n; i++)
		at[i] = i;
	return put_ints(g, (int)n, at);
}

static Ref fold_away(Graph *g, Op op, Ref x, int64_t axis)
{
	return drop_axes(g, put_fold(g, op, x, 1, &axis), 1, &axis);
}

static Ref known_places(Graph *g, Ref truth)
{
	const Val *v = val(g, truth);
	int64_t n = v->shape.dim[0], found = 0, *at = NEWS(g->arena, int64_t, n + 1);
	for (int64_t i = 0; i < n; i++)
		if (const_int_at(v, i))
			at[found++] = i;
	return put_const(g, E_i64, shape_of(1, &found), at);
}

// Entry `to` of the result is i for each i that has truth[i], others are 0. All i64 but truth, [n].
static Ref put_in_order(Graph *g, Ref truth, Ref to)
{
	int64_t n = val(g, truth)->shape.dim[0], more = n + 1;
	bool known = is_const(g, truth) && is_const(g, to);
	Ref base = put_expand(g, put_rank(g, whole_number(g, 0), 1), shape_of(1, &more));
	Ref place = put3(g, O_select, truth, to, whole_number(g, n));
	return take_range(g, put_scatter(g, base, place, counting(g, n, known), 0, 0), 0, 0, n);
}

// The places where truth, b8[n], holds, in order: i64, as many as there can be, and their count (0:
// exactly so many).
static Ref places_where(Graph *g, Ref truth, Ref *count)
{
	*count = 0;
	if (is_const(g, truth))
		return known_places(g, truth);
	Ref ones = put_cast(g, truth, E_i64);
	Ref before = put(g, O_cumsum, 1, &ones, &(Attr){.n = 3, .i = {0, 1, 0}});
	*count = fold_away(g, O_sum, ones, 0);
	return copy_behind(g, put_in_order(g, truth, before), 0, *count);
}

static Ref flat(Graph *g, Ref x)
{
	return merge_axes(g, x, 0, val(g, x)->shape.rank);
}

// Where operand k is not 0 and is there at all.
static Ref truth_of(Call *c, int k)
{
	Graph *g = c->g;
	Ref x = fixed_operand(c, k);
	Ref truth =
	    val(g, x)->type == E_b8 ? x : put1(g, O_not, put2(g, O_eq, x, num_like(g, x, 0)));
	for (int a = 0; a < val(g, x)->shape.rank; a++)
		if (count_along(c, k, a))
			truth = fill_behind(g, truth, a, count_along(c, k, a), 0);
	return truth;
}

void lower_nonzero(Call *c)
{
	Graph *g = c->g;
	Shape s = in_val(c, 0)->shape;
	int64_t stride[RANK];
	Ref count, row[RANK];
	Ref at = places_where(g, flat(g, truth_of(c, 0)), &count);
	row_strides(&s, stride);
	for (int a = 0; a < s.rank; a++) {
		Ref x = put2(g, O_div, at, whole_number(g, stride[a]));
		if (a)
			x = put2(g, O_mod, x, whole_number(g, MAX(s.dim[a], 1)));
		row[a] = put_rank(g, x, 2);
	}
	c->out[0] = s.rank ? put_concat(g, 0, s.rank, row)
	                   : put_const(g, E_i64, shape_of(2, (int64_t[]){0, 1}), "");
	c->counts[0].of[1] = count;
}

void lower_compress(Call *c)
{
	Graph *g = c->g;
	in_val(c, 0);
	const AttributeProto *given = find_attr(c, "axis");
	Ref x = given ? c->in[0] : flat(g, c->in[0]), count;
	Shape s = val(g, x)->shape;
	int axis = given ? (int)axis_of(c, given->i, s.rank) : 0;
	Ref truth = flat(g, truth_of(c, 1));
	if (!given && c->arg[0].counts)
		refuse_counts(c, 0);
	int64_t n = val(g, truth)->shape.dim[0];
	if (n > s.dim[axis])
		truth = take_range(g, truth, 0, 0, s.dim[axis]);
	c->out[0] = put_gather(g, x, places_where(g, truth, &count), axis);
	for (int a = 0; a < s.rank; a++)
		c->counts[0].of[a] = a == axis ? count : count_along(c, 0, a);
}

// ---- Unique ---------------------------------------------------------------------------

enum { MOST_COMPARED = 1 << 15 };

// Rows i and j of x, [n, m], side by side: [n, n, ..].
typedef struct Pairs {
	Ref i, j;
	int64_t n, m;
} Pairs;

static Pairs pairs_of(Graph *g, Ref x)
{
	Shape s = val(g, x)->shape;
	int64_t n = s.dim[0], m = s.rank > 1 ? s.dim[1] : 1;
	return (Pairs){put_reshape(g, x, shape_of(3, (int64_t[]){n, 1, m})),
	               put_reshape(g, x, shape_of(3, (int64_t[]){1, n, m})), n, m};
}

// Does row j equal row i? 1 or 0, i32[n, n]
static Ref equal_rows(Graph *g, const Pairs *p)
{
	Ref equal = put_cast(g, put2(g, O_eq, p->i, p->j), E_i32);
	return fold_away(g, O_amin, equal, 2);
}

// Is row j before row i, by their first numbers that differ? b8[n, n]
static Ref earlier_rows(Graph *g, const Pairs *p, bool known)
{
	int64_t axis = 2;
	Ref differ = put_cast(g, put1(g, O_not, put2(g, O_eq, p->i, p->j)), E_i32);
	Ref first = put_fold(g, O_argmax, differ, 1, &axis);
	Ref here = put2(g, O_eq, put_rank(g, counting(g, p->m, known), 3), first);
	Ref less = put2(g, O_and, here, put2(g, O_lt, p->j, p->i));
	return put_cast(g, fold_away(g, O_amax, put_cast(g, less, E_i32), 2), E_b8);
}

// The operand's entries along the axis as rows, [n, m].
static Ref rows_along(Graph *g, Ref x, int axis)
{
	Ref first = axis ? move_axis(g, x, axis, 0) : x;
	int64_t n = val(g, first)->shape.dim[0];
	int64_t dims[] = {n, count_of(&val(g, first)->shape) / MAX(n, 1)};
	return put_reshape(g, first, shape_of(2, dims));
}

static Ref repeated(Graph *g, Ref number, int64_t n)
{
	return put_expand(g, put_rank(g, number, 1), shape_of(1, &n));
}

// Results 0, 1 and 3 of Unique: the entries of x at the first places of their kinds, those places,
// and how many of each there are. number: of each entry's kind.
static void give_kinds(Call *c, Ref x, int axis, Ref fresh, Ref number, Ref there)
{
	Graph *g = c->g;
	int64_t n = val(g, fresh)->shape.dim[0];
	Ref zeros = repeated(g, whole_number(g, 0), n), ones = repeated(g, whole_number(g, 1), n);
	Ref kinds = fold_away(g, O_sum, put_cast(g, fresh, E_i64), 0);
	Ref at = put_in_order(g, fresh, number);
	Ref times = put_scatter(g, zeros, number, put3(g, O_select, there, ones, zeros), 0, 1);
	bool exact = is_const(g, kinds);
	int64_t most = exact ? const_int_at(val(g, kinds), 0) : n;
	at = take_range(g, at, 0, 0, most);
	times = take_range(g, times, 0, 0, most);
	if (!exact) {
		at = copy_behind(g, at, 0, kinds);
		times = copy_behind(g, times, 0, kinds);
	}
	Ref out[4] = {put_gather(g, x, at, axis), at, number, times};
	for (int i = 0; i < c->nout && i < 4; i++) {
		c->out[i] = out[i];
		if (i != 2 && !exact)
			c->counts[i].of[i ? 0 : axis] = kinds;
	}
}

// All entries are compared with each other, n * n times, which is never stored. `there`: those that
// are, b8[n].
static void unique_entries(Call *c, Ref x, int axis, Ref there)
{
	Graph *g = c->g;
	Pairs p = pairs_of(g, rows_along(g, x, axis));
	bool known = is_const(g, x) && is_const(g, there);
	Ref first = fold_away(g, O_argmax, equal_rows(g, &p), 1);
	Ref fresh = put2(g, O_and, put2(g, O_eq, first, counting(g, p.n, known)), there);
	if (!attr_int(c, "sorted", 1))
		p = pairs_of(g, first);
	Ref before = put2(g, O_and, earlier_rows(g, &p, known), put_rank(g, fresh, 2));
	Ref number = fold_away(g, O_sum, put_cast(g, before, E_i64), 1);
	give_kinds(c, x, axis, fresh, number, there);
}

void lower_unique(Call *c)
{
	Graph *g = c->g;
	Ref x = fixed_operand(c, 0);
	const AttributeProto *given = find_attr(c, "axis");
	int rank = val(g, x)->shape.rank, axis = given ? (int)axis_of(c, given->i, rank) : 0;
	for (int a = 0; a < rank; a++)
		if (count_along(c, 0, a) && (given ? a != axis : rank > 1))
			refuse_counts(c, 0);
	x = given ? x : flat(g, x);
	int64_t n = val(g, x)->shape.dim[axis];
	if (n > MOST_COMPARED)
		decline(c, "give it fewer entries",
		        "compares all %lld entries with each other; at most %d are supported",
		        (long long)n, MOST_COMPARED);
	Ref there = repeated(g, put_num(g, E_b8, 1), n), count = count_along(c, 0, axis);
	if (count)
		there = fill_behind(g, there, 0, count, 0);
	unique_entries(c, x, axis, there);
	if (c->nout > 2)
		c->counts[2].of[0] = count;
}

// ---- NonMaxSuppression ----------------------------------------------------------------

enum { MOST_ROUNDS = 256 };

typedef struct Boxes { // f32[images, 1, n]
	Ref low[2], high[2];
} Boxes;

static Boxes read_boxes(Call *c)
{
	Graph *g = c->g;
	Boxes b;
	Ref x[4], all = fixed_operand(c, 0);
	bool centred = attr_int(c, "center_point_box", 0);
	for (int k = 0; k < 4; k++)
		x[k] = put_permute(g, take_range(g, all, 2, k, 1), (int64_t[]){0, 2, 1});
	for (int a = 0; a < 2; a++) {
		Ref ends[2] = {x[a], x[a + 2]};
		if (centred) {
			Ref half = scaled(g, x[a + 2], 0.5);
			ends[0] = put2(g, O_sub, x[a], half);
			ends[1] = put2(g, O_add, x[a], half);
		}
		b.low[a] = put2(g, O_min, ends[0], ends[1]);
		b.high[a] = put2(g, O_max, ends[0], ends[1]);
	}
	return b;
}

// Those of box `at`, [images, classes, 1].
static Ref chosen(Graph *g, Ref hit, Ref x)
{
	int64_t axis = 2;
	return put_fold(g, O_sum, put3(g, O_select, hit, x, num_like(g, x, 0)), 1, &axis);
}

static Ref number_or(Call *c, int k, double otherwise)
{
	if (k >= c->nin || c->arg[k].absent)
		return put_num(c->g, E_f32, otherwise);
	return put_reshape(c->g, fixed_operand(c, k), (Shape){0});
}

// Each round takes the best box of each class of each image that is left, and those that overlap it
// too much away. scores: f32[images, classes, n], -inf: not there. Gives which box, and whether
// there was one, [images, classes, rounds].
static Ref choose_boxes(Call *c, Ref scores, int64_t rounds, Ref *found)
{
	Graph *g = c->g;
	Boxes b = read_boxes(c);
	int64_t axis = 2, n = val(g, scores)->shape.dim[2];
	bool known = is_const(g, scores) && is_const(g, b.low[0]);
	Ref most = number_or(c, 3, 0), places = put_rank(g, counting(g, n, known), 3);
	Ref none = put_num(g, E_f32, -INFINITY), *at = NEWS(g->arena, Ref, rounds + 1),
	    *there = NEWS(g->arena, Ref, rounds + 1);
	for (int64_t r = 0; r < rounds; r++) {
		at[r] = put_fold(g, O_argmax, scores, 1, &axis);
		there[r] = put2(g, O_lt, none, put_fold(g, O_amax, scores, 1, &axis));
		Ref hit = put2(g, O_eq, places, at[r]), in[8];
		for (int a = 0; a < 2; a++) {
			in[4 * a] = b.low[a];
			in[4 * a + 1] = b.high[a];
			in[4 * a + 2] = chosen(g, hit, b.low[a]);
			in[4 * a + 3] = chosen(g, hit, b.high[a]);
		}
		Ref overlap = book_call1(g, "overlap", 8, in, 0, NULL);
		Ref gone = put2(g, O_or, hit, put2(g, O_lt, most, overlap));
		scores = put3(g, O_select, gone, none, scores);
	}
	*found = rounds == 1 ? there[0] : put_concat(g, 2, (int)rounds, there);
	return rounds == 1 ? at[0] : put_concat(g, 2, (int)rounds, at);
}

// How many rounds there are at most; those after *most, if that is not known, find nothing.
static int64_t rounds_of(Call *c, int64_t n, Ref *most)
{
	Ref none = whole_number(c->g, 0);
	bool given = c->nin > 2 && !c->arg[2].absent;
	*most = given ? put_cast(c->g, put_reshape(c->g, fixed_operand(c, 2), (Shape){0}), E_i64)
	              : none;
	*most = larger_of(c->g, smaller_of(c->g, *most, whole_number(c->g, n)), none);
	int64_t rounds = extent_of(c, *most, "how many boxes it gives").most;
	if (rounds > MOST_ROUNDS)
		decline(c,
		        "export with a smaller max_output_boxes_per_class, or give it fewer boxes",
		        "chooses up to %lld boxes of a class, one after the other; at most %d are "
		        "supported",
		        (long long)rounds, MOST_ROUNDS);
	return rounds;
}

// The scores, -inf for boxes that are not there, or score too little.
static Ref scores_there(Call *c)
{
	Graph *g = c->g;
	Ref scores = fixed_operand(c, 1), none = num_like(g, scores, -INFINITY);
	const Ref counts[] = {count_along(c, 0, 0), 0, count_along(c, 0, 1)};
	for (int a = 0; a < 3; a++) {
		Ref count = count_along(c, 1, a) ? count_along(c, 1, a) : counts[a];
		scores = count ? fill_behind(g, scores, a, count, -INFINITY) : scores;
	}
	if (c->nin < 5 || c->arg[4].absent)
		return scores;
	return put3(g, O_select, put2(g, O_lt, number_or(c, 4, 0), scores), scores, none);
}

void lower_nms(Call *c)
{
	Graph *g = c->g;
	Shape boxes = in_val(c, 0)->shape, s = in_val(c, 1)->shape;
	if (boxes.rank != 3 || boxes.dim[2] != 4 || s.rank != 3 || s.dim[0] != boxes.dim[0] ||
	    s.dim[2] != boxes.dim[1])
		refuse(c, "wants boxes [images, n, 4] and scores [images, classes, n]");
	Ref most, found, count;
	int64_t rounds = rounds_of(c, s.dim[2], &most);
	if (!rounds || !count_of(&s)) {
		c->out[0] = put_const(g, E_i64, shape_of(2, (int64_t[]){0, 3}), "");
		return;
	}
	Ref at = choose_boxes(c, scores_there(c), rounds, &found);
	if (!is_const(g, most))
		found = fill_behind(g, found, 2, most, 0);
	Ref place = places_where(g, flat(g, found), &count), column[3];
	column[0] = put2(g, O_div, place, whole_number(g, s.dim[1] * rounds));
	column[1] = put2(g, O_div, place, whole_number(g, rounds));
	column[1] = put2(g, O_mod, column[1], whole_number(g, s.dim[1]));
	column[2] = put_gather(g, flat(g, at), place, 0);
	for (int k = 0; k < 3; k++)
		column[k] = insert_axis(g, column[k], 1);
	c->out[0] = put_concat(g, 1, 3, column);
	c->counts[0].of[0] = count;
}

// ---- TfIdfVectorizer ------------------------------------------------------------------

// How often the words `gram` stand in the line x, `skip` apart.
static int64_t times_in(const Val *x, int64_t line, int64_t length, const int64_t *gram, int64_t n,
                        int64_t step)
{
	int64_t times = 0;
	for (int64_t i = 0; i + (n - 1) * step < length; i++) {
		bool same = true;
		for (int64_t k = 0; k < n && same; k++)
			same = const_int_at(x, line * length + i + k * step) == gram[k];
		times += same;
	}
	return times;
}

typedef struct Grams { // the attributes that list them
	const int64_t *pool, *starts, *places;
	int npool, nstarts, nplaces;
} Grams;

static Grams read_grams(Call *c)
{
	Grams all = {0};
	all.pool = attr_ints(c, "pool_int64s", &all.npool);
	all.starts = attr_ints(c, "ngram_counts", &all.nstarts);
	all.places = attr_ints(c, "ngram_indexes", &all.nplaces);
	if (!all.pool || !all.starts || !all.places)
		refuse(c, "wants pool_int64s, ngram_counts and ngram_indexes: text is counted "
		          "before the model");
	return all;
}

static double counted(Call *c, int number, double times)
{
	const char *mode = attr_string(c, "mode", "TF");
	const AttributeProto *weights = find_attr(c, "weights");
	double weight = weights && number < (int)weights->n_floats ? weights->floats[number] : 1;
	if (!strcmp(mode, "TF"))
		return times;
	return !strcmp(mode, "IDF") ? (times > 0) * weight : times * weight;
}

void lower_tfidf(Call *c)
{
	const Val *x = val(c->g, constant_operand(c, 0));
	Grams all = read_grams(c);
	int64_t length = x->shape.rank ? x->shape.dim[x->shape.rank - 1] : 1, width = 0;
	int64_t lines = length ? count_of(&x->shape) / length : 0;
	int64_t shortest = attr_int(c, "min_gram_length", 1),
	        longest = attr_int(c, "max_gram_length", 1),
	        skips = attr_int(c, "max_skip_count", 0);
	for (int i = 0; i < all.nplaces; i++)
		width = MAX(width, all.places[i] + 1);
	float *out = NEWS(c->r->arena, float, lines *width + 1);
	int number = 0;
	for (int n = 1; n <= all.nstarts; n++) {
		int64_t end = n < all.nstarts ? all.starts[n] : all.npool;
		for (int64_t at = all.starts[n - 1]; at + n <= end && number < all.nplaces;
		     at += n, number++) {
			for (int64_t line = 0; line < lines; line++) {
				double times = 0;
				for (int64_t skip = 0; skip <= (n > 1 ? skips : 0); skip++)
					if (n >= shortest && n <= longest)
						times += (double)times_in(
						    x, line, length, all.pool + at, n, skip + 1);
				out[line * width + all.places[number]] +=
				    (float)counted(c, number, times);
			}
		}
	}
	int64_t dims[] = {lines, width};
	bool one = x->shape.rank < 2;
	c->out[0] = put_const(c->g, E_f32, shape_of(2 - one, dims + one), out);
}

// ---- BitCast --------------------------------------------------------------------------

// The bits that the file's type gives number `x`; floats of 64 bits are computed in 32.
static uint64_t bits_of(const Val *v, int64_t i, Elem type)
{
	Shape one = {0};
	uint64_t bits = 0;
	double number = const_at(v, i);
	Array a = {.type = type, .shape = one};
	int64_t whole = is_float(v->type) ? 0 : const_int_at(v, i);
	if (is_float(type))
		a.f = &number;
	else
		a.i = &whole;
	array_to(&a, &bits);
	return bits;
}

void lower_bit_cast(Call *c)
{
	const Val *v = val(c->g, constant_operand(c, 0));
	int to = declared_type((int)attr_int(c, "to", 0));
	Elem from = (Elem)declared_type(operand_type(c, 0));
	if (to < 0 || elems[to].bytes != elems[from].bytes ||
	    find_format((int)attr_int(c, "to", 0)))
		refuse(c, "from %s to type %lld, which amosc does not compute with",
		       elems[from].name, (long long)attr_int(c, "to", 0));
	int64_t n = count_of(&v->shape);
	uint8_t *bytes = take(c->r->arena, (size_t)(n * elems[to].bytes) + 8);
	for (int64_t i = 0; i < n; i++) {
		uint64_t bits = bits_of(v, i, from);
		memcpy(bytes + i * elems[to].bytes, &bits, (size_t)elems[to].bytes);
	}
	Ref x = put_const(c->g, (Elem)to, v->shape, bytes);
	c->onnx = elems[to].onnx;
	c->out[0] = put_cast(c->g, x, (Elem)working_type(c->onnx));
}
