// memory.c: an allocation that fails ends the program with one message and status 3; main asks.
// Takes libc's allocator, which these functions stand in front of for all libraries of the process
// (jansson, libzip, LLVM), so that none of them has to notice and none aborts. Keeps: the message
// takes no memory; what is half written is removed.
#include "amos.h"
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

// The sanitizers have allocators of their own, which end the process themselves.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

// Of several threads the first ends the process.
static _Noreturn void end(size_t bytes)
{
	static atomic_flag ending = ATOMIC_FLAG_INIT;
	char text[4096];
	while (atomic_flag_test_and_set(&ending))
		pause();
	snprintf(text, sizeof text, "%.3000s: out of memory: cannot allocate %zu bytes\n", program,
	         bytes);
	amos_interrupt(text);
}

static void *there(void *block, size_t bytes)
{
	if (!block && bytes)
		end(bytes);
	return block;
}

void *malloc(size_t bytes)
{
	return there(__libc_malloc(bytes), bytes);
}

void *calloc(size_t count, size_t bytes)
{
	void *block = __libc_calloc(count, bytes);
	return there(block, bytes && count > SIZE_MAX / bytes ? SIZE_MAX : count * bytes);
}

void *realloc(void *block, size_t bytes)
{
	return there(__libc_realloc(block, bytes), bytes);
}

void *aligned_alloc(size_t align, size_t bytes)
{
	return there(__libc_memalign(align, bytes), bytes);
}

void *memalign(size_t align, size_t bytes)
{
	return there(__libc_memalign(align, bytes), bytes);
}

int posix_memalign(void **to, size_t align, size_t bytes)
{
	if (align % sizeof(void *) || align & (align - 1) || !align)
		return EINVAL;
	*to = there(__libc_memalign(align, bytes), bytes);
	return 0;
}

#endif
