// count.c: ONNX operators whose results are as many as the data say: NonZero, Compress, Unique,
// NonMaxSuppression, TfIdfVectorizer's counts, and bits read as another type. Takes the node being
// lowered. Gives its results. Keeps: shapes are numbers, so what decides them must be known when
// the file is read.
#include "lower.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- NonZero, Compress ----------------------------------------------------------------

void lower_nonzero(Call *c)
{
	const Val *x = val(c->g, constant_operand(c, 0));
	int64_t total = count_of(&x->shape), found = 0, stride[RANK];
	row_strides(&x->shape, stride);
	for (int64_t i = 0; i < total; i++)
		found += const_at(x, i) != 0;
	int64_t dims[2] = {x->shape.rank, found},
	        *at = NEWS(c->r->arena, int64_t, dims[0] * found + 1), n = 0;
	for (int64_t i = 0; i < total; i++) {
		if (const_at(x, i) == 0)
			continue;
		for (int a = 0; a < x->shape.rank; a++)
			at[a * found + n] = i / stride[a] % x->shape.dim[a];
		n++;
	}
	c->out[0] = put_const(c->g, E_i64, shape_of(2, dims), at);
}

void lower_compress(Call *c)
{
	Graph *g = c->g;
	in_val(c, 0), in_val(c, 1);
	const AttributeProto *given = find_attr(c, "axis");
	Ref x = given ? c->in[0] : merge_axes(g, c->in[0], 0, val(g, c->in[0])->shape.rank);
	Shape s = val(g, x)->shape;
	int axis = given ? (int)axis_of(c, given->i, s.rank) : 0, n = 0, kept = 0;
	const int64_t *keep = operand_ints(c, 1, &n);
	int64_t *at = NEWS(c->r->arena, int64_t, n + 1);
	for (int i = 0; i < n && i < s.dim[axis]; i++)
		if (keep[i])
			at[kept++] = i;
	c->out[0] = put_gather(g, x, put_ints(g, kept, at), axis);
}

// ---- Unique ---------------------------------------------------------------------------

typedef struct Slice { // one entry along the axis, as numbers to compare
	const double *at;
	int64_t size, place;
} Slice;

static int compare_slices(const void *a, const void *b)
{
	const Slice *x = a, *y = b;
	for (int64_t i = 0; i < x->size; i++)
		if (x->at[i] != y->at[i])
			return x->at[i] < y->at[i] ? -1 : 1;
	return x->place < y->place ? -1 : x->place > y->place;
}

static bool same_slice(const Slice *a, const Slice *b)
{
	return !memcmp(a->at, b->at, sizeof *a->at * (size_t)a->size);
}

static int compare_first(const void *a, const void *b)
{
	const int64_t *x = a, *y = b;
	return x[0] < y[0] ? -1 : x[0] > y[0];
}

// The operand's entries along `axis`, each as one row.
static Slice *slices_of(Call *c, const Val *x, int axis)
{
	int64_t n = x->shape.dim[axis], size = count_of(&x->shape) / MAX(n, 1), stride[RANK];
	Slice *slice = NEWS(c->r->arena, Slice, n + 1);
	double *at = NEWS(c->r->arena, double, n *size + 1);
	row_strides(&x->shape, stride);
	for (int64_t i = 0; i < n * size; i++) {
		int64_t place = i / stride[axis] % n, high = i / (stride[axis] * n);
		at[place * size + high * stride[axis] + i % stride[axis]] = const_at(x, i) + 0.0;
	}
	for (int64_t k = 0; k < n; k++)
		slice[k] = (Slice){at + k * size, size, k};
	return slice;
}

void lower_unique(Call *c)
{
	Graph *g = c->g;
	Ref x = constant_operand(c, 0);
	const AttributeProto *given = find_attr(c, "axis");
	if (!given)
		x = merge_axes(g, x, 0, val(g, x)->shape.rank);
	int axis = given ? (int)axis_of(c, given->i, val(g, x)->shape.rank) : 0;
	int64_t n = val(g, x)->shape.dim[axis], kinds = 0;
	Slice *slice = slices_of(c, val(g, x), axis);
	qsort(slice, (size_t)n, sizeof *slice, compare_slices);
	int64_t(*kind)[3] =
	    take(c->r->arena, sizeof *kind * (size_t)(n + 1)); // first, count, number
	int64_t *of = NEWS(c->r->arena, int64_t, n + 1);
	for (int64_t k = 0; k < n; k++) {
		if (!k || !same_slice(&slice[k - 1], &slice[k])) {
			kind[kinds][0] = slice[k].place;
			kind[kinds][2] = kinds;
			kinds++;
		}
		kind[kinds - 1][1]++;
		of[slice[k].place] = kinds - 1;
	}
	if (!attr_int(c, "sorted", 1))
		qsort(kind, (size_t)kinds, sizeof *kind, compare_first);
	int64_t *first = NEWS(c->r->arena, int64_t, kinds + 1),
	        *count = NEWS(c->r->arena, int64_t, kinds + 1),
	        *number = NEWS(c->r->arena, int64_t, kinds + 1);
	for (int64_t k = 0; k < kinds; k++) {
		first[k] = kind[k][0];
		count[k] = kind[k][1];
		number[kind[k][2]] = k;
	}
	for (int64_t k = 0; k < n; k++)
		of[k] = number[of[k]];
	Ref at = put_ints(g, (int)kinds, first);
	Ref out[4] = {put_gather(g, x, at, axis), at, put_ints(g, (int)n, of),
	              put_ints(g, (int)kinds, count)};
	memcpy(c->out, out, sizeof *out * (size_t)MIN(c->nout, 4));
}

// ---- NonMaxSuppression ----------------------------------------------------------------

typedef struct Box {
	double low[2], high[2];
} Box;

static Box box_at(const Val *boxes, int64_t i, bool centred)
{
	double x[4];
	Box b;
	for (int k = 0; k < 4; k++)
		x[k] = const_at(boxes, 4 * i + k);
	for (int a = 0; a < 2; a++) {
		double from = centred ? x[a] - x[2 + a] / 2 : x[a];
		double to = centred ? x[a] + x[2 + a] / 2 : x[2 + a];
		b.low[a] = fmin(from, to);
		b.high[a] = fmax(from, to);
	}
	return b;
}

static double area(const Box *b)
{
	return fmax(b->high[0] - b->low[0], 0) * fmax(b->high[1] - b->low[1], 0);
}

// Intersection over union.
static double overlap(const Box *a, const Box *b)
{
	Box both;
	for (int k = 0; k < 2; k++) {
		both.low[k] = fmax(a->low[k], b->low[k]);
		both.high[k] = fmin(a->high[k], b->high[k]);
	}
	double shared = area(&both), all = area(a) + area(b) - shared;
	return all > 0 ? shared / all : 0;
}

typedef struct Choice { // of boxes for one class of one image
	const Box *box;
	const double *score;
	int64_t n, most;
	double overlap, least;
} Choice;

// The best boxes that overlap none better: their numbers, into `out`. Answers how many.
static int64_t choose_boxes(const Choice *c, bool *gone, int64_t *out)
{
	int64_t found = 0;
	while (found < c->most) {
		int64_t best = -1;
		for (int64_t i = 0; i < c->n; i++)
			if (!gone[i] && c->score[i] > c->least &&
			    (best < 0 || c->score[i] > c->score[best]))
				best = i;
		if (best < 0)
			break;
		out[found++] = best;
		for (int64_t i = 0; i < c->n; i++)
			gone[i] |= i == best || overlap(&c->box[i], &c->box[best]) > c->overlap;
	}
	return found;
}

void lower_nms(Call *c)
{
	const Val *boxes = val(c->g, constant_operand(c, 0)),
	          *scores = val(c->g, constant_operand(c, 1));
	int64_t images = boxes->shape.dim[0], n = boxes->shape.dim[1];
	int64_t classes = scores->shape.dim[1];
	if (boxes->shape.rank != 3 || boxes->shape.dim[2] != 4 || scores->shape.rank != 3 ||
	    scores->shape.dim[0] != images || scores->shape.dim[2] != n)
		refuse(c, "wants boxes [images, n, 4] and scores [images, classes, n]");
	int64_t most = (int64_t)number_of(c, 2, "", 0), found = 0;
	Choice choice = {.n = n,
	                 .most = MIN(most, n),
	                 .overlap = number_of(c, 3, "", 0),
	                 .least = number_of(c, 4, "", -INFINITY)};
	int64_t *out = NEWS(c->r->arena, int64_t, images * classes * choice.most * 3 + 1);
	int64_t *best = NEWS(c->r->arena, int64_t, n + 1);
	Box *box = NEWS(c->r->arena, Box, n + 1);
	double *score = NEWS(c->r->arena, double, n + 1);
	choice.box = box;
	choice.score = score;
	for (int64_t i = 0; i < images * classes; i++) {
		for (int64_t k = 0; k < n; k++) {
			box[k] =
			    box_at(boxes, i / classes * n + k, attr_int(c, "center_point_box", 0));
			score[k] = const_at(scores, i * n + k);
		}
		int64_t kept = choose_boxes(&choice, NEWS(c->r->arena, bool, n + 1), best);
		for (int64_t k = 0; k < kept; k++) {
			const int64_t row[] = {i / classes, i % classes, best[k]};
			memcpy(out + 3 * found++, row, sizeof row);
		}
	}
	c->out[0] = put_const(c->g, E_i64, shape_of(2, (int64_t[]){found, 3}), out);
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
	int64_t whole = elems[v->type].cls == 'f' ? 0 : const_int_at(v, i);
	if (elems[type].cls == 'f')
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
