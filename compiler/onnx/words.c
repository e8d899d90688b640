// words.c: ONNX TfIdfVectorizer: how often sequences of words stand in lines. Takes the node being
// lowered; words are whole numbers that are known when the file is read. Gives the counts.
#include "lower.h"
#include <string.h>

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
