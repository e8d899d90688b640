// main.c: the program amosc. If libamosc has all of the command (AMOSC_SELF_CONTAINED), this is the
// rest.

void amos_memory_ends(const char *program); // runtime.h
int amosc_command(int argc, char **argv);   // tool.h

int main(int argc, char **argv)
{
	amos_memory_ends("amosc");
	return amosc_command(argc, argv);
}
