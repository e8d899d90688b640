// tensor.c: reads files and tensors.
// Input: a path, or a TensorProto. Output: mapped bytes; a tensor's shape; its elements in the
// working type. Invariant: sizes and offsets of the file are checked before use.
#include "file.h"
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <errno.h>

static void unmap(void *bytes)
{
	const Bytes *b = bytes;
	munmap((void *)b->at, b->count);
}

static const char copy_file[] = "copy the file into the model's directory";

// Returns the bytes of an open file and closes it; `path`: as messages name it, `where`: of the
// file that names it, or `path` itself.
static Bytes map_open(Arena *arena, const char *where, const char *path, int fd)
{
	bool own = !strcmp(where, path); // not a file that another one names
	if (fd < 0 && errno == EXDEV)
		fail(where, "%s leads out of the model's directory" HELP "%s", path, copy_file);
	if (fd < 0)
		fail_status(amos_errno_status(), where, "%s%scannot be opened: %s%s%s",
		            own ? "" : path, own ? "" : " ", strerror(errno), own ? "" : HELP,
		            own ? "" : copy_file);
	struct stat st = {0};
	if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
		close(fd);
		if (!own)
			fail(where, "%s is not a regular file" HELP "%s", path, copy_file);
		fail(where, "not a regular file%s",
		     S_ISFIFO(st.st_mode)  ? HELP "pass - to read a model from a pipe"
		     : S_ISDIR(st.st_mode) ? HELP "the trained model of a run RUN is RUN.onnx"
		                           : "");
	}
	// Elements of 4 bits become 16 times as wide when they are read. Holes in a file are free.
	allow(arena, where, 0, (uint64_t)MIN(st.st_size, 512 * st.st_blocks) / 8);
	Bytes bytes = {(const uint8_t *)"", (size_t)st.st_size};
	Bytes *mapped = NEW(arena, Bytes);
	if (bytes.count)
		bytes.at = mmap(NULL, bytes.count, PROT_READ, MAP_PRIVATE, fd, 0);
	int error = errno;
	close(fd);
	if (bytes.at == MAP_FAILED)
		fail_status(STATUS_MACHINE, where, "cannot map %s: %s", path, strerror(error));
	*mapped = bytes;
	if (bytes.count)
		at_end(arena, unmap, mapped);
	return bytes;
}

File *open_file(Arena *arena, const char *path)
{
	File *file = NEW(arena, File);
	const char *slash = strrchr(path, '/');
	*file = (File){.arena = arena, .path = path};
	file->folder = slash ? format(arena, "%.*s", (int)(slash - path) + 1, path) : "";
	bool named = strcmp(path, "-");
	// O_NONBLOCK: the writer of a pipe is not waited for.
	int fd = named ? amos_input(path, O_NONBLOCK) : dup(STDIN_FILENO);
	int error = errno;
	char *folder = named && fd >= 0 ? amos_input_folder(fd) : NULL;
	file->real_folder = folder ? copy_string(arena, folder) : NULL;
	free(folder);
	errno = error;
	file->bytes = map_open(arena, path, path, fd);
	return file;
}

Bytes named_bytes(const File *file, const char *where, const char *name)
{
	const char *path = format(file->arena, "%s%s", file->folder, name);
	return map_open(file->arena, where, path,
	                amos_input_beneath(file->folder, file->real_folder, name));
}

// ---- types and shapes -----------------------------------------------------------------

int declared_type(int onnx)
{
	for (int e = 0; e < ELEMS; e++)
		if (elems[e].onnx == onnx)
			return e;
	const Format *f = find_format(onnx);
	return f ? (int)f->travels : -1;
}

const char other_type[] = "export the model with numbers in its place";
const char fewer_axes[] = "export it with some of them taken as one";

const char *type_trouble(Arena *arena, int onnx)
{
	const char *what = onnx == TEXT               ? "text"
	                   : onnx == 14 || onnx == 15 ? "complex numbers"
	                                              : "unknown";
	return format(arena, "element type %d (%s), which amosc does not compute with", onnx, what);
}

int working_type(int onnx)
{
	int e = declared_type(onnx);
	if (e < 0)
		return -1;
	if (is_float(e))
		return E_f32;
	return e == E_b8 || e == E_i32 ? e : E_i64;
}

Elem number_type(const Graph *g, int onnx)
{
	return g->wide && onnx == DOUBLE ? E_f64 : (Elem)working_type(onnx);
}

Shape tensor_shape(const char *where, const TensorProto *t)
{
	if (t->n_dims > RANK)
		fail(where, "tensor '%s' has %zu dimensions; at most %d are supported" HELP "%s",
		     t->name, t->n_dims, RANK, fewer_axes);
	for (size_t i = 0; i < t->n_dims; i++)
		if (t->dims[i] < 0)
			fail(where, "tensor '%s' has the dimension %lld" HELP EXPORT_AGAIN, t->name,
			     (long long)t->dims[i]);
	Shape shape = shape_of((int)t->n_dims, t->dims);
	if (!is_countable(&shape))
		fail(where, "tensor '%s' has a shape %s", t->name, beyond_text(&shape));
	return shape;
}

// ---- external data --------------------------------------------------------------------

static const char *external_field(const TensorProto *t, const char *where, const char *key)
{
	const char *found = NULL;
	for (size_t i = 0; i < t->n_external_data; i++) {
		const StringStringEntryProto *entry = t->external_data[i];
		if (strcmp(entry->key, key))
			continue;
		if (found && strcmp(found, entry->value))
			fail(where,
			     "external data of '%s': %s is '%s' and '%s'; expected one" HELP
			         EXPORT_AGAIN,
			     t->name, key, found, entry->value);
		found = entry->value;
	}
	return found;
}

static Bytes outside_bytes(File *file, const char *where, const char *location)
{
	if (!file->outside)
		file->outside = table_lent(file->arena);
	uint64_t *cell = table_cell_s(file->outside, location);
	if (*cell)
		return *(const Bytes *)(uintptr_t)*cell;
	bool leaves = location[0] == '/' || !location[0];
	for (const char *p = location; p && !leaves; p = strchr(p, '/'), p = p ? p + 1 : p)
		leaves = !strncmp(p, "..", 2) && (p[2] == '/' || !p[2]);
	if (leaves)
		fail(where,
		     "external data '%s' lies outside the model's directory" HELP
		     "save the model with its data next to it",
		     location);
	Bytes bytes = named_bytes(file, where, location);
	*cell = (uintptr_t)take_copy(file->arena, &bytes, sizeof bytes);
	return bytes;
}

static int64_t external_number(const TensorProto *t, const char *where, const char *key,
                               int64_t otherwise)
{
	const char *text = external_field(t, where, key);
	if (!text)
		return otherwise;
	char *end;
	errno = 0;
	long long n = strtoll(text, &end, 10);
	if (errno || *end || end == text || n < 0)
		fail(where,
		     "external data of '%s': %s is '%s'; expected a number" HELP EXPORT_AGAIN,
		     t->name, key, text);
	return n;
}

// `wanted`: bytes by the tensor's shape; -1: of a type that is not known.
static Bytes external_bytes(File *file, const char *where, const TensorProto *t, int64_t wanted)
{
	const char *location = external_field(t, where, "location");
	if (!location)
		fail(
		    where,
		    "tensor '%s' is stored outside the file, but has no location" HELP EXPORT_AGAIN,
		    t->name);
	Bytes all = outside_bytes(file, where, location);
	int64_t offset = external_number(t, where, "offset", 0);
	int64_t rest = (int64_t)all.count - offset;
	int64_t length = external_number(t, where, "length", wanted < 0 ? rest : wanted);
	if (wanted >= 0 && length != wanted)
		fail(where,
		     "external data of '%s' has %lld %s; expected %lld by its "
		     "shape" HELP EXPORT_AGAIN,
		     t->name, (long long)length, PLURAL(length, "byte", "bytes"),
		     (long long)wanted);
	if (offset > (int64_t)all.count || length > (int64_t)all.count - offset)
		fail(where,
		     "external data of '%s' ends at byte %llu of '%s', which has %zu" HELP
		     "copy the complete file into the model's directory",
		     t->name, (unsigned long long)offset + (unsigned long long)length, location,
		     all.count);
	return (Bytes){all.at + offset, (size_t)length};
}

// ---- elements -------------------------------------------------------------------------

// Returns the elements of a typed field (float_data and the like) as they would lie in raw_data.
// Fails if an element of a wider field does not fit the tensor's type, signed or not.
static Bytes typed_field(Arena *arena, const char *where, const TensorProto *t, int bits)
{
	enum { FLOAT = 1, INT64 = 7, UINT32 = 12, UINT64 = 13 };
	if (t->data_type == FLOAT)
		return (Bytes){(const uint8_t *)t->float_data, 4 * t->n_float_data};
	if (t->data_type == DOUBLE)
		return (Bytes){(const uint8_t *)t->double_data, 8 * t->n_double_data};
	if (t->data_type == INT64)
		return (Bytes){(const uint8_t *)t->int64_data, 8 * t->n_int64_data};
	size_t bytes = (size_t)MAX(bits / 8, 1);
	bool wide = t->data_type == UINT32 || t->data_type == UINT64;
	size_t n = wide ? t->n_uint64_data : t->n_int32_data;
	uint8_t *out = take(arena, n * bytes + 1);
	bits = 8 * (int)bytes;
	for (size_t i = 0; i < n; i++) {
		int64_t x = wide ? (int64_t)t->uint64_data[i] : t->int32_data[i];
		bool low = bits == 64 || x >> bits == 0, negative = !wide && x >> (bits - 1) == -1;
		if (!low && !negative)
			fail(where,
			     "tensor '%s': element %zu is %lld, which its type cannot "
			     "hold" HELP EXPORT_AGAIN,
			     t->name, i, (long long)x);
		memcpy(out + i * bytes, &x, bytes); // little endian: the low bytes come first
	}
	return (Bytes){out, n * bytes};
}

static int bits_of(int onnx)
{
	const Format *f = find_format(onnx);
	return f ? f->bits : 8 * elems[declared_type(onnx)].bytes;
}

Bytes outside_tensor(File *file, const char *where, const TensorProto *t)
{
	Shape shape = tensor_shape(where, t);
	bool known = declared_type(t->data_type) >= 0;
	return external_bytes(file, where, t,
	                      known ? (count_of(&shape) * bits_of(t->data_type) + 7) / 8 : -1);
}

// Fails where a tensor's elements lie in more than one place: which are meant?
static Bytes stored_bytes(File *file, Arena *arena, const char *where, const TensorProto *t,
                          int64_t count)
{
	int bits = bits_of(t->data_type), filled = t->data_location == 1;
	int64_t wanted = (count * bits + 7) / 8;
	size_t places[] = {t->raw_data.len,  t->n_float_data,  t->n_int32_data, t->n_int64_data,
	                   t->n_double_data, t->n_uint64_data, t->n_string_data};
	for (int i = 0; i < COUNT(places); i++)
		filled += places[i] > 0;
	if (filled > 1)
		fail(where,
		     "tensor '%s' has data in %d places; expected one of raw_data, a typed "
		     "field and an external file" HELP EXPORT_AGAIN,
		     t->name, filled);
	if (t->data_location == 1)
		return external_bytes(file, where, t, wanted);
	Bytes found = {t->raw_data.data, t->raw_data.len};
	if (!found.count)
		found = typed_field(arena, where, t, bits);
	if ((int64_t)found.count != wanted)
		fail(where,
		     "tensor '%s' has %zu %s of data; expected %lld by its "
		     "shape" HELP EXPORT_AGAIN,
		     t->name, found.count, PLURAL(found.count, "byte", "bytes"), (long long)wanted);
	return found;
}

const char *beyond_f32(const Model *m)
{
	return m->graph && !m->graph->wide ? m->file->beyond : NULL;
}

const void *tensor_data(File *file, Arena *arena, const char *where, const TensorProto *t, Elem as)
{
	int stored = declared_type(t->data_type);
	if (stored < 0)
		fail(where, "tensor '%s' has %s" HELP "%s", t->name,
		     type_trouble(arena, t->data_type), other_type);
	Shape shape = tensor_shape(where, t);
	int64_t n = count_of(&shape);
	Bytes found = stored_bytes(file, arena, where, t, n);
	const Format *f = find_format(t->data_type);
	Val v = {.type = (Elem)stored, .data = found.at};
	for (int64_t i = 0; v.type == E_u64 && i < n; i++)
		if (const_int_at(&v, i) < 0)
			fail(where,
			     "tensor '%s': element %lld is %llu; expected at most 2^63 - 1" HELP
			     "export the model with smaller integers",
			     t->name, (long long)i, (unsigned long long)const_int_at(&v, i));
	if (!f && v.type == as && as != E_b8)
		return found.at;
	// The first element that f32 takes for infinite or zero.
	for (int64_t i = 0; t->data_type == DOUBLE && i < n && !file->beyond; i++) {
		double number = const_at(&v, i);
		float narrow = (float)number;
		if (isfinite(number) && (isinf(narrow) || (narrow == 0 && number != 0)))
			file->beyond =
			    format(file->arena, "%s%s%s: element %lld is %g, in f32 %g",
			           *t->name ? "tensor '" : "a constant", t->name,
			           *t->name ? "'" : "", (long long)i, number, (double)narrow);
	}
	void *out = take(arena, (size_t)(n * elems[as].bytes) + 1);
	for (int64_t i = 0; i < n; i++) {
		if (as == E_f32)
			((float *)out)[i] = (float)(f ? decode(f, v.data, i) : const_at(&v, i));
		else if (as == E_b8)
			((uint8_t *)out)[i] = const_int_at(&v, i) != 0;
		else
			((int64_t *)out)[i] =
			    f ? (int64_t)decode(f, v.data, i) : const_int_at(&v, i);
	}
	return out;
}
