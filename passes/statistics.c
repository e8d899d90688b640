// statistics.c: rewrites sums over columns, as norms of batches take them.
// The kernel of a product adds up columns of its result as they leave the tile, for little more
// than each sum costs. In exact arithmetic these are equal, but the second reads less:
//   sum(x * c)        c * sum(x), c a number for each column, if there is another sum of x that
//                     differs by such factors alone: both become one
//   sum((x - mean)^2) sum(x^2) - mean * sum(x): it needs no mean first, so no second pass
// The difference loses digits if the mean is large, but x, rounded to bf16, lost more: an error of
// 2^-9 mean in x is 2^-18 mean^2 in the square, and f32 has 2^-24. Sums of f32 stay as they are.
#include "passes.h"

enum { FACTORS = 8 };

typedef struct Factors {
	int n;
	Ref at[FACTORS];
} Factors;

// True if x has one element along each of the axes that are reduced.
static bool is_constant_along(const Graph *g, Ref x, const Val *sum)
{
	const Shape *s = &val(g, x)->shape;
	for (int i = 0; i < sum->attr->n; i++)
		if (s->rank && s->dim[sum->attr->i[i]] != 1)
			return false;
	return true;
}

// Adds the factors of x, which has as many products above it as depth says, to those that are
// constant along the reduced axes, and to others. False: there are too many.
static bool find_factors(const Graph *g, Ref x, const Val *sum, int depth, Factors *constant,
                         Factors *other)
{
	const Val *v = val(g, x);
	bool is = is_constant_along(g, x, sum);
	if (!is && v->op == O_mul)
		return depth < 2 * FACTORS &&
		       find_factors(g, v->in[0], sum, depth + 1, constant, other) &&
		       find_factors(g, v->in[1], sum, depth + 1, constant, other);
	Factors *to = is ? constant : other;
	if (to->n == FACTORS)
		return false;
	to->at[to->n++] = x;
	return true;
}

static Ref put_product(Graph *g, const Factors *f)
{
	Ref product = f->at[0];
	for (int i = 1; i < f->n; i++)
		product = put2(g, O_mul, product, f->at[i]);
	return product;
}

// Returns the sum without constant factors, times these; 0: there are none.
static Ref put_factored(Graph *g, const Val *sum, Ref x)
{
	Factors constant = {0}, other = {0};
	if (!find_factors(g, x, sum, 0, &constant, &other) || !constant.n || !other.n)
		return 0;
	Ref product = put_product(g, &other);
	if (!same_shape(&val(g, product)->shape, &val(g, x)->shape))
		return 0;
	return put2(g, O_mul, put_product(g, &constant),
	            put_reduce(g, O_sum, product, sum->attr->n, sum->attr->i));
}

// Returns how many sums have the factors of this one that are not constant; NULL: there are none.
static uint64_t *sums_alike(const Graph *g, Table *sums, const Val *sum)
{
	Factors constant = {0}, other = {0};
	if (!find_factors(g, sum->in[0], sum, 0, &constant, &other) || !other.n)
		return NULL;
	sort_refs(other.n, other.at);
	return table_cell(sums, other.at, sizeof *other.at * (size_t)other.n);
}

// True if x is rounded, perhaps reshaped.
static bool is_rounded(const Graph *g, Ref x)
{
	const Val *v = val(g, unreshaped(g, x));
	return v->op == O_cast && val(g, v->in[0])->type == E_bf16;
}

// True if x is the square of a rounded value's distance from its mean.
static bool is_moment(const Graph *g, const Val *sum, Ref x)
{
	const Val *square = val(g, x);
	if (square->op != O_mul || square->in[0] != square->in[1])
		return false;
	const Val *distance = val(g, square->in[0]);
	if (distance->op != O_sub)
		return false;
	Ref from = distance->in[0];
	const Val *quotient = val(g, distance->in[1]);
	if (quotient->op != O_div)
		return false;
	const Val *first = val(g, quotient->in[0]);
	return first->op == O_sum && first->in[0] == from &&
	       same_shape(&first->shape, &sum->shape) && is_rounded(g, from);
}

static Ref put_moment(Graph *g, const Val *sum, Ref x)
{
	const Val *distance = val(g, val(g, x)->in[0]);
	Ref from = distance->in[0], mean = distance->in[1];
	const Val *quotient = val(g, mean);
	Ref squares = put2(g, O_mul, from, from);
	squares = put_reduce(g, O_sum, squares, sum->attr->n, sum->attr->i);
	Ref moment = put2(g, O_sub, squares, put2(g, O_mul, mean, quotient->in[0]));
	return put2(g, O_max, moment, put_num(g, E_f32, 0));
}

// True for a sum over all axes but the last.
static bool sums_columns(const Graph *g, const Val *v)
{
	return v->op == O_sum && v->type == E_f32 && last_dim(&v->shape) > 1 &&
	       count_of(&v->shape) == last_dim(&v->shape) &&
	       count_of(&val(g, v->in[0])->shape) > count_of(&v->shape);
}

typedef struct Statistics {
	const Graph *from;
	Table *sums; // see sums_alike()
} Statistics;

static Ref put_statistic(void *context, Graph *to, const Val *v, const Ref *in)
{
	const Statistics *s = context;
	const uint64_t *alike = sums_columns(s->from, v) ? sums_alike(s->from, s->sums, v) : NULL;
	Ref r = 0;
	if (alike && is_moment(to, v, in[0]))
		r = put_moment(to, v, in[0]);
	else if (alike && *alike > 1)
		r = put_factored(to, v, in[0]);
	return r ? r : put_as(to, v, in);
}

const Graph *statistics_pass(Arena *arena, const Graph *from)
{
	Statistics s = {from, table_new(arena)};
	bool some = false;
	for (Ref r = 1; r < (Ref)from->nval; r++) {
		const Val *v = val(from, r);
		uint64_t *alike = sums_columns(from, v) ? sums_alike(from, s.sums, v) : NULL;
		if (alike)
			some |= (*alike)++ || is_moment(from, v, v->in[0]);
	}
	if (!some)
		return from;
	Graph *to = graph_like(arena, from);
	copy_graph(to, from, NULL, put_statistic, &s);
	return to;
}
