// diag.c: reports errors; fail() jumps to the innermost catch of its thread, or exits if none.
// State per thread: the innermost catch frame and the pending errors.
#include "base.h"
#include <stdlib.h>
#include <string.h>

static _Thread_local Catch *innermost;
static _Thread_local struct {
	Arena *arena; // NULL: no errors
	Table *known;
	Text text; // one line per error
	int count;
} errors;

void catch_push(Catch *c)
{
	c->outer = innermost;
	c->status = STATUS_DONE;
	c->message = NULL;
	innermost = c;
}

void catch_end(Catch *c)
{
	if (innermost != c)
		bug("catch frames end in another order than they began");
	innermost = c->outer;
}

// Returns "WHERE: text", to be freed by the caller; a fixed text if out of memory.
static char *message_of(const char *where, const char *fmt, va_list args)
{
	char *text = NULL, *all = NULL;
	if (vasprintf(&text, fmt, args) < 0)
		return strdup("out of memory");
	int count =
	    where && *where ? asprintf(&all, "%s: %s", where, text) : asprintf(&all, "%s", text);
	free(text);
	return count < 0 ? strdup("out of memory") : all;
}

static void forget_errors(void)
{
	arena_free(errors.arena);
	memset(&errors, 0, sizeof errors);
}

// Adds the pending errors to a failure, so that all are reported at once.
static char *with_errors(char *message)
{
	char *all;
	if (!errors.count || asprintf(&all, "%s\nearlier errors:\n%s", message, errors.text.at) < 0)
		return message;
	free(message);
	return all;
}

static _Noreturn void fail_with(int status, char *message)
{
	Catch *c = innermost;
	forget_errors();
	if (!c) {
		fprintf(stderr, "amosc: %s\n", message ? message : "out of memory");
		free(message);
		exit(status);
	}
	innermost = c->outer;
	c->status = status;
	c->message = message;
	longjmp(c->jump, 1);
}

void fail(const char *where, const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	char *message = message_of(where, fmt, args);
	va_end(args);
	fail_with(STATUS_INPUT, with_errors(message));
}

void fail_status(int status, const char *where, const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	char *message = message_of(where, fmt, args);
	va_end(args);
	fail_with(status, with_errors(message));
}

void fail_again(Catch *c)
{
	fail_with(c->status, c->message);
}

void need_done(int status)
{
	if (status != AMOS_DONE)
		fail_status(status, NULL, "%s", amos_error());
}

static void start_errors(void)
{
	errors.arena = arena_new();
	errors.known = table_new(errors.arena);
	errors.text.arena = errors.arena;
}

void add_error(const char *where, const char *fmt, ...)
{
	va_list args;
	if (!errors.arena)
		start_errors();
	va_start(args, fmt);
	const char *text = vformat(errors.arena, fmt, args);
	va_end(args);
	const char *help = strstr(text, HELP);
	int count = help ? (int)(help - text) : (int)strlen(text);
	const char *line =
	    format(errors.arena, "  %s%s%.*s%s%s", where ? where : "", where ? ": " : "", count,
	           text, help ? "\n    " : "", help ? help + 1 : "");
	uint64_t *known = table_cell_s(errors.known, line);
	if (!*known)
		say(&errors.text, "%s%s", errors.count++ ? "\n" : "", line);
	*known = true;
}

void fail_if_errors(const char *where)
{
	if (!errors.count)
		return;
	char *message = NULL;
	if (asprintf(&message, "%s: %d error%s\n%s", where, errors.count,
	             errors.count == 1 ? "" : "s", errors.text.at) < 0)
		message = NULL;
	fail_with(STATUS_INPUT, message);
}

void bug_at(const char *file, int line, const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	char *text = message_of("bug in amosc", fmt, args), *message = NULL;
	va_end(args);
	if (innermost && asprintf(&message, "%s (%s:%d)", text, file, line) >= 0)
		fail_with(STATUS_BUG, message);
	fprintf(stderr, "%s (%s:%d)\n", text, file, line);
	abort();
}
