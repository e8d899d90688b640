// passes.h: declares the passes, Graph -> Graph -> Plan.
// Each pass reads one graph from first to last and puts each value into the next. pipeline.c has
// their order.
#ifndef PASSES_H
#define PASSES_H
#include "ir.h"
#include "plan.h"

// ---- loss.c: adds an output "loss" (a float of rank 0) ----------------------------------
// `expr`: an expression over outputs, inputs and new inputs, which become S_input slots of inferred
// shapes; NULL: the model's only scalar float output. Also adds "accuracy" for a cross entropy with
// class numbers.
Graph *loss_pass(Arena *, const Graph *, const char *expr);
const char *loss_names(Arena *); // Returns the names of losses.def, as a list.
// Returns the input that `expr`, a cross entropy (class numbers) or mean squared error (floats),
// compares with; NULL: `expr` is NULL or another loss.
const char *loss_labels(const Graph *loss, const char *expr);
// Returns a warning if `expr` calls a loss on an output of another kind, such as cross_entropy on
// probabilities; NULL: none.
const char *loss_doubt(const Graph *, const char *expr);
// Fails if `expr` cannot be parsed or uses no output of the model, which itself may be unreadable.
void loss_check(Arena *, const char *expr, int noutput, const char *const *output);
// Adds the loss sum(output * cotangent) over outputs. Cotangents are new inputs, named COTANGENT_OF
// the output, of its shape. `given`: by output, its cotangent's shape, which may be smaller (zeros
// follow); rank -1: none. NULL: each float output has one.
#define COTANGENT_OF "cotangent:"
Graph *cotangent_pass(Arena *, const Graph *, const Shape *given);
// Renames an output of the model OUTPUT_OF its name, which "loss" or a gradient takes.
#define OUTPUT_OF "output:"
void rename_output(Graph *, int number);

// ---- dropout.c: rewrites every dropout as the book's (`draw`: training), or removes it -----
// `rate` > 0: also inserts dropout in attention, and after attention blocks and MLPs without it, in
// `*added` places; 0: removes it; NAN: leaves it as in the file.
Graph *dropout_pass(Arena *, Graph *, bool draw, double rate, int *added);
// The same graph, with dropout of the weights of attention as a factor of kernels of attention,
// where the machine has such kernels (NULL: there are none).
const Graph *attention_dropout_pass(Arena *, const Graph *, const Machine *);
// Returns Val.from of the first random number in the graph or its loops; -1: none.
int drawing_node(const Graph *);

// ---- grad.c: adds output GRAD_OF NAME, d loss / d slot, for each slot with want[slot] --------
// Zero gradients are outputs too. Random numbers are shared with the forward pass. Attention stays
// whole if it has a kernel on the machine (NULL: always).
#define GRAD_OF "grad:"
Graph *grad_pass(Arena *, const Graph *, const bool *want, const Machine *);

// ---- loss_scale.c: scales the loss whose gradients are computed in f16 --------------------
#define LOSS_SCALE       "amos.scale"
#define SKIPPED          "amos.skipped"
#define LEAST_LOSS_SCALE 1.0
#define MOST_LOSS_SCALE  0x1p126         // its reciprocal is a normal f32
Ref loss_scale(Graph *);                 // f64, rank 0; 0: products are not in f16
Ref put_unscaled(Graph *, Ref gradient); // that of the loss itself
enum { SCALE_STATES = 3 };
// Adds the state of the scale, if need be: itself; how many steps in a row were finite; how many
// changed nothing, i64. All of rank 0.
void put_scale_state(Graph *, Ref *state);
// True for a value that makes gradients those of the loss itself, or is one.
bool is_unscaled(const Graph *, const Val *);
// Stores the next scale. Returns whether all of these gradients are finite, b8, rank 0.
Ref update_loss_scale(Graph *, int n, const Ref *gradient);
Ref put_kept(Graph *, Ref finite, int slot, Ref value); // else what the slot has
// Stores the next scale of a graph that outputs gradients and makes no step. If not all of them are
// finite, its other stores leave what they store to.
Graph *loss_scale_pass(Arena *, const Graph *);

// ---- unused_params.c: drops gradients that are zero for any data -------------------------

bool is_zero_gradient(const Graph *, Ref); // True for the constant, also moved.

typedef struct UnusedParam {
	int slot; // of the loss's graph
	const char *why;
	bool lost; // gradients end on the way to it, at no detach
} UnusedParam;
typedef VEC(UnusedParam) UnusedParams;
Graph *unused_params_pass(Arena *, const Graph *loss, const Graph *gradients, UnusedParams *);

// ---- eta/: infers the expected scale of every parameter, with reasons -------------------
typedef struct Surd { // (num / den)^(1/4) if exact, else a plain number
	double value;
	bool exact;
	int64_t num, den;
} Surd;
typedef struct ParamPiece { // elements [from, to) of an axis
	int64_t from, to;
	const char *use; // query key value gate up candidate; NULL: none of these
	int64_t heads;   // 0: no heads
} ParamPiece;
typedef struct ParamProduct {
	const char *node, *kind; // contraction, look-up, element-wise
	const char *with;        // the other factor; NULL: none
} ParamProduct;
typedef struct Structure {      // how the graph uses a parameter; eta/structure.c
	const char *use;        // as of a piece; NULL: none, or that of the pieces
	int64_t heads;          // 0: no heads
	int axis;               // of the pieces
	VEC(ParamPiece) pieces; // if its elements along an axis have different uses
	bool interleaved;       // pieces of one use are not adjacent
	int64_t groups;         // of a kernel: matrices that it is a stack of; else 1
	bool group_axes[RANK];  // that count them; an axis may count outputs, too
	int64_t contracted;     // of a kernel: inputs per output; else 0
	bool used, input;       // input: no kernel and no table lies between it and an input
	bool readout; // it makes an output, or what the loss compares, and no kernel reads that
	int depth;    // kernels on the longest path from an input to it
	VEC(ParamProduct) products;
	Ref at; // where a signal meets it last; 0: nowhere
} Structure;

typedef struct Matrix {  // matrices.c: of a hidden kernel; or a stack of them
	const char *use; // as of a piece
	struct MatrixRange {
		int64_t from, to;
	} * range; // elements of axis Matrices.axis
	int nrange;
	int64_t count, rows, columns; // matrices in the stack; outputs and inputs of each
	double eta;                   // root mean square of its elements' eta
} Matrix;
typedef struct Matrices {
	int n; // 0: it is not trained as matrices
	const char *why;
	Matrix *at;
	int axis;        // that the matrices have ranges of
	int order[RANK]; // of its axes: those that count matrices, outputs, inputs
} Matrices;

typedef struct Eta {
	Surd eta;
	const char *formula; // "sqrt(2/3072)", "1/2", ...
	const char *role;    // kernel bias embedding norm_scale norm_bias ...
	Shape slot;          // of v and b: broadcast to the parameter
	Surd range, demand;
	const char *source, *demand_by; // nodes that range and demand come from; NULL: none
	const char **why;
	int nwhy;
	bool sure;
	const char *question;             // for the user, if not sure
	bool fan_in[RANK], fan_out[RANK]; // of a kernel: reduced axes; axes of output features
	int nparts; // > 0: eta differs along an axis: parts[i] is for counts[i] elements of `axis`
	int axis;
	const int64_t *counts;
	const struct Eta *parts;
	const Structure *structure; // NULL: eta was read from a file
	const Matrices *matrices;   // never NULL after settle_etas()
} Eta;

// eta/override.c: values given by the user
typedef struct Override {
	const char *pattern, *expr; // eta: '*.head.weight', 'sqrt(1/768)'; range: 'x', '0.33';
	                            // slots: 'embed*', 'rows'
	int axis;                   // eta along an axis: `count` values; count 0: expr
	int64_t count;
	const double *along;
	bool sure;          // a row of a report that is sure
	const char *report; // the file of a report's row: `pattern` is an exact name, and the value
	                    // counts only if it differs from the inferred one
} Override;
typedef VEC(Override) Overrides;
typedef struct EtaOptions {        // of several overrides, the last wins
	const char *convention;    // "paper" (NULL) or "jestimator"
	Overrides eta;             // of parameters
	Overrides range;           // root mean squares of inputs, by name
	const struct Rules *rules; // NULL: the paper's rules (tests change some)
	Overrides slots; // shapes of v and b: full, rows, scalar, or dimensions as in '[1,768]'
} EtaOptions;

typedef enum Nature {
	AUX,      // masks, indices, constants
	VARIABLE, // made of parameters alone
	SIGNAL    // carries data
} Nature;
typedef struct Scales { // by Ref: what eta is inferred from
	const Nature *nature;
	const Surd *range, *demand;
	const Ref *demand_by;      // the value that sets the demand; 0: unconstrained
	const char *const *coarse; // what the range neglects; NULL: nothing
} Scales;
// Returns the graph that eta is inferred from: loops are unrolled, long ones truncated. Callers
// that need Scales pass such a graph.
Graph *eta_graph(Arena *, const Graph *);
// By slot; only S_param elements are filled. Deterministic. `scales`: filled unless NULL.
Eta *eta_pass(Arena *, const Graph *, const EtaOptions *, Scales *scales);
// Applies eta and slots of the options to etas, which may be those of a report, and finds matrices.
void settle_etas(Arena *, const Graph *, Eta *, const EtaOptions *);
// eta/pattern.c: returns the name of a value for reasons: a slot, or a node of the file.
const char *value_label(Arena *, const Graph *, Ref);

// eta/matrices.c: how optimizers other than Amos treat a parameter. Role and structure decide,
// never a name.
typedef struct EtaPiece { // elements of an axis with one eta and one use
	ParamPiece piece;
	const struct Eta *own;
} EtaPiece;
typedef VEC(EtaPiece) EtaPieces;
typedef struct Stack {                // the matrices of a kernel
	int64_t count, rows, columns; // rows: outputs, columns: inputs, of each
	bool split;                   // the groups divide an axis of inputs
} Stack;
// Returns where the eta or the use of a parameter changes along an axis, *axis; none: nowhere.
EtaPieces eta_pieces(Arena *, const Shape *, const Eta *, int *axis);
Stack stack_of(const Shape *, const Eta *);
// Returns the matrices that Muon and Hyperball train, each by itself: hidden kernels, cut into
// their pieces.
const Matrices *matrices_of(Arena *, const Shape *, const Eta *);
// Returns "decay" (kernels), "table" or "no_decay".
const char *decay_group(const char *role);

// eta/surd.c
extern const Surd surd_one;
Surd surd_number(double);                 // not exact
Surd surd_root(int64_t num, int64_t den); // sqrt(num / den)
Surd surd_near(double);                   // the surd that a rounded number stands for
Surd surd_mul(Surd, Surd), surd_div(Surd, Surd), surd_inverse(Surd);
Surd surd_hypot(Surd, Surd); // sqrt(a^2 + b^2)
bool surd_same(Surd, Surd);  // up to the rounding of numbers in a file
// "sqrt(2/3072)"; `over`: denominator to show, 0: the reduced one.
const char *surd_text(Arena *, Surd, int64_t over);

// ---- labels.c: counts the labels of a loss ----------------------------------------------
typedef struct Labels {
	double count;  // per batch; the maximum over several losses
	double weight; // root of the sum of their squared weights in the loss: for a mean,
	               // 1 / sqrt(count)
} Labels;
// Returns the fraction of an input's elements that are labels.
typedef double LabelPart(void *data, const Slot *);
Labels count_labels(const Graph *, LabelPart *, void *data);

// ---- hyperparams.c, definitions.c, step.c: adds the optimizer's step to gradients -----
typedef struct Opt {
	const char *name;               // in optimizers.def
#define HYPER(field, ...) double field; // NAN: by rule
#define DERIVED           HYPER
#include "optimizers.def"
#undef DERIVED
#undef HYPER
	Labels labels;        // of one run, for clip; count 0: unknown
	double batches;       // N, the number of independent batches in the data; 0: unknown
	bool elsewhere;       // gradients are given, and taken at the parameters
	int64_t accumulate;   // runs per update, by the mean of their gradients; 0 means 1
	const char *schedule; // in optimizers.def; NULL: constant
	const char *chosen;   // set by opt_defaults: the settings and their rules, one per line
} Opt;
typedef enum StateShape { // of state
	STATE_full,       // the parameter's
	STATE_slot,       // Eta.slot
	STATE_rows,       // without the last axis
	STATE_columns,    // without the last axis but one
	STATE_matrix,     // the parameter's, if it is trained as matrices; else it has none
	STATE_rest,       // the parameter's, if it is not
	STATE_shared      // one number, f64, for all parameters
} StateShape;
enum { STATES = 8 };
typedef struct Optimizer {
	const char *name, *title;
	void (*rule)(Opt *, Text *);
	Opt usual;
	struct State {
		const char *name; // of the definition's operand
		StateShape shape;
		const char *kept_for; // the hyperparameter that must be nonzero; NULL: none
	} state[STATES];
} Optimizer;
typedef struct Schedule {
	const char *name;
	double (*stable)(const Opt *); // part of the run in which its length does not matter
} Schedule;
const Optimizer *optimizer_named(const char *); // Returns a row of the table; NULL: none.
// Returns "amos, adamw or sgd": the optimizers with this operand or attribute (NULL: all); "":
// none.
const char *optimizer_names(Arena *, const char *operand);
const Schedule *schedule_named(const char *); // NULL: none
const char *schedule_names(Arena *);
double *opt_attribute(Opt *, const char *name); // NULL: unknown name
Opt opt_named(const char *name); // Returns hyperparameters to be set by rule, data unknown.
void opt_defaults(Arena *, Opt *);
// True if one of the definitions of an optimizer or a schedule in optim.am has this operand or
// attribute.
bool opt_uses(const char *optimizer, const char *operand);
bool schedule_uses(const char *schedule, const char *operand);
bool of_schedule(const char *operand); // some schedule uses it
bool opt_takes_matrices(const char *optimizer);
// True if gradients are those at another point than the parameters.
bool opt_moves_point(const Opt *);
// Adds S_state slots (NAME.v, NAME.b, NAME.m, NAME.eta, "amos.step", ...) and stores; of the
// outputs, "loss", "accuracy" and checks remain. Needs opt_defaults. If several runs make one
// update, NAME.sum holds the sum of their gradients, amos.left counts the remaining runs, and the
// graph is that of the last run or, for STEP_gather, of the others, on the same slots. If updates
// depend on their number in all, the program sets "amos.steps" to it, which it may change during
// the part "amos.stable" of them.
typedef enum StepPart {
	STEP_train,    // gradients and update
	STEP_gather,   // a run before the update, which only accumulates gradients
	STEP_gradient, // gradients alone, of this run, stored in the slots of gradient_slots()
	STEP_apply     // the update alone, from these slots
} StepPart;
Graph *step_pass(Arena *, const Graph *, const Eta *, const Opt *, StepPart);
// Returns a copy with a slot, grad:NAME, for each gradient that it outputs.
Graph *gradient_slots(Arena *, const Graph *);
// Returns the bytes of state, which depend on the optimizer, hyperparameters and slot shapes.
int64_t state_bytes(const Graph *, const Eta *, const Opt *);

// ---- loops.c: unrolls the first `most` iterations of loops (see unroll_loop); 0: trims them ---
Graph *loops_pass(Arena *, const Graph *, int64_t most);
bool has_loop(const Graph *);

// ---- convolution.c: finds convolutions, and writes them as they are computed -----------

enum { TAPS = 64, MANY_TAPS = 12 }; // of a depthwise convolution: at most; from which x is padded
typedef struct Convolution {
	const Val *window; // of x
	Shape from;        // of x: [N, G, C, in..]
	int n;             // spatial axes
	bool depthwise;    // C = O = 1
	bool narrow;       // it has groups, of few channels
	bool adds_taps;    // with zeros between the elements of x, or with few outputs: the taps of
	                   // axes from `first` on are added after the product
	int first;
} Convolution;
// Returns the windows [N, G, C, out.., size..] that r is as a matrix [positions, size.. C], or as
// one for each sample and group; NULL: it is no such matrix.
const Val *windows_of_matrix(const Graph *, Ref r);
// True if the product is a convolution without a stride, or one that is depthwise or narrow.
bool is_convolution(const Graph *, const Val *dot, Convolution *);
// Returns spatial axis a of the windows over the result that have an element of x where a window of
// x has one of the result.
WindowAxis transposed_axis(const Convolution *, int a);
// Returns how many zeros after an axis of `extent` elements let its last window, of `span`
// elements, end inside.
int64_t zeros_after(const WindowAxis *, int64_t span, int64_t extent);
const Graph *convolution_pass(Arena *, const Graph *);

// ---- groups.c: multiplies several groups of a convolution as one -----------------------
const Graph *groups_pass(Arena *, const Graph *, const Machine *);

// ---- decompose.c: replaces composites by their definitions -------------------------------
// Attention that has a kernel on the machine (NULL: none has) stays.
Graph *decompose_pass(Arena *, const Graph *, const Machine *);

// ---- layout.c: computes values in the order in which products leave them ------------------
const Graph *layout_pass(Arena *, const Graph *);

// ---- channels.c: gives windows the channels that matrix registers load --------------------
// Returns the same graph if it changes nothing.
const Graph *channels_pass(Arena *, const Graph *, const Machine *);

// ---- transpose_dot.c: swaps operands of products to drop transposes -----------------------
Graph *transpose_dot_pass(Arena *, const Graph *, const Machine *);
// True if Winograd's method is worth considering: windows of 3 x 3 adjacent elements, at enough
// positions.
bool may_be_squares(const Val *window, int64_t positions);

// ---- precision.c: rounds operands of products, and values between them, to Graph.products ---
Graph *precision_pass(Arena *, const Graph *, const Machine *);
// Fails if the machine has no such products; `target`: what the message calls it.
void check_precision(const Graph *, const Machine *, const char *target);

// ---- statistics.c: rewrites sums over columns so that one pass computes them --------------
const Graph *statistics_pass(Arena *, const Graph *); // the same graph if it changes nothing

// ---- parts.c: reduces in parts what has few results ---------------------------------------

enum { PARTS = 64 }; // at most, on a CPU
// Puts reduction v of x as reductions of parts, about as many as wanted unless they would be short,
// and of their results; as it is if x is small or cannot be divided.
Ref put_in_parts(Graph *, const Val *v, Ref x, int64_t wanted);
const Graph *parts_pass(Arena *, const Graph *, const Machine *); // the same if it changes nothing

// ---- line_windows.c: writes convolutions of few channels as matrix registers multiply -----
Graph *line_windows_pass(Arena *, const Graph *);

// ---- panels.c: packs what loops multiply in every iteration, once before them -------------
Graph *panels_pass(Arena *, const Graph *, const Machine *);

// ---- points.c: copies the weights at which a step takes gradients, for products ------------
const Graph *points_pass(Arena *, const Graph *, const Machine *);

// ---- pitch.c: lets rows of large values of 16 bits begin at lines of the cache -------------
const Graph *pitch_pass(Arena *, const Graph *, const Machine *);

// ---- row_blocks.c: computes logits, and what depends on them, in blocks of rows -----------
const Graph *row_blocks_pass(Arena *, const Graph *, const Machine *);

// ---- block_tiling.c: the schedules of products by blocks of threads -----------------------
// True if blocks of threads share the sums of a product, which the next launch adds up.
bool blocks_split_sums(const Graph *, Ref dot, const Machine *);

// ---- tiling.c: the schedules of products ----------------------------------------------------
// True if workers, or blocks of threads, share the sums of a product, which the next launch adds
// up. On a CPU, only for products of slices, which would otherwise go through memory.
bool splits_sums(const Graph *, Ref dot, const Machine *);

// ---- materialize.c: decides which values are stored ---------------------------------------
// True for a reduction over the few elements of a window, which is an expression of any kernel.
bool reduces_windows(const Graph *, const Val *);
typedef struct Effort { // of an expression, down to memory
	int depth;
	bool windows; // it reduces windows
	bool turned;  // a copy by squares, a kernel of its own
} Effort;
// Returns by Ref whether a value is in memory, and the cost of its expression.
bool *materialize_pass(Arena *, const Graph *, const Machine *, Effort **);

// ---- fuse.c: divides a graph into kernels -------------------------------------------------
typedef VEC(Ref) Refs;
void sort_refs(int n, Ref *); // ascending
// Returns a plan whose kernels have no order, schedules or bodies yet.
Plan *fuse_pass(Arena *, const Graph *, const char *name, const Machine *);

// ---- schedule.c: orders kernels so that lifetimes are short -------------------------------
void schedule_pass(Arena *, Plan *);

// ---- blocking.c: chooses the schedules of kernels -----------------------------------------
void tile_pass(Arena *, Plan *, int first);               // of those from number `first` on
void tile_together(Arena *, Plan *, const Ints *kernels); // of products in one launch

// ---- bundle.c: reorders kernels, and launches some together -------------------------------
// `limited`: memory is, so few of them wait.
void bundle_pass(Arena *, Plan *, bool limited);

// ---- recompute.c: computes values again to save memory ------------------------------------
// Fills `order` so that scratch has at most `limit` bytes. Returns its bytes, which are more if
// that is impossible.
int64_t recompute_pass(Arena *, Plan *, int64_t limit);

// ---- memory.c, verify.c: assigns memory to values -----------------------------------------
void memory_pass(Arena *, Plan *); // fills place, to, work, slot and *_bytes
// Fails if the memory or a schedule of a placed plan is wrong.
void verify_plan(const Plan *);

// ---- tuning.c -------------------------------------------------------------------------

typedef struct Tuning { // a row of tunings.def
	const char *name;
	int cache, wider;
	LoopOrder order;
	int packed, alone, still, unroll;
} Tuning;
extern const Tuning tunings[];
extern const int tuning_count;
// Returns what the choice of a tuning depends on, of a kernel with its usual schedule.
const char *tuning_key(Arena *, const Graph *, const Kern *);

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
Pass pass_named(const char *);        // PASSES: none
const char *pass_names(Arena *arena); // as a list in a sentence

typedef struct Unit { // an entry of a program
	const char *name;
	const Machine *machine;
	const Graph *graph;
	Plan *plan;   // from pass `fuse` on
	bool limited; // scratch is: see bundle_pass
	bool inside;  // the body of a loop
} Unit;
void run_pass(Arena *, Pass, Unit *); // one of `loops` to `memory`
Plan *plan_graph(Arena *, const Graph *, const char *name, const Machine *); // all of these

#endif
