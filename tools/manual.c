// manual.c: at build time, writes the manual page of a verb to standard output.
// Takes verbs.def. usage: manual [VERB]
#include "tool.h"

int main(int argc, char **argv)
{
	const Verb *verb = argc == 2 ? verb_named(argv[1]) : NULL;
	if (argc == 2 && !verb)
		return STATUS_USAGE;
	print_manual(stdout, verb);
	return fflush(stdout) ? STATUS_MACHINE : STATUS_DONE;
}
