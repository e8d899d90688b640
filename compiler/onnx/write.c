// write.c: trained numbers back into the very bytes of the file, and gradients in the file's own
// terms. Takes the model and its slots' values. Gives a file that differs from the one read in the
// bytes of trained tensors alone; where parameters that shared an initializer have parted, in an
// initializer more and a node that reads it; where training has gathered running statistics, in the
// BatchNormalization that now is to go by them. Keeps: the order of fields, unknown fields, and
// every element whose value did not change. Files appear whole or not.
#include "lower.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ---- pieces ---------------------------------------------------------------------------

enum { // numbers of fields (onnx.proto)
	F_graph_node = 1,
	F_graph_initializer = 5,
	F_node_input = 1,
	F_node_output = 2,
	F_node_attribute = 5,
	F_tensor_dims = 1,
	F_tensor_type = 2,
	F_tensor_float = 4,
	F_tensor_int32 = 5,
	F_tensor_name = 8,
	F_tensor_raw = 9,
	F_tensor_double = 10
};

// Pieces of the new file, in order: of the old one, or new.
typedef struct Pieces {
	Arena *arena;
	VEC(Bytes) list;
	size_t count; // bytes
} Pieces;

static void add_piece(Pieces *p, Bytes b)
{
	PUSH(p->arena, p->list, b);
	p->count += b.count;
}

static void add_pieces(Pieces *p, const Pieces *more)
{
	for (int i = 0; i < more->list.count; i++)
		add_piece(p, more->list.at[i]);
}

static size_t put_varint(uint8_t *to, uint64_t x)
{
	size_t n = 0;
	for (; x > 127; x >>= 7)
		to[n++] = (uint8_t)(x | 128);
	to[n++] = (uint8_t)x;
	return n;
}

static void add_header(Pieces *p, int number, int wire, uint64_t x)
{
	uint8_t *header = take(p->arena, 20);
	size_t n = put_varint(header, (uint64_t)number << 3 | (uint64_t)wire);
	n += put_varint(header + n, x);
	add_piece(p, (Bytes){header, n});
}

static void add_bytes(Pieces *p, int number, Bytes body)
{
	add_header(p, number, W_bytes, body.count);
	add_piece(p, body);
}

// A message whose inside was rebuilt: its old header where the length is as before.
static void add_message(Pieces *p, const Field *old, const Pieces *inside)
{
	if (inside->count == old->body.count)
		add_piece(p, (Bytes){old->all.at, old->all.count - old->body.count});
	else
		add_header(p, old->number, W_bytes, inside->count);
	add_pieces(p, inside);
}

static Bytes text_bytes(const char *s)
{
	return (Bytes){(const uint8_t *)s, strlen(s)};
}

// ---- tensors --------------------------------------------------------------------------

// Value x as element i of a tensor stored as `e`; what is there stays when it means x already.
static void store_number(uint8_t *to, Elem e, float x)
{
	double wide = (double)x, old_wide;
	uint16_t half = e == E_f16 ? float_to_half(x) : float_to_bf16(x), old;
	float narrow;
	switch (e) {
	case E_f64:
		memcpy(&old_wide, to, 8);
		if ((float)old_wide != x)
			memcpy(to, &wide, 8);
		return;
	case E_f32:
		memcpy(&narrow, to, 4);
		if (narrow != x)
			memcpy(to, &x, 4);
		return;
	default:
		memcpy(&old, to, 2);
		if ((e == E_f16 ? half_to_float(old) : bf16_to_float(old)) != x)
			memcpy(to, &half, 2);
	}
}

static Bytes encode(Arena *arena, Elem e, const uint8_t *old, const float *x, int64_t n)
{
	size_t size = (size_t)elems[e].bytes;
	uint8_t *to = take(arena, size * (size_t)n + 1);
	if (old)
		memcpy(to, old, size * (size_t)n);
	for (int64_t i = 0; i < n; i++)
		store_number(to + (size_t)i * size, e, x[i]);
	return (Bytes){to, size * (size_t)n};
}

// A typed field of floats, packed or one by one, or of halves as varints: written anew.
static void add_typed(Pieces *p, const TensorProto *t, Elem e, const float *x, int64_t n)
{
	if (e == E_f32) {
		add_bytes(p, F_tensor_float,
		          encode(p->arena, e, (const uint8_t *)t->float_data, x, n));
		return;
	}
	if (e == E_f64) {
		add_bytes(p, F_tensor_double,
		          encode(p->arena, e, (const uint8_t *)t->double_data, x, n));
		return;
	}
	uint8_t *to = take(p->arena, 3 * (size_t)n + 1);
	size_t count = 0;
	for (int64_t i = 0; i < n; i++) {
		uint8_t half[2] = {(uint8_t)t->int32_data[i], (uint8_t)(t->int32_data[i] >> 8)};
		store_number(half, e, x[i]);
		count += put_varint(to + count, (uint64_t)(half[0] | half[1] << 8));
	}
	add_bytes(p, F_tensor_int32, (Bytes){to, count});
}

// The initializer with new values.
static void add_tensor(Pieces *p, const char *where, const Field *old, const TensorProto *t,
                       const float *x, int64_t n)
{
	Elem e = (Elem)declared_type(t->data_type);
	Pieces inside = {.arena = p->arena};
	Bytes at = old->body;
	bool typed = false;
	for (Field f; next_field(where, &at, &f);) {
		bool numbers = f.number == F_tensor_float || f.number == F_tensor_double ||
		               f.number == F_tensor_int32;
		if (f.number == F_tensor_raw && f.body.count) {
			Pieces raw = {.arena = p->arena};
			add_piece(&raw, encode(p->arena, e, f.body.at, x, n));
			add_message(&inside, &f, &raw);
		} else if (numbers && !t->raw_data.len) {
			if (!typed)
				add_typed(&inside, t, e, x, n);
			typed = true;
		} else {
			add_piece(&inside, f.all);
		}
	}
	add_message(p, old, &inside);
}

static void add_new_tensor(Pieces *p, const char *name, Elem e, const Shape *s, const float *x)
{
	Pieces inside = {.arena = p->arena};
	for (int a = 0; a < s->rank; a++)
		add_header(&inside, F_tensor_dims, W_varint, (uint64_t)s->dim[a]);
	add_header(&inside, F_tensor_type, W_varint, (uint64_t)elems[e].onnx);
	add_bytes(&inside, F_tensor_name, text_bytes(name));
	add_bytes(&inside, F_tensor_raw, encode(p->arena, e, NULL, x, count_of(s)));
	add_header(p, F_graph_initializer, W_bytes, inside.count);
	add_pieces(p, &inside);
}

// ---- what is to be written where ------------------------------------------------------

typedef struct Rewire { // operand of a node reads another initializer
	const NodeProto *node;
	int operand;
	const char *name;
	struct Rewire *next;
} Rewire;

typedef struct Extra { // an initializer to be added
	const char *name;
	Elem type;
	Shape shape;
	const float *x;
} Extra;

typedef struct Patch { // new values of a file's initializer
	const TensorProto *proto;
	int slot;
	const float *x;
	bool changed;
} Patch;

typedef struct Writer {
	Arena *arena;
	const Model *m;
	const char *path;
	VEC(Patch) patches;
	VEC(Extra) extras;
	Rewire *rewires;
	VEC(const NodeProto *) settled; // BatchNormalization whose statistics have moved
	Table *names;                   // taken by values of the graph
} Writer;

static Patch *find_patch(Writer *w, const TensorProto *t)
{
	for (int i = 0; i < w->patches.count; i++)
		if (w->patches.at[i].proto == t)
			return &w->patches.at[i];
	return NULL;
}

static const float *turned(Arena *arena, const float *x, const Shape *s)
{
	int64_t rows = s->dim[0], columns = s->dim[1];
	float *y = NEWS(arena, float, rows *columns + 1);
	for (int64_t i = 0; i < rows; i++)
		for (int64_t j = 0; j < columns; j++)
			y[j * rows + i] = x[i * columns + j];
	return y;
}

static const char *free_name(Writer *w, const char *name)
{
	const char *tried = name;
	for (int i = 1; table_find_s(w->names, tried); i++)
		tried =
		    format(w->arena, "%s.trained%s", name, i > 1 ? format(w->arena, "%d", i) : "");
	*table_cell_s(w->names, tried) = 1;
	return tried;
}

static const NodeProto *identity_of(const Writer *w, const char *alias)
{
	const GraphProto *g = w->m->file->proto->graph;
	for (size_t i = 0; i < g->n_node; i++)
		if (g->node[i]->n_output && !strcmp(g->node[i]->output[0], alias))
			return g->node[i];
	return NULL;
}

// A slot that no longer fits into the bytes it came from gets an initializer of its own, read by
// its own nodes.
static void part(Writer *w, const Slot *slot, const float *x)
{
	const View *v = slot->view;
	Elem e = v->weight ? (Elem)declared_type(v->weight->proto->data_type) : E_f32;
	Extra extra = {free_name(w, slot->name), e, slot->shape, x};
	PUSH(w->arena, w->extras, extra);
	for (; v; v = v->next) {
		Rewire *r = NEW(w->arena, Rewire);
		*r = (Rewire){v->alias ? identity_of(w, v->alias) : v->node,
		              v->alias ? 0 : v->operand, extra.name, w->rewires};
		if (!r->node || v->transposed)
			fail(w->path,
			     "parameter %s has parted from what it shared bytes with in '%s', and "
			     "is used inside "
			     "a function or transposed: it cannot be written back; export without "
			     "merging "
			     "(training mode, or optimize=False)",
			     slot->name, slot->file ? slot->file : "?");
		w->rewires = r;
	}
}

static bool all_zero(const float *x, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		if (x[i] != 0)
			return false;
	return true;
}

static bool is_read(const GraphProto *g, const char *name)
{
	for (size_t i = 0; i < g->n_output; i++)
		if (!strcmp(g->output[i]->name, name))
			return true;
	for (size_t i = 0; i < g->n_node; i++)
		for (size_t k = 0; k < g->node[i]->n_input; k++)
			if (!strcmp(g->node[i]->input[k], name))
				return true;
	return false;
}

// Statistics that training gathered are for inference: the nodes that read them get its form.
static void settle_nodes(Writer *w, const Slot *slot)
{
	for (const View *v = slot->view; v; v = v->next) {
		bool read = v->node == NULL;
		for (size_t k = 1; !read && k < v->node->n_output; k++)
			read = is_read(w->m->file->proto->graph, v->node->output[k]);
		if (!read)
			PUSH(w->arena, w->settled, v->node);
	}
}

static void plan_slot(Writer *w, int s, const float *x)
{
	const Slot *slot = &w->m->graph->slots.at[s];
	int64_t n = count_of(&slot->shape);
	bool changed = !slot->init || memcmp(slot->init, x, sizeof *x * (size_t)n);
	if (changed && slot->kind == S_buffer)
		settle_nodes(w, slot);
	if (!slot->file) {
		if (!all_zero(x, n))
			part(w, slot, x);
		return;
	}
	for (const View *v = slot->view; v; v = v->next) {
		const float *y = v->transposed ? turned(w->arena, x, &slot->shape) : x;
		Patch *taken = find_patch(w, v->weight->proto),
		      patch = {v->weight->proto, s, y, changed};
		if (!taken)
			PUSH(w->arena, w->patches, patch);
		else if (taken->slot != s && memcmp(taken->x, y, sizeof *y * (size_t)n)) {
			part(w, slot, x);
			return;
		}
	}
}

// Slots that bear their initializer's own name come first: the bytes stay theirs.
static void plan_writing(Writer *w, const void *(*bytes)(void *, int slot), void *ctx)
{
	const Graph *g = w->m->graph;
	for (int own = 1; own >= 0; own--)
		for (int s = 0; s < g->slots.count; s++) {
			const Slot *slot = &g->slots.at[s];
			if ((slot->kind != S_param && slot->kind != S_buffer) || !slot->view)
				continue;
			if (own != (slot->file && !strcmp(slot->name, slot->file)))
				continue;
			const float *x = bytes(ctx, s);
			if (!x)
				x = slot->init;
			if (x)
				plan_slot(w, s, x);
		}
}

static void list_names(Writer *w)
{
	const GraphProto *g = w->m->file->proto->graph;
	for (size_t i = 0; i < g->n_initializer; i++)
		*table_cell_s(w->names, g->initializer[i]->name) = 1;
	for (size_t i = 0; i < g->n_input; i++)
		*table_cell_s(w->names, g->input[i]->name) = 1;
	for (size_t i = 0; i < g->n_node; i++)
		for (size_t k = 0; k < g->node[i]->n_output; k++)
			*table_cell_s(w->names, g->node[i]->output[k]) = 1;
}

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
	const char *aside = format(arena, "%s.part", path);
	FILE *f = fopen(aside, "wb");
	bool good = f != NULL;
	for (int i = 0; good && i < p->list.count; i++)
		good = fwrite(p->list.at[i].at, 1, p->list.at[i].count, f) == p->list.at[i].count;
	good = good && !fflush(f) && !fsync(fileno(f));
	if (f && fclose(f))
		good = false;
	if (good && !rename(aside, path))
		return;
	int error = errno;
	unlink(aside);
	fail_status(STATUS_MACHINE, path, "cannot be written: %s", strerror(error));
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
                 void *ctx)
{
	Writer w = {.arena = arena_new(), .m = m, .path = path};
	w.names = table_new(w.arena);
	list_names(&w);
	plan_writing(&w, bytes, ctx);
	Pieces p = new_model(&w);
	write_outside(&w);
	write_pieces(w.arena, path, &p);
	arena_free(w.arena);
}

// ---- gradients ------------------------------------------------------------------------

void each_initializer(const Model *m, Arena *arena, const double *(*grad)(void *, int slot),
                      void (*each)(void *, const char *name, Shape, const double *), void *ctx)
{
	Table *first = table_new(arena); // initializer -> its first slot + 1
	int nslot = m->graph->slots.count;
	double **sum = NEWS(arena, double *, nslot + 1);
	for (int s = 0; s < nslot; s++) {
		const Slot *slot = &m->graph->slots.at[s];
		const double *g = slot->file ? grad(ctx, s) : NULL;
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
			each(ctx, m->graph->slots.at[s].file, m->graph->slots.at[s].shape, sum[s]);
}
