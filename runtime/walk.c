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

int amos_entries(const char *folder, amos_visit *visit, void *context)
{
	struct dirent **list = NULL;
	int n = scandir(folder, &list, is_inside, by_name);
	int status = n < 0 ? amos_fail_errno("read", folder) : AMOS_DONE;
	size_t length = strlen(folder);
	const char *slash = length && folder[length - 1] == '/' ? "" : "/";
	for (int i = 0; i < n; i++) {
		char *path = NULL;
		if (!status && asprintf(&path, "%s%s%s", folder, slash, list[i]->d_name) < 0)
			status = amos_no_memory(folder);
		else if (!status)
			status = visit(context, path);
		free(path);
		free(list[i]);
	}
	free(list);
	return status;
}

struct walk {
	amos_visit *visit;
	void *context;
};

// Links to directories are errors, since they may form cycles.
static int visit_entry(void *context, const char *path)
{
	const struct walk *walk = context;
	struct stat own, about;
	if (lstat(path, &own) || stat(path, &about))
		return amos_fail_errno("read", path);
	if (S_ISDIR(about.st_mode))
		return S_ISLNK(own.st_mode)
		           ? amos_fail(AMOS_INPUT,
		                       "%s: expected a file, found a link to a directory", path)
		           : amos_walk(path, walk->visit, walk->context);
	return S_ISREG(about.st_mode) && about.st_size ? walk->visit(walk->context, path)
	                                               : AMOS_DONE;
}

int amos_walk(const char *path, amos_visit *visit, void *context)
{
	struct walk walk = {visit, context};
	struct stat about;
	return lstat(path, &about) || amos_is_folder(path) ? amos_entries(path, visit_entry, &walk)
	                                                   : visit_entry(&walk, path);
}

bool amos_is_folder(const char *path)
{
	struct stat about;
	return !stat(path, &about) && S_ISDIR(about.st_mode);
}

bool amos_is_hidden(const char *root, const char *path)
{
	return strstr(path + strlen(root) - 1, "/.");
}
