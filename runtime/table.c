// table.c: reads numbers from text tables (csv, jsonl) as arrays of f64.
#include "rt.h"
#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct column { // numbers read so far
	double *at;
	size_t count, room;
};

#define BEYOND_DOUBLE " has more digits than a double holds\n  help: store it in an .npy file"

static int add(struct column *column, const char *where, double x)
{
	if (column->count == column->room) {
		size_t room = column->room ? 2 * column->room : 1024;
		double *more = realloc(column->at, room * sizeof *more);
		if (!more)
			return amos_fail(AMOS_MACHINE, "%s: out of memory", where);
		column->at = more;
		column->room = room;
	}
	column->at[column->count++] = x;
	return AMOS_DONE;
}

// True if `x` is exactly the number in `text`, or `text` is not a 64-bit integer.
static bool is_exact(const char *text, size_t length, double x)
{
	char *end;
	errno = 0;
	long long n = strtoll(text, &end, 10);
	return end != text + length || errno || (fabs(x) < 0x1p63 && (long long)x == n);
}

// Moves the numbers into the array, whose shape is set.
static int as_array(struct column *column, const char *where, struct amos_array *array)
{
	struct amos_blob blob = {(void *)column->at, column->count * sizeof(double), column->at, 0};
	array->type = AMOS_f64;
	*column = (struct column){0};
	int status = amos_array_take(array, where, &blob, 0);
	amos_blob_free(&blob);
	return status;
}

// ---- csv: COLUMNS as 0-2,5 or names in the first line ---------------------------------

enum { MOST_COLUMNS = 4096 };

struct picked {
	int count;
	bool all; // all columns of the first line
	int at[MOST_COLUMNS];
};

// Returns cell `index` of a line, without quotes; NULL: the line has fewer. *length excludes blanks
// around it.
static const char *cell(const char *line, int index, size_t *length)
{
	for (; index > 0; index--) {
		line = strchr(line, ',');
		if (!line++)
			return NULL;
	}
	line += strspn(line, " \t\"");
	*length = strcspn(line, ",\r\n");
	while (*length && strchr(" \t\"", line[*length - 1]))
		--*length;
	return line;
}

static int named_cell(const char *line, const char *name, size_t length)
{
	size_t n;
	const char *at;
	for (int i = 0; (at = cell(line, i, &n)); i++)
		if (n == length && !strncmp(at, name, n))
			return i;
	return -1;
}

static int pick_one(const char *path, const char *header, const char *text, size_t length,
                    struct picked *to)
{
	char *end;
	long from = strtol(text, &end, 10), last = from;
	if (end != text && *end == '-')
		last = strtol(end + 1, &end, 10);
	if (!isdigit((unsigned char)*text) || end != text + length)
		from = last = named_cell(header, text, length);
	if (from < 0 || last < from || last > INT_MAX || last - from >= MOST_COLUMNS - to->count)
		return amos_fail(
		    AMOS_INPUT,
		    "%s: no column '%.*s'; expected numbers from 0 (0-2,5) or names in "
		    "the first line",
		    path, (int)length, text);
	for (long i = from; i <= last; i++)
		to->at[to->count++] = (int)i;
	return AMOS_DONE;
}

static int pick(const char *path, const char *header, const char *columns, struct picked *to)
{
	size_t n;
	to->all = !columns;
	if (!columns) {
		while (to->count < MOST_COLUMNS && cell(header, to->count, &n)) {
			to->at[to->count] = to->count;
			to->count++;
		}
		if (cell(header, to->count, &n))
			return amos_fail(AMOS_INPUT,
			                 "%s: more than %d columns\n  help: select some, %s:0-2,5",
			                 path, MOST_COLUMNS, path);
		return AMOS_DONE;
	}
	int status;
	do {
		n = strcspn(columns, ",");
		status = pick_one(path, header, columns, n, to);
		columns += n + (columns[n] == ',');
	} while (!status && *columns);
	return status;
}

// True if the first line is not numbers.
static bool is_header(const char *line, const struct picked *picked)
{
	size_t n;
	for (int i = 0; i < picked->count; i++) {
		const char *at = cell(line, picked->at[i], &n);
		char *end;
		if (at && n && (strtod(at, &end), end != at + n))
			return true;
	}
	return false;
}

static int read_row(const char *path, long number, const char *line, const struct picked *picked,
                    struct column *column)
{
	size_t rest;
	if (picked->all && cell(line, picked->count, &rest) && rest)
		return amos_fail(AMOS_INPUT, "%s: line %ld has more cells than the first line, %d",
		                 path, number, picked->count);
	for (int i = 0; i < picked->count; i++) {
		size_t n;
		const char *at = cell(line, picked->at[i], &n);
		char *end;
		double x = at ? strtod(at, &end) : 0;
		if (!at || !n || end != at + n)
			return amos_fail(AMOS_INPUT,
			                 "%s: line %ld, column %d: expected a number, found %.*s",
			                 path, number, picked->at[i], at && n ? (int)n : 7,
			                 at && n ? at : "nothing");
		if (!is_exact(at, n, x))
			return amos_fail(AMOS_INPUT, "%s: line %ld, column %d: %.*s" BEYOND_DOUBLE,
			                 path, number, picked->at[i], (int)n, at);
		int status = add(column, path, x);
		if (status)
			return status;
	}
	return AMOS_DONE;
}

int amos_array_csv(const char *path, const char *columns, struct amos_array *array)
{
	FILE *file = amos_input_stream(path);
	if (!file)
		return amos_fail_errno("read", path);
	struct picked *picked = calloc(1, sizeof *picked);
	struct column column = {0};
	char *line = NULL;
	size_t room = 0;
	int status = picked ? AMOS_DONE : amos_fail(AMOS_MACHINE, "%s: out of memory", path);
	for (long number = 1; !status && getline(&line, &room, file) > 0; number++) {
		if (number == 1 && (status = pick(path, line, columns, picked)))
			break;
		if (line[strspn(line, " \t\r\n")] && !(number == 1 && is_header(line, picked))) {
			status = read_row(path, number, line, picked, &column);
			array->dim[0]++;
		}
	}
	if (!status)
		status = amos_all_read(file, path);
	if (!status && !array->dim[0])
		status = amos_fail(AMOS_INPUT, "%s: no numbers in the file", path);
	array->rank = picked && picked->count > 1 ? 2 : 1;
	array->dim[1] = picked ? picked->count : 0;
	if (!status)
		status = as_array(&column, path, array);
	free(column.at);
	free(picked);
	free(line);
	fclose(file);
	return status;
}

// ---- jsonl: one object per line; FIELD is a number or nested lists --------------------

// Adds all numbers of nested lists, whose sizes must be dim[1..rank), or set these on the first
// line.
static int add_numbers(const json_t *value, const char *where, struct amos_array *array, int axis,
                       bool first, struct column *column)
{
	if (json_is_number(value) || json_is_boolean(value)) {
		if (axis != array->rank)
			return amos_fail(AMOS_INPUT, "%s: the lists differ in shape", where);
		double x = json_is_number(value) ? json_number_value(value) : json_is_true(value);
		if (json_is_integer(value) &&
		    !(fabs(x) < 0x1p63 && (json_int_t)x == json_integer_value(value)))
			return amos_fail(AMOS_INPUT, "%s: %lld" BEYOND_DOUBLE, where,
			                 (long long)json_integer_value(value));
		return add(column, where, x);
	}
	if (!json_is_array(value))
		return amos_fail(AMOS_INPUT, "%s: expected a number or lists of numbers", where);
	if (first && axis == array->rank && axis < 10)
		array->dim[array->rank++] = (int64_t)json_array_size(value);
	if (axis >= array->rank || array->dim[axis] != (int64_t)json_array_size(value))
		return amos_fail(AMOS_INPUT, "%s: the lists differ in shape", where);
	for (size_t i = 0; i < json_array_size(value); i++) {
		int status = add_numbers(json_array_get(value, i), where, array, axis + 1,
		                         first && !i, column);
		if (status)
			return status;
	}
	return AMOS_DONE;
}

static int read_line(const char *path, long number, const char *line, const char *field,
                     struct amos_array *array, struct column *column)
{
	char where[1024];
	json_error_t error;
	json_t *object = json_loads(line, JSON_DECODE_ANY, &error);
	json_t *value = field ? json_object_get(object, field) : object;
	snprintf(where, sizeof where, "%s: line %ld", path, number);
	bool memory = !object && json_error_code(&error) == json_error_out_of_memory;
	int status = memory    ? amos_no_memory(where)
	             : !object ? amos_fail(AMOS_INPUT, "%s: not JSON: %s", where, error.text)
	             : !value  ? amos_fail(AMOS_INPUT, "%s: no field '%s'", where, field)
	                       : add_numbers(value, where, array, 1, !array->dim[0], column);
	json_decref(object);
	array->dim[0]++;
	return status;
}

int amos_array_jsonl(const char *path, const char *field, struct amos_array *array)
{
	FILE *file = amos_input_stream(path);
	if (!file)
		return amos_fail_errno("read", path);
	struct column column = {0};
	char *line = NULL;
	size_t room = 0;
	int status = AMOS_DONE;
	array->rank = 1;
	for (long number = 1; !status && getline(&line, &room, file) > 0; number++)
		if (line[strspn(line, " \t\r\n")])
			status = read_line(path, number, line, field, array, &column);
	if (!status)
		status = amos_all_read(file, path);
	if (!status && !array->dim[0])
		status = amos_fail(AMOS_INPUT, "%s: no lines in the file", path);
	if (!status)
		status = as_array(&column, path, array);
	free(column.at);
	free(line);
	fclose(file);
	return status;
}
