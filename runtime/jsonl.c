// jsonl.c: reads numbers from lines of JSON: one object per line; FIELD is a number or nested
// lists.
#include "table.h"
#include <errno.h>
#include <jansson.h>
#include <math.h>

// Adds all numbers of nested lists, whose sizes must be dim[1..rank), or set these on the first
// line.
static int add_numbers(struct amos_table *t, const json_t *value, const char *where, int axis,
                       bool first)
{
	struct amos_array *array = t->array;
	if (json_is_number(value) || json_is_boolean(value)) {
		if (axis != array->rank)
			return amos_fail(AMOS_INPUT, "%s: the lists differ in shape", where);
		double x = json_is_number(value) ? json_number_value(value) : json_is_true(value);
		if (json_is_integer(value) &&
		    !(fabs(x) < 0x1p63 && (json_int_t)x == json_integer_value(value)))
			return amos_fail(AMOS_INPUT, "%s: %lld" BEYOND_DOUBLE, where,
			                 (long long)json_integer_value(value));
		return amos_table_add(t, x);
	}
	if (!json_is_array(value))
		return amos_fail(AMOS_INPUT, "%s: expected a number or lists of numbers", where);
	if (first && axis == array->rank && axis < 10)
		array->dim[array->rank++] = (int64_t)json_array_size(value);
	if (axis >= array->rank || array->dim[axis] != (int64_t)json_array_size(value))
		return amos_fail(AMOS_INPUT, "%s: the lists differ in shape", where);
	for (size_t i = 0; i < json_array_size(value); i++) {
		int status = add_numbers(t, json_array_get(value, i), where, axis + 1, first && !i);
		if (status)
			return status;
	}
	return AMOS_DONE;
}

static int read_object(struct amos_table *t, long number, char *line)
{
	char where[1024];
	json_error_t error;
	errno = 0; // jansson does not report every lack of memory itself
	json_t *object = json_loads(line, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &error);
	json_t *value = t->key ? json_object_get(object, t->key) : object;
	snprintf(where, sizeof where, "%s: line %ld", t->path, number);
	bool memory = !object && errno == ENOMEM, first = !t->array->dim[0]++;
	t->array->rank += first;
	int status = memory    ? amos_no_memory(where)
	             : !object ? amos_fail(AMOS_INPUT, "%s: not JSON: %s", where, error.text)
	             : !value  ? amos_fail(AMOS_INPUT, "%s: no field '%s'", where, t->key)
	                       : add_numbers(t, value, where, 1, first);
	json_decref(object);
	return status;
}

int amos_arrays_jsonl(const char *path, const char *field, struct amos_arrays *to)
{
	return amos_table_lines(path, field, read_object, to);
}
