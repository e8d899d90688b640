// thread_tile.h: declares what products by blocks of threads (thread_tile.c) and the matrix
// instructions of a target share.
#ifndef THREAD_TILE_H
#define THREAD_TILE_H
#include "gen.h"

enum {
	WIDE = 16,  // bytes of the widest load
	SIDE = 16,  // threads that have sums of a row, and of a column
	SUMS = 128, // of a thread
	BASES = 4,  // addresses that are not a constant apart
	LOADS = 64, // elements of an operand that a thread loads at once
};

typedef struct Share {       // of an operand: what a thread brings to shared memory in each step
	bool along;          // lanes along k
	bool wide;           // memory has `vec` elements as they are needed, in one load
	int vec, count;      // elements that are side by side; how many such
	Index other[LOADS];  // by load: its row of a or column of b, at most the last
	Value k[LOADS];      // where it begins in the step
	int64_t apart;       // rows or columns (along k) or steps of k from load to load
	int64_t ahead;       // of wide loads: bytes in memory from step to step; or IRREGULAR
	int64_t far;         // from load to load; or IRREGULAR
	Value from[LOADS];   // variables: bytes from the start of the value, or addresses if they
	                     // are copies; only the first of regular ones
	Value advanced;      // a variable: bytes to add to several `from`, which stay; or NULL
	int64_t channels;    // steps of k at a place of the windows, in whole steps; or 0
	Value inside[LOADS]; // by load: i32, a bit for each place that lies inside
	bool found;          // lanes find where steps are for each other, see find_steps()
	bool alike;          // all columns of the tile lie inside together, side by side
	bool sure;           // they do
	Value entry, lane;   // i32: what the lane has found; its number XOR that of its step
	int places;          // where loads go to in shared memory, or their elements if turned
	Value to[LOADS];     // their addresses in the first stage
	int64_t next;        // bytes from load to load, of which the first has an address; or 0
	Value loaded[LOADS]; // by element: a variable
	Value some[LOADS];   // by wide load: a variable: if it is not zeros; or NULL
	int64_t side;        // rows or columns: of the tile, or more, so that threads have as many;
	                     // or fewer: of each warpgroup, which have the same
	bool ends;           // those of a tile may go beyond the last
	bool stays;          // all stages have it in one place
	int64_t start, size; // elements before it in shared memory, and of it
	int64_t lines;       // there: rows or columns (along k), or steps of k
} Share;

typedef struct Copy { // of `n` elements
	int n;
	Value to, from;               // from: i64
	int64_t to_bytes, from_bytes; // after these addresses
	Value inside;                 // false: zeros; NULL: always true
	Value left;                   // elements before the end, perhaps fewer than `n`, or none:
	                              // the others are zeros; NULL: many
} Copy;

// How threads multiply what is in shared memory.
typedef struct TileKind {
	// Returns which byte of operand o an element begins at, see share_memory().
	Value (*place)(ThreadTile *, int o, Value k, Value other);
	bool (*in_line)(const Share *); // elements that are loaded together lie together there
	// The distance in elements between neighboring rows or columns (along k), or steps of k;
	// they lie in the same order again after `period`.
	int64_t (*line)(const ThreadTile *, int o);
	int period;
	// If they are turned as they are stored: rows or columns that lie in the same order, from a
	// multiple of as many on. NULL: they are not turned, or all lie so.
	int (*alike)(const ThreadTile *);
	int64_t (*share_size)(ThreadTile *, int o);
	void (*start)(ThreadTile *); // sets `base`
	// Adds `depth` steps of k to the sums. Stages are counted in bytes.
	void (*multiply)(ThreadTile *, Value stage);
	// If products go on while threads do: waits until those of at most so many steps are under
	// way; takes the sums of all, which were waited for. NULL: multiply waits for them.
	void (*finish)(ThreadTile *, int most);
	void (*take_sums)(ThreadTile *);
	// Makes what the thread has written to shared memory, or copied, visible to multiply, after
	// the next barrier; NULL: it is.
	void (*publish)(ThreadTile *);
	int results; // of an instruction: sums in one variable, a vector; 0: one
	// For attention (NULL: of products alone): a row's sums are those of `ways` threads.
	// Returns the number among the thread's rows (o: 0) or columns (o: 1) of that of sum i, and
	// where that number is in the tile.
	int ways;
	int (*line_of)(const ThreadTile *, int o, int i);
	Value (*line_place)(ThreadTile *, int o, int line);
	Value (*way)(ThreadTile *); // the thread's number among those that have sums of its rows
	// Reduces over these threads, in one order; NULL: by shared memory.
	Value (*reduce_row)(ThreadTile *, Op, Value);
	// Makes `n` sums of a thread, those of a tile as wide as there are steps of k, operand a of
	// the next products; NULL: by shared memory.
	void (*hold)(ThreadTile *, int n, const Value *);
	int (*groups)(ThreadTile *); // parts of the rows that are stored one after the other
	void (*store_sums)(ThreadTile *, Value group); // to shared memory, row by row
	int sum_pad; // elements between these rows, so that fewer share a bank
	// What is wide is copied to shared memory by itself; what was copied so far is a step;
	// waits until at most so many steps are under way.
	bool asynchronous;
	void (*copy)(ThreadTile *, const Copy *);
	void (*commit)(ThreadTile *);
	void (*wait)(ThreadTile *, int most);
	// Returns the bits of the lane at this XOR distance among 32; NULL: lanes find places of
	// their own alone.
	Value (*exchange)(Gen *, Value bits, Value distance);
} TileKind;

struct ThreadTile {
	Gen *g;
	const TileKind *kind;
	const Sched *s;
	const Val *v;
	BlockSizes p;
	LLVMTypeRef elem, packed; // of sums; of operands in shared memory
	int bytes, packed_bytes;
	int64_t size[2]; // rows, columns
	Value thread;
	Value shared; // memory of `stages` times `stage` elements of operands
	int64_t stage;
	LLVMTypeRef count;            // of steps of k
	Value start;                  // first step of the part
	int64_t line;                 // elements between the rows of sums there
	Index batch, number, tile[2]; // of the batch, the part, the rows and columns
	Value first[2];               // row and column
	Value column;                 // of the thread, as the sums are finished
	Share share[2];               // of the operands
	int64_t section;              // steps of k in whose loop loads have in common; or 0
	Value place;                  // of windows with places, that is loaded: its bit
	Value base[2][BASES];         // by operand: where a thread reads in the first stage
	Value held[SUMS / 2];         // operand a, if it is in registers: pairs, else NULL
	Value sum[SUMS];              // variables, by read_sum() and set_sum()
	Partials parts;               // of the kernel's reductions
};

typedef struct Element { // of an operand, in memory
	Ref r;
	Index place;
	const Shape *windows; // NULL, or of the value under windows: 0 if idx is outside of it
	Index idx[RANK];
} Element;

Value pair_of(Gen *, const Value *); // two halves as i32, the first in the low bits
// Returns the address of a value as an index.
Index memory_start(Gen *, Ref);
// Sums of a thread: so many, as 0; sum i.
void clear_sums(ThreadTile *, int n);
Value read_sum(ThreadTile *, int i);
void set_sum(ThreadTile *, int i, Value);
// Returns the number of rows or columns from a multiple of it on that are a constant apart.
int alike_lines(const ThreadTile *);

extern const TileKind fused_tile; // thread_tile.c: by multiplying and adding

// ---- thread_share.c: operands on their way to shared memory ---------------------------

// Loads or stores `n` elements side by side, whose address is a multiple of their bytes.
void load_side(Gen *, LLVMTypeRef, int bytes, Value from, int n, Value *to);
void store_side(Gen *, LLVMTypeRef, int bytes, Value to, int n, const Value *from);
Value lane_number(Gen *, int);                     // of a vector
Value share_memory(ThreadTile *, int o, Value at); // byte `at` of operand o in the first stage
void share_start(ThreadTile *, int o);             // where the thread's share of operand o lies
void share_addresses(ThreadTile *, int o);         // and where it comes from
bool is_copied(const ThreadTile *, const Share *); // by itself
Value step_number(const ThreadTile *, Value i);    // of the type that counts steps of k
Value step_count(const ThreadTile *, int64_t n);
// Loads the share at a step, and stores what was loaded, or copies it, in a stage of shared memory.
void load_share(ThreadTile *, int o, Value step, Value stage);
void put_share(ThreadTile *, int o, Value stage);
void advance_share(ThreadTile *, int o); // by one step
void advance_bytes(ThreadTile *, int o, Value bytes);
// Returns the operand; matrix instructions for TF32 round it themselves.
Ref share_operand(const ThreadTile *, int o);
// Finds where an operand's element lies in memory. False: it is computed.
bool find_element(ThreadTile *, int o, const Index *k, const Index *other, Element *);
bool may_lie_outside(ThreadTile *, const Element *, int axis);
Value lies_inside(ThreadTile *, const Element *); // under windows; NULL: it does
Value element_address(ThreadTile *, const Element *);

// ---- thread_section.c: what loads have in common in a section of k ---------------------

enum { STEP_LANES = 8 };                            // that have a step of k, if finds_steps()
int64_t place_channels(ThreadTile *, int o);        // Share.channels
void find_inside(ThreadTile *, int o, int i);       // Share.inside, of load i
Value at_place(ThreadTile *, const Share *, int i); // whether load i lies inside
bool finds_steps(ThreadTile *, int o);              // sets Share.found
void start_steps(ThreadTile *, int o);              // where columns are at the first step
void copy_found(ThreadTile *, int o, Value step, Value stage);
// Loads are in a section until, if it ends, they go to the next.
void enter_section(ThreadTile *, Value section);
void leave_section(ThreadTile *, int o, Value section, Value ends);

#endif
