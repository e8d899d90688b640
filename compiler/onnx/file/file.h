// file.h: declares what the files of this directory share: bytes, tensors, nodes and initializers.
// They know what a file contains, but not what its operators mean.
#ifndef FILE_H
#define FILE_H
#include "onnx.h"
#include "onnx.pb-c.h"

// ---- tensor.c: bytes --------------------------------------------------------------------

typedef struct Bytes {
	const uint8_t *at;
	size_t count;
} Bytes;

typedef struct File {
	Arena *arena;
	const char *path;
	const char *folder;      // of the path, with its slash; "": the working directory
	const char *real_folder; // of the file, if links led to it; NULL: not known
	Bytes bytes;
	ModelProto *proto;
	Table *outside;       // files of external data, as the model names them -> Bytes
	OpCounts ops;         // empty until it is read
	Problems problems;    // of the last reading for a graph
	Table *names;         // names.c: of the main graph -> Named *
	Table *sizes;         // input_dims.c; NULL until it is read
	Table *trained;       // names of the weights that the file trains; NULL: unknown
	const char *loss;     // the output that it minimizes; NULL: unknown
	const char *training; // a note for the user about it; NULL: none
	const char *beyond;   // describes a double that f32 cannot hold; NULL: none
} File;

File *open_file(Arena *, const char *path); // "-": standard input, a regular file
// Returns the bytes of the file `name` in the directory of another file. Fails if the path leaves
// it.
Bytes named_bytes(const File *, const char *where, const char *name);
// Returns the stored bytes of a tensor that lies in another file.
Bytes outside_tensor(File *, const char *where, const TensorProto *);
// Returns the type in which a graph computes values that a file declares as `onnx` (a
// TensorProto.DataType): floats f32, Booleans b8, 32-bit integers i32, all other integers i64; -1
// if there is none.
int working_type(int onnx);
// Returns the type of constants and weights: the working type, but f64 for the doubles of a graph
// that computes in double.
Elem number_type(const Graph *, int onnx);
enum { TEXT = 8, DOUBLE = 11 }; // TensorProto.DataTypes
int declared_type(int onnx);    // the row of types.def in which a value travels, or -1
// "element type 8 (text), which amosc does not compute with"
const char *type_trouble(Arena *, int onnx);
extern const char other_type[], fewer_axes[]; // help for such a type, for more than RANK axes
#define EXPORT_AGAIN "export the model again" // help for a file that contradicts itself
typedef enum Special { F_ieee, F_ones, F_zero, F_none, F_power, F_signed, F_unsigned } Special;
typedef struct Format { // a row of formats.def
	const char *name;
	int onnx;
	Elem travels;
	int bits, exponent, mantissa, bias;
	Special special;
} Format;
// Returns a tensor's shape. Fails if it is negative or too large.
Shape tensor_shape(const char *where, const TensorProto *);
// Returns its elements as `as`, its working type or f64 for doubles, row major: in the mapped file,
// at any address, if they are stored like that, else converted into `arena`.
const void *tensor_data(File *, Arena *, const char *where, const TensorProto *, Elem as);

// ---- names.c: what is found by name ---------------------------------------------------

typedef struct Reading { // of a value by a node
	const NodeProto *node;
	struct Reading *next;
} Reading;

typedef struct Named {               // what a name of the main graph refers to, or NULL
	const TensorProto *tensor;   // an initializer
	const ValueInfoProto *input; // of the graph
	ValueInfoProto *info;        // of its value_info
	const NodeProto *maker;      // the node that computes it
	Reading *first;              // the nodes that read it, in order
	const NodeProto *last;       // the last of them
} Named;

void list_names(File *);                                // again after the graph changed
const Named *find_name(const File *, const char *name); // never NULL
const char *plain_domain(const char *);                 // ai.onnx: ""
// Returns the versions of the imported operator sets by domain, the first one of each.
Table *list_opsets(Arena *, size_t n, OperatorSetIdProto *const *);
int64_t version_of(const Table *opsets, const char *domain); // 0: none
const AttributeProto *find_attribute(size_t n, AttributeProto *const *, const char *name); // NULL

// ---- toposort.c -----------------------------------------------------------------------

void order_nodes(Arena *, ModelProto *); // each after those it reads from
// Visits the inputs of a node and of all nodes in its graphs, and the outputs of these graphs.
void visit_operands(const NodeProto *, void visit(const char *name, void *), void *context);

// ---- training.c, ort_checkpoint.c: files that bring their own training --------------------

// Makes a plain graph of such a file, up to the loss if `loss`.
void read_training(File *, bool loss);
typedef struct Checkpoint { // of ONNX Runtime's training
	Table *tensors;     // name -> TensorProto *
	Table *trained;     // names of those that are trained
} Checkpoint;
Checkpoint find_checkpoint(const File *model); // in the model's folder; empty: none

// ---- format.c: element types of few bits ----------------------------------------------

const Format *find_format(int onnx); // NULL: a type that arithmetic runs in, or none
bool is_integral(const Format *);
double largest_of(const Format *); // the largest finite number of a float format
double decode(const Format *, const uint8_t *bytes, int64_t i); // element i

// ---- wire.c: protocol buffers field by field ------------------------------------------

enum { W_varint = 0, W_fixed64 = 1, W_bytes = 2, W_fixed32 = 5 };

typedef struct Field {
	int number, wire;
	Bytes all, body; // with its tag (and length); without
} Field;

bool next_field(const char *where, Bytes *at, Field *); // false at the end; `at` moves after it
// Returns the field of a message of type `kind` if it holds messages, else NULL.
const ProtobufCFieldDescriptor *message_field(const Field *,
                                              const ProtobufCMessageDescriptor *kind);
// Returns the number of nodes in all graphs. Fails if messages nest too deep to be unpacked.
size_t check_nesting(const char *where, Bytes model);
// Returns the message of type `kind` in `at`. Its fields of type bytes lie there, all else in the
// arena. Fails if it does not parse.
void *unpack(Arena *, const char *where, const ProtobufCMessageDescriptor *kind, Bytes at);

// ---- initializers and what parameters lie in them -----------------------------------------

typedef enum Trait { // of the elements of a weight
	T_hides,     // some hide scores from a softmax
	T_two,       // at most two different values
	T_sines,     // pairs of sines and cosines
	T_regular,   // straight lines along an axis
	T_fourier,   // a Fourier transform
	T_bank,      // nothing negative
	T_basis,     // polynomials of one line
	T_grid,      // straight lines or series along an axis, none constant
	T_waves,     // waves along an axis
	T_mask,      // zeros and ones, both
	T_schedule,  // a vector that rises or falls
	T_few,       // two to five different values
	T_mirror,    // the same from both ends of an axis, up to sign; or a symmetric matrix
	T_powers,    // roots of powers of two, all different
	TRAITS,
} Trait;

typedef struct Repeat { // of a weight's slices
	int64_t times;  // along adjacent axes; 0: not looked for, 1: none
	int64_t inner;  // elements of a slice after these axes
	Shape shape;    // of the slices, with 1 along these axes
} Repeat;

typedef struct Weight { // an initializer
	const TensorProto *proto;
	const AttributeProto *attribute; // that holds the elements; NULL: an initializer does
	const char *name;
	Elem type; // as the graph reads it
	Shape shape;
	const void *data;          // NULL until read
	const char *alias;         // the Identity's result that it is read through
	struct Weight *origin;     // itself, or the one that it is an alias of
	int uses;                  // operands of the main graph that name it
	bool inner;                // of the graph of a loop or branch
	bool trained;              // a parameter, or statistics, of some use lies in it
	const char *why;           // a use of it is not trained; NULL: none
	bool table;                // a Gather reads it
	signed char found[TRAITS]; // 1: it has the trait, -1: it has not, 0: not looked for
	Repeat repeat;
	int slot; // of its first use as a parameter; -1: none yet
	Ref ref;  // as a constant
} Weight;

typedef VEC(Weight *) WeightList;

// What a weight holds: a parameter, its transpose, 1 - parameter, or repetitions by Weight.repeat.
typedef enum Copy { COPY_SAME, COPY_TRANSPOSED, COPY_COMPLEMENT, COPY_REPEATED } Copy;

// A use of a slot in the file, in a list of all of them, newest first.
typedef struct View {
	Weight *weight; // NULL: in no initializer, a bias that was left out
	Copy copy;
	const char *alias;     // read through this Identity
	const NodeProto *node; // of the main graph, or NULL
	int operand;
	struct View *next, *first; // the one before, and the first of its slot
} View;

#endif
