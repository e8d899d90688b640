/* outputs.c: two models in one program, by the headers that amosc build writes, in C99 and C++.
 * Each runs in threads, which must agree; prints the loss of each after five steps. Checks that the
 * functions of amos.h mean what it says, and with an argument, that nothing leaks.
 */
#include "first.h"
#include "second.h"
#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 5, THREADS = 4 };

#define CHECK(is)                                                                                  \
	do {                                                                                       \
		if (!(is)) {                                                                       \
			fprintf(stderr, "outputs.c: line %d: %s: %s\n", __LINE__, #is,             \
			        amos_error());                                                     \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

static void fill(struct amos *m)
{
	float *x = (float *)amos_values(m, AMOS_INPUTS, amos_find(m, AMOS_INPUTS, "x"));
	int64_t *labels = (int64_t *)amos_values(m, AMOS_INPUTS, first_input_labels), i;
	for (i = 0; i < amos_bytes(m, AMOS_INPUTS, first_input_x) / 4; i++)
		x[i] = sinf(0.7f * (float)i);
	for (i = 0; i < amos_shape(m, AMOS_INPUTS, first_input_labels)[0]; i++)
		labels[i] = i % 3;
}

static struct amos *opened(const struct amos_model *model, const struct amos_setup *setup)
{
	struct amos *m;
	CHECK(!amos_open(model, setup, &m));
	fill(m);
	return m;
}

static double trained(struct amos *m)
{
	double loss = 0;
	int i;
	for (i = 0; i < STEPS; i++)
		CHECK(!amos_step(m, &loss));
	CHECK(amos_steps(m) == STEPS && amos_metric(m, "loss") == loss);
	return loss;
}

static void *train(void *model)
{
	struct amos *m = opened((const struct amos_model *)model, NULL);
	double *loss = (double *)malloc(sizeof *loss);
	*loss = trained(m);
	amos_close(m);
	return loss;
}

static int same(struct amos *a, struct amos *b)
{
	int64_t bytes, other, kind;
	for (kind = AMOS_PARAMETERS; kind <= AMOS_STATE; kind += AMOS_STATE - AMOS_PARAMETERS) {
		void *x = amos_block(a, (enum amos_kind)kind, &bytes);
		void *y = amos_block(b, (enum amos_kind)kind, &other);
		if (bytes != other || !bytes || memcmp(x, y, (size_t)bytes))
			return 0;
	}
	return 1;
}

/* A gradient and an update are a step, and between them the gradients are there. */
static void check_halves(const struct amos_model *model)
{
	struct amos *whole = opened(model, NULL), *halves = opened(model, NULL);
	double loss, other;
	int64_t i, k, bytes;
	for (i = 0; i < STEPS; i++) {
		CHECK(!amos_step(whole, &loss) && !amos_gradient(halves, &other) && loss == other);
		CHECK(amos_steps(halves) == i && !amos_update(halves));
	}
	CHECK(same(whole, halves) && amos_metric(halves, "loss") == loss);
	CHECK(amos_count(halves, AMOS_GRADIENTS) == amos_count(halves, AMOS_PARAMETERS));
	/* The gradient of a bias before softmax sums to 0. */
	k = amos_find(halves, AMOS_GRADIENTS, "2.bias");
	CHECK(amos_type(halves, AMOS_GRADIENTS, k) == AMOS_F32);
	CHECK(amos_shape(halves, AMOS_GRADIENTS, k)[0] == 3);
	{
		float *g = (float *)amos_values(halves, AMOS_GRADIENTS, k);
		char *block = (char *)amos_block(halves, AMOS_GRADIENTS, &bytes);
		char *params = (char *)amos_block(halves, AMOS_PARAMETERS, &bytes);
		CHECK(fabsf(g[0] + g[1] + g[2]) < 1e-6f && fabsf(g[0]) > 1e-6f);
		CHECK((char *)g - block ==
		      (char *)amos_values(halves, AMOS_PARAMETERS, k) - params);
		/* Gradients that the caller changes decide the update. */
		memset(block, 0, (size_t)bytes);
		CHECK(!amos_update(halves) && !amos_step(whole, NULL) && !same(whole, halves));
	}
	amos_close(whole);
	amos_close(halves);
}

/* The factor of the step size is 1 at first; checkpoints keep it; at 0, parameters stay. */
static void check_rates(const struct amos_model *model)
{
	struct amos *a = opened(model, NULL), *b = opened(model, NULL);
	int64_t bytes = amos_checkpoint_bytes(a), params;
	char *copy = (char *)malloc((size_t)bytes);
	char *weights = (char *)amos_block(a, AMOS_PARAMETERS, &params);
	char *before = (char *)malloc((size_t)params);
	CHECK(amos_rate(a) == 1 && amos_set_rate(a, -1) == AMOS_INPUT);
	CHECK(amos_set_rate(a, NAN) == AMOS_INPUT && amos_set_rate(a, HUGE_VAL) == AMOS_INPUT);
	CHECK(amos_rate(a) == 1 && !amos_set_rate(a, 0) && amos_rate(a) == 0);
	memcpy(before, weights, (size_t)params);
	CHECK(!amos_step(a, NULL) && amos_steps(a) == 1);
	CHECK(!memcmp(before, weights, (size_t)params));
	trained(b);
	CHECK(!amos_set_rate(b, 0.25) && !amos_store(b, copy, bytes));
	CHECK(!amos_restore(a, copy, bytes) && amos_rate(a) == 0.25);
	CHECK(!amos_step(a, NULL) && !amos_gradient(b, NULL) && !amos_update(b) && same(a, b));
	CHECK(!amos_set_rate(b, 1) && !amos_step(a, NULL) && !amos_step(b, NULL) && !same(a, b));
	free(copy);
	free(before);
	amos_close(a);
	amos_close(b);
}

/* What a callback of amos_fit() saw, and the call at which it stops, from 1. */
struct seen {
	int calls, stop;
	struct amos_progress last;
};

static int see(void *context, const struct amos_progress *now)
{
	struct seen *seen = (struct seen *)context;
	CHECK(now->size >= sizeof *now && now->step > 0 && now->seconds > 0);
	seen->last = *now;
	return ++seen->calls == seen->stop;
}

static int fitted(struct amos *m, struct seen *seen, const char *const *options)
{
	struct amos_training training;
	memset(&training, 0, sizeof training);
	training.size = sizeof training;
	training.options = options;
	training.progress = seen ? see : NULL;
	training.context = seen;
	return amos_fit(m, &training);
}

/* Training on data.npz: in one call, two, stopped and resumed; by the command, ten.run. */
static void check_fit(const struct amos_model *model)
{
	static const char
	    *const ten[] = {"data", "data.npz", "steps", "10", NULL},
	           *const five[] = {"data", "data.npz", "steps", "5", NULL},
	           *const held[] = {"data", "data.npz", "split", "0.5", NULL},
	           *const kept[] = {"data",    "data.npz",  "steps", "10", "out",
	                            "fit.run", "overwrite", "1",     NULL},
	           *const on[] = {"data", "data.npz", "steps", "10", "resume", "fit.run", NULL},
	           *const idle[] = {"data", "data.npz", "threads", "2", NULL},
	           *const nothing[] = {"steps", "10", NULL}, *const half[] = {"data", NULL};
	struct amos *a = opened(model, NULL), *b = opened(model, NULL), *c = opened(model, NULL);
	struct seen all, some, epoch;
	memset(&all, 0, sizeof all);
	some = epoch = all;
	some.stop = 3;
	CHECK(!fitted(a, &all, ten) && amos_steps(a) == 10 && all.calls == 10);
	CHECK(all.last.step == 10 && all.last.steps == 10 && all.last.loss > 0);
	CHECK(all.last.samples_per_s > 0 && all.last.eval_loss != all.last.eval_loss);
	CHECK(!fitted(b, NULL, five) && !fitted(b, NULL, five) && same(a, b));
	if (model == &first_model)
		CHECK(!amos_load(c, "ten.run/last.ckpt") && same(a, c));
	amos_close(c);
	c = opened(model, NULL);
	CHECK(!fitted(c, &some, ten) && amos_steps(c) == 3 && some.calls == 3);
	CHECK(!fitted(c, &epoch, held) && epoch.last.eval_loss > 0 && epoch.last.epochs > 1);
	CHECK(fitted(c, NULL, idle) == AMOS_USAGE && strstr(amos_error(), "'threads'"));
	CHECK(fitted(c, NULL, half) == AMOS_USAGE && fitted(c, NULL, nothing) != AMOS_DONE);
	amos_close(c);
	c = opened(model, NULL);
	some.calls = 0;
	CHECK(!fitted(c, &some, kept) && amos_steps(c) == 3);
	CHECK(!fitted(b, NULL, on) && amos_steps(b) == 10 && same(a, b));
	amos_close(a);
	amos_close(b);
	amos_close(c);
}

static void check_checkpoints(const struct amos_model *model)
{
	struct amos *a = opened(model, NULL), *b = opened(model, NULL), *c = opened(model, NULL);
	int64_t bytes = amos_checkpoint_bytes(a);
	char *copy = (char *)malloc((size_t)bytes);
	trained(a);
	CHECK(amos_store(a, copy, bytes - 1) == AMOS_INPUT && !amos_store(a, copy, bytes));
	CHECK(!amos_save(a, "a.ckpt") && !amos_load(b, "a.ckpt"));
	CHECK(amos_restore(c, copy, bytes - 1) == AMOS_INPUT && amos_steps(c) == 0);
	CHECK(!amos_restore(c, copy, bytes) && same(a, b) && same(a, c));
	copy[bytes - 1] ^= 1;
	CHECK(amos_restore(c, copy, bytes) == AMOS_INPUT && same(a, c));
	CHECK(amos_load(b, "nowhere.ckpt") == AMOS_INPUT && strstr(amos_error(), "nowhere.ckpt"));
	CHECK(!amos_step(a, NULL) && !amos_step(b, NULL) && !amos_step(c, NULL));
	CHECK(same(a, b) && same(a, c));
	free(copy);
	amos_close(a);
	amos_close(b);
	amos_close(c);
}

/* The trained model, in memory and as a file. */
static void check_export(const struct amos_model *model)
{
	struct amos *m = opened(model, NULL);
	int64_t bytes = amos_onnx_bytes(m);
	char *copy = (char *)malloc((size_t)bytes + 1), *again = (char *)malloc((size_t)bytes + 1);
	FILE *file;
	trained(m);
	CHECK(bytes > 0 && amos_onnx_bytes(m) == bytes);
	CHECK(amos_store_onnx(m, copy, bytes - 1) == AMOS_INPUT);
	CHECK(!amos_store_onnx(m, copy, bytes) && !amos_export_onnx(m, "c.onnx"));
	CHECK(amos_export_onnx(m, "no/folder/c.onnx") == AMOS_INPUT);
	file = fopen("c.onnx", "rb");
	CHECK(file && (int64_t)fread(again, 1, (size_t)bytes + 1, file) == bytes);
	CHECK(!memcmp(copy, again, (size_t)bytes) && !amos_save(m, "c.ckpt"));
	fclose(file);
	free(copy);
	free(again);
	amos_close(m);
}

static void backwards(void *context, int64_t n, void (*body)(void *task, int64_t i, int64_t thread),
                      void *task)
{
	while (n--) {
		body(task, n, n % 2);
		++*(int *)context;
	}
}

static const void *zeros(void *context, const char *name, int64_t bytes)
{
	static const float none[64] = {0};
	(void)context;
	return strcmp(name, "2.bias") && bytes <= (int64_t)sizeof none ? none : NULL;
}

static void check_setup(const struct amos_model *model)
{
	struct amos_setup setup;
	struct amos *plain = opened(model, NULL), *own, *m;
	int launches = 0;
	double loss, expected;
	memset(&setup, 0, sizeof setup);
	CHECK(amos_open(model, &setup, &m) == AMOS_INPUT && !m);
	setup.size = sizeof setup;
	setup.threads = 2;
	setup.parallel_for = backwards;
	setup.context = &launches;
	own = opened(model, &setup);
	expected = trained(plain);
	loss = trained(own);
	CHECK(loss == expected && same(plain, own));
	amos_close(own);
	setup.weights = zeros;
	own = opened(model, &setup);
	CHECK(!amos_forward(own));
	/* With weights of zero, each row of the output is the last bias. */
	CHECK(!memcmp(amos_values(own, AMOS_OUTPUTS, first_output_logits),
	              amos_values(own, AMOS_PARAMETERS, amos_find(own, AMOS_PARAMETERS, "2.bias")),
	              12));
	CHECK(!amos_evaluate(own, &loss) && loss > 0 && amos_find(own, AMOS_INPUTS, "y") == -1);
	((int64_t *)amos_values(own, AMOS_INPUTS, first_input_labels))[1] = 3;
	CHECK(amos_step(own, &loss) == AMOS_INPUT && amos_steps(own) == 0);
	amos_close(plain);
	amos_close(own);
}

/* In memory of the caller's: the bits of amos_open(), and nothing behind the block is written. */
static void check_memory(const struct amos_model *model)
{
	enum { LINE = 64, BEHIND = 4096 };
	struct amos_setup setup;
	struct amos *own = opened(model, NULL), *m;
	int64_t bytes = amos_instance_bytes(model, NULL), shared, i;
	char *all = (char *)malloc((size_t)bytes * 2 + LINE + BEHIND), *block = all;
	double expected = trained(own), loss;
	int launches = 0, turn;
	while ((uintptr_t)block % LINE)
		block++;
	CHECK(bytes > 0 && amos_open_in(model, NULL, block, bytes - 1, &m) == AMOS_INPUT && !m);
	CHECK(amos_open_in(model, NULL, block + LINE / 2, bytes + LINE, &m) == AMOS_INPUT && !m);
	CHECK(amos_open_in(model, NULL, NULL, bytes, &m) == AMOS_INPUT && !m);
	for (turn = 0; turn < 2; turn++) { /* the block may be used again */
		memset(block + (turn ? bytes : 0), 0x55, (size_t)(BEHIND + (turn ? 0 : bytes)));
		CHECK(!amos_open_in(model, NULL, block, bytes, &m) && (char *)m == block);
		fill(m);
		CHECK(trained(m) == expected && same(own, m));
		CHECK(!amos_gradient(m, NULL) && !amos_update(m) && !amos_forward(m));
		amos_close(m);
		for (i = 0; i < BEHIND; i++)
			CHECK(block[bytes + i] == 0x55);
	}
	memset(&setup, 0, sizeof setup);
	setup.size = sizeof setup;
	setup.threads = 2;
	setup.seed = 1;
	CHECK(amos_instance_bytes(model, &setup) == -1 && strstr(amos_error(), "parallel_for"));
	CHECK(amos_open_in(model, &setup, block, bytes, &m) == AMOS_INPUT && !m);
	setup.parallel_for = backwards;
	setup.context = &launches;
	shared = amos_instance_bytes(model, &setup);
	CHECK(shared >= bytes && !amos_open_in(model, &setup, block, shared, &m));
	fill(m);
	loss = trained(m);
	CHECK(loss == expected);
	setup.threads = 1025;
	CHECK(amos_instance_bytes(model, &setup) == -1 && strstr(amos_error(), "1024"));
	setup.parallel_for = NULL;
	CHECK(amos_open(model, &setup, &m) == AMOS_INPUT && strstr(amos_error(), "1024") && !m);
	setup.threads = -3;
	CHECK(amos_open(model, &setup, &m) == AMOS_INPUT && strstr(amos_error(), "found -3") && !m);
	amos_close(own);
	free(all);
}

/* A smaller batch is the first samples of the inputs, for inference alone. */
static void check_sizes(const struct amos_model *model)
{
	struct amos *m = opened(model, NULL);
	double all, loss;
	float whole[3], *row;
	int i;
	CHECK(!amos_forward(m) && !amos_evaluate(m, &all));
	memcpy(whole, amos_values(m, AMOS_OUTPUTS, 0), sizeof whole);
	CHECK(amos_set_batch(m, 3) == AMOS_USAGE && strstr(amos_error(), "batches of 3"));
	CHECK(amos_shape(m, AMOS_OUTPUTS, 0)[0] == 4);
	CHECK(!amos_set_batch(m, 1) && amos_shape(m, AMOS_OUTPUTS, 0)[0] == 1);
	CHECK(!amos_forward(m) && amos_count(m, AMOS_OUTPUTS) == 1);
	row = (float *)amos_values(m, AMOS_OUTPUTS, 0);
	for (i = 0; i < 3; i++)
		CHECK(fabsf(row[i] - whole[i]) < 1e-6f);
	CHECK(!amos_evaluate(m, &loss) && loss != all && loss == amos_metric(m, "loss"));
	CHECK(amos_step(m, NULL) == AMOS_USAGE && amos_gradient(m, NULL) == AMOS_USAGE);
	CHECK(!amos_set_batch(m, 4) && !amos_evaluate(m, &loss) && loss == all);
	CHECK(!amos_set_batch(m, 1) && !amos_set_batch(m, 0) && !amos_step(m, NULL));
	amos_close(m);
}

/* Returns the number of mappings, which has no noise as the resident pages have. */
static long mappings(void)
{
	long lines = 0;
	int c;
	FILE *file = fopen("/proc/self/maps", "r");
	CHECK(file);
	while ((c = getc(file)) != EOF)
		lines += c == '\n';
	fclose(file);
	return lines;
}

/* A model with one batch size takes that. */
static void check_size(const struct amos_model *model)
{
	struct amos *m = opened(model, NULL);
	CHECK(!amos_set_batch(m, 2) && !amos_step(m, NULL));
	CHECK(amos_set_batch(m, 1) == AMOS_USAGE && !amos_forward(m));
	amos_close(m);
}

/* What an instance took is given back. */
static void check_leaks(const struct amos_model *model)
{
	size_t heap = 0;
	long mapped = 0;
	int i;
	for (i = 0; i < 10000; i++) {
		struct amos *m;
		CHECK(!amos_open(model, NULL, &m) && !amos_step(m, NULL));
		amos_close(m);
		if (!i) {
			mapped = mappings();
			heap = mallinfo2().uordblks;
		}
	}
	/* What malloc keeps for reuse counts as used. */
	CHECK(mallinfo2().uordblks < heap + (1 << 16) && mappings() <= mapped);
}

int main(int argc, char **argv)
{
	(void)argv;
	const struct amos_model *models[] = {&first_model, &second_model};
	int k, i;
	check_sizes(&second_model);
	check_size(&first_model);
	if (argc > 1)
		check_leaks(&first_model);
	for (k = 0; k < 2; k++) {
		pthread_t thread[THREADS];
		void *loss[THREADS];
		for (i = 0; i < THREADS; i++)
			CHECK(!pthread_create(&thread[i], NULL, train, (void *)models[k]));
		for (i = 0; i < THREADS; i++)
			pthread_join(thread[i], &loss[i]);
		for (i = 0; i < THREADS; i++)
			CHECK(!memcmp(loss[i], loss[0], sizeof(double)));
		printf("%.9g\n", *(double *)loss[0]);
		for (i = 0; i < THREADS; i++)
			free(loss[i]);
		check_halves(models[k]);
		check_rates(models[k]);
		check_fit(models[k]);
		check_checkpoints(models[k]);
		check_export(models[k]);
		check_setup(models[k]);
		check_memory(models[k]);
	}
	return 0;
}
