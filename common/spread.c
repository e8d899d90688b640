// spread.c: gives threads different processors when they start.
// A thread starts where its creator runs. Linux moves one of them when it balances the load, which
// takes some kernels a tenth of a second: longer than a model compiles, or than its first step.
#include "common.h"
#include <sched.h>

int amos_processor(void)
{
	return sched_getcpu();
}

void amos_spread(int home, int number)
{
	cpu_set_t all, one;
	if (home < 0 || sched_getaffinity(0, sizeof all, &all) || CPU_COUNT(&all) < 2)
		return;
	for (number %= CPU_COUNT(&all); number > 0; number -= CPU_ISSET(home, &all) ? 1 : 0)
		home = (home + 1) % CPU_SETSIZE;
	CPU_ZERO(&one);
	CPU_SET(home, &one);
	sched_setaffinity(0, sizeof one, &one);
}
