// book.h: what the tests of the book share: random numbers, cases written as text, comparisons.
#ifndef BOOK_H
#define BOOK_H
#include "ir.h"

extern int failures, checks;

#define CHECK(ok, ...)                                                                             \
	do {                                                                                       \
		checks++;                                                                          \
		if (!(ok)) {                                                                       \
			failures++;                                                                \
			printf("FAIL " __VA_ARGS__);                                               \
			printf("\n");                                                              \
		}                                                                                  \
	} while (0)

extern uint64_t seed; // of the numbers to come
double uniform(void); // in [0, 1)
int below(int n);
Array random_array(Arena *, Elem, Shape);
// Largest difference, relative to 1 or the number. NaN equals NaN.
double difference(const Array *left, const Array *right);

// A case is slots, then an expression over them: "x:3,4 i:4 = gather(x, i; 0)". By its first letter
// a slot holds: i indices below 3, p truth values, q positive numbers, o numbers of which some are
// zero; others any numbers. "plain" in front: no wholes are made.
// Its graph: the expression as "out", and times random numbers, summed, as "loss"; its slots'
// values.
Graph *case_loss(Arena *, const char *line, Array *slot);
// The outs of two graphs on the same slots differ by no more.
void check_same(Arena *, const char *what, const char *line, const Graph *, const Graph *,
                const Array *slot, double within);

// The sum of a graph's value and random numbers as its out "loss": the same numbers from one seed.
void add_loss(Arena *, Graph *, Ref);

// ---- book_corner.c --------------------------------------------------------------------

// Where inputs lie: anywhere, or where equations and gradients may break.
typedef enum Corner {
	ANYWHERE,
	TIES,
	ZEROS, // of either sign
	INFINITIES,
	EMPTY_MASKS,
	FULL_MASKS,
	HIDDEN_ROWS,
	AXES_OF_1,
	CORNERS
} Corner;

const char *corner_name(Corner);
void move_to_corner(Corner, Array *);
// Is there a reason why the sides of this line differ there?
bool may_differ(const char *place, Corner);
// As difference(), but what is NaN on the left may be any number on the right: an indeterminate
// form (0 / 0, inf - inf, 0 * inf) has no value, and a rule may give it one.
double departure(const Array *left, const Array *right);

void test_gradients(void), test_attention(void); // book_gradients.c, book_attention.c

#endif
