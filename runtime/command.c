// command.c: keeps the command line of a run in its directory, as command.json, for --resume.
// Input: JSON as this file writes it: an object whose members are strings and lists of strings.
#include "rt.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct member {
	const char *key;
	bool list;
	int count; // of words; 1 unless it is a list
	char **words;
};
struct command {
	char *text; // of the file, in which the strings are
	struct member *members;
	size_t count, room;
};

static void free_command(struct command *c)
{
	for (size_t i = 0; i < c->count; i++)
		free(c->members[i].words);
	free(c->members);
	free(c->text);
	*c = (struct command){0};
}

static struct member *member_named(const struct command *c, const char *key)
{
	int at = amos_index(key, c->members, (int64_t)c->count, sizeof *c->members);
	return at < 0 ? NULL : &c->members[at];
}

// Adds a member of `count` words, which are not copied. NULL: out of memory.
static struct member *add_member(struct command *c, const char *key, int count)
{
	char **words = calloc((size_t)count + 1, sizeof *words);
	if (!words ||
	    !amos_grow((void **)&c->members, &c->room, c->count + 1, sizeof *c->members)) {
		free(words);
		return NULL;
	}
	struct member *m = &c->members[c->count++];
	*m = (struct member){key, false, count, words};
	return m;
}

// ---- reading --------------------------------------------------------------------------

static char *skip_blanks(char *at)
{
	return at + strspn(at, " \t\r\n");
}

// Writes the character of an escape \u, by its four hexadecimal digits, as UTF-8. Returns its end;
// NULL: they are not digits.
static char *decode(char *to, const char *digits)
{
	unsigned x = 0;
	for (int k = 0; k < 4; k++) {
		if (!isxdigit((unsigned char)digits[k]))
			return NULL;
		char digit[2] = {digits[k], 0};
		x = 16 * x + (unsigned)strtoul(digit, NULL, 16);
	}
	if (x >= 0x800)
		*to++ = (char)(0xE0 | x >> 12);
	if (x >= 0x80)
		*to++ = (char)(x >= 0x800 ? 0x80 | (x >> 6 & 63) : 0xC0 | x >> 6);
	*to++ = (char)(x >= 0x80 ? 0x80 | (x & 63) : x);
	return to;
}

// Reads the string at *at in place and moves *at after it. NULL: there is no complete string.
static char *read_string(char **at)
{
	static const char from[] = "bfnrt\"\\/", to[] = "\b\f\n\r\t\"\\/";
	char *in = skip_blanks(*at), *string = in + 1, *out = string;
	if (*in++ != '"')
		return NULL;
	while (*in && *in != '"') {
		if (*in != '\\') {
			*out++ = *in++;
			continue;
		}
		const char *known = in[1] ? strchr(from, in[1]) : NULL;
		if (known)
			*out++ = to[known - from];
		else if (in[1] != 'u' || !(out = decode(out, in + 2)))
			return NULL;
		in += known ? 2 : 6;
	}
	*at = in + 1;
	if (!*in)
		return NULL;
	*out = 0;
	return string;
}

// Reads a string, or a list of them. Returns the end; NULL: it is neither, or out of memory.
static char *read_value(struct command *c, const char *key, char *at)
{
	at = skip_blanks(at);
	bool list = *at == '[';
	int most = 1;
	for (const char *k = at; list && (k = strchr(k, ',')); k++)
		most++;
	struct member *m = add_member(c, key, most);
	if (!m)
		return NULL;
	m->list = list;
	m->count = 0;
	at = list ? skip_blanks(at + 1) : at;
	while (!list || *at != ']') {
		char *word = read_string(&at);
		if (!word)
			return NULL;
		m->words[m->count++] = word;
		at = skip_blanks(at);
		if (!list)
			return at;
		if (*at == ',')
			at++;
		else if (*at != ']')
			return NULL;
	}
	return skip_blanks(at + 1);
}

static bool read_object(struct command *c)
{
	char *at = skip_blanks(c->text), *key;
	if (*at++ != '{')
		return false;
	do {
		key = read_string(&at);
		at = key ? skip_blanks(at) : at;
		at = key && *at == ':' ? read_value(c, key, at + 1) : NULL;
	} while (at && *at++ == ',');
	return at && at[-1] == '}';
}

// Reads command.json. A file that is missing or corrupt has no members. Fails on a system error.
static int read_command(const char *dir, struct command *c)
{
	char path[4096];
	size_t room = 0;
	snprintf(path, sizeof path, "%s/command.json", dir);
	*c = (struct command){0};
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); // a pipe is not waited for
	FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
	if (fd >= 0 && !file)
		close(fd);
	if (!file)
		return amos_errno_status() == AMOS_MACHINE ? amos_fail_errno("read", path)
		                                           : AMOS_DONE;
	errno = 0;
	ssize_t length = getdelim(&c->text, &room, 0, file);
	bool memory = (length < 0 || !read_object(c)) && errno == ENOMEM;
	bool corrupt = length < 0 || !member_named(c, "command");
	int status = ferror(file) ? amos_fail_errno("read", path)
	             : memory     ? amos_no_memory(path)
	                          : AMOS_DONE;
	fclose(file);
	if (status || corrupt)
		free_command(c);
	return status;
}

int amos_command_found(const char *dir, bool *found)
{
	struct command c;
	int status = read_command(dir, &c);
	*found = c.count;
	free_command(&c);
	return status;
}

int amos_command_wrote(const char *dir, const char *path, bool *wrote)
{
	struct command c;
	int status = read_command(dir, &c);
	const struct member *trained = member_named(&c, "trained");
	char *name = amos_escaped(basename(path), true);
	*wrote = name && trained && trained->count && !strcmp(trained->words[0], name);
	free(name);
	free_command(&c);
	return status;
}

int amos_command(const char *dir, int *argc, char ***argv)
{
	struct command c;
	int status = read_command(dir, &c);
	if (status)
		return status;
	const struct member *command = member_named(&c, "command");
	size_t n = command ? (size_t)command->count : 0, bytes = 0;
	for (size_t i = 0; i < n; i++)
		bytes += strlen(command->words[i]) + 1;
	*argc = (int)n;
	*argv = n ? malloc((n + 1) * sizeof(char *) + bytes) : NULL;
	char *at = *argv ? (char *)(*argv + n + 1) : NULL;
	for (size_t i = 0; at && i < n; i++) {
		(*argv)[i] = strcpy(at, command->words[i]);
		amos_unescape(at);
		at += strlen(at) + 1;
	}
	if (*argv)
		(*argv)[n] = NULL;
	free_command(&c);
	if (n && !*argv)
		return amos_no_memory(dir);
	return *argv ? AMOS_DONE
	             : amos_fail(AMOS_INPUT,
	                         "%s: no run to resume: command.json is missing or corrupt", dir);
}

// ---- writing --------------------------------------------------------------------------

static void write_string(FILE *to, const char *text)
{
	fputc('"', to);
	for (const unsigned char *c = (const unsigned char *)text; *c; c++)
		if (*c < ' ')
			fprintf(to, "\\u%04x", *c);
		else
			fprintf(to, *c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
	fputc('"', to);
}

static void write_member(FILE *to, const struct member *m)
{
	fputs("  ", to);
	write_string(to, m->key);
	fputs(m->list ? ": [" : ": ", to);
	for (int i = 0; i < m->count; i++) {
		fputs(!m->list ? "" : i ? ",\n    " : "\n    ", to);
		write_string(to, m->words[i]);
	}
	fputs(m->list ? "\n  ]" : "", to);
}

static int write_command(const char *dir, const struct command *c)
{
	char path[4096];
	struct amos_temp_file file;
	snprintf(path, sizeof path, "%s/command.json", dir);
	int status = amos_file_begin(&file, path, AMOS_OWN);
	if (status)
		return status;
	for (size_t i = 0; i < c->count; i++) {
		fputs(i ? ",\n" : "{\n", file.to);
		write_member(file.to, &c->members[i]);
	}
	fputs("\n}\n", file.to);
	return amos_file_keep(&file);
}

int amos_command_keep(const char *dir, const struct amos_model *model,
                      const struct amos_options *options)
{
	char cwd[4096] = "";
	if (!getcwd(cwd, sizeof cwd))
		cwd[0] = 0;
	char *folder = amos_escaped(cwd, true);
	const char *texts[][2] = {{"folder", folder},
	                          {"model", model->name},
	                          {"target", model->target},
	                          {"chosen", model->note}};
	struct command c = {0};
	struct member *argv = add_member(&c, "command", options->argc);
	bool complete = argv;
	if (argv)
		argv->list = true;
	for (int i = 0; complete && i < options->argc; i++)
		complete = (argv->words[i] = amos_escaped(options->argv[i], true));
	for (int i = 0; complete && i < COUNT(texts); i++) {
		struct member *m = add_member(&c, texts[i][0], 1);
		complete = m && (m->words[0] = strdup(texts[i][1] ? texts[i][1] : ""));
	}
	free(folder);
	int status = complete ? write_command(dir, &c) : amos_no_memory(dir);
	for (size_t i = 0; i < c.count; i++)
		for (int k = 0; k < c.members[i].count; k++)
			free(c.members[i].words[k]);
	free_command(&c);
	return status;
}

int amos_command_writes(const char *dir, const char *path)
{
	struct command c;
	int status = read_command(dir, &c);
	if (status)
		return status;
	char *name = amos_escaped(basename(path), true);
	struct member *trained = member_named(&c, "trained");
	if (!c.count)
		status = amos_fail(AMOS_INPUT, "%s/command.json: missing or corrupt", dir);
	else if (!trained)
		trained = add_member(&c, "trained", 1);
	if (!status && !(trained && name))
		status = amos_no_memory(dir);
	if (!status) {
		trained->words[0] = name;
		trained->count = 1;
		trained->list = false;
		status = write_command(dir, &c);
	}
	free(name);
	free_command(&c);
	return status;
}
