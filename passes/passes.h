// passes.h: Graph -> Graph -> Plan. Each pass reads one graph from first to last and puts each
// value through the door of the next. Takes ir.h, plan.h. The order of stages is pipeline.c's, on
// one screen.
#ifndef PASSES_H
#define PASSES_H
#include "ir.h"
#include "plan.h"

// ---- loss.c: Graph -> Graph with an out "loss" (a float of rank 0) ----------------------
// `expr` in the notation over outs, inputs and new inputs (which become S_input slots, shapes
// inferred); NULL: the model's only scalar float out. Also adds "accuracy" for a cross entropy over
// labels.
Graph *loss_pass(Arena *, const Graph *, const char *expr);
// The input that `expr` is the cross entropy (class numbers) or the mean squared error (floats)
// with; NULL: it is anything else, or NULL.
// Returns the names of losses.def, as a list.
const char *loss_names(Arena *);
const char *loss_labels(const Graph *loss, const char *expr);
// Fails where `expr` cannot be read, or speaks of none of a model's outputs: for a model that
// cannot be read itself.
void loss_check(Arena *, const char *expr, int noutput, const char *const *output);
// loss = sum over outs of out * cotangent; cotangents are new inputs named COTANGENT_OF the out's
// name, shaped as the outs; with `given` as that says by number of the out, which may be less, and
// none where its rank is -1. NULL: each float out has one.
#define COTANGENT_OF "cotangent:"
Graph *cotangent_pass(Arena *, const Graph *, const Shape *given);

// ---- dropout.c: Graph -> Graph in which every dropout is the book's (`draw`: training), or gone
// `rate` > 0: also inside and behind blocks of attention and behind MLPs that have none, at
// `*added` places; 0: none is drawn; NAN: as the file has it.
Graph *dropout_pass(Arena *, Graph *, bool draw, double rate, int *added);
// The first node of the graph, or of a loop in it, that draws at random: Val.from; -1: none does.
int drawing_node(const Graph *);

// ---- grad.c: Graph -> Graph with an out "grad:NAME" for each wanted slot --------------
// want[slot]; d out "loss" / d slot. Zero gradients are outs too. Randomness repeats, never
// redrawn.
Graph *grad_pass(Arena *, const Graph *, const bool *want);

// ---- unused_params.c: gradients without those that are zero whatever the data

typedef struct UnusedParam {
	int slot; // of the loss's graph
	const char *why;
} UnusedParam;
typedef VEC(UnusedParam) UnusedParams;
Graph *unused_params_pass(Arena *, const Graph *loss, const Graph *gradients, UnusedParams *);

// ---- eta.c and the files of analysis.h: the expected scale of every parameter, with reasons
typedef struct Surd { // (num / den)^(1/4) where exact, else a plain number
	double value;
	bool exact;
	int64_t num, den;
} Surd;
typedef struct Eta {
	Surd eta;
	const char *formula; // "sqrt(2/3072)", "1/2", ...
	const char *role;    // kernel bias embedding norm_scale norm_bias ...
	Shape slot;          // of v and b: broadcasts against the parameter
	Surd range, demand;
	const char *source, *demand_by; // the places that range and demand come from; NULL: none
	const char **why;
	int nwhy;
	bool sure;
	const char *question; // what a person should decide, when not sure
	bool readout;         // what it is used for goes to the loss or an output as it is
	bool fan_in[RANK], fan_out[RANK]; // of a kernel: axes that it sums over; its features'
	int nparts; // > 0: eta differs along an axis: parts[i] over counts[i] entries of `axis`
	int axis;
	const int64_t *counts;
	const struct Eta *parts;
} Eta;

// override.c: what a person says of it.
typedef struct Override {
	const char *pattern, *expr; // eta: '*.head.weight', 'sqrt(1/768)'; range: 'x', '0.33';
	                            // slots: 'embed*', 'rows'
	int axis;                   // eta along an axis: of `count` numbers; count 0: expr
	int64_t count;
	const double *along;
	bool sure;   // a row of a report: a person has no question
	bool report; // a row of a report: `pattern` is the very name; given where it differs from
	             // what is inferred
} Override;
typedef VEC(Override) Overrides;
typedef struct EtaOptions {        // those given later win
	const char *convention;    // "paper" (NULL) or "jestimator"
	Overrides eta;             // of parameters
	Overrides range;           // the root mean square of inputs, by name
	const struct Rules *rules; // what eta is inferred by; NULL: the paper's (tests change some)
	Overrides slots; // the shape of v and b: full, rows, scalar, or numbers as in '[1,768]'
} EtaOptions;

typedef enum Nature {
	AUX,      // masks, indices, numbers
	VARIABLE, // made of parameters alone
	SIGNAL    // carries data
} Nature;
typedef struct Scales { // by Ref: what eta is inferred from
	const Nature *nature;
	const Surd *range, *demand;
	const Ref *demand_by; // the value that set the demand; 0: nobody asks
	const char *const
	    *coarse; // what a measured range shows that the rule does not count; NULL: nothing
} Scales;
// What eta looks at: the graph with its loops laid out, long ones as their first trips. Who wants
// scales gives such a graph.
Graph *eta_graph(Arena *, const Graph *);
// By slot number; only S_param entries are filled. Deterministic. `scales`: filled unless NULL.
Eta *eta_pass(Arena *, const Graph *, const EtaOptions *, Scales *scales);
// view.c: what reasons call a value: a slot, or a node of the file.
const char *value_label(Arena *, const Graph *, Ref);

// surd.c
extern const Surd surd_one;
Surd surd_number(double);                 // not exact
Surd surd_root(int64_t num, int64_t den); // sqrt(num / den)
Surd surd_near(double);                   // the surd a rounded number stands for
Surd surd_mul(Surd, Surd), surd_div(Surd, Surd), surd_inverse(Surd);
Surd surd_hypot(Surd, Surd); // sqrt(a^2 + b^2)
bool surd_same(Surd, Surd);  // but for the rounding of numbers in a file
// "sqrt(2/3072)"; `over`: denominator to show, 0: reduced.
const char *surd_text(Arena *, Surd, int64_t over);

// ---- labels.c: the labels that out "loss" compares with -------------------------------
typedef struct Labels {
	double count;  // in a batch; the most that any of several losses has
	double weight; // the root of the sum of their squared weights in the loss: of a mean
	               // 1 / sqrt(count)
} Labels;
typedef double LabelPart(void *data, const Slot *); // the part of an input's entries that count
Labels count_labels(const Graph *, LabelPart *, void *data);

// ---- hyperparams.c, step.c: Graph with grad: outs -> Graph that also stores the update --------
typedef struct Opt {
	const char *name;               // of optimizers.def
#define HYPER(field, ...) double field; // NAN: by rule
#define DERIVED           HYPER
#include "optimizers.def"
#undef DERIVED
#undef HYPER
	Labels labels;      // of one run, for clip; count 0: unknown
	double batches;     // N, the number of independent batches in the data; 0: unknown
	int64_t accumulate; // runs per update, by the mean of their gradients; 0 is 1
	const char *chosen; // set by opt_defaults: what was chosen, and by which rule; a line each
} Opt;
typedef enum StateShape { // of what is kept per parameter
	STATE_full,       // the parameter's
	STATE_slot,       // Eta.slot
	STATE_rows,       // without the last axis
	STATE_columns     // without the last axis but one
} StateShape;
typedef struct Optimizer {
	const char *name, *title;
	void (*rule)(Opt *, Text *);
	Opt usual;
	struct State {
		const char *name; // of the definition's operand
		StateShape shape;
		const char *kept_for; // the hyperparameter without which it is not kept; NULL: none
	} state[4];
} Optimizer;
const Optimizer *optimizer_named(const char *); // one of the table
// "amos, adamw or sgd": those with such an operand or attribute (NULL: all); "" for none.
const char *optimizer_names(Arena *, const char *operand);
double *opt_attribute(Opt *, const char *name); // NULL: there is none of that name
Opt opt_named(const char *name);                // hyperparameters by rule, data unknown
void opt_defaults(Arena *, Opt *);
// True if the definition in optim.am has such an operand or attribute.
bool opt_uses(const char *optimizer, const char *operand);
// Adds S_state slots (NAME.v, NAME.b, NAME.m, NAME.eta, "amos.step", ...) and stores; of the outs,
// "loss" and "accuracy" stay. opt_defaults has been called. Where several runs make one update,
// NAME.sum holds the gradients so far, amos.left counts the runs that are still to be gathered, and
// accumulate_pass gives the graph of these, on the same slots: the step itself is the last run.
Graph *step_pass(Arena *, const Graph *, const Eta *, const Opt *);
Graph *accumulate_pass(Arena *, const Graph *, const Eta *, const Opt *);
// Bytes of the states of the table. Of Opt: name and hyperparameters that states are kept for; of
// Eta: slot.
int64_t state_bytes(const Graph *, const Eta *, const Opt *);

// ---- loops.c: loops that compute only what is read of them, and zeros where no trip was made;
// loops laid out as their first `most` trips (see unroll_loop)
Graph *loops_pass(Arena *, const Graph *);
Graph *unroll_pass(Arena *, const Graph *, int64_t most);
bool has_loop(const Graph *);

// ---- decompose.c: wholes opened by their definitions; transpose_dot.c: dots the way round that is read ----
Graph *decompose_pass(Arena *, const Graph *);
Graph *transpose_dot_pass(Arena *, const Graph *);

// ---- materialize.c, fuse.c, schedule.c, blocking.c, memory.c, verify.c ----------------
// By Ref: in memory? And how deep the expression of each is, between it and memory.
bool *materialize_pass(Arena *, const Graph *, int **depth);
// Kernels in no order, no bodies.
Plan *fuse_pass(Arena *, const Graph *, const char *name, const Machine *);
void schedule_pass(Arena *, Plan *);        // kernels in an order that keeps lifetimes short
void tile_pass(Arena *, Plan *, int first); // schedules of kernels from number `first` on
void memory_pass(Arena *, Plan *);          // static memory: fills place, to, work, slot, *_bytes
// bug() where a kernel would read bytes that another value has overwritten.
void verify_plan(const Plan *);

// ---- pipeline.c: passes.def -------------------------------------------------------------

typedef enum Pass {
#define PASS(name, ...) PASS_##name,
#include "passes.def"
#undef PASS
	PASSES
} Pass;
typedef struct PassInfo {
	const char *name, *takes, *gives, *summary;
} PassInfo;
extern const PassInfo pass_table[PASSES];
Pass pass_named(const char *); // PASSES: none

typedef struct Unit { // what passes work on: an entry of a program
	const char *name;
	const Machine *machine;
	const Graph *graph;
	Plan *plan; // from pass `fuse` on
} Unit;
void run_pass(Arena *, Pass, Unit *); // one of `loops` to `memory`
Plan *plan_graph(Arena *, const Graph *, const char *name, const Machine *); // all of these

#endif
