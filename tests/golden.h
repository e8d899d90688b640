// golden.h: declares reference results for models: inputs by formula, expected outputs and
// gradients.
// A goldens.json (its _doc gives the formulas) is read through jansson. Results come from a Fetch:
// the evaluator (goldens.c) or the arrays written by `amosc grad`.
#ifndef GOLDEN_H
#define GOLDEN_H
#include "ir.h"
#include <jansson.h>

typedef struct Result { // values to compare
	int64_t count;
	const double *at;
} Result;
// Finds a result by name: an output, "loss", or "grad:NAME". False: none.
typedef bool Fetch(void *ctx, const char *name, Result *);

typedef struct Verdict {
	int outputs, gradients; // number compared
	int constants;          // constants and running statistics without a gradient in amosc
	int wrong;
	double worst; // largest difference, in units of the tolerance
} Verdict;

typedef struct Limit {    // allowed distance of a model from its golden
	double tolerance; // relative to a tensor's largest element
	bool unstable;    // or as much as its results change when inputs are rounded
	const char *why;  // why it differs from the usual limit; NULL: it does not
} Limit;
Limit golden_limit(const char *key, bool wide); // for a computation in f64 (wide) or f32
// Returns why a file has no golden; NULL: it should have one.
const char *golden_missing(const char *file);
json_t *golden_load(const char *path); // NULL: none
// True if it matches a pattern, or there are no patterns.
bool golden_selected(const char *key, int n, char **pattern);
// Returns the element at flat index i of the input `name`.
double golden_input(const char *name, Elem, const Shape *, int64_t i);
// Returns the factor of output k (of the float outputs) in the loss at flat index i, divided by its
// count.
double golden_cotangent(int k, int64_t i, int64_t count);
// Compares; prints one line per result that differs by more than `tolerance` of its tensor's
// largest element.
Verdict golden_judge(const char *file, const json_t *golden, double tolerance, Fetch *, void *ctx);

#endif
