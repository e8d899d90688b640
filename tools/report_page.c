#include "report.h"
static json_t *page_columns(void)
{
	json_t *list = json_array();
	for (int c = 0; c < COLUMNS; c++)
		if (columns[c].formats & H)
			json_array_append_new(list, json_pack("{ss sb}", "title", columns[c].title,
			                                      "number", columns[c].kind == NUMBER));
	return list;
}

static json_t *page_cells(Command *command, const json_t *row)
{
	json_t *list = json_array();
	for (int c = 0; c < COLUMNS; c++)
		if (columns[c].formats & H)
			json_array_append_new(list,
			                      json_string(columns[c].cell(command->arena, row)));
	return list;
}

void print_html(Command *command, const Report *report)
{
	page_columns();
	page_cells(command, report->json);
}
