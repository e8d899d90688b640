/* block.c: a program with the freestanding runtime, whose instance has memory of the program's. */
#include "bare.h"
#include <stdio.h>

static _Alignas(64) char memory[1 << 16];

int main(void)
{
	struct amos *m;
	double loss;
	if (amos_open_in(&bare_model, NULL, memory, sizeof memory, &m) || amos_step(m, &loss)) {
		fprintf(stderr, "%s\n", amos_error());
		return 1;
	}
	printf("bare: step %d, in a block of %d bytes\n", (int)amos_steps(m),
	       (int)amos_instance_bytes(&bare_model, NULL));
	return 0;
}
