// threads.c: emulates the threads of a GPU.
// A thread runs until it waits for its warp (a shuffle), its warpgroup (a product) or its block (a
// barrier); when all wait, those whose peers are complete continue. Kernels call this file before
// each access to memory.
#include "threads.h"
#include "mma.h"
#include "shadow.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <math.h>
#include <string.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes)
#endif

enum {
	THREADS = 256,
	LIVE = 4, // blocks at once
	STACK = 64 << 10,
	SHARED = 227 << 10, // bytes of a block's own memory
	ARRAYS = 8,
	COPIES = 256,  // of a thread, under way
	PRODUCTS = 16, // of a warpgroup, under way
	GROUPS = THREADS / GROUP,
	PIECE = 16, // bytes
	SITES = 64  // barriers, fences and waits of a kernel
};

#define COPY UINT32_MAX // instead of a block: a copy under way

typedef enum Wait {
	READY,
	SHUFFLE,
	WARP_BARRIER,
	LOAD,
	MULTIPLY_F16,
	MULTIPLY_BF16,
	MULTIPLY_TF32,
	WAVE_F16, // AMD's
	WAVE_BF16,
	WAVE_F32,
	MULTIPLY_GROUP,
	BARRIER,
	DONE
} Wait;

typedef struct Product { // of a warpgroup: sums += a b
	uint64_t descriptor[2];
	int columns;
	bool turned[2], f16;
	bool held;   // a is in registers
	int waiting; // threads that have not waited for it
} Product;

typedef struct Copy { // to shared memory, under way
	char *to;
	const char *from;
	int32_t bytes, some; // the rest is 0
} Copy;

// ---- stacks ---------------------------------------------------------------------------

#if defined(__x86_64__)
// Saves the registers that a call keeps, and continues on another stack: swapcontext() would take
// most of the time.
typedef void *Stack;
void amos_gpu_switch(Stack *from, Stack *to);
__asm__(".text\n"
        "amos_gpu_switch:\n"
        "push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15\n"
        "mov %rsp, (%rdi); mov (%rsi), %rsp\n"
        "pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp\n"
        "ret\n");

static void stack_start(Stack *s, char *memory, size_t bytes, void (*run)(void))
{
	void **top = (void **)(void *)(memory + bytes) - 1; // as after a call
	memset(top - 7, 0, sizeof *top * 8);
	top[-1] = (void *)run;
	*s = top - 7;
}
#else
typedef ucontext_t Stack;
static void amos_gpu_switch(Stack *from, Stack *to)
{
	swapcontext(from, to);
}

static void stack_start(Stack *s, char *memory, size_t bytes, void (*run)(void))
{
	getcontext(s);
	s->uc_stack.ss_sp = memory;
	s->uc_stack.ss_size = bytes;
	makecontext(s, run, 0);
}
#endif

typedef struct Thread {
	Stack stack;
	Wait wait;
	int32_t value, distance, site;
	Lane lane;        // of MULTIPLY_
	const void *line; // of LOAD
	int32_t turned;
	uint32_t result[4];
	Copy copy[COPIES];
	int step[COPIES + 1], steps, copies; // step[i]: its first copy
	uint32_t fences, ordered;            // passed; before the last barrier
	uint32_t turns;                      // barriers of its warp, passed
	Product product;                     // of MULTIPLY_GROUP
	int begun, done;                     // products of its warpgroup
	int group[PRODUCTS], groups;         // groups not waited for: the products up to their ends
	bool fenced;                         // its sums are the warpgroup's
	bool releases;                       // what its next ticket's takers may see
	bool arrived;                        // has a ticket
} Thread;

typedef struct Ticket { // of a block
	uint32_t launch;
	const int32_t *count;
	int32_t number;
	uint32_t epoch, thread; // at the fence before it
} Ticket;

typedef struct Block {
	bool live;
	uint32_t number, life, epoch;
	Thread thread[THREADS];
	char shared[SHARED] __attribute__((aligned(1024)));
	uint8_t read[SHARED / PIECE]; // by how many products under way
	Ticket seen;                  // all before this one, from epoch and thread on
	float sum[GROUPS][GROUP][GROUP_COLUMNS / 2];
	Product product[GROUPS][PRODUCTS]; // product i is in i % PRODUCTS
	int64_t used;
	int arrays;
	struct {
		const void *of;
		char *at;
	} array[ARRAYS];
} Block;

static Block blocks[LIVE];
static Ticket *tickets; // by block
static uint32_t ntickets;
static char stack[LIVE][THREADS][STACK] __attribute__((aligned(64)));
static Stack scheduler;
static Block *block; // that runs now
static Thread *thread;
static uint32_t lives, launch, launched; // launched: blocks
static char *const *buffer;
static void (*kernel)(char *const *);
static char fault[256];  // what is wrong; empty: nothing
static int without = -1; // barrier or wait that is left out
static uint64_t sites;   // bit s: site s was reached

uint64_t gpu_seed;
int gpu_barriers, gpu_needed;

// ---- writes that are undone -----------------------------------------------------------

typedef struct Write {
	char *at, before[16];
	int bytes;
} Write;
static Write *writes;
static int nwrites, room;
static bool undoes;

static void remember_write(char *at, int bytes)
{
	if (nwrites == room)
		writes = realloc(writes, sizeof *writes * (size_t)(room = 2 * room + 1024));
	Write *w = &writes[nwrites++];
	w->at = at;
	w->bytes = bytes;
	memcpy(w->before, at, (size_t)bytes);
}

static void swap_write(Write *w)
{
	char now[sizeof w->before];
	memcpy(now, w->at, (size_t)w->bytes);
	memcpy(w->at, w->before, (size_t)w->bytes);
	memcpy(w->before, now, (size_t)w->bytes);
}

static void undo_writes(int from)
{
	for (int i = nwrites; i-- > from;)
		swap_write(&writes[i]);
}

static void redo_writes(void)
{
	for (int i = 0; i < nwrites; i++)
		swap_write(&writes[i]);
}

// ---- called by kernels ----------------------------------------------------------------

int32_t amos_gpu_thread(void);
int32_t amos_gpu_block(void);
void amos_gpu_barrier(int32_t site), amos_gpu_warp_barrier(int32_t site);
int32_t amos_gpu_shuffle(int32_t mask, int32_t value, int32_t distance, int32_t clamp);
void amos_gpu_read(uintptr_t at, int32_t bytes), amos_gpu_write(uintptr_t at, int32_t bytes);
void *amos_gpu_shared(const void *array, int64_t bytes, int64_t align);

static void wait_for(Wait what)
{
	thread->wait = what;
	amos_gpu_switch(&thread->stack, &scheduler);
}

static int number(void)
{
	return (int)(thread - block->thread);
}

// The first thing that is wrong ends the launch.
static __attribute__((format(printf, 1, 2))) void wrong(const char *format, ...)
{
	va_list list;
	va_start(list, format);
	vsnprintf(fault, sizeof fault, format, list);
	va_end(list);
	if (thread)
		wait_for(DONE);
}

int32_t amos_gpu_thread(void)
{
	return number();
}

int32_t amos_gpu_block(void)
{
	return (int32_t)block->number;
}

// True if the barrier, fence or wait is left out.
static bool is_left_out(int32_t site)
{
	if (site >= SITES)
		abort();
	sites |= (uint64_t)1 << site;
	return site == without;
}

void amos_gpu_barrier(int32_t site)
{
	if (is_left_out(site))
		return;
	thread->site = site;
	wait_for(BARRIER);
}

void amos_gpu_warp_barrier(int32_t site)
{
	if (!is_left_out(site))
		wait_for(WARP_BARRIER);
}

int32_t amos_gpu_shuffle(int32_t mask, int32_t value, int32_t distance, int32_t clamp)
{
	if (mask != -1 || clamp != WARP - 1)
		abort();
	thread->value = value;
	thread->distance = distance;
	wait_for(SHUFFLE);
	return thread->value;
}

// Returns the block's own copy of an array in shared memory.
void *amos_gpu_shared(const void *of, int64_t bytes, int64_t align)
{
	for (int k = 0; k < block->arrays; k++)
		if (block->array[k].of == of)
			return block->array[k].at;
	char *at = block->shared + (block->used + align - 1) / align * align;
	block->used = at + (bytes + 15) / 16 * 16 - block->shared;
	if (block->used > SHARED || block->arrays == ARRAYS) {
		wrong("%d bytes of shared memory", (int)block->used);
		return block->shared;
	}
	block->array[block->arrays].of = of;
	block->array[block->arrays++].at = at;
	return at;
}

static bool is_shared(uintptr_t at)
{
	return at >= (uintptr_t)block->shared && at < (uintptr_t)(block->shared + SHARED);
}

static Who who(uintptr_t at)
{
	uint32_t life = is_shared(at) ? block->life : launch;
	return (Who){life,           block->number, block->epoch, (uint32_t)number(),
	             thread->fences, thread->turns};
}

static __attribute__((noinline)) void race(bool writes_it, bool shared, const Who *other)
{
	const char *place = shared ? "shared memory" : "memory";
	if (!writes_it && other->thread == (uint32_t)number() && other->block == block->number)
		wrong("thread %d of block %u reads shared memory that is not written", number(),
		      block->number);
	if (other->block == COPY)
		wrong("thread %d of block %u uses shared memory before a copy to it is waited for",
		      number(), block->number);
	wrong(
	    "thread %d of block %u %s %s that thread %u of block %u uses, with no barrier between "
	    "(the last was %d)",
	    number(), block->number, writes_it ? "writes" : "reads", place, other->thread,
	    other->block, thread->site);
}

static inline void access_memory(uintptr_t at, int32_t bytes, bool writes_it)
{
	Who other, own = who(at);
	bool shared = is_shared(at);
	for (uintptr_t i = at; shared && writes_it && i < at + (uintptr_t)bytes; i += PIECE)
		if (block->read[(i - (uintptr_t)block->shared) / PIECE])
			wrong("thread %d of block %u writes shared memory that a product under way "
			      "reads",
			      number(), block->number);
	if (writes_it ? shadow_write(at, bytes, own, &other)
	    : shared  ? shadow_read_own(at, bytes, own, &other)
	              : shadow_read(at, bytes, own, &other))
		race(writes_it, shared, &other);
}

void amos_gpu_read(uintptr_t at, int32_t bytes)
{
	access_memory(at, bytes, false);
}

void amos_gpu_write(uintptr_t at, int32_t bytes)
{
	access_memory(at, bytes, true);
	if (undoes && !is_shared(at))
		remember_write((char *)at, bytes);
}

// ---- counts of blocks -------------------------------------------------------------------

void amos_gpu_fence(int32_t site);
int32_t amos_gpu_ticket(int32_t *count);

// Before a ticket, lets others see what the thread, and others before a barrier, have done; after
// it, lets the thread, and others after a barrier, see what those with tickets before have.
void amos_gpu_fence(int32_t site)
{
	if (is_left_out(site))
		return;
	thread->releases = true;
	if (thread->arrived) {
		block->seen = tickets[block->number];
		block->seen.epoch = block->epoch;
		block->seen.thread = (uint32_t)number();
	}
}

int32_t amos_gpu_ticket(int32_t *count)
{
	uint32_t own = block->number;
	if (own >= ntickets) {
		tickets = realloc(tickets, sizeof *tickets * (2 * own + 1));
		memset(tickets + ntickets, 0, sizeof *tickets * (2 * own + 1 - ntickets));
		ntickets = 2 * own + 1;
	}
	if (tickets[own].launch == launch)
		wrong("block %u takes two tickets", own);
	if (undoes)
		remember_write((char *)count, sizeof *count);
	// Without a fence, nobody sees what the block has done.
	tickets[own] = (Ticket){launch, count, *count, thread->releases ? block->epoch : 0,
	                        thread->releases ? (uint32_t)number() : UINT32_MAX};
	thread->arrived = true;
	return (*count)++;
}

bool is_ordered(const Who *before, const Who *now)
{
	if (before->block >= ntickets || now->life != launch)
		return false;
	const Ticket *its = &tickets[before->block], *seen = &block->seen;
	return its->launch == launch && seen->launch == launch && its->count == seen->count &&
	       its->number < seen->number &&
	       (before->epoch < its->epoch || before->thread == its->thread) &&
	       (now->epoch > seen->epoch || now->thread == seen->thread);
}

bool is_after_all(const Who *now)
{
	for (uint32_t b = 0; b < launched; b++) {
		const Who other = {.life = launch, .block = b};
		if (b != now->block && !is_ordered(&other, now))
			return false;
	}
	return true;
}

// ---- matrix instructions, and copies to shared memory ---------------------------------

void amos_gpu_ldmatrix(const void *line, int32_t turned);
void amos_gpu_mma_f16(uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, float, float,
                      float, float);
void amos_gpu_mma_bf16(uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, float, float,
                       float, float);
void amos_gpu_mma_tf32(uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, float, float,
                       float, float);
void amos_gpu_mfma_f16(uint64_t, uint64_t, float, float, float, float);
void amos_gpu_mfma_bf16(uint64_t, uint64_t, float, float, float, float);
void amos_gpu_mfma_f32(float, float, float, float, float, float);
uint32_t amos_gpu_tf32(float);
float amos_gpu_exp2(float);
uint32_t amos_gpu_result(int32_t i);
void amos_gpu_copy(char *to, const char *from, int32_t bytes, int32_t some);
void amos_gpu_commit(void), amos_gpu_wait(int32_t most, int32_t site);

void amos_gpu_ldmatrix(const void *line, int32_t turned)
{
	access_memory((uintptr_t)line, 16, false);
	thread->line = line;
	thread->turned = turned;
	wait_for(LOAD);
}

void amos_gpu_mma_f16(uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1,
                      float c0, float c1, float c2, float c3)
{
	thread->lane = (Lane){{a0, a1, a2, a3}, {b0, b1}, {c0, c1, c2, c3}};
	wait_for(MULTIPLY_F16);
}

void amos_gpu_mma_bf16(uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1,
                       float c0, float c1, float c2, float c3)
{
	thread->lane = (Lane){{a0, a1, a2, a3}, {b0, b1}, {c0, c1, c2, c3}};
	wait_for(MULTIPLY_BF16);
}

void amos_gpu_mma_tf32(uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1,
                       float c0, float c1, float c2, float c3)
{
	thread->lane = (Lane){{a0, a1, a2, a3}, {b0, b1}, {c0, c1, c2, c3}};
	wait_for(MULTIPLY_TF32);
}

static void multiply_halves(uint64_t a, uint64_t b, const float *c, Wait wait)
{
	thread->lane = (Lane){.c = {c[0], c[1], c[2], c[3]}};
	memcpy(thread->lane.a, &a, sizeof a);
	memcpy(thread->lane.b, &b, sizeof b);
	wait_for(wait);
}

void amos_gpu_mfma_f16(uint64_t a, uint64_t b, float c0, float c1, float c2, float c3)
{
	multiply_halves(a, b, (float[]){c0, c1, c2, c3}, WAVE_F16);
}

void amos_gpu_mfma_bf16(uint64_t a, uint64_t b, float c0, float c1, float c2, float c3)
{
	multiply_halves(a, b, (float[]){c0, c1, c2, c3}, WAVE_BF16);
}

void amos_gpu_mfma_f32(float a, float b, float c0, float c1, float c2, float c3)
{
	thread->lane = (Lane){.c = {c0, c1, c2, c3}};
	memcpy(thread->lane.a, &a, sizeof a);
	memcpy(thread->lane.b, &b, sizeof b);
	wait_for(WAVE_F32);
}

uint32_t amos_gpu_tf32(float x)
{
	return round_tf32(x);
}

float amos_gpu_exp2(float x)
{
	return exp2f(x);
}

uint32_t amos_gpu_result(int32_t i)
{
	return thread->result[i];
}

// Nobody may use what the copy writes until it is waited for: its bytes are written at both ends,
// and meanwhile are another's.
void amos_gpu_copy(char *to, const char *from, int32_t bytes, int32_t some)
{
	Who other, nobody = who((uintptr_t)to);
	if (((uintptr_t)to | (uintptr_t)from) % (uintptr_t)bytes || !is_shared((uintptr_t)to) ||
	    thread->copies == COPIES)
		wrong("a copy of %d bytes to %p", bytes, (void *)to);
	if (some)
		access_memory((uintptr_t)from, some, false);
	access_memory((uintptr_t)to, bytes, true);
	nobody.block = COPY; // no barrier orders it
	shadow_write((uintptr_t)to, bytes, nobody, &other);
	thread->copy[thread->copies++] = (Copy){to, from, bytes, some};
}

void amos_gpu_commit(void)
{
	if (thread->steps == COPIES)
		wrong("too many steps of copies");
	thread->step[thread->steps++] = thread->copies;
}

static void finish_copy(const Copy *c)
{
	shadow_clear((uintptr_t)c->to, c->bytes);
	access_memory((uintptr_t)c->to, c->bytes, true);
	memset(c->to, 0, (size_t)c->bytes);
	memcpy(c->to, c->from, (size_t)c->some);
}

void amos_gpu_wait(int32_t most, int32_t site)
{
	if (is_left_out(site))
		return;
	int done = thread->steps > most ? thread->steps - most : 0;
	int copies = done ? thread->step[done - 1] : 0;
	for (int i = 0; i < copies; i++)
		finish_copy(&thread->copy[i]);
	thread->copies -= copies;
	thread->steps -= done;
	memmove(thread->copy, thread->copy + copies, sizeof(Copy) * (size_t)thread->copies);
	for (int i = 0; i < thread->steps; i++)
		thread->step[i] = thread->step[i + done] - copies;
}

// ---- matrix instructions of warpgroups --------------------------------------------------

int32_t amos_gpu_address(const char *at);
void amos_gpu_set_sum(int32_t i, float x), amos_gpu_sums_fence(int32_t site);
float amos_gpu_sum(int32_t i);
void amos_gpu_commit_sums(void), amos_gpu_sums_wait(int32_t most, int32_t site);
void amos_gpu_proxy_fence(int32_t site);
void amos_gpu_wgmma(const void *shared, uint64_t a, uint64_t b, int32_t columns, int32_t turned,
                    int32_t f16);
void amos_gpu_wgmma_held(const void *shared, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                         uint64_t b, int32_t columns, int32_t turned, int32_t f16);

int32_t amos_gpu_address(const char *at)
{
	return (int32_t)(at - block->shared);
}

static float *own_sum(int32_t i)
{
	if (thread->begun > thread->done)
		wrong("thread %d of block %u uses sums of products under way", number(),
		      block->number);
	return &block->sum[number() / GROUP][number() % GROUP][i];
}

void amos_gpu_set_sum(int32_t i, float x)
{
	*own_sum(i) = x;
	thread->fenced = false;
}

float amos_gpu_sum(int32_t i)
{
	return *own_sum(i);
}

void amos_gpu_sums_fence(int32_t site)
{
	if (!is_left_out(site))
		thread->fenced = true;
}

// Orders the thread's writes of shared memory before what warpgroups read, from the next barrier
// on.
void amos_gpu_proxy_fence(int32_t site)
{
	if (!is_left_out(site))
		thread->fences++;
}

static void multiply_group(Product p)
{
	if (!thread->fenced)
		wrong("thread %d of block %u multiplies without a fence of its sums", number(),
		      block->number);
	p.waiting = GROUP;
	thread->product = p;
	thread->begun++;
	wait_for(MULTIPLY_GROUP);
}

void amos_gpu_wgmma(const void *shared, uint64_t a, uint64_t b, int32_t columns, int32_t turned,
                    int32_t f16)
{
	(void)shared; // which the compiler then knows to be read
	multiply_group((Product){{a, b}, columns, {turned & 1, turned >> 1}, f16, .held = false});
}

void amos_gpu_wgmma_held(const void *shared, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                         uint64_t b, int32_t columns, int32_t turned, int32_t f16)
{
	(void)shared;
	thread->lane = (Lane){.a = {a0, a1, a2, a3}};
	multiply_group((Product){{0, b}, columns, {false, turned >> 1}, f16, .held = true});
}

void amos_gpu_commit_sums(void)
{
	if (thread->groups == PRODUCTS)
		wrong("too many groups of products");
	thread->group[thread->groups++] = thread->begun;
}

// Returns the pieces of shared memory that operand o of a product has, and how many.
static int pieces_of(const Product *p, int o, int *piece)
{
	if (!o && p->held)
		return 0;
	return wgmma_pieces(p->descriptor[o], o ? p->columns : GROUP_ROWS, p->turned[o], piece);
}

static bool is_hidden(const Who *writer) // from warpgroups
{
	return writer->fences >= block->thread[writer->thread].ordered;
}

// A product reads for its whole warpgroup, as one more thread: finds out if that races.
static void read_operands(const Product *p, int group)
{
	int piece[GROUP_PIECES];
	Who other, own = {.life = block->life,
	                  .block = block->number,
	                  .epoch = block->epoch,
	                  .thread = (uint32_t)(THREADS + group)};
	for (int o = 0; o < 2 && !*fault; o++)
		for (int i = pieces_of(p, o, piece); i-- > 0 && !*fault;) {
			uintptr_t at = (uintptr_t)block->shared + (uintptr_t)piece[i] * PIECE;
			if (shadow_read_own(at, PIECE, own, &other))
				wrong("a product of block %u reads shared memory that %s",
				      block->number,
				      other.block == COPY ? "copies under way write"
				      : other.thread >= THREADS
				          ? "is not written"
				          : "a thread writes, with no barrier between");
			else if (shadow_written(at, PIECE, is_hidden))
				wrong("a product of block %u reads shared memory that a thread "
				      "wrote, with no fence and barrier after",
				      block->number);
		}
}

// Marks what a product reads as so while it is under way.
static void mark_operands(const Product *p, int change)
{
	int piece[GROUP_PIECES];
	for (int o = 0; o < 2; o++)
		for (int i = pieces_of(p, o, piece); i-- > 0;)
			block->read[piece[i]] = (uint8_t)(block->read[piece[i]] + change);
}

static bool is_product(const Product *p)
{
	int piece[GROUP_PIECES];
	for (int o = 0; o < 2; o++) {
		int n = pieces_of(p, o, piece);
		for (int i = 0; i < n; i++)
			if (piece[i] >= SHARED / PIECE)
				return false;
		if (n < 0)
			return false;
	}
	return true;
}

static void begin_product(Product *p, int group)
{
	if (p->waiting)
		wrong("block %u has more than %d products under way", block->number, PRODUCTS);
	const Thread *first = &block->thread[group * GROUP];
	*p = first->product;
	for (int t = 1; t < GROUP; t++) {
		const Product *own = &first[t].product;
		if (own->descriptor[0] != p->descriptor[0] ||
		    own->descriptor[1] != p->descriptor[1])
			wrong("threads of a warpgroup of block %u multiply other matrices",
			      block->number);
	}
	if (!is_product(p))
		wrong("descriptors %llx and %llx", (unsigned long long)p->descriptor[0],
		      (unsigned long long)p->descriptor[1]);
	if (*fault)
		return;
	read_operands(p, group);
	mark_operands(p, 1);
	Lane held[GROUP];
	for (int t = 0; t < GROUP; t++)
		held[t] = first[t].lane;
	wgmma(block->shared, p->descriptor, p->held ? held : NULL, p->columns, p->turned, p->f16,
	      block->sum[group]);
}

void amos_gpu_sums_wait(int32_t most, int32_t site)
{
	int group = number() / GROUP, groups = thread->groups - most;
	if (is_left_out(site) || groups <= 0)
		return;
	int end = thread->group[groups - 1];
	thread->groups = most;
	memmove(thread->group, thread->group + groups, sizeof *thread->group * (size_t)most);
	for (; thread->done < end; thread->done++) {
		Product *p = &block->product[group][thread->done % PRODUCTS];
		if (--p->waiting)
			continue;
		mark_operands(p, -1);
		read_operands(p, group); // until now
	}
}

// ---- scheduling -----------------------------------------------------------------------

static void thread_main(void)
{
	kernel(buffer);
	wait_for(DONE);
}

static bool all_wait(const Block *b, int from, int to, Wait what)
{
	for (int t = from; t < to; t++)
		if (b->thread[t].wait != what)
			return false;
	return true;
}

static void shuffle(Thread *warp)
{
	int32_t value[WARP];
	for (int l = 0; l < WARP; l++)
		value[l] = warp[(l ^ warp[l].distance) % WARP].value;
	for (int l = 0; l < WARP; l++)
		warp[l].value = value[l];
}

static void pass_barrier(Thread *warp)
{
	for (int l = 0; l < WARP; l++)
		warp[l].turns++;
}

// Eight lines of 16 bytes come at once if they lie in different banks.
static void load_matrices(Thread *warp)
{
	const void *line[WARP];
	uint32_t result[WARP][4], banks[4] = {0};
	for (int l = 0; l < WARP; l++) {
		line[l] = warp[l].line;
		banks[l / 8] |= 1u << (uintptr_t)line[l] / 16 % 8;
	}
	for (int matrix = 0; matrix < 4; matrix++)
		if (banks[matrix] != 0xFF)
			wrong("ldmatrix reads lines in the same banks");
	mma_load(line, warp->turned, result);
	for (int l = 0; l < WARP; l++)
		memcpy(warp[l].result, result[l], sizeof result[l]);
}

static void multiply(Thread *warp, int lanes, void (*matrices)(Lane *))
{
	Lane lane[WAVE_LANES];
	for (int l = 0; l < lanes; l++)
		lane[l] = warp[l].lane;
	matrices(lane);
	for (int l = 0; l < lanes; l++)
		memcpy(warp[l].result, lane[l].c, sizeof lane[l].c);
}

static void multiply_f16(Thread *warp)
{
	multiply(warp, WARP, mma_f16);
}

static void multiply_bf16(Thread *warp)
{
	multiply(warp, WARP, mma_bf16);
}

static void multiply_tf32(Thread *warp)
{
	multiply(warp, WARP, mma_tf32);
}

static void wave_f16(Thread *wave)
{
	multiply(wave, WAVE_LANES, mfma_f16);
}

static void wave_bf16(Thread *wave)
{
	multiply(wave, WAVE_LANES, mfma_bf16);
}

static void wave_f32(Thread *wave)
{
	multiply(wave, WAVE_LANES, mfma_f32);
}

static bool release_group(Block *b, int group)
{
	Thread *first = &b->thread[group * GROUP];
	if (!all_wait(b, group * GROUP, (group + 1) * GROUP, MULTIPLY_GROUP))
		return false;
	block = b;
	begin_product(&b->product[group][(first->begun - 1) % PRODUCTS], group);
	for (int t = 0; t < GROUP; t++)
		first[t].wait = READY;
	return true;
}

static bool release_warp(Block *b, int from)
{
	static void (*const done[])(Thread *) = {[SHUFFLE] = shuffle,
	                                         [WARP_BARRIER] = pass_barrier,
	                                         [LOAD] = load_matrices,
	                                         [MULTIPLY_F16] = multiply_f16,
	                                         [MULTIPLY_BF16] = multiply_bf16,
	                                         [MULTIPLY_TF32] = multiply_tf32,
	                                         [WAVE_F16] = wave_f16,
	                                         [WAVE_BF16] = wave_bf16,
	                                         [WAVE_F32] = wave_f32};
	Thread *warp = &b->thread[from];
	Wait what = warp->wait;
	int lanes = what < WAVE_F16 ? WARP : WAVE_LANES;
	if (what == READY || what > WAVE_F32 || from % lanes ||
	    !all_wait(b, from, from + lanes, what))
		return false;
	done[what](warp);
	for (int l = 0; l < lanes; l++)
		warp[l].wait = READY;
	return true;
}

// Lets the threads continue whose peers have come. False: no thread of the block can.
static bool release(Block *b)
{
	bool any = false;
	for (int from = 0; from < THREADS; from += WARP)
		any |= release_warp(b, from);
	for (int group = 0; group < GROUPS; group++)
		any |= release_group(b, group);
	if (all_wait(b, 0, THREADS, DONE)) {
		b->live = false;
		return true;
	}
	if (!all_wait(b, 0, THREADS, BARRIER))
		return any;
	for (int t = 0; t < THREADS; t++) {
		if (b->thread[t].site != b->thread[0].site)
			return false;
		b->thread[t].wait = READY;
		b->thread[t].ordered = b->thread[t].fences;
	}
	b->epoch++;
	return true;
}

static void start_block(int slot, uint32_t block_number)
{
	Block *b = &blocks[slot];
	b->live = true;
	b->number = block_number;
	b->life = ++lives;
	b->epoch = 0;
	b->used = b->arrays = 0;
	memset(b->read, 0, sizeof b->read);
	memset(b->product, 0, sizeof b->product);
	for (int t = 0; t < THREADS; t++) {
		ASAN_UNPOISON_MEMORY_REGION(stack[slot][t], STACK);
		stack_start(&b->thread[t].stack, stack[slot][t], STACK, thread_main);
		b->thread[t].wait = READY;
		b->thread[t].site = -1;
		b->thread[t].turns = 0;
		b->thread[t].steps = b->thread[t].copies = 0;
		b->thread[t].begun = b->thread[t].done = b->thread[t].groups = 0;
		b->thread[t].fences = b->thread[t].ordered = 0;
		b->thread[t].fenced = b->thread[t].releases = b->thread[t].arrived = false;
	}
}

static uint32_t next_random(void)
{
	gpu_seed = gpu_seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(gpu_seed >> 33);
}

// Every thread that can runs once, in a random order.
static void run_ready(void)
{
	enum { ALL = LIVE * THREADS };
	uint32_t from = next_random(), step = next_random() | 1;
	for (uint32_t k = 0; k < ALL && !*fault; k++) {
		uint32_t at = (from + k * step) % ALL;
		block = &blocks[at / THREADS];
		thread = &block->thread[at % THREADS];
		if (block->live && thread->wait == READY)
			amos_gpu_switch(&scheduler, &thread->stack);
	}
	thread = NULL;
}

// Counts are 0 between launches.
static void check_counts(void)
{
	for (uint32_t b = 0; b < ntickets && !*fault; b++)
		if (tickets[b].launch == launch && *tickets[b].count)
			wrong("the count of block %u is %d after the launch", b, *tickets[b].count);
}

// Returns what is wrong, or NULL.
static const char *run_launch(const struct amos_kernel *row)
{
	int64_t started = 0;
	bool backward = next_random() & 1;
	*fault = 0;
	launch = ++lives;
	launched = (uint32_t)row->workers;
	for (bool live = true; live && !*fault;) {
		live = false;
		for (int slot = 0; slot < LIVE; slot++) {
			if (!blocks[slot].live && started < row->workers) {
				int64_t n = backward ? row->workers - 1 - started : started;
				start_block(slot, (uint32_t)n);
				started++;
			}
			live |= blocks[slot].live;
		}
		run_ready();
		for (int slot = 0; slot < LIVE && !*fault; slot++)
			if (blocks[slot].live && !release(&blocks[slot]))
				wrong("a barrier or shuffle that not all threads reach");
	}
	for (int slot = 0; slot < LIVE; slot++)
		blocks[slot].live = false;
	check_counts();
	return *fault ? fault : NULL;
}

static void set_kernel(const struct amos_kernel *row, char *const *buf)
{
	kernel = (void (*)(char *const *))(void *)row->code;
	buffer = buf;
}

static int report(const struct amos_kernel *row, const char *what)
{
	if (what)
		printf("%s %s: %s\n", row->name, row->shape, what);
	return what != NULL;
}

int gpu_launch(const struct amos_run *run, const struct amos_kernel *row, char *const *buf)
{
	(void)run;
	set_kernel(row, buf);
	return report(row, run_launch(row));
}

// ---- without one barrier or wait --------------------------------------------------------------

static void **known; // kernels
static int nknown;

static bool is_known(void *code)
{
	for (int k = 0; k < nknown; k++)
		if (known[k] == code)
			return true;
	known = realloc(known, sizeof *known * (size_t)(nknown + 1));
	known[nknown++] = code;
	return false;
}

int gpu_launch_without(const struct amos_run *run, const struct amos_kernel *row, char *const *buf)
{
	if (is_known((void *)row->code))
		return gpu_launch(run, row, buf);
	set_kernel(row, buf);
	undoes = true;
	nwrites = 0;
	sites = 0;
	int status = report(row, run_launch(row));
	uint64_t all = status ? 0 : sites;
	int base = nwrites;
	if (all)
		undo_writes(0);
	for (without = 0; without < SITES; without++) {
		if (!(all >> without & 1))
			continue;
		gpu_barriers++;
		if (run_launch(row))
			gpu_needed++;
		else
			printf("%s %s: barrier or wait %d is not needed\n", row->name, row->shape,
			       without);
		undo_writes(base);
		nwrites = base;
	}
	if (all)
		redo_writes();
	without = -1;
	undoes = false;
	return status;
}

void gpu_forget(void)
{
	shadow_free();
	free(writes);
	free(known);
	free(tickets);
	writes = NULL;
	known = NULL;
	tickets = NULL;
	nwrites = room = nknown = 0;
	ntickets = 0;
}
