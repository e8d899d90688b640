// lower.h: declares the functions and types that lower/ and ops/ share.
#ifndef LOWER_H
#define LOWER_H
#include "file.h"

// ---- what a file is read with: names and values ---------------------------------------

typedef VEC(Ref) Refs;

typedef struct List { // a sequence of known length
	int count;
	Ref *at;
	Refs *all; // that it begins, with those of longer ones made from it; NULL: none
} List;

typedef struct Held { // by a Constant node
	const char *name;
	const TensorProto *tensor;
} Held;

typedef VEC(const Held *) HeldList;

typedef struct Value {    // what a name stands for
	Ref ref;          // a tensor
	Weight *weight;   // or an initializer: a slot or a constant where it is used
	List *list;       // or a sequence
	int onnx;         // its element type in the file (a TensorProto.DataType); 0: unknown
	const Held *held; // the constant that it is, or a view of
	bool absent;      // an omitted optional input
	bool bad;         // could not be lowered: reported already
} Value;

typedef struct Check {    // of the indices of a node
	const char *text; // the message if one is out of range
	Ref index;        // such an index, i64, rank 0; 0 if there is none
} Check;

typedef struct Checks { // a VEC
	Check *at;
	int count, room;
	Table *by_text; // to a position in it + 1; NULL: it is empty
} Checks;

typedef struct LoopScope { // the body of a loop being lowered
	struct LoopScope *outer;
	Graph *body, *around;
	Ref iteration;    // i64; 0: the body does not use it
	Table *known;     // a value around it -> its slot in the body
	VEC(Ref) operand; // of the loop: by slot, values around it
	Checks checks;    // of its body
	Ref active;       // Reader.active around it
} LoopScope;

typedef struct NameScope { // the names of one graph, inside those of another
	struct NameScope *outer;
	Table *names;              // to the Value, a pointer
	const struct Call *caller; // of a function's body: the node that calls it
	const FunctionProto *function;
	const Table *opsets; // domain -> version
	int depth;
	LoopScope *nest; // whose values it names; NULL: the model's graph
} NameScope;

typedef enum LeftKind { LEFT_block, LEFT_function } LeftKind;
typedef struct Left { // a value that a block of torch.no_grad() may have computed, or a function
	const char *name;
	Ref ref;
	LeftKind kind;
} Left;

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
	const Table *opsets; // domain -> version
	Table *functions;    // "domain:name:overload" -> LocalFunction *
	WeightList weights;
	Table *named; // name -> Weight *, the first of that name
	HeldList held;
	Table *outputs;     // names of those that are declared
	Table *known;       // name -> const Known *, of the caller
	Table *twins;       // parameters.c: how a copy of them begins -> WeightList
	int reshaped;       // how many of `weights` are in it by their elements alone
	Table *held_floats; // parameters.c: an attribute -> the weight that it holds
	Table *same_names;  // names of slots -> slots called NAME#2, NAME#3, ..
	Table *noted;       // texts of Model.notes and problems
	Problems problems;  // to be reported together
	int sites;          // random draws so far
	bool *stands;       // by known input: it is a constant
	bool *wide;         // the graph computes in double
	bool again;         // one of these changed: the model is read again
	bool training_file; // exported in training mode
	bool text;          // outputs that are text were left out, and what they come from
	// param_names.c: a parameter or buffer of the traced program, by its placeholder, by name
	Table *placeholders, *targets;
	VEC(const char *) parameters; // of these, by name
	Table *merged;                // module -> what was merged of it; NULL: not looked for yet
	bool signature;               // the file lists these
	bool *met;                    // by options->select: it met an initializer
	bool *met_detach;             // the same of options->detach
	Table *symbols;               // symbols.c: integers that the program computes
	Table *detached;              // a node -> its operands that are detached, a bit each
	bool blocks;                  // of no_grad() can be told from the program
	VEC(Left) left;               // what leaves them, and what functions compute
	Table *after;                 // untrained.c: names of what follows a buffer of its module
	signed char traced; // untrained.c: 1: torch.export names the nodes, -1: it does not
	Table *attributes;  // schema.c: names -> the last node that has one of that name
} Reader;

typedef struct LocalFunction { // of the file
	const FunctionProto *proto;
	const Table *opsets;
} LocalFunction;

typedef struct Call { // a node being lowered
	Reader *r;
	Graph *g;
	const NodeProto *node;
	NameScope *space;
	int64_t opset; // version of the operator's domain
	int variant;   // of the function, by ops.def
	int onnx; // Value.onnx of the first result, to be filled if the inputs do not decide it
	int nin, nout;
	Value *arg;   // inputs
	Ref *in;      // inputs as tensors; 0: absent, or a sequence
	Ref *out;     // results, to be filled
	Value *value; // results other than tensors: an initializer passed on, a sequence
} Call;

// ---- read.c ---------------------------------------------------------------------------

typedef void Attempt(Reader *, NameScope *, const void *what);
// Runs a part of the reading. Errors in it are recorded and reported together. Those of a node name
// it and, if they have no help, get the usual one; those of other parts (NULL) keep their text.
bool attempt(Reader *, const NodeProto *, Attempt *, NameScope *, const void *what);
// Records an error at a node or NULL; its help comes after HELP.
void add_error(Reader *, const char *where, const char *text);
// Records that no `what` has a name that an option's pattern matches, and names that are like it.
void add_unmatched(Reader *, const char *option, const char *pattern, const char *what, int n,
                   const char *const *names);
const char *problem_text(Arena *, const Problem *); // as it is printed
// Removes the errors after the first `count`; they are recorded again if they occur again.
void drop_problems(Reader *, int count);
void note(Reader *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void doubt(Reader *, const char *text); // notes why gradients may be wrong, for a warning
// Makes the full graph double because `what` is, if the options leave the precision to the file.
void meet_double(Reader *, const char *what);

// ---- input.c --------------------------------------------------------------------------

void list_inputs(Reader *, NameScope *top); // and outputs, as the file declares them
// Binds the dimensions. Returns a list of those of unknown size, or NULL.
const char *bind_dimensions(Reader *);
void add_input(Reader *, NameScope *top, const Input *);
// Fails if the value is certainly not of the type `declared`, a TensorProto.DataType.
void check_type(const Reader *, const char *what, const char *name, const Value *, int declared);
// Records an error for each value of the main graph whose type is not the declared one.
void check_infos(Reader *, NameScope *top);
void mark_used(Reader *);                                  // notes inputs that nothing uses
const Known *find_known(const Reader *, const char *name); // NULL
// Makes the inputs that x is computed from constants at the next reading, if their values are
// known.
void stand_for(Reader *, Ref x);

// ---- input_dims.c --------------------------------------------------------------------------

// Returns what --bind says of a dimension of that name or place, INPUT:AXIS ("": none), or NULL.
const Bind *find_bind(const Reader *, const char *place, const char *name);
// Returns the size of an axis that the file leaves open, from the caller's sizes and from weights;
// -1 if it is not known. `name`: of the size, or "". `input` NULL: by name alone.
int64_t open_size(const Reader *, const char *input, int axis, const char *name);
void list_sizes(Reader *); // from weights, for open_size

// ---- symbols.c -----------------------------------------------------------------------------

void find_symbols(Reader *); // once the inputs' sizes are known
// Returns x, result k of the node, or, if it is such a size, what it is or the smaller of x and the
// most that it is.
Ref known_size(Reader *, const NodeProto *, int k, Ref x);

// ---- lower.c --------------------------------------------------------------------------

const char *node_where(Arena *, const NodeProto *); // for messages
NameScope *new_space(Reader *, NameScope *outer);
void bind_name(Reader *, NameScope *, const char *name, Value);
void bind_bad(Reader *, NameScope *, const char *name); // a value with an error, unless it is bound
Value look_up(Reader *, const NameScope *, const char *name); // fails if there is none
void bind_weights(Reader *, NameScope *, const GraphProto *);
void list_functions(Reader *);
const LocalFunction *find_function(const Reader *, const NodeProto *); // NULL: an operator
void lower_nodes(Reader *, NameScope *, size_t n, NodeProto *const *);
// Lowers the graph of an If, Loop or Scan in a scope inside the caller's, its inputs bound to `in`.
void lower_body(Call *, const GraphProto *, int nin, const Value *in, int nout, Value *out);
// Fails if the operator of a NodeProto is unsupported: for models whose sizes are not known.
Attempt check_supported;

// ---- ops/loop.c: bodies of loops ------------------------------------------------------

void open_nest(Reader *, LoopScope *); // values go into its body, until close_nest
void close_nest(Reader *, LoopScope *);
// Adds a slot to the body, shaped as `x`, a value around it, or (entry) as one of its entries.
Ref nest_slot(Reader *, LoopScope *, Ref x, bool entry);
// Gives a slot the lengths of its value, after all carried or scanned values have a slot.
Ref sized_slot(Reader *, LoopScope *, Ref slot);
// Returns a value of nest `home` as one of the current nest, which is inside of it.
Ref bring_in(Reader *, Ref, LoopScope *home);
// Leaves all nests; enter_nests goes back, and brings `x` in.
LoopScope *leave_nests(Reader *);
Ref enter_nests(Reader *, LoopScope *, Ref x);
// Puts the loop over a closed nest, whose operands come after `limit`. LoopInfo's trips, carried,
// scanned, reverse and until are set. part: its results. Returns the trip count.
Ref put_loop_info(Reader *, LoopInfo *, const LoopScope *, Ref limit, Ref *part);
// Stacks values along a new axis.
Ref put_stack(Call *, int n, const Ref *, int axis);

// ---- parameters.c: which initializers are parameters ---------------------------------------

void read_roles(Reader *); // reads the facts for the decisions
void note_roles(Reader *); // notes the decisions
// Marks a result that is a Constant node's, and collects such constants that the node reads as
// weights.
void trace_constant(Call *, Value *result);
void list_untrained(Reader *);
// Returns the weight as operand `k` of node `c`: a parameter, a frozen table, or a constant.
Ref use_weight(Reader *, Weight *, const Call *c, int k);
Ref weight_constant(Reader *, Weight *); // its values, whatever its role
// Returns the result of Identity of an initializer.
Value alias_weight(Reader *, Weight *, const char *name);
// Returns a weight that an attribute holds as floats, such as the coefficients of LinearRegressor.
Ref attribute_weight(Call *, const char *name, Shape);
// Restores a bias of zeros that the exporter left out of `c`; 0 if there was none.
Ref missing_bias(const Call *c, int64_t n);

double weight_number(Reader *, Weight *, int64_t i);
double copied_number(Reader *, Weight *, Copy, int64_t i); // element i of a copy of the weight
bool has_few_values(Reader *, Weight *, int most); // at most `most` different ones, of 5
int wide_axes(const Shape *);                      // the number of axes longer than 1
bool is_repeated(Reader *, Weight *); // fills in Weight.repeat; true if slices are repeated
// Returns the one weight with a name of its own whose elements those of this one are, in the same
// order, or NULL: PyTorch's older exporter makes a constant of a parameter whose shape it changed.
const Weight *find_reshaped(Reader *, Weight *);
const Weight *find_transposed(Reader *, Weight *); // The same of a transposed copy.

// ---- roles.c: roles.def ----------------------------------------------------------------

typedef enum Role { R_none, R_weight, R_bias, R_value, R_scalar, R_statistic } Role;
typedef enum OpSet {
#define INPUT(...)
#define SET(name, ops) OPS_##name,
#include "roles.def"
#undef INPUT
#undef SET
} OpSet;
Role role_of(const NodeProto *, int input); // R_none: of no node (NULL) or no role
bool is_one_of(OpSet, const NodeProto *);   // NULL: no

// ---- param_names.c --------------------------------------------------------------------

typedef struct Leaves { // of a tensor that the exporter computed
	int count, parameters, buffers;
	bool function;    // of them, by the names of values between; else a view, or unknown
	bool whole;       // all their elements, only moved or repeated, by these names
	bool repeated;    // along new axes, or ones of size 1, by these names
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
	bool repeated;    // the weight repeats the parameter: Weight.repeat
	const char *name; // of the parameter that it is
	const NodeProto *reader;
	int input; // the operand of `reader` that comes from it, through moves and casts
} Use;

void read_metadata(Reader *);
Use use_of(Reader *, Weight *, const Call *, int k);    // as operand k; NULL: as an output
void name_source(Arena *, const NodeProto *, Node *to); // its module and line, if the file has them
// Returns a property of a value of the main graph, or NULL.
const char *info_property(const Reader *, const char *name, const char *key);
bool is_parameter_name(const Reader *, const char *name);
bool is_opaque(const char *name);                            // made up by an exporter
bool has_stem(Arena *, const char *words, const char *name); // a word, with or without a number
// Returns the name, without its number, of the operator that computed a value of this name: Add of
// tf2onnx's encoder/Add_1:0 and of /encoder/Add_1_output_0, PyTorch's older exporter; NULL:
// unknown.
const char *result_op(const Reader *, const char *name);
size_t stem_of(const char *name);                       // the length without a number: mul of mul_1
const char *bias_left_out(Reader *, const NodeProto *); // its name, or NULL
// Notes parameters of the program that are not in the file, and doubts what may have become of
// them.
void note_lost_parameters(Reader *);
double traced_smoothing(const NodeProto *); // label smoothing that did not reach the file; 0: none
bool is_fused(const NodeProto *);           // a BatchNorm was folded into it
// True if a softmax follows: the node's results, or sums with them, are attention scores.
bool is_scored(const Reader *, const NodeProto *);

// Returns the call that the node stems from, in the words of PyTorch's exporter, or NULL.
const char *call_of(const NodeProto *);
const char *trace_of(const NodeProto *);     // the stack trace of the call, or NULL
const char *line_after(const char *line);    // the next line of it
bool is_torch_path(const char *path);        // of a file of PyTorch, not of the program
const char *arguments_of(const NodeProto *); // of the call; NULL: none
// Returns the name, in the file if it is known, of the next tensor among the arguments, or NULL,
// and moves on.
const char *next_argument(const Reader *, const char **at);
// Returns the text from an argument of a call of `function` on, or NULL.
const char *argument_of(const NodeProto *, const char *function, int number);

// ---- detach.c: values that no gradient passes ------------------------------------------------

void read_detached(Reader *); // finds them in the file's metadata
// Detaches what the node reads detached; what it computes, if it is such a value.
void detach_operands(Call *);
void detach_results(Call *, Value *result);
void doubt_blocks(Reader *);   // what leaves torch.no_grad() and autograd functions
void check_detached(Reader *); // records errors for --detach patterns without a match

// ---- traits.c: what elements of a weight have in common --------------------------------

bool has_trait(Reader *, Weight *, Trait); // looked for once per weight

// ---- untrained.c: what is not trained, and why ----------------------------------------

const char *reason_not_trained(const Use *);                              // NULL: it is a parameter
extern const char running_statistics[], computed_table[], made_numbers[]; // some of the reasons
// Returns why the user should decide whether it is one, though it is trained; NULL: no need.
const char *reason_to_ask(const Use *);
extern const char computed_from[]; // one of these reasons
// Returns the user's choice: 1 train, 0 freeze, -1 none. The last pattern wins.
int users_choice(const Reader *, const char *name, const char *file);
void check_choices(Reader *); // records errors for --freeze and --train patterns without a match

// ---- typed.c: values of few bits ------------------------------------------------------

// Rounds x to the element type `onnx` (a TensorProto.DataType), in its working type. Floats of 8
// and 4 bits that are too large become the largest if `saturate`, else infinity or NaN; powers of
// two are rounded "up", "down" or to the "nearest". Integers lose their high bits.
Ref put_typed(const struct Call *, Ref x, int onnx, bool saturate, const char *powers);

// ---- node.c: attributes and constant operands -----------------------------------------

const AttributeProto *find_attr(const Call *, const char *name); // resolved; NULL if absent
// Returns the attribute of the call, or the function's default, that this one of a function's body
// refers to, or itself.
const AttributeProto *resolve_attr(const Call *, const AttributeProto *);
int64_t attr_int(const Call *, const char *name, int64_t otherwise);
double attr_float(const Call *, const char *name, double otherwise);
const char *attr_string(const Call *, const char *name, const char *otherwise);
const int64_t *attr_ints(const Call *, const char *name, int *n); // NULL when absent
// Returns operand k as constant integers, or NULL if absent. Fails if it is computed from data.
const int64_t *operand_ints(Call *, int k, int *n);
// Returns operand k if it is given, else attribute `name`: newer opsets use the one, older the
// other.
const int64_t *ints_of(Call *, int k, const char *name, int *n);
Ref constant_operand(Call *, int k);                   // a const value; fails otherwise
int64_t axis_of(const Call *, int64_t axis, int rank); // wrapped into [0, rank); fails outside
// Returns `n` axes wrapped into [0, rank); NULL: 0..n-1. Fails if one is outside or repeated.
const int64_t *axes_of(const Call *, const int64_t *given, int n, int rank);
// Fails because the node contradicts itself or its inputs: no exporter writes such a file.
_Noreturn void invalid_node(const Call *, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
// Fails because the node is valid, but amosc does not support it.
_Noreturn void unsupported_node(const Call *, const char *help, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void check_rank(const Call *, int rank); // fails if there are more than RANK axes
// Fails because `x`, called `what`, is not constant.
_Noreturn void refuse_computed(const Call *, Ref x, const char *what);
// Fails if the size of an input depends on the data: along an axis, or along any. For
// operators that compute with sizes as integers.
extern const char fixed_sizes[]; // the help
void expect_fixed_axis(const Call *, int k, int axis);
void expect_fixed(const Call *, int k);
const Val *in_val(const Call *, int k); // fails when operand k is absent
Ref operand(const Call *, int k);       // 0 where it is absent
int own_type(const Value *);            // its element type in the file; 0: unknown
int operand_type(const Call *, int k);  // the same, or what the file declares, or the working type
int result_type(const Call *); // of the first result: c->onnx, or that of the operands; 0: unknown

// ---- schema.c -------------------------------------------------------------------------

bool is_word(const char *words, const char *text); // one of them, separated by spaces
bool has_schema(const NodeProto *);
char attr_letter(int type); // of an AttributeProto.AttributeType, as schema.def has it; 0: none
void check_schema(Call *);  // fails if the node violates its operator's schema
// Returns the kind of an operator's attribute in opset `opset`, a letter of schema.def, or 0 if it
// has no such attribute. *otherwise: its default, NULL if it has none.
char declared_attr(Arena *, const char *domain, const char *op, int64_t opset, const char *name,
                   const char **otherwise);

// ---- interval.c -----------------------------------------------------------------------

typedef struct Interval {
	double low, high;
} Interval;
Interval interval_of(Graph *, Ref); // of the elements of a value
// Of integers; shaped as a. b is a single one or shaped as a.
Ref smaller_of(Graph *, Ref a, Ref b), larger_of(Graph *, Ref a, Ref b);
Ref from_end(Graph *, Ref at, Ref length); // wraps negative positions

// ---- bounded_size.c -------------------------------------------------------------------

Ref put_i64(Graph *, int64_t); // i64, rank 0
typedef struct BoundedSize {
	int64_t most;
	Ref count; // 0: exactly `most`
} BoundedSize;
BoundedSize extent_of(const Call *, Ref size, const char *what); // fails if it has no bound
BoundedSize size_along(Graph *, Ref, int axis);
BoundedSize extent_product(Graph *, BoundedSize, BoundedSize);
// Returns operand k or, if it is not given, attribute `name`, each element as i64 of rank 0; NULL
// if absent. extents_of: as sizes.
Ref *entries_of(Call *, int k, const char *name, int *n);
BoundedSize *extents_of(Call *, int k, const char *name, int *n);
Ref fixed_operand(Call *, int k); // an initializer becomes a constant
// Reshapes x to n dimensions. One, -1, may be left open.
Ref reshape_to(Call *, Ref x, int n, BoundedSize *to);

// ---- axes.c ---------------------------------------------------------------------------

Ref merge_axes(Graph *, Ref x, int from, int to);              // axes from..to-1 become one
Ref flat(Graph *, Ref x);                                      // of rank 1
Ref drop_axes(Graph *, Ref x, int naxes, const int64_t *axes); // axes of size 1
// `count` entries along an axis from `start`, `step` apart; side by side.
Ref take_steps(Graph *, Ref x, int axis, int64_t start, int64_t count, int64_t step);
Ref take_range(Graph *, Ref x, int axis, int64_t start, int64_t count);

// ---- op_table.c: ops.def --------------------------------------------------------------

typedef void Lower(Call *);
typedef struct OpRow { // of ops.def
	OpInfo info;
	Lower *lower;
	int variant;
} OpRow;
const OpRow *find_row(const char *domain, const char *op); // NULL if unknown

Lower unsupported;    // fails with the note of ops.def
Lower lower_identity; // ops/reshape.c: passes its operand on

#endif
