// case.h: one of the ONNX project's operator tests: a folder with model.onnx and
// test_data_set_0/input_N.pb. Gives the model as amosc reads it, and its inputs.
#ifndef CASE_H
#define CASE_H
#include "onnx.h"

typedef struct Case {
	const char *folder;
	const struct ModelProto *proto;
	struct TensorProto **input; // by position in the graph; NULL: there is none, or no tensor
} Case;

Case *open_case(Arena *, const char *folder);
// The operator that it tests: the model's only one; of an operator's expansion that operator.
const char *case_operator(Arena *, const Case *);
// The model; `settle`: inputs that are made constants, by position in the graph.
Model *read_case(Arena *, const Case *, const bool *settle);
// Values of the input that a slot stands for; of other slots what they begin as.
Array case_slot(Arena *, const Case *, const Slot *);

#endif
