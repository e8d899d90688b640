// external.c: gathers external tensors of a written model in one file.
// All of it in one file that amosc names. Every tensor of the model that lies in another file is
// written there, a trained one with its new values, and the reference to it is changed; all other
// fields stay as they are. Invariant: what a model calls its files names nothing that is written.
#include "write.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- the data file --------------------------------------------------------------------

// Where the data begin that are added: at a page, or a small tensor at a cache line. Tensors with
// the same bytes stay together.
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

// .at NULL: they cannot be read, which is allowed where nothing needs them.
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

static bool is_key(const TensorProto *t, size_t entry, const char *key)
{
	return !strcmp(t->external_data[entry]->key, key);
}

// Of an entry of external_data: is it about the place in the old file?
static bool is_place(const TensorProto *t, size_t entry)
{
	return is_key(t, entry, "location") || is_key(t, entry, "offset") ||
	       is_key(t, entry, "length") || is_key(t, entry, "checksum");
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
		if (f.number != F_tensor_external || !is_place(t, entry++))
			add_piece(p, f.all);
	add_entry(p, "location", w->data_name);
	add_entry(p, "offset", format(w->arena, "%zu", add_data(w, data, !changed)));
	add_entry(p, "length", format(w->arena, "%zu", data.count));
}

// ---- its name -------------------------------------------------------------------------

// PATH.data, PATH.2.data, ...: the k-th.
static const char *data_path(Arena *arena, const char *path, int k)
{
	return k ? format(arena, "%s.%d.data", path, k + 1) : format(arena, "%s.data", path);
}

static bool exists(const char *path)
{
	struct stat about;
	return !lstat(path, &about);
}

const char *free_data_path(Arena *arena, const char *path)
{
	int k = 0;
	while (exists(data_path(arena, path, k)))
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
