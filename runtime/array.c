// array.c: files as arrays: npy, raw values, IDX; other formats through table.c and npz.c.
// Takes a source of the data table. Gives struct amos_array, mapped where the file is not
// compressed. Keeps: no header is believed before the file's size agrees.
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

// Reads all that is left of a gzip file (or a plain one) into blob->base.
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
		size_t want = room - blob->count < 1 << 30 ? room - blob->count : 1 << 30;
		int got = gzread(file, (char *)blob->base + blob->count, (unsigned)want);
		if (got < 0)
			return amos_fail(AMOS_INPUT, "%s: the compressed data is damaged", path);
		if (got == 0)
			break;
		blob->count += (size_t)got;
	}
	int status;
	gzerror(file, &status);
	if (status == Z_BUF_ERROR)
		return amos_fail(AMOS_INPUT, "%s: the file is cut off", path);
	blob->at = blob->base;
	return blob->count ? AMOS_DONE : amos_fail(AMOS_INPUT, "%s: the file is empty", path);
}

// Reads all of a file, which it closes: a compressed one, or one that cannot be mapped.
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

static int open_bytes(const char *path, bool compressed, struct amos_blob *blob)
{
	*blob = (struct amos_blob){0};
	int file = open(path, O_RDONLY | O_CLOEXEC);
	struct stat about;
	if (file < 0)
		return amos_fail_errno("read", path);
	if (fstat(file, &about) || S_ISDIR(about.st_mode)) {
		errno = S_ISDIR(about.st_mode) ? EISDIR : errno;
		close(file);
		return amos_fail_errno("read", path);
	}
	return compressed || !S_ISREG(about.st_mode)
	           ? read_file(file, path, blob)
	           : map_file(file, (size_t)about.st_size, path, blob);
}

int amos_blob_map(const char *path, struct amos_blob *blob)
{
	return open_bytes(path, false, blob);
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
		    "%s: cut off: its header tells of %lld elements of %s, the file holds %lld",
		    where, (long long)count, amos_types[array->type].name,
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

void amos_array_free(struct amos_array *array)
{
	if (array->own)
		amos_blob_free(array->own);
	free(array->own);
	free((char *)array->name);
	*array = (struct amos_array){0};
}

static int type_named(const char *name)
{
	for (int t = 0; t < AMOS_TYPES; t++)
		if (!strcmp(amos_types[t].name, name))
			return t;
	return -1;
}

// Elements whose bytes, or axes, lie the other way round get memory of their own.
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

static int swap_bytes(struct amos_array *array, const char *where)
{
	int status = own_copy(array, where);
	if (status)
		return status;
	int item = amos_types[array->type].bytes;
	int64_t count = amos_count(array->rank, array->dim);
	for (char *at = (char *)array->bytes; count--; at += item)
		for (int i = 0; i < item / 2; i++) {
			char held = at[i];
			at[i] = at[item - 1 - i];
			at[item - 1 - i] = held;
		}
	return AMOS_DONE;
}

// From first axis fastest to last axis fastest.
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

// ---- npy ------------------------------------------------------------------------------

// The text after 'key': in the header of an npy file, a literal dictionary of Python.
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
		return amos_fail(AMOS_INPUT, "%s: the npy header is damaged", where);
	*fortran = !strncmp(order, "True", 4);
	array->type = npy_type(descr, swap);
	if (array->type < 0)
		return amos_fail(AMOS_INPUT,
		                 "%s: elements of type %.*s; wanted numbers of 1, 2, 4 or 8 "
		                 "bytes, or truth values",
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
		return amos_fail(AMOS_INPUT, "%s: the npy header is damaged", where);
	memcpy(header, at + start, size);
	header[size] = 0;
	bool swap = false, fortran = false;
	int status = npy_header(array, where, header, &swap, &fortran);
	if (!status)
		status = amos_array_take(array, where, blob, start + size);
	if (!status && swap)
		status = swap_bytes(array, where);
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

// ---- raw values, IDX ------------------------------------------------------------------

static int open_raw(const char *path, int type, struct amos_array *array)
{
	struct amos_blob blob;
	int status = amos_blob_map(path, &blob);
	if (status)
		return status;
	size_t item = (size_t)amos_types[type].bytes;
	array->type = type;
	array->rank = 1;
	array->dim[0] = (int64_t)(blob.count / item);
	status = blob.count % item
	             ? amos_fail(AMOS_INPUT, "%s: %zu bytes are no whole number of %s", path,
	                         blob.count, amos_types[type].name)
	             : amos_array_take(array, path, &blob, 0);
	amos_blob_free(&blob);
	return status;
}

// Two zero bytes, a type, a rank, then the dimensions and elements, big endian (Y. LeCun's MNIST
// page).
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
		    "%s: not a file of a known kind: wanted npy, npz, safetensors, IDX, "
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
	return status || amos_types[array->type].bytes == 1 ? status : swap_bytes(array, path);
}

static bool ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), m = strlen(end);
	return n >= m && !strcmp(text + n - m, end);
}

static int open_plain(const char *path, struct amos_array *array)
{
	struct amos_blob blob;
	int status = open_bytes(path, ends_with(path, ".gz"), &blob);
	if (status)
		return status;
	if (blob.count >= 6 && !memcmp(blob.at, "\x93NUMPY", 6))
		return amos_array_npy(array, path, &blob);
	status = ends_with(path, ".npy") ? amos_fail(AMOS_INPUT, "%s: not an npy file", path)
	                                 : idx_parse(array, path, &blob);
	amos_blob_free(&blob);
	return status;
}

// ---- by name --------------------------------------------------------------------------

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
		                 "%s:%s: wanted a type after the colon: u8 u16 i32 i64 f32 ...",
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

// PATH[:KEY], both of which may hold colons: the shortest PATH that is there counts, else all to
// the last colon.
int amos_arrays_open(const char *source, int64_t *n, struct amos_array **arrays)
{
	*n = 0;
	*arrays = NULL;
	char *path = strdup(source), *colon = path ? strchr(path, ':') : NULL;
	if (!path)
		return amos_fail(AMOS_MACHINE, "%s: out of memory", source);
	bool whole = !colon || !access(source, F_OK);
	while (!whole) {
		*colon = 0;
		char *next = strchr(colon + 1, ':');
		if (!next || !access(path, F_OK))
			break;
		*colon = ':';
		colon = next;
	}
	int status = open_path(path, whole ? NULL : colon + 1, n, arrays);
	free(path);
	return status;
}
