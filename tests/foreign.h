// foreign.h: the batch that foreign.c and bare.c train on, the same on every machine.

// Returns a number in [0, range).
static int64_t draw(int64_t input, int64_t i, int64_t range)
{
	uint64_t x = (uint64_t)(input * 10007 + i + 1) * UINT64_C(0x9E3779B97F4A7C15);
	return (int64_t)((x >> 33) % (uint64_t)range);
}

// Fills an input: floats in [-2, 2], or integers below the number of classes.
static void fill_input(struct amos *m, int64_t input)
{
	void *to = amos_values(m, AMOS_INPUTS, input);
	bool floats = amos_type(m, AMOS_INPUTS, input) == AMOS_F32;
	int64_t classes = amos_shape(m, AMOS_OUTPUTS, 0)[amos_rank(m, AMOS_OUTPUTS, 0) - 1];
	int64_t n = amos_bytes(m, AMOS_INPUTS, input) /
	            (floats ? (int64_t)sizeof(float) : (int64_t)sizeof(int64_t));
	for (int64_t i = 0; i < n; i++)
		if (floats)
			((float *)to)[i] = (float)(draw(input, i, 1001) - 500) / 250;
		else
			((int64_t *)to)[i] = draw(input, i, classes);
}

static void fill(struct amos *m)
{
	for (int64_t i = 0; i < amos_count(m, AMOS_INPUTS); i++)
		fill_input(m, i);
}
