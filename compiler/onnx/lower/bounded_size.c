// bounded_size.c: computes bounded sizes.
// As numbers where they are known, else as the most that they can be and a count; and values
// reshaped to such sizes. Takes the node being lowered. Gives extents, and the reshaped value with
// its counts.
#include "lower.h"
#include <math.h>

static const DynamicDims none;

Ref put_i64(Graph *g, int64_t x)
{
	return put_const(g, E_i64, (Shape){0}, &x);
}

enum { STEPS = 256 }; // values looked through for one entry

// Where element i of a move stands in its operand.
static int64_t place_before(const Val *v, const Shape *from, int64_t i)
{
	int64_t stride[RANK], wide[RANK], place = 0;
	row_strides(&v->shape, stride);
	row_strides(from, wide);
	for (int a = 0; a < v->shape.rank; a++) {
		int64_t at = i / stride[a] % v->shape.dim[a];
		if (v->op == O_permute)
			place += wide[v->attr->i[a]] * at;
		else if (v->op == O_slice)
			place += wide[a] * (v->attr->i[3 * a] + at * v->attr->i[3 * a + 2]);
		else
			place += from->dim[a] == 1 ? 0 : wide[a] * at;
	}
	return place;
}

static Ref element_of(Graph *g, Ref x, int64_t i, int *steps);

// Element i of values joined along their only axis.
static Ref joined_element(Graph *g, const Val *v, int64_t i, int *steps)
{
	int k = 0;
	for (; i >= val(g, v->in[k])->shape.dim[0]; k++)
		i -= val(g, v->in[k])->shape.dim[0];
	return element_of(g, v->in[k], i, steps);
}

static Ref mapped_element(Graph *g, const Val *v, int64_t i, int *steps)
{
	Ref in[3];
	for (int k = 0; k < v->nin; k++) {
		Shape from = val(g, v->in[k])->shape;
		int64_t at = from.rank ? place_before(v, &from, i) : 0;
		in[k] = element_of(g, v->in[k], at, steps);
	}
	return put_as(g, v, in);
}

// Element i in row-major order, of rank 0: made for itself alone, of the elements that it needs.
static Ref element_of(Graph *g, Ref x, int64_t i, int *steps)
{
	Val v = *val(g, x); // values may move
	bool deep = --*steps > 0;
	if (v.op == O_reshape && deep)
		return element_of(g, v.in[0], i, steps);
	if ((v.op == O_permute || v.op == O_slice || v.op == O_expand) && deep) {
		Shape from = val(g, v.in[0])->shape;
		return element_of(g, v.in[0], place_before(&v, &from, i), steps);
	}
	if (v.op == O_concat && v.shape.rank == 1 && deep)
		return joined_element(g, &v, i, steps);
	if (prims[v.op].cls == C_map && deep)
		return mapped_element(g, &v, i, steps);
	return put_reshape(g, take_range(g, flat(g, x), 0, i, 1), (Shape){0});
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
		entry[i] = put_i64(c->g, ints[i]);
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
	Ref *entry = NEWS(c->r->arena, Ref, *n + 1);
	for (int i = 0; i < *n; i++) {
		int steps = STEPS;
		entry[i] = put_cast(c->g, element_of(c->g, x, i, &steps), E_i64);
	}
	return entry;
}

BoundedSize extent_of(const Call *c, Ref size, const char *what)
{
	if (is_const(c->g, size))
		return (BoundedSize){const_int_at(val(c->g, size), 0), 0};
	Interval l = limits_of(c->g, size);
	if (!(l.high < 0x1p31))
		refuse_computed(c, size, what);
	return (BoundedSize){(int64_t)fmax(l.high, 0), size};
}

BoundedSize extent_along(const Call *c, int k, int axis)
{
	return (BoundedSize){in_val(c, k)->shape.dim[axis], count_along(c, k, axis)};
}

BoundedSize extent_product(Graph *g, BoundedSize a, BoundedSize b)
{
	BoundedSize p = {a.most * b.most, 0};
	if (a.count || b.count)
		p.count = put2(g, O_mul, a.count ? a.count : put_i64(g, a.most),
		               b.count ? b.count : put_i64(g, b.most));
	return p;
}

BoundedSize *extents_of(Call *c, int k, const char *name, int *n)
{
	Ref *entry = entries_of(c, k, name, n);
	if (!entry)
		return NULL;
	BoundedSize *extent = NEWS(c->r->arena, BoundedSize, *n + 1);
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
	Ref r = put_i64(g, p->known);
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
static void close_open(Graph *g, const Shape *s, const DynamicDims *from, int n, BoundedSize *to,
                       int open)
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
static bool keeps_places(const Shape *s, const DynamicDims *from, int n, BoundedSize *to)
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
static Ref regroup(Graph *g, Ref x, const DynamicDims *from, int n, const BoundedSize *to)
{
	Shape s = val(g, x)->shape, o = {.rank = n};
	int64_t stride[RANK], total = count_of(&s);
	for (int b = 0; b < n; b++)
		o.dim[b] = to[b].most;
	row_strides(&s, stride);
	Ref flat = put_num(g, E_i64, 0), step = put_num(g, E_i64, 1), at = flat;
	for (int b = n - 1; b >= 0; b--) {
		flat = put2(g, O_add, flat, put2(g, O_mul, put_iota(g, o, b), step));
		Ref size = to[b].count ? to[b].count : put_i64(g, to[b].most);
		step = put2(g, O_mul, step, size);
	}
	for (int a = s.rank - 1; a >= 0; a--) {
		Ref size = from->of[a] ? from->of[a] : put_i64(g, s.dim[a]);
		size = larger_of(g, size, put_num(g, E_i64, 1));
		Ref place = put2(g, O_mod, flat, size);
		at = put2(g, O_add, at, put2(g, O_mul, place, put_i64(g, stride[a])));
		flat = put2(g, O_div, flat, size);
	}
	return put_gather(g, put_reshape(g, x, shape_of(1, &total)), at, 0);
}

// Before anything is computed with the sizes: the one that is open counts as 1.
static void check_sizes(Call *c, int n, const BoundedSize *to)
{
	Shape shape = {.rank = n};
	for (int b = 0; b < n; b++)
		shape.dim[b] = to[b].most;
	if (!is_countable(&shape))
		invalid_node(c, "a result of more than 2^%d elements", SIZE_BITS);
}

void reshape_counted(Call *c, Ref x, const DynamicDims *from, int n, BoundedSize *to)
{
	Shape s = val(c->g, x)->shape, o = {.rank = n};
	int open = -1, computed = 0, last = 0;
	from = from ? from : &none;
	check_sizes(c, n, to);
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
		invalid_node(c, "%s cannot become %s, which may be that of another batch or length",
		             shape_text(c->r->arena, val(c->g, x)->type, &s),
		             shape_text(c->r->arena, val(c->g, x)->type, &o));
	bool same = count_of(&o) == count_of(&s);
	c->out[0] = same && keeps_places(&s, from, n, to) ? put_reshape(c->g, x, o)
	                                                  : regroup(c->g, x, from, n, to);
	for (int b = 0; b < n; b++)
		c->counts[0].of[b] = to[b].count;
}

Ref in_line(Call *c, Ref x, Ref *count)
{
	BoundedSize all = {-1, 0};
	reshape_counted(c, x, c->arg[0].counts, 1, &all);
	*count = c->counts[0].of[0];
	c->counts[0] = (DynamicDims){0};
	return c->out[0];
}
