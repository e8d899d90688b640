// onnx.h: declares how to read a model file as a Graph and write trained weights into a copy of it.
#ifndef ONNX_H
#define ONNX_H
#include "ir.h"

typedef struct Bind { // the size of a symbolic dimension
	const char *name;
	int64_t size;
} Bind;

typedef struct Known {    // an input's value, if the caller has it
	const char *name; // element k of a sequence: NAME#k
	Elem type;
	Shape shape;
	const void *bytes;
} Known;

typedef enum Statistics { // that BatchNormalization takes
	BN_FILE,          // by the file's mode
	BN_BATCH,         // of the batch, if running ones can be updated
	BN_RUNNING,       // the running ones, as constants
} Statistics;

typedef enum Precision { // that floats are computed in
	PRECISION_F32,
	PRECISION_BF16, // f32, but operands of products and what flows between kernels are rounded
	PRECISION_F16,
	PRECISION_TF32, // f32, but products read 11 digits of their operands
	PRECISION_F64,
	PRECISION_FILE, // f64 if the file computes doubles from data or weights, else f32
} Precision;

typedef struct Selection { // initializers to train or to freeze
	const char *pattern;
	bool train;
} Selection;

typedef struct ReadOptions {
	int nbind;
	const Bind *bind;
	// Numbers for integer inputs of one element, which become constants, unless a dimension has
	// the name. Such an input has no slot in the graph.
	int nvalue;
	const Bind *value;
	int nselect; // in order; the last one that matches wins
	const Selection *select;
	int ndetach; // patterns: no gradient passes the values whose names match
	const char *const *detach;
	Statistics statistics;
	bool training; // Dropout is active, whatever its mode in the file, and running statistics
	               // are updated; false: neither (eval, run, grad)
	bool loss;     // with the loss that a file's training information holds (read_model)
	bool separate; // every initializer is trained by itself (amosc grad): copies of a tied
	               // parameter are not tied again, computed tables are not frozen
	// Values of inputs (amosc run): they bind dimensions, give the lengths of sequences and the
	// optional inputs that are present, and replace inputs that an operator needs as constants.
	// Such an input has no slot in the graph.
	int nknown;
	const Known *known;
	double loss_scale; // of Graph
	Precision precision;
	bool loops; // short loops and constant ones stay loops too
	bool list;  // only inputs, outputs and operators as the file declares them: no graph, and
	            // no errors in it
} ReadOptions;

typedef struct Dim {
	int64_t size;     // -1: symbolic
	const char *name; // of a symbolic dimension; "" if the file gives none
} Dim;
bool is_formula(const char *name); // true if a dimension is computed from others

typedef struct Input { // as the file declares it
	const char *name;
	Elem type; // of elements; those of 4 and 8 bits travel as f32, i8 or u8
	int onnx;  // the same as a TensorProto.DataType
	int rank;  // -1: not declared
	Dim dim[RANK];
	bool sequence, optional;
	bool open; // the file leaves the size of axis 0 open
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
	Graph *graph; // NULL if only listed
	int64_t ir_version, opset;
	const char *producer;
	VEC(Input) inputs;
	VEC(Input) outputs;
	OpCounts ops;
	// Decisions that the user should know: ties, splits, folded weights, exporters' bugs.
	VEC(const char *) notes;
	VEC(const char *) doubts; // those to warn of before training: gradients may be wrong
	VEC(Untrained) untrained; // the largest first; neither scalars nor statistics
	int64_t weights;          // elements of all float initializers except scalars
	struct File *file;        // the bytes, for write-back
	const char *doubles;      // where the file first computes in double; NULL: nowhere
} Model;

typedef VEC(Known) KnownList;

// Reads and lowers a model. Fails with a list of all errors. path "-": standard input.
Model *read_model(Arena *, const char *path, const ReadOptions *);
// The same in two steps: a parsed file can be read again with other options.
struct File *parse_model(Arena *, const char *path, bool loss);
Model *read_parsed(Arena *, struct File *, const ReadOptions *);
// Returns the errors of the last reading for a graph.
const Problems *problems_of(const struct File *);
// Describes an element of a tensor of doubles that is infinite or zero in the f32 of the graph;
// NULL if there is none.
const char *beyond_f32(const Model *);
void sort_untrained(Model *); // the largest first
// Returns a hash of the file's bytes and the initial values of its slots, wherever they are stored.
uint64_t model_hash(const Model *);
// Returns a template of the file, whose slots are those of the graph. Bytes lie in the file.
// Dropout and BatchNormalization are written for inference, unless `keep_training`. All bytes but
// those of weights are kept.
const struct amos_template *model_template(const Model *, Arena *, bool keep_training);
// Writes the file with trained weights. `bytes(context, slot)` returns the slot's values in its
// type, or NULL to keep the old ones. If tensors lie in other files, all of them go to the file
// PATH.data or, if it exists, PATH.2.data and so on.
void write_model(const Model *, const char *path, bool keep_training,
                 const void *(*bytes)(void *, int slot), void *context);
typedef struct SlotHome {
	const char *initializer;
	const char *view; // of the slot in it, as docs/eta.md lists; NULL: itself
} SlotHome;
// Lists the initializers that hold a slot's values, each once, the slot's own first. Returns their
// number.
int slot_homes(const Graph *, Arena *, int slot, SlotHome **);
// Sums the slots' gradients in the shapes of their initializers, for amosc grad; calls `each` once
// per initializer. `grad(context, slot)` returns the slot's gradient, or NULL.
void each_initializer(const Model *, Arena *, const double *(*grad)(void *, int slot),
                      void (*each)(void *, const char *name, Shape, const double *), void *context);

typedef struct OpInfo { // one row of ops.def
	const char *name, *domain;
	int since;
	const char *types, *differentiable, *gradient; // see ops.def
	const char *note;
	bool forward; // lowered at all
} OpInfo;
const OpInfo *op_table(int *count);
// Returns a few lines: how many differentiable operators have a gradient, here and in other
// systems.
const char *gradient_totals(Arena *);

#endif
