// threads.c: emulates the threads of a GPU block.
// A thread runs until it waits for its warp (a shuffle) or its block (a barrier); when all wait,
// those whose peers are complete continue. A deadlock is a bug of the kernel.
#include "threads.h"
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

enum { THREADS = 256, WARP = 32, STACK = 64 << 10 };

typedef enum Wait { READY, SHUFFLE, BARRIER, DONE } Wait;

typedef struct Thread {
	ucontext_t context;
	Wait wait;
	int32_t value, distance;
} Thread;

static Thread thread[THREADS];
static char stack[THREADS][STACK] __attribute__((aligned(64)));
static ucontext_t scheduler;
static int now;
static int64_t block;
static char *const *buffer;
static void (*kernel)(char *const *);

bool gpu_backward;

// ---- called by kernels ----------------------------------------------------------------

int32_t amos_gpu_thread(void);
int32_t amos_gpu_block(void);
void amos_gpu_barrier(void);
int32_t amos_gpu_shuffle(int32_t mask, int32_t value, int32_t distance, int32_t clamp);

static void wait_for(Wait what)
{
	thread[now].wait = what;
	swapcontext(&thread[now].context, &scheduler);
}

int32_t amos_gpu_thread(void)
{
	return now;
}

int32_t amos_gpu_block(void)
{
	return (int32_t)block;
}

void amos_gpu_barrier(void)
{
	wait_for(BARRIER);
}

int32_t amos_gpu_shuffle(int32_t mask, int32_t value, int32_t distance, int32_t clamp)
{
	if (mask != -1 || clamp != WARP - 1)
		abort();
	Thread *t = &thread[now];
	t->value = value;
	t->distance = distance;
	wait_for(SHUFFLE);
	return t->value;
}

// ---- scheduling -----------------------------------------------------------------------

static void thread_main(void)
{
	kernel(buffer);
	thread[now].wait = DONE;
}

static bool all_wait(int from, int to, Wait what)
{
	for (int t = from; t < to; t++)
		if (thread[t].wait != what)
			return false;
	return true;
}

static bool release_warp(int from)
{
	int32_t value[WARP];
	if (!all_wait(from, from + WARP, SHUFFLE))
		return false;
	for (int l = 0; l < WARP; l++)
		value[l] = thread[from + (l ^ thread[from + l].distance)].value;
	for (int l = 0; l < WARP; l++) {
		thread[from + l].value = value[l];
		thread[from + l].wait = READY;
	}
	return true;
}

static bool release(void)
{
	bool any = false;
	for (int from = 0; from < THREADS; from += WARP)
		any |= release_warp(from);
	if (!all_wait(0, THREADS, BARRIER))
		return any;
	for (int t = 0; t < THREADS; t++)
		thread[t].wait = READY;
	return true;
}

static void make_ready(int t)
{
	ucontext_t *context = &thread[t].context;
	getcontext(context);
	context->uc_stack.ss_sp = stack[t];
	context->uc_stack.ss_size = STACK;
	context->uc_link = &scheduler;
	makecontext(context, thread_main, 0);
	thread[t].wait = READY;
}

static void run_block(void)
{
	for (int t = 0; t < THREADS; t++)
		make_ready(t);
	while (!all_wait(0, THREADS, DONE)) {
		for (int k = 0; k < THREADS; k++) {
			now = gpu_backward ? THREADS - 1 - k : k;
			if (thread[now].wait == READY)
				swapcontext(&scheduler, &thread[now].context);
		}
		if (!all_wait(0, THREADS, DONE) && !release()) {
			fputs("threads: a barrier or shuffle that not all threads reach\n", stderr);
			abort();
		}
	}
}

int gpu_launch(const struct amos_run *run, const struct amos_kernel *row, char *const *buf)
{
	(void)run;
	kernel = (void (*)(char *const *))(void *)row->code;
	buffer = buf;
	for (block = 0; block < row->workers; block++)
		run_block();
	return 0;
}
