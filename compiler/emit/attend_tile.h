// attend_tile.h: declares the packing, prefetching and products of attention by vectors
// (attend_tile.c), for attend.c.
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

Ahead ahead_new(const Attend *, int64_t steps); // of a tile of so many, in the head that has begun
void add_operand(const Attend *, Ahead *, int o); // the rows of an operand that the next head reads
void add_output(const Attend *, Ahead *, Op);     // the rows that this head stores in an output

// Tiles by height: that of a strip, and one row less, or NULL; narrow: of one vector, for the last
// columns, which prefetches nothing, or NULL.
typedef struct Product {
	Value tile[2], narrow[2];
	int64_t line; // elements of b from panel to panel
	Ahead ahead;
} Product;

typedef struct Layout { // elements from row to row, from step to step
	int64_t rows, a_row, a_step, b_step, c_row;
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

#endif
