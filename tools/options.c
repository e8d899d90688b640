// options.c: the command line: verbs.def read as a parser (argp) and as help.
// Takes verbs.def. Gives a Command. Keeps: no option means anything that the table does not say.
#include "tool.h"
#include <argp.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_KEY = 0x100 }; // argp's keys of options without a letter

static const Verb verbs[] = {
#define VERB(name, arguments, least, most, takes, summary, about, example)                         \
	{#name, arguments, least, most, COMMON | (takes), summary},
#include "verbs.def"
#undef VERB
};

static const struct {
	const char *name;
	int letter;
	unsigned group;
	const char *type, *argument, *help;
} options[OPTIONS] = {
#define OPTION(name, letter, group, type, argument, help)                                          \
	{#name, letter, group, #type, argument, help},
#include "verbs.def"
#undef OPTION
};

const Verb *verb_named(const char *name)
{
	for (int i = 0; i < COUNT(verbs); i++)
		if (!strcmp(verbs[i].name, name))
			return &verbs[i];
	return NULL;
}

unsigned group_of(OptionName option)
{
	return options[option].group;
}

// The option as typed: extra_l2 is --extra-l2.
char *long_name(Arena *arena, OptionName option)
{
	char *name = copy_string(arena, options[option].name);
	for (char *c = name; *c; c++)
		if (*c == '_')
			*c = '-';
	return name;
}

const char *option_help(Arena *arena, OptionName option)
{
	const char *help = options[option].help, *all = optimizer_names(arena, NULL);
	if (option == OPT_optimizer)
		return format(arena, "%s: %s", help, all);
	if (option == OPT_loss)
		return format(arena, "%s; losses: %s", help, loss_names(arena));
	bool step = options[option].group == STEP;
	const char *users = step ? optimizer_names(arena, options[option].name) : "";
	return *users && strcmp(users, all) ? format(arena, "%s; applies to %s", help, users)
	                                    : help;
}

// What --help says, a line: the manual goes on.
static const char *brief(Arena *arena, const char *help)
{
	static const char *const ends[] = {"; ", ": ", " ("};
	size_t count = strlen(help);
	for (int i = 0; i < COUNT(ends); i++) {
		const char *end = strstr(help, ends[i]);
		count = end ? MIN(count, (size_t)(end - help)) : count;
	}
	return format(arena, "%.*s", (int)count, help);
}

static int key_of(OptionName option)
{
	return options[option].letter ? options[option].letter : FIRST_KEY + (int)option;
}

static error_t take_option(int key, char *value, struct argp_state *state)
{
	Command *command = state->input;
	switch (key) {
	case ARGP_KEY_ARG:
		if (command->arguments.count >= command->verb->most)
			argp_error(state, "one argument too many: %s", value);
		PUSH(command->arena, command->arguments, value);
		return 0;
	case ARGP_KEY_END:
		if (command->arguments.count < command->verb->least)
			argp_error(state, "wants an argument: %s", command->verb->arguments);
		return 0;
	}
	for (OptionName i = 0; i < OPTIONS; i++) {
		if (key != key_of(i))
			continue;
		Choice choice = {i, value};
		PUSH(command->arena, command->choices, choice);
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

void parse_command(Command *command, const Verb *verb, int argc, char **argv)
{
	Arena *arena = command->arena;
	char **words = NEWS(arena, char *, argc + 1); // which argp sorts, and calls the program by
	memcpy(words, argv, sizeof *words * (size_t)argc);
	words[0] = format(arena, "amosc %s", verb->name);
	struct argp_option rows[OPTIONS + 1] = {0};
	int count = 0;
	for (OptionName i = 0; i < OPTIONS; i++)
		if (options[i].group & verb->takes)
			rows[count++] = (struct argp_option){long_name(arena, i),
			                                     key_of(i),
			                                     options[i].argument,
			                                     0,
			                                     brief(arena, option_help(arena, i)),
			                                     0};
	struct argp argp = {
	    rows,
	    take_option,
	    verb->arguments,
	    format(arena, "%s\vman amosc-%s tells the rest.", verb->summary, verb->name),
	    NULL,
	    NULL,
	    NULL};
	command->verb = verb;
	argp_err_exit_status = STATUS_USAGE;
	setenv("ARGP_HELP_FMT", "no-dup-args-note", 0); // two lines that say nothing here
	argp_parse(&argp, argc, words, 0, NULL, command);
}

void print_help(FILE *out)
{
	fprintf(out, "Usage: amosc VERB MODEL [OPTION...]\n"
	             "Trains an exported ONNX model: compiled, with no framework behind it.\n\n");
	for (int i = 0; i < COUNT(verbs); i++) {
		const Verb *v = &verbs[i];
		fprintf(out, "  %-7s %-18s  %s\n", v->name, v->arguments, v->summary);
	}
	fprintf(out,
	        "\nMODEL is an .onnx file (external data beside it), or - for standard input.\n"
	        "Every verb takes --json, --verbose, --quiet.  amosc VERB --help tells the rest.\n"
	        "Exit status: 0 done, 1 the input is at fault, 2 usage, 3 the machine failed.\n");
}

void bad_usage(const Command *command, const char *what)
{
	fail_status(STATUS_USAGE, format(command->arena, "amosc %s", command->verb->name), "%s",
	            what);
}

static const char *one_line(Arena *arena, const char *value)
{
	char *line = copy_string(arena, value);
	for (char *c = line; *c; c++)
		*c = iscntrl((unsigned char)*c) ? ' ' : *c;
	return line;
}

// A list counts from its first value on, of others the last one counts.
const char *compiled_choices(const Command *command)
{
	Text text = {.arena = command->arena};
	say(&text, "%s", "");
	for (OptionName o = 0; o < OPTIONS; o++) {
		const unsigned compiled = READ | CHOOSE | NORMS | DROPS | LOSS | ETA | STEP;
		if (!(options[o].group & compiled))
			continue;
		const char *before = NULL;
		for (int i = 0; i < command->choices.count; i++) {
			const Choice *c = &command->choices.at[i];
			if (c->option != o)
				continue;
			const char *value = c->value ? one_line(command->arena, c->value) : "given";
			bool list = before && !strcmp(options[o].type, "list");
			before = list ? format(command->arena, "%s %s", before, value) : value;
		}
		if (before)
			say(&text, "--%s\t%s\n", long_name(command->arena, o), before);
	}
	return text.at;
}

bool chosen(const Command *command, OptionName option)
{
	for (int i = 0; i < command->choices.count; i++)
		if (command->choices.at[i].option == option)
			return true;
	return false;
}

const char *choice(const Command *command, OptionName option, const char *otherwise)
{
	for (int i = command->choices.count; i-- > 0;)
		if (command->choices.at[i].option == option)
			return command->choices.at[i].value;
	return otherwise;
}

static _Noreturn void bad_choice(const Command *command, OptionName option, const char *wanted,
                                 const char *found)
{
	bad_usage(command, format(command->arena, "--%s wants %s, found '%s'",
	                          long_name(command->arena, option), wanted, found));
}

double choice_number(const Command *command, OptionName option, double otherwise)
{
	const char *text = choice(command, option, NULL);
	if (!text)
		return otherwise;
	char *end;
	double number = strtod(text, &end);
	if (end == text || *end || !(number >= 0) || isinf(number))
		bad_choice(command, option, "a number from 0 up", text);
	return number;
}

double choice_part(const Command *command, OptionName option, double otherwise)
{
	double number = choice_number(command, option, otherwise);
	if (number >= 1)
		bad_choice(command, option, "a number below 1",
		           format(command->arena, "%g", number));
	return number;
}

int64_t choice_count(const Command *command, OptionName option, int64_t otherwise)
{
	const char *text = choice(command, option, NULL);
	if (!text)
		return otherwise;
	char *end;
	errno = 0;
	long long number = strtoll(text, &end, 10);
	if (end == text || *end || number < 0 || errno)
		bad_choice(command, option, "a whole number", text);
	return number;
}
