// npz.c: reads and writes .npz files, NumPy's zip files of arrays.
#include "zip.h"
#include <stdlib.h>
#include <string.h>

// ---- reading --------------------------------------------------------------------------

static int read_entry(const struct amos_zip_entry *entry, const char *path,
                      struct amos_array *array)
{
	char where[1024];
	struct amos_blob blob;
	snprintf(where, sizeof where, "%s:%s", path, array->name);
	int status = amos_zip_read(entry, where, &blob);
	if (!status)
		status = amos_array_npy(array, where, &blob);
	amos_blob_free(&blob);
	return status;
}

int amos_arrays_npz(const char *path, const char *key, struct amos_arrays *to)
{
	struct amos_zip zip = {0};
	struct amos_zip_entry entry;
	int status = amos_zip_open(path, &zip);
	while (!status && !(status = amos_zip_next(&zip, &entry)) && entry.name) {
		size_t size = entry.length < 4 ? 0 : entry.length - 4;
		if (!size || memcmp(entry.name + size, ".npy", 4)) // not an array
			continue;
		if (key && (strlen(key) != size || memcmp(entry.name, key, size)))
			continue;
		struct amos_array *array = amos_arrays_add(to, path, entry.name, size);
		if (array && amos_index(array->name, to->at, to->n - 1, sizeof *array) >= 0)
			status = amos_fail(AMOS_INPUT, "%s: two arrays are called '%s'", path,
			                   array->name);
		else
			status = array ? read_entry(&entry, path, array) : AMOS_MACHINE;
	}
	amos_zip_close(&zip);
	return status;
}

// ---- writing --------------------------------------------------------------------------

// Returns the header and elements of one array, to be freed by the caller; NULL: out of memory.
static char *npy_bytes(const struct amos_array *array, size_t *count)
{
	int type = array->type == AMOS_bf16 ? AMOS_f32 : array->type;
	int64_t elements = amos_elements(array->rank, array->dim);
	char shape[256] = "", header[512];
	for (int a = 0, at = 0; a < array->rank; a++)
		at += snprintf(shape + at, sizeof shape - (size_t)at, "%lld,%s",
		               (long long)array->dim[a], a + 1 < array->rank ? " " : "");
	int size = snprintf(header, sizeof header,
	                    "{'descr': '%c%s', 'fortran_order': False, 'shape': (%s), }",
	                    amos_types[type].bytes > 1 ? '<' : '|', amos_formats[type].npy, shape);
	size_t start = ((size_t)size + 11 + 63) / 64 * 64; // elements begin at a multiple of 64
	*count = start + (size_t)(elements * amos_types[type].bytes);
	char *to = malloc(*count);
	if (!to)
		return NULL;
	memset(to, ' ', start);
	memcpy(to, "\x93NUMPY\x01\x00", 8);
	to[8] = (char)((start - 10) & 255);
	to[9] = (char)((start - 10) >> 8);
	memcpy(to + 10, header, (size_t)size);
	to[start - 1] = '\n';
	if (type == array->type)
		memcpy(to + start, array->bytes, *count - start);
	else
		for (int64_t i = 0; i < elements; i++)
			((float *)(to + start))[i] =
			    (float)amos_number(array->bytes, array->type, i);
	return to;
}

static bool write_entry(FILE *to, const struct amos_array *array, struct amos_zip_entry *entry)
{
	char *name = NULL;
	size_t count;
	void *bytes = npy_bytes(array, &count);
	int length = bytes ? asprintf(&name, "%s.npy", array->name) : -1;
	if (length >= 0) {
		*entry = (struct amos_zip_entry){.name = name,
		                                 .length = (size_t)length,
		                                 .size = count,
		                                 .bytes = bytes,
		                                 .check = amos_crc(AMOS_CRC32, 0, bytes, count)};
		amos_zip_write(to, entry);
	}
	free(bytes);
	return length >= 0;
}

int amos_npz_write(const char *path, int64_t n, const struct amos_array *arrays)
{
	struct amos_temp_file file;
	int status = amos_file_open(&file, path);
	if (status)
		return status;
	struct amos_zip_entry *entries = calloc((size_t)n + 1, sizeof *entries);
	bool good = entries;
	for (int64_t i = 0; good && i < n; i++)
		good = write_entry(file.to, &arrays[i], &entries[i]);
	if (good)
		amos_zip_finish(file.to, n, entries);
	for (int64_t i = 0; entries && i < n; i++)
		free((char *)entries[i].name);
	free(entries);
	if (good)
		return amos_file_keep(&file);
	amos_file_drop(&file);
	return amos_no_memory(path);
}

bool amos_npz_named(const char *path)
{
	static const char *const others[] = {".npy",         ".csv",  ".json", ".jsonl",
	                                     ".safetensors", ".onnx", ".txt"};
	const char *dot = strrchr(path, '.');
	for (int k = 0; dot && k < COUNT(others); k++)
		if (!strcmp(dot, others[k]))
			return false;
	return true;
}
