// status.c: what goes wrong at run time, and random numbers.
// Takes libc. Gives amos_error(), amos_signals(), amos_output(), amos_random(). Keeps: one text a
// thread.
#include "rt.h"
#include <errno.h>
#include <stdarg.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static _Thread_local char error_text[4096];
static void (*ending)(void); // NULL, or what amos_signals() was given

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

static void end(int status, const char *text)
{
	amos_file_interrupted();
	if (ending)
		ending();
	ssize_t ignored = write(STDERR_FILENO, text, strlen(text));
	(void)ignored;
	_exit(status);
}

// Nothing that stands is lost: files are written aside.
static void lost_file(int unused)
{
	(void)unused;
	end(AMOS_INPUT, "a file that is being read, of the model or its data, was cut short: write "
	                "it aside and rename it\n");
}

void amos_interrupt(const char *text)
{
	end(AMOS_MACHINE, text);
}

static void interrupted(int unused)
{
	(void)unused;
	amos_interrupt("\ninterrupted\n");
}

void amos_signals(void (*drop)(void))
{
	static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
	for (int i = 0; i < COUNT(ends); i++)
		if (signal(ends[i], interrupted) == SIG_IGN) // by nohup, or behind &
			signal(ends[i], SIG_IGN);
	ending = drop;
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
