// text.c: reads text files as byte tokens.
// Directories are read in byte order of names, so the same files give the same tokens everywhere;
// hidden files are left out. A vocabulary is a text file with one token per line, from 0: the byte
// itself, or \xHH if it is not printable.
#include "rt.h"
#include <stdlib.h>
#include <string.h>

struct tokens {
	const char *root;
	struct amos_blob all;
	size_t room;
};

static int add_file(void *context, const char *path)
{
	struct tokens *to = context;
	struct amos_blob one;
	if (amos_is_hidden(to->root, path))
		return AMOS_DONE;
	int status = amos_blob_open(path, false, &one);
	if (!status && !amos_grow((void **)&to->all.at, &to->room, to->all.count + one.count, 1))
		status = amos_no_memory(path);
	if (!status) {
		memcpy(to->all.at + to->all.count, one.at, one.count);
		to->all.count += one.count;
	}
	amos_blob_free(&one);
	return status;
}

static int read_folder(const char *path, struct amos_blob *all)
{
	struct tokens tokens = {.root = path};
	int status = amos_walk(path, add_file, &tokens);
	if (!status && !tokens.all.count)
		status = amos_fail(AMOS_INPUT, "%s: no text in the directory", path);
	if (status)
		amos_blob_free(&tokens.all);
	*all = tokens.all;
	return status;
}

// ---- vocabularies ---------------------------------------------------------------------

static int read_vocabulary(const char *path, struct amos_vocabulary *vocabulary)
{
	FILE *file = amos_input_stream(path);
	if (!file)
		return amos_fail_errno("read", path);
	char line[64];
	int status = AMOS_DONE;
	bool seen[256] = {0};
	while (!status && fgets(line, sizeof line, file)) {
		size_t length = strcspn(line, "\r\n");
		int byte = length == 1 ? (unsigned char)line[0] : -1, used = 0;
		unsigned code;
		if (length == 4 && sscanf(line, "\\x%2x%n", &code, &used) == 1 && used == 4)
			byte = (int)code;
		if (byte < 0 || seen[byte])
			status = amos_fail(
			    AMOS_INPUT,
			    "%s: line %d %s; expected one byte per line, as itself or as \\xHH",
			    path, vocabulary->count + 1,
			    byte < 0 ? "is not a byte" : "repeats a byte");
		else
			vocabulary->byte[vocabulary->count++] = (unsigned char)byte;
		if (byte >= 0)
			seen[byte] = true;
	}
	if (!status)
		status = amos_all_read(file, path);
	fclose(file);
	if (!status && !vocabulary->count)
		status = amos_fail(AMOS_INPUT, "%s: the vocabulary is empty", path);
	return status;
}

int amos_vocabulary_write(const struct amos_vocabulary *vocabulary, const char *path)
{
	struct amos_temp_file file;
	int status = amos_file_begin(&file, path, AMOS_OWN);
	if (status)
		return status;
	for (int i = 0; i < vocabulary->count; i++) {
		int byte = vocabulary->byte[i];
		fprintf(file.to, byte > ' ' && byte < 127 ? "%c\n" : "\\x%02x\n", byte);
	}
	return amos_file_keep(&file);
}

// Converts bytes to tokens in newly allocated memory.
static int tokens_of(const char *path, struct amos_blob *blob,
                     const struct amos_vocabulary *vocabulary)
{
	int token[256];
	memset(token, -1, sizeof token);
	for (int i = 0; i < vocabulary->count; i++)
		token[vocabulary->byte[i]] = i;
	unsigned char *to = malloc(blob->count);
	if (!to)
		return amos_no_memory(path);
	for (size_t i = 0; i < blob->count; i++) {
		int t = token[blob->at[i]];
		if (t < 0) {
			int byte = blob->at[i];
			free(to);
			return amos_fail(
			    AMOS_INPUT, "%s: byte \\x%02x at %zu is not in the vocabulary of %d %s",
			    path, byte, i, vocabulary->count,
			    PLURAL(vocabulary->count, "token", "tokens"));
		}
		to[i] = (unsigned char)t;
	}
	size_t count = blob->count;
	amos_blob_free(blob);
	*blob = (struct amos_blob){to, count, false};
	return AMOS_DONE;
}

int amos_text_open(const char *path, const char *name, struct amos_array *array,
                   struct amos_vocabulary *vocabulary)
{
	*vocabulary = (struct amos_vocabulary){0};
	struct amos_blob blob;
	int status =
	    amos_is_folder(path) ? read_folder(path, &blob) : amos_blob_open(path, false, &blob);
	if (status)
		return status;
	bool distinct = name && !strcmp(name, "auto"), seen[256] = {0};
	for (size_t i = 0; distinct && i < blob.count; i++)
		seen[blob.at[i]] = true;
	for (int b = 0; b < 256; b++)
		if (seen[b])
			vocabulary->byte[vocabulary->count++] = (unsigned char)b;
	if (name && !distinct)
		status = read_vocabulary(name, vocabulary);
	if (!status && name)
		status = tokens_of(path, &blob, vocabulary);
	array->type = AMOS_u8;
	array->rank = 1;
	array->dim[0] = (int64_t)blob.count;
	if (!status)
		status = amos_array_take(array, path, &blob, 0);
	amos_blob_free(&blob);
	return status;
}
