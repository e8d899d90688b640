// api.c: implements amos.h: instances of models, their arrays by kind, and calls of their entries.
#include "number.h"

#define SAME(public, own) ((int)AMOS_##public == (int)AMOS_##own)
_Static_assert(SAME(F64, f64) && SAME(F32, f32) && SAME(F16, f16) && SAME(BF16, bf16) &&
                   SAME(I64, i64) && SAME(I8, i8) && SAME(U64, u64) && SAME(U8, u8) &&
                   SAME(BOOL, b8),
               "amos.h numbers types as types.def does");

// ---- arrays by kind -------------------------------------------------------------------

static enum amos_kind kind_of(const struct amos_slot *slot)
{
	static const enum amos_kind kinds[] = {
	    [AMOS_SLOT_INPUT] = AMOS_INPUTS,  [AMOS_SLOT_PARAMETER] = AMOS_PARAMETERS,
	    [AMOS_SLOT_FROZEN] = AMOS_FROZEN, [AMOS_SLOT_BUFFER] = AMOS_BUFFERS,
	    [AMOS_SLOT_STATE] = AMOS_STATE,   [AMOS_SLOT_GRADIENT] = AMOS_GRADIENTS};
	return kinds[slot->kind];
}

// For each parameter it also lists the slot of its gradient, or -1.
void amos_list_slots(struct amos *m)
{
	const struct amos_model *model = m->model;
	int64_t n = model->nslots, count[AMOS_KINDS + 1] = {0}, at = 0;
	for (int kind = 0; kind < AMOS_KINDS; kind++) {
		m->first[kind] = at;
		for (int64_t i = 0; i < n; i++)
			if ((int)kind_of(&model->slots[i]) == kind && kind != AMOS_GRADIENTS)
				m->slots[at++] = i;
		count[kind] = at - m->first[kind];
		for (int64_t k = 0; kind == AMOS_GRADIENTS && k < count[AMOS_PARAMETERS]; k++)
			m->slots[at++] = -1;
	}
	m->first[AMOS_KINDS] = at;
	for (int64_t i = 0; i < n; i++) {
		const struct amos_slot *slot = &model->slots[i];
		int64_t of = slot->kind == AMOS_SLOT_GRADIENT
		                 ? amos_find(m, AMOS_PARAMETERS, slot->name + sizeof "grad:" - 1)
		                 : -1;
		if (of >= 0)
			m->slots[m->first[AMOS_GRADIENTS] + of] = i;
	}
}

// True if `text` is the name, or, if there are `samples`, NAME:SAMPLES.
static bool is_name(const char *text, const char *name, int64_t samples)
{
	int64_t number = 0;
	for (; *name && *text == *name; text++, name++)
		;
	if (*name || !samples)
		return *name == *text;
	for (text += *text == ':'; *text >= '0' && *text <= '9'; text++)
		number = number * 10 + *text - '0';
	return !*text && number == samples;
}

// Returns the entry for the batch size of the instance; NULL: none.
static const struct amos_entry *entry_named(const struct amos *m, const char *name)
{
	for (int64_t e = 0; e < m->model->nentries; e++)
		if (is_name(m->model->entries[e].name, name, m->samples))
			return &m->model->entries[e];
	return NULL;
}

static const struct amos_entry *outputs_of(const struct amos *m)
{
	return entry_named(m, "run");
}

// True if the array exists: amos_find() returns -1 for a name that no array has.
static bool exists(const struct amos *m, enum amos_kind kind, int64_t i)
{
	return i >= 0 && i < amos_count(m, kind);
}

// Returns output i of the model, among those of the entry that computes them.
static const struct amos_out *output(const struct amos *m, int64_t i)
{
	static const struct amos_out none;
	if (!exists(m, AMOS_OUTPUTS, i))
		return &none;
	const struct amos_out *out = outputs_of(m)->outs;
	for (; out->auxiliary || i--; out++)
		;
	return out;
}

static const struct amos_slot *slot(const struct amos *m, enum amos_kind kind, int64_t i)
{
	static const struct amos_slot none;
	if (!exists(m, kind, i))
		return &none;
	if (kind == AMOS_GRADIENTS) // described as its parameter
		kind = AMOS_PARAMETERS;
	return &m->model->slots[m->slots[m->first[kind] + i]];
}

int64_t amos_count(const struct amos *m, enum amos_kind kind)
{
	if ((unsigned)kind >= AMOS_KINDS)
		return 0;
	if (kind != AMOS_OUTPUTS)
		return m->first[kind + 1] - m->first[kind];
	const struct amos_entry *entry = outputs_of(m);
	int64_t count = 0;
	for (int64_t i = 0; entry && i < entry->nouts; i++)
		count += !entry->outs[i].auxiliary;
	return count;
}

int64_t amos_find(const struct amos *m, enum amos_kind kind, const char *name)
{
	int64_t n = amos_count(m, kind);
	for (int64_t i = 0; i < n; i++)
		if (amos_same(amos_name(m, kind, i), name))
			return i;
	return -1;
}

const char *amos_name(const struct amos *m, enum amos_kind kind, int64_t i)
{
	return kind == AMOS_OUTPUTS ? output(m, i)->name : slot(m, kind, i)->name;
}

enum amos_type amos_type(const struct amos *m, enum amos_kind kind, int64_t i)
{
	return (enum amos_type)(kind == AMOS_OUTPUTS ? output(m, i)->type : slot(m, kind, i)->type);
}

int64_t amos_rank(const struct amos *m, enum amos_kind kind, int64_t i)
{
	return kind == AMOS_OUTPUTS ? output(m, i)->rank : slot(m, kind, i)->rank;
}

const int64_t *amos_shape(const struct amos *m, enum amos_kind kind, int64_t i)
{
	return kind == AMOS_OUTPUTS ? output(m, i)->dim : slot(m, kind, i)->dim;
}

int64_t amos_bytes(const struct amos *m, enum amos_kind kind, int64_t i)
{
	return kind == AMOS_OUTPUTS ? output(m, i)->bytes : slot(m, kind, i)->bytes;
}

void *amos_values(const struct amos *m, enum amos_kind kind, int64_t i)
{
	if (!exists(m, kind, i))
		return NULL;
	if (kind == AMOS_OUTPUTS) {
		const struct amos_entry *entry = outputs_of(m);
		return amos_out_bytes(m, entry, output(m, i) - entry->outs);
	}
	int64_t at = m->slots[m->first[kind] + i];
	return at < 0 ? NULL : amos_slot_bytes(m, at);
}

void *amos_block(const struct amos *m, enum amos_kind kind, int64_t *bytes)
{
	char *blocks[AMOS_KINDS] = {[AMOS_PARAMETERS] = m->params,
	                            [AMOS_GRADIENTS] = m->model->gradients ? m->gradients : NULL,
	                            [AMOS_STATE] = m->state};
	char *block = (unsigned)kind < AMOS_KINDS ? blocks[kind] : NULL;
	*bytes = 0;
	for (int64_t i = 0; block && i < amos_count(m, kind); i++) {
		int64_t end = slot(m, kind, i)->offset + slot(m, kind, i)->bytes;
		*bytes = end > *bytes ? end : *bytes;
	}
	return *bytes ? block : NULL;
}

int amos_set_input(struct amos *m, int64_t i, const void *values)
{
	const struct amos_slot *s = slot(m, AMOS_INPUTS, i);
	if (!exists(m, AMOS_INPUTS, i))
		return amos_fail(
		    AMOS_INPUT, "%s: amos_set_input: no input %lld; the model has %lld",
		    m->model->name, (long long)i, (long long)amos_count(m, AMOS_INPUTS));
	if (m->device)
		return amos_fail(AMOS_USAGE,
		                 "%s: input '%s': compiled for '%s', which has memory of its "
		                 "own" AMOS_HELP "copy to amos_values()",
		                 m->model->name, s->name, m->model->device);
	if ((uintptr_t)values % AMOS_LINE)
		return amos_fail(AMOS_INPUT,
		                 "%s: input '%s': expected an array at a multiple of %d bytes, "
		                 "found it at address %lld",
		                 m->model->name, s->name, AMOS_LINE, (long long)(uintptr_t)values);
	m->set_inputs[s->offset] = (void *)(uintptr_t)values;
	return AMOS_DONE;
}

void amos_output_shape(const struct amos *m, int64_t i, int64_t *shape)
{
	const struct amos_entry *entry = outputs_of(m);
	if (!exists(m, AMOS_OUTPUTS, i))
		return;
	amos_out_shape(m, entry, output(m, i) - entry->outs, shape);
}

// ---- calls ----------------------------------------------------------------------------

// Fails if a label or index that the entry reads is out of range: kernels do not look.
static int check_inputs(const struct amos *m, const struct amos_entry *entry)
{
	for (int64_t i = 0; i < amos_count(m, AMOS_INPUTS); i++) {
		const struct amos_slot *s = slot(m, AMOS_INPUTS, i);
		const void *set = m->set_inputs[s->offset], *at = set ? set : m->inputs[s->offset];
		bool limited = s->limit && amos_types[s->type].class != 'f';
		int64_t n = limited && entry->reads[s->offset] == '1'
		                ? s->bytes / amos_types[s->type].bytes
		                : 0;
		for (int64_t k = 0; k < n; k++) {
			double x = amos_number(at, s->type, k);
			if (!amos_in_range(s, x))
				return amos_fail(AMOS_INPUT,
				                 "%s: input '%s': expected integers in [0, %lld), "
				                 "found %g in element %lld",
				                 m->model->name, s->name, (long long)s->limit, x,
				                 (long long)k);
		}
	}
	return AMOS_DONE;
}

static int call(struct amos *m, const char *name, double *loss)
{
	const struct amos_entry *entry = entry_named(m, name);
	const char *known = amos_same(name, "gather") ? "train" : name; // as callers know it
	if (!entry && m->samples)
		return amos_fail(AMOS_USAGE,
		                 "%s: compiled without '%s' of %lld %s" AMOS_HELP
		                 "the largest batch is for training: amos_set_batch(m, 0)",
		                 m->model->name, known, (long long)m->samples,
		                 PLURAL(m->samples, "sample", "samples"));
	if (!entry)
		return amos_fail(AMOS_USAGE, "%s: compiled without '%s'", m->model->name, known);
	int status = check_inputs(m, entry);
	if (!status)
		status = amos_call(m, entry, m->set_inputs, NULL);
	m->last = status ? NULL : entry;
	if (!status && loss)
		*loss = amos_metric(m, "loss");
	return status;
}

// Returns the number of samples in the largest batch; 0: the model has no inputs. Where it is the
// only one, it is axis 0 of the inputs that are known to count samples, else of the first input.
static int64_t largest_batch(const struct amos_model *model)
{
	int64_t batch = model->batch;
	bool known = batch != 0;
	for (int64_t i = 0; i < model->nslots && !known; i++) {
		const struct amos_slot *s = &model->slots[i];
		if (s->kind != AMOS_SLOT_INPUT || !s->rank)
			continue;
		known = s->counts;
		batch = known || !batch ? s->dim[0] : batch;
	}
	return batch;
}

int amos_set_batch(struct amos *m, int64_t n)
{
	int64_t before = m->samples;
	m->samples = n == largest_batch(m->model) ? 0 : n;
	if (!m->samples || entry_named(m, "run"))
		return AMOS_DONE;
	m->samples = before;
	return amos_fail(AMOS_USAGE,
	                 "%s: compiled without batches of %lld" AMOS_HELP
	                 "give amosc build --bind NAME=N for each size",
	                 m->model->name, (long long)n);
}

int amos_forward(struct amos *m)
{
	return call(m, "run", NULL);
}

int amos_evaluate(struct amos *m, double *loss)
{
	return call(m, "eval", loss);
}

// Returns the number of steps that the schedule of the learning rate is for, 0 if it is not set;
// -1: there is none.
static int64_t steps_of_run(const struct amos *m)
{
	int64_t slot = amos_find_slot(m->model, "amos.steps"), steps = -1;
	if (slot >= 0)
		memcpy(&steps, amos_slot_bytes(m, slot), sizeof steps);
	return steps;
}

static int check_steps(const struct amos *m)
{
	return steps_of_run(m)
	           ? AMOS_DONE
	           : amos_fail(AMOS_USAGE,
	                       "%s: the schedule of the learning rate needs the number of "
	                       "steps" AMOS_HELP "call amos_set_steps() first",
	                       m->model->name);
}

int amos_step(struct amos *m, double *loss)
{
	int status = check_steps(m);
	if (status)
		return status;
	int64_t slot = amos_find_slot(m->model, "amos.left"), left = 0;
	if (slot >= 0)
		memcpy(&left, amos_slot_bytes(m, slot), sizeof left);
	return call(m, left ? "gather" : "train", loss);
}

int amos_gradient(struct amos *m, double *loss)
{
	return call(m, "gradient", loss);
}

int amos_update(struct amos *m)
{
	const struct amos_entry *last = m->last; // the metrics stay those of amos_gradient()
	int status = check_steps(m);
	if (!status)
		status = call(m, "update", NULL);
	m->last = last;
	return status;
}

int64_t amos_steps(const struct amos *m)
{
	int64_t slot = amos_find_slot(m->model, "amos.step"), steps = 0;
	if (slot >= 0)
		memcpy(&steps, amos_slot_bytes(m, slot), sizeof steps);
	return steps;
}

int amos_set_steps(struct amos *m, int64_t n)
{
	const struct amos_model *model = m->model;
	int64_t before = steps_of_run(m), done = amos_steps(m), least = n < before ? n : before;
	double stable;
	if (before < 0)
		return amos_fail(AMOS_USAGE,
		                 "%s: compiled without a schedule that needs a number of steps",
		                 model->name);
	if (n < 1)
		return amos_fail(AMOS_INPUT, "amos_set_steps: expected at least 1, found %lld",
		                 (long long)n);
	memcpy(&stable, amos_slot_bytes(m, amos_find_slot(model, "amos.stable")), sizeof stable);
	if (before && before != n && (double)done > stable * (double)least)
		return amos_fail(AMOS_INPUT,
		                 "%s: after %lld %s of a schedule for %lld, another length would "
		                 "change what is done; expected %lld, found %lld" AMOS_HELP
		                 "start another run",
		                 model->name, (long long)done, PLURAL(done, "step", "steps"),
		                 (long long)before, (long long)before, (long long)n);
	memcpy(amos_slot_bytes(m, amos_find_slot(model, "amos.steps")), &n, sizeof n);
	return AMOS_DONE;
}

double amos_rate(const struct amos *m)
{
	int64_t slot = amos_find_slot(m->model, "amos.rate");
	double factor = 1;
	if (slot >= 0)
		memcpy(&factor, amos_slot_bytes(m, slot), sizeof factor);
	return factor;
}

int amos_set_rate(struct amos *m, double factor)
{
	int64_t slot = amos_find_slot(m->model, "amos.rate");
	if (slot < 0)
		return amos_fail(AMOS_USAGE, "%s: compiled without parameters to train",
		                 m->model->name);
	if (!(factor >= 0) || factor - factor != 0)
		return amos_fail(AMOS_INPUT,
		                 "amos_set_rate: expected a finite factor of at least 0, found %g",
		                 factor);
	memcpy(amos_slot_bytes(m, slot), &factor, sizeof factor);
	return AMOS_DONE;
}

double amos_metric(const struct amos *m, const char *name)
{
	int64_t out = m->last ? amos_find_output(m->last, name) : -1;
	return out < 0 ? AMOS_NAN : amos_out_number(m, m->last, out);
}
