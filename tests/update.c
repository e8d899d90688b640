/* update.c: a model that amosc build --update-only compiled, beside the complete one with the same
 * options. Given the gradients of the complete model, both update to the same bits; and all else
 * that a program may ask of an update alone is refused. Saves both: full.ckpt, alone.ckpt. With the
 * argument `report`, it was compiled from a report, which has no weights.
 */
#include "alone.h"
#include "full.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 8 };

#define CHECK(is)                                                                                  \
	do {                                                                                       \
		if (!(is)) {                                                                       \
			fprintf(stderr, "update.c: line %d: %s: %s\n", __LINE__, #is,              \
			        amos_error());                                                     \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

static struct amos *opened(const struct amos_model *model, int64_t threads)
{
	struct amos_setup setup = {.size = sizeof setup, .threads = threads};
	struct amos *m;
	CHECK(!amos_open(model, &setup, &m));
	return m;
}

/* With a schedule, no update is made before its length is known, and it may not change later. */
static void set_length(struct amos *m)
{
	if (amos_set_steps(m, 0) == AMOS_USAGE)
		return;
	CHECK(amos_update(m) == AMOS_USAGE && strstr(amos_error(), "call amos_set_steps() first"));
	CHECK(!amos_set_steps(m, STEPS) && !amos_set_steps(m, 2 * STEPS));
}

static void check_length(struct amos *m)
{
	int status = amos_set_steps(m, 3 * STEPS);
	CHECK(status == AMOS_USAGE || (status == AMOS_INPUT && !amos_set_steps(m, 2 * STEPS)));
}

/* A new batch for each step. */
static void fill(struct amos *m, int step)
{
	float *x = amos_values(m, AMOS_INPUTS, full_input_x);
	int64_t *labels = amos_values(m, AMOS_INPUTS, full_input_labels);
	for (int64_t i = 0; i < amos_bytes(m, AMOS_INPUTS, full_input_x) / 4; i++)
		x[i] = sinf(0.7f * (float)i + (float)step);
	for (int64_t i = 0; i < amos_shape(m, AMOS_INPUTS, full_input_labels)[0]; i++)
		labels[i] = (i + step) % 3;
}

/* Copies the gradients or parameters by name. */
static void give(struct amos *to, const struct amos *from, enum amos_kind kind)
{
	for (int64_t i = 0; i < amos_count(to, kind); i++) {
		int64_t k = amos_find(from, kind, amos_name(to, kind, i));
		CHECK(k >= 0 && amos_values(from, kind, k));
		CHECK(amos_bytes(from, kind, k) == amos_bytes(to, kind, i));
		memcpy(amos_values(to, kind, i), amos_values(from, kind, k),
		       (size_t)amos_bytes(to, kind, i));
	}
}

/* True if all arrays of a kind in `few` have the bytes of those in `all`. */
static int same(const struct amos *few, const struct amos *all, enum amos_kind kind)
{
	int equal = 1;
	CHECK(amos_count(few, kind) > 0);
	for (int64_t i = 0; i < amos_count(few, kind); i++) {
		int64_t k = amos_find(all, kind, amos_name(few, kind, i));
		CHECK(k >= 0 && amos_bytes(few, kind, i) == amos_bytes(all, kind, k));
		equal &= !memcmp(amos_values(few, kind, i), amos_values(all, kind, k),
		                 (size_t)amos_bytes(few, kind, i));
	}
	return equal;
}

static void check_arrays(const struct amos *m)
{
	int64_t bytes, other;
	char *weights = amos_block(m, AMOS_PARAMETERS, &bytes),
	     *gradients = amos_block(m, AMOS_GRADIENTS, &other);
	CHECK(weights && gradients && bytes == other);
	CHECK(!amos_count(m, AMOS_INPUTS) && !amos_count(m, AMOS_OUTPUTS));
	CHECK(!amos_count(m, AMOS_FROZEN) && !amos_count(m, AMOS_BUFFERS));
	for (int64_t i = 0; i < amos_count(m, AMOS_PARAMETERS); i++) {
		char *weight = amos_values(m, AMOS_PARAMETERS, i),
		     *gradient = amos_values(m, AMOS_GRADIENTS, i);
		CHECK(gradient && weight - weights == gradient - gradients);
	}
}

static void check_refusals(struct amos *m)
{
	static const char *const options[] = {"data", "x.npz", NULL};
	struct amos_training training = {.size = sizeof training, .options = options};
	CHECK(amos_forward(m) == AMOS_USAGE && amos_evaluate(m, NULL) == AMOS_USAGE);
	CHECK(amos_step(m, NULL) == AMOS_USAGE && amos_gradient(m, NULL) == AMOS_USAGE);
	CHECK(amos_set_batch(m, 1) == AMOS_USAGE);
	CHECK(amos_fit(m, &training) == AMOS_USAGE && strstr(amos_error(), "without 'train'"));
	CHECK(isnan(amos_metric(m, "loss")) && amos_steps(m) == 0);
}

static void check_checkpoints(struct amos *m)
{
	struct amos *copy = opened(&alone_model, 1);
	int64_t bytes = amos_checkpoint_bytes(m);
	char *stored = malloc((size_t)bytes);
	CHECK(stored && !amos_store(m, stored, bytes) && !amos_restore(copy, stored, bytes));
	CHECK(same(copy, m, AMOS_PARAMETERS) && same(copy, m, AMOS_STATE));
	CHECK(amos_steps(copy) == STEPS && amos_rate(copy) == 0.5);
	give(copy, m, AMOS_GRADIENTS);
	CHECK(!amos_update(m) && !amos_update(copy));
	CHECK(same(copy, m, AMOS_PARAMETERS) && same(copy, m, AMOS_STATE));
	CHECK(!amos_restore(m, stored, bytes));
	free(stored);
	amos_close(copy);
}

int main(int argc, char **argv)
{
	struct amos *full = opened(&full_model, 1), *alone = opened(&alone_model, 2),
	            *start = opened(&full_model, 1);
	check_arrays(alone);
	if (argc > 1 && !strcmp(argv[1], "report"))
		give(alone, start, AMOS_PARAMETERS);
	set_length(full), set_length(alone), set_length(start);
	check_refusals(alone);
	CHECK(same(alone, start, AMOS_PARAMETERS) && same(alone, start, AMOS_STATE));
	for (int step = 0; step < STEPS; step++) {
		if (step == STEPS / 2)
			CHECK(!amos_set_rate(full, 0.5) && !amos_set_rate(alone, 0.5));
		fill(full, step);
		CHECK(!amos_gradient(full, NULL));
		give(alone, full, AMOS_GRADIENTS);
		CHECK(!amos_update(full) && !amos_update(alone));
		CHECK(same(alone, full, AMOS_PARAMETERS) && same(alone, full, AMOS_STATE));
	}
	CHECK(amos_steps(alone) == STEPS && !same(alone, start, AMOS_PARAMETERS));
	check_length(alone);
	check_checkpoints(alone);
	CHECK(!amos_save(alone, "alone.ckpt") && !amos_save(full, "full.ckpt"));
	printf("%d\n", (int)amos_count(alone, AMOS_PARAMETERS));
	amos_close(full);
	amos_close(alone);
	amos_close(start);
	return 0;
}
