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

#define BEYOND_DOUBLE " has more digits than a double holds" HELP "store it in an .npy file"

static int add(struct column *column, const char *where, double x)
{
	if (column->count == column->room) {
		size_t room = column->room ? 2 * column->room : 1024;
		double *more = realloc(column->at, room * sizeof *more);
		if (!more)
			return amos_no_memory(where);
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

enum { MOST_COLUMNS = 4096 };

struct table {
	const char *path, *key; // key: COLUMNS or FIELD; NULL: all of a line
	struct amos_array *array;
	struct column column;
	int count; // csv: columns taken
	int at[MOST_COLUMNS];
};

static bool is_blank(const char *line)
{
	return !line[strspn(line, " \t\r\n")];
}

// Reads all lines into one array. `number` counts them from 1.
static int read_lines(const char *path, const char *key,
                      int read_line(struct table *, long number, const char *line),
                      struct amos_arrays *to)
{
	FILE *file = amos_input_stream(path);
	if (!file)
		return amos_fail_errno("read", path);
	char *line = NULL;
	size_t room = 0;
	int status = amos_arrays_room(to, path, 1);
	struct table table = {.path = path, .key = key, .array = to->at};
	to->n = !status;
	for (long number = 1; !status && getline(&line, &room, file) > 0; number++)
		status = read_line(&table, number, line);
	if (!status)
		status = amos_all_read(file, path);
	if (!status && !table.array->dim[0])
		status = amos_fail(AMOS_INPUT, "%s: no numbers in the file", path);
	struct column *all = &table.column;
	struct amos_blob blob = {(void *)all->at, all->count * sizeof(double), all->at, 0};
	if (!status)
		status = amos_array_take(table.array, path, &blob, 0);
	amos_blob_free(&blob);
	free(line);
	fclose(file);
	return status;
}

// ---- csv: COLUMNS as 0-2,5 or names in the first line ---------------------------------

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

static int pick_one(struct table *t, const char *header, const char *text, size_t length)
{
	char *end;
	long from = strtol(text, &end, 10), last = from;
	if (end != text && *end == '-')
		last = strtol(end + 1, &end, 10);
	if (!isdigit((unsigned char)*text) || end != text + length) { // a name
		size_t n;
		const char *at = cell(header, 0, &n);
		for (from = 0; at && (n != length || strncmp(at, text, n));)
			at = cell(header, (int)++from, &n);
		from = last = at ? from : -1;
	}
	if (from < 0 || last < from || last > INT_MAX || last - from >= MOST_COLUMNS - t->count)
		return amos_fail(
		    AMOS_INPUT,
		    "%s: no column '%.*s'; expected numbers from 0 (0-2,5) or names in "
		    "the first line",
		    t->path, (int)length, text);
	for (long i = from; i <= last; i++)
		t->at[t->count++] = (int)i;
	return AMOS_DONE;
}

// Chooses the columns by the first line: those of COLUMNS, or all.
static int pick(struct table *t, const char *header)
{
	size_t n;
	int status = AMOS_DONE;
	for (const char *columns = t->key; columns && !status;) {
		n = strcspn(columns, ",");
		status = pick_one(t, header, columns, n);
		columns += n + (columns[n] == ',');
		if (!*columns)
			break;
	}
	for (; !t->key && t->count < MOST_COLUMNS && cell(header, t->count, &n); t->count++)
		t->at[t->count] = t->count;
	if (!t->key && cell(header, t->count, &n))
		return amos_fail(AMOS_INPUT,
		                 "%s: more than %d columns" HELP "select some, %s:0-2,5", t->path,
		                 MOST_COLUMNS, t->path);
	t->array->rank = t->count > 1 ? 2 : 1;
	t->array->dim[1] = t->count;
	return status;
}

// True if the first line is not numbers.
static bool is_header(const struct table *t, const char *line)
{
	size_t n;
	for (int i = 0; i < t->count; i++) {
		const char *at = cell(line, t->at[i], &n);
		char *end;
		if (at && n && (strtod(at, &end), end != at + n))
			return true;
	}
	return false;
}

static int read_row(struct table *t, long number, const char *line)
{
	size_t n;
	char *end;
	int status = number == 1 ? pick(t, line) : AMOS_DONE;
	if (status || is_blank(line) || (number == 1 && is_header(t, line)))
		return status;
	if (!t->key && cell(line, t->count, &n) && n)
		return amos_fail(AMOS_INPUT, "%s: line %ld has more cells than the first line, %d",
		                 t->path, number, t->count);
	for (int i = 0; !status && i < t->count; i++) {
		const char *at = cell(line, t->at[i], &n);
		double x = at ? strtod(at, &end) : 0;
		if (!at || !n || end != at + n)
			return amos_fail(AMOS_INPUT,
			                 "%s: line %ld, column %d: expected a number, found %.*s",
			                 t->path, number, t->at[i], at && n ? (int)n : 7,
			                 at && n ? at : "nothing");
		if (!is_exact(at, n, x))
			return amos_fail(AMOS_INPUT, "%s: line %ld, column %d: %.*s" BEYOND_DOUBLE,
			                 t->path, number, t->at[i], (int)n, at);
		status = add(&t->column, t->path, x);
	}
	t->array->dim[0]++;
	return status;
}

int amos_arrays_csv(const char *path, const char *columns, struct amos_arrays *to)
{
	return read_lines(path, columns, read_row, to);
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

static int read_object(struct table *t, long number, const char *line)
{
	char where[1024];
	json_error_t error;
	if (is_blank(line))
		return AMOS_DONE;
	json_t *object = json_loads(line, JSON_DECODE_ANY, &error);
	json_t *value = t->key ? json_object_get(object, t->key) : object;
	snprintf(where, sizeof where, "%s: line %ld", t->path, number);
	bool memory = !object && json_error_code(&error) == json_error_out_of_memory,
	     first = !t->array->dim[0]++;
	t->array->rank += first;
	int status = memory    ? amos_no_memory(where)
	             : !object ? amos_fail(AMOS_INPUT, "%s: not JSON: %s", where, error.text)
	             : !value  ? amos_fail(AMOS_INPUT, "%s: no field '%s'", where, t->key)
	                       : add_numbers(value, where, t->array, 1, first, &t->column);
	json_decref(object);
	return status;
}

int amos_arrays_jsonl(const char *path, const char *field, struct amos_arrays *to)
{
	return read_lines(path, field, read_object, to);
}
