// power_record.c: records what a program does to the files of a directory, by LD_PRELOAD.
// Before and after every call that orders writes to disk, it scans $POWER_WATCH and appends to
// $POWER_LOG/log:
//   B | A            before such a call, or after it
//   D INODE PATH     each directory found,
//   F INODE HASH PATH  and each file, whose content is stored as $POWER_LOG/HASH
//   S INODE          that file or directory has been synced
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local int looking; // true during the recorder's own calls

static uint64_t hash_of(const char *at, size_t count)
{
	uint64_t hash = 0xcbf29ce484222325;
	for (size_t i = 0; i < count; i++)
		hash = (hash ^ (unsigned char)at[i]) * 0x100000001b3;
	return hash;
}

// Stores the content of a file; returns its hash.
static uint64_t keep(const char *path, const struct stat *about)
{
	char name[4096], *bytes = malloc((size_t)about->st_size + 1);
	int from = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t count = from < 0 ? 0 : read(from, bytes, (size_t)about->st_size);
	uint64_t hash = hash_of(bytes, count < 0 ? 0 : (size_t)count);
	if (from >= 0)
		close(from);
	snprintf(name, sizeof name, "%s/%016llx", getenv("POWER_LOG"), (unsigned long long)hash);
	int to = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (to >= 0) {
		if (write(to, bytes, (size_t)count) < count)
			abort();
		close(to);
	}
	free(bytes);
	return hash;
}

static void look_at(FILE *log, const char *folder, size_t root)
{
	char path[4096];
	struct stat about;
	DIR *all = opendir(folder);
	for (struct dirent *e; all && (e = readdir(all));) {
		snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") || lstat(path, &about))
			continue;
		unsigned long long inode = about.st_ino;
		if (S_ISDIR(about.st_mode)) {
			fprintf(log, "D %llu %s\n", inode, path + root);
			look_at(log, path, root);
		} else {
			fprintf(log, "F %llu %016llx %s\n", inode,
			        (unsigned long long)keep(path, &about), path + root);
		}
	}
	if (all)
		closedir(all);
}

static void record(char when, int synced)
{
	const char *watch = getenv("POWER_WATCH");
	char path[4096];
	struct stat about;
	if (looking || !watch)
		return;
	looking = 1;
	pthread_mutex_lock(&one);
	snprintf(path, sizeof path, "%s/log", getenv("POWER_LOG"));
	FILE *log = fopen(path, "ae");
	if (!log)
		abort();
	if (stat(watch, &about))
		abort();
	fprintf(log, "%c\nD %llu .\n", when, (unsigned long long)about.st_ino);
	look_at(log, watch, strlen(watch) + 1);
	if (synced >= 0 && !fstat(synced, &about))
		fprintf(log, "S %llu\n", (unsigned long long)about.st_ino);
	fclose(log);
	pthread_mutex_unlock(&one);
	looking = 0;
}

// Makes the call between two scans.
#define BETWEEN(name, synced, ...)                                                                 \
	{                                                                                          \
		record('B', -1);                                                                   \
		int status = NEXT(name)(__VA_ARGS__);                                              \
		record('A', synced);                                                               \
		return status;                                                                     \
	}

int fsync(int file) BETWEEN(fsync, file, file) int fdatasync(int file)
    BETWEEN(fdatasync, file, file) int ftruncate(int file, off_t size)
        BETWEEN(ftruncate, -1, file, size) int mkdir(const char *path, mode_t mode)
            BETWEEN(mkdir, -1, path, mode) int rename(const char *from, const char *to) BETWEEN(
                rename, -1, from, to) int renameat(int a, const char *from, int b, const char *to)
                BETWEEN(renameat, -1, a, from, b, to) int renameat2(int a, const char *from, int b,
                                                                    const char *to, unsigned how)
                    BETWEEN(renameat2, -1, a, from, b, to, how) int link(const char *from,
                                                                         const char *to)
                        BETWEEN(link, -1, from, to) int linkat(int a, const char *from, int b,
                                                               const char *to, int how)
                            BETWEEN(linkat, -1, a, from, b, to, how) int unlink(const char *path)
                                BETWEEN(unlink, -1, path) int unlinkat(int at, const char *path,
                                                                       int how)
                                    BETWEEN(unlinkat, -1, at, path, how)

                                        static __attribute__((destructor)) void end(void)
{
	record('B', -1);
}
