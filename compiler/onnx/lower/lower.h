// lower.h: declares what the files of lower/ and ops/ share: the values of a graph by name, and the
// node being lowered.
#ifndef LOWER_H
#define LOWER_H
#include "file.h"

// ---- what a file is read with: names and values ---------------------------------------

typedef struct List { // a sequence: known at compile time
	int count;
	Ref *at;
} List;

typedef struct Value {  // what a name stands for
	Ref ref;        // a tensor
	Weight *weight; // or an initializer: a slot or a constant where it is used
	List *list;     // or a sequence
	int onnx;    // its element type in the file (a TensorProto.DataType); 0: its working type
	             // tells
	bool absent; // an optional operand that is not there
	bool bad;    // could not be lowered: complained of already
} Value;

typedef struct Check {    // of the indices of a node
	const char *text; // the message where one is out of range
	Ref index;        // such an index, i64, rank 0; 0 where none is
} Check;

typedef struct Checks { // a VEC
	Check *at;
	int count, room;
	Table *by_text; // to a position in it + 1; NULL: it is empty
} Checks;

typedef struct LoopScope { // the body of a loop being lowered: a graph inside of another
	struct LoopScope *outer;
	Graph *body, *around;
	Ref turn;         // the number of the trip, i64; 0: the body does not know it
	Table *known;     // a value around it -> its slot in the body
	VEC(Ref) operand; // of the loop: by slot, values around it
	Checks checks;    // of its body
	Ref active;       // of the reader, around it
} LoopScope;

typedef struct NameScope { // the names of one graph, inside those of another
	struct NameScope *outer;
	Table *names;              // to the Value, a pointer
	const struct Call *caller; // of a function's body: the node that calls it
	const FunctionProto *function;
	OperatorSetIdProto *const *opsets;
	size_t nopsets;
	int depth;
	LoopScope *nest; // whose values it names; NULL: the model's graph
} NameScope;

typedef struct Reader {
	Arena *arena;
	File *file;
	Model *model;
	Graph *g;        // where values are put now
	LoopScope *nest; // of `g`; NULL: of no loop
	Ref active;      // is the branch of an If taken that is being lowered, b8; 0: certainly
	Checks checks;   // outside of loops
	const ReadOptions *options;
	const ModelProto *proto;
	Table *functions; // "domain:name:overload" to a position + 1
	WeightList weights;
	Table *outputs;           // names of those that are declared
	Table *known;             // names of the caller's values to their positions + 1
	Table *twins;             // parameters.c: how a copy of them begins -> WeightList
	Table *noted;             // texts of Model.notes and problems
	Problems problems;        // to be reported together
	VEC(const char *) unread; // inputs whose declarations are among these
	int sites;                // random draws so far
	bool *stands;             // by known input: its value stands in for it
	bool *wide;               // the graph computes in double
	bool again;               // more of them do, or it does, when the model is read again
	const char *help;         // of the failure under way, where it has one of its own
	bool training_file;       // exported in training mode
	bool text;                // outputs that are text were left out: so is what they are of
	// param_names.c: a parameter or buffer of the traced program, by its placeholder, by name
	Table *placeholders, *targets;
	bool signature; // the file lists these
	bool *met;      // by pattern of options->freeze: it met an initializer
} Reader;

typedef struct Call { // a node being lowered
	Reader *r;
	Graph *g;
	const NodeProto *node;
	NameScope *space;
	int64_t opset; // version of the operator's domain
	int variant;   // what ops.def gives beside the function
	int onnx;      // to be filled where the first result's type tells less: Value.onnx
	int nin, nout;
	Value *arg;   // operands
	Ref *in;      // operands as tensors; 0: absent, or a sequence
	Ref *out;     // results, to be filled
	Value *value; // or as something else than a tensor: an initializer passed on, a sequence
} Call;

// ---- read.c ---------------------------------------------------------------------------

typedef void Attempt(Reader *, void *what);
// Runs a part of the reading. What fails in it is told with all else that is in the way, and with a
// cure: of a node, which is told of where it does not say so itself, the failure's own, or the
// usual one; of other parts (NULL) as the text has it.
bool attempt(Reader *, const NodeProto *, Attempt *, void *what);
// Adds a problem to be reported with all others: at a node or NULL; its help after HELP.
void add_error(Reader *, const char *where, const char *text);
const char *problem_text(Arena *, const Problem *); // as it is printed
void note(Reader *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
// `what` is computed in double: the whole graph is, where the options leave it to the file.
void meet_double(Reader *, const char *what);
// Is it declared as of another kind: floats, integers or truth values? Quantized numbers, of less
// than 4 bytes, are computed in floats.
bool is_other_type(Elem declared, Elem type);

// ---- input.c --------------------------------------------------------------------------

void list_inputs(Reader *); // and outputs, as the file declares them
// The dimensions that no number is known for, in one text; NULL when there is none. Binds the
// others.
const char *bind_dimensions(Reader *);
void add_input(Reader *, NameScope *top, const Input *);
// Records failures where a value of the main graph has another type than is declared.
void check_infos(Reader *, NameScope *top);
void mark_used(Reader *);                                  // notes inputs that nothing uses
const Known *find_known(const Reader *, const char *name); // NULL
void stand_for(Reader *, Ref x); // the values of inputs that x comes from stand in for them

// ---- input_dims.c --------------------------------------------------------------------------

// Of an axis that the file leaves open, `name` its name or "": by the caller's numbers, or what
// follows from them and from weights; -1: not known. No input: of the name alone.
int64_t open_size(const Reader *, const char *input, int axis, const char *name);
void list_sizes(Reader *); // that weights tell, for open_size

// ---- lower.c --------------------------------------------------------------------------

const char *node_where(Arena *, const NodeProto *); // for messages
NameScope *new_space(Reader *, NameScope *outer);
void bind_name(Reader *, NameScope *, const char *name, Value);
Value look_up(Reader *, const NameScope *, const char *name); // fails when there is none
void bind_weights(Reader *, NameScope *, const GraphProto *);
void list_functions(Reader *);
const FunctionProto *find_function(const Reader *, const NodeProto *); // NULL: an operator
void lower_nodes(Reader *, NameScope *, size_t n, NodeProto *const *);
// The graph of an If, Loop or Scan, lowered in a space inside the caller's with its inputs bound to
// `in`.
void lower_body(Call *, const GraphProto *, int nin, const Value *in, int nout, Value *out);
// Without sizes no node can be lowered, but an operator that none would help is told of.
Attempt tell_unsupported; // of a NodeProto

// ---- ops/loop.c: bodies of loops ------------------------------------------------------

void open_nest(Reader *, LoopScope *); // from now on values are put into its body
void close_nest(Reader *, LoopScope *);
// A slot of the open nest's body, shaped as `x`, a value around it, or (entry) as one of its
// entries.
Ref nest_slot(Reader *, LoopScope *, Ref x, bool entry);
// A slot with the lengths of what it stands for, once all that is carried or scanned has one.
Ref sized_slot(Reader *, LoopScope *, Ref slot);
// A value of nest `home` where values are put now, in a body inside of it.
Ref bring_in(Reader *, Ref, LoopScope *home);
// Leaves all nests; enter_nests goes back, and brings `x` in.
LoopScope *leave_nests(Reader *);
Ref enter_nests(Reader *, LoopScope *, Ref x);
// The loop over a closed nest, whose operands come after `limit`; trips, carried, scanned, reverse
// and until are given. part: its results. Answers how many trips it makes.
Ref put_loop_info(Reader *, LoopInfo *, const LoopScope *, Ref limit, Ref *part);
// Values one after the other along a new axis.
Ref put_stack(Call *, int n, const Ref *, int axis);

// ---- parameters.c: which initializers are parameters ---------------------------------------

void read_roles(Reader *, const NameScope *top); // gathers what the decisions need
void note_roles(Reader *);                       // says what was decided
void list_untrained(Reader *);
// The weight as node `c`'s operand `k` sees it: a parameter, a frozen table, or a constant.
Ref use_weight(Reader *, Weight *, const Call *c, int k);
Ref weight_constant(Reader *, Weight *); // its numbers, whatever its role
// What Identity of an initializer stands for.
Value alias_weight(Reader *, Weight *, const char *name);
// A bias of zeros that the exporter left out of `c`, made again; 0 when there was none.
Ref missing_bias(const Call *c, int64_t n);

double weight_number(Reader *, Weight *, int64_t i);
bool one_value(Reader *, Weight *); // the same everywhere
int wide_axes(const Shape *);       // how many are longer than 1

// ---- roles.c: roles.def ----------------------------------------------------------------

typedef enum Role { R_none, R_weight, R_bias, R_scalar, R_statistic } Role;
typedef enum OpSet {
#define INPUT(...)
#define SET(name, ops) OPS_##name,
#include "roles.def"
#undef INPUT
#undef SET
} OpSet;
Role role_of(const NodeProto *, int input); // R_none: of no node (NULL) or no role
bool is_one_of(OpSet, const NodeProto *);   // NULL: no

// ---- param_names.c: what parameters are called ----------------------------------------------

typedef struct Leaves { // of a tensor that the exporter computed
	int count, parameters, buffers;
	const char *name; // the parameters' names joined by +
} Leaves;

typedef struct Use { // of a weight
	Reader *r;
	Weight *w;
	const Call *call;      // of a node of the main graph; NULL: elsewhere
	const NodeProto *node; // the same
	int operand;           // of the node
	Role role;
	Leaves leaves;    // of the weight
	const char *name; // of the parameter that it is
	const NodeProto *reader;
	int input; // the operand of `reader` that comes from it, behind moves and casts
} Use;

void read_metadata(Reader *);
Use use_of(Reader *, Weight *, const Call *, int k);    // as operand k; NULL: as an output
void name_source(Arena *, const NodeProto *, Node *to); // its module and line, if the file has them
// A property of a value of the main graph; NULL: not given.
const char *info_property(const Reader *, const char *name, const char *key);
bool is_parameter_name(const Reader *, const char *name);
bool is_opaque(const char *name);                       // made up by an exporter
const char *bias_left_out(Reader *, const NodeProto *); // its name, or NULL
double traced_smoothing(const NodeProto *); // label smoothing that did not reach the file; 0: none
bool is_fused(const NodeProto *);           // a BatchNorm was folded into it
// Are the node's results, or sums that they are terms of, scores of attention: does a softmax
// follow?
bool is_scored(const Reader *, const NodeProto *);

// ---- untrained.c: what is not trained, and why ----------------------------------------

const char *reason_not_trained(const Use *);              // NULL: it is a parameter
extern const char running_statistics[], computed_table[]; // two of the reasons
// Why a person should say whether it is one, though it is trained; NULL: they need not.
const char *reason_to_ask(const Use *);
// What the user said of it: 1 train, 0 freeze, -1 nothing. The later pattern wins.
int users_choice(const Reader *, const char *name, const char *file);
void check_choices(Reader *); // troubles about patterns of --freeze and --train that match nothing

// ---- typed.c: values of few bits ------------------------------------------------------

// x as the element type `onnx` (a TensorProto.DataType) can say it, in its working type. Floats of
// 8 and 4 bits are rounded: what is too large becomes the largest where `saturate`, else infinite
// or no number; powers of two are rounded "up", "down" or to the "nearest". Whole numbers lose
// their high bits.
Ref put_typed(const struct Call *, Ref x, int onnx, bool saturate, const char *powers);

// ---- node.c: attributes and constant operands -----------------------------------------

const AttributeProto *find_attr(const Call *,
                                const char *name); // function attributes resolved; NULL when absent
int64_t attr_int(const Call *, const char *name, int64_t otherwise);
double attr_float(const Call *, const char *name, double otherwise);
const char *attr_string(const Call *, const char *name, const char *otherwise);
const int64_t *attr_ints(const Call *, const char *name, int *n); // NULL when absent
// Operand k as integers known now; fails when it is computed from data. NULL when absent.
const int64_t *operand_ints(Call *, int k, int *n);
// Operand k where it is given, else attribute `name`: how newer and older operator sets say the
// same.
const int64_t *ints_of(Call *, int k, const char *name, int *n);
const double *operand_numbers(Call *, int k, int *n);
Ref constant_operand(Call *, int k);                   // a const value; fails otherwise
int64_t axis_of(const Call *, int64_t axis, int rank); // wrapped into [0, rank); fails outside
// `n` axes wrapped into [0, rank), in the arena; fails where one is outside or twice. NULL: 0..n-1.
const int64_t *axes_of(const Call *, const int64_t *given, int n, int rank);
// The node contradicts itself or what reaches it: no file says so that was exported as it runs.
_Noreturn void invalid_node(const Call *, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
// The node means something, but amosc does not do it; `cure`: what to do instead.
_Noreturn void unsupported_node(const Call *, const char *help, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void check_rank(const Call *, int rank); // declines more than RANK axes
// Likewise, where `x`, called `what`, would have to be known when the file is read.
_Noreturn void refuse_computed(const Call *, Ref x, const char *what);
// Declines an input whose size depends on the data, along an axis, along any, or any input: for
// operators that compute with sizes as numbers.
extern const char fixed_sizes[]; // the help
void expect_fixed_axis(const Call *, int k, int axis);
void expect_fixed(const Call *, int k);
void expect_all_fixed(const Call *);
void note_weight(Call *, int k);        // notes a matrix of constants where a weight is usual
const Val *in_val(const Call *, int k); // fails when operand k is absent
Ref operand(const Call *, int k);       // 0 where it is absent
int operand_type(const Call *, int k);  // its element type in the file, as far as it is known
int moved_type(const Call *); // the first result's: an operand's that is moved, or as c->onnx tells

// ---- schema.c: what a node may hold ---------------------------------------------------

bool is_word(const char *words, const char *text); // one of them, between spaces
bool has_schema(const NodeProto *);
char attr_letter(int type); // of an AttributeProto.AttributeType, as schema.def has it; 0: none
void check_schema(const Call *); // fails where the node is not as its operator's schema says
// Returns the kind of an operator's attribute in opset `opset`, a letter of schema.def, or 0 if it
// has no such attribute. *otherwise: its default, NULL if it has none.
char declared_attr(Arena *, const char *domain, const char *op, int64_t opset, const char *name,
                   const char **otherwise);

// ---- interval.c: what numbers can be ----------------------------------------------------

typedef struct Interval {
	double low, high;
} Interval;
Interval limits_of(Graph *, Ref); // that the numbers in a value keep
// Of integers; shaped as a. b is a single one or shaped as a.
Ref smaller_of(Graph *, Ref a, Ref b), larger_of(Graph *, Ref a, Ref b);
Ref from_end(Graph *, Ref at, Ref length); // places below 0 count from the end

// ---- bounded_size.c: sizes that are computed -----------------------------------------------

Ref put_i64(Graph *, int64_t); // i64, rank 0
// A size: a number, or at most so many and a count.
typedef struct BoundedSize {
	int64_t most;
	Ref count; // 0: exactly `most`
} BoundedSize;
BoundedSize extent_of(const Call *, Ref size, const char *what); // fails where nothing bounds it
BoundedSize size_along(Graph *, Ref, int axis);
BoundedSize extent_product(Graph *, BoundedSize, BoundedSize);
// Operand k, or where it is not given attribute `name`, each number as i64 of rank 0; NULL when
// absent. The same as sizes.
Ref *entries_of(Call *, int k, const char *name, int *n);
BoundedSize *extents_of(Call *, int k, const char *name, int *n);
Ref fixed_operand(Call *, int k); // an initializer as a constant, all else as it is
// x in n dimensions. One, -1, may be left open.
Ref reshape_to(Call *, Ref x, int n, BoundedSize *to);
// x with lengths as the extents say.
Ref put_extents(Graph *, Ref x, const BoundedSize *);
Ref in_line(Call *, Ref x); // the valid elements of x, one behind the other

// ---- axes.c: axes of values -----------------------------------------------------------

Ref merge_axes(Graph *, Ref x, int from, int to);              // axes from..to-1 become one
Ref flat(Graph *, Ref x);                                      // of rank 1
Ref drop_axes(Graph *, Ref x, int naxes, const int64_t *axes); // axes of size 1
Ref insert_axis(Graph *, Ref x, int at);                       // of size 1
Ref repeat_axis(Graph *, Ref x, int axis, int64_t times);      // a new axis, repeated
// `count` entries along an axis from `start`, `step` apart; side by side.
Ref take_steps(Graph *, Ref x, int axis, int64_t start, int64_t count, int64_t step);
Ref take_range(Graph *, Ref x, int axis, int64_t start, int64_t count);

// ---- op_table.c: ops.def says which function puts an operator into the graph -------------

typedef void Lower(Call *);
typedef struct OpRow { // of ops.def
	OpInfo info;
	Lower *lower;
	int variant;
} OpRow;
const OpRow *find_row(const char *domain, const char *op); // NULL when unknown

Lower unsupported;    // declines with the note of ops.def
Lower lower_identity; // ops/reshape.c: its operand is passed on as it is

#endif
