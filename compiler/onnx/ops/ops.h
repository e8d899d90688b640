// ops.h: declares what the files of ops/ share, file by file.
#ifndef OPS_H
#define OPS_H
#include "lower.h"

// ---- book.c ---------------------------------------------------------------------------

Lower lower_book, lower_map; // by a line of the book; lower_map: integers wrap as the file's
// Fills in the attributes of an operator's line on one value with their defaults; returns how many
// there are, -1 if there is no such line.
enum { MOST_NUMBERS = 4 };
int numbers_of(const Graph *, const char *op, AttrArg *);

// Functions that only lines of the reader have; each evaluates a call, and is described where it is
// defined.
typedef Item Function(Call *, Scope *, const Expr *);
Function fn_quantize, fn_unpacked, fn_levels;                // quant.c
Function fn_draw, fn_masked_shape;                           // flow.c
Function fn_batch_statistics, fn_running, fn_stored;         // batch_norm.c
Function fn_labels_below, fn_index, fn_inside;               // gather.c
Function fn_scaled_size, fn_source_places, fn_interpolation; // resize.c
Function fn_activation, fn_wave;                             // rnn.c, signal.c
// Operand k, attribute k of a call; I_none if it is left out. As a value, 0 then; as an integer.
Item call_arg(Scope *, const Expr *, int k), call_attr(Scope *, const Expr *, int k);
Ref call_value(Scope *, const Expr *, int k);
int64_t call_integer(Scope *, const Expr *, int k);
double number_of_item(Scope *, const Expr *, Item);
int call_input(Scope *, const Expr *, int k); // the number of the node's input that operand k is
Item ints_item(const Call *, size_t n, const int64_t *);

// ---- quant.c --------------------------------------------------------------------------

// Returns round(x / scale) + zero, clamped to the type `onnx`.
Ref quantized(const Call *, Ref x, Ref scale, Ref zero, int onnx, bool saturate);

// ---- flow.c ---------------------------------------------------------------------------

Ref as_ref(Call *, Value); // fails if it is not a tensor
bool is_tensor(Value);
void give_values(Call *, int n, const Value *);        // the first results
const GraphProto *body_of(const Call *, const char *); // an attribute
Ref tensor_constant(Reader *, const TensorProto *);

// ---- gather.c: indices that lie where they should: constants are checked when the file is read,
// inputs before they are used, and what is computed from data is kept inside ----------------

void add_check(Reader *, const char *text, Ref found); // i64 of any shape; all 0: none found

// ---- map.c ----------------------------------------------------------------------------

Ref num_like(Graph *, Ref x, double);          // a number of x's type, rank 0
Ref put_ints(Graph *, int n, const int64_t *); // i64[n]
// x, of the type of an operand, in i64 that are in its order: uint64 less 2^63. And back.
Ref signed_order(const Call *, int operand, Ref x);

// ---- slice.c --------------------------------------------------------------------------

// Splits an axis of input 0 into n parts of `size` elements; NULL: of `each`, the last ones of
// fewer.
void split_axis(Call *, int axis, int n, const int64_t *size, int64_t each, Ref *part);

#endif
