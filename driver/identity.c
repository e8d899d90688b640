// identity.c: what a compiled program trains: the model's content, the target, and the options
// that it was compiled by, as lines "NAME\tVALUE\n". A checkpoint holds them, and --resume
// compares.
#include "driver.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t hash_report(Session *session, const char *path)
{
	char *text = json_dumps(load_report(session, path), JSON_COMPACT | JSON_SORT_KEYS);
	uint64_t hash = text ? hash_bytes(text, strlen(text), 0) : 0;
	free(text);
	return hash;
}

const char *identity_text(Session *session, const Model *model)
{
	Text text = {.arena = session->arena};
	say(&text, "model\tcontent %016llx\n", (unsigned long long)model_hash(model));
	say(&text, "target\t%s\n", target_kind(session->arena, target_of(session)));
	say(&text, "%s", compiled_choices(session));
	for (int i = 0; i < session->choices.count; i++) {
		const Choice *c = &session->choices.at[i];
		if (c->option == OPT_eta && !strchr(c->value, '=') && !access(c->value, R_OK))
			say(&text, "content of --eta\t%016llx\n",
			    (unsigned long long)hash_report(session, c->value));
	}
	return text.at;
}
