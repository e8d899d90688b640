// ops.h: what the files of ops/ give each other, file by file. Takes lower.h. Seen by them, and by
// the few files beside the folder that do with values as operators do.
#ifndef OPS_H
#define OPS_H
#include "lower.h"

// ---- book.c ---------------------------------------------------------------------------

Lower lower_book, lower_map; // by a line of the book; lower_map: integers wrap as the file's
// Fills in the attributes of an operator's line on one value with their defaults; returns how many
// there are, -1 if there is no such line.
enum { MOST_NUMBERS = 4 };
int numbers_of(const Graph *, const char *op, AttrArg *);

// The positions of the elements of rows in order of their keys [rows, n, m], the smallest first and
// those behind the first `count` (i64, rank 0) last: i64[rows, n].
Ref order_of(Call *, Ref keys, Ref count);

// ---- quant.c --------------------------------------------------------------------------

// Returns round(x / scale) + zero, clamped to the type `onnx`.
Ref quantized(const Call *, Ref x, Ref scale, Ref zero, int onnx, bool saturate);
// Input k, constant bytes, as floats [rows, each]: integers of `bits` bits, the low ones first, in
// rows of whole bytes.
Ref unpack_bits(Call *, int k, int64_t rows, int64_t each, int bits);
// Input k, two levels per constant byte, the high bits first, as n floats padded to whole blocks.
Ref unpack_levels(Call *, int k, int64_t n, int64_t block, bool normal);

// ---- dot.c ----------------------------------------------------------------------------

Ref scaled(Graph *, Ref x, double by);
Ref matmul(Graph *, Ref a, Ref b); // numpy's rules

// ---- flow.c ---------------------------------------------------------------------------

Ref as_ref(Call *, Value); // fails where it is no tensor
bool is_tensor(Value);
void give_values(Call *, int n, const Value *);        // the first results
const GraphProto *body_of(const Call *, const char *); // an attribute
Ref tensor_constant(Reader *, const TensorProto *);
Ref draw_uniform(Reader *, Shape); // in [0, 1)
// Returns the shape to draw: of the input, or of what the mask that is drawn multiplies.
Shape masked_shape(Call *, int input);

// ---- reduce.c ---------------------------------------------------------------------------

bool batch_statistics(const Call *); // true if a BatchNormalization uses the batch's statistics
// Of its mean (k = 0) or variance (1): what it is after all stores so far; what it becomes.
Ref running_statistic(const Call *, int k);
void store_statistic(Call *, int k, Ref);

// ---- gather.c: indices that lie where they should: constants are checked when the file is read,
// inputs before they are used, and what is computed from data is kept inside ----------------

// Labels are to be below `classes`, or the one that is ignored.
void limit_labels(Call *, Ref labels, int64_t classes, const int64_t *ignore);
Ref wrap_index(Call *, Ref index, int axis);   // into operand 0; negative ones count from the end
Ref keep_inside(Call *, Ref index, int64_t n); // in [0, n)
// A run fails where an index is out of [low, high], unless that is proven not to be:
// but for `ignore`, and where the node is not run.
void check_indices(Call *, Ref index, int64_t low, int64_t high, const int64_t *ignore);
void add_check(Reader *, const char *text, Ref found); // i64 of any shape; all 0: none found
Lower lower_gather;                                    // operands in in[0] and in[1]

// ---- map.c ----------------------------------------------------------------------------

Ref num_like(Graph *, Ref x, double);          // a number of x's type, rank 0
Ref put_ints(Graph *, int n, const int64_t *); // i64[n]
// x, of the type of an operand, in i64 that are in its order: uint64 less 2^63. And back.
Ref signed_order(const Call *, int operand, Ref x);

// ---- nonzero.c -------------------------------------------------------------------------

Ref reduce_away(Graph *, Op, Ref x, int64_t axis); // without the axis
Ref counting(Graph *, int64_t n, bool known);      // 0, 1, .. n - 1, i64; known: as a constant
Ref so_far(Graph *, Ref truth);                    // of b8[n]: how many hold before each entry, i64
// Entry to[i] of the result is x[i] for each i that has truth[i], others are 0. All [n], i64 but
// truth.
Ref put_in_order(Graph *, Ref truth, Ref to, Ref x);
Ref places_where(Graph *, Ref truth); // in order the places where truth, b8[n], holds: i64

// ---- rnn.c ------------------------------------------------------------------------------

// x through activation i of a recurrent node, which has `each` for each direction.
Ref recurrent_activation(Call *, Ref x, int i, int each);

// ---- signal.c -------------------------------------------------------------------------

typedef struct Wave { // a transform from `in` entries to `out`, of period `period`
	int64_t in, out, period;
	bool inverse;
	bool halved; // of a spectrum whose other half is its mirror image
} Wave;
// Returns cos (or sin) of 2 pi i o / period, [in, out]; 0 for what lies beyond the period.
Ref wave_matrix(Call *, const Wave *, bool sine);

// ---- slice.c --------------------------------------------------------------------------

Lower lower_concat;

#endif
