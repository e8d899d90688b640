// report_json.c: builds the eta report.
// Takes a model, or a report in a file. Gives a Report. Keeps: the contract of --json; no weight
// is read.
#include "driver.h"
#include <math.h>
#include <string.h>

// A number, or where eta differs along an axis a list along it, with axes of 1 around it.
static json_t *eta_value(const Eta *eta, const Shape *shape)
{
	if (!eta->nparts)
		return number_json(eta->eta.value);
	json_t *list = json_array();
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

static json_t *reasons_json(Arena *arena, const Eta *eta)
{
	json_t *why = json_array();
	for (int i = 0; i < eta->nwhy; i++)
		json_array_append_new(why, json_string(eta->why[i]));
	for (int i = 0; i < eta->nparts && eta->parts[i].nwhy; i++) {
		const Eta *part = &eta->parts[i];
		json_array_append_new(
		    why, json_string(format(arena, "%lld along axis %d: %s; %s",
		                            (long long)eta->counts[i], eta->axis, part->formula,
		                            part->why[part->nwhy - 1])));
	}
	return why;
}

// Of eta, or of each of its parts.
static json_t *askers_json(const Eta *eta)
{
	json_t *list = json_array();
	if (!eta->nparts && eta->demand_by)
		json_array_append_new(list, json_string(eta->demand_by));
	for (int i = 0; i < eta->nparts; i++)
		if (eta->parts[i].demand_by)
			json_array_append_new(list, json_string(eta->parts[i].demand_by));
	return list;
}

static json_t *axes_json(const bool *axis)
{
	json_t *list = json_array();
	for (int a = 0; a < RANK; a++)
		if (axis[a])
			json_array_append_new(list, json_integer(a));
	return list;
}

// Runs of entries along an axis that have an eta of their own.
static json_t *pieces_json(const Eta *eta)
{
	json_t *list = json_array();
	for (int64_t k = 0, from = 0; k < eta->nparts; from += eta->counts[k++])
		json_array_append_new(list, json_pack("{si sI sI ss so ss}", "axis", eta->axis,
		                                      "from", (json_int_t)from, "to",
		                                      (json_int_t)(from + eta->counts[k]), "role",
		                                      eta->parts[k].role, "eta",
		                                      number_json(eta->parts[k].eta.value),
		                                      "formula", eta->parts[k].formula));
	return list;
}

// Where the file keeps it: its initializer, and others that hold copies.
static void add_homes(Arena *arena, json_t *row, const Graph *g, int slot)
{
	SlotHome *home;
	int n = slot_homes(g, arena, slot, &home);
	json_t *copies = json_array();
	for (int k = 1; k < n; k++)
		json_array_append_new(copies, json_pack("{so ss?}", "initializer",
		                                        json_text(home[k].initializer), "view",
		                                        home[k].view));
	json_object_set_new(row, "initializer", n ? json_text(home[0].initializer) : json_null());
	json_object_set_new(row, "view",
	                    n && home[0].view ? json_string(home[0].view) : json_null());
	json_object_set_new(row, "copies", copies);
}

static void add_axes(json_t *row, const Eta *eta)
{
	json_object_set_new(row, "readout", json_boolean(eta->readout));
	json_object_set_new(row, "fan_in", axes_json(eta->fan_in));
	json_object_set_new(row, "fan_out", axes_json(eta->fan_out));
	json_object_set_new(row, "pieces", pieces_json(eta));
}

static json_t *row_json(Arena *arena, const Graph *g, int slot, const Eta *eta,
                        const Readers *readers)
{
	const Slot *s = &g->slots.at[slot];
	const char *node = readers->names.count ? readers->names.at[0] : NULL;
	json_t *row = json_pack(
	    "{ss so ss so ss so so so ss? so so sb ss? so ss? ss?}", "name", s->name, "shape",
	    shape_json(&s->shape), "role", eta->role, "eta", eta_value(eta, &s->shape), "formula",
	    eta->formula, "slots", shape_json(&eta->slot), "input_range",
	    number_json(eta->range.value), "demand", number_json(eta->demand.value), "range_from",
	    eta->source, "demand_by", askers_json(eta), "why", reasons_json(arena, eta), "sure",
	    (int)eta->sure, "question", eta->question, "tied", others_json(readers), "node", node,
	    "line", readers->line);
	add_homes(arena, row, g, slot);
	add_axes(row, eta);
	return row;
}

// ---- inputs and memory ----------------------------------------------------------------

const Memory memories[MEMORIES] = {
    {"amos", "amos", 0, false, " with these slots"},
    {"amos_momentum", "amos", 0.9, false, " with these slots and momentum"},
    {"amos_unreduced", "amos", 0, true, ", nothing averaged"},
    {"adamw", "adamw", 0, false, ""},
    {"adafactor", "adafactor", 0, false, ""}};

static const char *said_by(const Session *session, const struct amos_data *data, const char *input)
{
	for (int i = 0; i < session->choices.count; i++) {
		const Choice *c = &session->choices.at[i];
		size_t length = strlen(input);
		if (c->option == OPT_range && !strncmp(c->value, input, length) &&
		    c->value[length] == '=')
			return "--range";
	}
	return data && amos_data_rms(data, input) > 0 ? "data" : "assumed";
}

static json_t *inputs_json(const Session *session, const struct amos_data *data, const Graph *g,
                           const Scales *scales)
{
	json_t *list = json_array();
	for (Ref r = 1; r < (Ref)g->nval; r++) {
		const Val *v = val(g, r);
		const Slot *slot = v->op == O_slot ? &g->slots.at[v->attr->i[0]] : NULL;
		if (slot && slot->kind == S_input && scales->nature[r] == SIGNAL)
			json_array_append_new(list,
			                      json_pack("{ss so ss}", "name", slot->name, "range",
			                                number_json(scales->range[r].value), "by",
			                                said_by(session, data, slot->name)));
	}
	return list;
}

// What optimizers keep beside the parameters, in bytes.
static json_t *memory_json(Arena *arena, const Graph *g, const Eta *eta)
{
	Eta *whole = NEWS(arena, Eta, g->slots.count + 1);
	int64_t parameters = 0;
	for (int i = 0; i < g->slots.count; i++) {
		const Slot *s = &g->slots.at[i];
		whole[i].slot = s->shape;
		if (s->kind == S_param)
			parameters += byte_count(s->type, &s->shape);
	}
	json_t *memory = json_pack("{sI}", "parameters", (json_int_t)parameters);
	for (int i = 0; i < MEMORIES; i++) {
		const Memory *m = &memories[i];
		const Opt opt = {.name = m->optimizer, .momentum = m->momentum};
		int64_t bytes = state_bytes(g, m->unreduced ? whole : eta, &opt);
		json_object_set_new(memory, m->key, json_integer(bytes));
	}
	return memory;
}

// ---- reports --------------------------------------------------------------------------

static void want_row(const char *path, size_t number, const json_t *row)
{
	static const char *const texts[] = {"name", "role", "formula"}, *const lists[] = {"shape",
	                                                                                  "slots",
	                                                                                  "why"};
	const char *missing = NULL;
	for (int i = 0; i < COUNT(texts); i++)
		if (!json_is_string(json_object_get(row, texts[i])))
			missing = texts[i];
	for (int i = 0; i < COUNT(lists); i++)
		if (!json_is_array(json_object_get(row, lists[i])))
			missing = lists[i];
	const json_t *eta = json_object_get(row, "eta");
	if (!json_is_number(eta) && !json_array_size(eta))
		missing = "eta";
	if (missing)
		fail(path, "entry %zu of 'params': expected a '%s', as amosc eta --json writes it",
		     number, missing);
}

static Report read_report(Session *session, const char *path)
{
	json_t *json = load_report(session, path);
	size_t i;
	json_t *row;
	json_array_foreach (json_object_get(json, "params"), i, row)
		want_row(path, i, row);
	return (Report){.json = json};
}

Report make_report(Session *session, const char *path)
{
	if (ends_with(path, ".json"))
		return read_report(session, path);
	struct amos_data *data = open_given(session);
	session->path = path;
	Report report = {0};
	const Model *model = read_standing(session, data, true);
	const Graph *g = eta_graph(session->arena, with_loss(session, model->graph));
	if (data)
		note_unused(session, data, g);
	Eta *eta = etas(session, g, data, &report.scales);
	const Readers *readers = readers_of(session->arena, g);
	json_t *params = json_array(), *unresolved = json_array(), *notes = json_array();
	for (int i = 0; i < g->slots.count; i++) {
		if (g->slots.at[i].kind != S_param)
			continue;
		json_array_append_new(params, row_json(session->arena, g, i, &eta[i], &readers[i]));
		if (!eta[i].sure)
			json_array_append_new(unresolved,
			                      json_pack("{ss ss}", "name", g->slots.at[i].name,
			                                "question", eta[i].question));
	}
	report.graph = g;
	for (int i = 0; i < model->notes.count; i++)
		json_array_append_new(notes, json_string(model->notes.at[i]));
	report.json =
	    keep_json(session, json_pack("{so so so so so so so}", "model", json_text(path),
	                                 "params", params, "unresolved", unresolved, "inputs",
	                                 inputs_json(session, data, g, &report.scales), "memory",
	                                 memory_json(session->arena, g, eta), "not_trained",
	                                 untrained_json(model), "notes", notes));
	return report;
}
