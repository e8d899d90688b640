// plan.h: declares the Plan: which values of a Graph are in memory, where, and the kernels that
// write them, in order. All other values are expressions, evaluated where they are used. Made by
// passes (fuse.c to memory.c), read by emit.
#ifndef PLAN_H
#define PLAN_H
#include "ir.h"

// Loop shapes (L_). The iteration space of a kernel is a Shape; a mask divides it into reduced
// axes, the inner loops of one worker, and the others, which are divided among workers.
typedef enum KernKind {
	// Every output has `space`'s elements, in row-major order; reductions inside are short.
	L_map,
	// Reductions of the last axis and others: a worker has one row (or a few), lanes run along
	// the last axis.
	L_row,
	// Reductions that keep the last axis, or maps of one row and then of all: lanes are
	// columns, and the loop runs over the reduced axes.
	L_col,
	// One dot, the maps after it and reductions of all its rows. Operands are expressions,
	// evaluated as panels are packed.
	L_dot,
	L_attend,  // attention and the statistics of its scores, or gradients of its operands
	L_scatter, // one scatter
	L_scan,    // one cumsum
	L_loop,    // one loop: the kernels of its body, once per iteration
} KernKind;

// Number of elements above which an extra launch is cheaper than reading the space again, or in
// partial rows.
enum { LARGE_SPACE = 1 << 16 };

// Blocks that a multiprocessor of a GPU has at once: one computes while the other waits for memory.
// The emitter leaves registers for them, and schedules have as many blocks.
enum { RESIDENT = 2 };

// A class of machines: a row of machines.def.
typedef struct Machine {
	const char *name, *plain, *arch, *features;
	int lanes, registers, threads;
	int64_t l1, l2; // bytes
	int workers;
	int rows, vectors, narrow, unroll, depth, ahead, apart, pairs;
	int fused, round, root;
	bool exact;
	int warp;
	int shared; // KiB
	// Of a CPU, those that launches are divided evenly among; 0: unknown. No sum depends on it.
	int processors;
	// By key of a kernel: the number of the tuning that was measured to be best on this CPU
	// (passes/tuning.c). NULL: all have the usual one.
	const Table *choices;
} Machine;

// Where a value is. Offsets are in bytes, multiples of 64.
typedef enum Block {
	B_none,  // nowhere: an expression
	B_param, // offset of its slot: a parameter, frozen weight or buffer
	B_state,
	B_scratch,
	B_input,  // offset is the number of the input slot
	B_output, // offset is the number of the output, whose address the caller gives
	B_const,  // a literal too large to be immediate: read-only data of the object, numbered by
	          // Ref
	B_grad,
} Block;

typedef struct Location {
	Block block;
	int64_t offset;
} Location;

// A schedule: how a kernel is computed. A pass chooses it from shapes and the machine; memory is
// planned, and code is emitted, by it alone. Equal signatures and schedules, equal code.
typedef enum Partition { // of a kernel's space among workers (P_)
	P_rows,          // a worker has rows of the space; lanes run along the last axis
	P_columns, // a worker has columns: a piece of one row, or lanes along an axis that is kept.
	           // If
	           // it has fewer columns than threads, a GPU's threads share their rows
	P_partials, // a worker has rows, which it reduces to a row of partial results, in the
	            // launch before. The main launch reduces these and computes what has the shape
	            // of a row; the launch after computes the outputs of the full shape.
	            // Joined: a worker has some columns of rows. J_all: in the main launch, each
	            // reduces the results of its columns and computes all outputs. J_last: the main
	            // launch is the only one, and the last worker that has some columns does so
	P_tiles,    // a product in register tiles. The launch before packs what is shared; the one
	            // after reduces the workers' partial results
	P_heads,    // attention: a worker has heads, or queries of them
	P_blocks,   // a product in tiles of as many threads as share memory. The last worker that
	            // has some columns reduces their partial results; or the launch after adds up
	            // the parts of the sums
	PARTITIONS
} Partition;

typedef enum Accumulation { // of floats (A_)
	A_own,              // in their own type
	A_f32,
	A_f64,
	ACCUMULATIONS
} Accumulation;

typedef enum Joining { // of partial results, in the main launch (J_)
	J_none,
	J_all,  // by each worker that needs them
	J_last, // by the last that has some
} Joining;

typedef enum LoopOrder { // of the loops around a tile (N_), from the outermost
	N_strips,        // a strip meets every panel, and is finished
	N_panels,        // a panel meets every strip; then the strips are finished
	ORDERS
} LoopOrder;

typedef enum Packing { // how an operand of a product comes to the tile
	W_place,       // read in place
	W_along,       // b, read in place by lanes along k: few rows meet columns that are adjacent
	W_copy,        // packed with lanes along the tile's own axis: rows of a, columns of b
	               // (P_blocks: threads side by side read along it)
	W_transpose,   // packed with lanes along k, transposed in registers (b) or left so (a)
	               // (P_blocks: threads side by side read along k)
	W_patch,       // a, whose rows are windows: their elements are packed once (patch.c)
	W_winograd,    // a, whose rows or columns are windows, by Winograd's method (winograd.c)
	PACKINGS
} Packing;
static inline bool is_read_in_place(Packing way)
{
	return way == W_place || way == W_along;
}

// The launches of a kernel, in order.
typedef enum Stage { BEFORE, MAIN, AFTER, STAGES } Stage;

typedef struct ValStep {
	Ref val;
	int depth;
	int chains; // of a reduction along the lanes: vectors that it adds up side by side
} ValStep;
typedef VEC(ValStep) ValSteps;

typedef struct Sched {
#define S(kind, field, meaning) int64_t field;
#include "sched.def"
#undef S
	ValSteps reduce; // reductions over the kernel's axes, and how many each needs before it
	ValSteps keep;  // values of a row (partials: of the shape of a row) that are computed once,
	                // and the reductions before that
	ValSteps ahead; // values in memory of which the next row is prefetched
	ValSteps past;  // outputs that are stored past the caches
} Sched;

// A kernel computes its outputs from values in memory: slots, constants, outputs of earlier
// kernels. All values between are inside it. The first kernel that lists an output computes it;
// another copies it. In row and col kernels every reduction has an operand of the shape of `space`
// and the axes `reduce` (dot: the same elements and last axis, all others reduced); a value not
// below a move has the shape of `space`, of `space` reduced, or is broadcast to these. An output
// may be in the memory of an operand that is last used here, and only at the same index (see `to`).
// So a worker computes each element once, reads what a block or row needs before it writes any
// output of it, and writes outputs after its last reduction, or, `along`, once its only pass over a
// row has read that index. A loop reads its operands from memory, except constants; its body is a
// plan, whose inputs and outputs are, for each iteration, where the loop's values are.
typedef struct Kern {
	KernKind kind;
	Shape space;
	uint32_t reduce; // bit a: axis a of space is reduced (row, col, dot) or summed along (scan)
	int nout;
	Ref *out; // ascending. Map, dot: of the shape of space, or the same elements in row-major
	          // order (dot: and the same last axis). Row, col: of the shape of space. These and
	          // dot: or of space reduced
	Location *to;      // of output k: place[out[k]], or a second location of the same value
	Ref root;          // dot, scatter, cumsum or loop; 0 for the others
	struct Plan *body; // of a loop, whose outputs are its results and the number of iterations
	Sched *sched;      // NULL until the kernel is scheduled
	const char *key; // of its tuning, if choices are made by measurement; NULL: there are none
	Location work;   // of sched->work bytes
	bool bundled;    // in one launch with the kernel before it, and independent of it
} Kern;

// Workers whose threads share rows have at least so many columns, until so many percent of the
// multiprocessors have one.
enum { SHARED_COLUMNS = 8, FULL_PERCENT = 95 };

// True if threads of a GPU share the rows of a worker's columns.
static inline bool shares_columns(const Kern *kern, const Machine *machine)
{
	const Sched *s = kern->sched;
	return kern->kind == L_col && s->partition == P_columns && machine->threads > 1 &&
	       s->columns < machine->threads;
}

// True if a cache of so many bytes holds a row, of so many elements, and the next of the values
// that are prefetched. On a GPU, all count as f32.
static inline bool holds_rows(const Graph *g, const Sched *s, const Machine *machine, int64_t row,
                              int64_t cache)
{
	int64_t bytes = 0;
	for (int i = 0; i < s->ahead.count; i++)
		bytes += machine->threads > 1 ? 4 : elems[val(g, s->ahead.at[i].val)->type].bytes;
	return 2 * row * bytes <= cache;
}

// True if a product reduces along its rows, rather than down its columns.
static inline bool reduces_along(const Kern *k)
{
	return k->kind == L_dot && k->space.rank && k->reduce >> (k->space.rank - 1) & 1;
}

static inline bool is_past(const Sched *s, Ref r)
{
	bool past = false;
	for (int i = 0; i < s->past.count; i++)
		past |= s->past.at[i].val == r;
	return past;
}

typedef VEC(int) Ints;
typedef struct Plan {
	const Graph *graph; // composites decomposed; live values only
	const char *name;   // of the entry: train, eval, run, grad, ... (abi.def)
	VEC(Kern) kerns;    // in the order in which they first run
	Ints order;         // the numbers of the kernels as they run, some again, which writes the
	                    // same values to the same locations; empty: each runs once
	Location *place;    // indexed by Ref: where it is read
	Location *slot;     // indexed by slot: by the slot table alone, so equal in all entries
	int64_t param_bytes, state_bytes, scratch_bytes;
	const Machine *machine; // that it is scheduled for
} Plan;

static inline int run_count(const Plan *p)
{
	return p->order.count ? p->order.count : p->kerns.count;
}

static inline int run_kernel(const Plan *p, int run)
{
	return p->order.count ? p->order.at[run] : run;
}

// True if kernel k is in one launch with others; then it runs once.
static inline bool is_bundled(const Plan *p, int k)
{
	return p->kerns.at[k].bundled || (k + 1 < p->kerns.count && p->kerns.at[k + 1].bundled);
}

// Returns the first of the runs that are one launch with this one.
static inline int launch_begin(const Plan *p, int run)
{
	while (run && p->kerns.at[run_kernel(p, run)].bundled &&
	       run_kernel(p, run - 1) == run_kernel(p, run) - 1)
		run--;
	return run;
}

// Returns the run after the last of these.
static inline int launch_end(const Plan *p, int run)
{
	int k = run_kernel(p, run);
	while (++run < run_count(p) && run_kernel(p, run) == k + 1 && p->kerns.at[k + 1].bundled)
		k++;
	return run;
}

static inline int64_t ceil_div(int64_t a, int64_t b)
{
	return (a + b - 1) / b;
}

static inline bool is_power_of_two(int64_t n) // of a positive n
{
	return !(n & (n - 1));
}

// Values, local memory and scratch begin at cache lines.
static inline int64_t full_lines(int64_t bytes)
{
	return ceil_div(bytes, 64) * 64;
}

// Blocks of a kernel that a multiprocessor has at once, in a launch.
static inline int64_t residents(const Sched *s, Stage stage)
{
	return s->alone && stage == MAIN ? 1 : RESIDENT;
}

// Returns how many of a launch's blocks the busiest multiprocessor of a GPU has. It takes as long
// as for these one after the other: those that it has at once share it, one alone has all of it.
static inline int64_t busiest_blocks(int64_t blocks, int64_t multiprocessors)
{
	return ceil_div(blocks, multiprocessors);
}

// Blocks that all multiprocessors of a GPU have at once.
static inline int64_t wave_of(const Machine *machine)
{
	return (int64_t)machine->workers * RESIDENT;
}

// Returns how many elements a space has at least if workers own some of its rows each, and join
// their partial reductions: fewer on a GPU, which has room for more workers.
static inline int64_t rows_space(const Machine *machine)
{
	return machine->threads > 1 ? LARGE_SPACE / 4 : LARGE_SPACE;
}

// ---- machine.c ------------------------------------------------------------------------

extern const Machine machines[];
extern const int machine_count;
const Machine *machine_named(const char *); // NULL: no class has this name
// True if blocks of threads have matrix instructions, for f16, bf16 and f32 or TF32.
bool has_block_matrix(const Machine *);
bool has_thread_matrix(const Machine *); // True if threads, of a CPU, have matrix registers.
bool has_matrix(const Machine *);        // Either: rounded operands of products are stored.
bool has_matrix_registers(const Kern *, const Machine *); // True if the kernel's products use them.
// True if the machine has matrix instructions of warpgroups, which multiply that type in tiles of
// so many rows.
bool has_group_matrix(const Machine *, Elem matrix, int64_t height);
enum { STATIC_SHARED = 44 << 10 }; // bytes of shared memory that tiles have without a launch's
// Returns the bytes that tiles of each of so many blocks of a multiprocessor have.
int64_t shared_room(const Machine *, int64_t blocks);

// ---- plan.c ---------------------------------------------------------------------------

// How a kernel reads a value in memory.
typedef enum Reach {
	R_same,    // at the index of the computed element (or broadcast to it)
	R_relabel, // through reshapes: at the same position in row-major order
	R_moved,   // at others
} Reach;

typedef struct Read {
	Ref val;
	Reach reach; // the farthest of its uses
} Read;

typedef VEC(Read) Reads;

// Finds the values that expressions read. memory[ref]: the value is in memory, as slots are.
typedef struct Walk {
	Arena *arena;
	const Graph *graph;
	const bool *memory;
	struct Seen *seen; // by Ref
	int epoch;
} Walk;
Walk walk_new(Arena *, const Graph *, const bool *memory);
void walk_start(Walk *, Reads *); // clears the list
// Adds the values that the expression of v reads, even if v is in memory.
void walk_root(Walk *, Ref v, Reads *);
// Returns by kernel the values that it reads from memory, except its own outputs.
Reads *plan_reads(Arena *, const Plan *);
int *plan_writers(Arena *, const Plan *); // by Ref: the kernel that computes it; -1: none
typedef struct Work {
	int64_t flops, bytes; // bytes: read and written
} Work;
// Returns by kernel its work if it runs once; that of a loop is not counted.
Work *plan_work(Arena *, const Plan *, const Reads *);
void place_leaves(Plan *);                   // Fills `place` of slots and constants.
int64_t stage_workers(const Sched *, Stage); // 0: no such launch
// True if kernel k computes r, rather than reads it from memory. Uniform constants are in its code.
bool is_inside(const Plan *, const int *writer, int k, Ref r);
// True if output o has the shape of the space reduced.
bool is_reduced_out(const Graph *, const Kern *, int o);
// Returns the output that a loop's result is; -1: it is unused.
int result_out(const Plan *, const Kern *loop, int result);
// The layout of a loop's work, in bytes: first a flag that an iteration follows; then, for each
// result, its own location if no output holds it and a second one if it is carried. The scratch of
// the body begins at `bytes`.
typedef struct LoopWork {
	VEC(int64_t) unused, second;
	int64_t bytes;
} LoopWork;
LoopWork loop_work(Arena *, const Plan *, const Kern *loop);

// ---- plan_text.c ----------------------------------------------------------------------

extern const char *const kern_kinds[]; // names, by KernKind
char *plan_text(Arena *, const Plan *);
// Reads a plan and the graph before it, in the lexer's arena.
Plan *lexer_plan(Lexer *, const struct Book *);

// ---- dot_sizes.c ------------------------------------------------------------------------

// Rows of windows overlap: see patch.c.
enum { DIGITS = 6 };
typedef struct Digit { // of a number x: x / each % extent
	int64_t each, extent;
	int64_t move[RANK]; // by axis of the value under the windows: elements from digit to digit
	int64_t taken;      // digits that a patch has
	int64_t offset;     // elements of the patch from digit to digit
} Digit;
typedef struct Digits { // of rows, of steps of k: the innermost first
	int n;
	Digit at[DIGITS];
} Digits;
typedef struct Patch {
	Ref from;    // the value under the windows
	double fill; // outside of it
	Digits row, step;
	Digit fold; // the elements of a step
	// By axis of `from`: elements of the box that is packed, and how many elements of `from`
	// they are apart; their distance in the box; those of it before the first row and step, as
	// a negative number.
	int64_t size[RANK], apart[RANK], stride[RANK], below[RANK];
	int64_t elements;
} Patch;

// Winograd's method for windows of 3 x 3: a square of 4 x 4 rows, which read 6 x 6 elements, is 36
// products of transformed elements and transformed kernels, not 144. In the gradient of a kernel,
// it is a square of 4 x 4 steps of k, of transformed elements and transformed gradients.
enum { EDGE = 4, TAP_EDGE = 3, SPAN = EDGE + TAP_EDGE - 1 };
enum { SQUARE_ROWS = EDGE * EDGE, WINDOW = TAP_EDGE * TAP_EDGE, POINTS = SPAN * SPAN };
typedef struct Squares {
	int64_t all, lines, columns; // in all; of lines and of columns of an image
	int64_t channels;            // steps of each of the products; summed: their rows
	bool summed;                 // over the squares, which are steps of k
	int64_t block;               // summed: channels of a worker
	int axis[2], channel;        // of the value under the windows: line, column; channel
	bool turned[2];              // by axis: the first tap is the last element of a window
} Squares;

// Sizes computed from the schedule of a product.
typedef struct DotSizes {
	int lead; // axes before it are the batch; those from it to the last but one are rows
	int64_t batch, m, n, k;
	int64_t bytes;               // of a sum, and of a step of a or b once they are packed
	int fold;                    // elements of k that are a step of the tile: 1, or 2 of bf16
	int slices;                  // bf16 values that add up to an element: 3 for an f32
	int matrix;                  // rows of the matrix registers that are used; 0: vectors
	int64_t line;                // elements of k that steps do not go past; less than k if
	                             // rows are windows
	int64_t steps;               // of k
	bool dense;                  // a is read as bf16 in order: two are a step
	int lanes;                   // elements of a vector
	int64_t width;               // columns of a panel
	int64_t strips, panels;      // of the full product
	int64_t blocks;              // of k
	int64_t chunk, chunk_blocks; // steps of k that are divided into blocks alike; how many
	int64_t down, across;        // workers
	int64_t strip_size, panel_size; // elements from strip to strip, from panel to panel
	int64_t a_row, a_step;          // of a packed strip: from row to row, from step to step
	int64_t a_slice, b_slice;       // elements from slice to slice of a strip, of a panel
	struct Shared {
		int64_t batches, pieces; // of its own; workers per block of k
		int64_t size, offset;    // elements of a block of k; bytes before it
	} shared[2];
	Patch patch;
	Squares squares;                // of Winograd's method
	int64_t sum_row;                // elements of sums from row to row
	bool overlap;                   // a panel is finished while the next is multiplied
	bool ahead;                     // and the next strip is packed meanwhile
	int64_t held;                   // panels whose sums of a strip are kept
	int64_t sum_line, sum_rows;     // rows of sums from line to line of windows, of a strip
	int64_t strip_point, sum_point; // elements from point to point of strips, of products
	int64_t part_blocks;            // of k, of a part of it
	int64_t part_size, part_offset; // elements of the sums of a part; bytes of work before them
	int64_t partials;               // bytes of work before the partial results
	int64_t sums, strip, panel;     // bytes of local memory
	int64_t products;               // the same, of the points of squares
	int64_t local;                  // of all of these, with the sums of a gang
} DotSizes;
// Returns how many lines of `run` windows, so many rows apart, a matrix register of `rows` has.
static inline int64_t joined_lines(int64_t rows, int64_t run, int64_t apart)
{
	return apart > run ? 1 + (rows - run) / apart : 1;
}
// Returns how many digits i of the rows a strip of windows has.
static inline int64_t strip_digits(const Sched *s, int i)
{
	return i == 0 ? s->run : i == 1 ? s->height / s->run : 1;
}
// True if rows of a are windows, which come from a patch or as squares.
static inline bool has_windows(const Sched *s)
{
	return s->a == W_patch || s->a == W_winograd;
}
enum { SLICES = 3 };  // of an f32: its 24 bits, 8 each
enum { COPIED = 64 }; // steps of k that a worker of the packing launch copies
typedef struct Inside Inside;
// True if matrix registers take the steps of a patch: as many as they hold follow each other in it.
bool fits_matrix(const Patch *, int rank, int matrix);
// True if matrix registers multiply slices of f32, m x k times k x n of them: if packing these is
// worth it. patch: the rows of the left operand are windows. Where products are rounded, those that
// are not stay products of f32.
bool multiplies_slices(const Graph *, const Machine *, int64_t m, int64_t n, int64_t k, bool patch);
// Returns the sizes that do not depend on the schedule: those of the matrices. Leading axes along
// which b repeats, up to the rows, are rows of a.
DotSizes matrix_sizes(const Graph *, const Val *dot);
DotSizes dot_sizes(Arena *scratch, const Graph *, const Inside *, const Kern *, const Machine *);

// Sizes computed from the schedule of a product in tiles of blocks of threads.
typedef struct BlockSizes {
	DotSizes dot;           // batch, m, n, k, and what follows from the graph alone
	Elem matrix;            // of operands of matrix instructions: 16 bits, or f32 (as
	                        // TF32, unless the machine is exact); 0: none
	bool groups;            // those of warpgroups
	int64_t lines;          // rows and columns of a step of k that shared memory has room for
	int64_t down, across;   // tiles
	int64_t bands;          // of strips of tiles, each of a worker
	int64_t part;           // steps of k of a part
	int64_t part_size;      // elements of its sums
	int64_t partials, work; // bytes of work before the partial results; in all
} BlockSizes;
BlockSizes block_sizes(const Graph *, const Kern *, const Machine *);
enum { MATRIX_LINE = 64 }; // bytes of steps of k of a stage, for matrix instructions, or twice
// Rows or columns of tiles of warpgroups: at most, in a line of shared memory; and what a side that
// is not a power of two is a multiple of.
enum { GROUP_LINE = 64, GROUP_UNIT = 16 };
enum { MATRIX_ROWS = 32, MATRIX_COLUMNS = 64 }; // of a tile, at least

// Partial results of reductions, in a kernel's work:
enum { PARTIAL = 8 };                  // bytes of an element of any type
int64_t partial_line(int64_t columns); // elements from the start of a row to that of the next
enum { ROWS_JOINED = 64 }; // of a product, whose sums a worker of the launch after joins
// Returns the elements of the parts of a product's reduction: of the columns of each block of rows,
// or of the rows of each panel.
static inline int64_t partial_elements(const Kern *k, const DotSizes *p)
{
	return reduces_along(k) ? p->panels * partial_line(p->m) : p->down * partial_line(p->n);
}

// ---- attend_sizes.c ---------------------------------------------------------------------

// Parts of a worker's local memory. Panels are as in a product.
enum {
	AT_KEYS,      // a block of keys as columns, in panels
	AT_VALUES,    // a block of values, in panels; gradients: as columns
	AT_QUERIES,   // rows of queries: a strip; gradients: all of a block
	AT_SCORES,    // scores, then probabilities, of these queries and a block of keys
	AT_SUMS,      // by query: the sum of probabilities times values, without the division
	AT_MOST,      // by query: the largest score
	AT_TOTAL,     // by query: the sum of probabilities
	AT_BASE,      // by query of a strip: what its scores are relative to
	AT_FADE,      // by query of a strip: the factor of earlier sums
	AT_LANES,     // by query of a strip: a vector to reduce
	AT_KEY_ROWS,  // a block of keys, in panels
	AT_SLOPES,    // gradients of the scores
	AT_GRADIENTS, // of a block of queries: rows of the gradient of the result
	AT_DQ,        // gradients: of all queries of the head, of a block of keys
	AT_DK,
	AT_DV,
	// Of products of bf16; AT_SCORES and AT_SLOPES have a strip then.
	AT_WEIGHT_ROWS, // probabilities of a strip
	AT_SLOPE_ROWS,  // gradients of its scores
	AT_KEY_WEIGHTS, // both by key, of a block of queries
	AT_KEY_SLOPES,
	AT_QUERY_PAIRS,    // a block of queries, in panels
	AT_GRADIENT_PAIRS, // rows of the gradient of the result, in panels
	AT_PARTS
};
typedef struct AttendSizes {
	Shape lead;
	Shape added;                                // of these, by a worker
	bool back;                                  // gradients
	int64_t batch, queries, keys, width, depth; // heads; columns of queries, of values
	int64_t bytes;                              // of an element
	int lanes;                                  // elements of a vector
	bool halves;                   // operands of products are bf16, or slices of f32
	int matrix;                    // as in Tile
	int slices;                    // of f32, as in DotSizes; else 1
	int64_t panel;                 // columns of a panel
	int64_t blocks, strips, parts; // of keys; of queries: strips, blocks of these
	int64_t lower;                 // strips, the last, of one row less
	int64_t score_line, width_line, depth_line; // elements from row to row
	int64_t stat_line;                          // elements by query, from strip to strip
	int64_t local[AT_PARTS], local_bytes;       // elements; bytes of all
} AttendSizes;
// True if one kernel computes both: they have the same operands.
bool same_attention(const Val *, const Val *);
AttendSizes attend_sizes(const Graph *, const Kern *, const Machine *);
// Elements of bf16 from row to row of so many.
int64_t attend_half_line(const AttendSizes *, int64_t columns);
// Returns the type that attention's products read by instructions of matrices or pairs, f32 as in
// BlockSizes; 0: none.
Elem attend_matrix(const Graph *, const Val *, const Machine *);
// Sizes of attention, or of its gradients (`back`), by blocks of threads. A block has `height`
// rows, queries or keys, and goes through blocks of `columns` of the others.
enum {                // parts of the memory that its threads share: operands of products
	AB_ROWS,      // queries or keys: of scores
	AB_GRADIENTS, // gradients, or values: of gradients of probabilities
	AB_COLUMNS,   // of scores
	AB_VALUES,    // of gradients of probabilities
	AB_WEIGHTS,   // probabilities, or gradients of scores: of the sums
	AB_SUMMED,    // what they weigh
	AB_PARTS
};
enum { ATTEND_SUMS = 80 }; // of a thread of two blocks, if rows are warps' own, in gradients
typedef struct AttendBlocks {
	Elem matrix;             // as in BlockSizes
	int64_t bytes;           // of an element of an operand
	int64_t height, columns; // rows of a block; columns of a tile of scores
	int64_t width, depth;    // columns of queries, of values, as tiles have them
	bool both_ways;          // the sums read columns as scores do
	bool own_rows;           // of a warp, whose probabilities stay in registers
	bool groups;             // those multiply by instructions of warpgroups
	bool beside;             // which have the same rows, and halves of the columns
	bool once;               // a block has all keys: it computes all gradients
	int64_t stages, stage;   // of columns, if rows are warps' own; bytes of one
	bool turns;              // AB_COLUMNS, AB_VALUES and AB_SUMMED take turns in one place
	int64_t at[AB_PARTS];    // elements before
	int64_t shared;          // bytes; 0: no tile fits
	bool launched;           // which the launch gives
} AttendBlocks;
enum { ATTEND_WAYS = 16 }; // threads that have scores of a row, whose statistics come last
AttendBlocks attend_blocks(const Graph *, const Val *, const Machine *, bool back);
// Returns the rows of a block's tile of scores, as its warps have them.
int64_t attend_tile_rows(const AttendBlocks *);
// Workers of attention by blocks of threads, or of its gradients: blocks of keys, which compute the
// gradients of keys and values, blocks of queries, and tiles of gradients of biases, each of which
// adds up that tile of all heads that share it. Those of keys are a launch of their own, unless
// there are none of queries or all leave multiprocessors idle.
typedef struct AttendWorkers {
	int64_t keys, queries, tiles;
	bool together;
} AttendWorkers;
AttendWorkers attend_workers(const Graph *, const Kern *, const Machine *);
int64_t attend_bias_tiles(const Graph *, const Kern *, const AttendBlocks *, int o); // of output o
int64_t attend_head_tiles(const Graph *, const Val *db, const Machine *); // of a head; no tile: 1
// Returns the attention that an output of its kernel is, or rounds to a type of 16 bits.
Ref attention_of(const Graph *, Ref out);
// True if the kernel computes gradients of keys or values (`keys`), or anything else but those of
// biases.
bool attend_computes(const Graph *, const Kern *, bool keys);
// True if attention (`back`: its gradients too) has a kernel: it has a tile, and enough to do.
// Every query of a causal one has a key.
bool attend_fits(const Graph *, const Val *, const Machine *, bool back);

#endif
