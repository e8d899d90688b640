// status.c: what goes wrong at run time, and random numbers.
// Takes libc. Gives amos_error(), amos_random(). Keeps: one text a thread.
#include "rt.h"
#include <errno.h>
#include <stdarg.h>
#include <string.h>

static _Thread_local char error_text[4096];

const struct amos_type amos_types[AMOS_TYPES] = {
#define T(name, ctype, bytes, cls, onnx) {#name, bytes, cls},
#include "types.def"
#undef T
};

const char *amos_error(void)
{
	return error_text;
}

int amos_fail(int status, const char *fmt, ...)
{
	va_list args;
	va_start(args, fmt);
	vsnprintf(error_text, sizeof error_text, fmt, args);
	va_end(args);
	return status;
}

int amos_fail_errno(const char *doing, const char *path)
{
	int cause = errno;
	bool named = cause == ENOENT || cause == EACCES || cause == ENOTDIR || cause == EISDIR ||
	             cause == EEXIST || cause == ENAMETOOLONG || cause == ELOOP || cause == EPERM;
	return amos_fail(named ? AMOS_INPUT : AMOS_MACHINE, "%s: cannot %s: %s",
	                 *path ? path : "a file of no name", doing, strerror(cause));
}

uint64_t amos_mix(uint64_t z)
{
	z += 0x9E3779B97F4A7C15;
	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
	z = (z ^ z >> 27) * 0x94D049BB133111EB;
	return z ^ z >> 31;
}

uint64_t amos_random(uint64_t seed, uint64_t a, uint64_t b)
{
	return amos_mix(amos_mix(amos_mix(seed) + a) + b);
}
