// piece_table.c: splices old and new byte ranges.
// Input: the fields of the old file and new values. Output: the pieces of the new file in order.
// Invariant: what did not change keeps its bytes, even the encoding of a length.
#include "write.h"
#include <string.h>

// ---- fields ---------------------------------------------------------------------------

void add_piece(PieceTable *p, Bytes b)
{
	Bytes *last = p->list.count ? &p->list.at[p->list.count - 1] : NULL;
	if (last && last->count && last->at + last->count == b.at)
		last->count += b.count;
	else
		PUSH(p->arena, p->list, b);
	p->count += b.count;
}

static size_t write_varint(uint8_t *to, uint64_t x)
{
	size_t n = 0;
	for (; x > 127; x >>= 7)
		to[n++] = (uint8_t)(x | 128);
	to[n++] = (uint8_t)x;
	return n;
}

static Bytes new_header(Arena *arena, int number, int wire, uint64_t x)
{
	uint8_t *header = take(arena, 20);
	size_t n = write_varint(header, (uint64_t)number << 3 | (uint64_t)wire);
	n += write_varint(header + n, x);
	return (Bytes){header, n};
}

static void add_number(PieceTable *p, int number, uint64_t x)
{
	add_piece(p, new_header(p->arena, number, W_varint, x));
}

int begin_field(PieceTable *p)
{
	PUSH(p->arena, p->list, (Bytes){0}); // the header, once the length is known
	return p->list.count - 1;
}

// A field that became what it was is one piece again.
void end_field(PieceTable *p, int begun, int number, const Field *old)
{
	size_t count = 0;
	Bytes *piece = p->list.at;
	for (int i = begun + 1; i < p->list.count; i++)
		count += piece[i].count;
	bool kept = old && count == old->body.count;
	piece[begun] = kept ? (Bytes){old->all.at, old->all.count - count}
	                    : new_header(p->arena, number, W_bytes, count);
	p->count += piece[begun].count;
	if (!kept || p->list.count != begun + 2 || piece[begun + 1].at != old->body.at)
		return;
	p->list.count = begun;
	p->count -= old->all.count;
	add_piece(p, old->all);
}

void add_bytes(PieceTable *p, int number, Bytes body)
{
	int field = begin_field(p);
	add_piece(p, body);
	end_field(p, field, number, NULL);
}

Bytes text_bytes(const char *s)
{
	return (Bytes){(const uint8_t *)s, strlen(s)};
}

// ---- tensors --------------------------------------------------------------------------

// Stores x as an element of type `e`; keeps what is there if it reads as x already.
static void store_number(void *to, Elem e, float x)
{
	double wide = (double)x;
	if ((float)const_at(&(Val){.type = e, .data = to}, 0) != x)
		array_to(&(Array){.type = e, .f = &wide}, to);
}

Bytes encode(Arena *arena, Elem e, const uint8_t *old, const float *x, int64_t n)
{
	size_t size = (size_t)elems[e].bytes;
	if (e == E_f32)
		return (Bytes){(const uint8_t *)x, size * (size_t)n};
	uint8_t *to = take(arena, size * (size_t)n + 1);
	if (old)
		memcpy(to, old, size * (size_t)n);
	for (int64_t i = 0; i < n; i++)
		store_number(to + (size_t)i * size, e, x[i]);
	return (Bytes){to, size * (size_t)n};
}

// Writes a typed field anew: floats or doubles, packed or one by one, or halves as varints.
static void add_typed(PieceTable *p, const TensorProto *t, Elem e, const float *x, int64_t n)
{
	bool single = e == E_f32;
	if (single || e == E_f64) {
		const void *old = single ? (const void *)t->float_data : t->double_data;
		add_bytes(p, single ? F_tensor_float : F_tensor_double,
		          encode(p->arena, e, old, x, n));
		return;
	}
	uint8_t *to = take(p->arena, 3 * (size_t)n + 1);
	size_t count = 0;
	for (int64_t i = 0; i < n; i++) {
		uint16_t half = (uint16_t)t->int32_data[i];
		store_number(&half, e, x[i]);
		count += write_varint(to + count, half);
	}
	add_bytes(p, F_tensor_int32, (Bytes){to, count});
}

void add_tensor_fields(PieceTable *p, const char *where, Bytes old, const TensorProto *t,
                       const float *x, int64_t n)
{
	Elem e = (Elem)declared_type(t->data_type);
	bool typed = false;
	for (Field f; next_field(where, &old, &f);) {
		bool numbers = f.number == F_tensor_float || f.number == F_tensor_double ||
		               f.number == F_tensor_int32;
		if (f.number == F_tensor_raw && f.body.count) {
			int raw = begin_field(p);
			add_piece(p, encode(p->arena, e, f.body.at, x, n));
			end_field(p, raw, F_tensor_raw, &f);
		} else if (numbers && !t->raw_data.len) {
			if (!typed)
				add_typed(p, t, e, x, n);
			typed = true;
		} else {
			add_piece(p, f.all);
		}
	}
}

void add_new_tensor(PieceTable *p, const char *name, Elem e, const Shape *s, const float *x)
{
	int tensor = begin_field(p);
	for (int a = 0; a < s->rank; a++)
		add_number(p, F_tensor_dims, (uint64_t)s->dim[a]);
	add_number(p, F_tensor_type, (uint64_t)elems[e].onnx);
	add_bytes(p, F_tensor_name, text_bytes(name));
	add_bytes(p, F_tensor_raw, encode(p->arena, e, NULL, x, count_of(s)));
	end_field(p, tensor, F_graph_initializer, NULL);
}
