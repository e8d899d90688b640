// random_maker.h: declares the random graph under construction, for random.c and random_step.c.
#ifndef RANDOM_MAKER_H
#define RANDOM_MAKER_H
#include "random.h"
#include <setjmp.h>

enum { MOST_RANK = 6 };

typedef struct Maker {
	Random made;
	VEC(Ref) pool;     // values available as operands
	VEC(Array) slots;  // indexed by number
	VEC(Array) values; // values of the graph so far, indexed by Ref
	Ref x, y, z;       // operands of the expression being put
	jmp_buf too_large; // target of a step whose values would be too large
} Maker;

uint64_t draw(Maker *, uint64_t below);
const Val *value(const Maker *, Ref);
const Shape *shape_at(const Maker *, Ref);
char class_at(const Maker *, Ref); // f i u b

// Calls put() and compares its value with the operator's meaning.
Ref enter(Maker *, Op, int nin, const Ref *in, const Attr *);
Ref enter1(Maker *, Op, Ref);
Ref enter2(Maker *, Op, Ref, Ref);
Ref as_type(Maker *, Ref, Elem);
Ref as_shape(Maker *, Ref, const Shape *); // reshapes to the shape
Ref with_axis(Maker *, Ref);               // gives a scalar an axis of size 1
Ref permuted(Maker *, Ref, const int64_t *perm);
Ref as_float(Maker *, Ref); // mostly f32, the type of training
Ref as_integer(Maker *, Ref);

// Integers are in [0, below), or around 0 if `below` is 0.
void *random_bytes(Maker *, Elem, const Shape *, int64_t below);
Ref new_slot(Maker *, Elem, Shape, const void *bytes);
Ref new_leaf(Maker *, Elem, Shape);          // a slot or a constant
Ref new_weight(Maker *, Shape, int64_t fan); // a parameter for sums of `fan` products
Elem any_type(Maker *);
int64_t any_size(Maker *); // size of an axis

bool broadcasts(const Shape *, const Shape *); // true if a map may combine them
Ref partner(Maker *, Ref x);   // an operand of x's type for a map with x: a value or a new leaf
Ref condition(Maker *, Ref x); // a Boolean for a select of x
int any_axes(Maker *, Ref x, int64_t *axes); // some axes of x, at least one, ascending

// random_step.c: puts one or a few operators on x.
typedef Ref Step(Maker *, Ref x);
extern Step *const random_steps[];
extern const int random_step_count;

// random_layer.c: puts a layer of a network on an image [N, C, ..] or a sequence [N, length,
// width].
typedef struct Layers {
	Ref (*start)(Maker *); // makes such a value
	Step *const *layer;
	int count;
} Layers;
extern const Layers image_layers, sequence_layers;
Ref put_classified(Maker *, Ref x); // puts logits and a loss of labels

#endif
