// base.h: what every floor of the compiler stands on: memory by lifetime, strings, tables,
// diagnostics. Takes common.h. Keeps: no global state but the current catch frame of each thread.
#ifndef BASE_H
#define BASE_H
#include "common.h"
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
// A new one that spends from the same Budget, and is freed with the other at the latest.
Arena *arena_within(Arena *);
void arena_free(Arena *);
void at_end(Arena *, void end(void *what), void *what); // called when it is freed, last one first
// Zeroed memory, aligned to 64 bytes where it has so many, else to 16, or to 8 below that. Never
// NULL: out of memory is fail().
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

// A growing array whose items never move, `type *chunk[CHUNKS]` and a count of your own: each chunk
// holds twice as many items as the one before.
enum { FIRST_BITS = 4, CHUNKS = 28 };
static inline int chunk_of(uint32_t i)
{
	return 31 - __builtin_clz(i + (1u << FIRST_BITS)) - FIRST_BITS;
}
static inline uint32_t place_in_chunk(uint32_t i)
{
	return i + (1u << FIRST_BITS) - (1u << (FIRST_BITS + chunk_of(i)));
}
#define ITEM(chunk, i) (&(chunk)[chunk_of((uint32_t)(i))][place_in_chunk((uint32_t)(i))])
// The address of item `count`, zeroed: the caller counts.
#define ADD(arena, chunk, count)                                                                   \
	(place_in_chunk((uint32_t)(count))                                                         \
	     ? (void)0                                                                             \
	     : (void)((chunk)[chunk_of((uint32_t)(count))] =                                       \
	                  take((arena),                                                            \
	                       sizeof *(chunk)[0] << (chunk_of((uint32_t)(count)) + FIRST_BITS))), \
	 ITEM(chunk, count))

// ---- budget.c: what a file may cost ---------------------------------------------------
// An arena may have a Budget, from which it pays for its own blocks and spend() for all else. What
// is spent is counted, not timed: equal files get equal answers.

typedef enum Cost {
#define COST(name, ...) COST_##name,
#include "costs.def"
#undef COST
	COSTS
} Cost;

typedef struct Budget {
	const char *file; // the one that is read, for messages
	uint64_t limit[COSTS], spent[COSTS];
} Budget;

extern const char *const cost_names[COSTS];
// A Budget with the limits of costs.def, which `arena` and those within it spend from now on.
Budget *budget_new(Arena *arena);
// Raises the limits in proportion to what `file` holds.
void allow(const Arena *, const char *file, uint64_t nodes, uint64_t bytes);
// Fails with STATUS_LIMIT where the limit does not cover `count` more.
void spend(const Arena *, Cost, uint64_t count);
uint64_t cost_product(uint64_t, uint64_t); // the largest number where it is larger
// arena.c: NULL where there is none.
Budget *arena_budget(const Arena *);
void arena_limit(Arena *, Budget *);

// ---- str.c: strings -------------------------------------------------------------------

char *format(Arena *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
char *vformat(Arena *, const char *fmt, va_list) __attribute__((format(printf, 2, 0)));
char *copy_string(Arena *, const char *);
// As amos_visible() writes it; the text itself if nothing changes.
const char *visible(Arena *, const char *text, bool exact);
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
Table *table_lent(Arena *); // its keys are not copied: they stay as long as the table does
// The cell of `key`, made with value 0 when it is new; it never moves.
uint64_t *table_cell(Table *, const void *key, size_t bytes);
uint64_t *table_find(const Table *, const void *key, size_t bytes); // NULL when absent
const void *table_key(const uint64_t *cell);                        // the table's own
uint64_t *table_cell_s(Table *, const char *key);
uint64_t *table_find_s(const Table *, const char *key);
// Of a table of pointers: the one of `key`; NULL when absent.
void *table_pointer_s(const Table *, const char *key);
uint64_t hash_bytes(const void *, size_t, uint64_t seed);

// ---- diag.c: errors -------------------------------------------------------------------
// fail(): the user's model, file or option is at fault. One catch in the tool.
// bug(), never(): we are at fault; prints and aborts.
// add_error(): notes one unsupported thing; fail_if_errors() fails with all of them at once.

// STATUS_LIMIT: the input's fault as well, but one that ends all reading. It exits as STATUS_INPUT.
enum { STATUS_DONE = 0, STATUS_INPUT = 1, STATUS_USAGE = 2, STATUS_MACHINE = 3, STATUS_LIMIT = 4 };

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
_Noreturn void fail_again(Catch *); // the failure that it caught
void need_done(
    int status); // of a function of common.h: fails with amos_error() unless it is AMOS_DONE
// In the text of an error, before what to do about it.
#define HELP "\nhelp: "
void add_error(const char *where, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void fail_if_errors(
    const char *where); // fails when anything was complained of since the last settle
void warn(const char *where, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void warn_quiet(bool quiet); // warnings go to stderr unless quiet
_Noreturn void bug_at(const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
#define bug(...)    bug_at(__FILE__, __LINE__, __VA_ARGS__)
#define never(what) bug_at(__FILE__, __LINE__, "never: %s", #what)

#endif
