// opt.c: what is chosen of an optimizer where nothing is said.
// Takes the options that are given, and what is known of the data. Gives the others by rule, and
// the rules as text.
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

// The nearest of 1, 2, 5 times a power of ten.
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

static void amos_defaults(Opt *opt, Text *said)
{
	double n = opt->batches;
	const char *rule = "how many batches the data hold is not known; --data tells, or --xi";
	if (n > 0)
		rule =
		    format(said->arena, "1 / sqrt(N), N = %.6g independent batches in the data", n);
	choose(said, "xi", &opt->xi, n > 0 ? 1 / sqrt(n) : 0.01, rule);
	double forget = round_number(MIN(MAX(opt->xi, 0.001), 0.05));
	choose(said, "beta", &opt->beta, 1 - forget,
	       "1 - beta is xi rounded to 1, 2 or 5, from 0.001 to 0.05");
	choose(said, "momentum", &opt->momentum, 0.9, "the authors'");
	choose(said, "warm-up", &opt->warmup, round(5 / (1 - opt->beta)), "5 / (1 - beta) steps");
	choose(said, "clip", &opt->clip, opt->labels > 0 ? 1 / sqrt((double)opt->labels) : 0,
	       opt->labels > 0 ? format(said->arena, "1 / sqrt(labels), %lld labels in a batch",
	                                (long long)opt->labels)
	                       : "none: the number of labels in a batch is not known");
	choose(said, "extra L2", &opt->extra_l2, 0, NULL);
	choose(said, "coefficient of c and d", &opt->coef, 0.25, NULL);
}

static void other_defaults(Opt *opt, Text *said)
{
	bool sgd = !strcmp(opt->name, "sgd"), factor = starts_with(opt->name, "adafactor");
	choose(said, "rate", &opt->rate, sgd || factor ? 0.01 : 0.001, "usual");
	choose(said, "warm-up", &opt->warmup, sgd ? 0 : 100, "usual");
	if (sgd) {
		choose(said, "momentum", &opt->momentum, 0.9, "usual");
	} else if (!factor) {
		choose(said, "beta", &opt->beta, 0.9, "usual");
		choose(said, "beta2", &opt->beta2, 0.999, "usual");
	}
	choose(said, "decay", &opt->decay, !strcmp(opt->name, "adamw") ? 0.01 : 0, "usual");
	choose(said, "eps", &opt->eps, factor ? 1e-30 : 1e-8, NULL);
	choose(said, "clip", &opt->clip, 0, NULL);
}

Opt opt_named(const char *name)
{
	Opt opt = {.name = name};
	opt.xi = opt.beta = opt.beta2 = opt.momentum = opt.clip = opt.extra_l2 = NAN;
	opt.coef = opt.decay = opt.eps = opt.warmup = opt.rate = NAN;
	return opt;
}

void opt_defaults(Arena *arena, Opt *opt)
{
	static const char *const known[] = {"amos", "adamw", "adam", "adafactor", "sgd"};
	bool found = false;
	for (int i = 0; i < COUNT(known); i++)
		found |= !strcmp(opt->name, known[i]);
	if (!found)
		fail("--optimizer",
		     "'%s' is not known; there are amos, adamw, adam, adafactor and sgd",
		     opt->name);
	Text said = {.arena = arena};
	say(&said, "optimizer %s\n", opt->name);
	if (!strcmp(opt->name, "amos"))
		amos_defaults(opt, &said);
	else
		other_defaults(opt, &said);
	opt->chosen = said.at;
}
