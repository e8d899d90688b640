// names.c: finds values, attributes and operator sets by name.
#include "file.h"
#include <string.h>

static Named *cell_of(File *file, const char *name)
{
	uint64_t *cell = table_cell_s(file->names, name);
	if (!*cell)
		*cell = (uintptr_t)NEW(file->arena, Named);
	return (Named *)(uintptr_t)*cell;
}

void list_names(File *file)
{
	const GraphProto *g = file->proto->graph;
	file->names = table_lent(file->arena);
	for (size_t i = 0; i < g->n_initializer; i++)
		cell_of(file, g->initializer[i]->name)->tensor = g->initializer[i];
	for (size_t i = 0; i < g->n_input; i++)
		cell_of(file, g->input[i]->name)->input = g->input[i];
	for (size_t i = 0; i < g->n_value_info; i++)
		cell_of(file, g->value_info[i]->name)->info = g->value_info[i];
	for (size_t i = g->n_node; i-- > 0;) {
		const NodeProto *node = g->node[i];
		for (size_t k = 0; k < node->n_output; k++)
			cell_of(file, node->output[k])->maker = node;
		for (size_t k = 0; k < node->n_input; k++) {
			Named *read = cell_of(file, node->input[k]);
			Reading *reading = NEW(file->arena, Reading);
			*reading = (Reading){node, read->first};
			read->first = reading;
			read->last = read->last ? read->last : node;
		}
	}
}

const Named *find_name(const File *file, const char *name)
{
	static const Named none;
	const Named *found = table_pointer_s(file->names, name);
	return found ? found : &none;
}

// ---- lists of a message ---------------------------------------------------------------

const char *plain_domain(const char *domain)
{
	return strcmp(domain, "ai.onnx") ? domain : "";
}

Table *list_opsets(Arena *arena, size_t n, OperatorSetIdProto *const *set)
{
	Table *opsets = table_lent(arena);
	for (size_t i = n; i-- > 0;)
		*table_cell_s(opsets, plain_domain(set[i]->domain)) = (uint64_t)set[i]->version;
	return opsets;
}

int64_t version_of(const Table *opsets, const char *domain)
{
	const uint64_t *version = table_find_s(opsets, domain);
	return version ? (int64_t)*version : 0;
}

const AttributeProto *find_attribute(size_t n, AttributeProto *const *attribute, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(attribute[i]->name, name))
			return attribute[i];
	return NULL;
}
