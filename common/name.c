// name.c: finds a name in a table.
#include "common.h"
#include <string.h>

int amos_index(const char *name, const void *items, int64_t count, size_t size)
{
	const char *at = items;
	for (int i = 0; i < count; i++, at += size) {
		const char *other = *(const char *const *)at;
		if (*other == *name && !strcmp(other, name)) // most differ in the first character
			return i;
	}
	return -1;
}
