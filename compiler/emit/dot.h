// dot.h: declares what the files of a matrix product share.
#ifndef DOT_H
#define DOT_H
#include "gen.h"

typedef struct Dot {
	Gen *g;
	const Sched *s;
	const Val *v;
	DotSizes p;
	Tile tile;
	bool a_rows;    // a is contiguous from row to row
	int64_t b_line; // see steps_of_line()
	bool b_rows;    // b is contiguous along its rows, perhaps before casts: these are copied
	bool b_columns; // b is contiguous along its columns: these are transposed
	Value panel, strip, sums; // memory
	Value square;   // the same, of lines that are computed to be transposed; NULL: none yet
	Value products; // the same, of the points of squares
	Value sum_tile, low_tile; // functions; the other has a row less
	int64_t tall;             // strips before those of the low tile; 0: it is not used
	Value stream[STREAMS];    // of the maps after the product
	struct Stream rows[STREAMS];
	int streams;
	int64_t line[2];     // bytes from line to line of an operand whose squares lie in memory as
	                     // they are transposed; 0: they do not
	int64_t far[2];      // bytes from step to step of an operand in memory; from column to
	                     // column of b, where these are transposed
	bool next[2];        // what is packed next of it is prefetched meanwhile
	Index in_batch, row; // of all batches: the row that is finished
	Value first_batch, end_batch, first_strip, end_strip; // what the worker computes
	Value part;                                           // of k
	Value first_column, count;                            // of panels
	Value block, from, steps;                             // of k
	Value packed;   // variable: strips from this one on are packed for the gang
	Partials parts; // of the kernel's reductions
} Dot;

// ---- dot.c ----------------------------------------------------------------------------

void go_to_block(Dot *, Value block); // of k
int64_t last_steps(const Dot *);      // of the last block of k of a chunk

// ---- strip.c --------------------------------------------------------------------------

Value first_row(Dot *, Value strip);
// Returns where a strip is packed for itself: strips alternate between two places.
Value ahead_memory(Dot *, Value strip);
// Sets the rows that a strip has alone: others belong to the strip before.
void own_rows(Dot *, Value strip, Value *from, Value *to);
// All columns of the worker: those of two vectors at once, since an instruction of one would wait
// for that before it.
void each_column(Dot *, LaneBody *, void *context);
// Computes the outputs for rows from..to of all columns of the worker, whose sums are finished;
// sums: of row `first`.
void finish_rows(Dot *, Value first, Value from, Value to, Value sums);
// Multiplies the strips from..to, which are packed together, by every panel of the worker. again:
// adds to the blocks of k before; done: this is the last, so outputs are computed; NULL: the launch
// after computes them.
void one_group(Dot *, Value from, Value to, Value again, Value done);

// ---- pack.c ---------------------------------------------------------------------------

// Returns the address of operand o, which is in memory, at a step of k and a row of a or column of
// b.
Value in_place(Dot *, int o, Value step, Value other);

// True if an operand's other axis than k is contiguous in memory, perhaps before casts.
bool is_contiguous(Dot *, int o);
// Returns how many steps of two elements are a line of the windows that b is; 0: it is none, or
// steps cross the end of a line.
int64_t steps_of_line(const Dot *);
// Packs the worker's panels of b for the block of k, and strips first..end of a; operands that are
// copied, for steps from..to alone.
void pack_panels(Dot *, Value from, Value to);
void pack_strips(Dot *, Value first, Value end, Value from, Value to);
// Packs vectors from..to of a strip's vectors_of_strip(), where lanes are steps of k.
void pack_vectors(Dot *, Value strip, Value from, Value to);
int64_t vectors_of_strip(const Dot *);
// The body of the launch that packs for all workers.
void pack_shared(Dot *);
// Returns the operand's block of k in shared memory.
Value shared_block(Dot *, int o);
// Returns lanes from column `base` on; masked beyond the last.
Index column_lanes(Dot *, Value base);
// Evaluates b at a step of k, with lanes along its columns.
Value b_at_step(Dot *, Value step, const Index *lanes);
void keep(Dot *, Value, Value memory, Value i); // stores lanes

typedef struct PatchLine { // elements of the value under windows
	Dot *d;
	Ref from;
	int last;         // the axis along the lanes
	const Index *idx; // of the first
	double fill;
	Value to; // where it is packed
} PatchLine;

// ---- square.c -------------------------------------------------------------------------

typedef struct Lines { // of a square, as tile_function() says
	Value from, stride, count, ahead;
	bool in_place;
} Lines;

// Returns lines of operand o as they lie in memory, from a step on. Those of the next square are
// prefetched meanwhile.
Lines lines_in_place(Dot *, int o, Value step, Value other, Value count);
// Returns lines that the kernel computes: columns, or steps of rows. keep_parts() stores number i.
Lines computed_lines(Dot *, SquareOf);
void keep_parts(Dot *, const Value *parts, Value i);
// Calls the function that transposes a square, to an address; step: elements from step to step.
void turn_square(Dot *, SquareOf, const Lines *, Value to, int64_t step);

// ---- dot_prefetch.c -------------------------------------------------------------------

typedef struct Strip {                // of a
	Value number, first, a, sums; // the first row; addresses
	Value tile, skipped;          // the function; first rows that it does not compute
} Strip;

typedef struct Panel {                      // of b
	Value number, column, at_column, b; // column: the worker's; of all
} Panel;

// Choose what the tile prefetches: of the maps after the product; the sums of squares that it adds
// to; what is packed next.
void choose_streams(Dot *);
void choose_next_sums(Dot *);
void choose_next(Dot *);
// Returns where a row of the strip meets the panel in the memory of a stream.
Value stream_at(Dot *, int stream, const Strip *, const Panel *, Value row);
// Returns the address of what is prefetched meanwhile of operand o.
Value next_of(Dot *, int o, const Strip *, const Panel *);
// Prefetches what the maps after a matrix tile's last products (done) read of its rows.
void prefetch_operands(Dot *, const Strip *, const Panel *, Value done);

// ---- winograd.c -----------------------------------------------------------------------

// As pack_panels and pack_strips, of transformed kernels and transformed squares.
void transform_panels(Dot *, Value from, Value to);
void transform_strips(Dot *, Value first, Value end);
// Multiplies these strips, which are transformed, by all panels. again: adds to the products of the
// blocks of k before; done: this block is the last, so outputs are computed.
void multiply_squares(Dot *, Value first, Value end, Value again, Value done);
// Adds the products of a block of squares to the worker's sums. again: not the first; done: the
// last, so outputs (or a part of their sums) are computed.
void sum_squares(Dot *, Value again, Value done);

static inline Value element(Dot *d, Value memory, Value i)
{
	return place_beside(d->g, elem_type(d->g, d->tile.type), memory, i);
}

// Returns the address of an element of a as the tile counts them.
static inline Value a_element(Dot *d, Value memory, Value i)
{
	return place_beside(d->g, d->p.dense ? d->g->i16 : elem_type(d->g, d->tile.type), memory,
	                    i);
}

#endif
