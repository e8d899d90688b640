// program.c: runs an entry of a compiled model: its launches and loops, in order.
#include "core.h"

static int run_rows(const struct amos_run *, const struct amos_kernel *, int64_t n);

static char *address(const struct amos_run *run, const struct amos_operand *o)
{
	switch (o->block) {
	case AMOS_BLOCK_PARAMS:
		return run->params + o->offset;
	case AMOS_BLOCK_STATE:
		return run->state + o->offset;
	case AMOS_BLOCK_GRADIENTS:
		return run->gradients + o->offset;
	case AMOS_BLOCK_SCRATCH:
		return run->scratch + o->offset;
	case AMOS_BLOCK_INPUT:
		return run->inputs[o->offset];
	case AMOS_BLOCK_OUTPUT:
		return run->outputs[o->offset];
	default:
		return (char *)run->constants + o->offset;
	}
}

static int copy(const struct amos_run *run, enum amos_way way, void *to, const void *from,
                int64_t bytes)
{
	if (run->copy)
		return run->copy(run, way, to, from, bytes);
	memmove(to, from, (size_t)bytes);
	return AMOS_DONE;
}

// A carried value has two locations: an iteration reads one and writes the other, in such order
// that the last possible one writes the location of the result.
static int run_loop(const struct amos_run *run, const struct amos_kernel *row, char **at)
{
	const struct amos_loop *l = row->loop;
	char **start = at + 1, **on = start + l->inputs, **result = on + l->until;
	char **second = on + l->outputs, **count = second + l->carried;
	char *inputs[l->inputs + 1], *outputs[l->outputs + 1];
	const int64_t *in_bytes = l->bytes, *out_bytes = in_bytes + l->inputs + l->until;
	struct amos_run body = *run;
	body.scratch += l->scratch;
	body.inputs = memcpy(inputs, start, sizeof *inputs * (size_t)l->inputs);
	body.outputs = memcpy(outputs, on, sizeof *outputs * (size_t)l->outputs);
	int64_t most, made = 0;
	char more = 1;
	int status = copy(run, AMOS_TO_HOST, &most, at[0], sizeof most);
	if (status)
		return status;
	most = most < l->most ? most : l->most;
	for (; more && made < most; made++) {
		int64_t left = most - 1 - made, entry = l->reverse ? left : made;
		for (int64_t k = 0; k < l->carried; k++) {
			inputs[k] = !made ? start[k] : left % 2 ? result[k] : second[k];
			outputs[l->until + k] = left % 2 ? second[k] : result[k];
		}
		for (int64_t k = l->carried; k < l->carried + l->scanned; k++)
			inputs[k] = start[k] + entry * in_bytes[k];
		for (int64_t k = l->carried; k < l->outputs - l->until; k++)
			outputs[l->until + k] = result[k] + entry * out_bytes[k];
		status = run_rows(&body, row + 1, l->rows);
		if (!status && l->until)
			status = copy(run, AMOS_TO_HOST, &more, *on, sizeof more);
		if (status)
			return status;
	}
	// Without iterations the results are the initial values; after an early end, they may be in
	// the second location.
	for (int64_t k = 0; k < l->carried && !status; k++) {
		const char *last = !made ? start[k] : (most - made) % 2 ? second[k] : result[k];
		if (last != result[k])
			status = copy(run, AMOS_WITHIN, result[k], last, out_bytes[k]);
	}
	for (; count < at + row->noperands && !status; count++)
		status = copy(run, AMOS_FROM_HOST, *count, &made, sizeof made);
	return status;
}

static int run_rows(const struct amos_run *run, const struct amos_kernel *row, int64_t n)
{
	for (const struct amos_kernel *end = row + n; row < end; row++) {
		char *at[row->noperands + 1];
		for (int64_t i = 0; i < row->noperands; i++)
			at[i] = address(run, &row->operands[i]);
		int status = row->loop ? run_loop(run, row, at) : run->launch(run, row, at);
		if (status)
			return status;
		row += row->loop ? row->loop->rows : 0;
	}
	return AMOS_DONE;
}

int amos_run_entry(const struct amos_run *run, const struct amos_entry *entry)
{
	return run_rows(run, entry->kernels, entry->nkernels);
}
