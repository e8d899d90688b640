// report.c: prints JSON, and counts of bytes.
#include "tool.h"

void print_json(json_t *value)
{
	if (!value)
		never(value);
	json_dumpf(value, stdout, JSON_STYLE);
	putchar('\n');
	json_decref(value);
}

const char *bytes_text(Arena *arena, double bytes)
{
	static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	int i = 0;
	while (bytes >= 1024 && i + 1 < COUNT(unit)) {
		bytes /= 1024;
		i++;
	}
	return format(arena, i ? "%.1f %s" : "%.0f %s", bytes, unit[i]);
}
