// homes.c: where in the file the numbers of a slot lie: in which initializers, and how.
#include "lower.h"
#include <string.h>

static const char *const views[] = {
    [COPY_SAME] = NULL, [COPY_TRANSPOSED] = "transpose", [COPY_COMPLEMENT] = "1 - x"};

static bool same_home(const View *a, const View *b)
{
	return a->weight && b->weight && a->copy == b->copy &&
	       !strcmp(a->weight->name, b->weight->name);
}

int slot_homes(const Graph *g, Arena *arena, int slot, SlotHome **homes)
{
	int n = 0, all = 0;
	for (const View *v = g->slots.at[slot].view; v; v = v->next)
		all++;
	*homes = NEWS(arena, SlotHome, all + 1);
	for (const View *v = g->slots.at[slot].view; v; v = v->next) {
		bool earlier = !v->weight; // in no initializer
		for (const View *first = v->next; first; first = first->next)
			earlier |= same_home(v, first);
		if (!earlier)
			(*homes)[n++] = (SlotHome){v->weight->name, views[v->copy]};
	}
	for (int k = 0; k < n / 2; k++) { // the view that was found first comes last
		SlotHome last = (*homes)[n - 1 - k];
		(*homes)[n - 1 - k] = (*homes)[k], (*homes)[k] = last;
	}
	return n;
}
