// machine.c: reads machines.def as a table.
#include "plan.h"

const Machine machines[] = {
#define M(name, plain, arch, features, lanes, registers, threads, l1, l2, ...)                     \
	{name,    plain,      arch,       features,    lanes,          registers,                  \
	 threads, (l1) << 10, (l2) << 10, __VA_ARGS__, .choices = NULL},
#include "machines.def"
#undef M
};
const int machine_count = COUNT(machines);

const Machine *machine_named(const char *name)
{
	int i = FIND(name, machines);
	return i < 0 ? NULL : &machines[i];
}
