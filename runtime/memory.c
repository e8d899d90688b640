// memory.c: ends the program with one message and status 3 if an allocation fails.
// Replaces libc's allocator for all libraries of the process (jansson, LLVM), so none has
// to handle failure and none aborts. The message needs no memory; temporary files are removed.
#include "runtime.h"
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char *program = "";

void amos_memory_ends(const char *name)
{
	program = name;
}

// The sanitizers have their own allocators, which end the process themselves. With another libc
// than glibc only the minimal runtime is linked, which handles each failure.
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

// If several threads fail, the first one ends the process.
static _Noreturn void end(size_t bytes)
{
	static atomic_flag ending = ATOMIC_FLAG_INIT;
	char text[4096];
	while (atomic_flag_test_and_set(&ending))
		pause();
	snprintf(text, sizeof text, "%.3000s: out of memory: cannot allocate %zu %s\n", program,
	         bytes, PLURAL(bytes, "byte", "bytes"));
	amos_interrupt(text);
}

static void *checked(void *block, size_t bytes)
{
	if (!block && bytes)
		end(bytes);
	return block;
}

void *malloc(size_t bytes)
{
	return checked(__libc_malloc(bytes), bytes);
}

void *calloc(size_t count, size_t bytes)
{
	void *block = __libc_calloc(count, bytes);
	return checked(block, bytes && count > SIZE_MAX / bytes ? SIZE_MAX : count * bytes);
}

void *realloc(void *block, size_t bytes)
{
	return checked(__libc_realloc(block, bytes), bytes);
}

void *aligned_alloc(size_t align, size_t bytes)
{
	return checked(__libc_memalign(align, bytes), bytes);
}

void *memalign(size_t align, size_t bytes)
{
	return checked(__libc_memalign(align, bytes), bytes);
}

int posix_memalign(void **to, size_t align, size_t bytes)
{
	if (align % sizeof(void *) || align & (align - 1) || !align)
		return EINVAL;
	*to = checked(__libc_memalign(align, bytes), bytes);
	return 0;
}

#endif
