// settings.c: every option whose value is a number refuses all else, with an error that names it.
// amosc and compiled trainers read options by the same tables.
#include "driver.h"
#include "expect.h"
#include <stdlib.h>
#include <string.h>

enum { MOST = 24 };

static const struct Kind { // a type of settings.def
	const char *type, *right[MOST], *wrong[MOST];
} kinds[] = {
    {"count",
     {"0", "7", "+7", "9223372036854775807"},
     {"-1", "0.5", "1e3", "9223372036854775808", "18446744073709551617"}},
    {"natural", {"1", "9223372036854775807"}, {"0", "-1", "0.5", "1e3", "9223372036854775808"}},
    {"number",
     {"0", "0.0", "1", ".5", "+2.5e-3", "1e-45", "3e38", "1E3"},
     {"-1", "-0.5", "1e39", "1e999", "1e-46", "1e-999", "1e", "1,5", "1.2.3"}},
    {"part", {"0", "0.9", "1e-3"}, {"1", "1.5", "-0.5", "1e999", "1e-999", "0,5"}},
    {"positive", {"1e-45", "0.5", "3e38"}, {"0", "0.0", "-1", "1e999", "1e-999"}},
    {"fraction", {"0.9", "1e-3"}, {"0", "1", "1.5", "-0.5", "1e-999"}},
    {"growth", {"0", "1.02", "3e38"}, {"0.5", "1", "-1", "1e999"}},
    {"ratio", {"0", "1", "1.5", "3e38"}, {"0.5", "1e-3", "-1", "1e999"}},
    {"steps", {"0", "7", "7.0", "1e3"}, {"0.5", "1.5", "-1", "1e-3", "1e999"}},
    {"span", {"1", "7", "1e3"}, {"0", "0.5", "1.5", "-1", "1e999"}},
    {"bytes",
     {"1", "500M", "0.5G", "1MiB", "4194303T"},
     {"0", "-1M", "0.5", "1KB", "1Q", "M", "1MM", "1 M", "9999999T", "1e999", "1e3"}},
};
static const char *const nonsense[] = {"",         " ",   "x",   "nan",  "NaN", "inf", "-inf",
                                       "infinity", "1x",  "1 ",  " 1",   "0x1", "--1", "+",
                                       "-",        "1 2", "\t1", "1\n2", "e5",  "."};

static const struct Kind *kind_of(const char *type)
{
	for (int k = 0; k < COUNT(kinds); k++)
		if (!strcmp(kinds[k].type, type))
			return &kinds[k];
	return NULL;
}

// Returns the error of a value; NULL: it is taken.
static const char *error_of(const Session *session, OptionName option, const char *value)
{
	Catch catch;
	if (!TRY(catch)) {
		check_value(session, &(Choice){option, value});
		catch_end(&catch);
		return NULL;
	}
	const char *text = format(session->arena, "%s", catch.message);
	expect(catch.status == STATUS_USAGE, "a usage error");
	free(catch.message);
	return text;
}

static void try(const Session *session, OptionName option, const char *value, bool right)
{
	Arena *arena = session->arena;
	const char *name = long_name(arena, option), *error = error_of(session, option, value);
	const char *begin = format(arena, "--%s: expected ", name),
	           *end = format(arena, ", found '%s'", value);
	expect(right ? !error
	             : error && starts_with(error, begin) && ends_with(error, end) &&
	                   strlen(error) > strlen(begin) + strlen(end),
	       format(arena, "--%s '%s': %s", name, value, error ? error : "is taken"));
	if (option < OPT_data) // a compiled trainer does not have it
		return;
	struct amos_options trainer = amos_options();
	int status = amos_option(&trainer, name, value);
	expect(status == (right ? AMOS_DONE : AMOS_USAGE) &&
	           (right || !strcmp(amos_error(), error)),
	       format(arena, "--%s '%s' of a trainer", name, value));
}

int main(void)
{
	static const char *const others[] = {"text", "list", "flag"};
	Session session = {.arena = arena_new()};
	int numbers = 0;
	for (OptionName o = 0; o < OPTIONS; o++) {
		const char *type = options[o].type;
		const struct Kind *kind = kind_of(type);
		bool other = false;
		for (int k = 0; k < COUNT(others); k++)
			other |= !strcmp(others[k], type);
		expect(kind || other, format(session.arena, "type %s", type));
		for (int k = 0; kind && k < COUNT(nonsense); k++)
			try(&session, o, nonsense[k], false);
		for (int k = 0; kind && k < MOST && kind->right[k]; k++)
			try(&session, o, kind->right[k], true);
		for (int k = 0; kind && k < MOST && kind->wrong[k]; k++)
			try(&session, o, kind->wrong[k], false);
		numbers += kind != NULL;
	}
	expect(numbers > 30, "the options whose values are numbers");
	arena_free(session.arena);
	return expected();
}
