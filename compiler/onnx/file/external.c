// external.c: gathers external tensors of a written model in one file.
// Who writes the model names this file. Every tensor of the model that lies in another file is
// written there, one with a slot with the slot's values, and the reference to it is changed. Other
// fields stay as they are. Invariant: no name in the model decides which file is written.
#include "write.h"
#include <stdlib.h>
#include <string.h>

// ---- the data file --------------------------------------------------------------------

// Returns the offset of the added data: at a page, or a small tensor at a cache line. Tensors that
// share bytes, and values if they have any, are stored once.
static size_t add_data(ModelWriter *w, Bytes data, const TensorProto *t, const Patch *patch)
{
	enum { PAGE = 4096, LINE = 64 };
	const struct {
		Bytes data;
		const Patch *patch;
	} stored = {data, patch};
	uint64_t *known = table_cell(w->placed, &stored, sizeof stored);
	if (*known)
		return *known - 1;
	size_t step = data.count < PAGE ? LINE : PAGE, over = w->data.count % step;
	if (over)
		add_zeros(&w->data, step - over);
	size_t offset = w->data.count;
	if (patch)
		add_values(w, &w->data, patch->view, (Elem)declared_type(t->data_type), patch->n,
		           data.at);
	else if (data.count)
		add_piece(&w->data, data);
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
		Bytes found = outside_tensor(w->m->file, w->m->path, t);
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

// Also writes what the tensor is if it becomes part of the model: raw data.
void add_outside(ModelWriter *w, PieceTable *p, Bytes old, const TensorProto *t, const Patch *patch)
{
	Bytes data = find_bytes(w, t);
	if (!data.at) {
		add_piece(p, old);
		return;
	}
	size_t entry = 0;
	for (Field f; next_field(w->m->path, &old, &f);) {
		bool external = f.number == F_tensor_external;
		if (external && is_location(t->external_data[entry++]))
			continue;
		p->when = external || f.number == F_tensor_location ? AMOS_WHEN_DATA : 0;
		add_piece(p, f.all);
	}
	p->when = AMOS_WHEN_DATA;
	int location = begin_field(p);
	add_bytes(p, F_entry_key, text_bytes("location"));
	int name = begin_field(p);
	add_name(p);
	end_field(p, name, F_entry_value, NULL);
	end_field(p, location, F_tensor_external, NULL);
	add_entry(p, "offset", format(w->arena, "%zu", add_data(w, data, t, patch)));
	add_entry(p, "length", format(w->arena, "%zu", data.count));
	p->when = -AMOS_WHEN_DATA;
	int raw = begin_field(p);
	if (patch)
		add_values(w, p, patch->view, (Elem)declared_type(t->data_type), patch->n, data.at);
	else
		add_piece(p, data);
	end_field(p, raw, F_tensor_raw, NULL);
	p->when = 0;
}
