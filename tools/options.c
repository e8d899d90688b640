// options.c: parses the command line and prints its help.
// Input: verbs.def and settings.def. Output: a Session.
#include "tool.h"
#include <stdlib.h>
#include <string.h>

const Verb verbs[] = {
#define VERB(name, arguments, least, most, purpose, takes, summary, about, example)                \
	{#name, arguments, least, most, purpose, COMMON | (takes), summary, about, example},
#include "verbs.def"
#undef VERB
    {0}};

const Verb *verb_named(const char *name)
{
	for (const Verb *v = verbs; v->name; v++)
		if (!strcmp(v->name, name))
			return v;
	return NULL;
}

const char *option_help(Arena *arena, OptionName option)
{
	const char *help = options[option].help, *all = optimizer_names(arena, NULL);
	if (option == OPT_optimizer)
		return format(arena, "%s: %s", help, all);
	if (option == OPT_schedule)
		return format(arena, "%s: %s", help, schedule_names(arena));
	if (option == OPT_after)
		return format(arena, "%s: %s", help, pass_names(arena));
	if (option == OPT_loss)
		return format(arena, "%s; losses: %s", help, loss_names(arena));
	bool step = options[option].group == STEP;
	const char *users = step && !of_schedule(options[option].name)
	                        ? optimizer_names(arena, options[option].name)
	                        : "";
	return *users && strcmp(users, all) ? format(arena, "%s; applies to %s", help, users)
	                                    : help;
}

const char *option_brief(Arena *arena, OptionName option)
{
	static const char *const ends[] = {"; ", ": ", " ("};
	const char *help = option_help(arena, option);
	size_t count = strlen(help);
	for (int i = 0; i < COUNT(ends); i++) {
		const char *end = strstr(help, ends[i]);
		count = end ? MIN(count, (size_t)(end - help)) : count;
	}
	return format(arena, "%.*s", (int)count, help);
}

// True for a hyperparameter that neither Amos nor its schedule has, except the learning rate.
static bool is_of_others(Arena *arena, OptionName option)
{
	const char *name = options[option].name;
	bool unused = of_schedule(name) ? !schedule_uses("constant", name)
	                                : !opt_uses("amos", name) && *optimizer_names(arena, name);
	return options[option].group == STEP && option != OPT_rate && unused;
}

// Options of other optimizers, and one without effect, are in the manual alone.
static const char *brief_help(void *session, int option)
{
	Arena *arena = ((Session *)session)->arena;
	bool left = option == OPT_deterministic || is_of_others(arena, (OptionName)option);
	return left ? NULL : option_brief(arena, (OptionName)option);
}

static int take_option(void *session, int option, const char *value)
{
	Session *s = session;
	PUSH(s->arena, s->choices, ((Choice){(OptionName)option, value}));
	return AMOS_DONE;
}

static void take_argument(void *session, const char *value)
{
	Session *s = session;
	*(s->path ? &s->other : &s->path) = value;
}

void parse_command(Session *session, const Verb *verb, int argc, char **argv)
{
	Arena *arena = session->arena;
	session->name = format(arena, "amosc %s", verb->name);
	session->purpose = verb->purpose;
	const char *more =
	    verb->takes & STEP ? ", also for options of other optimizers and schedules" : "";
	amos_parse(&(struct amos_command_line){.program = session->name,
	                                       .arguments = verb->arguments,
	                                       .about = format(arena, "%s\vSee man amosc-%s%s.",
	                                                       verb->summary, verb->name, more),
	                                       .least = verb->least,
	                                       .most = verb->most,
	                                       .rows = OPTIONS,
	                                       .row = options,
	                                       .takes = verb->takes,
	                                       .context = session,
	                                       .help = brief_help,
	                                       .option = take_option,
	                                       .argument = take_argument},
	           argc, argv);
	for (int i = 0; i < session->choices.count; i++)
		check_value(session, &session->choices.at[i]);
}

const char *stream_output(Session *session, const char *expected)
{
	const char *out = choice(session, OPT_out, NULL);
	if (!out)
		bad_usage(session, format(session->arena, "expected -o %s", expected));
	if (!strcmp(out, "-") && chosen(session, OPT_json))
		bad_usage(session, "-o - and --json both write to standard output");
	return amos_output_name(out);
}

void need_file(const Session *session, OptionName option, const char *expected)
{
	const char *name = choice(session, option, NULL);
	if (name && !strcmp(name, "-"))
		bad_usage(session, format(session->arena, "--%s: expected %s, found '-'",
		                          long_name(session->arena, option), expected));
}

void print_help(FILE *out)
{
	fprintf(out, "Usage: amosc VERB MODEL [OPTION...]\n"
	             "Compiles an exported ONNX model into a program that trains it.\n\n");
	for (const Verb *v = verbs; v->name; v++)
		fprintf(out, "  %-7s %-18s  %s\n", v->name, v->arguments, v->summary);
	fprintf(
	    out,
	    "\nMODEL is an .onnx file, with external data next to it, or - for standard input.\n"
	    "Every verb takes --json, --verbose and --quiet; amosc VERB --help lists all options.\n"
	    "Exit status: 0 success, 1 invalid input, 2 usage error, 3 system error.\n");
}
