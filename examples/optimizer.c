/* optimizer.c: updates the parameters itself, by gradient descent with momentum, instead of Amos.
 * The blocks of all parameters and of all gradients have the same layout. Between gradient and
 * update a program may also sum gradients over processes, or clip them.
 */
#include "net.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { STEPS = 300 };

int main(void)
{
	struct amos *m;
	int64_t bytes, i;
	double loss = 0, first = 0;
	if (amos_open(&net_model, NULL, &m))
		return fprintf(stderr, "%s\n", amos_error()), EXIT_FAILURE;
	float *x = amos_values(m, AMOS_INPUTS, net_input_x);
	int64_t *labels = amos_values(m, AMOS_INPUTS, net_input_labels);
	for (i = 0; i < amos_bytes(m, AMOS_INPUTS, net_input_x) / 4; i++)
		x[i] = sinf(0.7f * (float)i);
	for (i = 0; i < amos_shape(m, AMOS_INPUTS, net_input_labels)[0]; i++)
		labels[i] = i % 3;
	float *g = amos_block(m, AMOS_GRADIENTS, &bytes),
	      *w = amos_block(m, AMOS_PARAMETERS, &bytes);
	int64_t n = bytes / (int64_t)sizeof *w;
	float *momentum = calloc((size_t)n, sizeof *momentum);
	for (int step = 0; momentum && step < STEPS; step++) {
		if (amos_gradient(m, &loss))
			return fprintf(stderr, "%s\n", amos_error()), EXIT_FAILURE;
		first = step ? first : loss;
		for (i = 0; i < n; i++) {
			momentum[i] = 0.9f * momentum[i] + g[i];
			w[i] -= 0.05f * momentum[i];
		}
	}
	printf("loss %.3f at first, %.3f after %d steps\n", first, loss, STEPS);
	free(momentum);
	amos_close(m);
	return loss < 0.5 * first ? EXIT_SUCCESS : EXIT_FAILURE;
}
