// foreign.h: the batch that foreign.c and bare.c train on, the same on every machine.
#include "rt.h"

// Returns a number in [0, range).
static int64_t draw(int64_t slot, int64_t i, int64_t range)
{
	uint64_t x = (uint64_t)(slot * 10007 + i + 1) * UINT64_C(0x9E3779B97F4A7C15);
	return (int64_t)((x >> 33) % (uint64_t)range);
}

// Fills the memory of an input: floats in [-2, 2], or integers below the limit.
static void fill_input(const struct amos_model *model, int64_t slot, void *to)
{
	const struct amos_slot *s = &model->slots[slot];
	bool floats = s->type == AMOS_f32;
	int64_t n = s->bytes / (floats ? (int64_t)sizeof(float) : (int64_t)sizeof(int64_t));
	for (int64_t i = 0; i < n; i++)
		if (floats)
			((float *)to)[i] = (float)(draw(slot, i, 1001) - 500) / 250;
		else
			((int64_t *)to)[i] = draw(slot, i, s->limit);
}
