// status.c: what goes wrong at run time, files written aside, random numbers.
// Takes libc. Gives amos_error(), amos_signals(), amos_output(), struct amos_file, amos_random().
// Keeps: one text a thread.
#include "rt.h"
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdarg.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
	return amos_fail(named ? AMOS_INPUT : AMOS_MACHINE, "%s: cannot %s: %s", path, doing,
	                 strerror(cause));
}

int amos_file_open(struct amos_file *file, const char *path)
{
	*file = (struct amos_file){0};
	if (asprintf(&file->aside, "%s.aside", path) < 0) {
		file->aside = NULL;
		return amos_fail_errno("write", path);
	}
	file->path = strdup(path);
	file->to = file->path ? fopen(file->aside, "wb") : NULL;
	if (file->to)
		return AMOS_DONE;
	int status = amos_fail_errno("write", path);
	free(file->path);
	free(file->aside);
	return status;
}

void amos_file_drop(struct amos_file *file)
{
	if (file->to)
		fclose(file->to);
	unlink(file->aside);
	free(file->path);
	free(file->aside);
	*file = (struct amos_file){0};
}

// A rename is on the disk only when its folder is.
static int sync_folder(const char *path)
{
	char copy[PATH_MAX];
	snprintf(copy, sizeof copy, "%s", path);
	int folder = open(dirname(copy), O_RDONLY | O_DIRECTORY);
	if (folder < 0)
		return -1;
	// Some file systems cannot sync a folder and say so with EINVAL.
	int failed = fsync(folder) && errno != EINVAL;
	close(folder);
	return failed ? -1 : 0;
}

int amos_file_keep(struct amos_file *file)
{
	bool written = !fflush(file->to) && !ferror(file->to) && !fsync(fileno(file->to));
	int cause = errno;
	bool closed = !fclose(file->to);
	file->to = NULL;
	if (written)
		cause = errno;
	if (written && closed && !rename(file->aside, file->path) && !sync_folder(file->path)) {
		free(file->path);
		free(file->aside);
		*file = (struct amos_file){0};
		return AMOS_DONE;
	}
	errno = written ? errno : cause;
	int status = amos_fail_errno("write", file->path);
	amos_file_drop(file);
	return status;
}

// Nothing that stands is lost: files are written aside.
static void lost_file(int unused)
{
	(void)unused;
	static const char text[] = "a file that is being read, of the model or its data, was cut "
	                           "short: write it aside and "
	                           "rename it\n";
	ssize_t ignored = write(STDERR_FILENO, text, sizeof text - 1);
	(void)ignored;
	_exit(AMOS_INPUT);
}

static void interrupted(int unused)
{
	(void)unused;
	static const char text[] = "\ninterrupted\n";
	ssize_t ignored = write(STDERR_FILENO, text, sizeof text - 1);
	(void)ignored;
	_exit(AMOS_MACHINE);
}

void amos_signals(void)
{
	static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
	for (int i = 0; i < COUNT(ends); i++)
		if (signal(ends[i], interrupted) == SIG_IGN) // by nohup, or behind &
			signal(ends[i], SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	signal(SIGBUS, lost_file);
}

// A reader that has seen enough, as head has, is no failure.
static void end_output(int status, void *unused)
{
	(void)unused;
	if (status != AMOS_DONE || (!fflush(stdout) && !ferror(stdout)) || errno == EPIPE)
		return;
	fprintf(stderr, "%s: standard output: cannot write: %s\n", program_invocation_short_name,
	        strerror(errno));
	_exit(AMOS_MACHINE);
}

void amos_output(void)
{
	on_exit(end_output, NULL);
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
