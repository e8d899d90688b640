// report_diff.c: prints the differences between two reports.
// Output: the parameters that were removed, added or changed; a changed one with both rows.
#include "report.h"
#include <math.h>
#include <string.h>

static Table *rows_by_name(Arena *arena, const Report *report)
{
	Table *rows = table_new(arena);
	size_t i;
	const json_t *one;
	json_array_foreach (json_object_get(report->json, "params"), i, one)
		*table_cell_s(rows, text_at(one, "name")) = (uint64_t)(uintptr_t)one;
	return rows;
}

// Numbers are equal if they differ by no more than the rounding of --json.
static bool same_json(const json_t *a, const json_t *b)
{
	if (json_is_number(a) && json_is_number(b))
		return fabs(json_number_value(a) - json_number_value(b)) <=
		       1e-6 * fabs(json_number_value(a));
	if (!json_is_array(a) || json_array_size(a) != json_array_size(b))
		return a == b || json_equal(a, b); // both may be missing
	for (size_t i = 0; i < json_array_size(a); i++)
		if (!same_json(json_array_get(a, i), json_array_get(b, i)))
			return false;
	return true;
}

static json_t *differences(Arena *arena, const Report *a, const Report *b)
{
	static const char *const keys[] = {"role", "shape", "eta", "slots", "sure"};
	json_t *list = json_array(), *one, *none = json_null();
	Table *in_a = rows_by_name(arena, a), *in_b = rows_by_name(arena, b);
	size_t i;
	json_array_foreach (json_object_get(a->json, "params"), i, one) {
		const json_t *other = table_pointer_s(in_b, text_at(one, "name"));
		bool same = other != NULL;
		for (int k = 0; k < COUNT(keys) && same; k++)
			same = same_json(json_object_get(one, keys[k]),
			                 json_object_get(other, keys[k]));
		if (!same)
			json_array_append_new(
			    list, json_pack("{sO sO}", "a", one, "b", other ? other : none));
	}
	json_array_foreach (json_object_get(b->json, "params"), i, one)
		if (!table_pointer_s(in_a, text_at(one, "name")))
			json_array_append_new(list, json_pack("{sO sO}", "a", none, "b", one));
	return list;
}

static void print_side(Arena *arena, char sign, const json_t *row)
{
	if (!json_is_object(row))
		return;
	printf("%c %s  %s %s  %s  slots %s%s\n", sign, text_at(row, "name"), text_at(row, "role"),
	       list_text(arena, json_object_get(row, "shape"), "x"), text_at(row, "formula"),
	       list_text(arena, json_object_get(row, "slots"), "x"),
	       json_is_true(json_object_get(row, "sure")) ? "" : "  unsure");
}

int print_differences(Session *session, const Report *a, const Report *b)
{
	json_t *list = differences(session->arena, a, b), *one;
	int count = (int)json_array_size(list);
	size_t i;
	if (chosen(session, OPT_json)) {
		print_json(json_pack("{so}", "differences", list));
		return count;
	}
	json_array_foreach (list, i, one) {
		print_side(session->arena, '-', json_object_get(one, "a"));
		print_side(session->arena, '+', json_object_get(one, "b"));
	}
	json_decref(list);
	return count;
}
