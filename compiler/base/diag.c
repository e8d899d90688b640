// diag.c: errors. fail() jumps to the innermost catch of its thread, or ends the process where
// there is none. Takes base.h. Gives one message a failure. Keeps, a thread: its catch frame and
// the complaints not yet settled.
#include "base.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local Catch *innermost;
static _Thread_local char *complained; // malloc'd, a line each
static _Thread_local int ncomplained;
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
	free(complained);
	complained = NULL;
	ncomplained = 0;
}

// What was complained of before the failure belongs to the same answer: everything at once.
static char *with_complaints(char *message)
{
	char *all;
	if (!ncomplained || asprintf(&all, "%s\nand before:\n%s", message, complained) < 0)
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

void fail_write(const char *path)
{
	int cause = errno;
	bool named = cause == ENOENT || cause == EACCES || cause == ENOTDIR || cause == EISDIR ||
	             cause == EEXIST || cause == ENAMETOOLONG || cause == ELOOP || cause == EPERM;
	fail_status(named ? STATUS_INPUT : STATUS_MACHINE, path, "cannot be written: %s",
	            strerror(cause));
}

void complain(const char *where, const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	char *line = message_of(where, fmt, args), *all = NULL;
	va_end(args);
	bool known = complained && strstr(complained, line);
	if (known || asprintf(&all, "%s%s  %s", complained ? complained : "",
	                      complained ? "\n" : "", line) < 0) {
		free(line);
		return;
	}
	free(line);
	free(complained);
	complained = all;
	ncomplained++;
}

void settle(const char *where)
{
	if (!ncomplained)
		return;
	char *message = NULL;
	if (asprintf(&message, "%s: %d thing%s in the way:\n%s", where, ncomplained,
	             ncomplained == 1 ? " is" : "s are", complained) < 0)
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
	fprintf(stderr, "amosc: warning: %s\n", message);
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
