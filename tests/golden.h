// golden.h: reference answers for models: inputs by formula, outputs and gradients to compare with.
// Takes a goldens.json (its _doc says the formulas) through jansson. Gives inputs, and a verdict on
// whatever fetches results: the evaluator (goldens.c) or the arrays that `amosc grad` wrote.
#ifndef GOLDEN_H
#define GOLDEN_H
#include "ir.h"
#include <jansson.h>

typedef struct Result { // numbers to be judged
	int64_t count;
	const double *at;
} Result;
// A result by name: an output, "loss", or "grad:NAME". False when there is none.
typedef bool Fetch(void *ctx, const char *name, Result *);

typedef struct Verdict {
	int outputs, gradients; // compared
	int constants; // numbers of operators and running statistics without a gradient of amosc's
	int wrong;
	double worst; // largest difference, in units of what is allowed
} Verdict;

typedef struct Limit {    // how near a model is to be to its golden
	double tolerance; // in parts of a tensor's largest entry
	bool unstable;    // or as near as its results stay to themselves when inputs are rounded
	const char *why;  // it is not held to what all others are; NULL: it is
} Limit;
Limit golden_limit(const char *key, bool wide); // of a computation in f64 (wide) or f32
// Why a file has no golden; NULL: it should have one.
const char *golden_missing(const char *file);
json_t *golden_load(const char *path); // NULL when there is none
// Does it match a pattern, or are there none?
bool golden_wanted(const char *key, int n, char **pattern);
// The element at flat index i of the input called `name`.
double golden_input(const char *name, Elem, const Shape *, int64_t i);
// The factor that output number k (of the float outputs) has in the loss at flat index i, over its
// count.
double golden_cotangent(int k, int64_t i, int64_t count);
// Compares; prints a line for each result that is off by more than `tolerance` of its tensor's
// largest entry.
Verdict golden_judge(const char *file, const json_t *golden, double tolerance, Fetch *, void *ctx);

#endif
