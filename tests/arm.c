// arm.c: which features of a CPU of Arm the runtime misses. Compiled for aarch64 and run on
// emulated CPUs: arm NEEDS prints what is missing of them.
#include "rt.h"

int main(int argc, char **argv)
{
	struct amos_model model = {.name = "model", .needs = argc > 1 ? argv[1] : ""};
	int status = amos_check_cpu(&model);
	printf("%s\n", status ? amos_error() : "runs");
	return 0;
}
