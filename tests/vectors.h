// vectors.h: declares the comparison with vectors, arrays of numbers in JSON.
#ifndef VECTORS_H
#define VECTORS_H
#include "ir.h"
#include <jansson.h>

// Returns the largest difference, relative to the largest element; INFINITY: they differ in size.
double difference(const Array *got, const json_t *expected);

#endif
