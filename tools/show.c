// show.c: amosc show: the graph after any pass, or the plan, in the notation. What it prints can be
// read back.
#include "tool.h"
#include <stdlib.h>
#include <string.h>

static const char *const passes[] = {"read", "loss", "grad", "step", "decompose", "plan"};
enum { AFTER_READ, AFTER_LOSS, AFTER_GRAD, AFTER_STEP, AFTER_DECOMPOSE, AFTER_PLAN };

static int pass_named(const char *name)
{
	for (int i = 0; i < COUNT(passes); i++)
		if (!strcmp(passes[i], name))
			return i;
	fail_status(STATUS_USAGE, "--after",
	            "no pass '%s'; read, loss, grad, step, decompose or plan", name);
}

// Options that come in later do nothing.
static void check_pass(const Command *command, int pass)
{
	static const struct {
		unsigned group;
		int pass; // the first that goes by these options
	} groups[] = {{LOSS, AFTER_LOSS}, {DROPS, AFTER_GRAD}, {ETA | STEP, AFTER_STEP}};
	for (int i = 0; i < command->choices.count; i++)
		for (int k = 0; k < COUNT(groups); k++) {
			OptionName option = command->choices.at[i].option;
			if ((group_of(option) & groups[k].group) && pass < groups[k].pass)
				bad_usage(command,
				          format(command->arena,
				                 "--%s does nothing up to pass %s: wanted --after "
				                 "%s, or a later one",
				                 long_name(command->arena, option), passes[pass],
				                 passes[groups[k].pass]));
		}
}

static Graph *graph_after(Command *command, int pass)
{
	Arena *arena = command->arena;
	Graph *g = read_standing(command, NULL, pass > AFTER_LOSS)->graph;
	if (pass == AFTER_READ)
		return g;
	g = loss_pass(arena, g, choice(command, OPT_loss, NULL));
	if (pass == AFTER_LOSS)
		return g;
	Eta *eta = etas(command, g, NULL, NULL);
	Opt opt = optimizer(command, g, NULL);
	g = grad_pass(arena, g, wanted(command, g));
	if (pass == AFTER_GRAD)
		return g;
	g = step_pass(arena, g, eta, &opt);
	return pass == AFTER_DECOMPOSE ? decompose_pass(arena, g) : g;
}

void verb_show(Command *command)
{
	int pass = pass_named(choice(command, OPT_after, "read"));
	check_pass(command, pass);
	Graph *g = graph_after(command, pass);
	char *text = NULL;
	size_t size;
	FILE *to = open_memstream(&text, &size);
	if (!to)
		fail_status(STATUS_MACHINE, NULL, "out of memory");
	if (pass == AFTER_PLAN)
		print_plan(to, plan_for(command, g, "train"));
	else
		print_graph(to, g);
	fclose(to);
	if (chosen(command, OPT_json))
		print_json(json_pack("{so ss so}", "model", json_text(command->arguments.at[0]),
		                     "after", passes[pass], "text", json_text(text)));
	else
		fputs(text, stdout);
	free(text);
}
