// instance.c: lays out an instance of a compiled model in a block of memory, and calls its entries.
// Invariant: workers may run on any thread in any order and compute the same, so results do not
// depend on the number of threads. Nothing allocates.
#include "float_mode.h"
#include "number.h"

enum { SMALL_WORK = 1 << 14 }; // bytes + flops below which one thread is faster

int64_t amos_round_up(int64_t n, int64_t to)
{
	return (n + to - 1) / to * to;
}

// ---- launches -------------------------------------------------------------------------

void amos_run_workers(const struct amos_kernel *k, char *const *buf, int64_t first, int64_t end,
                      char *local)
{
	int64_t gang = k->gang > 1 ? k->gang : 1;
	for (int64_t i = first; i < end; i += gang)
		k->code(buf, i, end - i < gang ? end : i + gang, local);
}

bool amos_is_small(const struct amos_kernel *k)
{
	return k->workers == 1 || k->bytes + k->flops < SMALL_WORK;
}

// True if all launches of an entry are small, so more threads would not help.
static bool all_small(const struct amos_entry *entry)
{
	for (int64_t i = 0; i < entry->nkernels; i++)
		if (!amos_is_small(&entry->kernels[i]))
			return false;
	return true;
}

struct task { // a launch, for the caller's threads
	const struct amos *m;
	const struct amos_kernel *kernel;
	char *const *buf;
	int64_t each; // workers of a call
};

static void run_part(void *task, int64_t i, int64_t thread)
{
	const struct task *t = task;
	int64_t local = amos_round_up(t->m->model->local, AMOS_LINE), first = i * t->each;
	int64_t left = t->kernel->workers - first, own = left < t->each ? left : t->each;
	amos_float_mode before = amos_set_float_mode(AMOS_KERNEL_MODE);
	amos_run_workers(t->kernel, t->buf, first, first + own, t->m->local + thread * local);
	amos_set_float_mode(before);
}

int amos_launch(const struct amos_run *run, const struct amos_kernel *k, char *const *buf)
{
	struct amos *m = run->own;
	int64_t calls = k->whole ? 1 : 2; // of each thread, so that all end at about the same time
	struct task task = {m, k, buf, k->workers};
	int64_t all = calls * (m->threads > 1 ? m->threads : 1),
	        each = (k->workers + all - 1) / all;
	if (m->parallel_for && !amos_is_small(k)) {
		each = each < k->gang ? each : k->gang;
		task.each = each > 1 ? each : 1;
		m->parallel_for(m->context, (k->workers + task.each - 1) / task.each, run_part,
		                &task);
	} else {
		run_part(&task, 0, 0);
	}
	return AMOS_DONE;
}

// ---- buffers of a batch ---------------------------------------------------------------

void amos_use_batch(struct amos *m, int64_t number)
{
	m->in_use = number % m->batches;
}

// Returns the buffer that the set in use has in place of `first`, that of the first set; `device`:
// the device's copy. Large outputs are in no set.
static char *buffer(const struct amos *m, char *first, bool device)
{
	uintptr_t offset = (uintptr_t)first - (uintptr_t)m->batch;
	char *sets = device && m->device_batch ? m->device_batch : m->batch;
	bool in_set = offset < (uintptr_t)m->batch_bytes;
	return in_set ? sets + m->in_use * m->batch_bytes + offset : first;
}

static char *const *chosen(const struct amos *m, char **to, char *const *own, void *const *given,
                           int64_t n, bool device)
{
	for (int64_t i = 0; i < n; i++)
		to[i] = given && given[i] ? given[i] : buffer(m, own[i], device);
	return to;
}

// ---- outputs of data-dependent size ---------------------------------------------------

// `shape`: contents of the output that holds the shape.
static void run_shape(const struct amos_out *out, const void *shape, int64_t *dim)
{
	const int64_t *of = out->shape_output ? shape : out->dim;
	for (int64_t a = 0; a < out->rank; a++)
		dim[a] = of[a] < 0 ? 0 : of[a] < out->dim[a] ? of[a] : out->dim[a];
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

// ---- calls ----------------------------------------------------------------------------

static char *const *outputs_for(const struct amos *m, const struct amos_entry *entry,
                                void *const *given, bool device)
{
	char *const *own = m->outputs + m->first_out[entry - m->model->entries];
	return chosen(m, m->given_outputs, own, given, entry->nouts, device);
}

int amos_begin(struct amos *m, const struct amos_entry *entry, void *const *inputs,
               void *const *outputs)
{
	struct amos_run run = {
	    .params = m->params,
	    .state = m->state,
	    .gradients = m->gradients,
	    .scratch = m->scratch,
	    .inputs = chosen(m, m->given_inputs, m->inputs, inputs, m->ninputs, true),
	    .outputs = outputs_for(m, entry, outputs, true),
	    .constants = m->constants,
	    .launch = m->launch,
	    .copy = m->copy,
	    .own = m,
	};
	m->entry = entry;
	if (m->begin) // the driver says why it fails
		return m->begin(&run, entry);
	int status = amos_run_entry(&run, entry);
	return status ? amos_fail(AMOS_MACHINE, "%s: the model stopped with status %d",
	                          m->model->name, status)
	              : AMOS_DONE;
}

int amos_end(struct amos *m, const struct amos_entry *entry, void *const *given)
{
	int status = m->end ? m->end(m) : AMOS_DONE;
	if (status)
		return status;
	char *const *outputs = outputs_for(m, entry, given, false);
	for (int64_t i = 0; i < entry->nouts; i++) {
		const struct amos_out *out = &entry->outs[i];
		const int64_t *index = (const int64_t *)outputs[i];
		int64_t dim[10];
		if (out->check && *index)
			return amos_fail(AMOS_INPUT, "%s: %s, found %lld", m->model->name,
			                 out->check, (long long)(*index == INT64_MIN ? 0 : *index));
		if (!out->shape_output || !out->rank)
			continue;
		run_shape(out, outputs[out->shape_output - 1], dim);
		pack(out, dim, outputs[i]);
	}
	return AMOS_DONE;
}

int amos_call(struct amos *m, const struct amos_entry *entry, void *const *inputs,
              void *const *outputs)
{
	int status = amos_begin(m, entry, inputs, outputs);
	return status ? status : amos_end(m, entry, outputs);
}

// ---- addresses of slots and outputs ---------------------------------------------------

void *amos_slot_bytes(const struct amos *m, int64_t slot)
{
	const struct amos_slot *s = &m->model->slots[slot];
	return s->kind == AMOS_SLOT_INPUT      ? buffer(m, m->inputs[s->offset], false)
	       : s->kind == AMOS_SLOT_STATE    ? m->state + s->offset
	       : s->kind == AMOS_SLOT_GRADIENT ? m->gradients + s->offset
	                                       : m->params + s->offset;
}

void *amos_out_bytes(const struct amos *m, const struct amos_entry *entry, int64_t out)
{
	return buffer(m, m->outputs[m->first_out[entry - m->model->entries] + out], false);
}

void amos_out_shape(const struct amos *m, const struct amos_entry *entry, int64_t out, int64_t *dim)
{
	const struct amos_out *o = &entry->outs[out];
	run_shape(o, o->shape_output ? amos_out_bytes(m, entry, o->shape_output - 1) : NULL, dim);
}

double amos_out_number(const struct amos *m, const struct amos_entry *entry, int64_t out)
{
	double x = amos_number(amos_out_bytes(m, entry, out), (int)entry->outs[out].type, 0);
	return x == x ? x : AMOS_NAN; // drops the sign of NaN, which varies
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

// ---- layout ---------------------------------------------------------------------------

static void *take(struct amos_block *b, int64_t bytes, int64_t align)
{
	int64_t start = amos_round_up(b->bytes, align);
	b->bytes = start + bytes;
	return b->at ? b->at + start : NULL;
}

static void *take_table(struct amos_block *b, int64_t count, size_t size)
{
	return take(b, count * (int64_t)size, _Alignof(int64_t));
}

// Lays out the small outputs, or the others. Those of an entry follow each other.
static void lay_outputs(struct amos *m, struct amos_block *b, bool small)
{
	int64_t number = 0;
	for (int64_t e = 0; e < m->model->nentries; e++) {
		const struct amos_entry *entry = &m->model->entries[e];
		if (b->at)
			m->first_out[e] = number;
		for (int64_t i = 0; i < entry->nouts; i++, number++) {
			int64_t bytes = entry->outs[i].bytes;
			bool here = (bytes <= AMOS_SMALL) == small;
			char *at = here ? take(b, bytes, AMOS_LINE) : NULL;
			if (at)
				m->outputs[number] = at;
		}
	}
}

// Lays out the sets of buffers.
static void lay_batches(struct amos *m, struct amos_block *b, int64_t align)
{
	const struct amos_model *model = m->model;
	int64_t begin = amos_round_up(b->bytes, align);
	m->batch = take(b, 0, align);
	for (int64_t i = 0; i < model->nslots; i++) {
		const struct amos_slot *s = &model->slots[i];
		char *at = s->kind == AMOS_SLOT_INPUT ? take(b, s->bytes, AMOS_LINE) : NULL;
		if (at)
			m->inputs[s->offset] = at;
	}
	lay_outputs(m, b, true);
	m->batch_bytes = amos_round_up(b->bytes - begin, AMOS_LINE);
	b->bytes = begin + m->batches * m->batch_bytes;
}

int64_t amos_lay_out(struct amos *m, char *memory, struct amos_apart *apart, int64_t align)
{
	const struct amos_model *model = m->model;
	struct amos_block b = {memory, sizeof *m}, *values = apart ? &apart->values : &b,
	                  *work = apart ? &apart->scratch : &b, *sets = apart ? &apart->batch : &b;
	int64_t ninputs = 0, outs = 0, most = 0, scratch = 0,
	        pads = amos_round_up(model->local, AMOS_LINE) * m->threads;
	for (int64_t i = 0; i < model->nslots; i++)
		if (model->slots[i].kind == AMOS_SLOT_INPUT && ninputs <= model->slots[i].offset)
			ninputs = model->slots[i].offset + 1;
	for (int64_t e = 0; e < model->nentries; e++) {
		const struct amos_entry *entry = &model->entries[e];
		outs += entry->nouts;
		most = most > entry->nouts ? most : entry->nouts;
		scratch = scratch > entry->scratch ? scratch : entry->scratch;
	}
	m->ninputs = ninputs;
	m->inputs = take_table(&b, ninputs, sizeof *m->inputs);
	m->set_inputs = take_table(&b, ninputs, sizeof *m->set_inputs);
	m->given_inputs = take_table(&b, ninputs, sizeof *m->given_inputs);
	m->outputs = take_table(&b, outs, sizeof *m->outputs);
	m->given_outputs = take_table(&b, most, sizeof *m->given_outputs);
	m->first_out = take_table(&b, model->nentries, sizeof *m->first_out);
	m->slots = take_table(&b, 2 * model->nslots, sizeof *m->slots);
	if (apart)
		values->bytes = work->bytes = sets->bytes = 0;
	m->params = take(values, model->params, align);
	m->state = take(values, model->state, align);
	m->scratch = take(work, scratch, align);
	m->local = take(work, pads, align);
	int64_t begin = values->bytes = amos_round_up(values->bytes, align);
	lay_batches(m, sets, align);
	lay_outputs(m, values, false);
	int64_t of_batch = values->bytes - begin + (apart ? sets->bytes : 0);
	m->memory = (struct amos_memory){
	    model->params, model->state, scratch,
	    pads,          of_batch,     model->params + model->state + scratch + pads + of_batch};
	// Gradients come last and do not count: only some programs touch them.
	m->gradients = take(values, model->gradients, align);
	return amos_round_up(b.bytes, align);
}

// ---- open -----------------------------------------------------------------------------

int amos_read_setup(const char *function, const struct amos_setup *setup, struct amos_setup *to)
{
	*to = (struct amos_setup){.size = sizeof *to};
	if (!setup)
		return AMOS_DONE;
	if (setup->size < offsetof(struct amos_setup, weights) || setup->size > sizeof *to)
		return amos_fail(AMOS_INPUT,
		                 "%s: expected a struct amos_setup of at most %d bytes, found "
		                 "%lld" AMOS_HELP "compile the program with this runtime's amos.h",
		                 function, (int)sizeof *to, (long long)setup->size);
	memcpy(to, setup, setup->size);
	if (to->threads < 0 || to->threads > AMOS_THREADS)
		return amos_fail(AMOS_INPUT, "%s: expected 0 to %d threads, found %lld", function,
		                 AMOS_THREADS, (long long)to->threads);
	return AMOS_DONE;
}

int amos_prepare(struct amos *m, const struct amos_model *model, const struct amos_setup *setup)
{
	if (model->abi != AMOS_ABI)
		return amos_fail(
		    AMOS_INPUT,
		    "%s: expected a model compiled for version %d of the runtime, found "
		    "%lld" AMOS_HELP "compile it again",
		    model->name, AMOS_ABI, (long long)model->abi);
	model = amos_best(model);
	*m = (struct amos){.model = model,
	                   .threads = 1,
	                   .batches = 1,
	                   .constants = model->constants,
	                   .launch = amos_launch,
	                   .parallel_for = setup->parallel_for,
	                   .context = setup->context};
	for (int64_t e = 0; e < model->nentries; e++)
		if (!all_small(&model->entries[e]))
			m->threads = setup->threads;
	return amos_check_cpu(model);
}

static bool is_weight(const struct amos_slot *s)
{
	return s->kind == AMOS_SLOT_PARAMETER || s->kind == AMOS_SLOT_FROZEN ||
	       s->kind == AMOS_SLOT_BUFFER;
}

void amos_fill(struct amos *m, const struct amos_setup *setup)
{
	const struct amos_model *model = m->model;
	amos_list_slots(m);
	for (int64_t i = 0; i < model->nslots; i++) {
		const struct amos_slot *s = &model->slots[i];
		const void *from = NULL;
		if (setup->weights && is_weight(s))
			from = setup->weights(setup->context, s->name, s->bytes);
		from = from ? from : s->init;
		if (from && s->kind != AMOS_SLOT_INPUT)
			memcpy(amos_slot_bytes(m, i), from, (size_t)s->bytes);
	}
	int64_t seed = amos_find_slot(model, "amos.seed"),
	        left = amos_find_slot(model, "amos.left");
	if (seed >= 0)
		memcpy(amos_slot_bytes(m, seed), &setup->seed, sizeof setup->seed);
	if (left >= 0)
		memcpy(&m->more, amos_slot_bytes(m, left), sizeof m->more);
}

// ---- open in the caller's memory --------------------------------------------------------

// Begins an instance for amos_open_in(), which has no threads of its own.
static int prepare_in(const char *function, const struct amos_model *model,
                      const struct amos_setup *setup, struct amos_setup *all, struct amos *m)
{
	int status = amos_read_setup(function, setup, all);
	if (!status && all->threads > 1 && !all->parallel_for)
		status = amos_fail(AMOS_INPUT, "%s: expected parallel_for() for %lld threads",
		                   function, (long long)all->threads);
	if (!status && model->device)
		status = amos_fail(AMOS_USAGE,
		                   "%s: compiled for '%s', which has memory of its own" AMOS_HELP
		                   "call amos_open()",
		                   model->name, model->device);
	all->threads = all->threads > 1 ? all->threads : 1;
	return status ? status : amos_prepare(m, model, all);
}

int64_t amos_instance_bytes(const struct amos_model *model, const struct amos_setup *setup)
{
	struct amos_setup all;
	struct amos m;
	int status = prepare_in("amos_instance_bytes", model, setup, &all, &m);
	return status ? -1 : amos_lay_out(&m, NULL, NULL, AMOS_LINE);
}

int amos_open_in(const struct amos_model *model, const struct amos_setup *setup, void *memory,
                 int64_t bytes, struct amos **to)
{
	struct amos_setup all;
	struct amos m;
	*to = NULL;
	int status = prepare_in("amos_open_in", model, setup, &all, &m);
	if (status)
		return status;
	int64_t needed = amos_lay_out(&m, NULL, NULL, AMOS_LINE);
	if (bytes < needed)
		return amos_fail(AMOS_INPUT, "%s: expected a block of %lld bytes, found %lld",
		                 model->name, (long long)needed, (long long)bytes);
	if (!memory || (uintptr_t)memory % AMOS_LINE)
		return amos_fail(AMOS_INPUT,
		                 "%s: expected a block at a multiple of %d bytes, found it at "
		                 "address %lld",
		                 model->name, AMOS_LINE, (long long)(uintptr_t)memory);
	memset(memory, 0, (size_t)needed);
	*to = memory;
	**to = m;
	amos_lay_out(*to, memory, NULL, AMOS_LINE);
	amos_fill(*to, &all);
	return AMOS_DONE;
}
