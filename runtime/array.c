// array.c: reads a file's bytes and the arrays in them.
// Files are mapped, or read if compressed or a pipe.
// Invariant: no header is trusted before it agrees with the file's size.
#include "rt.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

// ---- bytes ----------------------------------------------------------------------------

static int read_failure(gzFile file, const char *path)
{
	int code;
	gzerror(file, &code);
	return code == Z_ERRNO       ? amos_fail_errno("read", path)
	       : code == Z_MEM_ERROR ? amos_no_memory(path)
	                             : amos_fail(AMOS_INPUT, "%s: corrupt compressed data", path);
}

// Reads the rest of a gzip file (or an uncompressed one) into blob->base.
static int read_all(gzFile file, const char *path, struct amos_blob *blob)
{
	size_t room = 0;
	for (;;) {
		if (blob->count == room) {
			room = room ? 2 * room : 1 << 20;
			void *more = realloc(blob->base, room);
			if (!more)
				return amos_fail(AMOS_MACHINE, "%s: out of memory", path);
			blob->base = more;
		}
		size_t size = room - blob->count < 1 << 30 ? room - blob->count : 1 << 30;
		int got = gzread(file, (char *)blob->base + blob->count, (unsigned)size);
		if (got < 0)
			return read_failure(file, path);
		if (got == 0)
			break;
		blob->count += (size_t)got;
	}
	int status;
	gzerror(file, &status);
	if (status == Z_BUF_ERROR)
		return amos_fail(AMOS_INPUT, "%s: truncated file", path);
	blob->at = blob->base;
	return blob->count ? AMOS_DONE : amos_fail(AMOS_INPUT, "%s: the file is empty", path);
}

// Reads all of a compressed file or a pipe, and closes it.
static int read_file(int file, const char *path, struct amos_blob *blob)
{
	*blob = (struct amos_blob){0};
	gzFile from = gzdopen(file, "rb");
	if (!from) {
		close(file);
		return amos_fail(AMOS_MACHINE, "%s: out of memory", path);
	}
	int status = read_all(from, path, blob);
	gzclose(from);
	if (status)
		amos_blob_free(blob);
	return status;
}

static int map_file(int file, size_t size, const char *path, struct amos_blob *blob)
{
	void *at = size ? mmap(NULL, size, PROT_READ, MAP_PRIVATE, file, 0) : NULL;
	int status = at == MAP_FAILED ? amos_fail_errno("map", path) : AMOS_DONE;
	close(file);
	if (status)
		return status;
	if (!size)
		return amos_fail(AMOS_INPUT, "%s: the file is empty", path);
	*blob = (struct amos_blob){at, size, at, size};
	return AMOS_DONE;
}

int amos_blob_open(const char *path, bool compressed, struct amos_blob *blob)
{
	*blob = (struct amos_blob){0};
	int file = amos_input(path, 0);
	struct stat about;
	if (file < 0)
		return amos_fail_errno("read", path);
	if (fstat(file, &about) || S_ISDIR(about.st_mode)) {
		errno = S_ISDIR(about.st_mode) ? EISDIR : errno;
		close(file);
		return amos_fail_errno("read", path);
	}
	return compressed || S_ISFIFO(about.st_mode)
	           ? read_file(file, path, blob)
	           : map_file(file, (size_t)about.st_size, path, blob);
}

void amos_blob_free(struct amos_blob *blob)
{
	if (blob->mapped)
		munmap(blob->base, blob->mapped);
	else
		free(blob->base);
	*blob = (struct amos_blob){0};
}

// ---- arrays ---------------------------------------------------------------------------

int64_t amos_count(int rank, const int64_t *dim)
{
	int64_t count = 1;
	for (int a = 0; a < rank; a++)
		if (dim[a] < 0 || __builtin_mul_overflow(count, dim[a], &count) ||
		    count > INT64_MAX / 16)
			return -1;
	return count;
}

const char *amos_shape_text(char *to, size_t room, int type, int rank, const int64_t *dim)
{
	int at = snprintf(to, room, "%s[", amos_types[type].name);
	for (int a = 0; a < rank; a++)
		at += snprintf(to + at, room - (size_t)at, dim[a] < 0 ? "%s?" : "%s%lld",
		               a ? "," : "", (long long)dim[a]);
	snprintf(to + at, room - (size_t)at, "]");
	return to;
}

int amos_array_take(struct amos_array *array, const char *where, struct amos_blob *blob,
                    size_t offset)
{
	size_t item = (size_t)amos_types[array->type].bytes;
	int64_t count = amos_count(array->rank, array->dim);
	size_t bytes = (size_t)count * item;
	if (count < 0 || offset > blob->count || blob->count - offset < bytes)
		return amos_fail(
		    AMOS_INPUT,
		    "%s: truncated; expected %lld elements of %s by its header, found %lld", where,
		    (long long)count, amos_types[array->type].name,
		    (long long)(offset > blob->count ? 0 : (blob->count - offset) / item));
	struct amos_blob *own = malloc(sizeof *own);
	if (!own)
		return amos_fail(AMOS_MACHINE, "%s: out of memory", where);
	if ((uintptr_t)(blob->at + offset) % item) {
		void *copy = malloc(bytes ? bytes : 1);
		if (!copy) {
			free(own);
			return amos_fail(AMOS_MACHINE, "%s: out of memory", where);
		}
		memcpy(copy, blob->at + offset, bytes);
		amos_blob_free(blob);
		*blob = (struct amos_blob){copy, bytes, copy, 0};
		offset = 0;
	}
	*own = *blob;
	*blob = (struct amos_blob){0};
	array->bytes = own->at + offset;
	array->own = own;
	return AMOS_DONE;
}

char *amos_array_name(char *name)
{
	size_t count = name ? amos_visible(NULL, 0, name, false) : 0;
	if (!name || count == strlen(name))
		return name; // unchanged, also if an earlier output escaped it already
	count = amos_visible(NULL, 0, name, true);
	char *shown = malloc(count + 1);
	if (shown)
		amos_visible(shown, count + 1, name, true);
	free(name);
	return shown;
}

void amos_array_free(struct amos_array *array)
{
	if (array->own)
		amos_blob_free(array->own);
	free(array->own);
	free((char *)array->name);
	*array = (struct amos_array){0};
}

void amos_npz_free(int64_t n, struct amos_array *arrays)
{
	for (int64_t i = 0; i < n; i++)
		amos_array_free(&arrays[i]);
	free(arrays);
}

// Replaces the array's bytes by a writable copy.
static int own_copy(struct amos_array *array, const char *where)
{
	size_t bytes =
	    (size_t)(amos_count(array->rank, array->dim) * amos_types[array->type].bytes);
	struct amos_blob *own = array->own;
	void *copy = malloc(bytes ? bytes : 1);
	if (!copy)
		return amos_fail(AMOS_MACHINE, "%s: out of memory", where);
	memcpy(copy, array->bytes, bytes);
	amos_blob_free(own);
	*own = (struct amos_blob){copy, bytes, copy, 0};
	array->bytes = copy;
	return AMOS_DONE;
}

int amos_array_swap(struct amos_array *array, const char *where)
{
	int status = own_copy(array, where);
	if (status)
		return status;
	int item = amos_types[array->type].bytes;
	int64_t count = amos_count(array->rank, array->dim);
	for (char *at = (char *)array->bytes; count--; at += item)
		for (int i = 0; i < item / 2; i++) {
			char swapped = at[i];
			at[i] = at[item - 1 - i];
			at[item - 1 - i] = swapped;
		}
	return AMOS_DONE;
}
