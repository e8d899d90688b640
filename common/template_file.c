// template_file.c: writes a model by its template to files: the model, and its external data.
// The data come first, under a name that no file has: so any model at the path, old or new, has its
// own data next to it. To standard output the model goes as one file, with all data.
#include "abi.h"
#include "common.h"
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void put_bytes(void *file, const void *bytes, size_t count)
{
	fwrite(bytes, 1, count, file); // amos_file_keep() finds what could not be written
}

static int write_part(const struct amos_weights *w, enum amos_file_part part, const char *data,
                      const char *path, enum amos_name name)
{
	struct amos_temp_file file;
	int status = amos_file_begin(&file, path, name);
	if (status)
		return status;
	amos_template_write(w, part, data, put_bytes, file.to);
	return amos_file_keep(&file);
}

// ---- external data --------------------------------------------------------------------

// Writes the k-th of PATH.data, PATH.2.data, ... to *name, to be freed by the caller.
static bool data_path(const char *path, int k, char **name)
{
	return (k ? asprintf(name, "%s.%d.data", path, k + 1) : asprintf(name, "%s.data", path)) >=
	       0;
}

static const char *last_part(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

// Returns the first such path that no file has, to be freed by the caller; NULL: out of memory.
static char *free_data_path(const char *path)
{
	struct stat about;
	char *name;
	for (int k = 0; data_path(path, k, &name); k++) {
		if (lstat(name, &about))
			return name;
		free(name);
	}
	return NULL;
}

// Maps the regular file that is there; NULL: there is none.
static void *map_file(const char *path, size_t *count)
{
	struct stat about;
	int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	bool regular = file >= 0 && !fstat(file, &about) && S_ISREG(about.st_mode) && about.st_size;
	void *at = MAP_FAILED;
	*count = regular ? (size_t)about.st_size : 0;
	if (regular)
		at = mmap(NULL, *count, PROT_READ, MAP_PRIVATE, file, 0);
	if (file >= 0)
		close(file);
	return at == MAP_FAILED ? NULL : at;
}

// Removes files of data that `model`, the old file at `path`, names, except `kept`.
static void remove_old_data(const char *path, const void *model, size_t count, const char *kept)
{
	enum { MOST = 16 };
	char *old;
	for (int k = 0; k < MOST && data_path(path, k, &old); k++) {
		const char *name = last_part(old);
		if (strcmp(old, kept) && memmem(model, count, name, strlen(name)) &&
		    !amos_output_check(old))
			unlink(old);
		free(old);
	}
}

static int write_with_data(const struct amos_weights *w, const char *path)
{
	size_t count;
	char *data = free_data_path(path);
	if (!data)
		return amos_no_memory(path);
	void *old = map_file(path, &count);
	int status = write_part(w, AMOS_FILE_DATA, last_part(data), data, AMOS_FRESH);
	if (!status) {
		status = write_part(w, AMOS_FILE_MODEL, last_part(data), path, AMOS_NAMED);
		if (status)
			unlink(data);
	}
	if (!status && old)
		remove_old_data(path, old, count, data);
	if (old)
		munmap(old, count);
	free(data);
	return status;
}

// Fails if the model with all its data is too large for one file.
static int check_stream(const struct amos_weights *w, const char *path)
{
	if (amos_template_write(w, AMOS_FILE_MODEL, NULL, NULL, NULL) <= INT32_MAX)
		return AMOS_DONE;
	return amos_fail(AMOS_INPUT,
	                 "%s: the model has more than 2 GiB, and needs a second file" AMOS_HELP
	                 "give -o a file",
	                 path);
}

int amos_template_file(const struct amos_weights *w, const char *path)
{
	int status = amos_template_check(w, path);
	bool apart = w->file->ndata && !amos_is_stream(path);
	if (!status && w->file->ndata && !apart)
		status = check_stream(w, path);
	if (status)
		return status;
	return apart ? write_with_data(w, path)
	             : write_part(w, AMOS_FILE_MODEL, NULL, path, AMOS_NAMED);
}
