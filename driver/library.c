// library.c: implements amosc.h: sessions whose functions return errors.
#include "amosc.h"
#include "driver.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct amosc {
	Session session;
	Program *program; // NULL: nothing is compiled
	struct amos *open;
	bool limited; // --limit has been applied
	bool trained; // by amosc_train()
};

// Groups of options, by purpose. Training includes what amosc_write() and amosc_show() use.
enum {
	MODEL = COMMON | READ | DATA | MASK | PRECISION | TARGET | CACHE | TUNE | WORK | DRAW,
	GRAPH = CHOOSE | NORMS | LOSS,
};
static const unsigned takes[] = {
    [FOR_TRAINING] = MODEL | GRAPH | DROPS | ETA | STEP | SCALE | SPLIT | SHAPE | MEMORY | LOOP |
                     KEEP | OUT | BUILD,
    [FOR_EVALUATION] = MODEL | LOSS | SPLIT | SHAPE,
    [FOR_OUTPUTS] = MODEL | NORMS,
    [FOR_GRADIENTS] = MODEL | GRAPH | SCALE | MEMORY | WRT,
    [FOR_REPORT] = COMMON | READ | DATA | SPLIT | GRAPH | DROPS | ETA,
};

#define ENTER(catch) (amos_locale_own(), TRY(catch))

// Ends what ENTER() began. Sets amos_error() and returns the error code.
static int caught(Catch *catch)
{
	if (catch->status == STATUS_DONE)
		catch_end(catch);
	else
		amos_fail(0, "%s", catch->message ? catch->message : "out of memory");
	free(catch->message);
	amos_locale_host();
	return catch->status == STATUS_LIMIT ? AMOSC_INPUT : catch->status;
}

static void need_given(const char *what, const char *value)
{
	if (!value)
		fail_status(STATUS_USAGE, NULL, "%s: expected a text, found NULL", what);
}

const char *amosc_version(void)
{
	return AMOS_VERSION;
}

int amosc_open(const char *path, enum amosc_purpose purpose, struct amosc **to)
{
	Catch catch;
	*to = NULL;
	if (!ENTER(catch)) {
		need_given("amosc_open: path", path);
		if ((unsigned)purpose >= COUNT(takes))
			fail_status(STATUS_USAGE, NULL, "amosc_open: no purpose %d", (int)purpose);
		Arena *arena = arena_new();
		struct amosc *s = NEW(arena, struct amosc);
		s->session = (Session){.arena = arena,
		                       .purpose = (Purpose)purpose,
		                       .path = copy_string(arena, path),
		                       .told = table_new(arena)};
		*to = s;
	}
	return caught(&catch);
}

void amosc_close(struct amosc *s)
{
	if (s)
		arena_free(s->session.arena);
}

int amosc_option(struct amosc *s, const char *name, const char *value)
{
	Catch catch;
	if (!ENTER(catch)) {
		Arena *arena = s->session.arena;
		need_given("amosc_option: name", name);
		int option = option_named(name);
		if (option < 0)
			fail_status(STATUS_USAGE, NULL, "--%s: no such option", name);
		if (!(options[option].group & takes[s->session.purpose]))
			fail_status(STATUS_USAGE, NULL,
			            "--%s: does nothing in a session of this purpose", name);
		if (options[option].argument && !value)
			fail_status(STATUS_USAGE, NULL, "--%s: expected a value", name);
		if (s->program)
			fail_status(STATUS_USAGE, NULL, "--%s: the model is compiled already",
			            name);
		Choice choice = {(OptionName)option, value ? copy_string(arena, value) : NULL};
		check_value(&s->session, &choice);
		PUSH(arena, s->session.choices, choice);
	}
	return caught(&catch);
}

void amosc_listen(struct amosc *s, void (*listen)(void *, const char *), void *context)
{
	s->session.listen = listen;
	s->session.listener = context;
}

// Begins a call that does the same as the verb. Applies --limit at the first one, before a file is
// read.
static Session *begin(struct amosc *s, const char *verb)
{
	Session *session = &s->session;
	check_unused(session, verb, takes[session->purpose]);
	if (!s->limited)
		limit_cost(session);
	s->limited = true;
	return session;
}

// ---- reports --------------------------------------------------------------------------

static int list_values(struct amosc *s, bool outputs, int *count, const struct amosc_value **to)
{
	Catch catch;
	*count = 0;
	if (!ENTER(catch)) {
		const Model *model = list_model(begin(s, "inspect"));
		int n = outputs ? model->outputs.count : model->inputs.count;
		const Input *from = outputs ? model->outputs.at : model->inputs.at;
		struct amosc_value *values = NEWS(model->arena, struct amosc_value, n + 1);
		for (int i = 0; i < n; i++) {
			values[i] = (struct amosc_value){.name = from[i].name,
			                                 .type = elems[from[i].type].name,
			                                 .rank = from[i].rank};
			for (int a = 0; a < from[i].rank; a++) {
				const Dim *dim = &from[i].dim[a];
				values[i].dim[a] = dim->size;
				values[i].symbol[a] = dim->name && *dim->name ? dim->name : NULL;
			}
		}
		*to = values;
		*count = n;
	}
	return caught(&catch);
}

int amosc_inputs(struct amosc *s, int *count, const struct amosc_value **to)
{
	return list_values(s, false, count, to);
}

int amosc_outputs(struct amosc *s, int *count, const struct amosc_value **to)
{
	return list_values(s, true, count, to);
}

int amosc_eta(struct amosc *s, const char **json)
{
	Catch catch;
	if (!ENTER(catch)) {
		Session *session = begin(s, "eta");
		Report report = full_report(session, session->path);
		char *text = json_dumps(report.json, JSON_STYLE);
		at_end(session->arena, free, text);
		*json = text;
	}
	return caught(&catch);
}

int amosc_amos_defaults(struct amosc_amos *a, double batches, double labels)
{
	Catch catch;
	if (!ENTER(catch)) {
		Arena *arena = arena_new();
		Opt opt = opt_named("amos");
		opt.elsewhere = true;
		opt.batches = batches;
		opt.labels = (Labels){labels, labels > 0 ? 1 / sqrt(labels) : 0};
		opt.xi = a->xi, opt.beta = a->beta, opt.momentum = a->momentum;
		opt.warmup = a->warmup, opt.clip = a->clip, opt.extra_l2 = a->extra_l2;
		opt.average = a->average;
		opt_defaults(arena, &opt);
		*a = (struct amosc_amos){opt.xi,    opt.beta,     opt.momentum, opt.warmup,
		                         opt.clip,  opt.extra_l2, opt.average,  opt.coef,
		                         opt.pace,  opt.strength, opt.most,     opt.reach,
		                         opt.least, opt.mix};
		arena_free(arena);
	}
	return caught(&catch);
}

// ---- programs -------------------------------------------------------------------------

// `trains`: it trains on its data, for a model file; else it has separate entries for gradients and
// updates, and one for outputs.
static void compile(struct amosc *s, bool trains)
{
	static const char *const verbs[] = {[FOR_TRAINING] = "build",
	                                    [FOR_EVALUATION] = "eval",
	                                    [FOR_OUTPUTS] = "run",
	                                    [FOR_GRADIENTS] = "grad"};
	if (s->session.purpose == FOR_REPORT)
		fail_status(STATUS_USAGE, NULL, "a session for reports cannot compile");
	if (s->open)
		return;
	Session *session = begin(s, verbs[s->session.purpose]);
	Program *p = program_new(session, open_given(session));
	p->update_only = chosen(session, OPT_update_only);
	p->apart = !trains && session->purpose == FOR_TRAINING && !p->update_only;
	if (p->data)
		attach_data(p);
	if (trains && !chosen(session, OPT_no_export))
		trained_file(p, chosen(session, OPT_keep_training));
	s->open = open_program(p);
	s->program = p;
}

int amosc_compile(struct amosc *s, struct amos **open, struct amos_data **data)
{
	Catch catch;
	if (!ENTER(catch)) {
		compile(s, false);
		*open = s->open;
		if (data)
			*data = s->program->data;
	}
	return caught(&catch);
}

// Compiles a session, which must be for `purpose` and have data.
static void compile_for(struct amosc *s, Purpose purpose, const char *call)
{
	if (s->session.purpose != purpose)
		fail_status(STATUS_USAGE, NULL, "%s: the session has another purpose", call);
	if (!chosen(&s->session, OPT_data))
		fail_status(STATUS_USAGE, NULL, "%s: expected the option data", call);
	if (chosen(&s->session, OPT_update_only))
		fail_status(STATUS_USAGE, NULL, "%s: the option update-only leaves no training",
		            call);
	compile(s, purpose == FOR_TRAINING);
}

int amosc_train(struct amosc *s, struct amos_result *result)
{
	Catch catch;
	if (!ENTER(catch)) {
		struct amos_options given = runtime_options(&s->session);
		if (s->trained)
			fail_status(STATUS_USAGE, NULL,
			            "amosc_train: the session has trained already" HELP
			            "open another session");
		if (!given.out && !given.resume)
			fail_status(STATUS_USAGE, NULL,
			            "amosc_train: expected the option out or resume");
		if (!given.resume)
			need_done(amos_folder_free(given.out, given.overwrite));
		compile_for(s, FOR_TRAINING, "amosc_train");
		s->trained = true;
		need_done(amos_train(s->open, s->program->data, &given, result));
	}
	return caught(&catch);
}

int amosc_eval(struct amosc *s, struct amos_result *result)
{
	Catch catch;
	if (!ENTER(catch)) {
		compile_for(s, FOR_EVALUATION, "amosc_eval");
		need_done(amos_evaluate_data(s->open, s->program->data, NULL, result));
	}
	return caught(&catch);
}

int amosc_export(struct amosc *s, const char *path)
{
	Catch catch;
	if (!ENTER(catch)) {
		need_given("amosc_export: path", path);
		if (!s->open)
			fail_status(STATUS_USAGE, NULL, "amosc_export: nothing is compiled yet");
		need_done(amos_output_check(path));
		write_open(s->program, s->open, path);
	}
	return caught(&catch);
}

int amosc_write(struct amosc *s, const char *path)
{
	Catch catch;
	if (!ENTER(catch)) {
		if (s->session.purpose != FOR_TRAINING)
			fail_status(STATUS_USAGE, NULL,
			            "amosc_write: the session has another purpose");
		need_given("amosc_write: path", path);
		Session *session = begin(s, "build");
		check_output(session, path);
		Program *p = program_new(session, open_given(session));
		prepare_output(p, path);
		if (p->data)
			attach_data(p);
		run_passes(p, PASS_object);
		write_program(p, path);
	}
	return caught(&catch);
}

int amosc_show(struct amosc *s, const char *from, const char *after, const char **text)
{
	const Session given = s->session; // its options; `from` has options of its own
	Catch catch;
	if (!ENTER(catch))
		*text = show_program(begin(s, "show"), "text", from, &after);
	s->session.choices = given.choices;
	return caught(&catch);
}
