// machine.c: reads machines.def as a table.
#include "plan.h"
#include <string.h>

const Machine machines[] = {
#define M(name, arch, features, lanes, registers, threads, l1, l2, ...)                            \
	{name, arch, features, lanes, registers, threads, (l1) << 10, (l2) << 10, __VA_ARGS__},
#include "machines.def"
#undef M
};
const int machine_count = COUNT(machines);

const Machine *machine_named(const char *name)
{
	for (int i = 0; i < machine_count; i++)
		if (!strcmp(machines[i].name, name))
			return &machines[i];
	return NULL;
}
