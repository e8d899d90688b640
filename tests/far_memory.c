// far_memory.c: leaves a program free memory in holes that are 3 GiB apart, as a library for
// LD_PRELOAD: objects that are loaded one by one are out of each other's reach.
#include <stddef.h>
#include <sys/mman.h>

enum { HOLES = 200, HOLE = 32 << 10 };

__attribute__((constructor)) static void take_memory(void)
{
	const size_t apart = (size_t)3 << 30;
	for (int k = 0; k < HOLES; k++) {
		char *at = mmap(NULL, apart, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		                -1, 0);
		if (at != MAP_FAILED)
			munmap(at + apart / 2, HOLE);
	}
}
