// pool.c: distributes the workers of a launch over threads.
// A launch ends when its workers are done, even if a thread that lost its core has not come back.
// The pool works without threads that could not be started.
//
// Each thread has a range of the workers, the same part of every launch: what a launch reads again,
// such as a weight in a loop, is still in the thread's own cache. When its range is done, a thread
// helps with those of others. It claims a share of what is left of a range, so shares shrink
// toward the end and all threads end at about the same time. Of workers that gain from one call, a
// thread claims most of its own range at once, and leaves the rest for whoever comes first, unless
// that would cost more. A thread that waits, for a launch or for its end, spins at first, since the
// wait is often short, and then sleeps: a spinning thread takes a core from other processes, or
// from the thread it waits for.
#include "float_mode.h"
#include "rt.h"
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	LINE = 64,                   // bytes of a cache line
	PARTS = 8,                   // a thread claims its share of what is left in so many parts
	GANG_PARTS = 4,              // of its own gangs it claims all but one of so many parts
	STACK = 1 << 20,             // bytes; kernels use local memory instead
	SPIN = 50 * 1000,            // nanoseconds until a waiting thread sleeps
	PLACED = 1000 * 1000 * 1000, // nanoseconds of launches until the system may move a helper
	LOOKS = 64,                  // between two readings of the clock
};

enum { FUTEX_WAIT_PRIVATE = 128, FUTEX_WAKE_PRIVATE = 129 }; // of the kernel; see futex(2)

#if defined(__x86_64__) || defined(__i386__)
#define cpu_relax() __builtin_ia32_pause()
#elif defined(__aarch64__) || defined(__arm__)
#define cpu_relax() __asm__ volatile("yield")
#elif defined(__riscv)
#define cpu_relax() __asm__ volatile(".4byte 0x0100000F") // pause, which older assemblers lack
#else
#define cpu_relax() ((void)0)
#endif

struct event { // a number that threads wait for to change
	_Alignas(LINE) atomic_uint number;
	atomic_uint sleepers;
};

struct range {                                   // of workers, a thread's own
	_Alignas(LINE) atomic_int_fast64_t left; // those that no thread has claimed
	int64_t end;
};

struct helper { // a thread other than the caller's
	struct amos_pool *pool;
	char *local;
	pthread_t thread;
	cpu_set_t all; // processors that it may use
	int own;       // that it was placed on
};

struct amos_pool {
	const struct amos_kernel *kernel; // of the current launch
	char *const *buf;
	struct amos_part *parts;  // NULL: they are not timed
	char *local;              // of the caller's thread
	int opened;               // the processor that it opened the pool on
	atomic_int caller;        // the processor of the latest launch
	int64_t threads, helpers; // wanted, with the caller's; started
	struct helper *helper;
	struct range *range; // by thread
	atomic_bool closing;
	// On separate cache lines, since all threads read them.
	_Alignas(LINE) atomic_int_fast64_t open; // ranges with workers that no thread has claimed
	struct event begun;                      // launches; and that the pool closes
	struct event busy;                       // helpers that may run workers
};

int64_t amos_nanoseconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

double amos_now(void)
{
	return 1e-9 * (double)amos_nanoseconds();
}

// ---- events ---------------------------------------------------------------------------

// The order of the accesses to `number` and `sleepers` ensures that either the waker sees the
// sleeper, or the sleeper, or the system before it sleeps, sees the number changed.

static void wake(struct event *e)
{
	if (atomic_load(&e->sleepers))
		syscall(SYS_futex, &e->number, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

// Returns when the number is no longer `old`.
static void wait_change(struct event *e, unsigned old)
{
	int64_t start = amos_nanoseconds();
	do
		for (int i = 0; i < LOOKS; i++) {
			if (atomic_load_explicit(&e->number, memory_order_acquire) != old)
				return;
			cpu_relax();
		}
	while (amos_nanoseconds() - start < SPIN);
	atomic_fetch_add(&e->sleepers, 1);
	while (atomic_load(&e->number) == old)
		syscall(SYS_futex, &e->number, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
	atomic_fetch_sub(&e->sleepers, 1);
}

// ---- launches -------------------------------------------------------------------------

// Returns how many workers of a kernel a thread claims of those left of a range, perhaps its own.
static int64_t share(const struct amos_kernel *k, int64_t left, bool own)
{
	int64_t some = left < PARTS ? 1 : left / PARTS;
	int64_t most = left - (k->whole ? 0 : left / GANG_PARTS);
	most = most < k->gang ? most : k->gang;
	return own && most > some ? most : some;
}

// Claims workers of a range and runs them on thread `number`, until none is left.
static void serve_range(struct amos_pool *p, struct range *r, int64_t number, char *local)
{
	int64_t left = atomic_load_explicit(&r->left, memory_order_acquire), count;
	struct amos_part *own;
	while (left) {
		count = share(p->kernel, left, r == &p->range[number]);
		if (!atomic_compare_exchange_weak_explicit(
		        &r->left, &left, left - count, memory_order_acq_rel, memory_order_acquire))
			continue;
		// The launch cannot end before this thread is done, so it does not change.
		if (left == count)
			atomic_fetch_sub(&p->open, 1);
		own = p->parts ? &p->parts[number] : NULL;
		if (own && !own->begin)
			own->begin = amos_nanoseconds();
		int64_t first = r->end - left;
		amos_run_workers(p->kernel, p->buf, first, first + count, local);
		if (own)
			own->end = amos_nanoseconds();
		left = atomic_load_explicit(&r->left, memory_order_acquire);
	}
}

// Runs workers on thread `number`, of its own range first.
static void serve(struct amos_pool *p, int64_t number, char *local)
{
	int64_t threads = p->helpers + 1;
	for (int64_t i = 0; i < threads && atomic_load(&p->open) > 0; i++)
		serve_range(p, &p->range[(number + i) % threads], number, local);
}

// The ranges are open before any of them is filled, so `open` is never less than those that are.
static void fill_ranges(struct amos_pool *p, int64_t n)
{
	int64_t threads = p->helpers + 1, first = 0;
	atomic_store(&p->open, n < threads ? n : threads);
	for (int64_t t = 0; t < threads; t++) {
		int64_t left = (n - first + threads - t - 1) / (threads - t);
		first += left;
		p->range[t].end = first;
		atomic_store_explicit(&p->range[t].left, left, memory_order_release);
	}
}

void amos_pool_launch(struct amos_pool *p, const struct amos_kernel *kernel, char *const *buf,
                      struct amos_part *parts)
{
	p->kernel = kernel;
	p->buf = buf;
	p->parts = parts;
	atomic_store_explicit(&p->caller, amos_processor(), memory_order_relaxed);
	fill_ranges(p, kernel->workers);
	atomic_fetch_add(&p->begun.number, 1);
	wake(&p->begun);
	serve(p, 0, p->local);
	for (unsigned busy; (busy = atomic_load(&p->busy.number));)
		wait_change(&p->busy, busy);
}

// Moves a helper to a processor, evenly among those that it may use; `number` 0: where the pool was
// opened.
static void settle(const struct helper *h, int64_t number)
{
	const struct amos_pool *p = h->pool;
	if (!sched_setaffinity(0, sizeof h->all, &h->all))
		amos_spread(p->opened, (int)(number * CPU_COUNT(&h->all) / p->threads));
}

// Keeps a helper off the processor of the caller's thread, which the system may have moved to it.
static void keep_apart(const struct helper *h)
{
	int caller = atomic_load_explicit(&h->pool->caller, memory_order_relaxed);
	if (amos_processor() == caller)
		settle(h, caller == h->own ? 0 : h - h->pool->helper + 1);
}

static void *help(void *with)
{
	struct helper *h = with;
	struct amos_pool *p = h->pool;
	bool placed =
	    !sched_getaffinity(0, sizeof h->all, &h->all) && p->threads <= CPU_COUNT(&h->all);
	int64_t first = 0; // the time of the first launch
	if (placed)
		settle(h, h - p->helper + 1);
	h->own = amos_processor();
	amos_set_float_mode(AMOS_KERNEL_MODE);
	while (!atomic_load(&p->closing)) {
		unsigned begun = atomic_load(&p->begun.number);
		if (atomic_load(&p->open) > 0) {
			// Before it claims workers, so that the caller that finds none left waits.
			atomic_fetch_add(&p->busy.number, 1);
			serve(p, h - p->helper + 1, h->local);
			atomic_fetch_sub(&p->busy.number, 1);
			wake(&p->busy);
		}
		wait_change(&p->begun, begun);
		if (!placed)
			continue;
		first = first ? first : amos_nanoseconds();
		keep_apart(h);
		if (amos_nanoseconds() - first > PLACED)
			placed = sched_setaffinity(0, sizeof h->all, &h->all);
	}
	return NULL;
}

// ---- threads --------------------------------------------------------------------------

static void start_helpers(struct amos_pool *p, int64_t count, int64_t bytes)
{
	pthread_attr_t about;
	if (pthread_attr_init(&about))
		return;
	pthread_attr_setstacksize(&about, STACK);
	for (struct helper *h = p->helper; p->helpers < count; h++) {
		*h = (struct helper){.pool = p, .local = p->local + bytes * (p->helpers + 1)};
		if (pthread_create(&h->thread, &about, help, h))
			break;
		p->helpers++;
	}
	pthread_attr_destroy(&about);
}

struct amos_pool *amos_pool_open(int64_t threads, char *local, int64_t bytes)
{
	struct amos_pool *p = aligned_alloc(LINE, sizeof *p);
	struct helper *helper = calloc((size_t)threads, sizeof *helper);
	struct range *range = aligned_alloc(LINE, (size_t)threads * sizeof *range);
	if (!p || !helper || !range) {
		free(p);
		free(helper);
		free(range);
		return NULL;
	}
	memset(range, 0, (size_t)threads * sizeof *range);
	*p = (struct amos_pool){.local = local,
	                        .opened = amos_processor(),
	                        .threads = threads,
	                        .helper = helper,
	                        .range = range};
	start_helpers(p, threads - 1, bytes);
	return p;
}

int64_t amos_pool_threads(const struct amos_pool *p)
{
	return p->helpers + 1;
}

void amos_pool_close(struct amos_pool *p)
{
	if (!p)
		return;
	atomic_store(&p->closing, true);
	atomic_fetch_add(&p->begun.number, 1);
	wake(&p->begun);
	for (int64_t i = 0; i < p->helpers; i++)
		pthread_join(p->helper[i].thread, NULL);
	free(p->helper);
	free(p->range);
	free(p);
}
