// trial.h: declares checks of a graph's gradients at given values.
// The evaluator, in double, against finite differences; compiled, in f32, against the evaluator.
#ifndef TRIAL_H
#define TRIAL_H
#include "ir.h"

typedef struct Trial {
	Arena *arena;
	const char *name;
	const Graph *loss;   // has an output "loss"
	const Graph *smooth; // the same without rounding to fewer bits
	const Graph *with;   // with gradients; NULL: nothing to differentiate
	const Graph *slopes; // gradients to compare with differences (default: `with`)
	Array *slot;         // values; active slots are varied
	bool *active;
	int most;   // maximum number of elements varied per slot
	bool moved; // active slots no longer have the given values
	int kinks;  // elements where the slopes to the left and to the right differ
	double *loss_rounding,
	    *slope_rounding; // indexed by output of smooth and slopes, computed on demand
	double worst; // largest difference so far, relative to the largest element of its gradient
	struct Compiled *code[2]; // of `with`, in f32 and in double; NULL: not compiled yet
} Trial;

// Returns the contents of a slot.
typedef Array Values(void *context, const Slot *);
// Starts a trial: every float slot is active; every float output has a random cotangent (except
// outputs that are not finite for any inputs). If the loss is not finite, the inputs are moved.
Trial *trial_new(Arena *, const char *name, const Graph *, Values *, void *context);
// True if gradients agree with five-point differences. At a kink, unless inputs were moved, a value
// between the slopes on both sides is enough. Prints the first that differs.
bool trial_differences(Trial *);
bool trial_compiled(Trial *); // true if compiled gradients are the same
void trial_move(Trial *);     // moves inputs slightly, by formula, to finite values

#endif
