// safetensors.c: reads arrays in safetensors files: 8 bytes of length, a JSON header, elements.
#include "rt.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static int safetensors_type(const char *name)
{
	static const struct {
		const char *name;
		int type;
	} known[] = {{"F64", AMOS_f64}, {"F32", AMOS_f32}, {"F16", AMOS_f16}, {"BF16", AMOS_bf16},
	             {"I64", AMOS_i64}, {"I32", AMOS_i32}, {"I16", AMOS_i16}, {"I8", AMOS_i8},
	             {"U64", AMOS_u64}, {"U32", AMOS_u32}, {"U16", AMOS_u16}, {"U8", AMOS_u8},
	             {"BOOL", AMOS_b8}};
	for (int i = 0; name && i < COUNT(known); i++)
		if (!strcmp(name, known[i].name))
			return known[i].type;
	return -1;
}

static int read_tensor(const char *path, size_t start, const char *key, const json_t *about,
                       struct amos_array *array)
{
	char where[1024];
	snprintf(where, sizeof where, "%s:%s", path, key);
	const json_t *shape = json_object_get(about, "shape");
	json_int_t from =
	    json_integer_value(json_array_get(json_object_get(about, "data_offsets"), 0));
	array->type = safetensors_type(json_string_value(json_object_get(about, "dtype")));
	if (array->type < 0 || !json_is_array(shape) || json_array_size(shape) > 10 || from < 0)
		return amos_fail(AMOS_INPUT, "%s: unknown type or invalid shape", where);
	array->rank = (int)json_array_size(shape);
	for (int a = 0; a < array->rank; a++)
		array->dim[a] = json_integer_value(json_array_get(shape, (size_t)a));
	struct amos_blob blob;
	int status = amos_blob_open(path, false, &blob);
	if (!status)
		status = amos_array_take(array, where, &blob, start + (size_t)from);
	amos_blob_free(&blob);
	return status;
}

static int read_tensors(const char *path, size_t start, const char *key, json_t *header, int64_t *n,
                        struct amos_array *arrays)
{
	const char *name;
	json_t *about;
	json_object_foreach (header, name, about) {
		if (!strcmp(name, "__metadata__") || (key && strcmp(name, key)))
			continue;
		struct amos_array *array = &arrays[(*n)++];
		array->name = amos_array_name(strdup(name));
		int status = array->name ? read_tensor(path, start, name, about, array)
		                         : amos_fail(AMOS_MACHINE, "%s: out of memory", path);
		if (status)
			return status;
	}
	if (!*n && key)
		return amos_fail(AMOS_INPUT, "%s: no array '%s'", path, key);
	return AMOS_DONE;
}

int amos_arrays_safetensors(const char *path, const char *key, int64_t *n,
                            struct amos_array **arrays)
{
	*n = 0;
	*arrays = NULL;
	struct amos_blob blob;
	int status = amos_blob_open(path, false, &blob);
	if (status)
		return status;
	uint64_t size = 0;
	if (blob.count >= 8)
		memcpy(&size, blob.at, 8);
	json_error_t error = {0};
	json_t *header = blob.count >= 8 && size <= blob.count - 8
	                     ? json_loadb((const char *)blob.at + 8, size, 0, &error)
	                     : NULL;
	amos_blob_free(&blob);
	*arrays = header ? calloc(json_object_size(header) + 1, sizeof **arrays) : NULL;
	if (!header && json_error_code(&error) == json_error_out_of_memory)
		status = amos_no_memory(path);
	else if (!json_is_object(header))
		status = amos_fail(AMOS_INPUT, "%s: not a safetensors file, or truncated", path);
	else
		status = *arrays ? read_tensors(path, 8 + size, key, header, n, *arrays)
		                 : amos_fail(AMOS_MACHINE, "%s: out of memory", path);
	json_decref(header);
	if (status) {
		amos_npz_free(*n, *arrays);
		*n = 0;
		*arrays = NULL;
	}
	return status;
}
