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
	Table *first = table_new(arena); // initializer -> its first slot + 1
	int nslot = m->graph->slots.count;
	float **sum = NEWS(arena, float *, nslot + 1);
	for (int s = 0; s < nslot; s++) {
		const Slot *slot = &m->graph->slots.at[s];
		const float *g = slot->file ? grad(ctx, s) : NULL;
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
