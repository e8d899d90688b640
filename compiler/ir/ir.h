// ir.h: declares the Graph, an array of typed values in SSA order, and how values are put into it.
// Sections: types, values, the door put(), the book, the notation, the evaluator. Invariant: a
// reference is smaller than its user's; values never change once put; every value is typed, folded,
// shared, and as simple as the book makes it. Dimensions are numbers.
#ifndef IR_H
#define IR_H
#include "base.h"

// ---- types and primitives -------------------------------------------------------------

typedef enum Elem {
#define T(name, ctype, bytes, cls, onnx) E_##name,
#include "types.def"
#undef T
	ELEMS
} Elem;

typedef enum Op {
#define P(name, cls, arity, type, attr, weight, rule, text) O_##name,
#include "prims.def"
#undef P
	OPS
} Op;

typedef enum Act {
#define A(name, ...) A_##name,
#include "acts.def"
#undef A
	ACTS
} Act;

typedef enum Class { C_leaf, C_map, C_reduce, C_move, C_dot, C_index, C_composite, C_loop } Class;
typedef struct Prim {
	const char *name;
	Class cls;
	int arity; // -1: any
	const char *type;
	const char *attr; // the notation of its attributes, see prims.def
	int weight;
} Prim;
extern const Prim prims[OPS];

typedef struct ElemInfo {
	const char *name;
	int bytes;
	char cls; // f i u b
	int onnx;
} ElemInfo;
extern const ElemInfo elems[ELEMS];

typedef struct ActInfo { // acts.def
	const char *name;
	enum { ACT_free, ACT_bounded } scale;
} ActInfo;
extern const ActInfo acts[ACTS];

// What padding of the reduced axes holds, and how two elements are combined. Finite for softmax, so
// that one of padding alone is finite too.
typedef struct Reducer {
	Op step;      // a map; O_const: several steps
	double start; // the neutral element
} Reducer;
extern const Reducer reducers[OPS];

static inline bool is_float(Elem e)
{
	return elems[e].cls == 'f';
}
static inline bool is_signed(Elem e)
{
	return elems[e].cls == 'i';
}
enum { F16_LIMIT = 65520 }; // f16 holds what is less in magnitude

static inline bool is_half(Elem e) // f16 or bf16
{
	return is_float(e) && elems[e].bytes == 2;
}
static inline Elem arithmetic_type(Elem e) // Floats narrower than f32 are computed as f32.
{
	return is_float(e) && elems[e].bytes < elems[E_f32].bytes ? E_f32 : e;
}
bool is_condition(Op, int operand); // True for a b8 among operands of another type.

static inline bool is_attention(Op op)
{
	return op >= O_attend && op <= O_attend_db;
}
enum { ATTENTION_WORKERS = 4 }; // with fewer, gradients of attention on a CPU are not one kernel
// Returns the first operand of attention after those that are always given: the bias. It is
// followed by what is shown and, but for the statistics, a factor of the weights.
static inline int attention_bias(Op op)
{
	return op == O_attend ? 3 : op == O_attend_stats ? 2 : 6;
}
static inline int attention_factor(Op op)
{
	return attention_bias(op) + 2;
}

// ---- values ---------------------------------------------------------------------------

enum { RANK = 10, NUMS = 3 * RANK + 4 };

// Limits sizes and counts (is_countable) well below 64 bits, so that index arithmetic never
// overflows.
enum { SIZE_BITS = 57 };

typedef struct Shape {
	int rank;
	int64_t dim[RANK];
} Shape;

typedef uint32_t Ref; // index into Graph.vals; 0: no value

typedef struct Attr {
	int n;           // number of elements used in i; a value's has no more
	double x;        // eps, fill or scale
	int64_t i[NUMS]; // layout by attribute kind, see prims.def
} Attr;

// Entries of lists of attributes: they alias Attr.i, which other code reads and writes.
typedef struct __attribute__((may_alias)) SliceAxis { // of slice, by axis
	int64_t start, count, step;
} SliceAxis;
static inline const SliceAxis *slice_axes(const Attr *attr)
{
	return (const SliceAxis *)attr->i;
}

typedef struct __attribute__((may_alias)) WindowAxis { // of window: see prims.def
	int64_t axis, out, size, stride, dilation, before, up;
} WindowAxis;
enum { WINDOW_NUMS = sizeof(WindowAxis) / sizeof(int64_t) };
typedef struct WindowAxes {
	int n;
	const WindowAxis *at;
} WindowAxes;
static inline WindowAxes window_axes(const Attr *attr)
{
	return (WindowAxes){attr->n / WINDOW_NUMS, (const WindowAxis *)attr->i};
}

typedef struct Val {
	Op op;
	Elem type;
	Shape shape;
	int nin;
	const Ref *in;
	const Attr *attr; // never NULL
	const void *data; // const: the bytes, row-major, little-endian; loop: its body, a Graph
	int from;      // index into Graph.nodes: the node of the file that it comes from; 0: none
	int64_t pitch; // elements from a row, along the last axis, to the next in memory; 0: those
	               // of a row
} Val;

typedef struct Node { // an operator of the file, as reports and errors name it
	const char *name, *op;
	const char *module; // of the source program: encoder.layer.0.attention; NULL: unknown
	const char *line;   // of that program: model.py:32; NULL: unknown
} Node;

typedef struct NodeList { // shared by a graph and those made from it
	Arena *arena;
	VEC(Node) list;
} NodeList;

typedef enum SlotKind {
	S_input,  // set by each batch
	S_param,  // trained, written back to the file
	S_frozen, // a weight of the file that is not trained
	S_buffer, // not trained, but may be stored to and written back: BatchNorm's statistics
	S_state,  // of the optimizer and the trainer, not in the file
	S_grad,   // a parameter's gradient, between the entries that compute and apply it
} SlotKind;

typedef struct Slot {
	const char *name; // the parameter's name in the source program
	const char *file; // the initializer that holds it; NULL: none
	SlotKind kind;
	Elem type; // in the graph (weights of other float types are widened to f32)
	Shape shape;
	const void *init;  // row-major, of `type`, at any address; NULL: zeros (inputs: none)
	const char *why;   // frozen, buffer: why it is not trained; param: why the user should
	                   // confirm that it is; NULL: no reason
	int64_t limit;     // integers are in [0, limit), floats in (-limit, limit); 0: any
	int64_t ignore;    // labels that do not count (-100); 0: none
	bool counts;       // input: axis 0 counts samples, if it is the batch
	struct View *view; // onnx layer: layout of the parameter in its initializer
} Slot;

// If the size of an output is data-dependent, its shape is the upper bound, and another output,
// SHAPE_OF its name, is the actual shape: i64[rank].
#define SHAPE_OF "shape:"
// An output COUNT_OF a mean is the number of elements that it is over.
#define COUNT_OF "count:"
// An output CHECK_OF "node 'X' (Gather): index out of range; expected 0 to 4" is an invalid index,
// i64[]; 0: none; INT64_MIN stands for index 0. The runtime fails with this message.
#define CHECK_OF "check:"
typedef struct Out {
	const char *name;
	Ref val;
} Out;

typedef struct Store { // at the end of a run, slot := val
	int slot;
	Ref val;
} Store;

// The composites that no rule of the book makes, because they were decomposed. Gradients decompose
// attend.
typedef enum Decomposed { DECOMPOSED_NONE, DECOMPOSED_ATTEND, DECOMPOSED_ALL } Decomposed;

typedef struct Graph {
	Arena *arena;
	const char *name;  // the name of the file
	Val *vals[CHUNKS]; // the first is unused
	int nval;
	VEC(Slot) slots;
	VEC(Ref) reads; // by slot: the value that reads it; 0: none
	VEC(Out) outs;
	VEC(Store) stores;
	VEC(int) stored; // by slot: the index of its store + 1; 0: none
	NodeList *nodes; // shared by all graphs of the file; list.at[0] is {"", ""}
	Table *interned; // structural key -> Ref; NULL until a value is put
	Table *starts;   // of a concat: where its operands begin; NULL until needed
	Table *named;    // name of a slot -> its index + 1
	const struct Book *book;
	int from;       // stamped on every value put
	Table *lengths; // of dynamic values; NULL: there are none
	Ref refused;    // a length that has to be fixed: why the last put failed; 0
	Table *masks;   // Ref -> whether it is causal; NULL until one is asked for
	Table *limits;  // onnx layer: Ref -> interval of its elements
	Decomposed plain;
	bool wide; // f32 is computed as f64; random numbers, and slots other than inputs, are f32
	// Type that operands of products are rounded to (precision.c); f32: to the bits of TF32; 0:
	// none.
	Elem products;
	const struct Machine *machine; // that gradients are computed on; NULL: no gradients here
	double loss_scale; // if products are f16, of the loss whose gradients are computed; 0: it
	                   // depends on them
	bool unaliased;    // a slot's cast to its own type is a value: see graph_unalias
} Graph;

// A loop: its body is a graph whose slots are, in order, the carried values, an element of each
// scanned value (along its first axis), and the fixed values. Its outputs are: with `until`,
// whether another iteration follows (b8); the next carried values; an element of each stacked
// result. Operand 0 limits the iterations (i64, rank 0); the others are the values of the slots.
typedef struct LoopInfo {
	const Graph *body;
	int64_t trips; // upper bound
	int carried, scanned, fixed, stacked;
	bool reverse; // elements are visited from the last one within the limit to the first
	bool until;
} LoopInfo;

// ---- graph.c: the door ----------------------------------------------------------------

Graph *graph_new(Arena *, const char *name, const struct Book *);
// Returns an empty graph with the same slots (equal indices), nodes and book.
Graph *graph_like(Arena *, const Graph *);
Graph *graph_inside(Arena *, const Graph *); // The same without slots, for the body of a loop.

// The only way a value enters a graph. Infers its type and shape, folds constants (results of at
// most FOLD_LIMIT elements), merges equal values, and applies the book's rules. Fails at the
// current node (g->from) if types or shapes do not match.
Ref put(Graph *, Op, int nin, const Ref *in, const Attr *);
enum { FOLD_LIMIT = 1 << 16 };

Ref put_const(Graph *, Elem, Shape, const void *bytes); // Copies the bytes.
Ref put_loop(Graph *, const LoopInfo *, const Ref *in);
Ref put_num(Graph *, Elem, double); // Of rank 0.
Ref put_slot(Graph *, int slot);    // The slot's contents.
Attr attr_copy(const Val *);        // Returns a copy that may be changed.
bool commutes(Op);                  // True if its two operands may be swapped.
// The operation of v on new operands, with the same node.
Ref put_as(Graph *to, const Val *v, const Ref *in);
int add_slot(Graph *, Slot);                      // Returns its index.
int find_slot(const Graph *, const char *name);   // -1: none
Ref find_output(const Graph *, const char *name); // 0: none
Ref slot_ref(const Graph *, int slot);            // The value that reads it; 0: none.
void add_out(Graph *, const char *name, Ref);
// True for an output of the model: not SHAPE_OF, COUNT_OF or CHECK_OF another.
bool is_own_out(const char *name);
void add_store(Graph *, int slot, Ref);  // A second store to a slot replaces the first.
Ref stored_ref(const Graph *, int slot); // The value that is stored to it; 0: none.
int add_node(Graph *, const char *name, const char *op); // Keeps the strings.

static inline const Val *val(const Graph *g, Ref r)
{
	return ITEM(g->vals, r);
}
Ref ref_of(const Graph *, const Val *); // Returns its reference.

// Copies the live values of `from` into `to`; now[r], the copy of value r, is rewrite(v, in) with
// its operands `in` already copied.
typedef Ref Rewrite(void *context, Graph *to, const Val *v, const Ref *in);
void copy_values(Graph *to, const Graph *from, Ref *now, Rewrite *put, void *context);
// Copies outputs and stores of `from`, of the values now[r].
void copy_ends(Graph *to, const Graph *from, const Ref *now);
// Both; now may be NULL.
void copy_graph(Graph *to, const Graph *from, Ref *now, Rewrite *put, void *context);

// Returns the values that outputs and stores need, with the same slots and nodes.
Graph *graph_live(Arena *, const Graph *);
// The same, and a slot's value that is stored in another slot becomes a copy, so that kernels may
// swap slots.
Graph *graph_unalias(Arena *, const Graph *);
// True if v is a value of its own that has the elements of another: a cast to the same type.
bool is_same_value(const Graph *, const Val *v);
void set_pitch(Graph *, Ref, int64_t pitch);
// Returns by Ref how often each value is used: as operand of a live value, output or store. 0: the
// value is dead.
int *graph_uses(Arena *, const Graph *);

// ---- dynamic.c: dynamic axes, whose length depends on the data -------------------------

// By axis the number of valid elements, which come first (i64, rank 0); 0: all are. The others are
// padding. put() propagates lengths from operands to results.
typedef struct Lengths {
	Ref of[RANK];
} Lengths;
const Lengths *lengths_of(const Graph *, Ref);
bool is_dynamic(const Graph *, Ref);                   // True if it has a length; false for 0.
Ref put_length(Graph *, Ref x, int axis);              // i64, rank 0
Ref put_valid(Graph *, Ref x, int axis, Ref length);   // x with that length
Ref put_filled(Graph *, Ref x, int axis, double with); // x with this padding along the axis
Ref put_all_filled(Graph *, Ref x, double with);       // along all axes
Ref put_padded(Graph *, Ref x, int axis);              // x with padding along the axis as valid
Ref put_all_padded(Graph *, Ref x);                    // along all axes
Ref put_lengths(Graph *, Ref x, const Lengths *);      // x with these lengths
// Adds to `to` the lengths of x reshaped. False if valid elements would move.
bool reshaped_lengths(Graph *, Ref x, const Shape *, Lengths *to);

// ---- builder.c: short forms of put(), one for each common shape of call -----------------

Ref put1(Graph *, Op, Ref);
Ref put2(Graph *, Op, Ref, Ref);
Ref put3(Graph *, Op, Ref, Ref, Ref);
Ref put_reduce(Graph *, Op, Ref, int naxes, const int64_t *axes);
Ref put_cast(Graph *, Ref, Elem);
Ref put_tf32(Graph *, Ref); // f32, rounded to the bits of TF32: 11 digits
bool is_tf32(const Val *);  // put by put_tf32
Ref put_reshape(Graph *, Ref, Shape);
Ref put_expand(Graph *, Ref, Shape);
Ref put_permute(Graph *, Ref, const int64_t *perm);
Ref put_slice(Graph *, Ref, const int64_t *start, const int64_t *count, const int64_t *step);
Ref put_pad(Graph *, Ref, const int64_t *before, const int64_t *after, double fill);
Ref put_extended(Graph *, Ref x, int axis, int64_t count); // to so many, by zeros at the end
Ref put_window(Graph *, Ref, int n, const WindowAxis *, double fill);
Ref put_concat(Graph *, int axis, int n, const Ref *);
Ref put_gather(Graph *, Ref x, Ref index, int axis);
Ref put_scatter(Graph *, Ref x, Ref index, Ref update, int axis, int mode);
Ref put_iota(Graph *, Shape, int axis);
// Returns x with leading axes of size 1, up to `rank`, for maps of operands of unequal rank
// (NumPy's rule).
Ref put_rank(Graph *, Ref, int rank);
Ref put_broadcast(Graph *, Ref, Shape); // Of its rank and shape.
// Returns the indices 0, 1, .. along one axis of this shape; the other axes have size 1.
Ref put_numbers(Graph *, const Shape *, int axis);
// Returns the contents of the state of that name, which is added if the graph has none.
Ref put_state(Graph *, const char *name, Elem, Shape, const void *init);
Ref swap_last(Graph *, Ref); // Swaps the last two axes.
Ref move_axis(Graph *, Ref, int from, int to);

// ---- simplify.c: a simpler value than op(in; attr), or 0 -------------------------------

Ref identity(Graph *, Op, int nin, const Ref *in, const Attr *, const Shape *);

// ---- loop.c: reads, trims and unrolls loops --------------------------------------------

LoopInfo loop_of(const Val *);
int loop_operands(const LoopInfo *), loop_results(const LoopInfo *);
const Val *result_val(const LoopInfo *, int k); // In the body; for stacked results an element.
Shape result_shape(const LoopInfo *, int k);
Ref result_ref(const LoopInfo *, int k); // In the body; for stacked results an element.
Ref loop_result(Graph *, Ref loop, int k);
// Puts the loop without values that no iteration or wanted result needs (want: by result; NULL:
// all), and with invariant values computed before it. Returns the number of iterations; part[k]:
// result k if wanted.
Ref put_trimmed_loop(Graph *, const LoopInfo *, const Ref *in, const bool *want, Ref *part);
// Puts the first `most` iterations in sequence, or the trip limit if it is lower; further elements
// of stacked results repeat the last. This is the loop if the limit is a constant of at most
// `most`.
void unroll_loop(Graph *, const LoopInfo *, const Ref *in, int64_t most, Ref *part);
// Copies the body's values into g, with slots replaced by `slot`; by Ref.
Ref *put_body(Graph *, const Graph *body, const Ref *slot);
bool makes_all_trips(const Graph *, const LoopInfo *, const Ref *in); // True if that is known.
// Returns the number of iterations if no data decide it and it is at most `most`, else -1.
int64_t known_trips(Graph *, const LoopInfo *, const Ref *in, int64_t most);

// ---- shape.c: shapes and axes ---------------------------------------------------------

// True if a value may have this shape: at most 2^SIZE_BITS elements, empty axes counted as 1.
bool is_countable(const Shape *);
const char *beyond_text(const Shape *); // what another shape is: "of more than .. elements"
int64_t count_of(const Shape *);        // INT64_MAX for more than 64 bits hold.
int64_t byte_count(Elem, const Shape *);
Shape memory_shape(const Val *);          // Returns the shape with rows as long as in memory.
int64_t bytes_of(const Val *);            // in memory
int64_t last_dim(const Shape *);          // 1 for rank 0
int64_t common_divisor(int64_t, int64_t); // the greatest, never negative
bool same_shape(const Shape *, const Shape *);
Shape shape_of(int rank, const int64_t *dims);
void row_strides(const Shape *, int64_t *stride);     // in elements, row-major
Shape stacked_shape(int64_t n, const Shape *entry);   // `n` of them along a new first axis
const char *shape_text(Arena *, Elem, const Shape *); // f32[2,3]
bool has_axis(const Attr *, int axis); // True if the attribute, a list of axes, has it.
// Returns the shape of a reduction: `axes` have size 1.
Shape reduced_shape(const Shape *, int n, const int64_t *axes);
// True if it is `space` reduced over these axes.
bool is_reduced(const Shape *, const Shape *space, uint32_t reduce);
uint32_t axes_mask(const Val *);                   // of a reduction or dot, as bits
bool same_axes(const Shape *, uint32_t, uint32_t); // except for axes of size 1
// Axes [x0, x1) of a value that are axes [y0, y1) of its reshape.
typedef struct AxisGroup {
	int x0, x1, y0, y1;
} AxisGroup;
enum { AXIS_GROUPS = 2 * RANK };
// Divides the axes of a reshape from x to y into the smallest groups with equal numbers of
// elements. Returns how many there are; -1 if there are none, as of shapes with 0 elements.
int axis_groups(const Shape *x, const Shape *y, AxisGroup *);

// ---- type.c, type_shape.c: types and shapes -------------------------------------------

// Returns the current node of the graph, for errors.
const char *graph_where(const Graph *);
// Returns the type and shape of op(in; attr). Fails if its operands do not match.
void type_of(Graph *, Op, int nin, const Ref *in, const Attr *, Elem *, Shape *);
void check_loop(Graph *, const LoopInfo *, const Ref *in); // the same for loops

// ---- constant.c: known values ---------------------------------------------------------

bool is_const(const Graph *, Ref);
Ref unmoved(const Graph *, Ref);    // Returns the value whose elements moves renumber.
Ref unreshaped(const Graph *, Ref); // The same of reshapes alone.
// True if every element of the constant is this number.
bool const_num(const Graph *, Ref, double *);
// True for a constant of at most 1024 x 1024 elements that is at most -1e30 for future keys and 0
// elsewhere: added to scores, it hides future keys.
bool const_causal(Graph *, Ref);
// Finds small known integers (constants, iota, and values made of them); *n: capacity, then count.
bool const_ints(const Graph *, Ref, int64_t *out, int *n);
double const_at(const Val *, int64_t i); // Returns an element of a constant.
int64_t const_int_at(const Val *, int64_t i);

// ---- notation.c: one lexer and one expression parser for pages, graphs and --loss -----

typedef enum ExprKind { X_num, X_name, X_text, X_list, X_call } ExprKind;

typedef struct Expr { // in 64 bytes
	ExprKind kind;
	Op op;            // call: the primitive; OPS: a function or a definition
	double x;         // num
	const char *name; // name, text, call
	struct Expr **in, **attr;
	int nin, nattr; // call: operands and attributes; list: nin elements
	int var;        // name: index among the variables of its line; -1: looked up when evaluated
	int16_t function; // call: the function of expr.c; -1: none
	int16_t depth;    // nesting of calls
	bool quoted;      // name
	bool number;      // on the left side of a rule: matches a constant
} Expr;

typedef enum TokenKind { T_end, T_line, T_indent, T_name, T_num, T_sign } TokenKind;

typedef struct Lexer {
	Arena *arena;
	const char *where, *at; // name of the text; the rest after the current token
	int line, depth;        // depth: open brackets, which continue a line
	TokenKind kind;
	const char *word; // name or sign; a number as written
	double x;
	bool quoted;
	const char *comment; // of the line before a T_line, T_indent or T_end; "": none
} Lexer;

Lexer *lexer_open(Arena *, const char *where, const char *text); // Starts at the first token.
void lexer_next(Lexer *);
// True if the current token is this sign or plain name.
bool lexer_is(const Lexer *, const char *word);
bool lexer_take(Lexer *, const char *word);   // If so, skips it.
void lexer_expect(Lexer *, const char *word); // Skips it, or fails.
const char *lexer_name(Lexer *); // Returns a name and skips it; fails on any other token.
int64_t lexer_count(Lexer *);    // not negative
int64_t lexer_integer(Lexer *);
double lexer_number(Lexer *);
// Returns the index of the current word.
int lexer_choice(Lexer *, int n, const char *const *words);
// Reads "[2,/3]". Returns which dimensions are marked by a slash, as bits.
uint32_t lexer_dims(Lexer *, Shape *);
void lexer_end_line(Lexer *);     // Goes to the next line; fails before the end of this one.
char *lexer_place(const Lexer *); // "where:line", for errors
Expr *parse_expr(Lexer *);
Expr *parse_text(Arena *, const char *where, const char *text); // Fails if text remains.

// The value of an expression: a value of the graph, a number, a list of integers, a string, or
// several of these.
typedef struct Item {
	enum { I_none, I_ref, I_num, I_list, I_text, I_several } kind;
	Ref ref;
	int input; // of the node being lowered: its index + 1
	double x;
	const char *text;
	const struct Item *all; // I_several: n of them
	int n;
	int64_t i[NUMS];
} Item;

struct Scope; // says where an error is
// Returns the axis counted from the first; fails if it is out of range.
int64_t wrap_axis(const struct Scope *, int64_t axis, int rank);
Attr attr_join(const struct Scope *, Op, int rank, int nitem, const Item *); // rank: of operand 0
enum { ATTRIBUTES = 4 };                  // of a primitive, at most
int attr_split(Op, const Attr *, Item *); // Returns the number of items.

// ---- expr.c: evaluates expressions ----------------------------------------------------

typedef Ref Lookup(void *context, const char *name); // Returns the value of a name, or 0.
// Evaluates an expression over named values (for --loss).
Ref eval_expr(Graph *, const char *where, const Expr *, Lookup *look, void *context);
// Evaluates an expression over numbers alone (for --eta): `sqrt(2 / 768)`.
double book_number(Arena *, const char *where, const char *text);

typedef struct Scope {
	Graph *g;
	const struct Book *book;
	const char *where;
	Item *var;    // by Expr.var
	Lookup *look; // for names without an index
	void *context;
	int depth;
	const struct Host *host; // NULL: none
} Scope;
typedef struct Host { // evaluates what the book lacks
	void *context;
	bool (*call)(Scope *, const Expr *, Item *result); // false: unknown function
	// The attribute that a call of definition `def` leaves out; NULL: there is none.
	Item (*attr)(void *context, const char *def, const char *name);
} Host;
Item eval_item(Scope *, const Expr *);
Item num_item(double), ref_item(Ref); // 0: none
// Returns the number that an item is: a list of one entry and a constant of one value are numbers.
// Fails for others; `name` is called with it.
double item_number(const Scope *, const char *name, const Item *);
int function_index(const char *name);   // Returns its Expr.function.
const char *scope_where(const Scope *); // Returns the node that a value is put for, else the line.
char *text_of_items(Scope *, int n, Expr *const *); // concatenated
Ref item_ref(Scope *, const Item *, Elem);          // A number becomes a constant of that type.
bool same_list(const Item *, const Item *);
bool literal_name(const char *, double *); // Names of types and activations are their numbers.
struct Def;
// Evaluates the first `nout` results of a definition; `var` holds its operands and attributes, and
// has space for its locals.
void run_def(const Scope *, const struct Def *, Item *var, int nout, Item *out);

// ---- book.c, rule.c: definitions and rules as text ------------------------------------

typedef struct Def {       // a definition; or, of a primitive, the definition of a composite or a
	                   // gradient
	const char *place; // file:line
	const char *name;
	int nin, nattr, nlocal, nresult, nvar;
	uint32_t optional;  // bit k: operand k
	const char **names; // of the variables: operands, attributes, (gradients:) out, g, locals
	Expr **attr; // a definition's: defaults or NULL; a primitive's: numbers to match, or names
	Expr **local, **result;
	struct Def *next; // same name, other operands or attributes
} Def;

typedef struct Rule { // left => right if tests; or a case of a form, left = right if tests
	const char *place;
	Expr *left, *right;
	int ntest, nvar;
	Expr **test;
	const char **names;
	Decomposed rests;  // unused in graphs decomposed as far as this; DECOMPOSED_NONE: in none
	struct Rule *next; // same primitive on the left
} Rule;

typedef enum BookKind { BOOK_def, BOOK_composite, BOOK_grad, BOOK_KINDS } BookKind;
typedef struct Book {
	Arena *arena;
	Table *statements[BOOK_KINDS]; // name -> Statements *
	Table *forms;                  // name -> Rule *, its cases
	Rule *rules[OPS];              // by the primitive on the left
} Book;

// Returns all of compiler/book, embedded at build time and opened once per process.
const Book *book_builtin(void);
// Returns what the statements of this name define; NULL: there are none.
const Def *book_defs(const Book *, BookKind, const char *name);
// Calls a definition: operands by position; attributes (after the `;`) by name, each a list or a
// number; nout results.
typedef struct AttrArg {
	const char *name;
	int n;
	const int64_t *ints;
	double x; // if n is 0: a number
} AttrArg;
void book_run(Graph *, const Host *, const char *def, int nin, const Ref *in, int ngiven,
              const AttrArg *, int nout, Ref *out);
Ref book_call1(Graph *, const char *def, int nin, const Ref *in, int ngiven, const AttrArg *);
// Returns a lighter value that equals op(in; attr), or 0.
Ref book_rewrite(Graph *, Op, int nin, const Ref *in, const Attr *);
// Decomposes a composite by one step.
Ref book_decompose(Graph *, const Val *, const Ref *in);
// Computes the gradients of `v`'s operands from that of its result; dx[k] = 0: none. Their shapes
// may still differ from the operands'.
void book_grad(Graph *, const Val *v, Ref out, Ref g, const Ref *in, Ref *dx);
bool book_differentiates(const Book *, Op); // false if no operand ever has a gradient: floor
// book.c for rule.c and expr.c.
const Def *find_def(const Book *, const char *name, int nin); // NULL: none
typedef VEC(const char *) Names;
// Numbers the names in `e` by `names`. A new one is added if `add`; else it must be a type or an
// activation, and becomes its number.
void number_names(const char *place, Arena *, Expr *e, Names *names, bool add);
// rule.c: reads `left => right [if test, ..]`, or a form. The second arena is for the meantime.
void rule_read(Book *, Arena *, Lexer *);

// ---- adjoint.c: adjoints of moves -----------------------------------------------------

Ref put_unslice(Graph *, Ref, const Shape *to, const int64_t *start, const int64_t *step);
Ref put_unwindow(Graph *, Ref, const Shape *to, int n, const WindowAxis *);

// ---- text.c: writes graphs as text and reads them -------------------------------------

char *graph_text(Arena *, const Graph *);
char *name_text(Arena *, const char *name); // in quotes unless it is a plain name
// Appends a value as operands are written; number: number_values().
void say_ref(Text *, const Graph *, const int *number, Ref);
// Reads a graph from its first line to the end of the text, or to a line `plan` or `entry`.
Graph *lexer_graph(Lexer *, const Book *);
Graph *parse_graph(Arena *, const char *where, const char *text, const Book *);
int *number_values(Arena *, const Graph *); // by Ref: its number in the text; 0: none

// ---- array.c: arrays of elements ------------------------------------------------------

typedef struct Array {
	Elem type;
	Shape shape;
	union {
		double *f;  // class f
		int64_t *i; // classes i, u, b
	};
	const struct Array *part; // of a loop: its results
} Array;

Array array_from(Arena *, Elem, const Shape *, const void *bytes);
void array_to(const Array *, void *bytes); // in its type
Array slot_start(Arena *, const Slot *);   // the contents before the first run
double element_at(const Array *, int64_t i);

// ---- eval.c: reference evaluator -------------------------------------------------------
// Floats of every type are computed in double; integers wrap to their type.

Array eval_prim(Arena *, Op, const Attr *, Elem, const Shape *, int nin, const Array *in);
// Evaluates every live value of g, with slots from `slot` (by index). By Ref.
Array *eval_graph(Arena *, const Graph *, const Array *slot);
typedef void Touch(void *context, Arena *, const Val *, Array *); // may change a value
// The same; passes each value to `touch` before others read it, those of bodies in every iteration.
Array *eval_touched(Arena *, const Graph *, const Array *slot, Touch *touch, void *context);
// Evaluates one value of g from its operands; touch (NULL: none) gets the values of its body.
Array eval_value(Arena *, const Graph *, Ref, const Array *slot, const Array *in, Touch *touch,
                 void *context);
// Returns the value of rand.
double random_uniform(uint64_t seed, uint64_t step, uint64_t site, uint64_t position);

#endif
