// grad_check.c: checks gradients by finite differences.
#include "trial.h"
#include "emitted.h"
#include <math.h>
#include <string.h>

// Relative to the largest element; a multiple (`roundings`) of what rounding alone changes is
// allowed, estimated by disturbing values by a unit in the last place, since one rounding may by
// chance change nothing.
static const double by_differences = 1e-6, compiled = 2e-3, in_double = 1e-9, roundings = 32,
                    last_place = 0x1p-23;

static double noise(uint64_t seed) // returns a value in [0, 1)
{
	return (double)(hash_bytes(&seed, sizeof seed, 7) >> 11) * 0x1p-53;
}

static int out_number(const Graph *g, const char *name)
{
	for (int i = g->outs.count - 1; i >= 0; i--)
		if (!strcmp(g->outs.at[i].name, name))
			return i;
	bug("no out %s", name);
}

// ---- trials ---------------------------------------------------------------------------

static void move_slots(Trial *t, double by)
{
	for (int s = 0; s < t->loss->slots.count; s++)
		for (int64_t i = 0; t->active[s] && i < count_of(&t->slot[s].shape); i++) {
			double *x = &t->slot[s].f[i], u = 1 - noise((uint64_t)(i * 131 + s)) / 2;
			if (!isfinite(*x))
				*x = *x < 0 ? -1.5 : 1.5;
			*x = (float)(*x * (1 + by * u) + 0.001 * u);
		}
}

static bool all_finite(const Array *a)
{
	for (int64_t i = 0; is_float(a->type) && i < count_of(&a->shape); i++)
		if (!isfinite(a->f[i]))
			return false;
	return true;
}

// Returns the number of outputs that are not finite; removes them from g if `drop`.
static int endless_outs(const Trial *t, Graph *g, bool drop)
{
	Array *value = eval_graph(t->arena, g, t->slot);
	int kept = 0, count = g->outs.count;
	for (int o = 0; o < count; o++) {
		if (!all_finite(&value[g->outs.at[o].val]))
			continue;
		g->outs.at[drop ? kept : o] = g->outs.at[o];
		kept++;
	}
	if (drop)
		g->outs.count = kept;
	return count - kept;
}

// Toward zero, or away from it if an operator is not defined there.
void trial_move(Trial *t)
{
	t->moved = true;
	move_slots(t, -0.02);
	Graph *g = graph_live(t->arena, t->loss);
	if (endless_outs(t, g, false))
		move_slots(t, 0.05);
}

static Array random_cotangent(Arena *arena, const Slot *s, int number)
{
	int64_t n = count_of(&s->shape);
	Array a = {.type = s->type, .shape = s->shape, .f = NEWS(arena, double, n + 1)};
	for (int64_t i = 0; i < n; i++)
		a.f[i] = (float)(2 * noise((uint64_t)(i * 257 + number)) - 1);
	return a;
}

static Graph *without_rounding(Arena *arena, const Graph *from);

static Ref put_smooth(void *arena, Graph *g, const Val *v, const Ref *in)
{
	if (v->op != O_loop)
		return v->op == O_narrow ? in[0] : put_as(g, v, in);
	LoopInfo cycle = loop_of(v);
	cycle.body = without_rounding(arena, cycle.body);
	return put_loop(g, &cycle, in);
}

// Gradients pass through rounding, so differences omit it.
static Graph *without_rounding(Arena *arena, const Graph *from)
{
	Graph *g = graph_like(arena, from);
	copy_graph(g, from, NULL, put_smooth, arena);
	return g;
}

Trial *trial_new(Arena *arena, const char *name, const Graph *from, Values *values, void *context)
{
	Trial *t = NEW(arena, Trial);
	Graph *g = graph_live(arena, from);
	int n = g->slots.count, room = n + g->outs.count + 1, count = 0;
	*t = (Trial){.arena = arena, .name = name, .loss = g, .most = 20};
	t->slot = NEWS(arena, Array, room);
	t->active = NEWS(arena, bool, room);
	for (int s = 0; s < n; s++) {
		const Slot *slot = &g->slots.at[s];
		t->slot[s] = values(context, slot);
		t->active[s] = is_float(slot->type) && slot->kind != S_state;
		count += t->active[s];
	}
	if (endless_outs(t, g, false)) {
		trial_move(t);
		endless_outs(t, g, true);
	}
	for (int o = 0; o < g->outs.count; o++)
		if (is_float(val(g, g->outs.at[o].val)->type) && count) {
			t->loss = cotangent_pass(arena, g, NULL);
			t->slopes = t->with = grad_pass(arena, t->loss, t->active, NULL);
			t->smooth = without_rounding(arena, t->loss);
			break;
		}
	for (int s = n; s < t->loss->slots.count; s++)
		t->slot[s] = random_cotangent(arena, &t->loss->slots.at[s], s);
	return t;
}

// ---- differences ----------------------------------------------------------------------

static double loss_at(const Trial *t, double *element, double x)
{
	Arena *arena = arena_new();
	double keep = *element;
	*element = x;
	double loss = eval_graph(arena, t->smooth, t->slot)[find_output(t->smooth, "loss")].f[0];
	*element = keep;
	arena_free(arena);
	return loss;
}

static double farthest(const Array *a, const Array *b)
{
	double most = 0;
	for (int64_t i = 0; is_float(a->type) && i < count_of(&a->shape); i++)
		most = fmax(most, fabs(a->f[i] - b->f[i]));
	return most;
}

typedef struct Disturbance { // a relative change of every value
	double constants, computed;
	uint64_t random;
} Disturbance;

static void disturb(void *context, Arena *arena, const Val *v, Array *x)
{
	(void)arena;
	Disturbance *d = context;
	if (v->op == O_slot || !is_float(v->type))
		return;
	double by = v->op == O_const ? d->constants : d->computed;
	for (int64_t i = 0; i < count_of(&x->shape); i++)
		x->f[i] *= 1 + by * (2 * noise(d->random++ * 0x9E3779B97F4A7C15u) - 1);
}

// Returns, for each output of g, how much rounding may change it. Computed values have an error of
// about one ulp in double, constants a relative error `constants`.
static double *out_rounding(const Trial *t, const Graph *g, double constants)
{
	enum { SAMPLES = 4 };
	Arena *own = arena_new();
	double *most = NEWS(t->arena, double, g->outs.count + 1);
	Array *exact = eval_graph(own, g, t->slot);
	for (uint64_t sample = 1; sample <= SAMPLES; sample++) {
		Arena *arena = arena_new();
		Disturbance d = {constants, 0x1p-51, sample << 32};
		Array *x = eval_touched(arena, g, t->slot, disturb, &d);
		for (int k = 0; k < g->outs.count; k++)
			most[k] = fmax(most[k],
			               farthest(&x[g->outs.at[k].val], &exact[g->outs.at[k].val]));
		arena_free(arena);
	}
	arena_free(own);
	return most;
}

static double slope(const Trial *t, double *element, double h)
{
	double x = *element, near = loss_at(t, element, x + h) - loss_at(t, element, x - h),
	       far = loss_at(t, element, x + 2 * h) - loss_at(t, element, x - 2 * h);
	return (8 * near - far) / (12 * h);
}

static double side(const Trial *t, double *element, double h)
{
	return (loss_at(t, element, *element + h) - loss_at(t, element, *element)) / h;
}

static bool between(double x, double a, double b, double allowed)
{
	return x >= fmin(a, b) - allowed && x <= fmax(a, b) + allowed;
}

// True if there is no slope here (the sides differ, it grows without bound, or only one side
// exists) and `found` lies in between. Tries smaller h if another kink lies within h.
static bool is_kink(const Trial *t, double *element, double h, double found, double allowed)
{
	double left = side(t, element, -h), right = side(t, element, h);
	double nearer_left = side(t, element, -h / 8), nearer_right = side(t, element, h / 8);
	bool endless = fabs(nearer_left) > 4 * fabs(left) || fabs(nearer_right) > 4 * fabs(right);
	return !isfinite(left) || !isfinite(right) || (endless && isfinite(found)) ||
	       between(found, left, right, allowed) ||
	       between(found, nearer_left, nearer_right, allowed) ||
	       between(found, side(t, element, -h / 64), side(t, element, h / 64), allowed);
}

static int gradient_number(const Trial *t, int s)
{
	return out_number(t->slopes, format(t->arena, "grad:%s", t->loss->slots.at[s].name));
}

// Returns the rounding error of a gradient of slot s and its difference over h. Composites and
// their gradients have f32 constants.
static double slope_rounding(Trial *t, int s, double h)
{
	if (!t->loss_rounding) {
		t->loss_rounding = out_rounding(t, t->smooth, 0);
		t->slope_rounding = out_rounding(t, t->slopes, 0x1p-24);
	}
	return 4 * t->slope_rounding[gradient_number(t, s)] +
	       4 * t->loss_rounding[out_number(t->smooth, "loss")] / h;
}

static bool check_element(Trial *t, int s, int64_t i, double found, double scale)
{
	double *element = &t->slot[s].f[i];
	double h = 1e-4 * fmax(fabs(*element), 1e-2), expected = slope(t, element, h);
	double size = fmax(scale, fabs(expected)), off = fabs(found - expected);
	if (off <= by_differences * size) {
		t->worst = fmax(t->worst, off / size);
		return true;
	}
	if (!t->moved && is_kink(t, element, h, found, 1e-3 * size)) {
		t->kinks++;
		return true;
	}
	if (off <= by_differences * size + slope_rounding(t, s, h))
		return true;
	printf("%s: gradient of %s[%lld] is %.9g, by differences %.9g\n", t->name,
	       t->loss->slots.at[s].name, (long long)i, found, expected);
	return false;
}

// Returns the largest finite element.
static double largest(const Array *a)
{
	double size = 0;
	for (int64_t i = 0; i < count_of(&a->shape); i++)
		size = isfinite(a->f[i]) ? fmax(size, fabs(a->f[i])) : size;
	return size;
}

static bool check_slot(Trial *t, int s, const Array *found)
{
	const Slot *slot = &t->loss->slots.at[s];
	int64_t n = count_of(&slot->shape), count = MIN(n, t->most);
	if (!same_shape(&found->shape, &slot->shape)) {
		printf("%s: the gradient of %s has another shape\n", t->name, slot->name);
		return false;
	}
	double scale = fmax(largest(found), 1e-6);
	for (int64_t k = 0; k < count; k++) {
		int64_t i = count > 1 ? k * (n - 1) / (count - 1) : 0;
		if (isfinite(t->slot[s].f[i]) && !check_element(t, s, i, found->f[i], scale))
			return false;
	}
	return true;
}

bool trial_differences(Trial *t)
{
	const Graph *g = t->slopes;
	Array *value = eval_graph(t->arena, g, t->slot);
	for (int s = 0; s < t->loss->slots.count; s++)
		if (t->active[s] &&
		    !check_slot(t, s, &value[g->outs.at[gradient_number(t, s)].val]))
			return false;
	return true;
}

static void free_code(void *code)
{
	free_compiled(code);
}

// Returns the code of the gradients, compiled once: inputs may move.
static const Compiled *code_of(Trial *t, bool wide)
{
	if (t->code[wide])
		return t->code[wide];
	const Graph *g = wide ? widen_graph(t->arena, t->with) : t->with;
	t->code[wide] = compile_graph(t->arena, g, target_named(t->arena, "cpu", NULL), t->name);
	at_end(t->arena, free_code, t->code[wide]);
	return t->code[wide];
}

// A rounding in double is 2^-29 of one in f32.
bool trial_compiled(Trial *t)
{
	int n = t->with->outs.count + t->with->stores.count;
	double *least = rounding_errors(t->arena, t->with, t->slot, last_place);
	for (int k = 0; k < n; k++)
		least[k] *= roundings / compiled;
	if (check_compiled(t->arena, code_of(t, false), t->slot, plain_launch, compiled, least,
	                   t->name) > 1)
		return false;
	for (int k = 0; k < n; k++)
		least[k] *= 0x1p-29 * compiled / in_double;
	const Compiled *code = code_of(t, true);
	const Array *slot = widen_slots(t->arena, compiled_graph(code), t->slot);
	return check_compiled(t->arena, code, slot, plain_launch, in_double, least,
	                      format(t->arena, "%s in double", t->name)) <= 1;
}
