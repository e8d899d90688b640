// own_stderr.c: lets a shared library contain archives that are made for programs. Their code, such
// as that of libpng and libjpeg, expects stderr at a fixed distance, where a library cannot have
// that of libc. The linker gives them this one (--wrap).
#include <stdio.h>

extern FILE *__real_stderr;
__attribute__((visibility("hidden"))) FILE *__wrap_stderr;

__attribute__((constructor(101))) static void set_stderr(void)
{
	__wrap_stderr = __real_stderr;
}
