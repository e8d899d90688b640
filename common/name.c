// name.c: finds a name in a table.
#include "freestanding.h"

bool amos_same(const char *a, const char *b)
{
	for (; *a && *a == *b; a++, b++)
		;
	return *a == *b;
}

int amos_index(const char *name, const void *items, int64_t count, size_t size)
{
	const char *at = items;
	for (int i = 0; i < count; i++, at += size) {
		const char *other = *(const char *const *)at;
		if (*other == *name && amos_same(other, name)) // most differ in the first character
			return i;
	}
	return -1;
}
