// shadow.c: records who read and wrote each byte of memory last.
// A cell is for four bytes, until a page has an access of fewer.
#include "shadow.h"
#include <stdlib.h>
#include <string.h>

enum { NONE, OF_WARP, OF_OTHERS }; // of the warp, since its own barrier; of other warps
enum { PAGE = 4096, WORD = 4, BUCKETS = 4096, RECENT = 256 };

typedef struct Cell {
	Who write, read;          // the last
	uint32_t threads, blocks; // other readers: since the last barrier; ever
} Cell;

typedef struct Page {
	struct Page *next;
	uintptr_t number;
	int unit; // bytes of a cell
	Cell *cell;
} Page;

static Page *bucket[BUCKETS], *recent[RECENT];

static Page *find_page(uintptr_t number)
{
	Page **at = &bucket[number % BUCKETS];
	for (Page *p = *at; p; p = p->next)
		if (p->number == number)
			return p;
	Page *p = calloc(1, sizeof *p);
	*p = (Page){*at, number, WORD, calloc(PAGE / WORD, sizeof(Cell))};
	return *at = p;
}

static inline Page *page_of(uintptr_t number)
{
	Page **known = &recent[number % RECENT];
	if (!*known || (*known)->number != number)
		*known = find_page(number);
	return *known;
}

static void split(Page *p)
{
	Cell *cell = calloc(PAGE, sizeof *cell);
	for (int i = 0; i < PAGE; i++)
		cell[i] = p->cell[i / p->unit];
	free(p->cell);
	p->cell = cell;
	p->unit = 1;
}

// Calls `visit` for each cell of the bytes. True if one of the calls is.
static inline __attribute__((always_inline)) bool
visit_cells(uintptr_t at, int bytes, bool (*visit)(Cell *, Who, Who *), Who who, Who *other)
{
	bool any = false;
	for (uintptr_t end = at + (uintptr_t)bytes; at < end;) {
		Page *p = page_of(at / PAGE);
		if (p->unit > 1 && (at % WORD || end - at < WORD))
			split(p);
		any |= visit(&p->cell[at % PAGE / (uintptr_t)p->unit], who, other);
		at += (uintptr_t)p->unit;
	}
	return any;
}

static bool same_epoch(const Who *a, const Who *b)
{
	return a->block == b->block && a->epoch == b->epoch;
}

static bool same_warp(const Who *a, const Who *b)
{
	return a->thread / WARP == b->thread / WARP;
}

// True if threads of a block do both without a barrier in between.
static bool same_turn(const Who *a, const Who *b)
{
	return a->epoch == b->epoch && (!same_warp(a, b) || a->turn == b->turn);
}

static bool after_write(const Cell *c, Who who, Who *other)
{
	const Who *w = &c->write;
	bool races = w->life == who.life &&
	             (w->block != who.block ? !is_ordered(w, &who)
	                                    : same_turn(w, &who) && w->thread != who.thread);
	if (races)
		*other = *w;
	return races;
}

// Returns which other threads of the block have read the cell, once one more has.
static uint32_t other_readers(const Cell *c, const Who *who)
{
	if (!same_epoch(&c->read, who))
		return NONE;
	if (c->threads == OF_OTHERS || !same_warp(&c->read, who))
		return OF_OTHERS;
	bool others = c->threads == OF_WARP || c->read.thread != who->thread;
	return others && c->read.turn == who->turn ? OF_WARP : NONE;
}

static bool read_cell(Cell *c, Who who, Who *other)
{
	bool races = after_write(c, who, other);
	bool again = c->read.life == who.life;
	c->blocks = again && (c->blocks || c->read.block != who.block);
	c->threads = again ? other_readers(c, &who) : NONE;
	c->read = who;
	return races;
}

static bool after_reads(const Cell *c, Who who, Who *other)
{
	const Who *r = &c->read;
	bool races = r->block != who.block ? !is_ordered(r, &who)
	             : c->threads == OF_OTHERS
	                 ? r->epoch == who.epoch
	                 : same_turn(r, &who) && (c->threads || r->thread != who.thread);
	races = r->life == who.life && (races || (c->blocks && !is_after_all(&who)));
	if (races)
		*other = *r;
	return races;
}

static bool write_cell(Cell *c, Who who, Who *other)
{
	bool races = after_write(c, who, other);
	races |= after_reads(c, who, other);
	c->write = who;
	return races;
}

bool shadow_read(uintptr_t at, int bytes, Who who, Who *other)
{
	return visit_cells(at, bytes, read_cell, who, other);
}

static inline bool is_read(const Cell *c, const Who *who) // by several warps, since the barrier
{
	return c->threads == OF_OTHERS && c->read.life == who->life && same_epoch(&c->read, who);
}

static bool read_own_cell(Cell *c, Who who, Who *other)
{
	if (is_read(c, &who))
		return false;
	bool unwritten = c->write.life != who.life;
	if (unwritten)
		*other = who;
	return read_cell(c, who, other) || unwritten;
}

bool shadow_read_own(uintptr_t at, int bytes, Who who, Who *other)
{
	return visit_cells(at, bytes, read_own_cell, who, other);
}

bool shadow_write(uintptr_t at, int bytes, Who who, Who *other)
{
	return visit_cells(at, bytes, write_cell, who, other);
}

bool shadow_written(uintptr_t at, int bytes, bool (*is)(const Who *))
{
	for (uintptr_t end = at + (uintptr_t)bytes; at < end;) {
		const Page *p = page_of(at / PAGE);
		if (is(&p->cell[at % PAGE / (uintptr_t)p->unit].write))
			return true;
		at += (uintptr_t)p->unit;
	}
	return false;
}

static bool clear_cell(Cell *c, Who who, Who *other)
{
	(void)who, (void)other;
	*c = (Cell){.write = {0}};
	return false;
}

void shadow_clear(uintptr_t at, int bytes)
{
	visit_cells(at, bytes, clear_cell, (Who){0}, NULL);
}

void shadow_free(void)
{
	for (int i = 0; i < BUCKETS; i++)
		for (Page *p = bucket[i], *next; p; p = next) {
			next = p->next;
			free(p->cell);
			free(p);
		}
	memset(bucket, 0, sizeof bucket);
	memset(recent, 0, sizeof recent);
}
