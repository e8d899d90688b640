// thread_attend.h: declares what attention by blocks of threads (thread_attend.c) and the products
// that it consists of (thread_attend_product.c) share.
#ifndef THREAD_ATTEND_H
#define THREAD_ATTEND_H
#include "attend.h"
#include "thread_tile.h"

typedef struct Product { // of a tile, all steps of k in shared memory
	ThreadTile d;
	Sched sched;
	int sums; // of a thread
	// If warpgroups have the same rows: the number of the first sum that the other hands over;
	// by row, factors of the own sums and of those, or NULL.
	int handed;
	Value fade[SUMS][2];
} Product;

typedef struct Lines {  // rows or columns of a block that a thread has
	int64_t all;    // of all blocks
	Value at[SUMS]; // i32
	Index index[SUMS];
} Lines;

typedef struct ThreadAttend {
	Attend a;
	AttendBlocks z;
	bool keys; // rows are keys, columns are queries
	bool tile; // a worker has one block of columns: of the gradient of a bias
	Value thread, shared;
	Value first; // row of the worker
	Value half;  // of a stage's columns: which warpgroup has it, if both have the same rows
	Lines row, column;
	Value apart[SUMS]; // columns after the thread's first
	bool fast;         // exponentials are as exact as halves need
	double unit;       // of the scores that it has
	int64_t part;      // columns of scores that it has at once
} ThreadAttend;

typedef struct Source { // rows of an operand of attention, as operand o of a product
	Product *p;
	int o, operand;
	// Of a thread's pieces, if they are copied: `count` of them, `far` bytes apart in memory
	// and `apart` rows; else 0. All threads have some, or `some` of them.
	int count;
	int64_t apart, far, line; // line: bytes from row to row
	Value from, to, row;      // of the first, where the first row is 0
	Value some, inside;       // NULL: all; inside: in the operand's columns
} Source;

typedef struct Stages {
	Source rows[2], columns[2];
	int rows_count, columns_count;
	bool copies;
	Value next; // variable: bytes before the stage that is read next
	Loop loop;
} Stages;

// Returns a product of `m` rows, `n` columns and `steps` of k, whose operands are two parts of
// shared memory. `along`: rows of memory are columns of b, else steps of k.
Product *attend_product(ThreadAttend *t, int64_t m, int64_t n, int64_t steps, bool along, int a,
                        int b);
// stage: bytes before what it reads of b, and of a unless that stays.
// The same of steps that are lines of both operands, which stay in their parts, as a block's
// threads have sums of products.
Product *attend_turned_product(ThreadAttend *t, int64_t m, int64_t n, int64_t steps, int a, int b);
void attend_multiply(Product *p, Value stage);
void attend_multiply_anew(Product *p, Value stage);
// Returns the address of an operand's element at step k.
Value attend_place(Product *p, int o, Value k, Value other);
Value attend_packed(const Product *p, Value x, Elem type);
// Returns how many columns of scores, in `tiles`, registers have room for beside sums of so many
// columns, and what masks take.
int64_t attend_part(const ThreadAttend *t, int64_t sums, int tiles);
void attend_bring(ThreadAttend *t, Product *p, int o, int operand, Value first);
// Finds what copies bring. They do if memory has the type of the product, rows are evenly spaced in
// it, and pieces of them aligned.
Source attend_source(ThreadAttend *t, Product *p, int o, int operand);
// Brings the rows and the block of columns from `first` on, for all threads.
void attend_bring_tile(ThreadAttend *t, Stages *s, Value first);
// Begins the loop over blocks of columns, each of which is brought while the one before it is
// multiplied. Returns the bytes before the stage of the block.
Value attend_stages_begin(ThreadAttend *t, Stages *s, Value begin, Value end);
// Returns what comes before column `first` of a stage of a product's operand b.
Value attend_stage_part(const Product *p, Value stage, Value first);

#endif
