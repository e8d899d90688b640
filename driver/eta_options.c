// eta_options.c: parses --eta, --range, --slots.
// Output: the eta of every parameter. Invariant: an unedited report changes nothing.
#include "driver.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- a report as a file ---------------------------------------------------------------

// A number; or nested lists of which one is longer than 1: its axis, length and numbers. False:
// neither.
static bool read_eta(Arena *arena, const json_t *list, Override *wish)
{
	for (; json_array_size(list) == 1; wish->axis++)
		list = json_array_get(list, 0);
	if (json_is_number(list)) {
		wish->expr = format(arena, "%.17g", json_number_value(list));
		return true;
	}
	wish->count = (int64_t)json_array_size(list);
	double *along = NEWS(arena, double, wish->count + 1);
	size_t i;
	json_t *one;
	json_array_foreach (list, i, one) {
		while (json_array_size(one) == 1)
			one = json_array_get(one, 0);
		if (!json_is_number(one))
			return false;
		along[i] = json_number_value(one);
	}
	wish->along = along;
	return wish->count > 0;
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
	FILE *stream = amos_input_stream(path);
	if (!stream)
		need_done(amos_fail_errno("read", path));
	json_t *file = keep_json(session, json_loadf(stream, 0, &error));
	fclose(stream);
	show_strings(session->arena, file);
	if (!json_is_array(json_object_get(file, "params")))
		fail(path, "not what amosc eta --json writes: %s",
		     file ? "no list 'params'" : error.text);
	return file;
}

static void read_report(Session *session, const char *path, EtaOptions *options)
{
	Arena *arena = session->arena;
	json_t *params = json_object_get(load_report(session, path), "params"), *row;
	size_t i;
	json_array_foreach (params, i, row) {
		const char *name = json_string_value(json_object_get(row, "name"));
		Override eta = {.pattern = name ? copy_string(arena, name) : NULL,
		                .sure = json_is_true(json_object_get(row, "sure")),
		                .report = true};
		if (!name || !read_eta(arena, json_object_get(row, "eta"), &eta))
			fail(path,
			     "entry %zu of 'params': expected a name and an eta: a number, or a "
			     "nested list that differs along one axis",
			     i);
		PUSH(arena, options->eta, eta);
		const json_t *slots = json_object_get(row, "slots");
		char *shape = json_is_array(slots) ? json_dumps(slots, JSON_COMPACT) : NULL;
		if (!shape)
			continue;
		Override slot = {
		    .pattern = eta.pattern, .expr = copy_string(arena, shape), .report = true};
		PUSH(arena, options->slots, slot);
		free(shape);
	}
}

// ---- options --------------------------------------------------------------------------

// PATTERN=EXPRESSION, cut at the last '='; false where there is none.
static bool read_wish(Arena *arena, const char *text, Overrides *list)
{
	const char *equal = strrchr(text, '=');
	if (!equal || equal == text)
		return false;
	Override wish = {.pattern = format(arena, "%.*s", (int)(equal - text), text),
	                 .expr = equal + 1};
	PUSH(arena, *list, wish);
	return true;
}

static void want_wish(Arena *arena, const char *option, const char *text, Overrides *list)
{
	if (!read_wish(arena, text, list))
		fail_status(STATUS_USAGE, option, "expected NAME=VALUE, found '%s'", text);
}

// The root mean square of each float input that has data, to three digits.
static void measure(Session *session, const Graph *g, const struct amos_data *data, Overrides *list)
{
	Arena *arena = session->arena;
	for (int i = 0; data && i < g->slots.count; i++) {
		const Slot *slot = &g->slots.at[i];
		if (slot->kind != S_input || !is_float(slot->type))
			continue;
		double rms = amos_data_rms(data, slot->name);
		if (!(rms > 0) || !isfinite(rms))
			continue;
		Override wish = {.pattern = slot->name, .expr = format(arena, "%.3g", rms)};
		PUSH(arena, *list, wish);
		if (session->purpose != FOR_REPORT) // which tells itself
			tell(session, "input %s: range %s, the root mean square of its data\n",
			     slot->name, wish.expr);
	}
}

Eta *etas(Session *session, const Graph *g, struct amos_data *data, Scales *scales)
{
	Arena *arena = session->arena;
	EtaOptions wishes = {.convention = choice(session, OPT_convention, NULL)};
	measure(session, g, data, &wishes.range);
	for (int i = 0; i < session->choices.count; i++) {
		const Choice *c = &session->choices.at[i];
		if (c->option == OPT_eta && !read_wish(arena, c->value, &wishes.eta))
			read_report(session, c->value, &wishes);
		if (c->option == OPT_range)
			want_wish(arena, "--range", c->value, &wishes.range);
		if (c->option == OPT_slots)
			want_wish(arena, "--slots", c->value, &wishes.slots);
	}
	return eta_pass(arena, g, &wishes, scales);
}
