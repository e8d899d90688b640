// options.c: parses option values into the fields of options.def.
// Invariant: an option means the same in amosc and in a compiled trainer.
#include "rt.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct amos_options amos_options(void)
{
	static const struct {
		const char *text;
		struct amos_list list;
		int64_t count;
		double number;
		int flag;
	} absent = {.count = AMOS_ABSENT, .number = AMOS_ABSENT};
	struct amos_options options = {0};
#define OPTION(name, letter, group, type, argument, help) options.name = absent.type;
#include "options.def"
#undef OPTION
	return options;
}

static int set_text(const char *name, const char *value, const char **to)
{
	(void)name;
	*to = value;
	return AMOS_DONE;
}

static int set_list(const char *name, const char *value, struct amos_list *to)
{
	if (to->count == AMOS_LIST)
		return amos_fail(AMOS_USAGE, "--%s: given more than %d times", name, AMOS_LIST);
	to->at[to->count++] = value;
	return AMOS_DONE;
}

static int set_count(const char *name, const char *value, int64_t *to)
{
	char *end;
	errno = 0;
	long long number = strtoll(value, &end, 10);
	if (end == value || *end || errno || number < 0)
		return amos_fail(AMOS_USAGE, "--%s: expected an integer >= 0, found '%s'", name,
		                 value);
	*to = number;
	return AMOS_DONE;
}

static int set_number(const char *name, const char *value, double *to)
{
	char *end;
	double number = strtod(value, &end);
	if (end == value || *end || !isfinite(number) || number < 0)
		return amos_fail(AMOS_USAGE, "--%s: expected a number >= 0, found '%s'", name,
		                 value);
	*to = number;
	return AMOS_DONE;
}

static int set_flag(const char *name, const char *value, int *to)
{
	(void)name, (void)value;
	*to = 1;
	return AMOS_DONE;
}

// True if `given` is the field's name, with - for _.
static bool same_name(const char *field, const char *given)
{
	for (; *field && *given; field++, given++)
		if (*field != *given && !(*field == '_' && *given == '-'))
			return false;
	return !*field && !*given;
}

int amos_keeps_last(const struct amos_options *options, bool *last)
{
	const char *keep = options->keep ? options->keep : "best";
	*last = !strcmp(keep, "last");
	return *last || !strcmp(keep, "best")
	           ? AMOS_DONE
	           : amos_fail(AMOS_USAGE, "--keep: expected best or last, found '%s'", keep);
}

int amos_option(struct amos_options *options, const char *name, const char *value)
{
#define OPTION(field, letter, group, type, argument, help)                                         \
	if (same_name(#field, name))                                                               \
		return set_##type(name, value, &options->field);
#include "options.def"
#undef OPTION
	return amos_fail(AMOS_USAGE, "--%s: no such option", name);
}
