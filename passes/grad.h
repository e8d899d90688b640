// grad.h: what grad.c, conv_grad.c and loop_grad.c share: a graph being differentiated. Takes
// passes.h.
#ifndef GRAD_H
#define GRAD_H
#include "passes.h"

// A forward loop as it was put to be differentiated: behind its own stacked results are the values
// that each trip carries on, and then the results of its products.
typedef struct Record {
	Ref loop;
	int stacked; // its own
	int nproduct;
	const Ref *product; // in its body
} Record;

typedef struct Contribution { // of a fixed value of a body in the gradient
	int slot;
	Ref other;    // of a product with it: the other factor; 0: none such
	int which;    // ... and which factor it is
	Ref gradient; // of the product; of any other value: of the fixed value itself, not yet
	              // fitted
} Contribution;

typedef struct Backprop {
	Arena *arena;
	Graph *g;
	bool *needs;   // by Ref: a float that depends on a wanted slot, or a loop that does
	Ref *gradient; // by Ref: so far
	Ref last;      // of the values that both tell of
	VEC(Record) records;
	Table *products; // a slot's Ref -> Val *: the product that it is the result of
	int first_fixed; // slots from here on are fixed values of a body; -1: of no body
	VEC(Contribution) shares;
} Backprop;

// Which values depend on wanted slots (by number).
bool *mark_needs(Arena *, const Graph *, const bool *want);
// v on new operands, ready to be differentiated where it needs to be.
Ref put_ready(Backprop *, const Val *v, const Ref *in, bool needs);
void sweep_back(Backprop *); // from all that have a gradient so far
void add_gradient(Backprop *, Ref, Ref dx);
// `r` with the type and shape of an operand: summed over what was stretched, stretched to what was
// folded.
Ref fit(Graph *, Ref r, const Val *to);
Ref zeros(Graph *, Elem, Shape);

// conv_grad.c: of a product whose rows are the windows of a convolution, the gradient of what these
// were taken of, *x. 0: it is none.
Ref convolution_gradient(Graph *, const Val *dot, Ref gradient, Ref *x);

// loop_grad.c
Ref put_recorded(Backprop *, const LoopInfo *, const Ref *in);
void unwind_loop(Backprop *, Ref loop);

#endif
