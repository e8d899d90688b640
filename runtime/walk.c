// walk.c: visits the files of a directory in byte order of names, so the same files come in the
// same order everywhere. (glibc's fts_open() crashes when memory runs out.)
#include "rt.h"
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_inside(const struct dirent *entry)
{
	return strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..");
}

// Links to directories are errors, since they may form cycles.
static int visit_entry(const char *folder, const char *name, amos_visit *visit, void *context)
{
	size_t length = strlen(folder);
	char *path;
	if (asprintf(&path, "%s%s%s", folder, length && folder[length - 1] == '/' ? "" : "/",
	             name) < 0)
		return amos_no_memory(folder);
	struct stat own, about;
	int status =
	    lstat(path, &own) || stat(path, &about) ? amos_fail_errno("read", path) : AMOS_DONE;
	if (!status && S_ISDIR(about.st_mode))
		status = S_ISLNK(own.st_mode)
		             ? amos_fail(AMOS_INPUT,
		                         "%s: expected a file, found a link to a directory", path)
		             : amos_walk(path, visit, context);
	else if (!status && S_ISREG(about.st_mode) && about.st_size)
		status = visit(context, path);
	free(path);
	return status;
}

int amos_walk(const char *path, amos_visit *visit, void *context)
{
	struct dirent **list = NULL;
	int n = scandir(path, &list, is_inside, by_name);
	int status = n < 0 ? amos_fail_errno("read", path) : AMOS_DONE;
	for (int i = 0; i < n; i++) {
		if (!status)
			status = visit_entry(path, list[i]->d_name, visit, context);
		free(list[i]);
	}
	free(list);
	return status;
}

bool amos_is_folder(const char *path)
{
	struct stat about;
	return !stat(path, &about) && S_ISDIR(about.st_mode);
}
