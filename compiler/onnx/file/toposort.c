// toposort.c: sorts the nodes of every graph, body and function after those they read from.
// The standard demands this order, but some tools append the nodes that they add, and ONNX Runtime
// accepts that. Invariant: nodes that are in order keep their positions. A cycle is refused later,
// since one of its nodes reads a value that no node before it computes.
#include "file.h"
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

typedef struct Open { // a node that waits for others
	size_t node;
	int next, end; // those that it waits for, in `wanted`
} Open;

typedef struct Sorting { // the nodes of one graph
	Arena *arena;
	Table *maker;   // name -> 1 + the node that computes it
	VEC(Open) open; // each but the last waits for the next
	VEC(size_t) wanted;
	VEC(size_t) sorted;
	bool *met; // by node: open or sorted
} Sorting;

static void want(const char *name, void *context)
{
	Sorting *s = context;
	const uint64_t *cell = name[0] ? table_find_s(s->maker, name) : NULL;
	if (cell && !s->met[*cell - 1])
		PUSH(s->arena, s->wanted, (size_t)*cell - 1);
}

static void open_node(Sorting *s, NodeProto *const *node, size_t i)
{
	Open open = {i, s->wanted.count, 0};
	s->met[i] = true;
	visit_operands(node[i], want, s);
	open.end = s->wanted.count;
	PUSH(s->arena, s->open, open);
}

static void sort_nodes(Arena *outer, size_t n, NodeProto **node)
{
	Arena *arena = arena_within(outer);
	Sorting s = {.arena = arena, .maker = table_lent(arena), .met = NEWS(arena, bool, n + 1)};
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < node[i]->n_output; k++) {
			uint64_t *cell = table_cell_s(s.maker, node[i]->output[k]);
			*cell = *cell ? *cell : i + 1;
		}
	for (size_t i = 0; i < n; i++) {
		if (!s.met[i])
			open_node(&s, node, i);
		while (s.open.count) {
			Open *last = &s.open.at[s.open.count - 1];
			while (last->next < last->end && s.met[s.wanted.at[last->next]])
				last->next++;
			if (last->next < last->end) {
				open_node(&s, node, s.wanted.at[last->next++]);
				continue;
			}
			PUSH(arena, s.sorted, last->node);
			s.open.count--;
			s.wanted.count = s.open.count ? s.open.at[s.open.count - 1].end : 0;
		}
	}
	NodeProto **before = take_copy(arena, node, sizeof *node * n);
	for (size_t i = 0; i < n; i++)
		node[i] = before[s.sorted.at[i]];
	arena_free(arena);
	for (size_t i = 0; i < n; i++)
		for (size_t a = 0; a < node[i]->n_attribute; a++) {
			GraphProto *body = node[i]->attribute[a]->g;
			if (body)
				sort_nodes(outer, body->n_node, body->node);
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
