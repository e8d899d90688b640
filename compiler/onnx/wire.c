// wire.c: the wire format of protocol buffers, field by field: what write.c rebuilds, and the check
// before unpacking. Takes bytes. Gives fields. Keeps: no recursion deeper than the limit, whatever
// a file says.
#include "lower.h"

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

// Where graphs nest: a graph's nodes, their attributes, the graphs in these; and the bodies of
// functions.
typedef enum Message {
	M_model,
	M_graph,
	M_node,
	M_attribute,
	M_function,
	M_training,
	M_leaf
} Message;

static Message inside(Message m, int number)
{
	static const struct {
		Message in;
		int number;
		Message is;
	} nested[] = {{M_model, F_model_graph, M_graph}, {M_model, 20, M_training},
	              {M_model, 25, M_function},         {M_graph, 1, M_node},
	              {M_node, 5, M_attribute},          {M_attribute, 6, M_graph},
	              {M_function, 7, M_node},           {M_function, 11, M_attribute},
	              {M_training, 2, M_graph}};
	for (int i = 0; i < COUNT(nested); i++)
		if (nested[i].in == m && nested[i].number == number)
			return nested[i].is;
	return M_leaf;
}

static void check_inside(const char *where, Bytes at, Message m, int depth)
{
	enum { DEEPEST = 64 };
	if (depth > DEEPEST)
		fail(where, "graphs are nested more than %d deep", DEEPEST / 3);
	for (Field f; next_field(where, &at, &f);) {
		Message is = f.wire == W_bytes ? inside(m, f.number) : M_leaf;
		if (is != M_leaf)
			check_inside(where, f.body, is, depth + 1);
	}
}

void check_nesting(const char *where, Bytes model)
{
	check_inside(where, model, M_model, 0);
}
