// array.c: reads a file's bytes and the arrays in them.
// Invariant: no header is trusted before it agrees with the file's size.
#include "rt.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- bytes ----------------------------------------------------------------------------

bool amos_grow(void **at, size_t *room, size_t count, size_t item)
{
	if (count <= *room)
		return true;
	void *more = realloc(*at, 2 * count * item);
	if (!more)
		return false;
	*at = more;
	*room = 2 * count;
	return true;
}

// Reads all of a pipe and closes it.
static int read_pipe(int file, const char *path, struct amos_blob *blob)
{
	enum { BLOCK = 1 << 16 };
	size_t room = 0;
	ssize_t got = 1;
	int status = AMOS_DONE;
	while (!status && got) {
		bool grown = amos_grow((void **)&blob->at, &room, blob->count + BLOCK, 1);
		got = grown ? read(file, blob->at + blob->count, BLOCK) : 0;
		if (!grown)
			status = amos_no_memory(path);
		else if (got < 0 && errno != EINTR)
			status = amos_fail_errno("read", path);
		else
			blob->count += got < 0 ? 0 : (size_t)got;
	}
	close(file);
	return status;
}

int amos_blob_open(const char *path, bool compressed, struct amos_blob *blob)
{
	return amos_blob_take(amos_input(path, 0), path, compressed, blob);
}

int amos_blob_take(int file, const char *path, bool compressed, struct amos_blob *blob)
{
	*blob = (struct amos_blob){0};
	struct stat about;
	if (file < 0)
		return amos_fail_errno("read", path);
	if (fstat(file, &about) || S_ISDIR(about.st_mode)) {
		errno = S_ISDIR(about.st_mode) ? EISDIR : errno;
		close(file);
		return amos_fail_errno("read", path);
	}
	bool regular = S_ISREG(about.st_mode);
	if (!regular && !S_ISFIFO(about.st_mode)) {
		close(file);
		return amos_fail(AMOS_INPUT, "%s: neither a regular file nor a pipe", path);
	}
	if (compressed || !regular || !about.st_size) { // the size of a file in /proc is 0
		int status = (compressed ? amos_gunzip : read_pipe)(file, path, blob);
		if (!status && !blob->count)
			status = amos_fail(AMOS_INPUT, "%s: the file is empty", path);
		if (status)
			amos_blob_free(blob);
		return status;
	}
	size_t size = (size_t)about.st_size;
	if ((off_t)size != about.st_size) { // a pointer may have 32 bits
		errno = EFBIG;
		close(file);
		return amos_fail_errno("map", path);
	}
	void *at = mmap(NULL, size, PROT_READ, MAP_PRIVATE, file, 0);
	int status = at == MAP_FAILED ? amos_fail_errno("map", path) : AMOS_DONE;
	close(file);
	if (!status)
		*blob = (struct amos_blob){at, size, true};
	return status;
}

void amos_blob_free(struct amos_blob *blob)
{
	if (blob->mapped)
		munmap(blob->at, blob->count);
	else
		free(blob->at);
	*blob = (struct amos_blob){0};
}

// ---- arrays ---------------------------------------------------------------------------

int amos_array_reorder(struct amos_array *array, const char *where, bool swap, bool fortran)
{
	int64_t count = amos_elements(array->rank, array->dim), index[10] = {0}, at = 0;
	size_t item = (size_t)amos_types[array->type].bytes, bytes = (size_t)count * item;
	char *to = malloc(bytes + 1);
	if (!to)
		return amos_no_memory(where);
	if (!swap && !fortran)
		memcpy(to, array->bytes, bytes);
	for (int64_t i = 0; (swap || fortran) && i < count; i++) {
		const char *from = (const char *)array->bytes + (size_t)at * item;
		for (size_t k = 0; k < item; k++)
			to[(size_t)i * item + k] = from[swap ? item - 1 - k : k];
		at = i + 1;
		if (!fortran)
			continue;
		// Advances the row-major index, and finds its column-major position.
		for (int a = array->rank; a-- > 0 && ++index[a] == array->dim[a];)
			index[a] = 0;
		at = 0;
		for (int a = array->rank; a-- > 0;)
			at = at * array->dim[a] + index[a];
	}
	amos_blob_free(&array->own);
	array->own = (struct amos_blob){(void *)to, bytes, false};
	array->bytes = to;
	return AMOS_DONE;
}

int amos_array_take(struct amos_array *array, const char *where, struct amos_blob *blob,
                    size_t offset)
{
	size_t item = (size_t)amos_types[array->type].bytes;
	int64_t count = amos_elements(array->rank, array->dim);
	if (count < 0)
		return amos_fail(AMOS_INPUT, "%s: corrupt; more than 2^59 elements by its header",
		                 where);
	if (offset > blob->count || count > (int64_t)((blob->count - offset) / item))
		return amos_fail(
		    AMOS_INPUT, "%s: truncated; expected %lld %s of %s by its header, found %lld",
		    where, (long long)count, PLURAL(count, "element", "elements"),
		    amos_types[array->type].name,
		    (long long)(offset > blob->count ? 0 : (blob->count - offset) / item));
	array->own = *blob;
	*blob = (struct amos_blob){0};
	array->bytes = array->own.at + offset;
	return (uintptr_t)array->bytes % item ? amos_array_reorder(array, where, false, false)
	                                      : AMOS_DONE;
}

int amos_array_take_all(struct amos_array *array, const char *where, struct amos_blob *blob,
                        size_t offset)
{
	size_t found = blob->count;
	int status = amos_array_take(array, where, blob, offset);
	if (status)
		return status;
	int64_t count = amos_elements(array->rank, array->dim);
	size_t bytes = offset + (size_t)(count * amos_types[array->type].bytes);
	return found == bytes ? AMOS_DONE
	                      : amos_fail(AMOS_INPUT,
	                                  "%s: expected one array, of %zu bytes by its header; "
	                                  "found %zu bytes",
	                                  where, bytes, found);
}

char *amos_escaped(const char *text, bool exact)
{
	size_t room = amos_visible(NULL, 0, text, exact) + 1;
	char *to = malloc(room);
	if (to)
		amos_visible(to, room, text, exact);
	return to;
}

struct amos_array *amos_arrays_add(struct amos_arrays *to, const char *path, const char *name,
                                   size_t length)
{
	char *shown = NULL, *plain = name ? strndup(name, length) : NULL;
	if (plain) // as it is if an earlier output escaped it already
		shown = amos_escaped(plain, amos_visible(NULL, 0, plain, false) != length);
	free(plain);
	if ((name && !shown) ||
	    !amos_grow((void **)&to->at, &to->room, (size_t)to->n + 1, sizeof *to->at)) {
		free(shown);
		amos_no_memory(path);
		return NULL;
	}
	struct amos_array *array = &to->at[to->n++];
	*array = (struct amos_array){.name = shown};
	return array;
}

void amos_array_free(struct amos_array *array)
{
	amos_blob_free(&array->own);
	free((char *)array->name);
	*array = (struct amos_array){0};
}

void amos_npz_free(int64_t n, struct amos_array *arrays)
{
	for (int64_t i = 0; i < n; i++)
		amos_array_free(&arrays[i]);
	free(arrays);
}
