// pool.c: launches: the workers of a kernel shared out among threads.
// Takes pthreads. Gives struct amos_pool. Keeps: a launch ends when its workers are done, whether
// or not a thread that has lost its core has come back; threads that cannot be started are done
// without.
//
// A launch is cut in chunks, and its ticket says which is the next: launch number << 32 | chunks
// << 16 | chunks claimed. Who raises the ticket owns a chunk. Between begin and end the threads
// spin, looking for chunks; after end they spin a little longer, since the next begin is near, and
// then sleep.
#include "rt.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

enum {
	LINE = 64,           // bytes of a cache line
	CLAIMS = 16,         // chunks a thread gets of a launch: a slow one delays the end by 1/16
	STACK = 1 << 20,     // bytes; what a kernel needs in memory is its pad
	SPINS = 2000,        // looks in vain before others may have the core
	AWAKE = 5 * 1000000, // nanoseconds without work until a thread sleeps
};

#if defined(__x86_64__) || defined(__i386__)
#define cpu_relax() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define cpu_relax() __asm__ volatile("yield")
#else
#define cpu_relax() ((void)0)
#endif

struct launch { // what is being run by all threads
	amos_worker *work;
	char *const *buf;
	int64_t n, chunk;
};

struct helper { // a thread beside the caller's
	struct amos_pool *pool;
	char *pad;
	pthread_t thread;
};

struct amos_pool {
	struct launch launch;
	uint64_t launches;
	char *pad; // the caller's
	pthread_mutex_t lock;
	pthread_cond_t wake; // running, or closing
	int64_t helpers;
	struct helper *helper;
	_Alignas(LINE) atomic_uint_fast64_t ticket; // lines of their own: all threads look at them
	_Alignas(LINE) atomic_uint_fast64_t done;   // chunks of the launch
	_Alignas(LINE) atomic_bool running;         // between begin and end
	atomic_bool closing;
};

int64_t amos_nanoseconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

// ---- chunks ---------------------------------------------------------------------------

static void serve_chunk(struct amos_pool *p, uint64_t index, char *pad)
{
	struct launch *l = &p->launch;
	amos_worker *work = l->work;
	char *const *buf = l->buf;
	int64_t from = (int64_t)index * l->chunk,
	        to = from + l->chunk < l->n ? from + l->chunk : l->n;
	for (int64_t i = from; i < to; i++)
		work(buf, i, pad);
	atomic_fetch_add_explicit(&p->done, 1, memory_order_release);
}

// Claims a chunk and runs it; false: there is none now.
static bool serve(struct amos_pool *p, char *pad)
{
	uint64_t ticket = atomic_load_explicit(&p->ticket, memory_order_relaxed);
	for (;;) {
		uint64_t index = ticket & 0xFFFF;
		if (index >= (ticket >> 16 & 0xFFFF))
			return false;
		// Raised, the launch cannot end before this chunk is done, so what it is stands
		// still.
		if (atomic_compare_exchange_weak_explicit(&p->ticket, &ticket, ticket + 1,
		                                          memory_order_acquire,
		                                          memory_order_relaxed)) {
			serve_chunk(p, index, pad);
			return true;
		}
	}
}

// Waits a little, the longer the more often it was in vain: whoever else needs this core gets it.
static void pause_thread(int *vain)
{
	if (++*vain < SPINS)
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
	while (serve(p, p->pad))
		;
	for (int vain = 0; atomic_load_explicit(&p->done, memory_order_acquire) < chunks;)
		pause_thread(&vain);
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
	for (int vain = 0; is_idle(p); pause_thread(&vain))
		if (vain >= SPINS && amos_nanoseconds() - since > AWAKE) {
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
	int vain = 0;
	while (!atomic_load_explicit(&p->closing, memory_order_acquire))
		if (serve(p, h->pad)) {
			vain = 0;
		} else if (is_idle(p)) {
			stay_idle(p);
			vain = 0;
		} else {
			pause_thread(&vain);
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

static void start_helpers(struct amos_pool *p, int64_t wanted, int64_t pad)
{
	pthread_attr_t about;
	if (pthread_attr_init(&about))
		return;
	pthread_attr_setstacksize(&about, STACK);
	for (struct helper *h = p->helper; p->helpers < wanted; h++) {
		*h = (struct helper){.pool = p, .pad = p->pad + pad * (p->helpers + 1)};
		if (pthread_create(&h->thread, &about, help, h))
			break;
		p->helpers++;
	}
	pthread_attr_destroy(&about);
}

struct amos_pool *amos_pool_open(int64_t threads, char *pads, int64_t pad)
{
	struct amos_pool *p = aligned_alloc(LINE, sizeof *p);
	struct helper *helper = calloc((size_t)threads, sizeof *helper);
	if (!p || !helper) {
		free(p);
		free(helper);
		return NULL;
	}
	*p = (struct amos_pool){.pad = pads,
	                        .helper = helper,
	                        .lock = PTHREAD_MUTEX_INITIALIZER,
	                        .wake = PTHREAD_COND_INITIALIZER};
	start_helpers(p, threads - 1, pad);
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
