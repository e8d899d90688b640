// identity.c: describes what a compiled program trains, in lines "NAME\tVALUE\n".
// A checkpoint holds them, and --resume compares them.
#include "driver.h"
#include <ctype.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool is_narrow(const Session *session)
{
	const char *said = choice(session, OPT_precision, "f32");
	return !strcmp(said, "bf16") || !strcmp(said, "f16") || !strcmp(said, "tf32");
}

// Returns the options that decide what is compiled: all values of a list, else the last value.
static const char *options_text(const Session *session)
{
	const unsigned compiled = READ | CHOOSE | NORMS | DROPS | LOSS | ETA | STEP |
	                          (is_narrow(session) ? PRECISION | SCALE : 0);
	Arena *arena = session->arena;
	Text text = {.arena = arena};
	for (OptionName o = 0; o < OPTIONS; o++) {
		const char *before = NULL;
		for (int i = 0; i < session->choices.count; i++) {
			const Choice *c = &session->choices.at[i];
			if (c->option != o || !(options[o].group & compiled || o == OPT_batches))
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
	return text.at ? text.at : "";
}

static uint64_t report_hash(const json_t *report)
{
	char *json = json_dumps(report, JSON_COMPACT | JSON_SORT_KEYS);
	uint64_t hash = json ? hash_bytes(json, strlen(json), 0) : 0;
	free(json);
	return hash;
}

// Reports are identified by content too.
static const char *reports_text(Session *session)
{
	Text text = {.arena = session->arena};
	for (int i = 0; i < session->choices.count; i++) {
		const Choice *c = &session->choices.at[i];
		if (c->option != OPT_eta || strchr(c->value, '=') || access(c->value, R_OK))
			continue;
		say(&text, "content of --eta\t%016llx\n",
		    (unsigned long long)report_hash(load_report(session, c->value)));
	}
	return text.at ? text.at : "";
}

static const char *joined(Session *session, const char *model, const char *reports)
{
	return format(session->arena, "%starget\t%s\n%s%s", model,
	              target_kind(session->arena, target_of(session), is_narrow(session)),
	              options_text(session), reports);
}

const char *identity_on(Session *session, const char *identity, const Target *target)
{
	const char *line = strstr(identity, "\ntarget\t") + 1;
	return format(session->arena, "%.*starget\t%s%s", (int)(line - identity), identity,
	              target_kind(session->arena, target, is_narrow(session)),
	              line + strcspn(line, "\n"));
}

static const char *identity_by(Session *session, uint64_t hash)
{
	return joined(session,
	              format(session->arena, "model\tcontent %016llx\n", (unsigned long long)hash),
	              reports_text(session));
}

// ---- the hash of a model ------------------------------------------------------------------

struct Hashing {
	const Model *model;
	uint64_t hash;
	pthread_t thread;
	bool runs; // the thread, until it is waited for
	int home;  // the processor of its creator
};

static void *hash_thread(void *context)
{
	Hashing *h = context;
	amos_spread(h->home, 1);
	h->hash = model_hash(h->model);
	return NULL;
}

static void end_hashing(void *hashing)
{
	Hashing *h = hashing;
	if (h->runs)
		pthread_join(h->thread, NULL);
	h->runs = false;
}

Hashing *hash_begin(Session *session, const Model *model)
{
	Hashing *h = NEW(session->arena, Hashing);
	*h = (Hashing){.model = model, .home = amos_processor()};
	at_end(session->arena, end_hashing, h);      // before the file is closed
	at_end(work_arena(session), end_hashing, h); // before the model is freed
	h->runs = !pthread_create(&h->thread, NULL, hash_thread, h);
	if (!h->runs)
		h->hash = model_hash(model);
	return h;
}

const char *identity_of(Session *session, Hashing *h)
{
	end_hashing(h);
	return identity_by(session, h->hash);
}

const char *identity_of_report(Session *session, const json_t *report)
{
	return identity_by(session, report_hash(report));
}

// Returns the lines of `text` that begin with `name`.
static const char *lines_of(Arena *arena, const char *text, const char *name)
{
	Text found = {.arena = arena};
	while (*text) {
		int length = (int)strcspn(text, "\n");
		if (starts_with(text, name))
			say(&found, "%.*s\n", length, text);
		text += length + (text[length] == '\n');
	}
	return found.at ? found.at : "";
}

const char *identity_renewed(Session *session, const char *before, bool inferred)
{
	Arena *arena = session->arena;
	return joined(session, lines_of(arena, before, "model\t"),
	              inferred ? lines_of(arena, before, "content of --eta\t")
	                       : reports_text(session));
}
