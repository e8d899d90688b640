// homes.c: where in the file the numbers of a slot lie: in which initializers, and how.
#include "file.h"

static const char *const views[] = {
    [COPY_SAME] = NULL, [COPY_TRANSPOSED] = "transpose", [COPY_COMPLEMENT] = "1 - x"};

// Is this the first that lies there so?
static bool is_new(Arena *arena, Table *met, const View *v)
{
	return !(*table_cell_s(met, format(arena, "%d %s", (int)v->copy, v->weight->name)))++;
}

int slot_homes(const Graph *g, Arena *arena, int slot, SlotHome **homes)
{
	VEC(const View *) all = {0}; // the view that was found first comes last
	for (const View *v = g->slots.at[slot].view; v; v = v->next)
		PUSH(arena, all, v);
	Table *met = table_new(arena);
	int n = 0;
	*homes = NEWS(arena, SlotHome, all.count + 1);
	for (int k = all.count - 1; k >= 0; k--) {
		const View *v = all.at[k];
		if (v->weight && is_new(arena, met, v)) // in no initializer: it was left out
			(*homes)[n++] = (SlotHome){v->weight->name, views[v->copy]};
	}
	return n;
}
