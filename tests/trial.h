// trial.h: the gradients of a graph at given values: by the evaluator, in double, against
// differences; compiled, in f32, against the evaluator.
#ifndef TRIAL_H
#define TRIAL_H
#include "ir.h"

typedef struct Trial {
	Arena *arena;
	const char *name;
	const Graph *loss;   // with an out "loss"
	const Graph *smooth; // the same without rounding to fewer bits
	const Graph *with;   // with gradients too; NULL: nothing to differentiate
	const Graph *slopes; // whose gradients are compared with differences: of `with`, if not set
	                     // otherwise
	Array *slot;         // values; those of active slots are varied
	bool *active;
	int most;   // elements of a slot that are varied
	bool moved; // active slots no longer hold the given values
	int kinks;  // elements where the slopes to the left and to the right differ
	double *loss_rounding, *slope_rounding; // by out of smooth and slopes, once it is needed
	double worst; // largest difference so far, relative to the largest entry of its gradient
} Trial;

// What a slot of the graph holds.
typedef Array Values(void *context, const Slot *);
// Every float slot of the graph is active; every float out has a random cotangent (but for outs
// that are not finite, wherever the inputs are). Where the loss is not finite the inputs are moved.
Trial *trial_new(Arena *, const char *name, const Graph *, Values *, void *context);
// Do gradients agree with five-point differences? At a kink, while inputs are not moved, it is
// enough to lie between the slopes to both sides. Prints the first that is off.
bool trial_differences(Trial *);
bool trial_compiled(const Trial *); // Do the same gradients come out compiled?
void trial_move(Trial *);           // a little, by formula; what is not finite becomes so

#endif
