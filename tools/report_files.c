// report_files.c: a report as Markdown and as CSV.
#include "report.h"
#include <stdlib.h>
#include <string.h>

// A spreadsheet would compute what begins so, if it is no number.
static bool is_formula_cell(const char *cell)
{
	char *end;
	strtod(cell, &end);
	return *cell && strchr("=+-@", *cell) && *end;
}

// A line of the table, of `row` or of titles; of CSV by RFC 4180: quoted where it holds a comma, a
// quote or a line's end.
static void print_line(Arena *arena, const json_t *row, unsigned format)
{
	const char *between = format == M ? "| " : "";
	for (int c = 0; c < COLUMNS; c++) {
		if (!(columns[c].formats & format))
			continue;
		const char *cell = cell_at(arena, row, c);
		bool quote = format == C && strpbrk(cell, ",\"\r\n");
		printf("%s%s%s", between, quote ? "\"" : "",
		       format == C && is_formula_cell(cell) ? "'" : "");
		for (; *cell; cell++)
			if (format == M)
				printf(*cell == '|' ? "\\%c" : *cell == '\n' ? " " : "%c", *cell);
			else
				printf(*cell == '"' ? "\"%c" : "%c", *cell);
		fputs(quote ? "\"" : "", stdout);
		between = format == M ? " | " : ",";
	}
	puts(format == M ? " |" : "");
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
	print_line(arena, NULL, M);
	putchar('|');
	for (int c = 0; c < COLUMNS; c++)
		if (columns[c].formats & M)
			printf(columns[c].kind == NUMBER ? " ---: |" : " --- |");
	putchar('\n');
	for (int i = 0; i < count; i++)
		print_line(arena, rows[i], M);
	json_array_foreach (json_object_get(report->json, "notes"), k, one)
		printf("%s* %s\n", k ? "" : "\n", json_string_value(one));
	StateRow state[MEMORIES];
	int states = state_rows(arena, report, state);
	if (states)
		printf("\n| optimizer | %s | part |\n| --- | ---: | ---: |\n",
		       state_title(arena, report));
	for (int i = 0; i < states; i++)
		printf("| %s | %s | %s |\n", state[i].title, state[i].bytes, state[i].percent);
}

void print_csv(Session *session, const Report *report)
{
	int count;
	json_t **rows = unsure_first(session->arena, report, &count);
	print_line(session->arena, NULL, C);
	for (int i = 0; i < count; i++)
		print_line(session->arena, rows[i], C);
}
