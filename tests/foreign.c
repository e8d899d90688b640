// foreign.c: trains the compiled model MODEL on one batch and prints the loss of every step:
// foreign STEPS [BYTES]: with so many more bytes of parameters. Linked with the core of the runtime
// alone, for any CPU.
#include "rt.h"
#include "foreign.h"
#include <stdio.h>
#include <stdlib.h>

extern const struct amos_model MODEL;

int main(int argc, char **argv)
{
	struct amos *m;
	struct amos_model large = *amos_best(&MODEL);
	large.params += argc > 2 ? atoll(argv[2]) : 0;
	int status = amos_open_slots(&large, 2, 0, NULL, NULL, &m);
	const struct amos_entry *train = amos_find_entry(&large, "train");
	int64_t loss = amos_find_output(train, "loss");
	if (!status)
		fill(m);
	for (int left = argc > 1 ? atoi(argv[1]) : 1; left > 0 && !status; left--) {
		status = amos_call(m, train, NULL, NULL);
		if (!status)
			printf("%.9g\n", amos_out_number(m, train, loss));
	}
	if (status)
		fprintf(stderr, "%s\n", amos_error());
	amos_close(m);
	return status;
}
