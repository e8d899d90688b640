// external.c: gathers external tensors of a written model in one file.
// amosc names this file. Every tensor of the model that lies in another file is written there, a
// trained one with its new values, and the reference to it is changed. Other fields stay as they
// are. Invariant: no name in the model decides which file is written.
#include "write.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- the data file --------------------------------------------------------------------

// Returns the offset of the added data: at a page, or a small tensor at a cache line. Tensors that
// share bytes are stored once.
static size_t add_data(ModelWriter *w, Bytes data, bool shared)
{
	enum { PAGE = 4096, LINE = 64 };
	static const uint8_t zeros[PAGE];
	uint64_t *known = table_cell(w->placed, &data, sizeof data);
	if (shared && *known)
		return *known - 1;
	size_t apart = data.count < PAGE ? LINE : PAGE, over = w->data.count % apart;
	if (over)
		add_piece(&w->data, (Bytes){zeros, apart - over});
	size_t offset = w->data.count;
	if (data.count)
		add_piece(&w->data, data);
	if (shared)
		*known = offset + 1;
	return offset;
}

static void add_entry(PieceTable *p, const char *key, const char *value)
{
	int entry = begin_field(p);
	add_bytes(p, F_entry_key, text_bytes(key));
	add_bytes(p, F_entry_value, text_bytes(value));
	end_field(p, entry, F_tensor_external, NULL);
}

// Returns the bytes of a tensor; .at is NULL if they cannot be read, as is allowed for unused ones.
static Bytes find_bytes(ModelWriter *w, const TensorProto *t)
{
	Catch catch;
	if (!TRY(catch)) {
		Bytes found = outside_tensor(w->m->file, w->path, t);
		catch_end(&catch);
		return found;
	}
	free(catch.message);
	return (Bytes){0};
}

// ---- references to it -----------------------------------------------------------------

// True if an entry of external_data is about the location in the old file.
static bool is_location(const StringStringEntryProto *entry)
{
	return !strcmp(entry->key, "location") || !strcmp(entry->key, "offset") ||
	       !strcmp(entry->key, "length") || !strcmp(entry->key, "checksum");
}

void add_outside(ModelWriter *w, PieceTable *p, Bytes old, const TensorProto *t, const Patch *patch)
{
	Bytes data = find_bytes(w, t);
	if (!data.at) {
		add_piece(p, old);
		return;
	}
	bool changed = patch && patch->changed;
	if (changed)
		data = encode(w->arena, (Elem)declared_type(t->data_type), data.at, patch->x,
		              patch->n);
	w->external = true;
	size_t entry = 0;
	for (Field f; next_field(w->path, &old, &f);)
		if (f.number != F_tensor_external || !is_location(t->external_data[entry++]))
			add_piece(p, f.all);
	add_entry(p, "location", w->data_name);
	add_entry(p, "offset", format(w->arena, "%zu", add_data(w, data, !changed)));
	add_entry(p, "length", format(w->arena, "%zu", data.count));
}

// ---- its name -------------------------------------------------------------------------

// Returns the k-th of PATH.data, PATH.2.data, ...
static const char *data_path(Arena *arena, const char *path, int k)
{
	return k ? format(arena, "%s.%d.data", path, k + 1) : format(arena, "%s.data", path);
}

const char *free_data_path(Arena *arena, const char *path)
{
	struct stat about;
	int k = 0;
	while (!lstat(data_path(arena, path, k), &about))
		k++;
	return data_path(arena, path, k);
}

void remove_old_data(Arena *arena, const char *path, Bytes model, const char *kept)
{
	enum { MOST = 16 };
	for (int k = 0; k < MOST; k++) {
		const char *old = data_path(arena, path, k), *slash = strrchr(old, '/'),
		           *name = slash ? slash + 1 : old;
		if (strcmp(old, kept) && model.count &&
		    memmem(model.at, model.count, name, strlen(name)) && !amos_output_check(old))
			unlink(old);
	}
}
