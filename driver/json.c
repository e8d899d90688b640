// json.c: writes names, shapes, numbers and weights as JSON.
#include "driver.h"
#include <math.h>
#include <string.h>

static void drop_json(void *value)
{
	json_decref(value);
}

json_t *keep_json(Session *session, json_t *value)
{
	at_end(session->arena, drop_json, value);
	return value;
}

json_t *json_text(const char *text)
{
	json_t *whole = json_string(text);
	if (whole)
		return whole;
	Arena *arena = arena_new();
	whole = json_string(visible(arena, text, false));
	arena_free(arena);
	return whole;
}

json_t *shape_json(const Shape *shape)
{
	json_t *list = json_array();
	for (int i = 0; i < shape->rank; i++)
		json_array_append_new(list, json_integer(shape->dim[i]));
	return list;
}

const char *text_at(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));
	return text ? text : "";
}

Readers *readers_of(Arena *arena, const Graph *g)
{
	Readers *readers = NEWS(arena, Readers, g->slots.count + 1);
	Table *met = table_new(arena);
	for (int r = 1; r < g->nval; r++)
		for (int k = 0; k < val(g, r)->nin; k++) {
			const Val *in = val(g, val(g, r)->in[k]);
			if (in->op != O_slot)
				continue;
			const Node *node = &g->nodes->list.at[val(g, r)->from];
			int slot = (int)in->attr->i[0];
			if (*node->name &&
			    !(*table_cell_s(met, format(arena, "%d %s", slot, node->name)))++)
				PUSH(arena, readers[slot].names, node->name);
			if (!readers[slot].line)
				readers[slot].line = node->line;
		}
	return readers;
}

json_t *others_json(const Readers *readers)
{
	json_t *names = json_array();
	for (int i = 1; i < readers->names.count; i++)
		json_array_append_new(names, json_string(readers->names.at[i]));
	return names;
}

json_t *number_json(double x)
{
	return isfinite(x) ? json_real(x) : json_null();
}

json_t *untrained_json(const Model *m)
{
	json_t *list = json_array();
	for (int i = 0; i < m->untrained.count; i++) {
		const Untrained *one = &m->untrained.at[i];
		json_array_append_new(list, json_pack("{ss ss so ss}", "name", one->name, "type",
		                                      elems[one->type].name, "shape",
		                                      shape_json(&one->shape), "why", one->why));
	}
	return json_pack("{so so}", "percent", json_real(untrained_percent(m)), "weights", list);
}
