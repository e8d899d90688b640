// options.c: parses command lines (argp), and option values into the fields of options.def.
// Invariant: an option means the same in amosc and in a compiled trainer.
#include "rt.h"
#include <argp.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct amos_options amos_options(void)
{
	static const struct {
		const char *text;
		struct amos_list list;
		int64_t count;
		double number;
		int flag;
	} absent = {.count = AMOS_ABSENT, .number = AMOS_ABSENT};
	struct amos_options options = {0};
#define OPTION(name, letter, group, type, argument, help) options.name = absent.type;
#include "options.def"
#undef OPTION
	return options;
}

static int amos_set_text(const char *name, const char *value, const char **to)
{
	(void)name;
	*to = value;
	return AMOS_DONE;
}

static int amos_set_list(const char *name, const char *value, struct amos_list *to)
{
	if (to->count == AMOS_LIST)
		return amos_fail(AMOS_USAGE, "--%s: given more than %d times", name, AMOS_LIST);
	to->at[to->count++] = value;
	return AMOS_DONE;
}

int amos_set_count(const char *name, const char *value, int64_t *to)
{
	char *end;
	errno = 0;
	long long number = strtoll(value, &end, 10);
	if (end == value || *end || errno || number < 0)
		return amos_fail(AMOS_USAGE, "--%s: expected an integer >= 0, found '%s'", name,
		                 value);
	*to = number;
	return AMOS_DONE;
}

int amos_set_number(const char *name, const char *value, double *to)
{
	char *end;
	double number = strtod(value, &end);
	if (end == value || *end || !isfinite(number) || number < 0)
		return amos_fail(AMOS_USAGE, "--%s: expected a number >= 0, found '%s'", name,
		                 value);
	*to = number;
	return AMOS_DONE;
}

static int amos_set_flag(const char *name, const char *value, int *to)
{
	(void)name, (void)value;
	*to = 1;
	return AMOS_DONE;
}

int amos_keeps_last(const struct amos_options *options, bool *last)
{
	const char *keep = options->keep ? options->keep : "best";
	*last = !strcmp(keep, "last");
	return *last || !strcmp(keep, "best")
	           ? AMOS_DONE
	           : amos_fail(AMOS_USAGE, "--keep: expected best or last, found '%s'", keep);
}

int amos_option(struct amos_options *options, const char *name, const char *value)
{
	char field[32] = ""; // the name, with _ for -
	for (size_t k = 0; k < sizeof field - 1 && name[k]; k++)
		field[k] = name[k] == '-' ? '_' : name[k];
#define OPTION(row, letter, group, type, argument, help)                                           \
	if (!strcmp(#row, field))                                                                  \
		return amos_set_##type(name, value, &options->row);
#include "options.def"
#undef OPTION
	return amos_fail(AMOS_USAGE, "--%s: no such option", name);
}

// ---- command lines --------------------------------------------------------------------

enum { FIRST_KEY = 0x100 }; // argp's keys of options without a letter

struct parse {
	const struct amos_command_line *line;
	int arguments; // so far
};

static int key_of(const struct amos_command_line *line, int row)
{
	return line->row[row].letter ? line->row[row].letter : FIRST_KEY + row;
}

static error_t take_word(int key, char *value, struct argp_state *state)
{
	struct parse *parse = state->input;
	const struct amos_command_line *line = parse->line;
	if (key == ARGP_KEY_END && parse->arguments < line->least)
		argp_error(state, "expected an argument: %s", line->arguments);
	if (key == ARGP_KEY_ARG && parse->arguments++ >= line->most)
		argp_error(state, "one argument too many: %s", value);
	if (key == ARGP_KEY_ARG)
		line->argument(line->context, value);
	for (int i = 0; i < line->rows; i++)
		if (key == key_of(line, i)) {
			if (line->option(line->context, i, value))
				argp_error(state, "%s", amos_error());
			return 0;
		}
	return key == ARGP_KEY_ARG || key == ARGP_KEY_END ? 0 : ARGP_ERR_UNKNOWN;
}

void amos_parse(const struct amos_command_line *line, int argc, char **argv)
{
	struct argp_option *options = calloc((size_t)line->rows + 1, sizeof *options);
	char(*names)[32] = calloc((size_t)line->rows + 1, sizeof *names);
	char **words = calloc((size_t)argc + 1, sizeof *words); // argp sorts them
	if (options && names && words) {
		memcpy(words, argv, (size_t)argc * sizeof *words);
		words[0] = (char *)line->program;
		struct argp_option *to = options;
		for (int i = 0; i < line->rows; i++) {
			const struct amos_option_row *row = &line->row[i];
			if (!(row->group & line->takes))
				continue;
			for (size_t k = 0; k < sizeof *names - 1 && row->name[k]; k++)
				names[i][k] = row->name[k] == '_' ? '-' : row->name[k];
			const char *help = line->help ? line->help(line->context, i) : row->help;
			*to++ = (struct argp_option){
			    names[i], key_of(line, i), row->argument, 0, help, 0};
		}
		struct argp argp = {options, take_word, line->arguments, line->about, NULL,
		                    NULL,    NULL};
		argp_err_exit_status = AMOS_USAGE;
		setenv("ARGP_HELP_FMT", "no-dup-args-note", 0); // two lines that say nothing here
		argp_parse(&argp, argc, words, 0, NULL, &(struct parse){line, 0});
	}
	free(options);
	free(names);
	free(words);
}
