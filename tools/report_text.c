// report_text.c: prints a report as aligned columns.
// On a terminal, long names are shortened and columns left out to fit its width, taken as 80 to 120
// characters. Elsewhere every cell is complete.
#include "report.h"
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { NARROWEST = 80, WIDEST = 120, LONGEST_NAME = 48, SHORTEST_NAME = 36, GAP = 2 };

// Returns the number of characters.
static int width_of(const char *text)
{
	int width = 0;
	for (; *text; text++)
		width += (*text & 0xC0) != 0x80;
	return width;
}

// Returns at most `width` characters. The beginning is left out, since names differ at the end.
static const char *shortened(Arena *arena, const char *text, int width)
{
	int over = width_of(text) - width;
	if (over <= 0)
		return text;
	for (over += 2; *text && (over > 0 || (*text & 0xC0) == 0x80);)
		over -= (*++text & 0xC0) != 0x80;
	return format(arena, "..%s", text);
}

typedef struct ColumnWidths { // widths of the text's columns; 0: left out
	int width[COLUMNS];
	int all;
} ColumnWidths;

// Returns the widths of the widest cells.
static ColumnWidths widest_of(const Report *report)
{
	ColumnWidths l = {.all = 0};
	for (int i = -1; i < report->rows; i++) {
		Arena *arena = arena_new();
		json_t *row = i < 0 ? NULL : report_row(report, i);
		for (int c = 0; c < COLUMNS; c++)
			if (columns[c].formats & T)
				l.width[c] = MAX(l.width[c], width_of(cell_at(arena, row, c)));
		json_decref(row);
		arena_free(arena);
	}
	return l;
}

static ColumnWidths layout_of(const Report *report)
{
	enum { LONGEST_CELL = 26 };
	bool terminal = isatty(STDOUT_FILENO);
	struct winsize size;
	const char *said = getenv("COLUMNS");
	int all = said ? atoi(said) : 0, total = -GAP;
	if (all <= 0 && !ioctl(STDOUT_FILENO, TIOCGWINSZ, &size))
		all = size.ws_col;
	ColumnWidths l = widest_of(report);
	l.all = MIN(MAX(all, NARROWEST), WIDEST);
	for (int c = 0; c < COLUMNS; c++) {
		if (!(columns[c].formats & T))
			continue;
		if (terminal)
			l.width[c] = MIN(l.width[c], c ? LONGEST_CELL : LONGEST_NAME);
		total += l.width[c] + GAP;
	}
	while (terminal && total > l.all) {
		int least = -1; // the column to leave out first
		for (int c = 0; c < COLUMNS; c++)
			if (l.width[c] && columns[c].drop &&
			    (least < 0 || columns[c].drop >= columns[least].drop))
				least = c;
		if (least < 0)
			return l;
		if (total - l.all <= l.width[0] - SHORTEST_NAME) {
			l.width[0] -= total - l.all;
			return l;
		}
		total -= l.width[least] + GAP;
		l.width[least] = 0;
	}
	return l;
}

static void print_line(Arena *arena, const ColumnWidths *l, const json_t *row)
{
	Text line = {.arena = arena};
	for (int c = 0; c < COLUMNS; c++) {
		if (!l->width[c])
			continue;
		const char *cell = cell_at(arena, row, c);
		cell = shortened(arena, cell, l->width[c]);
		int blank = l->width[c] - width_of(cell), gap = c ? GAP : 0;
		if (columns[c].kind == NUMBER)
			say(&line, "%*s%s", gap + blank, "", cell);
		else
			say(&line, "%*s%s%*s", gap, "", cell, blank, "");
	}
	while (line.count && line.at[line.count - 1] == ' ')
		line.at[--line.count] = 0;
	puts(line.at);
}

// Prints lines broken between words, with `mark` before the first.
static void print_wrapped(const ColumnWidths *l, const char *mark, const char *text)
{
	int indent = width_of(mark), at = indent;
	printf("%s", mark);
	while (*text) {
		int word = (int)strcspn(text, " ");
		if (at > indent && at + 1 + word > l->all) {
			printf("\n%*s", indent, "");
			at = indent;
		}
		at += printf("%s%.*s", at > indent ? " " : "", word, text);
		text += word + strspn(text + word, " ");
	}
	putchar('\n');
}

static void print_row(const Session *session, const ColumnWidths *l, const Report *report, int i)
{
	Arena *arena = arena_new();
	json_t *row = report_row(report, i), *one;
	size_t k;
	print_line(arena, l, row);
	if (!is_sure(report, i))
		print_wrapped(l, "  ? ", text_at(row, "question"));
	if (chosen(session, OPT_verbose))
		json_array_foreach (json_object_get(row, "why"), k, one)
			print_wrapped(l, "    ", json_string_value(one));
	json_decref(row);
	arena_free(arena);
}

void print_text(Session *session, const Report *report)
{
	Arena *arena = session->arena;
	const int *rows = unsure_first(arena, report);
	ColumnWidths l = layout_of(report);
	json_t *one;
	printf("%s\n", title_of(arena, report));
	size_t k;
	json_array_foreach (json_object_get(report->json, "inputs"), k, one)
		printf("%s\n", input_line(arena, one));
	putchar('\n');
	print_line(arena, &l, NULL);
	for (int i = 0; i < report->rows; i++)
		print_row(session, &l, report, rows[i]);
	enum { FEW = 8 };
	const json_t *notes = json_object_get(report->json, "notes");
	size_t all = json_array_size(notes), shown = chosen(session, OPT_verbose) ? all : FEW;
	printf("%s", all ? "\nnotes\n" : "");
	for (size_t i = 0; i < MIN(all, shown); i++)
		print_wrapped(&l, "  ", json_string_value(json_array_get(notes, i)));
	if (all > shown)
		printf("  and %zu more: --verbose prints all\n", all - shown);
	StateRow state[MEMORIES];
	int states = state_rows(arena, report, state);
	if (states)
		printf("\n%s\n", state_title(arena, report));
	for (int i = 0; i < states; i++)
		printf("  %-36s %10s  %7s\n", state[i].title, state[i].bytes, state[i].percent);
}
