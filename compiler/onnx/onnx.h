// onnx.h: file -> Graph, and trained numbers back into the very same bytes.
// Takes ir.h. Keeps: every byte of the file that is not a trained tensor.
#ifndef ONNX_H
#define ONNX_H
#include "ir.h"

typedef struct Bind { // a number for a symbolic dimension
	const char *name;
	int64_t size;
} Bind;

typedef struct Known {    // an input's value, where whoever reads the file has it
	const char *name; // element k of a sequence: NAME#k
	Elem type;
	Shape shape;
	const void *bytes;
} Known;

typedef enum Statistics { // that BatchNormalization takes
	BN_FILE,          // as the file says
	BN_BATCH,         // of the batch, wherever running ones can be gathered
	BN_RUNNING,       // those gathered, as constants
} Statistics;

typedef enum Precision { // that floats are computed in
	PRECISION_F32,
	PRECISION_F64,
	PRECISION_FILE, // f64 where the file computes doubles from data or weights, else f32
} Precision;

typedef struct ReadOptions {
	int nbind;
	const Bind *bind;
	int nfreeze; // patterns in order, '!' in front: train. The later one wins
	const char *const *freeze;
	Statistics statistics;
	bool training; // Dropout draws, whatever the file says of its mode, and running statistics
	               // are updated; false: neither (eval, run, grad)
	bool loss;     // with the loss that a file's training information holds (read_model)
	bool separate; // every initializer for itself, and trained whatever it is (amosc grad):
	               // copies of a tied parameter are not tied again, tables that the exporter
	               // computed are not frozen
	// Values of inputs (amosc run): they bind dimensions, tell how long sequences are and which
	// optional values are there, and stand in where an operator needs a number when the file is
	// read. An input that had to stand in is no slot of the graph.
	int nknown;
	const Known *known;
	Precision precision;
	bool loops; // short loops and constant ones stay loops too
	bool list;  // inputs, outputs and operators only, as the file declares them: no graph, no
	            // failure over what is in it
} ReadOptions;

typedef struct Dim {
	int64_t size;     // -1: symbolic
	const char *name; // of a symbolic dimension; "" when the file gives none
} Dim;
bool is_formula(const char *name); // of a dimension: is it computed from others?

typedef struct Input { // as the file declares it
	const char *name;
	Elem type; // of elements; what 4 and 8 bits hold travels as f32, i8 or u8
	int onnx;  // the same as a TensorProto.DataType
	int rank;  // -1: not declared
	Dim dim[RANK];
	bool sequence, optional;
	bool used;
} Input;

typedef struct OpCount {
	const char *domain, *op;
	int count;
	const char *trouble; // why it cannot be trained; NULL: it can
} OpCount;

typedef VEC(OpCount) OpCounts;

typedef struct Untrained { // a weight that training leaves as it is
	const char *name, *why;
	Elem type;
	Shape shape;
} Untrained;

typedef struct Problem {   // of a model that cannot be read
	const char *where; // node 'X' (Op), or NULL
	const char *why;
	const char *help; // NULL: none
} Problem;

typedef VEC(Problem) Problems;

typedef struct Model {
	Arena *arena;
	const char *path;
	Graph *graph; // NULL where only listed
	int64_t ir_version, opset;
	const char *producer;
	VEC(Input) inputs;
	VEC(Input) outputs;
	OpCounts ops;
	VEC(const char *)
	notes; // decisions a person should know: ties, splits, folded, exporter bugs
	VEC(Untrained) untrained; // the largest first; neither single numbers nor statistics
	int64_t weights;          // elements of all initializers of floats but single numbers
	struct File *file;        // the bytes, for write-back
	const char *doubles;      // where the file first computes in double; NULL: nowhere
} Model;

typedef VEC(Known) KnownList;

// Reads and lowers. Fails with every unsupported thing listed at once. path "-": standard input.
Model *read_model(Arena *, const char *path, const ReadOptions *);
// The same in two steps: what is parsed once can be read with other options.
struct File *parse_model(Arena *, const char *path, bool loss);
Model *read_parsed(Arena *, struct File *, const ReadOptions *);
// What the last reading for a graph reported together; empty: nothing.
const Problems *problems_of(const struct File *);
// An element of a tensor of doubles, as text, which the graph computes as infinite or zero, for it
// computes in f32. NULL: there is none.
const char *beyond_f32(const Model *);
void sort_untrained(Model *); // the largest first
// Of the file's bytes and the first values of its slots, wherever these are stored.
uint64_t model_hash(const Model *);
// The file with trained numbers in it. `bytes(context, slot)` answers the slot's values in its
// type, or NULL to keep what is there. If tensors lie in other files, all of them go to the
// file PATH.data or, where there is one, to PATH.2.data and so on. Dropout and BatchNormalization
// are written for inference, unless `keep_training`. All other bytes are kept.
void write_model(const Model *, const char *path, bool keep_training,
                 const void *(*bytes)(void *, int slot), void *context);
typedef struct SlotHome { // homes.c
	const char *initializer;
	const char *view; // how the slot lies in it, as docs/eta.md lists; NULL: as it is
} SlotHome;
// The initializers that hold a slot's numbers, each once, the slot's own first; 0: none does.
int slot_homes(const Graph *, Arena *, int slot, SlotHome **);
// The slots' gradients summed into their initializers' own shapes, for amosc grad: calls `each`
// once an initializer. `grad(context, slot)`: the slot's gradient, or NULL.
void each_initializer(const Model *, Arena *, const double *(*grad)(void *, int slot),
                      void (*each)(void *, const char *name, Shape, const double *), void *context);

typedef struct OpInfo { // one row of ops.def
	const char *name, *domain;
	int since;
	const char *types, *differentiable, *gradient; // as the legend of ops.def says
	const char *note;
	bool forward; // lowered at all
} OpInfo;
const OpInfo *op_table(int *count);
// How many of the differentiable operators have a gradient, beside other systems: a few lines.
const char *gradient_totals(Arena *);

#endif
