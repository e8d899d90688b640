// case.h: declares readers of the ONNX project's backend tests.
// A test is a directory with model.onnx and, in test_data_set_N, input_K.pb and output_K.pb.
#ifndef CASE_H
#define CASE_H
#include "onnx.h"

typedef VEC(const char *) Folders;

// A line of backend.txt: a test that is known to disagree (a glob, matched with the path if it has
// a slash), and why. Reasons that begin with "in double: " apply to the evaluator only.
typedef struct Excuse {
	const char *name, *reason;
} Excuse;
typedef VEC(Excuse) Excuses;

Excuses case_excuses(Arena *, const char *path);
const Excuse *case_excuse(const Excuses *, const char *folder,
                          bool in_double); // NULL: the test must agree

// Returns the test directories among `arg`, each of which is one or contains some.
Folders case_folders(Arena *, int count, char **arg);
Model *case_list(Arena *, const char *path); // lists the inputs, outputs and operators of a model
// Returns the operator under test: the model's first; for an expanded operator, that operator.
const char *case_operator(Arena *, const char *folder);
// Returns the file of value k in a data directory; `kind` is "input" or "output". NULL: none.
const char *case_value(Arena *, const char *set, const char *kind, int k);
KnownList case_inputs(Arena *, const Model *listed, const char *set);
// value.c: reads a file that holds one value, as `as` is declared, in the types that graphs compute
// in. Returns no tensor if it is absent, one, or the elements of a sequence.
KnownList read_value(Arena *, const char *path, const Input *as);
// Returns the value of a slot: an input's value, or the initial contents.
Array case_slot(Arena *, const Slot *, const KnownList *);

#endif
