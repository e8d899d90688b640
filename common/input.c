// input.c: opens input files.
// Each is recorded, so that no output replaces it. Files named by another file must be below its
// directory.
#include "common.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char standard_output[] = "/dev/stdout";

// ---- recorded files -------------------------------------------------------------------

static struct identity {
	dev_t device;
	ino_t number;
	char *path;  // as opened
	size_t next; // of the same bucket: 1 + index; 0: none
} * noted;
static size_t nnoted, room;
static size_t *bucket; // [room]: as `next`. Data may be a million files
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static size_t *bucket_of(dev_t device, ino_t number)
{
	return &bucket[(number ^ device << 1) * UINT64_C(0x9E3779B97F4A7C15) >> 20 & (room - 1)];
}

static void link_noted(size_t i)
{
	size_t *first = bucket_of(noted[i].device, noted[i].number);
	noted[i].next = *first;
	*first = i + 1;
}

static bool grow_noted(void)
{
	size_t more = room ? 2 * room : 16;
	size_t *buckets = calloc(more, sizeof *buckets);
	struct identity *at = buckets ? realloc(noted, more * sizeof *noted) : NULL;
	if (!at) {
		free(buckets);
		return false;
	}
	free(bucket);
	bucket = buckets;
	noted = at;
	room = more;
	for (size_t i = 0; i < nnoted; i++)
		link_noted(i);
	return true;
}

static bool add_noted(const struct stat *about, const char *path)
{
	if (nnoted == room && !grow_noted())
		return false;
	noted[nnoted] = (struct identity){about->st_dev, about->st_ino, strdup(path), 0};
	if (!noted[nnoted].path)
		return false;
	link_noted(nnoted++);
	return true;
}

static bool is_noted(const struct stat *about)
{
	size_t at = room ? *bucket_of(about->st_dev, about->st_ino) : 0;
	while (at &&
	       (noted[at - 1].device != about->st_dev || noted[at - 1].number != about->st_ino))
		at = noted[at - 1].next;
	return at > 0;
}

// Opens `at`, which leads to `path`.
static int open_noted(const char *at, const char *path, int flags)
{
	struct stat about;
	int file = open(at, O_RDONLY | O_CLOEXEC | flags);
	if (file < 0 || fstat(file, &about) || !S_ISREG(about.st_mode))
		return file;
	pthread_mutex_lock(&lock);
	bool recorded = is_noted(&about) || add_noted(&about, path);
	pthread_mutex_unlock(&lock);
	if (recorded)
		return file;
	close(file);
	errno = ENOMEM;
	return -1;
}

int amos_input(const char *path, int flags)
{
	return open_noted(path, path, flags);
}

const char *amos_input_path(size_t k)
{
	pthread_mutex_lock(&lock);
	const char *path = k < nnoted ? noted[k].path : NULL;
	pthread_mutex_unlock(&lock);
	return path;
}

FILE *amos_input_stream(const char *path)
{
	int file = amos_input(path, 0);
	FILE *stream = file < 0 ? NULL : fdopen(file, "rb");
	if (file >= 0 && !stream)
		close(file);
	return stream;
}

// True if `path` is that file, after following links.
static bool leads_to(const char *path, const struct stat *file)
{
	struct stat about;
	return !stat(path, &about) && about.st_dev == file->st_dev && about.st_ino == file->st_ino;
}

// True if the file is read. Standard input and the program itself are, too.
static bool is_read(const struct stat *about)
{
	pthread_mutex_lock(&lock);
	bool read = is_noted(about);
	pthread_mutex_unlock(&lock);
	return read || leads_to("/dev/stdin", about) || leads_to("/proc/self/exe", about);
}

// True if the file receives standard output or error, though `path` does not name that stream.
static bool is_stream(const char *path, const struct stat *about)
{
	bool meant = !strncmp(path, "/dev/", 5) || !strncmp(path, "/proc/", 6);
	return !meant && (leads_to("/dev/stdout", about) || leads_to("/dev/stderr", about));
}

const char *amos_output_name(const char *path)
{
	return strcmp(path, "-") ? path : standard_output;
}

bool amos_is_stream(const char *path)
{
	return !strcmp(path, standard_output);
}

int amos_output_check(const char *path)
{
	struct stat about;
	if (amos_is_stream(path) && isatty(STDOUT_FILENO))
		return amos_fail(AMOS_INPUT, "standard output is a terminal" AMOS_HELP
		                             "send it to a file or a program, or give -o a file");
	errno = *path ? 0 : ENOENT;
	if (*path && stat(path, &about))
		return AMOS_DONE;
	if (*path && S_ISDIR(about.st_mode))
		errno = EISDIR;
	if (errno)
		return amos_fail_errno("write", path);
	if (!S_ISREG(about.st_mode))
		return AMOS_DONE;
	if (is_stream(path, &about))
		return amos_fail(AMOS_INPUT,
		                 "%s: a standard stream of this command goes to that file" AMOS_HELP
		                 "give the output another name",
		                 path);
	if (!is_read(&about))
		return AMOS_DONE;
	return amos_fail(AMOS_INPUT,
	                 "%s: this command reads that file and would replace it" AMOS_HELP
	                 "give the output another name",
	                 path);
}

// ---- files named by another file ------------------------------------------------------

// Returns the path of an open file; NULL: see errno.
static char *path_of(int file)
{
	char link[64], path[PATH_MAX];
	snprintf(link, sizeof link, "/proc/self/fd/%d", file);
	ssize_t length = readlink(link, path, sizeof path);
	if (length >= PATH_MAX)
		errno = ENAMETOOLONG;
	return length < 0 || length >= PATH_MAX ? NULL : strndup(path, (size_t)length);
}

char *amos_input_folder(int file)
{
	char *path = path_of(file), *slash = path ? strrchr(path, '/') : NULL;
	if (slash)
		*slash = 0;
	return path;
}

static bool is_beneath(const char *path, const char *folder)
{
	size_t length = folder ? strlen(folder) : 0;
	bool root = length == 1;
	return length && !strncmp(path, folder, length) && (root || path[length] == '/');
}

// The check is on the file that was opened, which is then read: nobody can replace it in between.
// Until it is permitted, it is opened with O_PATH only: opening a device can have an effect.
int amos_input_beneath(const char *folder, const char *other, const char *name)
{
	char path[PATH_MAX], link[64];
	bool bare = *folder && folder[strlen(folder) - 1] != '/'; // without a slash
	if (snprintf(path, sizeof path, "%s%s%s", folder, bare ? "/" : "", name) >= PATH_MAX) {
		errno = ENAMETOOLONG;
		return -1;
	}
	int found = open(path, O_PATH | O_CLOEXEC);
	if (found < 0)
		return -1;
	char *at = path_of(found), *real = at ? realpath(*folder ? folder : ".", NULL) : NULL;
	int cause = at && real ? EXDEV : errno;
	bool may = at && (is_beneath(at, real) || is_beneath(at, other));
	free(at);
	free(real);
	snprintf(link, sizeof link, "/proc/self/fd/%d", found);
	int file = may ? open_noted(link, path, O_NONBLOCK) : -1;
	cause = may ? errno : cause;
	close(found);
	errno = cause;
	return file;
}
