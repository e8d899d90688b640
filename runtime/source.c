// source.c: parses --data: NAME=SOURCE with its wrappers, or a file of named arrays.
// Finds arrays of files that no input takes. Invariant: a file named twice is opened once.
#include "rt.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int grow(void **at, int count, size_t item)
{
	void *more = realloc(*at, (size_t)(count + 1) * item);
	if (!more)
		return amos_no_memory("--data");
	*at = more;
	memset((char *)more + (size_t)count * item, 0, item);
	return AMOS_DONE;
}

// Opens `text` unless it is open; *index is its first array, *n their number.
static int open_file(struct amos_sources *all, const char *text, int *index, int64_t *n)
{
	*n = 0;
	for (*index = 0; *index < all->nfiles && strcmp(all->files[*index].text, text);)
		++*index;
	while (*index + *n < all->nfiles && !strcmp(all->files[*index + *n].text, text))
		++*n;
	if (*n)
		return AMOS_DONE;
	struct amos_arrays arrays = {0};
	struct amos_vocabulary vocabulary = {0};
	bool token = !strncmp(text, "text:", 5);
	int status = token ? amos_arrays_room(&arrays, text, 1) : amos_arrays_open(text, &arrays);
	if (token && !status) { // text:PATH[:VOCABULARY]
		char *path = strdup(text + 5), *colon = NULL;
		if (path && access(path, F_OK))
			colon = strrchr(path, ':');
		if (colon)
			*colon++ = 0;
		arrays.n = 1;
		status = path ? amos_text_open(path, colon, arrays.at, &vocabulary)
		              : amos_no_memory("--data");
		free(path);
	}
	for (; !status && *n < arrays.n; ++*n) {
		status = grow((void **)&all->files, all->nfiles, sizeof *all->files);
		if (status)
			break;
		struct amos_opened *file = &all->files[all->nfiles++];
		*file = (struct amos_opened){strdup(text), arrays.at[*n], vocabulary, token};
		arrays.at[*n] = (struct amos_array){0};
		if (!file->text)
			status = amos_no_memory("--data");
	}
	amos_npz_free(arrays.at ? arrays.n : 0, arrays.at);
	return status;
}

static int add_source(struct amos_sources *all, const char *name, size_t length,
                      struct amos_source **to)
{
	int status = grow((void **)&all->at, all->count, sizeof *all->at);
	if (status)
		return status;
	struct amos_source *source = &all->at[all->count];
	source->name = strndup(name, length);
	if (!source->name)
		return amos_no_memory("--data");
	all->count++;
	for (int i = 0; i + 1 < all->count; i++)
		if (!strcmp(all->at[i].name, source->name))
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

static int open_source(struct amos_sources *all, struct amos_source *source, char *text)
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
	int status = open_file(all, text, &source->file, &n);
	for (int i = source->file; !status && n > 1 && i < source->file + n; i++)
		if (!strcmp(all->files[i].array.name, source->name))
			source->file = i, n = 1;
	if (!status && n != 1)
		status = amos_fail(
		    AMOS_INPUT,
		    "--data %s=%s: the file contains %lld arrays; expected the name of one, %s:KEY",
		    source->name, text, (long long)n, text);
	return status;
}

// Adds a source for each array of FILE.npz.
static int open_all(struct amos_sources *all, const char *path)
{
	int first;
	int64_t n;
	int status = open_file(all, path, &first, &n);
	for (int i = first; !status && i < first + n; i++) {
		const char *name = all->files[i].array.name;
		if (!name)
			return amos_fail(AMOS_INPUT, "--data %s: expected an input name, NAME=%s",
			                 path, path);
		struct amos_source *source = NULL;
		status = add_source(all, name, strlen(name), &source);
		if (!status) {
			source->file = i;
			source->fill = AMOS_ABSENT;
			source->by_name = true;
		}
	}
	return status;
}

int amos_sources_open(struct amos_sources *all, const struct amos_list *list)
{
	*all = (struct amos_sources){0};
	int status = AMOS_DONE;
	for (int i = 0; !status && i < list->count; i++) {
		const char *equals = strchr(list->at[i], '=');
		if (!equals || equals == list->at[i]) {
			status = open_all(all, list->at[i]);
			continue;
		}
		struct amos_source *source = NULL;
		status = add_source(all, list->at[i], (size_t)(equals - list->at[i]), &source);
		char *text = status ? NULL : strdup(equals + 1);
		if (!status)
			status = text ? open_source(all, source, text) : amos_no_memory("--data");
		free(text);
	}
	return status;
}

void amos_sources_close(struct amos_sources *all)
{
	for (int i = 0; i < all->nfiles; i++) {
		free(all->files[i].text);
		amos_array_free(&all->files[i].array);
	}
	for (int i = 0; i < all->count; i++)
		free(all->at[i].name);
	free(all->files);
	free(all->at);
	*all = (struct amos_sources){0};
}

const struct amos_source *amos_source_of(const struct amos_sources *all, const char *input)
{
	for (int i = 0; i < all->count; i++)
		if (!strcmp(all->at[i].name, input))
			return &all->at[i];
	return NULL;
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
	return data->sources.files[source->file].text;
}

int amos_data_take(struct amos_data *data, int n, const char *const *inputs)
{
	const struct amos_sources *all = &data->sources;
	const char *file = NULL;
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
	char **unused = &data->unused;
	*unused = strdup("");
	for (int i = 0; i < all->count; i++) { // one line per file
		const struct amos_source *source = &all->at[i];
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

const char *amos_data_unused(const struct amos_data *data)
{
	return data->unused ? data->unused : "";
}
