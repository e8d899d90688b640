// fake_host.c: makes a program see another host (by LD_PRELOAD): 64 cores and larger caches.
#include <dlfcn.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

enum { CORES = 64 };

long sysconf(int name)
{
	long (*next)(int) = (long (*)(int))dlsym(RTLD_NEXT, "sysconf");
	switch (name) {
	case _SC_NPROCESSORS_ONLN:
	case _SC_NPROCESSORS_CONF:
		return CORES;
	case _SC_LEVEL1_DCACHE_SIZE:
		return 48 << 10;
	case _SC_LEVEL2_CACHE_SIZE:
		return 4 << 20;
	case _SC_LEVEL3_CACHE_SIZE:
		return 256 << 20;
	default:
		return next(name);
	}
}

int sched_getaffinity(pid_t process, size_t size, cpu_set_t *set)
{
	(void)process;
	memset(set, 0, size);
	for (int i = 0; i < CORES; i++)
		CPU_SET_S(i, size, set);
	return 0;
}
