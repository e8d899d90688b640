// report_table.c: lays out rows and columns.
// Input: a Report and columns.def. Output: cells as text.
// Unsure parameters come first; otherwise the order is the model's.
#include "report.h"
#include <string.h>

// ---- cells ----------------------------------------------------------------------------

static const char *cell_number(Arena *arena, const json_t *row, const char *key)
{
	const json_t *number = json_object_get(row, key);
	return json_is_number(number) ? format(arena, "%.4g", json_number_value(number)) : "";
}

const char *list_text(Arena *arena, const json_t *list, const char *between)
{
	Text text = {.arena = arena};
	size_t i;
	json_t *one;
	say(&text, "%s", "");
	json_array_foreach (list, i, one) {
		say(&text, "%s", i ? between : "");
		if (json_is_string(one))
			say(&text, "%s", json_string_value(one));
		else
			say(&text, "%lld", (long long)json_integer_value(one));
	}
	return text.at;
}

static const char *cell_text(Arena *arena, const json_t *row, const char *key)
{
	(void)arena;
	return text_at(row, key);
}

static const char *cell_shape(Arena *arena, const json_t *row, const char *key)
{
	return list_text(arena, json_object_get(row, key), "x");
}

static const char *cell_list(Arena *arena, const json_t *row, const char *key)
{
	return list_text(arena, json_object_get(row, key), "; ");
}

static const char *cell_yes(Arena *arena, const json_t *row, const char *key)
{
	(void)arena;
	return json_is_true(json_object_get(row, key)) ? "yes" : "no";
}

// If eta differs along an axis, each run of equal values is one number.
static const char *cell_eta(Arena *arena, const json_t *row, const char *key)
{
	Text text = {.arena = arena};
	EtaValues eta;
	if (!eta_values(arena, json_object_get(row, key), &eta))
		return "";
	for (int64_t i = 0; i < eta.count; i++)
		if (!i || eta.at[i] != eta.at[i - 1])
			say(&text, "%s%.4g", i ? "|" : "", eta.at[i]);
	return text.at;
}

static const char *cell_reason(Arena *arena, const json_t *row, const char *key)
{
	(void)key;
	const json_t *by = json_array_get(json_object_get(row, "demand_by"), 0);
	const char *from = text_at(row, "range_from"), *to = json_string_value(by);
	if (!*from && !to)
		return "";
	return format(arena, "%s -> %s", basename(from), to ? basename(to) : "any");
}

// ---- columns --------------------------------------------------------------------------

const Column columns[COLUMNS] = {
#define COLUMN(name, title, kind, drop, formats, cell)                                             \
	{#name, title, kind, drop, formats, cell_##cell},
#include "columns.def"
#undef COLUMN
};

const char *cell_at(Arena *arena, const json_t *row, int column)
{
	const Column *c = &columns[column];
	return row ? c->cell(arena, row, c->key) : c->title;
}

const int *unsure_first(Arena *arena, const Report *report)
{
	int *rows = NEWS(arena, int, report->rows + 1), count = 0;
	for (int sure = 0; sure < 2; sure++)
		for (int i = 0; i < report->rows; i++)
			if (is_sure(report, i) == sure)
				rows[count++] = i;
	return rows;
}

// ---- around the table -----------------------------------------------------------------

const char *title_of(Arena *arena, const Report *report)
{
	int unsure = (int)json_array_size(json_object_get(report->json, "unresolved"));
	return format(arena, "%s: %d %s, %d unsure", text_at(report->json, "model"), report->rows,
	              PLURAL(report->rows, "parameter", "parameters"), unsure);
}

const char *input_line(Arena *arena, const json_t *input)
{
	bool assumed = !strcmp(text_at(input, "by"), "assumed");
	return format(arena, "input %s: range %s (%s%s)", text_at(input, "name"),
	              cell_number(arena, input, "range"), text_at(input, "by"),
	              assumed ? "; --range or --data sets it" : "");
}

int state_rows(Arena *arena, const Report *report, StateRow *row)
{
	const json_t *memory = json_object_get(report->json, "memory");
	double all = json_number_value(json_object_get(memory, "parameters"));
	int n = 0;
	for (int i = 0; i < MEMORIES; i++) {
		const Memory *m = &memories[i];
		const json_t *bytes = json_object_get(memory, m->key);
		const char *title = optimizer_named(m->optimizer)->title;
		double count = json_number_value(bytes);
		if (bytes && all > 0)
			row[n++] = (StateRow){format(arena, "%s%s", title, m->with),
			                      bytes_text(arena, count),
			                      format(arena, "%.3g %%", 100 * count / all)};
	}
	return n;
}

const char *state_title(Arena *arena, const Report *report)
{
	const json_t *memory = json_object_get(report->json, "memory");
	return format(arena, "state for %s of parameters",
	              bytes_text(arena, json_number_value(json_object_get(memory, "parameters"))));
}
