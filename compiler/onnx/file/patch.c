// patch.c: decides which slot's values are written to which initializer.
// Input: the graph's slots. Output: the writer's lists of initializers and their values, of new
// initializers, of the nodes that read them, and of the tests that these depend on. Invariant: a
// slot whose old bytes can hold it is written there.
#include "write.h"
#include <string.h>

// Returns the number of a new view: of the slot itself if `v` is NULL.
static int add_view(ModelWriter *w, int slot, const View *v)
{
	const Shape *s = &w->m->graph->slots.at[slot].shape;
	struct amos_view view = {.slot = slot, .copy = v ? v->copy : COPY_SAME};
	if (view.copy == COPY_TRANSPOSED) {
		view.rows = s->dim[0];
		view.columns = s->dim[1];
	} else if (view.copy == COPY_REPEATED) {
		view.rows = v->weight->repeat.times;
		view.columns = v->weight->repeat.inner;
	}
	PUSH(w->arena, w->views, view);
	return w->views.count - 1;
}

static void add_test(ModelWriter *w, int view, int other, const void *numbers, int64_t n)
{
	PUSH(w->arena, w->tests,
	     ((struct amos_test){.view = view, .other = other, .numbers = numbers, .count = n}));
}

// Returns the input of the main graph's node that reads the view. Its node is NULL if there is
// none, or if it reads something else than the slot.
static Operand reader_of(const ModelWriter *w, const View *v)
{
	if (v->copy != COPY_SAME)
		return (Operand){NULL, 0};
	return (Operand){v->alias ? find_name(w->m->file, v->alias)->maker : v->node,
	                 v->alias ? 0 : v->operand};
}

static const char *extra_name(ModelWriter *w, const Slot *slot)
{
	const char *name = slot->name;
	Table *old_names = w->m->file->names;
	for (int i = 1; table_find_s(w->names, name) || table_find_s(old_names, name); i++)
		name = format(w->arena, "%s.trained%s", slot->name,
		              i > 1 ? format(w->arena, "%d", i) : "");
	*table_cell_s(w->names, name) = 1;
	return name;
}

// If the tests from `first` on hold, the old bytes cannot hold the slot: gives it an initializer of
// its own, read by its own nodes.
static void part(ModelWriter *w, int s, int first)
{
	const Slot *slot = &w->m->graph->slots.at[s];
	const char *error = NULL;
	for (const View *v = slot->view; v; v = v->next)
		if (!reader_of(w, v).node)
			error = format(
			    w->arena,
			    "parameter %s cannot be written back once it differs from what it "
			    "shares initializer '%s' with: it is used inside a function, "
			    "transposed, repeated or as 1 - x" HELP
			    "export without merging (training mode, or optimize=False)",
			    slot->name, slot->file ? slot->file : "?");
	for (int i = first; i < w->tests.count; i++) {
		w->tests.at[i].more = i + 1 < w->tests.count;
		w->tests.at[i].error = error;
	}
	if (error)
		return;
	const Weight *weight = slot->view->weight;
	Elem e = weight ? (Elem)declared_type(weight->proto->data_type) : E_f32;
	int64_t when = AMOS_WHEN_TEST + first;
	Renamed renamed = {extra_name(w, slot), when},
	        *shared = take_copy(w->arena, &renamed, sizeof renamed);
	PUSH(w->arena, w->extras,
	     ((Extra){renamed.name, e, slot->shape, add_view(w, s, NULL), when}));
	for (const View *v = slot->view; v; v = v->next) {
		Operand reads = reader_of(w, v);
		*table_cell(w->inputs, &reads, sizeof reads) = (uintptr_t)shared;
	}
}

// An element type of few bits is not written anew.
static bool is_fixed(const View *v)
{
	return find_format(v->weight->proto->data_type);
}

static void keep_fixed(ModelWriter *w, int s, const View *v)
{
	const Slot *slot = &w->m->graph->slots.at[s];
	add_test(w, add_view(w, s, NULL), -1, slot->init, count_of(&slot->shape));
	w->tests.at[w->tests.count - 1].error =
	    format(w->arena,
	           "parameter %s: new values cannot be written back to initializer '%s', whose "
	           "elements are %s" HELP "leave it as it is: --freeze",
	           slot->name, v->weight->name, find_format(v->weight->proto->data_type)->name);
}

static void plan_slot(ModelWriter *w, int s)
{
	const Slot *slot = &w->m->graph->slots.at[s];
	const View *fixed = NULL;
	int first = w->tests.count;
	if (!slot->file)
		add_test(w, add_view(w, s, NULL), -1, NULL, count_of(&slot->shape));
	for (const View *v = slot->file ? slot->view : NULL; v; v = v->next) {
		if (is_fixed(v)) {
			fixed = v;
			continue;
		}
		const Weight *weight = v->weight;
		const void *home =
		    weight->attribute ? (const void *)weight->attribute : weight->proto;
		uint64_t *cell = table_cell(w->patches, &home, sizeof home);
		const Patch *taken = (const Patch *)(uintptr_t)*cell;
		if (taken && taken->slot == s)
			continue;
		Patch patch = {s, add_view(w, s, v), count_of(&v->weight->shape)};
		if (taken)
			add_test(w, patch.view, taken->view, NULL, patch.n);
		else
			*cell = (uintptr_t)take_copy(w->arena, &patch, sizeof patch);
	}
	if (w->tests.count > first)
		part(w, s, first);
	if (fixed)
		keep_fixed(w, s, fixed);
}

// Slots that have their initializer's name come first: they keep its bytes.
void plan_writing(ModelWriter *w)
{
	const Graph *g = w->m->graph;
	for (int own = 1; own >= 0; own--)
		for (int s = 0; s < g->slots.count; s++) {
			const Slot *slot = &g->slots.at[s];
			if (!slot->view || own != (slot->file && !strcmp(slot->name, slot->file)))
				continue;
			if (slot->type != E_f32)
				bug("slot %s is not f32", slot->name);
			plan_slot(w, s);
		}
}
