// attend_tile.h: declares the packing, softmax, prefetching and products of attention by vectors
// and matrix registers, for attend.c.
#ifndef ATTEND_TILE_H
#define ATTEND_TILE_H
#include "attend.h"

LLVMTypeRef attend_vector(const Attend *);
// Of local memory: the address of element i, the vector or the one there, a vector stored there.
Value local_element(const Attend *, Value memory, Value i);
Value local_load(const Attend *, Value memory, Value i);
Value local_load_one(const Attend *, Value memory, Value i);
void local_store(const Attend *, Value, Value memory, Value i);
Value minus(Gen *, Value x, Value y);
Value clamp_to(Gen *, Value x, Value most); // to [0, most]
Value round_up(Gen *, Value x, int64_t by);
Index row_index_of(const Attend *, Value i, int64_t count); // row i, or the last one
// Copies `count` rows of an operand from row `first` on: with panel > 0 into panels of so many
// columns, rows of a panel adjacent and panels `line` apart; else as rows `line` apart.
void copy_operand(const Attend *, int o, Value first, Value count, Value memory, int64_t line,
                  int64_t panel);
// Packs the block's rows of an operand as columns, times `factor`: panels of keys, `line` apart.
void pack_columns(const Attend *, int o, Value memory, int64_t line, double factor);

// ---- bf16, for products of pairs and matrix registers: attend_halves.c

Ref read_operand(const Attend *, int o); // or what it widens from bf16
Value half_element(const Attend *, Value memory, Value i);
int64_t half_slice(const Attend *, int part); // elements from slice to slice of local memory
// Stores elements of f32 as bf16, or as all slices (small: as in slice()), from element i on.
void store_halves(const Attend *, Value, bool small, int part, Value i);
typedef struct HalfRows { // `count` rows of an operand, up to as many as pairs or a panel have
	int operand;
	Value first, count;
	int rows, pairs; // local memory where they are packed as rows and as pairs; AT_PARTS: not
	int64_t line;    // of pairs, in f32: panels are so far apart
} HalfRows;
void pack_halves(const Attend *, const HalfRows *);
// Like pack_columns: pairs of columns.
void pack_half_columns(const Attend *, int o, int part, int64_t line);
// Turns the rows of a strip, of keys [0, end), to columns from `line` on of rows by key.
void turn_strip(const Attend *, int rows, int by_key, Value line, Value end);

// ---- prefetching and products: attend_tile.c

// Rows that a head touches after this one's products, of which each call of a tile prefetches its
// share: all at once, the next loads would wait for them.
typedef struct Ahead {
	int64_t calls, iterations; // of the tile: for a head; of a call, unrolled
	int count;
	struct Stream stream[STREAMS];
	Value from[STREAMS]; // row 0
	int64_t rows[STREAMS];
	Value call; // variable
} Ahead;

// Of a product of strips, in the head that has begun: so many columns, -1: those of keys, and
// steps.
Ahead ahead_new(const Attend *, int64_t columns, int64_t steps);
void add_operand(const Attend *, Ahead *, int o); // the rows of an operand that the next head reads
void add_output(const Attend *, Ahead *, Op);     // the rows that this head stores in an output

// The same where tiles prefetch nothing: a share for each query of the head.
void prefetch_rows(const Attend *, const Ahead *, Value query);

// Tiles by height: that of a strip, and one row less, or NULL; narrow: of one vector, for the last
// columns, which prefetches nothing, or NULL.
typedef struct Product {
	Value tile[2], narrow[2];
	int64_t line; // elements of b from panel to panel
	Ahead ahead;
} Product;

// Around all products: the matrix registers, if they have any.
void attend_begin(const Attend *), attend_end(const Attend *);

typedef struct Layout { // elements from row to row, from step to step
	int64_t rows, a_row, a_step, b_step, c_row;
	int a, b; // local memory
} Layout;

// lower: with tiles of one row less; narrow: with those of one vector.
Product product_new(const Attend *, Layout, int64_t line, bool lower, bool narrow, const Ahead *);
// True if a product of so many columns, -1: that vary, has a narrow tile for the last.
bool has_narrow_rest(const Attend *, int64_t columns);
// Of rows that are those of a strip, and so many columns; -1: they vary.
Product strip_product(const Attend *, Layout, int64_t line, int64_t columns, const Ahead *);

typedef struct Operands {
	Value steps, a, b, c;
	Value again; // true: adds to c
} Operands;

// narrow: by the tile for the last columns.
void multiply_panel(const Attend *, const Product *, bool narrow, Value panel, const Operands *);

typedef void PanelBody(const Attend *, const Product *, bool narrow, Value panel,
                       const void *context);
// Runs the body for the panels of the first `columns` columns, and perhaps some more.
void each_panel(const Attend *, const Product *, Value columns, PanelBody *, const void *context);
void multiply_panels(const Attend *, const Product *, const Operands *, Value columns);

// ---- rows of scores: attend_rows.c

Value shift_of(const Attend *);                // query i sees keys up to i + shift
Value visible_to(const Attend *, Value query); // how many keys of the block it sees
// Turns the scores of the strip into probabilities, relative to the largest of their row so far;
// its statistics and sums begin at these rows of the worker's.
void soften_strip(const Attend *, const Ahead ahead[2], Value stat, Value sums, Value again);
// Clears the gradients of a bias that this head is the first to add to.
void clear_bias_slopes(const Attend *);
// Turns the scores of the strip, at line `line` of AT_SCORES, into probabilities, and the gradients
// of these into those of scores.
void slope_strip(const Attend *, const Ahead ahead[3], Value line, Value end);

#endif
