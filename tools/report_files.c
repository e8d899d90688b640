// report_files.c: a report as Markdown and as CSV.
#include "report.h"
#include <stdlib.h>
#include <string.h>

static void print_md_cell(const char *cell)
{
	fputs(" ", stdout);
	for (; *cell; cell++)
		printf(*cell == '|' ? "\\%c" : *cell == '\n' ? " " : "%c", *cell);
	fputs(" |", stdout);
}

static void print_md_line(Arena *arena, const json_t *row)
{
	putchar('|');
	for (int c = 0; c < COLUMNS; c++)
		if (columns[c].formats & M)
			print_md_cell(cell_at(arena, row, c));
	putchar('\n');
}

void print_md(Session *session, const Report *report)
{
	Arena *arena = session->arena;
	int count;
	json_t **rows = unsure_first(arena, report, &count), *one;
	printf("# %s\n\n", title_of(arena, report));
	size_t k;
	json_array_foreach (json_object_get(report->json, "inputs"), k, one)
		printf("* %s\n", input_line(arena, one));
	putchar('\n');
	print_md_line(arena, NULL);
	putchar('|');
	for (int c = 0; c < COLUMNS; c++)
		if (columns[c].formats & M)
			printf(columns[c].kind == NUMBER ? " ---: |" : " --- |");
	putchar('\n');
	for (int i = 0; i < count; i++)
		print_md_line(arena, rows[i]);
	json_array_foreach (json_object_get(report->json, "notes"), k, one)
		printf("%s* %s\n", k ? "" : "\n", json_string_value(one));
	for (int i = 0; i < MEMORIES; i++) {
		const char *bytes = state_cell(arena, report, i, false);
		if (bytes && !i)
			printf("\n| optimizer | %s | part |\n| --- | ---: | ---: |\n",
			       state_title(arena, report));
		if (bytes)
			printf("| %s | %s | %s |\n", memory_title(arena, i), bytes,
			       state_cell(arena, report, i, true));
	}
}

// A spreadsheet would compute what begins so, if it is no number.
static bool is_formula_cell(const char *cell)
{
	char *end;
	strtod(cell, &end);
	return *cell && strchr("=+-@", *cell) && *end;
}

// RFC 4180: quoted where it holds a comma, a quote or a line's end. A formula gets a ' before it.
static void print_csv_cell(const char *cell)
{
	bool quote = strpbrk(cell, ",\"\r\n") != NULL;
	fputs(quote ? "\"" : "", stdout);
	fputs(is_formula_cell(cell) ? "'" : "", stdout);
	for (; *cell; cell++)
		printf(*cell == '"' ? "\"%c" : "%c", *cell);
	fputs(quote ? "\"" : "", stdout);
}

static void print_csv_line(Arena *arena, const json_t *row)
{
	bool first = true;
	for (int c = 0; c < COLUMNS; c++) {
		if (!(columns[c].formats & C))
			continue;
		fputs(first ? "" : ",", stdout);
		print_csv_cell(cell_at(arena, row, c));
		first = false;
	}
	putchar('\n');
}

void print_csv(Session *session, const Report *report)
{
	int count;
	json_t **rows = unsure_first(session->arena, report, &count);
	print_csv_line(session->arena, NULL);
	for (int i = 0; i < count; i++)
		print_csv_line(session->arena, rows[i]);
}
