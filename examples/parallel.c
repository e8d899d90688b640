/* parallel.c: trains on two processes: each computes the gradients of half of a batch, MPI averages
 * them, and each updates its own copy of the parameters. For comparison, each process also trains
 * alone on the whole batch; half_model and net_model are compiled from one file.
 */
#include "half.h"
#include "net.h"
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

static void need(int status)
{
	if (status)
		fprintf(stderr, "%s\n", amos_error()), MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Trains on samples from `from` on, and the other processes of `comm` on theirs. */
static float *train(struct amos *m, int64_t from, MPI_Comm comm, double *loss)
{
	int64_t i, bytes, n = amos_shape(m, AMOS_INPUTS, net_input_labels)[0];
	float *x = amos_values(m, AMOS_INPUTS, net_input_x);
	int64_t *labels = amos_values(m, AMOS_INPUTS, net_input_labels);
	float *g = amos_block(m, AMOS_GRADIENTS, &bytes);
	for (i = 0; i < 4 * n; i++)
		x[i] = sinf(0.7f * (float)(4 * from + i));
	for (i = 0; i < n; i++)
		labels[i] = (from + i) % 3;
	for (int step = 0; step < 300; step++) {
		need(amos_gradient(m, loss));
		MPI_Allreduce(MPI_IN_PLACE, g, (int)(bytes / 4), MPI_FLOAT, MPI_SUM, comm);
		for (i = 0; i < bytes / 4; i++)
			g[i] *= (float)n / 16; /* they are means over n samples */
		need(amos_update(m));
	}
	return amos_block(m, AMOS_PARAMETERS, &bytes);
}

int main(int argc, char **argv)
{
	struct amos *part, *whole;
	int rank;
	int64_t bytes;
	double loss, apart = 0;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	need(amos_open(&half_model, NULL, &part) || amos_open(&net_model, NULL, &whole));
	float *p = train(part, 8 * rank, MPI_COMM_WORLD, &loss);
	float *alone = train(whole, 0, MPI_COMM_SELF, &loss);
	float *first = amos_block(part, AMOS_GRADIENTS, &bytes); /* now the first's parameters */
	MPI_Bcast(memcpy(first, p, (size_t)bytes), (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
	for (int64_t i = 0; i < bytes / 4; i++)
		apart = fmax(apart, fabsf(alone[i] - p[i]));
	int equal = !memcmp(first, p, (size_t)bytes);
	printf("process %d: loss %.3f, parameters %s process 0's, %.0e from training alone\n", rank,
	       loss, equal ? "equal" : "differ from", apart);
	MPI_Finalize();
	return !(equal && apart < 1e-5 && loss < 0.5);
}
