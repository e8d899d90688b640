// index.h: declares the algebra of indices, sums of variables, and what a kernel's expressions
// read. Passes analyze memory accesses by it, and emit writes the code of indices.
#ifndef INDEX_H
#define INDEX_H
#include "plan.h"

// ---- index.c: the algebra of indices --------------------------------------------------

enum { TERMS = 8 };
typedef struct Index {
	int64_t constant;
	int n;
	struct Term {
		int var;
		int64_t coef;
	} term[TERMS]; // by var, ascending; coef is never 0
} Index;

typedef struct Var { // 0 <= variable < extent
	enum { V_given, V_div, V_mod, V_sum } kind;
	Index of; // div, mod, sum
	int64_t by;
	int64_t extent;
	int64_t align;     // it is a multiple of this
	struct Code *code; // emit; NULL: none yet
} Var;

typedef struct Vars {
	Arena *arena;
	VEC(Var *) list;
	Table *split; // div and mod variables by what they divide
} Vars;

Vars *vars_new(Arena *);
Index constant_index(int64_t);
Index new_variable(Vars *, Var);
Index some_index(Vars *, int64_t extent);                             // a given variable
Index add_index(Vars *, const Index *, const Index *, int64_t times); // a + times * b
Index shift_index(Index, int64_t);
void split_index(Vars *, const Index *, int64_t by, Index *quotient, Index *rest);
void index_range(const Vars *, const Index *, int64_t *low, int64_t *high); // inclusive
bool index_fits(const Vars *, const Index *, int64_t extent);               // in [0, extent)
// Writes x as words, equal for equal indices. Returns their number.
enum { INDEX_WORDS = 2 + 2 * TERMS };
int index_words(const Index *x, int64_t *key);
void unravel(Vars *, const Index *linear, const Shape *, Index *idx);
Index ravel(Vars *, const Shape *, const Index *idx); // row-major position
// A divisor of the index; 0: the index is 0.
int64_t index_align(const Vars *, const Index *);

// ---- moves.c: what moves read ---------------------------------------------------------

// Sets `in` to the index of operand k that element idx of a move reads. The element is the
// operand's if `in` lies inside of it and the n entries of `zero` are 0, else the fill. Returns n.
int operand_index(Vars *, const Graph *, const Val *, int k, const Index *idx, Index *in,
                  Index *zero);
// Returns what a step of a window reads along an axis: a position between elements as well, if the
// value is dilated.
Index window_position(Vars *, const WindowAxis *, const Index *window, const Index *step);
// Sets `own` to the element that a broadcast of `shape` reads at idx: 0 along axes of size 1.
void index_within(const Shape *, const Index *idx, Index *own);
// True if a move may read outside of its operand, where it has a fill.
bool has_fill(Op);
bool concat_reaches(const Vars *, const Graph *, const Val *, int k, const Index *idx);

// Distinguishes what a kernel computes from what it reads from memory.
struct Inside {
	bool (*holds)(const void *context, Ref);
	const void *context;
};

// Follows moves from element idx of r. True if they end in memory, at row-major position *place,
// and read no fill.
bool locate(Vars *, const Graph *, const Inside *, Ref *r, Index *idx, Index *place);
// Returns how far an index moves when the given variable `x` grows by one; IRREGULAR if it varies.
enum { IRREGULAR = INT32_MIN };
int64_t stride_along(const Vars *, const Index *, const Index *x);
typedef struct Stride { // of an operand: from row to row, from column to column
	bool fixed;     // it lies in memory at such strides
	bool panels;    // with all columns of the last panel
	int64_t down, along;
	int64_t bytes; // of an element
} Stride;
Stride strides_of(Vars *, const Graph *, const Inside *, Ref, const Index *idx, const Index *row,
                  const Index *column);
// Returns how many values in memory that element idx of r reads are not contiguous along x.
int far_reads(Vars *, const Graph *, const Inside *, Ref, const Index *idx, const Index *x);

// ---- dot_sizes.c ------------------------------------------------------------------------

// Sets idx to the index of operand o (0: a, 1: b) of a product at an element of the matrix.
void dot_index(Vars *, const Graph *, const Val *, const DotSizes *, int o, const Index *batch,
               const Index *row, const Index *column, Index *idx);
// Returns the strides of operand o; of b, along the columns of a panel if memory has all of them.
Stride operand_stride(Vars *, const Graph *, const Inside *, const Val *, const DotSizes *, int o,
                      const Index *batch);
// True if pairs of the right operand along k, which one instruction multiplies, are adjacent in
// memory, and so are the pairs of a panel in the order in which the tile, or each matrix register,
// loads them. Sets the strides, in pairs.
bool lies_in_pairs(Vars *, const Graph *, const Inside *, const Val *, const DotSizes *,
                   const Index *batch, Stride *b);

// ---- patch.c ----------------------------------------------------------------------------

bool windows_overlap(const Val *window);
// Returns the windows of which r is a move; NULL: it is none.
const Val *windows_under(const Graph *, Ref r);
// Follows moves from element idx of r to the value under windows. False if there are none.
const Val *windows_of(Vars *, const Graph *, const Inside *, Ref *r, Index *idx, double *fill);
// False if the rows of the left operand are not windows, or are too irregular.
bool find_patch(Arena *, const Graph *, const Inside *, const Val *dot, const DotSizes *, Patch *);
// False if the windows of a patch, which are rows or columns of the left operand, are not 3 x 3,
// one at every position, with contiguous channels.
bool find_squares(const Graph *, const Patch *, Squares *);

// ---- turn.c -----------------------------------------------------------------------------

enum { SQUARE = 16 }; // elements of a vector, at most
typedef struct Turn {
	Ref from; // what is copied
	// Axes along which it is contiguous, the innermost first, and their elements.
	int nacross, across[RANK];
	int64_t count;
	int lanes;             // the first of the axes along which the copy is contiguous
	int64_t columns, rows; // their elements, and those of all other axes
	// The last axis has pairs of 2 bytes each: of neighbors, which move as one, or of elements
	// of two lines, in which the axis before the last is contiguous.
	enum { T_single, T_neighbors, T_lines } pairs;
} Turn;
// As locate; of a value in f16 or bf16, goes on through casts to its type, or from fewer bits.
bool locate_copied(Vars *, const Graph *, const Inside *, Ref *r, Index *idx, Index *place);
// False if `out` is not a copy of a value in memory, or is contiguous where that is.
bool find_turn(Arena *, const Graph *, const Inside *, Ref out, Turn *);

// ---- coalesce.c: axes that can be merged ----------------------------------------------

typedef struct Groups {
	int n;
	int first[RANK], last[RANK]; // axes
	int64_t size[RANK];
	bool reduced[RANK];
} Groups;
// Returns the axes of `shape` in `mask`, as bits, that can be merged with the axis in it before
// them: all values needed for `roots` (at idx, except its entries in mask) allow it, and both or
// neither are reduced.
uint32_t coalesce(Vars *, const Graph *, const Inside *, int nroot, const Ref *roots, const Shape *,
                  uint32_t mask, uint32_t reduce, const Index *idx);
// Returns the axes in `mask` as groups. Axes of size 1 are in no group.
Groups groups_of(const Shape *, uint32_t mask, uint32_t reduce, uint32_t merged);
Groups kern_groups(const Kern *); // Returns the axes of a scheduled kernel's space as groups.
// Sets the entries of idx that group k covers, from its position.
void group_index(Vars *, const Groups *, int k, const Shape *, const Index *position, Index *idx);
// Sets the entries of idx that the groups in `which` cover, from the number of a row of them.
void row_index(Vars *, const Groups *, uint32_t which, const Shape *, const Index *row, Index *idx);

#endif
