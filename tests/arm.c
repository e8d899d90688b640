// arm.c: prints which of the given CPU features the runtime misses on Arm: arm NEEDS; or which of
// several variants it takes, by number: arm NEEDS NEEDS...
// Compiled for Arm and RISC-V and run on emulated CPUs.
#include "rt.h"

int main(int argc, char **argv)
{
	struct amos_model model[8] = {{.name = "model", .needs = argc > 1 ? argv[1] : ""}};
	for (int i = 2; i < argc && i <= 8; i++) {
		model[i - 1].needs = argv[i];
		model[i - 2].better = &model[i - 1];
	}
	int status = amos_check_cpu(model);
	if (argc > 2)
		printf("%d\n", (int)(amos_best(model) - model));
	else
		printf("%s\n", status ? amos_error() : "runs");
	return 0;
}
