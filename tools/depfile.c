// depfile.c: implements amosc build --depfile: a rule for make, as gcc -MD -MF writes it.
// The output depends on every file that the command has read.
#include "tool.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Returns the path as make reads it.
static const char *escaped(Arena *arena, const char *path)
{
	Text text = {.arena = arena};
	for (const char *c = path; *c; c++) {
		if (*c == '\n')
			fail(path, "a rule of make cannot name a file with a line break" HELP
			           "rename the file");
		size_t slashes = strspn(c, "\\");
		// Backslashes before a blank or the end are doubled.
		bool last = slashes && strchr(" \t", c[slashes]);
		const char *before = *c == '$' ? "$" : last || strchr(" \t#:", *c) ? "\\" : "";
		say(&text, "%s%c", before, *c);
	}
	return text.at ? text.at : "";
}

// Returns the path, absolute if `out` is: the rule may be read in another directory then.
static const char *path_next_to(Arena *arena, const char *path, const char *out)
{
	char *here = *out == '/' && *path != '/' ? getcwd(NULL, 0) : NULL;
	if (here)
		path = format(arena, "%s/%s", here, path);
	free(here);
	return path;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

void write_depfile(const Session *session, const char *out)
{
	const char *path = choice(session, OPT_depfile, NULL), *input;
	if (!path)
		return;
	if (!strcmp(path, out))
		bad_usage(session, "--depfile and -o name the same file");
	need_done(amos_output_check(path));
	Arena *arena = session->arena;
	VEC(const char *) inputs = {0};
	while ((input = amos_input_path((size_t)inputs.count)))
		PUSH(arena, inputs, path_next_to(arena, input, out));
	if (inputs.count) // none if the model is standard input
		qsort(inputs.at, (size_t)inputs.count, sizeof *inputs.at, by_name);
	Text rule = {.arena = arena};
	say(&rule, "%s:", escaped(arena, out));
	for (int i = 0; i < inputs.count; i++)
		say(&rule, " \\\n %s", escaped(arena, inputs.at[i]));
	struct amos_temp_file file;
	need_done(amos_file_open(&file, path));
	fprintf(file.to, "%s\n", rule.at);
	need_done(amos_file_keep(&file));
}
