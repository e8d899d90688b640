// hyperparams.c: chooses optimizer settings not given.
// Input: the options that are given, and facts about the data. Output: the others by rule, and the
// rules as text.
#include "passes.h"
#include <math.h>
#include <string.h>

static void choose(Text *said, const char *name, double *x, double value, const char *rule)
{
	if (!isnan(*x))
		rule = "given";
	else
		*x = value;
	if (rule)
		say(said, "%s %.4g: %s\n", name, *x, rule);
}

// Returns the nearest of 1, 2, 5 times a power of ten.
static double round_number(double x)
{
	double best = 0;
	for (int e = -6; e < 3; e++)
		for (int k = 0; k < 3; k++) {
			double y = (k == 0 ? 1 : k == 1 ? 2 : 5) * pow(10, e);
			if (!best || fabs(log(y / x)) < fabs(log(best / x)))
				best = y;
		}
	return best;
}

// Returns the size of the sum of the labels' gradients, which are independent.
static void choose_clip(Opt *opt, Text *said)
{
	double runs = (double)MAX(opt->accumulate, 1), count = opt->labels.count * runs;
	double clip = opt->labels.weight / sqrt(runs);
	const char *rule = "none: the number of labels in a batch is not known";
	if (count > 0)
		rule = format(said->arena, "%s, %.6g labels in a batch",
		              fabs(clip * sqrt(count) - 1) < 1e-6
		                  ? "1 / sqrt(labels)"
		                  : "root of the sum of the labels' squared weights in the loss",
		              count);
	choose(said, "clip", &opt->clip, clip, rule);
}

// Corrections for small data, which Algorithm 1 leaves open. They fade as N, the number of batches,
// grows, to nothing at MANY. docs/optimizer.md gives the reasons and the measurements.
static const double MANY = 100000; // N from which on Algorithm 1 is exact
static const double PRIOR = 2000;  // batches that xi counts on top of N
static const double LITTLE = 100;  // batches that decay counts on top of N
static const double REACH = 2;     // steps go by so many times the RMS of a variable
static const double LEAST = 0.07;  // and by this part of its eta at least
static const double WARMUP = 50;   // steps

// The position of N between 0 and MANY.
static void small_defaults(Opt *opt, Text *said, double n)
{
	double many = n / MANY;
	opt->pace = MAX(1 / (opt->xi * opt->xi * (n + LITTLE)), 1);
	opt->most = 1 / (1 - many);
	opt->reach = REACH;
	opt->least = LEAST + (1 - LEAST) * many;
	say(said, "decay %.4g times as fast: 1 / (xi^2 (N + %g))\n", opt->pace, LITTLE);
	say(said, "surge %.4g: limit of the normalized mean square, 1 / (1 - N / %g)\n", opt->most,
	    MANY);
	say(said, "reach %g: times the RMS of a parameter for eta, from %.4g eta up to eta\n",
	    opt->reach, opt->least);
}

static void amos_defaults(Opt *opt, Text *said)
{
	double n = opt->batches;
	bool small = isnan(opt->xi) && n > 0 && n < MANY;
	double many = small ? n / MANY : 1, prior = small ? PRIOR : 0;
	const char *rule = "how many batches the data hold is not known; --data tells, or --xi";
	if (n > 0)
		rule =
		    format(said->arena, "1 / sqrt(N%s), N = %.6g independent batches in the data",
		           small ? format(said->arena, " + %g", PRIOR) : "", n);
	choose(said, "xi", &opt->xi, n > 0 ? 1 / sqrt(n + prior) : 0.01, rule);
	choose(said, "beta", &opt->beta, 1 - round_number(MIN(MAX(opt->xi, 0.001), 0.05)),
	       "1 - beta is xi rounded to 1, 2 or 5, from 0.001 to 0.05");
	choose(said, "momentum", &opt->momentum, 0.9, "the authors'");
	double usual = 5 / (1 - opt->beta);
	choose(said, "warm-up", &opt->warmup, round(usual * many + WARMUP * (1 - many)),
	       small ? format(said->arena, "%g steps, nearing 5 / (1 - beta) as N nears %g", WARMUP,
	                      MANY)
	             : "5 / (1 - beta) steps");
	choose_clip(opt, said);
	choose(said, "extra L2", &opt->extra_l2, 0, NULL);
	if (small)
		small_defaults(opt, said, n);
}

static void usual_defaults(Opt *opt, Text *said)
{
	const Opt *usual = &optimizer_named(opt->name)->usual;
#define HYPER(name, kind, argument, label, text)                                                   \
	choose(said, label, &opt->name, usual->name, usual->name ? "usual" : NULL);
#include "optimizers.def"
#undef HYPER
}

// ---- the table ------------------------------------------------------------------------

static const Optimizer optimizers[] = {
#define HYPERS(...)                                                                                \
	{                                                                                          \
		__VA_ARGS__                                                                        \
	}
#define OPTIMIZER(name, title, rule, usual, ...) {#name, title, rule, HYPERS usual, {__VA_ARGS__}},
#include "optimizers.def"
#undef OPTIMIZER
#undef HYPERS
};

const char *optimizer_names(Arena *arena, const char *operand)
{
	const char *name[COUNT(optimizers)];
	int n = 0;
	for (int i = 0; i < COUNT(optimizers); i++)
		if (!operand || opt_uses(optimizers[i].name, operand))
			name[n++] = optimizers[i].name;
	Text names = {.arena = arena};
	say(&names, "%s", "");
	for (int i = 0; i < n; i++)
		say(&names, "%s%s", i == 0 ? "" : i < n - 1 ? ", " : " or ", name[i]);
	return names.at;
}

static const Optimizer *find_optimizer(const char *name)
{
	for (int i = 0; i < COUNT(optimizers); i++)
		if (!strcmp(optimizers[i].name, name))
			return &optimizers[i];
	return NULL;
}

const Optimizer *optimizer_named(const char *name)
{
	const Optimizer *found = find_optimizer(name);
	if (!found)
		bug("no optimizer '%s'", name);
	return found;
}

double *opt_attribute(Opt *opt, const char *name)
{
#define HYPER(field, ...)                                                                          \
	if (!strcmp(name, #field))                                                                 \
		return &opt->field;
#define DERIVED HYPER
#include "optimizers.def"
#undef DERIVED
#undef HYPER
	return NULL;
}

Opt opt_named(const char *name)
{
	Opt opt = {.name = name};
#define HYPER(field, ...)           opt.field = NAN;
#define DERIVED(field, value, text) opt.field = value;
#include "optimizers.def"
#undef DERIVED
#undef HYPER
	return opt;
}

void opt_defaults(Arena *arena, Opt *opt)
{
	const Optimizer *optimizer = find_optimizer(opt->name);
	if (!optimizer)
		fail("--optimizer", "unknown optimizer '%s'; expected %s", opt->name,
		     optimizer_names(arena, NULL));
	Text said = {.arena = arena};
	say(&said, "optimizer %s\n", opt->name);
	optimizer->rule(opt, &said);
	opt->chosen = said.at;
}
