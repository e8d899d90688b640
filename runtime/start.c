// start.c: defines main() of a compiled trainer.
#include "runtime.h"

int main(int argc, char **argv)
{
	amos_memory_ends(argv[0]);
	amos_standard();
	amos_signals();
	return amos_end_output(amos_main(&amos_model, argc, argv));
}
