// arena.c: allocates memory that is freed all at once.
// A Budget limits what a file may cost, so that a small one cannot take all time or memory.
// An Arena is a list of zeroed blocks; large requests get their own. Alignment: 64 for 64 bytes and
// more, else 16, or 8 below 16 bytes. AddressSanitizer is informed of each allocation, so it
// detects overruns.
#include "base.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
enum { GAP = 8 }; // bytes after each allocation
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes)   ((void)(at))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at))
enum { GAP = 0 };
#endif

typedef struct Block {
	struct Block *next;
	size_t used, ready, room; // bytes after the header; ready: up to which the system has pages
} Block;

typedef struct End {
	void (*end)(void *);
	void *what;
	struct End *before;
} End;

struct Arena {
	Block *block;       // the current block
	size_t bytes, held; // allocated; size of all blocks
	Budget *budget;     // NULL: no limits
	End *ends;
	struct Arena *outer, *inner, *next; // parent; last child; next sibling
};

enum { HEADER = 64, FIRST = 1 << 12, BLOCK = 1 << 16, LIMIT = 1 << 24 };
_Static_assert(sizeof(Block) <= HEADER, "a block's header fits");

Arena *arena_new(void)
{
	Arena *arena = calloc(1, sizeof *arena);
	if (!arena)
		fail_status(STATUS_MACHINE, "memory", "out of memory");
	return arena;
}

Arena *arena_within(Arena *outer)
{
	Arena *arena = arena_new();
	arena->budget = outer->budget;
	arena->outer = outer;
	arena->next = outer->inner;
	outer->inner = arena;
	return arena;
}

void arena_limit(Arena *arena, Budget *budget)
{
	arena->budget = budget;
}

static char *block_start(Block *block)
{
	uintptr_t at = (uintptr_t)block + HEADER;
	return (char *)((at + 63) & ~(uintptr_t)63);
}

void arena_free(Arena *arena)
{
	if (!arena)
		return;
	while (arena->inner)
		arena_free(arena->inner);
	for (const End *e = arena->ends; e; e = e->before)
		e->end(e->what);
	if (arena->outer) {
		Arena **at = &arena->outer->inner;
		while (*at != arena)
			at = &(*at)->next;
		*at = arena->next;
		if (arena->budget)
			arena->budget->spent[COST_bytes] -= arena->held;
	}
	for (Block *block = arena->block, *next; block; block = next) {
		next = block->next;
		ASAN_UNPOISON_MEMORY_REGION(block_start(block), block->room);
		free(block);
	}
	free(arena);
}

// Asks the system for the pages of the next bytes at once, not one by one as they are used. A page
// that is read before it is written would take two faults, of which the second interrupts all
// processors that run threads of this process.
static void make_ready(Block *block)
{
#ifdef MADV_POPULATE_WRITE
	enum { STEP = 1 << 18, PAGE = 1 << 12 };
	int cause = errno;
	char *from = block_start(block) + block->ready;
	size_t bytes = MIN((size_t)STEP, block->room - block->ready),
	       skip = -(uintptr_t)from % PAGE;
	if (bytes > skip)
		madvise(from + skip, bytes - skip, MADV_POPULATE_WRITE);
	block->ready += bytes;
	errno = cause;
#else
	block->ready = block->room;
#endif
}

static void *take_from(Block *block, size_t start, size_t bytes)
{
	enum { LARGE = 1 << 14 }; // bytes of an array that may never be full
	char *at = block_start(block) + start;
	ASAN_UNPOISON_MEMORY_REGION(at, bytes);
	block->used = start + bytes + GAP;
	while (bytes < LARGE && block->ready < MIN(block->used, block->room))
		make_ready(block);
	block->ready = MAX(block->ready, MIN(block->used, block->room));
	return at;
}

void *take(Arena *arena, size_t bytes)
{
	size_t align = bytes >= 64 ? 64 : bytes >= 16 ? 16 : 8;
	Block *block = arena->block;
	size_t start = block ? (block->used + align - 1) & ~(align - 1) : 0;
	arena->bytes += bytes;
	if (block && bytes <= block->room && start <= block->room - bytes)
		return take_from(block, start, bytes);
	// The first blocks are small, because calloc() clears them and many arenas take little.
	// Later ones are a quarter of all so far, so big graphs take few blocks.
	size_t least = MIN(FIRST + 3 * arena->bytes, (size_t)BLOCK),
	       room = MIN(MAX(arena->bytes / 4, least), (size_t)LIMIT);
	size_t size = MAX(bytes, room);
	spend(arena, COST_bytes, size);
	arena->held += size;
	// calloc() zeroes large blocks lazily but aligns to 16 only: 64 extra bytes allow aligning.
	Block *fresh = size < SIZE_MAX / 2 ? calloc(1, HEADER + size + 64) : NULL;
	if (!fresh)
		fail_status(STATUS_MACHINE, "memory", "out of memory: cannot allocate %zu bytes",
		            size);
	fresh->room = size;
	fresh->ready = size < BLOCK ? size : 0; // calloc() has cleared a small one
	ASAN_POISON_MEMORY_REGION(block_start(fresh), size);
	if (block && bytes > room / 2) { // its own block; the current one stays current
		fresh->next = block->next;
		block->next = fresh;
	} else {
		fresh->next = block;
		arena->block = fresh;
	}
	return take_from(fresh, 0, bytes);
}

void at_end(Arena *arena, void end(void *), void *what)
{
	End *e = NEW(arena, End);
	*e = (End){end, what, arena->ends};
	arena->ends = e;
}

void *take_copy(Arena *arena, const void *bytes, size_t count)
{
	void *copy = take(arena, count);
	if (count)
		memcpy(copy, bytes, count);
	return copy;
}

void *grow(Arena *arena, void *at, size_t item, int *room)
{
	int more = *room ? 2 * *room : 8;
	void *fresh = take(arena, item * (size_t)more);
	if (*room)
		memcpy(fresh, at, item * (size_t)*room);
	*room = more;
	return fresh;
}

// ---- budgets --------------------------------------------------------------------------
// Only counts decide, never a clock.

const CostInfo costs[COSTS] = {
#define COST(name, limit, node, byte) {#name, limit, node, byte},
#include "costs.def"
#undef COST
};

Budget *budget_new(Arena *arena)
{
	Budget *b = NEW(arena, Budget);
	b->times = 1;
	for (int c = 0; c < COSTS; c++)
		b->limit[c] = costs[c].limit;
	arena->budget = b;
	return b;
}

static uint64_t sum(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

uint64_t cost_product(uint64_t a, uint64_t b)
{
	return b && a > UINT64_MAX / b ? UINT64_MAX : a * b;
}

void allow(const Arena *arena, const char *file, uint64_t nodes, uint64_t bytes)
{
	Budget *b = arena->budget;
	if (!b)
		return;
	b->file = file;
	for (int c = 0; c < COSTS; c++)
		b->limit[c] = sum(b->limit[c], sum(cost_product(nodes, costs[c].node),
		                                   cost_product(bytes, costs[c].byte)));
}

void allow_more(const Arena *arena, uint64_t more)
{
	if (arena->budget)
		arena->budget->times += more;
}

void spend(const Arena *arena, Cost cost, uint64_t count)
{
	Budget *b = arena->budget;
	if (!b)
		return;
	if (count > cost_product(b->limit[cost], b->times) - b->spent[cost])
		fail_status(STATUS_LIMIT, b->file,
		            "needs more than %llu %s, the limit for a file of this size" HELP
		            "raise the limit with --limit %s=N if you trust the file",
		            (unsigned long long)b->limit[cost], costs[cost].name, costs[cost].name);
	b->spent[cost] += count;
}
