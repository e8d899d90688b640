// temp_file.c: writes a file under a random name, syncs it and renames it when complete.
// The temporary file is created anew next to its target, so no existing link or file is opened.
// Readers see the old file or the new one. A temporary file is locked while it is written; unlocked
// ones were left by killed processes and can be removed. Half of the name's digits are a hash of
// the target's name, so that the next writer of the same target removes them.
#include "common.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

// ---- names of temporary files ---------------------------------------------------------

static const char first[] = "amos.", last[] = ".aside"; // before and after the digits
enum { DIGITS = 16, NAME = sizeof first + DIGITS + sizeof last - 1 };

// A temporary file's name. Records are reused and never freed, since a signal handler may be
// reading them.
struct temporary {
	struct temporary *next;
	atomic_bool used;
	char path[PATH_MAX];
};
static _Atomic(struct temporary *) all;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static atomic_int writer; // a process

void amos_file_writer(int process)
{
	writer = process;
}

void amos_file_drop_all(void)
{
	int cause = errno;
	pid_t process = writer;
	if (process > 0 && !kill(-process, SIGTERM))
		waitpid(process, NULL, 0);
	for (struct temporary *t = all; t; t = t->next)
		if (t->used)
			unlink(t->path);
	errno = cause;
}

static struct temporary *unused(void)
{
	struct temporary *t = all;
	while (t && t->used)
		t = t->next;
	if (t || !(t = calloc(1, sizeof *t)))
		return t;
	t->next = all;
	all = t;
	return t;
}

static void forget(const char *path)
{
	for (struct temporary *t = all; t; t = t->next)
		if (t->path == path)
			t->used = 0;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

// Writes what temporary names of the target begin with, half of the digits included.
static void begin_name(char *to, size_t room, const char *target)
{
	uint32_t hash = 2166136261u; // FNV-1a
	for (const char *at = base_name(target); *at; at++)
		hash = (hash ^ (uint8_t)*at) * 16777619u;
	snprintf(to, room, "%s%08x", first, (unsigned)hash);
}

// Writes a new name for `target` in `folder`, which ends with a slash or is empty, to the PATH_MAX
// bytes at `path`.
static bool invent(char *path, const char *folder, int length, const char *target)
{
	char begin[NAME];
	uint32_t random;
	if (getrandom(&random, sizeof random, 0) != sizeof random)
		return false;
	begin_name(begin, sizeof begin, target);
	int n =
	    snprintf(path, PATH_MAX, "%.*s%s%08x%s", length, folder, begin, (unsigned)random, last);
	errno = ENAMETOOLONG;
	return n < PATH_MAX;
}

// Locks a file. False: a process that took it for one that is left removes it. File systems without
// locks are not locked.
static bool lock_file(int file)
{
	struct stat about;
	bool locked = !flock(file, LOCK_EX | LOCK_NB) || errno != EWOULDBLOCK;
	return locked && (fstat(file, &about) || about.st_nlink);
}

// Creates a new file and locks it; NULL: see errno. Signals are blocked, so that an interrupt finds
// every file recorded.
static struct temporary *create(const char *folder, int length, const char *target, mode_t mode,
                                int *file)
{
	sigset_t every, before;
	sigfillset(&every);
	pthread_sigmask(SIG_SETMASK, &every, &before);
	pthread_mutex_lock(&lock);
	struct temporary *t = unused();
	*file = -1;
	while (t && *file < 0 && invent(t->path, folder, length, target)) {
		*file = open(t->path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
		if (*file < 0 && errno != EEXIST)
			break;
		if (*file >= 0 && !lock_file(*file)) {
			unlink(t->path);
			close(*file);
			*file = -1;
		}
	}
	int cause = errno;
	if (*file >= 0)
		t->used = 1;
	pthread_mutex_unlock(&lock);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	errno = cause;
	return *file < 0 ? NULL : t;
}

// ---- files left by killed processes ---------------------------------------------------

bool amos_file_temporary(const char *name)
{
	size_t digits = 0;
	if (strlen(name) != NAME - 1 || strncmp(name, first, sizeof first - 1))
		return false;
	for (name += sizeof first - 1; isxdigit((unsigned char)*name); name++)
		digits++;
	return digits == DIGITS && !strcmp(name, last);
}

// True if a process writes the file. Otherwise `removes` it if it is one of this user.
static bool is_written(int folder, const char *name, bool removes)
{
	int file = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat about;
	if (file < 0)
		return false;
	bool own = !fstat(file, &about) && S_ISREG(about.st_mode) && about.st_uid == geteuid();
	bool locked = own && !flock(file, LOCK_EX | LOCK_NB);
	bool written = own && !locked && errno == EWOULDBLOCK;
	if (locked && removes) // before the lock is released: see lock_file()
		unlinkat(folder, name, 0);
	close(file);
	return written;
}

void amos_file_clean(const char *folder)
{
	DIR *names = opendir(folder);
	for (struct dirent *one; names && (one = readdir(names));)
		if (amos_file_temporary(one->d_name))
			is_written(dirfd(names), one->d_name, true);
	if (names)
		closedir(names);
}

// Removes the temporary files of one target, with those that a linker named after them, unless a
// process writes one: its linker's files are not locked.
static void clean_target(const char *at, int length, const char *target)
{
	char folder[PATH_MAX], begin[NAME];
	begin_name(begin, sizeof begin, target);
	snprintf(folder, sizeof folder, "%.*s", length ? length : 1, length ? at : ".");
	DIR *names = opendir(folder);
	bool written = false;
	for (int removes = 0; names && removes < 2 && !written; removes++) {
		rewinddir(names);
		for (struct dirent *one; (one = readdir(names));)
			if (!strncmp(one->d_name, begin, strlen(begin)) &&
			    strstr(one->d_name, last))
				written |= is_written(dirfd(names), one->d_name, removes);
	}
	if (names)
		closedir(names);
}

// ---- one file -------------------------------------------------------------------------

static int folder_length(const char *path)
{
	return (int)(base_name(path) - path);
}

static void forget_file(struct amos_temp_file *file)
{
	if (file->temporary)
		forget(file->temporary);
	free(file->path);
	free(file->target);
	free(file->buffer);
	*file = (struct amos_temp_file){0};
}

static const char *scratch_folder(void)
{
	const char *folder = getenv("TMPDIR");
	return folder && *folder ? folder : "/tmp";
}

int amos_temp_folder(char *to, size_t room, const char *name)
{
	snprintf(to, room, "%s/%s-XXXXXX", scratch_folder(), name);
	return mkdtemp(to) ? AMOS_DONE : amos_fail_errno("create", to);
}

// Gives the stream a buffer of its own, as that of libc has 4096 bytes: weights are written in
// pieces that are smaller than a tensor.
static void set_buffer(struct amos_temp_file *file)
{
	enum { BYTES = 1 << 18 };
	file->buffer = malloc(BYTES);
	if (file->buffer)
		setvbuf(file->to, file->buffer, _IOFBF, BYTES);
}

// Opens the temporary file: private for a device, else with the permissions of the file it
// replaces.
static bool open_temporary(struct amos_temp_file *file, const struct stat *replaced)
{
	char scratch[PATH_MAX];
	snprintf(scratch, sizeof scratch, "%s/", scratch_folder());
	mode_t mode = file->device || file->cached ? 0600
	              : replaced                   ? replaced->st_mode & 0777
	                                           : 0666;
	const char *near = file->device ? scratch : file->target;
	int fd, length = folder_length(near);
	if (!file->cached) // whose directory is cleaned by itself
		clean_target(near, length, file->target);
	struct temporary *t = create(near, length, file->target, mode, &fd);
	if (!t)
		return false;
	file->temporary = t->path;
	if (replaced) // the umask applies to new files only
		fchmod(fd, mode);
	file->to = fdopen(fd, "wb");
	if (file->to)
		set_buffer(file);
	else
		close(fd);
	return file->to;
}

int amos_file_begin(struct amos_temp_file *file, const char *path, enum amos_name name)
{
	struct stat about;
	bool named = name == AMOS_NAMED, exists = named && !stat(path, &about);
	bool regular = exists && S_ISREG(about.st_mode);
	bool device =
	    named && (amos_is_stream(path) || (exists && !regular && !S_ISDIR(about.st_mode)));
	*file = (struct amos_temp_file){.path = strdup(path),
	                                .device = device,
	                                .fresh = name == AMOS_FRESH,
	                                .cached = name == AMOS_CACHED};
	file->target = exists && !device ? realpath(path, NULL) : strdup(path);
	if (file->path && file->target && open_temporary(file, regular && !device ? &about : NULL))
		return AMOS_DONE;
	int status = amos_fail_errno("write", path);
	amos_file_drop(file);
	return status;
}

int amos_file_open(struct amos_temp_file *file, const char *path)
{
	return amos_file_begin(file, path, AMOS_NAMED);
}

void amos_file_drop(struct amos_temp_file *file)
{
	if (file->to)
		fclose(file->to);
	if (file->temporary)
		unlink(file->temporary);
	if (file->temporary && !file->cached && !file->device)
		clean_target(file->target, folder_length(file->target), file->target);
	forget_file(file);
}

bool amos_file_sync(int folder)
{
	// Some file systems cannot sync a directory and fail with EINVAL.
	return !fsync(folder) || errno == EINVAL;
}

bool amos_file_sync_around(const char *path)
{
	char name[PATH_MAX];
	int length = folder_length(path);
	snprintf(name, sizeof name, "%.*s", length ? length : 1, length ? path : ".");
	int folder = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (folder < 0)
		return false;
	bool synced = amos_file_sync(folder);
	close(folder);
	return synced;
}

bool amos_file_reopen(struct amos_temp_file *file)
{
	file->to = freopen(file->temporary, "rb", file->to);
	return file->to && lock_file(fileno(file->to));
}

FILE *amos_file_edit(const char *path, const char *mode)
{
	int flags = *mode == 'r' ? O_RDWR : O_WRONLY | O_CREAT | O_TRUNC;
	int fd = open(path, flags | O_NOFOLLOW | O_CLOEXEC, 0666);
	FILE *file = fd < 0 ? NULL : fdopen(fd, mode);
	if (fd >= 0 && !file)
		close(fd);
	return file;
}

bool amos_file_link(const char *from, const char *to)
{
	pthread_mutex_lock(&lock);
	struct temporary *t = unused();
	bool named = t && invent(t->path, to, folder_length(to), to);
	if (named)
		t->used = 1;
	pthread_mutex_unlock(&lock);
	if (!named)
		return false;
	bool linked = !link(from, t->path) && !rename(t->path, to) && amos_file_sync_around(to);
	unlink(t->path); // rename() keeps it if both are the same file already
	forget(t->path);
	return linked;
}

static bool copy_to_device(const struct amos_temp_file *file)
{
	char block[1 << 16];
	size_t n = 1;
	// Standard output keeps its position: it may be a file to which others have written.
	int device = amos_is_stream(file->target)
	                 ? fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0)
	                 : open(file->target, O_WRONLY | O_CLOEXEC | O_NOCTTY);
	FILE *from = fopen(file->temporary, "rb"), *to = device < 0 ? NULL : fdopen(device, "wb");
	while (from && to && n) {
		n = fread(block, 1, sizeof block, from);
		if (fwrite(block, 1, n, to) < n)
			break;
	}
	bool good = from && to && !n && !ferror(from);
	if (to && fclose(to))
		good = false;
	if (from)
		fclose(from);
	return good && !unlink(file->temporary);
}

static bool move(const struct amos_temp_file *file)
{
	enum { NOREPLACE = 1 }; // renameat2(2); not every libc has a function for it
	int flags = file->fresh ? NOREPLACE : 0;
	return (!syscall(SYS_renameat2, AT_FDCWD, file->temporary, AT_FDCWD, file->target, flags) ||
	        // The file system does not support the flag.
	        (errno == EINVAL && !rename(file->temporary, file->target))) &&
	       (file->cached || amos_file_sync_around(file->target));
}

// Writes, syncs and closes the file.
static bool finish(struct amos_temp_file *file)
{
	bool written =
	    !fflush(file->to) && !ferror(file->to) && (file->cached || !fsync(fileno(file->to)));
	int cause = errno;
	bool closed = !fclose(file->to);
	file->to = NULL;
	if (!written)
		errno = cause;
	return written && closed;
}

int amos_file_keep(struct amos_temp_file *file)
{
	bool kept = finish(file) && (file->device ? copy_to_device(file) : move(file));
	int status = kept ? AMOS_DONE : amos_fail_errno("write", file->path);
	if (kept)
		forget_file(file);
	else
		amos_file_drop(file);
	return status;
}
