// case.h: the ONNX project's backend tests: folders with model.onnx, and in test_data_set_N
// input_K.pb and output_K.pb.
#ifndef CASE_H
#define CASE_H
#include "onnx.h"

typedef VEC(const char *) Folders;

// A line of backend.txt: a test (a pattern; of its path, where it has a slash) that does not agree,
// and why. One that begins "in double: " is of the evaluator alone.
typedef struct Excuse {
	const char *name, *reason;
} Excuse;
typedef VEC(Excuse) Excuses;

Excuses case_excuses(Arena *, const char *path);
const Excuse *case_excuse(const Excuses *, const char *folder,
                          bool in_double); // NULL: it must agree

// The folders of tests among `arg`, each of which is one or holds some.
Folders case_folders(Arena *, int count, char **arg);
Model *case_list(Arena *, const char *path); // inputs, outputs and operators of a model
// The operator that a test is about: the model's first; of an operator's expansion that operator.
const char *case_operator(Arena *, const char *folder);
// The file of value k in a folder of data, "input" or "output"; NULL when there is none.
const char *case_value(Arena *, const char *set, const char *kind, int k);
KnownList case_inputs(Arena *, const Model *listed, const char *set);
// What a slot holds: an input's value, or what it begins as.
Array case_slot(Arena *, const Slot *, const KnownList *);

#endif
