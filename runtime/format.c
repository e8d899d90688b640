// format.c: opens a data source as arrays, by the file's name and first bytes.
// Reads raw values and IDX itself.
#include "rt.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int type_named(const char *name)
{
	for (int t = 0; t < AMOS_TYPES; t++)
		if (!strcmp(amos_types[t].name, name))
			return t;
	return -1;
}

// ---- raw values, IDX ------------------------------------------------------------------

static int open_raw(const char *path, int type, struct amos_array *array)
{
	struct amos_blob blob;
	int status = amos_blob_open(path, false, &blob);
	if (status)
		return status;
	size_t item = (size_t)amos_types[type].bytes;
	array->type = type;
	array->rank = 1;
	array->dim[0] = (int64_t)(blob.count / item);
	status = blob.count % item
	             ? amos_fail(AMOS_INPUT, "%s: %zu bytes are not a multiple of the size of %s",
	                         path, blob.count, amos_types[type].name)
	             : amos_array_take(array, path, &blob, 0);
	amos_blob_free(&blob);
	return status;
}

// IDX: two zero bytes, type, rank, dimensions, elements, big endian (Y. LeCun's MNIST page).
static int idx_parse(struct amos_array *array, const char *path, struct amos_blob *blob)
{
	static const signed char types[16] = {
	    [8] = AMOS_u8 + 1,   [9] = AMOS_i8 + 1,   [11] = AMOS_i16 + 1,
	    [12] = AMOS_i32 + 1, [13] = AMOS_f32 + 1, [14] = AMOS_f64 + 1};
	const unsigned char *at = blob->at;
	if (blob->count < 4 || at[0] || at[1] || at[2] > 15 || !types[at[2]] || at[3] > 10 ||
	    blob->count < 4 + 4 * (size_t)at[3])
		return amos_fail(
		    AMOS_INPUT,
		    "%s: unknown file format; expected npy, npz, safetensors, IDX, "
		    "csv:COLUMNS, "
		    "jsonl:FIELD, FILE:TYPE (raw values: u8 u16 i32 f32 ...) or text:PATH",
		    path);
	array->type = types[at[2]] - 1;
	array->rank = at[3];
	for (int a = 0; a < array->rank; a++) {
		const unsigned char *d = at + 4 + 4 * a;
		array->dim[a] = (int64_t)d[0] << 24 | d[1] << 16 | d[2] << 8 | d[3];
	}
	int status = amos_array_take(array, path, blob, 4 + 4 * (size_t)array->rank);
	return status || amos_types[array->type].bytes == 1 ? status : amos_array_swap(array, path);
}

static bool ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), m = strlen(end);
	return n >= m && !strcmp(text + n - m, end);
}

static int open_plain(const char *path, struct amos_array *array)
{
	struct amos_blob blob;
	int status = amos_blob_open(path, ends_with(path, ".gz"), &blob);
	if (status)
		return status;
	if (blob.count >= 6 && !memcmp(blob.at, "\x93NUMPY", 6))
		return amos_array_npy(array, path, &blob);
	status = ends_with(path, ".npy") ? amos_fail(AMOS_INPUT, "%s: not an npy file", path)
	                                 : idx_parse(array, path, &blob);
	amos_blob_free(&blob);
	return status;
}

// ---- by file name ---------------------------------------------------------------------

static int open_one(const char *path, const char *after, struct amos_array *array)
{
	if (ends_with(path, ".csv"))
		return amos_array_csv(path, after, array);
	if (ends_with(path, ".jsonl"))
		return amos_array_jsonl(path, after, array);
	if (!after)
		return open_plain(path, array);
	int type = type_named(after);
	if (type < 0)
		return amos_fail(AMOS_INPUT,
		                 "%s:%s: expected a type after the colon: u8 u16 i32 i64 f32 ...",
		                 path, after);
	return open_raw(path, type, array);
}

static int open_path(const char *path, const char *after, int64_t *n, struct amos_array **arrays)
{
	if (ends_with(path, ".npz"))
		return amos_npz_open(path, after, n, arrays);
	if (ends_with(path, ".safetensors"))
		return amos_arrays_safetensors(path, after, n, arrays);
	*arrays = calloc(1, sizeof **arrays);
	if (!*arrays)
		return amos_fail(AMOS_MACHINE, "%s: out of memory", path);
	*n = 1;
	int status = open_one(path, after, *arrays);
	if (status) {
		amos_npz_free(*n, *arrays);
		*n = 0;
		*arrays = NULL;
	}
	return status;
}

// Opens PATH[:KEY], where both may contain colons: the shortest PATH that exists is used, else
// everything up to the last colon.
int amos_arrays_open(const char *source, int64_t *n, struct amos_array **arrays)
{
	*n = 0;
	*arrays = NULL;
	char *path = strdup(source), *colon = path ? strchr(path, ':') : NULL;
	if (!path)
		return amos_fail(AMOS_MACHINE, "%s: out of memory", source);
	bool no_key = !colon || !access(source, F_OK);
	while (!no_key) {
		*colon = 0;
		char *next = strchr(colon + 1, ':');
		if (!next || !access(path, F_OK))
			break;
		*colon = ':';
		colon = next;
	}
	int status = open_path(path, no_key ? NULL : colon + 1, n, arrays);
	free(path);
	return status;
}
