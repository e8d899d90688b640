// start.c: where a compiled trainer starts. Linked only into programs that have no main of their
// own.
#include "amos.h"

int main(int argc, char **argv)
{
	amos_signals(NULL);
	amos_output();
	return amos_main(&amos_model, argc, argv);
}
