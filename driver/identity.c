// identity.c: describes what a compiled program trains, in lines "NAME\tVALUE\n".
// A checkpoint holds them, and --resume compares them.
#include "driver.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Returns the model's content, the target, and the options that decide what is compiled: of a list
// all values, of others the last. Reports are identified by content too.
const char *identity_text(Session *session, const Model *model)
{
	const unsigned compiled = READ | CHOOSE | NORMS | DROPS | LOSS | ETA | STEP;
	Arena *arena = session->arena;
	Text text = {.arena = arena};
	say(&text, "model\tcontent %016llx\n", (unsigned long long)model_hash(model));
	say(&text, "target\t%s\n", target_kind(arena, target_of(session)));
	for (OptionName o = 0; o < OPTIONS; o++) {
		const char *before = NULL;
		for (int i = 0; i < session->choices.count; i++) {
			const Choice *c = &session->choices.at[i];
			if (c->option != o || !(options[o].group & compiled))
				continue;
			char *value = copy_string(arena, c->value ? c->value : "given");
			for (char *at = value; *at; at++)
				*at = iscntrl((unsigned char)*at) ? ' ' : *at;
			bool list = before && !strcmp(options[o].type, "list");
			before = list ? format(arena, "%s %s", before, value) : value;
		}
		if (before)
			say(&text, "--%s\t%s\n", long_name(arena, o), before);
	}
	for (int i = 0; i < session->choices.count; i++) {
		const Choice *c = &session->choices.at[i];
		if (c->option != OPT_eta || strchr(c->value, '=') || access(c->value, R_OK))
			continue;
		char *json =
		    json_dumps(load_report(session, c->value), JSON_COMPACT | JSON_SORT_KEYS);
		uint64_t hash = json ? hash_bytes(json, strlen(json), 0) : 0;
		free(json);
		say(&text, "content of --eta\t%016llx\n", (unsigned long long)hash);
	}
	return text.at;
}
