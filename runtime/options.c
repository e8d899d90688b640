// options.c: parses command lines (getopt_long), and option values into the fields of options.def.
// Invariant: an option means the same in amosc and in a compiled trainer.
#include "rt.h"
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

struct amos_options amos_options(void)
{
	static const struct {
		const char *text;
		struct amos_list list;
		int64_t count, natural;
		double number;
		int flag;
	} absent = {.count = AMOS_ABSENT, .natural = AMOS_ABSENT, .number = AMOS_ABSENT};
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

static bool consists_of(const char *value, const char *letters)
{
	return *value && !value[strspn(value, letters)];
}

static int set_integer(const char *name, const char *value, long long least, int64_t *to)
{
	char *end;
	errno = 0;
	long long number = strtoll(value, &end, 10);
	if (!consists_of(value, "+-0123456789") || *end || errno || number < least)
		return amos_fail(AMOS_USAGE, "--%s: expected an integer >= %lld, found '%s'", name,
		                 least, value);
	*to = number;
	return AMOS_DONE;
}

int amos_set_count(const char *name, const char *value, int64_t *to)
{
	return set_integer(name, value, 0, to);
}

int amos_set_natural(const char *name, const char *value, int64_t *to)
{
	return set_integer(name, value, 1, to);
}

int amos_set_number(const char *name, const char *value, double *to)
{
	char *end;
	errno = 0;
	double number = strtod(value, &end);
	if (!consists_of(value, "+-.0123456789eE") || *end || number < 0)
		return amos_fail(AMOS_USAGE, "--%s: expected a number >= 0, found '%s'", name,
		                 value);
	if (number > 3e38 || (number < 1e-45 && (number > 0 || errno)))
		return amos_fail(AMOS_USAGE,
		                 "--%s: expected 0 or a number from 1e-45 to 3e38, found '%s'",
		                 name, value);
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
	char field[32] = "", shown[32] = ""; // the name, with _ for -, and with - for _
	for (size_t k = 0; k < sizeof field - 1 && name[k]; k++) {
		bool dash = name[k] == '-' || name[k] == '_';
		field[k] = dash ? '_' : name[k];
		shown[k] = dash ? '-' : name[k];
	}
#define OPTION(row, letter, group, type, argument, help)                                           \
	if (!strcmp(#row, field))                                                                  \
		return amos_set_##type(shown, value, &options->row);
#include "options.def"
#undef OPTION
	return amos_fail(AMOS_USAGE, "--%s: no such option", name);
}

// ---- command lines --------------------------------------------------------------------

enum { HELP_KEY = 0x100, USAGE_KEY, FIRST_KEY, COLUMN = 29 };

typedef char option_name[32]; // as it is given, such as eval-every

struct parse { // a command line and the options it accepts
	const struct amos_command_line *line;
	int count;
	int *row; // in order of --help
	option_name *name;
	struct option *options;
	char *letters;
	char **words; // getopt_long() sorts them
};

// The letter, or the first one of the name: what --help sorts by.
static int initial(const struct amos_option_row *row)
{
	return row->letter ? row->letter : *row->name;
}

static bool comes_before(const struct amos_option_row *a, const struct amos_option_row *b)
{
	int order = initial(a) - initial(b);
	order = order ? order : !b->letter - !a->letter;
	return order ? order < 0 : strcmp(a->name, b->name) < 0;
}

// Writes the name of a row, which is an identifier, as an option.
static void write_name(option_name to, const char *name)
{
	size_t n = 0;
	for (; n < sizeof(option_name) - 1 && name[n]; n++)
		to[n] = name[n] == '_' ? '-' : name[n];
	to[n] = 0;
}

// Lists the options that the command takes, for --help and for getopt_long().
static void list_options(struct parse *p)
{
	const struct amos_command_line *line = p->line;
	for (int i = 0; i < line->rows; i++) {
		if (!(line->row[i].group & line->takes))
			continue;
		int at = p->count++;
		for (; at && comes_before(&line->row[i], &line->row[p->row[at - 1]]); at--)
			p->row[at] = p->row[at - 1];
		p->row[at] = i;
	}
	char *letter = p->letters;
	*letter++ = '?';
	for (int k = 0; k < p->count; k++) {
		const struct amos_option_row *row = &line->row[p->row[k]];
		write_name(p->name[k], row->name);
		p->options[k] =
		    (struct option){p->name[k], row->argument != NULL, NULL, FIRST_KEY + p->row[k]};
		if (row->letter)
			*letter++ = (char)row->letter;
		if (row->letter && row->argument)
			*letter++ = ':';
	}
	p->options[p->count] = (struct option){"help", 0, NULL, HELP_KEY};
	p->options[p->count + 1] = (struct option){"usage", 0, NULL, USAGE_KEY};
}

static void print_usage(const struct amos_command_line *line)
{
	printf("Usage: %s [OPTION...] %s\n", line->program, line->arguments);
}

static void print_help(const struct parse *p)
{
	const struct amos_command_line *line = p->line;
	const char *rest = strchr(line->about, '\v'); // printed after the options
	print_usage(line);
	printf("%.*s\n\n", rest ? (int)(rest - line->about) : (int)strlen(line->about),
	       line->about);
	for (int k = 0; k < p->count; k++) {
		const struct amos_option_row *row = &line->row[p->row[k]];
		const char *help = line->help ? line->help(line->context, p->row[k]) : row->help;
		const char letter[] = {'-', (char)row->letter, ',', 0};
		if (!help)
			continue;
		int width = printf("  %3s --%s%s%s", row->letter ? letter : "", p->name[k],
		                   row->argument ? "=" : "", row->argument ? row->argument : "");
		printf("%*s%s\n", width < COLUMN ? COLUMN - width : 2, "", help);
	}
	printf("  -?, --help                 Give this help list\n"
	       "      --usage                Give a short usage message\n%s%s%s",
	       rest ? "\n" : "", rest ? rest + 1 : "", rest ? "\n" : "");
}

static _Noreturn void bad_usage(const struct amos_command_line *line, const char *fmt,
                                const char *text)
{
	if (fmt) {
		fprintf(stderr, "%s: ", line->program);
		fprintf(stderr, fmt, text);
		fputs("\n", stderr);
	}
	fprintf(stderr, "Try `%s --help' or `%s --usage' for more information.\n", line->program,
	        line->program);
	exit(AMOS_USAGE);
}

// True if a word is `name` but for one character more, less or changed.
static bool is_one_apart(const char *name, const char *word, size_t length)
{
	size_t count = strlen(name), same = 0, end = 0;
	while (same < count && same < length && name[same] == word[same])
		same++;
	while (end < count - same && end < length - same &&
	       name[count - 1 - end] == word[length - 1 - end])
		end++;
	return count - same - end <= 1 && length - same - end <= 1;
}

// True if `name` is one of the parts of a word, such as batch of batch-size.
static bool is_part(const char *name, const char *word, size_t length)
{
	size_t count = strlen(name);
	for (size_t i = 0; i + count <= length; i++)
		if ((!i || word[i - 1] == '-') && !strncmp(word + i, name, count) &&
		    (i + count == length || word[i + count] == '-'))
			return true;
	return false;
}

// True if a word is an option of another command.
static bool is_of_others(const struct amos_command_line *line, const char *word, size_t length)
{
	bool found = false;
	for (int i = 0; i < line->rows; i++) {
		option_name name;
		write_name(name, line->row[i].name);
		found |= strlen(name) == length && !strncmp(name, word, length);
	}
	return found;
}

// Says which option an unknown one may mean.
static void suggest(const struct parse *p, const char *word)
{
	bool (*const near[])(const char *, const char *, size_t) = {is_one_apart, is_part};
	word += strspn(word, "-");
	size_t length = strcspn(word, "=");
	if (is_of_others(p->line, word, length))
		return;
	if (length == 2 && !strncmp(word, "lr", length)) {
		word = "rate";
		length = strlen(word);
	}
	for (int i = 0; i < COUNT(near); i++)
		for (int k = 0; k < p->count; k++)
			if (near[i](p->name[k], word, length)) {
				fprintf(stderr, "  help: did you mean --%s?\n", p->name[k]);
				return;
			}
}

// Takes an option, or what `word` has instead of one.
static void take_key(const struct parse *p, int key, const char *word)
{
	const struct amos_command_line *line = p->line;
	if (key == HELP_KEY) {
		print_help(p);
		exit(amos_end_output(AMOS_DONE));
	}
	if (key == USAGE_KEY) {
		print_usage(line);
		exit(amos_end_output(AMOS_DONE));
	}
	if (key == '?') { // getopt_long() has reported the error
		if (!optopt)
			suggest(p, word);
		bad_usage(line, NULL, NULL);
	}
	for (int k = 0; k < p->count; k++) {
		int row = p->row[k];
		bool is = key == FIRST_KEY + row || key == line->row[row].letter;
		if (is && line->option(line->context, row, optarg))
			bad_usage(line, "%s", amos_error());
	}
}

static void parse_words(const struct parse *p, int argc)
{
	const struct amos_command_line *line = p->line;
	optind = 0; // starts anew
	for (int key; (key = getopt_long(argc, p->words, p->letters, p->options, NULL)) != -1;)
		take_key(p, key == '?' && !strcmp(p->words[optind - 1], "-?") ? HELP_KEY : key,
		         p->words[optind - 1]);
	for (int k = optind; k < argc; k++) {
		if (k - optind >= line->most)
			bad_usage(line, "one argument too many: %s", p->words[k]);
		line->argument(line->context, p->words[k]);
	}
	if (argc - optind < line->least)
		bad_usage(line, "expected an argument: %s", line->arguments);
}

void amos_parse(const struct amos_command_line *line, int argc, char **argv)
{
	size_t rows = (size_t)line->rows;
	struct parse p = {.line = line,
	                  .row = calloc(rows + 1, sizeof *p.row),
	                  .name = calloc(rows + 1, sizeof *p.name),
	                  .options = calloc(rows + 3, sizeof *p.options),
	                  .letters = calloc(2 * rows + 2, 1),
	                  .words = calloc((size_t)argc + 1, sizeof *p.words)};
	if (!p.row || !p.name || !p.options || !p.letters || !p.words) {
		fprintf(stderr, "%s: out of memory\n", line->program);
		exit(AMOS_MACHINE);
	}
	memcpy(p.words, argv, (size_t)argc * sizeof *p.words);
	p.words[0] = (char *)line->program;
	list_options(&p);
	parse_words(&p, argc);
	free(p.row);
	free(p.name);
	free(p.options);
	free(p.letters);
	free(p.words);
}
