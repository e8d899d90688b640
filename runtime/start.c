// start.c: where a compiled trainer starts. Linked only into programs that have no main of their
// own.
#include "amos.h"
#include <signal.h>

int main(int argc, char **argv)
{
	signal(SIGXFSZ, SIG_IGN); // a file that may not grow is an error of its writer, told as one
	return amos_main(&amos_model, argc, argv);
}
