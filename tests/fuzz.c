// fuzz.c: compares random graphs, compiled, with the evaluator.
// fuzz [SEED [SECONDS [TARGET]]]: graphs SEED, SEED + 1, ... until the time is up, at least one;
// one in five is the body of a loop. Each is put through the door (random.h), differentiated by all
// its float slots, and sometimes made into an optimizer step. Values from the door equal the
// operators' meaning; printed text reads back equal; in double, the evaluator's gradients equal
// finite differences. Code compiled for f32 and f64 equals the evaluator within the expected error,
// for any order of workers; graphs with an output that is meaningless even in f64 are counted
// separately. So do, in large graphs and some others, products of operands rounded to 16 bits.
// Prints a graph that differs, with the number that reproduces it.
// TARGET (default: this CPU with some of its features): opencl, or one whose threads are emulated:
// cuda:host, cuda:host-sm_90a, hip:host. Then more graphs are large, and half of them are computed
// as on a GPU of few multiprocessors, whose blocks have more of a value each.
#include "emitted.h"
#include "random.h"
#include "trial.h"
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// Tolerances of a float type: relative to the largest element of an output, or of all outputs,
// which bounds what remains of canceling terms; beyond these, a multiple of what a disturbance of
// every value changes. If that exceeds `most` of the largest element, the output is meaningless.
typedef struct Precision {
	const char *name;
	double tolerance, disturbance, times, canceled, most;
} Precision;

static const Precision narrow = {"f32", 2e-3, 4e-6, 4, 1e-6, 0.05}, // some 60 roundings
    rounded = {"f32", 4e-2, 4e-6, 4, 1e-6, 0.05}, // of attention, whose kernels round, too
    halves = {"f32", 4e-2, 1e-3, 4, 1e-6, 0.2},   // of several, one after the other
    wide = {"f64", 1e-9, 1e-14, 4, 1e-13, 1e-3};

typedef enum Outcome { AGREES, SAYS_NOTHING, DIFFERS } Outcome;

typedef struct Fuzz {
	Arena *arena;
	const char *name;
	Random made;
	Trial *trial;
	const Target *target;
	const Machine *machine; // that it is scheduled for
} Fuzz;

static const char *device; // the target; NULL: this CPU

static bool seen[OPS]; // primitives compiled so far

static Array slot_value(void *slots, const Slot *s)
{
	return ((const Array *)slots)[strtol(s->name + 1, NULL, 10)];
}

// ---- the notation ---------------------------------------------------------------------

static bool reads_back(const Fuzz *f, const Graph *g)
{
	const char *text = graph_text(f->arena, g);
	const Graph *again = parse_graph(f->arena, f->name, text, book_builtin());
	const char *found = graph_text(f->arena, again);
	if (!strcmp(text, found))
		return true;
	printf("%s: what is printed reads back as another graph:\n%s%s", f->name, text, found);
	return false;
}

// ---- compiled code --------------------------------------------------------------------

static double size_of(const Array *a)
{
	double size = 0;
	for (int64_t i = 0; is_float(a->type) && i < count_of(&a->shape); i++)
		size = isfinite(a->f[i]) ? fmax(size, fabs(a->f[i])) : size;
	return size;
}

// Returns the largest element of each output, then of each store.
static double *end_sizes(Arena *arena, const Graph *g, const Array *slot)
{
	int n = g->outs.count + g->stores.count;
	double *size = NEWS(arena, double, n + 1);
	Arena *own = arena_new();
	Array *value = eval_graph(own, g, slot);
	for (int k = 0; k < n; k++)
		size[k] = size_of(&value[end_at(g, k)]);
	arena_free(own);
	return size;
}

static void note_primitives(const Graph *g)
{
	for (int r = 1; r < g->nval; r++)
		seen[val(g, r)->op] = true;
}

// Judges an output whose error exceeds the limit without a disturbance.
static Outcome excuse(const Precision *p, double error, double disturbed, double size)
{
	if (disturbed > p->most * size)
		return SAYS_NOTHING;
	return error <= p->times * disturbed ? AGREES : DIFFERS;
}

static Outcome check_as(const Fuzz *f, const Graph *g, const Array *slot, const char *what,
                        const Precision *p)
{
	double *error = graph_errors(f->arena, g, slot, f->target, f->machine, what),
	       *disturbed = NULL;
	double *size = end_sizes(f->arena, g, slot), largest = 0;
	Outcome outcome = AGREES;
	int n = g->outs.count + g->stores.count;
	for (int k = 0; k < n; k++)
		largest = fmax(largest, size[k]);
	for (int k = 0; k < n && outcome != DIFFERS; k++) {
		if (error[k] <= fmax(p->tolerance * size[k], p->canceled * largest))
			continue;
		if (!disturbed)
			disturbed = rounding_errors(f->arena, g, slot, p->disturbance);
		outcome = MAX(outcome, excuse(p, error[k], disturbed[k], size[k]));
		if (outcome == DIFFERS)
			printf("%s, %s: result %d is off by %.3g of %.3g; a disturbance: %.3g\n",
			       what, p->name, k, error[k], size[k], disturbed[k]);
	}
	if (outcome == DIFFERS)
		fputs(graph_text(f->arena, g), stdout);
	return outcome;
}

static Outcome check(const Fuzz *f, const Graph *g, const Array *slot, const char *what)
{
	const Graph *in_double = widen_graph(f->arena, g);
	note_primitives(g);
	if (check_as(f, g, slot, what, &narrow) == DIFFERS)
		return DIFFERS;
	slot = widen_slots(f->arena, in_double, slot);
	return check_as(f, in_double, slot, what, &wide);
}

// ---- products of 16 bits ---------------------------------------------------------------

static Ref put_rounding(void *type, Graph *g, const Val *v, const Ref *in);

static Graph *rounding(Arena *arena, const Graph *from, Elem type)
{
	Graph *to = graph_like(arena, from);
	to->products = type;
	copy_graph(to, from, NULL, put_rounding, &type);
	return graph_live(arena, to);
}

static Ref put_rounding(void *type, Graph *g, const Val *v, const Ref *in)
{
	if (v->op != O_loop)
		return put_as(g, v, in);
	LoopInfo l = loop_of(v);
	l.body = rounding(g->arena, l.body, *(const Elem *)type);
	return put_loop(g, &l, in);
}

static bool has_attention(const Graph *g)
{
	for (Ref r = 1; r < (Ref)g->nval; r++)
		if (is_attention(val(g, r)->op))
			return true;
	return false;
}

// Half of them for all of this machine's features, such as matrix registers.
static Outcome check_rounded(Fuzz *f, const Graph *g, const Array *slot)
{
	static const Elem types[] = {E_bf16, E_bf16, E_f16};
	Elem type = types[draw_below(&f->made, COUNT(types))];
	Fuzz own = *f;
	if (!device && draw_below(&f->made, 2)) {
		own.target = target_named(f->arena, "cpu", NULL);
		own.machine = target_machine(own.target);
	}
	Unit unit = {.name = f->name, .machine = own.machine};
	unit.graph = rounding(f->arena, g, type);
	for (Pass p = PASS_loops; p <= PASS_precision; p++)
		run_pass(f->arena, p, &unit);
	const char *what = format(f->arena, "%s in %s", f->name, elems[type].name);
	const Precision *p = &narrow;
	if (has_attention(unit.graph) && (device || (type == E_bf16 && own.machine->pairs)))
		p = device ? &rounded : &halves;
	return check_as(&own, unit.graph, slot, what, p);
}

// ---- a step of an optimizer -----------------------------------------------------------

static const Graph *step_graph(Fuzz *f)
{
	static const char *const optimizers[] = {"amos",      "amos", "adamw",
	                                         "adafactor", "sgd",  "schedulefree",
	                                         "nadamw",    "muon", "hyperball"};
	const Graph *loss = f->trial->loss;
	bool *active = NEWS(f->arena, bool, loss->slots.count + 1), any = false;
	for (int s = 0; s < loss->slots.count; s++)
		any |= active[s] = loss->slots.at[s].kind == S_param;
	if (!any)
		return NULL;
	Opt opt = opt_named(optimizers[draw_below(&f->made, COUNT(optimizers))]);
	opt.momentum = draw_below(&f->made, 2) ? NAN : 0;
	opt.clip = draw_below(&f->made, 2) ? NAN : 0.1;
	opt.batches = 1000;
	opt.accumulate = 1 + (int64_t)draw_below(&f->made, 2);
	opt_defaults(f->arena, &opt);
	const Eta *eta = eta_pass(f->arena, loss, &(EtaOptions){0}, NULL);
	return step_pass(f->arena, grad_pass(f->arena, loss, active, NULL), eta, &opt, STEP_train);
}

// Chooses state as in the middle of a training: sums of squares are not negative.
static Array *step_slots(Fuzz *f, const Graph *g)
{
	Array *slot = NEWS(f->arena, Array, g->slots.count);
	for (int k = 0; k < g->slots.count; k++) {
		const Slot *s = &g->slots.at[k];
		int64_t n = count_of(&s->shape);
		if (k < f->trial->loss->slots.count) {
			slot[k] = f->trial->slot[k];
			continue;
		}
		slot[k] = slot_start(f->arena, s);
		for (int64_t i = 0; !s->init && i < n; i++)
			if (is_float(s->type))
				slot[k].f[i] = (double)(1 + draw_below(&f->made, 256)) / 1024;
			else
				slot[k].i[i] = (int64_t)draw_below(&f->made, 2);
	}
	return slot;
}

static Outcome check_step(Fuzz *f)
{
	const Graph *g = step_graph(f);
	if (!g)
		return AGREES;
	Outcome outcome = check(f, g, step_slots(f, g), format(f->arena, "%s, step", f->name));
	return reads_back(f, g) ? outcome : DIFFERS;
}

// ---- one graph ------------------------------------------------------------------------

// True if emulated threads take minutes to compute it.
static bool is_slow(const Graph *g)
{
	const double most = 4e6;
	double products = 0;
	for (Ref r = 1; r < (Ref)g->nval; r++)
		if (val(g, r)->op == O_dot)
			products += (double)count_of(&val(g, r)->shape) *
			            (double)last_dim(&val(g, val(g, r)->in[0])->shape);
	return device && strstr(device, ":host") && products > most;
}

static Outcome try_graph(Fuzz *f)
{
	Trial *t = f->trial;
	const Graph *g = t->with ? t->with : f->made.g;
	if (is_slow(g))
		return SAYS_NOTHING;
	if (f->made.wrong || !reads_back(f, f->made.g) || !reads_back(f, g))
		return DIFFERS;
	if (t->moved)
		return SAYS_NOTHING;
	Outcome outcome = check(f, g, t->slot, f->name);
	if (outcome != DIFFERS && (f->made.large || !draw_below(&f->made, 4)))
		outcome = MAX(outcome, check_rounded(f, g, t->slot));
	if (outcome != DIFFERS && t->with && !draw_below(&f->made, 4))
		outcome = MAX(outcome, check_step(f));
	t->most = f->made.large ? 1 : t->most;
	if (t->with) // values rounded to few bits have other slopes
		t->slopes = grad_pass(f->arena, t->smooth, t->active, NULL);
	if (outcome == DIFFERS || !t->with || trial_differences(t))
		return outcome;
	fputs(graph_text(f->arena, t->loss), stdout);
	return DIFFERS;
}

static uint64_t number; // number of the current graph

static void say_number(int signal)
{
	fprintf(stderr, "fuzz %llu: ended by signal %d\n", (unsigned long long)number, signal);
	_Exit(1);
}

// Sets the target, and the machine: a GPU has its own number of multiprocessors, or few.
static void choose_target(Fuzz *f)
{
	static const char *const masks[] = {NULL, "-avx512f", "-avx2,-avx512f",
	                                    "-avx,-avx2,-avx512f,-fma"};
	static const int few[] = {1, 3, 8};
	uint64_t kinds = f->made.large && draw_below(&f->made, 2) ? 1 : COUNT(masks);
	const char *mask = device ? NULL : masks[draw_below(&f->made, kinds)];
	f->target = target_named(f->arena, device ? device : "cpu", mask);
	f->machine = target_machine(f->target);
	if (!device || draw_below(&f->made, 2))
		return;
	Machine *machine = NEW(f->arena, Machine);
	*machine = *f->machine;
	machine->workers = few[draw_below(&f->made, COUNT(few))];
	f->machine = machine;
}

static Outcome try_made(Arena *arena, const char *name)
{
	enum { FEW_LARGE = 12, MANY_LARGE = 5 }; // one in so many is large
	Fuzz f = {.arena = arena, .name = name};
	f.made = random_graph(arena, name, number, device ? MANY_LARGE : FEW_LARGE);
	if (!draw_below(&f.made, 5))
		f.made = random_loop(arena, &f.made);
	f.trial = trial_new(arena, name, f.made.g, slot_value, f.made.slot);
	choose_target(&f);
	return try_graph(&f);
}

static Outcome try_number(void)
{
	Arena *arena = arena_new();
	const char *name = format(arena, "fuzz %llu", (unsigned long long)number);
	Outcome outcome = DIFFERS;
	Catch caught;
	if (!TRY(caught)) {
		outcome = try_made(arena, name);
		catch_end(&caught);
	} else {
		printf("%s: %s\n", name, caught.message);
		free(caught.message);
	}
	fflush(stdout);
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
	number = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
	device = argc > 3 ? argv[3] : NULL;
	signal(SIGABRT, say_number);
	signal(SIGSEGV, say_number);
	signal(SIGFPE, say_number);
	double end = now() + (argc > 2 ? strtod(argv[2], NULL) : 10);
	int count[3] = {0};
	do {
		count[try_number()]++;
		number++;
	} while (now() < end);
	printf("primitives that no graph had:");
	for (Op op = 0; op < OPS; op++)
		if (!seen[op])
			printf(" %s", prims[op].name);
	puts("");
	printf("fuzz: %d graphs agree, %d have an out that says nothing, %d differ\n",
	       count[AGREES], count[SAYS_NOTHING], count[DIFFERS]);
	return count[DIFFERS] != 0;
}
