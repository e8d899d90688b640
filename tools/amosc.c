// amosc.c: the command: finds the verb, runs it, and turns an error into one message and a status.
// Invariant: the exit status is 0, 1, 2 or 3 (README.md); no input ends the command by a signal.
#include "tool.h"
#include <stdlib.h>
#include <string.h>

static void print_note(void *session, const char *text)
{
	if (!chosen(session, OPT_quiet))
		amos_print_text(stderr, text, strlen(text), true);
}

// Returns the message with each help line after the last of the errors that have it.
static const char *help_last(Arena *arena, const char *message)
{
	VEC(const char *) lines = {0};
	Table *last = table_new(arena); // line -> index of its last occurrence
	Text shown = {.arena = arena};
	for (char *rest = copy_string(arena, message), *line; (line = strsep(&rest, "\n"));) {
		*table_cell_s(last, line) = (uint64_t)lines.count;
		PUSH(arena, lines, line);
	}
	for (int i = 0; i < lines.count; i++)
		if (!starts_with(lines.at[i], "    help: ") ||
		    *table_cell_s(last, lines.at[i]) == (uint64_t)i)
			say(&shown, "%s%s", i ? "\n" : "", lines.at[i]);
	return shown.at;
}

// `argv` from the program's name on.
static int run_verb(const Verb *verb, int argc, char **argv)
{
	Session session = {.arena = arena_new(), .argc = argc, .argv = argv, .listen = print_note};
	Catch catch;
	int status = STATUS_DONE;
	session.listener = &session;
	session.told = table_new(session.arena);
	if (TRY(catch)) {
		const char *message = catch.message;
		if (strchr(message, '\n'))
			message = help_last(session.arena, message);
		status = catch.status == STATUS_LIMIT ? STATUS_INPUT : catch.status;
		fflush(stdout);
		fputs(starts_with(message, "amosc ") ? "" : "amosc: ", stderr);
		amos_print(stderr, message, "  ");
		fputs("\n", stderr);
		free(catch.message);
		amos_file_drop_all();
		if (status == STATUS_BUG)
			abort();
	} else {
		parse_command(&session, verb, argc - 1, argv + 1);
		limit_cost(&session);
		check_unused(&session, verb->name, verb->takes);
#define VERB(word, ...)                                                                            \
	if (!strcmp(verb->name, #word))                                                            \
		verb_##word(&session);
#include "verbs.def"
#undef VERB
		catch_end(&catch);
	}
	arena_free(session.arena);
	return status;
}

static bool is_word(const char *said, const char *word, const char *other)
{
	return !strcmp(said, word) || !strcmp(said, other);
}

static int run_command(int argc, char **argv)
{
	if (argc < 2) {
		print_help(stderr);
		return STATUS_USAGE;
	}
	if (argc > 2 && !strcmp(argv[1], "help") && verb_named(argv[2])) {
		char *help[] = {argv[0], argv[2], "--help", NULL};
		return run_verb(verb_named(argv[2]), 3, help);
	}
	if (is_word(argv[1], "--help", "-h") || is_word(argv[1], "-?", "help")) {
		print_help(stdout);
		return STATUS_DONE;
	}
	if (is_word(argv[1], "--version", "-V")) {
		puts("amosc " AMOS_VERSION);
		return STATUS_DONE;
	}
	const Verb *verb = verb_named(argv[1]);
	if (!verb) {
		fprintf(stderr, "amosc: %s '%s'\n  help: amosc --help lists the verbs\n",
		        *argv[1] == '-' ? "expected a verb before option" : "no verb", argv[1]);
		return STATUS_USAGE;
	}
	return run_verb(verb, argc, argv);
}

int amosc_command(int argc, char **argv)
{
	amos_standard();
	amos_signals();
	return amos_end_output(run_command(argc, argv));
}
