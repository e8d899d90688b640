// device.c: holds a model's code and memory on a device, and starts its launches.
// Every launch has a table of addresses, which must live until it is done. The launches of an entry
// without loops are the same in every run on a set of buffers: they have tables of their own and
// become a graph. Entries with loops share tables: when these are full, the host waits for the
// launches so far and begins them again.
#include "device.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TABLES = 1 << 15, BLOCKS = 7 }; // addresses in the shared tables, at least; of memory

struct code { // of a row
	void *kernel;
	int64_t threads;
};

struct program {             // an entry
	int64_t code;        // its first row in `code`
	int64_t table, room; // its first address in the tables of a set, and how many there are
	bool loops;
	bool ran;                // once, so that the driver has loaded its kernels
	void *graph[AMOS_MARKS]; // by set of buffers; NULL: there is none yet
};

struct amos_device {
	const struct amos_driver *driver;
	const struct amos_model *model;
	void *open;
	struct program *programs; // by entry
	struct code *code;        // by row; loops have none
	char *constants;
	uint64_t *tables, *run; // by set of buffers; those of the run that is started
	uint64_t *near;         // a copy of the tables on the device, for graphs
	bool recorded;          // launches are
	int64_t each;           // of a set, in addresses
	int64_t used, room;     // of `run`
	bool touched;           // parameters and state, by the host, since the last run
	struct {
		enum amos_sharing sharing;
		void *at;
	} block[BLOCKS];
	int blocks;
};

static const struct amos_driver *const drivers[] = {&amos_opencl, &amos_cuda, &amos_hip};

static const struct amos_driver *driver_named(const char *name)
{
	for (int k = 0; k < COUNT(drivers); k++)
		if (!strcmp(drivers[k]->name, name))
			return drivers[k];
	return NULL;
}

int amos_device_check(const char *name)
{
	void *device;
	const struct amos_driver *driver = driver_named(name);
	if (!driver)
		return amos_fail(AMOS_INPUT, "this runtime does not support the device '%s'", name);
	int status = driver->open(&device);
	if (!status)
		driver->close(device);
	return status;
}

static void *allocate(struct amos_device *d, enum amos_sharing sharing, int64_t bytes)
{
	void *at = d->driver->allocate(d->open, sharing, bytes ? bytes : 1);
	if (at) {
		d->block[d->blocks].sharing = sharing;
		d->block[d->blocks++].at = at;
	}
	return at;
}

int amos_device_room(struct amos_device *d, int64_t *bytes)
{
	return d->driver->room(d->open, bytes);
}

const char *amos_device_room_word(const struct amos_device *d)
{
	return d->driver->room_word;
}

int64_t amos_device_largest(const struct amos_device *d, const char **word)
{
	*word = d->driver->largest_word;
	return d->driver->largest ? d->driver->largest(d->open) : INT64_MAX;
}

bool amos_device_memory(struct amos_device *d, struct amos_apart *apart, char **batch_copy)
{
	apart->values.at = allocate(d, AMOS_SHARED, apart->values.bytes);
	apart->scratch.at = allocate(d, AMOS_DEVICE, apart->scratch.bytes);
	apart->batch.at = allocate(d, AMOS_HOST, apart->batch.bytes);
	*batch_copy = allocate(d, AMOS_DEVICE, apart->batch.bytes);
	return apart->values.at && apart->scratch.at && apart->batch.at && *batch_copy;
}

// The rest is set by the device, so that none of it lies in pages of the host.
int amos_device_clear(struct amos_device *d, const struct amos_apart *apart, int64_t filled)
{
	int64_t rest = apart->values.bytes - filled;
	int status = rest ? d->driver->clear(d->open, apart->values.at + filled, rest) : AMOS_DONE;
	if (!status)
		status = amos_device_wait(d);
	if (status)
		return status;
	memset(apart->values.at, 0, (size_t)filled);
	memset(apart->batch.at, 0, (size_t)apart->batch.bytes);
	return AMOS_DONE;
}

void amos_device_touched(struct amos_device *d)
{
	if (d)
		d->touched = true;
}

const char *amos_device_constants(const struct amos_device *d)
{
	return d->constants;
}

const char *amos_device_name(const struct amos_device *d)
{
	return d->driver->describe(d->open);
}

const char *amos_device_lacks_graphs(const struct amos_device *d)
{
	return d->driver->lacks_graphs(d->open);
}

// ---- open and close -------------------------------------------------------------------

static int find_code(struct amos_device *d)
{
	const struct amos_model *model = d->model;
	for (int64_t e = 0; e < model->nentries; e++)
		for (int64_t k = 0; k < model->entries[e].nkernels; k++) {
			const struct amos_kernel *row = &model->entries[e].kernels[k];
			struct code *code = &d->code[d->programs[e].code + k];
			int status = row->loop
			                 ? AMOS_DONE
			                 : d->driver->find(d->open, row->function, row->shared,
			                                   &code->kernel, &code->threads);
			if (status)
				return status;
		}
	return AMOS_DONE;
}

static struct program program_of(const struct amos_entry *entry, int64_t first_row)
{
	struct program p = {.code = first_row};
	for (int64_t k = 0; k < entry->nkernels; k++) {
		p.room += entry->kernels[k].noperands;
		p.loops |= entry->kernels[k].loop != NULL;
	}
	return p;
}

// Describes the entries, and gives them their part of the tables.
static int set_programs(struct amos_device *d)
{
	const struct amos_model *model = d->model;
	int64_t rows = 0;
	d->programs = calloc((size_t)model->nentries + 1, sizeof *d->programs);
	if (!d->programs)
		return amos_no_memory(model->name);
	d->room = TABLES;
	for (int64_t e = 0; e < model->nentries; e++) {
		struct program *p = &d->programs[e];
		*p = program_of(&model->entries[e], rows);
		rows += model->entries[e].nkernels;
		d->room = p->room > d->room ? p->room : d->room;
	}
	d->each = d->room;
	for (struct program *p = d->programs; p < d->programs + model->nentries; p++) {
		p->table = p->loops ? 0 : d->each;
		p->room = p->loops ? d->room : p->room;
		d->each += p->loops ? 0 : p->room;
	}
	d->code = calloc((size_t)rows + 1, sizeof *d->code);
	return d->code ? AMOS_DONE : amos_no_memory(model->name);
}

// Builds the code of the variant and allocates what its launches need.
static int set_up(struct amos_device *d)
{
	const struct amos_model *model = d->model;
	int status = d->driver->build(d->open, model->code, model->code_bytes);
	if (!status)
		status = set_programs(d);
	if (status)
		return status;
	int64_t bytes = (int64_t)sizeof *d->tables * d->each * AMOS_MARKS;
	d->tables = allocate(d, AMOS_HOST, bytes);
	d->near = allocate(d, AMOS_DEVICE, bytes);
	d->run = d->tables;
	d->constants = allocate(d, AMOS_DEVICE, model->constant_bytes);
	if (!d->tables || !d->near || !d->constants)
		return amos_no_memory(model->name);
	if (model->constant_bytes)
		status = amos_device_copy(d, AMOS_FROM_HOST, d->constants, model->constants,
		                          model->constant_bytes);
	return status ? status : find_code(d);
}

// Opens the device of one variant. *other: it, or its driver, cannot run the code.
static int open_variant(const struct amos_model *model, struct amos_device **to, bool *other)
{
	const struct amos_driver *driver = driver_named(model->device);
	*other = true;
	if (!driver)
		return amos_fail(AMOS_INPUT, "%s: this runtime does not support the device '%s'",
		                 model->name, model->device);
	struct amos_device *d = calloc(1, sizeof *d);
	if (!d)
		return amos_no_memory(model->name);
	*d = (struct amos_device){.driver = driver, .model = model, .touched = true};
	int status = driver->open(&d->open);
	if (!status) {
		status = set_up(d);
		*other = status == AMOS_INPUT;
	}
	if (status)
		amos_device_close(d);
	else
		*to = d;
	return status;
}

// Returns the best variant before `last` that a device runs; NULL: none.
static const struct amos_model *device_before(const struct amos_model *model,
                                              const struct amos_model *last)
{
	const struct amos_model *found = NULL;
	for (const struct amos_model *m = model; m != last; m = m->better)
		found = m->device ? m : found;
	return found;
}

// Fails because of several variants for devices none runs here: `why` of the one to prefer.
static int none_fits(const struct amos_model *model, const char *why)
{
	char list[256] = "";
	for (const struct amos_model *m = model; m; m = m->better) {
		size_t end = strlen(list);
		if (m->device)
			snprintf(list + end, sizeof list - end, "%s%.*s", end ? ", " : "",
			         (int)strcspn(m->target, ","), m->target);
	}
	return amos_fail(AMOS_MACHINE, "%s: no device runs its code, for %s: %s", model->name, list,
	                 why);
}

int amos_device_open(const struct amos_model **model, struct amos_device **to)
{
	const struct amos_model *first = *model, *best = device_before(first, NULL);
	bool alone = best && first->device && !device_before(first, best);
	char why[512] = "";
	*to = NULL;
	for (const struct amos_model *m = best; m; m = device_before(first, m)) {
		bool other;
		int status = open_variant(m, to, &other);
		if (!status)
			*model = m;
		if (!status || !other || alone)
			return status;
		// Of a GPU that is here, the oldest code says most; of none, the newest.
		if (status == AMOS_INPUT || !*why)
			snprintf(why, sizeof why, "%s", amos_error());
	}
	if (!best)
		return AMOS_DONE;
	int status = none_fits(first, why);
	return first->device ? status : AMOS_DONE;
}

void amos_device_close(struct amos_device *d)
{
	if (!d)
		return;
	for (int k = 0; k < d->blocks; k++) // which waits for what runs
		d->driver->release(d->open, d->block[k].sharing, d->block[k].at);
	for (int64_t e = 0; d->programs && e < d->model->nentries; e++)
		for (int k = 0; k < AMOS_MARKS; k++)
			if (d->programs[e].graph[k])
				d->driver->forget(d->open, d->programs[e].graph[k]);
	if (d->open)
		d->driver->close(d->open);
	free(d->programs);
	free(d->code);
	free(d);
}

// ---- launches -------------------------------------------------------------------------

int amos_device_wait(struct amos_device *d)
{
	return d->driver->wait(d->open);
}

int amos_device_copy(struct amos_device *d, enum amos_way way, void *to, const void *from,
                     int64_t bytes)
{
	return d->driver->copy(d->open, way, to, from, bytes);
}

int amos_device_launch(struct amos_device *d, const struct amos_entry *entry,
                       const struct amos_kernel *row, char *const *buf)
{
	const struct code *code =
	    &d->code[d->programs[entry - d->model->entries].code + (row - entry->kernels)];
	bool full = d->used + row->noperands > d->room;
	int status = full ? amos_device_wait(d) : AMOS_DONE;
	if (status)
		return status;
	d->used = full ? 0 : d->used;
	uint64_t *table = d->run + d->used;
	for (int64_t i = 0; i < row->noperands; i++)
		table[i] = (uintptr_t)buf[i];
	d->used += row->noperands;
	return d->driver->launch(d->open, code->kernel,
	                         d->recorded ? d->near + (table - d->tables) : table, table,
	                         row->noperands, row->workers, code->threads, row->shared);
}

int amos_device_time(struct amos_device *d, const struct amos_entry *entry,
                     const struct amos_kernel *row, char *const *buf, int64_t *nanoseconds)
{
	int (*clock)(void *, int64_t *) = d->driver->clock;
	int64_t start = amos_nanoseconds();
	int status = clock ? clock(d->open, NULL) : AMOS_DONE;
	if (!status)
		status = amos_device_launch(d, entry, row, buf);
	if (!status)
		status = clock ? clock(d->open, nanoseconds) : amos_device_wait(d);
	if (!clock)
		*nanoseconds = amos_nanoseconds() - start;
	return status;
}

// ---- runs -----------------------------------------------------------------------------

static char *copy_of(const struct amos *m, const char *at)
{
	return m->device_batch + (at - m->batch);
}

static int upload_inputs(const struct amos *m, const struct amos_entry *entry)
{
	const struct amos_device *d = m->device;
	int status = AMOS_DONE;
	for (int64_t i = 0; i < m->model->nslots && !status; i++) {
		const struct amos_slot *s = &m->model->slots[i];
		if (s->kind != AMOS_SLOT_INPUT || entry->reads[s->offset] != '1')
			continue;
		const char *from = amos_slot_bytes(m, i);
		status = d->driver->upload(d->open, copy_of(m, from), from, s->bytes);
	}
	return status ? status : d->driver->join(d->open);
}

static int prefetch_values(const struct amos *m)
{
	struct amos_device *d = m->device;
	int64_t bytes = m->state + m->model->state - m->params;
	bool moves = d->touched && d->driver->prefetch && bytes;
	d->touched = false;
	return moves ? d->driver->prefetch(d->open, m->params, bytes) : AMOS_DONE;
}

// Copies the small outputs, which follow each other.
static int download_outputs(const struct amos *m, const struct amos_entry *entry)
{
	const struct amos_device *d = m->device;
	char *begin = NULL, *end = NULL;
	for (int64_t i = 0; i < entry->nouts; i++)
		if (entry->outs[i].bytes <= AMOS_SMALL) {
			char *at = amos_out_bytes(m, entry, i);
			begin = begin ? begin : at;
			end = at + entry->outs[i].bytes;
		}
	return begin ? d->driver->download(d->open, begin, copy_of(m, begin), end - begin)
	             : AMOS_DONE;
}

// Its launches read their tables, which stay as they are, near by.
static int record_graph(const struct amos_run *run, const struct amos_entry *entry, void **graph)
{
	struct amos_device *d = ((const struct amos *)run->own)->device;
	int status = d->driver->record(d->open);
	if (status)
		return status;
	d->recorded = true;
	status = amos_run_entry(run, entry);
	d->recorded = false;
	int kept = d->driver->keep(d->open, status ? NULL : graph);
	if (!status && !kept)
		kept = d->driver->upload(d->open, d->near + (d->run - d->tables), d->run,
		                         d->used * (int64_t)sizeof *d->run);
	if (!status && !kept)
		kept = d->driver->join(d->open);
	return status ? status : kept;
}

// Starts the launches of an entry: from the second time on as a graph, if it has no loops and no
// launch is timed.
static int start_launches(const struct amos_run *run, const struct amos_entry *entry)
{
	const struct amos *m = run->own;
	const struct amos_device *d = m->device;
	struct program *p = &d->programs[entry - d->model->entries];
	void **graph = &p->graph[m->in_use];
	if (p->loops || !p->ran || m->nanoseconds || m->spans || m->graphs_missing) {
		p->ran = true;
		return amos_run_entry(run, entry);
	}
	int status = *graph ? AMOS_DONE : record_graph(run, entry, graph);
	return status ? status : d->driver->replay(d->open, *graph);
}

int amos_device_begin(const struct amos_run *run, const struct amos_entry *entry)
{
	const struct amos *m = run->own;
	struct amos_device *d = m->device;
	const struct program *p = &d->programs[entry - d->model->entries];
	d->run = d->tables + m->in_use * d->each + p->table;
	d->room = p->room;
	d->used = 0;
	int status = upload_inputs(m, entry);
	if (!status)
		status = prefetch_values(m);
	if (!status)
		status = start_launches(run, entry);
	if (!status)
		status = download_outputs(m, entry);
	return status ? status : d->driver->mark(d->open, m->in_use);
}

int amos_device_end(struct amos *m)
{
	return m->device->driver->reach(m->device->open, m->in_use);
}
