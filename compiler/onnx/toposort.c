// toposort.c: nodes in the order in which they compute.
// Takes a file's messages. Leaves the nodes of every graph, body and function behind those they
// read from, as the standard wants them: some tools append what they add (ONNX Runtime sorts, and
// does not mind). Keeps: nodes that were in order stay as they lie. Those of a cycle are refused
// later, as one of them reads what no node before it computes.
#include "lower.h"
#include <string.h>

void visit_operands(const NodeProto *node, void visit(const char *name, void *), void *context)
{
	for (size_t k = 0; k < node->n_input; k++)
		visit(node->input[k], context);
	for (size_t a = 0; a < node->n_attribute; a++) {
		const GraphProto *g = node->attribute[a]->g;
		for (size_t i = 0; g && i < g->n_node; i++)
			visit_operands(g->node[i], visit, context);
		for (size_t i = 0; g && i < g->n_output; i++)
			visit(g->output[i]->name, context);
	}
}

typedef struct Sorting { // the nodes of one graph
	Arena *arena;
	Table *maker;     // name -> 1 + the node that computes it
	VEC(size_t) open; // nodes that wait for others, each for the next
	VEC(size_t) sorted;
	bool *met;     // by node: open or sorted
	size_t wanted; // of the node looked at: one it waits for
	bool waits;
} Sorting;

static void want(const char *name, void *context)
{
	Sorting *s = context;
	const uint64_t *cell = name[0] && !s->waits ? table_find_s(s->maker, name) : NULL;
	if (!cell || s->met[*cell - 1])
		return;
	s->wanted = (size_t)*cell - 1;
	s->waits = true;
}

static void sort_from(Sorting *s, NodeProto *const *node, size_t first)
{
	PUSH(s->arena, s->open, first);
	s->met[first] = true;
	while (s->open.count) {
		size_t i = s->open.at[s->open.count - 1];
		s->waits = false;
		visit_operands(node[i], want, s);
		if (s->waits) {
			PUSH(s->arena, s->open, s->wanted);
			s->met[s->wanted] = true;
		} else {
			s->open.count--;
			PUSH(s->arena, s->sorted, i);
		}
	}
}

static void sort_nodes(Arena *arena, size_t n, NodeProto **node)
{
	Sorting s = {.arena = arena, .maker = table_new(arena), .met = NEWS(arena, bool, n + 1)};
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < node[i]->n_output; k++) {
			uint64_t *cell = table_cell_s(s.maker, node[i]->output[k]);
			*cell = *cell ? *cell : i + 1;
		}
	for (size_t i = 0; i < n; i++)
		if (!s.met[i])
			sort_from(&s, node, i);
	NodeProto **before = take_copy(arena, node, sizeof *node * n);
	for (size_t i = 0; i < n; i++)
		node[i] = before[s.sorted.at[i]];
	for (size_t i = 0; i < n; i++)
		for (size_t a = 0; a < node[i]->n_attribute; a++) {
			GraphProto *body = node[i]->attribute[a]->g;
			if (body)
				sort_nodes(arena, body->n_node, body->node);
		}
}

void order_nodes(Arena *arena, ModelProto *m)
{
	sort_nodes(arena, m->graph->n_node, m->graph->node);
	for (size_t i = 0; i < m->n_functions; i++)
		sort_nodes(arena, m->functions[i]->n_node, m->functions[i]->node);
	for (size_t i = 0; i < m->n_training_info; i++) {
		GraphProto *algorithm = m->training_info[i]->algorithm;
		if (algorithm)
			sort_nodes(arena, algorithm->n_node, algorithm->node);
	}
}
