// npy.c: reads arrays in NumPy's .npy format, from their own file or inside an .npz file.
// Elements are converted only in order: to row major, little endian.
#include "rt.h"
#include <stdlib.h>
#include <string.h>

// Converts from column-major (Fortran) to row-major order.
static int transpose(struct amos_array *array, const char *where)
{
	struct amos_array from = *array;
	array->own = NULL;
	int64_t count = amos_count(array->rank, array->dim), index[10] = {0};
	size_t item = (size_t)amos_types[array->type].bytes, bytes = (size_t)count * item;
	char *to = malloc(bytes ? bytes : 1);
	struct amos_blob blob = {(unsigned char *)to, bytes, to, 0};
	for (int64_t i = 0; to && i < count; i++) {
		int64_t at = 0;
		for (int a = array->rank; a-- > 0;)
			at = at * array->dim[a] + index[a];
		memcpy(to + (size_t)i * item, (const char *)from.bytes + (size_t)at * item, item);
		for (int a = array->rank; a-- > 0 && ++index[a] == array->dim[a];)
			index[a] = 0;
	}
	int status = to ? amos_array_take(array, where, &blob, 0)
	                : amos_fail(AMOS_MACHINE, "%s: out of memory", where);
	from.name = NULL;
	amos_array_free(&from);
	return status;
}

// Returns the text after 'key': in the header of an npy file, a Python dictionary literal.
static const char *npy_value(const char *header, const char *key)
{
	const char *at = strstr(header, key);
	if (!at)
		return NULL;
	at += strlen(key);
	return at + strspn(at, " ");
}

static int npy_type(const char *text, bool *swap)
{
	static const struct {
		const char *text;
		int type;
	} known[] = {{"f8", AMOS_f64}, {"f4", AMOS_f32}, {"f2", AMOS_f16}, {"i8", AMOS_i64},
	             {"i4", AMOS_i32}, {"i2", AMOS_i16}, {"i1", AMOS_i8},  {"u8", AMOS_u64},
	             {"u4", AMOS_u32}, {"u2", AMOS_u16}, {"u1", AMOS_u8},  {"b1", AMOS_b8}};
	if ((*text != '\'' && *text != '"') || !strchr("<>|=", text[1]))
		return -1;
	*swap = text[1] == '>';
	for (int i = 0; i < COUNT(known); i++)
		if (!strncmp(text + 2, known[i].text, 2) && text[4] == *text)
			return known[i].type;
	return -1;
}

static bool npy_shape(const char *text, struct amos_array *array)
{
	if (*text++ != '(')
		return false;
	for (;;) {
		text += strspn(text, " ,");
		if (*text == ')')
			return true;
		char *end;
		long long size = strtoll(text, &end, 10);
		if (end == text || size < 0 || array->rank == 10)
			return false;
		array->dim[array->rank++] = size;
		text = end;
	}
}

static int npy_header(struct amos_array *array, const char *where, const char *header, bool *swap,
                      bool *fortran)
{
	const char *descr = npy_value(header, "'descr':");
	const char *order = npy_value(header, "'fortran_order':");
	const char *shape = npy_value(header, "'shape':");
	if (!descr || !order || !shape || !npy_shape(shape, array))
		return amos_fail(AMOS_INPUT, "%s: corrupt npy header", where);
	*fortran = !strncmp(order, "True", 4);
	array->type = npy_type(descr, swap);
	if (array->type < 0)
		return amos_fail(AMOS_INPUT,
		                 "%s: expected numbers of 1, 2, 4 or 8 bytes, or Booleans; found "
		                 "elements of type %.*s",
		                 where, (int)strcspn(descr, ","), descr);
	return AMOS_DONE;
}

static int npy_parse(struct amos_array *array, const char *where, struct amos_blob *blob)
{
	const unsigned char *at = blob->at;
	if (blob->count < 12 || memcmp(at, "\x93NUMPY", 6))
		return amos_fail(AMOS_INPUT, "%s: not an npy file", where);
	size_t start = at[6] == 1 ? 10 : 12, size = at[8] | (size_t)at[9] << 8;
	if (at[6] != 1)
		size |= (size_t)at[10] << 16 | (size_t)at[11] << 24;
	char header[4096];
	if (size >= sizeof header || blob->count - start < size)
		return amos_fail(AMOS_INPUT, "%s: corrupt npy header", where);
	memcpy(header, at + start, size);
	header[size] = 0;
	bool swap = false, fortran = false;
	int status = npy_header(array, where, header, &swap, &fortran);
	if (!status)
		status = amos_array_take(array, where, blob, start + size);
	if (!status && swap)
		status = amos_array_swap(array, where);
	if (!status && fortran && array->rank > 1)
		status = transpose(array, where);
	return status;
}

int amos_array_npy(struct amos_array *array, const char *where, struct amos_blob *blob)
{
	int status = npy_parse(array, where, blob);
	amos_blob_free(blob);
	return status;
}
