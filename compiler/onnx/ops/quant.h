// quant.h: what operators on quantised numbers share. Takes ops.h. Seen by quant.c, qlinear.c,
// bits.c and experts.c.
#ifndef QUANT_H
#define QUANT_H
#include "ops.h"

// Scales and zero points of one axis, or of blocks along it, fitted to x.
Ref fit_scale(Call *, Ref scale, const Shape *x, int64_t axis, int64_t block);
// Operand k, a scale, as a float: of one row or column each where there are several.
Ref scale_of(Call *, int k, bool columns);
// Operand k as the numbers that it stands for; `zero` may be absent. Both of all, or by column.
Ref real_of(Call *, int k, int scale, int zero);
// The first result: y, quantised as operands `at` and the one behind say.
void requantise(Call *, Ref y, int at);
// The floats in which a sum of `n` products of numbers of 8 bits, less their zero points, is exact.
Elem exact_floats(int64_t n);
// Operand k as `floats`, less its zero point, operand z: numbers along the last axis (columns) or
// the one before.
Ref centred(Call *, int k, int z, bool columns, Elem floats);
// The product of operands 0 and b, less their zero points.
Ref multiply_centred(Call *, int zero_a, int b, int zero_b);

// bits.c: weights [rows, columns] of few bits each, in blocks along a row.
typedef struct Blocks {
	int data, scale,
	    zero; // operands: rows of whole bytes, a number a block; zero may be absent
	int64_t rows, columns, block;
	int64_t zero_rows; // so many rows of bytes hold the zero points; 0: as many as the data
	int bits;
} Blocks;
Ref read_blocks(Call *, const Blocks *);                        // as real numbers
int bits_of(const Call *, const char *name, int64_t otherwise); // an attribute: 2, 4 or 8

#endif
