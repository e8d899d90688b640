// amosc.c: the command: finds the verb, reads the command line, and turns what fails into one
// message and a status. Takes all verbs. Keeps: ends with 0, 1, 2 or 3 (README.md), never by a
// signal.
#include "tool.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void call_verb(Command *command)
{
#define VERB(word, ...)                                                                            \
	if (!strcmp(command->verb->name, #word))                                                   \
		verb_##word(command);
#include "verbs.def"
#undef VERB
}

static int run_verb(const Verb *verb, int argc, char **argv)
{
	Command command = {.arena = arena_new()};
	Catch catch;
	int status = STATUS_DONE;
	if (TRY(catch)) {
		status = catch.status;
		fflush(stdout);
		fprintf(stderr, "amosc: %s\n", catch.message);
		free(catch.message);
	} else {
		parse_command(&command, verb, argc, argv);
		warn_quiet(chosen(&command, OPT_quiet));
		call_verb(&command);
		catch_end(&catch);
	}
	while (command.opened.count) {
		Closer *last = &command.opened.at[--command.opened.count];
		last->close(last->what);
	}
	arena_free(command.arena);
	return status;
}

int main(int argc, char **argv)
{
	amos_signals();
	if (argc < 2) {
		print_help(stderr);
		return STATUS_USAGE;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		print_help(stdout);
		return STATUS_DONE;
	}
	if (!strcmp(argv[1], "--version")) {
		puts("amosc " AMOSC_VERSION);
		return STATUS_DONE;
	}
	const Verb *verb = verb_named(argv[1]);
	if (!verb) {
		fprintf(stderr, "amosc: no verb '%s'; amosc --help lists them\n", argv[1]);
		return STATUS_USAGE;
	}
	int status = run_verb(verb, argc - 1, argv + 1);
	// A reader that has seen enough, as head has, is no failure.
	if ((fflush(stdout) || ferror(stdout)) && status == STATUS_DONE && errno != EPIPE) {
		fprintf(stderr, "amosc: standard output: %s\n", strerror(errno));
		status = STATUS_MACHINE;
	}
	return status;
}
