// unused.c: finds arrays of files that no input of the model uses.
// An unused array whose name equals that of an input without data, except for case and punctuation,
// is an error; the others are listed in a note.
#include "rt.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const char *to_letter(const char *name)
{
	while (*name && (unsigned char)*name < 0x80 && !isalnum((unsigned char)*name))
		name++;
	return name;
}

// True if two names have the same letters and digits, ignoring case.
static bool is_near(const char *a, const char *b)
{
	for (;; a++, b++) {
		a = to_letter(a), b = to_letter(b);
		if (tolower((unsigned char)*a) != tolower((unsigned char)*b))
			return false;
		if (!*a)
			return true;
	}
}

static bool is_unused(const struct amos_source *source)
{
	return source->by_name && !source->taken;
}

static const char *file_of(const struct amos_data *data, const struct amos_source *source)
{
	return data->sources.files[source->file].text;
}

static int check_near(const struct amos_data *data, const char *input)
{
	const struct amos_sources *all = &data->sources;
	if (amos_source_of(all, input))
		return AMOS_DONE;
	for (int i = 0; i < all->count; i++)
		if (is_unused(&all->at[i]) && is_near(all->at[i].name, input))
			return amos_fail(AMOS_INPUT,
			                 "--data %s: no input takes '%s'; did you mean '%s'?",
			                 file_of(data, &all->at[i]), all->at[i].name, input);
	return AMOS_DONE;
}

// One line per file.
static int write_unused(struct amos_data *data)
{
	size_t size;
	free(data->unused);
	data->unused = NULL;
	FILE *to = open_memstream(&data->unused, &size);
	if (!to)
		return amos_no_memory("--data");
	const char *file = NULL;
	for (int i = 0; i < data->sources.count; i++) {
		const struct amos_source *source = &data->sources.at[i];
		if (!is_unused(source))
			continue;
		bool same = file && !strcmp(file, file_of(data, source));
		if (same)
			fprintf(to, ", '%s'", source->name);
		else
			fprintf(to, "%snote: --data %s: no input takes '%s'", file ? "\n" : "",
			        file_of(data, source), source->name);
		file = file_of(data, source);
	}
	if (file)
		fputc('\n', to);
	return fclose(to) ? amos_no_memory("--data") : AMOS_DONE;
}

int amos_data_take(struct amos_data *data, int n, const char *const *inputs)
{
	struct amos_source *at = data->sources.at;
	for (int i = 0; i < data->sources.count; i++)
		for (int k = 0; k < n && !at[i].taken; k++)
			at[i].taken = !strcmp(at[i].name, inputs[k]);
	int status = AMOS_DONE;
	for (int k = 0; !status && k < n; k++)
		status = check_near(data, inputs[k]);
	return status ? status : write_unused(data);
}

const char *amos_data_unused(const struct amos_data *data)
{
	return data->unused ? data->unused : "";
}
