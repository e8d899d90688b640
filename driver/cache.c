// cache.c: keeps objects on disk, so that a program that was compiled before is not compiled again.
// An entry is a file: struct head, the sizes of the object's parts, the key, the parts. It is named
// by the hash of the key, which the file holds in full, so that no other program's object is taken.
// Invariant: a file is used if it is of this user, its checksum is right and its key is the same;
// anything else is replaced. Writing is not synced: a file that a power failure left incomplete is
// damaged. A cache that cannot be read or written is not used, which is never an error.
#include "driver.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const int64_t most_bytes = (int64_t)256 << 20; // of all entries
enum { SHARE = 8 };                                   // an entry has at most 1/8 of them

static const char magic[8] = "amosobj1", ending[] = ".object";

struct head {
	char magic[8];
	uint64_t sum; // of all bytes after it
	uint64_t key, parts, kernels;
};

static uint64_t sum_of(const struct head *head, size_t size)
{
	size_t after = offsetof(struct head, key);
	return hash_bytes((const char *)head + after, size - after, 0);
}

// ---- the directory --------------------------------------------------------------------

// Returns --cache, else $AMOSC_CACHE, else the directory that the XDG specification says; NULL:
// none.
static const char *cache_path(const Session *session)
{
	const char *path = choice(session, OPT_cache, getenv("AMOSC_CACHE")),
	           *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	if (path)
		return *path && strcmp(path, "none") ? path : NULL;
	if (base && *base == '/')
		return format(session->arena, "%s/amosc", base);
	return home && *home == '/' ? format(session->arena, "%s/.cache/amosc", home) : NULL;
}

// Makes the directory and those above it.
static void make_folder(Arena *arena, const char *path)
{
	char *part = copy_string(arena, path);
	for (char *at = part + 1; *at; at++)
		if (*at == '/') {
			*at = 0;
			mkdir(part, 0700);
			*at = '/';
		}
	mkdir(part, 0700);
}

// Returns a descriptor of the directory; -1 unless it is one that only this user writes.
static int open_folder(const char *path)
{
	struct stat about;
	int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (folder < 0)
		return -1;
	if (!fstat(folder, &about) && about.st_uid == geteuid() && !(about.st_mode & 022))
		return folder;
	close(folder);
	return -1;
}

static const char *entry_name(Arena *arena, const Key *key)
{
	return format(arena, "%016llx%016llx%s",
	              (unsigned long long)hash_bytes(key->at, key->count, 1),
	              (unsigned long long)hash_bytes(key->at, key->count, 2), ending);
}

// ---- reading --------------------------------------------------------------------------

// Returns the contents of a file of this user, or NULL.
static struct head *read_entry(Arena *arena, int file, size_t *size)
{
	struct stat about;
	if (fstat(file, &about) || !S_ISREG(about.st_mode) || about.st_uid != geteuid() ||
	    about.st_mode & 022 || about.st_size < (off_t)sizeof(struct head) ||
	    about.st_size > most_bytes)
		return NULL;
	*size = (size_t)about.st_size;
	char *at = take(arena, *size);
	ssize_t got = 1;
	for (size_t done = 0; done < *size && got > 0; done += (size_t)got)
		got = read(file, at + done, *size - done);
	return got > 0 ? (struct head *)at : NULL;
}

// Returns the object in an entry for the key; NULL: it holds none, or is damaged.
static Object *object_of(Arena *arena, const Key *key, const struct head *head, size_t size)
{
	if (memcmp(head->magic, magic, sizeof magic) || head->sum != sum_of(head, size) ||
	    head->key != key->count || head->parts > size / sizeof(uint64_t))
		return NULL;
	size_t count = (size_t)head->parts, left = size - sizeof *head;
	const uint64_t *sizes = (const uint64_t *)(head + 1);
	const char *at = (const char *)(sizes + count);
	if (left < count * sizeof *sizes || left - count * sizeof *sizes < key->count ||
	    memcmp(at, key->at, key->count))
		return NULL;
	at += key->count;
	left -= count * sizeof *sizes + key->count;
	Object *object = NEW(arena, Object);
	object->part = NEWS(arena, Part, count);
	object->parts = (int)count;
	object->kernels = (int)head->kernels;
	object->cached = true;
	for (size_t k = 0; k < count; k++) {
		if (sizes[k] > left)
			return NULL;
		object->part[k] = (Part){at, (size_t)sizes[k]};
		object->count += (size_t)sizes[k];
		at += sizes[k];
		left -= (size_t)sizes[k];
	}
	return object;
}

Object *cache_find(const Session *session, const Key *key)
{
	Arena *arena = key->arena;
	const char *path = cache_path(session);
	int folder = path && key->count ? open_folder(path) : -1, file;
	size_t size;
	if (folder < 0)
		return NULL;
	const char *name = entry_name(arena, key);
	Object *object = NULL;
	file = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (file >= 0) {
		const struct head *head = read_entry(arena, file, &size);
		object = head ? object_of(arena, key, head, size) : NULL;
		if (object) // the time of the last use, for eviction
			futimens(file, NULL);
		close(file);
	}
	close(folder);
	return object;
}

// ---- writing --------------------------------------------------------------------------

typedef struct Used { // an entry
	char name[NAME_MAX + 1];
	int64_t bytes;
	struct timespec used;
} Used;

static int by_use(const void *a, const void *b)
{
	const struct timespec *x = &((const Used *)a)->used, *y = &((const Used *)b)->used;
	return x->tv_sec != y->tv_sec ? (x->tv_sec > y->tv_sec) - (x->tv_sec < y->tv_sec)
	                              : (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

// Removes the entries that were not used for longest until `most` bytes are left. Other processes
// may do the same meanwhile.
static void evict(Arena *arena, const char *path, int64_t most)
{
	VEC(Used) entries = {0};
	int64_t all = 0;
	DIR *names = opendir(path);
	struct stat about;
	for (struct dirent *one; names && (one = readdir(names));) {
		Used entry;
		if (!ends_with(one->d_name, ending) ||
		    fstatat(dirfd(names), one->d_name, &about, AT_SYMLINK_NOFOLLOW) ||
		    !S_ISREG(about.st_mode))
			continue;
		snprintf(entry.name, sizeof entry.name, "%s", one->d_name);
		entry.bytes = about.st_size;
		entry.used = about.st_mtim;
		PUSH(arena, entries, entry);
		all += entry.bytes;
	}
	if (all > most)
		qsort(entries.at, (size_t)entries.count, sizeof(Used), by_use);
	for (int i = 0; i < entries.count && all > most; i++) {
		unlinkat(dirfd(names), entries.at[i].name, 0);
		all -= entries.at[i].bytes;
	}
	if (names)
		closedir(names);
}

// Returns the bytes of an entry, with its checksum.
static struct head *entry_of(Arena *arena, const Key *key, const Object *object, size_t *size)
{
	size_t count = (size_t)object->parts;
	*size = sizeof(struct head) + count * sizeof(uint64_t) + key->count + object->count;
	struct head *head = take(arena, *size);
	uint64_t *sizes = (uint64_t *)(head + 1);
	char *at = mempcpy((char *)(sizes + count), key->at, key->count);
	for (size_t k = 0; k < count; k++) {
		sizes[k] = object->part[k].count;
		at = mempcpy(at, object->part[k].bytes, object->part[k].count);
	}
	memcpy(head->magic, magic, sizeof magic);
	head->key = key->count;
	head->parts = count;
	head->kernels = (uint64_t)object->kernels;
	head->sum = sum_of(head, *size);
	return head;
}

void cache_keep(const Session *session, const Key *key, const Object *object)
{
	const char *path = cache_path(session);
	if (!path || !key->count)
		return;
	Arena *arena = arena_new();
	make_folder(arena, path);
	int folder = open_folder(path);
	bool kept = false;
	size_t size;
	const struct head *head = entry_of(arena, key, object, &size);
	struct amos_temp_file file;
	const char *to = format(arena, "%s/%s", path, entry_name(arena, key));
	if (folder >= 0 && (int64_t)size <= most_bytes / SHARE) {
		amos_file_clean(path);
		evict(arena, path, most_bytes - (int64_t)size);
		if (!amos_file_begin(&file, to, AMOS_CACHED)) {
			fwrite(head, 1, size, file.to);
			kept = !amos_file_keep(&file);
		}
	}
	if (folder >= 0)
		close(folder);
	if (!kept && chosen(session, OPT_cache))
		tell(session, "amosc: warning: --cache %s: what is compiled cannot be kept\n",
		     path);
	arena_free(arena);
}
