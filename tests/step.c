// step.c: checks losses and optimizers against their formulas, defaults and messages.
#include "passes.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 3, COLS = 4, COUNT_ = ROWS * COLS };

static int failures;

static void close_within(double tolerance, const char *what, double got, double wanted)
{
	if (fabs(got - wanted) <= tolerance * fmax(1, fabs(wanted)))
		return;
	printf("FAILED %s: %.17g, wanted %.17g\n", what, got, wanted);
	failures++;
}

static void close_to(const char *what, double got, double wanted)
{
	close_within(1e-12, what, got, wanted);
}

static void hold(const char *what, bool right)
{
	if (!right) {
		printf("FAILED %s\n", what);
		failures++;
	}
}

// ---- optimizers -----------------------------------------------------------------------

typedef struct Plain { // a parameter and its state
	double w[COUNT_], m[COUNT_], s[COUNT_], r[ROWS], c[COLS];
} Plain;

static const double rate = 0.1, beta = 0.9, beta2 = 0.99, eps = 1e-3, decay = 0.1;

static void plain_adam(Plain *p, const double *g, int t, bool apart)
{
	for (int i = 0; i < COUNT_; i++) {
		double h = g[i] + (apart ? 0 : decay * p->w[i]);
		p->m[i] = beta * p->m[i] + (1 - beta) * h;
		p->s[i] = beta2 * p->s[i] + (1 - beta2) * h * h;
		double m = p->m[i] / (1 - pow(beta, t)), s = p->s[i] / (1 - pow(beta2, t));
		p->w[i] -= rate * (m / (sqrt(s) + eps) + (apart ? decay * p->w[i] : 0));
	}
}

static void plain_sgd(Plain *p, const double *g)
{
	for (int i = 0; i < COUNT_; i++) {
		p->m[i] = 0.5 * p->m[i] + g[i] + decay * p->w[i];
		p->w[i] -= rate * p->m[i];
	}
}

static double rms(const double *x)
{
	double sum = 0;
	for (int i = 0; i < COUNT_; i++)
		sum += x[i] * x[i];
	return sqrt(sum / COUNT_);
}

static void plain_adafactor(Plain *p, const double *g, int t)
{
	double keep = 1 - pow(t, -0.8), mean = 0, u[COUNT_];
	for (int i = 0; i < ROWS; i++)
		p->r[i] *= keep;
	for (int j = 0; j < COLS; j++)
		p->c[j] *= keep;
	for (int i = 0; i < COUNT_; i++) {
		p->r[i / COLS] += (1 - keep) * (g[i] * g[i] + eps) / COLS;
		p->c[i % COLS] += (1 - keep) * (g[i] * g[i] + eps) / ROWS;
	}
	for (int i = 0; i < ROWS; i++)
		mean += p->r[i] / ROWS;
	for (int i = 0; i < COUNT_; i++)
		u[i] = g[i] / sqrt(p->r[i / COLS] * p->c[i % COLS] / mean);
	double scale = fmax(rms(p->w), 1e-3) / fmax(rms(u), 1);
	for (int i = 0; i < COUNT_; i++)
		p->w[i] -= rate * (scale * u[i] + decay * p->w[i]);
}

static void plain_step(const char *name, Plain *p, const double *g, int t)
{
	if (!strcmp(name, "sgd"))
		plain_sgd(p, g);
	else if (!strcmp(name, "adafactor"))
		plain_adafactor(p, g, t);
	else
		plain_adam(p, g, t, !strcmp(name, "adamw"));
}

static Array *first_contents(Arena *arena, const Graph *g)
{
	Array *slot = NEWS(arena, Array, g->slots.count);
	for (int i = 0; i < g->slots.count; i++)
		slot[i] = slot_start(arena, &g->slots.at[i]);
	return slot;
}

// Returns a graph with a parameter w, whose gradient is the input g.
static Graph *gradient_graph(Arena *arena, const char *name)
{
	Graph *g = graph_new(arena, name, book_builtin());
	const Shape shape = shape_of(2, (int64_t[]){ROWS, COLS});
	add_slot(g, (Slot){.name = "w", .kind = S_param, .type = E_f64, .shape = shape});
	add_slot(g, (Slot){.name = "g", .kind = S_input, .type = E_f64, .shape = shape});
	add_out(g, "grad:w", put_slot(g, 1));
	return g;
}

static const Eta kernel = {.role = "kernel", .eta.value = 0.5};

static Opt plain_opt(Arena *arena, const char *name, double momentum, int64_t accumulate)
{
	Opt opt = {.name = name,
	           .rate = rate,
	           .beta = beta,
	           .beta2 = beta2,
	           .eps = eps,
	           .decay = decay,
	           .momentum = momentum,
	           .adam_rate = rate,
	           .beta3 = 0.99,
	           .alpha = 1,
	           .ramp = 3,
	           .d0 = 0.1,
	           .d_coef = 1,
	           .strength = 1,
	           .accumulate = accumulate};
	opt_defaults(arena, &opt);
	return opt;
}

static void evaluate(Arena *arena, const Graph *g, Array *slot)
{
	const Array *out = eval_graph(arena, g, slot);
	for (int i = 0; i < g->stores.count; i++)
		slot[g->stores.at[i].slot] = out[g->stores.at[i].val];
}

static void test_optimizer(const char *name)
{
	Arena *arena = arena_new();
	const Graph *g = gradient_graph(arena, name);
	const Opt opt = plain_opt(arena, name, 0.5, 1);
	const Graph *step = step_pass(arena, g, &kernel, &opt, STEP_train);
	Array *slot = first_contents(arena, step);
	Plain plain = {0};
	for (int i = 0; i < COUNT_; i++)
		slot[0].f[i] = plain.w[i] = (i * 5 % 7 - 3) / 4.0;
	for (int t = 1; t <= 4; t++) {
		for (int i = 0; i < COUNT_; i++)
			slot[1].f[i] = ((i * 7 + t * 3) % 11 - 5) / 8.0;
		plain_step(name, &plain, slot[1].f, t);
		evaluate(arena, step, slot);
		for (int i = 0; i < COUNT_; i++)
			close_to(name, slot[0].f[i], plain.w[i]);
	}
	hold("the step is counted", slot[find_slot(step, "amos.step")].i[0] == 4);
	printf("%s: 4 steps as written down\n", name);
	arena_free(arena);
}

// Half the factor of the step size is half the step size, with warm-up and without.
static void test_rate(const char *name, double warmup)
{
	Arena *arena = arena_new();
	const Graph *g = gradient_graph(arena, name);
	struct MatrixRange all = {0, ROWS};
	Matrix matrix = {.count = 1, .rows = ROWS, .columns = COLS, .eta = 0.5};
	matrix.range = &all;
	matrix.nrange = 1;
	const Matrices one = {.n = 1, .at = &matrix, .order = {0, 1}};
	Eta eta = kernel;
	eta.matrices = &one;
	Array *slot[2];
	for (int half = 0; half < 2; half++) {
		Opt opt = plain_opt(arena, name, 0.5, 1);
		opt.warmup = warmup;
		opt.rate = opt.adam_rate = rate / (1 + half);
		opt.xi = 0.25 / (1 + half);
		const Graph *step = step_pass(arena, g, &eta, &opt, STEP_train);
		slot[half] = first_contents(arena, step);
		slot[half][find_slot(step, "amos.rate")].f[0] *= 0.5 + 0.5 * half;
		for (int i = 0; i < COUNT_; i++)
			slot[half][0].f[i] = 1;
		for (int t = 1; t <= 4; t++) {
			for (int i = 0; i < COUNT_; i++)
				slot[half][1].f[i] = ((i * 7 + t * 3) % 11 - 5) / 8.0;
			evaluate(arena, step, slot[half]);
		}
	}
	for (int i = 0; i < COUNT_; i++)
		close_to(name, slot[0][0].f[i], slot[1][0].f[i]);
	hold("the parameters moved", fabs(slot[0][0].f[0] - 1) > 1e-3);
	arena_free(arena);
}

// Two runs with gradients g and h equal one run with (g + h) / 2, and count as one.
static void test_accumulate(void)
{
	Arena *arena = arena_new();
	const Graph *g = gradient_graph(arena, "accumulate");
	const Opt opt = plain_opt(arena, "adamw", 0, 2);
	const Graph *last = step_pass(arena, g, &kernel, &opt, STEP_train),
	            *first = step_pass(arena, g, &kernel, &opt, STEP_gather);
	Array *slot = first_contents(arena, last);
	Plain plain = {0};
	hold("both have the same slots", first->slots.count == last->slots.count);
	for (int run = 0; run < 6; run++) {
		const Graph *step = slot[find_slot(last, "amos.left")].i[0] ? first : last;
		double mean[COUNT_];
		for (int i = 0; i < COUNT_; i++) {
			slot[1].f[i] = (i * 7 + run * 3) % 11 - 5;
			mean[i] = ((i * 7 + run * 3) % 11 + (i * 7 + run * 3 - 3) % 11 - 10) / 2.0;
		}
		if (run % 2)
			plain_step("adamw", &plain, mean, run / 2 + 1);
		evaluate(arena, step, slot);
		for (int i = 0; i < COUNT_; i++)
			close_to("accumulate", slot[0].f[i], plain.w[i]);
		hold("two runs are a step",
		     slot[find_slot(step, "amos.step")].i[0] == (run + 1) / 2);
	}
	printf("two runs make one update\n");
	arena_free(arena);
}

static void test_rules(void)
{
	Arena *arena = arena_new();
	Opt opt = opt_named("amos");
	opt.labels = (Labels){768, 1 / sqrt(768)};
	opt.batches = 1303;
	opt_defaults(arena, &opt);
	close_to("average", opt.average, 8);
	close_to("xi", opt.xi, (3 - 2 * 1303e-5) / sqrt(1303 + 2000));
	close_to("beta", opt.beta, 0.98);
	close_to("momentum", opt.momentum, 0);
	close_to("warm-up", opt.warmup, 53);
	close_to("clip", opt.clip, 1 / sqrt(768));
	hold("what was chosen is said",
	     strstr(opt.chosen, "xi 0.05175: 2.974 / sqrt(N + 2000)") != NULL);
	Opt few = opt_named("amos");
	few.batches = 10;
	opt_defaults(arena, &few);
	close_to("xi of ten batches", few.xi, (3 - 2e-4) / 4 / sqrt(2010));
	close_to("beta", few.beta, 0.98);
	close_to("decay", few.strength, 2010 / pow(3 - 2e-4, 2) / 110);
	Opt one = opt_named("amos");
	one.batches = 1;
	opt_defaults(arena, &one);
	close_to("xi of one batch", one.xi, (3 - 2e-5) / 4 / sqrt(2001));
	Opt given = opt_named("amos");
	given.batches = 1303;
	given.elsewhere = true;
	opt_defaults(arena, &given);
	close_to("no average of what others train", given.average, 0);
	close_to("xi", given.xi, 1 / sqrt(1303 + 2000));
	close_to("momentum", given.momentum, 0.9);
	close_to("warm-up", given.warmup, 53);
	arena_free(arena);
}

// ---- losses ---------------------------------------------------------------------------

static Graph *logits_graph(Arena *arena)
{
	Graph *g = graph_new(arena, "logits", book_builtin());
	const Shape shape = shape_of(2, (int64_t[]){ROWS, COLS});
	add_slot(g, (Slot){.name = "x", .kind = S_input, .type = E_f32, .shape = shape});
	add_out(g, "logits", put_slot(g, 0));
	return g;
}

static double out_number(Arena *arena, const Graph *g, const Array *slot, const char *name)
{
	Ref r = find_output(g, name);
	hold("an out is missing", r);
	return r ? eval_graph(arena, g, slot)[r].f[0] : NAN;
}

static void test_entropy(void)
{
	static const int64_t labels[ROWS] = {2, -100, 1};
	Arena *arena = arena_new();
	const Graph *g = loss_pass(arena, logits_graph(arena), "cross_entropy(logits, labels)");
	const Slot *s = &g->slots.at[1];
	hold("labels are an input of classes", s->kind == S_input && s->type == E_i64 &&
	                                           s->shape.rank == 1 && s->shape.dim[0] == ROWS &&
	                                           s->limit == COLS && s->ignore == -100);
	Array *slot = first_contents(arena, g);
	double wanted = 0;
	for (int i = 0; i < ROWS; i++) {
		double sum = 0;
		for (int j = 0; j < COLS; j++)
			sum += exp(slot[0].f[i * COLS + j] = sin(i * COLS + j));
		slot[1].i[i] = labels[i];
		wanted += labels[i] < 0 ? 0 : (log(sum) - slot[0].f[i * COLS + labels[i]]) / 2;
	}
	close_to("cross entropy", out_number(arena, g, slot, "loss"), wanted);
	close_to("accuracy", out_number(arena, g, slot, "accuracy"), 0.5);
	printf("cross entropy and accuracy: labels to ignore do not count\n");
	arena_free(arena);
}

static void test_mixed(void)
{
	Arena *arena = arena_new();
	const Graph *g =
	    loss_pass(arena, logits_graph(arena), "mse(logits, target) + 0.5 * l1(x, other)");
	Array *slot = first_contents(arena, g);
	double wanted = 0;
	for (int i = 0; i < COUNT_; i++) {
		slot[0].f[i] = i;
		slot[find_slot(g, "target")].f[i] = 2 * i;
		slot[find_slot(g, "other")].f[i] = 5;
		wanted += (i * i + 0.5 * abs(i - 5)) / COUNT_;
	}
	// 1 / count is a constant in f32.
	close_within(1e-7, "mse + l1", out_number(arena, g, slot, "loss"), wanted);
	const Graph *c = cotangent_pass(arena, logits_graph(arena), NULL);
	Array *two = first_contents(arena, c);
	two[0].f[3] = 3;
	two[find_slot(c, "cotangent:logits")].f[3] = 7;
	close_to("cotangents", out_number(arena, c, two, "loss"), 21);
	arena_free(arena);
}

static void expect_message(const char *expr, const char *wanted)
{
	Arena *arena = arena_new();
	Catch c;
	if (!TRY(c)) {
		loss_pass(arena, logits_graph(arena), expr);
		catch_end(&c);
		printf("FAILED --loss %s: no message, wanted '%s'\n", expr ? expr : "(none)",
		       wanted);
		failures++;
	} else {
		if (!strstr(c.message, wanted)) {
			printf("FAILED --loss %s: '%s', wanted '%s'\n", expr ? expr : "(none)",
			       c.message, wanted);
			failures++;
		}
		free(c.message);
	}
	arena_free(arena);
}

int main(void)
{
	static const char *const names[] = {"adamw", "adam", "adafactor", "sgd"};
	for (int i = 0; i < COUNT(names); i++)
		test_optimizer(names[i]);
#define OPTIMIZER(name, ...)                                                                       \
	test_rate(#name, 0);                                                                       \
	test_rate(#name, 3);
#include "optimizers.def"
	test_accumulate();
	test_rules();
	test_entropy();
	test_mixed();
	expect_message(NULL, "no scalar float output; the model's outputs are logits f32[3,4]");
	expect_message("logits", "wrap it in average");
	expect_message("average(scores)", "'scores' is unknown, and no other operand");
	expect_message("mse(logits, target", "expected ','");
	expect_message("mse(logits, target) logits", "unexpected 'logits' after the expression");
	return failures != 0;
}
