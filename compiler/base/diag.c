// diag.c: errors. fail() jumps to the innermost catch of its thread, or ends the process where
// there is none. Takes base.h. Gives one message a failure. Keeps, a thread: its catch frame and
// the complaints not yet settled.
#include "base.h"
#include <stdlib.h>
#include <string.h>

static _Thread_local Catch *innermost;
static _Thread_local struct {
	Arena *arena; // NULL: none
	Table *known;
	Text text; // a line each
	int count;
} complaints;
static bool quiet_warnings;

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

// "WHERE: text", malloc'd; memory that is not even there for this gives a fixed text.
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

static void forget_complaints(void)
{
	arena_free(complaints.arena);
	memset(&complaints, 0, sizeof complaints);
}

// What was complained of before the failure belongs to the same answer: everything at once.
static char *with_complaints(char *message)
{
	char *all;
	if (!complaints.count ||
	    asprintf(&all, "%s\nand before:\n%s", message, complaints.text.at) < 0)
		return message;
	free(message);
	return all;
}

static _Noreturn void fail_with(int status, char *message)
{
	Catch *c = innermost;
	forget_complaints();
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
	fail_with(STATUS_INPUT, with_complaints(message));
}

void fail_status(int status, const char *where, const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	char *message = message_of(where, fmt, args);
	va_end(args);
	fail_with(status, with_complaints(message));
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

static void start_complaints(void)
{
	complaints.arena = arena_new();
	complaints.known = table_new(complaints.arena);
	complaints.text.arena = complaints.arena;
}

void complain(const char *where, const char *fmt, ...)
{
	va_list args;
	if (!complaints.arena)
		start_complaints();
	va_start(args, fmt);
	const char *text = vformat(complaints.arena, fmt, args);
	va_end(args);
	const char *line =
	    format(complaints.arena, "  %s%s%s", where ? where : "", where ? ": " : "", text);
	uint64_t *known = table_cell_s(complaints.known, line);
	if (!*known)
		say(&complaints.text, "%s%s", complaints.count++ ? "\n" : "", line);
	*known = true;
}

void settle(const char *where)
{
	if (!complaints.count)
		return;
	char *message = NULL;
	if (asprintf(&message, "%s: %d thing%s in the way:\n%s", where, complaints.count,
	             complaints.count == 1 ? " is" : "s are", complaints.text.at) < 0)
		message = NULL;
	fail_with(STATUS_INPUT, message);
}

void warn(const char *where, const char *fmt, ...)
{
	if (quiet_warnings)
		return;
	va_list args;
	va_start(args, fmt);
	char *message = message_of(where, fmt, args);
	va_end(args);
	fputs("amosc: warning: ", stderr);
	amos_print(stderr, message, "  ");
	fputs("\n", stderr);
	free(message);
}

void warn_quiet(bool quiet)
{
	quiet_warnings = quiet;
}

void bug_at(const char *file, int line, const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	char *message = message_of("bug in amosc", fmt, args);
	va_end(args);
	fprintf(stderr, "%s (%s:%d)\n", message, file, line);
	free(message);
	abort();
}
