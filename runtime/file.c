// file.c: files that appear under their name only when they are whole and on the disk.
// Takes a path. Gives a stream that writes aside. Keeps: what stands is old or new, never torn; an
// end by an interrupt leaves nothing beside it. A device or a pipe, which no file may replace, gets
// the whole at the end.
#include "rt.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char ending[] = ".aside"; // of a name to write under
static char *volatile being_written;   // aside, by this process

void amos_file_interrupted(void)
{
	if (being_written)
		unlink(being_written);
}

static void forget(struct amos_file *file)
{
	being_written = NULL;
	free(file->path);
	free(file->target);
	free(file->aside);
	*file = (struct amos_file){0};
}

// Each process has a name of its own to write aside under: two may write the same file.
static bool name_aside(struct amos_file *file)
{
	const char *folder = getenv("TMPDIR") ? getenv("TMPDIR") : P_tmpdir;
	int process = (int)getpid(),
	    n = file->device ? asprintf(&file->aside, "%s/amos.%d%s", folder, process, ending)
	                     : asprintf(&file->aside, "%s.%d%s", file->target, process, ending);
	if (n < 0)
		file->aside = NULL;
	return n >= 0;
}

int amos_file_open(struct amos_file *file, const char *path)
{
	struct stat about;
	bool there = !stat(path, &about);
	bool device = there && !S_ISREG(about.st_mode) && !S_ISDIR(about.st_mode);
	*file = (struct amos_file){.path = strdup(path), .device = device};
	// What a link leads to is written, not the link.
	file->target = there && !device ? realpath(path, NULL) : strdup(path);
	if (file->path && file->target && name_aside(file)) {
		being_written = file->aside;
		file->to = fopen(file->aside, "wb");
	}
	if (file->to)
		return AMOS_DONE;
	int status = amos_fail_errno("write", path);
	forget(file);
	return status;
}

void amos_file_drop(struct amos_file *file)
{
	if (file->to)
		fclose(file->to);
	unlink(file->aside);
	forget(file);
}

void amos_file_sweep(const char *folder)
{
	DIR *all = opendir(folder);
	for (struct dirent *one; all && (one = readdir(all));) {
		size_t n = strlen(one->d_name), m = strlen(ending);
		if (n > m && !strcmp(one->d_name + n - m, ending))
			unlinkat(dirfd(all), one->d_name, 0);
	}
	if (all)
		closedir(all);
}

// A rename is on the disk only when its folder is.
static bool sync_folder(const char *path)
{
	char copy[PATH_MAX];
	snprintf(copy, sizeof copy, "%s", path);
	int folder = open(dirname(copy), O_RDONLY | O_DIRECTORY);
	if (folder < 0)
		return false;
	// Some file systems cannot sync a folder and say so with EINVAL.
	bool synced = !fsync(folder) || errno == EINVAL;
	close(folder);
	return synced;
}

static bool copy_to_device(const struct amos_file *file)
{
	char block[1 << 16];
	size_t n = 1;
	FILE *from = fopen(file->aside, "rb"), *to = from ? fopen(file->target, "wb") : NULL;
	while (to && n) {
		n = fread(block, 1, sizeof block, from);
		if (fwrite(block, 1, n, to) < n)
			break;
	}
	bool good = to && !n && !ferror(from);
	if (to && fclose(to))
		good = false;
	if (from)
		fclose(from);
	return good && !unlink(file->aside);
}

// On the disk, complete and closed.
static bool finish(struct amos_file *file)
{
	bool written = !fflush(file->to) && !ferror(file->to) && !fsync(fileno(file->to));
	int cause = errno;
	bool closed = !fclose(file->to);
	file->to = NULL;
	if (!written)
		errno = cause;
	return written && closed;
}

int amos_file_keep(struct amos_file *file)
{
	bool kept = finish(file) && (file->device ? copy_to_device(file)
	                                          : !rename(file->aside, file->target) &&
	                                                sync_folder(file->target));
	int status = kept ? AMOS_DONE : amos_fail_errno("write", file->path);
	if (kept)
		forget(file);
	else
		amos_file_drop(file);
	return status;
}
