// aside.c: files that appear under their name only when they are whole.
// Takes a path. Gives a name to write under meanwhile. Keeps: what stands is old or new; what is
// being written is known, so that a program that is interrupted can remove it.
#include "base.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct Aside {
	const char *name;
	struct Aside *volatile next;
} Aside;

static Aside *volatile written; // the last first

static bool is_device(const char *path)
{
	struct stat about;
	return !stat(path, &about) && !S_ISREG(about.st_mode) && !S_ISDIR(about.st_mode);
}

const char *aside_name(Arena *arena, const char *path)
{
	if (is_device(path))
		return path;
	Aside *a = NEW(arena, Aside);
	a->name = format(arena, "%s.%d.aside", path, (int)getpid());
	a->next = written;
	written = a;
	return a->name;
}

void aside_drop_all(void)
{
	int cause = errno;
	for (Aside *a = written; a; a = a->next)
		unlink(a->name);
	written = NULL;
	errno = cause;
}

static void forget(const char *name)
{
	for (Aside *volatile *a = &written; *a; a = &(*a)->next)
		if ((*a)->name == name) {
			*a = (*a)->next;
			return;
		}
}

void aside_keep(const char *aside, const char *path)
{
	if (aside == path)
		return;
	// What a link leads to is replaced, not the link.
	char *target = realpath(path, NULL);
	bool kept = !rename(aside, target ? target : path);
	free(target);
	if (!kept) {
		aside_drop_all();
		fail_write(path);
	}
	forget(aside);
}
