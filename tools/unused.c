// unused.c: options that would do nothing are refused: whoever typed them meant something. What a
// verb never goes by is not among its options (verbs.def); unused.def has what depends on others.
#include "tool.h"
#include <string.h>

static const struct {
	const char *verb;
	OptionName option, needs, beside;
} rows[] = {
#define UNUSED(verb, option, needs, beside) {#verb, OPT_##option, OPT_##needs, OPT_##beside},
#include "unused.def"
#undef UNUSED
};

void check_unused(const Session *session, const Verb *verb)
{
	Arena *arena = session->arena;
	for (int i = 0; i < COUNT(rows); i++) {
		OptionName needs = rows[i].needs, beside = rows[i].beside;
		if (strcmp(rows[i].verb, verb->name) || !chosen(session, rows[i].option))
			continue;
		const char *option = long_name(arena, rows[i].option);
		if (needs < OPTIONS && !chosen(session, needs))
			bad_usage(session, format(arena, "--%s does nothing without --%s", option,
			                          long_name(arena, needs)));
		if (beside < OPTIONS && chosen(session, beside))
			bad_usage(session, format(arena, "--%s does nothing beside --%s", option,
			                          long_name(arena, beside)));
	}
}
