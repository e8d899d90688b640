// grad.h: declares what grad.c, conv_grad.c and loop_grad.c share.
#ifndef GRAD_H
#define GRAD_H
#include "passes.h"

typedef struct Contribution { // a term of the gradient of a fixed value of a body
	int slot;
	Ref other;    // the other factor of a product with it; 0: no product
	int which;    // index of the fixed value in the product
	Ref gradient; // of the product; without a product: of the fixed value, in any shape
} Contribution;

typedef struct Recorded { // a loop that can be differentiated
	int stacked;   // its own stacked results. The carried values at the start of each iteration
	               // follow, then the other values that an iteration stores
	Ref *gradient; // by result; 0: none
} Recorded;

typedef struct Backprop {
	Arena *arena;
	Graph *g;
	const Graph *from;      // the graph that was copied to g
	const Machine *machine; // whose attention kernels are used; NULL: any
	const bool *from_needs; // by Ref of `from`: see needs
	const bool *needs;      // by Ref: a float, or a loop, that depends on a wanted slot
	Ref *gradient;          // by Ref: the sum so far
	Ref last;               // the last value that both describe
	Table *recorded;        // Ref of a loop -> Recorded *
	Table *stored;          // Ref of a slot -> Val *: the value that it holds
	int first_fixed;        // from this slot on, slots are fixed values of a body; -1: no body
	VEC(Contribution) terms;
} Backprop;

// Returns by Ref whether a value depends on a wanted slot (by slot).
bool *mark_needs(Arena *, const Graph *, const bool *want);
// Puts v, a value of `from`, with new operands, in a form that can be differentiated. Rewrite.
Ref put_differentiable(void *backprop, Graph *, const Val *v, const Ref *in);
// Continues from all values that have a gradient.
void backprop(Backprop *);
void add_gradient(Backprop *, Ref, Ref dx);
// Returns `r` in the type and shape of an operand: reduced over broadcast axes, broadcast over
// reduced ones.
Ref match_operand(Graph *, Ref r, const Val *to);
Ref zeros(Graph *, Elem, Shape);

// conv_grad.c: returns the gradient of *x, if the rows of the product are its windows; 0: they are
// not the windows of a convolution.
Ref convolution_gradient(Graph *, const Val *dot, Ref gradient, Ref *x);
// Returns the gradient of the kernel of a convolution that is depthwise or adds its taps; 0: `dot`
// is neither.
Ref convolution_kernel_gradient(Graph *, const Val *dot, Ref gradient);

// loop_grad.c
Ref put_recorded(Backprop *, const LoopInfo *, const Ref *in);
Recorded *recorded_loop(const Backprop *, Ref loop);
void differentiate_loop(Backprop *, Ref loop);

#endif
