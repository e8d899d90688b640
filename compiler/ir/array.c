// array.c: creates arrays, iterates over them in row-major order, reads and writes their bytes.
// Output: double for every float type, int64 for all others. Invariant: integers wrap to their
// type.
#include "eval.h"
#include <math.h>
#include <string.h>

// ---- elements -------------------------------------------------------------------------

Array array_new(Arena *arena, Elem elem, const Shape *shape)
{
	Array array = {.type = elem, .shape = *shape};
	size_t count = (size_t)count_of(shape);
	if (is_float(elem))
		array.f = NEWS(arena, double, count);
	else
		array.i = NEWS(arena, int64_t, count);
	return array;
}

void copy_element(Array *out, int64_t to, const Array *in, int64_t from)
{
	if (is_float(out->type))
		out->f[to] = in->f[from];
	else
		out->i[to] = in->i[from];
}

int64_t wrap_int(Elem elem, int64_t x)
{
	int spare = 64 - 8 * elems[elem].bytes;
	uint64_t high = (uint64_t)x << spare;
	if (elem == E_b8)
		return x != 0;
	return is_signed(elem) ? (int64_t)high >> spare : (int64_t)(high >> spare);
}

void set_float(Array *out, int64_t i, double x)
{
	if (is_float(out->type))
		out->f[i] = x;
	else if (out->type == E_b8)
		out->i[i] = x != 0;
	else if (out->type == E_u64)
		out->i[i] = !(x > 0) ? 0 : (int64_t)(x >= 0x1p64 ? UINT64_MAX : (uint64_t)x);
	else
		out->i[i] = isnan(x)      ? 0
		            : x >= 0x1p63 ? INT64_MAX
		            : x < -0x1p63 ? INT64_MIN
		                          : wrap_int(out->type, (int64_t)x);
}

double element_at(const Array *a, int64_t i)
{
	return is_float(a->type)  ? a->f[i]
	       : a->type == E_u64 ? (double)(uint64_t)a->i[i]
	                          : (double)a->i[i];
}

// ---- positions ------------------------------------------------------------------------

bool next_index(const Shape *shape, int64_t *at)
{
	for (int a = shape->rank - 1; a >= 0; a--) {
		if (++at[a] < shape->dim[a])
			return true;
		at[a] = 0;
	}
	return false;
}

Shape lines_of(const Shape *shape, int64_t *length)
{
	int last = shape->rank - 1;
	*length = last < 0 ? 1 : shape->dim[last];
	return shape_of(MAX(0, last), shape->dim);
}

int64_t element_offset(int rank, const int64_t *at, const int64_t *stride)
{
	int64_t sum = 0;
	for (int a = 0; a < rank; a++)
		sum += at[a] * stride[a];
	return sum;
}

void broadcast_strides(const Shape *from, int rank, int64_t *stride)
{
	int64_t own[RANK];
	row_strides(from, own);
	for (int a = 0; a < rank; a++) {
		int b = a - (rank - from->rank);
		stride[a] = b >= 0 && from->dim[b] != 1 ? own[b] : 0;
	}
}

// ---- bytes ----------------------------------------------------------------------------

Array array_from(Arena *arena, Elem elem, const Shape *shape, const void *bytes)
{
	Array array = array_new(arena, elem, shape);
	Val v = {.type = elem, .data = bytes};
	for (int64_t i = 0, n = count_of(shape); i < n; i++) {
		if (is_float(elem))
			array.f[i] = const_at(&v, i);
		else
			array.i[i] = const_int_at(&v, i);
	}
	return array;
}

Array slot_start(Arena *arena, const Slot *slot)
{
	if (slot->init)
		return array_from(arena, slot->type, &slot->shape, slot->init);
	return array_new(arena, slot->type, &slot->shape);
}

void array_to(const Array *array, void *bytes)
{
	for (int64_t i = 0, n = count_of(&array->shape); i < n; i++) {
		switch (array->type) {
		case E_f64:
			((double *)bytes)[i] = array->f[i];
			break;
		case E_f32:
			((float *)bytes)[i] = (float)array->f[i];
			break;
		case E_f16:
			((uint16_t *)bytes)[i] = amos_to_f16((float)array->f[i]);
			break;
		case E_bf16:
			((uint16_t *)bytes)[i] = amos_to_bf16((float)array->f[i]);
			break;
		default: // little-endian: the low bytes
			memcpy((char *)bytes + i * elems[array->type].bytes, &array->i[i],
			       (size_t)elems[array->type].bytes);
		}
	}
}
