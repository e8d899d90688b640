// cpu.c: gives instances memory of this process or of a device, and runs their launches on the
// cores of this machine or on the device. A call allocates nothing.
#include "device.h"
#include "float_mode.h"
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

static bool is_timed(const struct amos *m)
{
	return m->nanoseconds || m->spans;
}

// Records a launch of `threads` threads, in the order of `parts`, where the caller wants it.
static void note(struct amos *m, const struct amos_kernel *k, struct amos_part all, int64_t threads,
                 const struct amos_part *parts)
{
	if (m->nanoseconds)
		m->nanoseconds[k - m->entry->kernels] += all.end - all.begin;
	if (m->spans)
		record(m->spans, k, threads, parts);
}

static int launch(const struct amos_run *run, const struct amos_kernel *k, char *const *buf)
{
	struct amos *m = run->own;
	bool alone = m->threads == 1 || amos_is_small(k);
	int64_t threads = alone ? 1 : m->threads;
	struct amos_part all = {is_timed(m) ? amos_nanoseconds() : 0, 0};
	struct amos_part parts[m->spans ? threads : 1];
	memset(parts, 0, sizeof parts);
	amos_float_mode before = amos_set_float_mode(AMOS_KERNEL_MODE);
	if (alone)
		amos_run_workers(k, buf, 0, k->workers, m->local);
	else
		amos_pool_launch(m->pool, k, buf, m->spans ? parts : NULL);
	amos_set_float_mode(before);
	all.end = is_timed(m) ? amos_nanoseconds() : 0;
	note(m, k, all, threads, alone ? &all : parts);
	return AMOS_DONE;
}

static int copy_on_device(const struct amos_run *run, enum amos_way way, void *to, const void *from,
                          int64_t bytes)
{
	return amos_device_copy(((struct amos *)run->own)->device, way, to, from, bytes);
}

// Launches that are timed are waited for one by one.
static int launch_on_device(const struct amos_run *run, const struct amos_kernel *k,
                            char *const *buf)
{
	struct amos *m = run->own;
	int64_t nanoseconds;
	if (!is_timed(m))
		return amos_device_launch(m->device, m->entry, k, buf);
	struct amos_part all = {.begin = amos_nanoseconds()};
	int status = amos_device_time(m->device, m->entry, k, buf, &nanoseconds);
	if (status)
		return status;
	all.end = all.begin + nanoseconds;
	note(m, k, all, 1, &all);
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

// Opens a device for the model. *missing: why none runs a model with code for some, to be freed.
static int open_device(const struct amos_model **model, struct amos_device **to, char **missing)
{
	bool devices = false;
	for (const struct amos_model *m = *model; m; m = m->better)
		devices |= m->device != NULL;
	int status = devices ? amos_device_open(model, to) : AMOS_DONE;
	if (devices && !status && !*to)
		*missing = strdup(amos_error());
	return status;
}

static void release(struct amos *m)
{
	amos_device_close(m->device);
	free(m->device_missing);
}

static void use_device(struct amos *m)
{
	m->launch = launch_on_device;
	m->copy = copy_on_device;
	m->begin = amos_device_begin;
	m->end = amos_device_end;
	m->constants = amos_device_constants(m->device);
	m->graphs_missing = amos_device_lacks_graphs(m->device);
}

// Returns how many batches may run at once on a device: two, of which the host fills one while the
// device computes the other, if the entries for training have no outputs that there are once.
static int64_t batches_of(const struct amos_model *model)
{
	int64_t batches = 1;
	for (int64_t e = 0; e < model->nentries; e++) {
		const struct amos_entry *entry = &model->entries[e];
		if (strcmp(entry->name, "train") && strcmp(entry->name, "gather"))
			continue;
		batches = 2;
		for (int64_t i = 0; i < entry->nouts; i++)
			if (entry->outs[i].bytes > AMOS_SMALL)
				return 1;
	}
	return batches;
}

typedef char cure[128];

// Writes what to give for a model that has so many percent of the batch at most, or the option
// --memory. Scratch and batch grow with the batch, but some scratch does not: `percent` is an upper
// bound.
static void write_cure(const struct amos *m, int64_t percent, int64_t memory, cure help)
{
	bool large = memory >= 64 << 20;
	snprintf(help, sizeof(cure), "use a device with more memory");
	if (percent > 0)
		snprintf(help, sizeof(cure),
		         "give a smaller --batch, at most %" PRId64 " %% of this one", percent);
	if (memory > 0 && amos_find_entry(m->model, "train"))
		snprintf(help + strlen(help), sizeof(cure) - strlen(help),
		         ", or --memory %" PRId64 "%c", memory >> (large ? 20 : 10),
		         large ? 'M' : 'K');
}

// Fails if the device has too little memory left for what lies apart. Drivers would take shared
// memory beyond that, and move it back and forth in every step.
static int check_room(const struct amos *m, const struct amos_apart *apart)
{
	const struct amos_model *model = m->model;
	int64_t room = 0, kept = model->params + model->state + model->gradients,
	        needed = apart->values.bytes + apart->scratch.bytes + apart->batch.bytes;
	int status = amos_device_room(m->device, &room);
	if (status || needed <= room)
		return status;
	// --memory does not count a second set of buffers.
	int64_t limit = room - apart->batch.bytes;
	cure help;
	write_cure(m, 100 * (room - kept) / (needed - kept), limit > kept ? limit : 0, help);
	return amos_fail(AMOS_MACHINE,
	                 "%s: expected %.1f MB of memory on %s, found %.1f MB %s: parameters, "
	                 "state and gradients take %.1f MB, scratch and batch %.1f MB" HELP "%s",
	                 model->name, (double)needed / 1e6, amos_device_name(m->device),
	                 (double)room / 1e6, amos_device_room_word(m->device), (double)kept / 1e6,
	                 (double)(needed - kept) / 1e6, help);
}

// Fails because the device gave no memory: with the limit of a block, if one is larger.
static int no_device_memory(const struct amos *m, const struct amos_apart *apart)
{
	const char *word;
	int64_t largest = amos_device_largest(m->device, &word), scratch = apart->scratch.bytes;
	struct {
		const char *of;
		int64_t bytes;
	} blocks[] = {{"parameters, state and gradients", apart->values.bytes},
	              {"scratch", scratch},
	              {"the batch", apart->batch.bytes}};
	int k = 0;
	while (k < COUNT(blocks) && blocks[k].bytes <= largest)
		k++;
	if (k == COUNT(blocks))
		return no_memory(m);
	int64_t once = m->memory.total - (m->batches - 1) * m->batch_bytes;
	cure help;
	write_cure(m, k ? 100 * largest / blocks[k].bytes : 0,
	           k == 1 ? once - scratch + largest : 0, help);
	return amos_fail(AMOS_MACHINE,
	                 "%s: expected one block of %.1f MB on %s, found at most %.1f MB (%s): %s "
	                 "of %.1f MB in all" HELP "%s",
	                 m->model->name, (double)blocks[k].bytes / 1e6, amos_device_name(m->device),
	                 (double)largest / 1e6, word, blocks[k].of, (double)m->memory.total / 1e6,
	                 help);
}

// Gives the instance, which is only counted so far, memory on its device: what lies apart.
static int take_device_memory(struct amos *m, struct amos_apart *apart)
{
	m->batches = batches_of(m->model);
	m->bytes = amos_lay_out(m, NULL, apart, PAGE);
	int status = check_room(m, apart);
	if (status)
		return status;
	return amos_device_memory(m->device, apart, &m->device_batch)
	           ? amos_device_clear(m->device, apart, m->model->params)
	           : no_device_memory(m, apart);
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

// Returns pages that are zero, and committed when first touched; NULL: there is no memory.
static char *map_pages(int64_t bytes)
{
	if ((int64_t)(size_t)bytes != bytes) // a pointer may have 32 bits
		return NULL;
	char *at =
	    mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED)
		return NULL;
	if (bytes >= LARGE_PAGE) // a small model would take, and clear, far more than it needs
		madvise(at, (size_t)bytes, MADV_HUGEPAGE);
	return at;
}

// Fails if the setup asks a model without code for a CPU for what its threads do.
static int check_device(const struct amos_model *model, const struct amos_setup *setup)
{
	if (model->device && setup->threads > 0)
		return amos_fail(AMOS_USAGE,
		                 "%s: compiled for '%s', which threads of the CPU do not help" HELP
		                 "leave out their number",
		                 model->name, model->device);
	if (model->device && setup->parallel_for)
		return amos_fail(
		    AMOS_USAGE,
		    "%s: compiled for '%s', which runs nothing on the caller's threads" HELP
		    "leave out parallel_for",
		    model->name, model->device);
	return AMOS_DONE;
}

// Opens the device that runs the model, if one does. Threads of the caller run code for a CPU.
static int choose_device(const struct amos_model **model, const struct amos_setup *setup,
                         struct amos_device **to, char **missing)
{
	if ((*model)->abi != AMOS_ABI) // which amos_prepare() refuses
		return AMOS_DONE;
	int status = check_device(*model, setup);
	bool threads = setup->threads > 0 || setup->parallel_for;
	return status || threads ? status : open_device(model, to, missing);
}

// Makes an instance in memory of its own, with threads of its own unless the caller has some, or a
// device runs it: that of a model with code for both, unless the caller gives threads.
// amos_fill() is left to the caller.
static int open_mapped(const struct amos_model *model, const struct amos_setup *setup,
                       struct amos **to)
{
	struct amos m = {.bytes = 0};
	struct amos_device *device = NULL;
	struct amos_setup all = *setup;
	char *missing = NULL;
	*to = NULL;
	int status = choose_device(&model, setup, &device, &missing);
	all.threads = device ? 1 : amos_threads(setup->threads);
	if (!status)
		status = amos_prepare(&m, model, &all);
	m.device = device;
	m.device_missing = missing;
	if (status) {
		release(&m);
		return status;
	}
	struct amos_apart apart = {.batch = {NULL, 0}};
	m.bytes = amos_lay_out(&m, NULL, NULL, PAGE);
	status = m.device ? take_device_memory(&m, &apart) : AMOS_DONE;
	char *at = status ? NULL : map_pages(m.bytes);
	if (!at) {
		status = status ? status : no_memory(&m);
		release(&m);
		return status;
	}
	*to = memcpy(at, &m, sizeof m);
	amos_lay_out(*to, at, m.device ? &apart : NULL, PAGE);
	if (m.device)
		use_device(*to);
	else if (!setup->parallel_for)
		status = start_threads(*to);
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

enum { PART = 1 << 20 }; // bytes that a worker copies

// Copies part i of the bytes from buf[1] to buf[2] to buf[0].
static void copy_part(char *const *buf, int64_t i, int64_t end, char *local)
{
	int64_t at = i * PART, rest = buf[2] - buf[1] - at;
	(void)end, (void)local;
	memcpy(buf[0] + at, buf[1] + at, (size_t)(rest < PART ? rest : PART));
}

// Copies the initial contents of a slot, in all threads: they touch the memory first.
static void fill_slot(struct amos *m, int64_t slot, const void *from)
{
	int64_t bytes = m->model->slots[slot].bytes;
	char *to = amos_slot_bytes(m, slot), *buf[] = {to, (char *)from, (char *)from + bytes};
	struct amos_kernel copy = {.code = copy_part, .workers = (bytes + PART - 1) / PART};
	if (m->pool && bytes > PART)
		amos_pool_launch(m->pool, &copy, buf, NULL);
	else
		memcpy(to, from, (size_t)bytes);
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
			fill_slot(*to, i, from);
	}
	amos_fill(*to, &setup);
	return AMOS_DONE;
}

int amos_settle(struct amos *m)
{
	return m->device ? amos_device_wait(m->device) : AMOS_DONE;
}

void amos_rest(struct amos *m)
{
	if (!m->device)
		madvise(m->scratch, (size_t)amos_round_up(m->memory.scratch, PAGE), MADV_DONTNEED);
}

int64_t amos_process_memory(const struct amos *m)
{
	enum { SOME = 4096 };
	unsigned char resident[SOME]; // by page
	int64_t pages = 0, page = sysconf(_SC_PAGESIZE), n = (m->bytes + page - 1) / page;
	n = m->device ? 0 : n; // its memory is the driver's
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
	release(m);
	if (m->bytes)
		munmap(m, (size_t)m->bytes);
}
