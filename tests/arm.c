// arm.c: prints which of the given CPU features the runtime misses on Arm: arm NEEDS.
// Compiled for Arm and RISC-V and run on emulated CPUs.
#include "rt.h"

int main(int argc, char **argv)
{
	struct amos_model model = {.name = "model", .needs = argc > 1 ? argv[1] : ""};
	int status = amos_check_cpu(&model);
	printf("%s\n", status ? amos_error() : "runs");
	return 0;
}
