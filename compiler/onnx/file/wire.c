// wire.c: reads protocol buffers field by field, for write.c and the check before unpacking.
// Invariant: no file makes the recursion deeper than the limit.
#include "file.h"

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
