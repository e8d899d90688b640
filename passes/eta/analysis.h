// analysis.h: declares what the eta files share.
// Ranges and demands, shares of variables, layouts of views. Takes passes.h. Seen by eta.c,
// view.c, pattern.c, gate.c, activation.c, analysis.c, range.c, demand.c, embedding.c, infer.c,
// derive.c, axis_map.c and override.c alone.
#ifndef ANALYSIS_H
#define ANALYSIS_H
#include "passes.h"

// A part of a kernel's output that a slice takes: entries e of its last axis where e / stride %
// extent lies in [start, start + count).
typedef struct OutputSlice {
	Ref part;
	int64_t stride, extent, start, count;
} OutputSlice;

typedef struct OutputSlices { // a kernel's output of whose parts different scales are asked
	Ref dot;
	VEC(OutputSlice) cut;
	Ref *owner; // by entry: the part that takes it; 0: none
} OutputSlices;

typedef enum Constant {
#define CONSTANT(name, num, den, meaning) N_##name,
#include "eta.def"
#undef CONSTANT
	CONSTANTS
} Constant;

typedef enum Form {
#define FORM(name, meaning) F_##name,
#include "eta.def"
#undef FORM
	FORMS
} Form;

struct ScaleAnalysis;
typedef Surd Range(struct ScaleAnalysis *, Ref, const Val *);
typedef void Demand(struct ScaleAnalysis *, Ref, const Val *);

typedef struct ScaleRule { // of a primitive: its result's range; what it asks of its operands
	Range *range;
	Demand *demand;
} ScaleRule;

// All that eta is inferred by. Tests give tables of their own, with one entry changed.
typedef struct Rules {
	ScaleRule row[OPS];
	Surd constant[CONSTANTS];
	bool without[FORMS]; // forms that are not looked for
} Rules;
Rules eta_rules(void); // the paper's

typedef struct Behind {
	Ref views, moves, scales; // what is behind views; moves; views and products with numbers
	int slot;                 // that the value is a view of; -1: none
} Behind;

// By Ref, but where said.
typedef struct ScaleAnalysis {
	Arena *arena;
	const Graph *g;
	const Rules *rules;
	bool authors; // their code decides where it differs from the paper
	const bool *live;
	const Ref *reader; // the first live value that reads it; 0: none
	const bool *out;   // an output of the graph
	Nature *nature;
	Behind *behind;
	bool *data;    // depends on an input
	bool *fixed;   // made of buffers alone
	bool *divided; // a product with such a value in it
	bool *length;  // a square that is summed for a length
	bool *sum;     // an add of embeddings alone
	Ref *met;      // by slot: a product of it with data; 0: none
	bool *lookups; // by slot: its rows are looked up by data
	bool *stream;  // by slot: what is looked up begins a residual stream
	Surd *rms;     // of constants, where measured
	bool *measured;
	Surd *declared; // by slot: the range of an input, where a person says; value 0: nobody does
	Surd *range, *demand;
	const char **coarse; // what the range does not count, where something is known
	Ref *root;           // of an element-wise function of one signal: the signal; else itself
	int *operations;     // between it and its root
	Ref *guess;          // the value whose range, measured, set the range; 0: rules did
	Ref *source;         // the value that set the range
	const int *branches; // of such a value: readers of its range that have another one
	Ref *asker;          // the value that set the demand; 0: nobody asks
	OutputSlices **cuts; // of a kernel's output, and of values on the way to its parts
} ScaleAnalysis;

static inline bool is(const ScaleAnalysis *s, Ref r, Nature n)
{
	return s->nature[r] == n;
}

static inline bool known(const ScaleAnalysis *s, Form form)
{
	return !s->rules->without[form];
}

static inline Surd constant(const ScaleAnalysis *s, Constant c)
{
	return s->rules->constant[c];
}

// ---- view.c ---------------------------------------------------------------------------

bool is_number(const ScaleAnalysis *, Ref); // a constant of floats
bool is_zero(ScaleAnalysis *, Ref);         // a constant of nothing else
Surd rms_of(ScaleAnalysis *, Ref);          // of a constant; 1 of anything else

bool is_view(const Val *);                 // the same elements: a cast, or a move but for joins
void look_behind(ScaleAnalysis *, Ref);    // once, behind its operands: what the next four answer
Ref unviewed(const ScaleAnalysis *, Ref);  // what is behind views
Ref unmoved(const ScaleAnalysis *, Ref);   // what is behind moves of a single value
Ref unscaled(const ScaleAnalysis *, Ref);  // what is behind views and products with numbers
Surd gain_of(ScaleAnalysis *, Ref);        // of those numbers
int view_slot(const ScaleAnalysis *, Ref); // the slot a variable is a view of; -1: a composition
// The one axis that a slice cuts; -1: none, several, or not every entry in between.
int cut_axis(const Val *slice, const Shape *whole);
const char *place_of(const ScaleAnalysis *, Ref); // the node that a value stems from, for reasons

// ---- pattern.c: forms; each answers the value that it is about, or 0 ------------------

Ref table_of(const ScaleAnalysis *, Ref);  // the variable whose rows are looked up by data
bool averages(const ScaleAnalysis *, Ref); // a constant matrix of which every column sums to 1
bool mostly_rim(const ScaleAnalysis *, const Val *window);
int64_t contracted(const ScaleAnalysis *,
                   Ref); // how many entries one of a dot or sum is the sum of

Ref summed_product(const ScaleAnalysis *, Ref); // signal * variable, of which r is the sum
// One entry of an axis, chosen by its place: sum(select(place == i, x, 0)). Answers x. `largest`:
// the place is that of the largest or smallest.
Ref picked(const ScaleAnalysis *, const Val *, bool *largest);
Ref pooled(const ScaleAnalysis *, Ref); // of what r takes the largest or smallest, before a ReLU
Ref hard_sigmoid(const ScaleAnalysis *, const Val *, double *slope);
Ref decided_by(const ScaleAnalysis *, const Val *); // the signal by whose sign a select chooses
Ref same_as(ScaleAnalysis *, const Val *);  // what a mean, dropout, a rotation is as large as
Ref averaged(ScaleAnalysis *, const Val *); // what r is the mean of
Ref uncapped(const ScaleAnalysis *, Ref,
             Surd factor);                        // x, where factor tanh(x) is a cap on it; else r
bool positive_sum(const ScaleAnalysis *, Ref);    // a sum with an activation's output
bool unfixed(const ScaleAnalysis *, Ref);         // a kernel's output that nothing normalizes
Ref low_rank(const ScaleAnalysis *, const Val *); // (x A) B of x W + (x A) B
// The product behind t W + b, of a variable; 0: something else.
Ref kernel_product(const ScaleAnalysis *, Ref);
// Of a normalized table through a kernel that data go through too: their product, which is as
// large; 0: none.
Ref product_of_data(const ScaleAnalysis *, Ref);
// The signal's place among the operands of a product with a number; -1: something else.
int scaled_operand(const ScaleAnalysis *, const Val *);
Ref sum_of(const ScaleAnalysis *, Ref product);    // that it goes into, through views and numbers
Ref offset_of(const ScaleAnalysis *, Ref product); // k, where the product is q t beside a q k
Ref without_offset(const ScaleAnalysis *,
                   const Val *); // q k of a sum q k + q t, t made of parameters

// ---- gate.c ---------------------------------------------------------------------------

// The x x of which r is the root of the sum (or its inverse), limited from below or not. `length`:
// what r is for x of range 1; 0 where it is limited by more than a guard.
Ref squared_under(ScaleAnalysis *, Ref r, Surd *length);
bool by_length(ScaleAnalysis *, const Val *, Surd *range); // x / |x|; its range
// A normalization's output, before its own factor or (scaled) after it too.
bool normalized(ScaleAnalysis *, Ref, bool scaled);
// The table of which variable r is a normalization, its factor and offset included; 0: none.
Ref normed_table(const ScaleAnalysis *, Ref r);
double limit_of(ScaleAnalysis *, const Val *, Ref x,
                Ref factor);                            // K of x rsqrt(max(K mean(x^2), 1))
int64_t weights_of(const ScaleAnalysis *, const Val *); // n of x / sum(x) over n; 0: something else

// x g + y (1 - g): its summands as x and y; y + g (x - y): x, y and g.
bool mixture(const ScaleAnalysis *, const Val *, Ref *x, Ref *y, Ref *gate);
Ref memory_of(const ScaleAnalysis *, const Val *);     // x of x sigmoid(a) + y, y bounded
bool rest_of_gate(const ScaleAnalysis *, const Val *); // 1 - sigmoid(x)
bool logistic(const ScaleAnalysis *, Ref);             // 1 + exp(x)

// ---- activation.c ---------------------------------------------------------------------

void find_roots(ScaleAnalysis *);
void judge_activation(ScaleAnalysis *, Ref, const Val *); // measures it where rules tell little

// ---- range.c, demand.c ----------------------------------------------------------------

// Rows that any primitive might have.
Range keep_range, unit_range, clip_range;
Demand pass_demand, unit_demand, no_demand;
// Rows of one, or of a few.
Range add_range, mul_range, act_range, exp_range, norm_range, select_range, softmax_range,
    sum_range, cumsum_range, max_range, window_range, dot_range, gather_range, slice_range,
    concat_range, attend_range;
Demand root_demand, add_demand, mul_demand, clip_demand, select_demand, sum_demand, dot_demand,
    gather_demand, attend_demand;

Surd inherit(ScaleAnalysis *, Ref r, Ref x); // x's range, from where x has it
// What a measured range shows, and the rule does not count.
void admit(ScaleAnalysis *, Ref, const char *what);
void ask(ScaleAnalysis *, Ref, Surd demand, Ref by); // unless somebody asks already
void pass_to(ScaleAnalysis *, Ref r, Ref x);         // what is asked of r, of x

// ---- analysis.c --------------------------------------------------------------------------

void find_natures(ScaleAnalysis *);
void sweep_up(ScaleAnalysis *);         // ranges
void sweep_down(ScaleAnalysis *);       // demands
Surd asked(const ScaleAnalysis *, Ref); // the demand, or 1 where nobody asks

// ---- embedding.c, infer.c, derive.c ------------------------------------------------------

typedef struct Inferred { // what is wanted of a variable
	const char *role; // NULL: nothing is known
	Surd eta;
	Surd range, demand;       // that led to it
	Ref source, asker;        // the values they come from; 0: none
	Ref at, operand;          // where a signal meets it, and as what
	int64_t contracted;       // kernel: m
	bool rows;                // a table: v and b have an entry for each row
	bool readout;             // the loss or an output asks
	bool indirect;            // wanted of it where another variable meets it: data decide first
	const OutputSlices *cuts; // different scales are asked of parts of the output
	const char *question;     // NULL: sure
	const char *note;         // said of the range; NULL: nothing
	struct ParamSlices *pieces; // of a parameter of which slices are used for themselves; NULL:
	                            // it is used whole
} Inferred;

typedef struct ParamSlice { // entries start .. start + count of an axis of a parameter
	int64_t start, count;
	Inferred share;
} ParamSlice;

typedef struct ParamSlices {
	int axis;
	VEC(ParamSlice) list; // in order
} ParamSlices;

typedef struct Inference {
	ScaleAnalysis *s;
	Inferred *of;         // by Ref
	bool *product;        // by Ref: a product that a sum takes for a kernel's
	ParamSlices **pieces; // by slot
} Inference;

void join_embeddings(ScaleAnalysis *);         // demands of tables that are summed with others
Inferred *share_out(ScaleAnalysis *);          // by slot
void give(Inference *, Ref, Inferred);         // a variable what is wanted of it
void propagate(Inference *, Ref, const Val *); // to the operands of a variable
ParamSlices *pieces_of(const Inference *,
                       int slot); // that make up the parameter, and differ; NULL: no

// ---- override.c --------------------------------------------------------------------------

Surd *declared_ranges(Arena *, const Graph *, const Overrides *);
void apply_etas(Arena *, const Graph *, Eta *, const Overrides *);
void apply_slots(Arena *, const Graph *, Eta *, const Overrides *);

// ---- axis_map.c -------------------------------------------------------------------------

void find_cuts(ScaleAnalysis *);
// Of a kernel: the parameter's axes that it sums over, and those of its features. False where it
// is no kernel, or its axes cannot be followed.
bool fans_of(const ScaleAnalysis *, const Inferred *, int slot, bool *in, bool *out);
Shape slots_of(const ScaleAnalysis *, const Inferred *, int slot); // of v and b
Shape usual_slot(const Shape *whole, bool rows);                   // a number a row, or one for all
// The parts of a parameter whose outputs are asked for at different scales: how many, along which
// of its axes, how many entries each, and the slice each goes to. 0: all the same.
int parts_of(const ScaleAnalysis *, const Inferred *, int slot, int *axis, int64_t **counts,
             Ref **parts);

#endif
