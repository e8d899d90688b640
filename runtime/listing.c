// listing.c: lists the files of a directory by class.
// The classes are the directories directly beneath it; links to such are followed, deeper ones are
// errors. Files of the classes alternate, so every part of the list has all of them.
#include "rt.h"
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { NAMED = 20 }; // classes whose names are listed

static bool has_ending(const struct amos_listing *list, const char *path)
{
	const char *dot = strrchr(path, '.');
	bool found = false;
	for (const char *const *ending = list->endings; dot && *ending && !found; ending++)
		found = !strcasecmp(dot, *ending);
	return found;
}

struct search {
	struct amos_listing *list;
	int64_t label;
	size_t first; // of the class, among the files
};

static int add_file(void *context, const char *path)
{
	const struct search *search = context;
	struct amos_listing *list = search->list;
	if (amos_is_hidden(list->root, path))
		return AMOS_DONE;
	if (!has_ending(list, path)) {
		list->others++;
		return AMOS_DONE;
	}
	char *copy = strdup(path);
	if (!copy || !amos_grow((void **)&list->at, &list->room, list->n + 1, sizeof *list->at)) {
		free(copy);
		return amos_no_memory(path);
	}
	int64_t rank = (int64_t)(list->n - search->first);
	list->at[list->n++] = (struct amos_found){copy, search->label, rank};
	return AMOS_DONE;
}

static int add_class(struct amos_listing *list, const char *path, size_t files)
{
	if (!files) {
		list->empty = list->empty ? list->empty : strdup(path);
		return list->empty ? AMOS_DONE : amos_no_memory(path);
	}
	if (!amos_grow((void **)&list->sizes, &list->class_room, list->classes + 1,
	               sizeof *list->sizes))
		return amos_no_memory(path);
	if (list->classes < NAMED)
		amos_append(&list->names, "%s%s", list->classes ? ", " : "",
		            strrchr(path, '/') + 1);
	list->sizes[list->classes++] = (int64_t)files;
	return list->names ? AMOS_DONE : amos_no_memory(path);
}

static int add_entry(void *context, const char *path)
{
	struct amos_listing *list = context;
	struct search search = {list, -1, list->n};
	bool folder = amos_is_folder(path);
	if (amos_is_hidden(list->root, path))
		return AMOS_DONE;
	if (folder)
		search.label = (int64_t)list->classes;
	int status = amos_walk(path, add_file, &search);
	return status || !folder ? status : add_class(list, path, list->n - search.first);
}

// Orders files by the fraction of their class that precedes them.
static int by_fraction(const void *a, const void *b, void *context)
{
	const struct amos_listing *list = context;
	const struct amos_found *x = a, *y = b;
	if (x->label < 0 || y->label < 0)
		return x->label != y->label ? (x->label < 0 ? -1 : 1) : strcmp(x->path, y->path);
	double at_x = (2 * (double)x->rank + 1) / (double)list->sizes[x->label],
	       at_y = (2 * (double)y->rank + 1) / (double)list->sizes[y->label];
	if (at_x != at_y)
		return at_x < at_y ? -1 : 1;
	return (x->label > y->label) - (x->label < y->label);
}

int amos_list(struct amos_listing *list)
{
	list->names = strdup("");
	if (!list->names)
		return amos_no_memory(list->root);
	int status = amos_entries(list->root, add_entry, list);
	if (!status && !list->n)
		status = amos_fail(AMOS_INPUT, "%s: no %s files in the directory", list->root,
		                   list->what);
	if (!status && list->classes > NAMED)
		amos_append(&list->names, " and %zu more", list->classes - NAMED);
	if (!status && !list->names)
		status = amos_no_memory(list->root);
	if (!status)
		qsort_r(list->at, list->n, sizeof *list->at, by_fraction, list);
	return status;
}

void amos_listing_free(struct amos_listing *list)
{
	for (size_t i = 0; i < list->n; i++)
		free(list->at[i].path);
	free(list->at);
	free(list->sizes);
	free(list->names);
	free(list->empty);
	*list = (struct amos_listing){0};
}
