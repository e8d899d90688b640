// builder.c: defines shorthands for put().
#include "ir.h"
#include <string.h>

Ref put1(Graph *g, Op op, Ref x)
{
	return put(g, op, 1, &x, NULL);
}

Ref put2(Graph *g, Op op, Ref x, Ref y)
{
	return put(g, op, 2, (Ref[]){x, y}, NULL);
}

Ref put3(Graph *g, Op op, Ref x, Ref y, Ref z)
{
	return put(g, op, 3, (Ref[]){x, y, z}, NULL);
}

static Attr list_attr(int n, const int64_t *list)
{
	Attr attr = {.n = n};
	memcpy(attr.i, list, (size_t)n * sizeof *list);
	return attr;
}

Ref put_reduce(Graph *g, Op op, Ref x, int naxes, const int64_t *axes)
{
	Attr attr = list_attr(naxes, axes);
	return put(g, op, 1, &x, &attr);
}

Ref put_cast(Graph *g, Ref x, Elem elem)
{
	return put(g, O_cast, 1, &x, &(Attr){.n = 1, .i = {elem}});
}

enum { TF32_BITS = 10, TF32_LEAST = -126 }; // after the leading one; exponent

Ref put_tf32(Graph *g, Ref x)
{
	return put(g, O_narrow, 1, &x, &(Attr){.n = 2, .i = {TF32_BITS, TF32_LEAST}});
}

bool is_tf32(const Val *v)
{
	return v->op == O_narrow && v->type == E_f32 && v->attr->i[0] == TF32_BITS &&
	       v->attr->i[1] == TF32_LEAST;
}

Ref put_reshape(Graph *g, Ref x, Shape shape)
{
	Attr attr = list_attr(shape.rank, shape.dim);
	return put(g, O_reshape, 1, &x, &attr);
}

Ref put_expand(Graph *g, Ref x, Shape shape)
{
	Attr attr = list_attr(shape.rank, shape.dim);
	return put(g, O_expand, 1, &x, &attr);
}

Ref put_permute(Graph *g, Ref x, const int64_t *perm)
{
	Attr attr = list_attr(val(g, x)->shape.rank, perm);
	return put(g, O_permute, 1, &x, &attr);
}

Ref put_slice(Graph *g, Ref x, const int64_t *start, const int64_t *count, const int64_t *step)
{
	Attr attr = {0};
	for (int a = 0; a < val(g, x)->shape.rank; a++) {
		attr.i[attr.n++] = start[a];
		attr.i[attr.n++] = count[a];
		attr.i[attr.n++] = step ? step[a] : 1;
	}
	return put(g, O_slice, 1, &x, &attr);
}

Ref put_pad(Graph *g, Ref x, const int64_t *before, const int64_t *after, double fill)
{
	Attr attr = {.x = fill};
	for (int a = 0; a < val(g, x)->shape.rank; a++) {
		attr.i[attr.n++] = before[a];
		attr.i[attr.n++] = after[a];
	}
	return put(g, O_pad, 1, &x, &attr);
}

Ref put_extended(Graph *g, Ref x, int axis, int64_t count)
{
	int64_t before[RANK] = {0}, after[RANK] = {0};
	after[axis] = count - val(g, x)->shape.dim[axis];
	return put_pad(g, x, before, after, 0);
}

Ref put_window(Graph *g, Ref x, int n, const WindowAxis *axis, double fill)
{
	Attr attr = {.n = n * WINDOW_NUMS, .x = fill};
	memcpy(attr.i, axis, sizeof *axis * (size_t)n);
	return put(g, O_window, 1, &x, &attr);
}

Ref put_concat(Graph *g, int axis, int n, const Ref *in)
{
	return put(g, O_concat, n, in, &(Attr){.n = 1, .i = {axis}});
}

Ref put_gather(Graph *g, Ref x, Ref index, int axis)
{
	return put(g, O_gather, 2, (Ref[]){x, index}, &(Attr){.n = 1, .i = {axis}});
}

Ref put_scatter(Graph *g, Ref x, Ref index, Ref update, int axis, int mode)
{
	return put(g, O_scatter, 3, (Ref[]){x, index, update}, &(Attr){.n = 2, .i = {axis, mode}});
}

Ref put_iota(Graph *g, Shape shape, int axis)
{
	Attr attr = {.n = 1, .i = {axis}};
	for (int a = 0; a < shape.rank; a++)
		attr.i[attr.n++] = shape.dim[a];
	return put(g, O_iota, 0, NULL, &attr);
}

Ref put_rank(Graph *g, Ref x, int rank)
{
	const Shape *from = &val(g, x)->shape;
	Shape shape = {.rank = rank};
	int more = rank - from->rank;
	for (int a = 0; a < rank; a++)
		shape.dim[a] = a < more ? 1 : from->dim[a - more];
	return more > 0 ? put_reshape(g, x, shape) : x;
}

Ref put_broadcast(Graph *g, Ref x, Shape shape)
{
	return put_expand(g, put_rank(g, x, shape.rank), shape);
}

Ref put_numbers(Graph *g, const Shape *shape, int axis)
{
	Shape line = {.rank = shape->rank};
	for (int a = 0; a < line.rank; a++)
		line.dim[a] = a == axis ? shape->dim[a] : 1;
	return put_iota(g, line, axis);
}

Ref swap_last(Graph *g, Ref x)
{
	int rank = val(g, x)->shape.rank;
	return move_axis(g, x, rank - 1, rank - 2);
}

Ref move_axis(Graph *g, Ref x, int from, int to)
{
	int rank = val(g, x)->shape.rank;
	int64_t perm[RANK];
	for (int a = 0, next = 0; a < rank; a++) {
		next += next == from;
		perm[a] = a == to ? from : next++;
	}
	return put_permute(g, x, perm);
}

Ref put_state(Graph *g, const char *name, Elem type, Shape shape, const void *init)
{
	Slot state = {.name = name, .kind = S_state, .type = type, .shape = shape, .init = init};
	int slot = find_slot(g, name);
	return put_slot(g, slot < 0 ? add_slot(g, state) : slot);
}
