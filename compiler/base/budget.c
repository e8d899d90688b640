// budget.c: limits the cost of a file, so that a small file cannot take all time or memory.
// Invariant: only counts decide, never a clock.
#include "base.h"

typedef struct Rate { // a row of costs.def
	uint64_t limit, node, byte;
} Rate;

static const Rate rates[COSTS] = {
#define COST(name, limit, node, byte) {limit, node, byte},
#include "costs.def"
#undef COST
};

const char *const cost_names[COSTS] = {
#define COST(name, ...) #name,
#include "costs.def"
#undef COST
};

Budget *budget_new(Arena *arena)
{
	Budget *b = NEW(arena, Budget);
	for (int c = 0; c < COSTS; c++)
		b->limit[c] = rates[c].limit;
	arena_limit(arena, b);
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
	Budget *b = arena_budget(arena);
	if (!b)
		return;
	b->file = file;
	for (int c = 0; c < COSTS; c++)
		b->limit[c] = sum(b->limit[c], sum(cost_product(nodes, rates[c].node),
		                                   cost_product(bytes, rates[c].byte)));
}

void spend(const Arena *arena, Cost cost, uint64_t count)
{
	Budget *b = arena_budget(arena);
	if (!b)
		return;
	if (count > b->limit[cost] - b->spent[cost])
		fail_status(STATUS_LIMIT, b->file,
		            "needs more than %llu %s, the limit for a file of this size" HELP
		            "raise the limit with --limit %s=N if you trust the file",
		            (unsigned long long)b->limit[cost], cost_names[cost], cost_names[cost]);
	b->spent[cost] += count;
}
