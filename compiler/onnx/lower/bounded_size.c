// bounded_size.c: computes bounded sizes.
// A size is an integer if it is known, else an upper bound and a count. Also reshapes values to
// such sizes.
#include "index.h"
#include "lower.h"
#include <math.h>
#include <string.h>

Ref put_i64(Graph *g, int64_t x)
{
	return put_const(g, E_i64, (Shape){0}, &x);
}

enum { STEPS = 256 }; // values looked through for one entry

// Returns the element of x at constant indices, of rank 0, computed from only the elements that it
// needs. The indices are overwritten.
static Ref element_of(Vars *w, Graph *g, Ref x, Index *idx, int *steps)
{
	Val v = *val(g, x); // values may move
	Index at[RANK];
	Ref in[3];
	bool deep = --*steps > 0;
	for (int a = 0; a < v.shape.rank; a++)
		if (v.shape.dim[a] == 1) // it may be broadcast
			idx[a] = constant_index(0);
	if (deep && prims[v.op].cls == C_map) {
		for (int k = 0; k < v.nin; k++) {
			memcpy(at, idx, sizeof *at * (size_t)v.shape.rank);
			in[k] = element_of(w, g, v.in[k], at, steps);
		}
		return put_as(g, &v, in);
	}
	if (deep && v.op == O_concat) {
		int axis = (int)v.attr->i[0], k = 0;
		for (; idx[axis].constant >= val(g, v.in[k])->shape.dim[axis]; k++)
			idx[axis].constant -= val(g, v.in[k])->shape.dim[axis];
		return element_of(w, g, v.in[k], idx, steps);
	}
	if (deep && prims[v.op].cls == C_move && !has_fill(v.op)) {
		operand_index(w, g, &v, 0, idx, at, NULL);
		return element_of(w, g, v.in[0], at, steps);
	}
	int64_t i = ravel(w, &v.shape, idx).constant;
	return put_reshape(g, take_range(g, flat(g, x), 0, i, 1), (Shape){0});
}

Ref fixed_operand(Call *c, int k)
{
	in_val(c, k);
	return c->arg[k].weight ? weight_constant(c->r, c->arg[k].weight) : c->in[k];
}

Ref *entries_of(Call *c, int k, const char *name, int *n)
{
	if (k >= c->nin || c->arg[k].absent) {
		const int64_t *ints = attr_ints(c, name, n);
		Ref *entry = ints ? NEWS(c->r->arena, Ref, *n + 1) : NULL;
		for (int i = 0; ints && i < *n; i++)
			entry[i] = put_i64(c->g, ints[i]);
		return entry;
	}
	Ref x = fixed_operand(c, k);
	int64_t ints[NUMS];
	int count = NUMS;
	bool constant = is_const(c->g, x);
	bool known = constant || const_ints(c->g, x, ints, &count);
	Shape s = val(c->g, x)->shape;
	*n = (int)count_of(&s);
	if (!known && (*n > NUMS || s.rank > 1))
		refuse_computed(c, x, format(c->r->arena, "input %d ('%s')", k, c->node->input[k]));
	Ref *entry = NEWS(c->r->arena, Ref, *n + 1);
	Vars *w = known ? NULL : vars_new(c->r->arena);
	for (int i = 0; i < *n; i++) {
		int steps = STEPS;
		Index idx = constant_index(i);
		entry[i] = constant ? put_i64(c->g, const_int_at(val(c->g, x), i))
		           : known  ? put_i64(c->g, ints[i])
		                    : put_cast(c->g, element_of(w, c->g, x, &idx, &steps), E_i64);
	}
	return entry;
}

BoundedSize extent_of(const Call *c, Ref size, const char *what)
{
	if (is_const(c->g, size))
		return (BoundedSize){const_int_at(val(c->g, size), 0), 0};
	Interval l = interval_of(c->g, size);
	if (!(l.high < 0x1p31))
		refuse_computed(c, size, what);
	return (BoundedSize){(int64_t)fmax(l.high, 0), size};
}

BoundedSize size_along(Graph *g, Ref x, int axis)
{
	return (BoundedSize){val(g, x)->shape.dim[axis], lengths_of(g, x)->of[axis]};
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
		extent[i] = extent_of(c, entry[i], format(c->r->arena, "input %d", k));
	return extent;
}

// ---- reshaping ------------------------------------------------------------------------

// A number of elements: a product of numbers known and counts.
typedef struct Product {
	int64_t known;
	BoundedSize size[RANK]; // the others
	int n;
} Product;

static void times_size(Product *p, BoundedSize size)
{
	if (size.count)
		p->size[p->n++] = size;
	else
		p->known *= size.most;
}

// Cancels common factors.
static void cancel(Product *p, Product *q)
{
	for (int i = 0; i < p->n; i++)
		for (int j = 0; j < q->n; j++)
			if (p->size[i].count == q->size[j].count) {
				p->size[i--] = p->size[--p->n];
				q->size[j] = q->size[--q->n];
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
		r = put2(g, O_mul, r, p->size[i].count);
	return r;
}

// Infers the size that is left open from the shape of x and the other sizes.
static void close_open(Graph *g, Ref x, int n, BoundedSize *to, int open)
{
	Product all = {.known = 1}, rest = all;
	for (int a = 0; a < val(g, x)->shape.rank; a++)
		times_size(&all, size_along(g, x, a));
	for (int b = 0; b < n; b++)
		if (b != open)
			times_size(&rest, to[b]);
	cancel(&all, &rest);
	Ref size = product_of(g, &all);
	if (rest.n || rest.known != 1) {
		Ref by = product_of(g, &rest);
		size = put2(g, O_div, size, larger_of(g, by, put_num(g, E_i64, 1)));
	}
	to[open].most = all.known;
	for (int i = 0; i < all.n; i++)
		to[open].most *= all.size[i].most;
	to[open].most /= MAX(rest.known, 1);
	to[open].count = is_const(g, size) ? 0 : size;
	if (!to[open].count)
		to[open].most = const_int_at(val(g, size), 0);
}

// Gathers each element from its position among the valid elements of x.
static Ref regroup(Graph *g, Ref x, int n, const BoundedSize *to)
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
		Ref size = larger_of(g, put_length(g, x, a), put_num(g, E_i64, 1));
		Ref place = put2(g, O_mod, flat, size);
		at = put2(g, O_add, at, put2(g, O_mul, place, put_i64(g, stride[a])));
		flat = put2(g, O_div, flat, size);
	}
	x = put_reshape(g, put_all_padded(g, x), shape_of(1, &total));
	return put_gather(g, x, at, 0);
}

static Lengths lengths_from(int n, const BoundedSize *to)
{
	Lengths l = {0};
	for (int b = 0; b < n; b++)
		l.of[b] = to[b].count;
	return l;
}

// Gives x the lengths of the sizes.
static Ref put_extents(Graph *g, Ref x, const BoundedSize *to)
{
	Lengths l = lengths_from(val(g, x)->shape.rank, to);
	return put_lengths(g, x, &l);
}

Ref reshape_to(Call *c, Ref x, int n, BoundedSize *to)
{
	Graph *g = c->g;
	Shape s = val(g, x)->shape, o = {.rank = n};
	int open = -1, computed = 0, last = 0;
	for (int b = 0; b < n; b++) {
		o.dim[b] = to[b].most;
		open = to[b].most < 0 ? b : open;
		computed += to[b].count != 0;
		last = to[b].count ? b : last;
	}
	if (!is_countable(&o)) // the open size counts as 1
		invalid_node(c, "a result %s", beyond_text(&o));
	bool dynamic = computed > 0 || is_dynamic(g, x);
	if (open < 0 && computed == 1 && !is_dynamic(g, x))
		open = last;
	if (open >= 0) {
		close_open(g, x, n, to, open);
		o.dim[open] = to[open].most;
	}
	bool same = count_of(&o) == count_of(&s);
	if (!dynamic && !same)
		invalid_node(c, "%s cannot become %s, which may be that of another batch or length",
		             shape_text(c->r->arena, val(g, x)->type, &s),
		             shape_text(c->r->arena, val(g, x)->type, &o));
	Lengths l = lengths_from(n, to);
	if (!dynamic)
		return put_reshape(g, x, o);
	if (same && reshaped_lengths(g, x, &o, &l))
		return put_lengths(g, put_reshape(g, put_all_padded(g, x), o), &l);
	return put_extents(g, regroup(g, x, n, to), to);
}
