// random_step.c: puts random operators on a value of a random graph.
// Every primitive, and the forms that exporters and the book use for several.
#include "random_maker.h"
#include <math.h>
#include <string.h>

// ---- expressions known to the book ----------------------------------------------------
// x and y are floats, z is a Boolean. @ is a list of axes of x, # one axis.

static const char *const expressions[] = {
    "sign(x) * x",
    "x * floor(x * 2)",
    "ceil(x) - x",
    "x + round(x * 3)",
    "exp(x * 0.3)",
    "log(abs(x) + 0.5)",
    "sqrt(abs(x) + 0.1)",
    "rsqrt(x * x + 0.3)",
    "cos(x * 2)",
    "select(isnan(x), 0, x * x)",
    "x + cast(cast(x * 4; i32); type(x))",
    "x * cast(x > 0.3; type(x))",
    "cast(cast(x; f16); type(x)) * 0.5",
    "1 / (x * x + 1)",
    "x * 0.125",
    "x - 1.5",
    "x - mean(x; @)",
    "x + sum(x * x; @) * 0.1",
    "prod(act(x; tanh); @)",
    "amin(x; @) * x",
    "x + cast(argmax(x; #); type(x))",
    "x * cast(iota(; #, shape(x)); type(x)) * 0.1",
    "x - lse(x; #)",
    "-log(softmax(x; #))",
    "norm(x; #, 1, 0.00001) * 0.5",
    "(x - mean(x; @)) * rsqrt(variance(x; @) + 0.001)",
    "x * rsqrt(mean(x * x; @) + 0.001)",
    "x * 0.5 * (1 + erf(x * 0.70710678118654752))",
    "x / (1 + exp(-x))",
    "x / (abs(y) + 0.5)",
    "min(x, y) * 2",
    "mod(x, abs(y) + 0.5)",
    "pow(abs(x) + 0.5, y * 0.5)",
    "select(x < y, x, y * 2)",
    "select(or(x <= y, not(y < 0)), x * y, x)",
    "select(xor(x < 0, y < 0), -x, y)",
    "x * y + x",
    "act(x; sigmoid) * y",
    "sum(x * y; @)",
    "softmax(x + y; #)",
    "norm(x + y; #, 1, 0.001)",
    "norm(x; -1, 1, 0.001) * y + x",
    "select(z, x, 0)",
    "softmax(select(z, x, -inf); #)",
    "select(and(z, x < 1), 0, x)",
    "x / max(sqrt(sum(x * x; @)), 0.01)",
    "clip(x, -0.5, 0.5)",
    "sum(x * 0.5 - y; @) * x",
};

static const char *filled(Maker *m, const char *expression, int rank)
{
	Text text = {.arena = m->made.arena};
	for (const char *p = expression; *p; p++) {
		uint64_t first = draw(m, (uint64_t)rank);
		if (*p == '#')
			say(&text, "%d", (int)first);
		else if (*p != '@')
			say(&text, "%c", *p);
		else if (first + 1 < (uint64_t)rank && draw(m, 2))
			say(&text, "[%d,%d]", (int)first, (int)first + 1);
		else
			say(&text, "[%d]", draw(m, 2) ? (int)first : rank - 1);
	}
	return text.at;
}

static Ref look(void *context, const char *name)
{
	const Maker *m = context;
	return !strcmp(name, "x")   ? m->x
	       : !strcmp(name, "y") ? m->y
	       : !strcmp(name, "z") ? m->z
	                            : 0;
}

static Ref evaluated(Maker *m, const char *expression)
{
	Graph *g = m->made.g;
	return eval_expr(g, g->name, parse_text(g->arena, g->name, expression), look, m);
}

static Ref put_expression(Maker *m, Ref x)
{
	const char *expression = expressions[draw(m, COUNT(expressions))];
	m->x = with_axis(m, as_float(m, x));
	m->y = strchr(expression, 'y') ? partner(m, m->x) : 0;
	m->z = strchr(expression, 'z') ? condition(m, m->x) : 0;
	int rank = shape_at(m, m->x)->rank;
	return evaluated(m, filled(m, expression, rank));
}

// ---- maps, reductions, composites, leaves: any row of the table -----------------------

// Returns x mapped to where the operator is defined and its slope bounded.
static Ref in_domain(Maker *m, Op op, int k, Ref x)
{
	bool positive = op == O_log || op == O_sqrt || op == O_rsqrt || (op == O_pow && !k) ||
	                ((op == O_div || op == O_mod) && k);
	if (!positive || class_at(m, x) != 'f')
		return x;
	return enter2(m, O_add, enter1(m, O_abs, x), put_num(m->made.g, value(m, x)->type, 0.25));
}

static Ref put_map(Maker *m, Ref x)
{
	Op op;
	do
		op = (Op)draw(m, OPS);
	while (prims[op].cls != C_map);
	bool logical = op == O_and || op == O_or || op == O_xor;
	if (op == O_cast)
		return as_type(m, x, any_type(m));
	if (op == O_select) {
		Ref c = condition(m, x), y = partner(m, x);
		Ref in[3] = {c, x, broadcasts(shape_at(m, c), shape_at(m, y)) ? y : x};
		return enter(m, op, 3, in, NULL);
	}
	if (op == O_not || (logical && draw(m, 2)))
		x = as_type(m, x, E_b8);
	else if (logical)
		x = as_integer(m, x);
	else if (!strcmp(prims[op].type, "float") || class_at(m, x) == 'b')
		x = as_float(m, x);
	x = in_domain(m, op, 0, x);
	if (op == O_narrow) {
		Attr attr = {.n = 2, .i = {1 + (int64_t)draw(m, 10), -(int64_t)draw(m, 10)}};
		return enter(m, op, 1, &x, &attr);
	}
	if (prims[op].arity == 1)
		return enter1(m, op, x);
	Ref y = in_domain(m, op, 1, partner(m, x));
	return draw(m, 2) || op == O_pow || op == O_div || op == O_mod ? enter2(m, op, x, y)
	                                                               : enter2(m, op, y, x);
}

static Ref put_folded(Maker *m, Ref x)
{
	static const Op ops[] = {O_sum, O_sum, O_prod, O_amax, O_amin, O_argmax, O_cumsum};
	Op op = ops[draw(m, COUNT(ops))];
	x = with_axis(m, x);
	if (op != O_amax && op != O_amin && class_at(m, x) == 'b')
		x = as_integer(m, x);
	if (op == O_prod && class_at(m, x) == 'f') // partial products stay within f32
		x = enter(m, O_act, 1, &x, &(Attr){.n = 1, .i = {A_tanh}});
	Attr attr = {0};
	attr.n = any_axes(m, x, attr.i);
	if (op == O_argmax)
		attr.n = 1;
	if (op == O_cumsum)
		attr = (Attr){.n = 3, .i = {attr.i[0], (int64_t)draw(m, 2), (int64_t)draw(m, 2)}};
	return enter(m, op, 1, &x, &attr);
}

static Ref put_composite(Maker *m, Ref x)
{
	static const Op ops[] = {O_softmax, O_lse, O_norm, O_act, O_act};
	Op op = ops[draw(m, COUNT(ops))];
	x = with_axis(m, as_float(m, x));
	Attr attr = {0};
	int64_t axes[RANK];
	int n = any_axes(m, x, axes);
	if (op == O_act) {
		attr.i[attr.n++] = (int64_t)draw(m, ACTS);
		return enter(m, op, 1, &x, &attr);
	}
	if (op == O_norm) {
		attr.i[attr.n++] = (int64_t)draw(m, 2);
		attr.x = pow(10, -(double)draw(m, 6) - 1);
	}
	memcpy(attr.i + attr.n, axes, sizeof *axes * (size_t)n);
	attr.n += n;
	return enter(m, op, 1, &x, &attr);
}

static Ref random_numbers(Maker *m, const Shape *s)
{
	Attr attr = {.n = 1 + s->rank, .i = {(int64_t)draw(m, (uint64_t)s->rank)}};
	memcpy(attr.i + 1, s->dim, sizeof *s->dim * (size_t)s->rank);
	Shape one = {0};
	Ref in[2];
	for (int k = 0; k < 2; k++)
		in[k] = new_slot(m, E_i64, one, random_bytes(m, E_i64, &one, 1000));
	return enter(m, O_rand, 2, in, &attr);
}

// Returns random numbers, or indices, of x's shape.
static Ref put_leaf(Maker *m, Ref x)
{
	x = with_axis(m, x);
	const Shape s = *shape_at(m, x);
	Attr attr = {.n = 1 + s.rank, .i = {(int64_t)draw(m, (uint64_t)s.rank)}};
	memcpy(attr.i + 1, s.dim, sizeof *s.dim * (size_t)s.rank);
	if (draw(m, 2))
		return enter(m, O_iota, 0, NULL, &attr);
	Ref r = random_numbers(m, &s);
	return draw(m, 2) ? r : enter2(m, O_lt, r, put_num(m->made.g, E_f32, 0.5));
}

// Returns factors of dropout.
static Ref kept_or_not(Maker *m, Elem type, const Shape *s)
{
	Graph *g = m->made.g;
	Ref kept = enter2(m, O_lt, random_numbers(m, s), put_num(g, E_f32, 0.75));
	Ref in[] = {kept, put_num(g, type, 1.25), put_num(g, type, 0)};
	return enter(m, O_select, 3, in, NULL);
}

static Ref put_dropped(Maker *m, Ref x)
{
	x = with_axis(m, as_float(m, x));
	const Shape s = *shape_at(m, x);
	return enter2(m, O_mul, x, kept_or_not(m, value(m, x)->type, &s));
}

// ---- moves ----------------------------------------------------------------------------

static Ref put_new_shape(Maker *m, Ref x)
{
	int64_t n = count_of(shape_at(m, x));
	Shape s = {.rank = (n > 1) + (int)draw(m, MOST_RANK)};
	for (int a = 0; a < s.rank - 1; a++) {
		int64_t d = any_size(m);
		s.dim[a] = n % d ? 1 : d;
		n /= s.dim[a];
	}
	if (s.rank)
		s.dim[s.rank - 1] = n;
	return as_shape(m, x, &s);
}

Ref permuted(Maker *m, Ref x, const int64_t *perm)
{
	Attr attr = {.n = shape_at(m, x)->rank};
	memcpy(attr.i, perm, sizeof *perm * (size_t)attr.n);
	return enter(m, O_permute, 1, &x, &attr);
}

static void any_order(Maker *m, int rank, int64_t *perm)
{
	for (int a = 0; a < rank; a++) {
		int at = (int)draw(m, (uint64_t)a + 1);
		perm[a] = perm[at];
		perm[at] = a;
	}
}

static Ref put_shuffled(Maker *m, Ref x)
{
	int64_t perm[RANK] = {0};
	any_order(m, shape_at(m, x)->rank, perm);
	return permuted(m, x, perm);
}

static Ref put_part(Maker *m, Ref x)
{
	const Shape s = *shape_at(m, x);
	Attr attr = {.n = 3 * s.rank};
	for (int a = 0; a < s.rank; a++) {
		bool full = draw(m, 2);
		int64_t step = full ? 1 : 1 + (int64_t)draw(m, 3);
		int64_t start = full ? 0 : (int64_t)draw(m, (uint64_t)s.dim[a]);
		int64_t most = (s.dim[a] - start + step - 1) / step;
		int64_t count = full ? s.dim[a] : 1 + (int64_t)draw(m, (uint64_t)most);
		if (draw(m, 4) == 0) { // reversed
			start += (count - 1) * step;
			step = -step;
		}
		memcpy(attr.i + 3 * a, (int64_t[]){start, count, step}, 3 * sizeof start);
	}
	return enter(m, O_slice, 1, &x, &attr);
}

static Ref put_border(Maker *m, Ref x)
{
	Attr attr = {.n = 2 * shape_at(m, x)->rank};
	for (int a = 0; a < attr.n; a++)
		attr.i[a] = (int64_t)draw(m, 3);
	attr.x = draw(m, 2) ? 0 : class_at(m, x) == 'f' ? 0.75 : 1;
	return enter(m, O_pad, 1, &x, &attr);
}

static Ref put_stretched(Maker *m, Ref x)
{
	Shape s = *shape_at(m, x);
	Attr attr = {.n = s.rank};
	for (int a = 0; a < s.rank; a++)
		attr.i[a] = s.dim[a] == 1 && draw(m, 3) ? any_size(m) : s.dim[a];
	return enter(m, O_expand, 1, &x, &attr);
}

// Draws windows along an axis of d elements; false if none fits.
static bool draw_window(Maker *m, int64_t axis, int64_t d, WindowAxis *w)
{
	int64_t size = 1 + (int64_t)draw(m, 4), stride = draw(m, 2) ? 1 : 2 + (int64_t)draw(m, 2);
	int64_t dilation = 1 + (int64_t)draw(m, 2), before = (int64_t)draw(m, (uint64_t)size);
	int64_t up = draw(m, 4) ? 1 : 2 + (int64_t)draw(m, 2);
	int64_t room = (d - 1) * up + 1 + 2 * before - (size - 1) * dilation - 1;
	if (room < 0)
		return false;
	int64_t out = room / stride + 1;
	bool backwards = !draw(m, 5); // as in transposed convolutions
	*w = (WindowAxis){axis,
	                  out,
	                  size,
	                  stride,
	                  backwards ? -dilation : dilation,
	                  backwards ? before - (size - 1) * dilation : before,
	                  up};
	return true;
}

static Ref windows(Maker *m, Ref x, int first, int n, double fill)
{
	const Shape s = *shape_at(m, x);
	Attr attr = {.n = WINDOW_NUMS * n, .x = fill};
	for (int k = 0; k < n; k++)
		if (!draw_window(m, first + k, s.dim[first + k], (WindowAxis *)attr.i + k))
			return 0;
	return enter(m, O_window, 1, &x, &attr);
}

static Ref put_windows(Maker *m, Ref x)
{
	x = with_axis(m, x);
	Ref w = windows(m, x, (int)draw(m, (uint64_t)shape_at(m, x)->rank), 1, draw(m, 2) ? 0 : 2);
	return w ? w : x;
}

static Ref put_pool(Maker *m, Ref x)
{
	static const Op ops[] = {O_sum, O_amax, O_maxpool, O_amin, O_prod};
	x = as_float(m, x);
	int rank = shape_at(m, x)->rank, n = 1 + (int)draw(m, 2);
	if (rank < n)
		return x;
	Op op = ops[draw(m, COUNT(ops))];
	double fill = op == O_amax || op == O_maxpool ? -INFINITY
	              : op == O_amin                  ? INFINITY
	                                              : op == O_prod;
	Ref w = windows(m, x, rank - n, n, fill);
	if (!w)
		return x;
	Attr attr = {.n = n, .i = {rank, rank + 1}};
	Ref r = enter(m, op, 1, &w, &attr);
	Shape s = *shape_at(m, r);
	s.rank = rank;
	return as_shape(m, r, &s);
}

static Ref put_joined(Maker *m, Ref x)
{
	x = with_axis(m, x);
	Shape s = *shape_at(m, x);
	int axis = (int)draw(m, (uint64_t)s.rank), n = 1 + (int)draw(m, 4);
	Ref parts[4] = {x, x, x, x};
	for (int k = 0; k < n; k++) {
		s.dim[axis] = any_size(m);
		if (draw(m, 2))
			parts[k] = new_leaf(m, value(m, x)->type, s);
	}
	return enter(m, O_concat, n, parts, &(Attr){.n = 1, .i = {axis}});
}

// An empty slice, concatenated or reduced.
static Ref put_nothing(Maker *m, Ref x)
{
	x = with_axis(m, x);
	const Shape s = *shape_at(m, x);
	int axis = (int)draw(m, (uint64_t)s.rank);
	Attr attr = {.n = 3 * s.rank};
	for (int a = 0; a < s.rank; a++)
		memcpy(attr.i + 3 * a, (int64_t[]){0, a == axis ? 0 : s.dim[a], 1},
		       3 * sizeof *attr.i);
	Ref empty = enter(m, O_slice, 1, &x, &attr);
	if (draw(m, 2) || class_at(m, x) == 'b')
		return enter(m, O_concat, 2, (Ref[]){empty, x}, &(Attr){.n = 1, .i = {axis}});
	Ref sum = enter(m, draw(m, 2) ? O_sum : O_prod, 1, &empty, &(Attr){.n = 1, .i = {axis}});
	return enter2(m, O_add, x, sum);
}

// ---- products -------------------------------------------------------------------------

// Returns a new operand of shape s, stored in another order of axes.
static Ref permuted_operand(Maker *m, Elem type, const Shape *s)
{
	int64_t perm[RANK] = {0};
	for (int a = 0; a < s->rank; a++)
		perm[a] = a;
	if (!draw(m, 3))
		any_order(m, s->rank, perm);
	else if (draw(m, 2))
		perm[s->rank - 1] = s->rank - 2, perm[s->rank - 2] = s->rank - 1;
	Shape in_memory = {.rank = s->rank};
	for (int a = 0; a < s->rank; a++)
		in_memory.dim[perm[a]] = s->dim[a];
	return permuted(m, new_leaf(m, type, in_memory), perm);
}

static Ref matrix(Maker *m, Ref x)
{
	x = as_float(m, x);
	Shape s = *shape_at(m, x), two = {.rank = 2, .dim = {1, 1}};
	if (s.rank >= 2)
		return x;
	if (s.rank)
		two.dim[draw(m, 2)] = s.dim[0];
	return as_shape(m, x, &two);
}

static Ref put_product(Maker *m, Ref x)
{
	x = matrix(m, x);
	Shape s = *shape_at(m, x), other = s;
	int r = s.rank;
	bool right = draw(m, 4) == 0;
	if (r > 2 && !right && draw(m, 2)) { // one product with a matrix, as the reader lowers it
		Shape flat = {.rank = 2, .dim = {count_of(&s) / s.dim[r - 1], s.dim[r - 1]}};
		int64_t n = any_size(m);
		Ref w = permuted_operand(m, value(m, x)->type,
		                         &(Shape){.rank = 2, .dim = {s.dim[r - 1], n}});
		s.dim[r - 1] = n;
		return as_shape(m, enter2(m, O_dot, as_shape(m, x, &flat), w), &s);
	}
	other.dim[right ? r - 1 : r - 2] = s.dim[right ? r - 2 : r - 1];
	other.dim[right ? r - 2 : r - 1] = any_size(m);
	for (int a = 0; a < r - 2; a++)
		if (draw(m, 2))
			other.dim[a] = s.dim[a] == 1 && draw(m, 2) ? 3 : 1;
	Ref y = permuted_operand(m, value(m, x)->type, &other);
	return right ? enter2(m, O_dot, y, x) : enter2(m, O_dot, x, y);
}

// One or two layers of a perceptron.
static Ref put_layers(Maker *m, Ref x)
{
	x = matrix(m, x);
	Elem type = value(m, x)->type;
	for (uint64_t layers = 1 + draw(m, 2); layers; layers--) {
		const Shape s = *shape_at(m, x);
		int64_t rows = count_of(&s) / s.dim[s.rank - 1], n = any_size(m);
		x = as_shape(m, x, &(Shape){2, {rows, s.dim[s.rank - 1]}});
		Ref w = new_leaf(m, type, (Shape){2, {s.dim[s.rank - 1], n}});
		x = enter2(m, O_add, enter2(m, O_dot, x, w), new_leaf(m, type, (Shape){2, {1, n}}));
		x = enter(m, O_act, 1, &x, &(Attr){.n = 1, .i = {(int64_t)draw(m, ACTS)}});
	}
	return x;
}

static Ref swapped(Maker *m, Ref x)
{
	int64_t perm[RANK];
	int rank = shape_at(m, x)->rank;
	for (int a = 0; a < rank; a++)
		perm[a] = a < rank - 2 ? a : 2 * rank - 3 - a;
	return permuted(m, x, perm);
}

// Returns the product of a value with itself transposed.
static Ref put_scores(Maker *m, Ref x)
{
	x = matrix(m, x);
	return draw(m, 2) ? enter2(m, O_dot, x, swapped(m, x)) : enter2(m, O_dot, swapped(m, x), x);
}

static Ref put_attention(Maker *m, Ref x)
{
	x = matrix(m, x);
	Shape s = *shape_at(m, x), scores = s;
	int r = s.rank;
	Elem type = value(m, x)->type;
	s.dim[r - 2] += (int64_t)draw(m, 4);
	if (r > 2 && !draw(m, 3))
		s.dim[0] = 1; // one key for several queries
	scores.dim[r - 1] = s.dim[r - 2];
	Ref k = permuted_operand(m, type, &s);
	s.dim[r - 1] = any_size(m);
	Ref in[6] = {x, k, permuted_operand(m, type, &s)};
	for (int a = 0; a < r - 2; a++)
		if (draw(m, 2))
			scores.dim[a] = 1;
	int more = (int)draw(m, 5) - 1; // bias, mask, dropout
	if (more > 0)
		in[3] = new_leaf(m, type, scores);
	if (more > 1)
		in[4] = new_leaf(m, E_b8, scores);
	if (more > 2)
		in[5] = kept_or_not(m, type, &scores);
	int64_t causal = (int64_t)draw(m, 2), zeros = (int64_t)draw(m, 2);
	Attr attr = {.n = 2, .i = {causal, zeros}, .x = draw(m, 2) ? 0.3 : 1};
	return enter(m, O_attend, 3 + MAX(more, 0), in, &attr);
}

// Convolution as the reader lowers it: windows [N, G, C, out.., size..] of x as matrices of size..
// C columns, one per group or one for all samples, times a kernel [G, O, size.. C] transposed.
static Ref put_convolution(Maker *m, Ref x)
{
	const Shape image = {.rank = 4, .dim = {2, 4, 9, 7}};
	x = as_float(m, x);
	if (shape_at(m, x)->rank < 3 || shape_at(m, x)->rank > 4)
		x = new_leaf(m, E_f32, image);
	Shape s = *shape_at(m, x), grouped = {.rank = s.rank + 1, .dim = {s.dim[0], 1, s.dim[1]}};
	int n = s.rank - 2;
	if (s.dim[1] % 2 == 0 && draw(m, 2))
		grouped.dim[1] = 2, grouped.dim[2] /= 2;
	memcpy(grouped.dim + 3, s.dim + 2, sizeof *s.dim * (size_t)n);
	Ref w = windows(m, as_shape(m, x, &grouped), 3, n, 0);
	if (!w)
		return x;
	Shape ws = *shape_at(m, w);
	int64_t perm[RANK] = {0, 1}, positions = 1, fan = ws.dim[2], groups = ws.dim[1];
	for (int a = 0; a < n; a++) {
		perm[2 + a] = 3 + a;
		perm[2 + n + a] = 3 + n + a;
		positions *= ws.dim[3 + a];
		fan *= ws.dim[3 + n + a];
	}
	perm[2 + 2 * n] = 2;
	int64_t outs = any_size(m);
	Shape kernel = {3, {groups, outs, fan}}, matrix = {2, {ws.dim[0] * positions, fan}},
	      flat = {2, {fan, outs}}, batch = {4, {ws.dim[0], groups, positions, fan}},
	      with_batch = {4, {1, groups, fan, outs}},
	      transposed = {3, {ws.dim[0], positions, outs}};
	bool one = groups == 1;
	Ref k = permuted(m, new_leaf(m, value(m, x)->type, kernel), (int64_t[]){0, 2, 1});
	Ref y = enter2(m, O_dot, as_shape(m, permuted(m, w, perm), one ? &matrix : &batch),
	               as_shape(m, k, one ? &flat : &with_batch));
	y = one ? permuted(m, as_shape(m, y, &transposed), (int64_t[]){0, 2, 1})
	        : permuted(m, y, (int64_t[]){0, 1, 3, 2});
	s.dim[1] = groups * outs;
	memcpy(s.dim + 2, ws.dim + 3, sizeof *ws.dim * (size_t)n);
	return as_shape(m, y, &s);
}

// Normalizes each channel of each sample, channels being last.
static Ref put_channels(Maker *m, Ref x)
{
	int64_t samples = 1 + (int64_t)draw(m, m->made.large ? 40 : 8), channels = 8 << draw(m, 4);
	x = new_leaf(m, value(m, as_float(m, x))->type,
	             (Shape){3, {samples, 1 + any_size(m), channels}});
	m->x = x;
	return evaluated(m, "(x - mean(x; 1)) * rsqrt(variance(x; 1) + 0.001)");
}

// Normalizes groups of channels and scales each channel, as GroupNorm and InstanceNorm do.
static Ref put_groups(Maker *m, Ref x)
{
	x = as_float(m, x);
	Elem type = value(m, x)->type;
	if (shape_at(m, x)->rank < 3 || m->made.large)
		x = new_leaf(
		    m, type,
		    (Shape){4, {1 + (int64_t)draw(m, 4), 8, any_size(m), 1 + any_size(m)}});
	const Shape s = *shape_at(m, x);
	int64_t each = 1 + (int64_t)draw(m, 4), groups = s.dim[1] % each ? 1 : s.dim[1] / each;
	int64_t rest = count_of(&s) / s.dim[0] / groups;
	Shape scale = {.rank = s.rank, .dim = {1, s.dim[1]}};
	for (int a = 2; a < s.rank; a++)
		scale.dim[a] = 1;
	m->x = as_shape(m, x, &(Shape){3, {s.dim[0], groups, rest}});
	Ref y = as_shape(m, evaluated(m, "(x - mean(x; 2)) * rsqrt(variance(x; 2) + 0.001)"), &s);
	y = enter2(m, O_mul, y, new_leaf(m, type, scale));
	return enter2(m, O_add, y, new_leaf(m, type, scale));
}

// ---- indices that are data ------------------------------------------------------------

static Ref new_index(Maker *m, Shape shape, int64_t below)
{
	Elem type = draw(m, 2) ? E_i64 : E_i32;
	const void *bytes = random_bytes(m, type, &shape, below);
	return draw(m, 5) ? new_slot(m, type, shape, bytes)
	                  : put_const(m->made.g, type, shape, bytes);
}

static Ref put_looked_up(Maker *m, Ref x)
{
	x = with_axis(m, x);
	const Shape s = *shape_at(m, x);
	int axis = (int)draw(m, (uint64_t)s.rank);
	Shape index = {.rank = (int)draw(m, 3)};
	for (int a = 0; a < index.rank; a++)
		index.dim[a] = a ? 2 : any_size(m);
	Ref in[2] = {x, new_index(m, index, s.dim[axis])};
	return enter(m, O_gather, 2, in, &(Attr){.n = 1, .i = {axis}});
}

// Returns the mean cross entropy of a layer's logits.
static Ref put_entropy(Maker *m, Ref x)
{
	x = matrix(m, x);
	const Shape s = *shape_at(m, x);
	int64_t width = s.dim[s.rank - 1], rows = count_of(&s) / width, classes = 1 + any_size(m);
	Ref w = new_leaf(m, value(m, x)->type, (Shape){2, {width, classes}});
	m->x = enter2(m, O_dot, as_shape(m, x, &(Shape){2, {rows, width}}), w);
	m->y = new_index(m, (Shape){1, {rows}}, classes);
	return evaluated(m, draw(m, 2) ? "cross_entropy(x, y)" : "cross_entropy(x, y; 1, 0.1)");
}

// Returns indices without repetition, so that stores do not depend on an order.
static Ref unique_index(Maker *m, int64_t n, int64_t below)
{
	int64_t *order = NEWS(m->made.arena, int64_t, below);
	for (int64_t i = 0; i < below; i++) {
		int64_t at = (int64_t)draw(m, (uint64_t)i + 1);
		order[i] = order[at];
		order[at] = i;
	}
	return new_slot(m, E_i64, (Shape){1, {n}}, order);
}

static Ref put_scattered(Maker *m, Ref x)
{
	enum { SET, ADD, MODES = 5 };
	x = with_axis(m, x);
	if (class_at(m, x) == 'b')
		x = as_float(m, x);
	Shape s = *shape_at(m, x);
	int axis = (int)draw(m, (uint64_t)s.rank), mode = draw(m, 2) ? (int)draw(m, MODES) : ADD;
	Shape index = {.rank = 1, .dim = {any_size(m)}};
	if (mode == SET)
		index.dim[0] = MIN(index.dim[0], s.dim[axis]);
	Ref i = mode == SET ? unique_index(m, index.dim[0], s.dim[axis])
	                    : new_index(m, index, s.dim[axis]);
	s.dim[axis] = index.dim[0];
	Ref in[3] = {x, i, new_leaf(m, value(m, x)->type, s)};
	return enter(m, O_scatter, 3, in, &(Attr){.n = 2, .i = {axis, mode}});
}

// ---- loops ----------------------------------------------------------------------------

static Ref look_slot(void *body, const char *name)
{
	int slot = find_slot(body, name);
	return slot < 0 ? 0 : put_slot(body, slot);
}

static void body_slot(Graph *body, const char *name, const Val *v, Shape shape)
{
	add_slot(body, (Slot){.name = name, .kind = S_input, .type = v->type, .shape = shape});
}

// Next carried value, from h, an entry e of x, and w.
static const char *const recurrences[] = {
    "act(h * w + e; tanh)",          "max(h, e) * w",
    "h * 0.5 + act(e + h; sigmoid)", "h + cumsum(e * w; 0, 0, 0)",
    "softmax(h + e; 0) * w",         "(h + e) * 0.5",
    "h * 0.9 - mean(e; 0) * w",      "e",
    "select(h < e, h * w, e - h)",
};

// The same of matrices, w being square: cells of recurrent networks.
static const char *const cells[] = {
    "act(dot(h, w) + e; tanh)",
    "act(dot(h, w); sigmoid) * h * 0.5 + act(e; tanh)",
    "norm(dot(h, w) + e; 1, 1, 0.001)",
    "act(dot(h * act(dot(e, w); sigmoid), w); tanh) + e * 0.5",
};

// A recurrence along the first axis of x.
static Ref put_recurrence(Maker *m, Ref x)
{
	enum { MOST_TRIPS = 33 };
	x = as_type(m, x, E_f32);
	Shape s = *shape_at(m, x), entry = {.rank = s.rank - 1};
	if (s.rank < 2 || s.dim[0] > MOST_TRIPS)
		return x;
	memcpy(entry.dim, s.dim + 1, sizeof *s.dim * (size_t)entry.rank);
	bool cell = entry.rank == 2 && draw(m, 2);
	int64_t width = s.dim[s.rank - 1];
	Ref h = new_leaf(m, E_f32, entry);
	Ref w = cell ? new_leaf(m, E_f32, (Shape){2, {width, width}}) : partner(m, h);
	if (!cell && !same_shape(shape_at(m, w), &entry))
		w = h;
	Graph *g = m->made.g, *body = graph_new(g->arena, "turn", book_builtin());
	body_slot(body, "h", value(m, h), entry);
	body_slot(body, "e", value(m, x), entry);
	body_slot(body, "w", value(m, w), *shape_at(m, w));
	const char *text =
	    cell ? cells[draw(m, COUNT(cells))] : recurrences[draw(m, COUNT(recurrences))];
	Ref next = eval_expr(body, "turn", parse_text(g->arena, "turn", text), look_slot, body);
	add_out(body, "h", next);
	add_out(body, "seen", draw(m, 2) ? next : put1(body, O_neg, put_slot(body, 0)));
	LoopInfo cycle = {body, s.dim[0], 1, 1, 1, 1, draw(m, 2), false};
	Shape one = {0};
	Ref limit = put_num(g, E_i64, (double)s.dim[0]);
	if (!draw(m, 3))
		limit = new_slot(m, E_i64, one, random_bytes(m, E_i64, &one, s.dim[0] + 1));
	return loop_result(g, put_loop(g, &cycle, (Ref[]){limit, h, x, w}), (int)draw(m, 2));
}

// ---- the table ------------------------------------------------------------------------

Step *const random_steps[] = {
    put_expression, put_expression, put_expression, put_expression, put_map,       put_map,
    put_folded,     put_composite,  put_leaf,       put_new_shape,  put_shuffled,  put_part,
    put_border,     put_stretched,  put_windows,    put_pool,       put_joined,    put_nothing,
    put_product,    put_product,    put_layers,     put_scores,     put_attention, put_convolution,
    put_looked_up,  put_scattered,  put_recurrence, put_dropped,    put_groups,    put_entropy,
    put_channels};
const int random_step_count = COUNT(random_steps);
