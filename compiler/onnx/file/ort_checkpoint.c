// ort_checkpoint.c: reads ONNX Runtime checkpoints.
// A checkpoint is a FlatBuffer of the schema ort_training_checkpoint.fbs: tables whose fields are
// found through a list of offsets, all integers little-endian. Output: its tensors by name, as a
// model file would hold them. Invariant: sizes and offsets of the file are checked before use.
#include "file.h"
#include <string.h>
#include <unistd.h>

enum { // positions of fields in their tables
	CHECKPOINT_MODULE = 1,
	MODULE_TRAINED = 0,
	MODULE_FROZEN = 1,
	TENSOR_NAME = 0,
	TENSOR_DIMS = 2,
	TENSOR_TYPE = 3,
	TENSOR_RAW = 4,
	TENSOR_OUTSIDE = 6
};

typedef struct Flat {
	const char *path;
	Bytes bytes;
} Flat;

static const uint8_t *bytes_at(const Flat *f, size_t at, size_t count)
{
	if (at > f->bytes.count || count > f->bytes.count - at)
		fail(f->path, "corrupt checkpoint: an offset lies outside it");
	return f->bytes.at + at;
}

static uint64_t number_at(const Flat *f, size_t at, int bytes)
{
	const uint8_t *from = bytes_at(f, at, (size_t)bytes);
	uint64_t x = 0;
	for (int i = bytes - 1; i >= 0; i--)
		x = x << 8 | from[i];
	return x;
}

// Returns the offset that the pointer at `at` points to.
static size_t follow(const Flat *f, size_t at)
{
	return at + number_at(f, at, 4);
}

// Returns the offset of field `k` of a table; 0 if it is absent.
static size_t field_of(const Flat *f, size_t table, int k)
{
	size_t list = table - (size_t)(int64_t)(int32_t)number_at(f, table, 4);
	uint64_t size = number_at(f, list, 2), place = 4 + 2 * (uint64_t)k;
	uint64_t offset = place + 2 <= size ? number_at(f, list + place, 2) : 0;
	return offset ? table + offset : 0;
}

// Returns the offset of the elements of a list, each of `size` bytes.
static size_t list_of(const Flat *f, size_t table, int k, size_t size, size_t *count)
{
	size_t field = field_of(f, table, k), at = field ? follow(f, field) : 0;
	*count = field ? number_at(f, at, 4) : 0;
	bytes_at(f, at + 4, *count * size);
	return at + 4;
}

static TensorProto *tensor_at(const Flat *f, Arena *arena, size_t table)
{
	TensorProto *t = NEW(arena, TensorProto);
	size_t length, rank, count, name = list_of(f, table, TENSOR_NAME, 1, &length);
	size_t dims = list_of(f, table, TENSOR_DIMS, 8, &rank),
	       raw = list_of(f, table, TENSOR_RAW, 1, &count);
	size_t type = field_of(f, table, TENSOR_TYPE), outside = field_of(f, table, TENSOR_OUTSIDE);
	tensor_proto__init(t);
	const char *called =
	    format(arena, "%.*s", (int)length, (const char *)bytes_at(f, name, length));
	t->name = (char *)visible(arena, called, true);
	if (outside && (int64_t)number_at(f, outside, 8) >= 0)
		fail(f->path,
		     "tensor '%s' is stored in another file" HELP
		     "train the .onnx that the training graphs were made from",
		     t->name);
	t->n_dims = rank;
	t->dims = NEWS(arena, int64_t, rank + 1);
	for (size_t a = 0; a < rank; a++)
		t->dims[a] = (int64_t)number_at(f, dims + 8 * a, 8);
	t->data_type = type ? (int32_t)number_at(f, type, 4) : 0;
	t->raw_data.len = count;
	t->raw_data.data = (uint8_t *)bytes_at(f, raw, count);
	return t;
}

Checkpoint find_checkpoint(const File *model)
{
	static const char magic[] = "ODTC", name[] = "checkpoint";
	Arena *arena = model->arena;
	const char *path = format(arena, "%s%s", model->folder, name);
	Checkpoint c = {table_new(arena), table_new(arena)};
	if (!strcmp(model->path, "-") || access(path, R_OK))
		return c;
	Flat f = {path, named_bytes(model, path, name)};
	if (f.bytes.count < 8 || memcmp(f.bytes.at + 4, magic, 4))
		return c;
	size_t module = field_of(&f, follow(&f, 0), CHECKPOINT_MODULE);
	module = module ? follow(&f, module) : 0;
	for (int k = MODULE_TRAINED; module && k <= MODULE_FROZEN; k++) {
		size_t count, at = list_of(&f, module, k, 4, &count);
		for (size_t i = 0; i < count; i++) {
			TensorProto *t = tensor_at(&f, arena, follow(&f, at + 4 * i));
			*table_cell_s(c.tensors, t->name) = (uintptr_t)t;
			if (k == MODULE_TRAINED)
				*table_cell_s(c.trained, t->name) = true;
		}
	}
	return c;
}
