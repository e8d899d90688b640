// compile.c: from a graph to a program in memory, or to the object that train and build share.
// Takes graphs. Gives an open model. Keeps: all entries of an object have one slot table.
#include "tool.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const Target *target_of(const Command *command)
{
	return target_named(command->arena, choice(command, OPT_target, "cpu"), NULL);
}

void need_host(const Command *command)
{
	if (!target_runs_here(target_of(command)))
		fail("--target",
		     "'%s' is not this machine, so its code cannot run here; amosc build writes it "
		     "to a file",
		     choice(command, OPT_target, "cpu"));
}

static const void *first_contents(void *graph, int64_t slot)
{
	return ((const Graph *)graph)->slots.at[slot].init;
}

static Object *emit_plans(Command *command, int n, Plan *const *plans, EmitOptions options)
{
	options.target = target_of(command);
	options.threads = (int)choice_count(command, OPT_threads, 0);
	options.name = visible(command->arena, basename(command->arguments.at[0]), false);
	return emit(command->arena, n, plans, &options);
}

static void close_jit(void *jit)
{
	jit_free(jit);
}

static void close_model(void *open)
{
	amos_close(open);
}

struct amos *open_object(Command *command, const Object *object, const Graph *g)
{
	Jit *jit = jit_load(object);
	close_later(command, close_jit, jit);
	struct amos *open;
	check(amos_open(jit_model(jit), choice_count(command, OPT_threads, 0),
	                choice_count(command, OPT_seed, 0), first_contents, (void *)g, &open));
	close_later(command, close_model, open);
	if (amos_threads_missing(open))
		say_progress(command, "note: %lld threads could not be started\n",
		             (long long)amos_threads_missing(open));
	return open;
}

Plan *plan_for(const Command *command, const Graph *g, const char *name)
{
	return plan_graph(command->arena, g, name, target_machine(target_of(command)));
}

struct amos *open_entry(Command *command, const Graph *g, const char *name)
{
	need_host(command);
	Plan *plan = plan_for(command, g, name);
	return open_object(command, emit_plans(command, 1, &plan, (EmitOptions){0}), g);
}

typedef struct Slots { // of a graph that goes on another's
	const Graph *from;
	int64_t samples; // in a batch of `from`, where it has fewer; else 0
	int fewer;       // inputs of `from` that have that many rows of the other's
} Slots;

static Ref put_named_slot(void *context, Graph *to, const Val *v, const Ref *in)
{
	static const int64_t start[RANK];
	Slots *slots = context;
	if (v->op != O_slot)
		return put_as(to, v, in);
	const Slot *s = &slots->from->slots.at[v->attr->i[0]];
	Ref whole = put_slot(to, find_slot(to, s->name));
	Shape rows = val(to, whole)->shape;
	if (same_shape(&rows, &s->shape))
		return whole;
	rows.dim[0] = slots->samples;
	if (s->kind != S_input || !same_shape(&rows, &s->shape))
		fail(s->name, "its size does not go by the batch");
	slots->fewer++;
	return put_slice(to, whole, start, rows.dim, NULL);
}

// The outs of a graph in one on the slots of `like`, matched by name: where a step draws dropout,
// it has slots between.
static Graph *on_slots_of(Arena *arena, Slots *slots, const Graph *like)
{
	const Graph *g = slots->from;
	Graph *to = graph_like(arena, like);
	Ref *now = NEWS(arena, Ref, g->nval);
	copy_values(to, g, now, put_named_slot, slots);
	for (int i = 0; i < g->outs.count; i++)
		add_out(to, g->outs.at[i].name, now[g->outs.at[i].val]);
	return to;
}

static Plan *plan_on_slots(Command *command, const Graph *g, const Graph *like, const char *name)
{
	Slots slots = {.from = g};
	return plan_for(command, on_slots_of(command->arena, &slots, like), name);
}

// The loss of a graph and what else is measured: the outs of train and eval.
static Graph *measured(Command *command, const Graph *g)
{
	static const char *const outs[] = {"loss", "accuracy", NULL};
	Graph *loss = loss_pass(command->arena, g, choice(command, OPT_loss, NULL));
	return only_outs(command->arena, loss, outs);
}

// Evaluation of `samples` at once, fewer than in a batch of `like`: it reads the first rows of the
// inputs. NULL: the model takes no such batch.
static Plan *plan_fewer(Command *command, struct amos_data *data, const Graph *like,
                        int64_t samples)
{
	Arena *arena = command->arena;
	Catch catch;
	if (TRY(catch)) {
		if (catch.status != STATUS_INPUT)
			fail_again(&catch);
		free(catch.message);
		return NULL;
	}
	Slots slots = {measured(command, read_samples(command, data, samples)->graph), samples, 0};
	Graph *g = on_slots_of(arena, &slots, like);
	Plan *plan = slots.fewer
	                 ? plan_for(command, g, format(arena, "eval:%lld", (long long)samples))
	                 : NULL;
	catch_end(&catch);
	return plan;
}

// Evaluations of what the last batch leaves, and of `least` samples (0: of none).
static int plan_rest(Command *command, struct amos_data *data, const Graph *like, int64_t least,
                     Plan **plans)
{
	int64_t batch = data ? amos_data_samples(data) : 0,
	        sizes[] = {data ? amos_data_eval_samples(data) % batch : 0, least};
	int n = 0;
	for (int k = 0; k < COUNT(sizes); k++) {
		Plan *plan = sizes[k] && !(k && sizes[k] == sizes[0])
		                 ? plan_fewer(command, data, like, sizes[k])
		                 : NULL;
		if (plan)
			plans[n++] = plan;
	}
	if (data)
		amos_data_batch(data, batch);
	return n;
}

// Adds parameters without a gradient to what the model does not train.
static void add_unused_params(Model *m, const Graph *loss, const UnusedParams *idle)
{
	for (int i = 0; i < idle->count; i++) {
		const Slot *s = &loss->slots.at[idle->at[i].slot];
		Untrained one = {s->name, idle->at[i].why, s->type, s->shape};
		PUSH(m->arena, m->untrained, one);
	}
	sort_untrained(m);
}

// One line, of how much training leaves as it is; --verbose: before it a line for each weight.
static void tell_untrained(const Command *command, const Model *m)
{
	enum { FEW = 2 };
	Text names = {.arena = command->arena};
	int n = m->untrained.count;
	for (int i = 0; i < n; i++) {
		const Untrained *one = &m->untrained.at[i];
		if (chosen(command, OPT_verbose))
			say_progress(command, "%s is not trained: %s\n", one->name, one->why);
		if (i < FEW)
			say(&names, "%s%s (%s)", i ? ", " : "", one->name, one->why);
	}
	if (n > FEW)
		say(&names, " and %d more (--verbose lists them)", n - FEW);
	if (n)
		say_progress(command, "%s of the weights are not trained: %s\n",
		             percent_text(command->arena, untrained_percent(m)), names.at);
}

// Of the parameters that the loss gives any; none at all where the program `runs` the model too.
static Graph *gradients(Command *command, Model *model, const Graph *loss, bool runs)
{
	Arena *arena = command->arena;
	UnusedParams idle = {0};
	Graph *all = grad_pass(arena, loss, wanted(command, loss));
	Graph *g = unused_params_pass(arena, loss, all, &idle);
	if (all->outs.count == loss->outs.count && !runs)
		fail(command->arguments.at[0],
		     "no parameter is to be trained: it has none, or --freeze leaves none; amosc "
		     "inspect lists them");
	Text why = {.arena = arena};
	for (int i = 0; i < idle.count; i++)
		say(&why, "%s is not trained: %s\n", loss->slots.at[idle.at[i].slot].name,
		    idle.at[i].why);
	if (idle.count && idle.count == all->outs.count - loss->outs.count)
		fail(command->arguments.at[0],
		     "no parameter gets a gradient:\n%sminimize what depends on them by --loss, or "
		     "export without what ends their gradients",
		     why.at);
	add_unused_params(model, loss, &idle);
	tell_untrained(command, model);
	return g;
}

// Training computes in f32, whatever the file's types are.
static void tell_doubles(const Command *command, const Model *model)
{
	if (!model->doubles)
		return;
	say_progress(command,
	             "%s is double: training computes in f32, and the trained file keeps its "
	             "types\n",
	             model->doubles);
	for (int i = 0; i < model->graph->slots.count; i++) {
		const Slot *s = &model->graph->slots.at[i];
		for (int64_t k = 0; s->kind == S_param && s->init && k < count_of(&s->shape); k++)
			if (isinf(((const float *)s->init)[k]))
				fail(model->path, "parameter %s: entry %lld is too large for f32",
				     s->name, (long long)k);
	}
}

Trainer compile_trainer(Command *command, struct amos_data *data, bool weights)
{
	Arena *arena = command->arena;
	Trainer t = {.model = read_bound(command, data, true)};
	tell_doubles(command, t.model);
	if (data)
		check(amos_data_check_size(data));
	Graph *loss = measured(command, t.model->graph);
	Eta *eta = etas(command, loss, data, NULL);
	Graph *grad = gradients(command, t.model, loss, weights);
	t.opt = optimizer(command, loss, data);
	t.graph = step_pass(arena, grad, eta, &t.opt);
	const Graph *still = read_bound(command, data, false)->graph;
	Plan *plans[6] = {plan_for(command, t.graph, "train"),
	                  plan_on_slots(command, measured(command, still), t.graph, "eval")};
	int n = 2;
	if (t.opt.accumulate > 1)
		plans[n++] = plan_for(command, accumulate_pass(arena, grad, eta, &t.opt), "gather");
	if (weights)
		plans[n++] = plan_on_slots(command, still, t.graph, "run");
	if (weights || (data && amos_data_held_out(data)))
		n += plan_rest(command, data, t.graph, weights, plans + n);
	EmitOptions options = {.note = t.opt.chosen,
	                       .identity = identity_text(command, t.model),
	                       .labels = loss_labels(loss, choice(command, OPT_loss, NULL)),
	                       .weights = weights};
	t.object = emit_plans(command, n, plans, options);
	return t;
}

Object *compile_evaluation(Command *command, struct amos_data *data, const Graph **graph)
{
	Graph *g = measured(command, read_bound(command, data, false)->graph);
	Plan *plans[3] = {plan_for(command, g, "eval")};
	int n = 1 + plan_rest(command, data, g, 0, plans + 1);
	*graph = g;
	return emit_plans(command, n, plans, (EmitOptions){0});
}
