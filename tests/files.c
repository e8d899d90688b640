// files.c: makes a private directory, reads and writes files.
#include "files.h"
#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ---- a directory ----------------------------------------------------------------------

static char folder[4096];
static pid_t owner;

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *where)
{
	(void)about, (void)kind, (void)where;
	return remove(path);
}

static void remove_folder(void)
{
	if (getpid() == owner)
		nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

const char *own_folder(void)
{
	need_done(amos_temp_folder(folder, sizeof folder, program_invocation_short_name));
	owner = getpid();
	atexit(remove_folder);
	return folder;
}

// ---- files ----------------------------------------------------------------------------

char *read_file(Arena *arena, const char *path, size_t *count)
{
	FILE *f = fopen(path, "rb");
	if (!f || fseek(f, 0, SEEK_END))
		fail(path, "cannot be opened");
	size_t n = (size_t)ftell(f);
	rewind(f);
	char *bytes = take(arena, n + 1);
	if (fread(bytes, 1, n, f) != n)
		fail(path, "cannot be read");
	fclose(f);
	if (count)
		*count = n;
	return bytes;
}

void write_file(const char *path, const void *bytes, size_t count)
{
	FILE *f = fopen(path, "wb");
	if (!f || fwrite(bytes, 1, count, f) != count || fclose(f))
		need_done(amos_fail_errno("write", path));
}

bool same_files(const char *a, const char *b)
{
	Arena *arena = arena_new();
	size_t n, m;
	const char *x = read_file(arena, a, &n), *y = read_file(arena, b, &m);
	bool same = n == m && !memcmp(x, y, n);
	arena_free(arena);
	return same;
}

Lines read_lines(Arena *arena, const char *path)
{
	Lines all = {0};
	for (char *line = strtok(read_file(arena, path, NULL), "\n"); line;
	     line = strtok(NULL, "\n"))
		if (*line != '#')
			PUSH(arena, all, line);
	return all;
}
