// fit.c: implements amos_fit(): training on files for a program, without a command line.
#include "rt.h"
#include <stddef.h>
#include <string.h>

// Sets an option; fails if it is none of those that choose data and length of a training.
static int take_option(struct amos_options *options, const char *name, const char *value)
{
	enum { COMMON, WORK = 0, SHAPE = 0, STEP = 0, KEEP = 0, OUT = 0, JSON = 0 };
	enum { DATA = 1, SPLIT = 1, MASK = 1, DRAW = 1, LOOP = 1 };
	static const struct {
		const char *name;
		int takes;
	} rows[] = {
#define OPTION(name, letter, group, type, argument, help) {#name, group},
#include "options.def"
#undef OPTION
	};
	int row = amos_index(name, rows, COUNT(rows), sizeof *rows);
	if (row >= 0 && !rows[row].takes)
		return amos_fail(AMOS_USAGE, "amos_fit: option '%s' does nothing here", name);
	return amos_option(options, name, value);
}

static int take_options(struct amos_options *options, const char *const *at)
{
	int status = AMOS_DONE;
	for (; !status && at && *at; at += 2)
		status = at[1] ? take_option(options, at[0], at[1])
		               : amos_fail(AMOS_USAGE, "amos_fit: option '%s' has no value", *at);
	options->quiet = 1;
	return status;
}

int amos_fit(struct amos *m, const struct amos_training *training)
{
	static const char *const entries[] = {"train", "eval", NULL};
	struct amos_training all = {.size = sizeof all};
	struct amos_options options = amos_options();
	struct amos_data *data = NULL;
	struct amos_result result;
	if (training->size < offsetof(struct amos_training, progress) ||
	    training->size > sizeof all)
		return amos_fail(AMOS_INPUT,
		                 "amos_fit: expected a struct amos_training of %zu to %zu bytes, "
		                 "found %zu" HELP "compile the program with this runtime's amos.h",
		                 offsetof(struct amos_training, progress), sizeof all,
		                 training->size);
	if (!amos_find_entry(m->model, entries[0]))
		return amos_fail(AMOS_USAGE, "%s: compiled without '%s'", m->model->name,
		                 entries[0]);
	memcpy(&all, training, training->size);
	amos_locale_own();
	int status = take_options(&options, all.options);
	if (!status)
		status = amos_data_open(&options, 0, &data);
	if (!status)
		status = amos_data_attach(data, m->model, entries);
	if (!status)
		status = amos_train_as(m, data, &options, &all, &result);
	amos_data_close(data);
	m->last = NULL;
	amos_locale_host();
	return status;
}
