// constant.c: finds known values: literals, and index arithmetic over iota.
#include "ir.h"
#include <string.h>

enum {
	KNOWN_VALUES = 256,
	MASK_LIMIT = 1 << 20, // elements of a mask that is evaluated
};

bool is_const(const Graph *g, Ref r)
{
	return val(g, r)->op == O_const;
}

Ref unmoved(const Graph *g, Ref r)
{
	while (prims[val(g, r)->op].cls == C_move && val(g, r)->nin == 1)
		r = val(g, r)->in[0];
	return r;
}

Ref unreshaped(const Graph *g, Ref r)
{
	while (val(g, r)->op == O_reshape)
		r = val(g, r)->in[0];
	return r;
}

// Declares `x`, element i of a constant, which may lie at any address: some are in mapped files.
#define ELEMENT(ctype, x)                                                                          \
	ctype x;                                                                                   \
	memcpy(&x, (const char *)v->data + (size_t)i * sizeof x, sizeof x)

static uint16_t half_at(const Val *v, int64_t i)
{
	ELEMENT(uint16_t, bits);
	return bits;
}

static double double_at(const Val *v, int64_t i)
{
	ELEMENT(double, x);
	return x;
}

static float float_at(const Val *v, int64_t i)
{
	ELEMENT(float, x);
	return x;
}

double const_at(const Val *v, int64_t i)
{
	switch (v->type) {
	case E_f64:
		return double_at(v, i);
	case E_f32:
		return (double)float_at(v, i);
	case E_f16:
		return amos_from_f16(half_at(v, i));
	case E_bf16:
		return amos_from_bf16(half_at(v, i));
	case E_u64:
		return (double)(uint64_t)const_int_at(v, i);
	default:
		return (double)const_int_at(v, i);
	}
}

int64_t const_int_at(const Val *v, int64_t i)
{
	if (is_float(v->type))
		return (int64_t)const_at(v, i);
	switch (v->type) {
#define T(name, ctype, bytes, cls, onnx)                                                           \
	case E_##name: {                                                                           \
		ELEMENT(ctype, x);                                                                 \
		return (int64_t)x;                                                                 \
	}
#include "types.def"
#undef T
	case ELEMS:
		break;
	}
	never("an element type");
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

// Evaluates index arithmetic (over iota) that is kept as an expression, of at most `most` elements.
// `left`: the number of values that may still be evaluated.
static bool known_array(Arena *arena, const Graph *g, Ref r, int64_t most, int *left, Array *array)
{
	const Val *v = val(g, r);
	if (count_of(&v->shape) > most || v->op == O_slot || v->op == O_rand ||
	    prims[v->op].cls == C_loop || --*left < 0)
		return false;
	if (v->op == O_const) {
		*array = array_from(arena, v->type, &v->shape, v->data);
		return true;
	}
	Array *in = NEWS(arena, Array, v->nin);
	for (int k = 0; k < v->nin; k++)
		if (!known_array(arena, g, v->in[k], most, left, &in[k]))
			return false;
	*array = eval_prim(arena, v->op, v->attr, v->type, &v->shape, v->nin, in);
	return true;
}

static bool is_causal(const Graph *g, Ref r)
{
	const Val *v = val(g, r);
	if (v->shape.rank < 2 || !is_float(v->type))
		return false;
	Arena *arena = arena_within(g->arena);
	Array array;
	bool causal = known_array(arena, g, r, MASK_LIMIT, &(int){KNOWN_VALUES}, &array);
	// Scores are [.., queries, keys], both aligned at the end.
	int64_t m = v->shape.dim[v->shape.rank - 2], n = last_dim(&v->shape);
	for (int64_t i = 0; causal && i < count_of(&v->shape); i++) {
		bool future = i % n > i / n % m + n - m;
		causal = future ? array.f[i] <= -1e30 : array.f[i] == 0;
	}
	arena_free(arena);
	return causal;
}

// The answer is kept: each attention of a model asks for the same mask.
bool const_causal(Graph *g, Ref r)
{
	enum { YES = 1, NO };
	if (!g->masks)
		g->masks = table_new(g->arena);
	uint64_t *known = table_cell(g->masks, &r, sizeof r);
	if (!*known)
		*known = is_causal(g, r) ? YES : NO;
	return *known == YES;
}

bool const_ints(const Graph *g, Ref r, int64_t *out, int *n)
{
	const Val *v = val(g, r);
	int64_t count = count_of(&v->shape);
	if (count > *n || is_float(v->type))
		return false;
	Arena *arena = arena_within(g->arena);
	Array array;
	bool known = known_array(arena, g, r, FOLD_LIMIT, &(int){KNOWN_VALUES}, &array);
	for (int64_t i = 0; known && i < count; i++)
		out[i] = array.i[i];
	if (known)
		*n = (int)count;
	arena_free(arena);
	return known;
}
