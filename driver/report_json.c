// report_json.c: builds the eta report, from a model or from a file that --json wrote.
// Invariant: no weight is read; --json prints the report unchanged.
#include "driver.h"
#include <math.h>
#include <string.h>

enum { REPORT_SCHEMA = 1 }; // of docs/eta.schema.json

// Returns a count, or null for 0: there is nothing to count.
static json_t *count_json(int64_t count)
{
	return count ? json_integer((json_int_t)count) : json_null();
}

// Returns a number or, if eta differs along an axis, nested lists of length 1 except along it.
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

static json_t *axes_json(const bool *axis)
{
	json_t *list = json_array();
	for (int a = 0; a < RANK; a++)
		if (axis[a])
			json_array_append_new(list, json_integer(a));
	return list;
}

// Returns the pieces of a parameter: where its eta or its use changes along an axis.
static json_t *pieces_json(Arena *arena, const Eta *eta, const Shape *shape)
{
	int axis;
	EtaPieces pieces = eta_pieces(arena, shape, eta, &axis);
	json_t *list = json_array();
	for (int i = 0; i < pieces.count; i++) {
		const ParamPiece *piece = &pieces.at[i].piece;
		const Eta *own = pieces.at[i].own;
		json_array_append_new(list, json_pack("{si sI sI ss so ss ss? so}", "axis", axis,
		                                      "from", (json_int_t)piece->from, "to",
		                                      (json_int_t)piece->to, "role", own->role,
		                                      "eta", number_json(own->eta.value), "formula",
		                                      own->formula, "use", piece->use, "heads",
		                                      count_json(piece->heads)));
	}
	return list;
}

static json_t *products_json(const Structure *of)
{
	json_t *list = json_array();
	for (int i = 0; i < of->products.count; i++) {
		const ParamProduct *product = &of->products.at[i];
		json_array_append_new(list, json_pack("{ss ss ss?}", "node", product->node, "kind",
		                                      product->kind, "with", product->with));
	}
	return list;
}

// `readers`: of the slot.
static json_t *row_json(Arena *arena, const Graph *g, int slot, const Eta *eta,
                        const Readers *readers)
{
	const Slot *s = &g->slots.at[slot];
	const Structure *of = eta->structure;
	json_t *why = json_array(), *askers = json_array(), *copies = json_array();
	for (int i = 0; i < eta->nwhy; i++)
		json_array_append_new(why, json_string(eta->why[i]));
	if (!eta->nparts && eta->demand_by)
		json_array_append_new(askers, json_string(eta->demand_by));
	for (int i = 0; i < eta->nparts; i++) {
		const Eta *part = &eta->parts[i];
		if (part->demand_by)
			json_array_append_new(askers, json_string(part->demand_by));
		if (part->nwhy)
			json_array_append_new(
			    why, json_string(format(arena, "%lld along axis %d: %s; %s",
			                            (long long)eta->counts[i], eta->axis,
			                            part->formula, part->why[part->nwhy - 1])));
	}
	SlotHome *home; // the first is its initializer, the others hold copies
	int homes = slot_homes(g, arena, slot, &home);
	for (int k = 1; k < homes; k++)
		json_array_append_new(copies, json_pack("{so ss?}", "initializer",
		                                        json_text(home[k].initializer), "view",
		                                        home[k].view));
	return json_pack(
	    "{ss so ss so ss so so so ss? so so sb ss? so ss? ss? so ss? so sb sb so so so sI so "
	    "si ss? so sb so so}",
	    "name", s->name, "shape", shape_json(&s->shape), "role", eta->role, "eta",
	    eta_value(eta, &s->shape), "formula", eta->formula, "slots", shape_json(&eta->slot),
	    "input_range", number_json(eta->range.value), "demand", number_json(eta->demand.value),
	    "range_from", eta->source, "demand_by", askers, "why", why, "sure", (int)eta->sure,
	    "question", eta->question, "tied", others_json(readers), "node",
	    readers->names.count ? readers->names.at[0] : NULL, "line", readers->line,
	    "initializer", homes ? json_text(home[0].initializer) : json_null(), "view",
	    homes ? home[0].view : NULL, "copies", copies, "readout", (int)of->readout, "input",
	    (int)of->input, "fan_in", axes_json(eta->fan_in), "fan_out", axes_json(eta->fan_out),
	    "contracted", count_json(of->contracted), "groups", (json_int_t)of->groups,
	    "group_axes", axes_json(of->group_axes), "depth", of->depth, "use", of->use, "heads",
	    count_json(of->heads), "interleaved", (int)of->interleaved, "pieces",
	    pieces_json(arena, eta, &s->shape), "products", products_json(of));
}

// ---- inputs and memory ----------------------------------------------------------------

const Memory memories[MEMORIES] = {
    {"amos", "amos", 0, false, " with these slots"},
    {"amos_momentum", "amos", 0.9, false, " with these slots and momentum"},
    {"amos_unreduced", "amos", 0, true, ", nothing averaged"},
    {"adamw", "adamw", 0, false, ""},
    {"adafactor", "adafactor", 0, false, ""}};

// Returns the range of each input that is a signal, with its source.
static json_t *inputs_json(const Session *session, const struct amos_data *data, const Graph *g,
                           const Scales *scales)
{
	json_t *list = json_array();
	for (Ref r = 1; r < (Ref)g->nval; r++) {
		const Val *v = val(g, r);
		const Slot *slot = v->op == O_slot ? &g->slots.at[v->attr->i[0]] : NULL;
		if (!slot || slot->kind != S_input || scales->nature[r] != SIGNAL)
			continue;
		const char *by = data && amos_data_rms(data, slot->name) > 0 ? "data" : "assumed";
		size_t length = strlen(slot->name);
		for (int i = 0; i < session->choices.count; i++) {
			const Choice *c = &session->choices.at[i];
			if (c->option == OPT_range && !strncmp(c->value, slot->name, length) &&
			    strrchr(c->value, '=') == c->value + length)
				by = "--range";
		}
		json_array_append_new(list,
		                      json_pack("{ss so ss}", "name", slot->name, "range",
		                                number_json(scales->range[r].value), "by", by));
	}
	return list;
}

// Returns the bytes of the parameters and of the state of each optimizer.
static json_t *memory_json(Arena *arena, const Graph *g, const Eta *eta)
{
	Eta *full = NEWS(arena, Eta, g->slots.count + 1); // slots shaped as the parameters
	int64_t parameters = 0;
	for (int i = 0; i < g->slots.count; i++) {
		const Slot *s = &g->slots.at[i];
		full[i].slot = s->shape;
		if (s->kind == S_param)
			parameters += byte_count(s->type, &s->shape);
	}
	json_t *memory = json_pack("{sI}", "parameters", (json_int_t)parameters);
	for (int i = 0; i < MEMORIES; i++) {
		const Memory *m = &memories[i];
		const Opt opt = {.name = m->optimizer, .momentum = m->momentum};
		int64_t bytes = state_bytes(g, m->unreduced ? full : eta, &opt);
		json_object_set_new(memory, m->key, json_integer(bytes));
	}
	return memory;
}

// ---- reports --------------------------------------------------------------------------

static Report read_report(Session *session, const char *path)
{
	static const struct {
		const char *key;
		json_type type;
	} keys[] = {{"name", JSON_STRING}, {"role", JSON_STRING}, {"formula", JSON_STRING},
	            {"shape", JSON_ARRAY}, {"slots", JSON_ARRAY}, {"why", JSON_ARRAY}};
	const unsigned reading = READ | CHOOSE | NORMS | DROPS | LOSS | ETA | DATA | SHAPE;
	json_t *json = load_report(session, path), *row;
	size_t i;
	bool only = !session->other || (is_report(session->path) && is_report(session->other));
	for (int k = 0; k < session->choices.count && only; k++)
		if (options[session->choices.at[k].option].group & reading)
			bad_usage(session,
			          format(session->arena,
			                 "--%s does nothing with a report: expected a model",
			                 long_name(session->arena, session->choices.at[k].option)));
	json_array_foreach (json_object_get(json, "params"), i, row) {
		EtaValues values;
		bool eta = eta_values(session->arena, json_object_get(row, "eta"), &values);
		const char *missing = eta ? NULL : "eta";
		for (int k = COUNT(keys); k-- > 0 && !missing;) {
			const json_t *value = json_object_get(row, keys[k].key);
			if (!value || json_typeof(value) != keys[k].type)
				missing = keys[k].key;
		}
		if (missing)
			fail(
			    path,
			    "entry %zu of 'params': expected a '%s', as amosc eta --json writes it",
			    i, missing);
		Text formula = {.arena = session->arena};
		for (int64_t k = 0; k < values.count; k++)
			if (!k || values.at[k] != values.at[k - 1])
				say(&formula, "%s%s", k ? "|" : "",
				    eta_formula(session->arena, path, row, values.at[k]));
		json_object_set_new(row, "formula", json_string(formula.at));
	}
	return (Report){.json = json,
	                .rows = (int)json_array_size(json_object_get(json, "params"))};
}

Report make_report(Session *session, const char *path)
{
	if (is_report(path))
		return read_report(session, path);
	struct amos_data *data = open_given(session);
	session->path = path;
	session->file = NULL;
	Report report = {0};
	const Model *model = read_standing(session, data, true);
	const Graph *g = eta_graph(session->arena, with_loss(session, model->graph));
	if (data)
		note_unused(session, data, g);
	Eta *eta = etas(session, g, data, &report.scales);
	int *slot = NEWS(session->arena, int, g->slots.count + 1);
	json_t *unresolved = json_array(), *notes = json_array();
	for (int i = 0; i < g->slots.count; i++) {
		if (g->slots.at[i].kind != S_param)
			continue;
		slot[report.rows++] = i;
		if (!eta[i].sure)
			json_array_append_new(unresolved,
			                      json_pack("{ss ss}", "name", g->slots.at[i].name,
			                                "question", eta[i].question));
	}
	report.graph = g;
	report.slot = slot;
	report.eta = eta;
	report.readers = readers_of(session->arena, g);
	for (int i = 0; i < model->notes.count; i++)
		json_array_append_new(notes, json_string(model->notes.at[i]));
	report.json = keep_json(
	    session, json_pack("{si so s[] so so so so so}", "schema", REPORT_SCHEMA, "model",
	                       json_text(path), "params", "unresolved", unresolved, "inputs",
	                       inputs_json(session, data, g, &report.scales), "memory",
	                       memory_json(session->arena, g, eta), "not_trained",
	                       untrained_json(model), "notes", notes));
	return report;
}

json_t *report_row(const Report *report, int row)
{
	if (!report->graph)
		return json_incref(
		    json_array_get(json_object_get(report->json, "params"), (size_t)row));
	int slot = report->slot[row];
	Arena *arena = arena_new();
	json_t *json =
	    row_json(arena, report->graph, slot, &report->eta[slot], &report->readers[slot]);
	arena_free(arena);
	return json;
}

bool is_sure(const Report *report, int row)
{
	if (report->graph)
		return report->eta[report->slot[row]].sure;
	const json_t *params = json_object_get(report->json, "params");
	return json_is_true(json_object_get(json_array_get(params, (size_t)row), "sure"));
}

Report full_report(Session *session, const char *path)
{
	Report report = make_report(session, path);
	json_t *params = json_object_get(report.json, "params");
	for (int i = 0; report.graph && i < report.rows; i++)
		json_array_append_new(params, report_row(&report, i));
	return report;
}
