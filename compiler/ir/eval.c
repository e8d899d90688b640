// eval.c: the oracle: what each primitive means, written for reading and not for speed.
// Takes ir.h and libm. Gives arrays of double or int64. Keeps: integers wrap to their type, floats
// stay double.
#include "ir.h"
#include <math.h>
#include <string.h>

static bool is_float(Elem elem)
{
	return elems[elem].cls == 'f';
}

static Array array_new(Arena *arena, Elem elem, const Shape *shape)
{
	Array array = {.type = elem, .shape = *shape};
	size_t count = (size_t)count_of(shape);
	if (is_float(elem))
		array.f = NEWS(arena, double, count);
	else
		array.i = NEWS(arena, int64_t, count);
	return array;
}

static void copy_element(Array *out, int64_t to, const Array *in, int64_t from)
{
	if (is_float(out->type))
		out->f[to] = in->f[from];
	else
		out->i[to] = in->i[from];
}

static int64_t wrap(Elem elem, int64_t x)
{
	switch (elem) {
	case E_i32:
		return (int32_t)x;
	case E_i16:
		return (int16_t)x;
	case E_i8:
		return (int8_t)x;
	case E_u32:
		return (uint32_t)x;
	case E_u16:
		return (uint16_t)x;
	case E_u8:
		return (uint8_t)x;
	case E_b8:
		return x != 0;
	default:
		return x;
	}
}

static void set_float(Array *out, int64_t i, double x)
{
	if (is_float(out->type))
		out->f[i] = x;
	else if (out->type == E_b8)
		out->i[i] = x != 0;
	else if (out->type == E_u64)
		out->i[i] = !(x > 0) ? 0 : (int64_t)(x >= 0x1p64 ? UINT64_MAX : (uint64_t)x);
	else
		out->i[i] = isnan(x)      ? 0
		            : x >= 0x1p63 ? INT64_MAX
		            : x < -0x1p63 ? INT64_MIN
		                          : wrap(out->type, (int64_t)x);
}

// ---- positions ------------------------------------------------------------------------

// The next position in row-major order; false after the last.
static bool advance(const Shape *shape, int64_t *at)
{
	for (int a = shape->rank - 1; a >= 0; a--) {
		if (++at[a] < shape->dim[a])
			return true;
		at[a] = 0;
	}
	return false;
}

static int64_t offset(int rank, const int64_t *at, const int64_t *stride)
{
	int64_t sum = 0;
	for (int a = 0; a < rank; a++)
		sum += at[a] * stride[a];
	return sum;
}

// Strides of an operand under a result of `rank` axes: aligned at the end, 0 where it stretches.
static void stretch_strides(const Shape *from, int rank, int64_t *stride)
{
	int64_t own[RANK];
	row_strides(from, own);
	for (int a = 0; a < rank; a++) {
		int b = a - (rank - from->rank);
		stride[a] = b >= 0 && from->dim[b] != 1 ? own[b] : 0;
	}
}

// ---- maps -----------------------------------------------------------------------------

static double larger(double x, double y)
{
	return isnan(x) ? x : isnan(y) ? y : MAX(x, y);
}

static double smaller(double x, double y)
{
	return isnan(x) ? x : isnan(y) ? y : MIN(x, y);
}

static double modulo(double x, double y)
{
	double rest = fmod(x, y);
	return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

static double float_map(Op op, double x, double y)
{
	switch (op) {
	case O_neg:
		return -x;
	case O_abs:
		return fabs(x);
	case O_sign:
		return (x > 0) - (x < 0);
	case O_floor:
		return floor(x);
	case O_ceil:
		return ceil(x);
	case O_round:
		return rint(x);
	case O_exp:
		return exp(x);
	case O_log:
		return log(x);
	case O_sqrt:
		return sqrt(x);
	case O_rsqrt:
		return 1 / sqrt(x);
	case O_sin:
		return sin(x);
	case O_cos:
		return cos(x);
	case O_atan:
		return atan(x);
	case O_erf:
		return erf(x);
	case O_tanh:
		return tanh(x);
	case O_isnan:
		return isnan(x);
	case O_cast:
		return x;
	case O_add:
		return x + y;
	case O_sub:
		return x - y;
	case O_mul:
		return x * y;
	case O_div:
		return x / y;
	case O_pow:
		return pow(x, y);
	case O_max:
		return larger(x, y);
	case O_min:
		return smaller(x, y);
	case O_mod:
		return modulo(x, y);
	case O_eq:
		return x == y;
	case O_lt:
		return x < y;
	case O_le:
		return x <= y;
	default:
		never("a map of floats");
	}
}

static bool is_signed(Elem elem)
{
	return elems[elem].cls == 'i';
}

static bool int_less(Elem elem, int64_t x, int64_t y)
{
	return is_signed(elem) ? x < y : (uint64_t)x < (uint64_t)y;
}

static int64_t int_div(Elem elem, int64_t x, int64_t y)
{
	if (y == 0)
		return 0;
	if (!is_signed(elem))
		return (int64_t)((uint64_t)x / (uint64_t)y);
	return y == -1 ? (int64_t) - (uint64_t)x : x / y;
}

static int64_t int_mod(Elem elem, int64_t x, int64_t y)
{
	if (y == 0 || (is_signed(elem) && y == -1))
		return 0;
	if (!is_signed(elem))
		return (int64_t)((uint64_t)x % (uint64_t)y);
	int64_t rest = x % y;
	return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

static int64_t int_sign(Elem elem, int64_t x)
{
	return is_signed(elem) ? (x > 0) - (x < 0) : x != 0;
}

// Sums and products wrap: they are worked out unsigned.
static int64_t int_map(Op op, Elem elem, int64_t x, int64_t y)
{
	uint64_t ux = (uint64_t)x, uy = (uint64_t)y;
	switch (op) {
	case O_neg:
		return (int64_t)-ux;
	case O_abs:
		return is_signed(elem) && x < 0 ? (int64_t)-ux : x;
	case O_sign:
		return int_sign(elem, x);
	case O_isnan:
		return 0;
	case O_not:
		return !x;
	case O_cast:
		return x;
	case O_add:
		return (int64_t)(ux + uy);
	case O_sub:
		return (int64_t)(ux - uy);
	case O_mul:
		return (int64_t)(ux * uy);
	case O_div:
		return int_div(elem, x, y);
	case O_mod:
		return int_mod(elem, x, y);
	case O_max:
		return int_less(elem, x, y) ? y : x;
	case O_min:
		return int_less(elem, x, y) ? x : y;
	case O_eq:
		return x == y;
	case O_lt:
		return int_less(elem, x, y);
	case O_le:
		return !int_less(elem, y, x);
	case O_and:
		return x & y;
	case O_or:
		return x | y;
	case O_xor:
		return x ^ y;
	default:
		never("a map of integers");
	}
}

static double int_to_double(Elem elem, int64_t x)
{
	return is_signed(elem) ? (double)x : (double)(uint64_t)x;
}

static void map_element(Op op, Array *out, int64_t i, const Array *in, const int64_t *at)
{
	if (op == O_select)
		copy_element(out, i, &in[in[0].i[at[0]] ? 1 : 2], in[0].i[at[0]] ? at[1] : at[2]);
	else if (is_float(in[0].type))
		set_float(out, i,
		          float_map(op, in[0].f[at[0]], prims[op].arity > 1 ? in[1].f[at[1]] : 0));
	else if (is_float(out->type))
		out->f[i] = int_to_double(in[0].type, in[0].i[at[0]]);
	else
		out->i[i] = wrap(out->type, int_map(op, in[0].type, in[0].i[at[0]],
		                                    prims[op].arity > 1 ? in[1].i[at[1]] : 0));
}

static void eval_map(Op op, Array *out, int nin, const Array *in)
{
	int64_t stride[3][RANK], at[RANK] = {0}, place[3], i = 0;
	if (count_of(&out->shape) == 0)
		return;
	for (int k = 0; k < nin; k++)
		stretch_strides(&in[k].shape, out->shape.rank, stride[k]);
	do {
		for (int k = 0; k < nin; k++)
			place[k] = offset(out->shape.rank, at, stride[k]);
		map_element(op, out, i++, in, place);
	} while (advance(&out->shape, at));
}

// Steps of 2^(exponent - bits), the exponent that of x, but at least the least.
static void eval_narrow(const Attr *attr, Array *out, const Array *in)
{
	for (int64_t i = 0; i < count_of(&out->shape); i++) {
		double x = in->f[i];
		int exponent = isfinite(x) && x != 0 ? ilogb(x) : 0;
		int step = (int)(MAX(exponent, attr->i[1]) - attr->i[0]);
		out->f[i] = isfinite(x) ? ldexp(rint(ldexp(x, -step)), step) : x;
	}
}

// ---- folds ----------------------------------------------------------------------------

static void fold_float(Op op, double *out, double x)
{
	*out = op == O_sum    ? *out + x
	       : op == O_prod ? *out * x
	       : op == O_amax ? larger(*out, x)
	                      : smaller(*out, x);
}

static void fold_int(Op op, Elem elem, int64_t *out, int64_t x)
{
	static const Op as_map[OPS] = {
	    [O_sum] = O_add, [O_prod] = O_mul, [O_amax] = O_max, [O_amin] = O_min};
	*out = wrap(elem, int_map(as_map[op], elem, *out, x));
}

static double float_start(Op op)
{
	return op == O_prod ? 1 : op == O_amax ? -INFINITY : op == O_amin ? INFINITY : 0;
}

static int64_t int_start(Op op, Elem elem)
{
	bool sign = is_signed(elem);
	return op == O_prod   ? 1
	       : op == O_amax ? (sign ? INT64_MIN : 0)
	       : op == O_amin ? (sign ? INT64_MAX : -1)
	                      : 0;
}

static void eval_fold(Op op, Array *out, const Array *in)
{
	int64_t stride[RANK], at[RANK] = {0}, i = 0;
	stretch_strides(&out->shape, in->shape.rank, stride);
	for (int64_t k = 0; k < count_of(&out->shape); k++) {
		if (is_float(out->type))
			out->f[k] = float_start(op);
		else
			out->i[k] = int_start(op, out->type);
	}
	if (count_of(&in->shape) == 0)
		return;
	do {
		int64_t to = offset(in->shape.rank, at, stride);
		if (is_float(out->type))
			fold_float(op, &out->f[to], in->f[i]);
		else
			fold_int(op, out->type, &out->i[to], in->i[i]);
		i++;
	} while (advance(&in->shape, at));
}

static bool is_larger(const Array *in, int64_t a, int64_t b)
{
	return is_float(in->type) ? in->f[a] > in->f[b] : int_less(in->type, in->i[b], in->i[a]);
}

static void eval_argmax(int axis, Array *out, const Array *in)
{
	int64_t stride[RANK], at[RANK] = {0}, i = 0;
	row_strides(&in->shape, stride);
	do {
		int64_t first = offset(in->shape.rank, at, stride), best = 0;
		for (int64_t k = 1; k < in->shape.dim[axis]; k++)
			if (is_larger(in, first + k * stride[axis], first + best * stride[axis]))
				best = k;
		out->i[i++] = best;
	} while (advance(&out->shape, at));
}

static void eval_cumsum(const Attr *attr, Array *out, const Array *in)
{
	int axis = (int)attr->i[0];
	bool exclusive = attr->i[1], reverse = attr->i[2];
	Shape lines = folded_shape(&in->shape, 1, attr->i);
	int64_t stride[RANK], at[RANK] = {0}, size = in->shape.dim[axis];
	row_strides(&in->shape, stride);
	do {
		int64_t first = offset(in->shape.rank, at, stride), whole = 0;
		double sum = 0;
		for (int64_t k = 0; k < size; k++) {
			int64_t i = first + (reverse ? size - 1 - k : k) * stride[axis];
			double before = sum;
			int64_t whole_before = whole;
			if (is_float(in->type))
				out->f[i] = (sum += in->f[i], exclusive ? before : sum);
			else
				out->i[i] = (fold_int(O_sum, in->type, &whole, in->i[i]),
				             exclusive ? whole_before : whole);
		}
	} while (advance(&lines, at));
}

// ---- moves ----------------------------------------------------------------------------

// Where element `at` of the result comes from in the operand, or -1: the fill.
static int64_t source(Op op, const Attr *attr, const Shape *from, const int64_t *at)
{
	int64_t stride[RANK], sum = 0;
	row_strides(from, stride);
	for (int a = 0; a < from->rank; a++) {
		int64_t i = at[a], axis = op == O_permute ? attr->i[a] : a;
		if (op == O_slice)
			i = attr->i[3 * a] + i * attr->i[3 * a + 2];
		else if (op == O_expand)
			i = from->dim[a] == 1 ? 0 : i;
		else if (op == O_pad)
			i -= attr->i[2 * a];
		if (i < 0 || i >= from->dim[axis])
			return -1;
		sum += i * stride[axis];
	}
	return sum;
}

// The same for window: entry (o, k) of a windowed axis is operand index (o stride + k dilation -
// before) / up.
static int64_t window_source(const Attr *attr, const Shape *from, const int64_t *at)
{
	int64_t stride[RANK], index[RANK];
	row_strides(from, stride);
	memcpy(index, at, sizeof *at * (size_t)from->rank);
	for (int k = 0; k < attr->n / 7; k++) {
		const int64_t *w = attr->i + 7 * k;
		int64_t i = at[w[0]] * w[3] + at[from->rank + k] * w[4] - w[5];
		if (i < 0 || i % w[6] || i / w[6] >= from->dim[w[0]])
			return -1;
		index[w[0]] = i / w[6];
	}
	return offset(from->rank, index, stride);
}

static void eval_move(Op op, const Attr *attr, Array *out, const Array *in)
{
	int64_t at[RANK] = {0}, i = 0;
	if (count_of(&out->shape) == 0)
		return;
	do {
		int64_t k = op == O_reshape  ? i
		            : op == O_window ? window_source(attr, &in->shape, at)
		                             : source(op, attr, &in->shape, at);
		if (k >= 0)
			copy_element(out, i, in, k);
		else
			set_float(out, i, attr->x);
		i++;
	} while (advance(&out->shape, at));
}

static void eval_concat(int axis, Array *out, int nin, const Array *in)
{
	int64_t stride[RANK], start = 0;
	row_strides(&out->shape, stride);
	for (int k = 0; k < nin; k++) {
		int64_t at[RANK] = {0}, i = 0;
		if (count_of(&in[k].shape) > 0)
			do {
				int64_t to =
				    offset(out->shape.rank, at, stride) + start * stride[axis];
				copy_element(out, to, &in[k], i++);
			} while (advance(&in[k].shape, at));
		start += in[k].shape.dim[axis];
	}
}

// ---- dot, gather, scatter -------------------------------------------------------------

static void eval_dot(Array *out, const Array *a, const Array *b)
{
	int r = out->shape.rank;
	int64_t sa[RANK], sb[RANK], at[RANK] = {0}, i = 0, own[RANK];
	int64_t depth = a->shape.dim[r - 1];
	if (count_of(&out->shape) == 0)
		return;
	stretch_strides(&a->shape, r, sa);
	stretch_strides(&b->shape, r, sb);
	row_strides(&b->shape, own);
	int64_t down = own[r - 2];
	sa[r - 1] = sb[r - 2] = 0;
	do {
		const double *x = a->f + offset(r, at, sa), *y = b->f + offset(r, at, sb);
		double sum = 0;
		for (int64_t k = 0; k < depth; k++)
			sum += x[k] * y[k * down];
		out->f[i++] = sum;
	} while (advance(&out->shape, at));
}

// Calls for each element of gather's result: its number, and the place in x that it stands for.
typedef struct Pick {
	const Array *index;
	Shape x, picked;
	int axis;
	int64_t at[RANK], stride[RANK], index_stride[RANK];
} Pick;

static Pick pick_new(const Array *x, const Array *index, int axis, const Shape *picked)
{
	Pick p = {.index = index, .x = x->shape, .picked = *picked, .axis = axis};
	row_strides(&p.x, p.stride);
	row_strides(&index->shape, p.index_stride);
	return p;
}

// Where the element at p->at lies in x; -1 where the index is none of its axis.
static int64_t picked_place(const Pick *p)
{
	int wide = p->index->shape.rank;
	int64_t index = p->index->i[offset(wide, p->at + p->axis, p->index_stride)];
	if (index < 0 || index >= p->x.dim[p->axis])
		return -1;
	int64_t place = index * p->stride[p->axis];
	for (int a = 0; a < p->x.rank; a++)
		if (a != p->axis)
			place += p->at[a < p->axis ? a : a - 1 + wide] * p->stride[a];
	return place;
}

static void eval_gather(const Attr *attr, Array *out, const Array *in)
{
	Pick p = pick_new(&in[0], &in[1], (int)attr->i[0], &out->shape);
	int64_t i = 0;
	do {
		int64_t place = picked_place(&p);
		if (place < 0)
			fail("gather", "an index lies outside of its axis of %lld entries",
			     (long long)p.x.dim[p.axis]);
		copy_element(out, i++, &in[0], place);
	} while (advance(&p.picked, p.at));
}

static void combine(int64_t mode, Array *out, int64_t to, const Array *update, int64_t i)
{
	static const Op how[] = {O_const, O_add, O_mul, O_min, O_max};
	if (mode == 0)
		copy_element(out, to, update, i);
	else if (is_float(out->type))
		out->f[to] = float_map(how[mode], out->f[to], update->f[i]);
	else
		out->i[to] =
		    wrap(out->type, int_map(how[mode], out->type, out->i[to], update->i[i]));
}

static void eval_scatter(const Attr *attr, Array *out, const Array *in)
{
	for (int64_t i = 0; i < count_of(&out->shape); i++)
		copy_element(out, i, &in[0], i);
	if (count_of(&in[2].shape) == 0)
		return;
	Pick p = pick_new(&in[0], &in[1], (int)attr->i[0], &in[2].shape);
	int64_t i = 0;
	do {
		int64_t place = picked_place(&p);
		if (place < 0)
			fail("scatter", "an index lies outside of its axis of %lld entries",
			     (long long)p.x.dim[p.axis]);
		combine(attr->i[1], out, place, &in[2], i++);
	} while (advance(&p.picked, p.at));
}

// ---- wholes ---------------------------------------------------------------------------

static double sigmoid(double x)
{
	return 1 / (1 + exp(-x));
}

static double softplus(double x)
{
	return MAX(x, 0) + log1p(exp(-fabs(x)));
}

double eval_act(Act act, double x)
{
	switch (act) {
	case A_relu:
		return larger(x, 0);
	case A_gelu:
		return x / 2 * (1 + erf(x / sqrt(2)));
	case A_gelu_tanh:
		return x * sigmoid(2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
	case A_gelu_quick:
		return x * sigmoid(1.702 * x);
	case A_silu:
		return x * sigmoid(x);
	case A_tanh:
		return tanh(x);
	case A_sigmoid:
		return sigmoid(x);
	case A_hardswish:
		return x * smaller(larger(x / 6 + 0.5, 0), 1);
	case A_hardsigmoid:
		return smaller(larger(x / 6 + 0.5, 0), 1);
	case A_softplus:
		return softplus(x);
	case A_mish:
		return x * tanh(softplus(x));
	case ACTS:
		break;
	}
	never("an activation");
}

static Array fold_axes(Arena *arena, Op op, const Array *x, int n, const int64_t *axes)
{
	Shape shape = folded_shape(&x->shape, n, axes);
	Array out = array_new(arena, x->type, &shape);
	eval_fold(op, &out, x);
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

static Array eval_softmax(Arena *arena, const Attr *attr, const Array *x)
{
	Array most = fold_axes(arena, O_amax, x, attr->n, attr->i);
	Array less = map2(arena, O_sub, x, &most);
	Array e = map1(arena, O_exp, &less);
	Array sum = fold_axes(arena, O_sum, &e, attr->n, attr->i);
	return map2(arena, O_div, &e, &sum);
}

static Array eval_lse(Arena *arena, const Attr *attr, const Array *x)
{
	Array most = fold_axes(arena, O_amax, x, attr->n, attr->i);
	Array less = map2(arena, O_sub, x, &most);
	Array e = map1(arena, O_exp, &less);
	Array sum = fold_axes(arena, O_sum, &e, attr->n, attr->i);
	Array log_sum = map1(arena, O_log, &sum);
	return map2(arena, O_add, &log_sum, &most);
}

static Array eval_norm(Arena *arena, const Attr *attr, Array x)
{
	int n = attr->n - 1;
	const int64_t *axes = attr->i + 1;
	Shape folded = folded_shape(&x.shape, n, axes);
	double each = (double)count_of(&x.shape) / (double)MAX(count_of(&folded), 1);
	if (attr->i[0]) {
		Array mean = fold_axes(arena, O_sum, &x, n, axes);
		for (int64_t i = 0; i < count_of(&folded); i++)
			mean.f[i] /= each;
		x = map2(arena, O_sub, &x, &mean);
	}
	Array square = map2(arena, O_mul, &x, &x);
	Array scale = fold_axes(arena, O_sum, &square, n, axes);
	for (int64_t i = 0; i < count_of(&folded); i++)
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
		if (is_behind(&scores->shape, i))
			scores->f[i] = -INFINITY;
}

// Scores are as wide as the result: operands may stretch along the leading axes, bias too.
static Array eval_attend(Arena *arena, const Attr *attr, const Shape *shape, int nin,
                         const Array *in)
{
	Array key = transposed(arena, &in[1]);
	Array scores = product(arena, &in[0], &key);
	for (int64_t i = 0; i < count_of(&scores.shape); i++)
		scores.f[i] *= attr->x;
	if (nin == 4) {
		Shape wide = scores.shape;
		for (int a = 0; a < wide.rank - 2; a++)
			wide.dim[a] = shape->dim[a];
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

static Array eval_whole(Arena *arena, Op op, const Attr *attr, const Shape *shape, int nin,
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
		never("a whole");
	}
}

// ---- leaves ---------------------------------------------------------------------------

static uint64_t mix64(uint64_t z)
{
	z += 0x9E3779B97F4A7C15;
	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
	z = (z ^ z >> 27) * 0x94D049BB133111EB;
	return z ^ z >> 31;
}

static uint32_t mix32(uint32_t h)
{
	h = (h ^ h >> 16) * 0x85EBCA6Bu;
	h = (h ^ h >> 13) * 0xC2B2AE35u;
	return h ^ h >> 16;
}

double random_uniform(uint64_t seed, uint64_t step, uint64_t site, uint64_t position)
{
	uint64_t k = mix64(mix64(mix64(seed) + step) + site);
	uint32_t low = (uint32_t)position * 0x9E3779B1u + (uint32_t)k;
	uint32_t high = (uint32_t)(k >> 32) ^ (uint32_t)(position >> 32) * 0x85EBCA77u;
	return (double)(mix32(mix32(low) ^ high) >> 8) * 0x1p-24;
}

static void eval_leaf(Op op, const Attr *attr, Array *out, const Array *in)
{
	if (op != O_iota && op != O_rand)
		never("a leaf without contents");
	int64_t at[RANK] = {0}, i = 0;
	do {
		if (op == O_iota)
			out->i[i] = at[attr->i[0]];
		else
			out->f[i] = random_uniform((uint64_t)in[0].i[0], (uint64_t)in[1].i[0],
			                           (uint64_t)attr->i[0], (uint64_t)i);
		i++;
	} while (advance(&out->shape, at));
}

// ---- loops ----------------------------------------------------------------------------

// Entry t of what is scanned.
static Array entry_of(const Array *a, int64_t t)
{
	Array entry = *a;
	entry.shape = shape_of(a->shape.rank - 1, a->shape.dim + 1);
	int64_t first = t * count_of(&entry.shape);
	if (is_float(a->type))
		entry.f += first;
	else
		entry.i += first;
	return entry;
}

static void copy_elements(Array *to, int64_t first, const Array *from)
{
	for (int64_t i = 0; i < count_of(&from->shape); i++)
		copy_element(to, first + i, from, i);
}

typedef struct Turn { // a loop being run
	Cycle loop;
	Array *slot;  // of the body
	Array *part;  // results so far
	Array *ahead; // carried values for the next trip
} Turn;

static Turn turn_start(Arena *arena, const Val *v, const Array *in)
{
	Turn t = {.loop = loop_of(v)};
	const Cycle *l = &t.loop;
	t.slot = take_copy(arena, in + 1, sizeof *in * (size_t)(loop_operands(l) - 1));
	t.part = NEWS(arena, Array, loop_results(l) + 1);
	t.ahead = NEWS(arena, Array, l->carried + 1);
	for (int k = 0; k < loop_results(l); k++) {
		Elem type = result_val(l, k)->type;
		Shape shape = result_shape(l, k);
		t.part[k] = array_new(arena, type, &shape);
		if (k >= l->carried)
			continue;
		t.ahead[k] = array_new(arena, type, &shape);
		copy_elements(&t.part[k], 0, &in[1 + k]);
	}
	return t;
}

// One trip, over entry `at`; does another follow?
static bool turn_once(Turn *t, const Array *in, int64_t at)
{
	Arena *arena = arena_new();
	const Cycle *l = &t->loop;
	for (int k = 0; k < l->carried + l->scanned; k++)
		t->slot[k] = k < l->carried ? t->part[k] : entry_of(&in[1 + k], at);
	const Array *value = eval_graph(arena, l->body, t->slot);
	for (int k = 0; k < loop_results(l); k++) {
		const Array *from = &value[l->body->outs.at[l->until + k].val];
		bool carried = k < l->carried;
		copy_elements(carried ? &t->ahead[k] : &t->part[k],
		              carried ? 0 : at * count_of(&from->shape), from);
	}
	for (int k = 0; k < l->carried; k++) {
		Array before = t->part[k];
		t->part[k] = t->ahead[k];
		t->ahead[k] = before;
	}
	bool on = !l->until || value[l->body->outs.at[0].val].i[0];
	arena_free(arena);
	return on;
}

static Array eval_loop(Arena *arena, const Val *v, const Array *in)
{
	Turn t = turn_start(arena, v, in);
	int64_t limit = MAX(0, MIN(in[0].i[0], t.loop.trips)), n = 0;
	bool on = true;
	for (; on && n < limit; n++)
		on = turn_once(&t, in, t.loop.reverse ? limit - 1 - n : n);
	Array out = array_new(arena, E_i64, &(Shape){0});
	out.i[0] = n;
	out.part = t.part;
	return out;
}

// ---- any primitive, a whole graph -----------------------------------------------------

Array eval_prim(Arena *arena, Op op, const Attr *attr, Elem elem, const Shape *shape, int nin,
                const Array *in)
{
	Array out = array_new(arena, elem, shape);
	if (count_of(shape) == 0)
		return out;
	switch (prims[op].cls) {
	case C_leaf:
		eval_leaf(op, attr, &out, in);
		break;
	case C_map:
		if (op == O_narrow)
			eval_narrow(attr, &out, in);
		else
			eval_map(op, &out, nin, in);
		break;
	case C_fold:
		if (op == O_cumsum)
			eval_cumsum(attr, &out, in);
		else if (op == O_argmax)
			eval_argmax((int)attr->i[0], &out, in);
		else
			eval_fold(op, &out, in);
		break;
	case C_move:
		if (op == O_concat)
			eval_concat((int)attr->i[0], &out, nin, in);
		else
			eval_move(op, attr, &out, in);
		break;
	case C_dot:
		eval_dot(&out, &in[0], &in[1]);
		break;
	case C_index:
		if (op == O_gather)
			eval_gather(attr, &out, in);
		else
			eval_scatter(attr, &out, in);
		break;
	case C_whole:
		return eval_whole(arena, op, attr, shape, nin, in);
	case C_loop:
		if (op == O_loop)
			never("a loop without its body");
		return in[0].part[attr->i[0]];
	}
	return out;
}

Array eval_value(Arena *arena, const Graph *g, Ref r, const Array *slot, const Array *in)
{
	const Val *v = val(g, r);
	if (v->op == O_const)
		return array_from(arena, v->type, &v->shape, v->data);
	if (v->op == O_slot)
		return slot[v->attr->i[0]];
	if (v->op == O_loop)
		return eval_loop(arena, v, in);
	return eval_prim(arena, v->op, v->attr, v->type, &v->shape, v->nin, in);
}

Array *eval_graph(Arena *arena, const Graph *g, const Array *slot)
{
	bool *live = graph_marks(arena, g);
	Array *result = NEWS(arena, Array, g->nval), *in = NULL;
	int room = 0;
	for (int r = 1; r < g->nval; r++) {
		const Val *v = &g->val[r];
		if (!live[r])
			continue;
		while (room < v->nin)
			in = grow(arena, in, sizeof *in, &room);
		for (int k = 0; k < v->nin; k++)
			in[k] = result[v->in[k]];
		result[r] = eval_value(arena, g, r, slot, in);
	}
	return result;
}

// ---- bytes ----------------------------------------------------------------------------

float half_to_float(uint16_t h)
{
	int exponent = h >> 10 & 31, fraction = h & 1023;
	float x = exponent == 31 ? (fraction ? NAN : INFINITY)
	          : exponent     ? ldexpf((float)(1024 + fraction), exponent - 25)
	                         : ldexpf((float)fraction, -24);
	return h >> 15 ? -x : x;
}

uint16_t float_to_half(float x)
{
	uint32_t bits;
	float size = fabsf(x);
	memcpy(&bits, &size, 4);
	uint16_t sign = signbit(x) ? 0x8000 : 0;
	if (isnan(x))
		return sign | 0x7E00;
	if (size >= 65520)
		return sign | 0x7C00;
	if (size < 0x1p-14f)
		return sign | (uint16_t)rintf(size * 0x1p24f);
	bits += 0xFFF + (bits >> 13 & 1);
	return sign | (uint16_t)((bits >> 13) - (112 << 10));
}

float bf16_to_float(uint16_t h)
{
	uint32_t bits = (uint32_t)h << 16;
	float x;
	memcpy(&x, &bits, 4);
	return x;
}

uint16_t float_to_bf16(float x)
{
	uint32_t bits;
	memcpy(&bits, &x, 4);
	if (isnan(x))
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

Array array_from(Arena *arena, Elem elem, const Shape *shape, const void *bytes)
{
	Array array = array_new(arena, elem, shape);
	Val v = {.type = elem, .data = bytes};
	for (int64_t i = 0; i < count_of(shape); i++) {
		if (is_float(elem))
			array.f[i] = const_at(&v, i);
		else
			array.i[i] = const_int_at(&v, i);
	}
	return array;
}

void array_to(const Array *array, void *bytes)
{
	for (int64_t i = 0; i < count_of(&array->shape); i++) {
		switch (array->type) {
		case E_f64:
			((double *)bytes)[i] = array->f[i];
			break;
		case E_f32:
			((float *)bytes)[i] = (float)array->f[i];
			break;
		case E_f16:
			((uint16_t *)bytes)[i] = float_to_half((float)array->f[i]);
			break;
		case E_bf16:
			((uint16_t *)bytes)[i] = float_to_bf16((float)array->f[i]);
			break;
		default: // little endian: the low bytes
			memcpy((char *)bytes + i * elems[array->type].bytes, &array->i[i],
			       (size_t)elems[array->type].bytes);
		}
	}
}
