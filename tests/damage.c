// damage.c: corrupts data files, byte by byte, and checks that commands report them.
// damage AMOSC NPZ MODELS SEED SECONDS [CASE]: makes a small file of every kind that amosc reads
// except models (mutate.c), changes a few bytes of one, and passes it to a command, until the time
// is up. Each command succeeds or reports the error with the file's name; none crashes, hangs or
// leaks.
#include "files.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

enum { PATIENCE = 60, MOST_CHANGES = 3, LARGEST = 1 << 20, SANITIZER = 99, NOT_MADE = 100 };

// CASE(name, file, make, take, says): shell commands that make and read the file; what a message
// names instead of the file.
static const struct Case {
	const char *name, *file, *make, *take, *says;
} cases[] = {
#define CASE(...) {__VA_ARGS__},
#include "damage.def"
#undef CASE
};

typedef struct File {
	unsigned char *at;
	size_t count;
} File;

static uint64_t state;

static uint64_t draw(uint64_t below)
{
	state += 0x9E3779B97F4A7C15u;
	return hash_bytes(&state, sizeof state, 3) % below;
}

// ---- changes --------------------------------------------------------------------------

// Replaces the `gone` bytes at `at` by `n` bytes.
static void replace(File *f, size_t at, size_t gone, const void *bytes, size_t n)
{
	if (f->count - gone + n > 2 * LARGEST)
		return;
	memmove(f->at + at + n, f->at + at + gone, f->count - at - gone);
	memcpy(f->at + at, bytes, n);
	f->count += n - gone;
}

static void change_number(File *f, size_t at)
{
	static const int64_t odd[] = {
	    0,         1,         -1,        2,         255,           65536,
	    INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, INT64_MAX / 8, 0x7ff0000000000000};
	size_t n = (size_t)1 << draw(4);
	n = MIN(n, f->count - at);
	replace(f, at, n, &odd[draw(COUNT(odd))], n);
}

static void change_word(File *f, size_t at)
{
	static const char *const words[] = {"-1",       "0",        "99999999999999999999",
	                                    "1e999",    "nan",      "-",
	                                    "null",     "true",     "{",
	                                    "}",        "[",        "]",
	                                    "(",        ")",        "[[[[[[[[[[[[[[",
	                                    "((((((((", "\"",       "'",
	                                    ",",        ":",        "=",
	                                    "/",        "*",        "sqrt(",
	                                    "\n",       "\\",       "%s",
	                                    " ",        "\xff\xfe", "x",
	                                    "f32[9]",   "."};
	const char *word = words[draw(COUNT(words))];
	size_t n = strlen(word), gone = draw(2) ? 0 : MIN(n, f->count - at);
	replace(f, at, gone, word, n);
}

static void repeat(File *f, size_t at, size_t n)
{
	unsigned char *copy = malloc(n + 1);
	memcpy(copy, f->at + at, n);
	replace(f, draw(f->count + 1), 0, copy, n);
	free(copy);
}

static void change(File *f)
{
	size_t at = draw(f->count + 1), n = draw(MIN(f->count - at, 64) + 1);
	if (at == f->count) // nothing left to change
		return change_word(f, at);
	switch (draw(7)) {
	case 0:
		f->count = draw(4) ? at : 0;
		return;
	case 1:
		return replace(f, at, n, "", 0);
	case 2:
		return repeat(f, at, n);
	case 3:
		return change_number(f, at);
	case 4:
		f->at[at] ^= (unsigned char)(1 << draw(8));
		return;
	default:
		return change_word(f, at);
	}
}

// Updates the checksum of a checkpoint's head (ckpt.c), so that other errors in it are found.
static void seal(File *f)
{
	enum { CRC = 24, BLOCKS = 28, BYTES = 40, PARAMS = 152, HEAD = 176 }; // struct head
	uint32_t crc = 0, vouch[2] = {0};
	int64_t head, params;
	if (f->count < HEAD)
		return;
	memcpy(&head, f->at + BYTES, sizeof head);
	memcpy(&params, f->at + PARAMS, sizeof params);
	if (head < HEAD || params < 0 || (uint64_t)head > f->count ||
	    (uint64_t)params > f->count - (uint64_t)head)
		return;
	unsigned char *blocks = f->at + head;
	vouch[0] = (uint32_t)crc32_z(0, blocks, (size_t)params);
	vouch[1] = (uint32_t)crc32_z(0, blocks + params, f->count - (size_t)(head + params));
	memcpy(f->at + BLOCKS, vouch, sizeof vouch);
	memcpy(f->at + CRC, &crc, sizeof crc);
	crc = (uint32_t)crc32_z(0, f->at, (size_t)head);
	memcpy(f->at + CRC, &crc, sizeof crc);
}

// ---- one run --------------------------------------------------------------------------

// Reads a file, with room for growth.
static File open_file(Arena *arena, const char *path)
{
	File f;
	const char *bytes = read_file(arena, path, &f.count);
	if (f.count > LARGEST)
		fail(path, "is too large to be damaged");
	f.at = take(arena, 4 * LARGEST);
	memcpy(f.at, bytes, f.count);
	return f;
}

// Runs a shell command with its messages in `messages`; returns its status, 128 or more for a
// signal.
static int run(const char *command, const char *messages)
{
	pid_t child = fork();
	if (!child) {
		struct rlimit seconds = {PATIENCE, PATIENCE};
		int none = open("/dev/null", O_RDWR), log = creat(messages, 0644);
		setrlimit(RLIMIT_CPU, &seconds);
		dup2(none, STDIN_FILENO);
		dup2(none, STDOUT_FILENO);
		dup2(log, STDERR_FILENO);
		execl("/bin/sh", "sh", "-c", command, NULL);
		_exit(127);
	}
	int status;
	waitpid(child, &status, 0);
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static bool is_good(const struct Case *c, int status)
{
	Arena *arena = arena_new();
	const char *text = read_file(arena, "messages", NULL);
	bool good = status < 3 && !strstr(text, "runtime error:");
	if (good && status)
		good = strstr(text, c->says) || strstr(text, c->file);
	if (!good)
		printf("%s: status %d: %.3000s\n", c->name, status, text);
	arena_free(arena);
	return good;
}

static bool try_case(const struct Case *c, uint64_t number)
{
	char whole[64];
	snprintf(whole, sizeof whole, "whole.%s", c->name);
	if (access(whole, F_OK)) {
		if (run(c->make, "messages") || run(c->take, "messages") || rename(c->file, whole))
			return is_good(c, NOT_MADE);
	}
	Arena *arena = arena_new();
	File f = open_file(arena, whole);
	for (uint64_t k = 0, n = 1 + draw(MOST_CHANGES); k < n; k++)
		change(&f);
	if (ends_with(c->file, ".ckpt") && draw(8))
		seal(&f);
	write_file(c->file, f.at, f.count);
	arena_free(arena);
	bool good = is_good(c, run(c->take, "messages"));
	if (!good)
		printf("%s %llu\n", c->name, (unsigned long long)number);
	return good;
}

int main(int argc, char **argv)
{
	char path[4096], sanitizer[256];
	if (argc < 6 || chdir(own_folder()))
		return 2;
	snprintf(path, sizeof path, "%s:%s:%s", argv[1], argv[2], getenv("PATH"));
	snprintf(sanitizer, sizeof sanitizer, "exitcode=%d", SANITIZER);
	setenv("PATH", path, 1);
	setenv("models", argv[3], 1);
	setenv("ASAN_OPTIONS", sanitizer, 1);
	setenv("UBSAN_OPTIONS", sanitizer, 1);
	uint64_t seed = strtoull(argv[4], NULL, 10), number;
	time_t end = time(NULL) + strtol(argv[5], NULL, 10);
	int wrong = 0, tried = 0;
	for (number = seed; time(NULL) < end || number < seed + COUNT(cases); number++) {
		const struct Case *c = &cases[number % COUNT(cases)];
		state = number * 0xD1342543DE82EF95u;
		if (argc > 6 && strcmp(c->name, argv[6]))
			continue;
		wrong += !try_case(c, number);
		tried++;
		fflush(stdout);
	}
	printf("damage: %d files of %d kinds, %d wrong\n", tried, COUNT(cases), wrong);
	return wrong || !tried;
}
