// report.c: prints JSON, and counts of bytes.
#include "report.h"
#include <string.h>

void print_json(json_t *value)
{
	if (!value)
		never(value);
	json_dumpf(value, stdout, JSON_STYLE);
	putchar('\n');
	json_decref(value);
}

// Writes a piece of JSON to standard output, with `*depth` spaces more at the start of each line.
static int write_deeper(const char *text, size_t count, void *depth)
{
	for (size_t i = 0; i < count; i++) {
		putchar(text[i]);
		if (text[i] == '\n')
			printf("%*s", *(int *)depth, "");
	}
	return 0;
}

static void print_value(const json_t *value, int depth)
{
	if (!value)
		never(value);
	json_dump_callback(value, write_deeper, &depth, JSON_STYLE | JSON_ENCODE_ANY);
}

void print_report(const Report *report)
{
	const char *key, *before = "{";
	json_t *value;
	if (!report->graph) {
		print_json(json_incref(report->json));
		return;
	}
	json_object_foreach (report->json, key, value) {
		bool rows = !strcmp(key, "params") && report->rows;
		printf("%s\n \"%s\": ", before, key);
		before = ",";
		if (!rows)
			print_value(value, 1);
		for (int i = 0; rows && i < report->rows; i++) {
			json_t *row = report_row(report, i);
			printf("%s\n  ", i ? "," : "[");
			print_value(row, 2);
			json_decref(row);
		}
		printf(rows ? "\n ]" : "");
	}
	printf("\n}\n");
}

const char *bytes_text(Arena *arena, double bytes)
{
	return copy_string(arena, amos_bytes_text(bytes).text);
}
