// source.c: parses --data: NAME=SOURCE with its wrappers, or a file of named arrays.
// Finds arrays of files that no input takes. Invariant: a file named twice is opened once.
#include "rt.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void close_opened(struct amos_opened *file)
{
	free(file->text);
	amos_array_free(&file->array);
	amos_recordings_free(&file->recordings);
	amos_images_free(file->images);
}

// Adds a copy of `file` and takes what it owns.
static int add_opened(struct amos_data *data, const char *text, struct amos_opened *file)
{
	file->text = strdup(text);
	if (!file->text || !amos_grow((void **)&data->files, &data->file_room,
	                              (size_t)data->nfiles + 1, sizeof *data->files))
		return amos_no_memory("--data");
	data->files[data->nfiles++] = *file;
	*file = (struct amos_opened){0};
	return AMOS_DONE;
}

static int open_arrays(struct amos_data *data, const char *text)
{
	struct amos_arrays arrays = {0};
	int status = amos_arrays_open(text, &arrays);
	for (int64_t i = 0; !status && i < arrays.n; i++) {
		struct amos_opened file = {.array = arrays.at[i], .counting = arrays.counting};
		arrays.at[i] = (struct amos_array){0};
		status = add_opened(data, text, &file);
		close_opened(&file);
	}
	amos_npz_free(arrays.n, arrays.at);
	return status;
}

// PATH[:VOCABULARY]
static int open_text(struct amos_opened *to, const char *source)
{
	char *path = strdup(source), *colon = NULL;
	if (path && access(path, F_OK))
		colon = strrchr(path, ':');
	if (colon)
		*colon++ = 0;
	to->token = true;
	int status = path ? amos_text_open(path, colon, &to->array, &to->vocabulary)
	                  : amos_no_memory("--data");
	free(path);
	return status;
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

static int open_file(struct amos_data *, const char *text, int *index, int64_t *n);

// Opens a source that must be one array; *index is valid until another is opened.
static int open_one(struct amos_data *data, const char *text, int *index)
{
	int64_t n;
	int status = open_file(data, text, index, &n);
	if (!status && n != 1)
		status = amos_fail(
		    AMOS_INPUT,
		    "--data %s: the file contains %lld arrays; expected the name of one, %s:KEY",
		    text, (long long)n, text);
	return status;
}

// SOURCE; SIZE[, STEP], in place
static int open_windows(struct amos_data *data, char *text, struct amos_opened *to)
{
	char *sizes = strrchr(text, ';');
	long long size = 0, step = 0;
	int used = 0, from;
	if (sizes) {
		*sizes++ = 0;
		if (sscanf(sizes, "%18lld %n, %18lld %n", &size, &used, &step, &used) == 1)
			step = size;
	}
	if (size < 1 || step < 1 || sizes[used])
		return amos_fail(AMOS_INPUT,
		                 "--data windows(%s): expected windows(SOURCE; SIZE) or "
		                 "windows(SOURCE; SIZE, STEP), in elements from 1",
		                 text);
	int status = open_one(data, text, &from);
	return status ? status : amos_windows_cut(&data->files[from], size, step, to);
}

// Opens a source that is computed from another one, or text:, wav: or images:. *other: it is none
// of these.
static int open_special(struct amos_data *data, char *text, struct amos_opened *to, bool *other)
{
	int from, status;
	if (!strncmp(text, "text:", 5))
		return open_text(to, text + 5);
	if (!strncmp(text, "wav:", 4)) {
		to->wave = true;
		return amos_wav_open(text + 4, &to->array, &to->recordings);
	}
	if (!strncmp(text, "images:", 7))
		return amos_images_open(text + 7, data->threads, to);
	if (unwrap(&text, "windows"))
		return open_windows(data, text, to);
	*other = !unwrap(&text, "classes");
	status = *other ? AMOS_DONE : open_one(data, text, &from);
	return status || *other ? status : amos_classes(&data->files[from], to);
}

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
	struct amos_opened file = {0};
	bool other = false;
	char *copy = strdup(text);
	int status = copy ? open_special(data, copy, &file, &other) : amos_no_memory("--data");
	*index = data->nfiles;
	if (!status)
		status = other ? open_arrays(data, text) : add_opened(data, text, &file);
	*n = data->nfiles - *index;
	close_opened(&file);
	free(copy);
	return status;
}

// Sets *to to the source of an input that is given again: NAME=SOURCE takes the place of an array
// of FILE.npz, and keeps it; NULL: that array is not used.
static int given_again(struct amos_source *source, bool by_name, struct amos_source **to)
{
	*to = by_name ? NULL : source;
	if (source->by_name == by_name)
		return amos_fail(AMOS_INPUT, "--data %s: given twice", source->name);
	if (!by_name)
		*source = (struct amos_source){.name = source->name};
	return AMOS_DONE;
}

static int add_source(struct amos_data *data, const char *name, size_t length, bool by_name,
                      struct amos_source **to)
{
	for (int i = 0; i < data->nsources; i++)
		if (strlen(data->sources[i].name) == length &&
		    !strncmp(data->sources[i].name, name, length))
			return given_again(&data->sources[i], by_name, to);
	char *copy = strndup(name, length);
	if (!copy || !amos_grow((void **)&data->sources, &data->source_room,
	                        (size_t)data->nsources + 1, sizeof *data->sources)) {
		free(copy);
		return amos_no_memory("--data");
	}
	struct amos_source *source = &data->sources[data->nsources];
	*source = (struct amos_source){.name = copy, .by_name = by_name};
	data->nsources++;
	*to = source;
	return AMOS_DONE;
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
		status = add_source(data, name, strlen(name), true, &source);
		if (source) {
			source->file = i;
			source->fill = AMOS_ABSENT;
		}
	}
	return status;
}

// Frees the arrays that only others were made from.
static void free_intermediate(struct amos_data *data)
{
	for (int i = 0; i < data->nfiles; i++) {
		bool used = false;
		for (int k = 0; k < data->nsources; k++)
			used |= data->sources[k].fill == AMOS_ABSENT && data->sources[k].file == i;
		if (!used)
			amos_array_free(&data->files[i].array);
	}
}

// Returns the '=' of NAME=SOURCE; NULL: `text` is a file of named arrays, whose path may have one.
static const char *find_equals(const char *text)
{
	const char *equals = strchr(text, '=');
	return equals && equals != text && access(text, F_OK) ? equals : NULL;
}

int amos_sources_open(struct amos_data *data, const struct amos_list *list)
{
	int status = AMOS_DONE;
	for (int i = 0; !status && i < list->count; i++) {
		const char *equals = find_equals(list->at[i]);
		if (!equals) {
			status = open_all(data, list->at[i]);
			continue;
		}
		struct amos_source *source = NULL;
		status =
		    add_source(data, list->at[i], (size_t)(equals - list->at[i]), false, &source);
		char *text = status ? NULL : strdup(equals + 1);
		if (!status)
			status = text ? open_source(data, source, text) : amos_no_memory("--data");
		free(text);
	}
	if (!status)
		free_intermediate(data);
	return status;
}

void amos_sources_close(struct amos_data *data)
{
	for (int i = 0; i < data->nfiles; i++)
		close_opened(&data->files[i]);
	for (int i = 0; i < data->nsources; i++) {
		free(data->sources[i].name);
		amos_array_free(&data->sources[i].array);
	}
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
