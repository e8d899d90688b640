// session.c: returns the options of a session, with their values checked.
#include "driver.h"
#include <float.h>
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
	if ((*table_cell_s(session->told, text))++)
		return;
	amos_locale_host();
	session->listen(session->listener, text);
	amos_locale_own();
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

// Reads a size in bytes: 1048576, 1024K, 1M, 1MiB or 0.5G.
static int set_bytes(const char *name, const char *value, int64_t *to)
{
	static const char units[] = "KMGT";
	char *end;
	double bytes = strtod(value, &end);
	bool plain = *value && end == value + strspn(value, "+.0123456789");
	const char *unit = *end ? strchr(units, *end) : NULL;
	if (unit) {
		bytes = ldexp(bytes, 10 * (int)(unit - units + 1));
		end += strcmp(end + 1, "iB") ? 1 : 3;
	}
	if (!plain || *end || !(bytes >= 1 && bytes < 0x1p62))
		return amos_fail(AMOS_USAGE, "--%s: expected a size such as 500M or 2G, found '%s'",
		                 name, value);
	*to = (int64_t)bytes;
	return AMOS_DONE;
}

// Types of numbers from 0 on, and what else each must be.
static const struct {
	const char *type, *expected;
	double above, below; // exclusive
	bool zero;           // 0 is one, too
	bool whole;          // fractions are not
} number_types[] = {
    {"number", "", -1, HUGE_VAL, true, false},
    {"part", "a number below 1", -1, 1, true, false},
    {"positive", "a number > 0", 0, HUGE_VAL, false, false},
    {"fraction", "a number between 0 and 1", 0, 1, false, false},
    {"growth", "0 or a number > 1", 1, HUGE_VAL, true, false},
    {"ratio", "0 or a number >= 1", 1 - DBL_EPSILON, HUGE_VAL, true, false},
    {"steps", "an integer >= 0", -1, HUGE_VAL, true, true},
    {"span", "an integer >= 1", 0, HUGE_VAL, false, true},
};

static int set_number(const char *name, const char *type, const char *value, double *to)
{
	for (int i = 0; i < COUNT(number_types); i++) {
		if (strcmp(number_types[i].type, type) != 0)
			continue;
		int status = amos_set_number(name, value, to);
		bool fits = *to > number_types[i].above && *to < number_types[i].below &&
		            !(number_types[i].whole && *to != floor(*to));
		return status || fits || (!*to && number_types[i].zero)
		           ? status
		           : amos_fail(AMOS_USAGE, "--%s: expected %s, found '%s'", name,
		                       number_types[i].expected, value);
	}
	return AMOS_DONE;
}

// Reads a value of an option's type: an integer to *n, another number to *x.
static void read_value(const Session *session, OptionName option, const char *value, int64_t *n,
                       double *x)
{
	const char *type = options[option].type, *name = long_name(session->arena, option);
	int status = !strcmp(type, "count")     ? amos_set_count(name, value, n)
	             : !strcmp(type, "natural") ? amos_set_natural(name, value, n)
	             : !strcmp(type, "bytes")   ? set_bytes(name, value, n)
	                                        : set_number(name, type, value, x);
	if (status)
		bad_usage(session, amos_error());
}

// Checks the pattern in a value, if the last form of the option's argument is PAT, or PAT=VALUE,
// where the last '=' ends it.
static void check_pattern_of(const Session *session, OptionName option, const char *value)
{
	Arena *arena = session->arena;
	const char *form = options[option].argument, *last = strrchr(form, '|'),
	           *equal = strrchr(value, '=');
	form = last ? last + 1 : form;
	bool assigned = starts_with(form, "PAT=") && equal;
	if (assigned || !strcmp(form, "PAT"))
		check_pattern(format(arena, "--%s", long_name(arena, option)),
		              assigned ? format(arena, "%.*s", (int)(equal - value), value)
		                       : value);
}

void check_value(const Session *session, const Choice *choice)
{
	int64_t n;
	double x;
	if (!choice->value)
		return;
	read_value(session, choice->option, choice->value, &n, &x);
	check_pattern_of(session, choice->option, choice->value);
}

double choice_number(const Session *session, OptionName option, double otherwise)
{
	const char *value = choice(session, option, NULL);
	int64_t n;
	if (value)
		read_value(session, option, value, &n, &otherwise);
	return otherwise;
}

int64_t choice_count(const Session *session, OptionName option, int64_t otherwise)
{
	const char *value = choice(session, option, NULL);
	double x;
	if (value)
		read_value(session, option, value, &otherwise, &x);
	return otherwise;
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
