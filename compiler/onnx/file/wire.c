// wire.c: reads protocol buffers field by field, and unpacks messages of a checked depth.
// protobuf-c would copy the elements of every tensor; unpacked here, they stay in the file.
// Invariant: no file makes the recursion deeper than the limit.
#include "file.h"
#include <string.h>

static const char broken[] = "not an ONNX file, or truncated: its bytes do not parse";

static uint64_t take_varint(const char *where, Bytes *at)
{
	uint64_t x = 0;
	for (int shift = 0; shift < 70; shift += 7) {
		if (!at->count)
			break;
		uint8_t byte = *at->at++;
		at->count--;
		x |= (uint64_t)(byte & 127) << (shift & 63);
		if (byte < 128)
			return x;
	}
	fail(where, "%s", broken);
}

bool next_field(const char *where, Bytes *at, Field *f)
{
	if (!at->count)
		return false;
	f->all.at = at->at;
	uint64_t tag = take_varint(where, at), size = 0;
	f->number = (int)(tag >> 3);
	f->wire = (int)(tag & 7);
	f->body.at = at->at;
	if (f->wire == W_varint)
		take_varint(where, at);
	else if (f->wire == W_bytes)
		size = take_varint(where, at);
	else if (f->wire == W_fixed64 || f->wire == W_fixed32)
		size = f->wire == W_fixed64 ? 8 : 4;
	else
		size = UINT64_MAX;
	if (size > at->count || !f->number)
		fail(where, "%s", broken);
	if (f->wire != W_varint)
		f->body.at = at->at;
	at->at += size;
	at->count -= size;
	f->body.count = (size_t)(at->at - f->body.at);
	f->all.count = (size_t)(at->at - f->all.at);
	return true;
}

const ProtobufCFieldDescriptor *message_field(const Field *f,
                                              const ProtobufCMessageDescriptor *kind)
{
	const ProtobufCFieldDescriptor *field =
	    f->wire == W_bytes ? protobuf_c_message_descriptor_get_field(kind, (unsigned)f->number)
	                       : NULL;
	return field && field->type == PROTOBUF_C_TYPE_MESSAGE ? field : NULL;
}

// `n`: how many nodes are inside.
static void check_inside(const char *where, Bytes at, const ProtobufCMessageDescriptor *kind,
                         int depth, size_t *n)
{
	enum { DEEPEST = 64 };
	if (depth > DEEPEST)
		fail(where, "graphs or types are nested too deep: %d messages inside one another",
		     DEEPEST);
	*n += kind == &node_proto__descriptor;
	for (Field f; next_field(where, &at, &f);) {
		const ProtobufCFieldDescriptor *field = message_field(&f, kind);
		if (field)
			check_inside(where, f.body, field->descriptor, depth + 1, n);
	}
}

size_t check_nesting(const char *where, Bytes model)
{
	size_t nodes = 0;
	check_inside(where, model, &model_proto__descriptor, 0, &nodes);
	return nodes;
}

// ---- messages -------------------------------------------------------------------------

static const struct Form { // of a value: how it is stored, and its bytes in a message's struct
	int wire;
	size_t size;
} forms[] = {
    [PROTOBUF_C_TYPE_INT32] = {W_varint, sizeof(int32_t)},
    [PROTOBUF_C_TYPE_INT64] = {W_varint, sizeof(int64_t)},
    [PROTOBUF_C_TYPE_UINT64] = {W_varint, sizeof(uint64_t)},
    [PROTOBUF_C_TYPE_FLOAT] = {W_fixed32, sizeof(float)},
    [PROTOBUF_C_TYPE_DOUBLE] = {W_fixed64, sizeof(double)},
    [PROTOBUF_C_TYPE_STRING] = {W_bytes, sizeof(char *)},
    [PROTOBUF_C_TYPE_BYTES] = {W_bytes, sizeof(ProtobufCBinaryData)},
    [PROTOBUF_C_TYPE_MESSAGE] = {W_bytes, sizeof(void *)},
};

static size_t *count_in(ProtobufCMessage *m, const ProtobufCFieldDescriptor *field)
{
	return (size_t *)((char *)m + field->quantifier_offset);
}

// Returns the number of values in a field, several if it is packed.
static size_t values_in(const Field *f, const struct Form *form)
{
	size_t n = 0;
	if (f->wire == form->wire)
		return 1;
	if (form->wire != W_varint)
		return f->body.count / form->size;
	for (size_t i = 0; i < f->body.count; i++)
		n += f->body.at[i] < 128;
	return n;
}

static void unpack_fields(Arena *, const char *where, Bytes, ProtobufCMessage *);

// Reads one value of the field at the start of `at` to `to`, and moves `at` after it.
static void take_value(Arena *arena, const char *where, const ProtobufCFieldDescriptor *field,
                       Bytes *at, void *to)
{
	const struct Form *form = &forms[field->type];
	const ProtobufCMessageDescriptor *kind = field->descriptor;
	ProtobufCMessage **message = to;
	uint64_t x = 0;
	switch (field->type) {
	case PROTOBUF_C_TYPE_STRING:
		*(char **)to = memcpy(take(arena, at->count + 1), at->at, at->count);
		return;
	case PROTOBUF_C_TYPE_BYTES:
		*(ProtobufCBinaryData *)to = (ProtobufCBinaryData){at->count, (uint8_t *)at->at};
		return;
	case PROTOBUF_C_TYPE_MESSAGE:
		if (!*message) {
			*message = take(arena, kind->sizeof_message);
			kind->message_init(*message);
		}
		unpack_fields(arena, where, *at, *message);
		return;
	default:
		if (form->wire == W_varint)
			x = take_varint(where, at);
		else if (at->count < form->size)
			fail(where, "%s", broken);
		memcpy(to, form->wire == W_varint ? (void *)&x : at->at, form->size);
		at->at += form->wire == W_varint ? 0 : form->size;
		at->count -= form->wire == W_varint ? 0 : form->size;
	}
}

// Makes room in the lists of `m` for the values that `at` adds to them.
static void make_room(Arena *arena, const char *where, Bytes at, ProtobufCMessage *m)
{
	enum { FIELDS = 16 };
	size_t more[FIELDS] = {0};
	const ProtobufCMessageDescriptor *kind = m->descriptor;
	if (kind->n_fields > FIELDS)
		bug("%s has %u fields", kind->name, kind->n_fields);
	for (Field f; next_field(where, &at, &f);) {
		const ProtobufCFieldDescriptor *field =
		    protobuf_c_message_descriptor_get_field(kind, (unsigned)f.number);
		if (field && field->label == PROTOBUF_C_LABEL_REPEATED)
			more[field - kind->fields] += values_in(&f, &forms[field->type]);
	}
	for (unsigned i = 0; i < kind->n_fields; i++) {
		const ProtobufCFieldDescriptor *field = &kind->fields[i];
		if (!more[i])
			continue;
		size_t size = forms[field->type].size, n = *count_in(m, field);
		void **list = (void **)((char *)m + field->offset),
		     *fresh = take(arena, size * (n + more[i]));
		*list = n ? memcpy(fresh, *list, size * n) : fresh;
	}
}

// Adds the fields in `at` to a message: lists grow, other values are replaced, messages are merged.
static void unpack_fields(Arena *arena, const char *where, Bytes at, ProtobufCMessage *m)
{
	make_room(arena, where, at, m);
	for (Field f; next_field(where, &at, &f);) {
		const ProtobufCFieldDescriptor *field =
		    protobuf_c_message_descriptor_get_field(m->descriptor, (unsigned)f.number);
		if (!field)
			continue;
		const struct Form *form = &forms[field->type];
		bool list = field->label == PROTOBUF_C_LABEL_REPEATED;
		if (f.wire != form->wire && !(list && f.wire == W_bytes))
			fail(where, "%s", broken);
		char *to = (char *)m + field->offset;
		if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
			*(uint32_t *)((char *)m + field->quantifier_offset) = field->id;
		if (!list)
			take_value(arena, where, field, &f.body, to);
		for (size_t k = list ? values_in(&f, form) : 0; k > 0; k--)
			take_value(arena, where, field, &f.body,
			           *(char **)to + form->size * (*count_in(m, field))++);
		if (f.wire != form->wire && f.body.count)
			fail(where, "%s", broken);
	}
}

void *unpack(Arena *arena, const char *where, const ProtobufCMessageDescriptor *kind, Bytes at)
{
	ProtobufCMessage *m = take(arena, kind->sizeof_message);
	kind->message_init(m);
	unpack_fields(arena, where, at, m);
	return m;
}
