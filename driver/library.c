// library.c: implements amosc.h: sessions whose failures are values.
#include "amosc.h"
#include "driver.h"
#include <stdlib.h>
#include <string.h>

struct amosc {
	Session session;
	Program *program; // NULL: nothing is compiled
	struct amos *open;
	bool limited; // --limit has been taken
};

// The failure that was caught, as a value.
static int failed(Catch *catch)
{
	static const int codes[] = {AMOSC_DONE,    AMOSC_INPUT, AMOSC_USAGE,
	                            AMOSC_MACHINE, AMOSC_INPUT, AMOSC_BUG};
	amos_fail(0, "%s", catch->message ? catch->message : "out of memory");
	free(catch->message);
	return codes[catch->status];
}

int amosc_open(const char *path, enum amosc_purpose purpose, struct amosc **to)
{
	static const Purpose purposes[] = {FOR_TRAINING, FOR_EVALUATION, FOR_OUTPUTS, FOR_GRADIENTS,
	                                   FOR_REPORT};
	Catch catch;
	*to = NULL;
	if (TRY(catch))
		return failed(&catch);
	Arena *arena = arena_new();
	struct amosc *s = NEW(arena, struct amosc);
	s->session = (Session){
	    .arena = arena, .purpose = purposes[purpose], .path = copy_string(arena, path)};
	*to = s;
	catch_end(&catch);
	return AMOSC_DONE;
}

void amosc_close(struct amosc *s)
{
	if (!s)
		return;
	session_end(&s->session);
	arena_free(s->session.arena);
}

int amosc_option(struct amosc *s, const char *name, const char *value)
{
	Catch catch;
	if (TRY(catch))
		return failed(&catch);
	Arena *arena = s->session.arena;
	int option = option_named(name);
	if (option < 0)
		fail_status(STATUS_USAGE, NULL, "--%s: no such option", name);
	if (options[option].argument && !value)
		fail_status(STATUS_USAGE, NULL, "--%s: expected a value", name);
	if (s->program)
		fail_status(STATUS_USAGE, NULL, "--%s: the model is compiled already", name);
	Choice choice = {(OptionName)option, value ? copy_string(arena, value) : NULL};
	PUSH(arena, s->session.choices, choice);
	catch_end(&catch);
	return AMOSC_DONE;
}

void amosc_listen(struct amosc *s, void (*listen)(void *, const char *), void *context)
{
	s->session.listen = listen;
	s->session.listener = context;
}

// Once, before a file is read.
static Session *begin(struct amosc *s)
{
	if (!s->limited)
		limit_cost(&s->session);
	s->limited = true;
	return &s->session;
}

// ---- what the file holds --------------------------------------------------------------

static struct amosc_value value_of(const Input *in)
{
	struct amosc_value v = {.name = in->name, .type = elems[in->type].name, .rank = in->rank};
	for (int a = 0; a < in->rank; a++) {
		v.dim[a] = in->dim[a].size;
		v.symbol[a] = in->dim[a].name && *in->dim[a].name ? in->dim[a].name : NULL;
	}
	return v;
}

static int list_values(struct amosc *s, bool outputs, int *count, const struct amosc_value **to)
{
	Catch catch;
	*count = 0;
	if (TRY(catch))
		return failed(&catch);
	const Model *model = list_model(begin(s));
	int n = outputs ? model->outputs.count : model->inputs.count;
	const Input *from = outputs ? model->outputs.at : model->inputs.at;
	struct amosc_value *values = NEWS(model->arena, struct amosc_value, n + 1);
	for (int i = 0; i < n; i++)
		values[i] = value_of(&from[i]);
	*to = values;
	*count = n;
	catch_end(&catch);
	return AMOSC_DONE;
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
	if (TRY(catch))
		return failed(&catch);
	Session *session = begin(s);
	Report report = make_report(session, session->path);
	char *text = json_dumps(report.json, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
	*json = copy_string(session->arena, text);
	free(text);
	catch_end(&catch);
	return AMOSC_DONE;
}

// ---- programs -------------------------------------------------------------------------

static Program *program_begun(Session *session, bool weights)
{
	Program *p = program_new(session, open_given(session));
	p->weights = weights;
	if (p->data)
		attach_data(p);
	return p;
}

static void compile(struct amosc *s)
{
	if (s->session.purpose == FOR_REPORT)
		fail_status(STATUS_USAGE, NULL, "a session for reports compiles nothing");
	if (s->open)
		return;
	Program *p = program_begun(begin(s), false);
	s->open = open_program(p);
	s->program = p;
}

int amosc_compile(struct amosc *s, struct amos **open, struct amos_data **data)
{
	Catch catch;
	if (TRY(catch))
		return failed(&catch);
	compile(s);
	*open = s->open;
	if (data)
		*data = s->program->data;
	catch_end(&catch);
	return AMOSC_DONE;
}

// A session for `purpose` with data, compiled.
static void compile_for(struct amosc *s, Purpose purpose, const char *call)
{
	if (s->session.purpose != purpose)
		fail_status(STATUS_USAGE, NULL, "%s: the session has another purpose", call);
	if (!chosen(&s->session, OPT_data))
		fail_status(STATUS_USAGE, NULL, "%s: expected the option data", call);
	compile(s);
}

int amosc_train(struct amosc *s, struct amos_result *result)
{
	Catch catch;
	if (TRY(catch))
		return failed(&catch);
	struct amos_options given = runtime_options(&s->session);
	if (!given.out && !given.resume)
		fail_status(STATUS_USAGE, NULL, "amosc_train: expected the option out or resume");
	if (!given.resume)
		check(amos_folder_free(given.out, given.overwrite));
	compile_for(s, FOR_TRAINING, "amosc_train");
	check(amos_train(s->open, s->program->data, &given, result));
	catch_end(&catch);
	return AMOSC_DONE;
}

int amosc_eval(struct amosc *s, struct amos_result *result)
{
	Catch catch;
	if (TRY(catch))
		return failed(&catch);
	compile_for(s, FOR_EVALUATION, "amosc_eval");
	check(amos_evaluate(s->open, s->program->data, result));
	catch_end(&catch);
	return AMOSC_DONE;
}

int amosc_export(struct amosc *s, const char *path)
{
	Catch catch;
	if (TRY(catch))
		return failed(&catch);
	if (!s->open)
		fail_status(STATUS_USAGE, NULL, "amosc_export: nothing is compiled yet");
	check(amos_output_check(path));
	write_open(s->program, s->open, path);
	catch_end(&catch);
	return AMOSC_DONE;
}

int amosc_write(struct amosc *s, const char *path)
{
	Catch catch;
	if (TRY(catch))
		return failed(&catch);
	if (s->session.purpose != FOR_TRAINING)
		fail_status(STATUS_USAGE, NULL, "amosc_write: the session has another purpose");
	Program *p = program_begun(begin(s), true);
	run_passes(p, PASS_object);
	check(amos_output_check(path));
	write_object(p->object, path);
	catch_end(&catch);
	return AMOSC_DONE;
}

int amosc_show(struct amosc *s, const char *from, const char *after, const char **text)
{
	Catch catch;
	if (TRY(catch))
		return failed(&catch);
	char *shown = NULL;
	size_t size;
	FILE *to = open_memstream(&shown, &size);
	if (!to)
		fail_status(STATUS_MACHINE, NULL, "out of memory");
	show_program(begin(s), "text", from, after, to);
	fclose(to);
	*text = copy_string(s->session.arena, shown);
	free(shown);
	catch_end(&catch);
	return AMOSC_DONE;
}
