// write.c: trained numbers back into the very bytes of the file, and gradients in the file's own
// terms. Takes the model and its slots' values. Gives a file that differs from the one read in the
// bytes of trained tensors alone; where parameters that shared an initializer have parted, in an
// initializer more and a node that reads it; where training has gathered running statistics, in the
// BatchNormalization that now is to go by them. Keeps: the order of fields, unknown fields, and
// every element whose value did not change. Files appear whole or not.
#include "write.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ---- the new file ---------------------------------------------------------------------

static bool is_settled(const Writer *w, const NodeProto *node)
{
	for (int i = 0; i < w->settled.count; i++)
		if (w->settled.at[i] == node)
			return true;
	return false;
}

// Of a BatchNormalization: what makes it one for training, by either encoding.
static bool is_for_training(const Field *f, const NodeProto *node, size_t *output,
                            size_t *attribute)
{
	if (f->number == F_node_output)
		return (*output)++ > 0;
	return f->number == F_node_attribute &&
	       !strcmp(node->attribute[(*attribute)++]->name, "training_mode");
}

static void add_node_fields(Writer *w, Pieces *p, const Field *old, const NodeProto *node)
{
	Pieces inside = {.arena = w->arena};
	Bytes at = old->body;
	int operand = 0;
	size_t output = 0, attribute = 0;
	bool settled = is_settled(w, node);
	for (Field f; next_field(w->path, &at, &f);) {
		if (settled && is_for_training(&f, node, &output, &attribute))
			continue;
		const char *name = NULL;
		for (const Rewire *r = w->rewires; r && f.number == F_node_input; r = r->next)
			if (r->node == node && r->operand == operand)
				name = r->name;
		operand += f.number == F_node_input;
		if (name)
			add_bytes(&inside, F_node_input, text_bytes(name));
		else
			add_piece(&inside, f.all);
	}
	for (const Rewire *r = w->rewires; r; r = r->next)
		if (r->node == node && r->operand == operand)
			add_bytes(&inside, F_node_input, text_bytes(r->name));
	add_message(p, old, &inside);
}

static bool is_changed(const Writer *w, const NodeProto *node)
{
	for (const Rewire *r = w->rewires; r; r = r->next)
		if (r->node == node)
			return true;
	return is_settled(w, node);
}

static void add_graph(Writer *w, Pieces *p, const Field *old)
{
	const GraphProto *g = w->m->file->proto->graph;
	Pieces inside = {.arena = w->arena};
	Bytes at = old->body;
	size_t node = 0, tensor = 0;
	for (Field f; next_field(w->path, &at, &f);) {
		const NodeProto *n = f.number == F_graph_node ? g->node[node++] : NULL;
		const TensorProto *t =
		    f.number == F_graph_initializer ? g->initializer[tensor++] : NULL;
		const Patch *patch = t && t->data_location != 1 ? find_patch(w, t) : NULL;
		if (patch && patch->changed)
			add_tensor(&inside, w->path, &f, t, patch->x,
			           count_of(&w->m->graph->slots.at[patch->slot].shape));
		else if (n && is_changed(w, n))
			add_node_fields(w, &inside, &f, n);
		else
			add_piece(&inside, f.all);
	}
	for (int i = 0; i < w->extras.count; i++) {
		const Extra *e = &w->extras.at[i];
		add_new_tensor(&inside, e->name, e->type, &e->shape, e->x);
	}
	add_message(p, old, &inside);
}

static Pieces new_model(Writer *w)
{
	Pieces p = {.arena = w->arena};
	Bytes at = w->m->file->bytes;
	int graphs = 0;
	for (Field f; next_field(w->path, &at, &f);) {
		if (f.number != F_model_graph) {
			add_piece(&p, f.all);
			continue;
		}
		if (graphs++)
			fail(w->path,
			     "the file says its graph in several parts; it cannot be written back");
		add_graph(w, &p, &f);
	}
	return p;
}

// Written aside, synced, renamed.
static void write_pieces(Arena *arena, const char *path, const Pieces *p)
{
	const char *aside = aside_name(arena, path);
	FILE *f = fopen(aside, "wb");
	bool good = f != NULL;
	for (int i = 0; good && i < p->list.count; i++)
		good = fwrite(p->list.at[i].at, 1, p->list.at[i].count, f) == p->list.at[i].count;
	good = good && !fflush(f) && (!fsync(fileno(f)) || errno == EINVAL); // of a device
	if (f && fclose(f))
		good = false;
	if (!good) {
		aside_drop_all();
		fail_write(path);
	}
	aside_keep(aside, path);
}

// ---- external data --------------------------------------------------------------------

static const char *folder_of(Arena *arena, const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? format(arena, "%.*s", (int)(slash - path) + 1, path) : "./";
}

static bool same_folder(Arena *arena, const char *a, const char *b)
{
	char x[PATH_MAX], y[PATH_MAX];
	return realpath(folder_of(arena, a), x) && realpath(folder_of(arena, b), y) &&
	       !strcmp(x, y);
}

// The data file with new values at the places of its tensors, as pieces. True when something
// differs.
static bool new_outside(Writer *w, const Outside *out, Pieces *p)
{
	uint8_t *all = take_copy(w->arena, out->bytes.at, out->bytes.count);
	for (int i = 0; i < w->patches.count; i++) {
		const Patch *patch = &w->patches.at[i];
		const char *location = external_field(patch->proto, "location");
		if (!patch->changed || patch->proto->data_location != 1 || !location ||
		    strcmp(location, out->location))
			continue;
		const char *offset = external_field(patch->proto, "offset");
		uint8_t *at = all + (offset ? strtoll(offset, NULL, 10) : 0);
		Elem e = (Elem)declared_type(patch->proto->data_type);
		int64_t n = count_of(&w->m->graph->slots.at[patch->slot].shape);
		for (int64_t k = 0; k < n; k++)
			store_number(at + k * elems[e].bytes, e, patch->x[k]);
	}
	add_piece(p, (Bytes){all, out->bytes.count});
	return memcmp(all, out->bytes.at, out->bytes.count) != 0;
}

// Data files go beside the new model under their own names; where that is the old model's folder
// they would change under it, so they must not differ unless the model itself is replaced.
static void write_outside(Writer *w)
{
	const File *file = w->m->file;
	bool beside = same_folder(w->arena, file->path, w->path),
	     replaced = beside && !strcmp(file->path, w->path);
	for (int i = 0; i < file->outside.count; i++) {
		Pieces p = {.arena = w->arena};
		const Outside *out = &file->outside.at[i];
		bool changed = new_outside(w, out, &p);
		if (beside && !changed)
			continue;
		if (beside && !replaced)
			fail(w->path,
			     "the trained model keeps its data in '%s', which belongs to %s too; "
			     "write it to another folder",
			     out->location, file->path);
		write_pieces(w->arena,
		             format(w->arena, "%s%s", folder_of(w->arena, w->path), out->location),
		             &p);
	}
}

void write_model(const Model *m, const char *path, const void *(*bytes)(void *, int slot),
                 void *context)
{
	Writer w = {.arena = arena_new(), .m = m, .path = path};
	w.names = table_new(w.arena);
	plan_writing(&w, bytes, context);
	Pieces p = new_model(&w);
	write_outside(&w);
	write_pieces(w.arena, path, &p);
	arena_free(w.arena);
}

// ---- gradients ------------------------------------------------------------------------

void each_initializer(const Model *m, Arena *arena, const double *(*grad)(void *, int slot),
                      void (*each)(void *, const char *name, Shape, const double *), void *context)
{
	Table *first = table_new(arena); // initializer -> its first slot + 1
	int nslot = m->graph->slots.count;
	double **sum = NEWS(arena, double *, nslot + 1);
	for (int s = 0; s < nslot; s++) {
		const Slot *slot = &m->graph->slots.at[s];
		const double *g = slot->file ? grad(context, s) : NULL;
		if (!g)
			continue;
		int64_t n = count_of(&slot->shape);
		uint64_t *cell = table_cell_s(first, slot->file);
		if (!*cell) {
			*cell = (uint64_t)s + 1;
			sum[s] = take_copy(arena, g, sizeof *g * (size_t)n);
			continue;
		}
		for (int64_t i = 0; i < n; i++)
			sum[*cell - 1][i] += g[i];
	}
	for (int s = 0; s < nslot; s++)
		if (sum[s])
			each(context, m->graph->slots.at[s].file, m->graph->slots.at[s].shape,
			     sum[s]);
}
