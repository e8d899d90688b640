// step.h: declares what the files of pass step share.
#ifndef STEP_H
#define STEP_H
#include "passes.h"

enum { SUMS = 8 };

typedef struct Step {
	Graph *graph;
	const Opt *opt;
	const Optimizer *optimizer;
	const Eta *eta; // indexed by slot
	Ref place;      // of this step in the run, f64, from 1
	Ref t;          // the same without the steps that changed nothing
	Ref finite;     // of gradients in f16: this step changes something; 0: it does
	int own;        // number of stores of the model itself, the first
	StepPart part;
	Ref sum[SUMS];    // over all parameters, f64
	Ref next[STATES]; // new state of all parameters, f64, indexed as the optimizer's
} Step;

typedef struct Param {
	int slot;
	Ref grad;
	const Eta *eta;
	int matrix; // one of eta->matrices that a definition is called for; -1: the parameter
} Param;

// ---- definitions.c: definitions in optim.am, and the state of a parameter that they have

// Returns the first definition of an optimizer's part: "", "_point", "_sums" or "_shared"; NULL:
// none.
const Def *opt_definitions(const char *optimizer, const char *part);
// Returns the definition with the most operands whose state exists for this parameter.
const Def *opt_definition(const char *name, const Shape *full, const Eta *);
// True if it is called for each matrix of a parameter.
bool takes_matrices(const Optimizer *, const Def *);
// Returns the number of the optimizer's state that is this operand; -1: none.
int state_index(const Optimizer *, const char *operand);
bool is_state_kept(const Opt *, const struct State *);
// Returns the shape of v and b: the parameter's rank, 1 for reduced axes.
Shape slot_shape(const Shape *full, const Eta *);
Shape state_shape(const Shape *full, const Eta *, const struct State *);

// ---- operands.c: what definitions are called with

int slot_of(const Graph *, Ref); // of a value that is a slot
// Stores a value in runs that update.
void set_slot(const Step *, int slot, Ref);
// Returns the operand of a name; `p`: NULL in a definition for all parameters.
Ref step_operand(const Step *, const Param *p, const char *role);
AttrArg step_attribute(const Step *, const Param *p, const char *name);
const Slot *slot_at(const Step *, const Param *);
const char *state_name(const Step *, const Param *, const char *role); // of its slot
// Returns the value of the parameter's shape whose matrices these are.
Ref join_matrices(Graph *, const Shape *full, const Matrices *, const Ref *matrix);

#endif
