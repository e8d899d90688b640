// str.c: formats strings in an arena, matches patterns, grows texts.
#include "base.h"
#include <fnmatch.h>
#include <regex.h>
#include <string.h>

static void vsay(Text *text, const char *fmt, va_list args)
{
	va_list again;
	va_copy(again, args);
	int count = vsnprintf(NULL, 0, fmt, again);
	va_end(again);
	if (count < 0)
		bug("cannot format '%s'", fmt);
	size_t needed = text->count + (size_t)count + 1;
	if (needed > text->room) {
		text->room = text->room ? MAX(2 * text->room, needed + 128) : needed;
		char *fresh = take(text->arena, text->room);
		if (text->count)
			memcpy(fresh, text->at, text->count);
		text->at = fresh;
	}
	vsnprintf(text->at + text->count, (size_t)count + 1, fmt, args);
	text->count += (size_t)count;
}

void say(Text *text, const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	vsay(text, fmt, args);
	va_end(args);
}

char *vformat(Arena *arena, const char *fmt, va_list args)
{
	Text text = {.arena = arena};
	vsay(&text, fmt, args);
	return text.at;
}

char *format(Arena *arena, const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	char *text = vformat(arena, fmt, args);
	va_end(args);
	return text;
}

char *copy_string(Arena *arena, const char *s)
{
	return take_copy(arena, s, strlen(s) + 1);
}

const char *visible(Arena *arena, const char *text, bool exact)
{
	size_t count = amos_visible(NULL, 0, text, exact);
	if (count == strlen(text))
		return text;
	char *shown = take(arena, count + 1);
	amos_visible(shown, count + 1, text, exact);
	return shown;
}

bool starts_with(const char *s, const char *prefix)
{
	return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool ends_with(const char *s, const char *suffix)
{
	size_t all = strlen(s), end = strlen(suffix);
	return all >= end && strcmp(s + all - end, suffix) == 0;
}

// Compiles the expression between the slashes of `pattern`, if it has them. Fails if it is invalid.
static bool compile_regex(const char *where, const char *pattern, regex_t *regex)
{
	size_t length = strlen(pattern);
	if (length < 2 || pattern[0] != '/' || pattern[length - 1] != '/')
		return false;
	Arena *arena = arena_new();
	int error = regcomp(regex, format(arena, "%.*s", (int)(length - 2), pattern + 1),
	                    REG_EXTENDED | REG_NOSUB);
	arena_free(arena);
	if (error) {
		char text[128];
		regerror(error, regex, text, sizeof text);
		fail_status(STATUS_USAGE, where, "'%s' is not a regular expression: %s", pattern,
		            text);
	}
	return true;
}

void check_pattern(const char *where, const char *pattern)
{
	regex_t regex;
	if (compile_regex(where, pattern, &regex))
		regfree(&regex);
}

bool matches(const char *pattern, const char *s)
{
	regex_t regex;
	if (!compile_regex("pattern", pattern, &regex))
		return fnmatch(pattern, s, 0) == 0;
	bool found = regexec(&regex, s, 0, NULL, 0) == 0;
	regfree(&regex);
	return found;
}

const char *names_text(Arena *arena, const void *items, int count, size_t size, const char *last)
{
	Text names = {.arena = arena};
	const char *at = items;
	for (int i = 0; i < count; i++, at += size)
		say(&names, "%s%s",
		    i == 0          ? ""
		    : i < count - 1 ? ", "
		                    : last,
		    *(const char *const *)at);
	return count ? names.at : "";
}

// Returns the Levenshtein distance of `s` to the glob, in which a star matches any characters.
static int distance(Arena *arena, const char *glob, const char *s)
{
	size_t length = strlen(s);
	int *row = NEWS(arena, int, length + 1);
	for (size_t i = 0; i <= length; i++)
		row[i] = (int)i;
	for (; *glob; glob++) {
		bool star = *glob == '*';
		int corner = row[0];
		row[0] += !star;
		for (size_t i = 1; i <= length; i++) {
			int above = row[i], same = *glob == s[i - 1] || *glob == '?';
			row[i] = star ? MIN(above, row[i - 1])
			              : MIN(corner + !same, MIN(above, row[i - 1]) + 1);
			corner = above;
		}
	}
	return row[length];
}

const char *suggest(Arena *arena, const char *pattern, int count, const char *const *names)
{
	enum { MOST = 3 };
	Text text = {.arena = arena};
	int near = MAX((int)strlen(pattern) / 3, 1), said = 0;
	for (int apart = 0; apart <= near; apart++)
		for (int i = 0; i < count && said < MOST; i++)
			if (distance(arena, pattern, names[i]) == apart)
				say(&text, "%s%s", said++ ? ", " : "did you mean ", names[i]);
	if (said)
		return say(&text, "?"), text.at;
	for (int i = 0; i < count && i < MOST; i++)
		say(&text, "%s%s", i ? ", " : "there are ", names[i]);
	return count ? format(arena, "%s%s", text.at, count > MOST ? ", ..." : "")
	             : "there are none";
}
