// compile.c: from a graph to a program in memory, or to the object that train and build share.
// Takes graphs. Gives an open model. Keeps: all entries of an object have one slot table.
#include "tool.h"
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

static Object *emit_plans(Command *command, int n, Plan *const *plans, const char *note,
                          bool weights)
{
	Arena *arena = command->arena;
	EmitOptions options = {.target = target_of(command),
	                       .threads = (int)choice_count(command, OPT_threads, 0),
	                       .name = command->arguments.at[0],
	                       .note = note,
	                       .weights = weights};
	return emit(arena, n, plans, &options);
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
	return open;
}

struct amos *open_entry(Command *command, const Graph *g, const char *name)
{
	need_host(command);
	Plan *plan = plan_graph(command->arena, g, name);
	return open_object(command, emit_plans(command, 1, &plan, NULL, false), g);
}

static Ref put_named_slot(void *from, Graph *to, const Val *v, const Ref *in)
{
	if (v->op != O_slot)
		return put_as(to, v, in);
	return put_slot(to, find_slot(to, ((const Graph *)from)->slots.at[v->attr->i[0]].name));
}

// The outs of `g` in a graph on the slots of `like`, matched by name: where a step draws dropout,
// it has slots between.
static Graph *on_slots_of(Arena *arena, const Graph *g, const Graph *like)
{
	Graph *to = graph_like(arena, like);
	Ref *now = NEWS(arena, Ref, g->nval);
	copy_values(to, g, now, put_named_slot, (void *)g);
	for (int i = 0; i < g->outs.count; i++)
		add_out(to, g->outs.at[i].name, now[g->outs.at[i].val]);
	return to;
}

static const char *const measures[] = {"loss", "accuracy", NULL}; // the outs of train and eval

static int count_lines(const Text *text)
{
	int n = 0;
	for (size_t i = 0; i < text->count; i++)
		n += text->at[i] == '\n';
	return n;
}

// Of the parameters that the loss gives any; none at all where the program `runs` the model too.
static Graph *gradients(Command *command, const Graph *loss, bool runs)
{
	Arena *arena = command->arena;
	Text why = {.arena = arena};
	Graph *all = grad_pass(arena, loss, wanted(command, loss));
	Graph *g = idle_pass(arena, loss, all, &why);
	int idle = count_lines(&why);
	if (all->outs.count == loss->outs.count && !runs)
		fail(command->arguments.at[0],
		     "no parameter is to be trained: it has none, or --freeze leaves none; amosc "
		     "inspect lists them");
	if (idle && idle == all->outs.count - loss->outs.count)
		fail(command->arguments.at[0],
		     "no parameter gets a gradient:\n%sminimize what depends on them by --loss, or "
		     "export without what ends their gradients",
		     why.at);
	if (idle && chosen(command, OPT_verbose))
		say_progress(command, "%s", why.at);
	else if (idle)
		say_progress(command,
		             "%d parameter%s no gradient and %s not trained (--verbose tells "
		             "why)\n",
		             idle, idle == 1 ? " gets" : "s get", idle == 1 ? "is" : "are");
	return g;
}

Trainer compile_trainer(Command *command, struct amos_data *data, bool weights)
{
	Arena *arena = command->arena;
	Trainer t = {.model = read_bound(command, data, true)};
	Graph *loss = loss_pass(arena, t.model->graph, choice(command, OPT_loss, NULL));
	loss = only_outs(arena, loss, measures);
	Eta *eta = etas(command, loss, data, NULL);
	Graph *grad = gradients(command, loss, weights);
	t.opt = optimizer(command, loss, data);
	t.graph = step_pass(arena, grad, eta, &t.opt);
	Graph *still = read_bound(command, data, false)->graph;
	Graph *eval =
	    only_outs(arena, loss_pass(arena, still, choice(command, OPT_loss, NULL)), measures);
	Plan *plans[4] = {plan_graph(arena, t.graph, "train"),
	                  plan_graph(arena, on_slots_of(arena, eval, t.graph), "eval")};
	int n = 2;
	if (t.opt.accumulate > 1)
		plans[n++] = plan_graph(arena, gather_pass(arena, grad, eta, &t.opt), "gather");
	if (weights)
		plans[n++] = plan_graph(arena, on_slots_of(arena, still, t.graph), "run");
	t.object = emit_plans(command, n, plans, t.opt.chosen, weights);
	return t;
}
