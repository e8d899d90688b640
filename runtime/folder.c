// folder.c: creates or opens the run directory and locks it.
// Only files of a run are removed, and only with --overwrite.
// Invariant: command.json is written first and stays, so that the directory of a run is known as
// one.
#include "rt.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

// True for files of a run that a new run does not overwrite itself.
static bool is_of_run(const char *name)
{
	const char *dot = strrchr(name, '.');
	return !strcmp(name, "last.ckpt") || !strcmp(name, "best.ckpt") ||
	       !strcmp(name, "log.jsonl") || !strncmp(name, AMOS_EVENTS, strlen(AMOS_EVENTS)) ||
	       (dot > name && !strcmp(dot, ".vocab"));
}

// Returns the next name in a directory; NULL at its end (errno is 0) or on error (errno).
static const char *next_name(DIR *all)
{
	errno = 0;
	struct dirent *one = readdir(all);
	return one ? one->d_name : NULL;
}

int amos_folder_free(const char *dir, bool overwrite)
{
	struct stat about;
	if (lstat(dir, &about))
		return AMOS_DONE;
	DIR *all = opendir(dir);
	bool blank = all, run; // anything but a directory is not blank
	for (const char *name; blank && (name = next_name(all));)
		blank = !strcmp(name, ".") || !strcmp(name, "..") || amos_file_temporary(name);
	bool failed = (!all || blank) && errno && amos_errno_status() == AMOS_MACHINE;
	int status = failed ? amos_fail_errno("read", dir) : AMOS_DONE;
	if (all)
		closedir(all);
	if (status || blank)
		return status;
	status = amos_command_found(dir, &run);
	if (status || (overwrite && run))
		return status;
	if (!run)
		return amos_fail(AMOS_INPUT,
		                 "%s: not a run directory, and not empty" HELP
		                 "give a new directory with -o DIR",
		                 dir);
	return amos_fail(AMOS_INPUT,
	                 "%s: the directory contains a run" HELP
	                 "--resume %s continues it, --overwrite replaces it, -o DIR "
	                 "starts another",
	                 dir, dir);
}

int amos_folder_check(const char *dir)
{
	struct stat about;
	DIR *all = opendir(dir);
	int status = all ? AMOS_DONE : amos_fail_errno("read", dir);
	for (const char *name; !status && all && (name = next_name(all));)
		if (is_of_run(name) && !fstatat(dirfd(all), name, &about, 0) &&
		    !S_ISREG(about.st_mode))
			status = amos_fail(AMOS_INPUT, "%s/%s: not a regular file", dir, name);
	if (all)
		closedir(all);
	return status;
}

// Removes the old run's files and syncs, so that none of them can reappear in the new run.
static int remove_run(const char *dir, int folder)
{
	DIR *all = opendir(dir);
	bool good = all;
	for (const char *name; good && (name = next_name(all));)
		good = !is_of_run(name) || !unlinkat(folder, name, 0);
	good = good && !errno;
	if (all)
		closedir(all);
	good = good && amos_file_sync(folder);
	return good ? AMOS_DONE : amos_fail_errno("replace the run", dir);
}

int amos_folder_open(const char *dir, const struct amos_options *o, int *folder)
{
	*folder = -1;
	bool made = !o->resume && !mkdir(dir, 0777);
	if (!o->resume && !made && errno != EEXIST)
		return amos_fail_errno("make the run directory", dir);
	*folder = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (*folder < 0)
		return amos_fail_errno("open the run directory", dir);
	// One run at a time. File systems without locks are not locked.
	if (flock(*folder, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
		return amos_fail(AMOS_INPUT,
		                 "%s: another run is using this directory" HELP
		                 "wait for it to end, or give another directory with -o",
		                 dir);
	if (made && !amos_file_sync_around(dir))
		return amos_fail_errno("make the run directory", dir);
	int status = o->resume ? amos_folder_check(dir) : amos_folder_free(dir, o->overwrite);
	if (!status && !o->resume && !made)
		status = remove_run(dir, *folder);
	if (!status)
		amos_file_clean(dir);
	return status;
}
