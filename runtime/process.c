// process.c: ends a program with a status on signals and on output that cannot be written.
// Invariant: temporary files are removed.
#include "rt.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void amos_standard(void)
{
	for (int file = STDIN_FILENO; file <= STDERR_FILENO; file++)
		if (fcntl(file, F_GETFD) < 0 &&
		    open("/dev/null", file == STDIN_FILENO ? O_WRONLY : O_RDONLY) != file)
			_exit(AMOS_MACHINE);
}

static _Noreturn void end(int status, const char *text)
{
	amos_file_drop_all();
	ssize_t ignored = write(STDERR_FILENO, text, strlen(text));
	(void)ignored;
	_exit(status);
}

// No finished file is lost, since files are written under temporary names.
static void lost_file(int unused)
{
	(void)unused;
	end(AMOS_INPUT, "a model or data file was truncated while in use: write a "
	                "new file and rename it instead\n");
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

void amos_signals(void)
{
	static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
	for (int i = 0; i < COUNT(ends); i++)
		if (signal(ends[i], interrupted) ==
		    SIG_IGN) // ignored by nohup, or in the background
			signal(ends[i], SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	signal(SIGBUS, lost_file);
}

// A reader that closes the pipe early, such as head, is not a failure.
int amos_end_output(int status)
{
	if (status != AMOS_DONE || (!fflush(stdout) && !ferror(stdout)) || errno == EPIPE)
		return status;
	fprintf(stderr, "%s: standard output: cannot write: %s\n", program_invocation_short_name,
	        strerror(errno));
	return AMOS_MACHINE;
}
