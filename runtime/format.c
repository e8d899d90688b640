// format.c: opens a data source as arrays, by the file's name and first bytes.
// Reads raw values and IDX itself.
#include "rt.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct amos_format amos_formats[AMOS_TYPES] = {
#define FORMAT(type, npy, safetensors, idx) [AMOS_##type] = {npy, safetensors, idx},
#include "formats.def"
#undef FORMAT
};

// ---- raw values, IDX ------------------------------------------------------------------

// IDX: two zero bytes, type, rank, dimensions, elements, big endian (Y. LeCun's MNIST page).
static int idx_parse(struct amos_array *array, const char *path, struct amos_blob *blob)
{
	const unsigned char *at = blob->at;
	int type = AMOS_TYPES - 1;
	while (type >= 0 && (blob->count < 4 || !at[2] || at[2] != amos_formats[type].idx))
		type--;
	if (type < 0 || at[0] || at[1] || at[3] > 10 || blob->count < 4 + 4 * (size_t)at[3])
		return amos_fail(AMOS_INPUT,
		                 "%s: unknown file format; expected npy, npz, safetensors, IDX, "
		                 "csv:COLUMNS, "
		                 "jsonl:FIELD, FILE:TYPE (raw values: u8 u16 i32 f32 ...), "
		                 "text:PATH, wav:PATH or images:PATH",
		                 path);
	array->type = type;
	array->rank = at[3];
	for (int a = 0; a < array->rank; a++) {
		const unsigned char *d = at + 4 + 4 * a;
		array->dim[a] = (int64_t)d[0] << 24 | d[1] << 16 | d[2] << 8 | d[3];
	}
	int status = amos_array_take_all(array, path, blob, 4 + 4 * (size_t)array->rank);
	return status || amos_types[array->type].bytes == 1
	           ? status
	           : amos_array_reorder(array, path, true, false);
}

static bool ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), m = strlen(end);
	return n >= m && !strcmp(text + n - m, end);
}

// Opens raw values of the type `name`, or without one an npy or IDX file, by its first bytes.
static int open_other(const char *path, const char *name, struct amos_arrays *to)
{
	int type = name ? amos_index(name, amos_types, AMOS_TYPES, sizeof *amos_types) : 0;
	if (type < 0)
		return amos_fail(AMOS_INPUT,
		                 "%s:%s: expected a type after the colon: u8 u16 i32 i64 f32 ...",
		                 path, name);
	struct amos_array *array = amos_arrays_add(to, path, NULL, 0);
	struct amos_blob blob;
	int status = array ? amos_blob_open(path, ends_with(path, ".gz"), &blob) : AMOS_MACHINE;
	if (status)
		return status;
	bool npy = blob.count >= 6 && !memcmp(blob.at, "\x93NUMPY", 6);
	if (name && npy) {
		status =
		    amos_fail(AMOS_INPUT,
		              "%s:%s: an npy file, which says its type itself" HELP "give %s alone",
		              path, name, path);
	} else if (name) {
		size_t item = (size_t)amos_types[type].bytes;
		array->type = type;
		array->rank = 1;
		array->dim[0] = (int64_t)(blob.count / item);
		status = blob.count % item
		             ? amos_fail(AMOS_INPUT,
		                         "%s: expected a multiple of %zu bytes, for %s; found %zu",
		                         path, item, amos_types[type].name, blob.count)
		             : amos_array_take(array, path, &blob, 0);
	} else if (npy) {
		status = amos_array_npy(array, path, &blob);
	} else {
		status = ends_with(path, ".npy")
		             ? amos_fail(AMOS_INPUT, "%s: not an npy file", path)
		             : idx_parse(array, path, &blob);
	}
	amos_blob_free(&blob);
	return status;
}

// ---- by file name ---------------------------------------------------------------------

typedef int opener(const char *path, const char *after, struct amos_arrays *);

static const struct {
	const char *end;
	opener *open;
} named[] = {{".npz", amos_arrays_npz},
             {".safetensors", amos_arrays_safetensors},
             {".csv", amos_arrays_csv},
             {".jsonl", amos_arrays_jsonl},
             {"", open_other}};

static int open_by(opener *open, const char *path, const char *after, struct amos_arrays *to)
{
	*to = (struct amos_arrays){0};
	int status = open(path, after, to);
	if (!status && !to->n)
		status = after ? amos_fail(AMOS_INPUT, "%s: no array '%s'", path, after)
		               : amos_fail(AMOS_INPUT, "%s: no arrays", path);
	if (status) {
		amos_npz_free(to->n, to->at);
		*to = (struct amos_arrays){0};
	}
	return status;
}

int amos_npz_read(const char *path, int64_t *n, struct amos_array **arrays)
{
	struct amos_arrays all;
	int status = open_by(amos_arrays_npz, path, NULL, &all);
	*n = all.n;
	*arrays = all.at;
	return status;
}

// Opens PATH[:KEY], where both may contain colons: the shortest PATH that exists is used, else
// everything up to the last colon.
int amos_arrays_open(const char *source, struct amos_arrays *to)
{
	char *path = strdup(source), *colon = path ? strchr(path, ':') : NULL;
	if (!path)
		return amos_no_memory(source);
	bool no_key = !colon || !access(source, F_OK);
	while (!no_key) {
		*colon = 0;
		char *next = strchr(colon + 1, ':');
		if (!next || !access(path, F_OK))
			break;
		*colon = ':';
		colon = next;
	}
	int format = 0;
	while (!ends_with(path, named[format].end))
		format++;
	int status = open_by(named[format].open, path, no_key ? NULL : colon + 1, to);
	free(path);
	return status;
}
