// old_glibc.c: functions that later versions of glibc have anew, as the versions before have them:
// those of libm, of glibc 2.29, differ in errno alone, and fcntl64(), of 2.28, not at all. With
// them, libamosc loads where glibc is older. The linker gives them all calls (--wrap).
#include <stdarg.h>

#define OLD(name) __asm__(".symver old_" #name ", " #name "@GLIBC_2.2.5");
#define OLD_MATH(name, parameters, arguments)                                                      \
	OLD(name)                                                                                  \
	double old_##name parameters;                                                              \
	double __wrap_##name parameters;                                                           \
	double __wrap_##name parameters                                                            \
	{                                                                                          \
		return old_##name arguments;                                                       \
	}

OLD_MATH(exp, (double x), (x))
OLD_MATH(exp2, (double x), (x))
OLD_MATH(log, (double x), (x))
OLD_MATH(log2, (double x), (x))
OLD_MATH(pow, (double x, double y), (x, y))

OLD(fcntl)
int old_fcntl(int file, int command, ...);
int __wrap_fcntl64(int file, int command, ...);
int __wrap_fcntl64(int file, int command, ...)
{
	va_list rest;
	va_start(rest, command);
	void *argument = va_arg(rest, void *);
	va_end(rest);
	return old_fcntl(file, command, argument);
}
