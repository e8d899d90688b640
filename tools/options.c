// options.c: the command line: verbs.def read as a parser (argp) and as help.
// Input: verbs.def and settings.def. Output: a Session.
#include "tool.h"
#include <argp.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_KEY = 0x100 }; // argp's keys of options without a letter

static const Verb verbs[] = {
#define VERB(name, arguments, least, most, purpose, takes, summary, about, example)                \
	{#name, arguments, least, most, purpose, COMMON | (takes), summary},
#include "verbs.def"
#undef VERB
};

const Verb *verb_named(const char *name)
{
	for (int i = 0; i < COUNT(verbs); i++)
		if (!strcmp(verbs[i].name, name))
			return &verbs[i];
	return NULL;
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

typedef struct Parse {
	Session *session;
	const Verb *verb;
	int arguments; // so far
} Parse;

static void take_argument(Parse *parse, char *value, struct argp_state *state)
{
	if (parse->arguments >= parse->verb->most)
		argp_error(state, "one argument too many: %s", value);
	*(parse->arguments++ ? &parse->session->other : &parse->session->path) = value;
}

static error_t take_option(int key, char *value, struct argp_state *state)
{
	Parse *parse = state->input;
	Session *session = parse->session;
	if (key == ARGP_KEY_ARG) {
		take_argument(parse, value, state);
		return 0;
	}
	if (key == ARGP_KEY_END && parse->arguments < parse->verb->least)
		argp_error(state, "wants an argument: %s", parse->verb->arguments);
	for (OptionName i = 0; i < OPTIONS; i++) {
		if (key != key_of(i))
			continue;
		PUSH(session->arena, session->choices, ((Choice){i, value}));
		return 0;
	}
	return key == ARGP_KEY_END ? 0 : ARGP_ERR_UNKNOWN;
}

void parse_command(Session *session, const Verb *verb, int argc, char **argv)
{
	Arena *arena = session->arena;
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
	    format(arena, "%s\vSee man amosc-%s.", verb->summary, verb->name),
	    NULL,
	    NULL,
	    NULL};
	session->name = words[0];
	session->purpose = verb->purpose;
	argp_err_exit_status = STATUS_USAGE;
	setenv("ARGP_HELP_FMT", "no-dup-args-note", 0); // two lines that say nothing here
	argp_parse(&argp, argc, words, 0, NULL, &(Parse){session, verb, 0});
}

void print_help(FILE *out)
{
	fprintf(out, "Usage: amosc VERB MODEL [OPTION...]\n"
	             "Compiles an exported ONNX model into a program that trains it.\n\n");
	for (int i = 0; i < COUNT(verbs); i++) {
		const Verb *v = &verbs[i];
		fprintf(out, "  %-7s %-18s  %s\n", v->name, v->arguments, v->summary);
	}
	fprintf(out,
	        "\nMODEL is an .onnx file, with external data next to it, or - for standard input.\n"
	        "Every verb takes --json, --verbose and --quiet; amosc VERB --help lists all options.\n"
	        "Exit status: 0 success, 1 invalid input, 2 usage error, 3 system error.\n");
}
