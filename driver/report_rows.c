// report_rows.c: reads what the rows of a report say of parameters, and makes a graph of them.
// Input: a report as amosc eta --json writes it, with a list 'params' that was checked. Invariant:
// a program that is compiled from a report has no other parameters than its rows.
#include "driver.h"
#include <math.h>
#include <string.h>

void check_structure(const json_t *row)
{
	static const char *const keys[] = {"shape", "fan_in",  "fan_out", "groups", "group_axes",
	                                   "input", "readout", "use",     "heads",  "pieces"};
	static const char *const piece_keys[] = {"axis", "from", "to", "use", "heads"};
	const char *missing = NULL;
	size_t i;
	json_t *piece;
	for (int k = 0; k < COUNT(keys) && !missing; k++)
		missing = json_object_get(row, keys[k]) ? NULL : keys[k];
	json_array_foreach (json_object_get(row, "pieces"), i, piece)
		for (int k = 0; k < COUNT(piece_keys) && !missing; k++)
			missing = json_object_get(piece, piece_keys[k]) ? NULL : piece_keys[k];
	if (missing)
		fail(text_at(row, "name"),
		     "the report lacks '%s'" HELP "write it again with amosc eta --json", missing);
}

const json_t *row_named(const json_t *report, const char *name)
{
	size_t i;
	json_t *row;
	json_array_foreach (json_object_get(report, "params"), i, row)
		if (!strcmp(text_at(row, "name"), name))
			return row;
	return NULL;
}

static int64_t size_at(const json_t *row, size_t axis)
{
	return json_integer_value(json_array_get(json_object_get(row, "shape"), axis));
}

Shape row_shape(const json_t *row)
{
	Shape shape = {.rank = (int)MIN(json_array_size(json_object_get(row, "shape")), RANK)};
	for (int a = 0; a < shape.rank; a++)
		shape.dim[a] = size_at(row, (size_t)a);
	return shape;
}

static const char *text_or_null(const json_t *row, const char *key)
{
	return json_string_value(json_object_get(row, key));
}

// Sets the elements of `axis` that a list of the row names.
static void read_axes(const json_t *row, const char *key, bool *axis)
{
	size_t i;
	json_t *one;
	json_array_foreach (json_object_get(row, key), i, one)
		if (json_integer_value(one) >= 0 && json_integer_value(one) < RANK)
			axis[json_integer_value(one)] = true;
}

// Returns the root mean square of the elements' eta, from index `from` to `to` along an axis.
static Surd mean_eta(const EtaValues *eta, int axis, int64_t from, int64_t to)
{
	double sum = 0;
	bool all = eta->count == 1 || eta->axis != axis || to > eta->count;
	from = all ? 0 : from;
	to = all ? eta->count : to;
	for (int64_t i = from; i < to; i++)
		sum += eta->at[i] * eta->at[i];
	return surd_number(sqrt(sum / (double)(to - from)));
}

Eta row_eta(Arena *arena, const json_t *row)
{
	Structure *of = NEW(arena, Structure);
	Eta eta = {.role = text_at(row, "role"), .structure = of};
	const json_t *pieces = json_object_get(row, "pieces");
	int64_t *counts = NEWS(arena, int64_t, json_array_size(pieces) + 1);
	Eta *parts = NEWS(arena, Eta, json_array_size(pieces) + 1);
	EtaValues values;
	int64_t end = 0, size = 0;
	size_t i;
	json_t *one;
	eta_values(arena, json_object_get(row, "eta"), &values);
	eta.eta = mean_eta(&values, -1, 0, 0);
	read_axes(row, "fan_in", eta.fan_in);
	read_axes(row, "fan_out", eta.fan_out);
	read_axes(row, "group_axes", of->group_axes);
	of->groups = MAX(json_integer_value(json_object_get(row, "groups")), 1);
	of->input = json_is_true(json_object_get(row, "input"));
	of->readout = json_is_true(json_object_get(row, "readout"));
	of->use = text_or_null(row, "use");
	json_array_foreach (pieces, i, one) {
		ParamPiece piece = {.from = json_integer_value(json_object_get(one, "from")),
		                    .to = json_integer_value(json_object_get(one, "to")),
		                    .use = text_or_null(one, "use"),
		                    .heads = json_integer_value(json_object_get(one, "heads"))};
		json_int_t axis = json_integer_value(json_object_get(one, "axis"));
		size = axis < 0 ? 0 : size_at(row, (size_t)axis);
		if (piece.from != end || piece.to <= end || piece.to > size || axis >= RANK)
			break;
		end = piece.to;
		of->axis = eta.axis = (int)axis;
		counts[i] = piece.to - piece.from;
		parts[i].eta = mean_eta(&values, of->axis, piece.from, piece.to);
		PUSH(arena, of->pieces, piece);
	}
	if (end != size || i < json_array_size(pieces))
		fail(text_at(row, "name"), "the pieces in the report do not cover an axis" HELP
		                           "write it again with amosc eta --json");
	eta.nparts = of->pieces.count;
	eta.counts = counts;
	eta.parts = parts;
	return eta;
}

// ---- a report as a model ----------------------------------------------------------------

Graph *report_graph(Arena *arena, const char *path, const json_t *report)
{
	static const double MOST = 1e15; // elements, whose bytes are a number
	Graph *g = graph_new(arena, path, book_builtin());
	size_t i;
	json_t *row;
	json_array_foreach (json_object_get(report, "params"), i, row) {
		const char *name = copy_string(arena, text_at(row, "name"));
		Shape shape = row_shape(row);
		double elements = 1;
		for (int a = 0; a < shape.rank; a++)
			elements = shape.dim[a] > 0 ? elements * (double)shape.dim[a] : INFINITY;
		if (json_array_size(json_object_get(row, "shape")) > RANK || elements > MOST)
			fail(path,
			     "parameter '%s': expected at most %d sizes, above 0, of at most %g "
			     "elements",
			     name, RANK, MOST);
		if (find_slot(g, name) >= 0)
			fail(path, "parameter '%s' is in the report twice", name);
		Slot slot = {.name = name, .kind = S_param, .type = E_f32, .shape = shape};
		add_out(g, format(arena, GRAD_OF "%s", name), put_slot(g, add_slot(g, slot)));
	}
	return g;
}
