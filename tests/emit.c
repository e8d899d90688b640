// emit.c: checks every primitive, for every type and target that runs here, against the evaluator.
// Element by element, at ordinary and at special values; moves and reductions over all axes; random
// numbers to the bit. emit TARGET: on a device of this machine instead, such as opencl.
#include "emitted.h"
#include "threads.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool seen[OPS];
static int failures, graphs;

typedef struct Runner {
	const char *name, *mask;
	Launcher *launch;
} Runner;

static const Runner here[] = {{"cpu", NULL, plain_launch},
                              {"cpu", "-avx512f", plain_launch},
                              {"cpu", "-avx2,-avx512f", plain_launch},
                              {"cuda:host", NULL, gpu_launch}};
static const Runner *runners = here;
static int nrunners = COUNT(here);

static Graph *graph_start(Arena *arena, const char *name)
{
	Graph *g = graph_new(arena, name, NULL);
	return g;
}

static Ref input(Graph *g, const char *name, Elem type, Shape shape)
{
	return put_slot(
	    g, add_slot(g, (Slot){.name = name, .kind = S_input, .type = type, .shape = shape}));
}

static void leave(Graph *g, Op op, Ref r)
{
	seen[op] = true;
	add_out(g, format(g->arena, "%s %d", prims[op].name, g->outs.count), r);
}

static Shape dims2(int64_t a, int64_t b)
{
	return shape_of(2, (int64_t[]){a, b});
}

static void check_on_all(Graph *g, const Array *slot, double tolerance)
{
	for (int m = 0; m < nrunners; m++) {
		const Runner *runner = &runners[m];
		const Target *target = target_named(g->arena, runner->name, runner->mask);
		const char *what = format(g->arena, "%s on %s %s", g->name, runner->name,
		                          runner->mask ? runner->mask : "");
		failures += check_graph(g->arena, g, slot, target, runner->launch, tolerance, NULL,
		                        what) > 1;
		graphs++;
	}
	gpu_forget();
}

// ---- maps -----------------------------------------------------------------------------

static bool takes(Op op, Elem type)
{
	char cls = elems[type].cls;
	bool logic = op == O_not || op == O_and || op == O_or || op == O_xor || op == O_eq;
	if (*prims[op].attr || op == O_select || prims[op].cls != C_map)
		return false;
	if (cls == 'b')
		return logic;
	if (!strcmp(prims[op].type, "float") || op == O_isnan)
		return cls == 'f';
	return cls == 'f' ? !(op == O_not || op == O_and || op == O_or || op == O_xor)
	                  : op != O_not;
}

static void special_floats(Array *a)
{
	static const double special[] = {INFINITY, -INFINITY, NAN,  0,     -0.0,  1,    -1,
	                                 88.5,     -88.5,     100,  -120,  1e-40, 3e38, -3e38,
	                                 0.5,      2.5,       -2.5, 1e-10, 6.25,  20,   1e-310,
	                                 709.5,    -744.5,    1e18, 1e300, -1e300};
	int64_t n = count_of(&a->shape);
	for (int k = 0; k < COUNT(special); k++)
		a->f[(7 * k + (n > 50 ? 3 : 0)) % n] =
		    a->type == E_f64 ? special[k] : (double)(float)special[k];
}

static void check_maps(Elem type, bool special)
{
	Arena *arena = arena_new();
	Graph *g = graph_start(
	    arena, format(arena, "maps of %s%s", elems[type].name, special ? ", special" : ""));
	Ref x = input(g, "x", type, dims2(7, 37)), y = input(g, "y", type, dims2(7, 37));
	Ref column = input(g, "column", type, dims2(7, 1)),
	    one = input(g, "one", type, shape_of(0, NULL));
	for (Op op = 0; op < OPS; op++) {
		// beyond the range of check_remainders, and of f32 angles, results are arbitrary
		bool angle = type == E_f32 && (op == O_sin || op == O_cos);
		if (!takes(op, type) || (special && (op == O_mod || angle)))
			continue;
		if (prims[op].arity == 1) {
			leave(g, op, put1(g, op, x));
			continue;
		}
		leave(g, op, put2(g, op, x, y));
		leave(g, op, put2(g, op, x, column));
		leave(g, op, put2(g, op, one, y));
	}
	if (elems[type].cls != 'b')
		leave(g, O_select, put3(g, O_select, put2(g, O_lt, x, column), y, x));
	Array *slot = random_slots(arena, g, 17, elems[type].cls == 'b' ? 2 : 5);
	if (special)
		special_floats(&slot[0]), special_floats(&slot[1]);
	check_on_all(g, slot, !is_float(type) ? 1 : type == E_f64 ? -1e-13 : -6e-7);
	arena_free(arena);
}

// Ranges in which functions are computed differently, or end.
typedef struct Range {
	double from, to;
	bool powers; // evenly spaced exponents, both signs
} Range;

static void fill_range(Array *a, const Range *range, int seed)
{
	int64_t n = count_of(&a->shape);
	for (int64_t i = 0; i < n; i++) {
		double part = fmod((double)(i + 1) * 0.6180339887498949 + seed * 0.1, 1);
		double x = range->from + part * (range->to - range->from);
		a->f[i] = range->powers ? copysign(exp(x), i % 2 ? 1 : -1) : x;
		if (a->type == E_f32)
			a->f[i] = (float)a->f[i];
	}
}

// Checks functions of a float, within a few units in the last place.
static void check_functions(Elem type, const Range *range, int number)
{
	Arena *arena = arena_new();
	Graph *g = graph_start(arena, format(arena, "functions of %s from %g to %g",
	                                     elems[type].name, range->from, range->to));
	Ref x = input(g, "x", type, dims2(8, 507));
	for (Op op = 0; op < OPS; op++)
		if (takes(op, type) && prims[op].arity == 1 && prims[op].weight > 2)
			leave(g, op, put1(g, op, x));
	Array *slot = random_slots(arena, g, 1, 2);
	fill_range(&slot[0], range, number);
	check_on_all(g, slot, type == E_f64 ? -4 * 0x1p-52 : -4 * 0x1p-23);
	arena_free(arena);
}

static void check_all_functions(void)
{
	static const Range both[] = {{-1, 1, false},   {-0.01, 0.01, false}, {-10, 10, false},
	                             {-87, 88, false}, {0.5, 2, false},      {-80, 0, true},
	                             {-5, 9, true}};
	static const Range wide[] = {{-760, 720, false}, {-746, -700, false}, {-744, -600, true},
	                             {-700, -20, true},  {9, 20, true},       {20, 60, true},
	                             {60, 709, true}};
	for (int k = 0; k < COUNT(both); k++)
		check_functions(E_f32, &both[k], k), check_functions(E_f64, &both[k], k);
	for (int k = 0; k < COUNT(wide); k++)
		check_functions(E_f64, &wide[k], k);
}

// Remainders of large quotients, of either sign, and by infinity.
static void check_remainders(Elem type)
{
	static const Range ranges[] = {{-3, 9, true}, {-15, 20, true}};
	for (int k = 0; k < COUNT(ranges); k++) {
		Arena *arena = arena_new();
		Graph *g = graph_start(arena, format(arena, "remainders of %s", elems[type].name));
		Ref x = input(g, "x", type, dims2(8, 507)), y = input(g, "y", type, dims2(8, 507));
		leave(g, O_mod, put2(g, O_mod, x, y));
		Array *slot = random_slots(arena, g, 1, 2);
		for (int s = 0; s < 2; s++) {
			fill_range(&slot[s], &ranges[k], s);
			slot[s].f[5] = slot[s].f[6 + s] = s ? -INFINITY : INFINITY;
			slot[s].f[9] = 3 * (s + 1);
		}
		slot[1].f[20] = INFINITY;
		check_on_all(g, slot, type == E_f64 ? 1e-5 : -1e-7);
		arena_free(arena);
	}
}

static void check_casts(void)
{
	Arena *arena = arena_new();
	Graph *g = graph_start(arena, "casts");
	for (Elem from = 0; from < ELEMS; from++) {
		Ref x = input(g, elems[from].name, from, dims2(3, 21));
		for (Elem to = 0; to < ELEMS; to++)
			if (from != to)
				leave(g, O_cast, put_cast(g, x, to));
		if (is_float(from))
			leave(g, O_narrow, put(g, O_narrow, 1, &x, &(Attr){.n = 2, .i = {2, -3}}));
	}
	Array *slot = random_slots(arena, g, 3, 2);
	for (int s = 0; s < g->slots.count; s++)
		for (int64_t i = 0; is_float(slot[s].type) && i < 63; i++)
			slot[s].f[i] = floor(fabs(slot[s].f[i]) * 64) / 64;
	check_on_all(g, slot, 4e-3); // bf16 keeps 8 bits
	arena_free(arena);
}

// ---- reductions -----------------------------------------------------------------------

// Of long axes, checks sums and extremes only: rounding errors of products and running sums grow
// with every step.
static void check_reductions(Elem type, Shape shape, bool all)
{
	Arena *arena = arena_new();
	Graph *g =
	    graph_start(arena, format(arena, "folds of %s", shape_text(arena, type, &shape)));
	Ref x = input(g, "x", type, shape);
	for (Op op = 0; op < OPS; op++)
		for (uint32_t mask = 1; mask < 1u << shape.rank && prims[op].cls == C_reduce;
		     mask++) {
			int64_t axes[RANK];
			int n = 0;
			if (!all && (op == O_prod || op == O_cumsum))
				continue;
			for (int a = 0; a < shape.rank; a++)
				if (mask >> a & 1)
					axes[n++] = a;
			if (op == O_cumsum && n == 1)
				for (int how = 0; how < 4; how++) {
					Attr attr = {.n = 3, .i = {axes[0], how & 1, how >> 1}};
					leave(g, op, put(g, op, 1, &x, &attr));
				}
			else if (op != O_cumsum && (op != O_argmax || n == 1))
				leave(g, op, put_reduce(g, op, x, n, axes));
		}
	Array *slot = random_slots(arena, g, 5, 5);
	for (int64_t i = 0; is_float(type) && i < count_of(&shape); i++)
		slot[0].f[i] = 1 + slot[0].f[i] / 64; // products stay near 1
	check_on_all(g, slot, type == E_f64 ? 1e-13 : 2e-6);
	arena_free(arena);
}

// ---- moves, indices, leaves -----------------------------------------------------------

static void check_moves(Elem type)
{
	Arena *arena = arena_new();
	Graph *g = graph_start(arena, format(arena, "moves of %s", elems[type].name));
	Shape shape = shape_of(3, (int64_t[]){5, 6, 32});
	Ref x = input(g, "x", type, shape), y = input(g, "y", type, shape);
	Ref line = input(g, "line", type, shape_of(3, (int64_t[]){5, 1, 32}));
	static const int64_t perm[][3] = {{0, 2, 1}, {1, 0, 2}, {2, 1, 0}, {1, 2, 0}};
	for (int k = 0; k < COUNT(perm); k++)
		leave(g, O_permute, put_permute(g, x, perm[k]));
	leave(g, O_reshape, put_reshape(g, put_permute(g, x, perm[1]), dims2(60, 16)));
	leave(g, O_reshape, put_reshape(g, put_permute(g, x, perm[0]), dims2(64, 15)));
	leave(g, O_slice,
	      put_slice(g, x, (int64_t[]){4, 1, 0}, (int64_t[]){2, 5, 11}, (int64_t[]){-3, 1, 3}));
	leave(g, O_slice,
	      put_slice(g, x, (int64_t[]){0, 0, 31}, (int64_t[]){5, 6, 32}, (int64_t[]){1, 1, -1}));
	leave(g, O_expand, put_expand(g, line, shape));
	leave(g, O_pad, put_pad(g, x, (int64_t[]){1, 0, 5}, (int64_t[]){0, 2, 7}, 1));
	for (int axis = 0; axis < 3; axis++)
		leave(g, O_concat, put_concat(g, axis, 3, (Ref[]){x, y, x}));
	leave(g, O_window, put_window(g, x, 1, &(WindowAxis){2, 32, 3, 1, 1, 1, 1}, 0));
	static const WindowAxis planes[] = {{1, 3, 3, 2, 1, 1, 1}, {2, 20, 2, 1, 12, 3, 1}};
	leave(g, O_window, put_window(g, x, COUNT(planes), planes, 1));
	leave(g, O_window, put_window(g, x, 1, &(WindowAxis){2, 64, 3, 1, -1, -1, 2}, 0));
	Ref index = input(g, "index", E_i64, dims2(3, 4)),
	    flat = input(g, "flat", E_i32, shape_of(1, (int64_t[]){6}));
	for (int axis = 0; axis < 3; axis++) {
		leave(g, O_gather, put_gather(g, x, index, axis));
		leave(g, O_gather, put_gather(g, put_permute(g, x, perm[2]), flat, axis));
	}
	Array *slot = random_slots(arena, g, 9, type == E_b8 ? 2 : 5);
	check_on_all(g, slot, 1e-7);
	arena_free(arena);
}

static void check_scatters(Elem type)
{
	Arena *arena = arena_new();
	Graph *g = graph_start(arena, format(arena, "scatters of %s", elems[type].name));
	Shape shape = shape_of(3, (int64_t[]){5, 6, 18});
	Ref x = input(g, "x", type, shape),
	    index = input(g, "index", E_i64, shape_of(1, (int64_t[]){9}));
	for (int axis = 0; axis < 3; axis++) {
		Shape from = shape;
		from.dim[axis] = 9;
		Ref update = input(g, format(arena, "update%d", axis), type, from);
		for (int mode = 0; mode < 5; mode++)
			leave(g, O_scatter, put_scatter(g, x, index, update, axis, mode));
	}
	check_on_all(g, random_slots(arena, g, 11, 5), 2e-6);
	arena_free(arena);
}

static void check_others(void)
{
	Arena *arena = arena_new();
	Graph *g = graph_start(arena, "leaves and products");
	Ref seed = input(g, "seed", E_i64, shape_of(0, NULL)),
	    step = input(g, "step", E_i64, shape_of(0, NULL));
	for (int axis = 0; axis < 2; axis++)
		leave(g, O_iota, put_iota(g, dims2(9, 40), axis));
	Attr sites = {.n = 3, .i = {12, 9, 43}};
	leave(g, O_rand, put(g, O_rand, 2, (Ref[]){seed, step}, &sites));
	Ref a = input(g, "a", E_f32, shape_of(3, (int64_t[]){3, 19, 23}));
	Ref b = input(g, "b", E_f32, shape_of(3, (int64_t[]){1, 23, 35}));
	leave(g, O_dot, put2(g, O_dot, a, b));
	leave(g, O_dot,
	      put2(g, O_dot, put_permute(g, b, (int64_t[]){0, 2, 1}),
	           put_permute(g, a, (int64_t[]){0, 2, 1})));
	float table[40];
	for (int i = 0; i < 40; i++)
		table[i] = (float)(i * i);
	Ref fixed = put_const(g, E_f32, dims2(1, 40), table),
	    grid = input(g, "grid", E_f32, dims2(9, 40));
	leave(g, O_const, put2(g, O_mul, fixed, grid));
	leave(g, O_slot, grid);
	check_on_all(g, random_slots(arena, g, 21, 1000), 2e-6);
	arena_free(arena);
}

int main(int argc, char **argv)
{
	const Runner device = {argc > 1 ? argv[1] : NULL, NULL, device_launch};
	if (argc > 1) {
		runners = &device;
		nrunners = 1;
	}
	static const Elem arithmetic[] = {E_f64, E_f32, E_i64, E_i32, E_b8};
	for (int k = 0; k < COUNT(arithmetic); k++)
		check_maps(arithmetic[k], false);
	check_maps(E_f32, true);
	check_maps(E_f64, true);
	check_all_functions();
	check_remainders(E_f32);
	check_remainders(E_f64);
	check_casts();
	for (int k = 0; k < 4; k++)
		check_reductions(arithmetic[k], shape_of(3, (int64_t[]){4, 5, 37}), true);
	check_reductions(E_f32, dims2(3, 40000), false);
	check_reductions(E_f32, dims2(3000, 3), false);
	for (Elem e = 0; e < ELEMS; e++)
		check_moves(e);
	for (int k = 0; k < 4; k++)
		check_scatters(arithmetic[k]);
	check_others();
	for (Op op = 0; op < OPS; op++)
		if (!seen[op] && prims[op].cls != C_composite && prims[op].cls != C_loop) {
			printf("%s is not tested\n", prims[op].name);
			failures++;
		}
	printf("%d graphs of all primitives compiled and run on %d targets, %d differ\n", graphs,
	       nrunners, failures);
	return failures != 0;
}
