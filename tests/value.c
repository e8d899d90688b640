// value.c: reads files that hold one value: TensorProto, SequenceProto or OptionalProto.
#include "case.h"
#include "file.h"
#include <string.h>

static Known known_tensor(Arena *arena, const char *path, const char *name, const TensorProto *t)
{
	const char *slash = strrchr(path, '/');
	File file = {.arena = arena,
	             .path = path,
	             .folder = slash ? format(arena, "%.*s", (int)(slash - path) + 1, path) : ""};
	Known k = {.name = name, .shape = tensor_shape(path, t)};
	bool wide = t->data_type == DOUBLE;
	k.type = wide ? E_f64 : (Elem)working_type(t->data_type);
	k.bytes = tensor_data(&file, arena, path, t, k.type);
	return k;
}

static KnownList known_list(Arena *arena, const char *path, const char *name,
                            const SequenceProto *s)
{
	KnownList list = {0};
	for (size_t k = 0; k < s->n_tensor_values; k++) {
		Known one = known_tensor(arena, path, format(arena, "%s#%zu", name, k),
		                         s->tensor_values[k]);
		PUSH(arena, list, one);
	}
	return list;
}

KnownList read_value(Arena *arena, const char *path, const Input *as)
{
	Bytes bytes = open_file(arena, path)->bytes;
	ProtobufCAllocator *allocator = unpack_into(arena);
	KnownList list = {0};
	const TensorProto *t = NULL;
	const SequenceProto *s = NULL;
	bool read = true;
	if (as->optional) {
		const OptionalProto *o = optional_proto__unpack(allocator, bytes.count, bytes.at);
		read = o;
		t = o ? o->tensor_value : NULL;
		s = o ? o->sequence_value : NULL;
	} else if (as->sequence) {
		s = sequence_proto__unpack(allocator, bytes.count, bytes.at);
		read = s;
	} else {
		t = tensor_proto__unpack(allocator, bytes.count, bytes.at);
		read = t;
	}
	if (!read)
		fail(path, "does not parse as the value of '%s'", as->name);
	if (s)
		return known_list(arena, path, as->name, s);
	if (t)
		PUSH(arena, list, known_tensor(arena, path, as->name, t));
	return list;
}
