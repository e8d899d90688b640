// shape.c: computes with shapes and axes.
#include "ir.h"
#include <string.h>

int64_t common_divisor(int64_t a, int64_t b)
{
	while (b) {
		int64_t rest = a % b;
		a = b;
		b = rest;
	}
	return a < 0 ? -a : a;
}

// Saturates at INT64_MAX, because a file may contain any shape.
static int64_t times(int64_t a, int64_t b)
{
	int64_t product;
	return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

int64_t count_of(const Shape *shape)
{
	int64_t count = 1;
	for (int a = 0; a < shape->rank; a++)
		count = shape->dim[a] ? times(count, shape->dim[a]) : 0;
	return count;
}

bool is_countable(const Shape *shape)
{
	int64_t count = 1;
	for (int a = 0; a < shape->rank; a++)
		count = times(count, MAX(shape->dim[a], 1));
	return count >> SIZE_BITS == 0;
}

const char *beyond_text(const Shape *shape)
{
	return count_of(shape) ? "of more than 2^57 elements"
	                       : "that is empty, but whose other sizes have a product above 2^57";
}

int64_t byte_count(Elem elem, const Shape *shape)
{
	return times(count_of(shape), elems[elem].bytes);
}

Shape memory_shape(const Val *v)
{
	Shape s = v->shape;
	if (v->pitch)
		s.dim[s.rank - 1] = v->pitch;
	return s;
}

int64_t bytes_of(const Val *v)
{
	Shape s = memory_shape(v);
	return byte_count(v->type, &s);
}

int64_t last_dim(const Shape *shape)
{
	return shape->rank ? shape->dim[shape->rank - 1] : 1;
}

bool same_shape(const Shape *a, const Shape *b)
{
	return a->rank == b->rank && memcmp(a->dim, b->dim, sizeof *a->dim * (size_t)a->rank) == 0;
}

Shape shape_of(int rank, const int64_t *dims)
{
	if (rank > RANK)
		fail("shape", "%d axes; at most %d are supported", rank, RANK);
	Shape shape = {.rank = rank};
	for (int a = 0; a < rank; a++)
		shape.dim[a] = dims[a];
	return shape;
}

Shape stacked_shape(int64_t n, const Shape *entry)
{
	if (entry->rank == RANK)
		fail("shape", "%d axes; at most %d are supported", RANK + 1, RANK);
	Shape shape = {.rank = entry->rank + 1, .dim = {n}};
	for (int a = 0; a < entry->rank; a++)
		shape.dim[a + 1] = entry->dim[a];
	return shape;
}

void row_strides(const Shape *shape, int64_t *stride)
{
	int64_t step = 1;
	for (int a = shape->rank - 1; a >= 0; a--) {
		stride[a] = step;
		step *= shape->dim[a];
	}
}

const char *shape_text(Arena *arena, Elem elem, const Shape *shape)
{
	Text text = {.arena = arena};
	say(&text, "%s", elems[elem].name);
	for (int a = 0; a < shape->rank; a++)
		say(&text, "%c%lld", a ? ',' : '[', (long long)shape->dim[a]);
	if (shape->rank)
		say(&text, "]");
	return text.at;
}

bool has_axis(const Attr *attr, int axis)
{
	for (int k = 0; k < attr->n; k++)
		if (attr->i[k] == axis)
			return true;
	return false;
}

Shape reduced_shape(const Shape *shape, int n, const int64_t *axes)
{
	Shape reduced = *shape;
	for (int k = 0; k < n; k++)
		reduced.dim[axes[k]] = 1;
	return reduced;
}

bool is_reduced(const Shape *s, const Shape *space, uint32_t reduce)
{
	if (s->rank != space->rank)
		return false;
	for (int a = 0; a < space->rank; a++)
		if (s->dim[a] != (reduce >> a & 1 ? 1 : space->dim[a]))
			return false;
	return true;
}

uint32_t axes_mask(const Val *v)
{
	uint32_t mask = 0;
	for (int a = 0; v->op != O_dot && a < v->attr->n; a++)
		mask |= 1u << v->attr->i[a];
	return v->op == O_dot ? 1u << v->shape.rank : mask;
}

bool same_axes(const Shape *s, uint32_t a, uint32_t b)
{
	for (int axis = 0; axis < s->rank; axis++)
		if (s->dim[axis] != 1 && ((a ^ b) >> axis & 1))
			return false;
	return true;
}

int axis_groups(const Shape *x, const Shape *y, AxisGroup *group)
{
	int n = 0, a = 0, b = 0;
	while (a < x->rank || b < y->rank) {
		AxisGroup *next = &group[n++];
		*next = (AxisGroup){.x0 = a, .y0 = b};
		int64_t p = a < x->rank ? x->dim[a++] : 1, q = b < y->rank ? y->dim[b++] : 1;
		while (p != q && (p < q ? a < x->rank : b < y->rank))
			if (p < q)
				p *= x->dim[a++];
			else
				q *= y->dim[b++];
		if (p != q)
			return -1;
		next->x1 = a;
		next->y1 = b;
	}
	return n;
}
