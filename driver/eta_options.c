// eta_options.c: infers eta with the options --eta, --range, --slots and --convention.
// Invariant: --eta with an unedited report changes nothing.
#include "driver.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- a report as a file ---------------------------------------------------------------

bool eta_values(Arena *arena, const json_t *eta, EtaValues *to)
{
	for (to->axis = 0; json_array_size(eta) == 1; to->axis++)
		eta = json_array_get(eta, 0);
	to->count = json_is_array(eta) ? (int64_t)json_array_size(eta) : 1;
	to->at = NEWS(arena, double, to->count + 1);
	for (int64_t i = 0; i < to->count; i++) {
		const json_t *one = json_is_array(eta) ? json_array_get(eta, (size_t)i) : eta;
		while (json_array_size(one) == 1)
			one = json_array_get(one, 0);
		if (!json_is_number(one))
			return false;
		to->at[i] = json_number_value(one);
	}
	return to->count > 0;
}

const char *eta_formula(Arena *arena, const char *path, const json_t *row, double eta)
{
	const char *name = format(arena, "%s: %s", path, text_at(row, "name"));
	const char *rest = text_at(row, "formula");
	while (*rest) {
		size_t length = strcspn(rest, "|");
		const char *part = format(arena, "%.*s", (int)length, rest);
		const char *power = strchr(part, '^');
		double x = book_number(
		    arena, name, power ? format(arena, "%.*s", (int)(power - part), part) : part);
		x = power ? pow(x, book_number(arena, name, power + 1)) : x;
		if (fabs(x - eta) <= 1e-5 * eta)
			return part;
		rest += length + (rest[length] == '|');
	}
	return format(arena, "%.9g", eta);
}

// Escapes a report's strings, because they are printed as they are.
static void show_strings(Arena *arena, json_t *value)
{
	size_t i;
	const char *key;
	json_t *one;
	if (json_is_string(value))
		json_string_set(value, visible(arena, json_string_value(value), false));
	json_array_foreach (value, i, one)
		show_strings(arena, one);
	json_object_foreach (value, key, one)
		show_strings(arena, one);
}

json_t *load_report(Session *session, const char *path)
{
	json_error_t error = {.line = 0};
	FILE *stream = strcmp(path, "-") ? amos_input_stream(path) : fopen("/dev/stdin", "rb");
	if (!stream)
		need_done(amos_fail_errno("read", path));
	json_t *file = keep_json(session, json_loadf(stream, 0, &error));
	fclose(stream);
	show_strings(session->arena, file);
	if (!json_is_array(json_object_get(file, "params")))
		fail(path, "expected the output of amosc eta --json: %s",
		     file ? "no list 'params'" : error.text);
	return file;
}

static void read_report(Arena *arena, const char *path, const json_t *report, EtaOptions *options)
{
	size_t i;
	json_t *row;
	json_array_foreach (json_object_get(report, "params"), i, row) {
		const char *name = json_string_value(json_object_get(row, "name"));
		EtaValues values;
		if (!name || !eta_values(arena, json_object_get(row, "eta"), &values))
			fail(path,
			     "entry %zu of 'params': expected a name and an eta: a number, or a "
			     "nested list that differs along one axis",
			     i);
		Override eta = {.pattern = copy_string(arena, name),
		                .expr = format(arena, "%.17g", values.at[0]),
		                .axis = values.axis,
		                .count = values.count > 1 ? values.count : 0,
		                .along = values.at,
		                .sure = json_is_true(json_object_get(row, "sure")),
		                .report = path};
		PUSH(arena, options->eta, eta);
		const json_t *slots = json_object_get(row, "slots");
		char *shape = json_is_array(slots) ? json_dumps(slots, JSON_COMPACT) : NULL;
		if (!shape)
			continue;
		Override slot = {
		    .pattern = eta.pattern, .expr = copy_string(arena, shape), .report = path};
		PUSH(arena, options->slots, slot);
		free(shape);
	}
}

// ---- options --------------------------------------------------------------------------

// Adds PATTERN=EXPRESSION, split at the last '='. Returns false if there is none.
static bool read_override(Arena *arena, const char *text, Overrides *list)
{
	const char *equal = strrchr(text, '=');
	if (!equal || equal == text)
		return false;
	Override override = {.pattern = format(arena, "%.*s", (int)(equal - text), text),
	                     .expr = equal + 1};
	PUSH(arena, *list, override);
	return true;
}

Eta *etas(Session *session, const Graph *g, struct amos_data *data, Scales *scales)
{
	Arena *arena = session->arena;
	EtaOptions options = {.convention = choice(session, OPT_convention, NULL)};
	for (int i = 0; data && i < g->slots.count; i++) {
		const Slot *slot = &g->slots.at[i];
		bool input = slot->kind == S_input && is_float(slot->type);
		double rms = input ? amos_data_rms(data, slot->name) : 0;
		if (!(rms > 0) || !isfinite(rms))
			continue;
		Override range = {.pattern = slot->name, .expr = format(arena, "%.3g", rms)};
		PUSH(arena, options.range, range);
		if (session->purpose != FOR_REPORT) // which reports it itself
			tell(session, "input %s: range %s, the root mean square of its data\n",
			     slot->name, range.expr);
	}
	for (int i = 0; i < session->choices.count; i++) {
		const Choice *c = &session->choices.at[i];
		bool range = c->option == OPT_range;
		if (c->option == OPT_eta && !read_override(arena, c->value, &options.eta))
			read_report(arena, c->value, load_report(session, c->value), &options);
		if ((range || c->option == OPT_slots) &&
		    !read_override(arena, c->value, range ? &options.range : &options.slots))
			fail_status(STATUS_USAGE, range ? "--range" : "--slots",
			            "expected NAME=VALUE, found '%s'", c->value);
	}
	return eta_pass(arena, g, &options, scales);
}

Eta *report_etas(Arena *arena, const Graph *g, const json_t *report, const char *optimizer)
{
	EtaOptions options = {0};
	Eta *eta = NEWS(arena, Eta, g->slots.count + 1);
	size_t i;
	json_t *row;
	read_report(arena, g->name, report, &options);
	json_array_foreach (json_object_get(report, "params"), i, row) {
		if (opt_takes_matrices(optimizer))
			check_structure(row);
		eta[i] = row_eta(arena, row);
		eta[i].eta.value = 0; // so that it is set by the options, which also round it
		eta[i].nparts = 0;
		eta[i].slot = g->slots.at[i].shape;
		eta[i].why = NEW(arena, const char *);
	}
	settle_etas(arena, g, eta, &options);
	return eta;
}
