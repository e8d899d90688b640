// give_back.c: gives memory back to the system that opening a model needed and running does not.
// It is what the allocator keeps of freed memory, and pages of files, which the system reads again
// if they are used: the model and its data, the first weights of a compiled trainer, code.
#include "runtime.h"
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

typedef struct Mapping {
	unsigned long from, to, file; // file: its number, or 0
	char access[5];               // r-xp
} Mapping;

enum { LARGE = 2 << 20 }; // bytes of a mapping; smaller ones are of libraries in use

// In /proc/self/smaps, a line with a range begins a mapping. Lines NAME: NUMBER follow, one of them
// for the pages that are no longer the file's, since they were written.
static void give_files_back(FILE *mappings)
{
	char *line = NULL;
	size_t room = 0;
	Mapping now = {0}, next;
	unsigned long own;
	while (getline(&line, &room, mappings) > 0) {
		if (sscanf(line, "%lx-%lx %4s %*s %*s %lu", &next.from, &next.to, next.access,
		           &next.file) == 4)
			now = next;
		else if (sscanf(line, "Anonymous: %lu", &own) == 1 && !own && now.file &&
		         now.to - now.from >= LARGE && now.access[1] == '-' && now.access[3] == 'p')
			madvise((void *)now.from, now.to - now.from, MADV_DONTNEED);
	}
	free(line);
}

void amos_give_back(void)
{
	FILE *mappings = fopen("/proc/self/smaps", "re");
	if (mappings) {
		give_files_back(mappings);
		fclose(mappings);
	}
#ifdef __GLIBC__
	malloc_trim(0);
#endif
}
