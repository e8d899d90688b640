// eval.h: declares what the files of the evaluator share.
// Arrays element by element, and the evaluation of each class of primitives. Included by array.c,
// eval*.c and expr.c alone.
#ifndef EVAL_H
#define EVAL_H
#include "ir.h"

// ---- array.c --------------------------------------------------------------------------

Array array_new(Arena *, Elem, const Shape *); // of zeros
void copy_element(Array *to, int64_t i, const Array *from, int64_t k);
void set_float(Array *, int64_t i, double); // rounds to the array's type, as a cast
int64_t wrap_int(Elem, int64_t);
// Advances to the next index in row-major order; false after the last.
bool next_index(const Shape *, int64_t *at);
// Returns the shape without its last axis, whose length is *length; 1 without axes.
Shape lines_of(const Shape *, int64_t *length);
// Returns the offset of an index.
int64_t element_offset(int rank, const int64_t *at, const int64_t *stride);
// Computes strides of an operand under a result of `rank` axes: aligned at the end, 0 for broadcast
// axes.
void broadcast_strides(const Shape *from, int rank, int64_t *stride);

// ---- eval_map.c, eval_reduce.c, eval_move.c: each fills `out`, whose shape is the result's ---

double float_map(Op, double x, double y);
bool int_less(Elem, int64_t x, int64_t y);
void combine_element(Op, Array *to, int64_t i, const Array *from, int64_t k); // to[i] op from[k]
void eval_map(Op, const Attr *, Array *out, int nin, const Array *in);
void eval_reduce(Op, const Attr *, Array *out, const Array *in);
void eval_dot(Array *out, const Array *a, const Array *b);
void eval_move(Op, const Attr *, Array *out, int nin, const Array *in);
void eval_index(Op, const Attr *, Array *out, const Array *in);

#endif
