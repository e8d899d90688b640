// cache.c: checks the cache of compiled programs: hits, misses, damage, eviction, processes at
// once, and that results have the same bits with and without it. usage: cache MODEL
#include "amosc.h"
#include "expect.h"
#include "files.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OUTPUTS = 6, HEAD = 40, PARTS = 24, MEBI = 1 << 20 };
// HEAD: bytes of an entry before the sizes of its parts; PARTS: where their number is

static const char *model, *folder;
static float right[OUTPUTS]; // what the model computes without a cache
static int bound = 2;        // batch size

static void look_for_hit(void *hit, const char *text)
{
	*(bool *)hit |= strstr(text, "the cache has the compiled program") != NULL;
}

// Compiles the model with a cache and runs it. Returns whether the cache had it.
static bool had(const char *cache, float *outputs)
{
	struct amosc *s;
	struct amos *open = NULL;
	bool hit = false;
	char bind[32];
	snprintf(bind, sizeof bind, "batch=%d", bound);
	expect(!amosc_open(model, AMOSC_RUN, &s) && !amosc_option(s, "bind", bind) &&
	           !amosc_option(s, "cache", cache) && !amosc_option(s, "verbose", NULL),
	       "a session");
	amosc_listen(s, look_for_hit, &hit);
	if (amosc_compile(s, &open, NULL))
		fprintf(stderr, "cache: %s\n", amos_error());
	expect(open, "it compiles");
	if (open) {
		const struct amos_entry *run = amos_find_entry(open->model, "run");
		float *x = amos_slot_bytes(open, amos_find_slot(open->model, "x"));
		for (int i = 0; i < 4 * bound; i++)
			x[i] = (float)i - 3;
		expect(!amos_call(open, run, NULL, NULL), "it runs");
		memcpy(outputs, amos_out_bytes(open, run, 0), OUTPUTS * sizeof *outputs);
	}
	amosc_close(s);
	return hit;
}

// True if the cache had the program or not, as said, and the results are right.
static bool gives(const char *cache, bool hit)
{
	float outputs[OUTPUTS] = {0};
	return had(cache, outputs) == hit && !memcmp(outputs, right, sizeof right);
}

// Returns the number of files in the directory that are not hidden, and the path of one.
static int entries(const char *path, char *one)
{
	int count = 0;
	DIR *names = opendir(path);
	for (struct dirent *each; names && (each = readdir(names));)
		if (*each->d_name != '.') {
			snprintf(one, 4096, "%s/%s", path, each->d_name);
			count++;
		}
	if (names)
		closedir(names);
	return count;
}

static const char *inside(Arena *arena, const char *name)
{
	return format(arena, "%s/%s", folder, name);
}

// ---- damage ---------------------------------------------------------------------------

// An entry with other bytes is a miss, and is replaced by the right one.
static void replaced(const char *cache, const char *path, const char *bytes, size_t count,
                     const char *what)
{
	Arena *arena = arena_new();
	size_t size, found;
	char *whole = read_file(arena, path, &size);
	write_file(path, bytes, count);
	expect(gives(cache, false), what);
	expect(!memcmp(read_file(arena, path, &found), whole, size) && found == size, what);
	arena_free(arena);
}

static void damage(Arena *arena, const char *cache, const char *path)
{
	size_t size;
	char *bytes = read_file(arena, path, &size);
	for (size_t at = 0; at < size; at += at < HEAD ? 3 : size / 40) {
		bytes[at] ^= 16;
		replaced(cache, path, bytes, size, "one bit is wrong");
		bytes[at] ^= 16;
	}
	replaced(cache, path, bytes, 0, "an empty file");
	replaced(cache, path, bytes, HEAD - 1, "a part of the head");
	replaced(cache, path, bytes, size / 2, "half of an entry");
	replaced(cache, path, bytes, size - 1, "all but the last byte");
	char *longer = take_copy(arena, bytes, size + 1);
	replaced(cache, path, longer, size + 1, "a byte more");
	// the right checksum over another key: of a program whose hash is the same
	uint64_t parts, sum;
	memcpy(&parts, bytes + PARTS, sizeof parts);
	bytes[HEAD + parts * sizeof(uint64_t)] ^= 1; // the first of the key
	sum = hash_bytes(bytes + 16, size - 16, 0);
	memcpy(bytes + 8, &sum, sizeof sum);
	replaced(cache, path, bytes, size, "another program's entry");
}

// Files and directories that others may have written are not read.
static void foreign(Arena *arena, const char *cache, const char *path)
{
	const char *elsewhere = inside(arena, "elsewhere");
	struct stat about;
	expect(!chmod(path, 0666) && gives(cache, false), "a file that others write");
	expect(!stat(path, &about) && (about.st_mode & 0777) == 0600 && gives(cache, true),
	       "it is replaced by a private one");
	expect(!rename(path, elsewhere) && !symlink(elsewhere, path) && gives(cache, false),
	       "a link");
	expect(!lstat(path, &about) && S_ISREG(about.st_mode), "a link is replaced");
	expect(!unlink(path) && !mkfifo(path, 0600) && gives(cache, false), "a pipe");
	expect(!stat(cache, &about) && (about.st_mode & 0777) == 0700, "a private directory");
	expect(!chmod(cache, 0777) && gives(cache, false) && !chmod(cache, 0700) &&
	           gives(cache, true),
	       "a directory that others write");
}

// ---- failures -------------------------------------------------------------------------

// A cache that cannot be written does no harm.
static void unwritable(Arena *arena, const char *file)
{
	struct rlimit before, little;
	char one[4096];
	const char *full = inside(arena, "full");
	expect(gives(format(arena, "%s/below", file), false), "a directory below a file");
	expect(gives("/proc/self/cache", false), "a directory that cannot be made");
	getrlimit(RLIMIT_FSIZE, &before);
	little = before;
	little.rlim_cur = 512;
	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &little);
	expect(gives(full, false) && gives(full, false), "a full disk");
	setrlimit(RLIMIT_FSIZE, &before);
	expect(!entries(full, one), "nothing is left on a full disk");
}

// ---- size, processes ------------------------------------------------------------------

static void make_entry(const char *path, int64_t bytes, int64_t used)
{
	const struct timespec times[] = {{used, 0}, {used, 0}};
	write_file(path, "", 0);
	expect(!truncate(path, bytes) && !utimensat(AT_FDCWD, path, times, 0), "a large entry");
}

// The entries that were not used for longest are removed.
static void evict(Arena *arena)
{
	const char *cache = inside(arena, "large"),
	           *first = format(arena, "%s/first.object", cache),
	           *second = format(arena, "%s/second.object", cache),
	           *third = format(arena, "%s/third.object", cache),
	           *other = format(arena, "%s/other.txt", cache);
	char one[4096];
	expect(!mkdir(cache, 0700), "a directory");
	make_entry(second, 100 * MEBI, 2000);
	make_entry(first, 100 * MEBI, 1000);
	make_entry(third, 100 * MEBI, 3000);
	make_entry(other, 100 * MEBI, 500);
	expect(gives(cache, false), "a full cache");
	expect(access(first, F_OK) && !access(second, F_OK) && !access(third, F_OK) &&
	           !access(other, F_OK) && entries(cache, one) == 4,
	       "the oldest entry makes room");
	expect(gives(cache, true), "the new entry stays");
}

static void at_once(Arena *arena)
{
	enum { PROCESSES = 6 };
	const char *cache = inside(arena, "shared");
	char one[4096];
	int status;
	for (int i = 0; i < PROCESSES; i++)
		if (!fork()) {
			float outputs[OUTPUTS];
			had(cache, outputs);
			_exit(memcmp(outputs, right, sizeof right) != 0);
		}
	for (int i = 0; i < PROCESSES; i++)
		expect(wait(&status) > 0 && !status, "a process among others");
	expect(entries(cache, one) == 1 && gives(cache, true), "they leave one entry");
}

int main(int argc, char **argv)
{
	Arena *arena = arena_new();
	char one[4096];
	if (argc != 2)
		return 2;
	model = argv[1];
	folder = own_folder();
	const char *cache = inside(arena, "deep/er/cache");
	expect(!had("none", right), "no cache");
	expect(gives("", false) && gives("none", false), "no cache");
	expect(gives(cache, false) && gives(cache, true), "a program is compiled once");
	expect(entries(cache, one) == 1, "one entry");
	damage(arena, cache, one);
	foreign(arena, cache, one);
	unwritable(arena, one);
	evict(arena);
	at_once(arena);
	bound = 3;
	float more[OUTPUTS];
	expect(!had(cache, more) && had(cache, more) && entries(cache, one) == 2,
	       "another shape is another program");
	arena_free(arena);
	return expected();
}
