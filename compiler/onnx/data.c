// data.c: files as bytes and tensors as numbers.
// Takes a path, or a TensorProto. Gives mapped bytes; a tensor's shape; its elements in the working
// type. Keeps: nothing that a file says of sizes, offsets or places is believed before it is
// checked.
#include "lower.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <errno.h>

static Bytes read_stdin(Arena *arena)
{
	VEC(uint8_t *) blocks = {0};
	enum { BLOCK = 1 << 20 };
	size_t total = 0;
	for (bool more = true; more;) {
		uint8_t *block = take(arena, BLOCK);
		size_t got = fread(block, 1, BLOCK, stdin);
		PUSH(arena, blocks, block);
		total += got;
		more = got == BLOCK;
	}
	uint8_t *all = take(arena, total + 1);
	for (int i = 0; i < blocks.count; i++)
		memcpy(all + (size_t)i * BLOCK, blocks.at[i],
		       MIN(total - (size_t)i * BLOCK, BLOCK));
	return (Bytes){all, total};
}

static Bytes map_bytes(const char *where, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		fail(where, "cannot open %s: %s", path, strerror(errno));
	struct stat st;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
		close(fd);
		fail(where, "%s is not a regular file", path);
	}
	Bytes bytes = {(const uint8_t *)"", (size_t)st.st_size};
	if (st.st_size > 0)
		bytes.at = mmap(NULL, bytes.count, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (bytes.at == MAP_FAILED)
		fail_status(STATUS_MACHINE, where, "cannot map %s: %s", path, strerror(errno));
	return bytes;
}

File *open_file(Arena *arena, const char *path)
{
	File *file = NEW(arena, File);
	file->arena = arena;
	file->path = path;
	file->bytes = strcmp(path, "-") ? map_bytes(path, path) : read_stdin(arena);
	return file;
}

// ---- types and shapes ------------------------------------------------------------------------

int declared_type(int onnx)
{
	for (int e = 0; e < ELEMS; e++)
		if (elems[e].onnx == onnx)
			return e;
	return -1;
}

int working_type(int onnx)
{
	int e = declared_type(onnx);
	if (e < 0)
		return -1;
	if (elems[e].cls == 'f')
		return E_f32;
	return e == E_b8 || e == E_i32 ? e : E_i64;
}

Shape tensor_shape(const char *where, const TensorProto *t)
{
	if (t->n_dims > RANK)
		fail(where, "tensor '%s' has %zu dimensions; at most %d are supported", t->name,
		     t->n_dims, RANK);
	int64_t count = 1;
	for (size_t i = 0; i < t->n_dims; i++) {
		int64_t d = t->dims[i];
		if (d < 0 || (d > 0 && count > INT64_MAX / 16 / d))
			fail(where, "tensor '%s' has the impossible dimension %lld", t->name,
			     (long long)d);
		count *= d;
	}
	return shape_of((int)t->n_dims, t->dims);
}

// ---- external data -----------------------------------------------------------------------------

const char *external_field(const TensorProto *t, const char *key)
{
	for (size_t i = 0; i < t->n_external_data; i++)
		if (!strcmp(t->external_data[i]->key, key))
			return t->external_data[i]->value;
	return NULL;
}

static bool leaves_folder(const char *location)
{
	if (location[0] == '/' || !location[0])
		return true;
	for (const char *p = location; p; p = strchr(p, '/'), p = p ? p + 1 : p)
		if (!strncmp(p, "..", 2) && (p[2] == '/' || !p[2]))
			return true;
	return false;
}

static Bytes outside_bytes(File *file, const char *where, const char *location)
{
	for (int i = 0; i < file->outside.count; i++)
		if (!strcmp(file->outside.at[i].location, location))
			return file->outside.at[i].bytes;
	if (leaves_folder(location))
		fail(where,
		     "external data '%s' lies outside the model's folder; move it beside the model",
		     location);
	const char *slash = strrchr(file->path, '/');
	int folder = slash ? (int)(slash - file->path) + 1 : 0;
	const char *path = format(file->arena, "%.*s%s", folder, file->path, location);
	Outside out = {location, map_bytes(where, path)};
	PUSH(file->arena, file->outside, out);
	return out.bytes;
}

static int64_t external_number(const TensorProto *t, const char *where, const char *key,
                               int64_t otherwise)
{
	const char *text = external_field(t, key);
	if (!text)
		return otherwise;
	char *end;
	errno = 0;
	long long n = strtoll(text, &end, 10);
	if (errno || *end || end == text || n < 0)
		fail(where, "external data of '%s': %s is '%s', wanted a number", t->name, key,
		     text);
	return n;
}

static Bytes external_bytes(File *file, const char *where, const TensorProto *t, int64_t wanted)
{
	const char *location = external_field(t, "location");
	if (!location)
		fail(where, "tensor '%s' is stored outside the file, but no location is given",
		     t->name);
	Bytes all = outside_bytes(file, where, location);
	int64_t offset = external_number(t, where, "offset", 0);
	int64_t length = external_number(t, where, "length", wanted);
	if (length != wanted)
		fail(where, "external data of '%s' has %lld bytes, its shape wants %lld", t->name,
		     (long long)length, (long long)wanted);
	if (offset > (int64_t)all.count || length > (int64_t)all.count - offset)
		fail(where,
		     "external data of '%s' ends at byte %lld of '%s', which has %zu: is it "
		     "truncated?",
		     t->name, (long long)(offset + length), location, all.count);
	return (Bytes){all.at + offset, (size_t)length};
}

// ---- elements
// --------------------------------------------------------------------------------------

// Elements in a typed field (float_data and the like) as they would lie in raw_data; count -1 when
// there is none.
static Bytes typed_field(Arena *arena, const TensorProto *t, Elem e)
{
	if (e == E_f32)
		return (Bytes){(const uint8_t *)t->float_data, 4 * t->n_float_data};
	if (e == E_f64)
		return (Bytes){(const uint8_t *)t->double_data, 8 * t->n_double_data};
	if (e == E_i64)
		return (Bytes){(const uint8_t *)t->int64_data, 8 * t->n_int64_data};
	size_t bytes = (size_t)elems[e].bytes;
	bool wide = e == E_u64 || e == E_u32;
	size_t n = wide ? t->n_uint64_data : t->n_int32_data;
	uint8_t *out = take(arena, n * bytes + 1);
	for (size_t i = 0; i < n; i++) // little endian: the low bytes come first
		memcpy(out + i * bytes,
		       wide ? (void *)&t->uint64_data[i] : (void *)&t->int32_data[i], bytes);
	return (Bytes){out, n * bytes};
}

static Bytes stored_bytes(File *file, Arena *arena, const char *where, const TensorProto *t, Elem e,
                          int64_t count)
{
	int64_t wanted = count * elems[e].bytes;
	if (t->data_location == 1)
		return external_bytes(file, where, t, wanted);
	Bytes found = {t->raw_data.data, t->raw_data.len};
	if (!found.count)
		found = typed_field(arena, t, e);
	if ((int64_t)found.count != wanted)
		fail(where, "tensor '%s' has %zu bytes of data, its shape wants %lld", t->name,
		     found.count, (long long)wanted);
	return found;
}

static void widen_floats(float *to, const uint8_t *from, Elem e, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		uint16_t half;
		double wide;
		if (e == E_f64) {
			memcpy(&wide, from + 8 * i, 8);
			to[i] = (float)wide;
			continue;
		}
		memcpy(&half, from + 2 * i, 2);
		to[i] = e == E_f16 ? half_to_float(half) : bf16_to_float(half);
	}
}

static int64_t widen_int(const uint8_t *from, Elem e)
{
	switch (e) {
#define T(name, ctype, bytes, cls, onnx)                                                           \
	case E_##name: {                                                                           \
		ctype x;                                                                           \
		memcpy(&x, from, sizeof x);                                                        \
		return (int64_t)x;                                                                 \
	}
#include "types.def"
#undef T
	default:
		never(e);
	}
}

static const void *convert(Arena *arena, const uint8_t *from, Elem e, Elem to, int64_t n)
{
	void *out = take(arena, (size_t)(n * elems[to].bytes) + 1);
	if (to == E_f32) {
		widen_floats(out, from, e, n);
		return out;
	}
	for (int64_t i = 0; i < n; i++) {
		int64_t x = widen_int(from + i * elems[e].bytes, e);
		if (to == E_b8)
			((uint8_t *)out)[i] = x != 0;
		else
			((int64_t *)out)[i] = x;
	}
	return out;
}

const void *tensor_data(File *file, Arena *arena, const char *where, const TensorProto *t)
{
	int stored = declared_type(t->data_type), working = working_type(t->data_type);
	if (stored < 0)
		fail(where, "tensor '%s' has element type %d, which amosc does not compute with",
		     t->name, t->data_type);
	Shape shape = tensor_shape(where, t);
	int64_t n = count_of(&shape);
	Bytes found = stored_bytes(file, arena, where, t, (Elem)stored, n);
	if (stored == working && stored != E_b8 && (uintptr_t)found.at % 8 == 0)
		return found.at;
	if (stored == working && stored != E_b8)
		return take_copy(arena, found.at, found.count);
	return convert(arena, found.at, (Elem)stored, (Elem)working, n);
}
