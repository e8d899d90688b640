// analysis.h: declares what the eta files share.
// Ranges and demands of values, what is inferred for variables, and axis maps of views. Included by
// passes/eta/ and tests/eta_rules.c alone.
#ifndef ANALYSIS_H
#define ANALYSIS_H
#include "passes.h"

typedef struct OutputSlices { // a kernel's output whose slices have different demands
	Ref dot;
	Ref *owner;       // per element of its last axis: the slice that takes it; 0: none
	Ref first;        // slice
	bool differ, bad; // bad: slices overlap, or take other elements
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

typedef struct ScaleRule { // of a primitive: computes the range of its result and the demands on
	                   // its operands
	Range *range;
	Demand *demand;
	enum { M_never, M_always, M_signals } measured;
} ScaleRule;

// The rules that eta is inferred by. Tests change one at a time.
typedef struct Rules {
	ScaleRule row[OPS];
	Surd constant[CONSTANTS];
	bool without[FORMS]; // forms that are not recognized
} Rules;
Rules eta_rules(void); // Returns the paper's rules.

typedef struct Origin { // the value under ..
	Ref views;      // .. views
	Ref moves;      // .. moves
	Ref scales;     // .. views and products with constants
	int slot;       // of which the value is a view; -1: none
} Origin;

// Arrays are indexed by Ref, unless noted.
typedef struct ScaleAnalysis {
	Arena *arena;
	const Graph *g;
	const Rules *rules;
	bool authors; // the authors' code takes precedence over the paper
	const int *live;
	bool *out; // an output of the graph
	Nature *nature;
	Origin *origin;
	bool *data;        // depends on an input
	bool *fixed;       // made of buffers alone
	bool *divided;     // a product with a factor made of buffers
	bool *length;      // a square that is summed for a length
	bool *sum;         // a sum of embeddings alone
	Ref *sum_of;       // the sum that it is part of, through views and constants; 0: none
	bool *activated;   // passes an activation before it is added to another signal
	Ref *data_product; // by slot: a product of it with data; 0: none
	bool *lookups;     // by slot: data look up its rows
	bool *stream;      // by slot: the looked up rows begin a residual stream
	Surd *rms;         // of constants, if measured
	bool *measured;
	Surd *declared; // by slot: the range given for an input; value 0: none
	Surd *range, *demand;
	const char **coarse; // what the range neglects; NULL: nothing known
	Ref *root; // the signal that an element-wise value is a function of, else the value itself
	int *operations;     // operations between a value and its root
	Ref *guess;          // the value whose measured range determines this range; 0: rules did
	Ref *source;         // the value that determines the range
	const int *branches; // per source: readers of its range that have another source
	Ref *demand_by;      // the value that sets the demand; 0: unconstrained
	// Of a kernel's output, and of the values between it and its slices: the slices; only those
	// that have different demands.
	OutputSlices **slices_of, **output_slices;
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

static inline Surd demand_or_one(const ScaleAnalysis *s, Ref r) // 1 if r is unconstrained
{
	return s->demand_by[r] ? s->demand[r] : surd_one;
}

static inline const char *label_of(const ScaleAnalysis *s, Ref r) // for reasons
{
	return value_label(s->arena, s->g, r);
}

// ---- pattern.c: constants and views ---------------------------------------------------

bool is_float_const(const ScaleAnalysis *, Ref); // True for a constant of floats.
bool is_zero(ScaleAnalysis *, Ref);              // True for a constant of zeros alone.
Surd rms_of(ScaleAnalysis *, Ref); // Returns the root mean square of a constant, else 1.
// True if operand k of a dot is a constant matrix of averages: their weights sum to 1.
bool averages(const ScaleAnalysis *, const Val *dot, int k);
bool is_multiple(const ScaleAnalysis *, const Val *); // True for x y, and for x / c by no signal.
bool is_view(const Val *); // True for the same elements: a cast, detach, or a move but concat.
// Returns the product of the constants between a value and its origin under scales.
Surd gain_of(ScaleAnalysis *, Ref);
// Returns the one axis that a slice shortens; -1 if it shortens none or several, or has steps.
int sliced_axis(const Val *slice, const Shape *full);

// ---- pattern.c: forms; each returns the value that it is about, or 0 ------------------

Ref table_of(const ScaleAnalysis *, Ref); // Returns the variable whose rows data look up.
bool mostly_padding(const ScaleAnalysis *, const Val *window);
// Returns the number of terms of each element of a dot or sum.
int64_t contracted(const ScaleAnalysis *, Ref);
// Returns the product of a signal and a variable that r sums.
Ref summed_product(const ScaleAnalysis *, Ref);
// Matches sum(select(index == i, x, 0)), one element of an axis by its index, and returns x.
// `largest`: the index is that of the maximum or minimum.
Ref picked(const ScaleAnalysis *, const Val *, bool *largest);
// Returns the values before a maximum or minimum, and before a ReLU.
Ref pooled(const ScaleAnalysis *, Ref);
// Returns y if x is tanh(y), capped by `factor`; else x.
Ref uncapped(const ScaleAnalysis *, Ref, Surd factor);
Ref averaged(ScaleAnalysis *, const Val *); // Returns the value that v is the mean of.
// Returns the value with the range of this mean, dropout or rotation.
Ref range_origin(ScaleAnalysis *, const Val *);
// The root of a sum of squares, or the inverse root.
typedef struct Length {
	Ref square;   // x x; 0: not a length
	Surd size;    // for x of range 1
	double least; // limits an inverse root; 0: at most a guard against 0; NAN: another limit
} Length;
Length length_of(ScaleAnalysis *, Ref);
bool by_length(ScaleAnalysis *, const Val *, Surd *range); // True for x / |x|; its range in *range.
// True for a normalization's output, without its own factor, or (`scaled`) with it.
bool normalized(ScaleAnalysis *, Ref, bool scaled);
// Returns the table that variable r normalizes, with or without a factor and offset; 0 if none.
Ref normed_table(const ScaleAnalysis *, Ref r);
// Returns n of x / sum(x) over n; 0 for anything else.
int64_t weights_of(const ScaleAnalysis *, const Val *);
bool logistic(const ScaleAnalysis *, Ref); // True for 1 + exp(x).
// Returns the signal by whose sign, element by element, a leaky or exponential unit selects.
Ref sign_choice(const ScaleAnalysis *, const Val *);
// Returns x of min(max(c x + 1/2, 0), 1); its slope c in *slope.
Ref hard_sigmoid(const ScaleAnalysis *, const Val *, double *slope);
// Returns the product of x W or x W + b, b a variable; 0 for anything else.
Ref kernel_product(const ScaleAnalysis *, Ref);
// Returns the product of data with the kernel that a normalized table is multiplied by, which has
// the same range; 0 if there is none.
Ref product_of_data(const ScaleAnalysis *, Ref);
// Returns k for a product q t that is added to q k, because q k + q t is q (k + t).
Ref offset_of(const ScaleAnalysis *, Ref product);
// Returns q k of a sum q k + q t, t made of parameters, or a constant computed from them by an
// exporter: an offset of k, which does not count.
Ref without_offset(const ScaleAnalysis *, const Val *);
// Returns (x A) B of x W + (x A) B if the inner size is less than both outer sizes.
Ref low_rank(const ScaleAnalysis *, const Val *);

// ---- activation.c ---------------------------------------------------------------------

void find_roots(ScaleAnalysis *);
void measure_activation(ScaleAnalysis *, Ref, const Val *); // Measures it if the rules tell little.

// ---- range.c, demand.c ----------------------------------------------------------------

#define RULE(op, range, demand, measured)                                                          \
	Range range##_range;                                                                       \
	Demand demand##_demand;
#include "eta.def"
#undef RULE
Range keep_range;
Demand pass_demand;

Surd inherit(ScaleAnalysis *, Ref r, Ref x); // Returns the range of x; r gets its source.
void set_demand(ScaleAnalysis *, Ref, Surd demand, Ref by); // Does nothing if r has a demand.
void pass_demand_to(ScaleAnalysis *, Ref r, Ref x);         // Passes the demand on r to x.

// ---- analysis.c --------------------------------------------------------------------------

void find_natures(ScaleAnalysis *);
void find_readers(ScaleAnalysis *);
void propagate_ranges(ScaleAnalysis *);
void propagate_demands(ScaleAnalysis *);

// ---- embedding.c, infer.c, derive.c ------------------------------------------------------

typedef struct Inferred { // what is inferred for a variable
	const char *role; // NULL: unknown
	Surd eta;
	Surd range, demand;    // that eta follows from
	Ref source, demand_by; // the values that determine them; 0: none
	Ref at, operand;       // where a signal meets it; the operand there
	struct AxisMap *map;   // of the operand's axes to the variable's; NULL: cannot be followed
	int64_t contracted;    // of a kernel: m; else 0
	bool rows;             // a table: v and b keep its rows
	bool readout;          // the loss or an output sets the demand
	bool indirect;         // from a use through another variable; uses by data take precedence
	const OutputSlices *output_slices; // slices of the output that have different demands
	const char *question;              // NULL: sure
	const char *note;                  // on the range; NULL: none
	// Of a parameter with slices used separately; NULL: it is used as one.
	struct ParamSlices *param_slices;
} Inferred;

typedef struct ParamSlice { // elements [start, start + count) of an axis of a parameter
	int64_t start, count;
	Inferred inferred;
} ParamSlice;

typedef struct ParamSlices {
	int axis;
	bool differ;          // in eta
	VEC(ParamSlice) list; // in order
} ParamSlices;

typedef struct Inference {
	ScaleAnalysis *s;
	Inferred *of;               // by Ref
	bool *product;              // by Ref: a product that a sum makes a kernel's
	ParamSlices **param_slices; // by slot
} Inference;

void join_embeddings(ScaleAnalysis *);   // Sets the demands on tables that are added to others.
Inferred *infer_slots(ScaleAnalysis *);  // Returns what is inferred for each slot.
void assign(Inference *, Ref, Inferred); // Records one use of a variable.
void propagate(Inference *, Ref, const Val *); // To the operands of a variable.
// Returns the slices that make up a parameter; NULL if they are incomplete.
ParamSlices *param_slices_of(const Inference *, int slot);

// ---- structure.c -------------------------------------------------------------------------

Structure *structures(ScaleAnalysis *, const Inferred *); // by slot

// ---- override.c --------------------------------------------------------------------------

Surd *declared_ranges(Arena *, const Graph *, const Overrides *);
void apply_etas(Arena *, const Graph *, Eta *, const Overrides *);
void apply_slots(Arena *, const Graph *, Eta *, const Overrides *);

// ---- axis_map.c -------------------------------------------------------------------------

typedef struct AxisMap AxisMap;
AxisMap *axis_map_new(const ScaleAnalysis *, Ref root); // Returns that of a value to itself.
// Returns the map to operand k of its root v; NULL if v is not a view of it.
AxisMap *axis_map_under(const ScaleAnalysis *, AxisMap *, const Val *v, int k);
void find_output_slices(ScaleAnalysis *);
// Finds the axes of a kernel's parameter that are summed over, and those of its output features.
// False if it is not a kernel, or its axes cannot be followed.
bool fans_of(const ScaleAnalysis *, const Inferred *, bool *in, bool *out);
// Returns the parameter's axis that is the full last axis of a kernel's output (NULL: of the
// operand), in order; -1: none is.
int feature_axis(const ScaleAnalysis *, const Inferred *, const OutputSlices *, int slot);
// Returns the element of a kernel's last axis that element e along an axis of the parameter is; -1
// if that cannot be followed.
int64_t feature_of(const ScaleAnalysis *, const Inferred *, int axis, int64_t e);
// Sets the axes of a parameter that axis `a` of its operand runs along.
void add_group_axes(const Inferred *, int a, bool *axes);
// Returns the shape with one element per row, or in all.
Shape default_slot(const Shape *full, bool rows);
// Returns the slices of a parameter whose outputs have different demands; NULL if all are the same.
ParamSlices *output_slices_of(const ScaleAnalysis *, const Inferred *, int slot);

#endif
