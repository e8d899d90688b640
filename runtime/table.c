// table.c: reads numbers from text tables, a row per line, as arrays of f64; csv.
#include "table.h"
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int amos_table_add(struct amos_table *t, double x)
{
	if (!amos_grow((void **)&t->numbers, &t->room, t->count + 1, sizeof x))
		return amos_no_memory(t->path);
	t->numbers[t->count++] = x;
	return AMOS_DONE;
}

int amos_table_lines(const char *path, const char *key,
                     int read_line(struct amos_table *, long number, char *line),
                     struct amos_arrays *to)
{
	FILE *file = amos_input_stream(path);
	if (!file)
		return amos_fail_errno("read", path);
	char *line = NULL;
	size_t room = 0;
	ssize_t length;
	struct amos_table table = {
	    .path = path, .key = key, .array = amos_arrays_add(to, path, NULL, 0)};
	int status = table.array ? AMOS_DONE : AMOS_MACHINE;
	for (long number = 1; !status && (length = getline(&line, &room, file)) > 0; number++) {
		static const char mark[] = "\xEF\xBB\xBF"; // of UTF-8, as Excel writes it
		bool marked = number == 1 && !strncmp(line, mark, strlen(mark));
		char *text = line + (marked ? strlen(mark) : 0);
		if (strlen(line) != (size_t)length)
			status =
			    amos_fail(AMOS_INPUT, "%s: line %ld: expected text, found a zero byte",
			              path, number);
		for (char *end = line + length; end > text && (end[-1] == '\n' || end[-1] == '\r');)
			*--end = 0;
		if (!status && text[strspn(text, " \t")])
			status = read_line(&table, number, text);
	}
	if (!status)
		status = amos_all_read(file, path);
	if (!status && !table.array->dim[0])
		status = amos_fail(AMOS_INPUT, "%s: no numbers in the file", path);
	struct amos_blob blob = {(void *)table.numbers, table.count * sizeof(double), false};
	if (!status)
		status = amos_array_take(table.array, path, &blob, 0);
	to->counting = table.counting;
	amos_blob_free(&blob);
	free(table.cells);
	free(line);
	fclose(file);
	return status;
}

// ---- csv: COLUMNS as 0-2,5 or names in the first line ---------------------------------

// Ends the cell at the start of *rest, in place, and moves *rest after it, to NULL at the end of
// the line. Returns the cell without its quotes (RFC 4180) and the blanks around it; NULL: a quote
// is not closed.
static char *next_cell(char **rest)
{
	char *at = *rest + strspn(*rest, " \t"), *cell = at, *end = at;
	if (*at == '"') {
		for (at++; *at && (*at != '"' || at[1] == '"'); at++) {
			at += *at == '"';
			*end++ = *at;
		}
		if (!*at++)
			return NULL;
	}
	while (*at && *at != ',')
		*end++ = *at++;
	*rest = *at ? at + 1 : NULL;
	while (end > cell && (end[-1] == ' ' || end[-1] == '\t'))
		end--;
	*end = 0;
	return cell;
}

static int split(struct amos_table *t, long number, char *line)
{
	for (t->ncells = 0; line;) {
		if (!amos_grow((void **)&t->cells, &t->cell_room, t->ncells + 1, sizeof line))
			return amos_no_memory(t->path);
		char *cell = t->cells[t->ncells++] = next_cell(&line);
		if (!cell)
			return amos_fail(AMOS_INPUT,
			                 "%s: line %ld, column %zu: a quote is not closed", t->path,
			                 number, t->ncells - 1);
	}
	return AMOS_DONE;
}

// Finds the column of a name in the first line; -1: none. Fails if there are several.
static int find_column(const struct amos_table *t, const char *name, size_t length, long *column)
{
	*column = -1;
	for (long i = 0; i < (long)t->ncells; i++) {
		if (strlen(t->cells[i]) != length || memcmp(t->cells[i], name, length))
			continue;
		if (*column >= 0)
			return amos_fail(AMOS_INPUT,
			                 "%s: columns %ld and %ld are both called '%.*s'" HELP
			                 "select by numbers from 0: %s:%ld",
			                 t->path, *column, i, (int)length, name, t->path, *column);
		*column = i;
	}
	return AMOS_DONE;
}

// Chooses the columns by the first line: those of COLUMNS, or all. Sets *named if some are names.
static int pick(struct amos_table *t, bool *named)
{
	long count = (long)t->ncells;
	if (!t->key && count > MOST_COLUMNS)
		return amos_fail(AMOS_INPUT,
		                 "%s: more than %d columns" HELP "select some, %s:0-2,5", t->path,
		                 MOST_COLUMNS, t->path);
	for (; !t->key && t->taken < count; t->taken++)
		t->column[t->taken] = t->taken;
	for (const char *text = t->key; text;) {
		size_t length = strcspn(text, ",");
		char *end;
		long from = strtol(text, &end, 10), last = from;
		if (end != text && *end == '-' && isdigit((unsigned char)end[1]))
			last = strtol(end + 1, &end, 10);
		if (!isdigit((unsigned char)*text) || end != text + length) {
			*named = true;
			int status = find_column(t, text, length, &from);
			if (status)
				return status;
			last = from;
		}
		if (from < 0 || last < from || last > INT_MAX ||
		    last - from >= MOST_COLUMNS - t->taken)
			return amos_fail(
			    AMOS_INPUT,
			    "%s: no column '%.*s'; expected numbers from 0 (0-2,5) or names in "
			    "the first line",
			    t->path, (int)length, text);
		for (long i = from; i <= last; i++)
			t->column[t->taken++] = (int)i;
		text = text[length] && text[length + 1] ? text + length + 1 : NULL;
	}
	t->array->rank = t->taken > 1 ? 2 : 1;
	t->array->dim[1] = t->taken;
	return AMOS_DONE;
}

// Returns a cell of the line; "" if the line has fewer.
static const char *cell(const struct amos_table *t, int index)
{
	return (size_t)index < t->ncells ? t->cells[index] : "";
}

static bool is_number(const char *text, double *x)
{
	char *end;
	errno = 0;
	*x = strtod(text, &end);
	return end != text && !*end;
}

// True if the taken cells of the first line are names: some are not empty, none is a number.
static bool has_names(const struct amos_table *t)
{
	bool any = false;
	double x;
	for (int i = 0; i < t->taken; i++) {
		const char *text = cell(t, t->column[i]);
		if (is_number(text, &x))
			return false;
		any |= *text != 0;
	}
	return any;
}

// True if the cells of the first line from `from` on are 0,1,2, ..., which pandas writes for
// columns without names.
static bool counts_columns(const struct amos_table *t, size_t from)
{
	char number[24];
	for (size_t i = from; i < t->ncells; i++) {
		snprintf(number, sizeof number, "%zu", i - from);
		if (strcmp(t->cells[i], number))
			return false;
	}
	return t->ncells > from + 1;
}

// True if the first line is that of pandas with an index, ,0,1,2, whose column is not taken.
static bool names_index(const struct amos_table *t)
{
	for (int i = 0; i < t->taken; i++)
		if (!t->column[i])
			return false;
	return t->ncells && !*t->cells[0] && counts_columns(t, 1);
}

static int read_row(struct amos_table *t, long number, char *line)
{
	bool first = !t->array->rank, named = false;
	int status = split(t, number, line);
	if (!status && first)
		status = pick(t, &named);
	if (status || (first && (named || has_names(t) || names_index(t))))
		return status;
	if (first)
		t->counting = counts_columns(t, 0);
	for (size_t i = (size_t)t->taken; !t->key && i < t->ncells; i++)
		if (*t->cells[i])
			return amos_fail(AMOS_INPUT,
			                 "%s: line %ld has more cells than the first line, %d",
			                 t->path, number, t->taken);
	for (int i = 0; !status && i < t->taken; i++) {
		const char *text = cell(t, t->column[i]);
		char *end;
		double x;
		if (!is_number(text, &x))
			return amos_fail(
			    AMOS_INPUT, "%s: line %ld, column %d: expected a number, found %s%s",
			    t->path, number, t->column[i], *text ? text : "nothing",
			    first && *text ? HELP "remove the line if it holds names of columns"
			                   : "");
		if (errno == ERANGE && isinf(x))
			return amos_fail(
			    AMOS_INPUT,
			    "%s: line %ld, column %d: %s is out of the range of a double", t->path,
			    number, t->column[i], text);
		errno = 0;
		long long n = strtoll(text, &end, 10);
		bool integer = !*end && !errno;
		if (integer && !(fabs(x) < 0x1p63 && (long long)x == n))
			return amos_fail(AMOS_INPUT, "%s: line %ld, column %d: %s" BEYOND_DOUBLE,
			                 t->path, number, t->column[i], text);
		status = amos_table_add(t, x);
	}
	t->array->dim[0]++;
	return status;
}

int amos_arrays_csv(const char *path, const char *columns, struct amos_arrays *to)
{
	return amos_table_lines(path, columns, read_row, to);
}
