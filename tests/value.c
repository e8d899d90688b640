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
	const void *bytes = tensor_data(&file, arena, path, t, k.type); // at any address
	k.bytes = take_copy(arena, bytes, (size_t)byte_count(k.type, &k.shape));
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
	KnownList list = {0};
	const TensorProto *t = NULL;
	const SequenceProto *s = NULL;
	if (as->optional) {
		const OptionalProto *o = unpack(arena, path, &optional_proto__descriptor, bytes);
		t = o->tensor_value;
		s = o->sequence_value;
	} else if (as->sequence) {
		s = unpack(arena, path, &sequence_proto__descriptor, bytes);
	} else {
		t = unpack(arena, path, &tensor_proto__descriptor, bytes);
	}
	if (s)
		return known_list(arena, path, as->name, s);
	if (t)
		PUSH(arena, list, known_tensor(arena, path, as->name, t));
	return list;
}
