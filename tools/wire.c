// wire.c: from the command line to what each pass wants to know: the data, the loss, what gets
// gradients, the optimizer. Takes the options of verbs.def.
#include "tool.h"
#include <math.h>
#include <string.h>

void close_later(Command *command, void (*close)(void *), void *what)
{
	Closer closer = {close, what};
	PUSH(command->arena, command->opened, closer);
}

void check(int status)
{
	if (status != AMOS_DONE)
		fail_status(status, NULL, "%s", amos_error());
}

struct amos_options runtime_options(const Command *command)
{
	struct amos_options all = amos_options();
	for (int i = 0; i < command->choices.count; i++) {
		const Choice *c = &command->choices.at[i];
		switch (c->option) {
#define OPTION(name, ...)                                                                          \
	case OPT_##name:                                                                           \
		check(amos_option(&all, #name, c->value));                                         \
		break;
#include "options.def"
#undef OPTION
		default:
			break;
		}
	}
	all.argc = command->argc;
	all.argv = command->argv;
	return all;
}

static void close_data(void *data)
{
	amos_data_close(data);
}

struct amos_data *open_data(Command *command, const struct amos_options *options, bool exact)
{
	struct amos_data *data;
	check(amos_data_open(options, exact, &data));
	close_later(command, close_data, data);
	return data;
}

// ---- loss, gradient -------------------------------------------------------------------

Graph *with_loss(Command *command, Graph *g)
{
	int scalars = 0;
	bool named = false;
	for (int i = 0; i < g->outs.count; i++) {
		const Val *v = val(g, g->outs.at[i].val);
		bool scalar = is_float(v->type) && count_of(&v->shape) == 1;
		scalars += scalar;
		named |= scalar && !strcmp(g->outs.at[i].name, "loss");
	}
	const char *expression = choice(command, OPT_loss, NULL);
	bool told = expression || named || scalars == 1;
	return told ? loss_pass(command->arena, g, expression) : g;
}

// Running statistics whose bytes are a parameter's too: what depends on them is part of that
// initializer's gradient.
static bool shares_bytes(const Graph *g, const Slot *s)
{
	for (int i = 0; i < g->slots.count && s->kind == S_buffer; i++)
		if (g->slots.at[i].kind == S_param && g->slots.at[i].file &&
		    !strcmp(g->slots.at[i].file, s->file))
			return true;
	return false;
}

bool *wanted(Command *command, const Graph *g)
{
	const char *wrt = choice(command, OPT_wrt, "params");
	bool all = !strcmp(wrt, "all"), inputs = all || !strcmp(wrt, "inputs"),
	     params = all || !strcmp(wrt, "params");
	bool *want = NEWS(command->arena, bool, g->slots.count + 1), any = inputs || params;
	VEC(const char *) names = {0};
	for (int i = 0; i < g->slots.count; i++) {
		const Slot *s = &g->slots.at[i];
		bool data =
		    s->kind == S_input && is_float(s->type) && !starts_with(s->name, COTANGENT_OF);
		bool param = s->kind == S_param || (reads_apart(command) && shares_bytes(g, s));
		want[i] = inputs || params ? (params && param) || (inputs && data)
		                           : (param || data) && matches(wrt, s->name);
		any |= want[i];
		if (param || data)
			PUSH(command->arena, names, s->name);
	}
	if (!any)
		fail("--wrt", "'%s' matches no parameter and no float input; %s", wrt,
		     suggest(command->arena, wrt, names.count, names.at));
	return want;
}

// ---- the optimizer --------------------------------------------------------------------

// The number of labels in a batch: the size of the input that the loss compares with. It is the
// integer input whose name says so; where there is none, each sample counts as one.
static int64_t label_count(const Graph *loss, struct amos_data *data)
{
	int64_t samples = 0;
	for (int i = 0; i < loss->slots.count; i++) {
		const Slot *s = &loss->slots.at[i];
		if (s->kind != S_input)
			continue;
		if (!samples && s->shape.rank)
			samples = s->shape.dim[0];
		if (!is_float(s->type) &&
		    (matches("*label*", s->name) || matches("*target*", s->name)))
			return data ? (int64_t)amos_data_labels(data, s->name, count_of(&s->shape),
			                                        s->ignore)
			            : count_of(&s->shape);
	}
	return samples;
}

// Options that the optimizer does not go by are told: they were meant for another.
static void warn_unused(const Command *command, const char *optimizer)
{
	enum { MOST = 6 };
	static const struct {
		const char *optimizer;
		OptionName unused[MOST]; // and then OPTIONS
	} known[] = {
	    {"amos", {OPT_rate, OPT_beta2, OPT_decay, OPT_eps, OPTIONS}},
	    {"adamw", {OPT_xi, OPT_momentum, OPT_extra_l2, OPTIONS}},
	    {"adam", {OPT_xi, OPT_momentum, OPT_extra_l2, OPTIONS}},
	    {"adafactor", {OPT_xi, OPT_beta, OPT_beta2, OPT_momentum, OPT_extra_l2, OPTIONS}},
	    {"sgd", {OPT_xi, OPT_beta, OPT_beta2, OPT_eps, OPT_extra_l2, OPTIONS}},
	};
	for (int i = 0; i < COUNT(known); i++)
		for (int k = 0;
		     !strcmp(known[i].optimizer, optimizer) && known[i].unused[k] != OPTIONS; k++)
			if (chosen(command, known[i].unused[k]))
				warn("--optimizer", "%s has no --%s: it changes nothing", optimizer,
				     long_name(command->arena, known[i].unused[k]));
}

Opt optimizer(Command *command, const Graph *loss, struct amos_data *data)
{
	Opt opt = opt_named(choice(command, OPT_optimizer, "amos"));
	warn_unused(command, opt.name);
	opt.labels = label_count(loss, data);
#define NUMBER(field) opt.field = choice_number(command, OPT_##field, NAN)
	NUMBER(xi), NUMBER(clip), NUMBER(extra_l2), NUMBER(decay), NUMBER(eps), NUMBER(warmup);
	NUMBER(rate);
#undef NUMBER
#define PART(field) opt.field = choice_part(command, OPT_##field, NAN)
	PART(beta), PART(beta2), PART(momentum);
#undef PART
	opt.accumulate = choice_count(command, OPT_accumulate, 1);
	if (!opt.accumulate)
		bad_usage(command, "--accumulate wants a batch at least, found '0'");
	opt.batches = data ? amos_data_independent(data) / (double)opt.accumulate : 0;
	opt_defaults(command->arena, &opt);
	return opt;
}

Graph *only_outs(Arena *arena, const Graph *g, const char *const *names)
{
	Graph kept = *g;
	memset(&kept.outs, 0, sizeof kept.outs);
	for (int i = 0; i < g->outs.count; i++)
		for (int k = 0; names[k]; k++)
			if (!strcmp(g->outs.at[i].name, names[k]))
				PUSH(arena, kept.outs, g->outs.at[i]);
	return graph_live(arena, &kept);
}
