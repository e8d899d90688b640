// piece_table.c: splices byte ranges of a file and values.
// Input: the fields of the old file, and views of slots. Output: the pieces of the new file in
// order. Invariant: what does not change keeps its bytes, even the encoding of a length.
#include "write.h"
#include <string.h>

// ---- fields ---------------------------------------------------------------------------

static void push(PieceTable *p, struct amos_piece piece)
{
	piece.when = p->when;
	PUSH(p->arena, p->list, piece);
}

void add_piece(PieceTable *p, Bytes b)
{
	struct amos_piece *last = p->list.count > p->apart ? &p->list.at[p->list.count - 1] : NULL;
	p->count += b.count;
	if (last && last->kind == AMOS_PIECE_BYTES && last->when == p->when && last->count &&
	    (const uint8_t *)last->bytes + last->count == b.at)
		last->count += (int64_t)b.count;
	else
		push(p, (struct amos_piece){.bytes = b.at, .count = (int64_t)b.count});
}

void add_zeros(PieceTable *p, size_t count)
{
	p->count += count;
	push(p, (struct amos_piece){.count = (int64_t)count});
}

void add_name(PieceTable *p)
{
	push(p, (struct amos_piece){.kind = AMOS_PIECE_NAME});
}

static Bytes new_header(Arena *arena, int number, int wire, uint64_t x)
{
	char *header = take(arena, 20);
	size_t n = amos_varint(header, (uint64_t)number << 3 | (uint64_t)wire);
	n += amos_varint(header + n, x);
	return (Bytes){(const uint8_t *)header, n};
}

static void add_number(PieceTable *p, int number, uint64_t x)
{
	add_piece(p, new_header(p->arena, number, W_varint, x));
}

int begin_field(PieceTable *p)
{
	push(p, (struct amos_piece){0}); // the header, once the length is known
	return p->list.count - 1;
}

// Returns the bytes of the pieces of a body; -1: they depend on the values.
static int64_t body_bytes(const PieceTable *p, int begun)
{
	int64_t bytes = 0;
	for (int i = begun + 1; i < p->list.count; i++) {
		const struct amos_piece *piece = &p->list.at[i];
		bool values = piece->kind == AMOS_PIECE_VALUES;
		if ((piece->kind != AMOS_PIECE_BYTES && !values) || piece->when != p->when)
			return -1;
		bytes += piece->count * (values ? elems[piece->type].bytes : 1);
	}
	return bytes;
}

// A field of fixed length is bytes and values, and one that became what it was is one piece again.
void end_field(PieceTable *p, int begun, int number, const Field *old)
{
	int64_t bytes = body_bytes(p, begun);
	Bytes was = old ? (Bytes){old->all.at, old->all.count - old->body.count} : (Bytes){0};
	if (bytes < 0) {
		p->list.at[begun] =
		    (struct amos_piece){.kind = AMOS_PIECE_FIELD,
		                        .when = p->when,
		                        .bytes = was.at,
		                        .count = (int64_t)was.count,
		                        .number = number,
		                        .length = old ? (int64_t)old->body.count : -1,
		                        .pieces = p->list.count - begun - 1};
		p->apart = p->list.count;
		return;
	}
	bool kept = old && (size_t)bytes == old->body.count;
	Bytes header = kept ? was : new_header(p->arena, number, W_bytes, (uint64_t)bytes);
	size_t count = p->count + header.count;
	int end = p->list.count;
	p->list.count = begun;
	add_piece(p, header);
	for (int i = begun + 1; i < end; i++) {
		struct amos_piece piece = p->list.at[i];
		if (piece.kind == AMOS_PIECE_BYTES)
			add_piece(p, (Bytes){piece.bytes, (size_t)piece.count});
		else
			push(p, piece);
	}
	p->count = count;
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

// True if a slot's initial values are stored as the `n` elements at `old`.
static bool are_stored(const struct amos_piece *piece, const struct amos_view *view,
                       const float *init, const void *old)
{
	enum { BLOCK = 512 };
	char block[BLOCK * sizeof(double)];
	size_t size = (size_t)elems[piece->type].bytes;
	if (init == old && piece->type == E_f32 && view->copy == AMOS_COPY_SAME)
		return true; // they lie in the file
	for (int64_t i = 0; i < piece->count; i += BLOCK) {
		int64_t n = MIN(piece->count - i, BLOCK);
		amos_template_elements(piece, view, init, i, n, block);
		if (memcmp(block, (const char *)old + size * (size_t)i, size * (size_t)n))
			return false;
	}
	return true;
}

// Returns the piece of these values. The old elements are part of it only where the initial values
// do not have all of their bits.
static struct amos_piece values_piece(const ModelWriter *w, int view, Elem e, int64_t n,
                                      const void *old)
{
	const struct amos_view *v = &w->views.at[view];
	const float *init = w->m->graph->slots.at[v->slot].init;
	struct amos_piece piece = {.kind = AMOS_PIECE_VALUES, .view = view, .type = e, .count = n};
	if (old && !(init && are_stored(&piece, v, init, old)))
		piece.bytes = old;
	return piece;
}

void add_values(ModelWriter *w, PieceTable *p, int view, Elem e, int64_t n, const void *old)
{
	push(p, values_piece(w, view, e, n, old));
	p->count += (size_t)(n * elems[e].bytes);
}

// Adds a typed field: floats or doubles, packed, or halves as varints.
static void add_typed(ModelWriter *w, PieceTable *p, const TensorProto *t, Elem e,
                      const Patch *patch)
{
	bool half = e != E_f32 && e != E_f64;
	int number = half ? F_tensor_int32 : e == E_f32 ? F_tensor_float : F_tensor_double;
	int field = begin_field(p);
	if (!half) {
		const void *old = e == E_f32 ? (const void *)t->float_data : t->double_data;
		add_values(w, p, patch->view, e, patch->n, old);
	} else {
		uint16_t *old = NEWS(p->arena, uint16_t, patch->n + 1);
		for (int64_t i = 0; i < patch->n; i++)
			old[i] = (uint16_t)t->int32_data[i];
		struct amos_piece values = values_piece(w, patch->view, e, patch->n, old);
		values.kind = AMOS_PIECE_VARINTS;
		push(p, values);
	}
	end_field(p, field, number, NULL);
}

void add_tensor_fields(ModelWriter *w, PieceTable *p, Bytes old, const TensorProto *t,
                       const Patch *patch)
{
	Elem e = (Elem)declared_type(t->data_type);
	bool typed = false;
	for (Field f; next_field(w->m->path, &old, &f);) {
		bool numbers = f.number == F_tensor_float || f.number == F_tensor_double ||
		               f.number == F_tensor_int32;
		if (f.number == F_tensor_raw && f.body.count) {
			int raw = begin_field(p);
			add_values(w, p, patch->view, e, patch->n, f.body.at);
			end_field(p, raw, F_tensor_raw, &f);
		} else if (numbers && !t->raw_data.len) {
			if (!typed)
				add_typed(w, p, t, e, patch);
			typed = true;
		} else {
			add_piece(p, f.all);
		}
	}
}

void add_attribute_fields(ModelWriter *w, PieceTable *p, Bytes old, const AttributeProto *a,
                          const Patch *patch)
{
	bool written = false;
	for (Field f; next_field(w->m->path, &old, &f);) {
		if (f.number != F_attribute_floats) {
			add_piece(p, f.all);
		} else if (!written) {
			int floats = begin_field(p); // packed, as any reader takes them
			add_values(w, p, patch->view, E_f32, patch->n, a->floats);
			end_field(p, floats, F_attribute_floats, NULL);
			written = true;
		}
	}
}

void add_new_tensor(ModelWriter *w, PieceTable *p, const Extra *extra)
{
	p->when = extra->when;
	int tensor = begin_field(p);
	for (int a = 0; a < extra->shape.rank; a++)
		add_number(p, F_tensor_dims, (uint64_t)extra->shape.dim[a]);
	add_number(p, F_tensor_type, (uint64_t)elems[extra->type].onnx);
	add_bytes(p, F_tensor_name, text_bytes(extra->name));
	int raw = begin_field(p);
	add_values(w, p, extra->view, extra->type, count_of(&extra->shape), NULL);
	end_field(p, raw, F_tensor_raw, NULL);
	end_field(p, tensor, F_graph_initializer, NULL);
	p->when = 0;
}
