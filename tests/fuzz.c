// fuzz.c: random graphs, compiled and evaluated.
// fuzz [SEED [SECONDS]]: graphs number SEED, SEED + 1, ... for so long, at least one. Each has 5 to
// 40 operators put through the door, and the gradients of all its float slots. By the evaluator,
// in double, gradients equal differences. What is compiled, in f32, equals the evaluator's numbers
// within what f32 can be expected to give; graphs that magnify a small disturbance so much that
// this says nothing are counted apart. Prints a graph that differs, with the number that makes it
// again.
#include "emitted.h"
#include "trial.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FEWEST = 5, MOST = 40, SHAPES = 4 };
static const double tolerance = 2e-3;   // of the largest entry
static const double disturbance = 4e-6; // of every value: some 60 roundings
static const double cancelled = 1e-6;   // of the largest out: what is left of terms that cancel
static const double largest_kept = 30;  // larger values are scaled down

typedef struct Maker {
	Arena *arena;
	Graph *g;
	uint64_t state;
	VEC(Ref) pool;    // float values to go on from
	VEC(Array) slots; // by number
	Ref x, y;         // operands of the expression being put
} Maker;

static uint64_t draw(Maker *m, uint64_t below)
{
	m->state += 0x9E3779B97F4A7C15u;
	return hash_bytes(&m->state, sizeof m->state, 1) % below;
}

static const Shape *shape_at(const Maker *m, Ref r)
{
	return &val(m->g, r)->shape;
}

static Ref any_value(Maker *m)
{
	uint64_t late = draw(m, 2) ? (uint64_t)m->pool.count : MIN(3, (uint64_t)m->pool.count);
	return m->pool.at[(uint64_t)m->pool.count - 1 - draw(m, late)];
}

// ---- slots ----------------------------------------------------------------------------

static Ref new_slot(Maker *m, Elem type, Shape shape, int64_t below)
{
	static const SlotKind kinds[] = {S_input, S_param};
	Slot slot = {.name = format(m->arena, "s%d", m->g->slots.count),
	             .kind = kinds[elems[type].cls == 'f' && draw(m, 2)],
	             .type = type,
	             .shape = shape};
	int64_t n = count_of(&shape);
	Array a = {.type = type, .shape = shape, .f = NEWS(m->arena, double, n + 1)};
	for (int64_t i = 0; i < n; i++) {
		if (elems[type].cls == 'f')
			a.f[i] = (double)draw(m, 4001) / 1000 - 2 + (double)draw(m, 8) / 65536;
		else
			a.i[i] = (int64_t)draw(m, (uint64_t)below);
	}
	PUSH(m->arena, m->slots, a);
	return put_slot(m->g, add_slot(m->g, slot));
}

static int64_t small_size(Maker *m)
{
	static const int64_t sizes[] = {1, 2, 3, 4, 5, 8, 17, 33};
	return sizes[draw(m, COUNT(sizes))];
}

static Shape small_shape(Maker *m)
{
	Shape s = {.rank = 1 + (int)draw(m, SHAPES)};
	int64_t room = 600;
	for (int a = 0; a < s.rank; a++) {
		int64_t size = small_size(m);
		s.dim[a] = MIN(size, room);
		room /= s.dim[a];
	}
	return s;
}

// ---- expressions ----------------------------------------------------------------------
// @ stands for a list of axes of x, # for one axis.

static const char *const expressions[] = {
    "-x",
    "abs(x)",
    "sign(x) * x",
    "x * floor(x * 2)",
    "ceil(x) - x",
    "x + round(x * 3)",
    "exp(x * 0.3)",
    "log(abs(x) + 0.5)",
    "sqrt(abs(x) + 0.1)",
    "rsqrt(x * x + 0.3)",
    "sin(x)",
    "cos(x * 2)",
    "atan(x)",
    "erf(x)",
    "tanh(x)",
    "select(isnan(x), 0, x * x)",
    "x + cast(cast(x * 4; i32); f32)",
    "x * cast(x > 0.3; f32)",
    "act(x; relu)",
    "act(x; gelu)",
    "act(x; gelu_tanh)",
    "act(x; gelu_quick)",
    "act(x; silu)",
    "act(x; tanh)",
    "act(x; sigmoid)",
    "act(x; hardswish)",
    "act(x; hardsigmoid)",
    "act(x; softplus)",
    "act(x; mish)",
    "1 / (x * x + 1)",
    "x * 0.125",
    "x - 1.5",
    "sum(x; @)",
    "x - mean(x; @)",
    "x + sum(x * x; @) * 0.1",
    "prod(act(x; tanh); @)",
    "amax(x; @)",
    "amin(x; @) * x",
    "x + cast(argmax(x; #); f32)",
    "x * cast(iota(; #, shape(x)); f32) * 0.1",
    "cumsum(x; #, 0, 0)",
    "cumsum(x; #, 1, 1)",
    "softmax(x; @)",
    "lse(x; @)",
    "x - lse(x; #)",
    "norm(x; @, 1, 0.01)",
    "norm(x; @, 0, 0.01)",
    "norm(x; #, 1, 0.00001) * 0.5",
    "x + y",
    "x - y",
    "x * y",
    "x / (abs(y) + 0.5)",
    "max(x, y)",
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
};

static const char *filled(Maker *m, const char *expression, int rank)
{
	Text text = {.arena = m->arena};
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

// Something that x can be combined with: a value that fits, a part of x, or a new slot.
static Ref partner(Maker *m, Ref x)
{
	const Shape *s = shape_at(m, x);
	for (int tries = 0; tries < 6; tries++) {
		Ref y = any_value(m);
		const Shape *other = shape_at(m, y);
		bool fits = other->rank == s->rank;
		for (int a = 0; fits && a < s->rank; a++)
			fits = other->dim[a] == s->dim[a] || other->dim[a] == 1 || s->dim[a] == 1;
		if (fits && y != x)
			return y;
	}
	Shape part = *s;
	for (int a = 0; a < part.rank; a++)
		if (!draw(m, 3))
			part.dim[a] = 1;
	return new_slot(m, E_f32, part, 0);
}

static Ref look(void *context, const char *name)
{
	const Maker *m = context;
	return !strcmp(name, "x") ? m->x : !strcmp(name, "y") ? m->y : 0;
}

static Ref put_expression(Maker *m, Ref x)
{
	const char *expression = expressions[draw(m, COUNT(expressions))];
	m->x = x;
	m->y = strchr(expression, 'y') ? partner(m, x) : 0;
	return book_eval(m->g, "fuzz", filled(m, expression, shape_at(m, x)->rank), look, m);
}

// ---- moves ----------------------------------------------------------------------------

static Ref put_new_shape(Maker *m, Ref x)
{
	int64_t n = count_of(shape_at(m, x));
	Shape s = {.rank = 1 + (int)draw(m, SHAPES)};
	for (int a = 0; a < s.rank - 1; a++) {
		int64_t d = small_size(m);
		s.dim[a] = n % d ? 1 : d;
		n /= s.dim[a];
	}
	s.dim[s.rank - 1] = n;
	return put_reshape(m->g, x, s);
}

static Ref put_shuffled(Maker *m, Ref x)
{
	int64_t perm[RANK];
	int rank = shape_at(m, x)->rank;
	for (int a = 0; a < rank; a++) {
		int at = (int)draw(m, (uint64_t)a + 1);
		perm[a] = perm[at];
		perm[at] = a;
	}
	return put_permute(m->g, x, perm);
}

static Ref put_part(Maker *m, Ref x)
{
	int64_t start[RANK], count[RANK], step[RANK];
	const Shape s = *shape_at(m, x);
	for (int a = 0; a < s.rank; a++) {
		bool whole = draw(m, 2);
		step[a] = whole ? 1 : 1 + (int64_t)draw(m, 2);
		start[a] = whole ? 0 : (int64_t)draw(m, (uint64_t)s.dim[a]);
		int64_t most = (s.dim[a] - start[a] + step[a] - 1) / step[a];
		count[a] = whole ? s.dim[a] : 1 + (int64_t)draw(m, (uint64_t)most);
		if (draw(m, 4) == 0) { // backwards
			start[a] += (count[a] - 1) * step[a];
			step[a] = -step[a];
		}
	}
	return put_slice(m->g, x, start, count, step);
}

static Ref put_rim(Maker *m, Ref x)
{
	int64_t before[RANK], after[RANK];
	for (int a = 0; a < shape_at(m, x)->rank; a++) {
		before[a] = (int64_t)draw(m, 3);
		after[a] = (int64_t)draw(m, 3);
	}
	return put_pad(m->g, x, before, after, draw(m, 2) ? 0 : 0.75);
}

static Ref put_stretched(Maker *m, Ref x)
{
	Shape s = *shape_at(m, x);
	for (int a = 0; a < s.rank; a++)
		if (s.dim[a] == 1)
			s.dim[a] = small_size(m);
	return put_expand(m->g, x, s);
}

static Ref put_windows(Maker *m, Ref x)
{
	const Shape *s = shape_at(m, x);
	int64_t axis = (int64_t)draw(m, (uint64_t)s->rank), d = s->dim[axis];
	int64_t size = 1 + (int64_t)draw(m, 3), stride = 1 + (int64_t)draw(m, 2);
	int64_t dilation = 1 + (int64_t)draw(m, 2), before = (int64_t)draw(m, (uint64_t)size);
	int64_t out = (d + 2 * before - (size - 1) * dilation - 1) / stride + 1;
	if (d + 2 * before < (size - 1) * dilation + 1)
		return x;
	Attr attr = {.n = 7, .i = {axis, out, size, stride, dilation, before, 1}};
	return put(m->g, O_window, 1, &x, &attr);
}

static Ref put_joined(Maker *m, Ref x)
{
	Shape s = *shape_at(m, x);
	int axis = (int)draw(m, (uint64_t)s.rank);
	Ref parts[3] = {x, x, x};
	for (int k = 0; k < 2; k++) {
		s.dim[axis] = small_size(m);
		parts[k] = draw(m, 2) ? new_slot(m, E_f32, s, 0) : x;
	}
	return put_concat(m->g, axis, 2 + (int)draw(m, 2), parts);
}

// ---- products, places that are data ---------------------------------------------------

static Ref put_product(Maker *m, Ref x)
{
	Shape s = *shape_at(m, x);
	if (s.rank < 2)
		return put_rank(m->g, x, 2);
	Shape weight = s;
	weight.dim[s.rank - 2] = s.dim[s.rank - 1];
	weight.dim[s.rank - 1] = small_size(m);
	for (int a = 0; a < s.rank - 2; a++)
		if (draw(m, 2))
			weight.dim[a] = 1;
	return put2(m->g, O_dot, x, new_slot(m, E_f32, weight, 0));
}

// The product of a value with itself, turned: scores of attention.
static Ref put_scores(Maker *m, Ref x)
{
	int rank = shape_at(m, x)->rank;
	int64_t perm[RANK];
	if (rank < 2)
		return put_rank(m->g, x, 2);
	for (int a = 0; a < rank; a++)
		perm[a] = a < rank - 2 ? a : 2 * rank - 3 - a;
	return put2(m->g, O_dot, x, put_permute(m->g, x, perm));
}

static Ref put_attention(Maker *m, Ref q)
{
	Shape s = *shape_at(m, q);
	if (s.rank < 2)
		return put_rank(m->g, q, 2);
	s.dim[s.rank - 2] += (int64_t)draw(m, 4);
	Ref k = new_slot(m, E_f32, s, 0);
	s.dim[s.rank - 1] = small_size(m);
	Ref in[3] = {q, k, new_slot(m, E_f32, s, 0)};
	return put(m->g, O_attend, 3, in, &(Attr){.n = 1, .i = {(int64_t)draw(m, 2)}, .x = 0.3});
}

static Ref put_looked_up(Maker *m, Ref x)
{
	const Shape s = *shape_at(m, x);
	int axis = (int)draw(m, (uint64_t)s.rank);
	Shape index = {.rank = 1 + (int)draw(m, 2), .dim = {small_size(m), 2}};
	return put_gather(m->g, x, new_slot(m, E_i64, index, s.dim[axis]), axis);
}

static Ref put_scattered(Maker *m, Ref x)
{
	enum { ADD = 1 };
	Shape s = *shape_at(m, x);
	int axis = (int)draw(m, (uint64_t)s.rank);
	Shape index = {.rank = 1, .dim = {small_size(m)}};
	Ref i = new_slot(m, E_i64, index, s.dim[axis]);
	s.dim[axis] = index.dim[0];
	return put_scatter(m->g, x, i, new_slot(m, E_f32, s, 0), axis, ADD);
}

// ---- a graph --------------------------------------------------------------------------

typedef Ref Step(Maker *, Ref x);

static Ref put_step(Maker *m)
{
	static Step *const steps[] = {put_new_shape, put_shuffled,  put_part,      put_rim,
	                              put_stretched, put_windows,   put_joined,    put_product,
	                              put_scores,    put_attention, put_looked_up, put_scattered};
	Ref x = any_value(m);
	if (draw(m, 5) < 3)
		return put_expression(m, x);
	return steps[draw(m, COUNT(steps))](m, x);
}

// The largest entry; NAN where one is not finite.
static double size_of(const Array *a)
{
	double size = 0;
	for (int64_t i = 0; i < count_of(&a->shape); i++)
		size = isfinite(a->f[i]) ? fmax(size, fabs(a->f[i])) : NAN;
	return size;
}

// Keeps a value that is a number of moderate size, made so where it is not.
static void keep_value(Maker *m, Ref r)
{
	enum { MOST_ELEMENTS = 20000 };
	const Shape *s = shape_at(m, r);
	if (count_of(s) > MOST_ELEMENTS || s->rank > 6 || s->rank < 1)
		return;
	Graph *g = graph_like(m->arena, m->g);
	*g = *m->g;
	g->outs.at = NULL;
	g->outs.count = g->outs.room = 0;
	add_out(g, "r", r);
	double size = size_of(&eval_graph(m->arena, g, m->slots.at)[r]);
	if (isnan(size))
		return;
	if (size > largest_kept)
		r = put2(m->g, O_mul, r, put_num(m->g, E_f32, exp2(-ceil(log2(size / 2)))));
	PUSH(m->arena, m->pool, r);
}

static Graph *make_graph(Maker *m)
{
	int count = FEWEST + (int)draw(m, MOST - FEWEST + 1);
	for (int i = 0; i < 2; i++) {
		Ref slot = new_slot(m, E_f32, small_shape(m), 0);
		PUSH(m->arena, m->pool, slot);
	}
	for (int i = 0; i < count; i++)
		keep_value(m, put_step(m));
	int outs = 1 + (int)draw(m, 3);
	for (int i = 0; i < outs && i < m->pool.count; i++)
		add_out(m->g, format(m->arena, "o%d", i), m->pool.at[m->pool.count - 1 - i]);
	return m->g;
}

static Array slot_value(void *slots, const Slot *s)
{
	return ((const Array *)slots)[strtol(s->name + 1, NULL, 10)];
}

typedef enum Outcome { AGREES, SAYS_NOTHING, DIFFERS } Outcome;

// A disturbance shows what f32 can be expected to give.
static Outcome check(Arena *arena, Trial *t, const Target *target)
{
	double *least = rounding_errors(arena, t->with, t->slot, disturbance);
	Array *value = eval_graph(arena, t->with, t->slot);
	double largest = 0;
	for (int k = 0; k < t->with->outs.count; k++) {
		double size = size_of(&value[t->with->outs.at[k].val]);
		largest = fmax(largest, size);
		if (!(least[k] <= 0.05 * size))
			return SAYS_NOTHING;
	}
	for (int k = 0; k < t->with->outs.count; k++)
		least[k] = fmax(least[k], cancelled * largest) / tolerance;
	bool good = check_graph(arena, t->with, t->slot, target, plain_launch, tolerance, least,
	                        t->name) <= 1;
	return good && trial_differences(t) ? AGREES : DIFFERS;
}

static Outcome try_number(uint64_t number)
{
	static const char *const masks[] = {NULL, "-avx512f", "-avx2,-avx512f"};
	Arena *arena = arena_new();
	Maker m = {.arena = arena, .state = number * 0xD1342543DE82EF95u};
	m.g = graph_new(arena, "fuzz", book_builtin());
	const char *name = format(arena, "fuzz %llu", (unsigned long long)number);
	const Graph *g = make_graph(&m);
	Trial *t = trial_new(arena, name, g, slot_value, m.slots.at);
	Outcome outcome = SAYS_NOTHING;
	if (t->with && !t->moved)
		outcome = check(arena, t, target_named(arena, "cpu", masks[draw(&m, 3)]));
	if (outcome == DIFFERS)
		print_graph(stdout, t->loss);
	arena_free(arena);
	return outcome;
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
	uint64_t number = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
	double end = now() + (argc > 2 ? strtod(argv[2], NULL) : 10);
	int count[3] = {0};
	do
		count[try_number(number++)]++;
	while (now() < end);
	printf("fuzz: %d graphs agree, %d magnify a disturbance, %d differ\n", count[AGREES],
	       count[SAYS_NOTHING], count[DIFFERS]);
	return count[DIFFERS] != 0;
}
