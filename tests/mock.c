// mock.c: defines compiled models written by hand.
#include "mock.h"
#include "ir.h"

// ---- y = x w + b ----------------------------------------------------------------------

enum { ROWS = 4, WIDE = 3, B = 64 }; // b is at byte 64 of params, the rows' errors at 0 of scratch

static void error_of_row(char *const *buf, int64_t i, char *local)
{
	const float *x = (const float *)buf[0] + i * WIDE, *w = (const float *)buf[2];
	float *sum = (float *)local;
	*sum = *(const float *)(buf[2] + B) - ((const float *)buf[1])[i];
	for (int k = 0; k < WIDE; k++)
		*sum += x[k] * w[k];
	((float *)buf[3])[i] = *sum;
}

static void mean_square(char *const *buf, int64_t i, char *local)
{
	(void)i, (void)local;
	const float *error = (const float *)buf[3];
	float sum = 0;
	for (int r = 0; r < ROWS; r++)
		sum += error[r] * error[r];
	*(float *)buf[4] = sum / ROWS;
}

// Worker k updates w[k]; worker WIDE updates b and counts the step.
static void descend(char *const *buf, int64_t k, char *local)
{
	(void)local;
	const float *x = (const float *)buf[0], *error = (const float *)buf[3];
	float sum = 0;
	for (int r = 0; r < ROWS; r++)
		sum += error[r] * (k < WIDE ? x[r * WIDE + k] : 1);
	float *at = k < WIDE ? (float *)buf[2] + k : (float *)(buf[2] + B);
	*at -= 0.1f * sum / ROWS;
	if (k == WIDE)
		++*(int64_t *)buf[5];
}

static int line(const struct amos_run *run, int train)
{
	char *buf[] = {run->inputs[0], run->inputs[1],  run->params,
	               run->scratch,   run->outputs[0], run->state};
	int status = run->launch(run, error_of_row, buf, ROWS, 0);
	if (!status)
		status = run->launch(run, mean_square, buf, 1, 1);
	if (!status && train)
		status = run->launch(run, descend, buf, WIDE + 1, 2);
	return status;
}

static int line_train(const struct amos_run *run)
{
	return line(run, 1);
}

static int line_eval(const struct amos_run *run)
{
	return line(run, 0);
}

static int line_run(const struct amos_run *run)
{
	static const float zeros[ROWS];
	char *buf[] = {run->inputs[0], (char *)zeros, run->params, run->outputs[0]};
	return run->launch(run, error_of_row, buf, ROWS, 0);
}

static const float first_w[WIDE] = {0.5f, -0.25f, 0};

static const struct amos_slot line_slots[] = {
    {.name = "x", .type = E_f32, .rank = 2, .dim = {ROWS, WIDE}, .bytes = 4 * ROWS * WIDE},
    {.name = "y", .type = E_f32, .rank = 1, .dim = {ROWS}, .bytes = 4 * ROWS, .offset = 1},
    {.name = "w",
     .file = "w",
     .kind = S_param,
     .type = E_f32,
     .rank = 1,
     .dim = {WIDE},
     .bytes = 4 * WIDE,
     .init = first_w},
    {.name = "b", .file = "b", .kind = S_param, .type = E_f32, .bytes = 4, .offset = B},
    {.name = "amos.step", .kind = S_state, .type = E_i64, .bytes = 8},
    {.name = "amos.seed", .kind = S_state, .type = E_i64, .bytes = 8, .offset = 64},
};
static const struct amos_out loss_out[] = {{.name = "loss", .type = E_f32, .bytes = 4}};
static const struct amos_out y_out[] = {
    {.name = "y_hat", .type = E_f32, .rank = 1, .dim = {ROWS}, .bytes = 4 * ROWS}};
static const struct amos_kernel line_kernels[] = {
    {.name = "error", .kind = "row", .workers = ROWS, .flops = 1 << 20, .times = 1},
    {.name = "loss", .kind = "row", .workers = 1, .flops = ROWS, .times = 1},
    {.name = "update", .kind = "map", .workers = WIDE + 1, .flops = 1 << 20, .times = 1},
};
static const struct amos_entry line_entries[] = {
    {.name = "train",
     .run = (void *)line_train,
     .reads = "11",
     .outs = loss_out,
     .nouts = 1,
     .scratch = 64,
     .kernels = line_kernels,
     .nkernels = 3},
    {.name = "eval",
     .run = (void *)line_eval,
     .reads = "11",
     .outs = loss_out,
     .nouts = 1,
     .scratch = 64,
     .kernels = line_kernels,
     .nkernels = 2},
    {.name = "run",
     .run = (void *)line_run,
     .reads = "10",
     .outs = y_out,
     .nouts = 1,
     .scratch = 64,
     .kernels = line_kernels,
     .nkernels = 1},
};
const struct amos_model mock_line = {
    .abi = AMOS_ABI,
    .name = "line",
    .target = "C",
    .slots = line_slots,
    .nslots = 6,
    .entries = line_entries,
    .nentries = 3,
    .params = 128,
    .state = 128,
    .local = 64,
    .note = "gradient descent, rate 0.1\n",
};

// ---- tokens ---------------------------------------------------------------------------

enum { BATCH = 2, WINDOW = 8, WORDS = 50 };

// Counts the tokens; the loss is the fraction of labels other than their token + 1.
static int words_train(const struct amos_run *run)
{
	const int64_t *tokens = (const int64_t *)run->inputs[0],
	              *labels = (const int64_t *)run->inputs[1];
	float *counts = (float *)run->params, wrong = 0;
	for (int i = 0; i < BATCH * WINDOW; i++) {
		counts[tokens[i]]++;
		wrong += labels[i] != tokens[i] + 1;
	}
	*(float *)run->outputs[0] = wrong / (BATCH * WINDOW);
	++*(int64_t *)run->state;
	return 0;
}

static const struct amos_slot words_slots[] = {
    {.name = "tokens",
     .type = E_i64,
     .rank = 2,
     .dim = {BATCH, WINDOW},
     .bytes = 8 * BATCH * WINDOW,
     .limit = WORDS},
    {.name = "labels",
     .type = E_i64,
     .rank = 2,
     .dim = {BATCH, WINDOW},
     .bytes = 8 * BATCH * WINDOW,
     .offset = 1,
     .limit = WORDS,
     .ignore = -100},
    {.name = "counts",
     .file = "counts",
     .kind = S_param,
     .type = E_f32,
     .rank = 1,
     .dim = {WORDS},
     .bytes = 4 * WORDS},
    {.name = "amos.step", .kind = S_state, .type = E_i64, .bytes = 8},
};
static const struct amos_entry words_entries[] = {
    {.name = "train",
     .run = (void *)words_train,
     .reads = "11",
     .outs = loss_out,
     .nouts = 1,
     .kernels = line_kernels},
};
const struct amos_model mock_words = {
    .abi = AMOS_ABI,
    .name = "words",
    .target = "C",
    .slots = words_slots,
    .nslots = 4,
    .entries = words_entries,
    .nentries = 1,
    .params = 4 * WORDS,
    .state = 64,
    .note = "",
};
