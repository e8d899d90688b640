// patch.c: decides which values of a slot are written to which initializer.
// Input: the slots' values. Output: the writer's lists of new values, of new initializers and of
// the nodes that read them. Invariant: a slot whose old bytes can hold it is written there.
#include "write.h"
#include <string.h>

// Gives a slot that its old bytes cannot hold an initializer of its own, read by its own nodes.
static void part(ModelWriter *w, const Slot *slot, const float *x)
{
	const View *v = slot->view;
	Elem e = v->weight ? (Elem)declared_type(v->weight->proto->data_type) : E_f32;
	Extra extra = {slot->name, e, slot->shape, x};
	Table *old_names = w->m->file->names;
	for (int i = 1; table_find_s(w->names, extra.name) || table_find_s(old_names, extra.name);
	     i++)
		extra.name = format(w->arena, "%s.trained%s", slot->name,
		                    i > 1 ? format(w->arena, "%d", i) : "");
	*table_cell_s(w->names, extra.name) = 1;
	PUSH(w->arena, w->extras, extra);
	for (; v; v = v->next) {
		Operand reads = {v->alias ? find_name(w->m->file, v->alias)->maker : v->node,
		                 v->alias ? 0 : v->operand};
		if (!reads.node || v->copy != COPY_SAME)
			fail(w->path,
			     "parameter %s no longer equals what it shares initializer '%s' with: "
			     "it cannot be written back, because it is used inside a function, "
			     "transposed or as 1 - x" HELP
			     "export without merging (training mode, or optimize=False)",
			     slot->name, slot->file ? slot->file : "?");
		*table_cell(w->inputs, &reads, sizeof reads) = (uintptr_t)extra.name;
	}
}

static void plan_slot(ModelWriter *w, int s, const float *x)
{
	const Slot *slot = &w->m->graph->slots.at[s];
	int64_t n = count_of(&slot->shape), rows = slot->shape.dim[0], columns = n / MAX(rows, 1);
	bool changed = !slot->init || memcmp(slot->init, x, sizeof *x * (size_t)n), zero = true;
	for (int64_t i = 0; i < n && !slot->file && zero; i++)
		zero = x[i] == 0;
	if (!slot->file && !zero)
		part(w, slot, x);
	for (const View *v = slot->file ? slot->view : NULL; v; v = v->next) {
		// The values as an initializer that is such a copy holds them.
		float *copy = v->copy == COPY_SAME ? NULL : NEWS(w->arena, float, n + 1);
		for (int64_t i = 0; i < n && copy; i++)
			if (v->copy == COPY_TRANSPOSED)
				copy[i % columns * rows + i / columns] = x[i];
			else
				copy[i] = 1 - x[i];
		const float *y = copy ? copy : x;
		uint64_t *cell = table_cell(w->patches, &v->weight->proto, sizeof v->weight->proto);
		const Patch *taken = (const Patch *)(uintptr_t)*cell, patch = {s, n, y, changed};
		if (!taken)
			*cell = (uintptr_t)take_copy(w->arena, &patch, sizeof patch);
		else if (taken->slot != s && memcmp(taken->x, y, sizeof *y * (size_t)n)) {
			part(w, slot, x);
			return;
		}
	}
}

// Slots that have their initializer's name come first: they keep its bytes.
void plan_writing(ModelWriter *w, const void *(*bytes)(void *, int slot), void *context)
{
	const Graph *g = w->m->graph;
	for (int own = 1; own >= 0; own--)
		for (int s = 0; s < g->slots.count; s++) {
			const Slot *slot = &g->slots.at[s];
			if ((slot->kind != S_param && slot->kind != S_buffer) || !slot->view)
				continue;
			if (own != (slot->file && !strcmp(slot->name, slot->file)))
				continue;
			const float *x = bytes(context, s);
			if (!x)
				x = slot->init;
			if (x)
				plan_slot(w, s, x);
		}
}
