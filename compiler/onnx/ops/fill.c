// fill.c: lowers operators that make values of shapes and numbers alone: Shape, ConstantOfShape,
// Range.
#include "ops.h"
#include <math.h>

// numpy's place among the axes: counted from the end where it is negative, and none outside.
static int64_t axis_place(int64_t at, int rank)
{
	at += at < 0 ? rank : 0;
	return MIN(MAX(at, 0), rank);
}

void lower_shape(Call *c)
{
	Shape s = in_val(c, 0)->shape;
	int64_t start = axis_place(attr_int(c, "start", 0), s.rank);
	int64_t end = axis_place(attr_int(c, "end", s.rank), s.rank);
	if (!is_dynamic(c->g, c->in[0]) || end <= start) {
		c->out[0] = put_ints(c->g, (int)MAX(end - start, 0), s.dim + start);
		return;
	}
	Ref size[RANK];
	for (int64_t a = start; a < end; a++)
		size[a] = put_rank(c->g, put_length(c->g, c->in[0], (int)a), 1);
	c->out[0] = put_concat(c->g, 0, (int)(end - start), size + start);
}

void lower_constant_of_shape(Call *c)
{
	int n = 0;
	const BoundedSize *size = extents_of(c, 0, "", &n);
	const AttributeProto *a = find_attr(c, "value");
	Ref x = a && a->t ? tensor_constant(c->r, a->t) : put_num(c->g, E_f32, 0);
	check_rank(c, n);
	if (!size || count_of(&val(c->g, x)->shape) != 1)
		invalid_node(c, "expected a shape and one value");
	Shape s = {.rank = n};
	for (int i = 0; i < n; i++) {
		s.dim[i] = size[i].most;
		if (s.dim[i] < 0)
			invalid_node(c, "dimension %lld", (long long)s.dim[i]);
	}
	x = put_rank(c->g, put_reshape(c->g, x, shape_of(0, NULL)), n);
	c->out[0] = put_extents(c->g, put_expand(c->g, x, s), size);
}

// From places that depend on the data: as many as there can be, and a count.
static void computed_range(Call *c)
{
	Graph *g = c->g;
	Ref start = c->in[0], step = c->in[2];
	Elem floats = is_float(val(g, start)->type) ? E_f32 : E_i64;
	Ref span = put2(g, O_sub, c->in[1], start),
	    more = put2(g, O_sub, step, put1(g, O_sign, step));
	Ref count = floats == E_f32 ? put1(g, O_ceil, put2(g, O_div, span, step))
	                            : put2(g, O_div, put2(g, O_add, span, more), step);
	count = larger_of(g, put_cast(g, count, E_i64), put_num(g, E_i64, 0));
	BoundedSize size = extent_of(c, count, "how many numbers it gives");
	Ref at = put_cast(g, put_iota(g, shape_of(1, &size.most), 0), val(g, start)->type);
	c->out[0] = put2(g, O_add, start, put2(g, O_mul, at, step));
	if (size.count)
		c->out[0] = put_valid(g, c->out[0], 0, size.count);
}

void lower_range(Call *c)
{
	Elem type = in_val(c, 0)->type;
	double number[3];
	bool known = true;
	for (int k = 0; k < 3; k++) {
		if (count_of(&in_val(c, k)->shape) != 1)
			invalid_node(c, "operand %d is not a number", k);
		c->in[k] = put_reshape(c->g, fixed_operand(c, k), (Shape){0});
		known &= is_const(c->g, c->in[k]);
	}
	if (!known) {
		computed_range(c);
		return;
	}
	for (int k = 0; k < 3; k++)
		number[k] = const_at(val(c->g, c->in[k]), 0);
	double start = number[0], step = number[2], count = ceil((number[1] - start) / step);
	if (!(count < (1 << 24)))
		invalid_node(c, "it would have %g elements", count);
	int64_t n = count > 0 ? (int64_t)count : 0;
	Elem floats = is_float(type) ? E_f32 : E_i64;
	char *at = take(c->r->arena, (size_t)n * 8 + 1);
	for (int64_t i = 0; i < n; i++) {
		double x = start + (double)i * step;
		if (floats == E_f32)
			((float *)at)[i] = (float)x;
		else
			((int64_t *)at)[i] = (int64_t)x;
	}
	c->out[0] = put_cast(c->g, put_const(c->g, floats, shape_of(1, &n), at), type);
}
