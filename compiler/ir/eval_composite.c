// eval_composite.c: evaluates composites.
#include "eval.h"
#include <math.h>

static double sigmoid(double x)
{
	return 1 / (1 + exp(-x));
}

static double softplus(double x)
{
	return MAX(x, 0) + log1p(exp(-fabs(x)));
}

static double eval_act(Act act, double x)
{
	switch (act) {
#define A(name, scale, value, formula, gradient)                                                   \
	case A_##name:                                                                             \
		return value;
#include "acts.def"
#undef A
	case ACTS:
		break;
	}
	never("an activation");
}

static Array reduce_axes(Arena *arena, Op op, const Array *x, int n, const int64_t *axes)
{
	Shape shape = reduced_shape(&x->shape, n, axes);
	Array out = array_new(arena, x->type, &shape);
	eval_reduce(op, &out, x);
	return out;
}

static Array map2(Arena *arena, Op op, const Array *x, const Array *y)
{
	Array out = array_new(arena, x->type, &x->shape);
	eval_map(op, &out, 2, (Array[]){*x, *y});
	return out;
}

static Array map1(Arena *arena, Op op, const Array *x)
{
	Array out = array_new(arena, x->type, &x->shape);
	eval_map(op, &out, 1, x);
	return out;
}

// Returns exp(x - max(x)); the maximum (with `finite`: 0 if infinite) and the sum of the
// exponentials.
static Array exponentials(Arena *arena, const Attr *attr, const Array *x, bool finite,
                          Array *largest, Array *sum)
{
	*largest = reduce_axes(arena, O_amax, x, attr->n, attr->i);
	for (int64_t i = 0; finite && i < count_of(&largest->shape); i++)
		largest->f[i] = isfinite(largest->f[i]) || isnan(largest->f[i]) ? largest->f[i] : 0;
	Array less = map2(arena, O_sub, x, largest);
	Array e = map1(arena, O_exp, &less);
	*sum = reduce_axes(arena, O_sum, &e, attr->n, attr->i);
	return e;
}

static Array eval_softmax(Arena *arena, const Attr *attr, const Array *x)
{
	Array largest, sum, e = exponentials(arena, attr, x, false, &largest, &sum);
	return map2(arena, O_div, &e, &sum);
}

static Array eval_lse(Arena *arena, const Attr *attr, const Array *x)
{
	Array largest, sum;
	exponentials(arena, attr, x, true, &largest, &sum);
	Array log_sum = map1(arena, O_log, &sum);
	return map2(arena, O_add, &log_sum, &largest);
}

static Array eval_norm(Arena *arena, const Attr *attr, Array x)
{
	int n = attr->n - 1;
	const int64_t *axes = attr->i + 1;
	Shape reduced = reduced_shape(&x.shape, n, axes);
	double each = (double)count_of(&x.shape) / (double)MAX(count_of(&reduced), 1);
	if (attr->i[0]) {
		Array mean = reduce_axes(arena, O_sum, &x, n, axes);
		for (int64_t i = 0; i < count_of(&reduced); i++)
			mean.f[i] /= each;
		x = map2(arena, O_sub, &x, &mean);
	}
	Array square = map2(arena, O_mul, &x, &x);
	Array scale = reduce_axes(arena, O_sum, &square, n, axes);
	for (int64_t i = 0; i < count_of(&reduced); i++)
		scale.f[i] = sqrt(scale.f[i] / each + attr->x);
	return map2(arena, O_div, &x, &scale);
}

static Array transposed(Arena *arena, const Array *x)
{
	Shape shape = x->shape;
	Attr perm = {.n = shape.rank};
	int r = shape.rank;
	for (int a = 0; a < r; a++)
		perm.i[a] = a < r - 2 ? a : 2 * r - 3 - a;
	shape.dim[r - 2] = x->shape.dim[r - 1];
	shape.dim[r - 1] = x->shape.dim[r - 2];
	Array out = array_new(arena, x->type, &shape);
	eval_move(O_permute, &perm, &out, x);
	return out;
}

static Array product(Arena *arena, const Array *a, const Array *b)
{
	Shape shape = a->shape;
	int r = shape.rank;
	for (int axis = 0; axis < r - 2; axis++)
		shape.dim[axis] = a->shape.dim[axis] == 1 ? b->shape.dim[axis] : a->shape.dim[axis];
	shape.dim[r - 1] = b->shape.dim[r - 1];
	Array out = array_new(arena, a->type, &shape);
	eval_dot(&out, a, b);
	return out;
}

static void hide_later(Array *scores)
{
	for (int64_t i = 0; i < count_of(&scores->shape); i++)
		if (is_future_key(&scores->shape, i))
			scores->f[i] = -INFINITY;
}

// Operands, and the bias, may be broadcast along the leading axes of the scores.
static Array eval_attend(Arena *arena, const Attr *attr, const Shape *shape, int nin,
                         const Array *in)
{
	Array key = transposed(arena, &in[1]);
	Array scores = product(arena, &in[0], &key);
	for (int64_t i = 0; i < count_of(&scores.shape); i++)
		scores.f[i] *= attr->x;
	Shape wide = scores.shape;
	for (int a = 0; a < wide.rank - 2; a++)
		wide.dim[a] = shape->dim[a];
	if (nin > 4) {
		Array shown = array_new(arena, scores.type, &wide),
		      zero = array_new(arena, scores.type, &(Shape){0});
		eval_map(O_select, &shown, 3, (Array[]){in[4], scores, zero});
		scores = shown;
	}
	if (nin > 3) {
		Array biased = array_new(arena, scores.type, &wide);
		eval_map(O_add, &biased, 2, (Array[]){scores, in[3]});
		scores = biased;
	}
	if (attr->i[0])
		hide_later(&scores);
	Attr last = {.n = 1, .i = {shape->rank - 1}};
	Array weights = eval_softmax(arena, &last, &scores);
	for (int64_t i = 0; attr->i[1] && i < count_of(&weights.shape); i++)
		if (isnan(weights.f[i]))
			weights.f[i] = 0;
	return product(arena, &weights, &in[2]);
}

Array eval_composite(Arena *arena, Op op, const Attr *attr, const Shape *shape, int nin,
                     const Array *in)
{
	switch (op) {
	case O_softmax:
		return eval_softmax(arena, attr, &in[0]);
	case O_lse:
		return eval_lse(arena, attr, &in[0]);
	case O_norm:
		return eval_norm(arena, attr, in[0]);
	case O_attend:
		return eval_attend(arena, attr, shape, nin, in);
	case O_act: {
		Array out = array_new(arena, in[0].type, shape);
		for (int64_t i = 0; i < count_of(shape); i++)
			out.f[i] = eval_act((Act)attr->i[0], in[0].f[i]);
		return out;
	}
	default:
		never("a composite");
	}
}
