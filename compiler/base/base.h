// base.h: what every floor of the compiler stands on: memory by lifetime, strings, tables,
// diagnostics, files written aside. Takes nothing from the project. Keeps: no global state but the
// current catch frame of each thread, and what is being written aside.
#ifndef BASE_H
#define BASE_H
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))
#define MIN(a, b)    ((a) < (b) ? (a) : (b))
#define MAX(a, b)    ((a) > (b) ? (a) : (b))

// ---- arena.c: memory freed all at once ------------------------------------------------

typedef struct Arena Arena;

Arena *arena_new(void);
void arena_free(Arena *);
// Zeroed memory, 64-byte aligned when bytes >= 64, else 16. Never NULL: out of memory is fail().
void *take(Arena *, size_t bytes);
void *take_copy(Arena *, const void *bytes, size_t count);

#define NEW(arena, type)         ((type *)take((arena), sizeof(type)))
#define NEWS(arena, type, count) ((type *)take((arena), sizeof(type) * (size_t)(count)))

// A growing array that lives in an arena: declare `VEC(int) v = {0};`, add with PUSH(arena, v, x).
#define VEC(type)                                                                                  \
	struct {                                                                                   \
		type *at;                                                                          \
		int count, room;                                                                   \
	}
#define PUSH(arena, v, x)                                                                          \
	((v).count == (v).room ? ((v).at = grow((arena), (v).at, sizeof *(v).at, &(v).room))       \
	                       : (v).at,                                                           \
	 (v).at[(v).count++] = (x))
void *grow(Arena *, void *at, size_t item, int *room); // doubles the room, copies the items

// ---- str.c: strings -------------------------------------------------------------------

char *format(Arena *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
char *vformat(Arena *, const char *fmt, va_list) __attribute__((format(printf, 2, 0)));
char *copy_string(Arena *, const char *);
bool starts_with(const char *s, const char *prefix);
bool ends_with(const char *s, const char *suffix);
// `pattern` is a glob (`*.bias`), or a regular expression between slashes (`/h\.[0-9]+/`).
bool matches(const char *pattern, const char *s);
// For a pattern that matches none of `names`: "did you mean a, b?", or "there are a, b, ...".
const char *suggest(Arena *, const char *pattern, int count, const char *const *names);
// A text that grows: printf into it, read .at (always terminated).
typedef struct Text {
	Arena *arena;
	char *at;
	size_t count, room;
} Text;
void say(Text *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// ---- table.c: hash table from bytes to a 64-bit value ---------------------------------

typedef struct Table Table;
Table *table_new(Arena *);
// The cell of `key`, made with value 0 when it is new; valid until the next call that adds.
uint64_t *table_cell(Table *, const void *key, size_t bytes);
uint64_t *table_find(const Table *, const void *key, size_t bytes); // NULL when absent
uint64_t *table_cell_s(Table *, const char *key);
uint64_t *table_find_s(const Table *, const char *key);
uint64_t hash_bytes(const void *, size_t, uint64_t seed);

// ---- diag.c: errors -------------------------------------------------------------------
// fail(): the user's model, file or option is at fault. One catch in the tool.
// bug(), never(): we are at fault; prints and aborts.
// complain(): notes one unsupported thing; settle() fails with all of them at once.

enum { STATUS_DONE = 0, STATUS_INPUT = 1, STATUS_USAGE = 2, STATUS_MACHINE = 3 };

typedef struct Catch {
	jmp_buf jump;
	int status;    // STATUS_...
	char *message; // malloc'd; the catcher frees it
	struct Catch *outer;
} Catch;

// if (!TRY(c)) { ...; catch_end(&c); } else { report c.message; free(c.message); }
#define TRY(c) (catch_push(&(c)), setjmp((c).jump))
void catch_push(Catch *);
void catch_end(Catch *);

_Noreturn void fail(const char *where, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
_Noreturn void fail_status(int status, const char *where, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
// A file that cannot be written, by errno: the path is at fault, or the machine.
_Noreturn void fail_write(const char *path);
void complain(const char *where, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void settle(const char *where); // fails when anything was complained of since the last settle
void warn(const char *where, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void warn_quiet(bool quiet); // warnings go to stderr unless quiet
_Noreturn void bug_at(const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
#define bug(...)    bug_at(__FILE__, __LINE__, __VA_ARGS__)
#define never(what) bug_at(__FILE__, __LINE__, "never: %s", #what)

// ---- aside.c: files that appear under their name only when they are whole --------------

// A name to write under what shall be called `path`, this process's own, until it is kept or
// dropped; the arena stands that long. Of a device or pipe, which no file may replace, its own
// name.
const char *aside_name(Arena *, const char *path);
void aside_keep(const char *aside, const char *path); // renames it; where it cannot, fails
void aside_drop_all(void); // removes what is not kept; keeps errno; may run in a handler

#endif
