// text.c: reads text files as byte tokens.
// Directories are read in byte order of names, so the same files give the same tokens everywhere. A
// vocabulary is a text file with one token per line, from 0: the byte itself, or \xHH if it is not
// printable.
#include "rt.h"
#include <errno.h>
#include <fts.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int by_name(const FTSENT **a, const FTSENT **b)
{
	return strcmp((*a)->fts_name, (*b)->fts_name);
}

static int read_folder(const char *path, struct amos_blob *all)
{
	*all = (struct amos_blob){0};
	char *paths[] = {(char *)path, NULL};
	FTS *walk = fts_open(paths, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, by_name);
	if (!walk)
		return amos_fail_errno("read", path);
	int status = AMOS_DONE;
	size_t room = 0;
	for (FTSENT *entry; !status && (entry = fts_read(walk));) {
		// Links to directories are not followed, since they may form cycles.
		struct stat about = *entry->fts_statp;
		bool link = entry->fts_info == FTS_SL && !stat(entry->fts_accpath, &about);
		bool file = entry->fts_info == FTS_F || (link && S_ISREG(about.st_mode));
		if (file && about.st_size) {
			struct amos_blob one;
			status = amos_blob_open(entry->fts_accpath, false, &one);
			if (!status &&
			    !amos_grow((void **)&all->at, &room, all->count + one.count, 1))
				status = amos_no_memory(path);
			if (!status)
				memcpy(all->at + all->count, one.at, one.count);
			all->count += one.count;
			amos_blob_free(&one);
		}
		if (entry->fts_info == FTS_DNR || entry->fts_info == FTS_ERR) {
			errno = entry->fts_errno;
			status = amos_fail_errno("read", entry->fts_path);
		}
	}
	if (!status && errno)
		status = amos_fail_errno("read", path);
	fts_close(walk);
	if (!status && !all->count)
		status = amos_fail(AMOS_INPUT, "%s: no text in the directory", path);
	if (status)
		amos_blob_free(all);
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
			    AMOS_INPUT,
			    "%s: byte \\x%02x at %zu is not in the vocabulary of %d tokens", path,
			    byte, i, vocabulary->count);
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
	struct stat about;
	struct amos_blob blob;
	bool folder = !stat(path, &about) && S_ISDIR(about.st_mode);
	int status = folder ? read_folder(path, &blob) : amos_blob_open(path, false, &blob);
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
