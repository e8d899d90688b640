// random_maker.h: what random.c and random_step.c share: a random graph while it is made.
#ifndef RANDOM_MAKER_H
#define RANDOM_MAKER_H
#include "random.h"
#include <setjmp.h>

enum { MOST_RANK = 6 };

typedef struct Maker {
	Random made;
	VEC(Ref) pool;     // values to go on from
	VEC(Array) slots;  // by number
	VEC(Array) values; // of the graph so far, by Ref
	Ref x, y, z;       // operands of the expression being put
	jmp_buf too_large; // where a step ends whose values would be
} Maker;

uint64_t draw(Maker *, uint64_t below);
const Val *value(const Maker *, Ref);
const Shape *shape_at(const Maker *, Ref);
char class_at(const Maker *, Ref); // f i u b

// put(), and its value against the operator's meaning.
Ref enter(Maker *, Op, int nin, const Ref *in, const Attr *);
Ref enter1(Maker *, Op, Ref);
Ref enter2(Maker *, Op, Ref, Ref);
Ref as_type(Maker *, Ref, Elem);
Ref as_shape(Maker *, Ref, const Shape *); // reshaped
Ref with_axis(Maker *, Ref);               // a number gets an axis of 1
Ref as_float(Maker *, Ref);                // mostly f32, which all else is trained in
Ref as_integer(Maker *, Ref);

// Integers are in [0, below), or around 0 where below is 0.
void *random_bytes(Maker *, Elem, const Shape *, int64_t below);
Ref new_slot(Maker *, Elem, Shape, const void *bytes);
Ref new_leaf(Maker *, Elem, Shape); // a slot or a constant
Elem any_type(Maker *);
int64_t any_size(Maker *); // of an axis

bool stretches(const Shape *, const Shape *); // may a map combine them?
Ref partner(Maker *, Ref x);   // something of x's type that x can be combined with: a value that
                               // fits, or a new leaf
Ref condition(Maker *, Ref x); // a truth value that selects of x
int any_axes(Maker *, Ref x, int64_t *axes); // some axes of x, at least one, ascending

// random_step.c: an operator, or a few, on x.
typedef Ref Step(Maker *, Ref x);
extern Step *const random_steps[];
extern const int random_step_count;

#endif
