// name.c: finds a name in a table.
#include "common.h"
#include <string.h>

int amos_index(const char *name, const void *items, int64_t count, size_t size)
{
	for (int i = 0; i < count; i++)
		if (!strcmp(*(const char *const *)((const char *)items + (size_t)i * size), name))
			return i;
	return -1;
}
