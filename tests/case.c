// case.c: reads the ONNX project's backend tests.
#include "case.h"
#include "files.h"
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

Excuses case_excuses(Arena *arena, const char *path)
{
	Excuses all = {0};
	Lines lines = read_lines(arena, path);
	for (int i = 0; i < lines.count; i++) {
		const char *line = lines.at[i];
		size_t name = strcspn(line, " "), reason = name + strspn(line + name, " ");
		Excuse e = {format(arena, "%.*s", (int)name, line), line + reason};
		PUSH(arena, all, e);
	}
	return all;
}

const Excuse *case_excuse(const Excuses *all, const char *folder, bool in_double)
{
	const char *slash = strrchr(folder, '/'), *name = slash ? slash + 1 : folder;
	for (int i = 0; i < all->count; i++) {
		const Excuse *e = &all->at[i];
		const char *what = strchr(e->name, '/') ? folder : name;
		if (matches(e->name, what) && (in_double || !starts_with(e->reason, "in double: ")))
			return e;
	}
	return NULL;
}

static int keep_test(const struct dirent *entry)
{
	return starts_with(entry->d_name, "test_");
}

static void add_folder(Arena *arena, Folders *all, const char *folder)
{
	struct stat st;
	struct dirent **entry;
	if (!stat(format(arena, "%s/model.onnx", folder), &st)) {
		PUSH(arena, *all, folder);
		return;
	}
	int n = scandir(folder, &entry, keep_test, alphasort);
	if (n < 1)
		fail(folder, "no tests in it");
	for (int i = 0; i < n; i++) {
		PUSH(arena, *all, format(arena, "%s/%s", folder, entry[i]->d_name));
		free(entry[i]);
	}
	free(entry);
}

Folders case_folders(Arena *arena, int count, char **arg)
{
	Folders all = {0};
	for (int i = 0; i < count; i++)
		add_folder(arena, &all, arg[i]);
	return all;
}

Model *case_list(Arena *arena, const char *path)
{
	ReadOptions options = {.list = true};
	return read_model(arena, path, &options);
}

const char *case_value(Arena *arena, const char *set, const char *kind, int k)
{
	struct stat st;
	const char *path = format(arena, "%s/%s_%d.pb", set, kind, k);
	return stat(path, &st) || !st.st_size ? NULL : path;
}

KnownList case_inputs(Arena *arena, const Model *listed, const char *set)
{
	KnownList all = {0};
	for (int k = 0; k < listed->inputs.count; k++) {
		const char *path = case_value(arena, set, "input", k);
		if (!path)
			continue;
		KnownList one = read_value(arena, path, &listed->inputs.at[k]);
		for (int i = 0; i < one.count; i++)
			PUSH(arena, all, one.at[i]);
	}
	return all;
}

static Array as_slot(Arena *arena, const Slot *s, const Known *k)
{
	if (!same_shape(&k->shape, &s->shape))
		fail(s->name, "the data are %s, the model wants %s",
		     shape_text(arena, k->type, &k->shape), shape_text(arena, s->type, &s->shape));
	Array a = array_from(arena, k->type, &k->shape, k->bytes);
	a.type = s->type;
	return a;
}

Array case_slot(Arena *arena, const Slot *s, const KnownList *known)
{
	for (int i = 0; s->kind == S_input && i < known->count; i++)
		if (!strcmp(known->at[i].name, s->name))
			return as_slot(arena, s, &known->at[i]);
	if (s->kind == S_input)
		fail(s->name, "no data");
	return slot_start(arena, s);
}

const char *case_operator(Arena *arena, const char *folder)
{
	const char *expanded = strstr(folder, "_expanded");
	struct stat st;
	const char *plain =
	    expanded ? format(arena, "%.*s/model.onnx", (int)(expanded - folder), folder) : NULL;
	if (!plain || stat(plain, &st))
		plain = format(arena, "%s/model.onnx", folder);
	const Model *m = case_list(arena, plain);
	return m->ops.count ? m->ops.at[0].op : "";
}
