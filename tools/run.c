// run.c: implements amosc run and amosc grad.
// Runs one batch through the model, or samples. Output: outputs, loss and gradients as an .npz
// file.
#include "number.h"
#include "tool.h"
#include <stdlib.h>
#include <string.h>

typedef struct Batch {
	Arena *arena;
	const Graph *graph;
	struct amos *open; // has run the batch
	const struct amos_entry *entry;
	char **rows;                 // outputs of all samples; NULL: of one batch
	int64_t samples;             // of the rows
	VEC(struct amos_array) list; // to be written
	Table *names;                // of the list
	Table *outs;                 // name -> index in the entry's outputs + 1
	Table *declared;             // name -> Input, an output of the file
} Batch;

static void add_array(Batch *a, const char *name, Elem type, const Shape *shape, const void *bytes)
{
	if ((*table_cell_s(a->names, name))++)
		return;
	struct amos_array array = {.name = name, .type = type, .rank = shape->rank, .bytes = bytes};
	memcpy(array.dim, shape->dim, sizeof(int64_t) * (size_t)shape->rank);
	PUSH(a->arena, a->list, array);
}

// Returns the file's output `name`, or the sequence of which it is an element, or NULL.
static const Input *declared(const Batch *a, const char *name)
{
	const Input *out = table_pointer_s(a->declared, name);
	if (out)
		return out;
	out = table_pointer_s(a->declared, format(a->arena, "%.*s", (int)strcspn(name, "#"), name));
	return out && out->sequence ? out : NULL;
}

static const void *in_type(Arena *arena, const void *bytes, const Shape *shape, Elem from, Elem to)
{
	if (from == to)
		return bytes;
	Array x = array_from(arena, from, shape, bytes);
	void *converted = take(arena, (size_t)byte_count(to, shape) + 8);
	x.type = to;
	array_to(&x, converted);
	return converted;
}

// Adds the file's outputs and the loss. Outputs have the type that the file declares; those of grad
// have the type in which they are computed, since gradients are of unrounded outputs.
static void add_outs(Batch *a)
{
	bool rounded = strcmp(a->entry->name, "grad") != 0;
	for (int64_t i = 0; i < a->entry->nouts; i++) {
		const struct amos_out *out = &a->entry->outs[i];
		uint64_t *index = table_cell_s(a->outs, out->name);
		*index = *index ? *index : (uint64_t)i + 1;
		const char *name = out->name;
		const Input *output = out->auxiliary ? NULL : declared(a, name);
		if (!output && starts_with(name, OUTPUT_OF)) {
			name += strlen(OUTPUT_OF);
			output = declared(a, name);
		}
		if (!output && strcmp(name, "loss"))
			continue; // a gradient, or not the model's
		Shape shape = {.rank = (int)out->rank};
		amos_out_shape(a->open, a->entry, i, shape.dim);
		Elem from = (Elem)out->type, type = output ? output->type : from;
		if (!rounded && is_float(type) && is_float(from))
			type = from;
		const void *bytes = a->rows ? a->rows[i] : amos_out_bytes(a->open, a->entry, i);
		if (a->rows)
			shape.dim[0] = a->samples;
		add_array(a, name, type, &shape, in_type(a->arena, bytes, &shape, from, type));
	}
}

static void write_arrays(Session *session, const Batch *a, const char *out)
{
	need_done(amos_npz_write(out, a->list.count, a->list.at));
	if (!chosen(session, OPT_json))
		return;
	json_t *list = json_array();
	for (int i = 0; i < a->list.count; i++) {
		Shape shape = shape_of(a->list.at[i].rank, a->list.at[i].dim);
		json_array_append_new(
		    list, json_pack("{so ss so}", "name", json_text(a->list.at[i].name), "type",
		                    elems[a->list.at[i].type].name, "shape", shape_json(&shape)));
	}
	print_json(json_pack("{so so}", "out", json_text(out), "arrays", list));
}

// ---- gradients ------------------------------------------------------------------------

static const double *gradient_of(void *batch, int slot)
{
	Batch *a = batch;
	const char *name = format(a->arena, GRAD_OF "%s", a->graph->slots.at[slot].name);
	const uint64_t *cell = table_find_s(a->outs, name);
	if (!cell)
		return NULL;
	int64_t out = (int64_t)*cell - 1;
	const struct amos_out *o = &a->entry->outs[out];
	Shape shape = shape_of((int)o->rank, o->dim);
	return in_type(a->arena, amos_out_bytes(a->open, a->entry, out), &shape, (Elem)o->type,
	               E_f64);
}

static void add_gradient(void *batch, const char *name, Shape shape, const double *x)
{
	Batch *a = batch;
	Elem type = (Elem)a->entry->outs[*table_find_s(a->outs, "loss") - 1].type;
	const char *gradient = format(a->arena, GRAD_OF "%s", name);
	if (declared(a, gradient))
		fail(a->graph->name,
		     "output '%s' has the name of the gradient of '%s'" HELP "rename the output",
		     gradient, name);
	add_array(a, gradient, type, &shape, in_type(a->arena, x, &shape, E_f64, type));
}

// Returns the number in a state; 0: there is none of that name.
static double state(const struct amos *m, const char *name)
{
	int64_t slot = amos_find_slot(m->model, name);
	return slot < 0 ? 0 : amos_number(amos_slot_bytes(m, slot), m->model->slots[slot].type, 0);
}

// Runs the batch, and again at half the loss scale of f16 while gradients are not finite.
static void call(Session *session, const Batch *a)
{
	for (double scale = -1; scale != state(a->open, LOSS_SCALE);) {
		double skipped = state(a->open, SKIPPED);
		scale = state(a->open, LOSS_SCALE);
		need_done(amos_call(a->open, a->entry, NULL, NULL));
		if (state(a->open, SKIPPED) == skipped)
			return;
	}
	tell(session, "amosc: warning: not all gradients are finite at a loss scale of %g\n",
	     state(a->open, LOSS_SCALE));
}

// ---- run and grad ---------------------------------------------------------------------

static void free_rows(void *batch)
{
	Batch *a = batch;
	amos_outputs_free(a->entry, a->rows);
}

// Runs all samples, a batch at a time.
static void run_samples(const struct amos_data *data, Batch *a)
{
	a->samples = amos_data_eval_samples(data);
	at_end(a->arena, free_rows, a);
	need_done(amos_run_data(a->open, data, a->entry, &a->rows));
}

static void run_batch(Session *session)
{
	const char *out = stream_output(session, "OUT.npz");
	if (!amos_npz_named(out))
		bad_usage(session, format(session->arena, "expected -o OUT.npz, found '%s'", out));
	if (!chosen(session, OPT_data) && list_model(session)->inputs.count)
		bad_usage(session, "expected --data IN.npz or --data NAME=SOURCE for the inputs");
	Program *p = program_new(session, open_data(session));
	run_passes(p, PASS_read);
	need_done(amos_output_check(out));
	attach_data(p);
	tell(session, "%s", p->data->read);
	struct amos *open = open_program(p);
	Batch *a = NEW(session->arena, Batch);
	*a = (Batch){.arena = session->arena,
	             .graph = program_graph(p),
	             .open = open,
	             .entry = &open->model->entries[0],
	             .names = table_new(session->arena),
	             .outs = table_new(session->arena),
	             .declared = table_new(session->arena)};
	for (int i = 0; i < p->model->outputs.count; i++) {
		const Input *output = &p->model->outputs.at[i];
		*table_cell_s(a->declared, output->name) = (uint64_t)(uintptr_t)output;
	}
	if (p->data->exact) {
		need_done(amos_data_eval(p->data, open, 0, 1));
		call(session, a);
	} else {
		run_samples(p->data, a);
	}
	add_outs(a);
	bool gradients = session->purpose == FOR_GRADIENTS;
	if (gradients)
		each_initializer(p->model, session->arena, gradient_of, add_gradient, a);
	for (int i = 0; i < a->graph->slots.count && gradients; i++) {
		const Slot *s = &a->graph->slots.at[i];
		const double *x = s->kind == S_input ? gradient_of(a, i) : NULL;
		if (x)
			add_gradient(a, s->name, s->shape, x);
	}
	write_arrays(session, a, out);
}

void verb_run(Session *session)
{
	if (chosen(session, OPT_generate))
		generate(session);
	else
		run_batch(session);
}

void verb_grad(Session *session)
{
	run_batch(session);
}
