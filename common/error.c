// error.c: sets the error text of a thread and derives statuses from errno.
#include "common.h"
#include <errno.h>
#include <stdarg.h>
#include <string.h>

static _Thread_local char error_text[4096];

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

int amos_errno_status(void)
{
	static const int named[] = {ENOENT, EACCES,       ENOTDIR, EISDIR,
	                            EEXIST, ENAMETOOLONG, ELOOP,   EPERM};
	for (size_t k = 0; k < sizeof named / sizeof *named; k++)
		if (errno == named[k])
			return AMOS_INPUT;
	return AMOS_MACHINE;
}

int amos_fail_errno(const char *doing, const char *path)
{
	int status = amos_errno_status();
	return amos_fail(status, "%s: cannot %s: %s", *path ? path : "a file without a name", doing,
	                 strerror(errno));
}

int amos_no_memory(const char *where)
{
	return amos_fail(AMOS_MACHINE, "%s: out of memory", where);
}

int amos_all_read(FILE *file, const char *path)
{
	return feof(file) ? AMOS_DONE : amos_fail_errno("read", path);
}
