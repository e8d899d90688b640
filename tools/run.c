// run.c: amosc run and amosc grad: one batch through the model, its outputs, loss and gradients to
// an .npz file.
#include "tool.h"
#include <stdlib.h>
#include <string.h>

typedef struct Arrays { // what is to be written
	Arena *arena;
	VEC(struct amos_array) list;
} Arrays;

static bool holds(const Arrays *a, const char *name)
{
	for (int i = 0; i < a->list.count; i++)
		if (!strcmp(a->list.at[i].name, name))
			return true;
	return false;
}

static void add_array(Arrays *a, const char *name, Elem type, const Shape *shape, const void *bytes)
{
	if (holds(a, name))
		return;
	struct amos_array array = {.name = name, .type = type, .rank = shape->rank, .bytes = bytes};
	memcpy(array.dim, shape->dim, sizeof(int64_t) * (size_t)shape->rank);
	PUSH(a->arena, a->list, array);
}

// The arrays of CT.npz, named by output, are data of the inputs that cotangent_pass() adds.
static void add_cotangents(Command *command, const char *path, struct amos_options *options)
{
	int64_t n;
	struct amos_array *array;
	check(amos_npz_read(path, &n, &array));
	for (int64_t i = 0; i < n; i++)
		check(amos_option(options, "data",
		                  format(command->arena, COTANGENT_OF "%s=%s:%s", array[i].name,
		                         path, array[i].name)));
	amos_npz_free(n, array);
}

static struct amos_data *open_batch(Command *command)
{
	struct amos_options options = runtime_options(command);
	if (!options.data.count && list_model(command)->inputs.count)
		bad_usage(command, "wants --data IN.npz or --data NAME=SOURCE for the inputs");
	if (chosen(command, OPT_cotangent))
		add_cotangents(command, choice(command, OPT_cotangent, NULL), &options);
	return open_data(command, &options, true);
}

// Fills the inputs and runs the one entry of an open model.
static const struct amos_entry *call_once(Command *command, struct amos *open,
                                          struct amos_data *data, const Graph *g, const char *name)
{
	const char *const entries[] = {name, NULL};
	const struct amos_entry *entry = amos_find_entry(amos_model_of(open), name);
	check(amos_data_attach(data, amos_model_of(open), entries));
	note_unused(command, data, g);
	check(amos_data_eval(data, open, 0, 1));
	check(amos_call(open, entry, NULL, NULL));
	return entry;
}

// The file's output `name`, or the sequence that it is an element of; NULL: the file has none.
static const Input *declared(const Model *m, const char *name)
{
	size_t length = strcspn(name, "#");
	for (int i = 0; i < m->outputs.count; i++) {
		const Input *out = &m->outputs.at[i];
		if (!strcmp(out->name, name) || (out->sequence && strlen(out->name) == length &&
		                                 !memcmp(out->name, name, length)))
			return out;
	}
	return NULL;
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
static void add_outs(Arrays *a, const Model *m, const Graph *g, struct amos *open,
                     const struct amos_entry *entry)
{
	bool rounded = strcmp(entry->name, "grad") != 0;
	for (int i = 0; i < g->outs.count; i++) {
		const Out *out = &g->outs.at[i];
		const Val *v = val(g, out->val);
		int64_t number = amos_find_output(entry, out->name);
		Shape shape = v->shape;
		if (starts_with(out->name, "grad:") || !amos_out_own(entry, number))
			continue;
		const char *name = outer_name(out->name);
		const Input *output = declared(m, name);
		if (!output && strcmp(name, "loss"))
			continue; // a measure of the loss's
		amos_out_shape(open, entry, number, shape.dim);
		const void *bytes = amos_out_bytes(open, entry, number);
		Elem type = output ? output->type : v->type;
		if (!rounded && is_float(type) && is_float(v->type))
			type = v->type;
		add_array(a, name, type, &shape, in_type(a->arena, bytes, &shape, v->type, type));
	}
}

static void write_arrays(Command *command, const Arrays *a)
{
	const char *out = choice(command, OPT_out, NULL);
	check(amos_npz_write(out, a->list.count, a->list.at));
	if (!chosen(command, OPT_json))
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

static void need_out(const Command *command)
{
	if (!chosen(command, OPT_out))
		bad_usage(command, "wants -o OUT.npz");
}

void verb_run(Command *command)
{
	if (chosen(command, OPT_generate)) {
		generate(command);
		return;
	}
	need_out(command);
	struct amos_data *data = open_batch(command);
	Model *model = read_bound(command, data, false);
	check(amos_output_check(choice(command, OPT_out, NULL)));
	struct amos *open = open_entry(command, model->graph, "run");
	Arrays arrays = {.arena = command->arena};
	add_outs(&arrays, model, model->graph, open,
	         call_once(command, open, data, model->graph, "run"));
	write_arrays(command, &arrays);
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
static void check_cotangents(Command *command, const struct amos_data *data, const Graph *g)
{
	VEC(const char *) outs = {0};
	const char *input;
	for (int i = 0; i < g->outs.count; i++)
		if (is_own_out(g->outs.at[i].name))
			PUSH(command->arena, outs, g->outs.at[i].name);
	for (int k = 0; amos_data_array(data, k, &input), input; k++) {
		const char *out = input + strlen(COTANGENT_OF);
		if (starts_with(input, COTANGENT_OF) && !find_output(g, out))
			fail(choice(command, OPT_cotangent, ""),
			     "'%s' is no output of the model; %s", out,
			     suggest(command->arena, out, outs.count, outs.at));
	}
}

// Of an out whose size depends on the data a cotangent is as long as that is.
static const Shape *cotangent_shapes(Command *command, const struct amos_data *data, const Graph *g)
{
	Arena *arena = command->arena;
	Shape *shape = NEWS(arena, Shape, g->outs.count + 1);
	check_cotangents(command, data, g);
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

void verb_grad(Command *command)
{
	need_out(command);
	struct amos_data *data = open_batch(command);
	Arena *arena = command->arena;
	Model *model = read_bound(command, data, false);
	check(amos_output_check(choice(command, OPT_out, NULL)));
	const Graph *g = model->graph;
	Graph *loss = chosen(command, OPT_cotangent)
	                  ? cotangent_pass(arena, g, cotangent_shapes(command, data, g))
	                  : loss_pass(arena, g, choice(command, OPT_loss, NULL));
	Graph *grad = grad_pass(arena, loss, wanted(command, loss));
	struct amos *open = open_entry(command, grad, "grad");
	Arrays arrays = {.arena = arena};
	const struct amos_entry *entry = call_once(command, open, data, grad, "grad");
	int type = entry->outs[amos_find_output(entry, "loss")].type;
	Gradients all = {grad, open, entry, &arrays, (Elem)type};
	add_outs(&arrays, model, grad, open, all.entry);
	each_initializer(model, arena, gradient_of, add_gradient, &all);
	add_input_gradients(&all);
	write_arrays(command, &arrays);
}
