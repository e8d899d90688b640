// diag.c: reports errors; fail() jumps to the innermost catch of its thread, or exits if none.
// State per thread: the innermost catch frame.
#include "base.h"
#include <stdlib.h>
#include <string.h>

static _Thread_local Catch *innermost;

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

static size_t where_length(const char *where)
{
	return where && *where ? strlen(where) + strlen(": ") : 0;
}

// Returns "WHERE: text", to be freed by the caller; a fixed text if out of memory.
static char *message_of(const char *where, const char *fmt, va_list args)
{
	char *text = NULL, *all = NULL;
	if (vasprintf(&text, fmt, args) < 0)
		return strdup("out of memory");
	int count = where_length(where) ? asprintf(&all, "%s: %s", where, text)
	                                : asprintf(&all, "%s", text);
	free(text);
	return count < 0 ? strdup("out of memory") : all;
}

// `where`: the length of "WHERE: " in the message.
static _Noreturn void fail_with(int status, char *message, size_t where)
{
	Catch *c = innermost;
	if (!c) {
		fprintf(stderr, "amosc: %s\n", message ? message : "out of memory");
		free(message);
		exit(status);
	}
	innermost = c->outer;
	c->status = status;
	c->message = message;
	c->where = where;
	longjmp(c->jump, 1);
}

void fail_status(int status, const char *where, const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	char *message = message_of(where, fmt, args);
	va_end(args);
	fail_with(status, message, where_length(where));
}

void fail_again(Catch *c)
{
	fail_with(c->status, c->message, c->where);
}

void need_done(int status)
{
	if (status != AMOS_DONE)
		fail_status(status, NULL, "%s", amos_error());
}

void bug_at(const char *file, int line, const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	char *text = message_of("bug in amosc", fmt, args), *message = NULL;
	va_end(args);
	if (innermost && asprintf(&message, "%s (%s:%d)", text, file, line) >= 0) {
		free(text);
		fail_with(STATUS_BUG, message, 0);
	}
	fprintf(stderr, "%s (%s:%d)\n", text, file, line);
	abort();
}
