// npy.c: reads arrays in NumPy's .npy format, from their own file or inside an .npz file.
// Elements are converted only in order: to row major, little endian.
#include "rt.h"
#include <stdlib.h>
#include <string.h>

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
	if ((*text != '\'' && *text != '"') || !strchr("<>|=", text[1]))
		return -1;
	*swap = text[1] == '>';
	for (int t = 0; t < AMOS_TYPES; t++)
		if (!strncmp(text + 2, amos_formats[t].npy, 2) && text[4] == *text)
			return t;
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

int amos_array_npy(struct amos_array *array, const char *where, struct amos_blob *blob)
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
	const char *descr = npy_value(header, "'descr':");
	const char *order = npy_value(header, "'fortran_order':");
	const char *shape = npy_value(header, "'shape':");
	if (!descr || !order || !shape || !npy_shape(shape, array))
		return amos_fail(AMOS_INPUT, "%s: corrupt npy header", where);
	bool swap = false, fortran = array->rank > 1 && !strncmp(order, "True", 4);
	array->type = npy_type(descr, &swap);
	if (array->type < 0)
		return amos_fail(AMOS_INPUT,
		                 "%s: expected numbers of 1, 2, 4 or 8 bytes, or Booleans; found "
		                 "elements of type %.*s",
		                 where, (int)strcspn(descr, ","), descr);
	int status = amos_array_take_all(array, where, blob, start + size);
	return status || !(swap || fortran) ? status
	                                    : amos_array_reorder(array, where, swap, fortran);
}
