// safetensors.c: reads arrays in safetensors files: 8 bytes of length, a JSON header, elements.
#include "rt.h"
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

// Returns an element of a list of integers; -1: it is not an integer.
static json_int_t integer_at(const json_t *list, size_t i)
{
	const json_t *x = json_array_get(list, i);
	return json_is_integer(x) ? json_integer_value(x) : -1;
}

static int read_tensor(const char *path, size_t start, const char *key, const json_t *about,
                       struct amos_array *array)
{
	char where[1024];
	snprintf(where, sizeof where, "%s:%s", path, key);
	const json_t *shape = json_object_get(about, "shape"),
	             *offsets = json_object_get(about, "data_offsets");
	json_int_t from = integer_at(offsets, 0), to = integer_at(offsets, 1);
	const char *type = json_string_value(json_object_get(about, "dtype"));
	array->type =
	    type ? amos_index(type, &amos_formats->safetensors, AMOS_TYPES, sizeof *amos_formats)
	         : -1;
	if (array->type < 0 || !json_is_array(shape) || json_array_size(shape) > 10 || from < 0)
		return amos_fail(AMOS_INPUT, "%s: unknown type or invalid shape", where);
	array->rank = (int)json_array_size(shape);
	for (int a = 0; a < array->rank; a++)
		array->dim[a] = integer_at(shape, (size_t)a);
	int64_t elements = amos_elements(array->rank, array->dim);
	if (elements >= 0 && (to < from || to - from != elements * amos_types[array->type].bytes))
		return amos_fail(AMOS_INPUT,
		                 "%s: corrupt; its shape and type do not fit its data_offsets",
		                 where);
	struct amos_blob blob;
	int status = amos_blob_open(path, false, &blob);
	if (!status)
		status = amos_array_take(array, where, &blob, start + (size_t)from);
	amos_blob_free(&blob);
	return status;
}

int amos_arrays_safetensors(const char *path, const char *key, struct amos_arrays *to)
{
	struct amos_blob blob;
	int status = amos_blob_open(path, false, &blob);
	if (status)
		return status;
	uint64_t size = 0;
	if (blob.count >= 8)
		memcpy(&size, blob.at, 8);
	errno = 0; // jansson does not report every lack of memory itself
	json_t *header =
	    blob.count >= 8 && size <= blob.count - 8
	        ? json_loadb((const char *)blob.at + 8, size, JSON_REJECT_DUPLICATES, NULL)
	        : NULL;
	amos_blob_free(&blob);
	const char *name;
	json_t *about;
	if (!header && errno == ENOMEM)
		status = amos_no_memory(path);
	else if (!json_is_object(header))
		status = amos_fail(AMOS_INPUT, "%s: not a safetensors file, or truncated", path);
	json_object_foreach (header, name, about) {
		if (status || !strcmp(name, "__metadata__") || (key && strcmp(name, key)))
			continue;
		struct amos_array *array = amos_arrays_add(to, path, name, strlen(name));
		status = array ? read_tensor(path, 8 + size, name, about, array) : AMOS_MACHINE;
	}
	json_decref(header);
	return status;
}
