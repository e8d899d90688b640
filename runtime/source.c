// source.c: parses --data: NAME=SOURCE with its wrappers, or a file of named arrays.
// Finds arrays of files that no input takes. Invariant: a file named twice is opened once.
#include "rt.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Opens `text` unless it is open; *index is its first array, *n their number.
static int open_file(struct amos_data *data, const char *text, int *index, int64_t *n)
{
	*n = 0;
	for (*index = 0; *index < data->nfiles && strcmp(data->files[*index].text, text);)
		++*index;
	while (*index + *n < data->nfiles && !strcmp(data->files[*index + *n].text, text))
		++*n;
	if (*n)
		return AMOS_DONE;
	struct amos_arrays arrays = {0};
	struct amos_vocabulary vocabulary = {0};
	bool token = !strncmp(text, "text:", 5);
	int status = token ? AMOS_DONE : amos_arrays_open(text, &arrays);
	if (token) { // text:PATH[:VOCABULARY]
		struct amos_array *array = amos_arrays_add(&arrays, "--data", NULL, 0);
		char *path = strdup(text + 5), *colon = NULL;
		if (path && access(path, F_OK))
			colon = strrchr(path, ':');
		if (colon)
			*colon++ = 0;
		status = array && path ? amos_text_open(path, colon, array, &vocabulary)
		                       : amos_no_memory("--data");
		free(path);
	}
	for (; !status && *n < arrays.n; ++*n) {
		char *copy = strdup(text);
		if (!copy || !amos_grow((void **)&data->files, &data->file_room,
		                        (size_t)data->nfiles + 1, sizeof *data->files)) {
			free(copy);
			status = amos_no_memory("--data");
			break;
		}
		data->files[data->nfiles++] =
		    (struct amos_opened){copy, arrays.at[*n], vocabulary, token};
		arrays.at[*n] = (struct amos_array){0};
	}
	amos_npz_free(arrays.n, arrays.at);
	return status;
}

static int add_source(struct amos_data *data, const char *name, size_t length,
                      struct amos_source **to)
{
	char *copy = strndup(name, length);
	if (!copy || !amos_grow((void **)&data->sources, &data->source_room,
	                        (size_t)data->nsources + 1, sizeof *data->sources)) {
		free(copy);
		return amos_no_memory("--data");
	}
	struct amos_source *source = &data->sources[data->nsources];
	*source = (struct amos_source){.name = copy};
	data->nsources++;
	if (amos_source_of(data, source->name) != source)
		return amos_fail(AMOS_INPUT, "--data %s: given twice", source->name);
	*to = source;
	return AMOS_DONE;
}

// Removes wrapper( ) from `text`, in place. False: `text` has another form.
static bool unwrap(char **text, const char *wrapper)
{
	size_t n = strlen(wrapper), length = strlen(*text);
	if (strncmp(*text, wrapper, n) || (*text)[n] != '(' || (*text)[length - 1] != ')')
		return false;
	(*text)[length - 1] = 0;
	*text += n + 1;
	return true;
}

static int open_source(struct amos_data *data, struct amos_source *source, char *text)
{
	for (;;) {
		if (unwrap(&text, "shift"))
			source->shift++;
		else if (unwrap(&text, "masked"))
			source->masked = true;
		else if (unwrap(&text, "raw"))
			source->raw = true;
		else
			break;
	}
	source->fill = !strcmp(text, "zeros") ? 0 : !strcmp(text, "ones") ? 1 : AMOS_ABSENT;
	if (source->fill != AMOS_ABSENT)
		return AMOS_DONE;
	if (!strncmp(text, "images:", 7))
		return amos_fail(AMOS_INPUT,
		                 "--data %s=%s: directories of images are not supported" HELP
		                 "convert them to an .npy file",
		                 source->name, text);
	int64_t n;
	int status = open_file(data, text, &source->file, &n);
	for (int i = source->file; !status && n > 1 && i < source->file + n; i++)
		if (!strcmp(data->files[i].array.name, source->name))
			source->file = i, n = 1;
	if (!status && n != 1)
		status = amos_fail(
		    AMOS_INPUT,
		    "--data %s=%s: the file contains %lld arrays; expected the name of one, %s:KEY",
		    source->name, text, (long long)n, text);
	return status;
}

// Adds a source for each array of FILE.npz.
static int open_all(struct amos_data *data, const char *path)
{
	int first;
	int64_t n;
	int status = open_file(data, path, &first, &n);
	for (int i = first; !status && i < first + n; i++) {
		const char *name = data->files[i].array.name;
		if (!name)
			return amos_fail(AMOS_INPUT, "--data %s: expected an input name, NAME=%s",
			                 path, path);
		struct amos_source *source = NULL;
		status = add_source(data, name, strlen(name), &source);
		if (!status) {
			source->file = i;
			source->fill = AMOS_ABSENT;
			source->by_name = true;
		}
	}
	return status;
}

int amos_sources_open(struct amos_data *data, const struct amos_list *list)
{
	int status = AMOS_DONE;
	for (int i = 0; !status && i < list->count; i++) {
		const char *equals = strchr(list->at[i], '=');
		if (!equals || equals == list->at[i]) {
			status = open_all(data, list->at[i]);
			continue;
		}
		struct amos_source *source = NULL;
		status = add_source(data, list->at[i], (size_t)(equals - list->at[i]), &source);
		char *text = status ? NULL : strdup(equals + 1);
		if (!status)
			status = text ? open_source(data, source, text) : amos_no_memory("--data");
		free(text);
	}
	return status;
}

void amos_sources_close(struct amos_data *data)
{
	for (int i = 0; i < data->nfiles; i++) {
		free(data->files[i].text);
		amos_array_free(&data->files[i].array);
	}
	for (int i = 0; i < data->nsources; i++)
		free(data->sources[i].name);
	free(data->files);
	free(data->sources);
}

const struct amos_source *amos_source_of(const struct amos_data *data, const char *input)
{
	int at = amos_index(input, data->sources, data->nsources, sizeof *data->sources);
	return at < 0 ? NULL : &data->sources[at];
}

// ---- arrays of files that no input takes ----------------------------------------------

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
	return data->files[source->file].text;
}

int amos_data_take(struct amos_data *data, int n, const char *const *inputs)
{
	const char *file = NULL;
	for (int k = 0; k < n; k++) {
		int at =
		    amos_index(inputs[k], data->sources, data->nsources, sizeof *data->sources);
		if (at >= 0)
			data->sources[at].taken = true;
	}
	for (int k = 0; k < n; k++)
		for (int i = 0; !amos_source_of(data, inputs[k]) && i < data->nsources; i++)
			if (is_unused(&data->sources[i]) &&
			    is_near(data->sources[i].name, inputs[k]))
				return amos_fail(
				    AMOS_INPUT,
				    "--data %s: no input takes '%s'; did you mean '%s'?",
				    file_of(data, &data->sources[i]), data->sources[i].name,
				    inputs[k]);
	free(data->unused);
	char **unused = &data->unused;
	*unused = strdup("");
	for (int i = 0; i < data->nsources; i++) { // one line per file
		const struct amos_source *source = &data->sources[i];
		if (!is_unused(source))
			continue;
		bool same = file && !strcmp(file, file_of(data, source));
		if (same)
			amos_append(unused, ", '%s'", source->name);
		else
			amos_append(unused, "%snote: --data %s: no input takes '%s'",
			            file ? "\n" : "", file_of(data, source), source->name);
		file = file_of(data, source);
	}
	if (file)
		amos_append(unused, "\n");
	return *unused ? AMOS_DONE : amos_no_memory("--data");
}
