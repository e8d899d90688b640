// base.h: declares what all compiler layers share: memory, strings, tables, diagnostics.
// Invariant: no global state except each thread's catch frame.
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
// Returns an arena that shares the Budget of the other and is freed with it at the latest.
Arena *arena_within(Arena *);
void arena_free(Arena *);
// Calls end(what) when the arena is freed, in reverse order.
void at_end(Arena *, void end(void *what), void *what);
// Returns zeroed memory, aligned to 64 bytes if that large, else to 16, or to 8 below 16 bytes.
// Never NULL: fails if out of memory.
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
void *grow(Arena *, void *at, size_t item, int *room); // doubles the capacity, copies the items

// A growing array whose items never move: declare `type *chunk[CHUNKS]` and a count. Each chunk
// holds twice as many items as the one before.
enum { FIRST_BITS = 4, CHUNKS = 28 };
static inline int chunk_of(uint32_t i)
{
	return 31 - __builtin_clz(i + (1u << FIRST_BITS)) - FIRST_BITS;
}
static inline uint32_t index_in_chunk(uint32_t i)
{
	return i + (1u << FIRST_BITS) - (1u << (FIRST_BITS + chunk_of(i)));
}
#define ITEM(chunk, i) (&(chunk)[chunk_of((uint32_t)(i))][index_in_chunk((uint32_t)(i))])
// Returns the address of item `count`, zeroed. The caller increments the count.
#define ADD(arena, chunk, count)                                                                   \
	(index_in_chunk((uint32_t)(count))                                                         \
	     ? (void)0                                                                             \
	     : (void)((chunk)[chunk_of((uint32_t)(count))] =                                       \
	                  take((arena),                                                            \
	                       sizeof *(chunk)[0] << (chunk_of((uint32_t)(count)) + FIRST_BITS))), \
	 ITEM(chunk, count))

// ---- budgets: limits of what a file may cost -------------------------------------------
// An arena may have a Budget, charged with the arena's blocks and with what spend() counts. Costs
// are counted, not timed: equal files give equal results.

typedef enum Cost {
#define COST(name, ...) COST_##name,
#include "costs.def"
#undef COST
	COSTS
} Cost;

typedef struct Budget {
	const char *file; // name of the input file, for messages
	uint64_t limit[COSTS], spent[COSTS];
	uint64_t times; // how many compilations may cost the limits each
} Budget;

typedef struct CostInfo { // a row of costs.def
	const char *name;
	uint64_t limit, node, byte;
} CostInfo;
extern const CostInfo costs[COSTS];
// Returns a Budget with the limits of costs.def, charged by `arena` and those within it.
Budget *budget_new(Arena *arena);
// Raises the limits in proportion to the size of `file`.
void allow(const Arena *, const char *file, uint64_t nodes, uint64_t bytes);
// Allows `more` compilations than one.
void allow_more(const Arena *, uint64_t more);
// Charges `count`. Fails with STATUS_LIMIT if that exceeds the limit.
void spend(const Arena *, Cost, uint64_t count);
uint64_t cost_product(uint64_t, uint64_t); // product, saturated at UINT64_MAX
void arena_limit(Arena *, Budget *);       // NULL: no limits

// ---- str.c: strings -------------------------------------------------------------------

char *format(Arena *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
char *vformat(Arena *, const char *fmt, va_list) __attribute__((format(printf, 2, 0)));
char *copy_string(Arena *, const char *);
// Returns the text as amos_visible() escapes it; the same pointer if nothing changes.
const char *visible(Arena *, const char *text, bool exact);
bool starts_with(const char *s, const char *prefix);
bool ends_with(const char *s, const char *suffix);
// Returns the index of the item of this name, its first member; -1: none.
#define FIND(name, table) amos_index((name), (table), COUNT(table), sizeof *(table))
// Returns the names of the items, "a, b or c"; `last`: " or ", before the last one. "": no items.
#define NAMES(arena, table, last)                                                                  \
	names_text((arena), (table), COUNT(table), sizeof *(table), (last))
const char *names_text(Arena *, const void *items, int count, size_t size, const char *last);
// True if `s` matches `pattern`: a glob (`*.bias`), or a regular expression between slashes
// (`/h\.[0-9]+/`). Fails if that is invalid, as does check_pattern() at `where`.
bool matches(const char *pattern, const char *s);
void check_pattern(const char *where, const char *pattern);
// Returns a hint for a pattern that matches none of `names`: "did you mean a, b?", or some of the
// names.
const char *suggest(Arena *, const char *pattern, int count, const char *const *names);
// A growing string: say() appends to it; .at is always terminated.
typedef struct Text {
	Arena *arena;
	char *at;
	size_t count, room;
} Text;
void say(Text *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// ---- table.c: hash table from bytes to a 64-bit value ---------------------------------

typedef struct Table Table;
Table *table_new(Arena *);
Table *table_lent(Arena *); // keys are not copied and must outlive the table
// Returns the value of `key`, added as 0 if new. Its address never changes.
uint64_t *table_cell(Table *, const void *key, size_t bytes);
uint64_t *table_find(const Table *, const void *key, size_t bytes); // NULL if absent
const void *table_key(const uint64_t *cell);                        // the table's copy
uint64_t *table_cell_s(Table *, const char *key);
uint64_t *table_find_s(const Table *, const char *key);
// Returns the pointer stored for `key`; NULL if absent.
void *table_pointer_s(const Table *, const char *key);
uint64_t hash_bytes(const void *, size_t, uint64_t seed);

// ---- diag.c: errors -------------------------------------------------------------------
// fail(): invalid model, file or option; caught once, by the tool.
// bug(), never(): an error in amosc; caught as well. Without a catch, prints and aborts.

// STATUS_LIMIT: a limit of the Budget is exceeded, which ends all reading. The exit status is
// STATUS_INPUT.
enum {
	STATUS_DONE,
	STATUS_INPUT,
	STATUS_USAGE,
	STATUS_MACHINE,
	STATUS_LIMIT,
	STATUS_BUG,
};

typedef struct Catch {
	jmp_buf jump;
	int status;    // STATUS_...
	char *message; // to be freed by the catcher
	size_t where;  // length of "WHERE: " at its start
	struct Catch *outer;
} Catch;

// if (!TRY(c)) { ...; catch_end(&c); } else { report c.message; free(c.message); }
#define TRY(c) (catch_push(&(c)), setjmp((c).jump))
void catch_push(Catch *);
void catch_end(Catch *);

#define fail(where, ...) fail_status(STATUS_INPUT, where, __VA_ARGS__)
_Noreturn void fail_status(int status, const char *where, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
_Noreturn void fail_again(Catch *); // fails again with the caught error
// Fails with amos_error() unless `status`, from a function of common.h, is AMOS_DONE.
void need_done(int status);
#define HELP AMOS_HELP
_Noreturn void bug_at(const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
#define bug(...)    bug_at(__FILE__, __LINE__, __VA_ARGS__)
#define never(what) bug_at(__FILE__, __LINE__, "never: %s", #what)

#endif
