// eta_models.c: compares inferred scales of exported models with scales derived by hand.
// eta_models [-v] PATTERN...: reads $AMOSC_MODELS/dynamo/eta.json: file -> {initializer: eta}; a
// number is certain, {"eta", "sure": false} is a judgment, {"split": {parameter: eta}} names
// parameters merged in one initializer, null is not trained. A PATTERN is a glob over file names;
// none: all. Prints one line per file that does not fully agree (-v: also per judged scale that
// differs), then totals per family. Exit status 1 if a certain scale differs or a null is trained.
#include "onnx.h"
#include "passes.h"
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Tally {
	const char *family;
	int files, unread;
	int equal, wrong;         // certain scales
	int judged_equal, judged; // judged scales
	int unsure;               // certain ones that agree, but eta is unsure
	int absent;               // not a parameter for the reader
	int frozen;               // null and not trained
	int asked; // null and trained, but with a question, since the file does not decide it
} Tally;

// Errors in eta.json, and why.
static const struct {
	const char *file, *name, *why;
} errata[] = {
    {"mobilenet_v3_*", "features.0.1.bias",
     "1 for a bias of batch normalization; all others are 1/2"},
};

typedef struct Case {
	Arena *arena;
	const Graph *g;
	const Eta *eta;
	const char *file;
	Tally *tally;
	bool verbose;
} Case;

static double smallest(const Eta *eta)
{
	double least = eta->nparts ? HUGE_VAL : eta->eta.value;
	for (int i = 0; i < eta->nparts; i++)
		least = fmin(least, eta->parts[i].eta.value);
	return least;
}

static double largest(const Eta *eta)
{
	double most = eta->nparts ? 0 : eta->eta.value;
	for (int i = 0; i < eta->nparts; i++)
		most = fmax(most, eta->parts[i].eta.value);
	return most;
}

static bool near(double got, double want)
{
	return fabs(got - want) <= 1e-6 * fabs(want);
}

// True if every part of it is `want`.
static bool agrees(const Eta *eta, double want)
{
	return near(smallest(eta), want) && near(largest(eta), want);
}

static void print_difference(const Case *c, int slot, double want, const char *how)
{
	const Eta *eta = &c->eta[slot];
	printf("  %s: %s is %s (%.9g, %s), %s %.9g\n", c->file, c->g->slots.at[slot].name,
	       eta->formula, eta->eta.value, eta->role, how, want);
	for (int i = 0; i < eta->nwhy; i++)
		printf("      %s\n", eta->why[i]);
	if (eta->question)
		printf("      ? %s\n", eta->question);
}

static void judge_slot(Case *c, int slot, double want, bool sure)
{
	const Eta *eta = &c->eta[slot];
	bool same = agrees(eta, want);
	Tally *t = c->tally;
	if (sure) {
		t->equal += same;
		t->wrong += !same;
		t->unsure += same && !eta->sure;
		if (!same)
			print_difference(c, slot, want, "must be");
	} else {
		t->judged++;
		t->judged_equal += same;
		if (!same && c->verbose)
			print_difference(c, slot, want, "judged");
	}
}

static void judge_entry(Case *c, const char *name, const json_t *want)
{
	const json_t *split = json_object_get(want, "split"),
	             *judged = json_object_get(want, "eta");
	bool null = json_is_null(want) || json_is_null(judged);
	int found = 0;
	for (int i = 0; i < COUNT(errata); i++)
		if (matches(errata[i].file, c->file) && !strcmp(errata[i].name, name))
			return;
	for (int i = 0; i < c->g->slots.count; i++) {
		const Slot *s = &c->g->slots.at[i];
		if (s->kind != S_param || !s->file || strcmp(s->file, name))
			continue;
		found++;
		const json_t *number = split    ? json_object_get(split, s->name)
		                       : judged ? judged
		                                : want;
		if (json_is_number(number)) {
			judge_slot(c, i, json_number_value(number), !judged);
		} else if (null && c->eta[i].question) {
			c->tally->asked++;
		} else {
			c->tally->wrong++;
			printf("  %s: %s is trained as %s, but %s\n", c->file, name, s->name,
			       split ? "is none of its parameters" : "must not be");
		}
	}
	c->tally->absent += !found && !null;
	c->tally->frozen += !found && null;
	if (!found && !null && c->verbose)
		printf("  %s: %s is no parameter\n", c->file, name);
}

// Binds symbolic dimensions to sizes that are small, but at least as long as any window.
static void bind_dims(Arena *arena, const char *path, ReadOptions *options)
{
	VEC(Bind) bind = {0};
	Model *model = read_model(arena, path, &(ReadOptions){.list = true});
	for (int i = 0; i < model->inputs.count; i++) {
		const Input *in = &model->inputs.at[i];
		for (int a = 0; a < in->rank; a++) {
			const Dim *dim = &in->dim[a];
			const char *name =
			    *dim->name ? dim->name : format(arena, "%s:%d", in->name, a);
			if (dim->size < 0)
				PUSH(arena, bind, ((Bind){name, strcmp(name, "batch") ? 8 : 2}));
		}
	}
	options->nbind = bind.count;
	options->bind = bind.at;
}

// Checks that active dropout and normalization by batch statistics change no scale.
static void judge_training(Case *c, const char *path, ReadOptions options)
{
	options.training = true;
	options.statistics = BN_BATCH;
	const Graph *g = read_model(c->arena, path, &options)->graph;
	const Eta *eta = eta_pass(c->arena, g, &(EtaOptions){0}, NULL);
	for (int i = 0; i < c->g->slots.count; i++) {
		const Slot *s = &c->g->slots.at[i];
		int at = s->kind == S_param ? find_slot(g, s->name) : -1;
		if (at < 0 || g->slots.at[at].kind != S_param ||
		    (agrees(&eta[at], smallest(&c->eta[i])) && eta[at].nparts == c->eta[i].nparts))
			continue;
		c->tally->wrong++;
		printf("  %s: %s is %s, but in training %s\n", c->file, s->name, c->eta[i].formula,
		       eta[at].formula);
	}
}

static void check_file(Arena *arena, const char *folder, const char *file, const json_t *entries,
                       Tally *tally, bool verbose)
{
	Case c = {.arena = arena, .file = file, .tally = tally, .verbose = verbose};
	ReadOptions options = {0};
	const char *path = format(arena, "%s/%s", folder, file), *name;
	json_t *want;
	Catch caught;
	tally->files++;
	if (TRY(caught)) {
		tally->unread++;
		printf("  %s: not read: %.*s\n", file, (int)strcspn(caught.message, "\n"),
		       caught.message);
		free(caught.message);
		return;
	}
	bind_dims(arena, path, &options);
	c.g = read_model(arena, path, &options)->graph;
	c.eta = eta_pass(arena, c.g, &(EtaOptions){0}, NULL);
	judge_training(&c, path, options);
	catch_end(&caught);
	json_object_foreach ((json_t *)entries, name, want) {
		judge_entry(&c, name, want);
	}
}

static void print_tally(const Tally *t)
{
	printf("%-12s %3d files", t->family, t->files);
	if (t->unread)
		printf(" (%d not read)", t->unread);
	printf(": %d equal", t->equal);
	if (t->unsure)
		printf(" (%d with a question)", t->unsure);
	printf(", %d wrong; judged %d of %d; no parameter: %d; frozen %d of %d\n", t->wrong,
	       t->judged_equal, t->judged, t->absent, t->frozen, t->frozen + t->asked);
}

static Tally *family_of(Arena *arena, Tally *all, int *n, const char *file)
{
	const char *name = format(arena, "%.*s", (int)strcspn(file, "_"), file);
	for (int i = 0; i < *n; i++)
		if (!strcmp(all[i].family, name))
			return &all[i];
	all[*n].family = name;
	return &all[(*n)++];
}

static bool wanted(int n, char **pattern, const char *file)
{
	for (int i = 0; i < n; i++)
		if (matches(pattern[i], file))
			return true;
	return n == 0 && file[0] != '_';
}

int main(int argc, char **argv)
{
	const char *models = getenv("AMOSC_MODELS"), *file;
	if (!models)
		fail("eta_models", "AMOSC_MODELS names no folder of models");
	bool verbose = argc > 1 && !strcmp(argv[1], "-v");
	Arena *arena = arena_new();
	const char *folder = format(arena, "%s/dynamo", models);
	json_t *all = json_load_file(format(arena, "%s/eta.json", folder), 0, NULL), *entries;
	if (!all) {
		printf("eta_models: %s/eta.json cannot be read\n", folder);
		return 1;
	}
	Tally *tally = NEWS(arena, Tally, json_object_size(all) + 1), sum = {.family = "all"};
	int families = 0;
	json_object_foreach (all, file, entries) {
		if (!wanted(argc - 1 - verbose, argv + 1 + verbose, file))
			continue;
		Arena *scratch = arena_new();
		check_file(scratch, folder, file, entries, family_of(arena, tally, &families, file),
		           verbose);
		arena_free(scratch);
	}
	for (int i = 0; i < families; i++) {
		print_tally(&tally[i]);
		sum.wrong += tally[i].wrong, sum.equal += tally[i].equal;
	}
	printf("eta_models: %d certain scales equal, %d wrong\n", sum.equal, sum.wrong);
	json_decref(all);
	arena_free(arena);
	return sum.wrong != 0 || !sum.equal;
}
