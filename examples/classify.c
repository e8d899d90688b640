/* classify.c: trains a classifier on points that the program makes itself, saves it, and loads it.
 * The model has an input of 4 numbers and scores 3 classes; class c lies around points[c].
 */
#include "net.h"
#include <stdio.h>
#include <stdlib.h>

static const float points[3][4] = {{1, 0, 0, 1}, {0, 1, 0, -1}, {0, 0, 1, 0}};

static float noise(void)
{
	return (float)rand() / (float)RAND_MAX - 0.5f;
}

static void draw_batch(float *x, int64_t *labels, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		labels[i] = rand() % 3;
		for (int k = 0; k < 4; k++)
			x[4 * i + k] = points[labels[i]][k] + noise();
	}
}

static int report(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, amos_error());
	return EXIT_FAILURE;
}

int main(void)
{
	struct amos *trained, *loaded;
	double loss, before, after;
	if (amos_open(&net_model, NULL, &trained) || amos_open(&net_model, NULL, &loaded))
		return report("open");
	float *x = amos_values(trained, AMOS_INPUTS, net_input_x);
	int64_t *labels = amos_values(trained, AMOS_INPUTS, net_input_labels);
	int64_t n = amos_shape(trained, AMOS_INPUTS, net_input_x)[0];
	draw_batch(x, labels, n);
	if (amos_evaluate(trained, &before))
		return report("evaluate");
	for (int step = 0; step < 500; step++) {
		draw_batch(x, labels, n);
		if (amos_step(trained, &loss))
			return report("step");
	}
	if (amos_save(trained, "net.ckpt") || amos_load(loaded, "net.ckpt"))
		return report("save and load");
	x = amos_values(loaded, AMOS_INPUTS, net_input_x);
	labels = amos_values(loaded, AMOS_INPUTS, net_input_labels);
	draw_batch(x, labels, n);
	if (amos_evaluate(loaded, &after))
		return report("evaluate");
	printf("loss %.3f before, %.3f after %lld steps, accuracy %.2f\n", before, after,
	       (long long)amos_steps(loaded), amos_metric(loaded, "accuracy"));
	amos_close(trained);
	amos_close(loaded);
	return after < 0.5 * before ? EXIT_SUCCESS : EXIT_FAILURE;
}
