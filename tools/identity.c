// identity.c: what a compiled program trains: the model's content, the target, and the options
// that it was compiled by, as lines "NAME\tVALUE\n". A checkpoint holds them, and --resume
// compares.
#include "tool.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t hash_report(Command *command, const char *path)
{
	char *text = json_dumps(load_report(command, path), JSON_COMPACT | JSON_SORT_KEYS);
	uint64_t hash = text ? hash_bytes(text, strlen(text), 0) : 0;
	free(text);
	return hash;
}

const char *identity_text(Command *command, const Model *model)
{
	Text text = {.arena = command->arena};
	say(&text, "model\tcontent %016llx\n", (unsigned long long)model_hash(model));
	const Target *target =
	    target_named(command->arena, choice(command, OPT_target, "cpu"), NULL);
	say(&text, "target\t%s\n", target_kind(command->arena, target));
	say(&text, "%s", compiled_choices(command));
	for (int i = 0; i < command->choices.count; i++) {
		const Choice *c = &command->choices.at[i];
		if (c->option == OPT_eta && !strchr(c->value, '=') && !access(c->value, R_OK))
			say(&text, "content of --eta\t%016llx\n",
			    (unsigned long long)hash_report(command, c->value));
	}
	return text.at;
}
