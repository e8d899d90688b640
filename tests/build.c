// build.c: builds ONNX models field by field.
#include "build.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

Arena *arena;

char **names(const char *list, size_t *n)
{
	VEC(char *) v = {0};
	for (const char *at = list; at && *list;
	     at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
		char *name = format(arena, "%.*s", (int)strcspn(at, ","), at);
		PUSH(arena, v, name);
	}
	*n = (size_t)v.count;
	return v.at;
}

NodeProto *node(const char *op, const char *inputs, const char *outputs)
{
	NodeProto *n = NEW(arena, NodeProto);
	node_proto__init(n);
	n->op_type = (char *)op;
	n->input = names(inputs, &n->n_input);
	n->output = names(outputs, &n->n_output);
	return n;
}

AttributeProto *attribute(NodeProto *n, const char *name)
{
	AttributeProto *a = NEW(arena, AttributeProto);
	attribute_proto__init(a);
	a->name = (char *)name;
	AttributeProto **all = NEWS(arena, AttributeProto *, n->n_attribute + 1);
	if (n->n_attribute)
		memcpy(all, n->attribute, sizeof *all * n->n_attribute);
	all[n->n_attribute++] = a;
	n->attribute = all;
	return a;
}

TensorProto *tensor(const char *name, int type, int rank, const int64_t *dims)
{
	TensorProto *t = NEW(arena, TensorProto);
	tensor_proto__init(t);
	t->name = (char *)name;
	t->data_type = type;
	t->dims = take_copy(arena, dims, sizeof *dims * (size_t)rank);
	t->n_dims = (size_t)rank;
	return t;
}

TensorProto *raw(TensorProto *t, const void *bytes, size_t count)
{
	t->raw_data.data = take_copy(arena, bytes, count);
	t->raw_data.len = count;
	return t;
}

TensorProto *floats(const char *name, int64_t n, const float *x)
{
	return raw(tensor(name, 1, 1, &n), x, sizeof *x * (size_t)n);
}

ValueInfoProto *value(const char *name, int type, const char *dims)
{
	ValueInfoProto *v = NEW(arena, ValueInfoProto);
	value_info_proto__init(v);
	v->name = (char *)name;
	v->type = NEW(arena, TypeProto);
	type_proto__init(v->type);
	TensorType *t = v->type->tensor_type = NEW(arena, TensorType);
	tensor_type__init(t);
	t->elem_type = type;
	if (!strcmp(dims, "?"))
		return v;
	t->shape = NEW(arena, TensorShapeProto);
	tensor_shape_proto__init(t->shape);
	char **all = names(dims, &t->shape->n_dim);
	t->shape->dim = NEWS(arena, Dimension *, t->shape->n_dim + 1);
	for (size_t a = 0; a < t->shape->n_dim; a++) {
		Dimension *d = t->shape->dim[a] = NEW(arena, Dimension);
		dimension__init(d);
		bool number = strspn(all[a], "0123456789") > 0;
		d->value_case = number ? DIMENSION__VALUE_DIM_VALUE : DIMENSION__VALUE_DIM_PARAM;
		if (number)
			d->dim_value = atoi(all[a]);
		else
			d->dim_param = all[a];
	}
	return v;
}

Build *build(int64_t opset)
{
	Build *b = NEW(arena, Build);
	model_proto__init(&b->model);
	graph_proto__init(&b->graph);
	operator_set_id_proto__init(&b->opset);
	b->model.ir_version = 8;
	b->model.producer_name = "pytorch";
	b->model.graph = &b->graph;
	b->opset.version = opset;
	b->opsets[0] = &b->opset;
	b->model.opset_import = b->opsets;
	b->model.n_opset_import = 1;
	return b;
}

NodeProto *add_to(Build *b, NodeProto *n)
{
	PUSH(arena, b->nodes, n);
	return n;
}

size_t pack(Build *b, uint8_t **bytes)
{
	GraphProto *g = &b->graph;
	g->node = b->nodes.at;
	g->n_node = (size_t)b->nodes.count;
	g->initializer = b->tensors.at;
	g->n_initializer = (size_t)b->tensors.count;
	g->input = b->inputs.at;
	g->n_input = (size_t)b->inputs.count;
	g->output = b->outputs.at;
	g->n_output = (size_t)b->outputs.count;
	*bytes = take(arena, model_proto__get_packed_size(&b->model) + 1);
	return model_proto__pack(&b->model, *bytes);
}

Model *read_packed(Build *b, const ReadOptions *options)
{
	uint8_t *bytes;
	size_t size = pack(b, &bytes);
	int file = memfd_create("model", 0);
	if (file < 0 || write(file, bytes, size) != (ssize_t)size)
		fail_status(STATUS_MACHINE, "model", "no memory for a file");
	Model *m = read_model(arena, format(arena, "/proc/self/fd/%d", file), options);
	close(file);
	return m;
}
