// cpu.c: gives instances memory of this process, and runs their launches on the cores of this
// machine. A call allocates nothing.
#include "rt.h"
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	PAGE = 4096,          // smallest page size of any system; blocks begin on a page boundary
	LARGE_PAGE = 2 << 20, // bytes
};

// ---- launches -------------------------------------------------------------------------

static void record(struct amos_spans *spans, const struct amos_kernel *k, int64_t threads,
                   const struct amos_part *parts)
{
	for (int64_t i = 0; i < threads; i++)
		if (parts[i].end && spans->count < spans->room)
			spans->at[spans->count++] =
			    (struct amos_span){k, i, parts[i].begin, parts[i].end};
}

static int launch(const struct amos_run *run, const struct amos_kernel *k, char *const *buf)
{
	struct amos *m = run->own;
	bool alone = m->threads == 1 || amos_is_small(k);
	int64_t threads = alone ? 1 : m->threads;
	int64_t start = m->nanoseconds || m->spans ? amos_nanoseconds() : 0;
	struct amos_part parts[m->spans ? threads : 1];
	memset(parts, 0, sizeof parts);
	if (alone)
		for (int64_t i = 0; i < k->workers; i++)
			k->code(buf, i, m->local);
	else
		amos_pool_launch(m->pool, k->code, buf, k->workers, m->spans ? parts : NULL);
	int64_t end = m->nanoseconds || m->spans ? amos_nanoseconds() : 0;
	if (m->nanoseconds)
		m->nanoseconds[k - m->entry->kernels] += end - start;
	if (alone)
		parts[0] = (struct amos_part){start, end};
	if (m->spans)
		record(m->spans, k, threads, parts);
	return AMOS_DONE;
}

// ---- open and close -------------------------------------------------------------------

int64_t amos_threads(int64_t threads)
{
	cpu_set_t cores;
	if (threads <= 0)
		threads = sched_getaffinity(0, sizeof cores, &cores) ? 1 : CPU_COUNT(&cores);
	return threads < AMOS_THREADS ? threads : AMOS_THREADS;
}

static int no_memory(const struct amos *m)
{
	return amos_fail(AMOS_MACHINE,
	                 "%s: out of memory: it needs %.1f MB" HELP "give a smaller --batch",
	                 m->model->name, (double)m->memory.total / 1e6);
}

static int start_threads(struct amos *m)
{
	m->launch = launch;
	m->pool = amos_pool_open(m->threads, m->local, amos_round_up(m->model->local, AMOS_LINE));
	if (!m->pool)
		return no_memory(m);
	m->threads_missing = m->threads - amos_pool_threads(m->pool);
	m->threads -= m->threads_missing;
	return AMOS_DONE;
}

// Makes an instance in a mapping of its own, with threads of its own unless the caller has some.
// Pages are zero, and committed when first touched; amos_fill() is left to the caller.
static int open_mapped(const struct amos_model *model, const struct amos_setup *setup,
                       struct amos **to)
{
	struct amos m;
	struct amos_setup all = *setup;
	*to = NULL;
	all.threads = amos_threads(setup->threads);
	int status = amos_prepare(&m, model, &all);
	if (status)
		return status;
	m.bytes = amos_lay_out(&m, NULL, PAGE);
	// A pointer may have 32 bits.
	char *at = (int64_t)(size_t)m.bytes == m.bytes
	               ? mmap(NULL, (size_t)m.bytes, PROT_READ | PROT_WRITE,
	                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
	               : MAP_FAILED;
	if (at == MAP_FAILED)
		return no_memory(&m);
	if (m.bytes >= LARGE_PAGE) // a small model would take, and clear, far more than it needs
		madvise(at, (size_t)m.bytes, MADV_HUGEPAGE);
	*to = memcpy(at, &m, sizeof m);
	amos_lay_out(*to, at, PAGE);
	status = setup->parallel_for ? AMOS_DONE : start_threads(*to);
	if (status) {
		amos_close(*to);
		*to = NULL;
	}
	return status;
}

int amos_open(const struct amos_model *model, const struct amos_setup *setup, struct amos **to)
{
	struct amos_setup all;
	*to = NULL;
	int status = amos_read_setup("amos_open", setup, &all);
	if (!status)
		status = open_mapped(model, &all, to);
	if (!status)
		amos_fill(*to, &all);
	return status;
}

int amos_open_slots(const struct amos_model *model, int64_t threads, int64_t seed,
                    const void *(*init)(void *, int64_t), void *context, struct amos **to)
{
	struct amos_setup setup = {.threads = threads, .seed = seed};
	int status = open_mapped(model, &setup, to);
	if (status)
		return status;
	for (int64_t i = 0; init && i < model->nslots; i++) {
		const struct amos_slot *s = &model->slots[i];
		const void *from = s->init || s->kind == AMOS_SLOT_INPUT ? NULL : init(context, i);
		if (from)
			memcpy(amos_slot_bytes(*to, i), from, (size_t)s->bytes);
	}
	amos_fill(*to, &setup);
	return AMOS_DONE;
}

void amos_rest(struct amos *m)
{
	madvise(m->scratch, (size_t)amos_round_up(m->memory.scratch, PAGE), MADV_DONTNEED);
}

int64_t amos_process_memory(const struct amos *m)
{
	enum { SOME = 4096 };
	unsigned char resident[SOME]; // by page
	int64_t pages = 0, page = sysconf(_SC_PAGESIZE), n = (m->bytes + page - 1) / page;
	FILE *file = fopen("/proc/self/statm", "re");
	if (!file || fscanf(file, "%*d %" SCNd64, &pages) != 1)
		pages = 0;
	if (file)
		fclose(file);
	for (int64_t i = 0, some; i < n && pages > 0; i += some) {
		some = n - i < SOME ? n - i : SOME;
		if (mincore((char *)m + i * page, (size_t)(some * page), resident))
			break;
		for (int64_t k = 0; k < some; k++)
			pages -= resident[k] & 1;
	}
	return pages > 0 ? pages * page : 0;
}

void amos_close(struct amos *m)
{
	if (!m)
		return;
	amos_pool_close(m->pool);
	if (m->bytes)
		munmap(m, (size_t)m->bytes);
}
