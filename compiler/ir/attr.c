// attr.c: shapes, attributes and constants as the rest of the compiler asks about them.
// Takes ir.h. Gives answers only; changes nothing.
#include "ir.h"
#include <string.h>

int64_t common_divisor(int64_t a, int64_t b)
{
	while (b) {
		int64_t rest = a % b;
		a = b;
		b = rest;
	}
	return a;
}

int64_t count_of(const Shape *shape)
{
	int64_t count = 1;
	for (int a = 0; a < shape->rank; a++)
		count *= shape->dim[a];
	return count;
}

bool same_shape(const Shape *a, const Shape *b)
{
	return a->rank == b->rank && memcmp(a->dim, b->dim, sizeof *a->dim * (size_t)a->rank) == 0;
}

Shape shape_of(int rank, const int64_t *dims)
{
	if (rank > RANK)
		fail("shape", "%d axes; at most %d can be", rank, RANK);
	Shape shape = {.rank = rank};
	for (int a = 0; a < rank; a++)
		shape.dim[a] = dims[a];
	return shape;
}

Shape stacked_shape(int64_t n, const Shape *entry)
{
	if (entry->rank == RANK)
		fail("shape", "%d axes; at most %d can be", RANK + 1, RANK);
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

Shape folded_shape(const Shape *shape, int n, const int64_t *axes)
{
	Shape folded = *shape;
	for (int k = 0; k < n; k++)
		folded.dim[axes[k]] = 1;
	return folded;
}

bool is_const(const Graph *g, Ref r)
{
	return val(g, r)->op == O_const;
}

double const_at(const Val *v, int64_t i)
{
	switch (v->type) {
	case E_f64:
		return ((const double *)v->data)[i];
	case E_f32:
		return (double)((const float *)v->data)[i];
	case E_f16:
		return (double)half_to_float(((const uint16_t *)v->data)[i]);
	case E_bf16:
		return (double)bf16_to_float(((const uint16_t *)v->data)[i]);
	case E_u64:
		return (double)((const uint64_t *)v->data)[i];
	default:
		return (double)const_int_at(v, i);
	}
}

int64_t const_int_at(const Val *v, int64_t i)
{
	switch (v->type) {
#define INTEGER(name, ctype)                                                                       \
	case E_##name:                                                                             \
		return (int64_t)((const ctype *)v->data)[i];
		INTEGER(i64, int64_t)
		INTEGER(i32, int32_t)
		INTEGER(i16, int16_t)
		INTEGER(i8, int8_t)
		INTEGER(u64, uint64_t)
		INTEGER(u32, uint32_t)
		INTEGER(u16, uint16_t)
		INTEGER(u8, uint8_t)
		INTEGER(b8, uint8_t)
#undef INTEGER
	default:
		return (int64_t)const_at(v, i);
	}
}

bool const_num(const Graph *g, Ref r, double *number)
{
	const Val *v = val(g, r);
	int64_t count = count_of(&v->shape);
	if (v->op != O_const || count < 1)
		return false;
	double first = const_at(v, 0);
	for (int64_t i = 1; i < count; i++)
		if (const_at(v, i) != first)
			return false;
	*number = first;
	return true;
}

// Index arithmetic that is kept as an expression (over iota) is a constant too: worked out where it
// is small.
static bool known_array(Arena *arena, const Graph *g, Ref r, Array *array)
{
	const Val *v = val(g, r);
	if (count_of(&v->shape) > FOLD_LIMIT || v->op == O_slot || v->op == O_rand ||
	    prims[v->op].cls == C_loop)
		return false;
	if (v->op == O_const) {
		*array = array_from(arena, v->type, &v->shape, v->data);
		return true;
	}
	Array *in = NEWS(arena, Array, v->nin);
	for (int k = 0; k < v->nin; k++)
		if (!known_array(arena, g, v->in[k], &in[k]))
			return false;
	*array = eval_prim(arena, v->op, v->attr, v->type, &v->shape, v->nin, in);
	return true;
}

bool is_behind(const Shape *scores, int64_t i)
{
	int64_t m = scores->dim[scores->rank - 2], n = scores->dim[scores->rank - 1];
	return i % n > i / n % m + n - m;
}

bool const_causal(const Graph *g, Ref r)
{
	const Val *v = val(g, r);
	if (v->shape.rank < 2 || !is_float(v->type))
		return false;
	Arena *arena = arena_new();
	Array array;
	bool causal = known_array(arena, g, r, &array);
	for (int64_t i = 0; causal && i < count_of(&v->shape); i++)
		causal = is_behind(&v->shape, i) ? array.f[i] <= -1e30 : array.f[i] == 0;
	arena_free(arena);
	return causal;
}

bool const_ints(const Graph *g, Ref r, int64_t *out, int *n)
{
	const Val *v = val(g, r);
	int64_t count = count_of(&v->shape);
	if (count > *n || is_float(v->type))
		return false;
	Arena *arena = arena_new();
	Array array;
	bool known = known_array(arena, g, r, &array);
	for (int64_t i = 0; known && i < count; i++)
		out[i] = array.i[i];
	if (known)
		*n = (int)count;
	arena_free(arena);
	return known;
}
