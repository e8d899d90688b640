// unused.c: options that would do nothing are refused: whoever typed them meant something. What a
// verb never goes by is not among its options (verbs.def); here is what depends on the others.
#include "tool.h"
#include <string.h>

static const struct {
	const char *verb;
	OptionName option, needs, beside; // does nothing without `needs`, nor beside `beside`;
	                                  // OPTIONS: no such option
} rows[] = {
    {"run", OPT_prompt, OPT_generate, OPTIONS},     {"run", OPT_temperature, OPT_generate, OPTIONS},
    {"run", OPT_data, OPTIONS, OPT_generate},       {"run", OPT_mask, OPTIONS, OPT_generate},
    {"run", OPT_mask_token, OPTIONS, OPT_generate}, {"run", OPT_out, OPTIONS, OPT_generate},
    {"grad", OPT_loss, OPTIONS, OPT_cotangent},     {"build", OPT_split, OPT_data, OPTIONS},
    {"build", OPT_mask, OPT_data, OPTIONS},         {"build", OPT_mask_token, OPT_data, OPTIONS},
    {"eta", OPT_split, OPT_data, OPTIONS},          {"eta", OPT_seed, OPT_check, OPTIONS},
    {"eta", OPT_threads, OPT_check, OPTIONS},       {"eta", OPT_format, OPTIONS, OPT_json},
    {"eta", OPT_format, OPTIONS, OPT_for},          {"eta", OPT_format, OPTIONS, OPT_check},
    {"eta", OPT_format, OPTIONS, OPT_diff},         {"eta", OPT_for, OPTIONS, OPT_json},
    {"eta", OPT_for, OPTIONS, OPT_check},           {"eta", OPT_for, OPTIONS, OPT_diff},
    {"eta", OPT_check, OPTIONS, OPT_diff},
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
