// cpu.c: holds a compiled model in memory and runs its launches on the cores of this machine.
// Invariant: workers may run on any thread in any order and compute the same, so results do not
// depend on the number of threads. A call allocates nothing.
#include "rt.h"
#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	ALIGN = 64,
	PAGE = 4096,          // smallest page size of any system; blocks begin on a page boundary
	LARGE_PAGE = 2 << 20, // bytes
	THREADS = 1024,       // maximum number of threads
	SMALL_WORK = 1 << 14, // bytes + flops below which one thread is faster
};

static int64_t round_up(int64_t n, int64_t to)
{
	return (n + to - 1) / to * to;
}

// ---- launches -------------------------------------------------------------------------

static bool is_small(const struct amos_kernel *k)
{
	return k->workers == 1 || k->bytes + k->flops < SMALL_WORK;
}

// True if all launches of an entry are small, so more threads would not help.
static bool all_small(const struct amos_entry *entry)
{
	for (int64_t i = 0; i < entry->nkernels; i++)
		if (!is_small(&entry->kernels[i]))
			return false;
	return true;
}

static void record(struct amos_spans *spans, const struct amos_kernel *k, int64_t threads,
                   const struct amos_part *parts)
{
	for (int64_t i = 0; i < threads; i++)
		if (parts[i].end && spans->count < spans->room)
			spans->at[spans->count++] =
			    (struct amos_span){k, i, parts[i].begin, parts[i].end};
}

struct task { // a launch, for the caller's threads
	const struct amos *m;
	const struct amos_kernel *kernel;
	char *const *buf;
};

static void run_worker(void *task, int64_t i, int64_t thread)
{
	const struct task *t = task;
	int64_t local = round_up(t->m->model->local, ALIGN);
	t->kernel->code(t->buf, i, t->m->local + thread * local);
}

static int launch_on_caller(struct amos *m, const struct amos_kernel *k, char *const *buf)
{
	struct task task = {m, k, buf};
	if (is_small(k))
		for (int64_t i = 0; i < k->workers; i++)
			run_worker(&task, i, 0);
	else
		m->parallel_for(m->context, k->workers, run_worker, &task);
	return AMOS_DONE;
}

static int launch(const struct amos_run *run, const struct amos_kernel *k, char *const *buf)
{
	struct amos *m = run->own;
	if (m->parallel_for)
		return launch_on_caller(m, k, buf);
	bool alone = m->threads == 1 || is_small(k);
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

static char *const *chosen(char **to, char *const *own, void *const *given, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		to[i] = given && given[i] ? given[i] : own[i];
	return to;
}

// ---- outputs of data-dependent size ---------------------------------------------------

static void run_shape(const struct amos_out *out, char *const *outputs, int64_t *dim)
{
	const int64_t *shape =
	    out->shape_output ? (const int64_t *)outputs[out->shape_output - 1] : out->dim;
	for (int64_t a = 0; a < out->rank; a++)
		dim[a] = shape[a] < 0 ? 0 : shape[a] < out->dim[a] ? shape[a] : out->dim[a];
}

// Moves the valid elements to the front, one row of the last axis at a time.
static void pack(const struct amos_out *out, const int64_t *dim, char *at)
{
	int64_t last = out->rank - 1, lines = 1;
	int64_t size = amos_types[out->type].bytes, line = dim[last] * size;
	for (int64_t a = 0; a < last; a++)
		lines *= dim[a];
	for (int64_t i = 0; i < lines; i++) {
		int64_t from = 0, step = out->dim[last] * size, rest = i;
		for (int64_t a = last - 1; a >= 0; a--) {
			from += rest % dim[a] * step;
			rest /= dim[a];
			step *= out->dim[a];
		}
		memmove(at + i * line, at + from, (size_t)line);
	}
}

int amos_call(struct amos *m, const struct amos_entry *entry, void *const *inputs,
              void *const *outputs)
{
	int64_t first = m->first_out[entry - m->model->entries];
	struct amos_run run = {
	    .params = m->params,
	    .state = m->state,
	    .gradients = m->gradients,
	    .scratch = m->scratch,
	    .inputs = chosen(m->given_inputs, m->inputs, inputs, m->ninputs),
	    .outputs = chosen(m->given_outputs, m->outputs + first, outputs, entry->nouts),
	    .launch = launch,
	    .own = m,
	};
	m->entry = entry;
	int status = amos_run_entry(&run, entry);
	if (status)
		return amos_fail(AMOS_MACHINE, "%s: the model stopped with status %d",
		                 m->model->name, status);
	for (int64_t i = 0; i < entry->nouts; i++) {
		const struct amos_out *out = &entry->outs[i];
		const int64_t *index = (const int64_t *)run.outputs[i];
		int64_t dim[10];
		if (out->check && *index)
			return amos_fail(AMOS_INPUT, "%s: %s, found %lld", m->model->name,
			                 out->check, (long long)(*index == INT64_MIN ? 0 : *index));
		if (!out->shape_output || !out->rank)
			continue;
		run_shape(out, run.outputs, dim);
		pack(out, dim, run.outputs[i]);
	}
	return AMOS_DONE;
}

// ---- addresses of slots and outputs ---------------------------------------------------

void *amos_slot_bytes(const struct amos *m, int64_t slot)
{
	const struct amos_slot *s = &m->model->slots[slot];
	return s->kind == AMOS_SLOT_INPUT      ? m->inputs[s->offset]
	       : s->kind == AMOS_SLOT_STATE    ? m->state + s->offset
	       : s->kind == AMOS_SLOT_GRADIENT ? m->gradients + s->offset
	                                       : m->params + s->offset;
}

void *amos_out_bytes(const struct amos *m, const struct amos_entry *entry, int64_t out)
{
	return m->outputs[m->first_out[entry - m->model->entries] + out];
}

void amos_out_shape(const struct amos *m, const struct amos_entry *entry, int64_t out, int64_t *dim)
{
	run_shape(&entry->outs[out], m->outputs + m->first_out[entry - m->model->entries], dim);
}

double amos_out_number(const struct amos *m, const struct amos_entry *entry, int64_t out)
{
	double x = amos_number(amos_out_bytes(m, entry, out), (int)entry->outs[out].type, 0);
	return isnan(x) ? NAN : x; // drops the sign of NaN, which varies
}

const struct amos_entry *amos_find_entry(const struct amos_model *model, const char *name)
{
	int at = amos_index(name, model->entries, model->nentries, sizeof *model->entries);
	return at < 0 ? NULL : &model->entries[at];
}

int64_t amos_find_slot(const struct amos_model *model, const char *name)
{
	return amos_index(name, model->slots, model->nslots, sizeof *model->slots);
}

int64_t amos_find_output(const struct amos_entry *entry, const char *name)
{
	return amos_index(name, entry->outs, entry->nouts, sizeof *entry->outs);
}

// ---- open and close -------------------------------------------------------------------

// Assigns the addresses of inputs and outputs in the block `batch` and returns its size in bytes.
// Called first without a block, to compute the size.
static int64_t lay_batch(struct amos *m)
{
	const struct amos_model *model = m->model;
	int64_t at = 0;
	for (int64_t i = 0; i < model->nslots; i++) {
		if (model->slots[i].kind != AMOS_SLOT_INPUT)
			continue;
		m->inputs[model->slots[i].offset] = m->batch + at;
		at += round_up(model->slots[i].bytes, ALIGN);
	}
	int64_t number = 0;
	for (int64_t e = 0; e < model->nentries; e++) {
		m->first_out[e] = number;
		for (int64_t i = 0; i < model->entries[e].nouts; i++) {
			m->outputs[number++] = m->batch + at;
			at += round_up(model->entries[e].outs[i].bytes, ALIGN);
		}
	}
	return at;
}

static bool take_memory(struct amos *m)
{
	const struct amos_model *model = m->model;
	struct amos_memory *b = &m->memory;
	int64_t ninputs = 0, outs = 0, most = 0, local = round_up(model->local, ALIGN);
	*b = (struct amos_memory){
	    .params = model->params, .state = model->state, .pads = local * m->threads};
	for (int64_t i = 0; i < model->nslots; i++)
		if (model->slots[i].kind == AMOS_SLOT_INPUT && ninputs <= model->slots[i].offset)
			ninputs = model->slots[i].offset + 1;
	for (int64_t e = 0; e < model->nentries; e++) {
		const struct amos_entry *entry = &model->entries[e];
		outs += entry->nouts;
		most = most > entry->nouts ? most : entry->nouts;
		b->scratch = b->scratch > entry->scratch ? b->scratch : entry->scratch;
	}
	m->ninputs = ninputs;
	m->inputs = calloc((size_t)ninputs + 1, sizeof(char *));
	m->given_inputs = calloc((size_t)ninputs + 1, sizeof(char *));
	m->outputs = calloc((size_t)outs + 1, sizeof(char *));
	m->given_outputs = calloc((size_t)most + 1, sizeof(char *));
	m->first_out = calloc((size_t)model->nentries + 1, sizeof(int64_t));
	if (!m->inputs || !m->given_inputs || !m->outputs || !m->given_outputs || !m->first_out)
		return false;
	b->batch = lay_batch(m);
	b->total = b->params + b->state + b->scratch + b->pads + b->batch;
	// Pages are zero, and committed when first touched.
	// Gradients come last and do not count: only some programs touch them.
	const int64_t bytes[] = {b->params, b->state, b->scratch,
	                         b->pads,   b->batch, model->gradients};
	char **const blocks[] = {&m->params, &m->state, &m->scratch,
	                         &m->local,  &m->batch, &m->gradients};
	m->bytes = PAGE; // mmap() of nothing fails
	for (int k = 0; k < COUNT(bytes); k++)
		m->bytes += round_up(bytes[k], PAGE);
	if ((int64_t)(size_t)m->bytes != m->bytes) // a pointer may have 32 bits
		return false;
	char *at = mmap(NULL, (size_t)m->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
	                -1, 0);
	if (at == MAP_FAILED)
		return false;
	if (m->bytes >= LARGE_PAGE) // a small model would take, and clear, far more than it needs
		madvise(at, (size_t)m->bytes, MADV_HUGEPAGE);
	for (int k = 0; k < COUNT(bytes); at += round_up(bytes[k++], PAGE))
		*blocks[k] = at;
	lay_batch(m);
	if (!amos_list_slots(m))
		return false;
	m->pool = amos_pool_open(m->threads, m->local, local);
	if (!m->pool)
		return false;
	m->threads_missing = m->threads - amos_pool_threads(m->pool);
	m->threads -= m->threads_missing;
	return true;
}

int64_t amos_threads(int64_t threads)
{
	cpu_set_t cores;
	if (threads <= 0)
		threads = sched_getaffinity(0, sizeof cores, &cores) ? 1 : CPU_COUNT(&cores);
	return threads < THREADS ? threads : THREADS;
}

int amos_open_slots(const struct amos_model *model, int64_t threads, int64_t seed,
                    const void *(*init)(void *, int64_t), void *context, struct amos **to)
{
	*to = NULL;
	if (model->abi != AMOS_ABI)
		return amos_fail(
		    AMOS_INPUT,
		    "%s: expected a model compiled for version %d of the runtime, found %lld" HELP
		    "compile it again",
		    model->name, AMOS_ABI, (long long)model->abi);
	model = amos_best(model);
	int status = amos_check_cpu(model);
	if (status)
		return status;
	struct amos *m = calloc(1, sizeof *m);
	if (!m)
		return amos_no_memory(model->name);
	m->model = model;
	m->threads = 1;
	for (int64_t e = 0; e < model->nentries; e++)
		if (!all_small(&model->entries[e]))
			m->threads = amos_threads(threads);
	if (!take_memory(m)) {
		double total = (double)m->memory.total;
		amos_close(m);
		return amos_fail(AMOS_MACHINE,
		                 "%s: out of memory: it needs %.1f MB" HELP
		                 "give a smaller --batch",
		                 model->name, total / 1e6);
	}
	for (int64_t i = 0; i < model->nslots; i++) {
		const struct amos_slot *s = &model->slots[i];
		if (s->kind == AMOS_SLOT_INPUT)
			continue;
		const void *from = s->init || !init ? s->init : init(context, i);
		if (from)
			memcpy(amos_slot_bytes(m, i), from, (size_t)s->bytes);
	}
	int64_t slot = amos_find_slot(model, "amos.seed");
	if (slot >= 0)
		memcpy(amos_slot_bytes(m, slot), &seed, sizeof seed);
	*to = m;
	return AMOS_DONE;
}

void amos_rest(struct amos *m)
{
	madvise(m->scratch, (size_t)round_up(m->memory.scratch, PAGE), MADV_DONTNEED);
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
		if (mincore(m->params + i * page, (size_t)(some * page), resident))
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
	if (m->params)
		munmap(m->params, (size_t)m->bytes);
	free(m->inputs);
	free(m->outputs);
	free(m->given_inputs);
	free(m->given_outputs);
	free(m->first_out);
	free(m->slots);
	free(m);
}
