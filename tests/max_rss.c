// max_rss.c: limits a command's memory.
// Runs a command, discards its output, and fails if its resident memory ever exceeded the limit.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	pid_t child = fork();
	if (child == 0) {
		dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
		execvp(argv[2], argv + 2);
		_exit(127);
	}
	int status;
	struct rusage usage;
	if (child < 0 || wait4(child, &status, 0, &usage) < 0)
		return 3;
	double most = (double)usage.ru_maxrss / 1024;
	printf("%.0f MiB at most, %.2f s of processor time\n", most,
	       (double)usage.ru_utime.tv_sec + 1e-6 * (double)usage.ru_utime.tv_usec);
	return !WIFEXITED(status) || WEXITSTATUS(status) || most > atof(argv[1]);
}
