// configure.c: turns options into pass settings.
// The data, the loss, what gets gradients, the optimizer. Takes the options of verbs.def.
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

void note_unused(Command *command, struct amos_data *data, const Graph *g)
{
	VEC(const char *) names = {0};
	for (int i = 0; i < g->slots.count; i++)
		if (g->slots.at[i].kind == S_input)
			PUSH(command->arena, names, g->slots.at[i].name);
	check(amos_data_take(data, names.count, names.at));
	say_progress(command, "%s", amos_data_unused(data));
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

static double part_labels(void *data, const Slot *s)
{
	return data ? amos_data_labels(data, s->name, 1, s->ignore) : 1;
}

// Options that the optimizer's definition has no operand for were meant for another.
static void check_used(const Command *command, const char *optimizer)
{
	static const struct {
		OptionName option;
		const char *operand, *meant; // `meant`: the option that stands in its place
	} rows[] = {
#define HYPER(name, ...) {OPT_##name, #name, NULL},
#include "optimizers.def"
#undef HYPER
	    {OPT_rate, "rate", "xi"}, {OPT_xi, "xi", "rate"},   {OPT_eta, "eta", NULL},
	    {OPT_range, "eta", NULL}, {OPT_slots, "eta", NULL}, {OPT_convention, "eta", NULL}};
	for (int i = COUNT(rows); i-- > 0;) {
		bool uses = rows[i].option == OPT_warmup || opt_uses(optimizer, rows[i].operand);
		if (!chosen(command, rows[i].option) || uses)
			continue;
		const char *option = long_name(command->arena, rows[i].option);
		bad_usage(command, format(command->arena, "--%s does nothing under %s%s%s", option,
		                          optimizer, rows[i].meant ? ": wanted --" : "",
		                          rows[i].meant ? rows[i].meant : ""));
	}
}

Opt optimizer(Command *command, const Graph *loss, struct amos_data *data)
{
	Opt opt = opt_named(choice(command, OPT_optimizer, "amos"));
	opt.labels = count_labels(loss, part_labels, data);
#define HYPER(name, kind, ...) opt.name = choice_##kind(command, OPT_##name, NAN);
#include "optimizers.def"
#undef HYPER
	opt.accumulate = choice_count(command, OPT_accumulate, 1);
	if (!opt.accumulate)
		bad_usage(command, "--accumulate wants a batch at least, found '0'");
	opt.batches = data ? amos_data_independent_batches(data) / (double)opt.accumulate : 0;
	opt_defaults(command->arena, &opt);
	check_used(command, opt.name);
	return opt;
}

Graph *only_outs(Arena *arena, const Graph *g, const char *const *names)
{
	Graph kept = *g;
	memset(&kept.outs, 0, sizeof kept.outs);
	for (int i = 0; i < g->outs.count; i++) {
		const char *name = g->outs.at[i].name;
		bool wanted = starts_with(name, CHECK_OF);
		for (int k = 0; names[k]; k++)
			wanted |= !strcmp(name, names[k]);
		if (wanted)
			PUSH(arena, kept.outs, g->outs.at[i]);
	}
	return graph_live(arena, &kept);
}
