// write.c: trained numbers back into the very bytes of the file, and gradients in the file's own
// terms.
#include "lower.h"
#include <string.h>

void write_model(const Model *m, const char *path, const void *(*bytes)(void *, int slot),
                 void *ctx)
{
	(void)bytes, (void)ctx;
	fail(path, "writing %s back is not there yet", m->path);
}

void each_initializer(const Model *m, Arena *arena, const float *(*grad)(void *, int slot),
                      void (*each)(void *, const char *name, Shape, const float *), void *ctx)
{
	(void)arena;
	for (int s = 0; s < m->graph->slots.count; s++) {
		const Slot *slot = &m->graph->slots.at[s];
		const float *at = slot->kind == S_param ? grad(ctx, s) : NULL;
		if (at)
			each(ctx, slot->file, slot->shape, at);
	}
}
