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

int amos_data_take(struct amos_data *data, int n, const char *const *inputs)
{
	const struct amos_sources *all = &data->sources;
	const char *file = NULL;
	size_t size;
	for (int i = 0; i < all->count; i++)
		for (int k = 0; k < n && !all->at[i].taken; k++)
			all->at[i].taken = !strcmp(all->at[i].name, inputs[k]);
	for (int k = 0; k < n; k++)
		for (int i = 0; !amos_source_of(all, inputs[k]) && i < all->count; i++)
			if (is_unused(&all->at[i]) && is_near(all->at[i].name, inputs[k]))
				return amos_fail(
				    AMOS_INPUT,
				    "--data %s: no input takes '%s'; did you mean '%s'?",
				    file_of(data, &all->at[i]), all->at[i].name, inputs[k]);
	free(data->unused);
	data->unused = NULL;
	FILE *to = open_memstream(&data->unused, &size);
	if (!to)
		return amos_no_memory("--data");
	for (int i = 0; i < all->count; i++) { // one line per file
		const struct amos_source *source = &all->at[i];
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

const char *amos_data_unused(const struct amos_data *data)
{
	return data->unused ? data->unused : "";
}
