// session.c: returns the options of a session, with their values checked.
#include "driver.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

const struct amos_option_row options[OPTIONS] = {
#define OPTION(name, letter, group, type, argument, help)                                          \
	{#name, letter, group, #type, argument, help},
#include "settings.def"
#undef OPTION
};

void tell(const Session *session, const char *fmt, ...)
{
	if (!session->listen)
		return;
	va_list args;
	va_start(args, fmt);
	const char *text = vformat(session->arena, fmt, args);
	va_end(args);
	if (!(*table_cell_s(session->told, text))++)
		session->listen(session->listener, text);
}

Arena *work_arena(Session *session)
{
	if (!session->work)
		session->work = arena_within(session->arena);
	return session->work;
}

void free_work(Session *session)
{
	arena_free(session->work);
	session->work = NULL;
}

char *long_name(Arena *arena, OptionName option)
{
	char *name = copy_string(arena, options[option].name);
	for (char *c = name; *c; c++)
		if (*c == '_')
			*c = '-';
	return name;
}

int option_named(const char *name)
{
	Arena *arena = arena_new();
	OptionName o = 0;
	while (o < OPTIONS && strcmp(options[o].name, name) && strcmp(long_name(arena, o), name))
		o++;
	arena_free(arena);
	return o < OPTIONS ? (int)o : -1;
}

void bad_usage(const Session *session, const char *what)
{
	fail_status(STATUS_USAGE, session->name, "%s", what);
}

bool chosen(const Session *session, OptionName option)
{
	for (int i = 0; i < session->choices.count; i++)
		if (session->choices.at[i].option == option)
			return true;
	return false;
}

const char *choice(const Session *session, OptionName option, const char *otherwise)
{
	for (int i = session->choices.count; i-- > 0;)
		if (session->choices.at[i].option == option)
			return session->choices.at[i].value;
	return otherwise;
}

double choice_number(const Session *session, OptionName option, double otherwise)
{
	const char *text = choice(session, option, NULL), *name = long_name(session->arena, option);
	if (text && amos_set_number(name, text, &otherwise))
		bad_usage(session, amos_error());
	return otherwise;
}

double choice_part(const Session *session, OptionName option, double otherwise)
{
	double number = choice_number(session, option, otherwise);
	if (number >= 1)
		bad_usage(session,
		          format(session->arena, "--%s: expected a number below 1, found '%g'",
		                 long_name(session->arena, option), number));
	return number;
}

int64_t choice_count(const Session *session, OptionName option, int64_t otherwise)
{
	const char *text = choice(session, option, NULL), *name = long_name(session->arena, option);
	if (text && amos_set_count(name, text, &otherwise))
		bad_usage(session, amos_error());
	return otherwise;
}

int64_t choice_bytes(const Session *session, OptionName option, int64_t otherwise)
{
	static const char units[] = "KMGT";
	const char *text = choice(session, option, NULL);
	if (!text)
		return otherwise;
	char *end;
	double bytes = strtod(text, &end);
	const char *unit = *end ? strchr(units, *end) : NULL;
	if (unit) {
		bytes = ldexp(bytes, 10 * (int)(unit - units + 1));
		end += strcmp(end + 1, "iB") ? 1 : 3;
	}
	if (end == text || *end || !(bytes >= 1 && bytes < 0x1p62))
		bad_usage(session, format(session->arena,
		                          "--%s: expected a size such as 500M or 2G, found '%s'",
		                          long_name(session->arena, option), text));
	return (int64_t)bytes;
}

// A verb does not take options that it never uses; unused.def lists those that depend on others.
static const struct {
	const char *verb;
	OptionName option, needs, beside;
} unused[] = {
#define UNUSED(verb, option, needs, beside) {#verb, OPT_##option, OPT_##needs, OPT_##beside},
#include "unused.def"
#undef UNUSED
};

void check_unused(const Session *session, const char *verb, unsigned takes)
{
	Arena *arena = session->arena;
	for (int i = 0; i < COUNT(unused); i++) {
		OptionName needs = unused[i].needs, beside = unused[i].beside;
		if (strcmp(unused[i].verb, verb) || !chosen(session, unused[i].option))
			continue;
		const char *option = long_name(arena, unused[i].option);
		if (needs < OPTIONS && (options[needs].group & takes) && !chosen(session, needs))
			bad_usage(session, format(arena, "--%s does nothing without --%s", option,
			                          long_name(arena, needs)));
		if (beside < OPTIONS && chosen(session, beside))
			bad_usage(session, format(arena, "--%s does nothing with --%s", option,
			                          long_name(arena, beside)));
	}
}
