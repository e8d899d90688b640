// pool.c: distributes the workers of a launch over threads.
// A launch ends when its workers are done, even if a thread that lost its core has not come back.
// The pool works without threads that could not be started.
//
// A launch is divided into chunks. The ticket holds launch number << 32 | chunks << 16 | chunks
// claimed; a thread claims a chunk by incrementing it. Between begin and end, threads spin, looking
// for chunks. After end they spin a little longer, since the next begin is often near, and then
// sleep.
#include "rt.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

enum {
	LINE = 64,           // bytes of a cache line
	CLAIMS = 16,         // chunks per thread of a launch: a slow one delays the end by 1/16
	STACK = 1 << 20,     // bytes; kernels use local memory instead
	SPINS = 2000,        // attempts before yielding the core
	AWAKE = 5 * 1000000, // nanoseconds without work until a thread sleeps
};

#if defined(__x86_64__) || defined(__i386__)
#define cpu_relax() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define cpu_relax() __asm__ volatile("yield")
#else
#define cpu_relax() ((void)0)
#endif

struct launch { // the current launch
	amos_worker *work;
	char *const *buf;
	int64_t n, chunk;
};

struct helper { // a thread other than the caller's
	struct amos_pool *pool;
	char *local;
	pthread_t thread;
};

struct amos_pool {
	struct launch launch;
	uint64_t launches;
	char *local; // of the caller's thread
	pthread_mutex_t lock;
	pthread_cond_t wake; // running, or closing
	int64_t helpers;
	struct helper *helper;
	_Alignas(LINE)
	    atomic_uint_fast64_t ticket; // on separate cache lines, since all threads read them
	_Alignas(LINE) atomic_uint_fast64_t done; // chunks done of the launch
	_Alignas(LINE) atomic_bool running;       // between begin and end
	atomic_bool closing;
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

// ---- chunks ---------------------------------------------------------------------------

// Claims a chunk and runs it; false: no chunk is left.
static bool serve(struct amos_pool *p, char *local)
{
	uint64_t ticket = atomic_load_explicit(&p->ticket, memory_order_relaxed);
	do {
		if ((ticket & 0xFFFF) >= (ticket >> 16 & 0xFFFF))
			return false;
		// Once the ticket is incremented, the launch cannot end before this chunk is done,
		// so p->launch does not change.
	} while (!atomic_compare_exchange_weak_explicit(
	    &p->ticket, &ticket, ticket + 1, memory_order_acquire, memory_order_relaxed));
	struct launch l = p->launch;
	int64_t from = (int64_t)(ticket & 0xFFFF) * l.chunk,
	        to = from + l.chunk < l.n ? from + l.chunk : l.n;
	for (int64_t i = from; i < to; i++)
		l.work(l.buf, i, local);
	atomic_fetch_add_explicit(&p->done, 1, memory_order_release);
	return true;
}

// Waits briefly; after SPINS attempts it yields the core to other threads.
static void pause_thread(int *attempts)
{
	if (++*attempts < SPINS)
		cpu_relax();
	else
		sched_yield();
}

void amos_pool_launch(struct amos_pool *p, amos_worker *work, char *const *buf, int64_t n)
{
	int64_t chunk = n / ((p->helpers + 1) * CLAIMS);
	chunk = chunk < 1 ? 1 : chunk;
	uint64_t chunks = (uint64_t)((n + chunk - 1) / chunk);
	p->launch = (struct launch){work, buf, n, chunk};
	atomic_store_explicit(&p->done, 0, memory_order_relaxed);
	atomic_store_explicit(&p->ticket, ++p->launches << 32 | chunks << 16, memory_order_release);
	while (serve(p, p->local))
		;
	for (int attempts = 0; atomic_load_explicit(&p->done, memory_order_acquire) < chunks;)
		pause_thread(&attempts);
}

// ---- threads --------------------------------------------------------------------------

static bool is_idle(struct amos_pool *p)
{
	return !atomic_load_explicit(&p->running, memory_order_acquire) &&
	       !atomic_load_explicit(&p->closing, memory_order_acquire);
}

static void stay_idle(struct amos_pool *p)
{
	int64_t since = amos_nanoseconds();
	for (int attempts = 0; is_idle(p); pause_thread(&attempts))
		if (attempts >= SPINS && amos_nanoseconds() - since > AWAKE) {
			pthread_mutex_lock(&p->lock);
			while (is_idle(p))
				pthread_cond_wait(&p->wake, &p->lock);
			pthread_mutex_unlock(&p->lock);
		}
}

static void *help(void *with)
{
	struct helper *h = with;
	struct amos_pool *p = h->pool;
	int attempts = 0;
	while (!atomic_load_explicit(&p->closing, memory_order_acquire))
		if (serve(p, h->local)) {
			attempts = 0;
		} else if (is_idle(p)) {
			stay_idle(p);
			attempts = 0;
		} else {
			pause_thread(&attempts);
		}
	return NULL;
}

static void wake(struct amos_pool *p, atomic_bool *why)
{
	pthread_mutex_lock(&p->lock);
	atomic_store_explicit(why, true, memory_order_release);
	pthread_cond_broadcast(&p->wake);
	pthread_mutex_unlock(&p->lock);
}

void amos_pool_begin(struct amos_pool *p)
{
	wake(p, &p->running);
}

void amos_pool_end(struct amos_pool *p)
{
	atomic_store_explicit(&p->running, false, memory_order_release);
}

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
	if (!p || !helper) {
		free(p);
		free(helper);
		return NULL;
	}
	*p = (struct amos_pool){.local = local,
	                        .helper = helper,
	                        .lock = PTHREAD_MUTEX_INITIALIZER,
	                        .wake = PTHREAD_COND_INITIALIZER};
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
	wake(p, &p->closing);
	for (int64_t i = 0; i < p->helpers; i++)
		pthread_join(p->helper[i].thread, NULL);
	free(p->helper);
	free(p);
}
