// mock.c: defines compiled models written by hand.
#include "mock.h"
#include "ir.h"

// ---- y = x w + b ----------------------------------------------------------------------

enum { ROWS = 4, WIDE = 3, B = 64 }; // b is at byte 64 of params, the rows' errors at 0 of scratch

static void error_of_row(char *const *buf, int64_t i, int64_t end, char *local)
{
	const float *x = (const float *)buf[0] + i * WIDE, *w = (const float *)buf[2];
	(void)end;
	float *sum = (float *)local;
	*sum = *(const float *)(buf[2] + B) - ((const float *)buf[1])[i];
	for (int k = 0; k < WIDE; k++)
		*sum += x[k] * w[k];
	((float *)buf[3])[i] = *sum;
}

static void mean_square(char *const *buf, int64_t i, int64_t end, char *local)
{
	(void)i, (void)end, (void)local;
	const float *error = (const float *)buf[3];
	float sum = 0;
	for (int r = 0; r < ROWS; r++)
		sum += error[r] * error[r];
	*(float *)buf[4] = sum / ROWS;
}

// Worker k updates w[k]; worker WIDE updates b and counts the step.
static void descend(char *const *buf, int64_t k, int64_t end, char *local)
{
	(void)end, (void)local;
	const float *x = (const float *)buf[0], *error = (const float *)buf[3];
	float sum = 0;
	for (int r = 0; r < ROWS; r++)
		sum += error[r] * (k < WIDE ? x[r * WIDE + k] : 1);
	float *at = k < WIDE ? (float *)buf[2] + k : (float *)(buf[2] + B);
	*at -= 0.1f * sum / ROWS;
	if (k == WIDE)
		++*(int64_t *)buf[5];
}

static const struct amos_operand line_operands[] = {
    {.block = AMOS_BLOCK_INPUT},  {.block = AMOS_BLOCK_INPUT, .offset = 1},
    {.block = AMOS_BLOCK_PARAMS}, {.block = AMOS_BLOCK_SCRATCH},
    {.block = AMOS_BLOCK_OUTPUT}, {.block = AMOS_BLOCK_STATE},
};
static const float zeros[ROWS], first_w[WIDE] = {0.5f, -0.25f, 0};
static const struct amos_operand run_operands[] = {
    {.block = AMOS_BLOCK_INPUT},
    {.block = AMOS_BLOCK_CONSTANTS},
    {.block = AMOS_BLOCK_PARAMS},
    {.block = AMOS_BLOCK_OUTPUT},
};

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
    {"error", "row", ROWS, 1 << 20, 0, 1, error_of_row, line_operands, 6, NULL, "", "", NULL, 0, 0,
     0},
    {"loss", "row", 1, ROWS, 0, 1, mean_square, line_operands, 6, NULL, "", "", NULL, 0, 0, 0},
    {"update", "map", WIDE + 1, 1 << 20, 0, 1, descend, line_operands, 6, NULL, "", "", NULL, 0, 0,
     0},
};
static const struct amos_kernel run_kernel[] = {{"error", "row", ROWS, 1 << 20, 0, 1, error_of_row,
                                                 run_operands, 4, NULL, "", "", NULL, 0, 0, 0}};
static const struct amos_entry line_entries[] = {
    {.name = "train",
     .reads = "11",
     .outs = loss_out,
     .nouts = 1,
     .scratch = 64,
     .kernels = line_kernels,
     .nkernels = 3},
    {.name = "eval",
     .reads = "11",
     .outs = loss_out,
     .nouts = 1,
     .scratch = 64,
     .kernels = line_kernels,
     .nkernels = 2},
    {.name = "run",
     .reads = "10",
     .outs = y_out,
     .nouts = 1,
     .scratch = 64,
     .kernels = run_kernel,
     .nkernels = 1},
};
const struct amos_model mock_line = {
    .abi = AMOS_ABI,
    .name = "line",
    .target = "C",
    .constants = zeros,
    .constant_bytes = sizeof zeros,
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
static void count_words(char *const *buf, int64_t i, int64_t end, char *local)
{
	(void)i, (void)end, (void)local;
	const int64_t *tokens = (const int64_t *)buf[0], *labels = (const int64_t *)buf[1];
	float *counts = (float *)buf[2], wrong = 0;
	for (int k = 0; k < BATCH * WINDOW; k++) {
		counts[tokens[k]]++;
		wrong += labels[k] != tokens[k] + 1;
	}
	*(float *)buf[4] = wrong / (BATCH * WINDOW);
	++*(int64_t *)buf[5];
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
static const struct amos_kernel words_kernel[] = {
    {"count", "map", 1, 0, 0, 1, count_words, line_operands, 6, NULL, "", "", NULL, 0, 0, 0}};
static const struct amos_entry words_entries[] = {
    {.name = "train",
     .reads = "11",
     .outs = loss_out,
     .nouts = 1,
     .kernels = words_kernel,
     .nkernels = 1},
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
