// run.c: amosc run and amosc grad: one batch through the model, its outputs, loss and gradients to
// an .npz file.
#include "tool.h"
#include <stdlib.h>
#include <string.h>

typedef struct Arrays { // what is to be written
	Arena *arena;
	VEC(struct amos_array) list;
	Table *names;    // of the list
	Table *declared; // name -> Input, an output of the file
} Arrays;

static Arrays arrays_of(Arena *arena, const Model *m)
{
	Arrays a = {.arena = arena, .names = table_new(arena), .declared = table_new(arena)};
	for (int i = 0; i < m->outputs.count; i++)
		*table_cell_s(a.declared, m->outputs.at[i].name) =
		    (uint64_t)(uintptr_t)&m->outputs.at[i];
	return a;
}

static void add_array(Arrays *a, const char *name, Elem type, const Shape *shape, const void *bytes)
{
	if ((*table_cell_s(a->names, name))++)
		return;
	struct amos_array array = {.name = name, .type = type, .rank = shape->rank, .bytes = bytes};
	memcpy(array.dim, shape->dim, sizeof(int64_t) * (size_t)shape->rank);
	PUSH(a->arena, a->list, array);
}

// The arrays of CT.npz, named by output, are data of the inputs that cotangent_pass() adds.
static void add_cotangents(Session *session, const char *path)
{
	int64_t n;
	struct amos_array *array;
	need_done(amos_npz_read(path, &n, &array));
	for (int64_t i = 0; i < n; i++)
		PUSH(session->arena, session->choices,
		     ((Choice){OPT_data, format(session->arena, COTANGENT_OF "%s=%s:%s",
		                                array[i].name, path, array[i].name)}));
	amos_npz_free(n, array);
}

static struct amos_data *open_batch(Session *session)
{
	if (!chosen(session, OPT_data) && list_model(session)->inputs.count)
		bad_usage(session, "expected --data IN.npz or --data NAME=SOURCE for the inputs");
	if (chosen(session, OPT_cotangent))
		add_cotangents(session, choice(session, OPT_cotangent, NULL));
	return open_data(session);
}

// Compiles the program, fills its inputs and runs its one entry.
static const struct amos_entry *call_once(Program *p, struct amos **open)
{
	attach_data(p);
	*open = open_program(p);
	const struct amos_entry *entry = &amos_model_of(*open)->entries[0];
	need_done(amos_data_eval(p->data, *open, 0, 1));
	need_done(amos_call(*open, entry, NULL, NULL));
	return entry;
}

// The file's output `name`, or the sequence that it is an element of; NULL: the file has none.
static const Input *declared(const Arrays *a, const char *name)
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

// An output of the model that is called loss keeps its name: what was minimized has none.
static const char *outer_name(const char *out)
{
	return strcmp(out, "output:loss") ? out : "loss";
}

// The file's outputs and the loss. Outputs leave in the type that the file declares them as; beside
// gradients, which come from unrounded outputs, in the one that they are computed in.
static void add_outs(Arrays *a, struct amos *open, const struct amos_entry *entry)
{
	bool rounded = strcmp(entry->name, "grad") != 0;
	for (int64_t i = 0; i < entry->nouts; i++) {
		const struct amos_out *out = &entry->outs[i];
		if (starts_with(out->name, "grad:") || !amos_out_own(entry, i))
			continue;
		const char *name = outer_name(out->name);
		const Input *output = declared(a, name);
		if (!output && strcmp(name, "loss"))
			continue; // a measure of the loss's
		Shape shape = {.rank = (int)out->rank};
		amos_out_shape(open, entry, i, shape.dim);
		Elem from = (Elem)out->type, type = output ? output->type : from;
		if (!rounded && is_float(type) && is_float(from))
			type = from;
		const void *bytes = amos_out_bytes(open, entry, i);
		add_array(a, name, type, &shape, in_type(a->arena, bytes, &shape, from, type));
	}
}

static void write_arrays(Session *session, const Arrays *a)
{
	const char *out = choice(session, OPT_out, NULL);
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

static void need_out(const Session *session)
{
	if (!chosen(session, OPT_out))
		bad_usage(session, "expected -o OUT.npz");
}

void verb_run(Session *session)
{
	if (chosen(session, OPT_generate)) {
		generate(session);
		return;
	}
	need_out(session);
	Program *program = program_new(session, open_batch(session));
	run_passes(program, PASS_read);
	need_done(amos_output_check(choice(session, OPT_out, NULL)));
	struct amos *open;
	const struct amos_entry *entry = call_once(program, &open);
	Arrays arrays = arrays_of(session->arena, program->model);
	add_outs(&arrays, open, entry);
	write_arrays(session, &arrays);
}

// ---- grad -----------------------------------------------------------------------------

typedef struct Gradients { // what each_initializer asks and answers
	const Graph *graph;
	struct amos *open;
	const struct amos_entry *entry;
	Arrays *arrays;
	Elem type; // of gradients
} Gradients;

static const double *gradient_of(void *context, int slot)
{
	Gradients *all = context;
	const char *name = format(all->arrays->arena, "grad:%s", all->graph->slots.at[slot].name);
	int64_t out = amos_find_output(all->entry, name);
	if (out < 0)
		return NULL;
	const struct amos_out *o = &all->entry->outs[out];
	Shape shape = shape_of((int)o->rank, o->dim);
	return in_type(all->arrays->arena, amos_out_bytes(all->open, all->entry, out), &shape,
	               (Elem)o->type, E_f64);
}

static void add_gradient(void *context, const char *name, Shape shape, const double *x)
{
	Gradients *all = context;
	Arena *arena = all->arrays->arena;
	add_array(all->arrays, format(arena, "grad:%s", name), all->type, &shape,
	          in_type(arena, x, &shape, E_f64, all->type));
}

static void add_input_gradients(Gradients *all)
{
	for (int i = 0; i < all->graph->slots.count; i++) {
		const Slot *s = &all->graph->slots.at[i];
		const double *x = s->kind == S_input ? gradient_of(all, i) : NULL;
		if (x)
			add_gradient(all, s->name, s->shape, x);
	}
}

static const struct amos_array *cotangent_of(const struct amos_data *data, const char *out)
{
	const char *input;
	const struct amos_array *array;
	for (int k = 0; array = amos_data_array(data, k, &input), input; k++)
		if (starts_with(input, COTANGENT_OF) && !strcmp(input + strlen(COTANGENT_OF), out))
			return array;
	return NULL;
}

// Every array of CT.npz is an output's.
static void check_cotangents(Session *session, const struct amos_data *data, const Graph *g)
{
	VEC(const char *) outs = {0};
	const char *input;
	for (int i = 0; i < g->outs.count; i++)
		if (is_own_out(g->outs.at[i].name))
			PUSH(session->arena, outs, g->outs.at[i].name);
	for (int k = 0; amos_data_array(data, k, &input), input; k++) {
		const char *out = input + strlen(COTANGENT_OF);
		if (starts_with(input, COTANGENT_OF) && !find_output(g, out))
			fail(choice(session, OPT_cotangent, ""),
			     "'%s' is no output of the model; %s", out,
			     suggest(session->arena, out, outs.count, outs.at));
	}
}

// Of an out whose size depends on the data a cotangent is as long as that is.
static const Shape *cotangent_shapes(Session *session, const struct amos_data *data, const Graph *g)
{
	Arena *arena = session->arena;
	Shape *shape = NEWS(arena, Shape, g->outs.count + 1);
	check_cotangents(session, data, g);
	for (int i = 0; i < g->outs.count; i++) {
		const char *name = g->outs.at[i].name;
		const struct amos_array *given = cotangent_of(data, name);
		shape[i] = val(g, g->outs.at[i].val)->shape;
		bool counted = find_output(g, format(arena, SHAPE_OF "%s", name)) != 0;
		for (int a = 0; given && counted && a < MIN(given->rank, shape[i].rank); a++)
			shape[i].dim[a] = MIN(shape[i].dim[a], given->dim[a]);
		shape[i].rank = given ? shape[i].rank : -1;
	}
	return shape;
}

void verb_grad(Session *session)
{
	need_out(session);
	Program *program = program_new(session, open_batch(session));
	run_passes(program, PASS_read);
	need_done(amos_output_check(choice(session, OPT_out, NULL)));
	if (chosen(session, OPT_cotangent))
		program->cotangent =
		    cotangent_shapes(session, program->data, program_graph(program));
	struct amos *open;
	const struct amos_entry *entry = call_once(program, &open);
	Arrays arrays = arrays_of(session->arena, program->model);
	int type = entry->outs[amos_find_output(entry, "loss")].type;
	Gradients all = {program_graph(program), open, entry, &arrays, (Elem)type};
	add_outs(&arrays, open, entry);
	each_initializer(program->model, session->arena, gradient_of, add_gradient, &all);
	add_input_gradients(&all);
	write_arrays(session, &arrays);
}
