// template.c: writes a file of a model with other weights, by its template (abi.def).
// Sizes are computed where they are needed: only fields around pieces of varying size keep theirs
// open, and tests end at the first element that differs. Invariant: nothing is allocated.
#include "abi.h"
#include "common.h"
#include <stdlib.h>
#include <string.h>

// ---- values ---------------------------------------------------------------------------

static size_t element_size(const struct amos_piece *p)
{
	return p->type == AMOS_F64   ? sizeof(double)
	       : p->type == AMOS_F32 ? sizeof(float)
	                             : sizeof(uint16_t);
}

// Returns an element of a slot as the file has it, or an element of the file as the slot has it.
static float copied(const struct amos_view *v, float x)
{
	return v->copy == AMOS_COPY_COMPLEMENT ? 1 - x : x;
}

// The values may lie at any address: those of the model's file lie in it.
static float value_at(const float *values, int64_t i)
{
	float x;
	memcpy(&x, (const char *)values + (size_t)i * sizeof x, sizeof x);
	return x;
}

// Returns the element of the slot that element i of the file is computed from.
static float slot_element(const struct amos_view *v, const float *x, int64_t i)
{
	if (v->copy == AMOS_COPY_TRANSPOSED)
		i = i % v->rows * v->columns + i / v->rows;
	else if (v->copy == AMOS_COPY_REPEATED)
		i = i / (v->rows * v->columns) * v->columns + i % v->columns;
	return value_at(x, i);
}

static float stored_element(const struct amos_piece *p, const char *at)
{
	double d;
	float f;
	uint16_t half;
	switch (p->type) {
	case AMOS_F64:
		memcpy(&d, at, sizeof d);
		return (float)d;
	case AMOS_F32:
		memcpy(&f, at, sizeof f);
		return f;
	default:
		memcpy(&half, at, sizeof half);
		return (float)(p->type == AMOS_F16 ? amos_from_f16(half) : amos_from_bf16(half));
	}
}

static void store_element(const struct amos_piece *p, float x, char *at)
{
	double d = (double)x;
	uint16_t half = 0;
	if (p->type == AMOS_F64)
		memcpy(at, &d, sizeof d);
	else if (p->type == AMOS_F32)
		memcpy(at, &x, sizeof x);
	else {
		half = p->type == AMOS_F16 ? amos_to_f16(d) : amos_to_bf16(d);
		memcpy(at, &half, sizeof half);
	}
}

void amos_template_elements(const struct amos_piece *p, const struct amos_view *v,
                            const float *values, int64_t from, int64_t n, char *to)
{
	size_t size = element_size(p);
	if (p->type == AMOS_F32 && v->copy == AMOS_COPY_SAME && !p->bytes) {
		memcpy(to, (const char *)values + size * (size_t)from, size * (size_t)n);
		return;
	}
	for (int64_t i = from; i < from + n; i++, to += size) {
		const char *old = p->bytes ? (const char *)p->bytes + size * (size_t)i : NULL;
		float x = slot_element(v, values, i),
		      y = old ? copied(v, stored_element(p, old)) : 0;
		if (old && (x == y || (x != x && y != y)))
			memcpy(to, old, size);
		else
			store_element(p, copied(v, x), to);
	}
}

// ---- tests ----------------------------------------------------------------------------

static const float *values_of(const struct amos_weights *w, const struct amos_view *v)
{
	return w->values(w->context, v->slot);
}

static bool differs(const struct amos_weights *w, const struct amos_test *test)
{
	const struct amos_view *a = &w->file->views[test->view],
	                       *b = test->other < 0 ? NULL : &w->file->views[test->other];
	const float *x = values_of(w, a), *y = b ? values_of(w, b) : test->numbers;
	for (int64_t i = 0; i < test->count; i++) {
		float one = copied(a, slot_element(a, x, i)),
		      other = b   ? copied(b, slot_element(b, y, i))
		              : y ? value_at(y, i)
		                  : 0;
		if (memcmp(&one, &other, sizeof one))
			return true;
	}
	return false;
}

struct writer {
	const struct amos_weights *weights;
	const char *data; // the name of the file of external data; NULL: there is none
	amos_put *put;
	void *to;
};

static bool is_written(const struct writer *w, const struct amos_piece *p)
{
	int64_t when = llabs(p->when);
	bool holds = when == AMOS_WHEN_DATA && w->data;
	if (when >= AMOS_WHEN_TEST) {
		const struct amos_test *test = &w->weights->file->tests[when - AMOS_WHEN_TEST];
		while (!(holds = differs(w->weights, test)) && test->more)
			test++;
	}
	return !when || holds == (p->when > 0);
}

int amos_template_check(const struct amos_weights *w, const char *where)
{
	for (int64_t i = 0; i < w->file->ntests; i++)
		if (w->file->tests[i].error && differs(w, &w->file->tests[i]))
			return amos_fail(AMOS_INPUT, "%s: %s", where, w->file->tests[i].error);
	return AMOS_DONE;
}

// ---- pieces ---------------------------------------------------------------------------

enum { BLOCK = 512 }; // elements that are converted at once

size_t amos_varint(char *to, uint64_t x)
{
	size_t n = 0;
	for (; x > 127; x >>= 7)
		to[n++] = (char)(x | 128);
	to[n++] = (char)x;
	return n;
}

// Writes the values, unless `put` is NULL. Returns their bytes.
static int64_t write_values(const struct writer *w, const struct amos_piece *p)
{
	char block[BLOCK * sizeof(double)], varints[BLOCK * 3];
	const struct amos_view *v = &w->weights->file->views[p->view];
	const float *values = values_of(w->weights, v);
	bool packed = p->kind == AMOS_PIECE_VALUES;
	int64_t bytes = 0;
	if (packed && !w->put)
		return p->count * (int64_t)element_size(p);
	for (int64_t i = 0; i < p->count; i += BLOCK) {
		int64_t n = p->count - i < BLOCK ? p->count - i : BLOCK;
		size_t size = element_size(p) * (size_t)n;
		amos_template_elements(p, v, values, i, n, block);
		if (!packed) {
			size = 0;
			for (int64_t k = 0; k < n; k++) {
				uint16_t half;
				memcpy(&half, block + 2 * k, sizeof half);
				size += amos_varint(varints + size, half);
			}
		}
		if (w->put)
			w->put(w->to, packed ? block : varints, size);
		bytes += (int64_t)size;
	}
	return bytes;
}

static void write_bytes(const struct writer *w, const char *at, int64_t count)
{
	static const char zeros[64];
	for (int64_t n; !at && count; count -= n)
		w->put(w->to, zeros, (size_t)(n = count < 64 ? count : 64));
	if (count)
		w->put(w->to, at, (size_t)count);
}

// Writes `n` pieces, with those in fields among them, unless `put` is NULL. Returns their bytes.
static int64_t write_pieces(const struct writer *w, const struct amos_piece *p, int64_t n)
{
	int64_t bytes = 0;
	for (const struct amos_piece *end = p + n; p < end; p += 1 + p->pieces) {
		struct writer counter = {w->weights, w->data, NULL, NULL};
		char header[20];
		const char *at = p->bytes;
		int64_t count = p->count, body = 0;
		if (!is_written(w, p))
			continue;
		if (p->kind == AMOS_PIECE_VALUES || p->kind == AMOS_PIECE_VARINTS) {
			bytes += write_values(w, p);
			continue;
		}
		if (p->kind == AMOS_PIECE_NAME)
			count = (int64_t)strlen(at = w->data);
		if (p->kind == AMOS_PIECE_FIELD)
			body = write_pieces(&counter, p + 1, p->pieces);
		if (p->kind == AMOS_PIECE_FIELD && body != p->length) {
			count = (int64_t)amos_varint(header, (uint64_t)p->number << 3 | 2);
			count += (int64_t)amos_varint(header + count, (uint64_t)body);
			at = header;
		}
		if (w->put)
			write_bytes(w, at, count);
		if (w->put && p->pieces)
			write_pieces(w, p + 1, p->pieces);
		bytes += count + body;
	}
	return bytes;
}

int64_t amos_template_write(const struct amos_weights *weights, enum amos_file_part part,
                            const char *data, amos_put *put, void *to)
{
	const struct amos_template *t = weights->file;
	const struct writer w = {weights, data, put, to};
	return part == AMOS_FILE_MODEL ? write_pieces(&w, t->model, t->nmodel)
	                               : write_pieces(&w, t->data, t->ndata);
}
