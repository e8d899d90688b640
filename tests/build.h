// build.h: declares builders of ONNX models, field by field.
// Everything is allocated in `arena`, which the program sets.
#ifndef BUILD_H
#define BUILD_H
#include "onnx.h"
#include "onnx.pb-c.h"

extern Arena *arena;

typedef struct Build { // a model under construction
	ModelProto model;
	GraphProto graph;
	OperatorSetIdProto opset;
	OperatorSetIdProto *opsets[1];
	VEC(NodeProto *) nodes;
	VEC(TensorProto *) tensors;
	VEC(ValueInfoProto *) inputs, outputs;
} Build;

Build *build(int64_t opset);
NodeProto *add_to(Build *, NodeProto *);
// Splits names at commas; an empty name is an omitted input.
char **names(const char *list, size_t *n);
NodeProto *node(const char *op, const char *inputs, const char *outputs);
AttributeProto *attribute(NodeProto *, const char *name);
TensorProto *tensor(const char *name, int type, int rank, const int64_t *dims);
TensorProto *raw(TensorProto *, const void *bytes, size_t count);
TensorProto *floats(const char *name, int64_t n, const float *x);
ValueInfoProto *value(const char *name, int type,
                      const char *dims); // dims: sizes or symbols; ?: unknown
size_t pack(Build *, uint8_t **bytes);
Model *read_packed(Build *, const ReadOptions *);

#endif
