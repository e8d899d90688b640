// ir.h: the Graph: an array of typed values in SSA order, made through one door.
// Takes base.h. Gives Graph, the primitives, the door, the book, the notation, the evaluator.
// Keeps: a reference is smaller than its user's; values never change once put; every value is
// typed, folded, shared, and as simple as the book makes it. Shapes are numbers.
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
#define P(name, cls, arity, type, attr, weight, length, text) O_##name,
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
typedef enum AttrKind {
	K_none,
	K_axes,
	K_dims,
	K_perm,
	K_slice,
	K_pad,
	K_window,
	K_axis,
	K_type,
	K_const,
	K_slot,
	K_rand,
	K_iota,
	K_act,
	K_norm,
	K_cum,
	K_scatter,
	K_attend,
	K_narrow,
	K_loop,
	K_result
} AttrKind;

typedef struct Prim {
	const char *name;
	Class cls;
	int arity; // -1: any
	const char *type;
	AttrKind attr;
	int weight;
	const char *text;
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

static inline bool is_float(Elem e)
{
	return elems[e].cls == 'f';
}
static inline bool is_signed(Elem e)
{
	return elems[e].cls == 'i';
}
int op_named(const char *);         // -1 when there is none
bool is_condition(Op, int operand); // a b8 among operands of another type
int elem_named(const char *);       // -1
int act_named(const char *);        // -1

// ---- values ---------------------------------------------------------------------------

enum { RANK = 10, NUMS = 3 * RANK + 4 };

// Sizes and counts (is_countable) stay far from what 64 bits hold, so nobody's index arithmetic
// overflows.
enum { SIZE_BITS = 57 };

typedef struct Shape {
	int rank;
	int64_t dim[RANK];
} Shape;

typedef uint32_t Ref; // index into Graph.val; 0 is no value

typedef struct Attr {
	int n;           // how many of i are used; a value's holds no more
	double x;        // eps, fill or scale
	int64_t i[NUMS]; // as prims.def says of the primitive's attr kind
} Attr;

typedef struct Val {
	Op op;
	Elem type;
	Shape shape;
	int nin;
	const Ref *in;
	const Attr *attr; // never NULL
	const void *data; // const: the bytes, row major, little endian; loop: its body, a Graph
	int from;         // index into Graph.node: the file's node it stems from; 0: none
} Val;

typedef struct Node { // an operator of the file: what reports and errors speak of
	const char *name, *op;
	const char *module; // of the author's program: encoder.layer.0.attention; NULL: not told
	const char *line;   // of that program: model.py:32; NULL: not told
} Node;

typedef struct NodeList { // a graph made of another has the same
	Arena *arena;
	VEC(Node) list;
} NodeList;

typedef enum SlotKind {
	S_input,  // a batch brings it
	S_param,  // trained, written back to the file
	S_frozen, // a weight of the file that is not trained
	S_buffer, // not trained but may be stored to, and written back: BatchNorm's statistics
	S_state,  // the optimizer's and the trainer's: not in the file
} SlotKind;

typedef struct Slot {
	const char *name; // the parameter's name, as its author knows it
	const char *file; // the initializer it lives in; NULL: none
	SlotKind kind;
	Elem type; // as the graph reads it (weights of other float types are widened to f32)
	Shape shape;
	const void *init;  // row major, of `type`; NULL: zeros (inputs: none)
	const char *why;   // frozen, buffer: why it is not trained; param: why a person should say
	                   // whether it is; NULL: no reason
	int64_t limit;     // labels, indices: data lie in [0, limit); 0: none is known
	int64_t ignore;    // labels that do not count (-100); 0: none
	struct View *view; // onnx floor: how the parameter lies in its initializer
} Slot;

// Where the size of an out depends on the data, its shape is the most that it can be, and another
// out, SHAPE_OF its name, tells what it is: i64[rank].
#define SHAPE_OF "shape:"
// An out CHECK_OF "node 'X' (Gather): index out of range; expected 0 to 4" is such an index, i64[];
// 0: none is; INT64_MIN stands for index 0. The runtime fails with this message.
#define CHECK_OF "check:"
typedef struct Out {
	const char *name;
	Ref val;
} Out;

typedef struct Store { // at the end of a run, slot := val
	int slot;
	Ref val;
} Store;

// Which wholes no rule of the book makes, since they have been opened. Gradients open attend.
typedef enum Decomposed { DECOMPOSED_NONE, DECOMPOSED_ATTEND, DECOMPOSED_ALL } Decomposed;

typedef struct Graph {
	Arena *arena;
	const char *name;  // the file
	Val *vals[CHUNKS]; // the first is unused
	int nval;
	VEC(Slot) slots;
	VEC(Ref) reads; // by slot: the value that reads it; 0: none does
	VEC(Out) outs;
	VEC(Store) stores;
	NodeList *nodes; // of all graphs of the file: list.at[0] is {"", ""}
	Table *interned; // structural key -> Ref; NULL until a value is put
	Table *starts;   // a concat -> where its parts begin; NULL until it is asked for
	Table *named;    // name of a slot -> its number + 1
	const struct Book *book;
	int from;       // stamped on every value put
	Table *lengths; // of dynamic values; NULL: there are none
	Ref refused;    // a length that has to be fixed: why the last put failed; 0
	Table *limits;  // onnx floor: Ref -> what the numbers in a value can be
	Decomposed plain;
	bool wide; // computes in double: f32 is f64, but in slots that are no inputs, and in draws,
	           // which are widened where they are read
	bool unaliased; // a slot's cast to its own type is a value: see graph_unalias
} Graph;

// A loop: its body is a graph whose slots are, in order, the carried values, an entry of each
// scanned value (along its first axis), and the fixed values. Its outs are: whether another trip
// follows (`until`: a b8), the carried values for the next trip, and an entry of each stacked
// result. Operand 0 limits the trips (i64, rank 0); the others stand for the slots.
typedef struct LoopInfo {
	const Graph *body;
	int64_t trips; // at most
	int carried, scanned, fixed, stacked;
	bool reverse; // entries are visited from the last one that the limit leaves to the first
	bool until;
} LoopInfo;

// ---- graph.c: the door ----------------------------------------------------------------

Graph *graph_new(Arena *, const char *name, const struct Book *);
// An empty graph with the same slots (same numbers), nodes and book: what a pass puts into.
Graph *graph_like(Arena *, const Graph *);
Graph *graph_inside(Arena *, const Graph *); // the same without slots: for the body of a loop

// The only way a value enters a graph. Types it, folds constants (results of at most FOLD_LIMIT
// elements), shares equal values, and asks the book for something lighter. A mistake in types or
// shapes is fail() at the current node (g->from): found and wanted.
Ref put(Graph *, Op, int nin, const Ref *in, const Attr *);
enum { FOLD_LIMIT = 1 << 16 };

Ref put_const(Graph *, Elem, Shape, const void *bytes); // copies
Ref put_loop(Graph *, const LoopInfo *, const Ref *in);
Ref put_num(Graph *, Elem, double);                 // rank 0
Ref put_slot(Graph *, int slot);                    // the slot's contents
Attr attr_copy(const Val *);                        // a copy to be changed
bool commutes(Op);                                  // may its two operands change places?
Ref put_as(Graph *to, const Val *v, const Ref *in); // v's op and attr on new operands, origin kept
int add_slot(Graph *, Slot);                        // its number
int find_slot(const Graph *, const char *name);     // -1
Ref find_output(const Graph *, const char *name);   // 0
Ref slot_ref(const Graph *, int slot);              // the value that reads it; 0: none does
void add_out(Graph *, const char *name, Ref);
bool is_own_out(const char *name);      // of the model: not SHAPE_OF, not CHECK_OF
void add_store(Graph *, int slot, Ref); // a second store to a slot replaces the first
int add_node(Graph *, const char *name, const char *op); // which stay as long as the graph

static inline const Val *val(const Graph *g, Ref r)
{
	return ITEM(g->vals, r);
}
Ref ref_of(const Graph *, const Val *); // where it lies

// The live values of `from` put into `to`, some exchanged: now[r] is what `put` answers for value
// r, v, on operands `in` that stand for its own.
typedef Ref Rewrite(void *context, Graph *to, const Val *v, const Ref *in);
void copy_values(Graph *to, const Graph *from, Ref *now, Rewrite *put, void *context);
// Outs and stores: now[r] stands for r.
void copy_ends(Graph *to, const Graph *from, const Ref *now);

// The values that outs and stores need, others dropped; same slots and nodes. (Dead values go this
// way.)
Graph *graph_live(Arena *, const Graph *);
void graph_shrink(Graph *); // the same in its place: values get other numbers
// The same, and what one slot held that is stored in another is a value of its own: kernels may
// exchange slots.
Graph *graph_unalias(Arena *, const Graph *);
// live[r]: r is needed by outs or stores. In `arena`, nval entries.
bool *graph_marks(Arena *, const Graph *);
int *graph_uses(Arena *, const Graph *); // how often each live value is an operand, out or store

// ---- dynamic.c: axes of which the data decide the length ------------------------------

// By axis how many elements are valid, the first ones (i64, rank 0); 0: all, for good. The others
// are padding. put() propagates lengths from operands to results.
typedef struct Lengths {
	Ref of[RANK];
} Lengths;
const Lengths *lengths_of(const Graph *, Ref);
bool is_dynamic(const Graph *, Ref);      // has it a length? Of 0: no
Ref put_length(Graph *, Ref x, int axis); // i64, rank 0
// How many valid elements x has along these axes (NULL: the first naxes), i64, rank 0.
Ref put_size(Graph *, Ref x, int naxes, const int64_t *);
Ref put_valid(Graph *, Ref x, int axis, Ref length);   // x with that length
Ref put_filled(Graph *, Ref x, int axis, double with); // x, padding along the axis replaced
Ref put_all_filled(Graph *, Ref x, double with);       // along all axes
Ref put_padded(Graph *, Ref x, int axis);         // x, padding along the axis as valid as the rest
Ref put_all_padded(Graph *, Ref x);               // along all axes
Ref put_lengths(Graph *, Ref x, const Lengths *); // x with these lengths
// The lengths of x reshaped, beside those that `to` gives. False if valid elements would move.
bool reshaped_lengths(Graph *, Ref x, const Shape *, Lengths *to);

// ---- builder.c: short forms of put(), one for each common shape of call -----------------

Ref put1(Graph *, Op, Ref);
Ref put2(Graph *, Op, Ref, Ref);
Ref put3(Graph *, Op, Ref, Ref, Ref);
Ref put_reduce(Graph *, Op, Ref, int naxes, const int64_t *axes);
Ref put_cast(Graph *, Ref, Elem);
Ref put_reshape(Graph *, Ref, Shape);
Ref put_expand(Graph *, Ref, Shape);
Ref put_permute(Graph *, Ref, const int64_t *perm);
Ref put_slice(Graph *, Ref, const int64_t *start, const int64_t *count, const int64_t *step);
Ref put_pad(Graph *, Ref, const int64_t *before, const int64_t *after, double fill);
Ref put_concat(Graph *, int axis, int n, const Ref *);
Ref put_gather(Graph *, Ref x, Ref index, int axis);
Ref put_scatter(Graph *, Ref x, Ref index, Ref update, int axis, int mode);
Ref put_iota(Graph *, Shape, int axis);
// x aligned to `rank` by leading axes of 1 (numpy's rule), for maps over operands of unequal rank.
Ref put_rank(Graph *, Ref, int rank);
Ref put_broadcast(Graph *, Ref, Shape); // aligned to its rank, and stretched to it
// Of the entries along one axis of a value shaped so: 0, 1, .., of size 1 along the others.
Ref put_numbers(Graph *, const Shape *, int axis);
Ref swap_last(Graph *, Ref); // the last two axes
Ref move_axis(Graph *, Ref, int from, int to);

// ---- simplify.c: what the door knows by structure alone: a simpler value than op(in; attr), or 0

Ref identity(Graph *, Op, int nin, const Ref *in, const Attr *, const Shape *);

// ---- loop.c: loops made, read, made leaner, and laid out as the trips they make -------------

LoopInfo loop_of(const Val *);
int loop_operands(const LoopInfo *), loop_results(const LoopInfo *);
const Val *result_val(const LoopInfo *, int k); // of the body: for stacked results an entry
Shape result_shape(const LoopInfo *, int k);
Ref result_ref(const LoopInfo *, int k); // of the body, likewise
Ref loop_result(Graph *, Ref loop, int k);
// The loop without what no trip or wanted result (want: by number; NULL: all) needs, and with what
// is the same in all trips computed before it. Answers how many trips it makes; part[k]: result k
// where it is wanted.
Ref put_trimmed_loop(Graph *, const LoopInfo *, const Ref *in, const bool *want, Ref *part);
// The first `most` trips one after the other, for as many as the limit says at most; further
// entries of stacked results repeat the last. Where the limit is a constant and `most` no less: the
// loop.
void unroll_loop(Graph *, const LoopInfo *, const Ref *in, int64_t most, Ref *part);
// The body's values in g, its slots being `slot`; by Ref.
Ref *put_body(Graph *, const Graph *body, const Ref *slot);
bool makes_all_trips(const Graph *, const LoopInfo *, const Ref *in); // as is known
// How many trips it makes, where no data decide and they are at most `most`; -1: not known.
int64_t known_trips(Graph *, const LoopInfo *, const Ref *in, int64_t most);

// ---- shape.c: shapes and axes ---------------------------------------------------------

// True if a value may have this shape: at most 2^SIZE_BITS elements, empty axes taken as 1.
bool is_countable(const Shape *);
int64_t count_of(const Shape *); // INT64_MAX for more than 64 bits hold, which is not countable
int64_t byte_count(Elem, const Shape *);
int64_t bytes_of(const Val *);
int64_t last_dim(const Shape *);          // 1 where there is none
int64_t common_divisor(int64_t, int64_t); // the greatest, never negative
bool same_shape(const Shape *, const Shape *);
Shape shape_of(int rank, const int64_t *dims);
void row_strides(const Shape *, int64_t *stride);     // in elements, row major
Shape stacked_shape(int64_t n, const Shape *entry);   // n of them along a new first axis
const char *shape_text(Arena *, Elem, const Shape *); // f32[2,3]
bool has_axis(const Attr *, int axis);                // K_axes: is it folded?
// The shape a fold, softmax or norm of `v` gives: axes become 1.
Shape reduced_shape(const Shape *, int n, const int64_t *axes);
bool is_reduced(const Shape *, const Shape *space,
                uint32_t reduce);                  // is it `space` with these axes 1?
uint32_t axes_mask(const Val *);                   // of a reduction or dot, as bits
bool same_axes(const Shape *, uint32_t, uint32_t); // except for axes of 1
// Is element i of scores [.., queries, keys] of a key behind its query? Both are aligned at the
// end.
bool is_future_key(const Shape *scores, int64_t i);

// ---- type.c, type_shape.c: what op(in..; attr) is -------------------------------------

// Fails at the graph's current node, which graph_where() names.
const char *graph_where(const Graph *);
void type_of(const Graph *, Op, int nin, const Ref *in, const Attr *, Elem *, Shape *);
void check_loop(const Graph *, const LoopInfo *, const Ref *in); // the same for loops

// ---- constant.c: what is known of values ----------------------------------------------

bool is_const(const Graph *, Ref);
bool const_num(const Graph *, Ref, double *); // every element of the constant is this number
// Small and known, 0 but where the key is behind its query, and there at most -1e30: added to
// scores, it hides what comes later.
bool const_causal(const Graph *, Ref);
// Small known integers (constants, iota, what is made of them); *n is room, then count.
bool const_ints(const Graph *, Ref, int64_t *out, int *n);
double const_at(const Val *, int64_t i); // element i of a const as a double
int64_t const_int_at(const Val *, int64_t i);

// ---- notation.c: one lexer and one expression parser for pages, graphs and --loss -----

typedef enum ExprKind { X_num, X_name, X_text, X_list, X_call } ExprKind;

typedef struct Expr {
	ExprKind kind;
	double x;         // num
	const char *name; // name, text, call
	bool quoted;      // name
	int var; // name: its number among the variables of its line; -1: looked up when evaluated
	Op op;   // call: the primitive; OPS: a function or a definition
	int nin, nattr; // call: operands and attributes; list: nin elements
	bool number;    // in the left side of a rule: matches a constant
	int depth;      // of calls inside one another
	struct Expr **in, **attr;
} Expr;

typedef enum TokenKind { T_end, T_line, T_indent, T_name, T_num, T_sign } TokenKind;

typedef struct Lexer {
	Arena *arena;
	const char *where, *at; // the text's name; what follows the current token
	int line, depth;        // depth: open brackets, inside which line ends do not count
	TokenKind kind;
	const char *word; // name or sign; a number as it is written
	double x;
	bool quoted;
} Lexer;

Lexer *lexer_open(Arena *, const char *where, const char *text); // stands at the first token
void lexer_next(Lexer *);
bool lexer_is(const Lexer *, const char *word); // is the current token this sign or bare name?
bool lexer_take(Lexer *, const char *word);     // if so, goes past it
void lexer_expect(Lexer *, const char *word);   // goes past it or fails
const char *lexer_name(Lexer *);                // a name, passed; fails on anything else
char *lexer_place(const Lexer *);               // "where:line", for errors
Expr *parse_expr(Lexer *);
Expr *parse_composite(Arena *, const char *where, const char *text); // nothing follows

// What an expression means: a value, or an attribute (a list of integers, a number, a text).
typedef struct Item {
	enum { I_none, I_ref, I_num, I_list, I_text } kind;
	Ref ref;
	int input; // of the node being lowered: its number + 1
	double x;
	const char *text;
	int n;
	int64_t i[NUMS];
} Item;

// Attributes as they are written: one letter an item, in order. A axes, a axis (both may count from
// the end), L list (lists of one primitive interleave), i integer, x number. In Attr.i integers
// come before lists.
const char *attr_layout(AttrKind);
int64_t wrap_axis(const char *where, int64_t axis, int rank); // from the first; fails outside
Attr attr_join(const char *where, Op, int rank, int nitem, const Item *); // rank: of operand 0
int attr_split(Op, const Attr *, Item *);                                 // how many items

// ---- expr.c: what an expression means -------------------------------------------------

typedef Ref Lookup(void *context, const char *name); // answers a name, or 0
// An expression in the notation over named values (for --loss).
Ref book_eval(Graph *, const char *where, const char *text, Lookup *look, void *context);
Ref eval_expr(Graph *, const char *where, const Expr *, Lookup *look, void *context);
// An expression over numbers alone (for --eta): `sqrt(2 / 768)`.
double book_number(Arena *, const char *where, const char *text);

typedef struct Scope {
	Graph *g;
	const struct Book *book;
	const char *where;
	Item *var;    // by Expr.var
	Lookup *look; // for names without a number
	void *context;
	int depth;
	const struct Host *host; // NULL: none
} Scope;
typedef struct Host { // who evaluates lines with functions of its own
	void *context;
	bool (*call)(Scope *, const Expr *, Item *result); // false: no function is called so
} Host;
Item eval_item(Scope *, const Expr *);
const char *scope_where(const Scope *); // the node that a value is put for, else the line
char *text_of_items(Scope *, int n, Expr *const *); // one behind the other
Ref item_ref(Scope *, const Item *, Elem);          // a number becomes a constant of that type
bool same_list(const Item *, const Item *);
bool literal_name(const char *, double *); // names of types and activations are their numbers
struct Def;
// The definition's first `nout` results; `var` holds its operands and attributes, and has room for
// its locals.
void run_def(const Scope *, const struct Def *, Item *var, int nout, Item *out);

// ---- book.c, rule.c: definitions and equations as text --------------------------------

typedef struct Def { // a definition, or a line about a primitive: what a whole means, a gradient
	const char *place; // file:line
	const char *name;
	int nin, nattr, nlocal, nresult, nvar;
	uint32_t optional;  // bit k: operand k
	const char **names; // of the variables: operands, attributes, (gradients:) out, g, locals
	Expr **attr; // definitions: default values or NULL; about a primitive: a number to match,
	             // or a name
	Expr **local, **result;
	struct Def *next; // same name, other operands or other attributes
} Def;

typedef struct FormCase { // one way to write what the left sides of rules call by one name
	const char *place;
	Expr *head, *body; // head: a call of its name
	int ntest;
	Expr **test;
	struct FormCase *next; // another way
} FormCase;

typedef struct Rule { // left => right if tests
	const char *place;
	Expr *left, *right;
	int ntest, nvar;
	Expr **test;
	const char **names;
	Decomposed rests;  // in graphs as plain as this; DECOMPOSED_NONE: in none
	struct Rule *next; // same primitive on the left
} Rule;

typedef struct Book {
	Arena *arena;
	Table *defs;  // name -> Def *
	Table *forms; // name -> Spelling *
	Rule *rules[OPS];
	Def *composites[OPS], *grads[OPS];
} Book;

const Book *book_builtin(void); // all of compiler/book, embedded at build, read once a process
// A definition called: operands by position; attributes (ints after the `;`) by name, each a list;
// nout results.
typedef struct AttrArg {
	const char *name;
	int n;
	const int64_t *ints;
	double x; // when n is 0: a number
} AttrArg;
void book_run(Graph *, const Host *, const char *def, int nin, const Ref *in, int ngiven,
              const AttrArg *, int nout, Ref *out);
void book_call(Graph *, const char *def, int nin, const Ref *in, int ngiven, const AttrArg *,
               int nout, Ref *out);
Ref book_call1(Graph *, const char *def, int nin, const Ref *in, int ngiven, const AttrArg *);
// What rule.c gives the door: a lighter value that equals op(in; attr), or 0.
Ref book_rewrite(Graph *, Op, int nin, const Ref *in, const Attr *);
// The definition of a whole, one step.
Ref book_decompose(Graph *, const Val *, const Ref *in);
// Gradients of `v`'s operands given that of its result; dx[k] = 0 where there is none. Not yet
// fitted to shapes.
void book_grad(Graph *, const Val *v, Ref out, Ref g, const Ref *in, Ref *dx);
// book.c for rule.c and expr.c.
const Def *find_def(const Book *, const char *name, int nin); // NULL
typedef VEC(const char *) Names;
// Numbers the names in `e` by `names`. One that is not there is added if `add` allows; else it must
// be a type or an activation, and becomes its number.
void number_names(const char *place, Arena *, Expr *e, Names *names, bool add);
// rule.c: reads `left => right [if test, ..]`; what stands behind the word `form`.
void rule_read(Book *, Lexer *);
void form_read(Book *, Lexer *);

// ---- adjoint.c: moves backwards -------------------------------------------------------

Ref put_unslice(Graph *, Ref, const Shape *to, const int64_t *start, const int64_t *step);
Ref put_unwindow(Graph *, Ref, const Shape *to, int nrow, const int64_t (*row)[7]);
Ref put_rows(Graph *, Ref, const Shape *other);

// ---- text.c: graphs and plans as text; what prints can be read back -------------------

void print_graph(FILE *, const Graph *);
char *graph_text(Arena *, const Graph *);
char *name_text(Arena *, const char *name); // in quotes where it is no plain name
// Reads a graph from its first line up to the end of the text, or a line `plan` or `entry`.
Graph *lexer_graph(Lexer *, const Book *);
Graph *parse_graph(Arena *, const char *where, const char *text, const Book *);
int *number_values(Arena *, const Graph *); // by Ref: the number a value has in the text; 0: none

// ---- array.c: arrays of numbers -------------------------------------------------------

typedef struct Array {
	Elem type;
	Shape shape;
	union {
		double *f;  // classes f
		int64_t *i; // classes i, u, b
	};
	const struct Array *part; // a loop: its results
} Array;

Array array_from(Arena *, Elem, const Shape *, const void *bytes);
void array_to(const Array *, void *bytes); // in its type
Array slot_start(Arena *, const Slot *);   // what it holds before the first run
double element_at(const Array *, int64_t i);
float half_to_float(uint16_t), bf16_to_float(uint16_t);
uint16_t float_to_half(float), float_to_bf16(float);

// ---- eval.c: the oracle: any value as numbers, by the meaning of the primitives alone -
// Floats are computed in double whatever their type; integers wrap to theirs.

Array eval_prim(Arena *, Op, const Attr *, Elem, const Shape *, int nin, const Array *in);
// One value of g, given its operands.
Array eval_value(Arena *, const Graph *, Ref, const Array *slot, const Array *in);
// Every live value of g; slots from `slot` (by number). Result by Ref.
Array *eval_graph(Arena *, const Graph *, const Array *slot);
// The same; each value is handed to `touch` before others read it, those of bodies at every trip.
typedef void Touch(void *context, Arena *, const Val *, Array *);
Array *eval_touched(Arena *, const Graph *, const Array *slot, Touch *touch, void *context);
// What rand means.
double random_uniform(uint64_t seed, uint64_t step, uint64_t site, uint64_t position);

#endif
