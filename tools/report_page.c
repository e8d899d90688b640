// report_page.c: prints a report as an interactive page.
// Output: page.html with the report in it, which needs no other file. Only samples of large weights
// are read.
#include "report.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

extern const struct {
	const char *name, *text;
} report_pages[];

// ---- rows -----------------------------------------------------------------------------

// Returns the root mean square of the elements; of many, that of evenly spaced runs. NAN if
// unknown.
static double sampled_rms(const Slot *slot)
{
	enum { RUN = 1 << 12, RUNS = 1 << 3 };
	int64_t count = count_of(&slot->shape), runs = MIN((count + RUN - 1) / RUN, RUNS);
	const Val v = {.type = slot->type, .data = slot->init};
	double sum = 0, taken = 0;
	if (!slot->init || slot->type != E_f32)
		return NAN;
	for (int64_t run = 0; run < runs; run++) {
		int64_t begin = count > RUN * RUNS ? run * (count / runs) : run * RUN;
		for (int64_t i = begin; i < MIN(begin + RUN, count); i++, taken++)
			sum += const_at(&v, i) * const_at(&v, i);
	}
	return sqrt(sum / taken);
}

// Returns the report's rows, each with its measured and inferred scale and its cells of the table.
static json_t *rows_json(Arena *arena, const Report *report)
{
	const int *rows = unsure_first(arena, report);
	json_t *list = json_array();
	for (int i = 0; i < report->rows; i++) {
		double sum = 0;
		EtaValues eta;
		json_t *row = report_row(report, rows[i]), *one = json_copy(row),
		       *cells = json_array();
		const char *name = text_at(one, "name");
		int slot = report->graph ? find_slot(report->graph, name) : -1;
		double rms = slot < 0 ? NAN : sampled_rms(&report->graph->slots.at[slot]);
		bool known = eta_values(arena, json_object_get(one, "eta"), &eta);
		for (int64_t k = 0; k < eta.count; k++)
			sum += eta.at[k] * eta.at[k];
		json_object_set_new(one, "rms", number_json(rms));
		json_object_set_new(one, "scale",
		                    number_json(known ? sqrt(sum / (double)eta.count) : NAN));
		for (int c = 0; c < COLUMNS; c++)
			if (columns[c].formats & H)
				json_array_append_new(cells, json_string(cell_at(arena, one, c)));
		json_object_set_new(one, "cells", cells);
		json_array_append_new(list, one);
		json_decref(row);
	}
	return list;
}

// ---- the graph, by the nodes of the file ----------------------------------------------

typedef struct Spot { // a node of the picture: a parameter, an input, or the values of a node
	Ref last;     // its result
	VEC(int) in;  // keys of its operands
} Spot;

typedef struct Picture {
	Arena *arena;
	const Report *report;
	const int *live;
	bool *out;  // indexed by Ref: an output
	int *key;   // indexed by Ref: its spot; -1: not shown
	Spot *spot; // indexed by key
	int spots;
} Picture;

// True if the picture shows its operand in its place: the same elements in another shape.
static bool is_view(const Picture *p, Ref r)
{
	Op op = val(p->report->graph, r)->op;
	bool moves = op == O_reshape || op == O_permute || op == O_expand || op == O_cast;
	return moves && !p->out[r];
}

// Returns the key of the spot that shows `r`, or -1. Keys number slots, then nodes, then values of
// no node.
static int key_of(const Picture *p, Ref r)
{
	const Graph *g = p->report->graph;
	const Val *v = val(g, r);
	if (!p->live[r] || v->op == O_const || p->report->scales.nature[r] == AUX)
		return -1;
	if (v->op == O_slot)
		return (int)v->attr->i[0];
	if (is_view(p, r))
		return p->key[v->in[0]];
	return g->slots.count + (v->from ? v->from : g->nodes->list.count + (int)r);
}

static Picture picture_of(Arena *arena, const Report *report)
{
	const Graph *g = report->graph;
	Picture p = {.arena = arena,
	             .report = report,
	             .live = graph_uses(arena, g),
	             .out = NEWS(arena, bool, g->nval),
	             .key = NEWS(arena, int, g->nval),
	             .spots = g->slots.count + g->nodes->list.count + g->nval};
	p.spot = NEWS(arena, Spot, p.spots);
	for (int i = 0; i < g->outs.count; i++)
		p.out[g->outs.at[i].val] = true;
	for (Ref r = 1; r < (Ref)g->nval; r++) {
		const Val *v = val(g, r);
		p.key[r] = key_of(&p, r);
		if (p.key[r] < 0 || is_view(&p, r))
			continue;
		Spot *spot = &p.spot[p.key[r]];
		spot->last = r;
		for (int k = 0; k < v->nin; k++) {
			int from = p.key[v->in[k]];
			bool drawn = from < 0 || from == p.key[r];
			for (int i = 0; i < spot->in.count && !drawn; i++)
				drawn = spot->in.at[i] == from;
			if (!drawn)
				PUSH(arena, spot->in, from);
		}
	}
	return p;
}

static json_t *spot_json(const Picture *p, const Spot *spot, const int *place, Table *rows)
{
	const Scales *scales = &p->report->scales;
	Ref r = spot->last;
	const Val *v = val(p->report->graph, r);
	const char *name = value_label(p->arena, p->report->graph, r);
	uint64_t *row = v->op == O_slot ? table_find_s(rows, name) : NULL;
	json_t *in = json_array();
	for (int i = 0; i < spot->in.count; i++)
		json_array_append_new(in, json_integer(place[spot->in.at[i]]));
	json_t *one = json_pack("{ss ss so}", "name", name, "op",
	                        v->op == O_slot ? "" : p->report->graph->nodes->list.at[v->from].op,
	                        "in", in);
	if (row)
		json_object_set_new(one, "row", json_integer((json_int_t)*row));
	if (scales->nature[r] == VARIABLE) {
		json_object_set_new(one, "variable", json_true());
		return one;
	}
	json_object_set_new(one, "range", json_string(surd_text(p->arena, scales->range[r], 0)));
	if (scales->demand_by[r])
		json_object_set_new(one, "demand",
		                    json_string(surd_text(p->arena, scales->demand[r], 0)));
	return one;
}

// Returns the spots in the order of their results, so that most edges go forward.
static json_t *nodes_json(Arena *arena, const Report *report, const json_t *rows)
{
	json_t *list = json_array();
	if (!report->graph)
		return list;
	Picture p = picture_of(arena, report);
	Table *row = table_new(arena);
	for (size_t i = 0; i < json_array_size(rows); i++)
		*table_cell_s(row, text_at(json_array_get(rows, i), "name")) = i;
	int *place = NEWS(arena, int, p.spots), next = 0;
	for (Ref r = 1; r < (Ref)report->graph->nval; r++)
		if (p.key[r] >= 0 && p.spot[p.key[r]].last == r)
			place[p.key[r]] = next++;
	for (Ref r = 1; r < (Ref)report->graph->nval; r++)
		if (p.key[r] >= 0 && p.spot[p.key[r]].last == r)
			json_array_append_new(list, spot_json(&p, &p.spot[p.key[r]], place, row));
	return list;
}

// ---- the page -------------------------------------------------------------------------

void print_html(Session *session, const Report *report)
{
	static const char mark[] = "/*REPORT*/null";
	const char *page = report_pages[0].text, *at = strstr(page, mark);
	if (!at)
		bug("page.html has no %s", mark);
	Arena *arena = session->arena;
	json_t *inputs = json_array(), *shown = json_array(), *memory = json_array(), *one,
	       *rows = rows_json(arena, report), *notes = json_object_get(report->json, "notes");
	size_t i;
	json_array_foreach (json_object_get(report->json, "inputs"), i, one)
		json_array_append_new(inputs, json_string(input_line(arena, one)));
	for (int c = 0; c < COLUMNS; c++)
		if (columns[c].formats & H)
			json_array_append_new(shown,
			                      json_pack("{ss sb}", "title", columns[c].title,
			                                "number", columns[c].kind == NUMBER));
	StateRow state[MEMORIES];
	int states = state_rows(arena, report, state);
	for (int k = 0; k < states; k++)
		json_array_append_new(memory,
		                      json_pack("{ss ss ss sf}", "title", state[k].title, "bytes",
		                                state[k].bytes, "percent", state[k].percent, "part",
		                                atof(state[k].percent)));
	json_t *json =
	    json_pack("{ss ss so sO? ss so so so so}", "model", text_at(report->json, "model"),
	              "title", title_of(arena, report), "inputs", inputs, "notes", notes, "state",
	              state_title(arena, report), "memory", memory, "columns", shown, "rows", rows,
	              "nodes", nodes_json(arena, report, rows));
	printf("%.*s", (int)(at - page), page);
	char *text = json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(6));
	for (const char *c = text; *c; c++) // < could end the script
		printf(*c == '<' ? "\\u003c" : "%c", *c);
	free(text);
	json_decref(json);
	fputs(at + strlen(mark), stdout);
}
