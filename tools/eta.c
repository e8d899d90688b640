// eta.c: amosc eta: every parameter, the scale that is expected of it, and the reasons.
#include "tool.h"
#include <string.h>

static json_t *eta_value(const Eta *eta, const Shape *shape)
{
	if (!eta->nparts)
		return number_json(eta->eta.value);
	json_t *list = json_array(); // along eta->axis; axes of 1 around it
	for (int part = 0; part < eta->nparts; part++)
		for (int64_t i = 0; i < eta->counts[part]; i++) {
			json_t *number = number_json(eta->parts[part].eta.value);
			for (int axis = eta->axis + 1; axis < shape->rank; axis++)
				number = json_pack("[o]", number);
			json_array_append_new(list, number);
		}
	for (int axis = 0; axis < eta->axis; axis++)
		list = json_pack("[o]", list);
	return list;
}

static json_t *eta_json(const Graph *g, int slot, const Eta *eta)
{
	json_t *why = json_array();
	for (int i = 0; i < eta->nwhy; i++)
		json_array_append_new(why, json_string(eta->why[i]));
	const Slot *s = &g->slots.at[slot];
	json_t *tied = readers_json(g, slot), *node = json_incref(json_array_get(tied, 0));
	json_array_remove(tied, 0);
	return json_pack("{ss so ss so ss so so so so sb ss? so so? sn}", "name", s->name, "shape",
	                 shape_json(&s->shape), "role", eta->role, "eta", eta_value(eta, &s->shape),
	                 "formula", eta->formula, "slots", shape_json(&eta->slot), "input_range",
	                 number_json(eta->range.value), "demand", number_json(eta->demand.value),
	                 "why", why, "sure", (int)eta->sure, "question", eta->question, "tied",
	                 tied, "node", node, "line");
}

static void print_eta(const Command *command, const Graph *g, int slot, const Eta *eta)
{
	const Slot *s = &g->slots.at[slot];
	printf("%-44s %-12s %-20s %10.6g  %s%s\n", s->name, eta->role,
	       shape_text(command->arena, s->type, &s->shape), eta->eta.value, eta->formula,
	       eta->sure ? "" : "  ?");
	for (int i = 0; i < eta->nwhy; i++)
		printf("    %s\n", eta->why[i]);
	for (int i = 0; i < eta->nparts; i++)
		printf("    %lld along axis %d: %s; %s\n", (long long)eta->counts[i], eta->axis,
		       eta->parts[i].formula, eta->parts[i].why[eta->parts[i].nwhy - 1]);
	if (!eta->sure && eta->question)
		printf("    ? %s\n", eta->question);
}

void verb_eta(Command *command)
{
	Model *model = read_standing(command);
	Graph *g = with_loss(command, model->graph);
	Eta *eta = etas(command, g, NULL, NULL);
	json_t *params = json_array(), *unresolved = json_array();
	for (int i = 0; i < g->slots.count; i++) {
		if (g->slots.at[i].kind != S_param)
			continue;
		json_array_append_new(params, eta_json(g, i, &eta[i]));
		if (!eta[i].sure)
			json_array_append_new(unresolved,
			                      json_pack("{ss ss}", "name", g->slots.at[i].name,
			                                "question", eta[i].question));
		if (!chosen(command, OPT_json))
			print_eta(command, g, i, &eta[i]);
	}
	json_t *all = json_pack("{ss so so}", "model", command->arguments.at[0], "params", params,
	                        "unresolved", unresolved);
	if (chosen(command, OPT_json))
		print_json(all);
	else
		json_decref(all);
}
