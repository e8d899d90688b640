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

struct cell { // of a csv line, without quotes and the blanks around them
	const char *at;
	size_t length;
};

struct table {
	const char *path, *key; // key: COLUMNS or FIELD; NULL: all of a line
	struct amos_array *array;
	struct column column;
	struct cell *cells; // csv: of the current line
	long ncells, room;
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
	free(table.cells);
	free(line);
	fclose(file);
	return status;
}

// ---- csv: COLUMNS as 0-2,5 or names in the first line ---------------------------------

// Finds the cells of a line.
static int split(struct table *t, const char *line)
{
	long count = 1;
	for (const char *comma = line; (comma = strchr(comma, ',')); comma++)
		count++;
	if (t->room < count) {
		struct cell *more = realloc(t->cells, (size_t)count * sizeof *more);
		if (!more)
			return amos_no_memory(t->path);
		t->cells = more;
		t->room = count;
	}
	for (t->ncells = 0; t->ncells < count; line = strchrnul(line, ',') + 1) {
		line += strspn(line, " \t\"");
		size_t length = strcspn(line, ",\r\n");
		while (length && strchr(" \t\"", line[length - 1]))
			length--;
		t->cells[t->ncells++] = (struct cell){line, length};
	}
	return AMOS_DONE;
}

// Chooses the columns by the first line: those of COLUMNS, or all.
static int pick(struct table *t)
{
	if (!t->key && t->ncells > MOST_COLUMNS)
		return amos_fail(AMOS_INPUT,
		                 "%s: more than %d columns" HELP "select some, %s:0-2,5", t->path,
		                 MOST_COLUMNS, t->path);
	for (; !t->key && t->count < t->ncells; t->count++)
		t->at[t->count] = t->count;
	for (const char *text = t->key; text;) {
		size_t length = strcspn(text, ",");
		char *end;
		long from = strtol(text, &end, 10), last = from;
		if (end != text && *end == '-')
			last = strtol(end + 1, &end, 10);
		if (!isdigit((unsigned char)*text) || end != text + length) { // a name
			for (from = 0;
			     from < t->ncells && (t->cells[from].length != length ||
			                          memcmp(t->cells[from].at, text, length));)
				from++;
			from = last = from < t->ncells ? from : -1;
		}
		if (from < 0 || last < from || last > INT_MAX ||
		    last - from >= MOST_COLUMNS - t->count)
			return amos_fail(
			    AMOS_INPUT,
			    "%s: no column '%.*s'; expected numbers from 0 (0-2,5) or names in "
			    "the first line",
			    t->path, (int)length, text);
		for (long i = from; i <= last; i++)
			t->at[t->count++] = (int)i;
		text = text[length] && text[length + 1] ? text + length + 1 : NULL;
	}
	t->array->rank = t->count > 1 ? 2 : 1;
	t->array->dim[1] = t->count;
	return AMOS_DONE;
}

// Returns a cell of the line; of length 0 if the line has fewer.
static struct cell cell(const struct table *t, int index)
{
	return index < t->ncells ? t->cells[index] : (struct cell){0};
}

// True if the first line is not numbers.
static bool is_header(const struct table *t)
{
	for (int i = 0; i < t->count; i++) {
		struct cell c = cell(t, t->at[i]);
		char *end;
		if (c.length && (strtod(c.at, &end), end != c.at + c.length))
			return true;
	}
	return false;
}

static int read_row(struct table *t, long number, const char *line)
{
	int status = split(t, line);
	if (!status && number == 1)
		status = pick(t);
	if (status || is_blank(line) || (number == 1 && is_header(t)))
		return status;
	if (!t->key && cell(t, t->count).length)
		return amos_fail(AMOS_INPUT, "%s: line %ld has more cells than the first line, %d",
		                 t->path, number, t->count);
	for (int i = 0; !status && i < t->count; i++) {
		struct cell c = cell(t, t->at[i]);
		char *end;
		double x = c.length ? strtod(c.at, &end) : 0;
		if (!c.length || end != c.at + c.length)
			return amos_fail(AMOS_INPUT,
			                 "%s: line %ld, column %d: expected a number, found %.*s",
			                 t->path, number, t->at[i], c.length ? (int)c.length : 7,
			                 c.length ? c.at : "nothing");
		if (!is_exact(c.at, c.length, x))
			return amos_fail(AMOS_INPUT, "%s: line %ld, column %d: %.*s" BEYOND_DOUBLE,
			                 t->path, number, t->at[i], (int)c.length, c.at);
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
