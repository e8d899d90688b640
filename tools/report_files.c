// report_files.c: prints a report as Markdown or as CSV.
#include "report.h"
#include <stdlib.h>
#include <string.h>

// Prints a line of the table: `row`, or the titles if NULL. In CSV, cells with a comma, a quote or
// a line break are quoted (RFC 4180), and those that a spreadsheet would compute begin with '.
static void print_line(Arena *arena, const json_t *row, unsigned format)
{
	const char *between = format == M ? "| " : "";
	for (int c = 0; c < COLUMNS; c++) {
		if (!(columns[c].formats & format))
			continue;
		const char *cell = cell_at(arena, row, c);
		char *end;
		strtod(cell, &end);
		bool quote = format == C && strpbrk(cell, ",\"\r\n"),
		     formula = format == C && *cell && strchr("=+-@", *cell) && *end;
		printf("%s%s%s", between, quote ? "\"" : "", formula ? "'" : "");
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

static void print_rows(Session *session, const Report *report, unsigned format)
{
	const int *rows = unsure_first(session->arena, report);
	for (int i = 0; i < report->rows; i++) {
		Arena *arena = arena_new();
		json_t *row = report_row(report, rows[i]);
		print_line(arena, row, format);
		json_decref(row);
		arena_free(arena);
	}
}

void print_md(Session *session, const Report *report)
{
	Arena *arena = session->arena;
	json_t *one;
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
	print_rows(session, report, M);
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
	print_line(session->arena, NULL, C);
	print_rows(session, report, C);
}
