/* trainer.c: a program that only knows the installed tree.
 * It trains a step of one model, and has another. */
#include "net.h"
#include "other.h"
#include <stdio.h>

static int train(const char *name, const struct amos_model *model)
{
	struct amos *m;
	double loss;
	if (AMOS_VERSION_NUMBER < 100 || amos_open(model, NULL, &m) || amos_step(m, &loss)) {
		fprintf(stderr, "%s\n", amos_error());
		return 1;
	}
	printf("%s: %d parameters, step %d, amos " AMOS_VERSION "\n", name,
	       (int)amos_count(m, AMOS_PARAMETERS), (int)amos_steps(m));
	amos_close(m);
	return 0;
}

int main(void)
{
	return train("net", &net_model) || train("second", &second_model);
}
