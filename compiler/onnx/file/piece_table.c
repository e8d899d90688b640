// piece_table.c: splices old and new byte ranges.
// Takes the fields of the old file and new numbers. Gives pieces in order. Keeps: the bytes of
// what is as before, to the encoding of a length.
#include "write.h"
#include <string.h>

// ---- fields ---------------------------------------------------------------------------

void add_piece(PieceTable *p, Bytes b)
{
	PUSH(p->arena, p->list, b);
	p->count += b.count;
}

static void add_pieces(PieceTable *p, const PieceTable *more)
{
	for (int i = 0; i < more->list.count; i++)
		add_piece(p, more->list.at[i]);
}

static size_t write_varint(uint8_t *to, uint64_t x)
{
	size_t n = 0;
	for (; x > 127; x >>= 7)
		to[n++] = (uint8_t)(x | 128);
	to[n++] = (uint8_t)x;
	return n;
}

static void add_header(PieceTable *p, int number, int wire, uint64_t x)
{
	uint8_t *header = take(p->arena, 20);
	size_t n = write_varint(header, (uint64_t)number << 3 | (uint64_t)wire);
	n += write_varint(header + n, x);
	add_piece(p, (Bytes){header, n});
}

void add_bytes(PieceTable *p, int number, Bytes body)
{
	add_header(p, number, W_bytes, body.count);
	add_piece(p, body);
}

void add_inside(PieceTable *p, int number, const PieceTable *inside)
{
	add_header(p, number, W_bytes, inside->count);
	add_pieces(p, inside);
}

void add_message(PieceTable *p, const Field *old, const PieceTable *inside)
{
	if (inside->count == old->body.count)
		add_piece(p, (Bytes){old->all.at, old->all.count - old->body.count});
	else
		add_header(p, old->number, W_bytes, inside->count);
	add_pieces(p, inside);
}

Bytes text_bytes(const char *s)
{
	return (Bytes){(const uint8_t *)s, strlen(s)};
}

// ---- tensors --------------------------------------------------------------------------

void store_number(uint8_t *to, Elem e, float x)
{
	double wide = (double)x, old_wide;
	uint16_t half = e == E_f16 ? float_to_half(x) : float_to_bf16(x), old;
	float narrow;
	switch (e) {
	case E_f64:
		memcpy(&old_wide, to, 8);
		if ((float)old_wide != x)
			memcpy(to, &wide, 8);
		return;
	case E_f32:
		memcpy(&narrow, to, 4);
		if (narrow != x)
			memcpy(to, &x, 4);
		return;
	default:
		memcpy(&old, to, 2);
		if ((e == E_f16 ? half_to_float(old) : bf16_to_float(old)) != x)
			memcpy(to, &half, 2);
	}
}

Bytes encode(Arena *arena, Elem e, const uint8_t *old, const float *x, int64_t n)
{
	size_t size = (size_t)elems[e].bytes;
	uint8_t *to = take(arena, size * (size_t)n + 1);
	if (old)
		memcpy(to, old, size * (size_t)n);
	for (int64_t i = 0; i < n; i++)
		store_number(to + (size_t)i * size, e, x[i]);
	return (Bytes){to, size * (size_t)n};
}

// A typed field of floats, packed or one by one, or of halves as varints: written anew.
static void add_typed(PieceTable *p, const TensorProto *t, Elem e, const float *x, int64_t n)
{
	if (e == E_f32) {
		add_bytes(p, F_tensor_float,
		          encode(p->arena, e, (const uint8_t *)t->float_data, x, n));
		return;
	}
	if (e == E_f64) {
		add_bytes(p, F_tensor_double,
		          encode(p->arena, e, (const uint8_t *)t->double_data, x, n));
		return;
	}
	uint8_t *to = take(p->arena, 3 * (size_t)n + 1);
	size_t count = 0;
	for (int64_t i = 0; i < n; i++) {
		uint8_t half[2] = {(uint8_t)t->int32_data[i], (uint8_t)(t->int32_data[i] >> 8)};
		store_number(half, e, x[i]);
		count += write_varint(to + count, (uint64_t)(half[0] | half[1] << 8));
	}
	add_bytes(p, F_tensor_int32, (Bytes){to, count});
}

void add_tensor(PieceTable *p, const char *where, const Field *old, const TensorProto *t,
                const float *x, int64_t n)
{
	Elem e = (Elem)declared_type(t->data_type);
	PieceTable inside = {.arena = p->arena};
	Bytes at = old->body;
	bool typed = false;
	for (Field f; next_field(where, &at, &f);) {
		bool numbers = f.number == F_tensor_float || f.number == F_tensor_double ||
		               f.number == F_tensor_int32;
		if (f.number == F_tensor_raw && f.body.count) {
			PieceTable raw = {.arena = p->arena};
			add_piece(&raw, encode(p->arena, e, f.body.at, x, n));
			add_message(&inside, &f, &raw);
		} else if (numbers && !t->raw_data.len) {
			if (!typed)
				add_typed(&inside, t, e, x, n);
			typed = true;
		} else {
			add_piece(&inside, f.all);
		}
	}
	add_message(p, old, &inside);
}

void add_new_tensor(PieceTable *p, const char *name, Elem e, const Shape *s, const float *x)
{
	PieceTable inside = {.arena = p->arena};
	for (int a = 0; a < s->rank; a++)
		add_header(&inside, F_tensor_dims, W_varint, (uint64_t)s->dim[a]);
	add_header(&inside, F_tensor_type, W_varint, (uint64_t)elems[e].onnx);
	add_bytes(&inside, F_tensor_name, text_bytes(name));
	add_bytes(&inside, F_tensor_raw, encode(p->arena, e, NULL, x, count_of(s)));
	add_inside(p, F_graph_initializer, &inside);
}
