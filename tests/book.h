// book.h: declares what the book's tests share: random numbers, cases as text, comparisons.
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

extern uint64_t seed; // state of the generator
double uniform(void); // in [0, 1)
int below(int n);
Array random_array(Arena *, Elem, Shape);
// Returns the largest difference, relative to max(1, value). NaN equals NaN.
double difference(const Array *left, const Array *right);

// A case is slots, then an expression over them: "x:3,4 i:4 = gather(x, i; 0)". The slot's first
// letter selects its values: i indices below 3, p Booleans, q positive values, o values of which
// some are zero, others any values. The prefix "plain" disables composites.
// Returns its graph, with the expression as output "out" and its sum, weighted by random values, as
// "loss", and the slots' values in `slot`.
enum { CASE_SLOTS = 8 };                                              // most slots of a case
Graph *case_value(Arena *, const char *line, Array slot[CASE_SLOTS]); // without the loss
Graph *case_loss(Arena *, const char *line, Array slot[CASE_SLOTS]);
// Checks that the outputs of two graphs on the same slots differ by at most `within`.
void check_same(Arena *, const char *what, const char *line, const Graph *, const Graph *,
                const Array *slot, double within);

// Adds output "loss", the sum of a value weighted by random values, which are the same for the same
// seed.
void add_loss(Arena *, Graph *, Ref);

// ---- book_corner.c --------------------------------------------------------------------

// Regions of inputs: anywhere, or where equations and gradients may break.
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
// True if the sides of this line may differ there, for a listed reason.
bool may_differ(const char *place, Corner);
// As difference(), but a NaN on the left matches any value: an indeterminate form (0 / 0, inf -
// inf, 0 * inf) has no value, and a rule may give it one.
double departure(const Array *left, const Array *right);

void test_gradients(void), test_attention(void); // book_gradients.c, book_attention.c
void test_lines(void);                           // book_lines.c

#endif
