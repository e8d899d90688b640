// hyperparams.c: chooses optimizer settings not given.
// Each choice is listed as text, with its rule.
#include "passes.h"
#include <math.h>
#include <string.h>

// `name`: NULL: schedule_defaults() chooses it.
static void choose(Text *rules, const char *name, double *x, double value, const char *rule)
{
	if (!name)
		return;
	if (!isnan(*x))
		rule = "given";
	else
		*x = value;
	if (rule)
		say(rules, "%s %.4g: %s\n", name, *x, rule);
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

// Corrections for small data, which Algorithm 1 leaves open. They vanish as N, the number of
// batches, grows to MANY. docs/optimizer.md gives the reasons and the measurements.
static const double MANY = 100000; // N from which Algorithm 1 is unchanged
static const double PRIOR = 2000;  // batches added to N for xi
static const double LITTLE = 100;  // batches added to N for decay
static const double REACH = 2;     // scale of a step, per RMS of the parameter
static const double LEAST = 0.07;  // lower limit of that scale, per eta
static const double WARMUP = 50;   // steps
static const double AVERAGE = 8;   // weights are a running mean of the last t / AVERAGE steps
static const double RISE = 3;      // times as large a xi where they are
static const double FEW = 40;      // batches; with fewer, xi falls in proportion,
static const double FEWEST = 10;   // but not below that of so many

// Sets the corrections that no option names; xi is `part` of that for FEW batches.
static void correct(Opt *opt, Text *rules, double part)
{
	double n = opt->batches, many = n / MANY;
	// Less xi means less decay, as with a schedule.
	opt->pace = MAX(part * part / (opt->xi * opt->xi * (n + LITTLE)), 1);
	opt->strength = opt->average ? opt->pace : 1;
	opt->most = 1 / (1 - many);
	opt->reach = REACH;
	opt->least = LEAST + (1 - LEAST) * many;
	say(rules, "decay %.4g times as %s: %.4g / (xi^2 (N + %g))\n", opt->pace,
	    opt->average ? "strong, and ending as much faster" : "fast", part * part, LITTLE);
	say(rules, "surge %.4g: limit of the normalized mean square, 1 / (1 - N / %g)\n", opt->most,
	    MANY);
	say(rules, "reach %g: times the RMS of a parameter instead of eta, from %.4g eta to eta\n",
	    opt->reach, opt->least);
}

static void amos_defaults(Opt *opt, Text *rules)
{
	double n = opt->batches;
	bool small = isnan(opt->xi) && n > 0 && n < MANY;
	double many = small ? n / MANY : 1, prior = small ? PRIOR : 0;
	bool averages = small && !opt->elsewhere;
	choose(rules, "average", &opt->average, averages ? AVERAGE : 0,
	       !averages
	           ? NULL
	           : format(rules->arena,
	                    "weights are a running mean over the last 1/%g of all steps", AVERAGE));
	double rise = small && opt->average ? RISE - (RISE - 1) * many : 1;
	double part = small && opt->average ? MIN(MAX(n, FEWEST) / FEW, 1) : 1;
	rise *= part;
	double xi = n > 0 ? 1 / sqrt(n + prior) : 0.01;
	const char *rule = "the number of batches is unknown; give --data, --batches or --xi";
	if (n > 0)
		rule = format(rules->arena, "%.4g / sqrt(N%s), N = %.6g independent %s in the data",
		              rise, small ? format(rules->arena, " + %g", PRIOR) : "", n,
		              PLURAL(n, "batch", "batches"));
	xi = isnan(opt->xi) ? xi : opt->xi;
	choose(rules, "xi", &opt->xi, rise * xi, rule);
	choose(rules, "beta", &opt->beta, 1 - round_number(MIN(MAX(xi, 0.001), 0.05)),
	       format(rules->arena, "1 - beta is xi%s rounded to 1, 2 or 5, from 0.001 to 0.05",
	              rise != 1 ? format(rules->arena, " / %.4g", rise) : ""));
	choose(rules, "momentum", &opt->momentum, opt->average ? 0 : 0.9,
	       opt->average ? NULL : "the authors' default");
	double usual = 5 / (1 - opt->beta);
	choose(rules, "warm-up", &opt->warmup, round(usual * many + WARMUP * (1 - many)),
	       small ? format(rules->arena, "%g steps, toward 5 / (1 - beta) as N approaches %g",
	                      WARMUP, MANY)
	             : "5 / (1 - beta) steps");

	// clip is the norm of the sum of the labels' gradients, which are independent.
	double runs = (double)MAX(opt->accumulate, 1), count = opt->labels.count * runs;
	double clip = opt->labels.weight / sqrt(runs);
	rule = "none: the number of labels in a batch is unknown; --clip gives a limit";
	if (count > 0)
		rule = format(rules->arena, "%s, %.6g %s in a batch",
		              fabs(clip * sqrt(count) - 1) < 1e-6
		                  ? "1 / sqrt(labels)"
		                  : "root of the sum of the labels' squared weights in the loss",
		              count, PLURAL(count, "label", "labels"));
	choose(rules, "clip", &opt->clip, clip, rule);
	choose(rules, "extra L2", &opt->extra_l2, 0, NULL);
	if (small)
		correct(opt, rules, part);
}

// Sets those of the optimizer's row; the warm-up is ours.
static void row_defaults(Opt *opt, Text *rules, const char *why)
{
	const Opt *usual = &optimizer_named(opt->name)->usual;
#define HYPER(name, kind, argument, label, text)                                                   \
	choose(rules, label, &opt->name, usual->name,                                              \
	       !usual->name               ? NULL                                                   \
	       : !strcmp(#name, "warmup") ? "common default"                                       \
	                                  : why);
#include "optimizers.def"
#undef HYPER
}

static void usual_defaults(Opt *opt, Text *rules)
{
	row_defaults(opt, rules, "common default");
}

static void authors_defaults(Opt *opt, Text *rules)
{
	row_defaults(opt, rules, "the authors' default");
}

// ---- schedules ------------------------------------------------------------------------

static double no_part(const Opt *opt)
{
	(void)opt;
	return 0;
}

static double before_cooldown(const Opt *opt)
{
	return fmax(1 - opt->cooldown, 0);
}

static const Schedule schedules[] = {
#define SCHEDULE(name, stable) {#name, stable},
#include "optimizers.def"
#undef SCHEDULE
};

const Schedule *schedule_named(const char *name)
{
	int i = FIND(name, schedules);
	return i < 0 ? NULL : &schedules[i];
}

const char *schedule_names(Arena *arena)
{
	return NAMES(arena, schedules, " or ");
}

bool of_schedule(const char *operand)
{
	bool uses = false;
	for (int i = 0; i < COUNT(schedules); i++)
		uses |= schedule_uses(schedules[i].name, operand);
	return uses;
}

static void schedule_defaults(Opt *opt, Text *rules)
{
	static const double COOLDOWN = 0.2;
	const Schedule *schedule = schedule_named(opt->schedule);
	if (!schedule)
		fail_status(STATUS_USAGE, "--schedule", "unknown schedule '%s'; expected %s",
		            opt->schedule, schedule_names(rules->arena));
	opt->cooldown = isnan(opt->cooldown) ? COOLDOWN : opt->cooldown;
	opt->final = isnan(opt->final) ? 0 : opt->final;
	if (!schedule_uses(schedule->name, "steps"))
		return;
	say(rules, "schedule %s: to %.4g of the step size", schedule->name, opt->final);
	if (schedule_uses(schedule->name, "cooldown"))
		say(rules, ", in the last %.4g of the steps", opt->cooldown);
	say(rules, "\n");
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
	return names_text(arena, name, n, sizeof *name, " or ");
}

const Optimizer *optimizer_named(const char *name)
{
	int i = FIND(name, optimizers);
	return i < 0 ? NULL : &optimizers[i];
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
	const Optimizer *optimizer = optimizer_named(opt->name);
	if (!optimizer)
		fail_status(STATUS_USAGE, "--optimizer", "unknown optimizer '%s'; expected %s",
		            opt->name, optimizer_names(arena, NULL));
	Text rules = {.arena = arena};
	say(&rules, "optimizer %s\n", opt->name);
	opt->schedule = opt->schedule ? opt->schedule : schedules[0].name;
	optimizer->rule(opt, &rules);
	if (opt_moves_point(opt))
		say(&rules,
		    "the loss of a step, and running statistics of BatchNormalization, are at the "
		    "point where gradients are taken; evaluations and files have the average\n");
	schedule_defaults(opt, &rules);
	opt->chosen = rules.at;
}
