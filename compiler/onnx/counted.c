// counted.c: sizes that depend on the data. Shapes are numbers, so such a value has the most that
// it can be as dimension, and its name carries, axis by axis, how many entries are there
// (Value.counts). Takes the node being lowered and counts.def. Gives the counts of its results.
// Keeps: what lies behind the counted entries is a copy of one that counts, so that it makes no
// numbers that these do not make; no result depends on it, so that it passes no gradient on.
#include "lower.h"
#include <math.h>
#include <string.h>

// ---- operands -------------------------------------------------------------------------

static const Counts none;

static const Counts *counts_of(const Call *c, int k)
{
	return k < c->nin && c->arg[k].counts ? c->arg[k].counts : &none;
}

bool any_counted(const Call *c)
{
	for (int k = 0; k < c->nin; k++)
		if (c->arg[k].counts)
			return true;
	return false;
}

Ref count_along(const Call *c, int k, int axis)
{
	return counts_of(c, k)->of[axis];
}

Ref whole_number(Graph *g, int64_t x)
{
	return put_const(g, E_i64, (Shape){0}, &x);
}

Ref length_along(const Call *c, int k, int axis)
{
	Ref count = count_along(c, k, axis);
	return count ? count : whole_number(c->g, in_val(c, k)->shape.dim[axis]);
}

void refuse_counts(const Call *c, int k)
{
	const Counts *counts = counts_of(c, k);
	int axis = 0;
	while (!counts->of[axis])
		axis++;
	stand_for(c->r, counts->of[axis]);
	decline(c, "multiply by the mask instead of selecting entries, or export with fixed sizes",
	        "how long operand %d ('%s') is along axis %d depends on the data (at most %lld); "
	        "amosc needs it fixed here",
	        k, c->node->input[k], axis, (long long)in_val(c, k)->shape.dim[axis]);
}

// ---- padding --------------------------------------------------------------------------

static Ref is_there(Graph *g, const Shape *s, int axis, Ref count)
{
	Shape line = {.rank = s->rank};
	for (int a = 0; a < s->rank; a++)
		line.dim[a] = a == axis ? s->dim[a] : 1;
	return put2(g, O_lt, put_iota(g, line, axis), count);
}

Ref copy_behind(Graph *g, Ref x, int axis, Ref count)
{
	Shape s = val(g, x)->shape;
	if (!s.dim[axis])
		return x;
	return put3(g, O_select, is_there(g, &s, axis, count), x, take_range(g, x, axis, 0, 1));
}

// The number of x's type: its least and largest for what is not finite.
static Ref number_like(Graph *g, Ref x, double number)
{
	Elem type = val(g, x)->type;
	if (type == E_b8)
		return put_num(g, type, number > 0);
	if (elems[type].cls == 'f' || isfinite(number))
		return put_num(g, type, number);
	return put_num(g, type, copysign(type == E_i32 ? 0x7FFFFFFF : 0x1p53, number));
}

Ref fill_behind(Graph *g, Ref x, int axis, Ref count, double with)
{
	Shape s = val(g, x)->shape;
	return put3(g, O_select, is_there(g, &s, axis, count), x, number_like(g, x, with));
}

Ref fill_counted(Call *c, int k, int axis, double with)
{
	Ref count = count_along(c, k, axis);
	return count ? fill_behind(c->g, c->in[k], axis, count, with) : c->in[k];
}

// ---- what numbers can be --------------------------------------------------------------

enum { LOOKS = 4096 }; // values looked at to find the limits of one

static const Limits unlimited = {-INFINITY, INFINITY};

static Limits hull(Limits a, Limits b)
{
	return (Limits){fmin(a.low, b.low), fmax(a.high, b.high)};
}

static Limits of_const(const Val *v)
{
	int64_t n = count_of(&v->shape);
	if (!n || n > FOLD_LIMIT)
		return unlimited;
	Limits l = {const_at(v, 0), const_at(v, 0)};
	for (int64_t i = 1; i < n; i++)
		l = hull(l, (Limits){const_at(v, i), const_at(v, i)});
	return l;
}

static Limits of_corners(Op op, Limits a, Limits b)
{
	double x[] = {a.low, a.high}, y[] = {b.low, b.high};
	Limits l = {INFINITY, -INFINITY};
	if (op == O_div && b.low <= 0)
		return unlimited;
	for (int k = 0; k < 4; k++) {
		double z = op == O_div ? trunc(x[k / 2] / y[k % 2]) : x[k / 2] * y[k % 2];
		if (isnan(z))
			return unlimited;
		l = hull(l, (Limits){z, z});
	}
	return l;
}

static Limits of_map(const Val *v, Limits a, Limits b)
{
	switch (v->op) {
	case O_add:
		return (Limits){a.low + b.low, a.high + b.high};
	case O_sub:
		return (Limits){a.low - b.high, a.high - b.low};
	case O_mul:
		return of_corners(O_mul, a, b);
	case O_div:
		return elems[v->type].cls == 'f' ? unlimited : of_corners(O_div, a, b);
	case O_max:
		return (Limits){fmax(a.low, b.low), fmax(a.high, b.high)};
	case O_min:
		return (Limits){fmin(a.low, b.low), fmin(a.high, b.high)};
	case O_neg:
		return (Limits){-a.high, -a.low};
	case O_sign:
		return (Limits){-1, 1};
	case O_floor:
		return (Limits){floor(a.low), floor(a.high)};
	case O_ceil:
		return (Limits){ceil(a.low), ceil(a.high)};
	case O_cast:
		return a;
	case O_mod:
		return b.low > 0 ? (Limits){0, b.high} : unlimited;
	default:
		return unlimited;
	}
}

static Limits look(Graph *g, Ref r, int *looks);

// A product of few numbers that are put together: how many elements a value of some shape has.
static Limits of_product(Graph *g, Ref x, int *looks)
{
	Limits l = {1, 1};
	int64_t n = count_of(&val(g, x)->shape);
	for (int64_t i = 0; i < n && n <= RANK; i++)
		l = of_corners(O_mul, l, look(g, take_range(g, x, 0, i, 1), looks));
	return n <= RANK ? l : unlimited;
}

static Limits of_fold(Graph *g, const Val *v, int *looks)
{
	Ref x = v->in[0];
	Shape s = val(g, x)->shape;
	double times = (double)count_of(&s) / (double)MAX(count_of(&v->shape), 1);
	switch (v->op) {
	case O_sum:
		return of_corners(O_mul, look(g, x, looks), (Limits){times, times});
	case O_prod:
		return s.rank == 1 ? of_product(g, x, looks) : unlimited;
	case O_argmax:
		return (Limits){0, times - 1};
	case O_amax:
	case O_amin:
		return look(g, x, looks);
	default:
		return unlimited;
	}
}

static Limits of_operands(Graph *g, const Val *v, int from, int *looks)
{
	Limits l = look(g, v->in[from], looks);
	for (int k = from + 1; k < v->nin; k++)
		l = hull(l, look(g, v->in[k], looks));
	return l;
}

static Limits look(Graph *g, Ref r, int *looks)
{
	Val v = *val(g, r); // values may move
	if (!count_of(&v.shape) || --*looks < 0)
		return unlimited;
	if (v.op == O_const)
		return of_const(&v);
	if (v.type == E_b8)
		return (Limits){0, 1};
	switch (prims[v.op].cls) {
	case C_fold:
		return of_fold(g, &v, looks);
	case C_move:
		return v.op == O_pad || v.op == O_window ? unlimited : of_operands(g, &v, 0, looks);
	case C_map:
		if (v.op == O_select)
			return of_operands(g, &v, 1, looks);
		return of_map(&v, look(g, v.in[0], looks),
		              v.nin > 1 ? look(g, v.in[1], looks) : unlimited);
	default:
		return v.op == O_iota ? (Limits){0, (double)v.shape.dim[v.attr->i[0]] - 1}
		                      : unlimited;
	}
}

Limits limits_of(Graph *g, Ref r)
{
	int looks = LOOKS;
	return look(g, r, &looks);
}

// a, or b, or what op makes of them, as their limits tell. The result is shaped as a.
static Ref either(Graph *g, Op op, Ref a, Ref b, bool first, bool second)
{
	second &= same_shape(&val(g, a)->shape, &val(g, b)->shape);
	return first ? a : second ? b : put2(g, op, a, b);
}

Ref smaller_of(Graph *g, Ref a, Ref b)
{
	Limits x = limits_of(g, a), y = limits_of(g, b);
	return either(g, O_min, a, b, x.high <= y.low, y.high <= x.low);
}

Ref larger_of(Graph *g, Ref a, Ref b)
{
	Limits x = limits_of(g, a), y = limits_of(g, b);
	return either(g, O_max, a, b, x.low >= y.high, y.low >= x.high);
}

Ref from_end(Graph *g, Ref at, Ref length)
{
	if (limits_of(g, at).low >= 0)
		return at;
	Ref behind = put2(g, O_lt, at, put_num(g, E_i64, 0));
	return put3(g, O_select, behind, put2(g, O_add, at, length), at);
}

// ---- sizes ----------------------------------------------------------------------------

// Entry i of a list, as i64 of rank 0: what is computed entry by entry is computed for it alone.
static Ref entry_of(Graph *g, Ref x, int64_t i)
{
	Val v = *val(g, x);
	if (count_of(&v.shape) == 1)
		return put_cast(g, put_reshape(g, x, (Shape){0}), E_i64);
	if (prims[v.op].cls != C_map)
		return put_cast(g, put_reshape(g, take_range(g, x, 0, i, 1), (Shape){0}), E_i64);
	Ref in[3];
	for (int k = 0; k < v.nin; k++)
		in[k] = count_of(&val(g, v.in[k])->shape) == 1
		            ? put_reshape(g, v.in[k], (Shape){0})
		            : put_reshape(g, take_range(g, v.in[k], 0, i, 1), (Shape){0});
	return put_cast(g, put_as(g, &v, in), E_i64);
}

Ref fixed_operand(Call *c, int k)
{
	in_val(c, k);
	return c->arg[k].weight ? weight_constant(c->r, c->arg[k].weight) : c->in[k];
}

static Ref *attr_entries(Call *c, const char *name, int *n)
{
	const int64_t *ints = attr_ints(c, name, n);
	Ref *entry = NEWS(c->r->arena, Ref, *n + 1);
	for (int i = 0; ints && i < *n; i++)
		entry[i] = whole_number(c->g, ints[i]);
	return ints ? entry : NULL;
}

Ref *entries_of(Call *c, int k, const char *name, int *n)
{
	if (k >= c->nin || c->arg[k].absent)
		return attr_entries(c, name, n);
	Ref x = fixed_operand(c, k);
	Shape s = val(c->g, x)->shape;
	*n = (int)count_of(&s);
	if (!is_const(c->g, x) && (*n > NUMS || s.rank > 1))
		refuse_computed(c, x,
		                format(c->r->arena, "operand %d ('%s')", k, c->node->input[k]));
	x = merge_axes(c->g, x, 0, s.rank);
	Ref *entry = NEWS(c->r->arena, Ref, *n + 1);
	for (int i = 0; i < *n; i++)
		entry[i] = entry_of(c->g, x, i);
	return entry;
}

Extent extent_of(const Call *c, Ref size, const char *what)
{
	if (is_const(c->g, size))
		return (Extent){const_int_at(val(c->g, size), 0), 0};
	Limits l = limits_of(c->g, size);
	if (!(l.high < 0x1p31))
		refuse_computed(c, size, what);
	return (Extent){(int64_t)fmax(l.high, 0), size};
}

Extent extent_along(const Call *c, int k, int axis)
{
	return (Extent){in_val(c, k)->shape.dim[axis], count_along(c, k, axis)};
}

Extent extent_product(Graph *g, Extent a, Extent b)
{
	Extent p = {a.most * b.most, 0};
	if (a.count || b.count)
		p.count = put2(g, O_mul, a.count ? a.count : whole_number(g, a.most),
		               b.count ? b.count : whole_number(g, b.most));
	return p;
}

Extent *extents_of(Call *c, int k, const char *name, int *n)
{
	Ref *entry = entries_of(c, k, name, n);
	if (!entry)
		return NULL;
	Extent *extent = NEWS(c->r->arena, Extent, *n + 1);
	for (int i = 0; i < *n; i++)
		extent[i] = extent_of(c, entry[i], format(c->r->arena, "operand %d", k));
	return extent;
}

// ---- reshaping ------------------------------------------------------------------------

// A number of elements: a product of numbers known and counts.
typedef struct Product {
	int64_t known;
	Ref count[RANK];
	int n;
} Product;

static void times_size(Product *p, int64_t size, Ref count)
{
	if (count)
		p->count[p->n++] = count;
	else
		p->known *= size;
}

// Common factors go.
static void cancel(Product *p, Product *q)
{
	for (int i = 0; i < p->n; i++)
		for (int j = 0; j < q->n; j++)
			if (p->count[i] == q->count[j]) {
				p->count[i--] = p->count[--p->n];
				q->count[j] = q->count[--q->n];
				break;
			}
	int64_t common = common_divisor(p->known, q->known);
	p->known /= MAX(common, 1);
	q->known /= MAX(common, 1);
}

static Ref product_of(Graph *g, const Product *p)
{
	Ref r = whole_number(g, p->known);
	for (int i = 0; i < p->n; i++)
		r = put2(g, O_mul, r, p->count[i]);
	return r;
}

static Ref quotient(Graph *g, Product p, Product q)
{
	Ref r = product_of(g, &p);
	if (!q.n && q.known == 1)
		return r;
	Ref by = product_of(g, &q);
	return put2(g, O_div, r, larger_of(g, by, put_num(g, E_i64, 1)));
}

// The size that is left open, from the others.
static void close_open(Graph *g, const Shape *s, const Counts *from, int n, Extent *to, int open)
{
	Product all = {.known = 1}, rest = all;
	int64_t most = 1;
	for (int a = 0; a < s->rank; a++)
		times_size(&all, s->dim[a], from->of[a]);
	for (int b = 0; b < n; b++) {
		if (b == open)
			continue;
		times_size(&rest, to[b].most, to[b].count);
		most *= to[b].most;
	}
	cancel(&all, &rest);
	to[open].most = most ? count_of(s) / most : 0;
	Ref size = quotient(g, all, rest);
	to[open].count = is_const(g, size) ? 0 : size;
	if (!to[open].count && all.known)
		to[open].most = const_int_at(val(g, size), 0);
}

// The one counted axis among axes from..end-1, if it is the first of them that is longer than 1: so
// what is there comes first. -1: none; -2: it is not so.
static int leading(int from, int end, const int64_t *dim, const Ref *count)
{
	int found = -1;
	bool first = true;
	for (int a = from; a < end; a++) {
		if (count[a] && (!first || found >= 0))
			return -2;
		if (count[a])
			found = a;
		first &= dim[a] == 1;
	}
	return found;
}

// Are the entries that are there in the same places when x is reshaped whole? Axes that keep their
// size keep their count.
static bool keeps_places(const Shape *s, const Counts *from, int n, Extent *to)
{
	int64_t dim[RANK], p = 1, q = 1;
	Ref count[RANK];
	for (int b = 0; b < n; b++) {
		dim[b] = to[b].most;
		count[b] = to[b].count;
	}
	for (int a = 0, b = 0, i = 0, j = 0; a < s->rank || b < n; i = a, j = b) {
		do {
			if (a < s->rank && (p <= q || b == n))
				p *= s->dim[a++];
			else
				q *= dim[b++];
		} while (p != q && (a < s->rank || b < n));
		int x = leading(i, a, s->dim, from->of), y = leading(j, b, dim, count);
		if (p != q || x == -2 || y == -2 || (x < 0) != (y < 0))
			return false;
		if (x >= 0 && s->dim[x] == dim[y])
			to[y].count = from->of[x];
	}
	return true;
}

// Entry by entry: where each lies among those of x that are there.
static Ref regroup(Graph *g, Ref x, const Counts *from, int n, const Extent *to)
{
	Shape s = val(g, x)->shape, o = {.rank = n};
	int64_t stride[RANK], total = count_of(&s);
	for (int b = 0; b < n; b++)
		o.dim[b] = to[b].most;
	row_strides(&s, stride);
	Ref flat = put_num(g, E_i64, 0), step = put_num(g, E_i64, 1), at = flat;
	for (int b = n - 1; b >= 0; b--) {
		flat = put2(g, O_add, flat, put2(g, O_mul, put_iota(g, o, b), step));
		Ref size = to[b].count ? to[b].count : whole_number(g, to[b].most);
		step = put2(g, O_mul, step, size);
	}
	for (int a = s.rank - 1; a >= 0; a--) {
		Ref size = from->of[a] ? from->of[a] : whole_number(g, s.dim[a]);
		size = larger_of(g, size, put_num(g, E_i64, 1));
		Ref place = put2(g, O_mod, flat, size);
		at = put2(g, O_add, at, put2(g, O_mul, place, whole_number(g, stride[a])));
		flat = put2(g, O_div, flat, size);
	}
	return put_gather(g, put_reshape(g, x, shape_of(1, &total)), at, 0);
}

void reshape_counted(Call *c, Ref x, const Counts *from, int n, Extent *to)
{
	Shape s = val(c->g, x)->shape, o = {.rank = n};
	int open = -1, computed = 0, last = 0;
	from = from ? from : &none;
	for (int b = 0; b < n; b++) {
		open = to[b].most < 0 ? b : open;
		computed += to[b].count != 0;
		last = to[b].count ? b : last;
	}
	if (open < 0 && computed == 1 && from == &none)
		open = last;
	if (open >= 0)
		close_open(c->g, &s, from, n, to, open);
	for (int b = 0; b < n; b++)
		o.dim[b] = to[b].most;
	bool counted = computed > 0 || from != &none;
	if (!counted && count_of(&o) != count_of(&s))
		refuse(c, "%s cannot become %s, which may be that of another batch or length",
		       shape_text(c->r->arena, val(c->g, x)->type, &s),
		       shape_text(c->r->arena, val(c->g, x)->type, &o));
	bool same = count_of(&o) == count_of(&s);
	c->out[0] = same && keeps_places(&s, from, n, to) ? put_reshape(c->g, x, o)
	                                                  : regroup(c->g, x, from, n, to);
	for (int b = 0; b < n; b++)
		c->counts[0].of[b] = to[b].count;
}

// ---- before: operands -----------------------------------------------------------------

static void as_they_are(Call *c)
{
	(void)c;
}

// Operands that have to agree may be at most as long as the shortest.
static void cut_to_fit(Call *c)
{
	int rank = 0;
	for (int k = 0; k < c->nin; k++)
		rank = MAX(rank, c->in[k] ? val(c->g, c->in[k])->shape.rank : 0);
	for (int axis = 1; axis <= rank; axis++) {
		int64_t most = INT64_MAX;
		for (int k = 0; k < c->nin; k++) {
			int a = (c->in[k] ? val(c->g, c->in[k])->shape.rank : 0) - axis;
			int64_t d = a >= 0 ? val(c->g, c->in[k])->shape.dim[a] : 1;
			most = d != 1 || (a >= 0 && count_along(c, k, a)) ? MIN(most, d) : most;
		}
		for (int k = 0; k < c->nin; k++) {
			int a = (c->in[k] ? val(c->g, c->in[k])->shape.rank : 0) - axis;
			if (a >= 0 && count_along(c, k, a) &&
			    val(c->g, c->in[k])->shape.dim[a] > most)
				c->in[k] = take_range(c->g, c->in[k], a, 0, most);
		}
	}
}

static int first_rank(const Call *c)
{
	return in_val(c, 0)->shape.rank;
}

static void want_whole(const Call *c, int k, int axis)
{
	if (count_along(c, k, axis))
		refuse_counts(c, k);
}

static void whole_axis(Call *c)
{
	want_whole(c, 0, (int)axis_of(c, attr_int(c, "axis", 0), first_rank(c)));
}

static void whole_classes(Call *c)
{
	want_whole(c, 0, 1);
}

static void whole_behind_axis(Call *c)
{
	int rank = first_rank(c);
	for (int a = (int)axis_of(c, attr_int(c, "axis", -1), rank); a < rank; a++)
		want_whole(c, 0, a);
}

static void only_rows(Call *c)
{
	for (int k = 0; k < c->nin; k++)
		for (int a = k ? 0 : 1; a < RANK; a++)
			want_whole(c, k, a);
}

// What a fold is not changed by.
static double neutral(int how)
{
	switch (how) {
	case O_prod:
		return 1;
	case O_amax:
	case R_log_sum_exp:
		return -INFINITY;
	case O_amin:
		return INFINITY;
	default:
		return 0;
	}
}

static void fill_reduced(Call *c)
{
	int64_t axes[RANK];
	int n = reduced_axes(c, axes);
	for (int i = 0; i < n; i++)
		c->in[0] = fill_counted(c, 0, (int)axes[i], neutral(c->how));
}

static void fill_arg(Call *c)
{
	int axis = (int)axis_of(c, attr_int(c, "axis", 0), first_rank(c));
	c->in[0] = fill_counted(c, 0, axis, c->how ? INFINITY : -INFINITY);
}

static void fill_axis(Call *c)
{
	int axis = (int)axis_of(c, attr_int(c, "axis", -1), first_rank(c));
	c->in[0] = fill_counted(c, 0, axis, 0);
}

static int running_axis(Call *c)
{
	int n = 0;
	const int64_t *axis = operand_ints(c, 1, &n);
	return (int)axis_of(c, axis && n ? axis[0] : 0, first_rank(c));
}

static void fill_running(Call *c)
{
	c->in[0] = fill_counted(c, 0, running_axis(c), 0);
}

// The first and the last axis that a softmax takes as one.
static void soft_axes(const Call *c, int *from, int *to)
{
	int rank = first_rank(c);
	*from = (int)axis_of(c, attr_int(c, "axis", c->opset < 13 ? 1 : -1), rank);
	*to = c->opset < 13 ? rank : *from + 1;
}

// A finite number, so that a softmax of nothing is one too.
static void fill_softmax(Call *c)
{
	int from, to;
	soft_axes(c, &from, &to);
	for (int a = from; a < to; a++)
		c->in[0] = fill_counted(c, 0, a, -0x1p120);
}

// Along the axis that contracts, one factor of 0 is enough.
static void fill_factors(Call *c, int a, int b)
{
	int k = count_along(c, 0, a) ? 0 : 1;
	int axis = k ? b : a;
	c->in[k] = fill_counted(c, k, axis, 0);
	int64_t left = val(c->g, c->in[0])->shape.dim[a], right = val(c->g, c->in[1])->shape.dim[b];
	if (count_along(c, 0, a) && left > right)
		c->in[0] = take_range(c->g, c->in[0], a, 0, right);
	if (count_along(c, 1, b) && right > left)
		c->in[1] = take_range(c->g, c->in[1], b, 0, left);
}

static void fill_product(Call *c)
{
	int left = first_rank(c), right = in_val(c, 1)->shape.rank;
	if (left && right)
		fill_factors(c, left - 1, MAX(right - 2, 0));
}

static void fill_gemm(Call *c)
{
	fill_factors(c, attr_int(c, "transA", 0) ? 0 : 1, attr_int(c, "transB", 0) ? 1 : 0);
}

// ---- after: results -------------------------------------------------------------------

static void as_lowered(Call *c)
{
	(void)c;
}

// Axis `from` of operand k is axis `to` of result i.
static void pass_count(Call *c, int i, int to, int k, int from)
{
	Ref count = count_along(c, k, from);
	const Shape *s = &val(c->g, c->out[i])->shape;
	if (count && to >= 0 && to < s->rank)
		c->counts[i].of[to] = count;
}

// Axes aligned at the end; the first operand that has a count tells.
static void broadcast(Call *c)
{
	for (int i = 0; i < c->nout; i++)
		for (int k = c->nin - 1; k >= 0 && c->out[i]; k--) {
			int rank = c->in[k] ? val(c->g, c->in[k])->shape.rank : 0;
			int more = val(c->g, c->out[i])->shape.rank - rank;
			for (int a = 0; a < rank; a++)
				pass_count(c, i, a + more, k, a);
		}
}

static void like_operand(Call *c, int k)
{
	int rank = in_val(c, k)->shape.rank;
	for (int i = 0; i < c->nout; i++)
		for (int a = 0; c->out[i] && a < rank; a++)
			pass_count(c, i, a, k, a);
}

static void as_first(Call *c)
{
	like_operand(c, 0);
}

static void as_second(Call *c)
{
	like_operand(c, 1);
}

static void rows(Call *c)
{
	pass_count(c, 0, 0, 0, 0);
}

static void rows_of_second(Call *c)
{
	want_whole(c, 0, 0);
	pass_count(c, 0, 0, 1, 0);
}

static void permuted(Call *c)
{
	int rank = first_rank(c), n = 0;
	const int64_t *perm = attr_ints(c, "perm", &n);
	for (int a = 0; a < rank; a++)
		pass_count(c, 0, a, 0, perm ? (int)perm[a] : rank - 1 - a);
}

static void gathered(Call *c)
{
	int rank = first_rank(c), places = in_val(c, 1)->shape.rank;
	int axis = (int)axis_of(c, attr_int(c, "axis", 0), rank);
	for (int a = 0; a < rank; a++)
		if (a != axis)
			pass_count(c, 0, a < axis ? a : a + places - 1, 0, a);
	for (int a = 0; a < places; a++)
		pass_count(c, 0, axis + a, 1, a);
}

static void gathered_tuples(Call *c)
{
	int rank = first_rank(c), last = in_val(c, 1)->shape.rank - 1;
	int done = (int)attr_int(c, "batch_dims", 0) + (int)in_val(c, 1)->shape.dim[last];
	for (int a = done; a < rank; a++)
		pass_count(c, 0, last + a - done, 0, a);
	for (int a = 0; a < last; a++)
		pass_count(c, 0, a, 1, a);
}

static void one_hot(Call *c)
{
	int rank = first_rank(c);
	int axis = (int)axis_of(c, attr_int(c, "axis", -1), rank + 1);
	for (int a = 0; a < rank; a++)
		pass_count(c, 0, a + (a >= axis), 0, a);
}

// The folded axes are of size 1, or gone.
static void drop_folded(Call *c, int n, const int64_t *axes)
{
	bool kept = attr_int(c, "keepdims", 1);
	for (int a = 0, to = 0, i = 0; a < first_rank(c); a++) {
		bool folded = i < n && axes[i] == a;
		if (!folded)
			pass_count(c, 0, to, 0, a);
		i += folded;
		to += kept || !folded;
	}
}

// A mean has been taken over all that could be there.
static void unreduced(Call *c)
{
	Graph *g = c->g;
	int64_t axes[RANK];
	int n = reduced_axes(c, axes);
	for (int i = 0; c->how == R_mean && i < n; i++) {
		Ref count = count_along(c, 0, (int)axes[i]), y = c->out[0];
		double most = (double)in_val(c, 0)->shape.dim[axes[i]];
		if (count)
			c->out[0] = put2(g, O_mul, y,
			                 put2(g, O_div, num_like(g, y, most),
			                      put_cast(g, count, val(g, y)->type)));
	}
	drop_folded(c, n, axes);
}

static void reduced_axis(Call *c)
{
	int64_t axis = axis_of(c, attr_int(c, "axis", 0), first_rank(c));
	drop_folded(c, 1, &axis);
}

// What was filled before is no copy any more.
static void copy_again(Call *c, int axis)
{
	Ref count = count_along(c, 0, axis);
	if (count)
		c->out[0] = copy_behind(c->g, c->out[0], axis, count);
}

static void running(Call *c)
{
	copy_again(c, running_axis(c));
	as_first(c);
}

static void softened(Call *c)
{
	int from, to;
	soft_axes(c, &from, &to);
	for (int a = from; a < to; a++)
		copy_again(c, a);
	as_first(c);
}

static void multiplied(Call *c)
{
	int left = first_rank(c), right = in_val(c, 1)->shape.rank;
	int rank = val(c->g, c->out[0])->shape.rank, matrix = (left > 1) + (right > 1);
	for (int a = 0; a < left - 2; a++)
		pass_count(c, 0, a + rank - matrix - (left - 2), 0, a);
	for (int b = 0; b < right - 2; b++)
		pass_count(c, 0, b + rank - matrix - (right - 2), 1, b);
	if (left > 1)
		pass_count(c, 0, rank - matrix, 0, left - 2);
	if (right > 1)
		pass_count(c, 0, rank - 1, 1, right - 1);
}

static void gemm(Call *c)
{
	pass_count(c, 0, 0, 0, attr_int(c, "transA", 0) ? 1 : 0);
	pass_count(c, 0, 1, 1, attr_int(c, "transB", 0) ? 0 : 1);
}

// ---- the table ------------------------------------------------------------------------

#define COUNTED(lower, before, after) Lower lower;
#include "counts.def"
#undef COUNTED

typedef struct Counting {
	Lower *lower, *before, *after;
} Counting;

static const Counting countings[] = {
#define COUNTED(lower, before, after) {lower, before, after},
#include "counts.def"
#undef COUNTED
};

void lower_counted(Call *c, const Row *row)
{
	const Counting *found = NULL;
	for (int i = 0; i < COUNT(countings) && !found; i++)
		if (countings[i].lower == row->lower)
			found = &countings[i];
	for (int k = 0; !found && k < c->nin; k++)
		if (c->arg[k].counts)
			refuse_counts(c, k);
	found->before(c);
	row->lower(c);
	found->after(c);
}
